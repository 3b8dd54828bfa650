//! The medium of the tier of non-volatile memory ([`crate::nvram::durable`]): who it is, the commit
//! word, and slots of one block, each with two copies of its header.
//!
//! ```text
//! 0         head, copy 0            4 KiB     head, copy 1
//! 8 KiB     commit word, copy 0     12 KiB    commit word, copy 1
//! 64 KiB    chunks: headers of 128 slots (4 KiB) | the slots (64 KiB) | the headers again
//! ```
//!
//! A slot counts when its sequence is not above the commit word. Everything is read with the id of
//! the medium in its checksum, so what an earlier life of the same memory left there is nothing.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::COUNTER_END;
use super::checksum::crc32c_with_hole;
use super::layout::{FieldLayout, layout_of};
use super::preamble::{CHECKSUM_OFFSET, Preamble};
use crate::buffer::Buffer;
use crate::error::FormatError;
use crate::units::{BLOCK_SIZE, Uuid};

/// "dcdNVRAM" in ASCII, read as a little-endian number.
pub const MAGIC: u64 = u64::from_le_bytes(*b"dcdNVRAM");
/// The version that this program writes and reads.
pub const VERSION: u32 = 1;
/// Byte addresses of the two copies of the head.
pub const NVRAM_HEAD_OFFSETS: [u64; 2] = [0, 4 << 10];
/// Size of a copy of the head.
pub const NVRAM_HEAD_BYTES: usize = 512;
/// Byte addresses of the two copies of the commit word.
pub const COMMIT_OFFSETS: [u64; 2] = [8 << 10, 12 << 10];
/// Byte address of the first chunk.
pub const CHUNKS_OFFSET: u64 = 64 << 10;
/// Slots of a chunk.
pub const CHUNK_SLOTS: u32 = 128;
/// Size of a copy of the header of a slot.
pub const SLOT_HEADER_BYTES: usize = 32;
const HEADERS_BYTES: u64 = CHUNK_SLOTS as u64 * SLOT_HEADER_BYTES as u64;
/// Size of a chunk.
pub const CHUNK_BYTES: u64 = 2 * HEADERS_BYTES + CHUNK_SLOTS as u64 * BLOCK_SIZE;
/// Smallest medium.
pub const NVRAM_BYTES_MIN: u64 = CHUNKS_OFFSET + CHUNK_BYTES;
/// Largest medium: 64 GiB, so that slots are numbered with 32 bits and a start takes seconds.
pub const NVRAM_BYTES_MAX: u64 = 64 << 30;
/// Sequences stay below this: they share their word with a checksum.
pub const SEQUENCE_END: u64 = 1 << 48;
/// A commit word with this sequence or a later one is none: so many writes nobody has done, and
/// whoever goes on from it has room for more than he can do.
pub const COMMITTED_END: u64 = SEQUENCE_END - (1 << 40);
const WHAT: &str = "the head of the memory";
const PREAMBLE: Preamble = Preamble { what: WHAT, magic: MAGIC, version: VERSION };

/// What a superblock and a medium know each other by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NvramIdentity {
    /// Random, not 0; another one for each life of a medium, which begins empty.
    pub id: Uuid,
    /// Counts the starts with it.
    pub generation: u64,
}

/// The head in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NvramHead {
    /// The cache that it belongs to.
    pub cache: Uuid,
    /// Which medium, and how often it was started with.
    pub identity: NvramIdentity,
    /// How many slots there are.
    pub slots: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct NvramHeadOnDisk {
    pub(crate) magic: U64,
    pub(crate) version: U32,
    pub(crate) checksum: U32,
    pub(crate) cache: [u8; 16],
    pub(crate) id: [u8; 16],
    pub(crate) generation: U64,
    pub(crate) slots: U32,
    pub(crate) slot_bytes: U32,
    pub(crate) unused: [u8; 448],
}

