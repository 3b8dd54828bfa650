//! The memory in front of the log, in the words of a report.

use std::collections::BTreeMap;

use dcd_engine::nvram::ControlStatus;
use dcd_engine::nvram::control::arms::ARMS;
use dcd_engine::nvram::durable::{NvramPresence, NvramStatus};
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
    /// It takes no more writes, and goes by itself: changes wait until it has gone, or fail where
    /// damaged blocks are in it.
    pub failed: bool,
    /// `in-use`; `joining`, `leaving`: requests go past it.
    #[serde(default)]
    pub state: String,
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
    /// What is cleaned when, and why, if that follows the load.
    #[serde(default)]
    pub control: Option<NvramControlReport>,
}

/// What is cleaned when, and why.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NvramControlReport {
    /// The set of policy and thresholds that is followed.
    pub arm: String,
    /// What it does, in words.
    pub does: String,
    /// For each that is tried: how long requests have waited, or would have, of late; older waiting
    /// counts less.
    pub waited_us: BTreeMap<String, u64>,
    /// What a request below takes, on average.
    pub access_us: u64,
    /// How often another was taken.
    pub switches: u64,
    /// The last time.
    pub last_switch: Option<NvramSwitchReport>,
}

/// Another set of policy and thresholds was taken.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NvramSwitchReport {
    /// After so many requests since the start.
    pub after_requests: u64,
    /// From which.
    pub from: String,
    /// To which.
    pub to: String,
    /// Waiting with the first, as it was counted then.
    pub from_waited_us: u64,
    /// With the second.
    pub to_waited_us: u64,
}

impl NvramControlReport {
    fn of(status: &ControlStatus) -> NvramControlReport {
        let name = |arm: usize| ARMS[arm].name.to_owned();
        let waited = ARMS.iter().zip(status.waited);
        NvramControlReport {
            arm: status.arm().name.to_owned(),
            does: status.arm().why.to_owned(),
            waited_us: waited.map(|(arm, it)| (arm.name.to_owned(), it.0 / 1000)).collect(),
            access_us: status.access.0 / 1000,
            switches: status.switches,
            last_switch: status.last_switch.map(|(after_requests, switch)| NvramSwitchReport {
                after_requests,
                from: name(switch.from),
                to: name(switch.to),
                from_waited_us: switch.from_waited.0 / 1000,
                to_waited_us: switch.to_waited.0 / 1000,
            }),
        }
    }
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
            state: match status.presence {
                NvramPresence::Joining => "joining",
                NvramPresence::InUse => "in-use",
                NvramPresence::Leaving => "leaving",
                NvramPresence::Out => "out",
            }
            .into(),
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
            control: status.control.as_ref().map(NvramControlReport::of),
        }
    }
}
