//! Step 4 of recovery: what the checkpoint and the records behind it say becomes the lookup table.
//! The index of the checkpoint is in it ([`super::load`]).
//!
//! ```text
//! 1. Segments learn which filling they are of. Damage that the checkpoint lists leaves the table.
//! 2. What it says of segments that the records announce is dropped: it was overwritten by records
//!    before the announcement, or was destaged and flushed, above no zeroes that the checkpoint
//!    lists.
//! 3. The records, in order.
//! 4. Segments learn what they hold.
//! ```
//! All of it is in memory, and done a part at a time; within a budget for the index, what is not is
//! read first ([`super::paged`]).

use std::collections::VecDeque;
use std::ops::Range;
use std::vec;

use super::paged::Paged;
use super::{FoundRecord, Stage};
use crate::engine::Engine;
use crate::error::{FormatError, OpenError};
use crate::format::record::Entry;
use crate::log::lookup_table::{DeadSlots, Walker};
use crate::log::rebuilt_zeroes::RebuiltZeroes;
use crate::log::sweep::Sweep;
use crate::units::{
    FRAGMENTS_PER_LINE, FragmentMask, Line, SegmentIndex, SegmentSerial, SlotIndex,
};
use crate::used_places::UsedPlaces;
use crate::zero_ranges::ZeroRange;

/// Segments learn what they hold so many times as fast as entries are replayed.
const SEGMENTS_FOR_ENTRY: usize = 8;

/// More lines than slots: only a forged log can say so.
#[derive(Debug)]
pub(super) struct TooManyLines;

/// How far it is.
pub(super) struct Replay {
    step: ReplayStep,
    /// Which fillings the segments of the checkpoint are of.
    filled: vec::IntoIter<(SegmentIndex, SegmentSerial)>,
    /// Segments whose slots in the checkpoint do not count.
    pub(super) is_announced: UsedPlaces,
    records: vec::IntoIter<FoundRecord>,
    /// Entries of a request that goes on in the next record, which wait for its rest (C14).
    unfinished: Vec<FoundEntry>,
    /// Those of the records before that are still to be carried out, in order.
    pub(super) entries: VecDeque<FoundEntry>,
    /// Lines that those before have left nothing of, and that may still be in the table.
    forgotten: Option<Sweep>,
    /// Within a budget: what is known, and what is being found out.
    pub(super) paged: Paged,
}

/// An entry, the slot that it speaks of if it is data, and whether that is damaged.
pub(super) type FoundEntry = (Entry, SlotIndex, bool);

#[derive(Clone, Copy, PartialEq, Eq)]
enum ReplayStep {
    Filled,
    Damage,
    Drop,
    /// The same of what is not in memory.
    DropListed,
    Records,
    /// Segments that hold something, from this one on.
    Segments(SegmentIndex),
}

impl Engine {
    pub(super) fn begin_replay(&mut self) {
        // Mostly none: then it takes no memory.
        let announced = self.recovery().chain.announced.iter().map(|(_, segment)| segment.0);
        let mut is_announced = UsedPlaces::new(announced.max().map_or(0, |last| last as usize + 1));
        for (_, segment) in &self.recovery().chain.announced {
            is_announced.insert(segment.0 as usize);
        }
        let recovery = self.recovery();
        recovery.stage = Stage::Replay;
        let found = std::mem::take(&mut recovery.found);
        recovery.report.records = found.len() as u64;
        let checkpoint = recovery.checkpoint.as_mut().expect("read");
        let zeroes = std::mem::take(&mut checkpoint.zeroes);
        let witnesses = std::mem::take(&mut checkpoint.witnesses);
        let poisoned = std::mem::take(&mut checkpoint.poisoned);
        let filled = std::mem::take(&mut checkpoint.filled).into_iter();
        for range in zeroes {
            self.replay_zeroes(range);
        }
        self.witnesses.restore(&witnesses);
        self.poisoned = poisoned
            .iter()
            .map(|(line, mask)| (*line, mask.and(self.line_mask(*line))))
            .filter(|(_, mask)| !mask.is_empty())
            .collect();
        self.recovery().replay = Some(Box::new(Replay {
            step: ReplayStep::Filled,
            filled,
            is_announced,
            records: found.into_iter(),
            unfinished: Vec::new(),
            entries: VecDeque::new(),
            forgotten: None,
            paged: Paged::default(),
        }));
    }

