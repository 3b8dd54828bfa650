//! The lookup table: cache line -> where its newest fragments are (USENIX'99 section 3.3).
//!
//! A [`LineMap`] with ten bytes an entry, and four bytes of checksum for each slot. A line whose
//! fragments lie in one slot, the common case, needs only its entry; one that is scattered over
//! several has an extra `Scattered` entry. Memory follows what is in the log: about 17 bytes for a
//! line, and little for a large cache that holds little.
//!
//! A line that is not in the table is not in the log, unless the table has a budget: then memory
//! holds what has changed since the newest durable checkpoint and what is pinned, and everything
//! else is as that checkpoint lists it ([`super::paging`]).

use std::ops::Range;

use crate::format::checkpoint::LiveSlot;
use crate::growing_table::GrowingTable;
use crate::line_hash::LineHash;
use crate::line_map::{LineMap, LineValue};
use crate::log::index_run::{IndexPage, IndexRun};
pub(crate) use crate::log::paging::IndexBudget;
use crate::log::paging::Paging;
use crate::log::regions::Regions;
use crate::log::since_checkpoint::SinceCheckpoint;
use crate::log::sweep::LineRanges;
use crate::units::{FragmentMask, Line, SlotIndex};

/// Marks a place that is a number in `Scattered`.
const SCATTERED: u32 = 1 << 31;
/// Lines that are looked up in a row.
const IN_A_ROW: usize = 8;
/// No slot.
const NO_SLOT: u32 = u32::MAX;

/// Where a line is: five bytes without padding.
#[derive(Clone, Copy)]
struct Place {
    /// Fragments that are in the log: some.
    mask: FragmentMask,
    /// The slot that holds them, or which of the scattered lines it is.
    slot: [u8; 4],
}

impl LineValue for Place {
    const NONE: Place = Place { mask: FragmentMask::NONE, slot: [0; 4] };

    fn is_none(&self) -> bool {
        self.mask.is_empty()
    }
}

impl Place {
    fn new(mask: FragmentMask, slot: u32) -> Place {
        Place { mask, slot: slot.to_le_bytes() }
    }

    fn slot(self) -> u32 {
        u32::from_le_bytes(self.slot)
    }
}

/// Where the fragments of one line are: at most eight slots, each with the fragments it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pieces {
    pieces: [(SlotIndex, FragmentMask); 8],
    count: u8,
}

impl Pieces {
    fn push(&mut self, slot: SlotIndex, mask: FragmentMask) {
        self.pieces[usize::from(self.count)] = (slot, mask);
        self.count += 1;
    }

    /// The pieces.
    pub fn as_slice(&self) -> &[(SlotIndex, FragmentMask)] {
        &self.pieces[..usize::from(self.count)]
    }

    /// All fragments that are somewhere.
    pub(crate) fn mask(&self) -> FragmentMask {
        self.as_slice().iter().fold(FragmentMask::NONE, |all, (_, mask)| all.or(*mask))
    }
}

/// Slots that lost their last live fragment: at most eight.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeadSlots {
    slots: [SlotIndex; 8],
    count: u8,
}

impl DeadSlots {
    fn push(&mut self, slot: SlotIndex) {
        self.slots[usize::from(self.count)] = slot;
        self.count += 1;
    }

    /// The slots.
    pub(crate) fn as_slice(&self) -> &[SlotIndex] {
        &self.slots[..usize::from(self.count)]
    }
}

/// Slot numbers of the eight fragments of each line that is scattered over several slots.
#[derive(Default)]
struct Scattered {
    lines: Vec<[u32; 8]>,
    free: Vec<u32>,
}

impl Scattered {
    fn pieces(&self, place: Place) -> Pieces {
        let mut pieces = Pieces::default();
        if place.slot() & SCATTERED == 0 {
            pieces.push(SlotIndex(place.slot()), place.mask);
            return pieces;
        }
        let slots = &self.lines[(place.slot() & !SCATTERED) as usize];
        for (fragment, slot) in slots.iter().enumerate() {
            if *slot == NO_SLOT {
                continue;
            }
            let bit = FragmentMask(1 << fragment);
            let count = usize::from(pieces.count);
            match pieces.pieces[..count].iter_mut().find(|(known, _)| known.0 == *slot) {
                Some((_, mask)) => *mask = mask.or(bit),
                None => pieces.push(SlotIndex(*slot), bit),
            }
        }
        pieces
    }

    /// Where a line with these pieces is.
    fn place(&mut self, pieces: &Pieces) -> Place {
        let slot = match pieces.as_slice() {
            [(slot, _)] => slot.0,
            several => {
                let mut slots = [NO_SLOT; 8];
                for (slot, mask) in several {
                    for fragment in mask.indices() {
                        slots[fragment] = slot.0;
                    }
                }
                SCATTERED | self.add(slots)
            }
        };
        Place::new(pieces.mask(), slot)
    }

