//! The simulations that the figures of a disk need, each once.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use dcd_engine::Duration;
use dcd_engine::nvram::{HotZoneSize, NvramConfig, NvramPolicyKind};

use super::thesis::{Disk, SIZES_KB, Scope, ZONE_SIZES_KB};
use crate::disk::profile::{Profile, ProfileError};
use crate::pace::Pace;
use crate::replay::ReplayFacts;
use crate::sweep::{self, Outcome, Point};
use crate::target::setup::{Groups, Head, NvramSetup, Setup};
use crate::trace::TraceError;

pub(super) const HIGHS: [u8; 5] = [50, 70, 80, 90, 98];
pub(super) const LOWS: [u8; 6] = [10, 15, 20, 40, 60, 85];
/// Up to seven eighths, as in the thesis: a tenth of the memory must stay free.
pub(super) const ZONES: [u8; 8] = [0, 6, 12, 25, 37, 50, 62, 87];
/// With a high threshold of 90 % a cleaning empties the "80% of total cache size" of section 7.3.
pub(super) const CHAIN_LOW: u8 = 10;
const BARE: &str = "bare";
pub(super) const IDLES_MS: [u64; 6] = [0, 10, 50, 200, 500, 1000];
/// The single threshold of Table 7.2: the one with the fewest writes (section 7.1.2).
pub(super) const SINGLE: u8 = 98;

/// What is told of a simulation.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Run {
    /// Writes to the disk.
    pub disk_writes: u64,
    /// Writes that waited for room.
    pub stalled_writes: u64,
    /// Writes that found all their blocks.
    pub overwrites: u64,
    /// Reads of the load.
    pub reads: u64,
    /// Writes of the load.
    pub writes: u64,
    /// Times that the high threshold began a cleaning.
    pub cleanings: u64,
    /// Mean, reads and writes.
    pub service_ms: f64,
    /// Mean.
    pub write_service_ms: f64,
    /// Mean.
    pub write_queue_ms: f64,
    /// Mean.
    pub read_response_ms: f64,
    /// Mean.
    pub write_response_ms: f64,
}

impl Run {
    fn of(facts: &ReplayFacts) -> Run {
        let mean = |times: Option<crate::distribution::Percentiles>| times.map_or(0.0, |t| t.mean);
        let (reads, writes) = (facts.reads as f64, facts.writes as f64);
        let service = mean(facts.read.service_ms) * reads + mean(facts.write.service_ms) * writes;
        Run {
            disk_writes: facts.target.disk_writes,
            stalled_writes: facts.target.stalled_writes,
            overwrites: facts.target.overwrites,
            reads: facts.reads,
            writes: facts.writes,
            cleanings: facts.target.nvram.as_ref().map_or(0, |nvram| nvram.cleanings),
            write_service_ms: mean(facts.write.service_ms),
            service_ms: service / (reads + writes).max(1.0),
            write_queue_ms: mean(facts.write.queue_ms),
            read_response_ms: mean(facts.read.response_ms),
            write_response_ms: mean(facts.write.response_ms),
        }
    }
}

/// The simulations of a disk, by what they are of.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Experiments {
    runs: BTreeMap<String, Run>,
    /// The share of writes that a memory of so many bytes finds.
    pub hit_ratio: Vec<(u64, f64)>,
    /// Where that has its knee.
    pub knee_bytes: u64,
    /// The hot zone that was found for 128 KB.
    pub hot_zone_bytes: u64,
}

/// Settings of the memory that differ from the thesis' usual ones.
struct Settings {
    policy: String,
    kb: u64,
    high: u8,
    low: u8,
    hot_zone: Option<u8>,
    idle_ms: u64,
    groups_at_once: u32,
}

impl Experiments {
    /// No memory.
    pub fn bare() -> String {
        BARE.to_owned()
    }

    /// A group is cleaned when a write needs the room.
    pub fn write_behind(policy: &str, kb: u64) -> String {
        key(policy, kb, 100, 100, "auto", 0, "all")
    }

    /// One threshold, 256 KB.
    pub fn single(policy: &str, percent: u8) -> String {
        key(policy, 256, percent, percent, "auto", 0, "all")
    }

    /// High threshold 90 %.
    pub fn dual(policy: &str, kb: u64, low: u8) -> String {
        key(policy, kb, 90, low, "auto", 0, "all")
    }

    /// The stack model with a hot zone of that part of the memory.
    pub fn hot_zone(kb: u64, percent: u8, low: u8) -> String {
        key("stack", kb, 90, low, &percent.to_string(), 0, "all")
    }

    /// LRU, 128 KB, cleaning on an idle disk, so many groups at once.
    pub fn idle(ms: u64, low: u8, groups_at_once: &str) -> String {
        key("lru", 128, 90, low, "auto", ms, groups_at_once)
    }

    /// The stack model, 128 KB, one group at a time.
    pub fn one_at_a_time(policy: &str, low: u8) -> String {
        key(policy, 128, 90, low, "auto", 0, "1")
    }

    /// What came of it.
    ///
    /// # Panics
    /// If that was not simulated.
    pub fn get(&self, key: &str) -> Run {
        *self.runs.get(key).unwrap_or_else(|| panic!("{key} was not simulated"))
    }

