//! One test, at least, for each trap of the design ("Traps that the papers do not mention"): each
//! fails when the care for its trap is taken out of the engine.
//!
//! Lines in the pictures are cache lines of 4 KiB; a segment of 64 KiB holds a record header and 15
//! of them.

mod common;

use common::{Driver, Kind, LINE, never_idle};
use dcd_engine::{
    AckMode, DestagePolicyKind, Device, Duration, IoError, LbaRange, OpenError, Operation, Phase,
    RequestError,
};

// ---- trap 1: old data comes back --------------------------------------------------------------

/// The newest segment is destaged first and used again; an older one still holds older data.
///
/// ```text
/// line          0   2..28   30..56
/// segment a     A   x                 <- still in the log, still dirty
/// segment b     B           y         <- destaged first, then overwritten by others
/// data-disk     B           y         -> power cut: 0 must be B, not A replayed
/// ```
#[test]
fn trap_01_old_data_does_not_come_back_after_last_write_first_destage() {
    let mut d = Driver::with(|options| {
        options.engine.destage_policy = DestagePolicyKind::LastWriteFirst;
        options.engine.dirty_high_percent = 95;
    });
    d.write(0, 1);
    d.write_durably((1..15).map(|i| 2 * i), 9);
    d.write(0, 2);
    d.write_durably((15..29).map(|i| 2 * i), 8);
    let place_of_b = d.slot_of(2);

    d.run_until(|d| d.status().counters.destage_batches == 1);
    assert_eq!((d.data_disk.line(0), d.data_disk.line(30)), (2, 8), "the newest has gone");
    assert_eq!(d.data_disk.line(2), 0, "the oldest has not");
    d.hold(|io| io.device == Device::DataDisk);
    d.overwrite_segments(500, 40);
    assert_ne!(d.cache_disk.current[place_of_b as usize], 2, "its segment was used again");

    d.power_cycle();
    assert_eq!((d.read(0), d.read(2), d.read(30)), (2, 9, 8));
    d.drain();
    assert_eq!((d.data_disk.line(0), d.data_disk.line(2)), (2, 9));
}

/// Nothing is used again before the knowledge that it is dead is durable: here no checkpoint ever
/// gets that far. The log comes to a stop, rather than to eat what a recovery needs.
///
/// ```text
/// checkpoint    knows segments a, b, c, ...
/// since then    a, b, c, ... all dead, and destaged      -> but a recovery will look for them
/// ```
#[test]
fn trap_01_segments_are_not_used_again_before_a_checkpoint_is_durable() {
    let mut d = Driver::with(never_idle);
    d.write_durably(0..15, 1);
    let segments = d.superblock().geometry.segments_offset;
    d.hold(move |io| io.is(Device::CacheDisk, Kind::Write) && io.offset < segments);
    let mut last = 1;
    for byte in 2..60 {
        let writes: Vec<_> = (0..15).map(|line| d.write(line, byte)).collect();
        let flush = d.flush();
        d.finish_all();
        if d.is_answered(flush) && writes.iter().all(|write| d.is_answered(*write)) {
            last = byte;
        }
    }
    assert!((10..20).contains(&last), "{last} segments of 16");
    d.power_cycle();
    for line in 0..15 {
        assert!(d.read(line) >= last, "line {line}: {} and not {last}", d.read(line));
    }
}

/// The same for a bypassed write: the log holds an older copy, the data-disk the newer one.
#[test]
fn trap_01_old_data_does_not_come_back_after_a_bypass() {
    let mut d = Driver::with(|options| options.engine.bypass_threshold_bytes = 8192);
    d.write_durably([100, 101], 1);
    let bypass = d.write_blocks(800, 16, 2);
    d.expect_ok(bypass);
    assert_eq!(d.status().counters.bypasses, 1);
    assert_eq!(d.reply_bytes(bypass), [2; 8192], "its memory comes back, for the next");
    d.done(Driver::flush);
    d.power_cycle();
    assert_eq!((d.read(100), d.read(101)), (2, 2));
    d.drain();
    assert_eq!((d.data_disk.line(100), d.data_disk.line(101)), (2, 2));
}

