//! A data-disk in an object store, alone and below the engine. `DCD_STORE_RUNS` runs more, from
//! `DCD_STORE_SEED` on, on `DCD_STORE_JOBS` threads.

use std::ops::ControlFlow;
use std::time::Duration;

use dcd_fuzz::session::Limit;
use dcd_fuzz::store::{STACK_BYTES, run, search};

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

#[test]
fn a_store_below_an_engine_is_always_the_end_of_a_window() {
    let (runs, seed) = (number("DCD_STORE_RUNS", 10), number("DCD_STORE_SEED", 0));
    let jobs = number("DCD_STORE_JOBS", 2) as usize;
    let mut told = Duration::ZERO;
    let outcome = search(seed, Limit::Runs(runs), jobs, |done, elapsed| {
        if elapsed > told + Duration::from_secs(60) {
            told = elapsed;
            println!("{done} of {runs} runs");
        }
        ControlFlow::Continue(())
    });
    println!("{outcome:?}");
    assert!(outcome.violations.is_empty(), "{:#?}", outcome.violations);
    let report = outcome.report;
    assert!(report.crash_points > 50 * runs && report.deaths > runs, "{report:?}");
    assert!(report.remote_flushes > 0 && report.windows > runs, "{report:?}");
}

/// The same seed is the same run.
#[test]
fn runs_are_repeated() {
    for seed in 2..4 {
        let once = || {
            std::thread::scope(|scope| {
                let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
                thread.spawn_scoped(scope, || run(seed)).expect("a thread").join()
            })
        };
        let [one, two] = [once(), once()].map(|done| done.expect("it does not panic"));
        assert_eq!(one, two);
        assert!(one.is_ok(), "{one:?}");
    }
}
