//! The volume as the one file `disk` of a small FUSE file system.
//!
//! Reads and writes are not answered here: each becomes a [`Operation`] for the event loop, and
//! the FUSE reply travels in the completion. The session thread only takes requests from the
//! kernel, so many are in flight at once and nothing waits for a disk.
//!
//! Rules:
//!
//! 1. The kernel keeps no copy of the data (`FOPEN_DIRECT_IO`, no write-back cache): what a client
//!    was told is written has been acknowledged by the engine, and `fsync` is a [`Operation::Flush`].
//! 2. The file keeps its size. Writes are cut at the end; beyond it is `ENOSPC`.
//! 3. Clients may use any offset and length. What is not whole blocks is read, changed and written
//!    back under `RangeLocks`, so that two writers of one block cannot undo each other. Loop
//!    devices never need that; `dd` may.
//!
//! Errors of the engine as `errno`: [`RequestError::Io`] `EIO`, `NoSpace` `ENOSPC`, `ReadOnly`
//! `EROFS`, and `ShuttingDown` `EIO` too, because `ESHUTDOWN` is a socket error that no file system
//! or database above expects.
//!
//! After a `kill -9` of the daemon the kernel answers everything on the mount with `ENOTCONN`
//! (requests under way: `ECONNABORTED`) until it is unmounted. [`mount`] clears such a mount away
//! before it makes its own; loop devices on it are for [`super::loop_device::detach_stale`], which
//! has to run *before* [`mount`].
//!
//! A process must not use its own mount: when it is killed while one of its threads waits for an
//! answer from another, the kernel waits for ever. Hence nothing in here touches the mounted file.
//!
//! Tests: `tests/fuse.rs` (real mounts, in a process of their own), and at the end of this file.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{CString, OsStr};
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use dcd_engine::buffer::Buffer;
use dcd_engine::io::{Operation, RequestError};
use dcd_engine::units::{BLOCK_SIZE, Lba, LbaRange};
use fuser::{
    AccessFlags, BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType,
    Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner, OpenAccMode,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, Session, SessionACL, TimeOrNow,
    WriteFlags,
};
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags};
use rustix::io::Errno as SystemError;
use rustix::mount::{MountFlags, UnmountFlags};

use super::Submit;

/// Name of the one file.
pub const FILE_NAME: &str = "disk";

const ROOT: INodeNo = INodeNo::ROOT;
const DISK: INodeNo = INodeNo(2);

/// Largest write (and, since the kernel counts both in pages, read) in one request.
const WRITE_SIZE_MAX: u32 = 1 << 20;
/// Asynchronous requests the kernel may have under way; its own default of 12 starves a loop
/// device, which has 128 tags.
const BACKGROUND_MAX: u16 = 512;

/// How long the kernel may remember the file. It never changes, and a long time lets
/// `LOOP_GET_STATUS64` work on a mount whose daemon is dead.
const FILE_TTL: Duration = Duration::from_secs(365 * 86_400);
/// How long it may remember the directory: briefly, so that `stat` shows a dead mount.
const DIRECTORY_TTL: Duration = Duration::from_secs(1);

/// How long [`FuseMount::unmount`] bears with somebody (most often udev) who has the file open.
const BUSY_WAIT: Duration = Duration::from_secs(2);

/// Mounts the volume at `directory`, an existing directory, as the file [`FILE_NAME`].
///
/// A mount left there by a daemon that is dead is removed first. The caller gives the geometry of
/// the volume: `size_bytes` is a multiple of `block_size`, which is 512 or 4096.
///
/// Completions given to `submitter` answer the kernel with one `write` system call; that does not
/// block, so the event loop may run them.
pub fn mount(
    directory: &Path,
    size_bytes: u64,
    block_size: u32,
    read_only: bool,
    submitter: Arc<dyn Submit>,
) -> Result<FuseMount, FuseError> {
    assert!(block_size.is_power_of_two());
    assert!(u64::from(block_size) >= BLOCK_SIZE);
    assert!(size_bytes.is_multiple_of(u64::from(block_size)));

    clear_directory(directory)?;
    let directory = directory
        .canonicalize()
        .map_err(|source| FuseError::Directory { directory: directory.to_owned(), source })?;

    let file_system = DiskFileSystem {
        volume: Arc::new(Volume { submitter, locks: Arc::default(), block_size, size_bytes }),
        read_only,
        mounted_at: SystemTime::now(),
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
    };
    let device = connect(&directory, read_only)?;
    // `All`: the kernel has already refused everyone whom the mount options do not admit; a second
    // check by fuser would refuse discards that a loop device sends from a kernel thread.
    Session::from_fd(file_system, device, SessionACL::All, Config::default())
        .and_then(Session::spawn)
        .map(|session| FuseMount { directory: directory.clone(), session: Some(session) })
        .map_err(|source| {
            let _ = unmount_lazily(&directory);
            FuseError::Session { directory, source }
        })
}

