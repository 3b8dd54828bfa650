//! What no other test noticed when the engine was changed in one place (`make mutants`): what it shows to
//! the outside, and when it does what it does. Each test names the change.

mod common;

use common::{Driver, Kind, LINE, LINES_PER_SEGMENT, Options, Seen, never_idle};
use dcd_engine::format::checkpoint::{Checkpoint, LiveSlot, LogPosition};
use dcd_engine::format::checksum::crc32c;
use dcd_engine::format::record::{Entry, Record, RecordHeader};
use dcd_engine::units::{FragmentMask, Line, RecordNumber, SegmentIndex, SegmentSerial, SlotIndex};
use dcd_engine::{Device, Duration, Engine, FormatError, IoError, LbaRange, OpenError};

// ---- seen from outside ------------------------------------------------------------------------

/// Noticed: a block status of anything else.
///
/// ```text
/// blocks    0 ... 799   800 ... 839   840 ... 847   848 ... 879   880 ...
///           unknown     zero          written       zero          unknown
/// ```
#[test]
fn block_status_tells_zeroes_in_pieces() {
    let mut d = Driver::with(never_idle);
    let end = d.options.data_disk.blocks;
    let status = |d: &Driver, start: u64, pieces_max: usize| {
        d.engine().block_status(LbaRange::new(start, end - start), pieces_max)
    };
    assert_eq!(status(&d, 0, 8), [(end, false)]);
    let zeroed = d.discard(800, 80);
    d.expect_ok(zeroed);
    assert_eq!(status(&d, 0, 8), [(800, false), (80, true), (end - 880, false)]);
    d.write(105, 1);
    let all = [(800, false), (40, true), (8, false), (32, true), (end - 880, false)];
    assert_eq!(status(&d, 0, 8), all);
    assert_eq!(status(&d, 0, 5), all);
    assert_eq!(status(&d, 0, 2), all[..2]);
    assert_eq!(status(&d, 0, 1), all[..1]);
    assert_eq!(status(&d, 843, 2), [(5, false), (32, true)], "it begins within a line");
}

/// Noticed: a range beyond the volume, or of parts of logical blocks, is called right.
#[test]
fn ranges_are_within_the_volume_and_of_whole_blocks() {
    let mut d = Driver::with(|options| options.data_disk.logical_block_size = 4096);
    let end = d.options.data_disk.blocks;
    for (start, blocks, expected) in [
        (0, end, true),
        (end, 0, true),
        (8, 8, true),
        (0, end + 8, false),
        (end, 8, false),
        (u64::MAX - 7, 8, false),
        (4, 8, false),
        (8, 4, false),
    ] {
        assert_eq!(
            d.engine().check_range(LbaRange::new(start, blocks)),
            expected,
            "{start} {blocks}"
        );
    }
    d.options.data_disk.logical_block_size = 512;
    d.kill();
    d.reopen();
    assert!(d.engine().check_range(LbaRange::new(4, 3)));
}

/// Noticed: segment memory that was never made by an engine like this one is taken.
#[test]
fn segment_memory_tells_its_number_of_buffers() {
    let options = Options::default();
    let geometry = options.geometry();
    let buffers = |size: u64| Engine::segment_buffers_of(&geometry, size);
    let segment = geometry.segment_size_bytes;
    let size = Engine::segment_memory_size(&geometry, &options.engine) as u64;
    assert_eq!((size, buffers(size)), (4096 + 8 * segment, Some(8)));
    assert_eq!([3, 2, 0].map(|n| buffers(4096 + n * segment)), [Some(3), None, None]);
    assert_eq!([size - 1, size + 1, 4095, 0].map(buffers), [None; 4]);
}

/// Noticed: the index is said to take another amount of memory.
#[test]
fn the_size_of_the_index_is_told() {
    let d = Driver::new();
    // 240 data slots at 90 %, 10 bytes each; 256 checksums; about 32 bytes for each of 16 segments.
    let table = (240 * 100 / 90 + 16) * 10 + 256 * 4;
    let index = d.status().index_bytes;
    assert!((table + 16 * 16..=table + 16 * 32).contains(&index), "{index}");
}

