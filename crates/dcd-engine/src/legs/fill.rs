//! A leg that holds what is older, or nothing, is filled while the others serve.
//!
//! 1. Its label says that it is being filled, in both copies, durable, before its first byte
//!    changes: it is neither believed nor missed.
//! 2. From here on it takes every change, as those in sync do.
//! 3. Region by region is copied to it. Changes of that region wait, and those under way are waited
//!    for, so that nothing older is written over what is newer.
//! 4. It is flushed. What was copied is durable there now, and what came from above with each flush
//!    from above, which it takes since step 2.
//! 5. It counts: what is called durable from here on is durable on it. The others name it, then it
//!    does itself (`labels`). If it fails from here on it is put out as any other.
//!    Crash before its own label: it is being filled, and nobody was answered on its word.

use super::copying::{CopyState, Copying};
use super::{Kind, Leg, LegIndex, LegStanding, Legs, LegsPhase, Purpose};
use crate::format::leg_label::{LEG_LABEL_OFFSETS, LEGS_MAX, LegLabel, LegState};
use crate::io::{IoData, IoError, IoOperation, LegError};
use crate::units::{Duration, Time, Uuid};

/// Places of legs, with those that have failed and are still there.
const PLACES_MAX: usize = 16;

/// What an I/O of it is; copying has its own.
#[derive(Clone, Copy)]
pub(super) enum Step {
    Label,
    Flush,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Label { copy: usize },
    Copy,
    Flush,
}

pub(super) struct Fill {
    leg: LegIndex,
    stage: Stage,
    is_waiting: bool,
    /// The next region.
    region: u32,
    /// When the region before it was begun.
    begun: Option<Time>,
    pub(super) copying: Option<Copying>,
    /// This region belongs to the copy: changes of it wait.
    is_claimed: bool,
}

impl Legs {
    /// Whether the leg that is being filled takes changes.
    pub(super) fn filling_takes_changes(&self) -> bool {
        self.fill.as_ref().is_some_and(|fill| !matches!(fill.stage, Stage::Label { .. }))
    }

    /// The region that changes have to wait for.
    pub(super) fn region_being_copied(&self) -> Option<u32> {
        self.fill.as_ref().filter(|fill| fill.is_claimed).map(|fill| fill.region)
    }

    /// Bytes that the leg being filled has, of how many.
    pub(super) fn filled(&self) -> (u64, u64) {
        let region = self.fill.as_ref().map_or(0, |fill| fill.region);
        (self.bytes_of(region).start.min(self.end), self.end)
    }

    /// A leg that is out is to be filled.
    pub(crate) fn add(&mut self, leg: LegIndex) -> Result<(), LegError> {
        match self.leg(leg).standing {
            LegStanding::InSync | LegStanding::Joining | LegStanding::Filling => {
                Err(LegError::InUse)
            }
            LegStanding::Stale => Ok(()),
            LegStanding::TakenOut => Err(LegError::TakenOut),
            LegStanding::Failed(_) | LegStanding::LeftOut => {
                self.check_room()?;
                self.leg_mut(leg).standing = LegStanding::Stale;
                Ok(())
            }
        }
    }

    /// A disk becomes a leg, in the place that is returned, and is filled. `before`: the label that
    /// it has, if it was one of this cache.
    pub(crate) fn join(
        &mut self,
        uuid: Uuid,
        before: Option<&LegLabel>,
    ) -> Result<LegIndex, LegError> {
        if let Some(before) = before {
            let is_used = |leg: &Leg| leg.uuid == before.leg && !leg.is_out();
            if self.legs.iter().any(is_used) {
                return Err(LegError::Copy);
            }
            // One that was being filled was never believed.
            let is_older = before.state == LegState::Filling || self.follows(before);
            if before.cache != self.cache || !is_older {
                return Err(self.refusal_of(before));
            }
        }
        self.check_room()?;
        // The place of one that was taken out, and has answered all that it was asked.
        let free = self.legs.iter().position(Leg::is_free).unwrap_or(self.legs.len());
        if free >= PLACES_MAX {
            return Err(LegError::TooMany);
        }
        let leg = Leg::new(uuid, LegStanding::Stale);
        match self.legs.get_mut(free) {
            Some(place) => *place = leg,
            None => self.legs.push(leg),
        }
        self.missing.retain(|leg| before.is_none_or(|before| before.leg != *leg));
        if let Some(before) = before {
            self.kept_tags.keep(uuid, before.membership.tag);
        }
        let index = LegIndex(free as u8);
        self.forget_place(index);
        Ok(index)
    }

