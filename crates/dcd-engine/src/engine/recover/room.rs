//! Before step 7 of recovery: the log is replayed to more zero ranges than a checkpoint may list.
//!
//! A log of ours never is ([`crate::log::rebuilt_zeroes`]), but older versions kept their limit
//! only for what was zero at the time, and wrote checkpoints that list more.
//!
//! ```text
//! 1. All that was replayed is durable (step 6), so it may go to the data-disk (C10).
//! 2. Zero the shortest ranges there.   Crash here: they are replayed and zeroed again.
//! 3. Flush the data-disk.              Crash here: the same.
//! 4. Take them out of the index: the next checkpoint lists what is left.
//! ```

use super::{Stage, Step};
use crate::buffer::Buffer;
use crate::engine::Disk;
use crate::engine::{Engine, Purpose};
use crate::error::OpenError;
use crate::format::checksum::crc32c;
use crate::io::{IoError, IoOperation};
use crate::units::{BLOCK_SIZE, FRAGMENTS_PER_LINE, LINE_SIZE};
use crate::zero_ranges::ZeroRange;

/// Operations under way together.
const OPERATIONS_AT_ONCE: usize = 64;
/// Most lines in one of them, 1 MiB: a disk that must write them does so within any time-out.
const PIECE_LINES_MAX: u64 = 256;

/// Ranges on their way to the data-disk.
#[derive(Default)]
pub(super) struct Room {
    ranges: Vec<ZeroRange>,
    /// What is still to be started of them.
    pieces: Vec<ZeroRange>,
    /// Pieces that failed, and how.
    failed: Vec<(ZeroRange, IoError)>,
    /// The data-disk cannot zero a range: zeroes are written to it.
    by_writing: bool,
}

impl Engine {
    /// Goes on at once if there is room, as there always is after a session of this version.
    pub(super) fn make_room(&mut self) {
        let most = self.config.limits.zero_ranges;
        if self.zeroes.len() <= most {
            return self.start_session();
        }
        let mut ranges: Vec<ZeroRange> = self.zeroes.iter().collect();
        ranges.sort_by_key(|range| range.lines);
        ranges.truncate(ranges.len() - most / 2);
        let pieces = ranges.iter().rev().flat_map(|range| pieces_of(*range)).collect();
        let recovery = self.recovery();
        recovery.room = Room { ranges, pieces, ..Room::default() };
        recovery.stage = Stage::Zeroes;
    }

    /// Steps 2 and 3, when all that was started has ended.
    pub(super) fn zero_for_room(&mut self) {
        let room = &mut self.recovery().room;
        let left = room.pieces.len().saturating_sub(OPERATIONS_AT_ONCE);
        let pieces = room.pieces.split_off(left);
        let by_writing = room.by_writing;
        if pieces.is_empty() {
            let recovery = self.recovery();
            recovery.stage = Stage::ZeroesFlush;
            recovery.ios_left = 1;
            let flush = Purpose::Recover(Step::Flush(Disk::DataDisk));
            return self.start_flush(Disk::DataDisk, flush);
        }
        self.recovery().ios_left = pieces.len() as u32;
        for piece in pieces {
            let offset = piece.line.lba().byte();
            let end = piece.line.lba().0 + piece.lines * FRAGMENTS_PER_LINE;
            let length = end.min(self.data_disk.blocks) * BLOCK_SIZE - offset;
            let purpose = Purpose::Recover(Step::Zero(piece));
            if by_writing {
                let zeroes = Buffer::zeroed(length as usize);
                self.start_write(Disk::DataDisk, offset, zeroes, purpose);
            } else {
                let may_unmap = piece.may_unmap;
                let operation = IoOperation::WriteZeroes { offset, length, may_unmap };
                self.start_io(Disk::DataDisk, operation, purpose);
            }
        }
    }

    pub(super) fn zeroed_for_room(&mut self, piece: ZeroRange, result: Result<(), IoError>) {
        let room = &mut self.recovery().room;
        match result {
            Ok(()) => {}
            Err(IoError::Unsupported) if !room.by_writing => {
                room.by_writing = true;
                room.pieces.push(piece);
            }
            // Others of the same batch.
            Err(IoError::Unsupported) => room.pieces.push(piece),
            Err(error) => room.failed.push((piece, error)),
        }
    }

    /// Step 4.
    pub(super) fn take_room(&mut self) {
        let room = std::mem::take(&mut self.recovery().room);
        for range in room.ranges {
            if room.failed.iter().any(|(piece, _)| range.contains(piece)) {
                continue;
            }
            self.zeroes.remove(range.line, range.lines);
            for witness in self.witnesses.within(range.line, range.lines) {
                self.witnesses.set(witness, crc32c(&[0; LINE_SIZE as usize]));
            }
            self.counters.destaged_zero_ranges += 1;
        }
        self.zeroes_rebuilt.destaged(&self.zeroes);
        match room.failed.first() {
            Some((piece, error)) if self.zeroes.len() > self.config.limits.zero_ranges => {
                let (device, offset, error) = (Disk::DataDisk, piece.line.lba().byte(), *error);
                self.fail_open(OpenError::Io { device: device.into(), offset, error });
            }
            _ => self.start_session(),
        }
    }
}

fn pieces_of(range: ZeroRange) -> impl Iterator<Item = ZeroRange> {
    (0..range.lines.div_ceil(PIECE_LINES_MAX)).map(move |index| {
        let start = index * PIECE_LINES_MAX;
        ZeroRange {
            line: crate::units::Line(range.line.0 + start),
            lines: PIECE_LINES_MAX.min(range.lines - start),
            ..range
        }
    })
}
