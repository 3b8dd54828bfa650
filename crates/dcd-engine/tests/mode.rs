//! Modes, switched while requests are served: what is promised at each moment (contract C35 to
//! C39).

mod common;

use common::{ACK_MODES, Driver, Kind};
use dcd_engine::stats::ModeState;
use dcd_engine::{
    AckMode, Device, Duration, EngineConfig, IoError, LbaRange, Mode, Operation, RequestError,
    SequenceError, SequenceRequest,
};

fn want(d: &mut Driver, mode: Mode) {
    d.configure(|config| config.mode = mode).expect("a mode that can be");
}

/// Wanted, and reached.
fn switch(d: &mut Driver, mode: Mode) {
    want(d, mode);
    d.run_until(|d| d.status().mode.state == ModeState::Reached);
    assert_eq!(d.status().mode.mode, mode);
}

/// With lines 100 to 139 dirty, each of them 1.
fn dirty(ack: AckMode) -> Driver {
    let mut d = Driver::never_idle(|options| {
        options.engine.ack = ack;
        options.engine.bypass_threshold_bytes = 64 << 10;
    });
    d.write_durably(100..140, 1);
    d
}

/// All that was dirty is on the data-disk when the mode is reached, and from then on nothing but
/// the data-disk is used.
#[test]
fn what_was_dirty_is_on_the_data_disk_and_the_cache_disk_is_left_alone() {
    for ack in ACK_MODES {
        let mut d = dirty(ack);
        switch(&mut d, Mode::PassThrough);
        assert!((100..140).all(|line| d.data_disk.line(line) == 1));
        assert!(d.status().cache_disk_clean && d.status().uncached.is_none());
        let mark = d.started.len();
        d.done(|d| d.write(100, 2));
        assert_eq!(d.data_disk.line(100), 2, "as far as the kernel knows");
        d.done(Driver::flush);
        d.discard(110 * 8, 8);
        d.drain();
        assert_eq!([100, 101, 110].map(|line| d.read(line)), [2, 1, 0]);
        d.advance_time(Duration::from_secs(100));
        assert!(d.started[mark..].iter().all(|io| io.device == Device::DataDisk));
    }
}

/// Requests go on all the time; none fails, and each write is where it belongs.
#[test]
fn requests_go_on_while_it_is_switched_to_and_fro() {
    for ack in ACK_MODES {
        let mut d = dirty(ack);
        let mut value = 1;
        for round in 0..40 {
            let mode = if round % 2 == 0 { Mode::PassThrough } else { Mode::WriteBack };
            want(&mut d, mode);
            let mut asked = Vec::new();
            for step in 0..60 {
                value = value % 250 + 1;
                asked.push((100 + step % 40, d.write(100 + step % 40, value)));
                if step % 9 == 0 {
                    d.flush();
                }
                for _ in 0..step % 4 {
                    d.finish_one();
                }
            }
            let newest = value;
            for (_, id) in &asked {
                d.expect_ok(*id);
            }
            d.run_until(|d| d.status().mode.state == ModeState::Reached);
            assert_eq!(d.status().mode.mode, mode);
            assert_eq!(d.read(119), newest, "the last of them");
        }
        d.restart();
        assert_eq!(d.read(119), value);
    }
}

/// A crash while changes go past the log: what was flushed is there, and nothing old is put over
/// it, whether the segment memory has survived or not.
#[test]
fn nothing_old_comes_back_after_a_crash() {
    for (is_killed, returns) in [(true, false), (false, false), (true, true), (false, true)] {
        let mut d = dirty(AckMode::Memory);
        switch(&mut d, Mode::PassThrough);
        for line in [0, 100, 101] {
            d.done(|d| d.write_fua(line, 2));
        }
        if returns {
            switch(&mut d, Mode::WriteBack);
            d.write_durably([101, 102], 3);
        }
        match is_killed {
            true => d.kill(),
            false => d.power_cut(),
        }
        d.options.engine.mode = Mode::WriteBack;
        d.reopen();
        let expected = if returns { [2, 2, 3, 3, 1] } else { [2, 2, 2, 1, 1] };
        assert_eq!([0, 100, 101, 102, 103].map(|line| d.read(line)), expected, "{is_killed}");
        d.drain();
        assert_eq!([0, 100, 101, 102, 103].map(|line| d.data_disk.line(line)), expected);
    }
}

