//! Checkpoints: the whole index at one place in the log, so that recovery reads it and only the
//! segments filled after it.
//!
//! A checkpoint lists every live slot and, in the order in which they will be filled, the segments
//! that may be filled from then on. Nothing else is ever filled before the next checkpoint is
//! durable. That is what makes reuse safe (contract C13, trap 1 of the design): a segment that the
//! newest durable checkpoint speaks of cannot have been overwritten, and records after the
//! checkpoint can only lie in the listed segments, in the listed order.
//!
//! Two areas, written in turn; a torn one leaves the other, which is still complete.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::COUNTER_END;
use super::checkpoint_reader::CheckpointReader;
use super::checksum::{Crc32c, crc32c_with_hole};
use super::geometry::{Geometry, POISONED_LINES_MAX, WITNESSES_MAX, ZERO_RANGES_MAX};
use super::layout::{FieldLayout, layout_of};
use super::preamble::{CHECKSUM_OFFSET, Preamble};
use crate::buffer::Buffer;
use crate::buffer_pool::BufferPool;
use crate::error::FormatError;
use crate::units::{
    CopyPageIndex, FragmentMask, LINE_SIZE, Line, RecordNumber, SegmentIndex, SegmentSerial,
    SlotIndex, Uuid,
};
use crate::zero_ranges::ZeroRange;

/// "dcdCHECK" in ASCII, read as a little-endian number.
pub const MAGIC: u64 = u64::from_le_bytes(*b"dcdCHECK");
/// The version that this program writes and reads.
pub const VERSION: u32 = 1;
/// Size of the header.
pub const HEADER_SIZE: usize = LINE_SIZE as usize;
pub(super) const WHAT: &str = "the checkpoint";
const PREAMBLE: Preamble = Preamble { what: WHAT, magic: MAGIC, version: VERSION };
/// Size of each thing in the payload.
pub(crate) const ITEM_SIZE: usize = 16;
/// In the place of the mask of a zero range. Programs before the second wrote the first, and do not
/// look at it: they free nothing.
pub(super) const ZEROES_KEPT: FragmentMask = FragmentMask::FULL;
/// See `ZEROES_KEPT`: the space of these may be freed.
pub(super) const ZEROES_FREED: FragmentMask = FragmentMask(1);

/// Where the log goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogPosition {
    /// The segment being filled.
    pub segment: SegmentIndex,
    /// Its serial; the segments in the list behind it get the following ones.
    pub serial: SegmentSerial,
    /// The slot where the next record will begin.
    pub slot_in_segment: u32,
    /// The number the next record will have.
    pub next_record: RecordNumber,
    /// Checksum of the header of the record before.
    pub previous_checksum: u32,
}

/// A live slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LiveSlot {
    /// Whose fragments it holds.
    pub line: Line,
    /// Which of them are live here.
    pub mask: FragmentMask,
    /// Where.
    pub slot: SlotIndex,
    /// CRC-32C of the slot.
    pub checksum: u32,
}

/// Checksum of 4 KiB of the data-disk as dcd last knew it: tells whether someone else wrote there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Witness {
    /// Which line.
    pub line: Line,
    /// CRC-32C of its bytes.
    pub checksum: u32,
}

/// Which copy page is true together with this checkpoint: any other is older or was never finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyPageRef {
    /// Which.
    pub page: CopyPageIndex,
    /// Its generation, whose parity is its place.
    pub generation: u64,
    /// Its own checksum.
    pub checksum: u32,
}

/// A checkpoint in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checkpoint {
    /// Which cache.
    pub uuid: Uuid,
    /// Counts checkpoints; its parity is the area.
    pub generation: u64,
    /// The session that wrote it: records of other sessions do not follow it.
    pub epoch: u64,
    /// Where the log goes on.
    pub position: LogPosition,
    /// How live slots are sorted, so that pages of them can be looked up: by a hash of their lines
    /// with this odd number; 0: they are in no order.
    pub order: u64,
    /// Segments that may be filled after the one of `position`, in order.
    pub free: Vec<SegmentIndex>,
    /// The other segments, with the serial of what is in them.
    pub filled: Vec<(SegmentIndex, SegmentSerial)>,
    /// Every live slot.
    pub live: Vec<LiveSlot>,
    /// Lines that read as zeroes, and whose zeroes are not on the data-disk yet.
    pub zeroes: Vec<ZeroRange>,
    /// Fragments whose newest copy is damaged.
    pub poisoned: Vec<(Line, FragmentMask)>,
    /// Places of the data-disk that are compared at start.
    pub witnesses: Vec<Witness>,
    /// The copy pages that list something.
    pub copy_pages: Vec<CopyPageRef>,
}

