//! The searches of `dcd fuzz` that are not random, in their size for every change.

use std::ops::ControlFlow;

use dcd_fuzz::session::{Limit, Session, Work};

fn search(work: Work, runs: u64) -> u64 {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let session = Session { work, seed: 0, limit: Limit::Runs(runs), jobs };
    let outcome = session.run(|_, _| ControlFlow::Continue(()));
    if let Some(failure) = outcome.failures.first() {
        panic!("seed {}: {}\n{:?}", failure.seed, failure.violation, failure.script);
    }
    let report = outcome.report;
    println!("{} runs, {} crash points", report.runs, report.crash_points);
    report.crash_points
}

/// Every sequence of three of the eighteen operations, every I/O a crash point.
#[test]
fn all_sequences_of_three_operations() {
    assert!(search(Work::Exhaustive(3), 1) > 100_000);
}

/// Forty scripts; in each the n-th I/O fails, for every n until none is left.
#[test]
fn every_io_of_forty_scripts_fails_once_and_for_good() {
    assert!(search(Work::Sweep, 40) > 1_000);
}

/// Every pair of kinds of faults.
#[test]
fn every_pair_of_faults() {
    assert!(search(Work::Pairs, 1) > 10_000);
}
