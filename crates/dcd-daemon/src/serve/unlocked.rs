//! What disks say of themselves, read without a lock: before it is known which are meant, or while
//! some are not there. Whether they belong together is looked at when they are open.

use std::path::Path;

use dcd_engine::Uuid;
use dcd_engine::format::geometry::SUPERBLOCK_OFFSETS;
use dcd_engine::format::superblock::{SUPERBLOCK_SIZE, Superblock};
use dcd_engine::volume::format::header::{VOLUME_HEADER_BYTES, VolumeHeader};
use dcd_engine::volume::format::label::{LABEL_OFFSETS, MEMBER_LABEL_BYTES, MemberLabel};

use crate::device::shares::DiskReader;

/// Both copies of what a disk says of itself; one that cannot be read stays empty.
pub(super) fn copies<const BYTES: usize>(
    disk: &Path,
    offsets: [u64; 2],
) -> Option<[[u8; BYTES]; 2]> {
    let disk = DiskReader::open(disk).ok()?;
    let mut copies = [[0; BYTES]; 2];
    for (copy, offset) in copies.iter_mut().zip(offsets) {
        let _ = disk.read_exact_at(copy, offset);
    }
    Some(copies)
}

/// The newer superblock of a cache-disk or a share of one.
pub(super) fn superblock_of(cache_disk: &Path) -> Option<Superblock> {
    let [first, second] = copies::<SUPERBLOCK_SIZE>(cache_disk, SUPERBLOCK_OFFSETS)?;
    Superblock::newest(&first, &second).ok()
}

/// Of which volume a disk is a member, and which.
pub(super) fn member_label_of(disk: &Path) -> Option<MemberLabel> {
    let [first, second] = copies::<MEMBER_LABEL_BYTES>(disk, LABEL_OFFSETS)?;
    MemberLabel::newest(&first, &second)
}

/// Which volume a cache-disk has, and of how many members.
pub(super) fn volume_of(cache_disk: &Path) -> Option<(Uuid, usize)> {
    let superblock = superblock_of(cache_disk).filter(|found| found.volume_bytes > 0)?;
    let first = superblock.volume_offset();
    let offsets = [first, first + VOLUME_HEADER_BYTES as u64];
    let headers = copies::<VOLUME_HEADER_BYTES>(cache_disk, offsets)?;
    let header = headers.iter().find_map(|copy| VolumeHeader::decode(copy).ok())?;
    (header.uuid == superblock.uuid).then_some((header.uuid, header.config.members))
}
