//! Dirty lines to the data-disk, when it is quiet or when it must be.
//!
//! A *batch* begins with a victim segment that the policy names. Its live lines, and around each
//! the neighbouring lines that are in the log too, whatever segment they are in, are read,
//! sorted by address and written in as few writes as possible:
//!
//! ```text
//! 1. Only what is durable in the log may go (C10).
//! 2. Read the slots, verify every checksum (C18).
//! 3. Write the lines.          Crash here: all of them are in the log still; replay repairs a
//!                              sector torn by it (C15).
//! 4. Flush the data-disk.      Crash here: the same.
//! 5. Take the lines out of the table, unless they were overwritten meanwhile (traps 3 and 4).
//!    Their segments become free only with the next durable checkpoint (C13).
//! ```
//! Zeroed ranges go before any line above them; a line over a range that has not gone yet waits.
//! A line that does not fill its physical sector is first completed in the log from the data-disk.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::pace::Go;
use super::policy::Candidate;
use super::{Engine, Purpose};
use crate::buffer::Buffer;
use crate::format::checksum::crc32c;
use crate::format::record::{Entry, Record};
use crate::io::{Device, IoError, IoOperation, RequestError, RequestId};
use crate::log::SEGMENTS_RESERVED;
use crate::log::lookup_table::Pieces;
use crate::log::segment::SegmentState;
use crate::units::{
    BLOCK_SIZE, Duration, FRAGMENTS_PER_LINE, FragmentMask, LINE_SIZE, LbaRange, Line,
    RecordNumber, SegmentIndex, SegmentSerial, SlotIndex, Time,
};

/// Most lines in a batch: 8 MiB.
const BATCH_LINES_MAX: usize = 2048;
/// Most lines in one write: 1 MiB.
const RUN_LINES_MAX: u64 = 256;
/// Most lines being completed at once.
const COMPLETIONS_MAX: usize = 32;
/// Most zero ranges in a zero batch, and most lines in one of its operations (1 GiB).
const ZERO_OPERATIONS_MAX: usize = 64;
const ZERO_LINES_MAX: u64 = (1 << 30) / LINE_SIZE;
/// First wait after a data-disk error; doubles up to the longest.
const RETRY_MIN: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// An I/O of destaging.
pub(super) enum Step {
    /// A whole victim segment.
    ReadSegment(SegmentIndex),
    /// Adjacent slots of other segments.
    ReadSlots {
        segment: SegmentIndex,
        slots: Vec<(SlotIndex, Line)>,
    },
    /// What is missing of a line's physical sector.
    ReadForCompletion(Line),
    WriteRun {
        first: usize,
        count: usize,
    },
    WriteZeroes,
    Flush,
}

/// What destaging is doing.
#[derive(Default)]
pub(super) struct Destage {
    work: Work,
    /// Segments in which there is nothing to do until something changes.
    exhausted: BTreeSet<SegmentIndex>,
    /// Lines being completed.
    completing: BTreeMap<Line, Completing>,
    drains: Vec<Drain>,
    retry: Option<(Time, Duration)>,
    /// Lines whose last write failed.
    blocked: BTreeMap<Line, Blocked>,
    /// The record of the newest zero range.
    zeroes_record: RecordNumber,
    /// The record of the newest completion.
    completion_record: RecordNumber,
    /// Lines that may go although they do not fill their physical sector: the log has no room
    /// left, not even the reserve.
    incomplete_allowed: BTreeSet<Line>,
    /// The data-disk cannot zero a range: zeroes are written to it.
    zeroes_by_writing: bool,
}

/// A line whose physical sector is being read, to be completed in the log.
struct Completing {
    /// It was discarded meanwhile.
    cancelled: bool,
    /// It is of the one victim that is emptied while the log is tight.
    may_use_reserve: bool,
}

/// A line whose last write failed: it is written alone from then on, so that it takes no others
/// along.
struct Blocked {
    /// Not before then; `None`: the wait is over.
    until: Option<Time>,
    /// How long the wait was; the next one is longer.
    wait: Duration,
}

#[derive(Default)]
enum Work {
    #[default]
    None,
    /// Reads the victim.
    Victim,
    /// Brings zero ranges to the data-disk.
    Zero {
        to_start: VecDeque<(Line, u64)>,
        in_flight: u32,
        failed: bool,
        flushing: bool,
    },
    Batch(Batch),
}

/// Lines on their way.
struct Batch {
    /// Ascending.
    lines: Vec<BatchLine>,
    /// 4 KiB for each line.
    data: Buffer,
    reads_left: u32,
    /// Ranges of `lines` that make one write each, ascending by address.
    runs: VecDeque<Run>,
    runs_in_flight: u32,
    flushing: bool,
    /// Segments filled later cannot hold what was gathered.
    newest_serial: SegmentSerial,
}

