//! The read area gets another size while requests are served, and the log the rest: what is copied
//! stays, whatever a crash comes between. Random moments are the fuzzer's.

mod common;

use common::{Driver, Kind, LINE, LINES_PER_SEGMENT, never_idle};
use dcd_engine::format::geometry::{COPIES_PER_PAGE, COPY_PAGE_SPACE_BYTES};
use dcd_engine::io::ResizeError;
use dcd_engine::stats::ResizeState;
use dcd_engine::{
    Device, Duration, IoError, LbaRange, NewSequence, Operation, RequestError, RequestId,
    SequenceError, SequenceRequest,
};

const PAGE: u64 = COPY_PAGE_SPACE_BYTES;
/// Segments of 64 KiB that a page takes the place of, but for what it leaves over.
const SEGMENTS_OF_PAGE: u32 = 16;
/// Lines of the data-disk.
const LINES: u64 = 1024;
/// Lines that tests write to; sequences are of others.
const WRITTEN: u64 = 600;

/// A cache of 144 segments with so many pages, sequences by request alone.
fn driver(pages: u32) -> Driver {
    let mut d = Driver::created(|options| {
        never_idle(options);
        options.copy_pages = pages;
        options.segments = 144 - pages * SEGMENTS_OF_PAGE;
        options.engine.hot_blocks = false;
        options.engine.detector = None;
        options.engine.sequence_percent = 100;
    });
    for line in 0..LINES {
        d.data_disk.rot(line * LINE as u64, &[byte_of(line); LINE]);
    }
    d.reopen();
    d
}

fn byte_of(line: u64) -> u8 {
    (line % 251) as u8
}

fn ask(d: &mut Driver, pages: u64) -> RequestId {
    d.submit(Operation::ResizeReadArea { bytes: pages * PAGE }, false)
}

#[track_caller]
fn resize(d: &mut Driver, pages: u64) {
    d.done(|d| ask(d, pages));
    let geometry = d.superblock().geometry;
    assert_eq!(u64::from(geometry.copy_pages), pages);
    assert_eq!(d.status().copies.slots, pages * u64::from(COPIES_PER_PAGE));
    assert_eq!(d.status().segments_total, geometry.segments);
}

/// Keeps these lines, in an order that none of them has on the data-disk.
fn store(d: &mut Driver, name: &str, lines: std::ops::Range<u64>) -> Result<(), RequestError> {
    let range = |line: u64| LbaRange::new(line * 8, 8);
    let id = d.submit(
        Operation::Sequence(SequenceRequest::Store(Box::new(NewSequence {
            name: name.to_owned(),
            ranges: lines.rev().map(range).collect(),
            occurrences: 0,
            is_detected: name.starts_with("found"),
        }))),
        false,
    );
    let stored = d.result(id);
    d.advance_time(Duration::from_secs(3));
    stored
}

/// Whether all lines of a sequence are copied, and what is read is right and comes from there.
#[track_caller]
fn check_sequence(d: &mut Driver, name: &str, lines: std::ops::Range<u64>) {
    for _ in 0..60 {
        if d.status().copies.stale > 0 {
            d.advance_time(Duration::from_secs(1));
        }
    }
    let engine = d.engine();
    let sequence = engine.sequences().find(|it| it.label().name == name).expect("it is there");
    let kept = engine.lines_of(sequence);
    let order: Vec<u64> = kept.iter().map(|(line, _)| line.0).collect();
    assert_eq!(order, lines.clone().rev().collect::<Vec<u64>>(), "{name}");
    assert!(kept.iter().all(|(_, is_true)| *is_true), "{name}: all are copied");
    let mark = d.started.len();
    for line in lines.rev() {
        assert_eq!(read(d, line), byte_of(line), "line {line}");
    }
    assert_eq!(d.count_since(mark, Device::DataDisk, Kind::Read), 0, "{name}");
}

/// Reads a line, whatever I/Os that takes.
fn read(d: &mut Driver, line: u64) -> u8 {
    let id = d.submit(Operation::read(LbaRange::new(line * 8, 8)), false);
    d.expect_ok(id);
    common::one_byte(&d.reply_bytes(id))
}

fn fill(d: &mut Driver, byte: u8) {
    for first in (0..WRITTEN).step_by(LINES_PER_SEGMENT as usize) {
        d.write_durably(first..WRITTEN.min(first + LINES_PER_SEGMENT), byte);
    }
}

