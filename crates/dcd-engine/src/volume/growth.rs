//! A volume that grows: what it is made of then. How it gets there is in `paths/grow.rs`.
//!
//! The set that lies last on its members takes what is behind it. For any other set there is a new
//! one of the same form, behind all sets. So nothing that is on the members has another place, and
//! of all tables what they say of a place stays true.

use super::config::{
    LABEL_BYTES, SET_MEMBER_BYTES_MAX, SETS_MAX, SetConfig, VolumeConfig, VolumeConfigError,
};
use super::extents::SET_EXTENTS_MAX;
use super::format::area::VolumeArea;
use super::format::header::VolumeHeader;
use crate::units::MemberIndex;

/// What is to become of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Growth {
    /// The set that grows; `None`: the one that lies last.
    pub set: Option<u8>,
    /// Size that users are to see; `None`: all that the sets hold.
    pub logical_bytes: Option<u64>,
    /// Bytes that the disk of each member has now, in order; `None`: nobody can say.
    pub member_bytes: Vec<Option<u64>>,
    /// Bytes of the cache-disk, of the smallest leg if there are several.
    pub cache_disk_bytes: u64,
}

/// Why a volume cannot grow so.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GrowthError {
    /// There is no such set.
    #[error("the volume has no set {set}, but {sets}, numbered from 0")]
    NoSet {
        /// Which.
        set: u8,
        /// How many there are.
        sets: usize,
    },
    /// It has as many sets as a volume can have.
    #[error("set {set} is not the last on its members, and a volume has at most {SETS_MAX} sets")]
    TooManySets {
        /// Which was to grow.
        set: u8,
    },
    /// A member is away.
    #[error("member {} is not there, or not up to date", .0.0)]
    Away(MemberIndex),
    /// Nothing was added for anybody.
    #[error("member {} has {found} bytes, and at least {needed} are needed", member.0)]
    NoRoom {
        /// The smallest of those concerned.
        member: MemberIndex,
        /// What it would need at least.
        needed: u64,
        /// What it has.
        found: u64,
    },
    /// Fewer bytes than now.
    #[error("the volume has {now} bytes, and cannot shrink to {wanted}")]
    Shrinks {
        /// Its size.
        now: u64,
        /// The one that was asked for.
        wanted: u64,
    },
    /// More bytes than there would be.
    #[error("the sets would hold {most} bytes, and {wanted} are wanted")]
    TooLarge {
        /// The one that was asked for.
        wanted: u64,
        /// The largest.
        most: u64,
    },
    /// The tables have no room.
    #[error("the cache-disk has {found} bytes, and its tables need {needed}")]
    CacheDisk {
        /// Bytes needed.
        needed: u64,
        /// Bytes there.
        found: u64,
    },
    /// The log has grown, and what it has grown by lies where the tables would go.
    #[error(
        "the log has another size than it was made with, on {made_with} bytes of the cache-disk"
    )]
    LogIsResized {
        /// Bytes that it was made to use.
        made_with: u64,
    },
    /// A memory in front of the log knows how large the volume is.
    #[error("a memory in front of the log is in use")]
    HasMemory,
    /// What it would be made of cannot be.
    #[error(transparent)]
    Config(#[from] VolumeConfigError),
    /// Tables would be too large.
    #[error("there would be too many tables")]
    Tables,
    /// Its tables would lie where no superblock can say that they do.
    #[error("the tables would lie too far behind on the cache-disk: {0}")]
    Superblock(String),
}

/// A volume as it is to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Grown {
    pub(crate) header: VolumeHeader,
    /// Its tables, on the cache-disk.
    pub(crate) area: VolumeArea,
}

/// What a disk must have to be a member of such a volume.
pub(super) fn bytes_needed(config: &VolumeConfig, area: &VolumeArea, member: MemberIndex) -> u64 {
    let of_twin = config.twin_offset_bytes().map_or(0, |offset| offset + area.twin_bytes());
    let sets = config.sets.iter().filter(|set| set.members.contains(&member));
    let of_sets = sets.map(SetConfig::end_bytes).max();
    of_sets.unwrap_or(0).max(of_twin)
}

/// Who has too little for it.
fn no_room(smallest: &Grown, sizes: &[u64]) -> GrowthError {
    let needs = |(member, found): (MemberIndex, &u64)| {
        let needed = bytes_needed(&smallest.header.config, &smallest.area, member);
        (needed > *found).then_some(GrowthError::NoRoom { member, needed, found: *found })
    };
    let mut needs = (0..).map(MemberIndex).zip(sizes).filter_map(needs);
    needs.next().unwrap_or(GrowthError::Tables)
}

