//! The memory in front of the log comes, goes and is replaced while the real program serves:
//! nothing acknowledged is lost whenever it dies, nobody sees an error, a start needs what is named
//! and nothing else, and what cannot be the memory is refused, with nothing written to it.

mod harness;

use std::fs::File;
use std::path::Path;

use harness::model::{Mix, Op, check_sectors, difference};
use harness::nbd::Client;
use harness::random::Random;
use harness::{Daemon, Site, Value, cycles, seed, skipped, until};

const VOLUME: u64 = 8 << 20;
const LAZY: &str = "--quiet --idle-max 1h --idle-min 1h";
/// What is written stays in the memory for a while.
const FIXED: &str = "--nvram-policy lru";
const TMPFS: u64 = 0x0102_1994;

fn site() -> Site {
    Site::with("4M", VOLUME, "--segment-size 64k")
}

fn file(site: &Site, name: &str, bytes: u64) {
    File::create(site.path(name)).and_then(|file| file.set_len(bytes)).unwrap();
}

fn is_in_memory(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|fs| fs.f_type as u64 == TMPFS)
}

/// The memory that the superblock names, of these; none.
fn named(site: &Site, memories: &[&str]) -> Option<String> {
    let superblock = site.dcd("inspect superblock --cache-disk c --json").ok();
    let copies: Vec<Value> = serde_json::from_str(&superblock).unwrap();
    let copies = copies.iter().map(|copy| &copy["superblock"]);
    let newest = copies.max_by_key(|copy| copy["generation"].as_u64()).unwrap();
    let id = newest["nvram_id"].as_str()?.to_owned();
    let is_it = |memory: &&&str| {
        let inspected = site.dcd(&format!("inspect nvram --nvram {memory} --json"));
        inspected.stdout.contains(&id)
    };
    let found = memories.iter().find(is_it);
    Some((*found.unwrap_or_else(|| panic!("{id} is none of {memories:?}"))).to_owned())
}

fn serve(site: &Site, memories: &[&str]) -> Daemon {
    match named(site, memories) {
        Some(memory) => site.serve(&format!("{LAZY} --nvram {memory} {FIXED}")),
        None => site.serve(LAZY),
    }
}

fn mix() -> Mix {
    Mix { volume: VOLUME, sectors_max: 48, flush_every: 0, fua_every: 9, zero_every: 20 }
}

