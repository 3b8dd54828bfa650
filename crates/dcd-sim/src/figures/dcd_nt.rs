//! Figures 7 and 8 of He and Yang, *A DCD Filter Driver for Windows NT 4*.
//!
//! What is simulated lies below the file system: writes at random places (its abstract: "synthetic
//! benchmarks consisting of random file writes"), each when the one before is done. Of the curves
//! its text has four numbers.

use dcd_engine::{AckMode, DestagePolicyKind, EngineConfig};

use super::unix_runs::random_writes;
use super::{Compared, ExperimentError, Figure, Finding, NT, Picture, Printed, parallel};
use crate::disk::profile::Profile;
use crate::pace::Pace;
use crate::plot::stacked_bars::StackedBars;
use crate::plot::{Plot, Series};
use crate::sweep::{Load, Point};
use crate::target::setup::{LogSetup, Setup};
use crate::workload::{Value, WorkloadKind, WorkloadSpec};

/// Table 1 of the paper: DTTA 371010.
pub const PROFILE: &str = "ibm-dtta-371010";
/// Section 4.3: "a specific number (2048) of small files with fixed file size".
const FILES: u64 = 2048;
/// Sizes in Figure 7; what is larger than 64 KB goes past the log.
const SIZES_KB: [u64; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
/// Sizes in Figure 8, and how much faster each becomes (section 4.4).
const BURST_SIZES_KB: [(u64, f64); 4] = [(1, 13.8), (2, 4.05), (3, 3.49), (4, 1.86)];
/// Mean numbers of requests in a burst. "More than 5 requests ... up to 100 even 1000" (section
/// 4.1).
const BURSTS: [u64; 7] = [10, 20, 50, 100, 200, 500, 1000];
/// Chosen; the paper says "relatively long".
const SILENCE_S: f64 = 5.0;
/// Chosen.
const BURSTS_COUNT: u64 = 20;
/// Places are in that part of the disk: one that small files fill.
const SPAN_BYTES: u64 = 1 << 30;

/// All simulations.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct NtRuns {
    /// Of each size: bytes per second of the bare disk, and with DCD.
    throughput: Vec<(u64, [f64; 2])>,
    /// Of each size and mean length of bursts: mean response time in milliseconds of both.
    responses: Vec<(u64, u64, [f64; 2])>,
}

/// Section 4.2: "one megabytes of system RAM", here as buffers of 256 KB in place of 64 (3.2),
/// "twenty megabytes disk partition is used as cache disk"; 3.4.2: first write first; 4.4: requests
/// of more than 64 KB go past the log.
fn setup(disk: &Profile, has_log: bool) -> Setup {
    let config = EngineConfig {
        ack: AckMode::Memory,
        bypass_threshold_bytes: (64 << 10) + 512,
        destage_policy: DestagePolicyKind::FirstWriteFirst,
        segment_buffers: 4,
        one_disk: true,
        ..EngineConfig::default()
    };
    // Writes of 64 KiB, one after the other, each miss part of a turn: of 256 KiB fewer do.
    let (cache_bytes, segment_bytes) = (20 << 20, 256 << 10);
    let (cache_disk, read_area_bytes) = (disk.clone(), 0);
    let log = LogSetup { cache_disk, cache_bytes, read_area_bytes, segment_bytes, config };
    Setup { log: has_log.then_some(log), ..Setup::of(disk.clone(), 0) }
}

/// Bursts of random lengths, after random silences.
fn bursts(kb: u64, requests: u64) -> Load {
    let whole = [
        ("requests", requests * BURSTS_COUNT),
        ("burst", requests),
        ("within", 0),
        ("size", kb << 10),
        ("size-max", kb << 10),
        ("span", SPAN_BYTES / (kb << 10) * (kb << 10)),
    ];
    let spec =
        whole.into_iter().fold(WorkloadSpec::new(WorkloadKind::Bursts), |spec, (key, value)| {
            spec.with(key, Value::Whole(value)).expect("bursts has such keys")
        });
    let rate = Value::Number(requests as f64 / SILENCE_S);
    Load::Workload(spec.with("rate", rate).expect("bursts has a rate"))
}

