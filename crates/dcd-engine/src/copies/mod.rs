//! Clean copies of lines of the data-disk in the read area of the cache-disk: which line is copied
//! where, and which copies are true.
//!
//! A copy is never the only place of anything. It is *valid* while it equals what the data-disk
//! holds or will hold once the log before it is destaged; every change of a line, as it enters the
//! log, makes all copies of it stale. Pages of slots belong to a [`Sequence`], which keeps its
//! lines in the order in which they are asked for, or to the hot blocks.
//!
//! Pages are counted from the end of the read area, and given out from the front. So the area can
//! become larger or smaller in front ([`crate::engine`]'s `resize.rs`) with each slot in its place;
//! pages that are to go are *retired*: given to nobody, and emptied.

pub(crate) mod clean_lines;
pub mod detector;
#[cfg(test)]
mod detector_tests;
mod ghost;
mod heads;
mod list;
pub mod s3_fifo;
pub mod scan_filter;
pub mod sequence;

use std::collections::{BTreeMap, BTreeSet};

use zerocopy::FromZeros;

use self::heads::Heads;
pub use self::sequence::Sequence;
use crate::buffer::Buffer;
use crate::format::checkpoint::CopyPageRef;
use crate::format::copy_page::{CopyEntry, CopyPage, CopyState, SequenceLabel};
use crate::format::geometry::COPIES_PER_PAGE;
use crate::growing_table::GrowingTable;
use crate::line_hash::LineHash;
use crate::units::{CopyPageIndex, CopySlot, Line, SequenceId, Uuid};

/// No slot: the end of a chain.
const NONE: u32 = 0;
/// Lines whose copies were given up since the last durable checkpoint: more are not remembered one
/// by one, a new checkpoint is asked for instead.
const DEPARTED_MAX: usize = 32 << 10;
/// The same is done when this part of the slots, but not less than so many, have got new copies.
const UNLISTED_PART: u64 = 8;
const UNLISTED_MIN: u64 = 4096;

/// What a slot holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromZeros)]
#[repr(u8)]
pub(crate) enum SlotState {
    /// Nothing.
    Empty = 0,
    /// A copy is being written. A change meanwhile makes it stale.
    Filling,
    /// A true copy.
    Valid,
    /// An older copy, or none yet, of a line that has its place here.
    Stale,
}

/// A slot. All zero: empty.
#[derive(Clone, Copy, Debug, FromZeros)]
pub(crate) struct Slot {
    /// Whose copy; without meaning if empty.
    line_number: u64,
    /// CRC-32C of what was copied here last.
    pub(crate) checksum: u32,
    /// Whether it is there and true.
    pub(crate) state: SlotState,
    /// A write of the slot is under way: it may not be given to another line.
    pub(crate) is_written: bool,
}

/// Whose slots those of a page are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    Nobody,
    HotBlocks,
    /// Part `ordinal` of a sequence.
    Sequence {
        id: SequenceId,
        ordinal: u32,
    },
}

/// Who uses a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PageUse {
    /// Nobody.
    Nobody,
    /// Nobody any more, but something is being written there.
    Written,
    /// Hot blocks.
    HotBlocks,
    /// A sequence.
    Sequence,
}

#[derive(Clone, Copy)]
struct Page {
    owner: Owner,
    /// As the newest durable checkpoint has it; the next is written to the other place.
    durable_generation: u64,
    durable_checksum: u32,
    /// Something has changed since it was encoded.
    is_dirty: bool,
    /// Encoded for a checkpoint under way, with this checksum.
    pictured: Option<u32>,
}

impl Slot {
    /// Whose copy; without meaning if empty.
    pub(crate) fn line(&self) -> Line {
        Line(self.line_number)
    }
}

impl Page {
    const UNUSED: Page = Page {
        owner: Owner::Nobody,
        durable_generation: 0,
        durable_checksum: 0,
        is_dirty: false,
        pictured: None,
    };
}

/// A page to be written for a checkpoint.
pub(crate) struct PageWrite {
    /// Which.
    pub(crate) page: CopyPageIndex,
    /// Its generation: tells the place.
    pub(crate) generation: u64,
    /// Its bytes.
    pub(crate) bytes: Buffer,
}