/// The same for a discard.
#[test]
fn trap_01_old_data_does_not_come_back_after_a_discard() {
    let mut d = Driver::new();
    d.write_durably([100, 101], 1);
    d.drain();
    d.write_durably([101], 2);
    d.done(|d| d.discard(800, 16));
    d.done(Driver::flush);
    d.power_cycle();
    assert_eq!((d.read(100), d.read(101)), (0, 0));
    d.drain();
    assert_eq!((d.data_disk.line(100), d.data_disk.line(101)), (0, 0));
}

/// The same for a block that was destaged and then overwritten below the log: its record is still
/// behind the newest checkpoint and is replayed.
#[test]
fn trap_01_old_data_does_not_come_back_over_a_destaged_and_bypassed_block() {
    let mut d = Driver::with(|options| options.engine.bypass_threshold_bytes = 8192);
    // Half a line, because whole ones become witnesses for a while and are not bypassed.
    d.write_blocks(800, 4, 1);
    d.drain();
    assert_eq!(d.data_disk.current[100 * LINE], 1);
    let bypass = d.write_blocks(800, 16, 2);
    d.expect_ok(bypass);
    assert_eq!(d.status().counters.bypasses, 1);
    d.done(Driver::flush);
    d.power_cycle();
    assert_eq!((d.read(100), d.read(101)), (2, 2));
    d.drain();
    assert_eq!((d.data_disk.line(100), d.data_disk.line(101)), (2, 2));
}

// ---- trap 2: bypass races ---------------------------------------------------------------------

/// A bypass comes while older data of the same line is on its way to the data-disk.
///
/// ```text
/// destage    100 = A   |------ write ------|
/// bypass     100 = B       asked                 |-- write --|     and not side by side
/// ```
#[test]
fn trap_02_a_bypass_waits_for_the_destage_of_the_same_line() {
    let mut d = Driver::with(|options| options.engine.bypass_threshold_bytes = 8192);
    d.write_durably([100], 1);
    d.hold(|io| io.is(Device::DataDisk, Kind::Write));
    d.advance_time(Duration::from_secs(10));
    let destage = d.find_io(Device::DataDisk, Kind::Write).expect("a destage write under way");
    let bypass = d.write_blocks(800, 16, 2);
    d.finish_all();
    // The disk may do what it has in any order: what came last goes first.
    let all = d.ios_of(Device::DataDisk, Kind::Write);
    for id in all.into_iter().rev() {
        d.finish(id);
    }
    assert!(!d.ios.iter().any(|io| io.id == destage));
    d.release();
    d.expect_ok(bypass);
    assert_eq!((d.read(100), d.data_disk.line(100)), (2, 2));
    d.drain();
    assert_eq!((d.data_disk.line(100), d.data_disk.line(101)), (2, 2));
}

/// A destage wants to begin while newer data of the same line is on its way past the log.
#[test]
fn trap_02_a_destage_leaves_out_what_is_being_bypassed() {
    let mut d = Driver::with(|options| options.engine.bypass_threshold_bytes = 8192);
    d.write_durably([100, 300], 1);
    d.hold(|io| io.is(Device::DataDisk, Kind::Write) && io.touches_line(100));
    let bypass = d.write_blocks(800, 16, 2);
    d.finish_all();
    let mark = d.started.len();
    d.advance_time(Duration::from_secs(10));
    assert_eq!(d.data_disk.line(300), 1, "others are destaged meanwhile");
    assert!(!d.started[mark..].iter().any(|io| io.touches_line(100)));
    d.release();
    d.expect_ok(bypass);
    d.drain();
    assert_eq!((d.read(100), d.data_disk.line(100), d.data_disk.line(101)), (2, 2, 2));
}

