//! Ordered shipping: whenever the cache-disk is thrown away, what was kept of the data-disk last is
//! a point of the order of changes.

use dcd_fuzz::report::Report;
use dcd_fuzz::run::replay;
use dcd_fuzz::script::Script;

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
