//! Copies in the read area: sequences that are served in the order they are read, hot blocks, and
//! that neither ever shows anything old. Each test of truth names the care without which it fails.

mod common;

use common::{Driver, Kind, LINE, LINES_PER_SEGMENT, Options};
use dcd_engine::copies::detector::DetectorSettings;
use dcd_engine::units::Line;
use dcd_engine::{
    Device, Duration, IoError, LbaRange, NewSequence, Operation, Phase, RequestError, RequestId,
    SequenceError, SequenceRequest,
};

/// Lines that are read in this order: far apart, up and down.
const LINES: [u64; 40] = {
    let mut lines = [0; 40];
    let mut i = 0;
    while i < 40 {
        lines[i] = 100 + (i as u64 * 37) % 900;
        i += 1;
    }
    lines
};

fn with_read_area(choose: impl FnOnce(&mut Options)) -> Driver {
    let mut d = Driver::created(|options| {
        options.copy_pages = 4;
        options.engine.hot_blocks = false;
        options.engine.detector = None;
        choose(options);
    });
    for line in 0..1024 {
        let bytes = [byte_of(line); LINE];
        d.data_disk.rot(line * LINE as u64, &bytes);
    }
    d.reopen();
    d
}

/// What a line holds at first.
fn byte_of(line: u64) -> u8 {
    (line % 251) as u8
}

fn sequence(name: &str, lines: &[u64]) -> Operation {
    let ranges = lines.iter().map(|line| LbaRange::new(line * 8, 8)).collect();
    let name = name.to_owned();
    Operation::Sequence(SequenceRequest::Store(Box::new(NewSequence {
        name,
        ranges,
        occurrences: 0,
        is_detected: false,
    })))
}

fn store(d: &mut Driver, name: &str, lines: &[u64]) {
    let id = d.submit(sequence(name, lines), false);
    assert_eq!(d.result(id), Ok(()));
    d.advance_time(Duration::from_secs(3));
}

/// A cache with a sequence of [`LINES`], all copied.
fn with_sequence() -> Driver {
    let mut d = with_read_area(|_| {});
    store(&mut d, "start", &LINES);
    assert_eq!((d.status().copies.valid, d.status().copies.stale), (40, 0));
    d
}

fn submit_read(d: &mut Driver, line: u64) -> RequestId {
    d.submit(Operation::read(LbaRange::new(line * 8, 8)), false)
}

/// Reads a line, whatever I/Os that takes.
fn read(d: &mut Driver, line: u64) -> u8 {
    let id = submit_read(d, line);
    d.expect_ok(id);
    common::one_byte(&d.reply_bytes(id))
}

/// Reads of the data-disk since `mark`.
fn data_reads(d: &Driver, mark: usize) -> usize {
    d.count_since(mark, Device::DataDisk, Kind::Read)
}

// ---- serving ----------------------------------------------------------------------------------

#[test]
fn a_sequence_is_served_in_few_large_reads() {
    let mut d = with_sequence();
    let mark = d.started.len();
    for line in LINES {
        assert_eq!(read(&mut d, line), byte_of(line));
    }
    assert_eq!(data_reads(&d, mark), 0);
    let reads: Vec<u64> = d.started[mark..].iter().map(|io| io.length / LINE as u64).collect();
    assert_eq!(reads, [32, 8]);
    let sequence = d.engine().sequences().next().expect("one");
    assert_eq!((sequence.label().runs, sequence.places()), (0, 40));
    assert_eq!(d.engine().runs_of(sequence), (1, 40), "told at once");
    d.advance_time(Duration::from_secs(11));
    let sequence = d.engine().sequences().next().expect("one");
    assert_eq!((sequence.label().runs, sequence.label().lines_served), (1, 40));
}

/// Reads that are merged, in parallel and partly in another order are the same sequence.
#[test]
fn a_sequence_is_followed_through_changes_of_order() {
    let mut d = with_sequence();
    let mark = d.started.len();
    let mut reads = Vec::new();
    for pair in LINES.chunks(2) {
        reads.push((pair[1], submit_read(&mut d, pair[1])));
        if pair[0] % 3 > 0 {
            reads.push((pair[0], submit_read(&mut d, pair[0])));
        }
    }
    for (line, id) in reads {
        d.expect_ok(id);
        assert_eq!(common::one_byte(&d.reply_bytes(id)), byte_of(line));
    }
    assert_eq!(data_reads(&d, mark), 0);
    assert!(d.started.len() - mark <= 3);
}

/// In the middle of a sequence the second read that follows its order begins a stream.
#[test]
fn a_sequence_is_found_in_its_middle() {
    let mut d = with_read_area(|_| {});
    let lines: Vec<u64> = (0..200).map(|i| (i * 5 + 100) % 1000).collect();
    store(&mut d, "long", &lines);
    let mark = d.started.len();
    for line in &lines[100..180] {
        assert_eq!(read(&mut d, *line), byte_of(*line));
    }
    let sizes: Vec<u64> = d.started[mark..].iter().map(|io| io.length / LINE as u64).collect();
    assert_eq!(sizes[0], 1, "a copy alone");
    assert_eq!(sizes[1], 32);
    assert!(sizes.len() <= 5, "{sizes:?}");
}

