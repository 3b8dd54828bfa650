//! A block of a directory: names, one behind the other.

use super::{FormatError, HEADER_BYTES, Kind, open, put_u32, put_u64, seal, u32_at, u64_at};

const KIND: Kind = Kind::new(b"DHDB", "block of a directory");
const LIST_AT: usize = 32;
/// Inode, kind, length of the name.
const ENTRY_BYTES: usize = 10;
/// Longest name.
pub const NAME_BYTES_MAX: usize = 255;

/// A name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// 1 to 255 bytes, neither `/` nor 0 among them.
    pub name: Box<[u8]>,
    /// What it names.
    pub inode: u64,
    /// What kind of file that is: the upper four bits of the mode.
    pub kind: u8,
}

impl Entry {
    /// What it takes in a block.
    pub fn bytes(&self) -> usize {
        ENTRY_BYTES + self.name.len()
    }
}

/// What entries find in an empty block.
pub fn room(block_bytes: usize) -> usize {
    block_bytes - LIST_AT
}

/// As a block.
pub fn encode(entries: &[Entry], block_bytes: usize, block: u64, owner: u64) -> Vec<u8> {
    let mut bytes = vec![0; block_bytes];
    put_u32(&mut bytes, HEADER_BYTES, entries.len() as u32);
    let mut at = LIST_AT;
    for entry in entries {
        put_u64(&mut bytes, at, entry.inode);
        bytes[at + 8] = entry.kind;
        bytes[at + 9] = entry.name.len() as u8;
        bytes[at + ENTRY_BYTES..at + entry.bytes()].copy_from_slice(&entry.name);
        at += entry.bytes();
    }
    seal(&mut bytes, KIND, block, owner);
    bytes
}

/// The names, and the directory that they belong to.
pub fn decode(bytes: &[u8], block: u64, blocks: u64) -> Result<(Vec<Entry>, u64), FormatError> {
    let owner = open(bytes, KIND, block)?;
    let count = u32_at(bytes, HEADER_BYTES) as usize;
    let mut entries = Vec::new();
    let mut rest = &bytes[LIST_AT..];
    for _ in 0..count {
        let header = rest.get(..ENTRY_BYTES).ok_or(KIND.bad("length"))?;
        let end = ENTRY_BYTES + usize::from(header[9]);
        let name = rest.get(ENTRY_BYTES..end).ok_or(KIND.bad("length"))?;
        let inode = u64_at(header, 0);
        if name.is_empty() || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
            return Err(KIND.bad("name"));
        }
        if inode == 0 || inode >= blocks {
            return Err(KIND.bad("inode"));
        }
        entries.push(Entry { name: name.into(), inode, kind: header[8] });
        rest = &rest[end..];
    }
    Ok((entries, owner))
}
