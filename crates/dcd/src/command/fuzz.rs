//! `dcd fuzz`: many runs of the engine on faulty disks, and what came of them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use clap::Args;
use dcd_daemon::process::signals::Signals;
use dcd_daemon::serve::ServeError;
use dcd_daemon::serve::driver_runs::{self, DriverReport};
use dcd_daemon::units_text::parse_duration;
use dcd_fuzz::exhaustive;
use dcd_fuzz::faults::FaultKind;
use dcd_fuzz::minimise::minimise;
use dcd_fuzz::nvram::{self, NvramReport};
use dcd_fuzz::run::Failure;
use dcd_fuzz::session::{Limit, Outcome, Session, Work};
use dcd_fuzz::volume::VolumeKind;
use dcd_fuzz::volume::minimise as volumes;
use dcd_fuzz::volume::options::{LEGS_FROM, TWIN_FROM};
use dcd_fuzz::volume::run::VolumeFailure;
use dcd_study::shard::Shard;
use serde::Serialize;
use serde_json::json;

#[cfg(feature = "s3")]
use super::fuzz_store;
use super::seeded_bugs;
use crate::error::CommandError;
use crate::error::lab::LabError;
use crate::output::{Align, Paint, Table, count};
use crate::progress::{Progress, Unit};
use crate::stdout;

/// Search for ways to lose data.
///
/// Runs the engine on faulty disks in memory, crashes it at any instant, recovers, and compares
/// with a model; no disk of this machine is touched. Everything follows from the seed: the same
/// seed gives the same run. A run that fails is shrunk and printed as a test. Exit code 1 tells of
/// violations. Ctrl-C ends it with what was found.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  dcd fuzz --for 60s
  dcd fuzz --seed 1234
  dcd fuzz --runs 100000 --shard 3/16
  dcd fuzz --faults write-error,hang --runs 500
  dcd fuzz --pairs --runs 10 --json
  dcd fuzz --exhaustive 3
  dcd fuzz --sweep --runs 40
  dcd fuzz --volume raid5 --for 60s
  dcd fuzz --legs --for 60s
  dcd fuzz --ordered --for 60s
  dcd fuzz --volume raid5 --lose-cache-disk --for 60s
  dcd fuzz --nvram --for 60s
  dcd fuzz --store --for 60s
  dcd fuzz --driver --for 60s")]
