//! Room moves between caches that share a cache-disk, with the real binary: under load, on legs, on
//! a loop device; whoever does it is killed, and the power is cut, in the middle; and what cannot be
//! is refused, with nothing written.

mod harness;

use std::fs;
use std::time::Duration;

use harness::machine::random_instant;
use harness::model::difference;
use harness::random::{Random, sum_of_file};
use harness::shares::{FLAGS, Load, MIB, VOLUME, beside, make, room, start};
use harness::volatile::VolatileDisks;
use harness::{Daemon, Site, Value, cycles, seed};

fn resize(data: &str, size: &str) -> String {
    format!("cache-disk resize {size} --control {data}.ctl")
}

/// What was answered, as JSON.
fn resized(site: &Site, data: &str, size: &str) -> Value {
    let answer = site.dcd(&format!("{} --json", resize(data, size))).ok();
    serde_json::from_str(&answer).unwrap()
}

fn segments(site: &Site, data: &str) -> u64 {
    let status = site.dcd(&format!("status --control {data}.ctl --json")).ok();
    let status: Value = serde_json::from_str(&status).unwrap();
    status["segments"]["total"].as_u64().unwrap()
}

/// Eight caches fill a disk; one after the other gives room to another, all of them under load, and
/// some are killed meanwhile.
#[test]
fn room_moves_between_eight_caches_under_load() {
    let site = Site::empty();
    let names: Vec<String> = (0..8).map(|index| format!("d{index}")).collect();
    site.folder.disk("c", 33 * MIB);
    names.iter().for_each(|data| make(&site, "c", data, 4));
    assert_eq!(room(&site, "c", "d0").0, 0);
    let mut daemons: Vec<Option<Daemon>> =
        names.iter().map(|data| Some(start(&site, "c", data))).collect();
    let mut loads: Vec<Load> =
        names.iter().zip(1..).map(|(data, salt)| Load::new(data, salt)).collect();
    let mut random = Random::new(seed() ^ 77);
    let mut in_parts = 0;
    for _ in 0..cycles(10, 3) {
        let from = random.below(8) as usize;
        let to = (from + 1 + random.below(7) as usize) % 8;
        let (giver, taker) = (&names[from], &names[to]);
        beside(&site, &mut loads, || {
            let (_, has, _) = room(&site, "c", giver);
            if has > 2 {
                let done = resized(&site, giver, &format!("{}M", has - 1 - random.below(has - 2)));
                assert!(done["segments"].as_u64() < done["segments_before"].as_u64(), "{done}");
            }
            let (free, before, _) = room(&site, "c", taker);
            if free == 0 {
                return;
            }
            // All that is free, or some of it.
            let (size, expected) = match random.once_in(2) {
                true => (String::new(), before + free),
                false => (format!("{}M", before + 1), before + 1),
            };
            let done = resized(&site, taker, &size);
            assert!(done["segments"].as_u64() > done["segments_before"].as_u64(), "{done}");
            assert_eq!(done["share_bytes"].as_u64(), Some(expected * MIB));
            let (left, now, parts) = room(&site, "c", taker);
            assert_eq!((left, now), (before + free - expected, expected));
            in_parts += usize::from(parts > 1);
        });
        let one = random.below(8) as usize;
        let daemon = daemons[one].take().unwrap();
        daemon.assert_no_panic();
        daemon.kill();
        let daemon = start(&site, "c", &names[one]);
        loads[one].compare(&site, &daemon);
        daemons[one] = Some(daemon);
    }
    assert!(in_parts > 0, "no share was ever in several parts");
    for (load, daemon) in loads.iter().zip(daemons) {
        let daemon = daemon.unwrap();
        load.compare(&site, &daemon);
        daemon.assert_no_panic();
        daemon.stop();
        let data = &load.data;
        site.dcd(&format!("check --cache-disk c/{data}")).ok();
        site.dcd(&format!("detach --cache-disk c/{data} --data-disk {data} --memory-directory ."))
            .ok();
        assert_eq!(difference(&fs::read(site.path(data)).unwrap(), &load.volume), None, "{data}");
    }
    assert_eq!(room(&site, "c", "").0, 32);
}

