//! The lease on an object store: renewed by a thread, known to whoever acknowledges what is to be
//! in the store alone. And what is known of the store beside that: whether its server says no.
//!
//! It counts from the moment when its renewal was asked for, by a clock that goes on while the
//! machine sleeps, and ends a little earlier here than for others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dcd_protocol::store::{StoreFailure, StoreNews, StoreTrouble};
use rustix::time::{ClockId, clock_gettime};

use crate::device::network::store_report::StoreReport;

/// So much earlier it is over here, however well this clock goes.
const DRIFT: Duration = Duration::from_secs(2);
/// From one renewal to the next a third of it passes, ...
pub(crate) const RENEWALS: u32 = 3;
/// ... and behind one that has failed so much.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Time since the machine was started.
pub(crate) fn now() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

struct State {
    /// By [`now`].
    until: Duration,
    /// Another one has the store, for good.
    lost: Option<StoreFailure>,
    /// Why it could not be renewed, since it has run out.
    problem: Option<String>,
    /// What the server of the store says against what it is asked for.
    trouble: Option<StoreTrouble>,
    /// Called when one of these may have changed.
    on_news: Option<Box<dyn Fn() + Send>>,
}

/// See the module. Its thread ends when it is given up, or lost.
pub(crate) struct Lease {
    state: Arc<Mutex<State>>,
    end: Mutex<Option<Sender<()>>>,
    length: Duration,
    /// The newest superblock of the cache-disk that is durable.
    generation: AtomicU64,
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn end_of(asked: Duration, length: Duration) -> Duration {
    asked + length.saturating_sub(DRIFT)
}

impl State {
    fn call(&self) {
        if let Some(on_news) = &self.on_news {
            on_news();
        }
    }
}

impl Lease {
    /// One of this length that was asked for at `asked`, and is renewed by `renew` from now on.
    pub(crate) fn begin(
        length: Duration,
        asked: Duration,
        name: String,
        renew: impl Fn() -> Result<(), StoreFailure> + Send + 'static,
    ) -> std::io::Result<Arc<Lease>> {
        let state = State {
            until: end_of(asked, length),
            lost: None,
            problem: None,
            trouble: None,
            on_news: None,
        };
        let state = Arc::new(Mutex::new(state));
        let (end, ended) = channel::<()>();
        let of = |end| Lease { state: state.clone(), end, length, generation: AtomicU64::new(0) };
        let (lease, theirs) = (Arc::new(of(Mutex::new(Some(end)))), of(Mutex::default()));
        let thread = std::thread::Builder::new().name("dcd-lease".into());
        thread.spawn(move || {
            let renew_every = length / RENEWALS;
            let mut pause = renew_every;
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let asked = now();
                pause = match renew() {
                    Ok(()) => {
                        theirs.renewed(asked, &name);
                        renew_every
                    }
                    Err(failure) if failure.is_lost => return theirs.lost(&failure),
                    Err(failure) => {
                        theirs.not_renewed(&name, &failure);
                        RETRY_AFTER
                    }
                };
            }
        })?;
        Ok(lease)
    }

    /// What was asked for at `asked` has ended well, and has renewed it.
    pub(crate) fn renewed(&self, asked: Duration, name: &str) {
        let mut state = locked(&self.state);
        state.until = state.until.max(end_of(asked, self.length));
        let was_over = state.problem.take().is_some();
        state.call();
        // Not while it is locked, here and below: whoever reads stderr may let us wait.
        drop(state);
        if was_over {
            told!(Notice, "lease-renewed", "dcd: {name}: the lease is renewed");
        }
    }

    /// Another one has the store.
    pub(crate) fn lost(&self, why: &StoreFailure) {
        let mut state = locked(&self.state);
        let is_news = state.lost.replace(why.clone()).is_none();
        state.call();
        drop(state);
        if is_news {
            let hint = why.hint.as_deref().unwrap_or_default();
            told!(Error, "store-lost", "dcd: {}\n  hint: {hint}", why.problem);
        }
    }

    /// The server of the store has something to say, or nothing any more.
    pub(crate) fn news(&self, name: &str, news: StoreNews) {
        let now = match news {
            // What had it open has died, and the next one will find out.
            StoreNews::Unknown => return,
            StoreNews::Well => None,
            StoreNews::Trouble(trouble) => Some(trouble),
        };
        let kind = |of: &Option<StoreTrouble>| of.as_ref().map(|trouble| trouble.kind);
        let before = std::mem::replace(&mut locked(&self.state).trouble, now.clone());
        if kind(&before) == kind(&now) {
            return;
        }
        match now {
            Some(trouble) => {
                let (problem, hint) = (&trouble.problem, trouble.kind.hint());
                told!(Warning, "store-trouble", "dcd: {problem}\n  hint: {hint}");
            }
            None => {
                told!(Notice, "store-well", "dcd: {name}: the store takes what it is given again");
            }
        }
    }

