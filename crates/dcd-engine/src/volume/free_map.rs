//! Which of many numbers are free: a bit for each, set when it is taken, and above them bits that
//! say which words have no free one, so that a search costs a step per level also when nearly
//! everything is taken. Where all are free it takes next to no memory. Tests: against a plain set.

use std::ops::Range;

use super::sparse_table::SparseTable;

/// A set of numbers below a limit.
#[derive(Clone, Debug)]
pub(super) struct FreeMap {
    /// Words with a bit for each number.
    taken: SparseTable<u64>,
    /// A bit of `full[0]` says that a word of `taken` is all ones, one of `full[n + 1]` that a word
    /// of `full[n]` is.
    full: Vec<Vec<u64>>,
    size: u64,
    free: u64,
}

impl FreeMap {
    /// All numbers below `size` are free.
    pub(super) fn all_free(size: u64) -> FreeMap {
        let mut words = size.div_ceil(64);
        let mut taken = SparseTable::new(words);
        if size > 0 {
            taken.set(words - 1, behind(size));
        }
        let mut full = Vec::new();
        while words > 1 {
            let bits = words;
            words = bits.div_ceil(64);
            let mut level = vec![0; words as usize];
            level[words as usize - 1] = behind(bits);
            full.push(level);
        }
        FreeMap { taken, full, size, free: size }
    }

    /// There are so many from now on, which are not fewer: those that are added are free.
    pub(super) fn grow(&mut self, size: u64) {
        assert!(size >= self.size, "{size} numbers after {}", self.size);
        if size == self.size {
            return;
        }
        let before = std::mem::replace(&mut self.size, size);
        self.free += size - before;
        // What was behind the last of a level is free now. What is added is, but for what is behind
        // the last now.
        let (mut bits_before, mut bits) = (before, size);
        let mut words = bits.div_ceil(64);
        self.taken.set_len(words);
        if bits_before > 0 {
            let last = bits_before.div_ceil(64) - 1;
            self.taken.set(last, self.taken.get(last) & !behind(bits_before));
        }
        self.taken.set(words - 1, self.taken.get(words - 1) | behind(bits));
        let mut up = 0;
        while words > 1 {
            // A level that there was not said nothing of the only word below.
            let words_before = bits_before.div_ceil(64);
            (bits_before, bits) = (words_before, words);
            words = bits.div_ceil(64);
            if up == self.full.len() {
                self.full.push(Vec::new());
            }
            let is_last_full = bits_before > 0 && self.word(up, bits_before - 1) == Some(!0);
            let level = &mut self.full[up];
            level.resize(words as usize, 0);
            if bits_before > 0 {
                let last = bits_before - 1;
                let word = &mut level[last as usize / 64];
                *word &= !(!0 << (last % 64));
                *word |= u64::from(is_last_full) << (last % 64);
            }
            level[words as usize - 1] |= behind(bits);
            up += 1;
        }
    }

    /// How many numbers there are.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// How many are free.
    pub(super) fn free(&self) -> u64 {
        self.free
    }

    pub(super) fn is_free(&self, number: u64) -> bool {
        assert!(number < self.size, "number {number} of {}", self.size);
        self.taken.get(number / 64) & (1 << (number % 64)) == 0
    }

    /// Takes a number; whether it was free.
    pub(super) fn take(&mut self, number: u64) -> bool {
        if !self.is_free(number) {
            return false;
        }
        self.free -= 1;
        let mut at = number / 64;
        let mut word = self.taken.get(at) | 1 << (number % 64);
        self.taken.set(at, word);
        for level in &mut self.full {
            if word != !0 {
                break;
            }
            let of_level = &mut level[(at / 64) as usize];
            *of_level |= 1 << (at % 64);
            (word, at) = (*of_level, at / 64);
        }
        true
    }

    /// Gives a number back; whether it was taken.
    pub(super) fn give_back(&mut self, number: u64) -> bool {
        if self.is_free(number) {
            return false;
        }
        self.free += 1;
        let mut at = number / 64;
        let mut word = self.taken.get(at);
        self.taken.set(at, word & !(1 << (number % 64)));
        for level in &mut self.full {
            if word != !0 {
                break;
            }
            let of_level = &mut level[(at / 64) as usize];
            word = std::mem::replace(of_level, *of_level & !(1 << (at % 64)));
            at /= 64;
        }
        true
    }

    /// The first free number of `range` from `start` on, or else the first of `range`.
    pub(super) fn next_in(&self, range: Range<u64>, start: u64) -> Option<u64> {
        let start = if range.contains(&start) { start } else { range.start };
        let behind = self.first_from(start).filter(|number| *number < range.end);
        behind.or_else(|| self.first_from(range.start).filter(|number| *number < start))
    }

    fn first_from(&self, number: u64) -> Option<u64> {
        let (mut at, mut up) = (number, 0);
        // Up, as long as there is nothing behind `at` in its word, then down to the first bit of
        // what was found.
        loop {
            let word = self.word(up, at / 64)?;
            let behind = !word & (!0 << (at % 64));
            if behind != 0 {
                at = at / 64 * 64 + u64::from(behind.trailing_zeros());
                break;
            }
            at = at / 64 + 1;
            up += 1;
        }
        for level in (0..up).rev() {
            let word = self.word(level, at).expect("a word above tells of it");
            at = at * 64 + u64::from(word.trailing_ones());
        }
        Some(at)
    }

