//! When is cleaned what no write waits for: three levels, each with its own thresholds.
//!
//! ```text
//! urgent      above its high threshold, down to its low one: at once
//! background  above its high threshold, down to its low one: when the disk has had no other
//!             request for a while, some groups at once
//! deep idle   nobody has asked for anything for long: group by group, down to the floor
//! ```
//!
//! Where cleaning goes behind requests, what is started is sent one write at a time, and only when
//! the disk has nothing else to do: so a request waits for one write of a cleaning at most. But a
//! write that waits for room must not wait for requests, too: then all is sent as it comes.

use super::NvramConfig;
use crate::units::{Duration, Time};

/// Cleaning at once, from a threshold on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Urgent {
    /// It begins when more than this part of the memory is dirty.
    pub high_percent: u8,
    /// It ends when no more than this part is.
    pub low_percent: u8,
    /// Groups that are cleaned at once.
    pub groups_at_once: u32,
}

/// Why a group is cleaned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Level {
    Urgent,
    Background,
    DeepIdle,
}

/// Thresholds of a level, in blocks.
#[derive(Clone, Copy, Debug)]
struct Thresholds {
    high_blocks: u64,
    low_blocks: u64,
    groups_at_once: u32,
}

/// Says when to clean.
#[derive(Debug)]
pub(super) struct Cleaner {
    background: Thresholds,
    idle: Duration,
    urgent: Option<Thresholds>,
    deep_idle: Option<Duration>,
    floor_blocks: u64,
    is_behind_requests: bool,
    /// A high threshold was passed, and the low one not reached yet.
    is_cleaning: bool,
    is_urgent: bool,
    groups_being_cleaned: u32,
    /// Requests that have come and are not done.
    requests: u32,
    /// Those of them that the disk works on.
    requests_below: u32,
    /// Since when the disk has had no request but for cleaning.
    quiet_since: Time,
    /// When somebody asked for something last.
    asked_at: Time,
    /// How often the high threshold of the background was passed.
    cleanings: u64,
}

impl Cleaner {
    pub(super) fn new(config: &NvramConfig) -> Cleaner {
        let mut cleaner = Cleaner {
            background: Thresholds { high_blocks: 0, low_blocks: 0, groups_at_once: 0 },
            idle: Duration(0),
            urgent: None,
            deep_idle: None,
            floor_blocks: 0,
            is_behind_requests: false,
            is_cleaning: false,
            is_urgent: false,
            groups_being_cleaned: 0,
            requests: 0,
            requests_below: 0,
            quiet_since: Time::ZERO,
            asked_at: Time::ZERO,
            cleanings: 0,
        };
        cleaner.follow(config);
        cleaner
    }

    /// Other thresholds from now on. Cleaning that has begun goes on to the new low one.
    pub(super) fn follow(&mut self, config: &NvramConfig) {
        let floor = config.wear_floor_percent;
        let thresholds = |high: u8, low: u8, groups_at_once| {
            let low = low.max(floor);
            let blocks = |percent: u8| config.capacity_blocks * u64::from(percent) / 100;
            let (high_blocks, low_blocks) = (blocks(high.max(low)), blocks(low));
            Thresholds { high_blocks, low_blocks, groups_at_once }
        };
        let NvramConfig { high_percent, low_percent, groups_at_once, .. } = *config;
        self.background = thresholds(high_percent, low_percent, groups_at_once);
        self.idle = config.idle;
        self.urgent = config.urgent.map(|urgent| {
            thresholds(urgent.high_percent, urgent.low_percent, urgent.groups_at_once)
        });
        self.deep_idle = config.deep_idle;
        self.floor_blocks = thresholds(0, 0, 1).low_blocks;
        self.is_behind_requests = config.is_behind_requests;
    }

    // ---- what happens -------------------------------------------------------------------------

    pub(super) fn request_came(&mut self, now: Time) {
        self.requests += 1;
        self.asked_at = now;
    }

    pub(super) fn request_ended(&mut self) {
        self.requests -= 1;
    }

    pub(super) fn request_went_below(&mut self) {
        self.requests_below += 1;
    }

    pub(super) fn request_was_below(&mut self, now: Time) {
        self.requests_below -= 1;
        self.quiet_since = now;
    }

