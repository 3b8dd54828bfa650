//! The journal: one record after the other, each durable before the next is written.
//!
//! A record holds as many jobs and changes of the tables as have come while the one before was on
//! its way. It stays in the ring until its jobs have written the members, the members were flushed,
//! and the pages it changed are durable (checkpoint.rs). Because there is never more than one on
//! its way, a record that cannot be read while a later one can was durable and has been damaged: a
//! start sees that.

use std::collections::{BTreeSet, VecDeque};

use super::super::extents::{ExtentIndex, Place};
use super::super::format::journal::{
    JOURNAL_ITEMS_MAX, JOURNAL_PAYLOAD_LINES_MAX, JournalItem, encode,
};
use super::super::format::page::PageIndex;
use super::super::lost::LineRun;
use super::super::missed::{Missed, MissedRegion};
use super::super::{Purpose, Volume};
use super::job::JobId;
use super::write::OpId;
use crate::buffer::Buffer;
use crate::io::{Device, IoError, RequestId, VolumeAnswer, VolumeError};
use crate::units::LINE_SIZE;

/// So often in a row is something written again that the cache-disk has not taken.
pub(super) const RETRIES_MAX: u32 = 2;

/// Jobs leave one of so many parts of the ring to changes of the tables.
const TABLES_SHARE: u64 = 16;

/// What waits for changes of the tables to be durable.
#[derive(Clone, Copy, Debug)]
pub(in crate::volume) enum Then {
    /// A write with FUA.
    Written(OpId),
    /// The flush that is under way.
    Flushed,
    /// A request.
    Answer(RequestId, Option<VolumeAnswer>),
    /// A flush, which goes on to the log.
    Committed(RequestId),
    /// The extent that is being moved.
    Moved,
    /// The epoch of this opening.
    Opened,
    /// That of the end.
    Labelled,
    /// States of members.
    States,
    /// How far a rebuild is.
    Progress,
    /// The disk that a member is on.
    Replaced,
}

struct Change {
    items: VecDeque<JournalItem>,
    then: Then,
}

/// A record in the ring.
struct Record {
    sequence: u64,
    line: u64,
    /// Lines that it takes, and those before it that it could not use.
    lines: u64,
    jobs: BTreeSet<JobId>,
    /// What it changes, for members that do not get it.
    regions: BTreeSet<MissedRegion>,
}

/// A record as a start has found it.
pub(in crate::volume) struct RecordInRing {
    pub(in crate::volume) sequence: u64,
    pub(in crate::volume) line: u64,
    pub(in crate::volume) lines: u64,
    pub(in crate::volume) regions: BTreeSet<MissedRegion>,
}

/// The regions that items of a record change.
pub(in crate::volume) fn regions_of(
    items: &[JournalItem],
    missed: &Missed,
) -> BTreeSet<MissedRegion> {
    let region = |item: &JournalItem| match *item {
        JournalItem::Lines { set, stripe, .. } | JournalItem::Lost { set, stripe, .. } => {
            Some(missed.region_of(set, stripe))
        }
        _ => None,
    };
    items.iter().filter_map(region).collect()
}

/// What is on its way.
struct UnderWay {
    jobs: Vec<JobId>,
    items: Vec<JournalItem>,
    done: Vec<Then>,
    /// Byte address.
    offset: u64,
    retries: u32,
}

/// The ring, and what is to be written to it.
pub(in crate::volume) struct Journal {
    ring_lines: u64,
    head_line: u64,
    next_sequence: u64,
    records: VecDeque<Record>,
    used_lines: u64,
    jobs: VecDeque<JobId>,
    changes: VecDeque<Change>,
    under_way: Option<UnderWay>,
    /// A record waits for room.
    is_full: bool,
    /// It cannot be written any more; sticky.
    pub(in crate::volume) error: Option<IoError>,
}

