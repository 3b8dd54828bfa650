//! A discard of very many lines: answered at once, carried out by and by, and at every moment as
//! good as if all of it had been done at once.

mod common;

use common::{Driver, Kind};
use dcd_engine::{Device, Duration, LbaRange, Operation};

const LINES: u64 = 400;
/// Written before the others, so that it is on the data-disk.
const OLD: u8 = 9;

/// A cache with many lines of 1, most of them durable, all of which are discarded, `parts` inputs
/// later. `None`: by then all is done. `by_table`: there are more lines in the range than in the
/// table.
fn discarded(parts: usize, by_table: bool) -> Option<Driver> {
    let mut d = Driver::never_idle(|options| {
        options.segments = 128;
        options.engine.limits.discarded_lines = 4;
    });
    d.write_durably(0..LINES, OLD);
    d.drain();
    d.write_durably(0..LINES, 1);
    let (lines, others) = if by_table { (LINES + 100, 0) } else { (LINES - 10, 200) };
    d.write_durably(600..600 + others, 2);
    for line in (0..LINES).step_by(7) {
        d.done(|d| d.write(line, 1));
    }
    let discard = d.discard(0, lines * 8);
    assert!(d.is_answered(discard), "nothing is being destaged");
    (0..parts).for_each(|_| d.tick());
    is_purging(&d, by_table).then_some(d)
}

/// Whether some lines are left, beside those that are not discarded, and not so few that the next
/// inputs end it.
fn is_purging(d: &Driver, by_table: bool) -> bool {
    d.status().dirty_lines > if by_table { 40 } else { 250 }
}

fn expect_all(d: &mut Driver, by_table: bool) {
    let kept = if by_table { LINES } else { LINES - 10 };
    for line in 0..LINES {
        let expected = if line < kept { 0 } else { 1 };
        assert_eq!(d.read(line), expected, "line {line}");
    }
}

#[test]
fn what_is_discarded_is_zero_and_changes_of_it_wait() {
    for by_table in [true, false] {
        let mut tried = 0;
        for parts in (0..).step_by(9) {
            let Some(mut d) = discarded(parts, by_table) else { break };
            tried += 1;
            let mark = d.started.len();
            for line in [0, 7, LINES / 2, LINES - 11] {
                assert_eq!(d.read(line), 0, "line {line} after {parts} parts");
            }
            if !is_purging(&d, by_table) {
                break;
            }
            let there = d.write(LINES / 2, 5);
            let again = d.discard(8, 4 * 8);
            let elsewhere = d.write(LINES + 150, 6);
            assert!(d.is_answered(elsewhere));
            while is_purging(&d, by_table) {
                assert!(!d.is_answered(there) && !d.is_answered(again));
                assert_eq!(d.count_since(mark, Device::DataDisk, Kind::Write), 0);
                d.tick();
            }
            d.run_until(|d| d.is_answered(there));
            assert!(d.is_answered(again));
            assert_eq!(d.read(LINES / 2), 5);
            d.drain();
            assert_eq!((d.data_disk.line(LINES / 2), d.data_disk.line(LINES / 2 + 1)), (5, 0));
            assert_eq!(d.data_disk.line(LINES + 150), 6);
        }
        assert!(tried > 5, "{tried}");
    }
}

/// The lines that are left in the table are not what a start finds, nor what anything else makes of
/// them.
#[test]
fn a_crash_amid_it_undoes_nothing() {
    for by_table in [true, false] {
        for parts in (0..).step_by(9) {
            let Some(mut d) = discarded(parts, by_table) else { break };
            d.kill_and_reopen();
            expect_all(&mut d, by_table);
            let Some(mut d) = discarded(parts, by_table) else { break };
            d.done(Driver::flush);
            d.power_cycle();
            expect_all(&mut d, by_table);
            // Closed in order: the checkpoint of the end does not list them.
            let Some(mut d) = discarded(parts, by_table) else { break };
            d.restart();
            expect_all(&mut d, by_table);
        }
    }
}

/// It waits for what is being destaged, which would bring old content to the disk above the zeroes.
#[test]
fn it_begins_when_nothing_is_destaged() {
    let mut d = Driver::never_idle(|options| {
        options.segments = 128;
        options.engine.limits.discarded_lines = 4;
        options.engine.full_timeout = Duration::from_secs(5);
        options.engine.io_timeout = Duration::from_secs(1000);
        options.engine.drain_timeout = Duration::from_secs(1000);
    });
    d.write_durably(0..LINES, 1);
    d.hold(|io| io.is(Device::DataDisk, Kind::Write));
    let drain = d.submit(dcd_engine::Operation::Drain, false);
    d.run_until(|d| d.find_io(Device::DataDisk, Kind::Write).is_some());
    let discard = d.discard(0, LINES * 8);
    // Nothing is full, however long it takes.
    d.advance_time(Duration::from_secs(20));
    assert!(!d.is_answered(discard));
    // Those of other blocks do not wait with it.
    let write = d.write(LINES + 10, 3);
    assert!(d.is_answered(write));
    d.release();
    d.expect_ok(discard);
    d.expect_ok(drain);
    d.drain();
    assert!((0..LINES).all(|line| d.data_disk.line(line) == 0));
    assert_eq!(d.data_disk.line(LINES + 10), 3);
}

