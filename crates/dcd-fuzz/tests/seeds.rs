//! Random runs with fixed seeds: crashes at random points in all ack modes, against the model.

use dcd_fuzz::report::{CopyUse, Report};
use dcd_fuzz::run::replay;
use dcd_fuzz::script::Script;

/// Settings change at any moment, in half of them.
#[test]
fn settings_may_change_at_any_moment() {
    use dcd_fuzz::script::{CONFIGURED_FROM, Op};
    let seeds = CONFIGURED_FROM..CONFIGURED_FROM + 200;
    let has_changes =
        |seed: &u64| Script::of_seed(*seed).steps.iter().any(|it| it.0 == Op::Configure);
    assert!(seeds.clone().filter(has_changes).count() > 60);
    for seed in seeds {
        dcd_fuzz::run::run(seed).unwrap_or_else(|failure| {
            panic!("seed {seed}, step {}: {}", failure.step, failure.violation)
        });
    }
}

/// So does the mode, and it is often reached.
#[test]
fn the_mode_may_be_switched_at_any_moment() {
    use dcd_fuzz::script::MODES_FROM;
    let mut times_past = 0;
    for seed in MODES_FROM..MODES_FROM + 300 {
        match dcd_fuzz::run::run(seed) {
            Ok(report) => times_past += report.times_past_the_log,
            Err(failure) => panic!("seed {seed}, step {}: {}", failure.step, failure.violation),
        }
    }
    assert!(times_past > 300, "{times_past} times past the log");
}

/// So may the size of the log, up and down, and often does.
#[test]
fn the_log_may_grow_and_shrink_at_any_moment() {
    let (runs, report) = resized(dcd_fuzz::script::RESIZED_FROM);
    let (grown, shrunk) = (report.times_grown, report.times_shrunk);
    assert!(runs < 100 || grown > runs && shrunk > runs / 2, "{grown} {shrunk}");
}

/// And the read area, beside it.
#[test]
fn the_read_area_may_get_another_size_at_any_moment() {
    let (runs, report) = resized(dcd_fuzz::script::READ_AREA_RESIZED[0]);
    let resized = report.times_read_area_resized;
    // Many are refused: what was recorded is in the way, or there is no room.
    assert!(runs < 100 || resized > runs / 4, "{resized}");
}

/// Runs from this seed on, on one disk and on legs. `DCD_RESIZED_RUNS` and `DCD_RESIZED_SEED` say
/// which other ones.
fn resized(from: u64) -> (u64, Report) {
    let number = |name: &str, otherwise: u64| {
        std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
    };
    let (runs, first) = (number("DCD_RESIZED_RUNS", 100), number("DCD_RESIZED_SEED", 0));
    let mut report = Report::default();
    let mut failures = Vec::new();
    for seed in from + first..from + first + runs {
        for script in [Script::of_seed(seed), Script::on_legs(seed)] {
            let is_on_legs = script.options.legs.is_some();
            match replay(&script, std::env::var("DCD_RESIZED_TRACE").is_ok()) {
                Ok(done) => report.add(&done),
                Err(failure) => failures.push((seed, is_on_legs, failure.step, failure.violation)),
            }
        }
    }
    println!(
        "{} crash points; times grown, shrunk, with another read area: {}, {}, {}",
        report.crash_points,
        report.times_grown,
        report.times_shrunk,
        report.times_read_area_resized
    );
    assert!(failures.is_empty(), "{failures:#?}");
    (runs, report)
}

#[test]
fn random_runs_with_crashes_agree_with_the_model() {
    let seeds = std::env::var("DCD_FUZZ_SEEDS").map_or(1_000, |n| n.parse().expect("a number"));
    let (mut crash_points, mut times_uncached) = (0, 0);
    let mut copies = CopyUse::default();
    for seed in 0..seeds {
        match dcd_fuzz::run::run(seed) {
            Ok(report) => {
                crash_points += report.crash_points;
                times_uncached += report.times_uncached;
                copies.add(&report.copies);
            }
            Err(failure) => panic!(
                "seed {}, step {}: {}\noptions: {:?}",
                failure.seed, failure.step, failure.violation, failure.script.options
            ),
        }
    }
    println!("{crash_points} crash points, {times_uncached} times uncached");
    assert!(crash_points > 5 * seeds);
    assert!(times_uncached > seeds / 20);
    // What is said of copies was tried.
    println!("{copies:?}");
    assert!(copies.runs > seeds / 5 && copies.crash_points > 5 * copies.runs);
    let CopyUse { lines_read, lines_read_ahead, damaged, survived, changed, doubted, .. } = copies;
    for count in [lines_read, lines_read_ahead, damaged, survived, changed, doubted] {
        assert!(count > 0, "{copies:?}");
    }
    // Pages are durable before a header that names them is written.
    assert_eq!(copies.pages_lost, 0, "{copies:?}");
}

/// Memory has only a part of the index: whatever is not there is read from the cache-disk, and
/// nothing else changes. `DCD_PAGED_RUNS` and `DCD_PAGED_SEED` say which other ones.
#[test]
fn an_index_within_a_budget_loses_nothing() {
    use dcd_fuzz::script::PAGED_FROM;
    let number = |name: &str, otherwise: u64| {
        std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
    };
    let (runs, first) = (number("DCD_PAGED_RUNS", 60), number("DCD_PAGED_SEED", 0));
    let mut report = Report::default();
    let mut failures = Vec::new();
    for seed in PAGED_FROM + first..PAGED_FROM + first + runs {
        match replay(&Script::of_paged_seed(seed), std::env::var("DCD_PAGED_TRACE").is_ok()) {
            Ok(done) => report.add(&done),
            Err(failure) => failures.push((seed, failure.violation)),
        }
    }
    println!("{} crash points", report.crash_points);
    assert!(failures.is_empty(), "{failures:#?}");
}

/// The cache-disk was taken away while a mode was being switched, and a change that had waited for
/// the index was admitted before the switch had ended: it waited for that, and failed.
#[test]
fn what_is_admitted_behind_a_failure_waits_for_no_switch() {
    use dcd_fuzz::script::PAGED_FROM;
    if let Err(failure) = replay(&Script::of_paged_seed(PAGED_FROM + 200_161), false) {
        panic!("{}", failure.violation);
    }
}
