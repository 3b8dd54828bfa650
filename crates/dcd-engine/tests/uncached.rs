//! The cache-disk fails for good while nothing on it is newer than the data-disk: dcd goes on
//! without it (contract C23), and whenever the cache-disk comes back, nothing old does. Each test
//! names the care without which it fails.

mod common;

use common::{ACK_MODES, Driver, Kind, LINE, never_idle};
use dcd_engine::stats::Uncached;
use dcd_engine::{
    AckMode, Device, Duration, IoError, LbaRange, Mode, OpenError, Operation, RequestError,
    RequestId,
};

/// The cache-disk is taken away.
fn take_away(d: &mut Driver) {
    for kind in [Kind::Read, Kind::Write, Kind::Flush] {
        d.fail_always(Device::CacheDisk, kind, 0..u64::MAX, IoError::Gone);
    }
}

/// A cache that has been used, and emptied, and whose cache-disk is clean. Lines 100 to 109 are 1.
fn clean(ack: AckMode) -> Driver {
    let mut d = Driver::with(|options| {
        options.engine.ack = ack;
        options.engine.bypass_threshold_bytes = 8192;
    });
    d.write_durably([90], 9);
    for line in 100..110 {
        d.write(line, 1);
    }
    d.drain();
    assert!(!d.status().cache_disk_clean, "the checkpoint on it speaks of records");
    d.advance_time(Duration::from_secs(10));
    assert!(d.status().cache_disk_clean);
    d
}

/// The same, without its cache-disk.
fn uncached(ack: AckMode) -> Driver {
    let mut d = clean(ack);
    take_away(&mut d);
    d.done(|d| d.write_fua(110, 1));
    assert_eq!(d.status().uncached, Some(Uncached::PassingThrough));
    d
}

fn zero(d: &mut Driver, start: u64, blocks: u64, may_unmap: bool) -> RequestId {
    let range = LbaRange::new(start, blocks);
    d.submit(Operation::WriteZeroes { range, may_unmap }, false)
}

// ---- becoming clean ---------------------------------------------------------------------------

/// Two checkpoints, when it has been quiet, and no more; a new cache is clean from the start.
#[test]
fn an_emptied_cache_makes_checkpoints_that_say_so() {
    let mut d = Driver::new();
    assert!(d.status().cache_disk_clean, "a new one");
    d.write_durably([100], 1);
    assert!(!d.status().cache_disk_clean);
    d.drain();
    let before = d.status().counters.checkpoints;
    d.advance_time(Duration::from_secs(3600));
    assert_eq!(d.status().counters.checkpoints, before + 2);
    assert_eq!(d.wake_up(), None, "nothing is left to be done");
    d.power_cycle();
    let recovery = d.status().recovery;
    assert_eq!((recovery.records, recovery.dirty_lines), (0, 0));
}

/// With dirty lines, zero ranges or poison in it, a checkpoint does not make the disk clean.
#[test]
fn a_checkpoint_that_lists_something_does_not_count() {
    let fill: [fn(&mut Driver); 3] = [
        |d| d.write_durably([100], 1),
        |d| {
            d.done(|d| d.discard(800, 80));
            d.done(Driver::flush);
        },
        |d| {
            d.write_durably([100], 1);
            let slot = d.slot_of(1);
            d.shut_down();
            d.cache_disk.flip(slot);
            d.reopen();
            d.drain_with_loss(1);
        },
    ];
    for fill in fill {
        let mut d = Driver::with(never_idle);
        fill(&mut d);
        // Its session begins with a checkpoint, and ends with one.
        d.restart();
        d.advance_time(Duration::from_secs(1000));
        assert!(!d.status().cache_disk_clean);
        take_away(&mut d);
        let write = d.write_fua(101, 2);
        assert_eq!(d.wait(write), Err(RequestError::Io), "dirty: no going on");
        assert_eq!(d.status().uncached, None);
    }
}

/// The care: a checkpoint that lists nothing counts only if no record was submitted while it was on
/// its way. Were it to, the record would come back over what is written without the cache-disk.
#[test]
fn a_record_that_overtakes_the_checkpoint_is_behind_it() {
    for durable_before in [0, 1] {
        let mut d = Driver::new();
        d.write_durably([100], 1);
        d.drain();
        let before = d.status().counters.checkpoints;
        d.run_until(|d| d.status().counters.checkpoints == before + durable_before);
        let checkpoints = d.superblock().geometry.checkpoint_offsets;
        let end = d.superblock().geometry.segments_offset;
        d.hold(move |io| {
            io.is(Device::CacheDisk, Kind::Write) && (checkpoints[0]..end).contains(&io.offset)
        });
        d.advance_time(Duration::from_secs(2));
        let checkpoint = d.find_io(Device::CacheDisk, Kind::Write).expect("the checkpoint");
        d.write_durably([100], 2);
        d.release();
        d.finish(checkpoint);
        d.finish_all();
        assert!(!d.status().cache_disk_clean);
        take_away(&mut d);
        let write = d.write_fua(100, 3);
        assert_eq!(d.wait(write), Err(RequestError::Io));
        d.power_cycle();
        assert_eq!(d.read(100), 2);
    }
}

