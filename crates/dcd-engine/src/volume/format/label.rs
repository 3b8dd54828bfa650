//! The label of a member, in two copies: which volume, which member, and how old its contents may
//! be. And where its twin is, and who has it that counts.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::buffer::Buffer;
use crate::error::FormatError;
use crate::format::COUNTER_OF_MEMBERS_END;
use crate::format::checksum::crc32c_with_hole;
use crate::format::layout::{FieldLayout, layout_of};
use crate::format::preamble::{CHECKSUM_OFFSET, Preamble};
use crate::units::{LINE_SIZE, MemberIndex, Uuid};
use crate::volume::config::MEMBERS_MAX;
use crate::volume::members::MemberMask;

/// "dcdMEMBR" in ASCII, read as a little-endian number.
pub const MAGIC: u64 = u64::from_le_bytes(*b"dcdMEMBR");
/// The version that this program writes and reads.
pub const VERSION: u32 = 2;
/// Byte addresses of the two copies on the member, in different physical sectors: a torn one leaves
/// the other.
pub const LABEL_OFFSETS: [u64; 2] = [0, 64 << 10];
/// Size of a label.
pub const MEMBER_LABEL_BYTES: usize = 4096;
/// No member is larger than twice what the slice of a set may begin or end at.
const TWIN_OFFSET_MAX: u64 = 1 << 52;
const WHAT: &str = "the label of the member";
const PREAMBLE: Preamble = Preamble { what: WHAT, magic: MAGIC, version: VERSION };

/// A label in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemberLabel {
    /// The cache whose volume this disk is a member of.
    pub uuid: Uuid,
    /// Its place among the members.
    pub member: MemberIndex,
    /// Counts the openings and closings of the volume: a member that was not there at the last has
    /// an older one, and so has a copy of a member that is older than it is.
    pub epoch: u64,
    /// The twin of the volume's tables; `None`: the volume has none.
    pub twin: Option<TwinLabel>,
    /// Which disk it is. The tables know the tag of the one that counts.
    pub disk: DiskTag,
    /// What it is to the volume.
    pub standing: Standing,
    /// Which of the two copies on the disk it is: [`LABEL_OFFSETS`]. Not written.
    pub copy: u8,
}

/// Tells the disks apart that are, or were, one and the same member: random, and 0 for the one that
/// the volume was made with.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DiskTag(pub u64);

/// What a disk is to the volume.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Standing {
    /// A member, if the tables know its tag.
    #[default]
    Member,
    /// It was to take the place of a member, and has not got all yet.
    Incoming,
    /// Another has taken its place.
    Released,
    /// It waits for a member to fail, to take its place.
    Spare,
    /// The same, and it was to take the place of a member, and has not got all yet.
    SpareIncoming,
    /// A spare that has got all: a member if the tables know its tag, and else a spare.
    SpareMember,
}

/// What a label says of the twin: the tables of the volume once more, on members
/// ([`super::super::twin`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TwinLabel {
    /// Byte address of its area, the same on every member.
    pub offset: u64,
    /// Counts the changes of `holders`: what the newest of all labels says is true.
    pub generation: u64,
    /// Members that have it whole.
    pub holders: MemberMask,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct MemberLabelOnDisk {
    pub(crate) magic: U64,
    pub(crate) version: U32,
    pub(crate) checksum: U32,
    pub(crate) uuid: [u8; 16],
    pub(crate) epoch: U64,
    pub(crate) member: U32,
    pub(crate) twin_holders: U32,
    pub(crate) twin_offset: U64,
    pub(crate) twin_generation: U64,
    pub(crate) disk_tag: U64,
    pub(crate) standing: U32,
    pub(crate) unused: [u8; 4020],
}

const _: () = assert!(size_of::<MemberLabelOnDisk>() == MEMBER_LABEL_BYTES);
const _: () = assert!(std::mem::offset_of!(MemberLabelOnDisk, checksum) == CHECKSUM_OFFSET);

/// Every field of a label, in order: what `docs/disk-format.md` says in words.
pub fn layout() -> Vec<FieldLayout> {
    layout_of!(MemberLabelOnDisk {
        magic,
        version,
        checksum,
        uuid,
        epoch,
        member,
        twin_holders,
        twin_offset,
        twin_generation,
        disk_tag,
        standing,
        unused,
    })
}

impl Standing {
    fn encode(self) -> u32 {
        match self {
            Standing::Member => 0,
            Standing::Incoming => 1,
            Standing::Released => 2,
            Standing::Spare => 3,
            Standing::SpareIncoming => 4,
            Standing::SpareMember => 5,
        }
    }

    fn decode(code: u32) -> Option<Standing> {
        [
            Standing::Member,
            Standing::Incoming,
            Standing::Released,
            Standing::Spare,
            Standing::SpareIncoming,
            Standing::SpareMember,
        ]
        .into_iter()
        .find(|standing| standing.encode() == code)
    }

    /// Whether the disk is a member, if the tables know its tag.
    pub fn is_member(self) -> bool {
        matches!(self, Standing::Member | Standing::SpareMember)
    }

    /// Whether the disk is a spare, if it is no member.
    pub fn is_spare(self) -> bool {
        matches!(self, Standing::Spare | Standing::SpareIncoming | Standing::SpareMember)
    }

    /// Whether a disk is to be given to the engine among the others, not as the member that its
    /// label names: who that is, the tables say.
    pub fn is_of_other(self) -> bool {
        self.is_spare() || self == Standing::Released
    }
}

impl MemberLabel {
    /// The first label of a disk that the volume is made with.
    pub fn first(uuid: Uuid, member: MemberIndex) -> MemberLabel {
        let (twin, disk, standing) = (None, DiskTag::default(), Standing::Member);
        MemberLabel { uuid, member, epoch: 0, twin, disk, standing, copy: 0 }
    }

