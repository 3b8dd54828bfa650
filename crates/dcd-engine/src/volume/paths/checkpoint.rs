//! Checkpoints: the tables go to their pages, so that the ring has room again.
//!
//! ```text
//! 1. The tail is chosen: the first record with jobs that have not written the members yet.
//! 2. Members are flushed: what the records before the tail speak of is durable there. If one
//!    cannot be, and the others cannot do without it, the checkpoint ends here and is tried again
//!    later: a start would write those lines again.
//! 3. Changed pages are written, each to the place that the copy which counts is not in; then the
//!    pages of the map that name them, up to its top.
//!      Crash here: the root names the older ones, which are all still there.
//! 4. The cache-disk is flushed. If it fails anything meanwhile, also something of the log, step 3
//!    is done again: no root speaks of those places.
//! 5. The root is written, durable. Records before the tail count no more. If it fails, the same
//!    root is written again: should it be there, pages that are written again could be torn.
//! ```
//! A page may hold changes that records behind the tail speak of: a start makes them again, to the
//! same end. It never holds a change that the journal has not.

use std::collections::BTreeSet;

use super::super::format::area::{ENTRIES_PER_PAGE, TablePage, VolumeArea};
use super::super::format::page::{self, PageIndex};
use super::super::format::page_map::{self, PageCopy};
use super::super::format::root::Root;
use super::super::page_map::PageMap;
use super::super::{Purpose, Volume};
use super::flush::For;
use super::journal::RETRIES_MAX;
use crate::buffer::Buffer;
use crate::io::{Device, IoError, IoOperation};
use crate::units::{Duration, Time};

/// Pages written at a time.
const PAGES_IN_FLIGHT_MAX: u32 = 32;

/// After how long a failed flush of a member is tried again, and how often that is doubled.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_DOUBLINGS_MAX: u32 = 5;

/// What an I/O is for.
#[derive(Clone, Copy, Debug)]
pub(in crate::volume) enum Step {
    Page,
    Flush,
    Root,
}

/// Where the checkpoint under way stands.
enum State {
    Idle,
    FlushingMembers { left: u32, has_failed: bool },
    WritingPages { left: BTreeSet<PageIndex>, in_flight: u32 },
    Flushing,
    WritingRoot,
}

/// What is known of the pages on the disk, and the checkpoint under way.
pub(in crate::volume) struct Checkpointing {
    /// The newest checkpoint.
    pub(super) number: u64,
    /// Of each page the copy that counts; of `written` the one that will.
    pub(in crate::volume) map: PageMap,
    dirty: BTreeSet<PageIndex>,
    /// Those that the twin lacks; of checksums, only what tells of lost lines.
    pub(super) twin_dirty: BTreeSet<PageIndex>,
    has_twin: bool,
    /// Pages of the checkpoint under way.
    written: BTreeSet<PageIndex>,
    tail: (u64, u64),
    state: State,
    /// The cache-disk has failed since the pages were begun: no flush proves that they are there.
    is_distrusted: bool,
    /// Some of that was of the checkpoint itself.
    has_failed_itself: bool,
    /// In a row.
    retries: u32,
    /// The cache-disk takes no checkpoint any more; sticky.
    failed: bool,
    /// Flushes of members that failed one after the other, and when the next is tried.
    flushes_failed: u32,
    not_before: Time,
    /// A start could not write to a member what the journal has for it: only another start can, so
    /// no record is forgotten.
    is_held: bool,
}

impl Checkpointing {
    pub(in crate::volume) fn new(pages: u64, has_twin: bool) -> Checkpointing {
        Checkpointing {
            number: 0,
            map: PageMap::new(pages),
            dirty: BTreeSet::new(),
            twin_dirty: BTreeSet::new(),
            has_twin,
            written: BTreeSet::new(),
            tail: (0, 0),
            state: State::Idle,
            is_distrusted: false,
            has_failed_itself: false,
            retries: 0,
            failed: false,
            flushes_failed: 0,
            not_before: Time::ZERO,
            is_held: false,
        }
    }

    /// The newest checkpoint.
    pub(in crate::volume) fn number(&self) -> u64 {
        self.number
    }

    /// Whether a page has changed since the checkpoint that counts.
    pub(in crate::volume) fn needs(&self, page: PageIndex) -> bool {
        let is_left =
            matches!(&self.state, State::WritingPages { left, .. } if left.contains(&page));
        is_left || self.dirty.contains(&page) || self.written.contains(&page)
    }