/// Behind a record all that was acknowledged before counts as durable, so the data-disk is flushed
/// before there is one.
#[test]
fn what_went_past_the_log_is_durable_before_anything_is_logged() {
    let mut d = dirty(AckMode::Memory);
    switch(&mut d, Mode::PassThrough);
    d.done(|d| d.write(100, 2));
    switch(&mut d, Mode::WriteBack);
    d.write_durably([101], 3);
    d.power_cut();
    d.options.engine.mode = Mode::WriteBack;
    d.reopen();
    assert_eq!([100, 101].map(|line| d.read(line)), [2, 3]);
}

/// The end is that of a cache, and the next start goes on in the mode that is wanted then.
#[test]
fn an_end_in_order_comes_out_of_it_first() {
    for is_detached in [false, true] {
        let mut d = dirty(AckMode::Memory);
        switch(&mut d, Mode::PassThrough);
        d.write(100, 2);
        match is_detached {
            true => d.detach(),
            false => d.shut_down(),
        }
        assert_eq!(d.data_disk.line(100), 2);
        d.reopen();
        d.run_until(|d| d.status().mode.state == ModeState::Reached);
        assert_eq!(d.status().mode.mode, Mode::PassThrough);
        assert_eq!([100, 101].map(|line| d.read(line)), [2, 1]);
    }
}

/// Nobody waits for longer than was said: when the rest takes longer than thought, changes go on in
/// the log.
#[test]
fn changes_are_held_for_a_second_at_first() {
    let mut d = dirty(AckMode::Memory);
    d.hold(|io| io.is(Device::CacheDisk, Kind::Flush));
    want(&mut d, Mode::PassThrough);
    d.finish_all();
    assert_eq!(d.status().mode.state, ModeState::Holding);
    let write = d.write(100, 2);
    d.advance_time(Duration::from_millis(500));
    assert!(!d.is_answered(write));
    d.advance_time(Duration::from_millis(1500));
    assert!(d.is_answered(write) && d.result(write).is_ok());
    assert_eq!(d.status().mode.mode, Mode::WriteBack);
    d.release();
    d.run_until(|d| d.status().mode.state == ModeState::Reached);
    assert_eq!(d.data_disk.line(100), 2);
}

/// Who writes faster than the data-disk takes it is slowed, so that the switch has an end.
#[test]
fn a_switch_ends_although_clients_never_stop() {
    let mut d = Driver::never_idle(|options| options.segments = 64);
    d.write_durably(0..500, 1);
    want(&mut d, Mode::PassThrough);
    let mut line = 0;
    for _ in 0..100_000 {
        if d.status().mode.mode == Mode::PassThrough {
            break;
        }
        for _ in 0..4 {
            line = (line + 37) % 1000;
            d.write(line, 2);
        }
        d.step();
    }
    assert_eq!(d.status().mode.mode, Mode::PassThrough, "{:?}", d.status());
}

/// What cannot be brought home keeps the mode, and holds nobody.
#[test]
fn a_data_disk_that_takes_nothing_ends_the_switch() {
    let mut d = dirty(AckMode::Memory);
    d.fail_always(Device::DataDisk, Kind::Write, 0..u64::MAX, IoError::Failed);
    want(&mut d, Mode::PassThrough);
    d.run_until(|d| matches!(d.status().mode.state, ModeState::GivenUp(_)));
    let ModeState::GivenUp(error) = d.status().mode.state else { unreachable!("looked at") };
    assert!(matches!(error, RequestError::Stuck { lines: 40, .. }), "{error:?}");
    let write = d.write(100, 2);
    assert!(d.is_answered(write) && d.status().mode.mode == Mode::WriteBack);
    // Asked for again: tried again, and what is told is of now.
    d.write(200, 2);
    d.configure(|config| config.mode_asked += 1).expect("the same mode");
    assert_ne!(d.status().mode.state, ModeState::GivenUp(error));
    d.run_until(|d| matches!(d.status().mode.state, ModeState::GivenUp(_)));
    let given_up = ModeState::GivenUp(RequestError::Stuck { lines: 41, zero_lines: 0 });
    assert_eq!(d.status().mode.state, given_up);
    d.heal();
    d.advance_time(Duration::from_secs(60));
    assert_eq!(d.status().mode.state, given_up, "nobody has asked");
    d.configure(|config| config.mode_asked += 1).expect("the same mode");
    d.run_until(|d| d.status().mode.state == ModeState::Reached);
    assert_eq!(d.status().mode.mode, Mode::PassThrough);
    // Another one.
    switch(&mut d, Mode::WriteBack);
    switch(&mut d, Mode::PassThrough);
    assert_eq!(d.data_disk.line(100), 2);
}

