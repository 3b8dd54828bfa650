//! Flags of `dcd sweep`.

use std::path::PathBuf;

use clap::Args;
use dcd_study::shard::Shard;
use dcd_study::sweep::GridArguments;

/// Simulate one load, or each of many, with every combination of settings.
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
  dcd sweep --traces volumes --disk wd-4tb --cache-disk 64M,256M --out volumes.csv
  dcd sweep --trace boot.csv.zst --disk wd400bb --cache-disk 1G --read-area 64M,256M --sequences detect --confirmations 2,3 --stretch 0 --out boot.csv")]
pub struct SweepArguments {
    /// The load, and settings.
    #[command(flatten)]
    pub grid: GridArguments,
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
