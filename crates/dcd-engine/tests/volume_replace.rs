//! A disk takes the place of a member: of one that works, that fails, that is not there.

#[path = "common/volume.rs"]
mod bench;

use bench::*;
use dcd_engine::error::VolumeOpenError;
use dcd_engine::units::MemberIndex;
use dcd_engine::volume::format::label::{
    DiskTag, LABEL_OFFSETS, MEMBER_LABEL_BYTES, MemberLabel, Standing,
};
use dcd_engine::volume::format::root::MemberState;
use dcd_engine::volume::{NewDisk, ReplaceError, WorkKind};
use dcd_engine::{Input, OpenError, Phase, VolumeError, VolumeRequest};

const TAG: DiskTag = DiskTag(0x5eed);

/// A disk full of something else.
fn begin(bench: &mut Bench, member: u8, accept_damage: bool) -> Result<usize, ReplaceError> {
    let bytes = bench.members[0].as_ref().unwrap().len();
    let new = NewDisk { bytes: bytes as u64, tag: TAG, accept_damage };
    let slot = bench.engine.as_mut().unwrap().replace_member(MemberIndex(member), new)?;
    let slot = usize::from(slot.0);
    bench.members.resize(slot + 1, Some(vec![0xdd; bytes]));
    bench.failing.resize(slot + 1, false);
    bench.unflushable.resize(slot + 1, false);
    bench.writes.resize(slot + 1, 0);
    bench.input(Input::Timeout);
    Ok(slot)
}

/// Only these disks are there at the next start.
fn keep(bench: &mut Bench, members: &[usize]) {
    bench.members = members.iter().map(|index| bench.members[*index].clone()).collect();
}

fn label(bench: &Bench, disk: usize) -> MemberLabel {
    let bytes = bench.members[disk].as_ref().unwrap();
    let copy = |place: usize| &bytes[LABEL_OFFSETS[place] as usize..][..MEMBER_LABEL_BYTES];
    MemberLabel::newest(copy(0), copy(1)).unwrap()
}

#[test]
fn a_member_that_works_is_copied_and_let_go() {
    for config in [tiered(), raid5()] {
        let mut bench = Bench::new(config);
        let written = fill(&mut bench, 1);
        bench.drain();
        let slot = begin(&mut bench, 1, false).unwrap();
        bench.until_idle();
        let status = bench.volume().status();
        assert_eq!(status.members[1].disk, MemberIndex(slot as u8));
        assert_eq!(
            (status.members[1].state, status.counters.members_replaced),
            (MemberState::UpToDate, 1)
        );
        let last = status.last_work.unwrap();
        assert_eq!((last.kind, last.is_cut_short), (WorkKind::Replace(MemberIndex(1)), false));
        assert!(last.bytes_done == last.bytes_total && last.bytes_total > 0, "{last:?}");
        let (old, new) = (label(&bench, 1), label(&bench, slot));
        assert_eq!((old.standing, old.disk), (Standing::Released, DiskTag(0)));
        assert_eq!((new.standing, new.disk, new.member), (Standing::Member, TAG, MemberIndex(1)));
        assert!(
            bench.volume().uses_disk(MemberIndex(slot as u8))
                && !bench.volume().uses_disk(MemberIndex(1))
        );
        // Nobody needs the old one.
        bench.members[1] = None;
        check(&mut bench, &written);
        bench.volume_request(VolumeRequest::Scrub).unwrap();
        bench.until_idle();
        assert_eq!(bench.volume().status().last_work.unwrap().mismatches, 0);
        let more = fill(&mut bench, 2);
        bench.close();
        keep(&mut bench, &[0, slot, 2, 3]);
        bench.open(false);
        check(&mut bench, &more);
    }
}

