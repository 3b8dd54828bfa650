//! Segments that are filled again because a record announces them: what a start makes of it, with
//! the checkpoint that was made before they were emptied.

mod common;

use common::{Driver, Kind, LINES_PER_SEGMENT, Options, never_idle};
use dcd_engine::{Device, Duration, IoError, LbaRange, Operation, RequestError};

const BLOCKS: u64 = 32_768;
/// A line that the filling leaves alone.
const LINE: u64 = 3000;

/// A log of 64 segments, of which the first holds what `first` writes and all but a few are filled;
/// a checkpoint that lists all that has just been made.
fn nearly_full(first: impl Fn(&mut Driver)) -> Driver {
    // A checkpoint is made every eight segments: with one of eight beginnings it is made where it
    // is wanted.
    (0..8).find_map(|burnt| fill(burnt, &first)).expect("one of them has")
}

fn fill(burnt: u64, first: &impl Fn(&mut Driver)) -> Option<Driver> {
    let mut d = Driver::with(|options: &mut Options| {
        never_idle(options);
        options.segments = 64;
        options.data_disk.blocks = BLOCKS;
    });
    d.overwrite_segments(2000, burnt);
    first(&mut d);
    for round in 0.. {
        let before = d.status().counters.checkpoints;
        d.write_durably(round * LINES_PER_SEGMENT..(round + 1) * LINES_PER_SEGMENT, 1);
        d.finish_all();
        let status = d.status();
        match (status.segments.free, status.counters.checkpoints > before) {
            (8..=11, true) => return Some(d),
            (..8, _) => return None,
            _ => {}
        }
    }
    None
}

/// Writes on until the emptied segments are announced, and the records that say so are durable;
/// then the power is cut. The checkpoint that a start finds is the one of the beginning.
fn announced_and_cut(d: &mut Driver, checkpoints: u64) {
    let is_announced = |d: &Driver| d.status().segments.free > 8;
    for round in 0.. {
        d.write_durably(
            2500 + round * LINES_PER_SEGMENT..2500 + (round + 1) * LINES_PER_SEGMENT,
            2,
        );
        d.finish_all();
        if round > 1 && is_announced(d) {
            break;
        }
        assert!(round < 8, "nothing is announced: {:?}", d.status().segments);
    }
    assert_eq!(d.status().counters.checkpoints, checkpoints, "it proves nothing");
    d.power_cycle();
}

fn blocks(d: &mut Driver) -> Result<Vec<u8>, RequestError> {
    let bytes = d.try_read(LINE * 8, 8)?;
    Ok(bytes.chunks(512).map(common::one_byte).collect())
}

/// Zeroes below a line that was destaged are not there again.
#[test]
fn what_was_destaged_over_zeroes_does_not_read_as_zeroes() {
    let mut d = nearly_full(|d| {
        d.done(|d| d.discard(LINE * 8, 8));
        d.done(|d| d.write_blocks(LINE * 8, 2, 7));
    });
    let checkpoints = d.status().counters.checkpoints;
    d.drain();
    announced_and_cut(&mut d, checkpoints);
    assert_eq!(blocks(&mut d), Ok(vec![7, 7, 0, 0, 0, 0, 0, 0]));
}

/// Zeroes beside fragments that were overwritten are there still: they are not on the data-disk.
#[test]
fn what_was_overwritten_over_zeroes_keeps_the_zeroes_beside_it() {
    let mut d = nearly_full(|d| {
        d.data_disk.rot(LINE * 4096, &[9; 4096]);
        d.done(|d| d.discard(LINE * 8, 8));
        d.done(|d| d.write_blocks(LINE * 8, 2, 7));
    });
    let checkpoints = d.status().counters.checkpoints;
    // All of the first segments is overwritten or discarded: nothing has to be destaged.
    d.done(|d| d.write_blocks(LINE * 8, 2, 8));
    d.done(|d| d.discard(0, 4 * LINES_PER_SEGMENT * 8));
    announced_and_cut(&mut d, checkpoints);
    assert_eq!(blocks(&mut d), Ok(vec![8, 8, 0, 0, 0, 0, 0, 0]));
}

