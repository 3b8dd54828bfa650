//! What is hot and mostly read is read from fast devices, too, and stays where it is.

#[path = "common/volume.rs"]
mod bench;

use bench::*;
use dcd_engine::units::{LINE_SIZE, MemberIndex};
use dcd_engine::volume::attributes::{AttributeChange, Attributes};
use dcd_engine::volume::config::VolumeConfig;
use dcd_engine::volume::placement::{DeviceClass, RaidLevel};
use dcd_engine::{Duration, Lba, LbaRange, VolumeRequest};

/// The only disk of the fast set.
const FLASH: usize = 4;
const EXTENT_LINES: u64 = 8;

/// Four slow members with RAID 5, and one fast one with RAID 0.
fn one_flash_disk() -> VolumeConfig {
    let mut fast = set(RaidLevel::Raid0, 1, 1, 0, 16 << 10);
    fast.class = DeviceClass::Fast;
    fast.members = vec![MemberIndex(FLASH as u8)];
    fast.member_bytes = MIB;
    let mut config = config(5, vec![set(RaidLevel::Raid5, 4, 1, 0, 16 << 10), fast], 32 << 10);
    config.temporary_bytes = 0;
    config.logical_bytes = config.capacity_bytes();
    config.validate().unwrap();
    config
}

fn say(bench: &mut Bench, extents: std::ops::Range<u64>, set: Attributes, clear: Attributes) {
    let blocks = EXTENT_LINES * 8;
    let ranges =
        vec![LbaRange::new(extents.start * blocks, (extents.end - extents.start) * blocks)];
    let change = AttributeChange { set, clear };
    bench.volume_request(VolumeRequest::SetAttributes { ranges, change }).unwrap();
}

const READ: Attributes = Attributes::HOT.or(Attributes::READ_MOST);

/// Some extents on RAID 5, with replicas.
fn with_replicas(extents: u64) -> Bench {
    let mut bench = Bench::new(one_flash_disk());
    say(&mut bench, 0..extents, Attributes::IMPORTANT.or(READ), Attributes::NONE);
    for extent in 0..extents {
        bench.write(extent * EXTENT_LINES + extent % EXTENT_LINES, 1 + extent as u8);
    }
    bench.drain();
    bench.until_idle();
    bench
}

fn replicas(bench: &Bench) -> u64 {
    bench.volume().status().replicas
}

fn is_on_raid5(bench: &Bench, extent: u64) -> bool {
    let placed = bench.volume().place(Lba(extent * EXTENT_LINES * 8)).unwrap();
    placed.tier.level == RaidLevel::Raid5
}

/// Reads a line of each, which must be what was written.
fn check_all(bench: &mut Bench, extents: u64) {
    for extent in 0..extents {
        let first = extent * EXTENT_LINES;
        assert_eq!(bench.read(first + extent % EXTENT_LINES), 1 + extent as u8, "{extent}");
        assert_eq!(bench.read(first + (extent + 1) % EXTENT_LINES), 0, "{extent}");
    }
}

#[test]
fn hot_data_stays_on_raid5_and_is_read_from_flash() {
    let mut bench = with_replicas(6);
    assert_eq!(replicas(&bench), 6);
    let status = bench.volume().status();
    assert_eq!((status.counters.replicas_made, status.sets[1].room.used), (6, 0));
    assert!((0..6).all(|extent| is_on_raid5(&bench, extent)));
    let before = bench.volume().status().counters;
    check_all(&mut bench, 6);
    let after = bench.volume().status().counters;
    assert_eq!(after.replica_reads - before.replica_reads, 12);
    // A start knows nothing of them, makes them anew, and the extents are where they were.
    bench.close();
    bench.open(false);
    check_all(&mut bench, 6);
    bench.until_idle();
    assert_eq!(replicas(&bench), 6);
    check_all(&mut bench, 6);
    // What has cooled down has none.
    say(&mut bench, 0..3, Attributes::NONE, Attributes::HOT);
    bench.until_idle();
    assert_eq!(replicas(&bench), 3);
    check_all(&mut bench, 6);
}