    fn add(&mut self, slots: [u32; 8]) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.lines[index as usize] = slots;
                index
            }
            None => {
                // Not twice as much at a time: `--memory-max` has counted what it may need.
                if self.lines.len() == self.lines.capacity() {
                    self.lines.reserve_exact(self.lines.len() / 8 + 64);
                }
                self.lines.push(slots);
                (self.lines.len() - 1) as u32
            }
        }
    }

    /// The line is not there any more.
    fn release(&mut self, place: Place) {
        if place.slot() & SCATTERED != 0 {
            self.free.push(place.slot() & !SCATTERED);
        }
    }

    fn memory_bytes(&self) -> usize {
        self.lines.capacity() * size_of::<[u32; 8]>() + self.free.capacity() * size_of::<u32>()
    }
}

/// The table.
pub struct LookupTable {
    hash: LineHash,
    lines: LineMap<Place>,
    lines_max: usize,
    regions: Regions,
    scattered: Scattered,
    /// CRC-32C of each slot, live or not; see [`LookupTable::checksum`]. With a budget they are
    /// elsewhere.
    slot_checksums: GrowingTable<u32>,
    /// If it has a budget.
    paging: Option<Box<Paging>>,
    /// Of each walker, the first bucket that it has not visited.
    walks: [Option<usize>; Walker::COUNT],
    since_checkpoint: Option<Box<SinceCheckpoint>>,
}

/// Who walks the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Walker {
    /// What gathers a checkpoint.
    Checkpoint,
    /// What carries out a large discard.
    Purge,
    /// A start, which drops what was announced.
    Start,
    /// Destaging, which looks for the lines of a segment.
    Destage,
}

impl Walker {
    /// How many there are.
    pub(crate) const COUNT: usize = 4;
}

impl LookupTable {
    /// A table for a cache of `slots` slots, of which at most `data_slots` hold data, and a
    /// data-disk of so many lines.
    pub fn new(slots: u32, data_slots: u32, disk_lines: u64, hash: LineHash) -> LookupTable {
        LookupTable::with_budget(slots, data_slots, disk_lines, hash, None)
    }

    /// The same with a budget.
    pub(crate) fn with_budget(
        slots: u32,
        data_slots: u32,
        disk_lines: u64,
        hash: LineHash,
        budget: Option<IndexBudget>,
    ) -> LookupTable {
        let paging = |budget| Box::new(Paging::new(data_slots as usize, hash, budget));
        LookupTable {
            hash,
            lines: LineMap::new(data_slots as usize, hash),
            lines_max: data_slots as usize,
            regions: Regions::new(disk_lines),
            scattered: Scattered::default(),
            slot_checksums: match budget {
                Some(_) => GrowingTable::new(0),
                None => GrowingTable::new(slots as usize),
            },
            paging: budget.map(paging),
            walks: [None; Walker::COUNT],
            since_checkpoint: None,
        }
    }

    /// Remembers from here on which lines a start may find that are not in the table any more.
    pub(crate) fn remember_since_checkpoint(&mut self) {
        self.since_checkpoint = Some(Box::new(SinceCheckpoint::new()));
    }

    /// See there.
    pub(crate) fn since_checkpoint(&mut self) -> Option<&mut SinceCheckpoint> {
        self.since_checkpoint.as_deref_mut()
    }

    /// Whether a start may find any of these lines: if it is not remembered, it may.
    pub(crate) fn may_come_back(&self, lines: Range<Line>) -> bool {
        self.since_checkpoint.as_ref().is_none_or(|since| since.may_have(lines.clone()))
            || !self.lines_within(lines).is_empty()
    }

    /// A table of the same size without lines, for a run whose lines are in another order.
    pub(crate) fn emptied_for(&self, hash: LineHash) -> LookupTable {
        let (slots, data_slots) = (self.slot_checksums.len() as u32, self.lines_max as u32);
        let since = || Box::new(SinceCheckpoint::unknown());
        LookupTable {
            regions: self.regions.emptied(),
            since_checkpoint: self.since_checkpoint.as_ref().map(|_| since()),
            ..LookupTable::with_budget(slots, data_slots, 0, hash, self.budget())
        }
    }

    /// A table of the same size without lines.
    pub(crate) fn emptied(&self) -> LookupTable {
        self.emptied_for(self.hash)
    }

    /// The cache has so many slots from now on, of which so many hold data at most. Buckets stay as
    /// many as they are: with more lines each is larger. `budget`: what the settings give for that.
    pub(crate) fn set_slots(&mut self, slots: u32, data_slots: u32, budget: Option<IndexBudget>) {
        match (&mut self.paging, budget) {
            (Some(paging), Some(budget)) => paging.set_budget(budget),
            (Some(_), None) => {}
            (None, _) => self.slot_checksums.set_len(slots as usize),
        }
        self.lines_max = data_slots as usize;
    }

