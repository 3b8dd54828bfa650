//! Whether extents are on the level, and in the region, that is theirs.
//!
//! An extent may be elsewhere only if there was no room where it is wanted most, at any moment since the start: what is moved
//! later is not looked for again by itself. Between two looks a part of a level can have been full only if what was mapped
//! and moved in between would have filled it.

use std::collections::BTreeMap;

use dcd_engine::Lba;
use dcd_engine::units::BLOCK_SIZE;
use dcd_engine::volume::Volume;
use dcd_engine::volume::attributes::Attributes;
use dcd_engine::volume::placement::RaidLevel;
use dcd_engine::volume::status::VolumeStatus;

use super::machine::Machine;
use super::run::VolumeRun;
use crate::model::Violation;

/// A level, and whether it is the region for temporary data there.
type Part = (RaidLevel, bool);

/// What is known of the room since the start.
#[derive(Clone, Debug, Default)]
pub(super) struct Placing {
    /// Extents that had got a place, or another, at the last look; and how many were in each part.
    changes: u64,
    used: BTreeMap<Part, u64>,
    was_full: BTreeMap<Part, bool>,
}

/// All parts, with their room and what is taken.
fn parts(status: &VolumeStatus) -> BTreeMap<Part, (u64, u64)> {
    let mut parts: BTreeMap<Part, (u64, u64)> = BTreeMap::new();
    for set in &status.sets {
        let room = set.room;
        let ordinary = (room.extents - room.temporary, room.used - room.temporary_used);
        for (is_region, (extents, used)) in
            [(false, ordinary), (true, (room.temporary, room.temporary_used))]
        {
            let part = parts.entry((set.level, is_region)).or_default();
            *part = (part.0 + extents, part.1 + used);
        }
    }
    parts
}

/// Extents that have got a place so far.
fn changes(status: &VolumeStatus) -> u64 {
    let counters = status.counters;
    // A move under way has a place already.
    counters.extents_mapped + counters.extents_moved + counters.moves_failed + 1
}

impl Placing {
    /// Everything is looked at again: a start moves what is elsewhere.
    pub(super) fn started(&mut self, machine: &Machine) {
        *self = Placing::default();
        let status = machine.volume().status();
        self.look(&status);
        if status.counters.moves_without_room > 0 {
            // Something was full then. Blocks that the log has freed may have made room before anybody looked.
            self.was_full.values_mut().for_each(|was_full| *was_full = true);
        }
    }

    fn look(&mut self, status: &VolumeStatus) {
        let since = changes(status) - self.changes;
        for (part, (extents, used)) in parts(status) {
            let before = self.used.insert(part, used).unwrap_or(used);
            *self.was_full.entry(part).or_default() |= before.max(used) + since >= extents;
        }
        self.changes = changes(status);
    }

    /// Where extents with these attributes belong: the first part that is there.
    fn wanted(&self, volume: &Volume, attributes: Attributes) -> Option<Part> {
        let is_there = |part: &Part| self.used.contains_key(part) && volume_has(volume, *part);
        let levels = volume.config().placement.levels(attributes);
        let is_temporary = attributes.contains(Attributes::TEMPORARY);
        let wishes = levels.into_iter().flat_map(|level| {
            let region = (is_temporary && level == RaidLevel::Raid0).then_some((level, true));
            region.into_iter().chain([(level, false)])
        });
        wishes.into_iter().find(is_there)
    }
}

fn volume_has(volume: &Volume, part: Part) -> bool {
    parts(&volume.status()).get(&part).is_some_and(|(extents, _)| *extents > 0)
}

impl VolumeRun {
    /// After each step.
    pub(super) fn look_at_places(&mut self) -> Result<(), Violation> {
        if self.options.config.sets.len() == 1 && self.options.config.temporary_bytes == 0 {
            return Ok(());
        }
        let volume = self.machine.volume();
        let status = volume.status();
        self.placing.look(&status);
        // What is on its way, or cannot be moved because it cannot be read, is nowhere wrong.
        if !volume.is_idle() || status.moves_waiting > 0 || status.counters.moves_failed > 0 {
            return Ok(());
        }
        let extent_bytes = self.options.config.extent_bytes;
        for extent in 0..self.options.config.extents() {
            let block = Lba(extent * extent_bytes / BLOCK_SIZE);
            let Some(placed) = volume.place(block) else { continue };
            let attributes = volume.attributes(block);
            let Some(wanted) = self.placing.wanted(volume, attributes) else { continue };
            let is_at = (placed.level, placed.is_temporary);
            if is_at != wanted && !self.placing.was_full[&wanted] {
                return Err(Violation(format!(
                    "extent {extent}, {attributes}, is at {placed:?}, and there is room where it belongs: {wanted:?}"
                )));
            }
        }
        Ok(())
    }
}
