//! A cache-disk on two legs, with the real binary: one fails, hangs, is taken out, comes back old,
//! is left out, is replaced; and disks that do not belong together are refused by name.

mod harness;

use std::os::unix::fs::FileExt;

use harness::model::{Mix, difference};
use harness::nbd::Client;
use harness::random::Random;
use harness::{Daemon, Site, Value, seed, until};

const VOLUME: u64 = 8 << 20;
/// The first leg, and the other one, which fails when it is told to.
const LEGS: &str = "--cache-disk faulty:e,control=faults";
const LAZY: &str = "--quiet --idle-max 1h --idle-min 1h";

fn site() -> Site {
    Site::with("4M", VOLUME, "--segment-size 64k --cache-disk e")
}

fn serve(site: &Site) -> Daemon {
    site.serve(&format!("{LEGS} {LAZY}"))
}

/// What a client has written, and flushed now and then.
struct Load {
    random: Random,
    mix: Mix,
    volume: Vec<u8>,
}

impl Load {
    fn new(salt: u64) -> Load {
        let mix =
            Mix { volume: VOLUME, sectors_max: 40, flush_every: 5, fua_every: 7, zero_every: 12 };
        Load { random: Random::new(seed() ^ salt), mix, volume: vec![0; VOLUME as usize] }
    }

    /// Nothing of it may fail.
    fn run(&mut self, site: &Site, ops: usize) {
        let mut client = Client::connect(&site.socket());
        for _ in 0..ops {
            let op = self.mix.op(&mut self.random);
            client.do_op(&op).unwrap_or_else(|error| panic!("{op:?}: {error:?}"));
            op.apply(&mut self.volume);
        }
        client.flush().unwrap();
    }

    /// The same in whole lines, as a volume wants it.
    fn run_in_lines(&mut self, site: &Site, ops: usize) {
        let mut client = Client::connect(&site.socket());
        for op in 0..ops as u64 {
            let line = (self.random.below(VOLUME / 4096) * 4096) as usize;
            let bytes = vec![self.random.below(256) as u8; 4096];
            match op % 7 {
                0 => client.write_fua(line as u64, &bytes).unwrap(),
                _ => client.write(line as u64, &bytes).unwrap(),
            }
            self.volume[line..line + 4096].copy_from_slice(&bytes);
        }
        client.flush().unwrap();
    }

    fn compare_front(&self, site: &Site, daemon: &Daemon) {
        let mut client = Client::connect(&site.socket());
        for (index, wanted) in self.volume.chunks(1 << 20).enumerate() {
            let found = client.read((index as u64) << 20, 1 << 20).unwrap();
            assert!(found == wanted, "MiB {index}: {}", daemon.log());
        }
    }

    fn compare(&self, site: &Site, daemon: &Daemon) {
        let found = Client::connect(&site.socket()).read_all().unwrap();
        assert_eq!(difference(&found, &self.volume), None, "{}", daemon.log());
    }
}

/// What is told of the legs, in the order of their disks.
fn told(site: &Site) -> Vec<Value> {
    let told = site.dcd("cache-disk status --control ctl --json").ok();
    let told: Value = serde_json::from_str(&told).unwrap();
    let mut legs = told["legs"].as_array().unwrap().clone();
    legs.sort_by_key(|leg| leg["disk"].as_str().unwrap_or("~").to_owned());
    legs
}

/// Whether something was written again that a leg could not read.
fn mended(site: &Site) -> bool {
    told(site).iter().any(|leg| leg["mended"].as_u64().unwrap() > 0)
}

/// Names and states of the legs, in the order of their disks.
fn legs(site: &Site) -> Vec<(String, String)> {
    let text = |leg: &Value, key: &str| leg[key].as_str().unwrap().to_owned();
    let legs = told(site);
    legs.iter().map(|leg| (text(leg, "leg"), text(leg, "state"))).collect()
}

fn states(site: &Site) -> Vec<String> {
    legs(site).into_iter().map(|(_, state)| state).collect()
}

fn all_in_sync(site: &Site) -> Option<()> {
    states(site).iter().all(|state| state == "in-sync").then_some(())
}

/// A leg that fails is done without: no request fails. After a kill it is filled by the next start,
/// and then holds everything alone.
#[test]
fn one_leg_may_fail_and_is_filled_again() {
    for (rules, salt) in [("write eio", 1), ("flush eio", 2), ("gone", 3), ("write enospc once", 4)]
    {
        let site = site();
        let mut load = Load::new(salt);
        let daemon = serve(&site);
        load.run(&site, 60);
        site.faults("faults", rules);
        until("the leg is out", || {
            load.run(&site, 5);
            (states(&site) == ["in-sync", "failed"]).then_some(())
        });
        load.run(&site, 60);
        daemon.kill();
        site.faults("faults", "");
        let daemon = serve(&site);
        load.compare(&site, &daemon);
        until("it is filled", || all_in_sync(&site));
        load.run(&site, 20);
        let (first, _) = legs(&site)[0].clone();
        daemon.kill();
        // The other, which was out, now has all of it.
        let daemon = site.serve_disks("e", "d", &format!("--without-leg {first} {LAZY}"));
        load.compare(&site, &daemon);
        daemon.assert_no_panic();
        daemon.stop();
        // The first has missed that, and is filled in its turn.
        let daemon = serve(&site);
        until("the first is filled", || all_in_sync(&site));
        load.compare(&site, &daemon);
        daemon.stop();
    }
}

/// One leg fails, and the other does not take the label that says so: nothing more is called done,
/// and all that was done is read (C22).
#[test]
fn a_leg_that_takes_no_label_is_read() {
    let site = site();
    let mut load = Load::new(12);
    let flags = "--cache-disk faulty:e,control=faults --quiet --idle-max 1h --idle-min 1h";
    let daemon = site.serve_disks("faulty:c,control=first", "d", flags);
    // All regions are marked: no label comes before it has to.
    load.run(&site, 300);
    site.faults("first", "write eio 4k-8k\nwrite eio 68k-72k\nread eio once");
    until("that is so", || {
        load.compare(&site, &daemon);
        mended(&site).then_some(())
    });
    assert_eq!(states(&site), ["in-sync", "in-sync"]);
    site.faults("faults", "write eio");
    let mut client = Client::connect(&site.socket());
    let same = load.volume[..4096].to_vec();
    until("nothing more is done", || client.write_fua(0, &same).is_err().then_some(()));
    assert!(client.write_fua(0, &same).is_err() && client.flush().is_err());
    load.compare(&site, &daemon);
    let (first, _) = legs(&site)[0].clone();
    site.dcd(&format!("cache-disk take-out {first} --control ctl")).fails(1, "last leg", "");
    daemon.assert_no_panic();
    daemon.kill();
    // Both are as they were: nothing of it is lost.
    for faults in ["faults", "first"] {
        site.faults(faults, "");
    }
    let daemon = serve(&site);
    load.compare(&site, &daemon);
    daemon.stop();
}

