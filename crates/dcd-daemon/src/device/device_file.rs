//! Opening a disk: what it is, how large, in which sectors, and that nobody else uses it.
//!
//! A disk is a regular file or a block device. It is opened for direct I/O where the file system
//! can do that; a block device with O_EXCL (the kernel then refuses mounts and other exclusive
//! users), a file locked with flock: so two daemons never share a disk; under other names neither,
//! see [`crate::device::claim`]. A block device is not locked with flock: udev would put off all
//! that it has to look at there until the lock is gone, and for some minutes nobody would learn
//! that a cache has taken it.
//!
//! A path may lead to a share of a disk ([`crate::device::shares`]): then the disk is open, and
//! everything that is done with it is done in the windows of the share ([`DeviceFile::place`]).
//!
//! And it may be the URI of a network disk ([`crate::device::network`]): then there is no file, and
//! all of it is done over a connection.

use std::cell::{OnceCell, RefCell};
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{
    FallocateFlags, FileType, Mode, OFlags, SeekFrom, Timespec, Timestamps, UTIME_OMIT,
};
use rustix::io::Errno;

use dcd_engine::DataDiskInfo;
use dcd_engine::format::share_directory::{DIRECTORY_BYTES, Share, ShareState, Window, Windows};
use dcd_engine::units::BLOCK_SIZE;

use crate::device::claim::{Claim, Hold, lock};
use crate::device::identity::DiskIdentity;
use crate::device::mounts::{mounted_at, mounts, swaps};
use crate::device::network::{self, Mark, NbdUri, NetworkDisk, NetworkProblem};
use crate::device::shares::{self, DirectoryChange, Place, ShareProblem, disk_of};
pub use crate::process::shell::quoted;

/// A file of an odd size that is smaller than this is hardly a disk image with its end missing.
const IMAGE_BYTES_MIN: u64 = 64 << 10;
/// Longest serial number that a superblock has room for.
const SERIAL_BYTES_MAX: usize = 64;

/// How long a disk held by nobody alive is waited for, and how often it is tried.
const DEAD_HOLDER_PATIENCE: Duration = Duration::from_secs(3);
const DEAD_HOLDER_INTERVAL: Duration = Duration::from_millis(20);

/// Why there is no modelled drive of some profile.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct DriveProblem {
    /// What is wrong.
    pub error: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// Why a disk cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// There is nothing.
    #[error("{} does not exist", path.display())]
    NotFound {
        /// Where.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// Neither a regular file nor a block device.
    #[error("expected a regular file or block device, found {found}: {}", path.display())]
    Kind {
        /// Where.
        path: PathBuf,
        /// What is there.
        found: &'static str,
    },
    /// No right to read and write it.
    #[error("cannot open {} for reading and writing: {source}", path.display())]
    Permission {
        /// Where.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// It takes no writes, whoever asks.
    #[error("{} is read-only{why}", path.display())]
    ReadOnly {
        /// Which.
        path: PathBuf,
        /// What makes it so.
        why: &'static str,
        /// What makes it writable.
        way: String,
    },
    /// The kernel or another program uses the block device.
    #[error("{} is in use{}", path.display(), Mounted(mounted_at))]
    Busy {
        /// Which.
        path: PathBuf,
        /// Where it is mounted, if it is.
        mounted_at: Option<String>,
        /// The system's words.
        source: io::Error,
    },
    /// The kernel swaps to the file.
    #[error("{} is in use as swap space", path.display())]
    Swap {
        /// Which.
        path: PathBuf,
    },
    /// Another program holds the lock.
    #[error("{} is locked by another program{}", path.display(), Pid(*pid))]
    Locked {
        /// Which.
        path: PathBuf,
        /// The process, if it is known and alive.
        pid: Option<u32>,
    },
    /// Another program holds a lock on what the disk lies on.
    #[error(
        "{} lies on {}, which is locked by another program{}",
        path.display(), below.display(), Pid(*pid)
    )]
    LockedBelow {
        /// Which.
        path: PathBuf,
        /// What is below it.
        below: PathBuf,
        /// The process, if it is known and alive.
        pid: Option<u32>,
    },
    /// The kernel or another program uses a device that has bytes of the disk.
    #[error(
        "{} is in use through {}, which has bytes of it{}",
        path.display(), device.display(), Mounted(mounted_at)
    )]
    UsedThrough {
        /// Which.
        path: PathBuf,
        /// The other.
        device: PathBuf,
        /// Where that is mounted, if it is.
        mounted_at: Option<String>,
    },
    /// The profile of a modelled disk.
    #[error(transparent)]
    Drive(#[from] DriveProblem),
    /// A share of a cache-disk.
    #[error(transparent)]
    Share(#[from] ShareProblem),
    /// A network disk.
    #[error("{}: {source}", path.display())]
    Network {
        /// Its name.
        path: PathBuf,
        /// What is wrong.
        source: Box<NetworkProblem>,
    },
    /// The file is larger than the modelled disk.
    #[error("{} has {found} bytes, and a {profile} has {capacity}", path.display())]
    LargerThanModel {
        /// Which.
        path: PathBuf,
        /// Its size.
        found: u64,
        /// Of the model.
        profile: String,
        /// Size of the model.
        capacity: u64,
    },
    /// Not made of whole sectors, or empty.
    #[error("{} has {found} bytes, expected a multiple of 512 and more than 0", path.display())]
    Size {
        /// Which.
        path: PathBuf,
        /// Size in bytes.
        found: u64,
    },
    /// Sectors of a size that is not supported.
    #[error("{} has {what} of {found} bytes, expected 512 or 4096", path.display())]
    BlockSize {
        /// Which disk.
        path: PathBuf,
        /// Which size.
        what: &'static str,
        /// The size.
        found: u32,
    },
    /// The system refused something else.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What was tried.
        operation: &'static str,
        /// The system's words.
        source: io::Error,
    },
}

struct Mounted<'a>(&'a Option<String>);

impl fmt::Display for Mounted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(place) => write!(f, ": it is mounted at {place}"),
            None => Ok(()),
        }
    }
}

struct Pid(Option<u32>);

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(pid) => write!(f, " (process {pid})"),
            None => Ok(()),
        }
    }
}

/// What can be done where there is nothing at a path that was given as a disk.
pub fn missing_hint(path: &Path) -> String {
    let text = path.to_string_lossy();
    let prefix = text.split_once(':').map(|(prefix, _)| prefix);
    let is_word = |prefix: &str| {
        prefix.len() > 1 && prefix.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'+')
    };
    if prefix.is_some_and(is_word) {
        return "a disk is a block device or a file, or one of these behind `slow:`, `model:` or `faulty:`, or \
                nbd://HOST/EXPORT; make a block device of anything else first, as `rbd map` does"
            .into();
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    match parent {
        Some(parent) if parent.starts_with("/dev") => {
            "check the name: `lsblk` lists the block devices that there are".into()
        }
        Some(parent) if !parent.is_dir() => {
            format!("check the name: there is no directory {}", parent.display())
        }
        _ => format!("check the name, or make a file: truncate -s 1G {}", quoted(path)),
    }
}