/// A log write of the same line comes while a bypass is under way, which readers may have seen. It
/// waits for the tombstone, and comes after it in the one order. Other lines do not wait.
///
/// ```text
/// bypass     100, 101 = B   |------------ write ------------| flush | tombstone
/// log        100 = C             |- - - - - - - - - - - - - - - - - - - - - -|-| acknowledged
/// read       100                                                B                  C
/// ```
#[test]
fn trap_02_a_log_write_during_a_bypass_comes_after_it() {
    for power_fails_before_tombstone in [false, true] {
        let mut d = Driver::with(|options| options.engine.bypass_threshold_bytes = 8192);
        d.hold(|io| io.device == Device::DataDisk);
        let bypass = d.write_blocks(800, 16, 2);
        d.write_durably([500], 1);
        let log = d.write(100, 3);
        d.finish_all();
        assert!(!d.is_answered(log));
        if power_fails_before_tombstone {
            let write = d.find_io(Device::DataDisk, Kind::Write).expect("the bypass");
            d.finish(write);
            d.power_cut_keeping(|_, _| true);
            d.reopen();
            assert_eq!(d.read(500), 1, "an acknowledged write outlives a bypass that never was");
            continue;
        }
        d.release();
        d.expect_ok(bypass);
        d.expect_ok(log);
        assert_eq!((d.read(100), d.read(101)), (3, 2));
        d.done(Driver::flush);
        d.power_cycle();
        assert_eq!((d.read(100), d.read(101)), (3, 2));
    }
}

// ---- trap 3: overwrite during destage ---------------------------------------------------------

/// ```text
/// destage   100 = A   |----- write -----| flush
/// log       100 = B       |-|               -> 100 stays dirty, and is B
/// ```
#[test]
fn trap_03_what_is_overwritten_during_its_destage_stays_dirty() {
    let mut d = Driver::new();
    d.write_durably([100], 1);
    d.hold(|io| io.is(Device::DataDisk, Kind::Write));
    d.advance_time(Duration::from_secs(10));
    assert!(d.find_io(Device::DataDisk, Kind::Write).is_some());
    d.write_durably([100], 2);
    d.release();
    d.finish_all();
    assert_eq!((d.data_disk.line(100), d.read(100)), (1, 2));
    assert_eq!(d.status().dirty_lines, 1);
    d.power_cycle();
    assert_eq!(d.read(100), 2);
    d.drain();
    assert_eq!(d.data_disk.line(100), 2);
}

// ---- trap 4: free before flush ----------------------------------------------------------------

/// The data-disk has the lines in its own cache only; the log laps meanwhile; then the power fails.
#[test]
fn trap_04_nothing_is_freed_before_the_data_disk_was_flushed() {
    let mut d = Driver::new();
    d.write_durably(100..115, 1);
    d.hold(|io| io.is(Device::DataDisk, Kind::Flush));
    d.advance_time(Duration::from_secs(10));
    assert_eq!(d.data_disk.line(114), 1, "written");
    assert_ne!(d.data_disk.volatile_count(), 0, "but not flushed");
    d.overwrite_segments(500, 40);
    d.power_cut();
    assert_eq!(d.data_disk.line(100), 0, "lost by the data-disk");
    d.reopen();
    for line in 100..115 {
        assert_eq!(d.read(line), 1);
    }
}

// ---- trap 5: acknowledge before flush ---------------------------------------------------------

#[test]
fn trap_05_flush_and_fua_are_answered_after_the_device_flush() {
    // Log mode: the record is written before the FLUSH comes, so that a real flush is needed.
    let mut d = Driver::with(|options| options.engine.ack = AckMode::Log);
    let write = d.write(100, 1);
    d.finish_all();
    assert!(d.is_answered(write));
    d.hold(|io| io.is(Device::CacheDisk, Kind::Flush) || io.fua);
    let flush = d.flush();
    let fua = d.write_fua(101, 2);
    d.finish_all();
    assert!(!d.is_answered(flush) && !d.is_answered(fua));
    let io = d.find_io(Device::CacheDisk, Kind::Flush).expect("a flush for them");
    d.finish(io);
    d.finish_all();
    assert_eq!(d.result(flush), Ok(()));
    assert!(!d.is_answered(fua), "its record was written after that flush began");
    d.release();
    d.expect_ok(fua);
    d.power_cycle();
    assert_eq!((d.read(100), d.read(101)), (1, 2));
}

// ---- trap 6: stale records --------------------------------------------------------------------