pub struct FuzzArguments {
    /// Run this seed only; with --runs or --for the first of them [default: 0 for them].
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// How long [default: 10s, if nothing else says when to end].
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration, conflicts_with = "runs")]
    pub time: Option<std::time::Duration>,
    /// How many runs; with --pairs for each pair, with --sweep how many scripts.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub runs: Option<u64>,
    /// Only one of N shards of the runs, numbered from 0: so many seeds in a row. N alone takes the
    /// number from the environment of a Kubernetes job or a Slurm array.
    #[arg(long, value_name = "I/N", requires = "runs")]
    #[arg(conflicts_with_all = ["pairs", "exhaustive", "sweep", "seeded_bugs"])]
    pub shard: Option<Shard>,
    /// Kinds of faults besides crashes; docs/fuzzing.md lists them.
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = parse_fault)]
    pub faults: Vec<FaultKind>,
    /// Two kinds of faults in each run: all pairs in turn.
    #[arg(long, conflicts_with_all = ["faults", "exhaustive", "sweep"])]
    pub pairs: bool,
    /// All sequences of so many of eighteen operations, every I/O a crash point. 3 takes about a
    /// minute, 4 half an hour.
    #[arg(long, value_name = "DEPTH", value_parser = clap::value_parser!(u32).range(1..=5))]
    #[arg(conflicts_with_all = ["faults", "time", "runs"])]
    pub exhaustive: Option<u32>,
    /// Fail the n-th I/O, for every n, on each disk, each of read, write, flush and discard, once
    /// and from then on.
    #[arg(long, conflicts_with_all = ["faults", "exhaustive"])]
    pub sweep: bool,
    /// Random runs on a volume of several members that fail, vanish, come back old and rot: raid0,
    /// raid1, raid5, tiered, which has a set of each, classes, with slow and fast
    /// devices, or replicas, with hot data that is read from fast ones, too.
    #[arg(long, value_name = "KIND", value_parser = parse_volume_kind)]
    #[arg(conflicts_with_all = ["faults", "pairs", "exhaustive", "sweep"])]
    pub volume: Option<VolumeKind>,
    /// Random runs with the cache-disk on two legs: one of them fails, dies, hangs, comes back old,
    /// is left out, is filled again. With --volume, on legs below a volume: the same as its seeds
    /// from 6000000 on.
    #[arg(long, conflicts_with_all = ["faults", "pairs", "exhaustive", "sweep"])]
    pub legs: bool,
    /// Random runs with ordered shipping (--destage-policy ordered): at the end of each window the
    /// data-disk alone must be a point of the order of changes, also when the cache-disk is lost.
    #[arg(long, conflicts_with_all = ["faults", "pairs", "exhaustive", "sweep", "volume", "legs"])]
    pub ordered: bool,
    /// With --volume: the volume has a twin of its tables, and half of the runs lose their cache-disk
    /// and import it. The same as its seeds from 7000000 on.
    #[arg(long, requires = "volume", conflicts_with_all = ["legs"])]
    pub lose_cache_disk: bool,
    /// Runs of the driver (event loop, ring, disks) under a simulated kernel: short transfers, full
    /// queues, completions late and in any order, cancelled and failed operations, pauses.
    #[arg(long, conflicts_with_all = ["faults", "pairs", "exhaustive", "sweep", "volume", "legs", "seeded_bugs", "jobs"])]
    pub driver: bool,
    /// Runs of the memory in front of the log: crashes between any two of its stores, memory that
    /// tears, devices that lose sectors, rot, memories that are old, foreign or gone.
    #[arg(long, conflicts_with_all = ["faults", "pairs", "exhaustive", "sweep", "volume", "legs", "driver", "seeded_bugs", "jobs"])]
    pub nvram: bool,
    /// Runs of a data-disk in an object store, alone and below the engine: the store answers late,
    /// twice, with an error although it has done what was asked, or not at all; whoever has it open
    /// dies at any request; at any change of it the cache-disk is thrown away and the store taken
    /// over. Only in builds with object stores. With --seeded-bugs: only the mistakes made there.
    #[arg(long, conflicts_with_all = ["faults", "pairs", "exhaustive", "sweep", "volume", "legs", "ordered", "driver", "nvram"])]
    pub store: bool,
    /// Are mistakes found that were made on purpose? Turns on one after the other and runs until it
    /// is found, at most --runs times each [default: 1000]. Only in the binary that `make
    /// fuzz-seeded` builds.
    #[arg(long, conflicts_with_all = ["faults", "pairs", "exhaustive", "sweep", "volume", "legs", "time"])]
    pub seeded_bugs: bool,
    /// Threads [default: one for each processor].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub jobs: Option<u32>,
    /// Print one line of JSON.
    #[arg(long)]
    pub json: bool,
}

fn parse_volume_kind(text: &str) -> Result<VolumeKind, String> {
    let names: Vec<&str> = VolumeKind::ALL.iter().map(|kind| kind.name()).collect();
    text.parse().map_err(|error| format!("{error}; there are {}", names.join(", ")))
}

fn parse_fault(text: &str) -> Result<FaultKind, String> {
    text.parse().map_err(|error| {
        let names: Vec<&str> = FaultKind::ALL.iter().map(|kind| kind.name()).collect();
        format!("{error}; there are {}", names.join(", "))
    })
}

/// How long, if nothing says so.
pub(super) const TIME_DEFAULT: Duration = Duration::from_secs(10);
/// Scripts of a sweep, and seeds of each pair, if nothing says so.
const RUNS_DEFAULT: u64 = 1;

/// The commit it was built from, where `make build` said so.
const COMMIT: &str = match option_env!("DCD_COMMIT") {
    Some(commit) => commit,
    None => "",
};

