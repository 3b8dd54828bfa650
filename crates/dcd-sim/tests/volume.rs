//! Volumes on disk models: what their members are asked for.

use dcd_engine::volume::config::{LABEL_BYTES, SetConfig, VolumeConfig};
use dcd_engine::volume::format::header::VolumeHeader;
use dcd_engine::volume::placement::{DeviceClass, Placement, RaidLevel};
use dcd_engine::{EngineConfig, LbaRange};

use dcd_sim::disk::model::{DiskOperation, DiskRequest};
use dcd_sim::disk::profile::Profile;
use dcd_sim::new_cache::NEW_UUID;
use dcd_sim::replay::{Pace, Replay, ReplayFacts};
use dcd_sim::target::setup::{Hint, LogSetup, Setup, SetupError, VolumeSetup};
use dcd_sim::target::{TargetFacts, VolumeFacts};
use dcd_sim::trace::{Flags, Operation, Request};

const MIB: u64 = 1 << 20;

fn set(level: RaidLevel, place: u64) -> SetConfig {
    SetConfig {
        level,
        class: DeviceClass::Slow,
        members: (0..4).map(dcd_engine::units::MemberIndex).collect(),
        stripe_unit_bytes: 64 << 10,
        copies: if level == RaidLevel::Raid1 { 2 } else { 1 },
        member_offset_bytes: LABEL_BYTES + place * 64 * MIB,
        member_bytes: 64 * MIB,
    }
}

fn setup(levels: &[RaidLevel], no_log: bool) -> Setup {
    let disk = Profile::load("wd400bb").unwrap();
    let sets: Vec<_> = (0..).zip(levels).map(|(place, level)| set(*level, place)).collect();
    let has_raid_0 = levels.contains(&RaidLevel::Raid0);
    let mut config = VolumeConfig {
        members: 4,
        sets,
        extent_bytes: 64 << 10,
        logical_bytes: 0,
        temporary_bytes: if has_raid_0 && levels.len() > 1 { 64 * MIB } else { 0 },
        selective_caching: false,
        migrate_bytes_per_second_max: 0,
        placement: Placement::default(),
        twin_region_pages: 0,
    };
    config.logical_bytes = config.capacity_bytes() - config.temporary_bytes;
    let header = VolumeHeader { uuid: NEW_UUID, config, pointers_max: 16, journal_bytes: 2 * MIB };
    let log = LogSetup {
        cache_disk: Profile::load("nvme-ssd").unwrap(),
        cache_bytes: 64 * MIB,
        read_area_bytes: 0,
        segment_bytes: 128 << 10,
        config: EngineConfig { no_log, ..EngineConfig::default() },
    };
    let volume = VolumeSetup {
        header,
        members: vec![disk.clone(); 4],
        hints: Vec::new(),
        written: vec![LbaRange::new(0, 32 * MIB / 512)],
    };
    Setup { log: Some(log), volume: Some(volume), ..Setup::of(disk, 1) }
}

/// One line at a time, each when the one before is done.
fn replay(setup: &Setup, operation: Operation, lines: u64) -> ReplayFacts {
    let mut replay = Replay::new(setup.build().unwrap(), Pace::Closed);
    for number in 0..lines {
        // Each in another extent.
        let offset_bytes = number * 7 % 512 * (64 << 10);
        let request = Request {
            time_ns: number * 1_000_000,
            device: 0,
            operation,
            offset_bytes,
            size_bytes: 4096,
            flags: Flags(0),
            latency_ns: None,
            line: 0,
            column: 0,
        };
        replay.add(&request).unwrap();
    }
    replay.finish()
}

fn volume(facts: &TargetFacts) -> &VolumeFacts {
    facts.volume.as_ref().unwrap()
}

/// What the textbook says of each level, without a log.
#[test]
fn each_level_reads_and_writes_as_often_as_it_must() {
    for (level, reads_of_a_write, writes_of_a_write) in
        [(RaidLevel::Raid0, 0, 1), (RaidLevel::Raid1, 0, 2), (RaidLevel::Raid5, 2, 2)]
    {
        let setup = setup(&[level], true);
        let written = replay(&setup, Operation::Write, 100).target;
        assert_eq!(written.disk_writes, 100 * writes_of_a_write, "{level:?}");
        // What was read for the one before may serve the next in the same stripe.
        let reads = (99 * reads_of_a_write)..=(100 * reads_of_a_write);
        assert!(reads.contains(&written.disk_reads), "{level:?}: {}", written.disk_reads);
        let members = &volume(&written).members;
        assert_eq!(members.iter().map(|member| member.writes).sum::<u64>(), written.disk_writes);
        assert!(members.iter().all(|member| member.busy_percent > 0.0), "{members:?}");
        let read = replay(&setup, Operation::Read, 100);
        assert_eq!((read.target.disk_reads, read.target.disk_writes), (100, 0), "{level:?}");
        // One after the other, so nothing waits for anything but the disks.
        let ms = read.read.response_ms.unwrap().mean;
        assert!((3.0..20.0).contains(&ms), "{level:?}: {ms} ms");
        assert!((read.access.read_disk_time_ms / 100.0 - ms).abs() < 0.1 * ms);
    }
}

