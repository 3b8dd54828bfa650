//! The analytical models of a non-volatile write cache in Haining's dissertation (2000), chapters 3
//! to 5: closed formulas, to check simulations with and to be checked by them.
//!
//! `lru_fcfs` (equations 3.1 to 3.4) and `hot_cold` (3.5, 3.6, 4.1): which blocks a cache holds.
//! `seek` (3.7 to 3.10): the way to the nearest of several requests. `cleaning` (section 5.1): how
//! often a write starts the cleaning of the cache. `idle` (5.1 to 5.4): response times when it
//! waits for an idle disk. `figures`: curves.
//!
//! Several equations are printed with mistakes. Each function says what was corrected;
//! `docs/analysis.md` has all of them and how each model was checked.

pub mod cleaning;
pub mod figures;
pub mod hot_cold;
pub mod idle;
pub mod lru_fcfs;
pub mod seek;

/// Why a model cannot be computed.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum AnalysisError {
    /// A number that the model does not allow.
    #[error("{what}: expected {expected}, found {found}")]
    OutOfRange {
        /// The parameter.
        what: &'static str,
        /// What it may be.
        expected: &'static str,
        /// What it is.
        found: f64,
    },
    /// Too much to compute.
    #[error("{what}: expected at most {max}, found {found}")]
    TooLarge {
        /// The parameter.
        what: &'static str,
        /// As large as it may be.
        max: u64,
        /// As large as it is.
        found: u64,
    },
    /// Reads come faster than the disk serves them.
    #[error("the disk is {utilization:.2} busy with reads alone: expected below 1")]
    Overload {
        /// Arrival rate times mean service time.
        utilization: f64,
    },
    /// A cleaning is not over when the next begins.
    #[error("a cleaning takes {busy_seconds:.3} s, but one begins every {cycle_seconds:.3} s")]
    CycleTooShort {
        /// Detection, cleaning and the reads that waited.
        busy_seconds: f64,
        /// From one cleaning to the next.
        cycle_seconds: f64,
    },
}

impl AnalysisError {
    /// The next step.
    pub fn hint(&self) -> &'static str {
        match self {
            AnalysisError::OutOfRange { .. } => "the documentation of the function has the units",
            AnalysisError::TooLarge { .. } => "simulate what is too large to compute",
            AnalysisError::Overload { .. } => "use a faster disk or fewer reads",
            AnalysisError::CycleTooShort { .. } => {
                "use a shorter idle time, fewer writes or a larger cache"
            }
        }
    }
}

/// `found`, if it is a number that is `allowed`.
fn check(
    what: &'static str,
    expected: &'static str,
    found: f64,
    allowed: impl Fn(f64) -> bool,
) -> Result<f64, AnalysisError> {
    if found.is_finite() && allowed(found) {
        return Ok(found);
    }
    Err(AnalysisError::OutOfRange { what, expected, found })
}

/// `found`, if it is at most `max`.
fn check_size(what: &'static str, max: u64, found: u64) -> Result<u64, AnalysisError> {
    if found <= max { Ok(found) } else { Err(AnalysisError::TooLarge { what, max, found }) }
}

#[cfg(test)]
mod random {
    /// SplitMix64, for the simulations that the models are compared with.
    pub struct Random(pub u64);

    impl Random {
        /// Uniform, above 0, at most 1.
        pub fn unit(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^= z >> 31;
            ((z >> 11) + 1) as f64 / (1u64 << 53) as f64
        }

        /// Below `count`.
        pub fn below(&mut self, count: usize) -> usize {
            ((self.unit() * count as f64).ceil() as usize).clamp(1, count) - 1
        }

        /// Exponentially distributed.
        pub fn exponential(&mut self, mean: f64) -> f64 {
            -self.unit().ln() * mean
        }
    }
}