#[test]
fn of_two_disks_one_counts_at_any_moment() {
    let mut bench = Bench::new(tiered());
    let written = fill(&mut bench, 1);
    bench.drain();
    bench.moments = Some(Vec::new());
    let slot = begin(&mut bench, 1, false).unwrap();
    bench.until_idle();
    let moments = bench.moments.take().unwrap();
    assert!(moments.len() > 1, "{}", moments.len());
    // As each moment left them: both disks say that they are the member, or one says that it is not.
    let is_none = |disk: &Option<Vec<u8>>| {
        let copy = |place: usize| {
            &disk.as_ref().unwrap()[LABEL_OFFSETS[place] as usize..][..MEMBER_LABEL_BYTES]
        };
        MemberLabel::newest(copy(0), copy(1)).is_none()
    };
    let mut accepted = [0, 0];
    // The labels are written at the ends.
    let ends = (0..moments.len()).filter(|at| *at < 8 || at + 30 > moments.len() || at % 100 == 0);
    for (cache_disk, members) in ends.map(|at| moments[at].clone()) {
        let mut taken = 0;
        for (which, disk) in [1, slot].into_iter().enumerate() {
            let chosen = [0, disk, 2, 3].map(|index| members[index].clone()).to_vec();
            if is_none(&chosen[1]) {
                continue;
            }
            bench.cache_disk = cache_disk.clone();
            bench.members = chosen.clone();
            match bench.try_open(true) {
                Phase::Running => {
                    (taken, accepted[which]) = (taken + 1, accepted[which] + 1);
                    check(&mut bench, &written);
                }
                Phase::Failed(OpenError::Volume(VolumeOpenError::MemberReplaced { member })) => {
                    assert_eq!(member, MemberIndex(1));
                    assert_eq!((&bench.cache_disk, &bench.members), (&cache_disk, &chosen));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(taken, 1);
    }
    assert!(accepted.iter().all(|count| *count > 0), "{accepted:?}");
}

#[test]
fn an_error_of_the_new_disk_or_a_cancel_changes_nothing() {
    let mut bench = Bench::new(tiered());
    let written = fill(&mut bench, 1);
    bench.drain();
    let slot = begin(&mut bench, 2, false).unwrap();
    bench.until_idle();
    assert_eq!(bench.volume().status().members[2].disk, MemberIndex(slot as u8));
    // Another one fails at once.
    bench.held = Some(Vec::new());
    bench.holds = vec![dcd_engine::Device::Member(MemberIndex(slot as u8 + 1))];
    let next = begin(&mut bench, 2, false);
    assert_eq!(next, Err(VolumeError::Busy.into()), "the same tag again");
    let bytes = bench.members[0].as_ref().unwrap().len();
    let small = NewDisk { bytes: 4096, tag: DiskTag(7), accept_damage: false };
    let refused = bench.engine.as_mut().unwrap().replace_member(MemberIndex(0), small);
    assert!(matches!(refused, Err(ReplaceError::TooSmall { found: 4096, .. })), "{refused:?}");
    let new = NewDisk { bytes: bytes as u64, tag: DiskTag(7), accept_damage: false };
    let slot = bench.engine.as_mut().unwrap().replace_member(MemberIndex(0), new).unwrap();
    let slot = usize::from(slot.0);
    bench.members.resize(slot + 1, Some(vec![0xdd; bytes]));
    bench.failing.resize(slot + 1, false);
    bench.unflushable.resize(slot + 1, true);
    bench.writes.resize(slot + 1, 0);
    bench.held = None;
    bench.input(Input::Timeout);
    bench.until_idle();
    let status = bench.volume().status();
    assert_eq!(
        (status.members[0].disk, status.members[0].state),
        (MemberIndex(0), MemberState::UpToDate)
    );
    assert!(status.last_work.unwrap().is_cut_short);
    assert!(!bench.volume().uses_disk(MemberIndex(slot as u8)));
    check(&mut bench, &written);
}

#[test]
fn what_raid_0_has_on_a_lost_member_is_given_up_only_if_asked() {
    let mut bench = Bench::new(tiered());
    let written = fill(&mut bench, 1);
    bench.drain();
    bench.close();
    bench.members[3] = None;
    bench.open(true);
    let refused = begin(&mut bench, 3, false);
    let Err(ReplaceError::WouldBeLost { member: MemberIndex(3), lines }) = refused else {
        panic!("{refused:?}")
    };
    let slot = begin(&mut bench, 3, true).unwrap();
    bench.until_idle();
    let status = bench.volume().status();
    assert_eq!(status.members[3].state, MemberState::UpToDate, "it was rebuilt");
    assert_eq!(status.raid0_lines_lost, lines);
    let readable = |bench: &mut Bench| {
        let found = written.iter().filter(|(line, value)| match bench.try_read(*line) {
            Ok(found) => {
                assert_eq!(found, *value, "line {line}");
                true
            }
            Err(_) => false,
        });
        found.count()
    };
    let before = readable(&mut bench);
    assert!(before < written.len() && before > 0, "{before}");
    // Also after a kill.
    keep(&mut bench, &[0, 1, 2, slot]);
    bench.open(false);
    assert_eq!(readable(&mut bench), before);
    assert_eq!(bench.volume().status().raid0_lines_lost, lines);
}
