//! Without a cache: the cache-disk has failed for good while it was clean ([`super::log_use`]), so
//! dcd goes on with the data-disk alone (C23). Or the log is empty at start and is to be left
//! unused (`EngineConfig::no_log`); a volume goes on using its own area of the cache-disk then. Or
//! somebody wants changes to go past the log for a while ([`super::mode`]): then nothing is left to
//! be written in step 2, and there is a way back.
//!
//! ```text
//! 1. Let end what is under way to the data-disk. New changes and flushes wait.
//! 2. Write to the data-disk what lies in the segment buffers: zero ranges, then lines.
//!      Death of the process: the segment memory still holds all of it, and a start replays it.
//!      Power cut: it was not durable, and none of it was promised to be.
//! 3. Flush the data-disk.              Crash here: the same.
//! 4. Put a note into the segment memory: what it holds counts no more. From this instant a start
//!    finds nothing there, and everything on the data-disk.
//!      Without it, a start would replay it over what is written from now on.
//! 5. Forget the log, and answer those who waited for it.
//! 6. Changes go straight to the data-disk, overlapping ones in the order of their arrival. A FLUSH
//!    is a flush of the data-disk; FUA is a write and a flush.
//! ```
//! From step 2 on, changes that no flush has covered are as on any disk: a power cut may keep some
//! and lose others (C9 says so). If the data-disk fails in steps 1 to 3, or a flush of it at any
//! time, both disks have failed: EIO, for good. What was written and not flushed may be lost then,
//! and a later flush would prove nothing.

use std::collections::{BTreeSet, VecDeque};

use super::discards::Owner;
use super::write::Change;
use super::{Engine, Purpose};
use crate::buffer::Buffer;
use crate::config::{AckMode, Mode};
use crate::engine::Disk;
use crate::format::checksum::crc32c;
use crate::format::superblock::{SUPERBLOCK_SIZE, Superblock};
use crate::io::{IoData, IoError, IoOperation, RequestError, RequestId};
use crate::stats::Uncached;
use crate::units::{BLOCK_SIZE, Duration, FRAGMENTS_PER_LINE, LINE_SIZE, Lba, LbaRange, Line};

/// Most writes of step 2 in flight, and most blocks in one.
const WRITES_IN_FLIGHT_MAX: u32 = 16;
const WRITE_BLOCKS_MAX: u64 = (1 << 20) / BLOCK_SIZE;
/// So much of what is being written is kept for the read area, as much as may wait to go there.
const KEPT_BYTES_MAX: u64 = 4 << 20;

/// An I/O of this path, to the data-disk but for one.
pub(super) enum Step {
    /// Step 2: a piece of the zero range at the front.
    LogZero { blocks: u64 },
    /// Step 2: lines.
    LogWrite,
    /// Step 3.
    LogFlush,
    /// Step 6: the change of this request, or a piece of it.
    Change { owner: Owner, blocks: u64 },
    /// Step 6.
    Flush,
    /// The last flush, before the end.
    Close,
    /// Before changes go to the log again: whether the cache-disk is still that of this cache.
    Look,
    /// The last flush, before changes go to the log again.
    Return,
}

/// Why the log is not used.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Reason {
    /// The cache-disk has failed.
    #[default]
    Failed,
    /// It was to be left alone from the start on.
    NoLog,
    /// The mode says so, which is one of those past the log.
    Mode(Mode),
}

/// Going on without a cache.
#[derive(Default)]
pub(super) struct PassingBy {
    reason: Reason,
    stage: Stage,
    /// Of step 2: what is left.
    zeroes: VecDeque<Zero>,
    writes: VecDeque<(u64, Buffer)>,
    in_flight: u32,
    /// In order of arrival.
    changes: Vec<Passing>,
    /// What they keep for the read area.
    kept_bytes: u64,
    /// Wait for the next flush, and for the one under way.
    flush_waiters: Vec<Owner>,
    flushing: Option<Vec<Owner>>,
    /// Those of them that are drains.
    drains: BTreeSet<Owner>,
    /// The data-disk cannot zero a range: zeroes are written to it.
    zeroes_by_writing: bool,
    /// The last flush has been started.
    is_closing: bool,
    last_flush: LastFlush,
    look: Look,
}

