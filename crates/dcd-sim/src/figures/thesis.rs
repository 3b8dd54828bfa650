//! Figures of the thesis, chapters 4 and 7: of one disk and its load.

use super::experiments::{self, CHAIN_LOW};
use super::{Experiments, Figure, Picture, Run};
use crate::analysis::cleaning::{CleaningChain, Grouping};
use crate::plot::{Plot, Series};
use crate::sweep::Load;

/// A disk of the thesis.
#[derive(Clone, Debug)]
pub struct Disk {
    /// As the thesis calls it.
    pub name: &'static str,
    /// The model of the drive.
    pub profile: &'static str,
    /// What it is asked for.
    pub load: Load,
    /// What is done with it.
    pub scope: Scope,
    /// Where the load is not the thesis'.
    pub note: Option<&'static str>,
    /// The load is as long as that of the thesis: counts may be compared.
    pub is_whole: bool,
    /// Low threshold of the thesis, in percent.
    pub low: u8,
    /// Rows of its Table 7.1 for this disk.
    pub table_7_1: Characteristics,
    /// Rows of its Table 7.2 for this disk, in disk writes: write behind, single, dual threshold of
    /// LRU, LST, STF.
    pub table_7_2: Option<[[u64; 3]; 3]>,
    /// Rows of its Table 7.3: disk writes, stalled writes and overwrites of LRU, LST and the stack
    /// model, 128 KB.
    pub table_7_3: Option<[[u64; 3]; 3]>,
    /// Blocks that are written few times, if section 7.3 says how many.
    pub cold_blocks: Option<f64>,
}

/// Which of the experiments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// All of chapters 4 and 7.
    All,
    /// Those with the hot zone: Figure 7.8 and Table 7.3.
    HotZone,
}

/// What a load is like: Table 7.1.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Characteristics {
    /// How many.
    pub reads: u64,
    /// Mean size.
    pub read_kb: f64,
    /// Mean, reads and writes.
    pub service_ms: f64,
    /// How many.
    pub writes: u64,
    /// Mean size.
    pub write_kb: f64,
    /// Mean.
    pub write_service_ms: f64,
}

const SNAKE_NOTE: &str = "The trace of snake is not to be had: the load is made up, like what the thesis says of this disk \
                          (docs/workloads.md).";

/// The disk whose load is made up.
pub fn snake_5(load: Load) -> Disk {
    Disk {
        name: "snake disk 5",
        profile: "hp-97560",
        load,
        scope: Scope::All,
        note: Some(SNAKE_NOTE),
        is_whole: true,
        low: 20,
        table_7_1: Characteristics {
            reads: 134_420,
            read_kb: 5.354,
            service_ms: 11.735,
            writes: 129_379,
            write_kb: 6.876,
            write_service_ms: 12.388,
        },
        table_7_2: Some([
            [22_194, 21_155, 26_039],
            [98_117, 83_010, 28_589],
            [31_773, 30_227, 25_791],
        ]),
        table_7_3: Some([[33_538, 418, 79_678], [33_895, 85, 76_061], [32_758, 97, 79_980]]),
        cold_blocks: Some(119_400.0),
    }
}

/// The other one; the thesis has it for the stack model only.
pub fn snake_6(load: Load) -> Disk {
    Disk {
        name: "snake disk 6",
        scope: Scope::HotZone,
        table_7_1: Characteristics {
            reads: 146_782,
            read_kb: 6.152,
            service_ms: 13.039,
            writes: 240_632,
            write_kb: 6.726,
            write_service_ms: 12.714,
        },
        table_7_2: None,
        table_7_3: Some([[57_059, 398, 143_191], [54_057, 0, 141_814], [59_592, 0, 145_871]]),
        cold_blocks: None,
        ..snake_5(load)
    }
}

