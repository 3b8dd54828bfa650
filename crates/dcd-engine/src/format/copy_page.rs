//! Copy pages: which lines of the data-disk the slots of the read area hold copies of.
//!
//! A page lists 248 slots. It has two places, written in turn, and counts only if the newest
//! durable checkpoint names it with its generation and checksum: so the pages are as old as the
//! checkpoint, to the record, and what the log holds behind it tells which copies are no longer
//! true. A page that was torn, lost, or written for a checkpoint that never became durable takes
//! its copies with it; no data is lost by that, the data-disk and the log have it all.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::COUNTER_END;
use super::checkpoint::CopyPageRef;
use super::checksum::crc32c_with_hole;
use super::geometry::COPIES_PER_PAGE;
use super::layout::{FieldLayout, layout_of};
use super::preamble::{CHECKSUM_OFFSET, Preamble};
use crate::buffer::Buffer;
use crate::error::FormatError;
use crate::units::{CopyPageIndex, LINE_SIZE, Line, SequenceId, Uuid};

/// "dcdCOPYP" in ASCII, read as a little-endian number.
pub const MAGIC: u64 = u64::from_le_bytes(*b"dcdCOPYP");
/// The version that this program writes and reads.
pub const VERSION: u32 = 1;
/// Size of a page.
pub const PAGE_SIZE: usize = LINE_SIZE as usize;
/// Longest name of a sequence, in bytes.
pub const NAME_BYTES_MAX: usize = 40;
const ENTRIES: usize = COPIES_PER_PAGE as usize;
/// Line numbers are below this.
const LINE_END: u64 = 1 << 40;
const WHAT: &str = "the copy page";
const PREAMBLE: Preamble = Preamble { what: WHAT, magic: MAGIC, version: VERSION };

const FLAG_PINNED: u32 = 1;
const FLAG_DETECTED: u32 = 2;
const FLAG_SEQUENCE: u32 = 4;
const FLAGS: u32 = FLAG_PINNED | FLAG_DETECTED | FLAG_SEQUENCE;

/// What a slot of the read area holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyState {
    /// What the data-disk holds, unless the log has something newer.
    Valid,
    /// Something older: its place in the sequence is kept until it is copied anew.
    Stale,
}

/// A slot that is not empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyEntry {
    /// The line it belongs to.
    pub line: Line,
    /// CRC-32C of the slot when it was written.
    pub checksum: u32,
    /// Whether that is still true.
    pub state: CopyState,
}

/// What the pages of a sequence say of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SequenceLabel {
    /// Its number; never 0.
    pub id: SequenceId,
    /// Its name, 1 to [`NAME_BYTES_MAX`] bytes.
    pub name: String,
    /// Never replaced by another.
    pub is_pinned: bool,
    /// Found by the detector, not recorded by somebody.
    pub is_detected: bool,
    /// How often it has been served from here.
    pub runs: u32,
    /// Lines that were served in those runs.
    pub lines_served: u64,
}

/// A page in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyPage {
    /// Which cache.
    pub uuid: Uuid,
    /// Which page.
    pub page: CopyPageIndex,
    /// Counts its writings.
    pub generation: u64,
    /// The sequence whose lines are here, in order, and which part of it: `None` for hot blocks.
    pub sequence: Option<(SequenceLabel, u32)>,
    /// Its 248 slots.
    pub entries: Vec<Option<CopyEntry>>,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct CopyPageOnDisk {
    pub(crate) magic: U64,
    pub(crate) version: U32,
    pub(crate) checksum: U32,
    pub(crate) uuid: [u8; 16],
    pub(crate) generation: U64,
    pub(crate) page: U32,
    pub(crate) sequence: U32,
    pub(crate) ordinal: U32,
    pub(crate) flags: U32,
    pub(crate) lines_served: U64,
    pub(crate) runs: U32,
    pub(crate) unused: [u8; 20],
    pub(crate) name: [u8; NAME_BYTES_MAX],
    pub(crate) table: [EntryOnDisk; ENTRIES],
}

const _: () = assert!(size_of::<CopyPageOnDisk>() == PAGE_SIZE);
const _: () = assert!(std::mem::offset_of!(CopyPageOnDisk, checksum) == CHECKSUM_OFFSET);

/// A slot: its state in bits 56 to 63 above the line, and its checksum.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct EntryOnDisk {
    address: U64,
    checksum: U32,
    reserved: U32,
}

