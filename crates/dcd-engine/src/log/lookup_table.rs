//! The lookup table: cache line -> where its newest fragments are (USENIX'99 section 3.3).
//!
//! One flat table with open addressing, ten bytes an entry, sized once for a cache that is full of
//! single slots. A line whose fragments lie in one slot, the common case, needs only its entry; one
//! that is scattered over several has an extra `Scattered` entry. With the four bytes of checksum
//! per slot, and a bit that finds the entries in use, that makes 15.3 bytes per 4 KiB slot, 3.8 MiB
//! per GiB of cache.
//!
//! A line that is not in the table is not in the log.

use zerocopy::FromZeros;

use crate::line_hash::LineHash;
use crate::units::{FragmentMask, Line, SlotIndex};
use crate::used_places::UsedPlaces;

/// Share of the entries that may be in use, in percent, when every slot of the cache is live.
const LOAD_PERCENT: usize = 90;
/// Marks an entry whose slot field is a number in `scattered`.
const SCATTERED: u32 = 1 << 31;
/// No slot.
const NO_SLOT: u32 = u32::MAX;

/// Slot numbers of the eight fragments of a scattered line.
type Scattered = [u32; 8];

/// Ten bytes without padding. All zero: not in use, so that a table of them is memory that nothing
/// has touched.
#[derive(Clone, Copy, FromZeros)]
struct TableEntry {
    line_low: [u8; 4],
    line_high: u8,
    mask: u8,
    slot: [u8; 4],
}

const _: () = assert!(size_of::<TableEntry>() == 10);

const UNUSED: TableEntry = TableEntry { line_low: [0; 4], line_high: 0, mask: 0, slot: [0; 4] };

impl TableEntry {
    fn new(line: Line, mask: FragmentMask, slot: u32) -> TableEntry {
        TableEntry {
            line_low: (line.0 as u32).to_le_bytes(),
            line_high: (line.0 >> 32) as u8,
            mask: mask.0,
            slot: slot.to_le_bytes(),
        }
    }

    fn line(&self) -> Line {
        Line(u64::from(u32::from_le_bytes(self.line_low)) | u64::from(self.line_high) << 32)
    }

