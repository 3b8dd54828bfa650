//! Random runs on volumes that are scrubbed by time, with fixed seeds: more often than anybody would,
//! while members fail, are rebuilt and replaced, and the calendar jumps.

use dcd_fuzz::report::Report;
use dcd_fuzz::volume::VolumeKind;
use dcd_fuzz::volume::options::SCRUBS_FROM;
use dcd_fuzz::volume::run::run;

fn runs(kind: VolumeKind) {
    let mut report = Report::default();
    for seed in SCRUBS_FROM..SCRUBS_FROM + 8 {
        match run(kind, seed, false) {
            Ok(of_run) => report.add(&of_run),
            Err(failure) => {
                panic!("dcd fuzz --volume {} --seed {seed}: {}", kind.name(), failure.violation)
            }
        }
    }
    let volume = report.volume;
    println!("{}: {} crash points, {volume:?}", kind.name(), report.crash_points);
    // Those that were begun by hand are few.
    assert!(volume.scrubs_ended > 2 * volume.scrubs, "{volume:?}");
    assert!(volume.rebuilds > 0 && volume.replacements > 0, "{volume:?}");
}

#[test]
fn mirrors_are_scrubbed_by_time() {
    runs(VolumeKind::Raid1);
}

#[test]
fn parity_is_scrubbed_by_time() {
    runs(VolumeKind::Raid5);
}