/// Noticed: a counter that counts otherwise.
#[test]
fn counters_count() {
    let mut d = Driver::with(never_idle);
    let before = d.status().counters;
    d.write_durably([100, 101], 1);
    let write = d.write_fua(102, 2);
    d.expect_ok(write);
    let discard = d.discard(808, 8);
    d.expect_ok(discard);
    d.read(100);
    d.read(300);
    let after = d.status().counters;
    assert_eq!(after.writes - before.writes, 3);
    assert_eq!(after.write_bytes - before.write_bytes, 3 * LINE as u64);
    assert_eq!((after.flushes - before.flushes, after.fuas - before.fuas), (1, 1));
    assert_eq!(after.zeroes - before.zeroes, 1);
    assert_eq!(after.reads - before.reads, 2);
    assert_eq!(after.read_bytes - before.read_bytes, 2 * LINE as u64);
    assert_eq!(after.read_hit_lines - before.read_hit_lines, 1);
    assert_eq!(after.read_miss_lines - before.read_miss_lines, 1);
    assert_eq!(after.log_writes - before.log_writes, 2);
    assert_eq!(after.records - before.records, 2);
    assert_eq!(after.cache_disk_fua_writes - before.cache_disk_fua_writes, 2);
    // A header and two lines, a header and one.
    assert_eq!(after.log_write_bytes - before.log_write_bytes, 5 * LINE as u64);
    assert_eq!(after.logged_lines - before.logged_lines, 3);
}

/// Noticed: a counter of what goes to the data-disk that counts otherwise.
///
/// ```text
/// lines  100 ... 115     300 301 302   310        zeroed 500 501
///        past the log    one write     one more
/// ```
#[test]
fn counters_of_the_data_disk_count() {
    let mut d = Driver::with(|options| {
        never_idle(options);
        options.engine.bypass_threshold_bytes = 64 << 10;
    });
    let before = d.status().counters;
    d.write_durably([300, 301, 302, 310], 1);
    d.write_durably([301], 2);
    let large = d.write_blocks(100 * 8, 16 * 8, 3);
    d.expect_ok(large);
    let discard = d.discard(500 * 8, 16);
    d.expect_ok(discard);
    let after = d.status().counters;
    assert_eq!(after.overwritten_lines - before.overwritten_lines, 1);
    assert_eq!(
        (after.bypasses - before.bypasses, after.bypass_bytes - before.bypass_bytes),
        (1, 64 << 10)
    );
    let mark = d.started.len();
    d.drain();
    let after = d.status().counters;
    assert_eq!(after.destaged_lines - before.destaged_lines, 4);
    assert_eq!(after.destage_writes - before.destage_writes, 2);
    assert_eq!(after.destage_write_bytes - before.destage_write_bytes, 4 * LINE as u64);
    assert_eq!(after.destaged_zero_ranges - before.destaged_zero_ranges, 1);
    assert_eq!(after.destage_batches - before.destage_batches, 1);
    let reads = d.started[mark..].iter().filter(|io| io.is(Device::CacheDisk, Kind::Read));
    let read: u64 = reads.map(|io| io.length).sum();
    assert_eq!(after.destage_read_bytes - before.destage_read_bytes, read);
    // Of the bypass, of the zeroes, of the batch.
    assert_eq!(after.data_disk_flushes - before.data_disk_flushes, 3);
    assert_eq!((after.data_disk_errors, after.cache_disk_errors), (0, 0));

    d.fail_next(Device::DataDisk, Kind::Read, IoError::Failed);
    assert!(d.try_read(700 * 8, 8).is_err());
    d.fail_next(Device::CacheDisk, Kind::Write, IoError::Failed);
    d.write_durably([100], 1);
    let after = d.status().counters;
    assert_eq!((after.data_disk_errors, after.cache_disk_errors), (1, 1));
    assert_eq!(after.checksum_errors, 0);
}

/// Noticed: bytes of checkpoints counted otherwise, or another number of them.
#[test]
fn counters_of_checkpoints_count() {
    let mut d = Driver::with(never_idle);
    d.write_durably([100], 1);
    let before = d.status().counters;
    let mark = d.started.len();
    d.drain();
    d.advance_time(Duration::from_secs(100_000));
    let area = d.superblock().geometry.segments_offset;
    let in_area = |io: &&Seen| io.is(Device::CacheDisk, Kind::Write) && io.offset < area;
    let written: u64 = d.started[mark..].iter().filter(in_area).map(|io| io.length).sum();
    let after = d.status().counters;
    assert!(d.status().cache_disk_clean);
    assert!(after.checkpoints > before.checkpoints);
    assert_eq!(after.checkpoint_bytes - before.checkpoint_bytes, written);
}

