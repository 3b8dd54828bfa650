//! Shares of other cache-disks that become legs, with the real binary: a cache moves from one shared
//! disk to another while it serves; whoever does it is killed; and what cannot be is refused, with
//! nothing written.

mod harness;

use std::fs;
use std::time::Duration;

use harness::model::difference;
use harness::random::{Random, sum_of_file};
use harness::shares::{FLAGS, Load, MIB, VOLUME, beside, make, room, start};
use harness::{Daemon, Site, Value, cycles, seed, until};

fn begin(site: &Site, disks: &str, data: &str) -> Daemon {
    site.start_line(&format!(
        "serve {disks} --data-disk {data} --nbd unix:{data}.nbd --control {data}.ctl {FLAGS}"
    ))
}

fn serve(site: &Site, disks: &str, data: &str) -> Daemon {
    begin(site, disks, data).ready()
}

/// Disks and names of the legs, of those that are in sync.
fn legs(site: &Site, data: &str) -> Vec<(String, String)> {
    let told = site.dcd(&format!("cache-disk status --control {data}.ctl --json")).ok();
    let told: Value = serde_json::from_str(&told).unwrap();
    let in_sync = told["legs"].as_array().unwrap().iter().filter(|leg| leg["state"] == "in-sync");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    in_sync.map(|leg| (text(&leg["disk"]), text(&leg["leg"]))).collect()
}

fn leg_on(site: &Site, data: &str, disk: &str) -> String {
    let legs = legs(site, data);
    let found = legs.iter().find(|(name, _)| name.ends_with(disk));
    found.unwrap_or_else(|| panic!("none on {disk}: {legs:?}")).1.clone()
}

/// Two caches move from a disk that wears out to a new one, under load.
#[test]
fn caches_move_to_another_shared_disk_while_they_serve() {
    let site = Site::empty();
    for (disk, mib) in [("old", 16), ("spare", 16), ("new", 16)] {
        site.folder.disk(disk, mib * MIB);
    }
    let names = ["d1", "d2"];
    names.iter().for_each(|data| make(&site, "old", data, 4));
    let mut loads = [Load::new("d1", 41), Load::new("d2", 42)];
    // 1. A cache on one disk gets its second leg at a start; the blank disk becomes a shared one,
    //    which two want at once.
    let daemons = names
        .map(|data| begin(&site, &format!("--cache-disk old/{data} --new-leg spare/{data}"), data))
        .map(Daemon::ready);
    for data in names {
        until("it is filled", || (legs(&site, data).len() == 2).then_some(()));
    }
    assert_eq!((room(&site, "spare", "d1"), room(&site, "spare", "d2").1), ((7, 4, 1), 4));
    // 2. The same settings again: it is a leg, and stays it.
    daemons.into_iter().for_each(Daemon::kill);
    let daemons = names
        .map(|data| serve(&site, &format!("--cache-disk old/{data} --new-leg spare/{data}"), data));
    // 3. The disk that wears out is replaced, while all write.
    beside(&site, &mut loads, || {
        for data in names {
            let leg = leg_on(&site, data, &format!("old/{data}"));
            let replace = format!("cache-disk replace {leg} new/to-{data} --control {data}.ctl");
            let told = site.dcd(&replace).ok();
            assert!(told.contains(&format!("old/{data} is free again")), "{told}");
        }
    });
    assert_eq!((room(&site, "old", "").0, room(&site, "old", "d1").1), (15, 0));
    // What is in the place of one that is out may be another, and is not given away.
    let third = leg_on(&site, "d1", "new/to-d1");
    let take_out = format!("cache-disk take-out {third} --control d1.ctl");
    site.dcd(&take_out).ok();
    site.dcd("cache-disk add new/to-d1 --control d1.ctl").ok();
    site.dcd(&take_out).fails(1, "it was taken out", "");
    site.dcd(&format!("cache-disk replace {third} old/d1 --control d1.ctl")).fails(
        1,
        "is not there",
        "",
    );
    assert_eq!((room(&site, "old", "").0, room(&site, "new", "to-d1").1), (15, 4));
    site.dcd("cache-disk add new/to-d1 --control d1.ctl").fails(1, "it is in use already", "");
    site.dcd("cache-disk add new/other --control d1.ctl").fails(1, "has a share of this disk", "");
    assert_eq!((room(&site, "new", "to-d1"), room(&site, "new", "to-d2").1), ((7, 4, 1), 4));
    // 4. Room moves with a leg that is taken out, too.
    let resize = |size: &str| {
        let line = format!("cache-disk resize {size} --control d1.ctl --json");
        let done: Value = serde_json::from_str(&site.dcd(&line).ok()).unwrap();
        done["share_bytes"].as_u64().unwrap() / MIB
    };
    assert_eq!((resize("6M"), resize("3M")), (6, 3));
    assert_eq!((room(&site, "new", "to-d1").1, room(&site, "spare", "d1").1), (3, 3));
    // 5. A daemon that has let go of a leg detaches, and gives back the rooms of the others.
    let [first, second] = daemons;
    loads[1].compare(&site, &second);
    second.assert_no_panic();
    site.dcd("detach --control d2.ctl").ok();
    let data = fs::read(site.path("d2")).unwrap();
    assert_eq!(difference(&data, &loads[1].volume), None, "detached by its daemon");
    assert_eq!((room(&site, "spare", "d2").1, room(&site, "new", "to-d2").1), (0, 0));
    // 6. The new disks alone have everything.
    loads[0].compare(&site, &first);
    first.assert_no_panic();
    first.kill();
    fs::remove_file(site.path("old")).unwrap();
    let disks = "--cache-disk spare --cache-disk new/to-d1";
    let daemon = serve(&site, disks, "d1");
    loads[0].compare(&site, &daemon);
    daemon.stop();
    site.dcd(&format!("detach {disks} --data-disk d1 --memory-directory .")).ok();
    assert_eq!(difference(&fs::read(site.path("d1")).unwrap(), &loads[0].volume), None);
    assert_eq!((room(&site, "spare", "").0, room(&site, "new", "").0), (15, 15));
}

