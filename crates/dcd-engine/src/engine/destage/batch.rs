//! A batch: lines from wherever in the log they are to the data-disk, in as few writes as possible.
//! Its five steps are listed in [`super`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use super::{Blocked, RETRY_MIN, Step, Work};
use crate::buffer::Buffer;
use crate::buffer_pool::BufferPool;
use crate::engine::Disk;
use crate::engine::index::{Image, Victim};
use crate::engine::pace::Go;
use crate::engine::{Engine, Purpose};
use crate::format::checksum::crc32c;
use crate::io::{IoData, IoError, IoOperation};
use crate::log::lookup_table::Pieces;
use crate::units::{
    BLOCK_SIZE, Duration, FRAGMENTS_PER_LINE, FragmentMask, LINE_SIZE, LbaRange, Line,
    SegmentIndex, SegmentSerial, SlotIndex,
};

/// Most lines in a batch: 8 MiB.
pub(super) const BATCH_LINES_MAX: usize = 2048;
/// Reads at once where log and data share an arm and somebody waits for room.
const READS_WHEN_FULL: u32 = 8;
/// Most lines in one write: 1 MiB.
pub(super) const RUN_LINES_MAX: u64 = 256;

/// Lines on their way.
pub(super) struct Batch {
    /// Ascending.
    lines: Vec<BatchLine>,
    stretches: Vec<Stretch>,
    reads_left: u32,
    /// Adjacent slots to be read, when the arm is free for it. Each has a reader already, so that
    /// nobody fills its segment.
    to_read: VecDeque<Vec<SlotOfBatch>>,
    /// Ranges of `lines` that make one write each, ascending by address.
    runs: VecDeque<Run>,
    /// Runs under way, by the first run of those that were started together.
    in_flight: BTreeMap<usize, u32>,
    progress: Progress,
    /// Something of it has been written.
    has_written: bool,
    /// The data-disk takes nothing: the rest was not tried.
    gave_up: bool,
    /// Segments filled later cannot hold what was gathered.
    newest_serial: SegmentSerial,
}

/// A slot that is read for a batch. The checksum is the one that was true when it was gathered.
#[derive(Clone, Copy)]
pub(in crate::engine) struct SlotOfBatch {
    slot: SlotIndex,
    line: Line,
    checksum: u32,
}

/// How far a batch is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Being read, or read; its runs are not planned yet.
    Gathered,
    /// Its runs are planned, and written.
    Writing,
    /// What was written is being flushed.
    Flushing,
}

struct BatchLine {
    line: Line,
    /// Where its fragments were when it was gathered.
    pieces: Pieces,
    /// Not to be taken out of the table: a slot was damaged or its write failed.
    failed: bool,
    /// Which of the stretches has its bytes.
    stretch: usize,
    /// CRC-32C of what was written, of a line that is in several slots.
    checksum: u32,
}

/// Lines that follow one another, as many as one write takes: mostly they become that write.
struct Stretch {
    /// The first of `lines`.
    first: usize,
    count: usize,
    /// 4 KiB for each; empty when it is on its way.
    data: Buffer,
}

struct Run {
    first: usize,
    count: usize,
    range: LbaRange,
    /// So many lines at most.
    lines_max: u64,
}

impl Engine {
    // ---- gathering ----------------------------------------------------------------------------

    /// Those of `lines` that are where they are said to be, with all their fragments.
    pub(super) fn live_lines(&self, lines: &[(Line, SlotIndex)]) -> Vec<(Line, Pieces)> {
        if self.ships_in_order() {
            let found = lines.iter().map(|(line, slot)| (*line, *slot, self.pieces_to_ship(*line)));
            let live = found
                .filter(|(_, slot, pieces)| pieces.as_slice().iter().any(|(it, _)| it == slot));
            return live.map(|(line, _, pieces)| (line, pieces)).collect();
        }
        let found = self.table.find_each(lines.iter().map(|(line, _)| *line));
        let is_in = |pieces: &Pieces, slot| pieces.as_slice().iter().any(|(it, _)| it == slot);
        let live = lines.iter().zip(found).filter(|((_, slot), pieces)| is_in(pieces, slot));
        live.map(|((line, _), pieces)| (*line, pieces)).collect()
    }

