//! Ordered shipping: the data-disk goes from one point of the order of changes to the next, and
//! stands still there until somebody has kept it.

mod common;

use common::{Driver, Kind, LINE};
use dcd_engine::stats::{Obstacle, WindowReport, WindowState};
use dcd_engine::{
    DestagePolicyKind, Device, Duration, Input, IoError, Mode, Operation, RequestError,
};

const SECOND: Duration = Duration(1_000_000_000);

fn driver(choose: impl FnOnce(&mut common::Options)) -> Driver {
    let mut d = Driver::never_idle(|options| {
        options.segments = 64;
        options.engine.destage_policy = DestagePolicyKind::Ordered;
        options.engine.keeps_windows = true;
        options.engine.ship_within = Duration(8 * SECOND.0);
        choose(options);
    });
    // What an earlier session had kept nobody knows.
    keep(&mut d, true);
    d
}

fn report(d: &Driver) -> WindowReport {
    d.status().window.expect("shipped in order")
}

/// Waits until it is asked to keep a window.
#[track_caller]
fn asked(d: &mut Driver) -> u64 {
    for _ in 0..10_000 {
        if let Some(window) = d.windows.pop() {
            assert!(d.windows.is_empty(), "one after the other");
            return window;
        }
        d.step();
    }
    panic!("no window: {:?}", report(d));
}

#[track_caller]
fn keep(d: &mut Driver, is_kept: bool) -> u64 {
    let window = asked(d);
    d.input(Input::WindowKept { window, is_kept });
    window
}

/// What the data-disk alone shows of a line.
fn on_disk(d: &Driver, line: u64) -> u8 {
    let bytes = &d.data_disk.durable[line as usize * LINE..][..LINE];
    assert!(bytes.iter().all(|byte| *byte == bytes[0]));
    bytes[0]
}

/// Journal head, data, journal head, ...: each window has the head that belongs to its data,
/// whatever is written while it is on its way.
#[test]
fn a_window_has_the_lines_as_they_were_at_its_cut() {
    let mut d = driver(|_| {});
    let mut last = 0;
    for round in 1..=20u64 {
        for change in 0..8 {
            let number = (round * 8 + change) as u8;
            d.write_durably([100 + round * 8 + change], number);
            d.write_durably([0], number);
        }
        let drain = d.submit(Operation::Drain, false);
        // More comes while it is shipped, of the same lines, too.
        let mut later = 0;
        let window = loop {
            if let Some(window) = d.windows.pop() {
                break window;
            }
            d.step();
            if later < 5 {
                d.done(|d| d.write(0, 250));
                d.done(|d| d.write(100 + round * 8 + later, 251));
                d.done(|d| d.discard((100 + round * 8 + 5 + later % 3) * 8, 8));
                later += 1;
            }
        };
        assert!(window > last);
        last = window;
        assert_eq!(on_disk(&d, 0), (round * 8 + 7) as u8, "round {round}");
        for change in 0..8 {
            assert_eq!(on_disk(&d, 100 + round * 8 + change), (round * 8 + change) as u8);
        }
        assert!(!d.is_answered(drain), "a drain waits until it is kept");
        d.input(Input::WindowKept { window, is_kept: true });
        assert_eq!(d.wait(drain), Ok(()));
        assert_eq!(d.read(0), 250, "the newest is served");
    }
}

/// Zeroes are of a window, too: what is zeroed behind it stays as it was, and what is zeroed once
/// more is zeroed once more.
#[test]
fn zeroes_behind_a_window_wait_for_the_next() {
    let mut d = driver(|_| {});
    d.write_durably(10..20, 7);
    d.done(|d| d.discard(14 * 8, 2 * 8));
    d.write_durably([15], 9);
    d.hold(|io| io.is(Device::DataDisk, Kind::Write));
    let drain = d.submit(Operation::Drain, false);
    while d.find_io(Device::DataDisk, Kind::Write).is_none() {
        d.step();
    }
    // 14 and 15 are zeroed again, and 12 for the first time.
    d.done(|d| d.discard(12 * 8, 4 * 8));
    d.release();
    keep_and_check(&mut d, |line| match line {
        14 => 0,
        15 => 9,
        _ => 7,
    });
    assert_eq!(d.wait(drain), Ok(()));
    let drain = d.submit(Operation::Drain, false);
    keep_and_check(&mut d, |line| if (12..16).contains(&line) { 0 } else { 7 });
    assert_eq!(d.wait(drain), Ok(()));
}

