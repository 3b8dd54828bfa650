//! A larger table of pointers for a volume that is there: its pages take the first lines of the
//! journal's ring, which becomes smaller by as much. Where everything else is stays as it is, so is
//! the size of the area.
//!
//! ```text
//! 1. No record is begun any more. Those that were are done with, and a checkpoint leaves none that
//!    counts.
//!      Crash here: an ordinary start.
//! 2. The lines that become pages are overwritten with zeroes, and flushed.
//!      Before step 3 old lines could be taken for pages. Crash here: the ring begins where it did,
//!      and nothing in it counts.
//! 3. A root is written, durable, which says how many pages there are more. The ring begins behind
//!    them, empty.
//!      Crash while it is written: the root before it counts, as after step 2.
//! 4. Records are begun again, and there is room for more pointers.
//! ```

use super::super::format::area::{ENTRIES_PER_PAGE, JOURNAL_BYTES_MIN, VolumeArea};
use super::super::{Purpose, Volume};
use crate::buffer::Buffer;
use crate::io::{Device, IoError, IoOperation, RequestId, VolumeError};
use crate::units::LINE_SIZE;

/// Lines overwritten at once.
const LINES_AT_ONCE: u64 = 256;

/// What an I/O is for.
#[derive(Clone, Copy, Debug)]
pub(in crate::volume) enum Step {
    Zeroes,
    Flush,
    Root,
}

/// The change under way.
pub(in crate::volume) struct MorePointers {
    id: RequestId,
    /// As it will be.
    area: VolumeArea,
    state: State,
    /// The cache-disk has failed since the lines were begun to be overwritten: no flush proves that
    /// they are.
    is_distrusted: bool,
}

enum State {
    /// Step 1.
    Emptying,
    /// Step 2: the next line of the ring.
    Overwriting(u64),
    /// The flush of step 2, or step 3.
    UnderWay,
}

impl Volume {
    /// Makes room for so many pointers, if there is less.
    pub(super) fn set_pointers(&mut self, id: RequestId, pointers: u32) {
        if self.more_pointers.is_some() || self.growing.is_some() {
            return self.answer(id, Err(VolumeError::Busy));
        }
        if pointers <= self.pointers.slots() {
            return self.answer(id, Ok(None));
        }
        if self.journal.error.is_some() || self.has_checkpoint_failed() || self.are_records_held() {
            return self.answer(id, Err(VolumeError::Metadata));
        }
        let spare = (self.area.journal_lines() * LINE_SIZE).saturating_sub(JOURNAL_BYTES_MIN);
        let mut pages_max = spare / (2 * LINE_SIZE);
        if self.has_twin() {
            let there = u64::from(self.area.pointer_pages_added());
            let of_twin = self.area.twin_pointer_pages_max().saturating_sub(there);
            pages_max = pages_max.min(of_twin);
        }
        let base = self.area.pointer_slots_of_pages();
        let missing = u64::from(pointers).saturating_sub(base);
        let pages = missing.div_ceil(ENTRIES_PER_PAGE).max(1);
        let area = (pages <= pages_max).then(|| self.area.with_more_pointers(pages as u32));
        let Some(area) = area.flatten() else {
            let most = base + pages_max * ENTRIES_PER_PAGE;
            let most = u32::try_from(most).unwrap_or(u32::MAX);
            return self.answer(id, Err(VolumeError::TooManyPointers { most }));
        };
        self.more_pointers =
            Some(MorePointers { id, area, state: State::Emptying, is_distrusted: false });
    }

    /// Whether records wait until the ring is empty, or has its new place.
    pub(super) fn is_ring_to_be_empty(&self) -> bool {
        self.more_pointers.is_some() || self.holds_growth_records()
    }

    pub(in crate::volume) fn advance_more_pointers(&mut self) -> bool {
        let Some(change) = &self.more_pointers else { return false };
        if !matches!(change.state, State::Emptying) {
            return false;
        }
        // What cannot be written now would hold up everything else for as long.
        let is_stuck = self.journal.error.is_some()
            || self.has_checkpoint_failed()
            || self.are_records_held()
            || self.is_checkpoint_put_off();
        if is_stuck {
            self.end_more_pointers(Err(VolumeError::Metadata));
            return true;
        }
        if !self.journal.is_empty() || self.journal.is_under_way() || !self.is_checkpoint_idle() {
            return false;
        }
        self.overwrite(0);
        true
    }

    fn overwrite(&mut self, from: u64) {
        let Some(change) = &mut self.more_pointers else { unreachable!("it is under way") };
        let end = self.area.journal_lines() - change.area.journal_lines();
        let lines = LINES_AT_ONCE.min(end - from);
        if lines == 0 {
            change.state = State::UnderWay;
            let purpose = Purpose::MorePointers(Step::Flush);
            return self.start_io(Device::CacheDisk, IoOperation::Flush, purpose);
        }
        change.state = State::Overwriting(from + lines);
        let offset = self.area.journal_offset() + from * LINE_SIZE;
        let zeroes = Buffer::zeroed((lines * LINE_SIZE) as usize);
        let purpose = Purpose::MorePointers(Step::Zeroes);
        self.start_write(Device::CacheDisk, offset, zeroes, false, purpose);
    }

    pub(in crate::volume) fn more_pointers_io_done(
        &mut self,
        step: Step,
        result: Result<(), IoError>,
    ) {
        let is_unsure = matches!(step, Step::Flush)
            && self.more_pointers.as_ref().is_some_and(|change| change.is_distrusted);
        if result.is_err() || is_unsure {
            // Which root counts is not known: no record may be written by either.
            if matches!(step, Step::Root) {
                self.journal.error = self.journal.error.or(Some(IoError::Failed));
            }
            return self.end_more_pointers(Err(VolumeError::Metadata));
        }
        let Some(change) = &self.more_pointers else { unreachable!("it is under way") };
        match (step, &change.state) {
            (Step::Zeroes, State::Overwriting(next)) => self.overwrite(*next),
            (Step::Flush, _) => {
                let root = self.root_of_empty_ring(&change.area.clone());
                let offset = self.area.root_offset(root.checkpoint);
                let purpose = Purpose::MorePointers(Step::Root);
                self.start_write(Device::CacheDisk, offset, root.encode(), true, purpose);
            }
            (Step::Root, _) => {
                self.area = change.area.clone();
                self.pages_added(self.area.pages());
                self.journal.begin_again(self.area.journal_lines());
                self.pointers.grow(self.area.pointer_slots());
                self.end_more_pointers(Ok(()));
            }
            (Step::Zeroes, _) => unreachable!("lines were overwritten"),
        }
    }

    pub(in crate::volume) fn distrust_more_pointers(&mut self) {
        if let Some(change) = &mut self.more_pointers {
            change.is_distrusted |= !matches!(change.state, State::Emptying);
        }
    }

    fn end_more_pointers(&mut self, result: Result<(), VolumeError>) {
        let change = self.more_pointers.take().expect("it is under way");
        self.answer(change.id, result.map(|()| None));
    }
}
