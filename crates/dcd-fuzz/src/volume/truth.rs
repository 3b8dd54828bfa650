//! What the members of a volume really hold, seen from outside: which lines can still be read, and
//! whether what is redundant agrees.

use std::collections::{BTreeMap, BTreeSet};

use dcd_engine::units::{LINE_SIZE, MemberIndex};
use dcd_engine::volume::config::VolumeConfig;
use dcd_engine::volume::placement::RaidLevel;
use dcd_engine::volume::raid::{Content, Layout, Location};

use crate::model::Violation;

/// Where a line of the volume is: a set, and a line of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LinePlace {
    /// Which set.
    pub set: usize,
    /// Which stripe of it.
    pub stripe: u64,
    /// Which data unit.
    pub unit: u32,
    /// Which line of the unit.
    pub line_in_unit: u32,
}

/// A line of each member of a set, at the same place.
pub type Column = (usize, u64, u32);

impl LinePlace {
    /// The column that it is in.
    pub fn column(self) -> Column {
        (self.set, self.stripe, self.line_in_unit)
    }
}

/// The sets of a volume.
pub struct Sets {
    layouts: Vec<Layout>,
}

impl Sets {
    /// Those of a volume.
    pub fn new(config: &VolumeConfig) -> Sets {
        Sets { layouts: config.sets.iter().map(Layout::new).collect() }
    }

    /// Layout of a set.
    pub fn layout(&self, set: usize) -> &Layout {
        &self.layouts[set]
    }

    /// What is at a byte address of a member, if that is data of this set.
    pub fn place_at(&self, set: usize, member: MemberIndex, offset: u64) -> Option<LinePlace> {
        let layout = self.layouts.get(set)?;
        let place = layout.place_of(member)?;
        let line = offset.checked_sub(layout.offset(0, 0))? / LINE_SIZE;
        let unit_lines = u64::from(layout.unit_lines());
        let (stripe, line_in_unit) = (line / unit_lines, (line % unit_lines) as u32);
        if stripe >= layout.stripes() {
            return None;
        }
        match layout.what_lies_at(place, stripe) {
            Content::Data(unit) => Some(LinePlace { set, stripe, unit, line_in_unit }),
            Content::Parity => None,
        }
    }

    /// The column with this byte of a member, if it is in a set.
    pub fn column_at(&self, member: MemberIndex, offset: u64) -> Option<Column> {
        self.layouts.iter().enumerate().find_map(|(set, layout)| {
            layout.place_of(member)?;
            let line = offset.checked_sub(layout.offset(0, 0))? / LINE_SIZE;
            let stripe = line / u64::from(layout.unit_lines());
            let line_in_unit = (line % u64::from(layout.unit_lines())) as u32;
            (stripe < layout.stripes()).then_some((set, stripe, line_in_unit))
        })
    }

    /// Byte addresses of all lines of a member that nothing else holds.
    pub fn raid0_lines(&self, member: MemberIndex) -> impl Iterator<Item = u64> {
        let layouts = self.layouts.iter().filter(move |layout| {
            layout.level() == RaidLevel::Raid0 && layout.place_of(member).is_some()
        });
        layouts.flat_map(|layout| {
            let slice = layout.offset(0, 0)..layout.offset(layout.stripes(), 0);
            slice.step_by(LINE_SIZE as usize)
        })
    }

    /// Whether a line cannot be read, nor be had from the others, if the lines are bad of which
    /// `is_bad` says so (given a member and a byte address).
    pub fn is_lost(&self, line: LinePlace, is_bad: impl Fn(MemberIndex, u64) -> bool) -> bool {
        let layout = &self.layouts[line.set];
        let offset = layout.offset(line.stripe, line.line_in_unit);
        let is_bad = |place: usize| is_bad(layout.member(place), offset);
        let is_gone = layout.data_places(line.stripe, line.unit).all(is_bad);
        let needs_all_others = layout.level() == RaidLevel::Raid5;
        is_gone && !(needs_all_others && (0..layout.places()).filter(|p| is_bad(*p)).count() == 1)
    }

