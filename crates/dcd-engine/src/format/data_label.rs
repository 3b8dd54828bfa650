//! The label of a data-disk (contract C29), in two copies at its beginning: whose it is, how old
//! what it holds may be, and where the payload begins. What is behind the label is found by nobody
//! who does not know it, so a disk whose newest data is in a cache is not mounted by accident.
//!
//! The label and the superblock of the cache have an epoch, which each start and each end in order
//! raises. The two cannot be written at once, so the label says what is going to be:
//!
//! ```text
//! 1. The label: epoch e, soon e + 1.
//!      Crash here: the superblock still says e, which the label allows.
//! 2. The superblock: epoch e + 1.             Crash here: the label allows that, too.
//! 3. The label: epoch e + 1, and no other.
//!      Before 1 and behind 3 only one epoch fits, so that an older copy of either disk is told
//!      from what it is now.
//! ```
//! A label is written to the copy whose turn it is, so a torn one leaves the label before it, which
//! fits as well.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::COUNTER_END;
use super::checksum::crc32c_with_hole;
use super::layout::{FieldLayout, layout_of};
use super::preamble::{CHECKSUM_OFFSET, Preamble};
use super::superblock::{DATA_DISK_BLOCKS_MAX, DATA_OFFSET_BYTES_MAX};
use crate::buffer::Buffer;
use crate::error::FormatError;
use crate::units::{BLOCK_SIZE, LINE_SIZE, Uuid};

/// "dcdLABEL" in ASCII, read as a little-endian number.
pub const MAGIC: u64 = u64::from_le_bytes(*b"dcdLABEL");
/// The version that this program writes and reads.
pub const VERSION: u32 = 1;
/// Byte addresses of the two copies on the data-disk.
pub const DATA_LABEL_OFFSETS: [u64; 2] = [0, 64 << 10];
/// Size of a copy.
pub const DATA_LABEL_BYTES: usize = 4096;
/// Smallest head of a labelled data-disk.
pub const DATA_OFFSET_BYTES_MIN: u64 = 128 << 10;
/// The usual one.
pub const DATA_OFFSET_BYTES_DEFAULT: u64 = 1 << 20;
const WHAT: &str = "the label of the data-disk";
const PREAMBLE: Preamble = Preamble { what: WHAT, magic: MAGIC, version: VERSION };

/// What the cache of a data-disk may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LabelState {
    /// Nothing that is newer than the data-disk.
    Clean,
    /// What is nowhere else, or it is in use.
    Dirty,
    /// Nothing: the data-disk stands on its own.
    Detached,
}

impl LabelState {
    fn code(self) -> u32 {
        match self {
            LabelState::Clean => 1,
            LabelState::Dirty => 2,
            LabelState::Detached => 3,
        }
    }
}

/// Whether a label and the superblock of its cache are of one time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LabelFit {
    /// They are.
    Same,
    /// The cache has gone on since this label was written.
    DataDiskOlder,
    /// The data-disk has gone on since this superblock was written.
    CacheDiskOlder,
}

/// A label in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataLabel {
    /// The cache of this data-disk.
    pub uuid: Uuid,
    /// Counts the writings of labels.
    pub writing: u64,
    /// The least epoch that the superblock of the cache may have.
    pub epoch: u64,
    /// The greatest; one more than `epoch` while a superblock is being written.
    pub epoch_max: u64,
    /// What the cache may hold.
    pub state: LabelState,
    /// Where the payload begins.
    pub payload_offset_bytes: u64,
    /// Its size.
    pub payload_bytes: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct DataLabelOnDisk {
    pub(crate) magic: U64,
    pub(crate) version: U32,
    pub(crate) checksum: U32,
    pub(crate) uuid: [u8; 16],
    pub(crate) writing: U64,
    pub(crate) epoch: U64,
    pub(crate) epoch_max: U64,
    pub(crate) payload_offset_bytes: U64,
    pub(crate) payload_bytes: U64,
    pub(crate) state: U32,
    pub(crate) reserved: U32,
    pub(crate) unused: [u8; 4016],
}

