//! The log grows and shrinks: what counts when, where a crash comes between, and what is waited
//! for. Random moments are the fuzzer's.

mod common;

use common::{Driver, Kind, LINES_PER_SEGMENT, never_idle};
use dcd_engine::format::geometry::SUPERBLOCK_OFFSETS;
use dcd_engine::io::ResizeError;
use dcd_engine::{Device, Duration, IoError, OpenError, Operation, RequestError, RequestId};

const MIB: u64 = 1 << 20;

fn resize(d: &mut Driver, cache_disk_bytes: u64) -> RequestId {
    d.submit(Operation::Resize { cache_disk_bytes }, false)
}

/// A segment at a time, so that there is room.
fn fill(d: &mut Driver, lines: std::ops::Range<u64>, byte: u8) {
    for first in lines.clone().step_by(LINES_PER_SEGMENT as usize) {
        d.write_durably(first..lines.end.min(first + LINES_PER_SEGMENT), byte);
    }
}

fn segments(d: &Driver) -> u32 {
    d.engine().superblock().geometry.segments
}

/// Of 40 segments.
fn driver() -> Driver {
    Driver::with(|options| {
        never_idle(options);
        options.segments = 40;
    })
}

fn grown() -> Driver {
    let mut d = driver();
    d.cache_disk.set_length(16 * MIB);
    d.done(|d| resize(d, 16 * MIB));
    d
}

#[test]
fn all_of_it_is_used_and_given_back() {
    let mut d = driver();
    let made = (segments(&d), d.superblock().geometry);
    fill(&mut d, 0..100, 1);
    d.cache_disk.set_length(16 * MIB);
    d.done(|d| resize(d, 16 * MIB));
    assert!(segments(&d) > 200 && d.status().segments_total == segments(&d));
    // More than the log that it was.
    fill(&mut d, 0..700, 2);
    d.power_cycle();
    for line in 0..700 {
        assert_eq!(d.read(line), 2, "line {line}");
    }
    fill(&mut d, 100..700, 3);
    let end = made.1.end() + 4096;
    d.done(|d| resize(d, end));
    assert_eq!((segments(&d), d.superblock().geometry), made);
    d.cache_disk.set_length(end);
    d.power_cycle();
    assert!((0..700).all(|line| d.read(line) == if line < 100 { 2 } else { 3 }));
    d.shut_down();
}

/// Steps 1 to 3 of growing: for as long as the superblock is on its way, a start goes by the
/// checkpoint of before, so nothing that this needs is filled again.
#[test]
fn until_the_superblock_is_durable_the_old_checkpoint_counts() {
    for held in SUPERBLOCK_OFFSETS {
        let mut d = driver();
        d.write_durably([1000], 9);
        d.overwrite_segments(0, 25);
        d.cache_disk.set_length(16 * MIB);
        d.hold(move |seen| seen.is(Device::CacheDisk, Kind::Write) && seen.offset == held);
        let asked = resize(&mut d, 16 * MIB);
        d.finish_all();
        let mut newest = None;
        for round in 0..40 {
            let lines = 0..LINES_PER_SEGMENT;
            let writes: Vec<RequestId> = lines.map(|line| d.write(line, 100 + round)).collect();
            let flush = d.flush();
            d.finish_all();
            if !writes.iter().chain([&flush]).all(|id| d.is_answered(*id)) {
                break;
            }
            newest = Some(100 + round);
        }
        let newest = newest.expect("there is room for some");
        assert!(newest < 139, "it waits for the superblock in the end");
        assert!(!d.is_answered(asked), "one copy is not enough");
        d.release();
        d.power_cut();
        d.reopen();
        for line in 0..LINES_PER_SEGMENT {
            let found = d.read(line);
            assert!(found >= newest, "line {line} had {newest} durably, and shows {found}");
        }
        assert_eq!(d.read(1000), 9);
    }
}

/// A write of the superblock that fails leaves nobody to know which counts: it is written again.
#[test]
fn a_superblock_that_cannot_be_written_is_written_again() {
    for failing in SUPERBLOCK_OFFSETS {
        let mut d = driver();
        fill(&mut d, 0..50, 1);
        d.cache_disk.set_length(16 * MIB);
        let id = resize(&mut d, 16 * MIB);
        let is_it = |d: &Driver| {
            let seen = d.started.last().expect("something");
            seen.is(Device::CacheDisk, Kind::Write) && seen.offset == failing
        };
        d.run_until(is_it);
        let write = d.started.last().expect("looked at").id;
        d.fail(write, IoError::Failed);
        assert_eq!(d.wait(id), Ok(()));
        assert!(segments(&d) > 200);
        d.power_cycle();
        assert!((0..50).all(|line| d.read(line) == 1));
    }
}