#[test]
fn it_comes_grows_shrinks_and_goes() {
    let mut d = driver(0);
    let without = d.superblock().geometry;
    assert_eq!(store(&mut d, "start", 700..720), Err(SequenceError::NoReadArea.into()));
    fill(&mut d, 1);
    resize(&mut d, 2);
    assert!(d.superblock().geometry.segments <= without.segments - 2 * 15);
    assert_eq!(store(&mut d, "start", 700..1000), Ok(()));
    check_sequence(&mut d, "start", 700..1000);
    // A page more in front moves nothing.
    let mark = d.started.len();
    resize(&mut d, 4);
    d.advance_time(Duration::from_secs(3));
    check_sequence(&mut d, "start", 700..1000);
    assert_eq!(d.status().counters.copy_lines_written, 300, "{:?}", &d.started[mark..].len());
    d.power_cycle();
    check_sequence(&mut d, "start", 700..1000);
    assert_eq!(store(&mut d, "second", 620..690), Ok(()));
    // What it gives up it had given to sequences.
    resize(&mut d, 3);
    d.advance_time(Duration::from_secs(3));
    check_sequence(&mut d, "start", 700..1000);
    check_sequence(&mut d, "second", 620..690);
    d.power_cycle();
    check_sequence(&mut d, "start", 700..1000);
    check_sequence(&mut d, "second", 620..690);
    fill(&mut d, 2);
    d.done(|d| d.submit(Operation::Sequence(SequenceRequest::Clear), false));
    resize(&mut d, 0);
    assert_eq!(d.superblock().geometry, without);
    assert_eq!(store(&mut d, "start", 700..720), Err(SequenceError::NoReadArea.into()));
    fill(&mut d, 3);
    d.power_cycle();
    assert!((0..WRITTEN).all(|line| read(&mut d, line) == 3));
    assert!((WRITTEN..LINES).all(|line| read(&mut d, line) == byte_of(line)));
    d.shut_down();
}

/// Between any two I/Os, and with any part of what was not flushed.
#[test]
fn a_crash_at_any_io_leaves_one_of_the_two_with_all_that_is_kept() {
    for (from, to) in [(2, 4), (4, 2), (2, 0), (0, 2)] {
        let (mut before, mut after) = (0, 0);
        for ios in (0..400).step_by(7) {
            let keeps = ios % 4;
            let mut d = driver(from);
            if from > 0 && to > 0 {
                assert_eq!(store(&mut d, "start", 700..1000), Ok(()));
            }
            fill(&mut d, 1);
            d.write_fua(7, 3);
            let id = ask(&mut d, to);
            for _ in 0..ios {
                if !d.finish_one() && !d.is_answered(id) {
                    d.step();
                }
            }
            let was_answered = d.is_answered(id);
            d.power_cut_keeping(|_, index| keeps == 1 || keeps > 1 && index % 2 == keeps % 2);
            let pages = u64::from(d.superblock().geometry.copy_pages);
            assert!(pages == u64::from(from) && !was_answered || pages == to);
            match pages == to {
                true => after += 1,
                false => before += 1,
            }
            d.reopen();
            for line in 0..WRITTEN {
                let found = read(&mut d, line);
                assert!(found == 1 || line == 7 && found == 3, "line {line}: {found}");
            }
            if from > 0 && to > 0 {
                d.advance_time(Duration::from_secs(3));
                check_sequence(&mut d, "start", 700..1000);
            }
        }
        assert!(before > 5 && after > 5, "{from} {to}: {before} {after}");
    }
}

/// Hot blocks go, then what was found; what somebody has recorded does not.
#[test]
fn what_somebody_has_recorded_is_not_given_up() {
    let mut d = driver(6);
    assert_eq!(store(&mut d, "found-1", 620..640), Ok(()));
    assert_eq!(store(&mut d, "start", 700..1000), Ok(()));
    let pin = SequenceRequest::Pin { name: "found-1".into(), is_pinned: true };
    d.done(|d| d.submit(Operation::Sequence(pin), false));
    let least = ResizeError::Sequences { needed: 3 * PAGE };
    for pages in [0, 1, 2] {
        let id = ask(&mut d, pages);
        assert_eq!(d.result(id), Err(least.into()));
    }
    let unpin = SequenceRequest::Pin { name: "found-1".into(), is_pinned: false };
    d.done(|d| d.submit(Operation::Sequence(unpin), false));
    resize(&mut d, 2);
    let names: Vec<_> = d.engine().sequences().map(|it| it.label().name.clone()).collect();
    assert_eq!(names, ["start"]);
    d.advance_time(Duration::from_secs(3));
    check_sequence(&mut d, "start", 700..1000);
}