/// Killed at any moment of it: the next start has a log of one size or the other, and the share no
/// more than that; the neighbours keep theirs.
#[test]
fn a_kill_at_any_moment_loses_neither_bytes_nor_room() {
    let site = Site::empty();
    site.folder.disk("c", 24 * MIB);
    for data in ["a", "b"] {
        make(&site, "c", data, 4);
    }
    let mut loads = [Load::new("a", 21), Load::new("b", 22)];
    let neighbour = start(&site, "c", "b");
    loads[1].run_some(&site, 100);
    let mut random = Random::new(seed() ^ 23);
    let mut seen = Vec::new();
    for cycle in 0..cycles(14, 3) {
        let daemon = start(&site, "c", "a");
        loads[0].compare(&site, &daemon);
        let (_, before, _) = room(&site, "c", "a");
        loads[0].run_some(&site, 40);
        let size = if before > 4 { 2 + random.below(3) } else { before + 2 + random.below(6) };
        let command = resize("a", &format!("{size}M"));
        let mut asking = site.start_tool(&format!("{} {command}", env!("CARGO_BIN_EXE_dcd")));
        // A log takes longer to shrink than to grow.
        let most = if size < before { 400 } else { 60 };
        std::thread::sleep(Duration::from_millis(random.below(most)));
        daemon.kill();
        let _ = asking.wait();
        let between = room(&site, "c", "a").1;
        let daemon = start(&site, "c", "a");
        let (free, now, _) = room(&site, "c", "a");
        assert!([before, size].contains(&now), "{before} -> {size}: {now}, cut off at {between}");
        assert_eq!(free, 23 - 4 - now, "what it has not is free, {cycle}");
        assert!(segments(&site, "a") * 64 / 1024 + 1 >= now - 1, "and its log has all of it");
        seen.push((before, size, between, now));
        loads[0].compare(&site, &daemon);
        daemon.assert_no_panic();
        daemon.kill();
    }
    println!("before, asked, behind the kill, behind the start: {seen:?}");
    loads[1].compare(&site, &neighbour);
    neighbour.stop();
    let daemon = start(&site, "c", "a");
    loads[0].compare(&site, &daemon);
    daemon.stop();
}

#[test]
fn what_cannot_be_is_refused_and_nothing_is_written() {
    let site = Site::empty();
    site.folder.disk("c", 12 * MIB);
    for data in ["a", "b"] {
        make(&site, "c", data, 4);
    }
    let (a, b) = (start(&site, "c", "a"), start(&site, "c", "b"));
    let directory = || fs::read(site.path("c")).unwrap()[..MIB as usize].to_vec();
    let before = directory();
    for (size, error, hint) in [
        ("8M", "has no room: it has 4194304 now, and 3145728 more are free", "smaller first"),
        ("1T", "has no room", "smaller first"),
        ("4M", "as many segments as fit", ""),
        ("512k", "the smallest log needs", "a larger size"),
    ] {
        site.dcd(&resize("a", size)).fails(1, error, hint);
    }
    site.dcd("set mode=pass-through --control a.ctl").ok();
    site.dcd(&resize("a", "5M")).fails(1, "nothing is logged in this mode", "mode=write-back");
    site.dcd("set mode=write-back --control a.ctl").ok();
    assert!(directory() == before, "nothing was written");
    // All that is free, and then no more.
    assert_eq!(resized(&site, "b", "")["share_bytes"].as_u64(), Some(7 * MIB));
    site.dcd(&resize("b", "")).fails(1, "as many segments as fit", "another cache");
    site.dcd(&resize("a", "5M")).fails(1, "and 0 more are free", "smaller first");
    // Who is not there has no room that it could give.
    b.stop();
    assert_eq!(room(&site, "c", "b"), (0, 7, 1));
    a.stop();
    let line = format!(
        "serve --cache-disk c --data-disk a --nbd unix:a.nbd --control a.ctl --read-only {FLAGS}"
    );
    let daemon = site.start_line(&line).ready();
    let sum = sum_of_file(&site.path("c"));
    site.dcd(&resize("a", "2M")).fails(1, "read-only", "");
    assert!(sum_of_file(&site.path("c")) == sum);
    daemon.stop();
    // A disk that has grown has more.
    let longer = fs::File::options().write(true).open(site.path("c")).unwrap();
    longer.set_len(16 * MIB).unwrap();
    let a = start(&site, "c", "a");
    assert_eq!(resized(&site, "a", "7M")["share_bytes"].as_u64(), Some(7 * MIB));
    assert_eq!(room(&site, "c", "a"), (1, 7, 2));
    let words = site.dcd("inspect shares --cache-disk c").ok();
    assert!(words.contains("a, part 2"), "{words}");
    a.stop();
    // By its file, a share in two parts is nobody else's.
    let a = start(&site, "c", "a");
    site.dcd("create --cache-disk c --data-disk b --force").fails(1, "", "");
    site.dcd("serve --cache-disk c/a --data-disk b --nbd unix:x").fails(1, "locked", "");
    let listed = site.dcd("list --json").ok();
    assert!(listed.contains("a.nbd"), "{listed}");
    a.stop();
}

