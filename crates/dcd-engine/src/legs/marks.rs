//! Which regions of the legs may differ after a crash.
//!
//! A region is *marked* in the labels of all legs, durably, before it is written. A start behind a
//! crash copies what is marked from one leg to the others, so that all read the same from then on:
//! what was durable is on each, and of what was not any part may be there, as on one disk.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// What is marked in order is marked so many regions ahead.
const AHEAD: u32 = 8;
/// Marks that stay although their regions are the same on all legs: they are likely to be written
/// again.
const CLEAN_KEPT: usize = 64;
/// Most regions of a cache-disk: what comes behind one of them has a number, too.
const REGIONS_MAX: u32 = u32::MAX / 2;

#[derive(Default)]
struct Region {
    /// In the labels.
    is_durable: bool,
    /// To be in the next label.
    is_wanted: bool,
    /// A write needs it that comes first, or waits for something else only.
    is_needed: bool,
    /// Writes under way.
    writes: u32,
    /// When the last one ended, by [`Marks::ended`]; 0: none has.
    written: u64,
    /// When it was used last.
    used: u64,
}

/// The regions that are marked, or are to be.
pub(super) struct Marks {
    region_bytes: u64,
    /// Regions of the cache-disk.
    count: u32,
    /// Most that a label lists.
    most: usize,
    regions: BTreeMap<u32, Region>,
    /// Writes that have ended.
    ended: u64,
    /// Of them, those that a flush has covered.
    flushed: u64,
    uses: u64,
    /// So many are wanted.
    wanted: usize,
    /// A write waits for marks.
    are_waited_for: bool,
}

impl Marks {
    /// `None`: so small regions have no numbers on so large a disk.
    pub(super) fn new(region_bytes: u64, end_bytes: u64, most: usize) -> Option<Marks> {
        let count = u32::try_from(end_bytes.div_ceil(region_bytes)).ok();
        let count = count.filter(|count| *count <= REGIONS_MAX)?;
        Some(Marks {
            region_bytes,
            count,
            most,
            regions: BTreeMap::new(),
            ended: 0,
            flushed: 0,
            uses: 0,
            wanted: 0,
            are_waited_for: false,
        })
    }

    /// So many bytes of the cache-disk have regions, if there are not more already: what was marked
    /// stays so. A log has no more bytes than the smallest regions have numbers for.
    pub(super) fn extend_to(&mut self, end_bytes: u64) {
        let count = u32::try_from(end_bytes.div_ceil(self.region_bytes)).unwrap_or(u32::MAX);
        assert!(count <= REGIONS_MAX, "regions are numbered");
        self.count = self.count.max(count);
    }

    /// Regions of the cache-disk.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// The regions of these bytes.
    pub(super) fn regions_of(&self, offset: u64, length: u64) -> RangeInclusive<u32> {
        let region = |byte: u64| (byte / self.region_bytes) as u32;
        region(offset)..=region(offset + length.max(1) - 1)
    }

    /// Whether all of them may be written. Those that may not are wanted from now on, and so is
    /// what comes behind regions that are written in order.
    ///
    /// Of the first write that waits for marks those that it has stay while the others come. If all
    /// that wait kept theirs, there could be no room for any. One that has all and waits for
    /// something else keeps them, too, and is not the first: nothing would be kept of any other
    /// meanwhile, and two of its regions could take each other's place, label after label.
    ///
    /// # Panics
    /// If they are more than a label lists: they would be waited for without end.
    pub(super) fn may_write(&mut self, regions: RangeInclusive<u32>) -> bool {
        let last = *regions.end();
        let count = (last - regions.start()) as usize + 1;
        assert!(count <= self.most, "a write of {count} regions, and labels list {}", self.most);
        let is_first = !self.are_waited_for;
        let mut may = true;
        for region in regions.clone() {
            may &= self.is_marked(region);
            self.want(region);
            self.regions.get_mut(&region).expect("on the disk").is_needed |= is_first;
        }
        self.are_waited_for |= !may;
        // In order: the next label comes before it is waited for.
        let is_in_order = regions.start().checked_sub(1).is_some_and(|r| self.is_marked(r));
        let ahead = AHEAD.min(self.most as u32 / 16);
        let is_near_the_end = |region| ahead > 0 && !self.is_marked(region);
        if is_in_order && (last + 1..=last + 2).any(is_near_the_end) {
            (last + 1..=last + ahead).for_each(|region| self.want(region));
        }
        may
    }

