//! Reads a victim, or several: which lines it holds, and their bytes. The lines of one that cannot
//! be read are searched for ([`super::search`]).

use std::collections::BTreeSet;

use super::{Step, Work};
use crate::buffer::Buffer;
use crate::engine::index::{Image, Victim};
use crate::engine::{Disk, Engine, Purpose};
use crate::format::record::{Entry, Record};
use crate::io::IoError;
use crate::log::segment::SegmentState;
use crate::units::{LINE_SIZE, LegIndex, Line, SegmentIndex, SegmentSerial, SlotIndex};

/// Segments that are read as a whole, to be emptied together.
pub(super) struct Reading {
    first: SegmentIndex,
    parts: Vec<Part>,
    reads_left: u32,
    /// The cache-disk is gone or does not answer.
    is_gone: bool,
}

/// One of them, as it was read.
struct Part {
    segment: SegmentIndex,
    serial: SegmentSerial,
    /// None of one that was in memory; and who has read it.
    image: Option<Buffer>,
    reader: Option<LegIndex>,
    lines: Vec<(Line, SlotIndex)>,
    is_complete: bool,
}

impl Engine {
    /// The next victim is read, or gathered at once.
    pub(super) fn start_victim(&mut self) -> bool {
        let Some(victim) = self.choose_victim() else { return false };
        match self.log.segments.get(victim).state {
            // The arm goes over the disk once for many of them. What is live is read, and no more.
            SegmentState::Dirty if self.config.one_disk && !self.table.has_budget() => {
                let others = self.victims_beside(victim);
                self.search_with(victim, others, Vec::new());
            }
            // Each batch ends with a flush, and for a flush a store takes an object and a row,
            // however little is in them.
            _ if self.ships_in_order() && !self.config.one_disk && !self.table.has_budget() => {
                let others = self.victims_beside(victim);
                self.read_victims(victim, others);
            }
            _ => self.read_victims(victim, BTreeSet::new()),
        }
        true
    }

    fn read_victims(&mut self, first: SegmentIndex, others: BTreeSet<SegmentIndex>) {
        let mut reading = Reading { first, parts: Vec::new(), reads_left: 0, is_gone: false };
        let mut on_disk = Vec::new();
        for segment in std::iter::once(first).chain(others) {
            match self.log.segments.get(segment).state {
                SegmentState::Buffered(buffer) => {
                    let at = self.log.memory_offset(buffer, 0);
                    let length = self.superblock.geometry.segment_size_bytes as usize;
                    let image = &self.log.memory()[at..at + length];
                    let (lines, is_complete) = self.lines_of_records(segment, image);
                    let serial = self.log.segments.get(segment).serial();
                    let (image, reader) = (None, None);
                    let part = Part { segment, serial, image, reader, lines, is_complete };
                    reading.parts.push(part);
                }
                _ => on_disk.push(segment),
            }
        }
        reading.reads_left = on_disk.len() as u32;
        if on_disk.is_empty() {
            return self.empty_parts(reading);
        }
        self.destage.work = Work::Victim(reading);
        for segment in on_disk {
            self.log.segments.add_reader(segment);
            let offset = self.superblock.geometry.segment_offset(segment);
            let length = self.superblock.geometry.segment_size_bytes;
            self.counters.destage_read_bytes += length;
            let purpose = Purpose::Destage(Step::ReadSegment(segment));
            self.start_read(Disk::CacheDisk, offset, length, purpose);
        }
    }

    pub(super) fn victim_read(
        &mut self,
        segment: SegmentIndex,
        result: Result<(), IoError>,
        buffer: Option<Buffer>,
    ) {
        let serial = self.log.segments.get(segment).serial();
        self.log.segments.drop_reader(segment);
        let Work::Victim(mut reading) = std::mem::take(&mut self.destage.work) else {
            unreachable!("segments are read to be emptied");
        };
        reading.reads_left -= 1;
        match (result, buffer) {
            (Ok(()), Some(image)) => {
                let (lines, is_complete) = self.lines_of_records(segment, image.bytes());
                // Now: until it is looked at, another leg may read of it.
                let reader = self.reader_of_segment(segment);
                let image = Some(image);
                reading.parts.push(Part { segment, serial, image, reader, lines, is_complete });
            }
            // One bad sector must not hold back the rest of its segment: it is searched.
            (Err(IoError::Failed), _) => {}
            _ => reading.is_gone = true,
        }
        match reading.reads_left {
            0 => self.empty_parts(reading),
            _ => self.destage.work = Work::Victim(reading),
        }
    }

