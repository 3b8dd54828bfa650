//! The map: of each page the copy that counts, pages of the map among them.
//!
//! Twelve bytes a page, of those near one that was ever written.

use super::format::page::PageIndex;
use super::format::page_map::{PageCopy, pack, unpack};
use super::sparse_table::SparseTable;

/// See the module.
pub(super) struct PageMap {
    copies: SparseTable<u64>,
    checksums: SparseTable<u32>,
}

impl PageMap {
    /// Of a volume none of whose pages was written.
    pub(super) fn new(pages: u64) -> PageMap {
        PageMap { copies: SparseTable::new(pages), checksums: SparseTable::new(pages) }
    }

    /// There are so many now.
    pub(super) fn grow(&mut self, pages: u64) {
        self.copies.set_len(pages);
        self.checksums.set_len(pages);
    }

    /// Memory taken.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.copies.memory_bytes() + self.checksums.memory_bytes()
    }

    /// The copy that counts; `None`: the page was never written.
    pub(super) fn get(&self, page: PageIndex) -> Option<PageCopy> {
        let page = page.0.into();
        unpack(self.copies.get(page), self.checksums.get(page))
    }

    /// The first page from this one on of which a copy counts.
    pub(super) fn next_written(&self, from: PageIndex) -> Option<PageIndex> {
        self.copies.next_used(from.0.into()).map(|page| PageIndex(page as u32))
    }

    /// From now on this one counts.
    pub(super) fn set(&mut self, page: PageIndex, copy: Option<PageCopy>) {
        let (copy, checksum) = pack(copy);
        self.copies.set(page.0.into(), copy);
        self.checksums.set(page.0.into(), checksum);
    }
}