    /// Collects the live lines of the victim, and their neighbours.
    pub(super) fn gather(&mut self, victim: &Victim, live: &[(Line, Pieces)]) {
        self.destage.work = Work::None;
        let mut chosen: BTreeMap<Line, Pieces> = BTreeMap::new();
        let mut incomplete: BTreeSet<Line> = BTreeSet::new();
        // Where one arm does all, other victims come along in their place: those can be filled
        // again when they are empty.
        let with_neighbours = !self.config.one_disk && self.neighbours_come_along();
        for &(line, pieces) in live {
            if chosen.len() >= BATCH_LINES_MAX {
                break;
            }
            if self.zeroes_to_ship().contains(line) {
                self.destage.zeroes_wanted.insert(line);
            }
            let is_in = self.gather_line(line, pieces, &mut chosen, &mut incomplete);
            if !with_neighbours {
                continue;
            }
            if is_in {
                // What is in the log of the same stripe shares what its parity costs, and what is
                // in those beside it the way of the arms; but who waits for room waits for the
                // victim.
                let mates = match self.someone_waits_for_destaging() {
                    true => self.below.lines_that_share_parity(line),
                    false => self.below.lines_that_share_seeks(line),
                };
                for mate in (mates.start.0..mates.end.0).map(Line) {
                    if chosen.len() < BATCH_LINES_MAX {
                        let pieces = self.pieces_to_ship(mate);
                        self.gather_line(mate, pieces, &mut chosen, &mut incomplete);
                    }
                }
            }
            let mut gather_neighbour = |neighbour: u64| {
                let (line, pieces) = (Line(neighbour), self.pieces_to_ship(Line(neighbour)));
                chosen.len() < BATCH_LINES_MAX
                    && self.gather_line(line, pieces, &mut chosen, &mut incomplete)
            };
            let _ = (0..line.0).rev().all(&mut gather_neighbour);
            let _ = (line.0 + 1..).all(&mut gather_neighbour);
        }
        if self.log_is_tight() {
            let own = &victim.lines[..victim.lines_of_first];
            let own: BTreeSet<Line> = own.iter().map(|(line, _)| *line).collect();
            incomplete.retain(|line| own.contains(line));
        }
        self.want_completions(incomplete);
        if chosen.is_empty() {
            for segment in victim.segments() {
                self.destage.exhausted.insert(segment);
                let live_slots = self.log.segments.get(segment).live_slots;
                self.stuck.tried_in_vain(segment, live_slots);
            }
            return;
        }
        self.read_batch(chosen, victim);
    }

    /// On a volume they share parity, and in windows everything has its turn.
    fn neighbours_come_along(&mut self) -> bool {
        if self.below.is_volume() || self.ships_in_order() {
            return true;
        }
        let counters = &self.counters;
        self.destage.neighbours.come_along(counters.destaged_lines, counters.overwritten_lines)
    }

    /// Adds a line to the batch if it can go now; tells whether it is in.
    fn gather_line(
        &self,
        line: Line,
        pieces: Pieces,
        chosen: &mut BTreeMap<Line, Pieces>,
        incomplete: &mut BTreeSet<Line>,
    ) -> bool {
        if !self.can_be_destaged(line, &pieces)
            || self.destage.without_failed && self.destage.blocked.contains_key(&line)
            || chosen.contains_key(&line)
        {
            return false;
        }
        let Some(covered) = self.covered_by_log(line, &pieces) else { return false };
        if !self.fills_sectors(line, covered) {
            incomplete.insert(line);
            return false;
        }
        chosen.insert(line, pieces);
        true
    }

    /// Whether the line, whose fragments are there, may go to the data-disk now, if it fills its
    /// sectors.
    pub(super) fn can_be_destaged(&self, line: Line, pieces: &Pieces) -> bool {
        !pieces.as_slice().is_empty()
            && !self.waits_for_zeroes(line)
            && !self.is_bypassed(line, 1)
            && pieces.as_slice().iter().all(|(slot, _)| self.log.is_durable(*slot))
            && !self.destage.completions.is_reading(line)
            && self.destage.blocked.get(&line).is_none_or(|blocked| blocked.until.is_none())
    }

