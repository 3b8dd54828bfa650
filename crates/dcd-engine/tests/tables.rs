//! Every table that a checkpoint lists has a limit, and keeps it always: in what is there now, in
//! what a start rebuilds from the log, and in what was written by versions that did not keep it.
//!
//! Most tests have limits of a few, which [`Limits`] is for; some have those of the format.

mod common;

use common::{Driver, Kind, LINE, Options, never_idle};
use dcd_engine::units::Line;
use dcd_engine::zero_ranges::ZeroRange;
use dcd_engine::{Device, Duration, IoError, Limits, OpenError, Operation, RequestError};

/// Eight zero ranges, four damaged lines, one witness, and pieces of 4 KiB.
fn tiny(options: &mut Options) {
    options.engine.limits = Limits {
        zero_ranges: Limits::ZERO_RANGES_MIN,
        poisoned_lines: 4,
        recent_witnesses: 1,
        checkpoint_write_bytes: LINE,
        announced_ahead: usize::MAX,
        ..Limits::MOST
    };
}

/// How a session ends without order.
#[derive(Clone, Copy, Debug)]
enum End {
    Kill,
    PowerCut,
}

fn die(d: &mut Driver, end: End) {
    match end {
        End::Kill => d.kill(),
        End::PowerCut => d.power_cut(),
    }
}

/// Starts, ends in order, starts again: twice the same.
#[track_caller]
fn starts_twice(d: &mut Driver) {
    d.reopen();
    d.restart();
}

// ---- zero ranges ------------------------------------------------------------------------------

/// More disjoint discards than a checkpoint lists, each of them destaged before the next.
fn discards_one_after_the_other(d: &mut Driver, count: u64) {
    d.write_durably([2 * count + 5], 7);
    for index in 0..count {
        d.done(|d| d.discard(16 * index, 8));
        d.done(Driver::flush);
        d.run_until(|d| d.status().zero_ranges == 0);
    }
}

#[test]
fn discards_that_were_destaged_are_not_too_many_for_a_start() {
    for end in [End::Kill, End::PowerCut] {
        let mut d = Driver::with(|options| {
            tiny(options);
            options.segments = 64;
        });
        discards_one_after_the_other(&mut d, 100);
        die(&mut d, end);
        d.reopen();
        assert!(d.status().zero_ranges <= 8, "{end:?}: {}", d.status().zero_ranges);
        assert_eq!(d.read(205), 7);
        d.restart();
        assert_eq!(d.read(205), 7);
    }
}

/// The same with the limit of the format.
#[test]
fn ten_thousand_discards_are_not_too_many_for_a_start() {
    let mut d = Driver::with(|options| {
        options.segments = 64;
        options.segment_size = 1 << 20;
        options.data_disk.blocks = 16 * 10_000 + 80;
    });
    d.write_durably([20_005], 7);
    for first in (0..10_000).step_by(100) {
        let ids: Vec<_> = (first..first + 100).map(|index| d.discard(16 * index, 8)).collect();
        ids.into_iter().for_each(|id| d.expect_ok(id));
    }
    d.done(Driver::flush);
    d.kill_and_reopen();
    assert!(d.status().zero_ranges <= 8192);
    d.restart();
    assert_eq!(d.read(20_005), 7);
}

/// One discard, destaged; then writes past the log, each of which cuts it in two when it is
/// replayed.
#[test]
fn bypasses_over_a_destaged_discard_are_not_too_many_for_a_start() {
    for end in [End::Kill, End::PowerCut] {
        let mut d = Driver::with(|options| {
            tiny(options);
            options.segments = 64;
            options.engine.bypass_threshold_bytes = 4096;
        });
        d.done(|d| d.discard(100 * 8, 900 * 8));
        d.done(Driver::flush);
        d.run_until(|d| d.status().zero_ranges == 0);
        for line in (101..301).step_by(2) {
            d.done(|d| d.write_blocks(line * 8, 8, 9));
        }
        assert!(d.status().counters.bypasses > 20, "{}", d.status().counters.bypasses);
        d.done(Driver::flush);
        die(&mut d, end);
        starts_twice(&mut d);
        assert_eq!((d.read(101), d.read(102), d.read(299)), (9, 0, 9));
    }
}

