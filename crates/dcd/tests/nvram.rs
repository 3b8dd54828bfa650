//! The memory in front of the log with the real program: what was acknowledged is there after
//! kill -9, whether it was flushed or not; a memory that is not the one is refused, and nothing is
//! written; in order, nothing is left in it.

mod harness;

use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use harness::model::{Mix, Op, check_sectors, difference};
use harness::nbd::Client;
use harness::random::Random;
use harness::{Daemon, Site, Value, cycles, seed, skipped};

const VOLUME: u64 = 8 << 20;
const LAZY: &str = "--quiet --idle-max 1h --idle-min 1h";
/// What is written stays in the memory for a while.
const FIXED: &str = "--nvram-policy lru";
const TMPFS: u64 = 0x0102_1994;

fn is_in_memory(path: &std::path::Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|fs| fs.f_type as u64 == TMPFS)
}

fn site() -> Site {
    Site::with("4M", VOLUME, "--segment-size 64k")
}

fn mix() -> Mix {
    Mix { volume: VOLUME, sectors_max: 48, flush_every: 0, fua_every: 9, zero_every: 20 }
}

/// A memory, and the flags that serve with it.
struct Memory {
    path: PathBuf,
    flags: String,
}

impl Memory {
    /// A file in memory; `None`: this machine has none to offer.
    fn declared(bytes: u64) -> Option<Memory> {
        let directory = std::path::Path::new("/dev/shm");
        if !is_in_memory(directory) {
            return None;
        }
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = directory.join(format!("dcd-nvram-test-{}-{number}", std::process::id()));
        std::fs::File::create(&path).and_then(|file| file.set_len(bytes)).unwrap();
        let path_words = path.display();
        let flags = format!("{LAZY} --nvram {path_words} --nvram-survives power {FIXED}");
        Some(Memory { path, flags })
    }

