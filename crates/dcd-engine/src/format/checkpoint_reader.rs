//! Reads a checkpoint a part at a time, in the order of its bytes: of a large cache it is
//! gigabytes.
//!
//! What is handed on before the end may be wrong, because the checksum is that of the whole
//! payload. Whoever loads it throws it away if [`CheckpointReader::finish`] says so.

use zerocopy::FromBytes;

use super::COUNTER_END;
use super::checkpoint::{
    Checkpoint, CopyPageRef, ITEM_SIZE, Item, LiveSlot, WHAT, Witness, ZEROES_FREED, ZEROES_KEPT,
    counts, position_of, read_header,
};
use super::checksum::Crc32c;
use super::geometry::Geometry;
use crate::error::FormatError;
use crate::units::{CopyPageIndex, LINE_SIZE, SegmentIndex, SegmentSerial, Uuid};
use crate::used_places::UsedPlaces;
use crate::zero_ranges::ZeroRange;

/// A checkpoint of which a part was read.
pub(crate) struct CheckpointReader {
    geometry: Geometry,
    /// Items that are still to come of each list.
    left: [u64; 7],
    bytes_left: u64,
    checksum: Crc32c,
    /// What the header says that it will be.
    payload_checksum: u32,
    /// All but the live slots.
    read: Checkpoint,
    used: UsedOnce,
    /// What is wrong with the first item that cannot be: nothing behind it is handed on.
    problem: Option<FormatError>,
}

/// Whether each place has one use. A segment that is filled twice, or one that is filled while it
/// holds live slots, or a slot of two lines would break what the engine counts.
struct UsedOnce {
    is_free: UsedPlaces,
    is_filled: UsedPlaces,
    /// A bit for each slot.
    is_live: Vec<u64>,
}

fn field(field: &'static str, found: u64) -> FormatError {
    FormatError::Field { what: WHAT, field, found }
}

impl CheckpointReader {
    /// Of the checkpoint with this header.
    ///
    /// # Errors
    /// If it is none of this cache, or counts what cannot be.
    pub(crate) fn new(
        header: &[u8],
        uuid: Uuid,
        geometry: &Geometry,
    ) -> Result<CheckpointReader, FormatError> {
        let header = read_header(header, uuid, geometry)?;
        let left = counts(header);
        // An empty cache lists none, and then this takes no memory.
        let filled_places = if left[1] > 0 { geometry.segments as usize } else { 0 };
        let read = Checkpoint {
            order: header.order.get(),
            ..Checkpoint::without_lists(
                uuid,
                header.generation.get(),
                header.epoch.get(),
                position_of(header),
            )
        };
        let bytes = left.iter().sum::<u64>() * ITEM_SIZE as u64;
        Ok(CheckpointReader {
            geometry: *geometry,
            left,
            bytes_left: bytes.next_multiple_of(LINE_SIZE),
            checksum: Crc32c::default(),
            payload_checksum: header.payload_checksum.get(),
            read,
            used: UsedOnce {
                is_free: UsedPlaces::new(geometry.segments as usize),
                is_filled: UsedPlaces::new(filled_places),
                is_live: vec![0; geometry.slots().div_ceil(64) as usize],
            },
            problem: None,
        })
    }

    /// How its live slots are sorted; see [`Checkpoint::order`].
    pub(crate) fn order(&self) -> u64 {
        self.read.order
    }

    /// The number of the next item in the payload, and how many live slots are still to come.
    pub(crate) fn live_left(&self) -> (u64, u64) {
        let [free, filled, live, ..] = self.left;
        let first = self.read.free.len() as u64 + self.read.filled.len() as u64 + free + filled;
        (first, live)
    }

    /// Bytes of the payload that are still to come: whole pages at first.
    pub(crate) fn bytes_left(&self) -> u64 {
        self.bytes_left
    }

    /// Takes the next bytes of the payload, and hands on each live slot in them.
    ///
    /// # Panics
    /// If they are not whole items, or more than there are.
    pub(crate) fn take(&mut self, bytes: &[u8], mut live: impl FnMut(LiveSlot)) {
        self.bytes_left = self.bytes_left.checked_sub(bytes.len() as u64).expect("no more than is");
        self.checksum.update(bytes);
        let items = <[Item]>::ref_from_bytes(bytes).expect("whole items");
        for item in items {
            // Behind the last list the page is filled up.
            let Some(list) = self.left.iter().position(|left| *left > 0) else { return };
            self.left[list] -= 1;
            if self.problem.is_none() {
                self.problem = self.take_item(list, item, &mut live).err();
            }
        }
    }

