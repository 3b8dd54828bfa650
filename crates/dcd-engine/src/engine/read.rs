//! A read: where each fragment comes from, and how the parts are joined.
//!
//! Fragments in a segment buffer are copied at once. Those in slots of the cache-disk and those
//! only on the data-disk are read *in parallel* (the papers destaged first and then read). What was
//! found in the log wins over what the data-disk returns, fragment by fragment.

use std::collections::BTreeMap;

use super::{Engine, Purpose};
use crate::buffer::Buffer;
use crate::format::checksum::crc32c;
use crate::io::{Device, IoError, IoOperation, RequestError, RequestId};
use crate::log::segment::SegmentState;
use crate::seeded_bugs::{SeededBug, seeded};
use crate::units::{BLOCK_SIZE, FragmentMask, LINE_SIZE, LbaRange, Line, SegmentIndex, SlotIndex};

/// Blocks between two misses that are read along rather than making two reads: on a rotating disk
/// 64 KiB pass by in less time than a second access takes.
const GAP_BLOCKS_MAX: u64 = 128;

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
}

impl Part {
    /// The segment of the cache-disk that is read.
    pub(super) fn segment(&self) -> Option<SegmentIndex> {
        match self.source {
            Source::Slots { segment, .. } => Some(segment),
            Source::Whole(_) | Source::Span { .. } => None,
        }
    }

    fn taken_from_data_disk(&self) -> &[LbaRange] {
        match &self.source {
            Source::Whole(range) => std::slice::from_ref(range),
            Source::Span { wanted, .. } => wanted,
            Source::Slots { .. } => &[],
        }
    }
}

enum Source {
    /// All of the request from the data-disk: the buffer of the I/O is its own.
    Whole(LbaRange),
    /// Blocks `span` of the data-disk; these of them were asked for.
    Span { span: LbaRange, wanted: Vec<LbaRange> },
    /// Adjacent slots of the cache-disk.
    Slots { segment: SegmentIndex, slots: Vec<SlotPart> },
}

/// What is wanted of a slot. The checksum is the one that was true when the read started.
#[derive(Clone, Copy)]
struct SlotPart {
    slot: SlotIndex,
    line: Line,
    mask: FragmentMask,
    checksum: u32,
}