impl Journal {
    pub(in crate::volume) fn new(ring_lines: u64) -> Journal {
        Journal {
            ring_lines,
            head_line: 0,
            next_sequence: 1,
            records: VecDeque::new(),
            used_lines: 0,
            jobs: VecDeque::new(),
            changes: VecDeque::new(),
            under_way: None,
            is_full: false,
            error: None,
        }
    }

    /// As a start has found it: the next record, and what is before it and counts.
    pub(in crate::volume) fn restore(&mut self, found: Vec<RecordInRing>, head: u64, next: u64) {
        self.head_line = head;
        self.next_sequence = next;
        for RecordInRing { sequence, line, lines, regions } in found {
            self.used_lines += lines;
            let jobs = BTreeSet::new();
            self.records.push_back(Record { sequence, line, lines, jobs, regions });
        }
    }

    /// What the records in it change.
    pub(in crate::volume) fn missed_regions(&self) -> impl Iterator<Item = MissedRegion> {
        self.records.iter().flat_map(|record| record.regions.iter().copied())
    }

    pub(in crate::volume) fn is_idle(&self) -> bool {
        self.jobs.is_empty() && self.changes.is_empty() && self.under_way.is_none()
    }

    /// Whether no record counts.
    pub(in crate::volume) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Whether a record is on its way.
    pub(in crate::volume) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Nothing in it counts, and it begins elsewhere.
    pub(in crate::volume) fn begin_again(&mut self, ring_lines: u64) {
        assert!(self.records.is_empty() && self.under_way.is_none() && self.used_lines == 0);
        (self.ring_lines, self.head_line) = (ring_lines, 0);
    }

    /// Half of the ring counts, or a record waits for room.
    pub(in crate::volume) fn wants_checkpoint(&self) -> bool {
        2 * self.used_lines > self.ring_lines || self.is_full
    }

    /// Whether a record waits for room.
    pub(in crate::volume) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Where a start has to begin if everything durable in the members and pages is left out: the
    /// number and line of the first record with jobs that have not ended, or that is on its way
    /// (pages do not have its changes yet), or of the next one.
    pub(in crate::volume) fn tail(&self) -> (u64, u64) {
        let newest = self.under_way.as_ref().and(self.records.back()).map(|record| record.sequence);
        let counts = |record: &&Record| !record.jobs.is_empty() || Some(record.sequence) == newest;
        match self.records.iter().find(counts) {
            Some(record) => (record.sequence, record.line),
            None => (self.next_sequence, self.head_line),
        }
    }

    /// The same if nothing is left out.
    pub(in crate::volume) fn tail_of_all(&self) -> (u64, u64) {
        let next = (self.next_sequence, self.head_line);
        self.records.front().map_or(next, |record| (record.sequence, record.line))
    }

    /// The number of the next record.
    pub(in crate::volume) fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// The oldest record that counts, or the next one.
    pub(in crate::volume) fn oldest(&self) -> u64 {
        self.records.front().map_or(self.next_sequence, |record| record.sequence)
    }

    /// Where a record of so many lines goes, and how many it skips before.
    fn place(&self, lines: u64) -> (u64, u64) {
        let to_end = self.ring_lines - self.head_line;
        match lines > to_end {
            false => (self.head_line, 0),
            // Nothing before it counts, so what it skips is free already.
            true if self.records.is_empty() => (0, 0),
            true => (0, to_end),
        }
    }

    /// Whether it fits, with so many left. The last line stays free, so that a full ring and an
    /// empty one differ.
    fn has_room(&self, lines: u64, left: u64) -> bool {
        self.used_lines + self.place(lines).1 + lines + left < self.ring_lines
    }

    /// Records before this one count no more.
    pub(in crate::volume) fn forget_before(&mut self, sequence: u64) {
        while self.records.front().is_some_and(|record| record.sequence < sequence) {
            self.used_lines -= self.records.pop_front().expect("looked at").lines;
        }
    }
}

impl Volume {
    /// The new lines of a job are to be durable.
    pub(super) fn journal_job(&mut self, job: JobId) {
        self.journal.jobs.push_back(job);
    }

