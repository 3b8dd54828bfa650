//! The command line: verbs, flags and their help. Everything that can be checked without opening
//! a device is checked here, so a bad flag costs nothing.
//!
//! `docs/cli.md` is this file in words; `tests/documents.rs` compares the two.

use std::path::PathBuf;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, CommandFactory, Parser, Subcommand};
use dcd_daemon::disk::device_spec::DeviceSpec;
use dcd_daemon::frontend::nbd::listen::NbdAddress;
use dcd_daemon::serve::UblkNumber;
use dcd_daemon::units_text::{parse_duration, parse_size};
use dcd_engine::Uuid;
use dcd_fuzz::faults::FaultKind;
use dcd_fuzz::volume::VolumeKind;
use dcd_sim::trace::TraceFormat;
use dcd_sim::workload::WorkloadSpec;

use crate::command::advise::AdviseArguments;
use crate::command::demo::DemoArguments;
use crate::command::dhisfs::DhisfsArguments;
use crate::command::figures::FiguresArguments;
use crate::command::hint::HintArguments;
use crate::command::sequence::SequenceArguments;
use crate::command::simulate::{SimulateArguments, parse_stretch};
use crate::command::sweep::SweepArguments;
use crate::command::volume::VolumeArguments;
use crate::command::workload::parse_workload;
use crate::settings::{Settings, parse_ublk};

/// Width of the help text where it does not follow the terminal: in `docs/cli.md`.
pub const HELP_WIDTH: usize = 100;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default())
    .placeholder(AnsiColor::Cyan.on_default());

/// Documented exit codes; the numbers are in `error.rs`.
const EXIT_CODES: &str = "\
Exit codes:
  0    success
  1    wrong setting, or refused; nothing was changed
  2    bad command line
  3    the reader of the output closed the pipe
  4    damage found (check, volume scrub), or lines of a volume that are lost (volume rebuild)
  5    a disk failed to read or write
  6    nobody answers on the control socket
  7    cancelled before the end (drain, detach, grow, fuzz, making a trace); nothing is lost, and it can be begun again
  8    nothing more gets to the data-disk (drain, detach, grow); nothing is lost, what is left stays in the cache
  255  a bug in dcd

Examples:
  dcd create --cache-disk fast.img --cache-size 256M --data-disk /dev/sdb
  dcd serve  --cache-disk fast.img --data-disk /dev/sdb --nbd unix:/run/sdb.sock --control /run/sdb.ctl
  dcd status --control /run/sdb.ctl

Results go to stdout, progress and errors to stderr. Sizes take units (4k, 16M, 1G; powers of 1024),
durations too (50ms, 2s).";

/// Disk caching disk: a small, fast, append-only log in front of a slow disk.
///
/// Small scattered writes become large sequential ones. They are acknowledged as soon as the log
/// holds them, and moved to the slow disk when that has time. Nothing that was flushed is ever at
/// risk, and the slow disk stays an ordinary disk that mounts without dcd once it is detached.
#[derive(Parser, Debug)]
#[command(name = "dcd", version, styles = STYLES, after_help = EXIT_CODES)]
#[command(disable_help_subcommand = true, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs.
#[derive(Subcommand, Debug)]
pub enum Verb {
    Create(CreateArguments),
    Serve(Box<ServeArguments>),
    Status(StatusArguments),
    Metrics(MetricsArguments),
    Top(TopArguments),
    List(ListArguments),
    Flush(FlushArguments),
    Drain(DrainArguments),
    Detach(DetachArguments),
    Grow(GrowArguments),
    Check(CheckArguments),
    Salvage(SalvageArguments),
    Inspect(InspectArguments),
    Bench(BenchArguments),
    Demo(DemoArguments),
    Fuzz(FuzzArguments),
    Disk(DiskArguments),
    Trace(TraceArguments),
    Sequence(SequenceArguments),
    Volume(VolumeArguments),
    Hint(HintArguments),
    Advise(Box<AdviseArguments>),
    Simulate(SimulateArguments),
    Sweep(SweepArguments),
    Figures(FiguresArguments),
    SlowDisk(SlowDiskArguments),
    Ublk(UblkArguments),
    Dhisfs(DhisfsArguments),
    Probe(ProbeArguments),
    Completions(CompletionsArguments),
    Man(ManArguments),
    HelpMarkdown(HelpMarkdownArguments),
    Caretaker(CaretakerArguments),
}

/// List the daemons of this machine, and the memory that they have or have left.
///
/// Segment memory is what outlives a killed dcd. It is NEEDED where the last session of its cache ended without order: the next
/// serve or detach brings what is in it to the disks, and it goes. Stale memory holds nothing that counts, and only takes
/// room: how to remove it is told. Changes nothing.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd list
  dcd list --memory-directory /mnt/tmpfs --json")]