/// Writes a checkpoint while its index is still gathered: free segments, then filled ones, then
/// live slots, and at the end the rest and the header, without which nothing before it counts.
pub(crate) struct CheckpointWriter {
    /// Room for the header, payload that was taken and is still here, and payload that was not.
    bytes: Vec<u8>,
    /// Payload that was taken, and how much of it is still here.
    taken: u64,
    taken_here: usize,
    checksum: Crc32c,
    free: u64,
    filled: u64,
    live: u64,
}

/// The end of a checkpoint, and with [`Ending::taken`] 0 all of it.
pub(crate) struct Ending {
    /// The header, then payload.
    pub(crate) bytes: Vec<u8>,
    /// So many bytes of payload lie between them.
    pub(crate) taken: u64,
}

impl CheckpointWriter {
    pub(crate) fn new(free: &[SegmentIndex]) -> CheckpointWriter {
        let mut writer = CheckpointWriter {
            bytes: vec![0; HEADER_SIZE],
            taken: 0,
            taken_here: 0,
            checksum: Crc32c::default(),
            free: free.len() as u64,
            filled: 0,
            live: 0,
        };
        for segment in free {
            writer.put(&Item { address: U64::ZERO, first: segment.0.into(), second: U32::ZERO });
        }
        writer
    }

    fn put(&mut self, item: &Item) {
        self.bytes.extend_from_slice(item.as_bytes());
    }

    pub(crate) fn put_filled(&mut self, segment: SegmentIndex, serial: SegmentSerial) {
        assert!(self.live == 0, "filled segments come first");
        self.filled += 1;
        let (address, first) = (serial.0.into(), segment.0.into());
        self.put(&Item { address, first, second: U32::ZERO });
    }

    pub(crate) fn put_live(&mut self, live: &LiveSlot) {
        self.live += 1;
        self.put(&Item::line(live.line, live.mask, live.slot.0, live.checksum));
    }

    /// Items that were put.
    pub(crate) fn items(&self) -> u64 {
        self.free + self.filled + self.live
    }

    /// So many bytes of payload, whole pages, if there are so many, in a buffer of `buffers`; and
    /// where in the area they belong.
    pub(crate) fn take(&mut self, bytes: usize, buffers: &mut BufferPool) -> Option<(u64, Buffer)> {
        let start = HEADER_SIZE + self.taken_here;
        let piece = self.bytes.get(start..start + bytes)?;
        let (offset, buffer) = (HEADER_SIZE as u64 + self.taken, buffers.take_copy(piece));
        self.checksum.update(piece);
        self.taken += bytes as u64;
        self.taken_here += bytes;
        // A large cache lists MiBs of segments at once: moved up behind each piece, what is left of
        // them would be moved many times.
        if self.bytes.len() <= HEADER_SIZE + 2 * self.taken_here {
            self.drop_taken();
        }
        Some((offset, buffer))
    }

    fn drop_taken(&mut self) {
        self.bytes.drain(HEADER_SIZE..HEADER_SIZE + std::mem::take(&mut self.taken_here));
    }

    /// Puts all but the index, which `picture` need not have.
    ///
    /// # Panics
    /// If it lists more than a cache of this geometry may, or than its area has room for: it could
    /// not be read again.
    pub(crate) fn finish(mut self, picture: &Checkpoint, geometry: Option<&Geometry>) -> Ending {
        self.drop_taken();
        for ZeroRange { line, lines, may_unmap } in &picture.zeroes {
            let (low, high) = (*lines as u32, (*lines >> 32) as u32);
            let kind = match *may_unmap {
                true => ZEROES_FREED,
                false => ZEROES_KEPT,
            };
            self.put(&Item::line(*line, kind, low, high));
        }
        for (line, mask) in &picture.poisoned {
            self.put(&Item::line(*line, *mask, 0, 0));
        }
        for witness in &picture.witnesses {
            self.put(&Item::line(witness.line, FragmentMask::FULL, 0, witness.checksum));
        }
        for CopyPageRef { page, generation, checksum } in &picture.copy_pages {
            let (first, second) = (page.0.into(), (*checksum).into());
            self.put(&Item { address: (*generation).into(), first, second });
        }
        self.bytes.resize(self.bytes.len().next_multiple_of(LINE_SIZE as usize), 0);
        if let Some(geometry) = geometry {
            self.assert_fits(picture, geometry);
        }
        self.checksum.update(&self.bytes[HEADER_SIZE..]);
        let mut header = CheckpointHeaderOnDisk::new_zeroed();
        header.magic = MAGIC.into();
        header.version = VERSION.into();
        header.uuid = picture.uuid.0;
        header.generation = picture.generation.into();
        header.epoch = picture.epoch.into();
        header.serial = picture.position.serial.0.into();
        header.next_record = picture.position.next_record.0.into();
        header.segment = picture.position.segment.0.into();
        header.slot_in_segment = picture.position.slot_in_segment.into();
        header.previous_checksum = picture.position.previous_checksum.into();
        header.free = self.free.into();
        header.filled = self.filled.into();
        header.live = self.live.into();
        header.zeroes = (picture.zeroes.len() as u64).into();
        header.poisoned = (picture.poisoned.len() as u64).into();
        header.witnesses = (picture.witnesses.len() as u64).into();
        header.copy_pages = (picture.copy_pages.len() as u64).into();
        header.order = picture.order.into();
        header.payload_checksum = self.checksum.finish().into();
        header.checksum = crc32c_with_hole(header.as_bytes(), CHECKSUM_OFFSET).into();
        self.bytes[..HEADER_SIZE].copy_from_slice(header.as_bytes());
        Ending { bytes: self.bytes, taken: self.taken }
    }