/// Counts for `status`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CopyCounts {
    /// All slots.
    pub slots: u64,
    /// Those with a true copy.
    pub valid: u64,
    /// Those that wait to be copied anew.
    pub stale: u64,
    /// Sequences that are kept.
    pub sequences: u64,
}

/// The read area.
pub(crate) struct Copies {
    hash: LineHash,
    uuid: Uuid,
    /// Those that there are, or were since the start.
    pages: Vec<Page>,
    /// Pages from this one on are given to nobody.
    limit: u32,
    slots: GrowingTable<Slot>,
    /// Chains of the slots that are not empty, by line: first of each bucket, next of each slot,
    /// each as its number and one; 0: none.
    heads: Heads,
    next: GrowingTable<u32>,
    sequences: BTreeMap<SequenceId, Sequence>,
    counts: CopyCounts,
    /// Lines that the newest durable checkpoint may list as valid, and that nothing in the log says
    /// otherwise of: given up since the picture for the next was taken, and before.
    departed: BTreeSet<Line>,
    departed_before_picture: BTreeSet<Line>,
    /// The same of all at once, who are too many to be named.
    all_departed: bool,
    all_departed_before_picture: bool,
    /// Copies made since the last picture: a crash now would lose them.
    unlisted: u64,
}

impl Copies {
    /// An empty read area of so many pages.
    pub(crate) fn new(uuid: Uuid, pages: u32, hash: LineHash) -> Copies {
        let slots = pages * COPIES_PER_PAGE;
        Copies {
            uuid,
            hash,
            pages: vec![Page::UNUSED; pages as usize],
            limit: pages,
            slots: GrowingTable::new(slots as usize),
            heads: Heads::new(buckets_for(pages)),
            next: GrowingTable::new(slots as usize),
            sequences: BTreeMap::new(),
            counts: CopyCounts { slots: slots.into(), ..CopyCounts::default() },
            departed: BTreeSet::new(),
            departed_before_picture: BTreeSet::new(),
            all_departed: false,
            all_departed_before_picture: false,
            unlisted: 0,
        }
    }

    /// Whether there is a read area, or was one since the start.
    pub(crate) fn is_on(&self) -> bool {
        !self.pages.is_empty()
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.pages.len() * size_of::<Page>()
            + self.slots.memory_bytes()
            + self.next.memory_bytes()
            + self.heads.memory_bytes()
    }

    // ---- another size -------------------------------------------------------------------------

    /// Adds pages until there are so many, for use.
    pub(crate) fn grow(&mut self, pages: u32) {
        let pages_known = self.pages.len().max(pages as usize);
        self.pages.resize(pages_known, Page::UNUSED);
        self.slots.set_len(pages_known * COPIES_PER_PAGE as usize);
        self.next.set_len(pages_known * COPIES_PER_PAGE as usize);
        self.limit_to(pages);
    }

    /// Lays the chains out for so many pages, some at a time. Tells whether that is done.
    pub(crate) fn fit_chains(&mut self, pages: u32) -> bool {
        let (hash, slots, next) = (self.hash, &self.slots, &mut self.next);
        let line_of = |slot: usize| slots[slot].line();
        self.heads.fit(buckets_for(pages), hash, line_of, |slot, head| {
            let behind = std::mem::replace(&mut next[slot], *head);
            *head = slot as u32 + 1;
            behind
        })
    }

    /// Gives pages from this one on to nobody any more, or again.
    pub(crate) fn limit_to(&mut self, pages: u32) {
        self.limit = pages;
        self.counts.slots = (pages * COPIES_PER_PAGE).into();
    }

    /// Whether a slot is of a page that is given to nobody any more.
    pub(crate) fn is_retired(&self, slot: CopySlot) -> bool {
        slot.0 / COPIES_PER_PAGE >= self.limit
    }

    /// How many pages there are, those that are retired included, or were since the start.
    pub(crate) fn pages_known(&self) -> u32 {
        self.pages.len() as u32
    }