/// A line that is lost is not shown as it was before, as it would be on the data-disk.
#[test]
fn a_lost_line_ends_the_switch() {
    let mut d = dirty(AckMode::Memory);
    d.cache_disk.flip(d.slots_of(1)[0]);
    want(&mut d, Mode::PassThrough);
    d.run_until(|d| matches!(d.status().mode.state, ModeState::GivenUp(_)));
    assert_eq!(d.status().mode.state, ModeState::GivenUp(RequestError::Lost { lines: 1 }));
    assert_eq!(d.status().mode.mode, Mode::WriteBack);
}

/// What is no longer wanted ends, at any moment, and nobody waits any more.
#[test]
fn a_switch_may_be_taken_back_at_any_moment() {
    for ios_done in 0..40 {
        let mut d = dirty(AckMode::Memory);
        want(&mut d, Mode::PassThrough);
        for _ in 0..ios_done {
            d.finish_one();
        }
        let write = d.write(100, 2);
        switch(&mut d, Mode::WriteBack);
        d.expect_ok(write);
        d.write_durably([101], 3);
        d.power_cut();
        d.options.engine.mode = Mode::WriteBack;
        d.reopen();
        assert_eq!([100, 101, 102].map(|line| d.read(line)), [2, 3, 1], "after {ios_done} I/Os");
    }
}

/// A copy that was true before is not believed afterwards.
#[test]
fn copies_do_not_outlive_what_they_were_of() {
    let mut d = Driver::with(|options| {
        options.copy_pages = 4;
        options.engine.bypass_threshold_bytes = 64 << 10;
    });
    d.write_durably(100..110, 1);
    d.drain();
    d.overwrite_segments(500, 20);
    for _ in 0..3 {
        for line in 100..110 {
            d.done(|d| d.submit(Operation::read(LbaRange::new(line * 8, 8)), false));
        }
        d.advance_time(Duration::from_secs(5));
    }
    assert!(d.status().copies.valid > 0, "{:?}", d.status().copies);
    switch(&mut d, Mode::PassThrough);
    d.done(|d| d.write(105, 2));
    d.advance_time(Duration::from_secs(50));
    assert_eq!(d.status().copies.valid, 0);
    assert_eq!(d.read(105), 2);
    switch(&mut d, Mode::WriteBack);
    assert_eq!(d.read(105), 2);
    d.power_cut();
    d.options.engine.mode = Mode::WriteBack;
    d.reopen();
    assert_eq!(d.read(105), 2);
}

/// A cache for reads with nothing dirty in it: copies are served, and dropped when their lines are
/// written; behind the way back they are believed, after a crash only when they were compared.
#[test]
fn write_around_keeps_copies_true() {
    for end in ["back", "kill", "power cut", "stop"] {
        let mut d = Driver::with(|options| {
            options.copy_pages = 4;
            options.engine.bypass_threshold_bytes = 64 << 10;
        });
        switch(&mut d, Mode::WriteAround);
        for line in 100..110 {
            d.done(|d| d.write(line, 1));
        }
        for line in 100..110 {
            d.done(|d| d.submit(Operation::read(LbaRange::new(line * 8, 8)), false));
        }
        d.advance_time(Duration::from_secs(5));
        assert_eq!(d.status().copies.valid, 10, "{:?}", d.status().copies);
        let mark = d.started.len();
        assert_eq!(d.read(101), 1);
        assert!(d.started[mark..].iter().all(|io| io.device == Device::CacheDisk));
        d.done(|d| d.write_fua(105, 2));
        assert_eq!(d.status().copies.valid, 9);
        assert_eq!([104, 105].map(|line| d.read(line)), [1, 2]);
        match end {
            "back" => {
                switch(&mut d, Mode::WriteBack);
                assert!(d.status().copies.valid >= 9);
                d.write_durably([106], 3);
                d.power_cut();
                d.options.engine.mode = Mode::WriteBack;
                d.reopen();
                assert!(d.status().copies.valid > 0, "{:?}", d.status().copies);
                assert_eq!(d.read(106), 3);
            }
            "kill" => {
                d.kill_and_reopen();
                assert_eq!(d.status().copies.valid, 0);
            }
            "power cut" => {
                d.power_cycle();
                assert_eq!(d.status().copies.valid, 0);
            }
            _ => {
                d.restart();
                assert!(d.status().copies.valid > 0, "{:?}", d.status().copies);
            }
        }
        assert_eq!([104, 105].map(|line| d.read(line)), [1, 2], "{end}");
    }
}

