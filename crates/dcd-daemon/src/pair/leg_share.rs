//! A share of another cache-disk that becomes a leg: it is made when the leg is asked for, and given
//! back if that is refused.
//!
//! ```text
//! 1. Of a blank disk: the directory.                  Crash: a disk for shares, without any.
//! 2. The directory: the share is being made.          Crash: its room is free again.
//! 3. The beginning of its window is zeroed, where an earlier share may have left its marks.
//!                                                     Crash: the same.
//! 4. The directory: it is in use, said by whoever serves ([`LegShare::keep`], `control/legs.rs`).
//!                                                     Crash: the share is there, and blank; whoever
//!                                                     asks again gets it.
//! 5. It becomes a leg as any blank disk (`legs.rs`).
//! ```
//! 4 comes before 5, because the room of one that is being made is free as soon as nobody has it;
//! and not long before, because nobody can tell a blank one from a leg that has lost its beginning.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dcd_engine::Buffer;
use dcd_engine::format::share_directory::{
    DIRECTORY_BYTES, NewShare, SHARE_GRAIN_BYTES, Share, ShareDirectory, ShareError, ShareState,
};
use dcd_engine::units::Uuid;

use crate::device::device_file::{DeviceError, DeviceFile};
use crate::device::network::check_shareable;
use crate::device::shares::{
    DirectoryChange, Place, ShareProblem, directory_at, directory_of, is_no_directory,
    make_directory, set_state,
};
use crate::pair::legs::{NewLegError, check_blank, check_size, new_leg_uuid};
use crate::pair::members::BLANK_BYTES;

/// How long whoever has the disk, or the share, is waited for, and how often it is tried.
const OTHERS_PATIENCE: Duration = Duration::from_secs(3);
const OTHERS_INTERVAL: Duration = Duration::from_millis(50);

/// Whose share it is to be, and what is to fit into it.
#[derive(Clone, Debug)]
pub struct LegOf {
    /// The cache.
    pub cache: Uuid,
    /// Bytes that a leg of it needs.
    pub bytes: u64,
    /// Its data-disk, as a note for people; empty: a volume.
    pub data_disk: String,
}

/// A share that was made to become a leg. Dropped, it is given back, unless it is kept.
#[must_use]
pub struct LegShare {
    disk: PathBuf,
    cache: Uuid,
    is_kept: bool,
}

impl LegShare {
    /// Makes the share that a path of the form `DISK/NAME` names, and opens it. One that is there
    /// and belongs to this cache is opened as it is, and is nothing to be given back.
    ///
    /// # Errors
    /// If the path names no share; the disk holds something else than shares, has no room, or is
    /// somebody's; or the name is that of another cache's. Then nothing was changed.
    pub fn take(path: &Path, of: &LegOf) -> Result<(Option<LegShare>, DeviceFile), NewLegError> {
        let until = Instant::now() + OTHERS_PATIENCE;
        loop {
            match LegShare::try_take(path, of) {
                // Somebody makes the directory of the same disk, for example.
                Err(NewLegError::Device(
                    DeviceError::Locked { .. }
                    | DeviceError::LockedBelow { .. }
                    | DeviceError::Busy { .. }
                    | DeviceError::UsedThrough { .. },
                )) if Instant::now() < until => std::thread::sleep(OTHERS_INTERVAL),
                taken => return taken,
            }
        }
    }

