//! Spares: labelled, found again, used when a member has failed for long enough, let go.

#[path = "common/volume.rs"]
mod bench;

use bench::*;
use dcd_engine::error::VolumeOpenError;
use dcd_engine::units::MemberIndex;
use dcd_engine::volume::format::label::{
    DiskTag, LABEL_OFFSETS, MEMBER_LABEL_BYTES, MemberLabel, Standing,
};
use dcd_engine::volume::spares::SpareState;
use dcd_engine::volume::{CutShort, NewDisk, ReplaceError, WorkKind};
use dcd_engine::{Duration, Input, OpenError, Phase, VolumeError, VolumeRequest};

const AFTER: Duration = Duration::from_secs(300);
const TAG: DiskTag = DiskTag(0x5eed);

type Disk = Option<Vec<u8>>;

fn new_bench() -> Bench {
    let mut bench = Bench::new(raid5());
    bench.close();
    bench.spare_after = AFTER;
    bench.open(false);
    bench
}

/// A disk full of something else becomes one.
fn add(bench: &mut Bench, tag: DiskTag) -> usize {
    let bytes = bench.members[0].as_ref().unwrap().len();
    let new = NewDisk { bytes: bytes as u64, tag, accept_damage: false };
    let slot = bench.engine.as_mut().unwrap().add_spare(new).unwrap();
    let slot = usize::from(slot.0);
    bench.members.resize(slot + 1, Some(vec![0xdd; bytes]));
    bench.failing.resize(slot + 1, false);
    bench.unflushable.resize(slot + 1, false);
    bench.writes.resize(slot + 1, 0);
    bench.input(Input::Timeout);
    slot
}

fn label(disk: &Disk) -> Option<MemberLabel> {
    let bytes = disk.as_ref()?;
    let copy = |place: usize| &bytes[LABEL_OFFSETS[place] as usize..][..MEMBER_LABEL_BYTES];
    MemberLabel::newest(copy(0), copy(1))
}

/// As a driver sorts disks that it is given. A blank one is no disk of a volume.
fn sort(bench: &mut Bench, disks: Vec<Disk>) {
    let count = bench.header.config.members;
    let mut members: Vec<Disk> = vec![None; count];
    for disk in disks {
        let Some(label) = label(&disk) else { continue };
        match label.standing.is_of_other() {
            true => members.push(disk),
            false => members[usize::from(label.member.0)] = disk,
        }
    }
    bench.failing = vec![false; members.len()];
    bench.unflushable = vec![false; members.len()];
    bench.writes = vec![0; members.len()];
    bench.members = members;
}

fn states(bench: &Bench) -> Vec<SpareState> {
    bench.volume().spare_statuses().map(|spare| spare.state).collect()
}

fn is_whole(bench: &Bench) -> bool {
    bench.volume().member_statuses().all(|(_, member)| member.is_whole())
}

#[test]
fn a_spare_is_found_again_and_can_go() {
    let mut bench = new_bench();
    let written = fill(&mut bench, 1);
    bench.drain();
    let small = NewDisk { bytes: 4096, tag: TAG, accept_damage: false };
    let refused = bench.engine.as_mut().unwrap().add_spare(small);
    assert!(matches!(refused, Err(ReplaceError::TooSmall { found: 4096, .. })), "{refused:?}");
    let slot = add(&mut bench, TAG);
    assert_eq!(states(&bench), [SpareState::Ready]);
    let found = label(&bench.members[slot]).unwrap();
    assert_eq!((found.standing, found.disk), (Standing::Spare, TAG));
    for is_killed in [true, false] {
        if !is_killed {
            bench.close();
        }
        let disks = bench.members.clone();
        sort(&mut bench, disks);
        bench.open(false);
        assert_eq!(states(&bench), [SpareState::Ready]);
        assert!(bench.volume().uses_disk(MemberIndex(slot as u8)));
        check(&mut bench, &written);
    }
    let engine = bench.engine.as_mut().unwrap();
    let spare = MemberIndex(slot as u8);
    assert_eq!(engine.remove_spare(MemberIndex(0)), Err(VolumeError::NoMember(MemberIndex(0))));
    engine.remove_spare(spare).unwrap();
    assert_eq!(engine.remove_spare(spare), Err(VolumeError::Busy));
    bench.input(Input::Timeout);
    assert_eq!((states(&bench), label(&bench.members[slot])), (Vec::new(), None));
    assert!(!bench.volume().uses_disk(spare));
}

