//! A cache on a volume of several members: what was written is there, whatever member fails.

#[path = "common/volume.rs"]
mod bench;

use bench::*;
use std::collections::BTreeSet;

use dcd_engine::stats::Uncached;
use dcd_engine::units::{LINE_SIZE, MemberIndex};
use dcd_engine::volume::attributes::{AttributeChange, Attributes};
use dcd_engine::volume::format::root::MemberState;
use dcd_engine::volume::placement::RaidLevel;
use dcd_engine::{
    Buffer, Device, Duration, Input, Lba, LbaRange, Operation, Phase, Request, RequestError,
    RequestId, VolumeAnswer, VolumeError, VolumeRequest,
};

#[test]
fn what_was_written_is_there_after_draining_and_opening_again() {
    for config in [tiered(), raid5()] {
        let mut bench = Bench::new(config);
        assert_eq!(bench.read(5), 0, "never written");
        let written = fill(&mut bench, 1);
        bench.drain();
        check(&mut bench, &written);
        let again = fill(&mut bench, 2);
        bench.drain();
        check(&mut bench, &again);
        let unwritten =
            (0..bench.lines()).find(|l| again.iter().all(|(line, _)| line != l)).unwrap();
        assert_eq!(bench.read(unwritten), 0, "what was on the members before");
        // As after a kill.
        bench.open(false);
        check(&mut bench, &again);
    }
}

/// A part of a stripe waits for its rest while a whole one is written, and not for long. With three
/// data lines of four in a row:
///
/// ```text
/// stripe        0           1
/// write A       0 ... 11    12 ... 17
/// write B                   18 ... 23
/// ```
#[test]
fn a_part_of_a_stripe_waits_for_its_rest() {
    let mut bench = Bench::new(raid5());
    (0..24).for_each(|line| bench.write(line, 1));
    bench.drain();
    assert_eq!(bench.ask(Operation::Shutdown).0, Ok(()));
    bench.no_log = true;
    bench.open(false);
    let write = |bench: &mut Bench, lines: std::ops::Range<u64>, value| {
        let data = Buffer::copy_of(&vec![value; ((lines.end - lines.start) * LINE_SIZE) as usize]);
        let id = RequestId(bench.next);
        bench.next += 1;
        let operation = Operation::Write { start: Lba(lines.start * 8), data };
        bench.input(Input::Request(Request { id, operation, fua: false }));
    };
    let counters = |bench: &Bench| bench.volume().status().counters;
    for rest_comes in [true, false] {
        let before = counters(&bench);
        bench.held = Some(Vec::new());
        write(&mut bench, 0..18, 2);
        assert_eq!(counters(&bench).stripe_jobs - before.stripe_jobs, 1, "the rest may come");
        match rest_comes {
            true => write(&mut bench, 18..24, 3),
            false => bench.pass(Duration::from_millis(30)),
        }
        assert_eq!(counters(&bench).stripe_jobs - before.stripe_jobs, 2);
        // Without it, old lines are needed for the parity.
        assert_eq!(counters(&bench).member_reads > before.member_reads, !rest_comes);
        let held = bench.held.take().unwrap();
        held.into_iter().for_each(|done| bench.input(done));
        assert_eq!([0, 17, 18, 23].map(|line| bench.read(line)), [2, 2, 3, 3]);
        assert!(bench.volume().is_idle());
    }
}

/// What is in the log of one stripe goes to it together, wherever in the log it is: its parity is
/// computed once.
///
/// ```text
/// stripe            0 (lines 0 to 11)   2 and 3 (24 to 47)   0
/// in the log        0                   all                  5, 10
/// ```
#[test]
fn lines_of_a_stripe_are_destaged_together() {
    let mut bench = Bench::new(raid5());
    (0..48).for_each(|line| bench.write(line, 1));
    bench.drain();
    let before = bench.volume().status().counters.stripe_jobs;
    bench.write(0, 2);
    (24..48).for_each(|line| bench.write(line, 3));
    bench.write(5, 2);
    bench.write(10, 2);
    // All of it becomes durable: only that is destaged.
    bench.pass(Duration::from_millis(200));
    bench.drain();
    assert_eq!(bench.volume().status().counters.stripe_jobs - before, 3);
    assert_eq!([0, 1, 5, 10, 11, 24].map(|line| bench.read(line)), [2, 1, 2, 2, 1, 3]);
}