    fn is_marked(&self, region: u32) -> bool {
        region >= self.count || self.regions.get(&region).is_some_and(|it| it.is_durable)
    }

    fn want(&mut self, region: u32) {
        if region >= self.count {
            return;
        }
        self.uses += 1;
        let known = self.regions.entry(region).or_default();
        known.used = self.uses;
        if !known.is_durable && !known.is_wanted {
            known.is_wanted = true;
            self.wanted += 1;
        }
    }

    /// What waits is looked at anew, the oldest first.
    pub(super) fn nothing_is_needed(&mut self) {
        self.regions.values_mut().for_each(|region| region.is_needed = false);
        self.are_waited_for = false;
    }

    /// Whether a write waits for marks; else those that are wanted are guesses.
    pub(super) fn are_waited_for(&self) -> bool {
        self.are_waited_for
    }

    /// Whether a label is to be written.
    pub(super) fn are_wanted(&self) -> bool {
        self.wanted > 0
    }

    /// A write of these regions begins.
    pub(super) fn write_begins(&mut self, regions: RangeInclusive<u32>) {
        for region in regions {
            let region = self.regions.get_mut(&region).expect("it is marked");
            region.writes += 1;
            region.is_needed = false;
        }
    }

    /// A write of these regions has ended, well or not.
    pub(super) fn write_ended(&mut self, regions: RangeInclusive<u32>) {
        self.ended += 1;
        for region in regions {
            let region = self.regions.get_mut(&region).expect("a write holds it");
            region.writes -= 1;
            region.written = self.ended;
        }
    }

    /// Whether it is being written.
    pub(super) fn is_written(&self, region: u32) -> bool {
        self.regions.get(&region).is_some_and(|region| region.writes > 0)
    }

    /// What a flush that begins now covers, for [`Marks::flushed`].
    pub(super) fn flush_begins(&self) -> u64 {
        self.ended
    }

    /// Whether a flush would make room; else writes under way have to end first.
    pub(super) fn would_be_cleaned(&self) -> bool {
        self.regions.values().any(|it| it.writes == 0 && it.written > self.flushed)
    }

    /// A flush has ended well on all legs.
    pub(super) fn flushed(&mut self, covers: u64) {
        self.flushed = self.flushed.max(covers);
    }

    /// What the next label lists. What is the same on all legs is left out if it has not been used
    /// for long, or there is no room. `None`: nothing that is wanted would have room before a
    /// flush.
    pub(super) fn for_label(&mut self) -> Option<Vec<u32>> {
        let flushed = self.flushed;
        let is_clean = |it: &Region| it.writes == 0 && !it.is_needed && it.written <= flushed;
        let mut clean: Vec<(u64, u32)> = self
            .regions
            .iter()
            .filter(|(_, it)| it.is_durable && is_clean(it))
            .map(|(region, it)| (it.used, *region))
            .collect();
        clean.sort_unstable();
        let needed = self.regions.len() - clean.len();
        let kept = CLEAN_KEPT.min(self.most / 2).min(self.most.saturating_sub(needed));
        for (_, region) in &clean[..clean.len().saturating_sub(kept)] {
            self.regions.remove(region);
        }
        let over = self.regions.len().saturating_sub(self.most);
        if over >= self.wanted && self.wanted > 0 {
            return None;
        }
        // More than there is room for: first what was a guess waits on.
        let wanted = self.regions.iter().filter(|(_, it)| !it.is_durable);
        let mut left_out: Vec<(bool, u32)> =
            wanted.map(|(region, it)| (!it.is_needed, *region)).collect();
        left_out.sort_unstable_by(|a, b| b.cmp(a));
        left_out.truncate(over);
        let is_listed = |region: &u32| !left_out.iter().any(|(_, other)| other == region);
        Some(self.regions.keys().copied().filter(is_listed).collect())
    }

    /// What the labels list.
    pub(super) fn in_labels(&self) -> Vec<u32> {
        self.regions.iter().filter(|(_, it)| it.is_durable).map(|(region, _)| *region).collect()
    }

