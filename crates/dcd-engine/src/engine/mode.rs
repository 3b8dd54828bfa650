//! Modes: whether changes go to the log or past it, switched while requests are served (C35 to
//! C39).
//!
//! Away from the log, when [`EngineConfig::mode`](crate::EngineConfig::mode) says pass-through:
//!
//! ```text
//! 1. Drain. Changes go to the log still, but no more than one line for two that were destaged, so
//!    that it ends.
//! 2. When so little is left that it takes no time worth speaking of, hold: changes wait. If that
//!    takes longer than thought they go on, and it is tried again with less left.
//!      Crash in steps 1 and 2: write-back, with what is dirty.
//! 3. Nothing is left. Witnesses do not count any more, and in pass-through nobody will tell the
//!    copies of changes, so neither do they. Two checkpoints that list neither lines nor zeroes nor
//!    damage, one in each place: whichever a start can read.
//!      Crash before they are durable: as above, or an empty log; all is on the data-disk.
//! 4. They are durable, the data-disk is flushed, and the segment memory counts no more: changes go
//!    past the log. From here on all is as after the loss of a clean cache-disk (uncached.rs), and
//!    in pass-through nothing touches it. In write-around copies are kept in the read area, and
//!    dropped when a change of their lines is begun; in write-through the change leaves new ones
//!    when it has ended.
//!      Crash: an empty log and no word of the session's memory, so the start believes no copy that
//!      it has not compared.
//! ```
//! And back:
//!
//! ```text
//! 1. Hold: changes wait, those under way end.
//! 2. Read the superblock: nobody has looked at the cache-disk in pass-through. If it is not that
//!    of this session, the cache-disk has failed.
//!      Crash: nothing was written.
//! 3. Flush the data-disk.
//!      Crash before: as on any disk, what no flush had covered may be lost. Behind a record in the
//!      log all that was acknowledged before it is taken to be durable (C3).
//! 4. From a mode that keeps copies: two checkpoints, likewise.
//!      Crash before they are durable: as in step 4 above. Behind a record in the log a start
//!      believes the copies that a checkpoint lists; now they are those of now.
//! 5. The segment memory counts again, and changes go to the log.
//! ```
//! To and from pass-through it goes by way of the log; the two that keep copies lead straight to
//! each other.
//!
//! A switch that gets on no more ([`super::destage`]), or finds something lost, is given up: the
//! mode stays what it was, and nobody is held any longer. One that is no longer wanted ends at
//! once. A cache that is closed goes back to the log first.

use super::Engine;
use super::destage::Headway;
use crate::config::Mode;
use crate::io::RequestError;
use crate::stats::{ModeReport, ModeState, Uncached};
use crate::units::{Duration, FRAGMENTS_PER_LINE, Line, Time};

/// How long changes are held at first; twice as long after each time in vain, up to `full_timeout`.
const HOLD_MIN: Duration = Duration::from_secs(1);
/// Lines that may be logged at once while a switch drains.
const LINES_AHEAD: u64 = 256;
/// With so few lines left it holds, whatever the data-disk's speed.
const HOLD_LINES_MIN: u64 = 64;

/// Where a switch stands.
#[derive(Default)]
pub(super) struct ModeSwitch {
    stage: Stage,
    /// Of the switch under way.
    since: Option<Time>,
    /// Why the last one was given up; until another mode is wanted, or the same is asked for again.
    given_up: Option<RequestError>,
    /// What was wanted then, or is.
    wanted: Mode,
}

#[derive(Default)]
enum Stage {
    #[default]
    Resting,
    /// Away, step 1.
    Draining(Draining),
    /// Away, step 2: since when.
    Holding(Draining, Time),
    /// Away, step 3: since when, until both checkpoints are later than this generation, to this
    /// mode; another may be wanted meanwhile.
    Listing(Draining, Time, u64, Mode),
    /// Back, steps 1 to 3.
    Returning,
    /// Back, step 4: until both checkpoints are later than this generation.
    ListingCopies(u64),
}

struct Draining {
    headway: Headway,
    began: Time,
    /// What the counters said when it began.
    logged: u64,
    destaged: u64,
    hold_max: Duration,
}

impl ModeSwitch {
    /// Whether destaging is urgent.
    pub(super) fn wants_destage(&self) -> bool {
        self.is_leaving()
    }

