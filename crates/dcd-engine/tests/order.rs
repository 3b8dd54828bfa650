//! When a request is acknowledged, what is durable then, and which states a crash may leave:
//! contract C1 to C14.

mod common;

use common::{ACK_MODES, Driver, Kind, LINE, one_byte};
use dcd_engine::units::LbaRange;
use dcd_engine::{AckMode, Buffer, Device, Duration, Lba, Operation};

/// Options of most tests here.
fn mode(ack: AckMode) -> Driver {
    Driver::never_idle(|options| options.engine.ack = ack)
}

// ---- C4, C5: acknowledgement ------------------------------------------------------------------

/// `memory`: at once. `log`: when written. `durable`: when durable.
#[test]
fn each_mode_acknowledges_at_its_own_moment() {
    let mut d = mode(AckMode::Memory);
    let write = d.write(100, 1);
    assert!(d.is_answered(write));
    assert_eq!(d.ios.len(), 0, "and nothing is written yet");

    let mut d = mode(AckMode::Log);
    d.write_durably([90], 9); // so that no probe comes first
    let write = d.write(100, 1);
    assert!(!d.is_answered(write));
    let io = d.find_io(Device::CacheDisk, Kind::Write).expect("the log write");
    d.finish(io);
    assert!(d.is_answered(write));
    assert_eq!(d.count_since(d.started.len() - 1, Device::CacheDisk, Kind::Flush), 0);
    d.power_cycle();
    assert_eq!(d.read(100), 0, "written is not durable");

    let mut d = mode(AckMode::Durable);
    let write = d.write(100, 1);
    assert!(!d.is_answered(write));
    d.expect_ok(write);
    d.power_cycle();
    assert_eq!(d.read(100), 1);
}

/// What was acknowledged survives the death of the process in every mode, at whatever moment (C4):
/// in an open record, in a sealed one, half way to the disk.
#[test]
fn acknowledged_writes_survive_the_process() {
    for ack in ACK_MODES {
        for ios_done in 0..12 {
            let mut d = mode(ack);
            d.write_durably([90], 9);
            let mut acknowledged = Vec::new();
            let ids: Vec<_> = (100..140).map(|line| (line, d.write(line, 1))).collect();
            d.flush();
            for _ in 0..ios_done {
                d.finish_one();
            }
            for line in 140..150 {
                let id = d.write(line, 1);
                acknowledged.extend(d.is_answered(id).then_some(line));
            }
            acknowledged.extend(ids.iter().filter(|(_, id)| d.is_answered(*id)).map(|(l, _)| *l));
            d.kill_and_reopen();
            for line in acknowledged {
                assert_eq!(d.read(line), 1, "line {line}, {ack:?}, after {ios_done} I/Os");
            }
            assert_eq!(d.read(90), 9);
        }
    }
}

/// In `memory` mode a write becomes durable within `max_delay`, without any flush; and the engine
/// asks to be woken for it.
#[test]
fn max_delay_makes_writes_durable_without_a_flush() {
    let mut d = Driver::never_idle(|options| options.engine.max_delay = Duration::from_millis(100));
    for round in 0..5u64 {
        d.write(100 + round, 1);
        d.advance_time(Duration::from_millis(30));
    }
    d.advance_time(Duration::from_millis(70));
    d.power_cycle();
    for line in 100..105 {
        assert_eq!(d.read(line), 1);
    }
}

// ---- C2, C3: FLUSH and FUA --------------------------------------------------------------------

/// The paper's driver would write a whole segment here; dm-writeboost writes 512 KiB.
/// A write that finds too few segment buffers has them as soon as the disk has written what is in
/// them, and not when `max_delay` is over.
#[test]
fn a_write_that_waits_for_buffers_has_them_written() {
    let mut d = Driver::never_idle(|options| {
        options.segments = 64;
        options.engine.segment_buffers = 16;
        options.engine.max_delay = Duration::from_secs(20);
    });
    // Half of the buffers for requests, with which nothing is written yet; then all but one.
    for lines in [50, 90, 90, 50, 90] {
        let write = d.write_blocks(0, lines * 8, 1);
        d.finish_all();
        assert!(d.is_answered(write), "{lines} lines");
    }
}

