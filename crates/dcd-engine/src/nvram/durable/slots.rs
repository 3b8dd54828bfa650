//! The slots of a medium: which block is in which, what is free, and what is stored but not durable
//! yet.
//!
//! A slot is *committed* (a block is found in it), *filled* (by a batch that is not committed yet),
//! *cleared* (its headers say that it is free, perhaps not durably) or *free*. It is filled again
//! only after it was free durably: else a crash could bring back the header that it had before, over
//! bytes of something else.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use super::NvramMedium;
use crate::format::checksum::crc32c;
use crate::format::nvram::{
    CHUNK_SLOTS, COMMIT_OFFSETS, NVRAM_HEAD_OFFSETS, NvramHead, NvramLayout, SLOT_HEADER_BYTES,
    SlotCopy, SlotHeader, commit_word,
};
use crate::nvram::number_map::NumberMap;
use crate::units::{BLOCK_SIZE, Lba, LbaRange, Uuid};

const BLOCK: usize = BLOCK_SIZE as usize;

/// What is known of a slot that is in use.
#[derive(Clone, Copy, Default, Debug)]
struct Slot {
    sequence: u64,
    block: u64,
    data_checksum: u32,
}

pub(super) struct Slots {
    pub(super) medium: Box<dyn NvramMedium>,
    id: Uuid,
    /// Blocks of a logical block of what is below.
    unit_blocks: u64,
    slots: Vec<Slot>,
    /// Slots with committed blocks.
    by_block: NumberMap,
    /// Free, durably, in the order in which they became so.
    free: VecDeque<u32>,
    /// Cleared, not durably yet.
    cleared: Vec<u32>,
    /// Blocks whose slot holds something else than was put there. They are read as errors until they
    /// are written anew.
    rotten: BTreeSet<u64>,
    /// Blocks with a sequence up to this are counted, the damaged ones not.
    watched_until: u64,
    watched: u64,
    /// Bytes stored since the last persist.
    stored: Vec<Range<usize>>,
    /// Bytes stored that are for a later one.
    set_aside: Vec<Range<usize>>,
}

impl Slots {
    pub(super) fn new(
        medium: Box<dyn NvramMedium>,
        id: Uuid,
        count: u32,
        unit_blocks: u64,
    ) -> Slots {
        Slots {
            medium,
            id,
            unit_blocks,
            slots: vec![Slot::default(); count as usize],
            by_block: NumberMap::new(),
            free: VecDeque::with_capacity(count as usize),
            cleared: Vec::with_capacity(count as usize),
            rotten: BTreeSet::new(),
            watched_until: 0,
            watched: 0,
            stored: Vec::new(),
            set_aside: Vec::new(),
        }
    }

    // ---- looking ------------------------------------------------------------------------------

    pub(super) fn count(&self) -> usize {
        self.slots.len()
    }

    /// Blocks in memory.
    pub(super) fn blocks(&self) -> u64 {
        self.by_block.len() as u64
    }

    pub(super) fn free_slots(&self) -> usize {
        self.free.len()
    }

    pub(super) fn has_cleared(&self) -> bool {
        !self.cleared.is_empty()
    }

    pub(super) fn rotten(&self) -> &BTreeSet<u64> {
        &self.rotten
    }

    pub(super) fn has(&self, block: u64) -> bool {
        self.by_block.get(block).is_some()
    }

    /// Whether all of the range is in memory.
    pub(super) fn has_all(&self, range: LbaRange) -> bool {
        (range.start.0..range.end()).all(|block| self.has(block))
    }

    /// The logical block of what is below that a block is of.
    pub(super) fn unit_of(&self, block: u64) -> LbaRange {
        LbaRange::new(block / self.unit_blocks * self.unit_blocks, self.unit_blocks)
    }

    /// The runs of whole logical blocks of the range that are in memory, and good as far as is
    /// known; and those of which only a part is.
    pub(super) fn good_runs(&self, range: LbaRange) -> GoodRuns {
        let mut good = GoodRuns::default();
        let mut next = self.unit_of(range.start.0);
        while next.start.0 < range.end() {
            let unit = next;
            next.start.0 = unit.end();
            let mut blocks = unit.start.0..unit.end();
            let is_good = |block: u64| self.has(block) && !self.rotten.contains(&block);
            if !blocks.clone().all(is_good) {
                // One that has rotted has done so as a whole.
                if blocks.any(is_good) {
                    good.parts.push(unit);
                }
                continue;
            }
            match good.whole.last_mut() {
                Some(run) if run.end() == unit.start.0 => run.blocks += unit.blocks,
                _ => good.whole.push(unit),
            }
        }
        good
    }

