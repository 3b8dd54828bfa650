//! A volume that has room for few pointers. What does not fit is refused when it is asked for, and
//! nothing else: the file system goes on, files can always be removed, and no power cut leaves a
//! journal that cannot be replayed for want of room.

mod common;

use common::*;
use dcd_client::{BlockDevice, MemoryDevice};
use dhisfs::{FileSystem, FsError, MakeOptions, MountOptions, NewFile, make, pointers_for};

fn file() -> NewFile {
    NewFile { mode: FILE, ..NewFile::default() }
}

/// An empty file system with room for so many pointers more than the smallest one has.
fn with_pointers(blocks: u64, more: u64) -> MemoryDevice {
    let mut device = device(blocks);
    make(&mut device, &make_options()).unwrap();
    let used = device.usage().unwrap().pointers;
    device.limit_pointers(used + more);
    device
}

/// Fills it with files of this many blocks; how many there are that are whole.
fn fill(fs: &mut FileSystem<MemoryDevice>, blocks: usize) -> usize {
    let data = vec![7; blocks * 4096];
    for i in 0.. {
        let root = fs.root();
        let written = fs
            .create(root, format!("f{i}").as_bytes(), &file())
            .and_then(|made| fs.write(made, 0, &data));
        match written {
            Ok(written) if written == data.len() => {}
            Ok(_) => return i,
            Err(error) => {
                assert_eq!(error.errno(), libc::ENOSPC, "{error}");
                return i;
            }
        }
    }
    unreachable!("it is full some time")
}

#[test]
fn full_is_said_at_once_and_all_goes_on() {
    for (blocks, rounds) in [(1, 3), (3, 3), (700, 2)] {
        let mut fs =
            FileSystem::mount(with_pointers(20_000, 1500), MountOptions::default()).unwrap();
        for round in 0..rounds {
            let root = fs.root();
            let whole = fill(&mut fs, blocks);
            assert!(whole * (blocks + 1) > 1500 * 3 / 5, "round {round}: {whole} files");
            assert!(!fs.is_stopped());
            let free = fs.free_blocks().unwrap();
            assert!(free.usable < 5 && free.on_disks > 15_000, "{free:?}");
            // What is there can be changed, and everything can be made durable.
            let first = fs.lookup(root, b"f0").unwrap();
            assert_eq!(fs.write(first, 0, b"changed").unwrap(), 7);
            fs.sync().unwrap();
            check(&mut fs);
            fs = FileSystem::mount(fs.unmount().unwrap(), MountOptions::default()).unwrap();
            check(&mut fs);
            for i in 0..whole {
                let found = fs.lookup(root, format!("f{i}").as_bytes()).unwrap();
                assert_eq!(fs.read(found, 8, 1 << 22).unwrap(), vec![7; blocks * 4096 - 8]);
            }
            // All can be removed, also while somebody has it open.
            for entry in fs.list(root).unwrap() {
                if entry.inode % 3 == 0 {
                    fs.opened(entry.inode);
                }
                fs.unlink(root, &entry.name).unwrap();
                if entry.inode % 3 == 0 && entry.inode % 2 == 0 {
                    fs.closed(entry.inode).unwrap();
                }
            }
            fs = FileSystem::mount(fs.unmount().unwrap(), MountOptions::default()).unwrap();
            assert_eq!(fs.check().unwrap().files, 0);
        }
    }
}

#[test]
fn files_that_are_open_can_be_removed_when_there_are_no_blocks() {
    let mut fs = mounted(600);
    let root = fs.root();
    fill(&mut fs, 2);
    let names = fs.list(root).unwrap();
    assert!(names.len() > 50);
    for entry in names {
        fs.opened(entry.inode);
        fs.unlink(root, &entry.name).unwrap();
    }
    fs.sync().unwrap();
    let mut fs = FileSystem::mount(fs.unmount().unwrap(), MountOptions::default()).unwrap();
    let report = fs.check().unwrap();
    assert_eq!((report.files, report.problems), (0, vec![]));
}

