//! What the memory holds: groups with their dirty blocks, in the order in which they were written
//! last, and by size.
//!
//! The groups written last whose blocks together fit into the *hot zone* are hot, the others cold
//! (Haining, equations 4.2 and 4.3). With a hot zone of 0 blocks all are cold; with one larger than
//! the memory all are hot, and no order by size is kept.
//!
//! ```text
//!   newest                                         oldest
//!   [ hot: sum of blocks <= hot zone ] [ cold, also by size ]
//! ```
//!
//! A group that is being cleaned is in neither; what is written to it meanwhile stays dirty when
//! the cleaning ends.

use std::cell::Cell;
use std::cmp::Reverse;
#[cfg(test)]
use std::collections::BTreeSet;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;
use std::sync::Arc;

use super::age_classes::AgeClasses;
use super::bits::Bits;
use super::greedy_dual::GreedyDual;
use super::groups::{GROUP_BLOCKS_MAX, GroupMap};
use super::number_map::NumberMap;
use crate::units::{Lba, LbaRange, Time};

/// So many sizes of cold groups may be out of date, and as many as there are cold groups.
const COLD_BY_SIZE_MIN: usize = 64;

/// Number of a group while it is in memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct GroupIndex(u32);

impl GroupIndex {
    /// For lists by group.
    pub(super) fn number(self) -> usize {
        self.0 as usize
    }

    #[cfg(test)]
    pub(super) fn of(number: u32) -> GroupIndex {
        GroupIndex(number)
    }
}

/// A group with dirty blocks.
#[derive(Clone, Default, Debug)]
struct Group {
    range: LbaRange,
    dirty: Bits,
    /// What is being written to the disk and has not been written anew since.
    cleaning: Bits,
    dirty_blocks: u32,
    /// Writes to the disk under way.
    writes_left: u32,
    /// Bypasses under way that touch it.
    bypasses: u32,
    /// In the list: neither being cleaned nor bypassed.
    is_listed: bool,
    is_hot: bool,
    newer: Option<GroupIndex>,
    older: Option<GroupIndex>,
    /// Counts writes; tells which of two was written later.
    touch: u64,
    written_at: Time,
}

/// What a write found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stored {
    /// Blocks that were dirty, and not on their way to the disk: they need not be written there.
    pub overwritten_blocks: u64,
}

/// The groups in memory.
#[derive(Debug)]
pub struct Directory {
    map: Arc<dyn GroupMap>,
    /// The group that was asked for last, and the one in memory that was found last: mostly it is
    /// the same again.
    last_asked: Cell<LbaRange>,
    last_found: Cell<Option<GroupIndex>>,
    groups: Vec<Group>,
    unused: Vec<GroupIndex>,
    /// By first block.
    in_memory: NumberMap,
    /// The same in order, for who asks for neighbours.
    by_address: Option<BTreeMap<u64, GroupIndex>>,
    /// Cold groups: blocks, then the one written longest ago. Some are not cold any more, or are
    /// there with an older size: what is taken is looked at first, and when they are too many they
    /// go.
    cold_by_size: BinaryHeap<(u32, Reverse<u64>, GroupIndex)>,
    cold_groups: usize,
    newest: Option<GroupIndex>,
    oldest: Option<GroupIndex>,
    oldest_hot: Option<GroupIndex>,
    /// For who asks for age and size, and for value.
    by_age_and_size: Option<AgeClasses>,
    by_value: Option<GreedyDual>,
    hot_blocks: u64,
    hot_zone_blocks: u64,
    dirty_blocks: u64,
    cleaning_blocks: u64,
    touches: u64,
    /// What is written again keeps its place in the list.
    keeps_places: bool,
}

impl Directory {
    /// An empty one.
    pub fn new(map: Arc<dyn GroupMap>) -> Directory {
        Directory {
            map,
            last_asked: Cell::default(),
            last_found: Cell::default(),
            groups: Vec::new(),
            unused: Vec::new(),
            in_memory: NumberMap::new(),
            by_address: None,
            cold_by_size: BinaryHeap::new(),
            cold_groups: 0,
            newest: None,
            oldest: None,
            oldest_hot: None,
            by_age_and_size: None,
            by_value: None,
            hot_blocks: 0,
            hot_zone_blocks: 0,
            dirty_blocks: 0,
            cleaning_blocks: 0,
            touches: 0,
            keeps_places: false,
        }
    }

