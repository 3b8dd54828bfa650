//! Why a frontend cannot begin, or ends before its time.

use std::io;

use crate::device::fuse_error::FuseError;
use crate::device::loop_device::LoopError;
use crate::frontend::nbd::listen::ListenError;
use crate::frontend::nbd::tls::files::TlsFilesError;
use crate::frontend::ublk::UblkError;

/// See the module.
#[derive(Debug, thiserror::Error)]
pub enum FrontendError {
    /// An address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// There is nothing to secure connections with.
    #[error(transparent)]
    Tls(#[from] TlsFilesError),
    /// The volume cannot be mounted.
    #[error("{source}{}", cause(source))]
    Fuse {
        /// Why not.
        source: FuseError,
    },
    /// There is no ublk device.
    #[error(transparent)]
    Ublk(#[from] UblkError),
    /// There is no loop device.
    #[error("{source}{}", cause(source))]
    Loop {
        /// Why not.
        source: LoopError,
    },
    /// The system refused something.
    #[error("cannot {operation}: {source}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// Why not.
        source: io::Error,
    },
}

/// The helpers' errors keep their cause apart; one line wants it in.
fn cause(error: &dyn std::error::Error) -> String {
    error.source().map(|cause| format!(": {cause}")).unwrap_or_default()
}

impl FrontendError {
    /// For `map_err` of system calls.
    pub(crate) fn system(operation: &'static str) -> impl FnOnce(io::Error) -> FrontendError {
        move |source| FrontendError::System { operation, source }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            FrontendError::Listen(source) => source.hint(),
            FrontendError::Tls(source) => source.hint(),
            FrontendError::Fuse { source } => source.hint(),
            FrontendError::Ublk(source) => source.hint(),
            FrontendError::Loop { source } => source.hint(),
            FrontendError::System { .. } => None,
        }
    }
}
