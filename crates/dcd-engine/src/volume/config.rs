//! What a volume is made of: its members, the sets on them, the size of an extent.

use super::extents::{EXTENTS_MAX, SET_EXTENTS_MAX};
use super::placement::{DeviceClass, Placement, RaidLevel, Tier};
use crate::units::{BLOCK_SIZE, LINE_SIZE, MemberIndex};

/// Most members of a volume.
pub const MEMBERS_MAX: usize = 32;
/// Most bytes that a set takes of each member.
pub(super) const SET_MEMBER_BYTES_MAX: u64 = 1 << 50;
/// Most sets of a volume.
pub const SETS_MAX: usize = 8;
/// Smallest and largest extent.
pub const EXTENT_BYTES_MIN: u64 = LINE_SIZE;
/// See [`EXTENT_BYTES_MIN`].
pub const EXTENT_BYTES_MAX: u64 = 16 << 20;
/// Smallest and largest stripe unit.
pub const STRIPE_UNIT_BYTES_MIN: u64 = LINE_SIZE;
/// See [`STRIPE_UNIT_BYTES_MIN`].
pub const STRIPE_UNIT_BYTES_MAX: u64 = 4 << 20;
/// What a label takes at the start of each member.
pub const LABEL_BYTES: u64 = 1 << 20;

/// Pages of checksums that the twin marks together, unless it is told otherwise: 63 MiB of lines.
pub const TWIN_REGION_PAGES_DEFAULT: u32 = 16;
/// The most.
pub const TWIN_REGION_PAGES_MAX: u32 = 1 << 10;

/// One RAID set: a slice of the same size on each of its members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetConfig {
    /// How it keeps data.
    pub level: RaidLevel,
    /// How fast its devices are.
    pub class: DeviceClass,
    /// The members, in the order of their units.
    pub members: Vec<MemberIndex>,
    /// What lies together on one member, in bytes.
    pub stripe_unit_bytes: u64,
    /// RAID 1: how many copies there are; the members hold `members / copies` different units of a
    /// stripe. 1 for the others.
    pub copies: u32,
    /// Where the slice begins on every member, in bytes.
    pub member_offset_bytes: u64,
    /// Size of the slice, in bytes: a multiple of the stripe unit.
    pub member_bytes: u64,
}

impl SetConfig {
    /// What extents it is a place for.
    pub fn tier(&self) -> Tier {
        Tier { level: self.level, class: self.class }
    }

    /// Units of data in a stripe.
    pub fn data_units(&self) -> u64 {
        let members = self.members.len() as u64;
        match self.level {
            RaidLevel::Raid0 => members,
            RaidLevel::Raid1 => members / u64::from(self.copies),
            RaidLevel::Raid5 => members - 1,
        }
    }

    /// Number of stripes.
    pub(crate) fn stripes(&self) -> u64 {
        self.member_bytes / self.stripe_unit_bytes
    }

    /// Where the slice ends on every member, in bytes.
    pub fn end_bytes(&self) -> u64 {
        self.member_offset_bytes + self.member_bytes
    }

    /// Bytes of data that it holds.
    pub fn capacity_bytes(&self) -> u64 {
        self.stripes() * self.data_units() * self.stripe_unit_bytes
    }
}

/// A volume, as it is kept on the cache-disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeConfig {
    /// Number of members.
    pub members: usize,
    /// The sets; several may have the same level.
    pub sets: Vec<SetConfig>,
    /// What is placed at once: a power of two.
    pub extent_bytes: u64,
    /// Size that users see, in bytes: a multiple of the extent.
    pub logical_bytes: u64,
    /// Of the RAID 0 sets together, at their ends, for TEMPORARY extents alone.
    pub temporary_bytes: u64,
    /// Only candidates (METADATA, and HOT with WRITE-MOST and RANDOM) are sure to go through the
    /// log; the rest goes past it when the log is short of room.
    pub selective_caching: bool,
    /// Most bytes per second that are moved between sets; 0: no cap.
    pub migrate_bytes_per_second_max: u64,
    /// Which extents go where.
    pub placement: Placement,
    /// How many pages of checksums are marked together in the twin of the tables
    /// ([`super::twin`]); 0: there is no twin, and without the cache-disk nothing is found.
    pub twin_region_pages: u32,
}

