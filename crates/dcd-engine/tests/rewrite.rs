//! A start believes a flush only for what it wrote itself (C22, `engine/recover/rewrite.rs`).
//! Somebody before it may have seen a flush fail: the kernel shows what it has dropped, until a
//! power cut.

mod common;

use common::{Driver, Kind, LINE, Seen};
use dcd_engine::{AckMode, Device, IoError, IoId, OpenError, Phase};

fn driver() -> Driver {
    Driver::never_idle(|options| options.engine.ack = AckMode::Log)
}

/// Line 100 is durable; 101 and 102 are written, in a record each.
fn with_written_records() -> Driver {
    let mut d = driver();
    d.write_durably([100], 1);
    for (line, byte) in [(101, 2), (102, 3)] {
        d.done(|d| d.write(line, byte));
    }
    d
}

fn is_in_log(d: &Driver, seen: &Seen) -> bool {
    seen.is(Device::CacheDisk, Kind::Write)
        && seen.offset >= d.superblock().geometry.segments_offset
}

/// In which area this write puts a checkpoint, or a part of one.
fn checkpoint_area(d: &Driver, seen: &Seen) -> Option<usize> {
    let geometry = d.superblock().geometry;
    let [first, second] = geometry.checkpoint_offsets;
    let is_write = seen.is(Device::CacheDisk, Kind::Write);
    match seen.offset {
        offset if !is_write || offset < first || offset >= geometry.segments_offset => None,
        offset => Some(usize::from(offset >= second)),
    }
}

/// Opens until a flush of the cache-disk waits.
fn next_flush(d: &mut Driver) -> IoId {
    loop {
        if let Some(flush) = d.find_io(Device::CacheDisk, Kind::Flush) {
            return flush;
        }
        assert_eq!(*d.engine().phase(), Phase::Opening);
        d.step();
    }
}

/// The kernel drops what it could not write, and calls it clean. The start is refused.
fn drop_and_fail(d: &mut Driver, flush: IoId) {
    d.cache_disk.drop_unflushed();
    d.fail(flush, IoError::Failed);
    d.release();
    while *d.engine().phase() == Phase::Opening {
        d.step();
    }
    let phase = d.engine().phase().clone();
    assert!(matches!(phase, Phase::Failed(OpenError::Io { .. })), "{phase:?}");
}

fn hold_flushes(d: &mut Driver) {
    d.hold(|io| io.is(Device::CacheDisk, Kind::Flush));
}

/// ```text
/// session    100 durable   101, 102 written     dies, and its memory is lost
/// start 1    reads 101, 102;   flush fails      refused
/// start 2    is shown 101, 102 by the kernel    flush succeeds, of nothing
/// power cut  101, 102 must be there: they were read
/// ```
#[test]
fn records_that_a_refused_start_could_not_flush_are_written_again() {
    let mut d = with_written_records();
    d.forget_engine();
    d.start_open().expect("the superblock is whole");
    hold_flushes(&mut d);
    let flush = next_flush(&mut d);
    drop_and_fail(&mut d, flush);
    d.forget_engine();
    d.reopen();
    assert_eq!((d.read(100), d.read(101), d.read(102)), (1, 2, 3));
    d.power_cycle();
    assert_eq!((d.read(100), d.read(101), d.read(102)), (1, 2, 3), "what was read stays");
}

/// The session itself saw the flush fail, and died with its memory before it had logged again.
#[test]
fn records_that_a_dead_session_could_not_flush_are_written_again() {
    let mut d = with_written_records();
    hold_flushes(&mut d);
    d.flush();
    let flush = next_of(&d, Kind::Flush);
    d.cache_disk.drop_unflushed();
    d.fail(flush, IoError::Failed);
    d.forget_engine();
    d.reopen();
    assert_eq!((d.read(100), d.read(101), d.read(102)), (1, 2, 3));
    d.power_cycle();
    assert_eq!((d.read(100), d.read(101), d.read(102)), (1, 2, 3), "what was read stays");
}

fn next_of(d: &Driver, kind: Kind) -> IoId {
    d.find_io(Device::CacheDisk, kind).expect("one is under way")
}

