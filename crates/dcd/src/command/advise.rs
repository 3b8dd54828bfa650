//! `dcd advise`: what a log would do for a load, in one go: record (`--live`), look, simulate,
//! tell.
//!
//! What is told is made in `dcd_sim::advise`; here are flags, the two passes and the terminal.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use dcd_daemon::units_text::{parse_duration, parse_size};
use dcd_engine::Geometry;
use dcd_sim::advise::grid::{CacheDevice, Grid, cache_sizes};
use dcd_sim::advise::load::{LoadFacts, LoadMeter};
use dcd_sim::advise::overload::Overload;
use dcd_sim::advise::page::{BEGINNING, page};
use dcd_sim::advise::recommendation::Verdict;
use dcd_sim::advise::row::{Response, Row};
use dcd_sim::advise::{Advice, PaceFacts, sequences, words};
use dcd_sim::disk::profile::Profile;
use dcd_sim::replay::{Replay, ReplayError};
use dcd_sim::sweep::{self, Load, Outcome, Point, TraceSource};
use dcd_sim::target::setup::SetupError;
use dcd_sim::trace::{Request, TraceError};
use dcd_sim::workload::WorkloadSpec;
use serde_json::json;

use super::simulate::{DestageArgument, parse_stretch};
use super::trace::for_each_request;
use super::trace::record::{Recorded, record};
use super::workload::{for_each_request_of, parse_workload};
use crate::command::trace::arguments::TraceInputArguments;
use crate::error::CommandError;
use crate::error::lab::LabError;
use crate::output::{Align, Colour, Paint, Table};
use crate::page_file::PageFile;
use crate::progress::{Progress, Unit};
use crate::settings::AckArgument;
use crate::stdout::{print, print_json};

/// Where a log is tried if nothing is said; the disk's own model comes last.
const CACHE_PROFILES: [&str; 2] = ["nvme-ssd", "sata-ssd"];

/// Tell what dcd would do for a load, before anything is bought or installed.
///
/// Simulates the load on a model of your disk, alone and with a log (`dcd serve`) of several sizes
/// on several devices. Tells response times, writes to the disk, writes that wait for room, and the
/// wear of the cache device; gives one recommendation, which may be not to use dcd; and writes all
/// of it, with plots, to one HTML page. A trace of a faster disk than yours is replayed in a closed
/// loop, and that is said.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd advise load.csv --disk wd-4tb
  sudo dcd advise --live /dev/sdb --for 1h --keep load.csv --disk ultrastar-hc310 --out sdb.html
  dcd advise load.csv.zst --disk wd-4tb --cache-disk 256M,1G,4G --cache-disk-profile my-ssd.toml --endurance-tbw 300
  dcd advise load.csv --disk wd-4tb --cache-disk-profile nvme-ssd --ack memory,durable --json
  dcd advise --workload users,users=4 --disk wd-4tb")]
pub struct AdviseArguments {
    /// The trace; `dcd trace --help` lists the formats, `dcd trace record` makes one.
    #[arg(value_name = "TRACE", required_unless_present_any = ["live", "workload"])]
    pub trace: Option<PathBuf>,
    /// Record what this block device is asked for first, as `dcd trace record` does; needs root.
    #[arg(long, value_name = "DEVICE")]
    #[arg(conflicts_with_all = ["trace", "workload", "format", "device"])]
    pub live: Option<PathBuf>,
    /// How long to record.
    #[arg(long = "for", value_name = "TIME", default_value = "10m", value_parser = parse_duration)]
    #[arg(requires = "live", conflicts_with_all = ["trace", "workload"])]
    pub time: Duration,
    /// Keep what is recorded in this file, which must not exist. Put it on another device, or it
    /// records itself.
    #[arg(long, value_name = "FILE", requires = "live", conflicts_with_all = ["trace", "workload"])]
    pub keep: Option<PathBuf>,
    /// Made-up requests instead: NAME[,KEY=VALUE...]; docs/workloads.md tells which there are.
    #[arg(long, value_name = "WORKLOAD", value_parser = parse_workload)]
    #[arg(conflicts_with_all = ["trace", "format", "device"])]
    pub workload: Option<WorkloadSpec>,
    /// How the trace is read.
    #[command(flatten)]
    pub input: TraceInputArguments,
    /// The disk that you have: name of a profile (`dcd disk list`), or path of a TOML file.
    #[arg(long, value_name = "PROFILE")]
    pub disk: String,
    /// Sizes of the log [default: powers of two around what the load writes].
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = parse_size)]
    pub cache_disk: Vec<u64>,
    /// Devices for the log, as for --disk [default: nvme-ssd, sata-ssd, and a second disk like the
    /// first].
    #[arg(long, value_name = "PROFILES", value_delimiter = ',')]
    pub cache_disk_profile: Vec<String>,
    /// Which segment is destaged first.
    #[arg(long, value_name = "POLICIES", value_delimiter = ',', default_value = "fifo")]
    pub destage: Vec<DestageArgument>,
    /// When a write is acknowledged.
    #[arg(long, value_name = "MODES", value_delimiter = ',', default_value = "memory")]
    pub ack: Vec<AckArgument>,
    /// What may be written to the cache device in its life, in units of 10^12 bytes (TBW), as its
    /// data sheet says [default: that of the profile, if it has one].
    #[arg(long, value_name = "TBW", value_parser = parse_tbw)]
    pub endurance_tbw: Option<f64>,
    /// Each request comes when the one before is done [default: if the bare disk cannot keep up
    /// with the trace].
    #[arg(long)]
    pub closed_loop: bool,
    /// Multiply the times of the trace; 1 keeps them even if the disk cannot keep up.
    #[arg(long, value_name = "FACTOR", value_parser = parse_stretch, conflicts_with = "closed_loop")]
    pub stretch: Option<f64>,
    /// As for `dcd simulate`.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub seed: u64,
    /// The HTML page to write; an earlier page of dcd advise is overwritten, nothing else is.
    #[arg(long, value_name = "FILE", default_value = "advice.html")]
    pub out: PathBuf,
    /// Threads [default: one for each processor].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