impl NtRuns {
    /// Simulates all that the figures need; tells `progress` how many of how many are done.
    ///
    /// # Errors
    /// If the profile cannot be read, or a simulation fails.
    pub fn run(
        jobs: usize,
        progress: impl FnMut(usize, usize) + Send,
    ) -> Result<NtRuns, ExperimentError> {
        let disk = Profile::load(PROFILE)?;
        // Section 4.4: the disk of Figure 8 is one in RAM that takes the times of seek, rotation
        // and transfer.
        let mut virtual_disk = disk.clone();
        if let Some(mechanical) = &mut virtual_disk.mechanical {
            mechanical.cache.immediate_report = false;
        }
        let mut todo = Vec::new();
        let both = |disk: &Profile, load: Load| {
            [false, true].map(|has_log| {
                let setup = setup(disk, has_log);
                (
                    Point {
                        labels: Vec::new(),
                        setup,
                        pace: Pace::Closed,
                        sequences: None,
                        memory_max: None,
                    },
                    load.clone(),
                )
            })
        };
        for kb in SIZES_KB {
            todo.extend(both(&disk, random_writes(FILES, kb << 10, SPAN_BYTES)));
        }
        for (kb, _) in BURST_SIZES_KB {
            for requests in BURSTS {
                todo.extend(both(&virtual_disk, bursts(kb, requests)));
            }
        }
        let outcomes = parallel::map(&todo, jobs, progress, |(point, load)| point.run(load));
        let facts: Result<Vec<_>, String> = outcomes.into_iter().collect();
        let facts = facts
            .map_err(|problem| ExperimentError::Failed { what: "the NT driver".into(), problem })?;
        let (files, in_bursts) = facts.split_at(2 * SIZES_KB.len());
        let throughput = SIZES_KB.iter().zip(files.chunks(2)).map(|(kb, pair)| {
            let per_second = |index: usize| (FILES * (kb << 10)) as f64 / pair[index].duration_s;
            (*kb, [per_second(0), per_second(1)])
        });
        let points =
            BURST_SIZES_KB.iter().flat_map(|(kb, _)| BURSTS.map(|requests| (*kb, requests)));
        let responses = points.zip(in_bursts.chunks(2)).map(|((kb, requests), pair)| {
            let mean = |index: usize| pair[index].write.response_ms.map_or(0.0, |times| times.mean);
            (kb, requests, [mean(0), mean(1)])
        });
        Ok(NtRuns { throughput: throughput.collect(), responses: responses.collect() })
    }

    /// How many times the throughput DCD has, of each size.
    fn gains(&self) -> impl Iterator<Item = (u64, f64)> {
        self.throughput.iter().map(|(kb, [disk, log])| (*kb, log / disk))
    }

    /// How many times shorter the response times of such bursts are, of each size; none if all
    /// writes were answered from memory, which takes no time here.
    fn speedups(&self, requests: u64) -> [Option<f64>; 4] {
        BURST_SIZES_KB.map(|(kb, _)| {
            let of = |(size, burst, _): &&(u64, u64, _)| (*size, *burst) == (kb, requests);
            let (_, _, [disk, log]) = self.responses.iter().find(of)?;
            (*log > 0.0).then_some(disk / log)
        })
    }
}

/// Figures 7 and 8.
pub fn figures(runs: &NtRuns) -> Vec<Figure> {
    let groups = runs.throughput.iter().map(|(kb, both)| {
        let bars = both.map(|bytes_per_second| vec![bytes_per_second / f64::from(1 << 20)]);
        (format!("{kb} KB"), bars.to_vec())
    });
    let mut all = vec![Figure {
        name: "nt-figure-7".into(),
        picture: Picture::Bars(StackedBars {
            title: "NT paper, Figure 7: throughput of 2048 writes".into(),
            y_axis: "MB/s".into(),
            bars: vec!["bare disk".into(), "DCD".into()],
            parts: vec!["throughput".into()],
            groups: groups.collect(),
        }),
        notes: vec![
            "Below the file system: synchronous writes at random places, on a Deskstar DTTA-371010, log of 20 MB on the \
             same disk, 1 MB of RAM. What NTFS writes besides, and the layers of the I/O manager, are not simulated."
                .into(),
        ],
    }];
    for (letter, (kb, printed)) in ["a", "b", "c", "d"].into_iter().zip(BURST_SIZES_KB) {
        let response = |index: usize, name: &str| Series {
            name: name.into(),
            points: runs
                .responses
                .iter()
                .filter(|(size, ..)| *size == kb)
                .map(|(_, requests, both)| (*requests as f64, both[index]))
                .collect(),
        };
        all.push(Figure {
            name: format!("nt-figure-8{letter}"),
            picture: Picture::Curves(Plot {
                title: format!("NT paper, Figure 8{letter}: response times of writes of {kb} KB in bursts"),
                x_axis: "requests in a burst, mean".into(),
                y_axis: "mean response time, ms".into(),
                log_y: false,
                series: vec![response(0, "bare disk"), response(1, "DCD")],
            }),
            notes: vec![format!(
                "Printed: {printed} times faster at best. Our disk of this figure has no write cache, as the paper's, which \
                 was in RAM; silences of 5 s between bursts, on average, are our choice. A write in memory takes no time here."
            )],
        });
    }
    all
}

