//! Conversations with whole disks: what rotation, queue, buffer and immediate report must come to.

use std::path::Path;

use proptest::prelude::*;

use super::*;

/// 10 ms a turn, 50 sectors: 0.2 ms a sector. Seeks 1 ms + 0.1 * sqrt(d). No overhead.
fn profile(more: &str) -> Profile {
    let text = format!(
        r#"
title = "small"
[mechanical.geometry]
sector_bytes = 512
surfaces = 2
rpm = 6000
[[mechanical.geometry.zone]]
first_cylinder = 0
last_cylinder = 999
sectors_per_track = 50
track_skew = 5
cylinder_skew = 10
[mechanical.seek]
curve = {{ short_ms = [1.0, 0.1], long_ms = [2.0, 0.005], long_from = 400 }}
head_switch_ms = 0.8
[mechanical.bus]
bytes_per_second = 512e6
{more}
"#
    );
    Profile::parse(Path::new("small.toml"), &text).unwrap()
}

fn disk(more: &str) -> DiskModel {
    DiskModel::new(&profile(more), 0).unwrap()
}

fn request(operation: DiskOperation, sector: u64, sectors: u64) -> DiskRequest {
    DiskRequest { id: sector, operation, offset_bytes: sector * 512, size_bytes: sectors * 512 }
}

fn read(sector: u64, sectors: u64) -> DiskRequest {
    request(DiskOperation::Read, sector, sectors)
}

fn write(sector: u64, sectors: u64) -> DiskRequest {
    request(DiskOperation::Write, sector, sectors)
}

const MS: u64 = 1_000_000;

/// Time a request takes that begins at `at_us`.
fn takes_us(disk: &mut DiskModel, at_us: u64, request: DiskRequest) -> u64 {
    let at = Time(at_us * 1_000);
    disk.serve(at, request).unwrap().completed.since(at).0 / 1_000
}

#[test]
fn a_sector_is_read_when_it_comes_round() {
    // Sector 10 begins 2 ms after the turn does, and takes 0.2 ms; one sector on the bus takes 1
    // us.
    assert_eq!(takes_us(&mut disk(""), 0, read(10, 1)), 2_201);
    assert_eq!(takes_us(&mut disk(""), 2_100, read(10, 1)), 10_101);
    // The other track: head switch 0.8 ms, then the skew of five sectors: sector 0 there comes at 1
    // ms.
    assert_eq!(takes_us(&mut disk(""), 0, read(50, 1)), 1_201);
    // Over the end of the track: skew is more than the head switch, so no turn is lost.
    assert_eq!(takes_us(&mut disk(""), 0, read(40, 20)), 8_000 + 2_000 + 1_000 + 2_000 + 1);
}

#[test]
fn the_mean_rotational_latency_is_half_a_turn() {
    let mut disk = disk("");
    let mut sum = 0;
    let count = 2_000;
    for n in 0..count {
        // On the track, at moments that have nothing to do with a turn.
        let start_us = n * 1_000_000 + n * n * 7_919 % 10_007;
        sum += takes_us(&mut disk, start_us, read(n * 17 % 50, 1)) - 201;
    }
    let mean = sum as f64 / count as f64;
    assert!((mean - 5_000.0).abs() < 100.0, "{mean}");
}

#[test]
fn what_was_read_ahead_is_there_at_once() {
    let cache = "[mechanical.cache]\nsegments = 2\nsegment_sectors = 100\nread_ahead_sectors = 30";
    let mut disk = disk(cache);
    assert_eq!(takes_us(&mut disk, 0, read(0, 5)), 1_001);
    // Five milliseconds later 25 more sectors have been read: only the bus takes time.
    assert_eq!(takes_us(&mut disk, 6_001, read(5, 10)), 10);
    // Reading ahead went on meanwhile; sector 35 ends at 7.2 ms.
    assert_eq!(takes_us(&mut disk, 6_100, read(33, 3)), 1_101);
    // What was written is not read from what the buffer had before.
    let written = disk.serve(Time(19 * MS), write(0, 1)).unwrap().completed;
    assert_eq!(written, Time(20 * MS + 200_000));
    assert_eq!(takes_us(&mut disk, 20_200, read(0, 1)), 10_001);
}