/// A spare that has died, or is another's by now, is known before it is needed.
#[test]
fn what_has_become_of_one_that_waits_is_known_within_an_hour() {
    let pass = |bench: &mut Bench, minutes: u64| {
        (0..minutes).for_each(|_| bench.pass(Duration::from_secs(60)));
    };
    for trouble in 0..4 {
        let mut bench = new_bench();
        let slot = add(&mut bench, TAG);
        pass(&mut bench, 180);
        assert_eq!(states(&bench), [SpareState::Ready]);
        let disk = bench.members[slot].as_mut().unwrap();
        match trouble {
            0 => bench.failing[slot] = true,
            1 => LABEL_OFFSETS.iter().for_each(|at| disk[*at as usize..][..4096].fill(0)),
            // One of two labels.
            2 => disk[LABEL_OFFSETS[1] as usize] ^= 1,
            _ => {
                let first = MemberLabel::first(bench.header.uuid, MemberIndex(0));
                let other = MemberLabel { standing: Standing::Spare, disk: DiskTag(7), ..first };
                for at in LABEL_OFFSETS {
                    disk[at as usize..][..MEMBER_LABEL_BYTES]
                        .copy_from_slice(other.encode().bytes());
                }
            }
        }
        pass(&mut bench, 125);
        assert_eq!(states(&bench), [SpareState::Failed], "trouble {trouble}");
        // It is not used.
        bench.volume_request(VolumeRequest::FailMember { member: MemberIndex(2) }).unwrap();
        pass(&mut bench, 10);
        assert!(bench.volume().last_spare_use().is_none());
    }
}

#[test]
fn one_takes_the_place_of_a_member_that_has_failed_for_long_enough() {
    for is_gone in [false, true] {
        let mut bench = new_bench();
        let mut written = fill(&mut bench, 1);
        bench.drain();
        let slot = add(&mut bench, TAG);
        if is_gone {
            bench.close();
            let mut disks = bench.members.clone();
            disks.remove(2);
            sort(&mut bench, disks);
            bench.open(true);
        } else {
            bench.volume_request(VolumeRequest::FailMember { member: MemberIndex(2) }).unwrap();
        }
        bench.pass_in_steps(Duration::from_secs(290));
        assert_eq!(states(&bench), [SpareState::Ready]);
        assert_eq!(bench.volume().last_spare_use(), None);
        bench.pass_in_steps(Duration::from_secs(20));
        bench.until_idle();
        assert!(is_whole(&bench) && states(&bench).is_empty());
        let status = bench.volume().status();
        assert_eq!(status.members[2].disk, MemberIndex(slot as u8));
        assert_eq!((status.counters.members_replaced, status.counters.spares_used), (1, 1));
        let event = bench.volume().last_spare_use().unwrap();
        assert_eq!((event.number, event.member, event.disk.0), (1, MemberIndex(2), slot as u8));
        assert!(event.failed_for >= AFTER && event.failed_for < Duration::from_secs(310));
        written = fill(&mut bench, written.len() as u8);
        bench.drain();
        // The disk that was there may come back: it is left out, whether it was told or not.
        for is_killed in [true, false] {
            if !is_killed {
                bench.close();
            }
            let disks = bench.members.clone();
            sort(&mut bench, disks);
            bench.open(false);
            assert!(is_whole(&bench) && states(&bench).is_empty());
            let disk = bench.volume().status().members[2].disk;
            assert!(usize::from(disk.0) >= bench.header.config.members);
            check(&mut bench, &written);
        }
        // It is rebuilt: the others can do without any.
        let mut disks = bench.members.clone();
        disks[0] = None;
        sort(&mut bench, disks);
        bench.open(true);
        check(&mut bench, &written);
    }
}