struct BatchLine {
    line: Line,
    /// Where its fragments were when it was gathered.
    pieces: Pieces,
    /// Not to be taken out of the table: a slot was damaged or its write failed.
    failed: bool,
}

struct Run {
    first: usize,
    count: usize,
    range: LbaRange,
}

/// Someone waits until all that was dirty is on the data-disk.
struct Drain {
    id: RequestId,
    /// Segments up to this one must be empty.
    serial: SegmentSerial,
}

impl Destage {
    /// Something may have become possible: look everywhere again.
    pub(super) fn something_changed(&mut self) {
        self.exhausted.clear();
    }

    pub(super) fn is_draining(&self) -> bool {
        !self.drains.is_empty()
    }

    /// No batch is under way, and no completion.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.work, Work::None) && self.completing.is_empty()
    }

    /// A zero range is in this record.
    pub(super) fn zeroes_logged(&mut self, record: RecordNumber) {
        self.zeroes_record = record;
    }

    pub(super) fn retry_at(&self, now: Time) -> Option<Time> {
        self.retry.map(|(at, _)| at).filter(|at| *at > now)
    }

    /// Whether lines are being written, or completed, that overlap these.
    pub(super) fn touches(&self, line: Line, lines: u64) -> bool {
        let range = line..Line(line.0 + lines);
        let completing = self.completing.range(range.clone()).next().is_some();
        completing
            || match &self.work {
                Work::Batch(batch) => {
                    let first = batch.lines.partition_point(|known| known.line < range.start);
                    batch.lines.get(first).is_some_and(|known| known.line < range.end)
                }
                Work::Victim => false,
                _ => false,
            }
    }

    /// These lines were discarded: what is read to complete them is of no use.
    pub(super) fn cancel_completions(&mut self, line: Line, lines: u64) {
        for (_, completing) in self.completing.range_mut(line..Line(line.0 + lines)) {
            completing.cancelled = true;
        }
    }
}

impl Engine {
    // ---- drain --------------------------------------------------------------------------------

    pub(super) fn drain(&mut self, id: RequestId) {
        if self.cache_disk_failed {
            return self.reply(id, Err(RequestError::Io), None);
        }
        // What comes after goes to later segments, so the drain has an end under load, too.
        self.log.close_segment();
        let serial = self.log.newest_serial();
        self.want_durable(self.log.newest_record());
        self.destage.something_changed();
        self.destage.drains.push(Drain { id, serial });
    }

    pub(super) fn fail_drains(&mut self) {
        for drain in std::mem::take(&mut self.destage.drains) {
            self.reply(drain.id, Err(RequestError::Io), None);
        }
    }

    fn finish_drains(&mut self) -> bool {
        if self.destage.drains.is_empty() || !matches!(self.destage.work, Work::None) {
            return false;
        }
        let has_zeroes = !self.zeroes.is_empty();
        let oldest_live = self
            .log
            .segments
            .iter()
            .filter(|(_, segment)| segment.live_slots > 0)
            .map(|(_, segment)| segment.serial)
            .min();
        let (done, waiting) =
            std::mem::take(&mut self.destage.drains).into_iter().partition::<Vec<_>, _>(|drain| {
                !has_zeroes && oldest_live.is_none_or(|serial| serial > drain.serial)
            });
        self.destage.drains = waiting;
        let moved = !done.is_empty();
        for drain in done {
            self.reply(drain.id, Ok(()), None);
        }
        moved
    }

    // ---- what next ----------------------------------------------------------------------------

    pub(super) fn advance_destage(&mut self) -> bool {
        self.watch_marks();
        self.unblock();
        let mut moved = self.finish_drains();
        if self.cache_disk_failed || self.data_disk_writes_lost > 0 {
            return moved;
        }
        moved |= match &self.destage.work {
            Work::None => self.start_work(),
            Work::Victim => false,
            Work::Zero { .. } => self.advance_zero_work(),
            Work::Batch(_) => self.advance_batch(),
        };
        moved
    }

    pub(super) fn destage_wake_up(&self) -> Option<Time> {
        if self.cache_disk_failed || !self.has_destage_work() {
            return None;
        }
        if let Some(at) = self.destage.retry_at(self.now) {
            return Some(at);
        }
        if matches!(self.destage.work, Work::None) && !self.destage.exhausted.is_empty() {
            let blocked = self.destage.blocked.values().filter_map(|blocked| blocked.until);
            if let Some(at) = blocked.min() {
                return Some(at);
            }
        }
        match self.may_destage(self.destage_writes_in_flight()) {
            Go::At(at) => Some(at),
            // Nothing is known that would end it: the end of an I/O will.
            Go::Now | Go::Later => None,
        }
    }

    /// A line that cannot be destaged for now.
    pub(super) fn block_destage(&mut self, line: Line) {
        let until = Some(self.now.after(RETRY_MAX));
        self.destage.blocked.insert(line, Blocked { until, wait: RETRY_MAX });
    }

