//! The content of a simulated cache-disk: 4 KiB pages, each up to its last byte that is not zero.
//! Simulated data is zero, so what is kept is headers, checkpoints and superblocks; and a header
//! of few entries is short.

use std::collections::HashMap;

use dcd_testkit::Bytes;

const PAGE_BYTES: u64 = 4096;
/// Zeroes at the end of a page are told from the others in steps of so many bytes.
const STEP_BYTES: usize = 64;
/// Compared as a whole, which is far faster than byte by byte.
const ZEROES: [u8; PAGE_BYTES as usize] = [0; PAGE_BYTES as usize];
/// With less than this nothing is looked through for what nobody needs.
const LOOK_BYTES_MIN: u64 = 1 << 20;
/// Pages of one length for which there is memory at once.
const SHELF_PAGES: usize = 16;

/// Sparse bytes.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    pages: HashMap<u64, Kept>,
    shelves: Shelves,
    /// What they have together.
    kept_bytes: u64,
    /// The same, when all of them were needed.
    needed_bytes: u64,
}

/// Where a page is kept.
#[derive(Clone, Copy, Debug)]
struct Kept {
    /// Its length.
    steps: u8,
    /// Which of the places of that length.
    place: u32,
}

/// Memory of pages, by their length. Where each was asked of the allocator, hundreds of thousands
/// of all lengths came and went, and what the engine asked for next took 20 ms to be found.
#[derive(Clone, Debug)]
struct Shelves {
    /// For each number of steps.
    of_steps: Vec<Shelf>,
}

#[derive(Clone, Debug, Default)]
struct Shelf {
    /// For [`SHELF_PAGES`] each.
    bytes: Vec<Box<[u8]>>,
    free: Vec<u32>,
}

impl Default for Shelves {
    fn default() -> Shelves {
        Shelves { of_steps: vec![Shelf::default(); PAGE_BYTES as usize / STEP_BYTES + 1] }
    }
}

impl Shelves {
    fn memory_bytes(&self) -> usize {
        let of_shelf = |(steps, shelf): (usize, &Shelf)| {
            let entry = SHELF_PAGES * steps * STEP_BYTES + size_of::<Box<[u8]>>();
            shelf.bytes.len() * entry + shelf.free.capacity() * size_of::<u32>()
        };
        self.of_steps.iter().enumerate().map(of_shelf).sum()
    }

    /// Keeps some bytes, of whole steps.
    fn put(&mut self, bytes: &[u8]) -> Kept {
        let steps = bytes.len() / STEP_BYTES;
        let shelf = &mut self.of_steps[steps];
        if shelf.free.is_empty() {
            let first = shelf.bytes.len() * SHELF_PAGES;
            shelf.bytes.push(vec![0; SHELF_PAGES * bytes.len()].into());
            shelf.free.extend((first..first + SHELF_PAGES).rev().map(|place| place as u32));
        }
        let kept = Kept { steps: steps as u8, place: shelf.free.pop().expect("there are some") };
        self.get_mut(kept).copy_from_slice(bytes);
        kept
    }

    fn give_back(&mut self, kept: Kept) {
        self.of_steps[usize::from(kept.steps)].free.push(kept.place);
    }

    fn get(&self, kept: Kept) -> &[u8] {
        let (shelf, begin) = (kept.place as usize / SHELF_PAGES, kept.begin());
        &self.of_steps[usize::from(kept.steps)].bytes[shelf][begin..][..kept.length()]
    }

    fn get_mut(&mut self, kept: Kept) -> &mut [u8] {
        let (shelf, begin) = (kept.place as usize / SHELF_PAGES, kept.begin());
        &mut self.of_steps[usize::from(kept.steps)].bytes[shelf][begin..][..kept.length()]
    }
}

impl Kept {
    fn length(self) -> usize {
        usize::from(self.steps) * STEP_BYTES
    }

    /// Where it begins on its shelf.
    fn begin(self) -> usize {
        self.place as usize % SHELF_PAGES * self.length()
    }
}