#[test]
fn a_line_in_two_sequences_is_read_where_the_stream_is() {
    let mut d = with_read_area(|_| {});
    store(&mut d, "one", &LINES);
    let other: Vec<u64> = (600..640).chain(LINES[20..30].iter().copied()).collect();
    store(&mut d, "two", &other);
    let translations = d.engine().translate(Line(LINES[25]));
    assert_eq!(translations.len(), 2);
    let mark = d.started.len();
    for line in &other {
        assert_eq!(read(&mut d, *line), byte_of(*line));
    }
    assert_eq!(data_reads(&d, mark), 0);
    let lengths: u64 = d.started[mark..].iter().map(|io| io.length / LINE as u64).sum();
    assert_eq!(lengths, 50, "nothing twice");
}

/// Both begin with the same libraries: only the one that goes on is read ahead to its end.
#[test]
fn of_sequences_that_begin_alike_the_one_that_goes_on_is_read_ahead() {
    let mut d = with_read_area(|_| {});
    let one: Vec<u64> = (0..12).map(|i| 900 - i * 7).chain((0..100).map(|i| 3 * i)).collect();
    let two: Vec<u64> = one[..12].iter().copied().chain((0..100).map(|i| 400 + 3 * i)).collect();
    store(&mut d, "one", &one);
    store(&mut d, "two", &two);
    for lines in [&one, &two] {
        d.advance_time(Duration::from_secs(11));
        let (mark, before) = (d.started.len(), d.status().counters.read_ahead_lines);
        for line in lines {
            assert_eq!(read(&mut d, *line), byte_of(*line));
        }
        assert_eq!(data_reads(&d, mark), 0);
        let read_ahead = d.status().counters.read_ahead_lines - before;
        assert!((100..=112 + 32).contains(&read_ahead), "{read_ahead}");
    }
}

#[test]
fn a_sequence_that_does_not_pay_is_switched_off() {
    let mut d = with_sequence();
    for round in 0..6 {
        let before = d.status().counters.read_ahead_lines;
        assert_eq!(read(&mut d, LINES[0]), byte_of(LINES[0]));
        d.advance_time(Duration::from_secs(11));
        let is_read_ahead = d.status().counters.read_ahead_lines > before;
        assert_eq!(is_read_ahead, round < 3, "{round}");
    }
    assert!(d.engine().sequences().next().expect("one").is_off());
}

#[test]
fn with_one_arm_only_what_is_read_ahead_comes_from_the_copies() {
    let mut d = with_read_area(|options| options.engine.one_disk = true);
    store(&mut d, "start", &LINES);
    let mark = d.started.len();
    assert_eq!(read(&mut d, LINES[30]), byte_of(LINES[30]));
    assert_eq!((data_reads(&d, mark), d.started.len() - mark), (1, 1));
    let mark = d.started.len();
    for line in LINES {
        assert_eq!(read(&mut d, line), byte_of(line));
    }
    assert_eq!(data_reads(&d, mark), 0);
}

/// Reads that are larger than what is read ahead at first: nothing is dropped before they take it,
/// nothing missing is read from elsewhere.
#[test]
fn large_reads_take_all_that_is_read_ahead() {
    let mut d = with_read_area(|options| options.engine.one_disk = true);
    let starts = [500, 100, 700, 300];
    let lines: Vec<u64> = starts.iter().flat_map(|start| *start..start + 100).collect();
    store(&mut d, "files", &lines);
    let mark = d.started.len();
    for start in starts {
        let id = d.submit(Operation::read(LbaRange::new(start * 8, 100 * 8)), false);
        d.expect_ok(id);
        let bytes = d.reply_bytes(id);
        for (line, bytes) in (start..).zip(bytes.chunks(LINE)) {
            assert_eq!(common::one_byte(bytes), byte_of(line));
        }
    }
    assert_eq!(data_reads(&d, mark), 0);
    let counters = d.status().counters;
    assert_eq!((counters.read_ahead_lines, counters.read_ahead_used_lines), (400, 400));
    assert!(d.started.len() - mark <= 8, "{}", d.started.len() - mark);
}

// ---- requests about sequences -----------------------------------------------------------------

