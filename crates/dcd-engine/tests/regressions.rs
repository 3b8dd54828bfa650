//! Bugs that were found by reading and by hand-made cases: each must stay away.

mod common;

mod c04_damage_in_memory_takes_records_before_it_along {
    //! C4: a flipped bit in the surviving segment memory must lose nothing but its own record and
    //! those behind it.

    use super::common::{Driver, never_idle};

    /// `judge_the_end` drops *all* memory writes when a record is torn, also those of records that
    /// count.
    #[test]
    fn damage_in_surviving_memory_loses_nothing_before_it() {
        let mut d = Driver::with(never_idle);
        for line in 100..130 {
            d.write(line, 1);
        }
        d.write(200, 3);
        d.kill();
        let memory = d.surviving_memory();
        let page =
            memory.chunks(4096).position(|page| page.iter().all(|b| *b == 3)).expect("in memory");
        memory[page * 4096] ^= 1;
        d.reopen();
        for line in 100..130 {
            assert_eq!(d.read(line), 1, "{line}");
        }
    }
}

mod c14_more_buffers_than_segments {
    //! A part of a large write that needs more segments than there are: it waits for room that can
    //! never be.

    use super::common::Driver;

    #[test]
    fn a_large_write_finds_room_in_a_small_cache_with_many_buffers() {
        let mut d = Driver::with(|options| {
            options.engine.segment_buffers = 64;
            options.engine.bypass_threshold_bytes = 1 << 30;
        });
        let write = d.write_blocks(0, 2048, 1);
        assert_eq!(d.wait(write), Ok(()));
    }
}

mod c21_one_bad_cache_disk_block_stops_destaging {
    //! C21: one sector of the cache-disk cannot be read; others must go on.

    use super::common::{Driver, Kind};
    use dcd_engine::{Device, Duration, IoError};

    #[test]
    fn one_bad_cache_disk_block_does_not_stop_destaging() {
        let mut d = Driver::new();
        d.write_durably((0..15).map(|i| 100 + 2 * i), 1);
        d.write_durably([300], 2);
        let bad = d.slots_of(1)[7];
        d.fail_always(Device::CacheDisk, Kind::Read, bad..bad + 4096, IoError::Failed);
        d.advance_time(Duration::from_secs(3600));
        assert_eq!(d.data_disk.line(300), 2, "other segments");
        assert_eq!(d.data_disk.line(102), 1, "other slots");
    }
}

mod c22_bypass_that_waits_for_room_is_never_answered {
    //! The cache-disk fails for good while a bypassed write, already on the data-disk, waits for
    //! room for its tombstone.

    use super::common::{Driver, Kind};
    use dcd_engine::{Device, Duration, IoError};

    #[test]
    fn a_bypass_that_waits_for_room_is_told_when_the_cache_disk_fails() {
        let mut d = Driver::never_idle(|options| options.engine.bypass_threshold_bytes = 8192);
        d.hold(|io| io.device == Device::DataDisk);
        let bypass = d.write_blocks(8 * 900, 16, 1);
        d.hold(|io| io.device == Device::CacheDisk);
        for line in 0..200 {
            d.write(300 + line, 1);
        }
        d.release();
        d.fail_always(Device::CacheDisk, Kind::Write, 0..u64::MAX, IoError::Gone);
        d.advance_time(Duration::from_secs(3600));
        assert!(d.is_answered(bypass));
    }
}

mod c24_one_bad_data_disk_block_stops_destaging {
    //! C24: one bad place of the data-disk; others must go on.

    use super::common::{Driver, Kind};
    use dcd_engine::{Device, Duration, IoError};

    /// first-write-first always names the segment with the bad line again: nothing else is ever
    /// destaged.
    #[test]
    fn other_segments_are_destaged_beside_a_bad_data_disk_block() {
        let mut d = Driver::new();
        d.write_durably((0..15).map(|i| 100 + 2 * i), 1);
        d.write_durably((0..15).map(|i| 300 + 2 * i), 2);
        d.fail_always(Device::DataDisk, Kind::Write, 100 * 4096..101 * 4096, IoError::Failed);
        d.advance_time(Duration::from_secs(3600));
        assert_eq!(d.data_disk.line(102), 1, "others of the batch");
        assert_eq!(d.data_disk.line(300), 2, "another segment");
    }
}

mod c26_bypass_behind_a_hung_destage_write_is_never_answered {
    //! A bypassed write waits for a destage write of the same line, and that hangs.

    use super::common::{Driver, Kind};
    use dcd_engine::{Device, Duration};

