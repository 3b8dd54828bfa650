//! The simulations behind [`super::dcd_unix`]: users who unpack, copy and remove trees, on the bare
//! disk and with the log of the engine on its first 64 MB.

use std::collections::BTreeMap;

use dcd_engine::{AckMode, DestagePolicyKind, Duration, EngineConfig};

use super::{ExperimentError, parallel};
use crate::crowd::{self, CrowdFacts};
use crate::disk::model::DiskModel;
use crate::disk::profile::Profile;
use crate::pace::Pace;
use crate::sweep::{Load, Point};
use crate::target::setup::{LogSetup, Setup};
use crate::workload::{Value, WorkloadKind, WorkloadSpec};

/// "A 4 GB, high performance Seagate Barracuda" (section 4.1).
pub const PROFILE: &str = "barracuda-4lp-4gb";
/// "The averages of three experimental runs" (section 4.2).
const SEEDS: u64 = 3;
/// Long enough for all destaging.
const REST: Duration = Duration::from_secs(600);
/// Written for Figure 10.
const BANDWIDTH_BYTES: u64 = 20 << 20;
pub(super) const USERS: [u64; 3] = [1, 4, 8];
/// Sizes in Figure 10.
pub(super) const SIZES_KB: [u64; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// What users do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Task {
    /// Unpack an archive.
    Untar,
    /// Copy the tree, which has to be read from the disk.
    Copy,
    /// Copy it when it is in memory.
    WarmCopy,
    /// Remove it.
    Remove,
}

impl Task {
    const ALL: [Task; 4] = [Task::Untar, Task::Copy, Task::WarmCopy, Task::Remove];

    /// Places of the words in the keys `task` and `page-cache` of the workload.
    fn words(self) -> [u64; 2] {
        match self {
            Task::Untar => [1, 0],
            Task::Copy => [2, 0],
            Task::WarmCopy => [2, 1],
            Task::Remove => [3, 0],
        }
    }

    fn spec(self, users: u64, seed: u64) -> WorkloadSpec {
        let [task, page_cache] = self.words();
        let keys = [("users", users), ("task", task), ("page-cache", page_cache), ("seed", seed)];
        keys.into_iter().fold(WorkloadSpec::new(WorkloadKind::Users), |spec, (key, value)| {
            spec.with(key, Value::Whole(value)).expect("it has such keys")
        })
    }
}

/// Several runs of the same, which differ in their seed only.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Runs {
    /// Mean time until the last user was done.
    pub elapsed_s: f64,
    /// Mean time that the processor was busy.
    pub thinking_s: f64,
    /// Mean number of reads and writes of the disk, those after the end for destaging too.
    pub disk_requests: f64,
    /// Response times of all reads of all runs, the shortest first.
    pub reads_ms: Vec<f64>,
    /// The same of writes.
    pub writes_ms: Vec<f64>,
}

/// All simulations.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct UnixRuns {
    runs: BTreeMap<(Task, u64, bool), Runs>,
    /// Bytes per second of random writes of each size.
    pub bandwidth: Vec<(u64, f64)>,
}

enum Job {
    Users { task: Task, users: u64, has_log: bool, seed: u64 },
    Bandwidth { kb: u64 },
}

enum Outcome {
    Users((Task, u64, bool), Box<CrowdFacts>),
    Bandwidth(u64, f64),
}

/// Section 4.1: "the first 64 MB of the disk used as the cache-disk partition", segments of 128 KB,
/// "the RAM buffer size of the DCD driver was 256 KB"; 3.5.1: immediate report, requests of 64 KB
/// and more go past the log, data is in the cache-disk "within several hundreds of milliseconds";
/// 3.5.3: last write first. Our engine wants three segment buffers: 384 KB.
pub(super) fn setup(disk: &Profile, has_log: bool) -> Setup {
    let config = EngineConfig {
        ack: AckMode::Memory,
        bypass_threshold_bytes: 64 << 10,
        destage_policy: DestagePolicyKind::LastWriteFirst,
        segment_buffers: 3,
        max_delay: Duration::from_millis(400),
        one_disk: true,
        ..EngineConfig::default()
    };
    let (cache_bytes, segment_bytes) = (64 << 20, 128 << 10);
    let (cache_disk, read_area_bytes) = (disk.clone(), 0);
    let log = LogSetup { cache_disk, cache_bytes, read_area_bytes, segment_bytes, config };
    Setup { log: has_log.then_some(log), ..Setup::of(disk.clone(), 0) }
}

