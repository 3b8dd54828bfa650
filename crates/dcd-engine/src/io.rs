//! The boundary: everything that can happen to an engine, and everything it can ask for.
//!
//! Both are plain values, so a recorded list of inputs replays a run exactly. Rules for whoever
//! drives an engine:
//!
//! 1. After each [`Engine::handle_input`](crate::Engine::handle_input) call
//!    [`Engine::poll_output`](crate::Engine::poll_output) until it returns [`Output::Wait`].
//! 2. `now` never goes back.
//! 3. Every [`Io`] is answered by exactly one [`IoDone`]; it brings the buffer of the [`Io`] back
//!    (also after an error).
//! 4. Every [`Request`] is answered by exactly one [`Reply`].
//! 5. [`Input::Timeout`] comes after every [`IoDone`] that is there already: what has not ended by
//!    then may be given up.

use std::fmt;
use std::ops::Range;

pub use dcd_block::errors::{
    IoError, LegError, NvramChangeError, RequestError, ResizeError, SequenceError, VolumeError,
};

use crate::buffer::Buffer;
use crate::units::{Lba, LbaRange, LegIndex, MemberIndex, Time, Uuid};
use dcd_block::attributes::{AttributeChange, Attributes};

/// Name of a request, chosen by the driver; must be unique among those under way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub u64);

/// Name of an I/O, chosen by the engine; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IoId(pub u64);

/// Who has asked for an I/O. The cache, the volume below it, the legs of the cache-disk and the tier
/// in front of it number theirs apart, and a driver sees one space of names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IoOwner {
    /// The cache.
    Cache,
    /// The volume.
    Volume,
    /// The legs.
    Legs,
    /// The tier in front of the log.
    Nvram,
}

impl IoId {
    /// In the names of the volume's I/Os.
    const VOLUME_BIT: u64 = 1 << 63;
    /// In the names of those of the legs.
    const LEGS_BIT: u64 = 1 << 62;
    /// In the names of those of the tier.
    const NVRAM_BIT: u64 = 1 << 61;

    /// The name of the I/O that is this owner's `number`th.
    pub(crate) fn of(owner: IoOwner, number: u64) -> IoId {
        assert!(number < IoId::NVRAM_BIT, "nobody starts so many");
        match owner {
            IoOwner::Cache => IoId(number),
            IoOwner::Volume => IoId(number | IoId::VOLUME_BIT),
            IoOwner::Legs => IoId(number | IoId::LEGS_BIT),
            IoOwner::Nvram => IoId(number | IoId::NVRAM_BIT),
        }
    }

    /// Whose it is.
    pub(crate) fn owner(self) -> IoOwner {
        match self.0 {
            bits if bits & IoId::VOLUME_BIT != 0 => IoOwner::Volume,
            bits if bits & IoId::LEGS_BIT != 0 => IoOwner::Legs,
            bits if bits & IoId::NVRAM_BIT != 0 => IoOwner::Nvram,
            _ => IoOwner::Cache,
        }
    }
}

/// What can happen to an engine.
#[derive(Debug)]
pub enum Input {
    /// A frontend (or the control socket) wants something.
    Request(Request),
    /// An I/O has ended.
    IoDone(IoDone),
    /// An [`Output::KeepWindow`] was carried out, or not.
    WindowKept {
        /// Which.
        window: u64,
        /// What the data-disk showed meanwhile is kept. If not, it is asked for again.
        is_kept: bool,
    },
    /// The moment of the last [`Output::Wait`] has come, and everything that has ended until now
    /// has been given. Harmless at any other moment.
    Timeout,
}

/// What an engine can ask of its driver.
#[derive(Debug)]
pub enum Output {
    /// Start this I/O.
    Io(Io),
    /// Answer this request.
    Reply(Reply),
    /// The data-disk is flushed, and shows exactly the changes up to the end of this window
    /// ([`DestagePolicyKind::Ordered`](crate::DestagePolicyKind::Ordered)). Nothing is written to
    /// it until [`Input::WindowKept`] has come: whoever wants a copy of it takes it now.
    KeepWindow {
        /// Its number: later windows have greater ones, after a restart, too.
        window: u64,
    },
    /// Nothing more to do now; give [`Input::Timeout`] at `until` unless something comes earlier.
    Wait {
        /// `None`: nothing is planned.
        until: Option<Time>,
    },
}

