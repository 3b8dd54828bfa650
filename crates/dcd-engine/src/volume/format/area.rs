//! Where things are in the volume area of a cache-disk.

use std::ops::Range;

use super::header::VolumeHeader;
use super::page::{PAGE_BYTES, PAGE_CONTENT_BYTES, PageIndex};
use super::page_map::COPIES_PER_PAGE;
use crate::units::LINE_SIZE;
use crate::volume::config::{SetConfig, VolumeConfig};
use crate::volume::lost::{LINES_PER_WORD, lines_of};
use crate::volume::placement::RaidLevel;

/// Smallest and largest journal.
pub const JOURNAL_BYTES_MIN: u64 = 1 << 20;
/// See [`JOURNAL_BYTES_MIN`].
pub const JOURNAL_BYTES_MAX: u64 = 1 << 30;
/// Entries of the TTABLE, and pointers, in a page.
pub(crate) const ENTRIES_PER_PAGE: u64 = PAGE_CONTENT_BYTES as u64 / 8;
/// Checksums of lines in a page.
pub(crate) const CHECKSUMS_PER_PAGE: u64 = PAGE_CONTENT_BYTES as u64 / 4;
/// What a twin has of the journal: its ring, and pages of pointers that are added later.
const TWIN_JOURNAL_BYTES: u64 = 2 << 20;
/// Regions in a page of marks.
const REGIONS_PER_PAGE: u64 = ENTRIES_PER_PAGE * 64;
/// Most pages: an index of 32 bits, and what can be read at a start.
const PAGES_MAX: u64 = 1 << 28;
/// Lines before the first page: two headers and two roots.
const LINES_BEFORE_PAGES: u64 = 4;

/// Whether a journal can be of that size.
pub fn is_journal_size(bytes: u64) -> bool {
    (JOURNAL_BYTES_MIN..=JOURNAL_BYTES_MAX).contains(&bytes) && bytes.is_multiple_of(LINE_SIZE)
}

/// Some pages of checksums one behind the other, which a twin marks together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Region(pub(crate) u32);

/// Which table a page is a piece of, and which of its pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TablePage {
    /// The map.
    Map,
    /// The TTABLE: entries from this extent on.
    Extents(u64),
    /// Checksums of a set, from this one on.
    Checksums {
        /// Which set.
        set: usize,
        /// The first in the page.
        first: u64,
    },
    /// The pointers from this slot on.
    Pointers(u64),
    /// Which lines of a RAID 0 set are lost, from this word of 64 on.
    LostLines {
        /// Which set.
        set: usize,
        /// The first word in the page.
        first: u64,
    },
    /// Regions whose checksums are not known, from this word of 64 on: in a twin alone.
    Marks(u64),
}

/// Places and numbers of pages.
///
/// **The map** is a tree: pages that name the copies of others which count ([`super::page_map`]).
/// Its top is page 0, and each of its levels comes behind the one above it; behind the lowest come
/// the pages of the tables, which that level names. So a page has a higher number than the one that
/// names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeArea {
    /// Byte address of the area on the cache-disk.
    offset: u64,
    /// For each level of the map, from the top on: its first page, and how many it has.
    map_levels: Vec<(u64, u64)>,
    /// The first page, and how many there are.
    extent_pages: (u64, u64),
    /// For each set: its first page, and how many it has.
    checksum_pages: Vec<(u64, u64)>,
    /// The first page, and how many there are.
    pointer_pages: (u64, u64),
    /// Slots for pointers in the header, and pages behind all others for more of them.
    pointers_max: u32,
    pointer_pages_added: u32,
    /// For each set: its first page, and how many it has.
    lost_pages: Vec<(u64, u64)>,
    /// The first page, and how many there are.
    mark_pages: (u64, u64),
    /// Pages of checksums that a mark is for; 0: there are no marks.
    region_pages: u64,
    pages: u64,
    journal_bytes: u64,
}

/// Checksums that a set keeps: of its data, and of its parity.
pub(crate) fn checksums(set: &SetConfig) -> u64 {
    let units = match set.level {
        RaidLevel::Raid0 => 0,
        RaidLevel::Raid1 => set.data_units(),
        RaidLevel::Raid5 => set.data_units() + 1,
    };
    set.stripes() * units * (set.stripe_unit_bytes / LINE_SIZE)
}

