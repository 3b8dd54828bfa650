//! Destaging: that it makes few, large, sorted writes of many small ones, and keeps out of the way.

mod common;

use common::{Driver, Kind, LINE, LINES_PER_SEGMENT, POLICIES, Seen, never_idle, one_byte};
use dcd_engine::{
    AckMode, DestagePolicyKind, Device, Duration, IoOperation, LbaRange, Operation, RequestError,
    Time,
};

/// Writes of destaging since `mark`.
fn writes(d: &Driver, mark: usize) -> Vec<&Seen> {
    d.started[mark..].iter().filter(|io| io.is(Device::DataDisk, Kind::Write)).collect()
}

/// A permutation of `0..count`, in no order a disk would like.
fn shuffled(count: u64) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..count).collect();
    let mut state = 42u64;
    for i in (1..numbers.len()).rev() {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        numbers.swap(i, ((state >> 33) % (i as u64 + 1)) as usize);
    }
    numbers
}

// ---- merging ----------------------------------------------------------------------------------

/// Three quarters of a range, each line once, in random order: a segment alone holds hardly two
/// neighbours, all segments together hold long runs.
///
/// ```text
/// segment a     . 1 . . . 5 . . .
/// segment b     . . 2 . 4 . . . 8
/// segment c     0 . . 3 . . . 7 .       -> one write of 0..6, one of 7..9
/// ```
#[test]
fn neighbours_of_all_segments_are_merged() {
    for policy in POLICIES {
        let mut d = Driver::never_idle(|options| {
            options.segments = 64;
            options.engine.destage_policy = policy;
        });
        let lines: Vec<u64> = shuffled(800).into_iter().take(600).collect();
        for line in &lines {
            d.write(100 + line, (line % 250) as u8 + 1);
            d.finish_all();
        }
        assert_eq!(d.status().counters.destaged_lines, 0);
        let mark = d.started.len();
        d.drain();
        let count = writes(&d, mark).len();
        let share = count as f64 / lines.len() as f64;
        assert!(share <= 0.4, "{count} writes for {} lines: {share:.2}", lines.len());
        assert!(lines.iter().all(|l| d.data_disk.line(100 + l) == (l % 250) as u8 + 1));
    }
}

/// Sequential lines become writes of up to 1 MiB.
#[test]
fn sequential_lines_become_large_writes() {
    let mut d = Driver::never_idle(|options| options.segments = 64);
    for line in 0..512 {
        d.done(|d| d.write(100 + line, 1));
    }
    let mark = d.started.len();
    d.drain();
    let sizes: Vec<u64> = writes(&d, mark).iter().map(|io| io.length).collect();
    assert!(sizes.len() <= 4, "{sizes:?}");
    assert!(sizes.iter().all(|size| *size <= 1 << 20));
}

/// Within a batch addresses ascend, so that the arm sweeps once.
#[test]
fn a_batch_is_sorted_by_address() {
    for policy in POLICIES {
        let mut d = Driver::never_idle(|options| {
            options.segments = 64;
            options.engine.destage_policy = policy;
        });
        for line in shuffled(300) {
            d.done(|d| d.write(100 + 3 * line, 1));
        }
        let mark = d.started.len();
        d.drain();
        let mut last = 0;
        let mut batches = 1;
        for io in &d.started[mark..] {
            match io.kind {
                Kind::Write if io.device == Device::DataDisk => {
                    assert!(io.offset > last, "{policy:?}: {} after {last}", io.offset);
                    last = io.offset;
                }
                Kind::Flush if io.device == Device::DataDisk => {
                    last = 0;
                    batches += 1;
                }
                _ => {}
            }
        }
        assert!(batches <= 22, "a batch is a segment at least: {batches}");
    }
}

/// An overwritten line is destaged once, with its newest data: the work that the log spares.
#[test]
fn overwritten_lines_are_destaged_once() {
    let mut d = Driver::with(never_idle);
    for round in 1..=20 {
        d.write_durably(100..105, round);
    }
    d.drain();
    assert_eq!(d.status().counters.destaged_lines, 5);
    assert_eq!(d.data_disk.line(104), 20);
}

