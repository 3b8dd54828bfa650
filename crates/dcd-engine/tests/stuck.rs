//! A drain and a detach always have an answer: done, or what is left when nothing gets to the
//! data-disk any more.

mod common;

use common::{Driver, Kind, LINE};
use dcd_engine::stats::Obstacle;
use dcd_engine::{Buffer, Device, Duration, IoError, LbaRange, Operation, RequestError};

const SECOND: Duration = Duration(1_000_000_000);
const LIMIT: Duration = Duration(8 * SECOND.0);
const ALL: std::ops::Range<u64> = 0..u64::MAX;

fn driver() -> Driver {
    Driver::never_idle(|options| {
        options.segments = 64;
        options.engine.drain_timeout = LIMIT;
    })
}

/// Whatever the data-disk says, of lines and of zeroes: the answer comes, tells what is left, and
/// the cache is as it was.
#[test]
fn a_disk_that_takes_nothing_ends_a_drain_and_a_detach() {
    for error in [IoError::NoSpace, IoError::ReadOnly, IoError::Gone, IoError::Failed] {
        for (kind, lines, zero_lines) in [(Kind::Write, 20, 0), (Kind::WriteZeroes, 0, 100)] {
            let mut d = driver();
            d.write_durably((0..lines).map(|k| 100 + 2 * k), 1);
            d.done(|d| d.discard(300 * 8, zero_lines * 8));
            d.fail_always(Device::DataDisk, kind, ALL, error);
            let stuck = Err(RequestError::Stuck { lines, zero_lines });
            for _ in 0..2 {
                let begun = d.now;
                let drain = d.submit(Operation::Drain, false);
                assert_eq!(d.wait(drain), stuck, "{error:?}");
                // What is in the way is known: an eighth of the limit.
                let took = d.now.since(begun);
                assert!(took.0 >= LIMIT.0 / 8 && took.0 <= LIMIT.0 / 4, "{took:?}");
                let obstacle = d.status().obstacle;
                assert!(
                    matches!(obstacle, Some(Obstacle::DataDisk(trouble)) if trouble.error == error),
                    "{obstacle:?}"
                );
            }
            // It is served as before, and what is asked for when the disk is well again is done at
            // once.
            d.done(|d| d.write(7, 7));
            d.heal();
            let begun = d.now;
            d.drain();
            assert!(d.now.since(begun) < SECOND);
            assert_eq!(d.status().obstacle, None);

            d.write_durably([5], 5);
            d.fail_always(Device::DataDisk, Kind::Write, ALL, error);
            let detach = d.submit(Operation::Detach, false);
            assert_eq!(d.wait(detach), Err(RequestError::Stuck { lines: 1, zero_lines: 0 }));
            d.forget_engine();
            d.reopen();
            assert!(d.status().recovery.was_closed, "the pair is one");
            assert_eq!(d.read(5), 5);
        }
    }
}

/// One bad line holds up the end of a drain, and what others write meanwhile does not hide it.
#[test]
fn one_bad_line_ends_a_drain_under_load() {
    let mut d = driver();
    let bad = 100 * LINE as u64;
    d.fail_always(Device::DataDisk, Kind::Write, bad..bad + 512, IoError::Failed);
    d.write_durably(90..110, 1);
    let drain = d.submit(Operation::Drain, false);
    let mut rounds = 0;
    while !d.is_answered(drain) {
        d.done(|d| d.write(500 + rounds % 100, rounds as u8));
        d.advance_time(Duration::from_millis(100));
        rounds += 1;
        assert!(rounds < 400, "it never ends");
    }
    assert!(matches!(d.result(drain), Err(RequestError::Stuck { lines: 1.., zero_lines: 0 })));
    assert!((90..110).all(|line| line == 100 || d.data_disk.line(line) == 1));
}

/// Nothing is too slow as long as it gets on.
#[test]
fn a_slow_disk_is_not_stuck() {
    let mut d = Driver::never_idle(|options| {
        options.engine.drain_timeout = Duration(SECOND.0 / 2);
        options.engine.io_timeout = Duration(100 * SECOND.0);
    });
    d.write_durably((0..10).map(|k| 100 + 2 * k), 1);
    d.done(|d| d.discard(300 * 8, 100 * 8));
    d.hold(|io| io.device == Device::DataDisk);
    let drain = d.submit(Operation::Drain, false);
    while !d.is_answered(drain) {
        d.advance_time(Duration(5 * SECOND.0));
        if let Some(io) = d.ios.iter().find(|io| io.device == Device::DataDisk) {
            let id = io.id;
            d.finish(id);
        }
    }
    assert_eq!(d.result(drain), Ok(()));
}

