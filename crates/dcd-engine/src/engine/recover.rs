//! From the newest checkpoint and the records after it to a running engine.
//!
//! ```text
//! 1. Read both checkpoint headers, then the newer checkpoint that is whole.
//! 2. Follow the chain of records from its position: through the rest of that segment, then
//!    through the segments it lists as free, in order, until the next record is not there. A segment
//!    whose buffer survived in the segment memory is taken from there: it may hold more (C4).
//!    Behind an end, the chain may go on in a later segment: what an error kept from becoming
//!    durable was logged again there (C22).
//! 3. Is that the end, or damage? If a later record says that the missing one was durable, it is
//!    damage, and nothing is cut off silently (C19). So is a checkpoint that a record calls durable and
//!    that cannot be read: if one is damaged, the first record of every segment is asked.
//! 4. Replay the records into the table.
//! 5. Compare the witnesses: was the data-disk changed behind a dirty cache? (C28)
//!      Up to here nothing has been written: a crash changes nothing (C17).
//! 6. Write everything that is not known to be durable to its place again ([`rewrite`]), and flush
//!    both disks.
//!      The same bytes at the same places: a crash and a repetition do no harm. The data-disk may
//!      hold an unflushed part of a bypassed write: once shown, it must not vanish (C9).
//! 7. Write a checkpoint for the new session and flush: now the prefix is fixed. What an earlier
//!    session may still have in some queue can no longer become part of the log.
//! 8. Write the superblock: open, new generation. Then take requests.
//! ```
//!
//! A data-disk that has grown (C32) is opened with its new size from the beginning; step 8 records it.
//! Crash before: the old size counts, and nothing speaks of what lies behind it but witnesses, which
//! an opening with the old size leaves out. Crash after: the new size counts. Both can be opened.

mod rewrite;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use self::rewrite::{Rewrite, Source};
use super::{Engine, Phase, Purpose};
use crate::buffer::Buffer;
use crate::error::{FormatError, OpenError};
use crate::format::checkpoint::{Checkpoint, HEADER_SIZE};
use crate::format::checksum::crc32c;
use crate::format::geometry::POISONED_LINES_MAX;
use crate::format::record::{self, ENTRIES_OFFSET, Entry, Record, Seal};
use crate::format::superblock::CacheState;
use crate::io::{Device, IoData, IoError, IoOperation};
use crate::log::control::{self, CONTROL_SIZE, OpenMark};
use crate::log::segment::BufferIndex;
use crate::seeded_bugs::{SeededBug, seeded};
use crate::stats::RecoveryReport;
use crate::units::{
    FRAGMENTS_PER_LINE, FragmentMask, LINE_SIZE, Line, RecordNumber, SegmentIndex, SegmentSerial,
    SlotIndex,
};

/// Segments that are looked at together for what they say of checkpoints.
const SCANS_AT_ONCE: usize = 64;

/// An I/O of recovery.
pub(super) enum Step {
    CheckpointHeader(usize),
    Checkpoint(usize),
    Segment,
    /// A slot of a segment that could not be read whole.
    SegmentSlot(u32),
    Scan(SegmentIndex),
    /// The same, of a segment in which the chain cannot go on.
    ScanForCheckpoint(SegmentIndex),
    Witness(Line),
    Rewrite,
    Flush(Device),
    Superblock,
}

/// What recovery knows so far.
pub(super) struct Recovery {
    stage: Stage,
    ios_left: u32,
    /// What is known of each checkpoint area: its generation and length, or what is wrong.
    areas: [Result<(u64, u64), FormatError>; 2],
    checkpoint: Option<Checkpoint>,
    /// The area it was read from.
    checkpoint_area: usize,
    chain: Chain,
    marks: Vec<OpenMark>,
    /// The session gave up its cache-disk (C23): nothing in the segment memory counts.
    memory_is_void: bool,
    /// The segment memory is of the last session, which kept its cache-disk to its end.
    memory_speaks_for_the_cache_disk: bool,
    found: Vec<FoundRecord>,
    /// So many of them, from the first on, are known to be durable.
    found_durable: usize,
    /// The segment being read slot by slot; what cannot be read stays zero.
    image_of_slots: Option<Buffer>,
    /// Slots that cannot be read. What they hold is not known, so nothing may be concluded from them.
    unreadable: BTreeSet<SlotIndex>,
    /// Images of the last segment of the chain and of the one behind it, for the search for later
    /// records: (segment, serial, first slot, bytes).
    images: Vec<(SegmentIndex, SegmentSerial, u32, Buffer)>,
    /// Records that were found beyond the end.
    later: Vec<Record>,
    /// Segments whose first record is still to be looked at for what it says of checkpoints.
    unseen: VecDeque<SegmentIndex>,
    /// The newest checkpoint that any record of the session calls durable.
    newest_generation: u64,
    /// What is to be written again.
    rewrites: Vec<Rewrite>,
    witnesses_read: BTreeMap<Line, u32>,
    report: RecoveryReport,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    CheckpointHeaders,
    Checkpoint,
    Chain,
    Scan,
    Witnesses,
    Rewrites,
    RewriteFlush,
    OldestRewrite,
    Flush,
    NewCheckpoint,
    Superblock,
}

