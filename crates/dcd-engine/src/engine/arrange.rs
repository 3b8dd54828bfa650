//! Copying the lines of sequences to the read area, in order, when the disks have nothing else to
//! do.
//!
//! ```text
//! 1. Take a page of a sequence with stale slots. Read their lines from the data-disk, sorted by
//!    address; lines that the log has something of wait until it is destaged.
//! 2. What a slot holds already, as its checksum tells, is true again without a write. The rest is
//!    gathered.
//!      A change of a line from here on makes its copy stale, as always.
//! 3. Write what was gathered to the slots, in large writes. Then the copies are valid.
//! 4. When a sequence has no more to be copied, a checkpoint is made.
//!      Crash before: the pages of the checkpoint before count. They speak of what those slots held
//!      then, and its checksums do not match what they hold now: nothing false can be read.
//! ```
//! What was read from the data-disk is not used if the data-disk may have changed meanwhile: if the
//! log, a bypass or zeroes have something of the line, or anything was written to it below the log
//! ([`Engine::data_disk_changes`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Engine, Purpose};
use crate::buffer::Buffer;
use crate::copies::{Copies, SlotState};
use crate::engine::Disk;
use crate::format::checksum::crc32c;
use crate::io::{IoData, IoError, IoOperation};
use crate::units::{
    CopyPageIndex, CopySlot, Duration, FragmentMask, LINE_SIZE, Line, SequenceId, Time,
};

/// Quiet time after which copying goes on.
const QUIET: Duration = Duration::from_millis(20);
/// How long a sequence that could not be completed is left alone.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How long lines that the data-disk could not read are left alone.
const UNREADABLE_FOR: Duration = Duration::from_secs(600);
/// Lines no further apart than this are read together, and so many at most.
const GAP_LINES_MAX: u64 = 16;
const READ_LINES_MAX: u64 = 256;

/// An I/O of this path.
pub(super) enum Step {
    Read { first: Line },
    Write { first: CopySlot, slots: u32 },
}

/// The page being copied.
#[derive(Default)]
pub(super) struct Arranging {
    page: Option<PageCopy>,
    /// Where to look next.
    next: (SequenceId, u32),
    /// Nothing could be done then, with the data-disk as it was.
    waits: Option<(Time, u64)>,
    /// Lines that the data-disk could not read, and until when they are not tried again.
    unreadable: BTreeSet<Line>,
    unreadable_until: Time,
    /// Something was copied since the last checkpoint was asked for.
    is_unlisted: bool,
}

struct PageCopy {
    /// Still to be read: adjacent lines, each with their slots.
    reads: VecDeque<Vec<(Line, CopySlot)>>,
    reading: Option<Read>,
    gathered: BTreeMap<CopySlot, Buffer>,
    writes_left: u32,
}

struct Read {
    wanted: Vec<(Line, CopySlot)>,
    stamp: u64,
}

impl Arranging {
    /// Whether nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.page.is_none()
    }

    /// Something has changed that makes another try worth it.
    pub(super) fn try_again(&mut self) {
        self.waits = None;
    }
}

impl Engine {
    pub(super) fn advance_arrange(&mut self) -> bool {
        if !self.copies.is_on() {
            return false;
        }
        if self.has_no_use_for_copies() {
            return self.give_up_page();
        }
        // Or what is gathered would be called being written for as long as destaging is urgent.
        let is_ending = self.close.is_some() || self.resize.wants_destage();
        match self.arranging.page.take() {
            None if is_ending => false,
            None if !self.has_stale() => self.list_copies(),
            None if !self.may_arrange_now() => false,
            None => self.start_page(),
            Some(copy) if copy.reading.is_some() || copy.writes_left > 0 => {
                self.arranging.page = Some(copy);
                false
            }
            Some(copy) if copy.reads.is_empty() || is_ending => {
                self.write_gathered(copy);
                true
            }
            Some(copy) => {
                let may_read = self.may_arrange_now();
                self.arranging.page = Some(copy);
                if may_read {
                    self.read_next_lines();
                }
                may_read
            }
        }
    }

    /// There is no cache-disk to write to.
    fn give_up_page(&mut self) -> bool {
        let is_idle = |copy: &PageCopy| copy.reading.is_none() && copy.writes_left == 0;
        if !self.arranging.page.as_ref().is_some_and(is_idle) {
            return false;
        }
        let copy = self.arranging.page.take().expect("looked at");
        for slot in copy.gathered.into_keys() {
            self.copies.filled(slot, false);
        }
        true
    }

    fn quiet_at(&self) -> Time {
        self.pace.last_request().after(QUIET)
    }

