//! Many blocks are freed at once, and their zeroes take their time.

#[path = "common/volume.rs"]
mod bench;

use bench::*;
use dcd_engine::units::LINE_SIZE;
use dcd_engine::volume::placement::RaidLevel;
use dcd_engine::{
    Buffer, Device, Duration, Lba, LbaRange, Operation, RequestError, RequestId, VolumeRequest,
};

/// Blocks behind a root, each of which is written; every second one is freed by [`free`].
fn allocated(bench: &mut Bench, count: usize) -> Vec<(Lba, Lba)> {
    let root = bench.allocate(None);
    let mut pointers = Vec::new();
    for i in 0..count {
        let block = bench.allocate(None);
        bench.volume_request(VolumeRequest::CreatePointer { from: root, to: block }).unwrap();
        bench.write(block.0 * 512 / LINE_SIZE, 1 + (i % 250) as u8);
        pointers.push((root, block));
    }
    bench.drain();
    pointers
}

fn free(bench: &mut Bench, pointers: &[(Lba, Lba)]) {
    for (from, to) in pointers.iter().step_by(2).copied() {
        bench.volume_request(VolumeRequest::DeletePointer { from, to }).unwrap();
    }
}

/// The same without waiting for the answers.
fn free_all(bench: &mut Bench, pointers: &[(Lba, Lba)]) {
    for (from, to) in pointers.iter().step_by(2).copied() {
        bench.start(Operation::Volume(VolumeRequest::DeletePointer { from, to }));
    }
}

/// Each flush wrote the entries of all that were not zeroed yet: with thousands a second of it, and
/// the zeroes of a removed directory took hours.
#[test]
fn a_flush_does_not_tell_the_journal_again_what_it_has() {
    const COUNT: usize = 2900;
    let config = config(4, vec![set(RaidLevel::Raid5, 4, 1, 0, 16 << 10)], 4 << 10);
    let mut bench = Bench::with_journal(config, 2 * MIB);
    bench.volume_request(VolumeRequest::SetPointers { pointers: COUNT as u32 }).unwrap();
    let pointers = allocated(&mut bench, COUNT);
    free(&mut bench, &pointers);
    let before = bench.volume().status().counters;
    bench.drain();
    let after = bench.volume().status().counters;
    assert_eq!(after.extents_unmapped - before.extents_unmapped, COUNT as u64 / 2);
    // 64 pieces each.
    let rounds = COUNT as u64 / 2 / 64;
    let records = after.journal_records - before.journal_records;
    assert!(records < 2 * rounds, "{records} records for {rounds} rounds");
}

/// Whatever the journal is told takes 700 ms, all of it at once, so a round of zeroes is longer than
/// it should be, however small. Smaller ones made all of them together take three times as long.
#[test]
fn a_slow_journal_is_no_reason_for_small_rounds() {
    const COUNT: usize = 2900;
    let config = config(4, vec![set(RaidLevel::Raid5, 4, 1, 0, 16 << 10)], 4 << 10);
    let mut bench = Bench::with_journal(config, 2 * MIB);
    bench.volume_request(VolumeRequest::SetPointers { pointers: COUNT as u32 }).unwrap();
    let pointers = allocated(&mut bench, COUNT);
    free(&mut bench, &pointers);
    bench.holds = vec![Device::CacheDisk];
    bench.held = Some(Vec::new());
    let took = Duration::from_millis(700);
    let (drain, mut times) = (bench.start(Operation::Drain), 0);
    while !bench.replies.contains_key(&drain) {
        bench.pass(took);
        let ended = bench.held.replace(Vec::new()).unwrap();
        ended.into_iter().for_each(|done| bench.input(done));
        times += 1;
    }
    assert_eq!(bench.volume().status().counters.extents_unmapped, COUNT as u64 / 2);
    // 64 pieces in each; it writes and flushes.
    let fewest = COUNT / 2 / 64 * 2;
    assert!(times < 3 * fewest, "{times}, and {fewest} would do");
}

/// There is room for few zero ranges, and nothing becomes durable: most discards wait.
fn full_of_zeroes() -> Bench {
    let mut bench = Bench::new(raid5());
    bench.zero_ranges_max = 16;
    bench.open(false);
    let pointers = allocated(&mut bench, 100);
    bench.holds = vec![Device::CacheDisk];
    bench.held = Some(Vec::new());
    free_all(&mut bench, &pointers);
    bench
}

/// As long as it takes to log a discard it had not begun, and was not found.
#[test]
fn a_drain_that_waits_for_discards_can_be_cancelled() {
    let mut bench = full_of_zeroes();
    let drain = bench.start(Operation::Drain);
    bench.pass_in_steps(Duration::from_secs(1));
    assert!(!bench.replies.contains_key(&drain));
    let cancel = bench.start(Operation::CancelDrain { drain: RequestId(drain) });
    assert_eq!(bench.replies[&drain].0, Err(RequestError::Cancelled));
    assert_eq!(bench.replies[&cancel].0, Ok(()));
    for done in bench.held.take().unwrap() {
        bench.input(done);
    }
    bench.drain();
    bench.until_idle();
}

#[test]
fn an_end_does_not_wait_for_discards_without_room() {
    let mut bench = Bench::new(raid5());
    bench.zero_ranges_max = 16;
    bench.open(false);
    let pointers = allocated(&mut bench, 100);
    // Nothing is destaged any more.
    bench.unflushable = vec![true; 4];
    bench.write(bench.lines() - 1, 7);
    bench.start(Operation::Drain);
    bench.pass(Duration::from_secs(1));
    free_all(&mut bench, &pointers);
    let (drain, flush) = (bench.start(Operation::Drain), bench.start(Operation::Flush));
    bench.pass(Duration::from_millis(1));
    assert!(!bench.replies.contains_key(&drain) && !bench.replies.contains_key(&flush));
    bench.unflushable = vec![false; 4];
    let end = bench.start(Operation::Shutdown);
    assert_eq!(bench.replies[&drain].0, Err(RequestError::ShuttingDown));
    assert_eq!(bench.replies[&flush].0, Err(RequestError::ShuttingDown));
    assert_eq!(bench.replies[&end].0, Ok(()));
    // What was left is found.
    bench.open(false);
    bench.volume_request(VolumeRequest::Collect).unwrap();
    bench.drain();
    bench.until_idle();
    // Nothing is a root: all but what was written last.
    assert_eq!(bench.volume().status().extents_mapped, 1);
}

/// Also where its entry is what the journal has, the place that it has left is free.
#[test]
fn what_is_written_and_zeroed_before_a_flush_leaves_no_place_behind() {
    let mut bench = Bench::new(raid5());
    bench.bypass_threshold_bytes = LINE_SIZE;
    bench.open(false);
    const BYTES: u64 = 32 * (16 << 10);
    let range = LbaRange::new(0, BYTES / 512);
    for _ in 0..3 {
        // Past the log, and with places that no flush has told of.
        for start in (0..BYTES).step_by(16 << 10) {
            let data = Buffer::copy_of(&vec![5; 16 << 10]);
            let start = Lba(start / 512);
            assert_eq!(bench.ask(Operation::Write { start, data }).0, Ok(()));
        }
        assert!(bench.volume().status().sets[0].room.used > 16);
        assert_eq!(bench.ask(Operation::WriteZeroes { range, may_unmap: true }).0, Ok(()));
        bench.drain();
        bench.until_idle();
    }
    let status = bench.volume().status();
    assert_eq!((status.sets[0].room.used, status.extents_mapped), (0, 0));
}
