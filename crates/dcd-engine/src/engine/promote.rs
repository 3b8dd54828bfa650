//! Hot blocks: lines that were read from the data-disk are copied to the read area, so that the
//! next read of them is served from there. Which stay is S3-FIFO's business
//! ([`crate::copies::s3_fifo`]).
//!
//! 1. A read that belongs to a scan is noticed as it comes, and promotes nothing.
//! 2. What a read brought from the data-disk is promoted if the data-disk cannot have changed
//!    meanwhile, as in [`super::arrange`]. The policy names a slot; what was there is given up.
//! 3. The copies are gathered, and written when the log does not need the cache-disk, neighbours
//!    together.
//! 4. When a write has ended, its copies are valid, unless their lines have changed meanwhile.
//!
//! Nothing waits for any of this: what there is no room for in memory is not promoted.

use std::collections::BTreeMap;

use super::read::Part;
use super::{Engine, Purpose};
use crate::buffer::Buffer;
use crate::copies::s3_fifo::S3Fifo;
use crate::copies::scan_filter::{SCAN_BLOCKS_DEFAULT, ScanFilter};
use crate::copies::{Copies, SlotState};
use crate::engine::Disk;
use crate::format::checksum::crc32c;
use crate::format::geometry::COPIES_PER_PAGE;
use crate::io::{IoData, IoError, IoOperation};
use crate::line_hash::LineHash;
use crate::units::{
    BLOCK_SIZE, CopyPageIndex, CopySlot, FRAGMENTS_PER_LINE, FragmentMask, LINE_SIZE, LbaRange,
    Line, SlotIndex,
};

/// Lines that may wait to be written: 4 MiB.
const GATHERED_MAX: usize = 1024;
/// With so many the log has to put up with a write beside it.
const GATHERED_URGENT: usize = 256;
/// Writes at a time, and most slots in one.
const WRITES_IN_FLIGHT_MAX: u32 = 2;
const SLOTS_PER_WRITE: usize = 64;

/// Promotion of hot blocks.
pub(super) struct Promotion {
    policy: S3Fifo,
    scans: ScanFilter,
    gathered: BTreeMap<CopySlot, Buffer>,
    writes_in_flight: u32,
}

/// A write of copies.
pub(super) struct Write {
    first: CopySlot,
    slots: u32,
}

impl Promotion {
    /// For a read area of so many slots; the policy has none of them yet.
    pub(super) fn new(slots: u32, hash: LineHash) -> Promotion {
        Promotion {
            policy: S3Fifo::new(slots, hash),
            scans: ScanFilter::new(SCAN_BLOCKS_DEFAULT),
            gathered: BTreeMap::new(),
            writes_in_flight: 0,
        }
    }

    /// Whether nothing waits to be written, and nothing is.
    pub(super) fn is_idle(&self) -> bool {
        self.gathered.is_empty() && self.writes_in_flight == 0
    }

    /// Bytes of memory, without what is gathered.
    pub(super) fn memory_bytes(&self) -> usize {
        self.policy.memory_bytes()
    }
}

impl Engine {
    fn promotes(&self) -> bool {
        self.config.hot_blocks
            && self.copies.is_on()
            // With one arm for both disks a copy is no nearer than the line itself.
            && !self.config.one_disk
            && !self.has_no_use_for_copies()
            && self.close.is_none()
    }

    /// Step 1.
    pub(super) fn is_scan(&mut self, range: LbaRange) -> bool {
        self.promotes() && self.promotion.scans.is_scan(range)
    }

    /// A read was served from this copy.
    pub(super) fn copy_was_read(&mut self, slot: CopySlot) {
        if self.copies.is_hot(slot) {
            self.promotion.policy.hit(slot);
        }
    }

    /// Step 2, with what a part of a read brought from the data-disk.
    pub(super) fn promote(&mut self, part: &Part, bytes: &[u8]) {
        let is_as_it_was = part.stamp == self.data_disk_changes;
        if part.is_scan || !is_as_it_was || !self.promotes() {
            return;
        }
        let Some(start) = part.start() else { return };
        for range in part.taken_from_data_disk() {
            for (line, mask) in range.lines() {
                let at = (line.lba().0.saturating_sub(start.0) * BLOCK_SIZE) as usize;
                if mask == FragmentMask::FULL {
                    self.promote_line(line, &bytes[at..at + LINE_SIZE as usize]);
                }
            }
        }
    }