impl Pages {
    /// Overwrites bytes from `offset` on. Both are multiples of 4 KiB, as everything the engine
    /// writes there.
    ///
    /// # Panics
    /// If they are not.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        assert!(
            offset.is_multiple_of(PAGE_BYTES) && (bytes.len() as u64).is_multiple_of(PAGE_BYTES)
        );
        for (page, bytes) in (offset / PAGE_BYTES..).zip(bytes.chunks(PAGE_BYTES as usize)) {
            let kept = without_last_zeroes(bytes);
            self.kept_bytes += kept.len() as u64;
            let before = match kept {
                [] => self.pages.remove(&page),
                _ => self.pages.insert(page, self.shelves.put(kept)),
            };
            if let Some(before) = before {
                self.kept_bytes -= before.length() as u64;
                self.shelves.give_back(before);
            }
        }
    }

    /// Forgets the pages that nobody needs, by the byte where they begin. All are looked through
    /// when there is twice as much as was needed then, so that each write pays for a few.
    pub fn forget(&mut self, is_needed: impl Fn(u64) -> bool) {
        if self.kept_bytes < (2 * self.needed_bytes).max(LOOK_BYTES_MIN) {
            return;
        }
        self.pages.retain(|page, kept| {
            let is_needed = is_needed(page * PAGE_BYTES);
            if !is_needed {
                self.shelves.give_back(*kept);
            }
            is_needed
        });
        self.pages.shrink_to_fit();
        self.kept_bytes = self.pages.values().map(|kept| kept.length() as u64).sum();
        self.needed_bytes = self.kept_bytes;
        // Mostly places are used again; where lengths are others now, most of them would never be.
        if self.shelves.memory_bytes() as u64 > 4 * self.kept_bytes + LOOK_BYTES_MIN {
            let before = std::mem::take(&mut self.shelves);
            for kept in self.pages.values_mut() {
                *kept = self.shelves.put(before.get(*kept));
            }
        }
    }

    /// Memory of what is kept, about.
    pub fn memory_bytes(&self) -> u64 {
        let place = size_of::<(u64, Kept)>() + 1;
        // Of as many pages as there are: what a table has room for depends on its hashes.
        let places = (self.pages.len() * 8 / 7 + 1).next_power_of_two();
        (self.shelves.memory_bytes() + places * place) as u64
    }

    /// Fills `bytes` with what is from `offset` on.
    ///
    /// # Panics
    /// If they are not multiples of 4 KiB.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) {
        assert!(
            offset.is_multiple_of(PAGE_BYTES) && (bytes.len() as u64).is_multiple_of(PAGE_BYTES)
        );
        for (page, bytes) in (offset / PAGE_BYTES..).zip(bytes.chunks_mut(PAGE_BYTES as usize)) {
            let kept = self.pages.get(&page).map_or(&[][..], |kept| self.shelves.get(*kept));
            let (begin, rest) = bytes.split_at_mut(kept.len());
            begin.copy_from_slice(kept);
            rest.fill(0);
        }
    }
}

fn without_last_zeroes(page: &[u8]) -> &[u8] {
    if page == ZEROES {
        return &[];
    }
    let steps = page.rchunks(STEP_BYTES);
    let zeroes = steps.take_while(|step| *step == &ZEROES[..STEP_BYTES]).count() * STEP_BYTES;
    &page[..page.len() - zeroes]
}

impl Bytes for Pages {
    fn read(&mut self, offset: u64, to: &mut [u8]) {
        Pages::read(self, offset, to);
    }

    fn write(&mut self, offset: u64, from: &[u8], _is_durable: bool) {
        Pages::write(self, offset, from);
    }
}

/// A disk that keeps nothing: a simulated data-disk.
pub struct Zeroes;

impl Bytes for Zeroes {
    fn read(&mut self, _offset: u64, to: &mut [u8]) {
        to.fill(0);
    }

    fn write(&mut self, _offset: u64, _from: &[u8], _is_durable: bool) {}

    fn write_zeroes(&mut self, _offset: u64, _length: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_zeroes_cost_nothing() {
        let mut pages = Pages::default();
        let mut bytes = vec![7; 8192];
        bytes[4096..].fill(0);
        pages.write(4096, &bytes);
        assert_eq!(pages.pages.len(), 1);
        let mut read = vec![1; 12_288];
        pages.read(0, &mut read);
        assert!(read[..4096].iter().chain(&read[8192..]).all(|byte| *byte == 0));
        assert!(read[4096..8192].iter().all(|byte| *byte == 7));
        pages.write(4096, &[0; 4096]);
        assert!(pages.pages.is_empty());
        assert_eq!(pages.kept_bytes, 0);
    }

    #[test]
    fn places_of_a_length_that_nobody_has_any_more_are_given_back() {
        let mut pages = Pages::default();
        for (round, length) in [64, 4096, 64].into_iter().enumerate() {
            let mut page = [0; 4096];
            page[..length].fill(9);
            for number in 0..4000 {
                pages.write((round as u64 * 4000 + number) * 4096, &page);
            }
            pages.forget(|begin| begin >= round as u64 * 4000 * 4096 + 3900 * 4096);
        }
        let mut read = [1; 4096];
        pages.read(11_999 * 4096, &mut read);
        assert!(read[..64].iter().all(|byte| *byte == 9) && read[64..] == [0; 4032]);
        assert!(pages.memory_bytes() < 2 << 20, "{} bytes", pages.memory_bytes());
    }

    #[test]
    fn a_page_is_kept_up_to_its_last_byte() {
        let mut pages = Pages::default();
        for length in [1, 63, 64, 65, 4095, 4096] {
            let mut page = vec![0; 4096];
            page[length - 1] = 9;
            pages.write(8192, &page);
            assert_eq!(pages.kept_bytes, length.next_multiple_of(STEP_BYTES) as u64);
            let mut read = vec![1; 4096];
            pages.read(8192, &mut read);
            assert_eq!(read, page);
        }
    }

    #[test]
    fn what_nobody_needs_is_forgotten_when_it_is_half() {
        let mut pages = Pages::default();
        let page = [3; 4096];
        let first_unneeded = LOOK_BYTES_MIN / PAGE_BYTES / 2;
        for number in 0..20_000 {
            let is_needed = |offset: u64| offset / PAGE_BYTES < first_unneeded;
            // The needed ones, and others again and again.
            pages.write(number * PAGE_BYTES, &page);
            pages.forget(is_needed);
            assert!(pages.kept_bytes <= LOOK_BYTES_MIN, "{number}: {}", pages.kept_bytes);
        }
        let mut read = [0; 4096];
        pages.read((first_unneeded - 1) * PAGE_BYTES, &mut read);
        assert_eq!(read, page);
    }
}