/// The next record that is expected, and where.
struct Chain {
    /// The segment being followed, and those behind it.
    segments: VecDeque<SegmentIndex>,
    serial: SegmentSerial,
    slot: u32,
    number: RecordNumber,
    previous_checksum: u32,
    /// Newest serial of which a record was found.
    newest_serial: SegmentSerial,
}

/// More lines than slots: only a forged log can say so.
struct TooManyLines;

impl Recovery {
    /// Checksum of the record before `number`, if that is in the chain.
    fn before(&self, number: RecordNumber) -> Option<u32> {
        let position = self.checkpoint.as_ref()?.position;
        if number == position.next_record {
            return Some(position.previous_checksum);
        }
        let found = self.found.iter().rev();
        let mut before = found.filter(|known| known.record.header.number.next() == number);
        before.next().map(|known| known.record.checksum)
    }
}

struct FoundRecord {
    record: Record,
    /// Lines whose slot in it does not match its checksum.
    damaged: Vec<(Line, FragmentMask)>,
    /// Where its bytes are, if it may have to be written again.
    source: Source,
}

impl Engine {
    /// Step 1.
    pub(super) fn start_recovery(&mut self) {
        self.recovery = Some(Box::new(Recovery {
            stage: Stage::CheckpointHeaders,
            ios_left: 2,
            areas: std::array::from_fn(|_| Ok((0, 0))),
            checkpoint: None,
            checkpoint_area: 0,
            chain: Chain {
                segments: VecDeque::new(),
                serial: SegmentSerial(0),
                slot: 0,
                number: RecordNumber(0),
                previous_checksum: 0,
                newest_serial: SegmentSerial(0),
            },
            marks: Vec::new(),
            memory_is_void: false,
            memory_speaks_for_the_cache_disk: false,
            found: Vec::new(),
            found_durable: 0,
            image_of_slots: None,
            unreadable: BTreeSet::new(),
            images: Vec::new(),
            later: Vec::new(),
            unseen: VecDeque::new(),
            newest_generation: 0,
            rewrites: Vec::new(),
            witnesses_read: BTreeMap::new(),
            report: RecoveryReport {
                was_closed: self.superblock.state != CacheState::Open,
                ..RecoveryReport::default()
            },
        }));
        for area in 0..2 {
            let offset = self.superblock.geometry.checkpoint_offsets[area];
            let purpose = Purpose::Recover(Step::CheckpointHeader(area));
            self.start_read(Device::CacheDisk, offset, HEADER_SIZE as u64, purpose);
        }
    }

    fn recovery(&mut self) -> &mut Recovery {
        self.recovery.as_mut().expect("recovery is under way")
    }

    fn fail_open(&mut self, error: OpenError) {
        self.recovery = None;
        self.phase = Phase::Failed(error);
    }