/// Every field of a page, in order: what `docs/disk-format.md` says in words.
pub fn layout() -> Vec<FieldLayout> {
    layout_of!(CopyPageOnDisk {
        magic,
        version,
        checksum,
        uuid,
        generation,
        page,
        sequence,
        ordinal,
        flags,
        lines_served,
        runs,
        unused,
        name,
        table,
    })
}

/// The same of an entry of its table.
pub fn entry_layout() -> Vec<FieldLayout> {
    layout_of!(EntryOnDisk { address, checksum, reserved })
}

impl EntryOnDisk {
    fn new(entry: Option<CopyEntry>) -> EntryOnDisk {
        let Some(CopyEntry { line, checksum, state }) = entry else {
            return EntryOnDisk::new_zeroed();
        };
        let state: u64 = match state {
            CopyState::Valid => 1,
            CopyState::Stale => 2,
        };
        let address = (state << 56 | line.0).into();
        EntryOnDisk { address, checksum: checksum.into(), reserved: U32::ZERO }
    }

    fn entry(self) -> Result<Option<CopyEntry>, u64> {
        let address = self.address.get();
        let line = Line(address & ((1 << 56) - 1));
        let state = match address >> 56 {
            0 if address == 0 => return Ok(None),
            1 => CopyState::Valid,
            2 => CopyState::Stale,
            _ => return Err(address),
        };
        if line.0 >= LINE_END {
            return Err(address);
        }
        Ok(Some(CopyEntry { line, checksum: self.checksum.get(), state }))
    }
}

impl CopyPage {
    /// The bytes of the page, and their checksum.
    ///
    /// # Panics
    /// If it has not 248 entries, or the name of its sequence is too long.
    pub fn encode(&self) -> (Buffer, u32) {
        assert_eq!(self.entries.len(), ENTRIES);
        let mut disk = CopyPageOnDisk::new_zeroed();
        disk.magic = MAGIC.into();
        disk.version = VERSION.into();
        disk.uuid = self.uuid.0;
        disk.generation = self.generation.into();
        disk.page = self.page.0.into();
        if let Some((label, ordinal)) = &self.sequence {
            disk.sequence = label.id.0.into();
            disk.ordinal = (*ordinal).into();
            let mut flags = FLAG_SEQUENCE;
            if label.is_pinned {
                flags |= FLAG_PINNED;
            }
            if label.is_detected {
                flags |= FLAG_DETECTED;
            }
            disk.flags = flags.into();
            disk.runs = label.runs.into();
            disk.lines_served = label.lines_served.into();
            disk.name[..label.name.len()].copy_from_slice(label.name.as_bytes());
        }
        for (on_disk, entry) in disk.table.iter_mut().zip(&self.entries) {
            *on_disk = EntryOnDisk::new(*entry);
        }
        let checksum = crc32c_with_hole(disk.as_bytes(), CHECKSUM_OFFSET);
        disk.checksum = checksum.into();
        (Buffer::copy_of(disk.as_bytes()), checksum)
    }

