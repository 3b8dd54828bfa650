//! Shares of a cache-disk: how they are named, found, and how the directory of them is changed.
//! What a directory may say: [`dcd_engine::format::share_directory`].
//!
//! A share is named like a file in its disk: `/dev/nvme0n1p4/sdb` is the share `sdb` of
//! `/dev/nvme0n1p4`. What is no directory can have no file in it, so such a path is no other's. A
//! UUID of a cache will do in the place of a name.
//!
//! # Who locks what
//!
//! Locks are on bytes of the disk that nobody reads or writes for them ([`crate::device::claim`]
//! has the others):
//!
//! ```text
//!                        bytes 0..4 KiB     bytes 4..8 KiB     window of the share    flock of a file
//! all of the disk        exclusive          exclusive          exclusive              exclusive
//! a share                shared             shared, while it   exclusive              shared
//!                                           is looked up
//! a change of the        shared             exclusive          -                      shared
//! directory
//! ```
//! A share that is given room, or gives some back, changes the directory through what it is open as
//! (`share_room.rs`), and its locks with it.
//!
//! So daemons with different shares run side by side, nobody has all of a disk of which somebody
//! has a share, and a share neither comes nor goes while it is looked up. Who gives a share back
//! has its window.
//!
//! A block device is opened with O_EXCL by whoever comes first, as any cache-disk, which keeps
//! mounts and LVM away; the others see by the first range that it is one of them.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use dcd_engine::format::creation_mark::CreationMark;
use dcd_engine::format::geometry::SUPERBLOCK_OFFSETS;
use dcd_engine::format::share_directory::{
    DIRECTORY_COPY_BYTES, DIRECTORY_OFFSETS, Share, ShareDirectory, ShareError, ShareState, Windows,
};
use dcd_engine::format::superblock::{self, SUPERBLOCK_SIZE};
use dcd_engine::units::Uuid;
use dcd_engine::{Buffer, FormatError};
use rustix::io::Errno;

use crate::device::claim::alone_with_directories;
pub use crate::device::claim::parts_locked;
use crate::device::device_file::{DeviceError, DeviceFile};
use crate::device::network::{NetworkReader, is_network, uri_of};

/// Locked, to be shared, by whoever has a share.
pub(crate) const PRESENT: Range<u64> = 0..4096;
/// Locked by whoever changes the directory, and shared by who looks something up.
pub(crate) const CHANGE: Range<u64> = 4096..8192;

/// How long somebody else who changes the directory is waited for, and how often it is tried.
const CHANGE_PATIENCE: Duration = Duration::from_secs(3);
const CHANGE_INTERVAL: Duration = Duration::from_millis(20);

/// Where bytes are that a path names: a disk, or a share of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The file or block device.
    pub disk: PathBuf,
    /// Name or UUID of the share.
    pub share: Option<String>,
}

impl Place {
    /// Takes a path apart. One that leads nowhere is that of a disk.
    pub fn of(path: &Path) -> Place {
        let whole = Place { disk: path.to_owned(), share: None };
        if is_network(path) {
            return whole;
        }
        // The system's word for a path that leads through what is no directory.
        if rustix::fs::stat(path).err() != Some(Errno::NOTDIR) {
            return whole;
        }
        let (Some(disk), Some(share)) = (path.parent(), path.file_name()) else { return whole };
        let is_disk = std::fs::metadata(disk).is_ok_and(|found| is_disk(&found));
        match share.to_str().filter(|_| is_disk) {
            Some(share) => Place { disk: disk.to_owned(), share: Some(share.to_owned()) },
            None => whole,
        }
    }

    /// A name that leads there from everywhere.
    pub fn whole_name(&self) -> PathBuf {
        if let Some(Ok(uri)) = uri_of(&self.disk) {
            return uri.absolute().to_string().into();
        }
        let disk = self.disk.canonicalize().unwrap_or_else(|_| self.disk.clone());
        self.share.as_ref().map_or(disk.clone(), |share| disk.join(share))
    }

