//! A start: whose memory it is, and what it holds.
//!
//! ```text
//! 1. The heads: of this cache, of this life of the medium, of its last start?
//! 2. The slots: what is above the commit word is cleared, the newest of each block counts, the
//!    rest is cleared; copies of which one is good are mended.          persist
//!      Only now is any of it shown: on a device it may have been in its volatile cache so far.
//! 3. The heads, one behind the other, with the next generation.         persist after each
//!      Crash here: the superblock still has the generation before, which fits, too.
//! 4. The superblock says the same (the engine's).
//! ```
//!
//! An empty medium is made in the same order, with its first head in two steps: the magic number
//! is stored when all else of it is durable.

use super::slots::Slots;
use super::{
    DurableConfig, DurableNvram, DurableOutput, MediumPersist, NvramMedium, Persisting,
    batch_blocks_max, is_id,
};
use crate::error::FormatError;
use crate::format::nvram::{
    CHUNKS_OFFSET, COMMIT_OFFSETS, NVRAM_BYTES_MIN, NVRAM_HEAD_BYTES, NVRAM_HEAD_OFFSETS,
    NvramHead, NvramIdentity, NvramLayout, read_commit_word,
};
use crate::units::{LbaRange, Time, Uuid};

/// Size of what a head says; the rest of its sector is zero.
const HEAD_FIELDS_BYTES: usize = 64;

/// What a start goes by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NvramStart {
    /// The cache.
    pub cache: Uuid,
    /// The medium that its superblock names: the last session had it, and did not end in order.
    pub expected: Option<NvramIdentity>,
    /// The name of the medium, if it begins anew; random, not 0.
    pub new_id: Uuid,
    /// Size of the volume.
    pub volume_blocks: u64,
    /// What only the expected medium held may be lost.
    pub may_be_lost: bool,
}

/// Why a memory is not taken.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NvramOpenError {
    /// It has not enough room, or too much.
    #[error("it has {found} bytes, which is too few or too many (least: {NVRAM_BYTES_MIN})")]
    Size {
        /// Its size.
        found: u64,
    },
    /// Large writes, compared with the memory.
    #[error("it has {slots} slots, too few for writes of {bypass_blocks} blocks")]
    TooSmallForWrites {
        /// Its slots.
        slots: u64,
        /// Writes that go into it.
        bypass_blocks: u64,
    },
    /// It belongs to another cache.
    #[error("it belongs to the cache {found}, not to {expected}")]
    Foreign {
        /// This cache.
        expected: Uuid,
        /// The other.
        found: Uuid,
    },
    /// Something else is in it.
    #[error("something else is in it, not a memory of dcd: {source}")]
    NotEmpty {
        /// What is wrong with it as a memory.
        source: FormatError,
    },
    /// The one that holds what is nowhere else is not there.
    #[error("nothing in it is readable as the memory {} that the cache-disk names: {source}", expected.id)]
    Lost {
        /// What the superblock names.
        expected: NvramIdentity,
        /// What is wrong.
        source: FormatError,
    },
    /// It is another medium of this cache, or an earlier life of the same.
    #[error("it is the memory {}, and the cache-disk names {}", found.id, expected.id)]
    Other {
        /// What the superblock names.
        expected: NvramIdentity,
        /// What was found.
        found: NvramIdentity,
    },
    /// It is an older copy, or the cache-disk is.
    #[error(
        "it is of start {} of this memory, and the cache-disk of start {}: one of them is an older copy",
        found.generation, expected.generation
    )]
    Stale {
        /// What the superblock names.
        expected: NvramIdentity,
        /// What was found.
        found: NvramIdentity,
    },
    /// More is damaged than a crash can do.
    #[error("{slots} of its slots cannot be read, more than a crash can damage")]
    Damaged {
        /// Slots of which neither header is good.
        slots: u64,
    },
    /// Neither copy of the commit word is good.
    #[error("neither copy of its commit word is good")]
    NoCommitWord,
    /// It holds a block that the volume does not have.
    #[error("it holds block {block}, and the volume has {blocks}")]
    BeyondVolume {
        /// That block.
        block: u64,
        /// Size of the volume.
        blocks: u64,
    },
    /// The superblock names a memory, and none was given.
    #[error(
        "the last session had the memory {} in front of the log and did not end in order: what it holds may be nowhere else",
        expected.id
    )]
    Missing {
        /// What the superblock names.
        expected: NvramIdentity,
    },
}