    /// Neither requests nor destaging want the disks.
    fn may_arrange_now(&self) -> bool {
        let waits = self
            .arranging
            .waits
            .is_some_and(|(until, stamp)| stamp == self.data_disk_changes || self.now < until);
        !waits
            && self.now >= self.quiet_at()
            && self.reads.is_empty()
            && !self.destage_is_urgent()
            && self.has_stale()
    }

    pub(super) fn arrange_wake_up(&self) -> Option<Time> {
        let copy = self.arranging.page.as_ref();
        let is_busy = copy.is_some_and(|copy| copy.reading.is_some() || copy.writes_left > 0);
        let has_work = copy.is_some_and(|copy| !copy.reads.is_empty()) || self.has_stale();
        if is_busy || !has_work || self.has_no_use_for_copies() || self.close.is_some() {
            return None;
        }
        let retry = match self.arranging.waits {
            Some((_, stamp)) if stamp == self.data_disk_changes => return None,
            Some((until, _)) => until,
            None => Time::ZERO,
        };
        // Destaging that is urgent, and reads, wake it when they end.
        Some(self.quiet_at().max(retry)).filter(|at| *at > self.now)
    }

    /// Step 1: the next page with something to do.
    fn start_page(&mut self) -> bool {
        if self.now >= self.arranging.unreadable_until {
            self.arranging.unreadable.clear();
        }
        let (next, from) = self.arranging.next;
        let mut pages: Vec<(SequenceId, u32, CopyPageIndex)> = Vec::new();
        for sequence in self.copies.sequences().filter(|sequence| sequence.stale() > 0) {
            let id = sequence.label().id;
            let pages_of = sequence.pages().iter().enumerate();
            pages.extend(pages_of.map(|(ordinal, page)| (id, ordinal as u32, *page)));
        }
        let first = pages.partition_point(|(id, ordinal, _)| (*id, *ordinal) < (next, from));
        pages.rotate_left(first);
        for (id, ordinal, page) in pages {
            let reads = self.lines_to_copy(page);
            if !reads.is_empty() {
                self.arranging.next = (id, ordinal);
                self.arranging.page = Some(PageCopy {
                    reads,
                    reading: None,
                    gathered: BTreeMap::new(),
                    writes_left: 0,
                });
                return true;
            }
        }
        self.arranging.waits = Some((self.now.after(RETRY_AFTER), self.data_disk_changes));
        self.list_copies();
        true
    }

    /// Step 4.
    fn list_copies(&mut self) -> bool {
        let is_due = std::mem::take(&mut self.arranging.is_unlisted);
        if is_due {
            self.checkpoint.force();
        }
        is_due
    }

    fn has_stale(&self) -> bool {
        self.copies.sequences().any(|sequence| sequence.stale() > 0)
    }

    /// Stale lines of a page that the data-disk has, in reads of neighbours.
    fn lines_to_copy(&self, page: CopyPageIndex) -> VecDeque<Vec<(Line, CopySlot)>> {
        let slots = Copies::slots_of(page);
        let mut lines: Vec<(Line, CopySlot)> = slots
            .filter(|slot| {
                let slot = self.copies.slot(*slot);
                slot.state == SlotState::Stale && !slot.is_written
            })
            .map(|slot| (self.copies.slot(slot).line(), slot))
            .filter(|(line, _)| self.is_only_on_data_disk(*line))
            .filter(|(line, _)| !self.arranging.unreadable.contains(line))
            .collect();
        lines.sort_unstable();
        let mut reads: VecDeque<Vec<(Line, CopySlot)>> = VecDeque::new();
        for (line, slot) in lines {
            match reads.back_mut() {
                Some(read)
                    if line.0 - read[read.len() - 1].0.0 <= GAP_LINES_MAX
                        && line.0 - read[0].0.0 < READ_LINES_MAX =>
                {
                    read.push((line, slot));
                }
                _ => reads.push_back(vec![(line, slot)]),
            }
        }
        reads
    }

    /// Whether the data-disk holds the newest of a whole line, and nothing is under way to change
    /// it.
    pub(super) fn is_only_on_data_disk(&self, line: Line) -> bool {
        self.line_mask(line) == FragmentMask::FULL
            && !self.health.has_late_writes()
            && self.table.is_known(line)
            && !self.table.contains(line)
            && !self.is_zero(line)
            && !self.poisoned.contains_key(&line)
            && !self.is_bypassed(line, 1)
            && !self.is_passed(line)
    }

