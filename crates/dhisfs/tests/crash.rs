//! Power cuts at every moment. Afterwards the file system is what it was after one of the
//! operations since the last `fsync`, whole, and files that were not written since then have what
//! they had. Some operations come between the steps of a commit or of a checkpoint, as those of
//! other programs do.

mod common;

use std::collections::BTreeMap;

use common::*;
use dcd_client::{BlockDevice, MemoryDevice};
use dhisfs::{FileSystem, FsError, MountOptions};

/// What was done, and when.
struct History {
    fs: FileSystem<MemoryDevice>,
    /// The model before the first operation and after each, and how much the device had been told
    /// then.
    moments: Vec<(Model, usize)>,
    /// After which moments everything was made durable, and how much the device had been told when
    /// it was.
    synced: Vec<(usize, usize)>,
}

/// With room for so many pointers more than the smallest file system has, if that is said.
fn history(seed: u64, ops: usize, pointers: Option<u64>) -> History {
    let mut device = mounted(6000).unmount().unwrap();
    if let Some(more) = pointers {
        let used = device.usage().unwrap().pointers;
        device.limit_pointers(used + more);
    }
    device.record();
    // Little memory: blocks are written at other times than with a sync, too.
    let cache_bytes = if seed.is_multiple_of(2) { 400 << 10 } else { 8 << 20 };
    let options = MountOptions { cache_bytes, ..MountOptions::default() };
    let mut fs = FileSystem::mount(device, options).unwrap();
    let mut random = Random::new(seed);
    let mut model = Model::default();
    let mut moments = vec![(model.clone(), fs.device().recorded())];
    let mut synced = vec![(0, moments[0].1)];
    while moments.len() <= ops {
        let is_tidy = random.below(25) == 0;
        let op = match is_tidy {
            true => Op::Sync,
            false => model.random_op(&mut random),
        };
        if !matches!(op, Op::Sync) {
            step(&mut fs, &mut model, op, seed, &mut moments);
            continue;
        }
        let before = moments.len() - 1;
        // Others go on meanwhile, or not.
        let others = [0, 0, 3][random.below(3)];
        let mut between = |fs: &mut FileSystem<MemoryDevice>| {
            for _ in 0..random.below(others + 1) {
                let op = model.random_op(&mut random);
                if !matches!(op, Op::Sync) {
                    step(fs, &mut model, op, seed, &mut moments);
                }
            }
        };
        if is_tidy { fs.tidy_with(&mut between) } else { fs.sync_with(&mut between) }.unwrap();
        moments.push((model.clone(), fs.device().recorded()));
        synced.push((before, fs.device().recorded()));
    }
    History { fs, moments, synced }
}

fn step(
    fs: &mut FileSystem<MemoryDevice>,
    model: &mut Model,
    op: Op,
    seed: u64,
    moments: &mut Vec<(Model, usize)>,
) {
    // What is written with little room is written block by block, and may end after any of them.
    let parts = match op {
        Op::Write(path, offset, data) => by_block(&path, offset, &data),
        op => vec![op],
    };
    for op in parts {
        hold_some(fs, &op, &mut Random::new(seed ^ moments.len() as u64));
        let context = format!("seed {seed}, op {}: {op:?}", moments.len());
        let result = try_run(fs, &op);
        let is_full = match &result {
            Err(FsError::Alone) => true,
            Err(error) => error.errno() == libc::ENOSPC,
            Ok(()) => false,
        };
        if !is_full {
            let is_refused = matches!(&result, Err(FsError::Refused(_)));
            assert!(result.is_ok() || is_refused, "{context}: {result:?}");
            assert_eq!(result.is_ok(), model.apply(&op), "{context}");
        }
        moments.push((model.clone(), fs.device().recorded()));
        if is_full {
            break;
        }
    }
}

/// What is about to go is known to somebody, now and then, and forgotten some time, or never.
fn hold_some(fs: &mut FileSystem<MemoryDevice>, op: &Op, random: &mut Random) {
    if random.below(8) == 0 {
        for inode in 0..6000 {
            match fs.forgotten(inode, 1) {
                Ok(()) | Err(FsError::Alone) => {}
                Err(error) => panic!("{inode}: {error}"),
            }
        }
    }
    let (Op::Unlink(path) | Op::RemoveDirectory(path) | Op::Rename(_, path)) = op else { return };
    if let Ok(inode) = find(fs, path)
        && random.below(2) == 0
    {
        fs.looked_up(inode);
    }
}