    /// Whether writing these fragments writes whole physical sectors (C15).
    pub(in crate::engine) fn fills_sectors(&self, line: Line, mask: FragmentMask) -> bool {
        let poisoned = self.poisoned.get(&line).copied().unwrap_or_default();
        // Beside poison, a torn sector loses nothing that is not lost already.
        self.data_disk.physical_sector_size as u64 == BLOCK_SIZE
            || self.destage.incomplete_allowed.contains(&line)
            || mask.or(poisoned).contains(self.line_mask(line))
                && (poisoned.is_empty()
                    || u64::from(self.data_disk.logical_block_size) == BLOCK_SIZE)
    }

    fn read_batch(&mut self, chosen: BTreeMap<Line, Pieces>, victim: &Victim) {
        let geometry = self.superblock.geometry;
        if self.table.has_budget() {
            // They are compared with what they are now when all is flushed.
            for line in chosen.keys() {
                self.table.keep(*line);
                self.destage.pinned.push(*line);
            }
        }
        let mut batch = Batch {
            lines: Vec::with_capacity(chosen.len()),
            stretches: Vec::new(),
            reads_left: 0,
            to_read: VecDeque::new(),
            runs: VecDeque::new(),
            in_flight: BTreeMap::new(),
            progress: Progress::Gathered,
            has_written: false,
            gave_up: false,
            newest_serial: self.log.newest_serial(),
        };
        for (line, pieces) in chosen {
            batch.add(line, pieces);
        }
        for stretch in &mut batch.stretches {
            stretch.data = self.buffers.take(stretch.count * LINE_SIZE as usize);
        }
        let images = victim.images.iter();
        let is_as_read =
            |image: &&Image| self.log.segments.get(image.segment).serial() == image.serial;
        let images: BTreeMap<SegmentIndex, &Image> =
            images.filter(is_as_read).map(|image| (image.segment, image)).collect();
        // Slots by place, so that adjacent ones are read together.
        let mut slots: BTreeMap<SlotIndex, SlotOfBatch> = BTreeMap::new();
        let mut bad = Vec::new();
        for index in 0..batch.lines.len() {
            let (line, pieces) = (batch.lines[index].line, batch.lines[index].pieces);
            for (slot, mask) in pieces.as_slice() {
                let (segment, slot_in_segment) = geometry.locate(*slot);
                let checksum = self.table.checksum(*slot);
                let wanted = SlotOfBatch { slot: *slot, line, checksum };
                let image = images.get(&segment);
                let bytes = match image {
                    Some(image) => {
                        let at = (u64::from(slot_in_segment) * LINE_SIZE) as usize;
                        Some(&image.bytes.bytes()[at..at + LINE_SIZE as usize])
                    }
                    None => self.log.slot_in_memory(*slot),
                };
                match bytes {
                    None => {
                        slots.insert(*slot, wanted);
                    }
                    Some(bytes) if crc32c(bytes) == checksum => batch.put(index, *mask, bytes),
                    Some(_) => bad.push((wanted, image.and_then(|image| image.reader))),
                }
            }
        }
        for (one, reader) in bad {
            self.doubt_slot_of(one.slot, reader);
            self.read_slots(&mut batch, vec![one], true);
        }
        let mut group: Vec<SlotOfBatch> = Vec::new();
        for (slot, wanted) in slots {
            let follows = group.last().is_some_and(|last| {
                last.slot.0 + 1 == slot.0 && !slot.0.is_multiple_of(geometry.slots_per_segment())
            });
            if !follows && !group.is_empty() {
                self.want_slots(&mut batch, std::mem::take(&mut group));
            }
            group.push(wanted);
        }
        if !group.is_empty() {
            self.want_slots(&mut batch, group);
        }
        self.destage.work = Work::Batch(batch);
    }

    /// Adjacent slots are read: at once, or where the log is on the disk that it is for, one after
    /// the other when writes might go there. Log writes and clients would wait behind all of them.
    fn want_slots(&mut self, batch: &mut Batch, slots: Vec<SlotOfBatch>) {
        if !self.config.one_disk {
            return self.read_slots(batch, slots, false);
        }
        let (segment, _) = self.superblock.geometry.locate(slots[0].slot);
        self.log.segments.add_reader(segment);
        batch.to_read.push_back(slots);
    }

