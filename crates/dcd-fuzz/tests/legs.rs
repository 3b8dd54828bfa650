//! A cache-disk on two legs, of which one fails, dies, hangs, rots, comes back old, or is left out:
//! nothing of that is seen from above while the other counts.

use dcd_fuzz::report::Report;
use dcd_fuzz::run::replay;
use dcd_fuzz::script::{Script, WITNESS_FROM};
use dcd_fuzz::volume::VolumeKind;
use dcd_fuzz::volume::options::LEGS_FROM;
use dcd_fuzz::volume::run::run;

/// `DCD_LEGS_RUNS` and `DCD_LEGS_SEED` say which other ones.
#[test]
fn two_legs_lose_nothing_while_one_is_whole() {
    let number = |name: &str, otherwise: u64| {
        std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
    };
    let (runs, seed) = (number("DCD_LEGS_RUNS", 60), number("DCD_LEGS_SEED", 0));
    let mut report = Report::default();
    let mut failures = Vec::new();
    for seed in seed..seed + runs {
        match replay(&Script::on_legs(seed), std::env::var("DCD_LEGS_TRACE").is_ok()) {
            Ok(done) => report.add(&done),
            Err(failure) => failures.push((seed, failure.violation)),
        }
    }
    println!("{} crash points, {:?}", report.crash_points, report.legs);
    assert!(failures.is_empty(), "{failures:#?}");
    if runs >= 60 {
        let legs = report.legs;
        let all = [
            legs.troubles,
            legs.without_one,
            legs.forced,
            legs.older,
            legs.filled,
            legs.joined,
            legs.rotted,
        ];
        assert!(all.iter().all(|count| *count > 0), "{legs:?}");
    }
}

/// The disk of a leg that failed was taken in under another name, and got its label, before the
/// other had one that names the leg no more. Behind a crash there the start asked for a leg that
/// was nowhere.
#[test]
fn the_disk_of_a_failed_leg_gets_a_label_when_none_names_that_leg() {
    for seed in [990_000_199, 990_020_049] {
        let done = replay(&Script::on_legs(seed), false);
        assert!(done.is_ok(), "{seed}: {:?}", done.err().map(|failure| failure.violation));
    }
}

/// A write waited for the copy of a region to a leg that hung. Of the next one, for which labels had
/// too little room meanwhile, they marked one region and then the other, without a pause.
#[test]
fn labels_are_not_written_without_end_while_a_fill_hangs() {
    let done = replay(&Script::on_legs(120_000_523), false);
    assert!(done.is_ok(), "{:?}", done.err().map(|failure| failure.violation));
}

/// A read failed on one leg, and its other leg went, when another read had mended the first.
#[test]
fn a_leg_that_was_mended_for_another_read_is_asked_again() {
    let done = replay(&Script::on_legs(140_001_852), false);
    assert!(done.is_ok(), "{:?}", done.err().map(|failure| failure.violation));
}

/// The same with a witness that has troubles of its own, and whose word is believed with one leg.
/// `DCD_WITNESS_RUNS` and `DCD_WITNESS_SEED` say which other ones.
#[test]
fn what_the_witness_says_loses_nothing() {
    let number = |name: &str, otherwise: u64| {
        std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
    };
    let (runs, seed) = (number("DCD_WITNESS_RUNS", 60), number("DCD_WITNESS_SEED", 0));
    let mut report = Report::default();
    let mut failures = Vec::new();
    for seed in WITNESS_FROM + seed..WITNESS_FROM + seed + runs {
        match replay(&Script::on_legs(seed), std::env::var("DCD_LEGS_TRACE").is_ok()) {
            Ok(done) => report.add(&done),
            Err(failure) => failures.push((seed, failure.violation)),
        }
    }
    println!("{} crash points, {:?}", report.crash_points, report.legs);
    assert!(failures.is_empty(), "{failures:#?}");
    if runs >= 60 {
        let legs = report.legs;
        let all = [
            legs.troubles,
            legs.witness_troubles,
            legs.by_witness,
            legs.without_witness,
            legs.older_witness,
            legs.witness_joined,
        ];
        assert!(all.iter().all(|count| *count > 0), "{legs:?}");
    }
}

/// Legs that were out for longer than a label remembers; and one that had an older label again
/// behind a power cut, with which the witness started it.
#[test]
fn what_runs_with_a_witness_have_found() {
    for seed in [7442, 7446, 30_100] {
        let run = replay(&Script::on_legs(WITNESS_FROM + seed), false);
        run.unwrap_or_else(|failure| panic!("{seed}: {}", failure.violation));
    }
}

/// The same below a volume, whose tables are on the legs, too.
#[test]
fn a_volume_on_two_legs_loses_nothing_while_one_is_whole() {
    let number = |name: &str, otherwise: u64| {
        std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
    };
    let (runs, seed) = (number("DCD_LEGS_VOLUME_RUNS", 12), number("DCD_LEGS_VOLUME_SEED", 0));
    let mut report = Report::default();
    let mut failures = Vec::new();
    for seed in LEGS_FROM + seed..LEGS_FROM + seed + runs {
        for kind in VolumeKind::ALL {
            match run(kind, seed, std::env::var("DCD_LEGS_TRACE").is_ok()) {
                Ok(done) => report.add(&done),
                Err(failure) => failures.push((kind, seed, failure.violation)),
            }
        }
    }
    println!("{} crash points, {:?}", report.crash_points, report.legs);
    assert!(failures.is_empty(), "{failures:#?}");
    if runs >= 12 {
        let legs = report.legs;
        assert!(legs.troubles > 0 && legs.without_one > 0 && legs.filled > 0, "{legs:?}");
    }
}