impl Growth {
    /// A volume with this header, and tables like these, as it is to be; with these on the
    /// cache-disk from `offset` on.
    pub(super) fn of(
        &self,
        header: &VolumeHeader,
        area: &VolumeArea,
        offset: u64,
    ) -> Result<Grown, GrowthError> {
        let config = &header.config;
        let sizes = self.sizes_of_members(config)?;
        let (mut sets, set) = self.sets(config)?;
        let form = |member_bytes: u64, sets: &mut [SetConfig]| {
            sets[set].member_bytes = member_bytes;
            let mut config =
                VolumeConfig { members: sizes.len(), sets: sets.to_vec(), ..config.clone() };
            config.logical_bytes = config.capacity_bytes() - config.temporary_bytes;
            let pointers_max = area.pointer_slots();
            let header = VolumeHeader { config, pointers_max, ..header.clone() };
            let area = VolumeArea::of(&header, offset)?;
            Some(Grown { header, area })
        };
        let fits = |grown: &Grown| {
            let needed = |member| bytes_needed(&grown.header.config, &grown.area, member);
            (0..).map(MemberIndex).zip(&sizes).all(|(member, bytes)| needed(member) <= *bytes)
        };
        // The most stripes that fit everybody.
        let unit = sets[set].stripe_unit_bytes;
        let before = config.sets.get(set).map_or(0, SetConfig::stripes);
        let largest = sizes.iter().max().expect("members").min(&SET_MEMBER_BYTES_MAX);
        let in_set = SET_EXTENTS_MAX.saturating_mul(config.extent_bytes);
        let fit_in_set = in_set / (unit * sets[set].data_units());
        let most = (largest / unit).min(fit_in_set);
        let (mut least, mut most) = (before, 1 + most);
        while most.saturating_sub(least) > 1 {
            let stripes = least + (most - least) / 2;
            let is_possible = form(stripes * unit, &mut sets).is_some_and(|it| fits(&it));
            *if is_possible { &mut least } else { &mut most } = stripes;
        }
        // The least that brings an extent, and leaves the twin that there is as it is until there
        // is another.
        let start = sets[set].member_offset_bytes;
        let twin_end = config.twin_offset_bytes().map_or(0, |twin| twin + area.twin_bytes());
        let of_extent = config.extent_bytes.div_ceil(unit * sets[set].data_units());
        let stripes_min = twin_end.saturating_sub(start).div_ceil(unit).max(before + of_extent);
        if least < stripes_min {
            // What the sets hold already may be more than users see. A twin has to have room behind
            // the one that there is.
            let held = config.capacity_bytes() - config.temporary_bytes;
            let holds_more = set < config.sets.len() && held > config.logical_bytes;
            if !holds_more || config.twin_region_pages > 0 {
                let smallest = form(stripes_min * unit, &mut sets).ok_or(GrowthError::Tables)?;
                return Err(no_room(&smallest, &sizes));
            }
            least = before;
        }
        let mut grown = form(least * unit, &mut sets).ok_or(GrowthError::Tables)?;
        self.choose_size(config, &mut grown.header.config)?;
        grown.header.config.validate()?;
        grown.area = VolumeArea::of(&grown.header, offset).ok_or(GrowthError::Tables)?;
        Ok(grown)
    }

    fn sizes_of_members(&self, config: &VolumeConfig) -> Result<Vec<u64>, GrowthError> {
        let there = (0..config.members).map(|member| {
            let bytes = self.member_bytes.get(member).copied().flatten();
            bytes.ok_or(GrowthError::Away(MemberIndex(member as u8)))
        });
        there.collect()
    }

    /// All sets as they are to be, but for the slice of the one that grows, and which that is.
    fn sets(&self, config: &VolumeConfig) -> Result<(Vec<SetConfig>, usize), GrowthError> {
        let mut sets = config.sets.clone();
        let end = sets.iter().map(SetConfig::end_bytes).max().expect("a volume has sets");
        let last = sets.iter().rposition(|set| set.end_bytes() == end).expect("one ends last");
        let set = self.set.map_or(last, usize::from);
        let found = sets.get(set).cloned();
        let found = found.ok_or(GrowthError::NoSet { set: set as u8, sets: sets.len() })?;
        let is_behind = |other: &SetConfig| {
            other.member_offset_bytes >= found.end_bytes()
                && other.members.iter().any(|member| found.members.contains(member))
        };
        if !sets.iter().any(is_behind) {
            return Ok((sets, set));
        }
        if sets.len() == SETS_MAX {
            return Err(GrowthError::TooManySets { set: set as u8 });
        }
        sets.push(SetConfig {
            member_offset_bytes: end.next_multiple_of(LABEL_BYTES),
            member_bytes: found.stripe_unit_bytes,
            ..found
        });
        let set = sets.len() - 1;
        Ok((sets, set))
    }

    fn choose_size(
        &self,
        before: &VolumeConfig,
        grown: &mut VolumeConfig,
    ) -> Result<(), GrowthError> {
        let (now, most) = (before.logical_bytes, grown.logical_bytes);
        let Some(wanted) = self.logical_bytes else { return Ok(()) };
        if wanted < now {
            return Err(GrowthError::Shrinks { now, wanted });
        }
        if wanted > most {
            return Err(GrowthError::TooLarge { wanted, most });
        }
        grown.logical_bytes = wanted;
        Ok(())
    }
}

#[cfg(test)]
#[path = "growth_tests.rs"]
mod tests;