#[test]
fn requests_about_sequences_are_checked() {
    let mut d = Driver::new();
    let id = d.submit(sequence("x", &LINES), false);
    assert_eq!(d.result(id), Err(RequestError::Sequence(SequenceError::NoReadArea)));
    let mut d = with_read_area(|_| {});
    let mut result = |operation| {
        let id = d.submit(operation, false);
        d.wait(id)
    };
    assert_eq!(
        result(sequence("", &LINES)),
        Err(RequestError::Sequence(SequenceError::BadSequence))
    );
    assert_eq!(
        result(sequence(&"x".repeat(41), &LINES)),
        Err(RequestError::Sequence(SequenceError::BadSequence))
    );
    assert_eq!(result(sequence("x", &[])), Err(RequestError::Sequence(SequenceError::BadSequence)));
    assert_eq!(
        result(sequence("x", &[5000])),
        Err(RequestError::Sequence(SequenceError::BadSequence)),
        "beyond the disk"
    );
    let too_many: Vec<u64> = (0..600).collect();
    assert_eq!(
        result(sequence("x", &too_many)),
        Err(RequestError::Sequence(SequenceError::NoRoom))
    );
    let unknown = || "x".to_owned();
    let remove = Operation::Sequence(SequenceRequest::Remove { name: unknown() });
    assert_eq!(result(remove), Err(RequestError::Sequence(SequenceError::NoSuchSequence)));
    let pin = Operation::Sequence(SequenceRequest::Pin { name: unknown(), is_pinned: true });
    assert_eq!(result(pin), Err(RequestError::Sequence(SequenceError::NoSuchSequence)));
    assert_eq!(result(Operation::Sequence(SequenceRequest::Clear)), Ok(()));
}

#[test]
fn what_brings_least_gives_way_and_what_is_pinned_does_not() {
    let mut d = with_read_area(|_| {});
    // Half of four pages are for sequences.
    store(&mut d, "served", &LINES);
    store(&mut d, "not served", &[600, 800, 700]);
    for line in LINES {
        read(&mut d, line);
    }
    d.advance_time(Duration::from_secs(11));
    let names = |d: &Driver| -> Vec<String> {
        d.engine().sequences().map(|sequence| sequence.label().name.clone()).collect()
    };
    store(&mut d, "third", &[610, 810, 710]);
    assert_eq!(names(&d), ["served", "third"]);
    for name in ["served", "third"] {
        let pin = Operation::Sequence(SequenceRequest::Pin { name: name.into(), is_pinned: true });
        let id = d.submit(pin, false);
        assert_eq!(d.wait(id), Ok(()));
    }
    let id = d.submit(sequence("fourth", &[1, 2]), false);
    assert_eq!(d.result(id), Err(RequestError::Sequence(SequenceError::NoRoom)));
    // One of the same name is replaced, and stays pinned.
    store(&mut d, "third", &[620, 820, 720, 500]);
    let third = d.engine().sequences().find(|s| s.label().name == "third").expect("there");
    assert!(third.label().is_pinned);
    let lines: Vec<u64> = d.engine().lines_of(third).iter().map(|(line, _)| line.0).collect();
    assert_eq!(lines, [620, 820, 720, 500]);
    let id = d.submit(Operation::Sequence(SequenceRequest::Clear), false);
    assert_eq!(d.wait(id), Ok(()));
    assert_eq!(names(&d), ["served", "third"]);
    let id =
        d.submit(Operation::Sequence(SequenceRequest::Remove { name: "served".into() }), false);
    assert_eq!(d.wait(id), Ok(()));
    assert_eq!(names(&d), ["third"]);
    assert_eq!(read(&mut d, LINES[3]), byte_of(LINES[3]));
}

// ---- truth while it runs ----------------------------------------------------------------------

#[test]
fn a_write_is_seen_and_its_line_is_copied_anew() {
    let mut d = with_sequence();
    d.done(|d| d.write(LINES[5], 99));
    assert_eq!(d.status().copies.stale, 1);
    assert_eq!(read(&mut d, LINES[5]), 99);
    d.advance_time(Duration::from_millis(900));
    assert_eq!(d.status().copies.stale, 1, "it is in the log");
    d.drain();
    assert_eq!(read(&mut d, LINES[5]), 99);
    d.advance_time(Duration::from_secs(3));
    assert_eq!(d.status().copies.stale, 0);
    let mark = d.started.len();
    for line in LINES {
        let expected = if line == LINES[5] { 99 } else { byte_of(line) };
        assert_eq!(read(&mut d, line), expected);
    }
    assert_eq!(data_reads(&d, mark), 0);
}

#[test]
fn a_write_of_a_part_of_a_line_is_seen() {
    let mut d = with_sequence();
    d.done(|d| d.write_blocks(LINES[5] * 8 + 3, 1, 99));
    let id = submit_read(&mut d, LINES[5]);
    d.expect_ok(id);
    let bytes = d.reply_bytes(id);
    assert_eq!((bytes[0], bytes[3 * 512], bytes[4 * 512]), (byte_of(LINES[5]), 99, bytes[0]));
}

#[test]
fn a_discard_is_seen() {
    let mut d = with_sequence();
    d.done(|d| d.discard(LINES[5] * 8, 8));
    assert_eq!(read(&mut d, LINES[5]), 0);
    // Longer than all copies together.
    d.done(|d| d.discard(0, 8192));
    assert_eq!(d.status().copies.valid, 0);
    d.drain();
    for line in LINES {
        assert_eq!(read(&mut d, line), 0);
    }
}

