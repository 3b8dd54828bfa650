//! Steps 4 to 9 of an opening: which members count, what they have missed, and what is lost with
//! those that were replaced.

use super::{Cell, Step};
use crate::buffer::Buffer;
use crate::error::VolumeOpenError;
use crate::io::{Device, IoData, IoOperation};
use crate::units::{LINE_SIZE, MemberIndex};
use crate::volume::Volume;
use crate::volume::format::label::MemberLabel;
use crate::volume::format::root::MemberState;
use crate::volume::lost::LineRun;
use crate::volume::members::Member;
use crate::volume::placement::RaidLevel;
use crate::volume::raid::{Layout, SetLine};

impl Volume {
    pub(super) fn look_at_members(&mut self) -> Result<(), VolumeOpenError> {
        let released = self.look_at_others()?;
        let infos = self.opening().infos.clone();
        let missing: Vec<MemberIndex> = self
            .members
            .iter()
            .filter(|(index, member)| {
                let is_there = infos[usize::from(index.0)].is_some_and(|info| info.label.is_some());
                !is_there && member.state == MemberState::UpToDate
            })
            .map(|(index, _)| index)
            .collect();
        if !missing.is_empty() && !self.degraded_allowed {
            // Somebody has put back what was replaced, in place of the new one.
            if let Some(member) = missing.iter().find(|member| released.contains(*member)) {
                return Err(VolumeOpenError::MemberReplaced { member: *member });
            }
            return Err(VolumeOpenError::MembersMissing { missing });
        }
        for (index, info) in infos.iter().enumerate() {
            let index = MemberIndex(index as u8);
            let member = self.members.get_mut(index);
            member.is_present = info.is_some();
            if let MemberState::Rebuilding { set, stripe } = member.state {
                // Of a forged root or record there may be no such place.
                let stripes = self.layouts.get(usize::from(set)).map(Layout::stripes);
                if stripe > stripes.unwrap_or(0) {
                    return Err(VolumeOpenError::Tables);
                }
                member.rebuilt = (set, stripe);
            }
        }
        self.missed.drop_unneeded();
        for (index, info) in infos.iter().enumerate() {
            let index = MemberIndex(index as u8);
            let label = info.and_then(|info| info.label);
            if let Some(label) = label {
                if !self.is_disk_of(index, &label) {
                    return Err(VolumeOpenError::MemberReplaced { member: index });
                }
                self.members.get_mut(index).label_copy = label.copy;
                self.look_at_label(index, label.epoch)?;
            }
            let is_new = label.is_some_and(|label| label.epoch >= self.epoch);
            let is_blank = info.is_some() && label.is_none();
            if is_blank {
                self.opening().given_up.insert(index);
            }
            let is_given_up = self.opening().given_up.contains(&index);
            if is_given_up {
                self.lose_raid0(index);
            }
            let catches_up =
                self.look_at_missed(index, label.map(|label| label.epoch), is_given_up);
            if catches_up || is_new || self.members.get(index).state == MemberState::Stale {
                continue;
            }
            if is_given_up || self.members.can_do_without(index, &self.layouts) {
                // It was there at the last start, so it lacks at most what is in the ring.
                let found = self.members.get_mut(index);
                if info.is_none()
                    && found.state == MemberState::UpToDate
                    && found.label_epoch == self.epoch
                {
                    self.missed.note(index);
                }
                found.state = MemberState::Stale;
                self.state_changes.waiting.push_back((index, MemberState::Stale));
            } else {
                self.note_what_it_may_lack(index);
            }
        }
        for region in self.journal.missed_regions() {
            self.missed.mark(region);
        }
        Ok(())
    }

    /// A member that is not there, or was not at an earlier start, goes on counting as up to date
    /// where the others cannot do without it. Other sets are changed without it, and no record says
    /// so: what it lacks nobody knows. Durable before its label is as new as any.
    fn note_what_it_may_lack(&mut self, index: MemberIndex) {
        let is_in_redundant = self
            .layouts
            .iter()
            .any(|layout| layout.level() != RaidLevel::Raid0 && layout.place_of(index).is_some());
        if is_in_redundant && self.members.get(index).state == MemberState::UpToDate {
            self.missed.note_all(index);
            self.state_changes.waiting.push_back((index, MemberState::UpToDate));
        }
    }

    /// Whether what is marked is all that the disk in a member's place lacks: it is the disk that
    /// was there, as it was left. Then, if it was away, it is to be brought up to date: whether that
    /// is so.
    fn look_at_missed(
        &mut self,
        index: MemberIndex,
        label: Option<u64>,
        is_given_up: bool,
    ) -> bool {
        if !self.missed.is_noted(index) {
            return false;
        }
        let Member { state, label_epoch: known, .. } = *self.members.get(index);
        let is_older = label.is_some_and(|label| label < known);
        if is_given_up || is_older {
            self.missed.forget(index);
            // Durable before its label is as new as any.
            self.state_changes.waiting.push_back((index, state));
        } else if label.is_some() && known < self.epoch && state != MemberState::UpToDate {
            self.repair.rebuild_next(index);
            if state != MemberState::Stale && !self.members.can_do_without(index, &self.layouts) {
                return false;
            }
            // Another may be first, and a start knows by this that it waits. What it had of what it
            // missed before, it has missed again.
            let state = MemberState::Rebuilding { set: 0, stripe: 0 };
            let found = self.members.get_mut(index);
            (found.state, found.rebuilt) = (state, (0, 0));
            self.state_changes.waiting.push_back((index, state));
            return true;
        }
        false
    }

