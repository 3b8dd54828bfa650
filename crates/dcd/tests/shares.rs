//! Several caches on one cache-disk, with the real binary: they serve side by side and do not know
//! of each other, a creation or a detach that is cut off anywhere leaves shares that are whole or
//! gone, and what cannot be is refused with nothing written.

mod harness;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use harness::machine::random_instant;
use harness::model::Mix;
use harness::nbd::Client;
use harness::random::{Random, sum, sum_of_file};
use harness::volatile::VolatileDisks;
use harness::{Daemon, Site, Value, cycles, seed, until};
use std::time::Duration;

const VOLUME: u64 = 4 << 20;
const MIB: u64 = 1 << 20;
/// Everything stays in the logs.
const LAZY: &str = "--quiet --idle-max 1h --idle-min 1h --memory-directory .";

/// A host that keeps records, or none.
fn site(with_records: bool) -> Site {
    let site = Site::empty();
    if with_records {
        fs::create_dir(site.path("state")).unwrap();
    }
    site
}

/// A share of the cache-disk `c` for a new data-disk.
fn make(site: &Site, data: &str, flags: &str) {
    site.folder.disk(data, VOLUME);
    site.dcd(&format!(
        "create --cache-disk c --share 4M --segment-size 64k --data-disk {data} {flags}"
    ))
    .ok();
}

fn start(site: &Site, cache: &str, data: &str) -> Daemon {
    let line = format!(
        "serve --cache-disk {cache} --data-disk {data} --nbd unix:{data}.nbd --control {data}.ctl {LAZY}"
    );
    site.start_line(&line).ready()
}

/// What a client has written to a disk.
struct Load {
    random: Random,
    volume: Vec<u8>,
}

impl Load {
    fn new(salt: u64) -> Load {
        Load { random: Random::new(seed() ^ salt), volume: vec![0; VOLUME as usize] }
    }

    fn run(&mut self, site: &Site, data: &str, ops: usize) {
        let mix =
            Mix { volume: VOLUME, sectors_max: 40, flush_every: 5, fua_every: 7, zero_every: 12 };
        let mut client = Client::connect(&site.path(&format!("{data}.nbd")));
        for _ in 0..ops {
            let op = mix.op(&mut self.random);
            client.do_op(&op).unwrap_or_else(|error| panic!("{data}: {op:?}: {error:?}"));
            op.apply(&mut self.volume);
        }
        client.flush().unwrap();
    }

    fn compare(&self, site: &Site, data: &str, daemon: &Daemon) {
        let mut client = Client::connect(&site.path(&format!("{data}.nbd")));
        assert!(client.read_all().unwrap() == self.volume, "{data}: {}", daemon.log());
    }
}

fn shares(site: &Site, disk: &str) -> Value {
    let told = site.dcd(&format!("inspect shares --cache-disk {disk} --json")).ok();
    serde_json::from_str(&told).unwrap()
}

/// Name, state, and place in MiB of each part of the disk.
fn parts(site: &Site, disk: &str) -> Vec<(String, String, u64, u64)> {
    let told = shares(site, disk);
    let text = |part: &Value, key: &str| part[key].as_str().unwrap_or("").to_owned();
    let mib = |part: &Value, key: &str| part[key].as_u64().unwrap() / MIB;
    let parts = told["shares"].as_array().unwrap().iter();
    parts
        .map(|it| {
            (text(it, "share"), text(it, "state"), mib(it, "offset_bytes"), mib(it, "size_bytes"))
        })
        .collect()
}

fn part(name: &str, state: &str, offset: u64, size: u64) -> (String, String, u64, u64) {
    (name.into(), state.into(), offset, size)
}

/// The bytes of a range of a file in MiB.
fn bytes_of(site: &Site, name: &str, offset: u64, size: u64) -> Vec<u8> {
    let mut bytes = vec![0; (size * MIB) as usize];
    File::open(site.path(name)).unwrap().read_exact_at(&mut bytes, offset * MIB).unwrap();
    bytes
}

