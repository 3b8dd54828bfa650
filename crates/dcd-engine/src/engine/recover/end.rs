//! Step 3 of recovery: is that the end of the log, or damage? The rule is in `docs/disk-format.md`.

use super::{SCANS_AT_ONCE, Stage, Step};
use crate::engine::Disk;
use crate::engine::{Engine, Purpose};
use crate::error::OpenError;
use crate::format::record::Record;
use crate::format::superblock::CacheState;
use crate::units::{FRAGMENTS_PER_LINE, LINE_SIZE, Line, SegmentIndex, SegmentSerial};

impl Engine {
    /// Looks for records behind the end of the chain: in what was read, and in the first slots of
    /// the segments that would come next.
    pub(super) fn start_scan(&mut self) {
        let geometry = self.superblock.geometry;
        let images = std::mem::take(&mut self.recovery().images);
        for (_, _, _, image) in &images {
            for bytes in image.bytes().chunks(LINE_SIZE as usize) {
                self.note_later_record(bytes);
            }
        }
        // Records logged again after errors lie behind as many segments as there were buffers.
        let scanned = self.log.buffer_count() as usize + 16;
        let recovery = self.recovery();
        recovery.stage = Stage::Scan;
        let next: Vec<SegmentIndex> =
            recovery.chain.segments.iter().copied().skip(1).take(scanned).collect();
        // The other checkpoint is damaged: was it being written when the machine crashed, or was it
        // durable and newer? Then records may lie in segments that only it calls free. A new cache
        // has only the one it was made with, and no records before the next.
        let is_new = recovery.checkpoint.as_ref().expect("read").generation == 0;
        let is_damaged = recovery.areas.iter().any(Result::is_err) && !is_new;
        if is_damaged {
            let all = (0..geometry.segments).map(SegmentIndex);
            recovery.unseen = all.filter(|segment| !next.contains(segment)).collect();
        }
        recovery.ios_left = next.len() as u32;
        for segment in next {
            self.start_scan_of(segment, Step::Scan(segment));
        }
    }

    fn start_scan_of(&mut self, segment: SegmentIndex, step: Step) {
        let offset = self.superblock.geometry.segment_offset(segment);
        self.start_read(Disk::CacheDisk, offset, LINE_SIZE, Purpose::Recover(step));
    }

    pub(super) fn scan_for_checkpoint(&mut self) {
        let recovery = self.recovery();
        let count = recovery.unseen.len().min(SCANS_AT_ONCE);
        let segments: Vec<SegmentIndex> = recovery.unseen.drain(..count).collect();
        recovery.ios_left = count as u32;
        for segment in segments {
            self.start_scan_of(segment, Step::ScanForCheckpoint(segment));
        }
    }

    pub(super) fn note_later_record(&mut self, bytes: &[u8]) {
        if let Some(record) = self.record_of_session(bytes) {
            self.recovery().later.push(record);
        }
    }

    /// The record that begins there, if it is one of this session; notes what it says of
    /// checkpoints.
    pub(super) fn record_of_session(&mut self, bytes: &[u8]) -> Option<Record> {
        let record = Record::decode(bytes).ok()?;
        let uuid = self.superblock.uuid;
        let recovery = self.recovery();
        let epoch = recovery.checkpoint.as_ref().expect("read").epoch;
        let is_ours = record.header.uuid == uuid && record.header.epoch == epoch;
        if !is_ours {
            return None;
        }
        let generation = record.header.checkpoint_generation;
        recovery.newest_generation = recovery.newest_generation.max(generation);
        Some(record)
    }

    /// Whether the chain goes on behind segments that hold nothing of it, and then it is there: the
    /// records were logged again elsewhere (C22).
    fn goes_on_behind(&mut self) -> bool {
        let (serial, slot) = (self.recovery().chain.serial, self.recovery().chain.slot);
        let most = self.recovery().chain.segments.len().min(self.log.buffer_count() as usize + 17);
        let mut passed = Vec::new();
        for offset in 1..most {
            // As if the chain had come there.
            let chain = &mut self.recovery().chain;
            passed.extend(chain.segments.pop_front());
            chain.serial = SegmentSerial(serial.0 + offset as u64);
            chain.slot = 0;
            let recovery = self.recovery.as_ref().expect("recovery is under way");
            if recovery.later.iter().any(|record| self.is_next(record))
                || self.buffer_of_next_record().is_some()
            {
                return true;
            }
        }
        let chain = &mut self.recovery().chain;
        while let Some(segment) = passed.pop() {
            chain.segments.push_front(segment);
        }
        (chain.serial, chain.slot) = (serial, slot);
        false
    }

