//! Step 6 of recovery: what is not known to be durable is written again before it is believed
//! (C22).
//!
//! A flush that ends well tells nothing of what was written before a flush that failed: the kernel
//! may have dropped what it could not write, and go on showing it. Whoever saw the failure is gone:
//! a session that died, or a start that was refused. So whatever this start reads and builds on,
//! and that nothing proves to be durable, it writes itself, and believes only the flush behind
//! that.
//!
//! | read | proof that it is durable | else |
//! |---|---|---|
//! | record in the segment memory | none is looked for: a rotten copy on the disk is repaired | written from there |
//! | record on the cache-disk | the segment memory of its session survived, and holds all that is not; a later record says so (`durable`); records behind it were logged again | written as read |
//! | checkpoint | a record says so (`checkpoint_generation`), or the superblock was closed behind it | read and written a piece at a time |
//! | superblock | none | not written: see below |
//!
//! So without the segment memory (it is lost, or of another boot) it is the tail of the log that is
//! written again: as much as the segment buffers held, at most.
//!
//! ```text
//! 1. Write those records and the checkpoint to where they were read. Of records from the segment
//!    memory the oldest waits for step 2.
//!      Crash here: what was durable is overwritten by the same bytes, and stays. What was not is
//!      as torn or absent as it had been: a record is then the end of the log; behind the
//!      checkpoint before it the chain is whole, because segments that a checkpoint sets free are
//!      filled only when it is durable. Nothing that depends on them has been shown.
//! 2. Flush, then write the oldest.
//!      It is what joins the rest to the log, so of an empty log a crash leaves nothing or all,
//!      even if it takes the memory: a session that went on without its cache-disk had perhaps
//!      begun to write all of it to the data-disk (C23), and that must not look like someone else's
//!      change to the witnesses.
//! 3. Flush both disks. If any of this fails the start is refused; the next one begins with step 1.
//!      Crash here: they are durable.
//! 4. Only now is the other checkpoint area written (step 7 of recovery): if the newer checkpoint
//!    were only shown, the older one would be the only one that a power cut leaves.
//! ```
//!
//! The superblock needs no rewriting. If the newest copy is only shown, the one before it counts
//! after a power cut, and it leads to the same log: a start takes any checkpoint that is not older
//! than the session of its superblock. The next copy is written over the older one, in one sector.

use std::ops::Range;

use super::{Engine, Recovery, Stage, Step};
use crate::buffer::Buffer;
use crate::engine::Disk;
use crate::engine::Purpose;
use crate::error::{FormatError, OpenError};
use crate::format::checkpoint::HEADER_SIZE;
use crate::format::checksum::crc32c;
use crate::format::superblock::CacheState;
use crate::io::{Device, IoError};
use crate::units::RecordNumber;

/// Where the bytes of a record of the chain are.
pub(super) enum Source {
    /// In the segment memory, where it survived.
    Memory(Range<usize>),
    /// Here, as they were read from the cache-disk.
    Disk(Buffer),
    /// Only on the cache-disk, durably.
    Durable,
}

impl Source {
    pub(super) fn is_memory(&self) -> bool {
        matches!(self, Source::Memory(_))
    }
}

/// A write of what is there already, or is shown to be.
pub(super) struct Rewrite {
    /// Byte address on the cache-disk.
    offset: u64,
    source: Source,
}

/// The checkpoint, read again and written where it was read, in the order of its payload, and the
/// header last.
pub(super) struct CheckpointCopy {
    /// Of its area.
    offset: u64,
    header: Buffer,
    /// Length and checksum of each piece of the payload, as it was loaded. A disk that shows
    /// something else by now has dropped what it could not write, or reads badly: there is nothing
    /// to build on, and that must not be written over what may be whole.
    pieces: Vec<(u64, u32)>,
    /// Pieces that were written, or are on their way, and their bytes.
    written: usize,
    written_bytes: u64,
}

impl CheckpointCopy {
    pub(super) fn new(offset: u64, header: Buffer, pieces: Vec<(u64, u32)>) -> CheckpointCopy {
        CheckpointCopy { offset, header, pieces, written: 0, written_bytes: 0 }
    }

    /// Where the next piece belongs.
    fn at(&self) -> u64 {
        self.offset + HEADER_SIZE as u64 + self.written_bytes
    }
}

impl Recovery {
    /// Every record up to `durable` is durable: bytes that were kept of them are not needed.
    pub(super) fn forget_durable(&mut self, durable: RecordNumber) {
        while let Some(found) = self.found.get_mut(self.found_durable)
            && found.record.header.number <= durable
        {
            if matches!(found.source, Source::Disk(_)) {
                found.source = Source::Durable;
            }
            self.found_durable += 1;
        }
    }
}

