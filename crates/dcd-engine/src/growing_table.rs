//! A table that becomes longer while it is used, without a long step: what is there is not moved,
//! and what is added is memory that nothing has touched.
//!
//! What it began with is one piece, and is found at the price of a look at its length, as in any
//! other vector; what was added lies in chunks.

use std::ops::{Index, IndexMut};

use zerocopy::FromZeros;

/// Entries of a chunk: so many that it is memory of its own, which nothing has touched.
const CHUNK: usize = 1 << 18;

/// Bytes from which on [`untouched_zeroes`] are memory of their own.
const UNTOUCHED_FROM_BYTES: usize = 16 << 10;
/// So much is, with the allocators that are known, at the beginning of a process.
const UNTOUCHED_BYTES: usize = 256 << 10;

/// So many zeroes. What has some pages is asked for as so large a piece that it is memory that
/// nothing has touched: from a heap it would be filled with zeroes, page by page, at each opening
/// of a cache in which nothing is.
pub(crate) fn untouched_zeroes<T: FromZeros>(len: usize) -> Vec<T> {
    let bytes = len * size_of::<T>();
    let capacity = match bytes >= UNTOUCHED_FROM_BYTES {
        true => len.max(UNTOUCHED_BYTES / size_of::<T>()),
        false => len,
    };
    let mut zeroes = T::new_vec_zeroed(capacity).expect("there is memory");
    zeroes.truncate(len);
    zeroes
}

/// The table. All entries are zero at first.
pub(crate) struct GrowingTable<T> {
    first: Vec<T>,
    more: Vec<Vec<T>>,
    len: usize,
    /// What is behind so many entries is memory that nothing has touched.
    touched: usize,
}

impl<T: FromZeros> GrowingTable<T> {
    /// So many entries.
    pub(crate) fn new(len: usize) -> GrowingTable<T> {
        GrowingTable { first: untouched_zeroes(len), more: Vec::new(), len, touched: 0 }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of memory, up to the last entry that was changed.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.touched * size_of::<T>()
    }

    /// It has so many entries from now on: some more, or fewer. What is added is what it was when
    /// it was taken away, or zero.
    pub(crate) fn set_len(&mut self, len: usize) {
        while self.first.len() + self.more.len() * CHUNK < len {
            self.more.push(T::new_vec_zeroed(CHUNK).expect("there is memory"));
        }
        self.len = len;
    }

    /// All, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(self.more.iter().flatten()).take(self.len)
    }
}

impl<T> Index<usize> for GrowingTable<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: usize) -> &T {
        match self.first.get(index) {
            Some(entry) => entry,
            None => {
                let index = index - self.first.len();
                &self.more[index / CHUNK][index % CHUNK]
            }
        }
    }
}

impl<T> IndexMut<usize> for GrowingTable<T> {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut T {
        self.touched = self.touched.max(index + 1);
        if index < self.first.len() {
            return &mut self.first[index];
        }
        let index = index - self.first.len();
        &mut self.more[index / CHUNK][index % CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_stays_and_what_is_added_is_zero() {
        let mut table = GrowingTable::<u32>::new(3);
        table[2] = 7;
        table.set_len(3 + 2 * CHUNK + 1);
        assert_eq!((table[2], table[3], table[3 + 2 * CHUNK]), (7, 0, 0));
        table[3 + CHUNK] = 9;
        table.set_len(2);
        assert_eq!(table.iter().copied().collect::<Vec<u32>>(), [0, 0]);
        table.set_len(4 + CHUNK);
        assert_eq!(table.iter().map(|entry| u64::from(*entry)).sum::<u64>(), 16);
        assert_eq!(table.memory_bytes(), (4 + CHUNK) * 4, "that is the last that was changed");
    }
}
