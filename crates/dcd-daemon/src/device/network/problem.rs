//! Why a network disk cannot be used, and what to do about it.

use std::io;
use std::path::PathBuf;

use dcd_protocol::nbd::negotiation::NegotiationError;
use dcd_protocol::nbd::uri::UriError;
use dcd_protocol::store::StoreFailure;
use rustls::{AlertDescription, CertificateError};

use crate::process::pem_files::PemFileError;

/// See the module. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum NetworkProblem {
    /// The name is none.
    #[error("{0}")]
    Uri(#[from] UriError),
    /// An object store, in the words of the process that has it open.
    #[error("{0}")]
    Store(StoreFailure),
    /// Nobody knows the host.
    #[error("the host {host} is not known: {source}")]
    Host {
        /// Its name.
        host: String,
        /// The system's words.
        source: io::Error,
    },
    /// No connection.
    #[error("cannot connect to {server}: {source}")]
    Connect {
        /// Which server.
        server: String,
        /// The system's words.
        source: io::Error,
    },
    /// It takes too long.
    #[error("{server} has not answered within {seconds} s ({what})")]
    NoAnswer {
        /// Which server.
        server: String,
        /// How long it was waited for.
        seconds: u64,
        /// For what.
        what: &'static str,
    },
    /// It ends in the middle.
    #[error("{server} has closed the connection while both agreed on {export}: {source}")]
    Closed {
        /// Which server.
        server: String,
        /// Which export, in words.
        export: String,
        /// With TLS.
        with_tls: bool,
        /// The system's words.
        source: io::Error,
    },
    /// No agreement.
    #[error("{server}, {export}: {source}")]
    Negotiation {
        /// Which server.
        server: String,
        /// Which export, in words.
        export: String,
        /// What is wrong.
        source: NegotiationError,
    },
    /// No agreement on how the connection is secured.
    #[error("{server}: TLS: {source}")]
    Tls {
        /// Which server.
        server: String,
        /// What is wrong.
        source: io::Error,
    },
    /// A file of `tls-certificates=`.
    #[error(transparent)]
    PemFile(PemFileError),
    /// A certificate in one cannot be used.
    #[error("cannot use {}: {source}", path.display())]
    Certificates {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: Box<rustls::Error>,
    },
    /// The key is another's.
    #[error("the key {} does not belong to the certificate {}", key.display(), certificate.display())]
    KeyMismatch {
        /// The key.
        key: PathBuf,
        /// The certificate.
        certificate: PathBuf,
    },
    /// No name that a certificate could have.
    #[error("{name:?} is no name that the certificate of a server could have")]
    ServerName {
        /// The name.
        name: String,
    },
    /// It takes no writes.
    #[error("{server} serves {export} read-only")]
    ReadOnly {
        /// Which server.
        server: String,
        /// Which export, in words.
        export: String,
    },
    /// Nothing can be made durable.
    #[error(
        "{server} does not take flushes: nothing that is written there is ever known to be durable"
    )]
    NoFlush {
        /// Which server.
        server: String,
    },
    /// A disk of another size, or that can do less, behind the same name.
    #[error("{server} serves another disk now: {what} was {expected} and is {found}")]
    Changed {
        /// Which server.
        server: String,
        /// What has changed.
        what: &'static str,
        /// As it was.
        expected: String,
        /// As it is.
        found: String,
    },
    /// The label on it is gone or another.
    #[error("{server} serves another disk now: {mark} is not on it")]
    OtherDisk {
        /// Which server.
        server: String,
        /// What was expected.
        mark: String,
    },
    /// This is done with local disks only.
    #[error("{what} cannot be a network disk: {reason}")]
    NotHere {
        /// What is meant.
        what: &'static str,
        /// Why not.
        reason: &'static str,
    },
}