    pub(super) fn judge_the_end(&mut self) {
        if self.goes_on_behind() {
            self.recovery().later.clear();
            self.recovery().stage = Stage::Chain;
            return;
        }
        let accept = self.config.accept_damage;
        let recovery = self.recovery();
        let expected = recovery.chain.number;
        recovery.later.retain(|record| record.header.number >= expected);
        let found_durable = recovery.found.iter().map(|found| found.record.header.durable);
        let later_durable = recovery.later.iter().map(|record| record.header.durable);
        let durable = found_durable.chain(later_durable).max().unwrap_or_default();
        if durable >= expected && !accept {
            // The record that should come next was durable. Which blocks it held is not known.
            let next = recovery.later.iter().map(|record| record.header.number.0).min();
            let records = next.unwrap_or(expected.0).saturating_sub(expected.0).max(1);
            let segment = recovery.chain.segments.front().copied().unwrap_or_default();
            let first = expected.0;
            return self.fail_open(OpenError::RecordsLost { first, records, segment });
        }
        // A record whose data does not match is torn, and the end, unless it was known to be
        // durable: then its data is rotten, and only the blocks it held are lost.
        let torn = recovery
            .found
            .iter()
            .position(|found| !found.damaged.is_empty() && found.record.header.number > durable);
        if let Some(torn) = torn {
            let header = recovery.found[torn].record.header;
            let slots = recovery.found[torn].record.slots();
            let first = self.superblock.geometry.slot(header.segment, header.slot_in_segment);
            if self.refuses_unreadable(first, slots) {
                return;
            }
            let recovery = self.recovery();
            recovery.found.truncate(torn);
            // What they announce may be empty only because of what they held.
            recovery.chain.take_back_announcements(header.number);
            // Numbers and checksums go on behind the last record that counts.
            let position = recovery.checkpoint.as_ref().expect("read").position;
            let (number, checksum) = match recovery.found.last() {
                Some(found) => (found.record.header.number.next(), found.record.checksum),
                None => (position.next_record, position.previous_checksum),
            };
            recovery.chain.number = number;
            recovery.chain.previous_checksum = checksum;
        }
        self.plan_rewrites(durable);
        let recovery = self.recovery();
        let spoken_of = recovery.found.iter().map(|f| f.record.header.checkpoint_generation);
        let lost = spoken_of.max().unwrap_or(0).max(recovery.newest_generation);
        let generation = recovery.checkpoint.as_ref().expect("read").generation;
        if lost > generation {
            return self.fail_open(OpenError::CheckpointLost { lost, found: generation });
        }
        self.begin_replay();
    }

    /// Whether the log that was replayed may be gone by.
    pub(super) fn judge_what_was_replayed(&mut self) {
        let old_blocks = self.superblock.data_disk.blocks;
        let checkpoint = self.recovery().checkpoint.as_ref().expect("read");
        let (epoch, generation) = (checkpoint.epoch, checkpoint.generation);
        // A later session, whose superblock is damaged, began with a checkpoint of its own.
        let is_of_detach = epoch + 1 == self.superblock.generation;
        if self.superblock.state == CacheState::Detached && is_of_detach {
            self.forget_what_was_given_up();
            let report = &mut self.recovery().report;
            (report.poisoned_lines, report.dirty_lines) = (0, 0);
        }
        // Zeroes are whole lines, so those that ended with the disk would now reach behind its old
        // end. Everything else of a line that was not whole is kept by the block.
        let old_end = Line(old_blocks / FRAGMENTS_PER_LINE);
        let has_grown = self.data_disk.blocks > old_blocks;
        if has_grown && !old_blocks.is_multiple_of(FRAGMENTS_PER_LINE) && self.is_zero(old_end) {
            return self.fail_open(OpenError::EndNotDrained { offset: old_end.lba().byte() });
        }
        // That session gave its cache-disk up when the newest checkpoint said that nothing is on
        // it. So it is not the one that was read, whatever became of it: the log of an older one
        // would undo what came after.
        let is_undone = self.recovery().memory_is_void && !self.log_is_empty();
        if is_undone && !self.config.accept_damage {
            let found = generation;
            return self.fail_open(OpenError::CheckpointLost { lost: found + 1, found });
        }
        self.read_witnesses();
    }
}