/// One line, written and flushed again and again: a record of two slots each time, eight in a
/// segment, so that each lap puts records exactly over those of the lap before.
///
/// ```text
/// segment s, this lap    [100 = 250] [100 = 251]      <- end of the log
///            last lap                            [100 = 122] [100 = 123] ...   valid checksums
/// ```
#[test]
fn trap_06_records_of_the_last_lap_are_not_taken_for_the_next() {
    for records in 300..309u32 {
        let mut d = Driver::with(never_idle);
        for number in 0..records {
            d.write_durably([100], (number % 251) as u8);
        }
        let last = ((records - 1) % 251) as u8;
        d.power_cycle();
        assert_eq!(d.read(100), last, "after {records} records");
        d.drain();
        assert_eq!(d.data_disk.line(100), last);
    }
}

// ---- trap 7: the oldest segment is torn -------------------------------------------------------

/// The oldest segment is filled anew and the power fails: its old header is still there, over new
/// data. Nothing of what is elsewhere may be lost by it.
///
/// ```text
/// segment s before    [old header] [old] [old] ...
///           after     [old header] [new] [new] ...      torn
/// ```
#[test]
fn trap_07_a_torn_reuse_of_the_oldest_segment_loses_nothing_else() {
    for reaches_header in [false, true] {
        let mut d = Driver::with(never_idle);
        d.write_durably(100..115, 1);
        d.overwrite_segments(500, 40);
        d.write_durably(500..515, 2);
        let next = d.superblock().geometry.segments_offset;
        for line in 500..515 {
            d.write(line, 3);
        }
        d.hold(|io| io.is(Device::CacheDisk, Kind::Write));
        d.flush();
        let write = d.find_io(Device::CacheDisk, Kind::Write).expect("the log write");
        let offset = d.started.last().expect("it").offset;
        assert!((offset - next).is_multiple_of(64 << 10), "at the start of a segment");
        let old = d.cache_disk.current[offset as usize..][..8].to_vec();
        assert_eq!(old, b"dcdRECRD", "over a record of an earlier lap");
        // Its first sector stays; of the others all arrive, or all but the rest of the header.
        d.tear(write, |sector| if reaches_header { sector > 0 } else { sector >= 8 });
        d.power_cycle();
        for line in 100..115 {
            assert_eq!(d.read(line), 1);
        }
        for line in 500..515 {
            assert_eq!(d.read(line), 2);
        }
    }
}

// ---- trap 8: damage is not the end ------------------------------------------------------------

/// ```text
/// records    1: 100 = A   2: 101 = B   3: 102 = C       each durable before the next
///                         ^ rot                      -> not "the log ends at 1"
/// ```
#[test]
fn trap_08_a_bad_record_below_the_durable_mark_is_damage() {
    let mut d = Driver::with(never_idle);
    for (line, byte) in [(100, 1), (101, 2), (102, 3)] {
        d.write_durably([line], byte);
    }
    let header = d.slot_of(2) - LINE as u64;
    d.power_cut();
    d.cache_disk.flip(header + 200);
    let before = (d.cache_disk.current.clone(), d.data_disk.current.clone());
    let error = d.try_open().expect_err("damage is not passed over");
    assert!(matches!(error, OpenError::RecordsLost { records: 1, .. }), "{error}");
    assert!(before.0 == d.cache_disk.current && before.1 == d.data_disk.current, "written to");
}

/// Data that rotted below the mark: only its blocks are lost, and only they fail.
#[test]
fn trap_08_a_rotten_slot_below_the_durable_mark_loses_only_its_own_blocks() {
    let mut d = Driver::with(never_idle);
    for (line, byte) in [(100, 1), (101, 2), (102, 3)] {
        d.write_durably([line], byte);
    }
    let slot = d.slot_of(2);
    d.power_cut();
    d.cache_disk.flip(slot + 77);
    d.reopen();
    assert_eq!(d.status().recovery.poisoned_lines, 1);
    assert_eq!(d.try_read(101 * 8, 8), Err(RequestError::Io));
    assert_eq!((d.read(100), d.read(102)), (1, 3), "the log goes on behind it");
}

// ---- trap 9: crash during recovery ------------------------------------------------------------

