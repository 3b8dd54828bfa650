//! What the outside world can do wrong, with what was expected and what was found.

use crate::io::{Device, IoError};
use crate::units::{MemberIndex, SegmentIndex, Uuid};

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
    /// A memory in front of the log holds what is nowhere else, and was not given.
    #[error(
        "the last session had the memory {id} in front of the log and did not end in order: what it holds may be nowhere else"
    )]
    Nvram {
        /// Its name.
        id: Uuid,
    },
    /// A device failed while it was read or written.
    #[error("{device} failed at byte {offset}: {error}")]
    Io {
        /// Which device.
        device: Device,
        /// Where.
        offset: u64,
        /// How.
        error: IoError,
    },
    /// No checkpoint can be used.
    #[error(
        "no valid checkpoint{}: first area: {first}; second area: {second}",
        if *is_detached { " of a cache that is detached" } else { "" }
    )]
    Checkpoint {
        /// Nothing depends on what the cache held.
        is_detached: bool,
        /// What is wrong with the first.
        first: FormatError,
        /// What is wrong with the second.
        second: FormatError,
    },
    /// There is a volume, and one data-disk was given.
    #[error("the cache has a volume of several members; give all of them")]
    NeedsMembers,
    /// There is no volume, and several data-disks were given.
    #[error("the cache belongs to one data-disk, not to several")]
    HasNoMembers,
    /// There is one cache-disk, and several were given.
    #[error("the cache is on one cache-disk, not on several")]
    HasNoLegs,
    /// The cache-disk is on several disks, and one was given.
    #[error("the cache-disk is on several disks; give all of them")]
    NeedsLegs,
    /// The volume below cannot be opened.
    #[error(transparent)]
    Volume(#[from] VolumeOpenError),
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
        "{records} log record(s) from number {first} on that were durable are damaged (segment {}); the blocks they held are not known",
        segment.0
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
    /// It is not to be used, and holds what the data-disk does not have.
    #[error("the log is to be left unused, but holds what is not on the data-disk yet")]
    LogNotEmpty,
    /// It is not to be used, and neither can copies then be kept true.
    #[error("the log is to be left unused, but the cache has a read area")]
    ReadAreaWithoutLog,
    /// The cache-disk is shorter than it was.
    #[error("the cache-disk has {found} bytes, the cache needs {expected}")]
    CacheDiskShort {
        /// Bytes needed.
        expected: u64,
        /// Bytes there.
        found: u64,
    },
    /// The cache-disk has its size, and not the mark at its end: it was shorter once.
    #[error("the end of the cache-disk is lost, and with it the log's records there: {0}")]
    EndMark(FormatError),
    /// A setting does not fit.
    #[error("setting {0}")]
    Config(#[from] ConfigError),
}

/// Why a volume cannot be opened.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum VolumeOpenError {
    /// Not as many members as it is made of.
    #[error("the volume has {expected} members, {found} were given")]
    Members {
        /// Members that it is made of.
        expected: usize,
        /// Members given.
        found: usize,
    },
    /// A header that does not fit the room that the superblock speaks of.
    #[error("the header of the volume does not fit its area")]
    Header,
    /// A member is smaller than its slices.
    #[error("member {} has {found} bytes, its sets need {needed}", member.0)]
    MemberShort {
        /// Which.
        member: MemberIndex,
        /// Bytes needed.
        needed: u64,
        /// Bytes found.
        found: u64,
    },
    /// Members that held something are not there.
    #[error("{} that held data {} not there", members_in_words(missing), if missing.len() == 1 { "is" } else { "are" })]
    MembersMissing {
        /// Which.
        missing: Vec<MemberIndex>,
    },
    /// A copy of a member, made before that was last written to.
    #[error(
        "member {} is an older copy: its label is number {label}, that of the member is number {known}; \
         {lines} lines of 4 KiB that were last on it and on RAID 0 may be old", member.0
    )]
    MemberOlder {
        /// Which.
        member: MemberIndex,
        /// Epoch of its label.
        label: u64,
        /// That of the newest which it was given.
        known: u64,
        /// Lines that nobody else has.
        lines: u64,
    },
    /// A disk that was a member until another took its place, or that was to take one.
    #[error(
        "the disk given for member {} is not the one that counts: another has taken its place, or it was to \
         take the place of another and has not got all", member.0
    )]
    MemberReplaced {
        /// Which.
        member: MemberIndex,
    },
    /// The cache-disk is as it was before a member was given its label.
    #[error(
        "the cache-disk is older than member {}, which went on with another cache: its label is number {label}, \
         and the cache-disk knows of none above {newest}", member.0
    )]
    CacheDiskOlder {
        /// Which.
        member: MemberIndex,
        /// Epoch of its label.
        label: u64,
        /// The newest that it can have.
        newest: u64,
    },
    /// Something on the cache-disk cannot be read.
    #[error("{what} of the volume cannot be read from the cache-disk")]
    Unreadable {
        /// What.
        what: &'static str,
    },
    /// The cache-disk takes no writes.
    #[error("the cache-disk cannot take the metadata of the volume")]
    Unwritable,
    /// A root that cannot be.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The same, of its fields.
    #[error("the root of the volume does not fit its header")]
    RootFields,
    /// Pages that the root speaks of are not there.
    #[error("pages of the volume's tables are damaged or lost")]
    PagesLost,
    /// A durable record cannot be read.
    #[error("record {lost} of the volume's journal was durable and is damaged")]
    JournalDamaged {
        /// Its number.
        lost: u64,
    },
    /// The tables say what cannot be.
    #[error("the tables of the volume contradict themselves")]
    Tables,
}

fn members_in_words(members: &[MemberIndex]) -> String {
    let numbers: Vec<String> = members.iter().map(|member| member.0.to_string()).collect();
    format!("member{} {}", if members.len() == 1 { "" } else { "s" }, numbers.join(", "))
}

/// A setting that cannot be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{key} {why}")]
pub struct ConfigError {
    /// The setting, as the command line and the configuration file name it.
    pub(crate) key: &'static str,
    /// What is wrong.
    pub(crate) why: &'static str,
}

impl ConfigError {
    /// Of a setting, by its name on the command line, and what of it is wrong: for a driver, which
    /// has settings of its own.
    pub fn new(key: &'static str, why: &'static str) -> ConfigError {
        ConfigError { key, why }
    }
}