/// Whether the cache-disk is still what it was when changes began to go past it.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Look {
    #[default]
    None,
    UnderWay,
    /// The first time it could not be read, or was not ours: one failed transfer is no other disk.
    Again,
    IsOurs,
}

/// The flush before the return to the log.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum LastFlush {
    #[default]
    None,
    UnderWay,
    /// It is under way, and changes have been let past since.
    Void,
}

impl PassingBy {
    /// Whether some of these blocks are to be changed. What step 2 writes is in the table, or among
    /// the zeroes, until step 5.
    pub(super) fn is_passed(&self, range: LbaRange) -> bool {
        self.changes.iter().any(|change| change.range.overlaps(range))
    }

    /// The same without those that are on the data-disk and wait for a flush.
    fn is_being_changed(&self, range: LbaRange) -> bool {
        let is_left = |change: &&Passing| !matches!(change.state, State::Written);
        self.changes.iter().filter(is_left).any(|change| change.range.overlaps(range))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    /// Step 1.
    #[default]
    Settling,
    /// Step 2.
    WritingThrough,
    /// Step 3.
    Flushing,
    /// Step 6.
    PassingThrough,
    /// Both disks have failed.
    Failed,
}

/// A range that is to be zeroed.
#[derive(Clone, Copy)]
struct Zero {
    range: LbaRange,
    may_unmap: bool,
}

/// A change on its way.
struct Passing {
    owner: Owner,
    range: LbaRange,
    fua: bool,
    state: State,
    /// What is being written, for the read area.
    kept: Option<Buffer>,
}

enum State {
    /// Waits for earlier ones of the same blocks.
    WaitingToWrite(Buffer),
    /// The same; what is left of it to be zeroed.
    WaitingToZero(Zero),
    Writing,
    /// The piece under way is written as zeroes, or asked of the disk.
    Zeroing {
        left: Zero,
        by_writing: bool,
    },
    /// Waits for a flush.
    Written,
}

impl Passing {
    fn is_waiting(&self) -> bool {
        matches!(self.state, State::WaitingToWrite(_) | State::WaitingToZero(_))
    }

    fn into_buffer(self) -> Option<Buffer> {
        match self.state {
            State::WaitingToWrite(data) => Some(data),
            _ => None,
        }
    }
}

impl Engine {
    // ---- entering -----------------------------------------------------------------------------

    /// The cache-disk has failed while clean, or is to be left alone.
    pub(super) fn go_uncached(&mut self) {
        if let Some(passing) = &mut self.passing_by {
            // It was left alone already; now there is no way back.
            passing.reason = Reason::Failed;
            self.forget_copies();
            return self.pass_stalled();
        }
        self.finish_purge();
        let reason = if self.config.no_log { Reason::NoLog } else { Reason::Failed };
        self.passing_by = Some(PassingBy { reason, ..PassingBy::default() });
        self.need_no_pages();
        self.forget_copies();
        self.pass_stalled();
    }

    /// What is on the read area is out of reach, and will not be told of changes.
    fn forget_copies(&mut self) {
        self.end_reading_ahead();
        self.copies.forget_all();
        self.clean = None;
    }

    /// The cache-disk is clean, nothing is left to be destaged, and no start will believe a copy.
    pub(super) fn go_past_the_log(&mut self, mode: Mode) {
        assert!(self.log_use.is_clean() && self.cache_is_empty() && !self.has_bypasses());
        self.passing_by = Some(PassingBy { reason: Reason::Mode(mode), ..PassingBy::default() });
        if mode == Mode::PassThrough {
            self.end_reading_ahead();
        }
        self.destage.forget_all_landed_zeroes();
        self.pass_stalled();
    }

    /// Those who waited for the log wait for it no more.
    pub(super) fn pass_stalled(&mut self) {
        let passing = self.passing();
        if passing.last_flush == LastFlush::UnderWay {
            passing.last_flush = LastFlush::Void;
        }
        if passing.look == Look::IsOurs {
            passing.look = Look::None;
        }
        for stalled in std::mem::take(&mut self.stalled) {
            self.pass(stalled.owner, stalled.change, stalled.fua);
        }
    }

    /// Whether what is written in this range is kept as if it had been read.
    fn keeps_what_is_written(&mut self, range: LbaRange) -> bool {
        self.mode_past_the_log() == Some(Mode::WriteThrough)
            && !self.is_scan(range)
            && self.passing().kept_bytes + range.bytes() <= KEPT_BYTES_MAX
    }

