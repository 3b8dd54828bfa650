//! Random runs on volumes that are scrubbed by time, with fixed seeds: more often than anybody would,
//! while members fail, are rebuilt and replaced, and the calendar jumps.

mod common;

use common::run_seeds;
use dcd_fuzz::volume::VolumeKind;
use dcd_fuzz::volume::options::SCRUBS_FROM;

fn runs(kind: VolumeKind) {
    let volume = run_seeds(kind, SCRUBS_FROM..SCRUBS_FROM + 8);
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