    /// Lines in the table: all of them are newer than the data-disk.
    pub fn lines(&self) -> usize {
        self.paging.as_ref().map_or(self.lines.lines(), |paging| paging.lines)
    }

    /// Whether there is no room for another line.
    pub fn is_full(&self) -> bool {
        self.lines() == self.lines_max
    }

    /// Bytes of memory; of what is kept by bucket also that which nothing has touched.
    pub fn memory_bytes(&self) -> usize {
        self.lines.memory_bytes()
            + self.scattered.memory_bytes()
            + self.slot_checksums.memory_bytes()
            + self.paging.as_ref().map_or(0, |paging| paging.memory_bytes())
    }

    /// Whether the line is in the log, at least in part.
    ///
    /// # Panics
    /// If that is not known: see [`LookupTable::pin`].
    pub(crate) fn contains(&self, line: Line) -> bool {
        self.assert_known(line);
        self.lines.get(line).is_some()
    }

    /// Where the fragments of `line` are; no pieces if it is not in the log.
    ///
    /// # Panics
    /// If that is not known: see [`LookupTable::pin`].
    pub fn find(&self, line: Line) -> Pieces {
        self.assert_known(line);
        self.find_in_memory(line)
    }

    /// The same, or no pieces if it is not known.
    pub(crate) fn find_if_known(&self, line: Line) -> Pieces {
        match self.is_known(line) {
            true => self.find_in_memory(line),
            false => Pieces::default(),
        }
    }

    fn assert_known(&self, line: Line) {
        assert!(self.is_known(line), "what is not known of {line:?} is not looked for");
    }

    /// The same of each of these lines, some looked up in a row: that takes less time.
    ///
    /// # Panics
    /// If that of one is not known.
    pub(crate) fn find_each(
        &self,
        mut lines: impl Iterator<Item = Line>,
    ) -> impl Iterator<Item = Pieces> {
        let mut places = [None; IN_A_ROW];
        let mut found = 0..0;
        std::iter::from_fn(move || {
            if found.is_empty() {
                let mut row = [lines.next()?; IN_A_ROW];
                let mut count = 1;
                for line in lines.by_ref().take(IN_A_ROW - 1) {
                    row[count] = line;
                    count += 1;
                }
                row.iter().for_each(|line| self.assert_known(*line));
                places = self.lines.get_each(&row);
                found = 0..count;
            }
            let place = places[found.next()?];
            Some(place.map_or_else(Pieces::default, |place| self.scattered.pieces(place)))
        })
    }

    fn find_in_memory(&self, line: Line) -> Pieces {
        self.lines.get(line).map_or_else(Pieces::default, |place| self.scattered.pieces(place))
    }

    /// Checksum of a slot that [`LookupTable::insert`] was told.
    pub(crate) fn checksum(&self, slot: SlotIndex) -> u32 {
        match &self.paging {
            Some(paging) => paging.checksum(slot),
            None => self.slot_checksums[slot.0 as usize],
        }
    }

    fn set_checksum(&mut self, slot: SlotIndex, checksum: u32) {
        match &mut self.paging {
            Some(paging) => paging.set_checksum(slot, checksum),
            None => self.slot_checksums[slot.0 as usize] = checksum,
        }
    }

    /// A line has changed: slots of it died, and it came to the log, or left it.
    fn line_changed(&mut self, line: Line, dead: &DeadSlots, came: bool, left: bool) {
        if let Some(paging) = &mut self.paging {
            paging.change(line, !left);
            dead.as_slice().iter().for_each(|slot| paging.drop_checksum(*slot));
            paging.lines = paging.lines + usize::from(came) - usize::from(left);
        }
    }

    /// The fragments `mask` of `line` are now in `slot`. Returns slots that died by it. One that is
    /// written again holds what it held, too: the mask is of both.
    ///
    /// # Panics
    /// If the mask is empty, the line number has more than 40 bits, or the table is full, which
    /// cannot be while every line has a slot of its own.
    pub fn insert(
        &mut self,
        line: Line,
        mask: FragmentMask,
        slot: SlotIndex,
        checksum: u32,
    ) -> DeadSlots {
        assert!(!mask.is_empty() && slot.0 < SCATTERED);
        self.assert_known(line);
        if let Some(since) = &mut self.since_checkpoint {
            since.note(line);
        }
        self.set_checksum(slot, checksum);
        let mut dead = DeadSlots::default();
        let Some(place) = self.lines.get_or_insert(line, Place::new(mask, slot.0)) else {
            self.line_changed(line, &dead, true, false);
            assert!(self.lines() <= self.lines_max, "more lines than slots");
            self.regions.add(line);
            return dead;
        };
        let mut pieces = Pieces::default();
        for (old_slot, old_mask) in self.scattered.pieces(*place).as_slice() {
            match old_mask.without(mask) {
                FragmentMask::NONE if *old_slot == slot => {}
                FragmentMask::NONE => dead.push(*old_slot),
                rest => pieces.push(*old_slot, rest),
            }
        }
        pieces.push(slot, mask);
        self.scattered.release(*place);
        *place = self.scattered.place(&pieces);
        self.line_changed(line, &dead, false, false);
        dead
    }

