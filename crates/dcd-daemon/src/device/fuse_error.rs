//! Why mounting and unmounting fail, and what to do about it.

use std::io;
use std::path::PathBuf;

use crate::device::fuse_mount::FILE_NAME;

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
