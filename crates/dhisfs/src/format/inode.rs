//! What is known of a file: one block, with pointers to its first blocks and to those that list the
//! others.
//!
//! | at | bytes | |
//! |---|---|---|
//! | 24 | 8 | generation |
//! | 32 | 4 each | mode, user, group, names |
//! | 48 | 8 each | size, blocks, times (modified, changed, accessed, made: nanoseconds since 1970), parent |
//! | 104 | 2 each | hint, flags |
//! | 108 | 4 each | bytes of extended attributes, device number |
//! | 128 | a quarter of the block | extended attributes: length of name (1), of value (2), name, value |
//! | then | 8 each | blocks of the file: the first ones, and one each that lists blocks, lists of blocks, and lists of those. The target of a symbolic link |

use std::collections::BTreeMap;

use dcd_client::Attributes;

use super::{
    FormatError, HEADER_BYTES, Kind, open, put_u16, put_u32, put_u64, seal, u16_at, u32_at, u64_at,
};

const KIND: Kind = Kind::new(b"DHIN", "inode");
const EXTRA_AT: usize = 128;
/// Somebody has chosen the hint; names do not change it.
const FLAG_HINT_IS_CHOSEN: u16 = 1;
/// The bits of a mode that tell the kind of file.
pub const MODE_KIND: u32 = 0o170_000;
/// A regular file.
pub const MODE_FILE: u32 = 0o100_000;
/// A directory.
pub const MODE_DIRECTORY: u32 = 0o040_000;
/// A symbolic link.
pub const MODE_LINK: u32 = 0o120_000;

/// Nanoseconds since 1970.
pub type Timestamp = i64;

/// A file, directory, link or special file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inode {
    /// Differs from that of all who had this block before.
    pub generation: u64,
    /// Kind and permissions.
    pub mode: u32,
    /// Who owns it.
    pub uid: u32,
    /// And which group.
    pub gid: u32,
    /// How many names it has; of a directory: 2 and one more for each directory in it.
    pub links: u32,
    /// In bytes. Of a directory, all blocks up to the last one.
    pub size: u64,
    /// How many blocks belong to it besides its own.
    pub blocks: u64,
    /// When its contents changed.
    pub modified: Timestamp,
    /// When anything changed.
    pub changed: Timestamp,
    /// When it was read, as far as somebody has set that.
    pub accessed: Timestamp,
    /// When it was made.
    pub created: Timestamp,
    /// Of a directory, the one it is in.
    pub parent: u64,
    /// What was said about it: its contents, or what is made in it.
    pub hint: Attributes,
    /// Somebody has said so for this file; rules for names do not change it.
    pub hint_is_chosen: bool,
    /// Of a special file.
    pub device: u32,
    /// Extended attributes.
    pub extended: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Its first blocks, and where the lists of the others are. Empty for a symbolic link.
    pub slots: Vec<u64>,
    /// Where a symbolic link leads.
    pub target: Vec<u8>,
}

/// What extended attributes may take.
pub fn extended_bytes_max(block_bytes: usize) -> usize {
    block_bytes / 4
}

/// How many slots there are.
pub fn slots(block_bytes: usize) -> usize {
    (block_bytes - slots_at(block_bytes)) / 8
}

/// Longest target of a symbolic link.
pub fn target_bytes_max(block_bytes: usize) -> usize {
    block_bytes - slots_at(block_bytes)
}

fn slots_at(block_bytes: usize) -> usize {
    EXTRA_AT + extended_bytes_max(block_bytes)
}

impl Inode {
    /// Of an empty directory, which is root's and in no other.
    pub fn empty_directory(generation: u64, block_bytes: usize, now: Timestamp) -> Inode {
        Inode {
            generation,
            mode: MODE_DIRECTORY | 0o755,
            uid: 0,
            gid: 0,
            links: 2,
            size: 0,
            blocks: 0,
            modified: now,
            changed: now,
            accessed: now,
            created: now,
            parent: 0,
            hint: Attributes::NONE,
            hint_is_chosen: false,
            device: 0,
            extended: Default::default(),
            slots: vec![0; slots(block_bytes)],
            target: Vec::new(),
        }
    }

    /// What kind of file it is, as in a directory.
    pub fn kind(&self) -> u8 {
        (self.mode >> 12) as u8
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.mode & MODE_KIND == MODE_DIRECTORY
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.mode & MODE_KIND == MODE_FILE
    }

    /// Whether it is a symbolic link.
    pub fn is_link(&self) -> bool {
        self.mode & MODE_KIND == MODE_LINK
    }