    /// The fragments `mask` of `line` are no longer in the log. Returns slots that died by it.
    ///
    /// # Panics
    /// If it is not known where they are: see [`LookupTable::pin`].
    pub(crate) fn remove(&mut self, line: Line, mask: FragmentMask) -> DeadSlots {
        self.assert_known(line);
        let mut dead = DeadSlots::default();
        let Some(place) = self.lines.get_mut(line) else { return dead };
        if let Some(since) = &mut self.since_checkpoint {
            since.note(line);
        }
        let mut pieces = Pieces::default();
        for (slot, old_mask) in self.scattered.pieces(*place).as_slice() {
            match old_mask.without(mask) {
                FragmentMask::NONE => dead.push(*slot),
                rest => pieces.push(*slot, rest),
            }
        }
        self.scattered.release(*place);
        let is_left = pieces.count == 0;
        if is_left {
            self.lines.remove(line);
            self.regions.remove(line);
        } else {
            *place = self.scattered.place(&pieces);
        }
        self.line_changed(line, &dead, false, is_left);
        dead
    }

    /// Those of `lines` that may be in the log, as parts of a range: what is not among them is not.
    pub(crate) fn may_hold(&self, lines: Range<Line>) -> impl Iterator<Item = Range<Line>> {
        self.regions.may_hold(lines)
    }

    /// The data-disk has so many lines now, which are not fewer.
    pub(crate) fn set_disk_lines(&mut self, disk_lines: u64) {
        self.regions.grow(disk_lines);
    }

    /// Lines of a region of the data-disk, and how many lines of each region are in the log.
    pub(crate) fn regions(&self) -> (u64, &[u32]) {
        self.regions.counts()
    }

    /// Shows the lines of the next buckets from this one on, until there were `most` or more, and
    /// tells where to go on. Nobody has to begin or end it, and nothing is kept of it: a line that
    /// comes or goes meanwhile may be seen or not.
    pub(crate) fn look_from(
        &self,
        bucket: usize,
        most: usize,
        mut visit: impl FnMut(Line),
    ) -> Option<usize> {
        let (mut next, mut visited) = (bucket, 0);
        while visited < most {
            let bucket = self.lines.bucket_from(next)?;
            for (line, _) in self.lines.bucket(bucket) {
                visit(line);
                visited += 1;
            }
            next = bucket + 1;
        }
        Some(next)
    }

    /// Whether more than `most` lines have to be looked at to find those that are in the log: lines
    /// that may be, or all of the table, whichever are fewer.
    pub(crate) fn must_look_at_more(&self, lines: Range<Line>, most: u64) -> bool {
        if self.has_budget() {
            // More are not pinned.
            return lines.end.0 - lines.start.0 > most && self.may_hold(lines).next().is_some();
        }
        self.lines() as u64 > most && self.may_hold_more(lines, most)
    }

    fn may_hold_more(&self, lines: Range<Line>, most: u64) -> bool {
        let mut sum = 0;
        self.may_hold(lines).any(|part| {
            sum += part.end.0 - part.start.0;
            sum > most
        })
    }

    /// Which of `lines` are in the log. Looks at no more than [`LookupTable::must_look_at_more`]
    /// says: never at the whole of a table that is nearly empty.
    pub(crate) fn lines_within(&self, lines: Range<Line>) -> Vec<Line> {
        if self.paging.is_none() && self.may_hold_more(lines.clone(), self.lines() as u64) {
            let held = self.lines.iter().map(|(line, _)| line);
            held.filter(|line| lines.contains(line)).collect()
        } else {
            let parts = self.may_hold(lines);
            let each = parts.flat_map(|part| (part.start.0..part.end.0).map(Line));
            each.filter(|line| self.contains(*line)).collect()
        }
    }

    /// Begins a walk of the table, in place of one of the same walker that is under way.
    pub(crate) fn begin_walk(&mut self, walker: Walker) {
        self.walks[walker as usize] = Some(0);
    }

    /// Nobody goes on with the walk.
    pub(crate) fn end_walk(&mut self, walker: Walker) {
        self.walks[walker as usize] = None;
    }