    /// Both modes keep copies, and they are true: nothing has to be done for it.
    pub(super) fn change_mode_past_the_log(&mut self, mode: Mode) {
        assert!(mode.keeps_copies() && self.mode_past_the_log().is_some_and(Mode::keeps_copies));
        self.passing().reason = Reason::Mode(mode);
    }

    /// Whether there is a cache-disk that could be used again, and the mode in which it is not.
    pub(super) fn mode_past_the_log(&self) -> Option<Mode> {
        let passing = self.passing_by.as_ref().filter(|passing| passing.stage != Stage::Failed)?;
        match passing.reason {
            Reason::Mode(mode) => Some(mode),
            Reason::Failed | Reason::NoLog => None,
        }
    }

    /// The mode in which the data-disk has failed, if it has.
    pub(super) fn mode_failed_in(&self) -> Option<Mode> {
        let passing = self.passing_by.as_ref().filter(|passing| passing.stage == Stage::Failed)?;
        match passing.reason {
            Reason::Mode(mode) => Some(mode),
            Reason::Failed | Reason::NoLog => Some(Mode::PassThrough),
        }
    }

    pub(super) fn is_past_by_mode(&self) -> bool {
        self.mode_past_the_log().is_some()
    }

    /// Whether a change of this line goes past the log, and has not ended there.
    pub(super) fn is_passed(&self, line: Line) -> bool {
        let range = LbaRange::new(line.lba().0, FRAGMENTS_PER_LINE);
        self.passing_by.as_ref().is_some_and(|passing| passing.is_being_changed(range))
    }

    /// Whether it has failed, or is to be left alone until the end.
    pub(super) fn is_uncached_for_good(&self) -> bool {
        self.passing_by.is_some() && !self.is_past_by_mode()
    }

    /// Whether nothing may be written to the cache-disk, or be believed of it, but what the log
    /// needs: copies are nowhere, and will not be told of changes.
    pub(super) fn has_no_use_for_copies(&self) -> bool {
        let is_past = self.passing_by.is_some();
        self.health.cache_disk_failed()
            || is_past && !self.mode_past_the_log().is_some_and(Mode::keeps_copies)
            || self.mode.is_about_to_pass()
    }

    /// Whether changes and flushes go to the data-disk, or wait until they can.
    pub(super) fn is_passing_by(&self) -> bool {
        self.passing_by.as_ref().is_some_and(|passing| passing.stage != Stage::Failed)
    }

    /// Nothing is logged any more, nor may it be: the cache-disk has failed, or has been left alone
    /// until the data-disk failed.
    pub(super) fn log_is_given_up(&self) -> bool {
        self.health.cache_disk_failed() || self.uncached() == Some(Uncached::Failed)
    }

    /// For the status: not where the mode says so, and all is well.
    pub(super) fn uncached_for_status(&self) -> Option<Uncached> {
        self.uncached().filter(|_| !self.is_past_by_mode())
    }

    /// How far it is.
    pub(super) fn uncached(&self) -> Option<Uncached> {
        self.passing_by.as_ref().map(|passing| match passing.stage {
            Stage::Settling | Stage::WritingThrough | Stage::Flushing => Uncached::WritingThrough,
            Stage::PassingThrough => Uncached::PassingThrough,
            Stage::Failed => Uncached::Failed,
        })
    }

    fn passing(&mut self) -> &mut PassingBy {
        self.passing_by.as_mut().expect("without a cache")
    }

    pub(super) fn advance_uncached(&mut self) -> bool {
        let Some(passing) = &self.passing_by else { return false };
        match passing.stage {
            Stage::Settling => self.settle(),
            Stage::WritingThrough => self.write_through(),
            Stage::PassingThrough => {
                let moved = self.start_changes();
                self.start_uncached_flush() || moved
            }
            Stage::Flushing | Stage::Failed => false,
        }
    }

