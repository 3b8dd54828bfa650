//! Random runs on volumes, with fixed seeds: members fail, vanish, come back old, are replaced, and
//! rot.

use dcd_fuzz::report::Report;
use dcd_fuzz::volume::VolumeKind;
use dcd_fuzz::volume::options::{
    CACHE_DISK_FAILS_FROM, FEW_SUMS_EACH, FEW_SUMS_FROM, FOCUS_FROM, REUSE_FROM, STUMBLES_EACH,
    STUMBLES_FIRST, WITHOUT_LOG_EACH, WITHOUT_LOG_FROM,
};
use dcd_fuzz::volume::run::run;

/// Runs of each kind.
const SEEDS: u64 = 50;

/// `first`: the first seed.
fn runs(kind: VolumeKind, first: u64) -> Report {
    let seeds = SEEDS;
    let mut report = Report::default();
    for seed in first..first + seeds {
        match run(kind, seed, false) {
            Ok(of_run) => report.add(&of_run),
            Err(failure) => {
                panic!("dcd fuzz --volume {} --seed {seed}: {}", kind.name(), failure.violation)
            }
        }
    }
    println!("{}: {} crash points, {:?}", kind.name(), report.crash_points, report.volume);
    assert!(report.crash_points > 10 * seeds && report.nested > seeds);
    let volume = report.volume;
    // What is said of members was tried.
    assert!(volume.members_failed > 0 && volume.io_faults > 0, "{volume:?}");
    assert!(volume.crash_points_degraded > seeds, "{volume:?}");
    report
}

#[test]
fn raid0_loses_what_a_member_held_and_nothing_else() {
    assert!(runs(VolumeKind::Raid0, 0).errors > 0);
}

#[test]
fn raid1_bears_what_it_must() {
    let volume = runs(VolumeKind::Raid1, 0).volume;
    assert!(volume.rebuilds > 0 && volume.lines_rotted > 0 && volume.scrubs > 0, "{volume:?}");
    assert!(volume.members_replaced > 0, "{volume:?}");
}

#[test]
fn raid5_bears_what_it_must() {
    let volume = runs(VolumeKind::Raid5, 0).volume;
    assert!(volume.rebuilds > 0 && volume.lines_rotted > 0 && volume.scrubs > 0, "{volume:?}");
    assert!(volume.members_replaced > 0, "{volume:?}");
}

#[test]
fn tiers_and_hints_agree_with_the_model() {
    let volume = runs(VolumeKind::Tiered, 160).volume;
    assert!(volume.rebuilds > 0 && volume.lines_rotted > 0 && volume.scrubs > 0, "{volume:?}");
}

#[test]
fn classes_and_hints_agree_with_the_model() {
    let volume = runs(VolumeKind::Classes, 0).volume;
    assert!(volume.rebuilds > 0 && volume.lines_rotted > 0 && volume.scrubs > 0, "{volume:?}");
}

#[test]
fn a_cache_disk_that_fails_loses_nothing_that_was_acknowledged() {
    let mut volume = dcd_fuzz::report::VolumeUse::default();
    for kind in VolumeKind::ALL {
        for seed in (CACHE_DISK_FAILS_FROM..).filter(|seed| seed.is_multiple_of(3)).take(8) {
            match run(kind, seed, false) {
                Ok(report) => volume.add(&report.volume),
                Err(failure) => {
                    panic!("dcd fuzz --volume {} --seed {seed}: {}", kind.name(), failure.violation)
                }
            }
        }
    }
    assert!(volume.cache_disks_failed > 20, "{volume:?}");
}

/// Unless the log has no room to write again what may be lost: then the next start finds that in
/// the segment memory.
#[test]
fn a_single_failure_of_the_cache_disk_is_not_noticed() {
    let mut volume = dcd_fuzz::report::VolumeUse::default();
    for kind in VolumeKind::ALL {
        for seed in (STUMBLES_FIRST..).step_by(STUMBLES_EACH as usize).take(8) {
            match run(kind, seed, false) {
                Ok(report) => volume.add(&report.volume),
                Err(failure) => {
                    panic!("dcd fuzz --volume {} --seed {seed}: {}", kind.name(), failure.violation)
                }
            }
        }
    }
    assert!(volume.cache_disks_stumbled > 100, "{volume:?}");
    assert!(volume.cache_disks_given_up < volume.cache_disks_stumbled / 4, "{volume:?}");
}

#[test]
fn one_thing_again_and_again_is_borne() {
    let mut volume = dcd_fuzz::report::VolumeUse::default();
    for kind in [VolumeKind::Raid0, VolumeKind::Tiered] {
        for seed in FOCUS_FROM..FOCUS_FROM + 8 {
            match run(kind, seed, false) {
                Ok(report) => volume.add(&report.volume),
                Err(failure) => {
                    panic!("dcd fuzz --volume {} --seed {seed}: {}", kind.name(), failure.violation)
                }
            }
        }
    }
    assert!(volume.members_replaced > 50, "{volume:?}");
}

/// Runs that once failed. A write to an extent without a place counted as waiting for a member
/// although all places were taken until the journal knew which were left (RAID 1). And checks were
/// wrong: what the log holds for a member was compared across a crash (RAID 0), and a member
/// without a line of RAID 0 at the start need not be refused (tiers).
#[test]
fn runs_that_once_failed_do_not() {
    use VolumeKind::{Raid0, Raid1, Tiered};
    for (kind, seed) in [(Raid1, 1402), (Raid0, 1383), (Raid0, 1601), (Tiered, 1317)] {
        if let Err(failure) = run(kind, seed, false) {
            panic!("dcd fuzz --volume {} --seed {seed}: {}", kind.name(), failure.violation)
        }
    }
}

#[test]
fn a_log_that_is_used_again_early_loses_nothing() {
    for kind in VolumeKind::ALL {
        for seed in REUSE_FROM..REUSE_FROM + 12 {
            if let Err(failure) = run(kind, seed, false) {
                panic!("dcd fuzz --volume {} --seed {seed}: {}", kind.name(), failure.violation)
            }
        }
    }
}

/// Checksums are read from the cache-disk when they are wanted, and dropped again.
#[test]
fn volumes_with_memory_for_few_checksums_agree_with_the_model() {
    for kind in VolumeKind::ALL {
        for seed in (FEW_SUMS_FROM..).step_by(FEW_SUMS_EACH as usize).take(16) {
            if let Err(failure) = run(kind, seed, false) {
                panic!("dcd fuzz --volume {} --seed {seed}: {}", kind.name(), failure.violation)
            }
        }
    }
}

#[test]
fn a_seed_is_one_run() {
    for kind in VolumeKind::ALL {
        let reports = [0, 1].map(|_| run(kind, 7, false).expect("it is right").without_times());
        assert_eq!(reports[0], reports[1]);
    }
}

/// What was acknowledged outlives the process, what was flushed a power cut; nothing is ever
/// written to the log.
#[test]
fn volumes_without_a_log_agree_with_the_model() {
    for kind in VolumeKind::ALL {
        for seed in (WITHOUT_LOG_FROM..).step_by(WITHOUT_LOG_EACH as usize).take(25) {
            let failed = run(kind, seed, false).err();
            let violation = failed.map(|failure| failure.violation);
            assert_eq!(violation, None, "dcd fuzz --volume {} --seed {seed}", kind.name());
        }
    }
}
