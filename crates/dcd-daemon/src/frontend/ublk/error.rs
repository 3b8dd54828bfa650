//! Why there is no ublk device, with what to do about it.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

use super::uapi::{ATTRIBUTE_READ_ONLY, Basic, CONTROL_PATH};

/// Why a device cannot be made, taken over or removed.
#[derive(Debug, thiserror::Error)]
pub enum UblkError {
    /// The driver cannot be talked to.
    #[error("cannot open {CONTROL_PATH}: {source}")]
    Control {
        /// Why not.
        source: io::Error,
    },
    /// No ring for commands.
    #[error("cannot make an io_uring for commands: {source}")]
    Ring {
        /// Why not.
        source: io::Error,
    },
    /// A driver that cannot do what is needed.
    #[error("the ublk driver of Linux {release} lacks {missing}")]
    TooOld {
        /// The kernel.
        release: String,
        /// What it cannot do.
        missing: &'static str,
    },
    /// A kernel that is known to crash or hang.
    #[error("Linux {release} is not used for ublk: {reason}")]
    BadKernel {
        /// The kernel.
        release: String,
        /// What it does.
        reason: &'static str,
    },
    /// The driver refused.
    #[error("cannot {operation} ublk device {}: {errno}", name(*number))]
    Command {
        /// What was tried.
        operation: &'static str,
        /// Its number.
        number: Option<u32>,
        /// Why not.
        errno: Errno,
    },
    /// The driver does not answer.
    #[error("cannot {operation} ublk device {}: no answer within {seconds} s", name(*number))]
    TimedOut {
        /// What was tried.
        operation: &'static str,
        /// Its number.
        number: Option<u32>,
        /// The patience.
        seconds: u64,
    },
    /// The files of a device cannot be used.
    #[error("cannot {operation} {}: {source}", path.display())]
    File {
        /// What was tried.
        operation: &'static str,
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Somebody serves it.
    #[error("ublk device {number} is served by process {pid}")]
    Served {
        /// Its number.
        number: u32,
        /// Who.
        pid: i32,
    },
    /// Not a device of this cache.
    #[error("ublk device {number} belongs to something else than this cache")]
    Foreign {
        /// Its number.
        number: u32,
    },
    /// It was made for a volume of another size.
    #[error("ublk device {number} has {found} blocks of 512 bytes, the volume has {expected} now")]
    Size {
        /// Its number.
        number: u32,
        /// Of the volume.
        expected: u64,
        /// Of the device.
        found: u64,
    },
    /// It was made for a volume of another kind.
    #[error("ublk device {number} was made {found}, the volume is {expected} now")]
    Kind {
        /// Its number.
        number: u32,
        /// The volume.
        expected: DeviceKind,
        /// The device.
        found: DeviceKind,
    },
}

/// What users of a device are told of it when it is made, beside its size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceKind {
    /// Nobody may write to it.
    pub is_read_only: bool,
    /// Smallest request, in bytes.
    pub block_size: u32,
}

impl DeviceKind {
    pub(super) fn of(basic: &Basic) -> DeviceKind {
        DeviceKind {
            is_read_only: basic.attributes & ATTRIBUTE_READ_ONLY != 0,
            block_size: 1u32.checked_shl(basic.logical_block_shift.into()).unwrap_or(0),
        }
    }
}

impl std::fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let access = if self.is_read_only { "for reading only" } else { "for reading and writing" };
        write!(f, "{access}, in blocks of {} bytes", self.block_size)
    }
}

fn name(number: Option<u32>) -> String {
    number.map_or("with a new number".into(), |number| number.to_string())
}

impl UblkError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            UblkError::Control { source } => match source.kind() {
                io::ErrorKind::NotFound => {
                    "modprobe ublk_drv (Linux 6.5 or newer with CONFIG_BLK_DEV_UBLK); without it use --nbd or --fuse"
                        .into()
                }
                io::ErrorKind::PermissionDenied => "run as root, or use --nbd".into(),
                _ => return None,
            },
            UblkError::Ring { .. } => {
                "io_uring may be switched off: sysctl kernel.io_uring_disabled, or the seccomp filter of a container"
                    .into()
            }
            UblkError::TooOld { .. } => "use Linux 6.5 or newer, or --nbd or --fuse".into(),
            UblkError::BadKernel { .. } => {
                "boot another kernel (docs/ublk.md lists those tested), or use --nbd or --fuse".into()
            }
            UblkError::Command { errno: Errno::PERM | Errno::ACCESS, .. } => {
                "ublk needs root (CAP_SYS_ADMIN)".into()
            }
            UblkError::Command { errno: Errno::EXIST, .. } => {
                "choose another number, or none: --ublk".into()
            }
            UblkError::Command { .. } => "see dmesg".into(),
            UblkError::TimedOut { .. } => {
                "see dmesg; a disk below that does not answer also holds up the device".into()
            }
            UblkError::File { operation: "map" | "flush", .. } => "see dmesg".into(),
            UblkError::File { .. } => "is devtmpfs mounted at /dev?".into(),
            UblkError::Served { pid, .. } => {
                format!("stop it (kill {pid}), or choose another number")
            }
            UblkError::Foreign { number } => format!(
                "choose another number, or none: --ublk; if nothing will serve that one again: dcd ublk remove {number}"
            ),
            UblkError::Size { number, .. } | UblkError::Kind { number, .. } => format!(
                "unmount what is on /dev/ublkb{number}, then remove it: dcd ublk remove {number}; it is made anew by the \
                 next start"
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_driver_is_told_from_a_missing_right() {
        let hint = |kind: io::ErrorKind| UblkError::Control { source: kind.into() }.hint().unwrap();
        assert!(hint(io::ErrorKind::NotFound).contains("modprobe ublk_drv"));
        assert!(hint(io::ErrorKind::PermissionDenied).contains("root"));
    }

    #[test]
    fn errors_name_the_device() {
        let error = UblkError::Command { operation: "make", number: None, errno: Errno::PERM };
        assert!(error.to_string().starts_with("cannot make ublk device with a new number: "));
        assert!(error.hint().unwrap().contains("root"));
        let error = UblkError::Served { number: 3, pid: 7 };
        assert_eq!(error.to_string(), "ublk device 3 is served by process 7");
    }
}
