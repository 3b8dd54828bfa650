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
//! same for zeroed ranges, which go before any line above them, [`completion`] reads what is
//! missing of a line that does not fill its physical sector, [`search`] finds the lines of a victim
//! that cannot be read, [`victim`] reads it, [`worth`] says whether neighbours of its lines come
//! along, [`drain`] is for those who wait for all of it, and [`trouble`] says what happens when the
//! data-disk takes nothing.

mod batch;
mod completion;
mod drain;
mod search;
mod trouble;
mod victim;
mod worth;
mod zeroes;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use self::batch::{BATCH_LINES_MAX, Batch, SlotOfBatch};
use self::completion::Completions;
use self::drain::Drain;
pub(super) use self::drain::{Headway, Left};
use self::search::Search;
use self::trouble::Trouble;
use self::victim::Reading;
use self::worth::Neighbours;
use self::zeroes::{BadZeroes, ZeroWork};
use super::Engine;
use super::pace::Go;
use crate::buffer::Buffer;
use crate::config::DestagePolicyKind;
use crate::engine::Disk;
use crate::engine::Purpose;
use crate::engine::index::Victim;
use crate::io::IoError;
use crate::log::SEGMENTS_RESERVED;
use crate::log::segment::SegmentState;
use crate::units::{Duration, LINE_SIZE, Line, RecordNumber, SegmentIndex, SegmentSerial, Time};
use crate::zero_ranges::ZeroRange;

/// Segments that are emptied in one sweep where one arm does all, at most ...
const VICTIMS_MAX: u32 = 64;
/// ... and one of so many.
const VICTIMS_SHARE: u32 = 5;
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
        slots: Vec<SlotOfBatch>,
        /// They were bad before: what is bad once more is lost.
        is_again: bool,
    },
    /// What is missing of the physical sectors of these lines, and all between them.
    ReadForCompletion(Vec<Line>),
    WriteRun {
        /// Which of the batch.
        lines: Range<usize>,
        bytes: u64,
        /// The first of those that were started with it.
        together: usize,
    },
    /// Nothing else is written there meanwhile.
    WriteZeroes(ZeroRange),
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
    /// A bypass waits for the end of the work under way.
    a_bypass_waits: bool,
    retry: Option<(Time, Duration)>,
    /// Lines whose last write failed.
    blocked: BTreeMap<Line, Blocked>,
    /// When the wait of the first of them is over.
    unblock_at: Option<Time>,
    trouble: Trouble,
    neighbours: Neighbours,
    /// The last victim was chosen, and its lines are gathered, as if what failed before were not
    /// there: else that would be tried first each time, and the others would wait as long as it
    /// does.
    without_failed: bool,
    /// The record of the newest zero range.
    zeroes_record: RecordNumber,
    /// Lines that may go although they do not fill their physical sector: the log has no room
    /// left, not even the reserve.
    incomplete_allowed: BTreeSet<Line>,
    /// The data-disk cannot zero a range: zeroes are written to it.
    zeroes_by_writing: bool,
    /// Lines that wait for the zeroes below them.
    zeroes_wanted: BTreeSet<Line>,
    /// Zeroed, although it was given up before it ended.
    zeroes_landed: Vec<(Line, u64)>,
    /// What could not be zeroed, in the pieces in which it is tried again.
    zeroes_bad: Vec<BadZeroes>,
    /// The last work were zeroes: now lines have their turn.
    zeroes_had_turn: bool,
    /// Lines of the work under way that stay in memory.
    pinned: Vec<Line>,
}

/// A line whose last write, or completion, failed.
struct Blocked {
    /// Not before then; `None`: the wait is over.
    until: Option<Time>,
    /// How long the wait was; the next one is longer.
    wait: Duration,
    /// It is written with so many others at most, so that it takes no more along.
    together_max: u64,
}

#[derive(Default)]
enum Work {
    #[default]
    None,
    /// Reads the victim, or several.
    Victim(Reading),
    /// Looks for the lines of the victim.
    Searching(Search),
    /// Waits until it is known which of them are live.
    Admitting(SegmentIndex),
    Zero(ZeroWork),
    Batch(Batch),
    /// Flushes the data-disk before a window ends on it.
    Flush,
}

