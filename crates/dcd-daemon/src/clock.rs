//! The monotonic clock in the words of the engine.

use std::time::Instant;

use dcd_engine::Time;

/// Counts nanoseconds from the moment it was made.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that begins now.
    pub fn start() -> Clock {
        Clock { origin: Instant::now() }
    }

    /// The time. Never goes back.
    pub fn now(&self) -> Time {
        Time(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
