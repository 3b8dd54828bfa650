//! Settings that change while the engine runs ([`dcd_engine::Engine::configure`]).

mod common;

use common::{Driver, Kind};
use dcd_engine::format::superblock::MemoryIdentity;
use dcd_engine::{AckMode, Device, Duration, EngineConfig, Mode, RequestError};

/// What is under way is answered as it was begun: not later, and not as less than was asked for.
#[test]
fn each_write_is_acknowledged_as_was_set_when_it_came() {
    let mut d = Driver::with(|options| options.engine.ack = AckMode::Durable);
    d.hold(|io| io.device == Device::CacheDisk);
    let durable = d.write(1, 1);
    d.configure(|config| config.ack = AckMode::Memory).unwrap();
    let quick = d.write(2, 2);
    assert!(d.is_answered(quick) && !d.is_answered(durable));
    d.configure(|config| config.ack = AckMode::Durable).unwrap();
    let last = d.write(3, 3);
    d.release();
    d.finish_all();
    d.expect_ok(durable);
    d.expect_ok(last);
    d.power_cycle();
    assert_eq!((d.read(1), d.read(2), d.read(3)), (1, 2, 3));
}

#[test]
fn what_goes_past_the_log_is_asked_for_each_write() {
    let mut d = Driver::new();
    let small = d.write_blocks(800, 16, 1);
    d.expect_ok(small);
    assert_eq!(d.status().counters.bypasses, 0);
    d.configure(|config| config.bypass_threshold_bytes = 8192).unwrap();
    let large = d.write_blocks(1600, 16, 2);
    d.expect_ok(large);
    assert_eq!(d.status().counters.bypasses, 1);
}

/// Something hangs; whoever finds the limit too long sets another, and it counts at once, from the
/// beginning of the wait.
#[test]
fn a_shorter_limit_counts_for_what_hangs_already() {
    let mut d = Driver::new();
    d.write_durably([90], 9);
    d.hold(|io| io.is(Device::CacheDisk, Kind::Write));
    let write = d.write_fua(100, 1);
    d.advance_time(Duration::from_secs(10));
    assert!(!d.is_answered(write));
    d.configure(|config| config.io_timeout = Duration::from_secs(12)).unwrap();
    d.advance_time(Duration::from_secs(3));
    assert_eq!(d.result(write), Err(RequestError::Io));
    assert!(d.status().cache_disk_failed);
}

#[test]
fn destaging_begins_when_it_is_told_to() {
    let mut d = Driver::with(|options| {
        options.engine.idle_threshold_max = Duration::from_secs(1000);
        options.engine.idle_threshold_min = Duration::from_secs(1000);
    });
    d.write_durably([1, 2, 3], 7);
    d.advance_time(Duration::from_secs(100));
    assert_eq!(d.status().dirty_lines, 3);
    let short = Duration::from_millis(1);
    let quickly = |config: &mut EngineConfig| {
        (config.idle_threshold_min, config.idle_threshold_max) = (short, short);
    };
    d.configure(quickly).unwrap();
    d.advance_time(Duration::from_secs(1));
    assert_eq!((d.status().dirty_lines, d.data_disk.line(2)), (0, 7));
}

#[test]
fn what_does_not_go_together_changes_nothing() {
    let mut d = Driver::new();
    let before = d.options.engine.clone();
    let wrong = |config: &mut EngineConfig| {
        (config.dirty_low_percent, config.ack) = (90, AckMode::Durable);
    };
    assert_eq!(
        d.configure(wrong).unwrap_err().to_string(),
        "dirty-low must not be above dirty-high"
    );
    let write = d.write(1, 1);
    assert!(d.is_answered(write), "as before, when it is in memory");
    // What decides how large things are is not looked at.
    d.options.engine = before;
    d.configure(|config| config.segment_buffers = 3).unwrap();
    d.write_durably(0..60, 2);
}

/// The superblock says whether a start may go on without the segment memory, and how much it would
/// lack.
#[test]
fn nothing_comes_to_rest_in_memory_that_the_superblock_calls_empty() {
    let identity = |max_delay_milliseconds| MemoryIdentity {
        boot_id: [1; 16],
        memory_id: [2; 16],
        place: "/run/dcd".into(),
        max_delay_milliseconds,
    };
    let mut d = Driver::with(|options| {
        options.engine.ack = AckMode::Durable;
        options.engine.memory = Some(identity(0));
    });
    let refused = d.configure(|config| config.ack = AckMode::Log).unwrap_err().to_string();
    assert!(refused.starts_with("ack was durable at the start"), "{refused}");

    let mut d = Driver::with(|options| options.engine.memory = Some(identity(100)));
    d.configure(|config| config.max_delay = Duration::from_millis(20)).unwrap();
    d.configure(|config| config.max_delay = Duration::from_millis(100)).unwrap();
    let refused = d.configure(|config| config.max_delay = Duration::from_millis(101));
    assert!(refused.unwrap_err().to_string().starts_with("max-delay cannot be longer"));
    // There it counts for nothing.
    d.configure(|config| config.ack = AckMode::Durable).unwrap();
}

/// Changes are refused from then on, and only those: what was acknowledged before goes on to the
/// data-disk, and flushes count.
#[test]
fn changes_may_be_refused_and_let_in_again() {
    for mode in [Mode::WriteBack, Mode::PassThrough] {
        let mut d = Driver::with(|options| options.engine.mode = mode);
        d.run_until(|d| d.status().mode.mode == mode);
        d.hold(|_| true);
        let before = d.write_fua(100, 1);
        d.configure(|config| config.read_only = true).unwrap();
        for id in [d.write(100, 2), d.discard(800, 8), d.write_fua(101, 2)] {
            assert_eq!(d.result(id), Err(RequestError::ReadOnly));
        }
        d.release();
        d.expect_ok(before);
        d.done(Driver::flush);
        d.drain();
        assert_eq!([100, 101].map(|line| d.data_disk.line(line)), [1, 0]);
        assert_eq!(d.read(100), 1);
        d.configure(|config| config.read_only = false).unwrap();
        d.done(|d| d.write_fua(100, 3));
        assert_eq!(d.read(100), 3);
    }
}

/// Not where the data-disk takes no writes.
#[test]
fn a_data_disk_that_takes_no_writes_stays_read_only() {
    let mut d = Driver::new();
    d.shut_down();
    (d.options.engine.read_only, d.options.engine.data_disk_read_only) = (true, true);
    d.reopen();
    let refused = d.configure(|config| config.read_only = false).unwrap_err().to_string();
    assert!(refused.starts_with("read-only must be set"), "{refused}");
    let write = d.write(1, 1);
    assert_eq!(d.result(write), Err(RequestError::ReadOnly));
}