    /// A block of the memory; `None`: it has rotted, which is noted.
    ///
    /// # Panics
    /// If it is not in memory.
    pub(super) fn read(&mut self, block: u64) -> Option<&[u8]> {
        let slot = self.by_block.get(block).expect("a block in memory");
        let at = NvramLayout::slot_at(slot);
        let found = crc32c(&self.medium.bytes()[at..at + BLOCK]);
        if found != self.slots[slot as usize].data_checksum {
            self.rots(block);
        }
        let is_good = !self.rotten.contains(&block);
        is_good.then(|| &self.medium.bytes()[at..at + BLOCK])
    }

    /// What is below takes whole logical blocks only, so one of which a part has rotted is read as
    /// an error, and never cleaned, as a whole.
    fn rots(&mut self, block: u64) {
        let unit = self.unit_of(block);
        for part in unit.start.0..unit.end() {
            if let Some(slot) = self.by_block.get(part) {
                self.leaves(slot);
                self.rotten.insert(part);
            }
        }
    }

    // ---- storing ------------------------------------------------------------------------------

    fn store(&mut self, at: usize, bytes: &[u8]) {
        self.medium.store(at, bytes);
        self.stored.push(at..at + bytes.len());
    }

    fn store_word(&mut self, at: usize, word: u64) {
        self.medium.store_word(at, word);
        self.stored.push(at..at + 8);
    }

    fn store_header(&mut self, slot: u32, header: &SlotHeader, copies: Range<usize>) {
        let bytes = header.encode(self.id, slot);
        for copy in copies {
            self.store(NvramLayout::header_at(slot, copy), &bytes);
        }
    }

    /// Fills a free slot. Nothing finds it before it is committed.
    ///
    /// # Panics
    /// If none is free.
    pub(super) fn fill(&mut self, sequence: u64, block: u64, data: &[u8]) -> u32 {
        let slot = self.free.pop_front().expect("a free slot");
        let data_checksum = crc32c(data);
        self.store(NvramLayout::slot_at(slot), data);
        let header = SlotHeader { sequence, block, data_checksum };
        self.store_header(slot, &header, 0..2);
        self.slots[slot as usize] = Slot { sequence, block, data_checksum };
        slot
    }

    pub(super) fn store_commit_word(&mut self, sequence: u64) {
        let word = commit_word(self.id, sequence);
        for at in COMMIT_OFFSETS {
            self.store_word(at as usize, word);
        }
    }

    /// A filled slot is what its block is found in from now on. The one before is cleared: its older
    /// version must not be what a start finds when the newer one has gone.
    pub(super) fn commit(&mut self, slot: u32) {
        let block = self.slots[slot as usize].block;
        let before = self.by_block.get(block);
        self.by_block.insert(block, slot);
        if let Some(before) = before {
            self.leaves(before);
            self.clear(before);
        }
        self.rotten.remove(&block);
    }

    /// The block leaves the memory: what is below is as new, or newer. Not while an older version of
    /// it may still come back: that would be newest.
    pub(super) fn remove(&mut self, block: u64) {
        if let Some(slot) = self.by_block.remove(block) {
            self.leaves(slot);
            self.clear(slot);
        }
        self.rotten.remove(&block);
    }

    /// What is in memory now is counted from now on.
    pub(super) fn watch(&mut self, until: u64) {
        self.watched_until = until;
        self.watched = self.blocks() - self.rotten.len() as u64;
    }

    /// How much of it is still there.
    pub(super) fn watched(&self) -> u64 {
        self.watched
    }

    /// A slot will not hold its block any more, or has turned out not to.
    fn leaves(&mut self, slot: u32) {
        let Slot { sequence, block, .. } = self.slots[slot as usize];
        if sequence <= self.watched_until && !self.rotten.contains(&block) && self.watched > 0 {
            self.watched -= 1;
        }
    }

    fn clear(&mut self, slot: u32) {
        for copy in 0..2 {
            self.store_word(NvramLayout::header_at(slot, copy), 0);
        }
        self.slots[slot as usize] = Slot::default();
        self.cleared.push(slot);
    }