/// What is in the log of a stripe beside one that is destaged goes with it: the arms are there.
///
/// ```text
/// stripe            0     1     33, 34         66 to 70
/// in the log        0                          800 to 860
/// and before                    400 to 416
/// and last                20
/// ```
#[test]
fn stripes_beside_each_other_are_destaged_together() {
    let mut bench = Bench::new(raid5());
    (0..900).for_each(|line| bench.write(line, 1));
    bench.drain();
    bench.write(0, 2);
    (400..416).for_each(|line| bench.write(line, 2));
    (800..860).for_each(|line| bench.write(line, 2));
    bench.write(20, 2);
    assert_eq!(bench.ask(Operation::Flush).0, Ok(()));
    let jobs = |bench: &Bench| bench.volume().status().counters.stripe_jobs;
    let before = jobs(&bench);
    bench.held = Some(Vec::new());
    let drain = Request { id: RequestId(bench.next), operation: Operation::Drain, fua: false };
    bench.next += 1;
    bench.input(Input::Request(drain));
    bench.pass(Duration::from_millis(200));
    assert_eq!(jobs(&bench) - before, 4, "the first segment is emptied, and 20 goes with it");
    let held = bench.held.take().unwrap();
    held.into_iter().for_each(|done| bench.input(done));
    bench.drain();
    assert_eq!([0, 1, 20, 416, 859].map(|line| bench.read(line)), [2, 1, 2, 1, 2]);
}

/// Scattered lines of a stripe go to it with one I/O for each member, and what lies between them
/// with them; unless it has rotted, or is lost.
///
/// ```text
/// column     0   1   2   3
/// unit 0     new     new          lines 0 to 3
/// unit 1     new     new          lines 4 to 7
/// unit 2         new     new      lines 8 to 11
/// ```
#[test]
fn scattered_lines_of_a_stripe_take_one_io_for_each_member() {
    const NEW: [u64; 6] = [0, 2, 4, 6, 9, 11];
    for rotten in [vec![], vec![1], vec![1, 5]] {
        let mut bench = Bench::new(raid5());
        (0..24).for_each(|line| bench.write(line, 1 + line as u8));
        bench.drain();
        let scrub = |bench: &mut Bench| {
            bench.volume_request(VolumeRequest::Scrub).unwrap();
            bench.until_idle();
            bench.volume().status().counters
        };
        // The parity of the first stripe is on the last member.
        for line in &rotten {
            let offset = (MIB + line % 4 * LINE_SIZE) as usize;
            bench.members[*line as usize / 4].as_mut().unwrap()[offset] ^= 1;
        }
        // Two in a column cannot be had from anything.
        let is_lost = rotten.len() > 1;
        if is_lost {
            assert_eq!(scrub(&mut bench).lines_lost, 2);
        }
        let before = bench.volume().status().counters;
        NEW.into_iter().for_each(|line| bench.write(line, 100 + line as u8));
        bench.pass(Duration::from_millis(200));
        bench.drain();
        let after = bench.volume().status().counters;
        assert_eq!(after.stripe_jobs - before.stripe_jobs, 1);
        if rotten.is_empty() {
            let ios = (
                after.member_reads - before.member_reads,
                after.member_writes - before.member_writes,
                (after.member_write_bytes - before.member_write_bytes) / LINE_SIZE,
            );
            assert_eq!(ios, (3, 4, 3 + 3 + 3 + 4));
        }
        for line in 0..24 {
            let expected = match NEW.contains(&line) {
                true => Ok(100 + line as u8),
                false if is_lost && rotten.contains(&line) => Err(RequestError::Io),
                false => Ok(1 + line as u8),
            };
            assert_eq!(bench.try_read(line), expected, "line {line}, rotten {rotten:?}");
        }
        let found = scrub(&mut bench);
        assert_eq!(found.lines_repaired - before.lines_repaired, u64::from(rotten.len() == 1));
        assert_eq!(found.lines_lost, before.lines_lost);
        let stripe = MIB as usize..MIB as usize + 4 * LINE_SIZE as usize;
        let members: Vec<&[u8]> =
            bench.members.iter().map(|member| &member.as_ref().unwrap()[stripe.clone()]).collect();
        for i in 0..stripe.len() {
            assert_eq!(members.iter().fold(0, |sum, member| sum ^ member[i]), 0, "byte {i}");
        }
    }
}

#[test]
fn one_failing_member_of_a_redundant_set_loses_nothing() {
    for failing in 0..4 {
        let mut bench = Bench::new(raid5());
        let mut written = fill(&mut bench, 1);
        bench.drain();
        bench.failing[failing] = true;
        check(&mut bench, &written);
        written = fill(&mut bench, 2);
        bench.drain();
        check(&mut bench, &written);
        // It comes back as it was, and is not believed.
        bench.failing[failing] = false;
        bench.open(true);
        check(&mut bench, &written);
        let member = MemberIndex(failing as u8);
        bench.volume_request(VolumeRequest::Rebuild { member }).unwrap();
        bench.until_idle();
        let status = bench.volume().status();
        assert_eq!(status.counters.members_rebuilt, 1, "{status:?}");
        // Now another may fail.
        bench.failing[(failing + 1) % 4] = true;
        check(&mut bench, &written);
    }
}

