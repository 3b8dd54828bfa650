//! What happens when a part fails: contract C19 and C21 to C27. Nothing stale is ever served,
//! nothing that was promised is lost silently, and whoever waits is told.

mod common;

use common::{Driver, Kind, LINE, LINES_PER_SEGMENT, never_idle};
use dcd_engine::{
    AckMode, Device, Duration, Input, IoDone, IoError, IoId, LbaRange, OpenError, Operation, Phase,
    RequestError,
};

// ---- C21: reads of the cache-disk -------------------------------------------------------------

/// ```text
/// data-disk     100 = 7 (old)   101 = 7
/// log           100 = 1 (rot)   101 = 1       100 fails, 101 does not, and 7 is never shown
/// ```
#[test]
fn a_rotten_dirty_block_fails_until_overwritten_and_the_stale_copy_is_not_shown() {
    let mut d = Driver::with(never_idle);
    d.data_disk.rot(100 * LINE as u64, &[7; 2 * LINE]);
    d.write_durably(100..115, 1);
    d.overwrite_segments(500, 3);
    let slot = d.slots_of(1)[0];
    d.cache_disk.flip(slot + 1000);
    assert_eq!(d.try_read(100 * 8, 8), Err(RequestError::Io));
    assert_eq!(d.try_read(100 * 8 + 7, 1), Err(RequestError::Io), "every block of it");
    assert_eq!(d.read(101), 1, "and only those");
    assert_eq!(d.status().counters.checksum_errors, 1);
    d.drain_with_loss(1);
    assert_eq!(d.data_disk.line(100), 7, "the data-disk keeps what it has");
    assert_eq!(d.data_disk.line(101), 1);
    assert_eq!(d.try_read(100 * 8, 8), Err(RequestError::Io), "which is stale");
    for _ in 0..2 {
        d.restart();
        assert_eq!(d.try_read(100 * 8, 8), Err(RequestError::Io), "also after a restart");
    }
    d.write_durably([100], 2);
    assert_eq!(d.read(100), 2, "healed");
    d.restart();
    assert_eq!((d.read(100), d.status().poisoned_lines), (2, 0));
}

/// Half a line was overwritten since: that half is whole, and healing it heals no more.
#[test]
fn only_the_live_fragments_of_a_rotten_slot_fail() {
    let mut d = Driver::with(never_idle);
    d.write_durably(100..115, 1);
    d.write_blocks(800, 4, 2);
    d.overwrite_segments(500, 3);
    let slot = d.slots_of(1)[0];
    d.cache_disk.flip(slot + 1000);
    assert_eq!(d.try_read(804, 4), Err(RequestError::Io));
    assert_eq!(d.try_read(800, 4), Ok(vec![2; 4 * 512]));
    d.write_blocks(804, 2, 3);
    assert_eq!(d.try_read(804, 2), Ok(vec![3; 2 * 512]));
    assert_eq!(d.try_read(806, 2), Err(RequestError::Io));
    d.done(|d| d.discard(806, 2));
    assert_eq!(d.try_read(806, 2), Ok(vec![0; 2 * 512]), "a discard heals as well");
}

/// Rot that only destaging sees: the block stays away from the data-disk, its neighbours go.
#[test]
fn rot_is_not_destaged() {
    let mut d = Driver::with(never_idle);
    d.write_durably(100..115, 1);
    let slot = d.slots_of(1)[3];
    d.cache_disk.flip(slot);
    d.drain_with_loss(1);
    assert_eq!((d.data_disk.line(102), d.data_disk.line(103), d.data_disk.line(104)), (1, 0, 1));
    assert_eq!(d.try_read(103 * 8, 8), Err(RequestError::Io));
}

/// The same when the rot is not in the segment being destaged, but in a neighbour from another one.
///
/// ```text
/// segment a     100  .   102  .   104
/// segment b      .  101   .  103   .        103 rots
/// ```
#[test]
fn rot_in_a_neighbour_is_not_destaged() {
    let mut d = Driver::with(never_idle);
    d.write_durably((0..LINES_PER_SEGMENT).map(|i| 100 + 2 * i), 1);
    d.write_durably((0..LINES_PER_SEGMENT).map(|i| 101 + 2 * i), 2);
    let slot = d.slots_of(2)[1];
    d.cache_disk.flip(slot);
    d.drain_with_loss(1);
    let content = [101, 102, 103, 104, 105].map(|line| d.data_disk.line(line));
    assert_eq!(content, [2, 1, 0, 1, 2]);
    assert_eq!(d.try_read(103 * 8, 8), Err(RequestError::Io));
}

/// A rotten record header does not hide its slots from destaging while the engine runs.
#[test]
fn a_rotten_header_does_not_keep_its_slots_from_the_data_disk() {
    let mut d = Driver::with(never_idle);
    d.write_durably(100..115, 1);
    let header = d.slots_of(1)[0] - LINE as u64;
    d.cache_disk.flip(header + 300);
    d.drain();
    assert_eq!((d.data_disk.line(100), d.data_disk.line(114)), (1, 1));
}

