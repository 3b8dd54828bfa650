//! Proves on the real program that a volume outlives its cache-disk: what was drained, and what was
//! flushed past the log at the moment of a kill, is there behind `dcd volume import`; and that an
//! import of what does not fit is refused with a hint and nothing written.

mod harness;

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::Duration;

use harness::nbd::Client;
use harness::random::Random;
use harness::{Daemon, Site, Value, cycles, seed};

const MIB: u64 = 1 << 20;
const SETS: &str = "extent = \"64k\"\ntemporary = \"25%\"\njournal = \"2M\"\n\
    [[set]]\nlevel = 1\nshare = \"20%\"\ncopies = 2\n\
    [[set]]\nlevel = 5\nshare = \"40%\"\n\
    [[set]]\nlevel = 0\n";
const MEMBERS: &str = "--data-disk m0 --data-disk m1 --data-disk m2 --data-disk m3";

fn made(twin: &str) -> Site {
    let site = Site::empty();
    // With a record of pairs.
    fs::create_dir(site.path("state")).unwrap();
    for member in 0..4 {
        site.folder.disk(&format!("m{member}"), 40 * MIB);
    }
    fs::write(site.path("v.toml"), format!("{twin}{SETS}")).unwrap();
    let create = format!("create --cache-disk c --cache-size 16M {MEMBERS} --volume v.toml");
    site.dcd(&create).ok();
    site
}

fn serve(site: &Site, cache_disk: &str, flags: &str) -> Daemon {
    let line = format!(
        "serve --cache-disk {cache_disk} {MEMBERS} --nbd unix:sock --control ctl \
         --memory-directory . --quiet --idle-max 20ms {flags}"
    );
    site.start_line(&line).ready()
}

fn twin(site: &Site) -> Value {
    let status = site.dcd("volume status --control ctl --json").ok();
    let status: Value = serde_json::from_str(&status).unwrap();
    status["twin"].clone()
}

fn until_twin_is_whole(site: &Site) {
    harness::until("the twin is whole", || {
        twin(site)["holders"].as_array().filter(|holders| holders.len() == 2).map(|_| ())
    });
}

/// Pieces of a round: where, and what.
fn pieces(round: u64) -> Vec<(u64, Vec<u8>)> {
    let mut random = Random::new(round);
    let piece = |index: u64| {
        let offset = index * MIB + random.below(64) * 4096;
        let length = (1 + random.below(32)) * 4096;
        let content = (0..length / 8).flat_map(|at| (offset ^ at ^ round << 40).to_le_bytes());
        (offset, content.collect())
    };
    (0..40).map(piece).collect()
}

fn write(site: &Site, round: u64) {
    let mut client = Client::connect(&site.socket());
    for (offset, content) in pieces(round) {
        client.write(offset, &content).unwrap();
    }
    client.flush().unwrap();
}

fn verify(site: &Site, round: u64, what: &str) {
    let mut client = Client::connect(&site.socket());
    for (offset, content) in pieces(round) {
        let found = client.read(offset, content.len());
        assert!(found.is_ok_and(|found| found == content), "{what}, round {round}, at {offset}");
    }
}

fn import(site: &Site, cache_disk: &str) -> Value {
    let line = format!("volume import --cache-disk {cache_disk} --cache-size 16M {MEMBERS} --json");
    serde_json::from_str::<Value>(&site.dcd(&line).ok()).unwrap()["volume"].clone()
}

#[test]
fn what_was_drained_is_there_without_the_cache_disk() {
    let site = made("twin = true\n");
    let daemon = serve(&site, "c", "");
    write(&site, 1);
    site.dcd("drain --control ctl").ok();
    harness::until("checksums are written", || (twin(&site)["regions_marked"] == 0).then_some(()));
    until_twin_is_whole(&site);
    daemon.kill();
    fs::remove_file(site.path("c")).unwrap();
    let told = import(&site, "new");
    assert_eq!((&told["regions_believed"], &told["lines_lost"]), (&0.into(), &0.into()));
    let daemon = serve(&site, "new", "");
    verify(&site, 1, "after the import");
    // And a member may be lost as well.
    until_twin_is_whole(&site);
    write(&site, 2);
    site.dcd("drain --control ctl").ok();
    daemon.kill();
    fs::remove_file(site.path("new")).unwrap();
    fs::remove_file(site.path("m0")).unwrap();
    let rest = "--data-disk m1 --data-disk m2 --data-disk m3";
    let line = format!("volume import --cache-disk c --cache-size 16M {rest}");
    site.dcd(&line).fails(1, "cannot import the volume: member 0 is missing", "--degraded goes on");
    assert!(!site.path("c").exists());
    site.dcd(&format!("{line} --degraded")).ok();
    site.dcd("check --cache-disk c").ok();
}