/// A mounted volume. Dropping it detaches the mount lazily: new users do not find it any more,
/// those who have the file open keep it for as long as this process answers.
#[derive(Debug)]
pub struct FuseMount {
    directory: PathBuf,
    session: Option<BackgroundSession>,
}

impl FuseMount {
    /// The directory, as an absolute path without links.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The file, for [`super::loop_device::attach`].
    pub fn file(&self) -> PathBuf {
        self.directory.join(FILE_NAME)
    }

    /// Unmounts and waits for the end of the session.
    ///
    /// While somebody has the file open (a loop device, too) this fails with [`FuseError::Busy`],
    /// after which the mount is detached lazily, as by dropping it. Call it while the event loop
    /// still runs, and not on its thread: the last requests want an answer.
    pub fn unmount(mut self) -> Result<(), FuseError> {
        let Some(session) = self.session.take() else { return Ok(()) };
        let deadline = Instant::now() + BUSY_WAIT;
        // A session that has ended was unmounted by someone else; what is mounted there now, if
        // anything, is not ours.
        while !session.guard.is_finished() {
            match unmount_now(&self.directory) {
                // EINVAL: detached by someone else, yet still open somewhere.
                Ok(()) | Err(UnmountError::System(SystemError::INVAL)) => break,
                Err(UnmountError::System(SystemError::BUSY)) => {
                    if Instant::now() >= deadline {
                        let directory = self.directory.clone();
                        self.session = Some(session); // for drop
                        return Err(FuseError::Busy { directory });
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(error) => {
                    let directory = self.directory.clone();
                    self.session = Some(session);
                    return Err(error.at(directory));
                }
            }
        }
        // The session ends when the last copy of the mount is gone. A copy in another mount
        // namespace may live longer than we want to wait.
        let deadline = Instant::now() + BUSY_WAIT;
        while !session.guard.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        if !session.guard.is_finished() {
            return Ok(());
        }
        session
            .join()
            .map_err(|source| FuseError::Session { directory: self.directory.clone(), source })
    }
}

impl Drop for FuseMount {
    fn drop(&mut self) {
        if self.session.as_ref().is_some_and(|session| !session.guard.is_finished()) {
            // Nothing can be done about a failure, and the mount dies with the process.
            let _ = unmount_lazily(&self.directory);
        }
    }
}

/// Why the volume could not be mounted or unmounted.
#[derive(Debug, thiserror::Error)]
pub enum FuseError {
    /// The directory does not exist.
    #[error("the mount directory {} does not exist", directory.display())]
    MissingDirectory {
        /// Which.
        directory: PathBuf,
    },
    /// It is something else than a directory.
    #[error("{} is not a directory", directory.display())]
    NotADirectory {
        /// Which.
        directory: PathBuf,
    },
    /// The directory cannot be looked at.
    #[error("cannot look at the mount directory {}", directory.display())]
    Directory {
        /// Which.
        directory: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something that works is mounted there.
    #[error("{} is already a mount point in use", directory.display())]
    AlreadyMounted {
        /// Where.
        directory: PathBuf,
    },
    /// The mount of a dead daemon could not be removed.
    #[error("cannot remove the dead mount at {}", directory.display())]
    StaleMount {
        /// Where.
        directory: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// `/dev/fuse` cannot be opened.
    #[error("cannot open /dev/fuse")]
    Device {
        /// What the system said.
        source: io::Error,
    },
    /// Not root, and the program that mounts for others cannot be run.
    #[error("cannot run fusermount3")]
    MissingFusermount {
        /// What the system said.
        source: io::Error,
    },
    /// fusermount3 refused.
    #[error("fusermount3 failed for {}: {message}", directory.display())]
    Fusermount {
        /// Where.
        directory: PathBuf,
        /// What it wrote.
        message: String,
    },
    /// The system refused to mount.
    #[error("cannot mount at {}", directory.display())]
    Mount {
        /// Where.
        directory: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The conversation with the kernel failed.
    #[error("the FUSE session at {} failed", directory.display())]
    Session {
        /// Where.
        directory: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody still uses the mount.
    #[error("{} is still in use", directory.display())]
    Busy {
        /// Where.
        directory: PathBuf,
    },
    /// The system refused to unmount.
    #[error("cannot unmount {}", directory.display())]
    Unmount {
        /// Where.
        directory: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl FuseError {
    /// What to do about it, where there is something.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            FuseError::MissingDirectory { directory } => {
                format!("create it: mkdir -p {}", directory.display())
            }
            FuseError::NotADirectory { .. } => {
                format!("give a directory; the volume appears in it as the file `{FILE_NAME}`")
            }
            FuseError::Directory { .. } => {
                "it may be a FUSE mount of another user; unmount it as that user or choose another \
                 directory"
                    .to_owned()
            }
            FuseError::AlreadyMounted { directory } => format!(
                "choose another directory, or unmount what is there: umount {}",
                directory.display()
            ),
            FuseError::StaleMount { directory, .. } => {
                format!("remove it as root: umount -l {}", directory.display())
            }
            FuseError::Device { source } if source.kind() == io::ErrorKind::NotFound => {
                "load the kernel module: modprobe fuse (in a container, pass --device /dev/fuse)"
                    .to_owned()
            }
            FuseError::Device { .. } => "run as root, or allow access to /dev/fuse".to_owned(),
            FuseError::MissingFusermount { .. } => {
                "install the package fuse3, or run as root".to_owned()
            }
            FuseError::Busy { directory } => format!(
                "unmount and detach what uses {0}/{FILE_NAME} (losetup -j {0}/{FILE_NAME}; fuser \
                 -vm {0})",
                directory.display()
            ),
            FuseError::Mount { .. } => {
                "in a container or a restricted service, CAP_SYS_ADMIN may be missing".to_owned()
            }
            FuseError::Fusermount { .. }
            | FuseError::Session { .. }
            | FuseError::Unmount { .. } => return None,
        })
    }
}

// Mounting and unmounting.

/// Makes sure that nothing is mounted at `directory`, removing what a dead daemon left.
fn clear_directory(directory: &Path) -> Result<(), FuseError> {
    // More than one dead mount can lie there, one upon the other; the bound is for a directory
    // inside a dead mount, which stays as it is.
    for _ in 0..16 {
        if !is_stale(directory)? {
            return Ok(());
        }
        unmount_lazily(directory)?;
    }
    Err(FuseError::StaleMount {
        directory: directory.to_owned(),
        source: SystemError::NOTCONN.into(),
    })
}

/// Whether `directory` is a mount whose server is dead. Any other mount point is an error.
fn is_stale(directory: &Path) -> Result<bool, FuseError> {
    // FORCE_SYNC and statfs: the kernel answers a plain `stat` of a dead mount from memory for a
    // while.
    let found =
        rustix::fs::statx(CWD, directory, AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS);
    let found = match found {
        Ok(found) => found,
        Err(error) if means_dead(error) => return Ok(true),
        Err(SystemError::NOENT) => {
            return Err(FuseError::MissingDirectory { directory: directory.to_owned() });
        }
        Err(SystemError::NOTDIR) => {
            return Err(FuseError::NotADirectory { directory: directory.to_owned() });
        }
        Err(source) => {
            let directory = directory.to_owned();
            return Err(FuseError::Directory { directory, source: source.into() });
        }
    };
    if !rustix::fs::FileType::from_raw_mode(found.stx_mode.into()).is_dir() {
        return Err(FuseError::NotADirectory { directory: directory.to_owned() });
    }
    let is_mount_point = if found.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
    } else {
        // Before Linux 5.8 the device number has to tell.
        let device = |path: &Path| rustix::fs::stat(path).map(|stat| stat.st_dev).ok();
        device(directory) != device(&directory.join(".."))
    };
    if !is_mount_point {
        return Ok(false);
    }
    match rustix::fs::statfs(directory) {
        Err(error) if means_dead(error) => Ok(true),
        _ => Err(FuseError::AlreadyMounted { directory: directory.to_owned() }),
    }
}

/// Whether this is how the kernel answers for a FUSE server that is gone.
pub(super) fn means_dead(error: SystemError) -> bool {
    matches!(error, SystemError::NOTCONN | SystemError::CONNABORTED | SystemError::CONNREFUSED)
}

/// Mounts and returns the connection to the kernel: directly when we may, by fusermount3 when not.
fn connect(directory: &Path, read_only: bool) -> Result<OwnedFd, FuseError> {
    // fusermount3 opens it with the rights of its caller, so it could not help out here.
    let device = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .map_err(|source| FuseError::Device { source })?;
    let data = CString::new(format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    ))
    .expect("no NUL in numbers");
    let mut flags = MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC;
    if read_only {
        flags |= MountFlags::RDONLY;
    }
    match rustix::mount::mount("dcd", directory, "fuse.dcd", flags, data.as_c_str()) {
        Ok(()) => Ok(device.into()),
        Err(SystemError::PERM) => connect_by_fusermount(directory, read_only),
        Err(source) => {
            Err(FuseError::Mount { directory: directory.to_owned(), source: source.into() })
        }
    }
}

/// fusermount3 is set-user-id root: it opens /dev/fuse, mounts, and sends the descriptor back
/// through the socket whose number it finds in `_FUSE_COMMFD`. Ours is its standard input, which
/// needs no meddling with close-on-exec.
fn connect_by_fusermount(directory: &Path, read_only: bool) -> Result<OwnedFd, FuseError> {
    let (ours, theirs) = UnixStream::pair().map_err(|source| FuseError::Device { source })?;
    let mut options = "fsname=dcd,subtype=dcd,default_permissions,noexec".to_owned();
    if read_only {
        options.push_str(",ro");
    }
    let mut child = Command::new("fusermount3")
        .args(["-o", &options, "--"])
        .arg(directory)
        .env("_FUSE_COMMFD", "0")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| FuseError::MissingFusermount { source })?;

    let received = receive_descriptor(&ours);
    let mut message = String::new();
    if let Some(stderr) = child.stderr.as_mut() {
        let _ = stderr.read_to_string(&mut message);
    }
    let _ = child.wait();
    received.ok_or_else(|| FuseError::Fusermount {
        directory: directory.to_owned(),
        message: message.trim().to_owned(),
    })
}

/// The descriptor sent through `socket`, if one is before the other end closes.
fn receive_descriptor(socket: &UnixStream) -> Option<OwnedFd> {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    loop {
        let mut parts = [IoSliceMut::new(&mut byte)];
        match recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(_) => break,
            Err(SystemError::INTR) => {}
            Err(_) => return None,
        }
    }
    ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    })
}

