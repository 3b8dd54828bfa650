//! The kernel's requests: every one is a call of [`FileSystem`], some at a time (`shared.rs`).
//!
//! The kernel keeps what it has read and looked up: nobody else changes anything. What was written
//! is here when the program that wrote it is told so, and durable after `fsync`, `sync`, or the
//! interval of [`MountHandle`]'s thread.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | [`mount`], [`MountHandle`]: from file system to mount and back |
//! | `durable.rs` | the thread that makes things durable, and answers who waits for that |
//! | `requests.rs` | requests and their answers |

mod durable;
mod requests;

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use dcd_client::BlockDevice;
use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use rustix::mount::UnmountFlags;

use crate::error::FsError;
use crate::file_system::FileSystem;
use crate::shared::Shared;
use durable::Committer;
use requests::Requests;

pub use crate::shared::Connections;

/// How to show it to programs.
#[derive(Clone, Debug)]
pub struct FuseOptions {
    /// Whether other users may use it.
    pub allow_other: bool,
    /// What was done is durable after this time, asked for or not.
    pub commit_interval: Duration,
    /// Every change is durable before a program is told that it is done.
    pub synchronous: bool,
}

impl Default for FuseOptions {
    fn default() -> FuseOptions {
        FuseOptions {
            allow_other: false,
            commit_interval: Duration::from_secs(5),
            synchronous: false,
        }
    }
}

/// Why it cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub enum FuseError {
    /// The kernel does not want to.
    #[error("cannot mount on {}: {source}", directory.display())]
    Mount {
        /// Where.
        directory: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// What was done could not be made durable at the end.
    #[error("{0}")]
    FileSystem(#[from] FsError),
}

impl FuseError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            FuseError::Mount { source, .. } => Some(match source.kind() {
                io::ErrorKind::NotFound => {
                    "the directory must exist, and /dev/fuse or fusermount3".into()
                }
                io::ErrorKind::NotADirectory => "give a directory that exists".into(),
                io::ErrorKind::NotConnected => "unmount what is there: `fusermount3 -u`".into(),
                _ => "use sudo, or install fusermount3".into(),
            }),
            FuseError::FileSystem(error) => error.hint(),
        }
    }
}

/// So many requests at once. Those that wait until something is durable do not count.
const THREADS: usize = 8;

/// A mounted file system. It ends with [`MountHandle::unmount`], or when somebody else unmounts it.
pub struct MountHandle<D> {
    directory: PathBuf,
    session: BackgroundSession,
    shared: Arc<Shared<D>>,
    committer: Committer,
}

/// Mounts a file system on a directory. `connections` are more to the same device.
pub fn mount<D: BlockDevice + 'static>(
    file_system: FileSystem<D>,
    connections: Connections<D>,
    directory: &Path,
    options: &FuseOptions,
) -> Result<MountHandle<D>, FuseError> {
    let failed = |source| FuseError::Mount { directory: directory.to_owned(), source };
    clear_stale(directory);
    // The kernel takes a file, too, and everything there ends in EIO.
    if std::fs::metadata(directory).is_ok_and(|it| !it.is_dir()) {
        return Err(failed(io::Error::from_raw_os_error(libc::ENOTDIR)));
    }
    let shared = Arc::new(Shared::new(file_system, connections));
    let committer =
        Committer::start(Arc::clone(&shared), options.commit_interval).map_err(failed)?;
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("dhisfs".into()),
        MountOption::Subtype("dhisfs".into()),
        MountOption::DefaultPermissions,
        MountOption::NoAtime,
    ];
    if shared.is_read_only() {
        config.mount_options.push(MountOption::RO);
    }
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(THREADS);
    let requests = Requests::new(Arc::clone(&shared), committer.asks(), options.synchronous);
    let session = Session::new(requests, directory, &config).map_err(failed)?;
    let session = session.spawn().map_err(failed)?;
    Ok(MountHandle { directory: directory.to_owned(), session, shared, committer })
}

/// Removes the mount of a process that was killed: everything on it ends in ENOTCONN.
fn clear_stale(directory: &Path) {
    let is_stale = |error: &io::Error| error.raw_os_error() == Some(libc::ENOTCONN);
    if std::fs::read_dir(directory).is_err_and(|error| is_stale(&error))
        && rustix::mount::unmount(directory, UnmountFlags::DETACH).is_err()
    {
        // If that does not help either, the mount says why it cannot be.
        let _ = Command::new("fusermount3").args(["-uz", "--"]).arg(directory).status();
    }
}

impl<D: BlockDevice> MountHandle<D> {
    /// Whether somebody has unmounted it.
    pub fn has_ended(&self) -> bool {
        self.session.guard.is_finished()
    }

    /// Unmounts, makes everything durable, and gives the device back.
    pub fn unmount(self) -> Result<D, FuseError> {
        let MountHandle { directory, session, shared, committer } = self;
        // Programs that still use it keep it until they end; new ones do not find it. Others than
        // root need the help of fusermount3, which fuser calls.
        let ended = if session.guard.is_finished()
            || rustix::mount::unmount(&directory, UnmountFlags::DETACH).is_ok()
        {
            session.join()
        } else {
            session.umount_and_join()
        };
        committer.stop();
        let file_system = shared.take();
        let device = file_system.expect("it is taken once").unmount()?;
        ended.map_err(|source| FuseError::Mount { directory, source })?;
        Ok(device)
    }
}

/// An error that programs only see as a number.
fn tell(error: &FsError) {
    eprintln!("dhisfs: {error}");
    if let Some(hint) = error.hint() {
        eprintln!("dhisfs: hint: {hint}");
    }
}
