//! Drains: somebody waits until all that is dirty is on the data-disk. Each has an answer.
//!
//! ```text
//! 1. It waits for the segments that are filled by then, and for what is to be zeroed. What failed
//!    before is tried at once: somebody may have mended it, and asks therefore.
//! 2. It ends when nothing is left of that but what is lost ([`crate::engine::lost`]).
//! 3. It makes *headway* whenever less of it is left than ever before. Without any for a while it
//!    is *held up*: readers of the data-disk, who else come first, have to share.
//! 4. Without any for `drain_timeout` it is *stuck*, and ends with that; after an eighth of it if a
//!    disk has said no, or a member is away. Nothing else changes: what is dirty is tried again as
//!    ever.
//! ```
//! Whether it is stuck is asked only between two pieces of work, so that no step of a slow disk is
//! too long, and not while a cap of the user holds it back. A detach asks the same
//! ([`crate::engine::close`]).

use super::Work;
use crate::engine::Engine;
use crate::io::{IoError, RequestError, RequestId};
use crate::stats::Obstacle;
use crate::units::{Duration, SegmentSerial, Time};
use crate::zero_ranges::ZeroRanges;

/// After this part of `drain_timeout` without headway a drain is held up.
const HELD_UP_PART: u64 = 16;

/// And after this part of it there is an answer, when what is in the way is known.
const OBSTACLE_PART: u64 = 8;

/// Someone waits until all that was dirty is on the data-disk.
pub(super) struct Drain {
    id: RequestId,
    /// Segments up to this one must be empty.
    serial: SegmentSerial,
    /// These must be zeroes on the data-disk.
    zeroes: ZeroRanges,
    /// And a window with all of it was kept.
    needs_window: bool,
    headway: Headway,
}

/// How far something is that must come to an end.
pub(in crate::engine) struct Headway {
    /// The least that was left of each.
    least: Left,
    /// When it became less.
    since: Time,
    /// Readers have to share, from now on.
    is_held_up: bool,
}

impl Left {
    /// So many live slots, and nothing to be zeroed.
    pub(in crate::engine) fn of_slots(slots: u64) -> Left {
        Left { slots, zero_lines: 0 }
    }

    pub(in crate::engine) fn zero_lines(&self) -> u64 {
        self.zero_lines
    }
}

impl Headway {
    /// Readers have to share.
    pub(in crate::engine) fn is_held_up(&self) -> bool {
        self.is_held_up
    }
}

/// What is not on the data-disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) struct Left {
    /// Live slots in the log, without those that are lost.
    slots: u64,
    /// Lines to become zeroes.
    zero_lines: u64,
}

impl Engine {
    pub(in crate::engine) fn drain(&mut self, id: RequestId) {
        if self.is_passing_by() {
            return self.pass_drain(id);
        }
        if self.log_is_given_up() {
            return self.reply(id, Err(RequestError::Io), None);
        }
        if self.destages_never() {
            return self.reply(id, Err(RequestError::ReadOnly), None);
        }
        // What comes after goes to later segments, so the drain has an end under load, too.
        self.log.close_segment();
        let serial = self.log.newest_serial();
        self.want_durable(self.log.newest_record());
        self.try_again_now();
        let zeroes = self.zeroes_left();
        let left = Left { slots: self.live_slots(Some(serial)), zero_lines: zeroes.lines() };
        let headway = self.headway_from(left);
        let needs_window = !self.windows_are_over();
        self.destage.drains.push(Drain { id, serial, zeroes, needs_window, headway });
    }

    /// What waits because it failed waits no more.
    pub(in crate::engine) fn try_again_now(&mut self) {
        self.destage.retry = None;
        for blocked in self.destage.blocked.values_mut() {
            blocked.until = None;
        }
        for bad in &mut self.destage.zeroes_bad {
            bad.until = self.now;
        }
        self.stuck.look_again_now();
        self.ask_again_now();
        self.destage.something_changed();
    }

    pub(in crate::engine) fn fail_drains(&mut self) {
        self.end_drains(RequestError::Io, |_| true);
    }

    /// Whoever waits for one of these drains waits no more. Work under way is finished.
    pub(in crate::engine) fn end_drains(
        &mut self,
        error: RequestError,
        which: impl Fn(RequestId) -> bool,
    ) {
        for drain in std::mem::take(&mut self.destage.drains) {
            match which(drain.id) {
                true => self.reply(drain.id, Err(error), None),
                false => self.destage.drains.push(drain),
            }
        }
    }

    /// Steps 2 to 4.
    pub(in crate::engine) fn finish_drains(&mut self) -> bool {
        let mut moved = false;
        for mut drain in std::mem::take(&mut self.destage.drains) {
            if !matches!(self.destage.work, Work::None) {
                self.note_held_up(&mut drain.headway);
                self.destage.drains.push(drain);
                continue;
            }
            if !drain.zeroes.is_empty() {
                drain.zeroes = drain.zeroes.parts_in(&self.zeroes);
            }
            let slots = self.live_slots(Some(drain.serial));
            let left = Left { slots, zero_lines: drain.zeroes.lines() };
            let waits_for_window = drain.needs_window && self.waits_for_window(drain.serial);
            let result = match left {
                Left { slots: 0, zero_lines: 0 } if !waits_for_window => self.drained(),
                _ if self.is_stuck(&mut drain.headway, left) => Err(self.stuck_now()),
                _ => {
                    self.destage.drains.push(drain);
                    continue;
                }
            };
            moved = true;
            self.reply(drain.id, result, None);
        }
        moved
    }

