//! What a load is like, and how much of it there is over time: one pass, in memory that does not
//! grow with it.

use serde::Serialize;

use crate::trace::summary::{Summarizer, TraceSummary};
use crate::trace::{Operation, Request};

/// Steps of time at most; when there are more, two become one.
const STEPS_MAX: usize = 256;
const STEP_NS_MIN: u64 = 100_000_000;
/// A longer silence ends a burst.
const BURST_GAP_NS: u64 = 100_000_000;

/// What a load is like.
#[derive(Clone, Debug, Serialize)]
pub struct LoadFacts {
    /// The file, or the made-up load.
    pub name: String,
    /// Mix, sizes, rates, working set.
    #[serde(flatten)]
    pub summary: TraceSummary,
    /// How much there is of it when.
    pub over_time: OverTime,
}

/// Requests over time.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct OverTime {
    /// How long a step is.
    pub step_s: f64,
    /// Reads per second of each step.
    pub reads_per_second: Vec<f64>,
    /// Writes per second of each step.
    pub writes_per_second: Vec<f64>,
}

/// Takes requests in order of time.
pub struct LoadMeter {
    summarizer: Summarizer,
    step_ns: u64,
    /// Reads and writes of each step.
    steps: Vec<[u64; 2]>,
}

impl Default for LoadMeter {
    fn default() -> LoadMeter {
        let summarizer = Summarizer::new(BURST_GAP_NS);
        LoadMeter { summarizer, step_ns: STEP_NS_MIN, steps: Vec::new() }
    }
}

impl LoadMeter {
    /// Counts a request.
    pub fn add(&mut self, request: &Request) {
        self.summarizer.add(request);
        let direction = match request.operation {
            Operation::Read => 0,
            Operation::Write => 1,
            Operation::Discard | Operation::Flush => return,
        };
        while request.time_ns / self.step_ns >= STEPS_MAX as u64 {
            self.step_ns *= 2;
            let pairs = self.steps.chunks(2);
            let sum = |pair: &[[u64; 2]]| {
                pair.iter().fold([0; 2], |sum, step| [sum[0] + step[0], sum[1] + step[1]])
            };
            self.steps = pairs.map(sum).collect();
        }
        let step = (request.time_ns / self.step_ns) as usize;
        if self.steps.len() <= step {
            self.steps.resize(step + 1, [0; 2]);
        }
        self.steps[step][direction] += 1;
    }

    /// What has come out; none of no requests.
    pub fn finish(self, name: String) -> Option<LoadFacts> {
        let step_s = self.step_ns as f64 / 1e9;
        let rates = |direction: usize| {
            self.steps.iter().map(|step| step[direction] as f64 / step_s).collect()
        };
        let over_time =
            OverTime { step_s, reads_per_second: rates(0), writes_per_second: rates(1) };
        Some(LoadFacts { name, summary: self.summarizer.finish()?, over_time })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Flags;

    #[test]
    fn steps_grow_with_the_time_and_nothing_is_lost() {
        let mut meter = LoadMeter::default();
        for second in 0..1000u64 {
            for operation in [Operation::Read, Operation::Write, Operation::Write] {
                meter.add(&Request {
                    time_ns: second * 1_000_000_000,
                    operation,
                    device: 0,
                    offset_bytes: 0,
                    size_bytes: 4096,
                    flags: Flags::default(),
                    latency_ns: None,
                    line: 1,
                    column: 1,
                });
            }
        }
        let OverTime { step_s, reads_per_second, writes_per_second } =
            meter.finish("x".into()).unwrap().over_time;
        assert_eq!(step_s, 6.4);
        assert!(reads_per_second.len() <= STEPS_MAX && reads_per_second.len() > STEPS_MAX / 2);
        let sum = |rates: &[f64]| (rates.iter().sum::<f64>() * step_s).round();
        assert_eq!((sum(&reads_per_second), sum(&writes_per_second)), (1000.0, 2000.0));
        assert!(LoadMeter::default().finish("x".into()).is_none());
    }
}