/// Many writes past the log are under way together, and all of them cut the same range.
#[test]
fn bypasses_under_way_have_their_ranges_reserved() {
    let mut d = Driver::with(|options| {
        tiny(options);
        never_idle(options);
        options.engine.bypass_threshold_bytes = 4096;
    });
    d.hold(|io| io.is(Device::DataDisk, Kind::WriteZeroes));
    let id = d.discard(100 * 8, 100 * 8);
    d.expect_ok(id);
    d.hold(|io| io.is(Device::DataDisk, Kind::Write));
    let ids: Vec<_> = (101..131).step_by(2).map(|line| d.write_blocks(line * 8, 8, 9)).collect();
    let more = d.discard(300 * 8, 8);
    d.finish_all();
    d.release();
    ids.into_iter().for_each(|id| d.expect_ok(id));
    d.expect_ok(more);
    d.done(Driver::flush);
    d.kill();
    starts_twice(&mut d);
    assert_eq!((d.read(101), d.read(102), d.read(129)), (9, 0, 9));
}

/// The data-disk takes no zeroes for a while: discards wait, and then they go on.
#[test]
fn discards_wait_for_room_and_get_it() {
    let mut d = Driver::with(|options| {
        tiny(options);
        never_idle(options);
    });
    d.hold(|io| io.is(Device::DataDisk, Kind::WriteZeroes));
    let ids: Vec<_> = (0..40).map(|index| d.discard(16 * (20 + index), 8)).collect();
    d.finish_all();
    assert!(d.status().zero_ranges <= 4, "{}", d.status().zero_ranges);
    assert!(!d.is_answered(*ids.last().expect("forty")));
    d.release();
    ids.into_iter().for_each(|id| d.expect_ok(id));
    d.power_cut();
    starts_twice(&mut d);
}

/// A checkpoint whose flush fails may be what a start finds, or not.
#[test]
fn a_checkpoint_that_failed_is_not_too_much_either() {
    let mut d = Driver::with(|options| {
        tiny(options);
        options.segments = 64;
        options.engine.bypass_threshold_bytes = 4096;
    });
    for round in 0..30 {
        d.done(|d| d.discard(16 * (20 + round), 8));
        d.fail_next(Device::CacheDisk, Kind::Flush, IoError::Failed);
        d.done(Driver::flush);
        d.heal();
        d.run_until(|d| d.status().zero_ranges == 0);
        d.done(|d| d.write_blocks(8 * (21 + 2 * round), 8, 9));
    }
    d.power_cut_keeping(|device, _| device == Device::CacheDisk);
    starts_twice(&mut d);
}

// ---- what older versions have left ------------------------------------------------------------

/// A log with more zero ranges than the next session may list: as left by a version that did not
/// count them.
fn with_too_many(end: Option<End>) -> Driver {
    let mut d = Driver::with(never_idle);
    d.hold(|io| io.is(Device::DataDisk, Kind::WriteZeroes));
    // Lines with data below, so that zeroes that were not made show.
    d.write_durably(0..60, 5);
    d.done(|d| d.submit(Operation::Drain, false));
    for index in 0..30 {
        // Longer and longer, some beside one that stays; the witnesses 0 to 4 are among them.
        d.done(|d| d.discard(16 * index, 8));
    }
    d.write_durably([10, 101], 6);
    match end {
        Some(end) => {
            d.done(Driver::flush);
            die(&mut d, end);
        }
        None => d.shut_down(),
    }
    tiny(&mut d.options);
    d
}

fn shows_what_was_written(d: &mut Driver) {
    for line in 0..60 {
        let expected = match line {
            10 => 6,
            line if line % 2 == 0 => 0,
            _ => 5,
        };
        assert_eq!(d.read(line), expected, "line {line}");
    }
    assert_eq!(d.read(101), 6);
}

#[test]
fn a_start_that_finds_too_many_makes_room_first() {
    for end in [None, Some(End::Kill), Some(End::PowerCut)] {
        let mut d = with_too_many(end);
        d.reopen();
        assert!(d.status().zero_ranges <= 4, "{}", d.status().zero_ranges);
        assert!(d.newest_checkpoint().0.zeroes.len() <= 4);
        shows_what_was_written(&mut d);
        d.power_cut();
        starts_twice(&mut d);
        shows_what_was_written(&mut d);
        d.detach();
        let on_data_disk = |line| d.data_disk.line(line);
        assert_eq!((on_data_disk(0), on_data_disk(1), on_data_disk(10)), (0, 5, 6));
    }
}

