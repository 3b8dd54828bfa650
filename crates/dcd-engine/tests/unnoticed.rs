//! What no other test noticed when the engine was changed in one place (`make mutants`): which way
//! things go, and when. Each test names the change. What the engine tells is in `status.rs`, the
//! pace of destaging in `pace.rs`.

mod common;

use common::{Driver, Kind, LINE, LINES_PER_SEGMENT, Options, never_idle};
use dcd_engine::format::checkpoint::{Checkpoint, LiveSlot, LogPosition};
use dcd_engine::format::checksum::crc32c;
use dcd_engine::format::geometry::ZERO_RANGES_MAX;
use dcd_engine::format::record::{Entry, Record, RecordHeader};
use dcd_engine::units::{FragmentMask, Line, RecordNumber, SegmentIndex, SegmentSerial, SlotIndex};
use dcd_engine::{
    Device, Duration, FormatError, IoError, LbaRange, OpenError, Operation, RequestError,
};

// ---- which way --------------------------------------------------------------------------------

/// Noticed: a large write that is not of whole lines goes past the log, or one that is does not.
#[test]
fn only_large_writes_of_whole_lines_go_past_the_log() {
    let mut d = Driver::never_idle(|options| options.engine.bypass_threshold_bytes = 64 << 10);
    for (start, blocks, expected) in
        [(800, 128, 1), (800, 127, 0), (800, 120, 0), (801, 135, 0), (800, 129, 0), (801, 129, 0)]
    {
        let before = d.status().counters.bypasses;
        d.done(|d| d.write_blocks(start, blocks, 1));
        let bypasses = d.status().counters.bypasses - before;
        assert_eq!(bypasses, expected, "{blocks} blocks from {start} on");
        assert_eq!(d.try_read(start, blocks), Ok(vec![1; blocks as usize * 512]));
    }
}