    /// Whether there is such a disk, and such a share of it.
    pub fn exists(&self) -> bool {
        match &self.share {
            // Whether a server serves it is found out by connecting.
            None => is_network(&self.disk) || self.disk.exists(),
            Some(share) => directory_at(&self.disk)
                .is_ok_and(|found| found.is_ok_and(|it| it.find(share).is_some())),
        }
    }
}

fn is_disk(found: &std::fs::Metadata) -> bool {
    found.is_file() || found.file_type().is_block_device()
}

/// The file or block device that a path leads to, also one of a share.
pub fn disk_of(path: &Path) -> PathBuf {
    Place::of(path).disk
}

/// A name that every process understands.
pub fn whole_name(path: &Path) -> PathBuf {
    Place::of(path).whole_name()
}

/// Why a share cannot be used, or made. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum ShareProblem {
    /// The disk has no shares.
    #[error("{} has no shares: there is no {share} on it", disk.display())]
    NotShared {
        /// The disk.
        disk: PathBuf,
        /// What was asked for.
        share: String,
    },
    /// Neither copy of the directory can be read.
    #[error("the shares of {} are not known: {problem}", disk.display())]
    Damaged {
        /// The disk.
        disk: PathBuf,
        /// What is wrong.
        problem: FormatError,
    },
    /// There are others.
    #[error("{} has no share {share}: {}", disk.display(), Known(known))]
    Unknown {
        /// The disk.
        disk: PathBuf,
        /// What was asked for.
        share: String,
        /// Names of those that there are.
        known: Vec<String>,
    },
    /// Its cache is not there yet, or not any more.
    #[error("the share {} has no cache: {}", path.display(), words_of(*state))]
    State {
        /// The share.
        path: PathBuf,
        /// What has become of it.
        state: ShareState,
    },
    /// The disk is shorter than it was.
    #[error("the share {} ends at byte {end}, and its disk has {found} bytes", path.display())]
    Beyond {
        /// The share.
        path: PathBuf,
        /// Where it ends.
        end: u64,
        /// Size of the disk.
        found: u64,
    },
    /// What is asked for cannot be.
    #[error("{}: {error}", disk.display())]
    Rule {
        /// The disk.
        disk: PathBuf,
        /// Why.
        error: ShareError,
    },
}

struct Known<'a>(&'a [String]);

impl std::fmt::Display for Known<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            [] => f.write_str("it has none"),
            names => write!(f, "it has {}", names.join(", ")),
        }
    }
}

fn words_of(state: ShareState) -> &'static str {
    match state {
        ShareState::Making => "it is being made, or that was interrupted",
        ShareState::InUse => "it is in use",
        ShareState::Leaving => "that is detached, and the share is about to be given back",
    }
}

impl ShareProblem {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            ShareProblem::NotShared { disk, .. } => format!(
                "a disk with one cache is named alone: --cache-disk {}; dcd create --share makes a share",
                disk.display()
            ),
            ShareProblem::Damaged { disk, .. } => format!(
                "nothing is written to it. Is it the right disk? Caches on it are found by their superblocks, which begin with \
                 dcdSUPER at whole MiB; if none is needed: dd if=/dev/zero of={} bs=1M count=1 conv=notrunc",
                disk.display()
            ),
            ShareProblem::Unknown { disk, .. } => {
                format!("dcd inspect shares --cache-disk {} lists them", disk.display())
            }
            ShareProblem::State { state: ShareState::Leaving, path } => format!(
                "to end what was begun: dcd detach --cache-disk {} --data-disk ..., with --wipe if that was asked for",
                path.display()
            ),
            ShareProblem::State { .. } => {
                "make it again: dcd create --share; its room is free for that".into()
            }
            ShareProblem::Beyond { .. } => {
                "find out what has made the disk shorter: what lay behind its end is lost".into()
            }
            ShareProblem::Rule { error: ShareError::NoRoom { .. }, .. } => {
                "take a smaller share, which can be made larger while it serves and takes other pieces then, too \
                 (dcd cache-disk resize); or detach another cache of this disk, which gives its room back"
                    .into()
            }
            ShareProblem::Rule { error: ShareError::NoMore { .. }, .. } => {
                "take a smaller size, or make another cache of this disk smaller first: dcd cache-disk resize SIZE, at the control \
                 socket of its daemon"
                    .into()
            }
            ShareProblem::Rule { error: ShareError::Empty, .. } => {
                "for example --share 20G".into()
            }
            ShareProblem::Rule { error: ShareError::Name { .. }, .. } => {
                "give it another name: DISK/NAME, or --name".into()
            }
            ShareProblem::Rule { error: ShareError::Taken { .. }, .. } => {
                "give it another name: DISK/NAME, or --name".into()
            }
            ShareProblem::Rule { disk, .. } => {
                format!("dcd inspect shares --cache-disk {} lists them", disk.display())
            }
        }
    }

    /// What the rules of the directory say of this disk.
    pub fn rule(disk: &Path) -> impl Fn(ShareError) -> DeviceError {
        move |error| ShareProblem::Rule { disk: disk.to_owned(), error }.into()
    }
}

