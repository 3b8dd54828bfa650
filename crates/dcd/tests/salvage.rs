//! Cache-disks that no start takes, and what `dcd salvage` finds on them: everything that is whole,
//! and never an older copy for a newer one without saying so.

mod harness;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use harness::nbd::Client;
use harness::random::Random;
use harness::{Site, Value, seed};

const LINE: u64 = 4096;
/// Where the checkpoint areas of a cache of 64 MiB are, and how long each is.
const AREAS: [u64; 2] = [131_072, 655_360];
const AREA_BYTES: u64 = 524_288;
/// Nothing is destaged by itself.
const LAZY: &str = "--idle-min 100s --idle-max 100s";

/// Line `index` in its version `version`; version 0 is what a new disk holds.
fn line(index: u64, version: u64) -> Vec<u8> {
    match version {
        0 => vec![0; LINE as usize],
        _ => [index, version].map(u64::to_le_bytes).concat().repeat(LINE as usize / 16),
    }
}

/// A closed cache of 64 MiB with `lines` dirty lines, every other one of the disk.
fn dirty(lines: u64) -> Site {
    let site = Site::with("64M", 64 << 20, "");
    let daemon = site.serve(LAZY);
    let mut client = Client::connect(&site.socket());
    for index in 0..lines {
        client.write(2 * index * LINE, &line(index, 1)).unwrap();
    }
    client.flush().unwrap();
    daemon.stop();
    site
}

fn cache(site: &Site) -> File {
    File::options().read(true).write(true).open(site.path("c")).unwrap()
}

fn superblock(site: &Site) -> Value {
    let shown = site.dcd("inspect superblock --cache-disk c --json").ok();
    let copies: Value = serde_json::from_str(&shown).expect("JSON");
    copies[0]["superblock"].clone()
}

fn salvage(site: &Site, flags: &str) -> (Option<i32>, Value) {
    let outcome = site.dcd(&format!("salvage --cache-disk c --json {flags}"));
    (outcome.code, serde_json::from_str(&outcome.stdout).expect("JSON"))
}

/// Flips a bit of the slot that holds this line, wherever it is in the log.
fn damage(site: &Site, line: &[u8]) {
    let bytes = fs::read(site.path("c")).unwrap();
    let at = (0..bytes.len()).step_by(LINE as usize).find(|at| bytes[*at..].starts_with(line));
    site.flip("c", at.expect("it is in the log") as u64 + 17, 1);
}

/// Ranges of that kind, in lines.
fn lines_of(found: &Value, kind: &str) -> Vec<u64> {
    let ranges = found["ranges"].as_array().unwrap();
    let number = |range: &Value, name: &str| range[name].as_u64().unwrap();
    let of_kind = ranges.iter().filter(|range| range["kind"] == kind);
    of_kind
        .flat_map(|range| {
            let start = number(range, "offset") / LINE;
            start..start + number(range, "bytes").div_ceil(LINE)
        })
        .collect()
}

