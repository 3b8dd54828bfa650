//! What a cache-disk says of its volume: both copies of the header.

use dcd_engine::volume::format::header::{VOLUME_HEADER_BYTES, VolumeHeader};
use dcd_engine::{FormatError, Superblock};

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