/// Wherever that start is cut short, the next one finds everything.
#[test]
fn a_start_that_makes_room_may_be_cut_short_anywhere() {
    for end in [None, Some(End::Kill)] {
        for ios in 0.. {
            for keeps in [true, false] {
                let mut d = with_too_many(end);
                d.start_open().expect("starts");
                let is_open = (0..ios).any(|_| !d.finish_one());
                d.power_cut_keeping(|_, _| keeps);
                d.reopen();
                shows_what_was_written(&mut d);
                if is_open {
                    assert!(ios > 40, "every I/O was visited: {ios}");
                    break;
                }
            }
            if ios > 60 {
                break;
            }
        }
    }
}

/// A data-disk that cannot zero a range is written to; one that fails is told of, and nothing is
/// lost.
#[test]
fn room_is_made_on_other_data_disks_too() {
    let mut d = with_too_many(Some(End::Kill));
    d.fail_always(Device::DataDisk, Kind::WriteZeroes, 0..u64::MAX, IoError::Unsupported);
    d.reopen();
    assert!(d.status().zero_ranges <= 4);
    shows_what_was_written(&mut d);

    let mut d = with_too_many(Some(End::PowerCut));
    d.fail_always(Device::DataDisk, Kind::WriteZeroes, 0..u64::MAX, IoError::Failed);
    let error = d.try_open().expect_err("there is no room");
    assert!(matches!(error, OpenError::Io { device: Device::DataDisk, .. }), "{error}");
    d.forget_engine();
    d.reopen();
    shows_what_was_written(&mut d);
    // A few that fail do not matter.
    let mut d = with_too_many(Some(End::PowerCut));
    d.fail_always(Device::DataDisk, Kind::WriteZeroes, 0..2 * LINE as u64, IoError::Failed);
    d.reopen();
    d.heal();
    shows_what_was_written(&mut d);
}

/// The newest checkpoint of an older version lists more than the format allows.
#[test]
fn a_checkpoint_that_lists_too_much_is_opened_again() {
    let mut d = Driver::with(|options| options.data_disk.blocks = 16 * 12_000);
    d.write_durably([20_001], 7);
    d.shut_down();
    let (mut forged, offset) = d.newest_checkpoint();
    let range = |index: u64| ZeroRange { line: Line(2 * index), lines: 1, may_unmap: true };
    forged.zeroes = (0..10_000).map(range).collect();
    let bytes = forged.encode();
    assert!(bytes.len() as u64 <= d.superblock().geometry.checkpoint_area_bytes);
    d.cache_disk.rot(offset, bytes.bytes());
    d.reopen();
    assert!(d.status().zero_ranges <= 8192);
    assert_eq!(d.read(20_001), 7);
    starts_again_in_order(&mut d);
    assert_eq!(d.read(20_001), 7);
}

fn starts_again_in_order(d: &mut Driver) {
    d.restart();
}

// ---- damaged lines ----------------------------------------------------------------------------

/// Ten durable lines, and two more whose records say that those are durable; four may be listed as
/// damaged.
fn with_ten_lines(verify_reads: bool) -> Driver {
    let mut d = Driver::with(|options| {
        tiny(options);
        never_idle(options);
        options.engine.verify_reads = verify_reads;
    });
    d.write_durably(100..110, 1);
    d.write_durably([120], 2);
    d.write_durably([121], 3);
    d
}

fn rot_all_ones(d: &mut Driver) {
    d.slots_of(1).into_iter().for_each(|slot| d.cache_disk.flip(slot));
}

#[track_caller]
fn are_lost(d: &mut Driver, lines: std::ops::Range<u64>) {
    for line in lines {
        assert!(d.try_read(line * 8, 8) == Err(RequestError::Io), "line {line}");
    }
    assert!(d.newest_checkpoint().0.poisoned.len() <= 4);
}