#[test]
fn rot_is_found_and_repaired() {
    let mut bench = Bench::new(raid5());
    let written = fill(&mut bench, 1);
    bench.drain();
    for byte in bench.members[2].as_mut().unwrap()[MIB as usize..].iter_mut().step_by(512) {
        *byte ^= 0x10;
    }
    check(&mut bench, &written);
    bench.volume_request(VolumeRequest::Scrub).unwrap();
    bench.until_idle();
    let counters = bench.volume().status().counters;
    assert!(counters.lines_repaired > 0 && counters.lines_lost == 0, "{counters:?}");
    bench.failing[1] = true;
    check(&mut bench, &written);
}

#[test]
fn attributes_decide_where_extents_are() {
    let mut bench = Bench::new(tiered());
    let level =
        |bench: &Bench, line: u64| bench.volume().place(Lba(line * 8)).map(|p| p.tier.level);
    bench.write(0, 1);
    bench.drain();
    assert_eq!(level(&bench, 0), Some(RaidLevel::Raid0));
    let extent = 8;
    for (words, wanted) in [
        ("important", RaidLevel::Raid5),
        ("important,random", RaidLevel::Raid1),
        ("none", RaidLevel::Raid0),
    ] {
        let set: Attributes = words.parse().unwrap();
        let change = AttributeChange {
            set,
            clear: Attributes::from_bits(0)
                .unwrap()
                .or("important,random".parse().unwrap())
                .without(set),
        };
        let ranges = vec![LbaRange::new(0, extent * 8)];
        bench.volume_request(VolumeRequest::SetAttributes { ranges, change }).unwrap();
        bench.until_idle();
        assert_eq!(level(&bench, 0), Some(wanted), "{words}");
        assert_eq!(bench.read(0), 1);
        bench.open(false);
        assert_eq!(level(&bench, 0), Some(wanted), "{words}, opened again");
        assert_eq!(bench.read(0), 1);
    }
    let ranges = vec![LbaRange::new(extent * 8, 8)];
    let change = AttributeChange { set: Attributes::TEMPORARY, clear: Attributes::NONE };
    bench.volume_request(VolumeRequest::SetAttributes { ranges, change }).unwrap();
    bench.write(extent, 9);
    bench.drain();
    assert!(bench.volume().place(Lba(extent * 8)).unwrap().is_temporary);
}

#[test]
fn extents_that_fell_back_are_moved_when_there_is_room() {
    let mut config = tiered();
    config.sets[0].member_bytes = 64 << 10;
    config.logical_bytes = config.capacity_bytes() - config.temporary_bytes;
    let mut bench = Bench::new(config);
    // RAID 1 has room for four extents; the last two fall back to RAID 5.
    let (extents, extent_lines) = (6, 8);
    let ranges = vec![LbaRange::new(0, extents * extent_lines * 8)];
    let set = Attributes::IMPORTANT.or(Attributes::RANDOM);
    let change = AttributeChange { set, clear: Attributes::NONE };
    bench.volume_request(VolumeRequest::SetAttributes { ranges, change }).unwrap();
    (0..extents).for_each(|extent| bench.write(extent * extent_lines, 1 + extent as u8));
    bench.drain();
    bench.until_idle();
    let on_raid1 = |bench: &Bench| -> Vec<bool> {
        let places =
            (0..extents).map(|extent| bench.volume().place(Lba(extent * extent_lines * 8)));
        places
            .map(|place| place.is_some_and(|place| place.tier.level == RaidLevel::Raid1))
            .collect()
    };
    assert_eq!(on_raid1(&bench), [true, true, true, true, false, false]);
    for (start, freed, expected) in [
        (false, 1, [true, false, true, true, true, false]),
        // What had no room is remembered by a start, too.
        (true, 3, [true, false, true, false, true, true]),
    ] {
        if start {
            bench.open(false);
            bench.until_idle();
        }
        let range = LbaRange::new(freed * extent_lines * 8, extent_lines * 8);
        assert_eq!(bench.ask(Operation::Discard { range }).0, Ok(()));
        bench.drain();
        bench.until_idle();
        assert_eq!(on_raid1(&bench), expected);
    }
    let values: Vec<u8> = (0..extents).map(|extent| bench.read(extent * extent_lines)).collect();
    assert_eq!(values, [1, 0, 3, 0, 5, 6]);
}

