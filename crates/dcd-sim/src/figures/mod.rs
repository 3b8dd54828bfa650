//! The thesis' experiments with a write cache (Haining 2000, chapters 4 and 7) on the engine of this project: its
//! figures and tables with our numbers beside its own, and its findings as statements that hold or do not.
//!
//! The traces of `snake` are not to be had: [`crate::workload`] makes up a load like its disk 5. Whoever has the trace
//! `hplajw` can have the figures of its disk 0, too.

mod experiments;
mod findings;

pub use experiments::{ExperimentError, Experiments, Run};
pub use findings::{Finding, findings};
use serde::Serialize;

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
    /// Low threshold of the thesis, in percent.
    pub low: u8,
    /// Rows of its Table 7.2 for this disk, in disk writes: write behind, single, dual threshold of LRU, LST, STF.
    pub table_7_2: [[u64; 3]; 3],
}

/// A figure: curves, and where they come from.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Of the file.
    pub name: String,
    /// The curves.
    pub plot: Plot,
}

/// A value beside that of the thesis.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Compared {
    /// Which table.
    pub table: &'static str,
    /// Which disk.
    pub disk: String,
    /// What is counted, of which policy.
    pub what: String,
    /// The thesis'.
    pub printed: u64,
    /// Ours.
    pub ours: u64,
}

/// Sizes of the memory in figures over size, in KB.
pub const SIZES_KB: [u64; 5] = [128, 256, 512, 1024, 2048];

/// Figures 4.1, 7.1 to 7.6, 7.9 to 7.11 and 7.13 of a disk.
pub fn figures(disk: &Disk, runs: &Experiments) -> Vec<Figure> {
    let of = |run: &dyn Fn(&str, u64) -> Run, y: fn(&Run) -> f64| {
        let series = |policy: &&str| Series {
            name: policy.to_uppercase(),
            points: SIZES_KB.iter().map(|kb| (*kb as f64, y(&run(policy, *kb)))).collect(),
        };
        ["lru", "stf", "lst"].iter().map(series).collect::<Vec<_>>()
    };
    let behind = |policy: &str, kb: u64| runs.get(&Experiments::write_behind(policy, kb));
    let dual = |policy: &str, kb: u64| runs.get(&Experiments::dual(policy, kb, disk.low));
    let stalled = |run: &Run| run.stalled_writes as f64;
    let writes = |run: &Run| run.disk_writes as f64;
    let over_size = "size of the memory, KB";
    let over = |values: &[u8], key: &dyn Fn(u8) -> String, y: fn(&Run) -> f64, name: &str| Series {
        name: name.to_owned(),
        points: values.iter().map(|v| (f64::from(*v), y(&runs.get(&key(*v))))).collect(),
    };
    let thresholds = |key: &dyn Fn(&str, u8) -> String, values: &[u8], y: fn(&Run) -> f64| {
        let series = |policy: &&str| over(values, &|v| key(policy, v), y, &policy.to_uppercase());
        ["lru", "stf", "lst"].iter().map(series).collect::<Vec<_>>()
    };
    let lows = &experiments::LOWS;
    let zones = &experiments::ZONES;
    let zone = |y: fn(&Run) -> f64| {
        vec![over(zones, &|v| Experiments::hot_zone(v, disk.low), y, "stack model, 128 KB")]
    };
    let idle = |y: fn(&Run) -> f64, name: &str, at_once: &str| Series {
        name: name.to_owned(),
        points: experiments::IDLES_MS
            .iter()
            .map(|ms| (*ms as f64, y(&runs.get(&Experiments::idle(*ms, disk.low, at_once)))))
            .collect(),
    };
    let plot = |number: &str, what: &str, x: &str, y: &str, series: Vec<Series>| Figure {
        name: format!("figure-{number}-{}", disk.name.replace(' ', "-")),
        plot: Plot {
            title: format!("Figure {number}: {what}, {}", disk.name),
            x_axis: x.into(),
            y_axis: y.into(),
            log_y: false,
            series,
        },
    };
    let high = |policy: &str, v: u8| Experiments::single(policy, v);
    let low = |policy: &str, v: u8| Experiments::dual(policy, 256, v);
    let both = |policy: &str, kb: u64| runs.get(&Experiments::dual(policy, kb, disk.low));
    let stack = SIZES_KB.iter().map(|kb| (*kb as f64, both("stack", *kb).disk_writes as f64));
    let mut all_11 = of(&dual, writes);
    all_11.push(Series { name: "stack model".into(), points: stack.collect() });
    vec![
        plot("4.1", "hit ratio by size of the memory", over_size, "share of writes found", {
            let points =
                runs.hit_ratio.iter().map(|(bytes, share)| (*bytes as f64 / 1024.0, *share));
            vec![Series { name: "LRU, by stack distances".into(), points: points.collect() }]
        }),
        plot(
            "7.1",
            "stalled writes, write behind",
            over_size,
            "stalled writes",
            of(&behind, stalled),
        ),
        plot(
            "7.2",
            "stalled writes, one threshold, 256 KB",
            "threshold, %",
            "stalled writes",
            thresholds(&high, &experiments::HIGHS, stalled),
        ),
        plot(
            "7.3",
            "stalled writes, two thresholds, 256 KB",
            "low threshold, %",
            "stalled writes",
            thresholds(&low, lows, stalled),
        ),
        plot(
            "7.4",
            "writes to disk, two thresholds, 256 KB",
            "low threshold, %",
            "writes to disk",
            thresholds(&low, lows, writes),
        ),
        plot(
            "7.5",
            "stalled writes, two thresholds",
            over_size,
            "stalled writes",
            of(&dual, stalled),
        ),
        plot(
            "7.6",
            "mean service time, two thresholds",
            over_size,
            "ms",
            of(&dual, |run| run.service_ms),
        ),
        plot(
            "7.7",
            "mean queue time of writes, two thresholds",
            over_size,
            "ms",
            of(&dual, |run| run.write_queue_ms),
        ),
        plot(
            "7.9",
            "writes to disk by hot zone",
            "hot zone, % of the memory",
            "writes to disk",
            zone(writes),
        ),
        plot(
            "7.10",
            "stalled writes by hot zone",
            "hot zone, % of the memory",
            "stalled writes",
            zone(stalled),
        ),
        plot("7.11", "writes to disk by size", over_size, "writes to disk", all_11),
        plot(
            "7.13",
            "response times with idle detection",
            "idle time before cleaning, ms",
            "ms",
            vec![
                idle(|run| run.read_response_ms, "reads, all groups at once", "all"),
                idle(|run| run.read_response_ms, "reads, one group at a time", "1"),
                idle(|run| run.write_response_ms, "writes, all groups at once", "all"),
                idle(|run| run.write_response_ms, "writes, one group at a time", "1"),
            ],
        ),
    ]
}