/// Writes of one size anywhere on the disk, each when the one before is done.
pub(super) fn random_writes(count: u64, size_bytes: u64, span_bytes: u64) -> Load {
    let whole = |spec: WorkloadSpec, key, value| {
        spec.with(key, Value::Whole(value)).expect("uniform has such a key")
    };
    let spec = WorkloadSpec::new(WorkloadKind::Uniform);
    let spec = whole(whole(spec, "requests", count), "size", size_bytes);
    let spec = whole(spec, "span", span_bytes / size_bytes * size_bytes);
    let number = |spec: WorkloadSpec, key, value| {
        spec.with(key, Value::Number(value)).expect("uniform has such a key")
    };
    Load::Workload(number(number(spec, "reads", 0.0), "rate", 1e9))
}

impl UnixRuns {
    /// What came of it.
    ///
    /// # Panics
    /// If there was no such run.
    pub fn get(&self, task: Task, users: u64, has_log: bool) -> &Runs {
        &self.runs[&(task, users, has_log)]
    }

    /// Simulates all that the figures need; tells `progress` how many of how many are done.
    ///
    /// # Errors
    /// If the profile cannot be read, or a simulation fails.
    pub fn run(
        jobs: usize,
        progress: impl FnMut(usize, usize) + Send,
    ) -> Result<UnixRuns, ExperimentError> {
        let profile = Profile::load(PROFILE)?;
        let mut todo: Vec<Job> = SIZES_KB.map(|kb| Job::Bandwidth { kb }).into_iter().collect();
        for task in Task::ALL {
            for users in USERS {
                for has_log in [false, true] {
                    todo.extend((0..SEEDS).map(|seed| Job::Users { task, users, has_log, seed }));
                }
            }
        }
        let outcomes = parallel::map(&todo, jobs, progress, |job| job.run(&profile));
        let mut found = UnixRuns::default();
        for outcome in outcomes {
            match outcome.map_err(failed)? {
                Outcome::Users(key, facts) => found.runs.entry(key).or_default().add(&facts),
                Outcome::Bandwidth(kb, bytes_per_second) => {
                    found.bandwidth.push((kb, bytes_per_second));
                }
            }
        }
        for runs in found.runs.values_mut() {
            runs.reads_ms.sort_unstable_by(f64::total_cmp);
            runs.writes_ms.sort_unstable_by(f64::total_cmp);
        }
        Ok(found)
    }
}

fn failed(problem: String) -> ExperimentError {
    ExperimentError::Failed { what: "the UNIX driver".into(), problem }
}

impl Job {
    fn run(&self, profile: &Profile) -> Result<Outcome, String> {
        match *self {
            Job::Users { task, users, has_log, seed } => {
                let streams =
                    task.spec(users, seed).streams().map_err(|error| error.to_string())?;
                let setup = Setup { seed, ..setup(profile, has_log) };
                let target = setup.build().map_err(|error| error.to_string())?;
                let facts = crowd::replay(target, streams, REST);
                let facts = Box::new(facts.map_err(|error| error.to_string())?);
                Ok(Outcome::Users((task, users, has_log), facts))
            }
            Job::Bandwidth { kb } => {
                let span_bytes =
                    DiskModel::new(profile, 0).expect("the profile was checked").capacity_bytes();
                let load = random_writes(BANDWIDTH_BYTES / (kb << 10), kb << 10, span_bytes);
                let setup = setup(profile, false);
                let point = Point {
                    labels: Vec::new(),
                    setup,
                    pace: Pace::Closed,
                    sequences: None,
                    memory_max: None,
                };
                let facts = point.run(&load)?;
                Ok(Outcome::Bandwidth(kb, BANDWIDTH_BYTES as f64 / facts.duration_s))
            }
        }
    }
}

impl Runs {
    fn add(&mut self, facts: &CrowdFacts) {
        let share = 1.0 / SEEDS as f64;
        self.elapsed_s += share * facts.duration.0 as f64 / 1e9;
        self.thinking_s += share * facts.thinking.0 as f64 / 1e9;
        let requests = facts.rested.disk_reads + facts.rested.disk_writes;
        self.disk_requests += share * requests as f64;
        let ms = |time: &Duration| time.0 as f64 / 1e6;
        self.reads_ms.extend(facts.reads.iter().map(ms));
        self.writes_ms.extend(facts.writes.iter().map(ms));
    }

    /// Share of the time that the processor was busy.
    pub(super) fn thinking_percent(&self) -> f64 {
        100.0 * self.thinking_s / self.elapsed_s.max(1e-9)
    }
}
