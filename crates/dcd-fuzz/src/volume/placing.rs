//! Whether extents are on the tier, and in the region, that is theirs.
//!
//! An extent may be elsewhere only while there is no room where it is wanted most: one that fell
//! back is moved when there is.

use std::collections::BTreeMap;

use dcd_engine::Lba;
use dcd_engine::units::BLOCK_SIZE;
use dcd_engine::volume::Volume;
use dcd_engine::volume::attributes::Attributes;
use dcd_engine::volume::placement::{RaidLevel, Tier};
use dcd_engine::volume::status::VolumeStatus;

use super::run::VolumeRun;
use crate::model::Violation;

/// A tier, and whether it is the region for temporary data there.
type Part = (Tier, bool);

/// All parts, with their room and what is taken.
fn parts(status: &VolumeStatus) -> BTreeMap<Part, (u64, u64)> {
    let mut parts: BTreeMap<Part, (u64, u64)> = BTreeMap::new();
    for set in &status.sets {
        let room = set.room;
        let ordinary = (room.extents - room.temporary, room.used - room.temporary_used);
        for (is_region, (extents, used)) in
            [(false, ordinary), (true, (room.temporary, room.temporary_used))]
        {
            let part = parts.entry((set.tier, is_region)).or_default();
            *part = (part.0 + extents, part.1 + used);
        }
    }
    parts
}

/// Where extents with these attributes belong: the first part that is there.
fn wanted_part(
    volume: &Volume,
    parts: &BTreeMap<Part, (u64, u64)>,
    attributes: Attributes,
) -> Option<Part> {
    let tiers = volume.config().placement.tiers(attributes);
    let is_temporary = attributes.contains(Attributes::TEMPORARY);
    let mut wishes: Vec<Part> = tiers.map(|tier| (tier, false)).into();
    if is_temporary {
        let first = tiers.iter().position(|tier| tier.level == RaidLevel::Raid0)?;
        let raid0 = tiers.into_iter().filter(|tier| tier.level == RaidLevel::Raid0);
        wishes.splice(first..first, raid0.map(|tier| (tier, true)));
    }
    let is_there = |part: &Part| parts.get(part).is_some_and(|(extents, _)| *extents > 0);
    wishes.into_iter().find(is_there)
}

impl VolumeRun {
    /// After each step.
    pub(super) fn look_at_places(&self) -> Result<(), Violation> {
        if self.options.config.sets.len() == 1 && self.options.config.temporary_bytes == 0 {
            return Ok(());
        }
        let volume = self.machine.volume();
        let status = volume.status();
        // What is on its way, or cannot be moved because it cannot be read, is nowhere wrong.
        if !volume.is_idle() || status.moves_waiting > 0 || status.counters.moves_failed > 0 {
            return Ok(());
        }
        let parts = parts(&status);
        let extent_bytes = self.options.config.extent_bytes;
        for extent in 0..self.options.config.extents() {
            let block = Lba(extent * extent_bytes / BLOCK_SIZE);
            let Some(placed) = volume.place(block) else { continue };
            let attributes = volume.attributes(block);
            let Some(wanted) = wanted_part(volume, &parts, attributes) else { continue };
            let is_at = (placed.tier, placed.is_temporary);
            let (extents, used) = parts[&wanted];
            if is_at != wanted && used < extents {
                return Err(Violation(format!(
                    "extent {extent}, {attributes}, is at {placed:?}, and there is room where it belongs: {wanted:?}"
                )));
            }
        }
        Ok(())
    }
}
