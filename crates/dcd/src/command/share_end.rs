//! The end of a share: what `dcd detach` does when the cache in it is detached.
//!
//! ```text
//! 1. The superblock in the window says that the cache is detached: nothing depends on it. It is
//!    read when nobody else has the window any more.
//!      Crash before: the pair is one, or is detached, and `dcd detach` is repeated.
//! 2. The directory: the share is leaving.
//!      Crash: `dcd detach` is repeated, or the next creation takes the room.
//! 3. With --wipe, the window is overwritten. Crash: the same.
//! 4. The directory, without it.
//! ```

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dcd_daemon::device::device_file::{DeviceError, DeviceFile};
use dcd_daemon::device::device_spec::DeviceSpec;
use dcd_daemon::device::shares::{Place, give_back, set_state, share_at};
use dcd_daemon::pair::book::PairBook;
use dcd_daemon::pair::legs::{label_at, read_leg_label};
use dcd_engine::Uuid;
use dcd_engine::format::leg_label::LegLabel;
use dcd_engine::format::share_directory::ShareState;

use super::wipe::{PATIENCE, in_order, overwrite};
use crate::error::CommandError;
use crate::stdout::print_done;

/// The shares that a cache has on its cache-disks.
pub struct ShareEnd {
    paths: Vec<PathBuf>,
}

impl ShareEnd {
    /// Of the cache-disks of a cache; `None`: it has disks of its own.
    pub fn of(cache_disks: &[PathBuf]) -> Option<ShareEnd> {
        let is_share = |path: &&PathBuf| Place::of(path).share.is_some();
        let paths: Vec<PathBuf> = cache_disks.iter().filter(is_share).cloned().collect();
        (!paths.is_empty()).then_some(ShareEnd { paths })
    }

    /// The same of disks as they were named.
    pub fn of_specs(cache_disks: &[DeviceSpec]) -> Option<ShareEnd> {
        let paths: Vec<PathBuf> = cache_disks.iter().map(|it| it.path().to_owned()).collect();
        ShareEnd::of(&paths)
    }

    /// Whether a detach was cut off when nothing depended on the cache any more.
    pub fn is_leaving(&self) -> bool {
        let is_leaving = |path: &PathBuf| {
            share_at(path)
                .is_ok_and(|share| share.is_ok_and(|share| share.state == ShareState::Leaving))
        };
        self.paths.iter().any(is_leaving)
    }

    /// Gives them back, if the cache is detached.
    pub fn run(&self, wipe: bool) -> Result<(), CommandError> {
        // 1. From the disks themselves, now that nobody else writes to them.
        let opened = self.paths.iter().map(|path| open(path)).collect::<Result<Vec<_>, _>>()?;
        let share = |disk: &DeviceFile| disk.share().expect("it was opened as one").clone();
        let (left, here): (Vec<&DeviceFile>, Vec<&DeviceFile>) =
            opened.iter().partition(|disk| share(disk).state == ShareState::Leaving);
        if let Some(first) = here.first() {
            in_order(share(first).cache, here.iter().copied())?;
        }
        let leaving: Vec<(&DeviceFile, Uuid)> =
            here.into_iter().chain(left).map(|disk| (disk, share(disk).cache)).collect();
        // 2.
        for (disk, cache) in &leaving {
            set_state(&disk_of(disk), *cache, ShareState::Leaving)?;
        }
        // 3.
        if wipe {
            overwrite(leaving.iter().map(|(disk, _)| *disk))?;
        }
        // 4. The cache is no more.
        for (disk, cache) in &leaving {
            give_back(&disk_of(disk), *cache)?;
            PairBook::from_environment(false).forget(*cache);
            print_done(&format!("given back: {} is free again\n", disk.path().display()))?;
        }
        Ok(())
    }
}

/// Gives back the share of a leg that its cache does without: the labels of the others do not name
/// it any more, so nothing depends on what it holds. By now the share may be another leg, of which
/// that is not so; which it is its label tells, once nobody else has it open.
///
/// # Errors
/// If it is not that leg's, the daemon does not let go of it, or its disk cannot be written.
pub fn give_back_leg(disk: &Path, cache: Uuid, leg: Uuid) -> Result<(), CommandError> {
    let path = disk.join(cache.to_string());
    let is_it = |label: Option<LegLabel>| label.is_some_and(|label| label.leg == leg);
    let another = || CommandError::ShareOfAnotherLeg { path: path.clone(), leg };
    // One that is in use is not waited for.
    if !is_it(label_at(&path)) {
        return Err(another());
    }
    let share = open(&path)?;
    if !is_it(read_leg_label(&share)?.ok()) {
        return Err(another());
    }
    set_state(disk, cache, ShareState::Leaving)?;
    Ok(give_back(disk, cache)?)
}

fn disk_of(share: &DeviceFile) -> PathBuf {
    Place::of(share.path()).disk
}

/// A daemon that has answered may take a while to let go of its disks.
fn open(path: &Path) -> Result<DeviceFile, CommandError> {
    let until = Instant::now() + PATIENCE;
    loop {
        match DeviceFile::open_share(path, &[ShareState::InUse, ShareState::Leaving], None) {
            Err(
                DeviceError::Locked { .. }
                | DeviceError::LockedBelow { .. }
                | DeviceError::UsedThrough { .. }
                | DeviceError::Busy { .. },
            ) if Instant::now() < until => std::thread::sleep(Duration::from_millis(50)),
            opened => return Ok(opened?),
        }
    }
}
