//! Which cache-disk and which data-disk may start together, what is said when they may not, and how
//! they part: contract C20 and C28 to C32.

mod common;

use common::{Driver, Kind, LINE, never_idle};
use dcd_engine::format::superblock::CacheState;
use dcd_engine::{
    DataDiskInfo, Device, FormatError, IoError, LbaRange, MemoryIdentity, OpenError, Operation,
    Phase, RequestError, Superblock, Uuid,
};

const COPIES: [u64; 2] = [0, 64 << 10];

// ---- C28: what is refused ---------------------------------------------------------------------

/// Another data-disk, larger or smaller, is refused before anything is read; the message has both
/// sizes.
#[test]
fn a_data_disk_of_another_size_is_refused() {
    for blocks in [8191, 8193, 4096] {
        let mut d = Driver::new();
        d.write_durably([100], 1);
        d.shut_down();
        let mark = d.started.len();
        let right = d.options.data_disk;
        d.options.data_disk = DataDiskInfo { blocks, ..right };
        let error = d.try_open().expect_err("another disk");
        assert_eq!(error, OpenError::DataDiskSize { expected: 8192, found: blocks });
        assert!(error.to_string().contains("8192") && error.to_string().contains("blocks"));
        assert_eq!(d.started.len(), mark);
        d.options.data_disk = right;
        d.reopen();
        assert_eq!(d.read(100), 1);
    }
}

#[test]
fn a_shorter_cache_disk_is_refused() {
    let mut d = Driver::new();
    d.write_durably([100], 1);
    d.shut_down();
    let expected = d.cache_disk.current.len() as u64;
    let lost = d.cache_disk.current.split_off(expected as usize - LINE);
    d.cache_disk.durable.truncate(expected as usize - LINE);
    let error = d.try_open().expect_err("the end is missing");
    assert_eq!(error, OpenError::CacheDiskShort { expected, found: expected - LINE as u64 });
    d.cache_disk.current.extend(&lost);
    d.cache_disk.durable.extend(&lost);
    d.reopen();
    assert_eq!(d.read(100), 1);
}

/// A file system was mounted (superblock of ext4: line 0), or a partition table written, while
/// there were dirty lines; also when the cache had been shut down in order.
#[test]
fn a_data_disk_changed_behind_a_dirty_cache_is_refused() {
    let last_line = 8192 / 8 - 1;
    for line in [0, 1, 16, last_line] {
        for is_shut_down in [false, true] {
            let mut d = Driver::with(never_idle);
            d.write_durably([100], 1);
            if is_shut_down {
                d.shut_down()
            } else {
                d.power_cut()
            }
            d.data_disk.rot(line * LINE as u64 + 1080, &[0x53, 0xef]);
            let before = (d.cache_disk.current.clone(), d.data_disk.current.clone());
            let error = d.try_open().expect_err("changed");
            let OpenError::DataDiskChanged { offset, .. } = error else { panic!("{error}") };
            assert_eq!(offset, line * LINE as u64);
            assert!(before.0 == d.cache_disk.current && before.1 == d.data_disk.current);
            d.data_disk.rot(line * LINE as u64 + 1080, &[0, 0]);
            d.reopen();
            assert_eq!(d.read(100), 1, "with the right disk all is there");
        }
    }
}

/// The lines destaged last are compared as well.
#[test]
fn a_change_of_what_was_destaged_last_is_noticed() {
    let mut d = Driver::with(never_idle);
    d.write_durably([333], 1);
    d.drain();
    d.write_durably([100], 1);
    d.shut_down();
    d.data_disk.rot(333 * LINE as u64, &[9]);
    assert!(matches!(d.try_open(), Err(OpenError::DataDiskChanged { .. })));
}