    /// Lines whose wait is over are looked at again; those that left the log are forgotten.
    fn unblock(&mut self) {
        if self.destage.blocked.is_empty() {
            return;
        }
        let (now, table) = (self.now, &self.table);
        self.destage.blocked.retain(|line, _| table.contains(*line));
        let mut any = false;
        for blocked in self.destage.blocked.values_mut() {
            if blocked.until.is_some_and(|until| until <= now) {
                blocked.until = None;
                any = true;
            }
        }
        if any {
            self.destage.something_changed();
        }
    }

    fn has_destage_work(&self) -> bool {
        self.table.lines() > 0
            || !self.zeroes.is_empty()
            || !matches!(self.destage.work, Work::None)
    }

    fn destage_writes_in_flight(&self) -> u32 {
        match &self.destage.work {
            Work::Zero { in_flight, .. } => *in_flight,
            Work::Batch(batch) => batch.runs_in_flight,
            _ => 0,
        }
    }

    fn start_work(&mut self) -> bool {
        // A shutdown leaves the log as it is.
        if self.close_wants_no_destage() {
            return false;
        }
        if !self.has_destage_work()
            || self.destage.retry_at(self.now).is_some()
            || self.may_destage(0) != Go::Now
        {
            return false;
        }
        if self.start_zero_work() {
            return true;
        }
        // Completing sectors takes room in the log. With little left, one victim is emptied after
        // the other: were many begun, all room could go before any of them is empty.
        if self.log_is_tight() {
            let record = self.destage.completion_record;
            if record > self.log.durable_record() {
                self.want_durable(record);
                return false;
            }
            if !self.destage.completing.is_empty() {
                return false;
            }
        }
        let Some(victim) = self.choose_victim() else {
            if self.destage_is_urgent() && self.log.newest_record() > self.log.durable_record() {
                // All that is left is not durable yet.
                self.want_durable(self.log.newest_record());
            }
            return false;
        };
        match self.log.segments.get(victim).state {
            SegmentState::Buffered(buffer) => {
                let at = self.log.memory_offset(buffer, 0);
                let length = self.superblock.geometry.segment_size_bytes as usize;
                let lines = self.live_lines_of(victim, &self.log.memory()[at..at + length]);
                self.gather(victim, &lines, None);
            }
            _ => {
                self.destage.work = Work::Victim;
                self.log.segments.add_reader(victim);
                let offset = self.superblock.geometry.segment_offset(victim);
                let length = self.superblock.geometry.segment_size_bytes;
                self.counters.destage_read_bytes += length;
                let purpose = Purpose::Destage(Step::ReadSegment(victim));
                self.start_read(Device::CacheDisk, offset, length, purpose);
            }
        }
        true
    }

    /// Only dcd's own appends find room.
    fn log_is_tight(&self) -> bool {
        self.log.segments.free().len() <= SEGMENTS_RESERVED as usize
    }

    fn choose_victim(&self) -> Option<SegmentIndex> {
        // What is still in a segment buffer is most likely to be overwritten: it goes last.
        self.choose_among(false).or_else(|| self.choose_among(true))
    }

    fn choose_among(&self, buffered: bool) -> Option<SegmentIndex> {
        let mut candidates = self
            .log
            .segments
            .iter()
            .filter(|(index, segment)| {
                segment.live_slots > 0
                    && matches!(segment.state, SegmentState::Buffered(_)) == buffered
                    && self.log.durable_slots(*index) > 0
                    && !self.destage.exhausted.contains(index)
            })
            .map(|(index, segment)| Candidate {
                index,
                serial: segment.serial,
                live_slots: segment.live_slots,
            });
        // A drain waits for the oldest segments, whatever the policy prefers.
        let policy = match self.destage.is_draining() {
            true => crate::config::DestagePolicyKind::FirstWriteFirst,
            false => self.config.destage_policy,
        };
        policy.policy().choose(&mut candidates).map(|candidate| candidate.index)
    }

    // ---- gathering a batch --------------------------------------------------------------------

    /// Collects the live lines among `lines` of the victim, and their neighbours. `image`: the bytes
    /// of the victim, if they were read.
    fn gather(
        &mut self,
        victim: SegmentIndex,
        lines: &[(Line, SlotIndex)],
        image: Option<&Buffer>,
    ) {
        self.destage.work = Work::None;
        let mut chosen: BTreeMap<Line, Pieces> = BTreeMap::new();
        let mut incomplete: BTreeSet<Line> = BTreeSet::new();
        for &(line, slot) in lines {
            if chosen.len() >= BATCH_LINES_MAX {
                break;
            }
            let pieces = self.table.find(line);
            if !pieces.as_slice().iter().any(|(known, _)| *known == slot) {
                continue;
            }
            self.gather_line(line, &mut chosen, &mut incomplete);
            for neighbour in (0..line.0).rev().map(Line) {
                if chosen.len() >= BATCH_LINES_MAX
                    || !self.gather_line(neighbour, &mut chosen, &mut incomplete)
                {
                    break;
                }
            }
            for neighbour in (line.0 + 1..).map(Line) {
                if chosen.len() >= BATCH_LINES_MAX
                    || !self.gather_line(neighbour, &mut chosen, &mut incomplete)
                {
                    break;
                }
            }
        }
        let may_use_reserve = self.log_is_tight();
        if may_use_reserve {
            let own: BTreeSet<Line> = lines.iter().map(|(line, _)| *line).collect();
            incomplete.retain(|line| own.contains(line));
        }
        self.start_completions(&incomplete, may_use_reserve);
        if chosen.is_empty() {
            self.destage.exhausted.insert(victim);
            return;
        }
        self.read_batch(chosen, victim, image);
    }

