//! `dcd advise`: what a log would do for a load, in one go: record (`--live`), look, simulate,
//! tell.
//!
//! What is told is made in `dcd_sim::advise`, from simulations of `dcd_study`; here are the load
//! and the terminal.

mod volumes;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use dcd_daemon::units_text::parse_duration;
use dcd_sim::advise::page::{BEGINNING, page};
use dcd_sim::advise::recommendation::Verdict;
use dcd_sim::advise::row::{Response, Row};
use dcd_sim::advise::{Advice, words};
use dcd_sim::sweep::Load;
use dcd_sim::workload::WorkloadSpec;
use dcd_study::advise::AdviseSettings;
use dcd_study::load::{TraceInputArguments, parse_workload, short_name};
use dcd_study::shard::Shard;
use dcd_study::sweep::jobs_default;
use dcd_study::traces::TraceSet;
use serde_json::json;

use super::trace::record::{Recorded, record};
use crate::error::CommandError;
use crate::error::lab::LabError;
use crate::output::{Align, Colour, Paint, Table};
use crate::page_file::PageFile;
use crate::progress::ProgressWatcher;
use crate::stdout::{print, print_json};

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
  dcd advise volumes/*.csv --disk wd-4tb
  dcd advise --traces volumes --disk wd-4tb --shard 0/4 --json > part0.json
  dcd advise --disk wd-4tb --merge part0.json part1.json part2.json part3.json
  dcd advise load.csv --disk s3
  dcd advise --workload users,users=4 --disk wd-4tb")]
pub struct AdviseArguments {
    /// The trace; `dcd trace --help` lists the formats, `dcd trace record` makes one. With several,
    /// each is another volume: one table tells which of them are worth a log, and each has a page,
    /// whose name ends with its number.
    #[arg(value_name = "TRACE", required_unless_present_any = ["live", "workload", "traces", "merge"])]
    pub trace: Vec<PathBuf>,
    /// Many volumes: the files of a directory, or those that a file names, one in each line (from
    /// its own directory on); in builds with object stores also the objects below
    /// s3://BUCKET/PREFIX. May be given several times.
    #[arg(long, value_name = "DIRECTORY|LIST|s3://...", conflicts_with_all = ["live", "workload"])]
    pub traces: Vec<TraceSet>,
    /// Only one of N shards of the volumes, numbered from 0. N alone: which one says
    /// JOB_COMPLETION_INDEX (Kubernetes) or SLURM_ARRAY_TASK_ID (Slurm). With --json, for --merge.
    #[arg(long, value_name = "I/N|N", conflicts_with_all = ["live", "workload", "merge"])]
    pub shard: Option<Shard>,
    /// Simulate nothing: one table of what all shards have told with --json, each in a file of
    /// these. Volumes that are missing, or there twice, are told.
    #[arg(long, value_name = "FILES", num_args = 1.., conflicts_with_all = ["trace", "traces", "live", "workload"])]
    pub merge: Vec<PathBuf>,
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
    /// Which logs are tried.
    #[command(flatten)]
    pub settings: AdviseSettings,
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

pub fn run(arguments: &AdviseArguments) -> Result<(), CommandError> {
    if !arguments.merge.is_empty() {
        return volumes::merge(arguments);
    }
    if arguments.trace.len() > 1 || !arguments.traces.is_empty() || arguments.shard.is_some() {
        return volumes::run(arguments);
    }
    // What can be wrong is looked for before an hour is spent on recording.
    let grid = arguments.settings.grid()?;
    let out = &arguments.out;
    let page_file = PageFile::check(out, "dcd advise", BEGINNING)?;
    if let [trace] = &arguments.trace[..] {
        arguments.input.source(trace).check()?;
    }
    let recording = arguments.record()?;
    let load = arguments.load(recording.as_ref());
    let jobs = arguments.jobs.map_or_else(jobs_default, |jobs| jobs as usize);
    let name = arguments.name(&load);
    let mut advice =
        arguments.settings.advise(grid, &load, name, jobs, &mut ProgressWatcher::default())?;
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

    fn load(&self, recording: Option<&Recording>) -> Load {
        if let Some(workload) = &self.workload {
            return Load::Workload(workload.clone());
        }
        let path = recording.map(|recording| &recording.path).or(self.trace.first());
        Load::Trace(self.input.source(path.expect("the command line has one of the three")))
    }

    fn name(&self, load: &Load) -> String {
        match &self.live {
            Some(device) => format!("{}, live", device.display()),
            None => short_name(load),
        }
    }
}

fn in_words(advice: &Advice, out: &Path, paint: Paint) -> String {
    let recommendation = &advice.recommendation;
    let shown = Shown { has_flushes: advice.load.summary.flushes > 0, has_cost: advice.has_cost() };
    let mut columns = vec![
        ("log on", Align::Left),
        ("size", Align::Right),
        ("faster", Align::Right),
        ("mean", Align::Right),
        ("writes", Align::Right),
        ("p99", Align::Right),
        ("reads", Align::Right),
        ("p99", Align::Right),
    ];
    if shown.has_flushes {
        columns.extend([("flushes", Align::Right), ("p99", Align::Right)]);
    }
    columns.extend([
        ("fewer writes", Align::Right),
        ("wait", Align::Right),
        ("to cache/day", Align::Right),
        ("endures", Align::Right),
    ]);
    columns.extend(shown.has_cost.then_some(("USD/month", Align::Right)));
    let mut table = Table::new(&columns);
    table.row(cells(&format!("none: {}", advice.disk), &advice.bare, shown, columns.len()));
    for curve in &advice.curves {
        for &index in &curve.rows {
            let mark = match recommendation.row == Some(index) {
                true if recommendation.verdict != Verdict::NoHelp => "* ",
                _ => "",
            };
            table.row(cells(
                &format!("{mark}{}", curve.name),
                &advice.rows[index],
                shown,
                columns.len(),
            ));
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
    for sentence in advice.trials.iter().flat_map(|trials| &trials.sentences) {
        text += &format!("{sentence}\n");
    }
    text.push('\n');
    for limit in &recommendation.limits {
        text += &format!("- {limit}\n");
    }
    format!("{text}\nPlots and all numbers: {}\n", out.display())
}

/// Columns that are not always there.
#[derive(Clone, Copy)]
struct Shown {
    has_flushes: bool,
    has_cost: bool,
}

fn cells(name: &str, row: &Row, shown: Shown, columns: usize) -> Vec<String> {
    let size = row.cache_bytes.map_or(String::new(), words::size);
    let mut cells = vec![name.to_owned(), size];
    let Some(facts) = &row.facts else {
        cells.push("failed".into());
        cells.resize(columns, String::new());
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
    if shown.has_flushes {
        cells.extend(times(facts.flush));
    }
    cells.push(gain(facts.fewer_disk_writes_percent));
    cells.push(log.map_or("-".into(), |log| words::percent(log.stalled_percent)));
    let wear = log.and_then(|log| log.wear);
    cells.push(wear.map_or("-".into(), |wear| words::size(wear.bytes_per_day as u64)));
    cells.push(wear.and_then(|wear| wear.years).map_or("-".into(), words::years));
    if shown.has_cost {
        cells.push(facts.cost.map_or("-".into(), |cost| words::dollars(cost.month_usd)));
    }
    cells
}