    /// Whether two lines of a column with parity are bad.
    pub fn is_doubly_bad(&self, column: Column, is_bad: impl Fn(MemberIndex, u64) -> bool) -> bool {
        let (set, stripe, line_in_unit) = column;
        let layout = &self.layouts[set];
        let offset = layout.offset(stripe, line_in_unit);
        let is_bad = |place: &usize| is_bad(layout.member(*place), offset);
        layout.level() == RaidLevel::Raid5 && (0..layout.places()).filter(is_bad).count() > 1
    }

    /// Whether something that is written now may have no place to be kept, if these members are
    /// bad.
    pub fn may_refuse(&self, is_bad: impl Fn(MemberIndex) -> bool) -> bool {
        self.layouts.iter().any(|layout| {
            let is_bad = |place: &usize| is_bad(layout.member(*place));
            match layout.level() {
                RaidLevel::Raid0 => (0..layout.places()).any(|place| is_bad(&place)),
                RaidLevel::Raid1 => (0..layout.data_units())
                    .any(|unit| layout.data_places(0, unit).all(|place| is_bad(&place))),
                RaidLevel::Raid5 => (0..layout.places()).filter(is_bad).count() > 1,
            }
        })
    }

    /// The members and addresses where the data of a line is: all copies.
    pub fn copies(&self, line: LinePlace) -> impl Iterator<Item = (MemberIndex, u64)> {
        let layout = &self.layouts[line.set];
        let offset = layout.offset(line.stripe, line.line_in_unit);
        let places = layout.data_places(line.stripe, line.unit);
        places.map(move |place| (layout.member(place), offset))
    }

    /// The member and address of the parity of a line, if its set has parity.
    pub fn parity(&self, line: LinePlace) -> Option<(MemberIndex, u64)> {
        let layout = &self.layouts[line.set];
        let place = layout.parity_place(line.stripe)?;
        Some((layout.member(place), layout.offset(line.stripe, line.line_in_unit)))
    }

    /// Whether the copies of a column agree, or its parity is that of its data: as far as the
    /// members are well that hold them. `read` reads a member.
    pub fn check_column(
        &self,
        column: Column,
        is_well: impl Fn(MemberIndex) -> bool,
        read: impl Fn(MemberIndex, u64, &mut [u8]),
    ) -> Result<(), Violation> {
        let (set, stripe, line_in_unit) = column;
        let layout = &self.layouts[set];
        let offset = layout.offset(stripe, line_in_unit);
        let lines: Vec<[u8; LINE_SIZE as usize]> = (0..layout.places())
            .map(|place| {
                let mut bytes = [0; LINE_SIZE as usize];
                read(layout.member(place), offset, &mut bytes);
                bytes
            })
            .collect();
        let wrong = |what: &str| {
            let where_is = format!("line {line_in_unit} of stripe {stripe} of set {set}");
            Err(Violation(format!("{where_is}: {what}")))
        };
        match layout.level() {
            RaidLevel::Raid0 => Ok(()),
            RaidLevel::Raid1 => {
                for unit in 0..layout.data_units() {
                    let places = layout.data_places(stripe, unit);
                    let well = |place: &usize| is_well(layout.member(*place));
                    let mut copies = places.filter(well).map(|place| &lines[place]);
                    let first = copies.next();
                    if copies.any(|copy| Some(copy) != first) {
                        return wrong(&format!("the copies of unit {unit} differ"));
                    }
                }
                Ok(())
            }
            RaidLevel::Raid5 if !(0..layout.places()).all(|p| is_well(layout.member(p))) => Ok(()),
            RaidLevel::Raid5 => {
                // Byte by byte, not with the arithmetic of the engine.
                let is_zero = |at: usize| lines.iter().fold(0, |sum, line| sum ^ line[at]) == 0;
                match (0..LINE_SIZE as usize).all(is_zero) {
                    true => Ok(()),
                    false => wrong("the parity is not that of the data"),
                }
            }
        }
    }