    /// What the extended attributes take.
    pub fn extended_bytes(&self) -> usize {
        self.extended.iter().map(|(name, value)| 3 + name.len() + value.len()).sum()
    }

    /// As a block.
    pub fn encode(&self, block_bytes: usize, block: u64) -> Vec<u8> {
        let mut bytes = vec![0; block_bytes];
        put_u64(&mut bytes, HEADER_BYTES, self.generation);
        for (i, number) in [self.mode, self.uid, self.gid, self.links].into_iter().enumerate() {
            put_u32(&mut bytes, 32 + 4 * i, number);
        }
        let times = [self.modified, self.changed, self.accessed, self.created];
        let numbers = [self.size, self.blocks].into_iter().chain(times.map(|time| time as u64));
        for (i, number) in numbers.chain([self.parent]).enumerate() {
            put_u64(&mut bytes, 48 + 8 * i, number);
        }
        put_u16(&mut bytes, 104, self.hint.bits());
        put_u16(&mut bytes, 106, if self.hint_is_chosen { FLAG_HINT_IS_CHOSEN } else { 0 });
        put_u32(&mut bytes, 108, self.extended_bytes() as u32);
        put_u32(&mut bytes, 112, self.device);
        let mut at = EXTRA_AT;
        for (name, value) in &self.extended {
            bytes[at] = name.len() as u8;
            put_u16(&mut bytes, at + 1, value.len() as u16);
            let value_at = at + 3 + name.len();
            bytes[at + 3..value_at].copy_from_slice(name);
            at = value_at + value.len();
            bytes[value_at..at].copy_from_slice(value);
        }
        let slots_at = slots_at(block_bytes);
        for (i, slot) in self.slots.iter().enumerate() {
            put_u64(&mut bytes, slots_at + 8 * i, *slot);
        }
        if self.is_link() {
            bytes[slots_at..slots_at + self.target.len()].copy_from_slice(&self.target);
        }
        seal(&mut bytes, KIND, block, block);
        bytes
    }

    /// The other way round. `blocks` is the size of the device.
    pub fn decode(bytes: &[u8], block: u64, blocks: u64) -> Result<Inode, FormatError> {
        if open(bytes, KIND, block)? != block {
            return Err(KIND.bad("owner"));
        }
        let word = |i: usize| u32_at(bytes, 32 + 4 * i);
        let number = |i: usize| u64_at(bytes, 48 + 8 * i);
        let time = |i: usize| number(i) as Timestamp;
        let hint = Attributes::from_bits(u16_at(bytes, 104)).ok_or(KIND.bad("hint"))?;
        let mut inode = Inode {
            generation: u64_at(bytes, HEADER_BYTES),
            mode: word(0),
            uid: word(1),
            gid: word(2),
            links: word(3),
            size: number(0),
            blocks: number(1),
            modified: time(2),
            changed: time(3),
            accessed: time(4),
            created: time(5),
            parent: number(6),
            hint,
            hint_is_chosen: u16_at(bytes, 106) & FLAG_HINT_IS_CHOSEN != 0,
            device: u32_at(bytes, 112),
            extended: BTreeMap::new(),
            slots: Vec::new(),
            target: Vec::new(),
        };
        let extended_bytes = u32_at(bytes, 108) as usize;
        if extended_bytes > extended_bytes_max(bytes.len()) {
            return Err(KIND.bad("length of attributes"));
        }
        let bad = KIND.bad("attribute");
        let mut rest = &bytes[EXTRA_AT..EXTRA_AT + extended_bytes];
        while !rest.is_empty() {
            let header = rest.get(..3).ok_or(bad)?;
            let value_at = 3 + usize::from(header[0]);
            let end = value_at + usize::from(u16_at(header, 1));
            let name = rest.get(3..value_at).ok_or(bad)?;
            let value = rest.get(value_at..end).ok_or(bad)?;
            inode.extended.insert(name.to_vec(), value.to_vec());
            rest = &rest[end..];
        }
        let slots_at = slots_at(bytes.len());
        if inode.is_link() {
            let length = usize::try_from(inode.size).unwrap_or(usize::MAX);
            if length > target_bytes_max(bytes.len()) {
                return Err(KIND.bad("target"));
            }
            inode.target = bytes[slots_at..slots_at + length].to_vec();
        } else {
            let slots = (0..slots(bytes.len())).map(|i| u64_at(bytes, slots_at + 8 * i));
            inode.slots = slots.collect();
            if inode.slots.iter().any(|slot| *slot >= blocks) {
                return Err(KIND.bad("block"));
            }
        }
        Ok(inode)
    }
}
