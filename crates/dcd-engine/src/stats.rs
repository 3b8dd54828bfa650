//! Counters that the engine keeps about itself, and the picture that `dcd status` shows.

use crate::config::Mode;
use crate::copies::CopyCounts;
use crate::io::{IoError, RequestError};
use crate::units::{Duration, SequenceId, Time, Uuid};

/// Counts since the engine was opened. Bytes where the name says so, otherwise events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Read requests.
    pub reads: u64,
    /// Bytes asked for by reads.
    pub read_bytes: u64,
    /// Lines of reads that were wholly in a segment buffer or on the cache-disk.
    pub read_hit_lines: u64,
    /// Lines of reads that came, at least in part, from the data-disk.
    pub read_miss_lines: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes of write requests.
    pub write_bytes: u64,
    /// Lines written whose older copy was still in the log: work that destaging is spared.
    pub overwritten_lines: u64,
    /// Lines logged, also in the place of others in the record that is being filled.
    pub logged_lines: u64,
    /// Write requests that went past the log.
    pub bypasses: u64,
    /// Bytes of them.
    pub bypass_bytes: u64,
    /// Discard and write-zeroes requests.
    pub zeroes: u64,
    /// Flush requests.
    pub flushes: u64,
    /// Requests that carried FUA.
    pub fuas: u64,
    /// Log writes to the cache-disk.
    pub log_writes: u64,
    /// Bytes of them, headers and padding included.
    pub log_write_bytes: u64,
    /// Flushes of the cache-disk.
    pub cache_disk_flushes: u64,
    /// Log writes that were durable at once (FUA) and so needed no flush.
    pub cache_disk_fua_writes: u64,
    /// Records sealed.
    pub records: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Bytes of checkpoints written.
    pub checkpoint_bytes: u64,
    /// Pages of the index that were read from the cache-disk, within a budget for it.
    pub index_pages_read: u64,
    /// Destage batches completed.
    pub destage_batches: u64,
    /// Lines moved to the data-disk.
    pub destaged_lines: u64,
    /// Writes to the data-disk that moved them.
    pub destage_writes: u64,
    /// Bytes of them.
    pub destage_write_bytes: u64,
    /// Zero ranges brought to the data-disk.
    pub destaged_zero_ranges: u64,
    /// Bytes read from the cache-disk to destage.
    pub destage_read_bytes: u64,
    /// Lines whose physical sector was completed before destaging (C15).
    pub completed_lines: u64,
    /// Flushes of the data-disk.
    pub data_disk_flushes: u64,
    /// Requests that had to wait for room.
    pub stalled_writes: u64,
    /// I/O errors of the cache-disk.
    pub cache_disk_errors: u64,
    /// I/O errors of the data-disk.
    pub data_disk_errors: u64,
    /// Slots whose checksum did not match.
    pub checksum_errors: u64,
    /// Lines of reads that came from a copy in the read area.
    pub read_copy_lines: u64,
    /// Lines of reads that came from a slot of the log from which they had been destaged.
    pub read_clean_lines: u64,
    /// Lines read ahead for sequences.
    pub read_ahead_lines: u64,
    /// Of them, those that reads used; one that was used twice counts twice.
    pub read_ahead_used_lines: u64,
    /// Lines copied to the read area.
    pub copy_lines_written: u64,
    /// Copies that were not what they should be; their lines were read from the data-disk.
    pub copies_damaged: u64,
}

/// Where a copy of a line is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Translation {
    /// Byte address on the cache-disk.
    pub offset: u64,
    /// Its sequence, and its place there; `None`: a hot block.
    pub place: Option<(SequenceId, u32)>,
    /// Whether it is true: reads may be served from it.
    pub is_valid: bool,
}