impl DeviceError {
    /// Whether a disk is not there, or is there no more for whoever wants to write to it. Not so if
    /// somebody else has it: who, and what is done with it, has to be known first.
    pub(crate) fn is_away(&self) -> bool {
        match self {
            DeviceError::NotFound { .. }
            | DeviceError::ReadOnly { .. }
            | DeviceError::Size { found: 0, .. }
            | DeviceError::Io { .. } => true,
            DeviceError::Network { source, .. } => source.is_silence(),
            _ => false,
        }
    }

    /// Whether this process uses the disk already, perhaps under another name.
    pub fn is_our_own(&self) -> bool {
        let (DeviceError::Locked { pid, .. } | DeviceError::LockedBelow { pid, .. }) = self else {
            return false;
        };
        *pid == Some(std::process::id())
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            DeviceError::Drive(problem) => return problem.hint.clone(),
            DeviceError::Share(problem) => problem.hint(),
            DeviceError::Network { source, .. } => return source.hint(),
            DeviceError::Locked { path, .. } if network::is_network(path) => {
                "another dcd on this machine serves it; stop that first".into()
            }
            DeviceError::Size { path, found } if network::is_network(path) => format!(
                "have the server serve whole sectors: {} bytes",
                found.next_multiple_of(BLOCK_SIZE).max(BLOCK_SIZE)
            ),
            DeviceError::LargerThanModel { capacity, .. } => {
                format!(
                    "take a smaller file, at most {capacity} bytes, or a larger disk of `dcd disk list`"
                )
            }
            DeviceError::NotFound { path, .. } => missing_hint(path),
            DeviceError::Kind { found: "a directory", .. } => {
                "name a disk image inside it, or the block device that is mounted there".into()
            }
            DeviceError::Kind { .. } => "give a disk image or a block device".into(),
            DeviceError::Permission { .. } => {
                "run as root, or give your user the right to read and write it".into()
            }
            DeviceError::ReadOnly { way, .. } => {
                format!(
                    "make it writable ({way}). A pair with such a data-disk can be served with --read-only"
                )
            }
            DeviceError::Swap { path } => format!("swapoff {} first", path.display()),
            DeviceError::Busy { mounted_at: Some(place), .. } => {
                format!("unmount it first: umount {place}")
            }
            DeviceError::Busy { path, .. } => format!(
                "see what holds it: lsblk {}; it may be mounted, swap, or part of LVM or RAID",
                path.display()
            ),
            _ if self.is_our_own() => {
                "the same disk was given twice; cache-disk and data-disk must differ".into()
            }
            DeviceError::UsedThrough { mounted_at: Some(place), .. } => {
                format!("unmount it first: umount {place}")
            }
            DeviceError::UsedThrough { device, .. } => format!(
                "see what holds it: lsblk {0}; a loop device that nobody needs goes with: losetup -d {0}",
                device.display()
            ),
            DeviceError::Locked { pid: Some(pid), .. }
            | DeviceError::LockedBelow { pid: Some(pid), .. } => {
                format!("process {pid} is probably another dcd (ps {pid}); stop it first")
            }
            DeviceError::Locked { path, .. } | DeviceError::LockedBelow { below: path, .. } => {
                format!("find who uses it: fuser -v {}", disk_of(path).display())
            }
            DeviceError::Size { path, found: 0 } if path.starts_with("/dev") => {
                "it has no medium, or nothing is attached to it: `lsblk` shows its size".into()
            }
            DeviceError::Size { path, found: 0 } => {
                format!("give it a size: truncate -s 1G {}", quoted(path))
            }
            DeviceError::Size { found, .. } if *found < IMAGE_BYTES_MIN => {
                "that is no disk image; check the name".into()
            }
            DeviceError::Size { path, found } => format!(
                "make it {} bytes long: truncate -s %512 {}",
                found.next_multiple_of(BLOCK_SIZE),
                quoted(path)
            ),
            DeviceError::BlockSize { .. } | DeviceError::Io { .. } => return None,
        })
    }
}

/// ext4, XFS, btrfs, tmpfs: their magic numbers (linux/magic.h).
const FILE_SYSTEMS_WITH_DSYNC: [u64; 4] = [0xef53, 0x5846_5342, 0x9123_683e, TMPFS];
const TMPFS: u64 = 0x0102_1994;

/// What a disk is opened for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Write,
    Read,
}

/// How much of a disk is opened.
enum Part<'a> {
    Whole,
    /// The share of this name or UUID, in one of these states; `is_still`: the caller has the
    /// directory, so that nothing can change.
    Share {
        name: &'a str,
        states: &'a [ShareState],
        is_still: bool,
    },
    /// The directory of shares, to change it.
    Directory,
}

/// An open, locked disk. Closing it gives the lock back.
#[derive(Debug)]
pub struct DeviceFile {
    /// Of a network disk, what locks its name: no I/O is done with that.
    file: OwnedFd,
    network: Option<NetworkDisk>,
    claim: Claim,
    /// Its locks are those of another process now.
    is_handed_over: bool,
    /// Device and inode, once somebody has asked.
    file_number: OnceCell<(u64, u64)>,
    path: PathBuf,
    /// If it is a part of what is open: the part. That of a share changes while it is open
    /// ([`crate::device::share_room`]).
    windows: RefCell<Option<Windows>>,
    /// If that is a share: which, as the directory said when it was opened.
    share: Option<Share>,
    /// What all of the disk is, of which it is a part.
    whole_identity: DiskIdentity,
    /// Size in bytes of what is open.
    whole_bytes: u64,
    /// Who keeps mounts and LVM away from a block device.
    guard: Guard,
    /// What it is, under all its names.
    pub identity: DiskIdentity,
    /// Size in bytes when it was opened.
    pub size_bytes: u64,
    /// A file that has fewer was cut off.
    needed_bytes: AtomicU64,
    /// A file that had a name when it was opened: without one it is gone when it is closed.
    has_name: bool,
    /// A block device (otherwise a regular file).
    pub is_block_device: bool,
    /// Whether I/O goes past the page cache.
    pub is_direct: bool,
    /// Smallest read or write: 512 or 4096.
    pub logical_block_size: u32,
    /// What the disk writes at once: 512 or 4096.
    pub physical_sector_size: u32,
    /// Serial number or WWN, where it has one; at most 64 bytes.
    pub serial: String,
    /// Whether a write with RWF_DSYNC is durable when it ends. Linux ignores the flag for
    /// asynchronous direct writes to FUSE files (seen on 6.18), so only what is known to be right
    /// is trusted; elsewhere a write is followed by fdatasync.
    pub honours_dsync: bool,
    /// A file of tmpfs: what is read and written is copied, and nothing is waited for.
    pub is_in_memory: bool,
    /// Device number, if it is a block device; else 0.
    number: u64,
    /// Device number of the whole disk below (of a file: below its file system).
    pub physical_disk: u64,
}

