//! The configuration of a volume (`dcd create --volume CONFIG.toml`), and what becomes of it on
//! members of given sizes.
//!
//! ```toml
//! extent = "64k"
//! temporary = "5%"
//! [[set]]
//! level = 1
//! share = "20%"
//! [[set]]
//! level = 5
//! ```
//!
//! A set is a slice at the same place and of the same size on each of its members, behind the
//! label. Slices follow each other in the order of the file:
//!
//! ```text
//! member 0   label | set 0 | set 1          |
//! member 1   label | set 0 | set 1          |
//! member 2   label | ..... | set 1          | not used: this member is larger
//! ```
//!
//! Whatever is wrong is told with line and key, before anything is written. Reached by the byte
//! fuzzer.

use std::path::Path;

use dcd_engine::Uuid;
use dcd_engine::units::{LINE_SIZE, MemberIndex};
use dcd_engine::volume::attributes::Attributes;
use dcd_engine::volume::config::{
    EXTENT_BYTES_MAX, EXTENT_BYTES_MIN, LABEL_BYTES, MEMBERS_MAX, SETS_MAX, STRIPE_UNIT_BYTES_MAX,
    STRIPE_UNIT_BYTES_MIN, SetConfig, TWIN_REGION_PAGES_DEFAULT, VolumeConfig, VolumeConfigError,
};
use dcd_engine::volume::format::area::{
    JOURNAL_BYTES_MAX, JOURNAL_BYTES_MIN, VolumeArea, is_journal_size,
};
use dcd_engine::volume::format::header::VolumeHeader;
use dcd_engine::volume::format::journal::JOURNAL_PAYLOAD_LINES_MAX;
use dcd_engine::volume::placement::{
    DeviceClass, Placement, PlacementError, PlacementRule, RaidLevel,
};
use dcd_protocol::units_text::{format_size, parse_percent, parse_size};
use toml::de::{DeTable, DeValue};

use crate::toml_values::{
    Place, TableFileError, TableReader, ValueProblem, boolean, number, text, unfit, with,
};

/// Keys of the file.
pub const KEYS: [&str; 10] = [
    "extent",
    "size",
    "selective-caching",
    "migrate-max",
    "temporary",
    "journal",
    "pointers",
    "twin",
    "set",
    "placement",
];
/// Keys of a `[[set]]`.
pub const SET_KEYS: [&str; 7] =
    ["level", "class", "members", "copies", "stripe-unit", "share", "per-member"];
/// Keys of a `[[placement]]`.
pub const PLACEMENT_KEYS: [&str; 4] = ["all-of", "none-of", "levels", "class"];

const EXTENT_BYTES_DEFAULT: u64 = 64 << 10;
const STRIPE_UNIT_BYTES_DEFAULT: u64 = 64 << 10;
const MIGRATE_BYTES_PER_SECOND_DEFAULT: u64 = 50 << 20;
/// Of the RAID 0 sets, for temporary data.
const TEMPORARY_DEFAULT: Amount = Amount::Percent(5);
/// Pointers that the table has room for.
const POINTERS_DEFAULT: u32 = 1 << 16;
/// More would not fit into any memory for them.
const POINTERS_MAX: u32 = 1 << 30;
/// Share of the cache-disk that the journal takes, at most this much.
const JOURNAL_SHARE: u64 = 16;
const JOURNAL_BYTES_DEFAULT_MAX: u64 = 64 << 20;
/// The longest record (129 lines) finds room in an empty ring wherever that begins, also if it has
/// to skip the end.
const JOURNAL_BYTES_LEAST: u64 = 2 << 20;
const _: () = assert!(JOURNAL_BYTES_LEAST >= JOURNAL_BYTES_MIN);
const _: () = assert!(JOURNAL_BYTES_LEAST / LINE_SIZE > 2 * (JOURNAL_PAYLOAD_LINES_MAX as u64 + 1));
/// Members get the twin of the tables, without being asked, if it takes at most this part of them.
const TWIN_SHARE: u64 = 16;
/// No member is larger than what a slice may begin and end at.
const MEMBER_BYTES_MAX: u64 = 1 << 50;

/// How much of something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Amount {
    Percent(u8),
    Bytes(u64),
}

impl Amount {
    fn of(self, whole: u64) -> u64 {
        match self {
            Amount::Percent(percent) => (u128::from(whole) * u128::from(percent) / 100) as u64,
            Amount::Bytes(bytes) => bytes,
        }
    }
}

