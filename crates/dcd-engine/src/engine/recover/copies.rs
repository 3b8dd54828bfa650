//! Between steps 1 and 2 of recovery: the copy pages that the checkpoint names are read, so that
//! the replay of the log can tell which copies are no longer true. A page that cannot be read, or
//! is not the one that is named, takes its copies with it.

use super::{Stage, Step};
use crate::engine::Disk;
use crate::engine::{Engine, Purpose};
use crate::format::checkpoint::CopyPageRef;
use crate::format::copy_page::{CopyPage, PAGE_SIZE};
use crate::units::{FRAGMENTS_PER_LINE, Line};

/// Pages in one read: 1 MiB, with both places of each.
const PAGES_PER_READ: u32 = 128;
/// Reads at a time.
const READS_AT_ONCE: usize = 16;

impl Engine {
    pub(super) fn plan_copy_pages(&mut self) {
        let recovery = self.recovery.as_mut().expect("recovery is under way");
        let checkpoint = recovery.checkpoint.as_ref().expect("it was read");
        for page in &checkpoint.copy_pages {
            match recovery.copy_pages.back_mut() {
                Some(run) if page.page.0 - run[0].page.0 < PAGES_PER_READ => run.push(*page),
                _ => recovery.copy_pages.push_back(vec![*page]),
            }
        }
        recovery.stage = Stage::CopyPages;
    }

    pub(super) fn read_copy_pages(&mut self) {
        let recovery = self.recovery.as_mut().expect("recovery is under way");
        let count = recovery.copy_pages.len().min(READS_AT_ONCE);
        let runs: Vec<_> = recovery.copy_pages.drain(..count).collect();
        recovery.ios_left = count as u32;
        if runs.is_empty() {
            self.copies.loaded();
            return self.start_chain();
        }
        for run in runs {
            let (first, last) = (run[0].page, run[run.len() - 1].page);
            let offset = self.superblock.geometry.copy_page_offset(first, 0);
            let length = u64::from(last.0 + 1 - first.0) * 2 * PAGE_SIZE as u64;
            let purpose = Purpose::Recover(Step::CopyPages(run));
            self.start_read(Disk::CacheDisk, offset, length, purpose);
        }
    }

    /// `bytes` are both places of all pages from the first of the run to the last.
    pub(super) fn load_copy_pages(&mut self, run: &[CopyPageRef], bytes: Option<&[u8]>) {
        let uuid = self.superblock.uuid;
        let line_end = Line(self.data_disk.blocks / FRAGMENTS_PER_LINE);
        for reference in run {
            let place = 2 * (reference.page.0 - run[0].page.0) as usize;
            let at = (place + (reference.generation % 2) as usize) * PAGE_SIZE;
            let page = bytes.map(|bytes| CopyPage::decode(&bytes[at..], uuid, reference));
            match page {
                Some(Ok(page)) => self.copies.load(reference, page, line_end),
                Some(Err(_)) | None => {
                    self.copies.lost(reference);
                    self.recovery().report.copy_pages_lost += 1;
                }
            }
        }
    }
}