#[test]
fn a_small_write_and_a_flush_cost_one_write_and_at_most_one_flush() {
    for ack in ACK_MODES {
        let mut d = mode(ack);
        d.write_durably([90], 9); // so that no probe comes first
        for round in 0..20 {
            let mark = d.started.len();
            let write = d.write(100 + round, 1);
            d.finish_all();
            d.done(Driver::flush);
            d.expect_ok(write);
            let log: Vec<_> =
                d.started[mark..].iter().filter(|io| io.kind == Kind::Write).collect();
            // Checkpoints come now and then, and are not counted.
            let offset = d.superblock().geometry.segments_offset;
            let log: Vec<_> = log.into_iter().filter(|io| io.offset >= offset).collect();
            assert_eq!(log.len(), 1, "{ack:?}");
            assert_eq!(log[0].length, 2 * LINE as u64, "a header and a slot");
            let flushes = d.count_since(mark, Device::CacheDisk, Kind::Flush);
            let is_checkpoint = d.started[mark..]
                .iter()
                .any(|io| io.is(Device::CacheDisk, Kind::Write) && io.offset < offset);
            assert!(flushes + usize::from(log[0].fua) <= 1 + usize::from(is_checkpoint));
        }
    }
}

/// Where each write was followed by a flush for a while, the log is written while the next flush is
/// still on its way; it is one operation all the same. Where flushes are rarer, writes gather.
#[test]
fn a_flush_that_is_sure_to_follow_is_not_waited_for() {
    for writes_per_flush in [1, 2] {
        let mut d = mode(AckMode::Memory);
        for round in 0..20 {
            for write in 0..writes_per_flush {
                d.write(100 + 2 * round + write, 1);
            }
            d.done(Driver::flush);
        }
        d.hold(|io| io.device == Device::CacheDisk);
        let mark = d.started.len();
        let write = d.write(300, 1);
        assert!(d.is_answered(write));
        let is_early = d.started[mark..].iter().any(|io| io.fua);
        assert_eq!(is_early, writes_per_flush == 1);
        let flush = d.flush();
        assert!(!d.is_answered(flush), "nothing is durable yet");
        d.release();
        d.expect_ok(flush);
        assert_eq!(d.count_since(mark, Device::CacheDisk, Kind::Write), 1);
        assert_eq!(d.count_since(mark, Device::CacheDisk, Kind::Flush), 0);
        d.power_cycle();
        assert_eq!(d.read(300), 1);
    }
}

/// Many flushes that come while one is under way share the next one: two device flushes in all.
#[test]
fn concurrent_flushes_share_one_device_flush() {
    let mut d = mode(AckMode::Memory);
    d.hold(|io| io.device == Device::CacheDisk);
    let mut waiting = Vec::new();
    let mark = d.started.len();
    for line in 100..132 {
        d.write(line, 1);
        waiting.push(d.flush());
    }
    d.release();
    d.finish_all();
    for id in waiting {
        assert_eq!(d.result(id), Ok(()));
    }
    let durable_writes = d.started[mark..].iter().filter(|io| io.fua).count();
    let flushes = d.count_since(mark, Device::CacheDisk, Kind::Flush);
    assert!(durable_writes + flushes <= 3, "{durable_writes} FUA writes and {flushes} flushes");
    d.power_cycle();
    assert!((100..132).all(|line| d.read(line) == 1));
}

