//! The settings of a grid: flags of `dcd sweep`, keywords of `dcd.sweep()`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use dcd_engine::nvram::HotZoneSize;
use dcd_protocol::units_text::{parse_duration, parse_percent, parse_size};
use dcd_sim::sweep::Load;
use dcd_sim::workload::WorkloadSpec;

use crate::StudyError;
use crate::load::{TraceInputArguments, parse_workload};
use crate::simulate::{
    DestageArgument, NvramPolicyArgument, PASSES_DEFAULT, SequencesArgument, parse_groups_at_once,
    parse_hot_zone,
};
use crate::traces::{self, Fetching, TraceSet};

/// What is simulated, and with which settings: those with several values span the grid.
#[derive(Args, Debug)]
pub struct GridArguments {
    /// The trace; `dcd trace --help` lists the formats.
    #[arg(long, value_name = "FILE", required_unless_present_any = ["workload", "traces"])]
    pub trace: Option<PathBuf>,
    /// Each of many traces: the files of a directory, or those that a file names, one in each line
    /// (from its own directory on); in builds with object stores also the objects below
    /// s3://BUCKET/PREFIX. May be given several times.
    #[arg(long, value_name = "DIRECTORY|LIST|s3://...", conflicts_with = "trace")]
    pub traces: Vec<TraceSet>,
    /// Made-up requests instead: NAME[,KEY=VALUE...]; may be given several times. docs/workloads.md
    /// tells which there are.
    #[arg(long, value_name = "WORKLOAD", value_parser = parse_workload)]
    #[arg(conflicts_with_all = ["trace", "traces", "format", "device"])]
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
    /// Its order of destaging [default: fifo; ordered in front of an object store].
    #[arg(long, value_name = "POLICIES", value_delimiter = ',', requires = "cache_disk")]
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
}

impl GridArguments {
    /// The loads that they name; of objects in a bucket that they are there is all that is known.
    ///
    /// # Errors
    /// Of a set of traces.
    pub fn loads(&self, fetching: Option<&Fetching<'_>>) -> Result<Vec<Load>, StudyError> {
        Ok(match &self.trace {
            Some(path) => vec![Load::Trace(self.input.source(path))],
            None if !self.traces.is_empty() => traces::loads(&self.traces, &self.input, fetching)?,
            None => self.workload.iter().cloned().map(Load::Workload).collect(),
        })
    }
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
