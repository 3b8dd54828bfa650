//! The record of pairs is believed, so it must be right: whatever dcd itself, or the documented way
//! to grow a disk, does to a data-disk is nobody's write behind the back of its cache. And what is
//! a cache's is nobody else's, whatever has become of that cache and its disk.

mod harness;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::{Duration, SystemTime};

use dcd_engine::format::data_label::{DATA_LABEL_BYTES, DATA_LABEL_OFFSETS, DataLabel, LabelState};
use harness::Site;
use harness::nbd::Client;

const LAZY: &str = "--idle-min 100s --idle-max 100s";
const LINE: usize = 4096;

/// A pair that was closed in order, with a dirty line.
fn dirty() -> Site {
    dirty_made("")
}

fn dirty_made(flags: &str) -> Site {
    let site = Site::empty();
    // So that a record is kept.
    std::fs::create_dir(site.path("state")).unwrap();
    site.folder.disk("d", 64 << 20);
    site.dcd(&format!("create --cache-disk c --cache-size 64M --data-disk d {flags}")).ok();
    let daemon = site.serve(LAZY);
    let mut client = Client::connect(&site.socket());
    client.write(8 * LINE as u64, &[7; LINE]).unwrap();
    client.flush().unwrap();
    drop(client);
    daemon.stop();
    let checked = site.dcd("inspect dirty --cache-disk c --json").ok();
    assert!(checked.contains("\"closed_in_order\": true"), "{checked}");
    assert!(checked.contains("\"dirty_bytes\": 4096"), "{checked}");
    site
}

fn is_served_whole(site: &Site) {
    let daemon = site.serve(LAZY);
    let mut client = Client::connect(&site.socket());
    assert_eq!(client.read(8 * LINE as u64, LINE).unwrap(), [7; LINE]);
    daemon.stop();
}

#[test]
fn a_start_that_failed_locks_nobody_out() {
    let site = dirty();
    let serve = "serve --cache-disk c --data-disk d --memory-directory .";
    for flags in ["--fuse nodir", "--nbd unix:nodir/s", "--nbd unix:s --control nodir/ctl"] {
        let outcome = site.dcd(&format!("{serve} {flags}"));
        assert_eq!(outcome.code, Some(1), "{flags}: {}", outcome.stderr);
        assert!(!outcome.stderr.contains("was written to"), "{flags}: {}", outcome.stderr);
    }
    let grown = site.dcd("grow --cache-disk c --data-disk d --memory-directory .").ok();
    assert!(grown.contains("recorded size"), "{grown}");
    is_served_whole(&site);
}

#[test]
fn a_dirty_pair_grows() {
    let site = dirty();
    File::options().write(true).open(site.path("d")).unwrap().set_len(80 << 20).unwrap();
    site.dcd("grow --cache-disk c --data-disk d --memory-directory .").ok();
    is_served_whole(&site);
}

/// Whoever asks what a disk is, before he mounts it, is not told that it is nobody's.
#[test]
fn a_data_disk_of_no_service_is_known_to_probe() {
    let site = dirty();
    let told = site.dcd("probe d").ok();
    assert!(told.contains("/c, of no service: what is on it alone may be old"), "{told}");
    let json = site.dcd("probe d --json").ok();
    assert!(json.contains("\"attached\": true") && json.contains("\"data-disk\""), "{json}");
    assert_eq!(site.dcd("probe d --udev").ok(), "", "udev is told by settings and labels");
    fs::rename(site.path("c"), site.path("moved")).unwrap();
    assert!(site.dcd("probe d").ok().contains("of no service: what is on it alone may be old"));
    fs::rename(site.path("moved"), site.path("c")).unwrap();
    site.dcd(&format!("detach --cache-disk c {DETACH}")).ok();
    assert_eq!(site.dcd("probe d").ok(), "d: no disk of a cache\n");
    assert!(site.dcd("probe none").ok().contains("none: no disk of a cache: it is not there"));
}