/// A commit waits for the records that it began with. If what comes later joined it, writes that
/// never pause would put off the flush for as long as they go on (C5).
#[test]
fn steady_writes_do_not_put_off_a_commit() {
    let mut d = mode(AckMode::Memory);
    d.write_durably([99], 1);
    d.hold(|io| io.device == Device::CacheDisk);
    // A whole segment, and the beginning of another.
    for line in 100..118 {
        d.write(line, 1);
    }
    d.advance_time(Duration::from_secs(1));
    let began_with = d.ios_of(Device::CacheDisk, Kind::Write);
    assert_eq!(began_with.len(), 2);
    for line in 118..122 {
        d.write(line, 1);
        d.advance_time(Duration::from_secs(1));
    }
    began_with.into_iter().for_each(|id| d.finish(id));
    assert_eq!(d.ios_of(Device::CacheDisk, Kind::Flush).len(), 1);
    d.release();
    d.finish_all();
    d.power_cycle();
    assert!((100..122).all(|line| d.read(line) == 1));
}

/// A write of several parts: each takes its own bytes.
#[test]
fn every_part_of_a_large_write_has_its_bytes() {
    let mut d = Driver::never_idle(|options| options.engine.bypass_threshold_bytes = 1 << 30);
    let mut data = Buffer::zeroed(100 * LINE);
    for (line, bytes) in data.bytes_mut().chunks_exact_mut(LINE).enumerate() {
        bytes.fill(1 + line as u8);
    }
    let write = d.submit(Operation::Write { start: Lba(800), data }, true);
    d.finish_all();
    d.expect_ok(write);
    assert!(d.count_since(0, Device::DataDisk, Kind::Write) == 0, "not past the log");
    for line in 0..100 {
        assert_eq!(d.read(100 + line), 1 + line as u8);
    }
}

/// FUA makes the request and all before it durable, with every operation that changes data.
#[test]
fn fua_covers_all_that_was_acknowledged_before() {
    for ack in ACK_MODES {
        for kind in 0..3 {
            let mut d = mode(ack);
            d.write_durably([105], 9);
            for line in 100..105 {
                d.done(|d| d.write(line, 1));
            }
            let range = dcd_engine::LbaRange::new(105 * 8, 8);
            let fua = match kind {
                0 => d.write_fua(105, 2),
                1 => d.submit(Operation::Discard { range }, true),
                _ => d.submit(Operation::WriteZeroes { range, may_unmap: false }, true),
            };
            d.expect_ok(fua);
            d.power_cycle();
            assert!((100..105).all(|line| d.read(line) == 1));
            assert_eq!(d.read(105), if kind == 0 { 2 } else { 0 });
        }
    }
}

/// A flush with nothing to make durable needs no disk.
#[test]
fn a_flush_of_nothing_is_answered_at_once() {
    let mut d = mode(AckMode::Memory);
    d.write_durably([100], 1);
    let mark = d.started.len();
    let flush = d.flush();
    assert_eq!(d.result(flush), Ok(()));
    assert_eq!(d.started.len(), mark);
}

// ---- C9: prefix -------------------------------------------------------------------------------

/// Ten records, written but not flushed; the power cut keeps any of them. What is found is always a
/// prefix, however large the holes.
///
/// ```text
/// records   1 2 3 4 5 6 7 8 9 10
/// kept      x x . x x x . x x x     -> 1 and 2, and nothing of 4, 5, 6, 8, 9, 10
/// ```
#[test]
fn a_crash_leaves_a_prefix_whichever_writes_survive() {
    for seed in 0..300u64 {
        let mut d = mode(AckMode::Log);
        d.write_durably([100], 100);
        d.hold(|io| io.is(Device::CacheDisk, Kind::Flush));
        // A counter in one line, and each record's own line.
        for record in 1..=10u64 {
            d.write(100, 100 + record as u8);
            d.write(200 + record, 1);
            d.finish_all();
        }
        let keeps =
            |index: usize| (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (index + 7)) & 3 > 0;
        d.power_cut_keeping(|_, index| keeps(index));
        d.reopen();
        let shown = u64::from(d.read(100) - 100);
        for record in 1..=10u64 {
            let line = d.read(200 + record);
            // A record of the counter and the one of its line may be cut between the two.
            let expected = if record < shown { 1 } else { 0 };
            assert!(line == expected || record == shown, "{record} of {shown}, seed {seed}");
        }
        // And what is shown once stays.
        d.power_cycle();
        assert_eq!(u64::from(d.read(100) - 100), shown);
    }
}