#[test]
fn blocks_live_as_long_as_something_points_to_them() {
    let mut bench = Bench::new(tiered());
    let allocate = |bench: &mut Bench, attributes| {
        let request = VolumeRequest::Allocate { near: None, attributes };
        match bench.volume_request(request).unwrap() {
            Some(VolumeAnswer::Allocated(block)) => block,
            other => panic!("{other:?}"),
        }
    };
    let root = allocate(&mut bench, Attributes::ROOT);
    let inode = allocate(&mut bench, Attributes::IMPORTANT);
    let data = allocate(&mut bench, Attributes::NONE);
    let other = Lba(data.0 + 1);
    let point = |from, to| VolumeRequest::CreatePointer { from, to };
    bench.volume_request(point(root, inode)).unwrap();
    bench.volume_request(point(inode, data)).unwrap();
    assert_eq!(
        bench.volume_request(point(inode, data)),
        Err(VolumeError::PointerExists { from: inode, to: data }.into())
    );
    assert_eq!(bench.volume_request(point(inode, other)), Err(VolumeError::BadBlock(other).into()));
    let attributes = bench.volume().attributes(inode);
    assert!(attributes.contains(Attributes::METADATA.or(Attributes::IMPORTANT)));
    assert_eq!(bench.volume().attributes(data), Attributes::IMPORTANT, "inherited");
    bench.write(data.0 / 8, 7);
    assert_eq!(bench.ask(Operation::Flush).0, Ok(()));
    bench.open(false);
    assert_eq!(bench.read(data.0 / 8), 7);
    assert!(bench.volume().is_allocated(data));
    let request = VolumeRequest::DeletePointer { from: root, to: inode };
    bench.volume_request(request).unwrap();
    assert!(!bench.volume().is_allocated(inode) && !bench.volume().is_allocated(data));
    assert_eq!(bench.read(data.0 / 8), 0, "it has left the log");
    bench.drain();
    bench.until_idle();
    assert_eq!(bench.volume().place(data), None);
    assert_eq!(bench.volume().status().pointers, 0);
    // A cycle that nothing points into.
    let (first, second) =
        (allocate(&mut bench, Attributes::NONE), allocate(&mut bench, Attributes::NONE));
    bench.volume_request(point(first, second)).unwrap();
    bench.volume_request(point(second, first)).unwrap();
    let collected = bench.volume_request(VolumeRequest::Collect).unwrap();
    assert_eq!(collected, Some(VolumeAnswer::Collected(2)));
}

#[test]
fn what_is_written_to_a_freed_block_is_not_collected() {
    let mut bench = Bench::new(tiered());
    let block = bench.allocate(None);
    let line = block.0 / 8;
    bench.write(line, 1);
    bench.drain();
    let collect = |bench: &mut Bench| bench.volume_request(VolumeRequest::Collect).unwrap();
    // Its zeroes are in the log, and what somebody writes there as to a plain block is behind them.
    assert_eq!(collect(&mut bench), Some(VolumeAnswer::Collected(1)));
    bench.write(line, 2);
    assert_eq!(bench.ask(Operation::Flush).0, Ok(()));
    assert_eq!(collect(&mut bench), Some(VolumeAnswer::Collected(0)));
    assert_eq!(bench.read(line), 2);
    bench.open(false);
    assert_eq!(collect(&mut bench), Some(VolumeAnswer::Collected(0)));
    assert_eq!(bench.read(line), 2, "the log has it after a start, too");
    bench.drain();
    assert_eq!(collect(&mut bench), Some(VolumeAnswer::Collected(0)));
    bench.open(false);
    assert_eq!(collect(&mut bench), Some(VolumeAnswer::Collected(0)));
    assert_eq!((bench.read(line), bench.read(line + 1)), (2, 0));
}

#[test]
fn what_is_written_past_the_log_to_a_freed_block_is_not_collected() {
    let mut bench = Bench::new(tiered());
    bench.bypass_threshold_bytes = 16 << 10;
    bench.open(false);
    // Where no line is compared after a crash: those are not written past the log.
    let block = bench.allocate(Some(Lba(640)));
    assert_eq!(bench.volume_request(VolumeRequest::Collect), Ok(Some(VolumeAnswer::Collected(1))));
    assert_eq!(bench.ask(Operation::Flush).0, Ok(()));
    // It comes down without the zeroes, which it replaces.
    let data = Buffer::copy_of(&[2; 32 << 10]);
    assert_eq!(bench.ask(Operation::Write { start: block, data }).0, Ok(()));
    assert_eq!(bench.ask(Operation::Flush).0, Ok(()));
    assert!(bench.engine.as_ref().unwrap().counters().bypasses > 0);
    for _ in 0..2 {
        bench.volume_request(VolumeRequest::Collect).unwrap();
        bench.drain();
        assert_eq!(bench.read(block.0 / 8), 2);
        bench.open(false);
    }
}

#[test]
fn a_write_with_fua_has_a_place_after_a_crash() {
    let mut bench = Bench::new(tiered());
    bench.no_log = true;
    bench.open(false);
    let data = Buffer::copy_of(&[3; LINE_SIZE as usize]);
    assert_eq!(bench.ask_with(Operation::Write { start: Lba(640), data }, true).0, Ok(()));
    bench.open(false);
    assert_eq!((bench.read(80), bench.read(81)), (3, 0));
}