    /// All that is told of the store.
    pub(crate) fn report(&self) -> StoreReport {
        let is_alive = self.is_alive();
        let state = locked(&self.state);
        let seconds = self.length.as_secs();
        StoreReport::of(state.lost.as_ref(), state.trouble.as_ref(), seconds, is_alive)
    }

    fn not_renewed(&self, name: &str, why: &StoreFailure) {
        let mut state = locked(&self.state);
        let is_news = now() >= state.until && state.problem.is_none();
        if is_news {
            state.problem = Some(format!("the lease has run out: {}", why.problem));
        }
        state.call();
        drop(state);
        if is_news {
            told!(
                Warning,
                "lease-over",
                "dcd: {name}: the lease has run out: {}. Another machine may take the store over; with --ack remote flushes \
                 wait until it is renewed",
                why.problem
            );
        }
    }

    /// Whether nobody else has the store for certain, as far as clocks tell.
    pub(crate) fn is_alive(&self) -> bool {
        let state = locked(&self.state);
        state.lost.is_none() && now() < state.until
    }

    /// Whether it is gone for good.
    pub(crate) fn is_lost(&self) -> bool {
        locked(&self.state).lost.is_some()
    }

    /// What people should know of it.
    pub(crate) fn problem(&self) -> Option<String> {
        let state = locked(&self.state);
        state.lost.as_ref().map(|why| why.problem.clone()).or_else(|| state.problem.clone())
    }

    /// From now on this is called when there may be news.
    pub(crate) fn set_on_news(&self, on_news: impl Fn() + Send + 'static) {
        locked(&self.state).on_news = Some(Box::new(on_news));
    }

    /// The cache-disk has a superblock of this generation, durably: the store is to know with the
    /// next renewal or window.
    pub(crate) fn note_generation(&self, generation: u64) {
        self.generation.fetch_max(generation, Ordering::Relaxed);
    }

    /// The newest of these.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// It is renewed no more.
    pub(crate) fn end(&self) {
        *locked(&self.end) = None;
    }
}

#[cfg(test)]
mod tests {
    use dcd_protocol::store::{
        LEASE_SECONDS, LEASE_SECONDS_MAX, LEASE_SECONDS_MIN, StoreTroubleKind,
    };

    use super::*;

    #[test]
    fn it_ends_here_before_it_ends_for_others() {
        let length = Duration::from_secs(LEASE_SECONDS);
        for seconds in [LEASE_SECONDS_MIN, LEASE_SECONDS, LEASE_SECONDS_MAX] {
            let length = Duration::from_secs(seconds);
            assert!(end_of(Duration::ZERO, length) < length);
            // One is not answered, and the next one is.
            let next = length / RENEWALS * 2 + RETRY_AFTER;
            assert!(next < end_of(Duration::ZERO, length));
        }
        // What was asked for long ago and was answered late is not worth more for that.
        let since = now();
        let long_ago = since.saturating_sub(Duration::from_secs(LEASE_SECONDS));
        let lease = Lease::begin(length, long_ago, "s3://b/p".into(), || Ok(())).unwrap();
        assert!(!lease.is_alive() || since < Duration::from_secs(LEASE_SECONDS));
        lease.renewed(since, "s3://b/p");
        assert!(lease.is_alive());
        lease.renewed(long_ago, "s3://b/p");
        assert!(lease.is_alive(), "an older answer takes nothing away");
        let why = StoreFailure {
            problem: "another one".into(),
            hint: None,
            is_silence: false,
            is_lost: true,
        };
        lease.lost(&why);
        lease.renewed(now(), "s3://b/p");
        assert!(!lease.is_alive() && lease.is_lost(), "lost is lost");
        assert_eq!(lease.problem().as_deref(), Some("another one"));
        lease.end();
    }

    #[test]
    fn what_the_server_says_lasts_until_something_else_is_known() {
        let length = Duration::from_secs(LEASE_SECONDS);
        let lease = Lease::begin(length, now(), "s3://b/p".into(), || Ok(())).unwrap();
        assert_eq!((lease.report().state.as_str(), lease.report().lease_seconds), ("ready", 30));
        let trouble = StoreTrouble { kind: StoreTroubleKind::Full, problem: "no room".into() };
        lease.news("s3://b/p", StoreNews::Trouble(trouble));
        // What had the store open has died for that, and another one has begun.
        lease.news("s3://b/p", StoreNews::Unknown);
        let report = lease.report();
        assert_eq!((report.state.as_str(), report.problem.as_deref()), ("full", Some("no room")));
        assert!(!report.is_lost() && report.hint.is_some());
        lease.news("s3://b/p", StoreNews::Well);
        assert_eq!(lease.report().problem, None);
    }
}