const _: () = assert!(size_of::<NvramHeadOnDisk>() == NVRAM_HEAD_BYTES);
const _: () = assert!(std::mem::offset_of!(NvramHeadOnDisk, checksum) == CHECKSUM_OFFSET);

/// Every field of a head, in order: what `docs/disk-format.md` says in words.
pub fn layout() -> Vec<FieldLayout> {
    layout_of!(NvramHeadOnDisk {
        magic,
        version,
        checksum,
        cache,
        id,
        generation,
        slots,
        slot_bytes,
        unused,
    })
}

impl NvramHead {
    /// The bytes of a copy.
    pub fn encode(&self) -> Buffer {
        let mut disk = NvramHeadOnDisk::new_zeroed();
        disk.magic = MAGIC.into();
        disk.version = VERSION.into();
        disk.cache = self.cache.0;
        disk.id = self.identity.id.0;
        disk.generation = self.identity.generation.into();
        disk.slots = self.slots.into();
        disk.slot_bytes = (BLOCK_SIZE as u32).into();
        disk.checksum = crc32c_with_hole(disk.as_bytes(), CHECKSUM_OFFSET).into();
        Buffer::copy_of(disk.as_bytes())
    }

    /// Reads a copy. Every byte may be anything.
    ///
    /// # Errors
    /// If it is not a head.
    pub fn decode(bytes: &[u8]) -> Result<NvramHead, FormatError> {
        let (disk, _) = PREAMBLE.verify::<NvramHeadOnDisk>(bytes)?;
        let field = |field, found| FormatError::Field { what: WHAT, field, found };
        let head = NvramHead {
            cache: Uuid(disk.cache),
            identity: NvramIdentity { id: Uuid(disk.id), generation: disk.generation.get() },
            slots: disk.slots.get(),
        };
        if head.identity.id == Uuid([0; 16]) {
            return Err(field("id", 0));
        }
        if head.identity.generation >= COUNTER_END {
            return Err(field("generation", head.identity.generation));
        }
        if u64::from(disk.slot_bytes.get()) != BLOCK_SIZE {
            return Err(field("slot_bytes", disk.slot_bytes.get().into()));
        }
        let is_size = head.slots > 0
            && head.slots.is_multiple_of(CHUNK_SLOTS)
            && NvramLayout { slots: head.slots }.bytes() <= NVRAM_BYTES_MAX;
        if !is_size {
            return Err(field("slots", head.slots.into()));
        }
        Ok(head)
    }

    /// Reads a copy from which an end in order, or a start that makes the medium empty, has taken
    /// the magic number.
    pub fn decode_wiped(bytes: &[u8]) -> Option<NvramHead> {
        let (magic, rest) = bytes.split_at_checked(8)?;
        if magic != [0; 8] {
            return None;
        }
        let whole = [&MAGIC.to_le_bytes()[..], rest].concat();
        NvramHead::decode(&whole).ok()
    }

    /// The newer of the two copies that is good.
    ///
    /// # Errors
    /// What is wrong with the first, if none is.
    pub fn newest(copies: [&[u8]; 2]) -> Result<NvramHead, FormatError> {
        let [first, second] = copies.map(NvramHead::decode);
        match (first, second) {
            (Ok(first), Ok(second)) if second.identity.generation > first.identity.generation => {
                Ok(second)
            }
            (Ok(first), _) => Ok(first),
            (Err(_), Ok(second)) => Ok(second),
            (Err(error), Err(_)) => Err(error),
        }
    }
}

/// Where everything is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NvramLayout {
    /// How many slots there are.
    pub slots: u32,
}

impl NvramLayout {
    /// As many chunks as fit on so many bytes; `None`: too few or too many.
    pub fn of_size(bytes: u64) -> Option<NvramLayout> {
        if !(NVRAM_BYTES_MIN..=NVRAM_BYTES_MAX).contains(&bytes) {
            return None;
        }
        let chunks = (bytes - CHUNKS_OFFSET) / CHUNK_BYTES;
        Some(NvramLayout { slots: chunks as u32 * CHUNK_SLOTS })
    }

