//! Random runs on volumes that grow, with fixed seeds: disks become larger, and the power is cut in
//! the middle.

mod common;

use common::run_seeds;
use dcd_fuzz::volume::VolumeKind;
use dcd_fuzz::volume::options::GROWS_VOLUME_FROM;

fn runs(kind: VolumeKind) {
    let range = |name: &str, otherwise: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
    };
    let (first, count) = (range("GROWING_FIRST", 0), range("GROWING_SEEDS", 12));
    let first = GROWS_VOLUME_FROM + first;
    let volume = run_seeds(kind, first..first + count);
    // How many there are is chance: 12 to 308 of each kind in these runs, over time.
    assert!(volume.growths > count / 2 && volume.growths_done > count / 4, "{volume:?}");
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
