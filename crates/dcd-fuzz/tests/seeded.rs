//! The fuzzer finds mistakes that were made on purpose. Only in the copy of the sources that has
//! them (`scripts/test.sh`, `dcd-mistakes`): an ordinary build has nothing to find.

use dcd_fuzz::mistakes::{Mistake, turn_on};
use dcd_fuzz::seeded::{CANARY, CANARY_RUNS_MAX, tried, try_all, try_bug};

fn named(name: &str) -> &'static Mistake {
    let found = Mistake::named(name);
    found.unwrap_or_else(|| {
        panic!("this build has no {name}: `make fuzz-seeded` makes one that has")
    })
}

#[test]
fn all_are_found() {
    // Panics of the engine are one way to find a mistake.
    std::panic::set_hook(Box::new(|_| {}));
    let trials = try_all(0, 1000, 100, 2, |trial| {
        let name = trial.bug.map_or("(none)", |bug| bug.name);
        let caught = trial.caught.as_ref().map_or("nothing".into(), |caught| caught.to_string());
        println!("{name}: {} runs, {:.1} s: {caught}", trial.runs, trial.elapsed.as_secs_f64());
    });
    drop(std::panic::take_hook());
    assert_eq!(trials.len(), tried().count() + 1);
    assert!(trials.len() > 150, "{}: in an ordinary build there are none", trials.len());
    let wrong: Vec<String> =
        trials.iter().filter(|trial| !trial.is_right()).map(|trial| format!("{trial:?}")).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Apart from the others: `cargo test --package dcd-fuzz --features store --test seeded stores`;
/// `DCD_SEEDED_RUNS` has fewer runs for each.
#[cfg(feature = "store")]
#[test]
fn those_of_stores_are_found() {
    use dcd_fuzz::seeded::{tried_on_stores, try_these};
    std::panic::set_hook(Box::new(|_| {}));
    let these: Vec<&Mistake> = tried_on_stores().collect();
    let runs =
        std::env::var("DCD_SEEDED_RUNS").map_or(1000, |runs| runs.parse().expect("a number"));
    let trials = try_these(&these, 0, runs, runs.min(40), 2, |trial| {
        let name = trial.bug.map_or("(none)", |bug| bug.name);
        let caught = trial.caught.as_ref().map_or("nothing".into(), |caught| caught.to_string());
        let (runs, seconds) = (trial.runs, trial.elapsed.as_secs_f64());
        println!("{name}: {runs} runs, {seconds:.1} s: {caught:.200} {:?}", trial.fails_anyway);
    });
    drop(std::panic::take_hook());
    assert!(these.len() >= 15, "{}", these.len());
    let wrong: Vec<String> =
        trials.iter().filter(|trial| !trial.is_right()).map(|trial| format!("{trial:?}")).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_canary_is_found_and_nothing_without_it() {
    let canary = try_bug(Some(named(CANARY)), 7, CANARY_RUNS_MAX);
    let seed = canary.caught.as_ref().expect("found at once").seed;
    assert!(canary.is_right());
    let without = try_bug(None, seed, 1);
    assert!(without.is_right() && without.caught.is_none());
}

#[test]
fn a_run_on_a_volume_is_shrunk_and_fails_alike() {
    use dcd_fuzz::volume::VolumeKind;
    use dcd_fuzz::volume::minimise::{minimise, test_of};
    use dcd_fuzz::volume::run::{replay, run};
    turn_on(Some(named("parity-not-redone")));
    let failure = (1_000..1_100).find_map(|seed| run(VolumeKind::Raid5, seed, false).err());
    let failure = failure.expect("it is found");
    // The events are the run.
    assert_eq!(replay(&failure.script, false).expect_err("fails").violation, failure.violation);
    let shortest = minimise(&failure);
    assert!(shortest.script.events.len() <= failure.script.events.len());
    let again = replay(&shortest.script, false).expect_err("it fails alike");
    assert_eq!(again.violation, shortest.violation);
    let test = test_of(&shortest, "why");
    turn_on(None);
    assert!(test.contains("fn raid5_seed_") && test.contains("seed: "), "{test}");
    assert!(replay(&shortest.script, false).is_ok(), "without the mistake it is right");
}