/// That somebody may take the disk away is only said when a start would do without it.
#[test]
fn a_leg_is_not_out_before_the_labels_say_so() {
    let site = site();
    let mut load = Load::new(13);
    let flags = "--cache-disk faulty:e,control=faults --quiet --idle-max 1h --idle-min 1h";
    let daemon = site.serve_disks("faulty:c,control=first", "d", flags);
    load.run(&site, 300);
    site.faults("first", "write eio 4k-8k\nwrite eio 68k-72k\nread eio once");
    until("that is so", || {
        load.compare(&site, &daemon);
        mended(&site).then_some(())
    });
    let (second, _) = legs(&site)[1].clone();
    site.dcd(&format!("cache-disk take-out {second} --control ctl")).fails(5, "I/O error", "");
    load.compare(&site, &daemon);
    daemon.kill();
    site.faults("first", "");
    let daemon = serve(&site);
    load.compare(&site, &daemon);
    daemon.stop();
}

/// A leg that hangs holds requests until its time is over, and fails none.
#[test]
fn a_leg_that_hangs_fails_nothing() {
    let site = site();
    let mut load = Load::new(5);
    let daemon = site.serve(&format!("{LEGS} {LAZY} --io-timeout 1s"));
    load.run(&site, 20);
    site.faults("faults", "write hang");
    until("the leg is out", || {
        load.run(&site, 5);
        (states(&site) == ["in-sync", "failed"]).then_some(())
    });
    load.run(&site, 20);
    load.compare(&site, &daemon);
    site.faults("faults", "");
    let (second, _) = legs(&site)[1].clone();
    site.dcd(&format!("cache-disk fill {second} --control ctl")).ok();
    assert_eq!(states(&site), ["in-sync", "in-sync"]);
    daemon.stop();
}

/// Taken out, the disk may go; what one leg cannot read the other does, and it is written again.
#[test]
fn taken_out_filled_and_mended() {
    let site = site();
    let mut load = Load::new(6);
    let daemon = serve(&site);
    load.run(&site, 60);
    let (first, _) = legs(&site)[0].clone();
    site.dcd(&format!("cache-disk take-out {first} --control ctl")).ok();
    load.run(&site, 20);
    assert_eq!(states(&site), ["taken-out", "in-sync"]);
    // dcd has let go of it.
    until("it is let go", || std::fs::File::open(site.path("c")).unwrap().try_lock().ok());
    let (second, _) = legs(&site)[1].clone();
    site.dcd(&format!("cache-disk take-out {second} --control ctl")).fails(
        1,
        "last leg in sync",
        "fill another first",
    );
    site.dcd(&format!("cache-disk fill {first} --control ctl")).fails(1, "let go", "add DISK");
    site.dcd("cache-disk add c --control ctl").ok();
    load.run(&site, 20);
    // Each read that fails on one leg is done by the other.
    site.faults("faults", "read eio");
    load.compare(&site, &daemon);
    site.faults("faults", "");
    daemon.stop();
    let daemon = serve(&site);
    load.compare(&site, &daemon);
    daemon.stop();
}

/// What one leg reads is not what was written there: its checksum says so, the other has it, and it
/// is written again.
#[test]
fn what_rots_on_one_leg_is_read_from_the_other() {
    let site = site();
    let mut load = Load::new(10);
    let daemon = serve(&site);
    load.run(&site, 80);
    let superblock = site.dcd("inspect superblock --cache-disk c --json").ok();
    let superblock: Value = serde_json::from_str(&superblock).unwrap();
    let from = superblock[0]["superblock"]["segments_offset"].as_u64().unwrap();
    let file = std::fs::File::options().write(true).open(site.path("e")).unwrap();
    let length = file.metadata().unwrap().len() - 4096 - from;
    file.write_all_at(&vec![0x5a; length as usize], from).unwrap();
    for _ in 0..4 {
        load.compare(&site, &daemon);
    }
    assert!(mended(&site), "{:?}", told(&site));
    assert_eq!(states(&site), ["in-sync", "in-sync"]);
    let status: Value =
        serde_json::from_str(&site.dcd("status --control ctl --json").ok()).unwrap();
    assert_eq!(status["poisoned_lines"], 0);
    daemon.stop();
}

/// A leg that is missing, an older copy, and two that each went on alone.
#[test]
fn who_may_be_believed() {
    let site = site();
    let mut load = Load::new(7);
    let daemon = serve(&site);
    load.run(&site, 60);
    let [(first, _), (second, _)] = <[_; 2]>::try_from(legs(&site)).unwrap();
    daemon.kill();
    // 1. One alone may lack what the other has.
    let start =
        format!("serve --data-disk d --nbd unix:sock --control ctl --memory-directory . {LAZY}");
    site.dcd(&format!("{start} --cache-disk c")).fails(1, &second, "--without-leg");
    let old = site.path("old");
    std::fs::copy(site.path("e"), &old).unwrap();
    // 2. Without it, because somebody says so; then the other is older.
    let daemon = site.serve(&format!("--without-leg {second} {LAZY}"));
    load.run(&site, 20);
    daemon.kill();
    site.dcd(&format!("{start} --cache-disk e")).fails(1, &first, "--without-leg");
    // 3. Alone as well: nobody can say which is right.
    let daemon =
        site.serve_disks("e", "d", &format!("--without-leg {first} --accept-damage {LAZY}"));
    daemon.kill();
    site.dcd(&format!("{start} --cache-disk e --cache-disk c")).fails(
        1,
        "used without the other",
        "--without-leg",
    );
    let daemon =
        site.serve(&format!("--cache-disk e --without-leg {second} --accept-damage {LAZY}"));
    assert_eq!(states(&site), ["in-sync", "out"]);
    daemon.stop();
    // 4. The same disk twice, by a copy.
    std::fs::copy(site.path("c"), &old).unwrap();
    site.dcd(&format!("{start} --cache-disk c --cache-disk old")).fails(
        1,
        "one of them is a copy",
        "",
    );
}

/// A disk that is not there, or cannot be read, keeps nothing from starting that the others may
/// start without; what they need is asked for by name.
#[test]
fn what_is_done_without_may_be_missing() {
    let site = site();
    let mut load = Load::new(14);
    let daemon = serve(&site);
    load.run(&site, 40);
    let [(first, _), (second, _)] = <[_; 2]>::try_from(legs(&site)).unwrap();
    daemon.kill();
    let away = site.path("away");
    std::fs::rename(site.path("e"), &away).unwrap();
    // 1. In sync: it may have what the other lacks.
    let start = format!(
        "serve --cache-disk c --cache-disk e --data-disk d --nbd unix:sock --memory-directory . \
         {LAZY}"
    );
    site.dcd(&start).fails(1, &second, "--without-leg");
    // 2. By force; that may stay in the settings of a service, and is not needed again.
    for flags in
        [format!("--without-leg {second}"), format!("--without-leg {second}"), String::new()]
    {
        let daemon = site.serve(&format!("{LEGS} {flags} {LAZY}"));
        load.compare(&site, &daemon);
        load.run(&site, 10);
        assert!(daemon.log().contains("on without it"), "{}", daemon.log());
        daemon.kill();
    }
    // 3. A service waits for its disks, but not for ever for this one.
    let daemon = site.serve(&format!("{LEGS} --wait {LAZY}"));
    load.compare(&site, &daemon);
    daemon.kill();
    // 4. It is there, with nothing in it.
    site.folder.disk("e", 0);
    let daemon = serve(&site);
    load.compare(&site, &daemon);
    load.run(&site, 10);
    daemon.kill();
    // 5. Back, it is left out as long as somebody says so, and then filled.
    std::fs::rename(&away, site.path("e")).unwrap();
    let daemon = site.serve(&format!("{LEGS} --without-leg {second} {LAZY}"));
    load.compare(&site, &daemon);
    assert_eq!(states(&site), ["in-sync", "out"]);
    daemon.kill();
    let daemon = serve(&site);
    until("it is filled", || all_in_sync(&site));
    load.run(&site, 10);
    daemon.stop();
    // 6. The one that is named first is not there.
    std::fs::remove_file(site.path("c")).unwrap();
    site.dcd(&start).fails(1, &first, "--without-leg");
    let daemon = site.serve(&format!("{LEGS} --without-leg {first} {LAZY}"));
    load.compare(&site, &daemon);
    daemon.assert_no_panic();
    daemon.stop();
}

