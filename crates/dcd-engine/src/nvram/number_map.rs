//! From numbers to small ones, without an order: a hash table whose content depends on nothing but
//! what was put into it, several times as fast as a [`std::collections::BTreeMap`].

/// Open addressing; what collides lies in the next free slots, and removing closes the gap.
#[derive(Clone, Debug)]
pub(super) struct NumberMap {
    /// Key and value; at least a quarter is free.
    slots: Vec<Option<(u64, u32)>>,
    count: usize,
}

impl NumberMap {
    pub(super) fn new() -> NumberMap {
        NumberMap { slots: vec![None; 16], count: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn get(&self, key: u64) -> Option<u32> {
        let (_, value) = self.slots[self.slot_of(key)]?;
        Some(value)
    }

    /// Puts a value, in place of an older one.
    pub(super) fn insert(&mut self, key: u64, value: u32) {
        if self.count * 4 >= self.slots.len() * 3 {
            self.grow();
        }
        let slot = self.slot_of(key);
        self.count += usize::from(self.slots[slot].is_none());
        self.slots[slot] = Some((key, value));
    }

    pub(super) fn remove(&mut self, key: u64) -> Option<u32> {
        let mut gap = self.slot_of(key);
        let (_, removed) = self.slots[gap].take()?;
        self.count -= 1;
        // What lies behind the gap, and would have been put there or before it, moves into it.
        let mask = self.slots.len() - 1;
        let mut at = gap;
        loop {
            at = (at + 1) & mask;
            let Some((key, _)) = self.slots[at] else { return Some(removed) };
            let from_home = at.wrapping_sub(self.home(key)) & mask;
            if from_home >= at.wrapping_sub(gap) & mask {
                self.slots[gap] = self.slots[at].take();
                gap = at;
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.slots.fill(None);
        self.count = 0;
    }

    #[cfg(test)]
    pub(super) fn values(&self) -> impl Iterator<Item = u32> {
        self.slots.iter().flatten().map(|(_, value)| *value)
    }

    /// Where a key is looked for first.
    fn home(&self, key: u64) -> usize {
        // The high bits of a product depend on all bits of the key.
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 32) as usize & (self.slots.len() - 1)
    }

    /// The slot of a key, or the free one where it belongs.
    fn slot_of(&self, key: u64) -> usize {
        let mut at = self.home(key);
        while self.slots[at].is_some_and(|(other, _)| other != key) {
            at = (at + 1) & (self.slots.len() - 1);
        }
        at
    }

    fn grow(&mut self) {
        let larger = vec![None; self.slots.len() * 2];
        for entry in std::mem::replace(&mut self.slots, larger).into_iter().flatten() {
            let slot = self.slot_of(entry.0);
            self.slots[slot] = Some(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Few different keys, some far apart, so that many collide and gaps are closed around the
        /// end.
        #[test]
        fn it_is_a_map(
            steps in prop::collection::vec((any::<bool>(), 0u64..60, any::<bool>(), any::<u32>()), 0..400)
        ) {
            let (mut map, mut plain) = (NumberMap::new(), BTreeMap::new());
            for (is_insert, key, is_far, value) in steps {
                let key = if is_far { key << 40 } else { key };
                if is_insert {
                    map.insert(key, value);
                    plain.insert(key, value);
                } else {
                    prop_assert_eq!(map.remove(key), plain.remove(&key));
                }
                prop_assert_eq!(map.len(), plain.len());
                for key in (0..60).flat_map(|key| [key, key << 40]) {
                    prop_assert_eq!(map.get(key), plain.get(&key).copied());
                }
            }
            let (mut values, mut expected): (Vec<_>, Vec<_>) =
                (map.values().collect(), plain.values().copied().collect());
            values.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(values, expected);
            map.clear();
            prop_assert_eq!((map.len(), map.values().count()), (0, 0));
        }
    }
}
