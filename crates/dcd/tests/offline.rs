//! What is read from a cache-disk without a daemon (`dcd check`, `dcd inspect`, `dcd probe`) is
//! what a start would find: after a kill, a line that is not listed as dirty is on the data-disk as
//! it was flushed, one that is listed as zeroes is zeroes, and a start finds as many and shows all
//! of it.
//!
//! ```text
//! full cache, small segments:  data over zeroes over data, destaged meanwhile, segments announced and
//!                              filled again without a checkpoint, discards that cut what is listed
//! ```

mod harness;

use std::fs;

use harness::nbd::Client;
use harness::random::Random;
use harness::{Site, Value, cycles, seed};

const LINE: usize = 4096;
const DISK_BYTES: u64 = 16 << 20;
const LINES: u64 = DISK_BYTES / LINE as u64;

/// What a line holds after change `version`; 0 is zeroes.
fn line(index: u64, version: u64) -> Vec<u8> {
    match version {
        0 => vec![0; LINE],
        _ => [index, version].map(u64::to_le_bytes).concat().repeat(LINE / 16),
    }
}

/// Kind of each line that `dcd inspect dirty` lists.
fn listed(site: &Site) -> Vec<Option<String>> {
    let shown = site.dcd("inspect dirty --cache-disk c --json").ok();
    let found: Value = serde_json::from_str(&shown).expect("JSON");
    let mut kinds = vec![None; LINES as usize];
    for range in found["ranges"].as_array().expect("ranges") {
        let number = |name: &str| range[name].as_u64().expect("a number") as usize;
        let (first, lines) = (number("offset") / LINE, number("bytes").div_ceil(LINE));
        let kind = range["kind"].as_str().expect("a kind").to_owned();
        kinds[first..first + lines].fill(Some(kind));
    }
    kinds
}

/// Writes, zeroes and discards, mostly where there were some before.
fn change(client: &mut Client, model: &mut [u64], version: &mut u64, random: &mut Random) {
    let place = if random.below(4) == 0 { random.below(LINES) } else { random.below(LINES / 4) };
    let lines = (1 + random.below(6)).min(LINES - place);
    let (offset, length) = (place * LINE as u64, lines as usize * LINE);
    let range = place as usize..(place + lines) as usize;
    if random.below(5) == 0 {
        client.trim(offset, length).unwrap();
        model[range].fill(0);
        return;
    }
    *version += 1;
    let data: Vec<u8> = (place..place + lines).flat_map(|index| line(index, *version)).collect();
    client.write(offset, &data).unwrap();
    model[range].fill(*version);
}

/// A hole in a volume is no data that was moved, however large.
#[test]
fn what_was_discarded_is_not_called_moved() {
    for way in ["detach --control ctl", "drain --control ctl", "offline"] {
        let site = Site::with("4M", 64 << 20, "--segment-size 64k");
        let daemon = site.serve("--idle-min 100s --idle-max 100s");
        let mut client = Client::connect(&site.socket());
        client.trim(8 << 20, 32 << 20).unwrap();
        client.write(0, &[1; LINE]).unwrap();
        client.flush().unwrap();
        drop(client);
        let told = match way {
            "offline" => {
                daemon.stop();
                site.dcd("detach --cache-disk c --data-disk d --memory-directory . --json").ok()
            }
            way => {
                let told = site.dcd(&format!("{way} --json")).ok();
                daemon.kill();
                told
            }
        };
        let json: Value = serde_json::from_str(&told).expect("JSON");
        let words = json["done"].as_str().unwrap();
        assert_eq!(
            (&json["moved_bytes"], &json["zeroed_bytes"]),
            (&4096.into(), &(32 << 20).into())
        );
        assert!(words.contains("4 KiB moved") && words.contains(", 32 MiB zeroed"), "{words}");
    }
}

fn lose_memory(site: &Site) {
    for entry in fs::read_dir(site.path("")).unwrap().map(Result::unwrap) {
        if entry.file_name().to_string_lossy().ends_with(".segments") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
}

#[test]
fn what_is_listed_without_a_daemon_is_what_a_start_finds() {
    let mut random = Random::new(seed());
    let (mut in_log, mut zeroes, mut at_home) = (0, 0, 0);
    let rounds = cycles(4, 20);
    // What a kill finds destaged already is a matter of pace, so there are as many rounds as show
    // each kind often enough, and a fixed number at least.
    let is_shown = |in_log, zeroes, at_home| in_log > 1000 && zeroes > 10 && at_home > 1000;
    for round in 0.. {
        if round >= rounds && is_shown(in_log, zeroes, at_home) {
            break;
        }
        assert!(round < 4 * rounds, "shown too seldom: {in_log} {zeroes} {at_home}");
        let site = Site::with("3M", DISK_BYTES, "--segment-size 64k");
        let (mut model, mut version) = (vec![0; LINES as usize], 0);
        // Destaged only when there is no room, and whenever the disk rests.
        let pace = ["--idle-min 100s --idle-max 100s", "--idle-min 1ms --idle-max 5ms"];
        for _ in 0..3 {
            let daemon = site.serve(pace[round as usize % 2]);
            let mut client = Client::connect(&site.socket());
            for _ in 0..300 + random.below(600) {
                change(&mut client, &mut model, &mut version, &mut random);
            }
            client.flush().unwrap();
            daemon.kill();
            let raw = fs::read(site.path("d")).unwrap();
            let listed = listed(&site);
            for (index, kind) in listed.iter().enumerate() {
                let should = line(index as u64, model[index]);
                let is_home = raw[index * LINE..][..LINE] == should;
                let what = format!("line {index}, version {} in round {round}", model[index]);
                match kind.as_deref() {
                    None => assert!(is_home, "{what}: neither listed nor on the data-disk"),
                    Some("zeroes") => assert_eq!(model[index], 0, "{what}: listed as zeroes"),
                    Some(kind) => assert_eq!(kind, "data", "{what}"),
                }
                in_log += u64::from(kind.as_deref() == Some("data"));
                zeroes += u64::from(kind.as_deref() == Some("zeroes") && !is_home);
                at_home += u64::from(kind.is_none() && model[index] > 0);
            }
            // The log alone, as it was read: the memory may announce what is not written yet.
            lose_memory(&site);
            let daemon = site.serve(&format!("{} --memory-lost", pace[0]));
            let found = site.status()["recovery"]["dirty_lines"].as_u64().unwrap();
            let of_data =
                listed.iter().filter(|kind| kind.as_deref() == Some("data")).count() as u64;
            assert_eq!(of_data, found, "lines that a start has found in round {round}");
            let mut client = Client::connect(&site.socket());
            for first in (0..LINES).step_by(256) {
                let shown = client.read(first * LINE as u64, 256 * LINE).unwrap();
                for (index, shown) in (first..).zip(shown.chunks(LINE)) {
                    let version = model[index as usize];
                    assert!(shown == line(index, version), "line {index} in round {round}");
                }
            }
            daemon.kill();
        }
    }
}