/// ```text
///            area A                     area B
///            n                          n - 1
/// start 1    n                          n + 1, flush fails: only shown        refused
/// start 2    n + 2, torn by the cut     n + 1: must be durable by now, or there is none
/// ```
#[test]
fn a_checkpoint_that_is_only_shown_is_written_again_before_the_other_one_is_overwritten() {
    let mut d = driver();
    d.write_durably([100], 1);
    d.power_cut();
    d.start_open().expect("the superblock is whole");
    hold_flushes(&mut d);
    let before = d.started.len();
    let own_area = loop {
        let flush = next_flush(&mut d);
        let newest = d.started[before..].iter().rfind(|io| io.is(Device::CacheDisk, Kind::Write));
        let area = newest.and_then(|io| checkpoint_area(&d, io));
        // The first checkpoint written may be the one that was read.
        let writes = d.started[before..].iter().filter_map(|io| checkpoint_area(&d, io));
        let mut areas: Vec<usize> = writes.collect();
        areas.dedup();
        if areas.len() == 2 || areas.len() == 1 && d.status().counters.cache_disk_flushes > 1 {
            drop_and_fail(&mut d, flush);
            break area.expect("the write before was of a checkpoint");
        }
        d.finish(flush);
    };
    d.forget_engine();
    d.start_open().expect("the superblock is whole");
    let before = d.started.len();
    loop {
        let newest = d.started[before..].iter().rfind(|io| io.is(Device::CacheDisk, Kind::Write));
        let newest = newest.cloned();
        if let Some(io) = newest.filter(|io| checkpoint_area(&d, io) == Some(1 - own_area)) {
            d.tear(io.id, |sector| sector % 2 == 1);
            break;
        }
        assert_eq!(*d.engine().phase(), Phase::Opening, "a checkpoint is written");
        d.step();
    }
    d.power_cycle();
    assert_eq!(d.read(100), 1);
}

/// Only the last record is not known to be durable: no record behind it says so.
#[test]
fn what_a_later_record_knows_to_be_durable_is_not_written_again() {
    let mut d = driver();
    for byte in 1..=20 {
        d.write_durably([100 + u64::from(byte)], byte);
    }
    d.power_cut();
    let before = d.started.len();
    d.reopen();
    let rewrites: Vec<u64> =
        d.started[before..].iter().filter(|io| is_in_log(&d, io)).map(|io| io.length).collect();
    assert_eq!(rewrites, [2 * LINE as u64], "a header and a slot");
}

/// With the segment memory nothing else needs to be: it holds all that is not durable.
#[test]
fn a_start_with_its_segment_memory_writes_what_is_in_it() {
    let mut d = driver();
    // A segment that is durable and has left its buffer, and a record behind it.
    d.write_durably(100..115, 1);
    d.write_durably([200], 2);
    d.kill();
    let before = d.started.len();
    d.reopen();
    let rewrites = d.started[before..].iter().filter(|io| is_in_log(&d, io)).count();
    assert_eq!(rewrites, 1);
    assert_eq!((d.read(100), d.read(200)), (1, 2));
}

/// A power cut after every I/O of a start that writes again, keeping some of what was not flushed:
/// what was durable is there, what is there is a prefix, and what is shown stays.
#[test]
fn a_start_that_writes_again_may_be_cut_anywhere() {
    for ios in 0.. {
        let mut is_over = true;
        for kept in 0..4 {
            let mut d = with_written_records();
            d.forget_engine();
            d.start_open().expect("the superblock is whole");
            let mut done = 0;
            while done < ios && *d.engine().phase() == Phase::Opening {
                d.step();
                done += 1;
            }
            is_over &= *d.engine().phase() != Phase::Opening;
            d.power_cut_keeping(|_, index| kept == 3 || index % 2 == kept);
            d.reopen();
            let shown = (d.read(100), d.read(101), d.read(102));
            assert!(matches!(shown, (1, 0, 0) | (1, 2, 0) | (1, 2, 3)), "{ios} {kept} {shown:?}");
            d.power_cycle();
            assert_eq!((d.read(100), d.read(101), d.read(102)), shown);
        }
        if is_over {
            return;
        }
    }
}