impl Drop for DeviceFile {
    fn drop(&mut self) {
        // Said aloud, because closing alone may not do it at once: the kernel ends an io_uring in
        // the background, and a program that is being started by this one shares our descriptors
        // for a moment. An I/O that hangs keeps its `DeviceFile`, and so the lock.
        if !self.is_handed_over {
            self.claim.release(&self.file, self.share().is_some());
        }
    }
}

/// Who has opened a block device with O_EXCL, which the kernel lets only one do.
#[derive(Debug)]
enum Guard {
    /// We, with the file itself; or it is a file, which is locked otherwise.
    Ours,
    /// Somebody with another share, as long as it runs; then we.
    Others(RefCell<Waiting>),
}

/// Until we have it.
#[derive(Debug)]
struct Waiting {
    next_try: Instant,
    held: Option<OwnedFd>,
}

/// Where the directory of shares is.
const DIRECTORY: Window = Window { offset_bytes: 0, size_bytes: DIRECTORY_BYTES };

/// How often it is tried.
const GUARD_INTERVAL: Duration = Duration::from_secs(1);

/// What is open.
struct Opened {
    file: OwnedFd,
    stat: rustix::fs::Stat,
    is_block_device: bool,
    is_direct: bool,
}

/// A path, and the file that it has to lead to.
pub(crate) struct NamedFile {
    pub(crate) path: PathBuf,
    device: u64,
    inode: u64,
}

impl NamedFile {
    /// Whether it leads to another file or to none. A file system that hangs does not answer. What
    /// nobody may look at says nothing.
    pub(crate) fn is_lost(&self) -> bool {
        match rustix::fs::stat(&Place::of(&self.path).disk) {
            Ok(there) => (there.st_dev, there.st_ino) != (self.device, self.inode),
            Err(errno) => matches!(errno, Errno::NOENT | Errno::NOTDIR),
        }
    }
}

impl DeviceFile {
    /// Opens and locks a disk for reading and writing.
    ///
    /// A process that has just been killed may hold its disks for some moments yet (see `drop`),
    /// so a disk that is held by nobody alive is waited for.
    pub fn open(path: &Path) -> Result<DeviceFile, DeviceError> {
        let device = DeviceFile::open_for(path, Access::Write)?;
        device.check_size()?;
        Ok(device)
    }

    /// The same of one that is going to get its size, and may be empty.
    pub fn open_of_any_size(path: &Path) -> Result<DeviceFile, DeviceError> {
        DeviceFile::open_for(path, Access::Write)
    }

    /// The same for reading only: of a disk that takes no writes, or not ours.
    pub fn open_read_only(path: &Path) -> Result<DeviceFile, DeviceError> {
        let device = DeviceFile::open_for(path, Access::Read)?;
        device.check_size()?;
        Ok(device)
    }

    /// The same of one that may have been cut off anywhere.
    pub fn open_read_only_of_any_size(path: &Path) -> Result<DeviceFile, DeviceError> {
        DeviceFile::open_for(path, Access::Read)
    }

    fn open_for(path: &Path, access: Access) -> Result<DeviceFile, DeviceError> {
        let place = Place::of(path);
        match &place.share {
            None => DeviceFile::open_part(path, access, &Part::Whole),
            Some(name) => {
                let states = &[ShareState::InUse];
                let part = Part::Share { name, states, is_still: false };
                DeviceFile::open_part(path, access, &part)
            }
        }
    }

    /// Opens and locks a share, if its state is one of these. `change`: the caller's own of the
    /// directory, which is then as it is on the disk.
    ///
    /// # Errors
    /// If there is no such share, or somebody has it.
    pub fn open_share(
        path: &Path,
        states: &[ShareState],
        change: Option<&DirectoryChange>,
    ) -> Result<DeviceFile, DeviceError> {
        let place = Place::of(path);
        let Some(name) = &place.share else {
            let (disk, share) = (place.disk, "share".into());
            return Err(ShareProblem::NotShared { disk, share }.into());
        };
        let part = Part::Share { name, states, is_still: change.is_some() };
        match change {
            // Who has it is not waited for while others wait for the directory.
            Some(_) => DeviceFile::open_now(path, Access::Write, &part),
            None => DeviceFile::open_part(path, Access::Write, &part),
        }
    }

    /// Opens the directory of a disk with shares, and keeps it for the caller alone.
    pub(crate) fn open_directory(disk: &Path) -> Result<DeviceFile, DeviceError> {
        DeviceFile::open_part(disk, Access::Write, &Part::Directory)
    }

    fn open_part(path: &Path, access: Access, part: &Part) -> Result<DeviceFile, DeviceError> {
        let until = Instant::now() + DEAD_HOLDER_PATIENCE;
        loop {
            match DeviceFile::open_now(path, access, part) {
                Err(
                    DeviceError::Locked { pid: None, .. }
                    | DeviceError::LockedBelow { pid: None, .. }
                    | DeviceError::UsedThrough { mounted_at: None, .. }
                    | DeviceError::Busy { mounted_at: None, .. },
                ) if Instant::now() < until => std::thread::sleep(DEAD_HOLDER_INTERVAL),
                result => return result,
            }
        }
    }

