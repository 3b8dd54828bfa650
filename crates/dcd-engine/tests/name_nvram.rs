//! The superblock names another memory in front of the log while requests are served: whatever a
//! crash comes between, a start finds all that was durable, and one of the two names.

mod common;

use common::{Driver, Kind, LINES_PER_SEGMENT, never_idle};
use dcd_engine::format::geometry::SUPERBLOCK_OFFSETS;
use dcd_engine::format::nvram::NvramIdentity;
use dcd_engine::io::ResizeError;
use dcd_engine::{Device, IoError, Operation, RequestError, Uuid};

const MIB: u64 = 1 << 20;

fn memory(number: u8) -> Option<NvramIdentity> {
    Some(NvramIdentity { id: Uuid([number; 16]), generation: 1 })
}

/// A start does without the memory: here nothing is in it.
fn driver() -> Driver {
    Driver::with(|options| {
        never_idle(options);
        options.segments = 24;
        options.engine.nvram_may_be_lost = true;
    })
}

fn name(d: &mut Driver, nvram: Option<NvramIdentity>) {
    d.name_nvram(nvram);
    d.finish_all();
    assert_eq!(d.take_nvram_named(), Some(Ok(())));
    assert_eq!(d.superblock().nvram, nvram);
    assert_eq!(d.take_nvram_named(), None, "told once");
}

/// Between any two I/Os, while others write, checkpoints come and segments are filled again.
#[test]
fn a_crash_at_any_io_leaves_one_of_the_two() {
    let (mut before, mut after) = (0, 0);
    for ios in 0..60 {
        for keeps in 0..3 {
            let mut d = driver();
            name(&mut d, memory(1));
            for first in (0..200).step_by(LINES_PER_SEGMENT as usize) {
                d.write_durably(first..first + LINES_PER_SEGMENT, 1);
            }
            d.write_durably([1000], 9);
            d.write_fua(7, 3);
            d.name_nvram(memory(2));
            for _ in 0..ios {
                d.finish_one();
            }
            d.power_cut_keeping(|_, index| keeps == 1 || keeps == 2 && index % 2 == 0);
            match d.superblock().nvram {
                named if named == memory(1) => before += 1,
                named if named == memory(2) => after += 1,
                other => panic!("{other:?}"),
            }
            d.reopen();
            assert_eq!(d.superblock().nvram, None, "the start has none");
            for line in 0..200 {
                let found = d.read(line);
                assert!(found == 1 || line == 7 && found == 3, "line {line}: {found}");
            }
            assert_eq!(d.read(1000), 9);
        }
    }
    assert!(before > 0 && after > 0, "{before} {after}");
}

/// What is written, checkpointed, destaged and filled again behind it counts, and so behind a
/// start, another name and another size.
#[test]
fn the_session_goes_on() {
    let mut d = driver();
    let mut byte = 1;
    for round in 0..6_u8 {
        name(&mut d, if round % 2 == 0 { memory(round + 1) } else { None });
        byte += 1;
        // More than the log: each waits for room.
        for line in 0..900 {
            d.done(|d| d.write(line, byte));
        }
        d.done(Driver::flush);
        if round == 2 {
            d.cache_disk.set_length(16 * MIB);
            d.done(|d| d.submit(Operation::Resize { cache_disk_bytes: 16 * MIB }, false));
        }
        match round % 3 {
            0 => d.power_cycle(),
            1 => d.kill_and_reopen(),
            _ => {}
        }
        for line in 0..900 {
            assert_eq!(d.read(line), byte, "round {round}: line {line}");
        }
    }
    d.shut_down();
    assert_eq!(d.superblock().nvram, None);
}

/// Another size, and another name, are not told at once.
#[test]
fn one_after_the_other() {
    let mut d = driver();
    d.cache_disk.set_length(16 * MIB);
    d.hold(|seen| {
        seen.is(Device::CacheDisk, Kind::Write) && SUPERBLOCK_OFFSETS.contains(&seen.offset)
    });
    d.name_nvram(memory(1));
    let asked = d.submit(Operation::Resize { cache_disk_bytes: 16 * MIB }, false);
    assert_eq!(d.wait(asked), Err(ResizeError::UnderWay.into()));
    assert!(!d.engine().may_name_nvram(None));
    d.release();
    d.finish_all();
    assert_eq!(d.take_nvram_named(), Some(Ok(())));
    d.done(|d| d.submit(Operation::Resize { cache_disk_bytes: 16 * MIB }, false));
    assert_eq!(d.superblock().nvram, memory(1));
}

/// A log that is emptied to be smaller keeps nobody from that, and goes on behind it by itself.
#[test]
fn a_log_that_becomes_smaller_is_no_hindrance() {
    let mut d = driver();
    d.cache_disk.set_length(16 * MIB);
    d.done(|d| d.submit(Operation::Resize { cache_disk_bytes: 16 * MIB }, false));
    for line in 0..900 {
        d.done(|d| d.write(line, 2));
    }
    d.hold(|seen| seen.is(Device::DataDisk, Kind::Write));
    let asked = d.submit(Operation::Resize { cache_disk_bytes: 4 * MIB }, false);
    d.finish_all();
    assert!(!d.is_answered(asked), "its last segments are not empty");
    d.hold(|seen| {
        seen.is(Device::CacheDisk, Kind::Write) && SUPERBLOCK_OFFSETS.contains(&seen.offset)
    });
    d.name_nvram(memory(1));
    d.finish_all();
    assert_eq!(d.take_nvram_named(), None);
    d.release();
    // Nobody has asked how that has ended.
    assert_eq!(d.wait(asked), Ok(()));
    assert_eq!(d.take_nvram_named(), Some(Ok(())));
    assert_eq!(d.superblock().nvram, memory(1));
    d.power_cycle();
    assert!((0..900).all(|line| d.read(line) == 2));
}

/// A write of the superblock that fails is done again: nobody knows which of the two counts. A
/// cache-disk that takes it no more has failed, and the old name is what is said.
#[test]
fn one_that_failed_is_written_again_or_never() {
    let mut d = driver();
    d.fail_next(Device::CacheDisk, Kind::Write, IoError::Failed);
    name(&mut d, memory(1));
    d.power_cycle();
    for offset in SUPERBLOCK_OFFSETS {
        let mut d = driver();
        name(&mut d, memory(1));
        d.write_durably([5], 5);
        let place = offset..offset + 4096;
        d.fail_always(Device::CacheDisk, Kind::Write, place, IoError::Failed);
        d.name_nvram(None);
        d.finish_all();
        assert_eq!(d.take_nvram_named(), Some(Err(RequestError::Io)));
        assert!(d.engine().cache_disk_failure().is_some());
        assert_eq!(d.engine().superblock().nvram, memory(1));
        d.heal();
        d.power_cycle();
        assert_eq!(d.read(5), 5);
    }
}

/// Without a log, too, whose superblock is all that the cache-disk has.
#[test]
fn without_a_log() {
    let mut d = Driver::with(|options| {
        options.engine.no_log = true;
        options.engine.nvram_may_be_lost = true;
    });
    name(&mut d, memory(1));
    d.write_durably([5], 5);
    d.power_cycle();
    assert_eq!(d.read(5), 5);
    name(&mut d, memory(2));
    name(&mut d, None);
    d.fail_next(Device::CacheDisk, Kind::Write, IoError::Failed);
    d.name_nvram(memory(3));
    d.finish_all();
    assert_eq!(d.take_nvram_named(), Some(Err(RequestError::Io)));
    d.shut_down();
    d.reopen();
    assert_eq!(d.read(5), 5);
}