#[test]
fn caches_share_a_disk_and_do_not_know_of_each_other() {
    let site = site(true);
    for (index, data) in ["d1", "d2", "d3"].into_iter().enumerate() {
        make(&site, data, if index == 0 { "--cache-size 20M" } else { "" });
    }
    let is = [
        part("d1", "in-use", 1, 4),
        part("d2", "in-use", 5, 4),
        part("d3", "in-use", 9, 4),
        part("", "free", 13, 7),
    ];
    assert_eq!(parts(&site, "c"), is);

    // All of them at once, found by their data-disks, under load; one is killed now and then.
    let disks = ["d1", "d2", "d3"];
    let mut loads = [Load::new(1), Load::new(2), Load::new(3)];
    let mut daemons: Vec<Option<Daemon>> =
        disks.iter().map(|data| Some(start(&site, "c", data))).collect();
    let mut random = Random::new(seed() ^ 4);
    for round in 0..12 {
        for (load, data) in loads.iter_mut().zip(disks) {
            load.run(&site, data, 25);
        }
        let killed = random.below(3) as usize;
        let daemon = daemons[killed].take().unwrap();
        if round % 2 == 0 {
            daemon.kill()
        } else {
            daemon.stop()
        }
        let data = disks[killed];
        let daemon = start(&site, &format!("c/{data}"), data);
        loads[killed].compare(&site, data, &daemon);
        daemons[killed] = Some(daemon);
    }
    for ((load, data), daemon) in loads.iter().zip(disks).zip(&daemons) {
        load.compare(&site, data, daemon.as_ref().unwrap());
        let list = site.dcd("list").ok();
        assert!(list.contains(&format!("c/{data}")), "{list}");
    }

    // One goes; its room is free, and what is the others' is as it was.
    let others = |site: &Site| sum(&bytes_of(site, "c", 5, 8));
    let mut first = daemons[0].take().unwrap();
    daemons.into_iter().flatten().for_each(Daemon::stop);
    let before = others(&site);
    site.dcd("detach --control d1.ctl --wipe").ok();
    assert_eq!(first.wait_code(), Some(0));
    assert!(fs::read(site.path("d1")).unwrap() == loads[0].volume);
    assert!(bytes_of(&site, "c", 1, 4).iter().all(|byte| *byte == 0), "its window is wiped");
    assert_eq!(others(&site), before);
    assert_eq!(parts(&site, "c")[0], part("", "free", 1, 4));
    make(&site, "d4", "--name again");
    assert_eq!(parts(&site, "c")[0], part("again", "in-use", 1, 4));
    for (load, data) in loads.iter().zip(disks).skip(1) {
        site.dcd(&format!("check --cache-disk c --share {data}")).ok();
        let dirty = site.dcd(&format!("inspect dirty --cache-disk c/{data} --json")).ok();
        assert!(dirty.len() > 100, "{dirty}");
        let found = format!("salvage --cache-disk c/{data} --to {data}.found");
        assert!(site.dcd(&found).code.is_some_and(|code| code == 0 || code == 4));
        site.dcd(&format!("detach --cache-disk c --data-disk {data} --memory-directory .")).ok();
        assert!(fs::read(site.path(data)).unwrap() == load.volume, "{data}");
    }
    site.dcd("detach --cache-disk c --share again --data-disk d4").ok();
    assert_eq!(parts(&site, "c"), [part("", "free", 1, 19)]);
    // A disk that has grown has room for more.
    File::options().write(true).open(site.path("c")).unwrap().set_len(28 * MIB).unwrap();
    site.dcd("create --cache-disk c --share 27M --data-disk d1").ok();
    assert_eq!(parts(&site, "c"), [part("d1", "in-use", 1, 27)]);
    site.dcd("detach --cache-disk c --data-disk d1").ok();
    // Without shares it is a disk that may be taken.
    site.dcd("create --cache-disk c --data-disk d1").ok();
    site.dcd("inspect shares --cache-disk c").fails(1, "c has no shares", "");
    site.dcd("check --cache-disk c").ok();
    site.dcd("detach --cache-disk c --data-disk d1").ok();
    site.dcd("create --cache-disk c --share 4M --data-disk d1").ok();
}

