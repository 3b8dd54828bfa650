//! Large writes go past the log, straight to the data-disk (USENIX'99 section 3.5.1), without
//! breaking the order of everything else (C11).
//!
//! ```text
//! 1. Everything acknowledged before is durable in the log.
//!      Else a crash could show the bypassed data without older, acknowledged writes.
//! 2. Write the data-disk.      Crash here: part of this unacknowledged write shows, where the
//!      log has no copy; older copies in the log are still replayed over it.
//! 3. Flush the data-disk.
//! 4. Append a tombstone: from this record on, older copies in the log are dead for good.
//!      Before step 3 it could outlive the data; without it a replay would resurrect old copies
//!      over acknowledged data (trap 1 of the design), also after kill -9. Where the log is on the
//!      disk that it is for, none is written if a start would find no older copy.
//! 5. Reply as the mode says.
//! ```
//! Its place in the order is that of its tombstone. From step 2 on readers may see it, so a change
//! of the same blocks waits until it is in the log: else the tombstone would bring back what
//! somebody has already seen overwritten (C8). For the same reason a bypass waits for reads of the
//! data-disk that began before the log had a copy of what they read: one of them could return the
//! new data, and the next reader would get the older copy. Where the log has a copy only of what
//! was destaged, readers take it or the data-disk as is sooner, so it is forgotten before step 2.
//! No destage touches the same lines meanwhile, and a bypass waits for one that does (trap 2).
//! Bypasses that wait together share steps 1 and 3.

use super::{Engine, Purpose};
use crate::buffer::Buffer;
use crate::engine::Disk;
use crate::format::record::Entry;
use crate::io::{IoData, IoError, IoOperation, RequestError, RequestId};
use crate::log::Appender;
use crate::units::{FRAGMENTS_PER_LINE, LbaRange, Line, RecordNumber};
use crate::zero_ranges::ZeroRanges;

/// From this size on writes go past a log on the disk that it is for ...
pub(super) const BYPASS_BYTES_WHEN_FULL: u64 = 16 << 10;
/// ... when it is as full as this ...
const BYPASS_PERCENT_FULL: u64 = 75;
/// ... and so many came since one was smaller.
const BYPASS_WRITES_SINCE_SMALL: u32 = 64;

/// A write that goes past the log.
pub(super) struct Bypass {
    id: RequestId,
    pub(super) range: LbaRange,
    fua: bool,
    /// Records that must be durable before the data-disk is written.
    after: RecordNumber,
    state: State,
    /// Its buffer when the data-disk is done with it: goes back with the reply, for reuse.
    done_with: Option<Buffer>,
}

enum State {
    Waiting(Buffer),
    Writing,
    /// A flush has failed meanwhile: perhaps it was to cover what is being written.
    WritingInVain,
    Written,
    /// Covered by this flush, and by no other: one that began before the write ended proves
    /// nothing.
    Flushing(FlushNumber),
    /// The tombstone waits for room in the log.
    Flushed,
}

/// A flush for bypasses, in the order of their starts. Two are under way together when the bypasses
/// that the first was for have failed.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct FlushNumber(u64);

impl Bypass {
    fn is_under_way(&self) -> bool {
        matches!(self.state, State::Writing | State::WritingInVain | State::Flushing(_))
    }

    fn lines(&self) -> (Line, u64) {
        whole_lines(self.range)
    }
}

/// A bypass that does without its tombstone.
pub(super) struct TakenBypass {
    pub(super) id: RequestId,
    pub(super) range: LbaRange,
    pub(super) fua: bool,
    /// `None`: it is on the data-disk, perhaps not flushed.
    pub(super) data: Option<Buffer>,
}

fn whole_lines(range: LbaRange) -> (Line, u64) {
    let start = range.start.line();
    (start, range.end().div_ceil(FRAGMENTS_PER_LINE) - start.0)
}

