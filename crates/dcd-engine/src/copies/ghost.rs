//! The ghost of [`S3Fifo`](super::s3_fifo::S3Fifo): which lines left not long ago. It has no data,
//! only numbers of lines, in the order in which they came; when it is full the oldest goes.
//!
//! Exact: a line is found if and only if it is there. Chains from buckets of one line on average,
//! all in tables that nothing touches before they are used: 21 bytes for each line it may remember.

use zerocopy::FromZeros;

use super::list::{Links, List};
use crate::growing_table::untouched_zeroes;
use crate::line_hash::LineHash;
use crate::units::Line;

/// No entry.
const NONE: u32 = 0;

/// The 40 bits of a line.
#[derive(Clone, Copy, PartialEq, Eq, FromZeros)]
struct PackedLine([u8; 5]);

impl PackedLine {
    fn new(line: Line) -> PackedLine {
        let [a, b, c, d, e, zeroes @ ..] = line.0.to_le_bytes();
        assert_eq!(zeroes, [0; 3], "a line has at most 40 bits");
        PackedLine([a, b, c, d, e])
    }

    fn line(self) -> Line {
        let mut bytes = [0; 8];
        bytes[..5].copy_from_slice(&self.0);
        Line(u64::from_le_bytes(bytes))
    }
}

/// Lines in the order of their coming, each once.
pub struct Ghost {
    hash: LineHash,
    /// Of each entry, its line.
    lines: Vec<PackedLine>,
    /// Of each entry, the next one of its bucket, and one: 0 is none.
    chain: Vec<u32>,
    /// First entry of each bucket, and one.
    buckets: Vec<u32>,
    links: Links,
    remembered: List,
    /// Entries that were used; those from `never_used` on were not.
    unused: List,
    never_used: u32,
    limit: u32,
}

impl Ghost {
    /// A ghost that will never have a limit above `lines_max`, unless it grows; its limit is 0.
    pub fn new(lines_max: u32, hash: LineHash) -> Ghost {
        Ghost {
            hash,
            lines: untouched_zeroes(lines_max as usize),
            chain: untouched_zeroes(lines_max as usize),
            buckets: untouched_zeroes(lines_max as usize),
            links: Links::new(lines_max),
            remembered: List::EMPTY,
            unused: List::EMPTY,
            never_used: 0,
            limit: 0,
        }
    }

    /// Its limit may be as high as `lines_max` from now on. If that is more than before, it forgets
    /// what it remembers: it has tables for more then.
    pub fn grow(&mut self, lines_max: u32) {
        if lines_max > self.links.count() {
            *self = Ghost { limit: self.limit, ..Ghost::new(lines_max, self.hash) };
        }
    }

    /// Lines that are remembered.
    #[cfg(test)]
    pub fn len(&self) -> u32 {
        self.remembered.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.remembered.is_empty()
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.lines.len() * size_of::<PackedLine>()
            + (self.chain.len() + self.buckets.len()) * size_of::<u32>()
            + self.links.memory_bytes()
    }

    /// Remembers at most `limit` lines from now on; the oldest go.
    pub fn set_limit(&mut self, limit: u32) {
        assert!(limit <= self.links.count(), "the tables have the size of the largest limit");
        self.limit = limit;
        while self.remembered.len() > limit {
            self.forget_oldest();
        }
    }

    /// Whether `line` is remembered.
    pub fn contains(&self, line: Line) -> bool {
        !self.buckets.is_empty() && self.find(line).is_some()
    }

    /// Remembers `line`, which is not remembered yet.
    pub fn insert(&mut self, line: Line) {
        if self.limit == 0 {
            return;
        }
        debug_assert!(!self.contains(line));
        if self.remembered.len() == self.limit {
            self.forget_oldest();
        }
        let entry = match self.unused.first() {
            Some(entry) => {
                self.unused.remove(&mut self.links, entry);
                entry
            }
            None => {
                self.never_used += 1;
                self.never_used - 1
            }
        };
        self.remembered.push(&mut self.links, entry);
        let bucket = self.bucket_of(line);
        self.lines[entry as usize] = PackedLine::new(line);
        self.chain[entry as usize] = self.buckets[bucket];
        self.buckets[bucket] = entry + 1;
    }

    /// Forgets `line`; whether it was remembered.
    pub fn remove(&mut self, line: Line) -> bool {
        if self.is_empty() {
            return false;
        }
        let Some(entry) = self.find(line) else { return false };
        self.forget(entry);
        true
    }

    fn forget_oldest(&mut self) {
        let oldest = self.remembered.first().expect("a ghost above its limit remembers something");
        self.forget(oldest);
    }

    fn forget(&mut self, entry: u32) {
        let bucket = self.bucket_of(self.lines[entry as usize].line());
        let behind = self.chain[entry as usize];
        if self.buckets[bucket] == entry + 1 {
            self.buckets[bucket] = behind;
        } else {
            let mut before = self.buckets[bucket] as usize - 1;
            while self.chain[before] != entry + 1 {
                before = self.chain[before] as usize - 1;
            }
            self.chain[before] = behind;
        }
        self.remembered.remove(&mut self.links, entry);
        self.unused.push(&mut self.links, entry);
    }

    fn find(&self, line: Line) -> Option<u32> {
        let packed = PackedLine::new(line);
        let mut found = self.buckets[self.bucket_of(line)];
        while found != NONE && self.lines[found as usize - 1] != packed {
            found = self.chain[found as usize - 1];
        }
        found.checked_sub(1)
    }

    fn bucket_of(&self, line: Line) -> usize {
        self.hash.place(line.0, self.buckets.len())
    }

    /// Asserts that list and buckets tell the same.
    #[cfg(test)]
    pub fn check_invariants(&self) {
        self.remembered.check_invariants(&self.links);
        self.unused.check_invariants(&self.links);
        assert!(self.remembered.len() <= self.limit);
        assert_eq!(self.remembered.len() + self.unused.len(), self.never_used);
        assert!(self.never_used <= self.links.count());
        for entry in self.remembered.iter(&self.links) {
            // By the number of the entry: of a line that was there twice only one would be found.
            assert_eq!(self.find(self.lines[entry as usize].line()), Some(entry));
        }
        let in_use = |entry: u32| entry.checked_sub(1);
        let chained = self.buckets.iter().flat_map(|&first| {
            std::iter::successors(in_use(first), |&entry| in_use(self.chain[entry as usize]))
        });
        assert_eq!(chained.count(), self.remembered.len() as usize);
    }

    /// The lines, oldest first.
    #[cfg(test)]
    pub fn lines(&self) -> Vec<Line> {
        self.remembered.iter(&self.links).map(|entry| self.lines[entry as usize].line()).collect()
    }
}