    /// Lines that the durable records of a segment hold, with their slots.
    fn live_lines_of(&self, segment: SegmentIndex, image: &[u8]) -> Vec<(Line, SlotIndex)> {
        let geometry = self.superblock.geometry;
        let serial = self.log.segments.get(segment).serial;
        let end = self.log.durable_slots(segment).min(geometry.slots_per_segment());
        let mut lines = Vec::new();
        let mut slot = 0;
        // A damaged header hides which lines its slots belong to, but not where the next valid one
        // is; what only it spoke of is found through the table instead.
        let mut is_damaged = false;
        while slot < end {
            let bytes = &image[(u64::from(slot) * LINE_SIZE) as usize..];
            let record = Record::decode(bytes).ok().filter(|record| {
                record.header.uuid == self.superblock.uuid
                    && record.header.serial == serial
                    && record.header.slot_in_segment == slot
                    && record.header.segment == segment
            });
            let Some(record) = record else {
                is_damaged = true;
                slot += 1;
                continue;
            };
            let mut data_slot = slot + 1;
            for entry in &record.entries {
                if let Entry::Data { line, .. } = entry {
                    lines.push((*line, geometry.slot(segment, data_slot)));
                    data_slot += 1;
                }
            }
            slot += record.slots();
        }
        // Dead slots are found as well; they make up for nothing that is hidden.
        let is_live = |(line, slot): &&(Line, SlotIndex)| {
            self.table.find(*line).as_slice().iter().any(|(known, _)| known == slot)
        };
        let live_slots = self.log.segments.get(segment).live_slots as usize;
        if is_damaged && lines.iter().filter(is_live).count() < live_slots {
            lines = self.table_lines_of(segment);
        }
        lines
    }

    fn table_lines_of(&self, segment: SegmentIndex) -> Vec<(Line, SlotIndex)> {
        let geometry = self.superblock.geometry;
        let mut lines = Vec::new();
        for (line, pieces) in self.table.iter() {
            for (slot, _) in pieces.as_slice() {
                if geometry.locate(*slot).0 == segment {
                    lines.push((line, *slot));
                }
            }
        }
        lines
    }

    /// Adds a line to the batch if it can go now; tells whether it is in.
    fn gather_line(
        &self,
        line: Line,
        chosen: &mut BTreeMap<Line, Pieces>,
        incomplete: &mut BTreeSet<Line>,
    ) -> bool {
        if chosen.contains_key(&line) {
            return false;
        }
        let pieces = self.table.find(line);
        let can_go = !pieces.as_slice().is_empty()
            && !self.is_zero(line)
            && !self.is_bypassed(line, 1)
            && pieces.as_slice().iter().all(|(slot, _)| self.log.is_durable(*slot))
            && !self.destage.completing.contains_key(&line)
            && self.destage.blocked.get(&line).is_none_or(|blocked| blocked.until.is_none());
        if !can_go {
            return false;
        }
        if !self.fills_sectors(line, pieces.mask()) {
            incomplete.insert(line);
            return false;
        }
        chosen.insert(line, pieces);
        true
    }

    /// Whether writing these fragments writes whole physical sectors (C15).
    fn fills_sectors(&self, line: Line, mask: FragmentMask) -> bool {
        let poisoned = self.poisoned.get(&line).copied().unwrap_or_default();
        // Beside poison, a torn sector loses nothing that is not lost already.
        self.data_disk.physical_sector_size as u64 == BLOCK_SIZE
            || self.destage.incomplete_allowed.contains(&line)
            || mask.or(poisoned).contains(self.line_mask(line))
                && (poisoned.is_empty()
                    || u64::from(self.data_disk.logical_block_size) == BLOCK_SIZE)
    }