    pub(super) fn recover_io_done(
        &mut self,
        step: Step,
        result: Result<(), IoError>,
        buffer: Option<Buffer>,
    ) {
        if self.recovery.is_none() {
            return; // It has failed already; this is a straggler.
        }
        let geometry = self.superblock.geometry;
        let uuid = self.superblock.uuid;
        let accept_damage = self.config.accept_damage;
        let recovery = self.recovery();
        recovery.ios_left -= 1;
        let bytes = match result {
            Ok(()) => Ok(buffer.unwrap_or_default()),
            Err(error) => Err(error),
        };
        // The buffers of writes come back, too.
        let is_read = !matches!(step, Step::Witness(_) | Step::Rewrite | Step::Superblock);
        if let (Ok(bytes), true) = (&bytes, is_read) {
            recovery.report.bytes_read += bytes.len() as u64;
        }
        match (step, bytes) {
            (Step::CheckpointHeader(area), Ok(bytes)) => {
                let header = Checkpoint::decode_header(bytes.bytes(), uuid, &geometry);
                recovery.areas[area] =
                    header.map(|header| (header.generation, header.payload_bytes));
            }
            (Step::Checkpoint(area), Ok(bytes)) => {
                match Checkpoint::decode(bytes.bytes(), uuid, &geometry) {
                    Ok(checkpoint) => {
                        recovery.checkpoint = Some(checkpoint);
                        recovery.checkpoint_area = area;
                    }
                    Err(error) => recovery.areas[area] = Err(error),
                }
            }
            (Step::CheckpointHeader(area) | Step::Checkpoint(area), Err(error)) => {
                recovery.areas[area] =
                    Err(FormatError::Unreadable { what: "the checkpoint", error });
            }
            (Step::Segment, Ok(bytes)) => self.segment_read(bytes),
            (Step::Scan(_), Ok(bytes)) => self.note_later_record(bytes.bytes()),
            (Step::ScanForCheckpoint(_), Ok(bytes)) => {
                self.record_of_session(bytes.bytes());
            }
            (Step::Scan(_) | Step::ScanForCheckpoint(_), Err(_)) if accept_damage => {}
            // Records that were logged again may begin there (C22), or one that speaks of a checkpoint.
            (Step::Scan(segment) | Step::ScanForCheckpoint(segment), Err(error)) => {
                let offset = geometry.segment_offset(segment);
                self.fail_open(OpenError::Io { device: Device::CacheDisk, offset, error });
            }
            (Step::Witness(line), Ok(bytes)) => {
                recovery.witnesses_read.insert(line, crc32c(bytes.bytes()));
            }
            // A witness that cannot be read says nothing.
            (Step::Witness(_), Err(_)) => {}
            (Step::Rewrite | Step::Flush(_) | Step::Superblock, Ok(_)) => {}
            (Step::Segment, Err(IoError::Failed)) => self.read_segment_by_slots(),
            (Step::Segment, Err(error)) => {
                let segment = recovery.chain.segments.front().copied().unwrap_or_default();
                let offset = geometry.segment_offset(segment);
                self.fail_open(OpenError::Io { device: Device::CacheDisk, offset, error });
            }
            (Step::SegmentSlot(index), bytes) => {
                let image = recovery.image_of_slots.as_mut().expect("read slot by slot");
                if let Ok(bytes) = bytes {
                    let at = index as usize * LINE_SIZE as usize;
                    image.bytes_mut()[at..at + LINE_SIZE as usize].copy_from_slice(bytes.bytes());
                } else {
                    let segment = recovery.chain.segments.front().copied().unwrap_or_default();
                    let slot = geometry.slot(segment, recovery.chain.slot + index);
                    recovery.unreadable.insert(slot);
                }
                if recovery.ios_left == 0 {
                    let image = recovery.image_of_slots.take().expect("looked at");
                    self.segment_read(image);
                }
            }
            (Step::Flush(device), Err(error)) => {
                self.fail_open(OpenError::Io { device, offset: 0, error });
            }
            (Step::Rewrite | Step::Superblock, Err(error)) => {
                let offset = self.superblock.offset();
                self.fail_open(OpenError::Io { device: Device::CacheDisk, offset, error });
            }
        }
    }

    pub(super) fn advance_recovery(&mut self) {
        while self.phase == Phase::Opening {
            let recovery = self.recovery();
            if recovery.ios_left > 0 {
                return;
            }
            match recovery.stage {
                Stage::CheckpointHeaders => self.read_newest_checkpoint(),
                Stage::Checkpoint if recovery.checkpoint.is_some() => self.start_chain(),
                Stage::Checkpoint => self.read_newest_checkpoint(),
                Stage::Chain => self.read_next_segment(),
                Stage::Scan if recovery.unseen.is_empty() => self.judge_the_end(),
                Stage::Scan => self.scan_for_checkpoint(),
                Stage::Witnesses => self.compare_witnesses(),
                Stage::Rewrites if recovery.rewrites.is_empty() => {
                    recovery.stage = Stage::OldestRewrite;
                }
                Stage::Rewrites => {
                    recovery.stage = Stage::RewriteFlush;
                    recovery.ios_left = 1;
                    let flush = Purpose::Recover(Step::Flush(Device::CacheDisk));
                    self.start_flush(Device::CacheDisk, flush);
                }
                Stage::RewriteFlush => {
                    recovery.stage = Stage::OldestRewrite;
                    let oldest = std::mem::take(&mut recovery.rewrites);
                    self.write_again(oldest);
                }
                Stage::OldestRewrite => {
                    recovery.stage = Stage::Flush;
                    recovery.ios_left = 2;
                    for device in [Device::CacheDisk, Device::DataDisk] {
                        self.start_flush(device, Purpose::Recover(Step::Flush(device)));
                    }
                }
                Stage::Flush => self.start_session(),
                Stage::NewCheckpoint => {
                    while self.advance_checkpoint() {}
                    if self.cache_disk_failed {
                        let offset = self.superblock.geometry.checkpoint_offsets[0];
                        let error = IoError::Failed;
                        let device = Device::CacheDisk;
                        return self.fail_open(OpenError::Io { device, offset, error });
                    }
                    if !self.checkpoint.is_idle() {
                        return;
                    }
                    self.write_superblock();
                }
                Stage::Superblock => self.finish_recovery(),
            }
        }
    }

    // ---- step 1: the checkpoint ---------------------------------------------------------------