    fn assert_fits(&self, picture: &Checkpoint, geometry: &Geometry) {
        for (what, count, most) in [
            ("zero ranges", picture.zeroes.len() as u64, ZERO_RANGES_MAX),
            ("damaged lines", picture.poisoned.len() as u64, POISONED_LINES_MAX),
            ("witnesses", picture.witnesses.len() as u64, WITNESSES_MAX),
            ("live slots", self.live, geometry.data_slots_max().into()),
            ("copy pages", picture.copy_pages.len() as u64, geometry.copy_pages.into()),
            ("segments", self.free + self.filled, geometry.segments.into()),
        ] {
            assert!(count <= most, "a checkpoint has room for {most} {what}, not {count}");
        }
        let (length, area) = (self.taken + self.bytes.len() as u64, geometry.checkpoint_area_bytes);
        assert!(length <= area, "a checkpoint of {length} bytes in an area of {area}");
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct CheckpointHeaderOnDisk {
    pub(crate) magic: U64,
    pub(crate) version: U32,
    pub(crate) checksum: U32,
    pub(crate) uuid: [u8; 16],
    pub(crate) generation: U64,
    pub(crate) epoch: U64,
    pub(crate) serial: U64,
    pub(crate) next_record: U64,
    pub(crate) segment: U32,
    pub(crate) slot_in_segment: U32,
    pub(crate) previous_checksum: U32,
    pub(crate) payload_checksum: U32,
    pub(crate) free: U64,
    pub(crate) filled: U64,
    pub(crate) live: U64,
    pub(crate) zeroes: U64,
    pub(crate) poisoned: U64,
    pub(crate) witnesses: U64,
    pub(crate) copy_pages: U64,
    pub(crate) order: U64,
    pub(crate) unused: [u8; 3952],
}

const _: () = assert!(size_of::<CheckpointHeaderOnDisk>() == HEADER_SIZE);
const _: () = assert!(std::mem::offset_of!(CheckpointHeaderOnDisk, checksum) == CHECKSUM_OFFSET);

/// Any item of the payload: an address with 8 bits of mask above 48, and two values.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Item {
    pub(super) address: U64,
    pub(super) first: U32,
    pub(super) second: U32,
}

const _: () = assert!(size_of::<Item>() == ITEM_SIZE);

/// Every field of a header, in order: what `docs/disk-format.md` says in words.
pub fn layout() -> Vec<FieldLayout> {
    layout_of!(CheckpointHeaderOnDisk {
        magic,
        version,
        checksum,
        uuid,
        generation,
        epoch,
        serial,
        next_record,
        segment,
        slot_in_segment,
        previous_checksum,
        payload_checksum,
        free,
        filled,
        live,
        zeroes,
        poisoned,
        witnesses,
        copy_pages,
        order,
        unused,
    })
}

/// The same of an item of the payload.
pub fn item_layout() -> Vec<FieldLayout> {
    layout_of!(Item { address, first, second })
}

impl Item {
    fn line(line: Line, mask: FragmentMask, first: u32, second: u32) -> Item {
        Item {
            address: (u64::from(mask.0) << 48 | line.0).into(),
            first: first.into(),
            second: second.into(),
        }
    }

    pub(super) fn live_slot(&self) -> LiveSlot {
        let (line, mask) = self.line_and_mask();
        let (slot, checksum) = (SlotIndex(self.first.get()), self.second.get());
        LiveSlot { line, mask, slot, checksum }
    }

