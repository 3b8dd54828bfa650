//! The content of a new cache-disk, for disks that are not real.

use dcd_engine::create::{CreateOptions, create};
use dcd_engine::{DataDiskInfo, Geometry, Superblock, Uuid};

/// Writes a new cache of that geometry by `write` (byte address, bytes), and returns its
/// superblock.
///
/// # Panics
/// If the engine cannot read what it has written.
pub fn write_new_cache(
    geometry: Geometry,
    data_disk: DataDiskInfo,
    mut write: impl FnMut(u64, &[u8]),
) -> Superblock {
    let mut superblock = None;
    for (offset, bytes) in create(CreateOptions {
        uuid: Uuid([1; 16]),
        geometry,
        data_disk,
        data_disk_serial: String::new(),
        created_unix_seconds: 0,
        data_offset_bytes: 0,
        has_end_mark: false,
        has_legs: false,
        volume: None,
    }) {
        write(offset, bytes.bytes());
        superblock = Superblock::decode(bytes.bytes()).ok().or(superblock);
    }
    superblock.expect("a new cache has superblocks")
}