    fn read_newest_checkpoint(&mut self) {
        let recovery = self.recovery();
        let newest = (0..2)
            .filter_map(|area| Some((recovery.areas[area].as_ref().ok()?, area)))
            .max_by_key(|((generation, _), _)| match seeded(SeededBug::OlderCheckpointBelieved) {
                true => u64::MAX - *generation,
                false => *generation,
            });
        let Some((&(_, payload_bytes), area)) = newest else {
            let [first, second] = recovery.areas.clone().map(|area| area.expect_err("none valid"));
            return self.fail_open(OpenError::Checkpoint { first, second });
        };
        recovery.stage = Stage::Checkpoint;
        recovery.ios_left = 1;
        let offset = self.superblock.geometry.checkpoint_offsets[area];
        let length = HEADER_SIZE as u64 + payload_bytes;
        let purpose = Purpose::Recover(Step::Checkpoint(area));
        self.start_read(Device::CacheDisk, offset, length, purpose);
    }

    /// Step 2.
    fn start_chain(&mut self) {
        // The session that the superblock speaks of began with a checkpoint.
        let epoch_min = match self.superblock.state {
            CacheState::Open => self.superblock.generation,
            // A new cache of which only the first superblock copy was written has generation 0.
            CacheState::Closed | CacheState::Detached => {
                self.superblock.generation.saturating_sub(1)
            }
        };
        let marks_page = self.log.memory()[..CONTROL_SIZE].to_vec();
        let recovery = self.recovery();
        let checkpoint = recovery.checkpoint.as_ref().expect("it was read");
        if checkpoint.epoch < epoch_min {
            let found = checkpoint.generation;
            return self.fail_open(OpenError::CheckpointLost { lost: found + 1, found });
        }
        recovery.marks = control::read_marks(&marks_page, checkpoint.epoch);
        let note = control::is_void(&marks_page, checkpoint.epoch);
        recovery.memory_is_void = note == Some(true);
        recovery.memory_speaks_for_the_cache_disk = note == Some(false);
        let position = checkpoint.position;
        recovery.chain = Chain {
            segments: [position.segment]
                .into_iter()
                .chain(checkpoint.free.iter().copied())
                .take(if seeded(SeededBug::RecoveryStopsAtSegmentEnd) { 1 } else { usize::MAX })
                .collect(),
            serial: position.serial,
            slot: position.slot_in_segment,
            number: position.next_record,
            previous_checksum: position.previous_checksum,
            newest_serial: position.serial,
        };
        recovery.stage = Stage::Chain;
    }

    // ---- step 2: the chain --------------------------------------------------------------------

    fn read_next_segment(&mut self) {
        let geometry = self.superblock.geometry;
        let recovery = self.recovery();
        let chain = &mut recovery.chain;
        if chain.slot >= geometry.slots_per_segment() {
            chain.segments.pop_front();
            chain.serial.0 += 1;
            chain.slot = 0;
        }
        let slot = chain.slot;
        let Some(segment) = chain.segments.front().copied() else { return self.start_scan() };
        if let Some(buffer) = self.buffer_of_next_record() {
            return self.follow_memory(buffer);
        }
        self.recovery().ios_left = 1;
        let offset = geometry.slot_offset(geometry.slot(segment, slot));
        let length = geometry.segment_size_bytes - u64::from(slot) * LINE_SIZE;
        self.start_read(Device::CacheDisk, offset, length, Purpose::Recover(Step::Segment));
    }

    /// One bad sector must not hide the rest of its segment: what it held is damaged, no more.
    fn read_segment_by_slots(&mut self) {
        let geometry = self.superblock.geometry;
        let chain = &self.recovery().chain;
        let first_slot = chain.slot;
        let segment = chain.segments.front().copied().unwrap_or_default();
        let slots = geometry.slots_per_segment() - first_slot;
        let recovery = self.recovery();
        recovery.image_of_slots = Some(Buffer::zeroed(slots as usize * LINE_SIZE as usize));
        recovery.ios_left = slots;
        for index in 0..slots {
            let offset = geometry.slot_offset(geometry.slot(segment, first_slot + index));
            let purpose = Purpose::Recover(Step::SegmentSlot(index));
            self.start_read(Device::CacheDisk, offset, LINE_SIZE, purpose);
        }
    }

    /// The segment buffer in which the next record of the chain survived.
    fn buffer_of_next_record(&mut self) -> Option<BufferIndex> {
        let slot = self.recovery().chain.slot;
        if self.recovery().memory_is_void || seeded(SeededBug::MemoryNotReplayed) {
            return None;
        }
        (0..self.log.buffer_count())
            .map(BufferIndex)
            .find(|buffer| self.record_in_memory(*buffer, slot).is_some())
    }

