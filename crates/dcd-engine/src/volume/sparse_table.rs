//! A long table of which most is zero: blocks of entries, found by their numbers. Memory follows
//! what is used also where that is scattered; in a plain table each entry in use costs a page of
//! the system.

use std::collections::BTreeMap;

/// Entries of a block.
const BLOCK: usize = 64;
/// What the tree takes for a block: its key, its address, and room that is not used.
const BLOCK_OVERHEAD_BYTES: u64 = 24;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct SparseTable<T> {
    /// None is all zeroes.
    blocks: BTreeMap<u32, Box<[T; BLOCK]>>,
    len: u64,
}

impl<T: Copy + Default + PartialEq> SparseTable<T> {
    /// So many entries, all of them zero.
    ///
    /// # Panics
    /// If they are 2^38 or more.
    pub(super) fn new(len: u64) -> SparseTable<T> {
        let mut table = SparseTable { blocks: BTreeMap::new(), len: 0 };
        table.set_len(len);
        table
    }

    /// How many there are.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// There are so many from now on; what is added is zero.
    ///
    /// # Panics
    /// If that is fewer, or 2^38 or more.
    pub(super) fn set_len(&mut self, len: u64) {
        assert!(self.len <= len && len < 1 << 38, "{len} entries after {}", self.len);
        self.len = len;
    }

    /// An entry.
    ///
    /// # Panics
    /// If there is none.
    pub(super) fn get(&self, index: u64) -> T {
        let (block, at) = self.place(index);
        self.blocks.get(&block).map_or(T::default(), |entries| entries[at])
    }

    /// Changes an entry, and returns what it was.
    ///
    /// # Panics
    /// If there is none.
    pub(super) fn set(&mut self, index: u64, entry: T) -> T {
        let (block, at) = self.place(index);
        let is_zero = entry == T::default();
        let Some(entries) = self.blocks.get_mut(&block) else {
            if !is_zero {
                let mut entries = Box::new([T::default(); BLOCK]);
                entries[at] = entry;
                self.blocks.insert(block, entries);
            }
            return T::default();
        };
        let before = std::mem::replace(&mut entries[at], entry);
        if is_zero && entries.iter().all(|entry| *entry == T::default()) {
            self.blocks.remove(&block);
        }
        before
    }

    /// The numbers of all that are not zero, ascending.
    pub(super) fn used(&self) -> impl Iterator<Item = u64> + Clone + '_ {
        self.blocks.iter().flat_map(|(block, entries)| {
            let first = u64::from(*block) * BLOCK as u64;
            let used = (first..).zip(entries.iter()).filter(|(_, e)| **e != T::default());
            used.map(|(index, _)| index)
        })
    }

    /// The first number from this one on that is not zero.
    pub(super) fn next_used(&self, from: u64) -> Option<u64> {
        let block = u32::try_from(from / BLOCK as u64).ok()?;
        let mut blocks = self.blocks.range(block..);
        blocks.find_map(|(block, entries)| {
            let first = u64::from(*block) * BLOCK as u64;
            let mut used = (first..).zip(entries.iter());
            let used = used.find(|(index, entry)| *index >= from && **entry != T::default());
            used.map(|(index, _)| index)
        })
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.blocks.len() as u64 * (size_of::<[T; BLOCK]>() as u64 + BLOCK_OVERHEAD_BYTES)
    }

    fn place(&self, index: u64) -> (u32, usize) {
        assert!(index < self.len, "entry {index} of {}", self.len);
        let block = u32::try_from(index / BLOCK as u64).expect("there are not so many");
        (block, (index % BLOCK as u64) as usize)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_plain_table(
            size in 1..700usize,
            changes in prop::collection::vec((any::<usize>(), 0..3u32), 1..200),
        ) {
            let mut table = SparseTable::<u32>::new(size as u64);
            let mut model = vec![0; size];
            for (index, entry) in changes {
                let index = index % size;
                let before = std::mem::replace(&mut model[index], entry);
                prop_assert_eq!(table.set(index as u64, entry), before);
            }
            prop_assert!((0..size).all(|index| table.get(index as u64) == model[index]));
            let used = (0..size as u64).filter(|index| model[*index as usize] != 0);
            prop_assert!(table.used().eq(used.clone()));
            for from in 0..size as u64 + 2 {
                let next = used.clone().find(|index| *index >= from);
                prop_assert_eq!(table.next_used(from), next);
            }
        }
    }

    #[test]
    fn memory_follows_what_is_used() {
        let mut table = SparseTable::<u64>::new(1 << 37);
        let scattered = |n: u64| n * 99_999_989 % (1 << 37);
        (0..1000).for_each(|n| assert_eq!(table.set(scattered(n), n + 1), 0));
        assert!(table.memory_bytes() <= 1000 * 540, "{}", table.memory_bytes());
        (0..1000).for_each(|n| assert_eq!(table.set(scattered(n), 0), n + 1));
        assert_eq!((table.memory_bytes(), table.used().next()), (0, None));
    }
}
