//! What a trace is replayed on: a disk model, or a cache of the engine above one, all on virtual
//! time.
//!
//! ```text
//!   DiskTarget                the bare disk
//!   LogTarget                 log on a cache-disk, and data-disk; or one  dcd-engine, Engine
//!                             or the members of a volume
//!   NvramTarget               non-volatile memory above one of the two    dcd-engine, nvram
//! ```

mod data_disks;
pub mod disk;
pub mod log;
pub mod nvram;
pub mod pages;
pub mod setup;
pub mod tracks;

use std::collections::BTreeMap;

use dcd_engine::nvram::HeadPosition;
use dcd_engine::{Device, Duration, Time};
use serde::Serialize;

use crate::disk::model::{DiskOperation, DiskRequest, DiskRequestError};
use crate::disk::price::Bill;
use crate::disk::store::StoreFacts;
use crate::distribution::{Distribution, Percentiles};

/// The end of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TargetDone {
    /// The caller's number.
    pub id: u64,
    /// When.
    pub completed: Time,
    /// How long it was worked on: by the disk, or waiting for room in a cache.
    pub service: Duration,
}

/// Something that serves requests on virtual time. `now` never goes back, and what is done by `now`
/// is taken with [`Target::advance`] before something is submitted.
pub trait Target: HeadPosition {
    /// Takes a request. With `is_fua`, a write is done when it is durable.
    ///
    /// # Errors
    /// When the disk cannot have it; nothing has happened then.
    fn submit(
        &mut self,
        now: Time,
        request: DiskRequest,
        is_fua: bool,
    ) -> Result<(), DiskRequestError>;

    /// Whether it could have the request.
    ///
    /// # Errors
    /// As [`Target::submit`].
    fn check(&self, request: &DiskRequest) -> Result<(), DiskRequestError>;

    /// When something will happen next, if nothing else is submitted.
    fn next_event(&self) -> Option<Time>;

    /// Adds to `done` what has been done up to `now`, in the order in which it was.
    fn advance(&mut self, now: Time, done: &mut Vec<TargetDone>);

    /// What the disks and caches did.
    fn facts(&self) -> TargetFacts;

    /// Moves all that a log holds to the disk, as `dcd drain` does, and tells what that took.
    /// Nothing is submitted afterwards. None where there is no log, or memory above it, or the disk
    /// never takes what is in the log.
    fn drain(&mut self, _now: Time) -> Option<DrainFacts> {
        None
    }

    /// What came of a bucket behind a log.
    fn store(&self) -> Option<StoreFacts> {
        None
    }

    /// What is to be paid for what the disks have done so far.
    fn bill(&self) -> Bill;

    /// Memory that grows with what is asked for, about.
    fn memory_bytes(&self) -> u64 {
        0
    }

    /// The log, if it is what serves requests, without memory above it.
    fn as_log(&mut self) -> Option<&mut log::LogTarget> {
        None
    }
}

/// What the disks and caches did. Where log and data are on one disk, that is the data-disk: what
/// is done for the log counts for both. Of a volume the data-disk is all members together, and how
/// busy it was their mean.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct TargetFacts {
    /// Reads of the (data-)disk.
    pub disk_reads: u64,
    /// Writes to it.
    pub disk_writes: u64,
    /// Their bytes.
    pub disk_write_bytes: u64,
    /// Their sizes; none if there were none.
    pub disk_write_kib: Option<Percentiles>,
    /// Share of the time that it was busy.
    pub disk_busy_percent: f64,
    /// What the (data-)disk read for clients.
    pub data_disk_access: AccessFacts,
    /// What the cache-disk read for them, if there is one.
    pub cache_disk_access: Option<AccessFacts>,
    /// Writes that waited for room in a cache.
    pub stalled_writes: u64,
    /// Writes that found all their blocks in a cache, not on the disk yet.
    pub overwrites: u64,
    /// The non-volatile memory, if there is one.
    pub nvram: Option<NvramFacts>,
    /// The log, if there is one.
    pub log: Option<LogFacts>,
    /// The volume, if the log is in front of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeFacts>,
}

/// What a volume did.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct VolumeFacts {
    /// Its members, in order.
    pub members: Vec<MemberFacts>,
    /// The sets, and how full they were at the end.
    pub sets: Vec<SetFacts>,
    /// Extents that were moved to another set.
    pub moved_extents: u64,
    /// Bytes that the journal took of the cache-disk.
    pub journal_bytes: u64,
}

/// What a member of a volume did.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct MemberFacts {
    /// Its reads.
    pub reads: u64,
    /// Its writes.
    pub writes: u64,
    /// Their bytes.
    pub write_bytes: u64,
    /// Share of the time that it was busy.
    pub busy_percent: f64,
}

/// A set of a volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SetFacts {
    /// RAID level.
    pub level: u8,
    /// `fast` or `slow`.
    pub class: &'static str,
    /// Extents that have their place there.
    pub used_extents: u64,
    /// Extents that it has room for.
    pub extents: u64,
}

/// Reads of a disk that served reads of clients, those ahead of them included.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct AccessFacts {
    /// How many.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Sum of their access times: from when the disk began with one to its end.
    pub time_ms: f64,
    /// Sum of the distances, in blocks of 512 bytes, from the end of what the arm had done before
    /// to their beginning; 0 where there is no arm.
    pub seek_distance: u64,
}

