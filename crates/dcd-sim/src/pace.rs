//! When the requests of a trace come: at their times, or each when the one before is done.

use crate::trace::Request;

/// Longest stretched trace: a century.
const DURATION_NS_MAX: f64 = 100.0 * 366.0 * 86_400.0 * 1e9;

/// When requests come.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pace {
    /// At their recorded times, multiplied.
    Open {
        /// 1 for the recorded times; larger is slower.
        stretch: f64,
    },
    /// Each when the one before is done. Where latencies were recorded, the time from the end of
    /// one to the next is kept; otherwise the time from request to request, if the disk is so fast.
    Closed,
}

/// Tells of each request in turn when it comes.
#[derive(Clone, Debug)]
pub struct Pacer {
    pace: Pace,
    /// Recorded time, recorded latency and submission of the one before.
    previous: Option<(u64, Option<u64>, u64)>,
}

impl Pacer {
    /// At that pace.
    pub fn new(pace: Pace) -> Pacer {
        Pacer { pace, previous: None }
    }

    /// Whether each waits for the one before.
    pub fn is_closed(&self) -> bool {
        self.pace == Pace::Closed
    }

    /// When the next request comes, from the beginning on; `end_ns` is when those before were done.
    /// None: after more than a century.
    pub fn submission_ns(&mut self, request: &Request, end_ns: u64) -> Option<u64> {
        let submitted_ns = match (self.pace, self.previous) {
            (Pace::Open { stretch }, _) => {
                let time_ns = request.time_ns as f64 * stretch;
                if time_ns > DURATION_NS_MAX {
                    return None;
                }
                // Exact where nothing is stretched: 53 bits are 104 days.
                if stretch == 1.0 { request.time_ns } else { time_ns as u64 }
            }
            (Pace::Closed, None) => 0,
            (Pace::Closed, Some((time_ns, latency_ns, submitted_ns))) => {
                let gap_ns = request.time_ns - time_ns;
                match latency_ns {
                    Some(latency_ns) => end_ns + gap_ns.saturating_sub(latency_ns),
                    None => end_ns.max(submitted_ns + gap_ns),
                }
            }
        };
        self.previous = Some((request.time_ns, request.latency_ns, submitted_ns));
        Some(submitted_ns)
    }
}
