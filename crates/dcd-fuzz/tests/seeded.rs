//! The fuzzer finds mistakes that were made on purpose. Only with the feature `seeded-bugs`:
//! `cargo test --release -p dcd-fuzz --features seeded-bugs --test seeded`.

use dcd_fuzz::seeded::{CANARY_RUNS_MAX, SeededBug, try_all, try_bug};

#[test]
fn all_are_found() {
    // Panics of the engine are one way to find a mistake.
    std::panic::set_hook(Box::new(|_| {}));
    let trials = try_all(0, 1000, 100, 2, |_| {});
    drop(std::panic::take_hook());
    assert_eq!(trials.len(), SeededBug::ALL.len() + 1);
    let wrong: Vec<String> =
        trials.iter().filter(|trial| !trial.is_right()).map(|trial| format!("{trial:?}")).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_canary_is_found_and_nothing_without_it() {
    let canary = try_bug(Some(SeededBug::Canary), 7, CANARY_RUNS_MAX);
    let seed = canary.caught.as_ref().expect("found at once").seed;
    assert!(canary.is_right());
    let without = try_bug(None, seed, 1);
    assert!(without.is_right() && without.caught.is_none());
}

#[test]
fn every_mistake_stands_in_the_document() {
    let document = include_str!("../../../docs/testing.md");
    for bug in SeededBug::ALL {
        let row = format!("| `{}` | {} | {} |", bug.name(), bug.rule(), bug.what());
        assert!(document.contains(&row), "{row}");
    }
}