/// Without the care: what was read ahead before the write is served.
#[test]
fn what_was_read_ahead_is_not_served_after_a_write() {
    let mut d = with_sequence();
    assert_eq!(read(&mut d, LINES[0]), byte_of(LINES[0]));
    d.done(|d| d.write(LINES[3], 99));
    assert_eq!(read(&mut d, LINES[3]), 99);
    d.drain();
    // Copied anew, while the old bytes are still in memory.
    d.advance_time(Duration::from_secs(2));
    assert_eq!(d.status().copies.stale, 0);
    assert!(d.status().read_ahead_bytes_held > 0);
    assert_eq!(read(&mut d, LINES[3]), 99);
}

/// Without the care: the old bytes, read before, become the copy.
#[test]
fn a_line_that_is_written_while_it_is_copied_is_not_believed() {
    let mut d = with_read_area(|_| {});
    d.hold(|io| io.is(Device::DataDisk, Kind::Read));
    let id = d.submit(sequence("start", &LINES), false);
    assert_eq!(d.result(id), Ok(()));
    d.run_until(|d| d.find_io(Device::DataDisk, Kind::Read).is_some());
    let reading = d.find_io(Device::DataDisk, Kind::Read).expect("under way");
    d.land(reading);
    let line = LINES.iter().min().expect("some");
    d.write_durably([*line], 99);
    d.drain();
    d.finish(reading);
    d.release();
    d.advance_time(Duration::from_secs(5));
    assert_eq!(read(&mut d, *line), 99);
    assert_eq!(d.status().copies.stale, 0);
    // The same while its copy is being written.
    d.write_durably([*line], 98);
    d.drain();
    d.hold(|io| {
        io.is(Device::CacheDisk, Kind::Write) && io.length == LINE as u64 && io.offset > 1_300_000
    });
    d.advance_time(Duration::from_secs(2));
    let writing = *d.ios_of(Device::CacheDisk, Kind::Write).first().expect("a copy is written");
    let write = d.write(*line, 97);
    d.finish(writing);
    d.release();
    d.expect_ok(write);
    assert_eq!(read(&mut d, *line), 97);
    d.drain();
    d.advance_time(Duration::from_secs(5));
    assert_eq!(read(&mut d, *line), 97);
}

/// Without the care: a bypass that was on its way when the line was read is not in the copy.
#[test]
fn a_line_that_is_bypassed_while_it_is_copied_is_not_believed() {
    let mut d = with_read_area(|options| options.engine.bypass_threshold_bytes = 16384);
    d.hold(|io| io.is(Device::DataDisk, Kind::Write));
    let bypass = d.write_blocks(400 * 8, 32, 99);
    d.finish_all();
    let id = d.submit(sequence("start", &[300, 401, 200]), false);
    assert_eq!(d.result(id), Ok(()));
    d.advance_time(Duration::from_secs(2));
    assert_eq!(d.status().copies.valid, 2, "not that line");
    d.release();
    d.expect_ok(bypass);
    d.advance_time(Duration::from_secs(3));
    assert_eq!(d.status().copies.valid, 3);
    assert_eq!(read(&mut d, 401), 99);
}

/// A copy that is not what it should be is no loss: the data-disk has the line.
#[test]
fn a_damaged_copy_is_read_from_the_data_disk_and_made_anew() {
    let mut d = with_sequence();
    let offset = d.engine().translate(Line(LINES[7]))[0].offset;
    d.cache_disk.flip(offset + 77);
    for line in LINES {
        assert_eq!(read(&mut d, line), byte_of(line));
    }
    assert_eq!(d.status().counters.copies_damaged, 1);
    d.advance_time(Duration::from_secs(5));
    assert_eq!(d.status().copies.stale, 0);
    // The same of one that cannot be read at all.
    let range = offset..offset + LINE as u64;
    d.fail_always(Device::CacheDisk, Kind::Read, range, IoError::Failed);
    d.advance_time(Duration::from_secs(11));
    for line in LINES {
        assert_eq!(read(&mut d, line), byte_of(line));
    }
    d.heal();
    assert_eq!(*d.engine().phase(), Phase::Running);
}

/// A read error of the data-disk does not matter where there is a copy.
#[test]
fn a_copy_stands_in_for_a_line_that_the_data_disk_cannot_read() {
    let mut d = with_sequence();
    d.fail_always(Device::DataDisk, Kind::Read, 0..u64::MAX, IoError::Failed);
    for line in LINES {
        assert_eq!(read(&mut d, line), byte_of(line));
    }
}

/// Without the care: the line that cannot be read is tried again and again without a pause, and the
/// others wait for it.
#[test]
fn a_line_that_the_data_disk_cannot_read_is_left_alone() {
    let mut d = with_read_area(|_| {});
    let bad = LINES[3] * LINE as u64;
    d.fail_always(Device::DataDisk, Kind::Read, bad..bad + 512, IoError::Failed);
    let mark = d.started.len();
    store(&mut d, "start", &LINES);
    assert_eq!((d.status().copies.valid, d.status().copies.stale), (39, 1));
    assert!(data_reads(&d, mark) < 60);
    d.heal();
    d.advance_time(Duration::from_secs(700));
    d.write_durably([LINES[4]], 99);
    d.drain();
    d.advance_time(Duration::from_secs(3));
    assert_eq!((d.status().copies.valid, d.status().copies.stale), (40, 0));
}