/// What dcd itself was writing when it was stopped is not taken for someone else's doing.
#[test]
fn a_crash_during_destaging_is_no_foreign_change() {
    for line in [0, 333] {
        for keeps in [false, true] {
            let mut d = Driver::with(never_idle);
            d.write_durably([line], 1);
            d.drain();
            d.write_durably([line], 2);
            d.hold(|io| io.is(Device::DataDisk, Kind::Flush));
            d.submit(Operation::Drain, false);
            d.finish_all();
            assert_eq!(d.data_disk.line(line), 2);
            d.power_cut_keeping(|_, _| keeps);
            d.reopen();
            assert_eq!(d.read(line), 2);
        }
    }
}

/// After a crash in which the cache was destaged, but the newest checkpoint is from before.
#[test]
fn a_crash_after_destaging_is_no_foreign_change() {
    let mut d = Driver::with(never_idle);
    for byte in 1..4 {
        d.write_durably([0, 4, 333], byte);
        d.drain();
        d.power_cycle();
        assert_eq!((d.read(0), d.read(333)), (byte, byte));
    }
    d.done(|d| d.discard(0, 40));
    d.drain();
    d.power_cycle();
    assert_eq!((d.read(0), d.read(4), d.read(333)), (0, 0, 3));
}

/// `accept_damage`, after a person has read what is lost.
#[test]
fn a_changed_data_disk_is_taken_only_when_told_so() {
    let mut d = Driver::with(never_idle);
    d.write_durably([100], 1);
    d.power_cut();
    d.data_disk.rot(0, &[9; LINE]);
    assert!(d.try_open().is_err());
    d.options.engine.accept_damage = true;
    d.reopen();
    assert_eq!((d.read(0), d.read(100)), (9, 1));
    d.shut_down();
    d.options.engine.accept_damage = false;
    d.reopen();
    assert_eq!((d.read(0), d.read(100)), (9, 1), "known from now on");
}

// ---- C20: superblocks -------------------------------------------------------------------------

/// A copy of another cache beside ours: which of them is right cannot be known.
#[test]
fn a_superblock_copy_of_another_cache_is_refused() {
    let mut d = Driver::new();
    d.shut_down();
    let other = Driver::with(|options| options.uuid = Uuid([7; 16]));
    for copy in COPIES {
        let mut disk = d.cache_disk.current.clone();
        let at = copy as usize..copy as usize + LINE;
        disk[at.clone()].copy_from_slice(&other.cache_disk.current[at]);
        let result = Superblock::newest(&disk[..LINE], &disk[64 << 10..][..LINE]);
        assert!(matches!(result, Err(FormatError::Uuid { .. })), "{result:?}");
    }
}

/// The checkpoints and records of another cache are not taken for ours.
#[test]
fn a_checkpoint_of_another_cache_is_refused() {
    let mut d = Driver::new();
    d.write_durably([100], 1);
    d.shut_down();
    let other = Driver::with(|options| options.uuid = Uuid([7; 16]));
    let start = 128 << 10;
    let end = d.superblock().geometry.segments_offset as usize;
    let foreign = other.cache_disk.current[start..end].to_vec();
    d.cache_disk.rot(start as u64, &foreign);
    let error = d.try_open().expect_err("not ours");
    let OpenError::Checkpoint { first, second, .. } = &error else { panic!("{error}") };
    assert!(matches!(first, FormatError::Uuid { .. }), "{first}");
    assert!(matches!(second, FormatError::Uuid { .. }), "{second}");
}

/// Copies are written one at a time, first that which was written first the time before last, and
/// either alone will do: a crash in the middle of one leaves the other.
#[test]
fn superblock_copies_are_written_in_turn() {
    let mut d = Driver::new();
    let mut written = Vec::new();
    for _ in 0..3 {
        let mark = d.started.len();
        d.restart();
        let superblocks = d.started[mark..]
            .iter()
            .filter(|io| io.is(Device::CacheDisk, Kind::Write) && COPIES.contains(&io.offset));
        written.extend(superblocks.map(|io| io.offset));
    }
    let [first, second] = [written[0], written[1]];
    assert_ne!(first, second);
    assert_eq!(written, [first, second, second, first].repeat(3));
}