    /// Step 1.
    fn settle(&mut self) -> bool {
        if self.health.has_late_writes() {
            self.fail_uncached();
            return true;
        }
        // While the cache-disk is clean, nothing is durable that could be destaged.
        assert!(self.destage.is_idle());
        if self.log_is_busy() {
            // It was the write of a copy that failed, and a probe is still under way.
            return false;
        }
        let Some(bypasses) = self.take_bypasses() else { return false };
        // They arrived before those that wait already.
        let later = std::mem::take(&mut self.passing().changes);
        for bypass in bypasses {
            let state = match bypass.data {
                Some(data) => State::WaitingToWrite(data),
                None => {
                    // It is on the data-disk: older copies in the segment buffers are dead.
                    let start = bypass.range.start.line();
                    let lines = bypass.range.end().div_ceil(FRAGMENTS_PER_LINE) - start.0;
                    self.forget_lines(start, lines);
                    self.zeroes.remove(start, lines);
                    self.zeroes_rebuilt.overwritten(start, lines);
                    State::Written
                }
            };
            self.pass_in_state(bypass.id.into(), bypass.range, bypass.fua, state);
        }
        self.passing().changes.extend(later);
        self.plan_write_through();
        self.passing().stage = Stage::WritingThrough;
        true
    }

    // ---- steps 2 to 5: what lies in the segment buffers ---------------------------------------

    fn plan_write_through(&mut self) {
        let blocks = self.data_disk.blocks;
        let zeroes = self.zeroes.iter().map(|zero| {
            let start = zero.line.lba().0;
            let end = (start + zero.lines * FRAGMENTS_PER_LINE).min(blocks);
            Zero { range: LbaRange::new(start, end - start), may_unmap: zero.may_unmap }
        });
        let zeroes = zeroes.collect();
        let mut writes: VecDeque<(u64, Vec<u8>)> = VecDeque::new();
        let mut damaged = Vec::new();
        let mut lines: Vec<Line> = self.table.iter().map(|(line, _)| line).collect();
        lines.sort_unstable();
        for line in lines {
            let mut image = [0; LINE_SIZE as usize];
            let pieces = self.table.find(line);
            for (slot, mask) in pieces.as_slice() {
                let bytes = self.log.slot_in_memory(*slot).expect("kept until durable");
                if crc32c(bytes) != self.table.checksum(*slot) {
                    damaged.push((line, *mask));
                    continue;
                }
                mask.byte_runs().for_each(|run| image[run.clone()].copy_from_slice(&bytes[run]));
            }
            let bad = damaged.iter().filter(|(known, _)| *known == line).map(|(_, mask)| *mask);
            let whole = bad.fold(pieces.mask(), |whole, mask| whole.without(mask));
            for run in whole.byte_runs() {
                let offset = line.lba().byte() + run.start as u64;
                match writes.back_mut() {
                    Some((start, bytes))
                        if *start + bytes.len() as u64 == offset
                            && (bytes.len() as u64) < WRITE_BLOCKS_MAX * BLOCK_SIZE =>
                    {
                        bytes.extend_from_slice(&image[run]);
                    }
                    _ => writes.push_back((offset, image[run].to_vec())),
                }
            }
        }
        for (line, mask) in damaged {
            self.poison(line, mask);
        }
        let passing = self.passing();
        passing.zeroes = zeroes;
        passing.writes =
            writes.into_iter().map(|(offset, bytes)| (offset, Buffer::copy_of(&bytes))).collect();
    }

    /// Step 2, and the beginning of step 3.
    fn write_through(&mut self) -> bool {
        let passing = self.passing();
        if let Some(zero) = passing.zeroes.front() {
            // What lies above a zero range goes after it.
            if passing.in_flight > 0 {
                return false;
            }
            passing.in_flight += 1;
            let zero = *zero;
            self.start_zero_piece(zero, |blocks| Step::LogZero { blocks });
            return true;
        }
        if passing.in_flight < WRITES_IN_FLIGHT_MAX
            && let Some((offset, data)) = passing.writes.pop_front()
        {
            passing.in_flight += 1;
            let purpose = Purpose::Uncached(Step::LogWrite);
            self.start_write(Disk::DataDisk, offset, data, purpose);
            return true;
        }
        if passing.in_flight > 0 {
            return false;
        }
        passing.stage = Stage::Flushing;
        self.start_flush(Disk::DataDisk, Purpose::Uncached(Step::LogFlush));
        true
    }

