//! A read: where each fragment comes from, and how the parts are joined.
//!
//! Fragments in a segment buffer are copied at once. Those in slots of the cache-disk and those
//! only on the data-disk are read *in parallel* (the papers destaged first and then read). What was
//! found in the log wins over what the data-disk returns, fragment by fragment.
//!
//! A line of which the log has nothing may have copies in the read area ([`crate::copies`]): one
//! that was read ahead for a sequence is taken from memory ([`super::prefetch`]), else one is read
//! from there. It may also have been destaged from a slot of the log that has not been filled again
//! ([`crate::copies::clean_lines`]). A copy that cannot be read, or is not what it should be, is no
//! loss: its line is looked up anew.

use std::collections::BTreeMap;

use super::prefetch::ReadAhead;
use super::{Engine, Purpose};
use crate::buffer::Buffer;
use crate::copies::SlotState;
use crate::engine::Disk;
use crate::format::checksum::crc32c;
use crate::io::{IoError, IoOperation, RequestError, RequestId};
use crate::log::segment::SegmentState;
use crate::units::{
    BLOCK_SIZE, CopySlot, Duration, FRAGMENTS_PER_LINE, FragmentMask, LINE_SIZE, Lba, LbaRange,
    Line, SegmentIndex, SlotIndex,
};

/// Blocks between two misses that are read along rather than making two reads: on a rotating disk
/// 64 KiB pass by in less time than a second access takes.
const GAP_BLOCKS_MAX: u64 = 128;

/// Copies so many slots apart are read together.
const GAP_SLOTS_MAX: u64 = 8;
/// Small reads, by which the access times of the disks are measured: others take longer for their
/// length.
const SMALL_READ_BYTES: usize = 64 << 10;

/// How long each disk took for small reads of late, with the wait for others before them.
#[derive(Clone, Copy, Default)]
pub(super) struct AccessTimes {
    cache_disk: Duration,
    data_disk: Duration,
}

impl AccessTimes {
    /// A read of so many bytes took so long.
    pub(super) fn note(&mut self, device: Disk, bytes: usize, time: Duration) {
        let mean = match device {
            Disk::CacheDisk => &mut self.cache_disk,
            Disk::DataDisk => &mut self.data_disk,
        };
        if bytes <= SMALL_READ_BYTES {
            mean.0 = if mean.0 == 0 { time.0 } else { mean.0 - mean.0 / 8 + time.0 / 8 };
        }
    }
}

/// Reads under way.
#[derive(Default)]
pub(super) struct Reads {
    under_way: BTreeMap<RequestId, Reading>,
    data_disk_parts: u32,
}

impl Reads {
    /// Whether none is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Parts that the data-disk is working on.
    pub(super) fn on_data_disk(&self) -> u32 {
        self.data_disk_parts
    }
}

/// A read under way.
struct Reading {
    range: LbaRange,
    /// `None` while the only part reads straight into it.
    buffer: Option<Buffer>,
    parts_left: u32,
    failed: bool,
}

/// An I/O of a read.
pub(super) struct Part {
    id: RequestId,
    source: Source,
    /// [`Engine::data_disk_changes`] when it was started.
    pub(super) stamp: u64,
    /// The read is one of a scan.
    pub(super) is_scan: bool,
}

impl Part {
    /// The segment of the cache-disk that is read.
    pub(super) fn segment(&self) -> Option<SegmentIndex> {
        match self.source {
            Source::Slots { segment, .. } => Some(segment),
            Source::Whole(_) | Source::Span { .. } | Source::Copies(_) => None,
        }
    }

    /// The first block of what was read from the data-disk.
    pub(super) fn start(&self) -> Option<Lba> {
        match &self.source {
            Source::Whole(range) | Source::Span { span: range, .. } => Some(range.start),
            Source::Slots { .. } | Source::Copies(_) => None,
        }
    }

    pub(super) fn taken_from_data_disk(&self) -> &[LbaRange] {
        match &self.source {
            Source::Whole(range) => std::slice::from_ref(range),
            Source::Span { wanted, .. } => wanted,
            Source::Slots { .. } | Source::Copies(_) => &[],
        }
    }
}