    /// A word of a level, the lowest of which has the numbers.
    fn word(&self, level: usize, word: u64) -> Option<u64> {
        match level.checked_sub(1) {
            None => (word < self.taken.len()).then(|| self.taken.get(word)),
            Some(level) => self.full.get(level)?.get(word as usize).copied(),
        }
    }

    /// Memory taken.
    pub(super) fn memory_bytes(&self) -> u64 {
        let full: usize = self.full.iter().map(|level| level.len() * 8).sum();
        self.taken.memory_bytes() + full as u64
    }
}

/// The bits of the last word that are behind so many: they are not free.
fn behind(bits: u64) -> u64 {
    if bits.is_multiple_of(64) { 0 } else { !0 << (bits % 64) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_set(
            size in 1..9000u64,
            keep in 0..4usize,
            operations in prop::collection::vec((any::<bool>(), any::<u64>(), any::<u64>()), 1..200),
        ) {
            let mut map = FreeMap::all_free(size);
            let mut model: BTreeSet<u64> = (0..size).collect();
            // Mostly full maps are the hard ones: all but a few numbers are taken first.
            let kept: Vec<u64> = operations.iter().take(keep).map(|(_, a, _)| a % size).collect();
            if keep < 3 {
                for number in (0..size).filter(|number| !kept.contains(number)) {
                    prop_assert!(map.take(number));
                    model.remove(&number);
                }
            }
            for (take, a, b) in operations {
                let number = a % size;
                if take {
                    prop_assert_eq!(map.take(number), model.remove(&number));
                } else {
                    prop_assert_eq!(map.give_back(number), model.insert(number));
                }
                prop_assert_eq!(map.free(), model.len() as u64);
                prop_assert_eq!(map.is_free(number), model.contains(&number));
                let (first, second) = (a % (size + 1), b % (size + 1));
                let range = first.min(second)..first.max(second);
                let start = (a ^ b) % (size + 3);
                let from = if range.contains(&start) { start } else { range.start };
                let expected = model.range(from..range.end).next();
                let expected = expected.or_else(|| model.range(range.start..from).next());
                prop_assert_eq!(map.next_in(range, start), expected.copied());
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// One that grows is like one that had its size from the start.
        #[test]
        fn growing_is_as_if_it_had_always_been_so(
            sizes in prop::collection::vec(
                prop_oneof![4 => 0..200u64, 4 => 0..5000u64, 1 => 262_000..262_400u64],
                1..4,
            ),
            is_full in any::<bool>(),
            numbers in prop::collection::vec(any::<u64>(), 0..60),
        ) {
            let mut sizes = sizes;
            sizes.sort_unstable();
            let mut map = FreeMap::all_free(sizes[0]);
            let mut taken = BTreeSet::new();
            for size in sizes {
                map.grow(size);
                let some = numbers.iter().filter(|_| size > 0).map(|number| number % size);
                let some: BTreeSet<u64> = some.collect();
                for number in 0..size {
                    // Full but for some, or free but for some.
                    if some.contains(&number) != is_full && map.take(number) {
                        taken.insert(number);
                    }
                }
                let mut anew = FreeMap::all_free(size);
                taken.iter().for_each(|number| assert!(anew.take(*number)));
                prop_assert_eq!((map.size(), map.free()), (size, size - taken.len() as u64));
                prop_assert_eq!(&map.full, &anew.full);
                let words = |map: &FreeMap| {
                    (0..map.taken.len()).map(|word| map.taken.get(word)).collect::<Vec<_>>()
                };
                prop_assert_eq!(words(&map), words(&anew));
            }
        }
    }

    #[test]
    fn what_is_taken_stays_so_when_there_are_more() {
        let mut map = FreeMap::all_free(70);
        (0..70).filter(|number| number % 3 > 0).for_each(|number| assert!(map.take(number)));
        map.grow(5000);
        assert_eq!(map.free(), 24 + 4930);
        let is_free = |number| number >= 70 || number % 3 == 0;
        assert!((0..5000).all(|number| map.is_free(number) == is_free(number)));
        assert_eq!(map.next_in(0..5000, 70), Some(70));
        map.grow(5000);
        assert_eq!(map.free(), 24 + 4930);
    }

    #[test]
    fn an_empty_one_has_nothing() {
        assert_eq!(FreeMap::all_free(0).next_in(0..0, 0), None);
    }

    #[test]
    fn the_last_of_many_is_found() {
        let size = 64 * 64 * 64 + 1;
        let mut map = FreeMap::all_free(size);
        (0..size - 1).for_each(|number| assert!(map.take(number)));
        assert_eq!(map.next_in(0..size, 0), Some(size - 1));
        assert!(map.take(size - 1));
        assert_eq!(map.next_in(0..size, 0), None);
    }
}