/// With hot blocks.
fn with_read_area() -> Driver {
    Driver::with(|options| {
        options.copy_pages = 4;
        options.engine.bypass_threshold_bytes = 64 << 10;
    })
}

/// What is written is served from the read area at once, in whole lines, and is on the data-disk
/// when it is acknowledged.
#[test]
fn write_through_keeps_what_is_written() {
    for ack in ACK_MODES {
        for is_fua in [false, true] {
            let mut d = Driver::with(|options| {
                options.copy_pages = 4;
                options.engine.ack = ack;
            });
            switch(&mut d, Mode::WriteThrough);
            for value in [1, 2] {
                for line in 100..110 {
                    let write =
                        if is_fua { d.write_fua(line, value) } else { d.write(line, value) };
                    d.expect_ok(write);
                    assert_eq!(d.data_disk.line(line), value);
                }
            }
            d.advance_time(Duration::from_secs(5));
            assert_eq!(d.status().copies.valid, 10, "{:?}", d.status().copies);
            let mark = d.started.len();
            assert!((100..110).all(|line| d.read(line) == 2));
            assert!(d.started[mark..].iter().all(|io| io.device == Device::CacheDisk));
            // A part of a line leaves no copy of it.
            d.done(|d| d.write_blocks(105 * 8, 1, 3));
            d.advance_time(Duration::from_secs(5));
            assert_eq!(d.status().copies.valid, 9);
            let read = d.try_read(105 * 8, 2).expect("no error");
            assert_eq!(read, [[3; 512], [2; 512]].concat());
        }
    }
}

/// A write that is overtaken by another of its line leaves no copy, nor does one that fails.
#[test]
fn write_through_keeps_nothing_that_is_not_the_newest() {
    let mut d = with_read_area();
    switch(&mut d, Mode::WriteThrough);
    d.hold(|io| io.device == Device::DataDisk);
    let writes = [d.write(100, 1), d.write(100, 2)];
    let [first] = d.ios_of(Device::DataDisk, Kind::Write)[..] else { panic!("one is under way") };
    d.finish(first);
    assert!(d.is_answered(writes[0]) && !d.is_answered(writes[1]));
    d.advance_time(Duration::from_secs(5));
    assert_eq!(d.status().copies.valid, 0, "the second is under way");
    d.release();
    d.expect_ok(writes[1]);
    d.advance_time(Duration::from_secs(5));
    assert_eq!((d.status().copies.valid, d.read(100)), (1, 2));
    d.fail_next(Device::DataDisk, Kind::Write, IoError::Failed);
    let write = d.write(100, 3);
    assert!(d.wait(write).is_err());
    d.advance_time(Duration::from_secs(5));
    assert_eq!(d.status().copies.valid, 0);
}

/// A long run of writes is no reason to give up what is read often.
#[test]
fn write_through_keeps_no_scan() {
    let mut d = with_read_area();
    switch(&mut d, Mode::WriteThrough);
    for start in (100..1000).step_by(16) {
        d.done(|d| d.write_blocks(start * 8, 16 * 8, 1));
    }
    d.advance_time(Duration::from_secs(5));
    let valid = d.status().copies.valid;
    assert!((1..=256 + 16).contains(&valid), "{valid} of 912 lines");
}

/// The two modes that keep copies lead to each other without a drain or a hold.
#[test]
fn write_through_and_write_around_need_no_switch() {
    let mut d = with_read_area();
    switch(&mut d, Mode::WriteThrough);
    d.done(|d| d.write(100, 1));
    d.advance_time(Duration::from_secs(5));
    d.hold(|io| io.device == Device::DataDisk);
    let under_way = d.write(101, 1);
    want(&mut d, Mode::WriteAround);
    assert_eq!(d.status().mode.mode, Mode::WriteAround);
    assert_eq!(d.status().mode.state, ModeState::Reached);
    d.release();
    d.expect_ok(under_way);
    let mark = d.started.len();
    assert_eq!(d.read(100), 1);
    assert!(d.started[mark..].iter().all(|io| io.device == Device::CacheDisk));
    switch(&mut d, Mode::WriteThrough);
    assert!(d.started[mark..].iter().all(|io| io.kind != Kind::Flush));
}