    /// Bytes in use.
    pub fn bytes(self) -> u64 {
        CHUNKS_OFFSET + u64::from(self.slots / CHUNK_SLOTS) * CHUNK_BYTES
    }

    fn chunk(slot: u32) -> usize {
        (CHUNKS_OFFSET + u64::from(slot / CHUNK_SLOTS) * CHUNK_BYTES) as usize
    }

    /// Byte address of a copy of the header of a slot.
    pub fn header_at(slot: u32, copy: usize) -> usize {
        let behind = (HEADERS_BYTES + u64::from(CHUNK_SLOTS) * BLOCK_SIZE) as usize;
        NvramLayout::chunk(slot) + copy * behind + (slot % CHUNK_SLOTS) as usize * SLOT_HEADER_BYTES
    }

    /// Byte address of a slot.
    pub fn slot_at(slot: u32) -> usize {
        let within = u64::from(slot % CHUNK_SLOTS) * BLOCK_SIZE;
        NvramLayout::chunk(slot) + (HEADERS_BYTES + within) as usize
    }
}

/// The commit word for a sequence: one store of 8 bytes.
pub fn commit_word(id: Uuid, sequence: u64) -> u64 {
    assert!(sequence < SEQUENCE_END, "nobody writes so much");
    sequence << 16 | u64::from(commit_checksum(id, sequence))
}

/// The sequence of a commit word, if it is one.
pub fn read_commit_word(id: Uuid, word: u64) -> Option<u64> {
    let sequence = word >> 16;
    let is_good = commit_checksum(id, sequence) == word as u16 && sequence < COMMITTED_END;
    is_good.then_some(sequence)
}

fn commit_checksum(id: Uuid, sequence: u64) -> u16 {
    let mut bytes = [0; 24];
    bytes[..16].copy_from_slice(&id.0);
    bytes[16..].copy_from_slice(&sequence.to_le_bytes());
    super::checksum::crc32c(&bytes) as u16
}

/// What the header of a slot says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotHeader {
    /// Of the request that the block is of; not 0.
    pub sequence: u64,
    /// Which block of the volume.
    pub block: u64,
    /// CRC-32C of the block.
    pub data_checksum: u32,
}

/// What a copy of a header is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotCopy {
    /// Nothing is in the slot.
    Free,
    /// This is.
    Good(SlotHeader),
    /// It cannot be told.
    Bad,
}

impl SlotHeader {
    /// The bytes of a copy, for this slot.
    pub fn encode(&self, id: Uuid, slot: u32) -> [u8; SLOT_HEADER_BYTES] {
        let mut bytes = [0; SLOT_HEADER_BYTES];
        bytes[..8].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.block.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.data_checksum.to_le_bytes());
        let checksum = header_checksum(id, slot, &bytes);
        bytes[20..24].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads a copy. Every byte may be anything; a sequence of 0 says that the slot is free,
    /// whatever follows, so that one store of 8 bytes frees it.
    pub fn decode(id: Uuid, slot: u32, bytes: &[u8; SLOT_HEADER_BYTES]) -> SlotCopy {
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
        let short = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        let header = SlotHeader { sequence: number(0), block: number(8), data_checksum: short(16) };
        if header.sequence == 0 {
            return SlotCopy::Free;
        }
        let is_good = short(20) == header_checksum(id, slot, bytes)
            && header.sequence < SEQUENCE_END
            && header.block < super::superblock::DATA_DISK_BLOCKS_MAX;
        if is_good { SlotCopy::Good(header) } else { SlotCopy::Bad }
    }
}