/// Log writes that end out of order: a gap is not acknowledged over.
#[test]
fn log_writes_that_end_out_of_order_are_acknowledged_in_order() {
    let mut d = mode(AckMode::Memory);
    d.write_durably([90], 9); // so that no probe comes first
    // Three segments full, whose records are written as they are sealed.
    let last = (100..146).map(|line| d.write(line, 1)).last().expect("some");
    assert!(d.is_answered(last));
    let flush = d.flush();
    let mut writes = d.ios_of(Device::CacheDisk, Kind::Write);
    assert!(writes.len() >= 3);
    let first = writes.remove(0);
    for id in writes {
        d.finish(id);
    }
    d.hold(move |io| io.id == first);
    d.finish_all();
    assert!(!d.is_answered(flush), "the first record is not there");
    d.release();
    d.expect_ok(flush);
    d.power_cycle();
    assert!((100..146).all(|line| d.read(line) == 1));
}

// ---- C10: the log first -----------------------------------------------------------------------

/// Nothing goes to the data-disk before the log holds it for certain.
#[test]
fn nothing_is_destaged_before_it_is_durable_in_the_log() {
    let mut d = Driver::new();
    let opened = d.started.len();
    d.hold(|io| io.is(Device::CacheDisk, Kind::Flush) || io.fua);
    for line in 100..120 {
        d.write(line, 1);
    }
    d.discard(2000, 80);
    d.submit(Operation::Drain, false);
    d.advance_time(Duration::from_secs(20));
    let since = d.started[opened..].iter();
    assert_eq!(since.filter(|io| io.device == Device::DataDisk).count(), 0);
    assert_eq!(d.count_since(0, Device::DataDisk, Kind::Write), 0);
    assert_eq!(d.count_since(0, Device::DataDisk, Kind::WriteZeroes), 0);
    d.release();
    d.drain();
    assert_eq!(d.data_disk.line(119), 1);
}

// ---- C11: bypassed writes ---------------------------------------------------------------------

/// A crash after each I/O of a bypassed write over logged data, with every combination of losing or
/// keeping what the two disks had not flushed.
///
/// ```text
/// before     99 = 1   100 = 1   101 = 1        flushed
/// then       99 = 2                            acknowledged, not flushed
/// bypass              100 = 3   101 = 3
/// after      any of its blocks new  ->  99 is 2: what came before is durable first
///            acknowledged and flushed  ->  all new
/// ```
#[test]
fn a_bypass_is_in_order_whatever_step_the_crash_hits() {
    for keeps in 0..4u32 {
        for ios_done in 0.. {
            let mut d = Driver::never_idle(|options| options.engine.bypass_threshold_bytes = 8192);
            d.write_durably(99..102, 1);
            d.write(99, 2);
            let bypass = d.write_blocks(800, 16, 3);
            let mut flush = None;
            let mut left = ios_done;
            while left > 0 {
                if !d.finish_one() {
                    if flush.is_some() {
                        break;
                    }
                    assert!(d.is_answered(bypass));
                    flush = Some(d.flush());
                    continue;
                }
                left -= 1;
            }
            let is_promised = flush.is_some_and(|id| d.is_answered(id));
            assert_eq!(d.status().counters.bypasses, 1);
            d.power_cut_keeping(|device, _| match device {
                Device::CacheDisk => keeps & 1 > 0,
                Device::DataDisk => keeps & 2 > 0,
                Device::Member(_) | Device::Leg(_) | Device::Witness | Device::Nvram => {
                    unreachable!("one of each")
                }
            });
            for _ in 0..2 {
                d.reopen();
                let (before, first, second) = (d.read(99), d.read(100), d.read(101));
                let context = format!("{before} {first} {second} after {ios_done} I/Os");
                assert!(first == 1 || first == 3, "{context}");
                assert_eq!(first, second, "older copies in the log are in the way, {context}");
                assert!(first == 1 || before == 2, "{context}");
                assert!(!is_promised || first == 3, "{context}");
                d.power_cut();
            }
            if left > 0 {
                assert!(ios_done > 4, "every step was visited");
                break;
            }
        }
    }
}

