//! Shutdown and detach: how a cache is closed in order.
//!
//! ```text
//! 1. Take no more requests; let those under way end.
//! 2. Detach only: destage everything and flush the data-disk.
//! 3. Make the log durable, then what it has freed of a volume, then labels of its members that
//!    tell them from older copies.
//! 4. Write a checkpoint.                 Crash up to here: an ordinary start finds everything.
//! 5. Write the superblock: closed, or detached.
//!      Crash before it is durable: the cache counts as open, and start or detach resumes.
//! 6. Write its second copy.
//!      Crash before, or an error: the first one counts.
//! ```
//!
//! A detach that is cancelled before step 4 goes on as a shutdown: what was moved stays moved, what
//! was not stays in the log. So does one that finds at the end of step 2 that changes are lost
//! which whoever asked for it was not told of ([`super::lost`]), and one that gets on no more
//! (`destage/drain.rs`): the pair stays one, and the answer says so. Without a cache-disk
//! ([`super::uncached`]) steps 2 to 6 are a flush of the data-disk; where the log was left unused
//! from the start on, steps 2 to 4.

use super::destage::Headway;
use super::volume::BehindCommit;
use super::{Engine, MemoryUse, Phase, Purpose};
use crate::format::superblock::CacheState;
use crate::io::{IoError, RequestError, RequestId};
use crate::units::{LbaRange, Time};

/// How the cache is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Dirty lines stay in the log.
    Shutdown,
    /// The data-disk is made whole.
    Detach,
}

/// A close under way.
pub(super) struct Closing {
    id: RequestId,
    kind: Kind,
    step: Step,
    /// A detach that has become a shutdown.
    cancelled: bool,
    /// What whoever wants the detach knows to be lost.
    accepted: Vec<LbaRange>,
    /// Lines that are lost besides: why there is no detach.
    lost_lines: u64,
    /// Of a detach, from the second step on.
    headway: Option<Headway>,
    /// It got on no more: why there is no detach.
    stuck: Option<RequestError>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    EndRequests,
    Drain,
    Tables,
    Labels,
    Checkpoint,
    Superblock,
    SecondCopy,
}

impl Engine {
    pub(super) fn close(&mut self, id: RequestId, kind: Kind, accepted: Vec<LbaRange>) {
        self.release_held();
        self.end_resize();
        self.fail_unadmitted(RequestError::ShuttingDown);
        self.fail_stalled(RequestError::ShuttingDown);
        if kind == Kind::Shutdown {
            self.end_drains(RequestError::ShuttingDown, |_| true);
        }
        self.end_reading_ahead();
        let step = Step::EndRequests;
        // What can never be drained stays in the log: the pair stays one.
        let (kind, stuck) = match kind {
            Kind::Detach if self.destages_never() => (Kind::Shutdown, Some(self.stuck_now())),
            kind => (kind, None),
        };
        if kind == Kind::Detach {
            self.try_again_now();
        }
        self.close = Some(Closing {
            id,
            kind,
            step,
            cancelled: false,
            accepted,
            lost_lines: 0,
            headway: None,
            stuck,
        });
    }

    /// When to look whether a detach gets on.
    pub(super) fn detach_wake_up(&self) -> Option<Time> {
        let headway = self.close.as_ref()?.headway.as_ref()?;
        self.headway_wake_up(headway)
    }

    /// A detach that gets on no more goes on as a shutdown.
    fn give_up_if_stuck(&mut self) {
        let Some(Closing { kind: Kind::Detach, step: Step::Drain, headway, .. }) = &mut self.close
        else {
            return;
        };
        let headway = headway.take();
        let left = self.left_of_all();
        let mut headway = headway.unwrap_or_else(|| self.headway_from(left));
        let is_stuck = self.is_stuck(&mut headway, left);
        let stuck = is_stuck.then(|| self.stuck_now());
        let close = self.close.as_mut().expect("looked at");
        close.headway = Some(headway);
        if stuck.is_some() {
            (close.kind, close.stuck) = (Kind::Shutdown, stuck);
            self.end_drains(RequestError::ShuttingDown, |_| true);
        }
    }