/// The first page and the size of each level of a map of so many pages of tables.
fn map_levels(tables: u64) -> Vec<(u64, u64)> {
    let mut sizes = vec![tables.div_ceil(COPIES_PER_PAGE as u64).max(1)];
    while let Some(size) = sizes.last().copied().filter(|size| *size > 1) {
        sizes.push(size.div_ceil(COPIES_PER_PAGE as u64));
    }
    let mut first = 0;
    let from_top = sizes.into_iter().rev().map(|size| {
        first += size;
        (first - size, size)
    });
    from_top.collect()
}

impl VolumeArea {
    /// The area of a volume; `None` if it would have too many pages.
    pub fn new(
        config: &VolumeConfig,
        pointers_max: u32,
        journal_bytes: u64,
        offset: u64,
    ) -> Option<VolumeArea> {
        let sets = config.sets.iter();
        let extent_pages = config.extents().div_ceil(ENTRIES_PER_PAGE);
        let pointer_pages = u64::from(pointers_max).div_ceil(ENTRIES_PER_PAGE);
        let checksum_pages = |set| checksums(set).div_ceil(CHECKSUMS_PER_PAGE);
        let lost_pages = |set| lines_of(set).div_ceil(LINES_PER_WORD * ENTRIES_PER_PAGE);
        let of_sets: u64 = sets.clone().map(|set| checksum_pages(set) + lost_pages(set)).sum();
        let region_pages = u64::from(config.twin_region_pages);
        let checksums: u64 = sets.clone().map(checksum_pages).sum();
        let regions = checksums.checked_div(region_pages).map_or(0, |whole| whole + 1);
        let mark_pages = regions.div_ceil(REGIONS_PER_PAGE);
        // It has room for the pages of all pointers that can be added.
        let addable = journal_bytes.saturating_sub(JOURNAL_BYTES_MIN) / (2 * LINE_SIZE);
        let map_levels = map_levels(extent_pages + pointer_pages + of_sets + mark_pages + addable);

        let mut pages = map_levels.last().map_or(0, |(first, count)| first + count);
        let mut take = |count: u64| {
            pages += count;
            (pages - count, count)
        };
        let extent_pages = take(extent_pages);
        let checksum_pages = sets.clone().map(|set| take(checksum_pages(set))).collect();
        let pointer_pages = take(pointer_pages);
        let lost_pages = sets.map(|set| take(lost_pages(set))).collect();
        let mark_pages = take(mark_pages);
        (pages + addable <= PAGES_MAX).then_some(VolumeArea {
            offset,
            map_levels,
            extent_pages,
            checksum_pages,
            pointer_pages,
            pointers_max,
            pointer_pages_added: 0,
            lost_pages,
            mark_pages,
            region_pages,
            pages,
            journal_bytes,
        })
    }

    /// The same with so many more pages of pointers. They take the first lines of the journal;
    /// `None` if it would become too small, or there would be too many pages or slots.
    pub fn with_more_pointers(&self, pages: u32) -> Option<VolumeArea> {
        let more = u64::from(pages);
        let left = self.journal_bytes.checked_sub(2 * more * LINE_SIZE)?;
        let area = VolumeArea {
            pages: self.pages + more,
            journal_bytes: left,
            pointer_pages_added: self.pointer_pages_added.checked_add(pages)?,
            ..self.clone()
        };
        let fits = is_journal_size(left) && u32::try_from(area.pointer_slots_of_pages()).is_ok();
        fits.then_some(area)
    }

    /// Pages of pointers behind all others.
    pub(crate) fn pointer_pages_added(&self) -> u32 {
        self.pointer_pages_added
    }

    /// Slots for pointers.
    pub fn pointer_slots(&self) -> u32 {
        match self.pointer_pages_added {
            0 => self.pointers_max,
            _ => self.pointer_slots_of_pages() as u32,
        }
    }

    /// Slots that all pages of pointers have, used or not.
    pub(crate) fn pointer_slots_of_pages(&self) -> u64 {
        (self.pointer_pages.1 + u64::from(self.pointer_pages_added)) * ENTRIES_PER_PAGE
    }