    /// Step 2, with what a change has just brought to the data-disk (write-through).
    pub(super) fn promote_written(&mut self, range: LbaRange, bytes: &[u8]) {
        if !self.promotes() {
            return;
        }
        for (line, _) in range.lines().filter(|(_, mask)| *mask == FragmentMask::FULL) {
            let at = ((line.lba().0 - range.start.0) * BLOCK_SIZE) as usize;
            self.promote_line(line, &bytes[at..at + LINE_SIZE as usize]);
        }
    }

    fn promote_line(&mut self, line: Line, bytes: &[u8]) {
        let is_wanted = self.promotion.gathered.len() < GATHERED_MAX
            && self.is_only_on_data_disk(line)
            && self.copies.places(line).next().is_none();
        if !is_wanted {
            return;
        }
        if self.promotion.policy.held() == self.promotion.policy.capacity() {
            let free = self.copies.free_pages().next();
            if let Some(page) = free {
                self.copies.give_to_hot_blocks(page);
                self.promotion.policy.add_slots(slots_of(page));
            }
        }
        let copies = &self.copies;
        let inserted = self.promotion.policy.insert(
            line,
            |slot| copies.slot(slot).line(),
            |slot| copies.slot(slot).is_written || copies.is_retired(slot),
        );
        let Some(inserted) = inserted else { return };
        self.copies.evict(inserted.slot);
        self.copies.give(inserted.slot, line);
        self.copies.start_filling(inserted.slot, crc32c(bytes));
        self.promotion.gathered.insert(inserted.slot, Buffer::copy_of(bytes));
    }

    /// Step 3.
    pub(super) fn advance_promotion(&mut self) -> bool {
        let gathered = self.promotion.gathered.len();
        let may_write = self.promotion.writes_in_flight < WRITES_IN_FLIGHT_MAX
            && (!self.log_is_busy()
                || gathered >= GATHERED_URGENT
                || self.close.is_some()
                // Else pages that are to go would be called being written.
                || self.resize.wants_destage());
        if gathered == 0 || !may_write {
            return false;
        }
        if self.has_no_use_for_copies() {
            for slot in std::mem::take(&mut self.promotion.gathered).into_keys() {
                self.copies.filled(slot, false);
                self.lose_hot_block(slot);
            }
            return true;
        }
        let mut run: Vec<Buffer> = Vec::new();
        let first = *self.promotion.gathered.keys().next().expect("some are gathered");
        while let Some(bytes) =
            self.promotion.gathered.remove(&CopySlot(first.0 + run.len() as u32))
        {
            run.push(bytes);
            // The next page lies elsewhere.
            let is_last_of_page = (first.0 + run.len() as u32).is_multiple_of(COPIES_PER_PAGE);
            if run.len() == SLOTS_PER_WRITE || is_last_of_page {
                break;
            }
        }
        let mut data = Buffer::zeroed(run.len() * LINE_SIZE as usize);
        for (bytes, line) in data.bytes_mut().chunks_mut(LINE_SIZE as usize).zip(&run) {
            bytes.copy_from_slice(line.bytes());
        }
        self.counters.copy_lines_written += run.len() as u64;
        self.promotion.writes_in_flight += 1;
        let offset = self.superblock.geometry.copy_slot_offset(first);
        let operation = IoOperation::Write { offset, data: IoData::Owned(data), fua: false };
        let write = Write { first, slots: run.len() as u32 };
        self.start_io(Disk::CacheDisk, operation, Purpose::Promote(write));
        true
    }

    /// Step 4.
    pub(super) fn promoted(&mut self, write: &Write, result: Result<(), IoError>) {
        self.promotion.writes_in_flight -= 1;
        for slot in (write.first.0..write.first.0 + write.slots).map(CopySlot) {
            if !self.copies.filled(slot, result.is_ok()) {
                self.lose_hot_block(slot);
            }
        }
        if let Err(error) = result {
            self.cache_disk_error(error);
        }
    }

    /// Nothing keeps a hot block that is not there. It may be gone already: its line has changed
    /// meanwhile.
    fn lose_hot_block(&mut self, slot: CopySlot) {
        if self.copies.is_hot(slot) && self.copies.slot(slot).state == SlotState::Stale {
            self.promotion.policy.remove(slot);
            self.copies.evict(slot);
        }
    }