/// Without the care: what was read for the copies is never written, and the end waits for that.
#[test]
fn without_a_cache_disk_copying_does_not_hold_up_the_end() {
    let mut d = with_read_area(|_| {});
    d.write_durably([5], 1);
    d.hold(|io| io.is(Device::DataDisk, Kind::Read));
    let id = d.submit(sequence("start", &LINES), false);
    assert_eq!(d.result(id), Ok(()));
    d.run_until(|d| d.find_io(Device::DataDisk, Kind::Read).is_some());
    for kind in [Kind::Write, Kind::Flush] {
        d.fail_always(Device::CacheDisk, kind, 0..u64::MAX, IoError::Gone);
    }
    let write = d.write_fua(6, 2);
    assert_eq!(d.wait(write), Err(RequestError::Io));
    d.release();
    d.finish_all();
    let id = d.submit(Operation::Shutdown, false);
    assert_eq!(d.wait(id), Err(RequestError::Io));
    assert_eq!(*d.engine().phase(), Phase::Closed);
}

/// Without the care: a cache-disk that fails with a copy while a probe is under way is a broken
/// invariant.
#[test]
fn a_cache_disk_may_fail_with_a_copy_while_it_is_probed() {
    let mut d = with_hot_blocks();
    d.advance_time(Duration::from_secs(10));
    assert!(d.status().cache_disk_clean);
    d.hold(|io| io.is(Device::CacheDisk, Kind::Write));
    assert_eq!(read(&mut d, 500), byte_of(500));
    let write = d.write_fua(5, 99);
    d.run_until(|d| d.ios_of(Device::CacheDisk, Kind::Write).len() == 2);
    for io in d.ios_of(Device::CacheDisk, Kind::Write) {
        d.fail(io, IoError::Gone);
    }
    d.release();
    d.expect_ok(write);
    assert_eq!((read(&mut d, 5), read(&mut d, 500)), (99, byte_of(500)));
}

// ---- truth across crashes ---------------------------------------------------------------------

#[test]
fn sequences_survive_an_orderly_end_and_a_crash() {
    let mut d = with_sequence();
    d.write_durably([50], 1);
    for crash in [false, true] {
        match crash {
            true => d.power_cut(),
            false => d.shut_down(),
        }
        d.reopen();
        let mark = d.started.len();
        for line in LINES {
            assert_eq!(read(&mut d, line), byte_of(line));
        }
        assert_eq!(data_reads(&d, mark), 0, "crash {crash}");
        d.write_durably([50], 2);
    }
}

/// Without the care: replay leaves the copy, and after destaging the old comes back.
#[test]
fn a_write_behind_the_checkpoint_makes_its_copy_stale_after_a_crash() {
    for is_killed in [false, true] {
        let mut d = with_sequence();
        d.write_durably([LINES[5]], 99);
        d.done(|d| d.discard(LINES[6] * 8, 8));
        d.done(Driver::flush);
        match is_killed {
            true => d.kill(),
            false => d.power_cut(),
        }
        d.reopen();
        assert_eq!((read(&mut d, LINES[5]), read(&mut d, LINES[6])), (99, 0));
        d.drain();
        assert_eq!((read(&mut d, LINES[5]), read(&mut d, LINES[6])), (99, 0));
        d.advance_time(Duration::from_secs(5));
        assert_eq!((read(&mut d, LINES[5]), read(&mut d, LINES[6])), (99, 0));
        assert_eq!(d.status().copies.stale, 0);
    }
}

/// Without the care: a slot that was given to another line since the checkpoint shows that one.
#[test]
fn a_slot_that_was_filled_anew_since_the_checkpoint_shows_nothing_false() {
    let mut d = with_sequence();
    d.write_durably([50], 1);
    let id = d.submit(Operation::Sequence(SequenceRequest::Remove { name: "start".into() }), false);
    assert!(!d.is_answered(id), "not before a checkpoint says so");
    // Its copies are written, but no checkpoint says so.
    let others: Vec<u64> = LINES.iter().map(|line| line + 1).collect();
    let id = d.submit(sequence("other", &others), false);
    assert_eq!(d.result(id), Ok(()));
    let area = d.options.geometry().read_area_offset();
    d.hold(move |io| io.is(Device::CacheDisk, Kind::Write) && io.offset < area);
    d.advance_time(Duration::from_secs(3));
    d.power_cut_keeping(|_, _| true);
    d.reopen();
    assert_eq!(d.engine().sequences().next().expect("the old one").label().name, "start");
    for line in LINES {
        assert_eq!(read(&mut d, line), byte_of(line));
    }
    assert!(d.status().counters.copies_damaged > 0);
}