    /// Starts to zero the beginning of a range, and tells whether by writing zeroes.
    fn start_zero_piece(&mut self, zero: Zero, step: impl FnOnce(u64) -> Step) -> bool {
        let by_writing = self.passing().zeroes_by_writing;
        let most = self.zero_lines_max() * FRAGMENTS_PER_LINE;
        let most = if by_writing { most.min(WRITE_BLOCKS_MAX) } else { most };
        let piece = LbaRange { blocks: zero.range.blocks.min(most), ..zero.range };
        let (offset, length) = (piece.start.byte(), piece.bytes());
        let purpose = Purpose::Uncached(step(piece.blocks));
        if by_writing {
            let zeroes = Buffer::zeroed(length as usize);
            self.start_write(Disk::DataDisk, offset, zeroes, purpose);
            return true;
        }
        let may_unmap = zero.may_unmap;
        let operation = IoOperation::WriteZeroes { offset, length, may_unmap };
        self.start_io(Disk::DataDisk, operation, purpose);
        self.allow_last_io(Engine::zero_allowance(length / LINE_SIZE));
        false
    }

    /// Steps 4 and 5.
    fn leave_the_log(&mut self) {
        self.log.void_memory();
        let lines: Vec<Line> = self.table.iter().map(|(line, _)| line).collect();
        for line in lines {
            self.forget(line, crate::units::FragmentMask::FULL);
        }
        self.zeroes = Default::default();
        self.zeroes_rebuilt = Default::default();
        self.answer_commit_waiters(Ok(()));
        let passing = self.passing();
        passing.stage = Stage::PassingThrough;
        let (flushed, rest): (Vec<Passing>, Vec<Passing>) = std::mem::take(&mut passing.changes)
            .into_iter()
            .partition(|change| matches!(change.state, State::Written));
        passing.changes = rest;
        for change in flushed {
            self.reply(change.owner, Ok(()), None);
        }
    }

    // ---- step 6 -------------------------------------------------------------------------------

    /// A change that does not go to the log.
    pub(super) fn pass(&mut self, owner: Owner, change: Change, fua: bool) {
        let (range, state) = match change {
            // What is in the log already has its place in the order: it may have been seen, and what
            // came after it may be on the data-disk. Written once more it would be above that.
            Change::Write { start, data, blocks_done } => {
                let data = match blocks_done {
                    0 => data,
                    done => Buffer::copy_of(&data.bytes()[(done * BLOCK_SIZE) as usize..]),
                };
                let blocks = data.len() as u64 / BLOCK_SIZE;
                let range = LbaRange { start: Lba(start.0 + blocks_done), blocks };
                (range, State::WaitingToWrite(data))
            }
            Change::Zero { range, may_unmap } => {
                (range, State::WaitingToZero(Zero { range, may_unmap }))
            }
        };
        self.pass_in_state(owner, range, fua, state);
    }

    fn pass_in_state(&mut self, owner: Owner, range: LbaRange, fua: bool, state: State) {
        let fua = fua || self.config.ack == AckMode::Durable;
        let first = range.start.line();
        self.copies_changed(first, range.end().div_ceil(FRAGMENTS_PER_LINE) - first.0);
        self.passing().changes.push(Passing { owner, range, fua, state, kept: None });
    }

    /// A FLUSH: everything that was acknowledged becomes durable on the data-disk.
    pub(super) fn pass_flush(&mut self, id: RequestId) {
        self.passing().flush_waiters.push(id.into());
    }

    /// A drain is the same, and tells what could not be brought there.
    pub(super) fn pass_drain(&mut self, id: RequestId) {
        self.passing().drains.insert(id.into());
        self.pass_flush(id);
    }

    /// Nobody waits for this drain any more. Harmless if it has been answered.
    pub(super) fn cancel_passing_drain(&mut self, id: RequestId) {
        let Some(passing) = &mut self.passing_by else { return };
        let drain = Owner::from(id);
        let mut waiting = passing.flushing.iter().flatten().chain(&passing.flush_waiters);
        let waits = waiting.any(|waiter| *waiter == drain);
        if !passing.drains.remove(&drain) || !waits {
            return;
        }
        passing.flush_waiters.retain(|waiter| *waiter != drain);
        if let Some(covered) = &mut passing.flushing {
            covered.retain(|waiter| *waiter != drain);
        }
        self.reply(drain, Err(RequestError::Cancelled), None);
    }

