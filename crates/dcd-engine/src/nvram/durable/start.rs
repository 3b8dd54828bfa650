//! A start: whose memory it is, and what it holds.
//!
//! ```text
//! 1. The heads: of this cache, of this life of the medium, of its last start?
//!      Where the superblock names no medium: is anything in it, of this cache or of anybody?
//! 2. The commit word, in both copies                                persist
//!      Else a crash could find an older one, and what it counts cleared by step 3.
//! 3. The slots: what is above the commit word is cleared, the newest of each block counts, the
//!    rest is cleared; copies of which one is good are mended.          persist
//!      Only now is any of it shown: on a device it may have been in its volatile cache so far.
//! 4. The heads, one behind the other, with the next generation.         persist after each
//!      Crash here: the superblock still has the generation before, which fits, too.
//! 5. The superblock says the same (the engine's).
//! ```
//!
//! An empty medium is made in the same order, with its first head in two steps: the magic number
//! is stored when all else of it is durable. A wiped head is the head without it, so whose a medium
//! was can be told, and that what is in its slots is nothing; while one copy is written anew, the
//! other one says it. So the first is the one that is not whole, if a crash has torn one before.
//!
//! On a device all pages of headers that were in use are written again in step 3: what is read need
//! not be durable, where the flush behind it failed.

use super::slots::{Slots, Terms, examine, header_copy};
use super::{
    DurableConfig, DurableNvram, DurableOutput, MediumPersist, NvramMedium, Persisting,
    batch_blocks_max, is_id,
};
use crate::error::FormatError;
use crate::format::COUNTER_END;
use crate::format::nvram::{
    CHUNKS_OFFSET, COMMIT_OFFSETS, MAGIC, NVRAM_BYTES_MIN, NVRAM_HEAD_BYTES, NVRAM_HEAD_OFFSETS,
    NvramHead, NvramIdentity, NvramLayout, SEQUENCE_END, SlotCopy, read_commit_word,
};
use crate::units::{Time, Uuid};

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
    /// Size of its logical blocks: what is below takes whole ones only.
    pub unit_blocks: u64,
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
        /// What the superblock names: perhaps this is it, and both heads are damaged.
        expected: Option<NvramIdentity>,
        /// What is wrong with it as a memory.
        source: FormatError,
    },
    /// It is of this cache and holds something, but the superblock names none.
    #[error(
        "it holds {blocks} blocks of this cache that are perhaps nowhere else, and the cache-disk names no memory"
    )]
    Unnamed {
        /// How many.
        blocks: u64,
    },
    /// It has not the size that it was made with.
    #[error("it has {found} bytes, and was made with {expected}")]
    Resized {
        /// What its head speaks of.
        expected: u64,
        /// Its size.
        found: u64,
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
    #[error("{slots} of its slots have no header that can be read, which no crash does")]
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
    /// Nothing in it counts.
    is_empty: bool,
    is_prepared: bool,
    steps: Vec<Step>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// What the slots have become, by that commit word.
    Slots,
    HeadWithoutMagic(usize),
    Head(usize),
}

/// What is to become of the medium.
enum Judged {
    Taken { committed: u64 },
    Empty,
}

