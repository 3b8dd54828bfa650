//! Why a trace cannot be read: one line, with file, line and column where there are some.

use std::io::ErrorKind;
use std::path::PathBuf;

use super::TraceFormat;

/// What to do without Parquet.
pub const PARQUET_HINT: &str = "build it with `cargo build --locked --release --features parquet`, or convert the trace to CSV";

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file itself.
    #[error("{}: cannot read the trace: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The first line of measured service times is not what it should be.
    #[error("{}:1:1: {problem}", path.display())]
    Header {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// It looks like no trace.
    #[error("{}:1:1: the format of the trace is not known: {problem}", path.display())]
    Format {
        /// Which file.
        path: PathBuf,
        /// How it begins.
        problem: String,
    },
    /// A Parquet file that cannot be used.
    #[error("{}: cannot read the Parquet trace: {problem}", path.display())]
    Parquet {
        /// Which.
        path: PathBuf,
        /// Why not.
        problem: String,
    },
    /// Built without Parquet.
    #[error("{}: this dcd was built without Parquet", path.display())]
    NoParquet {
        /// What cannot be read.
        path: PathBuf,
    },
    /// It is read several times, which a pipe cannot be.
    #[error(
        "{}: expected a file, because it is read several times; found a pipe or a device",
        path.display()
    )]
    Pipe {
        /// Which.
        path: PathBuf,
    },
    /// No rows.
    #[error("{}: the trace has no requests", path.display())]
    Empty {
        /// Which file.
        path: PathBuf,
    },
    /// A row, or a record of a binary trace.
    #[error("{}:{line}:{column}: {name}: {problem}", path.display())]
    Field {
        /// Which file.
        path: PathBuf,
        /// Line, from 1; of binary traces the record.
        line: u64,
        /// Character of the line at which the field begins, from 1; of binary traces the byte of
        /// the record.
        column: usize,
        /// Name of the column.
        name: &'static str,
        /// What is wrong.
        problem: String,
    },
}

impl TraceError {
    /// The next step, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            TraceError::Read { source, .. } if source.kind() == ErrorKind::NotFound => {
                Some("check the name of the trace, given with --trace or after the verb".into())
            }
            TraceError::Read { source, .. } => match source.kind() {
                ErrorKind::IsADirectory => Some("give a file in it".into()),
                ErrorKind::PermissionDenied => {
                    Some("run as root, or give your user the right".into())
                }
                ErrorKind::InvalidData | ErrorKind::InvalidInput | ErrorKind::UnexpectedEof => {
                    Some("is it a trace, and was it written, or copied, to its end?".into())
                }
                _ => None,
            },
            TraceError::Pipe { .. } => {
                Some("write it to a file first: `dcd trace convert - load.csv`".into())
            }
            TraceError::Header { .. } => Some(
                "the first line must name the columns t_us,op,off,len,svc_start_us,svc_stop_us or \
                 op,blkno_512,bcount_512,measured_us,next_inter_us"
                    .into(),
            ),
            TraceError::NoParquet { .. } => Some(PARQUET_HINT.into()),
            TraceError::Parquet { .. } => {
                Some("docs/traces.md has the columns; was the file written to its end?".into())
            }
            TraceError::Empty { .. } => Some(
                "docs/traces.md tells what columns or lines are requests; does --device leave any?"
                    .into(),
            ),
            TraceError::Format { .. } => Some(format_hint()),
            TraceError::Field { .. } => Some("docs/traces.md describes the formats".into()),
        }
    }
}

/// Which formats there are.
pub fn format_hint() -> String {
    let names: Vec<&str> = TraceFormat::ALL.iter().map(|format| format.name()).collect();
    format!("name the format with --format: {}", names.join(", "))
}

/// What a file says, fit to be shown on one line.
pub(super) fn shortened(text: &str) -> String {
    let mut shown: String = text.chars().take(40).flat_map(char::escape_debug).collect();
    if text.chars().nth(40).is_some() {
        shown.push_str("...");
    }
    shown
}
