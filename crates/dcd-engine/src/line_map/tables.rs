//! Memory for many small tables that grow and shrink, without holes between them.
//!
//! Tables of one length lie side by side in *chunks*, without a gap: where one is given back, the
//! last of that length moves. An allocator cannot do that, since it does not know who has what. A
//! large cache is some hundred thousand tables that grow some fifty times each; holes of all the
//! lengths that they have had would take a fourth of the memory, and the search among them
//! milliseconds.

use zerocopy::FromZeros;

/// Entries of the shortest table, and by which short ones become longer; ...
const GROWTH_MIN: usize = 8;
/// ... long ones by such a part of them. A smaller part takes less memory, and more moves: twelve
/// for each line, and as many of another table's; the index of a full log stays within 4 MiB for
/// each GiB.
const GROWTH_PART: usize = 12;
/// Entries of the longest table; there is memory for none that is so long.
const LENGTH_MAX: usize = u32::MAX as usize / 2;
/// Entries of a chunk, in which ten of the tables of a full map lie. It is below what an allocator
/// asks the system for in a piece of its own, and so few pages that to touch all is a short step.
const CHUNK_MAX: usize = 6400;
const CHUNK_MIN: usize = 64;
/// Tables share a chunk if so many have room in it: with fewer they would be longer than they need
/// be, or leave room at the end. Only a log that has grown much has longer ones.
const SHARED_MIN: usize = 8;

/// Where a table lies; none at first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromZeros)]
pub(super) struct Place {
    chunk: u32,
    start: u32,
    /// Entries: 0 of no table.
    length: u32,
}

/// Tables that have the same number of entries.
struct Class {
    /// Where they lie: all full but the last.
    chunks: Vec<u32>,
    tables: usize,
}

/// The memory.
pub(super) struct Tables<E> {
    /// What an entry is that is not in use.
    unused: E,
    /// Entries of a chunk that tables share: as many as fit.
    chunk_entries: usize,
    /// How long the tables of each class are, ascending, and where they are.
    lengths: Vec<u32>,
    classes: Vec<Class>,
    /// Each with room for a chunk, and as many entries as were ever used: nothing has touched the
    /// rest. Without room: it was given back to the allocator.
    chunks: Vec<Vec<E>>,
    /// Those without room.
    gone: Vec<u32>,
    /// Entries of all chunks that something has touched.
    entries: usize,
}

impl<E: Copy> Tables<E> {
    /// Memory for so many entries, or a few times more.
    pub(super) fn new(entries: usize, unused: E) -> Tables<E> {
        Tables {
            unused,
            chunk_entries: (entries / 8).clamp(CHUNK_MIN, CHUNK_MAX),
            lengths: Vec::new(),
            classes: Vec::new(),
            chunks: Vec::new(),
            gone: Vec::new(),
            entries: 0,
        }
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.entries * size_of::<E>() + self.chunks.len() * size_of::<Vec<E>>()
    }

    /// The next longer length.
    ///
    /// # Panics
    /// If there is none.
    pub(super) fn longer(&mut self, length: usize) -> usize {
        let class = self.lengths.partition_point(|other| *other as usize <= length);
        if class == self.lengths.len() {
            let wanted = length + (length / GROWTH_PART).max(GROWTH_MIN);
            assert!(wanted <= LENGTH_MAX, "a table of {wanted} entries");
            // As long as it can be with as many tables in a chunk.
            let length = match self.tables_of_chunk(wanted) {
                1 => wanted,
                tables => self.chunk_entries / tables,
            };
            self.lengths.push(length as u32);
            self.classes.push(Class { chunks: Vec::new(), tables: 0 });
        }
        self.lengths[class] as usize
    }

    /// The next shorter length; `None` of the shortest.
    pub(super) fn shorter(&self, length: usize) -> Option<usize> {
        let class = self.class(length).checked_sub(1)?;
        Some(self.lengths[class] as usize)
    }

    fn class(&self, length: usize) -> usize {
        self.lengths.binary_search(&(length as u32)).expect("tables have no other lengths")
    }

    /// A table's entries; none of no table.
    #[inline]
    pub(super) fn get(&self, place: Place) -> &[E] {
        match place.length {
            0 => &[],
            length => &self.chunks[place.chunk as usize][place.start as usize..][..length as usize],
        }
    }

    /// The same, to be changed.
    #[inline]
    pub(super) fn get_mut(&mut self, place: Place) -> &mut [E] {
        match place.length {
            0 => &mut [],
            length => {
                &mut self.chunks[place.chunk as usize][place.start as usize..][..length as usize]
            }
        }
    }

    /// A table of a length that [`Tables::longer`] or [`Tables::shorter`] gave, all of it unused.
    pub(super) fn take(&mut self, length: usize) -> Place {
        let class = self.class(length);
        let tables = self.classes[class].tables;
        if tables == self.classes[class].chunks.len() * self.tables_of_chunk(length) {
            let chunk = self.take_chunk(length);
            self.classes[class].chunks.push(chunk);
        }
        self.classes[class].tables += 1;
        let place = self.place(class, tables);
        let chunk = &mut self.chunks[place.chunk as usize];
        let (start, end) = (place.start as usize, (place.start + place.length) as usize);
        let touched = end.min(chunk.len());
        chunk[start.min(touched)..touched].fill(self.unused);
        if end > chunk.len() {
            self.entries += end - chunk.len();
            chunk.resize(end, self.unused);
        }
        place
    }