    fn read_batch(
        &mut self,
        chosen: BTreeMap<Line, Pieces>,
        victim: SegmentIndex,
        image: Option<&Buffer>,
    ) {
        let geometry = self.superblock.geometry;
        let mut batch = Batch {
            data: Buffer::zeroed(chosen.len() * LINE_SIZE as usize),
            lines: chosen
                .into_iter()
                .map(|(line, pieces)| BatchLine { line, pieces, failed: false })
                .collect(),
            reads_left: 0,
            runs: VecDeque::new(),
            runs_in_flight: 0,
            flushing: false,
            newest_serial: self.log.newest_serial(),
        };
        // Slots by place, so that adjacent ones are read together.
        let mut slots: BTreeMap<SlotIndex, Line> = BTreeMap::new();
        let mut damaged = Vec::new();
        for index in 0..batch.lines.len() {
            let (line, pieces) = (batch.lines[index].line, batch.lines[index].pieces);
            for (slot, mask) in pieces.as_slice() {
                let (segment, slot_in_segment) = geometry.locate(*slot);
                let bytes = match image {
                    Some(image) if segment == victim => {
                        let at = (u64::from(slot_in_segment) * LINE_SIZE) as usize;
                        Some(&image.bytes()[at..at + LINE_SIZE as usize])
                    }
                    _ => self.log.slot_in_memory(*slot),
                };
                match bytes {
                    None => {
                        slots.insert(*slot, line);
                    }
                    Some(bytes) if crc32c(bytes) == self.table.checksum(*slot) => {
                        batch.put(index, *mask, bytes);
                    }
                    Some(_) => {
                        batch.lines[index].failed = true;
                        damaged.push((line, *slot));
                    }
                }
            }
        }
        for (line, slot) in damaged {
            self.damaged_slot(line, slot);
        }
        let mut group: Vec<(SlotIndex, Line)> = Vec::new();
        for (slot, line) in slots {
            let follows = group.last().is_some_and(|(last, _)| {
                last.0 + 1 == slot.0 && !slot.0.is_multiple_of(geometry.slots_per_segment())
            });
            if !follows && !group.is_empty() {
                self.read_slots(&mut batch, std::mem::take(&mut group));
            }
            group.push((slot, line));
        }
        if !group.is_empty() {
            self.read_slots(&mut batch, group);
        }
        self.destage.work = Work::Batch(batch);
    }

    fn read_slots(&mut self, batch: &mut Batch, slots: Vec<(SlotIndex, Line)>) {
        let geometry = self.superblock.geometry;
        let (segment, _) = geometry.locate(slots[0].0);
        let offset = geometry.slot_offset(slots[0].0);
        let length = slots.len() as u64 * LINE_SIZE;
        batch.reads_left += 1;
        self.counters.destage_read_bytes += length;
        self.log.segments.add_reader(segment);
        let step = Step::ReadSlots { segment, slots };
        self.start_read(Device::CacheDisk, offset, length, Purpose::Destage(step));
    }

    fn slots_read(
        &mut self,
        slots: &[(SlotIndex, Line)],
        result: Result<(), IoError>,
        buffer: Option<Buffer>,
    ) {
        let Work::Batch(mut batch) = std::mem::take(&mut self.destage.work) else {
            unreachable!("slots are read for a batch");
        };
        batch.reads_left -= 1;
        if result == Err(IoError::Failed) {
            match slots {
                // A dirty slot that cannot be read is lost until it is overwritten (C21).
                [(slot, line)] => {
                    let index = batch.position(*line);
                    batch.lines[index].failed = true;
                    self.damaged_slot(*line, *slot);
                }
                several => {
                    for one in several {
                        self.read_slots(&mut batch, vec![*one]);
                    }
                }
            }
            self.destage.work = Work::Batch(batch);
            return;
        }
        for (i, (slot, line)) in slots.iter().enumerate() {
            let index = batch.position(*line);
            let bytes = match (&result, &buffer) {
                (Ok(()), Some(buffer)) => {
                    let at = i * LINE_SIZE as usize;
                    Some(&buffer.bytes()[at..at + LINE_SIZE as usize])
                }
                _ => None,
            };
            match bytes {
                Some(bytes) if crc32c(bytes) == self.table.checksum(*slot) => {
                    let pieces = batch.lines[index].pieces;
                    let piece = pieces.as_slice().iter().find(|(known, _)| known == slot);
                    let (_, mask) = piece.expect("the slot was read for this line");
                    batch.put(index, *mask, bytes);
                }
                // The newest copy is damaged: the data-disk keeps what it has, reads fail (C21).
                Some(_) => {
                    batch.lines[index].failed = true;
                    self.damaged_slot(*line, *slot);
                }
                // It could not be read this time; it stays dirty.
                None => batch.lines[index].failed = true,
            }
        }
        if result.is_err() {
            self.back_off();
        }
        self.destage.work = Work::Batch(batch);
    }

    // ---- writing a batch ----------------------------------------------------------------------