    /// What is held of it, for another process: see [`DeviceFile::of_descriptors`].
    pub(crate) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        std::iter::once(self.file.as_fd()).chain(self.claim.held()).collect()
    }

    /// Closes it, and leaves its locks to another process that has the descriptors.
    pub(crate) fn close_for_another(mut self) {
        self.is_handed_over = true;
    }

    /// A disk that another process has opened and locked, with what that holds of it: the locks
    /// are those of the descriptors, and stay.
    ///
    /// # Errors
    /// If it is none, or not for reading and writing.
    pub(crate) fn of_descriptors(
        path: &Path,
        descriptors: Vec<OwnedFd>,
    ) -> Result<DeviceFile, DeviceError> {
        let mut descriptors = descriptors.into_iter();
        let failed = |errno: Errno| DeviceError::Io {
            path: path.to_owned(),
            operation: "look at",
            source: errno.into(),
        };
        let file = descriptors.next().ok_or_else(|| failed(Errno::BADF))?;
        let flags = rustix::fs::fcntl_getfl(&file).map_err(failed)?;
        if flags & OFlags::RWMODE != OFlags::RDWR {
            return Err(failed(Errno::ACCESS));
        }
        let stat = rustix::fs::fstat(&file).map_err(failed)?;
        let is_block_device = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => false,
            FileType::BlockDevice => true,
            _ => return Err(kind(path, "something else")),
        };
        let opened =
            Opened { file, stat, is_block_device, is_direct: flags.contains(OFlags::DIRECT) };
        let identity = DiskIdentity { pieces: Vec::new() };
        let device = DeviceFile::of(path, opened, identity, Claim::of(descriptors.collect()))?;
        device.check_size()?;
        Ok(device)
    }

    fn open_now(path: &Path, access: Access, part: &Part) -> Result<DeviceFile, DeviceError> {
        if let Some(uri) = network::uri_of(path) {
            let failed = |source: NetworkProblem| DeviceError::Network {
                path: path.to_owned(),
                source: source.into(),
            };
            let uri = uri.map_err(|error| failed(error.into()))?;
            if !matches!(part, Part::Whole) {
                network::check_shareable(path)?;
            }
            return DeviceFile::open_network(path, uri, access);
        }
        let disk = match part {
            Part::Share { .. } => path.parent().unwrap_or(path),
            Part::Whole | Part::Directory => path,
        };
        let mut device = DeviceFile::open_disk(disk, access, part)?;
        device.path = path.to_owned();
        let hold = match part {
            Part::Whole => Hold::Whole,
            Part::Directory => {
                device.limit_to(DIRECTORY.into())?;
                Hold::Directory
            }
            Part::Share { name, states, is_still } => {
                if !is_still && !device.claim.look_up(&device.file) {
                    return Err(DeviceError::Locked { path: disk.to_owned(), pid: None });
                }
                let share = shares::find(disk, name, shares::directory_of(&device)?)?;
                if !states.contains(&share.state) {
                    let (path, state) = (path.to_owned(), share.state);
                    return Err(ShareProblem::State { path, state }.into());
                }
                let windows = share.windows.clone();
                device.limit_to(windows.clone())?;
                device.share = Some(share);
                Hold::Share { windows, is_shared: access == Access::Read }
            }
        };
        device.claim.take(path, &device.file, &device.identity, &hold)?;
        device.claim.looked_up(&device.file, &hold);
        Ok(device)
    }

    /// Connects to the server of a network disk. Its name is locked first.
    fn open_network(path: &Path, uri: NbdUri, access: Access) -> Result<DeviceFile, DeviceError> {
        let locked = network::lock_name(&uri).map_err(|errno| DeviceError::Io {
            path: path.to_owned(),
            operation: "lock the name of",
            source: errno.into(),
        })?;
        let file =
            locked.ok_or_else(|| DeviceError::Locked { path: path.to_owned(), pid: None })?;
        let failed = |source: NetworkProblem| DeviceError::Network {
            path: path.to_owned(),
            source: source.into(),
        };
        let network = NetworkDisk::open(uri, access == Access::Write).map_err(failed)?;
        let facts = network.facts();
        let (size_bytes, found) = (facts.size_bytes, facts.minimum_block);
        if found > 4096 {
            let path = path.to_owned();
            return Err(DeviceError::BlockSize { path, what: "smallest blocks", found });
        }
        let logical_block_size = if found > 512 { 4096 } else { 512 };
        Ok(DeviceFile {
            file,
            claim: Claim::default(),
            is_handed_over: false,
            file_number: OnceCell::new(),
            path: path.to_owned(),
            windows: RefCell::new(None),
            share: None,
            whole_identity: DiskIdentity { pieces: Vec::new() },
            whole_bytes: size_bytes,
            guard: Guard::Ours,
            identity: DiskIdentity { pieces: Vec::new() },
            size_bytes,
            needed_bytes: AtomicU64::new(size_bytes),
            has_name: false,
            is_block_device: false,
            is_direct: true,
            logical_block_size,
            physical_sector_size: 4096,
            // Where a server is may change, so that is no part of what the disk is.
            serial: String::new(),
            honours_dsync: true,
            is_in_memory: false,
            number: 0,
            physical_disk: network.server_number(),
            network: Some(network),
        })
    }

    /// This is on it: a network disk is the same one again only with that.
    pub(crate) fn is_known_by(&self, mark: Mark) {
        if let Some(network) = &self.network {
            network.set_mark(mark);
        }
    }

    /// If it is a network disk: that.
    pub fn network(&self) -> Option<&NetworkDisk> {
        self.network.as_ref()
    }

    /// From here on a disk that another process has opened is this share of it, whose locks that
    /// has taken. If others have opened a block device before, it is they who keep mounts away, and
    /// when they have gone nobody does until the next start: a confined process
    /// (`process/confine.rs`) cannot open a disk that it did not know when it gave up the others.
    ///
    /// # Errors
    /// If the disk ends before the share does.
    pub(crate) fn become_share(&mut self, share: Share) -> Result<(), DeviceError> {
        self.limit_to(share.windows.clone())?;
        self.share = Some(share);
        Ok(())
    }

    /// From here on it is this part of what is open.
    fn limit_to(&mut self, windows: Windows) -> Result<(), DeviceError> {
        let (end, found) = (windows.end(), self.whole_bytes);
        if end > found {
            return Err(ShareProblem::Beyond { path: self.path.clone(), end, found }.into());
        }
        self.size_bytes = windows.size_bytes();
        self.set_needed_bytes(self.size_bytes);
        self.whole_identity = self.identity.clone();
        self.identity = self.identity.within(&windows);
        *self.windows.get_mut() = Some(windows);
        Ok(())
    }

    /// It is this part of the disk from now on. Of one that becomes smaller nothing is under way in
    /// what goes, nor asked for again.
    ///
    /// # Panics
    /// If it is no share.
    pub(crate) fn set_windows(&self, windows: Windows) {
        let known = self.windows.replace(Some(windows));
        assert!(known.is_some() && self.share.is_some(), "{} is no share", self.path.display());
    }

    /// The directory of the disk, of which this is a share, through what is open: for one that may
    /// open nothing any more. Its locks are those of this file, and none is given back when it is
    /// closed.
    ///
    /// # Errors
    /// If there are no more descriptors.
    pub(crate) fn directory_beside(&self) -> io::Result<DeviceFile> {
        self.part_beside(DIRECTORY.into())
    }

    /// The same of other bytes of the disk.
    ///
    /// # Errors
    /// If there are no more descriptors.
    pub(crate) fn part_beside(&self, windows: Windows) -> io::Result<DeviceFile> {
        let whole_bytes = match self.is_block_device {
            true => rustix::fs::seek(&self.file, SeekFrom::End(0))?,
            false => rustix::fs::fstat(&self.file)?.st_size as u64,
        };
        Ok(DeviceFile {
            file: self.file.try_clone()?,
            network: None,
            claim: self.claim.try_clone()?,
            is_handed_over: true,
            file_number: OnceCell::new(),
            path: disk_of(&self.path),
            size_bytes: windows.size_bytes(),
            needed_bytes: AtomicU64::new(windows.size_bytes()),
            has_name: self.has_name,
            identity: self.whole_identity.within(&windows),
            windows: RefCell::new(Some(windows)),
            share: None,
            whole_identity: self.whole_identity.clone(),
            whole_bytes,
            guard: Guard::Ours,
            serial: self.serial.clone(),
            is_block_device: self.is_block_device,
            is_direct: self.is_direct,
            logical_block_size: self.logical_block_size,
            physical_sector_size: self.physical_sector_size,
            honours_dsync: self.honours_dsync,
            is_in_memory: self.is_in_memory,
            number: self.number,
            physical_disk: self.physical_disk,
        })
    }

    /// Keeps the directory for whoever has this file. False: somebody else has it.
    pub(crate) fn hold_directory(&self) -> bool {
        self.claim.hold_directory(&self.file)
    }

    /// Gives that back, and nothing else.
    pub(crate) fn leave_directory(&self) {
        self.claim.leave_directory(&self.file);
    }

    /// Locks further parts of the disk, also in what lies below it. False: somebody has one.
    pub(crate) fn hold_parts(&self, parts: &[Window]) -> bool {
        self.claim.hold_parts(&self.file, &self.whole_identity, parts)
    }

    /// Gives them back.
    pub(crate) fn leave_parts(&self, parts: &[Window]) {
        self.claim.leave_parts(&self.file, &self.whole_identity, parts);
    }

    /// Opens the disk itself, with what is held as long as it is open.
    fn open_disk(path: &Path, access: Access, part: &Part) -> Result<DeviceFile, DeviceError> {
        let is_whole = matches!(part, Part::Whole);
        let stat = rustix::fs::stat(path).map_err(|e| open_error(path, e, None))?;
        // Looked at before opening: opening a FIFO or a tape drive has effects.
        let is_block_device = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => false,
            FileType::BlockDevice => true,
            FileType::Directory => return Err(kind(path, "a directory")),
            FileType::CharacterDevice => return Err(kind(path, "a character device")),
            FileType::Socket => return Err(kind(path, "a socket")),
            FileType::Fifo => return Err(kind(path, "a FIFO")),
            _ => return Err(kind(path, "something else")),
        };
        // The kernel opens a read-only block device for writing all the same, and then refuses each
        // write.
        if is_block_device && access == Access::Write && is_read_only(stat.st_rdev) {
            let way = format!("blockdev --setrw {}", path.display());
            return Err(DeviceError::ReadOnly { path: path.to_owned(), why: "", way });
        }
        let rights = match access {
            Access::Write => OFlags::RDWR,
            Access::Read => OFlags::RDONLY,
        };
        let mut flags = rights | OFlags::CLOEXEC | OFlags::NOCTTY;
        if is_block_device {
            flags |= OFlags::EXCL;
        }
        let mut is_direct = true;
        let mut open =
            |flags: OFlags| match rustix::fs::open(path, flags | OFlags::DIRECT, Mode::empty()) {
                // Some file systems (FUSE, older tmpfs) have no direct I/O.
                Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                    is_direct = false;
                    rustix::fs::open(path, flags, Mode::empty())
                }
                other => other,
            };
        let mut opened = open(flags);
        let mut guard = Guard::Ours;
        if let (Err(Errno::BUSY), false) = (&opened, is_whole) {
            // Whoever has another share came first; if it is somebody else, none has.
            opened = open(flags - OFlags::EXCL);
            let is_among_others = opened.as_ref().is_ok_and(Claim::has_others);
            opened = if is_among_others { opened } else { Err(Errno::BUSY) };
            let next_try = Instant::now() + GUARD_INTERVAL;
            guard = Guard::Others(RefCell::new(Waiting { next_try, held: None }));
        }
        let file =
            opened.map_err(|e| open_error(path, e, is_block_device.then_some(stat.st_rdev)))?;
        let failed = |operation| {
            move |errno: Errno| DeviceError::Io {
                path: path.to_owned(),
                operation,
                source: errno.into(),
            }
        };
        // Looked at again: what was opened counts, not what the name stood for a moment ago.
        let stat = rustix::fs::fstat(&file).map_err(failed("look at"))?;
        if !is_block_device {
            if access == Access::Write && is_swap(stat.st_dev, stat.st_ino) {
                return Err(DeviceError::Swap { path: path.to_owned() });
            }
            lock(&file, path, is_whole)?;
        }
        let identity = DiskIdentity::of(path).map_err(|source| DeviceError::Io {
            path: path.to_owned(),
            operation: "look at",
            source,
        })?;
        if !is_whole {
            Claim::join(path, &file)?;
        }
        let opened = Opened { file, stat, is_block_device, is_direct };
        let mut device = DeviceFile::of(path, opened, identity, Claim::default())?;
        device.guard = guard;
        Ok(device)
    }

    /// Looks at one that is open and locked.
    fn of(
        path: &Path,
        opened: Opened,
        identity: DiskIdentity,
        claim: Claim,
    ) -> Result<DeviceFile, DeviceError> {
        let Opened { file, stat, is_block_device, is_direct } = opened;
        let mut device = DeviceFile {
            file,
            network: None,
            claim,
            is_handed_over: false,
            file_number: OnceCell::new(),
            path: path.to_owned(),
            windows: RefCell::new(None),
            share: None,
            whole_identity: DiskIdentity { pieces: Vec::new() },
            whole_bytes: 0,
            guard: Guard::Ours,
            identity,
            size_bytes: stat.st_size as u64,
            needed_bytes: AtomicU64::new(stat.st_size as u64),
            has_name: stat.st_nlink > 0,
            is_block_device,
            is_direct,
            logical_block_size: 512,
            physical_sector_size: 4096,
            serial: String::new(),
            honours_dsync: is_block_device,
            is_in_memory: false,
            number: 0,
            physical_disk: whole_disk(if is_block_device { stat.st_rdev } else { stat.st_dev }),
        };
        if is_block_device {
            device.look_at_block_device(stat.st_rdev)?;
        } else {
            device.look_at_file()?;
        }
        for (what, found) in [
            ("logical blocks", device.logical_block_size),
            ("physical sectors", device.physical_sector_size),
        ] {
            if found != 512 && found != 4096 {
                return Err(DeviceError::BlockSize { path: path.to_owned(), what, found });
            }
        }
        device.whole_bytes = device.size_bytes;
        Ok(device)
    }

    /// Takes the size of a file that was given another one.
    pub fn size_changed(&mut self) -> Result<(), DeviceError> {
        if self.network.is_some() {
            return self.check_size();
        }
        let stat = rustix::fs::fstat(&self.file).map_err(|errno| DeviceError::Io {
            path: self.path.clone(),
            operation: "look at",
            source: errno.into(),
        })?;
        if !self.is_block_device {
            self.whole_bytes = stat.st_size as u64;
            // A share is as large as the directory says.
            let windows = self.windows.get_mut();
            self.size_bytes = windows.as_ref().map_or(self.whole_bytes, Windows::size_bytes);
            self.set_needed_bytes(self.size_bytes);
        }
        self.check_size()
    }

    /// Whether a file is shorter than it was when it was opened, or than what of it is needed; or
    /// somebody has deleted it, or put another in its place: what is written to it then is gone when
    /// it is closed.
    pub(crate) fn is_cut_off(&self) -> bool {
        let needed = self.needed_bytes.load(Ordering::Relaxed);
        let end = match &*self.windows.borrow() {
            Some(windows) => windows.end_of(needed),
            None => needed,
        };
        !self.is_block_device
            && self.network.is_none()
            && rustix::fs::fstat(&self.file).is_ok_and(|stat| {
                (stat.st_size as u64) < end || self.has_name && stat.st_nlink == 0
            })
    }

    /// Its path, and the file that this has to lead to; none of what has no name that could be lost.
    pub(crate) fn named(&self) -> Option<NamedFile> {
        if self.is_block_device || self.network.is_some() || self.is_handed_over || !self.has_name {
            return None;
        }
        if self.file_number.get().is_none() {
            let stat = rustix::fs::fstat(&self.file).ok()?;
            // Once: it does not change, and a file system that hangs answers nothing.
            let _ = self.file_number.set((stat.st_dev, stat.st_ino));
        }
        let (device, inode) = *self.file_number.get()?;
        Some(NamedFile { path: self.path.clone(), device, inode })
    }

    /// Whether it has a name somewhere: a file without any [is gone](DeviceFile::is_cut_off).
    pub(crate) fn has_any_name(&self) -> bool {
        rustix::fs::fstat(&self.file).is_ok_and(|stat| stat.st_nlink > 0)
    }

    /// So much of it is needed from now on.
    pub(crate) fn set_needed_bytes(&self, bytes: u64) {
        self.needed_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Its size now: it may have been given another one since it was opened.
    ///
    /// # Errors
    /// If it does not say.
    pub fn size_now(&self) -> io::Result<u64> {
        if self.network.is_some() {
            return Ok(self.size_bytes);
        }
        if let Some(windows) = &*self.windows.borrow() {
            return Ok(windows.size_bytes());
        }
        match self.is_block_device {
            true => Ok(rustix::fs::seek(&self.file, SeekFrom::End(0))?),
            false => Ok(rustix::fs::fstat(&self.file)?.st_size as u64),
        }
    }

    /// Where bytes of this disk are in what is open, and how many of them in one piece: the one
    /// place that knows of windows. Whatever the system is asked to do with bytes goes through it,
    /// piece by piece.
    ///
    /// # Panics
    /// If they are not all in the windows: they would be those of another cache.
    pub(crate) fn place(&self, offset: u64, length: u64) -> (u64, u64) {
        let windows = self.windows.borrow();
        let Some(windows) = &*windows else { return (offset, length) };
        let size_bytes = windows.size_bytes();
        assert!(
            offset.checked_add(length).is_some_and(|end| end <= size_bytes),
            "{length} bytes from {offset} on are not in {}, which has {size_bytes}",
            self.path.display(),
        );
        match windows.locate(offset) {
            Some((at, piece)) => (at, length.min(piece)),
            // None are asked for, at its end.
            None => (windows.end(), 0),
        }
    }

    /// The descriptor, for who has its offsets from [`DeviceFile::place`].
    pub(crate) fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Opens a block device of which others had a share first with O_EXCL, as soon as these have
    /// gone: from then on it is we who keep mounts and LVM away. In between dcd is kept away by its
    /// own locks, and everybody else, for as long as [`GUARD_INTERVAL`], by nothing. When to try
    /// again, if at all.
    pub(crate) fn keep_others_away(&self) -> Option<Instant> {
        let Guard::Others(waiting) = &self.guard else { return None };
        let mut waiting = waiting.borrow_mut();
        let now = Instant::now();
        if waiting.held.is_none() && now >= waiting.next_try {
            let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOCTTY;
            let opened = rustix::fs::open(disk_of(&self.path), flags, Mode::empty()).ok();
            let is_it = |file: &OwnedFd| {
                rustix::fs::fstat(file).is_ok_and(|stat| stat.st_rdev == self.number)
            };
            waiting.held = opened.filter(is_it);
            waiting.next_try = now + GUARD_INTERVAL;
        }
        waiting.held.is_none().then_some(waiting.next_try)
    }

    /// Size in bytes of all of the disk of which this may be a part.
    pub(crate) fn whole_bytes(&self) -> u64 {
        self.whole_bytes
    }

    /// If it is a share of a disk: which, as the directory says.
    pub fn share(&self) -> Option<&Share> {
        self.share.as_ref()
    }

    /// Whether it is a share of this disk, as its path names that; where the disk has lost its name,
    /// that is all of the path ([`Place::of`]).
    pub(crate) fn is_share_of(&self, disk: &Path) -> bool {
        self.share.is_some() && (self.path.parent() == Some(disk) || self.path == disk)
    }

    fn check_size(&self) -> Result<(), DeviceError> {
        if self.size_bytes == 0 || !self.size_bytes.is_multiple_of(BLOCK_SIZE) {
            return Err(DeviceError::Size { path: self.path.clone(), found: self.size_bytes });
        }
        Ok(())
    }

    fn look_at_block_device(&mut self, number: u64) -> Result<(), DeviceError> {
        let failed = |operation| {
            let path = self.path.clone();
            move |errno: Errno| DeviceError::Io { path, operation, source: errno.into() }
        };
        self.size_bytes = rustix::fs::seek(&self.file, rustix::fs::SeekFrom::End(0))
            .map_err(failed("find the size of"))?;
        self.logical_block_size =
            rustix::fs::ioctl_blksszget(&self.file).map_err(failed("ask the block size of"))?;
        // Larger physical sectors exist in sysfs (SSD pages, RAID stripes); what matters is what a
        // torn write can damage, and for those nobody promises more than 4 KiB.
        self.physical_sector_size = rustix::fs::ioctl_blkpbszget(&self.file)
            .map_err(failed("ask the sector size of"))?
            .clamp(self.logical_block_size, 4096.max(self.logical_block_size));
        self.serial = serial(number);
        self.number = number;
        Ok(())
    }

    /// Direct I/O on a file may want larger pieces than 512 bytes; then it goes by those, and if
    /// they are larger than 4 KiB, through the page cache.
    fn look_at_file(&mut self) -> Result<(), DeviceError> {
        let kind = rustix::fs::fstatfs(&self.file).map(|fs| fs.f_type as u64);
        self.honours_dsync = kind.is_ok_and(|kind| FILE_SYSTEMS_WITH_DSYNC.contains(&kind));
        self.is_in_memory = kind == Ok(TMPFS);
        if !self.is_direct {
            return Ok(());
        }
        let failed = |operation| {
            let path = self.path.clone();
            move |errno: Errno| DeviceError::Io { path, operation, source: errno.into() }
        };
        let mut page = dcd_engine::Buffer::zeroed(4096);
        // A try tells more than statx, which not all file systems fill in. Files of less than one
        // block read short, which is as good.
        for size in [512, 4096] {
            match rustix::io::pread(&self.file, &mut page.bytes_mut()[..size], size as u64) {
                Ok(_) => {
                    self.logical_block_size = size as u32;
                    return Ok(());
                }
                Err(Errno::INVAL) => {}
                // Damaged data is a matter for later.
                Err(_) => return Ok(()),
            }
        }
        let flags = rustix::fs::fcntl_getfl(&self.file).map_err(failed("look at"))?;
        rustix::fs::fcntl_setfl(&self.file, flags - OFlags::DIRECT).map_err(failed("open"))?;
        self.is_direct = false;
        Ok(())
    }

    /// Whether a write with RWF_DSYNC tells what became of itself, and nothing else. Through the
    /// page cache it might take the one error that a flush should have been told of.
    pub(crate) fn tells_of_dsync(&self) -> bool {
        self.honours_dsync && self.is_direct
    }

    /// Whether space on it can be given back so that it reads as zeroes: a file of a file system
    /// with holes, or a block device that discards and promises zeroes. Nothing that it holds is
    /// changed.
    pub fn can_give_back_space(&self) -> bool {
        if let Some(network) = &self.network {
            return network.can_zero();
        }
        if self.is_block_device {
            let has = |limit| {
                let most = sysfs_text(whole_disk(self.number), limit);
                most.is_some_and(|bytes| bytes != "0")
            };
            return has("queue/discard_max_bytes") && has("queue/write_zeroes_max_bytes");
        }
        // Behind the end there is nothing to lose; behind a share there is another.
        if self.windows.borrow().is_some() {
            return false;
        }
        let behind = self.size_bytes.next_multiple_of(4096);
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let before = rustix::fs::fstat(&self.file);
        let can = rustix::fs::fallocate(&self.file, punch, behind, 4096).is_ok();
        if let Ok(before) = before {
            // Nothing was written: whoever goes by the time of the last write would think so, as
            // the record of pairs does.
            let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
            let tv_nsec = before.st_mtime_nsec as _;
            let last_modification = Timespec { tv_sec: before.st_mtime, tv_nsec };
            let times = Timestamps { last_access: omit, last_modification };
            let _ = rustix::fs::futimens(&self.file, &times);
        }
        can
    }

    /// Its name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The same in the words of the engine.
    pub fn data_disk_info(&self) -> DataDiskInfo {
        DataDiskInfo {
            blocks: self.size_bytes / BLOCK_SIZE,
            logical_block_size: self.logical_block_size,
            physical_sector_size: self.physical_sector_size,
        }
    }

    /// Reads `length` bytes at `offset` at once (before the event loop runs); shorter at the end
    /// of the disk.
    pub fn read_at(&self, offset: u64, length: usize) -> Result<dcd_engine::Buffer, DeviceError> {
        let mut buffer = dcd_engine::Buffer::zeroed(length);
        let mut done = 0;
        if let Some(network) = &self.network {
            buffer.resize((length as u64).min(self.size_bytes.saturating_sub(offset)) as usize);
            let read = network.read_at(offset, buffer.bytes_mut());
            return read.map(|()| buffer).map_err(|source| DeviceError::Io {
                path: self.path.clone(),
                operation: "read",
                source,
            });
        }
        let length = match &*self.windows.borrow() {
            Some(windows) => {
                (length as u64).min(windows.size_bytes().saturating_sub(offset)) as usize
            }
            None => length,
        };
        while done < length {
            let (at, piece) = self.place(offset + done as u64, (length - done) as u64);
            let into = &mut buffer.bytes_mut()[done..done + piece as usize];
            match rustix::io::pread(&self.file, into, at) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                // A direct read that ends at an odd place cannot be continued there.
                Err(Errno::INVAL) if done > 0 => break,
                Err(errno) => {
                    return Err(DeviceError::Io {
                        path: self.path.clone(),
                        operation: "read",
                        source: errno.into(),
                    });
                }
            }
        }
        buffer.resize(done);
        Ok(buffer)
    }

    /// Writes all of `data` at `offset` and makes it durable (for `create`, before anything runs).
    pub fn write_at(&self, offset: u64, data: &dcd_engine::Buffer) -> Result<(), DeviceError> {
        self.write_all_at(offset, data.bytes())?;
        self.flush()
    }

    /// Writes all of `bytes` at `offset`.
    pub fn write_all_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let failed = |source: io::Error| DeviceError::Io {
            path: self.path.clone(),
            operation: "write",
            source,
        };
        if let Some(network) = &self.network {
            return network.write_all_at(offset, bytes).map_err(failed);
        }
        let mut done = 0;
        while done < bytes.len() {
            let rest = &bytes[done..];
            let (at, piece) = self.place(offset + done as u64, rest.len() as u64);
            match rustix::io::pwrite(&self.file, &rest[..piece as usize], at) {
                Ok(0) => return Err(failed(io::ErrorKind::WriteZero.into())),
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(failed(errno.into())),
            }
        }
        Ok(())
    }

    /// Makes durable what was written.
    pub fn flush(&self) -> Result<(), DeviceError> {
        let flushed = match &self.network {
            Some(network) => network.flush(),
            None => rustix::fs::fdatasync(&self.file).map_err(io::Error::from),
        };
        flushed.map_err(|source| DeviceError::Io {
            path: self.path.clone(),
            operation: "flush",
            source,
        })
    }

    /// Where the next data begins, or the next hole, as far as a file system tells.
    /// [`Errno::NXIO`]: nowhere on this disk.
    pub fn seek(&self, to: SeekTo, mut offset: u64) -> Result<u64, Errno> {
        if self.network.is_some() {
            return Err(Errno::OPNOTSUPP);
        }
        let find = |at| match to {
            SeekTo::Data => rustix::fs::seek(&self.file, SeekFrom::Data(at)),
            SeekTo::Hole => rustix::fs::seek(&self.file, SeekFrom::Hole(at)),
        };
        let windows = self.windows.borrow();
        let Some(windows) = &*windows else { return find(offset) };
        if offset >= windows.size_bytes() {
            return Err(Errno::NXIO);
        }
        while let Some((at, piece)) = windows.locate(offset) {
            match find(at) {
                Ok(found) if found < at + piece => return Ok(offset + (found - at)),
                Ok(_) | Err(Errno::NXIO) => offset += piece,
                Err(errno) => return Err(errno),
            }
        }
        match to {
            SeekTo::Data => Err(Errno::NXIO),
            // A hole is behind every end.
            SeekTo::Hole => Ok(offset),
        }
    }
}