    pub(super) fn group_started(&mut self) {
        self.groups_being_cleaned += 1;
    }

    pub(super) fn group_ended(&mut self) {
        self.groups_being_cleaned -= 1;
    }

    /// No group may be cleaned: only what is hot is left.
    pub(super) fn nothing_to_clean(&mut self) {
        self.is_cleaning = false;
        self.is_urgent = false;
    }

    // ---- what to do ---------------------------------------------------------------------------

    pub(super) fn groups_being_cleaned(&self) -> u32 {
        self.groups_being_cleaned
    }

    pub(super) fn requests_below(&self) -> u32 {
        self.requests_below
    }

    pub(super) fn cleanings(&self) -> u64 {
        self.cleanings
    }

    /// Whether cleaning goes behind requests now.
    pub(super) fn yields(&self) -> bool {
        self.is_behind_requests && !self.is_urgent
    }

    /// Whether cleaning ever goes behind requests.
    pub(super) fn is_behind_requests(&self) -> bool {
        self.is_behind_requests
    }

    /// Whether a group is to be cleaned now, with so many blocks staying dirty if none is.
    pub(super) fn next(&mut self, now: Time, staying_blocks: u64) -> Option<Level> {
        if let Some(urgent) = self.urgent {
            self.is_urgent |= staying_blocks > urgent.high_blocks;
            self.is_urgent &= staying_blocks > urgent.low_blocks;
            if self.is_urgent && self.groups_being_cleaned < urgent.groups_at_once {
                return Some(Level::Urgent);
            }
        }
        let Thresholds { high_blocks, low_blocks, groups_at_once } = self.background;
        if !self.is_cleaning && staying_blocks > high_blocks {
            self.is_cleaning = true;
            self.cleanings += 1;
        }
        self.is_cleaning &= staying_blocks > low_blocks;
        if self.is_cleaning {
            let may_start = self.is_idle(now) && self.groups_being_cleaned < groups_at_once;
            return may_start.then_some(Level::Background);
        }
        let is_due = self.deep_idle_at(staying_blocks).is_some_and(|at| now >= at);
        is_due.then_some(Level::DeepIdle)
    }

    /// When to ask again, if nothing happens meanwhile.
    pub(super) fn wake_up(&self, now: Time, staying_blocks: u64) -> Option<Time> {
        let waits_for_idle = self.is_cleaning
            && self.requests_below == 0
            && !self.is_idle(now)
            && self.groups_being_cleaned < self.background.groups_at_once
            && staying_blocks > self.background.low_blocks;
        let idle = waits_for_idle.then(|| self.quiet_since.after(self.idle));
        idle.or_else(|| self.deep_idle_at(staying_blocks).filter(|at| *at > now))
    }

    fn is_idle(&self, now: Time) -> bool {
        self.idle.0 == 0 || self.requests_below == 0 && now.since(self.quiet_since) >= self.idle
    }