/// The disk of the workstation.
pub fn hplajw_0(load: Load) -> Disk {
    Disk {
        name: "hplajw disk 0",
        profile: "hp-2200a",
        load,
        scope: Scope::All,
        note: Some(
            "The load is the trace given with --hplajw; the thesis has 18 April to 11 May 1992.",
        ),
        is_whole: false,
        low: 15,
        table_7_1: Characteristics {
            reads: 41_080,
            read_kb: 4.409,
            service_ms: 25.346,
            writes: 82_054,
            write_kb: 6.024,
            write_service_ms: 27.475,
        },
        table_7_2: Some([
            [30_187, 17_083, 30_243],
            [53_569, 29_928, 29_165],
            [34_633, 20_573, 27_553],
        ]),
        table_7_3: None,
        cold_blocks: None,
    }
}

/// Sizes of the memory in figures over size, in KB.
pub(super) const SIZES_KB: [u64; 5] = [128, 256, 512, 1024, 2048];
/// Sizes in Figure 7.8; the thesis does not say which three it has.
pub(super) const ZONE_SIZES_KB: [u64; 3] = [128, 256, 512];

/// The chain of section 7.3, for sectors of 512 bytes as in Table 7.1.
pub(super) fn cleaning_chain(cache_kb: u64, cold_blocks: f64) -> CleaningChain {
    CleaningChain::with_grouping(Grouping {
        cache_kilobytes: cache_kb as f64,
        blocks_per_kilobyte: 2.0,
        usable_fraction: 0.8,
        grouping_factor: 8.0,
        cold_blocks,
    })
    .expect("the sizes are constants")
}

fn figure(
    disk: &Disk,
    number: &str,
    what: &str,
    x_axis: &str,
    y_axis: &str,
    series: Vec<Series>,
) -> Figure {
    Figure {
        name: format!("figure-{number}-{}", disk.name.replace(' ', "-")),
        picture: Picture::Curves(Plot {
            title: format!("Figure {number}: {what}, {}", disk.name),
            x_axis: x_axis.into(),
            y_axis: y_axis.into(),
            log_y: false,
            series,
        }),
        notes: disk.note.into_iter().map(str::to_owned).collect(),
    }
}

fn figure_7_8(disk: &Disk, runs: &Experiments) -> Figure {
    let writes = |kb: u64, percent| {
        let run = runs.get(&Experiments::hot_zone(kb, percent, disk.low));
        (kb as f64 * f64::from(percent) / 100.0, run.disk_writes as f64)
    };
    let mut series: Vec<Series> = ZONE_SIZES_KB
        .iter()
        .map(|kb| Series {
            name: format!("{kb} KB"),
            points: experiments::ZONES.iter().map(|percent| writes(*kb, *percent)).collect(),
        })
        .collect();
    let ys = series.iter().flat_map(|series| &series.points).map(|point| point.1);
    let (low, high) = ys.fold((f64::MAX, 0.0f64), |(low, high), y| (low.min(y), high.max(y)));
    let knee_kb = runs.knee_bytes as f64 / 1024.0;
    let points = vec![(knee_kb, low), (knee_kb, high)];
    series.push(Series { name: "knee of the hit ratio".into(), points });
    let x_axis = "size of the hot zone, KB";
    figure(disk, "7.8", "writes to disk by hot zone", x_axis, "writes to disk", series)
}

fn figure_7_12(disk: &Disk, runs: &Experiments) -> Option<Figure> {
    let cold_blocks = disk.cold_blocks?;
    let simulated = SIZES_KB.map(|kb| {
        let run = runs.get(&Experiments::dual("lru", kb, CHAIN_LOW));
        (kb as f64, run.cleanings as f64 / run.writes.max(1) as f64)
    });
    let modelled = SIZES_KB.map(|kb| (kb as f64, cleaning_chain(kb, cold_blocks).p_clean()));
    let series = vec![
        Series { name: "simulated, LRU, 90 and 10 %".into(), points: simulated.to_vec() },
        Series { name: "cleaning chain, grouping factor 8".into(), points: modelled.to_vec() },
    ];
    let (x_axis, y_axis) = ("size of the memory, KB", "p_clean");
    Some(figure(disk, "7.12", "a write starts a cleaning", x_axis, y_axis, series))
}