    fn advance_batch(&mut self) -> bool {
        let Work::Batch(mut batch) = std::mem::take(&mut self.destage.work) else {
            unreachable!("called for a batch");
        };
        let mut moved = false;
        if batch.reads_left == 0 && !batch.flushing {
            if !batch.data.is_empty() && batch.runs.is_empty() && batch.runs_in_flight == 0 {
                moved |= self.plan_or_flush(&mut batch);
            }
            if self.close_wants_no_destage() {
                moved |= !batch.runs.is_empty();
                for run in batch.runs.drain(..) {
                    batch.lines[run.first..run.first + run.count]
                        .iter_mut()
                        .for_each(|line| line.failed = true);
                }
            }
            while !batch.runs.is_empty() && self.may_destage(batch.runs_in_flight) == Go::Now {
                let run = batch.runs.pop_front().expect("not empty");
                self.write_run(&mut batch, &run);
                moved = true;
            }
        }
        self.destage.work = Work::Batch(batch);
        moved
    }

    /// Called when no run is left: the first time to plan them, the second time they are written.
    fn plan_or_flush(&mut self, batch: &mut Batch) -> bool {
        if !batch.is_planned() {
            batch.plan_runs(&self.destage.blocked);
            if !batch.runs.is_empty() {
                return true;
            }
        }
        batch.flushing = true;
        self.start_flush(Device::DataDisk, Purpose::Destage(Step::Flush));
        true
    }

    fn write_run(&mut self, batch: &mut Batch, run: &Run) {
        let first_byte = batch.lines[run.first].line.lba().byte();
        let at = run.first * LINE_SIZE as usize + (run.range.start.byte() - first_byte) as usize;
        let length = run.range.bytes() as usize;
        let data = Buffer::copy_of(&batch.data.bytes()[at..at + length]);
        batch.runs_in_flight += 1;
        self.counters.destage_writes += 1;
        self.counters.destage_write_bytes += length as u64;
        self.count_against_caps(length as u64);
        let step = Step::WriteRun { first: run.first, count: run.count };
        let offset = run.range.start.byte();
        self.start_write(Device::DataDisk, offset, data, Purpose::Destage(step));
    }

    fn run_written(
        &mut self,
        first: usize,
        count: usize,
        result: Result<(), IoError>,
        service: Duration,
    ) {
        self.pace.write_done(self.now, service);
        let Work::Batch(batch) = &mut self.destage.work else {
            unreachable!("runs are written for a batch");
        };
        batch.runs_in_flight -= 1;
        // Those of a write that failed stay dirty and wait, the others go on (C24).
        for entry in &mut batch.lines[first..first + count] {
            if result.is_ok() {
                self.destage.blocked.remove(&entry.line);
                continue;
            }
            entry.failed = true;
            let before = self.destage.blocked.get(&entry.line);
            let wait = before.map_or(RETRY_MIN, |b| Duration(b.wait.0 * 2).min(RETRY_MAX));
            let until = Some(self.now.after(wait));
            self.destage.blocked.insert(entry.line, Blocked { until, wait });
        }
    }

    /// Steps 4 and 5.
    fn batch_flushed(&mut self, result: Result<(), IoError>) {
        let Work::Batch(batch) = std::mem::take(&mut self.destage.work) else {
            unreachable!("flushed for a batch");
        };
        self.destage.something_changed();
        if result.is_err() {
            for entry in &batch.lines {
                self.witnesses.forget(entry.line);
            }
            self.data_disk_flush_failed();
            return self.back_off();
        }
        for (index, entry) in batch.lines.iter().enumerate() {
            // The same slots may hold something newer, after a whole lap of the log.
            let is_refilled = entry.pieces.as_slice().iter().any(|(slot, _)| {
                let (segment, _) = self.superblock.geometry.locate(*slot);
                self.log.segments.get(segment).serial > batch.newest_serial
            });
            if entry.failed || is_refilled || self.table.find(entry.line) != entry.pieces {
                // The checksum of the data-disk is not known: the line went there, perhaps.
                self.witnesses.forget(entry.line);
                continue;
            }
            // A witness may not change but with the log: not one that a bypass waits to write.
            if entry.pieces.mask().is_full() && !self.is_bypassed(entry.line, 1) {
                let at = index * LINE_SIZE as usize;
                let checksum = crc32c(&batch.data.bytes()[at..at + LINE_SIZE as usize]);
                self.witnesses.destaged(entry.line, checksum);
            } else {
                self.witnesses.forget(entry.line);
            }
            self.forget(entry.line, FragmentMask::FULL);
            self.destage.incomplete_allowed.remove(&entry.line);
            self.counters.destaged_lines += 1;
        }
        self.counters.destage_batches += 1;
        self.destage.retry = None;
    }

    /// What has been written for the work under way, and not flushed, does not count.
    pub(super) fn fail_destage_work(&mut self) {
        match &mut self.destage.work {
            Work::Batch(batch) => batch.lines.iter_mut().for_each(|line| line.failed = true),
            Work::Zero { failed, .. } => *failed = true,
            Work::None | Work::Victim => {}
        }
    }