/// Tables 7.2 and 7.3.
pub fn tables(disk: &Disk, runs: &Experiments) -> Vec<Compared> {
    let mut rows = Vec::new();
    for (policy, printed) in ["lru", "lst", "stf"].iter().zip(disk.table_7_2) {
        let keys = [
            ("write behind", Experiments::write_behind(policy, 256)),
            ("single threshold", Experiments::single(policy, experiments::SINGLE)),
            ("dual threshold", Experiments::dual(policy, 256, disk.low)),
        ];
        for ((name, key), printed) in keys.into_iter().zip(printed) {
            rows.push(Compared {
                table: "7.2",
                disk: disk.name.into(),
                what: format!("disk writes, {}, {name}", policy.to_uppercase()),
                printed,
                ours: runs.get(&key).disk_writes,
            });
        }
    }
    if disk.name == SNAKE_5 {
        for (policy, printed) in ["lru", "lst", "stack"].iter().zip(TABLE_7_3) {
            let run = runs.get(&Experiments::dual(policy, 128, disk.low));
            let ours = [run.disk_writes, run.stalled_writes, run.overwrites];
            let names = ["disk writes", "stalled writes", "overwrites"];
            for ((name, printed), ours) in names.into_iter().zip(printed).zip(ours) {
                let what = format!("{name}, {}", policy.to_uppercase());
                rows.push(Compared { table: "7.3", disk: disk.name.into(), what, printed, ours });
            }
        }
    }
    rows
}

/// Name of the disk of which there is a Table 7.3.
pub const SNAKE_5: &str = "snake disk 5";
/// Disk writes, stalled writes and overwrites of LRU, LST and the stack model, 128 KB.
const TABLE_7_3: [[u64; 3]; 3] =
    [[33_538, 418, 79_678], [33_895, 85, 76_061], [32_758, 97, 79_980]];

/// The disk that is made up.
pub fn snake_5(load: Load) -> Disk {
    Disk {
        name: SNAKE_5,
        profile: "hp-97560",
        load,
        low: 20,
        table_7_2: [[22_194, 21_155, 26_039], [98_117, 83_010, 28_589], [31_773, 30_227, 25_791]],
    }
}

/// The disk of the workstation.
pub fn hplajw_0(load: Load) -> Disk {
    Disk {
        name: "hplajw disk 0",
        profile: "hp-2200a",
        load,
        low: 15,
        table_7_2: [[30_187, 17_083, 30_243], [53_569, 29_928, 29_165], [34_633, 20_573, 27_553]],
    }
}