// ---- the probe --------------------------------------------------------------------------------

/// The care: before the first record after a clean checkpoint, a probe that is no record. It goes
/// where the record will; `memory` acknowledges without it; later records do without.
#[test]
fn a_probe_comes_before_the_first_record_only() {
    for ack in ACK_MODES {
        let mut d = clean(ack);
        d.hold(|io| io.is(Device::CacheDisk, Kind::Write));
        let write = d.write(100, 2);
        let flush = d.flush();
        assert_eq!(d.is_answered(write), ack == AckMode::Memory, "{ack:?}");
        let probe = d.started.last().expect("a write").clone();
        assert_eq!(d.ios.len(), 1, "{ack:?}");
        assert!(probe.is(Device::CacheDisk, Kind::Write) && probe.fua);
        // Whoever comes meanwhile shares the record.
        d.write(101, 2);
        d.advance_time(Duration::from_millis(500));
        assert_eq!(d.ios.len(), 1, "{ack:?}");
        assert!(!d.is_answered(flush) && d.status().cache_disk_clean);
        d.finish(probe.id);
        let after = d.started.iter().position(|io| io.id == probe.id).expect("started") + 1;
        let record = &d.started[after];
        assert_eq!((record.offset, record.device), (probe.offset, Device::CacheDisk));
        assert!(!d.status().cache_disk_clean, "it is submitted");
        d.release();
        d.expect_ok(flush);
        let mark = d.started.len();
        d.write_durably([102], 2);
        assert_eq!(d.count_since(mark, Device::CacheDisk, Kind::Write), 1, "no probe");
        d.power_cycle();
        assert_eq!((d.read(100), d.read(101), d.read(102)), (2, 2, 2));
    }
}

/// The care: a record that may be on the cache-disk ends the clean state, whatever its write says.
/// The record lands, its write is told to have failed; were dcd to go on, the record would come
/// back over what is written then.
#[test]
fn a_record_that_may_have_landed_is_not_passed_by() {
    let mut d = clean(AckMode::Memory);
    let write = d.write_fua(100, 2);
    d.finish_one();
    let record = d.find_io(Device::CacheDisk, Kind::Write).expect("the record, after the probe");
    d.land(record);
    d.fail(record, IoError::Gone);
    assert_eq!(d.wait(write), Err(RequestError::Io));
    assert_eq!(d.status().uncached, None);
    let write = d.write(100, 3);
    assert_eq!(d.result(write), Err(RequestError::Io));
    d.power_cycle();
    assert!([1, 2].contains(&d.read(100)));
}

/// The care: the probe leaves nothing behind that a start could take for a record, torn, late or
/// whole.
#[test]
fn a_probe_may_land_or_not() {
    for lands in 0..4 {
        let mut d = clean(AckMode::Memory);
        d.write(100, 2);
        let flush = d.flush();
        let probe = d.find_io(Device::CacheDisk, Kind::Write).expect("the probe");
        match lands {
            0 => {}
            1 => d.land(probe),
            _ => d.tear(probe, |sector| sector % 2 == lands % 2),
        }
        d.fail(probe, IoError::Gone);
        d.expect_ok(flush);
        assert_eq!(d.data_disk.line(100), 2);
        d.power_cycle();
        assert_eq!((d.read(100), d.status().recovery.records), (2, 0));
        d.write_durably([100], 3);
        d.power_cycle();
        assert_eq!(d.read(100), 3, "the log goes on where the probe was");
    }
}