/// Something wanted of the device.
#[derive(Debug)]
pub struct Request {
    /// Comes back in the [`Reply`].
    pub id: RequestId,
    /// What is wanted.
    pub operation: Operation,
    /// Reply only when this request and all acknowledged before are durable (contract C3).
    /// Allowed with every operation.
    pub fua: bool,
}

/// The operations. Ranges lie within the volume and are multiples of its block size; the
/// frontends check both ([`crate::Engine::check_range`]), the engine asserts them.
#[derive(Debug)]
pub enum Operation {
    /// Read into `buffer`, which comes with the reply.
    Read {
        /// What to read.
        range: LbaRange,
        /// Of any length: its memory is used again if there is room in it. One that is empty is
        /// memory to be asked for.
        buffer: Buffer,
    },
    /// Write `data` from `start` on. The buffer comes back with the reply, for reuse.
    Write {
        /// First block.
        start: Lba,
        /// What to write; its length is a multiple of 512.
        data: Buffer,
    },
    /// Make the range read as zeroes.
    WriteZeroes {
        /// Where.
        range: LbaRange,
        /// Whether the data-disk may free the space.
        may_unmap: bool,
    },
    /// The contents of the range are no longer wanted; it reads as zeroes afterwards (C12).
    Discard {
        /// Where.
        range: LbaRange,
    },
    /// Reply when everything acknowledged before is durable (C2).
    Flush,
    /// Reply when everything acknowledged before is on the data-disk and that is flushed. Answered
    /// with [`RequestError::Lost`] when that is done with all but what is lost, and with
    /// [`RequestError::Stuck`] when it gets on no more; then it is over, and destaging goes on as
    /// ever.
    Drain,
    /// End a drain that is still under way: it is answered with [`RequestError::Cancelled`]. What
    /// it has moved stays moved. Harmless if it has been answered already.
    CancelDrain {
        /// The request that began it.
        drain: RequestId,
    },
    /// Something about sequences.
    Sequence(SequenceRequest),
    /// Something about what blocks are and where they go, or about members. The reply may bring an
    /// [`Reply::answer`].
    Volume(VolumeRequest),
    /// Fill a leg of the cache-disk that is out, and use it again. The reply comes at once; see
    /// [`Engine::legs`](crate::Engine::legs).
    FillLeg {
        /// Its name.
        leg: Uuid,
    },
    /// Do without a leg from now on. The reply comes when no start believes it any more.
    TakeOutLeg {
        /// Its name.
        leg: Uuid,
    },
    /// Give the log another size: as large as it can be on so many bytes of the cache-disk, which
    /// the driver knows to be there, on each of its legs. The reply comes when it has that size.
    /// Shrinking moves what is in the last segments to the data-disk before; if that gets on no
    /// more, it is answered with [`RequestError::Stuck`], and everything is as before.
    Resize {
        /// What the log may use, from the beginning of the cache-disk.
        cache_disk_bytes: u64,
    },
    /// Give the read area another size: the log makes room for it as when it shrinks, or gets the
    /// room. What is copied stays, but for what has no place any more: hot blocks, then sequences
    /// that were found, those that brought least first. The log has no annexes then. The reply
    /// comes when it has that size, and as for [`Operation::Resize`].
    ResizeReadArea {
        /// What it may take of the cache-disk: whole pages of 1,000 KiB; 0: there is none.
        bytes: u64,
    },
    /// End a change of the log's size, or the read area's: it is answered with
    /// [`RequestError::Cancelled`], and the log is as before. Harmless if it has been answered
    /// already, or is too late.
    CancelResize {
        /// The request that began it.
        resize: RequestId,
    },
    /// Do without the memory in front of the log from now on. The reply comes when nothing names it
    /// any more; what it held is in the log by then. Until then, and if it cannot be, it is in use
    /// as before: where damaged blocks are in it ([`RequestError::Lost`]), or what is below takes
    /// nothing.
    RemoveNvram,
    /// End a change of the memory in front of the log ([`Operation::RemoveNvram`],
    /// [`TieredEngine::add_nvram`](crate::TieredEngine::add_nvram)): it is answered with
    /// [`RequestError::Cancelled`], and all is as before. Harmless if it has been answered already,
    /// or is too late.
    CancelNvramChange {
        /// The request that began it.
        change: RequestId,
    },
    /// Take no more requests, drain, mark the pair as detached (C31). If something is lost, it is
    /// answered with [`RequestError::Lost`] when all else is moved and the cache is closed, and the
    /// pair stays one; if it gets on no more, likewise with [`RequestError::Stuck`].
    Detach,
    /// The same, although some of these blocks are lost: the data-disk keeps what it has there.
    DetachAccepting {
        /// What [`Engine::lost`](crate::Engine::lost) said, and somebody was told of. With anything
        /// else lost the pair stays one.
        lost: Vec<LbaRange>,
    },
    /// Make a shutdown of the detach under way: it is answered with [`RequestError::Cancelled`]
    /// when the cache is closed, and the pair stays one. Too late when all has been moved.
    CancelDetach,
    /// Take no more requests, make everything durable, write a checkpoint and mark the cache as
    /// closed in order.
    Shutdown,
}