/// One `[[set]]`.
#[derive(Debug)]
struct SetFile {
    place: Place,
    level: RaidLevel,
    class: DeviceClass,
    members: Option<Vec<u8>>,
    copies: Option<u32>,
    stripe_unit_bytes: u64,
    /// On each member; none: a part of what is left.
    amount: Option<Amount>,
}

/// What the file says.
#[derive(Debug)]
pub struct VolumeFile {
    place: Place,
    extent_bytes: u64,
    size_bytes: Option<u64>,
    selective_caching: bool,
    migrate_bytes_per_second_max: u64,
    temporary: Option<Amount>,
    journal_bytes: Option<u64>,
    pointers_max: u32,
    /// Whether members get the tables once more; none: if that takes little of them.
    twin: Option<bool>,
    sets: Vec<SetFile>,
    placement: Placement,
}

/// Why there is no such volume.
#[derive(Debug, thiserror::Error)]
pub enum VolumeFileError {
    /// The file.
    #[error(transparent)]
    File(#[from] TableFileError),
    /// The table of placement.
    #[error("{place}: {problem}")]
    Placement {
        /// Where.
        place: Place,
        /// What is wrong.
        problem: PlacementError,
    },
    /// It does not fit to these members.
    #[error("{place}: {problem}")]
    Config {
        /// The set, or the beginning of the file.
        place: Place,
        /// What is wrong.
        problem: VolumeConfigError,
    },
    /// The twin of the tables is beyond the end of a member.
    #[error(
        "{place}: the twin of the tables ends at {} of each member, and member {member} has {}",
        format_size(*needed), format_size(*found)
    )]
    NoTwin {
        /// The file.
        place: Place,
        /// The member.
        member: u8,
        /// Where it would end.
        needed: u64,
        /// What is there.
        found: u64,
    },
    /// Not enough room on a member.
    #[error(
        "{place}: set {set} needs {} on each of its members, and member {member} has {} left",
        format_size(*needed), format_size(*left)
    )]
    NoRoom {
        /// The set.
        place: Place,
        /// Its number, from 0.
        set: usize,
        /// The member.
        member: u8,
        /// What it needs.
        needed: u64,
        /// What is there.
        left: u64,
    },
}

impl VolumeFileError {
    /// The next step, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            VolumeFileError::File(error) => error.hint(),
            VolumeFileError::NoTwin { .. } => Some(
                "it lies behind all sets: give those on larger members a smaller `per-member`, or `twin = false`"
                    .into(),
            ),
            VolumeFileError::Placement { problem: PlacementError::NotComplete, .. } => {
                Some("end with [[placement]] and levels = [0, 5, 1] alone".into())
            }
            VolumeFileError::Placement { problem: PlacementError::Levels, .. } => {
                Some("for example levels = [1, 5, 0]: the wanted one, then those to fall back to".into())
            }
            VolumeFileError::Placement { problem: PlacementError::TooMany { .. }, .. } => {
                Some("one rule may have several attributes, and the last one takes the rest".into())
            }
            VolumeFileError::Config { problem, .. } => match problem {
                VolumeConfigError::Count { what: "sets", .. } => {
                    Some("add a set: [[set]] and below it level = 5".into())
                }
                VolumeConfigError::Count { .. } => {
                    Some(
                        "each member is a disk, --data-disk of `dcd create`, in the order of their numbers"
                            .into(),
                    )
                }
                VolumeConfigError::SetMembers { .. } => Some(
                    "give it as many disks (--data-disk of `dcd create`, --members of `dcd simulate`), or another `level`; \
                     `members` are numbered from 0 in that order, and without `members` a set is on all"
                        .into(),
                ),
                VolumeConfigError::Member { .. } => Some(
                    "members are numbered from 0 in the order of --data-disk; without `members` a set is on all"
                        .into(),
                ),
                VolumeConfigError::TooSmall { .. } => {
                    Some("leave `size` out to use all that the sets hold".into())
                }
                VolumeConfigError::Size { .. } => {
                    Some("see docs/volume.md for what each size may be".into())
                }
                VolumeConfigError::Overlap { .. } => {
                    Some("let their shares of a member add up to 100% at most".into())
                }
            },
            VolumeFileError::NoRoom { .. } => {
                Some("give the sets smaller shares, or larger members".into())
            }
        }
    }
}