fn parse_tbw(text: &str) -> Result<f64, &'static str> {
    match text.parse() {
        Ok(tbw) if (1e-3..=1e9).contains(&tbw) => Ok(tbw),
        _ => Err("expected a number from 0.001 to 1e9, in 10^12 bytes"),
    }
}

pub fn run(arguments: &AdviseArguments) -> Result<(), CommandError> {
    // What can be wrong is looked for before an hour is spent on recording.
    let mut grid = arguments.grid()?;
    let out = &arguments.out;
    let page_file = PageFile::check(out, "dcd advise", BEGINNING)?;
    if let (Some(trace), None) = (&arguments.trace, &arguments.live) {
        arguments.source(trace).check()?;
    }
    let recording = arguments.record()?;
    let load = arguments.load(recording.as_ref())?;
    let (facts, pace, bare) = arguments.look(&load, recording.as_ref(), &grid)?;
    if grid.sizes.is_empty() {
        grid.sizes = cache_sizes(facts.summary.working_set.written_bytes);
    }
    let (bare, outcomes) = arguments.simulate(&load, &grid, &pace, bare);
    let mut advice = Advice::new(facts, &grid, pace, &bare, &outcomes);
    let points = sequences::points(&advice.load, &grid, &advice.pace);
    if !points.is_empty() {
        let outcomes = arguments.run_points(&load, &points);
        advice.sequences = sequences::advice(&advice, &grid, &outcomes);
    }
    if let Some(lost) = recording.as_ref().map(|recording| recording.lost).filter(|lost| *lost > 0)
    {
        let lost = words::count(lost, "request");
        let limit = format!("{lost} of the recording were lost: the kernel had no room for them.");
        advice.recommendation.limits.push(limit);
    }
    page_file.write(&page(&advice))?;
    if arguments.json {
        let mut json = json!(advice);
        json["page"] = json!(out.display().to_string());
        return print_json(&json);
    }
    print(&in_words(&advice, out, Paint::for_stdout()))
}

/// A recording, and whether its file goes with it.
struct Recording {
    path: PathBuf,
    is_kept: bool,
    lost: u64,
}

