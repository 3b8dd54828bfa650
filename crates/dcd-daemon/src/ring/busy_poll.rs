//! How long the loop looks for its next event before it sleeps.
//!
//! A thread that sleeps is woken late: the event interrupts an idle processor, which takes some
//! microseconds to come back, in a virtual machine some tens. Whoever asks for one thing at a time
//! waits for that in each request. So the loop looks around for a moment first, as long as events
//! do come soon, and gives its processor to whoever wants it meanwhile.
//!
//! The rule is that of Linux for idle guests (`Documentation/virt/guest-halt-polling.rst`): an
//! event that would have been seen by looking for longer, within the maximum, makes the next look
//! longer; one that comes later makes it shorter, down to none.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// The first look is the maximum divided by this; a look that became shorter than that is none.
const STEPS: u32 = 8;
/// An event that comes within the time of so many wake-ups is worth looking for, unless it is said
/// otherwise.
const WAKE_UPS: u32 = 10;
/// But not for longer than this: where wake-ups take longer, as in an emulated machine, nobody
/// would look for nothing.
const MAX_OF_AUTO: Duration = Duration::from_millis(1);

/// How long the loop may look for an event.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum BusyPollMax {
    /// By what a wake-up takes on this machine, which is measured.
    #[default]
    Auto,
    /// So long; zero: never.
    Time(Duration),
}

impl BusyPollMax {
    /// Never.
    pub const NEVER: BusyPollMax = BusyPollMax::Time(Duration::ZERO);

    /// The time for this machine. It is none where there is one processor: whoever makes the events
    /// needs it. Measuring takes some milliseconds.
    pub fn on_this_machine(self) -> Duration {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        match self {
            _ if processors < 2 => Duration::ZERO,
            BusyPollMax::Time(max) => max,
            BusyPollMax::Auto => (wake_up_time() * WAKE_UPS).min(MAX_OF_AUTO),
        }
    }
}

/// What it takes until a thread that sleeps runs after it was woken, the median of some.
fn wake_up_time() -> Duration {
    const ROUNDS: usize = 15;
    // So long that its processor has gone to sleep, too.
    const PAUSE: Duration = Duration::from_micros(300);
    let (sender, receiver) = mpsc::channel::<Instant>();
    let sleeper = thread::spawn(move || {
        let mut times: Vec<Duration> = receiver.iter().map(|sent| sent.elapsed()).collect();
        times.sort_unstable();
        times.get(times.len() / 2).copied().unwrap_or_default()
    });
    for _ in 0..ROUNDS {
        thread::sleep(PAUSE);
        if sender.send(Instant::now()).is_err() {
            break;
        }
    }
    drop(sender);
    sleeper.join().unwrap_or_default()
}

/// See the module.
#[derive(Debug)]
pub struct BusyPoll {
    max: Duration,
    window: Duration,
}

impl BusyPoll {
    /// Looks for `max` at most; zero: never.
    pub fn new(max: Duration) -> BusyPoll {
        BusyPoll { max, window: Duration::ZERO }
    }

    /// Whether it ever looks.
    pub fn is_on(&self) -> bool {
        !self.max.is_zero()
    }

    /// How long to look now.
    pub fn window(&self) -> Duration {
        self.window
    }

    /// The event came so long after the wait for it had begun; `None`: none came.
    pub fn waited(&mut self, waited: Option<Duration>) {
        let first = self.max / STEPS;
        match waited {
            Some(waited) if waited <= self.window => {}
            Some(waited) if waited <= self.max => {
                self.window = (self.window * 2).clamp(first, self.max);
            }
            _ => {
                let shorter = self.window / 2;
                self.window = if shorter < first { Duration::ZERO } else { shorter };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    #[test]
    fn it_looks_as_long_as_events_come_soon() {
        let mut poll = BusyPoll::new(us(80));
        assert_eq!(poll.window(), us(0));
        poll.waited(Some(us(30)));
        assert_eq!(poll.window(), us(10));
        poll.waited(Some(us(30)));
        poll.waited(Some(us(30)));
        assert_eq!(poll.window(), us(40));
        poll.waited(Some(us(30)));
        assert_eq!(poll.window(), us(40), "that was long enough");
        (0..9).for_each(|_| poll.waited(Some(us(80))));
        assert_eq!(poll.window(), us(80), "and no longer than that");
    }

    #[test]
    fn it_does_not_look_for_what_comes_late_or_not_at_all() {
        let mut poll = BusyPoll::new(us(80));
        poll.waited(Some(us(81)));
        assert_eq!(poll.window(), us(0));
        poll.waited(Some(us(20)));
        poll.waited(Some(us(20)));
        poll.waited(Some(us(5000)));
        assert_eq!(poll.window(), us(10));
        poll.waited(None);
        assert_eq!(poll.window(), us(0));
    }

    #[test]
    fn a_maximum_is_found_for_any_machine() {
        let found = BusyPollMax::Auto.on_this_machine();
        assert!(found <= MAX_OF_AUTO);
        assert_eq!(BusyPollMax::NEVER.on_this_machine(), us(0));
        if thread::available_parallelism().is_ok_and(|processors| processors.get() > 1) {
            assert!(found > us(0));
            assert_eq!(BusyPollMax::Time(us(70)).on_this_machine(), us(70));
        }
    }

    #[test]
    fn it_can_be_off() {
        let mut poll = BusyPoll::new(us(0));
        poll.waited(Some(us(0)));
        poll.waited(Some(us(1)));
        assert!(!poll.is_on());
        assert_eq!(poll.window(), us(0));
    }
}
