//! Lines of RAID 0 sets that nothing holds any more, because a blank disk has come to the place of
//! a member: reads of exactly these fail until they are written.
//!
//! A line that is written is *found*: it can be read at once, and when a flush has made it durable
//! the journal is told. Until then the table on the disk has it as lost, and so has a start after a
//! crash; what was there before was lost as well. A flush of a member that fails takes back what
//! was found there.

use std::collections::BTreeMap;
use std::ops::Range;

use super::config::{SetConfig, VolumeConfig};
use super::placement::RaidLevel;
use super::raid::SetLine;
use crate::units::LINE_SIZE;

/// Lines in a word of a bitmap.
pub(super) const LINES_PER_WORD: u64 = 64;

/// Lines of a set that can be lost: those of RAID 0.
pub(super) fn lines_of(set: &SetConfig) -> u64 {
    match set.level {
        RaidLevel::Raid0 => set.stripes() * set.data_units() * (set.stripe_unit_bytes / LINE_SIZE),
        RaidLevel::Raid1 | RaidLevel::Raid5 => 0,
    }
}

/// Lines of a set one behind the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LineRun {
    pub(super) set: u8,
    pub(super) first: SetLine,
    pub(super) lines: u64,
}

/// Bits for some words of some sets.
type SparseBits = BTreeMap<(u8, u64), u64>;

/// All such lines.
pub(super) struct LostLines {
    lines: Vec<u64>,
    /// A bit for each line of a set; empty as long as none was lost.
    lost: Vec<Vec<u64>>,
    /// Written since, not durable.
    found: SparseBits,
    /// Durable, and on their way to the journal.
    queued: SparseBits,
    count: u64,
    /// Records of the journal before this one were written before the newest loss: what they found
    /// is lost again.
    pub(super) since_record: u64,
}

/// The bits of each word that are of these lines.
fn words(first: SetLine, lines: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = first.0 + lines;
    (first.0 / LINES_PER_WORD..end.div_ceil(LINES_PER_WORD)).map(move |word| {
        let start = word * LINES_PER_WORD;
        let from = first.0.saturating_sub(start);
        let to = (end - start).min(LINES_PER_WORD);
        (word, u64::MAX << from & u64::MAX >> (LINES_PER_WORD - to))
    })
}

fn clear_bits(bits: &mut SparseBits, key: (u8, u64), mask: u64) {
    if let Some(word) = bits.get_mut(&key) {
        *word &= !mask;
        if *word == 0 {
            bits.remove(&key);
        }
    }
}

fn runs(bits: &SparseBits) -> Vec<LineRun> {
    let mut runs: Vec<LineRun> = Vec::new();
    for (&(set, word), &mask) in bits {
        for bit in (0..LINES_PER_WORD).filter(|bit| mask & 1 << bit != 0) {
            let line = word * LINES_PER_WORD + bit;
            match runs.last_mut() {
                Some(run) if run.set == set && run.first.0 + run.lines == line => run.lines += 1,
                _ => runs.push(LineRun { set, first: SetLine(line), lines: 1 }),
            }
        }
    }
    runs
}

impl LostLines {
    /// Of a volume that has lost nothing.
    pub(super) fn new(config: &VolumeConfig) -> LostLines {
        LostLines {
            lines: config.sets.iter().map(lines_of).collect(),
            lost: vec![Vec::new(); config.sets.len()],
            found: SparseBits::new(),
            queued: SparseBits::new(),
            count: 0,
            since_record: 0,
        }
    }

    /// The sets are as large as these now, and there are as many.
    pub(super) fn grow(&mut self, config: &VolumeConfig) {
        self.lines = config.sets.iter().map(lines_of).collect();
        self.lost.resize(config.sets.len(), Vec::new());
        for (bits, lines) in self.lost.iter_mut().zip(&self.lines) {
            if !bits.is_empty() {
                bits.resize(lines.div_ceil(LINES_PER_WORD) as usize, 0);
            }
        }
    }

    fn set_bits(&mut self, set: u8, word: u64, mask: u64) {
        let bits = &mut self.lost[usize::from(set)];
        if bits.is_empty() {
            bits.resize(self.lines[usize::from(set)].div_ceil(LINES_PER_WORD) as usize, 0);
        }
        let bits = &mut bits[word as usize];
        self.count += u64::from((mask & !*bits).count_ones());
        *bits |= mask;
    }

    /// Takes bits away; those that were there.
    fn take_bits(&mut self, set: u8, word: u64, mask: u64) -> u64 {
        let Some(bits) = self.lost[usize::from(set)].get_mut(word as usize) else { return 0 };
        let taken = *bits & mask;
        *bits &= !mask;
        self.count -= u64::from(taken.count_ones());
        taken
    }

