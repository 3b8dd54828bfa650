//! What is on a medium, for people. Changes nothing.

use super::slots::{Slots, Terms, examine};
use super::{MediumPersist, MemoryMedium, NvramMedium};
use crate::error::FormatError;
use crate::format::nvram::{
    COMMIT_OFFSETS, NVRAM_HEAD_BYTES, NVRAM_HEAD_OFFSETS, NvramHead, NvramLayout, read_commit_word,
};
use crate::units::{Lba, LbaRange};

/// What is on a medium.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NvramPicture {
    /// The copies of the head.
    pub heads: [Result<NvramHead, FormatError>; 2],
    /// The copies of the commit word; `None`: damaged.
    pub commits: [Option<u64>; 2],
    /// Blocks of the volume that it holds, by address: what a start would show.
    pub ranges: Vec<LbaRange>,
    /// Of those, the damaged ones.
    pub damaged: Vec<Lba>,
    /// Slots of a batch that was never committed.
    pub uncommitted_slots: u64,
    /// Slots of which neither header can be read.
    pub unnamed_slots: u64,
}

impl NvramPicture {
    /// Of these bytes, all of a medium. Every byte may be anything.
    ///
    /// # Errors
    /// If there is not even a head, or it speaks of more than there is.
    pub fn of(bytes: &[u8]) -> Result<NvramPicture, FormatError> {
        let what = "the memory";
        let short = |expected: u64| FormatError::Short {
            what,
            expected: expected as usize,
            found: bytes.len(),
        };
        let least = NvramLayout { slots: 0 }.bytes();
        if (bytes.len() as u64) < least {
            return Err(short(least));
        }
        let copies = NVRAM_HEAD_OFFSETS.map(|at| &bytes[at as usize..][..NVRAM_HEAD_BYTES]);
        let head = NvramHead::newest(copies)?;
        let layout = NvramLayout { slots: head.slots };
        if layout.bytes() > bytes.len() as u64 {
            return Err(short(layout.bytes()));
        }
        let id = head.identity.id;
        let commits = COMMIT_OFFSETS.map(|at| {
            let word = bytes[at as usize..][..8].try_into().expect("eight bytes");
            read_commit_word(id, u64::from_le_bytes(word))
        });
        let committed = commits.into_iter().flatten().max().unwrap_or(0);
        let copy = bytes[..layout.bytes() as usize].to_vec();
        let medium = MemoryMedium::new(copy, MediumPersist::Now);
        let terms = Terms { committed, torn_until: committed, volume_blocks: u64::MAX };
        let unnamed_slots = examine(medium.bytes(), id, layout.slots, terms).unnamed;
        let mut slots = Slots::new(Box::new(medium), id, layout.slots, 1);
        let scanned = slots.scan(committed);
        let damaged: Vec<Lba> = slots.rotten().iter().map(|block| Lba(*block)).collect();
        let mut blocks: Vec<u64> = scanned.blocks.iter().map(|block| block.0).collect();
        blocks.extend(slots.rotten());
        blocks.sort_unstable();
        let mut ranges: Vec<LbaRange> = Vec::new();
        for block in blocks {
            match ranges.last_mut() {
                Some(range) if range.end() == block => range.blocks += 1,
                _ => ranges.push(LbaRange::new(block, 1)),
            }
        }
        Ok(NvramPicture {
            heads: copies.map(NvramHead::decode),
            commits,
            ranges,
            damaged,
            uncommitted_slots: scanned.uncommitted_slots,
            unnamed_slots,
        })
    }
}
