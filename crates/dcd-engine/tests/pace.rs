//! When destaging starts and ends, how much of the data-disk it takes, and how long it waits after
//! errors: the figures. Mutants (`make mutants`) changed them unnoticed; each test names the
//! change.

mod common;

use common::{Driver, Kind, LINE, LINES_PER_SEGMENT, never_idle};
use dcd_engine::{Buffer, Device, Duration, IoError, LbaRange, Operation, Time};

/// Noticed: another curve of the idle threshold (it halves ten times from 1 s to 1 ms, evenly over
/// the utilisation), or destaging that starts at another moment.
#[test]
fn destaging_waits_less_as_the_cache_fills() {
    let mut d = Driver::with(|options| {
        options.segments = 100;
        options.data_disk.blocks = 1 << 15;
    });
    let expected = [(5, 750_000), (10, 500_000), (15, 375_000), (30, 125_000), (55, 23_437)];
    let mut seen = Vec::new();
    let mut line = 0;
    while line < 75 * LINES_PER_SEGMENT {
        let used = 100 - d.status().segments.free;
        let micros = d.status().idle_threshold.0 / 1000;
        if expected.iter().any(|(percent, _)| *percent == used) && !seen.contains(&(used, micros)) {
            seen.push((used, micros));
        }
        d.write_durably(line..line + LINES_PER_SEGMENT, 1);
        line += LINES_PER_SEGMENT;
    }
    assert_eq!(seen, expected);
    assert_eq!(d.count_since(0, Device::DataDisk, Kind::Write), 0);
    let threshold = d.status().idle_threshold;
    d.advance_time(Duration(threshold.0 - 1));
    assert_eq!(d.count_since(0, Device::DataDisk, Kind::Write), 0, "not quiet long enough");
    d.advance_time(Duration(1));
    assert!(d.count_since(0, Device::DataDisk, Kind::Write) > 0);
}