/// Whether what is there is no directory at all, and not a damaged one.
pub fn is_no_directory(problem: &FormatError) -> bool {
    matches!(problem, FormatError::Magic { .. } | FormatError::Short { .. })
}

/// Whether a disk has shares, or a directory that cannot be read.
pub(crate) fn holds_shares(disk: &DeviceFile) -> Result<bool, DeviceError> {
    Ok(match directory_of(disk)? {
        Ok(directory) => !directory.shares().is_empty(),
        Err(problem) => !is_no_directory(&problem),
    })
}

/// The directory from both copies. One that cannot be read is as one that is damaged, if the other
/// can.
fn read_directory(
    mut read: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
) -> io::Result<Result<ShareDirectory, FormatError>> {
    let mut copies = [const { Vec::new() }; DIRECTORY_OFFSETS.len()];
    // A cache of the whole disk may hold anything where the second copy would be.
    let mut superblock = [0; SUPERBLOCK_SIZE];
    for offset in SUPERBLOCK_OFFSETS {
        let is_read = read(offset, &mut superblock).is_ok();
        if is_read && superblock.starts_with(&superblock::MAGIC.to_le_bytes()) {
            return Ok(ShareDirectory::decode(&superblock[..]));
        }
    }
    let mut failed = None;
    for (copy, offset) in copies.iter_mut().zip(DIRECTORY_OFFSETS) {
        copy.resize(DIRECTORY_COPY_BYTES, 0);
        match read(offset, copy) {
            Ok(()) => {}
            // A disk that is too small for it has none.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => copy.clear(),
            Err(error) => {
                copy.clear();
                failed = Some(error);
            }
        }
    }
    match (ShareDirectory::newest(&copies[0], &copies[1]), failed) {
        (Err(problem), Some(error)) if is_no_directory(&problem) => Err(error),
        (found, _) => Ok(found),
    }
}

/// The directory of a disk, or why there is none; nothing is locked.
///
/// # Errors
/// If the disk cannot be read.
pub fn directory_at(disk: &Path) -> io::Result<Result<ShareDirectory, FormatError>> {
    let file = open_disk(disk)?;
    read_directory(|offset, bytes| file.read_exact_at(bytes, offset))
}

/// What is wrong with copies of the directory of a disk, each with its offset; nothing is locked.
///
/// # Errors
/// If the disk cannot be opened.
pub fn directory_problems(disk: &Path) -> io::Result<Vec<(u64, String)>> {
    let file = open_disk(disk)?;
    let problem = |offset: u64| {
        let mut bytes = vec![0; DIRECTORY_COPY_BYTES];
        let problem = match file.read_exact_at(&mut bytes, offset) {
            Ok(()) => ShareDirectory::decode(&bytes).err().map(|problem| problem.to_string()),
            Err(error) => Some(error.to_string()),
        };
        problem.map(|problem| (offset, problem))
    };
    Ok(DIRECTORY_OFFSETS.into_iter().filter_map(problem).collect())
}

