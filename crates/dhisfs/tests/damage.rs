//! Blocks with anything in them, with checksums that are right: a mount, a check and work on it end
//! in errors or not at all, and never in a panic or a loop without end. A repair mends it: the
//! check that follows finds nothing, and what was not damaged has what it had.

mod common;

use common::*;
use std::collections::BTreeMap;

use dcd_block::checksum::crc32c_with_hole;
use dcd_client::{Allocation, Attributes, BlockDevice, MemoryDevice, PointerChange, Read, Write};
use dhisfs::{FileSystem, MountOptions, NewFile};

fn used() -> MemoryDevice {
    let mut fs = mounted(3000);
    let mut random = Random::new(5);
    let mut model = Model::default();
    for _ in 0..200 {
        let op = model.random_op(&mut random);
        run(&mut fs, &op);
        model.apply(&op);
    }
    let mut device = fs.unmount().unwrap();
    device.record();
    device
}

#[test]
fn forged_blocks_are_errors() {
    let device = used();
    let mut metadata = Vec::new();
    let mut copy = device.after_power_cut(0, &mut |_| 0);
    for block in 0..3000 {
        let mut data = vec![0; 4096];
        copy.read(&mut [Read { block, data: &mut data }]).unwrap();
        if data.starts_with(b"DH") {
            metadata.push((block, data));
        }
    }
    assert!(metadata.len() > 20, "{}", metadata.len());
    let mut random = Random::new(77);
    let (mut refused, mut found, mut well) = (0, 0, 0);
    for _ in 0..3000 {
        let mut device = device.after_power_cut(0, &mut |_| 0);
        let (block, mut data) = metadata[random.below(metadata.len())].clone();
        for _ in 0..1 + random.below(3) {
            // Most numbers lie at the beginning.
            let span = [128, 4072][random.below(2)];
            let at = 16 + random.below(span);
            match random.below(4) {
                0 => data[at] = random.below(256) as u8,
                1 => data[at] ^= 1 << random.below(8),
                2 => data[at & !7..][..8].fill(0xff),
                _ => {
                    let other = metadata[random.below(metadata.len())].0;
                    data[at & !7..][..8].copy_from_slice(&other.to_le_bytes());
                }
            }
        }
        let checksum = crc32c_with_hole(&data, 4);
        data[4..8].copy_from_slice(&checksum.to_le_bytes());
        device.write(&[Write { block, data: &data }]).unwrap();
        let Ok(mut fs) = FileSystem::mount(device, MountOptions::default()) else {
            refused += 1;
            continue;
        };
        match fs.check() {
            Ok(report) if report.problems.is_empty() => well += 1,
            _ => found += 1,
        }
        // Work on it, which may end in any error.
        let mut model = Model::default();
        for path in ["n1", "n2", "n3", "n4", "n5/n1"] {
            model.nodes.insert(path.into(), Node::File(0));
        }
        for _ in 0..30 {
            let _ = try_run(&mut fs, &model.random_op(&mut random));
        }
        let _ = fs.unmount();
    }
    assert!(refused > 10 && found > 300 && well > 50, "{refused} {found} {well}");
}

#[test]
fn a_bit_that_flips_is_found() {
    let device = used();
    let mut copy = device.after_power_cut(0, &mut |_| 0);
    let mut random = Random::new(3);
    let mounted = device.after_power_cut(0, &mut |_| 0);
    let mounted = FileSystem::mount(mounted, MountOptions::default()).unwrap();
    let fixed = mounted.superblock().clone();
    for block in 0..3000 {
        let mut data = vec![0; 4096];
        copy.read(&mut [Read { block, data: &mut data }]).unwrap();
        // What is in the journal is not needed, and of its two headers one is enough.
        let index = fixed.journal_indexes[0];
        let is_journal = device.all_pointers().any(|pointer| pointer == (index, block));
        if !data.starts_with(b"DH") || is_journal || fixed.journal_headers.contains(&block) {
            continue;
        }
        data[random.below(4096)] ^= 1 << random.below(8);
        let mut device = device.after_power_cut(0, &mut |_| 0);
        device.write(&[Write { block, data: &data }]).unwrap();
        if let Ok(mut fs) = FileSystem::mount(device, MountOptions::default()) {
            let is_reachable = fs.device().all_pointers().any(|(_, to)| to == block);
            let is_found = fs.check().map_or(true, |report| !report.problems.is_empty());
            assert!(is_found || !is_reachable, "block {block}");
        }
    }
}

/// A device with a small tree in which everything has a known place.
fn planted() -> (MemoryDevice, BTreeMap<&'static str, u64>) {
    let mut fs = mounted(3000);
    let root = fs.root();
    let mut inodes = BTreeMap::from([("/", root)]);
    let directory = NewFile { mode: DIRECTORY, ..NewFile::default() };
    let file = NewFile { mode: FILE, ..NewFile::default() };
    for (path, parent) in [("a", "/"), ("a/b", "a"), ("c", "/")] {
        let inode = fs.create(inodes[parent], parent_of(path).1.as_bytes(), &directory).unwrap();
        inodes.insert(path, inode);
    }
    for (path, parent) in
        [("f", "/"), ("a/f", "a"), ("a/b/f", "a/b"), ("a/b/g", "a/b"), ("c/big", "c")]
    {
        let inode = fs.create(inodes[parent], parent_of(path).1.as_bytes(), &file).unwrap();
        fs.write(inode, 0, path.repeat(3000).as_bytes()).unwrap();
        inodes.insert(path, inode);
    }
    // Past the blocks in the inode.
    fs.write(inodes["c/big"], 370 * 4096, b"far").unwrap();
    fs.link(inodes["f"], inodes["c"], b"also").unwrap();
    let mut device = fs.unmount().unwrap();
    device.record();
    (device, inodes)
}