    /// Whether a label is that of the disk which counts as this member.
    pub(in crate::volume) fn is_disk_of(&self, member: MemberIndex, label: &MemberLabel) -> bool {
        label.standing.is_member() && label.disk == self.members.get(member).disk
    }

    /// Whether a label is as new as it can be. One of an earlier time than the newest that the
    /// member is known to have had is on a copy of that time. What it has missed of redundant sets
    /// the others have; of RAID 0 sets nobody has it, and nothing on the disk tells.
    fn look_at_label(&mut self, member: MemberIndex, label: u64) -> Result<(), VolumeOpenError> {
        // Labels are written before the journal knows, one epoch at a time.
        let newest = self.epoch + 1;
        if label > newest {
            return Err(VolumeOpenError::CacheDiskOlder { member, label, newest });
        }
        let known = self.members.get(member).label_epoch;
        if label >= known {
            return Ok(());
        }
        let lines: u64 = self.raid0_runs_on(member).iter().map(|run| run.lines).sum();
        if lines == 0 {
            return Ok(());
        }
        if !self.accept_damage {
            return Err(VolumeOpenError::MemberOlder { member, label, known, lines });
        }
        self.opening().given_up.insert(member);
        Ok(())
    }

    /// What a member holds of extents on RAID 0 sets.
    pub(in crate::volume) fn raid0_runs_on(&self, member: MemberIndex) -> Vec<LineRun> {
        let mut runs = Vec::new();
        for extent in self.extents.known() {
            let Some(place) = self.extents.get(extent).place else { continue };
            let layout = self.layout(place.set);
            if layout.level() != RaidLevel::Raid0 || layout.place_of(member).is_none() {
                continue;
            }
            let all = self.lines_of_place(place);
            let unit_lines = u64::from(layout.unit_lines());
            let mut line = all.first.0;
            while line < all.first.0 + all.lines {
                let end = (line / unit_lines + 1) * unit_lines;
                let lines = end.min(all.first.0 + all.lines) - line;
                let run = LineRun { first: SetLine(line), lines, ..all };
                if layout.has_lines_on(run.first, 1, member) {
                    runs.push(run);
                }
                line += lines;
            }
        }
        runs
    }

    /// A blank disk is in a member's place, or an older copy of it, and whoever put it there knows
    /// what that means for RAID 0: what was there is lost.
    fn lose_raid0(&mut self, member: MemberIndex) {
        let runs = self.raid0_runs_on(member);
        self.lose_lines(&runs);
        self.opening().has_lost_lines |= !runs.is_empty();
    }

    /// Nothing holds these lines any more.
    pub(in crate::volume) fn lose_lines(&mut self, runs: &[LineRun]) {
        for run in runs {
            self.lost.lose(*run);
            self.dirty_lost_lines(*run);
        }
        // What records in the journal say of these lines is older than this.
        if !runs.is_empty() {
            self.lost.since_record = self.journal.next_sequence();
        }
    }

    pub(super) fn write_lines_again(&mut self) {
        let redo = std::mem::take(&mut self.opening().redo);
        let ring = std::mem::take(&mut self.opening().ring);
        // Adjacent columns are one write.
        let mut runs: Vec<(Cell, Vec<u8>)> = Vec::new();
        for ((set, stripe, row, column), at) in redo {
            let bytes = match at {
                Some(at) => &ring[at..at + LINE_SIZE as usize],
                None => &[0; LINE_SIZE as usize],
            };
            match runs.last_mut() {
                Some(((a, b, c, first), data))
                    if (*a, *b, *c) == (set, stripe, row)
                        && u64::from(*first) + data.len() as u64 / LINE_SIZE
                            == u64::from(column) =>
                {
                    data.extend_from_slice(bytes);
                }
                _ => runs.push(((set, stripe, row, column), bytes.to_vec())),
            }
        }
        for ((set, stripe, row, column), data) in runs {
            let layout = self.layout(set).clone();
            for place in layout.places_of_row(stripe, row) {
                if !self.is_current(set, place, stripe) {
                    continue;
                }
                let index = layout.member(place);
                let offset = layout.offset(stripe, column);
                let data = IoData::Owned(Buffer::copy_of(&data));
                let write = IoOperation::Write { offset, data, fua: false };
                self.want(Device::Member(index), write, Step::Redo(index));
                self.counters.lines_redone += 1;
            }
        }
    }

    /// Not over the newest that a member has: a torn one leaves that, which counts until step 9.
    pub(super) fn write_labels(&mut self) {
        let twin = self.twin_label_to_write();
        for index in self.present() {
            let offset = self.members.label_offset(index);
            let label = self.label_of(index, self.epoch + 1, twin);
            let data = IoData::Owned(label.encode());
            let write = IoOperation::Write { offset, data, fua: false };
            self.want(Device::Member(index), write, Step::Label(index));
        }
    }

    /// A blank disk that does not take its label looks blank to the next start, which would give up
    /// what RAID 0 sets were told to keep there: it is told nothing. So with one that looks old.
    pub(super) fn leave_out_if_given_up(&mut self, member: MemberIndex) {
        let is_given_up = self.opening().given_up.contains(&member);
        let mut raid0 = self.layouts.iter().filter(|layout| layout.level() == RaidLevel::Raid0);
        if is_given_up && raid0.any(|layout| layout.place_of(member).is_some()) {
            self.members.get_mut(member).is_present = false;
        }
    }
}