    /// Changes of the tables are to be durable.
    pub(in crate::volume) fn journal_items(&mut self, items: Vec<JournalItem>, then: Then) {
        for item in &items {
            if let JournalItem::Extent { extent, packed } = *item {
                self.queued_extents.insert(ExtentIndex(extent as u32), packed);
            }
        }
        self.journal.changes.push_back(Change { items: items.into(), then });
    }

    /// An extent as it is, with a place whose lines are durable: a flush under way must not put an
    /// older one behind it.
    pub(super) fn commit_place(&mut self, extent: ExtentIndex, then: Then) {
        self.flushes.overtaken.insert(extent);
        // The lines first: they would count as lost in their new place, if a crash came between two
        // records.
        let run = self.extents.get(extent).place.map(|place| self.lines_of_place(place));
        let mut items = run.map_or(Vec::new(), |run| self.items_of_found(run));
        let packed = self.packed_for_journal(extent, self.extents.get(extent).place);
        items.push(JournalItem::Extent { extent: extent.0.into(), packed });
        self.journal_items(items, then);
    }

    /// Entries of the TTABLE.
    pub(in crate::volume) fn commit_extents(
        &mut self,
        entries: Vec<(ExtentIndex, u64)>,
        then: Then,
    ) {
        let item = |(extent, packed): (ExtentIndex, u64)| JournalItem::Extent {
            extent: extent.0.into(),
            packed,
        };
        self.journal_items(entries.into_iter().map(item).collect(), then);
    }

    /// What tells the journal that lines are durable which were lost.
    pub(super) fn items_of_found(&mut self, run: LineRun) -> Vec<JournalItem> {
        let item = |LineRun { set, first, lines }| JournalItem::Found { set, first, lines };
        self.lost.queue(run).into_iter().map(item).collect()
    }

    /// All lines of a place.
    pub(in crate::volume) fn lines_of_place(&self, place: Place) -> LineRun {
        let first = place.first_line(self.header.config.extent_bytes);
        LineRun { set: place.set, first, lines: self.extent_lines() }
    }

    fn found_committed(&mut self, run: LineRun) {
        self.lost.committed(run);
        self.dirty_lost_lines(run);
    }

    /// The pages that tell of these lines have changed.
    pub(super) fn dirty_lost_lines(&mut self, run: LineRun) {
        let page = |line: u64| self.area.page_of_lost_line(run.set.into(), line);
        let (first, last) = (page(run.first.0), page(run.first.0 + run.lines - 1));
        (first.0..=last.0).for_each(|page| self.checkpoint.dirty(PageIndex(page)));
    }

    pub(in crate::volume) fn advance_journal(&mut self) -> bool {
        if !self.state_changes.waiting.is_empty() {
            let states = self.state_changes.take();
            let item = |(member, state)| {
                let is_noted = self.missed.is_noted(member);
                JournalItem::Member { member, state, is_noted }
            };
            let items: VecDeque<JournalItem> = states.iter().copied().map(item).collect();
            // Older states of the same members, which are still waiting, must not come behind.
            // But with a disk its state comes, which is newer than any.
            let others = |change: &&mut Change| !matches!(change.then, Then::Replaced);
            for change in self.journal.changes.iter_mut().filter(others) {
                change.items.retain(|item| match item {
                    JournalItem::Member { member, .. } => states.iter().all(|(m, _)| m != member),
                    _ => true,
                });
            }
            self.journal.changes.push_front(Change { items, then: Then::States });
        }
        if self.is_ring_to_be_empty()
            || self.journal.under_way.is_some()
            || self.journal.jobs.is_empty() && self.journal.changes.is_empty()
        {
            return false;
        }
        if let Some(error) = self.journal.error {
            return self.fail_journal(error);
        }
        self.write_record()
    }

