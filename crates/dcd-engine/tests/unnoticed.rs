//! What no other test noticed when the engine was changed in one place (`make mutants`): what it shows to
//! the outside, and when it does what it does. Each test names the change.

mod common;

use common::{Driver, Kind, LINE, LINES_PER_SEGMENT, Options, never_idle};
use dcd_engine::{Device, Duration, IoError, LbaRange, OpenError};

// ---- seen from outside ------------------------------------------------------------------------

/// Noticed: a block status of anything else.
///
/// ```text
/// blocks    0 ... 799   800 ... 839   840 ... 847   848 ... 879   880 ...
///           unknown     zero          written       zero          unknown
/// ```
#[test]
fn block_status_tells_zeroes_in_pieces() {
    let mut d = Driver::with(never_idle);
    let end = d.options.data_disk.blocks;
    let status = |d: &Driver, start: u64, pieces_max: usize| {
        d.engine().block_status(LbaRange::new(start, end - start), pieces_max)
    };
    assert_eq!(status(&d, 0, 8), [(end, false)]);
    let zeroed = d.discard(800, 80);
    d.expect_ok(zeroed);
    assert_eq!(status(&d, 0, 8), [(800, false), (80, true), (end - 880, false)]);
    d.write(105, 1);
    let all = [(800, false), (40, true), (8, false), (32, true), (end - 880, false)];
    assert_eq!(status(&d, 0, 8), all);
    assert_eq!(status(&d, 0, 5), all);
    assert_eq!(status(&d, 0, 2), all[..2]);
    assert_eq!(status(&d, 0, 1), all[..1]);
    assert_eq!(status(&d, 843, 2), [(5, false), (32, true)], "it begins within a line");
}

/// Noticed: a counter that counts otherwise.
#[test]
fn counters_count() {
    let mut d = Driver::with(never_idle);
    let before = d.status().counters;
    d.write_durably([100, 101], 1);
    let write = d.write_fua(102, 2);
    d.expect_ok(write);
    let discard = d.discard(808, 8);
    d.expect_ok(discard);
    d.read(100);
    d.read(300);
    let after = d.status().counters;
    assert_eq!(after.writes - before.writes, 3);
    assert_eq!(after.write_bytes - before.write_bytes, 3 * LINE as u64);
    assert_eq!((after.flushes - before.flushes, after.fuas - before.fuas), (1, 1));
    assert_eq!(after.zeroes - before.zeroes, 1);
    assert_eq!(after.reads - before.reads, 2);
    assert_eq!(after.read_bytes - before.read_bytes, 2 * LINE as u64);
    assert_eq!(after.read_hit_lines - before.read_hit_lines, 1);
    assert_eq!(after.read_miss_lines - before.read_miss_lines, 1);
    assert_eq!(after.log_writes - before.log_writes, 2);
    assert_eq!(after.records - before.records, 2);
    assert_eq!(after.cache_disk_fua_writes - before.cache_disk_fua_writes, 2);
    // A header and two lines, a header and one.
    assert_eq!(after.log_write_bytes - before.log_write_bytes, 5 * LINE as u64);
    assert_eq!(after.logged_lines - before.logged_lines, 3);
}

// ---- when ------------------------------------------------------------------------------------

/// Noticed: above the high mark destaging stops elsewhere than at the low mark.
#[test]
fn destaging_goes_on_from_the_high_mark_to_the_low_one() {
    let mut d = Driver::with(|options| {
        never_idle(options);
        options.segments = 100;
        options.data_disk.blocks = 1 << 15;
        options.engine.dirty_high_percent = 50;
        options.engine.dirty_low_percent = 30;
    });
    let used = |d: &Driver| d.status().segments.dirty + d.status().segments.buffered;
    // No neighbours, or all would go with the first.
    let fill = |d: &mut Driver, segment: u64| {
        let first = 2 * segment * LINES_PER_SEGMENT;
        d.write_durably((0..LINES_PER_SEGMENT).map(|i| first + 2 * i), 1);
        d.finish_all();
    };
    let mut segment = 0;
    while used(&d) < 49 {
        fill(&mut d, segment);
        segment += 1;
    }
    assert_eq!((used(&d), d.count_since(0, Device::DataDisk, Kind::Write)), (49, 0));
    fill(&mut d, segment);
    assert_eq!(used(&d), 29);
    assert!(d.status().dirty_lines > 25 * LINES_PER_SEGMENT, "{}", d.status().dirty_lines);
}

