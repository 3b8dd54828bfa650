//! Members leave, little is changed, and they come back, or an older copy of them does: what they
//! have missed is brought to them, whatever happens meanwhile.

use dcd_fuzz::report::Report;
use dcd_fuzz::volume::VolumeKind;
use dcd_fuzz::volume::options::RETURNS_FROM;
use dcd_fuzz::volume::run::run;

#[test]
fn a_member_that_was_away_gets_what_it_has_missed() {
    let mut report = Report::default();
    let mut failures = Vec::new();
    for seed in RETURNS_FROM..RETURNS_FROM + 8 {
        for kind in [VolumeKind::Raid1, VolumeKind::Raid5] {
            match run(kind, seed, false) {
                Ok(done) => report.add(&done),
                Err(failure) => failures.push((kind, seed, failure.violation)),
            }
        }
    }
    let volume = &report.volume;
    let counts = [volume.members_left, volume.members_caught_up, volume.members_older];
    println!("{} crash points, {counts:?}", report.crash_points);
    assert!(failures.is_empty(), "{failures:#?}");
    assert!(counts.iter().all(|count| *count > 10), "{counts:?}");
}
