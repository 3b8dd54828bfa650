//! Why there is no segment memory, and what to do about it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dcd_engine::Uuid;
use rustix::io::Errno;

use crate::units_text::format_duration;

/// Why there is no segment memory.
#[derive(Debug, thiserror::Error)]
pub enum SegmentMemoryError {
    /// The system refused.
    #[error("cannot {operation} the segment memory {}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What was tried.
        operation: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// Not a private regular file of ours.
    #[error("the segment memory {} is not ours: expected {expected}, found {found}", path.display())]
    NotOurs {
        /// Which file.
        path: PathBuf,
        /// What it should be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// It is another user's.
    #[error("the segment memory {} is of user {owner}", path.display())]
    OfUser {
        /// Which file.
        path: PathBuf,
        /// Whose.
        owner: u32,
    },
    /// Another process uses it.
    #[error("another process uses the segment memory {}", path.display())]
    InUse {
        /// Which file.
        path: PathBuf,
    },
    /// It holds writes, but has a size that no run of this cache can have given it.
    #[error(
        "the segment memory {} has {found} bytes, which no dcd gave it; it may hold acknowledged writes",
        path.display()
    )]
    Size {
        /// Which file.
        path: PathBuf,
        /// Size found.
        found: u64,
    },
    /// The last session acknowledged from memory, and this boot is the same: somewhere it must be.
    #[error(
        "the segment memory of the last session is not found; what it acknowledged in its last {} and no flush \
         has covered may be nowhere else. Looked at: {}",
        format_duration(*delay),
        Listed(looked)
    )]
    Lost {
        /// Of which cache.
        uuid: Uuid,
        /// Where was looked, and what is there.
        looked: Vec<Looked>,
        /// How old what is lost can be.
        delay: Duration,
    },
}

/// A place that was looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Looked {
    /// Which.
    pub place: String,
    /// What is there.
    pub found: String,
    /// Of another user, from whom nothing is taken there.
    pub of_user: Option<u32>,
}

impl fmt::Display for Looked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.place, self.found)
    }
}

struct Listed<'a>(&'a [Looked]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, looked) in self.0.iter().enumerate() {
            write!(f, "{}{looked}", if index > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

impl SegmentMemoryError {
    /// The system refused.
    pub(crate) fn io(path: &Path, operation: &'static str, errno: Errno) -> SegmentMemoryError {
        SegmentMemoryError::Io { path: path.to_owned(), operation, source: errno.into() }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            SegmentMemoryError::Io { operation: "reserve", .. } => {
                "make room in that directory (df), or name another with --memory-directory".into()
            }
            SegmentMemoryError::Io { .. } => {
                "the directory must exist and be writable; name another with --memory-directory"
                    .into()
            }
            SegmentMemoryError::NotOurs { path, .. } => format!(
                "somebody else made {}; name another directory, of your own, with --memory-directory",
                path.display()
            ),
            SegmentMemoryError::OfUser { path, owner } => format!(
                "if dcd ran as user {owner}, {} holds writes that are nowhere else: keep it, and run the same as user \
                 {owner}, or as root",
                path.display()
            ),
            SegmentMemoryError::InUse { path } => format!(
                "another daemon runs with a copy of this cache: fuser -v {}",
                path.display()
            ),
            SegmentMemoryError::Size { path, .. } => format!(
                "somebody has cut or extended it: restore it if you can; moving {} away gives up what \
                 was acknowledged and not flushed",
                path.display()
            ),
            SegmentMemoryError::Lost { uuid, looked, .. } => {
                let of_user = looked.iter().find_map(|it| Some((it.of_user?, &it.place)));
                match of_user {
                    Some((owner, place)) => format!(
                        "if dcd ran as user {owner}, {place} holds writes that are nowhere else: keep it, and run the \
                         same as user {owner}, or as root. If it is somebody else's, find dcd-{uuid}.segments \
                         (`dcd list` as root). Only if it is gone, --memory-lost goes on as after a power cut"
                    ),
                    None => format!(
                        "find dcd-{uuid}.segments (`dcd list` as root) and give its directory with --memory-directory, \
                         as the user that owns it or as root; a container needs the directory that the last one had. \
                         If it is gone, --memory-lost goes on as after a power cut: all that was flushed is there"
                    ),
                }
            }
        })
    }
}