/// A cache on one disk gets a second leg, and that takes the place of the first.
#[test]
fn a_blank_disk_becomes_a_leg() {
    let site = Site::with("4M", VOLUME, "--segment-size 64k");
    let mut load = Load::new(8);
    let daemon = site.serve(LAZY);
    load.run(&site, 60);
    site.dcd("cache-disk status --control ctl").fails(1, "one disk, without legs", "--new-leg");
    daemon.kill();
    // Wrong ones first: nothing is written.
    let before = std::fs::read(site.path("c")).unwrap();
    let start =
        format!("serve --cache-disk c --data-disk d --nbd unix:sock --memory-directory . {LAZY}");
    site.folder.disk("small", 1 << 20);
    site.dcd(&format!("{start} --new-leg small")).fails(
        1,
        "a leg of this cache needs",
        "of that size",
    );
    std::fs::write(site.path("full"), vec![7; 8 << 20]).unwrap();
    site.dcd(&format!("{start} --new-leg full")).fails(1, "is to become a leg", "dd if=/dev/zero");
    site.dcd(&format!("{start} --cache-disk full")).fails(1, "on one cache-disk", "--new-leg");
    site.folder.disk("n", 8 << 20);
    site.folder.disk("other", VOLUME / 2);
    let other = start.replace("--data-disk d", "--data-disk other");
    site.dcd(&format!("{other} --new-leg n")).fails(1, "", "");
    assert!(before == std::fs::read(site.path("c")).unwrap());
    assert!(std::fs::read(site.path("n")).unwrap().iter().all(|byte| *byte == 0));
    // The right one; and the flag may stay.
    for _ in 0..2 {
        let daemon = site.serve(&format!("--new-leg n {LAZY}"));
        load.run(&site, 20);
        until("it is filled", || all_in_sync(&site));
        daemon.stop();
    }
    let daemon = site.serve(&format!("--cache-disk n {LAZY}"));
    let [(first, _), _] = <[_; 2]>::try_from(legs(&site)).unwrap();
    site.dcd(&format!("cache-disk take-out {first} --control ctl")).ok();
    load.run(&site, 20);
    daemon.kill();
    std::fs::remove_file(site.path("c")).unwrap();
    let daemon = site.serve_disks("n", "d", LAZY);
    load.compare(&site, &daemon);
    daemon.stop();
    site.dcd("detach --cache-disk n --data-disk d").ok();
}

/// Disks become legs, and take the place of others, while clients write: no request fails, and what
/// is there is what a start finds.
#[test]
fn disks_come_and_go_while_it_serves() {
    let site = site();
    let mut load = Load::new(15);
    let daemon = serve(&site);
    load.run(&site, 40);
    // 1. Wrong ones first: nothing is written to them, and they are let go.
    site.folder.disk("small", 1 << 20);
    site.dcd("cache-disk add small --control ctl").fails(1, "a leg of this cache needs", "size");
    std::fs::write(site.path("full"), vec![7; 8 << 20]).unwrap();
    site.dcd("cache-disk add full --control ctl").fails(1, "is to become a leg", "dd if=/dev/zero");
    assert!(std::fs::read(site.path("full")).unwrap() == vec![7; 8 << 20]);
    std::fs::copy(site.path("c"), site.path("copy")).unwrap();
    site.dcd("cache-disk add copy --control ctl").fails(1, "it is a copy of a leg", "blank");
    site.dcd("cache-disk add d --control ctl").fails(1, "locked by another program", "");
    site.dcd("cache-disk add nothing --control ctl").fails(1, "does not exist", "");
    let wrong = "5445954e-c91c-0f11-3e8e-be4ba8e93502";
    site.folder.disk("n", 8 << 20);
    let replace = format!("cache-disk replace {wrong} n --control ctl");
    site.dcd(&replace).fails(1, "is not there", "cache-disk status");
    for name in ["small", "full", "copy", "n"] {
        let file = std::fs::File::open(site.path(name)).unwrap();
        file.try_lock().unwrap_or_else(|error| panic!("{name} is still held: {error}"));
    }
    assert_eq!(states(&site), ["in-sync", "in-sync"]);
    // 2. One more, under load; it may fail as any other.
    site.dcd("cache-disk add faulty:n,control=faults-of-n --no-wait --control ctl").ok();
    until("it is filled", || {
        load.run(&site, 5);
        (states(&site) == ["in-sync"; 3]).then_some(())
    });
    site.faults("faults-of-n", "write eio");
    until("it is out", || {
        load.run(&site, 5);
        states(&site).contains(&"failed".to_owned()).then_some(())
    });
    // 3. The second leg is replaced.
    let of_e = |leg: &&Value| leg["disk"] == "e";
    let second = told(&site).iter().find(of_e).unwrap()["leg"].as_str().unwrap().to_owned();
    site.folder.disk("m", 8 << 20);
    let said = site.dcd(&format!("cache-disk replace {second} m --control ctl")).ok();
    assert!(said.contains("may be unplugged") && said.contains("--cache-disk"), "{said}");
    load.run(&site, 20);
    // What was let go, and is used for something else, is not taken for the leg that it was.
    until("it is let go", || std::fs::File::open(site.path("e")).unwrap().try_lock().ok());
    let mut table = [0; 512];
    table[446..462].copy_from_slice(&[0, 0, 2, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0]);
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    let used = std::fs::File::options().write(true).open(site.path("e")).unwrap();
    used.write_all_at(&table, 0).unwrap();
    used.write_all_at(b"something else", 1 << 20).unwrap();
    drop(used);
    let before = std::fs::read(site.path("e")).unwrap();
    site.dcd("cache-disk add e --control ctl").fails(1, "is to become a leg", "dd if=/dev/zero");
    assert!(std::fs::read(site.path("e")).unwrap() == before);
    let named = site.status()["cache_disk"].as_str().unwrap().to_owned();
    assert!(named.contains("/m") && !named.contains("e,"), "{named}");
    // Nor a member of an md, whose mark takes the place of one copy of the label.
    std::fs::copy(site.path("c"), site.path("md")).unwrap();
    let used = std::fs::File::options().write(true).open(site.path("md")).unwrap();
    used.write_all_at(&[0xfc, 0x4e, 0x2b, 0xa9], 4096).unwrap();
    site.dcd("cache-disk add md --control ctl").fails(1, "RAID", "dd if=/dev/zero");
    std::fs::remove_file(site.path("md")).unwrap();
    // Nor by a start.
    daemon.kill();
    let daemon = site.serve(&format!("--cache-disk m --cache-disk e {LAZY}"));
    assert!(daemon.log().contains("is to become a leg"), "{}", daemon.log());
    assert!(states(&site).contains(&"out".to_owned()));
    load.run(&site, 20);
    assert!(std::fs::read(site.path("e")).unwrap() == before);
    daemon.kill();
    std::fs::remove_file(site.path("e")).unwrap();
    std::fs::remove_file(site.path("n")).unwrap();
    let daemon = site.serve(&format!("--cache-disk m {LAZY}"));
    load.compare(&site, &daemon);
    assert_eq!(states(&site), ["in-sync"; 2]);
    daemon.assert_no_panic();
    daemon.stop();
}