    /// Whether readers keep it from everything, and have to share.
    pub(super) fn is_held_up(&self) -> bool {
        match &self.stage {
            Stage::Draining(draining) => draining.headway.is_held_up(),
            Stage::Holding(..) => true,
            Stage::Resting | Stage::Listing(..) | Stage::Returning | Stage::ListingCopies(_) => {
                false
            }
        }
    }

    /// Whether changes wait until the switch is made.
    pub(super) fn holds_changes(&self) -> bool {
        self.is_about_to_pass() || self.is_returning()
    }

    /// Whether nothing new may be written to the cache-disk but what the switch needs.
    pub(super) fn is_about_to_pass(&self) -> bool {
        matches!(self.stage, Stage::Holding(..) | Stage::Listing(..))
    }

    /// Somebody has asked for the mode again: what stood in the way may be gone.
    pub(super) fn try_again(&mut self) {
        self.given_up = None;
    }

    fn is_returning(&self) -> bool {
        matches!(self.stage, Stage::Returning | Stage::ListingCopies(_))
    }

    fn is_leaving(&self) -> bool {
        matches!(self.stage, Stage::Draining(_) | Stage::Holding(..) | Stage::Listing(..))
    }
}

impl Engine {
    /// Whether a change that would be logged waits for the switch.
    pub(super) fn waits_for_switch(&self, makes_room: bool) -> bool {
        match &self.mode.stage {
            Stage::Resting => false,
            Stage::Draining(draining) => {
                let destaged = self.counters.destaged_lines - draining.destaged;
                let logged = self.counters.logged_lines - draining.logged;
                !makes_room && logged >= LINES_AHEAD + destaged / 2
            }
            _ => self.mode.holds_changes(),
        }
    }

    pub(super) fn advance_mode(&mut self) -> bool {
        if !self.may_switch() {
            return self.end_switch();
        }
        if self.mode.wanted != self.config.mode {
            self.mode.wanted = self.config.mode;
            self.mode.given_up = None;
        }
        let wants_past = self.wants_past();
        match &self.mode.stage {
            // The data-disk is being kept as it is, although the policy is another by now.
            Stage::Resting if wants_past && self.windows.is_keeping() => false,
            Stage::Resting if wants_past && !self.is_passing_by() => self.begin_to_leave(),
            Stage::Resting if self.is_passing_by() && !self.is_as_wanted() => {
                let is_past = self.mode_past_the_log().is_some_and(Mode::keeps_copies);
                if is_past && wants_past && self.config.mode.keeps_copies() {
                    self.change_mode_past_the_log(self.config.mode);
                    return true;
                }
                self.mode.stage = Stage::Returning;
                self.mode.since = Some(self.now);
                true
            }
            Stage::Resting => false,
            Stage::Returning | Stage::ListingCopies(_) if self.is_as_wanted() => {
                self.stop_returning()
            }
            Stage::Returning => self.begin_return(),
            Stage::ListingCopies(_) => self.list_copies_as_they_are(),
            _ if !wants_past => self.end_switch(),
            Stage::Draining(_) => self.drain_for_switch(),
            Stage::Holding(..) => self.hold_for_switch(),
            Stage::Listing(..) => self.list_nothing(),
        }
    }

    /// Not where a cache-disk is lost, or both are, or is to be left alone until the end.
    fn may_switch(&self) -> bool {
        !self.below.is_volume() && !self.log_is_given_up() && !self.is_uncached_for_good()
    }

    fn wants_past(&self) -> bool {
        self.config.mode != Mode::WriteBack && self.mode.given_up.is_none() && self.close.is_none()
    }

    /// Whether changes go past the log in the way that is wanted.
    fn is_as_wanted(&self) -> bool {
        self.wants_past() && self.mode_past_the_log() == Some(self.config.mode)
    }

    /// No switch is under way any more; those who wait for it go on as before. Tells whether one
    /// was.
    pub(super) fn end_switch(&mut self) -> bool {
        let was_under_way = !matches!(self.mode.stage, Stage::Resting);
        self.mode.stage = Stage::Resting;
        self.mode.since = None;
        was_under_way
    }

    /// The cache is being closed: whoever is held goes on as without a switch.
    pub(super) fn release_held(&mut self) {
        if self.mode.is_returning() {
            // A flush that was for the return counts no more: from the beginning.
            self.mode.stage = Stage::Returning;
            self.pass_stalled();
        } else if self.end_switch() {
            self.admit_stalled();
        }
    }