/// All of the table is looked through for them, which takes long where it is large: a part at a
/// time. What is overwritten or discarded meanwhile does not get to the data-disk, and the segment
/// is not filled.
#[test]
fn lines_behind_a_rotten_header_are_looked_for_in_parts() {
    for parts in 0..40 {
        let mut d = Driver::never_idle(|options| {
            options.engine.limits.discarded_lines = 4;
            options.segments = 32;
        });
        d.write_durably(100..115, 1);
        let header = d.slots_of(1)[0] - LINE as u64;
        d.write_durably(300..400, 2);
        d.cache_disk.flip(header + 300);
        let mark = d.started.len();
        let drain = d.submit(Operation::Drain, false);
        // The victim is read.
        d.run_until(|d| d.count_since(mark, Device::CacheDisk, Kind::Read) > 0);
        while d.finish_one() {}
        for _ in 0..parts {
            d.tick();
        }
        let is_looking = d.status().counters.destaged_lines == 0
            && d.count_since(mark, Device::DataDisk, Kind::Write) == 0;
        assert!(is_looking || parts > 20, "{parts}");
        let write = d.write(104, 3);
        let discard = d.discard(110 * 8, 3 * 8);
        d.run_until(|d| d.is_answered(write) && d.is_answered(discard));
        assert_eq!([d.read(104), d.read(105), d.read(111), d.read(350)], [3, 1, 0, 2]);
        d.expect_ok(drain);
        d.drain();
        let on_disk = [100, 104, 105, 111, 113, 350].map(|line| d.data_disk.line(line));
        assert_eq!(on_disk, [1, 3, 1, 0, 1, 2], "{parts}");
    }
}

/// Nor do dead slots beside it, which are found in headers that are whole.
///
/// ```text
/// record   1: 50, 51          its header rots
///          2: 102 .. 105      all overwritten by record 3, in the same segment
/// ```
#[test]
fn a_rotten_header_beside_dead_slots_does_not_hide_the_live_ones() {
    let mut d = Driver::with(never_idle);
    d.write_durably(50..52, 1);
    d.write_durably(102..106, 2);
    d.write_durably(102..106, 3);
    let header = d.slots_of(1)[0] - LINE as u64;
    d.overwrite_segments(300, 1);
    d.cache_disk.flip(header + 300);
    d.drain();
    assert_eq!([50, 51, 102].map(|line| d.data_disk.line(line)), [1, 1, 3]);
}

/// A read that fails, or brings what is elsewhere, and the next one of the same place does not:
/// what was wrong once is looked at once more before anybody is told of it, and before anything is
/// lost.
#[test]
fn what_is_wrong_once_is_read_again() {
    for (bringing_home, is_error) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut d = Driver::with(never_idle);
        d.data_disk.rot(100 * LINE as u64, &[7; LINE]);
        d.write_durably(100..115, 1);
        // No part of it is in memory any more.
        d.overwrite_segments(500, 3);
        let slot = d.slots_of(1)[0];
        d.hold(|io| io.is(Device::CacheDisk, Kind::Read));
        let request = match bringing_home {
            true => d.submit(Operation::Drain, false),
            false => d.submit(Operation::read(LbaRange::new(800, 8)), false),
        };
        d.finish_all();
        let read = d.find_io(Device::CacheDisk, Kind::Read).expect("a read of the log");
        match is_error {
            true => d.fail(read, IoError::Failed),
            false => {
                d.cache_disk.flip(slot + 1000);
                d.finish(read);
                d.cache_disk.flip(slot + 1000);
            }
        }
        d.release();
        d.expect_ok(request);
        assert_eq!(d.read(100), 1, "home {bringing_home}, error {is_error}");
        assert_eq!((d.status().poisoned_lines, d.status().counters.checksum_errors), (0, 0));
    }
}

/// An error that stays for a while: the request fails, nothing is poisoned.
#[test]
fn a_read_error_of_a_dirty_block_fails_only_that_request() {
    let mut d = Driver::with(never_idle);
    d.data_disk.rot(100 * LINE as u64, &[7; LINE]);
    d.write_durably(100..115, 1);
    d.fail_next(Device::CacheDisk, Kind::Read, IoError::Failed);
    d.fail_next(Device::CacheDisk, Kind::Read, IoError::Failed);
    assert_eq!(d.try_read(800, 8), Err(RequestError::Io));
    assert_eq!(d.read(100), 1);
    assert_eq!(d.status().poisoned_lines, 0);
}

/// Blocks that are not in the log come from the data-disk, whatever ails the cache-disk; an error
/// of the data-disk fails the request (C24).
#[test]
fn clean_blocks_do_not_need_the_cache_disk() {
    let mut d = Driver::with(never_idle);
    d.data_disk.rot(100 * LINE as u64, &[7; LINE]);
    d.fail_always(Device::CacheDisk, Kind::Read, 0..u64::MAX, IoError::Gone);
    assert_eq!(d.read(100), 7);
    d.fail_next(Device::DataDisk, Kind::Read, IoError::Failed);
    assert_eq!(d.try_read(800, 8), Err(RequestError::Io));
    assert_eq!(d.read(100), 7);
}

