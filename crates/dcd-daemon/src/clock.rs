//! The monotonic clock in the words of the engine.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use dcd_engine::Time;

/// Counts nanoseconds from the moment it was made.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Source);

#[derive(Clone, Copy, Debug)]
enum Source {
    SinceThen(Instant),
    Simulated(&'static AtomicU64),
}

impl Clock {
    /// A clock that begins now.
    pub fn start() -> Clock {
        Clock(Source::SinceThen(Instant::now()))
    }

    /// A clock that somebody else moves, in nanoseconds; never back.
    pub fn simulated(time: &'static AtomicU64) -> Clock {
        Clock(Source::Simulated(time))
    }

    /// The time. Never goes back.
    pub fn now(&self) -> Time {
        Time(match self.0 {
            Source::SinceThen(origin) => {
                u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
            }
            Source::Simulated(time) => time.load(Ordering::Relaxed),
        })
    }
}
