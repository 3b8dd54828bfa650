//! What stands in the place of both superblock copies while a cache is made: what was on the disk
//! has been given up, up to here. A making that was interrupted can then be begun again without
//! asking once more.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::checksum::crc32c_with_hole;
use super::layout::{FieldLayout, layout_of};
use super::preamble::{CHECKSUM_OFFSET, Preamble};
use super::superblock::SUPERBLOCK_SIZE;
use crate::buffer::Buffer;
use crate::error::FormatError;

/// "dcdMAKES" in ASCII, read as a little-endian number.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"dcdMAKES");
/// The version that this program writes and reads.
pub(crate) const VERSION: u32 = 1;
const PREAMBLE: Preamble =
    Preamble { what: "the mark of a creation", magic: MAGIC, version: VERSION };

/// The mark in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreationMark {
    /// Bytes from the beginning of the disk that the new cache was to take.
    pub end: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct CreationMarkOnDisk {
    pub(crate) magic: U64,
    pub(crate) version: U32,
    pub(crate) checksum: U32,
    pub(crate) end: U64,
    pub(crate) unused: [u8; 4072],
}

const _: () = assert!(size_of::<CreationMarkOnDisk>() == SUPERBLOCK_SIZE);
const _: () = assert!(std::mem::offset_of!(CreationMarkOnDisk, checksum) == CHECKSUM_OFFSET);

/// Every field, in order: what `docs/disk-format.md` says in words.
pub fn layout() -> Vec<FieldLayout> {
    layout_of!(CreationMarkOnDisk { magic, version, checksum, end, unused })
}

impl CreationMark {
    /// Its bytes.
    pub fn encode(&self) -> Buffer {
        let mut disk = CreationMarkOnDisk::new_zeroed();
        disk.magic = MAGIC.into();
        disk.version = VERSION.into();
        disk.end = self.end.into();
        disk.checksum = crc32c_with_hole(disk.as_bytes(), CHECKSUM_OFFSET).into();
        Buffer::copy_of(disk.as_bytes())
    }

    /// Reads one. Every byte may be anything.
    pub fn decode(bytes: &[u8]) -> Result<CreationMark, FormatError> {
        let (disk, _) = PREAMBLE.verify::<CreationMarkOnDisk>(bytes)?;
        Ok(CreationMark { end: disk.end.get() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Superblock;

    #[test]
    fn comes_back_and_is_no_superblock() {
        let mark = CreationMark { end: 5 << 30 };
        let bytes = mark.encode();
        assert_eq!(CreationMark::decode(bytes.bytes()), Ok(mark));
        assert!(matches!(Superblock::decode(bytes.bytes()), Err(FormatError::Magic { .. })));
        let mut torn = bytes;
        torn.bytes_mut()[3000] = 1;
        assert!(matches!(CreationMark::decode(torn.bytes()), Err(FormatError::Checksum { .. })));
        assert!(matches!(CreationMark::decode(&[0; 4096]), Err(FormatError::Magic { .. })));
        assert!(matches!(CreationMark::decode(&[]), Err(FormatError::Short { .. })));
    }
}