/// The superblock that is being written is torn by a power cut, at opening and at closing.
#[test]
fn a_torn_superblock_leaves_the_other_copy() {
    for is_closing in [false, true] {
        let mut d = Driver::with(never_idle);
        d.write_durably([100], 1);
        d.hold(|io| io.is(Device::CacheDisk, Kind::Write) && COPIES.contains(&io.offset));
        if is_closing {
            d.submit(Operation::Shutdown, false);
        } else {
            d.power_cut();
            d.hold(|io| io.is(Device::CacheDisk, Kind::Write) && COPIES.contains(&io.offset));
            d.start_open().expect("to begin");
        }
        d.finish_all();
        let write = d.find_io(Device::CacheDisk, Kind::Write).expect("the superblock");
        d.tear(write, |sector| sector == 3 || sector == 0);
        d.power_cut();
        d.cache_disk.flip(d.started.last().expect("the superblock").offset + 100);
        d.reopen();
        assert_eq!(d.read(100), 1);
    }
}

/// Either copy rots while a session is open: the other says the same, so nobody overlooks the
/// memory that holds what was acknowledged and not flushed (C4). After an orderly end, too.
#[test]
fn one_superblock_copy_is_enough() {
    for copy in COPIES {
        let mut d = Driver::never_idle(|options| {
            options.engine.memory = Some(MemoryIdentity {
                boot_id: [1; 16],
                memory_id: [2; 16],
                place: "somewhere".into(),
                max_delay_milliseconds: 5,
            });
        });
        d.write_durably([100], 1);
        d.done(|d| d.write(101, 2));
        d.kill();
        d.cache_disk.flip(copy + 8);
        let superblock = d.superblock();
        assert_eq!(superblock.state, CacheState::Open);
        assert_eq!(superblock.memory, d.options.engine.memory);
        d.reopen();
        assert_eq!((d.read(100), d.read(101)), (1, 2));
        d.shut_down();
        d.cache_disk.flip(copy + 8);
        assert_eq!((d.superblock().state, d.superblock().memory), (CacheState::Closed, None));
    }
}

/// The second copy cannot be written: the first is durable, so the cache opens and closes.
#[test]
fn a_second_superblock_copy_that_fails_is_no_harm() {
    let mut d = Driver::with(never_idle);
    for _ in 0..2 {
        d.write_durably([100], 1);
        d.power_cut();
        for is_closing in [false, true] {
            // The first of the next goes where the second of this one was.
            let second = d.superblock().offset();
            d.fail_always(Device::CacheDisk, Kind::Write, second..second + 1, IoError::Failed);
            match is_closing {
                false => d.reopen(),
                true => d.shut_down(),
            }
            d.heal();
        }
        assert_eq!(d.superblock().state, CacheState::Closed);
        d.reopen();
        assert_eq!(d.read(100), 1);
    }
}

// ---- C31: detach ------------------------------------------------------------------------------

/// Detached: all is on the data-disk, which stands on its own.
#[test]
fn a_detached_data_disk_holds_everything() {
    let mut d = Driver::never_idle(|options| options.data_disk.physical_sector_size = 4096);
    d.write(100, 1);
    d.write_blocks(1603, 2, 2);
    d.discard(3000, 100);
    d.detach();
    d.power_cut();
    assert_eq!(d.superblock().state, CacheState::Detached);
    assert_eq!(d.data_disk.line(100), 1);
    assert_eq!(d.data_disk.current[1603 * 512], 2);
}

/// Detached, it may be changed by anyone, and is taken back as it is.
#[test]
fn a_detached_data_disk_may_be_changed() {
    let mut d = Driver::new();
    d.write_durably([0, 100], 1);
    d.detach();
    d.data_disk.rot(0, &[9; LINE]);
    d.data_disk.rot(100 * LINE as u64, &[8; LINE]);
    d.reopen();
    assert_eq!((d.read(0), d.read(100)), (9, 8), "nothing old comes back");
    d.write_durably([200], 1);
    d.power_cut();
    d.data_disk.rot(0, &[7; LINE]);
    assert!(d.try_open().is_err(), "attached again, and dirty, it may not");
}

