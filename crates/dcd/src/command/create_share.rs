//! `dcd create --share`: a cache in a share of its cache-disk, and the directory of shares if the
//! disk has none yet.
//!
//! ```text
//! 1. Without a directory: the room of the disk, and the directory.  Crash: a disk without shares.
//! 2. The directory: the share is being made.                        Crash: its room is free again.
//! 3. The cache, in the window of the share (`create.rs`).           Crash: the same.
//! 4. The directory: the share is in use.
//! ```
//! What fails before 4 is given back.

use std::path::{Path, PathBuf};

use dcd_daemon::device::device_file::DeviceFile;
use dcd_daemon::device::network::check_shareable;
use dcd_daemon::device::shares::{
    DirectoryChange, DiskReader, Place, ShareProblem, directory_at, give_back, is_no_directory,
    make_directory, set_state, whole_name,
};
use dcd_daemon::pair::book::PairBook;
use dcd_daemon::serve::ServeError;
use dcd_daemon::serve::share_choice::share_of;
use dcd_engine::Uuid;
use dcd_engine::format::share_directory::{
    DIRECTORY_BYTES, NewShare, SHARE_GRAIN_BYTES, SHARE_NAME_BYTES_MAX, Share, ShareDirectory,
    ShareError, ShareState, is_share_name,
};

use super::create::{Gone, Plan, Stop, random_uuid, refuse_to_destroy, whole_lines};
use super::create_room::Room;
use super::create_target::refuse_taken;
use crate::command::create::CreateArguments;
use crate::error::CommandError;

/// A disk of which a share is to be made.
pub struct SharedDisk {
    disk: PathBuf,
    /// What it has to be first, if it has no directory.
    plan: Option<Plan>,
    name: Option<String>,
    /// The path of a share of that name, which is to be overwritten.
    old: Option<PathBuf>,
}

impl SharedDisk {
    /// Looks at what there is; writes nothing.
    pub fn of(
        path: &Path,
        arguments: &CreateArguments,
        book: &PairBook,
    ) -> Result<SharedDisk, CommandError> {
        let Place { disk, share } = Place::of(path);
        if let (Some(named), Some(asked)) = (&share, &arguments.name)
            && named != asked
        {
            let (path, share) = (path.to_owned(), asked.clone());
            return Err(ServeError::ShareTwice { path, share }.into());
        }
        let name = arguments.name.clone().or(share);
        if let Some(found) = name.clone().filter(|name| !is_share_name(name)) {
            return Err(ShareProblem::rule(&disk)(ShareError::Name { found }).into());
        }
        check_shareable(&disk)?;
        let directory = match disk.exists() {
            true => directory_at(&disk).map_err(CommandError::file("read", &disk))?,
            false => {
                return Ok(SharedDisk {
                    plan: Some(Plan::of(&disk, arguments.cache_size)?),
                    disk,
                    name,
                    old: None,
                });
            }
        };
        match directory {
            Err(problem) if is_no_directory(&problem) => {
                let plan = Some(Plan::of(&disk, arguments.cache_size)?);
                Ok(SharedDisk { disk, plan, name, old: None })
            }
            Err(problem) => Err(ServeError::share(ShareProblem::Damaged { disk, problem }).into()),
            // The size that it has: what made it so was perhaps killed, and is begun again.
            Ok(directory)
                if arguments
                    .cache_size
                    .is_some_and(|it| whole_lines(it) != directory.disk_bytes) =>
            {
                Err(CommandError::SharedSize { path: disk, found: directory.disk_bytes })
            }
            Ok(directory) => {
                refuse_second(&disk, &directory, arguments, book)?;
                let is_old = |share: &&Share| {
                    let is_named = name.as_ref() == Some(&share.name);
                    arguments.force && is_named && share.state == ShareState::InUse
                };
                let old = directory.shares().iter().find(is_old);
                let path = old.map(|share| disk.join(&share.name));
                let shared = SharedDisk { disk, plan: None, name, old: path };
                // Before anything is written to another disk. Whether somebody is at what looks
                // left over is seen when the directory is ours.
                let mut trial = directory.clone();
                let size = DiskReader::open(&shared.disk).ok().and_then(|disk| disk.length());
                trial.fit_to(size.unwrap_or(directory.disk_bytes));
                let left = directory.shares().iter().filter(|it| it.state != ShareState::InUse);
                for share in left.chain(old) {
                    let _ = trial.give_back(share.cache);
                }
                shared.allocate(&mut trial, Uuid([0; 16]), arguments)?;
                Ok(shared)
            }
        }
    }

    /// Takes room for the cache in a directory, which is not written. The name of its share.
    fn allocate(
        &self,
        directory: &mut ShareDirectory,
        cache: Uuid,
        arguments: &CreateArguments,
    ) -> Result<String, CommandError> {
        let name = self.name.clone().unwrap_or_else(|| free_name(directory, arguments));
        let data_disk = match arguments.data_disk.as_slice() {
            [one] => whole_name(one.path()).to_str().map(str::to_owned).unwrap_or_default(),
            _ => String::new(),
        };
        let size_bytes = arguments.share.unwrap_or(0);
        let share = NewShare { name: name.clone(), cache, size_bytes, data_disk };
        directory.allocate(share).map_err(ShareProblem::rule(&self.disk))?;
        Ok(name)
    }

    /// How large the cache is going to be.
    pub fn size(share_bytes: u64) -> u64 {
        share_bytes.checked_next_multiple_of(SHARE_GRAIN_BYTES).unwrap_or(share_bytes)
    }