    /// The next part of what [`Engine::begin_replay`] has begun.
    pub(super) fn advance_replay(&mut self) {
        let mut replay = self.recovery().replay.take().expect("under way");
        let mut left = self.config.limits.started_lines();
        while left > 0 {
            match replay.step {
                ReplayStep::Filled => {
                    let part = left.saturating_mul(SEGMENTS_FOR_ENTRY);
                    for (segment, serial) in replay.filled.by_ref().take(part) {
                        self.log.segments.found_filling(segment, serial);
                    }
                    match replay.filled.len() {
                        0 => replay.step = ReplayStep::Damage,
                        _ => left = 0,
                    }
                }
                ReplayStep::Damage => {
                    let lines = || self.poisoned.keys().copied().collect();
                    if self.table.has_budget() && !self.is_admitted(&mut replay.paged, lines()) {
                        break;
                    }
                    replay.step = self.replay_damage(&replay.is_announced);
                    self.unpin_replayed();
                }
                ReplayStep::Drop => match self.drop_announced(&replay.is_announced, left) {
                    true => left = 0,
                    false => {
                        self.begin_scan(Walker::Start);
                        replay.step = ReplayStep::DropListed;
                    }
                },
                ReplayStep::DropListed => match self.drop_listed(&mut replay, left) {
                    true => break,
                    false => replay.step = ReplayStep::Records,
                },
                ReplayStep::Records => match self.replay_next(&mut replay, left) {
                    Ok(_) if self.recovery().has_to_wait() => break,
                    Ok(Some(lines)) => left = left.saturating_sub(lines),
                    Ok(None) => replay.step = ReplayStep::Segments(SegmentIndex(0)),
                    Err(TooManyLines) => {
                        let found = self.table.lines() as u64;
                        let (what, field) = ("the log", "number of lines");
                        let error = FormatError::Field { what, field, found };
                        return self.fail_open(OpenError::Format(error));
                    }
                },
                ReplayStep::Segments(first) => {
                    let part = left.saturating_mul(SEGMENTS_FOR_ENTRY);
                    let Some(next) = self.log.segments.found_all_from(first, part) else {
                        self.end_replay();
                        return self.judge_what_was_replayed();
                    };
                    replay.step = ReplayStep::Segments(next);
                    left = 0;
                }
            }
        }
        let recovery = self.recovery();
        recovery.replay = Some(replay);
        recovery.has_paused = !recovery.waits_for_index;
    }

    /// The next part, when all is known that it needs.
    fn replay_next(
        &mut self,
        replay: &mut Replay,
        lines_max: usize,
    ) -> Result<Option<usize>, TooManyLines> {
        if self.table.has_budget() && !self.admit_entries(replay) {
            return Ok(Some(0));
        }
        self.replay_more(replay, lines_max)
    }

    /// A checkpoint of ours has no fragment in both; of a forged one the poison counts.
    fn replay_damage(&mut self, is_announced: &UsedPlaces) -> ReplayStep {
        let poisoned: Vec<(Line, FragmentMask)> =
            self.poisoned.iter().map(|(line, mask)| (*line, *mask)).collect();
        for (line, mask) in poisoned {
            self.replay_remove(line, mask);
        }
        match is_announced.iter().next().is_some() {
            true => {
                self.table.begin_walk(Walker::Start);
                ReplayStep::Drop
            }
            false => ReplayStep::Records,
        }
    }