/// Of what is in front of the checksum, and of where it is.
fn header_checksum(id: Uuid, slot: u32, bytes: &[u8; SLOT_HEADER_BYTES]) -> u32 {
    let mut covered = [0; 40];
    covered[..16].copy_from_slice(&id.0);
    covered[16..20].copy_from_slice(&slot.to_le_bytes());
    covered[20..].copy_from_slice(&bytes[..20]);
    super::checksum::crc32c(&covered)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> NvramHead {
        let identity = NvramIdentity { id: Uuid([9; 16]), generation: 3 };
        NvramHead { cache: Uuid([1; 16]), identity, slots: 1280 }
    }

    #[test]
    fn a_head_is_read_as_it_was_written() {
        let newer =
            NvramHead { identity: NvramIdentity { generation: 4, ..head().identity }, ..head() };
        let (old, new) = (head().encode(), newer.encode());
        assert_eq!(NvramHead::newest([old.bytes(), new.bytes()]), Ok(newer));
        assert_eq!(NvramHead::newest([&[0; 512], old.bytes()]), Ok(head()));
        let mut wiped = head().encode().bytes().to_vec();
        assert_eq!(NvramHead::decode_wiped(&wiped), None);
        wiped[..8].fill(0);
        assert_eq!(NvramHead::decode_wiped(&wiped), Some(head()));
        wiped[20] ^= 1;
        assert_eq!(NvramHead::decode_wiped(&wiped), None);
        assert_eq!(NvramHead::decode_wiped(&[0; 512]), None);
        for broken in [
            NvramHead { slots: 0, ..head() },
            NvramHead { slots: 127, ..head() },
            NvramHead { slots: u32::MAX / 128 * 128, ..head() },
            NvramHead {
                identity: NvramIdentity { generation: 1 << 62, ..head().identity },
                ..head()
            },
            NvramHead { identity: NvramIdentity { id: Uuid([0; 16]), generation: 0 }, ..head() },
        ] {
            let error = NvramHead::decode(broken.encode().bytes());
            assert!(matches!(error, Err(FormatError::Field { .. })), "{broken:?}: {error:?}");
        }
    }

    #[test]
    fn headers_lie_on_both_sides_of_their_slots_and_overlap_with_nothing() {
        let layout = NvramLayout::of_size(1 << 20).unwrap();
        let mut used = vec![(0, CHUNKS_OFFSET as usize)];
        for slot in 0..layout.slots {
            let copies = [0, 1].map(|copy| NvramLayout::header_at(slot, copy));
            used.extend(copies.map(|at| (at, at + SLOT_HEADER_BYTES)));
            used.push((NvramLayout::slot_at(slot), NvramLayout::slot_at(slot) + 512));
        }
        used.sort_unstable();
        assert!(used.windows(2).all(|pair| pair[0].1 == pair[1].0), "without gap or overlap");
        assert_eq!(used.last().unwrap().1 as u64, layout.bytes());
        assert!(layout.bytes() <= 1 << 20 && layout.bytes() + CHUNK_BYTES > 1 << 20);
    }

    #[test]
    fn words_and_headers_are_of_one_medium_and_one_slot() {
        let (id, other) = (Uuid([9; 16]), Uuid([8; 16]));
        assert_eq!(read_commit_word(id, commit_word(id, 77)), Some(77));
        assert_eq!(read_commit_word(other, commit_word(id, 77)), None);
        assert_eq!(read_commit_word(id, commit_word(id, 77) ^ 1 << 20), None);
        let last = COMMITTED_END - 1;
        assert_eq!(read_commit_word(id, commit_word(id, last)), Some(last));
        assert_eq!(read_commit_word(id, commit_word(id, last + 1)), None, "nobody gets there");
        let header = SlotHeader { sequence: 5, block: 8, data_checksum: 1 };
        let bytes = header.encode(id, 3);
        assert_eq!(SlotHeader::decode(id, 3, &bytes), SlotCopy::Good(header));
        assert_eq!(SlotHeader::decode(id, 4, &bytes), SlotCopy::Bad);
        assert_eq!(SlotHeader::decode(other, 3, &bytes), SlotCopy::Bad);
        let mut cleared = bytes;
        cleared[..8].fill(0);
        assert_eq!(SlotHeader::decode(id, 3, &cleared), SlotCopy::Free);
    }
}
