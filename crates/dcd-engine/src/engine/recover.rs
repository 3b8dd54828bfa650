//! From the newest checkpoint and the records after it to a running engine.
//!
//! ```text
//! 1. Read the end mark: without it the cache-disk was shortened once, and what follows would take
//!    the loss of flushed records for the end of the log. Read both checkpoint headers, then the
//!    newer checkpoint that is whole, into the lookup table ([`load`]), and the copy pages that it
//!    names ([`copies`]).
//! 2. Follow the chain of records ([`chain`]) from its position: through the rest of that segment,
//!    then through the segments it lists as free and those that the records announce, in order,
//!    until the next record is not there. A segment whose buffer survived in the segment memory is
//!    taken from there: it may hold more (C4). Behind an end, the chain may go on in a later
//!    segment: what an error kept from becoming durable was logged again there (C22).
//! 3. Is that the end, or damage ([`end`])? If a later record says that the missing one was
//!    durable, it is damage, and nothing is cut off silently (C19). So is a checkpoint that a
//!    record calls durable and that cannot be read: if one is damaged, the first record of every
//!    segment is asked.
//! 4. Replay the records into the table ([`replay`]).
//! 5. Compare the witnesses: was the data-disk changed behind a dirty cache? (C28)
//!      Up to here nothing has been written: a crash changes nothing (C17).
//! 6. Write everything that is not known to be durable to its place again ([`rewrite`]), and flush
//!    both disks.
//!      The same bytes at the same places: a crash and a repetition do no harm. The data-disk may
//!      hold an unflushed part of a bypassed write: once shown, it must not vanish (C9).
//!      Should the log be replayed to more zero ranges than a checkpoint may list, some of them go
//!      to the data-disk first ([`room`]).
//! 7. Write a checkpoint for the new session and flush: now the prefix is fixed. What an earlier
//!    session may still have in some queue can no longer become part of the log.
//! 8. Write the superblock: open, new generation.
//! 9. Write its second copy: which segment memory the session has must not be forgotten because one
//!    copy cannot be read. Then take requests.
//!      Crash before, or a write error: the first one counts.
//! ```
//!
//! A data-disk that has grown (C32) is opened with its new size from the beginning; step 8 records
//! it. Crash before: the old size counts, and nothing speaks of what lies behind it but witnesses,
//! which an opening with the old size leaves out. Crash after: the new size counts. Both can be
//! opened.

mod chain;
mod copies;
mod end;
mod load;
mod paged;
mod replay;
mod rewrite;
mod room;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use self::load::Loading;
use self::replay::Replay;
use self::rewrite::{CheckpointCopy, Rewrite, Source};
use self::room::Room;
use super::checkpoint::PAUSE;
use super::{Engine, MemoryUse, Phase, Purpose};
use crate::buffer::Buffer;
use crate::engine::Disk;
use crate::error::{FormatError, OpenError};
use crate::format::checkpoint::{Checkpoint, CopyPageRef, HEADER_SIZE};
use crate::format::checksum::crc32c;
use crate::format::end_mark::{self, END_MARK_BYTES};
use crate::format::record::{Entry, Record};
use crate::format::superblock::CacheState;
use crate::io::{Device, IoData, IoError, IoOperation};
use crate::log::control::{self, CONTROL_SIZE, OpenMark};
use crate::log::replace;
use crate::stats::{OpeningProgress, RecoveryReport};
use crate::units::{
    FragmentMask, LINE_SIZE, Line, RecordNumber, SegmentIndex, SegmentSerial, SlotIndex, Time,
};
use crate::zero_ranges::ZeroRange;

/// Segments that are looked at together for what they say of checkpoints.
const SCANS_AT_ONCE: usize = 64;

/// An I/O of recovery.
pub(super) enum Step {
    EndMark,
    CheckpointHeader(usize),
    /// A piece of the payload; they are counted.
    Checkpoint(u64),
    CopyPages(Vec<CopyPageRef>),
    Segment,
    /// A slot of a segment that could not be read whole.
    SegmentSlot(u32),
    Scan(SegmentIndex),
    /// The same, of a segment in which the chain cannot go on.
    ScanForCheckpoint(SegmentIndex),
    Witness(Line),
    /// The next piece of the checkpoint, to be written there again.
    CheckpointAgain,
    Rewrite,
    Flush(Disk),
    /// Zeroes for which a checkpoint has no room.
    Zero(ZeroRange),
    Superblock,
    SecondSuperblock,
}