/// Reads a file; `-` is standard input.
///
/// # Errors
/// Of the file, or of what stands in it.
pub fn read(path: &Path) -> Result<VolumeFile, VolumeFileError> {
    let text = crate::small_file::read_text(path)
        .map_err(|source| TableFileError::Read { path: path.to_owned(), source })?;
    parse(path, &text)
}

/// What `text`, which came from `path`, says.
///
/// # Errors
/// With the place of what is wrong.
pub fn parse(path: &Path, text: &str) -> Result<VolumeFile, VolumeFileError> {
    let (reader, table) = TableReader::parse(path, text)?;
    let mut file = VolumeFile {
        place: reader.place(0..0),
        extent_bytes: EXTENT_BYTES_DEFAULT,
        size_bytes: None,
        selective_caching: false,
        migrate_bytes_per_second_max: MIGRATE_BYTES_PER_SECOND_DEFAULT,
        temporary: None,
        journal_bytes: None,
        pointers_max: POINTERS_DEFAULT,
        twin: None,
        sets: Vec::new(),
        placement: Placement::default(),
    };
    let mut rules = Vec::new();
    reader.each(table.get_ref(), "the file", &KEYS, |key, value| {
        match key {
            "extent" => {
                let range = (EXTENT_BYTES_MIN, EXTENT_BYTES_MAX);
                file.extent_bytes = power_of_two(value, range)?;
            }
            "size" => file.size_bytes = Some(with(value, parse_size)?),
            "selective-caching" => file.selective_caching = boolean(value)?,
            "migrate-max" => file.migrate_bytes_per_second_max = with(value, parse_size)?,
            "temporary" => file.temporary = Some(amount(value)?),
            "journal" => {
                let bytes: u64 = with(value, parse_size)?;
                if !is_journal_size(bytes) || bytes < JOURNAL_BYTES_LEAST {
                    let (least, most) =
                        (format_size(JOURNAL_BYTES_LEAST), format_size(JOURNAL_BYTES_MAX));
                    let expected = format!("expected {least} to {most}, a multiple of 4 KiB");
                    return Err(unfit(expected).into());
                }
                file.journal_bytes = Some(bytes);
            }
            "pointers" => {
                file.pointers_max = number(value)?;
                if file.pointers_max > POINTERS_MAX {
                    return Err(unfit(format!("expected at most {POINTERS_MAX}")).into());
                }
            }
            "twin" => file.twin = Some(boolean(value)?),
            "set" => file.sets = reader.tables(value, |place, table| set(reader, place, table))?,
            // "placement": `each` gives no others.
            _ => rules = reader.tables(value, |place, table| rule(reader, place, table))?,
        }
        Ok(())
    })?;
    if let Some((place, _)) = rules.first().cloned() {
        let rules = rules.into_iter().map(|(_, rule)| rule).collect();
        file.placement = Placement::new(rules)
            .map_err(|problem| VolumeFileError::Placement { place, problem })?;
    }
    Ok(file)
}

/// A size that is a power of two within `least..=most`.
fn power_of_two(value: &DeValue<'_>, (least, most): (u64, u64)) -> Result<u64, ValueProblem> {
    let bytes: u64 = with(value, parse_size)?;
    if bytes.is_power_of_two() && (least..=most).contains(&bytes) {
        return Ok(bytes);
    }
    let (least, most) = (format_size(least), format_size(most));
    Err(unfit(format!(
        "expected a power of two from {least} to {most}, found {}",
        format_size(bytes)
    )))
}

/// A share with `%`, or a size.
fn amount(value: &DeValue<'_>) -> Result<Amount, ValueProblem> {
    match value.as_str() {
        Some(text) if text.trim_end().ends_with('%') => {
            Ok(Amount::Percent(with(value, parse_percent)?))
        }
        _ => Ok(Amount::Bytes(with(value, parse_size)?)),
    }
}

fn level(value: &DeValue<'_>) -> Result<RaidLevel, ValueProblem> {
    let found: u64 = number(value)?;
    u8::try_from(found)
        .ok()
        .and_then(RaidLevel::from_number)
        .ok_or_else(|| unfit(format!("expected the RAID level 0, 1 or 5, found {found}")))
}

fn class(value: &DeValue<'_>) -> Result<DeviceClass, ValueProblem> {
    let found: String = text(value)?;
    DeviceClass::from_name(&found)
        .ok_or_else(|| unfit(format!("expected \"fast\" or \"slow\", found \"{found}\"")))
}

