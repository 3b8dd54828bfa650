//! Checksums of the lines of redundant sets, parity included: four bytes each, 1 GiB for each TiB
//! of a RAID 1 set's data.
//!
//! They tell rot from data, a stale mirror from a true one, and what was never written: that counts
//! as zeroes, without being read, so that a new set needs no first synchronisation.

use super::config::VolumeConfig;
use super::format::area::{CHECKSUMS_PER_PAGE, checksums};
use super::format::page::PAGE_CONTENT_BYTES;
use super::raid::Layout;
use crate::format::checksum::crc32c;
use crate::units::LINE_SIZE;

const NEVER: u32 = 0;
const LOST: u32 = 1;

/// What is known of a line on the members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LineSum {
    /// Nothing was written there; it counts as zeroes.
    Never,
    /// What was there is nowhere any more.
    Lost,
    /// What is there has this checksum.
    Sum(u32),
}

impl LineSum {
    /// Of a line.
    ///
    /// # Panics
    /// If it has not 4096 bytes.
    pub fn of(line: &[u8]) -> LineSum {
        assert_eq!(line.len() as u64, LINE_SIZE);
        // Two values mean something else; a line with one of these sums shares it with another
        // line.
        LineSum::Sum(match crc32c(line) {
            sum @ (NEVER | LOST) => sum + 2,
            sum => sum,
        })
    }

    fn pack(self) -> u32 {
        match self {
            LineSum::Never => NEVER,
            LineSum::Lost => LOST,
            LineSum::Sum(sum) => sum,
        }
    }

    fn unpack(packed: u32) -> LineSum {
        match packed {
            NEVER => LineSum::Never,
            LOST => LineSum::Lost,
            sum => LineSum::Sum(sum),
        }
    }
}

/// A page of them, as on the cache-disk.
#[derive(Clone, Debug)]
struct Page {
    sums: [u32; SUMS],
    /// Lines of them whose checksum is [`LineSum::Lost`].
    lost: u32,
    /// Wanted since it was last looked at.
    is_touched: bool,
}

impl Page {
    fn new() -> Box<Page> {
        Box::new(Page { sums: [NEVER; SUMS], lost: 0, is_touched: true })
    }
}

/// Checksums in a page.
const SUMS: usize = CHECKSUMS_PER_PAGE as usize;

/// The checksums of all sets, a page at a time. One that is not in memory says that nothing was
/// ever written to its lines: whoever looks at lines sees to it that their pages are there
/// ([`super::paths`]).
#[derive(Clone, Debug)]
pub struct Checksums {
    sets: Vec<Vec<Option<Box<Page>>>>,
    /// Lines whose checksum is [`LineSum::Lost`], parity too.
    lost: u64,
    /// Pages that take memory.
    pages: u64,
}

impl Checksums {
    /// Of a volume of which nothing is written.
    pub fn new(config: &VolumeConfig) -> Checksums {
        let pages = |set| vec![None; checksums(set).div_ceil(CHECKSUMS_PER_PAGE) as usize];
        Checksums { sets: config.sets.iter().map(pages).collect(), lost: 0, pages: 0 }
    }

    /// The sets are as large as these now, and there are as many.
    pub fn grow(&mut self, config: &VolumeConfig) {
        self.sets.resize(config.sets.len(), Vec::new());
        for (pages, set) in self.sets.iter_mut().zip(&config.sets) {
            pages.resize(checksums(set).div_ceil(CHECKSUMS_PER_PAGE) as usize, None);
        }
    }

    /// The place of a line among those of its set. `row`: its data unit in the stripe, or behind
    /// these the parity.
    pub fn index(layout: &Layout, stripe: u64, row: u32, column: u32) -> u64 {
        let rows = u64::from(layout.rows());
        (stripe * rows + u64::from(row)) * u64::from(layout.unit_lines()) + u64::from(column)
    }

    /// What is known of a line.
    pub fn get(&self, set: u8, index: u64) -> LineSum {
        let (page, at) = locate(index);
        let page = self.sets[usize::from(set)][page].as_ref();
        page.map_or(LineSum::Never, |page| LineSum::unpack(page.sums[at]))
    }

