//! Pages: the tables of a volume, and the map of these pages, in pieces of 4,032 bytes. A page has
//! two places, written in turn.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::page_map::PageCopy;
use crate::buffer::Buffer;
use crate::error::FormatError;
use crate::format::checksum::crc32c_with_hole;
use crate::format::layout::{FieldLayout, layout_of};
use crate::format::preamble::{CHECKSUM_OFFSET, Preamble};
use crate::units::Uuid;

/// "dcdVPAGE" in ASCII, read as a little-endian number.
pub const MAGIC: u64 = u64::from_le_bytes(*b"dcdVPAGE");
/// The version that this program writes and reads.
pub const VERSION: u32 = 1;
/// Size of a page on the disk.
pub const PAGE_BYTES: usize = 4096;
/// Of it, for the table.
pub const PAGE_CONTENT_BYTES: usize = 4032;
const WHAT: &str = "a page of the volume";
const PREAMBLE: Preamble = Preamble { what: WHAT, magic: MAGIC, version: VERSION };

/// A page, numbered through all tables.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PageIndex(pub u32);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct PageOnDisk {
    pub(crate) magic: U64,
    pub(crate) version: U32,
    pub(crate) checksum: U32,
    pub(crate) uuid: [u8; 16],
    pub(crate) checkpoint: U64,
    pub(crate) page: U32,
    pub(crate) unused: [u8; 20],
    pub(crate) content: [u8; PAGE_CONTENT_BYTES],
}

const _: () = assert!(size_of::<PageOnDisk>() == PAGE_BYTES);
const _: () = assert!(std::mem::offset_of!(PageOnDisk, checksum) == CHECKSUM_OFFSET);

/// Every field of a page, in order: what `docs/disk-format.md` says in words.
pub fn layout() -> Vec<FieldLayout> {
    layout_of!(PageOnDisk { magic, version, checksum, uuid, checkpoint, page, unused, content })
}

/// The bytes of a page that belongs to this checkpoint.
///
/// # Panics
/// If `content` is too long.
pub fn encode(uuid: Uuid, page: PageIndex, checkpoint: u64, content: &[u8]) -> Buffer {
    let mut disk = PageOnDisk::new_zeroed();
    disk.magic = MAGIC.into();
    disk.version = VERSION.into();
    disk.uuid = uuid.0;
    disk.checkpoint = checkpoint.into();
    disk.page = page.0.into();
    disk.content[..content.len()].copy_from_slice(content);
    disk.checksum = crc32c_with_hole(disk.as_bytes(), CHECKSUM_OFFSET).into();
    Buffer::copy_of(disk.as_bytes())
}

/// The checksum of a page that [`encode`] has made.
///
/// # Panics
/// If it is shorter than that.
pub fn checksum_of(page: &[u8]) -> u32 {
    let (checksum, _) = U32::read_from_prefix(&page[CHECKSUM_OFFSET..]).expect("a page");
    checksum.get()
}

/// The content of the copy that counts. Every byte may be anything.
pub fn decode_copy(
    bytes: &[u8],
    uuid: Uuid,
    page: PageIndex,
    copy: PageCopy,
) -> Result<&[u8; PAGE_CONTENT_BYTES], FormatError> {
    let (checkpoint, content) = decode(bytes, uuid, page)?;
    let (expected, found) = (copy.checksum, checksum_of(bytes));
    if found != expected {
        return Err(FormatError::Checksum { what: WHAT, expected, found });
    }
    if checkpoint != copy.checkpoint {
        return Err(FormatError::Field { what: WHAT, field: "checkpoint", found: checkpoint });
    }
    Ok(content)
}

/// The checkpoint that a page belongs to, and its content. Every byte may be anything.
pub fn decode(
    bytes: &[u8],
    uuid: Uuid,
    page: PageIndex,
) -> Result<(u64, &[u8; PAGE_CONTENT_BYTES]), FormatError> {
    let (disk, _) = PREAMBLE.verify::<PageOnDisk>(bytes)?;
    if disk.uuid != uuid.0 {
        return Err(FormatError::Uuid { what: WHAT, expected: uuid, found: Uuid(disk.uuid) });
    }
    if disk.page.get() != page.0 {
        let found = disk.page.get().into();
        return Err(FormatError::Field { what: WHAT, field: "page", found });
    }
    Ok((disk.checkpoint.get(), &disk.content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_back() {
        let uuid = Uuid([7; 16]);
        let page = encode(uuid, PageIndex(5), 9, &[3; 100]);
        let (checkpoint, content) = decode(page.bytes(), uuid, PageIndex(5)).unwrap();
        assert_eq!((checkpoint, content[99], content[100]), (9, 3, 0));
        assert!(decode(page.bytes(), uuid, PageIndex(6)).is_err());
        assert!(decode(page.bytes(), Uuid([8; 16]), PageIndex(5)).is_err());
        let checksum = checksum_of(page.bytes());
        let copy = PageCopy { checkpoint: 9, second: true, has_lost: false, checksum };
        let of = |copy| decode_copy(page.bytes(), uuid, PageIndex(5), copy);
        assert_eq!(of(copy), Ok(content));
        assert!(of(PageCopy { checkpoint: 8, ..copy }).is_err());
        assert!(of(PageCopy { checksum: !checksum, ..copy }).is_err());
    }
}