/// One sector of the cache-disk cannot be read for good: its line fails, all others are destaged.
#[test]
fn one_bad_cache_disk_block_does_not_stop_destaging() {
    let mut d = Driver::new();
    d.write_durably((0..15).map(|i| 100 + 2 * i), 1);
    d.write_durably([300], 2);
    let bad = d.slots_of(1)[7];
    d.fail_always(Device::CacheDisk, Kind::Read, bad..bad + LINE as u64, IoError::Failed);
    d.advance_time(Duration::from_secs(3600));
    assert_eq!(d.data_disk.line(300), 2, "other segments");
    assert_eq!((d.data_disk.line(100), d.data_disk.line(128)), (1, 1), "other slots");
    assert_eq!((d.data_disk.line(114), d.try_read(114 * 8, 8)), (0, Err(RequestError::Io)));
}

// ---- C22: writes and flushes of the cache-disk ------------------------------------------------

/// A flush fails, and the kernel drops what it could not write and calls it clean: a second flush
/// that succeeds proves nothing. Whoever is told "durable" after that must find it after a power
/// cut.
#[test]
fn a_failed_flush_is_never_retried_and_believed() {
    for is_checked_before in [false, true] {
        let mut d = Driver::never_idle(|options| options.engine.ack = AckMode::Log);
        d.write_durably([100], 1);
        // Two records, so that a flush is needed.
        for (line, byte) in [(101, 2), (102, 3)] {
            d.done(|d| d.write(line, byte));
        }
        let flush = d.flush();
        let io = d.find_io(Device::CacheDisk, Kind::Flush).expect("a flush");
        d.cache_disk.drop_unflushed();
        d.fail(io, IoError::Failed);
        let was_told = d.wait(flush).is_ok();
        if is_checked_before {
            assert_eq!((d.read(100), d.read(101), d.read(102)), (1, 2, 3));
        }
        d.power_cycle();
        assert_eq!(d.read(100), 1);
        if was_told {
            assert_eq!((d.read(101), d.read(102)), (2, 3));
        }
    }
}

/// The log is nearly full, so that there is no room to log again elsewhere what is not durable: one
/// failure is borne all the same, and what it has lost is written again where it was.
#[test]
fn one_failure_is_borne_by_a_full_log() {
    let mut d = Driver::with(never_idle);
    for segment in 0.. {
        let first = 500 + segment * LINES_PER_SEGMENT;
        if d.status().segments.free <= 6 {
            break;
        }
        d.write_durably(first..first + LINES_PER_SEGMENT, 9);
    }
    d.hold(|io| io.is(Device::CacheDisk, Kind::Flush));
    d.fail_next(Device::CacheDisk, Kind::Flush, IoError::Failed);
    // Until there is no room.
    let mut writes = Vec::new();
    while writes.last().is_none_or(|write| d.is_answered(*write)) {
        let first = writes.len() as u64 * LINES_PER_SEGMENT;
        writes.push(d.write_blocks(first * 8, LINES_PER_SEGMENT * 8, 1));
        d.finish_all();
    }
    let flush = d.flush();
    d.cache_disk.drop_unflushed();
    d.release();
    for id in writes.iter().copied().chain([flush]) {
        assert_eq!(d.wait(id), Ok(()));
    }
    assert!(!d.status().cache_disk_failed);
    d.power_cycle();
    // The last one was answered behind the flush.
    for line in 0..(writes.len() as u64 - 1) * LINES_PER_SEGMENT {
        assert_eq!(d.read(line), 1, "line {line}");
    }
}

/// Records wait to be logged again until a slow write has ended. Meanwhile nobody asks to be woken
/// for them without end.
#[test]
fn who_waits_to_log_again_does_not_turn_on_the_spot() {
    let mut d = Driver::never_idle(|options| options.engine.ack = AckMode::Log);
    d.hold(|seen| seen.is(Device::CacheDisk, Kind::Write));
    let writes = [d.write(101, 2), d.write(102, 3)];
    let ios = d.ios_of(Device::CacheDisk, Kind::Write);
    assert!(!ios.is_empty());
    let later = d.write(103, 4);
    d.fail(ios[0], IoError::Failed);
    // The time after which what was written is to be durable, many times.
    for _ in 0..50 {
        d.advance_time(Duration::from_millis(20));
        d.input(Input::Timeout);
    }
    d.release();
    for write in writes.into_iter().chain([later]) {
        d.expect_ok(write);
    }
}

/// The cache-disk takes no more writes, or no more flushes: everyone is told, from then on at once,
/// and no disk is touched by those who only can fail. Reads go on.
#[test]
fn a_cache_disk_that_keeps_failing_is_given_up_for_good() {
    for kind in [Kind::Write, Kind::Flush] {
        let mut d = Driver::never_idle(|options| options.engine.ack = AckMode::Log);
        d.write_durably([100], 1);
        d.data_disk.rot(300 * LINE as u64, &[7; LINE]);
        d.hold(|io| io.is(Device::CacheDisk, Kind::Write));
        let first = d.write(101, 2);
        d.write(102, 3);
        let flush = d.flush();
        d.release();
        d.fail_always(Device::CacheDisk, kind, 0..u64::MAX, IoError::Failed);
        assert_eq!(d.wait(flush), Err(RequestError::Io), "{kind:?}");
        if kind == Kind::Write {
            assert_eq!(d.wait(first), Err(RequestError::Io));
        }
        assert!(d.status().cache_disk_failed);
        let mark = d.started.len();
        let later = [d.write(103, 4), d.flush(), d.discard(800, 8), d.write_fua(104, 5)];
        let drain = d.submit(Operation::Drain, false);
        d.advance_time(Duration::from_secs(1000));
        for id in later.into_iter().chain([drain]) {
            assert_eq!(d.result(id), Err(RequestError::Io), "sticky");
        }
        assert_eq!(d.started.len(), mark, "no disk is touched any more");
        assert_eq!((d.read(100), d.read(300)), (1, 7), "reads go on");
        d.power_cycle();
        assert_eq!((d.read(100), d.read(300)), (1, 7));
    }
}

