//! Where the lines of a set lie on its members, and the parity of a stripe: arithmetic alone.
//!
//! A *stripe* is what lies at the same place of each member's slice: one stripe unit on every
//! member. RAID 5 is left-symmetric, as Linux md's default; with four members, `D` the data units
//! and `P` the parity:
//!
//! ```text
//! member   0   1   2   3
//! stripe 0 D0  D1  D2  P
//! stripe 1 D1  D2  P   D0
//! stripe 2 D2  P   D0  D1
//! stripe 3 P   D0  D1  D2
//! ```
//!
//! RAID 1 with more members than copies is striped: the copies of data unit `u` are on the members
//! `u * copies` and those behind it. Tests: each byte of each member holds exactly one thing, and
//! the ways there and back agree.

use super::config::SetConfig;
use super::placement::RaidLevel;
use crate::units::{LINE_SIZE, MemberIndex};

/// Number of a 4 KiB line of data within a set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SetLine(pub u64);

/// Where a line of data is in its set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Location {
    /// Which stripe.
    pub stripe: u64,
    /// Which data unit of the stripe.
    pub unit: u32,
    /// Which line of the unit.
    pub line_in_unit: u32,
}

/// What a stripe unit of a member holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Content {
    /// This data unit of the stripe, or a copy of it.
    Data(u32),
    /// The parity of the stripe.
    Parity,
}

/// The geometry of one set. A *place* is an index into the set's list of members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    level: RaidLevel,
    members: Vec<MemberIndex>,
    copies: usize,
    data_units: u32,
    unit_lines: u32,
    stripes: u64,
    member_offset_bytes: u64,
}

impl Layout {
    /// That of a set that [`VolumeConfig::validate`](super::config::VolumeConfig::validate) has
    /// accepted.
    pub fn new(set: &SetConfig) -> Layout {
        Layout {
            level: set.level,
            members: set.members.clone(),
            copies: set.copies as usize,
            data_units: set.data_units() as u32,
            unit_lines: (set.stripe_unit_bytes / LINE_SIZE) as u32,
            stripes: set.stripes(),
            member_offset_bytes: set.member_offset_bytes,
        }
    }

    /// Its RAID level.
    pub fn level(&self) -> RaidLevel {
        self.level
    }

    /// Number of places: members of the set.
    pub fn places(&self) -> usize {
        self.members.len()
    }

    /// Data units of a stripe.
    pub fn data_units(&self) -> u32 {
        self.data_units
    }

    /// Lines of a stripe unit.
    pub fn unit_lines(&self) -> u32 {
        self.unit_lines
    }

    /// Lines of data in a stripe.
    pub(crate) fn stripe_lines(&self) -> u64 {
        u64::from(self.data_units) * u64::from(self.unit_lines)
    }

    /// Number of stripes.
    pub fn stripes(&self) -> u64 {
        self.stripes
    }

    /// Lines of data that the set holds.
    pub fn lines(&self) -> u64 {
        self.stripes * self.stripe_lines()
    }

    /// Where a line is.
    pub fn locate(&self, line: SetLine) -> Location {
        assert!(line.0 < self.lines(), "{line:?} of a set of {} lines", self.lines());
        let within = line.0 % self.stripe_lines();
        Location {
            stripe: line.0 / self.stripe_lines(),
            unit: (within / u64::from(self.unit_lines)) as u32,
            line_in_unit: (within % u64::from(self.unit_lines)) as u32,
        }
    }

    /// Which line is there: [`Layout::locate`] backwards.
    pub(crate) fn line_of(&self, location: Location) -> SetLine {
        let Location { stripe, unit, line_in_unit } = location;
        assert!(
            stripe < self.stripes && unit < self.data_units && line_in_unit < self.unit_lines,
            "{location:?} of {self:?}"
        );
        let within = u64::from(unit) * u64::from(self.unit_lines) + u64::from(line_in_unit);
        SetLine(stripe * self.stripe_lines() + within)
    }

    /// The places that hold a data unit: one, or with RAID 1 as many as there are copies.
    pub fn data_places(&self, stripe: u64, unit: u32) -> std::ops::Range<usize> {
        assert!(unit < self.data_units, "data unit {unit} of {}", self.data_units);
        let unit = unit as usize;
        let first = match self.parity_place(stripe) {
            Some(parity) => (parity + 1 + unit) % self.places(),
            None => unit * self.copies,
        };
        first..first + self.copies
    }