const _: () = assert!(size_of::<DataLabelOnDisk>() == DATA_LABEL_BYTES);
const _: () = assert!(std::mem::offset_of!(DataLabelOnDisk, checksum) == CHECKSUM_OFFSET);

/// Every field of a copy, in order: what `docs/disk-format.md` says in words.
pub fn layout() -> Vec<FieldLayout> {
    layout_of!(DataLabelOnDisk {
        magic,
        version,
        checksum,
        uuid,
        writing,
        epoch,
        epoch_max,
        payload_offset_bytes,
        payload_bytes,
        state,
        reserved,
        unused,
    })
}

impl DataLabel {
    /// Byte address of the copy that this writing goes to.
    pub fn offset(&self) -> u64 {
        DATA_LABEL_OFFSETS[(self.writing % 2) as usize]
    }

    /// Compares it with the epoch of the cache's superblock.
    pub fn fit(&self, epoch: u64) -> LabelFit {
        match epoch {
            _ if epoch < self.epoch => LabelFit::CacheDiskOlder,
            _ if epoch > self.epoch_max => LabelFit::DataDiskOlder,
            _ => LabelFit::Same,
        }
    }

    /// The bytes of a copy.
    pub fn encode(&self) -> Buffer {
        let mut disk = DataLabelOnDisk::new_zeroed();
        disk.magic = MAGIC.into();
        disk.version = VERSION.into();
        disk.uuid = self.uuid.0;
        disk.writing = self.writing.into();
        disk.epoch = self.epoch.into();
        disk.epoch_max = self.epoch_max.into();
        disk.payload_offset_bytes = self.payload_offset_bytes.into();
        disk.payload_bytes = self.payload_bytes.into();
        disk.state = self.state.code().into();
        disk.checksum = crc32c_with_hole(disk.as_bytes(), CHECKSUM_OFFSET).into();
        Buffer::copy_of(disk.as_bytes())
    }

    /// Reads a copy. Every byte may be anything.
    pub fn decode(bytes: &[u8]) -> Result<DataLabel, FormatError> {
        let (disk, _) = PREAMBLE.verify::<DataLabelOnDisk>(bytes)?;
        let field = |field, found| FormatError::Field { what: WHAT, field, found };
        let state = match disk.state.get() {
            1 => LabelState::Clean,
            2 => LabelState::Dirty,
            3 => LabelState::Detached,
            other => return Err(field("state", other.into())),
        };
        let label = DataLabel {
            uuid: Uuid(disk.uuid),
            writing: disk.writing.get(),
            epoch: disk.epoch.get(),
            epoch_max: disk.epoch_max.get(),
            state,
            payload_offset_bytes: disk.payload_offset_bytes.get(),
            payload_bytes: disk.payload_bytes.get(),
        };
        if label.writing >= COUNTER_END {
            return Err(field("writing", label.writing));
        }
        if label.epoch >= COUNTER_END {
            return Err(field("epoch", label.epoch));
        }
        if label.epoch_max < label.epoch || label.epoch_max > label.epoch + 1 {
            return Err(field("epoch_max", label.epoch_max));
        }
        if !is_payload_offset(label.payload_offset_bytes) {
            return Err(field("payload_offset_bytes", label.payload_offset_bytes));
        }
        let is_payload = label.payload_bytes.is_multiple_of(BLOCK_SIZE)
            && (1..=DATA_DISK_BLOCKS_MAX).contains(&(label.payload_bytes / BLOCK_SIZE));
        if !is_payload {
            return Err(field("payload_bytes", label.payload_bytes));
        }
        Ok(label)
    }

