//! `dcd grow`: records that a data-disk has grown (contract C32), while no daemon runs.
//!
//! ```text
//! 1. Look at both disks: the old size and the new one.
//! 2. If the old end lies within a line of 4 KiB: bring everything to the data-disk, with the old
//!    size. Zeroes count by the line, and behind the old end there are none.
//!      Crash here: an ordinary start with the old size, or grow again.
//! 3. Open the cache with the new size, which its superblock then says, and close it.
//!      Crash here: the one size or the other (`recover.rs`); grow again, or serve.
//! ```

use dcd_engine::Uuid;
use dcd_engine::format::superblock::CacheState;
use dcd_engine::units::LINE_SIZE;

use crate::pair::{DataDiskSize, PairOptions};
use crate::serve::error::ServeError;
use crate::serve::offline::{Ended, OfflineReport, OfflineTask, run_offline};
use crate::serve::open_pair::{Pair, open_pair};
use dcd_protocol::Progress;

/// What was done.
#[derive(Clone, Copy, Debug)]
pub struct GrowReport {
    /// The cache.
    pub uuid: Uuid,
    /// Size recorded before.
    pub old_bytes: u64,
    /// Size recorded now; the same if it had been recorded already.
    pub new_bytes: u64,
    /// Whether a signal came first. What is recorded is not known then.
    pub ended: Ended,
}

/// Records the size of the data-disk. Interrupted at any point it can be begun again.
pub fn grow(
    options: &PairOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<GrowReport, ServeError> {
    let with = |size| PairOptions { size, ..options.clone() };
    let as_recorded = with(DataDiskSize::AsRecorded);
    // Step 1. Nothing but the superblock is read.
    let (superblock, new_bytes) = {
        let Pair { event_loop, superblock, data_disk_bytes, .. } = open_pair(&as_recorded, None)?;
        event_loop.close();
        (superblock, data_disk_bytes)
    };
    let old_bytes = superblock.data_disk.bytes();
    let mut report = GrowReport { uuid: superblock.uuid, old_bytes, new_bytes, ended: Ended::Done };
    if old_bytes == new_bytes {
        return Ok(report);
    }
    // Step 2.
    let is_detached = superblock.state == CacheState::Detached;
    if !old_bytes.is_multiple_of(LINE_SIZE) && !is_detached {
        // What is damaged in the log stays there: zeroes are what must not.
        let OfflineReport { ended, .. } =
            run_offline(&as_recorded, OfflineTask::Drain, progress, &mut |_| false)?;
        report.ended = ended;
        if ended != Ended::Done {
            return Ok(report);
        }
    }
    // Step 3. What was parted stays parted.
    let task = if is_detached { OfflineTask::Detach } else { OfflineTask::Nothing };
    let grown = with(DataDiskSize::Grown);
    report.ended = run_offline(&grown, task, progress, &mut |_| false)?.ended;
    Ok(report)
}