impl Engine {
    /// The one place that decides whether a write is bypassed.
    pub(super) fn goes_past_the_log(&self, range: LbaRange) -> bool {
        let ends_with_line =
            range.end().is_multiple_of(FRAGMENTS_PER_LINE) || range.end() == self.data_disk.blocks;
        (range.bytes() >= self.config.bypass_threshold_bytes && !self.below.is_cache_candidate(range)
            || self.is_left_to_the_disk(range)
            || self.is_not_worth_the_log(range))
            // It would overtake what is in the log.
            && !self.ships_in_order()
            // Whole lines only: part of a line may be zero in the log below it.
            && range.start.0.is_multiple_of(FRAGMENTS_PER_LINE)
            && ends_with_line
            // A witness may only change together with the log, or a crash in step 2 would look
            // as if someone else had written to the data-disk.
            && !self.witnesses.overlaps(range)
            // So may a line of which a checkpoint may list a copy: after a crash in step 2 the copy
            // would show the old, until it is given up, and then the data-disk the new.
            && !self.may_have_copies(range)
            // It may split a zero range in two, and a checkpoint has room for so many.
            && self.has_room_for_zero_ranges(ZeroRanges::GROWTH_BY_REMOVE)
            && !self.health.has_late_writes()
    }

    /// Selective caching (DHIS section 3.3.2): when the log is short of room, only what is worth it
    /// goes there.
    fn is_left_to_the_disk(&self, range: LbaRange) -> bool {
        self.is_left_out_by_choice(range) && self.log_is_tight()
    }

    /// Whether the volume has selective caching, and this is not worth a place in a log or memory
    /// that is short of room.
    pub(crate) fn is_left_out_by_choice(&self, range: LbaRange) -> bool {
        self.below.is_selective() && !self.below.is_cache_candidate(range)
    }

    /// Where one arm does all and the log is nearly full, destaging makes room for what comes at the
    /// cost of what is there. If nothing that comes is small, it gains less from the log than that.
    fn is_not_worth_the_log(&self, range: LbaRange) -> bool {
        self.config.one_disk
            && range.bytes() >= BYPASS_BYTES_WHEN_FULL
            && self.pace.writes_since_small() >= BYPASS_WRITES_SINCE_SMALL
            && self.utilisation_percent() >= BYPASS_PERCENT_FULL
    }

    fn may_have_copies(&self, range: LbaRange) -> bool {
        let (line, lines) = whole_lines(range);
        self.copies.may_be_listed(line, lines)
    }

    pub(super) fn bypass(&mut self, id: RequestId, range: LbaRange, data: Buffer, fua: bool) {
        self.counters.bypasses += 1;
        self.counters.bypass_bytes += range.bytes();
        let after = self.log.newest_record();
        self.want_durable(after);
        let state = State::Waiting(data);
        self.bypasses.push(Bypass { id, range, fua, after, state, done_with: None });
    }

    /// Whether a bypass of any of these lines is under way or about to be.
    pub(super) fn is_bypassed(&self, line: Line, lines: u64) -> bool {
        self.has_bypass_of(LbaRange { start: line.lba(), blocks: lines * FRAGMENTS_PER_LINE })
    }

    /// Whether a bypass of any of these blocks is under way or about to be.
    pub(super) fn has_bypass_of(&self, range: LbaRange) -> bool {
        self.bypasses.iter().any(|bypass| bypass.range.overlaps(range))
    }

    /// Whether a bypass of some of these blocks may have been seen and has no place in the order
    /// yet.
    pub(super) fn is_overtaking_a_bypass(&self, range: LbaRange) -> bool {
        self.bypasses.iter().any(|bypass| {
            !matches!(bypass.state, State::Waiting(_)) && bypass.range.overlaps(range)
        })
    }