    /// What is remembered of a leg is not true of the next in its place.
    fn forget_place(&mut self, place: LegIndex) {
        self.recent_reads.retain(|read| read.leg != place);
        self.doubts.iter_mut().for_each(|doubt| doubt.wrong.remove(place));
        for upper in self.uppers.values_mut() {
            upper.done.remove(place);
            upper.failed.remove(place);
            if let Kind::Read { failed, .. } = &mut upper.kind {
                failed.remove(place);
            }
        }
    }

    /// Whether a label has room for one more that may come to count.
    fn check_room(&self) -> Result<(), LegError> {
        if self.failure().is_some() {
            return Err(LegError::NoLabels);
        }
        let used = self.legs.iter().filter(|leg| !leg.is_out()).count();
        if used < LEGS_MAX { Ok(()) } else { Err(LegError::TooMany) }
    }

    pub(super) fn advance_fill(&mut self) -> bool {
        if self.phase != LegsPhase::Running {
            return false;
        }
        let Some(mut fill) = self.fill.take() else { return self.begin_fill() };
        if fill.is_waiting {
            self.fill = Some(fill);
            return false;
        }
        match fill.stage {
            Stage::Label { copy: 2 } => {
                fill.stage = Stage::Copy;
                self.fill = Some(fill);
                true
            }
            Stage::Label { copy } => {
                fill.is_waiting = true;
                let data = IoData::Owned(self.filling_label(fill.leg, copy).encode());
                let operation =
                    IoOperation::Write { offset: LEG_LABEL_OFFSETS[copy], data, fua: true };
                let leg = fill.leg;
                self.fill = Some(fill);
                self.start_io(leg, operation, Purpose::Fill(Step::Label));
                false
            }
            Stage::Copy => self.fill_region(fill),
            Stage::Flush => {
                fill.is_waiting = true;
                let leg = fill.leg;
                self.fill = Some(fill);
                self.start_io(leg, IoOperation::Flush, Purpose::Fill(Step::Flush));
                false
            }
        }
    }

    /// Step 1, of the next leg that is stale. One that has not answered yet may still write what
    /// is older.
    fn begin_fill(&mut self) -> bool {
        let may =
            |(_, leg): &(LegIndex, &Leg)| leg.standing == LegStanding::Stale && leg.in_flight == 0;
        // The label that it gets names a membership that is durable. So is that of the others,
        // which may still name the leg that this disk was: nobody could give that any more.
        if self.label_write.is_some() || self.membership_is_due() {
            return false;
        }
        let Some(leg) = self.indexed().find(may).map(|(index, _)| index) else { return false };
        self.leg_mut(leg).standing = LegStanding::Filling;
        self.kept_tags.keep(self.leg(leg).uuid, self.membership.tag);
        self.fill = Some(Fill {
            leg,
            stage: Stage::Label { copy: 0 },
            is_waiting: false,
            region: 0,
            begun: None,
            copying: None,
            is_claimed: false,
        });
        true
    }

    fn filling_label(&self, leg: LegIndex, copy: usize) -> LegLabel {
        LegLabel {
            cache: self.cache,
            leg: self.leg(leg).uuid,
            // In their places: the label of a membership that takes it in has a higher number.
            number: self.number.saturating_sub(1) / 2 * 2 + copy as u64,
            state: LegState::Filling,
            membership: self.membership.clone(),
            is_in_force: true,
            region_bytes: self.region_bytes as u32,
            marks: Vec::new(),
            witness_before: None,
        }
    }