    fn give_up_switch(&mut self, error: RequestError) -> bool {
        self.mode.given_up = Some(error);
        self.end_switch();
        true
    }

    // ---- away ---------------------------------------------------------------------------------

    fn begin_to_leave(&mut self) -> bool {
        if self.destages_never() {
            return self.give_up_switch(RequestError::ReadOnly);
        }
        self.try_again_now();
        self.want_durable(self.log.newest_record());
        self.mode.since = Some(self.now);
        self.mode.stage = Stage::Draining(self.draining_from_here(HOLD_MIN));
        true
    }

    fn draining_from_here(&self, hold_max: Duration) -> Draining {
        Draining {
            headway: self.headway_from(self.left_of_all()),
            began: self.now,
            logged: self.counters.logged_lines,
            destaged: self.counters.destaged_lines,
            hold_max,
        }
    }

    /// Step 1.
    fn drain_for_switch(&mut self) -> bool {
        if !self.destage.is_between_works() {
            return false;
        }
        let Stage::Draining(mut draining) = std::mem::take(&mut self.mode.stage) else {
            unreachable!("looked at");
        };
        let left = self.left_of_all();
        if self.is_stuck(&mut draining.headway, left) {
            let error = self.stuck_now();
            return self.give_up_switch(error);
        }
        let elapsed_ns = self.now.since(draining.began).0.max(1);
        let destaged = self.counters.destaged_lines - draining.destaged;
        let in_a_hold = u128::from(destaged) * u128::from(draining.hold_max.0 / 4);
        let hold_lines = ((in_a_hold / u128::from(elapsed_ns)) as u64).max(HOLD_LINES_MIN);
        // Of what is to be zeroed no more than the disk does at once.
        let may_hold = self.table.lines() as u64 <= hold_lines
            && left.zero_lines() <= self.zero_lines_max()
            && !self.purge.is_under_way();
        self.mode.stage = match may_hold {
            true => Stage::Holding(draining, self.patience.now()),
            false => Stage::Draining(draining),
        };
        may_hold
    }

    /// Step 2.
    fn hold_for_switch(&mut self) -> bool {
        if self.log.newest_record() > self.log.durable_record() {
            self.want_durable(self.log.newest_record());
        }
        let is_quiet = self.only_lost_lines_are_left()
            && self.zeroes.is_empty()
            && self.zeroes_destaging.is_empty()
            && !self.purge.is_under_way()
            && !self.has_bypasses()
            && self.destage.is_idle()
            && self.checkpoint.is_idle()
            && self.copying_is_idle()
            && !self.health.has_late_writes()
            && self.log.newest_record() == self.log.durable_record();
        if !is_quiet {
            return self.release_if_too_long();
        }
        if let Err(error) = self.drained() {
            return self.give_up_switch(error);
        }
        let Stage::Holding(draining, since) = std::mem::take(&mut self.mode.stage) else {
            unreachable!("looked at");
        };
        let mode = self.config.mode;
        if mode == Mode::PassThrough {
            let lines = self.data_disk.blocks.div_ceil(FRAGMENTS_PER_LINE);
            self.copies.all_depart();
            self.copies_changed(Line(0), lines);
        }
        self.witnesses.clear();
        self.mode.stage = Stage::Listing(draining, since, self.checkpoint.begun(), mode);
        true
    }

    /// Step 3, and the beginning of step 4.
    fn list_nothing(&mut self) -> bool {
        let Stage::Listing(_, _, generation, mode) = &self.mode.stage else {
            unreachable!("looked at");
        };
        let (generation, mode) = (*generation, *mode);
        let is_listed = self.both_are_later(generation);
        if !is_listed || !self.log_use.is_clean() || self.log_is_busy() {
            return self.release_if_too_long();
        }
        self.end_switch();
        self.go_past_the_log(mode);
        true
    }

    /// Whether both checkpoints are later than this generation, or has another made. A start that
    /// cannot read the newer goes by the other, and no record tells it that there was a newer.
    fn both_are_later(&mut self, generation: u64) -> bool {
        let are_later = self.checkpoint.generation >= generation + 2;
        if !are_later && self.checkpoint.is_idle() {
            self.checkpoint.force();
            // It is begun behind this.
            while self.advance_checkpoint() {}
        }
        are_later && self.checkpoint.is_idle()
    }