/// Killed at any moment of changes under load; the start is given what the superblock names.
#[test]
fn nothing_is_lost_while_the_memory_changes() {
    let site = site();
    let memories = ["n", "m"];
    file(&site, "n", 1 << 20);
    file(&site, "m", 2 << 20);
    if is_in_memory(&site.path("n")) {
        return skipped("nvram_on_line", "the folder of tests is in memory");
    }
    let mut random = Random::new(seed());
    let mut volume = vec![0; VOLUME as usize];
    let (mut came, mut went) = (0, 0);
    for cycle in 0..cycles(8, 2) {
        let daemon = serve(&site, &memories);
        let mut client = Client::connect(&site.socket());
        let mut waiting: Vec<(u64, Op)> = Vec::new();
        std::thread::scope(|scope| {
            let changes = 1 + random.below(4);
            let first = random.below(2);
            let site = &site;
            let changer = scope.spawn(move || {
                let mut done = (0, 0);
                for change in 0..changes {
                    let is_there = !site.status()["nvram"].is_null();
                    let memory = memories[(first + change) as usize % 2];
                    let asked = match (is_there, change % 3) {
                        (false, _) => format!("nvram add {memory} --control ctl"),
                        (true, 1) => format!("nvram replace {memory} --control ctl"),
                        (true, _) => "nvram remove --control ctl".into(),
                    };
                    let outcome = site.dcd(&asked);
                    // The file of the one that is there is its own.
                    let is_own = asked.contains("replace") && outcome.stderr.contains("locked");
                    assert!(outcome.code == Some(0) || is_own, "{asked}: {}", outcome.stderr);
                    if outcome.code == Some(0) {
                        done.0 += u64::from(!asked.contains("remove"));
                        done.1 += u64::from(!asked.contains("add"));
                    }
                }
                done
            });
            while !changer.is_finished() {
                let ops: Vec<_> = waiting.iter().map(|(_, op)| op).cloned().collect();
                let op = mix().op_apart(&mut random, &ops);
                let handle = client.send_op(&op).unwrap();
                waiting.push((handle, op));
                if waiting.len() >= 8 {
                    client.one_of(&mut waiting, &mut volume);
                }
            }
            let done = changer.join().unwrap();
            came += done.0;
            went += done.1;
        });
        daemon.assert_no_panic();
        // In the middle of one more, sometimes.
        let mut last = (cycle % 2 == 0).then(|| {
            let asked = match site.status()["nvram"].is_null() {
                true => "nvram add n --control ctl",
                false => "nvram remove --control ctl",
            };
            site.start_tool(&format!("{} {asked}", env!("CARGO_BIN_EXE_dcd")))
        });
        std::thread::sleep(std::time::Duration::from_micros(random.below(40_000)));
        daemon.kill();
        if let Some(last) = &mut last {
            let _ = last.wait();
        }
        let daemon = serve(&site, &memories);
        let found = Client::connect(&site.socket()).read(0, VOLUME as usize).unwrap();
        let unsure: Vec<_> = waiting.into_iter().map(|(_, op)| op).collect();
        check_sectors(&found, &volume, &unsure)
            .unwrap_or_else(|error| panic!("cycle {cycle}: {error}\n{}", daemon.log()));
        volume = found;
        match random.once_in(3) {
            true => daemon.stop(),
            false => daemon.kill(),
        }
    }
    assert!(came > 0 && went > 0, "{came} {went}");
    serve(&site, &memories).stop();
    assert_eq!(difference(&site.detach(), &volume), None);
}

/// One that goes is missed by nobody, and what it held is in the log; a larger one comes, without a
/// restart; in the place of the log, too.
#[test]
fn a_memory_comes_and_goes() {
    let site = site();
    file(&site, "n", 1 << 20);
    file(&site, "m", 4 << 20);
    if is_in_memory(&site.path("n")) {
        return skipped("nvram_on_line", "the folder of tests is in memory");
    }
    for flags in ["", "--no-log"] {
        let daemon = site.serve(&format!("{LAZY} {flags}"));
        let mut client = Client::connect(&site.socket());
        client.write(0, &[1; 8192]).unwrap();
        let told = site.dcd("nvram add n --control ctl").ok();
        assert!(told.contains("The next start has to be given it: --nvram"), "{told}");
        client.write(4096, &[2; 8192]).unwrap();
        let before = site.status()["nvram"]["capacity_bytes"].as_u64().unwrap();
        assert!(site.status()["nvram"]["writes"].as_u64() > Some(0), "it is used");
        // Another is named now: a start without it is refused.
        site.dcd("nvram replace m --control ctl").ok();
        let after = site.status()["nvram"]["capacity_bytes"].as_u64().unwrap();
        assert!(after > 3 * before, "{before} {after}");
        assert_eq!(named(&site, &["n", "m"]).as_deref(), Some("m"));
        client.write(8192, &[3; 8192]).unwrap();
        let told = site.dcd("nvram status --control ctl").ok();
        assert!(told.contains("in front of the log"), "{told}");
        // The one before may be another cache's by now.
        let other = Site::with("4M", VOLUME, "--segment-size 64k");
        let n = site.path("n");
        other.serve(&format!("{LAZY} --nvram {}", n.display())).stop();
        site.dcd("nvram remove --control ctl").ok();
        assert_eq!(named(&site, &["n", "m"]), None);
        client.write(12288, &[4; 8192]).unwrap();
        client.flush().unwrap();
        let found = client.read(0, 20480).unwrap();
        let expected: Vec<u8> = (1..=4).flat_map(|it| vec![it; 4096]).chain([4; 4096]).collect();
        assert_eq!(found, expected, "{flags}");
        drop(client);
        daemon.assert_no_panic();
        daemon.kill();
        let daemon = site.serve(&format!("{LAZY} {flags}"));
        let found = Client::connect(&site.socket()).read(0, 20480).unwrap();
        assert_eq!(found, expected, "{flags}, behind a death");
        daemon.stop();
        site.detach();
        // As it was.
        site.dcd("create --cache-disk c --data-disk d --segment-size 64k --force").ok();
    }
}