/// The power fails after each I/O of a recovery, with and without what was not flushed; and again
/// in the recovery after that. The content is always the same, and the data-disk is not written to.
#[test]
fn trap_09_recovery_may_be_interrupted_at_any_io() {
    for keeps_unflushed in [false, true] {
        let mut interruptions = 0;
        loop {
            let mut d = Driver::with(never_idle);
            d.write_durably(100..110, 1);
            d.discard(105 * 8, 8);
            d.overwrite_segments(500, 20);
            d.write_durably([101], 2);
            let data_disk = d.data_disk.current.clone();
            d.power_cut();
            let mut was_interrupted = false;
            for _ in 0..2 {
                d.start_open().expect("to begin");
                for _ in 0..interruptions {
                    d.finish_one();
                }
                was_interrupted = *d.engine().phase() == Phase::Opening || !d.ios.is_empty();
                d.power_cut_keeping(|_, _| keeps_unflushed);
            }
            d.reopen();
            let content: Vec<u8> = (100..110).map(|line| d.read(line)).collect();
            assert_eq!(content, [1, 2, 1, 1, 1, 0, 1, 1, 1, 1], "after {interruptions} I/Os");
            assert_eq!(d.read(500), 200 + 19);
            assert!(data_disk == d.data_disk.current, "recovery does not destage");
            if !was_interrupted {
                assert!(interruptions > 20, "it visited all of them");
                break;
            }
            interruptions += 1;
        }
    }
}

/// What a recovery has shown does not vanish by the next power cut: part of a bypassed write that
/// was in the cache of the data-disk when the process died.
#[test]
fn trap_09_what_one_recovery_showed_the_next_one_shows_too() {
    let mut d = Driver::with(|options| options.engine.bypass_threshold_bytes = 8192);
    d.hold(|io| io.is(Device::DataDisk, Kind::Flush));
    d.write_blocks(800, 16, 2);
    d.finish_all();
    d.kill_and_reopen();
    let shown = d.read(100);
    assert_eq!(shown, 2);
    d.power_cycle();
    assert_eq!(d.read(100), shown);
}

/// What was only in the surviving segment memory is shown after a restart, and then survives a
/// power cut too.
#[test]
fn trap_09_what_a_restart_found_in_memory_survives_a_power_cut() {
    let mut d = Driver::with(never_idle);
    d.write_durably([100], 1);
    d.write(101, 2);
    d.kill_and_reopen();
    assert_eq!((d.read(100), d.read(101)), (1, 2));
    assert_eq!(d.status().recovery.records_from_memory, 2);
    d.power_cycle();
    assert_eq!((d.read(100), d.read(101)), (1, 2));
}

// ---- trap 10: reads of a segment that is used again -------------------------------------------

/// ```text
/// read      100      |--------- in flight ----------|   A (or B: it was not acknowledged before)
/// log       100 = B      |-|  then two laps of the log    but never what lies there now
/// ```
#[test]
fn trap_10_a_segment_is_not_used_again_while_it_is_read() {
    let mut d = Driver::never_idle(|options| options.engine.verify_reads = false);
    d.write_durably(100..115, 1);
    d.hold(|io| io.is(Device::CacheDisk, Kind::Read));
    let read = d.submit(Operation::read(LbaRange::new(800, 8)), false);
    let io = d.find_io(Device::CacheDisk, Kind::Read).expect("its slot is on the cache-disk");
    d.write_durably(100..115, 2);
    d.overwrite_segments(500, 40);
    d.finish(io);
    assert_eq!(d.result(read), Ok(()));
    assert_eq!(common::one_byte(&d.reply_bytes(read)), 1);
}

// ---- trap 11: sub-sector writes ---------------------------------------------------------------

