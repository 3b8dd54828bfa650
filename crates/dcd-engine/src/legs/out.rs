//! A leg that counts no more: because it has failed, or because somebody takes it out.
//!
//! 1. It is asked for nothing more, and nothing that it was asked for is waited for.
//! 2. A membership without it becomes durable on all others (`labels`), in both copies.
//!    Crash before: a start may still believe it, and nobody was told of what it lacks.
//! 3. What it lacks is called done. From here on no start believes it.
//!
//! If there is a witness that could be believed with it, that is told first, and has to take it
//! (`witness`).
//!
//! The last leg is never put out: what it cannot do goes up as the error of the cache-disk.

use super::{LegIndex, LegStanding, Legs, Purpose};
use crate::io::{IoError, IoId, LegError};
use crate::units::Time;

impl Legs {
    /// Whether it is the only one in sync, so that nothing can be done without it.
    fn is_last(&self, leg: LegIndex) -> bool {
        self.leg(leg).counts() && self.legs_that_count().len() == 1
    }

    /// Step 1, of a leg that has failed.
    pub(super) fn leg_failed(&mut self, leg: LegIndex, error: IoError) {
        if self.is_last(leg) {
            return;
        }
        self.put_out(leg, LegStanding::Failed(error));
    }

    /// The same, of a leg that somebody takes out.
    pub(crate) fn remove(&mut self, leg: LegIndex) -> Result<(), LegError> {
        // What is in the place of its disk by now may be another leg.
        if self.leg(leg).standing == LegStanding::TakenOut {
            return Err(LegError::TakenOut);
        }
        if self.is_last(leg) {
            return Err(LegError::LastLeg);
        }
        if self.witness_is_needed_without(self.leg(leg).uuid) {
            return Err(LegError::WitnessNeeded);
        }
        self.put_out(leg, LegStanding::TakenOut);
        Ok(())
    }

    fn put_out(&mut self, leg: LegIndex, standing: LegStanding) {
        let was_out = self.leg(leg).is_out();
        if was_out && standing != LegStanding::TakenOut {
            return;
        }
        if self.leg(leg).counts() {
            let was_in_sync = self.leg(leg).standing == LegStanding::InSync;
            self.keep_tags_of(self.leg(leg).uuid, was_in_sync);
        }
        self.leg_mut(leg).standing = standing;
        if was_out {
            return;
        }
        self.fill_ends_of(leg);
        let error = match standing {
            LegStanding::Failed(error) => error,
            _ => IoError::Gone,
        };
        self.check_witness(error);
        let of_leg = |(id, io): (&IoId, &super::LegIo)| {
            (io.leg == leg && io.purpose.is_some()).then_some(*id)
        };
        let under_way: Vec<IoId> = self.ios.iter().filter_map(of_leg).collect();
        for id in under_way {
            self.give_up(id, error);
        }
    }

    /// An I/O is waited for no more. It may still land; the leg is not filled before it has ended.
    fn give_up(&mut self, id: IoId, error: IoError) {
        let Some(io) = self.ios.get_mut(&id) else { return };
        let (Some(purpose), leg) = (io.purpose.take(), io.leg) else { return };
        self.leg_mut(leg).given_up += 1;
        self.dispatch_done(purpose, leg, Err(error), None);
    }

    /// A leg that does not answer has failed (C26).
    pub(super) fn give_up_late(&mut self) {
        self.give_witness_up_late();
        while self.patience.looks() {
            // The oldest first: they are numbered in the order in which they were started.
            let next = self.ios.iter().find(|(_, io)| io.purpose.is_some());
            let Some((id, io)) = next else { return };
            if !self.patience.is_over(io.started, self.timeout) {
                return;
            }
            let (id, leg) = (*id, io.leg);
            let is_part = matches!(io.purpose, Some(Purpose::Part(_)));
            self.leg_mut(leg).counters.errors += 1;
            self.give_up(id, IoError::TimedOut);
            if !is_part {
                self.leg_failed(leg, IoError::TimedOut);
            }
        }
    }

    pub(crate) fn wake_up(&self) -> Option<Time> {
        let oldest = self.ios.values().find(|io| io.purpose.is_some());
        let late = oldest.map(|oldest| self.patience.wake_up(oldest.started, self.timeout));
        late.into_iter().chain(self.fill_wake_up()).chain(self.witness_wake_up()).min()
    }

    /// Why no label can be written any more.
    pub(crate) fn failure(&self) -> Option<IoError> {
        self.phase.error()
    }

    /// Whether whoever takes a leg out, or the witness, may be told that it is.
    pub(crate) fn has_told_all(&self) -> bool {
        !self.is_writing_out() && !self.is_dropping_witness()
    }

    /// Whether a start may still believe a leg that counts no more, and that will change.
    pub(crate) fn is_writing_out(&self) -> bool {
        if self.failure().is_some() {
            return false;
        }
        let being_written = self.label_write.iter().flat_map(|write| write.legs_named());
        let members = self.membership.members.iter().chain(&self.witness_knows);
        members.chain(being_written).any(|member| !self.leg_counts(*member))
    }
}
