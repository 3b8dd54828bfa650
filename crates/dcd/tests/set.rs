//! Proves `dcd set` and SIGHUP on the real program: what is set counts at once, in the cache that
//! runs; what cannot be is refused, and then nothing is set; a configuration file is read again
//! from within the confined daemon.

mod common;

use std::time::{Duration, Instant};

use common::nbd::Nbd;
use common::{Folder, Outcome, Served};
use rustix::process::Signal;
use serde_json::Value;

const DISKS: &str =
    "--cache-disk c --data-disk d --nbd unix:sock --control ctl --memory-directory .";

fn pair() -> Folder {
    let folder = Folder::new();
    folder.disk("d", 64 << 20);
    folder.dcd("create --cache-disk c --cache-size 16M --data-disk d").ok();
    folder
}

fn json(folder: &Folder, line: &str) -> Value {
    serde_json::from_str(&folder.dcd(line).ok()).unwrap()
}

/// What a setting is, and who says so.
fn setting(folder: &Folder, key: &str) -> (String, String) {
    let answer = json(folder, "set --control ctl --json");
    let settings = answer["settings"].as_array().unwrap();
    let found = settings.iter().find(|it| it["key"] == key).unwrap();
    let text = |field: &str| found[field].as_str().unwrap().to_owned();
    (text("value"), text("origin"))
}

