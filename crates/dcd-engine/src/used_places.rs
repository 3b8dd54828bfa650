//! Which places of a large, mostly empty table are in use: a bit for each, and above it a bit for
//! each word that has one, and so on. Walking those in use costs a few steps for each, however
//! large the table is.

use crate::growing_table::untouched_zeroes;

/// Bits of a word.
const BITS: usize = u64::BITS as usize;

/// A set of places below a fixed number.
pub struct UsedPlaces {
    /// The first has a bit for each place, each further one a bit for each word of the one before;
    /// the last is one word.
    levels: Vec<Vec<u64>>,
    /// What a word is in which no bit has been changed, and each word is kept with its bits
    /// exchanged by this: all zero at first, so that nothing is touched, also where all are in use.
    untouched: u64,
    /// Words that were looked at, for tests.
    #[cfg(test)]
    steps: std::cell::Cell<usize>,
}

impl UsedPlaces {
    /// None of so many places.
    pub fn new(places: usize) -> UsedPlaces {
        let mut levels = vec![untouched_zeroes(places.div_ceil(BITS).max(1))];
        while let Some(below) = levels.last().map(Vec::len).filter(|words| *words > 1) {
            levels.push(untouched_zeroes(below.div_ceil(BITS)));
        }
        UsedPlaces {
            levels,
            untouched: 0,
            #[cfg(test)]
            steps: std::cell::Cell::new(0),
        }
    }

    /// All of so many places.
    pub fn all(places: usize) -> UsedPlaces {
        let mut all = UsedPlaces { untouched: u64::MAX, ..UsedPlaces::new(places) };
        let mut used = places;
        for level in 0..all.levels.len() {
            // What is behind the last place of a level is in no use; only its last word has such.
            let last = all.levels[level].len() - 1;
            all.set_word(level, last, ones(used - last * BITS));
            used = last + usize::from(used > last * BITS);
        }
        all
    }

    /// A word of a level: a bit for each that is in use.
    fn word(&self, level: usize, at: usize) -> Option<u64> {
        self.levels[level].get(at).map(|word| word ^ self.untouched)
    }

    fn set_word(&mut self, level: usize, at: usize, word: u64) {
        self.levels[level][at] = word ^ self.untouched;
    }

    /// There are so many places from now on, if that is more; none of the new ones is in use.
    pub fn grow(&mut self, places: usize) {
        let mut words = places.div_ceil(BITS).max(1);
        for level in &mut self.levels {
            let len = level.len().max(words);
            level.resize(len, self.untouched);
            words = len.div_ceil(BITS);
        }
        while let Some(below) = self.levels.last().filter(|words| words.len() > 1) {
            let mut level = vec![self.untouched; below.len().div_ceil(BITS)];
            for (at, _) in below.iter().enumerate().filter(|(_, word)| **word != self.untouched) {
                level[at / BITS] ^= 1 << (at % BITS);
            }
            self.levels.push(level);
        }
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.levels.iter().map(|words| words.len() * size_of::<u64>()).sum()
    }

    /// The place is in use. Tells whether it was not.
    pub fn insert(&mut self, place: usize) -> bool {
        if self.contains(place) {
            return false;
        }
        let mut at = place;
        for level in 0..self.levels.len() {
            let word = self.levels[level][at / BITS] ^ self.untouched;
            self.set_word(level, at / BITS, word | 1 << (at % BITS));
            if word != 0 {
                break;
            }
            at /= BITS;
        }
        true
    }

    /// It is not.
    pub fn remove(&mut self, place: usize) {
        let mut at = place;
        for level in 0..self.levels.len() {
            let word = (self.levels[level][at / BITS] ^ self.untouched) & !(1 << (at % BITS));
            self.set_word(level, at / BITS, word);
            if word != 0 {
                return;
            }
            at /= BITS;
        }
    }

    /// Whether the place is in use; one that there is not is not.
    pub fn contains(&self, place: usize) -> bool {
        let word = self.word(0, place / BITS);
        word.is_some_and(|word| word & (1 << (place % BITS)) != 0)
    }

