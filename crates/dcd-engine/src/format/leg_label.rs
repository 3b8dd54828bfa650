//! The label of a leg, in two copies: which cache, which leg, who counts, and which regions may
//! differ between legs after a crash.
//!
//! All legs of a cache-disk hold the same bytes at the same places but for their labels. A label
//! decides who is believed, so it decides by *tags*, which are random, and by who names whose; a
//! counter would be equal on two legs that each ran alone.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::COUNTER_END;
use super::checksum::crc32c_with_hole;
use super::layout::{FieldLayout, layout_of};
use super::preamble::{CHECKSUM_OFFSET, Preamble};
use crate::buffer::Buffer;
use crate::error::FormatError;
use crate::units::Uuid;

/// "dcdCLEGS" in ASCII, read as a little-endian number.
pub const MAGIC: u64 = u64::from_le_bytes(*b"dcdCLEGS");
/// The version of a label that names no witness.
pub const VERSION: u32 = 1;
/// The version of one that does. A program that does not know of it would change who counts without
/// its word.
pub const VERSION_WITH_WITNESS: u32 = 2;
/// Byte addresses of the two copies on a leg: behind those of the superblock.
pub const LEG_LABEL_OFFSETS: [u64; 2] = [4 << 10, 68 << 10];
/// Size of a label.
pub const LEG_LABEL_BYTES: usize = 4096;
/// Most legs of a cache-disk.
pub const LEGS_MAX: usize = 4;
/// Tags that a label remembers.
pub const PAST_TAGS: usize = 96;
/// Most regions that a label marks.
pub const MARKS_MAX: usize = 768;
/// Smallest and largest region. Of the smallest, a label marks as many as the longest write touches
/// (a segment of 4 MiB).
pub const REGION_BYTES_MIN: u32 = 64 << 10;
/// See [`REGION_BYTES_MIN`].
pub const REGION_BYTES_MAX: u32 = 64 << 20;
const WHAT: &str = "the label of the leg";

/// Names a membership: random, never 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tag(pub u64);

/// Who must have what is called durable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Membership {
    /// Its name.
    pub tag: Tag,
    /// Those before it, the newest first; at most [`PAST_TAGS`].
    pub past: Vec<Tag>,
    /// The legs in sync: 1 to [`LEGS_MAX`].
    pub members: Vec<Uuid>,
    /// Who has a say, and holds no data: with it a start needs one of the members only.
    pub witness: Option<Uuid>,
}

impl Membership {
    /// The one that follows.
    pub fn next(&self, tag: Tag, members: Vec<Uuid>, witness: Option<Uuid>) -> Membership {
        self.next_keeping(tag, members, witness, &[])
    }

    /// The same. Where tags have no room any more, those of `keep` stay, which are far fewer.
    pub fn next_keeping(
        &self,
        tag: Tag,
        members: Vec<Uuid>,
        witness: Option<Uuid>,
        keep: &[Tag],
    ) -> Membership {
        let mut past: Vec<Tag> = [self.tag].into_iter().chain(self.past.iter().copied()).collect();
        while past.len() > PAST_TAGS {
            let oldest = past.iter().rposition(|tag| !keep.contains(tag));
            past.remove(oldest.unwrap_or(PAST_TAGS));
        }
        Membership { tag, past, members, witness }
    }

    /// Whether they have a tag in common: else nobody can say which is older, or whether they went
    /// apart.
    pub fn is_related_to(&self, other: &Membership) -> bool {
        let tags = [self.tag].into_iter().chain(self.past.iter().copied());
        tags.into_iter().any(|tag| other.knows(tag))
    }

    /// Whether this is a member of it, or its witness.
    pub fn names(&self, leg: Uuid) -> bool {
        self.members.contains(&leg) || self.witness == Some(leg)
    }

    /// Whether it is this one, or follows it.
    pub fn knows(&self, tag: Tag) -> bool {
        self.tag == tag || self.past.contains(&tag)
    }
}

/// What a leg is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LegState {
    /// It holds all that its membership calls durable.
    Member,
    /// It is being filled: what it holds is believed by nobody.
    Filling,
    /// It is no leg, but the witness: it has this label and nothing else.
    Witness,
}

impl LegState {
    fn code(self) -> u32 {
        match self {
            LegState::Member => 1,
            LegState::Filling => 2,
            LegState::Witness => 3,
        }
    }
}