/// Figures 4.1 and 7.1 to 7.13 of a disk, or as many of them as its scope says.
pub fn figures(disk: &Disk, runs: &Experiments) -> Vec<Figure> {
    let mut all = match disk.scope {
        Scope::All => {
            let plots = Plots { disk, runs };
            let sizes = sizes_and_thresholds(&plots);
            sizes.into_iter().chain(zones_and_idle_time(&plots)).collect()
        }
        Scope::HotZone => Vec::new(),
    };
    all.push(figure_7_8(disk, runs));
    all.extend(figure_7_12(disk, runs));
    all.sort_by_key(|figure| {
        // Of two numbers: 7.2 before 7.10.
        let numbers = figure.name.trim_start_matches("figure-").split(['.', '-']);
        numbers.take(2).map(|number| number.parse().unwrap_or(0)).collect::<Vec<u32>>()
    });
    all
}

const POLICIES: [&str; 3] = ["lru", "stf", "lst"];
const OVER_SIZE: &str = "size of the memory, KB";

/// Figures of one disk, from the runs that were made on it.
struct Plots<'a> {
    disk: &'a Disk,
    runs: &'a Experiments,
}

impl Plots<'_> {
    fn behind(&self, policy: &str, kb: u64) -> Run {
        self.runs.get(&Experiments::write_behind(policy, kb))
    }

    fn dual(&self, policy: &str, kb: u64) -> Run {
        self.runs.get(&Experiments::dual(policy, kb, self.disk.low))
    }

    /// A series for each policy over the size of the memory.
    fn of(&self, run: impl Fn(&str, u64) -> Run, y: fn(&Run) -> f64) -> Vec<Series> {
        let series = |policy: &&str| Series {
            name: policy.to_uppercase(),
            points: SIZES_KB.iter().map(|kb| (*kb as f64, y(&run(policy, *kb)))).collect(),
        };
        POLICIES.iter().map(series).collect()
    }

    fn over(
        &self,
        values: &[u8],
        key: impl Fn(u8) -> String,
        y: fn(&Run) -> f64,
        name: &str,
    ) -> Series {
        let point = |v: &u8| (f64::from(*v), y(&self.runs.get(&key(*v))));
        Series { name: name.to_owned(), points: values.iter().map(point).collect() }
    }

    /// A series for each policy over a threshold.
    fn thresholds(
        &self,
        key: impl Fn(&str, u8) -> String,
        values: &[u8],
        y: fn(&Run) -> f64,
    ) -> Vec<Series> {
        let series =
            |policy: &&str| self.over(values, |v| key(policy, v), y, &policy.to_uppercase());
        POLICIES.iter().map(series).collect()
    }

    fn by_zone(&self, y: fn(&Run) -> f64) -> Vec<Series> {
        let key = |v| Experiments::hot_zone(128, v, self.disk.low);
        vec![self.over(&experiments::ZONES, key, y, "stack model, 128 KB")]
    }

    fn idle(&self, y: fn(&Run) -> f64, name: &str, at_once: &str) -> Series {
        let run = |ms| self.runs.get(&Experiments::idle(ms, self.disk.low, at_once));
        let points = experiments::IDLES_MS.iter().map(|ms| (*ms as f64, y(&run(*ms))));
        Series { name: name.to_owned(), points: points.collect() }
    }

    fn plot(&self, number: &str, what: &str, x: &str, y: &str, series: Vec<Series>) -> Figure {
        figure(self.disk, number, what, x, y, series)
    }
}

fn stalled(run: &Run) -> f64 {
    run.stalled_writes as f64
}

fn writes(run: &Run) -> f64 {
    run.disk_writes as f64
}

