//! The rest of step 1 of recovery: the newer checkpoint is read a piece at a time, and its index
//! goes into the lookup table a part at a time. Of a large cache it is gigabytes.
//!
//! Whether it is whole is known behind its last piece, so until then nothing else may look at the
//! table. If it is not, the table is emptied and the other checkpoint is read.

use std::collections::VecDeque;

use super::rewrite::CheckpointCopy;
use super::{Stage, Step};
use crate::buffer::Buffer;
use crate::engine::Disk;
use crate::engine::{Engine, Purpose};
use crate::error::{FormatError, OpenError};
use crate::format::checkpoint::{HEADER_SIZE, ITEM_SIZE, LiveSlot};
use crate::format::checkpoint_reader::CheckpointReader;
use crate::format::checksum::crc32c;
use crate::format::superblock::CacheState;
use crate::io::IoError;
use crate::line_hash::LineHash;
use crate::log::index_run::RunBuilder;
use crate::log::segment::SegmentTable;
use crate::units::{FragmentMask, Line};

/// Pieces that were read or are on their way, and not taken yet.
const PIECES_AT_ONCE: usize = 4;

/// A checkpoint on its way into the table.
pub(super) struct Loading {
    area: usize,
    reader: CheckpointReader,
    /// As the header says.
    payload_bytes: u64,
    /// So many of them were asked for.
    asked_bytes: u64,
    /// In order; none for those that are on their way.
    pieces: VecDeque<Option<Buffer>>,
    /// Length and checksum of the pieces before these, for who writes them again.
    taken: Vec<(u64, u32)>,
    /// Bytes of the first that were taken.
    taken_bytes: usize,
    /// Why it does not count.
    problem: Option<FormatError>,
    /// Its live slots stay on the cache-disk.
    run: Option<LoadedRun>,
}

/// A run that is read for the first time, within a budget for the index: its lines are counted, and
/// where they are is noted, but they do not come into the table.
struct LoadedRun {
    builder: RunBuilder,
    hash: LineHash,
    /// Number of the next item in the payload.
    number: u64,
    /// The item before, and all fragments of its line so far.
    last: Option<(u64, Line, FragmentMask)>,
}

impl LoadedRun {
    /// The next item. Tells whether it is the first of its line.
    fn take(&mut self, live: &LiveSlot) -> Result<bool, FormatError> {
        let order = self.hash.order(live.line.0);
        let before = self.last.filter(|(_, line, _)| *line == live.line);
        let mask = before.map_or(FragmentMask::NONE, |(.., mask)| mask);
        let is_behind = self.last.is_none_or(|(last, line, _)| (last, line) <= (order, live.line));
        if !is_behind || !mask.and(live.mask).is_empty() {
            let (what, field) = ("the checkpoint", "order of live slots");
            return Err(FormatError::Field { what, field, found: live.slot.0.into() });
        }
        self.builder.item(self.number, order);
        self.number += 1;
        self.last = Some((order, live.line, mask.or(live.mask)));
        Ok(before.is_none())
    }
}

impl Engine {
    pub(super) fn load_newest_checkpoint(&mut self) {
        let (uuid, geometry) = (self.superblock.uuid, self.superblock.geometry);
        let lost = self.superblock.checkpoint_generation_min();
        let recovery = self.recovery();
        let newest = (0..2)
            .filter_map(|area| Some((recovery.areas[area].as_ref().ok()?, area)))
            .max_by_key(|((generation, _), _)| *generation);
        let Some(((generation, header), area)) = newest else {
            let problem = |area: &Result<_, FormatError>| area.as_ref().err().cloned();
            let [first, second] =
                recovery.areas.each_ref().map(|area| problem(area).expect("none is valid"));
            let is_detached = self.superblock.state == CacheState::Detached;
            return self.fail_open(OpenError::Checkpoint { is_detached, first, second });
        };
        // It is of a log of another size: it may speak of segments that are gone, and its area may
        // be one that was used long ago.
        let found = *generation;
        if found < lost {
            return self.fail_open(OpenError::CheckpointLost { lost, found });
        }
        let reader = CheckpointReader::new(header.bytes(), uuid, &geometry).expect("looked at");
        recovery.stage = Stage::Checkpoint;
        let run = self.run_to_load(area, &reader);
        let recovery = self.recovery();
        recovery.loading = Some(Box::new(Loading {
            area,
            payload_bytes: reader.bytes_left(),
            reader,
            asked_bytes: 0,
            pieces: VecDeque::new(),
            taken: Vec::new(),
            taken_bytes: 0,
            problem: None,
            run,
        }));
    }

    /// What of the checkpoint stays on the cache-disk: its live slots, if they are in an order and
    /// the index has a budget.
    fn run_to_load(&mut self, area: usize, reader: &CheckpointReader) -> Option<LoadedRun> {
        let budget = self.table.budget().filter(|_| reader.order() != 0)?;
        let hash = LineHash::with_multiplier(reader.order());
        self.table = self.table.emptied_for(hash);
        let offset = self.superblock.geometry.checkpoint_offsets[area];
        let (number, live) = reader.live_left();
        let builder = RunBuilder::new(offset, live as usize, budget.filter_bits_per_line);
        Some(LoadedRun { builder, hash, number, last: None })
    }

