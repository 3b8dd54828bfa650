//! Drains, and the end: all that is in memory goes below first.
//!
//! A tier that is closed in order is empty, so that nobody misses its medium: the superblock names
//! none then ([`DurableNvram::holds_data`]), and the heads are wiped last.
//!
//! ```text
//! 1. No more requests; those under way end, all is cleaned, and durably cleared.
//!      Else an older superblock, or one that could not be written, would find it again.
//! 2. The engine closes; its superblock names no memory.
//!      Crash before: it names this one, which is there.
//! 3. The heads are wiped: the memory may be anybody's.
//!      Crash before: it is this cache's, and as nothing names it, counts for nothing.
//! ```

use super::{DurableNvram, DurableOutput, Pending, Persisting};
use crate::io::{Operation, Reply, Request, RequestError, RequestId, all_is_accepted};
use crate::units::{BLOCK_SIZE, LINE_SIZE, LbaRange};

/// A drain that is still here.
pub(super) struct Draining {
    id: RequestId,
}

/// The end.
pub(super) struct Closing {
    id: RequestId,
    operation: Option<Operation>,
    stage: Stage,
    /// A detach that became a shutdown.
    is_cancelled: bool,
    /// What is below does not take what is cleaned.
    trouble: Option<RequestError>,
    /// What it is answered with, although the engine has closed well.
    verdict: Result<(), RequestError>,
    reply: Option<Reply>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Emptying,
    Below,
    Wiping,
}

impl DurableNvram {
    /// Whether the superblock of a closed cache has to name the medium: it holds what is nowhere
    /// else. One that has failed may show what was cleared in it, which is as new as what is below.
    pub fn holds_data(&self) -> bool {
        self.blocks() > 0 || self.has_failed && !self.is_out_of_use()
    }

    /// Something goes on naming the medium: it is not to be made anybody's at the end.
    pub fn keep_heads(&mut self) {
        self.keeps_heads = true;
    }

    pub(super) fn begin_drain(&mut self, id: RequestId) {
        // Those that wait already wait for this, too.
        self.slots.watch(self.committed);
        self.drains.push(Draining { id });
    }

    pub(super) fn cancel_drain(&mut self, id: RequestId, drain: RequestId) {
        match self.drains.iter().position(|draining| draining.id == drain) {
            Some(at) => {
                self.drains.remove(at);
                self.reply(drain, Err(RequestError::Cancelled), None);
                self.reply(id, Ok(()), None);
            }
            None if self.cancels_held(drain) => self.reply(id, Ok(()), None),
            None => {
                let operation = Operation::CancelDrain { drain };
                self.ask_below(Request { id, operation, fua: false });
            }
        }
    }

    pub(super) fn begin_close(&mut self, id: RequestId, operation: Operation) {
        self.end_change();
        for Draining { id } in std::mem::take(&mut self.drains) {
            self.reply(id, Err(RequestError::ShuttingDown), None);
        }
        self.closing = Some(Closing {
            id,
            operation: Some(operation),
            stage: Stage::Emptying,
            is_cancelled: false,
            trouble: None,
            verdict: Ok(()),
            reply: None,
        });
    }

    /// A detach that has not come to the engine yet becomes a shutdown.
    pub(super) fn cancel_detach(&mut self, id: RequestId) {
        match &mut self.closing {
            Some(closing) if closing.stage == Stage::Emptying => {
                if !matches!(closing.operation, Some(Operation::Shutdown)) {
                    closing.operation = Some(Operation::Shutdown);
                    closing.is_cancelled = true;
                }
                self.reply(id, Ok(()), None);
            }
            _ => self.ask_below(Request { id, operation: Operation::CancelDetach, fua: false }),
        }
    }

    /// Cleans for drains and for the end.
    pub(super) fn help_who_waits_for_all(&mut self) {
        let is_emptying =
            self.closing.as_ref().is_some_and(|closing| closing.stage == Stage::Emptying);
        if is_emptying || self.is_emptying_to_leave() || !self.drains.is_empty() {
            self.nvram.clean_all();
        }
    }

    /// What is below does not take what is cleaned: nobody waits for that any longer.
    pub(super) fn end_who_waits_for_all(&mut self, error: RequestError) {
        for Draining { id } in std::mem::take(&mut self.drains) {
            self.reply(id, Err(error), None);
        }
        self.give_up_leaving(error);
        if let Some(closing) = &mut self.closing
            && closing.stage == Stage::Emptying
        {
            closing.trouble = Some(error);
        }
    }

    /// Nothing is under way below for the end any more, or to leave: what is cleared is to be so
    /// durably.
    pub(super) fn ends(&self) -> bool {
        let is_emptying = |closing: &Closing| closing.stage == Stage::Emptying;
        let ends = self.closing.as_ref().is_some_and(is_emptying) || self.is_emptying_to_leave();
        ends && self.parts.is_empty()
    }

    /// Blocks that are damaged, ascending: they are in memory only.
    pub fn lost(&self) -> Vec<LbaRange> {
        let mut ranges: Vec<LbaRange> = Vec::new();
        if self.is_out_of_use() {
            return ranges;
        }
        for block in self.slots.rotten() {
            match ranges.last_mut() {
                Some(last) if last.end() == *block => last.blocks += 1,
                _ => ranges.push(LbaRange::new(*block, 1)),
            }
        }
        ranges
    }