    /// The next record of the chain, if it is there; sealed, or open and marked.
    fn record_in_memory(&self, buffer: BufferIndex, slot: u32) -> Option<(Record, bool)> {
        let recovery = self.recovery.as_ref().expect("recovery is under way");
        let at = self.log.memory_offset(buffer, slot);
        let bytes = self.log.memory().get(at..at + LINE_SIZE as usize)?;
        if let Ok(record) = Record::decode(bytes) {
            return self.is_next(&record).then_some((record, true));
        }
        if seeded(SeededBug::OpenRecordNotReplayed) {
            return None;
        }
        let marks = recovery.marks.iter();
        marks.filter(|mark| (mark.buffer, mark.header_slot) == (buffer.0, slot)).find_map(|mark| {
            let entries = bytes.get(ENTRIES_OFFSET..)?.get(..mark.entries as usize * 16)?;
            if crc32c(entries) != mark.entries_checksum {
                return None;
            }
            let record = Record::decode_open(bytes, mark.entries as usize).ok()?;
            self.is_next(&record).then_some((record, false))
        })
    }

    /// Whether this is the record that the chain expects.
    fn is_next(&self, record: &Record) -> bool {
        let recovery = self.recovery.as_ref().expect("recovery is under way");
        let (chain, header) = (&recovery.chain, &record.header);
        let checkpoint = recovery.checkpoint.as_ref().expect("the chain begins with it");
        let end = chain.slot + record.slots();
        if seeded(SeededBug::LastLapBelieved)
            && header.uuid == self.superblock.uuid
            && header.slot_in_segment == chain.slot
        {
            return end <= self.superblock.geometry.slots_per_segment();
        }
        let (number, previous_checksum) = match header.number < chain.number && chain.slot == 0 {
            // Records that were logged again elsewhere after an error (C22) begin a segment: the
            // chain goes back to where they do.
            true => match recovery.before(header.number) {
                Some(checksum) => (header.number, checksum),
                None => return false,
            },
            false => (chain.number, chain.previous_checksum),
        };
        header.uuid == self.superblock.uuid
            && header.epoch == checkpoint.epoch
            && header.serial == chain.serial
            && Some(&header.segment) == chain.segments.front()
            && header.slot_in_segment == chain.slot
            && header.number == number
            && header.previous_checksum == previous_checksum
            && end <= self.superblock.geometry.slots_per_segment()
    }

    fn follow_memory(&mut self, buffer: BufferIndex) {
        let geometry = self.superblock.geometry;
        while let Some((mut record, is_sealed)) =
            self.record_in_memory(buffer, self.recovery.as_ref().expect("under way").chain.slot)
        {
            let slot = self.recovery().chain.slot;
            let at = self.log.memory_offset(buffer, slot);
            let end = self.log.memory_offset(buffer, slot + record.slots());
            let mut damaged =
                damaged_slots(&record, &self.log.memory()[at + LINE_SIZE as usize..end]);
            if !is_sealed {
                // Of an open record, what lies before a damaged slot counts.
                let first = record.entries.iter().position(|entry| {
                    matches!(entry, Entry::Data { line, mask, .. }
                        if damaged.contains(&(*line, *mask)))
                });
                record.entries.truncate(first.unwrap_or(record.entries.len()));
                damaged.clear();
                let seal = Seal {
                    entries: record.entries.len(),
                    data_slots: record.data_slots(),
                    durable: RecordNumber(0),
                    checkpoint_generation: 0,
                    unfinished: 0,
                };
                let header = &mut self.log.memory_mut()[at..at + LINE_SIZE as usize];
                record.checksum = record::seal_header(header, &seal);
            }
            self.add_to_chain(FoundRecord { record, damaged, source: Source::Memory(at..end) });
        }
        let recovery = self.recovery();
        // Only a closed segment is followed by another; if this one was not, none will be found.
        recovery.chain.slot = geometry.slots_per_segment();
    }

    fn segment_read(&mut self, image: Buffer) {
        let geometry = self.superblock.geometry;
        let first_slot = self.recovery().chain.slot;
        let before = self.recovery().found.len();
        loop {
            let slot = self.recovery().chain.slot;
            let at = ((slot - first_slot) as usize) * LINE_SIZE as usize;
            let Some(bytes) = image.bytes().get(at..).filter(|bytes| !bytes.is_empty()) else {
                break;
            };
            let Some(record) = Record::decode(bytes).ok().filter(|record| self.is_next(record))
            else {
                break;
            };
            let bytes = &bytes[..record.slots() as usize * LINE_SIZE as usize];
            let damaged = damaged_slots(&record, &bytes[LINE_SIZE as usize..]);
            let source = match self.recovery().memory_speaks_for_the_cache_disk {
                true => Source::Durable,
                false => Source::Disk(Buffer::copy_of(bytes)),
            };
            self.add_to_chain(FoundRecord { record, damaged, source });
        }
        let end = self.recovery().chain.slot;
        let segment = *self.recovery().chain.segments.front().expect("it was read");
        if end < geometry.slots_per_segment()
            && self.refuses_unreadable(geometry.slot(segment, end), 1)
        {
            return;
        }
        let recovery = self.recovery();
        let found_any = recovery.found.len() > before;
        let serial = recovery.chain.serial;
        recovery.images.push((segment, serial, first_slot, image));
        let is_first = serial == recovery.checkpoint.as_ref().expect("read").position.serial;
        if found_any || is_first {
            // The chain may go on in the next segment, also from the middle of this one.
            if recovery.images.len() > 1 {
                recovery.images.remove(0);
            }
            recovery.chain.slot = geometry.slots_per_segment();
        } else {
            self.start_scan();
        }
    }

