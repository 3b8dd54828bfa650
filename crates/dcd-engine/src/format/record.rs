//! Records: what a segment is filled with. A header of one slot, then the data slots it describes.
//!
//! Records form one chain in the order in which requests were acknowledged: each carries its
//! number and the checksum of the header before it, so a stale record of an earlier lap, of another
//! session or of another cache can never be taken for the next one, however valid its own checksum.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::checksum::crc32c_with_hole;
use super::layout::{FieldLayout, layout_of};
use super::preamble::{CHECKSUM_OFFSET, Preamble};
use crate::error::FormatError;
use crate::units::{
    FRAGMENTS_PER_LINE, FragmentMask, Lba, LbaRange, Line, RecordNumber, SegmentIndex,
    SegmentSerial, Uuid,
};

/// "dcdRECRD" in ASCII, read as a little-endian number.
pub const MAGIC: u64 = u64::from_le_bytes(*b"dcdRECRD");
/// The version that this program writes and reads.
pub const VERSION: u32 = 2;
/// Size of a record header: one slot.
pub const HEADER_SIZE: usize = 4096;
/// Most entries in a record.
pub const ENTRIES_MAX: usize = 248;
/// Where the entries begin in the header.
pub(crate) const ENTRIES_OFFSET: usize = 128;
/// Bytes of an entry.
pub(crate) const ENTRY_SIZE: usize = size_of::<EntryOnDisk>();
const WHAT: &str = "the record header";
const PREAMBLE: Preamble = Preamble { what: WHAT, magic: MAGIC, version: VERSION };

/// What a record says happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// Fragments of a line were written. Their bytes are in the next data slot of the record, at
    /// the place they have in the line; `checksum` is over the whole slot.
    Data {
        /// Which line.
        line: Line,
        /// Which fragments of it.
        mask: FragmentMask,
        /// CRC-32C of the 4 KiB slot.
        checksum: u32,
    },
    /// Whole lines read as zeroes from here on.
    Zero {
        /// First line.
        line: Line,
        /// How many.
        lines: u64,
        /// The space on the data-disk may be freed.
        may_unmap: bool,
    },
    /// Blocks were written past the log, to the data-disk, and that was flushed: whatever the log
    /// held of them is dead.
    Bypass {
        /// Which blocks.
        range: LbaRange,
    },
    /// What these segments held is dead, and they are filled next, one behind the other, behind
    /// those that were announced or listed as free before.
    Announce {
        /// The first of them.
        first: SegmentIndex,
        /// How many.
        count: u32,
    },
}

const KIND_DATA: u64 = 1;
const KIND_ZERO: u64 = 2;
const KIND_BYPASS: u64 = 3;
const KIND_ANNOUNCE: u64 = 4;
/// In the place of the mask of a zero entry.
const MAY_UNMAP: u8 = 1;
const ADDRESS_MASK: u64 = (1 << 48) - 1;

/// An entry on the cache-disk: kind (8 bits), fragment mask (8), address (48); then the value.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct EntryOnDisk {
    address: U64,
    value: U64,
}

impl Entry {
    /// The lines that it changes, also where it does so in part: first, and how many.
    pub fn lines(&self) -> Option<(Line, u64)> {
        match *self {
            Entry::Data { line, .. } => Some((line, 1)),
            Entry::Zero { line, lines, .. } => Some((line, lines)),
            Entry::Bypass { range } => {
                let first = range.start.line();
                Some((first, range.end().div_ceil(FRAGMENTS_PER_LINE) - first.0))
            }
            Entry::Announce { .. } => None,
        }
    }

    /// The entry as it is on the cache-disk.
    pub(crate) fn encode(&self) -> EntryOnDisk {
        let (kind, mask, address, value) = match *self {
            Entry::Data { line, mask, checksum } => {
                (KIND_DATA, mask.0, line.0, u64::from(checksum))
            }
            Entry::Zero { line, lines, may_unmap } => {
                (KIND_ZERO, if may_unmap { MAY_UNMAP } else { 0 }, line.0, lines)
            }
            Entry::Bypass { range } => (KIND_BYPASS, 0, range.start.0, range.blocks),
            Entry::Announce { first, count } => {
                (KIND_ANNOUNCE, 0, u64::from(first.0), u64::from(count))
            }
        };
        assert!(address <= ADDRESS_MASK, "addresses fit in 48 bits");
        let address = kind << 56 | u64::from(mask) << 48 | address;
        EntryOnDisk { address: address.into(), value: value.into() }
    }

