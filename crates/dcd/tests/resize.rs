//! The log grows and shrinks while a real daemon serves, and the read area: under load, on legs, on
//! a loop device;
//! it is killed and cancelled in the middle; and what cannot be is refused, with nothing written.

mod harness;

use std::fs::{self, File};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use harness::model::{Mix, difference};
use harness::nbd::Client;
use harness::random::Random;
use harness::{Daemon, Site, Value, cycles, seed, until};
use rustix::process::{Pid, Signal, kill_process};

const NAME: &str = "resize";
const VOLUME: u64 = 16 << 20;
const CREATE: &str = "--segment-size 64k";

fn set_length(site: &Site, name: &str, bytes: u64) {
    File::options().write(true).open(site.path(name)).unwrap().set_len(bytes).unwrap();
}

/// What was answered, as JSON.
fn resized(site: &Site, size: &str) -> Value {
    let answer = site.dcd(&format!("cache-disk resize {size} --control ctl --json")).ok();
    serde_json::from_str(&answer).unwrap()
}

fn read_area(site: &Site, size: &str) -> Value {
    resized(site, &format!("--read-area {size}"))
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} in {value}"))
}

fn segments(site: &Site) -> u64 {
    number(&site.status()["segments"], "total")
}

/// A client that writes, trims, zeroes and flushes, and knows what must be there.
struct Load {
    random: Random,
    mix: Mix,
    volume: Vec<u8>,
}

impl Load {
    fn new(salt: u64) -> Load {
        let mix =
            Mix { volume: VOLUME, sectors_max: 64, flush_every: 9, fua_every: 7, zero_every: 12 };
        Load { random: Random::new(seed() ^ salt), mix, volume: vec![0; VOLUME as usize] }
    }

    /// Nothing of it may fail. Runs until it is told to end, and has done so much at least.
    fn run(&mut self, site: &Site, ops_min: usize, is_over: &AtomicBool) {
        let mut client = Client::connect(&site.socket());
        let mut ops = 0;
        while ops < ops_min || !is_over.load(Ordering::Relaxed) {
            let op = self.mix.op(&mut self.random);
            client.do_op(&op).unwrap_or_else(|error| panic!("{op:?}: {error:?}"));
            op.apply(&mut self.volume);
            ops += 1;
        }
        client.flush().unwrap();
    }

    /// Runs while `work` is done.
    fn run_beside<T>(&mut self, site: &Site, work: impl FnOnce() -> T) -> T {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let load = scope.spawn(|| self.run(site, 100, &is_over));
            let done = work();
            is_over.store(true, Ordering::Relaxed);
            load.join().unwrap();
            done
        })
    }

    fn compare(&self, site: &Site, daemon: &Daemon) {
        let found = Client::connect(&site.socket()).read_all().unwrap();
        assert_eq!(difference(&found, &self.volume), None, "{}", daemon.log());
    }
}

/// Up, up, down and back while a client writes; each time the file is cut to what is told, and the
/// process killed.
#[test]
fn it_grows_and_shrinks_under_load() {
    let site = Site::with("8M", VOLUME, CREATE);
    let mut load = Load::new(1);
    let mut daemon = site.serve("--quiet --idle-max 20ms");
    let mut before = segments(&site);
    for (length, size) in [(20 << 20, ""), (48 << 20, ""), (48 << 20, "10M"), (10 << 20, "5M")] {
        set_length(&site, "c", length);
        let done = load.run_beside(&site, || resized(&site, size));
        let (now, used) = (number(&done, "segments"), number(&done, "bytes"));
        assert_eq!((number(&done, "segments_before"), segments(&site)), (before, now));
        assert!(used <= length && (size.is_empty() == (now > before)), "{done}");
        before = now;
        load.run(&site, 50, &AtomicBool::new(true));
        set_length(&site, "c", used);
        load.run(&site, 200, &AtomicBool::new(true));
        daemon.assert_no_panic();
        daemon.kill();
        daemon = site.serve("--quiet --idle-max 20ms");
        load.compare(&site, &daemon);
        assert_eq!(segments(&site), now, "so it stays");
    }
    daemon.stop();
    site.dcd("check --cache-disk c").ok();
    assert_eq!(difference(&site.detach(), &load.volume), None);
}

