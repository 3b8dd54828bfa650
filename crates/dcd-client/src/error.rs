//! What can go wrong, and what to do about it.

use std::io;
use std::path::PathBuf;

use dcd_block::errors::VolumeError;
use dcd_protocol::Code;
use dcd_protocol::failure::volume_hint;

use crate::server::PATIENCE;

/// What to do about a server that is there and says nothing.
pub const SILENT_HINT: &str = "it was stopped (`kill -CONT` lets it go on), it hangs, or it is still opening its disks; what it \
     was asked for it may still do when it goes on";
/// What to do about a server of somebody else.
pub const STRANGER_HINT: &str = "servers are root's, your own, or of a user whom root has given the folder of the socket; keep sockets \
     where nobody else may write, such as /run/dcd, not in /tmp";

/// Why a device does not do what it is asked for.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// Nobody is there.
    #[error("no daemon answers at {}: {source}", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The connection broke, now or before.
    #[error("the daemon at {} does not answer any more: {source}", path.display())]
    Broken {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is there and says nothing.
    #[error("the daemon at {} says nothing for {} s", path.display(), PATIENCE.as_secs())]
    Silent {
        /// The socket.
        path: PathBuf,
    },
    /// Somebody else has made the socket.
    #[error("the server at {} belongs to user {uid}, whose word counts for nothing here", path.display())]
    Stranger {
        /// The socket.
        path: PathBuf,
        /// The user.
        uid: u32,
    },
    /// What came is no answer.
    #[error("expected an answer of dcd at {}, found {found:?}", path.display())]
    Answer {
        /// The socket.
        path: PathBuf,
        /// What came, cut short.
        found: String,
    },
    /// The daemon says no, for a reason of the volume.
    #[error("{0}")]
    Volume(VolumeError),
    /// The daemon says no.
    #[error("{error}")]
    Refused {
        /// What kind of a refusal it is, if it says that.
        code: Option<Code>,
        /// What it says.
        error: String,
        /// What it advises.
        hint: Option<String>,
    },
    /// The disks failed, or the volume has no room for what was written.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// A block that is not there, or not a whole one.
    #[error("blocks {first} to {end} are not on a device of {blocks} blocks")]
    Range {
        /// The first.
        first: u64,
        /// One behind the last.
        end: u64,
        /// How many there are.
        blocks: u64,
    },
}

impl DeviceError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            DeviceError::Connect { source, .. } => match source.kind() {
                io::ErrorKind::InvalidInput => "the path of a socket has at most 107 bytes".into(),
                io::ErrorKind::PermissionDenied => "use sudo, or the user of the daemon".into(),
                _ => "is `dcd serve` running, with this --control socket and --nbd unix:SOCKET?"
                    .into(),
            },
            DeviceError::Broken { .. } => "see the daemon's messages".into(),
            DeviceError::Silent { .. } => SILENT_HINT.into(),
            DeviceError::Stranger { .. } => STRANGER_HINT.into(),
            DeviceError::Answer { .. } => {
                "is it another program's socket, or another version of dcd?".into()
            }
            DeviceError::Volume(VolumeError::NoVolume) => {
                "make the cache with `dcd create --volume CONFIG.toml`".into()
            }
            DeviceError::Volume(VolumeError::NoRoom) => {
                "remove files, or add room to the volume".into()
            }
            // The program that asked knows what to do; what helps a person at the command would
            // mislead here.
            DeviceError::Volume(
                VolumeError::NoPointer { .. }
                | VolumeError::PointerExists { .. }
                | VolumeError::NotAllocated(_)
                | VolumeError::NoPointerRoom,
            )
            | DeviceError::Range { .. } => return None,
            DeviceError::Volume(error) => volume_hint(*error).into(),
            DeviceError::Refused { hint, .. } => return hint.clone(),
            DeviceError::Io { .. } => "see `dcd status` and the daemon's messages".into(),
        })
    }

    /// Whether there is no room, and nothing else is wrong.
    pub fn is_no_room(&self) -> bool {
        match self {
            DeviceError::Volume(error) => {
                matches!(error, VolumeError::NoRoom | VolumeError::NoPointerRoom)
            }
            DeviceError::Io { source, .. } => source.kind() == io::ErrorKind::StorageFull,
            _ => false,
        }
    }
}