/// Without the care: after the crash the copy shows the old content of a bypassed line, and the
/// data-disk a part of the new.
#[test]
fn a_line_with_a_listed_copy_is_not_bypassed() {
    let mut d = with_read_area(|options| options.engine.bypass_threshold_bytes = 16384);
    store(&mut d, "start", &LINES);
    let bypass = |d: &mut Driver, line: u64| {
        let before = d.status().counters.bypasses;
        d.done(|d| d.write_blocks(line * 8, 32, 99));
        d.status().counters.bypasses > before
    };
    assert!(bypass(&mut d, 20));
    assert!(!bypass(&mut d, LINES[5]));
    // Nor is one whose copy was given up, until a checkpoint says so.
    let id = d.submit(Operation::Sequence(SequenceRequest::Remove { name: "start".into() }), false);
    assert!(!d.is_answered(id), "not before a checkpoint says so");
    assert!(!bypass(&mut d, LINES[20]));
    d.restart();
    assert!(bypass(&mut d, LINES[10]));
}

/// Without the care: the data-disk was on its own, and copies of what it held before are served.
#[test]
fn after_a_detach_copies_are_compared_before_they_are_believed() {
    let mut d = with_sequence();
    d.detach();
    d.data_disk.rot(LINES[5] * LINE as u64, &[99; LINE]);
    d.reopen();
    assert_eq!((d.status().copies.valid, d.status().copies.stale), (0, 40));
    assert_eq!(read(&mut d, LINES[5]), 99);
    let before = d.status().counters.copy_lines_written;
    d.advance_time(Duration::from_secs(5));
    assert_eq!(d.status().copies.stale, 0);
    assert_eq!(d.status().counters.copy_lines_written - before, 1, "only what differs is written");
    let mark = d.started.len();
    for line in LINES {
        assert_eq!(read(&mut d, line), if line == LINES[5] { 99 } else { byte_of(line) });
    }
    assert_eq!(data_reads(&d, mark), 0);
}

/// Without the care: dcd went on without a clean cache-disk, which comes back with what it knew
/// then.
#[test]
fn copies_on_a_cache_disk_that_was_given_up_are_not_believed() {
    let mut d = with_sequence();
    d.advance_time(Duration::from_secs(10));
    assert!(d.status().cache_disk_clean);
    for kind in [Kind::Read, Kind::Write, Kind::Flush] {
        d.fail_always(Device::CacheDisk, kind, 0..u64::MAX, IoError::Gone);
    }
    d.done(|d| d.write_fua(LINES[5], 99));
    for line in LINES {
        assert_eq!(read(&mut d, line), if line == LINES[5] { 99 } else { byte_of(line) });
    }
    d.power_cycle();
    for line in LINES {
        assert_eq!(read(&mut d, line), if line == LINES[5] { 99 } else { byte_of(line) });
    }
}

#[test]
fn a_copy_page_that_cannot_be_read_takes_its_copies_with_it() {
    let mut d = with_sequence();
    d.shut_down();
    let area = d.options.geometry().read_area_offset() as usize;
    let pages = area..area + 8 * LINE;
    d.cache_disk.current[pages.clone()].fill(0x55);
    d.cache_disk.durable[pages].fill(0x55);
    d.reopen();
    assert_eq!((d.status().copies.valid, d.engine().sequences().count()), (0, 0));
    assert_eq!(d.status().recovery.copy_pages_lost, 1);
    for line in LINES {
        assert_eq!(read(&mut d, line), byte_of(line));
    }
    store(&mut d, "again", &LINES);
    assert_eq!(d.status().copies.valid, 40);
}

// ---- hot blocks -------------------------------------------------------------------------------

fn with_hot_blocks() -> Driver {
    with_read_area(|options| options.engine.hot_blocks = true)
}

#[test]
fn what_was_read_once_is_read_from_the_copy() {
    let mut d = with_hot_blocks();
    assert_eq!(read(&mut d, 500), byte_of(500));
    d.advance_time(Duration::from_millis(10));
    let mark = d.started.len();
    assert_eq!(read(&mut d, 500), byte_of(500));
    assert_eq!((data_reads(&d, mark), d.started.len() - mark), (0, 1));
    d.done(|d| d.write(500, 99));
    assert_eq!(read(&mut d, 500), 99);
    d.drain();
    assert_eq!(read(&mut d, 500), 99);
    d.advance_time(Duration::from_millis(10));
    let mark = d.started.len();
    assert_eq!(read(&mut d, 500), 99);
    assert_eq!(data_reads(&d, mark), 0);
    assert_eq!(read(&mut d, 501), byte_of(501));
    d.restart();
    let mark = d.started.len();
    assert_eq!(read(&mut d, 501), byte_of(501));
    assert_eq!(data_reads(&d, mark), 0, "kept over the end");
}

/// Without the care: a start fails when the log has something newer than a hot block.
#[test]
fn a_hot_block_that_was_written_behind_the_checkpoint_is_given_up_by_the_start() {
    for is_killed in [false, true] {
        let mut d = with_hot_blocks();
        read(&mut d, 500);
        read(&mut d, 600);
        d.advance_time(Duration::from_millis(10));
        d.restart();
        d.write_durably([500], 99);
        match is_killed {
            true => d.kill(),
            false => d.power_cut(),
        }
        d.reopen();
        assert_eq!(d.status().recovery.copies_changed, 1);
        assert_eq!((d.status().copies.valid, read(&mut d, 500)), (1, 99));
        d.drain();
        assert_eq!((read(&mut d, 500), read(&mut d, 600)), (99, byte_of(600)));
    }
}