/// A line that was found damaged is not taken for one that was destaged: the older data is never
/// shown (C19). Until a checkpoint lists it nothing is announced.
#[test]
fn what_was_found_damaged_is_not_taken_for_destaged() {
    let mut d = nearly_full(|d| d.write_durably([LINE], 7));
    let place = d.slot_of(7);
    d.cache_disk.flip(place);
    let checkpoints = d.status().counters.checkpoints;
    assert_eq!(blocks(&mut d), Err(RequestError::Io));
    d.drain_with_loss(1);
    for round in 0.. {
        let first = 2500 + round * LINES_PER_SEGMENT;
        d.write_durably(first..first + LINES_PER_SEGMENT, 2);
        // So few that they would be announced otherwise, and not so few that a checkpoint is made
        // for them.
        if d.status().segments.free <= 6 {
            break;
        }
    }
    d.finish_all();
    assert_eq!(d.status().counters.checkpoints, checkpoints, "it proves nothing");
    d.power_cycle();
    assert_eq!(blocks(&mut d), Err(RequestError::Io));
}

/// A start does not take what was destaged for a change that somebody else made (C28).
#[test]
fn what_was_destaged_is_no_change_behind_the_cache() {
    let mut d = nearly_full(|d| d.write_durably([0, LINE], 7));
    let checkpoints = d.status().counters.checkpoints;
    d.write_durably([0], 8);
    d.drain();
    announced_and_cut(&mut d, checkpoints);
    assert_eq!(d.try_read(0, 8).map(|bytes| bytes[0]), Ok(8));
    d.done(|d| d.submit(Operation::read(LbaRange::new(LINE * 8, 8)), false));
    assert!(d.started.iter().any(|io| io.device == Device::CacheDisk));
}

/// A checkpoint that lists what is free, and of which the cache-disk says that it failed, may be
/// there all the same: until another is durable nothing is announced, or a start would look for the
/// records in the order of the list.
#[test]
fn nothing_is_announced_beside_the_list_of_a_checkpoint_that_failed() {
    let mut d = nearly_full(|d| d.write_durably([LINE], 7));
    let checkpoints = d.status().counters.checkpoints;
    // When the cache is empty, a checkpoint is made that lists all segments as free. Its flush is
    // the first.
    d.hold(|io| io.is(Device::CacheDisk, Kind::Flush));
    d.submit(Operation::Drain, false);
    d.run_until(|d| d.find_io(Device::CacheDisk, Kind::Flush).is_some());
    let failing = d.find_io(Device::CacheDisk, Kind::Flush).expect("looked for");
    d.release();
    d.hold(move |io| io.id == failing);
    let mut lines = Vec::new();
    // So few are free by then that some would be announced.
    while d.status().segments.free > 5 {
        assert!(write_segment(&mut d, &mut lines), "it waits for the checkpoint");
    }
    assert_eq!(d.status().counters.checkpoints, checkpoints, "it is another flush");
    let areas = d.superblock().geometry.checkpoint_offsets;
    let area_bytes = d.superblock().geometry.checkpoint_area_bytes;
    d.hold(move |io| {
        let is_in = |at: &u64| (*at..at + area_bytes).contains(&io.offset);
        io.is(Device::CacheDisk, Kind::Write) && areas.iter().any(is_in)
    });
    d.land(failing);
    d.fail(failing, IoError::Failed);
    // With announcements the log would not end.
    while lines.len() < 400 && write_segment(&mut d, &mut lines) {}
    assert_eq!(d.status().counters.checkpoints, checkpoints, "it proves nothing");
    d.power_cycle();
    for line in lines {
        assert_eq!(d.read(line), 9, "line {line}");
    }
}

/// Writes a segment of lines, or tells that there is no room.
fn write_segment(d: &mut Driver, lines: &mut Vec<u64>) -> bool {
    let first = 2500 + lines.len() as u64;
    let write = d.write_blocks(first * 8, LINES_PER_SEGMENT * 8, 9);
    let flush = d.flush();
    d.advance_time(Duration::from_millis(1));
    if !d.is_answered(write) || !d.is_answered(flush) {
        return false;
    }
    assert_eq!((d.result(write), d.result(flush)), (Ok(()), Ok(())));
    lines.extend(first..first + LINES_PER_SEGMENT);
    true
}