    /// The next of those that wait for the arm. Tells whether anything moved.
    fn read_next_slots(&mut self, batch: &mut Batch) -> bool {
        // Beside eight readers one at a time gets a ninth of the disk: who waits for room is not
        // served by that.
        let most = if self.someone_waits_for_destaging() { READS_WHEN_FULL } else { 1 };
        if batch.reads_left >= most || self.may_destage(0) != Go::Now {
            return false;
        }
        let Some(slots) = batch.to_read.pop_front() else { return false };
        let (segment, _) = self.superblock.geometry.locate(slots[0].slot);
        self.read_slots(batch, slots, false);
        self.log.segments.drop_reader(segment);
        true
    }

    /// The first slot of each read that waits for the arm, and has a reader.
    pub(in crate::engine) fn slots_that_wait_for_the_arm(&self) -> impl Iterator<Item = SlotIndex> {
        let batch = match &self.destage.work {
            Work::Batch(batch) => Some(batch),
            _ => None,
        };
        let to_read = batch.into_iter().flat_map(|batch| &batch.to_read);
        to_read.map(|slots| slots[0].slot)
    }

    /// What has not been read is not written.
    fn drop_reads(&mut self, batch: &mut Batch) {
        for slots in std::mem::take(&mut batch.to_read) {
            let (segment, _) = self.superblock.geometry.locate(slots[0].slot);
            self.log.segments.drop_reader(segment);
            for SlotOfBatch { line, .. } in slots {
                let index = batch.position(line);
                batch.lines[index].failed = true;
            }
        }
    }

    fn read_slots(&mut self, batch: &mut Batch, slots: Vec<SlotOfBatch>, is_again: bool) {
        let geometry = self.superblock.geometry;
        let (segment, _) = geometry.locate(slots[0].slot);
        let offset = geometry.slot_offset(slots[0].slot);
        let length = slots.len() as u64 * LINE_SIZE;
        batch.reads_left += 1;
        self.counters.destage_read_bytes += length;
        self.log.segments.add_reader(segment);
        let step = Step::ReadSlots { segment, slots, is_again };
        self.start_read(Disk::CacheDisk, offset, length, Purpose::Destage(step));
    }

    pub(super) fn slots_read(
        &mut self,
        slots: &[SlotOfBatch],
        is_again: bool,
        result: Result<(), IoError>,
        buffer: Option<&Buffer>,
    ) {
        let Work::Batch(mut batch) = std::mem::take(&mut self.destage.work) else {
            unreachable!("slots are read for a batch");
        };
        batch.reads_left -= 1;
        for (i, wanted) in slots.iter().enumerate() {
            let SlotOfBatch { slot, line, checksum } = wanted;
            let index = batch.position(*line);
            let bytes = buffer.filter(|_| result.is_ok()).map(|buffer| {
                let at = i * LINE_SIZE as usize;
                &buffer.bytes()[at..at + LINE_SIZE as usize]
            });
            match bytes {
                Some(bytes) if crc32c(bytes) == *checksum => {
                    if is_again {
                        self.settle_slot(*slot, Some(bytes));
                    }
                    let pieces = batch.lines[index].pieces;
                    let piece = pieces.as_slice().iter().find(|(known, _)| known == slot);
                    let (_, mask) = piece.expect("the slot was read for this line");
                    batch.put(index, *mask, bytes);
                }
                // The disk is gone or does not answer: it stays dirty.
                None if result != Err(IoError::Failed) => batch.lines[index].failed = true,
                // It may be the transfer, or a neighbour: alone, and once more, before it is lost.
                _ if !is_again => {
                    if result.is_ok() {
                        self.doubt_slot(*slot);
                    }
                    self.read_slots(&mut batch, vec![*wanted], true);
                }
                // The newest copy is damaged: the data-disk keeps what it has, reads fail until it
                // is overwritten (C21).
                _ => {
                    batch.lines[index].failed = true;
                    self.settle_slot(*slot, None);
                    self.damaged_slot(*line, *slot);
                }
            }
        }
        if result.is_err_and(|error| error != IoError::Failed) {
            self.back_off();
        }
        self.destage.work = Work::Batch(batch);
    }

    // ---- writing ------------------------------------------------------------------------------