    #[test]
    fn a_bypass_behind_a_hung_destage_write_is_answered() {
        let mut d = Driver::with(|options| options.engine.bypass_threshold_bytes = 8192);
        d.write_durably([100], 1);
        d.hold(|io| io.is(Device::DataDisk, Kind::Write));
        d.advance_time(Duration::from_secs(10));
        let bypass = d.write_blocks(800, 16, 2);
        d.advance_time(Duration::from_secs(3600));
        assert!(d.is_answered(bypass));
    }
}

mod c28_bypass_over_a_forgotten_witness {
    //! C28: a bypassed write over a line whose witness is only in the newest checkpoint; power cut
    //! before its tombstone.

    use super::common::{Driver, Kind};
    use dcd_engine::Device;

    #[test]
    fn a_crash_during_a_bypass_is_no_foreign_change() {
        let mut d = Driver::never_idle(|options| options.engine.bypass_threshold_bytes = 8192);
        d.write_durably([600, 601], 1);
        d.drain();
        d.shut_down();
        d.reopen(); // The checkpoint has witnesses of 600 and 601 ...
        d.write_durably((0..17).map(|i| 700 + 2 * i), 2);
        d.drain(); // ... which newer ones push out of memory.
        d.hold(|io| io.is(Device::DataDisk, Kind::Flush));
        d.write_blocks(600 * 8, 16, 3);
        d.finish_all();
        d.power_cut_keeping(|_, _| true);
        d.reopen();
    }
}

mod drain_with_zeroes_never_ends_under_load {
    //! A drain with zeroed ranges under continuing writes: zero work waits for a moment at which
    //! *every* record is durable.

    use super::common::Driver;
    use dcd_engine::Operation;

    #[test]
    fn a_drain_with_zeroes_ends_under_continuing_load() {
        let mut d = Driver::new();
        d.write_durably([100], 1);
        d.done(|d| d.discard(4000, 800));
        let drain = d.submit(Operation::Drain, false);
        let mut writes = 0;
        while !d.is_answered(drain) {
            writes += 1;
            assert!(writes < 20_000, "the drain does not end");
            d.write(800 + writes % 50, 2);
            d.finish_one();
        }
    }
}

mod empty_write_in_log_mode_is_never_answered {
    //! A write of no blocks in `log` mode waits for a record that was written long ago.

    use super::common::Driver;
    use dcd_engine::{AckMode, Duration};

    #[test]
    fn an_empty_write_is_answered() {
        let mut d = Driver::with(|options| options.engine.ack = AckMode::Log);
        d.write_durably([1], 1);
        let id = d.write_blocks(800, 0, 1);
        d.advance_time(Duration::from_secs(100));
        assert!(d.is_answered(id));
    }
}

mod format_bypasses_split_zero_ranges_beyond_the_checkpoint {
    //! A discard of the whole disk (mkfs), then large writes: each cuts a zero range in two,
    //! without limit.

    use super::common::Driver;

    /// A checkpoint with more than `ZERO_RANGES_MAX` is written without complaint and cannot be
    /// read back.
    #[test]
    fn bypasses_do_not_make_more_zero_ranges_than_a_checkpoint_holds() {
        let mut d = Driver::never_idle(|options| {
            options.engine.bypass_threshold_bytes = 4096;
            options.data_disk.blocks = 8 * 20_000;
        });
        d.discard(1000 * 8, 19_000 * 8);
        for batch in 0..84u64 {
            let lines = (0..100).map(|i| 1001 + 2 * (batch * 100 + i));
            let ids: Vec<_> = lines.map(|line| d.write_blocks(line * 8, 8, 1)).collect();
            for id in ids {
                d.expect_ok(id);
            }
        }
        for _ in 0..300 {
            d.write_blocks(800, 1, 1);
            d.done(Driver::flush);
        }
        d.restart();
    }
}

mod format_more_poison_than_a_checkpoint_holds {
    //! More than POISONED_LINES_MAX rotten lines: the checkpoint is written and cannot be read
    //! back.

    use super::common::Driver;
    use dcd_engine::RequestError;

    #[test]
    fn much_rot_does_not_make_the_checkpoint_unreadable() {
        let mut d = Driver::never_idle(|options| {
            options.segments = 700;
            options.data_disk.blocks = 8 * 20_000;
        });
        for first in (1000..10_000).step_by(15) {
            d.write_durably(first..first + 15, 1);
        }
        for slot in d.slots_of(1) {
            d.cache_disk.flip(slot);
        }
        for line in 1000..10_000u64 {
            assert_eq!(d.try_read(line * 8, 8), Err(RequestError::Io));
        }
        d.overwrite_segments(500, 700);
        d.restart();
    }
}

mod opening_hangs_when_its_checkpoint_fails {
    //! An error of an I/O of the first checkpoint of a session: stays in Opening for ever.

    use super::common::{Driver, never_idle};
    use dcd_engine::{IoError, IoId};

