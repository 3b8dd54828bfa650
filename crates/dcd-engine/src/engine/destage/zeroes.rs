//! Zeroed ranges to the data-disk: step by step as a [`super::batch`], with nothing to read.
//!
//! A *round* brings as much of them there as the disk does in a moment
//! ([`crate::engine::zero_pace`]), and flushes: what is there then is not begun again, whatever
//! comes after. Ranges under lines that cannot be destaged because of them go first, and after each
//! round a batch has its turn: who waits for room in the log must not wait until all is zeroed.

use std::collections::VecDeque;

use super::batch::RUN_LINES_MAX;
use super::{RETRY_MAX, RETRY_MIN, Step, Work};
use crate::buffer::Buffer;
use crate::engine::Disk;
use crate::engine::pace::Go;
use crate::engine::{Engine, Purpose};
use crate::format::checksum::crc32c;
use crate::io::{IoError, IoOperation};
use crate::units::{BLOCK_SIZE, Duration, FRAGMENTS_PER_LINE, LINE_SIZE, LbaRange, Line, Time};
use crate::zero_ranges::{ZeroRange, ZeroRanges};

/// Most operations in a round.
const ZERO_OPERATIONS_MAX: usize = 64;
/// Around a line that waits for the zeroes below it, this much is zeroed together, aligned: 1 MiB.
const WANTED_LINES: u64 = 256;
/// Pieces that could not be zeroed of which that is remembered; the others are tried as ever.
const ZEROES_BAD_MAX: usize = 256;

/// Ranges on their way: a round.
#[derive(Default)]
pub(super) struct ZeroWork {
    to_start: VecDeque<ZeroRange>,
    /// In all of them.
    lines: u64,
    /// The longest that one of them took.
    took: Duration,
    in_flight: u32,
    /// Nothing of it counts.
    failed: bool,
    /// These could not be zeroed, or were not tried.
    left: Vec<ZeroRange>,
    flushing: bool,
}

/// A piece that could not be zeroed.
pub(super) struct BadZeroes {
    line: Line,
    lines: u64,
    /// Not before then.
    pub(super) until: Time,
    wait: Duration,
}

impl ZeroWork {
    /// Writes that have not ended.
    pub(super) fn writes_in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Nothing of it is under way.
    pub(super) fn is_at_rest(&self) -> bool {
        self.in_flight == 0 && !self.flushing
    }

    /// What it has written does not count.
    pub(super) fn fail(&mut self) {
        self.failed = true;
    }
}

impl Engine {
    pub(super) fn start_zero_work(&mut self) -> bool {
        if self.checkpoint.goes_before_zeroes() {
            return false;
        }
        // Their flush would wait for records of a volume that grows, that for a checkpoint of the
        // log, and that for them.
        if self.is_volume_growing() {
            return false;
        }
        // They must be durable in the log first (C10); their records are, when all records are.
        if self.zeroes.is_empty() {
            return false;
        }
        if !self.zeroes_to_ship_are_durable() {
            if self.destage_is_urgent() {
                self.want_durable(self.destage.zeroes_record);
            }
            return false;
        }
        let to_start = match self.landed_zeroes() {
            Some(landed) => {
                self.begin_round(&landed);
                VecDeque::new()
            }
            None => {
                let pieces = self.choose_zero_pieces();
                if pieces.is_empty() {
                    return false;
                }
                self.begin_round(&pieces);
                pieces.into()
            }
        };
        let lines = to_start.iter().map(|piece| piece.lines).sum();
        self.destage.work = Work::Zero(ZeroWork { to_start, lines, ..ZeroWork::default() });
        true
    }

    fn begin_round(&mut self, pieces: &[ZeroRange]) {
        for piece in pieces {
            self.zeroes.remove(piece.line, piece.lines);
            self.zeroes_destaging.insert(*piece);
            // Lines may come between: those are zeroed once more, in the next window.
            let again = self.windows.zeroed_behind(piece);
            again.into_iter().for_each(|part| self.zeroes.insert(part));
        }
    }

    /// What was given up and has landed after all: nothing else was written there since, so it
    /// needs only a flush.
    fn landed_zeroes(&mut self) -> Option<Vec<ZeroRange>> {
        let mut landed = Vec::new();
        for (line, lines) in std::mem::take(&mut self.destage.zeroes_landed) {
            let parts = self.zeroes_to_ship().parts_within(line, lines);
            let is_whole = parts.iter().map(|part| part.lines).sum::<u64>() == lines;
            if is_whole && !self.is_bypassed(line, lines) {
                landed.extend(parts);
            }
        }
        (!landed.is_empty()).then_some(landed)
    }