    /// The bytes of the label.
    pub fn encode(&self) -> Buffer {
        let mut disk = MemberLabelOnDisk::new_zeroed();
        disk.magic = MAGIC.into();
        disk.version = VERSION.into();
        disk.uuid = self.uuid.0;
        disk.epoch = self.epoch.into();
        disk.member = u32::from(self.member.0).into();
        disk.disk_tag = self.disk.0.into();
        disk.standing = self.standing.encode().into();
        if let Some(twin) = self.twin {
            disk.twin_offset = twin.offset.into();
            disk.twin_generation = twin.generation.into();
            disk.twin_holders = twin.holders.0.into();
        }
        disk.checksum = crc32c_with_hole(disk.as_bytes(), CHECKSUM_OFFSET).into();
        Buffer::copy_of(disk.as_bytes())
    }

    /// The newer of two copies, if any is valid. A driver reads both; what it cannot read is no
    /// copy.
    pub fn newest(copy_0: &[u8], copy_1: &[u8]) -> Option<MemberLabel> {
        let decode = |(copy, bytes)| {
            let label = MemberLabel::decode(bytes).ok()?;
            Some(MemberLabel { copy, ..label })
        };
        // Of equal ones, which a new member has, copy 0.
        let copies = [(1, copy_1), (0, copy_0)].into_iter().filter_map(decode);
        copies.max_by_key(MemberLabel::age)
    }

    /// Newer ones have greater ones.
    fn age(&self) -> (u64, u64, bool) {
        // Who was let go is told with the epoch that it had.
        let is_released = self.standing == Standing::Released;
        (self.epoch, self.twin.map_or(0, |twin| twin.generation), is_released)
    }

    /// Reads a copy: it counts as copy 0. Every byte may be anything.
    pub fn decode(bytes: &[u8]) -> Result<MemberLabel, FormatError> {
        let (disk, _) = PREAMBLE.verify::<MemberLabelOnDisk>(bytes)?;
        let field = |field, found| FormatError::Field { what: WHAT, field, found };
        let member = disk.member.get();
        if member as usize >= MEMBERS_MAX {
            return Err(field("member", member.into()));
        }
        let epoch = disk.epoch.get();
        if epoch >= COUNTER_OF_MEMBERS_END {
            return Err(field("epoch", epoch));
        }
        let (offset, generation) = (disk.twin_offset.get(), disk.twin_generation.get());
        if !offset.is_multiple_of(LINE_SIZE) || offset > TWIN_OFFSET_MAX {
            return Err(field("twin_offset", offset));
        }
        if generation >= COUNTER_OF_MEMBERS_END || offset == 0 && generation > 0 {
            return Err(field("twin_generation", generation));
        }
        let holders = MemberMask(disk.twin_holders.get());
        if offset == 0 && !holders.is_none() {
            return Err(field("twin_holders", holders.0.into()));
        }
        let twin = (offset > 0).then_some(TwinLabel { offset, generation, holders });
        let (uuid, member) = (Uuid(disk.uuid), MemberIndex(member as u8));
        let standing = disk.standing.get();
        let standing =
            Standing::decode(standing).ok_or_else(|| field("standing", standing.into()))?;
        let disk = DiskTag(disk.disk_tag.get());
        Ok(MemberLabel { uuid, member, epoch, twin, disk, standing, copy: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_back() {
        let uuid = Uuid([7; 16]);
        let twin = TwinLabel { offset: 5 << 20, generation: 3, holders: MemberMask(0b101) };
        let first = MemberLabel::first(uuid, MemberIndex(3));
        let label =
            MemberLabel { epoch: 12, twin: Some(twin), disk: DiskTag(u64::MAX - 3), ..first };
        assert_eq!(MemberLabel::decode(label.encode().bytes()), Ok(label));
        let mut torn = label.encode();
        torn.bytes_mut()[2000] = 1;
        assert!(matches!(MemberLabel::decode(torn.bytes()), Err(FormatError::Checksum { .. })));
        let older = MemberLabel { epoch: 11, ..label };
        let newest = |a: &MemberLabel, b: &[u8]| MemberLabel::newest(a.encode().bytes(), b);
        assert_eq!(newest(&older, label.encode().bytes()), Some(MemberLabel { copy: 1, ..label }));
        assert_eq!(newest(&label, older.encode().bytes()), Some(label));
        assert_eq!(newest(&older, torn.bytes()), Some(older));
        let forged = TwinLabel { generation: COUNTER_OF_MEMBERS_END, ..twin };
        let forged = MemberLabel { twin: Some(forged), ..label };
        assert!(MemberLabel::decode(forged.encode().bytes()).is_err());
        let before = MemberLabel { twin: Some(TwinLabel { generation: 2, ..twin }), ..label };
        assert_eq!(newest(&label, before.encode().bytes()), Some(label));
        assert_eq!(MemberLabel::newest(torn.bytes(), &[]), None);
        // One that was let go in this epoch has the label of a member in its other copy.
        let released = MemberLabel { standing: Standing::Released, ..label };
        assert_eq!(
            newest(&label, released.encode().bytes()).map(|l| l.standing),
            Some(Standing::Released)
        );
        assert_eq!(
            newest(&released, label.encode().bytes()).map(|l| l.standing),
            Some(Standing::Released)
        );
        let label = MemberLabel { member: MemberIndex(32), ..label };
        assert!(matches!(
            MemberLabel::decode(label.encode().bytes()),
            Err(FormatError::Field { .. })
        ));
    }
}