#[test]
fn mkfs_says_how_many_pointers_it_needs() {
    let mut few = device(20_000);
    few.limit_pointers(150);
    let Err(FsError::TooFewPointers { found: 150, wanted }) = make(&mut few, &make_options())
    else {
        panic!("too few pointers")
    };
    few.limit_pointers(wanted);
    make(&mut few, &make_options()).unwrap();
    let mut fs = FileSystem::mount(few, MountOptions::default()).unwrap();
    assert!(fill(&mut fs, 1) > 20);
    check(&mut fs);
    // With as many as are advised all blocks can be used, and the journal is not what takes them.
    let mut enough = device(4000);
    enough.limit_pointers(pointers_for(4000));
    make(&mut enough, &make_options()).unwrap();
    let mut fs = FileSystem::mount(enough, MountOptions::default()).unwrap();
    fill(&mut fs, 1);
    assert!(fs.free_blocks().unwrap().on_disks < 20);
    let mut small = device(200_000);
    small.limit_pointers(8000);
    make(&mut small, &MakeOptions { journal_blocks: None, ..make_options() }).unwrap();
    assert!(small.usage().unwrap().pointers < 1100);
}

/// What an older version has left, which told pointers without asking for room: a journal with more
/// than there is room for.
#[test]
fn a_journal_that_finds_no_room_is_kept_until_there_is_room() {
    let mut device = with_pointers(20_000, 3000);
    device.record();
    let mut fs = FileSystem::mount(device, MountOptions::default()).unwrap();
    let root = fs.root();
    let whole = fill(&mut fs, 3);
    fs.unlink(root, b"f0").unwrap();
    let (last, events) = (format!("f{}", whole - 1), fs.device().recorded());
    fs.sync().unwrap();
    // All is durable, and the pointers of it are lost with the power.
    let told = (events..fs.device().recorded())
        .find(|at| {
            let device = fs.device().after_power_cut(*at, &mut |_| 0);
            FileSystem::mount(device, MountOptions::default())
                .is_ok_and(|mut fs| fs.lookup(root, last.as_bytes()).is_ok())
        })
        .expect("it is durable some time");
    let mut device = fs.device().after_power_cut(told, &mut |_| 0);
    let used = device.usage().unwrap().pointers;
    device.limit_pointers(used);
    let mut device = std::sync::Arc::new(std::sync::Mutex::new(device));
    for _ in 0..2 {
        let refused = FileSystem::mount(device.clone(), MountOptions::default()).err().unwrap();
        assert!(
            matches!(refused, FsError::PointerRoom { missing: 1.., room } if room == used),
            "{refused}"
        );
    }
    // Meanwhile it can be looked at.
    let read_only = MountOptions { read_only: true, ..MountOptions::default() };
    let mut fs = FileSystem::mount(device.clone(), read_only).unwrap();
    fs.lookup(root, last.as_bytes()).unwrap();
    // As `fsck --repair` does.
    let options = MountOptions { make_pointer_room: true, ..MountOptions::default() };
    let mut fs = FileSystem::open(device.clone(), options).unwrap();
    let repaired = fs.repair().unwrap();
    assert_eq!((repaired.done, repaired.left.problems), (Vec::<String>::new(), vec![]));
    assert!(device.usage().unwrap().pointers_max >= pointers_for(20_000));
    let mut fs = FileSystem::mount(fs.unmount().unwrap(), MountOptions::default()).unwrap();
    check(&mut fs);
    assert_eq!(errno(fs.lookup(root, b"f0")), libc::ENOENT);
    for i in 1..whole {
        let found = fs.lookup(root, format!("f{i}").as_bytes()).unwrap();
        assert_eq!(fs.read(found, 0, 1 << 20).unwrap(), vec![7; 3 * 4096]);
    }
}