/// A read that began before a write of its line brings nothing that is kept.
#[test]
fn what_is_read_beside_a_write_is_not_kept() {
    let mut d = Driver::with(|options| options.copy_pages = 4);
    switch(&mut d, Mode::WriteAround);
    d.hold(|io| io.device == Device::DataDisk);
    d.submit(Operation::read(LbaRange::new(800, 8)), false);
    let write = d.write(100, 2);
    let [read] = d.ios_of(Device::DataDisk, Kind::Read)[..] else { panic!("one is under way") };
    d.finish(read);
    d.release();
    d.expect_ok(write);
    d.advance_time(Duration::from_secs(5));
    assert_eq!(d.status().copies.valid, 0);
    assert_eq!(d.read(100), 2);
}

/// From one to the other, by way of the log.
#[test]
fn one_mode_past_the_log_leads_to_the_other() {
    let mut d = dirty(AckMode::Memory);
    for (round, mode) in
        [Mode::WriteAround, Mode::PassThrough, Mode::WriteAround].iter().enumerate()
    {
        switch(&mut d, *mode);
        d.done(|d| d.write(100, round as u8 + 2));
        assert_eq!(d.data_disk.line(100), round as u8 + 2);
    }
}

/// It is not noticed that the cache-disk is gone; when it would be used again, it is gone without
/// anything on it.
#[test]
fn the_cache_disk_may_be_pulled() {
    let mut d = dirty(AckMode::Memory);
    switch(&mut d, Mode::PassThrough);
    for kind in [Kind::Read, Kind::Write, Kind::Flush] {
        d.fail_always(Device::CacheDisk, kind, 0..u64::MAX, IoError::Gone);
    }
    d.done(|d| d.write_fua(100, 2));
    assert!(!d.status().cache_disk_failed);
    want(&mut d, Mode::WriteBack);
    d.done(|d| d.write_fua(101, 3));
    assert!(d.status().cache_disk_failed, "noticed before the first record");
    assert_eq!([100, 101].map(|line| d.data_disk.line(line)), [2, 3]);
}

#[test]
fn what_cannot_be_switched_says_so() {
    let mut d = Driver::with(|options| options.engine.no_log = true);
    let error = d.configure(|config| config.mode = Mode::PassThrough).unwrap_err();
    assert!(error.to_string().starts_with("mode "), "{error}");
    // Where nothing would be kept, it would be another mode than it says.
    let mut d = Driver::new();
    let error = d.configure(|config| config.mode = Mode::WriteThrough).unwrap_err();
    assert!(error.to_string().contains("read area"), "{error}");
    assert_eq!(d.status().mode.mode, Mode::WriteBack);
    let mut d = Driver::with(|options| {
        options.copy_pages = 4;
        options.engine.one_disk = true;
    });
    let wanted = EngineConfig { mode: Mode::WriteThrough, ..EngineConfig::default() };
    let error = d.configure(|config| *config = wanted).unwrap_err();
    assert!(error.to_string().contains("on a disk of its own"), "{error}");
}

/// The mode that is wanted changes in the last step: what the checkpoint lists is for the first.
#[test]
fn another_mode_may_be_wanted_in_the_last_step() {
    for ios_done in 0..60 {
        let mut d = Driver::with(|options| options.copy_pages = 4);
        for line in 100..110 {
            d.done(|d| d.submit(Operation::read(LbaRange::new(line * 8, 8)), false));
        }
        d.advance_time(Duration::from_secs(5));
        assert_eq!(d.status().copies.valid, 10);
        d.write_durably([500], 1);
        want(&mut d, Mode::WriteAround);
        for _ in 0..ios_done {
            d.finish_one();
        }
        switch(&mut d, Mode::PassThrough);
        d.done(|d| d.write_fua(105, 2));
        switch(&mut d, Mode::WriteBack);
        assert_eq!(d.read(105), 2, "after {ios_done} I/Os");
    }
}