/// What cannot be the memory is refused, and nothing is written to it; the one that is there stays.
#[test]
fn what_is_no_memory_is_refused() {
    let site = site();
    file(&site, "n", 1 << 20);
    file(&site, "m", 1 << 20);
    file(&site, "small", 4096);
    std::fs::write(site.path("text"), vec![b'x'; 1 << 20]).unwrap();
    if is_in_memory(&site.path("n")) {
        return skipped("nvram_on_line", "the folder of tests is in memory");
    }
    // Another cache's, with something in it.
    let other = Site::with("4M", VOLUME, "--segment-size 64k");
    let foreign = site.path("m");
    let daemon = other.serve(&format!("{LAZY} --nvram {} {FIXED}", foreign.display()));
    Client::connect(&other.socket()).write(0, &[9; 4096]).unwrap();
    daemon.kill();

    let daemon = site.serve(&format!("{LAZY} --nvram n {FIXED}"));
    Client::connect(&site.socket()).write(0, &[1; 4096]).unwrap();
    let images: Vec<_> =
        ["m", "text", "small"].map(|it| std::fs::read(site.path(it)).unwrap()).into();
    for (memory, why) in [
        ("m", "it belongs to the cache"),
        ("text", "something else is in it"),
        ("small", "too few or too many"),
        ("nothing", "does not exist"),
        ("c", "locked"),
        ("d", "locked"),
        ("n", "locked"),
        ("nbd://127.0.0.1/x", "network"),
    ] {
        for verb in ["replace", "add"] {
            let outcome = site.dcd(&format!("nvram {verb} {memory} --control ctl"));
            assert!(outcome.code != Some(0), "{verb} {memory}");
            let is_told = outcome.stderr.contains(why)
                || verb == "add" && outcome.stderr.contains("in front of the log already");
            assert!(is_told, "{verb} {memory}: {}", outcome.stderr);
            assert!(outcome.stderr.contains("hint"), "{}", outcome.stderr);
        }
    }
    let outcome = site.dcd("nvram add m --nvram-survives noise --control ctl");
    assert!(outcome.code == Some(2), "{}", outcome.stderr);
    let after: Vec<_> =
        ["m", "text", "small"].map(|it| std::fs::read(site.path(it)).unwrap()).into();
    assert!(images == after, "nothing is written to them");
    assert_eq!(site.status()["nvram"]["state"], "in-use");
    assert_eq!(Client::connect(&site.socket()).read(0, 4096).unwrap(), [1; 4096]);
    daemon.stop();
    let daemon = site.serve(&format!("{LAZY} --memory-max 1g"));
    let outcome = site.dcd("nvram add n --control ctl");
    assert!(outcome.stderr.contains("--memory-max"), "{}", outcome.stderr);
    let outcome = site.dcd("nvram remove --control ctl");
    assert!(outcome.stderr.contains("no memory is in front"), "{}", outcome.stderr);
    daemon.stop();
    let daemon = site.serve(&format!("{LAZY} --mode pass-through"));
    let outcome = site.dcd("nvram add n --control ctl");
    assert!(outcome.stderr.contains("mode"), "{}", outcome.stderr);
    daemon.stop();
}