    fn write_record(&mut self) -> bool {
        let journal = &mut self.journal;
        let mut items: Vec<JournalItem> = Vec::new();
        let mut done = Vec::new();
        let mut jobs = Vec::new();
        let mut payload_lines = 0;
        // Changes first: they are short, and flushes wait for them.
        let mut changes_taken: Vec<usize> = Vec::new();
        for change in &journal.changes {
            let room = JOURNAL_ITEMS_MAX - items.len();
            let taken = change.items.len().min(room);
            items.extend(change.items.iter().take(taken));
            changes_taken.push(taken);
            if taken < change.items.len() {
                break;
            }
            done.push(change.then);
        }
        journal.is_full = false;
        // They leave room for the tables: states of members, above all.
        let reserved_lines = journal.ring_lines / TABLES_SHARE;
        for job in &journal.jobs {
            let wanted = self.jobs.get(*job);
            let lines = wanted.payload_lines();
            if items.len() + wanted.items.len() > JOURNAL_ITEMS_MAX
                || payload_lines + lines > JOURNAL_PAYLOAD_LINES_MAX
            {
                break;
            }
            if !journal.has_room(1 + u64::from(payload_lines + lines), reserved_lines) {
                journal.is_full = true;
                break;
            }
            items.extend(&wanted.items);
            payload_lines += lines;
            jobs.push(*job);
        }
        let lines = 1 + u64::from(payload_lines);
        journal.is_full |= !journal.has_room(lines, 0);
        if journal.is_full && self.are_records_held() {
            return self.fail_journal(IoError::Failed);
        }
        let journal = &mut self.journal;
        if !journal.has_room(lines, 0) || jobs.is_empty() && done.is_empty() && items.is_empty() {
            return false;
        }
        let (line, skipped) = journal.place(lines);
        for taken in changes_taken {
            let change = journal.changes.front_mut().expect("looked at");
            change.items.drain(..taken);
            if change.items.is_empty() {
                journal.changes.pop_front();
            }
        }
        journal.jobs.drain(..jobs.len());
        let sequence = journal.next_sequence;
        journal.next_sequence += 1;
        journal.head_line = line + lines;
        journal.used_lines += skipped + lines;
        let regions = regions_of(&items, &self.missed);
        // Before a root can leave the record out.
        regions.iter().for_each(|region| self.missed.mark(*region));
        journal.records.push_back(Record {
            sequence,
            line,
            lines: skipped + lines,
            jobs: jobs.iter().copied().collect(),
            regions,
        });
        let mut payload = Vec::with_capacity(payload_lines as usize * LINE_SIZE as usize);
        for job in &jobs {
            self.jobs.get(*job).append_payload(&mut payload);
        }
        let record = encode(self.header.uuid, sequence, &items, &payload);
        self.counters.journal_records += 1;
        self.counters.journal_bytes += record.len() as u64;
        let offset = self.area.journal_offset() + line * LINE_SIZE;
        self.journal.under_way = Some(UnderWay { jobs, items, done, offset, retries: 0 });
        self.start_write(Device::CacheDisk, offset, record, true, Purpose::Journal);
        true
    }

    pub(in crate::volume) fn journal_written(
        &mut self,
        result: Result<(), IoError>,
        buffer: Option<Buffer>,
    ) {
        let under_way = self.journal.under_way.as_mut().expect("it was written");
        // The same bytes at the same place, and nothing behind them yet: whatever has reached the
        // disk, it does no harm.
        if let (Err(IoError::Failed), Some(record)) = (result, buffer)
            && under_way.retries < RETRIES_MAX
        {
            under_way.retries += 1;
            let offset = under_way.offset;
            return self.start_write(Device::CacheDisk, offset, record, true, Purpose::Journal);
        }
        if result.is_ok() {
            let items = under_way.items.clone();
            let sequence = self.journal.records.back().expect("it is in the ring").sequence;
            return match self.tell_twin(&items, sequence) {
                true => {}
                false => self.record_durable(),
            };
        }
        let UnderWay { jobs, done, .. } = self.journal.under_way.take().expect("looked at");
        if let Err(error) = result {
            // What reached the disk is not known, and so not what a start would find: no more
            // records.
            self.journal.error = Some(error);
            for job in &jobs {
                self.job_journaled(*job, Err(error));
            }
            for then in done {
                self.changes_durable(then, Err(error));
            }
        }
    }