/// Somebody has seen the bypassed data on the data-disk; what is written over it after that must
/// not be undone by the tombstone (C8).
///
/// ```text
/// bypass   100..102 = 3   |-- written -- seen ------------ flushed, tombstone --|
/// write    100      = 4                        |-- waits ----------------------------|  -> 4
/// ```
#[test]
fn a_change_does_not_overtake_a_bypass_that_was_seen() {
    for is_discard in [false, true] {
        let mut d = Driver::never_idle(|options| options.engine.bypass_threshold_bytes = 8192);
        d.hold(|io| io.is(Device::DataDisk, Kind::Flush));
        let bypass = d.write_blocks(800, 16, 3);
        d.finish_all();
        assert!(!d.is_answered(bypass));
        assert_eq!(d.read(100), 3, "seen");
        let change = match is_discard {
            true => d.discard(800, 8),
            false => d.write(100, 4),
        };
        let other = d.write(500, 1);
        d.finish_all();
        assert!(!d.is_answered(change), "the bypass has no place in the order yet");
        d.release();
        for id in [bypass, change, other] {
            d.expect_ok(id);
        }
        let expected = if is_discard { 0 } else { 4 };
        assert_eq!((d.read(100), d.read(101), d.read(500)), (expected, 3, 1));
        d.done(Driver::flush);
        d.power_cycle();
        assert_eq!((d.read(100), d.read(101), d.read(500)), (expected, 3, 1));
    }
}

/// A read that began before there was a copy in the log must not return bypassed data above it: the
/// next reader would get the copy, which is older (C8).
///
/// ```text
/// read     100        |-- the data-disk is slow ---------------------|  -> 0, never 3
/// write    100 = 2       |--|
/// bypass   100..102 = 3        |-- waits ----------------------------|--|
/// ```
#[test]
fn a_bypass_waits_for_a_read_that_the_log_has_overtaken() {
    for is_discard in [false, true] {
        for (start, blocks) in [(800, 8), (796, 6), (816, 8)] {
            let mut d = Driver::never_idle(|options| options.engine.bypass_threshold_bytes = 8192);
            d.hold(|io| io.is(Device::DataDisk, Kind::Read));
            let range = LbaRange::new(start, blocks);
            let read = d.submit(Operation::read(range), false);
            let write = match is_discard {
                true => d.discard(800, 8),
                false => d.write(100, 2),
            };
            d.expect_ok(write);
            let bypass = d.write_blocks(800, 16, 3);
            d.finish_all();
            let is_in_the_way = start != 816;
            assert_eq!(d.is_answered(bypass), !is_in_the_way, "{start}");
            let other = d.submit(Operation::read(LbaRange::new(808, 8)), false);
            d.release();
            for id in [read, bypass, other] {
                d.expect_ok(id);
            }
            if is_in_the_way {
                assert!(d.reply_bytes(read).iter().all(|byte| *byte == 0));
            }
            assert_eq!((d.read(100), d.read(101)), (3, 3));
        }
    }
}

