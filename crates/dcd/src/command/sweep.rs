//! `dcd sweep`: one trace, simulated with every combination of settings.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use dcd_daemon::units_text::parse_size;
use dcd_sim::disk::profile::Profile;
use dcd_sim::distribution::Percentiles;
use dcd_sim::replay::{Pace, ReplayFacts};
use dcd_sim::sweep::{self, Load, Outcome, Point, TraceSource};
use serde_json::{Map, Value, json};

use super::simulate::{CacheArguments, DestageArgument, NvramPolicyArgument};
use crate::cli::TraceInputArguments;
use crate::error::CommandError;
use crate::output::print_json;
use crate::progress::{Progress, Unit};
use crate::settings::parse_percent;

/// Simulate one trace with every combination of settings.
///
/// Flags that take several values, with commas between them, span a grid; each point of it is one `dcd simulate`.
/// One row for each goes to a CSV file, in the order of the grid. When interrupted, the same command goes on where it
/// was.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd sweep --trace load.csv.zst --disk hp-2200a --nvram 128k,256k,512k --policy lru,lst,stack --out sweep.csv
  dcd sweep --trace load.csv.zst --disk hp-2200a --nvram 256k --high 90 --low 10,20,40,80 --out low.csv
  dcd sweep --trace load.csv.zst --disk hp-97560,wd-4tb --cache-disk none,64M --out disks.csv --json")]
pub struct SweepArguments {
    /// The trace; `dcd trace --help` lists the formats.
    #[arg(long, value_name = "FILE")]
    pub trace: PathBuf,
    /// How it is read.
    #[command(flatten)]
    pub input: TraceInputArguments,
    /// Disks: names of profiles, or paths of TOML files.
    #[arg(long, value_name = "PROFILES", value_delimiter = ',', required = true)]
    pub disk: Vec<String>,
    /// Sizes of a non-volatile memory; `none` for the disk without one.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "none", value_parser = parse_size_or_none)]
    pub nvram: Vec<OrNone>,
    /// Its policies.
    #[arg(long, value_name = "POLICIES", value_delimiter = ',', default_value = "lru")]
    pub policy: Vec<NvramPolicyArgument>,
    /// Its high thresholds.
    #[arg(long, value_name = "PERCENTS", value_delimiter = ',', default_value = "90", value_parser = parse_percent)]
    pub high: Vec<u8>,
    /// Its low thresholds; those above the high one are that one.
    #[arg(long, value_name = "PERCENTS", value_delimiter = ',', default_value = "20", value_parser = parse_percent)]
    pub low: Vec<u8>,
    /// Sizes of a cache-disk for a log; `none` for the disk without one.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "none", value_parser = parse_size_or_none)]
    pub cache_disk: Vec<OrNone>,
    /// Its sizes of a segment.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "128k", value_parser = parse_size)]
    pub segment: Vec<u64>,
    /// Its order of destaging.
    #[arg(long, value_name = "POLICIES", value_delimiter = ',', default_value = "fifo")]
    pub destage: Vec<DestageArgument>,
    /// Factors for the times of the trace; 0: each request comes when the one before is done.
    #[arg(long, value_name = "FACTORS", value_delimiter = ',', default_value = "1", value_parser = parse_stretch)]
    pub stretch: Vec<f64>,
    /// Seed of all simulations, as with `dcd simulate`.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub seed: u64,
    /// The CSV file. If it is there, it must be the beginning of this sweep.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Threads [default: one for each processor].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// Print all rows as JSON at the end, too.
    #[arg(long)]
    pub json: bool,
}

/// A size, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OrNone(pub Option<u64>);

fn parse_size_or_none(text: &str) -> Result<OrNone, String> {
    match text {
        "none" => Ok(OrNone(None)),
        _ => match parse_size(text).map_err(|error| error.to_string())? {
            0..512 => Err("expected `none`, or at least 512 bytes".into()),
            bytes => Ok(OrNone(Some(bytes))),
        },
    }
}

fn parse_stretch(text: &str) -> Result<f64, &'static str> {
    match text.parse() {
        Ok(stretch) if (0.0..=1e9).contains(&stretch) => Ok(stretch),
        _ => Err("expected a number from 0 to 1e9"),
    }
}