impl AccessFacts {
    pub(crate) fn and(self, other: AccessFacts) -> AccessFacts {
        AccessFacts {
            reads: self.reads + other.reads,
            read_bytes: self.read_bytes + other.read_bytes,
            time_ms: self.time_ms + other.time_ms,
            seek_distance: self.seek_distance + other.seek_distance,
        }
    }
}

/// A read of a disk that served reads of clients.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Access {
    /// Whose it was; one disk may be both.
    pub device: Device,
    /// As in [`AccessFacts`].
    pub seek_distance: u64,
    /// From when the disk began with it to its end.
    pub access_ms: f64,
}

/// What the non-volatile memory did.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct NvramFacts {
    /// Writes into it.
    pub writes: u64,
    /// Bytes of them.
    pub write_bytes: u64,
    /// Bytes of them that had not been written to the disk yet.
    pub overwritten_bytes: u64,
    /// Writes past it.
    pub bypasses: u64,
    /// Reads that it answered.
    pub read_hits: u64,
    /// Reads that it did not.
    pub read_misses: u64,
    /// Times that cleaning began because of the high threshold.
    pub cleanings: u64,
    /// Groups that were cleaned.
    pub cleaned_groups: u64,
    /// Writes that this took.
    pub cleaning_writes: u64,
    /// Their bytes.
    pub cleaning_bytes: u64,
    /// What was left in it at the end.
    pub dirty_bytes: u64,
    /// What was followed at the end, if policy and thresholds followed the load.
    pub control: Option<ControlFacts>,
    /// Size of the hot zone at the end, for the policy that has one.
    pub hot_zone_bytes: Option<u64>,
    /// Where the hit ratio has its knee, if the hot zone is looked for.
    pub knee_bytes: Option<u64>,
    /// The share of writes that a memory of so many bytes would find, where the hot zone is looked
    /// for.
    pub hit_ratio_by_bytes: Vec<(u64, f64)>,
}

/// Policy and thresholds that followed the load.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ControlFacts {
    /// What was followed at the end.
    pub arm: &'static str,
    /// What that does.
    pub does: &'static str,
    /// How often another was taken.
    pub switches: u64,
    /// How long requests waited of late with each that was tried, or would have.
    pub waited_ms: BTreeMap<&'static str, f64>,
}

/// What the log did.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LogFacts {
    /// Writes to the cache-disk.
    pub cache_disk_writes: u64,
    /// Their bytes: records, checkpoints, superblocks; tables and journal of a volume.
    pub cache_disk_write_bytes: u64,
    /// Reads of it.
    pub cache_disk_reads: u64,
    /// Share of the time that it was busy.
    pub cache_disk_busy_percent: f64,
    /// Lines of reads that were in the log.
    pub read_hit_lines: u64,
    /// Lines of reads that were not.
    pub read_miss_lines: u64,
    /// Lines written whose older copy was still in the log.
    pub overwritten_lines: u64,
    /// Writes past it.
    pub bypasses: u64,
    /// Lines moved to the data-disk.
    pub destaged_lines: u64,
    /// Writes that moved them.
    pub destage_writes: u64,
    /// Lines left at the end.
    pub dirty_lines: u64,
    /// Requests that failed: for a minute there was no room (C25).
    pub failed_requests: u64,
    /// The read area, if there is one.
    pub read_area: Option<ReadAreaFacts>,
}

/// What the read area did.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ReadAreaFacts {
    /// Lines of reads that came from copies.
    pub read_copy_lines: u64,
    /// Lines read ahead for sequences.
    pub read_ahead_lines: u64,
    /// Of the lines read ahead, those that reads used.
    pub read_ahead_used_lines: u64,
    /// Lines copied meanwhile.
    pub copy_lines_written: u64,
    /// Lines with a true copy at the end.
    pub copied_lines: u64,
    /// The sequences that are kept.
    pub sequences: Vec<SequenceFacts>,
}

/// A sequence that is kept.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SequenceFacts {
    /// Its name.
    pub name: String,
    /// Lines of it.
    pub lines: u64,
    /// Of them, those without a copy.
    pub stale: u64,
    /// How often it was read ahead; a run that nothing has followed for less than two seconds has
    /// not ended.
    pub runs: u32,
    /// It is not read ahead any more, because that did not pay.
    pub off: bool,
}

/// What it takes to empty a log.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct DrainFacts {
    /// How long.
    pub seconds: f64,
    /// Writes to the data-disk.
    pub disk_writes: u64,
    /// Their bytes.
    pub disk_write_bytes: u64,
    /// Bytes written to the cache-disk meanwhile.
    pub cache_disk_write_bytes: u64,
}

/// Counts of a disk.
#[derive(Clone, Default, Debug)]
pub(crate) struct DiskCounts {
    pub(crate) reads: u64,
    pub(crate) write_bytes: u64,
    pub(crate) write_sizes: Distribution,
    pub(crate) busy: Duration,
    /// What was read for clients, by [`dcd_engine::Device`].
    pub(crate) served: [AccessFacts; 2],
    /// Since when it is counted.
    pub(crate) since: Time,
}

impl DiskCounts {
    pub(crate) fn count(&mut self, operation: DiskOperation, size_bytes: u64) {
        match operation {
            DiskOperation::Read => self.reads += 1,
            DiskOperation::Write => {
                self.write_bytes += size_bytes;
                self.write_sizes.add(size_bytes);
            }
            DiskOperation::Flush => {}
        }
    }

    pub(crate) fn busy_percent(&self, now: Time) -> f64 {
        let time = now.since(self.since);
        if time.0 == 0 { 0.0 } else { 100.0 * self.busy.0 as f64 / time.0 as f64 }
    }
}
