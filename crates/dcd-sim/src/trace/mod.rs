//! Recorded requests: [`TraceReader`] reads traces of many formats, one file each, as one stream of
//! [`Request`]s; [`summary`] tells about them, [`write_csv`] writes them as the project's own CSV,
//! `write_parquet` as Parquet.
//!
//! ```text
//! input.rs     the bytes: file, lines; packing.rs, tar.rs: what they are wrapped in
//! row.rs       a line in fields, numbers, errors with line and column
//! FORMAT.rs    a line or record -> a request
//! reader.rs    which format it is
//! order.rs     order of time
//! picture.rs   the same over time and address, drawn: heat_map.rs, time_bins.rs
//! measured.rs  service times measured on a real drive, to compare a model with
//! ```
//!
//! `docs/traces.md` describes the formats.

mod alibaba;
mod biosnoop;
mod blkparse;
mod blktrace;
mod csv;
mod disksim;
mod error;
mod fio;
mod fio_latency;
mod fiu;
mod heat_map;
mod input;
pub mod measured;
mod msr;
mod names;
mod oracle_general;
mod order;
mod packing;
mod parquet;
pub mod picture;
mod reader;
#[cfg(test)]
mod reader_tests;
mod row;
mod rwbs;
mod spc;
mod srt;
pub mod summary;
mod systor;
mod tar;
mod tencent;
mod time_bins;
mod tracefs;
mod vscsi;
mod working_set;
pub mod write_csv;
#[cfg(feature = "parquet")]
pub mod write_parquet;

pub use error::{PARQUET_HINT, TraceError, format_hint};
pub use input::{TraceInput, is_standard};
pub use reader::{TraceFormat, TraceReader, UnknownFormat};

/// Largest read or write: Linux has none of more than 4 GiB, and no trace at hand any of more than
/// some MiB.
pub const SIZE_BYTES_MAX: u64 = 1 << 30;

/// What a request wants.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Operation {
    /// Data from the disk.
    Read,
    /// Data to the disk.
    Write,
    /// That what lies there may be forgotten.
    Discard,
    /// That everything written so far is safe.
    Flush,
}

/// What is known of a request beside.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Flags(pub u8);

impl Flags {
    /// Somebody waits for it.
    pub const SYNC: Flags = Flags(1);
    /// Done only when it is safe.
    pub const FUA: Flags = Flags(2);
    /// A flush goes before.
    pub const PREFLUSH: Flags = Flags(4);
    /// Of the file system's own.
    pub const METADATA: Flags = Flags(8);
    /// Nobody has asked yet.
    pub const READ_AHEAD: Flags = Flags(16);
    /// All that there are.
    pub const ALL: Flags = Flags(31);

    /// Whether all of `flags` are set.
    pub fn contains(self, flags: Flags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// These and those.
    #[must_use]
    pub fn with(self, flags: Flags) -> Flags {
        Flags(self.0 | flags.0)
    }
}

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// When it came, since the first of the trace.
    pub time_ns: u64,
    /// What it wants.
    pub operation: Operation,
    /// Which disk, as the trace numbers them; of Linux: major << 20 | minor.
    pub device: u32,
    /// Where it begins.
    pub offset_bytes: u64,
    /// How much; the sum of both fits into 64 bits.
    pub size_bytes: u64,
    /// What is known beside.
    pub flags: Flags,
    /// How long it took, where that was recorded.
    pub latency_ns: Option<u64>,
    /// Line of the file, from 1; of binary traces the record.
    pub line: u64,
    /// Character of the line at which the address begins, from 1; of binary traces the byte.
    pub column: u32,
}
