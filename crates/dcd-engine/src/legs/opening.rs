//! A start makes the legs alike where they may differ, before anything is read.
//!
//! 1. Each marked region is read from the primary leg and written to all in sync, to that one, too:
//!    where a flush of it had failed it may show bytes that its medium does not have, and that no
//!    later flush brings there.
//!    Crash: the marks are still there; what was durable was on all of them, and is.
//! 2. All are flushed, also one alone: what a dead process left in its volatile cache would
//!    otherwise be copied to a leg that is filled, made durable there, and be lost here.
//! 3. A new membership of those in sync, without marks, becomes durable on all (`labels`). A leg
//!    that was not there has an older one from here on.
//! 4. What waited is started. Legs that hold what is older are filled (`fill`).

use std::collections::VecDeque;

use super::copying::{CopyState, Copying};
use super::{LegIndex, Legs, LegsPhase, Purpose};
use crate::io::{IoError, IoOperation};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Copy,
    Flush,
    Label,
}

pub(super) struct Opening {
    stage: Stage,
    regions: VecDeque<u32>,
    pub(super) copying: Option<Copying>,
    flushes_left: u32,
    has_begun: bool,
}

impl Opening {
    pub(super) fn new(regions: VecDeque<u32>) -> Opening {
        Opening { stage: Stage::Copy, regions, copying: None, flushes_left: 0, has_begun: false }
    }
}

impl Legs {
    pub(super) fn advance_opening(&mut self) -> bool {
        let Some(mut opening) = self.opening.take() else { return false };
        let is_over = match opening.stage {
            Stage::Copy => self.copy_marked(&mut opening),
            Stage::Flush => self.flush_opened(&mut opening),
            Stage::Label if !opening.has_begun => {
                opening.has_begun = true;
                self.begin_membership();
                false
            }
            Stage::Label => self.label_write.is_none(),
        };
        if !is_over {
            // Somebody may have given all of it up meanwhile.
            self.opening = Some(opening).filter(|_| self.phase == LegsPhase::Opening);
            return false;
        }
        opening.has_begun = false;
        opening.stage = match opening.stage {
            Stage::Copy => Stage::Flush,
            Stage::Flush => Stage::Label,
            Stage::Label => {
                self.phase = LegsPhase::Running;
                self.look_at_waiting = true;
                return true;
            }
        };
        self.opening = Some(opening);
        true
    }

    /// Step 1; whether it is over.
    fn copy_marked(&mut self, opening: &mut Opening) -> bool {
        loop {
            if let Some(mut copying) = opening.copying.take() {
                let state = self.copy_on(&mut copying);
                if let CopyState::UnderWay = state {
                    opening.copying = Some(copying);
                    return false;
                }
            }
            let legs = self.legs_that_count();
            if legs.len() == 1 {
                return true;
            }
            let Some(region) = opening.regions.pop_front() else { return true };
            let from = match legs.contains(self.primary) {
                true => self.primary,
                false => legs.first().expect("one counts always"),
            };
            opening.copying = Some(self.begin_copying(region, from, legs));
        }
    }

    /// Step 2.
    fn flush_opened(&mut self, opening: &mut Opening) -> bool {
        let legs = self.legs_that_count();
        if !opening.has_begun {
            opening.flushes_left = legs.len();
            for leg in legs.iter() {
                self.start_io(leg, IoOperation::Flush, Purpose::OpeningFlush);
            }
        }
        opening.has_begun = true;
        opening.flushes_left == 0
    }

    pub(super) fn opening_flushed(&mut self, leg: LegIndex, result: Result<(), IoError>) {
        if let Some(opening) = &mut self.opening {
            opening.flushes_left -= 1;
        }
        let Err(error) = result else { return };
        self.leg_failed(leg, error);
        // The last one: nothing can be relied on.
        if self.leg(leg).counts() {
            self.phase = LegsPhase::Failed(error);
            self.opening = None;
            self.refuse_waiting(error);
        }
    }
}