    fn decode(disk: EntryOnDisk) -> Result<Entry, FormatError> {
        let (word, value) = (disk.address.get(), disk.value.get());
        let field = |field, found| FormatError::Field { what: WHAT, field, found };
        let address = word & ADDRESS_MASK;
        let mask = FragmentMask((word >> 48) as u8);
        // Ends beyond 48 bits could overflow later sums.
        let end = |length: u64| length != 0 && length <= ADDRESS_MASK - address;
        match word >> 56 {
            KIND_DATA if !mask.is_empty() && value <= u64::from(u32::MAX) => {
                Ok(Entry::Data { line: Line(address), mask, checksum: value as u32 })
            }
            // Programs before this bit wrote none, and do not look at it: they free nothing.
            KIND_ZERO if end(value) && mask.0 <= MAY_UNMAP => Ok(Entry::Zero {
                line: Line(address),
                lines: value,
                may_unmap: mask.0 == MAY_UNMAP,
            }),
            KIND_BYPASS if end(value) => {
                Ok(Entry::Bypass { range: LbaRange { start: Lba(address), blocks: value } })
            }
            // Numbers of segments, and how many there are, have 32 bits.
            KIND_ANNOUNCE if end(value) && u32::try_from(address + value).is_ok() => {
                let first = SegmentIndex(address as u32);
                Ok(Entry::Announce { first, count: value as u32 })
            }
            KIND_DATA | KIND_ZERO | KIND_BYPASS | KIND_ANNOUNCE => Err(field("entry value", value)),
            kind => Err(field("entry kind", kind)),
        }
    }
}

/// What a record header says of the record itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHeader {
    /// Which cache.
    pub uuid: Uuid,
    /// Which session wrote it: the superblock generation at its start.
    pub epoch: u64,
    /// Which filling of the segment.
    pub serial: SegmentSerial,
    /// Where the header lies: segment ...
    pub segment: SegmentIndex,
    /// ... and slot within it.
    pub slot_in_segment: u32,
    /// Its place in the one order of all records.
    pub number: RecordNumber,
    /// Checksum of the header of the record before.
    pub previous_checksum: u32,
    /// Every record up to this one was durable when this one was sealed.
    pub durable: RecordNumber,
    /// The newest checkpoint that was durable then.
    pub checkpoint_generation: u64,
    /// So many of the last entries belong to a request that goes on in the next record: they count
    /// only together with its rest (C14).
    pub unfinished: u16,
}

/// The header on the cache-disk, format version 2.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RecordHeaderOnDisk {
    pub(crate) magic: U64,
    pub(crate) version: U32,
    pub(crate) checksum: U32,
    pub(crate) uuid: [u8; 16],
    pub(crate) epoch: U64,
    pub(crate) serial: U64,
    pub(crate) number: U64,
    pub(crate) durable: U64,
    pub(crate) checkpoint_generation: U64,
    pub(crate) segment: U32,
    pub(crate) slot_in_segment: U32,
    pub(crate) previous_checksum: U32,
    pub(crate) entries: U16,
    pub(crate) data_slots: U16,
    pub(crate) unfinished: U16,
    pub(crate) unused: [u8; 38],
    pub(crate) table: [EntryOnDisk; ENTRIES_MAX],
}

const _: () = assert!(size_of::<RecordHeaderOnDisk>() == HEADER_SIZE);
const _: () = assert!(std::mem::offset_of!(RecordHeaderOnDisk, checksum) == CHECKSUM_OFFSET);
const _: () = assert!(std::mem::offset_of!(RecordHeaderOnDisk, table) == ENTRIES_OFFSET);

/// Every field of a header, in order: what `docs/disk-format.md` says in words.
pub fn layout() -> Vec<FieldLayout> {
    layout_of!(RecordHeaderOnDisk {
        magic,
        version,
        checksum,
        uuid,
        epoch,
        serial,
        number,
        durable,
        checkpoint_generation,
        segment,
        slot_in_segment,
        previous_checksum,
        entries,
        data_slots,
        unfinished,
        unused,
        table,
    })
}

/// The same of an entry in the table.
pub fn entry_layout() -> Vec<FieldLayout> {
    layout_of!(EntryOnDisk { address, value })
}

