//! Made-up requests from a seed, as a stream: [`WorkloadSpec`] says what they should be like, a
//! [`Workload`] is the requests, in memory that does not grow with their number.
//!
//! ```text
//! keys.rs      what can be said of each workload
//! spec.rs      NAME,KEY=VALUE,... -> WorkloadSpec
//! arrivals.rs  when requests come
//! pattern.rs   what they are and where: uniform, Zipf, hot and cold, sequential
//! users.rs     users that unpack, copy and remove trees of files
//! snake.rs     a server of 1992, fitted to what Haining 2000 tells of it
//! ```
//!
//! The same specification gives the same requests. `docs/workloads.md` describes them.

mod arrivals;
pub mod keys;
mod pattern;
mod snake;
#[cfg(test)]
mod snake_tests;
mod spec;
#[cfg(test)]
mod tests;
mod users;
mod zipf;

pub use keys::{Key, Kind, Value};
pub use spec::{UnitParsers, WorkloadError, WorkloadKind, WorkloadSpec};

use arrivals::Arrivals;
use pattern::{Access, Pattern};

use crate::random::Random;
use crate::trace::Request;

/// A stream of requests in order of time, numbered from 1 in [`Request::line`].
pub struct Workload {
    source: Box<dyn Iterator<Item = Request>>,
    requests_max: u64,
    duration_ns: u64,
    given: u64,
}

impl Iterator for Workload {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        if self.given == self.requests_max {
            return None;
        }
        let request = self.source.next().filter(|request| request.time_ns <= self.duration_ns);
        let Some(request) = request else {
            // Times do not go back: nothing comes after the first that is too late.
            self.given = self.requests_max;
            return None;
        };
        self.given += 1;
        Some(Request { line: self.given, ..request })
    }
}

/// Requests of a pattern at times that do not depend on it.
struct Timed<P> {
    arrivals: Arrivals,
    pattern: P,
    random: Random,
    /// When the next one comes: the first at once.
    time_ns: u64,
}

impl<P: Pattern> Iterator for Timed<P> {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let access = self.pattern.next(&mut self.random);
        let request = request(self.time_ns, access);
        self.time_ns = self.time_ns.saturating_add(self.arrivals.gap_ns(&mut self.random));
        Some(request)
    }
}

fn request(time_ns: u64, access: Access) -> Request {
    let Access { operation, offset_bytes, size_bytes, flags } = access;
    Request {
        time_ns,
        operation,
        device: 0,
        offset_bytes,
        size_bytes,
        flags,
        latency_ns: None,
        line: 0,
        column: 1,
    }
}