// ---- which way --------------------------------------------------------------------------------

/// Noticed: a large write that is not of whole lines goes past the log, or one that is does not.
#[test]
fn only_large_writes_of_whole_lines_go_past_the_log() {
    let mut d = Driver::with(|options| {
        never_idle(options);
        options.engine.bypass_threshold_bytes = 64 << 10;
    });
    for (start, blocks, expected) in
        [(800, 128, 1), (800, 127, 0), (800, 120, 0), (801, 135, 0), (800, 129, 0), (801, 129, 0)]
    {
        let before = d.status().counters.bypasses;
        let write = d.write_blocks(start, blocks, 1);
        d.expect_ok(write);
        let bypasses = d.status().counters.bypasses - before;
        assert_eq!(bypasses, expected, "{blocks} blocks from {start} on");
        assert_eq!(d.try_read(start, blocks), Ok(vec![1; blocks as usize * 512]));
    }
}

/// Noticed: misses that are near one another are read one by one, or distant ones together (a gap of
/// 64 KiB passes by in less time than a second access takes).
#[test]
fn misses_up_to_64_kib_apart_are_read_together() {
    let mut d = Driver::with(never_idle);
    d.write_durably(101..119, 1);
    for (from, lines, reads) in [(102, 18, vec![(119, 1)]), (102, 17, vec![])] {
        let mark = d.started.len();
        assert!(d.try_read(from * 8, lines * 8).is_ok());
        assert_eq!(data_disk_reads(&d, mark), reads);
    }
    d.discard(117 * 8, 16);
    d.drain();
    d.write_durably(101..117, 1);
    // Lines 100 and 117 are misses, 16 lines apart: 128 blocks.
    let mark = d.started.len();
    assert!(d.try_read(100 * 8, 18 * 8).is_ok());
    assert_eq!(data_disk_reads(&d, mark), [(100, 18)]);
    d.write_durably([117], 1);
    let mark = d.started.len();
    assert!(d.try_read(100 * 8, 19 * 8).is_ok());
    assert_eq!(data_disk_reads(&d, mark), [(100, 1), (118, 1)]);
}

/// Lines of the data-disk that were read since: first and count.
fn data_disk_reads(d: &Driver, mark: usize) -> Vec<(u64, u64)> {
    let reads = d.started[mark..].iter().filter(|io| io.is(Device::DataDisk, Kind::Read));
    reads.map(|io| (io.offset / LINE as u64, io.length / LINE as u64)).collect()
}

/// Noticed: lines to complete that are near one another are read one by one, or all in one read.
///
/// ```text
/// lines  100  116   133        300 316 332 ... 556
///        one read   another    256 lines: one read, and the last line another
/// ```
#[test]
fn completions_up_to_64_kib_apart_are_read_together() {
    let mut d = Driver::with(|options| {
        never_idle(options);
        options.segment_size = 256 << 10;
        options.data_disk.physical_sector_size = 4096;
    });
    let lines = [100, 116, 133].into_iter().chain((300..=556).step_by(16));
    for line in lines {
        d.write_blocks(line * 8 + 1, 1, 1);
    }
    d.write_durably([], 1);
    let mark = d.started.len();
    d.drain();
    let mut reads = data_disk_reads(&d, mark);
    reads.sort_unstable();
    assert_eq!(reads, [(100, 17), (133, 1), (300, 241), (556, 1)]);
}

/// Noticed: more or fewer ranges are zeroed on the data-disk before a flush than 64.
#[test]
fn zeroes_are_flushed_every_64_ranges() {
    let mut d = Driver::with(never_idle);
    for i in 0..70 {
        d.discard((100 + 2 * i) * 8, 8);
    }
    d.write_durably([], 1);
    assert_eq!(d.status().zero_ranges, 70);
    let mark = d.started.len();
    d.drain();
    let of_data_disk = d.started[mark..].iter().filter(|io| io.device == Device::DataDisk);
    let kinds: Vec<Kind> = of_data_disk.map(|io| io.kind).collect();
    let flushes: Vec<usize> =
        (0..kinds.len()).filter(|index| kinds[*index] == Kind::Flush).collect();
    assert_eq!((flushes, kinds.len()), (vec![64, 71], 72));
    assert_eq!(d.status().zero_ranges, 0);
}