    /// A copy of the head.
    pub(super) fn store_head(&mut self, head: &NvramHead, copy: usize) {
        self.store(NVRAM_HEAD_OFFSETS[copy] as usize, head.encode().bytes());
    }

    /// A copy that is as good as nothing yet.
    pub(super) fn store_head_without_magic(&mut self, head: &NvramHead, copy: usize) {
        let bytes = head.encode();
        self.store(NVRAM_HEAD_OFFSETS[copy] as usize + 8, &bytes.bytes()[8..]);
    }

    /// Takes the heads away: what is there is nobody's.
    pub(super) fn wipe_heads(&mut self) {
        for at in NVRAM_HEAD_OFFSETS {
            self.store_word(at as usize, 0);
        }
    }

    // ---- what is durable ----------------------------------------------------------------------

    /// What has been stored since the last time, in whole sectors, by address and without overlap.
    pub(super) fn take_stored(&mut self, sector_bytes: usize) -> Vec<Range<usize>> {
        let mut ranges = std::mem::take(&mut self.stored);
        for range in &mut ranges {
            range.start = range.start / sector_bytes * sector_bytes;
            range.end = range.end.next_multiple_of(sector_bytes);
        }
        ranges.sort_unstable_by_key(|range| range.start);
        ranges.dedup_by(|next, last| {
            let touches = next.start <= last.end;
            if touches {
                last.end = last.end.max(next.end);
            }
            touches
        });
        ranges
    }

    /// What has been stored so far is for a later persist than the next.
    pub(super) fn set_stored_aside(&mut self) {
        self.set_aside.append(&mut self.stored);
    }

    /// It is for the next one.
    pub(super) fn store_what_was_set_aside(&mut self) {
        self.stored.append(&mut self.set_aside);
    }

    /// Nobody asks what was stored: it is durable at once.
    pub(super) fn forget_stored(&mut self) {
        self.stored.clear();
    }

    /// What was cleared so far is so durably.
    pub(super) fn cleared_is_durable(&mut self) {
        self.free.extend(self.cleared.drain(..));
    }

    // ---- a start ------------------------------------------------------------------------------

    /// An empty medium: no header says anything. What follows a sequence of 0 is nothing.
    pub(super) fn make_empty(&mut self) {
        for slot in 0..self.slots.len() as u32 {
            for copy in 0..2 {
                if sequence_at(self.medium.bytes(), slot, copy) != 0 {
                    self.store_word(NvramLayout::header_at(slot, copy), 0);
                }
            }
            self.free.push_back(slot);
        }
    }

    /// All pages of headers that were ever in use are to be written again: what is read of a file
    /// or device behind a flush that failed need not be durable, nor ever become so by itself.
    pub(super) fn store_headers_again(&mut self) {
        const PAGE_BYTES: usize = CHUNK_SLOTS as usize * SLOT_HEADER_BYTES;
        for first in (0..self.slots.len() as u32).step_by(CHUNK_SLOTS as usize) {
            for copy in 0..2 {
                let at = NvramLayout::header_at(first, copy);
                let page = &self.medium.bytes()[at..at + PAGE_BYTES];
                if page.iter().any(|byte| *byte != 0) {
                    self.stored.push(at..at + PAGE_BYTES);
                }
            }
        }
    }

    /// Finds what is committed: each block's newest slot. All other slots are cleared; headers of
    /// which one copy is good are mended.
    pub(super) fn scan(&mut self, committed: u64) -> Scanned {
        let mut scanned = Scanned::default();
        for slot in 0..self.slots.len() as u32 {
            let (copies, newest) = newest_header(self.medium.bytes(), self.id, slot);
            let Some(header) = newest else {
                match copies {
                    [SlotCopy::Free, SlotCopy::Free] => self.free.push_back(slot),
                    [SlotCopy::Bad, SlotCopy::Bad] => {
                        scanned.uncommitted_slots += 1;
                        self.clear(slot);
                    }
                    _ => {
                        // One copy says that it is free, as both do before a slot is used again.
                        scanned.mended_headers += 1;
                        self.clear(slot);
                    }
                }
                continue;
            };
            if header.sequence > committed {
                // Of the batch that was under way: it never was.
                scanned.uncommitted_slots += 1;
                self.clear(slot);
                continue;
            }
            for (copy, found) in copies.iter().enumerate() {
                if *found != SlotCopy::Good(header) {
                    scanned.mended_headers += 1;
                    self.store_header(slot, &header, copy..copy + 1);
                }
            }
            let SlotHeader { sequence, block, data_checksum } = header;
            self.slots[slot as usize] = Slot { sequence, block, data_checksum };
            match self.by_block.get(block) {
                Some(other) if self.slots[other as usize].sequence >= sequence => self.clear(slot),
                Some(other) => {
                    self.by_block.insert(block, slot);
                    self.clear(other);
                }
                None => self.by_block.insert(block, slot),
            }
        }
        scanned.blocks = self.by_sequence();
        for at in 0..scanned.blocks.len() {
            let block = scanned.blocks[at].0;
            let _ = self.read(block);
        }
        scanned.blocks.retain(|block| !self.rotten.contains(&block.0));
        scanned
    }