/// What the text says of the figures.
pub fn tables(runs: &NtRuns) -> Vec<Compared> {
    let row = |place, what, printed, ours| Compared {
        paper: NT,
        place,
        disk: PROFILE.into(),
        what,
        printed,
        ours,
        unit: "x",
        percent_of_writes: None,
    };
    let mut rows = Vec::new();
    for (kb, gain) in runs.gains().filter(|(kb, _)| *kb > 64) {
        let what = format!("throughput of writes of {kb} KB: DCD so many times that of the disk");
        rows.push(row("Figure 7", what, Printed::Number(1.0), gain));
    }
    for requests in BURSTS {
        for ((kb, printed), ours) in BURST_SIZES_KB.into_iter().zip(runs.speedups(requests)) {
            let what =
                format!("response time of {kb} KB in bursts of {requests}: so many times faster");
            rows.extend(ours.map(|ours| row("Figure 8", what, Printed::Number(printed), ours)));
        }
    }
    rows
}

/// Whether no size gains more than a twentieth more than any smaller one.
fn shrinks(gains: &[(u64, f64)]) -> bool {
    let mut least = f64::MAX;
    gains.iter().all(|(_, gain)| {
        let is_less = *gain <= least * 1.05;
        least = least.min(*gain);
        is_less
    })
}

/// What the paper found.
pub fn findings(runs: &NtRuns) -> Vec<Finding> {
    let gains: Vec<(u64, f64)> = runs.gains().collect();
    let of = |wanted: u64| gains.iter().find(|(kb, _)| *kb == wanted).map_or(0.0, |gain| gain.1);
    // Larger ones go past the log.
    let small: Vec<(u64, f64)> = gains.iter().copied().filter(|(kb, _)| *kb <= 64).collect();
    let large = gains.iter().filter(|(kb, _)| *kb > 64);
    let text: Vec<String> = gains.iter().map(|(kb, gain)| format!("{kb} KB {gain:.2}")).collect();
    let finding = |statement, holds, numbers| Finding {
        paper: NT,
        disk: PROFILE.into(),
        statement,
        holds,
        numbers,
    };
    let of_1_kb = BURSTS.map(|requests| (requests, runs.speedups(requests)[0]));
    let best = of_1_kb.iter().map(|(_, speedup)| speedup.unwrap_or(f64::MAX));
    let best = best.fold(0.0, f64::max);
    let in_words = of_1_kb.map(|(requests, speedup)| match speedup {
        Some(speedup) => format!("{requests} {speedup:.1} times"),
        None => format!("{requests} at once"),
    });
    let longest =
        runs.speedups(BURSTS[BURSTS.len() - 1]).map(|speedup| speedup.unwrap_or(f64::MAX));
    vec![
        finding(
            "small writes gain most: no size gains more than a smaller one, but for a twentieth among the smallest \
             (4.4, Figure 7)",
            shrinks(&small) && of(1) > of(16) && of(16) > of(64) && of(1) >= 2.0,
            text.join(", "),
        ),
        finding(
            "above 64 KB, where all goes past the log, both are the same (4.4, Figure 7; within a tenth)",
            large.clone().count() > 0 && large.clone().all(|(_, gain)| (0.9..=1.1).contains(gain)),
            format!("128 KB {:.2}, 256 KB {:.2} times", of(128), of(256)),
        ),
        finding(
            "bursts of writes of 1 KB are answered up to 13.8 times faster, or more (4.4, Figure 8)",
            best >= 13.8,
            format!("in bursts of {}", in_words.join(", ")),
        ),
        finding(
            "the smaller the writes of a burst, the more they gain: 13.8, 4.05, 3.49 and 1.86 times for 1 to 4 KB \
             (4.4, Figure 8)",
            longest.windows(2).all(|pair| pair[0] > pair[1]) && longest[0] > 2.0 * longest[3],
            format!(
                "{} times in bursts of 1000",
                longest.map(|times| format!("{times:.2}")).join(", ")
            ),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_shrinks_is_looked_at_size_by_size() {
        let of = |gains: &[f64]| shrinks(&gains.iter().map(|gain| (1, *gain)).collect::<Vec<_>>());
        assert!(of(&[15.93, 16.07, 16.36, 9.0, 4.0, 1.0]) && of(&[3.0, 2.0]));
        assert!(!of(&[15.93, 16.07, 17.0]) && !of(&[9.0, 4.0, 5.0, 1.0]));
    }
}
