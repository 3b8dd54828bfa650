//! Flags of `dcd sweep`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use dcd_daemon::units_text::{parse_duration, parse_size};
use dcd_engine::nvram::HotZoneSize;
use dcd_sim::workload::WorkloadSpec;

use crate::command::simulate::{
    DestageArgument, NvramPolicyArgument, PASSES_DEFAULT, SequencesArgument, parse_groups_at_once,
    parse_hot_zone,
};
use crate::command::trace::arguments::TraceInputArguments;
use crate::command::workload::parse_workload;
use crate::settings::parse_percent;
use crate::shard::Shard;

/// Simulate one load with every combination of settings.
///
/// Flags that take several values, with commas between them, span a grid; each point of it is one
/// `dcd simulate`. One row for each goes to a file, in the order of the grid. When interrupted, the
/// same command goes on where it was.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd sweep --trace load.csv.zst --disk hp-2200a --nvram 128k,256k,512k --policy lru,lst,stack --out sweep.csv
  dcd sweep --trace load.csv.zst --disk hp-2200a --nvram 256k --high 90 --low 10,20,40,80 --out low.csv
  dcd sweep --workload zipf,rate=50 --workload snake,disk=5 --disk hp-97560 --nvram 256k --policy stack --hot-zone auto,25,50 --out zone.json
  dcd sweep --trace load.csv.zst --disk hp-97560,wd-4tb --cache-disk none,64M --out disks.csv --json
  dcd sweep --trace load.csv.zst --disk wd-4tb --cache-disk 16M,64M,256M --shard 0/4 --out part0.csv
  dcd sweep --trace load.csv.zst --disk wd-4tb --cache-disk 16M,64M,256M --merge part0.csv part1.csv part2.csv part3.csv --out all.csv
  dcd sweep --trace boot.csv.zst --disk wd400bb --cache-disk 1G --read-area 64M,256M --sequences detect --confirmations 2,3 --stretch 0 --out boot.csv")]