    pub(super) fn checkpoint_piece_read(&mut self, piece: u64, bytes: Result<Buffer, IoError>) {
        let loading = self.recovery().loading.as_mut().expect("it waits for what was asked for");
        let index = (piece - loading.taken.len() as u64) as usize;
        match bytes {
            Ok(bytes) => loading.pieces[index] = Some(bytes),
            Err(error) => {
                loading.problem = Some(FormatError::Unreadable { what: "the checkpoint", error });
            }
        }
    }

    /// Tells whether anything was done.
    pub(super) fn advance_loading(&mut self) -> bool {
        let mut loading = self.recovery().loading.take().expect("under way");
        let is_over = loading.problem.is_some() || loading.reader.bytes_left() == 0;
        if is_over && self.recovery().ios_left == 0 {
            self.end_loading(*loading);
            return true;
        }
        let has_asked = !is_over && self.read_checkpoint_pieces(&mut loading);
        let has_taken = !is_over && self.take_checkpoint_part(&mut loading);
        self.recovery().loading = Some(loading);
        has_asked || has_taken
    }

    fn read_checkpoint_pieces(&mut self, loading: &mut Loading) -> bool {
        let start = self.superblock.geometry.checkpoint_offsets[loading.area] + HEADER_SIZE as u64;
        let piece_bytes = self.config.limits.checkpoint_write_bytes as u64;
        let before = loading.asked_bytes;
        while loading.pieces.len() < PIECES_AT_ONCE && loading.asked_bytes < loading.payload_bytes {
            let piece = (loading.taken.len() + loading.pieces.len()) as u64;
            let length = piece_bytes.min(loading.payload_bytes - loading.asked_bytes);
            let purpose = Purpose::Recover(Step::Checkpoint(piece));
            self.start_read(Disk::CacheDisk, start + loading.asked_bytes, length, purpose);
            loading.asked_bytes += length;
            loading.pieces.push_back(None);
            self.recovery().ios_left += 1;
        }
        loading.asked_bytes > before
    }

    /// Takes a part of the next piece, if that is there.
    fn take_checkpoint_part(&mut self, loading: &mut Loading) -> bool {
        let Some(Some(piece)) = loading.pieces.front() else { return false };
        let part_bytes = self.config.limits.started_lines().saturating_mul(ITEM_SIZE);
        let end = loading.taken_bytes.saturating_add(part_bytes).min(piece.len());
        let part = &piece.bytes()[loading.taken_bytes..end];
        let (run, mut problem) = (&mut loading.run, None);
        loading.reader.take(part, |live| {
            if let Some(run) = run {
                if !self.line_mask(live.line).contains(live.mask) {
                    // Forged: what is not in memory is counted as it is listed.
                    let (what, field) = ("the checkpoint", "live slot");
                    let found = live.slot.0.into();
                    problem.get_or_insert(FormatError::Field { what, field, found });
                    return;
                }
                match run.take(&live).map_err(|error| problem.get_or_insert(error).clone()) {
                    Ok(is_first) if problem.is_none() => self.count_listed(&live, is_first),
                    _ => {}
                }
                return;
            }
            let mask = live.mask.and(self.line_mask(live.line));
            if !mask.is_empty() {
                let fits = self.replay_slot(live.line, mask, live.slot, live.checksum);
                assert!(fits.is_ok(), "no more slots than the header may count");
            }
        });
        loading.taken_bytes = end;
        if end == piece.len() {
            if let Some(run) = &mut loading.run {
                run.builder.written(piece.bytes());
            }
            loading.taken.push((end as u64, crc32c(piece.bytes())));
            loading.pieces.pop_front();
            loading.taken_bytes = 0;
        }
        self.recovery().has_paused = loading.reader.bytes_left() > 0;
        loading.problem = loading.problem.take().or(problem);
        true
    }

    /// A live slot that stays on the cache-disk.
    fn count_listed(&mut self, live: &LiveSlot, is_first: bool) {
        self.log.segments.add_live(self.superblock.geometry.locate(live.slot).0);
        if is_first {
            self.table.count_listed(live.line);
        }
    }

    fn end_loading(&mut self, loading: Loading) {
        let Loading { area, reader, taken, problem, run, .. } = loading;
        let offset = self.superblock.geometry.checkpoint_offsets[area];
        match problem.map_or_else(|| reader.finish(), Err) {
            Ok(checkpoint) => {
                let recovery = self.recovery();
                let (_, header) = recovery.areas[area].as_mut().expect("it was loaded");
                let header = std::mem::take(header);
                recovery.checkpoint_copy = Some(CheckpointCopy::new(offset, header, taken));
                recovery.checkpoint = Some(checkpoint);
                if let Some(run) = run {
                    self.table.begin_with(run.builder.finish());
                }
                self.plan_copy_pages();
            }
            Err(problem) => {
                self.recovery().areas[area] = Err(problem);
                self.log.segments = SegmentTable::new(self.log.segments.total());
                self.table = self.table.emptied();
                self.load_newest_checkpoint();
            }
        }
    }
}