#[test]
fn what_cannot_be_is_refused_and_nothing_is_written() {
    let site = site(true);
    for data in ["d2", "d3", "whole-d"] {
        site.folder.disk(data, VOLUME);
    }
    make(&site, "d1", "--cache-size 16M");
    site.dcd("create --cache-disk whole --cache-size 8M --data-disk whole-d").ok();
    let whole = start(&site, "whole", "whole-d");
    Load::new(5).run(&site, "whole-d", 10);
    whole.stop();
    fs::write(site.path("foreign"), vec![1; 9 << 20]).unwrap();
    site.folder.disk("small", 2 << 20);
    let disks = ["c", "d1", "d2", "d3", "whole", "whole-d", "foreign", "small"];
    let sums = || disks.map(|name| sum_of_file(&site.path(name)));
    let before = sums();
    let create = |words: &str| site.dcd(&format!("create {words}"));

    create("--cache-disk c --share 12M --data-disk d2").fails(
        1,
        "a share of 12582912 bytes has no room: the largest free piece has 11534336",
        "smaller share",
    );
    create("--cache-disk c --share 1T --data-disk d2").fails(1, "has no room", "");
    // The size that it has may be said again.
    create("--cache-disk c --share 1T --cache-size 16M --data-disk d2").fails(1, "has no room", "");
    create("--cache-disk c --share 512k --data-disk d2").fails(1, "needs at least", "");
    create("--cache-disk c --share 0 --data-disk d2").fails(1, "a share of 0 bytes", "--share");
    create("--cache-disk c --share 4M --data-disk d1").fails(
        1,
        "has a share already: c/d1",
        "detach",
    );
    create("--cache-disk c --share 4M --data-disk d2 --name d1").fails(
        1,
        "there is a share d1 already",
        "--name",
    );
    create("--cache-disk c --share 4M --data-disk d2 --name a/b").fails(
        1,
        "cannot be the name of a share",
        "--name",
    );
    create("--cache-disk c --share 4M --cache-size 32M --data-disk d2").fails(
        1,
        "is shared already",
        "leave it out",
    );
    create("--cache-disk c --data-disk d2").fails(1, "c is shared by caches: d1", "--share");
    create("--cache-disk c --data-disk d2 --force").fails(
        1,
        "c is shared by caches: d1",
        "--force",
    );
    create("--cache-disk c/d1 --data-disk d2").fails(1, "names a share", "detach");
    create("--cache-disk d2 --share 2M --data-disk c").fails(1, "several caches share", "");
    create("--cache-disk whole --share 2M --data-disk d2").fails(1, "holds cache", "");
    create("--cache-disk foreign --share 2M --data-disk d2").fails(
        1,
        "that are not zero",
        "--force",
    );
    create("--cache-disk small --share 2M --data-disk d2").fails(1, "need 3 MiB", "smaller share");
    create("--cache-disk new --share 2M --data-disk d2").fails(1, "--cache-size", "");
    create("--cache-disk c --cache-disk new --share 12M --cache-size 32M --data-disk d2").fails(
        1,
        "is shared already",
        "",
    );
    create("--cache-disk d3 --cache-disk c --share 12M --data-disk d2").fails(1, "has no room", "");
    create("--cache-disk d3 --share 2M --data-disk d2 --name .x").fails(
        1,
        "cannot be the name",
        "",
    );
    create("--cache-disk new --cache-size 4M --share 4M --data-disk d2").fails(1, "need 5 MiB", "");
    assert!(!site.path("new").exists());

    let serve = |words: &str| site.dcd(&format!("serve {words} --nbd unix:x.sock {LAZY}"));
    serve("--cache-disk c --share other --data-disk d1").fails(
        1,
        "c has no share other: it has d1",
        "",
    );
    serve("--cache-disk c/other --data-disk d1").fails(1, "c has no share other: it has d1", "");
    serve("--cache-disk c/d1 --share other --data-disk d1").fails(1, "asked for, too", "once");
    serve("--cache-disk whole --share d1 --data-disk whole-d").fails(1, "whole has no shares", "");
    serve("--cache-disk whole/d1 --data-disk whole-d").fails(1, "whole has no shares", "");
    serve("--cache-disk c/d1 --data-disk d2").fails(1, "is not the data-disk of this cache", "");
    site.dcd("detach --cache-disk c/other --data-disk d1").fails(1, "no share other", "");
    site.dcd("check --cache-disk c/other").fails(1, "no share other", "inspect shares");
    site.dcd("inspect shares --cache-disk foreign").fails(1, "has no shares", "");
    assert_eq!(sums(), before);

    // Somebody has a share, so nobody has all of it; nor the other way round.
    let daemon = start(&site, "c", "d1");
    serve("--cache-disk c --share d1 --data-disk d2").fails(
        1,
        "c/d1 is locked by another program (process",
        "another dcd",
    );
    create("--cache-disk c --data-disk d2 --force").fails(1, "c is locked", "another dcd");
    daemon.stop();
    let whole = start(&site, "whole", "whole-d");
    create("--cache-disk whole --share 2M --data-disk d2").fails(
        1,
        "whole is locked",
        "another dcd",
    );
    whole.stop();

    // Several, and nothing says which.
    make(&site, "d4", "");
    fs::remove_dir_all(site.path("state")).unwrap();
    fs::rename(site.path("d1"), site.path("renamed")).unwrap();
    fs::copy(site.path("renamed"), site.path("copy")).unwrap();
    serve("--cache-disk c --data-disk copy").fails(
        1,
        "which share of c is meant? It has d1, d4",
        "c/d1",
    );
    site.dcd("inspect superblock --cache-disk c").fails(1, "which share of c", "--share NAME");
}