    pub(super) fn line_and_mask(&self) -> (Line, FragmentMask) {
        let word = self.address.get();
        (Line(word & ((1 << 48) - 1)), FragmentMask((word >> 48) as u8))
    }
}

/// Items of live slots that were written as these bytes.
///
/// # Panics
/// If these are not whole items.
pub(crate) fn live_slots(bytes: &[u8]) -> impl Iterator<Item = LiveSlot> {
    let items = <[Item]>::ref_from_bytes(bytes).expect("whole items");
    items.iter().map(Item::live_slot)
}

/// What a checkpoint header promises of the payload behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckpointHeader {
    /// Counts checkpoints.
    pub generation: u64,
    /// Bytes of payload, padding included.
    pub payload_bytes: u64,
}

/// What can still be read of a checkpoint whose payload has a wrong checksum: for salvage, never
/// for a start. Any item may be wrong, and is worth as much as the slot that it names confirms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DamagedCheckpoint {
    /// Counts checkpoints.
    pub generation: u64,
    /// Which session wrote it.
    pub epoch: u64,
    /// Where the log went on; the header is whole.
    pub position: LogPosition,
    /// Its live slots; any of them may lie beyond the cache-disk.
    pub live: Vec<LiveSlot>,
    /// Its zero ranges.
    pub zeroes: Vec<(Line, u64)>,
    /// Its lost fragments.
    pub poisoned: Vec<(Line, FragmentMask)>,
}

impl DamagedCheckpoint {
    /// Reads what is there. Every byte may be anything.
    ///
    /// # Errors
    /// If the header is damaged, too.
    pub fn decode(
        bytes: &[u8],
        uuid: Uuid,
        geometry: &Geometry,
    ) -> Result<DamagedCheckpoint, FormatError> {
        let header = read_header(bytes, uuid, geometry)?;
        let payload = &bytes[HEADER_SIZE..];
        let items = payload.chunks_exact(ITEM_SIZE);
        let mut items = items.filter_map(|bytes| Item::read_from_bytes(bytes).ok());
        let mut groups = counts(header).into_iter().map(|count| {
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            items.by_ref().take(count).collect::<Vec<Item>>()
        });
        let mut group = || groups.next().unwrap_or_default();
        let (_free, _filled, live, zeroes, poisoned) =
            (group(), group(), group(), group(), group());
        let slot = |item: &Item| {
            let (line, mask) = item.line_and_mask();
            let slot = SlotIndex(item.first.get());
            let checksum = item.second.get();
            LiveSlot { line, mask, slot, checksum }
        };
        let zero_range = |item: &Item| {
            let count = u64::from(item.first.get()) | u64::from(item.second.get()) << 32;
            (item.line_and_mask().0, count.min(1 << 40))
        };
        Ok(DamagedCheckpoint {
            generation: header.generation.get(),
            epoch: header.epoch.get(),
            position: position_of(header),
            live: live.iter().map(slot).collect(),
            zeroes: zeroes.iter().map(zero_range).collect(),
            poisoned: poisoned.iter().map(Item::line_and_mask).collect(),
        })
    }
}

impl Checkpoint {
    /// One that lists nothing.
    pub(crate) fn without_lists(
        uuid: Uuid,
        generation: u64,
        epoch: u64,
        position: LogPosition,
    ) -> Checkpoint {
        Checkpoint {
            uuid,
            generation,
            epoch,
            position,
            order: 0,
            free: Vec::new(),
            filled: Vec::new(),
            live: Vec::new(),
            zeroes: Vec::new(),
            poisoned: Vec::new(),
            witnesses: Vec::new(),
            copy_pages: Vec::new(),
        }
    }

    /// Area that holds this generation: 0 or 1.
    pub fn area(&self) -> usize {
        (self.generation % 2) as usize
    }

    /// The bytes of a checkpoint of this cache.
    ///
    /// # Panics
    /// As [`CheckpointWriter::finish`].
    pub(crate) fn encode_for(&self, geometry: &Geometry) -> Buffer {
        Buffer::copy_of(&self.writer().finish(self, Some(geometry)).bytes)
    }

    /// The bytes of the checkpoint: header, then payload, padded to 4 KiB.
    pub fn encode(&self) -> Buffer {
        Buffer::copy_of(&self.writer().finish(self, None).bytes)
    }

    /// What the index holds is put.
    fn writer(&self) -> CheckpointWriter {
        let mut writer = CheckpointWriter::new(&self.free);
        self.filled.iter().for_each(|(segment, serial)| writer.put_filled(*segment, *serial));
        self.live.iter().for_each(|live| writer.put_live(live));
        writer
    }

    /// Reads only the header, to learn how much to read.
    pub fn decode_header(
        bytes: &[u8],
        uuid: Uuid,
        geometry: &Geometry,
    ) -> Result<CheckpointHeader, FormatError> {
        let header = read_header(bytes, uuid, geometry)?;
        let items = counts(header).iter().sum::<u64>();
        Ok(CheckpointHeader {
            generation: header.generation.get(),
            payload_bytes: (items * ITEM_SIZE as u64).next_multiple_of(LINE_SIZE),
        })
    }