#[test]
fn a_change_gives_the_replica_up_and_it_is_made_anew_later() {
    let mut bench = with_replicas(2);
    bench.write(0, 77);
    bench.drain();
    assert_eq!(replicas(&bench), 1);
    assert_eq!(bench.read(0), 77);
    bench.until_idle();
    assert_eq!((replicas(&bench), bench.read(0)), (1, 77));
    bench.pass_in_steps(Duration::from_secs(11));
    bench.until_idle();
    assert_eq!(replicas(&bench), 2);
    let before = bench.volume().status().counters.replica_reads;
    assert_eq!((bench.read(0), bench.read(9)), (77, 2));
    assert_eq!(bench.volume().status().counters.replica_reads, before + 2);
}

#[test]
fn a_replica_that_rots_or_cannot_be_read_costs_nothing() {
    let mut bench = with_replicas(4);
    for byte in bench.members[FLASH].as_mut().unwrap().iter_mut().skip(MIB as usize) {
        *byte ^= 0x10;
    }
    check_all(&mut bench, 4);
    let counters = bench.volume().status().counters;
    assert_eq!((counters.replicas_bad, counters.lines_bad), (4, 0));
    bench.pass_in_steps(Duration::from_secs(11));
    bench.until_idle();
    assert_eq!(replicas(&bench), 4);
    // Sectors that cannot be read.
    let lines = (MIB..2 * MIB).step_by(LINE_SIZE as usize);
    bench.bad = lines.map(|at| (FLASH, at)).collect();
    check_all(&mut bench, 4);
    assert_eq!(bench.volume().status().counters.replicas_bad, 8);
}

#[test]
fn without_the_flash_disk_everything_is_there() {
    let mut bench = with_replicas(4);
    let mut without = bench.without(FLASH);
    check_all(&mut without, 4);
    without.until_idle();
    assert_eq!(replicas(&without), 0);
    // A disk with an arm that fails ends them, too, and a rebuild brings them back.
    bench.volume_request(VolumeRequest::FailMember { member: MemberIndex(1) }).unwrap();
    check_all(&mut bench, 4);
    bench.pass_in_steps(Duration::from_secs(1));
    assert_eq!(replicas(&bench), 0);
    bench.volume_request(VolumeRequest::Rebuild { member: MemberIndex(1) }).unwrap();
    bench.until_idle();
    assert_eq!(replicas(&bench), 4);
    check_all(&mut bench, 4);
}

#[test]
fn replicas_make_room_for_what_belongs_there() {
    // The set has 32 extents; replicas leave four of them.
    let mut bench = with_replicas(40);
    assert_eq!(replicas(&bench), 28);
    // What is random, and not important, belongs on RAID 0 and fast devices.
    say(&mut bench, 100..140, Attributes::RANDOM, Attributes::NONE);
    for extent in 100..140 {
        bench.write(extent * EXTENT_LINES, extent as u8);
        bench.drain();
    }
    bench.until_idle();
    let on_flash = (100..140).filter(|extent| !is_on_raid5(&bench, *extent)).count();
    assert_eq!((on_flash, replicas(&bench)), (32, 0));
    check_all(&mut bench, 40);
    // The last room of the volume: nobody hears that it is full.
    let mut bench = with_replicas(40);
    let extents = bench.lines() / EXTENT_LINES;
    say(&mut bench, 40..extents, Attributes::IMPORTANT, Attributes::NONE);
    for extent in 40..extents {
        bench.write(extent * EXTENT_LINES, extent as u8 | 1);
        if extent % 16 == 0 {
            bench.drain();
        }
    }
    bench.drain();
    assert_eq!(replicas(&bench), 0);
    check_all(&mut bench, 40);
    (40..extents)
        .for_each(|extent| assert_eq!(bench.read(extent * EXTENT_LINES), extent as u8 | 1));
}