pub struct SweepArguments {
    /// The trace; `dcd trace --help` lists the formats.
    #[arg(long, value_name = "FILE", required_unless_present = "workload")]
    pub trace: Option<PathBuf>,
    /// Made-up requests instead: NAME[,KEY=VALUE...]; may be given several times. docs/workloads.md
    /// tells which there are.
    #[arg(long, value_name = "WORKLOAD", value_parser = parse_workload)]
    #[arg(conflicts_with_all = ["trace", "format", "device"])]
    pub workload: Vec<WorkloadSpec>,
    /// How it is read.
    #[command(flatten)]
    pub input: TraceInputArguments,
    /// Disks: names of profiles, or paths of TOML files.
    #[arg(long, value_name = "PROFILES", value_delimiter = ',', required = true)]
    pub disk: Vec<String>,
    /// Sizes of a non-volatile memory; `none` for the disk without one [default: none].
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = parse_size_or_none)]
    pub nvram: Vec<OrNone>,
    /// Its policies; with `auto` its thresholds, idle time and groups at once follow the load, and
    /// those below are for the others.
    #[arg(
        long,
        value_name = "POLICIES",
        value_delimiter = ',',
        default_value = "lru",
        requires = "nvram"
    )]
    pub policy: Vec<NvramPolicyArgument>,
    /// Its high thresholds.
    #[arg(long, value_name = "PERCENTS", value_delimiter = ',', default_value = "90", value_parser = parse_percent)]
    #[arg(requires = "nvram")]
    pub high: Vec<u8>,
    /// Its low thresholds; those above the high one are that one.
    #[arg(long, value_name = "PERCENTS", value_delimiter = ',', default_value = "20", value_parser = parse_percent)]
    #[arg(requires = "nvram")]
    pub low: Vec<u8>,
    /// For how long the disk must have had no other request before cleaning that no write waits
    /// for.
    #[arg(long, value_name = "TIMES", value_delimiter = ',', default_value = "0s", value_parser = parse_duration)]
    #[arg(requires = "nvram")]
    pub idle: Vec<Duration>,
    /// How many groups are cleaned at once: `all`, or numbers.
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', default_value = "all", value_parser = parse_groups_at_once)]
    #[arg(requires = "nvram")]
    pub groups_at_once: Vec<u32>,
    /// Its parts for what is written again and again, only with --policy stack: `auto`, or shares
    /// [default: auto].
    #[arg(long, value_name = "auto|PERCENTS", value_delimiter = ',', value_parser = parse_hot_zone)]
    #[arg(requires = "nvram")]
    pub hot_zone: Vec<HotZoneSize>,
    /// Sizes of a cache-disk for a log; `none` for the disk without one [default: none].
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = parse_size_or_none)]
    pub cache_disk: Vec<OrNone>,
    /// Its sizes of a segment.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "128k", value_parser = parse_size)]
    #[arg(requires = "cache_disk")]
    pub segment: Vec<u64>,
    /// Its order of destaging.
    #[arg(
        long,
        value_name = "POLICIES",
        value_delimiter = ',',
        default_value = "fifo",
        requires = "cache_disk"
    )]
    pub destage: Vec<DestageArgument>,
    /// Parts of it for copies of what is read; `none` for no such part [default: none].
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = parse_size_or_none)]
    #[arg(requires = "cache_disk")]
    pub read_area: Vec<OrNone>,
    /// How the engine comes to know the load, as for `dcd simulate` [default: it comes once].
    #[arg(long, value_name = "MODES", value_delimiter = ',', requires = "read_area")]
    pub sequences: Vec<SequencesArgument>,
    /// How often the load comes with --sequences detect.
    #[arg(long, value_name = "COUNT", default_value_t = PASSES_DEFAULT, requires = "sequences")]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub passes: u32,
    /// How often a sequence must be seen before it is kept.
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', requires = "read_area")]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub confirmations: Vec<u32>,
    /// Lines read before in which the first occurrence of a sequence is looked for.
    #[arg(long, value_name = "LINES", value_delimiter = ',', requires = "read_area")]
    #[arg(value_parser = clap::value_parser!(u32).range(64..=1 << 24))]
    pub history: Vec<u32>,
    /// Factors for the times of the load; 0: each request comes when the one before is done.
    #[arg(long, value_name = "FACTORS", value_delimiter = ',', default_value = "1", value_parser = parse_stretch)]
    pub stretch: Vec<f64>,
    /// Seed of all simulations, as with `dcd simulate`.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub seed: u64,
    /// Simulate only one of N shards of the grid, numbered from 0: every N-th row of a mixed order.
    /// N alone: which one says JOB_COMPLETION_INDEX (Kubernetes) or SLURM_ARRAY_TASK_ID (Slurm).
    #[arg(long, value_name = "I/N|N", conflicts_with = "merge")]
    pub shard: Option<Shard>,
    /// Simulate nothing: put the rows of these files, one of each shard of this sweep, together,
    /// as one sweep writes them. Rows that are missing, or there twice, are told, and nothing is
    /// written.
    #[arg(long, value_name = "FILES", num_args = 1..)]
    pub merge: Vec<PathBuf>,
    /// The file of results: NAME.csv, NAME.json (an object in each line) or, in builds with
    /// Parquet, NAME.parquet. If it is there, it must be the beginning of this sweep.
    #[arg(long, value_name = "FILE", value_parser = parse_result_file)]
    pub out: ResultFile,
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

/// A file of results.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResultFile {
    /// Its name.
    pub path: PathBuf,
    /// Its kind.
    pub format: ResultFormat,
}

/// Kinds of files of results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResultFormat {
    /// A row for each point, below one of names.
    Csv,
    /// An object in each line.
    JsonLines,
    /// A table, when all is done.
    Parquet,
}

fn parse_result_file(text: &str) -> Result<ResultFile, &'static str> {
    let path = PathBuf::from(text);
    let format = match path.extension().and_then(|extension| extension.to_str()) {
        Some("csv") => ResultFormat::Csv,
        Some("json" | "jsonl") => ResultFormat::JsonLines,
        Some("parquet") => ResultFormat::Parquet,
        _ => return Err("expected a name that ends in .csv, .json, .jsonl or .parquet"),
    };
    Ok(ResultFile { path, format })
}

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
