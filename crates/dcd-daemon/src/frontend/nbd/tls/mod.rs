//! TLS below the NBD protocol, without I/O: records in, plaintext out, and the other way round.
//!
//! A connection is secured in two parts. The handshake costs up to milliseconds of a processor, so
//! its steps are values ([`HandshakeStep`]) that somebody else may compute, while the connection
//! waits. What comes afterwards costs about a microsecond for 4 KiB and is done where the
//! connection is ([`SecuredStream`]).
//!
//! TLS 1.3 only: rustls is built without anything older. There are no tickets, so no session is
//! taken up again and every connection proves its certificate.

pub mod files;
pub mod handshake_thread;

mod access;
mod certificate_name;
mod handshake_step;
mod secured_stream;

pub(crate) use access::ListVerifier;
pub use access::{NotAllowed, TlsAccess};
pub use certificate_name::{certificate_name, certificate_names};
pub use handshake_step::HandshakeStep;
use handshake_step::RECORDS_HANDSHAKE;
pub(super) use handshake_step::Secured;
pub(super) use secured_stream::SecuredStream;

/// Why a connection could not be secured, or is not any more. The connection ends; for the log.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum TlsFailure {
    /// A rule of TLS was broken, or a certificate is not good.
    #[error("TLS: {}", words(.0))]
    Tls(rustls::Error),
    /// Messages of the handshake that do not fit into the room for them.
    #[error("TLS: a message of the handshake is longer than {RECORDS_HANDSHAKE} bytes")]
    TooLong,
    /// No more may be sent with the keys that there are.
    #[error("TLS: more was sent than one connection may")]
    Exhausted,
    /// The other side was cut off, by itself or by somebody between.
    #[error("TLS: cut off without a goodbye (close_notify)")]
    Truncated,
}

/// What TLS says; what our lists say it only wraps.
fn words(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(rustls::CertificateError::Other(ours)) => {
            ours.0.to_string()
        }
        error => error.to_string(),
    }
}
