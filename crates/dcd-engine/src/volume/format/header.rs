//! The header of a volume area: what the volume is made of. Written once, in two copies.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::buffer::Buffer;
use crate::error::FormatError;
use crate::format::checksum::crc32c_with_hole;
use crate::format::layout::{FieldLayout, layout_of};
use crate::format::preamble::{CHECKSUM_OFFSET, Preamble};
use crate::units::{MemberIndex, Uuid};
use crate::volume::attributes::Attributes;
use crate::volume::config::{MEMBERS_MAX, SETS_MAX, SetConfig, VolumeConfig};
use crate::volume::placement::{
    DeviceClass, PLACEMENT_RULES_MAX, Placement, PlacementRule, RaidLevel,
};

/// "dcdVOLUM" in ASCII, read as a little-endian number.
pub const MAGIC: u64 = u64::from_le_bytes(*b"dcdVOLUM");
/// The version that this program writes and reads.
pub const VERSION: u32 = 4;
/// Size of a copy.
pub const VOLUME_HEADER_BYTES: usize = 4096;
const WHAT: &str = "the header of the volume";
const PREAMBLE: Preamble = Preamble { what: WHAT, magic: MAGIC, version: VERSION };

/// The header in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeHeader {
    /// Which cache.
    pub uuid: Uuid,
    /// What the volume is made of.
    pub config: VolumeConfig,
    /// Pointers that its table has room for.
    pub pointers_max: u32,
    /// Size of the journal in bytes.
    pub journal_bytes: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct SetOnDisk {
    pub(crate) member_offset_bytes: U64,
    pub(crate) member_bytes: U64,
    pub(crate) stripe_unit_bytes: U32,
    pub(crate) level: u8,
    pub(crate) copies: u8,
    pub(crate) members: u8,
    pub(crate) class: u8,
    pub(crate) member: [u8; MEMBERS_MAX],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RuleOnDisk {
    pub(crate) required: U16,
    pub(crate) excluded: U16,
    pub(crate) levels: [u8; 3],
    /// 0: none, else that of the class and one.
    pub(crate) class: u8,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct VolumeHeaderOnDisk {
    pub(crate) magic: U64,
    pub(crate) version: U32,
    pub(crate) checksum: U32,
    pub(crate) uuid: [u8; 16],
    pub(crate) logical_bytes: U64,
    pub(crate) temporary_bytes: U64,
    pub(crate) migrate_bytes_per_second_max: U64,
    pub(crate) journal_bytes: U64,
    pub(crate) extent_bytes: U32,
    pub(crate) pointers_max: U32,
    pub(crate) members: U32,
    pub(crate) sets: U32,
    pub(crate) rules: U32,
    pub(crate) flags: U32,
    pub(crate) set: [SetOnDisk; SETS_MAX],
    pub(crate) rule: [RuleOnDisk; PLACEMENT_RULES_MAX],
    pub(crate) twin_region_pages: U32,
    pub(crate) unused: [u8; 3300],
}

const _: () = assert!(size_of::<VolumeHeaderOnDisk>() == VOLUME_HEADER_BYTES);
const _: () = assert!(std::mem::offset_of!(VolumeHeaderOnDisk, checksum) == CHECKSUM_OFFSET);

const FLAG_SELECTIVE_CACHING: u32 = 1;

/// Every field of the header, in order: what `docs/disk-format.md` says in words.
pub fn layout() -> Vec<FieldLayout> {
    layout_of!(VolumeHeaderOnDisk {
        magic,
        version,
        checksum,
        uuid,
        logical_bytes,
        temporary_bytes,
        migrate_bytes_per_second_max,
        journal_bytes,
        extent_bytes,
        pointers_max,
        members,
        sets,
        rules,
        flags,
        set,
        rule,
        twin_region_pages,
        unused,
    })
}

/// The same of a set in it.
pub fn set_layout() -> Vec<FieldLayout> {
    layout_of!(SetOnDisk {
        member_offset_bytes,
        member_bytes,
        stripe_unit_bytes,
        level,
        copies,
        members,
        class,
        member,
    })
}

/// The same of a placement rule in it.
pub fn rule_layout() -> Vec<FieldLayout> {
    layout_of!(RuleOnDisk { required, excluded, levels, class })
}

impl VolumeHeader {
    /// The bytes of a copy.
    ///
    /// # Panics
    /// If the configuration is not valid.
    pub fn encode(&self) -> Buffer {
        let config = &self.config;
        let mut disk = VolumeHeaderOnDisk::new_zeroed();
        disk.magic = MAGIC.into();
        disk.version = VERSION.into();
        disk.uuid = self.uuid.0;
        disk.logical_bytes = config.logical_bytes.into();
        disk.temporary_bytes = config.temporary_bytes.into();
        disk.migrate_bytes_per_second_max = config.migrate_bytes_per_second_max.into();
        disk.journal_bytes = self.journal_bytes.into();
        disk.extent_bytes = (config.extent_bytes as u32).into();
        disk.pointers_max = self.pointers_max.into();
        disk.members = (config.members as u32).into();
        disk.sets = (config.sets.len() as u32).into();
        disk.rules = (config.placement.rules().len() as u32).into();
        disk.twin_region_pages = config.twin_region_pages.into();
        disk.flags = if config.selective_caching { FLAG_SELECTIVE_CACHING } else { 0 }.into();
        for (on_disk, set) in disk.set.iter_mut().zip(&config.sets) {
            on_disk.member_offset_bytes = set.member_offset_bytes.into();
            on_disk.member_bytes = set.member_bytes.into();
            on_disk.stripe_unit_bytes = (set.stripe_unit_bytes as u32).into();
            on_disk.level = set.level.number();
            on_disk.copies = set.copies as u8;
            on_disk.class = set.class.number();
            on_disk.members = set.members.len() as u8;
            for (byte, member) in on_disk.member.iter_mut().zip(&set.members) {
                *byte = member.0;
            }
        }
        for (on_disk, rule) in disk.rule.iter_mut().zip(config.placement.rules()) {
            on_disk.required = rule.required.bits().into();
            on_disk.excluded = rule.excluded.bits().into();
            on_disk.levels = rule.levels.map(RaidLevel::number);
            on_disk.class = rule.class.map_or(0, |class| class.number() + 1);
        }
        disk.checksum = crc32c_with_hole(disk.as_bytes(), CHECKSUM_OFFSET).into();
        Buffer::copy_of(disk.as_bytes())
    }

    /// Reads one copy. Every byte may be anything.
    pub fn decode(bytes: &[u8]) -> Result<VolumeHeader, FormatError> {
        let (disk, _) = PREAMBLE.verify::<VolumeHeaderOnDisk>(bytes)?;
        let field = |field, found| FormatError::Field { what: WHAT, field, found };
        let flags = disk.flags.get();
        if flags & !FLAG_SELECTIVE_CACHING != 0 {
            return Err(field("flags", flags.into()));
        }
        let count = |name, found: u32, most: usize| match found as usize {
            count if count <= most => Ok(count),
            _ => Err(field(name, found.into())),
        };
        let mut sets = Vec::new();
        for on_disk in &disk.set[..count("sets", disk.sets.get(), SETS_MAX)?] {
            let members = count("members", on_disk.members.into(), MEMBERS_MAX)?;
            sets.push(SetConfig {
                level: RaidLevel::from_number(on_disk.level)
                    .ok_or_else(|| field("level", on_disk.level.into()))?,
                class: DeviceClass::from_number(on_disk.class)
                    .ok_or_else(|| field("class", on_disk.class.into()))?,
                members: on_disk.member[..members].iter().copied().map(MemberIndex).collect(),
                stripe_unit_bytes: on_disk.stripe_unit_bytes.get().into(),
                copies: on_disk.copies.into(),
                member_offset_bytes: on_disk.member_offset_bytes.get(),
                member_bytes: on_disk.member_bytes.get(),
            });
        }
        let mut rules = Vec::new();
        for on_disk in &disk.rule[..count("rules", disk.rules.get(), PLACEMENT_RULES_MAX)?] {
            let attributes = |name, bits: U16| {
                // The two halves of a contradiction may both be excluded.
                Attributes::of_rule(bits.get()).ok_or_else(|| field(name, bits.get().into()))
            };
            let mut levels = [RaidLevel::Raid0; 3];
            for (level, number) in levels.iter_mut().zip(on_disk.levels) {
                *level =
                    RaidLevel::from_number(number).ok_or_else(|| field("levels", number.into()))?;
            }
            let class = match on_disk.class.checked_sub(1).map(DeviceClass::from_number) {
                Some(None) => return Err(field("class of a rule", on_disk.class.into())),
                found => found.flatten(),
            };
            rules.push(PlacementRule {
                required: attributes("required", on_disk.required)?,
                excluded: attributes("excluded", on_disk.excluded)?,
                levels,
                class,
            });
        }
        let config = VolumeConfig {
            members: count("members", disk.members.get(), MEMBERS_MAX)?,
            sets,
            extent_bytes: disk.extent_bytes.get().into(),
            logical_bytes: disk.logical_bytes.get(),
            temporary_bytes: disk.temporary_bytes.get(),
            selective_caching: flags & FLAG_SELECTIVE_CACHING != 0,
            migrate_bytes_per_second_max: disk.migrate_bytes_per_second_max.get(),
            twin_region_pages: disk.twin_region_pages.get(),
            placement: Placement::new(rules)
                .map_err(|_| field("rules", disk.rules.get().into()))?,
        };
        if config.validate().is_err() {
            return Err(field("sets", disk.sets.get().into()));
        }
        let journal_bytes = disk.journal_bytes.get();
        if !super::area::is_journal_size(journal_bytes) {
            return Err(field("journal_bytes", journal_bytes));
        }
        let uuid = Uuid(disk.uuid);
        Ok(VolumeHeader { uuid, config, pointers_max: disk.pointers_max.get(), journal_bytes })
    }

    /// The first of the two copies that is valid.
    #[cfg(test)]
    pub(crate) fn either(copy_0: &[u8], copy_1: &[u8]) -> Result<VolumeHeader, FormatError> {
        VolumeHeader::decode(copy_0)
            .or_else(|error| VolumeHeader::decode(copy_1).map_err(|_| error))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Six members: RAID 1 on pairs, RAID 5, RAID 0.
    pub(crate) fn header() -> VolumeHeader {
        let members: Vec<MemberIndex> = (0..6).map(MemberIndex).collect();
        let set = |level, copies, place: u64| SetConfig {
            level,
            class: if level == RaidLevel::Raid1 { DeviceClass::Fast } else { DeviceClass::Slow },
            members: members.clone(),
            stripe_unit_bytes: 16 << 10,
            copies,
            member_offset_bytes: (1 << 20) + place * (4 << 20),
            member_bytes: 4 << 20,
        };
        let sets = vec![
            set(RaidLevel::Raid1, 2, 0),
            set(RaidLevel::Raid5, 1, 1),
            set(RaidLevel::Raid0, 1, 2),
        ];
        let mut config = VolumeConfig {
            members: 6,
            sets,
            extent_bytes: 64 << 10,
            logical_bytes: 0,
            temporary_bytes: 1 << 20,
            selective_caching: true,
            twin_region_pages: 16,
            migrate_bytes_per_second_max: 1 << 20,
            placement: Placement::default(),
        };
        config.logical_bytes = config.capacity_bytes() - config.temporary_bytes;
        VolumeHeader { uuid: Uuid([5; 16]), config, pointers_max: 1000, journal_bytes: 1 << 20 }
    }

    #[test]
    fn comes_back() {
        let header = header();
        assert_eq!(VolumeHeader::decode(header.encode().bytes()), Ok(header.clone()));
        let copy = header.encode();
        assert_eq!(VolumeHeader::either(&[0; 4096], copy.bytes()), Ok(header));
        assert!(VolumeHeader::either(&[0; 4096], &[0; 4096]).is_err());
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let spoil = |change: &dyn Fn(&mut VolumeHeaderOnDisk)| {
            let mut bytes = header().encode();
            let (disk, _) = VolumeHeaderOnDisk::mut_from_prefix(bytes.bytes_mut()).unwrap();
            change(disk);
            disk.checksum = crc32c_with_hole(disk.as_bytes(), CHECKSUM_OFFSET).into();
            VolumeHeader::decode(bytes.bytes()).unwrap_err()
        };
        type Change = fn(&mut VolumeHeaderOnDisk);
        let changes: [Change; 12] = [
            |disk| disk.flags = 8.into(),
            |disk| disk.sets = 9.into(),
            |disk| disk.sets = 0.into(),
            |disk| disk.set[0].members = 33,
            |disk| disk.set[0].level = 4,
            |disk| disk.set[0].member[1] = 0,
            |disk| disk.rules = 0.into(),
            |disk| disk.rule[0].levels = [1, 1, 0],
            |disk| disk.rule[0].required = (1 << 15).into(),
            |disk| disk.extent_bytes = 5000.into(),
            |disk| disk.logical_bytes = (1 << 60).into(),
            |disk| disk.journal_bytes = 5.into(),
        ];
        for change in changes {
            assert!(matches!(spoil(&change), FormatError::Field { .. }));
        }
    }
}
