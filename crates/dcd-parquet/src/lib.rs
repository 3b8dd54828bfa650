//! Traces and tables of results as Parquet: the only part of dcd that needs the `parquet` crate,
//! and built only with the feature of that name.
//!
//! ```text
//! trace.rs   requests: the columns, TraceWriter, TraceReader; by row groups, so memory does not grow with the file
//! table.rs   columns of numbers and texts, written at once
//! file.rs    a file, read anywhere in it
//! guard.rs   panics of the `parquet` crate become errors
//! ```
//!
//! Files come from outside: what is damaged is an [`Error`]. `tests/round_trip.rs` tries damage
//! everywhere.

mod file;
mod guard;
mod table;
mod trace;

pub use table::{Cell, Column, ColumnKind, write_table};
pub use trace::{Row, TraceReader, TraceWriter};

/// Magic that a file begins and ends with.
pub const MAGIC: &[u8; 4] = b"PAR1";

/// Why a file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file itself.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// It is no Parquet file, or a damaged one, or one with what is not supported.
    #[error("{0}")]
    File(String),
    /// It is one, but not with these columns.
    #[error("{column}: {problem}")]
    Column {
        /// Which.
        column: String,
        /// What is wrong.
        problem: String,
    },
    /// A value that cannot be.
    #[error("row {row}: {column}: {problem}")]
    Value {
        /// From 1.
        row: u64,
        /// Which.
        column: &'static str,
        /// What is wrong.
        problem: String,
    },
}

impl From<parquet::errors::ParquetError> for Error {
    fn from(error: parquet::errors::ParquetError) -> Error {
        let text = error.to_string();
        let line = text.lines().next().unwrap_or_default();
        Error::File(line.chars().take(200).flat_map(char::escape_debug).collect())
    }
}
