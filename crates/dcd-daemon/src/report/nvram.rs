//! The memory in front of the log, in the words of a report.

use dcd_engine::nvram::durable::NvramStatus;
use dcd_engine::units::BLOCK_SIZE;
use serde::{Deserialize, Serialize};

/// The memory in front of the log. Counts are since the start.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NvramReport {
    /// The memory as it was named.
    pub disk: String,
    /// Its identity.
    pub id: String,
    /// Bytes of blocks that it may hold.
    pub capacity_bytes: u64,
    /// Bytes of blocks that are in it, and perhaps nowhere else.
    pub dirty_bytes: u64,
    /// Blocks of them that are damaged, and fail until they are written.
    pub damaged_blocks: u64,
    /// It takes no more writes: changes fail until a restart.
    pub failed: bool,
    /// Writes that went into it.
    pub writes: u64,
    /// Their bytes.
    pub write_bytes: u64,
    /// Of them, what was overwritten before it was on its way to the log.
    pub overwritten_bytes: u64,
    /// Writes that had to wait for room.
    pub stalled_writes: u64,
    /// Writes, zeroes and discards that went past it.
    pub bypasses: u64,
    /// Reads that it answered.
    pub read_hits: u64,
    /// Writes to the log that made room.
    pub cleaning_writes: u64,
    /// Their bytes.
    pub cleaning_bytes: u64,
    /// Of them, those that failed and were tried again.
    pub cleaning_failures: u64,
    /// Commits: each makes all writes durable that had come by then.
    pub commits: u64,
    /// Slots that the start has cleared: of writes that were not acknowledged.
    pub uncommitted_slots: u64,
    /// Headers that the start has mended from their other copy.
    pub mended_headers: u64,
}

impl NvramReport {
    /// In these words.
    pub fn of(status: &NvramStatus, disk: &str) -> NvramReport {
        let bytes = |blocks: u64| blocks * BLOCK_SIZE;
        let counters = &status.counters;
        NvramReport {
            disk: disk.to_owned(),
            id: status.identity.id.to_string(),
            capacity_bytes: bytes(status.capacity_blocks),
            dirty_bytes: bytes(status.blocks),
            damaged_blocks: status.damaged_blocks,
            failed: status.has_failed,
            writes: counters.writes,
            write_bytes: bytes(counters.write_blocks),
            overwritten_bytes: bytes(counters.overwritten_blocks),
            stalled_writes: counters.stalled_writes,
            bypasses: counters.bypasses,
            read_hits: counters.read_hits,
            cleaning_writes: counters.cleaning_writes,
            cleaning_bytes: bytes(counters.cleaning_blocks),
            cleaning_failures: status.cleaning_failures,
            commits: status.commits,
            uncommitted_slots: status.uncommitted_slots,
            mended_headers: status.mended_headers,
        }
    }
}
