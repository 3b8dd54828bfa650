//! A process that was stopped for longer than any limit: by a signal, the freezer, a paused
//! machine, a debugger, or because it was kept from its queues. Whatever ended meanwhile waits
//! there, is given one by one when it goes on, and nobody is taken for hung (C25, C26). Who really
//! hangs is given up all the same.

mod common;

use common::{Driver, Kind, Options, never_idle};
use dcd_engine::{Device, Duration, IoId, LbaRange, Operation, RequestError, RequestId};

const HOUR: Duration = Duration::from_secs(3600);

fn read(d: &mut Driver, line: u64) -> RequestId {
    d.submit(Operation::read(LbaRange::new(line * 8, 8)), false)
}

/// Everything that is under way ends, in this order, and the clock stands still.
fn end_all(d: &mut Driver, newest_first: bool) {
    d.release();
    let mut ids: Vec<IoId> = d.ios.iter().map(|io| io.id).collect();
    if newest_first {
        ids.reverse();
    }
    ids.into_iter().for_each(|id| d.finish(id));
    d.finish_all();
}

/// A pause while reads, a log write, a bypass and flushes are under way.
#[test]
fn what_ended_in_a_pause_is_no_hung_disk() {
    for newest_first in [false, true] {
        let mut d = Driver::never_idle(|options| options.engine.bypass_threshold_bytes = 64 << 10);
        d.write_durably([1], 1);
        d.hold(|_| true);
        let reads = [read(&mut d, 500), read(&mut d, 1), read(&mut d, 800)];
        let write = d.write_fua(5, 5);
        let bypass = d.write_blocks(3200, 128, 6);
        let flush = d.flush();
        d.now = d.now.after(HOUR);
        end_all(&mut d, newest_first);
        for id in reads.into_iter().chain([write, bypass, flush]) {
            assert_eq!(d.wait(id), Ok(()));
        }
        let counters = d.status().counters;
        assert_eq!((counters.cache_disk_errors, counters.data_disk_errors), (0, 0));
        assert_eq!([d.read(1), d.read(5), d.read(400)], [1, 5, 6]);
    }
}

/// The same for what the engine does by itself, with pauses at every I/O of it.
#[test]
fn destaging_checkpoints_and_recovery_outlive_pauses() {
    let mut d = Driver::never_idle(|options| options.data_disk.physical_sector_size = 4096);
    let pause_at_each = |d: &mut Driver, id: RequestId| {
        while !d.is_answered(id) {
            d.now = d.now.after(HOUR);
            d.step();
        }
        assert_eq!(d.result(id), Ok(()));
    };
    d.write_durably(100..160, 1);
    d.write_blocks(1701, 3, 2);
    d.discard(8000, 64);
    let drain = d.submit(Operation::Drain, false);
    pause_at_each(&mut d, drain);
    d.write_durably(200..230, 3);
    d.kill();
    d.start_open().unwrap();
    for _ in 0..1000 {
        d.now = d.now.after(HOUR);
        d.step();
        if *d.engine().phase() == dcd_engine::Phase::Running {
            break;
        }
    }
    assert_eq!([d.read(100), d.read(229)], [1, 3]);
    let counters = d.status().counters;
    assert_eq!((counters.cache_disk_errors, counters.data_disk_errors), (0, 0));
    let shutdown = d.submit(Operation::Shutdown, false);
    pause_at_each(&mut d, shutdown);
}

fn small(options: &mut Options) {
    never_idle(options);
    options.engine.io_timeout = Duration::from_secs(32);
    options.engine.full_timeout = Duration::from_secs(64);
}

/// A write that waits for room goes on waiting behind a pause, for as long as it was promised
/// (C25).
#[test]
fn a_write_that_waits_for_room_outlives_a_pause() {
    let mut d = Driver::with(small);
    // Every lookup goes to the log, so the data-disk is only written; it does not answer.
    d.hold(|io| io.is(Device::DataDisk, Kind::Write));
    let mut line = 0;
    while d.status().counters.stalled_writes == 0 {
        line += 1;
        d.write(line, 1);
        d.finish_all();
    }
    let waiting = d.write(0, 2);
    d.now = d.now.after(HOUR);
    // Something else comes first, then the loop looks.
    read(&mut d, 1);
    assert!(!d.is_answered(waiting));
    d.tick();
    assert!(!d.is_answered(waiting));
    d.release();
    assert_eq!(d.wait(waiting), Ok(()));
    assert_eq!(d.status().counters.data_disk_errors, 0);
}

/// However often it is stopped, what hangs is given up when the time is over in which it could be
/// heard.
#[test]
fn a_disk_that_hangs_is_given_up_between_pauses() {
    let mut d = Driver::with(small);
    d.hold(|io| io.is(Device::DataDisk, Kind::Read));
    let waiting = read(&mut d, 500);
    let mut looks = 0;
    while !d.is_answered(waiting) {
        d.now = d.now.after(HOUR);
        d.tick();
        looks += 1;
        assert!(looks <= 40);
    }
    assert_eq!(d.result(waiting), Err(RequestError::Io));
    assert_eq!(looks, 32, "each pause takes a part of the time, and no more");
}

/// A loop that gets its turn rarely, on a machine that is too slow, judges nobody by that.
#[test]
fn a_slow_loop_hears_before_it_judges() {
    let mut d = Driver::with(small);
    for _ in 0..20 {
        d.hold(|io| io.is(Device::DataDisk, Kind::Read));
        let reads = [read(&mut d, 500), read(&mut d, 800)];
        // Turns of 20 s: nothing has ended in the first three.
        for _ in 0..3 {
            d.now = d.now.after(Duration::from_secs(20));
            d.tick();
        }
        d.now = d.now.after(Duration::from_secs(20));
        end_all(&mut d, true);
        reads.into_iter().for_each(|id| assert_eq!(d.result(id), Ok(())));
    }
}

/// While somebody is waited for, the engine looks often enough to notice a pause.
#[test]
fn it_looks_again_after_a_thirty_second_part_of_the_limit() {
    let mut d = Driver::with(small);
    d.hold(|io| io.is(Device::DataDisk, Kind::Read));
    let begin = d.now;
    let waiting = read(&mut d, 500);
    while !d.is_answered(waiting) {
        let before = d.now;
        d.step();
        assert!(d.now.since(before) <= Duration::from_secs(1));
    }
    assert_eq!(d.now.since(begin), Duration::from_secs(32));
}