enum Source {
    /// All of the request from the data-disk: the buffer of the I/O is its own.
    Whole(LbaRange),
    /// Blocks `span` of the data-disk; these of them were asked for.
    Span { span: LbaRange, wanted: Vec<LbaRange> },
    /// Adjacent slots of the cache-disk.
    Slots {
        segment: SegmentIndex,
        slots: Vec<SlotPart>,
        /// They were bad before: what is bad once more is lost.
        is_again: bool,
    },
    /// Adjacent copies on the cache-disk.
    Copies(Vec<CopyPart>),
}

/// What is wanted of a copy. The checksum is the one that was true when the read started.
#[derive(Clone, Copy)]
pub(super) struct CopyPart {
    pub(super) place: CopyPlace,
    pub(super) line: Line,
    mask: FragmentMask,
    pub(super) checksum: u32,
    /// Byte address on the cache-disk.
    offset: u64,
}

/// Where a clean copy is.
#[derive(Clone, Copy)]
pub(super) enum CopyPlace {
    ReadArea(CopySlot),
    /// A slot from which it was destaged.
    Log,
}

/// Where the parts of a read are that could not be copied at once.
#[derive(Default)]
struct Sources {
    slots: Vec<SlotPart>,
    copies: Vec<CopyPart>,
    misses: Vec<LbaRange>,
    /// Copies that are being read ahead: parts of the read that wait.
    read_ahead: u32,
}

/// A block whose newest copy is damaged.
struct Poisoned;

/// What is wanted of a slot. The checksum is the one that was true when the read started.
#[derive(Clone, Copy)]
struct SlotPart {
    slot: SlotIndex,
    line: Line,
    mask: FragmentMask,
    checksum: u32,
}

impl Engine {
    pub(super) fn read(&mut self, id: RequestId, range: LbaRange, mut buffer: Buffer) {
        assert!(self.check_range(range));
        self.counters.reads += 1;
        self.counters.read_bytes += range.bytes();
        self.pace.foreground(self.now);
        self.follow_sequences(range);
        self.detect(range);
        let is_scan = self.is_scan(range);
        // All of it is written, or the read fails: what others have left in it does not show.
        buffer.set_any(range.bytes() as usize);
        let Ok(sources) = self.find(id, range, range, &mut buffer) else {
            return self.reply(id, Err(RequestError::Io), None);
        };
        if sources.misses == [range] && sources.slots.is_empty() && sources.copies.is_empty() {
            // Nothing of it is in the log: the data-disk fills the buffer of the reply.
            self.reads.data_disk_parts += 1;
            let reading = Reading { range, buffer: None, parts_left: 1, failed: false };
            self.reads.under_way.insert(id, reading);
            let operation = IoOperation::Read { offset: range.start.byte(), buffer };
            let stamp = self.data_disk_changes;
            let part = Part { id, source: Source::Whole(range), stamp, is_scan };
            return self.start_io(Disk::DataDisk, operation, Purpose::Read(part));
        }
        let parts_left = self.start_parts(id, sources, is_scan);
        if parts_left == 0 {
            return self.reply(id, Ok(()), Some(buffer));
        }
        let reading = Reading { range, buffer: Some(buffer), parts_left, failed: false };
        self.reads.under_way.insert(id, reading);
    }