    pub(super) fn advance_batch(&mut self) -> bool {
        let Work::Batch(mut batch) = std::mem::take(&mut self.destage.work) else {
            unreachable!("called for a batch");
        };
        if self.close_wants_no_destage() {
            self.drop_reads(&mut batch);
        }
        let mut moved = self.read_next_slots(&mut batch);
        if batch.is_read() && batch.progress != Progress::Flushing {
            if batch.runs.is_empty() && batch.in_flight.is_empty() {
                moved |= self.plan_or_flush(&mut batch);
            }
            if self.close_wants_no_destage() {
                moved |= !batch.runs.is_empty();
                batch.drop_rest();
            }
            let completion_reads = self.destage.completions.reads_in_flight();
            while self.may_join_those_under_way(&batch)
                && self.may_destage(batch.writes_in_flight() + completion_reads) == Go::Now
            {
                self.write_runs(&mut batch);
                moved = true;
            }
        }
        self.destage.work = Work::Batch(batch);
        moved
    }

    /// Called when no run is left: the first time to plan them, the second time they are written.
    fn plan_or_flush(&mut self, batch: &mut Batch) -> bool {
        if batch.progress == Progress::Gathered {
            batch.plan_runs(&self.destage.blocked);
            if !batch.runs.is_empty() {
                return true;
            }
        }
        batch.progress = Progress::Flushing;
        self.start_flush(Disk::DataDisk, Purpose::Destage(Step::Flush));
        true
    }

    /// Whether there is another run, and it may be under way together with what is. What has failed
    /// before is to be written alone, and on a volume lines of one stripe are one change, whoever
    /// writes them. A read that began before these lines were in the log takes them from the
    /// data-disk: if the write fails, nobody knows what is there, and that is no answer.
    fn may_join_those_under_way(&self, batch: &Batch) -> bool {
        let has_failed = |index: usize| self.destage.blocked.contains_key(&batch.lines[index].line);
        let Some(next) = batch.runs.front() else { return false };
        if self.is_read_below_the_log(next.range) {
            return false;
        }
        if !self.below.is_volume() && self.destage.trouble.is_trying() {
            return batch.in_flight.is_empty();
        }
        !self.below.is_volume()
            || batch.in_flight.is_empty()
            || !has_failed(next.first) && !batch.in_flight.keys().any(|first| has_failed(*first))
    }

    /// The next run, and with it those behind it in the same stripe: together they are one change
    /// of its parity.
    fn write_runs(&mut self, batch: &mut Batch) {
        let run = batch.runs.pop_front().expect("not empty");
        let together = run.first;
        let last = Line(run.range.end().div_ceil(FRAGMENTS_PER_LINE) - 1);
        let stripe = self.below.lines_that_share_parity(last);
        self.write_run(batch, &run, together);
        while let Some(next) = batch.runs.front()
            && stripe.contains(&batch.lines[next.first].line)
            && self.may_join_those_under_way(batch)
        {
            let next = batch.runs.pop_front().expect("looked at");
            self.write_run(batch, &next, together);
        }
    }

    fn write_run(&mut self, batch: &mut Batch, run: &Run, together: usize) {
        let length = run.range.bytes();
        let data = batch.take_run(run, &mut self.buffers);
        *batch.in_flight.entry(together).or_default() += 1;
        self.count_against_caps(length);
        let step =
            Step::WriteRun { lines: run.first..run.first + run.count, bytes: length, together };
        let offset = run.range.start.byte();
        let fua = self.writes_through_for_readers();
        let operation = IoOperation::Write { offset, data: IoData::Owned(data), fua };
        self.start_io(Disk::DataDisk, operation, Purpose::Destage(step));
    }

    pub(super) fn run_written(
        &mut self,
        lines: Range<usize>,
        bytes: u64,
        together: usize,
        result: Result<(), IoError>,
        service: Duration,
    ) {
        self.pace.write_done(self.now, service);
        if result.is_ok() {
            self.destage.neighbours.write_ended(bytes / LINE_SIZE, service);
        }
        let Work::Batch(batch) = &mut self.destage.work else {
            unreachable!("runs are written for a batch");
        };
        let left = batch.in_flight.get_mut(&together).expect("it was started");
        *left -= 1;
        if *left == 0 {
            batch.in_flight.remove(&together);
        }
        let Err(error) = result else {
            for entry in &batch.lines[lines] {
                if self.destage.blocked.remove(&entry.line).is_some() {
                    self.table.unpin(entry.line);
                }
            }
            batch.has_written = true;
            self.destage.trouble.has_written();
            self.counters.destage_writes += 1;
            self.counters.destage_write_bytes += bytes;
            return;
        };
        // Those of a write that failed stay dirty and wait, the others go on (C24).
        let count = lines.len() as u64;
        let mut failed = Vec::new();
        for entry in &mut batch.lines[lines] {
            entry.failed = true;
            failed.push(entry.line);
        }
        let is_new = failed.iter().any(|line| !self.destage.blocked.contains_key(line));
        for line in failed {
            self.block_failed(line, error, count);
        }
        if self.destage_failed(error, is_new)
            && let Work::Batch(batch) = &mut self.destage.work
        {
            batch.gave_up = true;
            batch.drop_rest();
        }
    }