impl NetworkProblem {
    /// Whether nobody answers, so that the disk may be there later.
    pub(crate) fn is_silence(&self) -> bool {
        let is_silent_store = matches!(self, NetworkProblem::Store(failure) if failure.is_silence);
        is_silent_store
            || matches!(
                self,
                NetworkProblem::Host { .. }
                    | NetworkProblem::Connect { .. }
                    | NetworkProblem::NoAnswer { .. }
                    | NetworkProblem::Closed { .. }
            )
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            NetworkProblem::Uri(error) => error.hint(),
            NetworkProblem::Store(failure) => return failure.hint.clone(),
            NetworkProblem::Host { .. } => {
                "check the name, or give an address: nbd://192.0.2.7/EXPORT".into()
            }
            NetworkProblem::Connect { .. } => {
                "check host, port and socket, and that the server runs: `nbdinfo --list URI` asks it"
                    .into()
            }
            NetworkProblem::NoAnswer { .. } => {
                "check the server; some (qemu-nbd without --shared) serve one client at a time and \
                 leave others waiting"
                    .into()
            }
            NetworkProblem::Closed { with_tls: true, .. } => {
                "look into the log of the server, which knows why; one that asks for certificates may end like this if \
                 it does not know client-cert.pem of tls-certificates="
                    .into()
            }
            NetworkProblem::Closed { .. } => {
                "look into the log of the server, which knows why; is the name of the export right?"
                    .into()
            }
            NetworkProblem::Negotiation { source, .. } => match source {
                NegotiationError::Tls => {
                    "name it nbds://HOST/EXPORT?tls-certificates=DIRECTORY (nbds+unix:// at a socket)".into()
                }
                NegotiationError::NoTls { .. } => {
                    "give the server its certificate and key (nbdkit --tls=require, qemu-nbd --tls-creds, dcd --tls-cert), \
                     or lead the connection through a tunnel (WireGuard, ssh -L)"
                        .into()
                }
                NegotiationError::Unknown(_) => {
                    "`nbdinfo --list URI` shows which exports there are".into()
                }
                NegotiationError::Greeting { .. } => "another service listens there; NBD has port 10809".into(),
                NegotiationError::OldStyle | NegotiationError::NoGo => {
                    "take a newer server: nbdkit, qemu-nbd, nbd-server since 3.15".into()
                }
                _ => return None,
            },
            NetworkProblem::Tls { source, .. } => tls_hint(source)?.into(),
            NetworkProblem::PemFile(error) => return error.hint(),
            NetworkProblem::Certificates { .. } => {
                "it must be X.509 version 3 with a key of RSA (2048 bits or more), ECDSA (P-256, P-384) or Ed25519; \
                 docs/nbd.md tells how certificates are made"
                    .into()
            }
            NetworkProblem::KeyMismatch { .. } => {
                "give the key that the certificate was made with; both print the same: openssl x509 -noout -pubkey \
                 -in CERTIFICATE; openssl pkey -pubout -in KEY"
                    .into()
            }
            NetworkProblem::ServerName { .. } => {
                "give the name that is in its certificate: ...&tls-hostname=NAME".into()
            }
            NetworkProblem::ReadOnly { .. } => {
                "serve it for writing, or serve the pair with --read-only".into()
            }
            NetworkProblem::NoFlush { .. } => "take a server, or a plugin of it, that can flush".into(),
            NetworkProblem::Changed { .. } | NetworkProblem::OtherDisk { .. } => {
                "have the server serve the disk that it served before: dcd goes on as soon as it does".into()
            }
            NetworkProblem::NotHere { .. } => {
                "make a block device of it (nbd-client, or a loop device over nbdfuse), or name it at the start of `dcd serve`".into()
            }
        })
    }
}

/// What to do about a failure of TLS, if it is a known one.
fn tls_hint(error: &io::Error) -> Option<&'static str> {
    let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(match error {
        rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => {
            "the authority that has signed the server's certificate is not in ca-cert.pem of tls-certificates="
        }
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => {
            "the server's certificate has another name: give that in ...&tls-hostname=NAME, if it is the right server"
        }
        rustls::Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        ) => "renew the server's certificate; is the clock of this machine right?",
        rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired
            | AlertDescription::AccessDenied
            | AlertDescription::DecryptError,
        ) => {
            "the server wants a certificate of an authority that it knows: client-cert.pem and client-key.pem in \
             tls-certificates="
        }
        rustls::Error::AlertReceived(AlertDescription::ProtocolVersion)
        | rustls::Error::PeerIncompatible(_) => "the server has to speak TLS 1.3",
        _ => return None,
    })
}
