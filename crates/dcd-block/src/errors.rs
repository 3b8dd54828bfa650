//! Why a request fails, and why an I/O does.

use crate::attributes::Attributes;
use crate::units::{Lba, MemberIndex};

/// Why a request failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RequestError {
    /// A device failed, or the newest copy of a block is damaged.
    #[error("I/O error")]
    Io,
    /// The cache stayed full for longer than the configured wait (C25), or the data-disk is full.
    #[error("no space")]
    NoSpace,
    /// The device is being shut down or detached.
    #[error("the device is shutting down")]
    ShuttingDown,
    /// The export, or the data-disk, is read-only.
    #[error("the device is read-only")]
    ReadOnly,
    /// A request about sequences cannot be met.
    #[error(transparent)]
    Sequence(#[from] SequenceError),
    /// A request to the volume cannot be met.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// A request about the legs of the cache-disk cannot be met.
    #[error(transparent)]
    Leg(#[from] LegError),
    /// The log cannot get another size.
    #[error(transparent)]
    Resize(#[from] ResizeError),
    /// The memory in front of the log cannot be changed.
    #[error(transparent)]
    NvramChange(#[from] NvramChangeError),
    /// Somebody wanted it no more.
    #[error("cancelled")]
    Cancelled,
    /// Not everything could be brought to the data-disk: of these lines the newest copy is damaged.
    #[error("{lines} lines of 4 KiB that were acknowledged are lost: their newest copy is damaged")]
    Lost {
        /// How many.
        lines: u64,
    },
    /// Nothing more got to the data-disk for as long as `drain-timeout`: it is full, fails,
    /// or a member of the volume is away. What is left stays in the cache.
    #[error(
        "nothing more got to the data-disk for a while: {lines} lines of 4 KiB, and {zero_lines} to be zeroed, are left"
    )]
    Stuck {
        /// Dirty lines that are not lost.
        lines: u64,
        /// Lines that have to become zeroes.
        zero_lines: u64,
    },
}

/// Why a request about the legs of the cache-disk cannot be met.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LegError {
    /// The cache-disk is one disk.
    #[error("the cache-disk is one disk, without legs")]
    NoLegs,
    /// No leg has this name, or it is not there.
    #[error("no leg that is there has this name")]
    NoSuchLeg,
    /// Nothing else holds what it holds.
    #[error("it is the last leg in sync: nothing else holds what it holds")]
    LastLeg,
    /// It is in use, or being filled.
    #[error("it is in use already")]
    InUse,
    /// As many as there can be are in use; or so many have failed that no place is left.
    #[error("there are as many legs as there can be")]
    TooMany,
    /// A disk that was a leg has what the others do not follow.
    #[error("it was used without the others: what it holds may be newer")]
    Newer,
    /// A disk that was a leg, or a file that was the witness, has no tag in common with the others.
    #[error(
        "it and the others know nothing of each other: it is from before the last changes of who counts, or was used without them that long ago"
    )]
    Unknown,
    /// A disk has the name of a leg that is in use.
    #[error("it is a copy of a leg that is in use")]
    Copy,
    /// Its disk was let go.
    #[error("it was taken out, and its disk was let go")]
    TakenOut,
    /// None of them takes a label: nothing can be said of any.
    #[error("the legs take no labels")]
    NoLabels,
    /// There is one already.
    #[error("the cache-disk has a witness already")]
    WitnessInUse,
    /// A leg is being written out, or the witness is.
    #[error("a leg, or the witness, is being written out: the other is needed for that")]
    WitnessNeeded,
}

/// Why no memory comes to be in front of the log, or goes from there, while requests are served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NvramChangeError {
    /// There is none.
    #[error("no memory is in front of the log")]
    NoMemory,
    /// There is one.
    #[error("a memory is in front of the log already")]
    InUse,
    /// One is coming, or going.
    #[error("the memory in front of the log is being changed already")]
    UnderWay,
    /// What was asked of the device of one that has gone does not end.
    #[error("the device of the memory that was there does not answer, and cannot be let go of")]
    Hangs,
    /// The settings do not go with one.
    #[error("the settings do not go with a memory in front of the log")]
    Settings,
}

