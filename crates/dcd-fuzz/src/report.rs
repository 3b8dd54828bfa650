//! What was done: counts, and where the time of a round went.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::faults::FaultKind;
use crate::model::Notes;

/// Where time went.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// Running the load.
    pub run: Duration,
    /// Copying disks and deciding what survives.
    pub crash: Duration,
    /// From open to running, crashes in between included.
    pub recover: Duration,
    /// Reading back, and comparing with the model.
    pub check: Duration,
}

/// What one or several runs did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Runs.
    pub runs: u64,
    /// Requests answered.
    pub requests: u64,
    /// Crashes, each recovered from and checked; those during recovery included.
    pub crash_points: u64,
    /// Of them, those during recovery.
    pub nested: u64,
    /// Faults that struck, by kind.
    pub faults: BTreeMap<FaultKind, u64>,
    /// Times that the cache-disk went away while clean, and requests went on without it.
    pub times_uncached: u64,
    /// Starts that were refused, where that is allowed.
    pub refused: u64,
    /// Blocks that failed to read, where that is allowed.
    pub errors: u64,
    /// Blocks that showed what the contract openly does not cover.
    pub uncovered: u64,
    /// Where the time went.
    pub times: Times,
}

impl Report {
    /// Adds what a check noted.
    pub fn note(&mut self, notes: Notes) {
        self.errors += notes.errors;
        self.uncovered += notes.uncovered;
    }

    /// Counts a fault.
    pub fn fault(&mut self, kind: FaultKind) {
        *self.faults.entry(kind).or_default() += 1;
    }

    /// Adds another report.
    pub fn add(&mut self, other: &Report) {
        self.runs += other.runs;
        self.requests += other.requests;
        self.crash_points += other.crash_points;
        self.nested += other.nested;
        for (kind, count) in &other.faults {
            *self.faults.entry(*kind).or_default() += count;
        }
        self.times_uncached += other.times_uncached;
        self.refused += other.refused;
        self.errors += other.errors;
        self.uncovered += other.uncovered;
        self.times.run += other.times.run;
        self.times.crash += other.times.crash;
        self.times.recover += other.times.recover;
        self.times.check += other.times.check;
    }

    /// The same without times: what two runs of one seed must have in common.
    pub fn without_times(&self) -> Report {
        Report { times: Times::default(), ..self.clone() }
    }
}