/// Sections 4.1 to 7.2.
fn sizes_and_thresholds(plots: &Plots<'_>) -> Vec<Figure> {
    let Plots { disk, runs } = plots;
    let high = |policy: &str, v: u8| Experiments::single(policy, v);
    let low = |policy: &str, v: u8| Experiments::dual(policy, 256, v);
    let (lows, highs) = (&experiments::LOWS, &experiments::HIGHS);
    let mut all_4 = plots.thresholds(low, lows, writes);
    // Single points: what the text prints, of a load that is as long as ours.
    if let (true, Some(table)) = (disk.is_whole, disk.table_7_2) {
        for (policy, row) in ["LRU", "LST", "STF"].into_iter().zip(table) {
            let points = vec![(f64::from(disk.low), row[2] as f64)];
            all_4.push(Series { name: format!("thesis, Table 7.2, {policy}"), points });
        }
    }
    let hits = runs.hit_ratio.iter().map(|(bytes, share)| (*bytes as f64 / 1024.0, *share));
    let hits = vec![Series { name: "LRU, by stack distances".into(), points: hits.collect() }];
    let dual = |policy: &str, kb: u64| plots.dual(policy, kb);
    vec![
        plots.plot(
            "4.1",
            "hit ratio by size of the memory",
            OVER_SIZE,
            "share of writes found",
            hits,
        ),
        plots.plot(
            "7.1",
            "stalled writes, write behind",
            OVER_SIZE,
            "stalled writes",
            plots.of(|policy, kb| plots.behind(policy, kb), stalled),
        ),
        plots.plot(
            "7.2",
            "stalled writes, one threshold, 256 KB",
            "threshold, %",
            "stalled writes",
            plots.thresholds(high, highs, stalled),
        ),
        plots.plot(
            "7.3",
            "stalled writes, two thresholds, 256 KB",
            "low threshold, %",
            "stalled writes",
            plots.thresholds(low, lows, stalled),
        ),
        plots.plot(
            "7.4",
            "writes to disk, two thresholds, 256 KB",
            "low threshold, %",
            "writes to disk",
            all_4,
        ),
        plots.plot(
            "7.5",
            "stalled writes, two thresholds",
            OVER_SIZE,
            "stalled writes",
            plots.of(dual, stalled),
        ),
        plots.plot(
            "7.6",
            "mean service time, two thresholds",
            OVER_SIZE,
            "ms",
            plots.of(dual, |run| run.service_ms),
        ),
        plots.plot(
            "7.7",
            "mean queue time of writes, two thresholds",
            OVER_SIZE,
            "ms",
            plots.of(dual, |run| run.write_queue_ms),
        ),
    ]
}

/// Sections 7.3 on.
fn zones_and_idle_time(plots: &Plots<'_>) -> Vec<Figure> {
    let disk = plots.disk;
    let stack = SIZES_KB.iter().map(|kb| (*kb as f64, writes(&plots.dual("stack", *kb))));
    let mut all_11 = plots.of(|policy, kb| plots.dual(policy, kb), writes);
    all_11.push(Series { name: "stack model".into(), points: stack.collect() });
    if let (true, Some(table)) = (disk.is_whole, disk.table_7_3) {
        for (policy, row) in ["LRU", "LST", "stack model"].into_iter().zip(table) {
            let points = vec![(128.0, row[0] as f64)];
            all_11.push(Series { name: format!("thesis, Table 7.3, {policy}"), points });
        }
    }
    vec![
        plots.plot(
            "7.9",
            "writes to disk by hot zone",
            "hot zone, % of the memory",
            "writes to disk",
            plots.by_zone(writes),
        ),
        plots.plot(
            "7.10",
            "stalled writes by hot zone",
            "hot zone, % of the memory",
            "stalled writes",
            plots.by_zone(stalled),
        ),
        plots.plot("7.11", "writes to disk by size", OVER_SIZE, "writes to disk", all_11),
        plots.plot(
            "7.13",
            "response times with idle detection",
            "idle time before cleaning, ms",
            "ms",
            vec![
                plots.idle(|run| run.read_response_ms, "reads, all groups at once", "all"),
                plots.idle(|run| run.read_response_ms, "reads, one group at a time", "1"),
                plots.idle(|run| run.write_response_ms, "writes, all groups at once", "all"),
                plots.idle(|run| run.write_response_ms, "writes, one group at a time", "1"),
            ],
        ),
    ]
}