/// Killed at any moment of it: the log has one size or the other, and everything is there.
#[test]
fn a_kill_at_any_moment_leaves_one_size_or_the_other() {
    let site = Site::with("8M", VOLUME, CREATE);
    set_length(&site, "c", 24 << 20);
    let mut random = Random::new(seed() ^ 7);
    let mut load = Load::new(2);
    let (mut sizes, mut changed) = (Vec::new(), 0);
    for _ in 0..cycles(12, 3) {
        let daemon = site.serve("--quiet --idle-max 20ms");
        load.compare(&site, &daemon);
        let before = segments(&site);
        sizes.push(before);
        load.run(&site, 60, &AtomicBool::new(true));
        let size = if random.once_in(2) { "" } else { "7M" };
        let mut asking = site.start_tool(&format!(
            "{} cache-disk resize {size} --control ctl",
            env!("CARGO_BIN_EXE_dcd")
        ));
        std::thread::sleep(Duration::from_millis(random.below(60)));
        daemon.kill();
        let _ = asking.wait();
        let daemon = site.serve("--quiet --idle-max 20ms");
        changed += u64::from(segments(&site) != before);
        daemon.kill();
    }
    println!("sizes {sizes:?}, {changed} times another one behind the kill");
    let daemon = site.serve("--quiet");
    load.compare(&site, &daemon);
    daemon.stop();
    assert_eq!(difference(&site.detach(), &load.volume), None);
}

/// Its interruption ends it, and everything is as before; a data-disk that takes nothing does, too.
#[test]
fn a_shrink_can_be_cancelled_and_never_waits_for_ever() {
    let site = Site::with("24M", VOLUME, CREATE);
    let data = "faulty:d,control=faults";
    let flags = "--quiet --idle-max 1h --idle-min 1h --drain-timeout 8s --dirty-high 95";
    let daemon = site.serve_disks("c", data, flags);
    let mut client = Client::connect(&site.socket());
    // More than the smaller log holds.
    for line in 0..3000 {
        client.write((line * 4096) % VOLUME, &[line as u8 | 1; 4096]).unwrap();
    }
    client.flush().unwrap();
    let before = segments(&site);
    site.faults("faults", "write hang");
    let asking = site
        .start_tool(&format!("{} cache-disk resize 6M --control ctl", env!("CARGO_BIN_EXE_dcd")));
    until("it is under way", || site.status()["resize"].as_object().map(drop));
    let words = site.dcd("status --control ctl").ok();
    assert!(words.contains("its log shrinks"), "{words}");
    site.dcd("cache-disk resize 30M --control ctl").fails(1, "has only", "larger first");
    site.dcd("cache-disk resize 7M --control ctl").fails(1, "being changed already", "wait");
    // The tool is `timeout`, and passes it on.
    kill_process(Pid::from_child(&asking), Signal::INT).unwrap();
    assert_eq!(asking.wait_with_output().unwrap().status.code(), Some(7), "cancelled");
    until("it is as before", || site.status()["resize"].is_null().then_some(()));
    assert_eq!(segments(&site), before);

    site.faults("faults", "write eio");
    let told = site.dcd("cache-disk resize 6M --control ctl");
    told.fails(8, "the log has the size that it had", "cache-disk resize");
    assert_eq!(segments(&site), before);
    site.faults("faults", "");
    let done = resized(&site, "6M");
    assert!(number(&done, "segments") < before, "{done}");
    daemon.assert_no_panic();
    daemon.stop();
}

#[test]
fn what_cannot_be_is_refused_and_nothing_is_written() {
    let site = Site::with("8M", VOLUME, CREATE);
    let daemon = site.serve("--quiet");
    let before = fs::read(site.path("c")).unwrap();
    let length = before.len();
    for (size, error, hint) in [
        ("", "as many segments as fit", "larger first"),
        ("8M", "as many segments as fit", ""),
        ("9M", "has only 8388608 bytes, and 9437184 are wanted", "make the cache-disk larger"),
        ("1M", "the smallest log needs", "a larger size"),
        ("4096", "the smallest log needs", "a larger size"),
    ] {
        let told = site.dcd(&format!("cache-disk resize {size} --control ctl"));
        told.fails(1, error, hint);
    }
    site.dcd("cache-disk resize 1x --control ctl").fails(2, "", "");
    site.dcd("cache-disk resize --control nothing").fails(6, "no daemon answers", "");
    site.dcd("set mode=pass-through --control ctl").ok();
    set_length(&site, "c", 16 << 20);
    let told = site.dcd("cache-disk resize --control ctl");
    told.fails(1, "nothing is logged in this mode", "mode=write-back");
    site.dcd("set mode=write-back --control ctl").ok();
    daemon.stop();

    let daemon = site.serve("--quiet --read-only");
    site.dcd("cache-disk resize --control ctl").fails(1, "read-only", "");
    daemon.stop();
    // Its superblock has changed with each session, and its checkpoints; nothing behind its end.
    let after = fs::read(site.path("c")).unwrap();
    assert!(after[length..].iter().all(|byte| *byte == 0));

    let disk = site.start_line("slow-disk --disk d --nbd unix:sock --control ctl --quiet").ready();
    site.dcd("cache-disk resize --control ctl").fails(1, "nothing is logged", "");
    drop(disk);

    // What lies behind the log does not move.
    let site = Site::with("16M", VOLUME, "--segment-size 64k --read-area 4M");
    let daemon = site.serve("--quiet");
    site.dcd("cache-disk resize 12M --control ctl").fails(1, "lie behind the log", "larger size");
    set_length(&site, "c", 40 << 20);
    let before = segments(&site);
    let done = resized(&site, "");
    assert!(number(&done, "segments") > before + 300, "{done}");
    assert_eq!(number(&resized(&site, "16M"), "segments"), before);
    daemon.assert_no_panic();
    daemon.stop();
    site.dcd("check --cache-disk c").ok();
}