/// A leg that was not there when dcd was started comes back while it serves, unless it was used
/// without the others.
#[test]
fn a_leg_comes_back_while_it_serves() {
    let site = site();
    let mut load = Load::new(16);
    let daemon = serve(&site);
    load.run(&site, 40);
    let [(first, _), (second, _)] = <[_; 2]>::try_from(legs(&site)).unwrap();
    daemon.kill();
    let alone = format!("--without-leg {second} {LAZY}");
    let daemon = site.serve(&alone);
    load.run(&site, 20);
    assert_eq!(states(&site), ["in-sync", "missing"]);
    site.dcd("cache-disk add e --control ctl").ok();
    assert_eq!(states(&site), ["in-sync"; 2]);
    load.run(&site, 20);
    daemon.kill();
    let daemon = serve(&site);
    load.compare(&site, &daemon);
    let (second, _) = legs(&site)[1].clone();
    daemon.kill();
    // Each alone.
    site.serve_disks("e", "d", &format!("--without-leg {first} --accept-damage {LAZY}")).kill();
    let daemon = site.serve(&format!("--without-leg {second} --accept-damage {LAZY}"));
    let before = std::fs::read(site.path("e")).unwrap();
    site.dcd("cache-disk add e --control ctl").fails(1, "used without the others", "inspect leg");
    assert!(std::fs::read(site.path("e")).unwrap() == before);
    daemon.assert_no_panic();
    daemon.stop();
}

/// With the cache-disk go the tables of a volume: each leg alone has them.
#[test]
fn a_volume_outlives_each_leg() {
    let site = Site::empty();
    for member in ["m0", "m1"] {
        site.folder.disk(member, 20 << 20);
    }
    std::fs::write(site.path("v.toml"), "extent = \"64k\"\n[[set]]\nlevel = 1\n").unwrap();
    site.dcd(
        "create --cache-disk c --cache-disk e --cache-size 16M --segment-size 64k --volume v.toml --data-disk m0 --data-disk m1",
    )
    .ok();
    let members = "--data-disk m0 --data-disk m1";
    let start = |cache: &str| {
        site.start_line(&format!(
            "serve {cache} {members} --nbd unix:sock --control ctl --memory-directory . --quiet --idle-max 5ms"
        ))
        .ready()
    };
    let mut load = Load::new(9);
    let both = format!("--cache-disk c {LEGS}");
    let daemon = start(&both);
    load.run_in_lines(&site, 100);
    site.faults("faults", "write eio");
    until("the leg is out", || {
        load.run_in_lines(&site, 5);
        (states(&site) == ["in-sync", "failed"]).then_some(())
    });
    load.run_in_lines(&site, 60);
    daemon.kill();
    site.faults("faults", "");
    let daemon = start(&both);
    load.compare_front(&site, &daemon);
    until("it is filled", || all_in_sync(&site));
    let (first, _) = legs(&site)[0].clone();
    load.run_in_lines(&site, 30);
    daemon.kill();
    std::fs::remove_file(site.path("c")).unwrap();
    let daemon = start(&format!("--cache-disk e --without-leg {first}"));
    load.compare_front(&site, &daemon);
    site.dcd("drain --control ctl").ok();
    site.dcd("volume scrub --control ctl").ok();
    load.compare_front(&site, &daemon);
    daemon.assert_no_panic();
    daemon.stop();
}

/// Whether a cache may be dirty is what the legs say that a start would believe, and not what an
/// older one says that is named first. No leg is wiped alone.
#[test]
fn an_older_leg_does_not_speak_for_the_cache() {
    let site = site();
    let mut load = Load::new(11);
    let daemon = serve(&site);
    load.run(&site, 20);
    daemon.stop();
    site.dcd("detach --cache-disk c --cache-disk e --data-disk d").ok();
    std::fs::copy(site.path("c"), site.path("old")).unwrap();
    let daemon = serve(&site);
    let (first, _) = legs(&site)[0].clone();
    daemon.kill();
    let daemon = site.serve_disks("e", "d", &format!("--without-leg {first} {LAZY}"));
    load.run(&site, 20);
    daemon.kill();

    let folder = site.folder.path("etc");
    std::fs::create_dir_all(folder.join("none")).unwrap();
    let dirty = |disks: &[&str]| {
        let names: Vec<String> = disks.iter().map(|name| site.path(name)).map(quoted).collect();
        let data_disk = quoted(site.path("d"));
        let text = format!("cache-disk = [{}]\ndata-disk = {data_disk}\n", names.join(", "));
        std::fs::write(folder.join("x.toml"), text).unwrap();
        let told = site.dcd("probe --all --json --root etc/none --configurations etc");
        assert_eq!(told.code, Some(1), "{}", told.stderr);
        let told: Value = serde_json::from_str(&told.stdout).unwrap();
        let why = told["caches"][0]["why"].as_str().unwrap().to_owned();
        (told["caches"][0]["state"].as_str().unwrap().to_owned(), why)
    };
    let what_is_known = dirty(&["old", "e"]);
    assert_eq!(what_is_known.0, "attached", "{what_is_known:?}");
    let device = site.dcd("probe old --configurations etc").ok();
    assert!(device.contains("nowhere else"), "{device}");
    let what_is_known = dirty(&["old"]);
    assert_eq!(what_is_known.0, "unknown", "{what_is_known:?}");
    assert!(what_is_known.1.contains("lacks a leg"), "{what_is_known:?}");
}

