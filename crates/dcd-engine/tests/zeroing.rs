//! Zeroing on the data-disk: pieces as long as the disk does in a moment, progress whatever
//! happens, and nobody who waits for it without need.

mod common;

use common::{Driver, Kind, LINE, never_idle};
use dcd_engine::format::geometry::ZERO_RANGES_MAX;
use dcd_engine::{Device, Duration, IoId, IoOperation, Operation, RequestId};

const SECOND: Duration = Duration(1_000_000_000);

/// Lines that an I/O under way zeroes.
fn lines_of(d: &Driver, id: IoId) -> u64 {
    let io = d.ios.iter().find(|io| io.id == id).expect("under way");
    match io.operation {
        IoOperation::WriteZeroes { length, .. } => length / LINE as u64,
        _ => panic!("zeroes nothing"),
    }
}

/// A step on a disk that must write zeroes, so many lines a second, one piece after the other. How
/// long it took.
fn slow_step(d: &mut Driver, speed: u64) -> Duration {
    let Some(id) = d.find_io(Device::DataDisk, Kind::WriteZeroes) else {
        d.step();
        return Duration(0);
    };
    let took = Duration(lines_of(d, id) * SECOND.0 / speed);
    d.advance_time(took);
    d.finish(id);
    took
}

fn slow_wait(d: &mut Driver, id: RequestId, speed: u64) -> Duration {
    let mut longest = Duration(0);
    for _ in 0..1_000_000 {
        if d.is_answered(id) {
            return longest;
        }
        longest = longest.max(slow_step(d, speed));
    }
    panic!("no answer");
}

fn slow_disk(io_timeout: Duration) -> Driver {
    let mut d = Driver::never_idle(|options| options.engine.io_timeout = io_timeout);
    d.hold(|io| io.is(Device::DataDisk, Kind::WriteZeroes));
    d
}

/// A disk that would need 16 s for all of it, and may take 3 for an answer: no piece comes near
/// that, and after the first each takes a tenth at most.
#[test]
fn pieces_are_as_long_as_the_disk_is_fast() {
    let (speed, timeout) = (64, Duration(3 * SECOND.0));
    let mut d = slow_disk(timeout);
    let end = d.options.data_disk.blocks;
    (0..1024).for_each(|line| d.data_disk.rot(line * LINE as u64, &[7; LINE]));
    d.done(|d| d.discard(0, end));
    let drain = d.submit(Operation::Drain, false);
    let first = slow_wait(&mut d, drain, speed);
    assert!(first.0 <= timeout.0 / 2, "{first:?}");
    let mark = d.started.len();
    d.done(|d| d.discard(0, end));
    let drain = d.submit(Operation::Drain, false);
    let longest = slow_wait(&mut d, drain, speed);
    assert!(longest.0 <= timeout.0 / 10, "{longest:?}");
    assert_eq!(d.status().counters.data_disk_errors, 0);
    assert!((0..1024).all(|line| d.data_disk.line(line) == 0));
    // And all of it once.
    let zeroed = d.started[mark..].iter().filter(|io| io.is(Device::DataDisk, Kind::WriteZeroes));
    assert_eq!(zeroed.map(|io| io.length).sum::<u64>(), end * 512);
}

/// A disk that frees space in no time is asked for more and more at once.
#[test]
fn a_disk_that_frees_space_is_asked_for_all_at_once() {
    let mut d = Driver::with(never_idle);
    let end = d.options.data_disk.blocks;
    for _ in 0..3 {
        d.done(|d| d.discard(0, end));
        d.drain();
    }
    let mark = d.started.len();
    d.done(|d| d.discard(0, end));
    d.drain();
    assert_eq!(d.count_since(mark, Device::DataDisk, Kind::WriteZeroes), 1);
}

/// A flush of 300 ms, whatever is behind it, is longer than a tenth of 1 s. Rounds shrank to a line
/// each, which took no less; with 30 s they stayed as small as they begin.
#[test]
fn a_flush_that_takes_its_time_is_no_reason_for_small_rounds() {
    let flush = Duration::from_millis(300);
    for timeout in [SECOND, Duration(30 * SECOND.0)] {
        let mut d = Driver::never_idle(|options| {
            options.data_disk.blocks = 4096 * 8;
            options.engine.io_timeout = timeout;
        });
        d.hold(|io| io.is(Device::DataDisk, Kind::Flush));
        // While it learns, and behind that.
        for flushes_max in [24, 3] {
            d.done(|d| d.discard(0, 4096 * 8));
            let (began, drain) = (d.now, d.submit(Operation::Drain, false));
            while !d.is_answered(drain) {
                match d.find_io(Device::DataDisk, Kind::Flush) {
                    Some(id) => {
                        d.advance_time(flush);
                        d.finish(id);
                    }
                    None => d.step(),
                }
            }
            let took = d.now.since(began);
            assert!(took.0 <= flushes_max * flush.0, "{took:?} with {timeout:?}");
        }
    }
}