impl Operation {
    /// Whether it changes what blocks hold.
    pub(crate) fn changes_blocks(&self) -> bool {
        matches!(
            self,
            Operation::Write { .. } | Operation::WriteZeroes { .. } | Operation::Discard { .. }
        )
    }

    /// A read into new memory.
    pub fn read(range: LbaRange) -> Operation {
        Operation::Read { range, buffer: Buffer::default() }
    }
}

/// What can be asked about sequences.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SequenceRequest {
    /// Keep a sequence in the read area; one of the same name is replaced. The reply comes before
    /// its lines are copied, which is done when the disks have nothing else to do.
    Store(Box<NewSequence>),
    /// Remove the sequence of this name.
    Remove {
        /// Its name.
        name: String,
    },
    /// Remove all sequences but the pinned ones.
    Clear,
    /// Keep the sequence of this name whatever else wants its room, or no longer.
    Pin {
        /// Its name.
        name: String,
        /// Whether it is to stay.
        is_pinned: bool,
    },
    /// Reply when a checkpoint that lists all copies is durable.
    Save,
    /// Follow sequences and read them ahead, or no longer; after a start they are.
    Serve {
        /// Whether.
        on: bool,
    },
}

/// A sequence to be kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewSequence {
    /// Its name, 1 to 40 bytes without a zero.
    pub name: String,
    /// The blocks, in the order in which they are read. A line counts once, where it comes first.
    pub ranges: Vec<LbaRange>,
    /// Found by the detector, and so often; 0 if somebody recorded it.
    pub occurrences: u64,
    /// Found by the detector: it displaces only others of its kind that bring less.
    pub is_detected: bool,
}

/// What can be asked of a volume. A *block* is an extent here, named by its first [`Lba`]: what the
/// DHIS paper calls so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VolumeRequest {
    /// Change the attributes of all extents that these ranges touch. Those that are on a level that
    /// is not the wanted one any more are moved when there is time. Reply when the change is
    /// durable.
    SetAttributes {
        /// Where.
        ranges: Vec<LbaRange>,
        /// What becomes of the attributes.
        change: AttributeChange,
    },
    /// `alloc_block`: find a block that nobody uses, allocate room for it and give it these
    /// attributes. The reply brings [`VolumeAnswer::Allocated`]; what is read from it is zero.
    /// Durable with the next flush.
    Allocate {
        /// Close to this one, if possible.
        near: Option<Lba>,
        /// What it is.
        attributes: Attributes,
    },
    /// `create_ptr`: `from` points to `to`. With its first pointer `from` becomes METADATA and
    /// moves to where that goes; `to` inherits attributes. Durable with the next flush.
    CreatePointer {
        /// The block that points.
        from: Lba,
        /// The block that is pointed to.
        to: Lba,
    },
    /// `delete_ptr`. A block that was allocated and has no pointer to it any more is freed, and
    /// then the blocks that only it pointed to. Durable with the next flush.
    DeletePointer {
        /// The block that points.
        from: Lba,
        /// The block that is pointed to.
        to: Lba,
    },
    /// Free the allocated blocks that cannot be reached from a ROOT. The reply brings
    /// [`VolumeAnswer::Collected`].
    Collect,
    /// Make room for so many pointers, if there is less: the table takes it from the journal of the
    /// volume. Durable when it is answered; requests that need the journal wait meanwhile.
    SetPointers {
        /// How many.
        pointers: u32,
    },
    /// Treat a member as failed from now on.
    FailMember {
        /// Which.
        member: MemberIndex,
    },
    /// Write what belongs on a member that is not up to date, and use it again. The reply comes at
    /// once; see the status.
    Rebuild {
        /// Which.
        member: MemberIndex,
    },
    /// Read everything that is redundant, compare, and repair. The reply comes at once; see the
    /// status.
    Scrub,
    /// The same, from where one has stopped that has not come to its end.
    ResumeScrub,
    /// Stop a rebuild or scrub. One that goes on by itself does so when the next is due.
    CancelWork,
}