/// An empty log overwrites nothing. After a power cut it may have been dcd itself that changed the
/// data-disk, without the cache-disk (C23): the start goes on, and tells. After an orderly end it
/// was not, nor where the segment memory has survived and is not void.
#[test]
fn a_data_disk_changed_behind_an_empty_log_is_accepted_only_after_a_power_cut() {
    for end in ["power cut", "kill", "shutdown"] {
        let mut d = Driver::new();
        d.write_durably([100], 1);
        d.drain();
        d.advance_time(dcd_engine::Duration::from_secs(10));
        match end {
            "shutdown" => d.shut_down(),
            "kill" => d.kill(),
            _ => d.power_cut(),
        }
        d.data_disk.rot(0, &[7; LINE]);
        let result = d.try_open();
        if end != "power cut" {
            let error = result.expect_err("changed");
            assert!(matches!(error, OpenError::DataDiskChanged { is_clean: true, .. }), "{error}");
            continue;
        }
        result.expect("nothing can be overwritten");
        assert!(d.status().recovery.data_disk_changed);
        assert_eq!((d.read(0), d.read(100)), (7, 1));
        d.power_cycle();
        assert!(!d.status().recovery.data_disk_changed, "told once");
    }
}

/// Zeroes that only the log has are something to overwrite with.
#[test]
fn a_data_disk_changed_behind_a_log_of_zeroes_is_refused() {
    let mut d = Driver::with(common::never_idle);
    d.write_durably([100], 1);
    d.drain();
    d.discard(800, 8);
    d.done(Driver::flush);
    d.power_cut();
    d.data_disk.rot(0, &[7; LINE]);
    let error = d.try_open().expect_err("changed");
    assert!(matches!(error, OpenError::DataDiskChanged { is_clean: false, .. }), "{error}");
}

/// A crash at any I/O of a detach: either it is done and marked, or a start finds everything and a
/// second detach ends it.
#[test]
fn a_crash_at_any_step_of_a_detach_is_resumed() {
    for keeps in [false, true] {
        for ios_done in 0.. {
            let mut d = Driver::with(never_idle);
            d.write_durably((0..20).map(|i| 100 + 2 * i), 1);
            d.discard(3000, 80);
            let detach = d.submit(Operation::Detach, false);
            for _ in 0..ios_done {
                d.finish_one();
            }
            let is_done = d.is_answered(detach);
            d.power_cut_keeping(|_, _| keeps);
            if is_done {
                assert_eq!(d.superblock().state, CacheState::Detached);
                assert!((0..20).all(|i| d.data_disk.line(100 + 2 * i) == 1));
                assert!(ios_done > 10);
                break;
            }
            if d.superblock().state == CacheState::Detached {
                assert!((0..20).all(|i| d.data_disk.line(100 + 2 * i) == 1), "said too early");
            }
            d.reopen();
            assert!((0..20).all(|i| d.read(100 + 2 * i) == 1), "after {ios_done} I/Os");
            d.detach();
            assert!((0..20).all(|i| d.data_disk.line(100 + 2 * i) == 1));
        }
    }
}

/// A clean cache detaches at once: no data is moved.
#[test]
fn a_clean_cache_detaches_at_once() {
    let mut d = Driver::new();
    d.write_durably(100..200, 1);
    d.drain();
    let mark = d.started.len();
    d.detach();
    assert_eq!(d.count_since(mark, Device::DataDisk, Kind::Write), 0);
    assert!(d.started.len() - mark < 10);
}

