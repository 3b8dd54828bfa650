//! How long others are waited for: disks that may hang (C26), writes that wait for room (C25), late
//! members of a volume; and in the daemon clients that keep it waiting.
//!
//! What counts is time in which the process ran and could have heard the answer. A process that was
//! stopped (a signal, the freezer, a paused machine, a debugger), or was kept by something else,
//! finds the answers of all that time in its queues when it goes on, and takes them one by one. Two
//! rules keep it from taking that for a hung disk:
//!
//! 1. Nothing is given up but at a *look*, an [`Input::Timeout`](crate::Input::Timeout): before it
//!    a driver gives everything that has ended.
//! 2. From one look to the next a *step* counts at most, however much time has passed. While
//!    something is waited for, the engine asks to be woken after a step, so looks are further apart
//!    only if it could not be.
//!
//! So a pause uses up one step, however long it was, and no clock has to tell pauses from slow
//! machines. Tests: `tests/pauses.rs`; the fuzzer's `clock-jump`, and its mode of the driver.

use crate::units::{Duration, Time};

/// The shortest limit is so many steps.
const STEPS: u64 = 32;

/// A clock that stands still while nobody could be heard.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    step: Duration,
    now: Time,
    /// The last look, and what had counted by then.
    looked_at: Time,
    counted: Time,
    /// Everything that has ended is known.
    looks: bool,
}

impl Patience {
    /// A clock for limits of which the shortest is this one.
    pub fn new(now: Time, shortest_limit: Duration) -> Patience {
        let step = Duration((shortest_limit.0 / STEPS).max(1));
        Patience { step, now, looked_at: now, counted: now, looks: false }
    }

    /// The shortest limit has changed. What has counted so far stays.
    pub fn shortest_limit_is(&mut self, shortest_limit: Duration) {
        self.counted = self.now();
        self.looked_at = self.now;
        self.step = Duration((shortest_limit.0 / STEPS).max(1));
    }

    /// An input comes; `looks`: everything that has ended came before it.
    pub fn pass(&mut self, now: Time, looks: bool) {
        self.now = now;
        self.looks = looks;
        if looks {
            self.counted = self.now();
            self.looked_at = now;
        }
    }

    /// What has counted of the time: what is begun now is begun at this moment.
    pub fn now(&self) -> Time {
        let passed = self.now.since(self.looked_at);
        self.counted.after(passed.min(self.step))
    }

    /// The time, whatever of it counts.
    pub(crate) fn clock(&self) -> Time {
        self.now
    }

    /// How long something that began at this moment of [`Patience::now`] has been waited for.
    pub(crate) fn waited(&self, since: Time) -> Duration {
        self.now().since(since)
    }

    /// Whether anything may be given up now (rule 1).
    pub(crate) fn looks(&self) -> bool {
        self.looks
    }

    /// Whether to give up what began at this moment of [`Patience::now`].
    pub fn is_over(&self, since: Time, limit: Duration) -> bool {
        self.looks && self.waited(since) >= limit
    }

    /// When to look again at what began at this moment of [`Patience::now`]. Always later than the
    /// time.
    pub fn wake_up(&self, since: Time, limit: Duration) -> Time {
        let rest = Duration(limit.0.saturating_sub(self.waited(since).0));
        let at = self.now.after(rest).min(self.looked_at.after(self.step));
        at.max(self.now.after(Duration(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(32);

    fn second(second: u64) -> Time {
        Time::ZERO.after(Duration::from_secs(second))
    }

    #[test]
    fn time_counts_as_it_is_while_looks_come_when_they_should() {
        let mut patience = Patience::new(Time::ZERO, LIMIT);
        let since = patience.now();
        let mut now = Time::ZERO;
        while !patience.is_over(since, LIMIT) {
            assert!(now < second(32));
            let next = patience.wake_up(since, LIMIT);
            patience.pass(Time((now.0 + next.0) / 2), false);
            assert!(patience.wake_up(since, LIMIT) == next);
            patience.pass(next, true);
            now = next;
        }
        assert_eq!(now, second(32));
    }

    #[test]
    fn a_pause_is_a_step_at_most() {
        let mut patience = Patience::new(Time::ZERO, LIMIT);
        let since = patience.now();
        for hour in 1..40 {
            patience.pass(second(3600 * hour), false);
            assert_eq!(patience.waited(since), Duration::from_secs(1));
        }
        patience.pass(second(3600 * 40), true);
        assert_eq!(patience.waited(since), Duration::from_secs(1));
        patience.pass(second(3600 * 40), true);
        assert_eq!(patience.wake_up(since, LIMIT), second(3600 * 40 + 1));
    }

    /// Whatever was waited for is not given up sooner or later for it.
    #[test]
    fn a_new_limit_leaves_what_has_counted() {
        let mut patience = Patience::new(Time::ZERO, LIMIT);
        let since = patience.now();
        patience.pass(second(1), true);
        patience.pass(second(3), false);
        let waited = patience.waited(since);
        patience.shortest_limit_is(Duration::from_millis(32));
        assert_eq!(patience.waited(since), waited);
        patience.pass(second(100), true);
        assert_eq!(patience.waited(since), Duration(waited.0 + 1_000_000));
        patience.shortest_limit_is(LIMIT);
        assert_eq!(patience.waited(since), Duration(waited.0 + 1_000_000));
    }

    #[test]
    fn nothing_is_over_before_all_is_heard() {
        let mut patience = Patience::new(Time::ZERO, LIMIT);
        let since = patience.now();
        for at in 1..32 {
            patience.pass(second(at), true);
        }
        patience.pass(second(33), false);
        assert!(patience.waited(since) == LIMIT && !patience.is_over(since, LIMIT));
        assert_eq!(patience.wake_up(since, LIMIT), second(33).after(Duration(1)));
        patience.pass(second(33), true);
        assert!(patience.is_over(since, LIMIT));
    }
}
