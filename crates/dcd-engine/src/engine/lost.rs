//! What is lost: changes that were acknowledged, and whose newest copy is damaged (C19, C21).
//!
//! Damaged fragments are *poisoned*: taken out of the table, listed in every checkpoint, and
//! failing until they are overwritten; the older copy on the data-disk is never shown in their
//! place. What is damaged beyond the length of that list stays in the table, where every read and
//! every destage finds it anew; it is remembered here, so that a drain knows what it need not wait
//! for.
//!
//! A drain and a detach bring everything else to the data-disk. Neither says that it has succeeded
//! while something is lost, and a detach gives the data-disk free only if everything lost has been
//! accepted by its place: only somebody who was told of it can do that.

use std::collections::BTreeMap;

use super::Engine;
use crate::io::{RequestError, all_is_accepted};
use crate::units::{FragmentMask, LbaRange, Line, SegmentIndex, SegmentSerial, SlotIndex};

/// Lines that are damaged and still in the table, each with a damaged slot, as it was filled then.
#[derive(Default)]
pub(super) struct Unlisted(BTreeMap<Line, (SlotIndex, SegmentSerial)>);

impl Engine {
    /// A damaged slot for which there is no room in the list of poison.
    pub(super) fn remember_unlisted(&mut self, line: Line, slot: SlotIndex) {
        let (segment, _) = self.superblock.geometry.locate(slot);
        let serial = self.log.segments.get(segment).serial();
        if self.unlisted.0.insert(line, (slot, serial)).is_none() {
            // It is looked for whenever somebody asks what is lost.
            self.table.keep(line);
        }
    }

    /// Lines of them that have not been overwritten or discarded since.
    fn unlisted_lines(&self) -> impl Iterator<Item = Line> {
        let geometry = self.superblock.geometry;
        let is_as_found = move |line: Line, slot: SlotIndex, serial: SegmentSerial| {
            let pieces = self.table.find(line);
            pieces.as_slice().iter().any(|(known, _)| *known == slot)
                && self.log.segments.get(geometry.locate(slot).0).serial() == serial
        };
        let found = self.unlisted.0.iter();
        found
            .filter(move |(line, (slot, serial))| is_as_found(**line, *slot, *serial))
            .map(|(line, _)| *line)
    }

    /// Live slots of each segment that no destage will empty: those of lines that are damaged.
    pub(super) fn stuck_slots(&self) -> BTreeMap<SegmentIndex, u32> {
        let mut stuck = BTreeMap::new();
        for line in self.unlisted_lines() {
            for (slot, _) in self.table.find(line).as_slice() {
                *stuck.entry(self.superblock.geometry.locate(*slot).0).or_default() += 1;
            }
        }
        stuck
    }

    /// Whether nothing is in the table but what is lost.
    pub(super) fn only_lost_lines_are_left(&self) -> bool {
        // Counted only when it can be true: this is asked often.
        self.table.lines() == 0
            || self.table.lines() <= self.unlisted.0.len()
                && self.table.lines() == self.unlisted_lines().count()
    }

    /// How many they are.
    pub(super) fn unlisted_count(&self) -> usize {
        self.unlisted_lines().count()
    }

    /// What is lost, ascending; pieces that touch are one.
    pub fn lost(&self) -> Vec<LbaRange> {
        let mut masks = self.poisoned.clone();
        for line in self.unlisted_lines() {
            // The fragments beside the damaged ones stay where they are, too.
            let mask = masks.entry(line).or_default();
            *mask = mask.or(self.table.find(line).mask());
        }
        let mut ranges: Vec<LbaRange> = Vec::new();
        for range in masks.into_iter().flat_map(|(line, mask)| blocks_of(line, mask)) {
            match ranges.last_mut() {
                Some(last) if last.end() == range.start.0 => last.blocks += range.blocks,
                _ => ranges.push(range),
            }
        }
        ranges
    }

    /// Lines of which something is lost.
    pub fn lost_lines(&self) -> u64 {
        let unlisted = self.unlisted_lines().filter(|line| !self.poisoned.contains_key(line));
        self.poisoned.len() as u64 + unlisted.count() as u64
    }

    /// Whether all that is lost lies within `accepted`, which is what [`Engine::lost`] said before.
    pub fn all_lost_is_within(&self, accepted: &[LbaRange]) -> bool {
        all_is_accepted(&self.lost(), accepted)
    }

    /// How a drain ends that has brought home what there is.
    pub(super) fn drained(&self) -> Result<(), RequestError> {
        match self.lost_lines() {
            0 => Ok(()),
            lines => Err(RequestError::Lost { lines }),
        }
    }

    /// A pair that was parted although something was lost: that was accepted, and the data-disk is
    /// what counts.
    pub(super) fn forget_what_was_given_up(&mut self) {
        self.poisoned.clear();
        let left: Vec<Line> = self.table.iter().map(|(line, _)| line).collect();
        for line in left {
            self.forget(line, FragmentMask::FULL);
        }
        if self.table.lines() > 0 {
            // The rest is not in memory, and nothing of it counts.
            self.table = self.table.emptied();
            self.log.segments.nothing_is_live();
        }
    }
}

/// The runs of fragments of a line.
fn blocks_of(line: Line, mask: FragmentMask) -> impl Iterator<Item = LbaRange> {
    use crate::units::BLOCK_SIZE;
    mask.byte_runs().map(move |bytes| {
        let start = line.lba().0 + bytes.start as u64 / BLOCK_SIZE;
        LbaRange::new(start, bytes.len() as u64 / BLOCK_SIZE)
    })
}