/// A cache that is given up is overwritten in its share, as it would be on a disk of its own.
#[test]
fn a_share_that_is_given_up_is_made_anew() {
    let site = site(false);
    make(&site, "d1", "--cache-size 16M");
    make(&site, "d2", "--labelled");
    site.folder.disk("d3", VOLUME);
    let daemon = start(&site, "c", "d1");
    Load::new(21).run(&site, "d1", 20);
    let uuid = daemon.told("uuid").unwrap().to_owned();
    let anew = "create --cache-disk c/d1 --share 6M --data-disk d3";
    site.dcd(&format!("{anew} --force")).fails(1, "c/d1 is locked", "");
    daemon.stop();
    let before = sum_of_file(&site.path("c"));
    site.dcd(anew).fails(1, "there is a share d1 already", "");
    let outcome = site.dcd(&format!("{anew} --force"));
    assert!(outcome.stdout.starts_with("would be lost"), "{}", outcome.stdout);
    outcome.fails(1, "holds cache", &uuid);
    assert_eq!(sum_of_file(&site.path("c")), before);
    let told = site.dcd(&format!("{anew} --force --uuid {uuid}")).ok();
    assert!(told.starts_with("given up"), "{told}");
    let is = [part("", "free", 1, 4), part("d2", "in-use", 5, 4), part("d1", "in-use", 9, 6)];
    assert_eq!(parts(&site, "c")[..3], is);
    start(&site, "c", "d3").stop();
    // The other one has a label, and is found by it under any name.
    fs::rename(site.path("d2"), site.path("renamed")).unwrap();
    let daemon = start(&site, "c", "renamed");
    assert_eq!(daemon.told("size"), Some("3145728"));
    daemon.stop();
    site.dcd("detach --cache-disk c --data-disk renamed").ok();
    assert_eq!(parts(&site, "c")[0], part("", "free", 1, 8));
}

