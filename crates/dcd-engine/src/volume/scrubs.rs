//! When a volume is scrubbed by itself, and how fast.
//!
//! Two clocks: what the engine is given counts from a start, and the *calendar*, seconds since 1970
//! that the driver hands in now and then ([`Volume::set_calendar`](super::Volume::set_calendar)).
//! Only that knows of the time in which nobody served. It may jump, so no more than this follows
//! from it: a scrub too many when it runs ahead; and when it goes back, so that the last scrub was
//! in the future for [`FUTURE_PATIENCE`], the time to the next counts from now.

use super::format::root::{ScrubRecord, UnfinishedScrub};
use super::raid::Layout;
use crate::units::{Duration, Time};

/// Nothing begins by itself before a start is over for so long, or for this part of the time
/// between two: others start, too.
const SETTLE: Duration = Duration::from_secs(600);
const SETTLE_PART: u64 = 100;
/// How far it is is recorded so often.
const RECORD_EVERY: Duration = Duration::from_secs(60);
/// One that could not go on is tried again after this.
const RETRY: Duration = Duration::from_secs(3600);
/// A calendar that is not right yet, behind a start, is put right by then.
const FUTURE_PATIENCE: Duration = Duration::from_secs(3600);
/// The volume is busy until nothing was asked of it for so long.
const QUIET: Duration = Duration::from_millis(50);
/// While it is busy: a stripe, and then nothing for so many times as long as that took.
const PAUSE_TIMES: u64 = 7;
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Scrubs by time.
#[derive(Default)]
pub(super) struct Scrubs {
    /// What the next root has; of one that is under way, as it was when it began.
    pub(super) record: ScrubRecord,
    /// What the newest root has, and when that was written.
    recorded: ScrubRecord,
    recorded_at: Time,
    /// What the root has that is being written.
    in_root: ScrubRecord,
    /// From one to the next; 0: never by itself.
    every: Duration,
    /// The calendar, when it was handed in.
    calendar: Option<(Time, u64)>,
    opened_at: Option<Time>,
    not_before: Time,
    /// Since when the last scrub has been in the future.
    future_since: Option<Time>,
    /// Something was asked of the volume.
    asked_at: Option<Time>,
    /// The first stripe of the window was taken.
    taken_at: Time,
    paused_until: Time,
}

impl Scrubs {
    /// As the root has it. A place that there is not is the beginning.
    pub(super) fn load(&mut self, record: ScrubRecord, layouts: &[Layout]) {
        let is_there = |it: &UnfinishedScrub| match layouts.get(usize::from(it.set)) {
            Some(layout) => it.stripe <= layout.stripes(),
            None => usize::from(it.set) == layouts.len() && it.stripe == 0,
        };
        let placed = |it: UnfinishedScrub| match is_there(&it) {
            true => it,
            false => UnfinishedScrub { set: 0, stripe: 0, ..it },
        };
        self.record = ScrubRecord { unfinished: record.unfinished.map(placed), ..record };
        self.recorded = self.record;
    }

    /// What was set.
    pub(super) fn set_every(&mut self, every: Duration) {
        self.every = every;
    }

    pub(super) fn every(&self) -> Duration {
        self.every
    }

    /// The driver knows the time.
    pub(super) fn set_calendar(&mut self, now: Time, seconds: u64) {
        self.calendar = Some((now, seconds));
        self.look_at_calendar(now);
    }

    fn look_at_calendar(&mut self, now: Time) {
        let (Some(_), Some(today)) = (self.opened_at, self.today(now)) else { return };
        if self.record.since == 0 {
            self.record.since = today;
        }
        match self.record.since > today {
            true => drop(self.future_since.get_or_insert(now)),
            false => self.future_since = None,
        }
    }

    /// Seconds since 1970, if anybody knows.
    pub(super) fn today(&self, now: Time) -> Option<u64> {
        self.calendar.map(|(at, seconds)| seconds + now.since(at).0 / Duration::from_secs(1).0)
    }

    /// The volume is open.
    pub(super) fn opened(&mut self, now: Time) {
        if self.opened_at.is_none() {
            self.opened_at = Some(now);
            self.recorded_at = now;
            self.look_at_calendar(now);
        }
    }

    /// When the next begins by itself, if nothing is in the way; `None`: never.
    pub(super) fn due(&self, now: Time) -> Option<Time> {
        let (opened_at, today) = (self.opened_at?, self.today(now)?);
        if self.every.0 == 0 {
            return None;
        }
        let goes_on = self.record.unfinished.is_some_and(|it| !it.is_put_off);
        let due = match (goes_on, self.future_since) {
            (true, _) => Time::ZERO,
            (false, Some(since)) => since.after(FUTURE_PATIENCE),
            (false, None) => {
                let seconds = today - self.record.since.min(today);
                let passed = seconds.saturating_mul(Duration::from_secs(1).0);
                now.after(Duration(self.every.0.saturating_sub(passed)))
            }
        };
        let settled = opened_at.after(SETTLE.min(Duration(self.every.0 / SETTLE_PART)));
        Some(due.max(settled).max(self.not_before))
    }