pub struct ListArguments {
    /// Look for memory here, too. Where dcd puts it by itself, and where running daemons have theirs, is always looked at. May
    /// be given again.
    #[arg(long, value_name = "DIRECTORY")]
    pub memory_directory: Vec<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Make a cache for a disk, or for several disks as one volume.
///
/// Writes an empty log to the cache-disk and notes there which data-disk it belongs to. The
/// data-disk is looked at and not changed, but for a label with --labelled. A cache-disk is overwritten if it is zero, or holds a cache
/// that is detached; one that holds anything else is refused. With --volume several data-disks become
/// the members of RAID sets: what they held is lost, so one that holds anything is refused too.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd create --cache-disk fast.img --cache-size 256M --data-disk slow.img
  dcd create --cache-disk /dev/nvme0n1p4 --data-disk /dev/sdb
  dcd create --cache-disk fast.img --data-disk slow.img --force
  dcd create --cache-disk /dev/nvme0n1p4 --data-disk /dev/sdb --labelled
  dcd create --cache-disk /dev/nvme0n1p4 --data-disk /dev/sdb --data-disk /dev/sdc --data-disk /dev/sdd --volume raid.toml")]
pub struct CreateArguments {
    /// Where the log goes: a block device, or a file (made if it is missing).
    #[arg(long, value_name = "FILE|DEVICE")]
    pub cache_disk: DeviceSpec,
    /// Size of the cache. Needed for a new file; otherwise all of the file or device is used.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub cache_size: Option<u64>,
    /// The disk the cache is for. With --volume, each member in a --data-disk of its own; they are numbered from 0.
    #[arg(long, value_name = "DISK", required = true)]
    pub data_disk: Vec<DeviceSpec>,
    /// Make the data-disks the members of a volume, as this TOML file says; docs/volume.md has all keys.
    #[arg(long, value_name = "FILE")]
    pub volume: Option<PathBuf>,
    /// Begin the data-disk with a label that tells whose it is and how old; the volume lies behind it, where nobody mounts it
    /// by accident. For a disk that is zero, or that has a label already: that one keeps what it holds.
    #[arg(long, conflicts_with = "volume")]
    pub labelled: bool,
    /// Room for the label: 128k to 1G, a multiple of 4k [default: 1M, or as it is].
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "labelled")]
    pub label_head: Option<u64>,
    /// Size of a segment, the unit of the log: a power of two from 64k to 4M [default: 1M, less
    /// for small caches].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub segment_size: Option<u64>,
    /// How much of the cache-disk is for copies of what is read: sequences and hot blocks
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "0",
          hide_default_value = true)]
    pub read_area: u64,
    /// Write zeroes over the whole cache first. Takes as long as writing that much, and makes the
    /// first round through a new file as fast as the later ones. New files of up to 1 GiB are
    /// filled anyway.
    #[arg(long)]
    pub fill: bool,
    /// Do not fill a new file, however small.
    #[arg(long, conflicts_with = "fill")]
    pub no_fill: bool,
    /// Overwrite what is on the cache-disk, on members of a volume, and on a disk that gets a label; one that has a label keeps
    /// what it holds, and its cache is given up. Not enough for a cache with data that is not yet on
    /// its data-disk: that needs --uuid too.
    #[arg(long)]
    pub force: bool,
    /// Give up the data in this cache, which is on the cache-disk and dirty. What is lost is listed
    /// first; `dcd inspect dirty` lists all of it.
    #[arg(long, value_name = "UUID", value_parser = parse_uuid)]
    pub uuid: Option<Uuid>,
    /// Print the new cache as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Serve the cached disk, in the foreground.
///
/// Recovers what a crash left, prints one line that begins with "ready", and runs until SIGTERM,
/// SIGINT or `dcd detach`; SIGUSR1 ends it, too, but leaves a ublk device to the next start. After a kill -9 or a power cut the same line brings everything back.
/// Every setting may also stand in the file given with --config, under the same name; flags win.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd serve --cache-disk fast.img --data-disk slow.img --nbd unix:/run/disk.sock
  dcd serve --cache-disk fast.img --data-disk /dev/sdb --fuse /run/dcd/sdb --loop --control /run/sdb.ctl
  dcd serve --cache-disk /dev/nvme0n1p4 --data-disk /dev/sdb --ublk --control /run/sdb.ctl
  dcd serve --cache-disk fast.img --data-disk slow:slow.img,read=8ms,write=8ms --nbd unix:disk.sock
  dcd serve --config /etc/dcd/sdb.toml --ack durable
  dcd serve --null --data-disk /dev/sdb --nbd unix:/run/disk.sock --cpu 3

A configuration file:
  cache-disk = \"/dev/nvme0n1p4\"
  data-disk = \"/dev/sdb\"
  nbd = [\"unix:/run/sdb.sock\"]
  control = \"/run/sdb.ctl\"
  bypass-threshold = \"64k\"")]
pub struct ServeArguments {
    /// TOML file with settings.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The settings.
    #[command(flatten)]
    pub settings: Settings,
    /// Serve the data-disk without any cache: each request is one of the data-disk, so that what the layers above cost
    /// can be measured.
    #[arg(long)]
    pub null: bool,
    /// Print nothing but the ready line and errors.
    #[arg(long)]
    pub quiet: bool,
}

/// Show how a running dcd does.
///
/// State, segments, dirty data, hit and overwrite rates, write amplification, and how long reads,
/// writes and flushes took.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd status --control /run/sdb.ctl
  dcd status --control /run/sdb.ctl --json | jq .dirty_bytes")]