/// One copy of the directory is enough, in whatever way the other is lost; with neither nothing is
/// done.
#[test]
fn a_directory_is_read_from_one_copy_and_never_guessed() {
    let site = site(false);
    make(&site, "d1", "--cache-size 16M");
    make(&site, "d2", "");
    site.folder.disk("d3", VOLUME);
    let is = parts(&site, "c");
    let write = |offset: u64, bytes: &[u8]| {
        let file = File::options().write(true).open(site.path("c")).unwrap();
        file.write_all_at(bytes, offset).unwrap();
    };
    let copies = [0u64, 512 << 10];
    let whole = copies.map(|offset| {
        let mut bytes = vec![0; 32 << 10];
        File::open(site.path("c")).unwrap().read_exact_at(&mut bytes, offset).unwrap();
        bytes
    });
    for (lost, offset) in copies.into_iter().enumerate() {
        for bytes in [vec![0; 32 << 10], vec![0xff; 512]] {
            write(offset, &bytes);
            assert_eq!(parts(&site, "c").len(), is.len());
            let daemon = start(&site, "c/d1", "d1");
            daemon.stop();
            write(offset, &whole[lost]);
        }
    }
    site.flip("c", 300, 1);
    site.flip("c", (512 << 10) + 300, 1);
    let before = sum_of_file(&site.path("c"));
    let says = "the shares of c are not known";
    site.dcd("create --cache-disk c --share 2M --data-disk d3").fails(1, says, "dcdSUPER");
    site.dcd("create --cache-disk c --data-disk d3").fails(1, says, "dd if=/dev/zero");
    site.dcd("create --cache-disk c --data-disk d3 --force").fails(1, says, "");
    site.dcd(&format!("serve --cache-disk c --data-disk d1 --nbd unix:x {LAZY}"))
        .fails(1, says, "");
    site.dcd("detach --cache-disk c/d1 --data-disk d1").fails(1, says, "");
    site.dcd("inspect shares --cache-disk c").fails(1, says, "");
    assert_eq!(sum_of_file(&site.path("c")), before);
    site.flip("c", 300, 1);
    site.dcd("detach --cache-disk c/d1 --data-disk d1").ok();
    // A disk that has lost its end.
    let file = File::options().write(true).open(site.path("c")).unwrap();
    file.set_len(8 << 20).unwrap();
    site.dcd(&format!("serve --cache-disk c/d2 --data-disk d2 --nbd unix:x {LAZY}")).fails(
        1,
        "c/d2 ends at byte 9437184, and its disk has 8388608",
        "",
    );
}

/// The disk of a cache is what its window says, whatever a superblock in it asks for: a forged one
/// that reaches behind its share is refused.
#[test]
fn a_cache_that_reaches_behind_its_share_is_refused() {
    let site = site(false);
    make(&site, "d1", "--cache-size 32M");
    make(&site, "d2", "");
    site.dcd("create --cache-disk large --cache-size 8M --segment-size 64k --data-disk d1").ok();
    // The superblocks of a larger cache, in the window of the smaller one.
    let large = fs::read(site.path("large")).unwrap();
    let file = File::options().write(true).open(site.path("c")).unwrap();
    for at in [0, 64 << 10] {
        file.write_all_at(&large[at..at + 4096], MIB + at as u64).unwrap();
    }
    let others = bytes_of(&site, "c", 5, 4);
    site.dcd(&format!("serve --cache-disk c/d1 --data-disk d1 --nbd unix:x {LAZY}")).fails(
        1,
        "the cache-disk has 4194304 bytes, the cache needs",
        "",
    );
    for verb in ["check", "salvage", "inspect segments"] {
        let outcome = site.dcd(&format!("{verb} --cache-disk c/d1"));
        assert!(outcome.code.is_some_and(|code| code < 100), "{verb}: {}", outcome.stderr);
    }
    assert!(bytes_of(&site, "c", 5, 4) == others);
}