/// What was acknowledged in `memory` mode is in the surviving segment memory still: a restart, with
/// a cache-disk that works again, finds it.
#[test]
fn a_restart_after_a_failed_log_write_finds_what_is_in_memory() {
    let mut d = Driver::with(never_idle);
    d.write_durably([90], 9);
    for line in 100..110 {
        let write = d.write(line, 1);
        assert_eq!(d.result(write), Ok(()));
    }
    d.fail_always(Device::CacheDisk, Kind::Write, 0..u64::MAX, IoError::Failed);
    let flush = d.flush();
    assert_eq!(d.wait(flush), Err(RequestError::Io));
    assert_eq!(d.read(105), 1);
    d.kill_and_reopen();
    for line in 100..110 {
        assert_eq!(d.read(line), 1);
    }
}

/// A bypass that waits for the log, one that is being written, stalled writes, drains and a
/// shutdown are all answered when the cache-disk fails.
#[test]
fn everyone_who_waits_is_told_when_the_cache_disk_fails() {
    for is_full in [false, true] {
        let mut d = Driver::never_idle(|options| options.engine.bypass_threshold_bytes = 8192);
        d.hold(|io| io.device == Device::DataDisk);
        let mut waiting = Vec::new();
        if !is_full {
            waiting.push(d.write_blocks(8 * 900, 16, 1));
        }
        d.write_durably([100], 1);
        d.hold(|io| io.device == Device::CacheDisk);
        d.write(101, 1);
        waiting.push(d.write_blocks(8 * 902, 16, 1));
        if is_full {
            waiting.push((0..200).map(|i| d.write(300 + i, 1)).last().expect("many"));
        }
        waiting.push(d.flush());
        waiting.push(d.submit(Operation::Drain, false));
        d.release();
        d.fail_always(Device::CacheDisk, Kind::Write, 0..u64::MAX, IoError::Gone);
        d.finish_all();
        for id in waiting {
            assert_eq!(d.result(id), Err(RequestError::Io));
        }
        let shutdown = d.submit(Operation::Shutdown, false);
        d.finish_all();
        assert_eq!(d.result(shutdown), Err(RequestError::Io));
        assert_eq!(*d.engine().phase(), Phase::Closed);
    }
}

/// A checkpoint that cannot be written leaves the one before; segments it would have freed stay.
#[test]
fn a_failed_checkpoint_frees_nothing() {
    let mut d = Driver::with(never_idle);
    d.write_durably(100..115, 1);
    d.overwrite_segments(500, 3);
    let checkpoints = 128 << 10..d.superblock().geometry.segments_offset;
    d.fail_always(Device::CacheDisk, Kind::Write, checkpoints, IoError::Failed);
    for round in 0..200u64 {
        if d.status().cache_disk_failed {
            break;
        }
        for line in 500..515 {
            d.write(line, 230);
        }
        let flush = d.flush();
        let _ = d.wait(flush);
        d.finish_all();
        d.advance_time(Duration::from_secs(1));
        assert!(round < 199, "a checkpoint was due");
    }
    d.power_cycle();
    assert_eq!((d.read(100), d.read(114)), (1, 1));
}

/// The same when its flush fails and the kernel drops what was written: the area still holds the
/// checkpoint before, and a recovery looks for the segments that one speaks of.
#[test]
fn a_checkpoint_whose_flush_failed_frees_nothing() {
    let mut d = Driver::never_idle(|options| options.engine.segment_buffers = 12);
    d.write_durably(0..15, 1);
    d.hold(|io| io.is(Device::CacheDisk, Kind::Flush));
    let mut last = 1;
    let mut has_failed = false;
    for byte in 2..60 {
        let writes: Vec<_> = (0..15).map(|line| d.write(line, byte)).collect();
        let flush = d.flush();
        d.finish_all();
        let is_ok = |id| d.is_answered(id) && d.result(id).is_ok();
        if is_ok(flush) && writes.into_iter().all(is_ok) {
            last = byte;
        }
        if let Some(io) = d.find_io(Device::CacheDisk, Kind::Flush).filter(|_| !has_failed) {
            has_failed = true;
            d.cache_disk.drop_unflushed();
            d.fail(io, IoError::Failed);
            // Log writes go on; no other checkpoint gets to the disk.
            d.release();
            let segments = d.superblock().geometry.segments_offset;
            d.hold(move |io| io.is(Device::CacheDisk, Kind::Write) && io.offset < segments);
        }
    }
    assert!(has_failed && last > 5);
    d.power_cycle();
    for line in 0..15 {
        let got = d.read(line);
        assert!(got >= last, "line {line} got {got} last {last}");
    }
}

// ---- C24: the data-disk fails on destage ------------------------------------------------------

