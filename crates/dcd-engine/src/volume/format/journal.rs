//! Records of the journal of a volume: what is about to be written to members, and what has changed
//! in the tables.
//!
//! A record is a line of items, and behind it the lines that they speak of. Records follow each
//! other in the ring; one that does not fit before its end begins at its start. Each has the number
//! that follows that of the one before.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::label::DiskTag;
use super::root::MemberState;
use crate::buffer::Buffer;
use crate::error::FormatError;
use crate::format::COUNTER_END;
use crate::format::checksum::{crc32c, crc32c_with_hole};
use crate::format::layout::{FieldLayout, layout_of};
use crate::format::preamble::{CHECKSUM_OFFSET, Preamble};
use crate::units::{LINE_SIZE, MemberIndex, Uuid};
use crate::volume::config::SETS_MAX;
use crate::volume::members::MemberMask;
use crate::volume::raid::SetLine;

/// "dcdVJRNL" in ASCII, read as a little-endian number.
pub const MAGIC: u64 = u64::from_le_bytes(*b"dcdVJRNL");
/// The version that this program writes and reads.
pub const VERSION: u32 = 1;
/// Most items in a record.
pub const JOURNAL_ITEMS_MAX: usize = 125;
/// Most lines behind the items: less than the smallest journal has.
pub const JOURNAL_PAYLOAD_LINES_MAX: u32 = 128;
const LINE_BYTES: usize = LINE_SIZE as usize;
/// Of an epoch: its members are told, in the lower bits.
const LABELS_TOLD: u64 = 1 << 32;
const WHAT: &str = "a record of the volume's journal";
const PREAMBLE: Preamble = Preamble { what: WHAT, magic: MAGIC, version: VERSION };

/// What a record says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JournalItem {
    /// The next `lines` lines of the payload belong here.
    Lines {
        /// Which set.
        set: u8,
        /// Which stripe of it.
        stripe: u64,
        /// Which row of the stripe: a data unit, or behind them the parity.
        row: u32,
        /// First line in the unit.
        column: u32,
        /// How many.
        lines: u32,
    },
    /// An entry of the TTABLE.
    Extent {
        /// Which.
        extent: u64,
        /// What it is now.
        packed: u64,
    },
    /// A slot of the table of pointers.
    Pointer {
        /// Which.
        slot: u64,
        /// What it is now.
        packed: u64,
    },
    /// How a member is now.
    Member {
        /// Which.
        member: MemberIndex,
        /// How it is.
        state: MemberState,
        /// All that it has missed is marked ([`super::root::MissedBits`]).
        is_noted: bool,
    },
    /// Labels of this epoch were written: the volume was opened, or closed.
    Epoch {
        /// Labels with an older one are of members that were not there, or of older copies of
        /// members.
        epoch: u64,
        /// Members that have a label of this epoch; `None`: an older program did not say.
        labelled: Option<MemberMask>,
    },
    /// Lines are lost: nothing that is redundant holds them any more.
    Lost {
        /// Which set.
        set: u8,
        /// Which stripe.
        stripe: u64,
        /// Which row.
        row: u32,
        /// First line in the unit.
        column: u32,
        /// How many.
        lines: u32,
    },
    /// Lines of a RAID 0 set that were lost were written, durable.
    Found {
        /// Which set.
        set: u8,
        /// The first.
        first: SetLine,
        /// How many.
        lines: u64,
    },
    /// Checksums of these lines are not known, although one that is in a page may be that of a
    /// lost line: in a twin alone.
    Unsure {
        /// Which set.
        set: u8,
        /// Which stripe.
        stripe: u64,
        /// Which row.
        row: u32,
        /// First line in the unit.
        column: u32,
        /// How many.
        lines: u32,
    },
    /// The member is on this disk from here on.
    Disk {
        /// Which member.
        member: MemberIndex,
        /// Its disk.
        disk: DiskTag,
    },
    /// Checksums of this region are not known from here on: in a twin alone.
    Marked {
        /// Which region.
        region: u32,
    },
}

