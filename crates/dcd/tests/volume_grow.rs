//! Proves on the real program that a volume grows while it is served: under load, killed at any
//! moment, and behind the loss of its cache-disk; and that what cannot be is refused with a hint
//! and nothing written.

mod harness;

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use harness::nbd::Client;
use harness::random::{Random, sum_of_file};
use harness::{Daemon, Site, Value, cycles, seed, until};

const MIB: u64 = 1 << 20;
const RAID5: &str = "extent = \"64k\"\ntwin = true\njournal = \"2M\"\n[[set]]\nlevel = 5\n";
const TIERED: &str = "extent = \"64k\"\ntwin = false\njournal = \"2M\"\n\
    [[set]]\nlevel = 1\nshare = \"30%\"\ncopies = 2\n\
    [[set]]\nlevel = 0\n";
const MEMBERS: &str = "--data-disk m0 --data-disk m1 --data-disk m2 --data-disk m3";

fn made(config: &str) -> Site {
    let site = Site::empty();
    for member in 0..4 {
        site.folder.disk(&format!("m{member}"), 24 * MIB);
    }
    fs::write(site.path("v.toml"), config).unwrap();
    let create = format!("create --cache-disk c --cache-size 32M {MEMBERS} --volume v.toml");
    site.dcd(&create).ok();
    site
}

fn serve(site: &Site) -> Daemon {
    let line = format!(
        "serve --cache-disk c {MEMBERS} --nbd unix:sock --control ctl --memory-directory . --quiet \
         --idle-max 20ms"
    );
    site.start_line(&line).ready()
}

fn volume(site: &Site) -> Value {
    serde_json::from_str(&site.dcd("volume status --control ctl --json").ok()).unwrap()
}

fn size(site: &Site) -> u64 {
    volume(site)["volume_bytes"].as_u64().unwrap()
}

fn enlarge(site: &Site, name: &str, by: u64) {
    let file = File::options().write(true).open(site.path(name)).unwrap();
    file.set_len(file.metadata().unwrap().len() + by).unwrap();
}

fn enlarge_all(site: &Site) {
    (0..4).for_each(|member| enlarge(site, &format!("m{member}"), 8 * MIB));
    enlarge(site, "c", 8 * MIB);
}

fn content(round: u64, offset: u64) -> Vec<u8> {
    (0..8192).flat_map(|at| (offset ^ at ^ round << 40).to_le_bytes()).collect()
}

/// Everywhere a piece of 64 KiB for each MiB.
fn write(site: &Site, round: u64, bytes: u64) {
    let mut client = Client::connect(&site.socket());
    for offset in (0..bytes - MIB).step_by(MIB as usize) {
        client.write(offset, &content(round, offset)).unwrap();
    }
    client.flush().unwrap();
}

fn verify(site: &Site, round: u64, bytes: u64, what: &str) {
    let mut client = Client::connect(&site.socket());
    for offset in (0..bytes - MIB).step_by(MIB as usize) {
        let found = client.read(offset, 65_536);
        let is_it = found.is_ok_and(|found| found == content(round, offset));
        assert!(is_it, "{what}, round {round}, at {offset}");
    }
}

/// Writes where nobody looks, a MiB, until it is over or nobody answers any more.
fn load(socket: &Path, start: u64, is_over: &AtomicBool) {
    let Ok(mut client) = Client::try_connect(socket) else { return };
    for at in 0.. {
        let piece = start + at % 15 * 65_536;
        let is_done = client.write(piece, &content(at, piece)).and_then(|()| client.flush());
        if is_done.is_err() || is_over.load(Ordering::Relaxed) {
            return;
        }
    }
}