/// Asks until it is so.
fn until(what: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !what() {
        assert!(Instant::now() < end, "it does not come to be");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn bypasses(folder: &Folder) -> u64 {
    let status = json(folder, "status --control ctl --json");
    status["counters"]["bypasses"].as_u64().unwrap()
}

#[test]
fn what_is_set_counts_at_once_and_until_the_end() {
    let folder = pair();
    let line = format!("serve {DISKS} --max-delay 5s");
    let served = folder.serve(&line);
    let mut nbd = Nbd::connect(&folder.path("sock"));
    // Not all of these places may go past the log, whatever is set: witnesses lie between.
    let mut write_all = |byte| {
        (1..9).for_each(|at| assert_eq!(nbd.write(at * 5_000_000 / 4096 * 4096, &[byte; 65536]), 0))
    };
    write_all(1);
    assert_eq!(bypasses(&folder), 0);
    let said = folder.dcd("set --control ctl bypass-threshold=32k max-delay=2s").ok();
    assert_eq!(said, "max-delay = 2s\nbypass-threshold = 32k\n");
    write_all(2);
    assert_ne!(bypasses(&folder), 0);
    assert_eq!(setting(&folder, "max-delay"), ("2s".into(), "set".into()));
    assert_eq!(folder.dcd("set --control ctl max-delay=2000ms").ok(), "as it was\n");
    assert_eq!(folder.dcd("set --control ctl max-delay=").ok(), "max-delay = 5s\n");
    assert_eq!(setting(&folder, "max-delay"), ("5s".into(), "flag".into()));

    // The mode of acknowledgement is shown where it is looked for, and kept.
    folder.dcd("set --control ctl ack=durable").ok();
    assert_eq!(json(&folder, "status --control ctl --json")["ack"], "durable");
    let metrics = folder.dcd("metrics ctl").ok();
    assert!(
        metrics.contains("dcd_acknowledgement{dcd_acknowledgement=\"durable\"} 1"),
        "{metrics}"
    );
    nbd.write(1 << 20, &[3; 4096]);
    drop(nbd);
    // Without the memory: what was acknowledged is in the log.
    drop(served.kill());
    let memory =
        |entry: &std::fs::DirEntry| entry.path().extension().is_some_and(|it| it == "segments");
    for entry in walk(&folder.path("")).iter().filter(|entry| memory(entry)) {
        std::fs::remove_file(entry.path()).unwrap();
    }
    let served = folder.serve(&format!("serve {DISKS} --memory-lost"));
    assert_eq!(setting(&folder, "bypass-threshold"), ("1M".into(), "default".into()));
    let mut nbd = Nbd::connect(&folder.path("sock"));
    assert_eq!(nbd.read(1 << 20, 4096).unwrap(), [3; 4096]);
    drop(nbd);
    assert_eq!(served.stop().code, Some(0));
}

fn walk(folder: &std::path::Path) -> Vec<std::fs::DirEntry> {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .flat_map(|entry| match entry.path().is_dir() {
            true => walk(&entry.path()),
            false => vec![entry],
        })
        .collect()
}

#[test]
fn what_cannot_be_set_is_refused_and_nothing_is_set_with_it() {
    let folder = pair();
    let served = folder.serve(&format!("serve {DISKS} --ack durable"));
    let set = |words: &str| folder.dcd(&format!("set --control ctl {words}"));
    set("idle-max=3s max-dealy=1s").fails(
        1,
        "`max-dealy` is not a setting",
        "did you mean `max-delay`?",
    );
    set("idle-max=3s full-timeout=soon").fails(1, "full-timeout: ", "--full-timeout");
    set("idle-max=3s dirty-low=95%").fails(1, "dirty-low must not be above dirty-high", "dcd set");
    set("idle-max=3s segment-buffers=8").fails(
        1,
        "segment-buffers takes a restart",
        "--segment-buffers",
    );
    // By a wrong unit the cache is not ended.
    set("idle-max=3s io-timeout=30us").fails(1, "io-timeout must be at least 1s", "");
    set("member-timeout=30us").fails(1, "member-timeout must be at least 1s", "");
    set("idle-max=3s accept-damage=true").fails(1, "`accept-damage` is not a setting", "");
    set("idle-max=3s ack=memory").fails(1, "ack was durable at the start", "");
    set("idle-max=3s idle-max=4s").fails(1, "idle-max is given twice", "");
    let nothing = set("idle-max");
    assert!(
        nothing.code == Some(2) && nothing.stderr.contains("max-delay=20ms"),
        "{}",
        nothing.stderr
    );
    assert_eq!(setting(&folder, "idle-max"), ("1s".into(), "default".into()));
    let table = folder.dcd("set --control ctl").ok();
    assert!(
        table.contains("\n  ack ") && table.contains("take a restart:\n  cache-disk "),
        "{table}"
    );
    drop(served);

    // A disk without a cache has none.
    let served = folder.serve("serve --null --data-disk d --nbd unix:sock --control ctl");
    set("").fails(1, "nothing can be set here", "");
    served.signal(Signal::HUP);
    folder.dcd("flush --control ctl").ok();
    let stderr = served.stop().stderr;
    assert!(stderr.contains("SIGHUP: nothing to do"), "{stderr}");
}

/// The file is another one in the same place by then, as editors make it, and the daemon has given
/// up all other files.
#[test]
fn sighup_has_the_file_read_again() {
    let folder = pair();
    std::fs::create_dir(folder.path("etc")).unwrap();
    let write = |text: &str| {
        std::fs::write(folder.path("etc/new"), text).unwrap();
        std::fs::rename(folder.path("etc/new"), folder.path("etc/x.toml")).unwrap();
    };
    write("max-delay = \"80ms\"\nidle-max = \"2s\"\n");
    let served: Served = folder.serve(&format!("serve {DISKS} --config etc/x.toml"));
    assert_eq!(setting(&folder, "max-delay"), ("80ms".into(), "file".into()));
    write("max-delay = \"30ms\"\nidle-max = \"2s\"\nread-ahead = \"8M\"\n");
    served.signal(Signal::HUP);
    until(|| setting(&folder, "max-delay").0 == "30ms");
    assert_eq!(setting(&folder, "read-ahead"), ("16M".into(), "default".into()));
    // What is wrong changes nothing.
    write("max-delay = \"10ms\"\nidle-max = \"fast\"\n");
    served.signal(Signal::HUP);
    // Longer than at the start: the superblock of this session says 80 ms.
    folder.dcd("set --control ctl full-timeout=9s").ok();
    folder.dcd("set --control ctl max-delay=81ms").fails(
        1,
        "max-delay cannot be longer than at the start",
        "",
    );
    // Nothing tells when it has been read: a change that must not be is waited for.
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(setting(&folder, "max-delay").0, "30ms");
    // What was set on line stays.
    write("full-timeout = \"3s\"\nmax-delay = \"50ms\"\n");
    served.signal(Signal::HUP);
    until(|| setting(&folder, "max-delay").0 == "50ms");
    assert_eq!(setting(&folder, "idle-max"), ("1s".into(), "default".into()));
    assert_eq!(setting(&folder, "full-timeout"), ("9s".into(), "set".into()));
    let stderr = served.stop().stderr;
    assert!(
        stderr.contains("SIGHUP: changed: max-delay; from the next start on: read-ahead\n"),
        "{stderr}"
    );
    assert!(
        stderr.contains("SIGHUP: nothing has changed: ")
            && stderr.contains("x.toml:2:12: idle-max"),
        "{stderr}"
    );
}

/// Where changes go is switched while somebody writes: no error, nothing lost, and the cache-disk
/// is left alone meanwhile; a kill finds what was flushed, on the data-disk.
#[test]
fn the_mode_is_switched_while_somebody_writes() {
    let folder = pair();
    let line = format!("serve {DISKS} --idle-max 1h");
    let served = folder.serve(&line);
    let mut nbd = Nbd::connect(&folder.path("sock"));
    let place = |at: u64| (8 << 20) + at % 500 * 4096;
    for at in 0..500 {
        assert_eq!(nbd.write(place(at), &[1; 4096]), 0);
    }
    assert_ne!(json(&folder, "status --control ctl --json")["dirty_bytes"], 0);
    assert_eq!(folder.dcd("set --control ctl mode=pass-through").ok(), "mode = pass-through\n");
    let status = json(&folder, "status --control ctl --json");
    assert_eq!(status["mode"]["mode"], "pass-through");
    assert_eq!((&status["mode"]["switch"], &status["dirty_bytes"]), (&"none".into(), &0.into()));
    assert!(folder.dcd("status --control ctl").ok().contains("serves past its log, as told"));
    let metrics = folder.dcd("metrics ctl").ok();
    assert!(metrics.contains("dcd_state{dcd_state=\"passing-through\"} 1"), "{metrics}");
    let before = std::fs::read(folder.path("c")).unwrap();
    for at in 0..100 {
        assert_eq!(nbd.write(place(at), &[2; 4096]), 0);
    }
    assert_eq!(nbd.flush(), 0);
    let disk = std::fs::read(folder.path("d")).unwrap();
    assert!((0..500).all(|at| disk[place(at) as usize] == if at < 100 { 2 } else { 1 }));
    assert!(before == std::fs::read(folder.path("c")).unwrap(), "the cache-disk is touched");

    // To and fro, while it is written; each write is answered, and no error comes.
    for round in 3..13 {
        let mode = if round % 2 == 0 { "pass-through" } else { "write-back" };
        folder.dcd(&format!("set --control ctl --no-wait mode={mode}")).ok();
        for at in 0..500 {
            assert_eq!(nbd.write(place(at), &[round; 4096]), 0);
        }
    }
    folder.dcd("set --control ctl mode=pass-through").ok();
    assert_eq!(nbd.write(place(7), &[99; 4096]), 0);
    assert_eq!(nbd.flush(), 0);
    drop(served.kill());
    let served = folder.serve(&line);
    let mut nbd = Nbd::connect(&folder.path("sock"));
    assert_eq!(nbd.read(place(7), 4096), Ok(vec![99; 4096]));
    assert_eq!(nbd.read(place(8), 4096), Ok(vec![12; 4096]));
    assert_eq!(json(&folder, "status --control ctl --json")["mode"]["mode"], "write-back");
    drop(nbd);
    assert_eq!(served.stop().code, Some(0));

    // As a setting of the start, which an end in order leaves like any other.
    let served = folder.serve(&format!("{line} --mode pass-through"));
    until(|| json(&folder, "status --control ctl --json")["mode"]["mode"] == "pass-through");
    assert_eq!(setting(&folder, "mode"), ("pass-through".into(), "flag".into()));
    assert_eq!(served.stop().code, Some(0));
    folder.dcd("check --cache-disk c").ok();
}

/// What is written is on the data-disk when it is acknowledged, and served from the cache-disk.
#[test]
fn write_through_serves_what_was_written() {
    let folder = Folder::new();
    folder.disk("d", 64 << 20);
    folder.dcd("create --cache-disk c --cache-size 16M --data-disk d --read-area 4M").ok();
    let line = format!("serve {DISKS} --one-disk no --mode write-through");
    let served = folder.serve(&line);
    until(|| json(&folder, "status --control ctl --json")["mode"]["mode"] == "write-through");
    assert!(folder.dcd("status --control ctl").ok().contains("and writes past its log, as told"));
    let mut nbd = Nbd::connect(&folder.path("sock"));
    let place = |at: u64| (8 << 20) + at * 8192;
    for at in 0..50 {
        assert_eq!(nbd.write(place(at), &[at as u8 + 1; 4096]), 0);
    }
    let disk = std::fs::read(folder.path("d")).unwrap();
    assert!((0..50).all(|at| disk[place(at) as usize] == at as u8 + 1), "acknowledged");
    let status = || json(&folder, "status --control ctl --json");
    until(|| status()["copies"]["valid_bytes"] == 50 * 4096);
    let cache = std::fs::read(folder.path("c")).unwrap();
    let is_there = |byte: u8| cache.chunks(4096).any(|line| line == [byte; 4096]);
    assert!((1..=50).all(is_there), "on the cache-disk");
    let hits = |status: Value| status["counters"]["read_copy_lines"].as_u64().unwrap();
    let before = hits(status());
    for at in 0..50 {
        assert_eq!(nbd.read(place(at), 4096), Ok(vec![at as u8 + 1; 4096]));
    }
    assert_eq!(hits(status()), before + 50);
    folder.dcd("set --control ctl mode=write-around").ok();
    assert_eq!(nbd.write(place(7), &[99; 4096]), 0);
    assert_eq!(nbd.read(place(7), 4096), Ok(vec![99; 4096]));
    assert_eq!(hits(status()), before + 50);
    drop(nbd);
    assert!(served.stop().stderr.contains("copies of what is written and read are kept"));
}

/// Whoever is connected is refused changes, whoever connects is told; what was written before is
/// there.
#[test]
fn read_only_is_switched_while_it_is_served() {
    let folder = pair();
    let served = folder.serve(&format!("serve {DISKS}"));
    let mut nbd = Nbd::connect(&folder.path("sock"));
    assert_eq!(nbd.write(1 << 20, &[1; 4096]), 0);
    assert_eq!(folder.dcd("set --control ctl read-only=true").ok(), "read-only = true\n");
    assert_eq!(nbd.write(1 << 20, &[2; 4096]), 1, "EPERM");
    assert!(folder.dcd("status --control ctl").ok().contains("no changes: read-only"));
    assert_eq!(nbd.flush(), 0);
    assert_eq!(nbd.read(1 << 20, 4096), Ok(vec![1; 4096]));
    assert!(!nbd.is_read_only() && Nbd::connect(&folder.path("sock")).is_read_only());
    folder.dcd("set --control ctl read-only=").ok();
    assert_eq!(nbd.write(1 << 20, &[3; 4096]), 0);
    assert!(!Nbd::connect(&folder.path("sock")).is_read_only());
    drop(nbd);
    assert_eq!(served.stop().code, Some(0));
}

/// A full data-disk: what lasts is told first, and that a switch was given up for it behind that.
/// Who sets the mode again has it tried again.
#[test]
fn a_switch_that_is_given_up_hides_nothing_and_is_tried_again() {
    let folder = pair();
    let rules = |text: &str| std::fs::write(folder.path("rules"), text).unwrap();
    rules("");
    let disks = DISKS.replace(" d ", " faulty:d,control=rules ");
    let served =
        folder.serve(&format!("serve {disks} --idle-max 20ms --idle-min 20ms --drain-timeout 1s"));
    let status = || json(&folder, "status --control ctl --json");
    let words = || {
        let told = folder.dcd("status --control ctl").ok();
        told.lines().next().unwrap_or_default().to_owned()
    };
    rules("write enospc");
    std::thread::sleep(Duration::from_millis(100));
    let mut nbd = Nbd::connect(&folder.path("sock"));
    let place = |at: u64| (8 << 20) + at * 4096;
    (0..200).for_each(|at| assert_eq!(nbd.write(place(at), &[1; 4096]), 0));
    until(|| status()["destage_held_back"] == true);
    assert!(words().contains("waits to destage: no space"), "{}", words());
    let set = "set --control ctl mode=pass-through";
    let given_up = |left: &str| {
        let Outcome { code, stderr, .. } = folder.dcd(set);
        assert_eq!(code, Some(8), "{stderr}");
        for part in ["the mode stays write-back", left, "hint: `dcd status`"] {
            assert!(stderr.contains(part), "{part}: {stderr}");
        }
    };
    given_up("200 lines");
    let (first, second) = (words(), "it stays in write-back, the switch was given up");
    let place_of = |text: &str| first.find(text).unwrap_or_else(|| panic!("{text}: {first}"));
    assert!(place_of("waits to destage: no space") < place_of(second), "{first}");
    // Again, with more that waits: what is told is of now.
    (200..250).for_each(|at| assert_eq!(nbd.write(place(at), &[1; 4096]), 0));
    given_up("250 lines");
    // What is set with it is told, and the list does not claim the mode.
    let both = folder.dcd(&format!("{set} idle-max=30ms"));
    assert_eq!((both.code, both.stdout.as_str()), (Some(8), "idle-max = 30ms\n"));
    let list = folder.dcd("set --control ctl").ok();
    assert!(list.ends_with("The mode is write-back as yet: `dcd status` says why\n"), "{list}");
    // What was in the way is gone.
    rules("");
    assert_eq!(folder.dcd(set).ok(), "as it was\n");
    assert_eq!(status()["mode"]["mode"], "pass-through");
    assert!(words().contains("serves past its log, as told"), "{}", words());
    drop(nbd);
    assert_eq!(served.stop().code, Some(0));
}

/// A cache-disk that has failed with what is nowhere else: the log is never empty, and nobody waits
/// for that.
#[test]
fn a_switch_without_a_cache_disk_is_given_up() {
    let folder = pair();
    let rules = |text: &str| std::fs::write(folder.path("rules"), text).unwrap();
    rules("");
    let disks = DISKS.replace(" c ", " faulty:c,control=rules ");
    let served = folder.serve(&format!("serve {disks} --idle-max 1h --idle-min 1h"));
    let mut nbd = Nbd::connect(&folder.path("sock"));
    assert_eq!(nbd.write(8 << 20, &[1; 4096]), 0);
    assert_eq!(nbd.flush(), 0);
    rules("write eio");
    let is_lost = (0..100).any(|_| nbd.write(8 << 20, &[2; 4096]) != 0 || nbd.flush() != 0);
    assert!(is_lost, "the cache-disk has not failed");
    let set = folder.dcd("set --control ctl mode=pass-through");
    assert_eq!(set.code, Some(8), "{}", set.stderr);
    assert!(set.stderr.contains("the mode stays write-back: I/O error"), "{}", set.stderr);
    folder.dcd("drain --control ctl").fails(5, "I/O error", "start it again with the same disks");
    drop(nbd);
    assert_eq!(served.stop().code, Some(5));
}

/// Past the log nothing else holds what no flush has covered: the end does not say otherwise.
#[test]
fn an_end_after_a_flush_that_failed_past_the_log_says_what_may_be_lost() {
    let folder = pair();
    let rules = |text: &str| std::fs::write(folder.path("rules"), text).unwrap();
    rules("");
    let disks = DISKS.replace(" d ", " faulty:d,control=rules ");
    let served = folder.serve(&format!("serve {disks}"));
    folder.dcd("set --control ctl mode=pass-through").ok();
    let mut nbd = Nbd::connect(&folder.path("sock"));
    assert_eq!(nbd.write(8 << 20, &[1; 4096]), 0);
    rules("flush eio");
    std::thread::sleep(Duration::from_millis(100));
    assert_ne!(nbd.flush(), 0);
    rules("");
    // It cannot be left before a restart, and all say so.
    let resize = folder.dcd("cache-disk resize 12M --control ctl");
    assert!(resize.code != Some(0) && resize.stderr.contains("a restart"), "{}", resize.stderr);
    let resize = folder.dcd("cache-disk resize 12M --control ctl");
    resize.fails(1, "", "a restart");
    let failed = "the mode stays pass-through: the data-disk has failed";
    folder.dcd("set --control ctl mode=write-back").fails(8, failed, "start dcd again");
    let mode = json(&folder, "status --control ctl --json")["mode"].clone();
    assert_eq!((&mode["mode"], &mode["switch"]), (&"pass-through".into(), &"failed".into()));
    assert!(mode["error"].as_str().is_some_and(|it| it.contains("restart")), "{mode}");
    drop(nbd);
    let ended = served.stop();
    assert_ne!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("what no flush had covered may be lost"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("nothing that was acknowledged is lost"), "{}", ended.stderr);
}

/// What is wrong is said, and nothing is switched.
#[test]
fn a_mode_that_cannot_be_is_refused() {
    let folder = pair();
    let served = folder.serve(&format!("serve {DISKS}"));
    folder.dcd("set --control ctl mode=write-off").fails(
        1,
        "none of: write-back, write-through, write-around, pass-through",
        "--mode",
    );
    folder.dcd("set --control ctl mode=write-through").fails(1, "mode needs a read area", "");
    drop(served);
    folder.dcd(&format!("serve {DISKS} --no-log --mode pass-through")).fails(
        1,
        "mode is no choice with no-log",
        "",
    );
}
