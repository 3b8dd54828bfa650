//! Disks as they were at an earlier time, put back in the place of a member: what they have missed
//! of RAID 0 sets nobody else has, so they are told by their labels and refused, whatever else of
//! them is as it should be.

#[path = "common/volume.rs"]
mod bench;

use std::collections::BTreeSet;

use bench::*;
use dcd_engine::error::VolumeOpenError;
use dcd_engine::units::MemberIndex;
use dcd_engine::volume::attributes::{AttributeChange, Attributes};
use dcd_engine::volume::format::label::{LABEL_OFFSETS, MEMBER_LABEL_BYTES};
use dcd_engine::volume::format::root::MemberState;
use dcd_engine::volume::placement::RaidLevel;
use dcd_engine::{Lba, LbaRange, OpenError, Phase, RequestError, VolumeRequest};

const GONE: MemberIndex = MemberIndex(1);

/// Four members with a RAID 0 set, and perhaps a RAID 1 set besides; everything is on RAID 0.
fn on_raid0(with_mirrors: bool) -> Bench {
    let mut sets = vec![set(RaidLevel::Raid0, 4, 1, 0, 16 << 10)];
    if with_mirrors {
        sets.insert(0, set(RaidLevel::Raid1, 4, 2, 1, 16 << 10));
    }
    let mut bench = Bench::new(config(4, sets, 32 << 10));
    let temporary = AttributeChange { set: Attributes::TEMPORARY, clear: Attributes::NONE };
    let all = vec![LbaRange::new(0, bench.lines() * 8)];
    let request = VolumeRequest::SetAttributes { ranges: all, change: temporary };
    assert_eq!(bench.volume_request(request), Ok(None));
    bench
}

/// Lines that were destaged to the member in question and lie nowhere else.
fn lines_on_it(bench: &Bench, written: &[(u64, u8)]) -> BTreeSet<u64> {
    let is_there = |line: &u64| {
        let at = bench.volume().place(Lba(line * 8)).expect("it was destaged");
        at.tier.level == RaidLevel::Raid0 && at.member == GONE
    };
    written.iter().map(|(line, _)| *line).filter(is_there).collect()
}

fn refused_as_older(phase: Phase) -> bool {
    matches!(
        phase,
        Phase::Failed(OpenError::Volume(VolumeOpenError::MemberOlder { member: GONE, .. }))
    )
}

/// A copy that was made at this moment is refused after the member was written to.
fn older_copy(with_mirrors: bool, copy_when: impl Fn(&mut Bench) -> Option<Vec<u8>>) {
    let mut bench = on_raid0(with_mirrors);
    let written = fill(&mut bench, 1);
    bench.drain();
    bench.until_idle();
    let copy = copy_when(&mut bench);
    let written: Vec<(u64, u8)> =
        written.into_iter().map(|(line, value)| (line, value ^ 0x80)).collect();
    written.iter().for_each(|(line, value)| bench.write(*line, *value));
    bench.drain();
    let lost = lines_on_it(&bench, &written);
    assert!(lost.len() > 10 && lost.len() < written.len(), "{} lines", lost.len());
    bench.close();
    let right = std::mem::replace(&mut bench.members[1], copy);
    let (cache_disk, members) = (bench.cache_disk.clone(), bench.members.clone());
    for degraded in [false, true] {
        assert!(refused_as_older(bench.try_open(degraded)), "degraded: {degraded}");
    }
    assert!(cache_disk == bench.cache_disk && members == bench.members, "nothing is written");
    // The right one.
    let copy = std::mem::replace(&mut bench.members[1], right);
    bench.open(false);
    check(&mut bench, &written);
    bench.close();
    // Somebody takes the copy for what it is: nothing old is ever shown.
    bench.members[1] = copy;
    bench.accept_damage = true;
    bench.open(false);
    let expect = |bench: &mut Bench, lost: &BTreeSet<u64>| {
        for (line, value) in &written {
            let expected = if lost.contains(line) { Err(RequestError::Io) } else { Ok(*value) };
            assert_eq!(bench.try_read(*line), expected, "line {line}");
        }
    };
    expect(&mut bench, &lost);
    assert!(bench.volume().status().raid0_lines_lost >= lost.len() as u64);
    if with_mirrors {
        assert_eq!(bench.volume().status().members[1].state, MemberState::Stale);
        assert_eq!(bench.volume_request(VolumeRequest::Rebuild { member: GONE }), Ok(None));
        bench.until_idle();
        expect(&mut bench, &lost);
    }
    bench.close();
    // It is a member now.
    bench.accept_damage = false;
    bench.open(false);
    expect(&mut bench, &lost);
    for line in &lost {
        let (_, value) = written.iter().find(|(known, _)| known == line).expect("it was written");
        bench.write(*line, *value);
    }
    bench.drain();
    expect(&mut bench, &BTreeSet::new());
}