/// A disk of 4 KiB sectors tears one in a power cut: all of it is gone, also the 3.5 KiB that were
/// never written through dcd.
///
/// ```text
/// block         800  801..808
/// data-disk     .    x x x x x x x      before
/// log           N                       512 bytes
/// data-disk     ?    ? ? ? ? ? ? ?      torn  -> the log must hold all of it by then
/// ```
#[test]
fn trap_11_a_torn_physical_sector_is_repaired_by_replay() {
    let mut d = Driver::with(|options| options.data_disk.physical_sector_size = 4096);
    d.data_disk.rot(100 * LINE as u64, &[7; LINE]);
    let mark = d.started.len();
    d.write_blocks(800, 1, 1);
    d.done(Driver::flush);
    let reads = d.started[mark..].iter().filter(|io| io.kind == Kind::Read).count();
    assert_eq!(reads, 0, "nothing is read on the write path");

    d.hold(|io| io.is(Device::DataDisk, Kind::Write));
    d.advance_time(Duration::from_secs(10));
    assert!(d.find_io(Device::DataDisk, Kind::Write).is_some(), "destaging");
    d.power_cut();
    d.data_disk.rot(100 * LINE as u64, &[0xee; LINE]);
    d.reopen();
    let bytes = d.try_read(800, 8).expect("a readable line");
    assert_eq!(common::one_byte(&bytes[..512]), 1);
    assert_eq!(common::one_byte(&bytes[512..]), 7);
    d.drain();
    assert_eq!(d.data_disk.current[100 * LINE..][..LINE], bytes);
}

// ---- trap 12: the wrong disk ------------------------------------------------------------------

/// The data-disk was mounted without dcd while the cache was dirty.
#[test]
fn trap_12_a_data_disk_changed_behind_a_dirty_cache_is_refused() {
    let mut d = Driver::with(never_idle);
    d.write_durably([100], 1);
    d.power_cut();
    d.data_disk.rot(0, &[1]);
    let error = d.try_open().expect_err("someone else has written there");
    assert!(matches!(error, OpenError::DataDiskChanged { offset: 0, .. }), "{error}");
}

/// An older image of the cache-disk is put back while the data-disk has moved on.
#[test]
fn trap_12_an_older_cache_disk_is_refused() {
    let mut d = Driver::new();
    d.write_durably([4], 1);
    d.drain();
    d.shut_down();
    let old = d.cache_disk.current.clone();
    d.reopen();
    d.write_durably([4], 2);
    d.drain();
    d.shut_down();
    d.cache_disk.rot(0, &old);
    let error = d.try_open().expect_err("the data-disk is newer");
    assert!(matches!(error, OpenError::DataDiskChanged { .. }), "{error}");
}

// ---- trap 13: a full cache --------------------------------------------------------------------

/// Four times as much as the cache holds is written without a pause. Each write waits for a destage
/// batch at most, none fails, and the data-disk is never asked for a line twice.
#[test]
fn trap_13_a_full_cache_goes_on_at_the_pace_of_the_data_disk() {
    let mut d = Driver::never_idle(|options| options.engine.bypass_threshold_bytes = 1 << 30);
    let started_at = d.now;
    for line in 0..960u64 {
        d.done(|d| d.write(line * 397 % 1024, (line % 250) as u8 + 1));
    }
    let status = d.status();
    assert!(status.counters.stalled_writes > 0, "the cache was full");
    // Nothing takes time on these disks but waiting: no write may have waited for one that is due
    // later (quiet, `max_delay`, a retry).
    assert_eq!(d.now.since(started_at), Duration(0));
    d.drain();
    assert_eq!(d.status().counters.destaged_lines, 960);
    for line in 0..960u64 {
        assert_eq!(d.data_disk.line(line * 397 % 1024), (line % 250) as u8 + 1);
    }
}

// ---- trap 14: every error at every I/O --------------------------------------------------------

/// What is known of a line: the newest version that was durable, and the newest that was asked for.
#[derive(Clone, Copy, Default)]
struct Versions {
    durable: u8,
    acknowledged: u8,
    asked: u8,
}

/// A conversation that uses every path, and keeps book of what each line may hold.
struct Script {
    d: Driver,
    versions: [Versions; 40],
}

/// First line of the script's ground; none of its lines is a witness.
const GROUND: u64 = 200;

impl Script {
    fn new() -> Script {
        let d = Driver::with(|options| {
            options.engine.ack = AckMode::Log;
            options.engine.bypass_threshold_bytes = 8192;
            options.engine.io_timeout = Duration::from_secs(30);
            options.engine.full_timeout = Duration::from_secs(60);
            options.data_disk.physical_sector_size = 4096;
        });
        Script { d, versions: [Versions::default(); 40] }
    }