/// Columns behind the parameters.
const RESULTS: &[&str] = &[
    "requests",
    "reads",
    "writes",
    "disk_reads",
    "disk_writes",
    "disk_write_bytes",
    "disk_busy_percent",
    "stalled_writes",
    "overwrites",
    "read_service_ms",
    "read_response_ms",
    "read_response_p99_ms",
    "write_service_ms",
    "write_response_ms",
    "write_response_p99_ms",
    "cache_disk_write_bytes",
    "error",
];

pub fn run(arguments: &SweepArguments) -> Result<(), CommandError> {
    let points = arguments.points()?;
    let trace = TraceSource {
        path: arguments.trace.clone(),
        format: arguments.input.format,
        device: arguments.input.device,
    };
    trace.check()?;
    let labels: Vec<&str> = points[0].labels.iter().map(|(name, _)| *name).collect();
    let header = labels.iter().chain(RESULTS).copied().collect::<Vec<_>>().join(",");
    let (mut out, first) = resume(&arguments.out, &header, &points)?;
    let jobs = arguments.jobs.map_or_else(
        || std::thread::available_parallelism().map_or(1, |count| count.get()),
        |jobs| jobs as usize,
    );
    let mut progress = Progress::new("sweeping", Unit::Rounds);
    let mut problem = None;
    sweep::run(&Load::Trace(trace), &points, first, jobs, |index, outcome| {
        let row = format!("{}\n", row(&points[index], &outcome));
        if let Err(source) = out.write_all(row.as_bytes()) {
            problem = Some(source);
            return false;
        }
        progress.update(index as u64 + 1, points.len() as u64);
        true
    });
    progress.finish();
    if let Some(source) = problem {
        return Err(CommandError::file("write", &arguments.out)(source));
    }
    if arguments.json {
        return print_json(&json!({ "rows": rows(&arguments.out)? }));
    }
    crate::output::print(&format!("{} rows in {}\n", points.len(), arguments.out.display()))
}

impl SweepArguments {
    /// All combinations that differ, in the order of the flags.
    fn points(&self) -> Result<Vec<Point>, CommandError> {
        let disks = self.disk.iter().map(|name| Ok((name, Profile::load(name)?)));
        let disks: Vec<(&String, Profile)> = disks.collect::<Result<_, CommandError>>()?;
        let mut points: Vec<Point> = Vec::new();
        for (disk, profile) in &disks {
            for nvram in &self.nvram {
                // Without a memory its settings make no difference.
                let count = |all: usize| if nvram.0.is_some() { all } else { 1 };
                for policy in &self.policy[..count(self.policy.len())] {
                    for high in &self.high[..count(self.high.len())] {
                        for low in &self.low[..count(self.low.len())] {
                            self.add_logs(&mut points, disk, profile, |caches| {
                                caches.nvram = nvram.0;
                                caches.policy = *policy;
                                (caches.high, caches.low) = (*high, *low.min(high));
                            })?;
                        }
                    }
                }
            }
        }
        points.dedup_by(|a, b| a.labels == b.labels);
        Ok(points)
    }

    fn add_logs(
        &self,
        points: &mut Vec<Point>,
        disk: &str,
        profile: &Profile,
        set: impl Fn(&mut CacheArguments),
    ) -> Result<(), CommandError> {
        for cache_disk in &self.cache_disk {
            let count = |all: usize| if cache_disk.0.is_some() { all } else { 1 };
            for segment in &self.segment[..count(self.segment.len())] {
                for destage in &self.destage[..count(self.destage.len())] {
                    for stretch in &self.stretch {
                        let mut caches = CacheArguments::default();
                        set(&mut caches);
                        caches.cache_disk = cache_disk.0;
                        (caches.segment, caches.destage) = (*segment, *destage);
                        points.push(Point {
                            labels: labels(disk, &caches, *stretch),
                            setup: caches.setup(profile.clone(), self.seed)?,
                            pace: match *stretch {
                                0.0 => Pace::Closed,
                                stretch => Pace::Open { stretch },
                            },
                        });
                    }
                }
            }
        }
        Ok(())
    }
}

