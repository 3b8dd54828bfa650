//! A share is given more of its disk, or gives some back, while it serves: the directory, the locks,
//! and what the open disk takes for its own ([`DeviceFile::set_windows`]), in the order in which a
//! crash between two steps loses nothing. The log's own size is its engine's.
//!
//! ```text
//! take       1. The directory, both copies.   Crash: the next start gives it back.
//!            2. The locks.
//!            3. The open disk has it. Only now the log may go there.
//! give back  0. No superblock of the disk says that its log goes there.
//!            1. The open disk has it no more.
//!            2. The directory.                Crash: the next start gives it back.
//!            3. The locks: now somebody else may open it.
//! ```
//! What the open disk takes for its own is never more than the directory says, whatever fails.

use std::path::Path;

use dcd_engine::format::geometry::SUPERBLOCK_OFFSETS;
use dcd_engine::format::share_directory::{SHARE_GRAIN_BYTES, ShareError, ShareState, Windows};
use dcd_engine::format::superblock::{SUPERBLOCK_SIZE, Superblock};
use dcd_engine::io::ResizeError;
use dcd_engine::units::Uuid;

use crate::device::device_file::{DeviceError, DeviceFile};
use crate::device::shares::{DirectoryChange, ShareProblem};

/// How the open disk learns what is its own; false: something is still under way in what it would
/// lose, or it is there no more.
pub(crate) type Tell<'t> = &'t mut dyn FnMut(Windows) -> bool;

/// A share that is open, as far as its room is concerned.
pub(crate) struct ShareRoom {
    /// The cache in it.
    pub(crate) cache: Uuid,
    /// Its disk, through what the share is open as.
    directory: DeviceFile,
}

impl ShareRoom {
    /// Of an open disk; `None`: it is no share.
    ///
    /// # Errors
    /// If there are no more descriptors.
    pub(crate) fn of(disk: &DeviceFile) -> std::io::Result<Option<ShareRoom>> {
        let Some(share) = disk.share() else { return Ok(None) };
        Ok(Some(ShareRoom { cache: share.cache, directory: disk.directory_beside()? }))
    }

    /// The disk of which it is a share.
    pub(crate) fn disk(&self) -> &Path {
        self.directory.path()
    }

    fn begin(&self) -> Result<DirectoryChange, DeviceError> {
        let file = self.directory.directory_beside().map_err(self.cannot_open())?;
        DirectoryChange::begin_beside(file)
    }

    fn cannot_open(&self) -> impl Fn(std::io::Error) -> DeviceError {
        let path = self.directory.path();
        |source| DeviceError::Io { path: path.to_owned(), operation: "open", source }
    }

    fn rule(&self) -> impl Fn(ShareError) -> DeviceError {
        ShareProblem::rule(self.directory.path())
    }

    /// Its size, and how large it can be.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub(crate) fn sizes(&self) -> Result<(u64, u64), DeviceError> {
        let change = self.begin()?;
        let size = self.windows_in(&change)?.size_bytes();
        Ok((size, size + change.directory.free_bytes()))
    }

    /// Says that the share is in use, in both copies of the directory, as
    /// [`set_state`](crate::device::shares::set_state) does.
    ///
    /// # Errors
    /// If the directory cannot be changed.
    pub(crate) fn set_in_use(&self) -> Result<(), DeviceError> {
        let mut change = self.begin()?;
        change.directory.set_state(self.cache, ShareState::InUse).map_err(self.rule())?;
        change.write()?;
        change.write()
    }

    fn windows_in(&self, change: &DirectoryChange) -> Result<Windows, DeviceError> {
        let mut shares = change.directory.shares().iter();
        let share = shares.find(|share| share.cache == self.cache);
        let unknown = || ShareError::Unknown { share: self.cache.to_string() };
        share.map(|share| share.windows.clone()).ok_or_else(|| self.rule()(unknown()))
    }

    /// Takes room, unless it has that much. Its size, which is whole MiB.
    ///
    /// # Errors
    /// If so much is not free, or the disk cannot be written. Then it has what it had, or the
    /// directory has more for it, which [`ShareRoom::give_back`] gives back.
    pub(crate) fn take(&self, size_bytes: u64, tell: Tell) -> Result<u64, DeviceError> {
        let mut change = self.begin()?;
        let before = self.windows_in(&change)?;
        let size_before = before.size_bytes();
        if size_bytes <= size_before {
            return Ok(size_before);
        }
        let windows = change.directory.resize(self.cache, size_bytes).map_err(self.rule())?;
        // What is lost with the end of a disk that was cut off is not taken.
        let (end, found) = (windows.end(), change.file().whole_bytes());
        if end > found {
            let path = self.directory.path().to_owned();
            return Err(ShareProblem::Beyond { path, end, found }.into());
        }
        // 1. Twice, which is to both copies.
        change.write()?;
        change.write()?;
        // 2.
        let more = windows.behind(size_before);
        if !change.file().hold_parts(&more) {
            let path = self.directory.path().to_owned();
            return Err(DeviceError::Locked { path, pid: None });
        }
        // 3.
        let size = windows.size_bytes();
        tell(windows);
        Ok(size)
    }

    /// Gives back what the log has not, but for what `keep_bytes` says, and for what is no more
    /// than what is always left over. Bytes that are free now and were not.
    ///
    /// # Errors
    /// If the disk cannot be read or written. Then the next start does it.
    pub(crate) fn give_back(&self, keep_bytes: u64, tell: Tell) -> Result<u64, DeviceError> {
        let mut change = self.begin()?;
        let before = self.windows_in(&change)?;
        // 0.
        let Some(needed) = self.needed_bytes(&before)? else { return Ok(0) };
        let size_before = before.size_bytes();
        let size_bytes = needed.max(keep_bytes).next_multiple_of(SHARE_GRAIN_BYTES);
        if size_bytes >= size_before {
            return Ok(0);
        }
        let windows = change.directory.resize(self.cache, size_bytes).map_err(self.rule())?;
        // 1.
        if !tell(windows) {
            return Ok(0);
        }
        // 2.
        change.write()?;
        // 3.
        change.file().leave_parts(&before.behind(size_bytes));
        Ok(size_before - size_bytes)
    }

    /// Up to where the share is needed, if the log could be larger in it: as both copies of the
    /// superblock say, since either may be the one that the next start finds. `None`: there is
    /// nothing to give back, or nobody knows.
    fn needed_bytes(&self, windows: &Windows) -> Result<Option<u64>, DeviceError> {
        let share = self.directory.part_beside(windows.clone()).map_err(self.cannot_open())?;
        let mut needed = 0;
        for offset in SUPERBLOCK_OFFSETS {
            let Ok(found) = Superblock::decode(share.read_at(offset, SUPERBLOCK_SIZE)?.bytes())
            else {
                return Ok(None);
            };
            let segments = found.geometry.segments;
            let is_left_over = match found.geometry_on(windows.size_bytes()) {
                Ok(geometry) => geometry.segments > segments,
                Err(ResizeError::TooOften) => true,
                Err(_) => false,
            };
            if found.uuid != self.cache || !is_left_over {
                return Ok(None);
            }
            needed = needed.max(found.end());
        }
        Ok(Some(needed))
    }
}