/// The read area comes, grows, shrinks and goes while a client writes; the process is killed behind
/// each, and what was recorded stays.
#[test]
fn the_read_area_gets_another_size_under_load() {
    let site = Site::with("24M", VOLUME, CREATE);
    let mut load = Load::new(8);
    let flags = "--quiet --idle-max 20ms --sequence-share 100%";
    let mut daemon = site.serve(flags);
    let all = segments(&site);
    let mut before = 0;
    let recorded = "t_us,op,dev,off,len,fl\n0,R,0,4194304,4194304,0\n0,R,0,12582912,65536,0\n";
    for (size, pages) in [("2M", 2), ("9000k", 9), ("6M", 6), ("20M", 20), ("7M", 7)] {
        let done = load.run_beside(&site, || read_area(&site, size));
        let bytes = pages * 248 * 4096;
        assert_eq!(number(&done, "read_area_bytes"), bytes, "{done}");
        assert_eq!(number(&done, "read_area_bytes_before"), before, "{done}");
        assert_eq!(number(&done, "segments"), segments(&site));
        assert!(segments(&site) <= all - pages * 15, "{done}");
        before = bytes;
        if size == "9000k" {
            fs::write(site.path("start.csv"), recorded).unwrap();
            site.dcd("sequence add --name start start.csv --control ctl").ok();
        }
        load.run(&site, 200, &AtomicBool::new(true));
        daemon.assert_no_panic();
        daemon.kill();
        daemon = site.serve(flags);
        load.compare(&site, &daemon);
        assert_eq!(segments(&site), number(&done, "segments"), "so it stays");
        if pages > 2 {
            let list = site.dcd("sequence list --control ctl").ok();
            assert!(list.contains("start"), "{list}");
        }
    }
    site.dcd("cache-disk resize --read-area 0 --control ctl").fails(
        1,
        "recorded and pinned sequences need a read area of 5120000 bytes",
        "dcd sequence list",
    );
    site.dcd("sequence remove start --control ctl").ok();
    let done = load.run_beside(&site, || read_area(&site, "0"));
    assert_eq!((number(&done, "segments"), number(&done, "read_area_bytes")), (all, 0));
    load.run(&site, 300, &AtomicBool::new(true));
    daemon.kill();
    daemon = site.serve("--quiet");
    load.compare(&site, &daemon);
    daemon.stop();
    site.dcd("check --cache-disk c").ok();
    assert_eq!(difference(&site.detach(), &load.volume), None);
}

/// Killed at any moment of it: the read area has one size or the other, on both legs.
#[test]
fn a_kill_at_any_moment_leaves_one_read_area_or_the_other() {
    let site = Site::with("16M", VOLUME, "--segment-size 64k --cache-disk e");
    let mut random = Random::new(seed() ^ 11);
    let mut load = Load::new(9);
    let flags = "--cache-disk e --quiet --idle-max 20ms";
    let mut changed = 0;
    for _ in 0..cycles(12, 3) {
        let daemon = site.serve(flags);
        load.compare(&site, &daemon);
        let before = segments(&site);
        load.run(&site, 60, &AtomicBool::new(true));
        let size = random.below(9);
        let mut asking = site.start_tool(&format!(
            "{} cache-disk resize --read-area {size}M --control ctl",
            env!("CARGO_BIN_EXE_dcd")
        ));
        std::thread::sleep(Duration::from_millis(random.below(60)));
        daemon.kill();
        let _ = asking.wait();
        let daemon = site.serve(flags);
        changed += u64::from(segments(&site) != before);
        daemon.kill();
    }
    println!("{changed} times another one behind the kill");
    let daemon = site.serve(flags);
    load.compare(&site, &daemon);
    daemon.stop();
}