/// A start finds more damage than a checkpoint lists. No line of it is shown, also where reads are
/// not verified.
#[test]
fn damage_beyond_the_limit_is_found_by_a_start_and_not_forgotten() {
    for verify_reads in [true, false] {
        let mut d = with_ten_lines(verify_reads);
        d.power_cut();
        rot_all_ones(&mut d);
        d.reopen();
        are_lost(&mut d, 100..110);
        d.restart();
        are_lost(&mut d, 100..110);
        // Overwritten, they can be read, and the others are still lost.
        d.write_durably(100..109, 4);
        assert_eq!((d.read(104), d.read(120), d.read(121)), (4, 2, 3));
        are_lost(&mut d, 109..110);
        d.power_cut();
        starts_twice(&mut d);
        // Not listed, and with room in the list again: who asks for no verification gets none.
        if verify_reads {
            are_lost(&mut d, 109..110);
        }
    }
}

/// The same when reads find it.
#[test]
fn damage_beyond_the_limit_is_found_by_reads_and_not_forgotten() {
    let mut d = with_ten_lines(true);
    // Out of the segment buffers.
    d.restart();
    rot_all_ones(&mut d);
    are_lost(&mut d, 100..110);
    d.power_cut();
    starts_twice(&mut d);
    are_lost(&mut d, 100..110);
}

// ---- pieces -----------------------------------------------------------------------------------

/// A large checkpoint is written in pieces: whichever of them a power cut keeps, the cache opens.
#[test]
fn any_piece_of_a_checkpoint_may_be_missing() {
    for missing in 0..6 {
        let mut d = Driver::with(|options| {
            tiny(options);
            never_idle(options);
            options.segments = 64;
            options.data_disk.blocks = 8 * 4096;
        });
        d.write_durably(0..700, 1);
        d.finish_all();
        let mark = d.started.len();
        let generation = d.newest_checkpoint().0.generation;
        d.hold(move |io| io.is(Device::CacheDisk, Kind::Flush));
        d.submit(Operation::Shutdown, false);
        d.finish_all();
        let areas = d.superblock().geometry.checkpoint_offsets;
        let length = d.superblock().geometry.checkpoint_area_bytes;
        let is_piece = |seen: &common::Seen| {
            seen.is(Device::CacheDisk, Kind::Write)
                && (areas[0]..areas[1] + length).contains(&seen.offset)
        };
        let pieces = d.started[mark..].iter().filter(|seen| is_piece(seen)).count();
        assert!(pieces >= 3, "{pieces} pieces");
        d.power_cut_keeping(|_, index| index != missing);
        d.reopen();
        assert!(d.newest_checkpoint().0.generation > generation);
        assert_eq!((d.read(0), d.read(699)), (1, 1));
        d.advance_time(Duration::from_secs(1));
        starts_again_in_order(&mut d);
        assert_eq!((d.read(0), d.read(699)), (1, 1));
    }
}

/// Limits can be smaller than those of the format, never larger, and never none.
#[test]
fn limits_are_within_those_of_the_format() {
    let is_taken = |limits: Limits| {
        let mut options = Options::default();
        options.engine.limits = limits;
        options.engine.validate().is_ok()
    };
    let most = Limits::MOST;
    assert!(is_taken(most));
    assert!(is_taken(Limits { zero_ranges: 8, poisoned_lines: 0, ..most }));
    assert!(!is_taken(Limits { zero_ranges: 7, ..most }));
    assert!(!is_taken(Limits { zero_ranges: most.zero_ranges + 1, ..most }));
    assert!(!is_taken(Limits { poisoned_lines: most.poisoned_lines + 1, ..most }));
    assert!(!is_taken(Limits { recent_witnesses: 0, ..most }));
    assert!(!is_taken(Limits { recent_witnesses: 17, ..most }));
    assert!(!is_taken(Limits { checkpoint_write_bytes: 512, ..most }));
    assert!(!is_taken(Limits { checkpoint_write_bytes: 0, ..most }));
    assert!(!is_taken(Limits { checkpoint_lines: 0, ..most }));
    assert!(is_taken(Limits { checkpoint_part: 1, listed_free: 0, ..most }));
    assert!(!is_taken(Limits { checkpoint_part: 0, ..most }));
    assert!(!is_taken(Limits { checkpoint_part: 9, ..most }));
    assert!(is_taken(Limits { checkpoint_log_bytes: 0, ..most }));
}
