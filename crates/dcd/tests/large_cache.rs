//! What looks at a cache-disk of 1 TiB takes memory for what is dirty there, and neither for each
//! segment nor for the text that it prints; and reads nothing where nothing was ever written.

mod common;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use common::Folder;
use dcd_engine::create::{CreateOptions, create};
use dcd_engine::format::checkpoint::{Checkpoint, LiveSlot};
use dcd_engine::format::checksum::crc32c;
use dcd_engine::format::geometry::SUPERBLOCK_OFFSETS;
use dcd_engine::format::superblock::CacheState;
use dcd_engine::units::{FragmentMask, Line, SegmentIndex};
use dcd_engine::{DataDiskInfo, Geometry, Superblock, Uuid};

const CACHE_BYTES: u64 = 1 << 40;
const LINES: u64 = 200_000;
/// Of addresses, with the program itself.
const MEMORY_KIB: u64 = 160 << 10;

/// A cache that was closed with lines that lie apart from each other, all of zeroes.
fn write_cache(path: &Path) {
    let geometry = Geometry::fit(CACHE_BYTES, 4 << 20).unwrap();
    let data_disk =
        DataDiskInfo { blocks: 1 << 31, logical_block_size: 512, physical_sector_size: 4096 };
    let new = create(CreateOptions {
        uuid: Uuid([7; 16]),
        geometry,
        data_disk,
        data_disk_serial: String::new(),
        created_unix_seconds: 0,
        data_offset_bytes: 0,
        has_end_mark: false,
        has_legs: false,
        volume: None,
    });
    let decoded = |offset| {
        let (_, bytes) = new.iter().find(|(at, _)| *at == offset).unwrap();
        bytes.bytes()
    };
    let superblock = Superblock::decode(decoded(SUPERBLOCK_OFFSETS[1])).unwrap();
    let closed = Superblock { state: CacheState::Closed, generation: 2, ..superblock.clone() };
    let checkpoint = decoded(geometry.checkpoint_offsets[0]);
    let checkpoint = Checkpoint::decode(checkpoint, superblock.uuid, &geometry).unwrap();
    let checksum = crc32c(&[0; 4096]);
    let live = |number: u64| LiveSlot {
        line: Line(2 * number),
        mask: FragmentMask(0xff),
        slot: geometry.slot(SegmentIndex(5000 + number as u32 / 1000), 1 + number as u32 % 1000),
        checksum,
    };
    let live = (0..LINES).map(live).collect();
    let checkpoint = Checkpoint { generation: 2, epoch: 2, live, ..checkpoint };

    let file = File::create(path).unwrap();
    file.set_len(CACHE_BYTES).unwrap();
    file.write_all_at(checkpoint.encode().bytes(), geometry.checkpoint_offsets[0]).unwrap();
    for offset in SUPERBLOCK_OFFSETS {
        file.write_all_at(closed.encode().bytes(), offset).unwrap();
    }
}

/// The output of `dcd` in little memory.
fn dcd(folder: &Folder, line: &str) -> String {
    let limited = format!("ulimit -v {MEMORY_KIB}; exec \"$0\" {line} --cache-disk c");
    let output = Command::new("sh")
        .args(["-c", &limited, env!("CARGO_BIN_EXE_dcd")])
        .current_dir(folder.path(""))
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let problem = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {:?}: {problem}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn little_memory_is_enough_for_a_large_cache_disk() {
    let folder = Folder::new();
    write_cache(&folder.path("c"));
    let checked: serde_json::Value = serde_json::from_str(&dcd(&folder, "check --json")).unwrap();
    assert_eq!(checked["healthy"], true, "{checked}");
    assert_eq!(
        (&checked["slots_verified"], &checked["dirty_lines"]),
        (&LINES.into(), &LINES.into())
    );

    let dirty = dcd(&folder, "inspect dirty --json");
    let dirty: serde_json::Value = serde_json::from_str(&dirty).unwrap();
    assert_eq!(dirty["ranges"].as_array().unwrap().len() as u64, LINES);
    assert_eq!(dcd(&folder, "inspect dirty").lines().count() as u64, LINES + 1);

    let segments = u64::from(Geometry::fit(CACHE_BYTES, 4 << 20).unwrap().segments);
    let table = dcd(&folder, "inspect segments");
    assert_eq!(table.lines().count() as u64, segments + 2);
    let full = table.lines().filter(|line| line.split_whitespace().any(|word| word == "1000"));
    assert!(full.count() as u64 >= LINES / 1000);
    let json = dcd(&folder, "inspect segments --json");
    assert_eq!(json.lines().filter(|line| line.contains("\"segment\":")).count() as u64, segments);
    assert_eq!(dcd(&folder, "inspect records").lines().count(), 1);
}
