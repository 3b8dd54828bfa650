//! Lists of numbers, linked through one table: each number is in one list at most, and moves
//! between lists and out of the middle of one in constant time, without allocating.

use zerocopy::FromZeros;

use crate::growing_table::GrowingTable;

/// No number.
const NONE: u32 = u32::MAX;

/// Neighbours of a number in its list; without meaning while it is in none.
#[derive(Clone, Copy, FromZeros)]
struct Link {
    before: u32,
    behind: u32,
}

/// The links of the numbers `0..count`.
pub(super) struct Links(GrowingTable<Link>);

impl Links {
    pub(super) fn new(count: u32) -> Links {
        assert!(count < NONE);
        Links(GrowingTable::new(count as usize))
    }

    /// There are so many numbers from now on.
    pub(super) fn grow(&mut self, count: u32) {
        assert!(count < NONE && count >= self.count());
        self.0.set_len(count as usize);
    }

    pub(super) fn count(&self) -> u32 {
        self.0.len() as u32
    }

    /// The number behind `number` in its list.
    pub(super) fn behind(&self, number: u32) -> Option<u32> {
        some(self.0[number as usize].behind)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}

/// A list: its ends, and how many are in it.
#[derive(Clone, Copy)]
pub(super) struct List {
    first: u32,
    last: u32,
    len: u32,
}

impl List {
    pub(super) const EMPTY: List = List { first: NONE, last: NONE, len: 0 };

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number that is there longest.
    pub(super) fn first(&self) -> Option<u32> {
        some(self.first)
    }

    /// Appends `number`, which is in no list.
    pub(super) fn push(&mut self, links: &mut Links, number: u32) {
        links.0[number as usize] = Link { before: self.last, behind: NONE };
        match some(self.last) {
            Some(last) => links.0[last as usize].behind = number,
            None => self.first = number,
        }
        self.last = number;
        self.len += 1;
    }

    /// Removes `number`, which is in this list.
    pub(super) fn remove(&mut self, links: &mut Links, number: u32) {
        let Link { before, behind } = links.0[number as usize];
        match some(before) {
            Some(before) => links.0[before as usize].behind = behind,
            None => self.first = behind,
        }
        match some(behind) {
            Some(behind) => links.0[behind as usize].before = before,
            None => self.last = before,
        }
        self.len -= 1;
    }

    /// The numbers, those that are there longest first.
    pub(super) fn iter<'a>(&self, links: &'a Links) -> impl Iterator<Item = u32> + 'a {
        std::iter::successors(self.first(), |&number| links.behind(number))
    }

    /// Asserts that the links lead from end to end through `len` numbers, in both directions.
    #[cfg(test)]
    pub(super) fn check_invariants(&self, links: &Links) {
        let (mut before, mut count) = (NONE, 0);
        // A ring of links would never end: one number too many is enough to know.
        for number in self.iter(links).take(self.len as usize + 1) {
            assert_eq!(links.0[number as usize].before, before);
            before = number;
            count += 1;
        }
        assert_eq!((count, before), (self.len, self.last));
    }
}

fn some(number: u32) -> Option<u32> {
    (number != NONE).then_some(number)
}
