//! The index as the newest durable checkpoint lists it, to be read a page at a time: where on the
//! cache-disk the items of a line may be, and whether there are any at all.
//!
//! Items are in the order of [`LineHash::order`](crate::line_hash::LineHash::order). Of each page
//! of 256 of them memory holds where it begins in that order and its checksum, and of each line
//! some bits of a filter (Bloom 1970, in one word each): a line that is not listed mostly needs no
//! read.

use std::ops::Range;

use crate::format::checkpoint::{HEADER_SIZE, ITEM_SIZE, LiveSlot, live_slots};
use crate::format::checksum::crc32c;
use crate::units::LINE_SIZE;

/// Items of a page.
const PAGE_ITEMS: u64 = LINE_SIZE / ITEM_SIZE as u64;
/// Words of a chunk of the filter: 2 MiB.
const CHUNK_WORDS: usize = 1 << 18;
/// Bits of the filter that each line sets.
const BITS_SET: u32 = 4;

/// One page of a run, counted from the beginning of the payload of its checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct IndexPage(pub(crate) u64);

/// The run.
#[derive(Default)]
pub(crate) struct IndexRun {
    /// Byte address on the cache-disk of the payload that it is a part of.
    offset: u64,
    /// Its items, among all of the payload.
    items: Range<u64>,
    /// Where each of its pages begins: the upper half of the order of the first item.
    fences: Vec<u32>,
    /// Of each page of the payload.
    checksums: Vec<u32>,
    filter: Filter,
}

impl IndexRun {
    /// Whether it lists nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether it may list a line of this order.
    pub(crate) fn may_hold(&self, order: u64) -> bool {
        !self.is_empty() && self.filter.may_hold(order)
    }

    /// All its pages.
    pub(crate) fn pages(&self) -> Range<IndexPage> {
        IndexPage(self.items.start / PAGE_ITEMS)..IndexPage(self.items.end.div_ceil(PAGE_ITEMS))
    }

    /// The pages that list the lines of this order, if any does: mostly one.
    pub(crate) fn pages_of(&self, order: u64) -> Range<IndexPage> {
        let wanted = (order >> 32) as u32;
        let first_page = self.pages().start.0;
        // The page before the first that begins with it may end with it.
        let first = self.fences.partition_point(|fence| *fence < wanted).saturating_sub(1);
        let end = self.fences.partition_point(|fence| *fence <= wanted);
        IndexPage(first_page + first as u64)..IndexPage(first_page + end as u64)
    }

    /// Byte address of a page on the cache-disk.
    pub(crate) fn offset_of(&self, page: IndexPage) -> u64 {
        self.offset + page.0 * LINE_SIZE
    }

    /// Whether these are the bytes of the page as they were written.
    pub(crate) fn is_right(&self, page: IndexPage, bytes: &[u8]) -> bool {
        self.checksums.get(page.0 as usize) == Some(&crc32c(bytes))
    }

    /// What the page lists: its bytes are right.
    pub(crate) fn items_of<'a>(
        &self,
        page: IndexPage,
        bytes: &'a [u8],
    ) -> impl Iterator<Item = LiveSlot> + use<'a> {
        let first = page.0 * PAGE_ITEMS;
        let own = self.items.start.max(first)..self.items.end.min(first + PAGE_ITEMS).max(first);
        let skipped = (own.start - first) as usize;
        live_slots(bytes).take((own.end - first) as usize).skip(skipped)
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        (self.fences.capacity() + self.checksums.capacity()) * size_of::<u32>()
            + self.filter.memory_bytes()
    }

    /// Gives back a part of its memory, of which all at once would be a long step. Tells whether
    /// there is more. Nothing can be looked up any more.
    pub(crate) fn shrink(&mut self) -> bool {
        self.filter.chunks.pop();
        !self.filter.chunks.is_empty()
    }
}

/// A run that is being written.
pub(crate) struct RunBuilder {
    run: IndexRun,
    /// Pages of the payload that were written.
    pages: u64,
}

impl RunBuilder {
    /// Of a checkpoint at this byte address, with so many lines, for each of which the filter has
    /// so many bits.
    pub(crate) fn new(offset: u64, lines: usize, filter_bits_per_line: u32) -> RunBuilder {
        let pages = lines / PAGE_ITEMS as usize + 1;
        let run = IndexRun {
            offset: offset + HEADER_SIZE as u64,
            items: 0..0,
            fences: Vec::with_capacity(pages),
            checksums: Vec::with_capacity(pages),
            filter: Filter::new(lines, filter_bits_per_line),
        };
        RunBuilder { run, pages: 0 }
    }

    /// The next item is of a line of this order, and has this number in the payload.
    pub(crate) fn item(&mut self, number: u64, order: u64) {
        if self.run.is_empty() {
            self.run.items = number..number;
        }
        if self.run.is_empty() || number.is_multiple_of(PAGE_ITEMS) {
            self.run.fences.push((order >> 32) as u32);
        }
        self.run.items.end = number + 1;
        self.run.filter.add(order);
    }