/// A blank file in its place would get what the cache holds, and lack all else.
#[test]
fn a_data_disk_that_is_missing_is_not_to_be_made() {
    let site = dirty();
    fs::rename(site.path("d"), site.path("moved")).unwrap();
    for line in ["serve --cache-disk c --nbd unix:s", "detach --cache-disk c"] {
        let outcome = site.dcd(&format!("{line} {DETACH}"));
        assert!(!outcome.stderr.contains("truncate"), "{}", outcome.stderr);
        outcome.fails(1, "does not exist", "bring that disk back");
    }
    site.dcd("create --cache-disk n --cache-size 16M --data-disk none").fails(
        1,
        "does not exist",
        "truncate",
    );
}

/// As somebody would a little later.
fn write_behind(site: &Site, name: &str, offset: u64, bytes: &[u8]) {
    let file = File::options().write(true).open(site.path(name)).unwrap();
    file.write_all_at(bytes, offset).unwrap();
    touch(site, name);
}

fn touch(site: &Site, name: &str) {
    let file = File::options().write(true).open(site.path(name)).unwrap();
    file.set_modified(SystemTime::now() + Duration::from_secs(2)).unwrap();
}

const SECOND: &str = "create --cache-disk n --cache-size 16M --data-disk d";
const DETACH: &str = "--data-disk d --memory-directory .";

#[test]
fn a_cache_that_is_not_found_is_not_over() {
    let site = dirty();
    let rename = |from: &str, to: &str| fs::rename(site.path(from), site.path(to)).unwrap();
    rename("c", "moved");
    site.dcd(SECOND).fails(1, "and is not there any more", "find it, whatever its name is now");
    // Nor is one whose place another has taken.
    site.folder.disk("c", 1 << 20);
    site.dcd(SECOND).fails(1, "and is not there any more", "--force");
    site.folder.disk("other", 64 << 20);
    fs::remove_file(site.path("c")).unwrap();
    site.dcd("create --cache-disk c --cache-size 16M --data-disk other").ok();
    site.dcd(SECOND).fails(1, "and is not there any more", "--force");
    assert!(!site.path("n").exists());
    rename("moved", "c");
    is_served_whole(&site);
    // A person says that it is gone. Should it turn up, it is the old one.
    rename("c", "moved");
    let forced = site.dcd(&format!("{SECOND} --force"));
    assert!(forced.stderr.contains("that is given up: d belongs to cache"), "{}", forced.stderr);
    forced.ok();
    let daemon = site.serve_disks("n", "d", LAZY);
    Client::connect(&site.socket()).write(8 * LINE as u64, &[9; LINE]).unwrap();
    daemon.stop();
    rename("moved", "c");
    let old = format!("detach --cache-disk c {DETACH}");
    site.dcd(&old).fails(1, "was given up, and its data-disk d went on without it", "dcd salvage");
    site.dcd(&format!("detach --cache-disk n {DETACH}")).ok();
    site.dcd(&old).fails(1, "was given up", "--trust-disks");
    let mut line = [0; LINE];
    File::open(site.path("d")).unwrap().read_exact_at(&mut line, 8 * LINE as u64).unwrap();
    assert_eq!(line, [9; LINE]);
}

/// What is overwritten or wiped by dcd itself is over, and nobody has to say so again.
#[test]
fn a_cache_that_was_given_up_or_wiped_is_over() {
    let site = dirty();
    let uuid = |site: &Site| {
        let told = site.dcd("inspect superblock --cache-disk c --json").ok();
        let told: harness::Value = serde_json::from_str(&told).unwrap();
        told[0]["superblock"]["uuid"].as_str().unwrap().to_owned()
    };
    let again = format!("create --cache-disk c --data-disk d --force --uuid {}", uuid(&site));
    site.dcd(&again).ok();
    site.serve(LAZY).stop();
    site.dcd(&format!("detach --cache-disk c {DETACH} --wipe")).ok();
    site.dcd(SECOND).ok();
    // A crash came before the record of a detach.
    let site = dirty();
    let record = site.path(&format!("state/pairs/{}.pair", uuid(&site)));
    let before = fs::read(&record).unwrap();
    site.dcd(&format!("detach --cache-disk c {DETACH}")).ok();
    fs::write(&record, before).unwrap();
    site.dcd(&format!("detach --cache-disk c {DETACH} --wipe")).ok();
    site.dcd(SECOND).ok();
}