/// What recovery knows so far.
pub(super) struct Recovery {
    stage: Stage,
    ios_left: u32,
    /// A part of what takes long was done, and the next waits for the next input.
    has_paused: bool,
    /// The header of each checkpoint area and its generation, or what is wrong with the checkpoint.
    areas: [Result<(u64, Buffer), FormatError>; 2],
    loading: Option<Box<Loading>>,
    /// All of it but the live slots, which are in the lookup table.
    checkpoint: Option<Checkpoint>,
    /// Where it was read, if it is to be written there again.
    checkpoint_copy: Option<CheckpointCopy>,
    replay: Option<Box<Replay>>,
    /// It waits for what of the index is not in memory.
    waits_for_index: bool,
    /// Lines that are known because they are replayed.
    pinned: Vec<Line>,
    /// Copy pages that it names and that are still to be read: neighbours together.
    copy_pages: VecDeque<Vec<CopyPageRef>>,
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
    /// Slots that cannot be read. What they hold is not known, so nothing may be concluded from
    /// them.
    unreadable: BTreeSet<SlotIndex>,
    /// Images of the last segment of the chain and of the one behind it, for the search for later
    /// records: (segment, serial, first slot, bytes).
    images: Vec<(SegmentIndex, SegmentSerial, u32, Buffer)>,
    /// Records that were found beyond the end.
    later: Vec<Record>,
    /// Segments whose first record is still to be looked at for what it says of checkpoints.
    unseen: VecDeque<SegmentIndex>,
    /// The newest checkpoint that any record of the session, or mark of its open one, calls
    /// durable.
    newest_generation: u64,
    /// What is to be written again.
    rewrites: Vec<Rewrite>,
    room: Room,
    witnesses_read: BTreeMap<Line, u32>,
    report: RecoveryReport,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    CheckpointHeaders,
    Checkpoint,
    CopyPages,
    Chain,
    Scan,
    Replay,
    Witnesses,
    CheckpointAgain,
    Rewrites,
    RewriteFlush,
    OldestRewrite,
    Flush,
    Zeroes,
    ZeroesFlush,
    NewCheckpoint,
    Superblock,
    SecondSuperblock,
}

/// The next record that is expected, and where.
struct Chain {
    /// The segment being followed, and those behind it.
    segments: VecDeque<SegmentIndex>,
    serial: SegmentSerial,
    slot: u32,
    number: RecordNumber,
    previous_checksum: u32,
    /// What records announce, each with the record.
    announced: Vec<(RecordNumber, SegmentIndex)>,
    /// Whether each segment is or was in the list.
    is_listed: BTreeSet<SegmentIndex>,
    /// Newest serial of which a record was found.
    newest_serial: SegmentSerial,
}

impl Chain {
    /// Whether a record can be of this log: it announces each segment once, and none that is not
    /// there. `first + count` cannot overflow: the parser has seen to it.
    fn may_follow(&self, record: &Record, segments: u32) -> bool {
        let number = record.header.number;
        let is_replaced = |segment: SegmentIndex| {
            self.announced.iter().any(|(by, known)| *known == segment && *by >= number)
        };
        let mut seen = BTreeSet::new();
        announced_by(record).all(|(first, count)| {
            first.0 + count <= segments
                && (first.0..first.0 + count).map(SegmentIndex).all(|index| {
                    seen.insert(index) && (!self.is_listed.contains(&index) || is_replaced(index))
                })
        })
    }

    /// The log goes on in what the record announces, behind all that is known.
    fn follow_announcements(&mut self, record: &Record) {
        for (first, count) in announced_by(record) {
            for segment in (first.0..first.0 + count).map(SegmentIndex) {
                self.announced.push((record.header.number, segment));
                self.is_listed.insert(segment);
                self.segments.push_back(segment);
            }
        }
    }

    /// The records from this one on are replaced: what they announce is not known yet.
    fn take_back_announcements(&mut self, from: RecordNumber) {
        let kept = self.announced.partition_point(|(by, _)| *by < from);
        let taken: BTreeSet<SegmentIndex> =
            self.announced.split_off(kept).into_iter().map(|(_, segment)| segment).collect();
        for segment in &taken {
            self.is_listed.remove(segment);
        }
        self.segments.retain(|segment| !taken.contains(segment));
    }
}

fn announced_by(record: &Record) -> impl Iterator<Item = (SegmentIndex, u32)> {
    record.entries.iter().filter_map(|entry| match *entry {
        Entry::Announce { first, count } => Some((first, count)),
        _ => None,
    })
}

