//! Ordered shipping: whenever the cache-disk is thrown away, what was kept of the data-disk last is
//! a point of the order of changes.

use dcd_fuzz::report::Report;
use dcd_fuzz::run::replay;
use dcd_fuzz::script::Script;

/// A window was cut between two parts of a large write that was answered since, and shown twice, because
/// it was not kept the first time: no change was lost, and the runs said so.
#[test]
fn a_window_between_two_parts_of_a_write_may_be_shown_again() {
    for seed in [61_000_022, 61_000_395] {
        let ended = replay(&Script::ordered(seed), false);
        assert!(ended.is_ok(), "seed {seed}: {:?}", ended.err().map(|failure| failure.violation));
    }
}

/// `DCD_ORDERED_RUNS` and `DCD_ORDERED_SEED` say which other ones.
#[test]
fn the_end_of_each_window_is_a_point_of_the_order() {
    let number = |name: &str, otherwise: u64| {
        std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
    };
    let (runs, seed) = (number("DCD_ORDERED_RUNS", 150), number("DCD_ORDERED_SEED", 0));
    let mut report = Report::default();
    let mut failures = Vec::new();
    for seed in seed..seed + runs {
        match replay(&Script::ordered(seed), std::env::var("DCD_ORDERED_TRACE").is_ok()) {
            Ok(done) => report.add(&done),
            Err(failure) => failures.push((seed, failure.step, failure.violation)),
        }
        if failures.len() >= 8 {
            break;
        }
    }
    println!("{} crash points, {} windows", report.crash_points, report.windows);
    assert!(failures.is_empty(), "{failures:#?}");
    assert!(runs < 100 || report.windows > 3 * runs, "{} windows", report.windows);
}
