//! Labels: who counts, and which regions are marked. One label is under way at a time, on all legs
//! at once.
//!
//! A change of the membership takes two, one to each copy, so that no copy that rots brings the
//! membership before back (C20):
//!
//! 1. The first names it, *not in force*, on the witness that it names, then on all legs; on one
//!    that joins last.
//!    Crash between them: nobody has been answered under it, and a leg that lacks it is as good as
//!    one that has it. What a leg has of it, the witness has.
//! 2. The second says that it is in force: all have the first.
//!    Crash from here on: a leg without either is an older copy of itself.
//! 3. Now what waited for it is told.
//!
//! Marks take one label, in turn to each copy.

use std::collections::VecDeque;

use super::{Asker, LegIndex, LegSet, LegStanding, Legs, LegsPhase, Purpose};
use crate::format::leg_label::{LegLabel, LegState, Membership, Tag};
use crate::io::{IoData, IoError, IoOperation, LegError};
use crate::units::Uuid;

/// Makes the names of memberships: random as its seed is.
pub(super) struct Tags {
    seed: u64,
    made: u64,
}

impl Tags {
    pub(super) fn new(seed: u64) -> Tags {
        Tags { seed, made: 0 }
    }

    /// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA
    /// 2014).
    fn next(&mut self) -> Tag {
        loop {
            self.made += 1;
            let mut z = self.seed.wrapping_add(self.made.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            let tag = z ^ z >> 31;
            if tag != 0 {
                return Tag(tag);
            }
        }
    }
}

/// A label on its way to some legs.
struct Stage {
    legs: LegSet,
    /// And to the witness, if the membership names one.
    has_witness: bool,
    number: u64,
    is_in_force: bool,
}

/// Labels on their way.
pub(super) struct LabelWrite {
    membership: Membership,
    marks: Vec<u32>,
    /// Those to come, the next first.
    stages: VecDeque<Stage>,
    /// Legs of this stage that have not answered.
    left: u32,
    /// The last leg that counts does not take it.
    error: Option<IoError>,
    number: u64,
    /// The witness has all of them so far.
    witness_has_it: bool,
}

impl LabelWrite {
    /// Legs that a start may come to believe.
    pub(super) fn legs_named(&self) -> &[Uuid] {
        &self.membership.members
    }

    /// The witness that they name.
    pub(super) fn witness_named(&self) -> Option<Uuid> {
        self.membership.witness
    }
}

impl Legs {
    pub(super) fn advance_labels(&mut self) -> bool {
        if self.label_write.is_some() || self.phase != LegsPhase::Running {
            return false;
        }
        if self.membership_is_due() || self.witness_is_due() {
            if self.witness_is_looked_after() {
                return false;
            }
            self.begin_membership();
            return true;
        }
        if !self.marks.are_wanted() {
            return false;
        }
        let Some(marks) = self.marks.for_label() else { return self.flush_for_marks() };
        let number = self.number + 1;
        let legs = self.legs_that_count();
        let stage = Stage { legs, has_witness: false, number, is_in_force: true };
        self.begin_labels(self.membership.clone(), marks, VecDeque::from([stage]));
        true
    }

    /// Whether others count than the labels say.
    pub(super) fn membership_is_due(&self) -> bool {
        let members = &self.membership.members;
        let counting = self.legs.iter().filter(|leg| leg.counts());
        let is_other = |leg: &super::Leg| !members.contains(&leg.uuid);
        counting.clone().any(is_other) || counting.count() != members.len()
    }

    /// Whether the labels, or those that are being written, follow what a leg goes by that is none
    /// of them. A membership that is not in force there, and that a leg which counts never got,
    /// was never in force: nobody was answered under it, and the one before counts.
    pub(super) fn follows(&self, other: &LegLabel) -> bool {
        let being_written = self.label_write.as_ref().map(|write| &write.membership);
        let newest = being_written.unwrap_or(&self.membership);
        let has_one_that_counts = || other.membership.members.iter().any(|it| self.leg_counts(*it));
        let never_in_force =
            !other.is_in_force && (other.state == LegState::Witness || has_one_that_counts());
        newest.knows(other.membership.tag) || never_in_force && newest.knows(other.base())
    }

