//! Traces as Parquet, the canonical form of long ones; `dcd-parquet` has the columns. Only in
//! builds with the feature `parquet`; others say so.

use std::path::Path;

use super::TraceError;
use super::reader::RecordParser;

/// Whether a trace begins so.
pub(super) fn is_magic(beginning: &[u8]) -> bool {
    beginning.starts_with(b"PAR1")
}

#[cfg(not(feature = "parquet"))]
pub(super) fn open(path: &Path) -> Result<Box<dyn RecordParser>, TraceError> {
    Err(TraceError::NoParquet { path: path.to_owned() })
}

#[cfg(feature = "parquet")]
pub(super) fn open(path: &Path) -> Result<Box<dyn RecordParser>, TraceError> {
    if super::is_standard(path) {
        return Err(super::reader::no_stream(path));
    }
    let file = std::fs::File::open(path)
        .map_err(|source| TraceError::Read { path: path.to_owned(), source })?;
    if !file.metadata().is_ok_and(|it| it.is_file()) {
        return Err(super::reader::no_stream(path));
    }
    let reader =
        dcd_parquet::TraceReader::new(file).map_err(|error| with::problem(path, &error))?;
    Ok(Box::new(with::Parquet(reader)))
}

#[cfg(feature = "parquet")]
mod with {
    use dcd_parquet::{Error, Row};

    use super::*;
    use crate::trace::{Flags, Operation, Request, SIZE_BYTES_MAX, TraceInput};

    /// Reads rows.
    pub struct Parquet(pub dcd_parquet::TraceReader);

    impl RecordParser for Parquet {
        fn next(&mut self, input: &mut TraceInput) -> Result<Option<Request>, TraceError> {
            let row = self.0.next_row().map_err(|error| problem(input.path(), &error))?;
            row.map(|row| request(&row, self.0.rows_given(), input.path())).transpose()
        }
    }

    fn request(row: &Row, number: u64, path: &Path) -> Result<Request, TraceError> {
        let wrong = |name, problem| {
            let path = path.to_owned();
            Err(TraceError::Field { path, line: number, column: 1, name, problem })
        };
        let operation = match row.operation {
            b'R' => Operation::Read,
            b'W' => Operation::Write,
            b'D' => Operation::Discard,
            _ => Operation::Flush,
        };
        let Row { offset_bytes, size_bytes, .. } = *row;
        if offset_bytes.checked_add(size_bytes).is_none() {
            let problem = format!("{size_bytes} bytes at {offset_bytes} end at or beyond 2^64");
            return wrong("address", problem);
        }
        if size_bytes > SIZE_BYTES_MAX && operation != Operation::Discard {
            let problem = format!("expected at most 1 GiB in a request, found {size_bytes} bytes");
            return wrong("size", problem);
        }
        if row.flags > Flags::ALL.0 {
            let problem = format!("expected a sum of 1, 2, 4, 8 and 16, found {}", row.flags);
            return wrong("fl", problem);
        }
        Ok(Request {
            time_ns: row.time_ns,
            operation,
            device: row.device,
            offset_bytes,
            size_bytes,
            flags: Flags(row.flags),
            latency_ns: row.latency_ns,
            line: number,
            column: 1,
        })
    }

    /// What is wrong with a file, or a row of it.
    pub fn problem(path: &Path, error: &Error) -> TraceError {
        let path = path.to_owned();
        match error {
            Error::Value { row, column: name, problem } => {
                let problem = problem.clone();
                TraceError::Field { path, line: *row, column: 1, name, problem }
            }
            error => TraceError::Parquet { path, problem: error.to_string() },
        }
    }
}