/// A probe that fails and one that is never answered: the one is tried elsewhere, as records are,
/// the other ends it.
#[test]
fn a_probe_that_fails_is_tried_elsewhere_three_times() {
    let mut d = clean(AckMode::Memory);
    d.fail_next(Device::CacheDisk, Kind::Write, IoError::Failed);
    d.fail_next(Device::CacheDisk, Kind::Write, IoError::Failed);
    let mark = d.started.len();
    d.write_durably([100], 2);
    let writes: Vec<_> =
        d.started[mark..].iter().filter(|io| io.is(Device::CacheDisk, Kind::Write)).collect();
    assert_eq!((writes[2].length, writes[3].length), (4096, 8192), "three probes and the record");
    let mut places: Vec<u64> = writes[..3].iter().map(|io| io.offset).collect();
    places.dedup();
    assert_eq!(places.len(), 3);
    assert!(!d.status().cache_disk_failed);

    let mut d = clean(AckMode::Memory);
    d.fail_always(Device::CacheDisk, Kind::Write, 0..u64::MAX, IoError::NoSpace);
    d.write_durably([100], 2);
    assert_eq!(d.status().uncached, Some(Uncached::PassingThrough));
    assert_eq!(d.status().cache_disk_error, Some(IoError::NoSpace));

    let mut d = clean(AckMode::Memory);
    d.hold(|io| io.device == Device::CacheDisk);
    d.write_durably([100], 2);
    assert_eq!(d.status().cache_disk_error, Some(IoError::TimedOut));
    assert_eq!(d.status().uncached, Some(Uncached::PassingThrough));
    d.write_durably([100], 3);
    let late = d.find_io(Device::CacheDisk, Kind::Write).expect("the probe");
    d.finish(late);
    assert_eq!(d.read(100), 3);
    d.power_cycle();
    assert_eq!(d.read(100), 3);
}

// ---- going on ---------------------------------------------------------------------------------

/// What everybody wants: no error, and nothing old when the cache-disk comes back.
#[test]
fn requests_go_on_and_nothing_old_comes_back() {
    for ack in ACK_MODES {
        let mut d = clean(ack);
        take_away(&mut d);
        d.done(|d| d.write(100, 2));
        d.done(|d| d.write_blocks(101 * 8 + 3, 2, 3));
        d.done(|d| d.discard(103 * 8 + 4, 12));
        let large = d.write_blocks(106 * 8, 24, 4);
        d.expect_ok(large);
        d.done(Driver::flush);
        let check = |d: &mut Driver| {
            assert_eq!((d.read(100), d.read(102)), (2, 1), "{ack:?}");
            assert_eq!(d.try_read(101 * 8, 8).unwrap()[3 * 512 - 1..][..3], [1, 3, 3]);
            assert_eq!(d.try_read(103 * 8, 4), Ok(vec![1; 4 * 512]));
            assert_eq!(d.try_read(103 * 8 + 4, 12), Ok(vec![0; 12 * 512]));
            assert_eq!((d.read(106), d.read(108), d.read(109)), (4, 4, 1));
        };
        check(&mut d);
        assert_eq!(d.status().uncached, Some(Uncached::PassingThrough));
        assert_eq!((d.status().dirty_lines, d.status().cache_disk_failed), (0, true));
        d.power_cycle();
        check(&mut d);
        assert!(d.status().recovery.data_disk_changed, "lines destaged last have changed");
        d.write_durably([100], 5);
        d.power_cycle();
        assert_eq!(d.read(100), 5, "a cache as before");
    }
}

/// The care: clean is what the *cache-disk* says. All was destaged, but its newest checkpoint and
/// records still speak of lines; dcd does not go on, and a start finds the old order of things.
#[test]
fn an_emptied_cache_without_its_checkpoint_is_not_clean() {
    let mut d = Driver::new();
    d.write_durably(100..110, 1);
    d.drain();
    take_away(&mut d);
    let write = d.write_fua(100, 2);
    assert_eq!(d.wait(write), Err(RequestError::Io));
    assert_eq!((d.status().uncached, d.data_disk.line(100)), (None, 1));
    d.power_cycle();
    assert_eq!(d.read(100), 1);
}

/// The care: nothing of the segment memory is given up before it is flushed on the data-disk. The
/// process dies after each I/O, those under way landed or not: what was acknowledged is there.
///
/// ```text
/// data-disk       100..110 = 1
/// memory          100 = 2   104..108 zero   105 = 3   106, half = 4   bypassed: 120..122 = 5
/// ```
#[test]
fn what_was_in_memory_survives_the_process_at_every_step() {
    for lands in [false, true] {
        for steps in 0.. {
            let mut d = clean(AckMode::Memory);
            d.write(100, 2);
            zero(&mut d, 104 * 8, 32, true);
            d.write(105, 3);
            d.write_blocks(106 * 8, 4, 4);
            take_away(&mut d);
            d.hold(|io| io.device == Device::DataDisk);
            let flush = d.flush();
            d.finish_all();
            let mut done = 0;
            while done < steps && !d.is_answered(flush) {
                let next = d.ios[0].id;
                d.finish(next);
                done += 1;
            }
            let is_over = d.is_answered(flush);
            if lands {
                for io in d.ios.iter().map(|io| io.id).collect::<Vec<_>>() {
                    d.land(io);
                }
            }
            d.kill_and_reopen();
            let lines = [100, 101, 104, 105, 107].map(|line| d.read(line));
            assert_eq!(lines, [2, 1, 0, 3, 0], "{steps} steps, lands: {lands}");
            assert_eq!(d.try_read(106 * 8, 4), Ok(vec![4; 4 * 512]));
            assert_eq!(d.try_read(106 * 8 + 4, 4), Ok(vec![0; 4 * 512]));
            if is_over {
                assert!(steps >= 4, "every step was visited");
                break;
            }
        }
    }
}