/// A fill is as slow as somebody wants it, until somebody wants it faster.
#[test]
fn a_fill_has_a_rate() {
    let site = site();
    let mut load = Load::new(20);
    let daemon = site.serve(&format!("{LEGS} {LAZY} --fill-rate 1M"));
    load.run(&site, 20);
    site.folder.disk("n", 8 << 20);
    let begun = std::time::Instant::now();
    site.dcd("cache-disk add n --control ctl").ok();
    // Four regions of 1 MiB: the first goes at once.
    assert!(begun.elapsed() > std::time::Duration::from_millis(2500), "{:?}", begun.elapsed());
    site.dcd("set fill-rate=1k --control ctl").ok();
    site.folder.disk("m", 8 << 20);
    site.dcd("cache-disk add m --no-wait --control ctl").ok();
    load.run(&site, 20);
    assert!(states(&site).contains(&"filling".to_owned()));
    site.dcd("set fill-rate=0 --control ctl").ok();
    until("it is filled", || all_in_sync(&site));
    load.compare(&site, &daemon);
    daemon.stop();
}

/// Whoever says that he adds a disk and then hands over none, or what is none, is told so; the
/// daemon goes on.
#[test]
fn what_is_handed_over_is_looked_at() {
    use std::io::{BufRead, BufReader, Write};
    use std::os::fd::{AsFd, BorrowedFd};
    let site = site();
    let daemon = serve(&site);
    let add = |descriptors: &[BorrowedFd<'_>]| {
        let mut control = std::os::unix::net::UnixStream::connect(site.path("ctl")).unwrap();
        control.write_all(b"{\"legs\":{\"add\":{\"disk\":\"x\"}}}\n").unwrap();
        let mut reader = BufReader::new(control.try_clone().unwrap());
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(line.contains("descriptors"), "{line}");
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(40))];
        let mut rights = rustix::net::SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            rights.push(rustix::net::SendAncillaryMessage::ScmRights(descriptors));
        }
        let flags = rustix::net::SendFlags::NOSIGNAL;
        let byte = [std::io::IoSlice::new(b"d")];
        rustix::net::sendmsg(&control, &byte, &mut rights, flags).unwrap();
        line.clear();
        let _ = reader.read_line(&mut line);
        line
    };
    let pipe = std::io::pipe().unwrap();
    let read_only = std::fs::File::open(site.path("d")).unwrap();
    site.folder.disk("short", 8 << 10);
    site.folder.disk("odd", 100);
    let open =
        |name: &str| std::fs::File::options().read(true).write(true).open(site.path(name)).unwrap();
    let (short, odd) = (open("short"), open("odd"));
    for descriptors in [
        vec![],
        vec![pipe.0.as_fd()],
        vec![pipe.1.as_fd()],
        vec![read_only.as_fd()],
        vec![short.as_fd()],
        vec![odd.as_fd()],
    ] {
        let answer = add(&descriptors);
        assert!(answer.contains("bad-leg") && answer.contains("\"ok\":false"), "{answer}");
    }
    // More than it takes: it hangs up.
    assert_eq!(add(&[short.as_fd(); 40]), "");
    assert_eq!(states(&site), ["in-sync"; 2]);
    daemon.assert_no_panic();
    daemon.stop();
}

/// All legs are wiped, also one that has missed the end, and none that may hold what is nowhere
/// else.
#[test]
fn all_legs_are_wiped() {
    let is_zero = |site: &Site, name: &str| {
        std::fs::read(site.path(name)).unwrap().iter().all(|byte| *byte == 0)
    };
    let detach = "detach --cache-disk c --cache-disk e --data-disk d --memory-directory . --wipe";
    // 1. By a daemon, which has given one up; and without one.
    for by_daemon in [true, false] {
        let site = site();
        let mut load = Load::new(17);
        let daemon = serve(&site);
        load.run(&site, 20);
        site.faults("faults", "gone");
        until("it is out", || {
            load.run(&site, 2);
            (states(&site) == ["in-sync", "failed"]).then_some(())
        });
        let said = if by_daemon {
            let said = site.dcd("detach --wipe --force --control ctl").ok();
            drop(daemon);
            said
        } else {
            daemon.kill();
            site.dcd(detach).ok()
        };
        assert_eq!(said.matches("wiped: ").count(), 2, "{said}");
        assert!(is_zero(&site, "c") && is_zero(&site, "e"));
        assert!(load.volume == std::fs::read(site.path("d")).unwrap());
    }
    // A wipe of an older one that was ended is gone on with.
    let site = self::site();
    let mut load = Load::new(19);
    let daemon = serve(&site);
    load.run(&site, 20);
    let (second, _) = legs(&site)[1].clone();
    daemon.kill();
    let daemon = site.serve(&format!("--without-leg {second} {LAZY}"));
    load.run(&site, 20);
    daemon.stop();
    site.dcd("detach --cache-disk c --data-disk d --memory-directory .").ok();
    let older = std::fs::File::options().write(true).open(site.path("e")).unwrap();
    older.write_all_at(&[0; 56 << 10], 8 << 10).unwrap();
    older.write_all_at(&vec![0; 1 << 20], 72 << 10).unwrap();
    drop(older);
    let said = site.dcd(detach).ok();
    assert!(said.matches("wiped: ").count() == 2 && is_zero(&site, "e"), "{said}");
    // 2. One was used without the other behind the detach, and is not wiped.
    let site = self::site();
    let mut load = Load::new(18);
    let daemon = serve(&site);
    load.run(&site, 20);
    let [(first, _), (second, _)] = <[_; 2]>::try_from(legs(&site)).unwrap();
    daemon.kill();
    let daemon = site.serve(&format!("--without-leg {second} {LAZY}"));
    load.run(&site, 20);
    daemon.stop();
    site.dcd("detach --cache-disk c --data-disk d --memory-directory .").ok();
    let forced =
        format!("--without-leg {first} --accept-damage --trust-disks --memory-lost {LAZY}");
    let daemon = site.serve_disks("e", "d", &forced);
    load.run(&site, 5);
    daemon.kill();
    let before = std::fs::read(site.path("e")).unwrap();
    let refused = site.dcd(detach);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(std::fs::read(site.path("e")).unwrap() == before && !is_zero(&site, "c"));
}

fn quoted(path: std::path::PathBuf) -> String {
    format!("{:?}", path.display().to_string())
}

#[test]
fn what_cannot_be_made_is_refused() {
    let site = Site::empty();
    site.folder.disk("d", VOLUME);
    let create = "create --cache-size 4M --segment-size 64k --data-disk d --cache-disk";
    site.dcd(&format!("{create} a --cache-disk a")).fails(1, "a", "two disks");
    site.dcd(&format!("{create} a --cache-disk b --labelled")).fails(1, "labelled", "--labelled");
    site.dcd(&format!("{create} 1 --cache-disk 2 --cache-disk 3 --cache-disk 4 --cache-disk 5"))
        .fails(1, "at most 4 legs", "fewer");
    assert!(!site.path("a").exists() && !site.path("1").exists());
}

fn site_with_witness() -> Site {
    Site::with("4M", VOLUME, "--segment-size 64k --cache-disk e --witness w")
}

/// Name and state of the witness.
fn witness(site: &Site) -> (String, String) {
    let told = site.dcd("cache-disk status --control ctl --json").ok();
    let told: Value = serde_json::from_str(&told).unwrap();
    let text = |key: &str| told["witness"][key].as_str().unwrap().to_owned();
    (text("witness"), text("state"))
}

fn votes(site: &Site) -> Option<()> {
    (witness(site).1 == "votes").then_some(())
}