#[test]
fn a_read_area_that_cannot_be_is_refused() {
    let site = Site::with("16M", VOLUME, "--segment-size 64k --read-area 4M");
    let daemon = site.serve("--quiet");
    let before = segments(&site);
    for (size, error, hint) in [
        ("4M", "the read area has room for 4063232 bytes, or too nearly", "a hundredth"),
        ("15M", "beside the smallest log a read area can have", "a smaller size"),
        ("1T", "beside the smallest log a read area can have", "a smaller size"),
    ] {
        let told = site.dcd(&format!("cache-disk resize --read-area {size} --control ctl"));
        told.fails(1, error, hint);
    }
    site.dcd("cache-disk resize 4M --read-area 2M --control ctl").fails(2, "cannot be used", "");
    assert_eq!(segments(&site), before);
    daemon.stop();
    let daemon = site.serve("--quiet --read-only");
    site.dcd("cache-disk resize --read-area 2M --control ctl").fails(1, "read-only", "");
    daemon.stop();

    let site = Site::with("16M", VOLUME, CREATE);
    let daemon = site.serve("--quiet --index-max 64k");
    site.dcd("cache-disk resize --read-area 2M --control ctl").fails(1, "index-max", "without");
    daemon.stop();
    // A log that was made smaller has no room before it has its size again.
    let daemon = site.serve("--quiet");
    resized(&site, "8M");
    let told = site.dcd("cache-disk resize --read-area 2M --control ctl");
    told.fails(1, "and the log is smaller", "with these bytes");
    resized(&site, "");
    read_area(&site, "2M");
    daemon.assert_no_panic();
    daemon.stop();
}

/// All legs have to be so large; and each alone has everything afterwards.
#[test]
fn a_log_on_legs_grows_and_shrinks_on_all_of_them() {
    let site = Site::with("8M", VOLUME, "--segment-size 64k --cache-disk e");
    let mut load = Load::new(5);
    let mut daemon = site.serve("--cache-disk e --quiet --idle-max 20ms");
    let before = segments(&site);
    set_length(&site, "c", 24 << 20);
    site.dcd("cache-disk resize 24M --control ctl").fails(1, "has only 8388608", "its legs");
    site.dcd("cache-disk resize --control ctl").fails(1, "as many segments as fit", "its legs");
    set_length(&site, "e", 24 << 20);
    let done = load.run_beside(&site, || resized(&site, ""));
    assert!(number(&done, "segments") > before + 200, "{done}");
    load.run(&site, 300, &AtomicBool::new(true));
    for (given, other) in [("c", "e"), ("e", "c")] {
        daemon.kill();
        // Copies, so that neither knows of the other's session.
        for disk in ["c", "e", "d"] {
            fs::copy(site.path(disk), site.path(&format!("{disk}.kept"))).unwrap();
        }
        let label: Value = serde_json::from_str(
            &site.dcd(&format!("inspect leg --cache-disk {other} --json")).ok(),
        )
        .unwrap();
        let counts = |copy: &&Value| copy["counts"] == true;
        let label = &label.as_array().unwrap().iter().find(counts).unwrap()["label"];
        let without = label["leg"].as_str().unwrap_or_else(|| panic!("{label}")).to_owned();
        let flags = format!("--without-leg {without} --quiet");
        let alone = site.serve_disks(given, "d", &flags);
        load.compare(&site, &alone);
        alone.kill();
        for disk in ["c", "e", "d"] {
            fs::copy(site.path(&format!("{disk}.kept")), site.path(disk)).unwrap();
        }
        daemon = site.serve("--cache-disk e --quiet --idle-max 20ms");
    }
    let done = load.run_beside(&site, || resized(&site, "9M"));
    for disk in ["c", "e"] {
        set_length(&site, disk, number(&done, "bytes"));
    }
    load.run(&site, 200, &AtomicBool::new(true));
    daemon.assert_no_panic();
    daemon.kill();
    let daemon = site.serve("--cache-disk e --quiet");
    load.compare(&site, &daemon);
    daemon.stop();
}