    // ---- looking ------------------------------------------------------------------------------

    /// Dirty blocks, those on their way to the disk included.
    pub fn dirty_blocks(&self) -> u64 {
        self.dirty_blocks
    }

    /// Blocks that will be dirty when everything on its way to the disk has arrived.
    pub fn staying_blocks(&self) -> u64 {
        self.dirty_blocks - self.cleaning_blocks
    }

    /// How many blocks of the range are dirty.
    pub fn dirty_in(&self, range: LbaRange) -> u64 {
        let count = |(index, part): (Option<GroupIndex>, LbaRange)| {
            index.map_or(0, |index| {
                let group = self.group(index);
                u64::from(group.dirty.count_in(group.relative(part)))
            })
        };
        self.parts(range).map(count).sum()
    }

    /// Whether some of the range is on its way to the disk.
    pub fn is_being_cleaned(&self, range: LbaRange) -> bool {
        self.parts(range)
            .any(|(index, _)| index.is_some_and(|index| self.group(index).writes_left > 0))
    }

    /// The group that was written longest ago.
    pub fn oldest(&self) -> Option<GroupIndex> {
        self.oldest
    }

    /// The cold group with most blocks; of equals the one that was written longest ago.
    pub fn largest_cold(&mut self) -> Option<GroupIndex> {
        loop {
            let key = *self.cold_by_size.peek()?;
            if self.is_cold_with(key) {
                return Some(key.2);
            }
            self.cold_by_size.pop();
        }
    }

    /// The group whose age times blocks for each write is largest. Only after
    /// [`Directory::keep_ages_and_sizes`].
    ///
    /// # Panics
    /// Without it.
    pub fn largest_by_age(&self) -> Option<GroupIndex> {
        self.by_age_and_size.as_ref().expect("it is kept").largest(self.touches)
    }

    /// The group whose cleaning frees most for what it costs, by greedy dual size. It is taken as
    /// cleaned. Only after [`Directory::keep_values`].
    ///
    /// # Panics
    /// Without it.
    pub fn take_least_valuable(&mut self) -> Option<GroupIndex> {
        self.by_value.as_mut().expect("it is kept").take_least()
    }