/// Nobody has to go where the area grows, and where they take more than their share already, none
/// can where it shrinks.
#[test]
fn a_smaller_share_forbids_no_growth() {
    let share = |d: &mut Driver, percent| {
        d.shut_down();
        d.options.engine.sequence_percent = percent;
        d.reopen();
    };
    let mut d = driver(4);
    for (name, from) in [("one", 0), ("two", 300), ("three", 600)] {
        assert_eq!(store(&mut d, name, from..from + 248), Ok(()));
    }
    share(&mut d, 10);
    resize(&mut d, 5);
    share(&mut d, 0);
    resize(&mut d, 7);
    let id = ask(&mut d, 6);
    assert_eq!(d.result(id), Err(ResizeError::Sequences { needed: 7 * PAGE }.into()));
    share(&mut d, 60);
    resize(&mut d, 5);
    check_sequence(&mut d, "three", 600..848);
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let mut d = driver(2);
    let before = d.superblock();
    let refused = |d: &mut Driver, bytes, error: ResizeError| {
        let id = d.submit(Operation::ResizeReadArea { bytes }, false);
        assert_eq!(d.result(id), Err(error.into()), "{bytes}");
        assert_eq!(d.engine().check_read_area(bytes), Err(error.into()));
    };
    let same = ResizeError::SameReadArea { bytes: 2 * 248 * LINE as u64 };
    refused(&mut d, 2 * PAGE + 4096, same);
    let most = (u64::from(before.geometry.room_segments) - 16) * (64 << 10) / PAGE * PAGE;
    refused(&mut d, most + PAGE, ResizeError::ReadAreaTooLarge { most });
    refused(&mut d, 20, ResizeError::ReadAreaTooSmall { least: PAGE });
    refused(&mut d, u64::MAX, ResizeError::ReadAreaTooLarge { most });
    assert_eq!(d.superblock(), before);
    d.hold(|seen| seen.device == Device::CacheDisk && seen.kind == Kind::Flush);
    let first = ask(&mut d, 4);
    refused(&mut d, PAGE, ResizeError::UnderWay);
    d.release();
    assert_eq!(d.wait(first), Ok(()));
    let smaller = d.submit(Operation::Resize { cache_disk_bytes: 4 << 20 }, false);
    assert!(matches!(d.result(smaller), Err(RequestError::Resize(ResizeError::BehindLog { .. }))));
}

/// A log that has grown gives up its annexes for it, and may grow again.
#[test]
fn a_log_that_has_grown_gives_up_its_annexes() {
    let mut d = driver(2);
    assert_eq!(store(&mut d, "start", 700..1000), Ok(()));
    d.cache_disk.set_length(32 << 20);
    d.done(|d| d.submit(Operation::Resize { cache_disk_bytes: 32 << 20 }, false));
    fill(&mut d, 1);
    fill(&mut d, 2);
    for pages in [4, 3] {
        resize(&mut d, pages);
        assert_eq!(d.superblock().geometry.annexes.count(), 0);
        assert!((0..WRITTEN).all(|line| read(&mut d, line) == 2));
        d.advance_time(Duration::from_secs(3));
        check_sequence(&mut d, "start", 700..1000);
        d.done(|d| d.submit(Operation::Resize { cache_disk_bytes: 32 << 20 }, false));
        assert!(d.superblock().geometry.annexes.count() == 1);
        d.power_cycle();
        check_sequence(&mut d, "start", 700..1000);
    }
    assert!((0..WRITTEN).all(|line| read(&mut d, line) == 2));
}