    /// The next bytes of the payload: whole pages.
    pub(crate) fn written(&mut self, bytes: &[u8]) {
        let pages = bytes.chunks(LINE_SIZE as usize);
        self.pages += pages.len() as u64;
        self.run.checksums.extend(pages.map(crc32c));
    }

    /// The run; it is true when its checkpoint is durable.
    pub(crate) fn finish(self) -> IndexRun {
        assert!(self.pages * PAGE_ITEMS >= self.run.items.end, "all of it was written");
        match self.run.is_empty() {
            true => IndexRun::default(),
            false => self.run,
        }
    }
}

/// Bits of which each line sets some, in chunks that are memory of their own. Lines come in their
/// order, and words are in it, too, so chunks come one by one: to make all of them would be a long
/// step.
#[derive(Default)]
struct Filter {
    chunks: Vec<Vec<u64>>,
    words: usize,
}

impl Filter {
    fn new(lines: usize, bits_per_line: u32) -> Filter {
        let words = lines * bits_per_line as usize / u64::BITS as usize + 1;
        Filter { chunks: Vec::new(), words }
    }

    fn memory_bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.len() * size_of::<u64>()).sum()
    }

    /// Which word, and which bits of it.
    fn place(&self, order: u64) -> (usize, u64) {
        let word = ((u128::from(order) * self.words as u128) >> 64) as usize;
        // Lines of a word are near to each other in the order.
        let mixed = (order ^ order >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let low = mixed.wrapping_mul(0x94d0_49bb_1331_11eb) >> 32;
        let bits = (0..BITS_SET).fold(0, |bits, index| bits | 1 << (low >> (6 * index) & 63));
        (word, bits)
    }

    fn add(&mut self, order: u64) {
        let (word, bits) = self.place(order);
        while self.chunks.len() <= word / CHUNK_WORDS {
            let left = self.words - self.chunks.len() * CHUNK_WORDS;
            self.chunks.push(vec![0; CHUNK_WORDS.min(left)]);
        }
        self.chunks[word / CHUNK_WORDS][word % CHUNK_WORDS] |= bits;
    }

    fn may_hold(&self, order: u64) -> bool {
        let (word, bits) = self.place(order);
        let chunk = self.chunks.get(word / CHUNK_WORDS);
        chunk.is_some_and(|chunk| chunk[word % CHUNK_WORDS] & bits == bits)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::line_hash::LineHash;

    proptest! {
        /// Every line is found in the pages that it is said to be in, also where several items of a
        /// line lie on both sides of the border of two pages, and items begin and end amidst a page.
        #[test]
        fn lines_are_where_it_says(
            lines in prop::collection::btree_set(0u64..5000, 0..900),
            several in 1u64..4,
            before in 0u64..600,
        ) {
            let hash = LineHash::new(7);
            let mut sorted: Vec<u64> = lines.iter().copied().collect();
            sorted.sort_unstable_by_key(|line| hash.order(*line));
            let mut builder = RunBuilder::new(1 << 20, lines.len(), 8);
            let mut number = before;
            let mut at = Vec::new();
            for line in sorted {
                for _ in 0..several {
                    builder.item(number, hash.order(line));
                    at.push((line, number));
                    number += 1;
                }
            }
            let pages = number.div_ceil(PAGE_ITEMS);
            builder.written(&vec![0; (pages * LINE_SIZE) as usize]);
            let run = builder.finish();
            prop_assert_eq!(run.is_empty(), lines.is_empty());
            for (line, number) in at {
                prop_assert!(run.may_hold(hash.order(line)));
                let page = IndexPage(number / PAGE_ITEMS);
                prop_assert!(run.pages_of(hash.order(line)).contains(&page));
                prop_assert!(run.pages().contains(&page));
            }
        }
    }

    /// Of lines that are not listed, few need a read.
    #[test]
    fn the_filter_leaves_few() {
        let hash = LineHash::new(3);
        let mut builder = RunBuilder::new(0, 100_000, 8);
        let mut orders: Vec<u64> = (0..100_000).map(|line| hash.order(line)).collect();
        orders.sort_unstable();
        (0..).zip(&orders).for_each(|(number, order)| builder.item(number, *order));
        builder.written(&vec![0; (100_000 * ITEM_SIZE).next_multiple_of(LINE_SIZE as usize)]);
        let run = builder.finish();
        let others = (100_000..200_000).filter(|line| run.may_hold(hash.order(*line))).count();
        assert!(others < 8000, "{others} of 100,000");
        // Fences, checksums and filter: little more than a byte a line.
        assert!(run.memory_bytes() < 110_000 + 8 * 400, "{}", run.memory_bytes());
    }
}