/// A record header with its entries, decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// The header.
    pub header: RecordHeader,
    /// What happened, in order.
    pub entries: Vec<Entry>,
    /// Checksum of the header, which the next record repeats.
    pub checksum: u32,
}

impl Record {
    /// Data slots that follow the header.
    pub fn data_slots(&self) -> u32 {
        self.entries.iter().filter(|entry| matches!(entry, Entry::Data { .. })).count() as u32
    }

    /// Slots of the whole record.
    pub fn slots(&self) -> u32 {
        1 + self.data_slots()
    }

    /// The header as it is on the cache-disk. The engine writes headers in place, entry by entry;
    /// this is for tests of the decoder.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_SIZE];
        start_header(&mut bytes, &self.header);
        for (index, entry) in self.entries.iter().enumerate() {
            put_entry(&mut bytes, index, &entry.encode());
        }
        let seal = Seal {
            entries: self.entries.len(),
            data_slots: self.data_slots(),
            durable: self.header.durable,
            checkpoint_generation: self.header.checkpoint_generation,
            unfinished: self.header.unfinished,
        };
        seal_header(&mut bytes, &seal);
        bytes
    }

    /// Reads a header. Every byte may be anything.
    pub fn decode(bytes: &[u8]) -> Result<Record, FormatError> {
        let (disk, checksum) = PREAMBLE.verify::<RecordHeaderOnDisk>(bytes)?;
        let entries = usize::from(disk.entries.get());
        Record::decode_fields(disk, entries, disk.unfinished.get(), checksum)
    }

    /// Reads the header of a record that was still open, from segment memory: its checksum is not
    /// there yet, and the caller knows how many entries count.
    pub(crate) fn decode_open(bytes: &[u8], entries: usize) -> Result<Record, FormatError> {
        let disk = PREAMBLE.identify::<RecordHeaderOnDisk>(bytes)?;
        Record::decode_fields(disk, entries, 0, 0)
    }

    fn decode_fields(
        disk: &RecordHeaderOnDisk,
        entries: usize,
        unfinished: u16,
        checksum: u32,
    ) -> Result<Record, FormatError> {
        let Some(table) = disk.table.get(..entries) else {
            return Err(FormatError::Field { what: WHAT, field: "entries", found: entries as u64 });
        };
        if usize::from(unfinished) > entries {
            let found = unfinished.into();
            return Err(FormatError::Field { what: WHAT, field: "unfinished", found });
        }
        let entries =
            table.iter().map(|entry| Entry::decode(*entry)).collect::<Result<Vec<_>, _>>()?;
        let record = Record {
            header: RecordHeader {
                uuid: Uuid(disk.uuid),
                epoch: disk.epoch.get(),
                serial: SegmentSerial(disk.serial.get()),
                segment: SegmentIndex(disk.segment.get()),
                slot_in_segment: disk.slot_in_segment.get(),
                number: RecordNumber(disk.number.get()),
                previous_checksum: disk.previous_checksum.get(),
                durable: RecordNumber(disk.durable.get()),
                checkpoint_generation: disk.checkpoint_generation.get(),
                unfinished,
            },
            entries,
            checksum,
        };
        Ok(record)
    }
}

/// Starts a record header in place: everything but what is only known at sealing.
pub(crate) fn start_header(bytes: &mut [u8], header: &RecordHeader) {
    let (disk, _) = RecordHeaderOnDisk::mut_from_prefix(bytes).expect("a slot is a header long");
    disk.zero();
    disk.magic = MAGIC.into();
    disk.version = VERSION.into();
    disk.uuid = header.uuid.0;
    disk.epoch = header.epoch.into();
    disk.serial = header.serial.0.into();
    disk.number = header.number.0.into();
    disk.segment = header.segment.0.into();
    disk.slot_in_segment = header.slot_in_segment.into();
    disk.previous_checksum = header.previous_checksum.into();
}

/// Puts an entry into a header that was started.
pub(crate) fn put_entry(bytes: &mut [u8], index: usize, entry: &EntryOnDisk) {
    let at = ENTRIES_OFFSET + index * ENTRY_SIZE;
    bytes[at..at + size_of::<EntryOnDisk>()].copy_from_slice(entry.as_bytes());
}

