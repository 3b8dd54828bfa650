//! Segments of the cache-disk: their states, and the list of those that may be filled.
//!
//! ```text
//! Free -> Buffered -> Dirty -> Empty -> Announced -> Free
//!             \________________/   \                  ^ the record that announces it is durable
//!                                   \_________________^ or a checkpoint that lists it
//! ```
//! The papers keep a free list and a dirty list (USENIX'99 section 3.2); *empty* is between them:
//! nothing in it is live, but a start would not know that yet.
//!
//! While the log is being shrunk, its last segments are *retired*: an empty one stays empty. One that
//! a start would fill next is free all the same, until the log has come through it.

use std::collections::{BTreeSet, VecDeque};

use zerocopy::FromZeros;

use super::filled_segments::FilledSegments;
use crate::config::DestagePolicyKind;
use crate::growing_table::GrowingTable;
use crate::stats::SegmentCounts;
use crate::units::{SegmentIndex, SegmentSerial};
use crate::used_places::UsedPlaces;

/// Letters of a map: no status grows with the log.
const MAP_LETTERS_MAX: usize = 4096;

/// Number of a segment buffer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, FromZeros)]
pub(crate) struct BufferIndex(pub u32);

/// State of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromZeros)]
#[repr(u32)]
pub(crate) enum SegmentState {
    /// Without live slots. The first: a table of empty segments is memory that nothing has touched.
    Empty,
    /// The same, and a record says that it is filled next.
    Announced,
    /// May be filled.
    Free,
    /// Is filled, or was and is not durable yet: its bytes are in this segment buffer.
    Buffered(BufferIndex),
    /// On the cache-disk, durable, with live slots.
    Dirty,
}

/// A segment.
#[derive(Clone, Copy, Debug, FromZeros)]
pub struct Segment {
    /// State.
    pub(crate) state: SegmentState,
    /// Slots with live fragments.
    pub(crate) live_slots: u32,
    /// Reads of its slots under way: it may not be filled meanwhile (trap 10 of the design).
    pub(crate) readers: u32,
    serial: u64,
}

impl Segment {
    /// Its last filling; 0: none yet.
    pub(crate) fn serial(&self) -> SegmentSerial {
        SegmentSerial(self.serial)
    }

    /// Whether its records may be read before it is filled again, or are being read.
    pub(crate) fn may_be_read(&self) -> bool {
        let is_filled = matches!(self.state, SegmentState::Buffered(_) | SegmentState::Dirty);
        is_filled || self.readers > 0
    }
}

/// All segments.
pub(crate) struct SegmentTable {
    segments: GrowingTable<Segment>,
    /// Those from this one on are retired.
    limit: u32,
    /// Of them, the empty ones, which are in no list, and the live slots.
    retired_empty: u32,
    retired_live_slots: u64,
    retired_readers: u64,
    free: VecDeque<SegmentIndex>,
    filled: FilledSegments,
    /// Live slots of all.
    live_slots: u64,
    /// Those that have some.
    live: UsedPlaces,
    /// The empty ones that may be announced.
    empty: UsedPlaces,
    /// The other empty ones.
    empty_for_checkpoint: BTreeSet<SegmentIndex>,
    /// What a start follows begins with this filling.
    chain_from: SegmentSerial,
    /// A line was destaged from them above zeroes that a start would still find: without the line
    /// in the log it would read as those. Since the newest checkpoint was begun, and before.
    above_zeroes: BTreeSet<SegmentIndex>,
    above_zeroes_before: BTreeSet<SegmentIndex>,
    counts: SegmentCounts,
}

impl SegmentTable {
    /// `count` empty segments.
    pub(crate) fn new(count: u32) -> SegmentTable {
        SegmentTable {
            segments: GrowingTable::new(count as usize),
            limit: count,
            retired_empty: 0,
            retired_live_slots: 0,
            retired_readers: 0,
            free: VecDeque::new(),
            filled: FilledSegments::new(count),
            live_slots: 0,
            live: UsedPlaces::new(count as usize),
            empty: UsedPlaces::all(count as usize),
            empty_for_checkpoint: BTreeSet::new(),
            chain_from: SegmentSerial(u64::MAX),
            above_zeroes: BTreeSet::new(),
            above_zeroes_before: BTreeSet::new(),
            counts: SegmentCounts { empty: count, ..SegmentCounts::default() },
        }
    }