    /// Visits the next `count` lines of the walk, and the others of the last one's bucket, and
    /// tells whether there are more. No line is visited twice, since none leaves its bucket; one
    /// that is in the table from beginning to end is, with its pieces as they are then.
    ///
    /// # Panics
    /// If no walk was begun.
    pub(crate) fn walk(
        &mut self,
        walker: Walker,
        count: usize,
        mut visit: impl FnMut(&LookupTable, Line, Pieces),
    ) -> bool {
        let mut next = self.walks[walker as usize].expect("a walk was begun");
        let mut visited = 0;
        let has_more = loop {
            let Some(bucket) = self.lines.bucket_from(next) else { break false };
            if visited >= count {
                break true;
            }
            for (line, place) in self.lines.bucket(bucket) {
                visit(self, line, self.scattered.pieces(place));
                visited += 1;
            }
            next = bucket + 1;
        };
        self.walks[walker as usize] = has_more.then_some(next);
        has_more
    }

    // ---- within a budget ----------------------------------------------------------------------

    /// Whether it has a budget.
    pub(crate) fn has_budget(&self) -> bool {
        self.paging.is_some()
    }

    /// Whether all there is to know of a line is in memory.
    pub(crate) fn is_known(&self, line: Line) -> bool {
        self.paging.as_ref().is_none_or(|paging| paging.is_known(line))
    }

    /// Keeps what is known of a line in memory until [`LookupTable::unpin`], or tells the pages of
    /// the run that have to be read, and given to [`LookupTable::load`], first.
    pub(crate) fn pin(&mut self, line: Line) -> Result<(), Range<IndexPage>> {
        let Some(paging) = &mut self.paging else { return Ok(()) };
        // With no line in the log there is nothing to find out, and perhaps nobody to ask.
        if !paging.is_known(line) && paging.lines > 0 {
            let pages = paging.run().pages_of(self.hash.order(line.0));
            if !pages.is_empty() {
                return Err(pages);
            }
        }
        paging.pin(line);
        Ok(())
    }

    /// The same of a line that is known.
    pub(crate) fn keep(&mut self, line: Line) {
        self.pin(line).expect("it is known");
    }

    /// One pin less.
    pub(crate) fn unpin(&mut self, line: Line) {
        if self.paging.as_mut().is_some_and(|paging| paging.unpin(line)) {
            self.evict(line);
        }
    }

    /// The line is listed like this: what those pages have of it, in at most eight slots.
    pub(crate) fn load(&mut self, line: Line, listed: impl Iterator<Item = LiveSlot>) {
        let paging = self.paging.as_mut().expect("with a budget");
        assert!(!paging.is_known(line), "what is known is newer");
        paging.loaded(line);
        let mut pieces = Pieces::default();
        for LiveSlot { mask, slot, checksum, .. } in listed.filter(|live| !live.mask.is_empty()) {
            pieces.push(slot, mask);
            paging.set_checksum(slot, checksum);
        }
        if pieces.count > 0 {
            let place = self.scattered.place(&pieces);
            assert!(self.lines.get_or_insert(line, place).is_none(), "it was not known");
        }
    }

    /// It is in memory no more: as the run has it.
    fn evict(&mut self, line: Line) {
        let paging = self.paging.as_mut().expect("with a budget");
        paging.forget(line);
        if let Some(place) = self.lines.remove(line) {
            for (slot, _) in self.scattered.pieces(place).as_slice() {
                paging.drop_checksum(*slot);
            }
            self.scattered.release(place);
        }
    }

    /// The run that is read.
    pub(crate) fn run(&self) -> Option<&IndexRun> {
        self.paging.as_ref().map(|paging| paging.run())
    }

    /// See [`IndexBudget`].
    pub(crate) fn budget(&self) -> Option<IndexBudget> {
        self.paging.as_ref().map(|paging| paging.budget())
    }