    fn read_next_lines(&mut self) {
        let stamp = self.data_disk_changes;
        let copy = self.arranging.page.as_mut().expect("a page being copied");
        let wanted = copy.reads.pop_front().expect("looked at");
        let (first, last) = (wanted[0].0, wanted[wanted.len() - 1].0);
        copy.reading = Some(Read { wanted, stamp });
        let length = (last.0 + 1 - first.0) * LINE_SIZE;
        let purpose = Purpose::Arrange(Step::Read { first });
        self.start_read(Disk::DataDisk, first.lba().byte(), length, purpose);
    }

    pub(super) fn arrange_io_done(
        &mut self,
        step: Step,
        result: Result<(), IoError>,
        bytes: Option<Buffer>,
    ) {
        match step {
            Step::Read { first } => self.lines_read(first, bytes.filter(|_| result.is_ok())),
            Step::Write { first, slots } => {
                for slot in (first.0..first.0 + slots).map(CopySlot) {
                    self.copies.filled(slot, result.is_ok());
                }
                self.arranging.is_unlisted = true;
                let copy = self.arranging.page.as_mut().expect("its writes are under way");
                copy.writes_left -= 1;
                if copy.writes_left == 0 {
                    self.arranging.page = None;
                    self.arranging.next.1 += 1;
                }
                if let Err(error) = result {
                    self.cache_disk_error(error);
                }
            }
        }
    }

    /// Step 2.
    fn lines_read(&mut self, first: Line, bytes: Option<Buffer>) {
        let copy = self.arranging.page.as_mut().expect("a page being copied");
        let Read { wanted, stamp } = copy.reading.take().expect("it has ended");
        let Some(bytes) = bytes else {
            // A line that cannot be read stays stale, and is left alone. It may be any one of them.
            match wanted.as_slice() {
                [(line, _)] => {
                    self.arranging.unreadable.insert(*line);
                    self.arranging.unreadable_until = self.now.after(UNREADABLE_FOR);
                }
                _ => wanted.into_iter().rev().for_each(|one| copy.reads.push_front(vec![one])),
            }
            return;
        };
        let is_as_it_was = stamp == self.data_disk_changes;
        for (line, slot) in wanted {
            let held = *self.copies.slot(slot);
            // The sequence may have been removed, or the line changed, meanwhile.
            let is_still_wanted = is_as_it_was
                && held.line() == line
                && held.state == SlotState::Stale
                && !held.is_written
                && self.copies.place_of(slot).is_some()
                && self.is_only_on_data_disk(line);
            if !is_still_wanted {
                continue;
            }
            let at = ((line.0 - first.0) * LINE_SIZE) as usize;
            let bytes = &bytes.bytes()[at..at + LINE_SIZE as usize];
            let checksum = crc32c(bytes);
            if held.checksum == checksum && held.checksum != 0 {
                self.copies.confirm(slot);
                self.arranging.is_unlisted = true;
                continue;
            }
            self.copies.start_filling(slot, checksum);
            let copy = self.arranging.page.as_mut().expect("a page being copied");
            copy.gathered.insert(slot, Buffer::copy_of(bytes));
        }
    }

    /// Step 3.
    fn write_gathered(&mut self, mut copy: PageCopy) {
        let gathered = std::mem::take(&mut copy.gathered);
        let mut runs: Vec<(CopySlot, Vec<Buffer>)> = Vec::new();
        for (slot, bytes) in gathered {
            match runs.last_mut() {
                Some((first, run)) if first.0 + run.len() as u32 == slot.0 => run.push(bytes),
                _ => runs.push((slot, vec![bytes])),
            }
        }
        copy.writes_left = runs.len() as u32;
        if runs.is_empty() {
            self.arranging.next.1 += 1;
            return;
        }
        self.arranging.page = Some(copy);
        for (first, run) in runs {
            let mut data = Buffer::zeroed(run.len() * LINE_SIZE as usize);
            for (bytes, line) in data.bytes_mut().chunks_mut(LINE_SIZE as usize).zip(&run) {
                bytes.copy_from_slice(line.bytes());
            }
            self.counters.copy_lines_written += run.len() as u64;
            let offset = self.superblock.geometry.copy_slot_offset(first);
            let slots = run.len() as u32;
            let purpose = Purpose::Arrange(Step::Write { first, slots });
            let operation = IoOperation::Write { offset, data: IoData::Owned(data), fua: false };
            self.start_io(Disk::CacheDisk, operation, purpose);
        }
    }

    /// Whether no I/O for copies is under way, but those of reads.
    pub(super) fn copying_is_idle(&self) -> bool {
        self.arranging.is_idle() && self.prefetch.is_idle() && self.promotion.is_idle()
    }
}