/// The steps themselves: log durable, data-disk write, data-disk flush, reply.
#[test]
fn a_bypass_takes_its_steps_in_order() {
    let mut d = Driver::never_idle(|options| options.engine.bypass_threshold_bytes = 8192);
    d.write_durably([90], 9); // so that no probe comes first
    d.write(99, 2);
    d.hold(|_| true);
    let bypass = d.write_blocks(800, 16, 3);
    let next = |d: &Driver| {
        assert_eq!(d.ios.len(), 1);
        let last = d.started.last().expect("one");
        (last.id, last.device, last.kind, last.fua)
    };
    let (log, device, kind, fua) = next(&d);
    assert_eq!((device, kind, fua), (Device::CacheDisk, Kind::Write, true));
    d.finish(log);
    let (write, device, kind, _) = next(&d);
    assert_eq!((device, kind), (Device::DataDisk, Kind::Write));
    d.finish(write);
    let (flush, device, kind, _) = next(&d);
    assert_eq!((device, kind), (Device::DataDisk, Kind::Flush));
    assert!(!d.is_answered(bypass));
    d.finish(flush);
    assert!(d.is_answered(bypass));
}

// ---- C12: discard -----------------------------------------------------------------------------

/// Zero from the reply on, also after a crash; blocks at the edges that are not meant stay.
///
/// ```text
/// blocks     796..800 | 800 .. 827 | 828..832     discard 798..829
/// reads         1 1 0    0  ..   0   0  1 1 1
/// ```
#[test]
fn discarded_blocks_read_as_zero_also_after_a_crash() {
    for is_destaged_before in [false, true] {
        for is_zeroing in [false, true] {
            let mut d = mode(AckMode::Memory);
            d.write_durably(98..106, 1);
            if is_destaged_before {
                d.drain();
            }
            let range = dcd_engine::LbaRange::new(798, 31);
            let operation = match is_zeroing {
                true => Operation::WriteZeroes { range, may_unmap: true },
                false => Operation::Discard { range },
            };
            d.done(|d| d.submit(operation, false));
            let expected: Vec<u8> = (98 * 8..106 * 8u64)
                .flat_map(|block| [u8::from(!(798..829).contains(&block)); 512])
                .collect();
            let read = |d: &mut Driver| d.try_read(98 * 8, 64).expect("readable");
            assert!(read(&mut d) == expected);
            d.write(102, 5);
            assert_eq!((d.read(101), d.read(102)), (0, 5), "a later write is above it");
            d.done(Driver::flush);
            d.power_cycle();
            let mut expected = expected;
            expected[4 * LINE..5 * LINE].fill(5);
            assert!(read(&mut d) == expected);
            d.drain();
            assert!(read(&mut d) == expected);
            assert!(d.data_disk.current[98 * LINE..106 * LINE] == expected);
        }
    }
}

/// A discard that was not flushed is there or not, with all that follows it.
#[test]
fn an_unflushed_discard_is_within_the_prefix() {
    for keeps in [false, true] {
        let mut d = mode(AckMode::Log);
        d.write_durably(100..104, 1);
        let discard = d.discard(800, 16);
        d.finish_all();
        let write = d.write(102, 2);
        d.finish_all();
        assert!(d.is_answered(discard) && d.is_answered(write));
        d.power_cut_keeping(|_, _| keeps);
        d.reopen();
        let expected = if keeps { [0, 0, 2, 1] } else { [1, 1, 1, 1] };
        assert_eq!([100, 101, 102, 103].map(|line| d.read(line)), expected);
    }
}

// ---- C14: atomic requests ---------------------------------------------------------------------