/// Whatever has been written of labels and tables: the disk is a spare, the member, or blank, the
/// volume starts, and has all.
#[test]
fn at_any_moment_the_disk_is_a_spare_or_the_member() {
    for is_gone in [false, true] {
        let mut bench = new_bench();
        let written = fill(&mut bench, 1);
        bench.drain();
        bench.moments = Some(Vec::new());
        add(&mut bench, TAG);
        let labelled = bench.moments.as_ref().unwrap().len();
        bench.volume_request(VolumeRequest::FailMember { member: MemberIndex(2) }).unwrap();
        bench.pass_in_steps(AFTER);
        bench.until_idle();
        assert!(is_whole(&bench));
        let moments = bench.moments.take().unwrap();
        assert!(labelled > 2 && moments.len() > labelled + 10, "{labelled} {}", moments.len());
        let mut seen = [0; 2];
        let ends =
            |at: &usize| *at < labelled + 8 || at + 60 > moments.len() || at.is_multiple_of(50);
        for (cache_disk, members) in (0..moments.len()).filter(ends).map(|at| moments[at].clone()) {
            let mut disks = members;
            if is_gone {
                disks[2] = None;
            }
            bench.cache_disk = cache_disk;
            sort(&mut bench, disks);
            bench.open(true);
            let is_spare = states(&bench) == [SpareState::Ready];
            let is_member = usize::from(bench.volume().status().members[2].disk.0)
                >= bench.header.config.members;
            assert!(is_spare != is_member);
            for (count, is) in seen.iter_mut().zip([is_spare, is_member]) {
                *count += u32::from(is);
            }
            check(&mut bench, &written);
            // And it goes on.
            bench.pass_in_steps(Duration::from_secs(310));
            bench.until_idle();
            assert!(is_whole(&bench));
        }
        assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
    }
}

#[test]
fn one_that_fails_is_not_used_again_and_another_is() {
    let mut bench = new_bench();
    let written = fill(&mut bench, 1);
    bench.drain();
    let (bad, good) = (add(&mut bench, TAG), add(&mut bench, DiskTag(6)));
    bench.unflushable[bad] = true;
    bench.volume_request(VolumeRequest::FailMember { member: MemberIndex(1) }).unwrap();
    bench.pass_in_steps(Duration::from_secs(310));
    bench.until_idle();
    assert_eq!(states(&bench), [SpareState::Failed]);
    assert!(is_whole(&bench));
    let status = bench.volume().status();
    assert_eq!(status.members[1].disk, MemberIndex(good as u8));
    assert_eq!(bench.volume().last_spare_use().unwrap().number, 2);
    check(&mut bench, &written);
}

#[test]
fn why_it_came_to_nothing_is_told_and_a_member_that_is_back_keeps_its_place() {
    let mut bench = new_bench();
    let written = fill(&mut bench, 1);
    bench.drain();
    add(&mut bench, TAG);
    let last = |bench: &Bench| bench.volume().status().last_work.unwrap();
    bench.volume_request(VolumeRequest::FailMember { member: MemberIndex(1) }).unwrap();
    bench.holds = vec![dcd_engine::Device::Member(MemberIndex(4))];
    bench.held = Some(Vec::new());
    bench.pass_in_steps(Duration::from_secs(310));
    assert_eq!(states(&bench), [SpareState::InUse(MemberIndex(1))]);
    let busy = bench.engine.as_mut().unwrap().remove_spare(MemberIndex(4));
    assert_eq!(busy, Err(VolumeError::Busy));
    bench.volume_request(VolumeRequest::CancelWork).unwrap();
    for done in bench.held.take().unwrap() {
        bench.input(done);
    }
    bench.pass(Duration::from_secs(1));
    assert_eq!(states(&bench), [SpareState::Ready]);
    let work = last(&bench);
    assert_eq!(
        (work.kind, work.cut_short),
        (WorkKind::Replace(MemberIndex(1)), Some(CutShort::Cancelled))
    );
    // Not at once again; and meanwhile the member is brought up to date where it is.
    bench.pass_in_steps(Duration::from_secs(310));
    assert_eq!(states(&bench), [SpareState::Ready]);
    bench.volume_request(VolumeRequest::Rebuild { member: MemberIndex(1) }).unwrap();
    bench.until_idle();
    assert!(is_whole(&bench));
    bench.pass_in_steps(Duration::from_secs(3600));
    assert_eq!(states(&bench), [SpareState::Ready]);
    assert_eq!(bench.volume().status().members[1].disk, MemberIndex(1));
    check(&mut bench, &written);
}

