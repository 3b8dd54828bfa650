//! Lines in the log that cannot be destaged because a member of the volume is away: they take a
//! share of the log, and no more.
//!
//! ```text
//! 1. The volume says which members are away. When that changes, all lines of the log are looked at
//!    once: those that cannot be written to any place are stuck.
//! 2. From then on a line is looked at when it is appended, and forgotten when its slot is dead.
//!    What counts is segments: one with a single stuck line cannot be filled again.
//! 3. When stuck lines hold their share of the segments, changes of such lines fail at once. Those
//!    of others go on.
//!      Else they would fill the log, and every change would fail, also of what is on healthy
//!      members.
//! 4. Segments that hold nothing else are not looked at each time that something is destaged, but
//!    again after a while.
//! ```

use std::collections::{BTreeMap, BTreeSet};

use super::Engine;
use super::write::Change;
use crate::units::{Duration, LbaRange, Line, SegmentIndex, SlotIndex, Time};
use crate::volume::away::LogShare;

/// Stuck lines may hold one of so many segments, and zero ranges of the same lines one of so many
/// places in their table.
const SHARE: u32 = 4;
/// After so long segments with stuck lines alone are looked at again: a member may take writes once
/// more.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// Stuck lines.
#[derive(Default)]
pub(super) struct Stuck {
    /// Members that were away at the last look.
    away: u32,
    slots: BTreeSet<SlotIndex>,
    /// Stuck slots of each segment that has any.
    segments: BTreeMap<SegmentIndex, u32>,
    /// Segments that were looked at in vain.
    tried: BTreeSet<SegmentIndex>,
    look_again: Time,
    changes_refused: u64,
    /// What the volume was told last.
    told: LogShare,
}

impl Stuck {
    fn insert(&mut self, slot: SlotIndex, segment: SegmentIndex) {
        if self.slots.insert(slot) {
            *self.segments.entry(segment).or_default() += 1;
        }
    }

    /// A slot is dead.
    pub(super) fn remove(&mut self, slot: SlotIndex, segment: SegmentIndex) {
        if !self.slots.remove(&slot) {
            return;
        }
        let left = self.segments.get_mut(&segment).expect("it has stuck slots");
        *left -= 1;
        if *left == 0 {
            self.segments.remove(&segment);
            self.tried.remove(&segment);
        }
    }

    /// Nothing could be destaged from a segment with so many live slots.
    pub(super) fn tried_in_vain(&mut self, segment: SegmentIndex, live_slots: u32) {
        if self.segments.get(&segment).is_some_and(|stuck| *stuck >= live_slots) {
            self.tried.insert(segment);
        }
    }

    /// Whether it is no use to look at a segment with so many live slots.
    pub(super) fn is_in_vain(&self, segment: SegmentIndex, live_slots: u32) -> bool {
        self.tried.contains(&segment)
            && self.segments.get(&segment).is_some_and(|stuck| *stuck >= live_slots)
    }

    /// Somebody waits: segments that were looked at in vain are looked at again.
    pub(super) fn look_again_now(&mut self) {
        self.tried.clear();
    }

    /// When it may be of use again.
    pub(super) fn wake_up(&self) -> Option<Time> {
        (!self.tried.is_empty()).then_some(self.look_again)
    }
}

impl Engine {
    /// Steps 1 and 4.
    pub(super) fn watch_stuck(&mut self) {
        let Some(away) = self.below.away() else { return };
        if away != self.stuck.away {
            self.stuck.away = away;
            self.stuck.slots.clear();
            self.stuck.segments.clear();
            self.stuck.tried.clear();
            if away != 0 {
                let lines: Vec<Line> = self.table.iter().map(|(line, _)| line).collect();
                lines.into_iter().for_each(|line| self.note_if_stuck(line));
            }
            self.destage.something_changed();
        }
        if !self.stuck.tried.is_empty() && self.now >= self.stuck.look_again {
            self.stuck.tried.clear();
            self.destage.something_changed();
        }
        if self.stuck.tried.is_empty() {
            self.stuck.look_again = self.now.after(LOOK_AGAIN);
        }
        let share = LogShare {
            segment_bytes: self.superblock.geometry.segment_size_bytes,
            segments: self.stuck.segments.len() as u32,
            segments_max: self.stuck_segments_max(),
            changes_refused: self.stuck.changes_refused,
        };
        if share != self.stuck.told {
            self.stuck.told = share;
            self.below.note_log_share(share);
        }
    }

    /// Members that are away and hold up what is in the log, a bit for each.
    pub(super) fn members_waited_for(&self) -> Option<u32> {
        let away = self.stuck.away;
        let holds_up = !self.stuck.segments.is_empty() || !self.zeroes.is_empty();
        (away != 0 && holds_up).then_some(away)
    }

    fn stuck_segments_max(&self) -> u32 {
        (self.log.segments.total() / SHARE).max(1)
    }

    /// Step 2: a line has been appended.
    pub(super) fn note_if_stuck(&mut self, line: Line) {
        if self.stuck.away == 0 || !self.below.is_stuck(line) {
            return;
        }
        for (slot, _) in self.table.find(line).as_slice() {
            let (segment, _) = self.superblock.geometry.locate(*slot);
            self.stuck.insert(*slot, segment);
        }
    }

    /// Step 3. Whether a change has to fail.
    pub(super) fn refuses_stuck(&mut self, change: &Change) -> bool {
        if self.stuck.away == 0 {
            return false;
        }
        let is_full = match change {
            Change::Write { .. } => self.stuck.segments.len() as u32 >= self.stuck_segments_max(),
            Change::Zero { .. } => {
                self.zeroes.len() >= self.config.limits.zero_ranges / 2 / SHARE as usize
            }
        };
        let is_refused = is_full && self.touches_stuck(change);
        self.stuck.changes_refused += u64::from(is_refused);
        is_refused
    }

    fn touches_stuck(&mut self, change: &Change) -> bool {
        let range: LbaRange = change.range();
        match change {
            Change::Write { .. } => range.lines().any(|(line, _)| self.below.is_stuck(line)),
            Change::Zero { .. } => {
                let (line, lines) = (range.start.line(), range.lines().count() as u64);
                self.below.zeroes_that_can_be_written(line, lines) != Some((line, lines))
            }
        }
    }
}