    /// All is read that can be.
    fn empty_parts(&mut self, reading: Reading) {
        let Reading { first, mut parts, is_gone, .. } = reading;
        let is_first_read = parts.iter().any(|part| part.segment == first);
        // One may have become free, and been filled, since it was read. What could not be read of
        // the others has its turn later.
        parts.retain(|part| self.log.segments.get(part.segment).serial() == part.serial);
        // It is there, and the first of them, unless something has happened.
        parts.sort_by_key(|part| part.segment != first);
        let is_there = parts.first().is_some_and(|part| part.segment == first);
        let mut victim = Victim {
            segment: first,
            others: parts.iter().skip(1).map(|part| part.segment).collect(),
            images: Vec::new(),
            lines: Vec::new(),
            lines_of_first: parts.first().map_or(0, |part| part.lines.len()),
            is_complete: parts.first().is_some_and(|part| part.is_complete),
        };
        for Part { segment, serial, image, reader, lines, .. } in parts {
            victim.lines.extend(lines);
            victim.images.extend(image.map(|bytes| Image { segment, serial, bytes, reader }));
        }
        if is_there && !is_gone {
            return self.empty(victim);
        }
        self.put_images(victim.images);
        if is_gone {
            self.back_off();
        } else if !is_first_read {
            self.search(first, Vec::new());
        }
    }

    pub(in crate::engine) fn put_images(&mut self, images: Vec<Image>) {
        for image in images {
            self.buffers.put(Some(image.bytes));
        }
    }

    /// Lines that the durable records of a segment hold, live or not, with their slots; and whether
    /// they should be all that the segment holds.
    fn lines_of_records(
        &self,
        segment: SegmentIndex,
        image: &[u8],
    ) -> (Vec<(Line, SlotIndex)>, bool) {
        let end = self.end_of_records(segment);
        let mut lines = Vec::new();
        let mut slot = 0;
        // A damaged header hides which lines its slots belong to, but not where the next valid one
        // is; what only it spoke of is found through the table instead.
        let mut is_damaged = false;
        while slot < end {
            let bytes = &image[(u64::from(slot) * LINE_SIZE) as usize..];
            let Some(record) = self.record_at(segment, slot, bytes) else {
                is_damaged = true;
                slot += 1;
                continue;
            };
            self.add_lines_of(&record, &mut lines);
            slot += record.slots();
        }
        // A forged checkpoint may have other lines for its slots than the records.
        let should_be_complete = is_damaged || end == self.superblock.geometry.slots_per_segment();
        (lines, should_be_complete)
    }

    /// The slot behind its durable records.
    fn end_of_records(&self, segment: SegmentIndex) -> u32 {
        self.log.durable_slots(segment).min(self.superblock.geometry.slots_per_segment())
    }

    /// The record that begins in this slot of the segment, if one does.
    fn record_at(&self, segment: SegmentIndex, slot: u32, bytes: &[u8]) -> Option<Record> {
        let serial = self.log.segments.get(segment).serial();
        Record::decode(bytes).ok().filter(|record| {
            record.header.uuid == self.superblock.uuid
                && record.header.serial == serial
                && record.header.slot_in_segment == slot
                && record.header.segment == segment
        })
    }

    fn add_lines_of(&self, record: &Record, lines: &mut Vec<(Line, SlotIndex)>) {
        let geometry = self.superblock.geometry;
        let data = record.entries.iter().filter_map(|entry| match entry {
            Entry::Data { line, .. } => Some(*line),
            _ => None,
        });
        let first = record.header.slot_in_segment + 1;
        let slots = (first..).map(|slot| geometry.slot(record.header.segment, slot));
        lines.extend(data.zip(slots));
    }
}