/// ```text
/// batch   100 102 104 ... 128     104 fails: it stays dirty and is tried again later, ever later;
///         the others of the batch go
/// ```
#[test]
fn a_failed_destage_write_stays_dirty_backs_off_and_the_rest_of_the_batch_goes() {
    let mut d = Driver::new();
    d.write_durably((0..LINES_PER_SEGMENT).map(|i| 100 + 2 * i), 1);
    let bad = 104 * LINE as u64;
    d.fail_always(Device::DataDisk, Kind::Write, bad..bad + 1, IoError::Failed);
    let mark = d.started.len();
    d.advance_time(Duration::from_secs(600));
    assert_eq!((d.data_disk.line(102), d.data_disk.line(128)), (1, 1));
    assert_eq!((d.data_disk.line(104), d.read(104)), (0, 1));
    assert_eq!(d.status().dirty_lines, 1);
    let tries: Vec<u64> =
        d.started[mark..].iter().filter(|io| io.touches_line(104)).map(|io| io.at.0).collect();
    let pauses: Vec<u64> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!((5..40).contains(&pauses.len()), "{} tries in ten minutes", tries.len());
    assert!(pauses.windows(2).all(|pair| pair[0] <= pair[1]), "never sooner than before");
    d.heal();
    d.drain();
    assert_eq!(d.data_disk.line(104), 1);
}

/// A failed flush of the data-disk: all of the batch stays dirty, and is written anew.
#[test]
fn a_failed_data_disk_flush_keeps_the_batch_dirty() {
    let mut d = Driver::new();
    d.write_durably(100..110, 1);
    d.fail_next(Device::DataDisk, Kind::Flush, IoError::Failed);
    d.run_until(|d| d.status().counters.data_disk_errors == 1);
    assert_eq!(d.status().dirty_lines, 10);
    d.data_disk.rot(100 * LINE as u64, &[0; 10 * LINE]); // the kernel dropped the dirty pages
    d.drain();
    assert_eq!((d.data_disk.line(100), d.data_disk.line(109)), (1, 1));
}

/// A file that was unlinked takes writes and keeps nothing: the trouble lasts until a flush succeeds,
/// not until a write does. One place that is bad as well is told when the others go on.
#[test]
fn a_data_disk_that_takes_writes_and_fails_flushes_stays_in_trouble() {
    for (error, zeroes) in [(IoError::Gone, false), (IoError::Failed, false), (IoError::Gone, true)]
    {
        let mut d = Driver::new();
        d.fail_always(Device::DataDisk, Kind::Flush, 0..u64::MAX, error);
        match zeroes {
            true => d.done(|d| d.discard(800, 80)),
            false => d.write_durably(100..110, 1),
        }
        d.run_until(|d| d.status().destage_trouble.is_some());
        let since = d.now;
        // Tried again for a few times, and taken each time.
        let kind = if zeroes { Kind::WriteZeroes } else { Kind::Write };
        let mark = d.started.len();
        d.run_until(|d| {
            let trouble = d.status().destage_trouble.expect("it keeps nothing");
            assert_eq!((trouble.error, trouble.since, trouble.is_whole), (error, since, true));
            d.count_since(mark, Device::DataDisk, kind) > 4
        });
        d.heal();
        d.drain();
        assert!(d.status().destage_trouble.is_none());
    }
    let mut d = Driver::new();
    d.fail_always(Device::DataDisk, Kind::Flush, 0..u64::MAX, IoError::Gone);
    d.write_durably([100, 200], 1);
    d.run_until(|d| d.status().destage_trouble.is_some());
    d.heal();
    let bad = 100 * LINE as u64;
    d.fail_always(Device::DataDisk, Kind::Write, bad..bad + 512, IoError::Failed);
    d.run_until(|d| d.data_disk.line(200) == 1 && d.status().dirty_lines == 1);
    assert!(!d.status().destage_trouble.expect("a bad place").is_whole);
    // The next try tells of what is left.
    d.run_until(|d| d.status().destage_trouble.expect("still").error == IoError::Failed);
}

/// The same for zeroed ranges.
#[test]
fn a_failed_zeroing_of_the_data_disk_is_done_again() {
    for kind in [Kind::WriteZeroes, Kind::Flush] {
        let mut d = Driver::new();
        d.data_disk.rot(100 * LINE as u64, &[7; LINE]);
        d.done(|d| d.discard(800, 8));
        d.fail_next(Device::DataDisk, kind, IoError::Failed);
        d.run_until(|d| d.status().counters.data_disk_errors == 1);
        assert_eq!(d.status().zero_ranges, 1);
        d.data_disk.rot(100 * LINE as u64, &[7; LINE]);
        assert_eq!(d.read(100), 0);
        d.drain();
        assert_eq!((d.data_disk.line(100), d.status().zero_ranges), (0, 0));
    }
}

/// A bypassed write whose data-disk fails is an error, and what the log holds of its blocks stays.
#[test]
fn a_failed_bypass_keeps_the_copies_in_the_log() {
    for kind in [Kind::Write, Kind::Flush] {
        let mut d = bypassing();
        d.write_durably([100, 101], 1);
        d.fail_next(Device::DataDisk, kind, IoError::Failed);
        let bypass = d.write_blocks(800, 16, 2);
        assert_eq!(d.wait(bypass), Err(RequestError::Io));
        assert_eq!((d.read(100), d.read(101)), (1, 1));
        d.power_cycle();
        assert_eq!((d.read(100), d.read(101)), (1, 1));
    }
}