    /// Zero ranges that the bypasses under way may add when their tombstones are logged: room for
    /// them is kept, because a tombstone cannot wait.
    pub(super) fn zero_ranges_of_bypasses(&self) -> usize {
        self.bypasses.len() * ZeroRanges::GROWTH_BY_REMOVE
    }

    /// Whether bypasses are under way.
    pub(super) fn has_bypasses(&self) -> bool {
        !self.bypasses.is_empty()
    }

    /// Whether one of them is on its way to the data-disk.
    pub(super) fn has_bypasses_under_way(&self) -> bool {
        self.bypasses.iter().any(Bypass::is_under_way)
    }

    /// Whether one waits for nothing but the end of what is being destaged.
    pub(super) fn a_bypass_waits_for_destaging(&self) -> bool {
        let durable = self.log.durable_record();
        self.bypasses.iter().any(|bypass| {
            let (line, lines) = bypass.lines();
            matches!(bypass.state, State::Waiting(_))
                && bypass.after <= durable
                && (self.destage.touches(line, lines)
                    || self.zeroes_destaging.overlaps(line, lines))
        })
    }

    /// Whether a tombstone waits for room in the log.
    pub(super) fn has_bypasses_without_room(&self) -> bool {
        self.bypasses.iter().any(|bypass| matches!(bypass.state, State::Flushed))
    }

    pub(super) fn advance_bypasses(&mut self) -> bool {
        if self.bypasses.is_empty() || self.is_passing_by() {
            return false;
        }
        if self.health.cache_disk_failed() || self.health.has_late_writes() {
            return self.fail_bypasses();
        }
        let mut moved = self.start_bypass_writes();
        let written = self.bypasses.iter().any(|b| matches!(b.state, State::Written));
        if written && !self.bypasses.iter().any(Bypass::is_under_way) {
            self.bypass_flushes.0 += 1;
            for bypass in &mut self.bypasses {
                if matches!(bypass.state, State::Written) {
                    bypass.state = State::Flushing(self.bypass_flushes);
                }
            }
            self.start_flush(Disk::DataDisk, Purpose::BypassFlush(self.bypass_flushes));
            moved = true;
        }
        while let Some(index) = self.bypasses.iter().position(|b| matches!(b.state, State::Flushed))
        {
            if !self.log.has_room(1, Appender::Engine) {
                break;
            }
            let bypass = self.bypasses.remove(index);
            self.finish_bypass(bypass);
            moved = true;
        }
        moved
    }

    /// Steps 1 and 2.
    fn start_bypass_writes(&mut self) -> bool {
        let mut moved = false;
        for index in 0..self.bypasses.len() {
            let bypass = &self.bypasses[index];
            let (line, lines) = bypass.lines();
            let ready = matches!(bypass.state, State::Waiting(_))
                && bypass.after <= self.log.durable_record()
                && !self.destage.touches(line, lines)
                && !self.zeroes_destaging.overlaps(line, lines)
                && !self.is_read_below_the_log(bypass.range)
                && !self.bypasses[..index].iter().any(|other| other.range.overlaps(bypass.range));
            if !ready {
                continue;
            }
            let (id, offset) = (bypass.id, bypass.range.start.byte());
            self.forget_clean(line, lines);
            self.destage.forget_landed_zeroes(line, lines);
            let state = std::mem::replace(&mut self.bypasses[index].state, State::Writing);
            let State::Waiting(data) = state else { unreachable!("looked at") };
            let data = IoData::Owned(data);
            let operation = IoOperation::Write { offset, data, fua: false };
            self.start_io(Disk::DataDisk, operation, Purpose::BypassWrite { id });
            moved = true;
        }
        moved
    }

