//! Asking a running dcd about its volume: requests cut to the size of a line, answers put together.

use std::path::{Path, PathBuf};

use dcd_daemon::control::client::{ControlClient, ControlError};
use dcd_daemon::device::device_file::DeviceFile;
use dcd_daemon::device::device_spec::DeviceSpec;
use dcd_daemon::device::network::check_handed_over;
use dcd_daemon::report::volumes::VolumeReport;
use dcd_daemon::serve::ServeError;
use dcd_engine::units::BLOCK_SIZE;
use dcd_engine::volume::attributes::Attributes;
use dcd_protocol::volumes::{PLACES_EXTENTS_MAX, PlaceReport, RANGES_PER_LINE, VolumeCommand};
use serde::Deserialize;
use serde_json::Value;

use crate::daemons;
use crate::error::CommandError;

/// A connection, and what the volume is.
pub struct VolumeClient {
    control: PathBuf,
    client: ControlClient,
    /// As it was when the connection was made.
    pub report: VolumeReport,
}

/// What an answer holds, if it is that of this version.
fn parse<T: for<'a> Deserialize<'a>>(control: &Path, value: &Value) -> Result<T, CommandError> {
    T::deserialize(value).map_err(|_| {
        let found = value.to_string().chars().take(80).collect();
        ControlError::Answer { path: control.to_owned(), found }.into()
    })
}

impl VolumeClient {
    /// Connects; an error if there is no volume.
    pub fn connect(control: &Path) -> Result<VolumeClient, CommandError> {
        let mut client = daemons::connect(control)?;
        let answer = client.volume(&VolumeCommand::Status)?;
        let report = parse(control, &answer["volume"])?;
        Ok(VolumeClient { control: control.to_owned(), client, report })
    }

    /// Asks one thing.
    pub fn ask(&mut self, command: &VolumeCommand) -> Result<Value, CommandError> {
        Ok(self.client.volume(command)?)
    }

    /// Has a disk take the place of a member.
    pub fn replace(
        &mut self,
        member: u8,
        spec: &DeviceSpec,
        accept_damage: bool,
    ) -> Result<(), CommandError> {
        check_handed_over(spec.path()).map_err(ServeError::device("disk"))?;
        let disk = DeviceFile::open(spec.path()).map_err(ServeError::device("disk"))?;
        Ok(self.client.replace_member(member, &spec.absolute(), disk, accept_damage)?)
    }

    /// Has a disk become a spare.
    pub fn add_spare(&mut self, spec: &DeviceSpec) -> Result<(), CommandError> {
        check_handed_over(spec.path()).map_err(ServeError::device("disk"))?;
        let disk = DeviceFile::open(spec.path()).map_err(ServeError::device("disk"))?;
        Ok(self.client.add_spare(&spec.absolute(), disk)?)
    }

    /// How it is now.
    pub fn status(&mut self) -> Result<VolumeReport, CommandError> {
        let answer = self.ask(&VolumeCommand::Status)?;
        parse(&self.control, &answer["volume"])
    }

    /// Blocks in an extent.
    pub fn extent_blocks(&self) -> u64 {
        (self.report.extent_bytes / BLOCK_SIZE).max(1)
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u64 {
        self.report.volume_bytes / BLOCK_SIZE
    }

    /// Where the extents of these ranges are; those beyond the end of the volume are left out.
    pub fn places(&mut self, ranges: &[(u64, u64)]) -> Result<Vec<PlaceReport>, CommandError> {
        let piece = PLACES_EXTENTS_MAX.saturating_mul(self.extent_blocks());
        let mut all: Vec<PlaceReport> = Vec::new();
        let mut waiting = Vec::new();
        let mut extents = 0;
        let within = within(ranges, self.blocks());
        for (start, blocks) in within.into_iter().flat_map(|range| pieces(range, piece)) {
            // A range touches at most two extents more than it fills.
            let touched = blocks / self.extent_blocks() + 2;
            if extents + touched > PLACES_EXTENTS_MAX + 2 || waiting.len() == RANGES_PER_LINE {
                self.more_places(std::mem::take(&mut waiting), &mut all)?;
                extents = 0;
            }
            extents += touched;
            waiting.push((start, blocks));
        }
        if !waiting.is_empty() {
            self.more_places(waiting, &mut all)?;
        }
        Ok(all)
    }

    fn more_places(
        &mut self,
        ranges: Vec<(u64, u64)>,
        all: &mut Vec<PlaceReport>,
    ) -> Result<(), CommandError> {
        let answer = self.ask(&VolumeCommand::Places { ranges })?;
        let places: Vec<PlaceReport> = parse(&self.control, &answer["places"])?;
        all.extend(places);
        Ok(())
    }

    /// Changes attributes of all extents that these ranges touch.
    pub fn set_attributes(
        &mut self,
        ranges: &[(u64, u64)],
        set: Attributes,
        clear: Attributes,
    ) -> Result<(), CommandError> {
        for ranges in within(ranges, self.blocks()).chunks(RANGES_PER_LINE) {
            let ranges = ranges.to_vec();
            self.ask(&VolumeCommand::SetAttributes { ranges, set, clear })?;
        }
        Ok(())
    }
}

/// What of the ranges lies before block `end`.
fn within(ranges: &[(u64, u64)], end: u64) -> Vec<(u64, u64)> {
    let cut = |(start, blocks): &(u64, u64)| (*start, (*blocks).min(end.saturating_sub(*start)));
    ranges.iter().map(cut).filter(|(_, blocks)| *blocks > 0).collect()
}

/// A range in pieces of at most `most` blocks.
fn pieces((start, blocks): (u64, u64), most: u64) -> impl Iterator<Item = (u64, u64)> {
    let starts = (start..start + blocks).step_by(usize::try_from(most).unwrap_or(usize::MAX));
    starts.map(move |at| (at, most.min(start + blocks - at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut() {
        assert_eq!(within(&[(0, 8), (90, 20), (100, 1), (200, 5)], 100), [(0, 8), (90, 10)]);
        assert_eq!(pieces((5, 10), 4).collect::<Vec<_>>(), [(5, 4), (9, 4), (13, 2)]);
        assert_eq!(pieces((5, 4), 4).collect::<Vec<_>>(), [(5, 4)]);
    }
}