/// Noticed: a write that the buffers cannot take at once is not cut small enough, and finds no room
/// however long it waits.
///
/// ```text
/// 4 buffers of 15 lines for requests; the one being filled has room for 2 more
/// 50 lines in one part: never. 3 buffers less a header each, 42, and then 8: at once, and soon.
/// ```
#[test]
fn every_part_of_a_write_finds_room_in_the_end() {
    let mut d = Driver::with(never_idle);
    d.write_durably(100..112, 1);
    let asked_at = d.now;
    let write = d.write_blocks(200 * 8, 50 * 8, 2);
    d.expect_ok(write);
    assert!(d.now.since(asked_at) < Duration::from_secs(1));
    assert!((200..250).all(|line| d.read(line) == 2));
}

/// Noticed: a write that gets room bit by bit fails after `full-timeout` all the same (C25).
#[test]
fn a_write_that_gets_on_does_not_run_out_of_time() {
    let mut d = Driver::with(|options| {
        never_idle(options);
        options.segments = 64;
        options.engine.full_timeout = Duration::from_secs(5);
    });
    // A part waits for two flushes at most, of 2 s each.
    d.hold(|io| io.is(Device::CacheDisk, Kind::Flush));
    let write = d.write_blocks(100 * 8, 200 * 8, 1);
    let asked_at = d.now;
    while !d.is_answered(write) {
        d.advance_time(Duration::from_secs(2));
        if let Some(flush) = d.find_io(Device::CacheDisk, Kind::Flush) {
            d.finish(flush);
            d.finish_all();
        }
    }
    assert_eq!(d.result(write), Ok(()));
    assert!(d.now.since(asked_at) > Duration::from_secs(6), "{:?}", d.now.since(asked_at));
}

// ---- when ------------------------------------------------------------------------------------

/// Noticed: a commit for fewer buffers than half of those that requests may fill, or for more.
#[test]
fn records_are_made_durable_before_the_buffers_run_out() {
    let mut d = Driver::with(|options| {
        never_idle(options);
        options.segments = 64;
        options.engine.segment_buffers = 16;
    });
    let flushes = |d: &Driver| d.count_since(0, Device::CacheDisk, Kind::Flush);
    let before = flushes(&d);
    for line in 0..4 * LINES_PER_SEGMENT {
        d.write(100 + line, 1);
        d.finish_all();
    }
    assert_eq!(flushes(&d), before, "four of the eight for requests");
    d.write(99, 1);
    d.finish_all();
    assert_eq!(flushes(&d), before + 1, "five of them");
}

/// Noticed: a commit at another moment than when half of `max-delay` has passed.
#[test]
fn a_commit_starts_after_half_of_the_longest_delay() {
    let mut d = Driver::with(never_idle);
    d.write_durably([90], 1);
    let mark = d.started.len();
    d.write(100, 1);
    let due = d.now.after(Duration::from_millis(50));
    assert_eq!((d.started.len(), d.wake_up()), (mark, Some(due)));
    d.write(101, 1);
    d.advance_time(Duration::from_millis(50));
    assert_eq!(d.count_since(mark, Device::CacheDisk, Kind::Write), 1, "both in one");
    assert!(d.started[mark].fua && d.started[mark].at == due);
}

/// Noticed: no wake-up is asked for. Nobody else wakes an engine that has nothing to do.
#[test]
fn an_empty_cache_asks_to_be_woken_for_its_last_checkpoint() {
    let mut d = Driver::new();
    d.write_durably([100], 1);
    d.drain();
    d.finish_all();
    let drained = d.now;
    d.run_until(|d| d.status().cache_disk_clean);
    assert!(d.now.since(drained) <= Duration::from_secs(2));
}

/// Noticed: a checkpoint for one empty segment while the cache is nearly full, or none for two.
///
/// ```text
/// 64 segments, 60 filled with lines of their own, 3 or 4 free: few.
/// One of them is emptied: not worth a checkpoint. Another: worth it.
/// ```
#[test]
fn with_few_free_segments_two_empty_ones_are_worth_a_checkpoint() {
    let mut d = Driver::with(|options: &mut Options| {
        never_idle(options);
        options.segments = 64;
    });
    let mut line = 0;
    while d.status().segments.free > 4 {
        d.write_durably(line..line + LINES_PER_SEGMENT, 1);
        line += LINES_PER_SEGMENT;
    }
    let segments = d.status().segments;
    assert!(segments.empty == 0 && segments.free == 4, "{segments:?}");
    let before = d.status().counters.checkpoints;
    let blocks = LINES_PER_SEGMENT * 8;
    for (first, expected) in [(0, 0), (1, 1)] {
        let discard = d.discard(first * blocks, blocks);
        d.expect_ok(discard);
        d.finish_all();
        let made = d.status().counters.checkpoints - before;
        assert_eq!(made, expected, "{:?}", d.status().segments);
    }
}