/// What is looked for in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeekTo {
    /// What is no hole.
    Data,
    /// A hole.
    Hole,
}

fn kind(path: &Path, found: &'static str) -> DeviceError {
    DeviceError::Kind { path: path.to_owned(), found }
}

fn open_error(path: &Path, errno: Errno, number: Option<u64>) -> DeviceError {
    let (path, source) = (path.to_owned(), io::Error::from(errno));
    match errno {
        Errno::NOENT => DeviceError::NotFound { path, source },
        Errno::ACCESS | Errno::PERM => DeviceError::Permission { path, source },
        Errno::ROFS => DeviceError::ReadOnly {
            path,
            why: ": it lies on a file system that is mounted read-only",
            way: "mount -o remount,rw, on that file system".into(),
        },
        Errno::BUSY => {
            DeviceError::Busy { path, mounted_at: number.and_then(mounted_at_number), source }
        }
        _ => DeviceError::Io { path, operation: "open", source },
    }
}

/// Whether the kernel swaps to this file, by whatever name.
fn is_swap(device: u64, inode: u64) -> bool {
    swaps().iter().any(|name| {
        rustix::fs::stat(name).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (device, inode))
    })
}

/// Whether a block device takes no writes (BLKROGET, as sysfs shows it).
fn is_read_only(number: u64) -> bool {
    sysfs_text(number, "ro").is_some_and(|flag| flag != "0")
}

