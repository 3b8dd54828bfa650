//! One segment for itself: which record headers lie in it, of this lap or of an earlier one.

use dcd_engine::format::checksum::crc32c;
use dcd_engine::format::record::{Entry, HEADER_SIZE, Record};
use dcd_engine::units::{LINE_SIZE, SegmentIndex, SlotIndex};
use dcd_engine::{Buffer, Geometry, Superblock};

use super::{CacheImage, ImageError};

/// A record that was found.
pub struct FoundRecord {
    /// What its header says.
    pub record: Record,
    /// Data slots whose checksum does not match, as numbers of entries.
    pub bad_entries: Vec<usize>,
}

impl FoundRecord {
    /// The entries, each with the slot of its data.
    pub fn entries_with_slots(
        &self,
        geometry: &Geometry,
    ) -> impl Iterator<Item = (&Entry, Option<SlotIndex>)> {
        let header = &self.record.header;
        let mut slot = geometry.slot(header.segment, header.slot_in_segment).0;
        self.record.entries.iter().map(move |entry| match entry {
            Entry::Data { .. } => {
                slot += 1;
                (entry, Some(SlotIndex(slot)))
            }
            Entry::Zero { .. } | Entry::Bypass { .. } | Entry::Announce { .. } => (entry, None),
        })
    }
}

/// Reads a segment and finds the records in it, in place order.
pub fn read_segment(
    image: &CacheImage,
    superblock: &Superblock,
    index: SegmentIndex,
) -> Result<Vec<FoundRecord>, ImageError> {
    let geometry = &superblock.geometry;
    let (offset, length) = (geometry.segment_offset(index), geometry.segment_size_bytes);
    if image.is_hole(offset, length) {
        return Ok(Vec::new());
    }
    let bytes = image.read(offset, length as usize)?;
    Ok(find_records(&bytes, superblock, index))
}

/// The records in the bytes of a segment. Where no record begins, the next slot is tried, so that
/// a damaged header hides only its own record.
fn find_records(bytes: &Buffer, superblock: &Superblock, index: SegmentIndex) -> Vec<FoundRecord> {
    let slots = bytes.len() / LINE_SIZE as usize;
    let mut records = Vec::new();
    let mut slot = 0;
    while slot < slots {
        let at = slot * LINE_SIZE as usize;
        // User data may hold an image of another cache, or a copy of a part of this one: only what
        // says that it lies here counts.
        let record = Record::decode(&bytes.bytes()[at..]).ok().filter(|record| {
            let header = &record.header;
            header.uuid == superblock.uuid
                && header.segment == index
                && header.slot_in_segment as usize == slot
                && slot + record.slots() as usize <= slots
        });
        let Some(record) = record else {
            slot += 1;
            continue;
        };
        slot += record.slots() as usize;
        let data = &bytes.bytes()[at + HEADER_SIZE..];
        records.push(FoundRecord { bad_entries: bad_entries(&record, data), record });
    }
    records
}

/// Numbers of the entries whose data, which begins `data`, does not have their checksum.
fn bad_entries(record: &Record, data: &[u8]) -> Vec<usize> {
    let mut slots = data.chunks_exact(LINE_SIZE as usize);
    let mut bad = Vec::new();
    for (number, entry) in record.entries.iter().enumerate() {
        let Entry::Data { checksum, .. } = entry else { continue };
        if slots.next().map(crc32c) != Some(*checksum) {
            bad.push(number);
        }
    }
    bad
}
