//! Regions whose checksums nobody knows: what is on the members is believed ([`super::super::import`],
//! step 2).
//!
//! A *cell* is a line of a row of a stripe, as checksums have it. One is *unsure* if its region is
//! marked. The others are as they were: if what is there has not its checksum, it is not believed.

use std::ops::Range;

use super::super::Volume;
use super::super::checksums::{Checksums, LineSum};
use super::super::extents::Place;
use super::super::format::area::{Region, TablePage};
use super::super::format::page::PageIndex;
use super::super::import::{ImportDisks, ImportError};
use super::super::placement::RaidLevel;
use super::super::raid::{Location, xor_into};
use crate::buffer::Buffer;
use crate::io::IoError;
use crate::units::{LINE_SIZE, MemberIndex};

const LINE_BYTES: usize = LINE_SIZE as usize;

/// What was believed.
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::volume) struct Believed {
    pub(in crate::volume) regions: u64,
    pub(in crate::volume) lines: u64,
    pub(in crate::volume) mended: u64,
    pub(in crate::volume) lost: u64,
}

/// A stripe as the members have it.
struct StripeOnDisk {
    set: u8,
    stripe: u64,
    /// By place: what is there, and whether each line could be read. `None`: not current.
    units: Vec<Option<(Buffer, Vec<bool>)>>,
}

impl StripeOnDisk {
    fn line(&self, place: usize, column: u32) -> Option<&[u8]> {
        let (unit, is_read) = self.units[place].as_ref()?;
        let at = column as usize * LINE_BYTES;
        is_read[column as usize].then(|| &unit.bytes()[at..at + LINE_BYTES])
    }
}

impl Volume {
    /// Whether anything is placed on a RAID 0 set of a member.
    pub(in crate::volume) fn has_raid0_on(&self, member: MemberIndex) -> bool {
        self.extents.known().any(|extent| {
            self.extents.get(extent).place.is_some_and(|place| {
                let layout = self.layout(place.set);
                layout.level() == RaidLevel::Raid0 && layout.place_of(member).is_some()
            })
        })
    }

    /// What is opened is a twin.
    pub(in crate::volume) fn read_as_twin(&mut self) {
        self.opening().is_twin = true;
    }

    fn sum_of(&self, set: u8, stripe: u64, row: u32, column: u32) -> LineSum {
        self.checksums.get(set, Checksums::index(self.layout(set), stripe, row, column))
    }

    fn is_unsure(&self, set: u8, stripe: u64, row: u32, column: u32) -> bool {
        let index = Checksums::index(self.layout(set), stripe, row, column);
        let page = self.area.page_of_checksum(set.into(), index);
        self.region_marks.has(self.area.region_of(page))
    }

    fn is_placed(&self, set: u8, stripe: u64, row: u32, column: u32) -> bool {
        let layout = self.layout(set);
        if layout.parity_row() == Some(row) {
            return false;
        }
        let line = layout.line_of(Location { stripe, unit: row, line_in_unit: column });
        let extent = line.0 / self.extent_lines();
        let place = Place { set, extent };
        self.extents.has_place(place) && self.extents.is_taken(place)
    }

    /// Stripes of a page of checksums.
    fn stripes_of_page(&self, page: PageIndex) -> (u8, Range<u64>) {
        let TablePage::Checksums { set, first } = self.area.content(page) else {
            unreachable!("a page of checksums")
        };
        let layout = self.layout(set as u8);
        let cells = u64::from(layout.rows()) * u64::from(layout.unit_lines());
        let end = first + super::super::format::area::CHECKSUMS_PER_PAGE;
        (set as u8, first / cells..end.div_ceil(cells).min(layout.stripes()))
    }

    /// A region, and those that share stripes with it.
    pub(in crate::volume) fn regions_around(&self, region: Region) -> Vec<Region> {
        let mut regions = vec![region];
        for page in self.area.pages_of_region(region).map(PageIndex) {
            let (set, stripes) = self.stripes_of_page(page);
            let rows = self.layout(set).rows();
            let columns = 0..self.layout(set).unit_lines();
            let ends = [stripes.start, stripes.end.saturating_sub(1)];
            for stripe in ends.into_iter().filter(|stripe| stripes.contains(stripe)) {
                for page in self.sum_pages_of(set, stripe, 0..rows, columns.clone()) {
                    regions.push(self.area.region_of(page));
                }
            }
        }
        regions.sort_unstable();
        regions.dedup();
        regions
    }

    /// All stripes of a region.
    pub(in crate::volume) fn believe(
        &mut self,
        region: Region,
        disks: &mut dyn ImportDisks,
        believed: &mut Believed,
    ) -> Result<(), ImportError> {
        let mut done = None;
        for page in self.area.pages_of_region(region).map(PageIndex) {
            let (set, stripes) = self.stripes_of_page(page);
            for stripe in stripes {
                if done.is_none_or(|done| done < (set, stripe)) {
                    self.believe_stripe(set, stripe, disks, believed)?;
                    done = Some((set, stripe));
                }
            }
        }
        Ok(())
    }