    #[test]
    fn a_start_that_fails_at_any_io_says_so_and_loses_nothing() {
        for number in 0.. {
            let mut d = Driver::with(never_idle);
            d.write_durably(100..115, 1);
            d.write(200, 2);
            d.kill();
            let memory = d.surviving_memory().clone();
            // The numbers of I/Os begin anew with each engine.
            d.break_io(IoId(number), IoError::Failed);
            let mark = d.started.len();
            let result = d.try_open();
            if !d.started[mark..].iter().any(|seen| seen.id.0 == number) {
                assert!(number > 20, "every I/O of a start was visited");
                break;
            }
            if result.is_err() {
                d.restart_with(memory);
            }
            assert_eq!((d.read(100), d.read(114), d.read(200)), (1, 1, 2), "I/O {number}");
        }
    }
}

mod shutdown_right_after_a_write_hangs {
    //! A shutdown (or detach) while something is not durable: nobody starts the commit it waits
    //! for, and no wake-up is asked for.

    use super::common::Driver;
    use dcd_engine::Operation;

    #[test]
    fn a_shutdown_right_after_a_write_ends() {
        let mut d = Driver::new();
        d.write(100, 1);
        let id = d.submit(Operation::Shutdown, false);
        d.finish_all();
        assert!(d.is_answered(id));
    }
}

mod trap_03_overwritten_into_the_same_slot_during_its_destage {
    //! Trap 3, ABA: the line is overwritten so often during its destage that it comes to lie in the
    //! very same slot.

    use super::common::{Driver, Kind, never_idle};
    use dcd_engine::{Device, Operation};

    /// ```text
    /// destage   100 = A (slot s)   |-------------- write, slow ---------------|
    /// log       100 = B, C, ...        a whole lap of the log, 100 = Z in slot s
    /// ```
    /// `batch_flushed` compares only slots, finds them alike, and takes Z out of the table.
    #[test]
    fn a_line_that_comes_back_to_its_slot_during_its_destage_stays_dirty() {
        let mut d = Driver::with(never_idle);
        d.write_durably([100], 1);
        let slot = d.slot_of(1) as usize;
        d.hold(|io| io.is(Device::DataDisk, Kind::Write));
        d.submit(Operation::Drain, false);
        d.finish_all();
        assert!(d.find_io(Device::DataDisk, Kind::Write).is_some(), "on its way");
        for round in 0..10_000u32 {
            let byte = 2 + (round % 250) as u8;
            d.write_durably([100], byte);
            if d.cache_disk.current[slot..slot + 4096].iter().all(|b| *b == byte) {
                d.release();
                d.finish_all();
                assert_eq!(d.read(100), byte, "after {round} overwrites");
                return;
            }
        }
        panic!("the slot is never used again");
    }
}

mod write_zeroes_may_unmap_is_ignored {
    //! WriteZeroes { may_unmap: false } (NBD NO_HOLE): the data-disk is told that it may unmap.

    use super::common::{Driver, Kind};
    use dcd_engine::{Device, LbaRange, Operation};

    #[test]
    fn zeroes_that_may_not_be_unmapped_are_not() {
        let mut d = Driver::new();
        let range = LbaRange::new(800, 80);
        d.done(|d| d.submit(Operation::WriteZeroes { range, may_unmap: false }, false));
        d.drain();
        let zero = d.started.iter().find(|io| io.is(Device::DataDisk, Kind::WriteZeroes));
        assert!(!zero.expect("destaged").may_unmap);
    }
}

mod write_zeroes_unsupported_blocks_destaging_for_ever {
    //! A data-disk that answers Unsupported to WriteZeroes.

    use super::common::{Driver, Kind, LINE};
    use dcd_engine::{Device, Duration, IoError, Operation};

    /// The range is tried again for ever; lines above it are never destaged, and the cache fills
    /// up.
    #[test]
    fn a_data_disk_without_write_zeroes_gets_zeroes_written() {
        let mut d = Driver::new();
        d.data_disk.rot(100 * LINE as u64, &[9; LINE]);
        let any = 0..u64::MAX;
        d.fail_always(Device::DataDisk, Kind::WriteZeroes, any, IoError::Unsupported);
        d.done(|d| d.discard(800, 8));
        d.write_durably([100], 1);
        let drain = d.submit(Operation::Drain, false);
        d.advance_time(Duration::from_secs(3600));
        assert!(d.is_answered(drain));
        assert_eq!(d.data_disk.line(100), 1);
    }
}

mod c14_half_a_request_is_destaged {
    //! C10, C14: a request that goes on in the next record is not durable before that one is, and
    //! so none of it may be destaged. Found by the fuzzer.
    //!
    //! ```text
    //! segment 0: [record 1: 8 lines][record 2: 6 lines of the request]   durable
    //! segment 1: [record 3: the other 8 lines]                           only in memory
    //! ```