    /// The area that a header speaks of, unless the root adds something to it.
    pub fn of(header: &VolumeHeader, offset: u64) -> Option<VolumeArea> {
        VolumeArea::new(&header.config, header.pointers_max, header.journal_bytes, offset)
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        (LINES_BEFORE_PAGES + 2 * self.pages) * LINE_SIZE + self.journal_bytes
    }

    /// Size of the same area as a twin, in bytes: its records have no lines, and of the journal only
    /// so much is kept as a ring of them and more pages of pointers need.
    pub fn twin_bytes(&self) -> u64 {
        let added = 2 * u64::from(self.pointer_pages_added) * LINE_SIZE;
        let journal = (self.journal_bytes + added).min(TWIN_JOURNAL_BYTES);
        (LINES_BEFORE_PAGES + 2 * self.pages) * LINE_SIZE - added + journal
    }

    /// Pages of pointers that can be added with a twin of that size.
    pub(crate) fn twin_pointer_pages_max(&self) -> u64 {
        (TWIN_JOURNAL_BYTES - JOURNAL_BYTES_MIN) / (2 * LINE_SIZE)
    }

    /// Size of the pages of checksums, one copy of each.
    pub fn checksum_bytes(&self) -> u64 {
        self.checksum_pages.iter().map(|(_, count)| count * PAGE_BYTES as u64).sum()
    }

    /// Number of pages.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// The first page of a table: before it there are those of the map.
    pub(crate) fn tables_start(&self) -> u32 {
        self.extent_pages.0 as u32
    }

    /// Byte addresses of the copies of the header.
    pub fn header_offsets(&self) -> [u64; 2] {
        [self.offset, self.offset + LINE_SIZE]
    }

    /// Byte address of the place of the root of this checkpoint.
    pub fn root_offset(&self, checkpoint: u64) -> u64 {
        self.offset + (2 + checkpoint % 2) * LINE_SIZE
    }

    /// Byte address of the first or second place of a page.
    pub fn page_offset(&self, page: PageIndex, second: bool) -> u64 {
        self.offset + (LINES_BEFORE_PAGES + 2 * u64::from(page.0) + u64::from(second)) * LINE_SIZE
    }

    /// Byte address of the journal.
    pub fn journal_offset(&self) -> u64 {
        self.offset + (LINES_BEFORE_PAGES + 2 * self.pages) * LINE_SIZE
    }

    /// Lines of the journal.
    pub fn journal_lines(&self) -> u64 {
        self.journal_bytes / LINE_SIZE
    }

    /// The page of the map that names this one, and the entry; `None`: the root names it.
    pub fn parent(&self, page: PageIndex) -> Option<(PageIndex, usize)> {
        let number = u64::from(page.0);
        let starts = self.map_levels.iter().map(|(first, _)| *first);
        let starts: Vec<u64> = starts.chain([self.extent_pages.0]).collect();
        let level = starts.partition_point(|first| *first <= number) - 1;
        let above = self.map_levels.get(level.checked_sub(1)?)?;
        let in_level = number - starts[level];
        let parent = above.0 + in_level / COPIES_PER_PAGE as u64;
        Some((PageIndex(parent as u32), in_level as usize % COPIES_PER_PAGE))
    }

    /// The pages that a page of the map names; those of a table name none.
    pub fn children(&self, page: PageIndex) -> Range<u32> {
        let number = u64::from(page.0);
        let level = self
            .map_levels
            .iter()
            .position(|(first, count)| (*first..first + count).contains(&number));
        let Some(level) = level else { return 0..0 };
        let below = match self.map_levels.get(level + 1) {
            Some((first, count)) => *first..first + count,
            None => self.extent_pages.0..self.pages,
        };
        let first = below.start + (number - self.map_levels[level].0) * COPIES_PER_PAGE as u64;
        let end = (first + COPIES_PER_PAGE as u64).min(below.end);
        first.min(end) as u32..end as u32
    }