    fn believe_stripe(
        &mut self,
        set: u8,
        stripe: u64,
        disks: &mut dyn ImportDisks,
        believed: &mut Believed,
    ) -> Result<(), ImportError> {
        let (rows, columns) = (self.layout(set).rows(), 0..self.layout(set).unit_lines());
        let cells = || (0..rows).flat_map(|row| columns.clone().map(move |column| (row, column)));
        let is_placed = cells().any(|(row, column)| self.is_placed(set, stripe, row, column));
        let is_sure = cells().any(|(row, column)| !self.is_unsure(set, stripe, row, column));
        if !is_placed && !is_sure {
            // Nothing is there. What is placed there next is written as a whole.
            for (row, column) in cells() {
                if self.sum_of(set, stripe, row, column) != LineSum::Never {
                    self.set_sum_believed(set, stripe, row, column, LineSum::Never);
                }
            }
            return Ok(());
        }
        let on_disk = self.read_stripe(set, stripe, disks);
        for column in columns {
            match self.layout(set).level() {
                RaidLevel::Raid1 => {
                    for row in 0..rows {
                        self.believe_mirrors(&on_disk, row, column, disks, believed)?;
                    }
                }
                _ => self.believe_column(&on_disk, column, disks, believed)?,
            }
        }
        Ok(())
    }

    fn set_sum_believed(&mut self, set: u8, stripe: u64, row: u32, column: u32, sum: LineSum) {
        let index = Checksums::index(self.layout(set), stripe, row, column);
        self.checksums.set(set, index, sum);
    }

    fn read_stripe(&self, set: u8, stripe: u64, disks: &mut dyn ImportDisks) -> StripeOnDisk {
        let layout = self.layout(set);
        let lines = layout.unit_lines();
        let units = (0..layout.places()).map(|place| {
            if !self.is_current(set, place, stripe) {
                return None;
            }
            let member = layout.member(place);
            let mut unit = Buffer::zeroed(lines as usize * LINE_BYTES);
            if disks.read_member(member, layout.offset(stripe, 0), &mut unit).is_ok() {
                return Some((unit, vec![true; lines as usize]));
            }
            // Line by line: others of the unit can be read.
            let mut is_read = vec![false; lines as usize];
            for column in 0..lines {
                let mut line = Buffer::zeroed(LINE_BYTES);
                let offset = layout.offset(stripe, column);
                is_read[column as usize] = disks.read_member(member, offset, &mut line).is_ok();
                let at = column as usize * LINE_BYTES;
                unit.bytes_mut()[at..at + LINE_BYTES].copy_from_slice(line.bytes());
            }
            Some((unit, is_read))
        });
        StripeOnDisk { set, stripe, units: units.collect() }
    }

    /// Writes a line of a place, if it is current.
    fn mend(
        &self,
        on_disk: &StripeOnDisk,
        place: usize,
        column: u32,
        line: &[u8],
        disks: &mut dyn ImportDisks,
        believed: &mut Believed,
    ) -> Result<(), ImportError> {
        if on_disk.units[place].is_none() || on_disk.line(place, column) == Some(line) {
            return Ok(());
        }
        believed.mended += 1;
        let layout = self.layout(on_disk.set);
        let (member, offset) = (layout.member(place), layout.offset(on_disk.stripe, column));
        let unwritable =
            |problem: IoError| ImportError::Unwritable { member: Some(member), problem };
        disks.write_member(member, offset, &Buffer::copy_of(line)).map_err(unwritable)
    }

    fn believe_mirrors(
        &mut self,
        on_disk: &StripeOnDisk,
        row: u32,
        column: u32,
        disks: &mut dyn ImportDisks,
        believed: &mut Believed,
    ) -> Result<(), ImportError> {
        let (set, stripe) = (on_disk.set, on_disk.stripe);
        let known = self.sum_of(set, stripe, row, column);
        let is_placed = self.is_placed(set, stripe, row, column);
        if !self.is_unsure(set, stripe, row, column) {
            return Ok(());
        }
        let places = self.layout(set).places_of_row(stripe, row);
        if known == LineSum::Lost {
            // It was about to become zeroes.
            let mut places = places;
            let zeroes = [0; LINE_BYTES];
            return places
                .try_for_each(|place| self.mend(on_disk, place, column, &zeroes, disks, believed));
        }
        let lines = || places.clone().filter_map(|place| on_disk.line(place, column));
        let fits = lines().find(|line| LineSum::of(line) == known);
        let Some(line) = fits.or_else(|| lines().next()) else {
            if is_placed || known != LineSum::Never {
                believed.lost += u64::from(is_placed);
                self.set_sum_believed(set, stripe, row, column, LineSum::Lost);
            }
            return Ok(());
        };
        believed.lines += u64::from(is_placed);
        for place in places.clone() {
            self.mend(on_disk, place, column, line, disks, believed)?;
        }
        if is_placed || known != LineSum::Never {
            self.set_sum_believed(set, stripe, row, column, LineSum::of(line));
        }
        Ok(())
    }