    /// Whether so much has changed that a checkpoint is due.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        self.paging.as_ref().is_some_and(|paging| paging.wants_checkpoint())
    }

    /// Whether so much has changed that whoever changes more has to wait for it, or for the next
    /// part of that under way.
    pub(crate) fn is_over_budget(&self) -> bool {
        self.paging.as_ref().is_some_and(|paging| paging.is_over_budget())
    }

    /// The first bucket from this one on that has something in memory.
    pub(crate) fn bucket_from(&self, bucket: usize) -> Option<usize> {
        self.paging.as_ref()?.bucket_from(bucket)
    }

    /// The bucket of a line: those of the run come in the order of buckets.
    pub(crate) fn bucket_of(&self, line: Line) -> usize {
        self.paging.as_ref().map_or(0, |paging| paging.bucket_of(line))
    }

    /// Where a line comes in the run.
    pub(crate) fn order(&self, line: Line) -> u64 {
        self.hash.order(line.0)
    }

    /// A bucket for a checkpoint: `listed` is what the run has of it. What `is_behind` is left out.
    /// In the order of the run.
    pub(crate) fn merge_bucket(
        &mut self,
        bucket: usize,
        listed: &[LiveSlot],
        is_behind: impl Fn(SlotIndex) -> bool,
    ) -> Vec<LiveSlot> {
        let paging = self.paging.as_mut().expect("with a budget");
        let mut merged = listed.to_vec();
        merged.retain(|live| !paging.is_in_memory(live.line));
        merged.retain(|live| !paging.is_void(live.line));
        let mut behind = Vec::new();
        for (line, place) in self.lines.bucket(bucket) {
            for (slot, mask) in self.scattered.pieces(place).as_slice() {
                if is_behind(*slot) {
                    behind.push(line);
                } else {
                    let checksum = paging.checksum(*slot);
                    merged.push(LiveSlot { line, mask: *mask, slot: *slot, checksum });
                }
            }
        }
        behind.sort_unstable();
        paging.bucket_gathered(bucket, &behind);
        let hash = self.hash;
        merged.sort_unstable_by_key(|live| (hash.order(live.line.0), live.line, live.slot));
        merged
    }

    /// A checkpoint is begun: see [`LookupTable::is_over_budget`].
    pub(crate) fn checkpoint_begun(&mut self) {
        if let Some(paging) = &mut self.paging {
            paging.checkpoint_begun();
        }
    }

    /// All of it has been gathered.
    pub(crate) fn checkpoint_gathered(&mut self) {
        if let Some(paging) = &mut self.paging {
            paging.checkpoint_gathered();
        }
    }

    /// It came to nothing.
    pub(crate) fn checkpoint_dropped(&mut self) {
        if let Some(paging) = &mut self.paging {
            paging.checkpoint_dropped();
        }
    }

    /// The checkpoint that was gathered is durable, and this is its run.
    pub(crate) fn run_is(&mut self, run: IndexRun) {
        if let Some(paging) = &mut self.paging {
            paging.run_is(run);
        }
    }

    /// The checkpoint that a start has read is this run, and nothing else is known.
    pub(crate) fn begin_with(&mut self, run: IndexRun) {
        self.paging.as_mut().expect("with a budget").begin_with(run);
    }

    /// A line that the run lists is in the log; see [`LookupTable::begin_with`].
    pub(crate) fn count_listed(&mut self, line: Line) {
        self.paging.as_mut().expect("with a budget").lines += 1;
        self.regions.add(line);
    }

    /// See [`Checkpoint::order`](crate::format::checkpoint::Checkpoint::order): of what is gathered.
    pub(crate) fn order_of_lines(&self) -> u64 {
        if self.has_budget() { self.hash.multiplier() } else { 0 }
    }

    /// Whether there is something in memory that the newest checkpoint lists.
    pub(crate) fn is_evicting(&self) -> bool {
        self.paging.as_ref().is_some_and(|paging| paging.is_evicting())
    }

    /// Looks at about so many lines in memory, and takes out those that need not be there.
    pub(crate) fn evict_part(&mut self, count: usize) {
        let (mut leaving, mut looked_at) = (Vec::new(), 0);
        while let Some(paging) = self.paging.as_mut().filter(|paging| paging.is_evicting())
            && looked_at < count
        {
            looked_at += paging.evict_bucket(&mut leaving);
        }
        for line in leaving {
            self.evict(line);
        }
    }

    /// Whether what the run lists of a line counts.
    pub(crate) fn is_as_listed(&self, line: Line) -> bool {
        let counts = |paging: &Paging| !paging.is_in_memory(line) && !paging.is_void(line);
        self.paging.as_deref().is_some_and(counts)
    }

    /// A line that is listed has left the log. The run still lists it.
    pub(crate) fn listed_line_left(&mut self, line: Line) {
        self.paging.as_mut().expect("with a budget").lines -= 1;
        self.regions.remove(line);
    }

    /// What the run lists of these lines does not count any more: those that are listed are counted
    /// from now on, each with [`LookupTable::listed_line_left`]. Memory has none of them.
    pub(crate) fn begin_voiding(&mut self, lines: LineRanges) {
        self.paging.as_mut().expect("with a budget").begin_voiding(lines);
    }

    /// They have been counted.
    pub(crate) fn end_voiding(&mut self) {
        if let Some(paging) = &mut self.paging {
            paging.end_voiding();
        }
    }

    /// Whether a line that the run lists is still to be counted.
    pub(crate) fn is_to_be_voided(&self, line: Line) -> bool {
        self.paging.as_deref().is_some_and(|paging| paging.is_to_be_voided(line))
    }

    /// Whether so much is void that no more may be before the next checkpoint.
    pub(crate) fn is_full_of_void(&self) -> bool {
        self.paging.as_ref().is_some_and(|paging| paging.is_full_of_void())
    }

    /// Every line in memory with its pieces, in an order that depends only on the history.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Line, Pieces)> {
        self.lines.iter().map(|(line, place)| (line, self.scattered.pieces(place)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn overwriting_kills_slots_and_scatters_lines() {
        let mut table = LookupTable::new(64, 60, 1 << 20, LineHash::new(0));
        let line = Line(7);
        // fragment:  0 1 2 3 4 5 6 7
        // slot 1     A A A A A A A A
        // slot 2       B B
        assert!(table.insert(line, FragmentMask::FULL, SlotIndex(1), 0).as_slice().is_empty());
        assert!(table.insert(line, FragmentMask(0b110), SlotIndex(2), 0).as_slice().is_empty());
        let pieces = table.find(line);
        assert_eq!(
            pieces.as_slice(),
            [(SlotIndex(1), FragmentMask(0b1111_1001)), (SlotIndex(2), FragmentMask(0b110))]
        );
        let dead = table.insert(line, FragmentMask::FULL, SlotIndex(3), 0);
        assert_eq!(dead.as_slice(), [SlotIndex(1), SlotIndex(2)]);
        let dead = table.remove(line, FragmentMask::FULL);
        assert_eq!(dead.as_slice(), [SlotIndex(3)]);
        assert_eq!((table.lines(), table.contains(line)), (0, false));
    }

    proptest! {
        /// Whatever comes and goes meanwhile, buckets that grow and shrink included.
        #[test]
        fn a_walk_visits_once_what_stays(
            stays in prop::collection::vec(any::<bool>(), 400),
            changes in prop::collection::vec(prop::collection::vec((any::<bool>(), 0usize..400), 0..40), 100),
        ) {
            // Few buckets of many lines.
            let mut table = LookupTable::new(1000, 10, 1 << 20, LineHash::new(0));
            table.lines_max = 400;
            for line in 0..400 {
                table.insert(Line(line), FragmentMask::FULL, SlotIndex(0), 0);
            }
            let mut visits = [0; 400];
            table.begin_walk(Walker::Purge);
            for changes in changes {
                for (is_insert, index) in changes.into_iter().filter(|(_, index)| !stays[*index]) {
                    match is_insert {
                        true => drop(table.insert(Line(index as u64), FragmentMask::FULL, SlotIndex(1), 0)),
                        false => drop(table.remove(Line(index as u64), FragmentMask::FULL)),
                    }
                }
                if !table.walk(Walker::Purge, 1, |_, line, _| visits[line.0 as usize] += 1) {
                    break;
                }
            }
            prop_assert_eq!(table.walks, [None; 4], "ten buckets are visited in a hundred parts");
            for (visits, stays) in visits.into_iter().zip(stays) {
                prop_assert!(visits == 1 || visits == 0 && !stays);
            }
        }
    }

    #[test]
    fn places_and_checksums_are_those_of_each_line() {
        let mut table = LookupTable::new(8, 4, 1 << 20, LineHash::new(0));
        let lines = [7, 7 + (1 << 32), (1 << 40) - 1];
        for (slot, line) in lines.into_iter().enumerate() {
            table.insert(Line(line), FragmentMask::FULL, SlotIndex(slot as u32), 50 + slot as u32);
        }
        for (slot, line) in lines.into_iter().enumerate() {
            let slot = SlotIndex(slot as u32);
            assert_eq!(table.find(Line(line)).as_slice(), [(slot, FragmentMask::FULL)]);
            assert_eq!(table.checksum(slot), 50 + slot.0);
        }
    }

    /// Fewer lines than there are in the table, as many, and more than can be.
    #[test]
    fn lines_within_a_range() {
        let mut table = LookupTable::new(8, 4, 1 << 20, LineHash::new(0));
        for line in [10, 12, 13, (1 << 40) - 1] {
            table.insert(Line(line), FragmentMask::FULL, SlotIndex(0), 0);
        }
        let within = |first, lines| {
            let mut within = table.lines_within(Line(first)..Line(first.saturating_add(lines)));
            within.sort_unstable();
            within
        };
        assert_eq!(within(10, 3), [Line(10), Line(12)]);
        assert_eq!(within(9, 4), [Line(10), Line(12)]);
        assert_eq!(within(11, u64::MAX), [Line(12), Line(13), Line((1 << 40) - 1)]);
        assert_eq!(within(u64::MAX - 1, 3), []);
        assert_eq!(within(10, 0), []);
    }

    /// A trim of much in a large cache that holds little walks the little.
    #[test]
    fn a_walk_does_not_depend_on_the_size_of_the_cache() {
        let steps = |slots: u32| {
            let mut table = LookupTable::new(slots, slots, 1 << 20, LineHash::new(0));
            for line in 0..1000 {
                table.insert(Line(line * 1_000_003), FragmentMask::FULL, SlotIndex(0), 0);
            }
            (0..500).for_each(|line| {
                table.remove(Line(2 * line * 1_000_003), FragmentMask::FULL);
            });
            table.lines.take_steps();
            assert_eq!(table.lines_within(Line(0)..Line(1 << 40)).len(), 500);
            table.lines.take_steps()
        };
        let (small, large) = (steps(2000), steps(10_000_000));
        assert!(small < 500 * 12 && large < 500 * 12, "{small} and {large} steps");
    }

    #[test]
    fn is_full_with_a_line_for_each_slot() {
        let mut table = LookupTable::new(4, 2, 1 << 20, LineHash::new(0));
        table.insert(Line(1), FragmentMask::FULL, SlotIndex(0), 0);
        assert!(!table.is_full());
        table.insert(Line(2), FragmentMask::FULL, SlotIndex(1), 0);
        assert!(table.is_full());
        table.insert(Line(2), FragmentMask(1), SlotIndex(2), 0);
        table.remove(Line(1), FragmentMask::FULL);
        assert!(!table.is_full());
    }

    #[test]
    #[should_panic(expected = "more lines than slots")]
    fn a_line_too_many_is_a_mistake() {
        let mut table = LookupTable::new(4, 2, 1 << 20, LineHash::new(0));
        (0..3).for_each(|line| {
            table.insert(Line(line), FragmentMask::FULL, SlotIndex(0), 0);
        });
    }

    #[test]
    #[should_panic(expected = "mask.is_empty()")]
    fn a_line_without_fragments_is_a_mistake() {
        LookupTable::new(4, 2, 1 << 20, LineHash::new(0)).insert(
            Line(1),
            FragmentMask::NONE,
            SlotIndex(0),
            0,
        );
    }

    /// Ten bytes for each entry, and four for each slot: 18 for a line at most, also when many have
    /// come and gone. What scattered lines take more is given back when they are whole again.
    #[test]
    fn memory_is_as_promised() {
        let count = 100_000;
        let mut table = LookupTable::new(count, count, 1 << 20, LineHash::new(0));
        let (last, mut state) = (SlotIndex(count - 1), 1u64);
        let mut lines = Vec::new();
        while !table.is_full() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            lines.push(Line(state >> 32));
            table.insert(lines[lines.len() - 1], FragmentMask::FULL, last, 0);
        }
        // As many again come and go.
        for line in &mut lines {
            table.remove(*line, FragmentMask::FULL);
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *line = Line(state >> 32);
            table.insert(*line, FragmentMask::FULL, last, 0);
        }
        let plain = table.memory_bytes();
        assert!((14 * count..18 * count).contains(&(plain as u32)), "{plain}");
        let line = lines[0];
        table.insert(line, FragmentMask(1), SlotIndex(1), 0);
        let scattered = table.memory_bytes();
        assert!(scattered >= plain + 32, "{scattered}");
        table.insert(line, FragmentMask::FULL, SlotIndex(2), 0);
        let most = table.memory_bytes();
        assert!(most >= scattered + 4, "{most}");
        for slot in 3..1000 {
            let mask = if slot % 2 == 0 { FragmentMask::FULL } else { FragmentMask(0x0f) };
            table.insert(line, mask, SlotIndex(slot), 0);
        }
        assert_eq!(table.memory_bytes(), most);
    }

    #[test]
    fn takes_little_while_the_cache_is_empty() {
        let slots = 1 << 18;
        let table = LookupTable::new(slots, slots - 1024, 1 << 20, LineHash::new(0));
        assert!(table.memory_bytes() < 20 << 10);
    }

    proptest! {
        /// Against a plain map of fragments.
        #[test]
        fn agrees_with_a_map(operations in prop::collection::vec((0u64..40, 1u8.., 0u8..4), 1..200)) {
            let mut table = LookupTable::new(256, 40, 1 << 20, LineHash::new(0));
            let mut model: BTreeMap<(u64, usize), u32> = BTreeMap::new();
            for (slot, (line, mask, kind)) in operations.into_iter().enumerate() {
                let mask = FragmentMask(mask);
                let before: Vec<u32> = model.values().copied().collect();
                let dead = if kind == 0 {
                    for fragment in mask.indices() {
                        model.remove(&(line, fragment));
                    }
                    table.remove(Line(line), mask)
                } else {
                    for fragment in mask.indices() {
                        model.insert((line, fragment), slot as u32);
                    }
                    table.insert(Line(line), mask, SlotIndex(slot as u32), slot as u32)
                };
                let mut gone: Vec<u32> =
                    before.into_iter().filter(|slot| !model.values().any(|s| s == slot)).collect();
                gone.sort_unstable();
                gone.dedup();
                let mut dead: Vec<u32> = dead.as_slice().iter().map(|slot| slot.0).collect();
                dead.sort_unstable();
                prop_assert_eq!(dead, gone);
                for line in 0..40 {
                    let mut found = BTreeMap::new();
                    for (slot, mask) in table.find(Line(line)).as_slice() {
                        for fragment in mask.indices() {
                            found.insert((line, fragment), slot.0);
                        }
                    }
                    let expected: BTreeMap<_, _> =
                        model.range((line, 0)..(line + 1, 0)).map(|(k, v)| (*k, *v)).collect();
                    prop_assert_eq!(found, expected);
                }
                prop_assert_eq!(table.iter().count(), table.lines());
            }
        }
    }
}