/// With damage in it, it stays: that is nowhere else.
#[test]
fn a_damaged_memory_stays() {
    let site = site();
    file(&site, "n", 1 << 20);
    if is_in_memory(&site.path("n")) {
        return skipped("nvram_on_line", "the folder of tests is in memory");
    }
    let daemon = site.serve(&format!("{LAZY} --nvram n {FIXED}"));
    Client::connect(&site.socket()).write(0, &[7; 4096]).unwrap();
    daemon.kill();
    // A byte of one of the blocks.
    let image = std::fs::read(site.path("n")).unwrap();
    let is_ours = |piece: &[u8]| piece == [7; 512];
    let at = image.chunks_exact(512).position(is_ours).expect("it holds them") as u64 * 512;
    site.flip("n", at + 5, 1);
    let daemon = site.serve(&format!("{LAZY} --nvram n {FIXED}"));
    let outcome = site.dcd("nvram remove --control ctl");
    assert!(outcome.code != Some(0), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("is not taken out"), "{}", outcome.stderr);
    assert_eq!(site.status()["nvram"]["state"], "in-use");
    // Written anew, nothing is damaged.
    Client::connect(&site.socket()).write(0, &[8; 4096]).unwrap();
    site.dcd("nvram remove --control ctl").ok();
    assert_eq!(Client::connect(&site.socket()).read(0, 4096).unwrap(), [8; 4096]);
    daemon.assert_no_panic();
    daemon.stop();
}

/// A device that fails goes by itself: nobody sees an error, what was acknowledged is there, and a
/// start needs it no more.
#[test]
fn a_memory_that_fails_goes_by_itself() {
    let site = site();
    file(&site, "n", 1 << 20);
    if is_in_memory(&site.path("n")) {
        return skipped("nvram_on_line", "the folder of tests is in memory");
    }
    for rule in ["write eio", "flush eio"] {
        site.faults("faults", "");
        let daemon = site.serve(&format!("{LAZY} --nvram faulty:n,control=faults {FIXED}"));
        let mut client = Client::connect(&site.socket());
        client.write(0, &[1; 65536]).unwrap();
        site.faults("faults", rule);
        for round in 0..200_u64 {
            client.write((round % 16) * 4096, &[2 + (round % 16) as u8; 4096]).unwrap();
        }
        until("it is gone", || site.status()["nvram"].is_null().then_some(()));
        assert!(daemon.log().contains("the memory n has failed"), "{}", daemon.log());
        assert!(daemon.log().contains("not in front of the log any more"), "{}", daemon.log());
        let told = site.dcd("nvram status --control ctl").ok();
        assert!(told.contains("n has failed, and has gone"), "{told}");
        assert_eq!(site.status()["failed_nvram"], "n");
        let expected: Vec<u8> = (2..18).flat_map(|it| [it; 4096]).collect();
        assert_eq!(client.read(0, 65536).unwrap(), expected);
        client.flush().unwrap();
        drop(client);
        daemon.assert_no_panic();
        daemon.kill();
        let daemon = site.serve(LAZY);
        assert_eq!(Client::connect(&site.socket()).read(0, 65536).unwrap(), expected, "{rule}");
        daemon.stop();
        // A new device in its place.
        file(&site, "n", 1 << 20);
    }
}

/// What it serves itself it would wait for, and so for itself; nor can that be a leg.
#[test]
fn what_is_served_is_no_memory() {
    skip_without!("nvram_on_line", "fuse", "loop", "root");
    let site = site();
    std::fs::create_dir(site.path("mnt")).unwrap();
    let daemon = site.serve(&format!("{LAZY} --fuse mnt --loop"));
    let served: Vec<String> = serde_json::from_value(site.status()["frontends"].clone()).unwrap();
    let places = served.iter().filter(|place| place.starts_with('/'));
    let places: Vec<&String> = places.collect();
    assert!(places.len() >= 2, "{served:?}");
    for place in places {
        let outcome = site.dcd(&format!("nvram add {place} --control ctl"));
        assert!(outcome.code != Some(0), "{place}");
        assert!(outcome.stderr.contains("which this dcd serves"), "{}", outcome.stderr);
    }
    daemon.assert_no_panic();
    daemon.stop();
}