fn by_block(path: &str, offset: u64, data: &[u8]) -> Vec<Op> {
    let first = (4096 - offset as usize % 4096).min(data.len());
    let (first, rest) = data.split_at(first);
    let rest_at = (offset + first.len() as u64..).step_by(4096);
    let parts = [(offset, first)].into_iter().chain(rest_at.zip(rest.chunks(4096)));
    parts.map(|(at, data)| Op::Write(path.to_owned(), at, data.to_vec())).collect()
}

fn cut_power(history: &History, events: usize, seed: u64) {
    let context = format!("seed {seed}, {events} events");
    let mut random = Random::new(seed ^ events as u64);
    // Everything in flight is lost, all of it is kept, or some.
    let mut keep: Box<dyn FnMut(usize) -> usize> = match random.below(6) {
        0 => Box::new(|_| 0),
        1 => Box::new(|end| end - 1),
        _ => Box::new(|end| random.below(end)),
    };
    let mut device = history.fs.device().after_power_cut(events, &mut *keep);
    // A second cut, in the mount after the first one, now and then.
    let mut again = Random::new(events as u64 * 7 + seed);
    if again.below(3) == 0 {
        device.record();
        let fs = FileSystem::mount(device, MountOptions::default())
            .unwrap_or_else(|error| panic!("{context}: {error}"));
        let events = again.below(fs.device().recorded() + 1);
        device = fs.device().after_power_cut(events, &mut |end| again.below(end));
    }
    let mut fs = FileSystem::mount(device, MountOptions::default())
        .unwrap_or_else(|error| panic!("{context}: {error}"));
    let report = fs.check().unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(report.problems, Vec::<String>::new(), "{context}");

    let synced = history.synced.iter().rfind(|(_, durable_at)| *durable_at <= events);
    let first = synced.map_or(0, |(moment, _)| *moment);
    // The operation that was under way. What it, or a sync without anything to do, tells the device
    // may be nothing.
    let done = history.moments.partition_point(|(_, at)| *at < events);
    let last = done.min(history.moments.len() - 1).max(first);
    let (seen, inodes) = tree(&mut fs);
    let moments = &history.moments[first..=last];
    let found = moments.iter().rev().find(|(model, _)| model.tree() == seen);
    let Some((model, _)) = found else {
        let trees: Vec<BTreeMap<_, _>> = moments.iter().map(|(model, _)| model.tree()).collect();
        panic!("{context}: not the state after any of {first}..={last}:\n{seen:?}\n{trees:?}");
    };
    let (then, now) = (&history.moments[first].0, &history.moments[last].0);
    for (path, inode) in inodes {
        let Some(Node::File(file)) = model.nodes.get(&path) else { unreachable!("compared") };
        // Written since the last fsync: it may have anything of it.
        let is_untouched =
            then.changes.get(*file) == Some(&now.changes[*file]) && *file < then.files.len();
        if is_untouched {
            let found = fs.read(inode, 0, then.files[*file].len() + 1).unwrap();
            assert!(found == *then.files[*file], "{context}: {path} has changed");
        }
    }
}

fn cut_everywhere(seed: u64, ops: usize, pointers: Option<u64>, step: usize) {
    let history = history(seed, ops, pointers);
    let all = history.fs.device().recorded();
    assert!(all > ops / 2, "{all} events");
    for events in (0..=all).step_by(step) {
        cut_power(&history, events, seed);
    }
}

#[test]
fn power_cuts_at_every_write() {
    for seed in 0..4 {
        cut_everywhere(seed, 120, None, 1);
    }
}

#[test]
fn power_cuts_in_long_runs() {
    for seed in 10..16 {
        cut_everywhere(seed, 500, None, 37);
    }
}

/// So few that most of what wants more is refused: no replay may find that there is no room.
#[test]
fn power_cuts_with_few_pointers() {
    for (seed, pointers) in (20..).zip([25, 32, 40, 60, 90, 130]) {
        cut_everywhere(seed, 250, Some(pointers), 7);
    }
}

/// More of the same: `DCD_DHISFS_SEEDS=1000 cargo test --locked --release -p dhisfs --test crash --
/// --ignored`.
#[test]
#[ignore = "hours"]
fn power_cuts_for_long() {
    let seeds = std::env::var("DCD_DHISFS_SEEDS").map_or(100, |text| text.parse().unwrap());
    for seed in 1000..1000 + seeds {
        cut_everywhere(seed, 200, None, 5);
        cut_everywhere(seed, 200, Some(seed % 80 + 17), 5);
    }
}