/// A label in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LegLabel {
    /// The cache.
    pub cache: Uuid,
    /// This leg, or the witness.
    pub leg: Uuid,
    /// Counts the labels that were written. Legs of one membership differ by one at most; a witness
    /// counts its own.
    pub number: u64,
    /// What it is.
    pub state: LegState,
    /// Who counts.
    pub membership: Membership,
    /// All members have the membership: somebody may have been answered under it.
    pub is_in_force: bool,
    /// Size of a region: a power of two.
    pub region_bytes: u32,
    /// Regions that may differ between members after a crash, ascending; at most [`MARKS_MAX`].
    pub marks: Vec<u32>,
    /// Of the other copy, the witness. What a killed program wrote last can be read, and may be lost
    /// with the power: then that copy counts again.
    pub witness_before: Option<Uuid>,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct LegLabelOnDisk {
    pub(crate) magic: U64,
    pub(crate) version: U32,
    pub(crate) checksum: U32,
    pub(crate) cache: [u8; 16],
    pub(crate) leg: [u8; 16],
    pub(crate) number: U64,
    pub(crate) tag: U64,
    pub(crate) past: [U64; PAST_TAGS],
    pub(crate) members: [[u8; 16]; LEGS_MAX],
    pub(crate) members_count: U32,
    pub(crate) state: U32,
    pub(crate) is_in_force: U32,
    pub(crate) region_bytes: U32,
    pub(crate) marks_count: U32,
    pub(crate) marks: [U32; MARKS_MAX],
    pub(crate) witness: [u8; 16],
    pub(crate) unused: [u8; 92],
}

const _: () = assert!(size_of::<LegLabelOnDisk>() == LEG_LABEL_BYTES);
const _: () = assert!(std::mem::offset_of!(LegLabelOnDisk, checksum) == CHECKSUM_OFFSET);

/// Every field of a label, in order: what `docs/disk-format.md` says in words.
pub fn layout() -> Vec<FieldLayout> {
    layout_of!(LegLabelOnDisk {
        magic,
        version,
        checksum,
        cache,
        leg,
        number,
        tag,
        past,
        members,
        members_count,
        state,
        is_in_force,
        region_bytes,
        marks_count,
        marks,
        witness,
        unused,
    })
}

impl LegLabel {
    /// That of a new cache-disk on these legs, for the leg with that index.
    pub fn of_new(cache: Uuid, legs: &[Uuid], index: usize, tag: Tag) -> LegLabel {
        LegLabel {
            cache,
            leg: legs[index],
            number: 1,
            state: LegState::Member,
            membership: Membership { tag, past: Vec::new(), members: legs.to_vec(), witness: None },
            is_in_force: true,
            region_bytes: 1 << 20,
            marks: Vec::new(),
            witness_before: None,
        }
    }

    /// The same with a witness.
    pub fn with_witness(mut self, witness: Uuid) -> LegLabel {
        self.membership.witness = Some(witness);
        self
    }

    /// That of the witness of a leg with this label.
    ///
    /// # Panics
    /// If that names none.
    pub fn of_witness(&self) -> LegLabel {
        let leg = self.membership.witness.expect("it names one");
        LegLabel { leg, state: LegState::Witness, marks: Vec::new(), ..self.clone() }
    }

    /// The newest membership that was in force, as this label knows it: nobody was answered under
    /// a later one.
    pub fn base(&self) -> Tag {
        let before = self.membership.past.first().filter(|_| !self.is_in_force);
        before.copied().unwrap_or(self.membership.tag)
    }

    /// Where the label with this number goes: the other copy is the one before it.
    pub fn offset(number: u64) -> u64 {
        LEG_LABEL_OFFSETS[(number % 2) as usize]
    }

    /// The bytes of the label.
    ///
    /// # Panics
    /// If it has more legs, tags or marks than there is room for.
    pub fn encode(&self) -> Buffer {
        let mut disk = LegLabelOnDisk::new_zeroed();
        disk.magic = MAGIC.into();
        disk.version = match self.membership.witness {
            Some(_) => VERSION_WITH_WITNESS.into(),
            None => VERSION.into(),
        };
        disk.cache = self.cache.0;
        disk.leg = self.leg.0;
        disk.number = self.number.into();
        disk.tag = self.membership.tag.0.into();
        for (place, tag) in self.membership.past.iter().enumerate() {
            disk.past[place] = tag.0.into();
        }
        for (place, member) in self.membership.members.iter().enumerate() {
            disk.members[place] = member.0;
        }
        disk.members_count = (self.membership.members.len() as u32).into();
        disk.state = self.state.code().into();
        disk.is_in_force = u32::from(self.is_in_force).into();
        disk.region_bytes = self.region_bytes.into();
        disk.marks_count = (self.marks.len() as u32).into();
        for (place, mark) in self.marks.iter().enumerate() {
            disk.marks[place] = (*mark).into();
        }
        disk.witness = self.membership.witness.unwrap_or(Uuid([0; 16])).0;
        disk.checksum = crc32c_with_hole(disk.as_bytes(), CHECKSUM_OFFSET).into();
        Buffer::copy_of(disk.as_bytes())
    }

