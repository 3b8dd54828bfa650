//! What several suites of seeds do alike.

use std::ops::Range;

use dcd_fuzz::report::{Report, VolumeUse};
use dcd_fuzz::volume::VolumeKind;
use dcd_fuzz::volume::run::run;

/// Runs these seeds, and tells what they did.
///
/// # Panics
/// If one finds something: with the command that does the same.
pub fn run_seeds(kind: VolumeKind, seeds: Range<u64>) -> VolumeUse {
    let mut report = Report::default();
    for seed in seeds {
        match run(kind, seed, false) {
            Ok(of_run) => report.add(&of_run),
            Err(failure) => {
                panic!("dcd fuzz --volume {} --seed {seed}: {}", kind.name(), failure.violation)
            }
        }
    }
    let volume = report.volume;
    println!("{}: {} crash points, {volume:?}", kind.name(), report.crash_points);
    volume
}