/// The care: after that, what the segment memory holds counts no more. A start that replayed it
/// would put it over what was written since.
#[test]
fn what_was_in_memory_is_not_replayed_over_what_was_written_without_a_cache() {
    for crash_during_recovery in [false, true] {
        let mut d = clean(AckMode::Memory);
        d.write(100, 2);
        d.write(101, 2);
        take_away(&mut d);
        d.done(Driver::flush);
        d.done(|d| d.write(100, 3));
        d.kill();
        if crash_during_recovery {
            // The marks of the session are cleared, and its checkpoint is still the newest.
            for ios in 0..80 {
                d.start_open().expect("opens");
                for _ in 0..ios {
                    d.finish_one();
                }
                if *d.engine().phase() == dcd_engine::Phase::Running {
                    break;
                }
                d.kill();
            }
        } else {
            d.reopen();
        }
        assert_eq!((d.read(100), d.read(101)), (3, 2));
        // The note is of that session only.
        d.write(100, 4);
        d.kill_and_reopen();
        assert_eq!(d.read(100), 4, "memory counts again");
    }
}

/// The care: the next session takes the note away. An older copy of the cache-disk is put back, and
/// its next session has the same number as the one that was without: its memory counts all the
/// same.
#[test]
fn the_note_does_not_outlive_its_session() {
    let mut d = Driver::new();
    d.write_durably([100], 1);
    d.drain();
    d.shut_down();
    let older = d.cache_disk.current.clone();
    d.reopen();
    take_away(&mut d);
    d.write_durably([200], 2);
    d.kill();
    d.cache_disk.rot(0, &older);
    d.reopen();
    d.write(200, 3);
    d.kill_and_reopen();
    assert_eq!(d.read(200), 3);
}

/// The care: zero ranges go to the data-disk before what lies above them; also on a disk that
/// cannot zero.
#[test]
fn zeroes_go_before_what_lies_above_them() {
    for can_zero in [true, false] {
        let mut d = clean(AckMode::Memory);
        zero(&mut d, 100 * 8, 80, false);
        d.write(104, 3);
        take_away(&mut d);
        if !can_zero {
            let error = IoError::Unsupported;
            d.fail_always(Device::DataDisk, Kind::WriteZeroes, 0..u64::MAX, error);
        }
        let mark = d.started.len();
        d.done(Driver::flush);
        let content = [100, 103, 104, 105, 109].map(|line| d.data_disk.line(line));
        assert_eq!(content, [0, 0, 3, 0, 0]);
        let zeroed = d.started[mark..].iter().find(|io| io.kind == Kind::WriteZeroes);
        assert!(!zeroed.expect("tried").may_unmap, "as it was asked for");
        d.done(|d| zero(d, 104 * 8 + 2, 3, true));
        assert_eq!(d.try_read(104 * 8 + 1, 1), Ok(vec![3; 512]));
        assert_eq!(d.try_read(104 * 8 + 2, 3), Ok(vec![0; 3 * 512]));
        assert_eq!(d.try_read(104 * 8 + 5, 1), Ok(vec![3; 512]));
    }
}

/// The care: a range that cannot be zeroed at once is zeroed piece by piece, to its end.
#[test]
fn what_the_data_disk_cannot_zero_is_written_piece_by_piece() {
    let mut d = uncached(AckMode::Memory);
    let end = d.options.data_disk.blocks;
    for line in [200, 455, 456, 1023] {
        d.done(|d| d.write(line, 7));
    }
    d.fail_always(Device::DataDisk, Kind::WriteZeroes, 0..u64::MAX, IoError::Unsupported);
    let mark = d.started.len();
    let zeroed = zero(&mut d, 200 * 8, end - 200 * 8, true);
    assert!(!d.is_answered(zeroed));
    d.expect_ok(zeroed);
    assert!([200, 455, 456, 1023].iter().all(|line| d.data_disk.line(*line) == 0));
    assert_eq!(d.count_since(mark, Device::DataDisk, Kind::WriteZeroes), 1, "asked once");
    let writes = d.started[mark..].iter().filter(|io| io.is(Device::DataDisk, Kind::Write));
    let lengths: Vec<u64> = writes.map(|io| io.length).collect();
    // As the disk takes no time for them, each is longer than the one before, up to 1 MiB.
    assert_eq!(lengths, [64, 128, 256, 256, 120].map(|lines| lines * LINE as u64));
}