/// How recovery went.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecoveryReport {
    /// Bytes read from the cache-disk.
    pub bytes_read: u64,
    /// Records replayed after the checkpoint.
    pub records: u64,
    /// Records found only in the surviving segment memory.
    pub records_from_memory: u64,
    /// Lines dirty afterwards.
    pub dirty_lines: u64,
    /// Lines that were damaged and now fail until overwritten.
    pub poisoned_lines: u64,
    /// Time from open to running.
    pub duration: Duration,
    /// Whether the cache had been closed in order.
    pub was_closed: bool,
    /// The data-disk is not as the cache last saw it, which does no harm, because the log is empty:
    /// dcd went on without this cache-disk (C23), or someone else wrote to it after a crash.
    pub data_disk_changed: bool,
    /// The cache-disk was shortened once, and damage is accepted: what it lost is not known.
    pub end_mark_lost: bool,
    /// Copy pages that the checkpoint names and that could not be read: their copies are gone.
    pub copy_pages_lost: u64,
    /// Copies that the checkpoint lists and the records behind it made stale.
    pub copies_changed: u64,
    /// Copies that were not believed, because the data-disk may have been changed without the log.
    pub copies_doubted: u64,
}

/// How far a start is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpeningProgress {
    /// Bytes read from the cache-disk.
    pub bytes_read: u64,
    /// Lines in the index by now: what is behind the checkpoint changes them.
    pub dirty_lines: u64,
}

/// Number of segments in each state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SegmentCounts {
    /// May be filled.
    pub free: u32,
    /// Empty; a record has to announce it before it may be filled again.
    pub empty: u32,
    /// In a segment buffer.
    pub buffered: u32,
    /// On the cache-disk, with live slots.
    pub dirty: u32,
}

/// How far the engine is in doing without its cache-disk (C23).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Uncached {
    /// What was only in segment buffers is being written to the data-disk; changes wait.
    WritingThrough,
    /// Changes go straight to the data-disk.
    PassingThrough,
    /// The data-disk has failed, too: changes fail.
    Failed,
}

/// Which mode counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModeReport {
    /// What is promised now.
    pub mode: Mode,
    /// Whether that is what is wanted.
    pub state: ModeState,
    /// Of a switch under way: when it began.
    pub since: Option<Time>,
}

/// How far a change of the log's size is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResizeReport {
    /// Segments that it had.
    pub segments_before: u32,
    /// Segments that it is to have.
    pub segments_wanted: u32,
    /// Pages that the read area had.
    pub copy_pages_before: u32,
    /// Pages that it is to have.
    pub copy_pages_wanted: u32,
    /// What is being done.
    pub state: ResizeState,
    /// Of those that are given up, so many are still in use, or have to be looked at.
    pub segments_left: u32,
    /// Slots in them that have to go to the data-disk, as far as they were looked at.
    pub lines_left: u64,
    /// When it began.
    pub since: Time,
}

/// What a change of the log's size is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResizeState {
    /// What is in the last segments goes to the data-disk.
    Emptying,
    /// A checkpoint and the superblock are written that tell of it.
    Writing,
}

/// How far a switch to another mode is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ModeState {
    /// There is none under way.
    Reached,
    /// The log is being emptied; changes go to it still.
    Draining,
    /// Changes wait for the rest of it.
    Holding,
    /// It was given up: the mode stays what it was.
    GivenUp(RequestError),
    /// The data-disk has failed while changes went past the log: they fail, until the next start.
    Failed,
}

/// The cache-disk has been given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheDiskFailure {
    /// Its last error.
    pub error: IoError,
    /// Whether the engine does without it; else changes fail.
    pub uncached: Option<Uncached>,
}

/// The data-disk does not take what is dirty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DestageTrouble {
    /// Its last error.
    pub error: IoError,
    /// When it began.
    pub since: Time,
    /// Nothing at all is taken; else only lines in some places are not.
    pub is_whole: bool,
    /// Lines whose last write failed.
    pub blocked_lines: u64,
    /// Nothing is tried before then.
    pub retry_at: Option<Time>,
}

/// What keeps dirty lines from the data-disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Obstacle {
    /// A write to the data-disk was given up and has not ended: another one could be overtaken by
    /// it.
    WriteNotEnded,
    /// These members of the volume are away, a bit for each, and nobody stands in for them.
    Members(u32),
    /// The data-disk does not take it.
    DataDisk(DestageTrouble),
    /// The log cannot be read.
    CacheDisk,
    /// Nobody has kept the last window yet, and it has failed.
    Window,
}