    /// The place of the parity of a stripe, if the set has parity.
    pub fn parity_place(&self, stripe: u64) -> Option<usize> {
        let places = self.places();
        let from_the_end = (stripe % places as u64) as usize;
        (self.level == RaidLevel::Raid5).then_some(places - 1 - from_the_end)
    }

    /// What a place holds of a stripe.
    pub fn what_lies_at(&self, place: usize, stripe: u64) -> Content {
        let places = self.places();
        assert!(place < places, "place {place} of {places}");
        match self.parity_place(stripe) {
            Some(parity) if parity == place => Content::Parity,
            Some(parity) => Content::Data(((place + places - parity - 1) % places) as u32),
            None => Content::Data((place / self.copies) as u32),
        }
    }

    /// Rows of a stripe: its data units, and behind them the parity.
    pub(crate) fn rows(&self) -> u32 {
        self.data_units + u32::from(self.level == RaidLevel::Raid5)
    }

    /// The row of the parity, if the set has parity.
    pub(crate) fn parity_row(&self) -> Option<u32> {
        (self.level == RaidLevel::Raid5).then_some(self.data_units)
    }

    /// The places that hold a row.
    pub(crate) fn places_of_row(&self, stripe: u64, row: u32) -> std::ops::Range<usize> {
        match self.parity_place(stripe) {
            Some(parity) if row == self.data_units => parity..parity + 1,
            _ => self.data_places(stripe, row),
        }
    }

    /// The row that a place holds.
    pub(crate) fn row_at(&self, place: usize, stripe: u64) -> u32 {
        match self.what_lies_at(place, stripe) {
            Content::Data(unit) => unit,
            Content::Parity => self.data_units,
        }
    }

    /// The places that hold the same as this one, itself included: more than one with RAID 1 only.
    pub fn mirrors(&self, place: usize) -> std::ops::Range<usize> {
        let first = place / self.copies * self.copies;
        first..first + self.copies
    }

    /// The member at a place.
    pub fn member(&self, place: usize) -> MemberIndex {
        self.members[place]
    }

    /// The place of a member, if it is one of the set.
    pub fn place_of(&self, member: MemberIndex) -> Option<usize> {
        self.members.iter().position(|one| *one == member)
    }

    /// Whether a member has data of any of so many lines.
    pub(crate) fn has_lines_on(&self, first: SetLine, lines: u64, member: MemberIndex) -> bool {
        (first.0..first.0 + lines).any(|line| {
            let at = self.locate(SetLine(line));
            self.data_places(at.stripe, at.unit).any(|place| self.member(place) == member)
        })
    }

    /// Byte address of a line of a stripe unit, the same on every member of the set.
    pub fn offset(&self, stripe: u64, line_in_unit: u32) -> u64 {
        let lines = stripe * u64::from(self.unit_lines) + u64::from(line_in_unit);
        self.member_offset_bytes + lines * LINE_SIZE
    }
}