// ---- who goes first ---------------------------------------------------------------------------

/// While the data-disk works for a foreground read, no destage write is started; afterwards they go
/// on.
#[test]
fn foreground_reads_go_first() {
    let mut d = Driver::with(never_idle);
    for i in 0..60 {
        d.done(|d| d.write(100 + 2 * i, 1));
    }
    d.hold(|io| io.device == Device::DataDisk);
    let drain = d.submit(Operation::Drain, false);
    d.finish_all();
    let first = d.find_io(Device::DataDisk, Kind::Write).expect("destaging has begun");
    let read = d.submit(Operation::read(LbaRange::new(6000, 8)), false);
    let mark = d.started.len();
    let mut under_way = d.ios_of(Device::DataDisk, Kind::Write);
    assert_eq!(under_way[0], first);
    while let Some(id) = under_way.pop() {
        d.finish(id);
    }
    d.advance_time(Duration::from_millis(500));
    assert_eq!(writes(&d, mark).len(), 0, "the read is still under way");
    d.release();
    let io = d.find_io(Device::DataDisk, Kind::Read).expect("the read");
    d.finish(io);
    assert!(d.is_answered(read));
    d.expect_ok(drain);
}

/// Destaging waits for quiet; each request puts it off again. Not so when most segments are dirty.
#[test]
fn destaging_waits_for_quiet_until_the_high_mark() {
    let mut d = Driver::with(|options| {
        options.engine.idle_threshold_max = Duration::from_secs(1);
        options.engine.idle_threshold_min = Duration::from_secs(1);
        options.engine.dirty_high_percent = 60;
        options.engine.dirty_low_percent = 40;
    });
    d.write_durably([100], 1);
    let data_disk_writes = |d: &Driver| d.count_since(0, Device::DataDisk, Kind::Write);
    for _ in 0..10 {
        d.advance_time(Duration::from_millis(900));
        d.read(100);
        assert_eq!(data_disk_writes(&d), 0);
    }
    d.advance_time(Duration::from_millis(1000));
    assert_eq!(data_disk_writes(&d), 1);
    let mut segments = 0;
    while data_disk_writes(&d) == 1 {
        let first = 200 + 40 * segments;
        d.write_durably((0..LINES_PER_SEGMENT).map(|i| first + 2 * i), 1);
        segments += 1;
        assert!(segments < 12, "the high mark has passed");
    }
    assert!(segments >= 6, "{segments} segments of 16 were enough");
}

/// A read that began before its line was in the log takes it from the data-disk. What a failed
/// write would leave there is no answer, so the line waits for it.
#[test]
fn a_line_waits_for_reads_of_the_data_disk_below_it() {
    let mut d = Driver::with(never_idle);
    d.hold(|seen| seen.is(Device::DataDisk, Kind::Read));
    let read = d.submit(Operation::read(LbaRange::new(80, 8)), false);
    d.write_durably([10, 50], 2);
    let mark = d.started.len();
    let drain = d.submit(Operation::Drain, false);
    d.advance_time(Duration::from_secs(20));
    assert!(!d.is_answered(read));
    let written: Vec<u64> = writes(&d, mark).iter().map(|io| io.offset / LINE as u64).collect();
    assert!(!written.contains(&10), "written over a read under way: {written:?}");
    d.release();
    d.finish_all();
    assert!(d.is_answered(read));
    assert_eq!(one_byte(&d.reply_bytes(read)), 0);
    d.expect_ok(drain);
    assert_eq!([10, 50].map(|line| d.data_disk.line(line)), [2, 2]);
}