/// In the areas that count there may be an older checkpoint, which names segments that are gone.
#[test]
fn no_checkpoint_of_before_counts() {
    let mut d = driver();
    fill(&mut d, 0..30, 1);
    d.done(|d| resize(d, 3 * MIB));
    assert!(segments(&d) < 40);
    d.power_cut();
    d.lose_checkpoint(true);
    match d.try_open() {
        Err(OpenError::CheckpointLost { lost, found }) => assert_eq!(lost, found + 1),
        other => panic!("{other:?}"),
    }
}

/// Step 4 of shrinking: before anything is written where the given up segments were, a checkpoint
/// is durable that was begun when they were empty.
#[test]
fn a_checkpoint_comes_before_the_mark() {
    let mut d = driver();
    fill(&mut d, 0..400, 1);
    d.done(|d| resize(d, 3 * MIB));
    let superblock = d.superblock();
    let end = superblock.end_mark_offset().expect("it has one");
    let last = |d: &Driver, is_it: &dyn Fn(&common::Seen) -> bool| {
        d.started.iter().rposition(is_it).expect("it was started")
    };
    let is_write = |seen: &common::Seen, offset| {
        seen.is(Device::CacheDisk, Kind::Write) && seen.offset == offset
    };
    let emptied = last(&d, &|seen| seen.is(Device::DataDisk, Kind::Flush));
    let mark = last(&d, &|seen| is_write(seen, end));
    let told = last(&d, &|seen| is_write(seen, superblock.offset()));
    assert!(emptied < mark && mark < told);
    let areas = superblock.geometry.checkpoint_offsets;
    let between = &d.started[emptied..mark];
    let header = between.iter().position(|seen| areas.iter().any(|area| is_write(seen, *area)));
    let header = header.expect("a checkpoint");
    assert!(between[header..].iter().any(|seen| seen.is(Device::CacheDisk, Kind::Flush)));
}

/// What is being read goes nowhere.
#[test]
fn a_segment_that_is_read_is_not_given_up() {
    let mut d = driver();
    // The last segments are filled last.
    for segment in 0..32 {
        let first = segment * LINES_PER_SEGMENT;
        d.write_durably(first..first + LINES_PER_SEGMENT, 1 + segment as u8);
    }
    let geometry = d.superblock().geometry;
    let limit = geometry.segments_offset + 20 * geometry.segment_size_bytes;
    let reads: Vec<RequestId> = (0..LINES_PER_SEGMENT * 32)
        .map(|line| {
            let range = dcd_engine::LbaRange::new(line * 8, 8);
            d.submit(Operation::read(range), false)
        })
        .collect();
    // What clients read, and nothing else.
    let next = d.next_io();
    d.hold(move |seen| {
        let is_cold = seen.is(Device::CacheDisk, Kind::Read) && seen.offset >= limit;
        is_cold && seen.id.0 < next
    });
    let id = resize(&mut d, 2 * MIB + MIB / 2);
    d.advance_time(Duration::from_secs(5));
    assert_eq!(d.status().resize.map(|it| (it.lines_left, it.segments_left)), Some((0, 0)));
    assert!(reads.iter().any(|read| !d.is_answered(*read)), "some are held");
    assert!(!d.is_answered(id), "it waits for them");
    d.release();
    assert_eq!(d.wait(id), Ok(()));
    for (line, read) in reads.into_iter().enumerate() {
        assert_eq!(d.wait(read), Ok(()));
        let segment = line as u64 / LINES_PER_SEGMENT;
        assert_eq!(d.reply_bytes(read)[0], 1 + segment as u8, "line {line}");
    }
}

/// More segments hold something than it is to have, many times more: it is full, and no fuller.
#[test]
fn a_log_that_becomes_much_smaller_is_no_more_than_full() {
    let mut d = Driver::with(|options| {
        options.segments = 400;
        options.data_disk.blocks = 65_536;
        options.engine.idle_threshold_max = Duration::from_secs(1);
        options.engine.idle_threshold_min = Duration::from_millis(1);
        (options.engine.dirty_high_percent, options.engine.dirty_low_percent) = (95, 90);
    });
    fill(&mut d, 0..5_000, 1);
    let smallest = d.superblock().geometry.segments_offset + 17 * (64 << 10);
    d.done(|d| resize(d, smallest));
    assert!(segments(&d) < 20);
    assert!((0..5_000).all(|line| d.read(line) == 1));
    d.shut_down();
}

