//! What is on the device. Every block of metadata begins with the same 24 bytes:
//!
//! | at | bytes | |
//! |---|---|---|
//! | 0 | 4 | what it is |
//! | 4 | 4 | CRC-32C of the whole block without this field |
//! | 8 | 8 | its own number |
//! | 16 | 8 | the inode it belongs to |
//!
//! All numbers are little-endian. Nothing is believed before [`open`] has looked at it, and
//! decoders check every number that they use to find something.

pub mod directory_block;
pub mod indirect;
pub mod inode;
pub mod journal_header;
pub mod superblock;
pub mod transaction;

use dcd_block::checksum::crc32c_with_hole;

/// Smallest block.
pub const BLOCK_BYTES_MIN: usize = 4096;
/// Largest block.
pub const BLOCK_BYTES_MAX: usize = 1 << 20;
/// What every block of metadata begins with.
pub const HEADER_BYTES: usize = 24;
const CHECKSUM_AT: usize = 4;

/// What is wrong with a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FormatError {
    /// Something else is there.
    #[error("it is no {0}")]
    Kind(&'static str),
    /// It has changed since it was written.
    #[error("the checksum of the {0} is wrong")]
    Checksum(&'static str),
    /// It belongs elsewhere.
    #[error("the {0} belongs to another place")]
    Place(&'static str),
    /// A number that cannot be.
    #[error("the {kind} has a bad {field}")]
    Field {
        /// In what.
        kind: &'static str,
        /// Which.
        field: &'static str,
    },
}

/// A kind of block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    magic: [u8; 4],
    /// In messages.
    pub name: &'static str,
}

impl Kind {
    const fn new(magic: &[u8; 4], name: &'static str) -> Kind {
        Kind { magic: *magic, name }
    }

    fn bad(self, field: &'static str) -> FormatError {
        FormatError::Field { kind: self.name, field }
    }
}

/// Puts header and checksum on a block.
pub fn seal(bytes: &mut [u8], kind: Kind, block: u64, owner: u64) {
    bytes[..4].copy_from_slice(&kind.magic);
    put_u64(bytes, 8, block);
    put_u64(bytes, 16, owner);
    let checksum = crc32c_with_hole(bytes, CHECKSUM_AT);
    put_u32(bytes, CHECKSUM_AT, checksum);
}

/// Checks header and checksum; the inode that it belongs to.
pub fn open(bytes: &[u8], kind: Kind, block: u64) -> Result<u64, FormatError> {
    if bytes.len() < BLOCK_BYTES_MIN || bytes[..4] != kind.magic {
        return Err(FormatError::Kind(kind.name));
    }
    if u32_at(bytes, CHECKSUM_AT) != crc32c_with_hole(bytes, CHECKSUM_AT) {
        return Err(FormatError::Checksum(kind.name));
    }
    if u64_at(bytes, 8) != block {
        return Err(FormatError::Place(kind.name));
    }
    Ok(u64_at(bytes, 16))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}