    /// Steps 4 and 5.
    pub(super) fn batch_flushed(&mut self, result: Result<(), IoError>) {
        let Work::Batch(mut batch) = std::mem::take(&mut self.destage.work) else {
            unreachable!("flushed for a batch");
        };
        self.drop_reads(&mut batch);
        self.destage.something_changed();
        if let Err(error) = result {
            for entry in &batch.lines {
                self.witnesses.forget(entry.line);
            }
            self.data_disk_flush_failed(error);
            return self.destage_flush_failed(error);
        }
        let found = self.table.find_each(batch.lines.iter().map(|entry| entry.line));
        let changed = batch.lines.iter().zip(found).map(|(entry, found)| found != entry.pieces);
        let changed: Vec<bool> = changed.collect();
        for (entry, is_overwritten) in batch.lines.iter().zip(changed) {
            // The same slots may hold something newer, after a whole lap of the log.
            let is_refilled = entry.pieces.as_slice().iter().any(|(slot, _)| {
                let (segment, _) = self.superblock.geometry.locate(*slot);
                self.log.segments.get(segment).serial() > batch.newest_serial
            });
            if entry.failed || is_refilled || is_overwritten {
                // The checksum of the data-disk is not known: the line went there, perhaps.
                self.witnesses.forget(entry.line);
                if !entry.failed && self.windows.keeps_as(entry.line, &entry.pieces) {
                    self.kept_line_shipped(entry.line);
                    self.destage.incomplete_allowed.remove(&entry.line);
                    self.counters.destaged_lines += 1;
                }
                continue;
            }
            // A witness may not change but with the log: not one that a bypass waits to write.
            if entry.pieces.mask().is_full() && !self.is_bypassed(entry.line, 1) {
                let checksum = match entry.pieces.as_slice() {
                    [(slot, _)] => self.table.checksum(*slot),
                    _ => entry.checksum,
                };
                self.witnesses.destaged(entry.line, checksum);
            } else {
                self.witnesses.forget(entry.line);
            }
            if self.zeroes_rebuilt.may_be_found(entry.line) {
                for (slot, _) in entry.pieces.as_slice() {
                    let (segment, _) = self.superblock.geometry.locate(*slot);
                    self.log.segments.destaged_above_zeroes(segment);
                }
            }
            self.leaves_table(entry.line, FragmentMask::FULL);
            match entry.pieces.as_slice() {
                [(slot, mask)] if mask.is_full() => self.keep_clean(entry.line, *slot),
                _ => self.forget_clean(entry.line, 1),
            }
            self.destage.incomplete_allowed.remove(&entry.line);
            self.counters.destaged_lines += 1;
        }
        for stretch in batch.stretches {
            self.buffers.put(Some(stretch.data));
        }
        self.counters.destage_batches += 1;
        self.destage.retry = match (batch.gave_up, batch.has_written) {
            (false, _) => None,
            (true, false) => self.destage.retry,
            // It does take something: the next wait is short again.
            (true, true) => Some((self.now.after(RETRY_MIN), RETRY_MIN)),
        };
    }
}

impl Batch {
    /// Writes that have not ended.
    pub(super) fn writes_in_flight(&self) -> u32 {
        self.in_flight.len() as u32
    }

    /// All that it takes from the log is there.
    fn is_read(&self) -> bool {
        self.reads_left == 0 && self.to_read.is_empty()
    }

    /// Nothing of it is under way.
    pub(super) fn is_at_rest(&self) -> bool {
        self.reads_left == 0 && self.in_flight.is_empty() && self.progress != Progress::Flushing
    }

    /// What it has written does not count.
    pub(super) fn fail(&mut self) {
        self.lines.iter_mut().for_each(|line| line.failed = true);
    }

    /// What has not been started stays dirty.
    fn drop_rest(&mut self) {
        for run in self.runs.drain(..) {
            for line in &mut self.lines[run.first..run.first + run.count] {
                line.failed = true;
            }
        }
    }

