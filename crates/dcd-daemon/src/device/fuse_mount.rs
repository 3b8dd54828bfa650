//! The mount point of a FUSE file system: making it, clearing away what a dead daemon left,
//! unmounting. As root by system calls, as another user by fusermount3.
//!
//! Tests: `tests/fuse.rs`, on real mounts.

use std::ffi::CString;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags};
use rustix::io::Errno as SystemError;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::device::fuse_error::FuseError;
use crate::process::descriptors::receive_descriptors;

/// Name of the one file in it.
pub const FILE_NAME: &str = "disk";

/// Makes sure that nothing is mounted at `directory`, removing what a dead daemon left.
pub(crate) fn clear_directory(directory: &Path) -> Result<(), FuseError> {
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
pub(crate) fn means_dead(error: SystemError) -> bool {
    matches!(error, SystemError::NOTCONN | SystemError::CONNABORTED | SystemError::CONNREFUSED)
}

/// Mounts and returns the connection to the kernel: directly when we may, by fusermount3 when not.
pub(crate) fn connect(directory: &Path, read_only: bool) -> Result<OwnedFd, FuseError> {
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

    let received = receive_descriptors(&ours).unwrap_or_default().into_iter().next();
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

/// Why an unmount failed, before it is known what for.
pub(crate) enum UnmountError {
    System(SystemError),
    MissingFusermount(io::Error),
    Fusermount(String),
}

impl UnmountError {
    pub(crate) fn at(self, directory: PathBuf) -> FuseError {
        match self {
            UnmountError::System(source) => FuseError::Unmount { directory, source: source.into() },
            UnmountError::MissingFusermount(source) => FuseError::MissingFusermount { source },
            UnmountError::Fusermount(message) => FuseError::Fusermount { directory, message },
        }
    }
}

pub(crate) fn unmount_now(directory: &Path) -> Result<(), UnmountError> {
    match rustix::mount::unmount(directory, UnmountFlags::NOFOLLOW) {
        Err(SystemError::PERM) => unmount_by_fusermount(directory, "-u"),
        result => result.map_err(UnmountError::System),
    }
}

pub(crate) fn unmount_lazily(directory: &Path) -> Result<(), FuseError> {
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