/// With the witness a start with one leg of two needs nobody; a stale leg is refused with it, and
/// with one that was away meanwhile.
#[test]
fn one_leg_and_the_witness_start_by_themselves() {
    let site = site_with_witness();
    let mut load = Load::new(21);
    let flags = format!("{LEGS} --witness w {LAZY}");
    let daemon = site.serve(&flags);
    assert_eq!(votes(&site), Some(()));
    load.run(&site, 60);
    let [(first, _), (second, _)] = <[_; 2]>::try_from(legs(&site)).unwrap();
    let (name, _) = witness(&site);
    daemon.kill();
    let label = site.dcd("inspect leg --cache-disk w --json").ok();
    assert!(label.contains("\"witness\"") && label.contains(&second), "{label}");

    // 1. One is away. Without the witness too, both have to be done without by name.
    let away = site.path("away");
    std::fs::rename(site.path("e"), &away).unwrap();
    let start = format!("serve --data-disk d --nbd unix:sock --memory-directory . {LAZY}");
    site.dcd(&format!("{start} --cache-disk c")).fails(1, &name, "--witness");
    site.dcd(&format!("{start} --cache-disk c --without-leg {second}")).fails(1, &name, "");
    let daemon = site.serve(&flags);
    load.compare(&site, &daemon);
    load.run(&site, 20);
    assert!(daemon.log().contains("as the witness says"), "{}", daemon.log());
    daemon.kill();

    // 2. The other comes back alone: the witness knows that it is stale.
    std::fs::rename(&away, site.path("e")).unwrap();
    site.dcd(&format!("{start} --cache-disk e --witness w")).fails(1, &first, "");
    let daemon = site.serve(&flags);
    until("it is filled", || all_in_sync(&site));
    load.compare(&site, &daemon);
    daemon.kill();

    // 3. The witness is away, and a leg is taken out: what the witness knows is nothing any more.
    std::fs::rename(site.path("w"), &away).unwrap();
    let daemon = site.serve(&flags);
    assert_eq!(witness(&site).1, "missing");
    load.run(&site, 20);
    site.dcd(&format!("cache-disk take-out {second} --control ctl")).ok();
    load.run(&site, 20);
    daemon.kill();
    std::fs::rename(&away, site.path("w")).unwrap();
    site.dcd(&format!("{start} --cache-disk e --witness w")).fails(1, &first, "");
    let daemon = site.serve(&flags);
    until("both are back", || all_in_sync(&site).and(votes(&site)));
    load.compare(&site, &daemon);
    daemon.assert_no_panic();
    daemon.stop();
}

/// A witness that fails costs nothing, and has a say again when it answers; another takes its place
/// while dcd serves.
#[test]
fn a_witness_fails_goes_and_comes() {
    let site = site_with_witness();
    let mut load = Load::new(22);
    let daemon = site.serve(&format!("{LEGS} --witness faulty:w,control=of-w {LAZY}"));
    load.run(&site, 20);
    let (name, _) = witness(&site);
    // 1. Its next label is that of a leg that joins.
    site.faults("of-w", "write eio");
    site.folder.disk("n", 8 << 20);
    site.dcd("cache-disk add n --control ctl").ok();
    until("it is done without", || (witness(&site).1 == "failed").then_some(()));
    load.run(&site, 20);
    until("all legs count", || all_in_sync(&site));
    assert!(site.dcd("status --control ctl").ok().contains("failed"));
    site.faults("of-w", "");
    site.dcd(&format!("cache-disk fill {name} --no-wait --control ctl")).ok();
    until("it is back", || votes(&site));
    // 2. Another one.
    site.dcd("cache-disk add-witness other --control ctl").fails(1, "a witness already", "");
    assert!(!site.path("other").exists(), "refused, and left a file");
    std::fs::write(site.path("other"), vec![0; 80 << 10]).unwrap();
    site.dcd("cache-disk add-witness other --control ctl").fails(1, "a witness already", "");
    assert!(site.path("other").exists(), "it was there before");
    site.dcd("cache-disk remove-witness --control ctl").ok();
    assert_eq!(witness(&site).1, "taken-out");
    std::fs::write(site.path("full"), vec![7; 80 << 10]).unwrap();
    site.dcd("cache-disk add-witness full --control ctl").fails(
        1,
        "full is to become the witness",
        "dd if=",
    );
    assert!(std::fs::read(site.path("full")).unwrap() == vec![7; 80 << 10]);
    site.dcd("cache-disk add-witness new --control ctl").ok();
    until("the new one has a say", || votes(&site));
    load.run(&site, 20);
    daemon.kill();
    for away in ["e", "n", "w"] {
        std::fs::remove_file(site.path(away)).unwrap();
    }
    let daemon = site.serve(&format!("--witness new {LAZY}"));
    load.compare(&site, &daemon);
    daemon.assert_no_panic();
    daemon.stop();
}

#[test]
fn a_witness_of_nothing_is_refused() {
    let site = Site::with("4M", VOLUME, "--segment-size 64k");
    let start = format!("serve --data-disk d --nbd unix:sock --memory-directory . {LAZY}");
    site.folder.disk("w", 72 << 10);
    site.dcd(&format!("{start} --cache-disk c --witness w")).fails(1, "one disk", "--new-leg");
    site.folder.disk("d2", VOLUME);
    site.dcd("create --cache-disk x --cache-size 4M --data-disk d2 --witness y")
        .fails(1, "one", "");
    assert!(!site.path("x").exists() && !site.path("y").exists());
    let site = site_with_witness();
    // A leg is no witness, nor the other way round.
    site.dcd(&format!("{start} --cache-disk c --witness e")).fails(1, "it is leg", "--witness");
    site.dcd(&format!("{start} --cache-disk c --cache-disk w")).fails(1, "it is the witness", "");
    site.folder.disk("small", 64 << 10);
    site.dcd(&format!("{start} --cache-disk c --cache-disk e --witness small"))
        .fails(1, "needs", "");
}

/// What is wrong with a leg names the disk that was given, not only its place or its UUID.
#[test]
fn a_leg_that_does_not_fit_is_named_by_its_disk() {
    let site = site();
    let serve = "serve --data-disk d --nbd unix:sock --memory-directory . --cache-disk c";
    site.folder.disk("blank", 4 << 20);
    site.dcd(&format!("{serve} --cache-disk blank")).fails(
        1,
        "blank has no label of a leg that can be read",
        "--new-leg blank",
    );
    std::fs::copy(site.path("e"), site.path("copy")).unwrap();
    site.dcd(&format!("{serve} --cache-disk e --cache-disk copy")).fails(
        1,
        "e and copy are both leg",
        "the original",
    );
    site.folder.disk("d2", VOLUME);
    site.dcd(
        "create --cache-size 4M --segment-size 64k --cache-disk x --cache-disk y --data-disk d2",
    )
    .ok();
    site.dcd(&format!("{serve} --cache-disk x")).fails(1, "x belongs to cache", "leave x out");
    // Each has gone on without the other.
    for (name, other) in [("c", "e"), ("e", "c")] {
        std::fs::rename(site.path(other), site.path("kept")).unwrap();
        let told = site.dcd(&format!("inspect leg --cache-disk {name} --json")).ok();
        let label = serde_json::from_str::<Value>(&told).unwrap()[0]["label"].take();
        let members = label["members"].as_array().unwrap();
        let without = members.iter().find(|member| **member != label["leg"]).unwrap();
        let without = without.as_str().unwrap();
        let line = format!(
            "serve --data-disk d --nbd unix:sock --control ctl --memory-directory . --trust-disks \
             --cache-disk {name} --without-leg {without} {LAZY}"
        );
        site.start_line(&line).ready().stop();
        std::fs::rename(site.path("kept"), site.path(other)).unwrap();
    }
    let said = site.dcd(&format!("{serve} --cache-disk e --trust-disks")).stderr;
    assert!(said.contains(" (c) and ") && said.contains(" (e) have each been used"), "{said}");
}

