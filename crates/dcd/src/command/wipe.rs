//! `dcd detach --wipe`: after the detach, what the cache-disk held is overwritten
//! (`dcd_daemon::device::wipe`).
//!
//! 1. Before anything else the cache-disk is looked at: one that could not be wiped later is not
//!    detached either.
//! 2. The detach, by a daemon or here. Crash before it is durable: the pair is one, and nothing is
//!    wiped.
//! 3. The cache-disk is opened for us alone, and must say itself that this cache is detached: then
//!    nothing that was acknowledged depends on it. Crash from here on: `dcd detach --wipe` is
//!    repeated, and begins here.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dcd_daemon::device::device_file::{DeviceError, DeviceFile};
use dcd_daemon::device::device_spec::DeviceSpec;
use dcd_daemon::device::wipe::{Wiped, wipe};
use dcd_daemon::pair::book::PairBook;
use dcd_daemon::process::signals::Signals;
use dcd_daemon::report::status_report::StatusReport;
use dcd_daemon::serve::ServeError;
use dcd_engine::format::data_label::LabelState;
use dcd_engine::format::geometry::SUPERBLOCK_OFFSETS;
use dcd_engine::format::superblock::{CacheState, SUPERBLOCK_SIZE};
use dcd_engine::{Superblock, Uuid};

use super::probe::read_label;
use crate::error::CommandError;
use crate::image::CacheImage;
use crate::progress::{Progress, Unit};
use crate::stdout::print;

/// How long a daemon that has answered may take to let go of its disks.
const PATIENCE: Duration = Duration::from_secs(30);

/// A cache-disk that is to be wiped when its cache is detached.
pub struct Wipe {
    path: PathBuf,
    uuid: Uuid,
    /// It is so already.
    pub is_detached: bool,
}

impl Wipe {
    /// Of a cache that nobody serves.
    pub fn of(cache_disk: &DeviceSpec, data_disk: &DeviceSpec) -> Result<Wipe, CommandError> {
        let path = cache_disk.path().to_owned();
        let superblock = CacheImage::open(&path)?.need_superblock()?;
        // A crash may have come before the label of the data-disk said so, too.
        let is_labelled = read_label(data_disk.path())
            .is_some_and(|it| it.uuid == superblock.uuid && it.state != LabelState::Detached);
        let is_detached = superblock.state == CacheState::Detached && !is_labelled;
        Ok(Wipe { path, uuid: superblock.uuid, is_detached })
    }

    /// Of the cache that a daemon serves, which knows its disk by a name of its own.
    pub fn of_served(status: &StatusReport) -> Result<Wipe, CommandError> {
        let named: Result<DeviceSpec, _> = status.cache_disk.parse();
        let named =
            named.map_or_else(|_| status.cache_disk.clone().into(), |it| it.path().to_owned());
        let there = std::fs::read_link(format!("/proc/{}/cwd", status.pid)).unwrap_or_default();
        let path = there.join(named);
        let superblock = CacheImage::open(&path)?.need_superblock()?;
        if superblock.uuid.to_string() != status.uuid {
            return Err(CommandError::NotWiped {
                path,
                why: format!("it has cache {}, and {} is served", superblock.uuid, status.uuid),
            });
        }
        File::options().write(true).open(&path).map_err(CommandError::file("open", &path))?;
        Ok(Wipe { path, uuid: superblock.uuid, is_detached: false })
    }

    /// Wipes it, if it is detached.
    pub fn run(&self) -> Result<(), CommandError> {
        let disk = open(&self.path)?;
        // From the disk itself, now that nobody else writes to it.
        let [first, second] = SUPERBLOCK_OFFSETS.map(|at| disk.read_at(at, SUPERBLOCK_SIZE));
        let found = Superblock::newest(first?.bytes(), second?.bytes());
        if !found.is_ok_and(|it| it.uuid == self.uuid && it.state == CacheState::Detached) {
            return Err(CommandError::NotWiped {
                path: self.path.clone(),
                why: "it does not say that it is detached".into(),
            });
        }
        let signals = Signals::install().map_err(ServeError::system("receive signals"))?;
        let mut progress = Progress::new("wiping", Unit::Bytes);
        let wiped = wipe(&disk, &mut |done, total| {
            progress.update(done, total);
            signals.take().is_none()
        });
        progress.finish();
        match wiped? {
            Wiped::All => {
                // The cache is no more, also if its end was not recorded.
                PairBook::from_environment(false).forget(self.uuid);
                print(&format!("wiped: {} holds zeroes\n", self.path.display()))
            }
            Wiped::UpTo(done) => Err(CommandError::WipeCancelled {
                path: self.path.clone(),
                left: disk.size_bytes.saturating_sub(done),
            }),
        }
    }
}

fn open(path: &Path) -> Result<DeviceFile, CommandError> {
    let until = Instant::now() + PATIENCE;
    loop {
        match DeviceFile::open(path) {
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