/// Where ordered shipping stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowReport {
    /// What it is doing.
    pub state: WindowState,
    /// The window under way.
    pub window: Option<u64>,
    /// Slots of the log that are left of it.
    pub slots_left: u64,
    /// Lines that have changed since it was cut, and are not on the data-disk yet.
    pub kept_lines: u64,
    /// The newest window that was kept, and when.
    pub last_kept: Option<(u64, Time)>,
    /// When the oldest change came that is in no window that was kept.
    pub uncovered_since: Option<Time>,
    /// Windows that were kept.
    pub kept: u64,
    /// Windows that were not, because something in them is lost.
    pub not_kept: u64,
    /// How often it has failed to keep the window under way.
    pub failures: u64,
}

/// What ordered shipping is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowState {
    /// It waits until the next window is due.
    Gathering,
    /// A window is on its way to the data-disk.
    Shipping,
    /// All of it is there, and somebody keeps it.
    Keeping {
        /// Since when.
        since: Time,
        /// It has failed, and is tried again then.
        retry_at: Option<Time>,
    },
}

/// A picture of the engine.
#[derive(Clone, Debug)]
pub struct Status {
    /// Which cache.
    pub uuid: Uuid,
    /// When the picture was taken.
    pub now: Time,
    /// Volume size in blocks.
    pub volume_blocks: u64,
    /// Whether changes are refused.
    pub read_only: bool,
    /// Counters.
    pub counters: Counters,
    /// Segments by state.
    pub segments: SegmentCounts,
    /// All segments.
    pub segments_total: u32,
    /// Bytes in a segment.
    pub segment_size_bytes: u64,
    /// State of each segment in place order, as `f`, `e`, `b`, `d` (free, empty, buffered, dirty);
    /// of a large log a letter stands for some neighbours, so that there are at most 4,096.
    pub segment_map: String,
    /// Lines with a copy newer than the data-disk.
    pub dirty_lines: u64,
    /// Copies in the read area.
    pub copies: CopyCounts,
    /// Memory of what is known of copies: in the read area, in the log, and of what the detector
    /// has seen.
    pub copies_bytes: u64,
    /// Memory that holds what was read ahead.
    pub read_ahead_bytes_held: u64,
    /// Ranges that are zero in the log and not yet on the data-disk.
    pub zero_ranges: u64,
    /// Lines in them.
    pub zero_lines: u64,
    /// Lines that fail until overwritten.
    pub poisoned_lines: u64,
    /// Bytes of index memory.
    pub index_bytes: u64,
    /// The most that it may take; 0: as much as it wants.
    pub index_bytes_max: u64,
    /// The cache-disk has failed, until a restart. Writes fail, unless `uncached` says otherwise.
    pub cache_disk_failed: bool,
    /// Its last error.
    pub cache_disk_error: Option<IoError>,
    /// Nothing on the cache-disk is newer than the data-disk: should it fail now, nothing is lost.
    pub cache_disk_clean: bool,
    /// It has failed while clean, or is left alone, and the data-disk alone is used (C23).
    pub uncached: Option<Uncached>,
    /// Whether changes go to the log.
    pub mode: ModeReport,
    /// A change of the log's size that is under way.
    pub resize: Option<ResizeReport>,
    /// Destaging is held back after errors until then.
    pub destage_retry_at: Option<Time>,
    /// Why what is dirty does not get to the data-disk, from the first error until nothing is left
    /// that failed.
    pub destage_trouble: Option<DestageTrouble>,
    /// What a drain would have to wait for, as far as is known.
    pub obstacle: Option<Obstacle>,
    /// A drain is under way.
    pub draining: bool,
    /// Where ordered shipping stands, if it is wanted.
    pub window: Option<WindowReport>,
    /// Quiet time that starts a destage at the present utilisation.
    pub idle_threshold: Duration,
    /// How the start went.
    pub recovery: RecoveryReport,
}