    /// Step 3.
    fn fill_region(&mut self, mut fill: Fill) -> bool {
        if let Some(mut copying) = fill.copying.take() {
            let state = self.copy_on(&mut copying);
            match state {
                CopyState::UnderWay => {
                    fill.copying = Some(copying);
                    self.fill = Some(fill);
                    return false;
                }
                CopyState::Done { unreadable } if unreadable > 0 => {
                    // What nobody can read would be believed there.
                    let leg = fill.leg;
                    self.fill = Some(fill);
                    self.leg_failed(leg, IoError::Failed);
                    return true;
                }
                CopyState::Done { .. } => {
                    fill.is_claimed = false;
                    self.look_at_waiting = true;
                    fill.region += 1;
                }
            }
        }
        if fill.region == self.marks.count() {
            fill.stage = Stage::Flush;
            self.fill = Some(fill);
            return true;
        }
        if self.fill_pause(&fill).is_some() {
            self.fill = Some(fill);
            return false;
        }
        fill.is_claimed = true;
        let is_written = self.marks.is_written(fill.region)
            || self.mending.iter().any(|regions| regions.contains(&fill.region));
        if !is_written {
            let from = self.legs_that_count().first().expect("one counts always");
            let to = [fill.leg].into_iter().collect();
            fill.copying = Some(self.begin_copying(fill.region, from, to));
            fill.begun = Some(self.patience.now());
        }
        self.fill = Some(fill);
        !is_written
    }

    /// Since when, and for how long, the next region has to wait, if a rate is set.
    fn fill_pause(&self, fill: &Fill) -> Option<(Time, Duration)> {
        let begun = fill.begun.filter(|_| self.fill_rate > 0 && !fill.is_claimed)?;
        let each = u128::from(self.region_bytes) * 1_000_000_000 / u128::from(self.fill_rate);
        let each = Duration(u64::try_from(each).unwrap_or(u64::MAX));
        (self.patience.waited(begun) < each).then_some((begun, each))
    }

    /// When a fill that waits goes on.
    pub(super) fn fill_wake_up(&self) -> Option<Time> {
        let fill = self.fill.as_ref().filter(|fill| fill.stage == Stage::Copy)?;
        let (begun, each) = self.fill_pause(fill)?;
        Some(self.patience.wake_up(begun, each))
    }

    pub(super) fn fill_done(&mut self, step: Step, leg: LegIndex, result: Result<(), IoError>) {
        let Some(fill) = self.fill.as_mut().filter(|fill| fill.leg == leg) else { return };
        fill.is_waiting = false;
        if let Err(error) = result {
            return self.leg_failed(leg, error);
        }
        match (step, fill.stage) {
            (Step::Label, Stage::Label { copy }) => fill.stage = Stage::Label { copy: copy + 1 },
            // Step 5: what is done from here on must be durable there, too.
            (Step::Flush, _) => {
                self.fill = None;
                self.leg_mut(leg).standing = LegStanding::Joining;
            }
            (Step::Label, _) => unreachable!("labels come first"),
        }
    }

    /// The leg is put out: what was copied to it is worth nothing.
    pub(super) fn fill_ends_of(&mut self, leg: LegIndex) {
        if self.fill.as_ref().is_some_and(|fill| fill.leg == leg) {
            self.fill = None;
            self.look_at_waiting = true;
        }
    }

    /// The copy under way: of the opening, or of a fill.
    pub(super) fn take_copying(&mut self, number: u64) -> Option<Copying> {
        let is_it = |copying: &mut Copying| copying.number == number;
        let of_opening = self.opening.as_mut().and_then(|opening| opening.copying.take_if(is_it));
        let of_fill = || self.fill.as_mut().and_then(|fill| fill.copying.take_if(is_it));
        of_opening.or_else(of_fill)
    }

    pub(super) fn put_copying(&mut self, copying: Copying) {
        if let Some(opening) = &mut self.opening {
            opening.copying = Some(copying);
        } else if let Some(fill) = &mut self.fill {
            fill.copying = Some(copying);
        }
    }
}
