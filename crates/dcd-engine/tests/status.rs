//! What the engine tells of itself: counters, the report of a start, sizes, block status. Mutants
//! (`make mutants`) changed it unnoticed; each test names the change.

mod common;

use common::{Driver, Kind, LINE, Options, Seen, never_idle};
use dcd_engine::{Device, Duration, Engine, IoError, LbaRange, Phase};

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
    d.done(|d| d.discard(800, 80));
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
    d.kill_and_reopen();
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
    let mut d = Driver::new();
    // 16 bytes for each of 64 buckets, and 32 at most for each of 16 segments that was touched.
    let index = d.status().index_bytes;
    assert!((64 * 16..=64 * 16 + 16 * 32).contains(&index), "{index}");
    d.write_durably(100..140, 1);
    let lines = d.status().index_bytes - index;
    assert!((40 * 14..40 * 90).contains(&lines), "a bucket has eight entries at least: {lines}");
}

/// Noticed: a counter that counts otherwise.
#[test]
fn counters_count() {
    let mut d = Driver::with(never_idle);
    let before = d.status().counters;
    d.write_durably([100, 101], 1);
    d.done(|d| d.write_fua(102, 2));
    d.done(|d| d.discard(808, 8));
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
    let mut d = Driver::never_idle(|options| options.engine.bypass_threshold_bytes = 64 << 10);
    let before = d.status().counters;
    d.write_durably([300, 301, 302, 310], 1);
    d.write_durably([301], 2);
    let large = d.write_blocks(100 * 8, 16 * 8, 3);
    d.expect_ok(large);
    d.done(|d| d.discard(500 * 8, 16));
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

/// Noticed: a report of the start that counts otherwise.
#[test]
fn the_report_of_a_start_counts() {
    for memory_survives in [true, false] {
        let mut d = Driver::with(never_idle);
        d.write_durably([100, 101], 1);
        d.write_durably([102], 1);
        match memory_survives {
            true => d.kill(),
            false => d.power_cut(),
        }
        let mark = d.started.len();
        d.start_open().unwrap();
        d.now = d.now.after(Duration::from_millis(7));
        d.run_until(|d| *d.engine().phase() == Phase::Running);
        let report = d.status().recovery;
        let from_memory = if memory_survives { 2 } else { 0 };
        assert_eq!((report.records, report.records_from_memory), (2, from_memory));
        assert_eq!((report.dirty_lines, report.poisoned_lines), (3, 0));
        assert_eq!((report.was_closed, report.data_disk_changed), (false, false));
        // The rest is its pauses.
        assert_eq!(report.duration.0 / 1_000_000, 7);
        let reads = d.started[mark..].iter().filter(|io| io.is(Device::CacheDisk, Kind::Read));
        assert_eq!(report.bytes_read, reads.map(|io| io.length).sum::<u64>());
        d.restart();
        assert!(d.status().recovery.was_closed);
    }
}

/// A new cache has one checkpoint, and its first start takes no look at every segment for what
/// became of another: of 100 GiB that would be a hundred thousand reads. After damage it does.
#[test]
fn only_a_damaged_checkpoint_makes_a_start_look_at_every_segment() {
    let mut d = Driver::created(|options| {
        never_idle(options);
        options.segments = 64;
    });
    let geometry = d.superblock().geometry;
    let segments = geometry.segments as usize;
    d.reopen();
    let reads = d.count_since(0, Device::CacheDisk, Kind::Read);
    assert!(reads < segments, "{reads} reads of {segments} segments");
    d.write_durably(100..103, 1);
    // The closing checkpoint goes to the first area; the older one is damaged.
    d.shut_down();
    d.cache_disk.rot(geometry.checkpoint_offsets[1], &[0x55; 512]);
    let mark = d.started.len();
    d.reopen();
    let reads = d.count_since(mark, Device::CacheDisk, Kind::Read);
    assert!(reads >= segments, "{reads} reads of {segments} segments");
    assert_eq!(d.read(101), 1);
}
