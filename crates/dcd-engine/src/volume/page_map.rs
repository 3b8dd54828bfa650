//! The map: of each page the copy that counts, pages of the map among them.
//!
//! Twelve bytes a page, in memory that nothing has touched where nothing was ever written.

use super::format::page::PageIndex;
use super::format::page_map::{PageCopy, pack, unpack};

/// See the module.
pub(super) struct PageMap {
    copies: Vec<u64>,
    checksums: Vec<u32>,
    /// Pages that were ever written.
    written: u64,
}

impl PageMap {
    /// Of a volume none of whose pages was written.
    pub(super) fn new(pages: u64) -> PageMap {
        let pages = pages as usize;
        PageMap { copies: vec![0; pages], checksums: vec![0; pages], written: 0 }
    }

    /// There are so many now.
    pub(super) fn grow(&mut self, pages: u64) {
        self.copies.resize(pages as usize, 0);
        self.checksums.resize(pages as usize, 0);
    }

    /// Memory taken.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.written * 12
    }

    /// The copy that counts; `None`: the page was never written.
    pub(super) fn get(&self, page: PageIndex) -> Option<PageCopy> {
        let page = page.0 as usize;
        unpack(self.copies[page], self.checksums[page])
    }

    /// From now on this one counts.
    pub(super) fn set(&mut self, page: PageIndex, copy: Option<PageCopy>) {
        let (copy, checksum) = pack(copy);
        let before = std::mem::replace(&mut self.copies[page.0 as usize], copy);
        self.written = self.written + u64::from(copy != 0) - u64::from(before != 0);
        self.checksums[page.0 as usize] = checksum;
    }
}
