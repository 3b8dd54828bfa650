//! Segments that hold something, in the orders in which they may be destaged: what comes first is
//! found without a look at all of them, however large the log is. The same code decides in the
//! daemon and in the simulator.

use std::collections::BTreeSet;

use zerocopy::FromZeros;

use crate::config::DestagePolicyKind;
use crate::growing_table::GrowingTable;
use crate::units::{SegmentIndex, SegmentSerial};

/// Segments that are in a segment buffer, or dirty.
pub(super) struct FilledSegments {
    buffered: BTreeSet<(SegmentSerial, SegmentIndex)>,
    dirty: BTreeSet<(SegmentSerial, SegmentIndex)>,
    /// Dirty segments with the same number of live slots are a list each, in the order in which
    /// they came to have so many. Of each segment the one before it, and the one behind it.
    neighbours: GrowingTable<Ends>,
    /// Of each list, by live slots, the last and the first.
    lists: Vec<Ends>,
}

/// Numbers of segments, from 1 on; 0: none, so that a table of them is memory that nothing has
/// touched.
#[derive(Clone, Copy, Default, FromZeros)]
struct Ends {
    before: u32,
    behind: u32,
}

fn number(index: SegmentIndex) -> u32 {
    index.0 + 1
}

fn index_of<'a>(
    segments: impl Iterator<Item = &'a (SegmentSerial, SegmentIndex)>,
) -> impl Iterator<Item = SegmentIndex> {
    segments.map(|(_, index)| *index)
}

impl FilledSegments {
    /// None of so many.
    pub(super) fn new(count: u32) -> FilledSegments {
        FilledSegments {
            buffered: BTreeSet::new(),
            dirty: BTreeSet::new(),
            neighbours: GrowingTable::new(count as usize + 1),
            lists: Vec::new(),
        }
    }

    /// There are so many segments from now on.
    pub(super) fn set_count(&mut self, count: u32) {
        self.neighbours.set_len(count as usize + 1);
    }

    pub(super) fn insert_buffered(&mut self, index: SegmentIndex, serial: SegmentSerial) {
        assert!(self.buffered.insert((serial, index)), "it was not there");
    }

    pub(super) fn remove_buffered(&mut self, index: SegmentIndex, serial: SegmentSerial) {
        assert!(self.buffered.remove(&(serial, index)), "it was there");
    }

    pub(super) fn buffered(&self) -> impl Iterator<Item = SegmentIndex> {
        index_of(self.buffered.iter())
    }

    pub(super) fn insert_dirty(&mut self, index: SegmentIndex, serial: SegmentSerial, live: u32) {
        assert!(self.dirty.insert((serial, index)), "it was not there");
        self.link(index, live);
    }

    pub(super) fn remove_dirty(&mut self, index: SegmentIndex, serial: SegmentSerial, live: u32) {
        assert!(self.dirty.remove(&(serial, index)), "it was there");
        self.unlink(index, live);
    }

    /// A dirty segment has another number of live slots.
    pub(super) fn live_changed(&mut self, index: SegmentIndex, from: u32, to: u32) {
        self.unlink(index, from);
        self.link(index, to);
    }

    /// Behind the last of its list.
    fn link(&mut self, index: SegmentIndex, live: u32) {
        if self.lists.len() <= live as usize {
            self.lists.resize(live as usize + 1, Ends::default());
        }
        let ends = &mut self.lists[live as usize];
        let last = std::mem::replace(&mut ends.before, number(index));
        self.neighbours[number(index) as usize] = Ends { before: last, behind: 0 };
        match last {
            0 => ends.behind = number(index),
            last => self.neighbours[last as usize].behind = number(index),
        }
    }

    fn unlink(&mut self, index: SegmentIndex, live: u32) {
        let Ends { before, behind } = std::mem::take(&mut self.neighbours[number(index) as usize]);
        let ends = &mut self.lists[live as usize];
        match before {
            0 => ends.behind = behind,
            before => self.neighbours[before as usize].behind = behind,
        }
        match behind {
            0 => ends.before = before,
            behind => self.neighbours[behind as usize].before = before,
        }
    }