/// The same where the read never ends: it is given up, and the line goes.
#[test]
fn a_read_that_hangs_does_not_hold_up_its_line_for_ever() {
    let mut d = Driver::with(never_idle);
    d.hold(|seen| seen.is(Device::DataDisk, Kind::Read));
    let read = d.submit(Operation::read(LbaRange::new(80, 8)), false);
    d.write_durably([10], 2);
    d.done(|d| d.submit(Operation::Drain, false));
    assert_eq!(d.result(read), Err(RequestError::Io));
    assert_eq!(d.data_disk.line(10), 2);
}

// ---- caps -------------------------------------------------------------------------------------

/// The caps hold even for a drain: so many writes, and so many bytes, in a second.
#[test]
fn rate_caps_hold() {
    for (writes_max, bytes_max) in [(50, 0), (0, 400 << 10), (50, 100 << 10)] {
        let mut d = Driver::never_idle(|options| {
            options.engine.destage_writes_per_second_max = writes_max;
            options.engine.destage_bytes_per_second_max = bytes_max;
        });
        for i in 0..100 {
            d.done(|d| d.write(100 + 2 * i, 1));
        }
        let mark = d.started.len();
        d.drain();
        let times: Vec<Time> = writes(&d, mark).iter().map(|io| io.at).collect();
        assert_eq!(times.len(), 100);
        let bytes_cap = if bytes_max > 0 { bytes_max / LINE as u64 } else { u64::MAX };
        let writes_cap = if writes_max > 0 { writes_max } else { u64::MAX };
        let most = bytes_cap.min(writes_cap);
        for (index, at) in times.iter().enumerate() {
            let within = times[index..].iter().filter(|t| t.0 < at.0 + 1_000_000_000).count();
            assert!(within as u64 <= most + 1, "{within} in a second, {most} allowed");
        }
        let whole = times[99].since(times[0]);
        let expected = Duration(99 * 1_000_000_000 / most);
        assert!(whole.0 < expected.0 + 100_000_000, "and they are used: {whole:?}");
    }
}

// ---- physical sectors -------------------------------------------------------------------------

/// A disk of 4096-byte sectors gets whole ones; what was missing is read in the background, and is
/// in the log before. One of 512 gets what was written, and nothing is read.
#[test]
fn partial_sectors_are_completed_in_the_log_before_they_are_destaged() {
    for sector in [512, 4096] {
        let mut d = Driver::never_idle(|options| options.data_disk.physical_sector_size = sector);
        d.data_disk.rot(100 * LINE as u64, &[7; LINE]);
        d.write_blocks(801, 2, 1);
        d.write_blocks(805, 1, 2);
        d.done(Driver::flush);
        let mark = d.started.len();
        d.drain();
        let since = &d.started[mark..];
        assert!(since.iter().all(|io| {
            io.device != Device::DataDisk
                || io.kind != Kind::Write
                || io.offset.is_multiple_of(sector.into())
                    && io.length.is_multiple_of(sector.into())
        }));
        let position = |device, kind| since.iter().position(|io| io.is(device, kind));
        let (read, log, write) = (
            position(Device::DataDisk, Kind::Read),
            position(Device::CacheDisk, Kind::Write),
            position(Device::DataDisk, Kind::Write).expect("destaged"),
        );
        if sector == 4096 {
            assert_eq!(d.status().counters.completed_lines, 1);
            assert!(read < log && log < Some(write), "{read:?} {log:?} {write}");
        } else {
            assert_eq!((d.status().counters.completed_lines, read), (0, None));
        }
        let expected = [7, 1, 1, 7, 7, 2, 7, 7];
        for (block, byte) in expected.into_iter().enumerate() {
            let at = 100 * LINE + block * 512;
            assert_eq!(d.data_disk.current[at..at + 512], [byte; 512]);
        }
    }
}

