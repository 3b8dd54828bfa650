//! A data-disk in an object store, with and without an engine before it: `dcd fuzz --store`.
//!
//! Runs by turns: of the disk in the store alone, under a load of its own (`dcd_store::model::run`),
//! and of the engine with its cache-disk, which ships windows into the store ([`whole`]). Both have
//! the real code of the store, on a server that answers late, twice, wrongly or not at all.

mod machine;
mod whole;

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::session::Limit;

pub use dcd_store::model::{Report, STACK_BYTES};

/// The run of this seed, on a thread with [`STACK_BYTES`].
///
/// # Errors
/// What was seen that must not be.
pub fn run(seed: u64) -> Result<Report, String> {
    match seed % 2 {
        0 => dcd_store::model::run(seed / 2),
        _ => whole::run(seed / 2),
    }
}

/// Runs that failed after which a search stops.
const FAILURES_MAX: usize = 10;

/// What came of many runs.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What was done, those that failed left out.
    pub report: Report,
    /// Seeds, and what was seen.
    pub violations: Vec<(u64, String)>,
    /// How long it took.
    pub elapsed: Duration,
}

/// Runs seeds from `seed` on, on so many threads. `progress` is told, now and then, how many runs
/// have ended; with [`ControlFlow::Break`] it stops.
///
/// # Panics
/// If the system has no threads.
pub fn search(
    seed: u64,
    limit: Limit,
    jobs: usize,
    mut progress: impl FnMut(u64, Duration) -> ControlFlow<()>,
) -> Outcome {
    let began = Instant::now();
    let next = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let shared = Mutex::new(Outcome::default());
    let lock = || shared.lock().unwrap_or_else(PoisonError::into_inner);
    let worker = || {
        while !is_over.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let is_late = match limit {
                Limit::Runs(runs) => index >= runs,
                Limit::Time(time) => began.elapsed() >= time,
            };
            if is_late {
                return;
            }
            let seed = seed.wrapping_add(index);
            let done = run(seed);
            let mut outcome = lock();
            match done {
                Ok(report) => outcome.report.add(&report),
                Err(violation) => outcome.violations.push((seed, violation)),
            }
            if outcome.violations.len() >= FAILURES_MAX {
                is_over.store(true, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        let thread = || std::thread::Builder::new().stack_size(STACK_BYTES);
        let spawned = |_| thread().spawn_scoped(scope, worker).expect("a thread");
        let threads: Vec<_> = (0..jobs.max(1)).map(spawned).collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(20));
            let done = {
                let outcome = lock();
                outcome.report.runs + outcome.violations.len() as u64
            };
            if progress(done, began.elapsed()).is_break() {
                is_over.store(true, Ordering::Relaxed);
            }
        }
    });
    let mut outcome = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcome.violations.sort_unstable();
    outcome.elapsed = began.elapsed();
    outcome
}