    /// In the calendar: when the next is due. One that goes on is.
    pub(super) fn due_in_calendar(&self, now: Time) -> Option<u64> {
        let (due, today) = (self.due(now)?, self.today(now)?);
        Some(today + due.since(now).0.div_ceil(Duration::from_secs(1).0))
    }

    /// It is due, and the last one was in the future for long: time counts from now.
    pub(super) fn correct_future(&mut self, now: Time) -> bool {
        let is_over = |since: &Time| now >= since.after(FUTURE_PATIENCE);
        let is_wrong = self.future_since.as_ref().is_some_and(is_over);
        if let (true, Some(today)) = (is_wrong, self.today(now)) {
            self.future_since = None;
            self.record.since = today;
        }
        is_wrong
    }

    /// One goes on where the last was, or begins. From where on, and what was found before.
    pub(super) fn begin(&mut self, now: Time, is_resumed: bool) -> UnfinishedScrub {
        let began = self.today(now).unwrap_or(0);
        let anew = UnfinishedScrub { began, set: 0, stripe: 0, found: 0, is_put_off: false };
        let unfinished = self.record.unfinished.filter(|_| is_resumed).unwrap_or(anew);
        let unfinished = UnfinishedScrub { is_put_off: false, ..unfinished };
        self.record.unfinished = Some(unfinished);
        unfinished
    }

    /// One that is under way has come to here.
    pub(super) fn is_at(&self, (set, stripe): (u8, u64), found: u64) -> ScrubRecord {
        let unfinished =
            self.record.unfinished.map(|it| UnfinishedScrub { set, stripe, found, ..it });
        ScrubRecord { unfinished, ..self.record }
    }

    /// Everything was read.
    pub(super) fn ended(&mut self, now: Time, found: u64) {
        let today = self.today(now).unwrap_or(0);
        self.record = ScrubRecord { since: today, ended: today, found, unfinished: None };
    }

    /// It has stopped here, because something else is more urgent.
    pub(super) fn set_aside(&mut self, place: (u8, u64), found: u64) {
        self.record = self.is_at(place, found);
    }

    /// Somebody does not want it now.
    pub(super) fn put_off(&mut self, now: Time) {
        if let (Some(unfinished), today) = (self.record.unfinished, self.today(now)) {
            self.record.unfinished = Some(UnfinishedScrub { is_put_off: true, ..unfinished });
            self.record.since = today.unwrap_or(self.record.since);
        }
    }

    /// It could not go on.
    pub(super) fn has_failed(&mut self, now: Time) {
        self.not_before = now.after(RETRY);
    }

    // ---- what the root has ----------------------------------------------------------------------

    /// When a root is to be written for what is known now.
    pub(super) fn record_by(&self, current: &ScrubRecord) -> Option<Time> {
        let rough = |record: &ScrubRecord| {
            let unfinished = record.unfinished.map(|it| (it.began, it.is_put_off));
            (record.since, record.ended, record.found, unfinished)
        };
        match current == &self.recorded {
            true => None,
            false if rough(current) == rough(&self.recorded) => {
                Some(self.recorded_at.after(RECORD_EVERY))
            }
            false => Some(self.recorded_at),
        }
    }

    /// A root is made.
    pub(super) fn goes_to_root(&mut self, record: ScrubRecord) {
        self.in_root = record;
    }

    /// It is durable.
    pub(super) fn root_written(&mut self, now: Time) {
        self.recorded = self.in_root;
        self.recorded_at = now;
    }

    // ---- pace -----------------------------------------------------------------------------------

    /// The engine asks for something, or has got it.
    pub(super) fn note_asked(&mut self, now: Time) {
        self.asked_at = Some(now);
    }

    /// When it last did; not since the start: `None`.
    pub(super) fn asked_at(&self) -> Option<Time> {
        self.asked_at
    }

    fn quiet_at(&self) -> Time {
        self.asked_at.map_or(Time::ZERO, |at| at.after(QUIET))
    }

    /// Whether clients, or what is on its way from the log, want the members.
    pub(super) fn is_busy(&self, now: Time, is_asked: bool) -> bool {
        is_asked || now < self.quiet_at()
    }

    /// Whether a stripe may be taken while the volume is busy.
    pub(super) fn is_paused(&self, now: Time) -> bool {
        now < self.paused_until
    }

    /// The first stripe of the window is taken.
    pub(super) fn took(&mut self, now: Time) {
        self.taken_at = now;
    }