impl Destage {
    /// Whether zeroes are on their way to the data-disk.
    pub(super) fn zeroes_under_way(&self) -> bool {
        matches!(self.work, Work::Zero(_))
    }

    /// Something may have become possible: look everywhere again.
    pub(super) fn something_changed(&mut self) {
        self.exhausted.clear();
    }

    pub(super) fn is_draining(&self) -> bool {
        !self.drains.is_empty()
    }

    /// Whether a large write past the log waits for the end of what is under way. Readers that keep
    /// it from ending would keep the write for ever.
    pub(super) fn a_bypass_waits(&self) -> bool {
        self.a_bypass_waits
    }

    /// No batch is under way, and no completion.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.work, Work::None) && self.completions.reads_in_flight() == 0
    }

    /// Whether all zero ranges are durable when all records up to this one are.
    pub(super) fn zeroes_are_durable(&self, durable: RecordNumber) -> bool {
        self.zeroes_record <= durable
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

    /// Something else is about to be written there: what landed late does not count any more.
    pub(super) fn forget_landed_zeroes(&mut self, line: Line, lines: u64) {
        let end = line.0 + lines;
        self.zeroes_landed.retain(|(other, count)| other.0 >= end || other.0 + count <= line.0);
    }

    /// The same of all there is.
    pub(super) fn forget_all_landed_zeroes(&mut self) {
        self.zeroes_landed.clear();
    }

    /// Whether the last work has ended, and no other has begun.
    pub(super) fn is_between_works(&self) -> bool {
        matches!(self.work, Work::None)
    }

    /// What is under way on the data-disk.
    fn ios_in_flight(&self) -> u32 {
        let writes = match &self.work {
            Work::Zero(work) => work.writes_in_flight(),
            Work::Batch(batch) => batch.writes_in_flight(),
            _ => 0,
        };
        writes + self.completions.reads_in_flight()
    }
}

impl Engine {
    // ---- what next ----------------------------------------------------------------------------

    pub(super) fn advance_destage(&mut self) -> bool {
        self.watch_marks();
        self.watch_quiet();
        // Here, because a batch that is looked at below is nowhere else meanwhile.
        self.destage.a_bypass_waits = self.a_bypass_waits_for_destaging();
        self.watch_stuck();
        self.unblock();
        self.watch_trouble();
        let mut moved = self.finish_drains() | self.advance_search();
        self.unpin_victim();
        if self.health.cache_disk_failed() || self.config.data_disk_read_only {
            return moved;
        }
        if self.health.has_late_writes() {
            return self.end_halted_work() | moved;
        }
        moved |= match &self.destage.work {
            Work::None => self.start_work(),
            Work::Victim(_) | Work::Searching(_) | Work::Admitting(_) | Work::Flush => false,
            Work::Zero(_) => self.advance_zero_work(),
            Work::Batch(_) => self.advance_batch(),
        };
        moved | self.advance_completions()
    }

    /// A write that was given up has not ended, and no other may start meanwhile. What is half done
    /// is begun again later: whoever waits for the end of the work, to close the cache or to tell
    /// that it is stuck, must not wait for a disk that may never answer.
    fn end_halted_work(&mut self) -> bool {
        let is_at_rest = match &self.destage.work {
            Work::Zero(work) => work.is_at_rest(),
            Work::Batch(batch) => batch.is_at_rest(),
            _ => false,
        };
        if is_at_rest {
            self.fail_destage_work();
            match self.destage.work {
                Work::Zero(_) => self.zeroes_flushed(Ok(()), Duration(0)),
                _ => self.batch_flushed(Ok(())),
            }
        }
        is_at_rest
    }