// ---- damage ----------------------------------------------------------------------------------

/// Noticed: a place behind the end of the log that cannot be read is passed over in silence. Records
/// that were logged again elsewhere may begin there (C22), so a start needs a person's word.
#[test]
fn what_cannot_be_read_behind_the_end_is_not_passed_over() {
    let mut d = Driver::with(never_idle);
    d.write_durably([100], 1);
    let geometry = d.superblock().geometry;
    let segment = (d.slot_of(1) - geometry.segments_offset) / geometry.segment_size_bytes;
    d.power_cut();
    let next = geometry.segments_offset + (segment + 2) * geometry.segment_size_bytes;
    d.fail_always(Device::CacheDisk, Kind::Read, next..next + LINE as u64, IoError::Failed);
    match d.try_open() {
        Err(OpenError::Io { device: Device::CacheDisk, offset, error: IoError::Failed }) => {
            assert_eq!(offset, next);
        }
        other => panic!("{other:?}"),
    }
    d.options.engine.accept_damage = true;
    d.reopen();
    assert_eq!(d.read(100), 1);
}

/// Noticed: a forged log with more lines than it has slots is not refused but stops the process.
///
/// ```text
/// segment 0     slot 0 ... 13: lines   14: record   15: one more line     the others: lines
/// ```
#[test]
fn a_log_of_more_lines_than_slots_is_refused() {
    let mut d = Driver::created(never_idle);
    let (uuid, geometry) = (d.options.uuid, d.superblock().geometry);
    let page = [7; LINE];
    let checksum = crc32c(&page);
    let (segment, serial, slot_in_segment) = (SegmentIndex(0), SegmentSerial(20), 14);
    let slots = (0..geometry.slots()).filter(|slot| !(14..16).contains(slot));
    let lines_max = geometry.data_slots_max();
    let live: Vec<LiveSlot> = (0..lines_max)
        .zip(slots)
        .map(|(line, slot)| LiveSlot {
            line: Line(line.into()),
            mask: FragmentMask::FULL,
            slot: SlotIndex(slot),
            checksum,
        })
        .collect();
    let forged = Checkpoint {
        uuid,
        generation: 2,
        epoch: 0,
        position: LogPosition {
            segment,
            serial,
            slot_in_segment,
            next_record: RecordNumber(5),
            previous_checksum: 9,
        },
        free: Vec::new(),
        filled: (0..geometry.segments)
            .map(|index| (SegmentIndex(index), SegmentSerial(20 - u64::from(index))))
            .collect(),
        live,
        zeroes: Vec::new(),
        poisoned: Vec::new(),
        witnesses: Vec::new(),
    };
    let record = |line: u64| Record {
        header: RecordHeader {
            uuid,
            epoch: 0,
            serial,
            segment,
            slot_in_segment,
            number: RecordNumber(5),
            previous_checksum: 9,
            durable: RecordNumber(4),
            checkpoint_generation: 2,
            unfinished: 0,
        },
        entries: vec![Entry::Data { line: Line(line), mask: FragmentMask::FULL, checksum }],
        checksum: 0,
    };
    d.cache_disk.rot(geometry.checkpoint_offsets[0], forged.encode().bytes());
    let at = geometry.slot_offset(geometry.slot(segment, slot_in_segment));
    d.cache_disk.rot(at, &record(900).encode());
    d.cache_disk.rot(at + LINE as u64, &page);
    let expected =
        FormatError::Field { what: "the log", field: "number of lines", found: lines_max.into() };
    match d.try_open() {
        Err(OpenError::Format(error)) => assert_eq!(error, expected),
        other => panic!("{other:?}"),
    }
    // One that the log holds already is no line more.
    d.cache_disk.rot(at, &record(100).encode());
    d.reopen();
    assert_eq!(d.status().dirty_lines, lines_max.into());
    assert_eq!(d.read(100), 7);
}