/// A shutdown leaves dirty lines in the log and says that it was one.
#[test]
fn a_shutdown_moves_nothing_and_is_known_at_the_next_start() {
    let mut d = Driver::with(never_idle);
    d.write_durably(100..130, 1);
    let mark = d.started.len();
    d.shut_down();
    assert_eq!(d.count_since(mark, Device::DataDisk, Kind::Write), 0);
    assert_eq!(d.superblock().state, CacheState::Closed);
    d.reopen();
    assert!(d.status().recovery.was_closed);
    assert_eq!(d.status().recovery.records, 0, "the checkpoint says it all");
    assert_eq!((d.read(100), d.status().dirty_lines), (1, 30));
    d.power_cycle();
    assert!(!d.status().recovery.was_closed);
}

/// What is not durable yet when a shutdown or a detach comes is made so by it.
#[test]
fn a_shutdown_right_after_a_write_ends() {
    for operation in [Operation::Shutdown, Operation::Detach] {
        let mut d = Driver::with(never_idle);
        d.write(100, 1);
        let end = d.submit(operation, false);
        d.finish_all();
        assert!(d.is_answered(end));
        d.power_cycle();
        assert_eq!(d.read(100), 1);
    }
}

/// After a shutdown or a detach has begun nothing is taken any more.
#[test]
fn requests_after_the_end_are_refused() {
    for operation in [Operation::Shutdown, Operation::Detach] {
        let mut d = Driver::new();
        d.write_durably([100], 1);
        let end = d.submit(operation, false);
        let during = d.write(100, 2);
        assert_eq!(d.wait(during), Err(RequestError::ShuttingDown));
        d.expect_ok(end);
        assert_eq!(*d.engine().phase(), Phase::Closed);
        let after = d.write(100, 3);
        assert_eq!(d.result(after), Err(RequestError::ShuttingDown));
    }
}

/// Read-only: what is in the log is shown, and nothing is changed.
#[test]
fn a_read_only_start_refuses_changes() {
    let mut d = Driver::with(never_idle);
    d.write_durably([100], 1);
    d.shut_down();
    d.options.engine.read_only = true;
    d.reopen();
    assert_eq!(d.read(100), 1);
    for id in [d.write(100, 2), d.discard(800, 8), d.write_fua(100, 2)] {
        assert_eq!(d.result(id), Err(RequestError::ReadOnly));
    }
    assert_eq!(d.read(100), 1);
}

/// `dcd create` died between the two superblock copies: what is there is a new cache, of
/// generation 0.
#[test]
fn a_new_cache_with_only_its_first_superblock_opens() {
    let mut d = Driver::created(|_| {});
    d.cache_disk.rot(64 << 10, &[0; LINE]);
    d.reopen();
    d.write(7, 1);
    assert_eq!(d.read(7), 1);
}

// ---- C32: growing -----------------------------------------------------------------------------

/// The data-disk gets longer; its new part holds 9s.
fn lengthen(d: &mut Driver, blocks: u64) {
    let bytes = (blocks * 512) as usize;
    d.data_disk.current.resize(bytes, 9);
    d.data_disk.durable.resize(bytes, 9);
    d.options.data_disk.blocks = blocks;
}