    pub(super) fn bypass_write_done(
        &mut self,
        id: RequestId,
        result: Result<(), IoError>,
        buffer: Option<Buffer>,
    ) {
        let index = self.bypasses.iter().position(|bypass| bypass.id == id).expect("under way");
        self.bypasses[index].done_with = buffer;
        let result = match self.bypasses[index].state {
            State::WritingInVain => Err(IoError::Failed),
            _ => result,
        };
        match result {
            Ok(()) => self.bypasses[index].state = State::Written,
            Err(error) => {
                // The blocks are as undefined as after a failed write to any disk; copies in the
                // log still win.
                let bypass = self.bypasses.remove(index);
                self.reply(id, Err(error.into()), bypass.done_with);
            }
        }
    }

    pub(super) fn bypass_flush_done(&mut self, flush: FlushNumber, result: Result<(), IoError>) {
        if let Err(error) = result {
            return self.data_disk_flush_failed(error);
        }
        for bypass in &mut self.bypasses {
            if matches!(bypass.state, State::Flushing(by) if by == flush) {
                bypass.state = State::Flushed;
            }
        }
    }

    /// What was written to the data-disk and not flushed may be lost, whoever asked for the flush
    /// that failed; one that succeeds later proves nothing.
    pub(super) fn data_disk_flush_failed(&mut self, error: IoError) {
        let (failed, mut kept) = std::mem::take(&mut self.bypasses)
            .into_iter()
            .partition::<Vec<_>, _>(|b| matches!(b.state, State::Written | State::Flushing(_)));
        for bypass in &mut kept {
            if matches!(bypass.state, State::Writing) {
                bypass.state = State::WritingInVain;
            }
        }
        self.bypasses = kept;
        for bypass in failed {
            self.reply(bypass.id, Err(error.into()), bypass.done_with);
        }
        self.fail_destage_work();
    }

    /// Steps 4 and 5.
    fn finish_bypass(&mut self, bypass: Bypass) {
        let (line, lines) = bypass.lines();
        let needs_tombstone = self.may_come_back(line, lines);
        if needs_tombstone {
            self.log.append_entry(&Entry::Bypass { range: bypass.range });
            self.log.end_request();
        }
        self.forget_lines(line, lines);
        self.zeroes.remove(line, lines);
        self.zeroes_rebuilt.overwritten(line, lines);
        self.pace.foreground(self.now);
        self.destage.something_changed();
        match needs_tombstone {
            true => self.acknowledge(bypass.id.into(), bypass.done_with, bypass.fua),
            // It is durable, and so is all that was acknowledged before it (step 1).
            false => self.reply(bypass.id, Ok(()), bypass.done_with),
        }
    }

    /// Whether a start may find something older of these lines in the log. Where the log is on the
    /// disk that it is for, a tombstone costs the arm two ways, and mostly there is nothing.
    fn may_come_back(&self, line: Line, lines: u64) -> bool {
        !self.zeroes.is_empty()
            || !self.poisoned.is_empty()
            || self.table.may_come_back(line..Line(line.0 + lines))
    }

    /// Without a cache-disk, bypasses are writes like all others: takes them out when none of them
    /// has an I/O under way.
    pub(super) fn take_bypasses(&mut self) -> Option<Vec<TakenBypass>> {
        if self.bypasses.iter().any(Bypass::is_under_way) {
            return None;
        }
        let taken = std::mem::take(&mut self.bypasses).into_iter().map(|bypass| {
            let data = match bypass.state {
                State::Waiting(data) => Some(data),
                _ => None,
            };
            TakenBypass { id: bypass.id, range: bypass.range, fua: bypass.fua, data }
        });
        Some(taken.collect())
    }

    /// The log takes no tombstone any more, or the data-disk cannot be written to: those that have
    /// no I/O under way are told now, the others when it ends.
    pub(super) fn fail_bypasses(&mut self) -> bool {
        let (kept, failed) = std::mem::take(&mut self.bypasses)
            .into_iter()
            .partition::<Vec<_>, _>(Bypass::is_under_way);
        self.bypasses = kept;
        let moved = !failed.is_empty();
        for bypass in failed {
            self.reply(bypass.id, Err(RequestError::Io), None);
        }
        moved
    }
}