    /// Reads a checkpoint. Every byte may be anything.
    pub fn decode(
        bytes: &[u8],
        uuid: Uuid,
        geometry: &Geometry,
    ) -> Result<Checkpoint, FormatError> {
        let mut reader = CheckpointReader::new(bytes, uuid, geometry)?;
        let payload = usize::try_from(reader.bytes_left()).unwrap_or(usize::MAX);
        let Some(bytes) = bytes[HEADER_SIZE..].get(..payload) else {
            return Err(FormatError::Short {
                what: WHAT,
                expected: payload.saturating_add(HEADER_SIZE),
                found: bytes.len(),
            });
        };
        let mut live = Vec::new();
        reader.take(bytes, |slot| live.push(slot));
        Ok(Checkpoint { live, ..reader.finish()? })
    }
}

pub(super) fn position_of(header: &CheckpointHeaderOnDisk) -> LogPosition {
    LogPosition {
        segment: SegmentIndex(header.segment.get()),
        serial: SegmentSerial(header.serial.get()),
        slot_in_segment: header.slot_in_segment.get(),
        next_record: RecordNumber(header.next_record.get()),
        previous_checksum: header.previous_checksum.get(),
    }
}

pub(super) fn counts(header: &CheckpointHeaderOnDisk) -> [u64; 7] {
    [
        header.free.get(),
        header.filled.get(),
        header.live.get(),
        header.zeroes.get(),
        header.poisoned.get(),
        header.witnesses.get(),
        header.copy_pages.get(),
    ]
}