    /// A segment.
    pub(crate) fn get(&self, index: SegmentIndex) -> &Segment {
        &self.segments[index.0 as usize]
    }

    /// All, in place order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SegmentIndex, &Segment)> {
        self.segments.iter().enumerate().map(|(i, segment)| (SegmentIndex(i as u32), segment))
    }

    /// Bytes of memory of what is kept by segment.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.segments.memory_bytes()
    }

    /// How many there are.
    pub(crate) fn total(&self) -> u32 {
        self.segments.len() as u32
    }

    /// How many are in each state.
    pub(crate) fn counts(&self) -> SegmentCounts {
        self.counts
    }

    /// Segments that may be filled, now or when a record has announced them.
    pub(crate) fn usable(&self) -> u32 {
        self.counts.free + self.empty_in_use() - self.empty_for_checkpoint.len() as u32
    }

    /// The empty ones that are not retired.
    pub(crate) fn empty_in_use(&self) -> u32 {
        self.counts.empty - self.retired_empty
    }

    /// Segments that may be filled, in the order in which they will be.
    pub(crate) fn free(&self) -> &VecDeque<SegmentIndex> {
        &self.free
    }

    fn count(&mut self, state: SegmentState) -> &mut u32 {
        match state {
            SegmentState::Free => &mut self.counts.free,
            SegmentState::Buffered(_) => &mut self.counts.buffered,
            SegmentState::Dirty => &mut self.counts.dirty,
            SegmentState::Empty | SegmentState::Announced => &mut self.counts.empty,
        }
    }

    fn set_state(&mut self, index: SegmentIndex, state: SegmentState) {
        let Segment { state: old, live_slots, .. } = *self.get(index);
        let serial = self.get(index).serial();
        *self.count(old) -= 1;
        *self.count(state) += 1;
        self.segments[index.0 as usize].state = state;
        match old {
            SegmentState::Empty => self.unlist_empty(index),
            SegmentState::Buffered(_) => self.filled.remove_buffered(index, serial),
            SegmentState::Dirty => self.filled.remove_dirty(index, serial, live_slots),
            SegmentState::Free | SegmentState::Announced => {}
        }
        match state {
            SegmentState::Empty => self.list_empty(index),
            SegmentState::Buffered(_) => self.filled.insert_buffered(index, serial),
            SegmentState::Dirty => self.filled.insert_dirty(index, serial, live_slots),
            SegmentState::Free | SegmentState::Announced => {}
        }
    }

    fn list_empty(&mut self, index: SegmentIndex) {
        if self.is_retired(index) {
            self.retired_empty += 1;
        } else if self.only_a_checkpoint_may_name(index) {
            self.empty_for_checkpoint.insert(index);
        } else {
            self.empty.insert(index.0 as usize);
        }
    }

    fn unlist_empty(&mut self, index: SegmentIndex) {
        if self.is_retired(index) {
            self.retired_empty -= 1;
        } else {
            self.empty.remove(index.0 as usize);
            self.empty_for_checkpoint.remove(&index);
        }
    }

    fn only_a_checkpoint_may_name(&self, index: SegmentIndex) -> bool {
        self.get(index).serial() >= self.chain_from
            || self.above_zeroes.contains(&index)
            || self.above_zeroes_before.contains(&index)
    }

    /// A line that has a slot here is destaged, above zeroes that a start would find in the log.
    ///
    /// # Panics
    /// If nothing in the segment is live.
    pub(crate) fn destaged_above_zeroes(&mut self, index: SegmentIndex) {
        assert!(self.get(index).live_slots > 0, "the line has a slot");
        self.above_zeroes.insert(index);
    }

    /// A checkpoint is begun. What was destaged before is in none of its lists, nor are zeroes
    /// below it.
    pub(crate) fn checkpoint_begun(&mut self) {
        self.above_zeroes_before.append(&mut self.above_zeroes);
    }

    /// The checkpoint that was begun last is durable: a start follows the log from the filling
    /// `serial` on.
    pub(crate) fn checkpoint_durable(&mut self, serial: SegmentSerial) {
        self.chain_from = serial;
        self.above_zeroes_before.clear();
        let waited = std::mem::take(&mut self.empty_for_checkpoint);
        waited.into_iter().for_each(|index| self.list_empty(index));
    }

    /// Empty segments that may be announced, and that nobody reads: a start that follows the log
    /// comes through none of them, and needs nothing that the checkpoint says of them.
    pub(crate) fn announceable(&self) -> impl Iterator<Item = SegmentIndex> {
        let empty = self.empty.iter().map(|index| SegmentIndex(index as u32));
        empty.filter(|index| self.get(*index).readers == 0)
    }

    /// A record says that this empty segment is filled next.
    pub(crate) fn announce(&mut self, index: SegmentIndex) {
        assert!(self.get(index).state == SegmentState::Empty, "only the empty are announced");
        assert!(!self.only_a_checkpoint_may_name(index), "a start needs what it held");
        self.set_state(index, SegmentState::Announced);
    }

    /// Whether the next free segment can be filled now: none of its old slots is being read.
    pub(crate) fn next_is_ready(&self) -> bool {
        self.free.front().is_some_and(|index| self.get(*index).readers == 0)
    }

    /// Starts to fill the next free segment.
    ///
    /// # Panics
    /// If there is none, or its old slots are being read.
    pub(crate) fn fill_next(&mut self, buffer: BufferIndex, serial: SegmentSerial) -> SegmentIndex {
        assert!(self.next_is_ready());
        let index = self.free.pop_front().expect("a free segment");
        let segment = &mut self.segments[index.0 as usize];
        assert!(segment.live_slots == 0, "a free segment holds nothing live");
        segment.serial = serial.0;
        self.set_state(index, SegmentState::Buffered(buffer));
        index
    }

    /// The segment is durable as a whole; its buffer is given back.
    pub(crate) fn leave_buffer(&mut self, index: SegmentIndex) {
        assert!(matches!(self.get(index).state, SegmentState::Buffered(_)));
        let empty = self.get(index).live_slots == 0;
        self.set_state(index, if empty { SegmentState::Empty } else { SegmentState::Dirty });
    }

    /// A slot of the segment has become live.
    pub(crate) fn add_live(&mut self, index: SegmentIndex) {
        let segment = &mut self.segments[index.0 as usize];
        segment.live_slots += 1;
        self.live_slots += 1;
        self.retired_live_slots += u64::from(index.0 >= self.limit);
        if segment.live_slots == 1 {
            self.live.insert(index.0 as usize);
        }
        if segment.state == SegmentState::Dirty {
            self.filled.live_changed(index, segment.live_slots - 1, segment.live_slots);
        }
    }

    /// A slot of the segment is no longer live.
    pub(crate) fn drop_live(&mut self, index: SegmentIndex) {
        let segment = &mut self.segments[index.0 as usize];
        assert!(segment.live_slots > 0, "a dead slot cannot die");
        segment.live_slots -= 1;
        self.live_slots -= 1;
        self.retired_live_slots -= u64::from(index.0 >= self.limit);
        if segment.live_slots == 0 {
            self.live.remove(index.0 as usize);
        }
        if segment.state == SegmentState::Dirty {
            self.filled.live_changed(index, segment.live_slots + 1, segment.live_slots);
            if segment.live_slots == 0 {
                self.set_state(index, SegmentState::Empty);
            }
        }
    }

    /// Nothing that was live counts any more.
    pub(crate) fn nothing_is_live(&mut self) {
        let live = self.live_from(SegmentIndex(0));
        let live: Vec<(SegmentIndex, u32)> =
            live.map(|(index, segment)| (index, segment.live_slots)).collect();
        for (index, slots) in live {
            (0..slots).for_each(|_| self.drop_live(index));
        }
    }

    /// Live slots of all segments.
    pub(crate) fn live_slots(&self) -> u64 {
        self.live_slots
    }

    /// Segments with live slots from this one on, in place order.
    pub(crate) fn live_from(
        &self,
        first: SegmentIndex,
    ) -> impl Iterator<Item = (SegmentIndex, &Segment)> {
        let indices = self.live.iter_from(first.0 as usize).map(|index| SegmentIndex(index as u32));
        indices.map(|index| (index, self.get(index)))
    }

    /// The first to be destaged of those that are suitable: dirty, or in a segment buffer.
    pub(crate) fn first_to_destage(
        &self,
        policy: DestagePolicyKind,
        is_suitable: impl Fn(SegmentIndex) -> bool,
    ) -> Option<SegmentIndex> {
        self.filled.first(policy, |index| self.get(index).live_slots, is_suitable)
    }

    /// Dirty and buffered segments that were begun later than this one.
    pub(crate) fn newer(&self, serial: SegmentSerial) -> impl Iterator<Item = &Segment> {
        self.filled.newer(serial).map(|index| self.get(index))
    }

    /// A read of a slot has started.
    pub(crate) fn add_reader(&mut self, index: SegmentIndex) {
        self.segments[index.0 as usize].readers += 1;
        self.retired_readers += u64::from(self.is_retired(index));
    }

    /// A read of a slot has ended.
    pub(crate) fn drop_reader(&mut self, index: SegmentIndex) {
        let readers = &mut self.segments[index.0 as usize].readers;
        *readers = readers.checked_sub(1).expect("a read that had started");
        self.retired_readers -= u64::from(self.is_retired(index));
    }

    /// The first empty segments that a checkpoint made now may list as free, in place order, at
    /// most so many.
    pub(crate) fn reusable(&self, most: usize) -> Vec<SegmentIndex> {
        let others = self.empty_for_checkpoint.iter().copied();
        let others = others.filter(|index| self.get(*index).readers == 0);
        let mut first: Vec<SegmentIndex> =
            self.announceable().take(most).chain(others.take(most)).collect();
        first.sort_unstable();
        first.truncate(most);
        first
    }

    /// A checkpoint that lists these segments as free is durable, or the records that announce
    /// them.
    pub(crate) fn make_free(&mut self, indices: &[SegmentIndex]) {
        for index in indices {
            let state = self.get(*index).state;
            let is_empty = matches!(state, SegmentState::Empty | SegmentState::Announced);
            assert!(is_empty, "only the empty become free");
            self.set_state(*index, SegmentState::Free);
            self.free.push_back(*index);
        }
    }

    // ---- a log that grows and shrinks ---------------------------------------------------------

    /// How many are not retired.
    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    /// Whether it is never to be filled again.
    pub(crate) fn is_retired(&self, index: SegmentIndex) -> bool {
        index.0 >= self.limit
    }

    /// Those from this one on are retired, too, or those before it no longer: a few at a time.
    pub(crate) fn retire_from(&mut self, limit: u32) {
        let changed = || (limit.min(self.limit)..limit.max(self.limit)).map(SegmentIndex);
        let of_changed = |count: fn(&Segment) -> u32| -> u64 {
            changed().map(|index| u64::from(count(self.get(index)))).sum()
        };
        let live_slots = of_changed(|segment| segment.live_slots);
        let readers = of_changed(|segment| segment.readers);
        let is_empty = |index: &SegmentIndex| self.get(*index).state == SegmentState::Empty;
        let empty: Vec<SegmentIndex> = changed().filter(is_empty).collect();
        empty.iter().for_each(|index| self.unlist_empty(*index));
        if limit < self.limit {
            self.retired_live_slots += live_slots;
            self.retired_readers += readers;
        } else {
            self.retired_live_slots -= live_slots;
            self.retired_readers -= readers;
        }
        self.limit = limit;
        empty.into_iter().for_each(|index| self.list_empty(index));
    }

    /// Retired segments that are not empty.
    pub(crate) fn retired_in_use(&self) -> u32 {
        self.total() - self.limit - self.retired_empty
    }

    /// Live slots of retired segments.
    pub(crate) fn retired_live_slots(&self) -> u64 {
        self.retired_live_slots
    }

    /// Whether slots of retired segments are being read.
    pub(crate) fn retired_are_read(&self) -> bool {
        self.retired_readers > 0
    }

    /// Retired segments with live slots, in place order.
    pub(crate) fn retired_live(&self) -> impl Iterator<Item = SegmentIndex> {
        self.live_from(SegmentIndex(self.limit)).map(|(index, _)| index)
    }

    /// Whether a retired segment is among those that are filled next.
    pub(crate) fn must_fill_retired(&self) -> bool {
        self.free.iter().any(|index| self.is_retired(*index))
    }

    /// The retired segments, all of them empty, are gone.
    ///
    /// # Panics
    /// If one is not empty.
    pub(crate) fn cut(&mut self) {
        assert_eq!(self.retired_in_use(), 0, "what is cut off holds nothing");
        assert_eq!(self.retired_readers, 0, "nobody reads what is cut off");
        self.counts.empty -= self.retired_empty;
        self.retired_empty = 0;
        self.segments.set_len(self.limit as usize);
        self.filled.set_count(self.limit);
    }

    /// There are so many from now on: the new ones are empty. A few at a time.
    ///
    /// # Panics
    /// If some are retired.
    pub(crate) fn grow(&mut self, total: u32) {
        let before = self.total();
        assert!(self.limit == before && total >= before);
        self.segments.set_len(total as usize);
        self.filled.set_count(total);
        self.live.grow(total as usize);
        self.empty.grow(total as usize);
        self.limit = total;
        self.counts.empty += total - before;
        for index in before..total {
            // One that was cut off has its last serial still. The others are memory that nothing
            // has touched.
            if self.segments[index as usize].serial != 0 {
                self.segments[index as usize].serial = 0;
            }
            self.list_empty(SegmentIndex(index));
        }
    }

    /// Recovery: what the segment holds is of this filling.
    pub(crate) fn found_filling(&mut self, index: SegmentIndex, serial: SegmentSerial) {
        self.segments[index.0 as usize].serial = serial.0;
    }

    /// Recovery: all live slots of the next `count` segments that have some are known, from `first`
    /// on. Those that have none cost nothing, however many there are. Tells from where on there are
    /// more.
    pub(crate) fn found_all_from(
        &mut self,
        first: SegmentIndex,
        count: usize,
    ) -> Option<SegmentIndex> {
        let mut live = self.live.iter_from(first.0 as usize);
        let part: Vec<usize> = live.by_ref().take(count).collect();
        let next = live.next();
        drop(live);
        for index in part {
            self.set_state(SegmentIndex(index as u32), SegmentState::Dirty);
        }
        next.map(|index| SegmentIndex(index as u32))
    }

    /// Checks that states, counts and the free list speak of the same, and that what may be filled
    /// holds nothing.
    ///
    /// # Panics
    /// If something does not hold.
    pub(crate) fn check_invariants(&self) {
        let mut counted = SegmentTable::new(0);
        let free = BTreeSet::from_iter(&self.free);
        let mut retired_empty = 0;
        for (index, segment) in self.iter() {
            *counted.count(segment.state) += 1;
            let holds = match segment.state {
                SegmentState::Free => free.contains(&index) && segment.live_slots == 0,
                SegmentState::Empty if self.is_retired(index) => {
                    retired_empty += 1;
                    let is_listed = self.empty_for_checkpoint.contains(&index)
                        || self.empty.contains(index.0 as usize);
                    segment.live_slots == 0 && !is_listed
                }
                SegmentState::Empty => {
                    let for_checkpoint = self.empty_for_checkpoint.contains(&index);
                    segment.live_slots == 0
                        && for_checkpoint == self.only_a_checkpoint_may_name(index)
                        && for_checkpoint != self.empty.contains(index.0 as usize)
                }
                SegmentState::Announced => {
                    segment.live_slots == 0 && !self.empty.contains(index.0 as usize)
                }
                SegmentState::Dirty => segment.live_slots > 0,
                SegmentState::Buffered(_) => true,
            };
            let holds = holds && self.live.contains(index.0 as usize) == (segment.live_slots > 0);
            assert!(holds, "{index:?}: {segment:?}, free {:?}", self.free);
        }
        assert_eq!(counted.counts, self.counts);
        let retired = self.iter().filter(|(index, _)| self.is_retired(*index));
        let retired_live = retired.map(|(_, segment)| u64::from(segment.live_slots)).sum();
        assert_eq!(
            (retired_empty, retired_live),
            (self.retired_empty, self.retired_live_slots),
            "retired segments: empty ones, live slots"
        );
        assert_eq!((free.len(), self.free.len()), (self.counts.free as usize, free.len()));
        assert_eq!(self.live_slots, self.iter().map(|(_, s)| u64::from(s.live_slots)).sum::<u64>());
        let in_state = |is: fn(&Segment) -> bool| {
            self.iter()
                .filter(move |(_, segment)| is(segment))
                .map(|(index, s)| (s.serial(), index))
        };
        self.filled.check_invariants(
            in_state(|segment| matches!(segment.state, SegmentState::Buffered(_))).collect(),
            in_state(|segment| segment.state == SegmentState::Dirty).collect(),
            |index| self.get(index).live_slots,
        );
    }

    /// One letter for each segment in place order; of a large log for so many neighbours: is one of
    /// them in a buffer, else dirty, else free, else all are empty.
    pub(crate) fn map(&self) -> String {
        let each = self.segments.len().div_ceil(MAP_LETTERS_MAX).max(1);
        let mut map = vec![b'e'; self.segments.len().div_ceil(each)];
        for index in &self.free {
            map[index.0 as usize / each] = b'f';
        }
        for (group, letter) in map.iter_mut().enumerate() {
            let live = self.live.iter_from(group * each).next();
            if live.is_some_and(|index| index / each == group) {
                *letter = b'd';
            }
        }
        for index in self.filled.buffered() {
            map[index.0 as usize / each] = b'b';
        }
        map.into_iter().map(char::from).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl SegmentTable {
        fn restore(&mut self, index: SegmentIndex, live_slots: u32, serial: SegmentSerial) {
            self.found_filling(index, serial);
            (0..live_slots).for_each(|_| self.add_live(index));
            self.found_all_from(index, usize::from(live_slots > 0));
        }
    }

    const SEGMENT: SegmentIndex = SegmentIndex(0);

    fn counts(free: u32, empty: u32, buffered: u32, dirty: u32) -> SegmentCounts {
        SegmentCounts { free, empty, buffered, dirty }
    }

    /// What `dcd status` shows on the way of one segment of three.
    #[test]
    fn a_segment_goes_round() {
        let mut table = SegmentTable::new(3);
        let states = |table: &SegmentTable| {
            table.check_invariants();
            assert_eq!(table.usable(), table.counts().free + table.counts().empty);
            (table.map(), table.counts())
        };
        assert_eq!((table.total(), states(&table)), (3, ("eee".into(), counts(0, 3, 0, 0))));
        assert!(!table.next_is_ready());
        table.make_free(&[SegmentIndex(2), SEGMENT]);
        assert_eq!(states(&table), ("fef".into(), counts(2, 1, 0, 0)));
        assert_eq!(table.reusable(9), [SegmentIndex(1)], "a free one need not become free");

        // In the order of the list, not of the places.
        assert_eq!(table.fill_next(BufferIndex(1), SegmentSerial(7)), SegmentIndex(2));
        assert_eq!(table.fill_next(BufferIndex(0), SegmentSerial(8)), SEGMENT);
        let segment = table.get(SEGMENT);
        assert_eq!(segment.state, SegmentState::Buffered(BufferIndex(0)));
        assert_eq!(segment.serial(), SegmentSerial(8));
        assert_eq!(states(&table), ("beb".into(), counts(0, 1, 2, 0)));

        table.add_live(SEGMENT);
        table.add_live(SEGMENT);
        table.drop_live(SEGMENT);
        assert_eq!(table.get(SEGMENT).live_slots, 1);
        table.leave_buffer(SEGMENT);
        table.leave_buffer(SegmentIndex(2));
        assert_eq!(states(&table), ("dee".into(), counts(0, 2, 0, 1)), "nothing live was in 2");
        table.drop_live(SEGMENT);
        assert_eq!(states(&table), ("eee".into(), counts(0, 3, 0, 0)));
    }

    #[test]
    fn the_map_of_a_large_log_has_a_letter_for_some_neighbours() {
        let count = MAP_LETTERS_MAX as u32 * 3 + 1;
        let mut table = SegmentTable::new(count);
        let map = |table: &SegmentTable| (table.map()[..4].to_owned(), table.map().len());
        let length = (count as usize).div_ceil(4);
        assert_eq!(map(&table), ("eeee".into(), length));
        table.make_free(&[7, 9, 14, 5].map(SegmentIndex));
        assert_eq!(map(&table), ("efff".into(), length));
        table.restore(SegmentIndex(11), 1, SegmentSerial(1));
        table.fill_next(BufferIndex(0), SegmentSerial(2));
        assert_eq!(map(&table), ("ebdf".into(), length));
        table.restore(SegmentIndex(4), 1, SegmentSerial(1));
        assert_eq!(map(&table), ("ebdf".into(), length), "it says what is being filled");
        table.check_invariants();
    }

    /// One whose last slot dies while it is in a buffer has still to be written.
    #[test]
    fn a_buffered_segment_without_live_slots_stays_buffered() {
        let mut table = SegmentTable::new(1);
        table.make_free(&[SEGMENT]);
        table.fill_next(BufferIndex(0), SegmentSerial(1));
        table.add_live(SEGMENT);
        table.drop_live(SEGMENT);
        assert_eq!((table.map(), table.reusable(9)), ("b".into(), vec![]));
        table.check_invariants();
    }

    /// One that is emptied while a checkpoint is made waits for the next: this one still lists its
    /// line.
    #[test]
    fn what_was_destaged_above_zeroes_is_announced_behind_a_checkpoint() {
        let mut table = SegmentTable::new(3);
        let announceable = |table: &SegmentTable| {
            table.check_invariants();
            let announceable: Vec<u32> = table.announceable().map(|index| index.0).collect();
            assert_eq!(table.usable() as usize, announceable.len(), "none is free or read");
            announceable
        };
        let empty = |table: &mut SegmentTable, index| {
            table.restore(index, 1, SegmentSerial(1));
            table.destaged_above_zeroes(index);
            table.drop_live(index);
        };
        empty(&mut table, SEGMENT);
        assert_eq!(announceable(&table), [1, 2]);
        table.checkpoint_begun();
        empty(&mut table, SegmentIndex(2));
        assert_eq!((announceable(&table), table.reusable(9).len()), (vec![1], 3));
        // One that comes to nothing makes no difference.
        table.checkpoint_begun();
        table.checkpoint_durable(SegmentSerial(5));
        assert_eq!(announceable(&table), [0, 1, 2]);
        empty(&mut table, SEGMENT);
        table.checkpoint_begun();
        empty(&mut table, SegmentIndex(2));
        table.checkpoint_durable(SegmentSerial(6));
        assert_eq!(announceable(&table), [0, 1]);
    }

    /// Trap 10 of the design.
    #[test]
    fn what_is_being_read_is_not_filled() {
        let mut table = SegmentTable::new(2);
        table.add_reader(SEGMENT);
        table.add_reader(SEGMENT);
        assert_eq!(table.reusable(9), [SegmentIndex(1)]);
        table.drop_reader(SEGMENT);
        assert_eq!(table.reusable(9), [SegmentIndex(1)], "one of two still reads");
        table.drop_reader(SEGMENT);
        assert_eq!(table.reusable(9), [SEGMENT, SegmentIndex(1)]);
        table.make_free(&[SEGMENT]);
        assert!(table.next_is_ready());
        table.add_reader(SEGMENT);
        assert!(!table.next_is_ready());
    }

    #[test]
    fn recovery_restores_what_holds_something() {
        let mut table = SegmentTable::new(2);
        table.restore(SEGMENT, 4, SegmentSerial(9));
        table.restore(SegmentIndex(1), 0, SegmentSerial(8));
        assert_eq!((table.map(), table.counts()), ("de".into(), counts(0, 1, 0, 1)));
        let segment = table.get(SEGMENT);
        assert_eq!((segment.live_slots, segment.serial()), (4, SegmentSerial(9)));
        table.check_invariants();
    }

    #[test]
    #[should_panic(expected = "a dead slot cannot die")]
    fn more_slots_than_there_were_cannot_die() {
        SegmentTable::new(1).drop_live(SEGMENT);
    }
}
