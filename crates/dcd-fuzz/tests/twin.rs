//! A volume whose cache-disk is destroyed at any moment is imported from its members: what was
//! flushed past the log is there.

use dcd_fuzz::report::Report;
use dcd_fuzz::volume::VolumeKind;
use dcd_fuzz::volume::options::TWIN_FROM;
use dcd_fuzz::volume::run::run;

/// `DCD_TWIN_RUNS` and `DCD_TWIN_SEED` say which other ones.
#[test]
fn a_volume_outlives_its_cache_disk() {
    let number = |name: &str, otherwise: u64| {
        std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
    };
    let (runs, seed) = (number("DCD_TWIN_RUNS", 12), number("DCD_TWIN_SEED", 0));
    let mut report = Report::default();
    let mut failures = Vec::new();
    for seed in TWIN_FROM + seed..TWIN_FROM + seed + runs {
        let only = std::env::var("DCD_TWIN_KIND").ok();
        let is_wanted = |kind: &VolumeKind| only.as_ref().is_none_or(|only| only == kind.name());
        for kind in VolumeKind::ALL.into_iter().filter(is_wanted) {
            match run(kind, seed, std::env::var("DCD_TWIN_TRACE").is_ok()) {
                Ok(done) => report.add(&done),
                Err(failure) => failures.push((kind, seed, failure.violation)),
            }
        }
    }
    let volume = &report.volume;
    println!(
        "{} crash points, {} imports, {} cut, {} regions believed",
        report.crash_points, volume.imports, volume.imports_cut, volume.regions_believed
    );
    assert!(failures.is_empty(), "{failures:#?}");
    if runs >= 12 {
        let all = [volume.imports, volume.imports_cut, volume.regions_believed];
        assert!(all.iter().all(|count| *count > 0), "{all:?}");
    }
}