// Where a new extent lies is known before a write of it ends: the process may die before any flush.
#[test]
fn without_a_log_what_was_acknowledged_is_there_after_a_kill() {
    for config in [tiered(), raid5()] {
        let mut bench = Bench::new(config);
        bench.no_log = true;
        bench.open(false);
        let written = fill(&mut bench, 1);
        bench.open(false);
        check(&mut bench, &written);
    }
}

/// Nobody repeats them: extents that had lost their places came back with what had been there.
#[test]
fn without_a_log_zeroes_are_there_after_a_kill() {
    for config in [tiered(), raid5()] {
        let mut bench = Bench::new(config);
        bench.no_log = true;
        bench.open(false);
        let written = fill(&mut bench, 1);
        assert_eq!(bench.ask(Operation::Flush).0, Ok(()));
        let range = LbaRange::new(0, bench.engine().data_disk().blocks);
        assert_eq!(bench.ask(Operation::WriteZeroes { range, may_unmap: false }).0, Ok(()));
        bench.open(false);
        let zeroes: Vec<(u64, u8)> = written.into_iter().map(|(line, _)| (line, 0)).collect();
        check(&mut bench, &zeroes);
    }
}

#[test]
fn without_a_log_blocks_can_be_allocated_at_once() {
    let mut bench = Bench::new(tiered());
    bench.no_log = true;
    bench.open(false);
    assert_eq!(bench.engine().status().uncached, Some(Uncached::PassingThrough));
    assert_eq!(bench.allocate(None), Lba(0));
    assert!(bench.volume().is_allocated(Lba(0)));
}

#[test]
fn a_freed_block_loses_its_place_after_a_crash_too() {
    let mut bench = Bench::new(tiered());
    let block = bench.allocate(None);
    bench.write(block.0 / 8, 1);
    bench.drain();
    bench.volume_request(VolumeRequest::Collect).unwrap();
    assert_eq!(bench.ask(Operation::Flush).0, Ok(()));
    assert!(bench.volume().place(block).is_some(), "its zeroes are in the log");
    bench.open(false);
    assert!(!bench.volume().is_allocated(block), "that it is free was durable with the flush");
    bench.drain();
    bench.until_idle();
    assert_eq!(bench.volume().place(block), None);
    assert_eq!(bench.volume().status().extents_mapped, 0);
}

#[test]
fn a_missing_member_must_be_allowed_for() {
    let mut bench = Bench::new(raid5());
    let written = fill(&mut bench, 1);
    bench.drain();
    let taken = bench.members[3].take();
    assert!(matches!(bench.try_open(false), Phase::Failed(_)));
    bench.open(true);
    check(&mut bench, &written);
    let newer = fill(&mut bench, 2);
    bench.drain();
    // It comes back with what it had; it is old.
    bench.members[3] = taken;
    bench.open(false);
    check(&mut bench, &newer);
}

#[test]
fn two_failures_give_errors_and_never_wrong_data() {
    let mut bench = Bench::new(raid5());
    let written = fill(&mut bench, 1);
    bench.drain();
    bench.failing[0] = true;
    bench.failing[1] = true;
    let mut errors = 0;
    for (line, value) in &written {
        match bench.try_read(*line) {
            Ok(found) => assert_eq!(found, *value),
            Err(error) => {
                assert_eq!(error, RequestError::Io);
                errors += 1;
            }
        }
    }
    // Two of four members hold half of the lines.
    assert!(errors > written.len() / 3 && errors < 2 * written.len() / 3, "{errors}");
    bench.failing = vec![false; 4];
    bench.open(false);
    check(&mut bench, &written);
}

#[test]
fn a_blank_disk_in_a_members_place_loses_exactly_what_was_on_it() {
    let mut bench = Bench::new(tiered());
    // With a log, what it still has would be read from there.
    bench.no_log = true;
    bench.open(false);
    let temporary = AttributeChange { set: Attributes::TEMPORARY, clear: Attributes::NONE };
    let all = vec![LbaRange::new(0, bench.lines() * 8)];
    let request = VolumeRequest::SetAttributes { ranges: all, change: temporary };
    assert_eq!(bench.volume_request(request), Ok(None));
    let mut written = fill(&mut bench, 1);
    bench.drain();
    bench.until_idle();
    let gone = MemberIndex(2);
    let is_lost = |bench: &Bench, line: u64| {
        let at = bench.volume().place(Lba(line * 8)).expect("it was destaged");
        at.tier.level == RaidLevel::Raid0 && at.member == gone
    };
    let mut lost: BTreeSet<u64> =
        written.iter().map(|(line, _)| *line).filter(|line| is_lost(&bench, *line)).collect();
    assert!(lost.len() > 10 && lost.len() < written.len() / 2, "{} lines", lost.len());
    let check = |bench: &mut Bench, written: &[(u64, u8)], lost: &BTreeSet<u64>| {
        for (line, value) in written {
            let expected = if lost.contains(line) { Err(RequestError::Io) } else { Ok(*value) };
            assert_eq!(bench.try_read(*line), expected, "line {line}");
        }
    };
    // Full of something that must never show.
    bench.members[2].as_mut().unwrap().fill(0xdb);
    bench.open(true);
    check(&mut bench, &written, &lost);
    // Two starts before anything is written again.
    bench.open(true);
    check(&mut bench, &written, &lost);
    let half: Vec<u64> = lost.iter().copied().step_by(2).collect();
    for line in &half {
        bench.write(*line, 99);
        lost.remove(line);
    }
    written.iter_mut().filter(|(line, _)| half.contains(line)).for_each(|(_, value)| *value = 99);
    check(&mut bench, &written, &lost);
    bench.drain();
    check(&mut bench, &written, &lost);
    bench.open(true);
    check(&mut bench, &written, &lost);
    // Lost once more: what was written since, too.
    bench.members[2].as_mut().unwrap().fill(0xdb);
    bench.open(true);
    lost.extend(half);
    check(&mut bench, &written, &lost);
    // What the journal says of lines that were found before is older than the second loss.
    bench.open(true);
    check(&mut bench, &written, &lost);
}