/// A piece that ends after it was given up has been zeroed all the same: it is not begun again. Its
/// time was longer than that of another I/O, by what it asks for.
#[test]
fn what_lands_late_is_not_begun_again() {
    let timeout = Duration(3 * SECOND.0);
    let mut d = slow_disk(timeout);
    d.data_disk.rot(100 * LINE as u64, &[7; LINE]);
    d.done(|d| d.discard(800, 64 * 8));
    d.submit(Operation::Drain, false);
    d.finish_all();
    let piece = d.find_io(Device::DataDisk, Kind::WriteZeroes).expect("zeroing");
    d.advance_time(timeout);
    assert_eq!(d.status().counters.data_disk_errors, 0, "it has more time than others");
    d.advance_time(SECOND);
    assert_eq!(d.status().counters.data_disk_errors, 1);
    d.advance_time(Duration(20 * SECOND.0));
    assert_eq!(d.status().zero_ranges, 1);
    let mark = d.started.len();
    d.finish(piece);
    d.advance_time(SECOND);
    assert_eq!(d.status().zero_ranges, 0);
    assert_eq!(d.count_since(mark, Device::DataDisk, Kind::WriteZeroes), 0);
    assert!(d.count_since(mark, Device::DataDisk, Kind::Flush) > 0, "it was not flushed");
    assert_eq!(d.data_disk.line(100), 0);
}

/// What landed late counts only until something else is written there.
#[test]
fn what_landed_late_and_was_overwritten_does_not_count() {
    let mut d = Driver::never_idle(|options| {
        options.engine.io_timeout = Duration(3 * SECOND.0);
        options.engine.bypass_threshold_bytes = 64 << 10;
    });
    d.hold(|io| io.is(Device::DataDisk, Kind::WriteZeroes));
    d.done(|d| d.discard(800, 64 * 8));
    d.submit(Operation::Drain, false);
    d.finish_all();
    let piece = d.find_io(Device::DataDisk, Kind::WriteZeroes).expect("zeroing");
    d.advance_time(Duration(4 * SECOND.0));
    d.hold(|io| io.device == Device::DataDisk && io.kind == Kind::Flush);
    d.finish(piece);
    let bypass = d.write_blocks(800, 64 * 8, 5);
    d.release();
    d.finish_all();
    d.expect_ok(bypass);
    d.done(|d| d.discard(800, 64 * 8));
    d.drain();
    assert!((100..164).all(|line| d.data_disk.line(line) == 0));
}

/// Half an hour of zeroing is under way. Who waits for room in the log waits for a piece of it:
/// lines elsewhere have their turn after each, and of what lies below those that are zeroed there,
/// only that part is needed.
#[test]
fn a_full_cache_does_not_wait_until_all_is_zeroed() {
    for place in [5000, 200] {
        let mut d = slow_disk(Duration(30 * SECOND.0));
        let speed = 4;
        d.done(|d| d.discard(0, 4096 * 8 / 8));
        d.write_durably([], 1);
        for i in 0..600 {
            let write = d.write(place % 1000 + i % 300, (i % 250) as u8 + 1);
            slow_wait(&mut d, write, speed);
            assert_eq!(d.result(write), Ok(()), "{i}");
        }
        assert!(d.status().zero_ranges > 0, "all is zeroed: it proves nothing");
        assert_eq!(d.status().counters.data_disk_errors, 0);
    }
}

/// Discards that wait for room among the zero ranges hold up only what changes the same blocks:
/// writes elsewhere are answered at once, and a flush covers what was answered.
#[test]
fn stalled_discards_hold_up_only_the_same_blocks() {
    let most = ZERO_RANGES_MAX / 2 + 64;
    let mut d = Driver::never_idle(|options| {
        options.segments = 64;
        options.data_disk.blocks = (2 * most + 1000) * 8;
    });
    d.hold(|io| io.is(Device::DataDisk, Kind::WriteZeroes));
    let mut stalled = Vec::new();
    for i in 0..most + 200 {
        let discard = d.discard(2 * i * 8, 8);
        d.finish_all();
        if !d.is_answered(discard) {
            stalled.push((discard, 2 * i));
        }
    }
    assert!(stalled.len() >= 10, "{}", stalled.len());
    let (discard, line) = stalled[3];
    let elsewhere = d.write(2 * most + 900, 4);
    let same = d.write(line, 5);
    let behind = d.write_blocks(line * 8 + 4, 8, 6);
    d.finish_all();
    assert_eq!(d.result(elsewhere), Ok(()));
    d.done(Driver::flush);
    assert!(![discard, same, behind].iter().any(|id| d.is_answered(*id)));
    d.release();
    for (discard, _) in stalled {
        d.expect_ok(discard);
    }
    d.expect_ok(same);
    d.expect_ok(behind);
    let bytes = d.try_read(line * 8, 16).unwrap();
    assert_eq!([0, 2047, 2048, 6143].map(|at| bytes[at]), [5, 5, 6, 6]);
}

/// A line of discards that nobody can take waits no longer than is said, each for itself.
#[test]
fn stalled_discards_are_refused_in_the_end() {
    let most = ZERO_RANGES_MAX / 2 + 64;
    let mut d = Driver::never_idle(|options| {
        options.segments = 64;
        options.data_disk.blocks = (2 * most + 1000) * 8;
        options.engine.full_timeout = Duration(5 * SECOND.0);
        options.engine.io_timeout = Duration(500 * SECOND.0);
    });
    d.hold(|io| io.is(Device::DataDisk, Kind::WriteZeroes));
    let discards: Vec<_> = (0..most + 100).map(|i| (d.discard(2 * i * 8, 8), 2 * i)).collect();
    d.finish_all();
    let stalled: Vec<_> = discards.into_iter().filter(|(id, _)| !d.is_answered(*id)).collect();
    let same = d.write(stalled[0].1, 5);
    d.advance_time(Duration(6 * SECOND.0));
    assert!(stalled.iter().all(|(id, _)| d.result(*id).is_err()));
    assert_eq!(d.result(same), Ok(()), "nothing holds it up any more");
}