/// The care: a bypassed write that is under way ends before what is in memory goes to the
/// data-disk, and kills the copies there, as its tombstone would have; one that waits becomes a
/// write as others.
///
/// ```text
/// memory      125 = 4   126 = 6
/// bypassed    124 = 5   125 = 5      its place in the order is that of its end
/// ```
#[test]
fn a_bypass_under_way_wins_over_copies_in_memory() {
    for waits in [true, false] {
        for steps in 0..4 {
            let mut d = clean(AckMode::Memory);
            d.hold(|io| io.device == Device::DataDisk);
            if waits {
                d.write(125, 4);
                d.write(126, 6);
            }
            let bypass = d.write_blocks(124 * 8, 16, 5);
            if !waits {
                // A change of its own blocks would wait for it (trap 2).
                assert_eq!(d.ios.len(), 1, "nothing is before it");
                d.write(126, 6);
            }
            take_away(&mut d);
            let flush = d.flush();
            d.finish_all();
            assert_eq!(d.status().uncached, Some(Uncached::WritingThrough));
            for _ in 0..steps {
                if let Some(next) = d.ios.first().map(|io| io.id) {
                    d.finish(next);
                }
            }
            if let Some(next) = d.ios.first().map(|io| io.id) {
                d.land(next);
            }
            d.kill_and_reopen();
            if d.is_answered(bypass) {
                assert_eq!((d.read(124), d.read(125)), (5, 5), "{waits} {steps}");
            } else if waits {
                assert!([4, 5].contains(&d.read(125)), "{steps}");
            }
            assert_eq!(d.read(126), 6);
            assert!(steps < 3 || d.is_answered(flush), "{waits}");
        }
    }
}

/// The care: a bypass that is taken over when the cache-disk goes is as durable as the mode says.
#[test]
fn a_bypass_taken_over_in_mode_durable_is_flushed() {
    let mut d = clean(AckMode::Durable);
    take_away(&mut d);
    let small = d.write(110, 1);
    let bypass = d.write_blocks(124 * 8, 16, 5);
    d.expect_ok(small);
    d.expect_ok(bypass);
    assert_eq!(d.status().counters.bypasses, 1);
    d.power_cycle();
    assert_eq!((d.read(124), d.read(125)), (5, 5));
}

/// The care: a start that writes records from memory to an empty log leaves none of them or all, if
/// it is cut. Else the data-disk, to which all of them were perhaps written, looks changed by
/// someone else.
/// ```text
/// uncached    100, witness = 2    written to the data-disk, not flushed    process dies
/// start       record 1: 100       record 2: witness                        power cut between them
/// ```
#[test]
fn a_start_cut_short_joins_records_from_memory_to_an_empty_log_all_or_none() {
    let mut reached = Vec::new();
    for steps in 0.. {
        let mut is_over = false;
        // Of the writes to the cache-disk since its last flush, this one survives.
        for kept in 0..3 {
            let mut d = clean(AckMode::Memory);
            d.hold(|io| io.device == Device::CacheDisk);
            for line in [100, 0] {
                d.write(line, 2);
                d.flush();
            }
            d.release();
            take_away(&mut d);
            d.hold(|io| io.is(Device::DataDisk, Kind::Flush));
            d.finish_all();
            assert_eq!(d.status().uncached, Some(Uncached::WritingThrough));
            d.kill();
            d.start_open().expect("opens");
            for _ in 0..steps {
                d.finish_one();
            }
            is_over = *d.engine().phase() == dcd_engine::Phase::Running;
            d.power_cut_keeping(|device, index| device == Device::DataDisk || index == kept);
            d.reopen();
            reached.push(d.status().recovery.records);
        }
        if is_over {
            break;
        }
    }
    assert!(reached.iter().all(|records| [0, 2].contains(records)), "never one: {reached:?}");
    assert!(reached.contains(&2), "each step of the start was visited");
}