/// Noticed: above the high mark destaging stops elsewhere than at the low mark.
#[test]
fn destaging_goes_on_from_the_high_mark_to_the_low_one() {
    let mut d = Driver::never_idle(|options| {
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

/// Noticed: more or less destage writes at once than take 20 ms together, or more than 32, while a
/// reader may come.
#[test]
fn destage_writes_in_flight_take_20_ms() {
    for (service, expected) in [(0, 32), (1, 20), (5, 4), (9, 2), (30, 1)] {
        let mut d = Driver::never_idle(|options| {
            options.segment_size = 1 << 20;
            options.engine.io_timeout = Duration::from_secs(1000);
        });
        // Two lines apart, so that each is a write of its own.
        d.write_durably((0..100).map(|i| 100 + 2 * i), 1);
        d.hold(|io| io.is(Device::DataDisk, Kind::Write));
        // Another read may come, but not at once.
        d.read(900);
        d.advance_time(Duration::from_millis(150));
        d.submit(Operation::Drain, false);
        d.finish_all();
        // One after the other takes so long; those that were started before are waited for.
        let mut most = 0;
        for round in 0..44 {
            let under_way = d.ios_of(Device::DataDisk, Kind::Write);
            if round >= 40 {
                most = most.max(under_way.len());
            }
            let started =
                |d: &Driver| d.started.iter().find(|io| io.id == under_way[0]).unwrap().at;
            let ends = started(&d).after(Duration::from_millis(service));
            d.now = d.now.max(ends);
            d.finish(under_way[0]);
            d.finish_all();
        }
        assert_eq!(most, expected, "{service} ms");
    }
}

/// Noticed: whoever waits for destaging does not get the whole queue of a slow drive, or a reader
/// of the last second does not keep it short.
#[test]
fn destaging_that_is_waited_for_has_the_whole_queue() {
    for (read_ago_ms, expected) in [(None, 32), (Some(1001), 32), (Some(500), 1)] {
        let mut d = Driver::never_idle(|options| {
            options.segment_size = 1 << 20;
            options.engine.io_timeout = Duration::from_secs(1000);
        });
        d.write_durably((0..100).map(|i| 100 + 2 * i), 1);
        d.hold(|io| io.is(Device::DataDisk, Kind::Write));
        d.submit(Operation::Drain, false);
        d.finish_all();
        // The disk takes 30 ms for each.
        for _ in 0..40 {
            let under_way = d.ios_of(Device::DataDisk, Kind::Write);
            d.advance_time(Duration::from_millis(30));
            d.finish(under_way[0]);
            d.finish_all();
        }
        if let Some(ago) = read_ago_ms {
            d.read(900);
            d.advance_time(Duration::from_millis(ago));
            for _ in 0..36 {
                let first = d.ios_of(Device::DataDisk, Kind::Write)[0];
                d.finish(first);
                d.finish_all();
                if d.ios_of(Device::DataDisk, Kind::Write).len() <= expected {
                    break;
                }
            }
        }
        assert_eq!(d.ios_of(Device::DataDisk, Kind::Write).len(), expected, "{read_ago_ms:?}");
    }
}

/// Noticed: destaging does not leave the data-disk to a reader for as long as it held it before, or
/// for longer than 100 ms after the last read.
///
/// ```text
/// read  |
/// write  ==========          ==========          ...  ==========
/// ms    0         10        20                       100: two at once
/// ```
#[test]
fn destaging_shares_the_data_disk_with_a_reader() {
    let mut d = Driver::never_idle(|options| options.segment_size = 256 << 10);
    d.write_durably((0..40).map(|i| 100 + 2 * i), 1);
    d.hold(|io| io.is(Device::DataDisk, Kind::Write));
    d.read(900);
    let read_at = d.now;
    d.submit(Operation::Drain, false);
    d.finish_all();
    for _ in 0..5 {
        let under_way = d.ios_of(Device::DataDisk, Kind::Write);
        assert_eq!(under_way.len(), 1);
        d.advance_time(Duration::from_millis(10));
        d.finish(under_way[0]);
        assert_eq!(d.ios_of(Device::DataDisk, Kind::Write).len(), 0);
        assert_eq!(d.wake_up(), Some(d.now.after(Duration::from_millis(10))));
        d.advance_time(Duration::from_millis(10));
    }
    assert_eq!(d.now.since(read_at), Duration::from_millis(100));
    assert_eq!(d.ios_of(Device::DataDisk, Kind::Write).len(), 2, "20 ms for both together");
}

/// Noticed: destaging to an object store heeds readers as if they shared an arm with it, so that
/// each line is stored on its own, at the price of a whole object.
#[test]
fn destaging_to_a_store_does_not_heed_readers() {
    let mut d = Driver::never_idle(|options| {
        options.segment_size = 256 << 10;
        options.engine.data_disk_is_store = true;
    });
    d.write_durably((0..40).map(|i| 100 + 2 * i), 1);
    d.hold(|io| io.is(Device::DataDisk, Kind::Read) || io.is(Device::DataDisk, Kind::Write));
    let buffer = Buffer::zeroed(LINE);
    d.submit(Operation::Read { range: LbaRange::new(900 * 8, 8), buffer }, false);
    d.submit(Operation::Drain, false);
    d.finish_all();
    let reads = d.ios_of(Device::DataDisk, Kind::Read);
    assert_eq!(reads.len(), 1, "one is under way");
    assert_eq!(d.ios_of(Device::DataDisk, Kind::Write).len(), 32, "all that may be at once");
    d.finish(reads[0]);
    d.release();
    d.finish_all();
    assert_eq!(d.count_since(0, Device::DataDisk, Kind::Write), 40);
    let through = d.started.iter().filter(|io| io.is(Device::DataDisk, Kind::Write) && io.fua);
    assert_eq!(through.count(), 0, "a flush packs them");
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

/// Noticed: a line that fails holds others back, because nobody asks to be woken for them (C24).
#[test]
fn a_line_that_waits_does_not_delay_others() {
    let mut d = Driver::new();
    let bad = 100 * LINE as u64;
    d.fail_always(Device::DataDisk, Kind::Write, bad..bad + 512, IoError::Failed);
    d.write_durably([100], 1);
    d.advance_time(Duration::from_secs(40));
    // It waits for 16 or 30 seconds by now.
    for line in [200, 300, 400] {
        d.write_durably([line], 2);
        let written_at = d.now;
        // Nothing wakes the engine but what it asked for.
        d.run_until(|d| d.data_disk.line(line) == 2);
        assert!(d.now.since(written_at) <= Duration::from_secs(1));
    }
    d.finish_all();
    assert_eq!(d.status().dirty_lines, 1);
}

/// Noticed: a line that fails again is not tried less often.
#[test]
fn a_line_waits_longer_after_each_failure() {
    let mut d = Driver::new();
    let bad = 100 * LINE as u64;
    d.fail_always(Device::DataDisk, Kind::Write, bad..bad + 512, IoError::Failed);
    d.write_durably([100], 1);
    d.advance_time(Duration::from_secs(150));
    let tried: Vec<Time> = d
        .started
        .iter()
        .filter(|io| io.is(Device::DataDisk, Kind::Write) && io.touches_line(100))
        .map(|io| io.at)
        .collect();
    let waits: Vec<u64> = tried.windows(2).map(|w| w[1].since(w[0]).0 / 1_000_000).collect();
    let expected = [250, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000];
    assert_eq!(waits, expected);
    d.heal();
    d.advance_time(Duration::from_secs(31));
    assert_eq!(d.data_disk.line(100), 1);
}

/// Noticed: destaging does not give way to a read of the cache-disk, where that is the same disk.
#[test]
fn with_one_disk_destaging_gives_way_to_every_read() {
    for one_disk in [true, false] {
        let mut d = Driver::never_idle(|options| options.engine.one_disk = one_disk);
        d.write_durably(100..100 + LINES_PER_SEGMENT, 1);
        d.hold(|io| io.is(Device::CacheDisk, Kind::Read) && io.length == LINE as u64);
        let range = LbaRange::new(105 * 8, 8);
        let read = d.submit(Operation::read(range), false);
        let drain = d.submit(Operation::Drain, false);
        d.finish_all();
        assert!(!d.is_answered(read));
        assert_eq!(d.count_since(0, Device::DataDisk, Kind::Write) == 0, one_disk);
        d.release();
        d.expect_ok(drain);
        assert_eq!(d.data_disk.line(105), 1);
    }
}

/// Those who wait for segment buffers wait for the log to be written, and destaging would take its
/// time from it.
#[test]
fn who_waits_for_a_segment_buffer_hurries_no_destaging() {
    let mut d = Driver::never_idle(|options| {
        options.segments = 100;
        options.data_disk.blocks = 1 << 15;
    });
    d.write_durably(0..10 * LINES_PER_SEGMENT, 1);
    d.hold(|io| io.is(Device::CacheDisk, Kind::Write));
    let mark = d.started.len();
    let writes: Vec<_> = (200..400).map(|line| d.write(line, 1)).collect();
    d.finish_all();
    assert!(d.status().counters.stalled_writes > 0);
    assert_eq!(d.count_since(mark, Device::CacheDisk, Kind::Read), 0);
    assert_eq!(d.count_since(mark, Device::DataDisk, Kind::Write), 0);
    d.release();
    d.finish_all();
    assert!(writes.into_iter().all(|id| d.is_answered(id)));
    assert_eq!(d.count_since(mark, Device::DataDisk, Kind::Write), 0);
}

/// A drive with a cache would take a batch at once, and a reader wait for all of it.
#[test]
fn destage_writes_go_through_while_a_reader_may_come() {
    for (pause_ms, is_through) in [(0, true), (999, true), (1001, false)] {
        let mut d = Driver::with(never_idle);
        d.write_durably((0..40).map(|line| 10 * line), 1);
        d.read(405);
        d.advance_time(Duration::from_millis(pause_ms));
        let mark = d.started.len();
        d.drain();
        let first = d.started[mark..].iter().find(|io| io.is(Device::DataDisk, Kind::Write));
        assert_eq!(first.unwrap().fua, is_through, "{pause_ms} ms after a read");
    }
}

/// Noticed: what is under way is not counted.
#[test]
fn zero_ranges_are_destaged_32_at_once() {
    let mut d = Driver::with(never_idle);
    for range in 0..40 {
        d.discard(80 * range, 16);
    }
    d.done(Driver::flush);
    d.hold(|io| io.is(Device::DataDisk, Kind::WriteZeroes));
    d.submit(Operation::Drain, false);
    d.finish_all();
    assert_eq!(d.ios_of(Device::DataDisk, Kind::WriteZeroes).len(), 32);
}

/// Somebody reads without a pause, two at a time, when a large write past the log comes that has to
/// wait for a batch of the same lines.
///
/// ```text
/// reads       |---||---||---||---||---||---||---||---||---|
/// destage     100, 102, ... |--|   waits for silence, and for readers
/// bypass      of 180               asked: the batch does not wait any more
/// ```
#[test]
fn readers_do_not_keep_a_bypass_waiting_that_waits_for_a_batch() {
    let ask = |d: &mut Driver, line: u64| {
        let (range, buffer) = (LbaRange::new(line * 8, 8), Buffer::zeroed(LINE));
        d.submit(Operation::Read { range, buffer }, false)
    };
    for one_disk in [false, true] {
        let mut d = Driver::with(|options| {
            options.engine.bypass_threshold_bytes = 8192;
            options.engine.one_disk = one_disk;
            options.data_disk.blocks = 1 << 15;
        });
        // Two lines apart, so that each is a write of its own.
        d.write_durably((0..50).map(|i| 100 + 2 * i), 1);
        d.hold(|io| io.device == Device::DataDisk);
        d.advance_time(Duration::from_secs(10));
        assert!(d.find_io(Device::DataDisk, Kind::Write).is_some(), "a batch is under way");
        let mut reads = vec![ask(&mut d, 3000), ask(&mut d, 3001)];
        let bypass = d.write_blocks(180 * 8, 16, 2);
        for round in 0.. {
            assert!(round < 2000, "the write waits for ever (one disk: {one_disk})");
            d.finish_all();
            if d.is_answered(bypass) {
                break;
            }
            // Whatever the disk has ends within a millisecond, and the reader asks again.
            for kind in [Kind::Write, Kind::Flush, Kind::Read] {
                d.ios_of(Device::DataDisk, kind).into_iter().for_each(|io| d.finish(io));
            }
            let ended: Vec<_> = reads.iter().copied().filter(|it| d.is_answered(*it)).collect();
            for read in ended {
                reads.retain(|it| *it != read);
                reads.push(ask(&mut d, 3000 + round % 500));
            }
            d.advance_time(Duration::from_millis(1));
        }
        assert_eq!(d.result(bypass), Ok(()));
        d.release();
        assert_eq!((d.read(180), d.read(181), d.read(182)), (2, 2, 1));
    }
}