    /// Makes sure that it has a directory: steps 1. Nothing of it is given up that
    /// [`refuse_to_destroy`] does not give up for a cache of the whole disk.
    fn prepare(
        &self,
        arguments: &CreateArguments,
        stop: &Stop,
    ) -> Result<(Option<Room>, Gone), CommandError> {
        let Some(plan) = &self.plan else { return Ok((None, self.give_up_old(arguments, stop)?)) };
        let path = &self.disk;
        let least = DIRECTORY_BYTES + SharedDisk::size(arguments.share.unwrap_or(0));
        if plan.size < least {
            return Err(CommandError::DiskOfSharesSmall {
                path: path.clone(),
                found: plan.size,
                least,
            });
        }
        let (disk, gone) = match plan.is_missing {
            true => (None, Gone::nothing()),
            false => {
                let disk = DeviceFile::open_of_any_size(path)?;
                let book = PairBook::from_environment(false);
                refuse_taken(&book, &disk, false, arguments)?;
                let gone = refuse_to_destroy(&disk, arguments, stop)?;
                (Some(disk), gone)
            }
        };
        let is_stopped = || stop.is_stopped();
        let room = match plan.is_file {
            false => None,
            true if arguments.sparse => Some(Room::lengthen(path, plan.is_missing, plan.size)?),
            true => Some(Room::take(path, plan.is_missing, plan.size, &is_stopped)?),
        };
        let disk = match disk {
            None => DeviceFile::open(path)?,
            Some(mut disk) => {
                disk.size_changed()?;
                disk
            }
        };
        make_directory(&disk, random_uuid()?)?;
        Ok((room, gone))
    }
}

impl SharedDisk {
    /// What is in a share that is overwritten is given up as that of a whole disk. Crash behind it:
    /// its room is free.
    fn give_up_old(&self, arguments: &CreateArguments, stop: &Stop) -> Result<Gone, CommandError> {
        let Some(old) = &self.old else { return Ok(Gone::nothing()) };
        let share = DeviceFile::open_share(old, &[ShareState::InUse], None)?;
        let gone = refuse_to_destroy(&share, arguments, stop)?;
        let cache = share.share().expect("it was opened as one").cache;
        set_state(&self.disk, cache, ShareState::Leaving)?;
        Ok(gone)
    }
}

/// Nobody has two caches for one disk.
fn refuse_second(
    disk: &Path,
    directory: &ShareDirectory,
    arguments: &CreateArguments,
    book: &PairBook,
) -> Result<(), CommandError> {
    for data_disk in &arguments.data_disk {
        let Some(share) = share_of(disk, directory, data_disk.path(), book) else { continue };
        if share.state == ShareState::InUse && !arguments.force {
            return Err(CommandError::HasShare {
                path: disk.join(&share.name),
                data_disk: data_disk.path().to_owned(),
            });
        }
    }
    Ok(())
}

/// Shares that are being made; given back unless they are kept.
pub struct NewShares {
    cache: Uuid,
    /// Disks, and the paths of their shares.
    taken: Vec<(PathBuf, PathBuf)>,
    rooms: Vec<Room>,
    is_kept: bool,
}

impl NewShares {
    /// Steps 1 and 2. Returns the open shares, and what was given up for them.
    pub fn take(
        disks: &[SharedDisk],
        cache: Uuid,
        arguments: &CreateArguments,
        stop: &Stop,
    ) -> Result<(NewShares, Vec<DeviceFile>, Vec<Gone>), CommandError> {
        let mut new = NewShares { cache, taken: Vec::new(), rooms: Vec::new(), is_kept: false };
        let (mut opened, mut gone) = (Vec::new(), Vec::new());
        for shared in disks {
            let (room, given_up) = shared.prepare(arguments, stop)?;
            new.rooms.extend(room);
            gone.push(given_up);
            let mut change = DirectoryChange::begin(&shared.disk)?;
            change.drop_left_over();
            let name = shared.allocate(&mut change.directory, cache, arguments)?;
            change.write()?;
            let path = shared.disk.join(&name);
            new.taken.push((shared.disk.clone(), path.clone()));
            // Nobody takes it for one that was left over.
            opened.push(DeviceFile::open_share(&path, &[ShareState::Making], Some(&change))?);
        }
        Ok((new, opened, gone))
    }

    /// The paths of the shares.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.taken.iter().map(|(_, path)| path.clone()).collect()
    }

    /// Step 4.
    pub fn keep(mut self) -> Result<(), CommandError> {
        for (disk, _) in &self.taken {
            set_state(disk, self.cache, ShareState::InUse)?;
        }
        self.is_kept = true;
        std::mem::take(&mut self.rooms).into_iter().for_each(Room::keep);
        Ok(())
    }
}

impl Drop for NewShares {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        // A failure here has nobody to tell it to: the error that counts came before, and the next
        // creation takes what is left.
        for (disk, _) in &self.taken {
            let _ = give_back(disk, self.cache);
        }
    }
}

/// A name that no share of the disk has: that of the data-disk, or with a number behind it.
fn free_name(directory: &ShareDirectory, arguments: &CreateArguments) -> String {
    let base = match arguments.data_disk.as_slice() {
        [one] => one.path().file_name().and_then(|name| name.to_str()).unwrap_or("cache"),
        _ => "volume",
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let plain: String = base.chars().map(|c| if is_plain(c) { c } else { '-' }).collect();
    let room = SHARE_NAME_BYTES_MAX - "-999".len();
    let plain = plain.trim_start_matches('.');
    let plain = &plain[..plain.len().min(room)];
    let base = if is_share_name(plain) { plain } else { "cache" };
    let is_free = |name: &String| directory.shares().iter().all(|share| share.name != *name);
    let numbered = (2..1000).map(|number| format!("{base}-{number}"));
    std::iter::once(base.to_owned()).chain(numbered).find(is_free).unwrap_or(base.to_owned())
}