/// Below a loop device the bytes of its file are locked, too, and go from one to the other.
#[test]
fn room_moves_on_a_loop_device() {
    skip_without!("room_moves_on_a_loop_device", "root", "loop", "losetup");
    let site = Site::empty();
    site.folder.disk("backing", 13 * MIB);
    let device = site.run("losetup --find --show backing").trim().to_owned();
    let end = LoopEnd(device.clone());
    for data in ["a", "b"] {
        make(&site, &device, data, 6);
    }
    let mut loads = [Load::new("a", 51), Load::new("b", 52)];
    let mut daemons = ["a", "b"].map(|data| Some(start(&site, &device, data)));
    for (giver, taker) in [(0, 1), (1, 0), (1, 0), (0, 1)] {
        let names = ["a", "b"];
        beside(&site, &mut loads, || {
            let (_, has, _) = room(&site, &device, names[giver]);
            resized(&site, names[giver], &format!("{}M", has - 2));
            assert_eq!(room(&site, &device, names[giver]).0, 2);
            resized(&site, names[taker], "");
            assert_eq!(room(&site, &device, names[taker]).0, 0);
        });
        // What it has is locked anew, as many parts as there are.
        for (index, load) in loads.iter().enumerate() {
            daemons[index].take().unwrap().kill();
            let daemon = start(&site, &device, names[index]);
            load.compare(&site, &daemon);
            daemons[index] = Some(daemon);
        }
    }
    // Nor does anybody come from below.
    let line = format!("serve --cache-disk backing/a --data-disk a --nbd unix:x {FLAGS}");
    site.dcd(&line).fails(1, "", "");
    daemons.into_iter().flatten().for_each(Daemon::stop);
    drop(end);
}

struct LoopEnd(String);

impl Drop for LoopEnd {
    fn drop(&mut self) {
        let _ = std::process::Command::new("losetup").args(["-d", &self.0]).status();
    }
}

/// A start gives back what a change has left over, and nothing of a share as it was made.
#[test]
fn a_share_as_it_was_made_keeps_all_of_it() {
    let site = Site::empty();
    site.folder.disk("c", 64 * MIB);
    let data = ["d0", "d1", "d2", "m0", "m1", "m2"];
    for disk in data {
        site.folder.disk(disk, 8 * MIB);
    }
    fs::write(site.path("v.toml"), "extent = \"64k\"\n[[set]]\nlevel = 5\n").unwrap();
    let members = "--data-disk m0 --data-disk m1 --data-disk m2";
    for (name, disks, create) in [
        ("d0", "--data-disk d0", "--share 18M --segment-size 1M"),
        ("d1", "--data-disk d1", "--share 9M --segment-size 256k --read-area 3M"),
        ("d2", "--data-disk d2", "--share 3M --segment-size 64k --labelled"),
        ("v", members, "--share 19M --segment-size 128k --volume v.toml --name v"),
    ] {
        site.dcd(&format!("create --cache-disk c {disks} {create}")).ok();
        let before = room(&site, "c", name);
        for _ in 0..2 {
            let line = format!("serve --cache-disk c/{name} {disks} --nbd unix:n.nbd {FLAGS}");
            let daemon = site.start_line(&line).ready();
            assert_eq!(room(&site, "c", name), before, "{name}");
            daemon.stop();
        }
    }
}