/// The care: overlapping changes reach the data-disk in one order, others do not wait (C8).
#[test]
fn overlapping_changes_keep_their_order() {
    let mut d = uncached(AckMode::Memory);
    d.hold(|io| io.device == Device::DataDisk);
    let first = d.write(100, 2);
    let second = d.write_blocks(800, 4, 3);
    let third = zero(&mut d, 802, 6, true);
    let other = d.write(101, 4);
    assert_eq!(d.ios.len(), 2, "the first and the one elsewhere");
    let ends = |d: &mut Driver, id: RequestId| {
        let io = d.ios[0].id;
        d.finish(io);
        assert!(d.is_answered(id));
    };
    ends(&mut d, first);
    ends(&mut d, other);
    ends(&mut d, second);
    ends(&mut d, third);
    assert_eq!(d.try_read(800, 2), Ok(vec![3; 2 * 512]));
    assert_eq!(d.try_read(802, 6), Ok(vec![0; 6 * 512]));
}

/// The care: FLUSH and FUA are answered after a flush of the data-disk that began after the writes
/// they cover had ended (C2, C3); in `durable` every write is.
#[test]
fn flush_and_fua_are_flushes_of_the_data_disk() {
    let mut d = uncached(AckMode::Memory);
    d.hold(|io| io.is(Device::DataDisk, Kind::Flush));
    let early = d.flush();
    assert_eq!(d.ios.len(), 1);
    let plain = d.write(100, 2);
    d.finish_all();
    assert!(d.is_answered(plain));
    let fua = d.write_fua(101, 3);
    let late = d.flush();
    d.finish_all();
    assert!(!d.is_answered(fua) && !d.is_answered(early));
    let first = d.ios[0].id;
    d.finish(first);
    assert!(d.is_answered(early) && !d.is_answered(fua) && !d.is_answered(late));
    let second = d.ios[0].id;
    d.finish(second);
    assert!(d.is_answered(fua) && d.is_answered(late));
    d.power_cycle();
    assert_eq!((d.read(100), d.read(101)), (2, 3));

    let mut d = uncached(AckMode::Durable);
    d.done(|d| d.write(100, 2));
    d.power_cycle();
    assert_eq!(d.read(100), 2, "durable is durable");
}

/// The care: writes, flushes and drains that come while the memory is written through wait for it,
/// and reads do not.
#[test]
fn what_comes_meanwhile_waits_and_reads_do_not() {
    let mut d = clean(AckMode::Memory);
    d.write(100, 2);
    take_away(&mut d);
    d.hold(|io| io.device == Device::DataDisk && io.kind != Kind::Read);
    let flush = d.flush();
    d.finish_all();
    assert_eq!(d.status().uncached, Some(Uncached::WritingThrough));
    let newer = d.write(100, 3);
    let drain = d.submit(Operation::Drain, false);
    d.finish_all();
    assert_eq!((d.read(100), d.read(101)), (2, 1));
    assert!(![flush, newer, drain].iter().any(|id| d.is_answered(*id)));
    d.release();
    for id in [flush, newer, drain] {
        d.expect_ok(id);
    }
    assert_eq!((d.read(100), d.data_disk.line(100)), (3, 3));
}

// ---- the data-disk fails, too -----------------------------------------------------------------

/// The care: what is in memory is not given up when it cannot be brought to the data-disk.
#[test]
fn if_the_data_disk_fails_too_the_memory_is_kept() {
    for kind in [Kind::Write, Kind::Flush, Kind::WriteZeroes] {
        let mut d = clean(AckMode::Memory);
        d.write(100, 2);
        zero(&mut d, 104 * 8, 16, true);
        take_away(&mut d);
        d.fail_always(Device::DataDisk, kind, 0..u64::MAX, IoError::Failed);
        let flush = d.flush();
        assert_eq!(d.wait(flush), Err(RequestError::Io), "{kind:?}");
        assert_eq!(d.status().uncached, Some(Uncached::Failed));
        for id in [d.write(101, 2), d.flush(), d.submit(Operation::Drain, false)] {
            assert_eq!(d.wait(id), Err(RequestError::Io), "sticky");
        }
        assert_eq!((d.read(100), d.read(101), d.read(104)), (2, 1, 0));
        if kind == Kind::Flush {
            // What the kernel could not write it forgets, sooner or later.
            d.data_disk.power_cut(|_| false);
        }
        d.kill_and_reopen();
        assert_eq!((d.read(100), d.read(101), d.read(104)), (2, 1, 0));
    }
}

