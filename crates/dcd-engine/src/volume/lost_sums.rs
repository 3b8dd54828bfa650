//! Lines of redundant sets that are lost now: nothing tells any more what they were, and reads of
//! them fail until they are written. The checksums say which ([`super::checksums`]); here those are
//! counted that somebody can see, because an extent is there.

use super::Volume;
use super::checksums::{Checksums, LineSum};
use super::extents::Place;
use super::placement::RaidLevel;
use super::raid::{Location, SetLine};

impl Volume {
    /// Everything anew, when the tables were read.
    pub(super) fn count_lost_lines(&mut self) {
        self.redundant_lost = self.lost_lines_counted_anew();
    }

    /// That the number is right. Slow.
    ///
    /// # Panics
    ///
    /// If it is not.
    pub fn check_lost_lines(&self) {
        if self.is_open() {
            let counted = self.lost_lines_counted_anew();
            // A place that was left stays taken until the journal knows, and one that an extent
            // moves to is taken before it is there.
            let is_quiet = self.left_places.is_empty()
                && self.free_after_readers.is_empty()
                && self.writes.moving.is_none();
            let is_right =
                counted == self.redundant_lost || !is_quiet && counted < self.redundant_lost;
            assert!(is_right, "{} lines lost, not {counted}", self.redundant_lost);
        }
    }

    fn lost_lines_counted_anew(&self) -> u64 {
        if self.checksums.lost() == 0 {
            return 0;
        }
        let places = self.extents.known().filter_map(|extent| self.extents.get(extent).place);
        places.map(|place| self.lost_lines_at(place)).sum()
    }

    /// An extent has got a place, or left it for good.
    pub(super) fn place_changed(&mut self, place: Place, is_taken: bool) {
        let lost = self.lost_lines_at(place);
        match is_taken {
            true => self.redundant_lost += lost,
            false => self.redundant_lost -= lost,
        }
    }

    fn lost_lines_at(&self, place: Place) -> u64 {
        let layout = self.layout(place.set);
        if self.checksums.lost() == 0 || layout.level() == RaidLevel::Raid0 {
            return 0;
        }
        let all = self.lines_of_place(place);
        let is_lost = |line: &u64| {
            let Location { stripe, unit, line_in_unit } = layout.locate(SetLine(*line));
            let index = Checksums::index(layout, stripe, unit, line_in_unit);
            self.checksums.get(place.set, index) == LineSum::Lost
        };
        (all.first.0..all.first.0 + all.lines).filter(is_lost).count() as u64
    }

    /// A line is lost from now on, or is not any more.
    pub(super) fn sum_changes(
        &mut self,
        set: u8,
        location: Location,
        before: LineSum,
        sum: LineSum,
    ) {
        let (was_lost, is_lost) = (before == LineSum::Lost, sum == LineSum::Lost);
        let layout = self.layout(set);
        if was_lost == is_lost || layout.parity_row() == Some(location.unit) {
            return;
        }
        let extent = layout.line_of(location).0 / self.extent_lines();
        // Behind the last whole extent nothing is ever placed.
        let place = Place { set, extent };
        if !self.extents.has_place(place) || !self.extents.is_taken(place) {
            return;
        }
        if is_lost {
            self.redundant_lost += 1;
        } else {
            self.redundant_lost -= 1;
        }
    }
}