/// What is answered about sequences is not forgotten by a crash, and no checkpoint is made there.
#[test]
fn sequences_are_not_changed_while_the_cache_disk_is_left_alone() {
    let mut d = Driver::with(|options| options.copy_pages = 4);
    switch(&mut d, Mode::PassThrough);
    let clear = d.submit(Operation::Sequence(SequenceRequest::Clear), false);
    assert_eq!(d.result(clear), Err(SequenceError::ReadAreaUnused.into()));
    switch(&mut d, Mode::WriteBack);
    d.done(|d| d.submit(Operation::Sequence(SequenceRequest::Clear), false));
}

/// Past the log a drain is a flush; whoever does not want it any more is told so, once.
#[test]
fn a_drain_past_the_log_is_cancelled_at_once() {
    let mut d = dirty(AckMode::Memory);
    switch(&mut d, Mode::PassThrough);
    for is_under_way in [true, false] {
        d.hold(|io| io.is(Device::DataDisk, Kind::Flush));
        let before = (!is_under_way).then(|| d.flush());
        let drain = d.submit(Operation::Drain, false);
        let cancel = d.submit(Operation::CancelDrain { drain }, false);
        assert_eq!((d.result(cancel), d.result(drain)), (Ok(()), Err(RequestError::Cancelled)));
        d.release();
        d.finish_all();
        before.into_iter().for_each(|flush| d.expect_ok(flush));
        // It has been answered: nothing happens.
        d.done(|d| d.submit(Operation::CancelDrain { drain }, false));
    }
}

/// What is under way keeps no more memory than may wait for the read area anyway.
#[test]
fn write_through_keeps_little_of_many_writes_under_way() {
    let mut d = Driver::with(|options| {
        options.copy_pages = 16;
        options.data_disk.blocks = 1 << 17;
    });
    switch(&mut d, Mode::WriteThrough);
    d.hold(|io| io.is(Device::DataDisk, Kind::Write));
    // Each alone is no scan: 5 MiB in forty places.
    let writes: Vec<_> = (0..40).map(|at| d.write_blocks(at * 3200, 256, 1)).collect();
    for write in writes {
        let io = d.find_io(Device::DataDisk, Kind::Write).expect("under way");
        d.finish(io);
        d.expect_ok(write);
        d.advance_time(Duration::from_millis(10));
    }
    assert_eq!(d.status().copies.valid, 1024, "4 MiB");
    d.release();
    d.done(|d| d.write_blocks(1600, 8, 2));
    d.advance_time(Duration::from_secs(5));
    assert_eq!(d.status().copies.valid, 1025, "it goes on");
}

/// Whichever checkpoint cannot be read behind a switch there and back: the copies of the other are
/// of now, too, or are not believed. The segment memory is there, and no record names a checkpoint.
#[test]
fn either_checkpoint_lists_the_copies_of_now() {
    for mode in [Mode::PassThrough, Mode::WriteAround, Mode::WriteThrough] {
        for is_newer in [true, false] {
            let mut d = with_read_area();
            for line in 100..110 {
                d.done(|d| d.submit(Operation::read(LbaRange::new(line * 8, 8)), false));
            }
            d.done(|d| d.submit(Operation::Sequence(SequenceRequest::Save), false));
            d.advance_time(Duration::from_secs(5));
            assert_eq!(d.status().copies.valid, 10);
            switch(&mut d, mode);
            d.done(|d| d.write_fua(105, 2));
            switch(&mut d, Mode::WriteBack);
            d.kill();
            d.lose_checkpoint(is_newer);
            d.options.engine.mode = Mode::WriteBack;
            d.reopen();
            assert_eq!(d.read(105), 2, "{mode:?} {is_newer}");
        }
    }
}