/// What a [`VolumeRequest`] brings besides success.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VolumeAnswer {
    /// The block that was allocated.
    Allocated(Lba),
    /// How many blocks were freed.
    Collected(u64),
}

/// The answer to a request.
#[derive(Debug)]
pub struct Reply {
    /// Which request.
    pub id: RequestId,
    /// How it ended.
    pub result: Result<(), RequestError>,
    /// The data of a read that succeeded; of a write its own buffer, for reuse.
    pub buffer: Option<Buffer>,
    /// What a request to the volume brings.
    pub answer: Option<VolumeAnswer>,
}

/// A device below the engine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Device {
    /// The disk that holds the log.
    CacheDisk,
    /// The disk that owns the data.
    DataDisk,
    /// One of the data-disks of a volume; then there is no [`Device::DataDisk`] outside of the
    /// engine.
    Member(MemberIndex),
    /// One of the disks that hold the log, if there are several; then there is no
    /// [`Device::CacheDisk`] outside of the engine.
    Leg(LegIndex),
    /// What has a say about [`Device::Leg`]s, and holds labels only.
    Witness,
    /// The medium of the tier in front of the log, where it is not memory: of
    /// [`TieredEngine`](crate::TieredEngine).
    Nvram,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::CacheDisk => f.write_str("the cache-disk"),
            Device::DataDisk => f.write_str("the data-disk"),
            Device::Member(member) => write!(f, "member {} of the volume", member.0),
            Device::Leg(_) => f.write_str("a leg of the cache-disk"),
            Device::Witness => f.write_str("the witness"),
            Device::Nvram => f.write_str("the memory in front of the log"),
        }
    }
}

/// Something wanted of a device.
#[derive(Debug)]
pub struct Io {
    /// Comes back in the [`IoDone`].
    pub id: IoId,
    /// Which device.
    pub device: Device,
    /// What is wanted.
    pub operation: IoOperation,
}

/// What a device can do. Addresses and lengths are bytes, multiples of 512 on the data-disk and
/// of 4096 on the cache-disk.
#[derive(Debug)]
pub enum IoOperation {
    /// Fill the buffer from `offset` on.
    Read {
        /// Byte address.
        offset: u64,
        /// Where to; its length is the length of the read.
        buffer: Buffer,
    },
    /// Write to `offset`.
    Write {
        /// Byte address.
        offset: u64,
        /// What to write.
        data: IoData,
        /// Report only when this write (not earlier ones) is durable.
        fua: bool,
    },
    /// Make the range read as zeroes.
    WriteZeroes {
        /// Byte address.
        offset: u64,
        /// Length in bytes.
        length: u64,
        /// Whether the space may be freed.
        may_unmap: bool,
    },
    /// Make every write that has been reported durable.
    Flush,
}

/// Where the bytes of a write are.
#[derive(Debug)]
pub enum IoData {
    /// In a buffer of its own, which comes back with the [`IoDone`].
    Owned(Buffer),
    /// In the segment memory, at these byte offsets; see [`crate::Engine::segment_memory`]. The
    /// engine does not change these bytes until the I/O is done.
    SegmentMemory(Range<usize>),
}

/// An I/O has ended.
#[derive(Debug)]
pub struct IoDone {
    /// Which.
    pub id: IoId,
    /// How. After an error nothing is known of what reached the disk.
    pub result: Result<(), IoError>,
    /// The buffer of the [`Io`], if it had one; of a read that succeeded, filled.
    pub buffer: Option<Buffer>,
}

/// Whether all that is lost lies within what somebody has accepted.
pub(crate) fn all_is_accepted(lost: &[LbaRange], accepted: &[LbaRange]) -> bool {
    // Ascending, as it was said; of what is not, nothing is found, and nothing is given up.
    let is_accepted = |lost: &LbaRange| {
        let at = accepted.partition_point(|range| range.end() < lost.end());
        let range = accepted.get(at);
        range.is_some_and(|range| range.start <= lost.start && lost.end() <= range.end())
    };
    lost.iter().all(is_accepted)
}
