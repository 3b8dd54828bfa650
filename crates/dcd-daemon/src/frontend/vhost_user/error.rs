//! Why a connection of a front-end ends.

use super::message::MessageError;
use super::session::SessionError;
use super::socket::SocketError;

/// Why a connection ends; the next one begins anew.
#[derive(Debug, thiserror::Error)]
pub enum VhostUserError {
    /// Its socket.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// What it asked for.
    #[error("request {request}: {source}")]
    Refused {
        /// Its number.
        request: u32,
        /// Why not.
        source: SessionError,
    },
    /// Memory that it shared is not there any more.
    #[error("a page of the memory that it shares is gone")]
    MemoryLost,
}

impl VhostUserError {
    /// Tells the person at the console.
    pub fn tell(&self, what: &str) {
        eprintln!("dcd: vhost-user: {what}: {self}");
        if let Some(hint) = self.hint() {
            eprintln!("hint: {hint}");
        }
    }

    /// Whether nothing can come of the connection.
    pub fn ends_connection(&self) -> bool {
        matches!(self, VhostUserError::Refused { source, .. } if source.ends_connection())
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            VhostUserError::Refused { source, .. } => source.hint(),
            VhostUserError::Socket(SocketError::Message(MessageError::Unknown { .. })) => {
                Some("docs/vhost-user.md says what is supported")
            }
            VhostUserError::Socket(_) => None,
            VhostUserError::MemoryLost => Some(
                "whoever runs the virtual machine has punched a hole into its memory, has not enough huge pages for it, or has \
                 bad memory; others are served on",
            ),
        }
    }
}
