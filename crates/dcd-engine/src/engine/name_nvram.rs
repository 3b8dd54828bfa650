//! The superblock names another memory in front of the log, or none, while requests are served.
//!
//! ```text
//! 1. The superblock, with a higher generation: it says which session it is of.
//!      Crash before it is durable: the memory that was named before is there, and nothing has been
//!      acknowledged from the other. Whichever is found, the same checkpoints and records count.
//! 2. Its second copy, until it is durable.
//!      Without it a copy that cannot be read later would bring back the name from before, which a
//!      start would miss, or do without.
//! ```
//!
//! Whoever asks has one memory in use at most: nothing is in the one that is not named any more,
//! and nothing in the new one yet ([`crate::nvram::durable`]).

use super::{Engine, Purpose};
use crate::format::nvram::NvramIdentity;
use crate::format::superblock::Resized;
use crate::io::{IoError, RequestError};

/// The superblock is being told.
#[derive(Default)]
pub(super) struct Naming {
    is_second: bool,
    is_under_way: bool,
    ended: Option<Result<(), RequestError>>,
}

impl Engine {
    /// Whether the superblock may be told of another memory now, or of none: not while it tells of
    /// a size, nor of a new one while the volume grows, nor while a mode is switched.
    pub fn may_name_nvram(&self, nvram: Option<NvramIdentity>) -> bool {
        self.is_running()
            && self.close.is_none()
            && self.naming.is_none()
            && !self.is_telling_size()
            && !(nvram.is_some() && self.is_volume_growing())
            && !self.is_past_by_mode()
    }

    /// Whether nobody knows what the superblock names: it could not be written, and there is no log
    /// to fail with it.
    pub(crate) fn is_nvram_name_unsure(&self) -> bool {
        self.nvram_name_is_unsure
    }

    pub(crate) fn is_being_closed(&self) -> bool {
        self.close.is_some()
    }

    /// The superblock names this memory in front of the log from now on, or none, for whoever has
    /// it there ([`TieredEngine`](crate::TieredEngine)). [`Engine::take_nvram_named`] tells when it
    /// is done.
    ///
    /// # Panics
    /// If it may not.
    pub fn name_nvram(&mut self, nvram: Option<NvramIdentity>) {
        assert!(self.may_name_nvram(nvram), "nothing else is told of");
        let session_epoch = self.superblock.session_epoch_min();
        // All of this session count, and 0 would be none.
        let checkpoint_generation = self.superblock.checkpoint_generation_min().max(1);
        self.superblock.count(!self.config.data_disk_read_only);
        self.superblock.resized = Some(Resized { session_epoch, checkpoint_generation });
        self.superblock.nvram = nvram;
        self.naming = Some(Naming::default());
        self.advance_naming();
        self.advance_legs();
    }

    /// How that has ended, once: an error where the cache-disk has failed, so that nobody knows
    /// which memory it names.
    pub fn take_nvram_named(&mut self) -> Option<Result<(), RequestError>> {
        let ended = self.naming.as_ref()?.ended;
        self.naming.take_if(|_| ended.is_some());
        ended
    }

    /// The superblock is being told. That it was, nobody has to have asked for yet.
    pub(super) fn is_naming_nvram(&self) -> bool {
        self.naming.as_ref().is_some_and(|naming| naming.ended.is_none())
    }

    pub(super) fn advance_naming(&mut self) -> bool {
        let may_write = !self.health.cache_disk_failed()
            && (self.config.no_log || !self.is_passing_by() && !self.log_is_given_up());
        let Some(naming) = &mut self.naming else { return false };
        if naming.is_under_way || naming.ended.is_some() {
            return false;
        }
        if !may_write {
            self.naming_failed();
            return true;
        }
        naming.is_under_way = true;
        let offset = match naming.is_second {
            false => self.superblock.offset(),
            true => self.superblock.second_offset(),
        };
        self.write_superblock_copy(offset, Purpose::NameNvram);
        true
    }

    /// A copy was written; again, if that has failed: nobody knows which counts.
    pub(super) fn nvram_name_written(&mut self, result: Result<(), IoError>) {
        let has_log = !self.config.no_log;
        let naming = self.naming.as_mut().expect("under way");
        naming.is_under_way = false;
        match result {
            Ok(()) if naming.is_second => {
                self.config.nvram = self.superblock.nvram;
                naming.ended = Some(Ok(()));
            }
            Ok(()) => naming.is_second = true,
            Err(error) if has_log => self.cache_disk_error(error),
            Err(_) => self.naming_failed(),
        }
    }

    /// What is said from here on, if anything still can be, is what was true before.
    fn naming_failed(&mut self) {
        self.nvram_name_is_unsure = true;
        self.superblock.nvram = self.config.nvram;
        self.naming.as_mut().expect("under way").ended = Some(Err(RequestError::Io));
    }
}