fn numbers<T>(
    value: &DeValue<'_>,
    most: usize,
    read: impl Fn(&DeValue<'_>) -> Result<T, ValueProblem>,
) -> Result<Vec<T>, ValueProblem> {
    let values = value.as_array();
    let values = values.ok_or_else(|| ValueProblem::expected("a list of numbers", value))?;
    if values.len() > most {
        return Err(unfit(format!("expected at most {most} numbers, found {}", values.len())));
    }
    values.iter().map(|value| read(value.get_ref())).collect()
}

fn set(
    reader: TableReader<'_>,
    place: Place,
    table: &DeTable<'_>,
) -> Result<SetFile, TableFileError> {
    const NAME: &str = "this [[set]]";
    let mut wanted = None;
    let mut set = SetFile {
        place,
        level: RaidLevel::Raid0,
        class: DeviceClass::Slow,
        members: None,
        copies: None,
        stripe_unit_bytes: STRIPE_UNIT_BYTES_DEFAULT,
        amount: None,
    };
    reader.each(table, NAME, &SET_KEYS, |key, value| {
        match key {
            "level" => wanted = Some(level(value)?),
            "class" => set.class = class(value)?,
            "members" => set.members = Some(numbers(value, MEMBERS_MAX, number)?),
            "copies" => set.copies = Some(number(value)?),
            "stripe-unit" => {
                let range = (STRIPE_UNIT_BYTES_MIN, STRIPE_UNIT_BYTES_MAX);
                set.stripe_unit_bytes = power_of_two(value, range)?;
            }
            _ if set.amount.is_some() => {
                return Err(unfit("`share` and `per-member` say the same; give one of them").into());
            }
            "share" => {
                let share = amount(value)?;
                if !matches!(share, Amount::Percent(1..)) {
                    return Err(unfit("expected a share of 1% to 100%, like \"20%\"").into());
                }
                set.amount = Some(share);
            }
            // "per-member"
            _ => set.amount = Some(Amount::Bytes(with(value, parse_size)?)),
        }
        Ok(())
    })?;
    match wanted {
        Some(level) => Ok(SetFile { level, ..set }),
        None => Err(TableFileError::Missing { place: set.place, key: "level", table: NAME }),
    }
}

fn rule(
    reader: TableReader<'_>,
    place: Place,
    table: &DeTable<'_>,
) -> Result<(Place, PlacementRule), TableFileError> {
    const NAME: &str = "this [[placement]]";
    let (mut required, mut excluded) = (Attributes::NONE, Attributes::NONE);
    let (mut levels, mut wanted) = (None, None);
    reader.each(table, NAME, &PLACEMENT_KEYS, |key, value| {
        match key {
            "all-of" => required = text(value)?,
            "none-of" => excluded = text(value)?,
            "class" => wanted = Some(class(value)?),
            _ => {
                let found = numbers(value, 3, level)?;
                let three = <[RaidLevel; 3]>::try_from(found);
                levels =
                    Some(three.map_err(|_| unfit("expected each of the levels 0, 1 and 5 once"))?);
            }
        }
        Ok(())
    })?;
    match levels {
        Some(levels) => Ok((place, PlacementRule { required, excluded, levels, class: wanted })),
        None => Err(TableFileError::Missing { place, key: "levels", table: NAME }),
    }
}

impl VolumeFile {
    /// The volume on members of these sizes, in bytes.
    pub fn plan(&self, member_bytes: &[u64]) -> Result<VolumeConfig, VolumeFileError> {
        let whole_file = |problem| VolumeFileError::Config { place: self.place.clone(), problem };
        let count = |what, found, most| match (1..=most).contains(&found) {
            true => Ok(()),
            false => Err(whole_file(VolumeConfigError::Count { what, found, most })),
        };
        count("members", member_bytes.len(), MEMBERS_MAX)?;
        count("sets", self.sets.len(), SETS_MAX)?;
        let (member_bytes, twin_region_pages) = self.room_beside_twin(member_bytes)?;
        let mut config = VolumeConfig {
            members: member_bytes.len(),
            sets: self.slices(&member_bytes)?,
            twin_region_pages,
            extent_bytes: self.extent_bytes,
            logical_bytes: 0,
            temporary_bytes: 0,
            selective_caching: self.selective_caching,
            migrate_bytes_per_second_max: self.migrate_bytes_per_second_max,
            placement: self.placement.clone(),
        };
        let raid0 = config.sets.iter().filter(|set| set.level == RaidLevel::Raid0);
        let raid0: u64 =
            raid0.map(|set| config.whole_extents(set).saturating_mul(config.extent_bytes)).sum();
        let temporary = self.temporary.unwrap_or(TEMPORARY_DEFAULT).of(raid0);
        config.temporary_bytes = temporary / self.extent_bytes * self.extent_bytes;
        let held = config.capacity_bytes().saturating_sub(config.temporary_bytes);
        config.logical_bytes = self.size_bytes.unwrap_or(held);
        if config.extents() > u64::from(u32::MAX) {
            let expected = "it has at most 2^32 extents: choose a larger `extent`";
            let found = config.logical_bytes;
            return Err(whole_file(VolumeConfigError::Size { what: "a volume", found, expected }));
        }
        config.validate().map_err(|problem| {
            let set = match problem {
                VolumeConfigError::SetMembers { set, .. }
                | VolumeConfigError::Member { set, .. }
                | VolumeConfigError::Overlap { second: set, .. } => self.sets.get(set),
                _ => None,
            };
            let place = set.map_or(&self.place, |set| &set.place).clone();
            VolumeFileError::Config { place, problem }
        })?;
        Ok(config)
    }

    /// What is left for sets on members of these sizes beside the twin of the tables, and how many
    /// pages of checksums that marks together; 0: there is none.
    fn room_beside_twin(&self, member_bytes: &[u64]) -> Result<(Vec<u64>, u32), VolumeFileError> {
        let without = (member_bytes.to_vec(), 0);
        if self.twin == Some(false) {
            return Ok(without);
        }
        let sets = self.slices(member_bytes)?;
        let mut config = VolumeConfig {
            members: member_bytes.len(),
            sets,
            extent_bytes: self.extent_bytes,
            logical_bytes: 0,
            temporary_bytes: 0,
            selective_caching: false,
            twin_region_pages: TWIN_REGION_PAGES_DEFAULT,
            migrate_bytes_per_second_max: 0,
            placement: Placement::default(),
        };
        config.logical_bytes = self.size_bytes.unwrap_or(config.capacity_bytes());
        // Larger sets than those that it leaves room for, and so at least as large as it will be.
        let journal = self.journal_bytes.unwrap_or(JOURNAL_BYTES_DEFAULT_MAX);
        let area = VolumeArea::new(&config, self.pointers_max, journal, 0);
        // That it would be too large is told when the cache-disk is looked at.
        let Some(area) = area else { return Ok(without) };
        // And what its beginning is rounded up by.
        let bytes = area.twin_bytes() + LABEL_BYTES;
        let smallest = member_bytes.iter().copied().min().unwrap_or(0);
        if self.twin.is_none() && bytes > smallest / TWIN_SHARE {
            return Ok(without);
        }
        let left: Vec<u64> = member_bytes.iter().map(|size| size.saturating_sub(bytes)).collect();
        // It lies behind all sets, at the same place on every member, those too that are smaller
        // than others and in none of the last sets.
        let fits = match self.slices(&left) {
            Ok(sets) => {
                let config = VolumeConfig { sets, ..config };
                let end = config.twin_offset_bytes().unwrap_or(0) + area.twin_bytes();
                member_bytes.iter().position(|size| *size < end).map(|member| (member, end))
            }
            Err(error) if self.twin == Some(true) => return Err(error),
            Err(_) => return Ok(without),
        };
        match fits {
            None => Ok((left, TWIN_REGION_PAGES_DEFAULT)),
            Some(_) if self.twin.is_none() => Ok(without),
            Some((member, needed)) => Err(VolumeFileError::NoTwin {
                place: self.place.clone(),
                // Fewer than 2^8.
                member: member as u8,
                needed,
                found: member_bytes[member],
            }),
        }
    }

    /// What stands on a cache-disk of this size.
    pub fn header(&self, uuid: Uuid, config: VolumeConfig, cache_disk_bytes: u64) -> VolumeHeader {
        let share = cache_disk_bytes / JOURNAL_SHARE / LINE_SIZE * LINE_SIZE;
        let default = share.clamp(JOURNAL_BYTES_LEAST, JOURNAL_BYTES_DEFAULT_MAX);
        let journal_bytes = self.journal_bytes.unwrap_or(default);
        VolumeHeader { uuid, config, pointers_max: self.pointers_max, journal_bytes }
    }

    /// The sets with their places, one after the other.
    fn slices(&self, member_bytes: &[u64]) -> Result<Vec<SetConfig>, VolumeFileError> {
        let space = |member: u8| {
            member_bytes[usize::from(member)].min(MEMBER_BYTES_MAX).saturating_sub(LABEL_BYTES)
        };
        let mut members_of = Vec::new();
        for (index, set) in self.sets.iter().enumerate() {
            // Fewer than 2^8 members: `plan` has counted them.
            let all = || (0..member_bytes.len() as u8).collect();
            let members: Vec<u8> = set.members.clone().unwrap_or_else(all);
            let unknown = members.iter().find(|it| usize::from(**it) >= member_bytes.len());
            let problem = match unknown {
                Some(member) => {
                    VolumeConfigError::Member { set: index, member: *member, why: "not there" }
                }
                None if members.is_empty() => VolumeConfigError::SetMembers {
                    set: index,
                    level: set.level.number(),
                    needed: "at least one",
                    found: 0,
                },
                None => {
                    members_of.push(members);
                    continue;
                }
            };
            return Err(VolumeFileError::Config { place: set.place.clone(), problem });
        }
        let smallest = |members: &[u8]| members.iter().map(|it| space(*it)).min().unwrap_or(0);
        // What a set takes on each of its members, where the file says so.
        let fixed: Vec<Option<u64>> = self
            .sets
            .iter()
            .zip(&members_of)
            .map(|(set, members)| Some(set.amount?.of(smallest(members))))
            .collect();

        let mut ends = vec![0u64; member_bytes.len()];
        let mut sets = Vec::new();
        for (index, set) in self.sets.iter().enumerate() {
            let members = &members_of[index];
            let start = members.iter().map(|it| ends[usize::from(*it)]).max().unwrap_or(0);
            // Of each member: what is left behind the beginning, without what later sets have asked
            // for.
            let left = |member: u8| {
                let later =
                    (index + 1..self.sets.len()).filter(|at| members_of[*at].contains(&member));
                let asked = later.filter_map(|at| fixed[at]).fold(0u64, u64::saturating_add);
                space(member).saturating_sub(start).saturating_sub(asked)
            };
            let sharing = |member: u8| {
                let here = |at: &usize| members_of[*at].contains(&member) && fixed[*at].is_none();
                (index..self.sets.len()).filter(here).count().max(1) as u64
            };
            let unit = set.stripe_unit_bytes;
            let equal = members.iter().map(|it| left(*it) / sharing(*it)).min().unwrap_or(0);
            let bytes = fixed[index].unwrap_or(equal) / unit * unit;
            let room = |member: &&u8| space(**member).saturating_sub(start) < bytes.max(unit);
            if let Some(member) = members.iter().find(room) {
                return Err(VolumeFileError::NoRoom {
                    place: set.place.clone(),
                    set: index,
                    member: *member,
                    needed: bytes.max(unit),
                    left: space(*member).saturating_sub(start),
                });
            }
            members.iter().for_each(|it| ends[usize::from(*it)] = start + bytes);
            let copies = match set.level {
                // Fewer than 2^8.
                RaidLevel::Raid1 => set.copies.unwrap_or(members.len() as u32),
                _ => set.copies.unwrap_or(1),
            };
            if set.level == RaidLevel::Raid1 && copies == 0 {
                let problem = VolumeConfigError::SetMembers {
                    set: index,
                    level: 1,
                    needed: "a multiple of its copies, at least two",
                    found: members.len(),
                };
                return Err(VolumeFileError::Config { place: set.place.clone(), problem });
            }
            sets.push(SetConfig {
                level: set.level,
                class: set.class,
                members: members.iter().map(|it| MemberIndex(*it)).collect(),
                stripe_unit_bytes: unit,
                copies,
                member_offset_bytes: LABEL_BYTES + start,
                member_bytes: bytes,
            });
        }
        Ok(sets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn file(text: &str) -> VolumeFile {
        parse(Path::new("v.toml"), text).unwrap()
    }

    fn problem(text: &str, members: &[u64]) -> (String, Option<String>) {
        let error = match parse(Path::new("v.toml"), text) {
            Ok(file) => file.plan(members).unwrap_err(),
            Err(error) => error,
        };
        (error.to_string(), error.hint())
    }

    #[test]
    fn a_twin_lies_behind_all_sets_of_every_member() {
        let sets = "[[set]]\nlevel = 1\nmembers = [0, 1]\n[[set]]\nlevel = 1\nmembers = [2, 3]\n";
        let alike = [200 * MIB; 4];
        let volume = file(sets).plan(&alike).unwrap();
        let end = volume.twin_offset_bytes().unwrap();
        assert!((180 * MIB..200 * MIB).contains(&end), "{end}");
        assert!(
            file(&format!("twin = false\n{sets}")).plan(&alike).unwrap().twin_region_pages == 0
        );
        // Too small, or of different sizes: without, unless it is asked for.
        let small = [30 * MIB; 4];
        assert_eq!(file(sets).plan(&small).unwrap().twin_offset_bytes(), None);
        let asked = format!("twin = true\n{sets}");
        assert!(file(&asked).plan(&small).unwrap().twin_offset_bytes().is_some());
        let different = [200 * MIB, 200 * MIB, 400 * MIB, 400 * MIB];
        assert_eq!(file(sets).plan(&different).unwrap().twin_offset_bytes(), None);
        let (problem, hint) = problem(&asked, &different);
        assert!(problem.contains("member 0 has 200 MiB"), "{problem}");
        assert!(hint.unwrap().contains("twin = false"));
        // Sets that fill the disks.
        let full = format!("{sets}per-member = \"199M\"\n");
        assert_eq!(file(&full).plan(&alike).unwrap().twin_offset_bytes(), None);
    }

    #[test]
    fn sets_share_what_is_left() {
        let text = "twin = false\n[[set]]\nlevel = 1\nshare = \"25%\"\n[[set]]\nlevel = 5\n[[set]]\nlevel = 0\n";
        let volume = file(text).plan(&[101 * MIB, 101 * MIB, 201 * MIB]).unwrap();
        let slices: Vec<_> =
            volume.sets.iter().map(|set| (set.member_offset_bytes, set.member_bytes)).collect();
        // 75 MiB are left for two, in units of 64 KiB.
        let half = 75 * MIB / 2;
        assert_eq!(
            slices,
            [(MIB, 25 * MIB), (26 * MIB, half), (26 * MIB + half, half)],
            "each as large on the large member"
        );
        assert_eq!((volume.sets[0].copies, volume.sets[1].copies), (3, 1));
        // 5 % of RAID 0, in whole extents.
        assert_eq!(volume.temporary_bytes, 3 * half / 20 / 65536 * 65536);
        assert_eq!(volume.logical_bytes, volume.capacity_bytes() - volume.temporary_bytes);
    }

    #[test]
    fn sets_on_different_members_leave_gaps_where_they_must() {
        // member   0       1       2
        // set 0    10      10      .
        // set 1    .       10      10
        // set 2    rest    .       rest   begins behind set 1, on member 0 too
        let text = "[[set]]\nlevel = 1\nmembers = [0, 1]\nper-member = \"10M\"\n\
                    [[set]]\nlevel = 1\nmembers = [1, 2]\nper-member = \"10M\"\n\
                    [[set]]\nlevel = 0\nmembers = [0, 2]\n";
        let volume = file(text).plan(&[41 * MIB; 3]).unwrap();
        assert_eq!(volume.sets[2].member_offset_bytes, 21 * MIB);
        assert_eq!(volume.sets[2].member_bytes, 20 * MIB);
    }

    #[test]
    fn all_keys() {
        let text = "extent = \"4k\"\nsize = \"8M\"\nselective-caching = true\n\
                    migrate-max = 0\njournal = \"2M\"\npointers = 9\ntemporary = \"1M\"\n\
                    [[set]]\nlevel = 0\nmembers = [1]\nstripe-unit = \"4k\"\nper-member = \"16M\"\n\
                    [[set]]\nlevel = 1\ncopies = 2\nclass = \"fast\"\n\
                    [[placement]]\nall-of = \"important,random\"\nnone-of = \"read-most\"\nlevels = [1, 5, 0]\n\
                    [[placement]]\nlevels = [0, 5, 1]\nclass = \"fast\"\n";
        let volume = file(text).plan(&[33 * MIB; 4]).unwrap();
        assert_eq!((volume.extent_bytes, volume.logical_bytes), (4096, 8 * MIB));
        assert!(volume.selective_caching);
        assert_eq!((volume.migrate_bytes_per_second_max, volume.temporary_bytes), (0, MIB));
        assert_eq!((volume.sets[1].copies, volume.sets[1].data_units()), (2, 2));
        let classes: Vec<DeviceClass> = volume.sets.iter().map(|set| set.class).collect();
        assert_eq!(classes, [DeviceClass::Slow, DeviceClass::Fast]);
        let classes: Vec<_> = volume.placement.rules().iter().map(|rule| rule.class).collect();
        assert_eq!(classes, [None, Some(DeviceClass::Fast)]);
    }

    #[test]
    fn problems_name_place_and_key_and_help() {
        let members = [65 * MIB; 3];
        let check = |text: &str, error: &str, hint: &str| {
            let (found, found_hint) = problem(text, &members);
            assert!(found.contains(error), "{found}");
            assert!(found_hint.clone().unwrap_or_default().contains(hint), "{found_hint:?}");
            assert!(!found.contains('\n'));
        };
        check("extent = \"64q\"", "v.toml:1:10: extent: ", "");
        check("extent = \"3k\"", "expected a power of two from 4 KiB to 16 MiB, found 3 KiB", "");
        check("[[set]]\nlevl = 5", "v.toml:2:1: there is no key `levl` in this [[set]]", "`level`");
        check("extnt = 5", "v.toml:1:1: there is no key `extnt` in the file", "`extent`");
        check("[[set]]\nmembers = [0]", "v.toml:1:1: `level` is missing", "level = ");
        check(
            "[[set]]\nlevel = 6",
            "v.toml:2:9: level: expected the RAID level 0, 1 or 5, found 6",
            "",
        );
        check("[[set]]\nlevel = \"5\"", "expected a number, found the string `5`", "quotes");
        check("[set]\nlevel = 5", "expected tables in double brackets", "");
        check("migrate-max = 0", "v.toml:1:1: a volume has 1 to 8 sets, not 0", "[[set]]");
        check(
            "\n[[set]]\nlevel = 5\nmembers = [0, 1]",
            "v.toml:2:1: set 0: RAID 5 needs at least three, and it has 2",
            "from 0",
        );
        check(
            "[[set]]\nlevel = 5\nmembers = [0]",
            "needs at least three, and it has 1 mem",
            "--data-disk",
        );
        check("[[set]]\nlevel = 0\nmembers = [3]", "set 0: member 3 is not there", "--data-disk");
        check("[[set]]\nlevel = 0\nmembers = [1, 1]", "member 1 is named twice", "--data-disk");
        check("[[set]]\nlevel = 0\nmembers = []", "has 0 members", "");
        check("[[set]]\nlevel = 1\ncopies = 0", "a multiple of its copies", "");
        check("[[set]]\nlevel = 1\ncopies = 2", "a multiple of its copies", "");
        check("journal = \"1k\"", "journal: expected 2 MiB to 1 GiB", "");
        check("pointers = 9999999999", "pointers: ", "");
        check("[[set]]\nlevel = 5\nshare = \"20\"", "expected a share of 1% to 100%", "");
        check("[[set]]\nlevel = 5\nshare = \"20%\"\nper-member = \"1G\"", "give one of them", "");
        check(
            "[[set]]\nlevel = 5\nper-member = \"1G\"",
            "set 0 needs 1 GiB on each of its members, and member 0 has 64 MiB left",
            "smaller shares",
        );
        check("size = \"1G\"\n[[set]]\nlevel = 5", "the sets hold", "leave `size` out");
        check("size = 1000\n[[set]]\nlevel = 5", "a multiple of the extent", "docs/volume.md");
        let placement = "[[set]]\nlevel = 0\n[[placement]]\nall-of = \"hot\"\nlevels = [0, 1, 5]\n";
        check(placement, "v.toml:3:1: the last placement rule must fit everything", "end with");
        let levels = placement.replace("[0, 1, 5]", "[0, 0, 5]");
        check(&levels, "each of the RAID levels 0, 1 and 5 once", "levels = [1, 5, 0]");
        check(&placement.replace("hot", "warm"), "there is no attribute `warm`", "");
        check(&placement.replace("hot", "hot,cold"), "contradict", "");
        let class = placement.replace("level = 0", "level = 0\nclass = \"quick\"");
        check(&class, "expected \"fast\" or \"slow\", found \"quick\"", "");
        // Members too small for anything.
        let (error, _) = problem("[[set]]\nlevel = 0", &[MIB]);
        assert!(error.contains("member 0 has 0 B left"), "{error}");
    }
}
