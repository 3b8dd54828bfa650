//! An index within a budget: memory has a part of it, the rest is read from the cache-disk. That
//! nothing is lost is for the fuzzer; here are moments that it seldom comes to, and what is told.

mod common;

use common::{Driver, Kind};
use dcd_engine::format::checksum::crc32c;
use dcd_engine::format::record::{Entry, Record, RecordHeader};
use dcd_engine::io::{IoError, RequestError};
use dcd_engine::units::{FragmentMask, Line, RecordNumber};
use dcd_engine::{Buffer, Device, LbaRange, Operation};

/// Lines in the log: several pages of the index.
const LINES: u64 = 900;

/// A cache whose index is on the cache-disk, but for what has changed of late: line n holds n % 200
/// + 1.
fn mostly_listed() -> Driver {
    let mut d = Driver::never_idle(|options| {
        options.segments = 128;
        options.engine.limits.discarded_lines = 4;
        let slots = u64::from(options.geometry().slots());
        options.engine.index_bytes_max = 20 * slots;
    });
    for line in 0..LINES {
        d.done(|d| d.write(line, of(line)));
    }
    let flush = d.flush();
    d.expect_ok(flush);
    d.restart();
    d
}

fn of(line: u64) -> u8 {
    (line % 200) as u8 + 1
}

/// The first line of these that is in no memory: a read of it reads a page, which is held.
fn read_that_waits(d: &mut Driver, lines: impl IntoIterator<Item = u64>) -> u64 {
    let [first, second] = d.superblock().geometry.checkpoint_offsets;
    let end = second + d.superblock().geometry.checkpoint_area_bytes;
    d.hold(move |seen| {
        seen.is(Device::CacheDisk, Kind::Read) && (first..end).contains(&seen.offset)
    });
    let mut lines = lines.into_iter();
    loop {
        let line = lines.next().expect("most are in no memory");
        let (range, buffer) = (LbaRange::new(line * 8, 8), Buffer::zeroed(4096));
        let id = d.submit(Operation::Read { range, buffer }, false);
        (0..20).for_each(|_| d.tick());
        if !d.is_answered(id) {
            return line;
        }
    }
}

#[test]
fn what_is_not_in_memory_is_read_and_written_as_ever() {
    let mut d = mostly_listed();
    assert_eq!(d.status().dirty_lines, LINES);
    let most = d.engine().config().index_bytes_max;
    let before = d.status().counters.index_pages_read;
    for line in (0..LINES).step_by(7) {
        assert_eq!(d.read(line), of(line), "line {line}");
        d.done(|d| d.write(line, 250));
        assert_eq!(d.read(line), 250);
    }
    assert!(d.status().counters.index_pages_read > before + 50, "they were in memory");
    assert!(most > 0 && d.status().dirty_lines == LINES);
    d.kill_and_reopen();
    d.power_cycle();
    for line in 0..LINES {
        let expected = if line % 7 == 0 { 250 } else { of(line) };
        let found = d.read(line);
        assert!(found == expected || line % 7 == 0 && found == of(line), "line {line}: {found}");
    }
    d.drain();
    assert_eq!(d.status().dirty_lines, 0);
}

/// Reads of lines that a large discard covers, whose pages come amid it, or amid another that has
/// joined it.
#[test]
fn lines_that_are_read_amid_their_discard_are_counted_once() {
    for (parts, is_joined) in (0..120).step_by(7).flat_map(|parts| [(parts, false), (parts, true)])
    {
        let mut d = mostly_listed();
        // Memory is looked through first.
        for line in 0..150 {
            d.done(|d| d.write(line, of(line)));
        }
        let line = read_that_waits(&mut d, (0..LINES).rev());
        let first = if is_joined { 150 } else { 0 };
        let mut discard = d.discard(first * 8, (LINES - first) * 8);
        if is_joined {
            discard = d.discard(0, first * 8);
        }
        (0..parts).for_each(|_| d.tick());
        d.release();
        d.run_until(|d| d.is_answered(discard));
        let (range, buffer) = (LbaRange::new(line * 8, 8), Buffer::zeroed(4096));
        let read = d.submit(Operation::Read { range, buffer }, false);
        d.run_until(|d| d.is_answered(read));
        assert_eq!(d.reply_bytes(read), [0; 4096], "line {line} after {parts} parts");
        d.done(|d| d.write(line, 7));
        d.drain();
        assert_eq!(d.status().dirty_lines, 0);
        assert_eq!((d.data_disk.line(line), d.data_disk.line((line + 1) % LINES)), (7, 0));
    }
}

/// Discards that come one behind the other share what they read of the index.
#[test]
fn discards_that_follow_each_other_share_their_passes() {
    const LINES_OF_EACH: u64 = 15;
    let mut d = mostly_listed();
    let before = d.status().counters.index_pages_read;
    let checkpoints = d.status().counters.checkpoints;
    for first in (0..LINES).step_by(LINES_OF_EACH as usize) {
        let discard = d.discard(first * 8, LINES_OF_EACH * 8);
        d.run_until(|d| d.is_answered(discard));
        assert_eq!(d.read(first), 0, "line {first} is being discarded");
    }
    // A write waits for the end of all.
    d.done(|d| d.write(LINES - 1, 9));
    assert_eq!((d.status().dirty_lines, d.status().counters.checkpoints), (1, checkpoints));
    let pages = d.status().counters.index_pages_read - before;
    let pages_of_pass = (LINES * 16).div_ceil(4096);
    assert!(pages <= LINES / LINES_OF_EACH + 3 * pages_of_pass, "{pages} pages were read");
    d.kill_and_reopen();
    assert_eq!((d.read(LINES - 2), d.read(LINES - 1)), (0, 9));
    d.drain();
    assert_eq!(d.status().dirty_lines, 0);
}