/// Noticed: a member that was failed by hand was up to date again after a crash, although that had
/// been answered.
#[test]
fn who_fails_a_member_is_answered_when_that_is_durable() {
    let mut bench = Bench::new(raid5());
    bench.holds = vec![Device::CacheDisk];
    bench.held = Some(Vec::new());
    let member = MemberIndex(2);
    let asked = bench.start(Operation::Volume(VolumeRequest::FailMember { member }));
    bench.pass(Duration::from_millis(20));
    assert!(!bench.replies.contains_key(&asked), "the journal has not been written");
    for ended in bench.held.take().unwrap() {
        bench.input(ended);
    }
    let reply = bench.replies.remove(&asked);
    assert!(reply.is_some_and(|(result, ..)| result.is_ok()));
    // Again: it is so already.
    assert_eq!(bench.volume_request(VolumeRequest::FailMember { member }), Ok(None));
    bench.open(false);
    assert_eq!(bench.volume().status().members[2].state, MemberState::Stale);
}

#[test]
fn what_a_rebuild_gives_up_fails_and_the_rest_of_the_stripe_is_protected_again() {
    let mut bench = Bench::new(raid5());
    let written = fill(&mut bench, 1);
    bench.drain();
    let missing = MemberIndex(0);
    let on = |bench: &Bench, line: u64| bench.volume().place(Lba(line * 8)).unwrap();
    // A line on another member cannot be read while this one is rebuilt: the line of this one in
    // its column is lost with it.
    let victim = written.iter().map(|(line, _)| on(&bench, *line)).find(|at| at.member != missing);
    let victim = victim.unwrap();
    assert_eq!(bench.volume_request(VolumeRequest::FailMember { member: missing }), Ok(None));
    // It misses all that is written now.
    fill(&mut bench, 1);
    bench.drain();
    bench.bad.insert((usize::from(victim.member.0), victim.offset));
    assert_eq!(bench.volume_request(VolumeRequest::Rebuild { member: missing }), Ok(None));
    bench.until_idle();
    let status = bench.volume().status();
    assert_eq!(status.members[0].state, MemberState::UpToDate, "it ends");
    let unreadable: Vec<u64> = written
        .iter()
        .map(|(line, _)| *line)
        .filter(|line| bench.try_read(*line).is_err())
        .collect();
    assert!(!unreadable.is_empty() && unreadable.len() <= 2, "{unreadable:?}");
    for line in &unreadable {
        assert_eq!(on(&bench, *line).offset, victim.offset, "only in that column");
        bench.write(*line, 77);
    }
    bench.drain();
    // Now one may fail again.
    let expected: Vec<(u64, u8)> = written
        .iter()
        .map(|(line, value)| (*line, if unreadable.contains(line) { 77 } else { *value }))
        .collect();
    bench.failing[2] = true;
    check(&mut bench, &expected);
}

#[test]
fn records_stay_until_the_members_are_flushed() {
    let mut bench = Bench::new(raid5());
    let mut written = fill(&mut bench, 1);
    bench.drain();
    bench.failing[0] = true;
    let (first, value) = written[0];
    assert_eq!(bench.read(first), value);
    // A second member takes writes and loses what it took: it cannot be flushed, and then the power
    // goes.
    bench.unflushable[1] = true;
    let before = bench.members[1].clone();
    for round in 0..3 {
        for (line, value) in &mut written {
            if *line % 5 == round {
                *value = value.wrapping_add(2) | 1;
                bench.write(*line, *value);
            }
        }
        bench.pass(Duration::from_secs(2));
    }
    bench.members[1] = before;
    bench.members[0] = None;
    bench.unflushable[1] = false;
    bench.open(true);
    for (line, value) in &written {
        let found = bench.try_read(*line);
        assert!(found == Ok(*value), "line {line}: {found:?}, not {value}");
    }
}

