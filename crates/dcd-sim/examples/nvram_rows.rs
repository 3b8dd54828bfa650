//! How near `--policy auto` comes to the best of 48 fixed settings of a non-volatile memory: for
//! each load, disk and size the mean response of writes, over that of the best. The traces
//! lie in a folder that `DCD_DATA` names (docs/traces.md); without it there are only made-up loads.
//!
//! `nvram_rows design|held-out [arms]`; the table of docs/simulation.md is its output. With `arms`:
//! what each of the sets that `auto` tries does alone.

use std::error::Error;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use dcd_engine::Duration;
use dcd_engine::nvram::control::arms::ARMS;
use dcd_engine::nvram::{HotZoneSize, NvramConfig, NvramPolicyKind};
use dcd_sim::disk::model::DiskModel;
use dcd_sim::disk::profile::Profile;
use dcd_sim::replay::{Pace, Replay};
use dcd_sim::target::setup::{Groups, Head, NvramSetup, Setup};
use dcd_sim::trace::{Request, TraceReader};
use dcd_sim::workload::{Value, WorkloadKind, WorkloadSpec};

/// A load, and whether the next request waits for the one before.
struct Load {
    name: &'static str,
    is_closed: bool,
    requests_max: usize,
}

const fn load(name: &'static str, is_closed: bool, requests_max: usize) -> Load {
    Load { name, is_closed, requests_max }
}

/// With these constants were chosen.
const DESIGN: &[Load] = &[
    load("traces/hplajw_d0_dev_sat-tue.csv.zst", false, usize::MAX),
    load("traces/sqlite_delete_ext4.csv.zst", true, usize::MAX),
    load("traces/postmark_def_ext2sync.csv.zst", true, usize::MAX),
    load("traces/untar_ext2sync_u1.csv.zst", true, usize::MAX),
    load("hot-cold", false, 20_000),
];
/// With these they were not.
const HELD_OUT: &[Load] = &[
    load("traces/wiscsee_sqlitewal_update.csv.zst", true, usize::MAX),
    load("traces/msr_hm_sample1000.csv.zst", false, usize::MAX),
    load("traces/umass_financial1_first10k.csv.zst", false, usize::MAX),
    load("traces/untar_ext2sync_u4.csv.zst", true, usize::MAX),
    load("bursts", false, 20_000),
    load("zipf", false, 20_000),
    load("snake", false, 30_000),
];
const DESIGN_DISKS: &[&str] = &["hp-2200a", "hp-97560", "wd400bb"];
const HELD_OUT_DISKS: &[&str] = &["hp-c3323a", "barracuda-4lp-4gb"];
const DESIGN_KIB: &[u64] = &[128, 512];
const HELD_OUT_KIB: &[u64] = &[256, 1024];
const THRESHOLDS: [(u8, u8); 6] = [(90, 20), (90, 80), (100, 100), (60, 30), (30, 0), (10, 0)];
const HOT_ZONES: [u8; 6] = [10, 25, 40, 55, 75, 90];

fn fixed() -> Vec<(String, NvramConfig)> {
    let mut settings = Vec::new();
    for (high_percent, low_percent) in THRESHOLDS {
        let config = NvramConfig { high_percent, low_percent, ..NvramConfig::default() };
        let mut add = |name: String, policy, hot_zone| {
            let name = format!("{name} {high_percent}/{low_percent}");
            settings.push((name, NvramConfig { policy, hot_zone, ..config }));
        };
        add("lru".into(), NvramPolicyKind::Lru, HotZoneSize::Found);
        add("lst".into(), NvramPolicyKind::Lst, HotZoneSize::Found);
        for percent in HOT_ZONES {
            let zone = HotZoneSize::Percent(percent);
            add(format!("stack {percent}"), NvramPolicyKind::Stack, zone);
        }
    }
    settings
}

/// What came of a setting.
#[derive(Clone, Copy)]
struct Times {
    write_ms: f64,
    all_ms: f64,
    disk_writes: u64,
}

/// A load on a disk with a memory.
struct Row<'a> {
    load: &'a Load,
    disk: &'a str,
    kib: u64,
}

impl Load {
    fn requests(&self, capacity_bytes: u64) -> Result<Vec<Request>, Box<dyn Error>> {
        let mut requests: Vec<Request> = match self.name.contains('.') {
            true => {
                let data = std::env::var("DCD_DATA")?;
                let reader = TraceReader::open(&Path::new(&data).join(self.name), None)?;
                reader.take(self.requests_max).collect::<Result<_, _>>()?
            }
            false => self.workload()?.workload()?.take(self.requests_max).collect(),
        };
        for request in &mut requests {
            // Of a larger disk: what lies behind the end lies in front of it.
            request.device = 0;
            request.offset_bytes %= capacity_bytes;
            let last = capacity_bytes.saturating_sub(request.size_bytes);
            request.offset_bytes = request.offset_bytes.min(last) / 512 * 512;
        }
        Ok(requests)
    }

    fn workload(&self) -> Result<WorkloadSpec, Box<dyn Error>> {
        Ok(match self.name {
            "hot-cold" => WorkloadSpec::new(WorkloadKind::HotCold),
            "bursts" => WorkloadSpec::new(WorkloadKind::Bursts),
            "zipf" => WorkloadSpec::new(WorkloadKind::Zipf).with("reads", Value::Number(30.0))?,
            _ => WorkloadSpec::new(WorkloadKind::Snake).with("disk", Value::Whole(0))?,
        })
    }
}