fn mounted_at_number(number: u64) -> Option<String> {
    mounted_at(&mounts(), |it| it == number)
}

/// Lets udev look at a block device again, which it does whenever a program that could write to it
/// closes it. So it is told without a right to speak to it that what it knew of the disk (whether a
/// cache is attached) has changed. A failure is none of ours: whoever has no udev needs none of
/// that.
pub fn let_udev_look(path: &Path) {
    let is_block_device = rustix::fs::stat(path)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice);
    if is_block_device {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        drop(rustix::fs::open(path, flags, Mode::empty()));
    }
}

/// Whether a process runs; one that has ended and waits for its parent does not.
pub(crate) fn is_alive(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    // The name in parentheses may contain anything; the state follows its end.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    !matches!(state, Some('Z' | 'X'))
}

fn sysfs_directory(number: u64) -> PathBuf {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
}

fn sysfs_text(number: u64, file: &str) -> Option<String> {
    let text = fs::read_to_string(sysfs_directory(number).join(file)).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The whole disk that a partition is part of; any other device is its own.
pub(crate) fn whole_disk(number: u64) -> u64 {
    if sysfs_text(number, "partition").is_none() {
        return number;
    }
    let parent = fs::read_to_string(sysfs_directory(number).join("../dev")).unwrap_or_default();
    let parsed = parent
        .trim()
        .split_once(':')
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    parsed.map_or(number, |(major, minor)| rustix::fs::makedev(major, minor))
}

/// The same of a path; empty: it is no block device, or has no number.
pub(crate) fn serial_of(path: &Path) -> String {
    match rustix::fs::stat(path) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice => {
            serial(stat.st_rdev)
        }
        _ => String::new(),
    }
}

