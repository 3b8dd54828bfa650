//! Mean response times of a disk behind a write cache that waits for an idle disk before it is
//! cleaned (Haining 2000, section 5.2, equations 5.1 to 5.4, after Carson and Setia).
//!
//! ```text
//! |<----------------------------- t_cycle = 1 / (p_clean lambda_W) ----------------------------->|
//! |  t_detect   |  t_r   |       t_w      | t_1 | t_2 |..|                                        |
//! |   idle?     | reads  |  cleaning      | reads that waited, |        M/G/1: reads only          |
//! |             | waiting|  writes        | and those after them                                    |
//! |             |<------ t_0 ------------>|
//! |             |<---------------- t_active --------------->|
//! ```
//!
//! Assumptions: reads and writes come independently, at random (Poisson); reads are served in their
//! order, and cleaning writes take as long as reads; a cleaning is over before the next begins;
//! writes take no time unless they stall, which they do during t_detect and t_r; all of them find
//! room in t_w. All times are in seconds, rates in requests per second.
//!
//! Tests compare with simulated events (`idle_tests.rs`), with M/M/1, and with what the thesis says
//! of Figure 5.7.

use super::{AnalysisError, check};

/// Writes that clean the cache, at most.
const CLEANING_WRITES_MAX: f64 = 1e9;

/// Service times of the disk by their moments, which are those of some distribution: E\[s^2\] >=
/// E\[s\]^2, and E\[s\] E\[s^3\] >= E\[s^2\]^2 (Cauchy and Schwarz).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ServiceTime {
    mean: f64,
    second: f64,
    third: f64,
}

/// When the disk is found idle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detection {
    /// After a window without reads; windows of t_idle follow one another. The thesis computes with
    /// this.
    Windows,
    /// When no read has come for t_idle. The thesis describes and simulates this; it is found
    /// sooner.
    Gap,
}

/// Disk, load and cache.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct IdleParameters {
    /// Of reads and of cleaning writes alike.
    pub service: ServiceTime,
    /// lambda_r: reads that reach the disk, (1 - h_r) lambda_R.
    pub reads_per_second: f64,
    /// lambda_W: writes that reach the cache.
    pub writes_per_second: f64,
    /// Probability that a write starts a cleaning (`cleaning`).
    pub p_clean: f64,
    /// n_high - n_low: writes to the disk in each cleaning.
    pub cleaning_writes: f64,
    /// t_idle.
    pub idle_seconds: f64,
    /// How it is measured.
    pub detection: Detection,
}

/// Mean and variance of an interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Interval {
    /// In seconds.
    pub mean: f64,
    /// In seconds squared.
    pub variance: f64,
}

/// The parts of a cleaning cycle and the response times.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CleaningCycle {
    /// From one cleaning to the next.
    pub cycle_seconds: f64,
    /// Until the disk is found idle.
    pub detect: Interval,
    /// t_r: until the reads that wait then are served.
    pub drain: Interval,
    /// t_w: the writes.
    pub clean: Interval,
    /// t_active: from the end of the detection until no read waits that came since.
    pub active_seconds: f64,
    /// R_read, equation 5.3, corrected.
    pub read_response_seconds: f64,
    /// R_read as equation 5.3 is printed (of the corrected parts), for comparison.
    pub read_response_printed_seconds: f64,
    /// R_write, equation 5.4, corrected.
    pub write_response_seconds: f64,
}

impl ServiceTime {
    /// Of E\[s\] in seconds, E\[s^2\] in s^2 and E\[s^3\] in s^3.
    ///
    /// Table 5.1's are refused: 15 ms, 0.0012 s^2 and 0.000006 s^3 are of no distribution. 0.0012
    /// s^2 is the second moment of a mean of 30 ms with a squared coefficient of variation of 1/3;
    /// that of 15 ms and 8 ms is 0.000289 s^2, and the third of a symmetric distribution 0.0000063
    /// s^3, which the table has.
    pub fn new(mean: f64, second: f64, third: f64) -> Result<ServiceTime, AnalysisError> {
        check("mean service time", "1e-12 to 1e6 s", mean, |mean| (1e-12..=1e6).contains(&mean))?;
        // Constant service times are allowed, and squares are rounded.
        let at_least = |bound: f64| move |found: f64| found >= bound * (1.0 - 1e-12);
        check("second moment", "at least the mean squared", second, at_least(mean * mean))?;
        let bound = second * second / mean;
        check("third moment", "at least E[s^2]^2 / E[s]", third, at_least(bound))?;
        check("third moment", "at most 1e30 s^3", third, |third| third <= 1e30)?;
        Ok(ServiceTime { mean, second, third })
    }

    /// Of a mean and a standard deviation in seconds, of a distribution symmetric about its mean.
    pub fn symmetric(mean: f64, deviation: f64) -> Result<ServiceTime, AnalysisError> {
        check("standard deviation", "0 or more", deviation, |deviation| deviation >= 0.0)?;
        let variance = deviation * deviation;
        let third = mean * mean * mean + 3.0 * mean * variance;
        ServiceTime::new(mean, mean * mean + variance, third)
    }

    /// The variance, in s^2.
    pub fn variance(&self) -> f64 {
        (self.second - self.mean * self.mean).max(0.0)
    }
}

