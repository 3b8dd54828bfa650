//! Is there anything on the cache-disk? While there is not, dcd can go on without it (C23).
//!
//! The cache-disk is *clean* when neither of its checkpoints lists anything that a start would go
//! by, neither lines nor zero ranges nor poison, and no record was ever submitted to it behind
//! them. Whatever becomes of a cache-disk in this state, a later start finds an empty log on it,
//! and can put nothing old over what was written to the data-disk meanwhile. Both, because a start
//! that cannot read the newer one takes the older, and no record would tell it that there was a
//! newer.
//!
//! ```text
//! 1. The cache has been empty and quiet for `idle_threshold_max`: a checkpoint is made that says
//!    so.
//!      A checkpoint that finds the cache empty for another reason counts as well.
//! 2. It is durable. If the other one is of this session, a second is made, in its place.
//!      Crash before: a start finds an empty log, or what had been in it.
//!      Of an earlier session: a start knows by the superblock that it is not the newest.
//!    That is durable, too: clean.      Crash from here on: a start finds an empty log.
//! 3. A record is to be written: first, 4 KiB of zeroes are written with FUA to the place where its
//!    header will be. That is the *probe*. It is no record, so nothing of it needs to be believed
//!    or remembered, and it may land late, torn or never.
//!      It fails: no record was submitted, the cache-disk is clean still.
//! 4. Only then the record. From here on the cache-disk may hold it, whatever an error says.
//! ```
//! A disk that dies does so most likely while nobody writes to it. Without step 3 the first to
//! notice would be a record, of which nobody could know whether it is on the disk.

use super::{Engine, Purpose};
use crate::buffer::Buffer;
use crate::engine::Disk;
use crate::io::{IoData, IoError, IoOperation};
use crate::units::{LINE_SIZE, RecordNumber, Time};

/// What is known of the cache-disk.
#[derive(Default)]
pub(super) struct LogUse {
    state: State,
    /// The newest record whose write was started.
    submitted: RecordNumber,
    /// Since when the cache has been empty, with nothing under way.
    empty_since: Option<Time>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// Something may be on it.
    #[default]
    InUse,
    /// The newest checkpoint lists nothing, and there is nothing behind it.
    HalfClean,
    Clean,
    Probing,
    /// The probe was written, and no record since.
    Probed,
}

impl LogUse {
    /// Whether nothing can be on the cache-disk that is newer than the data-disk.
    pub(super) fn is_clean(&self) -> bool {
        !matches!(self.state, State::InUse | State::HalfClean)
    }

    /// A probe is under way.
    pub(super) fn is_probing(&self) -> bool {
        self.state == State::Probing
    }

    /// The write of a record has been started.
    pub(super) fn record_submitted(&mut self, number: RecordNumber) {
        assert!(self.state != State::Clean && self.state != State::Probing, "first the probe");
        self.state = State::InUse;
        self.submitted = self.submitted.max(number);
    }

    /// A checkpoint that lists nothing, made behind this record, is durable; whether the other does
    /// not matter: this is the first of the session.
    pub(super) fn empty_checkpoint_durable(&mut self, after: RecordNumber, is_enough: bool) {
        let has_records_behind = self.submitted > after;
        self.state = match self.state {
            State::InUse | State::HalfClean if has_records_behind => State::InUse,
            State::InUse if !is_enough => State::HalfClean,
            State::InUse | State::HalfClean => State::Clean,
            state @ (State::Clean | State::Probing | State::Probed) => state,
        };
    }

    /// A checkpoint that lists something is durable.
    pub(super) fn full_checkpoint_durable(&mut self) {
        if self.state == State::HalfClean {
            self.state = State::InUse;
        }
    }
}

impl Engine {
    /// Whether a picture taken now would list nothing, and nothing of it could come back.
    pub(super) fn cache_is_empty(&self) -> bool {
        self.table.lines() == 0
            && self.zeroes.is_empty()
            && self.zeroes_destaging.is_empty()
            && self.poisoned.is_empty()
            && self.destage.is_idle()
    }

    /// Step 1. Whether it is time for a checkpoint that says that there is nothing.
    pub(super) fn clean_checkpoint_is_due(&mut self) -> bool {
        let is_settled = !self.log_use.is_clean()
            && self.cache_is_empty()
            && self.bypasses.is_empty()
            && self.log.newest_record() == self.log.durable_record();
        if !is_settled {
            self.log_use.empty_since = None;
            return false;
        }
        let since = *self.log_use.empty_since.get_or_insert(self.now);
        self.log_use.state == State::HalfClean
            || self.now.since(since) >= self.config.idle_threshold_max
    }

    pub(super) fn clean_checkpoint_wake_up(&self) -> Option<Time> {
        if self.health.cache_disk_failed()
            || !self.checkpoint.is_idle()
            || self.purge.is_under_way()
            || self.table.is_evicting()
            || self.is_moving_pages()
        {
            return None;
        }
        self.log_use.empty_since.map(|since| since.after(self.config.idle_threshold_max))
    }

    /// Step 3. Whether records may be written; if not, a probe is under way.
    pub(super) fn may_write_records(&mut self) -> bool {
        match self.log_use.state {
            State::InUse | State::HalfClean | State::Probed => return true,
            State::Probing => return false,
            State::Clean => {}
        }
        let Some(offset) = self.log.next_write_offset() else { return true };
        self.log_use.state = State::Probing;
        let data = IoData::Owned(Buffer::zeroed(LINE_SIZE as usize));
        let operation = IoOperation::Write { offset, data, fua: true };
        self.start_io(Disk::CacheDisk, operation, Purpose::Probe);
        false
    }

    pub(super) fn probe_done(&mut self, result: Result<(), IoError>) {
        self.log_use.state = State::Clean;
        match result {
            Ok(()) => self.log_use.state = State::Probed,
            Err(error) => self.cache_disk_error(error),
        }
    }
}