/// Segments of an annex have numbers that the read area may leave to the log, in other places.
#[test]
fn what_an_annex_holds_is_not_looked_for_elsewhere() {
    for (annex, pages) in [(3 << 20, 1), (3 << 20, 3), (16 << 20, 1), (16 << 20, 3), (16 << 20, 5)]
    {
        let mut d = driver(4);
        let made = d.superblock().geometry;
        let bytes = made.end() + annex;
        d.cache_disk.set_length(bytes);
        d.done(|d| d.submit(Operation::Resize { cache_disk_bytes: bytes }, false));
        let grown = segments(&d);
        assert!(grown > made.segments + 20);
        // As many as fit, so that some are in the annex whatever the size of that.
        let lines = u64::from(grown - 12) * LINES_PER_SEGMENT;
        let mut expected: Vec<u8> = (0..LINES).map(byte_of).collect();
        for first in (0..lines).step_by(LINES_PER_SEGMENT as usize) {
            let byte = 1 + (first / LINES) as u8;
            for line in first..first + LINES_PER_SEGMENT {
                expected[(line % LINES) as usize] = byte;
            }
            d.write_durably((first..first + LINES_PER_SEGMENT).map(|line| line % LINES), byte);
        }
        resize(&mut d, pages);
        d.power_cycle();
        for (line, byte) in expected.into_iter().enumerate() {
            assert_eq!(read(&mut d, line as u64), byte, "{annex}, {pages}: line {line}");
        }
    }
}

fn segments(d: &Driver) -> u32 {
    d.superblock().geometry.segments
}

/// The read area has nothing to do with it.
#[test]
fn a_log_that_shrinks_leaves_the_read_area_alone() {
    let mut d = driver(2);
    assert_eq!(store(&mut d, "start", 700..1000), Ok(()));
    d.cache_disk.set_length(32 << 20);
    d.done(|d| d.submit(Operation::Resize { cache_disk_bytes: 32 << 20 }, false));
    d.power_cycle();
    check_sequence(&mut d, "start", 700..1000);
    fill(&mut d, 1);
    let made = d.superblock().geometry.end() + 4096;
    d.done(|d| d.submit(Operation::Resize { cache_disk_bytes: made }, false));
    assert_eq!((d.status().copies.valid, d.status().copies.stale), (300, 0));
    check_sequence(&mut d, "start", 700..1000);
}

/// A page that is being copied in several reads, and a sequence that somebody pins meanwhile.
#[test]
fn it_never_waits_for_itself() {
    let mut d = driver(4);
    let far = |line: u64| LbaRange::new(line * 8, 8);
    let new = NewSequence {
        name: "start".into(),
        ranges: (0..200).map(|at| far(at * 97 % 400 + 610)).collect(),
        occurrences: 0,
        is_detected: false,
    };
    d.hold(|seen| seen.is(Device::DataDisk, Kind::Read));
    d.done(|d| d.submit(Operation::Sequence(SequenceRequest::Store(Box::new(new))), false));
    d.run_until(|d| d.find_io(Device::DataDisk, Kind::Read).is_some());
    let id = ask(&mut d, 2);
    d.release();
    assert_eq!(d.wait(id), Ok(()));

    let mut d = driver(4);
    for (name, from) in [("found-1", 0), ("found-2", 300), ("found-3", 600)] {
        assert_eq!(store(&mut d, name, from..from + 248), Ok(()));
    }
    d.hold(|seen| seen.device == Device::DataDisk);
    d.write_durably([1000], 1);
    let id = ask(&mut d, 2);
    for name in ["found-1", "found-2", "found-3"] {
        let pin = SequenceRequest::Pin { name: name.into(), is_pinned: true };
        d.submit(Operation::Sequence(pin), false);
    }
    d.release();
    let told = d.wait(id);
    assert!(matches!(told, Ok(()) | Err(RequestError::Resize(ResizeError::Sequences { .. }))));
    d.advance_time(Duration::from_secs(1));
    assert_eq!(d.status().resize, None);
}

/// A cache with a sequence, so many I/Os behind when nothing was left to be emptied for that many
/// pages.
fn telling(pages: u64, ios: u32) -> (Driver, RequestId) {
    let mut d = driver(if pages == 2 { 4 } else { 2 });
    assert_eq!(store(&mut d, "start", 700..1000), Ok(()));
    let id = ask(&mut d, pages);
    d.run_until(|d| d.status().resize.is_some_and(|it| it.state == ResizeState::Writing));
    for _ in 0..ios {
        if !d.finish_one() && !d.is_answered(id) {
            d.step();
        }
    }
    (d, id)
}