    /// Pages are elsewhere, and have other numbers; but for those of which there are none any more.
    /// The root there has the number of another checkpoint.
    pub(super) fn moved(
        &mut self,
        map: PageMap,
        number: impl Fn(PageIndex) -> PageIndex,
        is_gone: impl Fn(PageIndex) -> bool,
    ) {
        assert!(matches!(self.state, State::Idle), "pages would be written to both places");
        self.map = map;
        self.number += 1;
        let dirty = std::mem::take(&mut self.dirty);
        self.dirty = dirty.into_iter().filter(|page| !is_gone(*page)).map(number).collect();
        self.written.clear();
        self.twin_dirty.clear();
    }

    /// A page has changed.
    pub(in crate::volume) fn dirty(&mut self, page: PageIndex) {
        self.dirty.insert(page);
        if self.has_twin {
            self.twin_dirty.insert(page);
        }
    }

    /// A page of checksums has. `tells_of_lost`: it says, or said before, that lines are lost.
    pub(super) fn dirty_sums(&mut self, page: PageIndex, tells_of_lost: bool) {
        match tells_of_lost {
            true => self.dirty(page),
            false => drop(self.dirty.insert(page)),
        }
    }
}

impl Volume {
    pub(in crate::volume) fn advance_checkpoint(&mut self) -> bool {
        let wanted = self.is_checkpoint_idle()
            && (self.journal.wants_checkpoint() || self.is_ring_to_be_empty())
            && self.journal.error.is_none()
            && !self.checkpoint.failed
            && !self.checkpoint.is_held
            && self.now >= self.checkpoint.not_before;
        // A tail that stays where it is would bring nothing: the jobs of the oldest record are
        // under way.
        if !wanted || self.journal.tail().0 == self.journal.oldest() {
            return false;
        }
        self.checkpoint.tail = self.journal.tail();
        let left = self.flush_members(For::Checkpoint);
        self.checkpoint.state = State::FlushingMembers { left, has_failed: false };
        if left == 0 {
            self.write_pages();
        }
        true
    }

    /// Everything that has changed goes to the pages, and all records still count.
    pub(super) fn checkpoint_tables(&mut self) {
        assert!(self.is_checkpoint_idle(), "nothing else is done yet");
        self.checkpoint.tail = self.journal.tail_of_all();
        self.write_pages();
    }

    pub(super) fn is_checkpoint_idle(&self) -> bool {
        matches!(self.checkpoint.state, State::Idle)
    }

    pub(super) fn has_checkpoint_failed(&self) -> bool {
        self.checkpoint.failed
    }

    /// No checkpoint any more. When the ring is full, nothing more can be changed.
    pub(super) fn hold_records(&mut self) {
        self.checkpoint.is_held = true;
    }

    pub(super) fn are_records_held(&self) -> bool {
        self.checkpoint.is_held
    }

    /// When a checkpoint is tried again whose flush has failed.
    pub(in crate::volume) fn checkpoint_wake_up(&self) -> Option<Time> {
        let is_waiting = self.journal.wants_checkpoint() && self.checkpoint.not_before > self.now;
        is_waiting.then_some(self.checkpoint.not_before)
    }

    /// `is_lost`: what was written to the member may not be there, and the others cannot do without
    /// it.
    pub(super) fn checkpoint_member_flushed(&mut self, is_lost: bool) {
        let State::FlushingMembers { left, has_failed } = &mut self.checkpoint.state else {
            unreachable!("members are flushed first")
        };
        *left -= 1;
        *has_failed |= is_lost;
        match (*left, *has_failed) {
            (0, false) => {
                self.checkpoint.flushes_failed = 0;
                self.write_pages();
            }
            (0, true) => {
                let doublings = self.checkpoint.flushes_failed.min(RETRY_DOUBLINGS_MAX);
                self.checkpoint.flushes_failed += 1;
                self.checkpoint.not_before = self.now.after(Duration(RETRY.0 << doublings));
                self.checkpoint.state = State::Idle;
                // The log keeps what it does not get rid of; who waits for room here would wait for
                // the member.
                if self.journal.is_full() {
                    self.refuse_waiting(IoError::Failed);
                }
            }
            _ => {}
        }
    }

    fn write_pages(&mut self) {
        self.checkpoint.written.clear();
        self.begin_pages();
    }