    /// The newer of two copies; of two that are none, what is wrong with the first. A driver reads
    /// both; what it cannot read is no copy.
    pub fn newest(copy_0: &[u8], copy_1: &[u8]) -> Result<DataLabel, FormatError> {
        match (DataLabel::decode(copy_0), DataLabel::decode(copy_1)) {
            (Ok(first), Ok(second)) if second.writing > first.writing => Ok(second),
            (Ok(first), _) => Ok(first),
            (Err(_), Ok(second)) => Ok(second),
            (Err(FormatError::Magic { .. }), Err(second)) => Err(second),
            (Err(first), Err(_)) => Err(first),
        }
    }
}

/// Whether a payload may begin there.
pub fn is_payload_offset(bytes: u64) -> bool {
    bytes.is_multiple_of(LINE_SIZE)
        && (DATA_OFFSET_BYTES_MIN..=DATA_OFFSET_BYTES_MAX).contains(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABEL: DataLabel = DataLabel {
        uuid: Uuid([5; 16]),
        writing: 8,
        epoch: 3,
        epoch_max: 4,
        state: LabelState::Dirty,
        payload_offset_bytes: 1 << 20,
        payload_bytes: 8 << 20,
    };

    #[test]
    fn comes_back_and_the_later_writing_counts() {
        for state in [LabelState::Clean, LabelState::Dirty, LabelState::Detached] {
            let label = DataLabel { state, ..LABEL };
            assert_eq!(DataLabel::decode(label.encode().bytes()), Ok(label));
        }
        let later = DataLabel { writing: 9, epoch: 4, ..LABEL };
        let newest = |a: &[u8], b: &[u8]| DataLabel::newest(a, b);
        let (first, second) = (LABEL.encode(), later.encode());
        assert_eq!(newest(first.bytes(), second.bytes()), Ok(later));
        assert_eq!(newest(second.bytes(), first.bytes()), Ok(later));
        let mut torn = second;
        torn.bytes_mut()[3000] = 1;
        assert_eq!(newest(first.bytes(), torn.bytes()), Ok(LABEL));
        let nothing = [0; DATA_LABEL_BYTES];
        assert!(matches!(newest(&nothing, torn.bytes()), Err(FormatError::Checksum { .. })));
        assert!(matches!(newest(&nothing, &[]), Err(FormatError::Short { .. })));
        assert_eq!([LABEL.offset(), later.offset()], DATA_LABEL_OFFSETS);
    }

    #[test]
    fn only_the_epochs_between_fit() {
        use LabelFit::{CacheDiskOlder, DataDiskOlder, Same};
        let fits = [2, 3, 4, 5].map(|epoch| LABEL.fit(epoch));
        assert_eq!(fits, [CacheDiskOlder, Same, Same, DataDiskOlder]);
        let settled = DataLabel { epoch: 4, ..LABEL };
        assert_eq!(
            [3, 4, 5].map(|epoch| settled.fit(epoch)),
            [CacheDiskOlder, Same, DataDiskOlder]
        );
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let problem = |label: DataLabel| match DataLabel::decode(label.encode().bytes()) {
            Err(FormatError::Field { field, .. }) => field,
            other => panic!("{other:?}"),
        };
        assert_eq!(problem(DataLabel { writing: COUNTER_END, ..LABEL }), "writing");
        assert_eq!(problem(DataLabel { epoch: COUNTER_END, ..LABEL }), "epoch");
        for epoch_max in [2, 5, u64::MAX] {
            assert_eq!(problem(DataLabel { epoch_max, ..LABEL }), "epoch_max");
        }
        for payload_offset_bytes in [0, 64 << 10, (1 << 20) + 512, 2 << 30] {
            let label = DataLabel { payload_offset_bytes, ..LABEL };
            assert_eq!(problem(label), "payload_offset_bytes");
        }
        for payload_bytes in [0, 1000, u64::MAX / 512 * 512] {
            assert_eq!(problem(DataLabel { payload_bytes, ..LABEL }), "payload_bytes");
        }
        for byte in 0..DATA_LABEL_BYTES {
            let mut bytes = LABEL.encode();
            bytes.bytes_mut()[byte] ^= 1 << (byte % 8);
            assert!(DataLabel::decode(bytes.bytes()).is_err(), "byte {byte}");
        }
    }
}