impl Row<'_> {
    fn run(&self, requests: &[Request], config: NvramConfig) -> Result<Times, Box<dyn Error>> {
        let config = NvramConfig { capacity_blocks: self.kib * 2, ..config };
        let nvram = Some(NvramSetup { config, groups: Groups::Tracks, head: Head::Model });
        let setup = Setup { nvram, ..Setup::of(Profile::load(self.disk)?, 0) };
        let pace = match self.load.is_closed {
            true => Pace::Closed,
            false => Pace::Open { stretch: 1.0 },
        };
        let mut replay = Replay::new(setup.build()?, pace);
        for request in requests {
            replay.add(request)?;
        }
        let facts = replay.finish();
        let mean =
            |times: Option<dcd_sim::distribution::Percentiles>| times.map_or(0.0, |it| it.mean);
        let (write_ms, read_ms) = (mean(facts.write.response_ms), mean(facts.read.response_ms));
        let (writes, reads) = (facts.writes as f64, facts.reads as f64);
        let all_ms = (write_ms * writes + read_ms * reads) / (writes + reads).max(1.0);
        Ok(Times { write_ms, all_ms, disk_writes: facts.target.disk_writes })
    }

    fn compare(&self, is_arms: bool) -> Result<(String, [f64; 4]), Box<dyn Error>> {
        let disk = DiskModel::new(&Profile::load(self.disk)?, 0).map_err(|it| format!("{it:?}"))?;
        let requests = self.load.requests(disk.capacity_bytes())?;
        let auto = NvramConfig { policy: NvramPolicyKind::Auto, ..NvramConfig::default() };
        let auto = self.run(&requests, auto)?;
        if is_arms {
            let mut text = format!("auto {:.3} of all {:.3}", auto.write_ms, auto.all_ms);
            for arm in ARMS {
                let config = arm.config(&NvramConfig::default());
                let deep_idle = Some(Duration::from_millis(1000));
                let times = self.run(&requests, NvramConfig { deep_idle, ..config })?;
                text += &format!(" | {} {:.3}", arm.name, times.write_ms);
            }
            return Ok((text, [1.0; 4]));
        }
        let (mut best, mut lru) = (None::<(String, Times)>, None);
        for (name, config) in fixed() {
            let times = self.run(&requests, config)?;
            lru = lru.or(Some(times));
            if best.as_ref().is_none_or(|(_, best)| times.write_ms < best.write_ms) {
                best = Some((name, times));
            }
        }
        let ((name, best), lru) = (best.ok_or("no setting")?, lru.ok_or("no setting")?);
        let over = |a: f64, b: f64| (a + 0.02) / (b + 0.02);
        let ratios = [
            over(auto.write_ms, best.write_ms),
            over(auto.write_ms, lru.write_ms),
            over(auto.all_ms, best.all_ms),
            auto.disk_writes as f64 / best.disk_writes.max(1) as f64,
        ];
        let [to_best, to_lru, all, writes] = ratios;
        let text = format!(
            "{name} | {:.3} | {:.3} | {to_best:.3} | {to_lru:.3} | {all:.3} | {writes:.2}",
            best.write_ms, auto.write_ms
        );
        Ok((text, ratios))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_arms = arguments.iter().any(|it| it == "arms");
    let (loads, disks, sizes) = match arguments.first().map(String::as_str) {
        Some("design") => (DESIGN, DESIGN_DISKS, DESIGN_KIB),
        Some("held-out") => (HELD_OUT, HELD_OUT_DISKS, HELD_OUT_KIB),
        _ => return Err("expected design or held-out".into()),
    };
    let has_data = std::env::var("DCD_DATA").is_ok();
    let mut rows = Vec::new();
    for load in loads.iter().filter(|load| has_data || !load.name.contains('.')) {
        for disk in disks {
            rows.extend(sizes.iter().map(|kib| Row { load, disk, kib: *kib }));
        }
    }
    println!(
        "| load | disk | KiB | best fixed | its ms | auto ms | to best | to lru 90/20 | all requests | disk writes |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let next = AtomicUsize::new(0);
    let all_ratios = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(row) = rows.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let name = row.load.name.trim_start_matches("traces/");
                    let name = name.split('.').next().unwrap_or(name);
                    match row.compare(is_arms) {
                        Ok((text, ratios)) => {
                            println!("| {name} | {} | {} | {text} |", row.disk, row.kib);
                            all_ratios.lock().expect("no panic").push(ratios);
                        }
                        Err(problem) => {
                            println!("| {name} | {} | {} | {problem} |", row.disk, row.kib)
                        }
                    }
                }
            });
        }
    });
    let ratios = all_ratios.into_inner()?;
    let of = |index: usize| ratios.iter().map(move |row| row[index]);
    for (index, what) in ["best", "lru 90/20", "all requests"].into_iter().enumerate() {
        let count = of(index).count();
        let within = |limit: f64| of(index).filter(|ratio| *ratio <= limit).count();
        let geometric = (of(index).map(f64::ln).sum::<f64>() / count as f64).exp();
        println!(
            "to {what}: {count} rows, {} within 5 %, {} within 15 %, worst {:.3}, geometric mean {geometric:.3}",
            within(1.05),
            within(1.15),
            of(index).fold(0.0, f64::max)
        );
    }
    Ok(())
}