/// A volume that cannot be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum VolumeConfigError {
    /// Number of members or sets.
    #[error("a volume has 1 to {most} {what}, not {found}")]
    Count {
        /// Of what.
        what: &'static str,
        /// How many there are.
        found: usize,
        /// How many there may be.
        most: usize,
    },
    /// Too few members for the level, or not a multiple of the copies.
    #[error("set {set}: RAID {level} needs {needed}, and it has {found} members")]
    SetMembers {
        /// Which set, from 0.
        set: usize,
        /// Its level.
        level: u8,
        /// In words.
        needed: &'static str,
        /// Members.
        found: usize,
    },
    /// A member is not there, or twice in a set.
    #[error("set {set}: member {member} is {why}")]
    Member {
        /// Which set, from 0.
        set: usize,
        /// Which member.
        member: u8,
        /// Why not.
        why: &'static str,
    },
    /// A size out of range or of the wrong kind.
    #[error("{what} of {found} bytes cannot be: {expected}")]
    Size {
        /// Of what.
        what: &'static str,
        /// How large it is.
        found: u64,
        /// How large it may be.
        expected: &'static str,
    },
    /// Two sets share a place.
    #[error("sets {first} and {second} overlap on member {member}")]
    Overlap {
        /// One set.
        first: usize,
        /// The other.
        second: usize,
        /// Where.
        member: u8,
    },
    /// The sets hold less than the size asked for.
    #[error(
        "the sets hold {held} bytes besides {temporary} for temporary data, {wanted} are wanted"
    )]
    TooSmall {
        /// Size asked for.
        wanted: u64,
        /// What the sets hold, without the region for temporary data.
        held: u64,
        /// The region for temporary data.
        temporary: u64,
    },
}

impl VolumeConfig {
    /// Bytes of data that all sets hold, the region for temporary data included.
    pub fn capacity_bytes(&self) -> u64 {
        self.sets.iter().map(|set| self.whole_extents(set) * self.extent_bytes).sum()
    }

    /// Extents that fit into a set.
    pub fn whole_extents(&self, set: &SetConfig) -> u64 {
        set.capacity_bytes() / self.extent_bytes
    }

    /// Number of logical extents.
    pub fn extents(&self) -> u64 {
        self.logical_bytes / self.extent_bytes
    }

    /// Byte address of the twin of the tables, the same on every member: behind all sets. `None`:
    /// there is none.
    pub fn twin_offset_bytes(&self) -> Option<u64> {
        let end = self.sets.iter().map(SetConfig::end_bytes).max()?;
        (self.twin_region_pages > 0).then_some(end.next_multiple_of(LABEL_BYTES))
    }

    /// Size that users see, in blocks of 512 bytes.
    pub fn blocks(&self) -> u64 {
        self.logical_bytes / BLOCK_SIZE
    }

