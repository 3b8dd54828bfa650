//! Many runs on several threads: what `dcd fuzz` does.
//!
//! Work is numbered, and each number is one seed, sequence, sweep or pair, so what is found does
//! not depend on how many threads there are.

use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::faults::FaultKind;
use crate::report::Report;
use crate::run::{Failure, replay};
use crate::script::Script;
use crate::volume::VolumeKind;
use crate::volume::run::VolumeFailure;
use crate::{exhaustive, sweep, volume};

/// Failures after which a session stops: more of the same tell nothing new.
const FAILURES_MAX: usize = 10;

/// What is run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Work {
    /// Random runs, with these kinds of faults.
    Random(Vec<FaultKind>),
    /// Random runs with two kinds of faults each: every pair in turn.
    Pairs,
    /// All sequences of operations up to this depth.
    Exhaustive(u32),
    /// The n-th I/O fails, for every n.
    Sweep,
    /// Random runs with the cache-disk on two legs.
    Legs,
    /// Random runs with ordered shipping.
    Ordered,
    /// Random runs on a volume whose members fail.
    Volume(VolumeKind),
}

/// How long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// So many runs (pairs: seeds for each pair; sweep: scripts).
    Runs(u64),
    /// So long.
    Time(Duration),
}

/// A session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Session {
    /// What is run.
    pub work: Work,
    /// The first seed; the others follow.
    pub seed: u64,
    /// How long. The exhaustive search ends when it has seen everything.
    pub limit: Limit,
    /// Threads.
    pub jobs: usize,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What was done.
    pub report: Report,
    /// What went wrong.
    pub failures: Vec<Failure>,
    /// What went wrong on volumes.
    pub volume_failures: Vec<VolumeFailure>,
    /// How long it took.
    pub elapsed: Duration,
}

/// What a piece of work has found.
enum Found {
    Failure(Box<Failure>),
    OnVolume(Box<VolumeFailure>),
}

impl Outcome {
    /// How many runs went wrong.
    pub fn violations(&self) -> usize {
        self.failures.len() + self.volume_failures.len()
    }

    /// Rounds of crash, recovery and check per second.
    pub fn per_second(&self) -> f64 {
        self.report.crash_points as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// All pairs of kinds, a kind with itself left out.
pub fn pairs() -> Vec<[FaultKind; 2]> {
    let all = FaultKind::ALL;
    let pair = |first: usize| (first + 1..all.len()).map(move |other| [all[first], all[other]]);
    (0..all.len()).flat_map(pair).collect()
}

impl Session {
    /// Pieces of work, if that is known before.
    pub fn total(&self) -> Option<u64> {
        match (&self.work, self.limit) {
            (Work::Exhaustive(depth), _) => Some(exhaustive::sequences(*depth)),
            (_, Limit::Time(_)) => None,
            (Work::Random(_) | Work::Legs | Work::Ordered | Work::Volume(_), Limit::Runs(runs)) => {
                Some(runs)
            }
            (Work::Pairs, Limit::Runs(runs)) => Some(runs * pairs().len() as u64),
            (Work::Sweep, Limit::Runs(runs)) => Some(runs * sweep::RULES),
        }
    }

    fn piece(&self, index: u64) -> Result<Report, Found> {
        let seeded = |seed: u64, script: Script| {
            replay(&script, false)
                .map_err(|failure| Found::Failure(Box::new(Failure { seed, ..*failure })))
        };
        match &self.work {
            Work::Random(faults) => {
                let seed = self.seed.wrapping_add(index);
                match faults.is_empty() {
                    true => seeded(seed, Script::of_seed(seed)),
                    false => seeded(seed, Script::with_faults(seed, faults)),
                }
            }
            Work::Pairs => {
                let pairs = pairs();
                let seed = self.seed.wrapping_add(index / pairs.len() as u64);
                let pair = pairs[(index % pairs.len() as u64) as usize];
                seeded(seed, Script::with_faults(seed, &pair))
            }
            Work::Exhaustive(_) => {
                exhaustive::run_sequence(self.seed, index).map_err(Found::Failure)
            }
            Work::Sweep => {
                let seed = self.seed.wrapping_add(index / sweep::RULES);
                sweep::run_sweep(seed, index % sweep::RULES).map_err(Found::Failure)
            }
            Work::Legs => {
                let seed = self.seed.wrapping_add(index);
                seeded(seed, Script::on_legs(seed))
            }
            Work::Ordered => {
                let seed = self.seed.wrapping_add(index);
                seeded(seed, Script::ordered(seed))
            }
            Work::Volume(kind) => {
                let seed = self.seed.wrapping_add(index);
                volume::run::run(*kind, seed, false).map_err(Found::OnVolume)
            }
        }
    }

    /// Runs it. `progress` is told, now and then, how many pieces are done and what was found; with
    /// [`ControlFlow::Break`] it stops, when the pieces under way are done.
    pub fn run(&self, mut progress: impl FnMut(u64, &Outcome) -> ControlFlow<()>) -> Outcome {
        // A machine whose checksums are wrong proves nothing.
        assert!(dcd_engine::format::checksum::self_test());
        let started = Instant::now();
        let total = self.total();
        let next = AtomicU64::new(0);
        let done = AtomicU64::new(0);
        let is_over = AtomicBool::new(false);
        let shared = Mutex::new(Outcome::default());
        let lock = || shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let worker = || {
            while !is_over.load(Ordering::Relaxed) {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let is_late = match (self.limit, total) {
                    (_, Some(total)) => index >= total,
                    (Limit::Time(time), None) => started.elapsed() >= time,
                    (Limit::Runs(_), None) => true,
                };
                if is_late {
                    return;
                }
                let result = self.piece(index);
                let mut outcome = lock();
                match result {
                    Ok(report) => outcome.report.add(&report),
                    Err(Found::Failure(failure)) => outcome.failures.push(*failure),
                    Err(Found::OnVolume(failure)) => outcome.volume_failures.push(*failure),
                }
                if outcome.violations() >= FAILURES_MAX {
                    is_over.store(true, Ordering::Relaxed);
                }
                done.fetch_add(1, Ordering::Relaxed);
            }
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.jobs.max(1)).map(|_| scope.spawn(worker)).collect();
            while threads.iter().any(|thread| !thread.is_finished()) {
                std::thread::sleep(Duration::from_millis(20));
                let mut outcome = lock();
                outcome.elapsed = started.elapsed();
                if progress(done.load(Ordering::Relaxed), &outcome).is_break() {
                    is_over.store(true, Ordering::Relaxed);
                }
            }
        });
        let mut outcome = shared.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        outcome.elapsed = started.elapsed();
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pairs_are_there_once() {
        let kinds = FaultKind::ALL.len();
        assert_eq!(pairs().len(), kinds * (kinds - 1) / 2);
    }

    #[test]
    fn it_stops_when_it_is_told_to() {
        let limit = Limit::Time(Duration::from_secs(600));
        let session = Session { work: Work::Pairs, seed: 7, limit, jobs: 2 };
        let outcome = session.run(|done, _| match done {
            0..3 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        });
        assert!(outcome.report.runs >= 3, "what was done is counted");
    }

    #[test]
    fn the_number_of_threads_changes_nothing() {
        let session =
            |jobs| Session { work: Work::Random(vec![]), seed: 7, limit: Limit::Runs(12), jobs };
        let reports = [1, 3]
            .map(|jobs| session(jobs).run(|_, _| ControlFlow::Continue(())).report.without_times());
        assert_eq!(reports[0], reports[1]);
        assert_eq!(reports[0].runs, 12);
        assert!(reports[0].crash_points > 100);
    }
}
