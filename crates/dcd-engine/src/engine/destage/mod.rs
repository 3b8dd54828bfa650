//! Dirty lines to the data-disk, when it is quiet or when it must be.
//!
//! A *batch* begins with a victim segment that the policy names. Its live lines, and around each
//! the neighbouring lines that are in the log too, whatever segment they are in, are read,
//! sorted by address and written in as few writes as possible:
//!
//! ```text
//! 1. Only what is durable in the log may go (C10).
//! 2. Read the slots, verify every checksum (C18).
//! 3. Write the lines.          Crash here: all of them are in the log still; replay repairs a
//!                              sector torn by it (C15).
//! 4. Flush the data-disk.      Crash here: the same.
//! 5. Take the lines out of the table, unless they were overwritten meanwhile (traps 3 and 4).
//!    Their segments become free only with the next durable checkpoint (C13).
//! ```
//! This file decides what comes next; [`batch`] brings lines to the data-disk, [`zeroes`] does the
//! same for zeroed ranges, which go before any line above them, and [`completion`] reads what is
//! missing of a line that does not fill its physical sector.

mod batch;
mod completion;
mod zeroes;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use self::batch::Batch;
use self::completion::Completions;
use self::zeroes::ZeroWork;
use super::Engine;
use super::pace::Go;
use super::policy::Candidate;
use crate::buffer::Buffer;
use crate::config::DestagePolicyKind;
use crate::engine::Purpose;
use crate::io::{Device, IoError, RequestError, RequestId};
use crate::log::SEGMENTS_RESERVED;
use crate::log::segment::SegmentState;
use crate::seeded_bugs::{SeededBug, seeded};
use crate::units::{Duration, Line, RecordNumber, SegmentIndex, SegmentSerial, SlotIndex, Time};

/// First wait after a data-disk error; doubles up to the longest.
const RETRY_MIN: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// An I/O of destaging.
pub(super) enum Step {
    /// A whole victim segment.
    ReadSegment(SegmentIndex),
    /// Adjacent slots of other segments.
    ReadSlots {
        segment: SegmentIndex,
        slots: Vec<(SlotIndex, Line)>,
    },
    /// What is missing of the physical sectors of these lines, and all between them.
    ReadForCompletion(Vec<Line>),
    WriteRun {
        /// Which of the batch.
        lines: Range<usize>,
        /// The first of those that were started with it.
        together: usize,
    },
    WriteZeroes,
    Flush,
}

/// What destaging is doing.
#[derive(Default)]
pub(super) struct Destage {
    work: Work,
    /// Segments in which there is nothing to do until something changes.
    exhausted: BTreeSet<SegmentIndex>,
    completions: Completions,
    /// What is emptied while the log is tight.
    tight_victim: Option<(SegmentIndex, SegmentSerial)>,
    drains: Vec<Drain>,
    retry: Option<(Time, Duration)>,
    /// Lines whose last write failed.
    blocked: BTreeMap<Line, Blocked>,
    /// The record of the newest zero range.
    zeroes_record: RecordNumber,
    /// Lines that may go although they do not fill their physical sector: the log has no room
    /// left, not even the reserve.
    incomplete_allowed: BTreeSet<Line>,
    /// The data-disk cannot zero a range: zeroes are written to it.
    zeroes_by_writing: bool,
}

/// A line whose last write, or completion, failed: it is written alone from then on, so that it takes no others
/// along.
struct Blocked {
    /// Not before then; `None`: the wait is over.
    until: Option<Time>,
    /// How long the wait was; the next one is longer.
    wait: Duration,
}

#[derive(Default)]
enum Work {
    #[default]
    None,
    /// Reads the victim.
    Victim,
    Zero(ZeroWork),
    Batch(Batch),
}

/// Someone waits until all that was dirty is on the data-disk.
struct Drain {
    id: RequestId,
    /// Segments up to this one must be empty.
    serial: SegmentSerial,
}

impl Destage {
    /// Something may have become possible: look everywhere again.
    pub(super) fn something_changed(&mut self) {
        self.exhausted.clear();
    }

