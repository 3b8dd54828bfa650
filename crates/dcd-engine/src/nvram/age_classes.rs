//! Groups by the ratio of their blocks to the writes that they take, each class by age: which of
//! them has the largest product of both.
//!
//! Ages grow while nothing happens, so no order of all groups stays true. But of two groups with
//! the same ratio the older one has the larger product, always. So ratios are rounded down to
//! eighths of a power of two, and the oldest of each class are compared.

use super::directory::GroupIndex;

/// Classes in a power of two, as a power of two.
const STEPS_LOG2: u32 = 3;
/// Ratios from 1 to 4096.
const CLASSES: usize = 128;

#[derive(Clone, Copy, Default, Debug)]
struct Links {
    newer: Option<GroupIndex>,
    older: Option<GroupIndex>,
    class: u8,
    since: u64,
}

#[derive(Clone, Copy, Default, Debug)]
struct Class {
    newest: Option<GroupIndex>,
    oldest: Option<GroupIndex>,
}

/// The listed groups.
#[derive(Debug)]
pub(super) struct AgeClasses {
    /// By group.
    links: Vec<Links>,
    classes: Vec<Class>,
    /// A bit for each class that has a group.
    used: u128,
}

/// The class of a group of so many dirty blocks, which take so many writes.
fn class_of(blocks: u32, writes: u32) -> u8 {
    let ratio = (u64::from(blocks) << STEPS_LOG2) / u64::from(writes.max(1));
    let ratio = ratio.max(1 << STEPS_LOG2);
    let power = ratio.ilog2() - STEPS_LOG2;
    let step = (ratio >> power) - (1 << STEPS_LOG2);
    ((u64::from(power) << STEPS_LOG2) + step).min(CLASSES as u64 - 1) as u8
}

/// Least ratio of a class, in eighths.
fn weight(class: u8) -> u64 {
    let (power, step) = (class >> STEPS_LOG2, u64::from(class) & ((1 << STEPS_LOG2) - 1));
    ((1 << STEPS_LOG2) + step) << power
}

impl AgeClasses {
    pub(super) fn new() -> AgeClasses {
        AgeClasses { links: Vec::new(), classes: vec![Class::default(); CLASSES], used: 0 }
    }

    /// A group is the newest of its class, at that time, which never goes back.
    pub(super) fn list(&mut self, index: GroupIndex, blocks: u32, writes: u32, since: u64) {
        let class = class_of(blocks, writes);
        if self.links.len() <= index.number() {
            self.links.resize(index.number() + 1, Links::default());
        }
        let newest = self.classes[class as usize].newest;
        self.links[index.number()] = Links { newer: None, older: newest, class, since };
        match newest {
            Some(newest) => self.links[newest.number()].newer = Some(index),
            None => self.classes[class as usize].oldest = Some(index),
        }
        self.classes[class as usize].newest = Some(index);
        self.used |= 1 << class;
    }

    /// A group that was listed is not any more.
    pub(super) fn unlist(&mut self, index: GroupIndex) {
        let Links { newer, older, class, .. } = self.links[index.number()];
        match newer {
            Some(newer) => self.links[newer.number()].older = older,
            None => self.classes[class as usize].newest = older,
        }
        match older {
            Some(older) => self.links[older.number()].newer = newer,
            None => self.classes[class as usize].oldest = newer,
        }
        if self.classes[class as usize].oldest.is_none() {
            self.used &= !(1 << class);
        }
    }

    /// The group with the largest product of age and ratio; of equals that with the larger ratio.
    pub(super) fn largest(&self, now: u64) -> Option<GroupIndex> {
        let mut left = self.used;
        let mut best = None;
        while left != 0 {
            let class = left.trailing_zeros() as u8;
            left &= left - 1;
            let index = self.classes[class as usize].oldest?;
            let age = now - self.links[index.number()].since;
            best = best.max(Some((u128::from(age) * u128::from(weight(class)), class, index)));
        }
        best.map(|(_, _, index)| index)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn classes_are_eighths() {
        for (blocks, writes) in [(1, 1), (7, 3), (128, 1), (4096, 1), (4096, 2048), (5, 5), (9, 2)]
        {
            let class = class_of(blocks, writes);
            let ratio = f64::from(blocks) / f64::from(writes);
            let least = weight(class) as f64 / 8.0;
            assert!(least <= ratio && ratio < least * 1.126, "{blocks}/{writes}: {least}");
        }
    }

    proptest! {
        /// Against a list that is searched from end to end.
        #[test]
        fn the_largest_is_that_of_a_linear_scan(
            steps in prop::collection::vec((0u32..30, 1u32..128, 1u32..20, 0u64..5), 0..200)
        ) {
            let mut classes = AgeClasses::new();
            let mut plain: Vec<(u64, u8, u32)> = Vec::new();
            let mut now = 0;
            for (group, blocks, writes, later) in steps {
                let writes = writes.min(blocks);
                now += later;
                if let Some(at) = plain.iter().position(|(_, _, known)| *known == group) {
                    plain.remove(at);
                    classes.unlist(GroupIndex::of(group));
                } else {
                    plain.push((now, class_of(blocks, writes), group));
                    classes.list(GroupIndex::of(group), blocks, writes, now);
                }
                // Of equal products the larger ratio, then the one that came first.
                let product = |(since, class, _): &(u64, u8, u32)| ((now - since) * weight(*class), *class);
                let most = plain.iter().map(product).max();
                let expected = plain.iter().find(|one| Some(product(one)) == most);
                let expected = expected.map(|(_, _, group)| GroupIndex::of(*group));
                prop_assert_eq!(classes.largest(now), expected);
            }
        }
    }
}
