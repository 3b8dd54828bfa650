//! What can be relied on of the two disks.

use crate::io::IoError;

/// How the disks are. Nothing here is on a disk: a start finds out anew.
#[derive(Default)]
pub(super) struct Health {
    cache_disk_failed: bool,
    cache_disk_error: Option<IoError>,
    data_disk_writes_lost: u32,
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
}