/// A share on each of two disks.
#[test]
fn legs_may_have_shares() {
    let site = site(false);
    site.folder.disk("d1", VOLUME);
    for disk in ["c", "e"] {
        make(&site, &format!("other-{disk}"), "--cache-size 16M");
        fs::rename(site.path("c"), site.path("made")).unwrap();
        fs::rename(site.path("made"), site.path(if disk == "c" { "keep" } else { "e" })).unwrap();
    }
    fs::rename(site.path("keep"), site.path("c")).unwrap();
    let legs = "--cache-disk c --cache-disk e";
    site.dcd(&format!("create {legs} --share 4M --segment-size 64k --data-disk d1")).ok();
    assert_eq!(parts(&site, "c")[1], part("d1", "in-use", 5, 4));
    assert_eq!(parts(&site, "e")[1], part("d1", "in-use", 5, 4));
    let serve = format!("serve {legs} --data-disk d1 --nbd unix:d1.nbd --control d1.ctl {LAZY}");
    let mut load = Load::new(7);
    let daemon = site.start_line(&serve).ready();
    load.run(&site, "d1", 60);
    daemon.kill();
    let daemon = site.start_line(&serve).ready();
    load.compare(&site, "d1", &daemon);
    let told: Value =
        serde_json::from_str(&site.dcd("cache-disk status --control d1.ctl --json").ok()).unwrap();
    let disks: Vec<&str> =
        told["legs"].as_array().unwrap().iter().map(|leg| leg["disk"].as_str().unwrap()).collect();
    assert_eq!(disks, ["c/d1", "e/d1"]);
    site.dcd("cache-disk add e/other-e --control d1.ctl").fails(
        1,
        "has a share of this disk already: e/d1",
        "fail together",
    );
    daemon.stop();
    // A start without one of them, which may hold more.
    fs::rename(site.path("e"), site.path("away")).unwrap();
    let alone = format!("serve {legs} --data-disk d1 --nbd unix:x {LAZY}");
    site.dcd(&alone).fails(1, "", "--without-leg");
    // One that comes late is waited for.
    let waited = serve.replace("--quiet ", "");
    let waiting = site.start_line(&format!("{waited} --wait"));
    until("it waits", || waiting.log().contains("waiting for the cache-disk e").then_some(()));
    fs::rename(site.path("away"), site.path("e")).unwrap();
    let daemon = waiting.ready();
    load.compare(&site, "d1", &daemon);
    daemon.stop();
    site.dcd(&format!("detach {legs} --data-disk d1 --memory-directory . --wipe")).ok();
    assert!(fs::read(site.path("d1")).unwrap() == load.volume);
    for disk in ["c", "e"] {
        assert_eq!(parts(&site, disk)[1], part("", "free", 5, 11));
        assert!(bytes_of(&site, disk, 5, 4).iter().all(|byte| *byte == 0));
    }
}

/// What is found of the disks as they are asked for, without their daemons.
#[test]
fn services_with_shares_are_probed() {
    let site = site(true);
    make(&site, "d1", "--cache-size 16M");
    make(&site, "d2", "");
    let place = |name: &str| site.path(name).display().to_string();
    fs::create_dir(site.path("etc")).unwrap();
    for (service, share, data) in [("one", "share = \"d1\"\n", "d1"), ("two", "", "d2")] {
        let text = format!(
            "cache-disk = \"{}\"\n{share}data-disk = \"{}\"\nnbd = \"unix:{}\"\n",
            place("c"),
            place(data),
            place(&format!("{data}.nbd"))
        );
        fs::write(site.path(&format!("etc/{service}.toml")), text).unwrap();
    }
    let probe = |words: &str| site.dcd(&format!("probe --configurations etc {words}"));
    let all: Value = serde_json::from_str(&probe("--all --json").ok()).unwrap();
    assert_eq!(all["dirty"], false, "{all}");
    let daemon = site.start_line(&format!("serve --config etc/two.toml {LAZY}")).ready();
    Load::new(8).run(&site, "d2", 5);
    daemon.stop();
    let outcome = probe("--all --json");
    assert_eq!(outcome.code, Some(1));
    let all: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let state = |service: &str| {
        let caches = all["caches"].as_array().unwrap().iter();
        let mut of = caches.filter(|it| it["place"].as_str().unwrap().ends_with(service));
        of.next().unwrap()["state"].as_str().unwrap().to_owned()
    };
    assert_eq!([state("one.toml"), state("two.toml")], ["detached", "attached"]);
    let found = probe("--udev d2").ok();
    assert!(found.contains("DCD_ROLE=data-disk\nDCD_NAME=two\n"), "{found}");
    assert!(found.contains("DCD_ATTACHED=1"), "{found}");
    let found = probe("--udev c").ok();
    assert!(found.contains("DCD_ROLE=cache-disk\n"), "{found}");
    assert!(found.contains("DCD_NAMES=one two\nDCD_WANTS=dcd@two.service\n"), "{found}");
    assert!(found.contains(&format!("DCD_DETACHED_DATA_DISKS={}\n", place("d1"))), "{found}");
    assert!(found.ends_with("DCD_ATTACHED=1\n"), "{found}");
    let found = probe("c").ok();
    assert!(found.contains("2 shares") && found.contains("service two"), "{found}");
    let list: Value = serde_json::from_str(&site.dcd("list --json").ok()).unwrap();
    // Other tests have shares, too.
    let disks = list["shared_disks"].as_array().unwrap().iter();
    let mut ours = disks.filter(|it| it["cache_disk"] == place("c").as_str());
    let disk = ours.next().unwrap_or_else(|| panic!("{list}"));
    assert_eq!(disk["free_bytes"], 7 << 20, "{list}");
    assert_eq!(disk["shares"][1]["cache_state"], "closed", "{list}");
    assert!(site.dcd("list").ok().contains("in-use, closed"));
}