#[test]
fn reading_ahead_may_end_with_the_track() {
    let cache = "[mechanical.cache]\nsegments = 1\nsegment_sectors = 100\nread_ahead_sectors = 60\n\
                 read_ahead_end = \"track\"";
    let mut disk = disk(cache);
    takes_us(&mut disk, 0, read(0, 5));
    assert_eq!(takes_us(&mut disk, 50_000, read(40, 10)), 10);
    // The next track must be gone to: sector 0 there comes at 1 ms of a turn.
    assert_eq!(takes_us(&mut disk, 60_010, read(50, 1)), 1_191);
}

#[test]
fn immediate_report_waits_for_room_only_and_flush_for_all() {
    let cache = "[mechanical.cache]\nimmediate_report = true\nimmediate_writes = 1";
    let mut disk = disk(cache);
    assert_eq!(takes_us(&mut disk, 0, write(10, 1)), 1);
    // The first is on the platters at 2.2 ms: the second waits for that, the third for the second,
    // which comes half a turn later.
    assert_eq!(takes_us(&mut disk, 100, write(35, 1)), 2_101);
    let flush = request(DiskOperation::Flush, 0, 0);
    assert_eq!(takes_us(&mut disk, 3_000, flush), 4_200);
    assert_eq!(takes_us(&mut disk, 8_000, flush), 0);
}

#[test]
fn a_zero_latency_write_begins_in_the_middle() {
    let with = |option: &str| {
        let mut profile = profile("");
        profile.mechanical.as_mut().unwrap().seek.zero_latency_writes = option == "zero";
        DiskModel::new(&profile, 0).unwrap()
    };
    // The data comes just after sector 10 of 0..40 has begun: it writes 11..40, and 0..11 when they
    // come round.
    assert_eq!(takes_us(&mut with("zero"), 2_000, write(0, 40)), 10_200);
    assert_eq!(takes_us(&mut with(""), 2_000, write(0, 40)), 8_000 + 8_000);
}

#[test]
fn a_slow_bus_is_waited_for() {
    // 0.4 ms a sector on the bus, 0.2 ms below the head.
    let slow = |start: &str| {
        let mut profile = profile("");
        let bus = &mut profile.mechanical.as_mut().unwrap().bus;
        bus.bytes_per_second = 512.0 / 0.4e-3;
        bus.read_start = if start == "all" { ReadStart::All } else { ReadStart::FirstSector };
        DiskModel::new(&profile, 0).unwrap()
    };
    assert_eq!(takes_us(&mut slow("first"), 0, read(0, 10)), 200 + 10 * 400);
    assert_eq!(takes_us(&mut slow("all"), 0, read(0, 10)), 2_000 + 10 * 400);
    // Ten sectors have come after 4 ms; writing may begin when the last comes in time: at 2.2 ms.
    // Sector 0 comes at 10 ms.
    assert_eq!(takes_us(&mut slow(""), 0, write(0, 10)), 12_000);
    assert_eq!(takes_us(&mut slow(""), 0, write(11, 10)), 2_200 + 2_000);
}

use super::super::profile::ReadStart;

/// Serves all requests, submitted at once; how long that takes.
fn makespan(policy: &str, sectors: &[u64]) -> u64 {
    let queue = format!("[mechanical.queue]\npolicy = \"{policy}\"\ndepth = 64");
    let mut disk = disk(&queue);
    for sector in sectors {
        disk.submit(Time::ZERO, read(*sector, 1)).unwrap();
    }
    let mut done = Vec::new();
    while let Some(event) = disk.next_event() {
        disk.advance(event, &mut done);
    }
    assert_eq!(done.len(), sectors.len());
    assert!(done.is_sorted_by_key(|done| done.completed));
    done.last().map_or(0, |done| done.completed.0)
}

proptest! {
    #[test]
    fn shortest_access_first_is_no_worse_than_first_come_first_served(
        sectors in prop::collection::vec(0u64..100_000, 30..60)
    ) {
        prop_assert!(makespan("satf", &sectors) <= makespan("fcfs", &sectors));
    }

    #[test]
    fn every_policy_serves_every_request(sectors in prop::collection::vec(0u64..100_000, 1..80)) {
        for policy in ["fcfs", "sstf", "c-scan", "satf", "weighted-satf"] {
            makespan(policy, &sectors);
        }
    }
}