// Members 0 1 2 3 of a stripe of RAID 5 of which nothing but D was ever written: D . . P
//
//   1 has failed, 3 is away:  D' - . -    P is that of D, and has its checksum
//   3 is back:                D' - . P    it is believed, because nobody can do without it
//   1 is rebuilt:             D' . . P'   nothing of 1 is needed here, but one may fail again
#[test]
fn a_parity_that_missed_changes_while_its_member_was_away_is_made_anew() {
    let mut bench = Bench::new(raid5());
    bench.no_log = true;
    bench.open(false);
    bench.write(0, 1);
    assert_eq!(bench.ask(Operation::Flush).0, Ok(()));
    assert_eq!(bench.volume().place(Lba(0)).unwrap().member, MemberIndex(0));
    let one = MemberIndex(1);
    assert_eq!(bench.volume_request(VolumeRequest::FailMember { member: one }), Ok(None));
    let away = bench.members[3].take();
    bench.open(true);
    bench.write(0, 2);
    bench.members[3] = away;
    bench.open(true);
    assert_eq!(bench.volume_request(VolumeRequest::Rebuild { member: one }), Ok(None));
    bench.until_idle();
    bench.failing[0] = true;
    assert_eq!(bench.try_read(0), Ok(2));
    assert_eq!(bench.volume().status().counters.lines_lost, 0);
}

// Members 0 1 2 3 of a stripe of RAID 5: A B C P
//
//   0 is done without, P has rotted:  - B C x
//   C is written:                     - B C' P'  A is nowhere any more, and P' is that of B and C'
#[test]
fn a_write_that_gives_up_a_row_leaves_the_others_protected() {
    let mut bench = Bench::new(raid5());
    bench.no_log = true;
    bench.open(false);
    let lines: Vec<u64> = (0..3).map(|extent| extent * 4).collect();
    for (line, value) in lines.iter().zip(1..) {
        bench.write(*line, value);
    }
    let places: Vec<_> =
        lines.iter().map(|line| bench.volume().place(Lba(line * 8)).unwrap()).collect();
    assert!(places.iter().zip(0..).all(|(at, member)| at.member == MemberIndex(member)));
    assert!(places.iter().all(|at| at.offset == places[0].offset));
    let gone = MemberIndex(0);
    assert_eq!(bench.volume_request(VolumeRequest::FailMember { member: gone }), Ok(None));
    bench.members[3].as_mut().unwrap()[places[0].offset as usize] ^= 1;
    // Not at once: what cannot be read may be there another time.
    let tries = (1..10).find(|_| {
        let data = Buffer::copy_of(&[9; LINE_SIZE as usize]);
        bench.ask(Operation::Write { start: Lba(lines[2] * 8), data }).0.is_ok()
    });
    assert!(tries.is_some_and(|tries| tries > 1), "{tries:?}");
    assert_eq!(bench.volume_request(VolumeRequest::Rebuild { member: gone }), Ok(None));
    bench.until_idle();
    assert_eq!(bench.try_read(lines[0]), Err(RequestError::Io));
    bench.failing[1] = true;
    assert_eq!((bench.try_read(lines[1]), bench.try_read(lines[2])), (Ok(2), Ok(9)));
}

// Members 0 1 2 3 of a column of RAID 5: A - C P, nothing was ever written to 1
//
//   0 is done without, 1 cannot be written:  what goes there would be in the parity alone, and A with it
#[test]
fn one_parity_does_not_stand_for_two_rows() {
    for is_together in [false, true] {
        let mut bench = Bench::new(raid5());
        bench.no_log = true;
        bench.open(false);
        let lines: Vec<u64> = (0..3).map(|extent| extent * 4).collect();
        for line in [lines[0], lines[1] + 1, lines[2]] {
            bench.write(line, 1);
        }
        assert_eq!(bench.ask(Operation::Flush).0, Ok(()));
        let places = lines.iter().map(|line| bench.volume().place(Lba(line * 8)).unwrap().member);
        assert!(places.eq([0, 1, 2].map(MemberIndex)));
        let gone = MemberIndex(0);
        assert_eq!(bench.volume_request(VolumeRequest::FailMember { member: gone }), Ok(None));
        let away = bench.members[1].take();
        bench.open(true);
        let (first, count) = if is_together { (0, 12) } else { (lines[1], 1) };
        let data = Buffer::copy_of(&vec![7; count * LINE_SIZE as usize]);
        let (result, ..) = bench.ask(Operation::Write { start: Lba(first * 8), data });
        assert_eq!(result, Err(RequestError::Io));
        // A change of what is there can still be kept.
        bench.write(lines[2], 4);
        bench.members[1] = away;
        bench.open(false);
        assert_eq!((bench.read(lines[0]), bench.read(lines[1])), (1, 0));
    }
}