    /// What a page holds.
    ///
    /// # Panics
    /// If there is no such page.
    pub(crate) fn content(&self, page: PageIndex) -> TablePage {
        let number = u64::from(page.0);
        if number < self.extent_pages.0 {
            return TablePage::Map;
        }
        let place = |(first, count): &(u64, u64)| {
            (*first..first + count).contains(&number).then(|| number - first)
        };
        if let Some(page) = place(&self.extent_pages) {
            return TablePage::Extents(page * ENTRIES_PER_PAGE);
        }
        let find = |pages: &[(u64, u64)]| {
            pages.iter().enumerate().find_map(|(set, pages)| Some((set, place(pages)?)))
        };
        if let Some((set, page)) = find(&self.checksum_pages) {
            return TablePage::Checksums { set, first: page * CHECKSUMS_PER_PAGE };
        }
        if let Some((set, page)) = find(&self.lost_pages) {
            return TablePage::LostLines { set, first: page * ENTRIES_PER_PAGE };
        }
        if let Some(page) = place(&self.mark_pages) {
            return TablePage::Marks(page * ENTRIES_PER_PAGE);
        }
        let first_added = self.pages - u64::from(self.pointer_pages_added);
        let added = || {
            let added = (first_added..self.pages).contains(&number).then(|| number - first_added);
            added.map(|page| self.pointer_pages.1 + page)
        };
        let pointers = place(&self.pointer_pages).or_else(added);
        let pointers = pointers.unwrap_or_else(|| panic!("there is no page {number}"));
        TablePage::Pointers(pointers * ENTRIES_PER_PAGE)
    }

    /// The page of the TTABLE that has this extent.
    pub(crate) fn page_of_extent(&self, extent: u64) -> PageIndex {
        PageIndex((self.extent_pages.0 + extent / ENTRIES_PER_PAGE) as u32)
    }

    /// The page that has this checksum of a set.
    pub(crate) fn page_of_checksum(&self, set: usize, index: u64) -> PageIndex {
        PageIndex((self.checksum_pages[set].0 + index / CHECKSUMS_PER_PAGE) as u32)
    }

    /// Regions of pages of checksums: what a twin marks.
    pub(crate) fn regions(&self) -> u64 {
        let pages: u64 = self.checksum_pages.iter().map(|(_, count)| count).sum();
        if self.region_pages == 0 { 0 } else { pages.div_ceil(self.region_pages) }
    }

    /// The region that a page of checksums is in.
    ///
    /// # Panics
    /// If there are no regions.
    pub(crate) fn region_of(&self, page: PageIndex) -> Region {
        let first = self.checksum_pages[0].0;
        Region(((u64::from(page.0) - first) / self.region_pages) as u32)
    }

    /// The pages of checksums of a region.
    pub(crate) fn pages_of_region(&self, region: Region) -> Range<u32> {
        let (first, last) = (self.checksum_pages[0], *self.checksum_pages.last().expect("a set"));
        let begin = first.0 + u64::from(region.0) * self.region_pages;
        let end = (begin + self.region_pages).min(last.0 + last.1);
        begin as u32..end.max(begin) as u32
    }

    /// The page with the mark of a region.
    pub(crate) fn page_of_mark(&self, region: Region) -> PageIndex {
        PageIndex((self.mark_pages.0 + u64::from(region.0) / REGIONS_PER_PAGE) as u32)
    }

    /// The pages of all checksums.
    pub(crate) fn all_checksum_pages(&self) -> Range<u32> {
        let (first, last) = (self.checksum_pages[0], *self.checksum_pages.last().expect("a set"));
        first.0 as u32..(last.0 + last.1) as u32
    }

    /// The page that has this slot of the pointers.
    pub(crate) fn page_of_pointer(&self, slot: u64) -> PageIndex {
        let (first, count) = self.pointer_pages;
        let page = slot / ENTRIES_PER_PAGE;
        let page = match page.checked_sub(count) {
            None => first + page,
            Some(added) => self.pages - u64::from(self.pointer_pages_added) + added,
        };
        PageIndex(page as u32)
    }