/// The order in which reads of the cylinders are served that come while the arm is at cylinder 500.
fn order(policy: &str, cylinders: &[u64]) -> Vec<u64> {
    let queue = format!("[mechanical.queue]\npolicy = \"{policy}\"\ndepth = 64");
    let mut disk = disk(&queue);
    for cylinder in [500].iter().chain(cylinders) {
        disk.submit(Time::ZERO, read(cylinder * 100, 1)).unwrap();
    }
    let mut done = Vec::new();
    disk.advance(Time(10_000 * MS), &mut done);
    done.iter().skip(1).map(|done| done.id / 100).collect()
}

#[test]
fn each_policy_has_its_order() {
    let cylinders = [900, 510, 100, 490, 600];
    assert_eq!(order("fcfs", &cylinders), cylinders);
    assert_eq!(order("sstf", &cylinders), [510, 490, 600, 900, 100]);
    assert_eq!(order("c-scan", &cylinders), [510, 600, 900, 100, 490]);
}

#[test]
fn weighted_satf_lets_nobody_wait_for_ever() {
    // One far request, and near ones that keep coming.
    let waits = |policy: &str| {
        let queue =
            format!("[mechanical.queue]\npolicy = \"{policy}\"\ndepth = 64\nage_max_ms = 200");
        let mut disk = disk(&queue);
        for sector in [0, 10, 20, 30, 99_000] {
            disk.submit(Time::ZERO, read(sector, 1)).unwrap();
        }
        let mut done = Vec::new();
        for n in 0..2_000u64 {
            let now = disk.next_event().unwrap();
            disk.advance(now, &mut done);
            if let Some(far) = done.iter().find(|done| done.id == 99_000) {
                return far.completed.0 / MS;
            }
            disk.submit(now, read(2 + n * 7 % 40, 1)).unwrap();
            disk.submit(now, read(3 + n * 11 % 40, 1)).unwrap();
        }
        u64::MAX
    };
    assert!(waits("weighted-satf") < 400, "{}", waits("weighted-satf"));
    assert!(waits("satf") > 2_000, "{}", waits("satf"));
}

#[test]
fn a_flush_is_not_overtaken() {
    let queue = "[mechanical.queue]\npolicy = \"sstf\"\ndepth = 64";
    let mut disk = disk(queue);
    let flush = DiskRequest { id: 7, ..request(DiskOperation::Flush, 0, 0) };
    for request in [read(50_000, 1), write(90_000, 1), flush, read(50_001, 1)] {
        disk.submit(Time::ZERO, request).unwrap();
    }
    let mut done = Vec::new();
    disk.advance(Time(1_000 * MS), &mut done);
    let ids: Vec<u64> = done.iter().map(|done| done.id).collect();
    assert_eq!(ids, [50_000, 90_000, 7, 50_001]);
}

#[test]
fn requests_beyond_the_disk_are_refused() {
    let mut disk = disk("");
    let sectors = disk.capacity_bytes() / 512;
    assert_eq!(sectors, 100_000);
    for request in [read(sectors, 1), read(sectors - 1, 2)] {
        let refused = disk.submit(Time::ZERO, request).unwrap_err();
        assert!(matches!(refused, DiskRequestError::BeyondEnd { .. }));
    }
    let huge = DiskRequest { offset_bytes: u64::MAX, size_bytes: u64::MAX, ..read(0, 1) };
    assert!(disk.submit(Time::ZERO, huge).is_err());
    assert!(matches!(
        disk.submit(Time::ZERO, read(0, 0)).unwrap_err(),
        DiskRequestError::Empty { .. }
    ));
    assert_eq!(disk.next_event(), None);
}

#[test]
fn the_same_seed_gives_the_same_times() {
    for name in ["hp-97560", "sata-ssd"] {
        let profile = Profile::load(name).unwrap();
        let times = |seed| {
            let mut disk = DiskModel::new(&profile, seed).unwrap();
            let (mut now, mut times) = (Time::ZERO, Vec::new());
            for n in 0..200u64 {
                let request =
                    if n % 3 == 0 { write(n * 7_919, 8) } else { read(n * 104_729 % 2_000_000, 4) };
                now = disk.serve(now, request).unwrap().completed;
                times.push(now);
            }
            times
        };
        assert_eq!(times(5), times(5), "{name}");
        assert_ne!(times(5), times(6_000_000), "{name}");
    }
}