#[test]
fn a_copy_of_the_cache_disk_is_as_good_and_hides_no_write_to_the_data_disk() {
    let copied = |site: &Site| {
        fs::copy(site.path("c"), site.path("x")).unwrap();
        fs::rename(site.path("x"), site.path("c")).unwrap();
    };
    let touched = |site: &Site| touch(site, "c");
    for replace in [&copied as &dyn Fn(&Site), &touched] {
        let site = dirty();
        replace(&site);
        is_served_whole(&site);
        write_behind(&site, "d", 30 << 20, b"somebody was here");
        replace(&site);
        let serve = "serve --cache-disk c --data-disk d --nbd unix:s --memory-directory .";
        site.dcd(serve).fails(1, "was written to since this cache", "--trust-disks");
        site.serve(&format!("{LAZY} --trust-disks")).stop();
        is_served_whole(&site);
    }
}

/// A start writes the label before the superblock, and may be killed in between.
#[test]
fn a_label_that_announces_a_start_is_nobodys_write() {
    let site = dirty_made("--labelled");
    let disk = File::options().read(true).write(true).open(site.path("d")).unwrap();
    let copies = DATA_LABEL_OFFSETS.map(|offset| {
        let mut bytes = [0; DATA_LABEL_BYTES];
        disk.read_exact_at(&mut bytes, offset).unwrap();
        bytes
    });
    let label = DataLabel::newest(&copies[0], &copies[1]).unwrap();
    assert_eq!(label.state, LabelState::Dirty);
    let next = DataLabel { writing: label.writing + 1, epoch_max: label.epoch + 1, ..label };
    disk.write_all_at(next.encode().bytes(), next.offset()).unwrap();
    touch(&site, "d");
    is_served_whole(&site);
    write_behind(&site, "d", 30 << 20, b"somebody was here");
    let serve = "serve --cache-disk c --data-disk d --nbd unix:s --memory-directory .";
    site.dcd(serve).fails(1, "was written to since this cache", "--trust-disks");
}

#[test]
fn what_a_cache_needs_is_served_without_it_for_reading_alone() {
    let site = dirty();
    let refused = |disk: &str, why: &str| {
        for verb in ["serve --null --data-disk", "slow-disk --disk"] {
            let error = format!("not served without its cache: {disk} {why}");
            site.dcd(&format!("{verb} {disk} --nbd unix:n")).fails(1, &error, "--read-only");
        }
        let line = format!("serve --null --data-disk {disk} --nbd unix:n --read-only");
        site.start_line(&line).ready().stop();
    };
    refused("d", "belongs to cache");
    refused("c", "is the cache-disk of cache");
    for disk in ["m0", "m1", "l"] {
        site.folder.disk(disk, 33 << 20);
    }
    fs::write(site.path("v.toml"), "[[set]]\nlevel = 0\n").unwrap();
    let volume =
        "create --cache-disk v --cache-size 16M --volume v.toml --data-disk m0 --data-disk m1";
    site.dcd(volume).ok();
    refused("m1", "is member 1 of the volume of cache");
    site.dcd("create --cache-disk lc --cache-size 16M --data-disk l --labelled").ok();
    site.serve_disks("lc", "l", "").stop();
    refused("l", "has the label of cache");
    // Detached, they are anybody's.
    site.dcd(&format!("detach --cache-disk c {DETACH}")).ok();
    site.start_line("serve --null --data-disk d --nbd unix:n").ready().stop();
    site.start_line("slow-disk --disk c --nbd unix:n").ready().stop();
}

const OTHER: &str =
    "--nbd unix:s2 --control ctl2 --memory-directory . --idle-min 100s --idle-max 100s";