/// kill -9 of `create` and `detach` at any moment: a share is whole or its room is free, and what
/// was written through it is somewhere.
#[test]
fn creations_and_detaches_that_are_killed_leave_whole_shares() {
    let site = site(false);
    make(&site, "kept", "--cache-size 16M");
    let mut kept = Load::new(9);
    let daemon = start(&site, "c/kept", "kept");
    kept.run(&site, "kept", 30);
    site.folder.disk("d", VOLUME);
    let mut random = Random::new(seed() ^ 10);
    let mut load = Load::new(11);
    let (mut made, mut gone) = (0, 0);
    let kills = cycles(30, 20);
    for _ in 0..kills {
        let create =
            "create --cache-disk c --cache-size 16M --share 4M --segment-size 64k --data-disk d";
        let child = site.start_line(create);
        random_instant(&mut random, Duration::from_millis(60));
        child.kill();
        if parts(&site, "c")[1].1 == "in-use" {
            made += 1;
        } else {
            // Whatever it was doing, its room is free again.
            site.dcd(create).ok();
        }
        let served = start(&site, "c/d", "d");
        load.run(&site, "d", 10);
        served.stop();
        let wipe = if random.once_in(2) { "--wipe" } else { "" };
        let detach = format!("detach --cache-disk c/d --data-disk d --memory-directory . {wipe}");
        let child = site.start_line(&detach);
        random_instant(&mut random, Duration::from_millis(400));
        child.kill();
        let state = parts(&site, "c")[1].1.clone();
        match state.as_str() {
            "free" => gone += 1,
            _ => drop(site.dcd(&detach).ok()),
        }
        assert_eq!(parts(&site, "c")[1].1, "free", "was {state}");
        assert!(fs::read(site.path("d")).unwrap() == load.volume, "was {state}");
    }
    assert!(kills < 30 || made > 0 && gone > 0, "{made} made, {gone} gone: the kills hit nothing");
    kept.compare(&site, "kept", &daemon);
}