    /// Whether a drain waits for a window that is not under way.
    pub(in crate::engine) fn a_drain_waits_for_window(&self) -> bool {
        let mut drains = self.destage.drains.iter();
        drains.any(|drain| drain.needs_window && self.waits_for_window(drain.serial))
    }

    /// When to look whether the drains get on.
    pub(in crate::engine) fn drain_wake_up(&self) -> Option<Time> {
        self.destage.drains.iter().filter_map(|drain| self.headway_wake_up(&drain.headway)).min()
    }

    /// Whether somebody waits for a drain who waits for readers only.
    pub(in crate::engine) fn a_drain_is_held_up(&self) -> bool {
        self.destage.drains.iter().any(|drain| drain.headway.is_held_up)
            || self.is_waiting_held_up()
    }

    fn is_waiting_held_up(&self) -> bool {
        self.mode.is_held_up() || self.resize.is_held_up()
    }

    // ---- headway ------------------------------------------------------------------------------

    /// Headway begins with so much to do.
    pub(in crate::engine) fn headway_from(&self, left: Left) -> Headway {
        Headway { least: left, since: self.patience.now(), is_held_up: false }
    }

    /// Whether nothing has happened for too long, now that so much is left.
    pub(in crate::engine) fn is_stuck(&self, headway: &mut Headway, left: Left) -> bool {
        let Headway { least, since, .. } = headway;
        if left.slots < least.slots || left.zero_lines < least.zero_lines {
            least.slots = least.slots.min(left.slots);
            least.zero_lines = least.zero_lines.min(left.zero_lines);
            *since = self.patience.now();
            return false;
        }
        // A hook has a limit of its own.
        if self.windows.is_hook_running() {
            headway.since = self.patience.now();
            return false;
        }
        self.note_held_up(headway);
        // No answer is waited for that may be there already: there is no work.
        matches!(self.destage.work, Work::None)
            && !self.is_capped()
            && self.patience.waited(headway.since) >= self.headway_limit()
    }

    /// How long a drain waits for headway. A disk that says no was asked again meanwhile; one that
    /// says nothing may be slow.
    fn headway_limit(&self) -> Duration {
        let limit = self.config.drain_timeout;
        let says_no = match self.obstacle() {
            None | Some(Obstacle::WriteNotEnded) => false,
            Some(Obstacle::DataDisk(trouble)) => trouble.error != IoError::TimedOut,
            Some(Obstacle::Members(_) | Obstacle::CacheDisk | Obstacle::Window) => true,
        };
        if says_no { Duration(limit.0 / OBSTACLE_PART) } else { limit }
    }

    fn note_held_up(&self, headway: &mut Headway) {
        let held_up = Duration(self.config.drain_timeout.0 / HELD_UP_PART);
        headway.is_held_up |= self.patience.waited(headway.since) >= held_up;
    }

    /// Whoever is woken then finds it held up, or stuck. Afterwards, the end of the work under way
    /// does it.
    pub(in crate::engine) fn headway_wake_up(&self, headway: &Headway) -> Option<Time> {
        let limit = self.headway_limit();
        let is_over = self.patience.waited(headway.since) >= limit;
        (!is_over).then(|| self.patience.wake_up(headway.since, limit))
    }

    /// What is not on the data-disk, without what is lost.
    pub(in crate::engine) fn left_of_all(&self) -> Left {
        Left { slots: self.live_slots(None), zero_lines: self.zero_lines_left() }
    }

    /// Live slots of segments up to this one, without those that are lost.
    fn live_slots(&self, serial: Option<SegmentSerial>) -> u64 {
        let segments = &self.log.segments;
        let newer = serial.map(|serial| segments.newer(serial).map(|s| u64::from(s.live_slots)));
        let lost = self.stuck_slots().into_iter().filter_map(|(index, lost)| {
            let segment = segments.get(index);
            let is_waited_for = serial.is_none_or(|newest| segment.serial() <= newest);
            is_waited_for.then(|| u64::from(lost.min(segment.live_slots)))
        });
        segments.live_slots() - newer.map_or(0, Iterator::sum) - lost.sum::<u64>()
    }

    fn zeroes_left(&self) -> ZeroRanges {
        let mut zeroes = self.zeroes.clone();
        self.zeroes_destaging.iter().for_each(|range| zeroes.insert(range));
        zeroes
    }

    /// Lines that have to become zeroes on the data-disk.
    pub(in crate::engine) fn zero_lines_left(&self) -> u64 {
        self.zeroes.lines() + self.zeroes_destaging.lines()
    }

    /// What whoever waits is told.
    pub(in crate::engine) fn stuck_now(&self) -> RequestError {
        let lines = (self.table.lines() - self.unlisted_count()) as u64;
        RequestError::Stuck { lines, zero_lines: self.zero_lines_left() }
    }

    /// What a drain would have to wait for, if that is known.
    pub fn obstacle(&self) -> Option<Obstacle> {
        if self.window_is_not_kept() {
            return Some(Obstacle::Window);
        }
        if !self.has_destage_work() {
            return None;
        }
        if self.health.has_late_writes() {
            return Some(Obstacle::WriteNotEnded);
        }
        if let Some(members) = self.members_waited_for() {
            return Some(Obstacle::Members(members));
        }
        match self.destage_trouble() {
            Some(trouble) => Some(Obstacle::DataDisk(trouble)),
            None => self.destage.retry_at(self.now).map(|_| Obstacle::CacheDisk),
        }
    }
}