    fn start_changes(&mut self) -> bool {
        if self.health.has_late_writes() {
            return self.fail_waiting_changes();
        }
        let mut moved = false;
        for index in 0..self.passing().changes.len() {
            let changes = &mut self.passing().changes;
            let (before, rest) = changes.split_at_mut(index);
            let change = &mut rest[0];
            let must_wait = |other: &Passing| {
                !matches!(other.state, State::Written) && other.range.overlaps(change.range)
            };
            if !change.is_waiting() || before.iter().any(must_wait) {
                continue;
            }
            let (owner, range) = (change.owner, change.range);
            moved = true;
            match std::mem::replace(&mut change.state, State::Writing) {
                State::WaitingToWrite(data) => {
                    let step = Step::Change { owner, blocks: range.blocks };
                    if self.keeps_what_is_written(range) {
                        let passing = self.passing();
                        passing.kept_bytes += range.bytes();
                        passing.changes[index].kept = Some(data.clone());
                    }
                    let data = IoData::Owned(data);
                    let operation =
                        IoOperation::Write { offset: range.start.byte(), data, fua: false };
                    self.start_io(Disk::DataDisk, operation, Purpose::Uncached(step));
                }
                State::WaitingToZero(zero) => {
                    let by_writing =
                        self.start_zero_piece(zero, |blocks| Step::Change { owner, blocks });
                    self.passing().changes[index].state = State::Zeroing { left: zero, by_writing };
                }
                _ => unreachable!("looked at"),
            }
        }
        moved
    }

    fn change_done(
        &mut self,
        owner: Owner,
        blocks: u64,
        result: Result<(), IoError>,
        service: Duration,
    ) {
        let passing = self.passing();
        // A flush that failed meanwhile may have been to cover this one.
        let result = match passing.stage {
            Stage::Failed => Err(IoError::Failed),
            _ => result,
        };
        let index =
            passing.changes.iter().position(|change| change.owner == owner).expect("under way");
        let state = std::mem::replace(&mut passing.changes[index].state, State::Writing);
        if let State::Zeroing { left: Zero { range, may_unmap }, by_writing } = state {
            let mut left = range;
            self.zero_piece_ended(blocks, result, service);
            let passing = self.passing();
            match result {
                Ok(()) => left = LbaRange::new(range.start.0 + blocks, range.blocks - blocks),
                // Others may have found that out meanwhile.
                Err(IoError::Unsupported) if !by_writing => passing.zeroes_by_writing = true,
                Err(_) => left.blocks = 0,
            }
            if left.blocks > 0 {
                let zero = Zero { range: left, may_unmap };
                let by_writing =
                    self.start_zero_piece(zero, |blocks| Step::Change { owner, blocks });
                self.passing().changes[index].state = State::Zeroing { left: zero, by_writing };
                return;
            }
        }
        let passing = self.passing();
        let range = passing.changes[index].range;
        let kept = passing.changes[index].kept.take();
        passing.kept_bytes -= kept.as_ref().map_or(0, |bytes| bytes.len() as u64);
        if result.is_ok() && passing.changes[index].fua {
            passing.changes[index].state = State::Written;
        } else {
            // After an error the blocks are as undefined as after a failed write to any disk.
            passing.changes.remove(index);
            self.reply(owner, result.map_err(RequestError::from), None);
        }
        if result.is_ok() {
            self.heal(range);
            if let Some(bytes) = kept {
                self.promote_written(range, bytes.bytes());
            }
        }
    }

    /// How long pieces may be is learnt from each.
    fn zero_piece_ended(&mut self, blocks: u64, result: Result<(), IoError>, service: Duration) {
        match result {
            Ok(()) => self.zeroing_took(blocks.div_ceil(FRAGMENTS_PER_LINE), service),
            Err(IoError::TimedOut) => self.zeroing_was_given_up(),
            Err(_) => {}
        }
    }

    /// What was damaged in these blocks has been overwritten.
    fn heal(&mut self, range: LbaRange) {
        let lines = range.start.line()..Line(range.end().div_ceil(FRAGMENTS_PER_LINE));
        let poisoned: Vec<Line> = self.poisoned.range(lines).map(|(line, _)| *line).collect();
        for line in poisoned {
            self.clear_poison(line, line.mask_within(range));
        }
    }

    /// One flush at a time; those who come meanwhile share the next.
    fn start_uncached_flush(&mut self) -> bool {
        let passing = self.passing();
        if passing.flushing.is_some() || passing.last_flush == LastFlush::UnderWay {
            return false;
        }
        let mut covered = std::mem::take(&mut passing.flush_waiters);
        let written = passing.changes.iter().filter(|c| matches!(c.state, State::Written));
        covered.extend(written.map(|change| change.owner));
        passing.changes.retain(|change| !matches!(change.state, State::Written));
        if covered.is_empty() {
            return false;
        }
        passing.flushing = Some(covered);
        self.start_flush(Disk::DataDisk, Purpose::Uncached(Step::Flush));
        true
    }