    /// It is, and the twin has its changes.
    pub(super) fn record_durable(&mut self) {
        let under_way = self.journal.under_way.take().expect("it was written");
        let UnderWay { jobs, items, done, .. } = under_way;
        for item in items {
            match item {
                JournalItem::Extent { extent, packed } => {
                    self.extent_committed(ExtentIndex(extent as u32), packed);
                }
                JournalItem::Pointer { slot, packed } => {
                    self.pointer_committed(slot as u32, packed)
                }
                JournalItem::Found { set, first, lines } => {
                    self.found_committed(LineRun { set, first, lines });
                }
                JournalItem::Lines { .. }
                | JournalItem::Member { .. }
                | JournalItem::Disk { .. }
                | JournalItem::Epoch { .. }
                | JournalItem::Lost { .. }
                | JournalItem::Unsure { .. }
                | JournalItem::Marked { .. } => {}
            }
        }
        for job in jobs {
            self.job_journaled(job, Ok(()));
        }
        for then in done {
            self.changes_durable(then, Ok(()));
        }
    }

    /// Nothing more is written: all that waits has failed, and so will what comes.
    fn fail_journal(&mut self, error: IoError) -> bool {
        self.journal.error = Some(error);
        for job in std::mem::take(&mut self.journal.jobs) {
            self.job_journaled(job, Err(error));
        }
        for change in std::mem::take(&mut self.journal.changes) {
            self.changes_durable(change.then, Err(error));
        }
        true
    }

    /// What waits for room has failed; who asked may ask again. States of members and the epoch go
    /// on waiting: what is acknowledged relies on them.
    pub(super) fn refuse_waiting(&mut self, error: IoError) {
        for job in std::mem::take(&mut self.journal.jobs) {
            self.job_journaled(job, Err(error));
        }
        let changes = std::mem::take(&mut self.journal.changes);
        let (kept, refused): (VecDeque<Change>, VecDeque<Change>) =
            changes.into_iter().partition(|change| {
                matches!(
                    change.then,
                    Then::Opened | Then::Labelled | Then::States | Then::Progress | Then::Replaced
                )
            });
        self.journal.changes = kept;
        for change in refused {
            for item in &change.items {
                // It is changed in memory, and the next flush takes it along.
                match *item {
                    JournalItem::Extent { extent, .. } => {
                        let extent = ExtentIndex(extent as u32);
                        self.queued_extents.remove(&extent);
                        self.flushes.overtaken.remove(&extent);
                    }
                    JournalItem::Found { set, first, lines } => {
                        self.lost.refused(LineRun { set, first, lines });
                    }
                    _ => {}
                }
            }
            self.changes_durable(change.then, Err(error));
        }
    }

    fn changes_durable(&mut self, then: Then, result: Result<(), IoError>) {
        match then {
            Then::Written(op) => self.end_write(op, result),
            Then::Flushed => self.flush_committed(result),
            Then::Answer(id, answer) => {
                self.answer(id, result.map(|()| answer).map_err(|_| VolumeError::Metadata));
            }
            Then::Committed(id) => self.committed(id, result.map_err(|_| VolumeError::Metadata)),
            Then::Moved => self.move_committed(result),
            Then::Opened => self.opened(result),
            Then::Labelled => self.labels_recorded(),
            // Without a journal nothing is acknowledged that would need it.
            Then::States => {
                self.state_changes.written();
                for id in self.state_changes.take_asked(result.is_err()) {
                    self.answer(id, result.map(|()| None).map_err(|_| VolumeError::Metadata));
                }
            }
            Then::Progress => {}
            Then::Replaced => self.new_disk_recorded(result),
        }
    }

    /// A job has written the members, or will not.
    pub(super) fn job_left_record(&mut self, job: JobId) {
        let mut records = self.journal.records.iter_mut();
        if let Some(record) = records.find(|record| record.jobs.contains(&job)) {
            record.jobs.remove(&job);
        }
    }
}
