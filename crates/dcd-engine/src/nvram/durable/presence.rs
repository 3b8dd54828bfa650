//! A memory that comes to be in front of the log, or goes from there, while requests are served.
//!
//! ```text
//! comes  1. Its heads, as with a start: it was blank.
//!             Requests go past it, changes with FUA: what is acknowledged from here on is durable.
//!        2. What was asked for before it came has ended, and a flush behind that.
//!             Else what the memory will hold could outlive what was acknowledged before it (C9).
//!        3. The superblock names it.
//!             Crash before: nothing names it, and nothing is in it. Behind it: a start needs it.
//!        4. Changes go into it.
//! goes   1. Changes go past it; what it holds goes below, and is durably cleared.
//!             Crash: it is named, and has what it has.
//!        2. The superblock names none.
//!             Crash before: it is named, and empty. Behind it: nobody misses it.
//!        3. Its heads are wiped: it may be anybody's.
//! ```
//!
//! One that has failed goes by itself. What was cleared in it cannot be made durable, and a start
//! that finds it named would show that over what is newer below; so changes wait until step 2 is
//! done, or until whoever drives it has waited for long enough ([`DurableNvram::fail_held`]).

use super::{DurableNvram, Persisting};
use crate::format::nvram::NvramIdentity;
use crate::io::{NvramChangeError, Operation, Request, RequestError, RequestId};
use crate::units::Time;