/// The care: after a flush that failed, one that succeeds proves nothing (C2, C22). A write that
/// fails concerns itself only.
#[test]
fn a_failed_flush_of_the_data_disk_is_not_retried_and_believed() {
    let mut d = uncached(AckMode::Memory);
    d.fail_next(Device::DataDisk, Kind::Write, IoError::Failed);
    let write = d.write(100, 2);
    assert_eq!(d.wait(write), Err(RequestError::Io));
    d.done(|d| d.write(100, 3));
    d.data_disk.drop_unflushed();
    d.fail_next(Device::DataDisk, Kind::Flush, IoError::Failed);
    for _ in 0..2 {
        let flush = d.flush();
        assert_eq!(d.wait(flush), Err(RequestError::Io));
    }
    let write = d.write_fua(101, 4);
    assert_eq!(d.wait(write), Err(RequestError::Io));
    assert_eq!(d.status().uncached, Some(Uncached::Failed));
}

/// A write to the data-disk hangs: nothing else is written there until it ends (C26).
#[test]
fn behind_a_hung_write_nothing_is_written() {
    let mut d = uncached(AckMode::Memory);
    d.hold(|io| io.touches_line(100) && io.kind == Kind::Write);
    let hung = d.write(100, 2);
    assert_eq!(d.wait(hung), Err(RequestError::Io));
    for line in [100, 101] {
        let refused = d.write(line, 3);
        assert_eq!(d.result(refused), Err(RequestError::Io));
    }
    let io = d.ios[0].id;
    d.finish(io);
    d.release();
    d.write_durably([100], 4);
    assert_eq!(d.read(100), 4);
}

// ---- the end ----------------------------------------------------------------------------------

/// Shutdown and detach flush the data-disk and end; nothing is marked on the cache-disk.
#[test]
fn the_end_is_in_order_and_marks_nothing() {
    for operation in [Operation::Shutdown, Operation::Detach] {
        let mut d = uncached(AckMode::Memory);
        d.write(100, 2);
        d.done(|d| d.submit(operation, false));
        d.power_cut();
        assert_eq!(d.data_disk.line(100), 2);
        d.reopen();
        assert_eq!(d.read(100), 2);
    }
}

/// The cache-disk is found to be gone at the end only: the same.
#[test]
fn an_end_that_finds_the_cache_disk_gone_is_in_order() {
    for operation in [Operation::Shutdown, Operation::Detach] {
        let mut d = clean(AckMode::Memory);
        d.write(100, 2);
        take_away(&mut d);
        d.done(|d| d.submit(operation, false));
        d.power_cut();
        assert_eq!(d.data_disk.line(100), 2);
        d.reopen();
        assert_eq!(d.read(100), 2);
    }
}

/// A start does not go on without its cache-disk: it cannot know what is on it.
#[test]
fn a_start_without_the_cache_disk_is_refused() {
    let mut d = clean(AckMode::Memory);
    d.power_cut();
    take_away(&mut d);
    assert!(matches!(d.try_open(), Err(OpenError::Checkpoint { .. })));
    d.heal();
    d.reopen();
    d.fail_always(Device::CacheDisk, Kind::Write, 0..u64::MAX, IoError::Failed);
    d.power_cut();
    d.data_disk.rot(0, &[0; LINE]);
    d.fail_always(Device::CacheDisk, Kind::Write, 0..u64::MAX, IoError::Failed);
    assert!(matches!(d.try_open(), Err(OpenError::Io { device: Device::CacheDisk, .. })));
}

/// The care: whichever checkpoint cannot be read, the other says that there is nothing; before the
/// segment memory knows better, and after it is lost. Without it the log of an older one puts old
/// data over what was acknowledged without the cache-disk. Found by the fuzzer.
#[test]
fn one_checkpoint_is_enough_to_know_that_there_was_nothing() {
    for ack in ACK_MODES {
        for by_mode in [false, true] {
            for (is_newer, power) in [(true, false), (true, true), (false, true)] {
                let mut d = clean(ack);
                d.write_durably([100], 1);
                match by_mode {
                    true => {
                        d.configure(|config| config.mode = Mode::PassThrough).unwrap();
                        d.run_until(|d| d.status().mode.mode == Mode::PassThrough);
                    }
                    false => {
                        d.drain();
                        d.advance_time(Duration::from_secs(10));
                        take_away(&mut d);
                    }
                }
                d.done(|d| d.write_fua(100, 2));
                match power {
                    true => d.power_cut(),
                    false => d.kill(),
                }
                d.heal();
                d.lose_checkpoint(is_newer);
                // Whoever cannot know refuses.
                if d.try_open().is_ok() {
                    assert_eq!(d.read(100), 2, "{ack:?} {by_mode} {is_newer} {power}");
                } else {
                    assert!(is_newer && !power, "{ack:?} {by_mode} {is_newer} {power}");
                }
            }
        }
    }
}

