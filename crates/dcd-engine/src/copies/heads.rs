//! The first slot of each chain, by the hash of its line. There may be more chains from some moment
//! on: then those of the old ones are laid out anew, some at a time, and each line is in either.

use crate::growing_table::untouched_zeroes;
use crate::line_hash::LineHash;
use crate::units::Line;

/// Old chains that are laid out anew in one step.
const AT_ONCE: usize = 4096;

/// Heads of chains: a number and one, or 0. What a number stands for is its owner's.
pub(super) struct Heads {
    heads: Vec<u32>,
    /// More of them, for the lines of the first `moved` of the others.
    more: Vec<u32>,
    moved: usize,
}

/// Where the head of a line is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// Among the old ones.
    Old(usize),
    /// Among the new ones.
    New(usize),
}

impl Heads {
    /// So many, of chains that are empty.
    pub(super) fn new(count: usize) -> Heads {
        Heads { heads: untouched_zeroes(count), more: Vec::new(), moved: 0 }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        (self.heads.len() + self.more.len()) * size_of::<u32>()
    }

    /// Where the head of the chain of a line is.
    ///
    /// # Panics
    /// If there are none.
    pub(super) fn place(&self, line: Line, hash: LineHash) -> Place {
        let old = hash.place(line.0, self.heads.len());
        match old < self.moved {
            true => Place::New(hash.place(line.0, self.more.len())),
            false => Place::Old(old),
        }
    }

    pub(super) fn first(&self, line: Line, hash: LineHash) -> u32 {
        match self.place(line, hash) {
            Place::Old(place) => self.heads[place],
            Place::New(place) => self.more[place],
        }
    }

    pub(super) fn first_mut(&mut self, line: Line, hash: LineHash) -> &mut u32 {
        match self.place(line, hash) {
            Place::Old(place) => &mut self.heads[place],
            Place::New(place) => &mut self.more[place],
        }
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = (Place, &u32)> {
        let old = self.heads.iter().enumerate().skip(self.moved);
        let old = old.map(|(place, head)| (Place::Old(place), head));
        let new = self.more.iter().enumerate();
        old.chain(new.map(|(place, head)| (Place::New(place), head)))
    }

    /// Goes on until there are so many at least: `line_of` a slot says which chain it is of, and
    /// `relink` puts it in front of that, and tells what was behind it. Tells whether it is done.
    pub(super) fn fit(
        &mut self,
        count: usize,
        hash: LineHash,
        line_of: impl Fn(usize) -> Line,
        mut relink: impl FnMut(usize, &mut u32) -> u32,
    ) -> bool {
        if self.more.is_empty() {
            if self.heads.len() >= count {
                return true;
            }
            if self.heads.is_empty() {
                *self = Heads::new(count);
                return true;
            }
            self.more = untouched_zeroes(count);
        }
        let end = self.heads.len().min(self.moved + AT_ONCE);
        for old in self.moved..end {
            let mut at = std::mem::take(&mut self.heads[old]);
            while let Some(slot) = (at as usize).checked_sub(1) {
                let place = hash.place(line_of(slot).0, self.more.len());
                at = relink(slot, &mut self.more[place]);
            }
        }
        self.moved = end;
        if end == self.heads.len() {
            self.heads = std::mem::take(&mut self.more);
            self.moved = 0;
        }
        self.more.is_empty()
    }
}