    /// Who uses a page, so that it could not go.
    pub(crate) fn use_of(&self, page: CopyPageIndex) -> PageUse {
        match self.pages[page.0 as usize].owner {
            Owner::HotBlocks => PageUse::HotBlocks,
            Owner::Sequence { .. } => PageUse::Sequence,
            Owner::Nobody if self.is_page_written(page) => PageUse::Written,
            Owner::Nobody => PageUse::Nobody,
        }
    }

    fn is_page_written(&self, page: CopyPageIndex) -> bool {
        Copies::slots_of(page).any(|slot| self.slot(slot).is_written)
    }

    /// Gives the place of a page in its sequence to a free one. The lines are to be copied again.
    ///
    /// # Panics
    /// If the one is of no sequence, or the other is not free.
    pub(crate) fn move_page(&mut self, from: CopyPageIndex, to: CopyPageIndex) {
        let Owner::Sequence { id, ordinal } = self.pages[from.0 as usize].owner else {
            panic!("{from:?} is of no sequence");
        };
        assert_eq!(self.pages[to.0 as usize].owner, Owner::Nobody);
        let lines = Copies::slots_of(from).map(|slot| *self.slot(slot));
        let lines: Vec<Slot> = lines.collect();
        // By its owner the sequence counts what is stale.
        for slot in Copies::slots_of(from) {
            self.evict(slot);
        }
        self.pages[from.0 as usize].owner = Owner::Nobody;
        self.pages[to.0 as usize].owner = Owner::Sequence { id, ordinal };
        self.pages[to.0 as usize].is_dirty = true;
        let sequence = self.sequences.get_mut(&id).expect("a page has a sequence that is there");
        sequence.move_page(ordinal, to);
        for (slot, was) in Copies::slots_of(to).zip(lines) {
            if was.state != SlotState::Empty {
                self.give(slot, was.line());
            }
        }
    }

    /// Whether a page might become free if somebody waits: hot blocks are there, or something is
    /// being written.
    pub(crate) fn may_become_free(&self) -> bool {
        (0..self.limit).map(CopyPageIndex).any(|page| match self.use_of(page) {
            PageUse::HotBlocks | PageUse::Written | PageUse::Nobody => true,
            PageUse::Sequence => false,
        })
    }

    /// A page as the newest durable checkpoint names it, to be written elsewhere, too. Nothing if
    /// it names none, or if the next one writes the page.
    pub(crate) fn as_it_is_durable(&mut self, page: CopyPageIndex) -> Option<PageWrite> {
        let Page { owner, durable_generation: generation, durable_checksum, is_dirty, pictured } =
            self.pages[page.0 as usize];
        if owner == Owner::Nobody || is_dirty || pictured.is_some() {
            return None;
        }
        let (bytes, checksum) = self.encode(page, generation);
        // Some of what was read was not believed.
        let is_the_same = checksum == durable_checksum;
        self.pages[page.0 as usize].is_dirty = !is_the_same;
        is_the_same.then_some(PageWrite { page, generation, bytes })
    }

    /// How many slots are in use.
    pub(crate) fn counts(&self) -> CopyCounts {
        CopyCounts { sequences: self.sequences.len() as u64, ..self.counts }
    }

    /// A slot.
    pub(crate) fn slot(&self, slot: CopySlot) -> &Slot {
        &self.slots[slot.0 as usize]
    }

    // ---- from line to slot --------------------------------------------------------------------