impl Recovery {
    /// What happens comes from outside: another part may be done.
    pub(super) fn input_came(&mut self) {
        self.has_paused = false;
    }

    /// Another part may be done when something comes, and none before.
    fn has_to_wait(&self) -> bool {
        self.has_paused || self.waits_for_index
    }

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

impl FoundRecord {
    /// Entries of requests that end in it.
    fn whole_entries(&self) -> usize {
        self.record.entries.len() - usize::from(self.record.header.unfinished)
    }
}

impl Engine {
    /// Step 1.
    pub(super) fn start_recovery(&mut self) {
        self.recovery = Some(Box::new(Recovery {
            stage: Stage::CheckpointHeaders,
            ios_left: 2,
            has_paused: false,
            areas: std::array::from_fn(|_| Ok((0, Buffer::default()))),
            loading: None,
            checkpoint: None,
            checkpoint_copy: None,
            replay: None,
            waits_for_index: false,
            pinned: Vec::new(),
            copy_pages: VecDeque::new(),
            chain: Chain {
                segments: VecDeque::new(),
                serial: SegmentSerial(0),
                slot: 0,
                number: RecordNumber(0),
                previous_checksum: 0,
                announced: Vec::new(),
                is_listed: BTreeSet::new(),
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
            room: Room::default(),
            witnesses_read: BTreeMap::new(),
            report: RecoveryReport {
                was_closed: self.superblock.state != CacheState::Open,
                ..RecoveryReport::default()
            },
        }));
        if let Some(offset) = self.superblock.end_mark_offset() {
            self.recovery().ios_left += 1;
            let length = END_MARK_BYTES as u64;
            self.start_read(Disk::CacheDisk, offset, length, Purpose::Recover(Step::EndMark));
        }
        for area in 0..2 {
            let offset = self.superblock.geometry.checkpoint_offsets[area];
            let purpose = Purpose::Recover(Step::CheckpointHeader(area));
            self.start_read(Disk::CacheDisk, offset, HEADER_SIZE as u64, purpose);
        }
    }

    /// How far the start is.
    pub fn opening_progress(&self) -> OpeningProgress {
        let recovery = self.recovery.as_ref();
        let report = recovery.map_or(&self.recovery_report, |recovery| &recovery.report);
        let dirty_lines = self.table.lines() as u64;
        OpeningProgress { bytes_read: report.bytes_read, dirty_lines }
    }

    /// What of the index it waited for is there.
    pub(super) fn index_was_read(&mut self) {
        if let Some(recovery) = &mut self.recovery {
            recovery.waits_for_index = false;
        }
    }

    /// What it is about to replay is known.
    pub(super) fn replay_pinned(&mut self, lines: Vec<Line>) {
        if let Some(recovery) = &mut self.recovery {
            recovery.waits_for_index = false;
            recovery.pinned.extend(lines);
        }
    }

    fn recovery(&mut self) -> &mut Recovery {
        self.recovery.as_mut().expect("recovery is under way")
    }

    /// The rest waits for what comes from outside, or for no time at all.
    pub(super) fn recovery_wake_up(&self) -> Option<Time> {
        let has_paused = self.recovery.as_ref().is_some_and(|recovery| recovery.has_paused);
        has_paused.then(|| self.now.after(PAUSE))
    }

    /// A page of the checkpoint that was right when it was loaded cannot be read any more.
    pub(super) fn fail_open_without_index(&mut self, error: IoError) {
        let offset = self.superblock.geometry.checkpoint_offsets[0];
        let device = Disk::CacheDisk.into();
        self.fail_open(OpenError::Io { device, offset, error });
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
        let is_read = !matches!(
            step,
            Step::Witness(_)
                | Step::Rewrite
                | Step::Zero(_)
                | Step::Superblock
                | Step::SecondSuperblock
        );
        if let (Ok(bytes), true) = (&bytes, is_read) {
            recovery.report.bytes_read += bytes.len() as u64;
        }
        match (step, bytes) {
            (Step::EndMark, bytes) => self.end_mark_read(bytes),
            (Step::CheckpointHeader(area), Ok(bytes)) => {
                let header = Checkpoint::decode_header(bytes.bytes(), uuid, &geometry);
                recovery.areas[area] = header.map(|header| (header.generation, bytes));
            }
            (Step::Checkpoint(piece), bytes) => self.checkpoint_piece_read(piece, bytes),
            (Step::CopyPages(run), bytes) => {
                let bytes = bytes.as_ref().ok().map(Buffer::bytes);
                self.load_copy_pages(&run, bytes);
            }
            (Step::CheckpointHeader(area), Err(error)) => {
                recovery.areas[area] =
                    Err(FormatError::Unreadable { what: "the checkpoint", error });
            }
            (Step::CheckpointAgain, bytes) => self.checkpoint_piece_read_again(bytes),
            (Step::Segment, Ok(bytes)) => self.segment_read(bytes),
            (Step::Scan(_), Ok(bytes)) => self.note_later_record(bytes.bytes()),
            (Step::ScanForCheckpoint(_), Ok(bytes)) => {
                self.record_of_session(bytes.bytes());
            }
            (Step::Scan(_) | Step::ScanForCheckpoint(_), Err(_)) if accept_damage => {}
            // Records that were logged again may begin there (C22), or one that speaks of a
            // checkpoint.
            (Step::Scan(segment) | Step::ScanForCheckpoint(segment), Err(error)) => {
                let offset = geometry.segment_offset(segment);
                self.fail_open(OpenError::Io { device: Device::CacheDisk, offset, error });
            }
            (Step::Witness(line), Ok(bytes)) => {
                recovery.witnesses_read.insert(line, crc32c(bytes.bytes()));
            }
            // A witness that cannot be read says nothing.
            (Step::Witness(_), Err(_)) => {}
            (Step::Rewrite | Step::Flush(_) | Step::Superblock | Step::SecondSuperblock, Ok(_)) => {
            }
            (Step::SecondSuperblock, Err(error @ IoError::Failed)) => {
                self.health.note_cache_disk_error(error);
            }
            (Step::Segment, Err(IoError::Failed)) => self.read_segment_by_slots(),
            (Step::Segment, Err(error)) => {
                let segment = recovery.chain.segments.front().copied().unwrap_or_default();
                let offset = geometry.segment_offset(segment);
                self.fail_open(OpenError::Io { device: Device::CacheDisk, offset, error });
            }
            (Step::SegmentSlot(index), bytes) => self.segment_slot_read(index, bytes),
            (Step::Zero(piece), bytes) => self.zeroed_for_room(piece, bytes.map(drop)),
            (Step::Flush(device), Err(error)) => {
                self.fail_open(OpenError::Io { device: device.into(), offset: 0, error });
            }
            (Step::Rewrite | Step::Superblock | Step::SecondSuperblock, Err(error)) => {
                let offset = self.superblock.offset();
                self.fail_open(OpenError::Io { device: Device::CacheDisk, offset, error });
            }
        }
    }

    fn end_mark_read(&mut self, bytes: Result<Buffer, IoError>) {
        let unreadable = |error| FormatError::Unreadable { what: "the end mark", error };
        let found = bytes.map_err(unreadable);
        match found.and_then(|bytes| end_mark::verify(bytes.bytes(), self.superblock.uuid)) {
            Ok(()) => {}
            Err(_) if self.config.accept_damage => {
                self.recovery().report.end_mark_lost = true;
            }
            // A disk that fails there may have it still.
            Err(FormatError::Unreadable { error, .. }) => {
                let offset = self.superblock.end_mark_offset().unwrap_or_default();
                self.fail_open(OpenError::Io { device: Device::CacheDisk, offset, error });
            }
            Err(error) => self.fail_open(OpenError::EndMark(error)),
        }
    }

    /// A slot of a segment that could not be read as a whole; one that cannot be read either is as
    /// if it were damaged.
    fn segment_slot_read(&mut self, index: u32, bytes: Result<Buffer, IoError>) {
        let geometry = self.superblock.geometry;
        let recovery = self.recovery();
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

    pub(super) fn advance_recovery(&mut self) {
        while self.phase == Phase::Opening {
            let recovery = self.recovery();
            if recovery.has_paused {
                return;
            }
            if recovery.stage == Stage::Checkpoint {
                match self.advance_loading() {
                    true => continue,
                    false => return,
                }
            }
            if recovery.ios_left > 0 || recovery.waits_for_index {
                return;
            }
            match recovery.stage {
                Stage::CheckpointHeaders => self.load_newest_checkpoint(),
                Stage::Checkpoint => unreachable!("above"),
                Stage::CopyPages => self.read_copy_pages(),
                Stage::Chain => self.read_next_segment(),
                Stage::Scan if recovery.unseen.is_empty() => self.judge_the_end(),
                Stage::Scan => self.scan_for_checkpoint(),
                Stage::Replay => self.advance_replay(),
                Stage::Witnesses => self.compare_witnesses(),
                Stage::CheckpointAgain => self.write_checkpoint_again(),
                Stage::Rewrites if recovery.rewrites.is_empty() => {
                    recovery.stage = Stage::OldestRewrite;
                }
                Stage::Rewrites => {
                    recovery.stage = Stage::RewriteFlush;
                    recovery.ios_left = 1;
                    let flush = Purpose::Recover(Step::Flush(Disk::CacheDisk));
                    self.start_flush(Disk::CacheDisk, flush);
                }
                Stage::RewriteFlush => {
                    recovery.stage = Stage::OldestRewrite;
                    let oldest = std::mem::take(&mut recovery.rewrites);
                    self.write_again(oldest);
                }
                Stage::OldestRewrite => {
                    recovery.stage = Stage::Flush;
                    recovery.ios_left = 2;
                    for device in [Disk::CacheDisk, Disk::DataDisk] {
                        self.start_flush(device, Purpose::Recover(Step::Flush(device)));
                    }
                }
                Stage::Flush => self.make_room(),
                Stage::Zeroes => self.zero_for_room(),
                Stage::ZeroesFlush => self.take_room(),
                Stage::NewCheckpoint => {
                    while self.advance_checkpoint() {}
                    if self.health.cache_disk_failed() {
                        let offset = self.superblock.geometry.checkpoint_offsets[0];
                        let error = IoError::Failed;
                        let device = Disk::CacheDisk;
                        return self.fail_open(OpenError::Io {
                            device: device.into(),
                            offset,
                            error,
                        });
                    }
                    if !self.checkpoint.is_idle() {
                        return;
                    }
                    self.write_superblock();
                }
                Stage::Superblock => self.write_second_superblock(),
                Stage::SecondSuperblock => self.finish_recovery(),
            }
        }
    }

    /// Step 2.
    fn start_chain(&mut self) {
        // The session that the superblock speaks of began with a checkpoint.
        let epoch_min = self.superblock.session_epoch_min();
        let marks_page = self.log.memory()[..CONTROL_SIZE].to_vec();
        let segment_size_bytes = self.superblock.geometry.segment_size_bytes;
        let recovery = self.recovery();
        let checkpoint = recovery.checkpoint.as_ref().expect("it was read");
        if checkpoint.epoch < epoch_min {
            let found = checkpoint.generation;
            return self.fail_open(OpenError::CheckpointLost { lost: found + 1, found });
        }
        let marks = control::read_marks(&marks_page, checkpoint.epoch);
        recovery.marks = marks.clone();
        let note = control::is_void(&marks_page, checkpoint.epoch);
        recovery.memory_is_void = note == Some(true);
        recovery.memory_speaks_for_the_cache_disk = note == Some(false);
        if !recovery.memory_is_void {
            // Only a newer checkpoint may list or let announce where the open record lies.
            let generations = recovery.marks.iter().map(|mark| mark.checkpoint_generation);
            recovery.newest_generation = generations.max().unwrap_or(0);
            if let Some(newest) = marks.first() {
                replace::complete(self.log.memory_mut(), segment_size_bytes, newest);
            }
        }
        let recovery = self.recovery();
        let checkpoint = recovery.checkpoint.as_ref().expect("it was read");
        let position = checkpoint.position;
        let segments: VecDeque<SegmentIndex> =
            [position.segment].into_iter().chain(checkpoint.free.iter().copied()).collect();
        recovery.chain = Chain {
            announced: Vec::new(),
            is_listed: segments.iter().copied().collect(),
            segments,
            serial: position.serial,
            slot: position.slot_in_segment,
            number: position.next_record,
            previous_checksum: position.previous_checksum,
            newest_serial: position.serial,
        };
        recovery.stage = Stage::Chain;
    }

    // ---- step 5: the data-disk ----------------------------------------------------------------

    fn read_witnesses(&mut self) {
        if self.is_behind_a_lost_end() {
            let found = self.checkpoint.generation;
            return self.fail_open(OpenError::CheckpointLost { lost: found + 1, found });
        }
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
            self.start_read(Disk::DataDisk, line.lba().byte(), LINE_SIZE, purpose);
        }
    }

    /// The checkpoint of a detach lists nothing to be moved. One that does is older, and cannot be
    /// gone by: the data-disk may have been changed on its own since.
    fn is_behind_a_lost_end(&self) -> bool {
        let lists_changes = self.table.lines() > 0 || !self.zeroes.is_empty();
        // A start that was cut short has begun the next session.
        let is_of_parted = self.superblock.state == CacheState::Detached
            && self.checkpoint.epoch < self.superblock.generation;
        is_of_parted && lists_changes && !self.config.accept_damage
    }

    /// Nothing in the log is newer than the data-disk.
    pub(super) fn log_is_empty(&self) -> bool {
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
        // Copies are as true as the log says, if nobody has changed the data-disk without it.
        let may_be_false = may_all_differ
            || self.superblock.state == CacheState::Detached
            || self.recovery().memory_is_void
            || self.config.accept_damage;
        if may_be_false {
            self.recovery().report.copies_doubted = self.copies.counts().valid;
            self.copies.doubt_all();
        }
        self.adopt_hot_blocks();
        self.restore_detected();
        for (line, checksum) in found {
            // After a crash, a line with a newer copy in the log may rightly be anything on the
            // data-disk: it was perhaps being destaged. After an orderly end nothing was, but for
            // zeroes: a start that was cut short may have been making room (room.rs).
            let is_logged = !self.table.is_known(line)
                || self.table.contains(line)
                || self.poisoned.contains_key(&line);
            let may_differ = !was_closed && is_logged || self.is_zero(line);
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
        if self.config.no_log && !self.log_is_empty() {
            return self.fail_open(OpenError::LogNotEmpty);
        }
        if self.config.no_log {
            // They change together with the log alone, and from here on not at all: the checkpoint
            // of this session lists none, or the next start would take it for another disk.
            self.witnesses.clear();
        }
        self.write_checkpoint_again();
    }

    // ---- steps 6 to 9: the new session --------------------------------------------------------

    pub(super) fn start_session(&mut self) {
        let epoch = self.superblock.generation + 1;
        let chain = &self.recovery.as_ref().expect("under way").chain;
        let next_serial = SegmentSerial(chain.newest_serial.0.max(chain.serial.0) + 1);
        let (number, checksum) = (chain.number, chain.previous_checksum);
        self.log.start(epoch, next_serial, number, checksum);
        self.log.checkpoint_generation = self.checkpoint.generation;
        self.checkpoint.epoch = epoch;
        self.checkpoint.force();
        let recovery = self.recovery();
        // What was read is in the tables by now, and the picture of the checkpoint takes as much
        // memory again.
        recovery.checkpoint = None;
        recovery.found = Vec::new();
        recovery.images = Vec::new();
        recovery.stage = Stage::NewCheckpoint;
    }

    fn write_superblock(&mut self) {
        self.superblock.count(!self.config.data_disk_read_only);
        self.superblock.state = CacheState::Open;
        // Checkpoints of the sessions before count no more at all.
        self.superblock.resized = None;
        // Nothing is acknowledged before this is durable, so whoever misses the memory later has
        // this to know it by.
        self.superblock.memory = self.config.memory.clone();
        // Likewise for the memory in front of the log.
        self.superblock.nvram = self.config.nvram;
        self.memory_use = MemoryUse::InUse;
        if self.data_disk.blocks > self.superblock.data_disk.blocks {
            self.superblock.data_disk = self.data_disk;
        }
        self.recovery().stage = Stage::Superblock;
        self.recovery().ios_left = 1;
        let purpose = Purpose::Recover(Step::Superblock);
        self.write_superblock_copy(self.superblock.offset(), purpose);
    }

    fn write_second_superblock(&mut self) {
        self.recovery().stage = Stage::SecondSuperblock;
        self.recovery().ios_left = 1;
        let purpose = Purpose::Recover(Step::SecondSuperblock);
        self.write_superblock_copy(self.superblock.second_offset(), purpose);
    }

    pub(super) fn write_superblock_copy(&mut self, offset: u64, purpose: Purpose) {
        let data = IoData::Owned(self.superblock.encode());
        let operation = IoOperation::Write { offset, data, fua: true };
        self.start_io(Disk::CacheDisk, operation, purpose);
    }

    fn finish_recovery(&mut self) {
        let recovery = self.recovery.take().expect("under way");
        // Only now: before, a crash would have found the memory again, and the session it is of.
        self.log.note_session();
        self.recovery_report = recovery.report;
        self.recovery_report.duration = self.now.since(self.opened_at);
        self.pace.foreground(self.now);
        self.phase = Phase::Running;
        if self.config.no_log {
            // The checkpoint of this session lists nothing: the cache-disk is clean, and from here
            // on all is as if it had failed.
            self.go_uncached();
            // Nothing else may happen that would let it go on.
            while self.advance_uncached() {}
        }
    }
}