#[test]
fn a_scan_is_not_promoted_and_displaces_nothing() {
    let mut d = with_hot_blocks();
    for line in [3, 903, 503] {
        read(&mut d, line);
        d.advance_time(Duration::from_millis(10));
    }
    for line in (0..1024).step_by(16) {
        let range = LbaRange::new(line * 8, 128);
        d.done(|d| d.submit(Operation::read(range), false));
    }
    d.advance_time(Duration::from_millis(100));
    // A scan is known after 1 MiB.
    assert!(d.status().copies.valid < 300, "{:?}", d.status().copies);
    let mark = d.started.len();
    for line in [3, 903, 503] {
        read(&mut d, line);
    }
    assert_eq!(data_reads(&d, mark), 0);
}

/// Without the care: a line that was written and destaged while it was read is promoted as it was.
#[test]
fn a_line_that_changes_while_it_is_read_is_not_promoted() {
    let mut d = with_hot_blocks();
    d.hold(|io| io.is(Device::DataDisk, Kind::Read));
    let id = submit_read(&mut d, 500);
    let reading = d.find_io(Device::DataDisk, Kind::Read).expect("under way");
    d.land(reading);
    d.write_durably([500], 99);
    // A full cache destages beside reads; here the time for it is given.
    let drain = d.submit(Operation::Drain, false);
    d.advance_time(Duration::from_secs(2));
    d.finish(reading);
    d.release();
    d.expect_ok(drain);
    assert_eq!(d.result(id), Ok(()));
    d.advance_time(Duration::from_secs(1));
    assert_eq!(read(&mut d, 500), 99);
    d.advance_time(Duration::from_secs(1));
    assert_eq!(read(&mut d, 500), 99);
}

#[test]
fn sequences_take_their_room_from_hot_blocks() {
    let mut d = with_hot_blocks();
    let mut at = 7;
    for _ in 0..1100 {
        at = (at * 421 + 13) % 1024;
        assert_eq!(read(&mut d, at), byte_of(at));
        d.advance_time(Duration::from_millis(5));
    }
    assert!(d.status().copies.valid > 900, "{:?}", d.status().copies);
    let lines: Vec<u64> = (0..400).map(|i| (i * 7) % 1024).collect();
    store(&mut d, "start", &lines);
    assert_eq!(d.status().copies.stale, 0);
    let mark = d.started.len();
    for line in &lines {
        assert_eq!(read(&mut d, *line), byte_of(*line));
    }
    assert_eq!(data_reads(&d, mark), 0);
}

// ---- sequences that are found -----------------------------------------------------------------

fn with_detector() -> Driver {
    with_read_area(|options| options.engine.detector = Some(DetectorSettings::default()))
}

/// Lines of a program: an arm has far to go from one to the next.
fn program() -> impl Iterator<Item = u64> {
    (0..80).map(|i| 20 + (i * 397) % 1000)
}

fn start_program(d: &mut Driver) -> usize {
    let mark = d.started.len();
    for line in program() {
        read(d, line);
        d.advance_time(Duration::from_millis(5));
    }
    let reads = data_reads(d, mark);
    d.advance_time(Duration::from_secs(60));
    reads
}

#[test]
fn what_is_read_in_the_same_order_three_times_is_kept() {
    let mut d = with_detector();
    let reads: Vec<usize> = (0..4).map(|_| start_program(&mut d)).collect();
    assert_eq!(reads[..3], [80, 80, 80]);
    assert!(reads[3] <= 2, "{reads:?}");
    let sequence = d.engine().sequences().next().expect("one").label().clone();
    assert_eq!((sequence.name.as_str(), sequence.is_detected), ("found-1", true));
    // It is known after a start, and no second one is made of it.
    d.restart();
    for _ in 0..4 {
        assert!(start_program(&mut d) <= 2);
    }
    assert_eq!(d.engine().sequences().count(), 1);
}

#[test]
fn what_was_recorded_is_not_found_as_well() {
    let mut d = with_detector();
    store(&mut d, "start", &program().collect::<Vec<_>>());
    for _ in 0..4 {
        assert_eq!(start_program(&mut d), 0);
    }
    assert_eq!(d.engine().sequences().count(), 1);
    let stop = d.submit(Operation::Sequence(SequenceRequest::Serve { on: false }), false);
    assert_eq!(d.result(stop), Ok(()));
    let before = d.status().counters.read_ahead_lines;
    start_program(&mut d);
    assert_eq!(d.status().counters.read_ahead_lines, before, "nothing is followed");
}

#[test]
fn saving_answers_when_the_copies_survive_a_crash() {
    let mut d = with_read_area(|options| options.engine.hot_blocks = true);
    read(&mut d, 500);
    d.advance_time(Duration::from_millis(10));
    d.write_durably([600], 1);
    let save = d.submit(Operation::Sequence(SequenceRequest::Save), false);
    assert!(!d.is_answered(save));
    d.expect_ok(save);
    d.write_durably([600], 2);
    d.power_cycle();
    let mark = d.started.len();
    read(&mut d, 500);
    assert_eq!(data_reads(&d, mark), 0);
}

