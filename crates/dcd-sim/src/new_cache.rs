//! The content of a new cache-disk, for disks that are not real.

use dcd_engine::create::{CreateOptions, create};
use dcd_engine::volume::format::header::VolumeHeader;
use dcd_engine::{DataDiskInfo, Geometry, Superblock, Uuid};

/// The name of each of them: the header of a volume has it, too.
pub const NEW_UUID: Uuid = Uuid([1; 16]);

/// Writes a new cache of that geometry, and the tables of a volume, by `write` (byte address,
/// bytes), and returns its superblock.
///
/// # Panics
/// If the engine cannot read what it has written.
pub fn write_new_cache(
    geometry: Geometry,
    data_disk: DataDiskInfo,
    volume: Option<VolumeHeader>,
    mut write: impl FnMut(u64, &[u8]),
) -> Superblock {
    let mut superblock = None;
    for (offset, bytes) in create(CreateOptions {
        uuid: NEW_UUID,
        geometry,
        data_disk,
        data_disk_serial: String::new(),
        created_unix_seconds: 0,
        data_offset_bytes: 0,
        has_end_mark: false,
        has_legs: false,
        volume,
    }) {
        write(offset, bytes.bytes());
        superblock = Superblock::decode(bytes.bytes()).ok().or(superblock);
    }
    superblock.expect("a new cache has superblocks")
}
