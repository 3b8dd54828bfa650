//! What is durable when: log writes, commits, and those who wait for them.
//!
//! ```text
//! 1. Write the sealed records.   Crash here: a checksum or the chain fails, they never existed.
//! 2. Flush the cache-disk.       Crash here: some prefix of them is found again.
//! 3. Reply to those who wait.    Only now may they believe us (trap 5 of the design).
//! ```
//! A commit is one flush, started when the records that were wanted at its beginning are written;
//! it covers every record written by then. While it is under way, others gather for the next one
//! (group commit): if they were sealed for this one, it would wait for them too, and under steady
//! load never end. A commit of a single record, with nothing before it that is not durable, is one
//! FUA write instead: one disk operation for a write and its flush. Where each change has been
//! followed by a flush for a while, that write starts with the change: the disk works while the
//! client still asks for the flush.

use std::collections::VecDeque;

use super::discards::Owner;
use super::{Engine, Purpose};
use crate::buffer::Buffer;
use crate::engine::Disk;
use crate::io::{IoData, IoError, IoOperation, RequestError, RequestId};
use crate::units::{Duration, RecordNumber, Time};

/// So many changes, each with a flush of its own, and the next flush is expected.
const FLUSHED_CHANGES_MIN: u32 = 8;

/// Someone who waits for a record.
struct Waiter {
    record: RecordNumber,
    owner: Owner,
    buffer: Option<Buffer>,
}

/// Commits, and those who wait for them.
#[derive(Default)]
pub(super) struct Commit {
    /// A flush, or a FUA write, is under way.
    in_flight: bool,
    log_writes_in_flight: u32,
    /// Make everything up to this record durable.
    wanted: RecordNumber,
    /// The commit under way waits for the records up to this one to be written, then flushes.
    target: Option<RecordNumber>,
    /// Since when there is something that neither is durable nor has a commit under way.
    undurable_since: Option<Time>,
    /// Changes acknowledged since the last flush.
    unflushed_changes: u32,
    /// How many of the last changes were each followed by a flush before the next.
    flushed_changes: u32,
    durable_waiters: VecDeque<Waiter>,
    written_waiters: VecDeque<Waiter>,
}

impl Engine {
    /// A FLUSH covers every change acknowledged before it, on any frontend (C2).
    pub(super) fn flush(&mut self, id: RequestId) {
        self.counters.flushes += 1;
        let commit = &mut self.commit;
        commit.flushed_changes = match std::mem::take(&mut commit.unflushed_changes) {
            0 => commit.flushed_changes,
            1 => commit.flushed_changes.saturating_add(1),
            _ => 0,
        };
        if self.is_passing_by() {
            return self.pass_flush(id);
        }
        if self.log_is_given_up() {
            return self.reply(id, Err(RequestError::Io), None);
        }
        self.reply_when_durable(id.into(), None);
    }

    pub(super) fn reply_when_durable(&mut self, owner: Owner, buffer: Option<Buffer>) {
        let record = self.log.newest_record();
        if record <= self.log.durable_record() {
            return self.reply(owner, Ok(()), buffer);
        }
        self.want_durable(record);
        self.commit.durable_waiters.push_back(Waiter { record, owner, buffer });
    }

    pub(super) fn reply_when_written(&mut self, owner: Owner, buffer: Option<Buffer>) {
        let record = self.log.newest_record();
        if record <= self.log.written_record() {
            return self.reply(owner, Ok(()), buffer);
        }
        self.commit.written_waiters.push_back(Waiter { record, owner, buffer });
    }

    /// A change has been acknowledged; if a flush is sure to follow, it need not be waited for.
    pub(super) fn expect_flush(&mut self) {
        self.commit.unflushed_changes = self.commit.unflushed_changes.saturating_add(1);
        let is_first = self.commit.unflushed_changes == 1;
        if is_first && self.commit.flushed_changes >= FLUSHED_CHANGES_MIN {
            self.want_durable(self.log.newest_record());
        }
    }

    /// Somebody needs everything up to `record` to be durable.
    pub(super) fn want_durable(&mut self, record: RecordNumber) {
        self.commit.wanted = self.commit.wanted.max(record);
    }

    /// Seals, writes and flushes what is wanted. Tells whether anything moved.
    pub(super) fn advance_commit(&mut self) -> bool {
        if self.health.cache_disk_failed() || self.log_again.is_wanted() {
            return false;
        }
        let mut moved = false;
        let (newest, durable) = (self.log.newest_record(), self.log.durable_record());
        if newest > durable {
            let since = *self.commit.undurable_since.get_or_insert(self.now);
            if self.now.since(since) >= self.commit_delay() {
                self.want_durable(newest);
            }
            // Buffers are kept until durable; with half of those for requests in use it is time,
            // and when a part of a write needs more than are left.
            if self.log.buffers_in_use() * 2 > self.log.buffers_for_requests()
                || self.someone_waits_for_buffers()
            {
                self.want_durable(self.log.sealed_record());
            }
        } else {
            self.commit.undurable_since = None;
        }
        let is_committing = self.commit.in_flight || self.commit.target.is_some();
        let is_wanted = self.commit.wanted > self.log.sealed_record() && !is_committing;
        let is_awaited =
            !self.commit.written_waiters.is_empty() && self.commit.log_writes_in_flight == 0;
        // While a probe is under way, one record gathers all that come.
        let may_seal = self.log.has_open_record() && !self.log_use.is_probing();
        if may_seal && (is_wanted || is_awaited) {
            self.log.seal();
        }
        moved |= self.start_log_writes();
        let reaches = self.commit.wanted.min(self.log.sealed_record());
        let is_committing = self.commit.in_flight || self.commit.target.is_some();
        // Its time begins when what it waits for is written.
        let may_begin = !self.log_use.is_probing() && !self.writes_are_held_back();
        if reaches > durable && !is_committing && may_begin {
            self.begin_commit();
            self.commit.target = Some(reaches);
        }
        let covers = self.log.written_record();
        let is_written = self.commit.target.is_some_and(|target| covers >= target);
        if is_written && !self.commit.in_flight {
            self.commit.target = None;
            self.commit.in_flight = true;
            self.start_flush(Disk::CacheDisk, Purpose::LogFlush { covers });
            moved = true;
        }
        moved
    }