/// Name of a disk that stays the same wherever it is plugged in; of a partition with its number.
fn serial(number: u64) -> String {
    let disk = whole_disk(number);
    let mut serial = ["wwid", "device/wwid", "dm/uuid", "serial", "device/serial"]
        .iter()
        .find_map(|file| sysfs_text(disk, file))
        .unwrap_or_default();
    let suffix = sysfs_text(number, "partition").map(|n| format!("-part{n}")).unwrap_or_default();
    if serial.is_empty() {
        return serial;
    }
    // Runs of spaces are padding in many serial numbers.
    serial = serial.split_whitespace().collect::<Vec<_>>().join(" ");
    let room = SERIAL_BYTES_MAX - suffix.len();
    while serial.len() > room {
        serial.pop();
    }
    serial + &suffix
}

/// Whether two disks share one physical disk, as far as can be seen. File systems without a disk
/// (tmpfs) have device numbers of their own and count as sharing nothing with others.
pub fn share_a_disk(first: &DeviceFile, second: &DeviceFile) -> bool {
    first.physical_disk == second.physical_disk
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_a_hint_can_be_pasted() {
        let quoted = |name: &str| quoted(Path::new(name));
        assert_eq!(quoted("/dev/sdb"), "/dev/sdb");
        assert_eq!(quoted("my fast.img"), "'my fast.img'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted("-x y"), "./'-x y'");
        assert_eq!(quoted("nbd+unix:///?socket=s"), "'nbd+unix:///?socket=s'");
    }

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("dcd-device-{name}-{}", std::process::id()))
    }

    fn file(name: &str, size: u64) -> PathBuf {
        let path = path(name);
        fs::File::create(&path).unwrap().set_len(size).unwrap();
        path
    }

    #[test]
    fn a_file_is_opened_once() {
        let path = file("once", 1 << 20);
        let device = DeviceFile::open(&path).unwrap();
        assert_eq!(device.size_bytes, 1 << 20);
        assert_eq!(device.data_disk_info().blocks, 2048);
        assert_eq!(device.physical_sector_size, 4096);
        let error = DeviceFile::open(&path).unwrap_err();
        let DeviceError::Locked { pid, .. } = &error else { panic!("{error}") };
        assert_eq!(*pid, Some(std::process::id()));
        assert!(error.hint().unwrap().contains("twice"));
        drop(device);
        DeviceFile::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_is_no_disk_is_refused() {
        let error = DeviceFile::open(&path("missing")).unwrap_err();
        assert!(matches!(error, DeviceError::NotFound { .. }));
        let error = DeviceFile::open(&std::env::temp_dir()).unwrap_err();
        assert!(matches!(error, DeviceError::Kind { found: "a directory", .. }));
        let error = DeviceFile::open(Path::new("/dev/null")).unwrap_err();
        assert!(matches!(error, DeviceError::Kind { found: "a character device", .. }));
        for size in [0, 1000] {
            let odd = file("odd", size);
            assert!(
                matches!(DeviceFile::open(&odd), Err(DeviceError::Size { found, .. }) if found == size)
            );
            fs::remove_file(&odd).unwrap();
        }
    }

    #[test]
    fn reads_what_was_written_and_stops_at_the_end() {
        let path = file("read", 8192);
        let device = DeviceFile::open(&path).unwrap();
        device.write_at(4096, &dcd_engine::Buffer::copy_of(&[7; 4096])).unwrap();
        let read = device.read_at(0, 16384).unwrap();
        assert_eq!(read.len(), 8192);
        assert_eq!(read.bytes()[4095..4097], [0, 7]);
        fs::remove_file(&path).unwrap();
    }
}