/// A cap of the user's own is no reason to give up.
#[test]
fn a_capped_drain_is_not_stuck() {
    let mut d = Driver::never_idle(|options| {
        options.engine.drain_timeout = Duration(SECOND.0 / 2);
        // 4 KiB in 40 seconds.
        options.engine.destage_bytes_per_second_max = 100;
    });
    d.write_durably((0..10).map(|k| 100 + 2 * k), 1);
    d.drain();
}

/// Others discard as fast as it is zeroed: that is not what the drain waits for.
#[test]
fn newer_discards_do_not_hold_up_a_drain() {
    let mut d = driver();
    d.data_disk.rot(0, &[7; 900 * LINE]);
    d.done(|d| d.discard(800 * 8, 8));
    d.hold(|io| io.device == Device::DataDisk);
    let drain = d.submit(Operation::Drain, false);
    let mut rounds = 0;
    while !d.is_answered(drain) {
        d.done(|d| d.discard(rounds * 2 * 8, 8));
        d.done(Driver::flush);
        if let Some(io) = d.ios.iter().find(|io| io.device == Device::DataDisk) {
            let id = io.id;
            d.finish(id);
        }
        rounds += 1;
        assert!(rounds < 400, "it never ends");
    }
    assert_eq!(d.result(drain), Ok(()));
    assert_eq!(d.data_disk.line(800), 0);
    assert!(d.status().zero_ranges > 0, "there were always more");
}

/// Readers of the data-disk go first, but not for ever.
#[test]
fn readers_that_never_pause_do_not_hold_up_a_drain() {
    let mut d = driver();
    d.write_durably((0..20).map(|k| 100 + 2 * k), 1);
    d.hold(|io| io.is(Device::DataDisk, Kind::Read));
    let read = |d: &mut Driver, line: u64| {
        let range = LbaRange::new(line * 8, 8);
        let buffer = Buffer::zeroed(LINE);
        d.submit(Operation::Read { range, buffer }, false)
    };
    read(&mut d, 500);
    let drain = d.submit(Operation::Drain, false);
    for line in 501..900 {
        if d.is_answered(drain) {
            break;
        }
        // The next one comes before the last one has ended.
        read(&mut d, line);
        let oldest = d.find_io(Device::DataDisk, Kind::Read).expect("held");
        d.advance_time(Duration::from_millis(50));
        d.finish(oldest);
    }
    assert_eq!(d.result(drain), Ok(()));
}

/// A write that was given up and never ends holds up everything else, lines and zeroes, but no
/// answer: a drain, a detach and a shutdown end all the same.
#[test]
fn a_write_that_never_ends_ends_a_drain_and_a_close() {
    for (kind, lines, zero_lines) in [(Kind::Write, 20, 0), (Kind::WriteZeroes, 0, 100)] {
        for operation in [Operation::Detach, Operation::Shutdown] {
            let mut d = Driver::never_idle(|options| {
                options.engine.drain_timeout = LIMIT;
                options.engine.io_timeout = SECOND;
            });
            d.write_durably((0..lines).map(|k| 100 + 2 * k), 1);
            d.done(|d| d.discard(300 * 8, zero_lines * 8));
            d.done(Driver::flush);
            d.hold(move |io| io.is(Device::DataDisk, kind));
            let drain = d.submit(Operation::Drain, false);
            let stuck = Err(RequestError::Stuck { lines, zero_lines });
            let begun = d.now;
            assert_eq!(d.wait(drain), stuck);
            assert!(d.now.since(begun) >= LIMIT, "a disk that says nothing may be slow");
            assert_eq!(d.status().obstacle, Some(Obstacle::WriteNotEnded));
            let is_detach = matches!(operation, Operation::Detach);
            let end = d.submit(operation, false);
            assert_eq!(d.wait(end), if is_detach { stuck } else { Ok(()) });
        }
    }
}