    /// A label with these is durable on all legs.
    pub(super) fn label_written(&mut self, marks: &[u32]) {
        for region in marks {
            // Nothing is left out while a label is under way.
            let known = self.regions.entry(*region).or_default();
            known.is_durable = true;
            known.is_wanted = false;
        }
        // What had no room and is waited for is wanted again; the rest was a guess.
        self.regions.retain(|_, region| !region.is_wanted);
        self.wanted = 0;
    }

    /// No label can be written: whoever waits is told so.
    pub(super) fn give_up(&mut self) {
        self.regions.retain(|_, region| region.is_durable);
        self.nothing_is_needed();
        self.wanted = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_label(marks: &mut Marks) -> Vec<u32> {
        let list = marks.for_label().unwrap();
        marks.label_written(&list);
        marks.nothing_is_needed();
        list
    }

    #[test]
    fn a_region_is_marked_before_it_is_written_and_those_behind_it_ahead() {
        let mut marks = Marks::new(1 << 20, 64 << 20, 768).unwrap();
        assert_eq!(marks.regions_of((3 << 20) - 1, 2), 2..=3);
        assert!(!marks.may_write(2..=3) && marks.are_wanted());
        assert_eq!(write_label(&mut marks), [2, 3]);
        assert!(marks.may_write(2..=3) && !marks.are_wanted());
        assert!(!marks.may_write(4..=4));
        assert_eq!(write_label(&mut marks), (2..=12).collect::<Vec<_>>());
        assert!(marks.may_write(5..=5) && !marks.are_wanted());
        assert!(marks.may_write(11..=11) && marks.are_wanted());
        assert_eq!(write_label(&mut marks).last(), Some(&19));
    }

    /// Bytes of a label may be anything.
    #[test]
    fn regions_that_have_no_number_are_refused() {
        assert!(Marks::new(64 << 10, 128 << 40, 768).is_none());
        assert!(Marks::new(64 << 10, (128 << 40) - (64 << 10), 768).is_some());
    }

    #[test]
    fn what_is_flushed_makes_room_and_what_is_not_stays() {
        let mut marks = Marks::new(1 << 20, 64 << 20, 4).unwrap();
        for region in [10, 20, 30, 40] {
            assert!(!marks.may_write(region..=region));
            write_label(&mut marks);
            marks.write_begins(region..=region);
        }
        marks.write_ended(10..=10);
        assert!(!marks.may_write(50..=50));
        assert_eq!(marks.for_label(), None, "10 is not flushed");
        let covers = marks.flush_begins();
        marks.write_ended(20..=20);
        marks.flushed(covers);
        assert_eq!(write_label(&mut marks), [20, 30, 40, 50]);
        marks.write_begins(50..=50);
        assert!(!marks.may_write(10..=10));
        assert_eq!(marks.for_label(), None);
        marks.give_up();
        assert!(!marks.are_wanted());
    }

    /// The first write waits for a copy to a leg that hangs. Labels had one of the two regions of
    /// the second and then the other, for as long as that took.
    #[test]
    fn a_write_that_waits_for_something_else_lets_the_next_have_its_marks() {
        let mut marks = Marks::new(1 << 20, 64 << 20, 4).unwrap();
        assert!(!marks.may_write(10..=10));
        write_label(&mut marks);
        assert!(marks.may_write(10..=10));
        marks.write_begins(10..=10);
        let look = |marks: &mut Marks| {
            marks.nothing_is_needed();
            (marks.may_write(20..=21), marks.may_write(30..=31))
        };
        assert_eq!(look(&mut marks), (false, false));
        write_label(&mut marks);
        assert_eq!(look(&mut marks), (true, false));
        for _ in 0..2 {
            let Some(list) = marks.for_label() else { break };
            marks.label_written(&list);
            assert_eq!(look(&mut marks), (true, false));
        }
        assert_eq!(marks.for_label(), None, "what it has stays, and 10 is being written");
        marks.write_ended(10..=10);
        marks.flushed(marks.flush_begins());
        assert_eq!(write_label(&mut marks), [20, 21, 30, 31]);
        assert_eq!(look(&mut marks), (true, true));
        assert!(!marks.are_waited_for());
    }
}