/// Noticed: no wake-up is asked for. Nobody else wakes an engine that has nothing to do.
#[test]
fn an_empty_cache_asks_to_be_woken_for_its_last_checkpoint() {
    let mut d = Driver::new();
    d.write_durably([100], 1);
    d.drain();
    d.finish_all();
    let drained = d.now;
    d.run_until(|d| d.status().cache_disk_clean);
    assert!(d.now.since(drained) <= Duration::from_secs(2));
}

/// Noticed: the wait stays what it was at first (C24).
#[test]
fn destaging_waits_longer_after_each_failure() {
    let mut d = Driver::new();
    d.write_durably([100], 1);
    d.fail_always(Device::DataDisk, Kind::Flush, 0..u64::MAX, IoError::Failed);
    let mut waits = Vec::new();
    let mut seen = None;
    d.run_until(|d| d.status().destage_retry_at.is_some());
    while waits.len() < 10 {
        let status = d.status();
        if let Some(at) = status.destage_retry_at.filter(|at| Some(*at) != seen) {
            waits.push(at.since(status.now).0 / 1_000_000);
            seen = Some(at);
        }
        d.step();
    }
    let expected = [250, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000];
    assert_eq!(waits, expected);
    d.heal();
    d.drain();
    assert_eq!(d.data_disk.line(100), 1);
}

/// Noticed: a checkpoint for one empty segment while the cache is nearly full, or none for two.
///
/// ```text
/// 64 segments, 60 filled with lines of their own, 3 or 4 free: few.
/// One of them is emptied: not worth a checkpoint. Another: worth it.
/// ```
#[test]
fn with_few_free_segments_two_empty_ones_are_worth_a_checkpoint() {
    let mut d = Driver::with(|options: &mut Options| {
        never_idle(options);
        options.segments = 64;
    });
    let mut line = 0;
    while d.status().segments.free > 4 {
        d.write_durably(line..line + LINES_PER_SEGMENT, 1);
        line += LINES_PER_SEGMENT;
    }
    let segments = d.status().segments;
    assert!(segments.empty == 0 && segments.free == 4, "{segments:?}");
    let before = d.status().counters.checkpoints;
    let blocks = LINES_PER_SEGMENT * 8;
    for (first, expected) in [(0, 0), (1, 1)] {
        let discard = d.discard(first * blocks, blocks);
        d.expect_ok(discard);
        d.finish_all();
        let made = d.status().counters.checkpoints - before;
        assert_eq!(made, expected, "{:?}", d.status().segments);
    }
}

// ---- damage ----------------------------------------------------------------------------------

/// Noticed: a place behind the end of the log that cannot be read is passed over in silence. Records
/// that were logged again elsewhere may begin there (C22), so a start needs a person's word.
#[test]
fn what_cannot_be_read_behind_the_end_is_not_passed_over() {
    let mut d = Driver::with(never_idle);
    d.write_durably([100], 1);
    let geometry = d.superblock().geometry;
    let segment = (d.slot_of(1) - geometry.segments_offset) / geometry.segment_size_bytes;
    d.power_cut();
    let next = geometry.segments_offset + (segment + 2) * geometry.segment_size_bytes;
    d.fail_always(Device::CacheDisk, Kind::Read, next..next + LINE as u64, IoError::Failed);
    match d.try_open() {
        Err(OpenError::Io { device: Device::CacheDisk, offset, error: IoError::Failed }) => {
            assert_eq!(offset, next);
        }
        other => panic!("{other:?}"),
    }
    d.options.engine.accept_damage = true;
    d.reopen();
    assert_eq!(d.read(100), 1);
}