    fn begin_pages(&mut self) {
        let left = std::mem::take(&mut self.checkpoint.dirty);
        self.checkpoint.is_distrusted = false;
        self.checkpoint.has_failed_itself = false;
        self.checkpoint.state = State::WritingPages { left, in_flight: 0 };
        self.write_more_pages();
    }

    fn write_more_pages(&mut self) {
        loop {
            let State::WritingPages { left, in_flight } = &mut self.checkpoint.state else {
                return;
            };
            if *in_flight == PAGES_IN_FLIGHT_MAX {
                return;
            }
            if self.checkpoint.is_distrusted {
                self.checkpoint.dirty.append(left);
            }
            // What names a page has a lower number: it comes when all that it names is known.
            let Some(page) = left.pop_last() else {
                if *in_flight == 0 {
                    if self.checkpoint.is_distrusted {
                        return self.pages_again();
                    }
                    self.checkpoint.state = State::Flushing;
                    let purpose = Purpose::Checkpoint(Step::Flush);
                    self.start_io(Device::CacheDisk, IoOperation::Flush, purpose);
                }
                return;
            };
            *in_flight += 1;
            left.extend(self.area.parent(page).map(|(parent, _)| parent));
            self.write_page(page);
        }
    }

    fn write_page(&mut self, page: PageIndex) {
        let checkpoint = self.checkpoint.number + 1;
        let content = self.page_content(page);
        let bytes = page::encode(self.header.uuid, page, checkpoint, &content);
        let before = self.checkpoint.map.get(page).is_some_and(|copy| copy.second);
        // Once more to the same place: the other one has the copy that counts.
        let is_first = self.checkpoint.written.insert(page);
        let copy = PageCopy {
            checkpoint,
            second: before ^ is_first,
            has_lost: self.has_lost_sums(page),
            checksum: page::checksum_of(bytes.bytes()),
        };
        self.checkpoint.map.set(page, Some(copy));
        let offset = self.area.page_offset(page, copy.second);
        let purpose = Purpose::Checkpoint(Step::Page);
        self.start_write(Device::CacheDisk, offset, bytes, false, purpose);
    }

    pub(super) fn has_lost_sums(&self, page: PageIndex) -> bool {
        match self.area.content(page) {
            TablePage::Checksums { set, first } => self.checksums.has_lost(set, first),
            _ => false,
        }
    }

    /// A page as the journal has it: without changes that are not durable.
    pub(in crate::volume) fn page_content(&self, page: PageIndex) -> Vec<u8> {
        match self.area.content(page) {
            TablePage::Map => {
                let named = self.area.children(page).map(PageIndex);
                page_map::encode(named.map(|page| self.checkpoint.map.get(page)))
            }
            TablePage::Extents(first) => (first..first + ENTRIES_PER_PAGE)
                .take_while(|extent| *extent < u64::from(self.extents.extents()))
                .flat_map(|extent| {
                    let extent = super::super::extents::ExtentIndex(extent as u32);
                    let committed = self.uncommitted_extents.get(&extent).copied();
                    committed.unwrap_or_else(|| self.extents.packed(extent)).to_le_bytes()
                })
                .collect(),
            TablePage::Checksums { set, first } => self.checksums.page(set, first),
            TablePage::LostLines { set, first } => {
                self.lost.page(set, first..first + ENTRIES_PER_PAGE)
            }
            TablePage::Marks(first) => self.marks_page(first),
            TablePage::Pointers(first) => (first..first + ENTRIES_PER_PAGE)
                .take_while(|slot| *slot < u64::from(self.pointers.slots()))
                .flat_map(|slot| {
                    let slot = slot as u32;
                    let committed = self.uncommitted_pointers.get(&slot).copied();
                    committed.unwrap_or_else(|| self.pointers.packed(slot)).to_le_bytes()
                })
                .collect(),
        }
    }

