//! What `dcd trace` may be asked for.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use dcd_daemon::units_text::parse_duration;
use dcd_sim::workload::WorkloadSpec;
use dcd_study::load::{TraceInputArguments, parse_workload};
use dcd_study::simulate::parse_stretch;

use crate::page_file::{PlotFile, parse_plot_file};

/// Record traces of disk requests, look at them, convert and replay them, and make some up.
///
/// The format is told by the content: the project's CSV, blkparse, blktrace, tracefs and perf,
/// fio's iolog and latency log, biosnoop, SPC (UMass), MSR Cambridge, SYSTOR '17, FIU, Alibaba,
/// Tencent, CloudPhysics, oracleGeneral, DiskSim, HP's SRT, Parquet; plain, compressed (zstd, gzip,
/// xz, bzip2, lz4) or in a tar. docs/traces.md describes them. `-` is standard input or output.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd trace summary load.csv.zst
  dcd trace summary Financial1.spc.gz --device 0 --json
  dcd trace plot load.csv.zst --out load.html
  blktrace -d /dev/sdb -o - -w 60 | blkparse -i - | dcd trace summary -
  dcd trace convert load.txt load.csv
  dcd trace convert load.csv load.parquet
  dcd trace split volumes.csv.gz volumes
  dcd trace record /dev/sdb load.csv --for 1h
  dcd trace record --control /run/dcd.sock load.csv --for 60s
  dcd trace replay load.csv --nbd /run/disk.sock --overwrite --closed-loop
  dcd trace generate zipf,theta=1.1,reads=30,rate=200,duration=10m,seed=7 load.csv")]
pub struct TraceArguments {
    /// What to do.
    #[command(subcommand)]
    pub what: TraceWhat,
}

/// What can be done with traces.
#[derive(Subcommand, Debug)]
pub enum TraceWhat {
    /// Mix, sizes, bursts, pace, overwrites, working set
    Summary {
        /// The trace; - is standard input.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// How it is read.
        #[command(flatten)]
        input: TraceInputArguments,
        /// A longer silence ends a burst.
        #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_duration)]
        burst_gap: std::time::Duration,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Draw it: requests over time and address, rates, sizes, gaps, bursts, overwrites, growth of
    /// the working set
    Plot {
        /// The trace; - is standard input.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// How it is read.
        #[command(flatten)]
        input: TraceInputArguments,
        /// A longer silence ends a burst.
        #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_duration)]
        burst_gap: std::time::Duration,
        /// The file to write, NAME.html or NAME.svg; an earlier one of dcd trace plot is replaced,
        /// nothing else is. - is standard output, for HTML.
        #[arg(long, value_name = "FILE", value_parser = parse_plot_file)]
        out: PlotFile,
    },
    /// Record what a block device, or a running dcd, is asked for
    ///
    /// A block device: a disk, a partition, device-mapper, a loop device. Needs root, and tracefs
    /// (mount -t tracefs nodev /sys/kernel/tracing). Put OUT on another device, or it records
    /// itself.
    ///
    /// A running dcd: requests of all its clients, with the time that each took, from the socket of
    /// its --control.
    ///
    /// Ends with the time or Ctrl-C.
    #[command(allow_missing_positional = true)]
    Record {
        /// The device.
        #[arg(
            value_name = "DEVICE",
            required_unless_present = "control",
            conflicts_with = "control"
        )]
        device: Option<PathBuf>,
        /// The file to write, as CSV or as NAME.parquet; must not exist. - is standard output.
        #[arg(value_name = "OUT", required = true)]
        out: PathBuf,
        /// Record a running dcd instead: its control socket.
        #[arg(long, value_name = "SOCKET")]
        control: Option<PathBuf>,
        /// How long.
        #[arg(long = "for", value_name = "TIME", default_value = "10m", value_parser = parse_duration)]
        time: std::time::Duration,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Send the requests of the trace to a disk that is served over NBD, and measure
    ///
    /// Writes zeroes to it: what is on the disk is lost. The pace is as with `dcd simulate`, so the
    /// two can be compared.
    Replay {
        /// The trace; - is standard input.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// How it is read.
        #[command(flatten)]
        input: TraceInputArguments,
        /// The unix socket of the NBD server.
        #[arg(long, value_name = "SOCKET")]
        nbd: PathBuf,
        /// Only so many requests.
        #[arg(long, value_name = "COUNT")]
        requests: Option<u64>,
        /// Each request comes when the one before is done.
        #[arg(long)]
        closed_loop: bool,
        /// Multiply the times of the trace.
        #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = parse_stretch)]
        #[arg(conflicts_with = "closed_loop")]
        stretch: f64,
        /// The content of the disk may be overwritten.
        #[arg(long, required = true)]
        overwrite: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Write the trace as CSV or Parquet
    Convert {
        /// The trace; - is standard input.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// How it is read.
        #[command(flatten)]
        input: TraceInputArguments,
        /// The file to write, as CSV, or as Parquet if its name ends with .parquet; must not exist.
        /// - is standard output.
        #[arg(value_name = "OUT")]
        out: PathBuf,
    },
    /// Write a trace for each disk of one
    Split {
        /// The trace; - is standard input.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// How it is read.
        #[command(flatten)]
        input: TraceInputArguments,
        /// The directory to make; must not exist. It gets disk-NUMBER.csv for each disk, with the
        /// times of the whole trace.
        #[arg(value_name = "DIRECTORY")]
        directory: PathBuf,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Write made-up requests as a trace
    Generate {
        /// NAME[,KEY=VALUE...]: bursts, uniform, zipf, hot-cold, sequential, users, snake;
        /// docs/workloads.md tells what they are and which keys they have.
        #[arg(value_name = "WORKLOAD", value_parser = parse_workload)]
        workload: WorkloadSpec,
        /// The file to write, as CSV or as NAME.parquet; must not exist. - is standard output.
        #[arg(value_name = "OUT")]
        out: PathBuf,
    },
}