    /// Whether one of these slots cannot be read; then the start has failed, unless damage is
    /// accepted. To take it for the end of the log would cut off silently what may be durable (C19).
    fn refuses_unreadable(&mut self, first: SlotIndex, slots: u32) -> bool {
        if self.config.accept_damage || seeded(SeededBug::UnreadableIsTheEnd) {
            return false;
        }
        let range = first..SlotIndex(first.0 + slots);
        let Some(slot) = self.recovery().unreadable.range(range).next().copied() else {
            return false;
        };
        let offset = self.superblock.geometry.slot_offset(slot);
        let (device, error) = (Device::CacheDisk, IoError::Failed);
        self.fail_open(OpenError::Io { device, offset, error });
        true
    }

    fn add_to_chain(&mut self, found: FoundRecord) {
        let number = found.record.header.number;
        let recovery = self.recovery();
        if number < recovery.chain.number {
            // Logged again: all before it is durable, all from it on is replaced.
            recovery.found.retain(|known| known.record.header.number < number);
            recovery.found.iter_mut().for_each(|known| known.source = Source::Durable);
            recovery.found_durable = recovery.found.len();
            recovery.chain.number = number;
        }
        let durable = found.record.header.durable;
        let chain = &mut recovery.chain;
        chain.slot += found.record.slots();
        chain.number = chain.number.next();
        chain.previous_checksum = found.record.checksum;
        chain.newest_serial = chain.serial;
        recovery.found.push(found);
        recovery.forget_durable(durable);
    }

    // ---- step 3: the end, or damage -----------------------------------------------------------

