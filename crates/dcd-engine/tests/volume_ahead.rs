//! What a block points to is read ahead.

#[path = "common/volume.rs"]
mod bench;

use bench::*;
use dcd_engine::units::LINE_SIZE;
use dcd_engine::{Duration, Input, Lba, Operation, VolumeRequest};

fn line(block: Lba) -> u64 {
    block.0 * 512 / LINE_SIZE
}

/// A chain of blocks, each of which points to the next, and to nothing else.
fn chain(bench: &mut Bench, count: u8) -> Vec<Lba> {
    // Past the log: what is in that is not asked of the members.
    bench.bypass_threshold_bytes = LINE_SIZE;
    bench.open(false);
    let blocks: Vec<Lba> = (0..count).map(|_| bench.allocate(None)).collect();
    for (from, to) in blocks.iter().zip(&blocks[1..]) {
        bench.volume_request(VolumeRequest::CreatePointer { from: *from, to: *to }).unwrap();
    }
    for (i, block) in blocks.iter().enumerate() {
        bench.write(line(*block), 1 + i as u8);
    }
    bench.drain();
    bench.until_idle();
    // Nothing of it is in the log, or in memory.
    bench.open(false);
    blocks
}

fn counts(bench: &Bench) -> (u64, u64) {
    let counters = bench.volume().status().counters;
    (counters.extents_read_ahead, counters.ahead_reads)
}

#[test]
fn who_follows_pointers_finds_the_next_block_in_memory() {
    for config in [tiered(), raid5()] {
        let mut bench = Bench::new(config);
        let blocks = chain(&mut bench, 20);
        for (i, block) in blocks.iter().enumerate() {
            assert_eq!(bench.read(line(*block)), 1 + i as u8);
        }
        // What a start looks at may have brought one of them before.
        let (ahead, used) = counts(&bench);
        assert!(ahead >= 15 && used >= 15 && ahead <= 21, "{ahead} {used}");
        // What was changed is read anew.
        bench.write(line(blocks[5]), 99);
        bench.drain();
        assert_eq!((bench.read(line(blocks[4])), bench.read(line(blocks[5]))), (5, 99));
        let range = dcd_engine::LbaRange::new(blocks[7].0, 8);
        assert_eq!(bench.ask(Operation::Discard { range }).0, Ok(()));
        bench.drain();
        assert_eq!((bench.read(line(blocks[6])), bench.read(line(blocks[7]))), (7, 0));
    }
}

/// What is being read when its extent is changed does not count.
#[test]
fn a_change_overtakes_what_is_being_read() {
    let mut bench = Bench::new(raid5());
    let blocks = &chain(&mut bench, 12)[8..];
    // The first is read, and the ends of all that follows are held back.
    bench.held = Some(Vec::new());
    let read = bench.start(dcd_testkit::read_into_used(dcd_engine::LbaRange::new(blocks[0].0, 8)));
    let first = std::mem::take(bench.held.as_mut().unwrap());
    first.into_iter().for_each(|done| bench.input(done));
    assert_eq!(bench.replies[&read].0, Ok(()));
    let ahead = std::mem::take(bench.held.as_mut().unwrap());
    assert!(!ahead.is_empty(), "the second is read ahead");
    let data = dcd_engine::Buffer::copy_of(&[7; LINE_SIZE as usize]);
    bench.start(Operation::Write { start: blocks[1], data });
    let drain = bench.start(Operation::Drain);
    bench.pass(Duration::from_secs(2));
    ahead.into_iter().for_each(|done| bench.input(done));
    for _ in 0..20 {
        let held = std::mem::take(bench.held.as_mut().unwrap());
        held.into_iter().for_each(|done| bench.input(done));
        bench.input(Input::Timeout);
    }
    assert_eq!(bench.replies[&drain].0, Ok(()));
    bench.held = None;
    assert_eq!(bench.read(line(blocks[1])), 7);
}

/// A program that never goes where its pointers go costs the disks little.
#[test]
fn pointers_that_nobody_follows_are_not_followed_for_long() {
    let mut bench = Bench::new(tiered());
    let targets = chain(&mut bench, 200);
    let sources: Vec<Lba> = targets.iter().step_by(2).copied().collect();
    for _ in 0..20 {
        for source in &sources {
            assert_ne!(bench.read(line(*source)), 0);
        }
        // What was read ahead goes: it is not counted as held before.
        bench.write(0, 1);
        for target in targets.iter().skip(1).step_by(2) {
            bench.write(line(*target), 3);
        }
        bench.drain();
    }
    let (ahead, used) = counts(&bench);
    // But for what the start has looked at: one in each round.
    assert!(used <= 20, "{used}");
    assert!(ahead < 2000 / 6, "{ahead}");
}