/// A disk of the cache is no witness of it, under whatever name; that is said instead of that
/// somebody has locked it, and before a file is made.
#[test]
fn a_disk_of_the_cache_is_not_its_witness() {
    let site = Site::with("4M", VOLUME, "--segment-size 64k --cache-disk e");
    let text = "cannot be the witness: it is the";
    let create = "create --cache-size 4M --cache-disk x --cache-disk y --data-disk d2 --witness";
    site.folder.disk("d2", VOLUME);
    std::fs::hard_link(site.path("c"), site.path("hard")).unwrap();
    std::fs::hard_link(site.path("d2"), site.path("hard2")).unwrap();
    for name in ["x", "./y", "d2", "hard2"] {
        site.dcd(&format!("{create} {name}")).fails(1, text, "a small file of its own");
        assert!(!site.path("x").exists() && !site.path("y").exists());
    }
    site.dcd("create --cache-size 4M --cache-disk x --cache-disk ./x --data-disk d2").fails(
        1,
        "x and ./x are the same disk",
        "two disks",
    );
    let disks = "--cache-disk c --cache-disk e --data-disk d --memory-directory .";
    for name in ["c", "hard", "e", "d"] {
        let serve = format!("serve {disks} --nbd unix:sock --witness {name}");
        site.dcd(&serve).fails(1, text, "a small file of its own");
        site.dcd(&format!("detach {disks} --witness {name}")).fails(1, text, "");
    }
    let daemon = serve(&site);
    for name in ["c", "hard", "e", "d"] {
        site.dcd(&format!("cache-disk add-witness {name} --control ctl")).fails(1, text, "");
    }
    site.dcd("cache-disk add-witness w --control ctl").ok();
    daemon.assert_no_panic();
    daemon.stop();
    let serve = format!("serve {disks} --nbd unix:sock --witness w --nvram w");
    let refused = site.dcd(&serve);
    assert!(refused.stderr.contains("the same disk is given twice: w"), "{}", refused.stderr);
}

/// A leg is pulled while dcd serves, which is killed; with the witness a start waits for no person,
/// and the leg that comes back is refused by name. An older copy of the witness with both legs
/// costs nothing.
#[test]
fn a_leg_is_pulled_and_nobody_is_asked() {
    let site = site_with_witness();
    let mut load = Load::new(23);
    let flags = format!("{LEGS} --witness w --wait {LAZY}");
    let daemon = site.serve(&flags);
    load.run(&site, 40);
    let [(first, _), (second, _)] = <[_; 2]>::try_from(legs(&site)).unwrap();
    std::fs::copy(site.path("w"), site.path("older")).unwrap();
    // 1. It is pulled; nobody sees that. What is answered then only the other has.
    site.faults("faults", "gone");
    until("the leg is out", || {
        load.run(&site, 5);
        (states(&site) == ["in-sync", "failed"]).then_some(())
    });
    load.run(&site, 40);
    daemon.kill();
    let pulled = site.path("pulled");
    std::fs::rename(site.path("e"), &pulled).unwrap();
    site.faults("faults", "");
    let daemon = site.serve(&flags);
    load.compare(&site, &daemon);
    daemon.kill();
    // 2. Back, alone with the witness, it is refused, and the one that is wanted is named.
    std::fs::rename(&pulled, site.path("e")).unwrap();
    let before = ["e", "w"].map(|name| std::fs::read(site.path(name)).unwrap());
    let alone = "serve --data-disk d --nbd unix:sock --memory-directory . --cache-disk e --witness";
    site.dcd(&format!("{alone} w {LAZY}")).fails(1, &first, "--cache-disk");
    assert!(before == ["e", "w"].map(|name| std::fs::read(site.path(name)).unwrap()));
    let daemon = site.serve(&flags);
    until("it is filled", || all_in_sync(&site));
    load.run(&site, 20);
    // 3. Both are in sync, and then the power fails with one of them: not one that was put out
    //    before, but one that counted.
    daemon.kill();
    std::fs::rename(site.path("c"), &pulled).unwrap();
    let daemon = site.serve(&flags);
    load.compare(&site, &daemon);
    load.run(&site, 20);
    assert!(daemon.log().contains("as the witness says"), "{}", daemon.log());
    daemon.kill();
    std::fs::rename(&pulled, site.path("c")).unwrap();
    let alone = alone.replace("--cache-disk e", "--cache-disk c");
    site.dcd(&format!("{alone} w {LAZY}")).fails(1, &second, "--cache-disk");
    // 4. An older copy of the witness has no word, and gets its label again.
    let daemon = site.serve(&flags);
    until("it is filled", || all_in_sync(&site));
    load.run(&site, 20);
    daemon.kill();
    std::fs::rename(site.path("older"), site.path("w")).unwrap();
    site.dcd(&format!("{alone} w {LAZY}")).fails(1, &second, "--without-leg");
    let daemon = site.serve(&flags);
    until("it has a say", || votes(&site));
    load.compare(&site, &daemon);
    daemon.assert_no_panic();
    daemon.stop();
}

