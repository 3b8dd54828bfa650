//! How well a model does: its service times against those that were measured.
//!
//! The requests are replayed one at a time, each so long after the one before as it was. The
//! *demerit figure* (Ruemmler and Wilkes 1994) is the root mean square of the horizontal distance
//! between the two distribution curves: both sets of times are sorted, and the n-th of one is
//! compared with the n-th of the other.

use dcd_engine::{Duration, Time};

use crate::disk::model::{DiskModel, DiskRequest, DiskRequestError};
use crate::trace::measured::MeasuredRequest;

/// Service times of a model and of a drive.
#[derive(Clone, Debug, Default)]
pub struct Validation {
    modelled_ns: Vec<u64>,
    measured_ns: Vec<u64>,
    now_ns: u64,
}

/// The outcome.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Demerit {
    /// How many requests.
    pub requests: u64,
    /// Mean service time of the model.
    pub mean_ms: f64,
    /// Mean service time of the drive.
    pub measured_mean_ms: f64,
    /// Root mean square of the distance between the curves.
    pub demerit_ms: f64,
}

impl Demerit {
    /// Of the drive's mean.
    pub fn percent(&self) -> f64 {
        100.0 * self.demerit_ms / self.measured_mean_ms
    }
}

impl Validation {
    /// Lets `model` serve a request, and notes both times. That of the model is returned.
    ///
    /// # Errors
    /// When the disk has no such place.
    pub fn replay(
        &mut self,
        model: &mut DiskModel,
        request: &MeasuredRequest,
    ) -> Result<Duration, DiskRequestError> {
        let start = Time(self.now_ns + request.think_ns);
        let done = model.serve(
            start,
            DiskRequest {
                id: request.line,
                operation: request.operation,
                offset_bytes: request.offset_bytes,
                size_bytes: request.size_bytes,
            },
        )?;
        self.now_ns = done.completed.0;
        let modelled = done.completed.since(start);
        self.note(modelled, request);
        Ok(modelled)
    }

    /// Notes what a model has taken for a request.
    pub fn note(&mut self, modelled: Duration, request: &MeasuredRequest) {
        self.modelled_ns.push(modelled.0);
        self.measured_ns.push(request.service_ns);
    }

    /// One of nothing yet, that goes on at the same time.
    pub fn go_on(&self) -> Validation {
        Validation { now_ns: self.now_ns, ..Validation::default() }
    }

    /// Service times of the model and of the drive so far, each from the shortest to the longest.
    pub fn sorted_ms(&self) -> [Vec<f64>; 2] {
        [&self.modelled_ns, &self.measured_ns].map(|times| {
            let mut times = times.clone();
            times.sort_unstable();
            times.into_iter().map(|ns| ns as f64 / 1e6).collect()
        })
    }

    /// What has come out; none of no requests.
    pub fn demerit(mut self) -> Option<Demerit> {
        let requests = self.modelled_ns.len();
        if requests == 0 {
            return None;
        }
        let mean_ms =
            |times: &[u64]| times.iter().map(|ns| *ns as f64).sum::<f64>() / 1e6 / requests as f64;
        let (mean, measured_mean) = (mean_ms(&self.modelled_ns), mean_ms(&self.measured_ns));
        self.modelled_ns.sort_unstable();
        self.measured_ns.sort_unstable();
        let squares: f64 = self
            .modelled_ns
            .iter()
            .zip(&self.measured_ns)
            .map(|(modelled, measured)| (*modelled as f64 - *measured as f64).powi(2))
            .sum();
        Some(Demerit {
            requests: requests as u64,
            mean_ms: mean,
            measured_mean_ms: measured_mean,
            demerit_ms: (squares / requests as f64).sqrt() / 1e6,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demerit_compares_sorted_times() {
        let validation = Validation {
            modelled_ns: vec![5_000_000, 1_000_000, 3_000_000],
            measured_ns: vec![2_000_000, 5_000_000, 5_000_000],
            now_ns: 0,
        };
        // 1 against 2, 3 against 5, 5 against 5.
        let demerit = validation.demerit().unwrap();
        assert_eq!(demerit.requests, 3);
        assert!((demerit.mean_ms - 3.0).abs() < 1e-9);
        assert!((demerit.measured_mean_ms - 4.0).abs() < 1e-9);
        assert!((demerit.demerit_ms - (5.0f64 / 3.0).sqrt()).abs() < 1e-9);
        assert!(Validation::default().demerit().is_none());
    }
}
