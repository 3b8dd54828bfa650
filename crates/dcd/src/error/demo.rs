//! Why a demonstration did not come to its end, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use dcd_daemon::control::client::ControlError;

/// Why not.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// Mounting is for root.
    #[error("the demonstration mounts file systems and makes loop devices, which only root may")]
    NotRoot,
    /// Somebody has killed it.
    #[error("the demonstration was killed; what it had made is taken away")]
    Killed,
    /// A program is not there.
    #[error("{program} is not installed")]
    ProgramMissing {
        /// Its name.
        program: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// A program did not start.
    #[error("cannot run {program}: {source}")]
    Start {
        /// Its name.
        program: String,
        /// Why not.
        source: io::Error,
    },
    /// A program failed.
    #[error("{program} failed ({status}){}{words}", if words.is_empty() { "" } else { ": " })]
    Program {
        /// It and what it was told.
        program: String,
        /// How it ended.
        status: ExitStatus,
        /// The last it said.
        words: String,
    },
    /// A disk was not served.
    #[error("{what} could not be served{}{words}", if words.is_empty() { "" } else { ": " })]
    NotReady {
        /// Which.
        what: &'static str,
        /// The last it said.
        words: String,
    },
    /// A disk did not end when told.
    #[error("{what} did not end within {} s", patience.as_secs())]
    DoesNotEnd {
        /// Which.
        what: &'static str,
        /// How long it had.
        patience: std::time::Duration,
    },
    /// Something hangs.
    #[error("{what} has not come to its end within {} min", patience.as_secs() / 60)]
    TooLong {
        /// What.
        what: String,
        /// How long it had.
        patience: std::time::Duration,
    },
    /// Ctrl-C.
    #[error("interrupted; what was made has been taken away again")]
    Interrupted,
    /// A file.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The system refused something.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// A daemon does not say how it does.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The picture.
    #[error("cannot draw {}: {reason}", path.display())]
    Picture {
        /// Where it should go.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The kill came at a wrong time.
    #[error("{what} ended before it was killed")]
    NotKilled {
        /// What.
        what: &'static str,
    },
    /// The file system is damaged: what must never happen.
    #[error("after the kill e2fsck -fn finds errors")]
    NotClean,
    /// Files were lost: what must never happen.
    #[error("after the kill {lost} of {kept} synced files are missing or different")]
    FilesLost {
        /// How many.
        lost: usize,
        /// How many should be there.
        kept: usize,
    },
}

impl DemoError {
    /// For `map_err`: `action` on `path` failed.
    pub fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DemoError {
        let path = path.to_owned();
        move |source| DemoError::File { action, path, source }
    }

    /// For `map_err` of system calls.
    pub fn system(action: &'static str) -> impl FnOnce(io::Error) -> DemoError {
        move |source| DemoError::System { action, source }
    }

    /// The next step, where there is one.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            DemoError::Killed | DemoError::Interrupted => {
                "begin again; --quick takes two minutes".into()
            }
            DemoError::NotRoot => "sudo make demo, or sudo dcd demo".into(),
            DemoError::ProgramMissing { package, .. } => format!("apt-get install {package}"),
            DemoError::NotReady { .. } => {
                "it needs /dev/fuse, /dev/loop-control and fusermount3; containers often have none"
                    .into()
            }
            DemoError::File { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "--directory takes another place; about 600 MiB are needed".into()
            }
            DemoError::FilesLost { .. } | DemoError::NotClean => {
                "this is a bug in dcd: please report it".into()
            }
            DemoError::Control(error) => return error.hint(),
            _ => return None,
        })
    }
}