/// Why the log cannot grow or shrink.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ResizeError {
    /// It is as large as it can be on so many bytes.
    #[error("the log has as many segments as fit: {segments}")]
    Same {
        /// How many.
        segments: u32,
    },
    /// The smallest log takes more.
    #[error("the smallest log needs {needed} bytes of the cache-disk")]
    TooSmall {
        /// Bytes needed.
        needed: u64,
    },
    /// What lies behind the segments that it was made with does not move.
    #[error(
        "the read area, or the tables of the volume, lie behind the log and do not move: {needed} bytes of the cache-disk are needed"
    )]
    BehindLog {
        /// Bytes needed.
        needed: u64,
    },
    /// It has grown as often as it can.
    #[error("the log has grown as often as it can")]
    TooOften,
    /// A disk is not so large.
    #[error("the cache-disk has only {found} bytes, and {wanted} are wanted")]
    BeyondDisk {
        /// Bytes of the disk; of several legs, of the smallest.
        found: u64,
        /// Bytes wanted.
        wanted: u64,
    },
    /// There is a bound on memory, and a larger log, or read area, needs more.
    #[error("with that size dcd may need {needed} bytes of memory, and {most} are allowed")]
    Memory {
        /// Bytes that may be needed, clients included.
        needed: u64,
        /// Bytes allowed.
        most: u64,
    },
    /// The index of a larger log does not fit its budget.
    #[error(
        "the index of a log of that size needs {needed} bytes of memory at least, and index-max is {most}"
    )]
    Index {
        /// Bytes that are the least.
        needed: u64,
        /// Bytes allowed.
        most: u64,
    },
    /// Its size is being changed.
    #[error("the size of the log is being changed already")]
    UnderWay,
    /// A leg is being filled, up to where the log ends.
    #[error("a leg of the cache-disk is being filled")]
    LegIsFilled,
    /// Changes go past the log, or are to.
    #[error("nothing is logged in this mode")]
    NotLogging,
    /// The read area has that size, or so nearly that it cannot be told from it.
    #[error("the read area has room for {bytes} bytes, or too nearly as many as are wanted")]
    SameReadArea {
        /// What it has room for.
        bytes: u64,
    },
    /// No page fits.
    #[error("the smallest read area has {least} bytes")]
    ReadAreaTooSmall {
        /// Bytes that are the least.
        least: u64,
    },
    /// The log needs the rest of the room that the two share.
    #[error("beside the smallest log a read area can have {most} bytes here")]
    ReadAreaTooLarge {
        /// Bytes that are the most.
        most: u64,
    },
    /// The read area would be where the log has given up its end.
    #[error(
        "the read area takes the end of {needed} bytes of the cache-disk, and the log is smaller"
    )]
    BehindReadArea {
        /// Bytes of the cache-disk, in the size that it was made with.
        needed: u64,
    },
    /// Sequences that somebody has recorded, or pinned, are not given up for it.
    #[error("recorded and pinned sequences need a read area of {needed} bytes")]
    Sequences {
        /// Bytes of the smallest read area that has them all.
        needed: u64,
    },
    /// A cache with an index budget has no read area.
    #[error("a cache with index-max has no read area, whose copies are in memory, too")]
    ReadAreaBesideBudget,
}

/// Why a request about sequences cannot be met.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SequenceError {
    /// The cache was made without a read area, or its cache-disk has failed.
    #[error("the cache has no read area")]
    NoReadArea,
    /// There is one, but nothing is read or written there: the mode is pass-through, or is being
    /// switched.
    #[error("the read area is not used now")]
    ReadAreaUnused,
    /// No sequence has this name.
    #[error("there is no sequence of this name")]
    NoSuchSequence,
    /// A sequence without a line on the disk, or with a name that cannot be.
    #[error(
        "a sequence needs a name of 1 to 40 bytes and at least one whole 4 KiB line of the disk"
    )]
    BadSequence,
    /// What sequences may take of the read area is taken by this one, or by others that may not go.
    #[error("no room for the sequence")]
    NoRoom,
    /// What it needs is still being written.
    #[error("the room for it is still being written to")]
    Busy,
}

/// Why an I/O failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IoError {
    /// The device reported an error (EIO and the like).
    #[error("I/O error")]
    Failed,
    /// The device is gone (ENODEV, ENXIO) or shorter than it was.
    #[error("the device is gone")]
    Gone,
    /// The device is full (ENOSPC; a sparse file on a full file system).
    #[error("no space left on the device")]
    NoSpace,
    /// The device has not answered for too long (C26).
    #[error("the device does not answer")]
    TimedOut,
    /// The device takes no writes (EROFS, EPERM, EACCES).
    #[error("the device is read-only")]
    ReadOnly,
    /// The device cannot do this operation.
    #[error("not supported by the device")]
    Unsupported,
}

/// What a client is told when the data-disk has failed its request.
impl From<IoError> for RequestError {
    fn from(error: IoError) -> RequestError {
        match error {
            IoError::NoSpace => RequestError::NoSpace,
            IoError::ReadOnly => RequestError::ReadOnly,
            IoError::Failed | IoError::Gone | IoError::TimedOut | IoError::Unsupported => {
                RequestError::Io
            }
        }
    }
}

/// Why a request to a volume cannot be met.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum VolumeError {
    /// There is one data-disk.
    #[error("the cache has a plain data-disk, no volume")]
    NoVolume,
    /// Not the start of an extent within the volume.
    #[error("block {} is not the first of an extent of the volume", .0.0)]
    BadBlock(Lba),
    /// A pointer from or to a block that was not allocated.
    #[error("block {} is not allocated", .0.0)]
    NotAllocated(Lba),
    /// There is no such pointer.
    #[error("block {} does not point to block {}", from.0, to.0)]
    NoPointer {
        /// From here.
        from: Lba,
        /// To there.
        to: Lba,
    },
    /// It is there already.
    #[error("block {} points to block {} already", from.0, to.0)]
    PointerExists {
        /// From here.
        from: Lba,
        /// To there.
        to: Lba,
    },
    /// They cannot both be true.
    #[error("{0} contradict each other")]
    Contradiction(Attributes),
    /// No block is free, or no set has room.
    #[error("no room in the volume")]
    NoRoom,
    /// The table of pointers is full.
    #[error("no room for another pointer")]
    NoPointerRoom,
    /// The table of pointers cannot be that large.
    #[error(
        "the table of pointers can have room for {most} at most: the rest of the volume's journal is needed"
    )]
    TooManyPointers {
        /// So many it can have room for.
        most: u32,
    },
    /// No member has this number.
    #[error("there is no member {}", .0.0)]
    NoMember(MemberIndex),
    /// A set would lose data.
    #[error("member {} is the last that holds some of the data", .0.0)]
    LastCopy(MemberIndex),
    /// It is up to date.
    #[error("member {} is up to date", .0.0)]
    UpToDate(MemberIndex),
    /// A rebuild or scrub is under way.
    #[error("another rebuild or scrub, or change of the tables, is under way")]
    Busy,
    /// The metadata cannot be written.
    #[error("the cache-disk cannot take the metadata of the volume")]
    Metadata,
}