    fn change(&mut self, first: usize, count: usize, is_discard: bool) {
        let version = match is_discard {
            true => 0,
            false => self.versions[first].asked + 1,
        };
        for known in &mut self.versions[first..first + count] {
            // A discard is version 0 again; `asked` stays, so that it is not mistaken for old.
            known.asked = known.asked.max(version);
        }
        let (start, blocks) = ((GROUND + first as u64) * 8, count as u64 * 8);
        let id = match is_discard {
            true => self.d.discard(start, blocks),
            false => self.d.write_blocks(start, blocks, version),
        };
        let ok = self.d.wait(id).is_ok();
        for known in &mut self.versions[first..first + count] {
            if is_discard {
                known.acknowledged = 0;
                known.durable = 0;
            } else if ok {
                known.acknowledged = version;
            }
        }
    }

    fn flush(&mut self) {
        let id = self.d.flush();
        if self.d.wait(id).is_ok() {
            for known in &mut self.versions {
                known.durable = known.acknowledged;
            }
        }
    }

    /// Every line reads as something between what was acknowledged and what was asked for, or
    /// fails.
    fn check(&mut self, after_power_cut: bool) {
        for (index, known) in self.versions.into_iter().enumerate() {
            let Ok(bytes) = self.d.try_read((GROUND + index as u64) * 8, 8) else { continue };
            let least = if after_power_cut { known.durable } else { known.acknowledged };
            for sector in bytes.chunks(512) {
                let found = common::one_byte(sector);
                assert!(
                    (least..=known.asked).contains(&found),
                    "line {index}: {found}, between {least} and {}",
                    known.asked
                );
            }
        }
    }

    fn run(&mut self) {
        self.change(0, 1, false);
        self.change(2, 1, false);
        self.flush();
        self.change(0, 1, false);
        self.change(4, 4, false); // bypassed
        self.change(5, 1, false);
        self.flush();
        // Part of a physical sector, to be completed.
        let id = self.d.write_blocks((GROUND + 10) * 8, 3, 1);
        self.versions[10].asked = 1;
        let _ = self.d.wait(id);
        // Behind an I/O that never ends, a drain does not end either.
        let drain = self.d.submit(Operation::Drain, false);
        self.d.advance_time(Duration::from_secs(200));
        assert!(self.d.is_answered(drain) || self.d.is_stuck());
        self.check(false);
        self.change(0, 1, false);
        self.change(4, 2, true);
        self.change(5, 1, false);
        self.change(20, 2, false); // bypassed
        self.flush();
        for _ in 0..20 {
            self.change(30, 1, false);
        }
        self.check(false);
        self.d.advance_time(Duration::from_secs(400));
        self.check(false);
        self.change(0, 1, false);
        self.flush();
    }
}

/// Each I/O of the conversation fails once, or is never answered, with everything else working.
/// What is then read, before and after a power cut and a restart, is never older than what was
/// promised.
#[test]
fn trap_14_every_error_at_every_io_keeps_every_promise() {
    let mut whole = Script::new();
    whole.run();
    let ios = whole.d.started.len();
    assert!(ios > 100, "a conversation of some length: {ios} I/Os");
    let opening = Script::new().d.started.len();
    for error in [IoError::Failed, IoError::TimedOut] {
        for number in opening..ios {
            fail_and_check(&[number - opening], error);
        }
    }
    // Two failures in a row, or nearly: what is done about the first fails as well.
    for number in 0..ios - opening {
        for second in 1..4 {
            fail_and_check(&[number, number + second], IoError::Failed);
        }
    }
}

/// Runs the script; I/Os with these numbers, counted from its start, fail.
fn fail_and_check(numbers: &[usize], error: IoError) {
    let mut script = Script::new();
    let first = script.d.next_io();
    for number in numbers {
        script.d.break_io(dcd_engine::IoId(first + *number as u64), error);
    }
    script.run();
    script.check(false);
    script.d.power_cut();
    script.d.reopen();
    script.check(true);
    let drain = script.d.submit(Operation::Drain, false);
    let result = script.d.wait(drain);
    // A slot that could not be read is lost: then a drain does not say that all is well.
    let lines = script.d.engine().lost_lines();
    let expected = if lines == 0 { Ok(()) } else { Err(RequestError::Lost { lines }) };
    assert_eq!(result, expected);
    script.check(true);
}
