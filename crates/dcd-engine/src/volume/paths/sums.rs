//! Pages of checksums: read from the cache-disk when a stripe is looked at, and dropped when they
//! are too many.
//!
//! ```text
//! 1. Who is going to look at lines holds the pages of their checksums, and says that it wants
//!    them: a chunk until its job has ended, a read until its lines have been compared.
//! 2. A page that the map names and that is not in memory is read. Whoever wants it waits.
//! 3. One that cannot be read, or is not the copy that counts, is read once more; then those that
//!    wait for it fail. Who comes next tries again.
//! 4. When there are more than there may be, one goes that nobody has wanted for long: not one
//!    that is held, has changed since the checkpoint that counts, or has a line that is lost (those
//!    are counted).
//! ```
//! Behind a start as many are read as there may be: should the cache-disk fail, what is in memory
//! can be read still.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use super::super::checksums::Checksums;
use super::super::format::area::TablePage;
use super::super::format::page::{self, PAGE_BYTES, PageIndex};
use super::super::placement::RaidLevel;
use super::super::{Purpose, Volume};
use super::job::ChunkKey;
use super::read::Piece;
use crate::buffer::Buffer;
use crate::io::{Device, IoError};
use crate::units::LINE_SIZE;

/// Runs of pages that nobody waits for, read at a time.
const LATER_UNDER_WAY_MAX: u32 = 2;
/// How often a page is read.
const TRIES_MAX: u32 = 2;
/// Pages looked at for one to be dropped, each time when something happens.
const LOOKED_AT_MAX: usize = 64;

/// Pages one behind the other, whose copies are read at once.
#[derive(Clone, Copy, Debug)]
pub(in crate::volume) struct PageRun {
    pub(super) first: PageIndex,
    pub(super) count: u32,
}

impl PageRun {
    pub(super) fn pages(self) -> impl Iterator<Item = PageIndex> {
        (self.first.0..self.first.0 + self.count).map(PageIndex)
    }
}

/// Whether checksums can be looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sums {
    There,
    Awaited,
    Unreadable,
}

/// Pages of checksums.
pub(in crate::volume) struct SumPages {
    /// So many may be in memory.
    max: usize,
    /// Those that are; the first is looked at next when one is to go.
    in_memory: VecDeque<PageIndex>,
    held: BTreeMap<PageIndex, u32>,
    /// Chunks that hold theirs.
    chunks: BTreeSet<ChunkKey>,
    reading: BTreeSet<PageIndex>,
    /// Somebody waits for it; how often it could not be read.
    awaited: BTreeMap<PageIndex, u32>,
    /// It could not, and who comes next is told.
    failed: BTreeSet<PageIndex>,
    /// Reads that wait.
    pieces: Vec<Piece>,
    /// To be read without anybody waiting, and how many of these runs are being read.
    later: Vec<PageRun>,
    later_pages: usize,
    later_under_way: u32,
}

impl SumPages {
    pub(in crate::volume) fn new() -> SumPages {
        SumPages {
            max: usize::MAX,
            in_memory: VecDeque::new(),
            held: BTreeMap::new(),
            chunks: BTreeSet::new(),
            reading: BTreeSet::new(),
            awaited: BTreeMap::new(),
            failed: BTreeSet::new(),
            pieces: Vec::new(),
            later: Vec::new(),
            later_pages: 0,
            later_under_way: 0,
        }
    }

    /// So many bytes of them may be in memory.
    pub(in crate::volume) fn set_budget(&mut self, bytes: u64) {
        let pages = bytes / PAGE_BYTES as u64;
        self.max = usize::try_from(pages).unwrap_or(usize::MAX).max(1);
    }

    pub(in crate::volume) fn is_idle(&self) -> bool {
        self.later.is_empty() && self.later_under_way == 0
    }

    /// A page has come into memory.
    pub(super) fn came(&mut self, page: PageIndex) {
        self.in_memory.push_back(page);
    }

    /// A page is to be read when the volume is open, if there may be so many.
    pub(super) fn read_later(&mut self, page: PageIndex, most_at_once: u32) {
        if self.later_pages >= self.max {
            return;
        }
        self.later_pages += 1;
        match self.later.last_mut() {
            Some(run) if run.first.0 + run.count == page.0 && run.count < most_at_once => {
                run.count += 1;
            }
            _ => self.later.push(PageRun { first: page, count: 1 }),
        }
    }

    /// Whether none is being read.
    pub(super) fn is_none_read(&self) -> bool {
        self.reading.is_empty()
    }

