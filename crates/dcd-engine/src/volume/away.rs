//! What cannot be written because members are away: not there, out of date, or refusing every
//! write.
//!
//! What is written to such places stays in the log. The engine asks here, so that it takes a share
//! of the log and no more ([`crate::engine`], stuck.rs).

use super::Volume;
use super::extents::{ExtentIndex, Place};
use super::format::root::MemberState;
use super::placement::RaidLevel;
use super::raid::SetLine;
use crate::units::{Line, MemberIndex};

/// After so many writes that failed one after the other, a member counts as away until one
/// succeeds.
const REFUSALS_MAX: u32 = 3;

/// What the log holds for members that are away.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogShare {
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Segments that hold such lines.
    pub segments: u32,
    /// They may be so many; then changes of such lines fail.
    pub segments_max: u32,
    /// Changes that have failed for that, since the start.
    pub changes_refused: u64,
}

impl Volume {
    /// The members that are away, a bit for each.
    pub(crate) fn away(&self) -> u32 {
        let away = self.members.iter().filter(|(index, member)| {
            self.is_away(*index) || member.state != MemberState::UpToDate
        });
        away.fold(0, |mask, (index, _)| mask | 1 << index.0)
    }

    fn is_away(&self, member: MemberIndex) -> bool {
        let member = self.members.get(member);
        !member.is_present || member.refusals >= REFUSALS_MAX
    }

    /// A write of a member has ended that nobody else stands in for.
    pub(super) fn note_refusal(&mut self, member: MemberIndex, is_refused: bool) {
        let member = self.members.get_mut(member);
        member.refusals = if is_refused { (member.refusals + 1).min(REFUSALS_MAX) } else { 0 };
    }

    /// Whether what is written to a line stays in the log until a member is back.
    pub(crate) fn is_stuck(&mut self, line: Line) -> bool {
        let extent = self.extent_of(line.lba().byte());
        let entry = self.extents.get(extent);
        match entry.place {
            Some(place) => {
                let extent_lines = self.extent_lines();
                let at =
                    place.first_line(self.header.config.extent_bytes).0 + line.0 % extent_lines;
                self.is_line_stuck(place, SetLine(at))
            }
            None => {
                let key = entry.attributes;
                if let Some((known, is_stuck)) = self.no_place_for
                    && known == key
                {
                    return is_stuck;
                }
                let placement = &self.header.config.placement;
                let is_usable = |place| self.is_usable(place);
                // Places that are all taken, for good or until the journal knows that they were
                // left, wait for no member.
                let is_stuck = self.extents.find(key, None, placement, is_usable).is_none()
                    && self.extents.find(key, None, placement, |_| true).is_some();
                self.no_place_for = Some((key, is_stuck));
                is_stuck
            }
        }
    }

    /// The first lines of a range that can become zeroes now: not parts of extents of which a line
    /// is stuck. Whole extents need no member for that.
    pub(crate) fn zeroes_that_can_be_written(&self, line: Line, lines: u64) -> Option<(Line, u64)> {
        let extent_lines = self.extent_lines();
        let is_stuck = |from: u64, to: u64| {
            let extent = ExtentIndex((from / extent_lines) as u32);
            let Some(place) = self.extents.get(extent).place else { return false };
            let first = place.first_line(self.header.config.extent_bytes).0;
            (from..to).any(|line| self.is_line_stuck(place, SetLine(first + line % extent_lines)))
        };
        let (mut from, mut to) = (line.0, line.0 + lines);
        // The disk may end within a line of an extent: its end is that of the volume.
        let end = self.header.config.extents() * extent_lines;
        let head = from.next_multiple_of(extent_lines).min(to);
        if head > from && is_stuck(from, head) {
            from = head;
        }
        let tail = to / extent_lines * extent_lines;
        if tail >= from && tail < to && to < end && is_stuck(tail, to) {
            to = tail;
        }
        (from < to).then(|| (Line(from), to - from))
    }

    /// Whether an extent that is placed there can be written.
    pub(super) fn is_usable(&self, place: Place) -> bool {
        let layout = self.layout(place.set);
        let all = self.lines_of_place(place);
        let unit_lines = u64::from(layout.unit_lines());
        let mut line = all.first.0;
        while line < all.first.0 + all.lines {
            if self.is_line_stuck(place, SetLine(line)) {
                return false;
            }
            line = (line / unit_lines + 1) * unit_lines;
        }
        true
    }

    fn is_line_stuck(&self, place: Place, line: SetLine) -> bool {
        let layout = self.layout(place.set);
        let at = layout.locate(line);
        let is_there = |at_place: usize| {
            self.is_current(place.set, at_place, at.stripe)
                && !self.is_away(layout.member(at_place))
        };
        let mut own = layout.data_places(at.stripe, at.unit);
        if own.any(is_there) {
            return false;
        }
        match layout.level() {
            RaidLevel::Raid0 | RaidLevel::Raid1 => true,
            // The parity stands for it, if that can be had without it.
            RaidLevel::Raid5 => (0..layout.places()).filter(|place| !is_there(*place)).count() > 1,
        }
    }

    /// What the engine has counted.
    pub(crate) fn note_log_share(&mut self, share: LogShare) {
        self.log_share = share;
    }
}
