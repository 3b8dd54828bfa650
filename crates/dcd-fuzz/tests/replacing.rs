//! Disks take the place of members, at any moment and whatever happens to either: nothing is lost,
//! and of two disks that have been a member one counts.

use dcd_fuzz::report::Report;
use dcd_fuzz::volume::VolumeKind;
use dcd_fuzz::volume::options::REPLACES_FROM;
use dcd_fuzz::volume::run::run;

#[test]
fn a_member_may_be_replaced_at_any_moment() {
    let mut report = Report::default();
    let mut failures = Vec::new();
    for seed in REPLACES_FROM..REPLACES_FROM + 6 {
        for kind in VolumeKind::ALL {
            match run(kind, seed, false) {
                Ok(done) => report.add(&done),
                Err(failure) => failures.push((kind, seed, failure.violation)),
            }
        }
    }
    let volume = &report.volume;
    let counts = [volume.replacements, volume.replacements_done, volume.others_refused];
    println!("{} crash points, {counts:?}", report.crash_points);
    assert!(failures.is_empty(), "{failures:#?}");
    assert!(counts.iter().all(|count| *count > 10), "{counts:?}");
}