    /// All in use, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.iter_from(0)
    }

    /// Those not below `place`.
    pub fn iter_from(&self, place: usize) -> impl Iterator<Item = usize> {
        let mut next = self.first_from(place);
        std::iter::from_fn(move || {
            let place = next?;
            next = self.first_from(place + 1);
            Some(place)
        })
    }

    /// The first in use that is not below `place`.
    fn first_from(&self, place: usize) -> Option<usize> {
        let mut at = place;
        for level in 0..self.levels.len() {
            #[cfg(test)]
            self.steps.set(self.steps.get() + 1);
            let rest = self.word(level, at / BITS)? & (u64::MAX << (at % BITS));
            if rest != 0 {
                let found = at / BITS * BITS + rest.trailing_zeros() as usize;
                return Some(self.descend(level, found));
            }
            // Nothing behind it in this word: on with the words behind.
            at = at / BITS + 1;
        }
        None
    }

    /// The first place below a bit of a level.
    fn descend(&self, level: usize, bit: usize) -> usize {
        self.levels[..level].iter().rev().fold(bit, |word, words| {
            #[cfg(test)]
            self.steps.set(self.steps.get() + 1);
            word * BITS + (words[word] ^ self.untouched).trailing_zeros() as usize
        })
    }
}

/// The lowest bits, so many.
fn ones(bits: usize) -> u64 {
    u64::MAX.checked_shr((BITS - bits) as u32).unwrap_or(0)
}

#[cfg(test)]
impl UsedPlaces {
    /// Words that were looked at since the last call.
    pub fn take_steps(&self) -> usize {
        self.steps.take()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_set(
            size in 1usize..10_000,
            all in any::<bool>(),
            larger in 0usize..10_000,
            operations in prop::collection::vec((any::<bool>(), 0usize..10_000), 1..100),
        ) {
            let mut used = if all { UsedPlaces::all(size) } else { UsedPlaces::new(size) };
            let mut model: BTreeSet<usize> = (0..if all { size } else { 0 }).collect();
            used.grow(larger);
            let size = size.max(larger);
            for (insert, place) in operations {
                let place = place % size;
                match insert {
                    true => { used.insert(place); model.insert(place); }
                    false => { used.remove(place); model.remove(&place); }
                }
                prop_assert!(used.iter().eq(model.iter().copied()));
            }
        }
    }

    #[test]
    fn one_that_has_grown_is_like_one_that_was_made_so_large() {
        for (size, larger) in [(1, 64), (64, 65), (65, 4097), (5000, 1 << 19), (70, 70), (9, 3)] {
            let mut all = UsedPlaces::all(size);
            all.grow(larger);
            assert!(all.iter().eq(0..size), "{size} {larger}");
            let mut used = UsedPlaces::new(size);
            used.insert(size - 1);
            used.insert(0);
            used.grow(larger);
            let levels: Vec<usize> = used.levels.iter().map(Vec::len).collect();
            let made = UsedPlaces::new(larger.max(size));
            assert_eq!(levels, made.levels.iter().map(Vec::len).collect::<Vec<usize>>());
            used.insert(larger.max(size) - 1);
            let expected = BTreeSet::from([0, size - 1, larger.max(size) - 1]);
            assert!(used.iter().eq(expected), "{size} {larger}");
        }
    }

    #[test]
    fn both_ends_of_every_level_are_there() {
        for size in [1, 63, 64, 65, 4096, 4097, 64 * 64 * 64 + 1] {
            let mut used = UsedPlaces::new(size);
            assert_eq!(used.iter().next(), None);
            used.insert(size - 1);
            used.insert(0);
            let last = (size > 1).then_some(size - 1);
            assert!(used.iter().eq([0].into_iter().chain(last)), "{size}");

            let mut all = UsedPlaces::all(size);
            assert!(all.iter().eq(0..size), "{size}");
            (0..size).for_each(|place| all.remove(place));
            assert_eq!(all.iter().next(), None, "{size}");
        }
    }

    /// A handful in a hundred million costs a handful of steps.
    #[test]
    fn steps_are_for_places_in_use_and_not_for_the_others() {
        let mut used = UsedPlaces::new(100_000_000);
        for place in 0..2000 {
            used.insert(place * 49_999);
        }
        used.take_steps();
        assert_eq!(used.iter().count(), 2000);
        let steps = used.take_steps();
        assert!(steps < 2000 * 12, "{steps} steps");
    }
}