#[test]
fn a_volume_grows_under_load_and_is_killed_meanwhile() {
    let site = made(RAID5);
    let mut random = Random::new(seed());
    let mut daemon = Some(serve(&site));
    let mut bytes = size(&site);
    for round in 1..=cycles(4, 40) {
        write(&site, round, bytes);
        enlarge_all(&site);
        let is_over = Arc::new(AtomicBool::new(false));
        let load = thread::spawn({
            let (socket, is_over) = (site.socket(), is_over.clone());
            move || load(&socket, bytes - MIB, &is_over)
        });
        let told = thread::scope(|scope| {
            let grows = scope.spawn(|| site.dcd("volume grow --control ctl"));
            if round % 2 == 0 {
                thread::sleep(Duration::from_millis(random.below(150)));
                daemon.take().unwrap().kill();
            }
            grows.join().unwrap()
        });
        is_over.store(true, Ordering::Relaxed);
        load.join().unwrap();
        match &daemon {
            None => daemon = Some(serve(&site)),
            Some(_) => assert!(told.ok().starts_with("grown: from ")),
        }
        let found = size(&site);
        assert!(found >= bytes && (round % 2 == 0 || found > bytes), "{found} after {bytes}");
        verify(&site, round, bytes, "behind a growth");
        bytes = found;
    }
    // All that the disks have.
    enlarge_all(&site);
    site.dcd("volume grow --control ctl").ok();
    let all = size(&site);
    assert!(all > bytes);
    write(&site, 77, all);
    site.dcd("drain --control ctl").ok();
    until("the twin is whole", || {
        let twin = volume(&site)["twin"].clone();
        let has_two = twin["holders"].as_array().is_some_and(|holders| holders.len() == 2);
        (has_two && twin["regions_marked"] == 0).then_some(())
    });
    site.dcd("volume scrub --control ctl").ok();
    daemon.unwrap().stop();
    site.dcd("check --cache-disk c").ok();
    let shown = site.dcd("inspect volume --cache-disk c --json").ok();
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["volume_bytes"], all, "{shown}");
    let daemon = serve(&site);
    verify(&site, 77, all, "behind a stop");
    daemon.kill();
    // Without its cache-disk, and without a member.
    fs::remove_file(site.path("c")).unwrap();
    let import = format!("volume import --cache-disk c --cache-size 64M {MEMBERS}");
    site.dcd(&import).ok();
    let daemon = serve(&site);
    assert_eq!(size(&site), all);
    verify(&site, 77, all, "behind an import");
    site.dcd("volume fail 1 --control ctl").ok();
    verify(&site, 77, all, "without a member");
    daemon.stop();
}

#[test]
fn another_set_gets_a_slice_of_its_own() {
    let site = made(TIERED);
    let daemon = serve(&site);
    let bytes = size(&site);
    write(&site, 1, bytes);
    enlarge_all(&site);
    let wanted = bytes + 4 * MIB;
    site.dcd(&format!("volume grow --set 0 --size {wanted} --control ctl")).ok();
    let report = volume(&site);
    assert_eq!(
        (report["volume_bytes"].as_u64(), &report["sets"][2]["level"]),
        (Some(wanted), &1.into())
    );
    assert_eq!(report["growth"]["state"], "grown", "{report}");
    verify(&site, 1, bytes, "behind it");
    // And what the sets hold besides.
    site.dcd("volume grow --control ctl").ok();
    let all = size(&site);
    assert!(all > wanted);
    write(&site, 2, all);
    daemon.kill();
    let daemon = serve(&site);
    verify(&site, 2, all, "behind a kill");
    daemon.stop();
}

#[test]
fn what_cannot_be_is_refused_and_nothing_is_written() {
    let site = made(RAID5);
    let daemon = serve(&site);
    let bytes = size(&site);
    write(&site, 1, bytes);
    site.dcd("drain --control ctl").ok();
    until("nothing is left to be written", || {
        (volume(&site)["twin"]["regions_marked"] == 0).then_some(())
    });
    let names = ["c", "m0", "m1", "m2", "m3"];
    let sums = || names.map(|name| sum_of_file(&site.path(name)));
    let before = sums();
    let grow = |words: &str| site.dcd(&format!("volume grow {words} --control ctl"));
    grow("").fails(1, "member 0 has 25165824 bytes, and at least", "dcd volume replace");
    (0..3).for_each(|member| enlarge(&site, &format!("m{member}"), 8 * MIB));
    grow("").fails(1, "member 3 has 25165824 bytes", "lvextend");
    enlarge(&site, "m3", 8 * MIB);
    grow("").fails(1, "the cache-disk has 33554432 bytes, and its tables need", "lvextend");
    grow("--set 4").fails(1, "the volume has no set 4, but 1", "`dcd volume status` lists");
    grow("--size 1M").fails(1, "cannot shrink to 1048576", "larger --size");
    grow("--size 1T").fails(1, "and 1099511627776 are wanted", "smaller --size");
    grow("--size 9X").fails(2, "9X", "");
    for member in 0..4 {
        let file = File::options().write(true).open(site.path(&format!("m{member}"))).unwrap();
        file.set_len(24 * MIB).unwrap();
    }
    assert_eq!(sums(), before);
    site.dcd("volume fail 2 --control ctl").ok();
    grow("").fails(1, "member 2 is not there, or not up to date", "rebuild");
    daemon.stop();
    let site = Site::new("16M", 16 * MIB);
    let daemon = site.serve("");
    site.dcd("volume grow --control ctl").fails(1, "", "");
    daemon.stop();
}