    /// Something failed: not again at once.
    fn back_off(&mut self) {
        let wait = match self.destage.retry {
            Some((at, wait)) if at > self.now => wait,
            Some((_, wait)) => Duration(wait.0 * 2).min(RETRY_MAX),
            None => RETRY_MIN,
        };
        self.destage.retry = Some((self.now.after(wait), wait));
    }

    // ---- zero ranges --------------------------------------------------------------------------

    fn start_zero_work(&mut self) -> bool {
        // They must be durable in the log first (C10); their records are, when all records are.
        if self.zeroes.is_empty() {
            return false;
        }
        let record = self.destage.zeroes_record;
        if record > self.log.durable_record() {
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
        let ranges: Vec<(Line, u64)> = self.zeroes.iter().collect();
        for (line, lines) in ranges {
            if to_start.len() >= ZERO_OPERATIONS_MAX {
                break;
            }
            let lines = lines.min(lines_max);
            if !self.is_bypassed(line, lines) {
                to_start.push_back((line, lines));
            }
        }
        if to_start.is_empty() {
            return false;
        }
        for (line, lines) in &to_start {
            self.zeroes.remove(*line, *lines);
            self.zeroes_destaging.insert(*line, *lines);
        }
        self.destage.work = Work::Zero { to_start, in_flight: 0, failed: false, flushing: false };
        true
    }

    fn advance_zero_work(&mut self) -> bool {
        let go = self.may_destage(self.destage_writes_in_flight());
        let stop = self.close_wants_no_destage();
        let Work::Zero { to_start, in_flight, failed, flushing } = &mut self.destage.work else {
            unreachable!("called for zero work");
        };
        if *flushing {
            return false;
        }
        if stop && !to_start.is_empty() {
            to_start.clear();
            *failed = true;
        }
        if let Some((line, lines)) = to_start.front().copied() {
            if go != Go::Now {
                return false;
            }
            to_start.pop_front();
            *in_flight += 1;
            let end = (line.lba().0 + lines * FRAGMENTS_PER_LINE).min(self.data_disk.blocks);
            let length = end * BLOCK_SIZE - line.lba().byte();
            let offset = line.lba().byte();
            let purpose = Purpose::Destage(Step::WriteZeroes);
            if self.destage.zeroes_by_writing {
                let zeroes = Buffer::zeroed(length as usize);
                self.start_write(Device::DataDisk, offset, zeroes, purpose);
                return true;
            }
            let may_unmap = !self.zeroes_kept_allocated.overlaps(line, lines);
            let operation = IoOperation::WriteZeroes { offset, length, may_unmap };
            self.start_io(Device::DataDisk, operation, purpose);
            return true;
        }
        if *in_flight > 0 {
            return false;
        }
        *flushing = true;
        self.start_flush(Device::DataDisk, Purpose::Destage(Step::Flush));
        true
    }

    fn zeroes_flushed(&mut self, write_failed: bool, result: Result<(), IoError>) {
        self.destage.work = Work::None;
        self.destage.something_changed();
        let ranges: Vec<(Line, u64)> = self.zeroes_destaging.iter().collect();
        self.zeroes_destaging = Default::default();
        if result.is_err() || write_failed {
            // All of them again: zeroing twice does no harm.
            for (line, lines) in ranges {
                self.zeroes.insert(line, lines);
                // Some of it may be zero on the data-disk by now.
                for witness in self.witnesses.within(line, lines) {
                    self.witnesses.forget(witness);
                }
            }
            if result.is_err() {
                self.data_disk_flush_failed();
            }
            return self.back_off();
        }
        for (line, lines) in ranges {
            for witness in self.witnesses.within(line, lines) {
                self.witnesses.set(witness, crc32c(&[0; LINE_SIZE as usize]));
            }
            if !self.zeroes.overlaps(line, lines) {
                self.zeroes_kept_allocated.remove(line, lines);
            }
            self.counters.destaged_zero_ranges += 1;
        }
        self.destage.retry = None;
    }

    // ---- completing physical sectors ----------------------------------------------------------

    fn start_completions(&mut self, lines: &BTreeSet<Line>, may_use_reserve: bool) {
        for line in lines {
            if self.destage.completing.len() >= COMPLETIONS_MAX {
                return;
            }
            let completing = Completing { cancelled: false, may_use_reserve };
            self.destage.completing.insert(*line, completing);
            let mask = self.line_mask(*line);
            let length = u64::from(mask.0.count_ones()) * BLOCK_SIZE;
            let purpose = Purpose::Destage(Step::ReadForCompletion(*line));
            self.start_read(Device::DataDisk, line.lba().byte(), length, purpose);
        }
    }

    fn completion_read(&mut self, line: Line, result: Result<(), IoError>, buffer: Option<Buffer>) {
        let completing = self.destage.completing.remove(&line).expect("being completed");
        self.destage.something_changed();
        let (Ok(()), Some(buffer)) = (result, buffer) else { return self.back_off() };
        let present = self.table.find(line).mask();
        let poisoned = self.poisoned.get(&line).copied().unwrap_or_default();
        let missing = self.line_mask(line).without(present).without(poisoned);
        if completing.cancelled || present.is_empty() || missing.is_empty() {
            return;
        }
        if !self.log.has_room(1, completing.may_use_reserve) {
            if completing.may_use_reserve {
                // Crashes and errors at a bad time have eaten the reserve. Standing still for ever
                // would be worse than a sector that is written as its fragments.
                self.destage.incomplete_allowed.insert(line);
            }
            return;
        }
        let mut bytes = Vec::with_capacity(LINE_SIZE as usize);
        for run in missing.byte_runs() {
            bytes.extend_from_slice(&buffer.bytes()[run]);
        }
        let (slot, checksum) = self.log.append_data(line, missing, &bytes);
        self.log.end_request();
        let dead = self.table.insert(line, missing, slot, checksum);
        assert!(dead.as_slice().is_empty(), "what was missing kills nothing");
        self.counters.completed_lines += 1;
        self.destage.completion_record = self.log.newest_record();
        if self.destage_is_urgent() && self.destage.completing.is_empty() {
            // All of a victim in one commit: each commit costs the log a header.
            self.want_durable(self.log.newest_record());
        }
    }

    // ---- dispatch -----------------------------------------------------------------------------

    pub(super) fn destage_io_done(
        &mut self,
        step: Step,
        result: Result<(), IoError>,
        buffer: Option<Buffer>,
        service: Duration,
    ) {
        match step {
            Step::ReadSegment(victim) => {
                self.log.segments.drop_reader(victim);
                self.destage.work = Work::None;
                match (result, buffer) {
                    (Ok(()), Some(image)) => {
                        let lines = self.live_lines_of(victim, image.bytes());
                        self.gather(victim, &lines, Some(&image));
                    }
                    // One bad sector must not hold back the rest of its segment.
                    (Err(IoError::Failed), _) => {
                        let lines = self.table_lines_of(victim);
                        self.gather(victim, &lines, None);
                    }
                    _ => self.back_off(),
                }
            }
            Step::ReadSlots { segment, slots } => {
                self.log.segments.drop_reader(segment);
                self.slots_read(&slots, result, buffer);
            }
            Step::ReadForCompletion(line) => self.completion_read(line, result, buffer),
            Step::WriteRun { first, count } => self.run_written(first, count, result, service),
            Step::WriteZeroes => {
                self.pace.write_done(self.now, service);
                let Work::Zero { in_flight, failed, .. } = &mut self.destage.work else {
                    unreachable!("zeroes are written for zero work");
                };
                *in_flight -= 1;
                *failed |= result.is_err();
                self.destage.zeroes_by_writing |= result == Err(IoError::Unsupported);
            }
            Step::Flush => match &self.destage.work {
                Work::Zero { failed, .. } => {
                    let failed = *failed;
                    self.zeroes_flushed(failed, result);
                }
                _ => self.batch_flushed(result),
            },
        }
    }
}

impl Batch {
    fn position(&self, line: Line) -> usize {
        self.lines.binary_search_by_key(&line, |known| known.line).expect("a line of the batch")
    }