pub(super) fn read_header<'a>(
    bytes: &'a [u8],
    uuid: Uuid,
    geometry: &Geometry,
) -> Result<&'a CheckpointHeaderOnDisk, FormatError> {
    let (header, _) = PREAMBLE.verify::<CheckpointHeaderOnDisk>(bytes)?;
    if header.uuid != uuid.0 {
        return Err(FormatError::Uuid { what: WHAT, expected: uuid, found: Uuid(header.uuid) });
    }
    let field = |field, found: u64| FormatError::Field { what: WHAT, field, found };
    let items_max = (geometry.checkpoint_area_bytes - HEADER_SIZE as u64) / ITEM_SIZE as u64;
    for (name, count, most) in [
        ("free", header.free.get(), u64::from(geometry.segments)),
        (
            "filled",
            header.filled.get(),
            u64::from(geometry.segments) - header.free.get().min(u64::from(geometry.segments)),
        ),
        ("live", header.live.get(), u64::from(geometry.data_slots_max())),
        // Older versions wrote more than `ZERO_RANGES_MAX`. What its area has room for was not
        // written over anything else: it is read, and recovery makes room before it writes the
        // next.
        ("zeroes", header.zeroes.get(), items_max),
        ("poisoned", header.poisoned.get(), POISONED_LINES_MAX),
        ("witnesses", header.witnesses.get(), WITNESSES_MAX),
        ("copy_pages", header.copy_pages.get(), u64::from(geometry.copy_pages)),
    ] {
        if count > most {
            return Err(field(name, count));
        }
    }
    let items = counts(header).iter().sum::<u64>();
    if items > items_max {
        return Err(field("items", items));
    }
    for (name, counter) in [
        ("generation", header.generation.get()),
        ("epoch", header.epoch.get()),
        ("serial", header.serial.get()),
        ("next_record", header.next_record.get()),
    ] {
        if counter >= COUNTER_END {
            return Err(field(name, counter));
        }
    }
    if header.segment.get() >= geometry.segments {
        return Err(field("segment", header.segment.get().into()));
    }
    if header.slot_in_segment.get() > geometry.slots_per_segment() {
        return Err(field("slot_in_segment", header.slot_in_segment.get().into()));
    }
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint() -> Checkpoint {
        Checkpoint {
            uuid: Uuid([1; 16]),
            generation: 7,
            epoch: 2,
            position: LogPosition {
                segment: SegmentIndex(4),
                serial: SegmentSerial(40),
                slot_in_segment: 9,
                next_record: RecordNumber(1000),
                previous_checksum: 77,
            },
            order: 0,
            free: vec![SegmentIndex(5), SegmentIndex(1)],
            filled: vec![(SegmentIndex(4), SegmentSerial(40))],
            live: vec![LiveSlot {
                line: Line(123),
                mask: FragmentMask(0x3c),
                slot: SlotIndex(66),
                checksum: 0xabcd_ef01,
            }],
            zeroes: vec![ZeroRange { line: Line(1 << 33), lines: 1 << 34, may_unmap: true }],
            poisoned: vec![(Line(9), FragmentMask(1))],
            witnesses: vec![Witness { line: Line(0), checksum: 3 }],
            copy_pages: Vec::new(),
        }
    }

    #[test]
    fn comes_back() {
        let geometry = Geometry::fit(16 << 20, 128 << 10).unwrap();
        let bytes = checkpoint().encode();
        assert_eq!(bytes.len(), 8192);
        let back = Checkpoint::decode(bytes.bytes(), Uuid([1; 16]), &geometry);
        assert_eq!(back, Ok(checkpoint()));
        let header = Checkpoint::decode_header(bytes.bytes(), Uuid([1; 16]), &geometry).unwrap();
        assert_eq!((header.generation, header.payload_bytes), (7, 4096));
    }

    #[test]
    fn it_is_the_same_taken_in_pieces() {
        let live: Vec<LiveSlot> = (0..3000)
            .map(|i| LiveSlot {
                line: Line(i),
                mask: FragmentMask::FULL,
                slot: SlotIndex(i as u32),
                checksum: i as u32 ^ 0x5555,
            })
            .collect();
        let whole = Checkpoint { live: live.clone(), ..checkpoint() };
        let mut writer = Checkpoint { live: Vec::new(), ..whole.clone() }.writer();
        let mut buffers = BufferPool::default();
        let mut payload = Vec::new();
        for (number, some) in live.chunks(700).enumerate() {
            some.iter().for_each(|live| writer.put_live(live));
            // One piece, all there are, one again.
            for _ in 0..if number == 1 { usize::MAX } else { 1 } {
                let Some((at, piece)) = writer.take(4096, &mut buffers) else { break };
                assert_eq!(at, (HEADER_SIZE + payload.len()) as u64);
                payload.extend_from_slice(piece.bytes());
            }
        }
        let ending = writer.finish(&whole, None);
        assert_eq!((ending.taken, payload.len()), (8 * 4096, 8 * 4096));
        let (header, rest) = ending.bytes.split_at(HEADER_SIZE);
        assert_eq!(whole.encode().bytes(), [header, &payload, rest].concat());
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let geometry = Geometry::fit(16 << 20, 128 << 10).unwrap();
        let good = checkpoint().encode();
        for byte in 0..good.len() {
            let mut bytes = good.bytes().to_vec();
            bytes[byte] ^= 1 << (byte % 8);
            assert!(Checkpoint::decode(&bytes, Uuid([1; 16]), &geometry).is_err(), "byte {byte}");
        }
        for cut in [0, 1, 4095, 4096, 8191] {
            let bytes = &good.bytes()[..cut];
            assert!(Checkpoint::decode(bytes, Uuid([1; 16]), &geometry).is_err(), "cut {cut}");
        }
    }

    /// The field that is refused of a checkpoint with a valid checksum; none if it is taken.
    fn problem(change: &dyn Fn(&mut Checkpoint)) -> &'static str {
        let geometry = Geometry::fit(16 << 20, 128 << 10).unwrap();
        let mut forged = checkpoint();
        change(&mut forged);
        match Checkpoint::decode(forged.encode().bytes(), forged.uuid, &geometry) {
            Ok(back) if back == forged => "none",
            Err(FormatError::Field { field, .. }) => field,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_area_is_the_older_one() {
        let areas = [6, 7, 8].map(|generation| Checkpoint { generation, ..checkpoint() }.area());
        assert_eq!(areas, [0, 1, 0]);
    }

    #[test]
    fn another_cache_has_other_checkpoints() {
        let geometry = Geometry::fit(16 << 20, 128 << 10).unwrap();
        let (expected, found) = (Uuid([2; 16]), checkpoint().uuid);
        let error = Checkpoint::decode(checkpoint().encode().bytes(), expected, &geometry);
        assert_eq!(error, Err(FormatError::Uuid { what: WHAT, expected, found }));
    }

    /// Recovery reads as much as the header says, and no more.
    #[test]
    fn the_header_tells_how_long_the_payload_is() {
        let geometry = Geometry::fit(16 << 20, 128 << 10).unwrap();
        // With seven items in the other lists, and 256 items in 4 KiB.
        for (poisoned, payload_bytes) in [(1, 4096), (250, 4096), (251, 8192)] {
            let mut longer = checkpoint();
            longer.poisoned = vec![longer.poisoned[0]; poisoned];
            let bytes = longer.encode();
            let header = Checkpoint::decode_header(bytes.bytes(), longer.uuid, &geometry).unwrap();
            assert_eq!((header.generation, header.payload_bytes), (7, payload_bytes));
            assert_eq!(bytes.len() as u64, HEADER_SIZE as u64 + payload_bytes);
        }
    }

    /// What decoding lets through, the engine trusts: each bound is the last value that can be.
    #[test]
    fn every_bound_is_kept() {
        let geometry = Geometry::fit(16 << 20, 128 << 10).unwrap();
        let none = "none";
        assert_eq!(problem(&|_| {}), none);
        assert_eq!(problem(&|c| c.zeroes[0].lines = 1 << 40), none);
        assert_eq!(problem(&|c| c.zeroes[0].lines = (1 << 40) + 1), "zero range");
        assert_eq!(problem(&|c| c.zeroes[0].lines = 0), "zero range");
        assert_eq!(problem(&|c| c.live[0].line = Line((1 << 40) - 1)), none);
        assert_eq!(problem(&|c| c.live[0].line = Line(1 << 40)), "live slot");
        assert_eq!(problem(&|c| c.live[0].mask = FragmentMask::NONE), "live slot");
        assert_eq!(problem(&|c| c.live[0].slot = SlotIndex(geometry.slots() - 1)), none);
        assert_eq!(problem(&|c| c.live[0].slot = SlotIndex(geometry.slots())), "live slot");
        let (last, beyond) = (SegmentIndex(geometry.segments - 1), SegmentIndex(geometry.segments));
        assert_eq!(problem(&|c| c.free[1] = last), none);
        assert_eq!(problem(&|c| c.free[1] = beyond), "free segment");
        assert_eq!(problem(&|c| c.filled[0].0 = last), none);
        assert_eq!(problem(&|c| c.filled[0].0 = beyond), "filled segment");
        assert_eq!(problem(&|c| c.position.segment = last), none);
        assert_eq!(problem(&|c| c.position.segment = beyond), "segment");
        let slots = geometry.slots_per_segment();
        assert_eq!(problem(&|c| c.position.slot_in_segment = slots), none);
        assert_eq!(problem(&|c| c.position.slot_in_segment = slots + 1), "slot_in_segment");
        let counter = COUNTER_END - 1;
        assert_eq!(problem(&|c| c.generation = counter), none);
        assert_eq!(problem(&|c| c.generation = COUNTER_END), "generation");
        assert_eq!(problem(&|c| c.position.next_record = RecordNumber(counter)), none);
        assert_eq!(problem(&|c| c.position.next_record = RecordNumber(COUNTER_END)), "next_record");
        // Counts: the header alone tells that it cannot be.
        let beyond = |most: u64| most as usize + 1;
        let segments = beyond(geometry.segments.into());
        assert_eq!(problem(&|c| c.free = vec![c.free[0]; segments]), "free");
        assert_eq!(problem(&|c| c.filled = vec![c.filled[0]; segments - 2]), "filled");
        let live = beyond(geometry.data_slots_max().into());
        assert_eq!(problem(&|c| c.live = vec![c.live[0]; live]), "live");
        // Older versions wrote as many zero ranges as there were. What fits into the area is taken.
        let items = (geometry.checkpoint_area_bytes - HEADER_SIZE as u64) / ITEM_SIZE as u64;
        assert_eq!(problem(&|c| c.zeroes = vec![c.zeroes[0]; beyond(ZERO_RANGES_MAX)]), none);
        assert_eq!(problem(&|c| c.zeroes = vec![c.zeroes[0]; items as usize - 6]), none);
        assert_eq!(problem(&|c| c.zeroes = vec![c.zeroes[0]; items as usize - 5]), "items");
        assert_eq!(problem(&|c| c.zeroes = vec![c.zeroes[0]; beyond(items)]), "zeroes");
        let poisoned = beyond(POISONED_LINES_MAX);
        assert_eq!(problem(&|c| c.poisoned = vec![c.poisoned[0]; poisoned]), "poisoned");
        let witnesses = beyond(WITNESSES_MAX);
        assert_eq!(problem(&|c| c.witnesses = vec![c.witnesses[0]; witnesses]), "witnesses");
    }

    #[test]
    fn copy_pages_are_listed_in_order_and_within_the_read_area() {
        let geometry = Geometry::fit_with_copies(16 << 20, 128 << 10, 3).unwrap();
        let page = |page, generation| CopyPageRef {
            page: CopyPageIndex(page),
            generation,
            checksum: 0xfeed_0001,
        };
        let decode = |copy_pages: Vec<CopyPageRef>| {
            let forged = Checkpoint { copy_pages, ..checkpoint() };
            match Checkpoint::decode(forged.encode().bytes(), forged.uuid, &geometry) {
                Ok(back) if back == forged => "none",
                Err(FormatError::Field { field, .. }) => field,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(decode(vec![page(0, 7), page(2, COUNTER_END - 1)]), "none");
        assert_eq!(decode(vec![page(0, 7), page(3, 1)]), "copy page");
        assert_eq!(decode(vec![page(2, 7), page(0, 1)]), "copy page");
        assert_eq!(decode(vec![page(2, 7), page(2, 8)]), "copy page");
        assert_eq!(decode(vec![page(1, COUNTER_END)]), "copy page");
        assert_eq!(decode(vec![page(0, 1); 4]), "copy_pages");
        // Without a read area there are none.
        assert_eq!(problem(&|c| c.copy_pages.push(page(0, 1))), "copy_pages");
    }

    /// Found by the byte fuzzer: a slot of two lines was destaged for ever.
    #[test]
    fn a_place_with_two_uses_is_refused() {
        let geometry = Geometry::fit(16 << 20, 128 << 10).unwrap();
        assert_eq!(problem(&|c| c.free.push(SegmentIndex(5))), "free segment");
        assert_eq!(problem(&|c| c.free.push(c.position.segment)), "free segment");
        assert_eq!(problem(&|c| c.filled.push(c.filled[0])), "filled segment");
        assert_eq!(problem(&|c| c.filled[0].0 = SegmentIndex(5)), "filled segment");
        // Destaging took it for one that is filled anew again and again.
        let newer = "serial of a filled segment";
        assert_eq!(problem(&|c| c.filled[0].1 = SegmentSerial(41)), newer);
        assert_eq!(problem(&|c| c.position.serial = SegmentSerial(COUNTER_END)), "serial");
        assert_eq!(problem(&|c| c.epoch = u64::MAX), "epoch");
        assert_eq!(problem(&|c| c.live.push(c.live[0])), "live slot");
        assert_eq!(problem(&|c| c.live[0].slot = geometry.slot(SegmentIndex(5), 3)), "live slot");
        assert_eq!(problem(&|c| c.live[0].slot = geometry.slot(SegmentIndex(4), 9)), "live slot");
    }

    /// One that could not be read again is never written.
    #[test]
    fn more_than_there_may_be_is_not_encoded() {
        let geometry = Geometry::fit(16 << 20, 128 << 10).unwrap();
        let is_encoded = |change: &dyn Fn(&mut Checkpoint)| {
            let mut picture = checkpoint();
            change(&mut picture);
            std::panic::catch_unwind(|| picture.encode_for(&geometry)).is_ok()
        };
        assert!(is_encoded(&|_| {}));
        let beyond = |most: u64| most as usize + 1;
        assert!(is_encoded(&|c| c.zeroes = vec![c.zeroes[0]; beyond(ZERO_RANGES_MAX) - 1]));
        assert!(!is_encoded(&|c| c.zeroes = vec![c.zeroes[0]; beyond(ZERO_RANGES_MAX)]));
        assert!(!is_encoded(&|c| c.poisoned = vec![c.poisoned[0]; beyond(POISONED_LINES_MAX)]));
        assert!(!is_encoded(&|c| c.witnesses = vec![c.witnesses[0]; beyond(WITNESSES_MAX)]));
        let live = beyond(geometry.data_slots_max().into());
        assert!(!is_encoded(&|c| c.live = vec![c.live[0]; live]));
        assert!(!is_encoded(&|c| c.free = vec![c.free[0]; beyond(geometry.segments.into()) - 1]));
        let page = CopyPageRef { page: CopyPageIndex(0), generation: 1, checksum: 1 };
        assert!(!is_encoded(&|c| c.copy_pages.push(page)));
    }

    #[test]
    fn the_largest_fits_its_area() {
        let geometry = Geometry::fit(16 << 20, 128 << 10).unwrap();
        let mut largest = checkpoint();
        // Every slot but those of record headers is live, in segments that were all filled.
        largest.position.slot_in_segment = geometry.slots_per_segment();
        largest.free = Vec::new();
        largest.position.serial = SegmentSerial(geometry.segments.into());
        largest.filled =
            (0..geometry.segments).map(|n| (SegmentIndex(n), SegmentSerial(n.into()))).collect();
        let slots = (0..geometry.slots()).filter(|slot| slot % geometry.slots_per_segment() != 0);
        let live = largest.live[0];
        largest.live = slots.map(|slot| LiveSlot { slot: SlotIndex(slot), ..live }).collect();
        assert_eq!(largest.live.len(), geometry.data_slots_max() as usize);
        largest.zeroes = vec![largest.zeroes[0]; ZERO_RANGES_MAX as usize];
        largest.poisoned = vec![largest.poisoned[0]; POISONED_LINES_MAX as usize];
        largest.witnesses = vec![largest.witnesses[0]; WITNESSES_MAX as usize];
        let bytes = largest.encode_for(&geometry);
        assert!(bytes.len() as u64 <= geometry.checkpoint_area_bytes);
        assert_eq!(Checkpoint::decode(bytes.bytes(), largest.uuid, &geometry), Ok(largest));
    }
}
