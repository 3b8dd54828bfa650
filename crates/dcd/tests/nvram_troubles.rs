//! The memory in front of the log with the real program, when something is wrong: a file that is
//! somebody else's, a cache-disk that is an older copy, heads that are damaged, disks that take
//! nothing, blocks that rot.

mod harness;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use harness::nbd::Client;
use harness::{Outcome, Site};

const VOLUME: u64 = 8 << 20;
const MEMORY: u64 = 1 << 20;
const LAZY: &str = "--quiet --idle-max 1h --idle-min 1h";
const WITH: &str = "--quiet --idle-max 1h --idle-min 1h --nvram n";

/// A pair, and a memory that is a file on a disk, or stands for one.
fn site() -> Site {
    let site = Site::with("4M", VOLUME, "--segment-size 64k");
    File::create(site.path("n")).and_then(|file| file.set_len(MEMORY)).unwrap();
    site
}

/// Where files are in memory there is no disk to try this with.
fn is_on_disk(site: &Site, test: &str) -> bool {
    let fs = rustix::fs::statfs(site.path("n")).map(|fs| fs.f_type as u64);
    let is_on_disk = fs.is_ok_and(|kind| kind != 0x0102_1994);
    if !is_on_disk {
        harness::skipped(test, "the folder of tests is in memory");
    }
    is_on_disk
}

/// It does not start, says why, and changes nothing of the memory.
fn refused(site: &Site, flags: &str, why: &str) -> Outcome {
    let before = fs::read(site.path("n")).unwrap();
    let line = "serve --cache-disk c --data-disk d --nbd unix:sock --memory-directory .";
    let outcome = site.dcd(&format!("{line} {flags}"));
    assert!(outcome.code == Some(1) && outcome.stderr.contains(why), "{}", outcome.stderr);
    assert!(fs::read(site.path("n")).unwrap() == before, "it was written to");
    outcome
}

fn put(site: &Site, name: &str, offset: u64, bytes: &[u8]) {
    let file = File::options().write(true).open(site.path(name)).unwrap();
    file.write_all_at(bytes, offset).unwrap();
}

/// Their superblocks are at 64 KiB and behind it, and before it is nothing.
#[test]
fn a_file_system_is_not_overwritten() {
    const TEST: &str = "nvram-file-system";
    let site = site();
    if !is_on_disk(&site, TEST) {
        return;
    }
    for at in [(64 << 10) + 64, 128 << 10, MEMORY - (30 << 10)] {
        File::create(site.path("n")).and_then(|file| file.set_len(MEMORY)).unwrap();
        put(&site, "n", at, b"_BHRfS_M");
        let outcome = refused(&site, WITH, "something else is in it");
        assert!(outcome.stderr.contains("wipefs"), "{}", outcome.stderr);
    }
    skip_without!(TEST, "mkfs.btrfs");
    let file = File::create(site.path("b.img")).and_then(|file| file.set_len(256 << 20));
    file.unwrap();
    site.run("mkfs.btrfs -q b.img");
    fs::rename(site.path("b.img"), site.path("n")).unwrap();
    refused(&site, WITH, "something else is in it");
}

/// What was written after the copy was made is in the memory only.
#[test]
fn an_older_cache_disk_does_not_empty_the_memory() {
    let site = site();
    if !is_on_disk(&site, "nvram-older-cache-disk") {
        return;
    }
    site.serve(WITH).stop();
    fs::copy(site.path("c"), site.path("older")).unwrap();
    let daemon = site.serve(WITH);
    let mut client = Client::connect(&site.socket());
    client.write_fua(4096, &[7; 4096]).unwrap();
    drop(client);
    daemon.kill();
    fs::rename(site.path("c"), site.path("newer")).unwrap();
    fs::rename(site.path("older"), site.path("c")).unwrap();
    let flags = format!("{WITH} --trust-disks");
    let outcome = refused(&site, &flags, "the cache-disk names no memory");
    assert!(outcome.stderr.contains("An older copy of it"), "{}", outcome.stderr);
    // With the right one all is there.
    fs::rename(site.path("newer"), site.path("c")).unwrap();
    let daemon = site.serve(&flags);
    assert_eq!(Client::connect(&site.socket()).read(4096, 4096).unwrap(), [7; 4096]);
    daemon.stop();
}