/// The flush of a destage fails. What it was perhaps to cover is told: also a bypass whose write is
/// still under way.
/// ```text
/// destage      |- flush fails -|
/// bypass     |----- write -----------|      its pages were perhaps among those that were dropped
/// ```
#[test]
fn a_bypass_that_is_being_written_when_a_flush_fails_is_told() {
    let mut d = bypassing();
    d.write_durably([200], 1);
    d.hold(|io| io.device == Device::DataDisk);
    let drain = d.submit(Operation::Drain, false);
    d.finish_all();
    let write = d.find_io(Device::DataDisk, Kind::Write).expect("the line");
    d.finish(write);
    let flush = d.find_io(Device::DataDisk, Kind::Flush).expect("of the destage");
    let bypass = d.write_blocks(800, 16, 2);
    d.finish_all();
    let write = d.find_io(Device::DataDisk, Kind::Write).expect("the bypass");
    d.fail(flush, IoError::Failed);
    d.data_disk.drop_unflushed();
    d.finish(write);
    assert_eq!(d.result(bypass), Err(RequestError::Io));
    d.release();
    d.expect_ok(drain);
    assert_eq!(d.data_disk.line(200), 1, "written again");
}

/// Two flushes for bypasses are under way, because the one that the first was for has failed: the
/// first says nothing of what was written after it had begun.
/// ```text
/// destage      |-- flush fails --|
/// bypass 1   |-write-||------- flush --------|
/// bypass 2                         |-write-|
/// ```
#[test]
fn a_flush_proves_nothing_of_a_bypass_that_was_written_later() {
    let mut d = bypassing();
    d.write_durably([200], 1);
    d.hold(|io| io.device == Device::DataDisk);
    d.submit(Operation::Drain, false);
    d.finish_all();
    let first = d.write_blocks(800, 16, 2);
    d.finish_all();
    for write in d.ios_of(Device::DataDisk, Kind::Write) {
        d.finish(write);
    }
    let flushes = d.ios_of(Device::DataDisk, Kind::Flush);
    assert_eq!(flushes.len(), 2, "one each");
    d.fail(flushes[0], IoError::Failed);
    assert_eq!(d.result(first), Err(RequestError::Io));
    let second = d.write_blocks(1600, 16, 3);
    d.finish_all();
    let write = d.find_io(Device::DataDisk, Kind::Write).expect("of the second");
    d.finish(write);
    d.finish(flushes[1]);
    assert!(!d.is_answered(second), "not covered");
    let flush = d.ios_of(Device::DataDisk, Kind::Flush);
    assert_eq!(flush.len(), 1);
    d.finish(flush[0]);
    d.expect_ok(second);
}

fn bypassing() -> Driver {
    Driver::never_idle(|options| options.engine.bypass_threshold_bytes = 8192)
}

// ---- C25: full --------------------------------------------------------------------------------

/// The data-disk is dead and the cache is full: a write waits, for so long and no longer, and then
/// fails; no write that was acknowledged is dropped; and when the disk is back all goes on.
#[test]
fn a_full_cache_waits_then_says_so_and_drops_nothing() {
    let mut d = Driver::never_idle(|options| options.engine.full_timeout = Duration::from_secs(60));
    d.fail_always(Device::DataDisk, Kind::Write, 0..u64::MAX, IoError::Failed);
    let mut acknowledged = Vec::new();
    let (refused, asked_at) = loop {
        let line = acknowledged.len() as u64 * 2;
        let at = d.now;
        let write = d.write(line, 1);
        match d.wait(write) {
            Ok(()) => acknowledged.push(line),
            Err(error) => break (error, at),
        }
    };
    assert_eq!(refused, RequestError::NoSpace);
    assert_eq!(d.now.since(asked_at), Duration::from_secs(60));
    assert!(acknowledged.len() > 150, "{} lines in 16 segments", acknowledged.len());
    d.done(Driver::flush);
    d.power_cycle();
    for line in &acknowledged {
        assert_eq!(d.read(*line), 1);
    }
    d.done(|d| d.write(900, 2));
    d.drain();
    assert!(acknowledged.iter().all(|line| d.data_disk.line(*line) == 1));
}

/// Each of those who wait in line waits for so long, not for so long after the one before.
#[test]
fn a_line_in_front_of_a_full_cache_waits_once() {
    let mut d = Driver::never_idle(|options| options.engine.full_timeout = Duration::from_secs(60));
    d.fail_always(Device::DataDisk, Kind::Write, 0..u64::MAX, IoError::Failed);
    let mut line = 0;
    loop {
        let write = d.write(line, 1);
        if d.wait(write).is_err() {
            break;
        }
        line += 2;
    }
    let (asked_at, waiting) = (d.now, [0, 2, 4].map(|further| d.write(line + further, 1)));
    for write in waiting {
        assert_eq!(d.wait(write), Err(RequestError::NoSpace));
        assert!(d.now.since(asked_at) <= Duration::from_secs(60));
    }
}