/// Nobody looks at the cache-disk in pass-through. What is there when changes are to be logged
/// again may be nothing, or another cache: they are not, and what no start could find is
/// acknowledged from the data-disk alone.
#[test]
fn a_cache_disk_that_was_overwritten_meanwhile_is_not_gone_back_to() {
    let zeroes: fn(&mut Driver) = |d| {
        let bytes = vec![0; 256 << 10];
        d.cache_disk.rot(0, &bytes);
    };
    let of_an_older_session: fn(&mut Driver) = |d| {
        let mut older = d.superblock();
        older.generation -= 2;
        d.cache_disk.rot(d.superblock().offset(), older.encode().bytes());
    };
    for overwrite in [zeroes, of_an_older_session] {
        let mut d = dirty(AckMode::Memory);
        switch(&mut d, Mode::PassThrough);
        overwrite(&mut d);
        want(&mut d, Mode::WriteBack);
        d.done(|d| d.write_fua(100, 2));
        assert!(d.status().cache_disk_failed);
        assert_eq!(d.data_disk.line(100), 2);
        let mark = d.started.len();
        d.done(Driver::flush);
        d.advance_time(Duration::from_secs(100));
        assert!(d.started[mark..].iter().all(|io| io.device == Device::DataDisk));
    }
    // An end in order comes the same way.
    let mut d = dirty(AckMode::Memory);
    switch(&mut d, Mode::PassThrough);
    d.done(|d| d.write(100, 2));
    zeroes(&mut d);
    d.shut_down();
    d.data_disk.drop_unflushed();
    assert_eq!(d.data_disk.line(100), 2);
    assert!(d.cache_disk.current[..256 << 10].iter().all(|byte| *byte == 0));
}

/// However short the waits are, and however often it is tried again with so little left: nobody is
/// held for longer than a drain would wait.
#[test]
fn few_lines_that_go_nowhere_end_the_switch_in_time() {
    let mut d = dirty(AckMode::Memory);
    d.configure(|config| config.drain_timeout = Duration::from_secs(10)).expect("a time");
    d.fail_always(Device::DataDisk, Kind::Write, 0..u64::MAX, IoError::NoSpace);
    let began = d.now;
    want(&mut d, Mode::PassThrough);
    d.run_until(|d| matches!(d.status().mode.state, ModeState::GivenUp(_)));
    assert!(d.now.since(began) <= Duration::from_secs(20), "{:?}", d.now.since(began));
}

/// One failed transfer is no other disk, two are.
#[test]
fn a_cache_disk_that_cannot_be_read_once_is_gone_back_to() {
    for (fails, is_gone_back_to) in [(1, true), (2, false)] {
        let mut d = dirty(AckMode::Memory);
        switch(&mut d, Mode::PassThrough);
        for _ in 0..fails {
            d.fail_next(Device::CacheDisk, Kind::Read, IoError::Failed);
        }
        want(&mut d, Mode::WriteBack);
        d.done(|d| d.write_fua(101, 3));
        assert_eq!(d.status().cache_disk_failed, !is_gone_back_to, "{fails} reads");
        assert_eq!(d.data_disk.line(101) == 3, !is_gone_back_to);
    }
}

/// What was seen for a return that was not made says nothing of the next one.
#[test]
fn the_cache_disk_is_looked_at_for_each_return() {
    for ends_first in [true, false] {
        let mut d = dirty(AckMode::Memory);
        switch(&mut d, Mode::PassThrough);
        // The look ends, and what is behind it waits; or the look itself does.
        let kind = if ends_first { Kind::Flush } else { Kind::Read };
        d.hold(move |io| io.kind == kind);
        want(&mut d, Mode::WriteBack);
        d.finish_all();
        want(&mut d, Mode::PassThrough);
        d.release();
        d.finish_all();
        d.cache_disk.rot(0, &[0; 256 << 10]);
        want(&mut d, Mode::WriteBack);
        d.done(|d| d.write_fua(100, 2));
        assert!(d.status().cache_disk_failed && d.data_disk.line(100) == 2);
    }
}

/// What went past the log may be lost then: nothing is acknowledged behind it any more (C38).
#[test]
fn a_flush_that_fails_on_the_way_back_is_not_believed() {
    let mut d = dirty(AckMode::Memory);
    switch(&mut d, Mode::PassThrough);
    d.done(|d| d.write(100, 2));
    d.fail_next(Device::DataDisk, Kind::Flush, IoError::Failed);
    want(&mut d, Mode::WriteBack);
    d.run_until(|d| d.status().mode.state == ModeState::Failed);
    assert_eq!(d.status().mode.mode, Mode::PassThrough, "it was never left");
    let write = d.write_fua(101, 3);
    assert_eq!(d.wait(write), Err(RequestError::Io));
    let flush = d.flush();
    assert_eq!(d.wait(flush), Err(RequestError::Io));
}