    /// The newer of two copies; a driver reads both, and what it cannot read is no copy.
    ///
    /// # Errors
    /// What is wrong with the first, if neither is valid.
    pub fn newest(copy_0: &[u8], copy_1: &[u8]) -> Result<LegLabel, FormatError> {
        let (newest, other) = match (LegLabel::decode(copy_0), LegLabel::decode(copy_1)) {
            (Ok(first), Ok(second)) if second.number > first.number => (second, Some(first)),
            (Ok(first), second) => (first, second.ok()),
            (Err(_), Ok(second)) => (second, None),
            (Err(error), Err(_)) => return Err(error),
        };
        let witness_before = other
            .filter(|other| other.cache == newest.cache)
            .and_then(|other| other.membership.witness);
        Ok(LegLabel { witness_before, ..newest })
    }

    /// Reads a copy. Every byte may be anything.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<LegLabel, FormatError> {
        let of_version = |version| Preamble { what: WHAT, magic: MAGIC, version };
        let with_witness = of_version(VERSION_WITH_WITNESS);
        let has_witness = with_witness.identify::<LegLabelOnDisk>(bytes).is_ok();
        let version = if has_witness { with_witness } else { of_version(VERSION) };
        let (disk, _) = version.verify::<LegLabelOnDisk>(bytes)?;
        let witness = Some(Uuid(disk.witness)).filter(|_| has_witness);
        let count = |name, count: U32, min: usize, max: usize| match count.get() as usize {
            count if (min..=max).contains(&count) => Ok(count),
            count => Err(field(name, count as u64)),
        };
        let members = count("members_count", disk.members_count, 1, LEGS_MAX)?;
        let members: Vec<Uuid> = disk.members[..members].iter().map(|uuid| Uuid(*uuid)).collect();
        if (1..members.len()).any(|place| members[..place].contains(&members[place])) {
            return Err(field("members", members.len() as u64));
        }
        let marks = count("marks_count", disk.marks_count, 0, MARKS_MAX)?;
        let marks: Vec<u32> = disk.marks[..marks].iter().map(|mark| mark.get()).collect();
        if let Some(pair) = marks.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Err(field("marks", pair[1].into()));
        }
        let state = match disk.state.get() {
            1 => LegState::Member,
            2 => LegState::Filling,
            3 => LegState::Witness,
            state => return Err(field("state", state.into())),
        };
        let is_in_force = match disk.is_in_force.get() {
            0 => false,
            1 => true,
            other => return Err(field("is_in_force", other.into())),
        };
        let (tag, number) = (disk.tag.get(), disk.number.get());
        if tag == 0 {
            return Err(field("tag", tag));
        }
        if number >= COUNTER_END {
            return Err(field("number", number));
        }
        let region_bytes = disk.region_bytes.get();
        let is_size = (REGION_BYTES_MIN..=REGION_BYTES_MAX).contains(&region_bytes);
        if !is_size || !region_bytes.is_power_of_two() {
            return Err(field("region_bytes", region_bytes.into()));
        }
        let past = disk.past.iter().map(|tag| Tag(tag.get())).take_while(|tag| tag.0 != 0);
        let (cache, leg) = (Uuid(disk.cache), Uuid(disk.leg));
        // It is none of the legs; and only who has its name is it.
        let is_witness = state == LegState::Witness;
        let is_one =
            |it: Uuid| it.0 != [0; 16] && !members.contains(&it) && (it == leg) == is_witness;
        if witness.is_some_and(|it| !is_one(it)) || is_witness && witness.is_none() {
            return Err(field("witness", disk.state.get().into()));
        }
        if is_witness && !marks.is_empty() {
            return Err(field("marks_count", marks.len() as u64));
        }
        let membership = Membership { tag: Tag(tag), past: past.collect(), members, witness };
        let witness_before = None;
        Ok(LegLabel {
            cache,
            leg,
            number,
            state,
            membership,
            is_in_force,
            region_bytes,
            marks,
            witness_before,
        })
    }
}