/// Dirty lines at both ends and in the middle, zeroes, and the last line; then the disk grows, and
/// the machine fails after each I/O of the growing in turn. What is found is the old size or the
/// new one, both open with the disk they speak of, and nothing is lost.
#[test]
fn growing_may_be_cut_anywhere() {
    let (old, new) = (8192, 8192 + 800);
    let last = old / 8 - 1;
    for closed_in_order in [true, false] {
        let mut was_old = 0;
        for ios in 0.. {
            let mut d = Driver::with(never_idle);
            d.write_durably([0, 100, last], 1);
            let range = LbaRange::new((last - 2) * 8, 8);
            d.done(|d| d.submit(Operation::WriteZeroes { range, may_unmap: false }, false));
            d.done(Driver::flush);
            match closed_in_order {
                true => d.shut_down(),
                false => d.power_cut(),
            }
            lengthen(&mut d, new);
            assert_eq!(d.try_open(), Err(OpenError::DataDiskSize { expected: old, found: new }));
            d.options.engine.grow = true;
            d.start_open().unwrap();
            let is_open = (0..ios).all(|_| d.finish_one());
            let has_ended = !is_open || *d.engine().phase() == Phase::Running;
            d.power_cut();
            let recorded = d.superblock().data_disk.blocks;
            if recorded == old {
                was_old += 1;
                // The old size can be had back.
                d.data_disk.current.truncate(old as usize * 512);
                d.data_disk.durable.truncate(old as usize * 512);
                d.options.data_disk.blocks = old;
                d.options.engine.grow = false;
                d.reopen();
                assert_eq!((d.read(0), d.read(100), d.read(last)), (1, 1, 1), "after {ios} I/Os");
                d.shut_down();
                lengthen(&mut d, new);
                d.options.engine.grow = true;
            }
            d.reopen();
            d.options.engine.grow = false;
            assert_eq!((d.read(0), d.read(100), d.read(last)), (1, 1, 1), "after {ios} I/Os");
            assert_eq!((d.read(last - 2), d.read(last + 1), d.read(new / 8 - 1)), (0, 9, 9));
            d.write_durably([new / 8 - 1], 2);
            d.drain();
            assert_eq!(d.data_disk.line(new / 8 - 1), 2);
            d.shut_down();
            assert_eq!(d.superblock().data_disk.blocks, new);
            d.reopen();
            if has_ended {
                break;
            }
        }
        assert!(was_old > 3, "cut in the middle");
    }
}

/// The old end lay within a line. What was written there counts by the block; zeroes, which count
/// by the line, must be on the disk before it grows.
#[test]
fn growing_behind_an_end_within_a_line() {
    let (old, new) = (8192 + 3, 8192 + 800);
    let mut d = Driver::never_idle(|options| options.data_disk.blocks = old);
    d.done(|d| d.write_blocks(8192, 3, 1));
    d.shut_down();
    lengthen(&mut d, new);
    d.options.engine.grow = true;
    d.reopen();
    let whole = d.try_read(8192, 8).unwrap();
    assert!(whole[..3 * 512].iter().all(|byte| *byte == 1));
    assert!(whole[3 * 512..].iter().all(|byte| *byte == 9));
    d.drain();
    assert_eq!(d.data_disk.current[8192 * 512..8200 * 512], whole);

    let mut d = Driver::never_idle(|options| options.data_disk.blocks = old);
    let range = LbaRange::new(8192, 3);
    d.done(|d| d.submit(Operation::WriteZeroes { range, may_unmap: false }, false));
    d.shut_down();
    lengthen(&mut d, new);
    d.options.engine.grow = true;
    assert_eq!(d.try_open(), Err(OpenError::EndNotDrained { offset: 8192 * 512 }));
    d.options.engine.grow = false;
    d.options.data_disk.blocks = old;
    d.reopen();
    d.drain();
    d.shut_down();
    d.options.engine.grow = true;
    d.options.data_disk.blocks = new;
    d.reopen();
    let whole = d.try_read(8192, 8).unwrap();
    assert!(whole[..3 * 512].iter().all(|byte| *byte == 0));
    assert!(whole[3 * 512..].iter().all(|byte| *byte == 9));
}

/// Each growth chooses other witnesses; those of before do not pile up in the checkpoint.
#[test]
fn a_disk_may_grow_often_and_never_shrinks() {
    let mut d = Driver::with(never_idle);
    d.write_durably([100], 1);
    for step in 1..60 {
        d.shut_down();
        lengthen(&mut d, 8192 + step * 80);
        d.options.engine.grow = true;
        d.reopen();
        assert_eq!(d.read(100), 1);
    }
    d.shut_down();
    let (expected, found) = (8192 + 59 * 80, 8192);
    d.options.data_disk.blocks = found;
    assert_eq!(d.try_open(), Err(OpenError::DataDiskSize { expected, found }));
    d.options.data_disk.blocks = (1 << 43) + 8;
    assert!(matches!(d.try_open(), Err(OpenError::DataDiskTooLarge { .. })));
}