pub struct StatusArguments {
    /// Control socket of the running dcd; of a service its name, or the device that it serves.
    #[arg(long, value_name = "SOCKET|DEVICE|NAME")]
    pub control: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Print the metrics of a running dcd, in the form of OpenMetrics.
///
/// What Prometheus reads from `dcd serve --metrics`, once. docs/metrics.md says what each of them means.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd metrics sdb
  dcd metrics /dev/ublkb0
  dcd metrics /run/sdb.ctl | grep dirty")]
pub struct MetricsArguments {
    /// The control socket of a running dcd. Of a service: its name, or the device that it serves.
    #[arg(value_name = "SOCKET|DEVICE|NAME")]
    pub daemon: PathBuf,
    /// Where services have their control sockets.
    #[arg(long, value_name = "DIRECTORY", default_value = crate::daemons::DIRECTORY)]
    pub sockets: PathBuf,
}

/// Watch running dcds in the terminal.
///
/// Requests and their response times in the last interval, the ring of segments, dirty data, how fast it is destaged
/// and when it will be gone, members of volumes. Arrows choose among several daemons, q quits. Where stdout is no
/// terminal, one picture is printed as plain text.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd top
  dcd top sdb /run/sdc.ctl
  dcd top --once
  dcd top --json --interval 10s | jq .interval.writes.per_second")]
pub struct TopArguments {
    /// Control sockets of running dcds. Of services: their names, or the devices that they serve [default: all
    /// services].
    #[arg(value_name = "SOCKET|DEVICE|NAME")]
    pub daemons: Vec<PathBuf>,
    /// How long an interval is.
    #[arg(long, value_name = "TIME", value_parser = parse_interval, default_value = "1s")]
    pub interval: std::time::Duration,
    /// Print one picture as plain text, after one interval.
    #[arg(long)]
    pub once: bool,
    /// Print a line of JSON for each daemon and interval.
    #[arg(long)]
    pub json: bool,
    /// Where services have their control sockets.
    #[arg(long, value_name = "DIRECTORY", default_value = crate::daemons::DIRECTORY)]
    pub sockets: PathBuf,
}

/// Make everything acknowledged so far survive a power cut.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd flush --control /run/sdb.ctl")]
pub struct FlushArguments {
    /// Control socket of the running dcd; of a service its name, or the device that it serves.
    #[arg(long, value_name = "SOCKET|DEVICE|NAME")]
    pub control: PathBuf,
}

/// Bring everything acknowledged so far to the data-disk, and go on serving.
///
/// Ctrl-C, SIGTERM or the end of this command cancel it: what was moved stays moved, the rest stays
/// in the cache, serving goes on, and the exit code is 7.
///
/// When nothing more gets to the data-disk for the daemon's --drain-timeout, because it is full, fails, or a member of the
/// volume is away, the drain ends with what is left and why, and exit code 8. Serving goes on, and what is left is
/// tried again by itself.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd drain --control /run/sdb.ctl
  dcd drain --control /run/sdb.ctl --cancel")]
pub struct DrainArguments {
    /// Control socket of the running dcd; of a service its name, or the device that it serves.
    #[arg(long, value_name = "SOCKET|DEVICE|NAME")]
    pub control: PathBuf,
    /// Cancel the drains under way, whoever began them.
    #[arg(long)]
    pub cancel: bool,
    /// If something is lost, because it is damaged in the cache, write what it is to this file.
    #[arg(long, value_name = "FILE")]
    pub lost_list: Option<PathBuf>,
}

/// Bring everything to the data-disk and part it from the cache.
///
/// Afterwards the data-disk holds what a plain disk would hold, and is used without dcd. With
/// --control the running dcd does it and ends: it goes on serving until all is moved, then
/// disconnects its clients and moves what they wrote meanwhile. Without --control it is done here
/// from the two disks.
///
/// Ctrl-C or SIGTERM cancel it, with exit code 7: the pair stays one, what was moved stays moved. A
/// running dcd goes on serving, unless it has disconnected its clients already: then it stops in
/// order. Each part may be repeated at any time, after a crash too.
///
/// A disk that is in use (mounted, open, connected to) is not taken away from its users: they are named, and there is no
/// detach (exit code 1), except with --wait or --force.
///
/// Blocks whose newest copy is damaged cannot be brought to the data-disk. Then everything else is, they
/// are listed, and there is no detach (exit code 4), except with --accept-damage.
///
/// When nothing more gets to the data-disk for --drain-timeout, because it is full or fails, there is no detach (exit code 8):
/// what is left and why is told, and the pair stays one. A running dcd goes on serving.
///
/// With --wipe the cache-disk is overwritten when it is detached, and not before: what was written through it is on it as it was.
/// That takes as long as writing all of it. Interrupted, also by a crash, it is repeated with the two disks.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd detach --control /run/sdb.ctl
  dcd detach --control /run/sdb.ctl --wipe
  dcd detach --control /run/sdb.ctl --cancel
  dcd detach --cache-disk fast.img --data-disk /dev/sdb")]
#[command(group(clap::ArgGroup::new("where").required(true).args(["control", "cache_disk"])))]
pub struct DetachArguments {
    /// Control socket of the running dcd; of a service its name, or the device that it serves.
    #[arg(long, value_name = "SOCKET|DEVICE|NAME")]
    pub control: Option<PathBuf>,
    /// Cancel the detach under way, whoever began it.
    #[arg(long, requires = "control")]
    pub cancel: bool,
    /// The cache-disk, when no dcd is running.
    #[arg(long, value_name = "FILE|DEVICE", requires = "data_disk")]
    pub cache_disk: Option<DeviceSpec>,
    /// Its data-disk.
    #[arg(long, value_name = "DISK", requires = "cache_disk", conflicts_with = "control")]
    pub data_disk: Option<DeviceSpec>,
    /// Where the memory that outlived a crash of dcd is, if not where its superblock says [default: where `dcd serve` has it].
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "control")]
    pub memory_directory: Option<PathBuf>,
    /// Detach although the memory of the last session is not found, in which writes may be that were acknowledged
    /// and not flushed: as after a power cut. Without effect where it is found.
    #[arg(long, conflicts_with = "control")]
    pub memory_lost: bool,
    /// Wait until nobody uses the disk any more.
    #[arg(long, requires = "control", conflicts_with = "force")]
    pub wait: bool,
    /// Detach although the disk is mounted, open, or connected to: what its users have not written yet is lost.
    #[arg(long, requires = "control")]
    pub force: bool,
    /// End when nothing more gets to the data-disk for so long, or for an eighth of it when the disk says no [default: 60s]. A running dcd has a setting for it.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "control")]
    pub drain_timeout: Option<std::time::Duration>,
    /// Detach although blocks are lost, because they are damaged in the cache, or although the
    /// data-disk was changed behind the cache. What is lost is listed first; the data-disk keeps
    /// what it has there, which is older.
    #[arg(long)]
    pub accept_damage: bool,
    /// If something is lost, write what it is to this file, before anything is given up.
    #[arg(long, value_name = "FILE")]
    pub lost_list: Option<PathBuf>,
    /// Go on although the record of pairs of this host says that these disks do not belong together,
    /// or one is older than the other.
    #[arg(long, conflicts_with = "control")]
    pub trust_disks: bool,
    /// Overwrite the cache-disk (all of that file or device) when it is detached: discarded, and filled with zeroes unless the
    /// disk erases securely. A cache that is detached already is only wiped.
    #[arg(long, conflicts_with = "cancel")]
    pub wipe: bool,
}