/// A page that has rotted is never believed: without the index there is no cache.
#[test]
fn a_page_that_has_rotted_is_an_error() {
    let mut d = mostly_listed();
    let line = read_that_waits(&mut d, 0..LINES);
    let offset = d.started.iter().rev().find(|seen| seen.is(Device::CacheDisk, Kind::Read));
    let offset = offset.expect("it was started").offset;
    for item in 0..256 {
        d.cache_disk.flip(offset + item * 16 + 8);
    }
    d.release();
    d.finish_all();
    assert_eq!(d.try_read(line * 8, 8), Err(RequestError::Io));
    let failure = d.engine().cache_disk_failure().expect("nobody knows where lines are");
    assert_eq!(failure.error, IoError::Failed);
    // What was right on the data-disk all the time is still read.
    assert_eq!(d.read(LINES + 50), 0);
}

/// A page that is there for somebody who waits for the next one, too, is there for all: whoever
/// came meanwhile was never told of it.
#[test]
fn pages_that_are_there_are_there_for_those_who_come_later() {
    let mut d = mostly_listed();
    read_that_waits(&mut d, 0..LINES);
    let read_all = |d: &mut Driver| -> Vec<_> {
        let read = |d: &mut Driver, line: u64| {
            let (range, buffer) = (LbaRange::new(line * 8, 8), Buffer::zeroed(4096));
            d.submit(Operation::Read { range, buffer }, false)
        };
        (0..LINES).map(|line| read(d, line)).collect()
    };
    let mut asked = read_all(&mut d);
    let pages = d.ios_of(Device::CacheDisk, Kind::Read);
    assert!(pages.len() > 2, "lines on two pages, too");
    for page in pages {
        d.finish(page);
        d.finish_all();
        asked.extend(read_all(&mut d));
    }
    d.release();
    d.finish_all();
    assert!(asked.into_iter().all(|id| d.result(id).is_ok()));
}

/// An SSD that has become read-only: changes fail, and whatever can be read is (C22).
#[test]
fn reads_go_on_when_the_cache_disk_takes_no_writes() {
    let mut d = mostly_listed();
    // Some wait for a page at that moment.
    let waiting = read_that_waits(&mut d, 0..LINES);
    d.fail_always(Device::CacheDisk, Kind::Write, 0..u64::MAX, IoError::Failed);
    let change = d.write(LINES + 7, 9);
    let flush = d.flush();
    (0..200).for_each(|_| d.tick());
    d.release();
    d.finish_all();
    assert!(d.engine().cache_disk_failure().is_some());
    assert!(d.is_answered(change) && d.result(flush) == Err(RequestError::Io));
    for line in (0..LINES).chain([waiting]) {
        assert_eq!(d.read(line), of(line));
    }
    for line in LINES..LINES + 90 {
        assert!(matches!(d.read(line), 0 | 9));
    }
    // And if it answers nothing any more, what is not known is an error and nothing hangs.
    d.fail_always(Device::CacheDisk, Kind::Read, 0..u64::MAX, IoError::Gone);
    let results: Vec<_> = (0..LINES).map(|line| d.try_read(line * 8, 8)).collect();
    assert!(results.iter().all(|result| *result == Err(RequestError::Io)));
}

/// One that could not be read once is read again.
#[test]
fn a_page_that_fails_once_is_read_again() {
    let mut d = mostly_listed();
    let line = read_that_waits(&mut d, 0..LINES);
    let page = d.find_io(Device::CacheDisk, Kind::Read).expect("it waits for its page");
    d.fail(page, IoError::Failed);
    d.release();
    d.finish_all();
    assert_eq!(d.read(line), of(line));
    assert!(d.engine().cache_disk_failure().is_none());
}

/// Lines that no disk has, in a record that somebody has forged: nobody looks for them.
#[test]
fn a_forged_record_names_lines_behind_the_disk() {
    let mut d = mostly_listed();
    d.power_cut();
    let (checkpoint, _) = d.newest_checkpoint();
    let position = checkpoint.position;
    let behind = |bits: u32| Line(1 << bits);
    let data = |line| Entry::Data { line, mask: FragmentMask::FULL, checksum: crc32c(&[0; 4096]) };
    let record = Record {
        header: RecordHeader {
            uuid: checkpoint.uuid,
            epoch: checkpoint.epoch,
            serial: position.serial,
            segment: position.segment,
            slot_in_segment: position.slot_in_segment,
            number: position.next_record,
            previous_checksum: position.previous_checksum,
            durable: RecordNumber(0),
            checkpoint_generation: checkpoint.generation,
            unfinished: 0,
        },
        entries: vec![
            data(behind(45)),
            Entry::Zero { line: behind(44), lines: 3, may_unmap: false },
            data(Line(5)),
        ],
        checksum: 0,
    };
    let geometry = d.superblock().geometry;
    let offset = geometry.slot_offset(geometry.slot(position.segment, position.slot_in_segment));
    d.cache_disk.write(offset, &record.encode());
    d.cache_disk.write(offset + 4096, &[0; 2 * 4096]);
    d.cache_disk.flush();
    d.reopen();
    assert_eq!(d.engine().recovery_report().records, 1, "the record is one of the log");
    assert_eq!((d.read(5), d.read(6)), (0, of(6)));
}