/// A write of 1 MiB takes many records (18 of 64 KiB here). After a crash at any of them it is
/// there as a whole or not at all.
#[test]
fn a_large_logged_write_is_all_or_nothing_at_every_record() {
    let lines = 256u64;
    let mut was = [false; 2];
    for records_kept in 0.. {
        let mut d = Driver::never_idle(|options| {
            options.segments = 128;
            options.engine.segment_buffers = 40;
            options.engine.bypass_threshold_bytes = 1 << 30;
            options.engine.ack = AckMode::Log;
        });
        d.write_durably(100..100 + lines, 1);
        d.hold(|io| io.is(Device::CacheDisk, Kind::Flush) || io.fua);
        d.write_blocks(800, lines * 8, 2);
        d.finish_all();
        let records = d.cache_disk.volatile_count();
        assert!(records >= 18, "{records} records");
        d.power_cut_keeping(|_, index| index < records_kept);
        d.reopen();
        let bytes = d.try_read(800, lines * 8).expect("readable");
        was[usize::from(one_byte(&bytes) == 2)] = true;
        if records_kept > records {
            break;
        }
    }
    assert_eq!(was, [true, true]);
}

/// The same when the process dies instead: what of it is in memory counts too.
#[test]
fn a_large_write_in_memory_survives_the_process_as_a_whole() {
    let mut d = Driver::never_idle(|options| {
        options.segments = 128;
        options.engine.segment_buffers = 40;
        options.engine.bypass_threshold_bytes = 1 << 30;
    });
    let write = d.write_blocks(803, 2047, 2);
    assert!(d.is_answered(write));
    for _ in 0..5 {
        d.finish_one();
    }
    d.kill_and_reopen();
    assert_eq!(one_byte(&d.try_read(803, 2047).expect("readable")), 2);
}

// ---- C1, C16: reads ---------------------------------------------------------------------------

/// A line whose blocks are in three places: an older slot, a newer one, and the data-disk.
///
/// ```text
/// block       800 801 802 803 804 805 806 807
/// data-disk    7   7   7   7   7   7   7   7
/// slot a           1   1   1   1
/// slot b                   2
/// reads        7   1   1   2   1   7   7   7
/// ```
#[test]
fn a_read_joins_the_newest_of_every_block() {
    for is_on_disk in [false, true] {
        let mut d = mode(AckMode::Memory);
        d.data_disk.rot(100 * LINE as u64, &[7; LINE]);
        d.write_blocks(801, 4, 1);
        d.write_blocks(803, 1, 2);
        if is_on_disk {
            d.overwrite_segments(500, 3);
        }
        let bytes = d.try_read(800, 8).expect("readable");
        let blocks: Vec<u8> = bytes.chunks(512).map(one_byte).collect();
        assert_eq!(blocks, [7, 1, 1, 2, 1, 7, 7, 7]);
    }
}

/// After the reply to a write every read shows it, while an older read may still be under way.
#[test]
fn a_later_read_is_not_answered_with_older_data() {
    let mut d = mode(AckMode::Memory);
    d.data_disk.rot(100 * LINE as u64, &[7; LINE]);
    d.hold(|io| io.kind == Kind::Read);
    let range = dcd_engine::LbaRange::new(800, 8);
    let older = d.submit(Operation::read(range), false);
    let write = d.write(100, 1);
    assert!(d.is_answered(write));
    assert_eq!(d.read(100), 1);
    d.release();
    d.finish_all();
    assert_eq!(one_byte(&d.reply_bytes(older)), 7, "it was asked before");
    assert_eq!(d.read(100), 1);
}

// ---- C8, C34: one order -----------------------------------------------------------------------

/// The same line many times in one record, across records and across segments: the last one counts,
/// before and after a crash.
#[test]
fn the_last_write_of_a_line_wins() {
    let mut d = mode(AckMode::Memory);
    for round in 0..100u8 {
        let whole = d.write(100, round);
        let part = d.write_blocks(808, 1 + u64::from(round % 8), round);
        d.expect_ok(whole);
        d.expect_ok(part);
        assert_eq!(d.read(100), round);
    }
    let line = d.try_read(808, 8).expect("readable");
    d.done(Driver::flush);
    d.power_cycle();
    assert_eq!(d.read(100), 99);
    assert!(d.try_read(808, 8).expect("readable") == line);
}