fn block_of(device: &mut MemoryDevice, block: u64) -> Vec<u8> {
    let mut data = vec![0; 4096];
    device.read(&mut [Read { block, data: &mut data }]).unwrap();
    data
}

/// The first block of this kind that belongs to this inode.
fn owned(device: &mut MemoryDevice, kind: &[u8], owner: u64) -> u64 {
    let mut all = 0..3000;
    let found = all.find(|block| {
        let data = block_of(device, *block);
        data.starts_with(kind)
            && data[8..16] == block.to_le_bytes()
            && data[16..24] == owner.to_le_bytes()
    });
    found.expect("there is one")
}

fn forge(device: &mut MemoryDevice, block: u64, change: impl FnOnce(&mut [u8])) {
    let mut data = block_of(device, block);
    change(&mut data);
    let checksum = crc32c_with_hole(&data, 4);
    data[4..8].copy_from_slice(&checksum.to_le_bytes());
    device.write(&[Write { block, data: &data }]).unwrap();
}

fn smash(device: &mut MemoryDevice, block: u64) {
    device.write(&[Write { block, data: &[0x5a; 4096] }]).unwrap();
}

/// Repairs it, twice: there is nothing left the second time. What was mended.
fn repaired(device: MemoryDevice) -> (FileSystem<MemoryDevice>, String) {
    let mut fs = FileSystem::open(device, MountOptions::default()).unwrap();
    assert_ne!(fs.check().unwrap().problems, Vec::<String>::new(), "the damage is found");
    let repaired = fs.repair().unwrap();
    assert_eq!(repaired.left.problems, Vec::<String>::new(), "{:?}", repaired.done);
    let mut fs = FileSystem::open(fs.unmount().unwrap(), MountOptions::default()).unwrap();
    let again = fs.repair().unwrap();
    assert_eq!((again.done, again.left.problems), (vec![], vec![]));
    let fs = FileSystem::mount(fs.unmount().unwrap(), MountOptions::default()).unwrap();
    (fs, repaired.done.join("\n"))
}