/// A labelled data-disk, whose label goes with each superblock, and a volume, whose tables lie
/// between the log and its annex: killed behind a growth, and each has everything.
#[test]
fn caches_of_all_kinds_grow() {
    let members = "--data-disk m0 --data-disk m1 --data-disk m2";
    for (create, disks) in [
        ("--data-disk d --labelled", "--data-disk d"),
        ("--data-disk m0 --data-disk m1 --data-disk m2 --volume v.toml", members),
    ] {
        let site = Site::empty();
        for disk in ["d", "m0", "m1", "m2"] {
            site.folder.disk(disk, VOLUME + (4 << 20));
        }
        fs::write(site.path("v.toml"), "extent = \"64k\"\n[[set]]\nlevel = 5\n").unwrap();
        let size = "--cache-size 16M --segment-size 64k";
        site.dcd(&format!("create --cache-disk c {size} {create}")).ok();
        let line = format!(
            "serve --cache-disk c {disks} --nbd unix:sock --control ctl --memory-directory . \
             --quiet --idle-max 20ms"
        );
        let mut daemon = site.start_line(&line).ready();
        let before = segments(&site);
        let write = |from: u64, salt: u64| {
            let mut client = Client::connect(&site.socket());
            for line in from..from + 1000 {
                client.write(line * 4096, &[(line * 7 + salt) as u8 | 1; 4096]).unwrap();
            }
            client.flush().unwrap();
        };
        write(0, 1);
        set_length(&site, "c", 48 << 20);
        let grown = number(&resized(&site, ""), "segments");
        assert!(grown > before + 300, "{before} {grown}");
        write(500, 2);
        for shrinks in [false, true] {
            daemon.assert_no_panic();
            daemon.kill();
            daemon = site.start_line(&line).ready();
            let expected = |line: u64| (line * 7 + if line < 500 { 1 } else { 2 }) as u8 | 1;
            let mut client = Client::connect(&site.socket());
            for line in 0..1500 {
                let found = client.read(line * 4096, 4096).unwrap();
                assert!(found.iter().all(|byte| *byte == expected(line)), "line {line}");
            }
            if !shrinks {
                let done = resized(&site, "16M");
                assert_eq!(number(&done, "segments"), before);
                set_length(&site, "c", number(&done, "bytes"));
            }
        }
        daemon.stop();
        site.dcd("check --cache-disk c").ok();
    }
}

/// A block device that becomes larger while it is in use, as a logical volume does.
#[test]
fn a_loop_device_that_was_made_larger() {
    skip_without!(NAME, "root", "loop", "losetup", "fio");
    let site = Site::empty();
    site.folder.disk("d", 64 << 20);
    site.folder.disk("backing", 12 << 20);
    let device = site.run("losetup --find --show backing").trim().to_owned();
    let end = LoopEnd(device.clone());
    let create = format!("create --cache-disk {device} --data-disk d --segment-size 64k");
    site.dcd(&create).ok();
    fs::create_dir(site.path("fuse")).unwrap();
    let daemon = site.serve_disks(&device, "d", "--quiet --fuse fuse --idle-max 20ms");
    let fio = |rounds: u32| {
        site.start_tool(&format!(
            "fio --name=load --filename=fuse/disk --size=32m --io_size={}m --rw=randwrite --bs=4k \
             --verify=crc32c --do_verify=1 --ioengine=psync --fsync=50 --output=fio.log",
            32 * rounds
        ))
    };
    let before = segments(&site);
    let mut load = fio(2);
    set_length(&site, "backing", 40 << 20);
    site.run(&format!("losetup -c {device}"));
    let done = resized(&site, "");
    assert!(number(&done, "segments") > before + 300, "{done}");
    let said = || fs::read_to_string(site.path("fio.log")).unwrap_or_default();
    assert!(load.wait().unwrap().success(), "{}", said());
    let mut load = fio(2);
    let done = resized(&site, "12M");
    assert_eq!(number(&done, "segments"), before, "{done}");
    assert!(load.wait().unwrap().success(), "{}", said());
    daemon.assert_no_panic();
    daemon.stop();
    set_length(&site, "backing", 12 << 20);
    site.run(&format!("losetup -c {device}"));
    let daemon = site.serve_disks(&device, "d", "--quiet");
    daemon.stop();
    drop(end);
}

struct LoopEnd(String);

impl Drop for LoopEnd {
    fn drop(&mut self) {
        let _ = std::process::Command::new("losetup").args(["-d", &self.0]).status();
    }
}
