//! A start reads the checkpoint a piece at a time, and does what grows with the cache a part at a
//! time; and how much of the log it reads.

mod common;

use common::{Driver, Kind, LINE, LINES_PER_SEGMENT, Options, Seen, never_idle};
use dcd_engine::error::FormatError;
use dcd_engine::format::checkpoint::HEADER_SIZE;
use dcd_engine::{Device, Duration, LbaRange, OpenError, Operation, Phase};

/// Segments of an index of some pages.
const SEGMENTS: u64 = 40;

/// Lines of a segment that is filled.
fn segment(number: u64) -> std::ops::Range<u64> {
    number * LINES_PER_SEGMENT..(number + 1) * LINES_PER_SEGMENT
}

/// A cache that destages nothing by itself.
fn filled(segments: u32, choose: impl Fn(&mut Options)) -> Driver {
    Driver::with(|options: &mut Options| {
        never_idle(options);
        options.segments = segments;
        options.data_disk.blocks = 16_384 * 8;
        choose(options);
    })
}

fn bytes_read_by_a_start(log_bytes: u64) -> u64 {
    let mut d = filled(512, |options| options.engine.limits.checkpoint_log_bytes = log_bytes);
    // The index is small: these are the same lines again and again.
    for round in 0..60 {
        d.write_durably(segment(round % 2), round as u8 + 1);
    }
    d.power_cut();
    d.reopen();
    assert_eq!((d.read(0), d.read(LINES_PER_SEGMENT)), (59, 60));
    d.engine().recovery_report().bytes_read
}

/// However large the cache-disk is, a start reads what was logged since a checkpoint was due.
#[test]
fn a_start_reads_the_log_since_the_checkpoint_that_was_due() {
    let due_often = bytes_read_by_a_start(256 << 10);
    let by_segments = bytes_read_by_a_start(u64::MAX);
    assert!(due_often < 700 << 10, "{due_often} bytes");
    assert!(by_segments > 2 << 20, "{by_segments} bytes: nothing was shown");
}

/// A large index is not written for every few bytes of the log.
#[test]
fn a_large_index_is_written_when_eight_times_as_much_was_logged() {
    let mut d = filled(1024, |options| options.engine.limits.checkpoint_log_bytes = 0);
    let mut logged = 0..;
    let mut log = |d: &mut Driver, segments: usize| {
        let before = d.status().counters.checkpoints;
        for number in logged.by_ref().take(segments) {
            d.write_durably(segment(number), 1);
        }
        d.status().counters.checkpoints - before
    };
    assert!(log(&mut d, 20) >= 8, "of a small one each second segment");
    log(&mut d, 480);
    // 7,500 lines make 120,000 bytes, and eight times that fifteen segments.
    let large = log(&mut d, 60);
    assert!((3..=5).contains(&large), "{large} checkpoints");
}

/// A checkpoint lists a part of what is free: what is read and written does not grow with what is
/// empty. All of it can be filled, and is found.
#[test]
fn of_a_large_log_a_checkpoint_lists_a_part() {
    const LISTED: usize = 1024;
    const SEGMENTS_AT_ONCE: u64 = 4;
    let started = |segments| {
        let mut d = filled(segments, |options| options.data_disk.blocks = 65_536 * 8);
        d.reopen();
        let free = d.newest_checkpoint().0.free.len();
        (d.engine().recovery_report().bytes_read, free, d)
    };
    let (read, free, _) = started(1100);
    let (read_of_larger, free_of_larger, mut d) = started(1400);
    assert_eq!((read_of_larger, free_of_larger), (read, free));
    assert!(free <= LISTED, "{free} are listed");

    let before = d.status().counters.checkpoints;
    let written = |number: u64| {
        segment(number * SEGMENTS_AT_ONCE).start..segment((number + 1) * SEGMENTS_AT_ONCE).start
    };
    for number in 0..320 {
        for line in written(number) {
            d.write(line, number as u8);
        }
        d.finish_all();
        // It costs this driver a copy of the disk.
        if number % 16 == 15 {
            d.done(Driver::flush);
        }
    }
    let made = d.status().counters.checkpoints - before;
    assert!((1..=10).contains(&made), "{made} checkpoints: one for each eighth of the log");
    d.power_cut();
    d.reopen();
    for number in 0..320 {
        assert_eq!(d.read(written(number).end - 1), number as u8, "write {number}");
    }
}