#[test]
fn a_copy_from_between_two_starts_is_refused() {
    for with_mirrors in [false, true] {
        older_copy(with_mirrors, |bench| {
            bench.close();
            let copy = bench.members[1].clone();
            bench.open(false);
            copy
        });
    }
}

// Labels of the end tell it from what the member is then.
#[test]
fn a_copy_from_while_it_was_served_is_refused() {
    for with_mirrors in [false, true] {
        older_copy(with_mirrors, |bench| bench.members[1].clone());
    }
}

#[test]
fn a_copy_from_while_it_was_served_is_refused_without_a_log_too() {
    older_copy(false, |bench| {
        bench.close();
        bench.no_log = true;
        bench.open(false);
        bench.members[1].clone()
    });
}

#[test]
fn a_member_that_was_away_is_no_older_copy() {
    let mut bench = on_raid0(false);
    let written = fill(&mut bench, 1);
    bench.drain();
    let lost = lines_on_it(&bench, &written);
    bench.close();
    let away = bench.members[1].take();
    for _ in 0..3 {
        bench.open(true);
        for (line, value) in &written {
            let expected = if lost.contains(line) { Err(RequestError::Io) } else { Ok(*value) };
            assert_eq!(bench.try_read(*line), expected, "line {line}");
        }
        bench.close();
    }
    // Also after its kill.
    bench.open(true);
    bench.members[1] = away;
    bench.open(false);
    check(&mut bench, &written);
}

/// The power is cut while a member gets its label, which is torn. It still has the newest that is
/// known of it, also when it was away for some starts and has missed theirs.
#[test]
fn a_torn_label_leaves_the_one_before() {
    for starts_without in 0..4 {
        let mut bench = on_raid0(false);
        let written = fill(&mut bench, 1);
        bench.drain();
        bench.close();
        let away = bench.members[1].take();
        for _ in 0..starts_without {
            bench.open(true);
        }
        bench.members[1] = away;
        let (cache_disk, members) = (bench.cache_disk.clone(), bench.members.clone());
        bench.open(false);
        let labelled = bench.members[1].take().expect("it was there");
        (bench.cache_disk, bench.members) = (cache_disk, members);
        let member = bench.members[1].as_mut().expect("it is there");
        for offset in LABEL_OFFSETS.map(|offset| offset as usize) {
            let label = offset..offset + MEMBER_LABEL_BYTES;
            if member[label.clone()] != labelled[label] {
                member[offset + 512..offset + MEMBER_LABEL_BYTES].fill(0xee);
            }
        }
        bench.open(false);
        check(&mut bench, &written);
    }
}

#[test]
fn the_disk_that_a_blank_one_has_replaced_is_an_older_copy() {
    let mut bench = on_raid0(true);
    let written = fill(&mut bench, 1);
    bench.drain();
    bench.close();
    let replaced = bench.members[1].replace(vec![0; MEMBER_BYTES as usize]);
    bench.open(true);
    for line in lines_on_it(&bench, &written) {
        bench.write(line, 99);
    }
    bench.drain();
    bench.close();
    bench.members[1] = replaced;
    assert!(refused_as_older(bench.try_open(true)));
}

#[test]
fn a_cache_disk_that_is_older_than_its_members_is_refused() {
    let mut bench = on_raid0(true);
    fill(&mut bench, 1);
    bench.drain();
    bench.close();
    let older = bench.cache_disk.clone();
    bench.open(false);
    fill(&mut bench, 2);
    bench.drain();
    bench.close();
    bench.cache_disk = older;
    for accept_damage in [false, true] {
        bench.accept_damage = accept_damage;
        assert!(matches!(
            bench.try_open(true),
            Phase::Failed(OpenError::Volume(VolumeOpenError::CacheDiskOlder { .. }))
        ));
    }
}
