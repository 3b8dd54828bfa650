//! The map: of each page the copy that counts, pages of the map among them.
//!
//! Twelve bytes a page, in memory that nothing has touched where nothing was ever written.

use super::format::page::PageIndex;
use super::format::page_map::{PageCopy, pack, unpack};

/// See the module.
pub(super) struct PageMap {
    copies: Vec<u64>,
    checksums: Vec<u32>,
}

impl PageMap {
    /// Of a volume none of whose pages was written.
    pub(super) fn new(pages: u64) -> PageMap {
        PageMap { copies: vec![0; pages as usize], checksums: vec![0; pages as usize] }
    }

    /// There are so many now.
    pub(super) fn grow(&mut self, pages: u64) {
        self.copies.resize(pages as usize, 0);
        self.checksums.resize(pages as usize, 0);
    }

    /// The copy that counts; `None`: the page was never written.
    pub(super) fn get(&self, page: PageIndex) -> Option<PageCopy> {
        let page = page.0 as usize;
        unpack(self.copies[page], self.checksums[page])
    }

    /// From now on this one counts.
    pub(super) fn set(&mut self, page: PageIndex, copy: Option<PageCopy>) {
        let (copy, checksum) = pack(copy);
        self.copies[page.0 as usize] = copy;
        self.checksums[page.0 as usize] = checksum;
    }
}