/// What is only known when a record is sealed.
pub(crate) struct Seal {
    pub(crate) entries: usize,
    pub(crate) data_slots: u32,
    pub(crate) durable: RecordNumber,
    pub(crate) checkpoint_generation: u64,
    pub(crate) unfinished: u16,
}

/// Completes a header in place and returns its checksum.
pub(crate) fn seal_header(bytes: &mut [u8], seal: &Seal) -> u32 {
    let (disk, _) = RecordHeaderOnDisk::mut_from_prefix(bytes).expect("a slot is a header long");
    disk.entries = (seal.entries as u16).into();
    disk.data_slots = (seal.data_slots as u16).into();
    disk.durable = seal.durable.0.into();
    disk.checkpoint_generation = seal.checkpoint_generation.into();
    disk.unfinished = seal.unfinished.into();
    // What an unsealed, abandoned attempt may have left behind the entries must not count.
    disk.table[seal.entries..].zero();
    disk.checksum = 0.into();
    let checksum = crc32c_with_hole(disk.as_bytes(), CHECKSUM_OFFSET);
    disk.checksum = checksum.into();
    checksum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> RecordHeader {
        RecordHeader {
            uuid: Uuid([7; 16]),
            epoch: 3,
            serial: SegmentSerial(9),
            segment: SegmentIndex(2),
            slot_in_segment: 17,
            number: RecordNumber(100),
            previous_checksum: 0x1234,
            durable: RecordNumber(98),
            checkpoint_generation: 4,
            unfinished: 2,
        }
    }

    fn sealed(entries: &[Entry]) -> Vec<u8> {
        Record { header: header(), entries: entries.to_vec(), checksum: 0 }.encode()
    }

    fn entries() -> [Entry; 3] {
        [
            Entry::Data { line: Line(77), mask: FragmentMask(0x0f), checksum: 0xdead_beef },
            Entry::Zero { line: Line(5), lines: 1 << 30, may_unmap: true },
            Entry::Bypass { range: LbaRange::new(513, 2048) },
        ]
    }

    #[test]
    fn comes_back() {
        let record = Record::decode(&sealed(&entries())).unwrap();
        assert_eq!(record.header, header());
        assert_eq!(record.entries, entries());
        assert_eq!(record.slots(), 2);
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let good = sealed(&entries());
        for byte in 0..HEADER_SIZE {
            let mut bytes = good.clone();
            bytes[byte] ^= 1 << (byte % 8);
            assert!(Record::decode(&bytes).is_err(), "byte {byte}");
        }
    }

    /// The end of a range that goes on is in the next record, which may be all of this one.
    #[test]
    fn no_more_is_unfinished_than_there_is() {
        for (unfinished, is_taken) in [(0, true), (3, true), (4, false)] {
            let header = RecordHeader { unfinished, ..header() };
            let bytes = Record { header, entries: entries().to_vec(), checksum: 0 }.encode();
            assert_eq!(Record::decode(&bytes).is_ok(), is_taken, "{unfinished}");
        }
        let bytes = sealed(&entries());
        assert_eq!(Record::decode_open(&bytes, 2).unwrap().entries, entries()[..2]);
        assert!(Record::decode_open(&bytes, ENTRIES_MAX + 1).is_err());
    }

    #[test]
    fn the_largest_values_come_back() {
        let most = [
            Entry::Data { line: Line(ADDRESS_MASK), mask: FragmentMask(0x80), checksum: u32::MAX },
            Entry::Zero { line: Line(5), lines: ADDRESS_MASK - 5, may_unmap: false },
            Entry::Bypass { range: LbaRange::new(ADDRESS_MASK - 1, 1) },
        ];
        assert_eq!(Record::decode(&sealed(&most)).unwrap().entries, most);
    }

    #[test]
    fn lengths_that_would_overflow_are_refused() {
        for (kind, address, value) in [
            (KIND_ZERO, ADDRESS_MASK, 1),
            (KIND_BYPASS, 5, u64::MAX),
            (KIND_ZERO, 5, 0),
            (KIND_ZERO, 2 << 48 | 5, 1),
            (9, 0, 1),
            (KIND_DATA, 0, 1),
            (KIND_DATA, 0xff << 48, u64::from(u32::MAX) + 1),
        ] {
            let disk = EntryOnDisk { address: (kind << 56 | address).into(), value: value.into() };
            assert!(Entry::decode(disk).is_err(), "{kind} {address} {value}");
        }
    }
}