/// The share that a path names, or what is wrong with it; nothing is locked.
///
/// # Errors
/// If the path is none of a share, or the disk cannot be read.
pub fn share_at(path: &Path) -> io::Result<Result<Share, ShareProblem>> {
    let place = Place::of(path);
    let share = place.share.ok_or(io::ErrorKind::InvalidInput)?;
    Ok(find(&place.disk, &share, directory_at(&place.disk)?))
}

/// The same of a disk that is open as a whole.
///
/// # Errors
/// If the disk cannot be read.
pub fn directory_of(disk: &DeviceFile) -> Result<Result<ShareDirectory, FormatError>, DeviceError> {
    let mut problem = None;
    let found = read_directory(|offset, bytes| match disk.read_at(offset, bytes.len()) {
        Ok(read) if read.len() < bytes.len() => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(read) => {
            bytes.copy_from_slice(read.bytes());
            Ok(())
        }
        Err(error) => {
            problem = Some(error);
            Err(io::ErrorKind::Other.into())
        }
    });
    found.map_err(|source| {
        let path = disk.path().to_owned();
        problem.unwrap_or(DeviceError::Io { path, operation: "read", source })
    })
}

/// Whether each copy of the directory can be read, and is one.
fn are_both_copies_well(disk: &DeviceFile) -> bool {
    DIRECTORY_OFFSETS.into_iter().all(|offset| {
        let read = disk.read_at(offset, DIRECTORY_COPY_BYTES);
        read.is_ok_and(|read| ShareDirectory::decode(read.bytes()).is_ok())
    })
}

/// A file or block device that is open for reading; nothing is locked.
fn open_disk(disk: &Path) -> io::Result<File> {
    // A pipe would be waited for.
    if !is_disk(&std::fs::metadata(disk)?) {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "neither a file nor a block device",
        ));
    }
    File::open(disk)
}

/// A disk, or a share of one, that is open for reading; nothing is locked. For who looks at what
/// somebody else may be using.
pub struct DiskReader {
    source: Source,
    windows: Option<Windows>,
}

/// Where the bytes of a disk come from.
enum Source {
    File(File),
    Network(NetworkReader),
}

impl Source {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            Source::File(file) => file.read_at(bytes, offset),
            Source::Network(disk) => disk.read_at(bytes, offset),
        }
    }
}

impl DiskReader {
    /// Opens it.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is no such disk or share;
    /// [`io::ErrorKind::Unsupported`] if it is neither a file nor a block device.
    pub fn open(path: &Path) -> io::Result<DiskReader> {
        let place = Place::of(path);
        if let Some(uri) = uri_of(&place.disk) {
            let source = Source::Network(NetworkReader::open(&uri.map_err(io::Error::other)?)?);
            return Ok(DiskReader { source, windows: None });
        }
        let file = open_disk(&place.disk)?;
        let windows = match &place.share {
            None => None,
            Some(share) => {
                let found = read_directory(|offset, bytes| file.read_exact_at(bytes, offset))?;
                let share = find(&place.disk, share, found).map_err(|problem| {
                    let kind = match problem {
                        ShareProblem::Damaged { .. } => io::ErrorKind::InvalidData,
                        _ => io::ErrorKind::NotFound,
                    };
                    io::Error::new(kind, problem.to_string())
                })?;
                Some(share.windows)
            }
        };
        Ok(DiskReader { source: Source::File(file), windows })
    }