    /// A file of the site, on a disk.
    fn on_disk(site: &Site, bytes: u64) -> Option<Memory> {
        let path = site.path("n");
        std::fs::File::create(&path).and_then(|file| file.set_len(bytes)).unwrap();
        let flags = format!("{LAZY} --nvram n {FIXED}");
        (!is_in_memory(&path)).then_some(Memory { path, flags })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Many changes at once, kill -9 in the middle; what was answered is there, and each of the others
/// whole or not at all.
fn killed_again_and_again(site: &Site, memory: &Memory, policy: &str, times: u64) {
    let flags = memory.flags.replace(FIXED, &format!("--nvram-policy {policy}"));
    let volume = killed(site, &|| site.serve(&flags), 512, times);
    // Stopped in order, nothing is left in the memory, and nobody misses it.
    assert_eq!(difference(&site.detach(), &volume), None, "after detach");
}

/// The same of whatever is served, in blocks of so many bytes; what has to be on its beginning at the
/// end.
fn killed(site: &Site, serve: &dyn Fn() -> Daemon, block_bytes: usize, times: u64) -> Vec<u8> {
    let mut random = Random::new(seed() ^ times);
    let mut volume = vec![0; VOLUME as usize];
    for cycle in 0..times {
        let daemon = serve();
        let mut client = Client::connect(&site.socket());
        let mut waiting = Vec::new();
        let count = 20 + random.below(150);
        for _ in 0..count {
            let ops: Vec<_> = waiting.iter().map(|(_, op)| op).cloned().collect();
            let is_whole = |op: &Op| {
                let Range { start, end } = op.range();
                start.is_multiple_of(block_bytes) && end.is_multiple_of(block_bytes)
            };
            let mut next = || mix().op_apart(&mut random, &ops);
            let op = std::iter::repeat_with(&mut next).find(is_whole).expect("half of them are");
            let handle = client.send_op(&op).unwrap();
            waiting.push((handle, op));
            if waiting.len() >= 8 {
                client.one_of(&mut waiting, &mut volume);
            }
        }
        daemon.assert_no_panic();
        daemon.kill();
        let daemon = serve();
        let mut client = Client::connect(&site.socket());
        let found = client.read(0, VOLUME as usize).unwrap();
        let unsure: Vec<_> = waiting.into_iter().map(|(_, op)| op).collect();
        check_sectors(&found, &volume, &unsure)
            .unwrap_or_else(|error| panic!("cycle {cycle}: {error}\n{}", daemon.log()));
        volume = found;
        drop(client);
        match random.once_in(3) {
            true => daemon.stop(),
            false => daemon.kill(),
        }
    }
    serve().stop();
    volume
}

/// A RAID 5 volume, also with a member away; what the volume says is worth the room has it.
#[test]
fn a_volume_has_a_memory_in_front() {
    let site = Site::empty();
    let Some(memory) = Memory::declared(1 << 20) else {
        return skipped("nvram", "/dev/shm is not in memory");
    };
    let members = ["m0", "m1", "m2", "m3"];
    for member in members {
        site.folder.disk(member, 33 << 20);
    }
    let config = "extent = \"64k\"\nselective-caching = true\n[[set]]\nlevel = 5\n";
    std::fs::write(site.path("v.toml"), config).unwrap();
    let disks = |members: &[&str]| -> String {
        members.iter().map(|member| format!("--data-disk {member} ")).collect()
    };
    let all = disks(&members);
    site.dcd(&format!(
        "create --cache-disk c --cache-size 8M --segment-size 64k {all} --volume v.toml"
    ))
    .ok();
    let serve_with = |flags: &str| {
        site.start_line(&format!(
            "serve --cache-disk c --nbd unix:sock --control ctl --memory-directory . {flags}"
        ))
        .ready()
    };
    let flags = &memory.flags;
    let volume = killed(&site, &|| serve_with(&format!("{all} {flags}")), 4096, cycles(5, 20));
    // Nothing is left in it, so a start without it, and without a member, has everything.
    let daemon = serve_with(&format!("{} --degraded {LAZY}", disks(&members[1..])));
    let mut client = Client::connect(&site.socket());
    assert_eq!(difference(&client.read(0, VOLUME as usize).unwrap(), &volume), None);
    drop(client);
    daemon.stop();

    let daemon = serve_with(&format!("{all} {flags}"));
    let mut control = UnixStream::connect(site.path("ctl")).unwrap();
    let hint = r#"{"volume":{"set-attributes":{"ranges":[[0,2048]],"set":"metadata"}}}"#;
    writeln!(control, "{hint}").unwrap();
    let mut said = String::new();
    BufReader::new(control).read_line(&mut said).unwrap();
    assert!(said.contains(r#""ok":true"#), "{said}");
    let counts = || {
        let nvram = site.status()["nvram"].clone();
        [&nvram["writes"], &nvram["bypasses"]].map(|count| count.as_u64().unwrap())
    };
    let mut client = Client::connect(&site.socket());
    // Room for 200 blocks of 4 KiB: what nobody has said anything of may fill three quarters of it.
    for index in 0..400 {
        client.write((2 << 20) + index * 8192, &[1; 4096]).unwrap();
    }
    let [writes, past] = counts();
    assert!((100..200).contains(&writes) && writes + past == 400, "{writes}, {past}");
    for index in 0..100 {
        client.write(index * 8192, &[2; 4096]).unwrap();
    }
    assert_eq!(counts(), [writes + 100, past], "metadata has a place");
    daemon.kill();
    let daemon = serve_with(&format!("{all} {flags}"));
    let mut client = Client::connect(&site.socket());
    for index in 0..100 {
        assert_eq!(client.read(index * 8192, 4096).unwrap(), [2; 4096]);
    }
    drop(client);
    daemon.stop();
}

#[test]
fn nothing_acknowledged_is_lost_with_memory_that_survives() {
    let Some(memory) = Memory::declared(1 << 20) else {
        return skipped("nvram", "/dev/shm is not in memory");
    };
    killed_again_and_again(&site(), &memory, "lru", cycles(6, 20));
}

/// The memory in the place of the log: what leaves it goes to the data-disk itself.
#[test]
fn nothing_acknowledged_is_lost_in_the_place_of_the_log() {
    let site = site();
    let Some(mut memory) = Memory::declared(1 << 20) else {
        return skipped("nvram", "/dev/shm is not in memory");
    };
    memory.flags.push_str(" --no-log");
    killed_again_and_again(&site, &memory, "lst", cycles(6, 20));
}

#[test]
fn nothing_acknowledged_is_lost_with_a_device() {
    let site = site();
    let Some(memory) = Memory::on_disk(&site, 1 << 20) else {
        return skipped("nvram", "the folder of tests is in memory");
    };
    killed_again_and_again(&site, &memory, "auto", cycles(4, 20));
}

#[test]
fn a_memory_that_is_not_the_one_is_refused() {
    let site = site();
    let Some(memory) = Memory::declared(1 << 20) else {
        return skipped("nvram", "/dev/shm is not in memory");
    };
    let daemon = site.serve(&memory.flags);
    let mut client = Client::connect(&site.socket());
    client.write(4096, &[7; 4096]).unwrap();
    let nvram = site.status()["nvram"].clone();
    assert_eq!((&nvram["dirty_bytes"], &nvram["writes"]), (&4096.into(), &1.into()), "{nvram}");
    drop(client);
    daemon.kill();
    let image = std::fs::read(&memory.path).unwrap();
    let shown = site.dcd(&format!("inspect nvram --nvram {} --json", memory.path.display())).ok();
    let shown: harness::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&shown["blocks"], &shown["ranges"][0][0]), (&8.into(), &8.into()), "{shown}");
    let checked = site.dcd("check --cache-disk c");
    assert!(checked.stdout.contains("in front of the log"), "{}{}", checked.stdout, checked.stderr);

    // Without it, and with others.
    let serve = |flags: &str| {
        site.dcd(&format!(
            "serve --cache-disk c --data-disk d --nbd unix:sock --memory-directory . {flags}"
        ))
    };
    let refused = |flags: &str, words: &str| {
        let outcome = serve(flags);
        assert!(
            outcome.code != Some(0) && outcome.stderr.contains(words),
            "{flags}: {}",
            outcome.stderr
        );
        assert!(outcome.stderr.contains("hint"), "{}", outcome.stderr);
    };
    refused(LAZY, "in front of the log and did not end in order");
    let offline = site.dcd("detach --cache-disk c --data-disk d --memory-directory .");
    assert!(offline.stderr.contains("in front of the log"), "{}", offline.stderr);
    let empty = Memory::declared(1 << 20).unwrap();
    refused(&empty.flags, "nothing in it is readable as the memory");
    assert!(std::fs::read(&empty.path).unwrap().iter().all(|byte| *byte == 0), "it was written to");
    let other_size = Memory::declared(2 << 20).unwrap();
    std::fs::write(&other_size.path, [image.as_slice(), &image].concat()).unwrap();
    refused(&other_size.flags, "bytes");
    let full = Memory::declared(1 << 20).unwrap();
    std::fs::write(&full.path, vec![0x55; 1 << 20]).unwrap();
    refused(&full.flags, "something else is in it");
    refused(&format!("{LAZY} --nvram {}", memory.path.display()), "survives the loss of power");
    refused(&format!("{} --mode pass-through", memory.flags), "--nvram");
    refused(&format!("{} --read-only", memory.flags), "--nvram");
    refused(&format!("{LAZY} --nvram-high 50"), "only for --nvram");
    refused(&format!("{} --nvram-high 10 --nvram-low 20", memory.flags), "--nvram-low");

    // Of another cache.
    let other = self::site();
    let outcome = other.dcd(&format!(
        "serve --cache-disk c --data-disk d --nbd unix:sock --memory-directory . {}",
        memory.flags
    ));
    assert!(outcome.stderr.contains("belongs to the cache"), "{}", outcome.stderr);
    assert!(std::fs::read(&memory.path).unwrap() == image, "it was written to");

    // An older copy of itself: of the start before this one.
    let daemon = site.serve(&memory.flags);
    assert_eq!(Client::connect(&site.socket()).read(4096, 4096).unwrap(), [7; 4096]);
    daemon.kill();
    let newer = std::fs::read(&memory.path).unwrap();
    std::fs::write(&memory.path, &image).unwrap();
    refused(&memory.flags, "one of them is an older copy");
    std::fs::write(&memory.path, newer).unwrap();

    // It is gone, and somebody knows what that means.
    let daemon = site.serve(&format!("{} --nvram-lost", empty.flags));
    assert_eq!(Client::connect(&site.socket()).read(4096, 4096).unwrap(), [0; 4096]);
    daemon.stop();
    site.serve(LAZY).stop();
}

#[test]
fn settings_that_do_not_go_together_are_refused_while_it_serves() {
    let site = site();
    let Some(memory) = Memory::declared(1 << 20) else {
        return skipped("nvram", "/dev/shm is not in memory");
    };
    let daemon = site.serve(&memory.flags);
    let outcome = site.dcd("set mode=pass-through --control ctl");
    assert!(
        outcome.code != Some(0) && outcome.stderr.contains("dcd nvram remove"),
        "{}",
        outcome.stderr
    );
    let mut client = Client::connect(&site.socket());
    client.write(0, &[1; 512]).unwrap();
    site.dcd("drain --control ctl").ok();
    assert_eq!(site.status()["nvram"]["dirty_bytes"], 0);
    let data = std::fs::read(site.path("d")).unwrap();
    assert_eq!(data[..512], [1; 512], "drained to the data-disk");
    client.write(512, &[2; 512]).unwrap();
    drop(client);
    // Detached on line, all of it.
    site.dcd("detach --control ctl").ok();
    let data = std::fs::read(site.path("d")).unwrap();
    assert_eq!(data[512..1024], [2; 512], "detached");
    drop(daemon);
}

/// Without a setting it sets itself, is empty when nobody asks for anything, and says what it does.
#[test]
fn a_memory_sets_itself_and_says_why() {
    let site = site();
    let Some(memory) = Memory::declared(1 << 20) else {
        return skipped("nvram", "/dev/shm is not in memory");
    };
    let flags = memory.flags.replace(FIXED, "");
    let refused = site.dcd(&format!(
        "serve --cache-disk c --data-disk d --nbd unix:sock --memory-directory . {flags} \
         --nvram-policy auto --nvram-low 5"
    ));
    assert!(refused.stderr.contains("--nvram-low is only for another"), "{}", refused.stderr);
    let daemon = site.serve(&flags);
    let mut client = Client::connect(&site.socket());
    for number in 0..100 {
        client.write(number * 8192, &[1; 4096]).unwrap();
    }
    let empty = harness::until("it is cleaned", || {
        let nvram = site.status()["nvram"].clone();
        (nvram["dirty_bytes"] == 0).then_some(nvram)
    });
    let control = &empty["control"];
    assert!(control["arm"].is_string() && control["waited_us"]["age"].is_u64(), "{control}");
    assert!(empty["cleaning_writes"].as_u64() > Some(0), "{empty}");
    let shown = site.dcd("status --control ctl").ok();
    assert!(shown.contains("why now") && shown.contains("of late"), "{shown}");
    drop(client);
    daemon.stop();
}

/// The daemon and the simulator run the same code: one request at a time, on the same modelled disk,
/// with cleaning only where a write needs the room, they write the same. Which of it is under way
/// when the next request comes would depend on how fast this machine is.
#[test]
fn the_daemon_writes_what_the_simulator_says() {
    const REQUESTS: usize = 160;
    const CAPACITY: u64 = 128 << 10;
    let site = Site::empty();
    let Some(memory) = Memory::declared(CAPACITY + CAPACITY / 2) else {
        return skipped("nvram", "/dev/shm is not in memory");
    };
    // The times of the disk are those of the model, and not of what it lies on.
    let path = PathBuf::from(format!("{}.disk", memory.path.display()));
    let file = Memory { path, flags: String::new() };
    let disk = file.path.display();
    site.dcd(&format!(
        "trace generate zipf,theta=0.9,requests={REQUESTS},rate=100,reads=0,size=2k,span=4M,seed={} t.csv",
        seed()
    ))
    .ok();
    // A group is one write of the disk: of several, which one ends first is for the disk to say.
    let group = "4k";
    for (policy, head) in [
        ("lru", ""),
        ("lst", ""),
        ("gds", ""),
        // The daemon does not ask the model where its head is.
        ("stf", "--head last-address"),
        ("wstf", "--head last-address"),
    ] {
        std::fs::File::create(&file.path).and_then(|file| file.set_len(64 << 20)).unwrap();
        let settings =
            format!("policy {policy} --nvram-high 100 --nvram-low 100 --nvram-group {group}");
        site.dcd(&format!(
            "create --cache-disk c --cache-size 4M --segment-size 64k --data-disk {disk} --force"
        ))
        .ok();
        let flags = memory.flags.replace("policy lru", &settings);
        let daemon = site
            .start_line(&format!(
                "serve --cache-disk c --data-disk model:hp-97560:{disk} --no-log --nbd unix:sock \
                 --control ctl --memory-directory . {flags}"
            ))
            .ready();
        site.dcd("trace replay t.csv --nbd sock --closed-loop --overwrite").ok();
        let ours = site.status()["nvram"].clone();
        let capacity = &ours["capacity_bytes"];
        let simulated = site
            .dcd(&format!(
                "simulate --trace t.csv --closed-loop --disk hp-97560 --nvram {capacity} --json \
                 --policy {policy} --high 100 --low 100 --group {group} {head}"
            ))
            .ok();
        let simulated: Value = serde_json::from_str(&simulated).unwrap();
        let theirs = &simulated["nvram"];
        for count in ["writes", "overwritten_bytes", "cleaning_writes", "cleaning_bytes"] {
            assert_eq!(ours[count], theirs[count], "{policy}: {count}\n{ours}\n{theirs}");
        }
        assert_eq!(ours["stalled_writes"], simulated["stalled_writes"], "{policy}");
        assert!(ours["stalled_writes"].as_u64() > Some(20), "{ours}");
        daemon.stop();
    }
}
