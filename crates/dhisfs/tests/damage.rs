//! Blocks with anything in them, with checksums that are right: a mount, a check and work on it end in errors or not at
//! all, and never in a panic or a loop without end.

mod common;

use common::*;
use dcd_client::{BlockDevice, MemoryDevice, Read, Write};
use dcd_engine::format::checksum::crc32c_with_hole;
use dhisfs::{FileSystem, MountOptions};

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
