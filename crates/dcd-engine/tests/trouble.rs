//! A data-disk that does not take what is destaged: full, read-only, gone, or bad in places.

mod common;

use common::{Driver, Kind, LINE, never_idle};
use dcd_engine::{Device, Duration, IoError, Operation, RequestError, Time};

/// A drain that is not given up.
const EVER: Duration = Duration::from_secs(10_000);
const SECOND: Duration = Duration(1_000_000_000);
const ALL: std::ops::Range<u64> = 0..u64::MAX;

/// When destaging wrote to the data-disk since `mark`, and how many lines each time.
fn tries(d: &Driver, mark: usize) -> Vec<(Time, u64)> {
    let writes = d.started[mark..].iter().filter(|io| io.is(Device::DataDisk, Kind::Write));
    writes.map(|io| (io.at, io.length / LINE as u64)).collect()
}

/// Nothing is taken, whatever says so: one write is tried, ever later, and the log is read once for
/// each. Nothing that failed is counted as destaged; it is told from the first failure until all is
/// well.
#[test]
fn a_disk_that_takes_nothing_is_tried_with_one_write_ever_later() {
    for error in [IoError::NoSpace, IoError::ReadOnly, IoError::Gone, IoError::Failed] {
        let mut d = Driver::with(|options| options.segments = 64);
        d.fail_always(Device::DataDisk, Kind::Write, ALL, error);
        assert_eq!(d.status().destage_trouble, None);
        // Every other line: a write for each, were they tried.
        (0..20).for_each(|i| d.write_durably((0..15).map(|k| 100 + 30 * i + 2 * k), 1));
        d.advance_time(Duration::from_secs(200));
        let status = d.status();
        let trouble = status.destage_trouble.expect("told");
        assert_eq!((trouble.error, trouble.is_whole), (error, true));
        let at_once = if error == IoError::Failed { 60 } else { 40 };
        let failed = status.counters.data_disk_errors;
        assert!((5..=at_once).contains(&failed), "{failed} errors of {error:?}");
        let counters = status.counters;
        assert_eq!((counters.destage_writes, counters.destage_write_bytes), (0, 0));
        assert!(counters.destage_read_bytes <= failed * (2 << 20), "{counters:?}");
        // When it has waited for long, one write each 30 s.
        let mark = d.started.len();
        d.advance_time(Duration::from_secs(300));
        let late = tries(&d, mark).len();
        assert!((8..=20).contains(&late), "{late} of {error:?}");
        assert_eq!(d.status().destage_trouble.expect("still").since, trouble.since);

        d.heal();
        d.drain();
        let status = d.status();
        assert_eq!((status.dirty_lines, status.destage_trouble), (0, None));
        assert_eq!(status.counters.destage_write_bytes, 300 * LINE as u64);
        assert!((0..300).all(|k| d.data_disk.line(100 + 2 * k) == 1));
    }
}

/// What the disk has room for goes on beside what it has none for: overwriting needs no space.
#[test]
fn beside_what_finds_no_space_the_others_go_on() {
    let mut d = Driver::with(|options| options.segments = 64);
    let full = 300 * LINE as u64;
    d.fail_always(Device::DataDisk, Kind::Write, full..u64::MAX, IoError::NoSpace);
    for round in 0..10 {
        d.write_durably([400 + round], 1);
        d.write_durably((0..15).map(|k| 100 + 2 * k), round as u8 + 1);
        d.advance_time(Duration(10 * SECOND.0));
    }
    d.advance_time(Duration(40 * SECOND.0));
    let on_disk: Vec<u8> = (0..15).map(|k| d.data_disk.line(100 + 2 * k)).collect();
    assert_eq!(on_disk, [10; 15]);
    let status = d.status();
    assert_eq!(status.dirty_lines, 10);
    let trouble = status.destage_trouble.expect("told");
    assert_eq!((trouble.error, trouble.is_whole), (IoError::NoSpace, true));
    // What could not go is thrown away by whoever wrote it: nothing is wrong any more.
    d.done(|d| d.discard(400 * 8, 10 * 8));
    d.heal();
    d.advance_time(Duration(40 * SECOND.0));
    assert_eq!(d.status().destage_trouble, None);
}

/// One bad sector among 256 lines that go in one write: found by halves, the others are there soon,
/// and everything is tried again no more often than that needs.
#[test]
fn one_bad_sector_is_found_by_halves() {
    let mut d = Driver::never_idle(|options| {
        options.segments = 64;
        options.engine.drain_timeout = EVER;
    });
    let bad = 177 * LINE as u64;
    d.fail_always(Device::DataDisk, Kind::Write, bad..bad + 512, IoError::Failed);
    for line in 100..300 {
        d.done(|d| d.write(line, 3));
    }
    let mark = d.started.len();
    d.submit(Operation::Drain, false);
    d.advance_time(Duration(20 * SECOND.0));
    assert!((100..300).all(|line| line == 177 || d.data_disk.line(line) == 3));
    assert_eq!(d.status().dirty_lines, 1);
    let count = tries(&d, mark).len();
    assert!(count <= 40, "{count} writes");
    let trouble = d.status().destage_trouble.expect("told");
    assert_eq!((trouble.is_whole, trouble.blocked_lines), (false, 1));
    d.heal();
    d.advance_time(Duration(40 * SECOND.0));
    assert_eq!((d.data_disk.line(177), d.status().destage_trouble), (3, None));
}