    fn believe_column(
        &mut self,
        on_disk: &StripeOnDisk,
        column: u32,
        disks: &mut dyn ImportDisks,
        believed: &mut Believed,
    ) -> Result<(), ImportError> {
        let (set, stripe) = (on_disk.set, on_disk.stripe);
        let layout = self.layout(set).clone();
        let parity_row = layout.parity_row().expect("RAID 5");
        let place_of = |row| layout.places_of_row(stripe, row).start;
        let is_unsure = |row| self.is_unsure(set, stripe, row, column);
        if !(0..layout.rows()).any(is_unsure) {
            return Ok(());
        }
        // What is there of each row, as parity counts it; none if it has to be computed.
        let mut missing = Vec::new();
        let mut new_sums: Vec<(u32, LineSum)> = Vec::new();
        let mut sum_of_others = vec![0; LINE_BYTES];
        let mut sum_of_free = vec![0; LINE_BYTES];
        let mut is_all_never = true;
        let mut is_ambiguous = false;
        for row in 0..parity_row {
            let known = self.sum_of(set, stripe, row, column);
            let line = on_disk.line(place_of(row), column);
            if known == LineSum::Never && !self.is_placed(set, stripe, row, column) {
                // It may have been written and freed since: parity may have it or not, and will.
                let line = line.filter(|_| is_unsure(row));
                is_ambiguous |= is_unsure(row) && line.is_none();
                if let Some(line) = line.filter(|line| line.iter().any(|byte| *byte != 0)) {
                    is_ambiguous = true;
                    is_all_never = false;
                    xor_into(&mut sum_of_others, line);
                    xor_into(&mut sum_of_free, line);
                    new_sums.push((row, LineSum::of(line)));
                }
                continue;
            }
            is_all_never = false;
            if known == LineSum::Lost {
                self.mend(on_disk, place_of(row), column, &[0; LINE_BYTES], disks, believed)?;
                continue;
            }
            match line.filter(|line| is_unsure(row) || LineSum::of(line) == known) {
                Some(line) => xor_into(&mut sum_of_others, line),
                None => missing.push(row),
            }
        }
        let parity_place = place_of(parity_row);
        let parity = on_disk.line(parity_place, column);
        let parity_sum = self.sum_of(set, stripe, parity_row, column);
        let parity = parity
            .filter(|parity| is_unsure(parity_row) || LineSum::of(parity) == parity_sum)
            .map(<[u8]>::to_vec);
        let mut new_parity = sum_of_others.clone();
        for row in &missing {
            let known = self.sum_of(set, stripe, *row, column);
            let computed = match (&parity, &missing[..]) {
                (Some(parity), [_]) => {
                    let mut with_free = sum_of_others.clone();
                    xor_into(&mut with_free, parity);
                    let mut without = with_free.clone();
                    xor_into(&mut without, &sum_of_free);
                    // An older checksum tells which is right, and whether any is: the power may have
                    // gone between data and parity.
                    match known {
                        LineSum::Sum(_) => {
                            [with_free, without].into_iter().find(|line| LineSum::of(line) == known)
                        }
                        _ => (!is_ambiguous).then_some(with_free),
                    }
                }
                _ => None,
            };
            match computed {
                Some(line) => {
                    self.mend(on_disk, place_of(*row), column, &line, disks, believed)?;
                    xor_into(&mut new_parity, &line);
                    new_sums.push((*row, LineSum::of(&line)));
                }
                // It counts as zeroes. Those are not written here: an import that is done again would
                // believe them.
                None => new_sums.push((*row, LineSum::Lost)),
            }
        }
        for row in (0..parity_row).filter(|row| is_unsure(*row) && !missing.contains(row)) {
            let known = self.sum_of(set, stripe, row, column);
            if known == LineSum::Lost
                || known == LineSum::Never && !self.is_placed(set, stripe, row, column)
            {
                continue;
            }
            let line = on_disk.line(place_of(row), column).expect("it is not missing");
            new_sums.push((row, LineSum::of(line)));
        }
        self.mend(on_disk, parity_place, column, &new_parity, disks, believed)?;
        if is_all_never && parity_sum == LineSum::Never {
            return Ok(());
        }
        new_sums.push((parity_row, LineSum::of(&new_parity)));
        for (row, sum) in new_sums {
            let is_placed = self.is_placed(set, stripe, row, column);
            let is_lost = sum == LineSum::Lost;
            believed.lines += u64::from(is_placed && !is_lost);
            believed.lost += u64::from(is_placed && is_lost);
            self.set_sum_believed(set, stripe, row, column, sum);
        }
        Ok(())
    }
}