/// `target ^= source`, both of the same length. What is left after whole words is done byte by
/// byte.
pub(crate) fn xor_into(target: &mut [u8], source: &[u8]) {
    assert_eq!(target.len(), source.len(), "the parity of units of different lengths");
    let mut targets = target.chunks_exact_mut(8);
    let mut sources = source.chunks_exact(8);
    for (target, source) in targets.by_ref().zip(sources.by_ref()) {
        let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
        let word = word(target) ^ word(source);
        target.copy_from_slice(&word.to_ne_bytes());
    }
    for (target, source) in targets.into_remainder().iter_mut().zip(sources.remainder()) {
        *target ^= source;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::volume::placement::DeviceClass;

    fn set(level: RaidLevel, members: usize, copies: u32, unit: u64, stripes: u64) -> SetConfig {
        SetConfig {
            level,
            class: DeviceClass::Slow,
            // Not in order, so that places and members cannot be mixed up unseen.
            members: (0..members as u8).rev().map(MemberIndex).collect(),
            stripe_unit_bytes: unit,
            copies,
            member_offset_bytes: 1 << 20,
            member_bytes: stripes * unit,
        }
    }

    fn sets() -> impl Strategy<Value = SetConfig> {
        let raid0 = (1..8usize).prop_map(|members| (RaidLevel::Raid0, members, 1));
        let raid1 = (1..4usize, 2..5u32)
            .prop_map(|(units, copies)| (RaidLevel::Raid1, units * copies as usize, copies));
        let raid5 = (3..9usize).prop_map(|members| (RaidLevel::Raid5, members, 1));
        (prop_oneof![raid0, raid1, raid5], 0..3u32, 1..20u64).prop_map(
            |((level, members, copies), unit, stripes)| {
                set(level, members, copies, LINE_SIZE << unit, stripes)
            },
        )
    }

    proptest! {
        #[test]
        fn each_byte_of_a_member_holds_one_thing(set in sets()) {
            let layout = Layout::new(&set);
            prop_assert_eq!(layout.lines() * LINE_SIZE, set.capacity_bytes());
            let mut held = BTreeMap::new();
            for line in (0..layout.lines()).map(SetLine) {
                let at = layout.locate(line);
                prop_assert_eq!(layout.line_of(at), line);
                let places = layout.data_places(at.stripe, at.unit);
                prop_assert_eq!(places.len(), set.copies as usize);
                for place in places {
                    prop_assert_eq!(layout.what_lies_at(place, at.stripe), Content::Data(at.unit));
                    let address = (layout.member(place), layout.offset(at.stripe, at.line_in_unit));
                    prop_assert_eq!(held.insert(address, Some(line)), None);
                }
            }
            for stripe in 0..layout.stripes() {
                let Some(place) = layout.parity_place(stripe) else { continue };
                prop_assert_eq!(layout.what_lies_at(place, stripe), Content::Parity);
                for line in 0..layout.unit_lines() {
                    let address = (layout.member(place), layout.offset(stripe, line));
                    prop_assert_eq!(held.insert(address, None), None);
                }
            }
            // Nothing outside of the slice, and no room left over.
            let slice = set.member_offset_bytes..set.member_offset_bytes + set.member_bytes;
            prop_assert!(held.keys().all(|(_, offset)| slice.contains(offset)));
            let room = set.members.len() as u64 * set.member_bytes / LINE_SIZE;
            prop_assert_eq!(held.len() as u64, room);
        }

        #[test]
        fn parity_visits_every_member_in_turn(members in 3..9usize, from in 0..1000u64) {
            let layout = Layout::new(&set(RaidLevel::Raid5, members, 1, LINE_SIZE, 2000));
            let mut places: Vec<_> =
                (from..from + members as u64).map(|s| layout.parity_place(s).unwrap()).collect();
            prop_assert!(places.windows(2).all(|two| (two[1] + 1) % members == two[0]));
            places.sort_unstable();
            prop_assert_eq!(places, (0..members).collect::<Vec<_>>());
        }

        #[test]
        fn xor_is_that_of_each_byte(pairs in prop::collection::vec(any::<(u8, u8)>(), 0..40)) {
            let (mut target, source): (Vec<u8>, Vec<u8>) = pairs.iter().copied().unzip();
            xor_into(&mut target, &source);
            prop_assert_eq!(target, pairs.iter().map(|(a, b)| a ^ b).collect::<Vec<_>>());
        }
    }

    #[test]
    fn left_symmetric_as_md_has_it() {
        let layout = Layout::new(&set(RaidLevel::Raid5, 4, 1, LINE_SIZE, 4));
        let row = |stripe| (0..4).map(|place| layout.what_lies_at(place, stripe)).collect();
        let rows: Vec<Vec<Content>> = (0..4).map(row).collect();
        use Content::{Data, Parity};
        assert_eq!(rows[0], [Data(0), Data(1), Data(2), Parity]);
        assert_eq!(rows[1], [Data(1), Data(2), Parity, Data(0)]);
        assert_eq!(rows[2], [Data(2), Parity, Data(0), Data(1)]);
        assert_eq!(rows[3], [Parity, Data(0), Data(1), Data(2)]);
    }

    #[test]
    fn copies_are_beside_each_other() {
        let layout = Layout::new(&set(RaidLevel::Raid1, 6, 2, LINE_SIZE, 1));
        assert_eq!(layout.data_units(), 3);
        assert_eq!(layout.data_places(0, 1), 2..4);
        assert_eq!(layout.place_of(MemberIndex(0)), Some(5));
        assert_eq!(layout.place_of(MemberIndex(6)), None);
    }
}