    /// Checks that it can be.
    pub fn validate(&self) -> Result<(), VolumeConfigError> {
        let count = |what, found, most| match (1..=most).contains(&found) {
            true => Ok(()),
            false => Err(VolumeConfigError::Count { what, found, most }),
        };
        count("members", self.members, MEMBERS_MAX)?;
        count("sets", self.sets.len(), SETS_MAX)?;
        if self.twin_region_pages > TWIN_REGION_PAGES_MAX {
            let (found, most) = (self.twin_region_pages as usize, TWIN_REGION_PAGES_MAX as usize);
            let what = "pages of checksums that are marked together";
            return Err(VolumeConfigError::Count { what, found, most });
        }
        let size = |what, found, fits, expected| match fits {
            true => Ok(()),
            false => Err(VolumeConfigError::Size { what, found, expected }),
        };
        let extent = self.extent_bytes;
        size(
            "an extent",
            extent,
            extent.is_power_of_two() && (EXTENT_BYTES_MIN..=EXTENT_BYTES_MAX).contains(&extent),
            "it must be a power of two from 4 KiB to 16 MiB",
        )?;
        // Before the size, which is 0 where a set has too few members for its level.
        for (index, set) in self.sets.iter().enumerate() {
            self.validate_set(index, set)?;
        }
        let logical = self.logical_bytes;
        size(
            "a volume",
            logical,
            logical > 0 && logical.is_multiple_of(extent),
            "it must be a multiple of the extent",
        )?;
        size(
            "a volume",
            logical,
            self.extents() <= EXTENTS_MAX,
            "it must have less than 2^32 extents; larger extents hold more",
        )?;
        for (index, set) in self.sets.iter().enumerate() {
            for (other, earlier) in self.sets[..index].iter().enumerate() {
                let apart = set.member_offset_bytes
                    >= earlier.member_offset_bytes + earlier.member_bytes
                    || earlier.member_offset_bytes >= set.member_offset_bytes + set.member_bytes;
                let shared = set.members.iter().find(|member| earlier.members.contains(member));
                if let (false, Some(member)) = (apart, shared) {
                    let (first, second, member) = (other, index, member.0);
                    return Err(VolumeConfigError::Overlap { first, second, member });
                }
            }
        }
        let raid0: u64 = self
            .sets
            .iter()
            .filter(|set| set.level == RaidLevel::Raid0)
            .map(|set| self.whole_extents(set) * extent)
            .sum();
        size(
            "the region for temporary data",
            self.temporary_bytes,
            self.temporary_bytes <= raid0 && self.temporary_bytes.is_multiple_of(extent),
            "it must be a multiple of the extent and fit into the RAID 0 sets",
        )?;
        let held = self.capacity_bytes() - self.temporary_bytes;
        if logical > held {
            let temporary = self.temporary_bytes;
            return Err(VolumeConfigError::TooSmall { wanted: logical, held, temporary });
        }
        Ok(())
    }

    fn validate_set(&self, index: usize, set: &SetConfig) -> Result<(), VolumeConfigError> {
        let found = set.members.len();
        let copies = set.copies as usize;
        let (fits, needed) = match set.level {
            RaidLevel::Raid0 => (found >= 1 && copies == 1, "at least one"),
            RaidLevel::Raid1 => (
                copies >= 2 && found >= copies && found.is_multiple_of(copies),
                "a multiple of its copies, at least two",
            ),
            RaidLevel::Raid5 => (found >= 3 && copies == 1, "at least three"),
        };
        if !fits {
            let level = set.level.number();
            return Err(VolumeConfigError::SetMembers { set: index, level, needed, found });
        }
        for (place, member) in set.members.iter().enumerate() {
            let why = if usize::from(member.0) >= self.members {
                "not there"
            } else if set.members[..place].contains(member) {
                "named twice"
            } else {
                continue;
            };
            return Err(VolumeConfigError::Member { set: index, member: member.0, why });
        }
        let unit = set.stripe_unit_bytes;
        let size = |what, found, fits, expected| match fits {
            true => Ok(()),
            false => Err(VolumeConfigError::Size { what, found, expected }),
        };
        size(
            "a stripe unit",
            unit,
            unit.is_power_of_two()
                && (STRIPE_UNIT_BYTES_MIN..=STRIPE_UNIT_BYTES_MAX).contains(&unit),
            "it must be a power of two from 4 KiB to 4 MiB",
        )?;
        size(
            "the slice of a set on each member",
            set.member_bytes,
            set.member_bytes >= unit
                && set.member_bytes.is_multiple_of(unit)
                && set.member_bytes <= SET_MEMBER_BYTES_MAX
                && (1..=SET_EXTENTS_MAX).contains(&self.whole_extents(set)),
            "it must be a multiple of the stripe unit, and hold 1 to 2^36 extents",
        )?;
        size(
            "the offset of a set on each member",
            set.member_offset_bytes,
            set.member_offset_bytes >= LABEL_BYTES
                && set.member_offset_bytes.is_multiple_of(LINE_SIZE)
                && set.member_offset_bytes <= 1 << 50,
            "it must be a multiple of 4 KiB, behind the label of 1 MiB",
        )
    }
}