/// Who adds it, or serves, is killed at any moment: asked again it becomes one, and no room is lost.
#[test]
fn a_kill_at_any_moment_leaves_a_leg_or_room_for_one() {
    let site = Site::empty();
    for disk in ["c", "e"] {
        site.folder.disk(disk, 16 * MIB);
        make(&site, disk, &format!("other-{disk}"), 2);
    }
    site.folder.disk("n", 16 * MIB);
    site.folder.disk("d", VOLUME);
    site.dcd("create --cache-disk c --cache-disk e --share 4M --segment-size 64k --data-disk d")
        .ok();
    let neighbour = start(&site, "c", "other-c");
    let mut loads = [Load::new("d", 51)];
    let mut random = Random::new(seed() ^ 52);
    let dcd = env!("CARGO_BIN_EXE_dcd");
    for _ in 0..cycles(12, 3) {
        let daemon = serve(&site, "--cache-disk c --cache-disk e", "d");
        loads[0].compare(&site, &daemon);
        loads[0].run_some(&site, 30);
        let mut asking = site.start_tool(&format!("{dcd} cache-disk add n/third --control d.ctl"));
        std::thread::sleep(Duration::from_millis(random.below(120)));
        let daemon = match random.once_in(2) {
            true => {
                daemon.kill();
                let _ = asking.wait();
                // Not a leg yet, one that is being filled, or one: nobody needs it.
                serve(&site, "--cache-disk c --cache-disk e --new-leg n/third", "d")
            }
            false => {
                let _ = asking.kill();
                let _ = asking.wait();
                let added = site.dcd("cache-disk add n/third --control d.ctl");
                assert!(
                    added.code == Some(0)
                        || ["in use already", "locked", "there is a share"]
                            .iter()
                            .any(|it| added.stderr.contains(it)),
                    "{}",
                    added.stderr
                );
                daemon
            }
        };
        until("it is filled", || (legs(&site, "d").len() == 3).then_some(()));
        assert_eq!(room(&site, "n", "third"), (11, 4, 1));
        let third = leg_on(&site, "d", "n/third");
        let told = site.dcd(&format!("cache-disk take-out {third} --control d.ctl")).ok();
        assert!(told.contains("is free again"), "{told}");
        assert_eq!(room(&site, "n", "").0, 15);
        loads[0].compare(&site, &daemon);
        daemon.assert_no_panic();
        daemon.kill();
    }
    neighbour.stop();
}