impl Interval {
    const NONE: Interval = Interval { mean: 0.0, variance: 0.0 };

    /// One after the other, independent.
    fn then(self, next: Interval) -> Interval {
        Interval { mean: self.mean + next.mean, variance: self.variance + next.variance }
    }

    /// How long it still takes on average for what comes at a random moment in it: E\[t^2\] / (2
    /// E\[t\]).
    fn residual(self) -> f64 {
        if self.mean > 0.0 { self.mean / 2.0 + self.variance / (2.0 * self.mean) } else { 0.0 }
    }
}

impl IdleParameters {
    /// Computes the cycle. What does not fit into it is an error.
    pub fn cycle(&self) -> Result<CleaningCycle, AnalysisError> {
        self.check()?;
        let ServiceTime { mean: service, second, .. } = self.service;
        let rate = self.reads_per_second;
        let utilization = rate * service;
        if utilization >= 1.0 {
            return Err(AnalysisError::Overload { utilization });
        }
        let cycle_seconds = 1.0 / (self.p_clean * self.writes_per_second);
        check("time from cleaning to cleaning", "at most 1e15 s", cycle_seconds, |seconds| {
            seconds <= 1e15
        })?;
        let queue = queue_wait(self.service, rate);
        let detect = detection(self.detection, rate, self.idle_seconds);
        // The queue at the end of the detection has been emptied since the last read came. "At
        // most": what is left of some queues is more than what is left of their mean.
        let drain = match queue.mean > self.idle_seconds {
            true => Interval { mean: queue.mean - self.idle_seconds, ..queue },
            false => Interval::NONE,
        };
        // Corrected: the number of writes is given, so that only their times vary. Printed is n
        // E[s^2], the variance of a sum of a random (Poisson) number of times.
        let clean = Interval {
            mean: self.cleaning_writes * service,
            variance: self.cleaning_writes * self.service.variance(),
        };
        let away = drain.then(clean);
        let active_seconds = away.mean / (1.0 - utilization);
        let busy_seconds = detect.mean + active_seconds;
        if busy_seconds > cycle_seconds {
            return Err(AnalysisError::CycleTooShort { busy_seconds, cycle_seconds });
        }
        let active = active_seconds / cycle_seconds;
        let idle_response = service + queue.mean;
        // t_active (t_0 / 2 + ...) / t_cycle, as printed, with (5.1) inserted.
        let printed = 0.5 * (away.mean + rate * second + away.variance / active_seconds);
        let stalled = detect.then(drain);
        Ok(CleaningCycle {
            cycle_seconds,
            detect,
            drain,
            clean,
            active_seconds,
            read_response_seconds: idle_response + active * away.residual(),
            read_response_printed_seconds: active * printed + (1.0 - active) * idle_response,
            write_response_seconds: stalled.mean / cycle_seconds * stalled.residual(),
        })
    }

    fn check(&self) -> Result<(), AnalysisError> {
        let rate = |rate: f64| (0.0..=1e9).contains(&rate);
        check("reads per second", "0 to 1e9", self.reads_per_second, rate)?;
        check("writes per second", "above 0, up to 1e9", self.writes_per_second, |w| {
            w > 0.0 && rate(w)
        })?;
        check("p_clean", "above 0, at most 1", self.p_clean, |p| p > 0.0 && p <= 1.0)?;
        check("writes in a cleaning", "1 to 1e9", self.cleaning_writes, |writes| {
            (1.0..=CLEANING_WRITES_MAX).contains(&writes)
        })?;
        check("idle time", "0 to 1e9 s", self.idle_seconds, |idle| (0.0..=1e9).contains(&idle))?;
        Ok(())
    }
}

/// Waiting time of a read in M/G/1 (Pollaczek and Khinchine): W_q, and the variance in equation
/// 5.2.
fn queue_wait(service: ServiceTime, rate: f64) -> Interval {
    let free = 1.0 - rate * service.mean;
    let mean = rate * service.second / (2.0 * free);
    Interval { mean, variance: mean * mean + rate * service.third / (3.0 * free) }
}

/// How long it takes to find the disk idle.
fn detection(detection: Detection, rate: f64, idle_seconds: f64) -> Interval {
    let expected = rate * idle_seconds;
    match detection {
        // Each window is the last with p = e^-(lambda t). The number of windows has mean 1/p and
        // variance (1-p)/p^2. Corrected: the variance has t_idle squared, where t_idle is printed.
        Detection::Windows => Interval {
            mean: idle_seconds * expected.exp(),
            variance: idle_seconds * idle_seconds * expected.exp() * expected.exp_m1(),
        },
        // Without reads, or almost: (e^x - 1) / lambda and (e^2x - 1 - 2x e^x) / lambda^2 would be
        // 0 / 0.
        Detection::Gap if expected < 1e-4 => Interval {
            mean: idle_seconds * (1.0 + expected / 2.0),
            variance: idle_seconds * idle_seconds * expected / 3.0,
        },
        Detection::Gap => Interval {
            mean: expected.exp_m1() / rate,
            variance: ((2.0 * expected).exp_m1() - 2.0 * expected * expected.exp()) / (rate * rate),
        },
    }
}

#[cfg(test)]
#[path = "idle_tests.rs"]
mod tests;