    fn try_take(path: &Path, of: &LegOf) -> Result<(Option<LegShare>, DeviceFile), NewLegError> {
        let Place { disk, share: Some(name) } = Place::of(path) else {
            let (disk, share) = (path.to_owned(), "share".into());
            return Err(DeviceError::from(ShareProblem::NotShared { disk, share }).into());
        };
        check_shareable(&disk)?;
        let found = directory_at(&disk).map_err(|source| DeviceError::Io {
            path: disk.clone(),
            operation: "read",
            source,
        })?;
        match found {
            Ok(directory) => {
                let is_ours = directory.find(&name).is_some_and(|share| {
                    share.cache == of.cache && share.state == ShareState::InUse
                });
                if is_ours {
                    return Ok((None, DeviceFile::open(path)?));
                }
                let has_one =
                    |share: &Share| share.cache == of.cache && share.state == ShareState::InUse;
                if let Some(share) = directory.shares().iter().find(|share| has_one(share)) {
                    let path = disk.join(&share.name);
                    return Err(NewLegError::SecondShare { path });
                }
                // Tried before anything is written.
                allocate(&mut directory.clone(), name.clone(), of)
                    .or_else(unless_left_over(&directory))
                    .map_err(ShareProblem::rule(&disk))?;
            }
            Err(problem) if is_no_directory(&problem) => prepare(&disk, &name, of)?,
            Err(problem) => {
                return Err(DeviceError::from(ShareProblem::Damaged { disk, problem }).into());
            }
        }
        // 2.
        let mut change = DirectoryChange::begin(&disk)?;
        change.drop_left_over();
        allocate(&mut change.directory, name, of).map_err(ShareProblem::rule(&disk))?;
        change.write()?;
        let made = LegShare { disk, cache: of.cache, is_kept: false };
        let states = [ShareState::Making];
        let opened = DeviceFile::open_share(path, &states, Some(&change));
        // Before an error gives the share back, which takes the directory.
        drop(change);
        let file = opened?;
        // 3.
        let start_bytes = file.size_bytes.min(BLANK_BYTES) as usize;
        file.write_at(0, &Buffer::zeroed(start_bytes))?;
        file.flush()?;
        // Opened anew: the directory was open beside it, and whoever opens a block device first
        // keeps others away.
        drop(file);
        match DeviceFile::open_share(path, &states, None) {
            Ok(file) => Ok((Some(made), file)),
            // In between somebody has taken it for one that was left over: once more.
            Err(DeviceError::Share(_)) => {
                let path = made.disk.clone();
                Err(DeviceError::Locked { path, pid: None }.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// 4. It becomes a leg now.
    ///
    /// # Errors
    /// If the directory cannot be changed.
    pub(crate) fn keep(mut self) -> Result<(), DeviceError> {
        set_state(&self.disk, self.cache, ShareState::InUse)?;
        self.is_kept = true;
        Ok(())
    }

    /// Whoever has the share now has said so, or nobody knows.
    pub fn leave_it(mut self) {
        self.is_kept = true;
    }
}

impl Drop for LegShare {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        // The error that counts came before, and the next creation takes what is left.
        let Ok(mut change) = DirectoryChange::begin(&self.disk) else { return };
        let path = self.disk.join(self.cache.to_string());
        let states = [ShareState::Making, ShareState::InUse];
        // Whoever has asked for the same meanwhile, and got it, has it open.
        let share = DeviceFile::open_share(&path, &states, Some(&change));
        if share.is_ok() && change.directory.give_back(self.cache).is_ok() {
            let _ = change.write();
        }
    }
}

/// 1. A blank disk becomes one for shares.
fn prepare(disk: &Path, name: &str, of: &LegOf) -> Result<(), NewLegError> {
    let whole = DeviceFile::open(disk)?;
    if directory_of(&whole)?.is_ok() {
        // Somebody else was quicker.
        return Ok(());
    }
    check_blank(&whole)?;
    check_size(&whole, DIRECTORY_BYTES + of.bytes.next_multiple_of(SHARE_GRAIN_BYTES))?;
    let mut trial = ShareDirectory::new(of.cache, whole.size_bytes);
    allocate(&mut trial, name.to_owned(), of).map_err(ShareProblem::rule(disk))?;
    let uuid = new_leg_uuid().map_err(|source| DeviceError::Io {
        path: disk.to_owned(),
        operation: "get a name for",
        source,
    })?;
    Ok(make_directory(&whole, uuid)?)
}

/// Takes room in a directory, which is not written: in several pieces if there is no other way.
fn allocate(directory: &mut ShareDirectory, name: String, of: &LegOf) -> Result<(), ShareError> {
    let whole = |size_bytes| NewShare {
        name: name.clone(),
        cache: of.cache,
        size_bytes,
        data_disk: of.data_disk.clone(),
    };
    match directory.allocate(whole(of.bytes)) {
        Err(ShareError::NoRoom { asked, largest, free }) if largest > 0 && asked <= free => {
            directory.allocate(whole(largest))?;
            directory.resize(of.cache, of.bytes).map(|_| ())
        }
        taken => taken.map(|_| ()),
    }
}

/// What a creation has left that was cut off is no hindrance: whether somebody is at it is seen when
/// the directory is ours.
fn unless_left_over(directory: &ShareDirectory) -> impl Fn(ShareError) -> Result<(), ShareError> {
    let has_left_over = directory.shares().iter().any(|share| share.state != ShareState::InUse);
    move |error| match error {
        ShareError::NoRoom { .. } | ShareError::Taken { .. } | ShareError::Full
            if has_left_over =>
        {
            Ok(())
        }
        error => Err(error),
    }
}
