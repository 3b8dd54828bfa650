//! Step 2 of recovery: the chain of records behind the checkpoint, on the cache-disk or in memory
//! that survived.

use super::rewrite::Source;
use super::{FoundRecord, Step};
use crate::buffer::Buffer;
use crate::engine::Disk;
use crate::engine::{Engine, Purpose};
use crate::error::OpenError;
use crate::format::checksum::crc32c;
use crate::format::record::{self, ENTRIES_OFFSET, Entry, Record, Seal};
use crate::io::IoError;
use crate::log::segment::BufferIndex;
use crate::units::{FragmentMask, LINE_SIZE, Line, RecordNumber, SlotIndex};

impl Engine {
    pub(super) fn read_next_segment(&mut self) {
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
        self.start_read(Disk::CacheDisk, offset, length, Purpose::Recover(Step::Segment));
    }

    /// One bad sector must not hide the rest of its segment: what it held is damaged, no more.
    pub(super) fn read_segment_by_slots(&mut self) {
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
            self.start_read(Disk::CacheDisk, offset, LINE_SIZE, purpose);
        }
    }

    /// The segment buffer in which the next record of the chain survived.
    pub(super) fn buffer_of_next_record(&mut self) -> Option<BufferIndex> {
        let slot = self.recovery().chain.slot;
        if self.recovery().memory_is_void {
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
    pub(super) fn is_next(&self, record: &Record) -> bool {
        let recovery = self.recovery.as_ref().expect("recovery is under way");
        let (chain, header) = (&recovery.chain, &record.header);
        let checkpoint = recovery.checkpoint.as_ref().expect("the chain begins with it");
        let end = chain.slot + record.slots();
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
            && chain.may_follow(record, self.superblock.geometry.segments)
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

    pub(super) fn segment_read(&mut self, image: Buffer) {
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
    /// accepted. To take it for the end of the log would cut off silently what may be durable
    /// (C19).
    pub(super) fn refuses_unreadable(&mut self, first: SlotIndex, slots: u32) -> bool {
        if self.config.accept_damage {
            return false;
        }
        let range = first..SlotIndex(first.0 + slots);
        let Some(slot) = self.recovery().unreadable.range(range).next().copied() else {
            return false;
        };
        let offset = self.superblock.geometry.slot_offset(slot);
        let (device, error) = (Disk::CacheDisk, IoError::Failed);
        self.fail_open(OpenError::Io { device: device.into(), offset, error });
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
            recovery.chain.take_back_announcements(number);
        }
        recovery.chain.follow_announcements(&found.record);
        let durable = found.record.header.durable;
        let chain = &mut recovery.chain;
        chain.slot += found.record.slots();
        chain.number = chain.number.next();
        chain.previous_checksum = found.record.checksum;
        chain.newest_serial = chain.serial;
        recovery.found.push(found);
        recovery.forget_durable(durable);
    }
}

/// Lines of a record whose slots do not match their checksums.
fn damaged_slots(record: &Record, data: &[u8]) -> Vec<(Line, FragmentMask)> {
    let mut slots = data.chunks(LINE_SIZE as usize);
    let mut damaged = Vec::new();
    for entry in &record.entries {
        if let Entry::Data { line, mask, checksum } = entry {
            let slot = slots.next().unwrap_or_default();
            if crc32c(slot) != *checksum {
                damaged.push((*line, *mask));
            }
        }
    }
    damaged
}