    /// What comes from now on is for the next one.
    fn begin_commit(&mut self) {
        self.commit.undurable_since = Some(self.now);
    }

    /// The records that it waits for are logged again, under other numbers.
    pub(super) fn forget_commit(&mut self) {
        self.commit.target = None;
    }

    fn start_log_writes(&mut self) -> bool {
        let mut moved = false;
        if !self.may_write_records() || self.log_writes_wait_for_reads() {
            return false;
        }
        while let Some(write) = self.log.next_write() {
            self.log_use.record_submitted(write.number);
            // Only if nothing before it is pending does its own FUA make everything durable.
            let fua = self.commit.wanted >= write.number
                && self.log.sealed_record() == write.number
                && self.log.is_oldest_pending(write.number)
                && !self.commit.in_flight;
            if fua {
                self.begin_commit();
                self.commit.in_flight = true;
            }
            self.commit.log_writes_in_flight += 1;
            self.counters.log_writes += 1;
            self.counters.cache_disk_fua_writes += u64::from(fua);
            self.counters.records += 1;
            self.counters.log_write_bytes += write.memory.len() as u64;
            let operation = IoOperation::Write {
                offset: write.offset,
                data: IoData::SegmentMemory(write.memory),
                fua,
            };
            let purpose = Purpose::LogWrite { number: write.number, fua };
            self.start_io(Disk::CacheDisk, operation, purpose);
            moved = true;
        }
        moved
    }

    /// Where one arm does all, whoever reads waits for a log write, and nobody for that: not while
    /// buffers are free and what was acknowledged is not due.
    fn log_writes_wait_for_reads(&self) -> bool {
        let is_due = |since: Time| self.now.since(since) >= self.commit_delay();
        self.config.one_disk
            && self.reads.on_data_disk() > 0
            && self.commit.durable_waiters.is_empty()
            && self.commit.written_waiters.is_empty()
            && self.stalled.is_empty()
            && !self.has_bypasses()
            && self.close.is_none()
            && !self.destage_is_urgent()
            && !self.commit.undurable_since.is_some_and(is_due)
    }

    /// Records that are sealed wait for that.
    fn writes_are_held_back(&self) -> bool {
        self.log.next_write_offset().is_some() && self.log_writes_wait_for_reads()
    }

    pub(super) fn log_write_done(
        &mut self,
        number: RecordNumber,
        fua: bool,
        result: Result<(), IoError>,
    ) {
        self.commit.log_writes_in_flight -= 1;
        if fua {
            self.commit.in_flight = false;
        }
        if let Err(error) = result {
            return self.cache_disk_error(error);
        }
        if self.log_again.is_wanted() {
            return; // It will be written again, elsewhere.
        }
        self.log.record_written(number);
        let written = self.log.written_record();
        while self.commit.written_waiters.front().is_some_and(|w| w.record <= written) {
            let waiter = self.commit.written_waiters.pop_front().expect("looked at");
            self.reply(waiter.owner, Ok(()), waiter.buffer);
        }
        if fua {
            self.records_durable(number);
        }
    }

    pub(super) fn log_flush_done(&mut self, covers: RecordNumber, result: Result<(), IoError>) {
        self.commit.in_flight = false;
        if let Err(error) = result {
            return self.cache_disk_error(error);
        }
        if self.log_again.is_wanted() {
            // Another flush failed meanwhile: it may have been told of what this one should have.
            return;
        }
        self.records_durable(covers);
    }

    fn records_durable(&mut self, number: RecordNumber) {
        self.log.make_durable(number);
        self.log_again.disk_works();
        self.commit.target = self.commit.target.filter(|target| *target > number);
        self.destage.something_changed();
        while self.commit.durable_waiters.front().is_some_and(|w| w.record <= number) {
            let waiter = self.commit.durable_waiters.pop_front().expect("looked at");
            self.reply(waiter.owner, Ok(()), waiter.buffer);
        }
    }

    pub(super) fn answer_commit_waiters(&mut self, result: Result<(), RequestError>) {
        let commit = &mut self.commit;
        let waiters: Vec<Waiter> =
            commit.durable_waiters.drain(..).chain(commit.written_waiters.drain(..)).collect();
        for waiter in waiters {
            self.reply(waiter.owner, result, waiter.buffer);
        }
    }

    /// Half of `max_delay`: the other half is for the commit itself (C5).
    fn commit_delay(&self) -> Duration {
        Duration(self.config.max_delay.0 / 2)
    }

    pub(super) fn commit_wake_up(&self) -> Option<Time> {
        // While records wait to be logged again nothing is committed, and the time would be over
        // again and again.
        let may_commit = !self.health.cache_disk_failed() && !self.log_again.is_wanted();
        let is_due = self.commit.wanted < self.log.newest_record() || self.writes_are_held_back();
        let since = self.commit.undurable_since?;
        (is_due && may_commit).then(|| since.after(self.commit_delay()))
    }

    /// Whether the log has I/O under way.
    pub(super) fn log_is_busy(&self) -> bool {
        self.commit.in_flight || self.commit.log_writes_in_flight > 0 || self.log_use.is_probing()
    }
}