    /// A batch under way is finished: some megabytes at most.
    pub(super) fn cancel_detach(&mut self) {
        let Some(close) = &mut self.close else { return };
        if close.kind == Kind::Detach && close.step <= Step::Drain {
            close.kind = Kind::Shutdown;
            close.cancelled = true;
            self.end_drains(RequestError::ShuttingDown, |_| true);
        }
    }

    /// A shutdown does not start to move what is in the log, unless someone waits for room there.
    pub(super) fn close_wants_no_destage(&self) -> bool {
        self.close.as_ref().is_some_and(|close| {
            close.kind == Kind::Shutdown && !self.someone_waits_for_destaging()
                || close.step >= Step::Checkpoint
        })
    }

    pub(super) fn advance_close(&mut self) -> bool {
        self.give_up_if_stuck();
        let Some(&Closing { id, kind, step, .. }) = self.close.as_ref() else { return false };
        if self.is_past_by_mode() {
            // The end is that of a cache: it comes out of this first (mode.rs).
            return false;
        }
        if self.is_passing_by() {
            return self.advance_uncached_close();
        }
        if self.log_is_given_up() {
            // Those under way are answered first: nobody else would (rule 4 of `io.rs`).
            if !self.reads.is_empty() || self.has_bypasses() || !self.copying_is_idle() {
                return false;
            }
            // The log cannot be made durable. What is in it stays there: nothing is marked.
            self.close = None;
            self.phase = Phase::Closed;
            self.reply(id, Err(RequestError::Io), None);
            return true;
        }
        let next = match step {
            Step::EndRequests
                if self.reads.is_empty() && !self.has_bypasses() && self.copying_is_idle() =>
            {
                Step::Drain
            }
            Step::Drain if self.is_drained(kind) => {
                let made = self.discards.made();
                self.part_from_what_is_lost();
                // Beside a detach one may wait yet, for a window behind the last: with nothing in
                // it but what was written to complete sectors. No more windows are cut. The others
                // have what they waited for.
                self.finish_drains();
                self.end_drains(RequestError::ShuttingDown, |_| true);
                if self.commit_discards(id, made, BehindCommit::Close) {
                    Step::Tables
                } else {
                    self.close_volume()
                }
            }
            Step::Checkpoint if self.checkpoint.is_idle() => {
                self.write_close();
                Step::Superblock
            }
            _ => {
                let must_commit = self.log.newest_record() > self.log.durable_record();
                if must_commit {
                    self.want_durable(self.log.newest_record());
                }
                return false;
            }
        };
        self.close.as_mut().expect("looked at").step = next;
        true
    }

    fn close_volume(&mut self) -> Step {
        if self.below.begin_close() { Step::Labels } else { self.force_checkpoint() }
    }

    /// The members of the volume have the labels of the end, as far as they take them.
    pub(super) fn labels_written(&mut self) {
        if self.is_passing_by() {
            return self.flush_uncached_close();
        }
        // A cache-disk that has failed meanwhile has ended the close.
        if self.close.is_some() {
            let step = self.force_checkpoint();
            self.close.as_mut().expect("looked at").step = step;
        }
    }

    fn force_checkpoint(&mut self) -> Step {
        self.checkpoint.force();
        Step::Checkpoint
    }

    /// The tables of the volume are durable.
    pub(super) fn close_tables(&mut self) {
        // A cache-disk that has failed meanwhile has ended the close.
        if self.close.is_some() {
            let step = self.close_volume();
            self.close.as_mut().expect("looked at").step = step;
        }
    }