    /// From when on it is deep idle, if nothing happens until then and there is something to do.
    fn deep_idle_at(&self, staying_blocks: u64) -> Option<Time> {
        let deep_idle = self.deep_idle?;
        let may_come = !self.is_cleaning
            && !self.is_urgent
            && self.requests == 0
            && self.groups_being_cleaned == 0
            && staying_blocks > self.floor_blocks;
        may_come.then(|| self.asked_at.max(self.quiet_since).after(deep_idle))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn config() -> NvramConfig {
        NvramConfig {
            capacity_blocks: 100,
            high_percent: 50,
            low_percent: 30,
            idle: Duration(MS),
            groups_at_once: 1,
            is_behind_requests: true,
            urgent: Some(Urgent { high_percent: 90, low_percent: 80, groups_at_once: u32::MAX }),
            deep_idle: Some(Duration::from_secs(1)),
            ..NvramConfig::default()
        }
    }

    #[test]
    fn the_background_waits_for_the_disk_and_takes_one_group_at_a_time() {
        let mut cleaner = Cleaner::new(&config());
        cleaner.request_went_below();
        assert_eq!(cleaner.next(Time(5 * MS), 60), None, "the disk works for somebody");
        assert_eq!(cleaner.wake_up(Time(5 * MS), 60), None, "its end comes by itself");
        cleaner.request_was_below(Time(6 * MS));
        assert_eq!(cleaner.next(Time(6 * MS), 60), None);
        assert_eq!(cleaner.wake_up(Time(6 * MS), 60), Some(Time(7 * MS)));
        assert_eq!(cleaner.next(Time(7 * MS), 60), Some(Level::Background));
        cleaner.group_started();
        assert_eq!(cleaner.next(Time(7 * MS), 40), None, "one at a time");
        assert_eq!(cleaner.wake_up(Time(7 * MS), 40), None);
        cleaner.group_ended();
        assert_eq!(cleaner.next(Time(8 * MS), 40), Some(Level::Background), "above the low one");
        assert_eq!(cleaner.next(Time(8 * MS), 30), None);
        assert_eq!(cleaner.next(Time(8 * MS), 40), None, "the high one was not passed again");
    }

    #[test]
    fn what_is_urgent_waits_for_nothing() {
        let mut cleaner = Cleaner::new(&config());
        cleaner.request_came(Time(0));
        cleaner.request_went_below();
        assert_eq!(cleaner.next(Time(MS), 91), Some(Level::Urgent));
        assert!(!cleaner.yields());
        for staying in [89, 85, 81] {
            cleaner.group_started();
            assert_eq!(cleaner.next(Time(MS), staying), Some(Level::Urgent));
        }
        assert_eq!(cleaner.next(Time(MS), 80), None, "the rest is for the background");
        assert!(cleaner.yields());
        assert_eq!(cleaner.next(Time(MS), 89), None);
    }

    #[test]
    fn when_nobody_asks_for_long_the_memory_becomes_empty() {
        let mut cleaner = Cleaner::new(&config());
        cleaner.request_came(Time(5 * MS));
        assert_eq!(cleaner.wake_up(Time(5 * MS), 10), None, "somebody waits");
        cleaner.request_ended();
        let at = Time(1005 * MS);
        assert_eq!(cleaner.next(Time(1004 * MS), 10), None);
        assert_eq!(cleaner.wake_up(Time(1004 * MS), 10), Some(at));
        assert_eq!(cleaner.next(at, 10), Some(Level::DeepIdle));
        cleaner.group_started();
        assert_eq!((cleaner.next(at, 5), cleaner.wake_up(at, 5)), (None, None));
        cleaner.group_ended();
        assert_eq!(cleaner.next(at, 5), Some(Level::DeepIdle));
        assert_eq!((cleaner.next(at, 0), cleaner.wake_up(at, 0)), (None, None));
    }

    #[test]
    fn what_is_to_be_kept_is_kept_on_all_levels() {
        let mut cleaner = Cleaner::new(&NvramConfig {
            high_percent: 0,
            low_percent: 0,
            wear_floor_percent: 40,
            ..config()
        });
        let late = Time(9000 * MS);
        assert_eq!(cleaner.next(late, 41), Some(Level::Background));
        assert_eq!((cleaner.next(late, 40), cleaner.wake_up(late, 40)), (None, None));
    }

    /// At times around 2^40 us, too, a wake-up is in the future or not at all.
    #[test]
    fn thresholds_of_zero_do_not_spin() {
        let config = NvramConfig { high_percent: 0, low_percent: 0, ..config() };
        for start in [0, 1 << 50, (1 << 60) + 12_345] {
            let mut cleaner = Cleaner::new(&config);
            cleaner.request_came(Time(start));
            cleaner.request_went_below();
            cleaner.request_was_below(Time(start));
            cleaner.request_ended();
            assert_eq!(cleaner.next(Time(start), 0), None);
            assert_eq!(cleaner.wake_up(Time(start), 0), None);
            assert_eq!(cleaner.next(Time(start), 1), None);
            let wake_up = cleaner.wake_up(Time(start), 1).unwrap();
            assert!(wake_up > Time(start));
            assert_eq!(cleaner.next(wake_up, 1), Some(Level::Background));
            cleaner.group_started();
            assert_eq!(cleaner.wake_up(wake_up, 0), None);
            cleaner.group_ended();
            assert_eq!(cleaner.next(wake_up, 0), None);
        }
    }
}