    /// Changes that.
    pub fn set(&mut self, set: u8, index: u64, sum: LineSum) {
        let (page, at) = locate(index);
        let place = &mut self.sets[usize::from(set)][page];
        if place.is_none() {
            self.pages += 1;
        }
        let page = place.get_or_insert_with(Page::new);
        let before = std::mem::replace(&mut page.sums[at], sum.pack());
        let (was_lost, is_lost) = (before == LOST, sum == LineSum::Lost);
        page.lost = page.lost + u32::from(is_lost) - u32::from(was_lost);
        self.lost = self.lost + u64::from(is_lost) - u64::from(was_lost);
    }

    /// Lines that are nowhere any more, parity too, whether or not anything is placed there.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Whether any of a page is. `first`: its first line.
    pub fn has_lost(&self, set: usize, first: u64) -> bool {
        self.sets[set][locate(first).0].as_ref().is_some_and(|page| page.lost > 0)
    }

    /// The page that begins with line `first` of a set, as little-endian numbers.
    pub fn page(&self, set: usize, first: u64) -> Vec<u8> {
        let page = self.sets[set][locate(first).0].as_ref();
        page.map_or(Vec::new(), |page| page.sums.iter().flat_map(|sum| sum.to_le_bytes()).collect())
    }

    /// Whether a page on the disk says of any line that it is lost.
    pub fn tells_of_lost(content: &[u8; PAGE_CONTENT_BYTES]) -> bool {
        content.as_chunks::<4>().0.iter().any(|sum| u32::from_le_bytes(*sum) == LOST)
    }

    /// Takes it back.
    pub fn load_page(&mut self, set: usize, first: u64, content: &[u8; PAGE_CONTENT_BYTES]) {
        let sums = content.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
        let mut page = Page::new();
        for (sum, loaded) in page.sums.iter_mut().zip(sums) {
            *sum = loaded;
            page.lost += u32::from(loaded == LOST);
        }
        let lost = page.lost;
        let before = self.sets[set][locate(first).0].replace(page);
        self.pages += u64::from(before.is_none());
        self.lost = self.lost + u64::from(lost) - before.map_or(0, |page| u64::from(page.lost));
    }

    /// Whether a page is in memory. `first`: its first line.
    pub fn is_in_memory(&self, set: usize, first: u64) -> bool {
        self.sets[set][locate(first).0].is_some()
    }

    /// The same, and somebody wants it.
    pub fn touch(&mut self, set: usize, first: u64) -> bool {
        let page = &mut self.sets[set][locate(first).0];
        page.as_mut().is_some_and(|page| {
            page.is_touched = true;
            true
        })
    }

    /// Whether somebody has wanted it since this was last asked.
    pub fn take_touch(&mut self, set: usize, first: u64) -> bool {
        let page = &mut self.sets[set][locate(first).0];
        page.as_mut().is_some_and(|page| std::mem::take(&mut page.is_touched))
    }

    /// A page goes that can be read again.
    ///
    /// # Panics
    /// If lines of it are lost: they are counted.
    pub fn drop_page(&mut self, set: usize, first: u64) {
        let page = self.sets[set][locate(first).0].take();
        assert!(page.as_ref().is_none_or(|page| page.lost == 0), "its lost lines are counted");
        self.pages -= u64::from(page.is_some());
    }

    /// Memory taken.
    pub fn memory_bytes(&self) -> u64 {
        self.pages * size_of::<Page>() as u64
    }
}

/// Page and place in it of a line.
fn locate(index: u64) -> (usize, usize) {
    ((index / CHECKSUMS_PER_PAGE) as usize, (index % CHECKSUMS_PER_PAGE) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_tells_of_lost_lines() {
        let mut content = [0; PAGE_CONTENT_BYTES];
        // A one that lies across two checksums is none.
        content[3] = 1;
        assert!(!Checksums::tells_of_lost(&content));
        content[PAGE_CONTENT_BYTES - 4] = 1;
        assert!(Checksums::tells_of_lost(&content));
    }
}
