//! Zeroed ranges to the data-disk: step by step as a [`super::batch`], with nothing to read.

use std::collections::VecDeque;

use super::batch::RUN_LINES_MAX;
use super::{Step, Work};
use crate::buffer::Buffer;
use crate::engine::pace::Go;
use crate::engine::{Engine, Purpose};
use crate::format::checksum::crc32c;
use crate::io::{Device, IoError, IoOperation};
use crate::log::zero_ranges::ZeroRange;
use crate::seeded_bugs::{SeededBug, seeded};
use crate::units::{BLOCK_SIZE, Duration, FRAGMENTS_PER_LINE, LINE_SIZE, Line};

/// Most ranges brought to the data-disk before a flush, and most lines in one of its operations
/// (1 GiB).
const ZERO_OPERATIONS_MAX: usize = 64;
const ZERO_LINES_MAX: u64 = (1 << 30) / LINE_SIZE;

/// Ranges on their way.
#[derive(Default)]
pub(super) struct ZeroWork {
    to_start: VecDeque<ZeroRange>,
    in_flight: u32,
    failed: bool,
    flushing: bool,
}

impl ZeroWork {
    /// Writes that have not ended.
    pub(super) fn writes_in_flight(&self) -> u32 {
        self.in_flight
    }

    /// What it has written does not count.
    pub(super) fn fail(&mut self) {
        self.failed = true;
    }
}

impl Engine {
    pub(super) fn start_zero_work(&mut self) -> bool {
        // They must be durable in the log first (C10); their records are, when all records are.
        if self.zeroes.is_empty() {
            return false;
        }
        let record = self.destage.zeroes_record;
        if record > self.log.durable_record() && !seeded(SeededBug::ZeroesBeforeDurable) {
            if self.destage_is_urgent() {
                self.want_durable(record);
            }
            return false;
        }
        let lines_max = match self.destage.zeroes_by_writing {
            true => RUN_LINES_MAX,
            false => ZERO_LINES_MAX,
        };
        let mut to_start = VecDeque::new();
        for range in self.zeroes.iter() {
            if to_start.len() >= ZERO_OPERATIONS_MAX {
                break;
            }
            let lines = range.lines.min(lines_max);
            // Parts of extents whose member is away wait, and hold up no others.
            let Some((line, lines)) = self.zeroes_that_can_go(range.line, lines) else { continue };
            let piece = ZeroRange { line, lines, ..range };
            if !self.is_bypassed(piece.line, piece.lines) {
                to_start.push_back(piece);
            }
        }
        if to_start.is_empty() {
            return false;
        }
        for piece in &to_start {
            self.zeroes.remove(piece.line, piece.lines);
            self.zeroes_destaging.insert(*piece);
        }
        self.destage.work = Work::Zero(ZeroWork { to_start, ..ZeroWork::default() });
        true
    }

    fn zeroes_that_can_go(&self, line: Line, lines: u64) -> Option<(Line, u64)> {
        match &self.volume {
            Some(volume) if volume.away() != 0 => volume.zeroes_that_can_be_written(line, lines),
            _ => Some((line, lines)),
        }
    }

    pub(super) fn advance_zero_work(&mut self) -> bool {
        let go = self.may_destage(self.destage.ios_in_flight());
        let stop = self.close_wants_no_destage();
        let Work::Zero(work) = &mut self.destage.work else {
            unreachable!("called for zero work");
        };
        if work.flushing {
            return false;
        }
        if stop && !work.to_start.is_empty() {
            work.to_start.clear();
            work.failed = true;
        }
        if let Some(ZeroRange { line, lines, may_unmap }) = work.to_start.front().copied() {
            if go != Go::Now {
                return false;
            }
            work.to_start.pop_front();
            work.in_flight += 1;
            let end = (line.lba().0 + lines * FRAGMENTS_PER_LINE).min(self.data_disk.blocks);
            let length = end * BLOCK_SIZE - line.lba().byte();
            let offset = line.lba().byte();
            let purpose = Purpose::Destage(Step::WriteZeroes);
            if self.destage.zeroes_by_writing {
                let zeroes = Buffer::zeroed(length as usize);
                self.start_write(Device::DataDisk, offset, zeroes, purpose);
                return true;
            }
            let operation = IoOperation::WriteZeroes { offset, length, may_unmap };
            self.start_io(Device::DataDisk, operation, purpose);
            return true;
        }
        if work.in_flight > 0 {
            return false;
        }
        work.flushing = true;
        self.start_flush(Device::DataDisk, Purpose::Destage(Step::Flush));
        true
    }

    pub(super) fn zeroes_written(&mut self, result: Result<(), IoError>, service: Duration) {
        self.pace.write_done(self.now, service);
        let Work::Zero(work) = &mut self.destage.work else {
            unreachable!("zeroes are written for zero work");
        };
        work.in_flight -= 1;
        work.failed |= result.is_err();
        self.destage.zeroes_by_writing |= result == Err(IoError::Unsupported);
    }

    pub(super) fn zeroes_flushed(&mut self, result: Result<(), IoError>) {
        let Work::Zero(work) = std::mem::take(&mut self.destage.work) else {
            unreachable!("flushed for zero work");
        };
        self.destage.something_changed();
        let ranges = std::mem::take(&mut self.zeroes_destaging);
        let failed = result.is_err() || work.failed;
        if failed && !seeded(SeededBug::FailedZeroesForgotten) {
            // All of them again: zeroing twice does no harm.
            self.zeroes = self.zeroes_rebuilt.listed().clone();
            for range in ranges.iter() {
                // Some of it may be zero on the data-disk by now.
                for witness in self.witnesses.within(range.line, range.lines) {
                    self.witnesses.forget(witness);
                }
            }
            if result.is_err() {
                self.data_disk_flush_failed();
            }
            return self.back_off();
        }
        self.zeroes_rebuilt.destaged(&self.zeroes);
        for range in ranges.iter() {
            for witness in self.witnesses.within(range.line, range.lines) {
                self.witnesses.set(witness, crc32c(&[0; LINE_SIZE as usize]));
            }
            self.counters.destaged_zero_ranges += 1;
        }
        self.destage.retry = None;
    }
}