impl Drop for Recording {
    fn drop(&mut self) {
        if !self.is_kept {
            // What stays in the folder for temporary files does no harm.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl AdviseArguments {
    /// What is simulated; without sizes if none are given.
    fn grid(&self) -> Result<Grid, CommandError> {
        for &bytes in &self.cache_disk {
            let segment_bytes = Geometry::default_segment_size(bytes);
            Geometry::fit(bytes, segment_bytes).map_err(SetupError::from)?;
        }
        let mut names = self.cache_disk_profile.clone();
        if names.is_empty() {
            names = CACHE_PROFILES.map(str::to_owned).to_vec();
            names.push(self.disk.clone());
        }
        let device = |name: String| {
            let profile = Profile::load(&name)?;
            Ok(CacheDevice::new(name, profile, self.endurance_tbw))
        };
        Ok(Grid {
            disk_name: self.disk.clone(),
            disk: Profile::load(&self.disk)?,
            devices: once(names).into_iter().map(device).collect::<Result<_, CommandError>>()?,
            sizes: sorted(&self.cache_disk),
            destage: once(self.destage.iter().map(|destage| destage.kind())),
            ack: once(self.ack.iter().map(|ack| ack.mode())),
            seed: self.seed,
        })
    }

    fn record(&self) -> Result<Option<Recording>, CommandError> {
        let Some(device) = &self.live else { return Ok(None) };
        let path = self.keep.clone().unwrap_or_else(|| {
            std::env::temp_dir().join(format!("dcd-advise-{}.csv", std::process::id()))
        });
        let Recorded { requests, lost } = record(device, &path, self.time)?;
        let recording = Recording { path, is_kept: self.keep.is_some(), lost };
        match requests {
            0 => Err(CommandError::Lab(LabError::NothingRecorded { device: device.clone() })),
            _ => Ok(Some(recording)),
        }
    }

    fn load(&self, recording: Option<&Recording>) -> Result<Load, CommandError> {
        if let Some(workload) = &self.workload {
            return Ok(Load::Workload(workload.clone()));
        }
        let path = recording.map(|recording| &recording.path).or(self.trace.as_ref());
        Ok(Load::Trace(self.source(path.expect("the command line has one of the three"))))
    }

    fn source(&self, path: &Path) -> TraceSource {
        let TraceInputArguments { format, device } = self.input;
        TraceSource { path: path.to_owned(), format, device }
    }

    fn name(&self, load: &Load) -> String {
        match (load, &self.live) {
            (Load::Workload(workload), _) => workload.to_string(),
            (_, Some(device)) => format!("{}, live", device.display()),
            (Load::Trace(trace), None) => {
                let name = trace.path.file_name().unwrap_or(trace.path.as_os_str());
                name.to_string_lossy().into_owned()
            }
        }
    }

    /// The first pass: what the load is like, and whether the bare disk keeps up with it. The
    /// outcome of the bare disk, if it is what counts.
    fn look(
        &self,
        load: &Load,
        recording: Option<&Recording>,
        grid: &Grid,
    ) -> Result<(LoadFacts, PaceFacts, Option<Outcome>), CommandError> {
        let mut pace = PaceFacts {
            closed_loop: self.closed_loop,
            stretch: (!self.closed_loop).then(|| self.stretch.unwrap_or(1.0)),
            is_chosen: self.closed_loop || self.stretch.is_some(),
            overload: None,
        };
        let target = grid.bare(&pace).setup.build()?;
        // None when it was given up.
        let mut replay = Some(Replay::new(target, pace.pace()));
        let mut meter = LoadMeter::default();
        let mut overload = None;
        let mut take = |request: &Request| -> Result<(), ReplayError> {
            meter.add(request);
            if let Some(bare) = &mut replay
                && let Err(error) = bare.add(request)
            {
                overload = Some(Overload::of_error(&error).ok_or(error)?);
                replay = None;
            }
            Ok(())
        };
        match load {
            Load::Trace(trace) => {
                for_each_request(&trace.path, &self.input, "reading", |reader, request| {
                    take(request).map_err(|problem| {
                        CommandError::Lab(LabError::Replay {
                            place: reader.refused(request, problem.field(), problem.to_string()),
                            hint: problem.hint(),
                        })
                    })
                })?;
            }
            Load::Workload(workload) => for_each_request_of(workload, "making up", |request| {
                take(request).map_err(|problem| LabError::workload(request.line, &problem).into())
            })?,
        }
        let Some(facts) = meter.finish(self.name(load)) else {
            let path = recording.map(|recording| &recording.path).or(self.trace.as_ref());
            return Err(TraceError::Empty { path: path.cloned().unwrap_or_default() }.into());
        };
        let bare = replay.map(Replay::finish);
        if let (Some(bare), Some(stretch)) = (&bare, pace.stretch) {
            overload = Overload::of(bare, facts.summary.duration_s * stretch);
        }
        pace.overload = overload;
        if pace.overload.is_some() && !pace.is_chosen {
            (pace.closed_loop, pace.stretch) = (true, None);
            return Ok((facts, pace, None));
        }
        Ok((facts, pace, bare.map(Ok)))
    }

    /// The second pass: all variants, and the bare disk if it is not known yet.
    fn simulate(
        &self,
        load: &Load,
        grid: &Grid,
        pace: &PaceFacts,
        bare: Option<Outcome>,
    ) -> (Outcome, Vec<Outcome>) {
        let variants = grid.variants();
        let mut points: Vec<Point> =
            variants.iter().map(|variant| grid.point(variant, pace)).collect();
        if bare.is_none() {
            points.push(grid.bare(pace));
        }
        let mut outcomes = self.run_points(load, &points);
        let bare = bare.or_else(|| outcomes.pop()).expect("it was simulated first or last");
        (bare, outcomes)
    }

    fn run_points(&self, load: &Load, points: &[Point]) -> Vec<Outcome> {
        let jobs = self.jobs.map_or_else(
            || std::thread::available_parallelism().map_or(1, |count| count.get()),
            |jobs| jobs as usize,
        );
        let mut progress = Progress::new("simulating", Unit::Rounds);
        progress.update(0, points.len() as u64);
        let mut outcomes = Vec::with_capacity(points.len());
        sweep::run(load, points, 0, jobs, |index, outcome| {
            outcomes.push(outcome);
            progress.update(index as u64 + 1, points.len() as u64);
            true
        });
        progress.finish();
        outcomes
    }
}

/// Each once, in their order.
fn once<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut kept = Vec::new();
    for value in values {
        if !kept.contains(&value) {
            kept.push(value);
        }
    }
    kept
}

fn sorted(sizes: &[u64]) -> Vec<u64> {
    let mut sizes = sizes.to_vec();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

fn in_words(advice: &Advice, out: &Path, paint: Paint) -> String {
    let recommendation = &advice.recommendation;
    let mut table = Table::new(&[
        ("log on", Align::Left),
        ("size", Align::Right),
        ("faster", Align::Right),
        ("mean", Align::Right),
        ("writes", Align::Right),
        ("p99", Align::Right),
        ("reads", Align::Right),
        ("p99", Align::Right),
        ("fewer writes", Align::Right),
        ("wait", Align::Right),
        ("to cache/day", Align::Right),
        ("endures", Align::Right),
    ]);
    table.row(cells(&format!("none: {}", advice.disk), &advice.bare));
    for curve in &advice.curves {
        for &index in &curve.rows {
            let mark = match recommendation.row == Some(index) {
                true if recommendation.verdict != Verdict::NoHelp => "* ",
                _ => "",
            };
            table.row(cells(&format!("{mark}{}", curve.name), &advice.rows[index]));
        }
    }
    let mut text = table.render(paint);
    for row in [&advice.bare].into_iter().chain(&advice.rows) {
        if let Some(error) = &row.error {
            let device = row.cache_device.as_deref().unwrap_or("the bare disk");
            text += &format!("{device}: {error}\n");
        }
    }
    let colour = match recommendation.verdict {
        Verdict::Helps | Verdict::FewerWrites => Colour::Good,
        Verdict::NoHelp => Colour::Warning,
        Verdict::Overloaded | Verdict::Unknown => Colour::Bad,
    };
    text += &format!("\n{}\n", paint.paint(colour, &recommendation.sentence));
    for detail in &recommendation.details {
        text += &format!("{detail}\n");
    }
    if let Some(sequences) = &advice.sequences {
        text += &format!("{}\n", sequences.sentence);
    }
    text.push('\n');
    for limit in &recommendation.limits {
        text += &format!("- {limit}\n");
    }
    format!("{text}\nPlots and all numbers: {}\n", out.display())
}

fn cells(name: &str, row: &Row) -> Vec<String> {
    let size = row.cache_bytes.map_or(String::new(), words::size);
    let mut cells = vec![name.to_owned(), size];
    let Some(facts) = &row.facts else {
        cells.push("failed".into());
        cells.resize(12, String::new());
        return cells;
    };
    let log = row.log();
    let times = |response: Option<Response>| match response {
        Some(response) => [words::ms(response.mean_ms), words::ms(response.p99_ms)],
        None => ["-".into(), "-".into()],
    };
    let gain = |percent: f64| log.map_or("-".into(), |_| words::percent(percent));
    cells.extend([gain(facts.faster_percent), words::ms(facts.mean_ms)]);
    cells.extend(times(facts.write));
    cells.extend(times(facts.read));
    cells.push(gain(facts.fewer_disk_writes_percent));
    cells.push(log.map_or("-".into(), |log| words::percent(log.stalled_percent)));
    let wear = log.and_then(|log| log.wear);
    cells.push(wear.map_or("-".into(), |wear| words::size(wear.bytes_per_day as u64)));
    cells.push(wear.and_then(|wear| wear.years).map_or("-".into(), words::years));
    cells
}