impl Engine {
    /// The chain ends, and every record of it up to `durable` is known to be durable.
    pub(super) fn plan_rewrites(&mut self, durable: RecordNumber) {
        let geometry = self.superblock.geometry;
        if self.checkpoint_is_known_durable() {
            self.recovery().checkpoint_copy = None;
        }
        let recovery = self.recovery();
        recovery.forget_durable(durable);
        for found in &mut recovery.found {
            let header = found.record.header;
            let slot = geometry.slot(header.segment, header.slot_in_segment);
            let source = match &mut found.source {
                Source::Durable => continue,
                Source::Memory(range) => Source::Memory(range.clone()),
                Source::Disk(bytes) => Source::Disk(std::mem::take(bytes)),
            };
            recovery.rewrites.push(Rewrite { offset: geometry.slot_offset(slot), source });
        }
    }

    fn checkpoint_is_known_durable(&self) -> bool {
        let recovery = self.recovery.as_ref().expect("recovery is under way");
        let checkpoint = recovery.checkpoint.as_ref().expect("read");
        let records = recovery.found.iter().map(|found| &found.record).chain(&recovery.later);
        let newest = records.map(|record| record.header.checkpoint_generation).max();
        // The superblock that ends a session is written behind its last checkpoint; one of a later
        // session is of a start that was interrupted.
        let was_closed = self.superblock.state != CacheState::Open;
        newest >= Some(checkpoint.generation)
            || was_closed && checkpoint.epoch < self.superblock.generation
    }

    /// Step 1: the checkpoint, if there is a copy to be made, a piece at a time.
    pub(super) fn write_checkpoint_again(&mut self) {
        let recovery = self.recovery();
        recovery.stage = Stage::CheckpointAgain;
        let Some(copy) = &recovery.checkpoint_copy else { return self.start_rewrites() };
        let (at, next) = (copy.at(), copy.pieces.get(copy.written).copied());
        recovery.ios_left = 1;
        if let Some((length, _)) = next {
            let purpose = Purpose::Recover(Step::CheckpointAgain);
            return self.start_read(Disk::CacheDisk, at, length, purpose);
        }
        let copy = recovery.checkpoint_copy.take().expect("looked at");
        let purpose = Purpose::Recover(Step::Rewrite);
        self.start_write(Disk::CacheDisk, copy.offset, copy.header, purpose);
    }

    pub(super) fn checkpoint_piece_read_again(&mut self, piece: Result<Buffer, IoError>) {
        let copy = self.recovery().checkpoint_copy.as_mut().expect("it was read for it");
        let (at, (length, expected)) = (copy.at(), copy.pieces[copy.written]);
        let piece = match piece {
            Ok(piece) => piece,
            Err(error) => {
                let device = Device::CacheDisk;
                return self.fail_open(OpenError::Io { device, offset: at, error });
            }
        };
        let found = crc32c(piece.bytes());
        if found != expected {
            let what = "the payload of the checkpoint, which is read for the second time,";
            let error = FormatError::Checksum { what, expected, found };
            return self.fail_open(OpenError::Format(error));
        }
        copy.written += 1;
        copy.written_bytes += length;
        self.recovery().ios_left += 1;
        let purpose = Purpose::Recover(Step::Rewrite);
        self.start_write(Disk::CacheDisk, at, piece, purpose);
    }

    /// Step 1: the records.
    fn start_rewrites(&mut self) {
        let recovery = self.recovery();
        recovery.stage = Stage::Rewrites;
        let mut rewrites = std::mem::take(&mut recovery.rewrites);
        let is_from_memory = rewrites.first().is_some_and(|first| first.source.is_memory());
        if is_from_memory && rewrites.len() > 1 {
            let later = rewrites.split_off(1);
            recovery.rewrites = std::mem::replace(&mut rewrites, later);
        }
        self.write_again(rewrites);
    }

    pub(super) fn write_again(&mut self, rewrites: Vec<Rewrite>) {
        self.recovery().ios_left = rewrites.len() as u32;
        for Rewrite { offset, source } in rewrites {
            let data = match source {
                Source::Memory(range) => Buffer::copy_of(&self.log.memory()[range]),
                Source::Disk(bytes) => bytes,
                Source::Durable => unreachable!("it is not planned"),
            };
            let purpose = Purpose::Recover(Step::Rewrite);
            self.start_write(Disk::CacheDisk, offset, data, purpose);
        }
    }
}