#[track_caller]
fn keep_and_check(d: &mut Driver, expected: impl Fn(u64) -> u8) {
    let window = asked(d);
    for line in 10..20 {
        assert_eq!(on_disk(d, line), expected(line), "line {line}");
    }
    d.input(Input::WindowKept { window, is_kept: true });
}

/// Within `ship_within`, and not long before; with nothing to ship there is no window.
#[test]
fn a_window_is_cut_late_and_in_time() {
    let mut d = driver(|_| {});
    let begun = d.now;
    d.write_durably([5], 1);
    let window = asked(&mut d);
    let took = d.now.since(begun);
    assert!(took.0 > 6 * SECOND.0 && took.0 <= 8 * SECOND.0, "{took:?}");
    assert!(matches!(report(&d).state, WindowState::Keeping { retry_at: None, .. }));
    assert_eq!(report(&d).uncovered_since, Some(begun));
    d.input(Input::WindowKept { window, is_kept: true });
    assert_eq!((report(&d).uncovered_since, report(&d).state), (None, WindowState::Gathering));
    d.advance_time(Duration(100 * SECOND.0));
    assert!(d.windows.is_empty());
    // Half of the log is in use: a window is cut before it is due.
    let begun = d.now;
    for line in 0..270 {
        d.write_durably([line], 2);
    }
    assert_ne!(report(&d).state, WindowState::Gathering, "{:?}", d.status().segments);
    assert!(d.now.since(begun).0 < SECOND.0);
}

/// Nothing is written while it is kept; a failure is waited for, longer each time, and a drain is
/// told what is in the way.
#[test]
fn nothing_is_written_before_a_window_is_kept() {
    let mut d = driver(|options| options.engine.drain_timeout = Duration(8 * SECOND.0));
    d.write_durably([5], 1);
    let window = asked(&mut d);
    d.write_durably(0..100, 2);
    let before = d.data_disk.current.clone();
    let mut waits = Vec::new();
    for _ in 0..4 {
        d.input(Input::WindowKept { window, is_kept: false });
        let begun = d.now;
        assert_eq!(d.status().obstacle, Some(Obstacle::Window));
        assert_eq!(asked(&mut d), window);
        waits.push(d.now.since(begun).0 / 1_000_000);
    }
    assert_eq!(waits, [250, 500, 1000, 2000]);
    // Whoever asks for a drain may have mended it: it is tried at once.
    d.input(Input::WindowKept { window, is_kept: false });
    let begun = d.now;
    let drain = d.submit(Operation::Drain, false);
    assert_eq!((asked(&mut d), d.now), (window, begun));
    d.input(Input::WindowKept { window, is_kept: false });
    assert!(matches!(d.wait(drain), Err(RequestError::Stuck { .. })));
    let window = asked(&mut d);
    assert_eq!(report(&d).failures, 6);
    assert!(d.data_disk.current == before, "the data-disk stays as it is");
    // An answer to another window changes nothing.
    d.input(Input::WindowKept { window: window + 1, is_kept: true });
    assert!(matches!(report(&d).state, WindowState::Keeping { .. }));
    d.input(Input::WindowKept { window, is_kept: true });
    assert_eq!(report(&d).failures, 0);
    let next = keep(&mut d, true);
    assert!(next > window);
    assert_eq!(on_disk(&d, 99), 2);
}

/// After a crash in the middle the first window is all that is there.
#[test]
fn after_a_crash_the_first_window_is_all_of_the_log() {
    let mut d = driver(|_| {});
    d.write_durably(10..30, 1);
    d.hold(|io| io.is(Device::DataDisk, Kind::Write));
    d.submit(Operation::Drain, false);
    while d.find_io(Device::DataDisk, Kind::Write).is_none() {
        d.step();
    }
    d.write_durably(20..40, 2);
    d.power_cycle();
    asked(&mut d);
    for line in 10..40 {
        assert_eq!(on_disk(&d, line), if line < 20 { 1 } else { 2 });
    }
}

/// What is lost makes a data-disk that is no point of the order: it is not kept until it was
/// overwritten.
#[test]
fn a_window_that_lacks_something_is_not_kept() {
    let mut d = driver(|_| {});
    d.write_durably([5], 1);
    d.write_durably([6], 2);
    let slot = d.slot_of(1);
    d.cache_disk.flip(slot + 100);
    let drain = d.submit(Operation::Drain, false);
    assert_eq!(d.wait(drain), Err(RequestError::Lost { lines: 1 }));
    assert!(d.windows.is_empty());
    assert_eq!(report(&d).not_kept, 1);
    assert!(report(&d).uncovered_since.is_some());
    d.write_durably([5], 3);
    keep(&mut d, true);
    assert_eq!((on_disk(&d, 5), on_disk(&d, 6)), (3, 2));
    assert_eq!(report(&d).uncovered_since, None);
}

