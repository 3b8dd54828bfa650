//! What can go wrong, as errors of Linux for programs and in words for people.

use dcd_client::DeviceError;

use crate::format::FormatError;

/// Why something cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum FsError {
    /// What a program asked for cannot be; the number is that of Linux.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    Refused(i32),
    /// The device does not do what it should.
    #[error("{0}")]
    Device(#[from] DeviceError),
    /// What is on the device makes no sense.
    #[error("block {block} is damaged: {source}")]
    Damaged {
        /// Where.
        block: u64,
        /// What is wrong.
        source: FormatError,
    },
    /// There is no file system.
    #[error("there is no dhisfs on this volume: {source}")]
    NotThere {
        /// What is there instead.
        source: FormatError,
    },
    /// There is one, or something else.
    #[error("the volume is in use: its first block is allocated")]
    InUse,
    /// Blocks that are too small or too large.
    #[error("blocks of {found} bytes cannot be used, only from {min} to {max}", min = crate::format::BLOCK_BYTES_MIN, max = crate::format::BLOCK_BYTES_MAX)]
    BlockBytes {
        /// The size of an extent.
        found: usize,
    },
    /// The volume is too small for a journal and files.
    #[error("a volume of {found} blocks is too small, it needs {wanted}")]
    TooSmall {
        /// What there is.
        found: u64,
        /// What is needed.
        wanted: u64,
    },
    /// The volume has room for too few pointers.
    #[error("a volume with room for {found} pointers is too small, it needs {wanted}")]
    TooFewPointers {
        /// What there is room for.
        found: u64,
        /// What is needed.
        wanted: u64,
    },
    /// What is in the journal makes more pointers than the volume has room for.
    #[error("the volume has room for {room} pointers, and {missing} of the file system find none")]
    PointerRoom {
        /// Those without room.
        missing: u64,
        /// Room for all.
        room: u64,
    },
    /// The volume takes no changes.
    #[error("the volume is served read-only")]
    ReadOnlyDevice,
    /// Somebody else uses it.
    #[error("another `dcd dhisfs` uses this file system")]
    Busy,
    /// Whether somebody else uses it cannot be told.
    #[error("cannot find out whether somebody else uses it: {source}")]
    Lock {
        /// Why not.
        source: std::io::Error,
    },
    /// These blocks are needed first: they are read while others go on, and then it is done anew.
    /// Nobody sees it.
    #[error("blocks {blocks:?} have to be read first")]
    NotInMemory {
        /// Which.
        blocks: Vec<u64>,
    },
    /// It can only be done while nobody else is at work. Nobody sees it.
    #[error("it can only be done while nobody else is at work")]
    Alone,
    /// What was done before has to be written first. Nobody sees it.
    #[error("what was done before has to be written first")]
    Later,
    /// An earlier error has left what is in memory and what is on the device apart.
    #[error("nothing is written any more after an earlier error")]
    Stopped,
}

impl FsError {
    /// The number of the error, as programs see it.
    pub fn errno(&self) -> i32 {
        match self {
            FsError::Refused(errno) => *errno,
            FsError::Device(error) if error.is_no_room() => libc::ENOSPC,
            FsError::Stopped | FsError::ReadOnlyDevice => libc::EROFS,
            _ => libc::EIO,
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            FsError::Device(error) => return error.hint(),
            FsError::Refused(_) | FsError::NotInMemory { .. } | FsError::Alone | FsError::Later => {
                return None;
            }
            FsError::Damaged { .. } => {
                "`dcd dhisfs fsck --repair` mends what it can, which superblock, index and both headers of the journal are \
                 not: then restore from a backup"
                    .into()
            }
            FsError::NotThere { .. } => "make one with `dcd dhisfs mkfs`".into(),
            FsError::InUse => {
                "`dcd dhisfs mkfs --force` frees all blocks that were allocated, and begins anew"
                    .into()
            }
            FsError::BlockBytes { .. } => {
                "make the volume with `extent = \"4k\"` in its configuration".into()
            }
            FsError::TooSmall { .. } => "use a larger volume, or smaller extents".into(),
            FsError::TooFewPointers { wanted, .. } => {
                format!("make room: `dcd volume set --pointers {}`", wanted.next_multiple_of(1024))
            }
            FsError::PointerRoom { missing, room } => format!(
                "nothing is lost: `dcd dhisfs fsck --repair` makes room and goes on, so does `dcd volume set --pointers {}`; \
                 until then `dcd dhisfs mount --read-only` shows all files",
                (room + missing + 2 * crate::pointers::kept(*room)).next_multiple_of(1024)
            ),
            FsError::ReadOnlyDevice => {
                "`dcd dhisfs mount` shows what is there; to change it, serve it without --read-only"
                    .into()
            }
            FsError::Busy => "unmount it, and wait until that `dcd dhisfs mount` has ended".into(),
            FsError::Lock { .. } => "is it the --control socket of a running dcd?".into(),
            FsError::Stopped => "see the messages, unmount, and mount again".into(),
        })
    }
}

/// What things that can go wrong give.
pub type FsResult<T> = Result<T, FsError>;

/// Refuses with a number of Linux.
pub(crate) fn refuse<T>(errno: i32) -> FsResult<T> {
    Err(FsError::Refused(errno))
}
