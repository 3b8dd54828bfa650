//! Proves on the real program that a data-disk with a label (contract C29) is never refused beside
//! its own cache, whenever dcd was killed; that an older copy of either disk, another disk and
//! another cache are refused with nothing written; that what is on it is found by nobody who does
//! not know of the label; and that after a detach its payload is there, for losetup and for a new
//! cache.

mod harness;

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use harness::Folder;
use harness::common::nbd::Nbd;
use serde_json::Value;

const HEAD: u64 = 1 << 20;
const VOLUME: u64 = 8 << 20;
const LINE: u64 = 4096;
const CREATE: &str =
    "create --cache-disk c --cache-size 3M --data-disk d --labelled --segment-size 64k";
const DETACH: &str = "detach --cache-disk c --data-disk d --memory-directory .";
/// What is written stays in the log until somebody asks.
const LAZY: &str =
    "--nbd unix:sock --control ctl --memory-directory . --quiet --idle-max 1h --idle-min 1h";

fn serve_line() -> String {
    format!("serve --cache-disk c --data-disk d {LAZY}")
}

fn pair() -> Folder {
    let folder = Folder::new();
    folder.disk("d", HEAD + VOLUME);
    folder.dcd(CREATE).ok();
    folder
}

/// The label that counts.
fn label(folder: &Folder) -> Value {
    let copies = folder.dcd("inspect label --data-disk d --json").ok();
    let copies: Value = serde_json::from_str(&copies).unwrap();
    let counts = copies.as_array().unwrap().iter().find(|copy| copy["counts"] == true);
    counts.unwrap()["label"].clone()
}

fn copy(folder: &Folder, from: &str, to: &str) {
    fs::copy(folder.path(from), folder.path(to)).unwrap();
}

/// One line of the volume, flushed.
fn write(folder: &Folder, at: u64, byte: u8) {
    let mut nbd = Nbd::connect(&folder.path("sock"));
    assert_eq!(nbd.write(at, &[byte; LINE as usize]), 0);
    assert_eq!(nbd.flush(), 0);
}

fn payload(folder: &Folder) -> Vec<u8> {
    fs::read(folder.path("d")).unwrap().split_off(HEAD as usize)
}

#[test]
fn the_volume_lies_behind_the_label() {
    let folder = pair();
    assert_eq!(label(&folder)["state"], "detached");
    let served = folder.serve(&serve_line());
    assert!(served.ready.contains(&format!("size={VOLUME} ")), "{}", served.ready);
    assert_eq!(label(&folder)["state"], "dirty");
    assert_eq!(folder.dcd("probe d").ok().matches(": what is on it alone may be old").count(), 1);
    write(&folder, 0, 1);
    write(&folder, VOLUME - LINE, 2);
    let mut nbd = Nbd::connect(&folder.path("sock"));
    // Longer than is logged, and zeroes, in every way.
    assert_eq!(nbd.write(1 << 20, &[3; 2 << 20]), 0);
    assert_eq!(nbd.write_zeroes((1 << 20) + LINE, 1 << 18), 0);
    drop(nbd);
    assert_eq!(served.stop().code, Some(0));
    let closed = label(&folder);
    assert_eq!((&closed["state"], &closed["epoch"]), (&"dirty".into(), &closed["epoch_max"]));
    folder.dcd(&format!("{} --no-log", serve_line())).fails(1, "log", "");
    let served = folder.serve(&serve_line());
    folder.dcd("drain --control ctl").ok();
    assert_eq!(served.stop().code, Some(0));
    assert_eq!(label(&folder)["state"], "clean");
    let said = folder.dcd(DETACH).ok();
    assert!(said.contains(&format!("--offset {HEAD} --sizelimit {VOLUME} d\n")), "{said}");
    assert_eq!(label(&folder)["state"], "detached");
    let data = payload(&folder);
    let is = |range: std::ops::Range<u64>, byte: u8| {
        data[range.start as usize..range.end as usize].iter().all(|found| *found == byte)
    };
    assert!(is(0..LINE, 1) && is(LINE..1 << 20, 0) && is(1 << 20..(1 << 20) + LINE, 3));
    assert!(is((1 << 20) + LINE..(1 << 20) + LINE + (1 << 18), 0));
    assert!(is((1 << 20) + LINE + (1 << 18)..3 << 20, 3) && is(VOLUME - LINE..VOLUME, 2));
    // The head has its two labels and nothing else.
    let head = &fs::read(folder.path("d")).unwrap()[..HEAD as usize];
    assert!(head[4096..65_536].iter().chain(&head[69_632..]).all(|byte| *byte == 0));
    assert_eq!(folder.dcd("check --cache-disk c").code, Some(0));
}

