//! What can be relied on of the two disks.

use crate::io::IoError;

/// How the disks are. Nothing here is on a disk: a start finds out anew.
#[derive(Default)]
pub(super) struct Health {
    cache_disk_failed: bool,
    cache_disk_error: Option<IoError>,
    data_disk_writes_lost: u32,
    /// Writes to the data-disk that have ended, whatever came of them.
    data_disk_written: u64,
    /// A flush that succeeded covers so many of them; `None`: there was none in this session.
    data_disk_flushed: Option<u64>,
}

impl Health {
    /// The cache-disk has failed for good: nothing more is written to it (C22). It never comes
    /// back.
    pub(super) fn cache_disk_failed(&self) -> bool {
        self.cache_disk_failed
    }

    /// How it failed, the last time. It need not have been given up for that.
    pub(super) fn cache_disk_error(&self) -> Option<IoError> {
        self.cache_disk_error
    }

    pub(super) fn note_cache_disk_error(&mut self, error: IoError) {
        self.cache_disk_error = Some(error);
    }

    /// The cache-disk is given up. False if it was before.
    pub(super) fn give_up_cache_disk(&mut self) -> bool {
        !std::mem::replace(&mut self.cache_disk_failed, true)
    }

    /// Writes to the data-disk were given up and may still land (C26): nothing else may be written
    /// there meanwhile.
    pub(super) fn has_late_writes(&self) -> bool {
        self.data_disk_writes_lost > 0
    }

    /// A write to the data-disk is given up.
    pub(super) fn write_lost(&mut self) {
        self.data_disk_writes_lost += 1;
    }

    /// One that was given up has ended after all.
    pub(super) fn late_write_ended(&mut self) {
        self.data_disk_writes_lost -= 1;
    }

    /// A write to the data-disk has ended: well or not, some of it may be there.
    pub(super) fn data_disk_written(&mut self) {
        self.data_disk_written += 1;
    }

    /// What a flush of the data-disk that starts now covers.
    pub(super) fn covered_by_flush(&self) -> u64 {
        self.data_disk_written
    }

    /// A flush of the data-disk has succeeded. Two may be under way, and end in any order.
    pub(super) fn data_disk_flushed(&mut self, covers: u64) {
        self.data_disk_flushed = self.data_disk_flushed.max(Some(covers));
    }

    /// Whether nothing has been written to the data-disk that a power cut may still change.
    pub(super) fn data_disk_is_flushed(&self) -> bool {
        self.data_disk_flushed == Some(self.data_disk_written)
    }
}