/// Power cuts under two daemons that share a disk, and while shares are made and given back.
#[test]
fn power_cuts_lose_no_flushed_byte_of_any_share() {
    skip_without!(
        "power_cuts_lose_no_flushed_byte_of_any_share",
        "root",
        "fuse",
        "loop",
        "nbdfuse"
    );
    let site = site(false);
    for disk in ["d1", "d2"] {
        site.folder.disk(disk, VOLUME);
    }
    site.folder.disk("c", 12 << 20);
    let mut disks = VolatileDisks::new(&site, &["c", "d1", "d2"]);
    let mut random = Random::new(seed() ^ 12);
    let mut loads = [Load::new(13), Load::new(14)];
    let cuts = cycles(12, 20);
    for cut in 0..cuts {
        let devices = disks.devices(&site);
        let create = |index: usize| {
            format!(
                "create --cache-disk {} --share 4M --segment-size 64k --name s{index} --data-disk {}",
                devices[0], devices[index]
            )
        };
        let serve = |index: usize| {
            site.start_line(&format!(
                "serve --cache-disk {}/s{index} --data-disk {} --nbd unix:d{index}.nbd --memory-lost {LAZY}",
                devices[0], devices[index]
            ))
        };
        let state = |index: usize| {
            let outcome = site.dcd(&format!("inspect shares --cache-disk {} --json", devices[0]));
            // A disk on which the first creation was cut off has none yet.
            let told: Value = match outcome.code {
                Some(0) => serde_json::from_str(&outcome.stdout).unwrap(),
                _ => {
                    assert!(outcome.stderr.contains("has no shares"), "{}", outcome.stderr);
                    return String::new();
                }
            };
            let name = format!("s{index}");
            let mut found = told["shares"].as_array().unwrap().iter();
            let found = found.find(|it| it["share"] == name.as_str());
            found.map_or(String::new(), |it| it["state"].as_str().unwrap().to_owned())
        };
        let detach = |index: usize| {
            format!(
                "detach --cache-disk {}/s{index} --data-disk {} --memory-directory . --memory-lost",
                devices[0], devices[index]
            )
        };
        // What a cut has left: nothing of a share that does not say that it is in use.
        let mut cut_in_create = None;
        for index in [1, 2] {
            if state(index) == "in-use" {
                continue;
            }
            if random.once_in(3) {
                cut_in_create = Some(site.start_line(&create(index)));
                break;
            }
            site.dcd(&create(index)).ok();
        }
        let mut daemons = Vec::new();
        if let Some(child) = cut_in_create {
            random_instant(&mut random, Duration::from_millis(60));
            daemons.push(child);
        } else {
            for (load, index) in loads.iter_mut().zip([1, 2]) {
                let daemon = serve(index).ready();
                load.compare(&site, &format!("d{index}"), &daemon);
                load.run(&site, &format!("d{index}"), 20);
                daemons.push(daemon);
            }
            if cut % 3 == 2 {
                let detached = daemons.pop().unwrap();
                detached.stop();
                daemons.push(site.start_line(&detach(2)));
                random_instant(&mut random, Duration::from_millis(120));
            }
        }
        disks.cut(&mut random);
        daemons.into_iter().for_each(Daemon::kill);
        disks.forget_devices();
        for entry in fs::read_dir(site.path("")).unwrap().flatten() {
            if entry.file_name().to_string_lossy().ends_with(".segments") {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        site.unmount_all();
    }
}

/// On a block device the kernel keeps others away, and goes on to when the first has gone.
#[test]
fn a_shared_block_device_is_kept_from_others() {
    skip_without!("a_shared_block_device_is_kept_from_others", "root", "loop");
    let site = site(false);
    site.folder.disk("file", 16 << 20);
    let device = site.run("losetup --find --show file").trim().to_owned();
    for data in ["d1", "d2", "d3"] {
        site.folder.disk(data, VOLUME);
    }
    for data in ["d1", "d2"] {
        site.dcd(&format!("create --cache-disk {device} --share 4M --data-disk {data}")).ok();
    }
    let (first, second) = (start(&site, &device, "d1"), start(&site, &device, "d2"));
    let is_kept = || {
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::EXCL;
        rustix::fs::open(device.as_str(), flags, rustix::fs::Mode::empty()).is_err()
    };
    assert!(is_kept());
    // Made while others serve.
    site.dcd(&format!("create --cache-disk {device} --share 4M --data-disk d3")).ok();
    site.dcd(&format!("detach --cache-disk {device} --data-disk d3")).ok();
    first.stop();
    until("the other keeps it", || is_kept().then_some(()));
    site.dcd(&format!("create --cache-disk {device} --data-disk d1 --force"))
        .fails(1, "in use", "");
    // By its file, too.
    site.dcd(&format!("serve --cache-disk file --data-disk d1 --nbd unix:x {LAZY}")).fails(
        1,
        "in use through",
        "",
    );
    second.stop();
    assert!(!is_kept());
}