/// The cache-disk that was lost is found again behind an import: the members have gone on without
/// it. That is said, and not that its memory is to be looked for.
#[test]
fn a_cache_disk_from_before_an_import_is_refused_for_that() {
    let site = made("twin = true\n");
    let daemon = serve(&site, "c", "");
    write(&site, 1);
    site.dcd("drain --control ctl").ok();
    until_twin_is_whole(&site);
    daemon.kill();
    fs::rename(site.path("c"), site.path("old")).unwrap();
    import(&site, "new");
    let line = format!(
        "serve --cache-disk old {MEMBERS} --nbd unix:sock --control ctl --memory-directory . --quiet"
    );
    let refused = || {
        // Its memory is gone, or has gone with the machine.
        for entry in fs::read_dir(site.path("")).unwrap().map(Result::unwrap) {
            if entry.path().extension().is_some_and(|it| it == "segments") {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        let error = "m0: the cache-disk is older than member 0, which went on with another cache";
        site.dcd(&line).fails(1, error, "the cache-disk that was served last");
    };
    refused();
    let daemon = serve(&site, "new", "");
    verify(&site, 1, "with the new cache-disk");
    daemon.kill();
    refused();
}

/// Spares, and disks that were let go, are given with the members by whoever gives all there are.
#[test]
fn disks_that_are_no_members_are_left_as_they_are() {
    let site = made("twin = true\n");
    site.folder.disk("spare", 41 * MIB);
    site.folder.disk("m4", 41 * MIB);
    let daemon = serve(&site, "c", "");
    write(&site, 1);
    site.dcd("volume replace 1 m4 --control ctl").ok();
    site.dcd("volume spare add spare --control ctl").ok();
    site.dcd("drain --control ctl").ok();
    harness::until("checksums are written", || (twin(&site)["regions_marked"] == 0).then_some(()));
    until_twin_is_whole(&site);
    daemon.kill();
    fs::remove_file(site.path("c")).unwrap();
    let before = ["spare", "m1"].map(|name| fs::read(site.path(name)).unwrap());
    let all = format!("{MEMBERS} --data-disk m4 --data-disk spare");
    let line = format!("volume import --cache-disk c --cache-size 16M {all} --json");
    let told: Value = serde_json::from_str(&site.dcd(&line).ok()).unwrap();
    let others = &told["volume"]["no_members"];
    assert_eq!(
        (&others[0]["is"], &others[1]["is"]),
        (&"no member any more".into(), &"a spare".into())
    );
    assert_eq!(told["volume"]["lines_lost"], 0, "{told}");
    assert!(before == ["spare", "m1"].map(|name| fs::read(site.path(name)).unwrap()));
    let line = format!(
        "serve --cache-disk c {all} --nbd unix:sock --control ctl --memory-directory . --quiet"
    );
    let daemon = site.start_line(&line).ready();
    verify(&site, 1, "after the import");
    let status = site.dcd("volume status --control ctl --json").ok();
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["spares"][0]["state"], "ready", "{status}");
    daemon.stop();
}

#[test]
fn what_was_flushed_past_the_log_is_there_after_each_kill() {
    let site = made("twin = true\n");
    let mut cache_disk = "c".to_owned();
    for round in 1..=6 {
        let daemon = serve(&site, &cache_disk, "--no-log");
        if round > 1 {
            verify(&site, round - 1, "at the start");
        }
        until_twin_is_whole(&site);
        write(&site, round);
        if round % 2 == 0 {
            // In the middle of what nobody was told of.
            let mut client = Client::connect(&site.socket());
            client.write(50 * MIB, &vec![round as u8; MIB as usize]).unwrap();
        }
        daemon.kill();
        fs::rename(site.path(&cache_disk), site.path("old")).unwrap();
        cache_disk = format!("c{round}");
        let told = import(&site, &cache_disk);
        assert_eq!(told["lines_lost"], 0, "round {round}: {told}");
        // The old one is refused.
        let line = format!(
            "serve --cache-disk old {MEMBERS} --nbd unix:sock --memory-directory . --trust-disks"
        );
        site.dcd(&line).fails(1, "cache-disk", "");
    }
    let _daemon = serve(&site, &cache_disk, "");
    verify(&site, 6, "at the end");
}

/// Lines of 4 KiB that a load writes to: in all sets.
const LINES: u64 = 2048;
const LINE: usize = 4096;

/// What a line may hold: what the members had for sure, and each version that was sent since. 0:
/// zeroes.
#[derive(Clone, Default)]
struct Versions {
    may_be: BTreeMap<u64, Vec<u64>>,
    next: u64,
}

impl Versions {
    fn content(line: u64, version: u64) -> Vec<u8> {
        let word = if version == 0 { 0 } else { version << 20 | line };
        word.to_le_bytes().repeat(LINE / 8)
    }

    /// A write somewhere; whether it was answered.
    fn write(&mut self, client: &mut Client, random: &mut Random) -> bool {
        let lines = (1 + random.below(16)).min(LINES);
        let first = random.below(LINES - lines + 1);
        self.next += 1;
        let version = self.next;
        for line in first..first + lines {
            self.may_be.entry(line).or_insert_with(|| vec![0]).push(version);
        }
        let content: Vec<u8> =
            (first..first + lines).flat_map(|line| Versions::content(line, version)).collect();
        let written = client.write(first * LINE as u64, &content);
        let is_flushed = !random.once_in(20) || client.flush().is_ok();
        written.is_ok() && is_flushed
    }

    /// The members have the newest of all.
    fn drained(&mut self) {
        self.may_be
            .values_mut()
            .for_each(|versions| *versions = vec![versions[versions.len() - 1]]);
    }

    /// Each line is what it may be; from now on it is what it is.
    fn check(&mut self, client: &mut Client, what: &str) {
        for (line, versions) in &mut self.may_be {
            let found = client
                .read(line * LINE as u64, LINE)
                .unwrap_or_else(|error| panic!("{what}: line {line} cannot be read: {error:?}"));
            let is_it = |version: &u64| Versions::content(*line, *version) == found;
            let version = versions.iter().copied().find(is_it).unwrap_or_else(|| {
                panic!("{what}: line {line} is none of {versions:?}: {:x?}", &found[..16])
            });
            *versions = vec![version];
        }
    }
}

/// At any moment of a load that goes through the log: what the members had is there, verified, and
/// what was newer in the log is there or not. `DCD_CYCLES` says how many moments.
#[test]
fn a_lost_cache_disk_costs_what_was_dirty() {
    let site = made("twin = true\n");
    let mut cache_disk = "c".to_owned();
    let mut versions = Versions::default();
    let seed = seed();
    let mut random = Random::new(seed ^ 0x10_57);
    for round in 0..cycles(5, 1000) {
        let what = format!("seed {seed}, moment {round}");
        let daemon = serve(&site, &cache_disk, "");
        let mut client = Client::connect(&site.socket());
        versions.check(&mut client, &what);
        until_twin_is_whole(&site);
        if random.once_in(2) {
            for _ in 0..random.below(60) {
                assert!(versions.write(&mut client, &mut random), "{what}");
            }
            site.dcd("drain --control ctl").ok();
            versions.drained();
        }
        let mut of_load = random.clone();
        let load = thread::spawn(move || {
            while versions.write(&mut client, &mut of_load) {}
            versions
        });
        random.next();
        thread::sleep(Duration::from_micros(random.below(150_000))); // the moment, drawn
        daemon.kill();
        versions = load.join().unwrap();
        fs::remove_file(site.path(&cache_disk)).unwrap();
        cache_disk = format!("c{round}");
        let told = import(&site, &cache_disk);
        assert_eq!(told["lines_lost"], 0, "{what}: {told}");
    }
    let _daemon = serve(&site, &cache_disk, "");
    versions.check(&mut Client::connect(&site.socket()), "at the end");
}

#[test]
fn what_does_not_fit_is_refused() {
    let site = made("twin = true\n");
    let daemon = serve(&site, "c", "");
    until_twin_is_whole(&site);
    write(&site, 1);
    daemon.kill();
    let before: Vec<Vec<u8>> =
        (0..4).map(|member| fs::read(site.path(&format!("m{member}"))).unwrap()).collect();
    let line = format!("volume import --cache-disk new --cache-size 16M {MEMBERS}");
    site.dcd(&line).fails(
        1,
        "is there, and may hold what the members have not",
        "--force gives it up",
    );
    fs::rename(site.path("c"), site.path("old")).unwrap();
    site.folder.disk("blank", 40 * MIB);
    site.dcd(&format!("{line} --data-disk blank")).fails(
        1,
        "blank is no member of a volume",
        "dcd create --volume",
    );
    fs::copy(site.path("m3"), site.path("copy")).unwrap();
    site.dcd(&format!("{line} --data-disk copy")).fails(
        1,
        "are both member 3: one of them is a copy",
        "leave the copy out",
    );
    site.dcd(
        "volume import --cache-disk new --cache-size 16M --data-disk m2 --data-disk m3 --degraded",
    )
    .fails(1, "the twin of the tables is on members 0 and 1", "give one of these members");
    site.dcd(&format!("volume import --cache-disk m0 {MEMBERS}")).fails(1, "the same disk", "");
    site.dcd(&format!("volume import --cache-disk new {MEMBERS}")).fails(1, "new", "--cache-size");
    assert!(!site.path("new").exists());
    for (member, before) in before.iter().enumerate() {
        let now = fs::read(site.path(&format!("m{member}"))).unwrap();
        assert!(now == *before, "member {member} was written to");
    }
    // Damage to both roots of one holder: the other has it. To both holders': refused.
    site.dcd(&line).ok();

    let without = made("twin = false\n");
    let daemon = serve(&without, "c", "");
    assert_eq!(twin(&without), Value::Null);
    daemon.kill();
    fs::remove_file(without.path("c")).unwrap();
    without.dcd(&line).fails(1, "tells of a twin", "the cache-disk alone");
}
