//! Random runs on volumes that grow, with fixed seeds: disks become larger, and the power is cut in
//! the middle.

use dcd_fuzz::report::Report;
use dcd_fuzz::volume::VolumeKind;
use dcd_fuzz::volume::options::GROWS_VOLUME_FROM;
use dcd_fuzz::volume::run::run;

fn runs(kind: VolumeKind) {
    let mut report = Report::default();
    let range = |name: &str, otherwise: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
    };
    let (first, count) = (range("GROWING_FIRST", 0), range("GROWING_SEEDS", 12));
    let first = GROWS_VOLUME_FROM + first;
    for seed in first..first + count {
        match run(kind, seed, false) {
            Ok(of_run) => report.add(&of_run),
            Err(failure) => {
                panic!("dcd fuzz --volume {} --seed {seed}: {}", kind.name(), failure.violation)
            }
        }
    }
    let volume = report.volume;
    println!("{}: {} crash points, {volume:?}", kind.name(), report.crash_points);
    assert!(volume.growths > count && volume.growths_done > count / 4, "{volume:?}");
}

#[test]
fn stripes_that_grow() {
    runs(VolumeKind::Raid0);
}

#[test]
fn mirrors_that_grow() {
    runs(VolumeKind::Raid1);
}

#[test]
fn parity_that_grows() {
    runs(VolumeKind::Raid5);
}

#[test]
fn tiers_that_grow() {
    runs(VolumeKind::Tiered);
}