/// Large writes go to the log, and modes that pass it by are refused.
#[test]
fn nothing_goes_past_the_log() {
    let mut d = driver(|options| options.engine.bypass_threshold_bytes = 8192);
    let before = d.data_disk.current.clone();
    d.done(|d| d.write_blocks(100 * 8, 16 * 8, 7));
    assert!(d.data_disk.current == before);
    let with = |choose: fn(&mut dcd_engine::EngineConfig)| {
        let mut config = d.engine().config().clone();
        choose(&mut config);
        config.validate().map_err(|error| error.to_string())
    };
    assert!(with(|config| config.mode = Mode::WriteAround).unwrap_err().contains("write-back"));
    assert!(with(|config| config.no_log = true).unwrap_err().contains("write-back"));
    assert!(with(|config| config.index_bytes_max = 1 << 20).unwrap_err().contains("index-max"));
    assert!(with(|config| config.keeps_windows = false).unwrap_err().contains("window-hook"));
    assert!(with(|config| config.ship_within = Duration(1)).unwrap_err().contains("ship-within"));
    assert!(with(|_| {}).is_ok());
}

/// Part of a write past the log that has failed is on the data-disk, and nobody has flushed it: the
/// first window behind it does, however often that fails, and the later ones do not.
#[test]
fn what_nobody_has_flushed_is_flushed_before_a_window_is_kept() {
    let mut d = driver(|options| options.engine.bypass_threshold_bytes = 8192);
    d.configure(|config| config.destage_policy = DestagePolicyKind::FirstWriteFirst).unwrap();
    d.hold(|io| io.is(Device::DataDisk, Kind::Write));
    let write = d.write_blocks(800, 16, 7);
    d.run_until(|d| d.find_io(Device::DataDisk, Kind::Write).is_some());
    let io = d.find_io(Device::DataDisk, Kind::Write).expect("under way");
    d.land(io);
    d.fail(io, IoError::Failed);
    d.release();
    assert_eq!(d.status().counters.bypasses, 1);
    assert_eq!(d.wait(write), Err(RequestError::Io));
    assert!(d.data_disk.volatile_count() > 0, "some of it is there, not flushed");
    for _ in 0..3 {
        d.fail_next(Device::DataDisk, Kind::Flush, IoError::Failed);
    }
    let (begun, mark) = (d.now, d.started.len());
    d.configure(|config| config.destage_policy = DestagePolicyKind::Ordered).unwrap();
    d.run_until(|d| d.status().destage_trouble.is_some());
    keep(&mut d, true);
    assert_eq!(d.data_disk.volatile_count(), 0);
    assert_eq!(d.count_since(mark, Device::DataDisk, Kind::Flush), 4);
    assert_eq!(d.now.since(begun).0 / 1_000_000, 250 + 500 + 1000, "it waits longer each time");
    assert!(d.status().destage_trouble.is_none());
    let mark = d.started.len();
    d.write_durably([5], 1);
    keep(&mut d, true);
    assert_eq!(on_disk(&d, 5), 1);
    assert_eq!(d.count_since(mark, Device::DataDisk, Kind::Flush), 1, "by what ships it");
}

/// A cache-disk that fails while it is clean is not done without: what would go straight to the
/// data-disk has no order.
#[test]
fn without_its_cache_disk_nothing_is_written() {
    let mut d = driver(|_| {});
    d.write_durably([5], 1);
    let drain = d.submit(Operation::Drain, false);
    keep(&mut d, true);
    assert_eq!(d.wait(drain), Ok(()));
    d.advance_time(Duration(100 * SECOND.0));
    d.fail_always(Device::CacheDisk, Kind::Write, 0..u64::MAX, IoError::Gone);
    let before = d.data_disk.current.clone();
    let write = d.write_fua(6, 2);
    assert_eq!(d.wait(write), Err(RequestError::Io));
    assert!(d.data_disk.current == before);
}