    /// Blocks in memory, the one written longest ago first.
    fn by_sequence(&self) -> Vec<Lba> {
        let mut blocks: Vec<(u64, u64)> = Vec::new();
        for (index, slot) in self.slots.iter().enumerate() {
            if slot.sequence > 0 && self.by_block.get(slot.block) == Some(index as u32) {
                blocks.push((slot.sequence, slot.block));
            }
        }
        blocks.sort_unstable();
        blocks.into_iter().map(|(_, block)| Lba(block)).collect()
    }
}

/// A copy of the header of a slot.
pub(super) fn header_copy(bytes: &[u8], id: Uuid, slot: u32, copy: usize) -> SlotCopy {
    let at = NvramLayout::header_at(slot, copy);
    let bytes = &bytes[at..at + SLOT_HEADER_BYTES];
    SlotHeader::decode(id, slot, bytes.try_into().expect("a header"))
}

/// What a copy of a header begins with.
fn sequence_at(bytes: &[u8], slot: u32, copy: usize) -> u64 {
    let at = NvramLayout::header_at(slot, copy);
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Both copies of the header of a slot, and the one that counts.
fn newest_header(bytes: &[u8], id: Uuid, slot: u32) -> ([SlotCopy; 2], Option<SlotHeader>) {
    let copies = [0, 1].map(|copy| header_copy(bytes, id, slot, copy));
    let good = |copy: &SlotCopy| match copy {
        SlotCopy::Good(header) => Some(*header),
        _ => None,
    };
    let newest = copies.iter().filter_map(good).max_by_key(|header| header.sequence);
    (copies, newest)
}

/// What slots are examined for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) committed: u64,
    /// A crash may have torn headers with sequences up to this: of the batch under way.
    pub(super) torn_until: u64,
    pub(super) volume_blocks: u64,
}

/// What is in the slots of a medium.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Examined {
    /// Slots with something that is committed.
    pub(super) committed: u64,
    /// Slots with something, of which neither header can be read, and no crash explains that.
    pub(super) unnamed: u64,
    /// A block that the volume does not have.
    pub(super) beyond: Option<u64>,
}

/// Looks at all slots. Changes nothing.
pub(super) fn examine(bytes: &[u8], id: Uuid, slots: u32, terms: Terms) -> Examined {
    let mut examined = Examined::default();
    for slot in 0..slots {
        match newest_header(bytes, id, slot) {
            (_, Some(header)) if header.sequence > terms.committed => {}
            (_, Some(SlotHeader { block, .. })) => {
                examined.committed += 1;
                if block >= terms.volume_blocks {
                    examined.beyond = Some(block);
                }
            }
            // The word with the sequence is not torn: it is 0 in a slot that is filled anew.
            ([SlotCopy::Bad, SlotCopy::Bad], None) => {
                let torn = terms.committed + 1..=terms.torn_until;
                let is_torn = [0, 1].map(|copy| torn.contains(&sequence_at(bytes, slot, copy)));
                examined.unnamed += u64::from(is_torn != [true, true]);
            }
            (_, None) => {}
        }
    }
    examined
}

/// What of a range can be cleaned.
#[derive(Default, Debug)]
pub(super) struct GoodRuns {
    /// Whole logical blocks.
    pub(super) whole: Vec<LbaRange>,
    /// Logical blocks of which a part is in memory, and the rest below.
    pub(super) parts: Vec<LbaRange>,
}

/// What a start has found.
#[derive(Default, Debug)]
pub(super) struct Scanned {
    /// Good ones, the one written longest ago first.
    pub(super) blocks: Vec<Lba>,
    pub(super) uncommitted_slots: u64,
    pub(super) mended_headers: u64,
}