impl DurableNvram {
    /// Takes this memory, and mends what it has found; what is to be made empty is not touched yet.
    /// [`DurableNvram::begin`] goes on.
    ///
    /// # Errors
    /// If it is not to be used; nothing has been changed in it.
    ///
    /// # Panics
    /// If the new id or the size of a logical block is 0.
    pub fn open(
        now: Time,
        config: DurableConfig,
        medium: Box<dyn NvramMedium>,
        start: &NvramStart,
    ) -> Result<DurableNvram, NvramOpenError> {
        assert!(is_id(start.new_id) && start.unit_blocks > 0);
        let found = medium.bytes().len() as u64;
        let layout = NvramLayout::of_size(found).ok_or(NvramOpenError::Size { found })?;
        let bypass_blocks = config.nvram.bypass_blocks;
        let small = NvramOpenError::TooSmallForWrites { slots: layout.slots.into(), bypass_blocks };
        let batch_blocks = batch_blocks_max(layout.slots as usize, bypass_blocks).ok_or(small)?;
        let judged = match judge(&*medium, layout, start, batch_blocks as u64) {
            Err(error) if start.may_be_lost && error.is_loss() => Judged::Empty,
            judged => judged?,
        };
        let identity = match (&judged, start.expected) {
            // Of what the superblock has, not of what the medium has: only that is certain.
            (Judged::Taken { .. }, Some(expected)) => {
                let generation = (expected.generation + 1).min(COUNTER_END - 1);
                NvramIdentity { generation, ..expected }
            }
            _ => NvramIdentity { id: start.new_id, generation: 1 },
        };
        let head = NvramHead { cache: start.cache, identity, slots: layout.slots };
        let mut slots = Slots::new(medium, identity.id, layout.slots, start.unit_blocks);
        let is_empty = matches!(judged, Judged::Empty);
        let first = if is_empty { copy_to_begin_with(slots.medium.bytes()) } else { 0 };
        let mut steps = vec![Step::Head(1 - first), Step::Head(first)];
        let mut tier = match judged {
            Judged::Empty => {
                steps.push(Step::HeadWithoutMagic(first));
                DurableNvram::with_slots(config, slots, identity, batch_blocks, 0)
            }
            Judged::Taken { committed } => {
                let scanned = slots.scan(committed);
                let damaged = slots.rotten().len() as u64;
                let mut tier =
                    DurableNvram::with_slots(config, slots, identity, batch_blocks, damaged);
                tier.committed = committed;
                tier.uncommitted_slots = scanned.uncommitted_slots;
                tier.mended_headers = scanned.mended_headers;
                for block in scanned.blocks {
                    // A crash may have been in the middle of clearing the others of its logical
                    // block; or it comes from a disk with smaller ones. It is cleaned whole.
                    tier.nvram.restore(now, tier.slots.unit_of(block.0));
                }
                tier
            }
        };
        tier.now = now;
        tier.opening = Some(Opening { head, is_empty, is_prepared: false, steps });
        Ok(tier)
    }

    /// Begins with the memory, behind all that may refuse the cache. Nothing may be asked before
    /// [`DurableNvram::is_open`].
    ///
    /// # Panics
    /// If it has begun.
    pub fn begin(&mut self) {
        self.prepare();
        let opening = self.opening.as_mut().expect("it begins once");
        if !opening.is_empty {
            opening.steps.push(Step::Slots);
            self.slots.set_stored_aside();
        }
        self.slots.store_commit_word(self.committed);
        self.persist(Persisting::Opening);
        self.advance();
    }

    /// What takes long of [`DurableNvram::begin`], for whoever has somewhere else to do it: it goes
    /// through all headers. A memory in which nothing counts is wiped with it, perhaps not durably.
    pub fn prepare(&mut self) {
        let opening = self.opening.as_mut().expect("it begins once");
        if std::mem::replace(&mut opening.is_prepared, true) {
            return;
        }
        if opening.is_empty {
            self.slots.wipe_heads();
            self.slots.make_empty();
        }
        if self.slots.medium.persist() != MediumPersist::Now {
            self.slots.store_headers_again();
        }
    }