/// These files have what they had.
fn have(fs: &mut FileSystem<MemoryDevice>, files: &[(&str, &str)]) {
    for (path, text) in files {
        let inode = find(fs, path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let expected = text.repeat(3000).into_bytes();
        assert!(fs.read(inode, 0, expected.len()).unwrap() == expected, "{path}");
    }
}

const AB: [(&str, &str); 2] = [("a/b/f", "a/b/f"), ("a/b/g", "a/b/g")];

/// A bit of its first block that flips is no reason to make a new one over it.
#[test]
fn a_damaged_superblock_is_damage() {
    let mut device = used();
    let mut data = block_of(&mut device, 0);
    data[100] ^= 1;
    device.write(&[Write { block: 0, data: &data }]).unwrap();
    let refused = FileSystem::mount(device, MountOptions::default()).err().unwrap();
    assert!(matches!(refused, dhisfs::FsError::Damaged { block: 0, .. }), "{refused}");
    assert!(refused.hint().is_some_and(|hint| !hint.contains("mkfs")), "{refused:?}");
}

#[test]
fn wrong_counts_are_counted() {
    let (mut device, inodes) = planted();
    // Names, then blocks: see format/inode.rs.
    for (path, at) in [("f", 44), ("a", 44), ("c/big", 56)] {
        forge(&mut device, inodes[path], |data| data[at] ^= 64);
    }
    let (mut fs, done) = repaired(device);
    assert_eq!(done.matches("names").count(), 3, "{done}");
    have(&mut fs, &[("f", "f"), ("c/also", "f"), ("a/f", "a/f"), ("c/big", "c/big"), AB[0], AB[1]]);
    assert_eq!(fs.inode(inodes["f"]).unwrap().links, 2);
}

#[test]
fn files_whose_directory_has_lost_its_names_are_in_lost_and_found() {
    let (mut device, inodes) = planted();
    let block = owned(&mut device, b"DHDB", inodes["a"]);
    smash(&mut device, block);
    let (mut fs, done) = repaired(device);
    assert!(done.contains("its names are lost"), "{done}");
    let (file, directory) = (inodes["a/f"], inodes["a/b"]);
    have(&mut fs, &[("f", "f"), ("c/also", "f"), (&format!("lost+found/#{file}"), "a/f")]);
    have(&mut fs, &[(&format!("lost+found/#{directory}/g"), "a/b/g")]);
    assert_eq!(fs.list(inodes["a"]).unwrap().len(), 0);
}

#[test]
fn a_directory_is_made_anew_from_its_names() {
    for lost in ["a", "/"] {
        let (mut device, inodes) = planted();
        smash(&mut device, inodes[lost]);
        let (mut fs, done) = repaired(device);
        assert!(done.contains("made anew"), "{done}");
        have(
            &mut fs,
            &[("f", "f"), ("c/also", "f"), ("a/f", "a/f"), ("c/big", "c/big"), AB[0], AB[1]],
        );
    }
}

#[test]
fn a_damaged_file_goes_and_a_damaged_list_is_a_hole() {
    let (mut device, inodes) = planted();
    smash(&mut device, inodes["a/f"]);
    let list = owned(&mut device, b"DHIB", inodes["c/big"]);
    smash(&mut device, list);
    let (mut fs, done) = repaired(device);
    assert!(done.contains("has no inode") && done.contains("damaged list"), "{done}");
    assert!(find(&mut fs, "a/f").is_err());
    have(&mut fs, &[("f", "f"), ("c/big", "c/big"), AB[0], AB[1]]);
    assert_eq!(fs.read(inodes["c/big"], 370 * 4096, 10).unwrap(), [0; 3]);
}

#[test]
fn what_points_elsewhere_is_cut() {
    let (mut device, inodes) = planted();
    let slots_at = 4096 - 8 * dhisfs::format::inode::slots(4096);
    let slot = |data: &[u8], i: usize| {
        u64::from_le_bytes(data[slots_at + 8 * i..][..8].try_into().unwrap())
    };
    let other = slot(&block_of(&mut device, inodes["a/b/g"]), 0);
    // A block of another file, and one that nobody has.
    for (path, block) in [("a/f", other), ("a/b/f", 2999)] {
        assert!(slot(&block_of(&mut device, inodes[path]), 1) > 0, "{path} has a second block");
        forge(&mut device, inodes[path], |data| {
            data[slots_at + 8..][..8].copy_from_slice(&block.to_le_bytes());
        });
    }
    let (mut fs, done) = repaired(device);
    assert!(done.contains("no room on the device"), "{done}");
    assert!(done.contains("used for something else"), "{done}");
    // Of two files with the same block one keeps it; which of them was right nobody knows.
    have(&mut fs, &[("f", "f"), ("c/also", "f"), ("c/big", "c/big")]);
}

#[test]
fn what_the_device_has_too_much_or_too_little_is_told() {
    let (mut device, inodes) = planted();
    // Written and never allocated; allocated and not used; a pointer that is gone; one that should
    // not be there.
    device.write(&[Write { block: 2500, data: &[1; 4096] }]).unwrap();
    let wanted = [Allocation { near: None, attributes: Attributes::NONE }];
    let block = device.allocate(&wanted).pop().unwrap().unwrap();
    let changes = [
        PointerChange::create(inodes["c"], block),
        PointerChange::delete(owned(&mut device, b"DHDB", inodes["c"]), inodes["f"]),
    ];
    assert!(device.change_pointers(&changes).iter().all(Result::is_ok));
    let mut fs = FileSystem::open(device, MountOptions::default()).unwrap();
    assert_eq!(fs.check().unwrap().problems.len(), 1, "one block too many, and as many pointers");
    let repaired = fs.repair().unwrap();
    assert!(repaired.done.iter().any(|text| text.contains("did not know 1")), "{repaired:?}");
    assert!(repaired.done.iter().any(|text| text.contains("used for nothing")), "{repaired:?}");
    have(&mut fs, &[("f", "f"), ("c/also", "f")]);
    // That one pointer too many cannot be found: the device does not tell which there are.
    assert!(
        repaired.left.problems.iter().all(|it| it.contains("pointers") || it.contains("blocks"))
    );
}

/// Any blocks with anything in them: what is left after a repair is told, and nothing is lost by a
/// second one.
#[test]
fn forged_blocks_are_mended() {
    let device = used();
    let metadata: Vec<u64> = {
        let mut copy = device.after_power_cut(0, &mut |_| 0);
        (1..3000).filter(|block| block_of(&mut copy, *block).starts_with(b"DH")).collect()
    };
    let mut random = Random::new(78);
    let (mut all, mut clean) = (0, 0);
    for _ in 0..400 {
        let mut device = device.after_power_cut(0, &mut |_| 0);
        for _ in 0..1 + random.below(3) {
            let block = metadata[random.below(metadata.len())];
            match random.below(3) {
                0 => smash(&mut device, block),
                _ => forge(&mut device, block, |data| {
                    let span = [128, 4064][random.below(2)];
                    let at = 24 + random.below(span);
                    data[at] = random.below(256) as u8;
                }),
            }
        }
        let Ok(mut fs) = FileSystem::open(device, MountOptions::default()) else { continue };
        let Ok(repaired) = fs.repair() else { continue };
        all += 1;
        clean += usize::from(repaired.left.problems.is_empty());
        let fs = fs.unmount().unwrap();
        FileSystem::mount(fs, MountOptions::default()).unwrap();
    }
    assert!(all > 200 && clean * 100 >= all * 90, "{clean} of {all}");
}
