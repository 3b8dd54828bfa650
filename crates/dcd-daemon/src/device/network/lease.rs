//! The lease on an object store: renewed by a thread, known to whoever acknowledges what is to be
//! in the store alone.
//!
//! It counts from the moment when its renewal was asked for, by a clock that goes on while the
//! machine sleeps, and ends a little earlier here than for others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dcd_protocol::store::{LEASE_SECONDS, StoreFailure};
use rustix::time::{ClockId, clock_gettime};

/// So much earlier it is over here, however well this clock goes.
const DRIFT: Duration = Duration::from_secs(2);
/// From one renewal to the next, ...
const RENEW_EVERY: Duration = Duration::from_secs(LEASE_SECONDS / 3);
/// ... and behind one that has failed.
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
    /// Called when one of these may have changed.
    on_news: Option<Box<dyn Fn() + Send>>,
}

/// See the module. Its thread ends when it is given up, or lost.
pub(crate) struct Lease {
    state: Arc<Mutex<State>>,
    end: Mutex<Option<Sender<()>>>,
    /// The newest superblock of the cache-disk that is durable.
    generation: AtomicU64,
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn end_of(asked: Duration) -> Duration {
    asked + Duration::from_secs(LEASE_SECONDS) - DRIFT
}

impl State {
    fn call(&self) {
        if let Some(on_news) = &self.on_news {
            on_news();
        }
    }
}

impl Lease {
    /// One that was asked for at `asked`, and is renewed by `renew` from now on.
    pub(crate) fn begin(
        asked: Duration,
        name: String,
        renew: impl Fn() -> Result<(), StoreFailure> + Send + 'static,
    ) -> std::io::Result<Arc<Lease>> {
        let state = State { until: end_of(asked), lost: None, problem: None, on_news: None };
        let state = Arc::new(Mutex::new(state));
        let (end, ended) = channel::<()>();
        let of = |end| Lease { state: state.clone(), end, generation: AtomicU64::new(0) };
        let (lease, theirs) = (Arc::new(of(Mutex::new(Some(end)))), of(Mutex::default()));
        let thread = std::thread::Builder::new().name("dcd-lease".into());
        thread.spawn(move || {
            let mut pause = RENEW_EVERY;
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let asked = now();
                pause = match renew() {
                    Ok(()) => {
                        theirs.renewed(asked, &name);
                        RENEW_EVERY
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
        state.until = state.until.max(end_of(asked));
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
    use super::*;

    #[test]
    fn it_ends_here_before_it_ends_for_others() {
        assert!(end_of(Duration::ZERO) < Duration::from_secs(LEASE_SECONDS));
        assert!(RENEW_EVERY * 2 < end_of(Duration::ZERO));
        // What was asked for long ago and was answered late is not worth more for that.
        let since = now();
        let long_ago = since.saturating_sub(Duration::from_secs(LEASE_SECONDS));
        let lease = Lease::begin(long_ago, "s3://b/p".into(), || Ok(())).unwrap();
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
}
