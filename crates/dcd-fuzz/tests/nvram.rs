//! The tier of non-volatile memory: crashes, rot, and memories that are not the one.

use dcd_fuzz::nvram::{NvramReport, run};

/// `DCD_NVRAM_RUNS` and `DCD_NVRAM_SEED` say which other ones.
#[test]
fn nothing_acknowledged_is_lost_in_front_of_the_log() {
    let number = |name: &str, usual| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
    };
    let (runs, first) = (number("DCD_NVRAM_RUNS", 300), number("DCD_NVRAM_SEED", 0));
    let mut report = NvramReport::default();
    let mut violations = Vec::new();
    for seed in first..first + runs {
        match run(seed, std::env::var("DCD_NVRAM_TRACE").is_ok()) {
            Ok(done) => report.add(&done),
            Err(violation) => violations.push(format!("seed {seed}: {violation}")),
        }
    }
    println!("{report:?}");
    assert!(
        violations.is_empty(),
        "{} of {runs}: {:#?}",
        violations.len(),
        &violations[..violations.len().min(5)]
    );
    if runs >= 300 {
        let NvramReport { ends, rotted, damaged, refused, failed_media, .. } = report;
        let NvramReport { stalled, drains, broken, came, went, went_failed, .. } = report;
        let all = [ends, rotted, damaged, refused, failed_media, stalled, drains, broken];
        assert!([came, went, went_failed].iter().all(|count| *count > 0), "{report:?}");
        assert!(all.iter().all(|count| *count > 0), "{report:?}");
        assert!(report.crashes_in_starts > 0);
    }
}

/// Memories that failed while what is below took nothing: who waited for room or for a way past
/// waited for ever. Starts that were cut off one after the other: both heads were torn, and the
/// memory refused. And a model that took blocks for lost that somebody had just given up, was
/// giving up, or gave up while the memory failed.
#[test]
fn runs_that_once_failed() {
    for seed in
        [31_003_497, 31_013_292, 701_722, 726_404, 705_204, 950_614, 127_539, 211_531, 2_459_550]
    {
        let ended = run(seed, false);
        assert!(ended.is_ok(), "seed {seed}: {ended:?}");
    }
}