    /// The pieces of a round, disjoint.
    fn choose_zero_pieces(&mut self) -> Vec<ZeroRange> {
        let piece_max = match self.destage.zeroes_by_writing {
            true => RUN_LINES_MAX,
            false => u64::MAX,
        };
        let mut left = self.zero_lines_max();
        let mut pieces: Vec<ZeroRange> = Vec::new();
        for line in std::mem::take(&mut self.destage.zeroes_wanted) {
            // A piece out of the middle makes two ranges of one.
            let growth = (pieces.len() + 1) * ZeroRanges::GROWTH_BY_REMOVE;
            if left == 0
                || pieces.len() >= ZERO_OPERATIONS_MAX
                || !self.may_gather_zero_ranges(growth)
                || pieces.iter().any(|piece| piece.overlaps(line, 1))
            {
                continue;
            }
            let start = line.0 / WANTED_LINES * WANTED_LINES;
            let around = start.max(line.0.saturating_sub(left - 1))..start + WANTED_LINES;
            let Some(part) = self.zeroes_to_ship().part_around(line, around) else { continue };
            let lines = part.lines.min(left).min(piece_max);
            let piece = ZeroRange { lines, ..part };
            if self.zero_piece_of(piece.line, lines) == (lines, true)
                && self.below.zeroes_that_can_be_written(piece.line, lines)
                    == Some((piece.line, lines))
                && !self.is_bypassed(piece.line, lines)
                && !self.is_read_below_zeroes(piece.line, lines)
                && !pieces.iter().any(|other| other.overlaps(piece.line, lines))
            {
                left -= lines;
                pieces.push(piece);
            }
        }
        for range in self.zeroes_to_ship().iter() {
            let (mut start, end) = (range.line.0, range.line.0 + range.lines);
            while start < end && left > 0 && pieces.len() < ZERO_OPERATIONS_MAX {
                let (part, may_go) = self.zero_piece_of(Line(start), end - start);
                if !may_go {
                    start += part;
                    continue;
                }
                // Parts of extents whose member is away wait, and hold up no others.
                let Some((first, part)) = self.below.zeroes_that_can_be_written(Line(start), part)
                else {
                    break;
                };
                start = first.0;
                let lines = part.min(left).min(piece_max);
                if pieces.iter().any(|piece| piece.overlaps(Line(start), lines)) {
                    break;
                }
                if !self.is_bypassed(Line(start), lines)
                    && !self.is_read_below_zeroes(Line(start), lines)
                {
                    left -= lines;
                    pieces.push(ZeroRange { line: Line(start), lines, ..range });
                }
                start += lines;
            }
            if left == 0 || pieces.len() >= ZERO_OPERATIONS_MAX {
                break;
            }
        }
        pieces
    }

    /// Whether a read that began before these lines were zeroed takes some of them from the
    /// data-disk. If zeroing fails, nobody knows what is there, and that is no answer to any read.
    fn is_read_below_zeroes(&self, line: Line, lines: u64) -> bool {
        let end = (line.lba().0 + lines * FRAGMENTS_PER_LINE).min(self.data_disk.blocks);
        self.is_read_below_the_log(LbaRange::new(line.lba().0, end - line.lba().0))
    }

    /// Zeroes that were given up have landed after all (`io.rs`, rule 3: everything ends). Until
    /// now nothing else was written to the data-disk, so they are not begun again.
    pub(in crate::engine) fn zeroes_came_late(&mut self, line: Line, lines: u64) {
        self.destage.zeroes_landed.push((line, lines));
    }

    pub(super) fn advance_zero_work(&mut self) -> bool {
        let go = self.may_destage(self.destage.ios_in_flight());
        let stop = self.close_wants_no_destage() || self.checkpoint.goes_before_zeroes();
        let Work::Zero(work) = &mut self.destage.work else {
            unreachable!("called for zero work");
        };
        if work.flushing {
            return false;
        }
        if stop {
            work.left.extend(work.to_start.drain(..));
        }
        if let Some(piece) = work.to_start.front().copied() {
            let ZeroRange { line, lines, may_unmap } = piece;
            let one_at_a_time = self.destage.trouble.is_trying() && !self.below.is_volume();
            let Work::Zero(work) = &mut self.destage.work else {
                unreachable!("called for zero work");
            };
            if go != Go::Now || one_at_a_time && work.in_flight > 0 {
                return false;
            }
            work.to_start.pop_front();
            work.in_flight += 1;
            let end = (line.lba().0 + lines * FRAGMENTS_PER_LINE).min(self.data_disk.blocks);
            let length = end * BLOCK_SIZE - line.lba().byte();
            let offset = line.lba().byte();
            let allowance = Engine::zero_allowance(work.lines);
            let purpose = Purpose::Destage(Step::WriteZeroes(piece));
            if self.destage.zeroes_by_writing {
                let zeroes = Buffer::zeroed(length as usize);
                self.start_write(Disk::DataDisk, offset, zeroes, purpose);
                self.allow_last_io(allowance);
                return true;
            }
            let operation = IoOperation::WriteZeroes { offset, length, may_unmap };
            self.start_io(Disk::DataDisk, operation, purpose);
            self.allow_last_io(allowance);
            return true;
        }
        if work.in_flight > 0 {
            return false;
        }
        work.flushing = true;
        // What the disk has only taken into its cache is written now.
        let allowance = Engine::zero_allowance(work.lines);
        self.start_flush(Disk::DataDisk, Purpose::Destage(Step::Flush));
        self.allow_last_io(allowance);
        true
    }