/// Slow disks, so that a kill finds every moment of an opening, a shutdown and a detach.
#[test]
fn a_pair_is_never_refused_wherever_it_was_killed() {
    let folder = pair();
    let slow = "--cache-disk slow:c,read=0ms,write=2ms --data-disk slow:d,read=0ms,write=2ms";
    let slow_serve = format!("serve {slow} {LAZY} --memory-lost --stop-timeout 0s");
    let slow_detach = format!("detach {slow} --memory-directory .");
    let seed = harness::seed();
    let mut random = harness::random::Random::new(seed);
    let mut lines = vec![0u8; (VOLUME / LINE) as usize];
    let (mut refused, mut kills) = (0, 0);
    for round in 0..harness::cycles(60, 1) {
        // Killed while it opens, or while it ends.
        let line = if round % 3 == 2 { &slow_detach } else { &slow_serve };
        let mut child = Command::new(env!("CARGO_BIN_EXE_dcd"))
            .args(line.split_whitespace())
            .current_dir(folder.path(""))
            .env("DCD_STATE_DIRECTORY", "")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        if round % 3 == 1 {
            let until = Instant::now() + Duration::from_secs(20);
            while child.try_wait().unwrap().is_none()
                && std::os::unix::net::UnixStream::connect(folder.path("ctl")).is_err()
            {
                assert!(Instant::now() < until, "seed {seed}: it does not begin");
                std::thread::sleep(Duration::from_millis(2));
            }
            let pid = rustix::process::Pid::from_child(&child);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        std::thread::sleep(Duration::from_micros(random.below(60_000)));
        kills += u32::from(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        let said = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(!said.contains("error:"), "seed {seed}, round {round}: {said}");
        refused += u32::from(said.contains("label"));
        // It opens, with all that was flushed.
        let served = folder.serve(&serve_line());
        let mut nbd = Nbd::connect(&folder.path("sock"));
        for _ in 0..4 {
            let at = random.below(VOLUME / LINE);
            let found = nbd.read(at * LINE, LINE as usize).unwrap();
            assert!(found.iter().all(|byte| *byte == lines[at as usize]), "seed {seed}, line {at}");
            lines[at as usize] = random.below(255) as u8 + 1;
            assert_eq!(nbd.write(at * LINE, &[lines[at as usize]; LINE as usize]), 0);
        }
        assert_eq!(nbd.flush(), 0);
        drop(nbd);
        match random.below(3) {
            0 => drop(served.kill()),
            1 => assert_eq!(served.stop().code, Some(0)),
            _ => {
                folder.dcd("detach --control ctl").ok();
                served.wait();
            }
        }
    }
    assert_eq!(refused, 0, "seed {seed}");
    assert!(kills > 0, "nothing was interrupted");
    folder.dcd(DETACH).ok();
    for (at, byte) in lines.iter().enumerate() {
        let found = &payload(&folder)[at * LINE as usize..(at + 1) * LINE as usize];
        assert!(found.iter().all(|it| it == byte), "seed {seed}, line {at}");
        if at > 64 {
            break;
        }
    }
    assert_eq!(label(&folder)["state"], "detached");
}

/// All pairs of a cache-disk and a data-disk of different times.
#[test]
fn older_copies_of_either_disk_are_refused() {
    let folder = pair();
    let keep = |name: &str| {
        copy(&folder, "c", &format!("c.{name}"));
        copy(&folder, "d", &format!("d.{name}"));
    };
    keep("0");
    let served = folder.serve(&serve_line());
    write(&folder, 0, 1);
    keep("1");
    served.kill();
    let served = folder.serve(&serve_line());
    write(&folder, LINE, 2);
    keep("2");
    assert_eq!(served.stop().code, Some(0));
    keep("3");
    let served = folder.serve(&serve_line());
    write(&folder, 2 * LINE, 3);
    folder.dcd("drain --control ctl").ok();
    keep("4");
    folder.dcd("detach --control ctl").ok();
    served.wait();
    keep("5");
    let memories = || {
        let entries = fs::read_dir(folder.path("")).unwrap().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with("dcd-")).collect::<Vec<_>>()
    };
    for cache in 0..6 {
        for data in 0..6 {
            copy(&folder, &format!("c.{cache}"), "c");
            copy(&folder, &format!("d.{data}"), "d");
            memories().iter().for_each(|name| drop(fs::remove_file(folder.path(name))));
            let line = format!("{DETACH} --memory-lost");
            if cache == data {
                folder.dcd(&line).ok();
                continue;
            }
            let older = if cache < data { "the cache-disk c" } else { "the data-disk d" };
            let refused = format!("{older} is an older copy");
            for line in [line.as_str(), &serve_line(), "grow --cache-disk c --data-disk d"] {
                folder.dcd(line).fails(1, &refused, "--trust-disks");
            }
            let same = |name: &str, copy: String| {
                assert!(
                    fs::read(folder.path(name)).unwrap() == fs::read(folder.path(&copy)).unwrap()
                );
            };
            same("c", format!("c.{cache}"));
            same("d", format!("d.{data}"));
            // A person may know better. Then they belong together.
            if cache + data == 5 {
                let trusting = format!("{line} --trust-disks --accept-damage");
                let _ = folder.dcd(&trusting).stdout;
            }
        }
    }
}

#[test]
fn a_person_may_know_better() {
    let folder = pair();
    copy(&folder, "d", "d.old");
    folder.serve(&serve_line()).stop();
    copy(&folder, "d.old", "d");
    folder.dcd(DETACH).fails(1, "the data-disk d is an older copy", "--trust-disks");
    folder.dcd(&format!("{DETACH} --trust-disks")).ok();
    folder.dcd(DETACH).ok();
    // A head that was overwritten.
    let file = fs::File::options().write(true).open(folder.path("d")).unwrap();
    file.write_all_at(&[0; 1 << 17], 0).unwrap();
    folder.dcd(DETACH).fails(1, "has no label", "--trust-disks");
    folder.dcd(&format!("{DETACH} --trust-disks")).ok();
    folder.dcd(DETACH).ok();
}

#[test]
fn one_lost_copy_of_anything_is_no_reason() {
    for (disk, at) in [("d", 0), ("d", 65_536), ("c", 0), ("c", 65_536)] {
        let folder = pair();
        folder.serve(&serve_line()).stop();
        let file = fs::File::options().write(true).open(folder.path(disk)).unwrap();
        file.write_all_at(&[0x55; 4096], at).unwrap();
        // The other superblock of the cache-disk may be that of the session before, which had a
        // memory.
        let outcome = folder.dcd(&format!("{DETACH} --memory-lost"));
        assert!(outcome.code == Some(0), "{disk} {at}: {}", outcome.stderr);
    }
}

#[test]
fn the_payload_goes_to_the_next_cache() {
    let folder = pair();
    let served = folder.serve(&serve_line());
    write(&folder, 5 * LINE, 7);
    served.kill();
    let other = "create --cache-disk e --cache-size 3M --data-disk d --segment-size 64k";
    folder.dcd(other).fails(1, "begins with the label of cache", "detach that cache first");
    let labelled = format!("{other} --labelled");
    folder.dcd(&labelled).fails(1, "is the data-disk of cache", "--force");
    folder.dcd(DETACH).ok();
    folder.dcd(other).fails(1, "begins with the label of cache", "--labelled takes the disk");
    folder.dcd(&format!("{labelled} --label-head 2M")).fails(
        1,
        "a label of 1 MiB already",
        "leave",
    );
    assert!(folder.dcd(&labelled).ok().contains("with what it holds"));
    assert_eq!(payload(&folder)[5 * LINE as usize..6 * LINE as usize], [7; 4096]);
    folder.dcd(DETACH).fails(1, "d is the data-disk of cache", "--trust-disks");
    let served = folder.serve(&serve_line().replace("-disk c", "-disk e"));
    assert_eq!(Nbd::connect(&folder.path("sock")).read(5 * LINE, 4096).unwrap(), [7; 4096]);
    write(&folder, 6 * LINE, 8);
    served.kill();
    // The cache is gone with what it held. The payload stays as it is.
    fs::remove_file(folder.path("e")).unwrap();
    let force = folder.dcd(&format!("{labelled} --force"));
    assert!(force.stderr.contains("is given up"), "{}", force.stderr);
    force.ok();
    assert_eq!(payload(&folder)[5 * LINE as usize..6 * LINE as usize], [7; 4096]);
}

#[test]
fn a_disk_that_holds_something_gets_no_label() {
    let folder = Folder::new();
    folder.disk("d", HEAD + VOLUME);
    let file = fs::File::options().write(true).open(folder.path("d")).unwrap();
    file.write_all_at(b"somebody's", 3 << 20).unwrap();
    folder.dcd(CREATE).fails(1, "d holds 4 KiB that are not zero", "--force");
    for size in ["0", "64k", "1234k", "2G"] {
        folder.dcd(&format!("{CREATE} --label-head {size} --force")).fails(
            1,
            "--label-head",
            "128k",
        );
    }
    folder.dcd(&format!("{CREATE} --label-head 9M --force")).fails(
        1,
        "payload would begin",
        "larger",
    );
    assert!(!folder.path("c").exists());
    let said = folder.dcd(&format!("{CREATE} --label-head 128k --force"));
    assert!(said.stderr.contains("overwriting d: holds 4 KiB"), "{}", said.stderr);
    said.ok();
    let served = folder.serve(&serve_line());
    let size = HEAD + VOLUME - (128 << 10);
    assert!(served.ready.contains(&format!("size={size} ")), "{}", served.ready);
}

/// Nobody finds a file system behind the label.
#[test]
fn what_is_on_it_cannot_be_mounted() {
    for need in ["mkfs.ext4", "blkid", "file"] {
        if let Some(reason) = harness::missing_rights(need) {
            return harness::skipped("what_is_on_it_cannot_be_mounted", &reason);
        }
    }
    let site = harness::Site::empty();
    site.folder.disk("d", HEAD + VOLUME);
    site.dcd(CREATE).ok();
    site.dcd(DETACH).ok();
    site.run(&format!("mkfs.ext4 -q -E offset={HEAD} d 8M"));
    // blkid says with 2 that it knows nothing.
    let probed = site.try_tool("blkid", &["-p", "d"]);
    assert_eq!(probed.status.code(), Some(2), "{}", String::from_utf8_lossy(&probed.stdout));
    let seen = site.run("file -s d");
    assert!(!seen.contains("ext4"), "{seen}");
    let behind = site.run(&format!("blkid -p -O {HEAD} d"));
    assert!(behind.contains("ext4"), "{behind}");
    for need in ["root", "loop", "kernel-ext4"] {
        if let Some(reason) = harness::missing_rights(need) {
            return harness::skipped("what_is_on_it_cannot_be_mounted", &reason);
        }
    }
    fs::create_dir(site.path("mnt")).unwrap();
    let whole = site.run("losetup --find --show d").trim().to_owned();
    let mounted = site.try_tool("mount", &[whole.as_str(), "mnt"]);
    site.run(&format!("losetup -d {whole}"));
    assert!(!mounted.status.success());
    let line = format!("losetup --find --show --offset {HEAD} --sizelimit {VOLUME} d");
    let device = site.run(&line).trim().to_owned();
    let mounted = site.try_tool("mount", &[device.as_str(), "mnt"]);
    let unmounted = site.try_tool("umount", &["mnt"]);
    site.run(&format!("losetup -d {device}"));
    assert!(mounted.status.success() && unmounted.status.success());
    // The cache, and what it serves, are as of any disk.
    site.dcd(DETACH).ok();
}

#[test]
fn a_labelled_disk_grows() {
    let folder = pair();
    let served = folder.serve(&serve_line());
    write(&folder, VOLUME - LINE, 4);
    served.kill();
    let file = fs::File::options().write(true).open(folder.path("d")).unwrap();
    file.set_len(HEAD + 2 * VOLUME).unwrap();
    folder.dcd(&serve_line()).fails(1, "blocks of 512 bytes", "dcd grow");
    folder.dcd("grow --cache-disk c --data-disk d --memory-directory .").ok();
    assert_eq!(label(&folder)["payload_bytes"], 2 * VOLUME);
    let served = folder.serve(&serve_line());
    assert!(served.ready.contains(&format!("size={} ", 2 * VOLUME)), "{}", served.ready);
    write(&folder, 2 * VOLUME - LINE, 5);
    let said = folder.dcd("detach --control ctl").ok();
    assert!(said.contains(&format!("--sizelimit {}", 2 * VOLUME)), "{said}");
    served.wait();
    let data = payload(&folder);
    assert_eq!(data[(VOLUME - LINE) as usize..VOLUME as usize], [4; 4096]);
    assert_eq!(data[(2 * VOLUME - LINE) as usize..], [5; 4096]);
}

/// A disk that takes no writes takes no label either, and is the right one afterwards.
#[test]
fn read_only_disks_keep_their_label() {
    for need in ["root", "loop"] {
        if let Some(reason) = harness::missing_rights(need) {
            return harness::skipped("read_only_disks_keep_their_label", &reason);
        }
    }
    let site = harness::Site::empty();
    site.folder.disk("d", HEAD + VOLUME);
    site.dcd(CREATE).ok();
    let folder = &site.folder;
    let served = folder.serve(&serve_line());
    write(folder, LINE, 6);
    assert_eq!(served.stop().code, Some(0));
    let before = fs::read(folder.path("d")).unwrap();
    let device = site.run("losetup --find --show --read-only d").trim().to_owned();
    for _ in 0..3 {
        let line = format!("serve --cache-disk c --data-disk {device} {LAZY} --read-only");
        let served = folder.serve(&line);
        let found = Nbd::connect(&folder.path("sock")).read(LINE, 4096).unwrap();
        assert_eq!(found, [6; 4096]);
        assert_eq!(served.stop().code, Some(0));
    }
    site.run(&format!("losetup -d {device}"));
    assert!(before == fs::read(folder.path("d")).unwrap());
    site.dcd(DETACH).ok();
    assert_eq!(payload(folder)[LINE as usize..2 * LINE as usize], [6; 4096]);
}

/// Errors of the head: no end in order then, and no harm.
#[test]
fn a_head_with_errors_does_no_harm() {
    let folder = pair();
    let rules = |text: &str| {
        fs::write(folder.path("faults"), text).unwrap();
        std::thread::sleep(Duration::from_millis(100));
    };
    rules("");
    let faulty = format!("serve --cache-disk c --data-disk faulty:d,control=faults {LAZY}");
    let served = folder.serve(&faulty);
    write(&folder, LINE, 6);
    rules(&format!("write eio 0-{HEAD}\n"));
    let ended = served.stop();
    assert!(
        ended.stderr.contains("the label of the data-disk cannot be written"),
        "{}",
        ended.stderr
    );
    assert_ne!(ended.code, Some(0));
    let outcome = folder.dcd(&faulty);
    assert!(
        outcome.stderr.contains("the label of the data-disk cannot be written"),
        "{}",
        outcome.stderr
    );
    assert_eq!(outcome.code, Some(5));
    rules("");
    let served = folder.serve(&faulty);
    assert_eq!(Nbd::connect(&folder.path("sock")).read(LINE, 4096).unwrap(), [6; 4096]);
    assert_eq!(served.stop().code, Some(0));
    folder.dcd(DETACH).ok();
}

/// A cache-disk that failed and comes back is an older copy of what it was.
#[test]
fn a_detach_without_its_cache_disk_is_known_by_the_label() {
    let folder = pair();
    let rules = |text: &str| {
        fs::write(folder.path("faults"), text).unwrap();
        std::thread::sleep(Duration::from_millis(100));
    };
    rules("");
    let faulty = format!("serve --cache-disk faulty:c,control=faults --data-disk d {LAZY}");
    let served = folder.serve(&faulty);
    rules("write gone\nflush gone\nread gone\n");
    write(&folder, LINE, 6);
    folder.dcd("detach --control ctl").ok();
    served.wait();
    assert_eq!(label(&folder)["state"], "detached");
    assert_eq!(payload(&folder)[LINE as usize..2 * LINE as usize], [6; 4096]);
    rules("");
    folder.dcd(DETACH).fails(1, "the cache-disk c is an older copy", "");
    let again = "create --cache-disk e --cache-size 3M --data-disk d --labelled";
    assert!(folder.dcd(again).ok().contains("with what it holds"));
}

#[test]
fn salvage_finds_the_payload() {
    let folder = pair();
    let served = folder.serve(&serve_line());
    write(&folder, LINE, 6);
    assert_eq!(served.stop().code, Some(0));
    folder.dcd("salvage --cache-disk c --data-disk d").ok();
    assert_eq!(payload(&folder)[LINE as usize..2 * LINE as usize], [6; 4096]);
    assert_eq!(label(&folder)["state"], "dirty");
}