    // ---- the ends of I/Os ---------------------------------------------------------------------

    pub(super) fn uncached_io_done(
        &mut self,
        step: Step,
        result: Result<(), IoError>,
        buffer: Option<Buffer>,
        service: Duration,
    ) {
        match step {
            Step::Change { owner, blocks } => self.change_done(owner, blocks, result, service),
            Step::Flush => {
                let covered = self.passing().flushing.take().expect("a flush under way");
                for owner in covered {
                    let is_drain = self.passing().drains.remove(&owner);
                    let result = match result {
                        Ok(()) if is_drain => self.drained(),
                        result => result.map_err(RequestError::from),
                    };
                    self.reply(owner, result, None);
                }
                if result.is_err() {
                    self.fail_uncached();
                }
            }
            Step::Close => self.uncached_close_flushed(result),
            Step::Look => self.looked_at_cache_disk(result.map(|()| buffer)),
            Step::Return => self.return_flushed(result),
            Step::LogZero { .. } | Step::LogWrite | Step::LogFlush => {
                if let Step::LogZero { blocks } = step {
                    self.zero_piece_ended(blocks, result, service);
                }
                self.write_through_done(step, result);
            }
        }
    }

    fn write_through_done(&mut self, step: Step, result: Result<(), IoError>) {
        let passing = self.passing();
        if passing.stage == Stage::Failed {
            return;
        }
        if matches!(step, Step::LogFlush) {
            return match result {
                Ok(()) => self.leave_the_log(),
                Err(_) => self.fail_uncached(),
            };
        }
        passing.in_flight -= 1;
        match (step, result) {
            (Step::LogZero { blocks }, Ok(())) => {
                let zero = passing.zeroes.front_mut().expect("it was being zeroed");
                let (start, left) = (zero.range.start.0 + blocks, zero.range.blocks - blocks);
                zero.range = LbaRange::new(start, left);
                if left == 0 {
                    passing.zeroes.pop_front();
                }
            }
            (Step::LogZero { .. }, Err(IoError::Unsupported)) if !passing.zeroes_by_writing => {
                passing.zeroes_by_writing = true;
            }
            (_, Ok(())) => {}
            (_, Err(_)) => self.fail_uncached(),
        }
    }

    // ---- back to the log ----------------------------------------------------------------------

    /// Steps 2 and 3 of the way back ([`super::mode`]). No change is admitted any more.
    pub(super) fn begin_return(&mut self) -> bool {
        if !self.is_quiet_past_the_log() {
            return false;
        }
        let passing = self.passing();
        match passing.look {
            Look::None => {
                passing.look = Look::UnderWay;
                self.look_at_cache_disk();
                return true;
            }
            Look::UnderWay | Look::Again => return false,
            Look::IsOurs => passing.look = Look::None,
        }
        passing.last_flush = LastFlush::UnderWay;
        self.start_flush(Disk::DataDisk, Purpose::Uncached(Step::Return));
        true
    }

    fn look_at_cache_disk(&mut self) {
        let (offset, purpose) = (self.superblock.offset(), Purpose::Uncached(Step::Look));
        self.start_read(Disk::CacheDisk, offset, SUPERBLOCK_SIZE as u64, purpose);
    }

    /// What was put in its place, or over it, while nobody looked would take changes that no start
    /// could find.
    fn looked_at_cache_disk(&mut self, copy: Result<Option<Buffer>, IoError>) {
        let is_gone = matches!(copy, Err(IoError::Gone | IoError::TimedOut));
        let found = copy.ok().flatten().and_then(|copy| Superblock::decode(copy.bytes()).ok());
        let is_ours = found.is_some_and(|found| {
            (found.uuid, found.generation) == (self.superblock.uuid, self.superblock.generation)
        });
        // Who comes back later looks again.
        let is_returning = self.mode.holds_changes();
        let look = &mut self.passing().look;
        match (is_ours, *look) {
            (true, _) => *look = if is_returning { Look::IsOurs } else { Look::None },
            (false, Look::UnderWay) if !is_gone => {
                *look = Look::Again;
                self.look_at_cache_disk();
            }
            (false, _) => {
                *look = Look::None;
                self.cache_disk_error(IoError::Gone);
            }
        }
    }