    /// Copies what is in memory of the blocks `wanted`, which are some of those of the read, into
    /// its buffer, and tells where the rest is.
    fn find(
        &mut self,
        id: RequestId,
        wanted: LbaRange,
        range: LbaRange,
        buffer: &mut Buffer,
    ) -> Result<Sources, Poisoned> {
        let mut sources = Sources::default();
        if self.has_poison(wanted) {
            return Err(Poisoned);
        }
        for (line, mask) in wanted.lines() {
            let mut missing = mask;
            let in_log = self.pieces(line);
            for (slot, piece) in in_log.as_slice() {
                let mask = piece.and(mask);
                missing = missing.without(mask);
                if mask.is_empty() {
                    continue;
                }
                match self.log.slot_in_memory(*slot) {
                    Some(bytes) => copy_fragments(bytes, line, mask, buffer, range),
                    None => {
                        let checksum = self.table.checksum(*slot);
                        sources.slots.push(SlotPart { slot: *slot, line, mask, checksum });
                    }
                }
            }
            if missing.is_empty() || self.is_zero(line) {
                self.counters.read_hit_lines += 1;
                copy_fragments(&[0; LINE_SIZE as usize], line, missing, buffer, range);
                continue;
            }
            if in_log.as_slice().is_empty()
                && let Some(slot) = self.copy_to_read(line)
            {
                self.counters.read_copy_lines += 1;
                self.copy_was_read(slot);
                let checksum = self.copies.slot(slot).checksum;
                let offset = self.superblock.geometry.copy_slot_offset(slot);
                let place = CopyPlace::ReadArea(slot);
                let part = CopyPart { place, line, mask, checksum, offset };
                match self.take_read_ahead(id, slot, &part) {
                    ReadAhead::Here(bytes) => copy_fragments(bytes, line, mask, buffer, range),
                    ReadAhead::OnItsWay => sources.read_ahead += 1,
                    ReadAhead::No => sources.copies.push(part),
                }
                continue;
            }
            if in_log.as_slice().is_empty()
                && let Some((slot, checksum)) = self.clean_slot(line)
            {
                self.counters.read_clean_lines += 1;
                let offset = self.superblock.geometry.slot_offset(slot);
                let place = CopyPlace::Log;
                sources.copies.push(CopyPart { place, line, mask, checksum, offset });
                continue;
            }
            self.counters.read_miss_lines += 1;
            for run in missing.byte_runs() {
                let start = line.lba().0 + run.start as u64 / BLOCK_SIZE;
                let blocks = run.len() as u64 / BLOCK_SIZE;
                match sources.misses.last_mut() {
                    Some(last) if last.end() == start => last.blocks += blocks,
                    _ => sources.misses.push(LbaRange::new(start, blocks)),
                }
            }
        }
        Ok(sources)
    }

    fn has_poison(&self, range: LbaRange) -> bool {
        let is_lost = |(line, mask): (Line, FragmentMask)| {
            self.poisoned.get(&line).is_some_and(|poison| !poison.and(mask).is_empty())
        };
        !self.poisoned.is_empty() && range.lines().any(is_lost)
    }

    /// Starts the I/Os of a read; tells how many parts it waits for.
    fn start_parts(&mut self, id: RequestId, mut sources: Sources, is_scan: bool) -> u32 {
        let stamp = self.data_disk_changes;
        let mut parts = sources.read_ahead;
        if parts > 0 {
            self.start_chunks();
        }
        self.leave_scattered_copies(&mut sources);
        for (span, wanted) in self.join_misses(&sources.misses) {
            parts += 1;
            self.reads.data_disk_parts += 1;
            let part = Part { id, source: Source::Span { span, wanted }, stamp, is_scan };
            let purpose = Purpose::Read(part);
            self.start_read(Disk::DataDisk, span.start.byte(), span.bytes(), purpose);
        }
        for slots in adjacent_slots(&sources.slots, self.superblock.geometry.slots_per_segment()) {
            parts += 1;
            self.start_slots(id, slots, false);
        }
        for copies in adjacent_copies(sources.copies) {
            parts += 1;
            let offset = copies[0].offset;
            let length = copies[copies.len() - 1].offset + LINE_SIZE - offset;
            let part = Part { id, source: Source::Copies(copies), stamp, is_scan };
            self.start_read(Disk::CacheDisk, offset, length, Purpose::Read(part));
        }
        parts
    }