    /// The page that tells whether this line of a RAID 0 set is lost.
    pub(crate) fn page_of_lost_line(&self, set: usize, line: u64) -> PageIndex {
        let word = line / LINES_PER_WORD;
        PageIndex((self.lost_pages[set].0 + word / ENTRIES_PER_PAGE) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::tests::header;
    use super::*;

    #[test]
    fn every_page_has_its_place() {
        let header = header();
        let area = VolumeArea::of(&header, 1 << 20).unwrap();
        // 656 extents in two pages; 3072 and 6144 checksums in four and seven; 1000 pointers in
        // two; 6144 lines that can be lost in one; a region of eleven pages of checksums in one.
        // A page of the map names all.
        assert_eq!(area.pages(), 1 + 2 + 4 + 7 + 2 + 1 + 1);
        assert_eq!((area.regions(), area.pages_of_region(Region(0))), (1, 3..14));
        let mut offsets = area.header_offsets().to_vec();
        offsets.extend([area.root_offset(8), area.root_offset(9)]);
        for number in 0..area.pages() as u32 {
            let page = PageIndex(number);
            offsets.extend([area.page_offset(page, false), area.page_offset(page, true)]);
            let found = match area.content(page) {
                TablePage::Map => PageIndex(0),
                TablePage::Extents(first) => area.page_of_extent(first + 503),
                TablePage::Checksums { set, first } => area.page_of_checksum(set, first + 1007),
                TablePage::Pointers(first) => area.page_of_pointer(first + 503),
                TablePage::LostLines { set, first } => {
                    area.page_of_lost_line(set, 64 * (first + 503))
                }
                TablePage::Marks(0) => area.page_of_mark(Region(area.regions() as u32 - 1)),
                TablePage::Marks(_) => unreachable!("there is one"),
            };
            assert_eq!(found, page);
        }
        let expected: Vec<u64> = (0..40).map(|line| (1 << 20) + line * 4096).collect();
        assert_eq!(offsets, expected);
        assert_eq!(area.journal_offset(), (1 << 20) + 40 * 4096);
        assert_eq!(area.bytes(), 40 * 4096 + header.journal_bytes);
    }

    #[test]
    fn every_page_is_named_once() {
        let mut header = VolumeHeader { journal_bytes: 2 << 20, ..header() };
        for (pointers, levels) in [(1000, 1), (300_000, 2), (u32::MAX / 2, 3)] {
            header.pointers_max = pointers;
            let area = VolumeArea::of(&header, 0).unwrap().with_more_pointers(7).unwrap();
            assert_eq!(area.map_levels.len(), levels);
            assert_eq!(area.parent(PageIndex(0)), None);
            let mut next = 1;
            for page in (0..area.pages() as u32).map(PageIndex) {
                let children = area.children(page);
                if children.is_empty() {
                    // Behind the last there is room for pointers to come.
                    continue;
                }
                assert_eq!(children.start, next, "{page:?}");
                for (entry, child) in children.clone().enumerate() {
                    assert_eq!(area.parent(PageIndex(child)), Some((page, entry)));
                }
                next = children.end;
            }
            assert_eq!(u64::from(next), area.pages());
        }
    }

    #[test]
    fn more_pointers_take_the_beginning_of_the_journal() {
        let header = VolumeHeader { journal_bytes: 2 << 20, ..header() };
        let area = VolumeArea::of(&header, 1 << 20).unwrap();
        assert_eq!(area.pointer_slots(), 1000);
        let more = area.with_more_pointers(3).unwrap();
        assert_eq!((more.bytes(), more.pages()), (area.bytes(), area.pages() + 3));
        assert_eq!(more.pointer_slots(), 5 * 504);
        assert_eq!(more.page_offset(PageIndex(area.pages() as u32), false), area.journal_offset());
        assert_eq!(more.journal_offset(), area.journal_offset() + 6 * 4096);
        assert_eq!(more.journal_lines(), area.journal_lines() - 6);
        for slot in 0..more.pointer_slots().into() {
            let page = more.page_of_pointer(slot);
            assert_eq!(more.content(page), TablePage::Pointers(slot / 504 * 504));
            assert!(slot >= 1008 || page == area.page_of_pointer(slot));
        }
        // In two steps the same as in one.
        let again = area.with_more_pointers(1).unwrap().with_more_pointers(2);
        assert_eq!(again, Some(more));
        // A journal of 1 MiB stays.
        assert!(area.with_more_pointers(128).is_some() && area.with_more_pointers(129).is_none());
        assert!(area.with_more_pointers(u32::MAX).is_none());
    }
}