    pub(super) fn destage_wake_up(&self) -> Option<Time> {
        if let Some(at) = self.search_wake_up() {
            return Some(at);
        }
        if self.health.cache_disk_failed()
            || self.config.data_disk_read_only
            || !self.has_destage_work()
        {
            return None;
        }
        if let Some(at) = self.destage.retry_at(self.now) {
            return Some(at);
        }
        let failed = match self.destage.work {
            // What has failed may be all that is left.
            Work::None => {
                let stuck = self.stuck.wake_up().filter(|at| *at > self.now);
                let waits = [self.destage.unblock_at, self.bad_zeroes_wake_up(), stuck];
                waits.into_iter().flatten().min()
            }
            _ => None,
        };
        match self.may_destage(self.destage.ios_in_flight()) {
            Go::At(at) => Some(failed.map_or(at, |failed| failed.min(at))),
            // Nothing else is known that would end it: the end of an I/O will.
            Go::Now | Go::Later => failed,
        }
    }

    /// A line that cannot be destaged for now.
    pub(super) fn block_destage(&mut self, line: Line) {
        let until = self.now.after(RETRY_MAX);
        self.destage.unblock_at = Some(self.destage.unblock_at.map_or(until, |at| at.min(until)));
        let blocked = Blocked { until: Some(until), wait: RETRY_MAX, together_max: 1 };
        self.block_line(line, blocked);
    }

    /// What is known of it stays in memory.
    fn block_line(&mut self, line: Line, blocked: Blocked) {
        if self.destage.blocked.insert(line, blocked).is_none() {
            self.table.keep(line);
        }
    }

    /// Lines whose wait is over are looked at again; those that left the log are forgotten.
    fn unblock(&mut self) {
        if self.destage.unblock_at.is_none_or(|at| at > self.now) {
            return;
        }
        let (now, table, windows) = (self.now, &mut self.table, &self.windows);
        self.destage.blocked.retain(|line, _| {
            let is_there = table.contains(*line) || windows.keeps(*line);
            if !is_there {
                table.unpin(*line);
            }
            is_there
        });
        for blocked in self.destage.blocked.values_mut() {
            blocked.until = blocked.until.filter(|until| *until > now);
        }
        // Those whose wait is over and that wait for their turn are looked at, too: they may have
        // left the log.
        let next = self.destage.blocked.values().map(|blocked| blocked.until).min();
        self.destage.unblock_at = next.map(|until| until.unwrap_or(now.after(RETRY_MAX)));
        self.destage.something_changed();
    }

    /// What has been written for the work under way, and not flushed, does not count.
    pub(super) fn fail_destage_work(&mut self) {
        match &mut self.destage.work {
            Work::Batch(batch) => batch.fail(),
            Work::Zero(work) => work.fail(),
            _ => {}
        }
    }

    /// What is dirty stays in the log for as long as the data-disk takes no writes.
    pub(super) fn destages_never(&self) -> bool {
        self.config.data_disk_read_only && self.has_destage_work()
    }

    fn has_destage_work(&self) -> bool {
        self.table.lines() > 0
            || !self.zeroes.is_empty()
            || !matches!(self.destage.work, Work::None)
            || self.window_wants_flush()
    }

    fn start_work(&mut self) -> bool {
        // A shutdown leaves the log as it is.
        if self.close_wants_no_destage() {
            return false;
        }
        if !self.has_destage_work()
            || !self.may_ship()
            || self.purge_holds_back_destaging()
            || self.destage.retry_at(self.now).is_some()
            || self.may_destage(self.destage.completions.reads_in_flight()) != Go::Now
        {
            return false;
        }
        if !self.destage.zeroes_had_turn && self.start_zero_work() {
            self.destage.zeroes_had_turn = true;
            return true;
        }
        if self.start_lines_work() {
            self.destage.zeroes_had_turn = false;
            return true;
        }
        std::mem::take(&mut self.destage.zeroes_had_turn) && self.start_zero_work()
    }

    /// A victim is read, or gathered at once.
    fn start_lines_work(&mut self) -> bool {
        if self.log_is_tight() && !self.completions_are_durable() {
            return false;
        }
        if self.start_victim() {
            return true;
        }
        if self.destage_is_urgent() && self.log.newest_record() > self.log.durable_record() {
            // All that is left is not durable yet.
            self.want_durable(self.log.newest_record());
        }
        false
    }

