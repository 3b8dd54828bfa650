//! The volume as the one file `disk` of a small FUSE file system.
//!
//! Reads and writes are not answered here: each becomes an `Operation` for the event loop, and
//! the FUSE reply travels in the completion. The session thread only takes requests from the
//! kernel, so many are in flight at once and nothing waits for a disk.
//!
//! Rules:
//!
//! 1. The kernel keeps no copy of the data (`FOPEN_DIRECT_IO`, no write-back cache): what a client
//!    was told is written has been acknowledged by the engine, and `fsync` is an
//!    `Operation::Flush`.
//! 2. The file keeps its size. Writes are cut at the end; beyond it is `ENOSPC`.
//! 3. Clients may use any offset and length. What is not whole blocks is read, changed and written
//!    back under [`range_locks`], so that two writers of one block cannot undo each other. Loop
//!    devices never need that; `dd` may.
//!
//! Errors of the engine as `errno`: `Io` is `EIO`, `NoSpace` `ENOSPC`, `ReadOnly`
//! `EROFS`, and `ShuttingDown` `EIO` too, because `ESHUTDOWN` is a socket error that no file system
//! or database above expects.
//!
//! After a `kill -9` of the daemon the kernel answers everything on the mount with `ENOTCONN`
//! (requests under way: `ECONNABORTED`) until it is unmounted. [`mount`] clears such a mount away
//! before it makes its own; loop devices on it are for
//! [`crate::device::loop_device::detach_stale`], which has to run *before* [`mount`].
//!
//! A process must not use its own mount: when it is killed while one of its threads waits for an
//! answer from another, the kernel waits for ever. Hence nothing in here touches the mounted file.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | [`mount`], [`FuseMount`]: from directory to session and back |
//! | `file_system.rs` | requests of the kernel and their answers |
//! | `volume.rs` | bytes to whole blocks: read, change, write back |
//! | `range_locks.rs` | which changes have to wait for which |
//!
//! Below it, in [`crate::device`]: `fuse_mount.rs`, the system calls, or fusermount3, for that, and
//! `fuse_error.rs`, [`FuseError`] and its hints.
//!
//! Tests: `tests/fuse.rs` (real mounts, in a process of their own), and at the end of the files.

pub(crate) mod thread;

mod file_system;
mod range_locks;
mod volume;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use dcd_engine::units::BLOCK_SIZE;
use fuser::{BackgroundSession, Config, Session, SessionACL};
use rustix::io::Errno as SystemError;

use self::file_system::DiskFileSystem;
use self::volume::Volume;
use super::Submit;
use crate::caretaker;
pub use crate::device::fuse_error::FuseError;
pub use crate::device::fuse_mount::FILE_NAME;
use crate::device::fuse_mount::{self, UnmountError, clear_directory, connect};

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
    trim: bool,
    submitter: Arc<dyn Submit>,
) -> Result<FuseMount, FuseError> {
    assert!(block_size.is_power_of_two());
    assert!(u64::from(block_size) >= BLOCK_SIZE);
    assert!(size_bytes.is_multiple_of(u64::from(block_size)));

    serve(
        MountPoint::make(directory, read_only)?,
        size_bytes,
        block_size,
        read_only,
        trim,
        submitter,
    )
}

/// A mount that nobody serves yet: whoever looks there waits. Dropping it takes it away.
#[derive(Debug)]
pub(crate) struct MountPoint {
    directory: PathBuf,
    device: Option<OwnedFd>,
}

impl MountPoint {
    /// The first half of [`mount`]: what takes rights.
    pub(crate) fn make(directory: &Path, read_only: bool) -> Result<MountPoint, FuseError> {
        clear_directory(directory)?;
        let directory = directory
            .canonicalize()
            .map_err(|source| FuseError::Directory { directory: directory.to_owned(), source })?;
        let device = connect(&directory, read_only)?;
        Ok(MountPoint { directory, device: Some(device) })
    }

    /// Where it is.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for MountPoint {
    fn drop(&mut self) {
        if self.device.is_some() {
            let _ = unmount_lazily(&self.directory);
        }
    }
}

/// The second half: answers the kernel.
pub(crate) fn serve(
    mut point: MountPoint,
    size_bytes: u64,
    block_size: u32,
    read_only: bool,
    trim: bool,
    submitter: Arc<dyn Submit>,
) -> Result<FuseMount, FuseError> {
    let directory = point.directory.clone();
    let device = point.device.take().expect("it is taken once");
    let file_system = DiskFileSystem {
        volume: Arc::new(Volume { submitter, locks: Arc::default(), block_size, size_bytes }),
        read_only,
        trim,
        mounted_at: SystemTime::now(),
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
    };
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

/// Takes the mount away; whoever has given up his rights has that done.
fn unmount_now(directory: &Path) -> Result<(), UnmountError> {
    caretaker::unmount(false).unwrap_or_else(|| fuse_mount::unmount_now(directory))
}

/// The same, while somebody still uses it.
fn unmount_lazily(directory: &Path) -> Result<(), FuseError> {
    match caretaker::unmount(true) {
        Some(unmounted) => unmounted.map_err(|error| error.at(directory.to_owned())),
        None => fuse_mount::unmount_lazily(directory),
    }
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

    /// The file, for [`crate::device::loop_device::attach`].
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