/// A line is overwritten while it is being completed: what was read then is old and must not win.
///
/// ```text
/// completion   800..808  |---- read of 7s ----|
/// write        800..804     = 2                       -> 2 2 2 2 7 7 7 7, not 7s over the 2s
/// ```
#[test]
fn a_completion_does_not_overwrite_newer_blocks() {
    for is_discarded in [false, true] {
        let mut d = Driver::never_idle(|options| options.data_disk.physical_sector_size = 4096);
        d.data_disk.rot(100 * LINE as u64, &[7; LINE]);
        d.write_blocks(800, 1, 1);
        d.hold(|io| io.is(Device::DataDisk, Kind::Read));
        let drain = d.submit(Operation::Drain, false);
        d.finish_all();
        assert!(d.find_io(Device::DataDisk, Kind::Read).is_some(), "being completed");
        let rest = if is_discarded {
            d.discard(800, 8);
            0
        } else {
            7
        };
        d.write_blocks(800, 4, 2);
        d.release();
        d.expect_ok(drain);
        d.drain();
        let bytes = d.try_read(800, 8).expect("readable");
        assert_eq!(bytes[..2048], [2; 2048]);
        assert_eq!(bytes[2048..], [rest; 2048]);
        assert!(d.data_disk.current[100 * LINE..101 * LINE] == bytes);
    }
}

/// A cache full of parts of sectors: completing them takes room in the log, which is there because
/// requests keep out of it. Without that sectors would be written in part (C15).
#[test]
fn a_full_cache_still_writes_whole_sectors() {
    let mut d = Driver::never_idle(|options| options.data_disk.physical_sector_size = 4096);
    for line in shuffled(600) {
        d.write_blocks((100 + line) * 8 + line % 8, 1, (line % 250) as u8 + 1);
        if line % 4 == 0 {
            d.flush();
        }
    }
    d.finish_all();
    assert!(d.status().counters.stalled_writes > 0, "the cache was full");
    d.drain();
    for io in writes(&d, 0) {
        let is_whole = io.offset.is_multiple_of(4096) && io.length.is_multiple_of(4096);
        assert!(is_whole, "{} bytes at {}", io.length, io.offset);
    }
    for line in 0..600 {
        let at = (100 + line as usize) * LINE + (line % 8) as usize * 512;
        assert_eq!(d.data_disk.current[at..at + 512], [(line % 250) as u8 + 1; 512]);
    }
}

/// One read completes what is close together, another what is far away.
#[test]
fn lines_close_together_are_completed_by_one_read() {
    let mut d = Driver::never_idle(|options| options.data_disk.physical_sector_size = 4096);
    for line in [100, 104, 112, 500] {
        d.write_blocks(line * 8, 1, 1);
    }
    d.done(Driver::flush);
    let mark = d.started.len();
    d.drain();
    let reads: Vec<_> = d.started[mark..]
        .iter()
        .filter(|io| io.is(Device::DataDisk, Kind::Read))
        .map(|io| (io.offset / LINE as u64, io.length / LINE as u64))
        .collect();
    assert_eq!(reads, [(100, 13), (500, 1)]);
    assert_eq!(d.status().counters.completed_lines, 4);
}

/// What is missing of one line cannot be read: the lines that were to be read with it go on (C24).
#[test]
fn a_bad_sector_keeps_only_its_own_line_back() {
    let mut d = Driver::never_idle(|options| {
        options.data_disk.physical_sector_size = 4096;
        options.engine.drain_timeout = Duration::from_secs(1000);
    });
    let bad = 104 * LINE as u64;
    d.fail_always(Device::DataDisk, Kind::Read, bad..bad + 512, dcd_engine::IoError::Failed);
    for line in [100, 104, 108] {
        d.write_blocks(line * 8 + 1, 1, 1);
    }
    d.done(Driver::flush);
    let drain = d.submit(Operation::Drain, false);
    d.advance_time(Duration::from_secs(5));
    assert!(!d.is_answered(drain));
    assert_eq!(d.status().dirty_lines, 1);
    d.heal();
    d.advance_time(Duration::from_secs(60));
    d.expect_ok(drain);
    assert_eq!(d.data_disk.current[104 * LINE + 512], 1);
}

// ---- zeroes -----------------------------------------------------------------------------------