// ---- members that are late ---------------------------------------------------------------------

/// A member that does not answer for a while (a drive that spins up) is late, and nothing more: who
/// reads is served by the others, who writes waits, and when it answers it is as up to date as
/// before.
#[test]
fn a_late_member_is_given_time_and_reads_go_elsewhere() {
    for level in [RaidLevel::Raid1, RaidLevel::Raid5] {
        let mut bench = redundant(level);
        (0..24).for_each(|line| bench.write(line, 1 + line as u8));
        bench.drain();
        bench.holds = vec![Device::Member(MemberIndex(0))];
        bench.held = Some(Vec::new());
        let begin = bench.now;
        for line in 0..24 {
            assert_eq!(bench.read(line), 1 + line as u8);
        }
        let took = bench.now.since(begin);
        assert!(took >= Duration::from_secs(9) && took < Duration::from_secs(12), "{took:?}");
        let late = |bench: &Bench| bench.volume().status().members[0];
        assert!(late(&bench).is_late && late(&bench).times_late == 1);
        (0..24).for_each(|line| bench.write(line, 100 + line as u8));
        bench.start_drain();
        (0..15).for_each(|_| bench.pass_in_steps(Duration::from_secs(1)));
        assert_eq!(late(&bench).state, MemberState::UpToDate);
        let held = bench.held.take().unwrap();
        held.into_iter().for_each(|done| bench.input(done));
        bench.drain();
        let member = late(&bench);
        assert_eq!(
            (member.state, member.is_late, member.errors),
            (MemberState::UpToDate, false, 0)
        );
        // What it missed, it did not miss.
        let mut bench = bench.without(1);
        (0..24).for_each(|line| assert_eq!(bench.read(line), 100 + line as u8));
    }
}

/// One that never answers is done without after `member-timeout`, not before; and a pause of ours
/// is none of its time.
#[test]
fn a_member_that_hangs_is_done_without_when_its_time_is_over() {
    for level in [RaidLevel::Raid1, RaidLevel::Raid5] {
        for pauses in [false, true] {
            let mut bench = redundant(level);
            (0..24).for_each(|line| bench.write(line, 1));
            bench.drain();
            (0..24).for_each(|line| bench.write(line, 2));
            bench.holds = vec![Device::Member(MemberIndex(0))];
            bench.held = Some(Vec::new());
            bench.start_drain();
            bench.pass(Duration::from_millis(200));
            let begin = bench.now;
            let mut paused = Duration(0);
            while bench.volume().status().members[0].state == MemberState::UpToDate {
                bench.pass_in_steps(Duration::from_millis(500));
                if pauses && paused < Duration::from_secs(3 * 3600) {
                    paused = Duration(paused.0 + Duration::from_secs(3600).0);
                    bench.pass(Duration::from_secs(3600));
                }
                assert!(bench.now.since(begin) < Duration::from_secs(100 + 4 * 3600));
            }
            let took = Duration(bench.now.since(begin).0 - paused.0);
            assert!(took >= Duration::from_secs(26) && took < Duration::from_secs(33), "{took:?}");
            bench.drain();
            (0..24).for_each(|line| assert_eq!(bench.read(line), 2));
        }
    }
}

/// Not the log alone knows how long the cache-disk may take: without one, nothing but the tables
/// and the journal lies there. A pause of ours is none of its time.
#[test]
fn a_cache_disk_that_hangs_under_the_journal_has_failed_in_time() {
    for pauses in [false, true] {
        let mut bench = Bench::new(raid5());
        bench.no_log = true;
        bench.open(false);
        bench.write(0, 1);
        assert_eq!(bench.ask(Operation::Flush).0, Ok(()));
        bench.holds = vec![Device::CacheDisk];
        bench.held = Some(Vec::new());
        let lines = bench.lines();
        let data = Buffer::copy_of(&[7; 4096]);
        let write = bench.start(Operation::Write { start: Lba((lines - 1) * 8), data });
        bench.pass_in_steps(Duration::from_secs(20));
        assert!(!bench.engine().status().cache_disk_failed);
        if pauses {
            bench.pass(Duration::from_secs(3600));
            assert!(!bench.engine().status().cache_disk_failed);
        }
        bench.pass_in_steps(Duration::from_secs(15));
        assert!(bench.engine().status().cache_disk_failed);
        assert_eq!(bench.replies[&write].0, Err(RequestError::Io));
        // It ends after all: nobody waits for it any more.
        let held = bench.held.take().unwrap();
        held.into_iter().for_each(|done| bench.input(done));
        assert_eq!(bench.read(0), 1);
    }
}

fn redundant(level: RaidLevel) -> Bench {
    Bench::new(match level {
        RaidLevel::Raid5 => raid5(),
        _ => config(4, vec![set(RaidLevel::Raid1, 4, 2, 0, 16 << 10)], 16 << 10),
    })
}