    fn keys(disk: &Disk) -> Vec<String> {
        let low = disk.low;
        let mut keys = vec![Experiments::bare()];
        for policy in ["lru", "lst", "stack"] {
            keys.push(Experiments::dual(policy, 128, low));
        }
        for kb in ZONE_SIZES_KB {
            keys.extend(ZONES.map(|percent| Experiments::hot_zone(kb, percent, low)));
        }
        // The largest memory has the longest curve of hits.
        keys.push(Experiments::dual("stack", 2048, low));
        if disk.scope == Scope::All {
            keys.extend(Experiments::keys_of_section_7_1(low));
        }
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// And of idle detection.
    fn keys_of_section_7_1(low: u8) -> Vec<String> {
        let mut keys = Vec::new();
        for policy in ["lru", "stf", "lst"] {
            keys.extend(SIZES_KB.map(|kb| Experiments::write_behind(policy, kb)));
            keys.extend(HIGHS.map(|percent| Experiments::single(policy, percent)));
            keys.extend(LOWS.map(|low| Experiments::dual(policy, 256, low)));
        }
        for policy in ["lru", "stf", "lst", "stack"] {
            keys.extend(SIZES_KB.map(|kb| Experiments::dual(policy, kb, low)));
        }
        for policy in ["lru", "lst", "stack"] {
            keys.push(Experiments::one_at_a_time(policy, low));
        }
        keys.extend(SIZES_KB.map(|kb| Experiments::dual("lru", kb, CHAIN_LOW)));
        for at_once in ["all", "1"] {
            keys.extend(IDLES_MS.map(|ms| Experiments::idle(ms, low, at_once)));
        }
        keys
    }

    /// Simulates all that the figures of a disk need; tells `progress` how many of how many are
    /// done.
    ///
    /// # Errors
    /// If the profile cannot be read, or a simulation fails; the text says which.
    pub fn run(
        disk: &Disk,
        jobs: usize,
        mut progress: impl FnMut(usize, usize) + Send,
    ) -> Result<Experiments, ExperimentError> {
        let profile = Profile::load(disk.profile)?;
        let keys = Experiments::keys(disk);
        let points: Vec<Point> = keys.iter().map(|key| point(key, &profile)).collect();
        let mut outcomes: Vec<Outcome> = Vec::new();
        let on_load: Vec<_> = points.iter().map(|point| (&disk.load, point)).collect();
        sweep::run(&on_load, 0, jobs, &AtomicBool::new(false), |index, outcome| {
            progress(index + 1, points.len());
            outcomes.push(outcome);
            true
        });
        let mut experiments = Experiments::default();
        for (key, outcome) in keys.into_iter().zip(outcomes) {
            let failed = |problem| ExperimentError::Failed { what: key.clone(), problem };
            let facts = outcome.map_err(failed)?;
            if let Some(nvram) =
                facts.target.nvram.as_ref().filter(|_| key.starts_with("stack,2048"))
            {
                experiments.hit_ratio = nvram.hit_ratio_by_bytes.clone();
                experiments.knee_bytes = nvram.knee_bytes.unwrap_or(0);
            }
            if let Some(nvram) = facts.target.nvram.as_ref()
                && key == Experiments::dual("stack", 128, disk.low)
            {
                experiments.hot_zone_bytes = nvram.hot_zone_bytes.unwrap_or(0);
            }
            experiments.runs.insert(key, Run::of(&facts));
        }
        Ok(experiments)
    }
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The profile of the disk.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A simulation.
    #[error("simulation of {what}: {problem}")]
    Failed {
        /// Which.
        what: String,
        /// Why.
        problem: String,
    },
}

fn key(
    policy: &str,
    kb: u64,
    high: u8,
    low: u8,
    zone: &str,
    idle_ms: u64,
    at_once: &str,
) -> String {
    format!("{policy},{kb},{high},{low},{zone},{idle_ms},{at_once}")
}

fn settings(key: &str) -> Settings {
    let fields: Vec<&str> = key.split(',').collect();
    let number = |index: usize| fields[index].parse::<u64>().expect("a key of ours");
    Settings {
        policy: fields[0].to_owned(),
        kb: number(1),
        high: number(2) as u8,
        low: number(3) as u8,
        hot_zone: fields[4].parse().ok(),
        idle_ms: number(5),
        groups_at_once: fields[6].parse().unwrap_or(u32::MAX),
    }
}

fn point(key: &str, profile: &Profile) -> Point {
    let pace = Pace::Open { stretch: 1.0 };
    if key == BARE {
        let setup = Setup::of(profile.clone(), 0);
        return Point { labels: Vec::new(), setup, pace, sequences: None, memory_max: None };
    }
    let settings = settings(key);
    let config = NvramConfig {
        capacity_blocks: settings.kb * 2,
        policy: match settings.policy.as_str() {
            "lru" => NvramPolicyKind::Lru,
            "stf" => NvramPolicyKind::Stf,
            "lst" => NvramPolicyKind::Lst,
            _ => NvramPolicyKind::Stack,
        },
        high_percent: settings.high,
        low_percent: settings.low.min(settings.high),
        idle: Duration::from_millis(settings.idle_ms),
        groups_at_once: settings.groups_at_once,
        hot_zone: settings.hot_zone.map_or(HotZoneSize::Found, HotZoneSize::Percent),
        ..NvramConfig::default()
    };
    let nvram = Some(NvramSetup { config, groups: Groups::Tracks, head: Head::Model });
    let setup = Setup { nvram, ..Setup::of(profile.clone(), 0) };
    Point { labels: Vec::new(), setup, pace, sequences: None, memory_max: None }
}