    /// A copy is not what it should be.
    pub(super) fn copy_is_damaged(&mut self, slot: CopySlot) {
        self.counters.copies_damaged += 1;
        if self.copies.is_hot(slot) && self.copies.slot(slot).state == SlotState::Valid {
            self.promotion.policy.remove(slot);
        }
        self.copies.damaged(slot);
        self.arranging.try_again();
    }

    /// Takes pages of hot blocks for sequences, until so many are free, if that can be.
    pub(super) fn make_free_pages(&mut self, pages: usize) {
        let mut missing = pages - self.copies.free_pages().take(pages).count();
        let pages = self.copies.pages();
        let hot: Vec<CopyPageIndex> =
            self.copies.hot_pages().filter(|page| page.0 < pages).collect();
        for page in hot {
            if missing > 0 && self.take_hot_page(page) {
                missing -= 1;
            }
        }
    }

    /// Takes a page from the hot blocks, unless some of them are being written.
    pub(super) fn take_hot_page(&mut self, page: CopyPageIndex) -> bool {
        let copies = &self.copies;
        if Copies::slots_of(page).any(|slot| copies.slot(slot).is_written) {
            return false;
        }
        self.promotion.policy.take_slots(slots_of(page), |slot| copies.slot(slot).line());
        self.copies.take_page(page);
        true
    }

    /// The read area has so many pages from now on, and more at last.
    pub(super) fn grow_read_area(&mut self, pages: u32, pages_at_last: u32) {
        self.copies.grow(pages);
        let slots = |pages| pages * COPIES_PER_PAGE;
        self.promotion.policy.grow(slots(pages), slots(pages_at_last));
        if self.detection.is_none() {
            self.detection = self.config.detector.map(super::detect::Detection::new);
        }
    }

    /// After a start: the policy takes over the hot blocks that were found.
    pub(super) fn adopt_hot_blocks(&mut self) {
        for page in self.copies.hot_pages() {
            self.promotion.policy.add_slots(slots_of(page));
            for slot in Copies::slots_of(page) {
                if self.copies.slot(slot).state == SlotState::Valid {
                    self.promotion.policy.adopt(slot);
                }
            }
        }
    }

    /// A whole line has been destaged from this slot, which still holds it.
    pub(super) fn keep_clean(&mut self, line: Line, slot: SlotIndex) {
        let (segment, _) = self.superblock.geometry.locate(slot);
        let serial = self.log.segments.get(segment).serial();
        if let Some(clean) = &mut self.clean {
            clean.insert(line, slot, serial);
        }
    }

    /// The slot from which a line was destaged, and its checksum, if it still holds it.
    pub(super) fn clean_slot(&self, line: Line) -> Option<(SlotIndex, u32)> {
        let clean = self.clean.as_ref().filter(|_| !self.has_no_use_for_copies())?;
        let (slot, serial) = clean.find(line)?;
        let (segment, _) = self.superblock.geometry.locate(slot);
        let segments = &self.log.segments;
        // One that is retired gets no new readers, or it could never go.
        let is_there = !segments.is_retired(segment) && segments.get(segment).serial() == serial;
        is_there.then(|| (slot, self.table.checksum(slot)))
    }

    /// Lines have changed, or are no longer in the slots they were destaged from.
    pub(super) fn forget_clean(&mut self, line: Line, lines: u64) {
        if let Some(clean) = &mut self.clean {
            clean.remove_all(line, lines);
        }
    }

    /// A line has changed in the log: its copies are no longer true. The slot from which it was
    /// destaged is not looked for while it is in the table, and is forgotten when it leaves it.
    pub(super) fn copies_of_line_changed(&mut self, line: Line) {
        let policy = &mut self.promotion.policy;
        self.copies.change(line, |slot| policy.remove(slot));
    }

    /// The same of a run of lines.
    pub(super) fn copies_changed(&mut self, line: Line, lines: u64) {
        self.forget_clean(line, lines);
        let last = self.data_disk.blocks.div_ceil(FRAGMENTS_PER_LINE);
        let lines = lines.min(last.saturating_sub(line.0));
        // A start replays the log before the policy takes over what is left.
        let is_adopted = self.recovery.is_none();
        let policy = &mut self.promotion.policy;
        self.copies.change_all(line, lines, |slot| {
            if is_adopted {
                policy.remove(slot);
            }
        });
    }
}

fn slots_of(page: CopyPageIndex) -> std::ops::Range<u32> {
    page.0 * COPIES_PER_PAGE..(page.0 + 1) * COPIES_PER_PAGE
}