    /// The pages have other numbers from now on, and lie elsewhere. None is being read.
    pub(super) fn renumber(&mut self, number: impl Fn(PageIndex) -> PageIndex) {
        assert!(self.reading.is_empty(), "a page would come that has another number");
        self.in_memory.iter_mut().for_each(|page| *page = number(*page));
        let held = std::mem::take(&mut self.held);
        self.held = held.into_iter().map(|(page, count)| (number(page), count)).collect();
        let awaited = std::mem::take(&mut self.awaited);
        self.awaited = awaited.into_iter().map(|(page, tries)| (number(page), tries)).collect();
        self.failed.clear();
        self.later.clear();
    }

    pub(super) fn hold(&mut self, pages: &BTreeSet<PageIndex>) {
        for page in pages {
            *self.held.entry(*page).or_default() += 1;
        }
    }

    pub(super) fn release(&mut self, pages: &BTreeSet<PageIndex>) {
        for page in pages {
            let held = self.held.get_mut(page).expect("it is held");
            *held -= 1;
            if *held == 0 {
                self.held.remove(page);
            }
        }
    }
}

impl Volume {
    // ---- step 1 -------------------------------------------------------------------------------

    /// Pages with the checksums of these rows and columns; none of a RAID 0 set.
    pub(super) fn sum_pages_of(
        &self,
        set: u8,
        stripe: u64,
        rows: Range<u32>,
        columns: Range<u32>,
    ) -> BTreeSet<PageIndex> {
        let layout = self.layout(set);
        if layout.level() == RaidLevel::Raid0 || columns.is_empty() {
            return BTreeSet::new();
        }
        let page = |row, column| {
            let index = Checksums::index(layout, stripe, row, column);
            self.area.page_of_checksum(set.into(), index).0
        };
        let pages = rows.flat_map(|row| page(row, columns.start)..=page(row, columns.end - 1));
        pages.map(PageIndex).collect()
    }

    fn sum_pages_of_piece(&self, piece: &Piece) -> BTreeSet<PageIndex> {
        let row = piece.row();
        self.sum_pages_of(piece.set, piece.stripe(), row..row + 1, piece.columns())
    }

    fn sum_pages_of_chunk(&self, key: ChunkKey) -> BTreeSet<PageIndex> {
        let layout = self.layout(key.set);
        self.sum_pages_of(key.set, key.stripe, 0..layout.rows(), self.columns_of_chunk(key))
    }

    pub(super) fn hold_sums_of_piece(&mut self, piece: &Piece) {
        let pages = self.sum_pages_of_piece(piece);
        self.sum_pages.hold(&pages);
    }

    pub(super) fn release_sums_of_piece(&mut self, piece: &Piece) {
        let pages = self.sum_pages_of_piece(piece);
        self.sum_pages.release(&pages);
    }

    /// Of a piece whose sums are held. One that waits is read again when a page has come.
    pub(super) fn want_sums_of_piece(&mut self, piece: &Piece) -> Sums {
        let pages = self.sum_pages_of_piece(piece);
        let sums = self.want_sums(&pages);
        if sums == Sums::Awaited {
            self.sum_pages.pieces.push(*piece);
        }
        sums
    }

    /// Holds those of a chunk until [`Volume::release_sums_of_chunk`].
    pub(super) fn want_sums_of_chunk(&mut self, key: ChunkKey) -> Sums {
        let pages = self.sum_pages_of_chunk(key);
        if self.sum_pages.chunks.insert(key) {
            self.sum_pages.hold(&pages);
        }
        self.want_sums(&pages)
    }

    pub(super) fn release_sums_of_chunk(&mut self, key: ChunkKey) {
        if self.sum_pages.chunks.remove(&key) {
            let pages = self.sum_pages_of_chunk(key);
            self.sum_pages.release(&pages);
        }
    }

    // ---- steps 2 and 3 ------------------------------------------------------------------------

    pub(super) fn want_sums(&mut self, pages: &BTreeSet<PageIndex>) -> Sums {
        let mut sums = Sums::There;
        for page in pages {
            let (set, first) = self.place_of_sums(*page);
            if self.checksums.touch(set, first) || self.checkpoint.map.get(*page).is_none() {
                continue;
            }
            if self.sum_pages.failed.remove(page) {
                return Sums::Unreadable;
            }
            self.sum_pages.awaited.entry(*page).or_insert(0);
            if !self.sum_pages.reading.contains(page) && !self.are_pages_about_to_move() {
                self.read_sum_pages(PageRun { first: *page, count: 1 }, false);
            }
            sums = Sums::Awaited;
        }
        sums
    }

    pub(in crate::volume) fn place_of_sums(&self, page: PageIndex) -> (usize, u64) {
        match self.area.content(page) {
            TablePage::Checksums { set, first } => (set, first),
            other => unreachable!("page {} is of {other:?}", page.0),
        }
    }

    fn read_sum_pages(&mut self, run: PageRun, is_for_later: bool) {
        self.sum_pages.reading.extend(run.pages());
        let bytes = self.bytes_of_run(run);
        let length = bytes.end - bytes.start;
        let purpose = Purpose::Sums(run, is_for_later);
        self.start_read(Device::CacheDisk, bytes.start, length, purpose);
    }