/// What is on RAID 0 and on a disk that is not there nobody gives up but its owner.
#[test]
fn nothing_of_raid_0_is_given_up_for_a_spare() {
    let mut bench = Bench::new(tiered());
    fill(&mut bench, 1);
    bench.drain();
    add(&mut bench, TAG);
    bench.close();
    bench.spare_after = AFTER;
    let mut disks = bench.members.clone();
    disks[2] = None;
    sort(&mut bench, disks);
    bench.open(true);
    bench.pass_in_steps(Duration::from_secs(400));
    assert_eq!(states(&bench), [SpareState::Ready]);
    assert_eq!(bench.volume().status().raid0_lines_lost, 0);
    assert_eq!(bench.volume().last_spare_use(), None);
}

/// Somebody has put back the disk that was let go, and the one in its place is not there.
#[test]
fn a_disk_that_was_let_go_is_no_member_without_the_other() {
    let mut bench = new_bench();
    add(&mut bench, TAG);
    bench.volume_request(VolumeRequest::FailMember { member: MemberIndex(0) }).unwrap();
    bench.pass_in_steps(Duration::from_secs(310));
    bench.until_idle();
    let mut disks = bench.members.clone();
    assert_eq!(label(&disks[0]).unwrap().standing, Standing::Released);
    disks[4] = None;
    sort(&mut bench, disks);
    let refused = bench.try_open(false);
    let member = MemberIndex(0);
    assert_eq!(
        refused,
        Phase::Failed(OpenError::Volume(VolumeOpenError::MemberReplaced { member }))
    );
    bench.open(true);
    assert!(!bench.volume().status().members[0].is_present);
}

/// A member that is only unplugged, and holds what no other does, is believed when it comes back.
#[test]
fn the_last_copy_is_not_given_up_for_a_spare() {
    let mut bench = new_bench();
    let written = fill(&mut bench, 1);
    bench.drain();
    add(&mut bench, TAG);
    bench.volume_request(VolumeRequest::FailMember { member: MemberIndex(1) }).unwrap();
    bench.close();
    bench.spare_after = AFTER;
    let whole = bench.members.clone();
    let mut disks = whole.clone();
    disks[0] = None;
    sort(&mut bench, disks);
    bench.open(true);
    bench.pass_in_steps(Duration::from_secs(4000));
    let used = bench.volume().last_spare_use().map(|used| used.member);
    assert_ne!(used, Some(MemberIndex(0)));
    let new = NewDisk {
        bytes: whole[0].as_ref().unwrap().len() as u64,
        tag: DiskTag(9),
        accept_damage: false,
    };
    let refused = bench.engine.as_mut().unwrap().replace_member(MemberIndex(0), new);
    assert_eq!(refused.unwrap_err(), VolumeError::LastCopy(MemberIndex(0)).into());
    bench.close();
    // It is plugged in again.
    let mut disks = bench.members.clone();
    disks[0] = whole[0].clone();
    sort(&mut bench, disks);
    bench.open(false);
    check(&mut bench, &written);
}

/// A disk that hangs never tells what came of what it was told. The spare is filled all the same.
#[test]
fn a_member_that_hangs_is_rebuilt_on_the_spare() {
    let mut bench = new_bench();
    fill(&mut bench, 1);
    bench.drain();
    add(&mut bench, TAG);
    bench.holds = vec![dcd_engine::Device::Member(MemberIndex(1))];
    bench.held = Some(Vec::new());
    let written = fill(&mut bench, 2);
    bench.start_drain();
    bench.pass_in_steps(Duration::from_secs(700));
    let held = bench.held.take().unwrap();
    assert!(!held.is_empty(), "something hangs");
    assert_eq!(bench.volume().status().members[1].disk, MemberIndex(4));
    bench.until_idle();
    assert!(is_whole(&bench), "{:?}", bench.volume().status().members[1]);
    // It answers after all.
    for done in held {
        bench.input(done);
    }
    bench.until_idle();
    assert!(is_whole(&bench));
    check(&mut bench, &written);
}