/// The rest of a start.
pub(super) struct Opening {
    head: NvramHead,
    steps: Vec<Step>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    HeadWithoutMagic,
    Head(usize),
}

/// What is to become of the medium.
enum Judged {
    Taken { committed: u64 },
    Empty,
}

impl DurableNvram {
    /// Begins with this memory. Nothing may be asked before [`DurableNvram::is_open`].
    ///
    /// # Errors
    /// If it is not to be used; nothing has been changed in it.
    ///
    /// # Panics
    /// If the new id is 0.
    pub fn open(
        now: Time,
        config: DurableConfig,
        medium: Box<dyn NvramMedium>,
        start: &NvramStart,
    ) -> Result<DurableNvram, NvramOpenError> {
        assert!(is_id(start.new_id));
        let found = medium.bytes().len() as u64;
        let layout = NvramLayout::of_size(found).ok_or(NvramOpenError::Size { found })?;
        let bypass_blocks = config.nvram.bypass_blocks;
        let small = NvramOpenError::TooSmallForWrites { slots: layout.slots.into(), bypass_blocks };
        let batch_blocks = batch_blocks_max(layout.slots as usize, bypass_blocks).ok_or(small)?;
        let judged = match judge(&*medium, layout, start) {
            Err(error) if start.may_be_lost && error.is_loss() => Judged::Empty,
            judged => judged?,
        };
        let identity = match (&judged, start.expected) {
            // Of what the superblock has, not of what the medium has: only that is certain.
            (Judged::Taken { .. }, Some(expected)) => {
                NvramIdentity { generation: expected.generation + 1, ..expected }
            }
            _ => NvramIdentity { id: start.new_id, generation: 1 },
        };
        let head = NvramHead { cache: start.cache, identity, slots: layout.slots };
        let mut slots = Slots::new(medium, identity.id, layout.slots);
        let mut steps = vec![Step::Head(1), Step::Head(0)];
        let mut tier = match judged {
            Judged::Empty => {
                steps.push(Step::HeadWithoutMagic);
                slots.wipe_heads();
                slots.make_empty();
                DurableNvram::with_slots(config, slots, identity, batch_blocks, 0)
            }
            Judged::Taken { committed } => {
                let (unnamed, beyond) = slots.examine(committed, start.volume_blocks);
                if let Some(block) = beyond {
                    let blocks = start.volume_blocks;
                    return Err(NvramOpenError::BeyondVolume { block, blocks });
                }
                if unnamed > batch_blocks as u64 {
                    return Err(NvramOpenError::Damaged { slots: unnamed });
                }
                let scanned = slots.scan(committed);
                let damaged = slots.rotten().len() as u64;
                let mut tier =
                    DurableNvram::with_slots(config, slots, identity, batch_blocks, damaged);
                tier.committed = committed;
                tier.uncommitted_slots = scanned.uncommitted_slots;
                tier.mended_headers = scanned.mended_headers;
                for block in scanned.blocks {
                    tier.nvram.restore(now, LbaRange::new(block.0, 1));
                }
                tier
            }
        };
        tier.now = now;
        tier.slots.store_commit_word(tier.committed);
        tier.opening = Some(Opening { head, steps });
        tier.persist(Persisting::Opening);
        tier.advance();
        Ok(tier)
    }

    /// A step of the start is durable.
    pub(super) fn go_on_opening(&mut self) {
        let Some(Opening { head, steps }) = &mut self.opening else {
            unreachable!("only while it opens")
        };
        let head = *head;
        match steps.pop() {
            Some(Step::HeadWithoutMagic) => self.slots.store_head_without_magic(&head),
            Some(Step::Head(copy)) => self.slots.store_head(&head, copy),
            None => {
                self.opening = None;
                return;
            }
        }
        self.persist(Persisting::Opening);
    }