/// `dcd advise --seeds` takes seeds that follow one another.
#[test]
fn seeds_that_follow_one_another_turn_the_platters_far() {
    let profile = Profile::load("wd-4tb").unwrap();
    let done_ns = |seed| {
        let mut disk = DiskModel::new(&profile, seed).unwrap();
        disk.serve(Time::ZERO, read(1_000_000, 8)).unwrap().completed.0
    };
    let times: Vec<u64> = (0..10).map(done_ns).collect();
    let apart = |a: u64, b: u64| a.abs_diff(b) > MS / 10;
    assert!(apart(times[0], times[1]) && apart(times[1], times[2]), "{times:?}");
    // Of a turn of 11 ms.
    assert!(times.iter().max().unwrap() - times.iter().min().unwrap() > 5 * MS, "{times:?}");
}

#[test]
fn a_volume_lets_through_so_many_requests_per_second() {
    let profile = Profile::load("cloud-volume").unwrap();
    let mut disk = DiskModel::new(&profile, 3).unwrap();
    for n in 0..9_000 {
        disk.submit(Time::ZERO, read(n * 8, 8)).unwrap();
    }
    let mut done = Vec::new();
    disk.advance(Time(60_000 * MS), &mut done);
    // A burst of 300, then 3,000 a second.
    let seconds = done.last().unwrap().completed.0 as f64 / 1e9;
    assert!((2.85..3.05).contains(&seconds), "{seconds}");
}

/// Requests and bytes per second of what comes one behind the other.
fn rates(name: &str, seconds: std::ops::Range<u64>, blocks: u64) -> f64 {
    let profile = Profile::load(name).unwrap();
    let mut disk = DiskModel::new(&profile, 3).unwrap();
    let (mut now, mut count, mut n) = (Time::ZERO, 0, 0);
    while now.0 < seconds.end * 1_000_000_000 {
        now = disk.serve(now, write(n * 8192 % 1_000_000, blocks)).unwrap().completed;
        n += 1;
        count += u64::from(now.0 >= seconds.start * 1_000_000_000);
    }
    count as f64 / (seconds.end - seconds.start) as f64
}

#[test]
fn credits_are_spent_and_then_there_is_the_rate_that_is_paid_for() {
    // 1 TiB of credits at about 200 MB/s, less the 42 MB/s that are earned: two hours.
    let bytes = |seconds| rates("ebs-st1", seconds, 16_384) * 8.388_608e6;
    let early = bytes(0..60);
    assert!((150e6..=262e6).contains(&early), "{early}");
    let late = bytes(10_000..10_100);
    assert!((41e6..43e6).contains(&late), "{late}");
    // 5.4 million requests at 3,000 a second, less the 300 that are earned: 33 minutes.
    let mut disk = DiskModel::new(&Profile::load("ebs-gp2").unwrap(), 3).unwrap();
    let mut done = Vec::new();
    for n in 0..60_000 {
        disk.submit(Time::ZERO, read(n * 8, 8)).unwrap();
    }
    disk.advance(Time(60_000 * MS), &mut done);
    let seconds = done.last().unwrap().completed.0 as f64 / 1e9;
    assert!((19.9..20.2).contains(&seconds), "{seconds}");
}

#[test]
fn flash_is_slower_behind_its_fast_part_and_recovers() {
    let mut disk = DiskModel::new(&Profile::load("qlc-ssd").unwrap(), 3).unwrap();
    let mut now = Time::ZERO;
    let mut rate = |pause: u64, gib: u64| {
        now = now.after(dcd_engine::Duration::from_secs(pause));
        let began = now;
        for n in 0..gib << 10 {
            now = disk.serve(now, write(n * 2048, 2048)).unwrap().completed;
        }
        (gib << 30) as f64 / (now.since(began).0 as f64 / 1e9)
    };
    let (first, behind) = (rate(0, 30), rate(0, 30));
    assert!(first > 400e6, "{first}");
    assert!(behind < 150e6, "{behind}");
    let (full, recovered) = (rate(0, 5), rate(600, 5));
    assert!(full < 81e6, "{full}");
    assert!(recovered > 400e6, "{recovered}");
}

proptest! {
    /// Places are remembered: who asks again is told what a disk tells that is asked for the first
    /// time.
    #[test]
    fn the_access_time_is_the_same_when_asked_again(
        sectors in prop::collection::vec(0u64..5_000, 1..200), at_us in 0u64..1_000_000,
    ) {
        let fresh = disk("");
        let asked = fresh.clone();
        let now = Time(at_us * 1000);
        for sector in sectors.iter().chain(&sectors) {
            let found = asked.access_ns(now, Lba(*sector));
            prop_assert_eq!(found, fresh.clone().access_ns(now, Lba(*sector)));
        }
    }
}