    pub(super) fn damaged_lines(&self) -> u64 {
        let lines = self.slots.rotten().iter().map(|block| block / (LINE_SIZE / BLOCK_SIZE));
        let mut lines: Vec<u64> = lines.collect();
        lines.dedup();
        lines.len() as u64
    }

    /// Ends drains whose blocks have all gone, and goes on with the end.
    pub(super) fn advance_end(&mut self) -> bool {
        if !self.drains.is_empty() {
            if self.has_failed {
                for Draining { id } in std::mem::take(&mut self.drains) {
                    let drain = Request { id, operation: Operation::Drain, fua: false };
                    self.hold(self.arrived, drain, RequestError::Io);
                }
                return true;
            }
            if self.slots.watched() == 0 {
                for Draining { id } in std::mem::take(&mut self.drains) {
                    self.ask_below(Request { id, operation: Operation::Drain, fua: false });
                    self.passed_drains.push(id);
                }
                return true;
            }
        }
        self.advance_close()
    }

    fn advance_close(&mut self) -> bool {
        let Some(closing) = &self.closing else { return false };
        if closing.stage != Stage::Emptying || self.is_being_named() {
            return false;
        }
        let is_out = self.is_out_of_use();
        let gives_up = !is_out && (self.has_failed || closing.trouble.is_some());
        if gives_up {
            self.give_up_waiting();
        }
        let is_quiet = self.pending.is_empty()
            && self.gathering.is_empty()
            && self.batch.is_empty()
            && self.reads_waiting.is_empty()
            && self.pasts_waiting.is_empty()
            && self.replies_waiting.is_empty()
            && self.asked.is_empty()
            && self.parts.is_empty()
            && self.persisting == Persisting::Nothing
            && (self.has_failed || !self.slots.has_cleared());
        let is_empty = is_out || self.slots.blocks() == self.slots.rotten().len() as u64;
        if !is_quiet || !(is_empty || gives_up) {
            return false;
        }
        if !gives_up && self.give_up_accepted() {
            return true;
        }
        let lines = if is_out { 0 } else { self.damaged_lines() };
        let closing = self.closing.as_mut().expect("looked at");
        let mut operation = closing.operation.take().expect("taken once");
        let is_shutdown = matches!(operation, Operation::Shutdown);
        if !is_shutdown && (lines > 0 || gives_up) {
            // The pair stays one: the memory holds what is nowhere else.
            operation = Operation::Shutdown;
            let lost = RequestError::Lost { lines };
            let failed = if self.has_failed { RequestError::Io } else { lost };
            closing.verdict = Err(closing.trouble.unwrap_or(failed));
        } else if closing.is_cancelled {
            closing.verdict = Err(RequestError::Cancelled);
        }
        closing.stage = Stage::Below;
        let id = closing.id;
        self.ask_below(Request { id, operation, fua: false });
        true
    }

    /// What is damaged leaves the memory, durably, if all of it may be lost: then it is as the
    /// data-disk has it.
    fn give_up_accepted(&mut self) -> bool {
        let closing = self.closing.as_ref().expect("it ends");
        let Some(Operation::DetachAccepting { lost: accepted }) = &closing.operation else {
            return false;
        };
        let has_rotten = !self.slots.rotten().is_empty();
        if !has_rotten || closing.is_cancelled || !all_is_accepted(&self.lost(), accepted) {
            return false;
        }
        self.cleaned.extend(self.slots.rotten());
        self.cleaned_so_far += self.slots.rotten().len() as u64;
        true
    }

    /// Who waits for room or for a way past will get neither.
    fn give_up_waiting(&mut self) {
        self.pasts_waiting.clear();
        for (id, pending) in std::mem::take(&mut self.pending) {
            let buffer = match pending {
                Pending::Write { data, .. } => Some(data),
                Pending::Past { .. } => None,
                Pending::Read { .. } => unreachable!("a read never waits"),
            };
            self.reply(id, Err(RequestError::ShuttingDown), buffer);
        }
    }

    /// A reply of the engine that is none of ours.
    pub(super) fn passed_on(&mut self, mut reply: Reply) {
        if let Some(at) = self.passed_drains.iter().position(|id| *id == reply.id) {
            self.passed_drains.remove(at);
            let lines = self.damaged_lines();
            reply.result = match reply.result {
                Ok(()) if lines > 0 => Err(RequestError::Lost { lines }),
                Err(RequestError::Lost { lines: below }) => {
                    Err(RequestError::Lost { lines: below + lines })
                }
                result => result,
            };
        }
        let is_end =
            |closing: &&mut Closing| closing.stage == Stage::Below && closing.id == reply.id;
        let may_wipe = self.slots.blocks() == 0
            && !self.has_failed
            && !self.keeps_heads
            && !self.is_out_of_use();
        let Some(closing) = self.closing.as_mut().filter(is_end) else {
            self.outputs.push_back(DurableOutput::Reply(reply));
            return;
        };
        if reply.result.is_ok() {
            reply.result = closing.verdict;
            if may_wipe {
                closing.stage = Stage::Wiping;
                closing.reply = Some(reply);
                self.slots.wipe_heads();
                return self.persist(Persisting::Wipe);
            }
        }
        self.outputs.push_back(DurableOutput::Reply(reply));
    }

    /// Whether that worked or not: nothing names the memory any more.
    pub(super) fn wiped(&mut self) {
        self.wiped_to_leave();
        let reply = self.closing.as_mut().and_then(|closing| closing.reply.take());
        if let Some(reply) = reply {
            self.outputs.push_back(DurableOutput::Reply(reply));
        }
    }
}
