//! What a cache-disk says of its volume: both copies of the header, and the tables.

use dcd_engine::error::VolumeOpenError;
use dcd_engine::volume::Volume;
use dcd_engine::volume::format::area::VolumeArea;
use dcd_engine::volume::format::header::{VOLUME_HEADER_BYTES, VolumeHeader};
use dcd_engine::volume::format::root::{ROOT_BYTES, Root};
use dcd_engine::volume::status::VolumeStatus;
use dcd_engine::{FormatError, IoError, Superblock};

use super::{CacheImage, ImageError};

/// Both copies with their byte addresses; none without a volume.
pub fn headers(
    image: &CacheImage,
    superblock: &Superblock,
) -> Vec<(u64, Result<VolumeHeader, ImageError>)> {
    if superblock.volume_bytes == 0 {
        return Vec::new();
    }
    let copies = (0..2).map(|copy| superblock.volume_offset() + copy * VOLUME_HEADER_BYTES as u64);
    copies.map(|offset| (offset, header(image, superblock, offset))).collect()
}

fn header(
    image: &CacheImage,
    superblock: &Superblock,
    offset: u64,
) -> Result<VolumeHeader, ImageError> {
    let header = VolumeHeader::decode(image.read(offset, VOLUME_HEADER_BYTES)?.bytes())?;
    if header.uuid != superblock.uuid {
        let (what, expected, found) = ("the header of the volume", superblock.uuid, header.uuid);
        return Err(FormatError::Uuid { what, expected, found }.into());
    }
    Ok(header)
}

/// What the tables of a volume say, with what its journal says of them; `progress` is told how many
/// bytes were read of how many.
pub fn tables(
    image: &CacheImage,
    superblock: &Superblock,
    header: VolumeHeader,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<VolumeStatus, VolumeOpenError> {
    let area = VolumeArea::of(&header, superblock.volume_offset());
    if area.is_none_or(|area| area.bytes() != superblock.volume_bytes) {
        return Err(VolumeOpenError::Header);
    }
    let mut done = 0;
    Volume::examine(header, superblock.volume_offset(), |offset, buffer| {
        let length = buffer.len();
        *buffer = image.read(offset, length).map_err(|_| IoError::Failed)?;
        done += length as u64;
        progress(done, superblock.volume_bytes);
        if buffer.len() == length { Ok(()) } else { Err(IoError::Failed) }
    })
}

/// Where things are in its area, as the newest root has it: it may have more room for pointers than
/// the header says.
pub fn area(
    image: &CacheImage,
    superblock: &Superblock,
    header: &VolumeHeader,
) -> Option<VolumeArea> {
    let area = VolumeArea::of(header, superblock.volume_offset())?;
    let roots = (0..2).filter_map(|place| {
        let bytes = image.read(area.root_offset(place), ROOT_BYTES).ok()?;
        Root::decode(bytes.bytes(), header.uuid).ok()
    });
    match roots.max_by_key(|root| root.checkpoint).map_or(0, |root| root.pointer_pages_added) {
        0 => Some(area),
        added => area.with_more_pointers(added),
    }
}