/// A field has a value that it cannot have.
pub(crate) fn field(field: &'static str, found: u64) -> FormatError {
    FormatError::Field { what: WHAT, field, found }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_back() {
        let legs = [Uuid([1; 16]), Uuid([2; 16])];
        let mut label = LegLabel::of_new(Uuid([7; 16]), &legs, 1, Tag(9));
        label.marks = vec![0, 5, 77];
        label.membership = label.membership.next(Tag(10), vec![legs[1]], None);
        assert_eq!(LegLabel::decode(label.encode().bytes()), Ok(label.clone()));
        assert_eq!(label.encode().bytes()[8..12], VERSION.to_le_bytes());
        let named = label.clone().with_witness(Uuid([3; 16]));
        assert_eq!(LegLabel::decode(named.encode().bytes()), Ok(named.clone()));
        assert_eq!(named.encode().bytes()[8..12], VERSION_WITH_WITNESS.to_le_bytes());
        let witness = named.of_witness();
        assert_eq!(LegLabel::decode(witness.encode().bytes()), Ok(witness));
        let newer = LegLabel { number: 2, ..label.clone() };
        let newest = |a: &[u8], b: &[u8]| LegLabel::newest(a, b).ok();
        let (old, new) = (label.encode(), newer.encode());
        assert_eq!(newest(old.bytes(), new.bytes()), Some(newer.clone()));
        assert_eq!(newest(new.bytes(), old.bytes()), Some(newer));
        assert_eq!(newest(old.bytes(), &[]), Some(label.clone()));
        assert_eq!(newest(&[], &[]), None);
        // Of the copy before, its witness is known; of another cache there is none.
        let newer = LegLabel { number: 2, ..label.clone() };
        let before = |old: &LegLabel| {
            newest(old.encode().bytes(), newer.encode().bytes()).unwrap().witness_before
        };
        assert_eq!((before(&label), before(&named)), (None, Some(Uuid([3; 16]))));
        assert_eq!(before(&LegLabel { cache: Uuid([8; 16]), ..named }), None);
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        let label = LegLabel::of_new(Uuid([7; 16]), &[Uuid([1; 16])], 0, Tag(9));
        let named = label.clone().with_witness(Uuid([3; 16]));
        let witness = named.of_witness();
        for (bad, name) in [
            (LegLabel { marks: vec![3, 3], ..label.clone() }, "marks"),
            (LegLabel { number: COUNTER_END, ..label.clone() }, "number"),
            (LegLabel { region_bytes: 70_000, ..label.clone() }, "region_bytes"),
            (LegLabel { region_bytes: 32 << 10, ..label.clone() }, "region_bytes"),
            (label_with(&label, Vec::new()), "members_count"),
            (label_with(&label, vec![label.leg; 2]), "members"),
            (label.clone().with_witness(label.leg), "witness"),
            (label.clone().with_witness(Uuid([0; 16])), "witness"),
            (LegLabel { state: LegState::Witness, ..label.clone() }, "witness"),
            (LegLabel { state: LegState::Witness, ..named }, "witness"),
            (LegLabel { state: LegState::Member, ..witness.clone() }, "witness"),
            (LegLabel { marks: vec![1], ..witness }, "marks_count"),
        ] {
            let error = LegLabel::decode(bad.encode().bytes()).unwrap_err();
            assert!(matches!(error, FormatError::Field { field, .. } if field == name), "{error}");
        }
    }

    fn label_with(label: &LegLabel, members: Vec<Uuid>) -> LegLabel {
        let membership = Membership { members, ..label.membership.clone() };
        LegLabel { membership, ..label.clone() }
    }

    #[test]
    fn a_membership_knows_those_before_it() {
        let mut membership = Membership {
            tag: Tag(1),
            past: Vec::new(),
            members: vec![Uuid([1; 16])],
            witness: None,
        };
        for tag in 2..=100 {
            membership = membership.next(Tag(tag), membership.members.clone(), None);
        }
        assert!((4..=100).all(|tag| membership.knows(Tag(tag))));
        assert!(!membership.knows(Tag(3)) && !membership.knows(Tag(101)));
    }
}