    /// A step of the start is durable.
    pub(super) fn go_on_opening(&mut self) {
        // One that was to come while requests are served, and is not any more.
        let Some(Opening { head, steps, .. }) = &mut self.opening else { return };
        let head = *head;
        match steps.pop() {
            Some(Step::Slots) => self.slots.store_what_was_set_aside(),
            Some(Step::HeadWithoutMagic(copy)) => self.slots.store_head_without_magic(&head, copy),
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
    /// What the superblock names is not there, or what is there is not to be used: somebody may go
    /// on without it, and this medium is made empty.
    pub fn is_loss(&self) -> bool {
        match self {
            NvramOpenError::Lost { .. }
            | NvramOpenError::Other { .. }
            | NvramOpenError::Stale { .. }
            | NvramOpenError::Unnamed { .. }
            | NvramOpenError::Damaged { .. }
            | NvramOpenError::NoCommitWord
            | NvramOpenError::BeyondVolume { .. }
            | NvramOpenError::Missing { .. } => true,
            // One that was made longer is whole.
            NvramOpenError::Resized { expected, found } => found < expected,
            NvramOpenError::Size { .. }
            | NvramOpenError::TooSmallForWrites { .. }
            | NvramOpenError::Foreign { .. }
            | NvramOpenError::NotEmpty { .. } => false,
        }
    }
}

fn copies(bytes: &[u8]) -> [&[u8]; 2] {
    NVRAM_HEAD_OFFSETS.map(|at| &bytes[at as usize..][..NVRAM_HEAD_BYTES])
}

/// The copy of the head that is written first where nothing counts: the other is whole, wiped or
/// not, unless neither is.
fn copy_to_begin_with(bytes: &[u8]) -> usize {
    let is_whole =
        |copy: &[u8]| NvramHead::decode(copy).is_ok() || NvramHead::decode_wiped(copy).is_some();
    usize::from(!is_whole(copies(bytes)[1]))
}

fn judge(
    medium: &dyn NvramMedium,
    layout: NvramLayout,
    start: &NvramStart,
    batch_blocks: u64,
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
            Ok(head) => judge_unnamed(bytes, layout, start, &head),
            Err(_) if is_blank(bytes, layout) => Ok(Judged::Empty),
            Err(source) => Err(NvramOpenError::NotEmpty { expected: None, source }),
        };
    };
    let head = match found {
        Ok(head) => head,
        Err(source) if is_blank(bytes, layout) || has_magic(bytes) => {
            return Err(NvramOpenError::Lost { expected, source });
        }
        Err(source) => {
            return Err(NvramOpenError::NotEmpty { expected: Some(expected), source });
        }
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
        let expected = NvramLayout { slots: head.slots }.bytes();
        return Err(NvramOpenError::Resized { expected, found: bytes.len() as u64 });
    }
    let committed = committed(bytes, found).ok_or(NvramOpenError::NoCommitWord)?;
    let torn_until = match medium.persist() {
        MediumPersist::Now => committed + batch_blocks,
        // No sector is torn.
        MediumPersist::Io { .. } => committed,
    };
    let NvramStart { volume_blocks, .. } = *start;
    let terms = Terms { committed, torn_until, volume_blocks };
    let examined = examine(bytes, found.id, layout.slots, terms);
    if let Some(block) = examined.beyond {
        return Err(NvramOpenError::BeyondVolume { block, blocks: volume_blocks });
    }
    if examined.unnamed > 0 {
        return Err(NvramOpenError::Damaged { slots: examined.unnamed });
    }
    Ok(Judged::Taken { committed })
}

/// The superblock names no medium. If the last session ended in order, nothing is in it; else the
/// superblock may be an older copy.
fn judge_unnamed(
    bytes: &[u8],
    layout: NvramLayout,
    start: &NvramStart,
    head: &NvramHead,
) -> Result<Judged, NvramOpenError> {
    let committed = committed(bytes, head.identity).unwrap_or(SEQUENCE_END - 1);
    let NvramStart { volume_blocks, .. } = *start;
    let terms = Terms { committed, torn_until: committed, volume_blocks };
    let slots = head.slots.min(layout.slots);
    let examined = examine(bytes, head.identity.id, slots, terms);
    match examined.committed + examined.unnamed {
        0 => Ok(Judged::Empty),
        blocks => Err(NvramOpenError::Unnamed { blocks }),
    }
}

/// The later of the two commit words that is good.
fn committed(bytes: &[u8], of: NvramIdentity) -> Option<u64> {
    let words = COMMIT_OFFSETS.map(|at| {
        let word = bytes[at as usize..][..8].try_into().expect("eight bytes");
        read_commit_word(of.id, u64::from_le_bytes(word))
    });
    words.into_iter().flatten().max()
}

fn has_magic(bytes: &[u8]) -> bool {
    copies(bytes).iter().any(|copy| copy[..8] == MAGIC.to_le_bytes())
}