    /// Reads the page that `expected` speaks of. Every byte may be anything.
    pub fn decode(
        bytes: &[u8],
        uuid: Uuid,
        expected: &CopyPageRef,
    ) -> Result<CopyPage, FormatError> {
        let (disk, checksum) = PREAMBLE.verify::<CopyPageOnDisk>(bytes)?;
        if disk.uuid != uuid.0 {
            let found = Uuid(disk.uuid);
            return Err(FormatError::Uuid { what: WHAT, expected: uuid, found });
        }
        if checksum != expected.checksum {
            // Valid, but written for another checkpoint.
            let expected = expected.checksum;
            return Err(FormatError::Checksum { what: WHAT, expected, found: checksum });
        }
        let field = |field, found| Err(FormatError::Field { what: WHAT, field, found });
        if disk.page.get() != expected.page.0 {
            return field("page", disk.page.get().into());
        }
        let generation = disk.generation.get();
        if generation != expected.generation || generation >= COUNTER_END {
            return field("generation", generation);
        }
        let flags = disk.flags.get();
        let sequence = match SequenceId(disk.sequence.get()) {
            SequenceId(0) if flags == 0 => None,
            id if id.0 != 0 && flags & !FLAGS == 0 && flags & FLAG_SEQUENCE != 0 => {
                let end = disk.name.iter().position(|byte| *byte == 0);
                let name = str::from_utf8(&disk.name[..end.unwrap_or(NAME_BYTES_MAX)]);
                let Some(name) = name.ok().filter(|name| !name.is_empty()) else {
                    return field("name", disk.name[0].into());
                };
                let label = SequenceLabel {
                    id,
                    name: name.to_owned(),
                    is_pinned: flags & FLAG_PINNED != 0,
                    is_detected: flags & FLAG_DETECTED != 0,
                    runs: disk.runs.get(),
                    lines_served: disk.lines_served.get(),
                };
                Some((label, disk.ordinal.get()))
            }
            _ => return field("flags", flags.into()),
        };
        let mut entries = Vec::with_capacity(ENTRIES);
        for on_disk in &disk.table {
            match on_disk.entry() {
                Ok(entry) => entries.push(entry),
                Err(found) => return field("entry", found),
            }
        }
        Ok(CopyPage { uuid, page: expected.page, generation, sequence, entries })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> CopyPage {
        let label = SequenceLabel {
            id: SequenceId(3),
            name: "boot".into(),
            is_pinned: true,
            is_detected: false,
            runs: 7,
            lines_served: 1 << 33,
        };
        let mut entries = vec![None; ENTRIES];
        let copy = |line, state| Some(CopyEntry { line: Line(line), checksum: 5, state });
        entries[0] = copy(0, CopyState::Valid);
        entries[247] = copy(LINE_END - 1, CopyState::Stale);
        CopyPage {
            uuid: Uuid([3; 16]),
            page: CopyPageIndex(9),
            generation: 4,
            sequence: Some((label, 2)),
            entries,
        }
    }

    fn reference(page: &CopyPage, checksum: u32) -> CopyPageRef {
        CopyPageRef { page: page.page, generation: page.generation, checksum }
    }

    #[test]
    fn comes_back() {
        let longest = |page: &mut CopyPage| {
            let (label, _) = page.sequence.as_mut().unwrap();
            label.name = "0123456789".repeat(4);
            (label.is_pinned, label.is_detected) = (false, true);
        };
        for change in [(|_| {}) as fn(&mut CopyPage), |page| page.sequence = None, longest] {
            let mut page = page();
            change(&mut page);
            let (bytes, checksum) = page.encode();
            let back = CopyPage::decode(bytes.bytes(), page.uuid, &reference(&page, checksum));
            assert_eq!(back, Ok(page));
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let page = page();
        let (good, checksum) = page.encode();
        for byte in 0..PAGE_SIZE {
            let mut bytes = good.bytes().to_vec();
            bytes[byte] ^= 1 << (byte % 8);
            let back = CopyPage::decode(&bytes, page.uuid, &reference(&page, checksum));
            assert!(back.is_err(), "byte {byte}");
        }
    }

    /// A page of an older checkpoint, of another place or of another cache is valid in itself.
    #[test]
    fn only_the_page_that_the_checkpoint_names_counts() {
        let page = page();
        let (bytes, checksum) = page.encode();
        let good = reference(&page, checksum);
        let decode = |uuid, expected| CopyPage::decode(bytes.bytes(), uuid, &expected);
        assert!(decode(page.uuid, good).is_ok());
        assert!(decode(Uuid([4; 16]), good).is_err());
        assert!(decode(page.uuid, CopyPageRef { checksum: checksum ^ 1, ..good }).is_err());
        assert!(decode(page.uuid, CopyPageRef { generation: 6, ..good }).is_err());
        assert!(decode(page.uuid, CopyPageRef { page: CopyPageIndex(8), ..good }).is_err());
    }

    #[test]
    fn forged_fields_are_refused() {
        let problem = |change: &dyn Fn(&mut CopyPageOnDisk)| {
            let page = page();
            let (bytes, _) = page.encode();
            let mut disk = CopyPageOnDisk::read_from_bytes(bytes.bytes()).unwrap();
            change(&mut disk);
            let checksum = crc32c_with_hole(disk.as_bytes(), CHECKSUM_OFFSET);
            disk.checksum = checksum.into();
            match CopyPage::decode(disk.as_bytes(), page.uuid, &reference(&page, checksum)) {
                Ok(_) => "none",
                Err(FormatError::Field { field, .. }) => field,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(problem(&|_| {}), "none");
        assert_eq!(problem(&|page| page.flags = 8.into()), "flags");
        assert_eq!(problem(&|page| page.sequence = 0.into()), "flags");
        assert_eq!(problem(&|page| page.name = [0; NAME_BYTES_MAX]), "name");
        assert_eq!(problem(&|page| page.name = [0xff; NAME_BYTES_MAX]), "name");
        assert_eq!(problem(&|page| page.table[1].address = 1.into()), "entry");
        assert_eq!(problem(&|page| page.table[1].address = (3 << 56).into()), "entry");
        assert_eq!(problem(&|page| page.table[1].address = (1 << 56 | LINE_END).into()), "entry");
    }
}