/// An index of some pages, in a checkpoint that nothing says to be durable, and what is in it.
fn with_an_index(lines_at_once: usize) -> Driver {
    let mut d = filled(256, |options| {
        options.engine.limits.checkpoint_lines = lines_at_once;
        options.engine.limits.checkpoint_write_bytes = LINE;
    });
    for number in 0..SEGMENTS {
        d.write_durably(segment(number), number as u8 + 1);
    }
    d.power_cut();
    d.reopen();
    // Until one of this session is behind all records.
    let is_last = |d: &Driver| d.status().counters.checkpoints > 1;
    while !is_last(&d) {
        d.write_durably(segment(0), 1);
        // Parts of the index leave time to requests.
        d.advance_time(Duration::from_millis(1));
    }
    d.power_cut();
    d
}

fn is_as_written(d: &mut Driver) {
    for number in 0..SEGMENTS {
        for line in segment(number) {
            assert_eq!(d.read(line), number as u8 + 1, "line {line}");
        }
    }
    for line in segment(SEGMENTS) {
        assert_eq!(d.read(line), 0, "line {line}");
    }
}

/// However few lines it does at a time, it comes to the same.
#[test]
fn a_start_in_small_parts_finds_the_same() {
    let mut inputs = Vec::new();
    for lines_at_once in [1, 7, 2048] {
        let mut d = with_an_index(lines_at_once);
        d.start_open().expect("it begins");
        let mut count = 0;
        while *d.engine().phase() == Phase::Opening {
            d.step();
            count += 1;
        }
        d.engine().check_checkpoint();
        is_as_written(&mut d);
        inputs.push(count);
    }
    assert!(inputs[0] > 1000 && inputs[1] < inputs[0] && inputs[2] < 100, "{inputs:?}");
}

/// A discard of everything is as long as what it discards, in a start as well.
#[test]
fn a_large_discard_is_replayed_in_parts() {
    for lines in [SEGMENTS * LINES_PER_SEGMENT - 20, 16_384] {
        let mut d = with_an_index(7);
        d.reopen();
        d.done(|d| d.submit(Operation::Discard { range: LbaRange::new(0, lines * 8) }, false));
        d.write_durably([3], 77);
        d.power_cut();
        d.start_open().expect("it begins");
        let mut inputs = 0;
        while *d.engine().phase() == Phase::Opening {
            d.step();
            inputs += 1;
        }
        assert!(inputs > 2 * SEGMENTS * LINES_PER_SEGMENT / 7, "{inputs}: the index, and again");
        let shown = |line| match line {
            3 => 77,
            _ if line < lines => 0,
            _ => (line / LINES_PER_SEGMENT) as u8 + 1,
        };
        for line in 0..SEGMENTS * LINES_PER_SEGMENT {
            assert_eq!(d.read(line), shown(line), "line {line}");
        }
    }
}

/// What was loaded of a checkpoint before it turned out to be damaged does not count.
#[test]
fn of_a_damaged_checkpoint_nothing_stays_in_the_table() {
    let mut d = with_an_index(3);
    let (checkpoint, area) = d.newest_checkpoint();
    // Another line: of the first live slot, in a piece before the last.
    let items = checkpoint.free.len() + checkpoint.filled.len();
    let address = area + (HEADER_SIZE + items * 16) as u64;
    let line = checkpoint.live[0].line.0;
    let bytes = (1u64 << 48 | 0xff << 48 | (line ^ 1 << 12)).to_le_bytes();
    d.cache_disk.rot(address, &bytes);
    d.reopen();
    assert_eq!(d.read(line ^ 1 << 12), 0, "a line that was never written");
    is_as_written(&mut d);
}

/// It must still be what was believed when it is read to be written again: a disk that could not
/// write it may show it for a while. What is something else by then is written nowhere.
#[test]
fn a_checkpoint_that_changes_while_it_is_written_again_is_refused() {
    let mut d = with_an_index(2048);
    let (_, area) = d.newest_checkpoint();
    let payload = area + HEADER_SIZE as u64;
    let is_first_piece =
        move |io: &Seen| io.is(Device::CacheDisk, Kind::Read) && io.offset == payload;
    let mark = d.started.len();
    d.start_open().expect("it begins");
    while d.started[mark..].iter().filter(|io| is_first_piece(io)).count() < 2 {
        d.step();
    }
    d.cache_disk.flip(payload);
    while *d.engine().phase() == Phase::Opening {
        d.step();
    }
    let Phase::Failed(OpenError::Format(FormatError::Checksum { .. })) = d.engine().phase() else {
        panic!("{:?}", d.engine().phase());
    };
    assert_eq!(d.count_since(mark, Device::CacheDisk, Kind::Write), 0);
    // The other one is whole, and the log behind it.
    d.power_cut();
    d.reopen();
    is_as_written(&mut d);
}