/// Where a volume is served.
#[derive(Args, Debug)]
pub struct VolumeControl {
    /// Control socket of the running dcd; of a service its name, or the device that it serves.
    #[arg(long, value_name = "SOCKET|DEVICE|NAME")]
    pub control: PathBuf,
}

/// Record that the data-disk has grown.
///
/// Grow the disk first (lvextend, truncate -s), then run this while no dcd serves it. The cache stays
/// as it is; what the new part of the disk holds is shown as it is. May be interrupted at any time and
/// repeated. A disk cannot shrink below its cache.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd grow --cache-disk fast.img --data-disk /dev/vg/slow")]
pub struct GrowArguments {
    /// The cache-disk.
    #[arg(long, value_name = "FILE|DEVICE")]
    pub cache_disk: DeviceSpec,
    /// Its data-disk.
    #[arg(long, value_name = "DISK")]
    pub data_disk: DeviceSpec,
    /// Where the memory that outlived a crash of dcd is, if not where its superblock says [default: where `dcd serve` has it].
    #[arg(long, value_name = "DIRECTORY")]
    pub memory_directory: Option<PathBuf>,
    /// Grow although the memory of the last session is not found, in which writes may be that were acknowledged
    /// and not flushed: as after a power cut. Without effect where it is found.
    #[arg(long)]
    pub memory_lost: bool,
    /// Grow although blocks are lost or the data-disk was changed behind the cache: say so only
    /// after reading what is lost.
    #[arg(long)]
    pub accept_damage: bool,
    /// Go on although the record of pairs of this host says that these disks do not belong together,
    /// or one is older than the other.
    #[arg(long)]
    pub trust_disks: bool,
    /// Print the sizes as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Verify everything on a cache-disk.
///
/// Reads every superblock, checkpoint, record and block that counts and compares the checksums.
/// Writes nothing. Exit code 4 tells of damage.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd check --cache-disk fast.img
  dcd check --cache-disk /dev/nvme0n1p4 --json")]
pub struct CheckArguments {
    /// The cache-disk.
    #[arg(long, value_name = "FILE|DEVICE")]
    pub cache_disk: DeviceSpec,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Get back what a damaged cache-disk holds.
///
/// For a cache-disk that no start takes: finds every record and block that is whole, without any
/// checkpoint if need be, and tells which of them are the newest for certain, which may be older than what
/// is lost, and which are lost. Only the certain ones are written, to a new file (sparse, as large as
/// the data-disk) or to the data-disk itself; without --to and --data-disk nothing is. The cache-disk is only read. Try
/// `dcd serve` first: segment memory that has survived holds more than the cache-disk does. Exit code 4 tells that
/// something is uncertain or lost.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd salvage --cache-disk fast.img
  dcd salvage --cache-disk fast.img --to found.img --json > found.json
  dcd salvage --cache-disk fast.img --data-disk slow.img")]
pub struct SalvageArguments {
    /// The cache-disk.
    #[arg(long, value_name = "FILE|DEVICE")]
    pub cache_disk: DeviceSpec,
    /// Write what is found to this new file, each block at the place where the volume has it.
    #[arg(long, value_name = "FILE", conflicts_with = "data_disk")]
    pub to: Option<PathBuf>,
    /// Write what is found to the data-disk. Make a copy of it before.
    #[arg(long, value_name = "FILE|DEVICE")]
    pub data_disk: Option<DeviceSpec>,
    /// Write what is uncertain, too: the newest copy that was found, which may be older than what was lost.
    #[arg(long)]
    pub take_uncertain: bool,
    /// List all ranges.
    #[arg(long)]
    pub all: bool,
    /// Print JSON, with all ranges.
    #[arg(long)]
    pub json: bool,
}

/// Show what is on a cache-disk, or where a file lies.
///
/// Reads only, and shows as much as can be read of a damaged cache-disk. With --file, a file of a file system on the device
/// that a running dcd serves: its blocks, and on a volume the RAID levels and attributes of them.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd inspect superblock --cache-disk fast.img
  dcd inspect dirty --cache-disk fast.img
  dcd inspect segments --cache-disk fast.img --json
  dcd inspect segment 12 --cache-disk fast.img
  dcd inspect label --data-disk slow.img
  dcd inspect --file /mnt/src/main.c --control /run/vol.ctl")]
#[command(args_conflicts_with_subcommands = true)]
pub struct InspectArguments {
    /// What to show.
    #[command(subcommand)]
    pub what: Option<InspectWhat>,
    /// A file on the device that dcd serves.
    #[arg(long, value_name = "PATH", requires = "control")]
    pub file: Option<PathBuf>,
    /// Control socket of the running dcd; of a service its name, or the device that it serves.
    #[arg(long, value_name = "SOCKET|DEVICE|NAME", requires = "file")]
    pub control: Option<PathBuf>,
    /// Byte of the volume at which the file system begins, where the system does not tell.
    #[arg(long, value_name = "BYTES", value_parser = parse_size, requires = "file")]
    pub offset: Option<u64>,
    /// Print JSON.
    #[arg(long, requires = "file")]
    pub json: bool,
}

/// What `inspect` can show.
#[derive(Subcommand, Debug)]
pub enum InspectWhat {
    /// Both copies of the superblock
    Superblock(InspectDisk),
    /// Ranges that are newer in the cache than on the data-disk
    Dirty(InspectDisk),
    /// Both checkpoints
    Checkpoint(InspectDisk),
    /// One line for each segment
    Segments(InspectDisk),
    /// The records of one segment
    Segment {
        /// Number of the segment, from 0.
        #[arg(value_name = "NUMBER")]
        index: u32,
        /// Where.
        #[command(flatten)]
        disk: InspectDisk,
    },
    /// One line for each record, in the order in which they were written
    Records(InspectDisk),
    /// What a volume is made of: sets on its members, and what goes where
    Volume(InspectDisk),
    /// Both copies of the label of a data-disk
    Label(InspectDataDisk),
}

/// The data-disk that `inspect label` looks at.
#[derive(Args, Debug)]
pub struct InspectDataDisk {
    /// The data-disk.
    #[arg(long, value_name = "DISK")]
    pub data_disk: DeviceSpec,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Which disk `inspect` looks at.
#[derive(Args, Debug)]
pub struct InspectDisk {
    /// The cache-disk.
    #[arg(long, value_name = "FILE|DEVICE")]
    pub cache_disk: DeviceSpec,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Measure this machine.
///
/// Each measurement stands beside its own yardstick, taken in the same run; compare the ratios, not
/// the figures of two machines.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd bench engine --rounds 15
  dcd bench flush --file /mnt/ssd/bench.img")]
pub struct BenchArguments {
    /// What to measure.
    #[command(subcommand)]
    pub what: BenchWhat,
}

/// Search for ways to lose data.
///
/// Runs the engine on faulty disks in memory, crashes it at any instant, recovers, and compares with
/// a model; no disk of this machine is touched. Everything follows from the seed: the same seed gives
/// the same run. A run that fails is shrunk and printed as a test. Exit code 1 tells of violations. Ctrl-C ends it with what was found.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd fuzz --for 60s
  dcd fuzz --seed 1234
  dcd fuzz --faults write-error,hang --runs 500
  dcd fuzz --pairs --runs 10 --json
  dcd fuzz --exhaustive 3
  dcd fuzz --sweep --runs 40
  dcd fuzz --volume raid5 --for 60s
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
    /// Kinds of faults besides crashes; docs/testing.md lists them.
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
    /// Random runs on a volume of several members that fail, vanish, come back old and rot: raid0, raid1, raid5, or tiered,
    /// which has a set of each, and hints.
    #[arg(long, value_name = "KIND", value_parser = parse_volume_kind)]
    #[arg(conflicts_with_all = ["faults", "pairs", "exhaustive", "sweep"])]
    pub volume: Option<VolumeKind>,
    /// Runs of the driver (event loop, ring, disks) under a simulated kernel: short transfers, full queues, completions late
    /// and in any order, cancelled and failed operations, pauses.
    #[arg(long, conflicts_with_all = ["faults", "pairs", "exhaustive", "sweep", "volume", "seeded_bugs", "jobs"])]
    pub driver: bool,
    /// Are mistakes found that were made on purpose? Turns on one after the other and runs until it is
    /// found, at most --runs times each [default: 1000]. Only in the binary that `make fuzz-seeded` builds.
    #[arg(long, conflicts_with_all = ["faults", "pairs", "exhaustive", "sweep", "volume", "time"])]
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

/// What `bench` can measure.
#[derive(Subcommand, Debug)]
pub enum BenchWhat {
    /// The engine alone, on disks made of memory: random 4 KiB writes and lookups
    Engine {
        /// How many rounds; the median counts.
        #[arg(long, value_name = "COUNT", default_value_t = 9)]
        rounds: u32,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// The model of a drive with an arm (hp-97560): requests per second of processor time
    Disk {
        /// How many rounds; the median counts.
        #[arg(long, value_name = "COUNT", default_value_t = 9)]
        rounds: u32,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// 4 KiB write and flush through dcd, against 8 KiB write and fdatasync on the same file
    Flush {
        /// File for the cache and for the yardstick; must not exist, is removed afterwards.
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
        /// Writes in a round.
        #[arg(long, value_name = "COUNT", default_value_t = 500)]
        writes: u64,
        /// How many rounds; the median counts.
        #[arg(long, value_name = "COUNT", default_value_t = 5)]
        rounds: u32,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Look at the disk models and compare them with real drives.
///
/// A model is a disk on virtual time: arm, platters, buffer and bus of a drive, or the times of an SSD
/// or cloud volume. Profiles of some drives come with dcd; your own is a TOML file, best begun with
/// `dcd disk show NAME > mine.toml`. docs/disk-models.md describes the fields.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd disk list
  dcd disk show hp-97560 > mine.toml
  dcd disk validate --disk hp-2200a --trace measured.csv.zst --json")]
pub struct DiskArguments {
    /// What to do.
    #[command(subcommand)]
    pub what: DiskWhat,
}

/// What can be done with disk models.
#[derive(Subcommand, Debug)]
pub enum DiskWhat {
    /// The profiles that come with dcd
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// A profile: its TOML text, with the sources of its numbers, or as JSON what follows from it
    Show {
        /// Name of a profile, or path of a TOML file.
        #[arg(value_name = "PROFILE")]
        disk: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// How far the service times of a model are from those measured on a real drive
    ///
    /// The requests of the trace are replayed one at a time, each so long after the end of the one
    /// before as it was in reality. The demerit figure is the root mean square of the horizontal distance
    /// between the two distributions of service times.
    Validate {
        /// Name of a profile, or path of a TOML file.
        #[arg(long, value_name = "PROFILE")]
        disk: String,
        /// CSV, plain or compressed (zstd, gzip), with the columns t_us, op, off, len, svc_start_us and
        /// svc_stop_us, or op, blkno_512, bcount_512, measured_us and next_inter_us.
        #[arg(long, value_name = "FILE")]
        trace: PathBuf,
        /// Chooses the angle of the platters at the beginning, and the times of disks without an arm.
        #[arg(long, value_name = "NUMBER", default_value_t = 0)]
        seed: u64,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Record traces of disk requests, look at them, convert and replay them, and make some up.
///
/// The format is told by the content: the project's CSV, blkparse, blktrace, tracefs, fio's iolog, SPC (UMass),
/// MSR Cambridge, Alibaba, Tencent, HP's SRT, Parquet; plain or compressed (zstd, gzip). docs/traces.md describes them.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd trace summary load.csv.zst
  dcd trace summary Financial1.spc.gz --device 0 --json
  dcd trace plot load.csv.zst --out load.html
  blktrace -d /dev/sdb -o - -w 60 | blkparse -i - > load.txt; dcd trace summary load.txt
  dcd trace convert load.txt load.csv
  dcd trace convert load.csv load.parquet
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
        /// The trace.
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
    /// Draw it: requests over time and address, rates, sizes, gaps, bursts, overwrites, growth of the working set
    Plot {
        /// The trace.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// How it is read.
        #[command(flatten)]
        input: TraceInputArguments,
        /// A longer silence ends a burst.
        #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_duration)]
        burst_gap: std::time::Duration,
        /// The file to write, NAME.html or NAME.svg; an earlier one of dcd trace plot is replaced, nothing else is.
        #[arg(long, value_name = "FILE", value_parser = parse_plot_file)]
        out: PlotFile,
    },
    /// Record what a block device, or a running dcd, is asked for
    ///
    /// A block device: a disk, a partition, device-mapper, a loop device. Needs root, and tracefs (mount -t tracefs
    /// nodev /sys/kernel/tracing). Put OUT on another device, or it records itself.
    ///
    /// A running dcd: requests of all its clients, with the time that each took, from the socket of its --control.
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
        /// The file to write, as CSV or as NAME.parquet; must not exist.
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
    /// Writes zeroes to it: what is on the disk is lost. The pace is as with `dcd simulate`, so the two can be
    /// compared.
    Replay {
        /// The trace.
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
        /// The trace.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// How it is read.
        #[command(flatten)]
        input: TraceInputArguments,
        /// The file to write, as CSV, or as Parquet if its name ends with .parquet; must not exist.
        #[arg(value_name = "OUT")]
        out: PathBuf,
    },
    /// Write made-up requests as a trace
    Generate {
        /// NAME[,KEY=VALUE...]: bursts, uniform, zipf, hot-cold, sequential, users, snake;
        /// docs/workloads.md tells what they are and which keys they have.
        #[arg(value_name = "WORKLOAD", value_parser = parse_workload)]
        workload: WorkloadSpec,
        /// The file to write, as CSV or as NAME.parquet; must not exist.
        #[arg(value_name = "OUT")]
        out: PathBuf,
    },
}

/// A file of drawings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlotFile {
    /// Its name.
    pub path: PathBuf,
    /// A page with numbers, too; else one SVG.
    pub is_html: bool,
}

/// `--out` and `--plot`.
pub fn parse_plot_file(text: &str) -> Result<PlotFile, &'static str> {
    let path = PathBuf::from(text);
    let is_html = match path.extension().and_then(|extension| extension.to_str()) {
        Some("html" | "htm") => true,
        Some("svg") => false,
        _ => return Err("expected a name that ends in .html or .svg"),
    };
    Ok(PlotFile { path, is_html })
}

/// How a trace is read.
#[derive(Args, Debug)]
pub struct TraceInputArguments {
    /// The format of the trace, where its content does not tell it: csv, blkparse, blktrace, tracefs, fio, spc, msr,
    /// alibaba, tencent, srt, srt-256, parquet.
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<TraceFormat>,
    /// Only requests for this disk: its number in the trace, or MAJOR,MINOR.
    #[arg(long, value_name = "NUMBER", value_parser = parse_trace_device)]
    pub device: Option<u32>,
}

/// A disk of a trace; Linux's are major << 20 | minor.
fn parse_trace_device(text: &str) -> Result<u32, &'static str> {
    let expected = "expected a number below 2^32, or MAJOR,MINOR like 8,16";
    match text.split_once(',') {
        None => text.parse().map_err(|_| expected),
        Some((major, minor)) => match (major.parse::<u32>(), minor.parse::<u32>()) {
            (Ok(major), Ok(minor)) if major < 1 << 12 && minor < 1 << 20 => Ok(major << 20 | minor),
            _ => Err(expected),
        },
    }
}

/// Serve a disk over NBD, FUSE, ublk or vhost-user without a cache, for comparison.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd slow-disk --disk slow:disk.img,read=8ms,write=8ms --nbd unix:/run/slow.sock
  dcd slow-disk --disk slow:disk.img,read=8ms,write=8ms --fuse /run/slow --loop
  dcd slow-disk --model hp-97560 --disk disk.img --nbd unix:/run/slow.sock")]
#[command(group(clap::ArgGroup::new("frontend").required(true).multiple(true).args(["nbd", "fuse", "ublk", "vhost_user"])))]
pub struct SlowDiskArguments {
    /// The disk; slow:FILE,read=TIME,write=TIME makes a file as slow as you like, model:PROFILE:FILE as
    /// slow as a drive of `dcd disk list`.
    #[arg(long, value_name = "DISK")]
    pub disk: DeviceSpec,
    /// Make the file given with --disk as slow as this drive: a name of `dcd disk list`, or a TOML file.
    #[arg(long, value_name = "PROFILE")]
    pub model: Option<String>,
    /// Where to listen for NBD clients.
    #[arg(long, value_name = "ADDRESS")]
    pub nbd: Vec<NbdAddress>,
    /// Show the disk as the file `disk` in this directory.
    #[arg(long, value_name = "DIRECTORY")]
    pub fuse: Option<PathBuf>,
    /// Also attach a loop device to that file.
    #[arg(long = "loop", requires = "fuse")]
    pub loop_device: bool,
    /// Make a block device, /dev/ublkbN, with this number or the next free one.
    #[arg(long, num_args = 0..=1, default_missing_value = "any", value_name = "NUMBER", value_parser = parse_ublk)]
    pub ublk: Option<UblkNumber>,
    /// Await a virtual machine (vhost-user-blk) on this unix socket.
    #[arg(long, value_name = "SOCKET")]
    pub vhost_user: Option<PathBuf>,
    /// Count requests, and tell on this unix socket.
    #[arg(long, value_name = "SOCKET")]
    pub control: Option<PathBuf>,
    /// Print nothing but the ready line and errors.
    #[arg(long)]
    pub quiet: bool,
}

/// Look at the ublk devices of this machine, and remove those that nobody serves.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd ublk list
  dcd ublk remove 3")]
pub struct UblkArguments {
    /// What to do.
    #[command(subcommand)]
    pub what: UblkVerb,
}

/// What can be done with ublk devices.
#[derive(Subcommand, Debug)]
pub enum UblkVerb {
    /// List all ublk devices, whoever made them.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Remove a device whose server has died or left it. Requests that wait in it fail.
    ///
    /// What its users have not flushed is lost; what the cache acknowledged is not. To serve the device again instead,
    /// start the cache it belongs to: `dcd serve ... --ublk`.
    Remove {
        /// Its number: that of /dev/ublkbNUMBER.
        #[arg(value_name = "NUMBER")]
        number: u32,
    },
}

/// Tell what a block device is to the caches of this machine, or whether any of these may be dirty.
///
/// A cache-disk or data-disk of a service, and whether the two are attached: then what is on the data-disk alone may be
/// old. Reads only, and never waits for anything. udev asks it of every disk.
///
/// With --all: whether a cache of any service may hold what its data-disk does not. It looks at the settings of each, at the disks that
/// they name, and at the daemons that run. What cannot be known counts as dirty: a file that cannot be read or has a mistake, a disk that is
/// missing, a daemon that does not answer within 10 s. The exit code is 0 if all are detached, and 1 if one is not, is in use or
/// is not known. A removal of the package asks this first.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd probe /dev/sdb
  dcd probe --udev /dev/sdb
  dcd probe --all --json")]
pub struct ProbeArguments {
    /// The device.
    #[arg(value_name = "DEVICE", required_unless_present = "all")]
    pub device: Option<PathBuf>,
    /// Print KEY=value lines for udev, or nothing.
    #[arg(long)]
    pub udev: bool,
    /// Tell of all caches that have settings, or are served, whether they may hold what their data-disks do not.
    #[arg(long, conflicts_with_all = ["device", "udev"])]
    pub all: bool,
    /// Print JSON.
    #[arg(long, requires = "all")]
    pub json: bool,
    /// Look for settings, control sockets and mounts below this directory.
    #[arg(long, value_name = "DIRECTORY", default_value = "/", requires = "all")]
    pub root: PathBuf,
    /// Where services have their settings.
    #[arg(long, value_name = "DIRECTORY", default_value = "/etc/dcd")]
    pub configurations: PathBuf,
}

/// Print a completion script for a shell.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd completions bash > /usr/share/bash-completion/completions/dcd")]
pub struct CompletionsArguments {
    /// Which shell.
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// Write the manual pages into a directory.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd man /usr/share/man/man1")]
pub struct ManArguments {
    /// The directory; it must be there.
    #[arg(value_name = "DIRECTORY")]
    pub directory: PathBuf,
}

/// Print docs/cli.md.
#[derive(Args, Debug)]
#[command(hide = true)]
pub struct HelpMarkdownArguments {}

/// Do for a `dcd serve` that has given up its rights what takes them. It is started by that, and by nobody else.
#[derive(Args, Debug)]
#[command(hide = true)]
pub struct CaretakerArguments {}

/// The whole command line, for completions, manual pages and documents.
pub fn command() -> clap::Command {
    Cli::command()
}

/// An interval that does not keep daemons busy.
fn parse_interval(text: &str) -> Result<std::time::Duration, String> {
    let least = std::time::Duration::from_millis(100);
    match parse_duration(text) {
        Ok(interval) if interval >= least => Ok(interval),
        Ok(_) => Err(format!("expected at least 100ms, found {text:?}")),
        Err(error) => Err(error.to_string()),
    }
}

/// Thirty-two hexadecimal digits, hyphens anywhere between them.
fn parse_uuid(text: &str) -> Result<Uuid, UuidError> {
    let digits: Vec<u8> = text.bytes().filter(|b| *b != b'-').collect();
    if digits.len() != 32 {
        return Err(UuidError::Length { found: digits.len() });
    }
    let mut uuid = [0u8; 16];
    for (byte, pair) in uuid.iter_mut().zip(digits.chunks(2)) {
        for digit in pair {
            let value = char::from(*digit).to_digit(16).ok_or(UuidError::Digit)?;
            *byte = *byte << 4 | value as u8;
        }
    }
    Ok(Uuid(uuid))
}

/// Text that is no UUID.
#[derive(Debug, thiserror::Error)]
enum UuidError {
    #[error("a UUID has 32 hexadecimal digits, this has {found}")]
    Length { found: usize },
    #[error("a UUID has only the digits 0-9 and a-f, and hyphens")]
    Digit,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_the_file_are_the_flags() {
        let command = command();
        let serve = command.find_subcommand("serve").unwrap();
        let flags: Vec<_> = serve.get_arguments().filter_map(|flag| flag.get_long()).collect();
        let own = [
            "config",
            "null",
            "quiet",
            "accept-damage",
            "degraded",
            "memory-lost",
            "replace-member",
            "trust-disks",
        ];
        let flags: Vec<_> = flags.into_iter().filter(|flag| !own.contains(flag)).collect();
        assert_eq!(flags, crate::config_file::KEYS);
    }

    #[test]
    fn the_command_line_makes_sense() {
        command().debug_assert();
    }

    #[test]
    fn uuids_come_back() {
        let uuid = Uuid(*b"0123456789abcdef");
        assert_eq!(parse_uuid(&uuid.to_string()).unwrap(), uuid);
        assert!(parse_uuid("12").is_err());
        assert!(parse_uuid("zz345678-1234-1234-1234-123456789abc").is_err());
    }

    #[test]
    fn detach_wants_a_socket_or_two_disks() {
        let parse = |line: &str| Cli::try_parse_from(line.split(' '));
        assert!(parse("dcd detach --control s").is_ok());
        assert!(parse("dcd detach --cache-disk c --data-disk d").is_ok());
        assert!(parse("dcd detach --cache-disk c").is_err());
        assert!(parse("dcd detach --control s --cache-disk c --data-disk d").is_err());
        assert!(parse("dcd detach").is_err());
    }
}
