//! Bits of the blocks of a group.

use std::ops::Range;

/// One bit for each block.
#[derive(Clone, Default, Debug)]
pub(super) struct Bits {
    words: Vec<u64>,
}

/// The words that a range touches, each with the bits meant.
fn words(range: Range<u32>) -> impl Iterator<Item = (usize, u64)> {
    let last = range.end.div_ceil(64);
    (range.start / 64..last).map(move |word| {
        let first = range.start.max(word * 64) - word * 64;
        let end = range.end.min(word * 64 + 64) - word * 64;
        let ones = if end - first == 64 { !0 } else { ((1 << (end - first)) - 1) << first };
        (word as usize, ones)
    })
}

impl Bits {
    /// Room for `blocks` of them, none set. Keeps its memory.
    pub(super) fn reset(&mut self, blocks: u32) {
        self.words.clear();
        self.words.resize(blocks.div_ceil(64) as usize, 0);
    }

    pub(super) fn count_in(&self, range: Range<u32>) -> u32 {
        words(range).map(|(word, ones)| (self.words[word] & ones).count_ones()).sum()
    }

    /// Sets them; how many were not set.
    pub(super) fn set(&mut self, range: Range<u32>) -> u32 {
        words(range)
            .map(|(word, ones)| {
                let new = ones & !self.words[word];
                self.words[word] |= ones;
                new.count_ones()
            })
            .sum()
    }

    /// Clears them; how many were set.
    pub(super) fn clear(&mut self, range: Range<u32>) -> u32 {
        words(range)
            .map(|(word, ones)| {
                let old = ones & self.words[word];
                self.words[word] &= !ones;
                old.count_ones()
            })
            .sum()
    }

    /// Clears of the range what is set in `other`; how many were set in both.
    pub(super) fn clear_common(&mut self, other: &Bits, range: Range<u32>) -> u32 {
        words(range)
            .map(|(word, ones)| {
                let both = ones & self.words[word] & other.words[word];
                self.words[word] &= !both;
                both.count_ones()
            })
            .sum()
    }

    pub(super) fn copy_from(&mut self, other: &Bits) {
        self.words.clone_from(&other.words);
    }

    /// How many runs of set bits there are.
    pub(super) fn run_count(&self) -> u32 {
        let mut before = 0;
        let starts = self.words.iter().map(|word| {
            let starts = word & !(word << 1 | before);
            before = word >> 63;
            starts.count_ones()
        });
        starts.sum()
    }

    /// The runs of set bits, in order.
    pub(super) fn runs(&self) -> impl Iterator<Item = Range<u32>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = self.next(at, true)?;
            let end = self.next(start, false).unwrap_or(self.words.len() as u32 * 64);
            at = end;
            Some(start..end)
        })
    }

    /// The first bit from `at` on that is set, or not set.
    fn next(&self, at: u32, is_set: bool) -> Option<u32> {
        let mut word = (at / 64) as usize;
        let mut skipped = !0u64 << (at % 64);
        while word < self.words.len() {
            let wanted = if is_set { self.words[word] } else { !self.words[word] } & skipped;
            if wanted != 0 {
                return Some(word as u32 * 64 + wanted.trailing_zeros());
            }
            skipped = !0;
            word += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a plain list of booleans.
        #[test]
        fn bits_are_booleans(changes in prop::collection::vec((any::<bool>(), 0u32..200, 0u32..90), 0..30)) {
            let mut bits = Bits::default();
            bits.reset(256);
            let mut plain = [false; 256];
            for (is_set, start, length) in changes {
                let range = start..(start + length).min(256);
                let slice = &mut plain[range.start as usize..range.end as usize];
                let different = slice.iter().filter(|bit| **bit != is_set).count() as u32;
                slice.fill(is_set);
                let count = if is_set { bits.set(range.clone()) } else { bits.clear(range.clone()) };
                prop_assert_eq!(count, different);
                prop_assert_eq!(bits.count_in(range.clone()), if is_set { range.len() as u32 } else { 0 });
            }
            prop_assert_eq!(bits.run_count() as usize, bits.runs().count());
            let mut from_runs = [false; 256];
            let mut last_end = None;
            for run in bits.runs() {
                prop_assert!(!run.is_empty() && last_end.is_none_or(|end| end < run.start));
                last_end = Some(run.end);
                from_runs[run.start as usize..run.end as usize].fill(true);
            }
            prop_assert_eq!(from_runs, plain);
            prop_assert_eq!(bits.count_in(0..256), plain.iter().filter(|bit| **bit).count() as u32);
        }
    }
}