/// A volume takes lines of 4 KiB; traces have sectors, and a memory cleans groups of a size of its
/// own.
#[test]
fn what_is_smaller_than_a_line_is_rounded_outwards() {
    let setup = Setup { seed: u64::MAX, ..setup(&[RaidLevel::Raid5], true) };
    let mut target = setup.build().unwrap();
    let (mut now, mut done) = (dcd_engine::Time::ZERO, Vec::new());
    for (id, offset_bytes, size_bytes) in [(0, 512, 512), (1, 4096 - 512, 1024), (2, 100, 9000)] {
        let operation = if id == 1 { DiskOperation::Write } else { DiskOperation::Read };
        let request = DiskRequest { id, operation, offset_bytes, size_bytes };
        target.submit(now, request, false).unwrap();
        while done.len() as u64 <= id {
            now = target.next_event().unwrap();
            target.advance(now, &mut done);
        }
    }
    assert_eq!(target.facts().log.unwrap().failed_requests, 0);
    assert_eq!(target.bill(), Default::default());
}

#[test]
fn what_was_never_written_is_not_read_from_a_disk() {
    let mut setup = setup(&[RaidLevel::Raid5], true);
    setup.volume.as_mut().unwrap().written.clear();
    assert_eq!(replay(&setup, Operation::Read, 50).target.disk_reads, 0);
}

#[test]
fn the_log_takes_writes_and_they_come_to_the_members_later() {
    let setup = setup(&[RaidLevel::Raid5], false);
    let mut target = setup.build().unwrap();
    assert_eq!(target.facts().log.unwrap().cache_disk_writes, 0, "nothing that was before counts");
    let mut now = dcd_engine::Time::ZERO;
    let mut done = Vec::new();
    for id in 0..100 {
        let request = DiskRequest {
            id,
            operation: DiskOperation::Write,
            offset_bytes: id * 65_536,
            size_bytes: 4096,
        };
        target.submit(now, request, false).unwrap();
        while done.len() as u64 <= id {
            now = target.next_event().unwrap();
            target.advance(now, &mut done);
        }
    }
    let drained = target.drain(now).unwrap();
    // Three lines beside each other in a stripe have one parity.
    assert!((133..200).contains(&drained.disk_writes) && drained.seconds > 0.05, "{drained:?}");
    let facts = target.facts();
    assert_eq!(facts.log.as_ref().unwrap().destaged_lines, 100);
    assert_eq!(facts.disk_writes, drained.disk_writes);
    let past_the_end = DiskRequest {
        id: 100,
        operation: DiskOperation::Read,
        offset_bytes: 3 * 64 * MIB,
        size_bytes: 512,
    };
    assert!(target.check(&past_the_end).is_err());
}

#[test]
fn hints_say_on_which_set_data_lie() {
    let levels = [RaidLevel::Raid1, RaidLevel::Raid5, RaidLevel::Raid0];
    let mut setup = setup(&levels, true);
    let hint = |bytes, attributes: &str| Hint { bytes, attributes: attributes.parse().unwrap() };
    setup.volume.as_mut().unwrap().hints = vec![
        hint(0..8 * MIB, "important,random"),
        hint(8 * MIB..16 * MIB, "important,sequential,read-most"),
    ];
    let facts = replay(&setup, Operation::Read, 1).target;
    let used: Vec<_> =
        volume(&facts).sets.iter().map(|set| (set.level, set.used_extents)).collect();
    assert_eq!(used, [(1, 128), (5, 128), (0, 256)]);

    let end_bytes = 1 << 40;
    setup.volume.as_mut().unwrap().hints.push(hint(0..end_bytes, "hot"));
    let error = setup.build().err().unwrap();
    assert!(matches!(error, SetupError::HintBeyondEnd { .. }), "{error}");
}

#[test]
fn what_goes_with_no_volume_is_refused() {
    let without = Setup { log: None, ..setup(&[RaidLevel::Raid0], true) };
    assert_eq!(without.build().err(), Some(SetupError::VolumeAlone));
    let mut small = setup(&[RaidLevel::Raid0], true);
    small.log.as_mut().unwrap().cache_bytes = MIB;
    assert!(matches!(small.build().err(), Some(SetupError::VolumeTables { .. })));
    let mut store = setup(&[RaidLevel::Raid0], true);
    store.volume.as_mut().unwrap().members[2] = Profile::load("s3").unwrap();
    assert!(matches!(store.build().err(), Some(SetupError::ObjectStore { .. })));
}