#[test]
fn nobody_waits_for_ever_and_everything_is_as_before() {
    let mut d = grown();
    let before = segments(&d);
    fill(&mut d, 0..1000, 1);
    // Somebody wants it no more.
    d.hold(|seen| seen.device == Device::DataDisk);
    let id = resize(&mut d, 3 * MIB);
    d.finish_all();
    let report = d.status().resize.expect("it is under way");
    assert!(report.lines_left > 0 && report.segments_before == before);
    let another = resize(&mut d, 4 * MIB);
    assert_eq!(d.result(another), Err(ResizeError::UnderWay.into()));
    let cancel = d.submit(Operation::CancelResize { resize: id }, false);
    assert_eq!((d.result(id), d.result(cancel)), (Err(RequestError::Cancelled), Ok(())));
    d.release();
    d.finish_all();
    assert_eq!((segments(&d), d.status().resize), (before, None));
    // The data-disk takes nothing.
    fill(&mut d, 0..1000, 2);
    d.fail_always(Device::DataDisk, Kind::Write, 0..u64::MAX, IoError::Failed);
    let id = resize(&mut d, 3 * MIB);
    let told = d.wait(id);
    assert!(matches!(told, Err(RequestError::Stuck { .. })), "{told:?}");
    d.heal();
    assert_eq!(segments(&d), before);
    assert!((0..1000).all(|line| d.read(line) == 2));
    d.done(|d| resize(d, 3 * MIB));
    assert!(segments(&d) < 40);
    assert!((0..1000).all(|line| d.read(line) == 2));
}

/// A shutdown does not wait for it; one whose superblock is on its way is carried out.
#[test]
fn a_shutdown_ends_it() {
    let mut d = grown();
    let before = segments(&d);
    fill(&mut d, 0..1000, 1);
    d.hold(|seen| seen.device == Device::DataDisk);
    let id = resize(&mut d, 3 * MIB);
    d.finish_all();
    let close = d.submit(Operation::Shutdown, false);
    assert_eq!(d.result(id), Err(RequestError::ShuttingDown));
    d.release();
    assert_eq!(d.wait(close), Ok(()));
    d.reopen();
    assert_eq!(segments(&d), before);
    assert!((0..1000).all(|line| d.read(line) == 1));
}

/// Zeroes on their way to the data-disk wait for readers, and checkpoints for the zeroes: those that
/// have not been begun wait for the checkpoint, and no reader holds up a new size.
#[test]
fn readers_beside_discards_hold_up_no_checkpoint() {
    for is_larger in [false, true] {
        let mut d = Driver::with(|options| {
            options.segments = 40;
            options.data_disk.blocks = 8 * 4096;
            // An index that is gathered in parts.
            options.engine.limits.checkpoint_lines = 4;
        });
        fill(&mut d, 0..100, 1);
        d.drain();
        for range in 0..40 {
            let asked = d.discard(8 * (1000 + range * 20), 8);
            d.expect_ok(asked);
        }
        let mark = d.started.len();
        let mut ticks = 0;
        // As many as may be under way at a time are, and no more.
        d.hold(|seen| seen.is(Device::DataDisk, Kind::WriteZeroes));
        while d.count_since(mark, Device::DataDisk, Kind::WriteZeroes) == 0 {
            d.advance_time(Duration::from_millis(20));
            ticks += 1;
            assert!(ticks < 1000, "zeroes are on their way when it is quiet");
        }
        let bytes = match is_larger {
            true => 16 * MIB,
            false => d.superblock().geometry.end() - 10 * LINES_PER_SEGMENT * 4096,
        };
        if is_larger {
            d.cache_disk.set_length(bytes);
        }
        let before = segments(&d);
        assert!(d.count_since(mark, Device::DataDisk, Kind::WriteZeroes) < 40);
        fill(&mut d, 100..120, 2);
        d.read(200);
        let asked = resize(&mut d, bytes);
        d.release();
        for read in 0..2000 {
            if d.is_answered(asked) {
                break;
            }
            d.read(200 + read % 500);
            d.advance_time(Duration::from_millis(5));
        }
        assert!(d.is_answered(asked), "larger: {is_larger}");
        assert_eq!((segments(&d) > before, segments(&d) < before), (is_larger, !is_larger));
        d.advance_time(Duration::from_secs(100));
        d.drain();
    }
}