    /// Looks for records behind the end of the chain: in what was read, and in the first slots of
    /// the segments that would come next.
    fn start_scan(&mut self) {
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
        // durable and newer? Then records may lie in segments that only it calls free. A new cache has
        // only the one it was made with, and no records before the next.
        let is_new = recovery.checkpoint.as_ref().expect("read").generation == 0;
        let is_damaged = recovery.areas.iter().any(Result::is_err) && !is_new;
        if is_damaged && !seeded(SeededBug::LostCheckpointNotMissed) {
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
        self.start_read(Device::CacheDisk, offset, LINE_SIZE, Purpose::Recover(step));
    }

    fn scan_for_checkpoint(&mut self) {
        let recovery = self.recovery();
        let count = recovery.unseen.len().min(SCANS_AT_ONCE);
        let segments: Vec<SegmentIndex> = recovery.unseen.drain(..count).collect();
        recovery.ios_left = count as u32;
        for segment in segments {
            self.start_scan_of(segment, Step::ScanForCheckpoint(segment));
        }
    }

    fn note_later_record(&mut self, bytes: &[u8]) {
        if let Some(record) = self.record_of_session(bytes) {
            self.recovery().later.push(record);
        }
    }

    /// The record that begins there, if it is one of this session; notes what it says of checkpoints.
    fn record_of_session(&mut self, bytes: &[u8]) -> Option<Record> {
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

    /// Where the chain goes on behind segments that hold nothing of it: the records there were
    /// logged again elsewhere (C22).
    fn next_start(&mut self) -> Option<usize> {
        let (serial, slot) = (self.recovery().chain.serial, self.recovery().chain.slot);
        let segments = self.recovery().chain.segments.clone();
        let mut found = None;
        for offset in 1..segments.len().min(self.log.buffer_count() as usize + 17) {
            // As if the chain had come there.
            let chain = &mut self.recovery().chain;
            chain.segments = segments.iter().skip(offset).copied().collect();
            chain.serial = SegmentSerial(serial.0 + offset as u64);
            chain.slot = 0;
            let recovery = self.recovery.as_ref().expect("recovery is under way");
            if recovery.later.iter().any(|record| self.is_next(record))
                || self.buffer_of_next_record().is_some()
            {
                found = Some(offset);
                break;
            }
        }
        if found.is_none() {
            let chain = &mut self.recovery().chain;
            (chain.segments, chain.serial, chain.slot) = (segments, serial, slot);
        }
        found
    }

    fn judge_the_end(&mut self) {
        if !seeded(SeededBug::LoggedAgainNotFound) && self.next_start().is_some() {
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
        let torn = torn.filter(|_| !seeded(SeededBug::TornTailReplayed));
        if let Some(torn) = torn {
            let header = recovery.found[torn].record.header;
            let slots = recovery.found[torn].record.slots();
            let first = self.superblock.geometry.slot(header.segment, header.slot_in_segment);
            if self.refuses_unreadable(first, slots) {
                return;
            }
            let recovery = self.recovery();
            recovery.found.truncate(torn);
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
        let old_blocks = self.superblock.data_disk.blocks;
        if self.replay().is_err() {
            let found = self.table.lines() as u64;
            let error = FormatError::Field { what: "the log", field: "number of lines", found };
            return self.fail_open(OpenError::Format(error));
        }
        // Zeroes are whole lines, so those that ended with the disk would now reach behind its old
        // end. Everything else of a line that was not whole is kept by the block.
        let old_end = Line(old_blocks / FRAGMENTS_PER_LINE);
        let has_grown = self.data_disk.blocks > old_blocks;
        if has_grown && !old_blocks.is_multiple_of(FRAGMENTS_PER_LINE) && self.is_zero(old_end) {
            return self.fail_open(OpenError::EndNotDrained { offset: old_end.lba().byte() });
        }
        self.read_witnesses();
    }

    // ---- step 4: replay -----------------------------------------------------------------------

    /// Fails if more lines are said to be in the log than it has slots.
    fn replay(&mut self) -> Result<(), TooManyLines> {
        let geometry = self.superblock.geometry;
        let checkpoint = self.recovery().checkpoint.take().expect("read");
        for live in &checkpoint.live {
            let mask = live.mask.and(self.line_mask(live.line));
            if !mask.is_empty() {
                self.replay_slot(live.line, mask, live.slot, live.checksum)?;
            }
        }
        for (line, lines) in &checkpoint.zeroes {
            self.replay_zeroes(*line, *lines);
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
        self.witnesses.restore(&checkpoint.witnesses);
        let mut serials: BTreeMap<SegmentIndex, SegmentSerial> =
            checkpoint.filled.iter().copied().collect();
        let found = std::mem::take(&mut self.recovery().found);
        self.recovery().report.records = found.len() as u64;
        // Entries of a request that goes on in the next record wait for its rest (C14).
        let mut unfinished = Vec::new();
        for FoundRecord { record, damaged, source } in found {
            let header = record.header;
            serials.insert(header.segment, header.serial);
            self.recovery().report.records_from_memory += u64::from(source.is_memory());
            let mut whole = record.entries.len() - usize::from(header.unfinished);
            if seeded(SeededBug::HalfRequestReplayed) {
                whole = record.entries.len();
            }
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
        let recovery = self.recovery.as_mut().expect("under way");
        self.checkpoint.generation = checkpoint.generation;
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
        match entry {
            Entry::Data { line, mask, checksum } => {
                let mask = mask.and(self.line_mask(line));
                if mask.is_empty() {
                    return Ok(());
                }
                self.clear_poison(line, mask);
                if is_damaged && (self.poisoned.len() as u64) < POISONED_LINES_MAX {
                    self.table.remove(line, mask);
                    let poison = self.poisoned.entry(line).or_default();
                    *poison = poison.or(mask);
                } else {
                    self.replay_slot(line, mask, slot, checksum)?;
                }
            }
            Entry::Zero { line, lines } => {
                if !seeded(SeededBug::ReplayedZeroKeepsLines) {
                    self.replay_forget(line, lines);
                }
                self.replay_zeroes(line, lines);
            }
            Entry::Bypass { range } => {
                let start = range.start.line();
                let lines = range.end().div_ceil(FRAGMENTS_PER_LINE) - start.0;
                if !seeded(SeededBug::TombstoneIgnored) {
                    self.replay_forget(start, lines);
                }
                self.zeroes.remove(start, lines);
                for witness in self.witnesses.within(start, lines) {
                    self.witnesses.forget(witness);
                }
            }
        }
        Ok(())
    }

    /// Which of them might be unmapped is not recorded: none is.
    fn replay_zeroes(&mut self, line: Line, lines: u64) {
        let disk_lines = self.data_disk.blocks.div_ceil(FRAGMENTS_PER_LINE);
        let end = line.0.saturating_add(lines).min(disk_lines);
        if line.0 < end {
            self.zeroes.insert(line, end - line.0);
            self.zeroes_kept_allocated.insert(line, end - line.0);
        }
    }

    /// Takes lines out of the table before segments are counted.
    fn replay_forget(&mut self, line: Line, lines: u64) {
        let end = line.0.saturating_add(lines);
        let gone: Vec<Line> = self
            .table
            .iter()
            .map(|(known, _)| known)
            .filter(|known| (line.0..end).contains(&known.0))
            .collect();
        for line in gone {
            self.table.remove(line, FragmentMask::FULL);
        }
        self.poisoned.retain(|known, _| !(line.0..end).contains(&known.0));
    }

    // ---- step 5: the data-disk ----------------------------------------------------------------

    fn read_witnesses(&mut self) {
        self.recovery().stage = Stage::Witnesses;
        if self.superblock.state == CacheState::Detached {
            // On its own, the data-disk may have been changed by anyone.
            self.witnesses.clear();
        }
        let mut lines: Vec<Line> = self.witnesses.chosen().to_vec();
        lines.extend(self.witnesses.list().iter().map(|witness| witness.line));
        lines.sort_unstable();
        lines.dedup();
        self.recovery().ios_left = lines.len() as u32;
        for line in lines {
            let purpose = Purpose::Recover(Step::Witness(line));
            self.start_read(Device::DataDisk, line.lba().byte(), LINE_SIZE, purpose);
        }
    }

    /// Nothing in the log is newer than the data-disk.
    fn log_is_empty(&self) -> bool {
        self.table.lines() == 0 && self.zeroes.is_empty() && self.poisoned.is_empty()
    }

    fn compare_witnesses(&mut self) {
        let found = std::mem::take(&mut self.recovery().witnesses_read);
        for witness in self.witnesses.list() {
            if !found.contains_key(&witness.line) {
                self.witnesses.forget(witness.line);
            }
        }
        let was_closed = self.superblock.state != CacheState::Open;
        // An empty log overwrites nothing, and dcd itself may have changed the data-disk, after it
        // had lost this cache-disk (C23). An orderly end would have left its mark here, and the
        // segment memory, if it has survived, tells that the cache-disk was not given up.
        let may_all_differ = !was_closed
            && self.log_is_empty()
            && self.recovery().report.records == 0
            && !self.recovery().memory_speaks_for_the_cache_disk;
        for (line, checksum) in found {
            // After a crash, a line with a newer copy in the log may rightly be anything on the
            // data-disk: it was perhaps being destaged. After an orderly end nothing was.
            let may_differ = !was_closed
                && (self.table.contains(line)
                    || self.is_zero(line)
                    || self.poisoned.contains_key(&line));
            let expected = self.witnesses.get(line);
            let differs = expected.is_some_and(|expected| expected != checksum);
            if differs && may_all_differ {
                self.recovery().report.data_disk_changed = true;
            } else if let Some(expected) = expected.filter(|_| differs)
                && !may_differ
                && !self.config.accept_damage
            {
                let offset = line.lba().byte();
                let found = checksum;
                let is_clean = self.log_is_empty();
                return self.fail_open(OpenError::DataDiskChanged {
                    offset,
                    expected,
                    found,
                    is_clean,
                });
            }
            self.witnesses.set(line, checksum);
        }
        self.start_rewrites();
    }

    // ---- steps 6 to 8: the new session --------------------------------------------------------

    fn start_session(&mut self) {
        let epoch = self.superblock.generation + 1;
        let chain = &self.recovery.as_ref().expect("under way").chain;
        let next_serial = SegmentSerial(chain.newest_serial.0.max(chain.serial.0) + 1);
        let (number, checksum) = (chain.number, chain.previous_checksum);
        self.log.start(epoch, next_serial, number, checksum);
        self.log.checkpoint_generation = self.checkpoint.generation;
        self.checkpoint.epoch = epoch;
        self.checkpoint.force();
        self.recovery().stage = Stage::NewCheckpoint;
    }

    fn write_superblock(&mut self) {
        self.superblock.generation += 1;
        self.superblock.state = CacheState::Open;
        if self.data_disk.blocks > self.superblock.data_disk.blocks {
            self.superblock.data_disk = self.data_disk;
        }
        let operation = IoOperation::Write {
            offset: self.superblock.offset(),
            data: IoData::Owned(self.superblock.encode()),
            fua: true,
        };
        self.recovery().stage = Stage::Superblock;
        self.recovery().ios_left = 1;
        self.start_io(Device::CacheDisk, operation, Purpose::Recover(Step::Superblock));
    }

    fn finish_recovery(&mut self) {
        let recovery = self.recovery.take().expect("under way");
        // Only now: before, a crash would have found the memory again, and the session it is of.
        self.log.note_session();
        self.recovery_report = recovery.report;
        self.recovery_report.duration = self.now.since(self.opened_at);
        self.pace.foreground(self.now);
        self.phase = Phase::Running;
    }
}

/// Lines of a record whose slots do not match their checksums.
fn damaged_slots(record: &Record, data: &[u8]) -> Vec<(Line, FragmentMask)> {
    let mut slots = data.chunks(LINE_SIZE as usize);
    let mut damaged = Vec::new();
    for entry in &record.entries {
        if let Entry::Data { line, mask, checksum } = entry {
            let slot = slots.next().unwrap_or_default();
            if crc32c(slot) != *checksum && !seeded(SeededBug::RecoveryDoesNotVerify) {
                damaged.push((*line, *mask));
            }
        }
    }
    damaged
}