    use super::common::Driver;
    use dcd_engine::Duration;

    #[test]
    fn the_beginning_of_a_request_is_not_destaged_before_its_end_is_durable() {
        let mut d = Driver::with(|options| {
            // So many that no checkpoint is due.
            options.segments = 32;
            options.engine.segment_buffers = 4;
            options.engine.max_delay = Duration::from_secs(100_000);
            options.engine.idle_threshold_max = Duration::from_millis(10);
        });
        d.write_durably(0..8, 1);
        d.advance_time(Duration::from_secs(1));
        d.write_blocks(20 * 8, 14 * 8, 2);
        // Half of the buffers are in use, so record 2 becomes durable by itself.
        d.advance_time(Duration::from_secs(1));
        d.power_cycle();
        let lines: Vec<u8> = (20..34).map(|line| d.read(line)).collect();
        assert!(lines.iter().all(|line| *line == lines[0]), "torn: {lines:?}");
    }
}

mod c19_an_unreadable_slot_is_not_the_end_of_the_log {
    //! C19: recovery took a slot of the log that cannot be read for the end of the log, and what
    //! was durable behind it vanished without a word. Found by the fuzzer (`bad-sector`).

    use super::common::{Driver, Kind, never_idle};
    use dcd_engine::{Device, IoError, OpenError};

    /// A record, durable by FUA; no later one knows of it.
    fn driver() -> (Driver, u64) {
        let mut d = Driver::with(never_idle);
        d.write_durably([100], 1);
        d.done(|d| d.write_fua(101, 2));
        let slot = d.slot_of(2);
        d.power_cut();
        (d, slot)
    }

    #[test]
    fn neither_its_header_nor_its_data() {
        for from_slot in [4096, 0] {
            let (mut d, slot) = driver();
            let bad = slot - from_slot;
            d.fail_always(Device::CacheDisk, Kind::Read, bad..bad + 4096, IoError::Failed);
            let refused = d.try_open().expect_err("a durable record cannot be read");
            assert!(matches!(refused, OpenError::Io { offset, .. } if offset == bad), "{refused}");
            // It was a moment's weakness of the disk.
            d.heal();
            d.reopen();
            assert_eq!((d.read(100), d.read(101)), (1, 2));
        }
    }

    #[test]
    fn after_reading_what_is_lost_it_starts() {
        let (mut d, slot) = driver();
        d.fail_always(Device::CacheDisk, Kind::Read, slot - 4096..slot, IoError::Failed);
        d.options.engine.accept_damage = true;
        d.reopen();
        assert_eq!(d.read(100), 1);
    }
}

mod rule_4_a_read_is_answered_when_the_cache_disk_fails_at_shutdown {
    //! Every request is answered: a read that was under way when the cache-disk failed during a
    //! shutdown came after the end, if at all. Found by the fuzzer.

    use super::common::{Driver, Kind, never_idle};
    use dcd_engine::{Device, IoError, LbaRange, Operation};

    #[test]
    fn it_is_and_before_the_end() {
        let mut d = Driver::with(never_idle);
        d.write_durably([5], 1);
        d.hold(|io| io.is(Device::DataDisk, Kind::Read));
        let read = d.submit(Operation::read(LbaRange::new(800, 8)), false);
        d.write(100, 1);
        d.fail_always(Device::CacheDisk, Kind::Write, 0..u64::MAX, IoError::Failed);
        let shutdown = d.submit(Operation::Shutdown, false);
        d.finish_all();
        assert!(!d.is_answered(read) && !d.is_answered(shutdown));
        d.release();
        d.finish_all();
        assert_eq!(d.result(read), Ok(()));
        assert!(d.result(shutdown).is_err());
    }
}

mod c23_two_zeroes_at_once_on_a_disk_that_cannot_zero {
    //! Without a cache-disk, of two write-zeroes under way on a data-disk that answers Unsupported
    //! only the first was written as zeroes; the second failed. Found by the fuzzer (seed 1365).

    use super::common::{Driver, Kind};
    use dcd_engine::{Device, IoError};

    #[test]
    fn both_are_written() {
        let mut d = Driver::new();
        d.write_durably([100], 1);
        d.drain();
        d.run_until(|d| d.status().cache_disk_clean);
        d.fail_always(Device::CacheDisk, Kind::Write, 0..u64::MAX, IoError::Gone);
        let first = d.write_fua(101, 2);
        d.expect_ok(first);
        d.fail_always(Device::DataDisk, Kind::WriteZeroes, 0..u64::MAX, IoError::Unsupported);
        let both = [d.discard(800, 8), d.discard(808, 8)];
        d.finish_all();
        assert_eq!(both.map(|id| d.result(id)), [Ok(()), Ok(())]);
        assert_eq!((d.read(100), d.read(101)), (0, 0));
    }
}