/// Does it.
pub fn run(arguments: &FuzzArguments) -> Result<(), CommandError> {
    let Some(shard) = arguments.shard else { return run_all(arguments) };
    let share = shard.range(arguments.runs.unwrap_or(0));
    if share.is_empty() {
        return match arguments.json {
            true => stdout::print_json_line(&json!({ "runs": 0, "violations": 0 })),
            false => stdout::print("no run is of this shard\n"),
        };
    }
    let seed = Some(arguments.seed.unwrap_or(0).saturating_add(share.start));
    run_all(&FuzzArguments { seed, runs: Some(share.end - share.start), ..arguments.clone() })
}

fn run_all(arguments: &FuzzArguments) -> Result<(), CommandError> {
    if arguments.store && cfg!(not(feature = "s3")) {
        return Err(CommandError::Lab(LabError::NoStores));
    }
    if arguments.seeded_bugs {
        return seeded_bugs::run(arguments);
    }
    #[cfg(feature = "s3")]
    if arguments.store {
        return fuzz_store::run(arguments);
    }
    if arguments.driver {
        return driver(arguments);
    }
    if arguments.nvram {
        return nvram(arguments);
    }
    // A panic of the engine is a violation like others; it does not end this process.
    std::panic::set_hook(Box::new(|_| {}));
    let session = session(arguments);
    let (total, unit) = match (session.total(), session.limit) {
        (Some(total), _) => (total, Unit::Rounds),
        (None, Limit::Time(time)) => (time.as_secs(), Unit::Seconds),
        (None, Limit::Runs(runs)) => (runs, Unit::Rounds),
    };
    // Hours of work must not be for nothing: after Ctrl-C it tells what was found.
    let signals = Signals::install().map_err(ServeError::system("receive signals"))?;
    let mut is_stopped = false;
    let mut progress = Progress::new("fuzzing", unit);
    let outcome = session.run(|done, so_far| {
        let done = if unit == Unit::Seconds { so_far.elapsed.as_secs() } else { done };
        progress.update(done.min(total), total);
        is_stopped |= signals.take().is_some();
        if is_stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    // The next Ctrl-C ends it, also while a failure is being shrunk.
    drop(signals);
    progress.finish();
    let summary = Summary::of(&session, &outcome, processor_time());
    let shortest = outcome.failures.first().map(minimise);
    let shortest = shortest.iter().map(test_of);
    let on_volume = outcome.volume_failures.first().map(volumes::minimise);
    let on_volume = on_volume.iter().map(test_of_volume);
    let shortest: Vec<String> = shortest.chain(on_volume).collect();
    if arguments.json {
        for test in &shortest {
            eprintln_test(test);
        }
        stdout::print_json_line(&summary)?;
    } else {
        stdout::print(&summary.render())?;
        for failure in &outcome.failures {
            let faults: Vec<&str> =
                failure.script.options.faults.iter().map(|kind| kind.name()).collect();
            let faults = match faults.as_slice() {
                [] => String::new(),
                kinds => format!(" --faults {}", kinds.join(",")),
            };
            let (seed, violation) = (failure.seed, &failure.violation);
            stdout::print(&format!("\n--seed {seed}{faults}: {violation}\n"))?;
        }
        for failure in &summary.volume_failures {
            stdout::print(&format!("\n{}: {}\n", failure.replay, failure.violation))?;
        }
        for test in &shortest {
            stdout::print(&format!("\n{test}"))?;
        }
    }
    match outcome.violations() as u64 {
        0 if is_stopped => Err(CommandError::Lab(LabError::FuzzStopped)),
        0 => Ok(()),
        found => {
            let on_volumes = !summary.volume_failures.is_empty();
            Err(CommandError::Lab(LabError::Violations { found, on_volumes }))
        }
    }
}

/// Runs of the driver, one after the other: they have the clock and the kernel for themselves, but
/// not the disks.
fn driver(arguments: &FuzzArguments) -> Result<(), CommandError> {
    let seed = arguments.seed.unwrap_or(0);
    let mut summary = DriverSummary { seed, ..Default::default() };
    let ended = one_after_the_other(arguments, driver_runs::run, |report| summary.add(&report))?;
    summary.runs = ended.runs;
    summary.seconds = ended.seconds;
    summary.violations.clone_from(&ended.violations);
    if arguments.json {
        stdout::print_json_line(&summary)?;
    } else {
        stdout::print(&summary.render())?;
    }
    ended.verdict()
}

/// Runs of the memory in front of the log.
fn nvram(arguments: &FuzzArguments) -> Result<(), CommandError> {
    let seed = arguments.seed.unwrap_or(0);
    let mut all = NvramReport::default();
    let run = |seed| nvram::run(seed, false);
    let ended = one_after_the_other(arguments, run, |report| all.add(&report))?;
    let NvramReport { crash_points, crashes, crashes_in_starts, .. } = all;
    if arguments.json {
        stdout::print_json_line(&json!({
            "seed": seed,
            "runs": ended.runs,
            "seconds": ended.seconds,
            "crash_points": crash_points,
            "crashes": crashes,
            "crashes_in_starts": crashes_in_starts,
            "ends": all.ends,
            "requests": all.requests,
            "bytes_rotted": all.rotted,
            "blocks_damaged": all.damaged,
            "memories_refused": all.refused,
            "media_failed": all.failed_media,
            "stalled_writes": all.stalled,
            "drains": all.drains,
            "memories_came": all.came,
            "memories_went": all.went,
            "violations": ended.violations,
        }))?;
    } else {
        let mut text = format!(
            "{} of the memory in front of the log from seed {seed} in {:.1} s: {crash_points} crash points, {} crashes, {crashes_in_starts} of \
             them in starts, {}, {}, {} rotted, {} said to be damaged, {} refused, {} failed, {} came and {} went while it served\n{}\n",
            count(ended.runs, "run"),
            ended.seconds,
            crashes,
            count(all.requests, "request"),
            count(all.ends, "end"),
            count(all.rotted, "byte"),
            count(all.damaged, "block"),
            all.refused,
            all.failed_media,
            all.came,
            all.went,
            count(ended.violations.len() as u64, "violation"),
        );
        for (seed, violation) in &ended.violations {
            text += &format!("\n--nvram --seed {seed}: {violation}\n");
        }
        stdout::print(&text)?;
    }
    ended.verdict()
}

/// How runs one after the other have ended.
struct Ended {
    runs: u64,
    seconds: f64,
    violations: Vec<(u64, String)>,
    is_stopped: bool,
}

impl Ended {
    fn verdict(&self) -> Result<(), CommandError> {
        match self.violations.len() as u64 {
            0 if self.is_stopped => Err(CommandError::Lab(LabError::FuzzStopped)),
            0 => Ok(()),
            found => Err(CommandError::Lab(LabError::Violations { found, on_volumes: false })),
        }
    }
}

/// Runs seeds on this thread, as many or as long as is wanted.
fn one_after_the_other<R>(
    arguments: &FuzzArguments,
    run: impl Fn(u64) -> Result<R, String> + std::panic::RefUnwindSafe,
    mut add: impl FnMut(R),
) -> Result<Ended, CommandError> {
    let first = arguments.seed.unwrap_or(0);
    let began = std::time::Instant::now();
    let time = match (arguments.runs, arguments.time, arguments.seed) {
        (Some(_), ..) => None,
        (_, Some(time), _) => Some(time),
        (.., Some(_)) => None,
        _ => Some(TIME_DEFAULT),
    };
    let runs_max = match time {
        Some(_) => u64::MAX,
        None => arguments.runs.unwrap_or(1),
    };
    let (total, unit) = match time {
        Some(time) => (time.as_secs(), Unit::Seconds),
        None => (runs_max, Unit::Rounds),
    };
    let signals = Signals::install().map_err(ServeError::system("receive signals"))?;
    std::panic::set_hook(Box::new(|_| {}));
    let mut progress = Progress::new("fuzzing", unit);
    let mut ended = Ended { runs: 0, seconds: 0.0, violations: Vec::new(), is_stopped: false };
    while !ended.is_stopped
        && ended.runs < runs_max
        && time.is_none_or(|time| began.elapsed() < time)
    {
        let seed = first + ended.runs;
        match std::panic::catch_unwind(|| run(seed)) {
            Ok(Ok(report)) => add(report),
            Ok(Err(violation)) => ended.violations.push((seed, violation)),
            Err(_) => ended.violations.push((seed, "it panicked".into())),
        }
        ended.runs += 1;
        let done = if unit == Unit::Seconds { began.elapsed().as_secs() } else { ended.runs };
        progress.update(done.min(total), total);
        ended.is_stopped = signals.take().is_some();
    }
    drop(signals);
    progress.finish();
    ended.seconds = began.elapsed().as_secs_f64();
    Ok(ended)
}

/// What came of runs of the driver.
#[derive(Default, Serialize)]
struct DriverSummary {
    seed: u64,
    runs: u64,
    seconds: f64,
    requests: u64,
    operations: u64,
    short: u64,
    interrupted: u64,
    failed: u64,
    calls_refused: u64,
    beside_the_queue: u64,
    pauses: u64,
    kills: u64,
    modes_wanted: u64,
    room_moved: u64,
    violations: Vec<(u64, String)>,
}

impl DriverSummary {
    fn add(&mut self, report: &DriverReport) {
        self.requests += report.requests;
        self.pauses += report.pauses;
        self.kills += report.kills;
        self.modes_wanted += report.modes_wanted;
        self.room_moved += report.room_moved;
        self.operations += report.kernel.operations;
        self.short += report.kernel.short;
        self.interrupted += report.kernel.interrupted;
        self.failed += report.kernel.failed;
        self.calls_refused += report.kernel.calls_refused;
        self.beside_the_queue += report.kernel.beside_the_queue;
    }

    fn render(&self) -> String {
        let mut text = format!(
            "{} of the driver from seed {} in {:.1} s: {}, {}\n\
             kernel: {} short, {} interrupted, {} failed, {} completions beside the queue, {} calls refused, {}, {}, {}, {}\n\
             {}\n",
            count(self.runs, "run"),
            self.seed,
            self.seconds,
            count(self.requests, "request"),
            count(self.operations, "operation"),
            self.short,
            self.interrupted,
            self.failed,
            self.beside_the_queue,
            self.calls_refused,
            count(self.pauses, "pause"),
            count(self.kills, "kill"),
            count(self.modes_wanted, "wanted mode"),
            count(self.room_moved, "changed size"),
            count(self.violations.len() as u64, "violation"),
        );
        for (seed, violation) in &self.violations {
            text += &format!("\n--driver --seed {seed}: {violation}\n");
        }
        text
    }
}

/// Time on processors that this process has had: what a rate per core must be measured by on a
/// machine that has other work.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

fn session(arguments: &FuzzArguments) -> Session {
    let work = match (arguments.pairs, arguments.exhaustive, arguments.sweep) {
        (true, ..) => Work::Pairs,
        (_, Some(depth), _) => Work::Exhaustive(depth),
        (.., true) => Work::Sweep,
        _ => match arguments.volume {
            Some(kind) => Work::Volume(kind),
            None if arguments.legs => Work::Legs,
            None if arguments.ordered => Work::Ordered,
            None => Work::Random(arguments.faults.clone()),
        },
    };
    let limit = match (arguments.runs, arguments.time, &work) {
        (Some(runs), ..) => Limit::Runs(runs),
        (_, Some(time), _) => Limit::Time(time),
        (_, _, Work::Pairs | Work::Sweep) => Limit::Runs(RUNS_DEFAULT),
        // A seed alone is that run alone.
        _ if arguments.seed.is_some() => Limit::Runs(1),
        _ => Limit::Time(TIME_DEFAULT),
    };
    let first = match (arguments.volume, arguments.legs) {
        (Some(_), true) => LEGS_FROM,
        (Some(_), false) if arguments.lose_cache_disk => TWIN_FROM,
        _ => 0,
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    Session {
        work,
        seed: arguments.seed.unwrap_or(0) + first,
        limit,
        jobs: arguments.jobs.map_or(processors, |jobs| jobs as usize),
    }
}

fn test_of(failure: &Failure) -> String {
    let why =
        format!("Seed {}, dcd {}: {}", failure.seed, env!("CARGO_PKG_VERSION"), failure.violation);
    failure.script.to_test(&format!("found_by_seed_{}", failure.seed), &why)
}

/// The same of a run on a volume, for `crates/dcd-fuzz/tests/found_on_volumes.rs`.
fn test_of_volume(failure: &VolumeFailure) -> String {
    let VolumeFailure { kind, seed, violation, .. } = failure;
    let version = [env!("CARGO_PKG_VERSION"), COMMIT].join(" ");
    let why = format!("{} seed {seed}, dcd {}: {violation}", kind.name(), version.trim_end());
    volumes::test_of(failure, &why)
}

fn eprintln_test(test: &str) {
    eprintln!("{test}");
}

/// A run on a volume that went wrong.
#[derive(Serialize)]
struct FailedOnVolume {
    volume: &'static str,
    seed: u64,
    violation: String,
    /// The command that repeats it, with a binary of the same commit.
    replay: String,
}

impl FailedOnVolume {
    fn of(failure: &VolumeFailure) -> FailedOnVolume {
        let VolumeFailure { kind, seed, violation, .. } = failure;
        FailedOnVolume {
            volume: kind.name(),
            seed: *seed,
            violation: violation.to_string(),
            replay: format!("dcd fuzz --volume {} --seed {seed}", kind.name()),
        }
    }
}

/// What is printed.
#[derive(Serialize)]
struct Summary {
    version: &'static str,
    commit: &'static str,
    work: String,
    seed: u64,
    jobs: usize,
    runs: u64,
    requests: u64,
    crash_points: u64,
    nested_crash_points: u64,
    faults: BTreeMap<&'static str, u64>,
    times_uncached: u64,
    times_past_the_log: u64,
    times_grown: u64,
    times_shrunk: u64,
    times_read_area_resized: u64,
    windows: u64,
    refused_starts: u64,
    allowed_read_errors: u64,
    blocks_not_covered: u64,
    runs_with_read_area: u64,
    crash_points_with_read_area: u64,
    lines_read_from_copies: u64,
    lines_read_ahead_and_used: u64,
    copies_damaged: u64,
    copies_after_crash: u64,
    copies_changed_in_log: u64,
    copies_doubted: u64,
    copy_pages_lost: u64,
    members_failed: u64,
    members_replaced: u64,
    replacements: u64,
    replacements_done: u64,
    others_refused: u64,
    volumes_imported: u64,
    imports_cut_off: u64,
    regions_believed: u64,
    member_io_faults: u64,
    members_older: u64,
    lines_rotted: u64,
    writes_lost: u64,
    rebuilds: u64,
    rebuilds_compared: u64,
    members_left: u64,
    members_caught_up: u64,
    scrubs: u64,
    scrubs_ended: u64,
    spares: u64,
    spares_used: u64,
    crash_points_degraded: u64,
    leg_troubles: u64,
    leg_starts_without_one: u64,
    leg_starts_with_older: u64,
    legs_filled: u64,
    legs_joined: u64,
    leg_lines_rotted: u64,
    volume_checkpoints: u64,
    extents_moved: u64,
    replicas_made: u64,
    replica_reads: u64,
    ahead_reads: u64,
    lines_redone: u64,
    lines_repaired: u64,
    lines_given_up: u64,
    violations: u64,
    failed_seeds: Vec<u64>,
    volume_failures: Vec<FailedOnVolume>,
    seconds: f64,
    per_second: f64,
    per_second_and_core: f64,
    /// Of one round, in microseconds of one core.
    microseconds_run: f64,
    microseconds_crash: f64,
    microseconds_recover: f64,
    microseconds_check: f64,
}

impl Summary {
    fn of(session: &Session, outcome: &Outcome, processor_time: Duration) -> Summary {
        let report = &outcome.report;
        let failed = outcome.failures.iter().map(|failure| failure.seed);
        let failed_on_volumes = outcome.volume_failures.iter().map(|failure| failure.seed);
        let rounds = report.crash_points.max(1) as f64;
        let times = report.times;
        let wall = times.run + times.crash + times.recover + times.check;
        let round = processor_time.as_secs_f64() * 1e6 / rounds;
        // The parts are measured by the clock on the wall; a busy machine stretches all alike.
        let each = |time: Duration| round * time.as_secs_f64() / wall.as_secs_f64().max(1e-9);
        Summary {
            version: env!("CARGO_PKG_VERSION"),
            commit: COMMIT,
            work: match &session.work {
                Work::Random(_) => "random".into(),
                Work::Pairs => "pairs".into(),
                Work::Exhaustive(depth) => {
                    format!("exhaustive, {} operations, depth {depth}", exhaustive::LETTERS)
                }
                Work::Sweep => "sweep".into(),
                Work::Legs => "two legs".into(),
                Work::Ordered => "ordered shipping".into(),
                Work::Volume(kind) => format!("volume {}", kind.name()),
            },
            seed: session.seed,
            jobs: session.jobs,
            runs: report.runs,
            requests: report.requests,
            crash_points: report.crash_points,
            nested_crash_points: report.nested,
            faults: report.faults.iter().map(|(kind, count)| (kind.name(), *count)).collect(),
            times_uncached: report.times_uncached,
            times_past_the_log: report.times_past_the_log,
            times_grown: report.times_grown,
            times_shrunk: report.times_shrunk,
            times_read_area_resized: report.times_read_area_resized,
            windows: report.windows,
            refused_starts: report.refused,
            allowed_read_errors: report.errors,
            blocks_not_covered: report.uncovered,
            runs_with_read_area: report.copies.runs,
            crash_points_with_read_area: report.copies.crash_points,
            lines_read_from_copies: report.copies.lines_read,
            lines_read_ahead_and_used: report.copies.lines_read_ahead,
            copies_damaged: report.copies.damaged,
            copies_after_crash: report.copies.survived,
            copies_changed_in_log: report.copies.changed,
            copies_doubted: report.copies.doubted,
            copy_pages_lost: report.copies.pages_lost,
            leg_troubles: report.legs.troubles,
            leg_starts_without_one: report.legs.without_one,
            leg_starts_with_older: report.legs.older,
            legs_filled: report.legs.filled,
            legs_joined: report.legs.joined,
            leg_lines_rotted: report.legs.rotted,
            members_failed: report.volume.members_failed,
            members_replaced: report.volume.members_replaced,
            replacements: report.volume.replacements,
            replacements_done: report.volume.replacements_done,
            others_refused: report.volume.others_refused,
            volumes_imported: report.volume.imports,
            imports_cut_off: report.volume.imports_cut,
            regions_believed: report.volume.regions_believed,
            member_io_faults: report.volume.io_faults,
            members_older: report.volume.members_older,
            lines_rotted: report.volume.lines_rotted,
            writes_lost: report.volume.writes_lost,
            rebuilds: report.volume.rebuilds,
            rebuilds_compared: report.volume.rebuilds_compared,
            members_left: report.volume.members_left,
            members_caught_up: report.volume.members_caught_up,
            scrubs: report.volume.scrubs,
            scrubs_ended: report.volume.scrubs_ended,
            spares: report.volume.spares,
            spares_used: report.volume.spares_used,
            crash_points_degraded: report.volume.crash_points_degraded,
            volume_checkpoints: report.volume.checkpoints,
            extents_moved: report.volume.extents_moved,
            replicas_made: report.volume.replicas_made,
            replica_reads: report.volume.replica_reads,
            ahead_reads: report.volume.ahead_reads,
            lines_redone: report.volume.lines_redone,
            lines_repaired: report.volume.lines_repaired,
            lines_given_up: report.volume.lines_lost,
            violations: outcome.violations() as u64,
            failed_seeds: failed.chain(failed_on_volumes).collect(),
            volume_failures: outcome.volume_failures.iter().map(FailedOnVolume::of).collect(),
            seconds: outcome.elapsed.as_secs_f64(),
            per_second: outcome.per_second(),
            per_second_and_core: 1e6 / round.max(1e-9),
            microseconds_run: each(report.times.run),
            microseconds_crash: each(report.times.crash),
            microseconds_recover: each(report.times.recover),
            microseconds_check: each(report.times.check),
        }
    }

    fn render(&self) -> String {
        let mut text = format!(
            "dcd {}, {}, seed {}, {}\n\n",
            [self.version, self.commit].join(" ").trim_end(),
            self.work,
            self.seed,
            count(self.jobs as u64, "thread")
        );
        let mut table = Table::new(&[("what", Align::Left), ("count", Align::Right)]);
        let mut row = |what: &str, number: u64| table.row(vec![what.into(), number.to_string()]);
        row("runs", self.runs);
        row("requests", self.requests);
        row("crash points", self.crash_points);
        row("  during recovery", self.nested_crash_points);
        for (kind, count) in &self.faults {
            row(&format!("fault {kind}"), *count);
        }
        row("times on without cache-disk", self.times_uncached);
        row("times past the log", self.times_past_the_log);
        row("times the log grew", self.times_grown);
        row("times the log shrank", self.times_shrunk);
        row("times of another read area", self.times_read_area_resized);
        row("windows compared", self.windows);
        row("starts refused, rightly", self.refused_starts);
        row("blocks with an error, rightly", self.allowed_read_errors);
        row("blocks not covered", self.blocks_not_covered);
        row("troubles of a leg", self.leg_troubles);
        row("  starts without one leg", self.leg_starts_without_one);
        row("  starts with an older leg", self.leg_starts_with_older);
        row("  legs filled", self.legs_filled);
        row("  of disks that joined", self.legs_joined);
        row("  lines rotted on a leg", self.leg_lines_rotted);
        row("members failed", self.members_failed);
        row("  replaced by blank ones", self.members_replaced);
        row("  replaced while served", self.replacements_done);
        row("    of so many begun", self.replacements);
        row("  disks that do not count, refused", self.others_refused);
        row("  cache-disks lost, and imported", self.volumes_imported);
        row("  imports cut off", self.imports_cut_off);
        row("  regions believed", self.regions_believed);
        row("  back from an earlier start", self.members_older);
        row("  single I/Os failed or slow", self.member_io_faults);
        row("  lines rotted", self.lines_rotted);
        row("  writes lost or misdirected", self.writes_lost);
        row("  rebuilds", self.rebuilds);
        row("  rebuilds compared at once", self.rebuilds_compared);
        row("  members that left to come back", self.members_left);
        row("  brought up to date by what they missed", self.members_caught_up);
        row("  scrubs", self.scrubs);
        row("  scrubs that have read everything", self.scrubs_ended);
        row("  spares", self.spares);
        row("  spares that took the place of a member", self.spares_used);
        row("  crash points degraded", self.crash_points_degraded);
        row("  checkpoints of volumes", self.volume_checkpoints);
        row("  extents moved", self.extents_moved);
        row("  replicas made", self.replicas_made);
        row("  reads of replicas", self.replica_reads);
        row("  reads of what was read ahead", self.ahead_reads);
        row("  lines written again by starts", self.lines_redone);
        row("  lines repaired", self.lines_repaired);
        row("  lines given up, rightly", self.lines_given_up);
        row("runs with a read area", self.runs_with_read_area);
        row("  crash points", self.crash_points_with_read_area);
        row("  lines read from copies", self.lines_read_from_copies);
        row("  of them, read ahead", self.lines_read_ahead_and_used);
        row("  copies damaged, noticed", self.copies_damaged);
        row("  true copies after crashes", self.copies_after_crash);
        row("  copies changed in the log", self.copies_changed_in_log);
        row("  copies doubted", self.copies_doubted);
        row("  copy pages lost", self.copy_pages_lost);
        row("violations", self.violations);
        text += &table.render(Paint::for_stdout());
        text += &format!(
            "\n{:.0} crash points per second, {:.0} per second of a core\none takes {:.0} us: run {:.0}, crash {:.0}, recover {:.0}, check {:.0}\n",
            self.per_second,
            self.per_second_and_core,
            1e6 / self.per_second_and_core,
            self.microseconds_run,
            self.microseconds_crash,
            self.microseconds_recover,
            self.microseconds_check
        );
        text
    }
}