    /// Whether nothing is under way there, nor is asked for.
    pub(super) fn is_quiet_past_the_log(&mut self) -> bool {
        let passing = self.passing();
        passing.stage == Stage::PassingThrough
            && passing.changes.is_empty()
            && passing.flush_waiters.is_empty()
            && passing.flushing.is_none()
            && passing.last_flush == LastFlush::None
    }

    /// Behind step 3.
    fn return_flushed(&mut self, result: Result<(), IoError>) {
        let passing = self.passing();
        let last_flush = std::mem::take(&mut passing.last_flush);
        if passing.stage == Stage::Failed {
            return;
        }
        if result.is_err() {
            return self.fail_uncached();
        }
        let is_by_mode = matches!(passing.reason, Reason::Mode(_));
        if last_flush == LastFlush::Void || !is_by_mode {
            return;
        }
        assert!(passing.changes.is_empty(), "none is let past any more");
        // Nothing was changed since that flush began, so it covers these.
        for owner in std::mem::take(&mut passing.flush_waiters) {
            self.reply(owner, Ok(()), None);
        }
        self.past_is_durable();
    }

    /// Step 5 of the way back.
    pub(super) fn log_again_from_here(&mut self) {
        assert!(self.passing().changes.is_empty(), "none is let past any more");
        // Nothing was changed since the last flush.
        let waiting = std::mem::take(&mut self.passing().flush_waiters);
        self.passing_by = None;
        self.end_switch();
        self.log.note_session();
        self.destage.something_changed();
        for owner in waiting {
            self.reply(owner, Ok(()), None);
        }
    }

    // ---- failing and closing ------------------------------------------------------------------

    /// The data-disk has failed, too.
    fn fail_uncached(&mut self) {
        self.passing().stage = Stage::Failed;
        self.fail_waiting_changes();
        let passing = self.passing();
        let mut waiting = std::mem::take(&mut passing.flush_waiters);
        let written = passing.changes.iter().filter(|c| matches!(c.state, State::Written));
        waiting.extend(written.map(|change| change.owner));
        passing.changes.retain(|change| !matches!(change.state, State::Written));
        for owner in waiting {
            self.reply(owner, Err(RequestError::Io), None);
        }
        self.fail_what_waits_for_the_log();
    }

    /// Changes that are not under way.
    fn fail_waiting_changes(&mut self) -> bool {
        let passing = self.passing();
        let (failed, kept): (Vec<Passing>, Vec<Passing>) =
            std::mem::take(&mut passing.changes).into_iter().partition(Passing::is_waiting);
        passing.changes = kept;
        let moved = !failed.is_empty();
        for change in failed {
            self.reply(change.owner, Err(RequestError::Io), change.into_buffer());
        }
        moved
    }

    /// Without a cache-disk there is nothing to mark: the end is in order when the data-disk was
    /// flushed. One that was left alone from the start on is marked then.
    pub(super) fn advance_uncached_close(&mut self) -> bool {
        let reads_ended = self.reads.is_empty();
        let passing = self.passing();
        let is_quiet = passing.stage == Stage::PassingThrough
            && reads_ended
            && passing.changes.is_empty()
            && passing.flush_waiters.is_empty()
            && passing.flushing.is_none();
        if !is_quiet || passing.is_closing {
            return false;
        }
        passing.is_closing = true;
        self.note_what_is_lost();
        if !self.below.begin_close() {
            self.flush_uncached_close();
        }
        true
    }

    /// Behind the labels of a volume; those of an end that had begun with the cache-disk are not
    /// waited for.
    pub(super) fn flush_uncached_close(&mut self) {
        if !self.passing().is_closing {
            return;
        }
        self.start_flush(Disk::DataDisk, Purpose::Uncached(Step::Close));
    }

    fn uncached_close_flushed(&mut self, result: Result<(), IoError>) {
        let is_left_alone = self.passing().reason == Reason::NoLog && !self.below.is_volume();
        match result {
            // What a memory in front has held is on the data-disk now, and is missed no more.
            Ok(()) if is_left_alone => self.mark_closed(),
            result => self.close_io_done(result),
        }
    }
}
