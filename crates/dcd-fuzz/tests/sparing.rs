//! Random runs on volumes with spares, with fixed seeds: disks come and go, members fail and come
//! back, and spares take their places by themselves.

mod common;

use common::run_seeds;
use dcd_fuzz::volume::VolumeKind;
use dcd_fuzz::volume::options::SPARES_FROM;

fn runs(kind: VolumeKind) {
    let volume = run_seeds(kind, SPARES_FROM..SPARES_FROM + 12);
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