/// A slot that only the window needs is found damaged: the window ends behind what is there in its
/// place. It waited for that slot for ever.
#[test]
fn a_slot_that_only_the_window_needs_may_be_damaged() {
    let mut d = driver(|_| {});
    d.write_durably([5], 1);
    let slot = d.slot_of(1);
    d.hold(|io| io.is(Device::CacheDisk, Kind::Read));
    let drain = d.submit(Operation::Drain, false);
    for _ in 0..100 {
        if d.find_io(Device::CacheDisk, Kind::Read).is_some() {
            break;
        }
        d.step();
    }
    d.write_durably([5], 2);
    d.cache_disk.flip(slot + 100);
    d.release();
    keep(&mut d, true);
    assert_eq!(on_disk(&d, 5), 2);
    assert_eq!(d.wait(drain), Ok(()));
    assert_eq!((report(&d).not_kept, d.read(5)), (0, 2));
}

/// A line is written again and again, and its newest copy is never durable: what is in the window
/// fills its sectors and does not wait for that.
#[test]
fn a_line_that_is_always_newer_holds_up_no_window() {
    let mut d = driver(|_| {});
    d.write_durably([5], 1);
    d.hold(|io| io.is(Device::DataDisk, Kind::Write) || io.is(Device::CacheDisk, Kind::Read));
    d.submit(Operation::Drain, false);
    d.finish_all();
    d.done(|d| d.write(5, 2));
    d.release();
    d.hold(|io| io.is(Device::CacheDisk, Kind::Write));
    for _ in 0..1000 {
        if !d.windows.is_empty() {
            break;
        }
        d.step();
    }
    assert_eq!((d.windows.len(), on_disk(&d, 5)), (1, 1));
}

/// Discards within what the window zeroes are zero ranges of the next: there is room for so many.
#[test]
fn zero_ranges_of_the_next_window_count() {
    let mut d = driver(|options| {
        options.engine.limits.zero_ranges = 64;
        options.data_disk.blocks = 1 << 15;
    });
    d.hold(|io| io.is(Device::DataDisk, Kind::Write) || io.is(Device::DataDisk, Kind::WriteZeroes));
    d.done(|d| d.discard(0, 1 << 14));
    let drain = d.submit(Operation::Drain, false);
    d.finish_all();
    let asked: Vec<_> = (0..200).map(|piece| d.discard(piece * 64, 8)).collect();
    d.finish_all();
    let waiting = asked.iter().filter(|id| !d.is_answered(**id)).count();
    assert!(waiting > 100, "{waiting} wait for room");
    d.release();
    for _ in 0..100 {
        if asked.iter().all(|id| d.is_answered(*id)) {
            break;
        }
        keep(&mut d, true);
    }
    assert!(asked.iter().all(|id| d.is_answered(*id)));
    assert_eq!(d.wait(drain), Ok(()));
}

/// Each batch ends with a flush, which costs a store an object and a row of its map: scattered
/// lines of several segments go together, and not those of one segment at a time.
#[test]
fn segments_are_emptied_together() {
    let mut d = driver(|_| {});
    for line in 0..400 {
        d.done(|d| d.write(2 * line, 1 + (line % 200) as u8));
    }
    let before = d.status().counters.data_disk_flushes;
    let used = d.status().segments.dirty + d.status().segments.buffered;
    assert!(used >= 20, "{:?}", d.status().segments);
    let drain = d.submit(Operation::Drain, false);
    // One may have been cut before.
    while !d.is_answered(drain) {
        keep(&mut d, true);
        d.finish_all();
    }
    let flushes = d.status().counters.data_disk_flushes - before;
    assert!(flushes <= 8, "{flushes} flushes for {used} segments");
    for line in 0..400 {
        assert_eq!(on_disk(&d, 2 * line), 1 + (line % 200) as u8);
    }
}

/// And not one after the other either while all who write wait for room.
#[test]
fn segments_are_emptied_together_while_requests_wait() {
    let mut d = driver(|options| options.segments = 24);
    let before = d.status().counters;
    let mut waiting = Vec::new();
    for number in 0..4000u64 {
        waiting.push(d.write(2 * (number * 7 % 499), number as u8));
        while waiting.len() > 32 {
            if let Some(window) = d.windows.pop() {
                d.input(Input::WindowKept { window, is_kept: true });
            }
            d.step();
            waiting.retain(|id| !d.is_answered(*id));
        }
    }
    let after = d.status().counters;
    assert!(after.stalled_writes - before.stalled_writes > 1000, "nobody waited");
    let lines = after.destaged_lines - before.destaged_lines;
    let flushes = after.data_disk_flushes - before.data_disk_flushes;
    // Two of 15 lines; by one segment each it would be 243 flushes for 3,658 lines.
    assert!(flushes * 25 <= lines, "{flushes} flushes for {lines} lines");
}