/// The cache is full and the cache-disk gone: nothing is written to it any more, so only reads can
/// notice, and those who wait for room are told. Found by fuzz seed 532.
#[test]
fn a_read_that_finds_the_cache_disk_gone_tells_it_for_all() {
    let mut d = Driver::with(never_idle);
    let mut line = 100;
    while d.status().counters.stalled_writes == 0 {
        d.write(line, 1);
        line += 1;
        d.hold(|io| io.device == Device::DataDisk || io.kind == Kind::Read);
        d.finish_all();
    }
    d.done(Driver::flush);
    let stalled = d.write(line, 1);
    d.fail_always(Device::CacheDisk, Kind::Read, 0..u64::MAX, IoError::Gone);
    d.release();
    d.finish_all();
    assert_eq!(d.result(stalled), Err(RequestError::Io));
    assert!(d.status().cache_disk_failed);
}

/// The cache-disk fails during a shutdown that waits for a bypass: the bypass is told as well.
/// Found by fuzz seed 245, when disks began to go away there.
#[test]
fn a_bypass_under_way_is_told_when_a_shutdown_fails() {
    let mut d = Driver::never_idle(|options| options.engine.bypass_threshold_bytes = 8192);
    d.write_durably([90], 9);
    d.hold(|io| io.is(Device::DataDisk, Kind::Flush));
    let bypass = d.write_blocks(1600, 16, 2);
    d.finish_all();
    d.write(91, 1);
    let shutdown = d.submit(Operation::Shutdown, false);
    d.fail_always(Device::CacheDisk, Kind::Write, 0..u64::MAX, IoError::Gone);
    d.finish_all();
    d.release();
    d.finish_all();
    assert_eq!(d.result(bypass), Err(RequestError::Io));
    assert_eq!(d.result(shutdown), Err(RequestError::Io));
}

// ---- C26: an I/O that hangs -------------------------------------------------------------------

/// A log write is never answered: after `io_timeout` the cache-disk counts as failed. When the
/// write ends after all, nothing changes: not the bytes it was made of, not what was told.
#[test]
fn a_log_write_that_hangs_fails_and_its_late_end_changes_nothing() {
    let mut d = Driver::never_idle(|options| options.engine.io_timeout = Duration::from_secs(30));
    d.write_durably([90], 9);
    d.hold(|io| io.is(Device::CacheDisk, Kind::Write));
    let write = d.write_fua(100, 1);
    let io = d.find_io(Device::CacheDisk, Kind::Write).expect("the log write");
    let started_at = d.now;
    let answer = d.wait(write);
    assert_eq!(answer, Err(RequestError::Io));
    assert_eq!(d.now.since(started_at), Duration::from_secs(30));
    let memory = d.engine().segment_memory().to_vec();
    let mark = d.started.len();
    for line in 101..120 {
        let write = d.write(line, 2);
        assert_eq!(d.result(write), Err(RequestError::Io));
    }
    assert!(memory == d.engine().segment_memory(), "the disk may still be reading it");
    d.finish(io);
    d.advance_time(Duration::from_secs(100));
    assert!(d.status().cache_disk_failed, "sticky");
    assert_eq!(d.started.len(), mark);
}

/// A destage write hangs: the line stays dirty, and nothing else is written to the data-disk,
/// because the old write could land on top of it. When it ends, destaging goes on.
#[test]
fn nothing_overtakes_a_destage_write_that_hangs() {
    let mut d = Driver::with(|options| options.engine.bypass_threshold_bytes = 8192);
    d.write_durably([100], 1);
    d.hold(|io| io.is(Device::DataDisk, Kind::Write));
    d.advance_time(Duration::from_secs(10));
    let io = d.find_io(Device::DataDisk, Kind::Write).expect("the destage write");
    d.advance_time(Duration::from_secs(60));
    assert_eq!(d.status().counters.data_disk_errors, 1);
    d.release();
    d.hold(move |seen| seen.id == io);
    d.write_durably([100], 2);
    let large = d.write_blocks(800, 16, 3);
    d.expect_ok(large);
    d.advance_time(Duration::from_secs(1000));
    assert_eq!(d.status().counters.bypasses, 0, "logged rather than written there");
    assert_eq!(d.count_since(0, Device::DataDisk, Kind::Write), 1, "the one that hangs");
    assert_eq!(d.read(100), 3);
    d.finish(io);
    assert_eq!(d.data_disk.line(100), 1, "landed late");
    d.drain();
    assert_eq!((d.read(100), d.data_disk.line(100)), (3, 3));
}

/// A read hangs: it fails, its late end is ignored, and a segment it held may be used again.
#[test]
fn a_read_that_hangs_fails_and_its_late_end_changes_nothing() {
    for device in [Device::CacheDisk, Device::DataDisk] {
        let mut d = Driver::with(never_idle);
        d.write_durably(100..115, 1);
        d.hold(move |io| io.is(device, Kind::Read));
        let start = if device == Device::CacheDisk { 800 } else { 1600 };
        let operation = Operation::read(LbaRange::new(start, 8));
        let read = d.submit(operation, false);
        let io = d.find_io(device, Kind::Read).expect("a read");
        assert_eq!(d.wait(read), Err(RequestError::Io));
        d.write_durably(100..115, 2);
        d.overwrite_segments(500, 40);
        d.finish(io);
        d.release();
        assert_eq!((d.read(100), d.status().poisoned_lines), (2, 0));
    }
}