    /// Copies that are more scattered than the lines themselves are left, if the data-disk has them
    /// sooner: what was written at many times is in as many places of the log, and perhaps in one
    /// of the data-disk.
    fn leave_scattered_copies(&mut self, sources: &mut Sources) {
        let accesses = adjacent_copies(sources.copies.clone()).len();
        if accesses < 2 {
            return;
        }
        let mut misses = sources.misses.clone();
        for part in &sources.copies {
            let runs = part.mask.byte_runs().map(|run| {
                let start = part.line.lba().0 + run.start as u64 / BLOCK_SIZE;
                LbaRange::new(start, run.len() as u64 / BLOCK_SIZE)
            });
            misses.extend(runs);
        }
        misses.sort_unstable_by_key(|range| range.start);
        // Fewer than without the copies where they lie between two misses.
        let without = self.join_misses(&sources.misses).len();
        let more = self.join_misses(&misses).len().saturating_sub(without);
        let AccessTimes { cache_disk, data_disk } = self.access_times;
        if more < accesses && more as u64 * data_disk.0 < accesses as u64 * cache_disk.0 {
            sources.misses = misses;
            for part in sources.copies.drain(..) {
                match part.place {
                    CopyPlace::ReadArea(_) => self.counters.read_copy_lines -= 1,
                    CopyPlace::Log => self.counters.read_clean_lines -= 1,
                }
                self.counters.read_miss_lines += 1;
            }
        }
    }

    /// Joins misses that lie close together into one read each.
    fn join_misses(&self, misses: &[LbaRange]) -> Vec<(LbaRange, Vec<LbaRange>)> {
        let unit = u64::from(self.data_disk.logical_block_size) / BLOCK_SIZE;
        let mut joined: Vec<(LbaRange, Vec<LbaRange>)> = Vec::new();
        for miss in misses {
            match joined.last_mut() {
                Some((span, wanted)) if miss.start.0 - span.end() <= GAP_BLOCKS_MAX => {
                    span.blocks = miss.end() - span.start.0;
                    wanted.push(*miss);
                }
                _ => joined.push((*miss, vec![*miss])),
            }
        }
        for (span, _) in &mut joined {
            // A disk of 4 KiB blocks cannot read a part of one.
            let start = span.start.0 / unit * unit;
            *span = LbaRange::new(start, span.end().next_multiple_of(unit) - start);
        }
        joined
    }

    pub(super) fn read_part_done(
        &mut self,
        part: Part,
        result: Result<(), IoError>,
        io_buffer: Option<Buffer>,
    ) {
        match &part.source {
            Source::Slots { segment, slots, is_again } => {
                self.slots_of_read_done(part.id, slots, *is_again, result, io_buffer);
                // Some may be read again, before anybody fills the segment.
                self.log.segments.drop_reader(*segment);
                if self.log.segments.get(*segment).state == SegmentState::Free {
                    // It can be filled now: there is room again.
                    self.destage.something_changed();
                }
                return;
            }
            Source::Copies(copies) => {
                let bytes = io_buffer.filter(|_| result.is_ok());
                self.copies_read(part.id, copies, bytes.as_ref().map(Buffer::bytes));
                return self.buffers.put(bytes);
            }
            Source::Whole(_) | Source::Span { .. } => {
                self.reads.data_disk_parts -= 1;
                self.pace.data_disk_read(self.now);
            }
        }
        let mut reading = self.reads.under_way.remove(&part.id).expect("a read under way");
        reading.parts_left -= 1;
        reading.failed |= result.is_err();
        if let (Ok(()), Some(bytes)) = (result, io_buffer) {
            self.promote(&part, bytes.bytes());
            self.join_part(&part.source, &mut reading, bytes);
        }
        self.go_on_reading(part.id, reading);
    }

    /// Reads slots that follow one another.
    fn start_slots(&mut self, id: RequestId, slots: Vec<SlotPart>, is_again: bool) {
        let geometry = self.superblock.geometry;
        let (segment, _) = geometry.locate(slots[0].slot);
        self.log.segments.add_reader(segment);
        let offset = geometry.slot_offset(slots[0].slot);
        let length = slots.len() as u64 * LINE_SIZE;
        let source = Source::Slots { segment, slots, is_again };
        let part = Part { id, source, stamp: self.data_disk_changes, is_scan: false };
        self.start_read(Disk::CacheDisk, offset, length, Purpose::Read(part));
    }