    /// All that can be moved has been. A detach that may not go on, because of what cannot, is a
    /// shutdown from here on.
    fn part_from_what_is_lost(&mut self) {
        let Some(Closing { kind: Kind::Detach, accepted, .. }) = &mut self.close else { return };
        let accepted = std::mem::take(accepted);
        if self.all_lost_is_within(&accepted) {
            // It stays listed on the cache-disk until the last step, so that a crash before that
            // shows nothing stale. The next start of a pair that was parted forgets it.
            return;
        }
        let lost_lines = self.lost_lines();
        let close = self.close.as_mut().expect("being closed");
        (close.kind, close.lost_lines) = (Kind::Shutdown, lost_lines);
    }

    fn is_drained(&self, kind: Kind) -> bool {
        let is_empty = self.zeroes.is_empty()
            && self.zeroes_destaging.is_empty()
            && self.only_lost_lines_are_left();
        self.destage.is_idle()
            && self.checkpoint.is_idle()
            && self.log.newest_record() == self.log.durable_record()
            && (kind == Kind::Shutdown || is_empty && self.windows_are_over())
    }

    /// A detach without a cache-disk marks nothing; it tells what is lost all the same.
    pub(super) fn note_what_is_lost(&mut self) {
        let Some(Closing { kind: Kind::Detach, accepted, .. }) = &mut self.close else { return };
        let accepted = std::mem::take(accepted);
        if !self.all_lost_is_within(&accepted) {
            let lost_lines = self.lost_lines();
            self.close.as_mut().expect("being closed").lost_lines = lost_lines;
        }
    }

    /// Steps 5 and 6 of the end of a log that was left unused, which holds nothing.
    pub(super) fn mark_closed(&mut self) {
        let close = self.close.as_mut().expect("being closed");
        close.step = Step::Superblock;
        if close.lost_lines > 0 {
            close.kind = Kind::Shutdown;
        }
        self.write_close();
    }

    fn write_close(&mut self) {
        let close = self.close.as_ref().expect("being closed");
        self.superblock.count(!self.config.data_disk_read_only);
        self.superblock.state = match close.kind {
            Kind::Shutdown => CacheState::Closed,
            Kind::Detach => CacheState::Detached,
        };
        self.superblock.memory = None;
        if !self.nvram_holds_data {
            self.superblock.nvram = None;
        }
        self.write_superblock_copy(self.superblock.offset(), Purpose::Close);
    }

    /// Steps 5 and 6.
    pub(super) fn superblock_closed(&mut self, result: Result<(), IoError>) {
        let close = self.close.as_mut().expect("being closed");
        let is_first = std::mem::replace(&mut close.step, Step::SecondCopy) == Step::Superblock;
        match result {
            Ok(()) if is_first => {
                self.write_superblock_copy(self.superblock.second_offset(), Purpose::Close);
            }
            // A log that was left unused holds nothing; but a memory in front of it is named.
            Err(_) if is_first && self.is_passing_by() && self.config.nvram.is_none() => {
                self.close_io_done(Ok(()));
            }
            Err(error) if is_first => self.close_io_done(Err(error)),
            _ => self.close_io_done(Ok(())),
        }
    }

    pub(super) fn close_io_done(&mut self, result: Result<(), IoError>) {
        let close = self.close.take().expect("being closed");
        self.phase = Phase::Closed;
        // A cache-disk that was given up could not be marked: its superblock names the memory
        // still, whose note tells the next start that what is in it counts no more. Without a log
        // nothing was ever in it.
        if result.is_ok() && (self.config.no_log || !self.is_passing_by()) {
            self.memory_use = MemoryUse::Over;
        }
        let result = match result {
            Ok(()) if close.cancelled => Err(RequestError::Cancelled),
            Ok(()) if close.stuck.is_some() => close.stuck.map_or(Ok(()), Err),
            Ok(()) if close.lost_lines > 0 => Err(RequestError::Lost { lines: close.lost_lines }),
            Ok(()) => Ok(()),
            Err(_) => Err(RequestError::Io),
        };
        self.reply(close.id, result, None);
    }
}

impl PartialOrd for Step {
    fn partial_cmp(&self, other: &Step) -> Option<std::cmp::Ordering> {
        (*self as u8).partial_cmp(&(*other as u8))
    }
}