// ---- C19: damage found at start ---------------------------------------------------------------

/// With `accept_damage` the start goes on with what is before the damaged record.
#[test]
fn lost_records_are_given_up_only_when_told_so() {
    let mut d = Driver::with(never_idle);
    for (line, byte) in [(100, 1), (101, 2), (102, 3)] {
        d.write_durably([line], byte);
    }
    let header = d.slot_of(2) - LINE as u64;
    d.power_cut();
    d.cache_disk.flip(header + 200);
    assert!(matches!(d.try_open(), Err(OpenError::RecordsLost { .. })));
    assert!(matches!(d.try_open(), Err(OpenError::RecordsLost { .. })), "again");
    d.options.engine.accept_damage = true;
    d.reopen();
    assert_eq!(d.read(100), 1);
    d.options.engine.accept_damage = false;
    d.write_durably([105], 5);
    d.power_cycle();
    assert_eq!((d.read(100), d.read(105)), (1, 5));
}

/// The record that the newest one calls durable is damaged and it is the last of the chain but one.
/// A record *above* the mark is a torn tail, and no damage.
#[test]
fn a_torn_tail_is_no_damage() {
    let mut d = Driver::with(never_idle);
    d.write_durably([100], 1);
    d.write_durably([101], 2);
    d.write(102, 3);
    d.hold(|io| io.is(Device::CacheDisk, Kind::Write));
    d.flush();
    let write = d.find_io(Device::CacheDisk, Kind::Write).expect("the log write");
    d.tear(write, |sector| sector < 12);
    d.power_cycle();
    assert_eq!((d.read(100), d.read(101), d.read(102)), (1, 2, 0));
    assert_eq!(d.status().poisoned_lines, 0);
}

/// Poison found at start outlives further starts and checkpoints, until overwritten or discarded.
#[test]
fn poison_found_at_start_persists() {
    let mut d = Driver::with(never_idle);
    for (line, byte) in [(100, 1), (101, 2), (102, 3)] {
        d.write_durably([line], byte);
    }
    let slot = d.slot_of(2);
    d.power_cut();
    d.cache_disk.flip(slot);
    d.reopen();
    for _ in 0..2 {
        d.overwrite_segments(500, 40);
        assert_eq!(d.try_read(101 * 8, 8), Err(RequestError::Io));
        d.power_cycle();
        assert_eq!(d.try_read(101 * 8, 8), Err(RequestError::Io));
    }
    d.done(|d| d.discard(101 * 8, 8));
    d.done(Driver::flush);
    d.power_cycle();
    assert_eq!(d.read(101), 0);
}

/// The newest checkpoint is damaged: it is said, because the older one knows too little.
#[test]
fn a_lost_checkpoint_is_said() {
    let mut d = Driver::with(never_idle);
    d.overwrite_segments(500, 10);
    // A record that speaks of the newest checkpoint: it was there.
    d.write_durably([100], 1);
    d.power_cut();
    let geometry = d.superblock().geometry;
    let generation = |d: &Driver, area: usize| {
        let at = geometry.checkpoint_offsets[area] as usize + 32;
        u64::from_le_bytes(d.cache_disk.current[at..at + 8].try_into().expect("eight"))
    };
    let newest = usize::from(generation(&d, 1) > generation(&d, 0));
    let lost = generation(&d, newest);
    d.cache_disk.flip(geometry.checkpoint_offsets[newest] + 100);
    let error = d.try_open().expect_err("the newest checkpoint is gone");
    assert_eq!(error, OpenError::CheckpointLost { lost, found: lost - 1 });
    d.cache_disk.flip(geometry.checkpoint_offsets[1 - newest] + 100);
    assert!(matches!(d.try_open(), Err(OpenError::Checkpoint { .. })));
}

/// A checkpoint that was being written when the power failed is not missed.
#[test]
fn a_torn_checkpoint_leaves_the_one_before() {
    let mut d = Driver::with(never_idle);
    d.write_durably(100..115, 1);
    let areas = 128 << 10..d.superblock().geometry.segments_offset;
    let is_checkpoint = move |offset: u64| areas.contains(&offset);
    d.hold(move |io| io.is(Device::CacheDisk, Kind::Write) && is_checkpoint(io.offset));
    d.overwrite_segments(500, 3);
    let write = d.find_io(Device::CacheDisk, Kind::Write).expect("a checkpoint");
    d.tear(write, |sector| sector % 2 == 0);
    d.power_cycle();
    assert_eq!((d.read(100), d.read(114), d.read(500)), (1, 1, 202));
}

// ---- C27: broken invariants -------------------------------------------------------------------

#[test]
#[should_panic(expected = "an I/O that was started")]
fn an_end_of_an_io_that_was_never_started_stops_the_engine() {
    let mut d = Driver::new();
    d.input(Input::IoDone(IoDone { id: IoId(999_999), result: Ok(()), buffer: None }));
}

#[test]
#[should_panic(expected = "time does not go back")]
fn time_going_back_stops_the_engine() {
    let mut d = Driver::new();
    d.advance_time(Duration::from_secs(1));
    d.now = dcd_engine::Time(5);
    d.input(Input::Timeout);
}
