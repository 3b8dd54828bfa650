//! `dcd salvage --data-disk` overwrites, so it asks what a start asks, and more: it leaves alone
//! what is a cache-disk or another cache's disk whatever is said, and the data-disk of its cache
//! that has gone on unless a person trusts the disks.

mod harness;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use harness::Site;
use harness::nbd::Client;

const LAZY: &str = "--idle-min 100s --idle-max 100s";
const LINE: usize = 4096;
const DISK: u64 = 64 << 20;

/// Caches `c1`, `c2`, ... of disks `d1`, `d2`, ..., each with a dirty line of its number, and a
/// record of them.
fn pairs(creates: &[&str]) -> Site {
    let site = Site::empty();
    fs::create_dir(site.path("state")).unwrap();
    for (index, create) in creates.iter().enumerate() {
        let number = index + 1;
        site.folder.disk(&format!("d{number}"), DISK);
        let disks = format!("--cache-disk c{number} --cache-size 64M --data-disk d{number}");
        site.dcd(&format!("create {disks} {create}")).ok();
        fill(&site, number);
    }
    site
}

fn fill(site: &Site, number: usize) {
    let daemon = site.serve_disks(&format!("c{number}"), &format!("d{number}"), LAZY);
    let mut client = Client::connect(&site.socket());
    client.write(8 * LINE as u64, &[number as u8; LINE]).unwrap();
    client.flush().unwrap();
    drop(client);
    daemon.stop();
}

/// It is refused, with and without these flags, and the disk is as it was.
fn is_left_alone(site: &Site, cache: &str, disk: &str, all_flags: &[&str], error: &str) {
    let before = fs::read(site.path(disk)).unwrap();
    for flags in all_flags {
        let line = format!("salvage --cache-disk {cache} --data-disk {disk} {flags}");
        let refused = site.dcd(&line);
        assert_eq!(refused.code, Some(1), "{line}: {}{}", refused.stdout, refused.stderr);
        assert!(refused.stderr.contains(error), "{line}: {}", refused.stderr);
        assert!(refused.stderr.contains("dcd: hint: "), "{line}: {}", refused.stderr);
        assert!(fs::read(site.path(disk)).unwrap() == before, "{line}: {disk} was written to");
    }
}

const ALWAYS: [&str; 2] = ["", "--trust-disks --take-uncertain"];

#[test]
fn what_is_somebody_elses_is_left_alone_whatever_is_said() {
    let site = pairs(&["", "", "--labelled"]);
    let alone = |disk: &str, error: &str| is_left_alone(&site, "c1", disk, &ALWAYS, error);
    alone("c2", "it is the cache-disk of cache");
    alone("d2", "it is the data-disk of cache");
    alone("d3", "as its label says");
    // Itself, under any name.
    fs::hard_link(site.path("c1"), site.path("alias")).unwrap();
    alone("c1", "the same disk");
    alone("alias", "the same disk");
    // Damaged ones, too.
    site.flip("c2", 100, 1);
    site.flip("c2", (64 << 10) + 100, 1);
    alone("c2", "it is the cache-disk of a cache that cannot be read");
    for offset in [100, (64 << 10) + 100] {
        site.flip("d3", offset, 1);
    }
    alone("d3", "label cannot be read");
    // Without a record the attribute of the disk tells.
    fs::remove_dir_all(site.path("state/pairs")).unwrap();
    let is_known = site.dcd("create --cache-disk e --cache-size 16M --data-disk d2").code;
    if is_known == Some(1) {
        alone("d2", "it is the data-disk of cache");
    }
    // What is there for it is brought home.
    let found = site.dcd("salvage --cache-disk c1 --data-disk d1").ok();
    assert!(found.contains("4 KiB"), "{found}");
    assert!(fs::read(site.path("d1")).unwrap()[8 * LINE..9 * LINE] == [1; LINE]);
}

#[test]
fn a_member_of_a_volume_is_left_alone() {
    let site = pairs(&[""]);
    fs::write(site.path("raid.toml"), "[[set]]\nlevel = 1\n").unwrap();
    site.folder.disk("m0", DISK);
    site.folder.disk("m1", DISK);
    let disks = "--data-disk m0 --data-disk m1 --volume raid.toml";
    site.dcd(&format!("create --cache-disk v --cache-size 64M {disks}")).ok();
    is_left_alone(&site, "c1", "m1", &ALWAYS, "it is member 1 of the volume of cache");
}

#[test]
fn a_data_disk_that_has_gone_on_is_for_who_trusts_the_disks() {
    let site = pairs(&[""]);
    fs::copy(site.path("c1"), site.path("old")).unwrap();
    site.folder.disk("other", DISK);
    is_left_alone(&site, "c1", "other", &[""], "is not the data-disk of this cache");
    site.dcd("detach --cache-disk c1 --data-disk d1 --memory-directory .").ok();
    let disk = File::options().write(true).open(site.path("d1")).unwrap();
    disk.write_all_at(&[9; LINE], 8 * LINE as u64).unwrap();
    is_left_alone(&site, "c1", "d1", &["", "--take-uncertain"], "is detached");
    is_left_alone(&site, "old", "d1", &["", "--take-uncertain"], "is an older copy");
    // On a host that has no record, the disk itself tells; where it can.
    let has_attribute = site.try_tool("getfattr", &["-n", "user.dcd.pair", "d1"]).status.success();
    fs::remove_dir_all(site.path("state/pairs")).unwrap();
    if has_attribute {
        is_left_alone(&site, "old", "d1", &["", "--take-uncertain"], "is an older copy");
    }
    site.dcd("salvage --cache-disk old --data-disk d1 --trust-disks").ok();
    assert!(fs::read(site.path("d1")).unwrap()[8 * LINE..9 * LINE] == [1; LINE]);
    // A person may know better; of a cache that is detached there is nothing to bring.
    site.dcd("salvage --cache-disk old --data-disk other --trust-disks").ok();
    assert!(fs::read(site.path("other")).unwrap()[8 * LINE..9 * LINE] == [1; LINE]);
    site.dcd("salvage --cache-disk c1 --data-disk d1 --trust-disks").ok();
}

#[test]
fn the_label_of_a_data_disk_tells_that_it_has_gone_on() {
    let site = pairs(&["--labelled"]);
    fs::remove_dir_all(site.path("state")).unwrap();
    fs::copy(site.path("c1"), site.path("old")).unwrap();
    fs::copy(site.path("d1"), site.path("before")).unwrap();
    fill(&site, 1);
    is_left_alone(&site, "old", "d1", &[""], "is an older copy: it has epoch");
    is_left_alone(&site, "c1", "before", &[""], "is an older copy: its label has epoch");
    site.folder.disk("blank", DISK);
    is_left_alone(&site, "c1", "blank", &[""], "label");
    site.dcd("salvage --cache-disk old --data-disk d1 --trust-disks").ok();
}

/// A disk that is served is nobody else's to write to.
#[test]
fn a_pair_that_is_served_is_left_alone() {
    let site = pairs(&[""]);
    fs::copy(site.path("d1"), site.path("copy")).unwrap();
    let daemon = site.serve_disks("c1", "d1", LAZY);
    for disk in ["d1", "copy"] {
        let line = format!("salvage --cache-disk c1 --data-disk {disk} --trust-disks");
        assert_eq!(site.dcd(&line).code, Some(1));
    }
    daemon.stop();
}