    /// Why what has this label, which is not followed, cannot be taken in.
    pub(super) fn refusal_of(&self, other: &LegLabel) -> LegError {
        let is_related = self.membership.is_related_to(&other.membership);
        match other.cache == self.cache && !is_related {
            true => LegError::Unknown,
            false => LegError::Newer,
        }
    }

    /// It counts no more: what tags its labels may have. `had_them`: it had those of now.
    pub(super) fn keep_tags_of(&mut self, name: Uuid, had_them: bool) {
        if had_them {
            self.kept_tags.forget(name);
        }
        self.kept_tags.keep(name, self.membership.tag);
        if let Some(write) = &self.label_write {
            self.kept_tags.keep(name, write.membership.tag);
        }
    }

    /// Makes those the members that count now.
    pub(super) fn begin_membership(&mut self) {
        let legs = self.legs_that_count();
        let is_joining = |leg: &LegIndex| self.leg(*leg).standing == LegStanding::Joining;
        let joining: LegSet = legs.iter().filter(is_joining).collect();
        let old = legs.without(joining);
        let members: Vec<Uuid> = legs.iter().map(|leg| self.leg(leg).uuid).collect();
        let witness = self.witness_to_name();
        if witness.is_some() {
            self.witness_may_know(&members);
        }
        let (tag, keep) = (self.tags.next(), self.kept_tags.all());
        let membership = self.membership.next_keeping(tag, members, witness, &keep);
        let (first, second) = (self.number + 1, self.number + 2);
        let stage = |legs, has_witness, number, is_in_force| Stage {
            legs,
            has_witness,
            number,
            is_in_force,
        };
        let mut stages = VecDeque::from([
            stage(LegSet::default(), true, first, false),
            stage(old, false, first, false),
        ]);
        if !joining.is_empty() {
            stages.push_back(stage(joining, false, first, false));
        }
        stages.push_back(stage(legs, true, second, true));
        let marks = match self.marks.for_label() {
            Some(marks) => marks,
            None => self.marks.in_labels(),
        };
        self.begin_labels(membership, marks, stages);
    }

    fn begin_labels(&mut self, membership: Membership, marks: Vec<u32>, stages: VecDeque<Stage>) {
        let (number, witness_has_it) = (self.number, membership.witness.is_some());
        self.label_write = Some(LabelWrite {
            membership,
            marks,
            stages,
            left: 0,
            error: None,
            number,
            witness_has_it,
        });
        self.next_stage();
    }

    /// The label of a leg as it is to be.
    fn label_of(&self, leg: LegIndex, write: &LabelWrite, stage: &Stage) -> LegLabel {
        LegLabel {
            cache: self.cache,
            leg: self.leg(leg).uuid,
            number: stage.number,
            state: LegState::Member,
            membership: write.membership.clone(),
            is_in_force: stage.is_in_force,
            region_bytes: self.region_bytes as u32,
            marks: write.marks.clone(),
            witness_before: None,
        }
    }