    fn chain(&self, line: Line) -> impl Iterator<Item = CopySlot> + '_ {
        let mut at = if self.is_on() { self.heads.first(line, self.hash) } else { NONE };
        std::iter::from_fn(move || {
            while at != NONE {
                let slot = at - 1;
                at = self.next[slot as usize];
                if self.slots[slot as usize].line() == line {
                    return Some(CopySlot(slot));
                }
            }
            None
        })
    }

    /// The true copies of a line.
    pub(crate) fn valid(&self, line: Line) -> impl Iterator<Item = CopySlot> + '_ {
        self.chain(line).filter(|slot| self.slot(*slot).state == SlotState::Valid)
    }

    /// The slots of a line, whatever they hold.
    pub(crate) fn places(&self, line: Line) -> impl Iterator<Item = CopySlot> + '_ {
        self.chain(line)
    }

    /// Whether a line has a copy, or is getting one.
    pub(crate) fn contains(&self, line: Line) -> bool {
        let counts = |slot| matches!(self.slot(slot).state, SlotState::Valid | SlotState::Filling);
        self.chain(line).any(counts)
    }

    /// All are about to be given up without a record: until a checkpoint without them is durable,
    /// whoever changes one past the log has to say so there.
    pub(crate) fn all_depart(&mut self) {
        self.all_departed = true;
    }

    /// Whether the newest durable checkpoint may list a true copy of any of these lines, or the
    /// next one will. Then the lines may only change together with the log.
    pub(crate) fn may_be_listed(&self, line: Line, lines: u64) -> bool {
        if !self.is_on() {
            return false;
        }
        let end = Line(line.0.saturating_add(lines));
        self.all_departed
            || self.all_departed_before_picture
            || self.departed.range(line..end).next().is_some()
            || self.departed_before_picture.range(line..end).next().is_some()
            || (line.0..end.0).any(|line| self.contains(Line(line)))
    }

    fn set_state(&mut self, slot: CopySlot, state: SlotState) {
        let at = slot.0 as usize;
        let old = std::mem::replace(&mut self.slots[at].state, state);
        for (state, change) in [(old, u64::MAX), (state, 1)] {
            let count = match state {
                SlotState::Valid => &mut self.counts.valid,
                SlotState::Stale | SlotState::Filling => &mut self.counts.stale,
                SlotState::Empty => continue,
            };
            *count = count.wrapping_add(change);
        }
        self.unlisted += u64::from(state == SlotState::Valid);
        let page = &mut self.pages[at / COPIES_PER_PAGE as usize];
        page.is_dirty = true;
        if let Owner::Sequence { id, .. } = page.owner
            && let Some(sequence) = self.sequences.get_mut(&id)
        {
            sequence.state_changed(old, state);
        }
    }

    /// Gives an empty slot to a line; its copy is still to be made.
    ///
    /// # Panics
    /// If the slot is not empty or is being written.
    pub(crate) fn give(&mut self, slot: CopySlot, line: Line) {
        let at = slot.0 as usize;
        assert!(self.slots[at].state == SlotState::Empty && !self.slots[at].is_written);
        self.slots[at].line_number = line.0;
        self.slots[at].checksum = 0;
        let head = self.heads.first_mut(line, self.hash);
        self.next[at] = *head;
        *head = slot.0 + 1;
        self.set_state(slot, SlotState::Stale);
    }

    /// Gives up what is in a slot, although it may be true.
    pub(crate) fn evict(&mut self, slot: CopySlot) {
        if self.slot(slot).state == SlotState::Valid {
            self.depart(self.slot(slot).line());
        }
        self.clear(slot);
    }

    fn depart(&mut self, line: Line) {
        // A checkpoint is wanted by then, and takes its time.
        if self.departed.len() > 2 * DEPARTED_MAX {
            self.departed = BTreeSet::new();
            self.all_departed = true;
        }
        if !self.all_departed {
            self.departed.insert(line);
        }
    }

    fn clear(&mut self, slot: CopySlot) {
        let at = slot.0 as usize;
        if self.slots[at].state == SlotState::Empty {
            return;
        }
        self.set_state(slot, SlotState::Empty);
        let line = self.slots[at].line();
        let this = slot.0 + 1;
        let behind = self.next[at];
        let head = self.heads.first_mut(line, self.hash);
        if *head == this {
            *head = behind;
            return;
        }
        let mut link = *head as usize - 1;
        while self.next[link] != this {
            link = self.next[link] as usize - 1;
        }
        self.next[link] = behind;
    }

    /// A write of the copy starts.
    pub(crate) fn start_filling(&mut self, slot: CopySlot, checksum: u32) {
        self.slots[slot.0 as usize].checksum = checksum;
        self.slots[slot.0 as usize].is_written = true;
        self.set_state(slot, SlotState::Filling);
    }

    /// The write has ended. Tells whether the copy is true now.
    pub(crate) fn filled(&mut self, slot: CopySlot, is_written: bool) -> bool {
        self.slots[slot.0 as usize].is_written = false;
        if !is_written {
            self.slots[slot.0 as usize].checksum = 0;
        }
        if self.slot(slot).state != SlotState::Filling {
            return false;
        }
        let state = if is_written { SlotState::Valid } else { SlotState::Stale };
        self.set_state(slot, state);
        is_written
    }

    /// What the slot holds has been compared with the data-disk by its checksum, and is true.
    pub(crate) fn confirm(&mut self, slot: CopySlot) {
        self.set_state(slot, SlotState::Valid);
    }

    /// What the slot should hold cannot be read from it. The next time it perhaps can.
    pub(crate) fn damaged(&mut self, slot: CopySlot) {
        if self.slot(slot).state == SlotState::Valid {
            self.depart(self.slot(slot).line());
            self.slots[slot.0 as usize].checksum = 0;
            self.lose(slot);
        }
    }

    /// A copy is no longer true: it keeps its place in a sequence, hot blocks are given up.
    fn lose(&mut self, slot: CopySlot) {
        match self.pages[slot.0 as usize / COPIES_PER_PAGE as usize].owner {
            Owner::Sequence { .. } => self.set_state(slot, SlotState::Stale),
            Owner::HotBlocks | Owner::Nobody => self.clear(slot),
        }
    }

    /// A line has changed: none of its copies is true any more. Calls `lost` for each hot block.
    pub(crate) fn change(&mut self, line: Line, mut lost: impl FnMut(CopySlot)) {
        if !self.is_on() || self.counts.valid + self.counts.stale == 0 {
            return;
        }
        let mut at = self.heads.first(line, self.hash);
        while at != NONE {
            let slot = CopySlot(at - 1);
            at = self.next[slot.0 as usize];
            let held = *self.slot(slot);
            let state = held.state;
            if held.line() == line && matches!(state, SlotState::Valid | SlotState::Filling) {
                if self.is_hot(slot) {
                    lost(slot);
                }
                self.lose(slot);
            }
        }
    }

    /// The same for a run of lines, which may be longer than the disk.
    pub(crate) fn change_all(&mut self, line: Line, lines: u64, mut lost: impl FnMut(CopySlot)) {
        if self.counts.valid + self.counts.stale == 0 {
            return; // No slot is of any line.
        }
        if lines < self.slots.len() as u64 {
            return (line.0..line.0.saturating_add(lines))
                .for_each(|line| self.change(Line(line), &mut lost));
        }
        for slot in (0..self.slots.len() as u32).map(CopySlot) {
            let of = self.slot(slot).line();
            if self.slot(slot).state != SlotState::Empty && of >= line && of.0 - line.0 < lines {
                self.change(of, &mut lost);
            }
        }
    }

    /// Nothing is known of the copies any more: each is to be compared with the data-disk before it
    /// is believed again. Hot blocks are given up.
    pub(crate) fn doubt_all(&mut self) {
        for slot in (0..self.slots.len() as u32).map(CopySlot) {
            if matches!(self.slot(slot).state, SlotState::Valid | SlotState::Filling) {
                self.lose(slot);
            }
        }
    }

    /// Everything is given up.
    pub(crate) fn forget_all(&mut self) {
        for slot in (0..self.slots.len() as u32).map(CopySlot) {
            self.clear(slot);
        }
        for page in &mut self.pages {
            page.owner = Owner::Nobody;
        }
        self.sequences.clear();
    }

    // ---- pages --------------------------------------------------------------------------------

    /// Whether the slot holds a hot block.
    pub(crate) fn is_hot(&self, slot: CopySlot) -> bool {
        self.pages[slot.0 as usize / COPIES_PER_PAGE as usize].owner == Owner::HotBlocks
    }

    /// The slots of a page.
    pub(crate) fn slots_of(page: CopyPageIndex) -> impl Iterator<Item = CopySlot> {
        let first = page.0 * COPIES_PER_PAGE;
        (first..first + COPIES_PER_PAGE).map(CopySlot)
    }

    /// Pages that nobody uses, none of whose slots is being written, from the front.
    pub(crate) fn free_pages(&self) -> impl Iterator<Item = CopyPageIndex> + '_ {
        self.pages_of(Owner::Nobody)
            .filter(|page| page.0 < self.limit && !self.is_page_written(*page))
    }

    /// Pages of hot blocks.
    pub(crate) fn hot_pages(&self) -> impl Iterator<Item = CopyPageIndex> + '_ {
        self.pages_of(Owner::HotBlocks)
    }

    fn pages_of(&self, owner: Owner) -> impl Iterator<Item = CopyPageIndex> + '_ {
        let pages = self.pages.iter().enumerate().rev();
        let mine = pages.filter(move |(_, page)| page.owner == owner);
        mine.map(|(index, _)| CopyPageIndex(index as u32))
    }

    /// Number of pages, without those that are retired.
    pub(crate) fn pages(&self) -> u32 {
        self.limit
    }

    /// Gives a free page to the hot blocks.
    pub(crate) fn give_to_hot_blocks(&mut self, page: CopyPageIndex) {
        assert_eq!(self.pages[page.0 as usize].owner, Owner::Nobody);
        self.pages[page.0 as usize].owner = Owner::HotBlocks;
        self.pages[page.0 as usize].is_dirty = true;
    }

    /// Takes a page from whoever has it.
    pub(crate) fn take_page(&mut self, page: CopyPageIndex) {
        for slot in Copies::slots_of(page) {
            self.evict(slot);
        }
        self.pages[page.0 as usize].owner = Owner::Nobody;
    }

    // ---- sequences ----------------------------------------------------------------------------

    /// All sequences.
    pub(crate) fn sequences(&self) -> impl Iterator<Item = &Sequence> {
        self.sequences.values()
    }

    /// A sequence.
    pub(crate) fn sequence(&self, id: SequenceId) -> Option<&Sequence> {
        self.sequences.get(&id)
    }

    /// A sequence, to change what is known of it.
    pub(crate) fn sequence_mut(&mut self, id: SequenceId) -> Option<&mut Sequence> {
        let sequence = self.sequences.get_mut(&id)?;
        // Its first page carries its label.
        if let Some(first) = sequence.pages().first() {
            self.pages[first.0 as usize].is_dirty = true;
        }
        Some(sequence)
    }

    /// The sequence of that name.
    pub(crate) fn sequence_named(&self, name: &str) -> Option<&Sequence> {
        self.sequences.values().find(|sequence| sequence.label().name == name)
    }

    /// A number that no sequence has.
    pub(crate) fn unused_sequence_id(&self) -> SequenceId {
        let last = self.sequences.keys().next_back().map_or(0, |id| id.0);
        match last {
            u32::MAX => {
                let is_unused = |id: &u32| !self.sequences.contains_key(&SequenceId(*id));
                SequenceId((1..u32::MAX).find(is_unused).expect("fewer sequences than numbers"))
            }
            last => SequenceId(last + 1),
        }
    }

    /// Adds a sequence of these lines, in order, on these free pages. All are still to be copied.
    ///
    /// # Panics
    /// If a page is not free, or the pages are not as many as the lines need.
    pub(crate) fn add_sequence(
        &mut self,
        label: SequenceLabel,
        lines: &[Line],
        pages: &[CopyPageIndex],
    ) {
        assert_eq!(pages.len(), lines.len().div_ceil(COPIES_PER_PAGE as usize));
        let id = label.id;
        self.sequences.insert(id, Sequence::new(label, pages.to_vec(), lines.len() as u32));
        for (ordinal, (page, lines)) in
            pages.iter().zip(lines.chunks(COPIES_PER_PAGE as usize)).enumerate()
        {
            assert_eq!(self.pages[page.0 as usize].owner, Owner::Nobody);
            self.pages[page.0 as usize].owner = Owner::Sequence { id, ordinal: ordinal as u32 };
            for (slot, line) in Copies::slots_of(*page).zip(lines) {
                self.give(slot, *line);
            }
        }
    }

    /// Removes a sequence. Its pages are free.
    pub(crate) fn remove_sequence(&mut self, id: SequenceId) {
        let Some(sequence) = self.sequences.remove(&id) else { return };
        for page in sequence.pages() {
            self.take_page(*page);
        }
    }

    /// Which place of which sequence a slot is.
    pub(crate) fn place_of(&self, slot: CopySlot) -> Option<(SequenceId, u32)> {
        let (page, index) = (slot.0 / COPIES_PER_PAGE, slot.0 % COPIES_PER_PAGE);
        match self.pages[page as usize].owner {
            Owner::Sequence { id, ordinal } => Some((id, ordinal * COPIES_PER_PAGE + index)),
            Owner::HotBlocks | Owner::Nobody => None,
        }
    }

    // ---- checkpoints --------------------------------------------------------------------------

    /// Whether so many copies were made or given up that a checkpoint should say so.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        let unlisted_max = (self.counts.slots / UNLISTED_PART).max(UNLISTED_MIN);
        self.departed.len() > DEPARTED_MAX || self.all_departed || self.unlisted > unlisted_max
    }

    /// What a checkpoint lists, and what must be written for that. If the picture before has not
    /// become durable, it never will: its pages are written again, to the same places.
    pub(crate) fn picture(&mut self) -> (Vec<CopyPageRef>, Vec<PageWrite>) {
        self.unlisted = 0;
        let (mut listed, mut writes) = (Vec::new(), Vec::new());
        for index in 0..self.pages.len() {
            let has_failed = self.pages[index].pictured.take().is_some();
            self.pages[index].is_dirty |= has_failed;
            let Page { owner, durable_generation, durable_checksum, is_dirty, .. } =
                self.pages[index];
            let page = CopyPageIndex(index as u32);
            if owner == Owner::Nobody {
                continue;
            }
            if !is_dirty {
                let (generation, checksum) = (durable_generation, durable_checksum);
                listed.push(CopyPageRef { page, generation, checksum });
                continue;
            }
            let generation = durable_generation + 1;
            let (bytes, checksum) = self.encode(page, generation);
            listed.push(CopyPageRef { page, generation, checksum });
            writes.push(PageWrite { page, generation, bytes });
            self.pages[index].pictured = Some(checksum);
            self.pages[index].is_dirty = false;
        }
        self.departed_before_picture.append(&mut self.departed);
        self.all_departed_before_picture |= std::mem::take(&mut self.all_departed);
        (listed, writes)
    }

    fn encode(&self, page: CopyPageIndex, generation: u64) -> (Buffer, u32) {
        let sequence = match self.pages[page.0 as usize].owner {
            Owner::Sequence { id, ordinal } => Some((self.sequences[&id].label().clone(), ordinal)),
            Owner::HotBlocks | Owner::Nobody => None,
        };
        let entries = Copies::slots_of(page).map(|slot| {
            let held = *self.slot(slot);
            let (line, checksum) = (held.line(), held.checksum);
            let state = match held.state {
                SlotState::Empty => return None,
                SlotState::Valid => CopyState::Valid,
                // A hot block has no place to keep.
                SlotState::Filling | SlotState::Stale if sequence.is_none() => return None,
                SlotState::Filling | SlotState::Stale => CopyState::Stale,
            };
            Some(CopyEntry { line, checksum, state })
        });
        let entries = entries.collect();
        CopyPage { uuid: self.uuid, page, generation, sequence, entries }.encode()
    }

    /// The checkpoint of the last picture is durable.
    pub(crate) fn picture_durable(&mut self) {
        for page in &mut self.pages {
            if let Some(checksum) = page.pictured.take() {
                page.durable_generation += 1;
                page.durable_checksum = checksum;
            }
        }
        self.departed_before_picture.clear();
        self.all_departed_before_picture = false;
    }

    /// Takes over a page that a checkpoint names, as it was read. A page whose sequence does not
    /// fit to the others is left out.
    pub(crate) fn load(&mut self, reference: &CopyPageRef, page: CopyPage, line_end: Line) {
        let at = reference.page.0 as usize;
        self.pages[at].durable_generation = reference.generation;
        self.pages[at].durable_checksum = reference.checksum;
        self.pages[at].owner = match page.sequence {
            None => Owner::HotBlocks,
            Some((label, ordinal)) => {
                let id = label.id;
                let sequence = self.sequences.entry(id).or_insert_with(|| Sequence::loaded(label));
                if !sequence.load_page(ordinal, reference.page) {
                    return self.pages[at].is_dirty = true;
                }
                Owner::Sequence { id, ordinal }
            }
        };
        for (slot, entry) in Copies::slots_of(reference.page).zip(page.entries) {
            let Some(CopyEntry { line, checksum, state }) = entry else { continue };
            // A disk that has shrunk was refused; a forged page is not believed.
            if line >= line_end {
                continue;
            }
            self.give(slot, line);
            self.slots[slot.0 as usize].checksum = checksum;
            if state == CopyState::Valid {
                self.set_state(slot, SlotState::Valid);
            }
        }
        self.pages[at].is_dirty = false;
    }

    /// A page that a checkpoint names cannot be read: what it listed is gone.
    pub(crate) fn lost(&mut self, reference: &CopyPageRef) {
        let page = &mut self.pages[reference.page.0 as usize];
        page.durable_generation = reference.generation;
        page.durable_checksum = reference.checksum;
    }

    /// All pages that could be read are loaded: sequences that lack some begin or end earlier.
    pub(crate) fn loaded(&mut self) {
        let ids: Vec<SequenceId> = self.sequences.keys().copied().collect();
        for id in ids {
            let sequence = self.sequences.get_mut(&id).expect("listed");
            let has_changed = sequence.close_gaps();
            if sequence.pages().is_empty() {
                self.sequences.remove(&id);
                continue;
            }
            if !has_changed {
                continue;
            }
            let sequence = &self.sequences[&id];
            for (ordinal, page) in sequence.pages().to_vec().into_iter().enumerate() {
                let ordinal = ordinal as u32;
                self.pages[page.0 as usize].owner = Owner::Sequence { id, ordinal };
                self.pages[page.0 as usize].is_dirty = true;
            }
        }
    }

    /// Whether everything counted is there.
    ///
    /// # Panics
    /// If not.
    pub(crate) fn check_invariants(&self) {
        if !self.is_on() {
            return;
        }
        let (mut valid, mut stale) = (0, 0);
        for (index, page) in self.pages.iter().enumerate() {
            for slot in Copies::slots_of(CopyPageIndex(index as u32)) {
                let state = self.slot(slot).state;
                valid += u64::from(state == SlotState::Valid);
                stale += u64::from(matches!(state, SlotState::Stale | SlotState::Filling));
                assert!(page.owner != Owner::Nobody || state == SlotState::Empty, "{slot:?}");
            }
        }
        assert_eq!((self.counts.valid, self.counts.stale), (valid, stale));
        // Each slot that is not empty is in the chain of its line, and nothing else is in any.
        let mut chained = 0;
        for (place, head) in self.heads.all() {
            let next =
                |slot: &u32| Some(self.next[*slot as usize - 1]).filter(|next| *next != NONE);
            for slot in std::iter::successors(Some(*head).filter(|head| *head != NONE), next) {
                let slot = slot - 1;
                let (line, state) =
                    (self.slots[slot as usize].line(), self.slots[slot as usize].state);
                assert!(state != SlotState::Empty, "slot {slot}");
                assert_eq!(self.heads.place(line, self.hash), place, "slot {slot}");
                chained += 1;
                assert!(chained <= valid + stale, "a slot is chained twice");
            }
        }
        assert_eq!(chained, valid + stale);
        for sequence in self.sequences.values() {
            let stale = sequence.pages().iter().flat_map(|page| Copies::slots_of(*page));
            let stale = stale.filter(|slot| {
                matches!(self.slot(*slot).state, SlotState::Stale | SlotState::Filling)
            });
            assert_eq!(sequence.stale(), stale.count() as u32, "{}", sequence.label().name);
        }
    }
}

/// Buckets of a read area of so many pages.
fn buckets_for(pages: u32) -> usize {
    match pages {
        0 => 0,
        _ => (pages * COPIES_PER_PAGE).next_power_of_two() as usize,
    }
}