    /// Begins to make durable what is stored.
    pub(super) fn persist(&mut self, what: Persisting) {
        assert!(self.persisting == Persisting::Nothing, "one at a time");
        self.persisting = what;
        self.persisting_removed = self.removed_so_far;
        match self.slots.medium.persist() {
            MediumPersist::Now => {
                self.slots.forget_stored();
                self.slots.medium.fence();
                self.persisted();
            }
            MediumPersist::Io { sector_bytes } => {
                let ranges = self.slots.take_stored(sector_bytes);
                self.outputs.push_back(DurableOutput::Persist(ranges));
            }
        }
    }
}

impl NvramOpenError {
    /// What the superblock names is not there: somebody may go on without it.
    pub fn is_loss(&self) -> bool {
        matches!(
            self,
            NvramOpenError::Lost { .. }
                | NvramOpenError::Other { .. }
                | NvramOpenError::Stale { .. }
                | NvramOpenError::Damaged { .. }
                | NvramOpenError::NoCommitWord
                | NvramOpenError::Missing { .. }
        )
    }
}

fn copies(bytes: &[u8]) -> [&[u8]; 2] {
    NVRAM_HEAD_OFFSETS.map(|at| &bytes[at as usize..][..NVRAM_HEAD_BYTES])
}

fn judge(
    medium: &dyn NvramMedium,
    layout: NvramLayout,
    start: &NvramStart,
) -> Result<Judged, NvramOpenError> {
    let bytes = medium.bytes();
    let found = NvramHead::newest(copies(bytes));
    if let Ok(head) = &found
        && head.cache != start.cache
    {
        return Err(NvramOpenError::Foreign { expected: start.cache, found: head.cache });
    }
    let Some(expected) = start.expected else {
        return match found {
            // The last session ended in order, so nothing in it counts.
            Ok(_) => Ok(Judged::Empty),
            Err(_) if is_blank(bytes) => Ok(Judged::Empty),
            Err(source) => Err(NvramOpenError::NotEmpty { source }),
        };
    };
    let head = match found {
        Ok(head) => head,
        Err(source) if is_blank(bytes) || has_magic(bytes) => {
            return Err(NvramOpenError::Lost { expected, source });
        }
        Err(source) => return Err(NvramOpenError::NotEmpty { source }),
    };
    let found = head.identity;
    if found.id != expected.id {
        return Err(NvramOpenError::Other { expected, found });
    }
    // Started with once more, and then the superblock was not reached.
    let is_same = found.generation == expected.generation;
    if !is_same && found.generation != expected.generation + 1 {
        return Err(NvramOpenError::Stale { expected, found });
    }
    if head.slots != layout.slots {
        return Err(NvramOpenError::Size { found: bytes.len() as u64 });
    }
    let words = COMMIT_OFFSETS.map(|at| {
        let word = bytes[at as usize..][..8].try_into().expect("eight bytes");
        read_commit_word(found.id, u64::from_le_bytes(word))
    });
    let committed = words.into_iter().flatten().max().ok_or(NvramOpenError::NoCommitWord)?;
    Ok(Judged::Taken { committed })
}

fn has_magic(bytes: &[u8]) -> bool {
    copies(bytes).iter().any(|copy| copy[..8] == *b"dcdNVRAM")
}

/// Nothing is in it but, perhaps, what a start or an end that was interrupted left.
fn is_blank(bytes: &[u8]) -> bool {
    let pages = bytes[..CHUNKS_OFFSET as usize].chunks(4096);
    pages.zip((0..).step_by(4096)).all(|(page, at)| {
        let skipped = match at {
            // Without its magic number it is nothing.
            at if NVRAM_HEAD_OFFSETS.contains(&at) && page[..8] == [0; 8] => HEAD_FIELDS_BYTES,
            at if COMMIT_OFFSETS.contains(&at) => 8,
            _ => 0,
        };
        page[skipped..].iter().all(|byte| *byte == 0)
    })
}