    /// That no two lines of the volume are at the same place. The columns that they are in.
    pub fn columns(
        &self,
        lines: impl Iterator<Item = (u64, LinePlace)>,
    ) -> Result<BTreeSet<Column>, Violation> {
        let mut held = BTreeMap::new();
        for (line, place) in lines {
            if let Some(other) = held.insert(place, line) {
                return Err(Violation(format!("lines {other} and {line} are both at {place:?}")));
            }
        }
        Ok(held.keys().map(|place| place.column()).collect())
    }

    /// The line of a set at a location of it.
    pub fn line_place(&self, set: usize, location: Location) -> LinePlace {
        let Location { stripe, unit, line_in_unit } = location;
        LinePlace { set, stripe, unit, line_in_unit }
    }
}

#[cfg(test)]
mod tests {
    use dcd_engine::volume::raid::SetLine;

    use super::super::VolumeKind;
    use super::super::options::VolumeOptions;
    use super::*;
    use crate::random::Random;

    fn sets(kind: VolumeKind, seed: u64) -> Sets {
        Sets::new(&VolumeOptions::draw(&mut Random::new(seed), kind).config)
    }

    #[test]
    fn lines_are_found_again_where_they_are() {
        for seed in 0..20 {
            let sets = sets(VolumeKind::Tiered, seed);
            for set in 0..3 {
                for line in (0..sets.layout(set).lines()).step_by(7).map(SetLine) {
                    let place = sets.line_place(set, sets.layout(set).locate(line));
                    for (member, offset) in sets.copies(place) {
                        assert_eq!(sets.place_at(set, member, offset), Some(place));
                        assert_eq!(sets.column_at(member, offset), Some(place.column()));
                    }
                }
            }
        }
    }

    #[test]
    fn one_loss_is_borne_and_two_are_not() {
        for seed in 0..20 {
            for kind in VolumeKind::ALL {
                let sets = sets(kind, seed);
                for set in 0..kind.tiers().len() {
                    let layout = sets.layout(set);
                    let place = sets.line_place(set, layout.locate(SetLine(layout.lines() / 2)));
                    let copies: Vec<MemberIndex> = sets.copies(place).map(|(m, _)| m).collect();
                    let others = (0..layout.places()).map(|place| layout.member(place));
                    let other = others.into_iter().find(|member| !copies.contains(member));
                    let lost = |bad: &[MemberIndex]| sets.is_lost(place, |m, _| bad.contains(&m));
                    assert!(!lost(&[]));
                    assert!(other.is_none_or(|other| !lost(&[other])));
                    match layout.level() {
                        RaidLevel::Raid0 => assert!(lost(&copies)),
                        RaidLevel::Raid1 => assert!(!lost(&copies[1..]) && lost(&copies)),
                        RaidLevel::Raid5 => {
                            assert!(!lost(&copies) && lost(&[copies[0], other.unwrap()]));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_wrong_byte_on_any_member_is_seen() {
        for (kind, seed) in [(VolumeKind::Raid1, 1), (VolumeKind::Raid5, 2)] {
            let sets = sets(kind, seed);
            let column = (0, 1, 0);
            assert_eq!(sets.check_column(column, |_| true, |_, _, bytes| bytes.fill(0)), Ok(()));
            for place in 0..sets.layout(0).places() {
                let wrong = sets.layout(0).member(place);
                let read = |member, _, bytes: &mut [u8]| bytes[77] = u8::from(member == wrong);
                assert!(sets.check_column(column, |_| true, read).is_err());
            }
        }
    }

    #[test]
    fn two_lines_at_one_place_are_seen() {
        let sets = sets(VolumeKind::Raid5, 3);
        let place = |line| sets.line_place(0, sets.layout(0).locate(SetLine(line)));
        assert!(sets.columns([(5, place(1)), (6, place(2))].into_iter()).is_ok());
        assert!(sets.columns([(5, place(1)), (6, place(1))].into_iter()).is_err());
    }
}