/// A record in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalRecord {
    /// Which cache.
    pub uuid: Uuid,
    /// Its number.
    pub sequence: u64,
    /// What it says.
    pub items: Vec<JournalItem>,
    /// Lines of its payload.
    pub payload_lines: u32,
    payload_checksum: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct ItemOnDisk {
    kind: u8,
    set: u8,
    state: u8,
    reserved: u8,
    row: U32,
    first: U64,
    second: U64,
    column: U32,
    lines: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct JournalRecordOnDisk {
    pub(crate) magic: U64,
    pub(crate) version: U32,
    pub(crate) checksum: U32,
    pub(crate) uuid: [u8; 16],
    pub(crate) sequence: U64,
    pub(crate) items: U32,
    pub(crate) payload_lines: U32,
    pub(crate) payload_checksum: U32,
    pub(crate) unused: [u8; 44],
    pub(crate) item: [ItemOnDisk; JOURNAL_ITEMS_MAX],
}

const _: () = assert!(size_of::<JournalRecordOnDisk>() == LINE_BYTES);
const _: () = assert!(std::mem::offset_of!(JournalRecordOnDisk, checksum) == CHECKSUM_OFFSET);

/// Every field of a record, in order: what `docs/disk-format.md` says in words.
pub fn layout() -> Vec<FieldLayout> {
    layout_of!(JournalRecordOnDisk {
        magic,
        version,
        checksum,
        uuid,
        sequence,
        items,
        payload_lines,
        payload_checksum,
        unused,
        item,
    })
}

/// The same of an item in it.
pub fn item_layout() -> Vec<FieldLayout> {
    layout_of!(ItemOnDisk { kind, set, state, reserved, row, first, second, column, lines })
}

impl ItemOnDisk {
    fn new(item: JournalItem) -> ItemOnDisk {
        let mut disk = ItemOnDisk::new_zeroed();
        let (kind, first, second) = match item {
            JournalItem::Lines { set, stripe, row, column, lines }
            | JournalItem::Lost { set, stripe, row, column, lines }
            | JournalItem::Unsure { set, stripe, row, column, lines } => {
                disk.set = set;
                disk.row = row.into();
                disk.column = column.into();
                disk.lines = lines.into();
                let kind = match item {
                    JournalItem::Lines { .. } => 1,
                    JournalItem::Lost { .. } => 6,
                    _ => 8,
                };
                (kind, stripe, 0)
            }
            JournalItem::Marked { region } => (9, region.into(), 0),
            JournalItem::Disk { member, disk } => (10, disk.0, member.0.into()),
            JournalItem::Extent { extent, packed } => (2, extent, packed),
            JournalItem::Pointer { slot, packed } => (3, slot, packed),
            JournalItem::Member { member, state, is_noted } => {
                let (state, set, stripe) = state.encode();
                disk.state = state;
                disk.set = set;
                disk.row = u32::from(is_noted).into();
                (4, stripe, member.0.into())
            }
            JournalItem::Epoch { epoch, labelled } => {
                (5, epoch, labelled.map_or(0, |members| LABELS_TOLD | u64::from(members.0)))
            }
            JournalItem::Found { set, first, lines } => {
                disk.set = set;
                (7, first.0, lines)
            }
        };
        disk.kind = kind;
        disk.first = first.into();
        disk.second = second.into();
        disk
    }

    fn item(&self) -> Option<JournalItem> {
        let (first, second) = (self.first.get(), self.second.get());
        let (set, row) = (self.set, self.row.get());
        let (column, lines) = (self.column.get(), self.lines.get());
        if usize::from(set) > SETS_MAX {
            return None;
        }
        Some(match self.kind {
            1 => JournalItem::Lines { set, stripe: first, row, column, lines },
            2 => JournalItem::Extent { extent: first, packed: second },
            3 => JournalItem::Pointer { slot: first, packed: second },
            4 => JournalItem::Member {
                member: MemberIndex(u8::try_from(second).ok()?),
                state: MemberState::decode(self.state, set, first)?,
                is_noted: match row {
                    0 | 1 => row == 1,
                    _ => return None,
                },
            },
            5 if first < COUNTER_END && (second == 0 || second >> 32 == LABELS_TOLD >> 32) => {
                let labelled = (second != 0).then_some(MemberMask(second as u32));
                JournalItem::Epoch { epoch: first, labelled }
            }
            6 => JournalItem::Lost { set, stripe: first, row, column, lines },
            7 => JournalItem::Found { set, first: SetLine(first), lines: second },
            8 => JournalItem::Unsure { set, stripe: first, row, column, lines },
            9 => JournalItem::Marked { region: u32::try_from(first).ok()? },
            10 => JournalItem::Disk {
                member: MemberIndex(u8::try_from(second).ok()?),
                disk: DiskTag(first),
            },
            _ => return None,
        })
    }
}

/// The bytes of a record: its items and `payload`.
///
/// # Panics
/// If there are too many items or lines, or `payload` is not made of whole lines.
pub fn encode(uuid: Uuid, sequence: u64, items: &[JournalItem], payload: &[u8]) -> Buffer {
    assert!(items.len() <= JOURNAL_ITEMS_MAX && payload.len().is_multiple_of(LINE_BYTES));
    let payload_lines = (payload.len() / LINE_BYTES) as u32;
    assert!(payload_lines <= JOURNAL_PAYLOAD_LINES_MAX);
    let mut disk = JournalRecordOnDisk::new_zeroed();
    disk.magic = MAGIC.into();
    disk.version = VERSION.into();
    disk.uuid = uuid.0;
    disk.sequence = sequence.into();
    disk.items = (items.len() as u32).into();
    disk.payload_lines = payload_lines.into();
    disk.payload_checksum = crc32c(payload).into();
    for (on_disk, item) in disk.item.iter_mut().zip(items) {
        *on_disk = ItemOnDisk::new(*item);
    }
    disk.checksum = crc32c_with_hole(disk.as_bytes(), CHECKSUM_OFFSET).into();
    let mut buffer = Buffer::zeroed(LINE_BYTES + payload.len());
    buffer.bytes_mut()[..LINE_BYTES].copy_from_slice(disk.as_bytes());
    buffer.bytes_mut()[LINE_BYTES..].copy_from_slice(payload);
    buffer
}

impl JournalRecord {
    /// Reads the line of items at the front of `bytes`. Every byte may be anything.
    pub fn decode(bytes: &[u8], uuid: Uuid) -> Result<JournalRecord, FormatError> {
        let (disk, _) = PREAMBLE.verify::<JournalRecordOnDisk>(bytes)?;
        if disk.uuid != uuid.0 {
            return Err(FormatError::Uuid { what: WHAT, expected: uuid, found: Uuid(disk.uuid) });
        }
        let field = |field, found| FormatError::Field { what: WHAT, field, found };
        let count = disk.items.get();
        if count as usize > JOURNAL_ITEMS_MAX {
            return Err(field("items", count.into()));
        }
        let payload_lines = disk.payload_lines.get();
        if payload_lines > JOURNAL_PAYLOAD_LINES_MAX {
            return Err(field("payload_lines", payload_lines.into()));
        }
        let sequence = disk.sequence.get();
        if sequence >= COUNTER_END {
            return Err(field("sequence", sequence));
        }
        let mut items = Vec::with_capacity(count as usize);
        let mut named_lines = 0u64;
        for on_disk in &disk.item[..count as usize] {
            let item = on_disk.item().ok_or_else(|| field("item", on_disk.kind.into()))?;
            if let JournalItem::Lines { lines, .. } = item {
                named_lines += u64::from(lines);
            }
            items.push(item);
        }
        if named_lines != u64::from(payload_lines) {
            return Err(field("payload_lines", payload_lines.into()));
        }
        let payload_checksum = disk.payload_checksum.get();
        Ok(JournalRecord { uuid, sequence, items, payload_lines, payload_checksum })
    }

    /// Lines of the journal that it takes.
    pub(crate) fn lines(&self) -> u64 {
        1 + u64::from(self.payload_lines)
    }

    /// Whether this is its payload.
    pub fn has_payload(&self, payload: &[u8]) -> bool {
        payload.len() == self.payload_lines as usize * LINE_BYTES
            && crc32c(payload) == self.payload_checksum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_back() {
        let uuid = Uuid([7; 16]);
        let items = [
            JournalItem::Lines { set: 1, stripe: 9, row: 5, column: 3, lines: 2 },
            JournalItem::Extent { extent: 7, packed: u64::MAX },
            JournalItem::Pointer { slot: 3, packed: 5 },
            JournalItem::Member {
                member: MemberIndex(4),
                state: MemberState::Stale,
                is_noted: true,
            },
            JournalItem::Member {
                member: MemberIndex(4),
                state: MemberState::Rebuilding { set: 2, stripe: 80 },
                is_noted: false,
            },
            JournalItem::Epoch { epoch: 6, labelled: None },
            JournalItem::Epoch { epoch: 7, labelled: Some(MemberMask(0)) },
            JournalItem::Epoch { epoch: 8, labelled: Some(MemberMask(u32::MAX)) },
            JournalItem::Lost { set: 1, stripe: 9, row: 5, column: 3, lines: 2 },
            JournalItem::Found { set: 2, first: SetLine(77), lines: 1 << 40 },
            JournalItem::Disk { member: MemberIndex(3), disk: DiskTag(u64::MAX) },
        ];
        let payload = [1; 8192];
        let bytes = encode(uuid, 12, &items, &payload);
        let record = JournalRecord::decode(bytes.bytes(), uuid).unwrap();
        assert_eq!((record.sequence, record.lines(), &record.items[..]), (12, 3, &items[..]));
        assert!(record.has_payload(&bytes.bytes()[4096..]));
        assert!(!record.has_payload(&[0; 8192]) && !record.has_payload(&payload[..4096]));
        let other = Uuid([8; 16]);
        assert!(matches!(
            JournalRecord::decode(bytes.bytes(), other),
            Err(FormatError::Uuid { .. })
        ));
        // Items that do not name the whole payload.
        let bytes = encode(uuid, 12, &items[1..], &payload);
        assert!(JournalRecord::decode(bytes.bytes(), uuid).is_err());
    }
}