/// The same of zeroes: the pieces around a bad place are zeroed, and so are other ranges.
#[test]
fn one_bad_place_does_not_hold_back_other_zeroes() {
    let mut d = Driver::never_idle(|options| options.engine.drain_timeout = EVER);
    (0..1024).for_each(|line| d.data_disk.rot(line * LINE as u64, &[7; LINE]));
    let bad = 177 * LINE as u64;
    d.fail_always(Device::DataDisk, Kind::WriteZeroes, bad..bad + 512, IoError::Failed);
    for start in [100, 500] {
        d.done(|d| d.discard(start * 8, 200 * 8));
    }
    d.write_durably([800], 1);
    let mark = d.started.len();
    d.submit(Operation::Drain, false);
    d.advance_time(Duration(20 * SECOND.0));
    let zero = |line: &u64| (100..300).contains(line) || (500..700).contains(line);
    for line in (0..1024).filter(zero) {
        assert_eq!(d.data_disk.line(line), if line == 177 { 7 } else { 0 }, "line {line}");
    }
    assert_eq!((d.status().zero_ranges, d.data_disk.line(800)), (1, 1));
    let count = d.count_since(mark, Device::DataDisk, Kind::WriteZeroes);
    assert!(count <= 60, "{count}");
    assert!(!d.status().destage_trouble.expect("told").is_whole);
    d.heal();
    d.advance_time(Duration(40 * SECOND.0));
    assert_eq!((d.data_disk.line(177), d.status().zero_ranges), (0, 0));
    assert_eq!(d.status().destage_trouble, None);
}

/// Log and data-disk are full: a discard is what makes room, and passes those that wait for it.
#[test]
fn a_discard_makes_room_where_log_and_data_disk_are_full() {
    let mut d = Driver::never_idle(|options| {
        options.segments = 16;
        options.engine.full_timeout = Duration(60 * SECOND.0);
    });
    d.fail_always(Device::DataDisk, Kind::Write, ALL, IoError::NoSpace);
    let mut line = 0;
    let waiting = loop {
        let write = d.write(2 * line, 1);
        d.advance_time(Duration(SECOND.0));
        if d.status().counters.stalled_writes > 0 {
            break write;
        }
        d.expect_ok(write);
        line += 1;
    };
    // Nothing but whole lines, in vain, and all over again: none of this may use up what is left.
    for i in 0..100 {
        d.done(|d| d.discard((600 + 4 * i) * 8, 3 * 8));
    }
    d.done(|d| d.discard(0, line * 8));
    // The disk takes zeroes, and has room then.
    d.advance_time(Duration(20 * SECOND.0));
    d.expect_ok(waiting);
    d.heal();
    d.drain();
    let status = d.status();
    assert_eq!((status.dirty_lines, status.zero_ranges, status.destage_trouble), (0, 0, None));
    assert_eq!((d.data_disk.line(0), d.data_disk.line(2 * line)), (0, 1));
}

/// Zeroes find no space: a few tries, not thousands, and they are zero for whoever reads.
#[test]
fn zeroes_that_find_no_space_are_tried_ever_later() {
    let mut d = Driver::never_idle(|options| options.engine.drain_timeout = EVER);
    d.fail_always(Device::DataDisk, Kind::WriteZeroes, ALL, IoError::NoSpace);
    for i in 0..100 {
        d.done(|d| d.discard((100 + 2 * i) * 8, 8));
    }
    d.submit(Operation::Drain, false);
    d.advance_time(Duration(200 * SECOND.0));
    let errors = d.status().counters.data_disk_errors;
    assert!((5..=50).contains(&errors), "{errors}");
    assert!(d.status().destage_trouble.expect("told").is_whole);
    d.heal();
    d.advance_time(Duration(40 * SECOND.0));
    assert_eq!((d.status().zero_ranges, d.status().destage_trouble), (0, None));
}

/// What goes past the log and finds no space, or a disk that takes no writes, is told as that.
#[test]
fn clients_learn_why_the_data_disk_failed_their_write() {
    for (error, told) in [
        (IoError::NoSpace, RequestError::NoSpace),
        (IoError::ReadOnly, RequestError::ReadOnly),
        (IoError::Failed, RequestError::Io),
    ] {
        for kind in [Kind::Write, Kind::Flush] {
            let mut d = Driver::with(|options| options.engine.bypass_threshold_bytes = 8192);
            d.fail_always(Device::DataDisk, kind, ALL, error);
            let write = d.write_blocks(800, 16, 1);
            assert_eq!(d.wait(write), Err(told), "{kind:?}");
        }
    }
}

/// A data-disk that takes no writes, served for reading only: the log is read, nothing is tried,
/// and a drain or detach says so at once.
#[test]
fn a_read_only_data_disk_is_not_written_to() {
    let mut d = Driver::with(never_idle);
    d.write_durably(100..110, 3);
    d.shut_down();
    d.options.engine.read_only = true;
    d.options.engine.data_disk_read_only = true;
    let mark = d.started.len();
    d.reopen();
    assert_eq!((d.read(100), d.read(50)), (3, 0));
    d.advance_time(Duration(100 * SECOND.0));
    let drain = d.submit(Operation::Drain, false);
    assert_eq!(d.wait(drain), Err(RequestError::ReadOnly));
    let trouble = d.status().destage_trouble.expect("told");
    assert_eq!((trouble.error, trouble.is_whole), (IoError::ReadOnly, true));
    let detach = d.submit(Operation::Detach, false);
    assert!(d.wait(detach).is_err(), "the pair stays one");
    assert_eq!(d.count_since(mark, Device::DataDisk, Kind::Write), 0);
    d.options.engine.read_only = false;
    d.options.engine.data_disk_read_only = false;
    d.reopen();
    d.drain();
    assert_eq!(d.data_disk.line(109), 3);
}