    pub(super) fn zeroes_written(
        &mut self,
        piece: ZeroRange,
        result: Result<(), IoError>,
        service: Duration,
    ) {
        self.pace.write_done(self.now, service);
        let Work::Zero(work) = &mut self.destage.work else {
            unreachable!("zeroes are written for zero work");
        };
        work.in_flight -= 1;
        work.took = work.took.max(service);
        let Err(error) = result else {
            self.destage.trouble.has_written();
            return self.zeroes_are_not_bad(piece);
        };
        work.left.push(piece);
        if error == IoError::Unsupported {
            self.destage.zeroes_by_writing = true;
            return;
        }
        if error == IoError::TimedOut {
            self.zeroing_was_given_up();
        }
        if self.destage_failed(error, !self.is_bad_zeroes(piece)) {
            if let Work::Zero(work) = &mut self.destage.work {
                work.left.extend(work.to_start.drain(..));
            }
            return;
        }
        self.zeroes_are_bad(piece);
    }

    fn is_bad_zeroes(&self, piece: ZeroRange) -> bool {
        self.destage.zeroes_bad.iter().any(|bad| bad.line == piece.line)
    }

    fn zeroes_are_not_bad(&mut self, piece: ZeroRange) {
        self.destage.zeroes_bad.retain(|bad| bad.line != piece.line);
    }

    /// As with lines that fail ([`super::trouble`]): halves, then longer waits, and the others go
    /// on (C24).
    fn zeroes_are_bad(&mut self, piece: ZeroRange) {
        let ZeroRange { line, lines, .. } = piece;
        let before = self.destage.zeroes_bad.iter().position(|bad| bad.line == line);
        let before = before.map(|index| self.destage.zeroes_bad.swap_remove(index).wait);
        let longer = before.map_or(RETRY_MIN, |wait| Duration(wait.0 * 2).min(RETRY_MAX));
        let wait = if lines > 1 { RETRY_MIN } else { longer };
        let until = self.now.after(wait);
        let half = lines / 2;
        for (line, lines) in [(line, half), (Line(line.0 + half), lines - half)] {
            if lines > 0 && self.destage.zeroes_bad.len() < ZEROES_BAD_MAX {
                self.destage.zeroes_bad.push(BadZeroes { line, lines, until, wait });
            }
        }
    }

    /// How much of the beginning of this range is one piece, and whether that may go now.
    fn zero_piece_of(&self, line: Line, lines: u64) -> (u64, bool) {
        let end = line.0 + lines;
        let mut piece_end = end;
        for bad in &self.destage.zeroes_bad {
            let bad_end = bad.line.0 + bad.lines;
            if bad.line <= line && line.0 < bad_end {
                return (bad_end.min(end) - line.0, bad.until <= self.now);
            }
            if bad.line > line {
                piece_end = piece_end.min(bad.line.0);
            }
        }
        (piece_end - line.0, true)
    }

    /// When what could not be zeroed is tried again.
    pub(super) fn bad_zeroes_wake_up(&self) -> Option<Time> {
        let waits = self.destage.zeroes_bad.iter().map(|bad| bad.until);
        waits.filter(|until| *until > self.now).min()
    }

    pub(super) fn zeroes_flushed(&mut self, result: Result<(), IoError>, service: Duration) {
        let Work::Zero(work) = std::mem::take(&mut self.destage.work) else {
            unreachable!("flushed for zero work");
        };
        self.destage.something_changed();
        let ranges = std::mem::take(&mut self.zeroes_destaging);
        let all_failed = result.is_err() || work.failed;
        let left: Vec<ZeroRange> = match all_failed {
            // All of them again: zeroing twice does no harm.
            true => ranges.iter().collect(),
            false => work.left,
        };
        let mut done = ranges;
        if !left.is_empty() {
            // What was zeroed again meanwhile is of the kind that it was told last.
            let newer = std::mem::take(&mut self.zeroes);
            for piece in &left {
                done.remove(piece.line, piece.lines);
                self.zeroes.insert(*piece);
                // Some of it may be zero on the data-disk by now.
                for witness in self.witnesses.within(piece.line, piece.lines) {
                    self.witnesses.forget(witness);
                }
            }
            newer.iter().for_each(|range| self.zeroes.insert(range));
        }
        self.zeroes_rebuilt.destaged(&self.zeroes);
        self.windows.zeroes_shipped(&done);
        for range in done.iter() {
            for witness in self.witnesses.within(range.line, range.lines) {
                self.witnesses.set(witness, crc32c(&[0; LINE_SIZE as usize]));
            }
            self.counters.destaged_zero_ranges += 1;
        }
        self.destage.zeroes_bad.retain(|bad| self.zeroes.overlaps(bad.line, bad.lines));
        match result {
            Err(error) => {
                if error == IoError::TimedOut {
                    self.zeroing_was_given_up();
                }
                self.data_disk_flush_failed(error);
                self.destage_flush_failed(error);
            }
            Ok(()) if work.failed => self.back_off(),
            Ok(()) if left.is_empty() => {
                self.zeroing_took(work.lines, work.took.max(service));
                self.destage.retry = None;
            }
            // What failed waits by itself.
            Ok(()) => {}
        }
    }
}
