//! Where things are in the volume area of a cache-disk.

use super::header::VolumeHeader;
use super::page::{PAGE_CONTENT_BYTES, PageIndex};
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
/// Most pages: an index of 32 bits, and what can be read at a start.
const PAGES_MAX: u64 = 1 << 28;
/// Lines before the first page: two headers and two roots.
const LINES_BEFORE_PAGES: u64 = 4;

/// Whether a journal can be of that size.
pub fn is_journal_size(bytes: u64) -> bool {
    (JOURNAL_BYTES_MIN..=JOURNAL_BYTES_MAX).contains(&bytes) && bytes.is_multiple_of(LINE_SIZE)
}

/// Which table a page is a piece of, and which of its pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TablePage {
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
}

/// Places and numbers of pages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeArea {
    /// Byte address of the area on the cache-disk.
    offset: u64,
    extent_pages: u64,
    /// For each set: its first page, and how many it has.
    checksum_pages: Vec<(u64, u64)>,
    /// The first page, and how many there are.
    pointer_pages: (u64, u64),
    /// Slots for pointers in the header, and pages behind all others for more of them.
    pointers_max: u32,
    pointer_pages_added: u32,
    /// For each set: its first page, and how many it has.
    lost_pages: Vec<(u64, u64)>,
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

impl VolumeArea {
    /// The area of a volume; `None` if it would have too many pages.
    pub(crate) fn new(
        config: &VolumeConfig,
        pointers_max: u32,
        journal_bytes: u64,
        offset: u64,
    ) -> Option<VolumeArea> {
        let extent_pages = config.extents().div_ceil(ENTRIES_PER_PAGE);
        let mut pages = extent_pages;
        let mut take = |count: u64| {
            pages += count;
            (pages - count, count)
        };
        let sets = config.sets.iter();
        let checksum_pages =
            sets.clone().map(|set| take(checksums(set).div_ceil(CHECKSUMS_PER_PAGE))).collect();
        let pointer_pages = take(u64::from(pointers_max).div_ceil(ENTRIES_PER_PAGE));
        let lost_pages =
            sets.map(|set| take(lines_of(set).div_ceil(LINES_PER_WORD * ENTRIES_PER_PAGE)));
        let lost_pages = lost_pages.collect();
        (pages <= PAGES_MAX).then_some(VolumeArea {
            offset,
            extent_pages,
            checksum_pages,
            pointer_pages,
            pointers_max,
            pointer_pages_added: 0,
            lost_pages,
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
        let fits = area.pages <= PAGES_MAX
            && is_journal_size(left)
            && u32::try_from(area.pointer_slots_of_pages()).is_ok();
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

    /// Number of pages.
    pub fn pages(&self) -> u64 {
        self.pages
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

    /// What a page holds.
    ///
    /// # Panics
    /// If there is no such page.
    pub(crate) fn content(&self, page: PageIndex) -> TablePage {
        let number = u64::from(page.0);
        if number < self.extent_pages {
            return TablePage::Extents(number * ENTRIES_PER_PAGE);
        }
        let place = |(first, count): &(u64, u64)| {
            (*first..first + count).contains(&number).then(|| number - first)
        };
        let find = |pages: &[(u64, u64)]| {
            pages.iter().enumerate().find_map(|(set, pages)| Some((set, place(pages)?)))
        };
        if let Some((set, page)) = find(&self.checksum_pages) {
            return TablePage::Checksums { set, first: page * CHECKSUMS_PER_PAGE };
        }
        if let Some((set, page)) = find(&self.lost_pages) {
            return TablePage::LostLines { set, first: page * ENTRIES_PER_PAGE };
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
        PageIndex((extent / ENTRIES_PER_PAGE) as u32)
    }

    /// The page that has this checksum of a set.
    pub(crate) fn page_of_checksum(&self, set: usize, index: u64) -> PageIndex {
        PageIndex((self.checksum_pages[set].0 + index / CHECKSUMS_PER_PAGE) as u32)
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
        // two; 6144 lines that can be lost in one.
        assert_eq!(area.pages(), 2 + 4 + 7 + 2 + 1);
        let mut offsets = area.header_offsets().to_vec();
        offsets.extend([area.root_offset(8), area.root_offset(9)]);
        for number in 0..area.pages() as u32 {
            let page = PageIndex(number);
            offsets.extend([area.page_offset(page, false), area.page_offset(page, true)]);
            let found = match area.content(page) {
                TablePage::Extents(first) => area.page_of_extent(first + 503),
                TablePage::Checksums { set, first } => area.page_of_checksum(set, first + 1007),
                TablePage::Pointers(first) => area.page_of_pointer(first + 503),
                TablePage::LostLines { set, first } => {
                    area.page_of_lost_line(set, 64 * (first + 503))
                }
            };
            assert_eq!(found, page);
        }
        let expected: Vec<u64> = (0..36).map(|line| (1 << 20) + line * 4096).collect();
        assert_eq!(offsets, expected);
        assert_eq!(area.journal_offset(), (1 << 20) + 36 * 4096);
        assert_eq!(area.bytes(), 36 * 4096 + header.journal_bytes);
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