/// Whether requests go through a memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NvramPresence {
    /// It is coming; they go past it.
    Joining,
    /// They do.
    InUse,
    /// It is being emptied.
    Leaving,
    /// They go past it, for good.
    Out,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    InUse,
    Joining {
        id: RequestId,
        step: Joining,
    },
    Leaving {
        /// Nobody asks: it has failed.
        id: Option<RequestId>,
        step: Leaving,
    },
    Out,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Joining {
    /// Steps 1 and 2, as far as others are waited for.
    Waiting,
    /// Step 2: the flush.
    Flushing,
    /// The superblock may be told.
    Flushed,
    /// Step 3.
    Naming,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaving {
    /// Step 1, and until the superblock is being told.
    Emptying,
    Naming,
    Wiping,
}

impl Presence {
    pub(super) fn word(self) -> NvramPresence {
        match self {
            Presence::InUse => NvramPresence::InUse,
            Presence::Joining { .. } => NvramPresence::Joining,
            Presence::Leaving { .. } => NvramPresence::Leaving,
            Presence::Out => NvramPresence::Out,
        }
    }
}

impl DurableNvram {
    /// Begins with the memory while requests are served, which are answered by what is below as
    /// well. `id` is answered when it is in use, or not going to be.
    ///
    /// # Panics
    /// As [`DurableNvram::begin`].
    pub fn begin_on_line(&mut self, id: RequestId) {
        self.presence = Presence::Joining { id, step: Joining::Waiting };
        self.earlier_are_over = false;
        self.begin();
    }

    /// What was asked of what is below before this memory came has ended.
    pub fn earlier_have_ended(&mut self, now: Time) {
        self.now = now;
        self.earlier_are_over = true;
        self.advance();
    }

    /// What the superblock is to name from now on, this medium or none, as soon as it can be told.
    /// Until [`DurableNvram::begin_naming`] everybody may think better of it.
    pub fn to_name(&self) -> Option<Option<NvramIdentity>> {
        match self.presence {
            Presence::Joining { step: Joining::Flushed, .. } => Some(Some(self.identity)),
            Presence::Leaving { step: Leaving::Emptying, .. } => self.is_emptied().then_some(None),
            _ => None,
        }
    }

    /// The superblock is being told. [`DurableNvram::named`] says how that went.
    ///
    /// # Panics
    /// If there is nothing to be told.
    pub fn begin_naming(&mut self) {
        self.presence = match self.presence {
            Presence::Joining { id, step: Joining::Flushed } => {
                Presence::Joining { id, step: Joining::Naming }
            }
            Presence::Leaving { id, step: Leaving::Emptying } => {
                Presence::Leaving { id, step: Leaving::Naming }
            }
            _ => panic!("nothing is to be named"),
        };
    }

    /// The superblock was told, or cannot be.
    ///
    /// # Panics
    /// If it was not being told.
    pub fn named(&mut self, now: Time, result: Result<(), RequestError>) {
        self.now = now;
        match (self.presence, result) {
            (Presence::Joining { id, step: Joining::Naming }, Ok(())) => {
                self.presence = Presence::InUse;
                self.reply(id, Ok(()), None);
            }
            (Presence::Joining { id, step: Joining::Naming }, Err(error)) => {
                self.presence = Presence::Out;
                self.reply(id, Err(error), None);
            }
            (Presence::Leaving { id, step: Leaving::Naming }, Ok(())) if self.has_failed => {
                self.is_out(id);
            }
            (Presence::Leaving { id, step: Leaving::Naming }, Ok(())) => {
                self.presence = Presence::Leaving { id, step: Leaving::Wiping };
                self.slots.wipe_heads();
                self.persist(Persisting::Wipe);
            }
            (Presence::Leaving { step: Leaving::Naming, .. }, Err(error)) if self.has_failed => {
                self.stay(Err(error));
            }
            // Nobody knows whether it is named: it is empty, and stays so.
            (Presence::Leaving { id, step: Leaving::Naming }, Err(error)) => {
                self.presence = Presence::Out;
                if let Some(id) = id {
                    self.reply(id, Err(error), None);
                }
            }
            _ => panic!("nothing was to be named"),
        }
        self.advance();
    }

    /// Whether requests do not come here any more, and nothing that did is under way.
    pub fn is_gone(&self) -> bool {
        self.presence == Presence::Out
            && self.opening.is_none()
            && self.closing.is_none()
            && self.persisting == Persisting::Nothing
            && self.asked.is_empty()
            && self.parts.is_empty()
            && self.flush_to_join.is_none()
            && self.replies_held.is_empty()
            && self.held.is_empty()
            && self.outputs.is_empty()
    }

    /// Whether requests go through it, and whether its medium has failed. Cheap.
    pub fn standing(&self) -> (NvramPresence, bool) {
        (self.presence.word(), self.has_failed)
    }

    /// Whether changes wait until a memory that has failed is named no more.
    pub fn holds_changes(&self) -> bool {
        !self.held.is_empty()
    }

    /// They have waited long enough.
    pub fn fail_held(&mut self, now: Time) {
        self.now = now;
        self.end_held(RequestError::Io);
        self.advance();
    }

    // ---- what is asked ------------------------------------------------------------------------

    /// Requests go below as they are.
    pub(super) fn passes_all(&self) -> bool {
        match self.presence {
            Presence::InUse | Presence::Leaving { step: Leaving::Emptying, .. } => false,
            // Until a start believes it no more, what is below and newer may not be acknowledged.
            Presence::Leaving { step: Leaving::Naming, .. } => !self.has_failed,
            Presence::Joining { .. } | Presence::Leaving { .. } | Presence::Out => true,
        }
    }

    pub(super) fn pass(&mut self, request: Request) {
        let is_joining = matches!(self.presence, Presence::Joining { .. });
        let fua = request.fua || is_joining && request.operation.changes_blocks();
        self.ask_below(Request { fua, ..request });
    }

    /// Step 1 of one that goes.
    pub(super) fn begin_to_leave(&mut self, id: RequestId) {
        match self.presence {
            // One that has failed is going by itself, unless it holds what is nowhere else.
            Presence::Leaving { id: None, step } => {
                self.presence = Presence::Leaving { id: Some(id), step };
            }
            Presence::InUse => {
                self.trouble = None;
                self.presence = Presence::Leaving { id: Some(id), step: Leaving::Emptying };
            }
            Presence::Out => self.reply(id, Err(NvramChangeError::NoMemory.into()), None),
            Presence::Joining { .. } | Presence::Leaving { .. } => {
                self.reply(id, Err(NvramChangeError::UnderWay.into()), None);
            }
        }
    }

    pub(super) fn cancel_change(&mut self, change: RequestId) {
        match self.presence {
            Presence::Joining { id, step } if id == change && step != Joining::Naming => {
                self.presence = Presence::Out;
                self.reply(change, Err(RequestError::Cancelled), None);
            }
            Presence::Leaving { id: Some(id), step: Leaving::Emptying } if id == change => {
                self.presence = match self.has_failed {
                    true => Presence::Leaving { id: None, step: Leaving::Emptying },
                    false => Presence::InUse,
                };
                self.reply(change, Err(RequestError::Cancelled), None);
            }
            _ => {}
        }
    }

    /// The cache ends: what can be given up of a change is.
    pub(super) fn end_change(&mut self) {
        match self.presence {
            Presence::Joining { id, step } if step != Joining::Naming => {
                self.presence = Presence::Out;
                self.reply(id, Err(RequestError::ShuttingDown), None);
            }
            Presence::Leaving { step: Leaving::Emptying, .. } => {
                self.stay(Err(RequestError::ShuttingDown));
            }
            _ => {}
        }
        self.end_held(RequestError::ShuttingDown);
    }

    /// The superblock is being told: an end waits for that.
    pub(super) fn is_being_named(&self) -> bool {
        match self.presence {
            Presence::Joining { step, .. } => step == Joining::Naming,
            Presence::Leaving { step, .. } => step != Leaving::Emptying,
            Presence::InUse | Presence::Out => false,
        }
    }

    pub(super) fn is_leaving(&self) -> bool {
        matches!(self.presence, Presence::Leaving { .. })
    }

    pub(super) fn is_emptying_to_leave(&self) -> bool {
        matches!(self.presence, Presence::Leaving { step: Leaving::Emptying, .. })
    }

    pub(super) fn is_out_of_use(&self) -> bool {
        self.presence == Presence::Out
    }

    // ---- how it goes on -----------------------------------------------------------------------

    pub(super) fn advance_presence(&mut self) -> bool {
        match self.presence {
            Presence::Joining { id, step: Joining::Waiting }
                if self.earlier_are_over && self.flush_to_join.is_none() =>
            {
                let flush = self.own_id();
                self.flush_to_join = Some(flush);
                self.presence = Presence::Joining { id, step: Joining::Flushing };
                self.ask_below(Request { id: flush, operation: Operation::Flush, fua: false });
                true
            }
            Presence::Leaving { step: Leaving::Emptying, .. } => self.advance_emptying(),
            _ => false,
        }
    }

    /// A request of the tier's own has ended that is no part of a cleaning.
    pub(super) fn flushed_to_join(&mut self, flush: RequestId, result: Result<(), RequestError>) {
        if self.flush_to_join.take_if(|it| *it == flush).is_none() {
            return;
        }
        let Presence::Joining { id, step: Joining::Flushing } = self.presence else { return };
        match result {
            Ok(()) => self.presence = Presence::Joining { id, step: Joining::Flushed },
            Err(error) => {
                self.presence = Presence::Out;
                self.reply(id, Err(error), None);
            }
        }
    }

    fn advance_emptying(&mut self) -> bool {
        if let (Some(trouble), true) = (self.trouble, self.has_failed && !self.held.is_empty()) {
            self.end_held(trouble.error);
            return true;
        }
        if !self.is_clean() || self.slots.rotten().is_empty() {
            return false;
        }
        let lines = self.damaged_lines();
        self.stay(Err(RequestError::Lost { lines }));
        true
    }

    /// All that can go below has gone, and nobody is on his way through the memory.
    fn is_clean(&self) -> bool {
        self.pending.is_empty()
            && self.gathering.is_empty()
            && self.batch.is_empty()
            && self.reads_waiting.is_empty()
            && self.pasts_waiting.is_empty()
            && self.replies_waiting.is_empty()
            && self.cleanings_waiting.is_empty()
            && self.cleanings.is_empty()
            && self.persisting == Persisting::Nothing
            && self.nvram.dirty_blocks() == 0
    }

    fn is_emptied(&self) -> bool {
        let is_empty = self.slots.blocks() == 0 && !self.slots.has_cleared();
        self.is_clean() && self.slots.rotten().is_empty() && (self.has_failed || is_empty)
    }

    /// What is below does not take what is cleaned: nobody waits for that any longer.
    pub(super) fn give_up_leaving(&mut self, error: RequestError) {
        let Presence::Leaving { id: Some(id), step: Leaving::Emptying } = self.presence else {
            return;
        };
        if !self.has_failed {
            return self.stay(Err(error));
        }
        // It goes by itself as soon as it can.
        self.presence = Presence::Leaving { id: None, step: Leaving::Emptying };
        self.reply(id, Err(error), None);
    }

    /// It does not go.
    fn stay(&mut self, result: Result<(), RequestError>) {
        if let Presence::Leaving { id: Some(id), .. } = self.presence {
            self.reply(id, result, None);
        }
        self.presence = Presence::InUse;
        self.end_held(RequestError::Io);
    }

    pub(super) fn wiped_to_leave(&mut self) {
        if let Presence::Leaving { id, step: Leaving::Wiping } = self.presence {
            self.is_out(id);
        }
    }

    /// Nothing names it any more.
    fn is_out(&mut self, id: Option<RequestId>) {
        self.presence = Presence::Out;
        if let Some(id) = id {
            self.reply(id, Ok(()), None);
        }
        let mut held = std::mem::take(&mut self.held);
        held.sort_by_key(|(number, _)| *number);
        for (_, request) in held {
            self.take_request(request);
        }
    }

    // ---- a medium that has failed -------------------------------------------------------------

    /// It goes by itself, if it can: what has rotted in it is nowhere else.
    pub(super) fn leave_because_it_failed(&mut self) {
        match self.presence {
            Presence::Joining { id, step } if step != Joining::Naming => {
                self.presence = Presence::Out;
                self.reply(id, Err(RequestError::Io), None);
            }
            // A start that fails is one that never was.
            Presence::InUse
                if self.opening.is_none()
                    && self.closing.is_none()
                    && self.slots.rotten().is_empty() =>
            {
                self.presence = Presence::Leaving { id: None, step: Leaving::Emptying };
            }
            _ => {}
        }
    }

    /// A change that a medium that has failed does not take: it waits, or it fails. `number`:
    /// changes that had come when it did.
    pub(super) fn hold(&mut self, number: u64, request: Request, error: RequestError) {
        if self.has_failed && self.is_leaving() && self.closing.is_none() {
            self.held.push((number, request));
            return;
        }
        self.refuse(request.id, request.operation, error);
    }

    /// Whether it was a drain that waits; it is ended.
    pub(super) fn cancels_held(&mut self, drain: RequestId) -> bool {
        let is_it = |(_, request): &(u64, Request)| {
            request.id == drain && matches!(request.operation, Operation::Drain)
        };
        let Some(at) = self.held.iter().position(is_it) else { return false };
        self.held.remove(at);
        self.reply(drain, Err(RequestError::Cancelled), None);
        true
    }

    fn end_held(&mut self, error: RequestError) {
        for (_, Request { id, operation, .. }) in std::mem::take(&mut self.held) {
            self.refuse(id, operation, error);
        }
    }
}