/// Parameters of a point. Empty: it makes no difference.
fn labels(disk: &str, caches: &CacheArguments, stretch: f64) -> Vec<(&'static str, String)> {
    let of_nvram = |text: String| if caches.nvram.is_some() { text } else { String::new() };
    let of_log = |text: String| if caches.cache_disk.is_some() { text } else { String::new() };
    let bytes = |size: Option<u64>| size.map_or(String::new(), |bytes| bytes.to_string());
    vec![
        ("disk", disk.replace([',', '\n', '"'], "_")),
        ("nvram_bytes", bytes(caches.nvram)),
        ("policy", of_nvram(caches.policy.name())),
        ("high_percent", of_nvram(caches.high.to_string())),
        ("low_percent", of_nvram(caches.low.to_string())),
        ("cache_disk_bytes", bytes(caches.cache_disk)),
        ("segment_bytes", of_log(caches.segment.to_string())),
        ("destage", of_log(caches.destage.name())),
        ("stretch", stretch.to_string()),
    ]
}

fn prefix(point: &Point) -> String {
    point.labels.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(",") + ","
}

fn row(point: &Point, outcome: &Outcome) -> String {
    let mut row = prefix(point);
    match outcome {
        Ok(facts) => row += &results(facts),
        Err(problem) => {
            row += &",".repeat(RESULTS.len() - 1);
            let _ = write!(row, "\"{}\"", problem.replace('"', "'").replace('\n', " "));
        }
    }
    row
}

fn results(facts: &ReplayFacts) -> String {
    let target = &facts.target;
    let ms = |times: Option<Percentiles>, value: fn(Percentiles) -> f64| {
        times.map_or(String::new(), |times| format!("{:.4}", value(times)))
    };
    let (mean, p99) = (|times: Percentiles| times.mean, |times: Percentiles| times.p99);
    let log = target.log.as_ref();
    [
        facts.requests.to_string(),
        facts.reads.to_string(),
        facts.writes.to_string(),
        target.disk_reads.to_string(),
        target.disk_writes.to_string(),
        target.disk_write_bytes.to_string(),
        format!("{:.3}", target.disk_busy_percent),
        target.stalled_writes.to_string(),
        target.overwrites.to_string(),
        ms(facts.read.service_ms, mean),
        ms(facts.read.response_ms, mean),
        ms(facts.read.response_ms, p99),
        ms(facts.write.service_ms, mean),
        ms(facts.write.response_ms, mean),
        ms(facts.write.response_ms, p99),
        log.map_or(String::new(), |log| log.cache_disk_write_bytes.to_string()),
        String::new(),
    ]
    .join(",")
}

/// Opens the file behind the last whole row, and tells how many there are.
fn resume(path: &Path, header: &str, points: &[Point]) -> Result<(File, usize), CommandError> {
    let error = |action| CommandError::file(action, path);
    let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    let mut file = open.map_err(error("open"))?;
    let mut reader = BufReader::new(&file);
    let (mut end, mut rows, mut line) = (0, None, String::new());
    while reader.read_line(&mut line).map_err(error("read"))? > 0 && line.ends_with('\n') {
        let text = line.trim_end();
        let fits = match rows {
            None => text == header,
            Some(row) => points.get(row).is_some_and(|point| text.starts_with(&prefix(point))),
        };
        if !fits {
            let line = rows.map_or(1, |row| row + 2);
            return Err(CommandError::OtherSweep { path: path.to_owned(), line });
        }
        rows = Some(rows.map_or(0, |row: usize| row + 1));
        end += line.len() as u64;
        line.clear();
    }
    // Something else that has no end of line is not ours to cut off.
    if rows.is_none() && !line.is_empty() {
        return Err(CommandError::OtherSweep { path: path.to_owned(), line: 1 });
    }
    file.set_len(end).map_err(error("shorten"))?;
    file.seek(SeekFrom::Start(end)).map_err(error("read"))?;
    if rows.is_none() {
        file.write_all(format!("{header}\n").as_bytes()).map_err(error("write"))?;
    }
    Ok((file, rows.unwrap_or(0)))
}

/// The rows of the file: numbers where there are numbers.
fn rows(path: &Path) -> Result<Vec<Value>, CommandError> {
    let text = std::fs::read_to_string(path).map_err(CommandError::file("read", path))?;
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let value = |text: &str| match text.parse::<f64>() {
        Ok(number) => json!(number),
        Err(_) if text.is_empty() => Value::Null,
        Err(_) => json!(text.trim_matches('"')),
    };
    let row = |line: &str| {
        let fields = line.splitn(names.len(), ',').map(value);
        Value::Object(
            names.iter().map(|name| (*name).to_owned()).zip(fields).collect::<Map<_, _>>(),
        )
    };
    Ok(lines.map(row).collect())
}