    /// Tells whether there is more to drop than in so many lines.
    fn drop_announced(&mut self, is_announced: &UsedPlaces, lines: usize) -> bool {
        let geometry = self.superblock.geometry;
        let mut dropped = Vec::new();
        let has_more = self.table.walk(Walker::Start, lines, |_, line, pieces| {
            for (slot, mask) in pieces.as_slice() {
                if is_announced.contains(geometry.locate(*slot).0.0 as usize) {
                    dropped.push((line, *mask));
                }
            }
        });
        for (line, mask) in dropped {
            self.replay_remove(line, mask);
            // It may have been destaged since the checkpoint learnt what is on the data-disk.
            self.witnesses.forget(line);
        }
        has_more
    }

    /// The next entry, or a part of what those before leave nothing of: so many lines at most, but
    /// for those of the entry itself. Tells how many lines that was; `None`: there is no more.
    ///
    /// What is left nothing of is gathered, so that a trim of everything, which is thousands of
    /// entries, is one walk of the table. A line that is written again has to wait until the old
    /// one is gone, and so has one for which there is no room.
    fn replay_more(
        &mut self,
        replay: &mut Replay,
        lines_max: usize,
    ) -> Result<Option<usize>, TooManyLines> {
        if let Some(sweep) = &mut replay.forgotten {
            let is_over = replay.entries.is_empty() && replay.records.as_slice().is_empty();
            let next = replay.entries.front().map(|(entry, ..)| entry);
            if is_over || next.is_some_and(|next| self.must_sweep_before(sweep, next)) {
                let found = sweep.part(&mut self.table, lines_max);
                let cost = found.cost();
                let lines = found.lines.into_iter();
                lines.for_each(|line| self.replay_remove(line, FragmentMask::FULL));
                if !found.has_more
                    && let Some(sweep) = replay.forgotten.take()
                {
                    self.begin_voiding_replayed(&mut replay.paged, sweep);
                }
                return Ok(Some(cost));
            }
        }
        if let Some((entry, slot, is_damaged)) = replay.entries.pop_front() {
            replay.paged.entry_taken();
            if let Some(lines) = self.replay_entry(entry, slot, is_damaged)? {
                let forgotten = &mut replay.forgotten;
                forgotten.get_or_insert_with(|| Sweep::new(Walker::Start)).add(lines);
            }
            return Ok(Some(1));
        }
        Ok(self.replay_next_record(replay).then_some(1))
    }

    /// Entries of the next record are carried out next. Tells whether there is one.
    pub(super) fn replay_next_record(&mut self, replay: &mut Replay) -> bool {
        let next = replay.records.next();
        let is_there = next.is_some();
        if let Some(found) = next {
            self.replay_record(replay, found);
        }
        is_there
    }

    fn must_sweep_before(&self, sweep: &Sweep, next: &Entry) -> bool {
        match next {
            Entry::Data { line, .. } => {
                self.table.is_full() || sweep.covers(*line..Line(line.0.saturating_add(1)))
            }
            Entry::Zero { .. } | Entry::Bypass { .. } | Entry::Announce { .. } => false,
        }
    }

    /// Its entries are carried out next, as far as they are of whole requests.
    fn replay_record(&mut self, replay: &mut Replay, found: FoundRecord) {
        let whole = found.whole_entries();
        let FoundRecord { record, damaged, source } = found;
        let header = record.header;
        self.log.segments.found_filling(header.segment, header.serial);
        self.recovery().report.records_from_memory += u64::from(source.is_memory());
        if whole > 0 {
            replay.entries.extend(replay.unfinished.drain(..));
        }
        let mut slot = header.slot_in_segment + 1;
        for (index, entry) in record.entries.iter().enumerate() {
            let at = self.superblock.geometry.slot(header.segment, slot);
            let mut is_damaged = false;
            if let Entry::Data { line, mask, .. } = entry {
                slot += 1;
                is_damaged = damaged.contains(&(*line, *mask));
            }
            match index < whole {
                true => replay.entries.push_back((*entry, at, is_damaged)),
                false => replay.unfinished.push((*entry, at, is_damaged)),
            }
        }
    }