impl Engine {
    pub(super) fn read(&mut self, id: RequestId, range: LbaRange) {
        assert!(self.check_range(range));
        self.counters.reads += 1;
        self.counters.read_bytes += range.bytes();
        self.pace.foreground(self.now);
        let mut buffer = Buffer::zeroed(range.bytes() as usize);
        let mut slots: Vec<SlotPart> = Vec::new();
        let mut misses: Vec<LbaRange> = Vec::new();
        for (line, mask) in range.lines() {
            let poison = self.poisoned.get(&line).filter(|_| !seeded(SeededBug::StaleCopyShown));
            if poison.is_some_and(|poison| !poison.and(mask).is_empty()) {
                return self.reply(id, Err(RequestError::Io), None);
            }
            let mut missing = mask;
            let slots_max = if seeded(SeededBug::ReadTakesOneSlot) { 1 } else { usize::MAX };
            for (slot, piece) in self.table.find(line).as_slice().iter().take(slots_max) {
                let mask = piece.and(mask);
                missing = missing.without(mask);
                if mask.is_empty() {
                    continue;
                }
                match self.log.slot_in_memory(*slot) {
                    Some(bytes) => copy_fragments(bytes, line, mask, &mut buffer, range),
                    None => {
                        let checksum = self.table.checksum(*slot);
                        slots.push(SlotPart { slot: *slot, line, mask, checksum });
                    }
                }
            }
            if missing.is_empty() || self.is_zero(line) {
                self.counters.read_hit_lines += 1;
                continue;
            }
            self.counters.read_miss_lines += 1;
            for run in missing.byte_runs() {
                let start = line.lba().0 + run.start as u64 / BLOCK_SIZE;
                let blocks = run.len() as u64 / BLOCK_SIZE;
                match misses.last_mut() {
                    Some(last) if last.end() == start => last.blocks += blocks,
                    _ => misses.push(LbaRange::new(start, blocks)),
                }
            }
        }
        if slots.is_empty() && misses.is_empty() {
            return self.reply(id, Ok(()), Some(buffer));
        }
        if slots.is_empty() && misses == [range] {
            // Nothing of it is in the log: the data-disk fills the buffer of the reply.
            self.reads.data_disk_parts += 1;
            let reading = Reading { range, buffer: None, parts_left: 1, failed: false };
            self.reads.under_way.insert(id, reading);
            let operation = IoOperation::Read { offset: range.start.byte(), buffer };
            let part = Part { id, source: Source::Whole(range) };
            return self.start_io(Device::DataDisk, operation, Purpose::Read(part));
        }
        let mut parts_left = 0;
        for (span, wanted) in self.join_misses(&misses) {
            parts_left += 1;
            self.reads.data_disk_parts += 1;
            let part = Part { id, source: Source::Span { span, wanted } };
            let purpose = Purpose::Read(part);
            self.start_read(Device::DataDisk, span.start.byte(), span.bytes(), purpose);
        }
        for slots in adjacent_slots(&slots, self.superblock.geometry.slots_per_segment()) {
            parts_left += 1;
            let (segment, _) = self.superblock.geometry.locate(slots[0].slot);
            self.log.segments.add_reader(segment);
            let offset = self.superblock.geometry.slot_offset(slots[0].slot);
            let length = slots.len() as u64 * LINE_SIZE;
            let part = Part { id, source: Source::Slots { segment, slots } };
            self.start_read(Device::CacheDisk, offset, length, Purpose::Read(part));
        }
        let reading = Reading { range, buffer: Some(buffer), parts_left, failed: false };
        self.reads.under_way.insert(id, reading);
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
            Source::Slots { segment, .. } => {
                self.log.segments.drop_reader(*segment);
                if self.log.segments.get(*segment).state == SegmentState::Free {
                    // It can be filled now: there is room again.
                    self.destage.something_changed();
                }
            }
            _ => {
                self.reads.data_disk_parts -= 1;
                self.pace.data_disk_read(self.now);
            }
        }
        let mut reading = self.reads.under_way.remove(&part.id).expect("a read under way");
        reading.parts_left -= 1;
        let is_data_disk = !matches!(part.source, Source::Slots { .. });
        reading.failed |=
            result.is_err() && !(is_data_disk && seeded(SeededBug::FailedReadReturnsZeroes));
        if let (Ok(()), Some(bytes)) = (result, io_buffer) {
            self.join_part(&part.source, &mut reading, bytes);
        }
        if reading.parts_left > 0 {
            self.reads.under_way.insert(part.id, reading);
        } else if reading.failed {
            self.reply(part.id, Err(RequestError::Io), None);
        } else {
            self.reply(part.id, Ok(()), reading.buffer);
        }
    }

    fn join_part(&mut self, source: &Source, reading: &mut Reading, bytes: Buffer) {
        match source {
            Source::Whole(_) => reading.buffer = Some(bytes),
            Source::Span { span, wanted } => {
                let start = span.start.0.max(reading.range.start.0);
                let end = span.end().min(reading.range.end());
                let all = [LbaRange::new(start, end - start)];
                let wanted = match seeded(SeededBug::DataDiskWins) {
                    true => &all[..],
                    false => wanted,
                };
                let buffer = reading.buffer.as_mut().expect("a read of several parts");
                for piece in wanted {
                    let from = (piece.start.byte() - span.start.byte()) as usize;
                    let to = (piece.start.byte() - reading.range.start.byte()) as usize;
                    let length = piece.bytes() as usize;
                    buffer.bytes_mut()[to..to + length]
                        .copy_from_slice(&bytes.bytes()[from..from + length]);
                }
            }
            Source::Slots { slots, .. } => {
                for (part, bytes) in slots.iter().zip(bytes.bytes().chunks(LINE_SIZE as usize)) {
                    let is_verified =
                        self.config.verify_reads && !seeded(SeededBug::DamagedSlotServed);
                    if is_verified && crc32c(bytes) != part.checksum {
                        self.damaged_slot(part.line, part.slot);
                        reading.failed = true;
                        continue;
                    }
                    let buffer = reading.buffer.as_mut().expect("a read of several parts");
                    copy_fragments(bytes, part.line, part.mask, buffer, reading.range);
                }
            }
        }
    }

    /// Whether a read under way takes from the data-disk some of these blocks that are in the log by now.
    pub(super) fn is_read_below_the_log(&self, range: LbaRange) -> bool {
        let in_log = |(line, mask): (Line, FragmentMask)| {
            let wanted = mask.and(line.mask_within(range));
            let copies = self.table.find(line);
            copies.as_slice().iter().any(|(_, copy)| !copy.and(wanted).is_empty())
                || !wanted.is_empty() && self.is_zero(line)
        };
        !seeded(SeededBug::BypassOvertakesRead)
            && self.reads.data_disk_parts > 0
            && self.ios.values().any(|io| {
                let Some(Purpose::Read(part)) = &io.purpose else { return false };
                let mut taken = part.taken_from_data_disk().iter();
                taken.any(|taken| taken.overlaps(range) && taken.lines().any(in_log))
            })
    }

    /// A slot does not have the bytes it should. What is live in it is lost: everything in the
    /// table is newer than the data-disk (C21).
    pub(super) fn damaged_slot(&mut self, line: Line, slot: SlotIndex) {
        let live = self.table.find(line);
        if let Some((_, mask)) = live.as_slice().iter().find(|(s, _)| *s == slot) {
            self.poison(line, *mask);
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