/// Zeroes go before the lines above them, and never over them.
#[test]
fn zeroes_are_destaged_before_the_lines_above_them() {
    let mut d = Driver::with(never_idle);
    d.data_disk.rot(100 * LINE as u64, &[7; 4 * LINE]);
    d.done(|d| d.discard(800, 32));
    d.write_durably([102], 1);
    d.hold(|io| io.is(Device::DataDisk, Kind::WriteZeroes));
    let drain = d.submit(Operation::Drain, false);
    d.finish_all();
    assert_eq!(d.count_since(0, Device::DataDisk, Kind::Write), 0, "102 waits");
    d.write_durably([101], 2);
    d.release();
    d.expect_ok(drain);
    d.drain();
    let content = [100, 101, 102, 103].map(|line| d.data_disk.line(line));
    assert_eq!(content, [0, 2, 1, 0]);
}

/// Space that is to stay allocated (NBD NO_HOLE) does; what is only discarded may be unmapped.
#[test]
fn zeroes_are_unmapped_only_where_they_may_be() {
    let mut d = Driver::with(never_idle);
    let kept = LbaRange::new(800, 80);
    let operation = Operation::WriteZeroes { range: kept, may_unmap: false };
    d.done(|d| d.submit(operation, false));
    d.done(|d| d.discard(4000, 80));
    d.drain();
    let zeroings = d.started.iter().filter(|io| io.is(Device::DataDisk, Kind::WriteZeroes));
    let mut count = 0;
    for io in zeroings {
        count += 1;
        assert_eq!(io.may_unmap, io.offset >= 4000 * 512);
    }
    assert!(count >= 2);
}

// ---- drain ------------------------------------------------------------------------------------

/// A drain ends although writes keep coming: it is for what came before it.
#[test]
fn a_drain_ends_under_continuing_load() {
    for policy in POLICIES {
        for ack in [AckMode::Memory, AckMode::Durable] {
            let mut d = Driver::never_idle(|options| {
                options.engine.destage_policy = policy;
                options.engine.ack = ack;
            });
            d.write_durably((0..30).map(|i| 100 + 2 * i), 1);
            let drain = d.submit(Operation::Drain, false);
            let mut writes = 0u64;
            while !d.is_answered(drain) {
                writes += 1;
                assert!(writes < 5_000, "{policy:?}: the drain does not end");
                // One new write for each I/O that ends: the disks never rest.
                d.write(300 + writes * 7 % 700, 2);
                d.finish_one();
            }
            assert!((0..30).all(|i| d.data_disk.line(100 + 2 * i) == 1));
        }
    }
}

/// Everything, also what is in an open record.
#[test]
fn a_drain_moves_what_was_just_acknowledged() {
    let mut d = Driver::with(never_idle);
    d.write(100, 1);
    d.drain();
    assert_eq!(d.data_disk.line(100), 1);
    assert_eq!(d.data_disk.volatile_count(), 0, "and it is flushed");
    assert_eq!(d.status().dirty_lines, 0);
}

// ---- policies ---------------------------------------------------------------------------------

/// ```text
/// segment       a (oldest)   b      c (newest)
/// live lines    15           3      15
/// ```
#[test]
fn policies_pick_different_segments() {
    for (policy, first_line) in [
        (DestagePolicyKind::FirstWriteFirst, 100),
        (DestagePolicyKind::LeastValidFirst, 200),
        (DestagePolicyKind::LastWriteFirst, 300),
    ] {
        let mut d = Driver::with(|options| options.engine.destage_policy = policy);
        let lines = |first: u64| (0..LINES_PER_SEGMENT).map(move |i| first + 2 * i);
        d.write_durably(lines(100), 1);
        d.write_durably(lines(200), 1);
        d.write_durably(lines(200).skip(3).chain([300, 302, 304]), 1);
        d.run_until(|d| d.count_since(0, Device::DataDisk, Kind::Write) > 0);
        let line = writes(&d, 0)[0].offset / LINE as u64;
        match policy {
            // The newest holds the rest of b as well; the lowest address goes first.
            DestagePolicyKind::LastWriteFirst => assert_eq!(line, 206, "{policy:?}"),
            _ => assert_eq!(line, first_line, "{policy:?}"),
        }
    }
}