    /// Groups by address, first downwards from a block, at most `count`, then as many upwards:
    /// first block, and group. Only after [`Directory::keep_addresses`].
    ///
    /// # Panics
    /// Without it.
    pub fn beside(&self, block: Lba, count: usize) -> impl Iterator<Item = (Lba, GroupIndex)> + '_ {
        let is_listed = |(start, index): (&u64, &GroupIndex)| {
            self.group(*index).is_listed.then_some((Lba(*start), *index))
        };
        let by_address = self.by_address.as_ref().expect("addresses are kept");
        let below = by_address.range(..block.0).rev().filter_map(is_listed);
        let above = by_address.range(block.0..).filter_map(is_listed);
        below.take(count).chain(above.take(count))
    }

    /// Groups with dirty blocks in the range, by address, at most `count`. Only after
    /// [`Directory::keep_addresses`].
    ///
    /// # Panics
    /// Without it.
    pub fn dirty_groups_in(&self, range: LbaRange, count: usize, groups: &mut Vec<GroupIndex>) {
        let by_address = self.by_address.as_ref().expect("addresses are kept");
        let first = range.start.0.saturating_sub(GROUP_BLOCKS_MAX - 1);
        let is_dirty = |index: &GroupIndex| {
            let group = self.group(*index);
            let start = range.start.0.max(group.range.start.0);
            let end = range.end().min(group.range.end());
            let part = |end| group.relative(LbaRange::new(start, end - start));
            start < end && group.dirty.count_in(part(end)) > 0
        };
        let near = by_address.range(first..range.end()).map(|(_, index)| *index);
        groups.extend(near.filter(is_dirty).take(count));
    }

    /// Whether it is neither being cleaned nor bypassed.
    pub fn may_be_cleaned(&self, index: GroupIndex) -> bool {
        self.group(index).is_listed
    }

    /// When a group was written last.
    pub fn written_at(&self, index: GroupIndex) -> Time {
        self.group(index).written_at
    }

    /// Size of the hot zone.
    pub fn hot_zone_blocks(&self) -> u64 {
        self.hot_zone_blocks
    }

    /// That group is asked for next, which spares asking the map.
    pub(super) fn expect_group(&self, group: LbaRange) {
        self.last_asked.set(group);
    }

    // ---- changing -----------------------------------------------------------------------------

    /// Blocks are written.
    pub fn store(&mut self, now: Time, range: LbaRange) -> Stored {
        let mut stored = Stored::default();
        self.for_each_part(range, |groups, part, index| {
            let stays = groups.keeps_places && groups.group(index).is_listed;
            if !stays {
                groups.unlist(index);
            }
            groups.touches += 1;
            let touch = groups.touches;
            let group = groups.group_mut(index);
            let blocks = group.relative(part);
            let new = group.dirty.set(blocks.clone());
            // What is on its way to the disk is not the newest any more.
            let again = group.cleaning.clear(blocks);
            group.dirty_blocks += new;
            (group.touch, group.written_at) = (touch, now);
            groups.cleaning_blocks -= u64::from(again);
            groups.dirty_blocks += u64::from(new);
            stored.overwritten_blocks += part.blocks - u64::from(new) - u64::from(again);
            if stays {
                groups.hot_blocks += u64::from(new);
            } else {
                groups.list(index);
            }
        });
        self.cool();
        stored
    }

    /// The group is on its way to the disk: adds the runs of its dirty blocks to `writes`. Each is
    /// to be told to [`Directory::cleaned`].
    pub fn start_cleaning(&mut self, index: GroupIndex, writes: &mut Vec<LbaRange>) {
        self.unlist(index);
        let group = self.group_mut(index);
        assert!(group.writes_left == 0, "it is being cleaned");
        let before = writes.len();
        let start = group.range.start.0;
        writes.extend(group.dirty.runs().map(|run| {
            LbaRange::new(start + u64::from(run.start), u64::from(run.end - run.start))
        }));
        group.writes_left = (writes.len() - before) as u32;
        let Group { dirty, cleaning, .. } = group;
        cleaning.copy_from(dirty);
        let blocks = u64::from(group.dirty_blocks);
        self.cleaning_blocks += blocks;
    }

    /// A write of [`Directory::start_cleaning`] has ended. What was not written anew meanwhile is
    /// clean, if it arrived. True with the last of the group.
    pub fn cleaned(&mut self, run: LbaRange, has_arrived: bool) -> bool {
        let index = self.find(self.range_of(run.start)).expect("what is being cleaned stays");
        self.cleaned_of(index, run, has_arrived)
    }

    /// [`Directory::cleaned`] for who knows the group.
    pub(super) fn cleaned_of(
        &mut self,
        index: GroupIndex,
        run: LbaRange,
        has_arrived: bool,
    ) -> bool {
        let group = self.group_mut(index);
        let blocks = group.relative(run);
        let Group { dirty, cleaning, .. } = group;
        let arrived = if has_arrived { dirty.clear_common(cleaning, blocks.clone()) } else { 0 };
        let ended = cleaning.clear(blocks);
        group.dirty_blocks -= arrived;
        group.writes_left -= 1;
        let is_last = group.writes_left == 0;
        self.dirty_blocks -= u64::from(arrived);
        self.cleaning_blocks -= u64::from(ended);
        self.settle(index);
        is_last
    }

    /// A bypass of these blocks begins: no group that it touches is cleaned until
    /// [`Directory::bypassed`].
    pub fn start_bypass(&mut self, range: LbaRange) {
        self.for_each_part(range, |groups, _, index| {
            groups.unlist(index);
            groups.group_mut(index).bypasses += 1;
        });
    }

    /// The bypass has ended. If it arrived, what is on the disk is newer.
    pub fn bypassed(&mut self, range: LbaRange, has_arrived: bool) {
        self.for_each_part(range, |groups, part, index| {
            let group = groups.group_mut(index);
            group.bypasses -= 1;
            let blocks = group.relative(part);
            let dropped = if has_arrived { group.dirty.clear(blocks) } else { 0 };
            group.dirty_blocks -= dropped;
            groups.dirty_blocks -= u64::from(dropped);
            groups.settle(index);
        });
    }

    /// From now on the order of addresses is known.
    ///
    /// # Panics
    /// If something was written before.
    pub fn keep_addresses(&mut self) {
        assert!(self.in_memory.len() == 0, "from the beginning");
        self.by_address = Some(BTreeMap::new());
    }

    /// From now on it is known which group is largest by age.
    ///
    /// # Panics
    /// If something was written before.
    pub fn keep_ages_and_sizes(&mut self) {
        assert!(self.in_memory.len() == 0, "from the beginning");
        self.by_age_and_size = Some(AgeClasses::new());
    }

    /// From now on it is known which group is least valuable.
    ///
    /// # Panics
    /// If something was written before.
    pub fn keep_values(&mut self) {
        assert!(self.in_memory.len() == 0, "from the beginning");
        self.by_value = Some(GreedyDual::new());
    }

    /// From now on a group keeps its place when it is written again: first in, first out. Only with
    /// a hot zone larger than the memory.
    pub fn keep_places(&mut self) {
        self.keeps_places = true;
    }

    /// Makes the hot zone larger or smaller.
    pub fn set_hot_zone(&mut self, blocks: u64) {
        self.hot_zone_blocks = blocks;
        self.cool();
        // What was written last among the cold becomes hot again.
        while let Some(index) = self.newest_cold() {
            let size = u64::from(self.group(index).dirty_blocks);
            if self.hot_blocks + size > blocks {
                break;
            }
            self.cold_groups -= 1;
            self.group_mut(index).is_hot = true;
            self.hot_blocks += size;
            self.oldest_hot = Some(index);
        }
    }

    // ---- the list -----------------------------------------------------------------------------

    fn group(&self, index: GroupIndex) -> &Group {
        &self.groups[index.0 as usize]
    }

    fn group_mut(&mut self, index: GroupIndex) -> &mut Group {
        &mut self.groups[index.0 as usize]
    }

    fn range_of(&self, block: Lba) -> LbaRange {
        let last = self.last_asked.get();
        if (last.start.0..last.end()).contains(&block.0) {
            return last;
        }
        let range = self.map.group_of(block);
        self.last_asked.set(range);
        range
    }

    fn find(&self, group: LbaRange) -> Option<GroupIndex> {
        let last = self.last_found.get().filter(|last| self.group(*last).range == group);
        let found = last.or_else(|| self.in_memory.get(group.start.0).map(GroupIndex));
        self.last_found.set(found);
        found
    }

    /// The range cut at the borders of groups, each part with its group, if it is in memory.
    fn parts(&self, range: LbaRange) -> impl Iterator<Item = (Option<GroupIndex>, LbaRange)> + '_ {
        let mut at = range.start.0;
        std::iter::from_fn(move || {
            if at >= range.end() {
                return None;
            }
            let whole = self.range_of(Lba(at));
            let end = whole.end().min(range.end());
            let part = LbaRange::new(at, end - at);
            at = end;
            Some((self.find(whole), part))
        })
    }

    /// The same for a change: groups that are not in memory come into being.
    fn for_each_part(
        &mut self,
        range: LbaRange,
        mut change: impl FnMut(&mut Directory, LbaRange, GroupIndex),
    ) {
        let mut at = range.start.0;
        while at < range.end() {
            let whole = self.range_of(Lba(at));
            let end = whole.end().min(range.end());
            let index = self.find(whole).unwrap_or_else(|| self.add_group(whole));
            change(self, LbaRange::new(at, end - at), index);
            at = end;
        }
    }

    fn add_group(&mut self, range: LbaRange) -> GroupIndex {
        let index = self.unused.pop().unwrap_or_else(|| {
            self.groups.push(Group::default());
            GroupIndex(self.groups.len() as u32 - 1)
        });
        let group = self.group_mut(index);
        group.range = range;
        group.dirty.reset(range.blocks as u32);
        group.cleaning.reset(range.blocks as u32);
        self.in_memory.insert(range.start.0, index.0);
        if let Some(by_address) = &mut self.by_address {
            by_address.insert(range.start.0, index);
        }
        index
    }

    /// Puts a group where it belongs after something ended.
    fn settle(&mut self, index: GroupIndex) {
        let group = self.group(index);
        if group.writes_left > 0 || group.bypasses > 0 {
            return;
        }
        if group.dirty_blocks > 0 {
            // With its old place gone, as if it had just been written: the hot zone decides.
            self.list(index);
            return self.cool();
        }
        let start = group.range.start.0;
        self.in_memory.remove(start);
        if let Some(by_address) = &mut self.by_address {
            by_address.remove(&start);
        }
        if self.last_found.get() == Some(index) {
            self.last_found.set(None);
        }
        self.unused.push(index);
    }

    /// Puts it in front of the list, hot.
    fn list(&mut self, index: GroupIndex) {
        let newest = self.newest;
        let group = self.group_mut(index);
        if group.writes_left > 0 || group.bypasses > 0 {
            return;
        }
        assert!(!group.is_listed);
        (group.is_listed, group.is_hot) = (true, true);
        (group.newer, group.older) = (None, newest);
        let blocks = u64::from(group.dirty_blocks);
        match newest {
            Some(newest) => self.group_mut(newest).newer = Some(index),
            None => self.oldest = Some(index),
        }
        self.newest = Some(index);
        self.hot_blocks += blocks;
        if self.oldest_hot.is_none() {
            self.oldest_hot = Some(index);
        }
        if self.by_age_and_size.is_some() || self.by_value.is_some() {
            let group = self.group(index);
            let (blocks, writes, touch) =
                (group.dirty_blocks, group.dirty.run_count(), group.touch);
            if let Some(order) = &mut self.by_age_and_size {
                order.list(index, blocks, writes, self.touches);
            }
            if let Some(order) = &mut self.by_value {
                order.list(index, blocks, writes, touch);
            }
        }
    }

    fn unlist(&mut self, index: GroupIndex) {
        let group = self.group(index);
        if !group.is_listed {
            return;
        }
        let (newer, older, blocks) = (group.newer, group.older, u64::from(group.dirty_blocks));
        if group.is_hot {
            self.hot_blocks -= blocks;
            if self.oldest_hot == Some(index) {
                self.oldest_hot = newer;
            }
        } else {
            self.cold_groups -= 1;
        }
        self.group_mut(index).is_listed = false;
        if let Some(order) = &mut self.by_age_and_size {
            order.unlist(index);
        }
        if let Some(order) = &mut self.by_value {
            order.unlist(index);
        }
        match newer {
            Some(newer) => self.group_mut(newer).older = older,
            None => self.newest = older,
        }
        match older {
            Some(older) => self.group_mut(older).newer = newer,
            None => self.oldest = newer,
        }
    }

    fn size_key(&self, index: GroupIndex) -> (u32, Reverse<u64>, GroupIndex) {
        let group = self.group(index);
        (group.dirty_blocks, Reverse(group.touch), index)
    }

    /// Whether the group is cold, and what is known of it is true.
    fn is_cold_with(&self, key: (u32, Reverse<u64>, GroupIndex)) -> bool {
        let group = self.group(key.2);
        group.is_listed && !group.is_hot && key == self.size_key(key.2)
    }

    fn newest_cold(&self) -> Option<GroupIndex> {
        match self.oldest_hot {
            Some(index) => self.group(index).older,
            None => self.newest,
        }
    }

    /// Makes the oldest of the hot groups cold until the rest fits.
    fn cool(&mut self) {
        while self.hot_blocks > self.hot_zone_blocks {
            let index = self.oldest_hot.expect("hot blocks are in hot groups");
            let group = self.group_mut(index);
            group.is_hot = false;
            let (newer, blocks) = (group.newer, u64::from(group.dirty_blocks));
            self.oldest_hot = newer;
            self.hot_blocks -= blocks;
            self.cold_groups += 1;
            let key = self.size_key(index);
            self.cold_by_size.push(key);
        }
        if self.cold_by_size.len() > 2 * self.cold_groups + COLD_BY_SIZE_MIN {
            self.rebuild_cold_by_size();
        }
    }

    fn rebuild_cold_by_size(&mut self) {
        let mut keys = std::mem::take(&mut self.cold_by_size).into_vec();
        keys.clear();
        let mut at = self.oldest;
        while let Some(index) = at.filter(|index| !self.group(*index).is_hot) {
            keys.push(self.size_key(index));
            at = self.group(index).newer;
        }
        self.cold_by_size = BinaryHeap::from(keys);
    }

    /// Walks through everything.
    ///
    /// # Panics
    /// If a sum or an order is wrong.
    #[cfg(test)]
    pub fn check_invariants(&self) {
        let in_memory = || self.in_memory.values().map(|index| self.group(GroupIndex(index)));
        let sum = |count: &dyn Fn(&Group) -> u32| in_memory().map(|g| u64::from(count(g))).sum();
        let all = |group: &Group| 0..group.range.blocks as u32;
        let dirty: u64 = sum(&|group| group.dirty.count_in(all(group)));
        let cleaning: u64 = sum(&|group| group.cleaning.count_in(all(group)));
        assert_eq!((dirty, cleaning), (self.dirty_blocks, self.cleaning_blocks));
        for group in in_memory() {
            assert_eq!(group.dirty.count_in(all(group)), group.dirty_blocks);
            assert_eq!(group.is_listed, group.writes_left == 0 && group.bypasses == 0);
        }
        let (mut at, mut newer, mut listed, mut hot) = (self.newest, None, 0, 0);
        let mut is_cold = false;
        let known: BTreeSet<_> = self.cold_by_size.iter().collect();
        let mut cold = 0;
        while let Some(index) = at {
            let group = self.group(index);
            assert!(group.is_listed && group.newer == newer && group.dirty_blocks > 0);
            assert!(!(is_cold && group.is_hot), "hot behind cold");
            is_cold |= !group.is_hot;
            assert!(group.is_hot || known.contains(&self.size_key(index)));
            cold += usize::from(!group.is_hot);
            hot += if group.is_hot { u64::from(group.dirty_blocks) } else { 0 };
            listed += 1;
            (newer, at) = (at, group.older);
        }
        assert_eq!(newer, self.oldest);
        assert_eq!(hot, self.hot_blocks);
        assert!(hot <= self.hot_zone_blocks);
        assert_eq!(listed, in_memory().filter(|group| group.is_listed).count());
        assert_eq!(cold, self.cold_groups);
        for group in in_memory() {
            let index = self.in_memory.get(group.range.start.0);
            assert!(index.is_some_and(|index| self.group(GroupIndex(index)).range == group.range));
        }
        if let Some(by_address) = &self.by_address {
            assert_eq!(by_address.len(), self.in_memory.len());
        }
    }
}