    /// Adjacent slots have been read. What is bad, be it for the transfer, is read once more,
    /// alone.
    fn slots_of_read_done(
        &mut self,
        id: RequestId,
        slots: &[SlotPart],
        is_again: bool,
        result: Result<(), IoError>,
        bytes: Option<Buffer>,
    ) {
        let mut reading = self.reads.under_way.remove(&id).expect("a read under way");
        reading.parts_left -= 1;
        let is_verified = self.config.verify_reads || self.has_unlisted_poison;
        for (index, part) in slots.iter().enumerate() {
            let read = bytes.as_ref().filter(|_| result.is_ok()).map(|bytes| {
                let at = index * LINE_SIZE as usize;
                &bytes.bytes()[at..at + LINE_SIZE as usize]
            });
            let is_right = |bytes: &&[u8]| !is_verified || crc32c(bytes) == part.checksum;
            if let Some(bytes) = read.filter(is_right) {
                if is_again {
                    self.settle_slot(part.slot, Some(bytes));
                }
                let buffer = reading.buffer.as_mut().expect("a read of several parts");
                copy_fragments(bytes, part.line, part.mask, buffer, reading.range);
            } else if !self.is_in_slot(part.line, part.slot) {
                // It was destaged or overwritten meanwhile, and the cache-disk is perhaps to be
                // left alone by now.
                self.settle_slot(part.slot, None);
                self.read_line_anew(id, &mut reading, part.line);
            } else if !is_again && matches!(result, Ok(()) | Err(IoError::Failed)) {
                reading.parts_left += 1;
                if result.is_ok() {
                    self.doubt_slot(part.slot);
                }
                self.start_slots(id, vec![*part], true);
            } else {
                self.settle_slot(part.slot, None);
                reading.failed = true;
                if result.is_ok() {
                    self.damaged_slot(part.line, part.slot);
                }
            }
        }
        self.buffers.put(bytes);
        self.go_on_reading(id, reading);
    }

    fn is_in_slot(&self, line: Line, slot: SlotIndex) -> bool {
        self.pieces(line).as_slice().iter().any(|(known, _)| *known == slot)
    }

    /// Adjacent copies have been read, from the read area or ahead; `None`: they could not be.
    pub(super) fn copies_read(&mut self, id: RequestId, copies: &[CopyPart], bytes: Option<&[u8]>) {
        let mut reading = self.reads.under_way.remove(&id).expect("a read under way");
        reading.parts_left -= 1;
        for part in copies {
            let at = (part.offset - copies[0].offset) as usize;
            let bytes = bytes.map(|bytes| &bytes[at..at + LINE_SIZE as usize]);
            let is_right = |bytes: &&[u8]| crc32c(bytes) == part.checksum;
            let buffer = reading.buffer.as_mut().expect("a read of several parts");
            if let Some(bytes) = bytes.filter(is_right) {
                copy_fragments(bytes, part.line, part.mask, buffer, reading.range);
                continue;
            }
            match part.place {
                CopyPlace::ReadArea(slot) => {
                    let held = self.copies.slot(slot);
                    let is_it = held.line() == part.line && held.checksum == part.checksum;
                    if is_it && held.state == SlotState::Valid {
                        self.copy_is_damaged(slot);
                    }
                }
                // It was being filled again, or is damaged: it has been destaged.
                CopyPlace::Log => self.forget_clean(part.line, 1),
            }
            self.read_line_anew(id, &mut reading, part.line);
        }
        self.go_on_reading(id, reading);
    }

    /// As if the read had come just now, to this line.
    fn read_line_anew(&mut self, id: RequestId, reading: &mut Reading, line: Line) {
        let start = line.lba().0.max(reading.range.start.0);
        let end = (line.lba().0 + FRAGMENTS_PER_LINE).min(reading.range.end());
        let wanted = LbaRange::new(start, end - start);
        let buffer = reading.buffer.as_mut().expect("a read of several parts");
        match self.find(id, wanted, reading.range, buffer) {
            // Not to be promoted: it has a copy by now, or had one that was bad.
            Ok(sources) => reading.parts_left += self.start_parts(id, sources, true),
            Err(Poisoned) => reading.failed = true,
        }
    }

    fn go_on_reading(&mut self, id: RequestId, reading: Reading) {
        if reading.parts_left > 0 {
            self.reads.under_way.insert(id, reading);
        } else if reading.failed {
            self.reply(id, Err(RequestError::Io), None);
        } else {
            self.reply(id, Ok(()), reading.buffer);
        }
    }