    /// Puts the fragments of a slot to their place.
    fn put(&mut self, index: usize, mask: FragmentMask, slot: &[u8]) {
        let base = index * LINE_SIZE as usize;
        for run in mask.byte_runs() {
            let target = base + run.start..base + run.end;
            self.data.bytes_mut()[target].copy_from_slice(&slot[run]);
        }
    }

    fn is_planned(&self) -> bool {
        self.runs.capacity() > 0
    }

    /// Joins lines, sorted by address, into as few writes as possible.
    fn plan_runs(&mut self, alone: &BTreeMap<Line, Blocked>) {
        self.runs.reserve(1);
        let mut before_is_alone = false;
        for (index, entry) in self.lines.iter().enumerate() {
            if entry.failed {
                continue;
            }
            let is_alone = alone.contains_key(&entry.line);
            let may_join = !is_alone && !before_is_alone;
            before_is_alone = is_alone;
            for bytes in entry.pieces.mask().byte_runs() {
                let start = entry.line.lba().0 + bytes.start as u64 / BLOCK_SIZE;
                let range = LbaRange::new(start, bytes.len() as u64 / BLOCK_SIZE);
                match self.runs.back_mut() {
                    Some(run)
                        if may_join
                            && run.range.end() == range.start.0
                            && run.range.blocks < RUN_LINES_MAX * FRAGMENTS_PER_LINE =>
                    {
                        run.range.blocks += range.blocks;
                        run.count = index - run.first + 1;
                    }
                    _ => self.runs.push_back(Run { first: index, count: 1, range }),
                }
            }
        }
    }
}