/// A share on each of two disks: each has the room, and alone it has everything.
#[test]
fn shares_that_are_legs_get_room_on_all_disks() {
    let site = Site::empty();
    for disk in ["c", "e"] {
        site.folder.disk(disk, 16 * MIB);
        make(&site, disk, &format!("other-{disk}"), 2);
    }
    site.folder.disk("d", VOLUME);
    site.dcd("create --cache-disk c --cache-disk e --share 4M --segment-size 64k --data-disk d")
        .ok();
    // In the way on one of them.
    make(&site, "e", "behind", 2);
    let line = format!(
        "serve --cache-disk c --cache-disk e --data-disk d --nbd unix:d.nbd --control d.ctl {FLAGS}"
    );
    let daemon = site.start_line(&line).ready();
    let mut loads = [Load::new("d", 31)];
    site.dcd(&resize("d", "12M")).fails(1, "and 7340032 more are free", "smaller first");
    assert_eq!((room(&site, "c", "d").1, room(&site, "e", "d").1), (4, 4), "on neither");
    beside(&site, &mut loads, || {
        assert_eq!(resized(&site, "d", "8M")["share_bytes"].as_u64(), Some(8 * MIB));
    });
    assert_eq!((room(&site, "c", "d"), room(&site, "e", "d")), ((5, 8, 1), (3, 8, 2)));
    loads[0].run_some(&site, 200);
    daemon.kill();
    let daemon = site.start_line(&line).ready();
    loads[0].compare(&site, &daemon);
    beside(&site, &mut loads, || resized(&site, "d", "3M"));
    assert_eq!((room(&site, "c", "d"), room(&site, "e", "d")), ((10, 3, 1), (8, 3, 1)));
    daemon.assert_no_panic();
    daemon.stop();
    let daemon = site.start_line(&line).ready();
    loads[0].compare(&site, &daemon);
    daemon.stop();
}

/// Power cuts while room moves from one share to the other and back.
#[test]
fn power_cuts_lose_no_flushed_byte_while_room_moves() {
    skip_without!(
        "power_cuts_lose_no_flushed_byte_while_room_moves",
        "root",
        "fuse",
        "loop",
        "nbdfuse"
    );
    let site = Site::empty();
    for disk in ["d1", "d2"] {
        site.folder.disk(disk, VOLUME);
    }
    site.folder.disk("c", 13 * MIB);
    let mut disks = VolatileDisks::new(&site, &["c", "d1", "d2"]);
    let mut random = Random::new(seed() ^ 41);
    let mut loads = [Load::new("d1", 42), Load::new("d2", 43)];
    let mut sizes = Vec::new();
    for cut in 0..cycles(8, 20) {
        let devices = disks.devices(&site);
        if cut == 0 {
            for index in [1, 2] {
                site.dcd(&format!(
                    "create --cache-disk {} --share 6M --segment-size 64k --name s{index} --data-disk {}",
                    devices[0], devices[index]
                ))
                .ok();
            }
        }
        let mut daemons = Vec::new();
        for (load, index) in loads.iter_mut().zip([1, 2]) {
            let daemon = site
                .start_line(&format!(
                    "serve --cache-disk {}/s{index} --data-disk {} --nbd unix:d{index}.nbd --control d{index}.ctl \
                     --memory-lost {FLAGS}",
                    devices[0], devices[index]
                ))
                .ready();
            load.compare(&site, &daemon);
            load.run_some(&site, 20);
            daemons.push(daemon);
        }
        let has = [1, 2].map(|index| room(&site, &devices[0], &format!("s{index}")).1);
        let giver = usize::from(has[1] > has[0]);
        // Cuts between the two halves of a move may have left both with the least.
        let less = 2 + random.below((has[giver] - 2).max(1));
        let dcd = env!("CARGO_BIN_EXE_dcd");
        let (from, to) = (giver + 1, 2 - giver);
        fs::write(
            site.path("move.sh"),
            format!(
                "{dcd} {} && {dcd} {}\n",
                resize(&format!("d{from}"), &format!("{less}M")),
                resize(&format!("d{to}"), "")
            ),
        )
        .unwrap();
        let mut moving = site.start_tool("sh move.sh");
        random_instant(&mut random, Duration::from_millis(250));
        disks.cut(&mut random);
        daemons.into_iter().for_each(Daemon::kill);
        let _ = moving.wait();
        sizes.push(has);
        disks.forget_devices();
        for entry in fs::read_dir(site.path("")).unwrap().flatten() {
            if entry.file_name().to_string_lossy().ends_with(".segments") {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        site.unmount_all();
    }
    println!("sizes of both before each cut: {sizes:?}");
}