/// Noticed: misses that are near one another are read one by one, or distant ones together (a gap
/// of 64 KiB passes by in less time than a second access takes).
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
    let mut d = Driver::never_idle(|options| {
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
    d.done(|d| d.write_blocks(200 * 8, 50 * 8, 2));
    assert!(d.now.since(asked_at) < Duration::from_secs(1));
    assert!((200..250).all(|line| d.read(line) == 2));
}

/// Noticed: with few segments and many buffers, parts that are all or nothing (C14) are smaller
/// than they can be: six of sixteen segments, less two slots each.
#[test]
fn parts_are_as_large_as_a_small_cache_allows() {
    let mut d = Driver::never_idle(|options| options.engine.segment_buffers = 32);
    d.write_durably([90], 9);
    d.hold(|io| io.is(Device::CacheDisk, Kind::Write));
    d.write_blocks(100 * 8, 84 * 8, 5);
    d.flush();
    d.finish_all();
    let records = d.ios_of(Device::CacheDisk, Kind::Write);
    let (_, all_but_the_last) = records.split_last().expect("some records");
    assert_eq!(records.len(), 6);
    all_but_the_last.iter().for_each(|record| d.finish(*record));
    d.power_cut_keeping(|_, _| true);
    d.reopen();
    assert_eq!(d.read(90), 9);
    assert!((100..184).all(|line| d.read(line) == 0));
}

/// Noticed: a write that gets room bit by bit fails after `full-timeout` all the same (C25).
#[test]
fn a_write_that_gets_on_does_not_run_out_of_time() {
    let mut d = Driver::never_idle(|options| {
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

/// Noticed: a checkpoint after fewer segments than an eighth of all, or after more: a start reads
/// what was filled since.
#[test]
fn a_checkpoint_is_due_after_an_eighth_of_the_segments() {
    let mut d = Driver::never_idle(|options| options.segments = 64);
    let mut made_at = Vec::new();
    let mut before = d.status().counters.checkpoints;
    for segment in 1..=40 {
        // A checkpoint within would take a slot for a header.
        let first = segment * LINES_PER_SEGMENT;
        d.write_durably(first..first + LINES_PER_SEGMENT - 1, 1);
        d.write_durably([first + LINES_PER_SEGMENT - 1], 1);
        d.finish_all();
        let made = d.status().counters.checkpoints;
        if made > before {
            made_at.push(d.status().segments.dirty + d.status().segments.buffered);
        }
        before = made;
    }
    assert!(made_at.len() >= 4, "{made_at:?}");
    assert!(made_at.windows(2).all(|w| w[1] - w[0] == 8), "{made_at:?}");
}

/// Noticed: more zero ranges gather than half of those that a checkpoint has room for, or fewer.
/// What is logged until the next checkpoint needs the other half.
#[test]
fn zero_ranges_gather_to_half_of_what_a_checkpoint_holds() {
    // A discard may cut a range of the other kind in two: for one range more there must be room.
    let most = ZERO_RANGES_MAX / 2 - 1;
    let mut d = Driver::never_idle(|options| {
        options.segments = 64;
        options.data_disk.blocks = (2 * most + 8) * 8;
    });
    d.hold(|io| io.is(Device::DataDisk, Kind::WriteZeroes));
    let discards: Vec<_> = (0..most).map(|i| d.discard(2 * i * 8, 8)).collect();
    d.finish_all();
    assert!(discards.iter().all(|discard| d.is_answered(*discard)));
    // Some are on their way to the data-disk, and stay there here.
    assert_eq!(d.status().zero_ranges, most);
    let one_more = d.discard(2 * most * 8, 8);
    d.finish_all();
    assert!(!d.is_answered(one_more));
    d.release();
    d.expect_ok(one_more);
}

/// Noticed: a disk that does not answer is given up at another moment than after `io-timeout`
/// (C26), or nobody asks to be woken for that.
#[test]
fn an_io_is_given_up_after_the_timeout() {
    let mut d = Driver::with(never_idle);
    d.hold(|io| io.is(Device::DataDisk, Kind::Read));
    let range = LbaRange::new(800, 8);
    let read = d.submit(Operation::read(range), false);
    assert!(d.wake_up().is_some());
    d.advance_time(Duration(d.options.engine.io_timeout.0 - 1));
    assert!(!d.is_answered(read));
    d.advance_time(Duration(1));
    assert_eq!(d.result(read), Err(RequestError::Io));
    assert_eq!(d.status().counters.data_disk_errors, 1);
}

/// Noticed: a commit for fewer buffers than half of those that requests may fill, or for more.
#[test]
fn records_are_made_durable_before_the_buffers_run_out() {
    let mut d = Driver::never_idle(|options| {
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

/// Noticed: a checkpoint for empty segments that a record can announce.
///
/// ```text
/// 64 segments, 60 filled with lines of their own, 3 or 4 free: few.
/// Two of them are emptied, and filled again without another checkpoint.
/// ```
#[test]
fn empty_segments_are_filled_again_without_a_checkpoint() {
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
    d.done(|d| d.discard(0, 2 * LINES_PER_SEGMENT * 8));
    d.write_durably([line], 2);
    d.finish_all();
    let segments = d.status().segments;
    assert!(segments.empty == 0 && segments.free >= 5, "{segments:?}");
    assert_eq!(d.status().counters.checkpoints, before);
    // What was announced is what a start finds.
    d.power_cycle();
    let byte = |d: &mut Driver, line: u64| d.try_read(line * 8, 8).map(|bytes| bytes[0]);
    assert_eq!((byte(&mut d, 0), byte(&mut d, line)), (Ok(0), Ok(2)));
}

// ---- damage ----------------------------------------------------------------------------------

/// Noticed: a place behind the end of the log that cannot be read is passed over in silence.
/// Records that were logged again elsewhere may begin there (C22), so a start needs a person's
/// word.
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
        // Of a later session than the superblock: that one was parted, and its log would not count.
        epoch: 1,
        position: LogPosition {
            segment,
            serial,
            slot_in_segment,
            next_record: RecordNumber(5),
            previous_checksum: 9,
        },
        order: 0,
        free: Vec::new(),
        filled: (0..geometry.segments)
            .map(|index| (SegmentIndex(index), SegmentSerial(20 - u64::from(index))))
            .collect(),
        live,
        zeroes: Vec::new(),
        poisoned: Vec::new(),
        witnesses: Vec::new(),
        copy_pages: Vec::new(),
    };
    let record = |line: u64| Record {
        header: RecordHeader {
            uuid,
            epoch: 1,
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