    fn next_stage(&mut self) {
        let Some(mut write) = self.label_write.take() else { return };
        if self.failure().is_some() {
            // Nobody will be answered under it.
            self.number = write.number;
            return;
        }
        let Some(stage) = write.stages.pop_front() else { return self.labels_written(write) };
        // One may have failed since the stages were made.
        let legs = stage.legs.and(self.legs_that_count());
        (write.left, write.number) = (legs.len(), stage.number);
        let labels: Vec<_> =
            legs.iter().map(|leg| (leg, self.label_of(leg, &write, &stage))).collect();
        let membership = write.membership.clone();
        self.label_write = Some(write);
        let is_witness_asked =
            stage.has_witness && self.label_witness(&membership, stage.is_in_force);
        if let Some(write) = self.label_write.as_mut().filter(|_| stage.has_witness) {
            write.left += u32::from(is_witness_asked);
            write.witness_has_it &= is_witness_asked;
        }
        if labels.is_empty() && !is_witness_asked {
            return self.next_stage();
        }
        for (leg, label) in labels {
            let (offset, data) = (LegLabel::offset(label.number), IoData::Owned(label.encode()));
            self.start_io(leg, IoOperation::Write { offset, data, fua: true }, Purpose::Label);
        }
    }

    pub(super) fn label_done(&mut self, leg: LegIndex, result: Result<(), IoError>) {
        let mut error = result.err();
        if let Some(error) = error {
            self.leg_failed(leg, error);
        }
        // Only the last one still counts behind that.
        error = error.filter(|_| self.leg(leg).counts());
        self.label_answered(error);
    }

    /// The witness has answered, or is out.
    pub(super) fn witness_label_done(&mut self, result: Result<(), IoError>) {
        let write = self.label_write.as_mut().expect("it is under way");
        write.witness_has_it &= result.is_ok();
        self.label_answered(None);
    }

    fn label_answered(&mut self, error: Option<IoError>) {
        let write = self.label_write.as_mut().expect("it is under way");
        write.left -= 1;
        write.error = write.error.or(error);
        if write.left > 0 {
            return;
        }
        match write.error {
            Some(error) => self.labels_failed(error),
            None => self.next_stage(),
        }
    }

    fn labels_written(&mut self, write: LabelWrite) {
        self.number = write.number;
        let is_new = self.membership != write.membership;
        self.membership = write.membership;
        self.marks.label_written(&write.marks);
        if is_new {
            self.witness_knows_now(write.witness_has_it);
        }
        for leg in &mut self.legs {
            let is_member = self.membership.members.contains(&leg.uuid);
            if leg.standing == LegStanding::Joining && is_member {
                leg.standing = LegStanding::InSync;
            }
        }
        // What waits for something else would guess what is written next again, and want a label.
        self.look_at_waiting |= self.marks.are_waited_for();
    }

    /// The last leg that counts takes no label.
    fn labels_failed(&mut self, error: IoError) {
        let write = self.label_write.take().expect("it is under way");
        self.number = write.number;
        self.marks.give_up();
        // 1. What waited for marks has failed; the rest goes on, as with one disk.
        self.refuse_waiting(error);
        // 2. But without a membership nobody can be told of anything any more: a start would
        //    believe legs that lack it.
        if write.membership != self.membership {
            self.give_membership_up(error);
        }
    }

    /// Who counts can be told to nobody any more.
    pub(super) fn give_membership_up(&mut self, error: IoError) {
        self.marks.give_up();
        self.refuse_waiting(error);
        self.phase = match self.phase {
            LegsPhase::Running => LegsPhase::ReadOnly(error),
            LegsPhase::Opening => LegsPhase::Failed(error),
            failed => failed,
        };
        self.opening = None;
    }

    /// Marks have no room before those of regions go that are the same everywhere.
    fn flush_for_marks(&mut self) -> bool {
        if self.is_flushing_for_marks || !self.marks.would_be_cleaned() {
            return false;
        }
        self.is_flushing_for_marks = true;
        self.flush(Asker::Marks);
        true
    }

    pub(super) fn flushed_for_marks(&mut self, result: Result<(), IoError>) {
        self.is_flushing_for_marks = false;
        if let Err(error) = result {
            self.marks.give_up();
            self.refuse_waiting(error);
        }
    }

    pub(super) fn refuse_waiting(&mut self, error: IoError) {
        for io in std::mem::take(&mut self.waiting) {
            self.refuse(io, error);
        }
    }
}