    /// Nobody is held for longer than was said.
    fn release_if_too_long(&mut self) -> bool {
        let (Stage::Holding(draining, since) | Stage::Listing(draining, since, _, _)) =
            &self.mode.stage
        else {
            unreachable!("nobody is held");
        };
        let hold_max = draining.hold_max;
        if !self.patience.is_over(*since, hold_max) {
            return false;
        }
        if hold_max >= self.config.full_timeout {
            let error = self.stuck_now();
            return self.give_up_switch(error);
        }
        let longer = Duration(hold_max.0 * 2).min(self.config.full_timeout);
        let (Stage::Holding(before, ..) | Stage::Listing(before, ..)) =
            std::mem::take(&mut self.mode.stage)
        else {
            unreachable!("looked at");
        };
        let mut draining = self.draining_from_here(longer);
        // While nothing gets to the data-disk, one wait after the other is a single long one.
        if self.counters.destaged_lines == before.destaged {
            draining.headway = before.headway;
        }
        self.mode.stage = Stage::Draining(draining);
        true
    }

    // ---- back ---------------------------------------------------------------------------------

    /// Another way was wanted meanwhile: those who waited go past the log.
    fn stop_returning(&mut self) -> bool {
        self.end_switch();
        self.pass_stalled();
        true
    }

    /// The data-disk has been flushed, and nothing has changed since.
    pub(super) fn past_is_durable(&mut self) {
        let keeps_copies = self.mode_past_the_log().is_some_and(Mode::keeps_copies);
        if !keeps_copies || !self.copies.is_on() {
            return self.log_again_from_here();
        }
        self.mode.stage = Stage::ListingCopies(self.checkpoint.begun());
    }

    /// Step 4.
    fn list_copies_as_they_are(&mut self) -> bool {
        let Stage::ListingCopies(generation) = &self.mode.stage else {
            unreachable!("looked at");
        };
        let generation = *generation;
        let is_listed = self.both_are_later(generation) && self.is_quiet_past_the_log();
        if is_listed {
            self.log_again_from_here();
        }
        is_listed
    }

    // ---- what is told -------------------------------------------------------------------------

    pub(super) fn mode_wake_up(&self) -> Option<Time> {
        match &self.mode.stage {
            // A start has just ended.
            Stage::Resting
                if self.wants_past()
                    && !self.is_passing_by()
                    && !self.windows.is_keeping()
                    && self.may_switch() =>
            {
                Some(self.now.after(Duration(1)))
            }
            Stage::Resting | Stage::Returning | Stage::ListingCopies(_) => None,
            Stage::Draining(draining) => self.headway_wake_up(&draining.headway),
            Stage::Holding(draining, since) | Stage::Listing(draining, since, _, _) => {
                Some(self.patience.wake_up(*since, draining.hold_max))
            }
        }
    }

    /// Which mode counts, and what a switch is waiting for. Cheap.
    pub fn mode(&self) -> ModeReport {
        let is_past = self.uncached() == Some(Uncached::PassingThrough);
        let mode = match self.mode_past_the_log() {
            Some(mode) if is_past => mode,
            // Without a cache-disk there is no other way.
            None if is_past => Mode::PassThrough,
            // It cannot be left any more.
            _ => self.mode_failed_in().unwrap_or(Mode::WriteBack),
        };
        let is_past_soon = self.is_past_by_mode() && !is_past;
        let state = match (&self.mode.stage, self.mode.given_up) {
            _ if self.uncached() == Some(Uncached::Failed) => ModeState::Failed,
            (Stage::Resting, Some(error)) => ModeState::GivenUp(error),
            (Stage::Resting, None) if is_past_soon => ModeState::Holding,
            (Stage::Resting, None) if mode != self.config.mode && !self.is_uncached_for_good() => {
                // What a lost cache-disk holds comes no more: nobody is to wait for it.
                match self.log_is_given_up() {
                    true => ModeState::GivenUp(RequestError::Io),
                    false => ModeState::Draining,
                }
            }
            (Stage::Resting, None) => ModeState::Reached,
            (Stage::Draining(_), _) => ModeState::Draining,
            _ => ModeState::Holding,
        };
        ModeReport { mode, state, since: self.mode.since }
    }
}
