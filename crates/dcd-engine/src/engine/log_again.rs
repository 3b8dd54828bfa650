//! The cache-disk failed a write or a flush (C22).
//!
//! What is not durable is still in the segment buffers. A flush that succeeds after one that failed
//! proves nothing, because the kernel may have dropped what it could not write. So every record
//! that is not durable is logged again, in other segments, and those who wait for it wait on. Where
//! most buffers or segments are in use there is no room for that: then they are written to their
//! places again. When that fails too, several times in a row, or the disk is gone or does not
//! answer, the engine gives up: it promises nothing more, and what is in the segment memory stays
//! there for a restart. Only if the cache-disk was clean then, it goes on without it:
//! [`super::uncached`].

use super::{Engine, Phase};
use crate::io::{IoError, RequestError};
use crate::log::MovedSlot;

/// Failures in a row after which the cache-disk counts as failed.
const FAILURES_MAX: u32 = 3;

/// Where this stands.
#[derive(Default)]
pub(super) struct LogAgain {
    /// To be done when no log write is under way any more.
    is_wanted: bool,
    /// Failures since records last became durable.
    failures: u32,
}

impl LogAgain {
    /// Records have become durable: the disk works.
    pub(super) fn disk_works(&mut self) {
        self.failures = 0;
    }

    /// The log must not be written to meanwhile.
    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted
    }
}

impl Engine {
    /// A write or a flush of the cache-disk has failed. Whoever asked for it, it may have lost what
    /// others have written there.
    pub(super) fn cache_disk_error(&mut self, error: IoError) {
        if let Some(volume) = self.below.volume_mut() {
            volume.cache_disk_failed();
        }
        self.log_again.failures += 1;
        self.cache_disk_error_of_volume(error);
    }

    /// The same, when a volume has found it, which counts its failures itself.
    pub(super) fn cache_disk_error_of_volume(&mut self, error: IoError) {
        self.moved_pages_may_be_gone();
        self.checkpoint.cache_disk_failed();
        self.health.note_cache_disk_error(error);
        match error {
            // What does not answer may still write the old bytes to where new ones would be.
            IoError::TimedOut | IoError::Gone => self.fail_cache_disk(),
            // A start that cannot write its first checkpoint has promised nothing yet.
            _ if self.phase != Phase::Running => self.fail_cache_disk(),
            _ if self.log_again.failures >= FAILURES_MAX => self.fail_cache_disk(),
            _ => self.log_again.is_wanted = true,
        }
    }

    pub(super) fn advance_log_again(&mut self) -> bool {
        if !self.log_again.is_wanted || self.health.cache_disk_failed() || self.log_is_busy() {
            return false;
        }
        self.log_again.is_wanted = false;
        // Slots of the window under way may be among those that move.
        self.cut_anew();
        match self.log.log_again() {
            Some(moved) => self.adopt_moved_slots(&moved),
            None => self.log.write_again(),
        }
        // A checkpoint under way speaks of their old places, and what is written of it may be lost.
        self.drop_checkpoint();
        self.forget_commit();
        self.want_durable(self.log.newest_record());
        true
    }

    fn adopt_moved_slots(&mut self, moved: &[MovedSlot]) {
        for slot in moved {
            let pieces = self.table.find(slot.line);
            let live = pieces.as_slice().iter().find(|(known, _)| *known == slot.from);
            match live {
                Some((_, mask)) => {
                    let dead = self.table.insert(slot.line, *mask, slot.to, slot.checksum);
                    self.drop_dead_slots(dead.as_slice());
                    self.note_if_stuck(slot.line);
                }
                // Overwritten since: logged again all the same, for the order of changes.
                None => self.drop_dead_slots(&[slot.to]),
            }
        }
        self.log.end_log_again();
    }

    /// The cache-disk is given up. Everyone who waits for it is told, unless nothing is on it.
    pub(super) fn fail_cache_disk(&mut self) {
        if !self.health.give_up_cache_disk() {
            return;
        }
        self.fail_checkpoint_waiters();
        // The tables of a volume are on the cache-disk: without it nobody would know after a
        // restart where a new extent lies.
        let is_clean = self.log_use.is_clean() && !self.below.is_volume();
        // What goes straight to the data-disk has no order.
        if self.phase == Phase::Running && is_clean && !self.ships_in_order() {
            return self.go_uncached();
        }
        self.fail_what_waits_for_the_log();
    }

    pub(super) fn fail_what_waits_for_the_log(&mut self) {
        self.fail_checkpoint_waiters();
        self.answer_commit_waiters(Err(RequestError::Io));
        self.fail_unadmitted_changes(RequestError::Io);
        self.fail_stalled(RequestError::Io);
        self.fail_bypasses();
        self.fail_drains();
    }
}