    /// Bytes from `offset` on; fewer where the disk or the share ends.
    ///
    /// # Errors
    /// If the system cannot read them.
    pub fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let Some(windows) = &self.windows else { return self.source.read_at(bytes, offset) };
        let mut done = 0;
        while done < bytes.len() {
            let Some((at, left)) = windows.locate(offset + done as u64) else { break };
            let length = (bytes.len() - done).min(usize::try_from(left).unwrap_or(usize::MAX));
            match self.source.read_at(&mut bytes[done..done + length], at) {
                Ok(0) => break,
                Ok(count) => done += count,
                // What was read is told first.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// All of `bytes` from `offset` on.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] if the disk or the share ends before.
    pub fn read_exact_at(&self, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.read_at(bytes, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    bytes = &mut bytes[count..];
                    offset += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether nothing was ever written there, as far as a file system tells.
    pub fn is_hole(&self, offset: u64, length: u64) -> bool {
        let Some(windows) = &self.windows else { return self.is_hole_of_disk(offset, length) };
        let (mut offset, end) = (offset, offset.saturating_add(length));
        while let Some((at, left)) = windows.locate(offset).filter(|_| offset < end) {
            let piece = left.min(end - offset);
            if !self.is_hole_of_disk(at, piece) {
                return false;
            }
            offset += piece;
        }
        true
    }

    fn is_hole_of_disk(&self, start: u64, length: u64) -> bool {
        let Source::File(file) = &self.source else { return false };
        match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(start)) {
            Ok(data) => data >= start.saturating_add(length),
            // Nor was anything behind it.
            Err(error) => error == Errno::NXIO,
        }
    }

    /// Bytes of the disk or the share, where that can be told.
    pub fn length(&self) -> Option<u64> {
        match &self.windows {
            Some(windows) => Some(windows.size_bytes()),
            // The end of a block device is found by seeking; its metadata says 0.
            None => match &self.source {
                Source::File(file) => io::Seek::seek(&mut &*file, io::SeekFrom::End(0)).ok(),
                Source::Network(disk) => Some(disk.length()),
            },
        }
    }
}

/// The share of a disk with this directory.
pub(crate) fn find(
    disk: &Path,
    share: &str,
    found: Result<ShareDirectory, FormatError>,
) -> Result<Share, ShareProblem> {
    let (disk, share) = (disk.to_owned(), share.to_owned());
    match found {
        Ok(directory) => match directory.find(&share) {
            Some(share) => Ok(share.clone()),
            None => {
                let known = directory.shares().iter().map(|share| share.name.clone()).collect();
                Err(ShareProblem::Unknown { disk, share, known })
            }
        },
        Err(problem) if is_no_directory(&problem) => Err(ShareProblem::NotShared { disk, share }),
        Err(problem) => Err(ShareProblem::Damaged { disk, problem }),
    }
}

/// Makes the directory of a disk that is open as a whole, and of which everything was given up.
///
/// 1. Marks of a creation in the place of superblocks. Crash here: a disk that may be taken again.
/// 2. Copy 1. Crash here: a directory.
/// 3. Copy 0.
///
/// # Errors
/// If the disk cannot be written.
pub fn make_directory(disk: &DeviceFile, uuid: Uuid) -> Result<(), DeviceError> {
    let mark = CreationMark { end: disk.size_bytes }.encode();
    for offset in SUPERBLOCK_OFFSETS {
        disk.write_at(offset, &mark)?;
    }
    let mut directory = ShareDirectory::new(uuid, disk.size_bytes);
    for generation in [1, 2] {
        directory.generation = generation;
        disk.write_at(directory.offset(), &directory.encode())?;
    }
    Ok(())
}

/// A directory that nobody else changes or looks anything up in, until this is dropped.
pub struct DirectoryChange {
    file: DeviceFile,
    /// Whether both copies can be read: else the older may count, and say less.
    is_whole: bool,
    /// Among our own threads, for who has the lock of an open share.
    _alone: Option<MutexGuard<'static, ()>>,
    /// What it is to be; [`DirectoryChange::write`] makes it so.
    pub directory: ShareDirectory,
}

impl Drop for DirectoryChange {
    fn drop(&mut self) {
        // The file may be that of a share, whose locks stay.
        self.file.leave_directory();
    }
}

impl DirectoryChange {
    /// Takes hold of the directory of a disk.
    ///
    /// # Errors
    /// If there is none, it is damaged, somebody has all of the disk, or is changing it for long.
    pub fn begin(disk: &Path) -> Result<DirectoryChange, DeviceError> {
        DirectoryChange::of(DeviceFile::open_directory(disk)?, None)
    }

    /// The same through what a share is open as ([`DeviceFile::directory_beside`]).
    pub(crate) fn begin_beside(file: DeviceFile) -> Result<DirectoryChange, DeviceError> {
        let locked = || DeviceError::Locked { path: file.path().to_owned(), pid: None };
        let until = Instant::now() + CHANGE_PATIENCE;
        let alone = loop {
            // Not while others are waited for: who closes a share waits for it.
            let alone = alone_with_directories(CHANGE_PATIENCE).ok_or_else(locked)?;
            if file.hold_directory() {
                break alone;
            }
            drop(alone);
            if Instant::now() >= until {
                return Err(locked());
            }
            std::thread::sleep(CHANGE_INTERVAL);
        };
        DirectoryChange::of(file, Some(alone))
    }

    fn of(
        file: DeviceFile,
        alone: Option<MutexGuard<'static, ()>>,
    ) -> Result<DirectoryChange, DeviceError> {
        // From here on dropping it gives the directory back.
        let disk = file.path().to_owned();
        let empty = ShareDirectory::new(Uuid([0; 16]), 0);
        let is_whole = are_both_copies_well(&file);
        let mut change = DirectoryChange { file, is_whole, _alone: alone, directory: empty };
        change.directory =
            directory_of(&change.file)?.map_err(|problem| match is_no_directory(&problem) {
                true => ShareProblem::NotShared { disk, share: "directory".into() },
                false => ShareProblem::Damaged { disk, problem },
            })?;
        change.directory.fit_to(change.file.whole_bytes());
        Ok(change)
    }

    /// What it is open as.
    pub(crate) fn file(&self) -> &DeviceFile {
        &self.file
    }

    /// Its disk.
    pub fn disk(&self) -> &Path {
        self.file.path()
    }

    /// Makes it so, durably, in the copy that does not count. Crash here: what was before counts,
    /// or this.
    ///
    /// # Errors
    /// If the disk cannot be written; what counts then is not known until it is read again.
    pub fn write(&mut self) -> Result<(), DeviceError> {
        self.directory.generation += 1;
        let bytes: Buffer = self.directory.encode();
        self.file.write_at(self.directory.offset(), &bytes)
    }

    /// Takes the room of shares that hold nothing and that nobody has: what a creation or a detach
    /// has left that was cut off. Not written yet.
    pub fn drop_left_over(&mut self) {
        // What the newer said of them may be that they are in use. The next change writes to the
        // damaged copy, and then both are well.
        if !self.is_whole {
            return;
        }
        let holds_nothing = |share: &&Share| share.state != ShareState::InUse;
        let left: Vec<Share> =
            self.directory.shares().iter().filter(holds_nothing).cloned().collect();
        for share in left {
            let path = self.disk().join(&share.name);
            let states = [ShareState::Making, ShareState::Leaving];
            // Whoever makes or wipes it has its window.
            if DeviceFile::open_share(&path, &states, Some(self)).is_ok() {
                let _ = self.directory.give_back(share.cache);
            }
        }
    }
}

/// Says what has become of a share that the caller has open, in both copies: with one, damage of
/// that would bring back what the share was before, and a cache in use would be one that is being
/// made, of which the room is free.
///
/// # Errors
/// If the directory cannot be changed.
pub fn set_state(disk: &Path, cache: Uuid, state: ShareState) -> Result<(), DeviceError> {
    let mut change = DirectoryChange::begin(disk)?;
    change.directory.set_state(cache, state).map_err(ShareProblem::rule(disk))?;
    change.write()?;
    change.write()
}

/// Gives back a share that the caller has open.
///
/// # Errors
/// If the directory cannot be changed.
pub fn give_back(disk: &Path, cache: Uuid) -> Result<(), DeviceError> {
    let mut change = DirectoryChange::begin(disk)?;
    change.directory.give_back(cache).map_err(ShareProblem::rule(disk))?;
    change.write()
}

#[cfg(test)]
#[path = "shares_tests.rs"]
mod tests;