    pub(super) fn is_draining(&self) -> bool {
        !self.drains.is_empty()
    }

    /// No batch is under way, and no completion.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.work, Work::None) && self.completions.reads_in_flight() == 0
    }

    /// A zero range is in this record.
    pub(super) fn zeroes_logged(&mut self, record: RecordNumber) {
        self.zeroes_record = record;
    }

    pub(super) fn retry_at(&self, now: Time) -> Option<Time> {
        self.retry.map(|(at, _)| at).filter(|at| *at > now)
    }

    /// Whether lines are being written, or completed, that overlap these.
    pub(super) fn touches(&self, line: Line, lines: u64) -> bool {
        let range = line..Line(line.0 + lines);
        self.completions.reads(&range)
            || matches!(&self.work, Work::Batch(batch) if batch.has_line_within(&range))
    }

    /// These lines were discarded: what is read to complete them is of no use.
    pub(super) fn cancel_completions(&mut self, line: Line, lines: u64) {
        self.completions.cancel(line..Line(line.0 + lines));
    }

    /// What is under way on the data-disk.
    fn ios_in_flight(&self) -> u32 {
        let writes = match &self.work {
            Work::Zero(work) => work.writes_in_flight(),
            Work::Batch(batch) => batch.writes_in_flight(),
            Work::None | Work::Victim => 0,
        };
        writes + self.completions.reads_in_flight()
    }
}

impl Engine {
    // ---- drain --------------------------------------------------------------------------------

    pub(super) fn drain(&mut self, id: RequestId) {
        if self.is_passing_by() {
            return self.pass_drain(id);
        }
        if self.cache_disk_failed {
            return self.reply(id, Err(RequestError::Io), None);
        }
        // What comes after goes to later segments, so the drain has an end under load, too.
        self.log.close_segment();
        let serial = self.log.newest_serial();
        self.want_durable(self.log.newest_record());
        self.destage.something_changed();
        self.destage.drains.push(Drain { id, serial });
    }

    pub(super) fn fail_drains(&mut self) {
        self.end_drains(RequestError::Io, |_| true);
    }

    /// Whoever waits for one of these drains waits no more. Work under way is finished.
    pub(super) fn end_drains(&mut self, error: RequestError, which: impl Fn(RequestId) -> bool) {
        for drain in std::mem::take(&mut self.destage.drains) {
            match which(drain.id) {
                true => self.reply(drain.id, Err(error), None),
                false => self.destage.drains.push(drain),
            }
        }
    }

    fn finish_drains(&mut self) -> bool {
        if self.destage.drains.is_empty() || !matches!(self.destage.work, Work::None) {
            return false;
        }
        let has_zeroes = !self.zeroes.is_empty();
        let stuck = self.stuck_slots();
        let oldest_live = self
            .log
            .segments
            .iter()
            .filter(|(index, segment)| segment.live_slots > stuck.get(index).copied().unwrap_or(0))
            .map(|(_, segment)| segment.serial)
            .min();
        let (done, waiting) =
            std::mem::take(&mut self.destage.drains).into_iter().partition::<Vec<_>, _>(|drain| {
                !has_zeroes && oldest_live.is_none_or(|serial| serial > drain.serial)
            });
        self.destage.drains = waiting;
        let moved = !done.is_empty();
        for drain in done {
            let result = self.drained();
            self.reply(drain.id, result, None);
        }
        moved
    }

    // ---- what next ----------------------------------------------------------------------------

    pub(super) fn advance_destage(&mut self) -> bool {
        self.watch_marks();
        self.watch_stuck();
        self.unblock();
        let mut moved = self.finish_drains();
        let is_lost = self.data_disk_writes_lost > 0 && !seeded(SeededBug::LostWriteForgotten);
        if self.cache_disk_failed || is_lost {
            return moved;
        }
        moved |= match &self.destage.work {
            Work::None => self.start_work(),
            Work::Victim => false,
            Work::Zero(_) => self.advance_zero_work(),
            Work::Batch(_) => self.advance_batch(),
        };
        moved | self.advance_completions()
    }

