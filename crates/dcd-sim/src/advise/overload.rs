//! Whether a disk keeps up with the times of a trace. A trace of a faster disk makes queues on a
//! slower one that no program would ever have made, because programs wait for their requests: their
//! lengths say nothing of either disk.

use serde::Serialize;

use crate::replay::{ReplayError, ReplayFacts, WAITING_MAX};

/// Of the duration of the trace: what the last request may come later.
const LATE_SHARE: f64 = 0.05;
const LATE_SECONDS: f64 = 1.0;
/// Requests that wait at once: as many as the queue of a block device holds on Linux, eight times
/// over.
const WAITING_AT_ONCE: u64 = 1024;

/// How a disk fails to keep up.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Overload {
    /// The simulation was given up.
    GivenUp,
    /// It is done long after the trace.
    Late {
        /// After the last request came.
        seconds: f64,
        /// What it was given.
        trace_s: f64,
    },
    /// Too many requests wait at once.
    Queue {
        /// So many.
        requests: u64,
    },
}

impl Overload {
    /// Of what came of the bare disk when the requests came within that time.
    pub fn of(facts: &ReplayFacts, trace_s: f64) -> Option<Overload> {
        let seconds = facts.duration_s - trace_s;
        if seconds > LATE_SECONDS.max(trace_s * LATE_SHARE) {
            return Some(Overload::Late { seconds, trace_s });
        }
        let requests = facts.outstanding_max;
        (requests > WAITING_AT_ONCE).then_some(Overload::Queue { requests })
    }

    /// Whether the replay was refused for this.
    pub fn of_error(error: &ReplayError) -> Option<Overload> {
        matches!(error, ReplayError::Overload).then_some(Overload::GivenUp)
    }

    /// For people, after "the disk ...".
    pub fn in_words(&self) -> String {
        use super::words::{count, duration};
        match self {
            Overload::GivenUp => {
                format!("would have {} waiting", count(WAITING_MAX as u64, "request"))
            }
            Overload::Late { seconds, trace_s } => format!(
                "would be done {} after the end of a trace of {}",
                duration(*seconds),
                duration(*trace_s)
            ),
            Overload::Queue { requests } => {
                format!("would have {} waiting at once", count(*requests, "request"))
            }
        }
    }
}