/// Nothing is in it, in all of the room that will be written, but, perhaps, what a start or an end
/// left: wiped heads, commit words, and behind such heads slots, whatever they hold.
///
/// Beside a wiped head the other may have its magic number and be torn: a crash came while a start
/// wrote it, and another while the next one wiped both.
fn is_blank(bytes: &[u8], layout: NvramLayout) -> bool {
    let (front, chunks) = bytes.split_at(CHUNKS_OFFSET as usize);
    let wiped = copies(bytes).into_iter().find_map(NvramHead::decode_wiped);
    let may_be_head =
        |page: &[u8]| page[..8] == [0; 8] || wiped.is_some() && page[..8] == MAGIC.to_le_bytes();
    let mut pages = front.chunks(4096).zip((0..).step_by(4096));
    let is_blank_in_front = pages.all(|(page, at)| {
        let skipped = match at {
            // Without its magic number it is nothing.
            at if NVRAM_HEAD_OFFSETS.contains(&at) && may_be_head(page) => HEAD_FIELDS_BYTES,
            at if COMMIT_OFFSETS.contains(&at) => 8,
            _ => 0,
        };
        is_zero(&page[skipped..])
    });
    if !is_blank_in_front {
        return false;
    }
    let Some(head) = wiped.filter(|head| head.slots <= layout.slots) else {
        return is_zero(chunks);
    };
    let is_ours = |slot| {
        [0, 1].iter().all(|copy| header_copy(bytes, head.identity.id, slot, *copy) != SlotCopy::Bad)
    };
    let used = NvramLayout { slots: head.slots }.bytes() as usize;
    (0..head.slots).all(is_ours) && is_zero(&bytes[used..])
}

fn is_zero(bytes: &[u8]) -> bool {
    // In pieces: the end of the first that is not is soon found, and the rest is fast.
    bytes.chunks(4096).all(|piece| piece.iter().fold(0, |all, byte| all | byte) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvram::durable::MemoryMedium;

    fn layout() -> NvramLayout {
        NvramLayout { slots: 128 }
    }

    fn open(bytes: &[u8]) -> Result<DurableNvram, NvramOpenError> {
        let start = NvramStart {
            cache: Uuid([1; 16]),
            expected: None,
            new_id: Uuid([2; 16]),
            volume_blocks: 1 << 20,
            unit_blocks: 1,
            may_be_lost: false,
        };
        let medium = Box::new(MemoryMedium::new(bytes.to_vec(), MediumPersist::Now));
        DurableNvram::open(Time::ZERO, DurableConfig::default(), medium, &start)
    }

    /// Both heads wiped, as an end leaves them, and bytes in a slot that is free.
    fn ended() -> Vec<u8> {
        let mut tier = open(&vec![0; layout().bytes() as usize]).expect("it is blank");
        tier.begin();
        assert!(tier.is_open());
        tier.slots.wipe_heads();
        let mut bytes = tier.medium().to_vec();
        bytes[NvramLayout::slot_at(0) + 100] = 1;
        assert!(copies(&bytes).iter().all(|copy| NvramHead::decode_wiped(copy).is_some()));
        bytes
    }

    /// Another word of the identity than that of the checksum.
    fn tear(bytes: &mut [u8], copy: usize) {
        bytes[NVRAM_HEAD_OFFSETS[copy] as usize + 32] ^= 0x55;
    }

    /// Starts that were cut off in the middle of a head left both torn, one after the other, and
    /// with them a memory that nobody would take.
    #[test]
    fn one_head_is_whole_while_the_other_is_written() {
        for torn in 0..2 {
            let mut bytes = ended();
            tear(&mut bytes, torn);
            assert_eq!(copy_to_begin_with(&bytes), torn);
            assert!(open(&bytes).is_ok(), "one says that nothing is in it");
        }
        let mut bytes = ended();
        tear(&mut bytes, 0);
        tear(&mut bytes, 1);
        assert!(matches!(open(&bytes), Err(NvramOpenError::NotEmpty { .. })));
    }

    /// A crash while a start wrote one of them, and another while the next one wiped both.
    #[test]
    fn a_torn_head_beside_a_wiped_one_is_nothing() {
        for torn in 0..2 {
            let mut bytes = ended();
            tear(&mut bytes, torn);
            let at = NVRAM_HEAD_OFFSETS[torn] as usize;
            bytes[at..at + 8].copy_from_slice(&MAGIC.to_le_bytes());
            let opened = open(&bytes);
            assert!(opened.is_ok(), "{:?}", opened.err());
            // Alone it may be anything.
            bytes[NVRAM_HEAD_OFFSETS[1 - torn] as usize + 32] ^= 0x55;
            assert!(matches!(open(&bytes), Err(NvramOpenError::NotEmpty { .. })));
        }
    }
}