    /// As many as may be emptied together with the first: no more than a batch has room for, for of
    /// what is left over none would become empty. Who waits for room waits for all of them.
    fn victims_beside(&self, first: SegmentIndex) -> BTreeSet<SegmentIndex> {
        let mut victims = BTreeSet::new();
        let is_tight = self.config.one_disk && self.log_is_tight();
        if is_tight || !self.destage.blocked.is_empty() {
            return victims;
        }
        let share = if self.someone_waits_for_destaging() { 2 } else { 1 };
        let mut most = VICTIMS_MAX.min(self.log.segments.limit() / VICTIMS_SHARE) / share;
        if !self.config.one_disk {
            // All of each is read, live or not.
            let length = self.superblock.geometry.segment_size_bytes;
            most = most.min((BATCH_LINES_MAX as u64 * LINE_SIZE / length) as u32);
        }
        let live = |index| self.log.segments.get(index).live_slots as usize;
        let mut lines = live(first);
        while victims.len() + 1 < most as usize {
            let is_suitable = |index| {
                index != first
                    && !victims.contains(&index)
                    && match self.log.segments.get(index).state {
                        SegmentState::Dirty => true,
                        SegmentState::Buffered(_) => !self.config.one_disk,
                        _ => false,
                    }
                    && self.is_candidate(index, &BTreeMap::new())
            };
            let next = self.log.segments.first_to_destage(self.policy_now(), is_suitable);
            let Some(next) = next.filter(|next| lines + live(*next) <= BATCH_LINES_MAX) else {
                break;
            };
            lines += live(next);
            victims.insert(next);
        }
        victims
    }

    /// A segment is emptied when it is known which of its lines are live.
    fn empty(&mut self, victim: Victim) {
        match self.table.has_budget() {
            true => {
                self.destage.work = Work::Admitting(victim.segment);
                self.admit_victim(victim);
            }
            false => self.gather_victim(victim),
        }
    }

    /// They are known, and pinned until the work is over.
    pub(in crate::engine) fn empty_pinned(&mut self, victim: Victim, pinned: Vec<Line>) {
        self.destage.work = Work::None;
        self.destage.pinned.extend(pinned);
        self.gather_victim(victim);
    }

    /// They cannot be known.
    pub(in crate::engine) fn victim_was_turned_away(&mut self) {
        self.destage.work = Work::None;
    }

    fn gather_victim(&mut self, victim: Victim) {
        let (of_first, of_others) = victim.lines.split_at(victim.lines_of_first);
        let mut live = self.live_lines(of_first);
        let live_slots = self.log.segments.get(victim.segment).live_slots as usize;
        // Some of its records cannot be read. Dead slots are found as well; they make up for
        // nothing that is hidden.
        if victim.is_complete && live.len() < live_slots {
            return self.search(victim.segment, victim.images);
        }
        live.extend(self.live_lines(of_others));
        self.gather(&victim, &live);
        self.put_images(victim.images);
    }

    /// The work for which they were pinned is over.
    fn unpin_victim(&mut self) {
        if matches!(self.destage.work, Work::None) {
            for line in std::mem::take(&mut self.destage.pinned) {
                self.table.unpin(line);
            }
        }
    }

    /// Only dcd's own appends find room. Completing sectors takes some of it, so those of one victim
    /// are completed after the other: were many begun, all could be gone before any of them is
    /// empty.
    pub(super) fn log_is_tight(&self) -> bool {
        self.log.segments.free().len() <= SEGMENTS_RESERVED as usize
    }

    fn choose_victim(&mut self) -> Option<SegmentIndex> {
        if self.destage.blocked.is_empty() {
            self.destage.without_failed = false;
            return self.choose_victim_beside(&BTreeMap::new());
        }
        // By turns, and otherwise whichever there is. When the last write failed, what never did
        // tells whether anything can be written.
        let failed = self.blocked_slots(true);
        let waiting = self.blocked_slots(false);
        let turns = match self.destage.without_failed && !self.destage.trouble.is_trying() {
            true => [false, true],
            false => [true, false],
        };
        turns.into_iter().find_map(|without_failed| {
            self.destage.without_failed = without_failed;
            self.choose_victim_beside(if without_failed { &failed } else { &waiting })
        })
    }