/// What is being destaged gives way to reads, and a discard that waits for it, with all changes
/// behind it, would wait for as long as somebody reads.
#[test]
fn readers_do_not_hold_it_up() {
    let mut d = Driver::with(|options| {
        options.segments = 128;
        options.engine.limits.discarded_lines = 4;
        options.engine.io_timeout = Duration::from_secs(1000);
    });
    // Apart, so that each is a write of its own.
    d.write_durably((0..300).map(|line| line * 2), 1);
    d.hold(|io| io.is(Device::DataDisk, Kind::Write) || io.is(Device::DataDisk, Kind::Read));
    // The disk is so slow that few writes are under way at a time.
    for _ in 0..100 {
        d.advance_time(Duration::from_millis(300));
        if let Some(id) = d.find_io(Device::DataDisk, Kind::Write) {
            d.finish(id);
        }
    }
    d.run_until(|d| d.find_io(Device::DataDisk, Kind::Write).is_some());
    let range = LbaRange::new(800 * 8, 8);
    d.submit(Operation::read(range), false);
    assert!(d.find_io(Device::DataDisk, Kind::Read).is_some());
    let stalled = d.status().counters.stalled_writes;
    let discard = d.discard(0, 600 * 8);
    let write = d.write(3, 2);
    for _ in 0..200 {
        // Nobody has answered the reader yet.
        d.ios_of(Device::DataDisk, Kind::Write).into_iter().for_each(|id| d.finish(id));
        d.advance_time(Duration::from_millis(10));
    }
    assert!(d.is_answered(discard) && d.is_answered(write));
    assert_eq!(d.status().counters.stalled_writes, stalled, "nothing was full");
    d.release();
    d.drain();
    assert_eq!((d.data_disk.line(3), d.data_disk.line(4)), (2, 0));
}

/// A trim of everything comes as thousands of discards: each is answered at once, and as good as if
/// it had been alone.
#[test]
fn others_join_it() {
    let with_two = |parts: usize| {
        let mut d = Driver::never_idle(|options| {
            options.segments = 128;
            options.engine.limits.discarded_lines = 4;
        });
        d.write_durably(0..LINES, OLD);
        d.drain();
        d.write_durably(0..LINES, 1);
        for line in (0..LINES).step_by(7) {
            d.done(|d| d.write(line, 1));
        }
        let first = d.discard(0, 200 * 8);
        assert!(d.is_answered(first));
        let second = d.discard(200 * 8, 190 * 8);
        assert!(d.is_answered(second));
        (0..parts).for_each(|_| d.tick());
        d
    };
    for parts in (0..80).step_by(9) {
        let mut d = with_two(parts);
        assert!(d.status().dirty_lines > 10, "{parts}");
        expect_all(&mut d, false);
        let mut d = with_two(parts);
        let there = d.write(250, 5);
        let elsewhere = d.write(LINES - 2, 6);
        assert!(!d.is_answered(there) && d.is_answered(elsewhere), "{parts}");
        d.run_until(|d| d.is_answered(there));
        assert_eq!((d.read(250), d.read(251), d.read(100)), (5, 0, 0));
        d.drain();
        assert_eq!(
            (d.data_disk.line(250), d.data_disk.line(251), d.data_disk.line(100)),
            (5, 0, 0)
        );
        let mut d = with_two(parts);
        d.kill_and_reopen();
        expect_all(&mut d, false);
        let mut d = with_two(parts);
        d.done(Driver::flush);
        d.power_cycle();
        expect_all(&mut d, false);
    }
}

/// What was discarded and written again is there behind a crash, in whatever order a start carries
/// out the discards.
#[test]
fn a_start_keeps_what_is_written_behind_it() {
    let mut d = Driver::never_idle(|options| {
        options.segments = 128;
        options.engine.limits.discarded_lines = 4;
        options.engine.limits.checkpoint_lines = 4;
    });
    d.write_durably(0..LINES, 1);
    for first in (0..LINES).step_by(50) {
        let discard = d.discard(first * 8, 40 * 8);
        d.run_until(|d| d.is_answered(discard));
        if first % 100 == 0 {
            // Of one that is long done, or not begun, and, in part, of the newest.
            let write = d.write(first / 2, 2);
            d.run_until(|d| d.is_answered(write));
            let write = d.write_blocks((first + 7) * 8 + 3, 2, 3);
            d.run_until(|d| d.is_answered(write));
        }
    }
    let expected: Vec<Vec<u8>> =
        (0..LINES).map(|line| d.try_read(line * 8, 8).expect("it is readable")).collect();
    d.done(Driver::flush);
    d.power_cycle();
    for line in 0..LINES {
        assert_eq!(
            d.try_read(line * 8, 8).expect("it is readable"),
            expected[line as usize],
            "line {line}"
        );
    }
    assert_eq!((d.read(50), d.read(41), d.read(45)), (2, 1, 1));
}

/// Discards without end do not keep destaging from making room for who waits for it.
#[test]
fn who_waits_for_room_has_a_turn() {
    let mut d = Driver::never_idle(|options| {
        options.segments = 16;
        options.engine.limits.discarded_lines = 4;
        options.engine.full_timeout = Duration::from_secs(1000);
    });
    d.hold(|io| io.is(Device::DataDisk, Kind::Write));
    let mut lines = 0..800;
    let mut write = d.write(lines.next().expect("it is small"), 1);
    while d.is_answered(write) {
        write = d.write(lines.next().expect("it is small"), 1);
        while !d.is_answered(write) && d.finish_one() {}
    }
    // Of the same region as what is in the log: they have to be looked for.
    let ranges = [800 * 8, 900 * 8];
    let mut discards = ranges.map(|first| d.discard(first, 50 * 8));
    d.release();
    for _ in 0..5_000 {
        for (discard, first) in discards.iter_mut().zip(ranges) {
            if d.is_answered(*discard) {
                *discard = d.discard(first, 50 * 8);
            }
        }
        d.step();
        if d.is_answered(write) {
            let Some(line) = lines.next() else { return };
            write = d.write(line, 1);
        }
    }
    panic!("{lines:?} wait for as long as there are discards");
}