/// Why an unmount failed, before it is known what for.
enum UnmountError {
    System(SystemError),
    MissingFusermount(io::Error),
    Fusermount(String),
}

impl UnmountError {
    fn at(self, directory: PathBuf) -> FuseError {
        match self {
            UnmountError::System(source) => FuseError::Unmount { directory, source: source.into() },
            UnmountError::MissingFusermount(source) => FuseError::MissingFusermount { source },
            UnmountError::Fusermount(message) => FuseError::Fusermount { directory, message },
        }
    }
}

fn unmount_now(directory: &Path) -> Result<(), UnmountError> {
    match rustix::mount::unmount(directory, UnmountFlags::NOFOLLOW) {
        Err(SystemError::PERM) => unmount_by_fusermount(directory, "-u"),
        result => result.map_err(UnmountError::System),
    }
}

fn unmount_lazily(directory: &Path) -> Result<(), FuseError> {
    // Only the last part may be a link, and finding where it leads does not enter the mount.
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let flags = UnmountFlags::NOFOLLOW | UnmountFlags::DETACH;
    let result = match rustix::mount::unmount(&directory, flags) {
        Err(SystemError::PERM) => unmount_by_fusermount(&directory, "-uz"),
        result => result.map_err(UnmountError::System),
    };
    result.map_err(|error| match error {
        UnmountError::System(source) => FuseError::StaleMount { directory, source: source.into() },
        error => error.at(directory),
    })
}