    /// Whether there is such a run of lines; it may come from a disk.
    pub(super) fn has(&self, run: LineRun) -> bool {
        let lines = self.lines.get(usize::from(run.set)).copied().unwrap_or(0);
        run.lines > 0 && run.first.0.checked_add(run.lines).is_some_and(|end| end <= lines)
    }

    /// Lines that cannot be read.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Nothing holds them any more.
    pub(super) fn lose(&mut self, run: LineRun) {
        for (word, mask) in words(run.first, run.lines) {
            clear_bits(&mut self.found, (run.set, word), mask);
            clear_bits(&mut self.queued, (run.set, word), mask);
            self.set_bits(run.set, word, mask);
        }
    }

    /// Whether a read of a line has to fail.
    pub(super) fn is_lost(&self, set: u8, line: SetLine) -> bool {
        let bits = self.lost[usize::from(set)].get((line.0 / LINES_PER_WORD) as usize);
        bits.is_some_and(|bits| bits & 1 << (line.0 % LINES_PER_WORD) != 0)
    }

    /// Lines were written.
    pub(super) fn written(&mut self, run: LineRun) {
        for (word, mask) in words(run.first, run.lines) {
            let taken = self.take_bits(run.set, word, mask);
            if taken != 0 {
                *self.found.entry((run.set, word)).or_default() |= taken;
            }
        }
    }

    /// Whether any of these was found, and is not on its way to the journal.
    pub(super) fn has_found(&self, run: LineRun) -> bool {
        words(run.first, run.lines).any(|(word, mask)| {
            self.found.get(&(run.set, word)).is_some_and(|found| found & mask != 0)
        })
    }

    /// All that were found, and are not on their way to the journal.
    pub(super) fn found(&self) -> Vec<LineRun> {
        runs(&self.found)
    }

    /// A member has failed to flush: what was found there may be gone.
    pub(super) fn doubt(&mut self, is_concerned: impl Fn(u8, SetLine) -> bool) {
        for run in self.found() {
            for line in run.first.0..run.first.0 + run.lines {
                if is_concerned(run.set, SetLine(line)) {
                    self.lose(LineRun { first: SetLine(line), lines: 1, ..run });
                }
            }
        }
    }

    /// Lines are durable: those of them that were found, which the journal is to be told.
    pub(super) fn queue(&mut self, run: LineRun) -> Vec<LineRun> {
        let mut taken = SparseBits::new();
        for (word, mask) in words(run.first, run.lines) {
            let key = (run.set, word);
            let found = self.found.get(&key).copied().unwrap_or(0) & mask;
            if found != 0 {
                clear_bits(&mut self.found, key, found);
                *self.queued.entry(key).or_default() |= found;
                taken.insert(key, found);
            }
        }
        runs(&taken)
    }

    /// The journal has not been told.
    pub(super) fn refused(&mut self, run: LineRun) {
        for (word, mask) in words(run.first, run.lines) {
            let key = (run.set, word);
            let queued = self.queued.get(&key).copied().unwrap_or(0) & mask;
            if queued != 0 {
                clear_bits(&mut self.queued, key, queued);
                *self.found.entry(key).or_default() |= queued;
            }
        }
    }

    /// The journal has been told, now or before a start.
    pub(super) fn committed(&mut self, run: LineRun) {
        for (word, mask) in words(run.first, run.lines) {
            clear_bits(&mut self.queued, (run.set, word), mask);
            self.take_bits(run.set, word, mask);
        }
    }

    /// Words of a set from `first` on, as the journal has them, for a page.
    pub(super) fn page(&self, set: usize, words: Range<u64>) -> Vec<u8> {
        let bits = |word: u64| {
            let lost = self.lost[set].get(word as usize).copied().unwrap_or(0);
            let key = (set as u8, word);
            let others = [&self.found, &self.queued].map(|bits| bits.get(&key).copied());
            others.into_iter().flatten().fold(lost, |lost, bits| lost | bits)
        };
        let end = words.end.min(self.lines[set].div_ceil(LINES_PER_WORD));
        (words.start..end).flat_map(|word| bits(word).to_le_bytes()).collect()
    }

    /// Takes a word back from a page; what is behind the last line does not count.
    pub(super) fn load(&mut self, set: usize, word: u64, bits: u64) {
        let lines = self.lines[set].saturating_sub(word * LINES_PER_WORD).min(LINES_PER_WORD);
        if lines > 0 && bits != 0 {
            self.set_bits(set as u8, word, bits & u64::MAX >> (LINES_PER_WORD - lines));
        }
    }

    /// Memory taken.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.lost.iter().map(|bits| bits.capacity() as u64 * 8).sum()
    }
}

#[cfg(test)]
#[path = "lost_tests.rs"]
mod tests;