    pub(super) fn destage_wake_up(&self) -> Option<Time> {
        if self.cache_disk_failed || !self.has_destage_work() {
            return None;
        }
        if let Some(at) = self.destage.retry_at(self.now) {
            return Some(at);
        }
        let look_again = self.stuck.wake_up().filter(|at| *at > self.now);
        if let Some(at) = look_again
            && matches!(self.destage.work, Work::None)
        {
            return Some(at);
        }
        if matches!(self.destage.work, Work::None) && !self.destage.exhausted.is_empty() {
            let blocked = self.destage.blocked.values().filter_map(|blocked| blocked.until);
            if let Some(at) = blocked.min() {
                return Some(at);
            }
        }
        match self.may_destage(self.destage.ios_in_flight()) {
            Go::At(at) => Some(at),
            // Nothing is known that would end it: the end of an I/O will.
            Go::Now | Go::Later => None,
        }
    }

    /// A line that cannot be destaged for now.
    pub(super) fn block_destage(&mut self, line: Line) {
        let until = Some(self.now.after(RETRY_MAX));
        self.destage.blocked.insert(line, Blocked { until, wait: RETRY_MAX });
    }

    /// Lines whose wait is over are looked at again; those that left the log are forgotten.
    fn unblock(&mut self) {
        if self.destage.blocked.is_empty() {
            return;
        }
        let (now, table) = (self.now, &self.table);
        self.destage.blocked.retain(|line, _| table.contains(*line));
        let mut any = false;
        for blocked in self.destage.blocked.values_mut() {
            if blocked.until.is_some_and(|until| until <= now) {
                blocked.until = None;
                any = true;
            }
        }
        if any {
            self.destage.something_changed();
        }
    }

    /// What has been written for the work under way, and not flushed, does not count.
    pub(super) fn fail_destage_work(&mut self) {
        match &mut self.destage.work {
            Work::Batch(batch) => batch.fail(),
            Work::Zero(work) => work.fail(),
            Work::None | Work::Victim => {}
        }
    }

    /// Something failed: not again at once.
    fn back_off(&mut self) {
        let wait = match self.destage.retry {
            Some((at, wait)) if at > self.now => wait,
            Some((_, wait)) => Duration(wait.0 * 2).min(RETRY_MAX),
            None => RETRY_MIN,
        };
        self.destage.retry = Some((self.now.after(wait), wait));
    }

    /// A line could not be written or completed: it waits, longer each time, and holds back no
    /// others (C24).
    fn block_failed(&mut self, line: Line) {
        let before = self.destage.blocked.get(&line);
        let wait = before.map_or(RETRY_MIN, |b| Duration(b.wait.0 * 2).min(RETRY_MAX));
        let until = Some(self.now.after(wait));
        self.destage.blocked.insert(line, Blocked { until, wait });
    }

    fn has_destage_work(&self) -> bool {
        self.table.lines() > 0
            || !self.zeroes.is_empty()
            || !matches!(self.destage.work, Work::None)
    }

    fn start_work(&mut self) -> bool {
        // A shutdown leaves the log as it is.
        if self.close_wants_no_destage() {
            return false;
        }
        if !self.has_destage_work()
            || self.destage.retry_at(self.now).is_some()
            || self.may_destage(self.destage.completions.reads_in_flight()) != Go::Now
        {
            return false;
        }
        if self.start_zero_work() {
            return true;
        }
        if self.log_is_tight() && !self.completions_are_durable() {
            return false;
        }
        let Some(victim) = self.choose_victim() else {
            if self.destage_is_urgent() && self.log.newest_record() > self.log.durable_record() {
                // All that is left is not durable yet.
                self.want_durable(self.log.newest_record());
            }
            return false;
        };
        match self.log.segments.get(victim).state {
            SegmentState::Buffered(buffer) => {
                let at = self.log.memory_offset(buffer, 0);
                let length = self.superblock.geometry.segment_size_bytes as usize;
                let lines = self.live_lines_of(victim, &self.log.memory()[at..at + length]);
                self.gather(victim, &lines, None);
            }
            _ => {
                self.destage.work = Work::Victim;
                self.log.segments.add_reader(victim);
                let offset = self.superblock.geometry.segment_offset(victim);
                let length = self.superblock.geometry.segment_size_bytes;
                self.counters.destage_read_bytes += length;
                let purpose = Purpose::Destage(Step::ReadSegment(victim));
                self.start_read(Device::CacheDisk, offset, length, purpose);
            }
        }
        true
    }