    /// The last of the window is done.
    pub(super) fn did(&mut self, now: Time) {
        let pause = now.since(self.taken_at).0.saturating_mul(PAUSE_TIMES);
        self.paused_until = now.after(Duration(pause).min(PAUSE_MAX));
    }

    /// When the next stripe may be taken.
    pub(super) fn next_stripe_at(&self, is_asked: bool) -> Time {
        match is_asked {
            true => self.paused_until,
            false => self.paused_until.min(self.quiet_at()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;
    const START: u64 = 20_000 * DAY;

    fn at(days: u64) -> Time {
        Time(days * DAY * 1_000_000_000)
    }

    fn scrubs(record: ScrubRecord, today: u64) -> Scrubs {
        let mut scrubs = Scrubs { record, every: Duration(at(30).0), ..Scrubs::default() };
        scrubs.opened(Time::ZERO);
        scrubs.set_calendar(Time::ZERO, today);
        scrubs
    }

    fn since(since: u64) -> ScrubRecord {
        ScrubRecord { since, ..ScrubRecord::default() }
    }

    #[test]
    fn a_new_volume_waits_as_long_as_from_one_to_the_next() {
        let new = scrubs(since(0), START);
        assert_eq!(new.record.since, START);
        assert_eq!(new.due(Time::ZERO), Some(at(30)));
        assert_eq!(new.due_in_calendar(at(3)), Some(START + 30 * DAY));
        assert_eq!(Scrubs { every: Duration(0), ..new }.due(at(100)), None);
    }

    #[test]
    fn time_without_dcd_counts() {
        let off_for_long = scrubs(since(START), START + 100 * DAY);
        assert_eq!(off_for_long.due(Time::ZERO), Some(Time::ZERO.after(SETTLE)));
        let for_less = scrubs(since(START), START + 29 * DAY);
        assert_eq!(for_less.due(Time::ZERO), Some(at(1)));
        // What was stopped by an end of dcd goes on.
        let unfinished =
            UnfinishedScrub { began: 1, set: 1, stripe: 7, found: 3, is_put_off: false };
        let record = ScrubRecord { unfinished: Some(unfinished), ..since(START) };
        let mut cut = scrubs(record, START + 1);
        assert_eq!(cut.due(Time::ZERO), Some(Time::ZERO.after(SETTLE)));
        assert_eq!(cut.begin(at(0), true), unfinished);
        // What somebody has stopped does not.
        cut.put_off(at(0));
        assert_eq!(cut.due(Time::ZERO), Some(at(30)));
        assert_eq!(cut.begin(at(0), false).stripe, 0);
    }

    #[test]
    fn a_calendar_that_goes_back_costs_no_more_than_one_turn() {
        let mut back = scrubs(since(START), DAY);
        assert_eq!(back.due(Time::ZERO), Some(Time::ZERO.after(FUTURE_PATIENCE)));
        // Put right within the hour, nothing has happened.
        back.set_calendar(Time::ZERO, START + DAY);
        assert_eq!(back.due(Time::ZERO), Some(at(29)));
        assert!(!back.correct_future(at(1)));
        back.set_calendar(at(1), DAY);
        assert!(!back.correct_future(at(1)) && back.correct_future(at(2)));
        assert_eq!(back.record.since, 2 * DAY);
        assert_eq!(back.due(at(2)), Some(at(32)));
    }

    #[test]
    fn progress_is_recorded_now_and_then_and_an_end_at_once() {
        let mut scrubs = scrubs(since(START), START);
        scrubs.begin(at(1), true);
        let begun = scrubs.record;
        assert!(scrubs.record_by(&begun).unwrap() <= at(1));
        scrubs.goes_to_root(begun);
        scrubs.root_written(at(1));
        assert_eq!(scrubs.record_by(&begun), None);
        let further = scrubs.is_at((0, 5), 2);
        assert_eq!(scrubs.record_by(&further), Some(at(1).after(RECORD_EVERY)));
        scrubs.ended(at(2), 2);
        assert!(scrubs.record_by(&scrubs.record).unwrap() <= at(2));
        assert_eq!(scrubs.record.ended, START + 2 * DAY);
        assert_eq!(scrubs.record.unfinished, None);
    }

    #[test]
    fn while_the_volume_is_busy_most_of_the_time_is_left_to_others() {
        let mut scrubs = scrubs(since(START), START);
        let ms = |ms: u64| Time(ms * 1_000_000);
        scrubs.note_asked(ms(100));
        assert!(scrubs.is_busy(ms(149), false) && !scrubs.is_busy(ms(150), false));
        scrubs.took(ms(100));
        scrubs.did(ms(110));
        assert!(scrubs.is_paused(ms(179)) && !scrubs.is_paused(ms(180)));
        assert_eq!(scrubs.next_stripe_at(true), ms(180));
        assert_eq!(scrubs.next_stripe_at(false), ms(150));
    }
}
