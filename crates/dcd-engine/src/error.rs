//! What the outside world can do wrong, with what was expected and what was found.

use crate::io::{Device, IoError};
use crate::units::{SegmentIndex, Uuid};

/// Bytes on the cache-disk that are not what they should be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FormatError {
    /// Not written by dcd, or not this structure.
    #[error("{what} is not there: the magic number is {found:#018x}, expected {expected:#018x}")]
    Magic {
        /// Which structure.
        what: &'static str,
        /// The right number.
        expected: u64,
        /// The number found.
        found: u64,
    },
    /// Written by a newer (or unknown) version.
    #[error("{what} has format version {found}; this program reads version {expected}")]
    Version {
        /// Which structure.
        what: &'static str,
        /// The version that can be read.
        expected: u32,
        /// The version found.
        found: u32,
    },
    /// A feature that this program does not know and may not ignore.
    #[error("the cache uses features {unknown:#x} that this program does not know")]
    Features {
        /// The unknown bits.
        unknown: u64,
    },
    /// The checksum does not match.
    #[error("{what} is damaged: its checksum is {found:#010x}, expected {expected:#010x}")]
    Checksum {
        /// Which structure.
        what: &'static str,
        /// The checksum computed from the bytes.
        expected: u32,
        /// The checksum stored.
        found: u32,
    },
    /// Belongs to another cache.
    #[error("{what} belongs to cache {found}, expected {expected}")]
    Uuid {
        /// Which structure.
        what: &'static str,
        /// This cache.
        expected: Uuid,
        /// The other.
        found: Uuid,
    },
    /// A field has a value that cannot be.
    #[error("{what}: {field} is {found}, which cannot be")]
    Field {
        /// Which structure.
        what: &'static str,
        /// Which field.
        field: &'static str,
        /// Its value.
        found: u64,
    },
    /// The device could not read it.
    #[error("{what} cannot be read: {error}")]
    Unreadable {
        /// Which structure.
        what: &'static str,
        /// What the device said.
        error: IoError,
    },
    /// Fewer bytes than the structure needs.
    #[error("{what} is cut off: {found} bytes, expected {expected}")]
    Short {
        /// Which structure.
        what: &'static str,
        /// Bytes needed.
        expected: usize,
        /// Bytes there.
        found: usize,
    },
}

/// Why an engine cannot start (contract C28). Nothing was written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// A device failed while it was read or written.
    #[error("{device:?} failed at byte {offset}: {error}")]
    Io {
        /// Which device.
        device: Device,
        /// Where.
        offset: u64,
        /// How.
        error: IoError,
    },
    /// No checkpoint can be used.
    #[error("no valid checkpoint: first area: {first}; second area: {second}")]
    Checkpoint {
        /// What is wrong with the first.
        first: FormatError,
        /// What is wrong with the second.
        second: FormatError,
    },
    /// The log says what cannot be.
    #[error("{0}")]
    Format(FormatError),
    /// The newest checkpoint was durable and is damaged now.
    #[error(
        "the newest checkpoint (generation {lost}) is damaged; only generation {found} can be read"
    )]
    CheckpointLost {
        /// The generation that log records speak of.
        lost: u64,
        /// The newest that can be read.
        found: u64,
    },
    /// A record that was durable cannot be read, and what it covered is not known.
    #[error(
        "{records} log record(s) from number {first} on that were durable are damaged (segment {segment:?}); the blocks they held are not known"
    )]
    RecordsLost {
        /// Number of the first damaged record.
        first: u64,
        /// How many.
        records: u64,
        /// Where the first one was expected.
        segment: SegmentIndex,
    },
    /// The data-disk is not the one of this cache.
    #[error(
        "the data-disk has {found} blocks of 512 bytes, the cache belongs to one with {expected}"
    )]
    DataDiskSize {
        /// Size recorded at creation.
        expected: u64,
        /// Size found.
        found: u64,
    },
    /// More than a lookup table can address.
    #[error("the data-disk has {found} blocks of 512 bytes; at most {most} can be cached")]
    DataDiskTooLarge {
        /// Most that can be.
        most: u64,
        /// Size found.
        found: u64,
    },
    /// The end of the data-disk lay within a line, and all of that line is zero in the log: behind
    /// the old end it is not.
    #[error("the data-disk ended within 4096 bytes that are not on it yet, at byte {offset}")]
    EndNotDrained {
        /// Where the line begins.
        offset: u64,
    },
    /// The data-disk was written to by someone else since the cache last wrote to it.
    #[error(
        "the data-disk was changed without dcd, or is another disk: byte {offset} has checksum {found:#010x}, expected {expected:#010x}"
    )]
    DataDiskChanged {
        /// First changed place that was seen.
        offset: u64,
        /// Checksum of the 4 KiB last seen there.
        expected: u32,
        /// Checksum found.
        found: u32,
        /// The cache holds nothing that is newer than the data-disk: going on overwrites nothing.
        is_clean: bool,
    },
    /// The cache-disk is shorter than it was.
    #[error("the cache-disk has {found} bytes, the cache needs {expected}")]
    CacheDiskShort {
        /// Bytes needed.
        expected: u64,
        /// Bytes there.
        found: u64,
    },
    /// A setting does not fit.
    #[error("setting {0}")]
    Config(#[from] crate::config::ConfigError),
}