    fn end_replay(&mut self) {
        // Perhaps more was damaged than the checkpoint had room for.
        self.has_unlisted_poison |= self.poisoned.len() as u64 >= self.config.limits.poisoned_lines;
        self.zeroes_rebuilt = RebuiltZeroes::found(&self.zeroes);
        let recovery = self.recovery.as_mut().expect("under way");
        let checkpoint = recovery.checkpoint.as_ref().expect("read");
        self.checkpoint.generation = checkpoint.generation;
        self.checkpoint.epoch = checkpoint.epoch;
        recovery.report.dirty_lines = self.table.lines() as u64;
        recovery.report.poisoned_lines = self.poisoned.len() as u64;
    }

    pub(super) fn replay_slot(
        &mut self,
        line: Line,
        mask: FragmentMask,
        slot: SlotIndex,
        checksum: u32,
    ) -> Result<(), TooManyLines> {
        if self.table.is_full() && !self.table.contains(line) {
            return Err(TooManyLines);
        }
        let dead = self.table.insert(line, mask, slot, checksum);
        let segment = self.superblock.geometry.locate(slot).0;
        self.log.segments.add_live(segment);
        self.replay_died(&dead);
        Ok(())
    }

    pub(super) fn replay_remove(&mut self, line: Line, mask: FragmentMask) {
        let dead = self.table.remove(line, mask);
        self.replay_died(&dead);
    }

    pub(super) fn replay_died(&mut self, dead: &DeadSlots) {
        let geometry = self.superblock.geometry;
        for slot in dead.as_slice() {
            self.log.segments.drop_live(geometry.locate(*slot).0);
        }
    }

    /// Tells which lines it leaves nothing of, if they may be in the table.
    fn replay_entry(
        &mut self,
        entry: Entry,
        slot: SlotIndex,
        is_damaged: bool,
    ) -> Result<Option<Range<Line>>, TooManyLines> {
        let Some((line, lines)) = entry.lines() else { return Ok(None) };
        let valid = self.copies.counts().valid;
        self.copies_changed(line, lines);
        let changed = valid - self.copies.counts().valid;
        self.recovery().report.copies_changed += changed;
        match entry {
            Entry::Data { line, mask, checksum } => {
                let mask = mask.and(self.line_mask(line));
                if mask.is_empty() {
                    return Ok(None);
                }
                self.clear_poison(line, mask);
                let has_room = !self.poison_has_no_room(line);
                self.has_unlisted_poison |= is_damaged && !has_room;
                if is_damaged && has_room {
                    self.replay_remove(line, mask);
                    let poison = self.poisoned.entry(line).or_default();
                    *poison = poison.or(mask);
                } else {
                    self.replay_slot(line, mask, slot, checksum)?;
                }
                Ok(None)
            }
            Entry::Zero { line, lines, may_unmap } => {
                self.replay_zeroes(ZeroRange { line, lines, may_unmap });
                Ok(self.replay_forget(line, lines))
            }
            Entry::Bypass { range } => {
                let start = range.start.line();
                let lines = range.end().div_ceil(FRAGMENTS_PER_LINE) - start.0;
                self.zeroes.remove(start, lines);
                for witness in self.witnesses.within(start, lines) {
                    self.witnesses.forget(witness);
                }
                Ok(self.replay_forget(start, lines))
            }
            Entry::Announce { .. } => Ok(None),
        }
    }

    fn replay_zeroes(&mut self, range: ZeroRange) {
        let disk_lines = self.data_disk.blocks.div_ceil(FRAGMENTS_PER_LINE);
        let end = range.line.0.saturating_add(range.lines).min(disk_lines);
        if range.line.0 < end {
            self.zeroes.insert(ZeroRange { lines: end - range.line.0, ..range });
        }
    }

    fn replay_forget(&mut self, line: Line, lines: u64) -> Option<Range<Line>> {
        self.forget_poison(line, lines);
        let known = self.on_disk(line, lines);
        let lines = line..Line(line.0.saturating_add(lines));
        if self.table.has_budget() && !self.is_swept(&known) {
            // They are known.
            for line in self.table.lines_within(known) {
                self.replay_remove(line, FragmentMask::FULL);
            }
            return None;
        }
        self.table.may_hold(lines.clone()).next().map(|_| lines)
    }
}