/// A witness that is damaged, another's, in use or nowhere is told of, and nothing is written.
#[test]
fn a_witness_that_is_not_in_order_is_told_of() {
    let site = site_with_witness();
    let mut load = Load::new(24);
    let start = |site: &Site, cache: &str, more: &str| {
        site.dcd(&format!(
            "serve {cache} --data-disk d --nbd unix:sock --memory-directory . {more} {LAZY}"
        ))
    };
    let both = "--cache-disk c --cache-disk e";
    // 1. It is looked at; and told where it is.
    let said = site.dcd("check --cache-disk w").ok();
    assert!(said.contains("2 of 2 valid") && said.contains("healthy"), "{said}");
    assert!(site.dcd("check --cache-disk c").ok().contains("have the witness"));
    let daemon = site.serve(&format!("--cache-disk e --witness w {LAZY}"));
    load.run(&site, 10);
    let said = site.dcd("status --control ctl").ok();
    assert!(said.contains("witness") && said.contains("has a say"), "{said}");
    assert!(daemon.log().contains("on the same disk as"), "{}", daemon.log());
    // 2. Another cache, and another daemon, get nothing of it while it is in use, nor later.
    let other = site_with_witness();
    let witness = site.path("w").display().to_string();
    start(&other, both, &format!("--witness {witness}")).fails(1, "w", "");
    daemon.kill();
    let bytes = |name: &str| std::fs::read(site.path(name)).unwrap();
    let before = bytes("w");
    start(&other, both, &format!("--witness {witness}")).fails(1, "the witness is that of", "none");
    // 3. One copy damaged is told by check, and mended by a start; both are refused.
    let file = std::fs::File::options().write(true).open(site.path("w")).unwrap();
    file.write_all_at(&[0x5a; 64], 4096 + 200).unwrap();
    site.dcd("check --cache-disk w").fails(4, "1 problem", "");
    file.write_all_at(&[0x5a; 64], (68 << 10) + 200).unwrap();
    let damaged = bytes("w");
    start(&site, both, "--witness w").fails(1, "neither copy of its label", "add-witness");
    start(&site, "--cache-disk c", "--witness w").fails(1, "neither copy", "without --witness");
    assert!(bytes("w") == damaged && before != damaged);
    file.write_all_at(&before[4096..8192], 4096).unwrap();
    file.write_all_at(&[b'a'; 4096], 0).unwrap();
    start(&site, both, "--witness w").fails(
        1,
        "w is given as the witness, and looks like text",
        "",
    );
    file.write_all_at(&before[..4096], 0).unwrap();
    let daemon = site.serve(&format!("--cache-disk e --witness w {LAZY}"));
    load.compare(&site, &daemon);
    daemon.kill();
    // 4. Nowhere: all legs do without it, and one does not. Where nothing can be made, nothing is.
    let daemon = site.serve(&format!("--cache-disk e --witness away/w {LAZY}"));
    load.compare(&site, &daemon);
    assert!(daemon.log().contains("on without it"), "{}", daemon.log());
    let listed = site.dcd("list --memory-directory .").ok();
    assert!(listed.contains("the witness has no say"), "{listed}");
    site.dcd("cache-disk add-witness /proc/w --control ctl").fails(1, "/proc/w", "");
    daemon.kill();
    let refused = start(&site, "--cache-disk c", "--witness away/w");
    assert!(
        refused.code == Some(1) && refused.stderr.contains("--without-leg"),
        "{}",
        refused.stderr
    );
    let empty = Site::empty();
    empty.folder.disk("d", VOLUME);
    let create = "create --cache-disk c --cache-disk e --cache-size 4M --data-disk d --witness";
    empty.dcd(&format!("{create} /proc/w")).fails(1, "/proc/w", "");
    // 5. Wiped with its cache.
    let daemon = site.serve(&format!("--cache-disk e --witness w {LAZY}"));
    until("it has a say", || votes(&site));
    let said = site.dcd("detach --wipe --control ctl").ok();
    assert!(said.contains("wiped: the witness"), "{said}");
    assert!(bytes("w").iter().all(|byte| *byte == 0));
    daemon.assert_no_panic();
}

/// A cache that nobody serves: what `probe` says of its witness, and a detach on the word of that, with
/// which its labels are wiped; those of another's are not.
#[test]
fn a_witness_is_probed_and_detached_without_a_daemon() {
    let site = site_with_witness();
    let mut load = Load::new(25);
    let flags = format!("{LEGS} --witness w {LAZY}");
    let daemon = site.serve(&flags);
    load.run(&site, 30);
    let [(first, _), (second, _)] = <[_; 2]>::try_from(legs(&site)).unwrap();
    daemon.kill();
    let bytes = |name: &str| std::fs::read(site.path(name)).unwrap();
    std::fs::write(site.path("old"), bytes("w")).unwrap();
    // 1. As the service has them, and as they say themselves.
    std::fs::create_dir(site.path("etc")).unwrap();
    let at = |name: &str| site.path(name).display().to_string();
    let settings = |witness: &str| {
        let text = format!(
            "cache-disk = [{:?}, {:?}]\nwitness = {:?}\ndata-disk = {:?}\n",
            at("c"),
            at("e"),
            at(witness),
            at("d")
        );
        std::fs::write(site.path("etc/one.toml"), text).unwrap();
    };
    let probe = |disk: &str| site.dcd(&format!("probe {} --configurations etc", at(disk))).ok();
    settings("w");
    let said = probe("w");
    assert!(said.contains("witness of service one, cache ") && said.contains("counts"), "{said}");
    let said = probe("old");
    assert!(said.contains("of no service") && said.contains("no data"), "{said}");
    let udev = site.dcd(&format!("probe --udev {} --configurations etc", at("w"))).ok();
    assert!(udev.starts_with("DCD_ROLE=witness\nDCD_NAME=one\nDCD_UUID="), "{udev}");
    assert!(!udev.contains("ATTACHED"), "{udev}");
    // 2. Older than its legs; of another cache; nothing at all.
    let daemon = site.serve(&flags);
    load.run(&site, 10);
    daemon.kill();
    settings("old");
    assert!(probe("old").contains("older than its legs"), "{}", probe("old"));
    let other = site_with_witness();
    std::fs::copy(other.path("w"), site.path("other")).unwrap();
    settings("other");
    assert!(probe("other").contains("the witness is that of"), "{}", probe("other"));
    std::fs::write(site.path("nothing"), vec![0; 72 << 10]).unwrap();
    settings("nothing");
    assert!(probe("nothing").contains("no label"), "{}", probe("nothing"));
    // 3. One leg is away: without the witness nobody knows, with it the cache is known.
    let away = site.path("away");
    std::fs::rename(site.path("e"), &away).unwrap();
    let all = || site.dcd("probe --all --configurations etc");
    assert!(all().stdout.contains("lacks a leg"), "{}", all().stdout);
    settings("w");
    let said = all().stdout;
    assert!(said.contains("nowhere else") && said.contains(" --witness "), "{said}");
    // 4. One leg and another's witness, or none, or an older one, are not detached.
    let detach = "detach --wipe --memory-directory . --data-disk d --cache-disk c";
    let before = ["c", "other", "old"].map(bytes);
    site.dcd(&format!("{detach} --witness other")).fails(1, "the witness is that of", "none");
    site.dcd(&format!("{detach} --witness old")).fails(1, &second, "--without-leg");
    site.dcd(detach).fails(1, &second, "--witness");
    assert!(before == ["c", "other", "old"].map(bytes));
    // 5. With its own they are, and both are wiped; what stays is told.
    let told = site.dcd(&format!("{detach} --witness w"));
    assert!(told.stderr.contains(&second) && told.stderr.contains("stays"), "{}", told.stderr);
    assert!(told.ok().contains("wiped: the witness"));
    assert!(["c", "w"].map(bytes).iter().flatten().all(|byte| *byte == 0));
    // 6. The leg that was away is no whole cache any more, and no witness speaks for it.
    std::fs::rename(&away, site.path("e")).unwrap();
    let start = "serve --data-disk d --nbd unix:sock --memory-directory . --cache-disk e";
    site.dcd(&format!("{start} {LAZY}")).fails(1, &first, "");
    let again = "detach --wipe --data-disk d --cache-disk e --witness";
    site.dcd(&format!("{again} other")).fails(1, "the witness is that of", "");
    assert!(bytes("other") == before[1]);
}