/// It looks blank as long as all is in its cache, and whatever it became would write to it.
#[test]
fn a_data_disk_that_its_cache_needs_gets_no_other_role() {
    let site = dirty();
    let refused = |line: &str| site.dcd(line).fails(1, "belongs to cache", "detach");
    for disk in ["l", "m", "o", "n", "p", "m0", "m1"] {
        site.folder.disk(disk, 64 << 20);
    }
    let legs = "--cache-disk l --cache-disk m --cache-size 48M --data-disk o --no-fill";
    refused(&format!("create {legs} --witness d"));
    site.dcd(&format!("create {legs}")).ok();
    let serve = format!("serve --cache-disk l --cache-disk m --data-disk o {OTHER}");
    for role in ["--new-leg d", "--witness d"] {
        refused(&format!("{serve} {role}"));
    }
    let daemon = site.start_line(&serve).ready();
    for verb in ["add d", "add-witness d"] {
        refused(&format!("cache-disk {verb} --control ctl2"));
    }
    daemon.stop();
    // A memory in front of a log.
    site.dcd("create --cache-disk n --cache-size 32M --data-disk p --no-fill").ok();
    refused(&format!("serve --cache-disk n --data-disk p {OTHER} --nvram d"));
    // A spare, or a member.
    std::fs::write(
        site.path("volume.toml"),
        "extent = \"64k\"\njournal = \"2M\"\n[[set]]\nlevel = 1\n",
    )
    .unwrap();
    let volume = "--cache-disk v --data-disk m0 --data-disk m1";
    site.dcd(&format!("create {volume} --cache-size 48M --volume volume.toml --no-fill")).ok();
    let daemon = site.start_line(&format!("serve {volume} {OTHER}")).ready();
    for verb in ["spare add d", "replace 1 d"] {
        refused(&format!("volume {verb} --control ctl2"));
    }
    daemon.stop();
    is_served_whole(&site);
}

/// What a memory holds behind the death of its dcd is nowhere else, and a witness has a word.
#[test]
fn a_memory_and_a_witness_are_known() {
    let site = Site::empty();
    fs::create_dir(site.path("state")).unwrap();
    site.folder.disk("d", 64 << 20);
    site.folder.disk("nv", 4 << 20);
    site.dcd("create --cache-disk c --cache-size 64M --data-disk d --no-fill").ok();
    let flags = format!("{LAZY} --nvram nv --nvram-idle 1h");
    let daemon = site.serve(&flags);
    let mut client = Client::connect(&site.socket());
    client.write(8 * LINE as u64, &[7; LINE]).unwrap();
    client.flush().unwrap();
    daemon.kill();
    let told = site.dcd("probe nv").ok();
    assert!(told.contains("nv: memory of cache") && told.contains("nowhere else"), "{told}");
    let json = site.dcd("probe nv --json").ok();
    assert!(json.contains("\"role\": \"memory\"") && json.contains("\"attached\": true"), "{json}");
    let is_memory = "nv is the memory of cache";
    site.dcd("serve --null --data-disk nv --nbd unix:s2").fails(1, is_memory, "detach");
    let create = "create --cache-size 16M --no-fill";
    site.dcd(&format!("{create} --cache-disk x --data-disk nv")).fails(1, is_memory, "--force");
    site.dcd(&format!("{create} --cache-disk nv --data-disk o")).fails(1, "", "");
    let daemon = site.serve(&flags);
    let mut client = Client::connect(&site.socket());
    assert_eq!(client.read(8 * LINE as u64, LINE).unwrap(), [7; LINE]);
    drop(client);
    daemon.stop();
    // In order, nothing is left in it.
    assert_eq!(site.dcd("probe nv").ok(), "nv: no disk of a cache\n");

    for disk in ["l", "m", "o"] {
        site.folder.disk(disk, 64 << 20);
    }
    let legs = "--cache-disk l --cache-disk m --cache-size 48M --data-disk o --no-fill";
    site.dcd(&format!("create {legs} --witness w")).ok();
    let create = "create --cache-disk x --cache-size 16M --no-fill --data-disk w";
    site.dcd(create).fails(1, "w is the witness of cache", "--force");
}
