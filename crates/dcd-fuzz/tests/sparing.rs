//! Random runs on volumes with spares, with fixed seeds: disks come and go, members fail and come
//! back, and spares take their places by themselves.

use dcd_fuzz::report::Report;
use dcd_fuzz::volume::VolumeKind;
use dcd_fuzz::volume::options::SPARES_FROM;
use dcd_fuzz::volume::run::run;

fn runs(kind: VolumeKind) {
    let mut report = Report::default();
    for seed in SPARES_FROM..SPARES_FROM + 12 {
        match run(kind, seed, false) {
            Ok(of_run) => report.add(&of_run),
            Err(failure) => {
                panic!("dcd fuzz --volume {} --seed {seed}: {}", kind.name(), failure.violation)
            }
        }
    }
    let volume = report.volume;
    println!("{}: {} crash points, {volume:?}", kind.name(), report.crash_points);
    assert!(volume.spares > 20 && volume.spares_used > 3, "{volume:?}");
}

#[test]
fn spares_of_mirrors() {
    runs(VolumeKind::Raid1);
}

#[test]
fn spares_of_parity() {
    runs(VolumeKind::Raid5);
}

#[test]
fn spares_of_tiers() {
    runs(VolumeKind::Tiered);
}
