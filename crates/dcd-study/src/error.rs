//! What can go wrong in a study.

use std::path::PathBuf;

use dcd_files::volume_file::VolumeFileError;
use dcd_sim::disk::profile::ProfileError;
use dcd_sim::replay::ReplayError;
use dcd_sim::sequence_runs::SequenceRunError;
use dcd_sim::target::setup::SetupError;
use dcd_sim::trace::TraceError;
use dcd_sim::workload::WorkloadError;

/// What to do about a workload that cannot be.
pub const WORKLOAD_HINT: &str = "docs/workloads.md describes them";

/// Why a study did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// A flag that has no meaning without another.
    #[error("{flag} is only for {needs}")]
    FlagNeeds {
        /// The flag.
        flag: &'static str,
        /// What it needs.
        needs: &'static str,
    },
    /// A disk profile.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A request of a trace that the simulated disk cannot have.
    #[error("{place}")]
    Replay {
        /// Which, and why not.
        place: TraceError,
        /// What to do.
        hint: &'static str,
    },
    /// A workload that cannot be.
    #[error("workload: {0}")]
    Workload(#[from] WorkloadError),
    /// A request without a place in a file that the simulated disk cannot have.
    #[error("request {number} of the {of}: {field}: {problem}")]
    Request {
        /// Which request, from 1.
        number: u64,
        /// Of what.
        of: &'static str,
        /// What is wrong.
        field: &'static str,
        /// Why.
        problem: String,
        /// What to do.
        hint: &'static str,
    },
    /// Requests in memory: none.
    #[error("there are no requests")]
    NoRequests,
    /// Nothing can be fitted to half of a request.
    #[error("{}: the trace has 1 request, and at least 2 are needed", path.display())]
    OneRequest {
        /// The trace.
        path: PathBuf,
    },
    /// Thresholds of a memory that do not go together.
    #[error("--low: expected at most --high, {high} %, found {low} %")]
    LowAboveHigh {
        /// Where cleaning begins.
        high: u8,
        /// Where it would end.
        low: u8,
    },
    /// A load that is too long for a bound.
    #[error(transparent)]
    Bound(#[from] dcd_sim::bound::TooLong),
    /// What is to be simulated cannot be.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The file of a volume.
    #[error(transparent)]
    Volume(#[from] Box<VolumeFileError>),
    /// A file of hints.
    #[error("cannot read {}: {source}", path.display())]
    HintFile {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A line of it is no hint.
    #[error("{}, line {line}: {problem}", path.display())]
    NoHint {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong.
        problem: String,
    },
    /// Sequences cannot be simulated for this load.
    #[error("{problem}")]
    SequenceRun {
        /// Why.
        problem: String,
        /// The next step.
        hint: &'static str,
    },
    /// A directory or a list of traces.
    #[error("cannot read {}: {source}", path.display())]
    TraceSet {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// No list of traces.
    #[error("{}, line {line}: {problem}", path.display())]
    NoTraceList {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong.
        problem: String,
    },
    /// A directory, list or bucket without traces.
    #[error("there are no traces in {set}")]
    NoTraces {
        /// Which.
        set: String,
    },
    /// Traces in a bucket, where nobody knows buckets.
    #[error("{name}: this dcd was built without object stores")]
    NoTraceStore {
        /// Its name.
        name: String,
    },
    /// Traces in a bucket.
    #[error("{problem}")]
    TraceStore {
        /// What is wrong.
        problem: String,
        /// What to do.
        hint: Option<String>,
    },
    /// A shard has no row.
    #[error("this shard has no row: there are more shards than rows")]
    EmptyShard,
    /// Somebody ended it.
    #[error("cancelled")]
    Cancelled,
}

impl StudyError {
    /// A request of a made-up load, by its number, that the simulated disk cannot have.
    pub(crate) fn of_workload(number: u64, problem: &ReplayError) -> StudyError {
        let hint = match problem {
            ReplayError::Disk(_) => "choose a larger disk, or a smaller span= of the workload",
            other => other.hint(),
        };
        StudyError::request(number, "workload", problem, hint)
    }

    /// The same of requests in memory.
    pub(crate) fn of_memory(number: u64, problem: &ReplayError) -> StudyError {
        StudyError::request(number, "trace in memory", problem, problem.hint())
    }

    fn request(
        number: u64,
        of: &'static str,
        problem: &ReplayError,
        hint: &'static str,
    ) -> StudyError {
        let (field, problem) = (problem.field(), problem.to_string());
        StudyError::Request { number, of, field, problem, hint }
    }

    /// A word for programs, which stays.
    pub fn code(&self) -> &'static str {
        match self {
            StudyError::FlagNeeds { .. } | StudyError::LowAboveHigh { .. } => "setting",
            StudyError::Profile(_) => "profile",
            StudyError::Trace(_) | StudyError::NoRequests | StudyError::OneRequest { .. } => {
                "trace"
            }
            StudyError::Replay { .. } | StudyError::Request { .. } => "request",
            StudyError::Workload(_) => "workload",
            StudyError::Setup(_) => "setup",
            StudyError::Volume(_) => "volume",
            StudyError::HintFile { .. } | StudyError::NoHint { .. } => "hints",
            StudyError::Bound(_) => "bound",
            StudyError::SequenceRun { .. } => "sequences",
            StudyError::TraceSet { .. }
            | StudyError::NoTraceList { .. }
            | StudyError::NoTraces { .. }
            | StudyError::NoTraceStore { .. }
            | StudyError::TraceStore { .. } => "traces",
            StudyError::EmptyShard => "shard",
            StudyError::Cancelled => "cancelled",
        }
    }

    /// The next step, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            StudyError::FlagNeeds { flag, needs } => {
                Some(format!("leave {flag} out, or add {needs}"))
            }
            StudyError::Profile(error) => error.hint(),
            StudyError::Trace(error) => error.hint(),
            StudyError::Replay { hint, .. }
            | StudyError::Request { hint, .. }
            | StudyError::SequenceRun { hint, .. } => Some((*hint).into()),
            StudyError::Workload(_) => Some(WORKLOAD_HINT.into()),
            StudyError::Setup(error) => error.hint(),
            StudyError::Bound(_) => Some("look at a part of it: --requests COUNT".into()),
            StudyError::Volume(error) => error.hint(),
            StudyError::NoHint { .. } => Some(
                "each line is like 0..1G=important,random; docs/volume.md lists attributes".into(),
            ),
            StudyError::TraceSet { .. } | StudyError::HintFile { .. } => {
                Some("check the name".into())
            }
            StudyError::NoTraceList { .. } => Some(
                "a list has a path in each line, from its own directory on; one trace is --trace"
                    .into(),
            ),
            StudyError::NoTraces { .. } => {
                Some("those of directories in it are not looked at; hidden files are none".into())
            }
            StudyError::NoTraceStore { .. } => Some(
                "build it with them: cargo build --release --package dcd-cache --features s3"
                    .into(),
            ),
            StudyError::TraceStore { hint, .. } => hint.clone(),
            StudyError::EmptyShard => Some("give fewer shards".into()),
            StudyError::OneRequest { .. } => {
                Some("one half is fitted to, the other says how near it is: measure more".into())
            }
            StudyError::LowAboveHigh { .. } => Some(
                "cleaning begins at --high and ends at --low: the same is one threshold".into(),
            ),
            StudyError::NoRequests | StudyError::Cancelled => None,
        }
    }
}

impl From<SequenceRunError<StudyError>> for StudyError {
    fn from(error: SequenceRunError<StudyError>) -> StudyError {
        let problem = error.to_string();
        let hint = match error {
            SequenceRunError::Load(error) => return error,
            SequenceRunError::Setup(error) => return error.into(),
            SequenceRunError::NoReadArea => "add --cache-disk SIZE --read-area SIZE",
            SequenceRunError::Refused(_) => {
                "choose a larger --read-area: sequences may take half of it"
            }
        };
        StudyError::SequenceRun { problem, hint }
    }
}
