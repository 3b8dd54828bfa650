//! The content of a page of the map: for each page that it names, the copy that counts.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::page::PAGE_CONTENT_BYTES;
use crate::format::COUNTER_END;
use crate::format::layout::{FieldLayout, layout_of};

/// Copies that a page of the map names.
pub const COPIES_PER_PAGE: usize = PAGE_CONTENT_BYTES / size_of::<CopyOnDisk>();

/// The copy of a page that counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageCopy {
    /// The checkpoint that it was written for.
    pub checkpoint: u64,
    /// It is in the second place.
    pub second: bool,
    /// A page of checksums that say of a line that it is lost: read at each start.
    pub has_lost: bool,
    /// The page's own checksum.
    pub checksum: u32,
}

/// 12 bytes, all of them 0 for a page that was never written.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct CopyOnDisk {
    /// The checkpoint times four, and flags.
    pub(crate) copy: U64,
    pub(crate) checksum: U32,
}

const _: () = assert!(COPIES_PER_PAGE * size_of::<CopyOnDisk>() == PAGE_CONTENT_BYTES);

/// Every field of an entry of the map, in order: what `docs/disk-format.md` says in words.
pub fn layout() -> Vec<FieldLayout> {
    layout_of!(CopyOnDisk { copy, checksum })
}

const SECOND: u64 = 1;
const HAS_LOST: u64 = 2;
const CHECKPOINT_SHIFT: u32 = 2;

/// A copy as the disk has it: its first number, and its checksum.
pub(crate) fn pack(copy: Option<PageCopy>) -> (u64, u32) {
    let Some(copy) = copy else { return (0, 0) };
    assert!((1..COUNTER_END).contains(&copy.checkpoint), "{copy:?}");
    let second = if copy.second { SECOND } else { 0 };
    let has_lost = if copy.has_lost { HAS_LOST } else { 0 };
    (copy.checkpoint << CHECKPOINT_SHIFT | has_lost | second, copy.checksum)
}

/// The other way round.
pub(crate) fn unpack(copy: u64, checksum: u32) -> Option<PageCopy> {
    let checkpoint = copy >> CHECKPOINT_SHIFT;
    let (second, has_lost) = (copy & SECOND != 0, copy & HAS_LOST != 0);
    (checkpoint > 0).then_some(PageCopy { checkpoint, second, has_lost, checksum })
}

/// The content of a page that names these.
///
/// # Panics
/// If they are more than [`COPIES_PER_PAGE`].
pub fn encode(copies: impl Iterator<Item = Option<PageCopy>>) -> Vec<u8> {
    let on_disk = copies.map(|copy| {
        let (copy, checksum) = pack(copy);
        CopyOnDisk { copy: copy.into(), checksum: checksum.into() }
    });
    let on_disk: Vec<CopyOnDisk> = on_disk.collect();
    assert!(on_disk.len() <= COPIES_PER_PAGE);
    on_disk.as_bytes().to_vec()
}

/// What it names, in order. Every byte may be anything.
pub fn decode(content: &[u8; PAGE_CONTENT_BYTES]) -> impl Iterator<Item = Option<PageCopy>> + '_ {
    let (copies, _) = content.as_chunks::<{ size_of::<CopyOnDisk>() }>();
    copies.iter().map(|bytes| {
        let on_disk: CopyOnDisk = zerocopy::transmute!(*bytes);
        unpack(on_disk.copy.get(), on_disk.checksum.get())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_back() {
        let copy = |checkpoint, second| {
            let (has_lost, checksum) = (checkpoint > 1, 0x8070_6050);
            Some(PageCopy { checkpoint, second, has_lost, checksum })
        };
        let copies = [copy(1, false), None, copy(1, true), copy(COUNTER_END - 1, true)];
        let mut content = [0; PAGE_CONTENT_BYTES];
        let bytes = encode(copies.into_iter());
        content[..bytes.len()].copy_from_slice(&bytes);
        let found: Vec<_> = decode(&content).collect();
        assert_eq!(found.len(), COPIES_PER_PAGE);
        assert_eq!(found[..4], copies);
        assert!(found[4..].iter().all(Option::is_none));
    }
}