    /// Only dcd's own appends find room. Completing sectors takes some of it, so one victim is
    /// emptied after the other: were many begun, all could be gone before any of them is empty.
    pub(super) fn log_is_tight(&self) -> bool {
        self.log.segments.free().len() <= SEGMENTS_RESERVED as usize
    }

    fn choose_victim(&mut self) -> Option<SegmentIndex> {
        let is_tight = self.log_is_tight();
        if let Some((victim, serial)) = self.destage.tight_victim.take()
            && is_tight
            && self.log.segments.get(victim).serial == serial
            && self.is_candidate(victim)
        {
            self.destage.tight_victim = Some((victim, serial));
            return Some(victim);
        }
        // What is still in a segment buffer is most likely to be overwritten: it goes last.
        let victim = self.choose_among(false).or_else(|| self.choose_among(true))?;
        if is_tight {
            self.destage.tight_victim = Some((victim, self.log.segments.get(victim).serial));
        }
        Some(victim)
    }

    fn is_candidate(&self, index: SegmentIndex) -> bool {
        self.log.segments.get(index).live_slots > 0
            && self.log.durable_slots(index) > 0
            && !self.destage.exhausted.contains(&index)
            && !self.stuck.is_in_vain(index, self.log.segments.get(index).live_slots)
    }

    fn choose_among(&self, buffered: bool) -> Option<SegmentIndex> {
        let mut candidates = self
            .log
            .segments
            .iter()
            .filter(|(index, segment)| {
                matches!(segment.state, SegmentState::Buffered(_)) == buffered
                    && self.is_candidate(*index)
            })
            .map(|(index, segment)| Candidate {
                index,
                serial: segment.serial,
                live_slots: segment.live_slots,
            });
        let policy = if self.someone_waits_for_destaging() {
            // Most room for each write to the data-disk: a full cache must keep up with the disk.
            DestagePolicyKind::LeastValidFirst
        } else if self.destage.is_draining() {
            // A drain waits for the oldest segments, whatever the policy prefers.
            DestagePolicyKind::FirstWriteFirst
        } else {
            self.config.destage_policy
        };
        policy.policy().choose(&mut candidates).map(|candidate| candidate.index)
    }

    // ---- dispatch -----------------------------------------------------------------------------

    pub(super) fn destage_io_done(
        &mut self,
        step: Step,
        result: Result<(), IoError>,
        buffer: Option<Buffer>,
        service: Duration,
    ) {
        match step {
            Step::ReadSegment(victim) => {
                self.log.segments.drop_reader(victim);
                self.destage.work = Work::None;
                match (result, buffer) {
                    (Ok(()), Some(image)) => {
                        let lines = self.live_lines_of(victim, image.bytes());
                        self.gather(victim, &lines, Some(&image));
                    }
                    // One bad sector must not hold back the rest of its segment.
                    (Err(IoError::Failed), _) => {
                        let lines = self.table_lines_of(victim);
                        self.gather(victim, &lines, None);
                    }
                    _ => self.back_off(),
                }
            }
            Step::ReadSlots { segment, slots } => {
                self.log.segments.drop_reader(segment);
                self.slots_read(&slots, result, buffer);
            }
            Step::ReadForCompletion(lines) => self.completion_read(lines, result, buffer),
            Step::WriteRun { lines, together } => {
                self.run_written(lines, together, result, service);
            }
            Step::WriteZeroes => self.zeroes_written(result, service),
            Step::Flush => match &self.destage.work {
                Work::Zero(_) => self.zeroes_flushed(result),
                _ => self.batch_flushed(result),
            },
        }
    }
}