impl Group {
    fn relative(&self, part: LbaRange) -> Range<u32> {
        let start = (part.start.0 - self.range.start.0) as u32;
        start..start + part.blocks as u32
    }
}

#[cfg(test)]
mod tests {
    use super::super::groups::Regions;
    use super::*;

    /// A hot zone that grows and shrinks makes groups cold again and again: what is out of date
    /// must neither be taken nor pile up.
    #[test]
    fn old_sizes_of_cold_groups_go() {
        let mut groups = Directory::new(Arc::new(Regions::new(16)));
        for round in 0..100 {
            for group in 0..200 {
                groups.store(Time(round), LbaRange::new(group * 16, 1 + (round + group) % 16));
            }
            groups.set_hot_zone(if round % 2 == 0 { 3200 } else { 0 });
            groups.store(Time(round), LbaRange::new(0, 1));
            assert!(groups.cold_by_size.len() <= 2 * groups.cold_groups + COLD_BY_SIZE_MIN);
            groups.check_invariants();
        }
        let mut writes = Vec::new();
        let mut before = None;
        while let Some(index) = groups.largest_cold() {
            let key = groups.size_key(index);
            assert!(before.is_none_or(|before| key < before), "the next largest");
            before = Some(key);
            groups.start_cleaning(index, &mut writes);
        }
        assert_eq!(writes.len(), 200);
    }
}