    /// Where the copies of these pages are, and what lies between them.
    pub(super) fn bytes_of_run(&self, run: PageRun) -> Range<u64> {
        let last = PageIndex(run.first.0 + run.count - 1);
        self.offset_of_copy(run.first)..self.offset_of_copy(last) + LINE_SIZE
    }

    fn offset_of_copy(&self, page: PageIndex) -> u64 {
        let copy = self.checkpoint.map.get(page).expect("the map names it");
        self.area.page_offset(page, copy.second)
    }

    /// The content of a page of a run that was read; `None`: it is not the copy that counts.
    pub(super) fn content_in_run<'a>(
        &self,
        run: PageRun,
        bytes: &'a [u8],
        page: PageIndex,
    ) -> Option<&'a [u8; page::PAGE_CONTENT_BYTES]> {
        let copy = self.checkpoint.map.get(page).expect("the map names it");
        let at = (self.offset_of_copy(page) - self.bytes_of_run(run).start) as usize;
        let bytes = &bytes[at..at + PAGE_BYTES];
        let content = page::decode_copy(bytes, self.header.uuid, page, copy).ok()?;
        // Lost lines that the map says nothing of were not counted at the start: forged.
        let is_told = copy.has_lost
            || !matches!(self.area.content(page), TablePage::Checksums { .. })
            || !Checksums::tells_of_lost(content);
        is_told.then_some(content)
    }

    pub(in crate::volume) fn sums_read(
        &mut self,
        run: PageRun,
        is_for_later: bool,
        result: Result<(), IoError>,
        buffer: Option<Buffer>,
    ) {
        self.sum_pages.later_under_way -= u32::from(is_for_later);
        let buffer = buffer.filter(|_| result.is_ok());
        for page in run.pages() {
            self.sum_pages.reading.remove(&page);
            let content =
                buffer.as_ref().and_then(|buffer| self.content_in_run(run, buffer.bytes(), page));
            if let Some(content) = content {
                self.sum_pages.awaited.remove(&page);
                let (set, first) = self.place_of_sums(page);
                self.checksums.load_page(set, first, content);
                self.sum_pages.came(page);
                continue;
            }
            let Some(tries) = self.sum_pages.awaited.get_mut(&page) else { continue };
            *tries += 1;
            if *tries >= TRIES_MAX {
                self.sum_pages.awaited.remove(&page);
                self.sum_pages.failed.insert(page);
                self.counters.pages_unreadable += 1;
            } else if !self.are_pages_about_to_move() {
                self.read_sum_pages(PageRun { first: page, count: 1 }, false);
            }
        }
        for piece in std::mem::take(&mut self.sum_pages.pieces) {
            self.read_piece(piece);
        }
    }

    /// Those that are waited for and are not being read.
    pub(super) fn read_awaited_sums(&mut self) {
        let awaited: Vec<PageIndex> = self.sum_pages.awaited.keys().copied().collect();
        for page in awaited {
            if !self.sum_pages.reading.contains(&page) {
                self.read_sum_pages(PageRun { first: page, count: 1 }, false);
            }
        }
    }

    /// Those that nobody waits for, as long as there is room.
    pub(in crate::volume) fn read_sums_for_later(&mut self) {
        if self.are_pages_about_to_move() {
            return;
        }
        while self.sum_pages.later_under_way < LATER_UNDER_WAY_MAX
            && let Some(run) = self.sum_pages.later.pop()
        {
            let is_wanted = |volume: &Volume, page| {
                let (set, first) = volume.place_of_sums(page);
                !volume.checksums.is_in_memory(set, first)
                    && !volume.sum_pages.reading.contains(&page)
            };
            if self.sum_pages.in_memory.len() + run.count as usize > self.sum_pages.max
                || !run.pages().all(|page| is_wanted(self, page))
            {
                continue;
            }
            self.sum_pages.later_under_way += 1;
            self.read_sum_pages(run, true);
        }
    }

    // ---- step 4 -------------------------------------------------------------------------------

    pub(in crate::volume) fn drop_sum_pages(&mut self) {
        for _ in 0..LOOKED_AT_MAX {
            if self.sum_pages.in_memory.len() <= self.sum_pages.max {
                return;
            }
            let page = self.sum_pages.in_memory.pop_front().expect("there are too many");
            let (set, first) = self.place_of_sums(page);
            let is_needed = self.sum_pages.held.contains_key(&page)
                || self.checkpoint.needs(page)
                || self.checksums.has_lost(set, first);
            if self.checksums.take_touch(set, first) || is_needed {
                self.sum_pages.in_memory.push_back(page);
            } else {
                self.checksums.drop_page(set, first);
            }
        }
    }
}