#[test]
fn what_cannot_be_a_leg_is_refused_and_nothing_is_written() {
    let site = Site::empty();
    // A host that keeps records of pairs.
    fs::create_dir(site.path("state")).unwrap();
    for disk in ["c", "e", "full"] {
        site.folder.disk(disk, 16 * MIB);
        make(&site, disk, &format!("other-{disk}"), if disk == "full" { 13 } else { 2 });
    }
    site.folder.disk("d", VOLUME);
    site.folder.disk("small", 3 * MIB);
    site.folder.disk("foreign", 16 * MIB);
    site.folder.disk("data", 16 * MIB);
    fs::write(site.path("foreign"), vec![7; 16 << 20]).unwrap();
    site.dcd("create --cache-disk whole --cache-size 16M --segment-size 64k --data-disk data").ok();
    site.dcd("create --cache-disk c --cache-disk e --share 4M --segment-size 64k --data-disk d")
        .ok();
    // Of this disk, which looks blank, all that there is may be in its cache.
    serve(&site, "--cache-disk whole", "data").kill();
    let daemon = serve(&site, "--cache-disk c --cache-disk e", "d");
    let sums =
        || ["full", "small", "foreign", "data", "whole"].map(|disk| sum_of_file(&site.path(disk)));
    let before = sums();
    let add = |disk: &str| site.dcd(&format!("cache-disk add {disk} --control d.ctl"));
    add("full/d").fails(1, "has no room", "smaller");
    add("full/other-full").fails(1, "there is a share other-full already", "another name");
    add("full/.d").fails(1, "cannot be the name of a share", "");
    add("small/d").fails(1, "a leg of this cache needs", "");
    add("foreign/d").fails(1, "not zero", "if nothing on it is needed");
    add("data/d").fails(1, "data belongs to cache", "detach that first");
    add("whole/d").fails(1, "looks like a dcd cache", "");
    add("nothing/d").fails(1, "does not exist", "");
    add("c/twice").fails(1, "has a share of this disk already: c/d", "fail together");
    add("c/d").fails(1, "it is in use already", "");
    assert!(sums() == before, "something was written");
    daemon.stop();
    // The same at a start.
    let start = |disk: &str| {
        site.dcd(&format!(
            "serve --cache-disk c --cache-disk e --new-leg {disk} --data-disk d --nbd unix:x {FLAGS}"
        ))
    };
    start("full/d").fails(1, "has no room", "");
    start("foreign/d").fails(1, "not zero", "");
    assert!(sums() == before, "something was written");
    // What is made for a start that comes to nothing is given back.
    make(&site, "e", "other", 2);
    site.dcd(&format!(
        "serve --cache-disk e/other --new-leg full/other --data-disk data --nbd unix:x {FLAGS}"
    ))
    .fails(1, "", "");
    assert_eq!(room(&site, "full", "other").1, 0);
    assert_eq!((room(&site, "c", "d").1, room(&site, "e", "d").1), (4, 4));
}

/// A block device stays kept from the kernel's own users behind the command that has opened it.
#[test]
fn a_leg_on_a_shared_block_device_is_kept_from_others() {
    skip_without!("a_leg_on_a_shared_block_device_is_kept_from_others", "root", "loop");
    let site = Site::empty();
    for disk in ["c", "e"] {
        site.folder.disk(disk, 16 * MIB);
        make(&site, disk, &format!("other-{disk}"), 2);
    }
    site.folder.disk("file", 16 * MIB);
    site.folder.disk("d", VOLUME);
    let device = site.run("losetup --find --show file").trim().to_owned();
    site.dcd("create --cache-disk c --cache-disk e --share 4M --segment-size 64k --data-disk d")
        .ok();
    let daemon = serve(&site, "--cache-disk c --cache-disk e", "d");
    let mut loads = [Load::new("d", 61)];
    beside(&site, &mut loads, || {
        site.dcd(&format!("cache-disk add {device}/d --control d.ctl")).ok();
    });
    let is_kept = || {
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::EXCL;
        rustix::fs::open(device.as_str(), flags, rustix::fs::Mode::empty()).is_err()
    };
    assert!(is_kept());
    // Another cache comes and goes beside it.
    make(&site, &device, "neighbour", 4);
    start(&site, &device, "neighbour").stop();
    assert!(is_kept());
    loads[0].compare(&site, &daemon);
    let leg = leg_on(&site, "d", &format!("{device}/d"));
    site.dcd(&format!("cache-disk take-out {leg} --control d.ctl")).ok();
    until("nobody has it", || (!is_kept()).then_some(()));
    assert_eq!(room(&site, &device, "d").1, 0);
    daemon.stop();
}