    pub(in crate::volume) fn checkpoint_io_done(
        &mut self,
        step: Step,
        result: Result<(), IoError>,
        buffer: Option<Buffer>,
    ) {
        // What does not answer may still write the old bytes later, and what takes nothing at all
        // will hardly take it now.
        if matches!(result, Err(error) if error != IoError::Failed) {
            self.checkpoint.retries = RETRIES_MAX;
        }
        self.checkpoint.has_failed_itself |= result.is_err();
        match step {
            Step::Page => {
                let State::WritingPages { in_flight, .. } = &mut self.checkpoint.state else {
                    unreachable!("a page was written")
                };
                *in_flight -= 1;
                self.write_more_pages();
            }
            Step::Flush if self.checkpoint.is_distrusted => self.pages_again(),
            Step::Flush => self.write_root(),
            Step::Root if result.is_err() => self.root_again(buffer),
            Step::Root => {
                self.checkpoint.number += 1;
                self.scrubs.root_written(self.now);
                self.checkpoint.retries = 0;
                self.checkpoint.written.clear();
                self.journal.forget_before(self.checkpoint.tail.0);
                self.checkpoint.state = State::Idle;
                self.counters.checkpoints += 1;
            }
        }
    }

    /// A write or flush of the cache-disk has failed.
    pub(in crate::volume) fn distrust_pages(&mut self) {
        if matches!(self.checkpoint.state, State::WritingPages { .. } | State::Flushing) {
            self.checkpoint.is_distrusted = true;
        }
    }

    fn may_try_again(&mut self) -> bool {
        self.checkpoint.retries += 1;
        let may = self.checkpoint.retries <= RETRIES_MAX;
        if !may {
            self.checkpoint_failed();
        }
        may
    }

    /// Step 3 anew, with all of it. What failed of the log says nothing of whether a checkpoint is
    /// taken: one that takes long meets many of those, and the log knows itself when it has had
    /// enough.
    fn pages_again(&mut self) {
        if !self.checkpoint.has_failed_itself {
            self.checkpoint.retries = 0;
        }
        if !self.checkpoint.has_failed_itself || self.may_try_again() {
            let Checkpointing { dirty, written, .. } = &mut self.checkpoint;
            dirty.extend(written.iter().copied());
            self.begin_pages();
        }
    }

    /// Step 5 anew.
    fn root_again(&mut self, root: Option<Buffer>) {
        let Some(root) = root else { return self.checkpoint_failed() };
        if self.may_try_again() {
            let offset = self.area.root_offset(self.checkpoint.number + 1);
            let purpose = Purpose::Checkpoint(Step::Root);
            self.start_write(Device::CacheDisk, offset, root, true, purpose);
        }
    }

    /// The root that counts is as it was. The journal will be full, and then nothing more can be
    /// changed: told at once.
    fn checkpoint_failed(&mut self) {
        self.checkpoint.state = State::Idle;
        self.checkpoint.failed = true;
        self.journal.error = self.journal.error.or(Some(IoError::Failed));
    }

    /// The root of the next checkpoint.
    fn root(&self, tail: (u64, u64), area: &VolumeArea) -> Root {
        Root {
            uuid: self.header.uuid,
            checkpoint: self.checkpoint.number + 1,
            tail_sequence: tail.0,
            tail_line: tail.1,
            epoch: self.epoch,
            map: self.checkpoint.map.get(PageIndex(0)),
            lost_since_record: self.lost.since_record,
            pointer_pages_added: area.pointer_pages_added(),
            twin_since: self.twin_since,
            members: self.members.states(),
            label_epochs: self.members.label_epochs(),
            disks: self.members.disks(),
            missed: self.missed.to_root(),
            scrub: self.scrub_record(),
        }
    }

    /// The same when no page has changed since the last one, for an area with more pages, and a
    /// ring in which no record counts.
    pub(super) fn root_of_empty_ring(&self, area: &VolumeArea) -> Root {
        assert!(self.journal.is_empty() && self.is_checkpoint_idle());
        self.root((self.journal.next_sequence(), 0), area)
    }

    /// That root is durable.
    pub(super) fn pages_added(&mut self, pages: u64) {
        self.checkpoint.number += 1;
        self.checkpoint.map.grow(pages);
    }

    /// Whether a checkpoint waits until a member may be flushed again.
    pub(super) fn is_checkpoint_put_off(&self) -> bool {
        self.checkpoint.not_before > self.now
    }

    fn write_root(&mut self) {
        let root = self.root(self.checkpoint.tail, &self.area);
        self.scrubs.goes_to_root(root.scrub);
        self.checkpoint.state = State::WritingRoot;
        let offset = self.area.root_offset(root.checkpoint);
        let purpose = Purpose::Checkpoint(Step::Root);
        self.start_write(Device::CacheDisk, offset, root.encode(), true, purpose);
    }
}
