//! Groups by what cleaning them costs for each block that it frees, with the clock that rises as
//! groups go: *greedy dual size* (Cao and Irani 1997). Of a group that is not written again the
//! value stays, and those that come later are worth more than it at last.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::directory::GroupIndex;

/// So many values may be out of date, and as many as there are groups.
const OLD_MIN: usize = 64;

type Key = Reverse<(u64, u64, GroupIndex)>;

/// The listed groups.
#[derive(Debug)]
pub(super) struct GreedyDual {
    /// Least value first, then the one written longest ago. Some are out of date.
    heap: BinaryHeap<Key>,
    /// Value and touch of a group while it is listed.
    values: Vec<Option<(u64, u64)>>,
    listed: usize,
    clock: u64,
}

/// Writes for the root of the blocks, in parts of 2^16.
fn cost(blocks: u32, writes: u32) -> u64 {
    let root = (u64::from(blocks.max(1)) << 16).isqrt();
    (u64::from(writes) << 24) / root
}

impl GreedyDual {
    pub(super) fn new() -> GreedyDual {
        GreedyDual { heap: BinaryHeap::new(), values: Vec::new(), listed: 0, clock: 0 }
    }

    /// A group of so many dirty blocks, which take so many writes.
    pub(super) fn list(&mut self, index: GroupIndex, blocks: u32, writes: u32, touch: u64) {
        if self.values.len() <= index.number() {
            self.values.resize(index.number() + 1, None);
        }
        let value = self.clock + cost(blocks, writes);
        self.values[index.number()] = Some((value, touch));
        self.listed += 1;
        self.heap.push(Reverse((value, touch, index)));
        if self.heap.len() > 2 * self.listed + OLD_MIN {
            let mut keys = std::mem::take(&mut self.heap).into_vec();
            keys.retain(|key| self.is_true(key));
            self.heap = BinaryHeap::from(keys);
        }
    }

    /// A group that was listed is not any more.
    pub(super) fn unlist(&mut self, index: GroupIndex) {
        self.values[index.number()] = None;
        self.listed -= 1;
    }

    /// The group of least value, which goes: others that come are worth more than it.
    pub(super) fn take_least(&mut self) -> Option<GroupIndex> {
        while let Some(key) = self.heap.peek() {
            if self.is_true(key) {
                let Reverse((value, _, index)) = *key;
                self.clock = self.clock.max(value);
                return Some(index);
            }
            self.heap.pop();
        }
        None
    }

    fn is_true(&self, Reverse((value, touch, index)): &Key) -> bool {
        self.values[index.number()] == Some((*value, *touch))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn many_blocks_in_a_row_go_before_few_that_are_scattered() {
        assert!(
            cost(128, 1) < cost(16, 1) && cost(16, 1) < cost(1, 1) && cost(1, 1) < cost(16, 16)
        );
        assert_eq!(cost(1, 1), 1 << 16);
        assert_eq!(cost(16, 1), 1 << 14);
    }

    proptest! {
        /// Against a list that is searched from end to end.
        #[test]
        fn the_least_is_that_of_a_linear_scan(
            steps in prop::collection::vec((0u32..30, 1u32..128, 1u32..20, 0u8..3), 0..300)
        ) {
            let mut dual = GreedyDual::new();
            let mut plain: Vec<(u64, u64, u32)> = Vec::new();
            let mut clock = 0;
            for (touch, (group, blocks, writes, kind)) in (0u64..).zip(steps) {
                if kind == 0 {
                    let least = plain.iter().min().copied();
                    clock = least.map_or(clock, |(value, ..)| value.max(clock));
                    let expected = least.map(|(_, _, group)| GroupIndex::of(group));
                    prop_assert_eq!(dual.take_least(), expected);
                    plain.retain(|one| Some(*one) != least);
                    if let Some(index) = expected {
                        dual.unlist(index);
                    }
                    continue;
                }
                if let Some(at) = plain.iter().position(|(_, _, known)| *known == group) {
                    plain.remove(at);
                    dual.unlist(GroupIndex::of(group));
                }
                let writes = writes.min(blocks);
                plain.push((clock + cost(blocks, writes), touch, group));
                dual.list(GroupIndex::of(group), blocks, writes, touch);
                prop_assert!(dual.heap.len() <= 2 * dual.listed + OLD_MIN);
            }
        }
    }
}
