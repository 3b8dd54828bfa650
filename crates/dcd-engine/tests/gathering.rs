//! What happens while the index of a checkpoint is gathered, a line at a time, at each moment of
//! it.

mod common;

use common::{Driver, Kind, LINES_PER_SEGMENT, Options, Seen, never_idle};
use dcd_engine::{Device, Duration, IoError, RequestError};

/// A line that lies in the first segment, with 7 in it.
const LINE: u64 = 1000;

/// A cache in whose index a checkpoint is being gathered, and has come so far; `None` if it would
/// be over by then.
fn gathering(parts: u64) -> Option<Driver> {
    let mut d = Driver::with(|options: &mut Options| {
        never_idle(options);
        options.segments = 64;
        options.data_disk.blocks = 1 << 16;
        options.engine.limits.checkpoint_lines = 1;
        options.engine.limits.checkpoint_write_bytes = 4096;
    });
    d.write_durably([LINE], 7);
    // Until a checkpoint has begun with an index of some length.
    for first in (0..).step_by(LINES_PER_SEGMENT as usize) {
        let write = d.write_blocks(first * 8, LINES_PER_SEGMENT * 8, 1);
        d.finish_all();
        if is_gathering(&d) && first > 30 * LINES_PER_SEGMENT {
            break;
        }
        d.expect_ok(write);
        d.advance_time(Duration::from_millis(10));
        assert!(first < 900, "no checkpoint is begun");
    }
    for _ in 0..parts {
        next_part(&mut d);
        if !is_gathering(&d) {
            return None;
        }
    }
    Some(d)
}

/// How long it leaves to requests before the next part, while one of them came a moment ago or waits.
const BUSY: Duration = Duration::from_micros(250);

/// Another part, and no I/O ends.
fn next_part(d: &mut Driver) {
    d.now = d.wake_up().expect("it goes on");
    d.tick();
}

/// The rest of the index waits for nothing but time.
fn is_gathering(d: &Driver) -> bool {
    d.wake_up().is_some_and(|at| at.since(d.now) <= BUSY)
}

/// A line that is found damaged at any moment is told of after a crash behind that checkpoint,
/// gathered or not (C19).
#[test]
fn damage_that_is_found_meanwhile_is_not_forgotten() {
    let mut tried = 0;
    for parts in (0..).step_by(4) {
        let Some(mut d) = gathering(parts) else { break };
        let checkpoints = d.status().counters.checkpoints;
        let place = d.slot_of(7);
        d.cache_disk.flip(place);
        assert_eq!(d.try_read(LINE * 8, 8), Err(RequestError::Io), "after {parts} parts");
        d.run_until(|d| d.status().counters.checkpoints > checkpoints);
        d.power_cycle();
        assert_eq!(d.try_read(LINE * 8, 8), Err(RequestError::Io), "after {parts} parts");
        tried += 1;
    }
    assert!(tried > 10, "{tried} moments are not the whole of it");
}

/// A checkpoint of which a piece was not written does not count: it is made anew (C9, C22).
#[test]
fn a_checkpoint_of_which_a_piece_failed_does_not_count() {
    let mut d = gathering(0).expect("it has just begun");
    let (before, area) = d.newest_checkpoint();
    let geometry = d.superblock().geometry;
    let areas = geometry.checkpoint_offsets.map(|at| at..at + geometry.checkpoint_area_bytes);
    let is_piece = move |io: &Seen| {
        io.is(Device::CacheDisk, Kind::Write) && areas.iter().any(|area| area.contains(&io.offset))
    };
    d.hold(is_piece.clone());
    let (mark, checkpoints) = (d.started.len(), d.status().counters.checkpoints);
    let piece = |d: &Driver| d.started[mark..].iter().find(|io| is_piece(io)).map(|io| io.id);
    d.run_until(|d| piece(d).is_some());
    assert!(is_gathering(&d), "the index is too small for a piece before its end");
    let failed = piece(&d).expect("looked for");
    d.fail(failed, IoError::Failed);
    d.release();
    d.run_until(|d| d.status().counters.checkpoints > checkpoints);
    let (after, area_after) = d.newest_checkpoint();
    assert!(after.generation > before.generation, "it cannot be read");
    assert_ne!(area_after, area);
}

/// Who waits for room waits for hundreds of inputs, and would be behind a part for each of them.
#[test]
fn a_checkpoint_leaves_time_to_those_who_come_and_to_those_who_wait() {
    let to_the_next = |d: &Driver| d.wake_up().expect("it goes on").since(d.now);
    let mut d = gathering(1).expect("it has just begun");
    assert_eq!(to_the_next(&d), BUSY, "a write came just now");
    // Nobody has asked for anything for a while.
    for _ in 0..5 {
        next_part(&mut d);
    }
    assert_eq!(to_the_next(&d), Duration::from_micros(1));

    let mut d = gathering(1).expect("it has just begun");
    d.hold(|io: &Seen| io.device == Device::DataDisk);
    let stalls = |d: &mut Driver, first: u64| {
        let write = d.write_blocks(first * 8, LINES_PER_SEGMENT * 8, 2);
        d.finish_all();
        !d.is_answered(write)
    };
    let mut lines = (2000..).step_by(LINES_PER_SEGMENT as usize);
    lines.find(|first| stalls(&mut d, *first)).expect("the cache is full at some time");
    for _ in 0..20 {
        next_part(&mut d);
        assert_eq!(to_the_next(&d), BUSY, "somebody waits for room");
    }
}
