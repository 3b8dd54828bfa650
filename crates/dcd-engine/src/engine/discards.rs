//! Discards of blocks that the volume has freed: changes that no client waits for, and the flushes
//! that do.
//!
//! 1. The volume frees blocks, and their discard goes through the log like any other.
//! 2. A flush or a drain waits for those that were made before: who freed the blocks has been
//!    answered. The end of dcd does not wait for those that wait for room.
//! 3. When they are durable the volume may make it durable that the blocks are free.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::volume::BehindCommit;
use super::{Engine, Phase};
use crate::io::{Operation, Request, RequestError, RequestId};
use crate::units::LbaRange;

/// Number of a discard of freed blocks: so many were made before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DiscardNumber(u64);

/// Whose change it is: who is told how it ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    /// A client, through the driver.
    Client(RequestId),
    /// The volume, which has freed blocks.
    Volume(DiscardNumber),
}

impl From<RequestId> for Owner {
    fn from(id: RequestId) -> Owner {
        Owner::Client(id)
    }
}

/// The discards, and who waits for them.
#[derive(Default)]
pub(super) struct Discards {
    made: u64,
    under_way: BTreeSet<DiscardNumber>,
    /// Flushes and the like that wait, each for so many of all that were ever made.
    waiting: VecDeque<(u64, Request)>,
    /// Flushes before whose answer the volume is told that the discards with lower numbers are
    /// durable.
    flushes: BTreeMap<RequestId, u64>,
    /// One has failed, and no flush has told of it yet.
    untold: Option<RequestError>,
}

impl Discards {
    /// How many were ever made.
    pub(super) fn made(&self) -> u64 {
        self.made
    }

    fn next_number(&mut self) -> DiscardNumber {
        self.made += 1;
        DiscardNumber(self.made - 1)
    }

    /// The first of those that wait, if all have ended that it waits for.
    fn pop_ready(&mut self) -> Option<(u64, Request)> {
        let (made, _) = self.waiting.front()?;
        let is_ready = self.under_way.first().is_none_or(|oldest| oldest.0 >= *made);
        if is_ready { self.waiting.pop_front() } else { None }
    }

    /// A flush is over; tells how many discards it has made durable, if the volume is to be told.
    pub(super) fn flush_ended(&mut self, id: RequestId) -> Option<u64> {
        self.flushes.remove(&id)
    }

    /// Takes out the flushes that wait for this one, which has failed.
    fn take_flushes_behind(&mut self, failed: DiscardNumber) -> VecDeque<(u64, Request)> {
        let is_behind = |(made, request): &(u64, Request)| {
            *made > failed.0 && matches!(request.operation, Operation::Flush)
        };
        let (behind, others) = std::mem::take(&mut self.waiting).into_iter().partition(is_behind);
        self.waiting = others;
        behind
    }
}

impl Engine {
    /// Blocks that nobody points to any more leave the log and all copies, in the order of
    /// everything else.
    pub(super) fn discard_freed(&mut self, range: LbaRange) {
        let number = self.discards.next_number();
        if self.close.is_some() || self.phase != Phase::Running || self.config.read_only {
            // They are found by the next collection.
            return self.below.discard_failed(number.0);
        }
        self.discards.under_way.insert(number);
        self.write_zeroes(Owner::Volume(number), range, true, false);
    }

    /// A flush or a drain, behind the discards of blocks that were freed before: who freed
    /// them has been answered, and one that waits for room in the log is in no record yet (C2).
    pub(super) fn carry_out_behind_discards(&mut self, request: Request) {
        if matches!(request.operation, Operation::Flush)
            && let Some(error) = self.discards.untold.take()
        {
            return self.reply(request.id, Err(error), None);
        }
        let made = self.discards.made;
        // An end waits for nothing that waits for room: those blocks are found by the next
        // collection.
        let is_end = matches!(request.operation, Operation::Shutdown);
        match self.discards.under_way.is_empty() || is_end {
            true => self.carry_out_with_discards(made, request),
            false => self.discards.waiting.push_back((made, request)),
        }
    }

    /// A drain that has not begun, because it waits for discards or for the tables of the volume,
    /// will not.
    pub(super) fn cancel_waiting_drain(&mut self, drain: RequestId) {
        let waiting = self.discards.waiting.len();
        self.discards.waiting.retain(|(_, request)| {
            request.id != drain || !matches!(request.operation, Operation::Drain)
        });
        let was_waiting = self.discards.waiting.len() < waiting;
        let behind = self.behind_commits.get_mut(&drain);
        let behind = behind.filter(|it| matches!(it, BehindCommit::CarryOut(Operation::Drain)));
        let is_behind = behind.map(|it| *it = BehindCommit::Nothing).is_some();
        if was_waiting || is_behind {
            self.reply(drain, Err(RequestError::Cancelled), None);
        }
    }

    /// `made`: so many discards were acknowledged before.
    fn carry_out_with_discards(&mut self, made: u64, request: Request) {
        if self.close.is_some() && !matches!(request.operation, Operation::Flush) {
            // An end has come meanwhile.
            return self.reply(request.id, Err(RequestError::ShuttingDown), None);
        }
        if self.below.has_changes_for_journal() && matches!(request.operation, Operation::Flush) {
            self.discards.flushes.insert(request.id, made);
        }
        self.carry_out(request);
    }

    pub(super) fn advance_behind_discards(&mut self) -> bool {
        let mut has_moved = false;
        while let Some((made, request)) = self.discards.pop_ready() {
            self.carry_out_with_discards(made, request);
            has_moved = true;
        }
        has_moved
    }

    pub(super) fn discard_ended(
        &mut self,
        number: DiscardNumber,
        result: Result<(), RequestError>,
    ) {
        assert!(self.discards.under_way.remove(&number), "it ends once");
        if let Err(error) = result {
            self.discard_failed(number, error);
        }
    }

    /// There was no room for a discard: what was there may be read again after a crash, so no flush
    /// behind it says that all is well; if none waits, or one still waits for something else, the
    /// next does not.
    fn discard_failed(&mut self, number: DiscardNumber, error: RequestError) {
        self.below.discard_failed(number.0);
        let refused = self.discards.take_flushes_behind(number);
        if refused.is_empty() || self.has_flush_behind_commits() {
            self.discards.untold = Some(error);
        }
        for (_, request) in refused {
            self.reply(request.id, Err(error), None);
        }
    }
}
