//! What can go wrong in the laboratory: simulator, fuzzer, traces, figures, benchmarks.

use std::path::PathBuf;

use dcd_daemon::control::client::ControlError;
use dcd_daemon::units_text::format_size;
use dcd_sim::disk::profile::ProfileError;
use dcd_sim::figures::ExperimentError;
use dcd_sim::plot::PlotError;
use dcd_sim::target::setup::SetupError;
use dcd_sim::trace::{PARQUET_HINT, TraceError, UnknownFormat, format_hint};
use dcd_sim::workload::WorkloadError;
use dcd_study::{StudyError, WORKLOAD_HINT};

use super::demo::DemoError;
use super::{CommandError, exit_code};
use crate::output::count;

/// Why a verb of the laboratory did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A signal came before the end of a fuzz session.
    #[error("stopped; what was done until then found nothing")]
    FuzzStopped,
    /// The text of a profile has a form that no number can be put into.
    #[error("cannot write {field} into the text of the profile")]
    ProfileNotChanged {
        /// Which number.
        field: &'static str,
    },
    /// A row of a sweep is in two parts of it.
    #[error("the row {row} is in {} and in {}", first.display(), second.display())]
    RowTwice {
        /// Which.
        row: String,
        /// One of them.
        first: PathBuf,
        /// The other, or the same.
        second: PathBuf,
    },
    /// Rows of a sweep are in none of its parts.
    #[error("{missing} of {of} rows are missing, the first is {first}")]
    RowsMissing {
        /// How many.
        missing: usize,
        /// Of how many.
        of: usize,
        /// Which.
        first: String,
    },
    /// No output of a shard of `dcd advise`.
    #[error("{} is not what a shard of these volumes has told with --json", path.display())]
    NoAdviceShard {
        /// Which file.
        path: PathBuf,
    },
    /// Nothing of a sweep could be simulated.
    #[error("nothing was simulated: all {} of {} failed, the first with: {first}", count(*rows as u64, "row"), path.display())]
    SweepFailed {
        /// How many.
        rows: usize,
        /// Where they are.
        path: PathBuf,
        /// What is wrong with the first.
        first: String,
    },
    /// The dcd that is measured cannot be started or asked.
    #[error("cannot measure through dcd: {source}")]
    BenchDaemon {
        /// Why not.
        source: std::io::Error,
    },
    /// The dcd that is measured ended.
    #[error("the dcd to be measured ended ({status})")]
    BenchDaemonEnded {
        /// How.
        status: std::process::ExitStatus,
    },
    /// A process that measures one of several sizes cannot be run.
    #[error("cannot run what measures one size: {source}")]
    BenchApart {
        /// Why not.
        source: std::io::Error,
    },
    /// It ended without a result.
    #[error("what measured {} ended ({status})", format_size(*cache_bytes))]
    BenchApartEnded {
        /// The size.
        cache_bytes: u64,
        /// How.
        status: std::process::ExitStatus,
    },
    /// Built without object stores.
    #[error("this dcd is built without object stores")]
    NoStores,
    /// Built without the mistakes.
    #[error("this dcd has no mistakes made on purpose in it")]
    NoSeededBugs,
    /// The fuzzer is not what it should be.
    #[error("{} not as it must be: not found, or found without", count(*wrong, "mistake"))]
    SeededBugs {
        /// How many.
        wrong: u64,
    },
    /// The fuzzer found something, and has told about it.
    #[error("{} found", count(*found, "violation"))]
    Violations {
        /// How many.
        found: u64,
        /// In runs on volumes, whose tests are in a file of their own.
        on_volumes: bool,
    },
    /// A simulation, or what it is of.
    #[error(transparent)]
    Study(StudyError),
    /// An NBD server that a trace is replayed to does not answer as it should.
    #[error("NBD server {}: {source}", socket.display())]
    NbdServer {
        /// Its socket.
        socket: PathBuf,
        /// What happened.
        source: std::io::Error,
    },
    /// There is nothing to record.
    #[error("{} does not exist", path.display())]
    NoSuchDevice {
        /// Where it should be.
        path: PathBuf,
    },
    /// Only block devices have requests to record.
    #[error("{}: this is no block device", path.display())]
    NotABlockDevice {
        /// What it is instead.
        path: PathBuf,
    },
    /// The kernel does not record.
    #[error("cannot record block requests: {}: {source}", path.display())]
    Tracing {
        /// What was tried.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A file of results that are not those of this sweep.
    #[error("{}:{line}: this is no row of this sweep", path.display())]
    OtherSweep {
        /// The file.
        path: PathBuf,
        /// The first line that does not fit.
        line: usize,
    },
    /// Something else than such a page where one is to be written.
    #[error("{} is there, and was not written by {maker}", path.display())]
    OtherPage {
        /// The file.
        path: PathBuf,
        /// What writes such pages.
        maker: &'static str,
    },
    /// A signal came before the end of a trace.
    #[error("{}: cancelled before its end, and removed", path.display())]
    TraceCancelled {
        /// The trace.
        path: PathBuf,
    },
    /// Traces of many disks are not one stream.
    #[error("-: expected a directory to make")]
    SplitToOutput,
    /// The daemon went before the end of a recording.
    #[error("{source}; until then, {} in {}", count(*requests, "request"), path.display())]
    RecordingCut {
        /// How it went.
        source: ControlError,
        /// What was recorded.
        requests: u64,
        /// Where.
        path: PathBuf,
    },
    /// A recording of nothing.
    #[error("{}: nobody asked it for anything while it was recorded", device.display())]
    NothingRecorded {
        /// The device.
        device: PathBuf,
    },
    /// An experiment of the figures did not come to its end.
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    /// Built without Parquet.
    #[error("{}: this dcd was built without Parquet", path.display())]
    NoParquet {
        /// What cannot be written.
        path: PathBuf,
    },
    /// A Parquet file cannot be written.
    #[cfg(feature = "parquet")]
    #[error("cannot write {}: {problem}", path.display())]
    WriteParquet {
        /// Which.
        path: PathBuf,
        /// Why not.
        problem: String,
    },
    /// Numbers that cannot be drawn.
    #[error("cannot draw: {0}")]
    Plot(#[from] PlotError),
    /// The demonstration did not come to its end.
    #[error(transparent)]
    Demo(#[from] DemoError),
}

macro_rules! commands_fail_with {
    ($($error:ty),* $(,)?) => {$(
        impl From<$error> for CommandError {
            fn from(error: $error) -> CommandError {
                LabError::from(error).into()
            }
        }
    )*};
}

commands_fail_with!(ExperimentError, PlotError, DemoError);

macro_rules! studies_fail_with {
    ($($error:ty),* $(,)?) => {$(
        impl From<$error> for CommandError {
            fn from(error: $error) -> CommandError {
                StudyError::from(error).into()
            }
        }
    )*};
}

studies_fail_with!(ProfileError, TraceError, WorkloadError, SetupError);

impl From<StudyError> for CommandError {
    fn from(error: StudyError) -> CommandError {
        match error {
            // Verbs that are no studies have such flags, too.
            StudyError::FlagNeeds { flag, needs } => CommandError::FlagNeeds { flag, needs },
            error => CommandError::Lab(LabError::Study(error)),
        }
    }
}

impl LabError {
    /// What the process ends with.
    pub fn exit_code(&self) -> u8 {
        match self {
            LabError::RecordingCut {
                source: ControlError::Broken { .. } | ControlError::Silent { .. },
                ..
            } => exit_code::NO_DAEMON,
            LabError::RecordingCut { source: ControlError::Left { .. }, .. }
            | LabError::TraceCancelled { .. }
            | LabError::FuzzStopped => exit_code::CANCELLED,
            _ => exit_code::USER,
        }
    }

    /// The next step, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            LabError::SweepFailed { path, .. } => Some(format!(
                "column `error` of {} tells why; remove it before another try",
                path.display()
            )),
            LabError::ProfileNotChanged { .. } => Some(
                "write its table as [a.b] on a line of its own, as `dcd disk show` does; without --output the numbers are shown"
                    .into(),
            ),
            LabError::NoStores => Some(
                "build one that has them: cargo build --release --package dcd-cache --features s3"
                    .into(),
            ),
            LabError::NoSeededBugs => Some(
                "`make fuzz-seeded` builds one that has, in target/seeded, and runs it; do not use it \
                 for anything else"
                    .into(),
            ),
            LabError::SeededBugs { .. } => {
                Some("a mistake that escapes is a blind spot of the fuzzer; docs/mistakes.md".into())
            }
            LabError::Violations { on_volumes, .. } => {
                let file = if *on_volumes { "found_on_volumes.rs" } else { "found.rs" };
                Some(format!("put the printed test into crates/dcd-fuzz/tests/{file}"))
            }
            LabError::Study(error) => error.hint(),
            LabError::NbdServer { .. } => Some(
                "is it served there (`dcd serve --nbd unix:SOCKET`), and as large as the trace needs?".into(),
            ),
            LabError::NoSuchDevice { .. } => {
                Some("check the name; `lsblk` lists block devices".into())
            }
            LabError::NotABlockDevice { .. } => {
                Some("`lsblk` lists block devices; of a file in use by dcd, record its loop device".into())
            }
            LabError::Tracing { .. } => {
                Some("it needs root, and tracefs: mount -t tracefs nodev /sys/kernel/tracing".into())
            }
            LabError::RowTwice { .. } => {
                Some("give each part once, and those of one number of shards only".into())
            }
            LabError::RowsMissing { .. } => Some(
                "give the parts of all shards; one that was interrupted goes on with the same command".into(),
            ),
            LabError::NoAdviceShard { .. } => Some(
                "give the output of `dcd advise ... --shard I/N --json`, of one N and the same volumes".into(),
            ),
            LabError::OtherSweep { .. } => {
                Some("nothing was changed; choose another --out, or the settings of the file".into())
            }
            LabError::OtherPage { .. } => {
                Some("nothing was changed; choose another --out".into())
            }
            LabError::TraceCancelled { .. } => Some("begin again".into()),
            LabError::SplitToOutput => Some("name one that does not exist".into()),
            LabError::RecordingCut { source, .. } => source.hint(),
            LabError::NothingRecorded { .. } => Some(
                "record while it is used, with --for 1h for example; files that are in memory are not read from disks"
                    .into(),
            ),
            LabError::NoParquet { .. } => Some(PARQUET_HINT.into()),
            LabError::Demo(error) => error.hint(),
            _ => None,
        }
    }
}

/// What to do about a value of the command line that the laboratory does not take.
pub fn lab_hint(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    if error.is::<WorkloadError>() {
        return Some(WORKLOAD_HINT.into());
    }
    error.is::<UnknownFormat>().then(format_hint)
}