    /// `blocked`: slots that are not looked for.
    fn choose_victim_beside(
        &mut self,
        blocked: &BTreeMap<SegmentIndex, u32>,
    ) -> Option<SegmentIndex> {
        let is_tight = self.log_is_tight();
        if let Some((victim, serial)) = self.destage.tight_victim.take()
            && is_tight
            && self.log.segments.get(victim).serial() == serial
            && self.is_candidate(victim, blocked)
        {
            self.destage.tight_victim = Some((victim, serial));
            return Some(victim);
        }
        let retired = self.retired_victim(|engine, index| engine.is_candidate(index, blocked));
        let policy = self.policy_now();
        let is_suitable = |index| self.is_candidate(index, blocked);
        let victim = retired.or_else(|| self.log.segments.first_to_destage(policy, is_suitable))?;
        if is_tight {
            self.destage.tight_victim = Some((victim, self.log.segments.get(victim).serial()));
        }
        Some(victim)
    }

    fn is_candidate(&self, index: SegmentIndex, blocked: &BTreeMap<SegmentIndex, u32>) -> bool {
        self.may_ship_segment(index)
            && self.log.segments.get(index).live_slots > blocked.get(&index).copied().unwrap_or(0)
            && self.log.durable_slots(index) > 0
            && !self.destage.exhausted.contains(&index)
            && !self.stuck.is_in_vain(index, self.log.segments.get(index).live_slots)
    }

    fn policy_now(&self) -> DestagePolicyKind {
        if self.someone_waits_for_destaging() && !self.config.one_disk {
            // Most room for each write to the data-disk: a full cache must keep up with the disk.
            // Where many are emptied in one sweep, those that lie together are read sooner.
            DestagePolicyKind::LeastValidFirst
        } else if self.destage.is_draining() {
            // A drain waits for the oldest segments, whatever the policy prefers.
            DestagePolicyKind::FirstWriteFirst
        } else {
            self.config.destage_policy
        }
    }

    // ---- a flush for itself -------------------------------------------------------------------

    /// A window ends on the data-disk, where something is that no work has flushed. Tells whether a
    /// flush is started.
    pub(super) fn flush_for_window(&mut self) -> bool {
        if self.config.data_disk_read_only
            || self.close_wants_no_destage()
            || self.destage.retry_at(self.now).is_some()
        {
            return false;
        }
        self.destage.work = Work::Flush;
        self.start_flush(Disk::DataDisk, Purpose::Destage(Step::Flush));
        true
    }

    fn flushed_for_window(&mut self, result: Result<(), IoError>) {
        self.destage.work = Work::None;
        match result {
            Ok(()) => self.destage.retry = None,
            Err(error) => {
                self.data_disk_flush_failed(error);
                self.destage_flush_failed(error);
            }
        }
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
            Step::ReadSegment(victim) => self.victim_read(victim, result, buffer),
            Step::ReadSlots { segment, slots, is_again } => {
                // Some may be read again, before anybody fills the segment.
                self.slots_read(&slots, is_again, result, buffer.as_ref());
                self.buffers.put(buffer);
                self.log.segments.drop_reader(segment);
            }
            Step::ReadForCompletion(lines) => self.completion_read(lines, result, buffer),
            Step::WriteRun { lines, bytes, together } => {
                self.run_written(lines, bytes, together, result, service);
                self.buffers.put(buffer);
            }
            Step::WriteZeroes(piece) => self.zeroes_written(piece, result, service),
            Step::Flush => {
                self.destage.trouble.flushed(result.is_ok());
                match &self.destage.work {
                    Work::Zero(_) => self.zeroes_flushed(result, service),
                    Work::Flush => self.flushed_for_window(result),
                    _ => self.batch_flushed(result),
                }
            }
        }
    }
}