/// A logical DCD: cache-disk and data-disk share an arm, so destaging also gives way to log writes.
#[test]
fn with_one_disk_log_writes_go_first() {
    let mut d = Driver::never_idle(|options| {
        options.engine.one_disk = true;
        options.engine.ack = AckMode::Log;
    });
    d.write_durably((0..30).map(|i| 100 + 2 * i), 1);
    d.hold(|io| io.is(Device::CacheDisk, Kind::Write));
    d.write(500, 1);
    let mark = d.started.len();
    d.submit(Operation::Drain, false);
    d.advance_time(Duration::from_millis(100));
    assert_eq!(writes(&d, mark).len(), 0);
    d.release();
    d.drain();
    assert_eq!(d.data_disk.line(158), 1);
}

/// A write under way is never changed: what the data-disk gets is what it was when it was started.
#[test]
fn a_destage_write_has_a_buffer_of_its_own() {
    let mut d = Driver::with(never_idle);
    d.write_durably([100], 1);
    d.hold(|io| io.is(Device::DataDisk, Kind::Write));
    d.submit(Operation::Drain, false);
    d.finish_all();
    d.write_durably([100], 2);
    let io = d.ios.iter().find(|io| io.device == Device::DataDisk).expect("under way");
    let IoOperation::Write { data, .. } = &io.operation else { panic!("a write") };
    assert_eq!(common::one_byte(&d.bytes_of(data)), 1);
}

// ---- cancelled --------------------------------------------------------------------------------

/// The other drain goes on; what the first had moved stays moved.
#[test]
fn one_of_two_drains_is_cancelled() {
    let mut d = Driver::with(never_idle);
    d.write_durably((0..30).map(|i| 2 * i), 1);
    let first = d.submit(Operation::Drain, false);
    let second = d.submit(Operation::Drain, false);
    let cancel = d.submit(Operation::CancelDrain { drain: first }, false);
    assert_eq!(d.result(first), Err(RequestError::Cancelled));
    assert_eq!(d.result(cancel), Ok(()));
    d.expect_ok(second);
    assert!((0..30).all(|i| d.data_disk.line(2 * i) == 1));
    // Too late is harmless.
    let cancel = d.submit(Operation::CancelDrain { drain: second }, false);
    assert_eq!(d.result(cancel), Ok(()));
}

/// A detach that is cancelled while it moves ends as a shutdown: closed, the rest in the log.
#[test]
fn a_cancelled_detach_is_a_shutdown() {
    let mut d = Driver::with(never_idle);
    let lines = 3 * LINES_PER_SEGMENT;
    d.write_durably((0..lines).map(|i| 2 * i), 1);
    d.hold(|io| io.is(Device::DataDisk, Kind::Write));
    let detach = d.submit(Operation::Detach, false);
    while d.finish_one() {}
    assert!(!d.is_answered(detach), "its writes are held");
    let cancel = d.submit(Operation::CancelDetach, false);
    assert_eq!(d.result(cancel), Ok(()));
    let late = d.write(100, 2);
    assert_eq!(d.result(late), Err(RequestError::ShuttingDown));
    d.release();
    assert_eq!(d.wait(detach), Err(RequestError::Cancelled));
    d.forget_engine();
    d.reopen();
    assert!(d.status().recovery.was_closed);
    // One segment was moved.
    let dirty = d.status().dirty_lines;
    assert!(0 < dirty && dirty < lines, "{dirty} of {lines}");
    assert!((0..lines).all(|i| d.read(2 * i) == 1));
    // And when all has been moved it is too late.
    d.done(|d| d.submit(Operation::Detach, false));
    let cancel = d.submit(Operation::CancelDetach, false);
    assert_eq!(d.result(cancel), Ok(()));
}