    fn join_part(&mut self, source: &Source, reading: &mut Reading, bytes: Buffer) {
        match source {
            Source::Whole(_) => {
                reading.buffer = Some(bytes);
                return;
            }
            Source::Span { span, wanted } => {
                let buffer = reading.buffer.as_mut().expect("a read of several parts");
                for piece in wanted {
                    let from = (piece.start.byte() - span.start.byte()) as usize;
                    let to = (piece.start.byte() - reading.range.start.byte()) as usize;
                    let length = piece.bytes() as usize;
                    buffer.bytes_mut()[to..to + length]
                        .copy_from_slice(&bytes.bytes()[from..from + length]);
                }
            }
            Source::Slots { .. } | Source::Copies(_) => unreachable!("they have ways of their own"),
        }
        self.buffers.put(Some(bytes));
    }

    /// Whether a read under way takes from the data-disk some of these blocks that are in the log
    /// by now.
    pub(super) fn is_read_below_the_log(&self, range: LbaRange) -> bool {
        let in_log = |(line, mask): (Line, FragmentMask)| {
            let wanted = mask.and(line.mask_within(range));
            let copies = self.table.find(line);
            copies.as_slice().iter().any(|(_, copy)| !copy.and(wanted).is_empty())
                || !wanted.is_empty() && self.is_zero(line)
        };
        self.reads.data_disk_parts > 0
            && self.ios.values().any(|io| {
                let Some(Purpose::Read(part)) = &io.purpose else { return false };
                let mut taken = part.taken_from_data_disk().iter();
                taken.any(|taken| taken.overlaps(range) && taken.lines().any(in_log))
            })
    }

    /// A slot does not have the bytes it should. What is live in it is lost: everything in the
    /// table is newer than the data-disk (C21).
    pub(super) fn damaged_slot(&mut self, line: Line, slot: SlotIndex) {
        let live = self.pieces(line);
        if let Some((_, mask)) = live.as_slice().iter().find(|(s, _)| *s == slot) {
            let mask = *mask;
            self.poison(line, mask);
            let is_unlisted = self.table.find(line).as_slice().iter().any(|(s, _)| *s == slot);
            if is_unlisted {
                self.remember_unlisted(line, slot);
            }
        }
        // The window would wait for it for ever.
        if self.windows.keeps_slot_of(line, slot) {
            self.cut_anew();
        }
    }
}

/// Copies fragments of a line from its slot to their place in the buffer of a request.
fn copy_fragments(
    slot: &[u8],
    line: Line,
    mask: FragmentMask,
    buffer: &mut Buffer,
    range: LbaRange,
) {
    for run in mask.byte_runs() {
        let at = (line.lba().byte() + run.start as u64 - range.start.byte()) as usize;
        buffer.bytes_mut()[at..at + run.len()].copy_from_slice(&slot[run]);
    }
}

/// Groups slots that follow one another, within a segment.
fn adjacent_slots(slots: &[SlotPart], slots_per_segment: u32) -> Vec<Vec<SlotPart>> {
    let mut sorted = slots.to_vec();
    sorted.sort_by_key(|part| part.slot);
    let mut groups: Vec<Vec<SlotPart>> = Vec::new();
    for part in sorted {
        match groups.last_mut() {
            Some(group)
                if group[group.len() - 1].slot.0 + 1 == part.slot.0
                    && !part.slot.0.is_multiple_of(slots_per_segment) =>
            {
                group.push(part);
            }
            _ => groups.push(vec![part]),
        }
    }
    groups
}

/// Groups copies that follow one another, but for the headers of records between them.
fn adjacent_copies(mut copies: Vec<CopyPart>) -> Vec<Vec<CopyPart>> {
    copies.sort_by_key(|part| part.offset);
    let mut groups: Vec<Vec<CopyPart>> = Vec::new();
    for part in copies {
        match groups.last_mut() {
            Some(group)
                if part.offset - group[group.len() - 1].offset <= GAP_SLOTS_MAX * LINE_SIZE =>
            {
                group.push(part);
            }
            _ => groups.push(vec![part]),
        }
    }
    groups
}
