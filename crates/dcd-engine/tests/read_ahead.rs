//! What is read ahead of a sequence, when, and for how long it is kept: reads that come in another
//! order than the recorded one cost the cache-disk little more. What is served of it is in
//! `copies.rs`.

mod common;

use common::{Driver, Kind, LINE};
use dcd_engine::{Device, Duration, LbaRange, NewSequence, Operation, RequestId, SequenceRequest};

/// Lines of the sequence, in its order.
fn line_at(place: u64) -> u64 {
    100 + place * 37 % 900
}

const PLACES: u64 = 800;

fn byte_of(line: u64) -> u8 {
    (line % 251) as u8
}

/// A cache with a sequence of [`PLACES`] lines, all copied.
fn with_sequence() -> Driver {
    let mut d = with_read_area();
    let name = "start".to_owned();
    let ranges = (0..PLACES).map(|place| LbaRange::new(line_at(place) * 8, 8)).collect();
    let new = NewSequence { name, ranges, occurrences: 0, is_detected: false };
    d.done(|d| d.submit(Operation::Sequence(SequenceRequest::Store(Box::new(new))), false));
    d.advance_time(Duration::from_secs(3));
    assert_eq!((d.status().copies.valid, d.status().copies.stale), (PLACES, 0));
    d
}

fn with_read_area() -> Driver {
    let mut d = Driver::created(|options| {
        options.copy_pages = 4;
        options.engine.sequence_percent = 100;
        options.engine.detector = None;
    });
    for line in 0..1024 {
        d.data_disk.rot(line * LINE as u64, &[byte_of(line); LINE]);
    }
    d.reopen();
    d
}

fn submit_read(d: &mut Driver, place: u64) -> RequestId {
    d.submit(Operation::read(LbaRange::new(line_at(place) * 8, 8)), false)
}

fn read(d: &mut Driver, places: impl IntoIterator<Item = u64>) {
    for place in places {
        let id = submit_read(d, place);
        d.expect_ok(id);
        assert_eq!(common::one_byte(&d.reply_bytes(id)), byte_of(line_at(place)));
    }
}

fn read_ahead_lines(d: &Driver) -> u64 {
    d.status().counters.read_ahead_lines
}

fn reads_under_way(d: &Driver) -> usize {
    d.ios_of(Device::CacheDisk, Kind::Read).len()
}

/// Other reads of the cache-disk wait for those that are under way.
#[test]
fn a_large_window_is_read_a_few_reads_at_a_time() {
    let mut d = with_sequence();
    let mut most = 0;
    for place in 0..PLACES {
        let id = submit_read(&mut d, place);
        most = most.max(reads_under_way(&d));
        d.expect_ok(id);
    }
    assert_eq!((most, read_ahead_lines(&d)), (2, PLACES));
}

#[test]
fn what_a_read_waits_for_is_read_before_what_is_planned() {
    let mut d = with_sequence();
    d.hold(|io| io.is(Device::CacheDisk, Kind::Read));
    // Windows of 32, 64, 128 and 256 places: the last one is not read at once.
    for place in [0, 25, 80, 180] {
        submit_read(&mut d, place);
    }
    let before = d.ios_of(Device::CacheDisk, Kind::Read);
    let id = submit_read(&mut d, 420);
    let after = d.ios_of(Device::CacheDisk, Kind::Read);
    assert_eq!(after.len(), before.len() + 1, "its chunk, and no other");
    d.finish(after[after.len() - 1]);
    assert!(d.is_answered(id));
    d.release();
    d.finish_all();
}

/// The second part of it comes before the first.
///
/// ```text
/// recorded  0 .......... 300 .......... 600 .......... 800
/// read      1 2 3 4 5    8 9 a b c d    6 7            e f
/// ```
#[test]
fn nothing_is_read_twice_where_reads_come_in_another_order() {
    let mut d = with_sequence();
    read(&mut d, (0..40).chain(650..700).chain(40..650).chain(700..PLACES));
    assert!(read_ahead_lines(&d) <= PLACES, "{}", read_ahead_lines(&d));
}

/// Who reads it once more has forgotten what it had.
#[test]
fn a_sequence_that_is_read_again_at_once_is_read_ahead_again() {
    let mut d = with_sequence();
    read(&mut d, 0..PLACES);
    let (mark, before) = (d.started.len(), read_ahead_lines(&d));
    read(&mut d, 0..PLACES);
    let reads = d.started.len() - mark;
    assert!(reads <= 50, "{reads}");
    assert!(read_ahead_lines(&d) - before <= PLACES);
}

#[test]
fn what_was_passed_by_is_kept_while_there_is_room() {
    let mut d = with_sequence();
    read(&mut d, (0..20).chain(120..PLACES));
    let mark = d.started.len();
    read(&mut d, 20..120);
    assert_eq!(d.started.len(), mark, "all of it is in memory");
    assert_eq!(read_ahead_lines(&d), PLACES);
}

#[test]
fn a_pause_of_seconds_does_not_end_it() {
    let mut d = with_sequence();
    read(&mut d, 0..400);
    let before = d.status().read_ahead_bytes_held;
    assert!(before > 0);
    d.advance_time(Duration::from_secs(5));
    assert_eq!(d.status().read_ahead_bytes_held, before);
    d.advance_time(Duration::from_secs(6));
    assert_eq!(d.status().read_ahead_bytes_held, 0);
}

/// Lines that were written at many times, and are one run on the data-disk: beside a cache-disk
/// that takes as long for an access, they are read there.
#[test]
fn lines_that_are_scattered_over_the_log_are_read_from_the_data_disk_if_that_is_faster() {
    // With lines on both sides that the data-disk alone has, it reads all at once: that is never
    // slower.
    let cases = [
        (10_000, 115..125, (0, 1)),
        (100, 115..125, (10, 0)),
        (10_000, 100..130, (0, 1)),
        (100, 100..130, (0, 1)),
    ];
    for (cache_disk_us, lines, expected_reads) in cases {
        let mut d = with_read_area();
        for line in 115..125 {
            d.write_durably([line], 7);
            d.write_durably(600 + 20 * (line - 115)..619 + 20 * (line - 115), 8);
        }
        d.drain();
        // Both disks show how long they take.
        for (device, line, us) in
            [(Device::CacheDisk, 119, cache_disk_us), (Device::DataDisk, 500, 10_000)]
        {
            d.hold(move |io| io.is(device, Kind::Read));
            let id = d.submit(Operation::read(LbaRange::new(line * 8, 8)), false);
            d.advance_time(Duration::from_micros(us));
            assert_eq!(d.ios_of(device, Kind::Read).len(), 1);
            d.release();
            d.expect_ok(id);
        }
        d.done(|d| d.write_blocks(105 * 8, 10 * 8, 9));
        let mark = d.started.len();
        let range = LbaRange::new(lines.start * 8, (lines.end - lines.start) * 8);
        let id = d.submit(Operation::read(range), false);
        d.expect_ok(id);
        let bytes = d.reply_bytes(id);
        for (line, bytes) in lines.zip(bytes.chunks(LINE)) {
            let expected = match line {
                105..115 => 9,
                115..125 => 7,
                _ => byte_of(line),
            };
            assert_eq!(common::one_byte(bytes), expected, "{line}");
        }
        let reads = |device| d.count_since(mark, device, Kind::Read);
        assert_eq!((reads(Device::CacheDisk), reads(Device::DataDisk)), expected_reads);
    }
}