// ---- lines that were destaged and are still in the log ----------------------------------------

fn with_clean_lines() -> Driver {
    Driver::with(|options| options.engine.bypass_threshold_bytes = 16384)
}

#[test]
fn a_destaged_line_is_read_from_the_log_until_its_slot_is_filled_again() {
    let mut d = with_clean_lines();
    d.write_durably(0..LINES_PER_SEGMENT, 7);
    d.drain();
    let mark = d.started.len();
    for line in 0..LINES_PER_SEGMENT {
        assert_eq!(read(&mut d, line), 7);
    }
    assert_eq!((data_reads(&d, mark), d.status().counters.read_clean_lines), (0, 15));
    // The log goes round: other lines have those slots.
    d.overwrite_segments(100, 40);
    for line in 0..LINES_PER_SEGMENT {
        assert_eq!(read(&mut d, line), 7);
    }
    assert_eq!(d.status().counters.read_clean_lines, 15);
}

/// Without the care: the old line is read after it was changed past the log, or in part.
#[test]
fn a_destaged_line_that_changes_is_not_read_from_its_old_slot() {
    let mut d = with_clean_lines();
    d.write_durably(200..208, 7);
    d.drain();
    d.done(|d| d.write_blocks(203 * 8 + 1, 1, 8));
    d.drain();
    let id = submit_read(&mut d, 203);
    d.expect_ok(id);
    let bytes = d.reply_bytes(id);
    assert_eq!((bytes[0], bytes[512], bytes[1024]), (7, 8, 7));
    d.done(|d| d.discard(204 * 8, 8));
    d.drain();
    assert_eq!(read(&mut d, 204), 0);
    // The lines destaged last are witnesses, and never bypassed.
    d.write_durably(200..208, 7);
    d.drain();
    d.write_durably(300..330, 1);
    d.drain();
    d.advance_time(Duration::from_secs(10));
    let before = d.status().counters.read_clean_lines;
    assert_eq!(read(&mut d, 201), 7);
    assert_eq!(d.status().counters.read_clean_lines, before + 1);
    let bypass = d.write_blocks(200 * 8, 8 * 8, 9);
    d.expect_ok(bypass);
    assert_eq!(d.status().counters.bypasses, 1);
    for line in 200..208 {
        assert_eq!(read(&mut d, line), 9);
    }
}

/// A reader of many lines leaves clean slots that are scattered, and reads the data-disk: who reads
/// next must not see what is older (C8).
#[test]
fn a_bypass_that_may_have_been_seen_hides_the_slot_of_what_it_overwrites() {
    let mut d = with_clean_lines();
    d.write_durably(200..208, 7);
    d.drain();
    // The lines destaged last are witnesses, and never bypassed.
    d.write_durably(300..330, 1);
    d.drain();
    d.advance_time(Duration::from_secs(10));
    d.hold(|io| io.is(Device::DataDisk, Kind::Flush));
    let bypass = d.write_blocks(200 * 8, 8 * 8, 9);
    d.finish_all();
    assert!(!d.is_answered(bypass));
    assert_eq!((200..208).map(|line| read(&mut d, line)).collect::<Vec<_>>(), [9; 8]);
    d.release();
    d.expect_ok(bypass);
}

/// Without the care: a slot that is filled again while it is read shows the other line, or fails.
#[test]
fn a_destaged_line_whose_slot_is_filled_while_it_is_read_comes_from_the_data_disk() {
    let mut d = with_clean_lines();
    d.write_durably(0..LINES_PER_SEGMENT, 7);
    d.drain();
    d.hold(|io| io.is(Device::CacheDisk, Kind::Read));
    let id = submit_read(&mut d, 3);
    let reading = d.find_io(Device::CacheDisk, Kind::Read).expect("under way");
    d.overwrite_segments(100, 20);
    d.finish(reading);
    d.release();
    d.expect_ok(id);
    assert_eq!(common::one_byte(&d.reply_bytes(id)), 7);
    assert_eq!(d.status().poisoned_lines, 0);
}

/// What was answered about sequences is there after a crash.
#[test]
fn a_pin_and_a_removal_that_were_answered_survive_a_crash() {
    let mut d = with_sequence();
    let pin = SequenceRequest::Pin { name: "start".into(), is_pinned: true };
    let id = d.submit(Operation::Sequence(pin), false);
    assert_eq!(d.wait(id), Ok(()));
    d.power_cycle();
    assert!(d.engine().sequences().all(|s| s.label().is_pinned));
    assert_eq!(d.engine().sequences().count(), 1);
    let id = d.submit(Operation::Sequence(SequenceRequest::Remove { name: "start".into() }), false);
    assert_eq!(d.wait(id), Ok(()));
    d.power_cycle();
    assert_eq!(d.engine().sequences().count(), 0);
}