/// C22: a change that waits for a log that takes nothing fails, as it would without the memory.
#[test]
fn nobody_waits_for_ever_for_a_disk_that_takes_nothing() {
    let site = site();
    if !is_on_disk(&site, "nvram-disk-takes-nothing") {
        return;
    }
    let daemon =
        site.serve_disks("faulty:c,control=cache-faults", "faulty:d,control=data-faults", WITH);
    let mut client = Client::connect(&site.socket());
    client.write(0, &[1; 4096]).unwrap();
    // In the log, so that the cache-disk is not done without.
    client.write(1 << 20, &[2; 64 << 10]).unwrap();
    site.faults("cache-faults", "any eio");
    site.faults("data-faults", "any eio");
    harness::until("the fault is in force", || client.write(2 << 20, &[3; 64 << 10]).err());
    assert!(client.write(0, &[4; 64 << 10]).is_err(), "over what is in memory");
    client.write(4096, &[5; 4096]).unwrap();
    assert_eq!(client.read(4096, 4096).unwrap(), [5; 4096]);
    drop(client);
    daemon.assert_no_panic();
    daemon.kill();
    let daemon = site.serve(WITH);
    let mut client = Client::connect(&site.socket());
    assert_eq!(client.read(4096, 4096).unwrap(), [5; 4096]);
    drop(client);
    daemon.stop();
}

/// Each hint names a way out, and none of them the end of what is only there.
#[test]
fn hints_do_not_lead_to_what_is_lost() {
    let site = site();
    if !is_on_disk(&site, "nvram-hints") {
        return;
    }
    let daemon = site.serve(WITH);
    let mut client = Client::connect(&site.socket());
    client.write(4096, &[7; 4096]).unwrap();
    drop(client);
    daemon.kill();
    let image = fs::read(site.path("n")).unwrap();

    // A larger limit for large writes: what is there does not hinder, the limit does.
    let outcome = refused(&site, &format!("{WITH} --nvram-bypass 1M"), "too few for writes of");
    assert!(outcome.stderr.contains("lower --nvram-bypass"), "{}", outcome.stderr);

    // Made longer.
    fs::write(site.path("n"), [&image[..], &[0; 1 << 20]].concat()).unwrap();
    let outcome = refused(&site, WITH, "and was made with");
    let size = outcome.stderr.split("truncate -s ").nth(1).expect("a command");
    let size: u64 = size.split_whitespace().next().unwrap().parse().unwrap();
    let file = File::options().write(true).open(site.path("n")).unwrap();
    file.set_len(size).unwrap();
    let daemon = site.serve(WITH);
    assert_eq!(Client::connect(&site.socket()).read(4096, 4096).unwrap(), [7; 4096]);
    daemon.kill();
    let image = fs::read(site.path("n")).unwrap();

    // Both heads without their magic numbers.
    put(&site, "n", 0, b"damaged!");
    put(&site, "n", 4096, b"damaged!");
    let outcome = refused(&site, WITH, "something else is in it");
    let hint = outcome.stderr.split("hint").nth(1).expect("a hint");
    assert!(hint.contains("do not wipe it") && !hint.contains("wipefs"), "{hint}");
    assert!(!hint.contains("blkdiscard"), "{hint}");

    // Both headers of a slot: what the hint says works.
    fs::write(site.path("n"), &image).unwrap();
    let headers = (0..2).map(|copy| (64 << 10) + copy * (68 << 10) + 8);
    headers.for_each(|at| put(&site, "n", at, &[0xee; 4]));
    let outcome = refused(&site, WITH, "which no crash does");
    assert!(outcome.stderr.contains("--nvram-lost"), "{}", outcome.stderr);
    let daemon = site.serve(&format!("{WITH} --nvram-lost"));
    assert_eq!(Client::connect(&site.socket()).read(4096, 4096).unwrap(), [0; 4096]);
    daemon.stop();
    site.serve(LAZY).stop();
}

/// C31: listed, and given up only if somebody accepts it.
#[test]
fn a_damaged_block_does_not_keep_a_pair_together_for_ever() {
    let site = site();
    if !is_on_disk(&site, "nvram-damaged-block") {
        return;
    }
    let daemon = site.serve(WITH);
    let mut client = Client::connect(&site.socket());
    client.write(0, &[1; 512]).unwrap();
    client.write(4096, &[2; 512]).unwrap();
    drop(client);
    daemon.kill();
    // The first slot.
    put(&site, "n", (68 << 10) + 100, &[0xee]);
    let daemon = site.serve(WITH);
    let outcome = site.dcd("detach --control ctl");
    assert_eq!(outcome.code, Some(4), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("1 line (512"), "{}", outcome.stderr);
    assert!(!outcome.stderr.contains("on the cache-disk, is damaged"), "{}", outcome.stderr);
    daemon.assert_no_panic();
    daemon.kill();
    // Nobody takes it for a cache that holds nothing.
    let check: harness::Value =
        serde_json::from_str(&site.dcd("check --cache-disk c --json").stdout).unwrap();
    assert_eq!(check["clean"], false, "{check}");
    let daemon = site.serve(WITH);
    site.dcd("detach --control ctl --accept-damage --lost-list lost.txt").ok();
    drop(daemon);
    let list = fs::read_to_string(site.path("lost.txt")).unwrap();
    assert!(list.contains("512"), "{list}");
    let data = fs::read(site.path("d")).unwrap();
    assert_eq!((&data[..512], &data[4096..4608]), (&[0; 512][..], &[2; 512][..]));
}