#[test]
fn a_flipped_bit_in_the_newest_checkpoint_costs_nothing() {
    let site = dirty(1000);
    let untouched = fs::read(site.path("c")).unwrap();
    // The line, the slot and the checksum of an item; and a bit of the header of one, with which
    // the other counts.
    for (areas, at, bits) in [(0, 1), (3, 4), (8, 1), (10, 2), (13, 0x80), (15, 1)]
        .map(|(byte, bits)| (&AREAS[..], 4096 + 600 * 16 + byte, bits))
        .into_iter()
        .chain(AREAS.chunks(1).map(|area| (area, 33, 1)))
    {
        fs::write(site.path("c"), &untouched).unwrap();
        for area in areas {
            site.flip("c", area + at, bits);
        }
        let (code, found) = salvage(&site, "--to out");
        assert_eq!(code, Some(0), "byte {at}: {found}");
        let out = File::open(site.path("out")).unwrap();
        for index in 0..1000 {
            let mut bytes = vec![0; LINE as usize];
            out.read_exact_at(&mut bytes, 2 * index * LINE).unwrap();
            assert!(bytes == line(index, 1), "byte {at}: line {index}");
        }
        fs::remove_file(site.path("out")).unwrap();
    }
    // It goes to the data-disk as well, and what was there beside it stays.
    let (code, found) = salvage(&site, "--data-disk d");
    assert_eq!((code, found["written_bytes"].as_u64()), (Some(0), Some(1000 * LINE)));
    let data = fs::read(site.path("d")).unwrap();
    for (index, pair) in data.chunks_exact(2 * LINE as usize).enumerate() {
        let version = u64::from(index < 1000);
        assert!(pair[..LINE as usize] == line(index as u64, version), "line {index}");
        assert!(pair[LINE as usize..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn no_start_takes_what_salvage_is_for_and_the_hint_names_it() {
    let site = dirty(300);
    for area in AREAS {
        site.flip("c", area + 4096 + 100, 1);
    }
    for flags in ["", "--accept-damage"] {
        let refused = site.dcd(&format!("serve --cache-disk c --data-disk d --nbd unix:s {flags}"));
        assert_eq!(refused.code, Some(1), "{}", refused.stderr);
        assert!(refused.stderr.contains("dcd salvage"), "{}", refused.stderr);
    }
    // A volume's blocks, a wrong disk and a file that is there are refused, and nothing is written.
    fs::write(site.path("small"), [7; 4096]).unwrap();
    let wrong = site.dcd("salvage --cache-disk c --data-disk small");
    assert!(wrong.code == Some(1) && wrong.stderr.contains("--to"), "{}", wrong.stderr);
    let there = site.dcd("salvage --cache-disk c --to small");
    assert!(there.code == Some(1) && there.stderr.contains("small"), "{}", there.stderr);
    assert_eq!(fs::read(site.path("small")).unwrap(), [7; 4096]);
}

/// What a daemon writes to changes while it is read: who has it is told, and what to do.
#[test]
fn a_cache_that_is_served_is_not_salvaged() {
    let site = dirty(10);
    let daemon = site.serve(LAZY);
    let told = format!("process {} has it", daemon.pid().as_raw_nonzero());
    for flags in ["", "--to out", "--data-disk d"] {
        let way = format!("kill {}", daemon.pid().as_raw_nonzero());
        site.dcd(&format!("salvage --cache-disk c {flags}")).fails(1, &told, &way);
    }
    assert!(!site.path("out").exists());
    daemon.stop();
    assert_eq!(salvage(&site, "--to out").0, Some(0));
}

/// A cache-disk that was cut off and has its size again, or only the front of which was copied.
#[test]
fn a_cache_disk_that_was_shorter_is_never_healthy_again() {
    for kept_bytes in [0, 20 << 20, 2 << 20, 1 << 20] {
        let site = dirty(1000);
        // The mark alone, which lies behind the last segment, or more.
        let mark = superblock(&site)["end_mark_offset"].as_u64().unwrap();
        let kept_bytes = if kept_bytes == 0 { mark } else { kept_bytes };
        cache(&site).set_len(kept_bytes).unwrap();
        let short = site.dcd("serve --cache-disk c --data-disk d --nbd unix:s");
        assert_eq!(short.code, Some(1), "{}", short.stderr);
        assert!(!short.stderr.contains("old size"), "a hint that loses data: {}", short.stderr);
        // Below its superblocks, too, it is no place for a new cache.
        let kept = fs::read(site.path("c")).unwrap();
        cache(&site).set_len(3000).unwrap();
        for verb in ["serve --nbd unix:s --data-disk d", "check"] {
            let short = site.dcd(&format!("{verb} --cache-disk c"));
            assert!(short.stderr.contains("bring it back as it was"), "{}", short.stderr);
        }
        fs::write(site.path("c"), kept).unwrap();
        cache(&site).set_len(64 << 20).unwrap();
        let check = site.dcd("check --cache-disk c");
        assert_eq!(check.code, Some(4), "{}", check.stdout);
        let again = site.dcd("serve --cache-disk c --data-disk d --nbd unix:s");
        assert_eq!(again.code, Some(1), "{kept_bytes} bytes kept");
        assert!(again.stderr.contains("end of the cache-disk"), "{}", again.stderr);
        let (_, found) = salvage(&site, "--to out");
        assert_eq!(found["end_mark_lost"], true);
        let out = fs::read(site.path("out")).unwrap();
        for at in lines_of(&found, "certain") {
            let bytes = &out[(at * LINE) as usize..][..LINE as usize];
            assert!(at % 2 == 0 && bytes == line(at / 2, 1), "line {at}");
        }
        // Nothing is forgotten: the checkpoint of an orderly end is whole, and lists what is lost.
        let told = ["certain", "uncertain", "lost"].map(|kind| lines_of(&found, kind).len());
        assert_eq!(told.iter().sum::<usize>(), 1000, "{told:?}");
    }
}

/// Where nothing is left that tells what there was, nothing is certain.
#[test]
fn what_cannot_be_listed_is_no_success() {
    let site = dirty(100);
    cache(&site).set_len(128 << 10).unwrap();
    let (code, found) = salvage(&site, "--to out");
    assert_eq!((code, &found["has_unlisted_loss"]), (Some(4), &Value::Bool(true)), "{found}");
    let outcome = site.dcd("salvage --cache-disk c");
    outcome.fails(4, "more may be lost than can be listed", "backup");
}

/// A line that was written above zeroes and is damaged is neither those nor anything older.
#[test]
fn what_is_lost_above_zeroes_is_left_as_it_is() {
    let site = Site::with("64M", 64 << 20, "");
    let daemon = site.serve(LAZY);
    let mut client = Client::connect(&site.socket());
    client.trim(256 * LINE, 256 * LINE as usize).unwrap();
    client.flush().unwrap();
    for index in [130, 140] {
        client.write(2 * index * LINE, &line(index, 1)).unwrap();
    }
    client.flush().unwrap();
    daemon.stop();
    damage(&site, &line(140, 1));
    fs::write(site.path("copy"), vec![0xAA; 64 << 20]).unwrap();
    let (code, found) = salvage(&site, "--data-disk copy");
    assert_eq!(code, Some(4), "{found}");
    assert_eq!(lines_of(&found, "lost"), [280]);
    assert!(!lines_of(&found, "zeroes").contains(&280), "{found}");
    let copy = fs::read(site.path("copy")).unwrap();
    let at = |line: u64| &copy[(line * LINE) as usize..][..LINE as usize];
    assert!(at(280).iter().all(|byte| *byte == 0xAA), "what is lost is not overwritten");
    assert!(at(260) == line(130, 1) && at(279) == line(0, 0) && at(281) == line(0, 0));
}

#[test]
fn where_the_newest_copy_is_damaged_no_older_one_is_taken() {
    let site = dirty(300);
    let daemon = site.serve(LAZY);
    let mut client = Client::connect(&site.socket());
    for index in 0..300 {
        client.write(2 * index * LINE, &line(index, 2)).unwrap();
    }
    client.flush().unwrap();
    daemon.stop();
    // The newest copy of line 42, wherever it is.
    damage(&site, &line(42, 2));
    zero_checkpoints(&site);
    let (code, found) = salvage(&site, "--to out --take-uncertain");
    assert_eq!(code, Some(4), "{found}");
    assert_eq!(lines_of(&found, "lost"), [84]);
    let out = fs::read(site.path("out")).unwrap();
    assert!(out[84 * LINE as usize..][..LINE as usize] == line(42, 0), "neither version");
    for index in (0..300).filter(|index| *index != 42) {
        let bytes = &out[(2 * index * LINE) as usize..][..LINE as usize];
        assert!(bytes == line(index, 2), "line {index}");
    }
}

fn zero_checkpoints(site: &Site) {
    for area in AREAS {
        cache(site).write_all_at(&vec![0; AREA_BYTES as usize], area).unwrap();
    }
}

fn set(site: &Site, setting: &str) {
    site.dcd(&format!("set --control ctl {setting}")).ok();
}

/// Whatever was written past the log, or through nothing at all, is on the data-disk, and no record
/// speaks of it: without a checkpoint what is in the log may be older, however whole it is.
#[test]
fn without_a_checkpoint_nothing_is_certain() {
    for way in ["pass-through", "write-around", "detach"] {
        let site = Site::with("64M", 64 << 20, "");
        let flags = "--idle-min 5ms --idle-max 20ms";
        let daemon = site.serve(flags);
        let mut client = Client::connect(&site.socket());
        let write = |client: &mut Client, count, version| {
            for index in 0..count {
                client.write(index * LINE, &line(index, version)).unwrap();
            }
            client.flush().unwrap();
        };
        write(&mut client, 300, 1);
        let daemon = match way {
            "detach" => {
                drop(client);
                daemon.stop();
                site.dcd("detach --cache-disk c --data-disk d --memory-directory .").ok();
                let disk = File::options().write(true).open(site.path("d")).unwrap();
                for index in 0..100 {
                    disk.write_all_at(&line(index, 2), index * LINE).unwrap();
                }
                site.serve(flags)
            }
            mode => {
                set(&site, &format!("mode={mode}"));
                write(&mut client, 100, 2);
                daemon
            }
        };
        daemon.kill();
        let killed = fs::read(site.path("c")).unwrap();
        // With any checkpoint none of it is there any more.
        for area in AREAS {
            fs::write(site.path("c"), &killed).unwrap();
            site.flip("c", area + 33, 1);
            let (_, found) = salvage(&site, "");
            let certain = lines_of(&found, "certain");
            assert!(certain.iter().all(|at| *at >= 100), "{way}: {found}");
        }
        fs::write(site.path("c"), &killed).unwrap();
        zero_checkpoints(&site);
        let (code, found) = salvage(&site, "--to out");
        assert_eq!((code, &found["has_unlisted_loss"]), (Some(4), &Value::Bool(true)), "{way}");
        assert_eq!(found["certain_bytes"], 0, "{way}: {found}");
        assert_eq!(found["written_bytes"], 0, "{way}: {found}");
        assert!(lines_of(&found, "uncertain").len() >= 100, "{way}: {found}");
    }
}

/// The first of the log is as lost as anything between.
#[test]
fn without_a_checkpoint_it_is_told_that_the_first_records_are_missing() {
    let site = dirty(1000);
    zero_checkpoints(&site);
    let start = superblock(&site)["segments_offset"].as_u64().unwrap();
    let (code, whole) = salvage(&site, "");
    assert_eq!((code, &whole["records_missing"]), (Some(4), &Value::from(0)), "{whole}");
    cache(&site).write_all_at(&vec![0; 1 << 20], start).unwrap();
    let (code, found) = salvage(&site, "");
    assert_eq!(code, Some(4), "{found}");
    assert_eq!(found["has_unlisted_loss"], true, "{found}");
    let records = |found: &Value| found["records"].as_u64().unwrap();
    let missing = found["records_missing"].as_u64().unwrap();
    assert!(missing > 0 && missing + records(&found) == records(&whole), "{found}");
}

/// Segments that were filled again and again, killed at some moment, without any checkpoint: what
/// is neither found nor called lost is on the data-disk.
#[test]
fn without_a_checkpoint_an_aged_log_tells_what_is_uncertain() {
    let mut random = Random::new(seed());
    let site = Site::with("5M --segment-size 64k", 16 << 20, "");
    let daemon = site.serve("--idle-min 5ms --idle-max 20ms");
    let mut client = Client::connect(&site.socket());
    let mut versions = vec![0; 4096];
    for version in 1..=12_000 {
        let index = random.below(2500);
        client.write(index * LINE, &line(index, version)).unwrap();
        versions[index as usize] = version;
    }
    client.flush().unwrap();
    daemon.kill();
    let copy = superblock(&site);
    let number = |value: &Value| value.as_u64().expect("a number");
    let first = number(&copy["checkpoint_offsets"][0]);
    let end = number(&copy["segments_offset"]);
    cache(&site).write_all_at(&vec![0; (end - first) as usize], first).unwrap();
    let (_, found) = salvage(&site, "--to out --take-uncertain");
    let (out, data) = (fs::read(site.path("out")).unwrap(), fs::read(site.path("d")).unwrap());
    let content = |disk: &[u8], at: u64| disk[(at * LINE) as usize..][..LINE as usize].to_vec();
    let newest = |at: u64| line(at, versions[at as usize]);
    let certain = lines_of(&found, "certain");
    let uncertain = lines_of(&found, "uncertain");
    assert!(certain.is_empty() && lines_of(&found, "lost").is_empty(), "{found}");
    for at in 0..4096 {
        let is_told = uncertain.contains(&at);
        assert!(is_told || content(&data, at) == newest(at), "line {at} is nowhere");
        let is_found = content(&out, at) == newest(at) || content(&data, at) == newest(at);
        assert!(is_found, "line {at}: its newest copy is on neither");
    }
}