    fn take_item(
        &mut self,
        list: usize,
        item: &Item,
        live: &mut impl FnMut(LiveSlot),
    ) -> Result<(), FormatError> {
        match list {
            0 => self.take_free(SegmentIndex(item.first.get())),
            1 => {
                self.take_filled(SegmentIndex(item.first.get()), SegmentSerial(item.address.get()))
            }
            2 => {
                let slot = item.live_slot();
                self.check_live(&slot)?;
                live(slot);
                Ok(())
            }
            3 => self.take_zeroes(item),
            4 => {
                self.read.poisoned.push(item.line_and_mask());
                Ok(())
            }
            5 => {
                let (line, _) = item.line_and_mask();
                self.read.witnesses.push(Witness { line, checksum: item.second.get() });
                Ok(())
            }
            _ => self.take_copy_page(CopyPageRef {
                page: CopyPageIndex(item.first.get()),
                generation: item.address.get(),
                checksum: item.second.get(),
            }),
        }
    }

    fn take_free(&mut self, segment: SegmentIndex) -> Result<(), FormatError> {
        let is_there = segment.0 < self.geometry.segments;
        if !is_there
            || segment == self.read.position.segment
            || !self.used.is_free.insert(segment.0 as usize)
        {
            return Err(field("free segment", segment.0.into()));
        }
        self.read.free.push(segment);
        Ok(())
    }

    fn take_filled(
        &mut self,
        segment: SegmentIndex,
        serial: SegmentSerial,
    ) -> Result<(), FormatError> {
        let (index, is_there) = (segment.0 as usize, segment.0 < self.geometry.segments);
        if !is_there || self.used.is_free.contains(index) || !self.used.is_filled.insert(index) {
            return Err(field("filled segment", segment.0.into()));
        }
        if serial > self.read.position.serial {
            return Err(field("serial of a filled segment", segment.0.into()));
        }
        self.read.filled.push((segment, serial));
        Ok(())
    }

    fn check_live(&mut self, live: &LiveSlot) -> Result<(), FormatError> {
        let LiveSlot { line, mask, slot, .. } = *live;
        let wrong = Err(field("live slot", slot.0.into()));
        if slot.0 >= self.geometry.slots() || mask.is_empty() || line.0 >= 1 << 40 {
            return wrong;
        }
        let (segment, slot_in_segment) = self.geometry.locate(slot);
        let position = &self.read.position;
        let will_be_filled = self.used.is_free.contains(segment.0 as usize)
            || segment == position.segment && slot_in_segment >= position.slot_in_segment;
        let (word, bit) = (&mut self.used.is_live[(slot.0 / 64) as usize], 1 << (slot.0 % 64));
        if will_be_filled || *word & bit != 0 {
            return wrong;
        }
        *word |= bit;
        Ok(())
    }

    fn take_zeroes(&mut self, item: &Item) -> Result<(), FormatError> {
        let (line, kind) = item.line_and_mask();
        let lines = u64::from(item.first.get()) | u64::from(item.second.get()) << 32;
        if lines == 0 || lines > (1 << 40) {
            return Err(field("zero range", lines));
        }
        if kind != ZEROES_KEPT && kind != ZEROES_FREED {
            return Err(field("kind of a zero range", kind.0.into()));
        }
        self.read.zeroes.push(ZeroRange { line, lines, may_unmap: kind == ZEROES_FREED });
        Ok(())
    }

    fn take_copy_page(&mut self, copy_page: CopyPageRef) -> Result<(), FormatError> {
        let CopyPageRef { page, generation, .. } = copy_page;
        // In order, so none twice.
        let is_next = self.read.copy_pages.last().is_none_or(|last| last.page < page);
        if page.0 >= self.geometry.copy_pages || generation >= COUNTER_END || !is_next {
            return Err(field("copy page", page.0.into()));
        }
        self.read.copy_pages.push(copy_page);
        Ok(())
    }

    /// The checkpoint without its live slots, which were handed on.
    ///
    /// # Errors
    /// If anything of it is not as it was written: what was handed on does not count.
    ///
    /// # Panics
    /// If a part of the payload was not taken.
    pub(crate) fn finish(self) -> Result<Checkpoint, FormatError> {
        assert_eq!(self.bytes_left, 0, "a part of it was not read");
        let (expected, found) = (self.checksum.finish(), self.payload_checksum);
        if found != expected {
            let what = "the payload of the checkpoint";
            return Err(FormatError::Checksum { what, expected, found });
        }
        match self.problem {
            Some(problem) => Err(problem),
            None => Ok(self.read),
        }
    }
}