    fn slot(&self) -> u32 {
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

/// The table.
pub struct LookupTable {
    hash: LineHash,
    entries: Vec<TableEntry>,
    /// Those in use, for walks that must not depend on the size of the cache.
    used: UsedPlaces,
    lines: usize,
    lines_max: usize,
    scattered: Vec<Scattered>,
    scattered_free: Vec<u32>,
    /// CRC-32C of each slot, live or not; see [`LookupTable::checksum`].
    slot_checksums: Vec<u32>,
    walks: [Option<Walk>; 3],
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
}

/// A walk of the whole table that goes on while the table changes.
#[derive(Default)]
struct Walk {
    /// Entries below this place were visited.
    at: usize,
    /// Lines whose entry was not, and moved below it.
    missed: Vec<Line>,
    /// Lines whose entry was, and moved behind it, round the end of the table.
    visited: Vec<Line>,
}

impl Walk {
    fn moved(&mut self, line: Line, from: usize, to: usize) {
        match (from < self.at, to < self.at) {
            (false, true) => match self.visited.iter().position(|visited| *visited == line) {
                Some(known) => drop(self.visited.swap_remove(known)),
                None => self.missed.push(line),
            },
            (true, false) => self.visited.push(line),
            _ => {}
        }
    }
}

impl LookupTable {
    /// A table for a cache of `slots` slots, of which at most `data_slots` hold data.
    pub fn new(slots: u32, data_slots: u32, hash: LineHash) -> LookupTable {
        let entries = data_slots as usize * 100 / LOAD_PERCENT + 16;
        LookupTable {
            hash,
            entries: TableEntry::new_vec_zeroed(entries).expect("memory for the lookup table"),
            used: UsedPlaces::new(entries),
            lines: 0,
            lines_max: data_slots as usize,
            scattered: Vec::new(),
            scattered_free: Vec::new(),
            slot_checksums: vec![0; slots as usize],
            walks: [None, None, None],
        }
    }

    /// A table of the same size without lines.
    pub(crate) fn emptied(&self) -> LookupTable {
        LookupTable::new(self.slot_checksums.len() as u32, self.lines_max as u32, self.hash)
    }

    /// Lines in the table: all of them are newer than the data-disk.
    pub fn lines(&self) -> usize {
        self.lines
    }

    /// Whether there is no room for another line.
    pub fn is_full(&self) -> bool {
        self.lines == self.lines_max
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<TableEntry>()
            + self.used.memory_bytes()
            + self.scattered.capacity() * size_of::<Scattered>()
            + self.scattered_free.capacity() * size_of::<u32>()
            + self.slot_checksums.capacity() * size_of::<u32>()
    }

    /// Where the entry of `line` would best be.
    fn home(&self, line: Line) -> usize {
        self.hash.place(line.0, self.entries.len())
    }

    fn next(&self, index: usize) -> usize {
        if index + 1 == self.entries.len() { 0 } else { index + 1 }
    }

    /// Index of the entry of `line`, or of the unused one where it would go.
    fn position(&self, line: Line) -> (usize, bool) {
        let wanted = TableEntry::new(line, FragmentMask::NONE, 0);
        let mut index = self.home(line);
        loop {
            let entry = &self.entries[index];
            if entry.mask == 0 {
                return (index, false);
            }
            if entry.line_low == wanted.line_low && entry.line_high == wanted.line_high {
                return (index, true);
            }
            index = self.next(index);
        }
    }

    /// Whether the line is in the log, at least in part.
    pub(crate) fn contains(&self, line: Line) -> bool {
        self.position(line).1
    }

    /// Where the fragments of `line` are; no pieces if it is not in the log.
    pub fn find(&self, line: Line) -> Pieces {
        match self.position(line) {
            (index, true) => self.pieces(&self.entries[index]),
            (_, false) => Pieces::default(),
        }
    }

    fn pieces(&self, entry: &TableEntry) -> Pieces {
        let mut pieces = Pieces::default();
        if entry.slot() & SCATTERED == 0 {
            pieces.push(SlotIndex(entry.slot()), FragmentMask(entry.mask));
            return pieces;
        }
        let slots = &self.scattered[(entry.slot() & !SCATTERED) as usize];
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

    /// Checksum of a slot that [`LookupTable::insert`] was told.
    pub(crate) fn checksum(&self, slot: SlotIndex) -> u32 {
        self.slot_checksums[slot.0 as usize]
    }

    /// The fragments `mask` of `line` are now in `slot`. Returns slots that died by it.
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
        assert!(!mask.is_empty() && line.0 < 1 << 40 && slot.0 < SCATTERED);
        self.slot_checksums[slot.0 as usize] = checksum;
        let (index, known) = self.position(line);
        let mut dead = DeadSlots::default();
        if !known {
            assert!(self.lines < self.lines_max, "more lines than slots");
            self.lines += 1;
            self.entries[index] = TableEntry::new(line, mask, slot.0);
            self.used.insert(index);
            return dead;
        }
        let old = self.pieces(&self.entries[index]);
        let mut new = Pieces::default();
        for (old_slot, old_mask) in old.as_slice() {
            match old_mask.without(mask) {
                FragmentMask::NONE => dead.push(*old_slot),
                rest => new.push(*old_slot, rest),
            }
        }
        new.push(slot, mask);
        self.set(index, line, &new);
        dead
    }

    /// The fragments `mask` of `line` are no longer in the log. Returns slots that died by it.
    pub(crate) fn remove(&mut self, line: Line, mask: FragmentMask) -> DeadSlots {
        let mut dead = DeadSlots::default();
        let (index, known) = self.position(line);
        if !known {
            return dead;
        }
        let old = self.pieces(&self.entries[index]);
        let mut new = Pieces::default();
        for (slot, old_mask) in old.as_slice() {
            match old_mask.without(mask) {
                FragmentMask::NONE => dead.push(*slot),
                rest => new.push(*slot, rest),
            }
        }
        if new.count > 0 {
            self.set(index, line, &new);
        } else {
            self.release(index);
            self.close_gap(index);
            self.lines -= 1;
        }
        dead
    }

    /// Gives the entry at `index` these pieces.
    fn set(&mut self, index: usize, line: Line, pieces: &Pieces) {
        self.release(index);
        let slot = match pieces.as_slice() {
            [(slot, _)] => slot.0,
            several => {
                let mut slots = [NO_SLOT; 8];
                for (slot, mask) in several {
                    for fragment in mask.indices() {
                        slots[fragment] = slot.0;
                    }
                }
                SCATTERED | self.add_scattered(slots)
            }
        };
        self.entries[index] = TableEntry::new(line, pieces.mask(), slot);
    }

    fn add_scattered(&mut self, slots: Scattered) -> u32 {
        match self.scattered_free.pop() {
            Some(index) => {
                self.scattered[index as usize] = slots;
                index
            }
            None => {
                // Not twice as much at a time: `--memory-max` has counted what it may need.
                if self.scattered.len() == self.scattered.capacity() {
                    self.scattered.reserve_exact(self.scattered.len() / 8 + 64);
                }
                self.scattered.push(slots);
                (self.scattered.len() - 1) as u32
            }
        }
    }

    /// Gives back the extra entry of the entry at `index`, if it has one.
    fn release(&mut self, index: usize) {
        let slot = self.entries[index].slot();
        if self.entries[index].mask != 0 && slot & SCATTERED != 0 {
            self.scattered_free.push(slot & !SCATTERED);
        }
    }

    /// Moves later entries of the same run into the place at `index`, so that no search stops at a
    /// gap before what it looks for.
    fn close_gap(&mut self, index: usize) {
        let length = self.entries.len();
        let mut gap = index;
        let mut candidate = self.next(gap);
        while self.entries[candidate].mask != 0 {
            let home = self.home(self.entries[candidate].line());
            // How far each place is behind the home of the candidate, going round the end.
            let distance = |place: usize| (place + length - home) % length;
            if distance(gap) < distance(candidate) {
                self.entries[gap] = self.entries[candidate];
                for walk in self.walks.iter_mut().flatten() {
                    walk.moved(self.entries[gap].line(), candidate, gap);
                }
                gap = candidate;
            }
            candidate = self.next(candidate);
        }
        self.entries[gap] = UNUSED;
        self.used.remove(gap);
    }

    /// Which of `lines` lines from `first` on are in the log. Walks those or the lines of the
    /// table, whichever are fewer: never the whole of a table that is nearly empty.
    pub(crate) fn lines_within(&self, first: Line, lines: u64) -> Vec<Line> {
        let range = first.0..first.0.saturating_add(lines);
        if lines < self.lines() as u64 {
            range.map(Line).filter(|line| self.contains(*line)).collect()
        } else {
            let lines = self.used.iter().map(|index| self.entries[index].line());
            lines.filter(|line| range.contains(&line.0)).collect()
        }
    }

    /// Begins a walk of the table, in place of one of the same walker that is under way.
    pub(crate) fn begin_walk(&mut self, walker: Walker) {
        self.walks[walker as usize] = Some(Walk::default());
    }

    /// Nobody goes on with the walk.
    pub(crate) fn end_walk(&mut self, walker: Walker) {
        self.walks[walker as usize] = None;
    }

    /// Visits the next `count` lines of the walk, and tells whether there are more. A line that is
    /// in the table from beginning to end is visited once, with its pieces as they are then; one
    /// that comes or goes meanwhile once or not at all; one that goes and comes back perhaps twice.
    ///
    /// # Panics
    /// If no walk was begun.
    pub(crate) fn walk(
        &mut self,
        walker: Walker,
        count: usize,
        mut visit: impl FnMut(&LookupTable, Line, Pieces),
    ) -> bool {
        let mut walk = self.walks[walker as usize].take().expect("a walk was begun");
        let mut left = count;
        let mut places = self.used.iter_from(walk.at);
        while left > 0 {
            let Some(place) = places.next() else {
                walk.at = self.entries.len();
                break;
            };
            let entry = &self.entries[place];
            walk.at = place + 1;
            left -= 1;
            match walk.visited.iter().position(|line| *line == entry.line()) {
                Some(known) => drop(walk.visited.swap_remove(known)),
                None => visit(self, entry.line(), self.pieces(entry)),
            }
        }
        drop(places);
        if walk.at == self.entries.len() {
            while left > 0
                && let Some(line) = walk.missed.pop()
            {
                left -= 1;
                let pieces = self.find(line);
                if pieces.count > 0 {
                    visit(self, line, pieces);
                }
            }
        }
        let has_more = walk.at < self.entries.len() || !walk.missed.is_empty();
        self.walks[walker as usize] = has_more.then_some(walk);
        has_more
    }

    /// Every line with its pieces, in an order that depends only on the history.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Line, Pieces)> {
        self.used.iter().map(|index| {
            let entry = &self.entries[index];
            (entry.line(), self.pieces(entry))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn overwriting_kills_slots_and_scatters_lines() {
        let mut table = LookupTable::new(64, 60, LineHash::new(0));
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

    /// Lines from 0 on whose best place is one of the first or last four of the table.
    fn lines_at_the_ends(table: &LookupTable) -> impl Iterator<Item = u64> {
        let length = table.entries.len();
        (0..).filter(move |line| (table.home(Line(*line)) + 4) % length < 8)
    }

    proptest! {
        /// Entries move below the walk and behind it, also round the end of the table.
        #[test]
        fn a_walk_visits_once_what_stays(
            stays in prop::collection::vec(any::<bool>(), 40),
            changes in prop::collection::vec(prop::collection::vec((any::<bool>(), 0usize..40), 0..4), 40),
        ) {
            let mut table = LookupTable::new(100, 40, LineHash::new(0));
            let lines: Vec<Line> = lines_at_the_ends(&table).take(40).map(Line).collect();
            for line in &lines {
                table.insert(*line, FragmentMask::FULL, SlotIndex(0), 0);
            }
            let mut visits: BTreeMap<Line, u32> = BTreeMap::new();
            table.begin_walk(Walker::Purge);
            for changes in changes {
                for (is_insert, index) in changes.into_iter().filter(|(_, index)| !stays[*index]) {
                    match is_insert {
                        true => drop(table.insert(lines[index], FragmentMask::FULL, SlotIndex(1), 0)),
                        false => drop(table.remove(lines[index], FragmentMask::FULL)),
                    }
                }
                if !table.walk(Walker::Purge, 1, |_, line, _| *visits.entry(line).or_default() += 1) {
                    break;
                }
            }
            if table.walks[Walker::Purge as usize].is_some() {
                table.walk(Walker::Purge, 100, |_, line, _| *visits.entry(line).or_default() += 1);
            }
            for (line, _) in lines.iter().zip(&stays).filter(|(_, stays)| **stays) {
                prop_assert_eq!(visits.get(line), Some(&1));
            }
        }
    }

    #[test]
    fn lines_have_forty_bits() {
        let mut table = LookupTable::new(8, 4, LineHash::new(0));
        let lines = [7, 7 + (1 << 32), (1 << 40) - 1];
        for (slot, line) in lines.into_iter().enumerate() {
            table.insert(Line(line), FragmentMask::FULL, SlotIndex(slot as u32), 50 + slot as u32);
        }
        for (slot, line) in lines.into_iter().enumerate() {
            let slot = SlotIndex(slot as u32);
            assert_eq!(table.find(Line(line)).as_slice(), [(slot, FragmentMask::FULL)]);
            assert_eq!(table.checksum(slot), 50 + slot.0);
        }
        let mut listed: Vec<u64> = table.iter().map(|(line, _)| line.0).collect();
        listed.sort_unstable();
        assert_eq!(listed, lines);
    }

    /// Fewer lines than there are in the table, as many, and more than can be.
    #[test]
    fn lines_within_a_range() {
        let mut table = LookupTable::new(8, 4, LineHash::new(0));
        for line in [10, 12, 13, (1 << 40) - 1] {
            table.insert(Line(line), FragmentMask::FULL, SlotIndex(0), 0);
        }
        let within = |first, lines| {
            let mut within = table.lines_within(Line(first), lines);
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
            let mut table = LookupTable::new(slots, slots, LineHash::new(0));
            for line in 0..1000 {
                table.insert(Line(line * 1_000_003), FragmentMask::FULL, SlotIndex(0), 0);
            }
            (0..500).for_each(|line| {
                table.remove(Line(2 * line * 1_000_003), FragmentMask::FULL);
            });
            table.used.take_steps();
            assert_eq!(table.lines_within(Line(0), 1 << 40).len(), 500);
            table.used.take_steps()
        };
        let (small, large) = (steps(2000), steps(10_000_000));
        assert!(large < 500 * 12 && large < 8 * small, "{small} and {large} steps");
    }

    #[test]
    fn is_full_with_a_line_for_each_slot() {
        let mut table = LookupTable::new(4, 2, LineHash::new(0));
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
        let mut table = LookupTable::new(4, 2, LineHash::new(0));
        (0..3).for_each(|line| {
            table.insert(Line(line), FragmentMask::FULL, SlotIndex(0), 0);
        });
    }

    #[test]
    #[should_panic(expected = "mask.is_empty()")]
    fn a_line_without_fragments_is_a_mistake() {
        LookupTable::new(4, 2, LineHash::new(0)).insert(
            Line(1),
            FragmentMask::NONE,
            SlotIndex(0),
            0,
        );
    }

    #[test]
    #[should_panic(expected = "line.0 < 1 << 40")]
    fn a_line_that_does_not_fit_an_entry_is_a_mistake() {
        LookupTable::new(4, 2, LineHash::new(0)).insert(
            Line(1 << 40),
            FragmentMask::FULL,
            SlotIndex(0),
            0,
        );
    }

    /// Ten bytes and a bit for each entry, 90 % of them in use at most, and four for each slot.
    /// What scattered lines take more is given back when they are whole again.
    #[test]
    fn memory_is_as_promised() {
        let mut table = LookupTable::new(1024, 900, LineHash::new(0));
        let plain = table.memory_bytes();
        // A bit for each entry, in words, and one more word above.
        assert_eq!(plain, (900 * 100 / 90 + 16) * 10 + 1024 * 4 + 16 * 8 + 8);
        table.insert(Line(1), FragmentMask::FULL, SlotIndex(0), 0);
        assert_eq!(table.memory_bytes(), plain);
        table.insert(Line(1), FragmentMask(1), SlotIndex(1), 0);
        let scattered = table.memory_bytes();
        assert!(scattered >= plain + 32, "{scattered}");
        table.insert(Line(1), FragmentMask::FULL, SlotIndex(2), 0);
        let most = table.memory_bytes();
        assert!(most >= scattered + 4, "{most}");
        for slot in 3..1000 {
            let mask = if slot % 2 == 0 { FragmentMask::FULL } else { FragmentMask(0x0f) };
            table.insert(Line(1), mask, SlotIndex(slot), 0);
        }
        assert_eq!(table.memory_bytes(), most);
    }

    /// A look-up is a few entries, also for neighbours in a full table.
    #[test]
    fn neighbours_are_spread() {
        let count = 10_000;
        let mut table = LookupTable::new(count, count, LineHash::new(0));
        for line in 0..count {
            table.insert(Line(line.into()), FragmentMask::FULL, SlotIndex(line), 0);
        }
        let length = table.entries.len();
        let steps = |line| (table.position(line).0 + length - table.home(line)) % length;
        let all: usize = (0..count).map(|line| steps(Line(line.into()))).sum();
        assert!(all < 10 * count as usize, "{all} steps for {count} lines");
    }

    #[test]
    fn takes_at_most_four_mib_per_gib() {
        let slots = 1 << 18;
        assert!(LookupTable::new(slots, slots - 1024, LineHash::new(0)).memory_bytes() < 4 << 20);
    }

    proptest! {
        /// Against a plain map of fragments, with so many lines in so few places that runs wrap.
        #[test]
        fn agrees_with_a_map(operations in prop::collection::vec((0u64..40, 1u8.., 0u8..4), 1..200)) {
            let mut table = LookupTable::new(256, 40, LineHash::new(0));
            let lines: Vec<u64> = lines_at_the_ends(&table).take(40).collect();
            let mut model: BTreeMap<(u64, usize), u32> = BTreeMap::new();
            for (slot, (line, mask, kind)) in operations.into_iter().enumerate() {
                let (line, mask) = (lines[line as usize], FragmentMask(mask));
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
                for &line in &lines {
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
