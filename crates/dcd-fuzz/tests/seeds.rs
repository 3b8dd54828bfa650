//! Random runs with fixed seeds: crashes at random points in all ack modes, against the model.

#[test]
fn random_runs_with_crashes_agree_with_the_model() {
    let mut crash_points = 0;
    for seed in 0..1_000 {
        match dcd_fuzz::run::run(seed) {
            Ok(report) => crash_points += report.crash_points,
            Err(failure) => panic!(
                "seed {}: {}\noptions: {:#?}",
                failure.seed, failure.violation.0, failure.options
            ),
        }
    }
    println!("{crash_points} crash points");
    assert!(crash_points > 5_000);
}