    pub(super) fn has_line_within(&self, range: &Range<Line>) -> bool {
        let first = self.lines.partition_point(|known| known.line < range.start);
        self.lines.get(first).is_some_and(|known| known.line < range.end)
    }

    fn position(&self, line: Line) -> usize {
        self.lines.binary_search_by_key(&line, |known| known.line).expect("a line of the batch")
    }

    /// Another line, behind all others.
    fn add(&mut self, line: Line, pieces: Pieces) {
        let index = self.lines.len();
        let follows = self.lines.last().is_some_and(|last| last.line.0 + 1 == line.0);
        match self.stretches.last_mut() {
            Some(last) if follows && (last.count as u64) < RUN_LINES_MAX => last.count += 1,
            _ => {
                self.stretches.push(Stretch { first: index, count: 1, data: Buffer::default() });
            }
        }
        let stretch = self.stretches.len() - 1;
        self.lines.push(BatchLine { line, pieces, failed: false, stretch, checksum: 0 });
    }

    /// Puts the fragments of a slot to their place.
    fn put(&mut self, index: usize, mask: FragmentMask, slot: &[u8]) {
        let stretch = &mut self.stretches[self.lines[index].stretch];
        let base = (index - stretch.first) * LINE_SIZE as usize;
        for run in mask.byte_runs() {
            let target = base + run.start..base + run.end;
            stretch.data.bytes_mut()[target].copy_from_slice(&slot[run]);
        }
    }

    /// The bytes of a line that has not been written.
    fn bytes(&self, index: usize) -> &[u8] {
        let stretch = &self.stretches[self.lines[index].stretch];
        let base = (index - stretch.first) * LINE_SIZE as usize;
        &stretch.data.bytes()[base..base + LINE_SIZE as usize]
    }

    /// What a run writes.
    fn take_run(&mut self, run: &Run, buffers: &mut BufferPool) -> Buffer {
        for index in run.first..run.first + run.count {
            if self.lines[index].pieces.as_slice().len() > 1 {
                self.lines[index].checksum = crc32c(self.bytes(index));
            }
        }
        let first = &self.lines[run.first];
        let mut skipped = (run.range.start.byte() - first.line.lba().byte()) as usize;
        let stretch = &mut self.stretches[first.stretch];
        let is_it = stretch.first == run.first && skipped == 0;
        if is_it && stretch.data.len() as u64 == run.range.bytes() {
            return std::mem::take(&mut stretch.data);
        }
        // Fragments, or some of its lines have failed.
        let mut data = buffers.take(run.range.bytes() as usize);
        let mut rest = data.bytes_mut();
        for index in run.first..run.first + run.count {
            let bytes = &self.bytes(index)[skipped..];
            let (head, tail) = rest.split_at_mut(bytes.len().min(rest.len()));
            head.copy_from_slice(&bytes[..head.len()]);
            (rest, skipped) = (tail, 0);
        }
        assert!(rest.is_empty(), "a run has no bytes but those of its lines");
        data
    }

    /// Joins lines, sorted by address, into as few writes as possible; what has failed before with
    /// not so many others.
    fn plan_runs(&mut self, blocked: &BTreeMap<Line, Blocked>) {
        self.progress = Progress::Writing;
        for (index, entry) in self.lines.iter().enumerate() {
            if entry.failed {
                continue;
            }
            let lines_max = blocked.get(&entry.line).map_or(u64::MAX, |b| b.together_max);
            for bytes in entry.pieces.mask().byte_runs() {
                let start = entry.line.lba().0 + bytes.start as u64 / BLOCK_SIZE;
                let range = LbaRange::new(start, bytes.len() as u64 / BLOCK_SIZE);
                match self.runs.back_mut() {
                    Some(run)
                        if run.range.end() == range.start.0
                            && run.range.blocks < RUN_LINES_MAX * FRAGMENTS_PER_LINE
                            && ((index - run.first) as u64) < run.lines_max.min(lines_max) =>
                    {
                        run.range.blocks += range.blocks;
                        run.count = index - run.first + 1;
                        run.lines_max = run.lines_max.min(lines_max);
                    }
                    _ => self.runs.push_back(Run { first: index, count: 1, range, lines_max }),
                }
            }
        }
    }
}