    /// A table is not needed any more. Returns the place of the one that is there now instead, if
    /// one is: that has moved to `place`, and whose it is must know.
    pub(super) fn give_back(&mut self, place: Place) -> Option<Place> {
        let length = place.length as usize;
        let class = self.class(length);
        let last = self.classes[class].tables - 1;
        let last_place = self.place(class, last);
        if last_place != place {
            self.copy(last_place, place);
        }
        self.classes[class].tables = last;
        if last.is_multiple_of(self.tables_of_chunk(length)) {
            let chunk = self.classes[class].chunks.pop().expect("the last table was in it");
            self.give_back_chunk(chunk);
        }
        (last_place != place).then_some(last_place)
    }

    fn copy(&mut self, from: Place, to: Place) {
        let range = |place: Place| place.start as usize..(place.start + place.length) as usize;
        if from.chunk == to.chunk {
            self.chunks[from.chunk as usize].copy_within(range(from), to.start as usize);
            return;
        }
        let chunks = [from.chunk as usize, to.chunk as usize];
        let [source, target] = self.chunks.get_disjoint_mut(chunks).expect("both are there");
        target[range(to)].copy_from_slice(&source[range(from)]);
    }

    /// Where the table with this number of its class lies.
    fn place(&self, class: usize, table: usize) -> Place {
        let length = self.lengths[class];
        let in_chunk = self.tables_of_chunk(length as usize);
        Place {
            chunk: self.classes[class].chunks[table / in_chunk],
            start: (table % in_chunk) as u32 * length,
            length,
        }
    }

    /// How many share a chunk. One: each has a chunk of its own, of its length.
    fn tables_of_chunk(&self, length: usize) -> usize {
        match self.chunk_entries / length {
            ..SHARED_MIN => 1,
            tables => tables,
        }
    }

    fn take_chunk(&mut self, length: usize) -> u32 {
        let room = match self.tables_of_chunk(length) {
            1 => Vec::with_capacity(length),
            _ => Vec::with_capacity(self.chunk_entries),
        };
        match self.gone.pop() {
            Some(chunk) => {
                self.chunks[chunk as usize] = room;
                chunk
            }
            None => {
                self.chunks.push(room);
                self.chunks.len() as u32 - 1
            }
        }
    }

    fn give_back_chunk(&mut self, chunk: u32) {
        let room = std::mem::take(&mut self.chunks[chunk as usize]);
        self.entries -= room.len();
        self.gone.push(chunk);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What is in use of all lengths, and of chunks.
    fn used(tables: &Tables<u32>) -> (usize, usize) {
        let of_classes = tables.classes.iter().zip(&tables.lengths);
        let entries = of_classes.map(|(class, length)| class.tables * *length as usize).sum();
        (entries, tables.classes.iter().map(|class| class.chunks.len()).sum())
    }

    proptest! {
        /// Each table keeps what it holds wherever it moves, and no class has more than one chunk
        /// that is not full.
        #[test]
        fn tables_keep_what_they_hold(
            entries in prop::sample::select(vec![1, 1000, 100_000]),
            steps in prop::collection::vec((0u8..8, any::<prop::sample::Index>()), 1..400),
        ) {
            let mut tables = Tables::new(entries, 0);
            let mut held: Vec<(Place, u32)> = Vec::new();
            for (number, (what, which)) in (1..).zip(steps) {
                let at = if held.is_empty() { 0 } else { which.index(held.len()) };
                let mut length = tables.longer(0);
                if what < 5 && !held.is_empty() {
                    // As a bucket becomes longer or shorter, or empty.
                    let (place, _) = held.swap_remove(at);
                    let now = place.length as usize;
                    length = match what {
                        0 => tables.shorter(now).unwrap_or(0),
                        1 => 0,
                        _ => tables.longer(now),
                    };
                    if let Some(moved) = tables.give_back(place) {
                        held.iter_mut().filter(|other| other.0 == moved).for_each(|other| other.0 = place);
                    }
                }
                if length > 0 {
                    let place = tables.take(length);
                    prop_assert_eq!(tables.get(place), vec![0; length]);
                    tables.get_mut(place).fill(number);
                    held.push((place, number));
                }
                for (place, number) in &held {
                    prop_assert_eq!(tables.get(*place), vec![*number; place.length as usize]);
                }
                let (in_use, chunks) = used(&tables);
                prop_assert_eq!(in_use, held.iter().map(|(place, _)| place.length as usize).sum());
                prop_assert_eq!(tables.chunks.len() - tables.gone.len(), chunks);
                let touched: usize = tables.chunks.iter().map(Vec::len).sum();
                prop_assert_eq!(tables.entries, touched);
                prop_assert!(touched <= in_use + tables.classes.len() * tables.chunk_entries);
            }
        }
    }

    #[test]
    #[should_panic(expected = "tables have no other lengths")]
    fn a_length_of_nobody_is_a_mistake() {
        let mut tables = Tables::new(1000, 0);
        let length = tables.longer(0);
        tables.take(length + 1);
    }
}