    /// The first that is suitable, of the dirty ones; what is still in a segment buffer is most
    /// likely to be overwritten, and goes last. `live`: live slots of a segment.
    pub(super) fn first(
        &self,
        policy: DestagePolicyKind,
        live: impl Fn(SegmentIndex) -> u32,
        is_suitable: impl Fn(SegmentIndex) -> bool,
    ) -> Option<SegmentIndex> {
        let is_suitable = |index: &SegmentIndex| is_suitable(*index);
        match policy {
            // The oldest (NT paper, section 3.4.2).
            DestagePolicyKind::FirstWriteFirst | DestagePolicyKind::Ordered => {
                index_of(self.dirty.iter().chain(&self.buffered)).find(is_suitable)
            }
            // The newest (USENIX'99, section 3.5.3).
            DestagePolicyKind::LastWriteFirst => {
                index_of(self.dirty.iter().rev().chain(self.buffered.iter().rev()))
                    .find(is_suitable)
            }
            // The one with least to move, of equals the one that has had so little for longest
            // (USENIX'99, section 3.5.3).
            DestagePolicyKind::LeastValidFirst => {
                let buffered = index_of(self.buffered.iter()).filter(is_suitable);
                self.by_live_slots().find(is_suitable).or_else(|| buffered.min_by_key(|i| live(*i)))
            }
        }
    }

    fn by_live_slots(&self) -> impl Iterator<Item = SegmentIndex> {
        self.lists.iter().flat_map(|ends| {
            std::iter::successors(Some(ends.behind), |number| {
                Some(self.neighbours[*number as usize].behind)
            })
            .take_while(|number| *number > 0)
            .map(|number| SegmentIndex(number - 1))
        })
    }

    /// Checks that these are in it, each once and where it belongs.
    ///
    /// # Panics
    /// If something does not hold.
    pub(super) fn check_invariants(
        &self,
        buffered: BTreeSet<(SegmentSerial, SegmentIndex)>,
        dirty: BTreeSet<(SegmentSerial, SegmentIndex)>,
        live: impl Fn(SegmentIndex) -> u32,
    ) {
        let listed: Vec<SegmentIndex> = self.by_live_slots().collect();
        assert!(listed.is_sorted_by_key(|index| live(*index)), "in the list of another number");
        assert_eq!(listed.len(), dirty.len());
        assert_eq!(BTreeSet::from_iter(listed), index_of(dirty.iter()).collect());
        assert_eq!((&self.buffered, &self.dirty), (&buffered, &dirty));
    }

    /// Those that were begun later than this one.
    pub(super) fn newer(&self, serial: SegmentSerial) -> impl Iterator<Item = SegmentIndex> {
        let from = (SegmentSerial(serial.0 + 1), SegmentIndex(0));
        index_of(self.dirty.range(from..).chain(self.buffered.range(from..)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DestagePolicyKind::{FirstWriteFirst, LastWriteFirst, LeastValidFirst};

    #[test]
    fn each_policy_has_its_own_order() {
        let mut live = [3, 9, 4, 1, 9];
        let mut filled = FilledSegments::new(5);
        let index = SegmentIndex;
        for (segment, serial) in [(0, 7), (1, 5), (2, 9), (4, 6)] {
            filled.insert_dirty(index(segment), SegmentSerial(serial), live[segment as usize]);
        }
        filled.insert_buffered(index(3), SegmentSerial(10));
        let order = |filled: &FilledSegments, live: &[u32], policy| {
            let mut taken: Vec<SegmentIndex> = Vec::new();
            while let Some(next) =
                filled.first(policy, |i| live[i.0 as usize], |i| !taken.contains(&i))
            {
                taken.push(next);
            }
            taken.iter().map(|index| index.0).collect::<Vec<u32>>()
        };
        assert_eq!(order(&filled, &live, FirstWriteFirst), [1, 4, 0, 2, 3]);
        assert_eq!(order(&filled, &live, LastWriteFirst), [2, 0, 4, 1, 3]);
        assert_eq!(order(&filled, &live, LeastValidFirst), [0, 2, 1, 4, 3]);
        // One of a list of two, one behind another list, and one that goes.
        for (segment, to) in [(1, 8), (4, 8), (2, 3)] {
            filled.live_changed(index(segment), live[segment as usize], to);
            live[segment as usize] = to;
        }
        assert_eq!(order(&filled, &live, LeastValidFirst), [0, 2, 1, 4, 3]);
        filled.live_changed(index(1), 8, 7);
        live[1] = 7;
        filled.remove_dirty(index(0), SegmentSerial(7), 3);
        assert_eq!(order(&filled, &live, LeastValidFirst), [2, 1, 4, 3]);
        let newer: Vec<u32> = filled.newer(SegmentSerial(6)).map(|index| index.0).collect();
        assert_eq!(newer, [2, 3]);
    }
}