/// The care: one of both is not enough.
#[test]
fn a_cache_disk_is_not_clean_before_both_checkpoints_say_so() {
    let mut d = clean(AckMode::Memory);
    d.write_durably([100], 2);
    d.drain();
    let checkpoints = d.status().counters.checkpoints;
    d.run_until(|d| d.status().counters.checkpoints == checkpoints + 1);
    assert!(!d.status().cache_disk_clean);
    d.run_until(|d| d.status().counters.checkpoints == checkpoints + 2);
    assert!(d.status().cache_disk_clean);
}

// ---- a log that is left unused ----------------------------------------------------------------

/// With `no_log` an empty log stays empty, and a later start with it finds what was written past
/// it.
#[test]
fn a_log_that_is_left_unused_stays_empty() {
    let mut d = clean(AckMode::Memory);
    d.power_cut();
    d.options.engine.no_log = true;
    d.reopen();
    let (write, zeroed) = (d.write(100, 2), zero(&mut d, 101 * 8, 8, true));
    d.expect_ok(write);
    d.expect_ok(zeroed);
    assert_eq!(d.status().uncached, Some(Uncached::PassingThrough));
    assert!(!d.status().cache_disk_failed);
    assert_eq!((d.data_disk.line(100), d.read(100), d.read(101)), (2, 2, 0));
    let records = d.status().counters.records;
    d.done(|d| d.write_fua(102, 2));
    d.drain();
    d.advance_time(Duration::from_secs(10));
    assert_eq!(d.status().counters.records, records);
    // The care: neither the process nor the power takes what was flushed, and nothing old comes
    // back.
    for power in [false, true] {
        match power {
            true => d.power_cut(),
            false => d.kill(),
        }
        d.options.engine.no_log = false;
        d.reopen();
        assert_eq!([100, 101, 102, 103].map(|line| d.read(line)), [2, 0, 2, 1]);
        assert_eq!(d.status().uncached, None);
    }
}

/// The care: a log with something in it is not left unused, or reads would miss it. Nor is it with
/// a read area, whose copies would not learn of changes.
#[test]
fn a_log_that_is_needed_is_not_left_unused() {
    let mut d = clean(AckMode::Memory);
    d.write_durably([100], 2);
    d.power_cut();
    d.options.engine.no_log = true;
    assert_eq!(d.try_open(), Err(OpenError::LogNotEmpty));
    d.options.engine.no_log = false;
    d.reopen();
    assert_eq!(d.read(100), 2);
    d.drain();
    d.shut_down();
    d.options.engine.no_log = true;
    d.reopen();
    assert_eq!(d.read(100), 2);

    let mut d = Driver::created(|options| {
        options.copy_pages = 1;
        options.engine.no_log = true;
    });
    assert_eq!(d.try_open(), Err(OpenError::ReadAreaWithoutLog));
}

/// The care: a write that was logged in part when the cache-disk failed goes on with the rest. What is
/// in the log has been seen, and a write past the log, which was answered, came after it.
#[test]
fn of_a_write_that_was_logged_in_part_the_rest_passes() {
    let mut d = Driver::with(|options| {
        never_idle(options);
        options.engine.ack = AckMode::Memory;
        options.engine.segment_buffers = 4;
        options.engine.bypass_threshold_bytes = 76 << 10;
    });
    d.hold(|io| io.device == Device::CacheDisk);
    // Two of four buffers are for requests, each of 14 lines.
    let first = d.write_blocks(3416, 112, 1);
    let large = d.write_blocks(3384, 144, 2);
    assert!(d.is_answered(first) && !d.is_answered(large), "it waits for room");
    assert_eq!(d.read(3384 / 8), 2, "it is there in part");
    // Past the log: over what was seen.
    let past = d.write_blocks(3272, 152, 3);
    assert!(!d.is_answered(past));
    d.fail_always(Device::CacheDisk, Kind::Write, 0..u64::MAX, IoError::Gone);
    d.fail_always(Device::CacheDisk, Kind::Flush, 0..u64::MAX, IoError::Gone);
    d.release();
    d.finish_all();
    assert_eq!((d.result(large), d.result(past)), (Ok(()), Ok(())));
    assert_eq!(d.status().uncached, Some(Uncached::PassingThrough));
    assert_eq!(d.read(3384 / 8), 3);
    // The rest came after it.
    assert_eq!(d.read(3520 / 8), 2);
}
