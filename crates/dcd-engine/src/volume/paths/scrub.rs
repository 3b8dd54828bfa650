//! Scrubs by time: begun, set aside and recorded. What one does is in [`super::repair`].
//!
//! ```text
//! 1. It is due (scrubs.rs), nothing else is under way, and all members are there and up to date.
//!    It goes on where the last one stopped.
//! 2. Whatever else is wanted of the members as a whole goes first: it is set aside, and goes on
//!    when that is over.
//! 3. How far it is goes to the root, now and then, with every checkpoint, and at its end.
//!      Crash before: a part is read once more. Nothing relies on it, so no record of the journal
//!      says it.
//! ```

use super::super::Volume;
use super::super::format::root::{MemberState, ScrubRecord};
use super::repair::WorkKind;
use crate::units::Time;

impl Volume {
    /// Seconds since 1970. Nothing is scrubbed by time before that was said once; to be said again
    /// from time to time, because clocks are put right.
    pub(crate) fn set_calendar(&mut self, now: Time, seconds: u64) {
        self.now = now;
        self.scrubs.set_calendar(now, seconds);
    }

    pub(in crate::volume) fn advance_scrubs(&mut self) -> bool {
        self.scrubs.opened(self.now);
        let moved = match self.repair.is_scrub_by_time() {
            true if self.is_scrub_in_the_way() => {
                self.set_scrub_aside();
                true
            }
            true => false,
            false => self.begin_scrub_by_time(),
        };
        moved | self.record_scrub()
    }

    /// Step 1.
    fn begin_scrub_by_time(&mut self) -> bool {
        let is_due = self.scrubs.due(self.now).is_some_and(|due| due <= self.now);
        if !is_due || self.repair.is_under_way() || self.is_scrub_in_the_way() {
            return false;
        }
        if !self.scrubs.correct_future(self.now) {
            self.begin_scrub(true, true);
        }
        true
    }

    /// Step 2.
    fn is_scrub_in_the_way(&self) -> bool {
        let is_whole = |member: &super::super::members::Member| {
            member.is_present && member.state == MemberState::UpToDate
        };
        self.repair.is_anything_next()
            || self.replacement.is_some()
            || self.growing.is_some()
            || self.is_closing()
            || self.journal.error.is_some()
            || !self.members.iter().all(|(_, member)| is_whole(member))
    }

    /// Whoever wants something else of the members does not wait for a scrub that nobody has asked
    /// for. What it has under way comes to its end by itself.
    pub(super) fn set_scrub_aside(&mut self) {
        if let Some((place, found, is_stopped)) = self.repair.drop_scrub_by_time() {
            self.scrubs.set_aside(place, found);
            if is_stopped {
                self.scrubs.put_off(self.now);
            }
        }
    }

    pub(super) fn begin_scrub(&mut self, is_resumed: bool, is_by_time: bool) {
        let from = self.scrubs.begin(self.now, is_resumed);
        self.start_work(WorkKind::Scrub, (from.set, from.stripe));
        self.repair.is_scrub(is_by_time, from.found);
    }

    /// What is known of scrubs now.
    pub(in crate::volume) fn scrub_record(&self) -> ScrubRecord {
        match self.repair.scrub_place() {
            Some((place, found)) => self.scrubs.is_at(place, found),
            None => self.scrubs.record,
        }
    }

    /// Step 3.
    fn record_scrub(&mut self) -> bool {
        let record_by = self.scrubs.record_by(&self.scrub_record());
        let can_be = self.is_checkpoint_idle()
            && !self.has_checkpoint_failed()
            && !self.is_ring_to_be_empty()
            && self.journal.error.is_none();
        if record_by.is_none_or(|by| by > self.now) || !can_be {
            return false;
        }
        self.checkpoint_tables();
        true
    }

    /// When something is to be done that nothing else brings.
    pub(in crate::volume) fn scrubs_wake_up(&self) -> Option<Time> {
        let due = self.scrubs.due(self.now).filter(|_| !self.repair.is_under_way());
        let record_by = self.scrubs.record_by(&self.scrub_record());
        let is_asked = !self.uppers.is_empty();
        let stripe = self.repair.waits_for_time().then(|| self.scrubs.next_stripe_at(is_asked));
        [due, record_by, stripe].into_iter().flatten().filter(|at| *at > self.now).min()
    }
}