fn unmount_by_fusermount(directory: &Path, how: &str) -> Result<(), UnmountError> {
    let output = Command::new("fusermount3")
        .args([how, "--"])
        .arg(directory)
        .stdin(Stdio::null())
        .env("LC_ALL", "C")
        .output()
        .map_err(UnmountError::MissingFusermount)?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    if message.contains("busy") {
        return Err(UnmountError::System(SystemError::BUSY));
    }
    Err(UnmountError::Fusermount(message.trim().to_owned()))
}

// The file system.

struct DiskFileSystem {
    volume: Arc<Volume>,
    read_only: bool,
    mounted_at: SystemTime,
    uid: u32,
    gid: u32,
}

impl DiskFileSystem {
    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let size = self.volume.size_bytes;
        let (kind, perm, nlink, size) = match inode {
            ROOT => (FileType::Directory, 0o700, 2, 0),
            DISK => (FileType::RegularFile, 0o600, 1, size),
            _ => return None,
        };
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            // The time of the mount: the engine does not tell when the volume was last written.
            atime: self.mounted_at,
            mtime: self.mounted_at,
            ctime: self.mounted_at,
            crtime: self.mounted_at,
            kind,
            perm,
            nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    fn reply_attributes(&self, inode: INodeNo, reply: ReplyAttr) {
        let ttl = if inode == DISK { FILE_TTL } else { DIRECTORY_TTL };
        match self.attributes(inode) {
            Some(attributes) => reply.attr(&ttl, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    /// The reason why this inode cannot be written, if there is one.
    fn refuses_writes(&self, inode: INodeNo) -> Option<Errno> {
        match inode {
            DISK if self.read_only => Some(Errno::EROFS),
            DISK => None,
            _ => Some(Errno::EISDIR),
        }
    }
}

impl Filesystem for DiskFileSystem {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Without ASYNC_DIO the kernel works on one request of a loop device at a time. All of
        // these are wishes; an old kernel that knows less is slower, not wrong.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.set_max_write(WRITE_SIZE_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        let _ = config.set_congestion_threshold(BACKGROUND_MAX / 4 * 3);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attributes(DISK) {
            Some(attributes) if parent == ROOT && name == FILE_NAME => {
                reply.entry(&FILE_TTL, &attributes, Generation(0));
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        self.reply_attributes(inode, reply);
    }

    fn setattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        // Times are accepted and not kept, so that `cp -p` and `touch` do not stumble.
        let resizes = size.is_some_and(|size| inode != DISK || size != self.volume.size_bytes);
        if resizes || mode.is_some() || uid.is_some() || gid.is_some() {
            reply.error(Errno::EPERM);
        } else {
            self.reply_attributes(inode, reply);
        }
    }

    fn open(&self, _request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if flags.acc_mode() != OpenAccMode::O_RDONLY
            && let Some(error) = self.refuses_writes(inode)
        {
            return reply.error(error);
        }
        // PARALLEL_DIRECT_WRITES: without it the kernel lets one writer in at a time.
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if inode != DISK {
            return reply.error(Errno::EISDIR);
        }
        let end = offset.saturating_add(size.into()).min(self.volume.size_bytes);
        if offset >= end {
            return reply.data(&[]);
        }
        let range = self.volume.blocks_around(offset, end);
        let first = (offset - range.start.byte()) as usize;
        let wanted = first..first + (end - offset) as usize;
        self.volume.submitter.submit(
            Operation::Read { range },
            false,
            Box::new(move |answer| match answer.result {
                Ok(()) => {
                    let buffer = answer.buffer.expect("the data of a read that succeeded");
                    reply.data(&buffer.bytes()[wanted]);
                }
                Err(error) => reply.error(errno(error)),
            }),
        );
    }

    fn write(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if let Some(error) = self.refuses_writes(inode) {
            return reply.error(error);
        }
        if offset >= self.volume.size_bytes {
            return reply.error(Errno::ENOSPC);
        }
        let room = usize::try_from(self.volume.size_bytes - offset).unwrap_or(usize::MAX);
        let data = &data[..data.len().min(room)];
        // The kernel puts O_DSYNC here for RWF_DSYNC, too. O_SYNC contains its bit.
        let fua = flags.0 & libc::O_DSYNC != 0;
        let length = data.len() as u32;
        let steps = self.volume.write_steps(offset, data);
        self.volume.change(offset, offset + u64::from(length), steps, fua, move |result| {
            match result {
                Ok(()) => reply.written(length),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    /// Closing promises nothing about durability.
    fn flush(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsync(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.volume.submitter.submit(
            Operation::Flush,
            false,
            Box::new(move |answer| reply_empty(answer.result, reply)),
        );
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fallocate(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if let Some(error) = self.refuses_writes(inode) {
            return reply.error(error);
        }
        // Ranges as with a block device: one that starts beyond the end is a mistake, one that
        // crosses it is cut if the caller does not mean to make the file longer.
        let size = self.volume.size_bytes;
        let end = offset.saturating_add(length);
        if length == 0 || offset >= size {
            return reply.error(if length == 0 { Errno::EINVAL } else { Errno::ENOSPC });
        }
        if end > size && mode & libc::FALLOC_FL_KEEP_SIZE == 0 {
            return reply.error(Errno::ENOSPC);
        }
        let end = end.min(size);

        const PUNCH_HOLE: i32 = libc::FALLOC_FL_PUNCH_HOLE;
        const ZERO_RANGE: i32 = libc::FALLOC_FL_ZERO_RANGE;
        let steps = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            // The room is there; that is all this call asks.
            0 => return reply.ok(),
            PUNCH_HOLE => self.volume.zero_steps(offset, end, |range| Operation::Discard { range }),
            ZERO_RANGE => self.volume.zero_steps(offset, end, |range| Operation::WriteZeroes {
                range,
                may_unmap: false,
            }),
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        self.volume.change(offset, end, steps, false, move |result| reply_empty(result, reply));
    }

    fn readdir(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if inode != ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let entries = [
            (ROOT, FileType::Directory, "."),
            (ROOT, FileType::Directory, ".."),
            (DISK, FileType::RegularFile, FILE_NAME),
        ];
        for (next, (inode, kind, name)) in (1..).zip(entries) {
            if next > offset && reply.add(inode, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _inode: INodeNo, reply: ReplyStatfs) {
        // A loop device takes its discard granularity from this block size.
        reply.statfs(self.volume.size_bytes / 4096, 0, 0, 1, 0, 4096, 255, 4096);
    }

    /// Only called on kernels that do not honour `default_permissions`.
    fn access(&self, _request: &Request, inode: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        if self.read_only && inode == DISK && mask.contains(AccessFlags::W_OK) {
            reply.error(Errno::EROFS);
        } else {
            reply.ok();
        }
    }

    // There is one file, and it stays.

    fn create(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::EPERM);
    }

    fn mknod(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _device: u32,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EPERM);
    }

    fn mkdir(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EPERM);
    }

    fn unlink(&self, _request: &Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rmdir(&self, _request: &Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rename(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _new_parent: INodeNo,
        _new_name: &OsStr,
        _flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EPERM);
    }
}

fn reply_empty(result: Result<(), RequestError>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

fn errno(error: RequestError) -> Errno {
    match error {
        RequestError::Io | RequestError::ShuttingDown => Errno::EIO,
        RequestError::NoSpace => Errno::ENOSPC,
        RequestError::ReadOnly => Errno::EROFS,
    }
}

// Changes of the volume at any byte.

/// The volume as the file system sees it: bytes, of which only whole blocks can be asked for.
struct Volume {
    submitter: Arc<dyn Submit>,
    locks: Arc<RangeLocks>,
    block_size: u32,
    size_bytes: u64,
}

/// A part of a change. The parts of one change are done one after the other.
#[derive(Debug)]
enum Step {
    /// An operation on whole blocks.
    Submit(Operation),
    /// Read the block, put `bytes` at offset `at` in it, write it back.
    Patch { block: LbaRange, at: usize, bytes: Vec<u8> },
}

/// Bytes cut at the borders of blocks; each part may be missing.
#[derive(Debug, PartialEq, Eq)]
struct Cut {
    head: Option<(u64, u64)>,
    whole: Option<LbaRange>,
    tail: Option<(u64, u64)>,
}

/// Told the result of a change.
type Done = Box<dyn FnOnce(Result<(), RequestError>) + Send>;

impl Volume {
    /// The whole blocks that hold the bytes `from..to`.
    fn blocks_around(&self, from: u64, to: u64) -> LbaRange {
        let block_size = u64::from(self.block_size);
        let start = from / block_size * block_size;
        let end = to.next_multiple_of(block_size);
        LbaRange::new(start / BLOCK_SIZE, (end - start) / BLOCK_SIZE)
    }

    /// Cuts the bytes `from..to` into a part of a block, whole blocks, and a part of a block.
    ///
    /// ```text
    /// block size 512:   from 500                      to 1600
    ///                   |12|        1 block          |64|
    ///                  500 512                     1536 1600
    /// ```
    fn cut(&self, from: u64, to: u64) -> Cut {
        let block_size = u64::from(self.block_size);
        let head_end = from.next_multiple_of(block_size).min(to);
        let tail_start = (to / block_size * block_size).max(head_end);
        let head = (from < head_end).then_some((from, head_end));
        let whole = (head_end < tail_start).then(|| self.blocks_around(head_end, tail_start));
        let tail = (tail_start < to).then_some((tail_start, to));
        Cut { head, whole, tail }
    }

    fn patch(&self, from: u64, bytes: Vec<u8>) -> Step {
        let block = self.blocks_around(from, from + bytes.len() as u64);
        Step::Patch { block, at: (from - block.start.byte()) as usize, bytes }
    }

    fn write_steps(&self, offset: u64, data: &[u8]) -> VecDeque<Step> {
        let Cut { head, whole, tail } = self.cut(offset, offset + data.len() as u64);
        let part = |from: u64, to: u64| &data[(from - offset) as usize..(to - offset) as usize];
        let head = head.map(|(from, to)| self.patch(from, part(from, to).to_vec()));
        let whole = whole.map(|range| {
            let data = part(range.start.byte(), range.start.byte() + range.bytes());
            Step::Submit(Operation::Write { start: range.start, data: Buffer::copy_of(data) })
        });
        let tail = tail.map(|(from, to)| self.patch(from, part(from, to).to_vec()));
        [head, whole, tail].into_iter().flatten().collect()
    }

    fn zero_steps(
        &self,
        from: u64,
        to: u64,
        whole_blocks: impl FnOnce(LbaRange) -> Operation,
    ) -> VecDeque<Step> {
        let Cut { head, whole, tail } = self.cut(from, to);
        let zeroes = |(from, to): (u64, u64)| self.patch(from, vec![0; (to - from) as usize]);
        let whole = whole.map(|range| Step::Submit(whole_blocks(range)));
        [head.map(zeroes), whole, tail.map(zeroes)].into_iter().flatten().collect()
    }

    /// Does the steps of a change of the bytes `from..to` and reports.
    ///
    /// Every change claims its blocks for as long as it lasts, one with a [`Step::Patch`] for
    /// itself alone: between its read and its write no other change may be under way in the block,
    /// or that one would be undone. Changes of whole blocks go on side by side, as on any disk.
    fn change(
        self: &Arc<Self>,
        from: u64,
        to: u64,
        steps: VecDeque<Step>,
        fua: bool,
        done: impl FnOnce(Result<(), RequestError>) + Send + 'static,
    ) {
        let exclusive = steps.iter().any(|step| matches!(step, Step::Patch { .. }));
        let claim = Claim { range: self.blocks_around(from, to), exclusive };
        let volume = self.clone();
        self.locks.claim(
            claim,
            Box::new(move |held| {
                volume.run(
                    steps,
                    fua,
                    Box::new(move |result| {
                        // The client may send its next request as soon as it has the answer; it
                        // should not find its own claim in the way.
                        drop(held);
                        done(result);
                    }),
                );
            }),
        );
    }

    fn run(self: Arc<Self>, mut steps: VecDeque<Step>, fua: bool, done: Done) {
        let Some(step) = steps.pop_front() else { return done(Ok(())) };
        let submitter = self.submitter.clone();
        match step {
            Step::Submit(operation) => submitter.submit(
                operation,
                fua,
                Box::new(move |answer| match answer.result {
                    Ok(()) => self.run(steps, fua, done),
                    Err(error) => done(Err(error)),
                }),
            ),
            Step::Patch { block, at, bytes } => submitter.submit(
                Operation::Read { range: block },
                false,
                Box::new(move |answer| {
                    if let Err(error) = answer.result {
                        return done(Err(error));
                    }
                    let mut data = answer.buffer.expect("the data of a read that succeeded");
                    data.bytes_mut()[at..at + bytes.len()].copy_from_slice(&bytes);
                    let start: Lba = block.start;
                    steps.push_front(Step::Submit(Operation::Write { start, data }));
                    self.run(steps, fua, done);
                }),
            ),
        }
    }
}

// Who may change which blocks.

/// What a change wants: these blocks, together with others or alone.
#[derive(Clone, Copy, Debug)]
struct Claim {
    range: LbaRange,
    exclusive: bool,
}

impl Claim {
    fn conflicts(self, other: Claim) -> bool {
        (self.exclusive || other.exclusive) && self.range.overlaps(other.range)
    }
}

/// The changes under way and those that wait for them, in order of arrival.
#[derive(Default)]
struct RangeLocks {
    state: Mutex<LockState>,
}

#[derive(Default)]
struct LockState {
    next_ticket: u64,
    held: BTreeMap<u64, Claim>,
    waiting: VecDeque<Waiting>,
    /// Exclusive claims among both; while there are none, nobody has to wait or to search.
    exclusive_count: usize,
}

struct Waiting {
    ticket: u64,
    claim: Claim,
    start: Box<dyn FnOnce(Held) + Send>,
}

/// A claim that has been granted; dropping it gives it back, also when the completion that owns it
/// is dropped uncalled because the event loop has gone.
struct Held {
    locks: Arc<RangeLocks>,
    ticket: u64,
}

impl RangeLocks {
    fn lock(&self) -> MutexGuard<'_, LockState> {
        // No code that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `start` once the claim is granted: now, or when an earlier one is given back.
    fn claim(self: &Arc<Self>, claim: Claim, start: Box<dyn FnOnce(Held) + Send>) {
        let mut state = self.lock();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.exclusive_count += usize::from(claim.exclusive);
        // Waiting ones count as well: who came first goes first, so nobody waits for ever.
        let blocked = state.exclusive_count > 0
            && (state.held.values().any(|held| claim.conflicts(*held))
                || state.waiting.iter().any(|earlier| claim.conflicts(earlier.claim)));
        if blocked {
            state.waiting.push_back(Waiting { ticket, claim, start });
        } else {
            state.held.insert(ticket, claim);
            drop(state);
            start(Held { locks: self.clone(), ticket });
        }
    }
}

impl LockState {
    /// Moves those whose turn has come from the waiting to the held.
    fn grant(&mut self) -> Vec<Waiting> {
        let mut granted = Vec::new();
        let mut still_waiting = VecDeque::new();
        for waiting in std::mem::take(&mut self.waiting) {
            let blocked = self.held.values().any(|held| waiting.claim.conflicts(*held))
                || still_waiting
                    .iter()
                    .any(|earlier: &Waiting| waiting.claim.conflicts(earlier.claim));
            if blocked {
                still_waiting.push_back(waiting);
            } else {
                self.held.insert(waiting.ticket, waiting.claim);
                granted.push(waiting);
            }
        }
        self.waiting = still_waiting;
        granted
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let granted = {
            let mut state = self.locks.lock();
            if let Some(claim) = state.held.remove(&self.ticket) {
                state.exclusive_count -= usize::from(claim.exclusive);
            }
            if state.waiting.is_empty() { Vec::new() } else { state.grant() }
        };
        for waiting in granted {
            (waiting.start)(Held { locks: self.locks.clone(), ticket: waiting.ticket });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nowhere;

    impl Submit for Nowhere {
        fn submit(&self, _: Operation, _: bool, _: Box<dyn FnOnce(dcd_engine::io::Reply) + Send>) {}
    }

    fn volume(block_size: u32) -> Volume {
        let submitter = Arc::new(Nowhere);
        Volume { submitter, locks: Arc::default(), block_size, size_bytes: 1 << 20 }
    }

    #[test]
    fn cuts_at_blocks() {
        let whole = |start, blocks| Some(LbaRange::new(start, blocks));
        let cut = |head, whole, tail| Cut { head, whole, tail };
        let small = volume(512);
        assert_eq!(small.cut(500, 1600), cut(Some((500, 512)), whole(1, 2), Some((1536, 1600))));
        assert_eq!(small.cut(512, 1536), cut(None, whole(1, 2), None));
        assert_eq!(small.cut(10, 20), cut(Some((10, 20)), None, None));
        assert_eq!(small.cut(510, 514), cut(Some((510, 512)), None, Some((512, 514))));
        assert_eq!(small.cut(512, 514), cut(None, None, Some((512, 514))));
        let large = volume(4096);
        assert_eq!(large.cut(512, 8192), cut(Some((512, 4096)), whole(8, 8), None));
        assert_eq!(large.blocks_around(4095, 4097), LbaRange::new(0, 16));
    }

    /// Names of the claims in the order in which they are granted; `Held` are kept by name.
    type Granted = Arc<Mutex<Vec<(u32, Held)>>>;

    fn claim(locks: &Arc<RangeLocks>, granted: &Granted, name: u32, start: u64, exclusive: bool) {
        let granted = granted.clone();
        let claim = Claim { range: LbaRange::new(start, 2), exclusive };
        locks.claim(claim, Box::new(move |held| granted.lock().unwrap().push((name, held))));
    }

    fn give_back(granted: &Granted, name: u32) {
        let mut list = granted.lock().unwrap();
        let index = list.iter().position(|(n, _)| *n == name).expect("it was granted");
        let (_, held) = list.remove(index);
        drop(list); // the next one puts itself on the list
        drop(held);
    }

    fn names(granted: &Granted) -> Vec<u32> {
        granted.lock().unwrap().iter().map(|(name, _)| *name).collect()
    }

    //  block:    0 1 2 3 4
    //  1 shared  1 1
    //  2 shared  2 2              with 1
    //  3 alone     3 3            after 1 and 2
    //  4 shared      4 4          after 3, though neither 1 nor 2 is in its way
    //  5 alone           5 5 ..   at once
    #[test]
    fn claims_are_granted_in_order() {
        let locks = Arc::<RangeLocks>::default();
        let granted = Granted::default();
        claim(&locks, &granted, 1, 0, false);
        claim(&locks, &granted, 2, 0, false);
        claim(&locks, &granted, 3, 1, true);
        claim(&locks, &granted, 4, 2, false);
        claim(&locks, &granted, 5, 4, true);
        assert_eq!(names(&granted), [1, 2, 5]);
        give_back(&granted, 1);
        assert_eq!(names(&granted), [2, 5]);
        give_back(&granted, 2);
        assert_eq!(names(&granted), [5, 3]);
        give_back(&granted, 3);
        assert_eq!(names(&granted), [5, 4]);
        give_back(&granted, 4);
        give_back(&granted, 5);
        let state = locks.lock();
        assert!(state.held.is_empty() && state.waiting.is_empty());
        assert_eq!(state.exclusive_count, 0);
    }
}
