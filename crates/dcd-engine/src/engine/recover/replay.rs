//! Step 4 of recovery: the checkpoint, then the records behind it, become the lookup table.
//!
//! What the checkpoint says of segments that the records announce is dropped: it was overwritten by
//! records before the announcement, or was destaged and flushed, above no zeroes that the
//! checkpoint lists.

use std::collections::{BTreeMap, BTreeSet};

use super::FoundRecord;
use crate::engine::Engine;
use crate::format::record::Entry;
use crate::log::rebuilt_zeroes::RebuiltZeroes;
use crate::units::{
    FRAGMENTS_PER_LINE, FragmentMask, Line, SegmentIndex, SegmentSerial, SlotIndex,
};
use crate::zero_ranges::ZeroRange;

/// More lines than slots: only a forged log can say so.
pub(super) struct TooManyLines;

impl Engine {
    /// Fails if more lines are said to be in the log than it has slots.
    pub(super) fn replay(&mut self) -> Result<(), TooManyLines> {
        let geometry = self.superblock.geometry;
        let checkpoint = self.recovery().checkpoint.take().expect("read");
        for range in &checkpoint.zeroes {
            self.replay_zeroes(*range);
        }
        self.witnesses.restore(&checkpoint.witnesses);
        let announced = self.recovery().chain.announced.iter().map(|(_, segment)| *segment);
        let announced: BTreeSet<SegmentIndex> = announced.collect();
        for live in &checkpoint.live {
            let mask = live.mask.and(self.line_mask(live.line));
            if mask.is_empty() {
                continue;
            }
            if !announced.contains(&geometry.locate(live.slot).0) {
                self.replay_slot(live.line, mask, live.slot, live.checksum)?;
                continue;
            }
            // It may have been destaged since the checkpoint learnt what is on the data-disk.
            self.witnesses.forget(live.line);
        }
        self.poisoned = checkpoint
            .poisoned
            .iter()
            .map(|(line, mask)| (*line, mask.and(self.line_mask(*line))))
            .filter(|(_, mask)| !mask.is_empty())
            .collect();
        // A checkpoint of ours has no fragment in both; of a forged one the poison counts.
        for (line, mask) in &self.poisoned {
            self.table.remove(*line, *mask);
        }
        let mut serials: BTreeMap<SegmentIndex, SegmentSerial> =
            checkpoint.filled.iter().copied().collect();
        let found = std::mem::take(&mut self.recovery().found);
        self.recovery().report.records = found.len() as u64;
        // Entries of a request that goes on in the next record wait for its rest (C14).
        let mut unfinished = Vec::new();
        for found in found {
            let whole = found.whole_entries();
            let FoundRecord { record, damaged, source } = found;
            let header = record.header;
            serials.insert(header.segment, header.serial);
            self.recovery().report.records_from_memory += u64::from(source.is_memory());
            if whole > 0 {
                for (entry, slot, lost) in std::mem::take(&mut unfinished) {
                    self.replay_entry(entry, slot, lost)?;
                }
            }
            let mut slot = header.slot_in_segment + 1;
            for (index, entry) in record.entries.iter().enumerate() {
                let at = geometry.slot(header.segment, slot);
                let mut lost = false;
                if let Entry::Data { line, mask, .. } = entry {
                    slot += 1;
                    lost = damaged.contains(&(*line, *mask));
                }
                if index < whole {
                    self.replay_entry(*entry, at, lost)?;
                } else {
                    unfinished.push((*entry, at, lost));
                }
            }
        }
        let mut live = vec![0; geometry.segments as usize];
        for (_, pieces) in self.table.iter() {
            for (slot, _) in pieces.as_slice() {
                live[geometry.locate(*slot).0.0 as usize] += 1;
            }
        }
        for (index, serial) in serials {
            self.log.segments.restore(index, live[index.0 as usize], serial);
        }
        // Perhaps more was damaged than the checkpoint had room for.
        self.has_unlisted_poison |= self.poisoned.len() as u64 >= self.config.limits.poisoned_lines;
        self.zeroes_rebuilt = RebuiltZeroes::found(&self.zeroes);
        let recovery = self.recovery.as_mut().expect("under way");
        self.checkpoint.generation = checkpoint.generation;
        self.checkpoint.epoch = checkpoint.epoch;
        recovery.report.dirty_lines = self.table.lines() as u64;
        recovery.report.poisoned_lines = self.poisoned.len() as u64;
        Ok(())
    }

    fn replay_slot(
        &mut self,
        line: Line,
        mask: FragmentMask,
        slot: SlotIndex,
        checksum: u32,
    ) -> Result<(), TooManyLines> {
        if self.table.is_full() && !self.table.contains(line) {
            return Err(TooManyLines);
        }
        self.table.insert(line, mask, slot, checksum);
        Ok(())
    }

    fn replay_entry(
        &mut self,
        entry: Entry,
        slot: SlotIndex,
        is_damaged: bool,
    ) -> Result<(), TooManyLines> {
        let Some((line, lines)) = entry.lines() else { return Ok(()) };
        let valid = self.copies.counts().valid;
        self.copies_changed(line, lines);
        let changed = valid - self.copies.counts().valid;
        self.recovery().report.copies_changed += changed;
        match entry {
            Entry::Data { line, mask, checksum } => {
                let mask = mask.and(self.line_mask(line));
                if mask.is_empty() {
                    return Ok(());
                }
                self.clear_poison(line, mask);
                let has_room = !self.poison_has_no_room(line);
                self.has_unlisted_poison |= is_damaged && !has_room;
                if is_damaged && has_room {
                    self.table.remove(line, mask);
                    let poison = self.poisoned.entry(line).or_default();
                    *poison = poison.or(mask);
                } else {
                    self.replay_slot(line, mask, slot, checksum)?;
                }
            }
            Entry::Zero { line, lines, may_unmap } => {
                self.replay_forget(line, lines);
                self.replay_zeroes(ZeroRange { line, lines, may_unmap });
            }
            Entry::Bypass { range } => {
                let start = range.start.line();
                let lines = range.end().div_ceil(FRAGMENTS_PER_LINE) - start.0;
                self.replay_forget(start, lines);
                self.zeroes.remove(start, lines);
                for witness in self.witnesses.within(start, lines) {
                    self.witnesses.forget(witness);
                }
            }
            Entry::Announce { .. } => {}
        }
        Ok(())
    }

    fn replay_zeroes(&mut self, range: ZeroRange) {
        let disk_lines = self.data_disk.blocks.div_ceil(FRAGMENTS_PER_LINE);
        let end = range.line.0.saturating_add(range.lines).min(disk_lines);
        if range.line.0 < end {
            self.zeroes.insert(ZeroRange { lines: end - range.line.0, ..range });
        }
    }

    /// Takes lines out of the table before segments are counted.
    fn replay_forget(&mut self, line: Line, lines: u64) {
        for line in self.table.lines_within(line, lines) {
            self.table.remove(line, FragmentMask::FULL);
        }
        self.forget_poison(line, lines);
    }
}