/// With a flush that fails may be gone what was written before, and no flush behind it tells (C22).
#[test]
fn a_flush_that_fails_meanwhile_is_taken_for_a_loss() {
    for to in [2, 4] {
        for ios in 0..40 {
            let (mut d, id) = telling(to, ios);
            if d.is_answered(id) {
                break;
            }
            d.cache_disk.drop_unflushed();
            d.fail_next(Device::CacheDisk, Kind::Flush, IoError::Failed);
            d.write_durably([5], 7);
            d.write_durably([6], 8);
            assert_eq!(d.wait(id), Ok(()), "{to}: {ios}");
            d.power_cycle();
            assert_eq!((read(&mut d, 5), read(&mut d, 6)), (7, 8));
            // Copies themselves may have been lost, as their checksums tell.
            let sequence = d.engine().sequences().next().expect("it is there");
            let order = d.engine().lines_of(sequence);
            assert!(order.into_iter().map(|(line, _)| line.0).eq((700..1000).rev()));
            assert!((700..1000).all(|line| read(&mut d, line) == byte_of(line)));
        }
    }
}

/// Of all that was written and not flushed only the header of the checkpoint is left.
#[test]
fn a_checkpoint_names_no_page_that_may_not_be_there() {
    for to in [2, 4] {
        for ios in 0..40 {
            let (mut d, id) = telling(to, ios);
            let areas = d.superblock().geometry.checkpoint_offsets;
            let writes = d.cache_disk.unflushed();
            let is_header = move |index: usize| areas.contains(&writes[index]);
            d.power_cut_keeping(move |device, index| {
                device == Device::CacheDisk && is_header(index)
            });
            d.reopen();
            check_sequence(&mut d, "start", 700..1000);
            if d.is_answered(id) {
                break;
            }
        }
    }
}

#[test]
fn somebody_wants_it_no_more() {
    let mut d = driver(2);
    assert_eq!(store(&mut d, "start", 700..1000), Ok(()));
    let before = d.superblock().geometry;
    for pages in [3, 6] {
        // Into the last segments.
        (0..3).for_each(|_| fill(&mut d, 1));
        d.hold(|seen| seen.device == Device::DataDisk);
        let id = ask(&mut d, pages);
        d.finish_all();
        let report = d.status().resize.expect("it is under way");
        assert_eq!((report.copy_pages_before, u64::from(report.copy_pages_wanted)), (2, pages));
        let cancel = d.submit(Operation::CancelResize { resize: id }, false);
        assert_eq!((d.result(id), d.result(cancel)), (Err(RequestError::Cancelled), Ok(())));
        d.release();
        d.advance_time(Duration::from_secs(3));
        assert_eq!((d.superblock().geometry, d.status().resize), (before, None));
        check_sequence(&mut d, "start", 700..1000);
    }
    assert!((0..WRITTEN).all(|line| read(&mut d, line) == 1));
    d.done(|d| d.submit(Operation::Shutdown, false));
}

/// Hot blocks are taken in where it grows, and go where it shrinks, also while they are written.
#[test]
fn hot_blocks_follow() {
    let mut d = Driver::created(|options| {
        options.copy_pages = 0;
        options.segments = 100;
        options.engine.hot_blocks = true;
    });
    for line in 0..LINES {
        d.data_disk.rot(line * LINE as u64, &[byte_of(line); LINE]);
    }
    d.reopen();
    resize(&mut d, 3);
    // Not as a scan would.
    for line in (0..700).map(|at| at * 37 % LINES) {
        assert_eq!(read(&mut d, line), byte_of(line));
    }
    d.advance_time(Duration::from_secs(1));
    let valid = d.status().copies.valid;
    assert!(valid > 600, "{valid}");
    d.hold(|seen| seen.device == Device::CacheDisk && seen.kind == Kind::Write);
    for line in (700..760).map(|at| at * 37 % LINES) {
        assert_eq!(read(&mut d, line), byte_of(line));
    }
    // Whatever else ends: they could be written to what is the log's by then.
    let copies = d.ios_of(Device::CacheDisk, Kind::Write);
    assert!(!copies.is_empty());
    let id = ask(&mut d, 1);
    d.release();
    d.hold(move |seen| copies.contains(&seen.id));
    d.finish_all();
    d.advance_time(Duration::from_secs(5));
    assert!(!d.is_answered(id), "it waits for what is written there");
    d.release();
    assert_eq!(d.wait(id), Ok(()));
    let valid = d.status().copies.valid;
    assert!((1..=248).contains(&valid), "{valid}");
    d.power_cycle();
    for line in 0..LINES {
        assert_eq!(read(&mut d, line), byte_of(line));
    }
    resize(&mut d, 5);
    for line in (0..LINES).map(|at| at * 37 % LINES) {
        assert_eq!(read(&mut d, line), byte_of(line));
    }
    d.advance_time(Duration::from_secs(1));
    assert!(d.status().copies.valid > 900);
}
