//! Files that grow by small pieces beside each other, and what others of their names became.

mod common;

use common::*;
use dcd_client::{BlockDevice, MemoryDevice};
use dhisfs::{FileSystem, MountOptions, NewFile, make};

/// Blocks that each log gets.
const BLOCKS: u64 = 200;

fn mounted_so(project_growth: bool) -> FileSystem<MemoryDevice> {
    let mut device = device(6000);
    make(&mut device, &make_options()).unwrap();
    let options = MountOptions { project_growth, ..MountOptions::default() };
    FileSystem::mount(device, options).unwrap()
}

/// Four logs that a block is appended to in turn, each durable before the next; their numbers.
fn four_logs(fs: &mut FileSystem<MemoryDevice>, name: &str, blocks: u64) -> Vec<u64> {
    let root = fs.root();
    let new = NewFile { mode: FILE, ..NewFile::default() };
    let logs: Vec<u64> = (0..4)
        .map(|number| fs.create(root, format!("{name}{number}.log").as_bytes(), &new).unwrap())
        .collect();
    logs.iter().for_each(|log| fs.opened(*log));
    for block in 0..blocks {
        for (log, fill) in logs.iter().zip(1..) {
            fs.write(*log, block * 4096, &[fill; 4096]).unwrap();
            fs.sync().unwrap();
        }
    }
    logs.iter().for_each(|log| fs.closed(*log).unwrap());
    logs
}

/// In how many pieces it lies.
fn pieces(fs: &mut FileSystem<MemoryDevice>, file: u64) -> usize {
    let mut pieces = 0;
    let mut next = 0;
    loop {
        let told = fs.extended(file, format!("user.dcd.blocks.{next}").as_bytes()).unwrap();
        let told = String::from_utf8(told).unwrap();
        let runs: Vec<Vec<u64>> = told
            .lines()
            .skip(1)
            .map(|line| line.split(' ').map(|word| word.parse().unwrap()).collect())
            .collect();
        let Some(last) = runs.last() else { return pieces };
        next = last[0] + last[2];
        pieces += runs.len();
    }
}

#[test]
fn logs_that_grow_beside_each_other_lie_in_few_pieces() {
    let most = [true, false].map(|project_growth| {
        let mut fs = mounted_so(project_growth);
        four_logs(&mut fs, "old", BLOCKS);
        let new = four_logs(&mut fs, "new", BLOCKS);
        check(&mut fs);
        let most = new.iter().map(|log| pieces(&mut fs, *log)).max().unwrap();
        // What they hold is what was written, also for who mounts it behind that.
        let device = fs.unmount().unwrap();
        let mut fs = FileSystem::mount(device, MountOptions::default()).unwrap();
        for (log, fill) in new.iter().zip(1..) {
            let data = fs.read(*log, 0, (BLOCKS * 4096) as usize).unwrap();
            assert!(data.len() as u64 == BLOCKS * 4096 && data.iter().all(|byte| *byte == fill));
        }
        check(&mut fs);
        most
    });
    let [with, without] = most;
    assert!(with <= 8 && without > 40, "{with} pieces, and {without} when nothing is projected");
}

/// What was had for a file that stays small, or goes, is for others, and no reason to be full.
#[test]
fn blocks_that_were_had_in_vain_are_not_lost() {
    let mut fs = mounted_so(true);
    let root = fs.root();
    four_logs(&mut fs, "old", 100);
    let small = four_logs(&mut fs, "small", 2);
    fs.unlink(root, b"small0.log").unwrap();
    fs.sync().unwrap();
    check(&mut fs);
    // Everything else is one file.
    let new = NewFile { mode: FILE, ..NewFile::default() };
    let large = fs.create(root, b"large", &new).unwrap();
    let mut blocks = 0;
    while fs.write(large, blocks * 4096, &[7; 4096]).is_ok() {
        blocks += 1;
    }
    let free = fs.free_blocks().unwrap();
    assert!(free.usable < 5, "{free:?} behind {blocks} blocks");
    // With room again it goes on.
    fs.unlink(root, b"old0.log").unwrap();
    fs.sync().unwrap();
    let logs = four_logs(&mut fs, "more", 20);
    assert!(logs.iter().all(|log| pieces(&mut fs, *log) <= 20));
    check(&mut fs);
    assert_eq!(fs.read(small[1], 0, 8192).unwrap(), [2; 8192]);
    let mut device = fs.unmount().unwrap();
    assert!(device.usage().unwrap().mapped > 5900);
}
