//! The server's certificate and key and the authority of its clients: PEM files, read when they are
//! needed and when they have changed.
//!
//! Certificates are renewed by programs that know nothing of dcd. So the files are looked at before
//! each handshake (on the thread of handshakes, see `handshake_thread.rs`), and what is new in them
//! counts from the next client on. A renewal that is not complete, or not good, is told once, and
//! the certificate before it stays in use.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{Error as TlsError, InconsistentKeys, RootCertStore, ServerConfig};

use crate::frontend::nbd::tls::{ListVerifier, TlsAccess};
use crate::process::pem_files::{PemFileError, read_certificates, read_key};

/// Which files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// The certificate of this server, then those that lead to its authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authorities one of which must have signed a client's certificate.
    pub client_authority: PathBuf,
    /// Whose certificates of these may do what.
    pub access: Arc<TlsAccess>,
}

impl TlsFiles {
    /// All of them. They are read again when they have changed, and are often links, to files that
    /// are new each time.
    pub(crate) fn paths(&self) -> [&Path; 3] {
        [&self.certificate, &self.key, &self.client_authority].map(PathBuf::as_path)
    }
}

/// Why files are of no use.
#[derive(Debug, thiserror::Error)]
pub enum TlsFilesError {
    /// A file is of no use.
    #[error(transparent)]
    File(#[from] PemFileError),
    /// The key is another's.
    #[error("the key {} does not belong to the certificate {}", key.display(), certificate.display())]
    KeyMismatch {
        /// The key.
        key: PathBuf,
        /// The certificate.
        certificate: PathBuf,
    },
    /// The certificate or the key cannot be used.
    #[error("cannot use the certificate {} with the key {}: {source}", certificate.display(), key.display())]
    Unusable {
        /// The certificate.
        certificate: PathBuf,
        /// The key.
        key: PathBuf,
        /// Why not.
        source: TlsError,
    },
    /// An authority cannot be used.
    #[error("cannot use the authority {}: {source}", path.display())]
    Authority {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: AuthorityError,
    },
}

/// Why an authority cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// It is no certificate that can sign.
    #[error(transparent)]
    Certificate(#[from] TlsError),
    /// There is no way to verify clients with it.
    #[error(transparent)]
    Verifier(#[from] VerifierBuilderError),
}

impl TlsFilesError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            TlsFilesError::File(error) => return error.hint(),
            TlsFilesError::KeyMismatch { .. } => {
                "give the key that the certificate was made with; both print the same: openssl x509 -noout -pubkey \
                 -in CERTIFICATE; openssl pkey -pubout -in KEY"
                    .into()
            }
            TlsFilesError::Unusable { .. } | TlsFilesError::Authority { .. } => {
                "it must be X.509 version 3 with a key of RSA (2048 bits or more), ECDSA (P-256, P-384) or Ed25519; \
                 docs/nbd.md tells how certificates are made"
                    .into()
            }
        })
    }
}

const AUTHORITY: &str = "authority of clients";

/// What tells that a file is another: its place on the disk, its length, its time of change, its
/// mode.
type Mark = Option<(u64, u64, u64, i64, i64, u32)>;

/// The files as they were read last.
pub struct TlsIdentity {
    files: TlsFiles,
    marks: [Mark; 3],
    config: Arc<ServerConfig>,
}

impl TlsIdentity {
    /// Reads the files.
    pub fn load(files: TlsFiles) -> Result<TlsIdentity, TlsFilesError> {
        let marks = marks(&files);
        let config = read(&files)?;
        Ok(TlsIdentity { files, marks, config })
    }

    /// Whose certificates may do what.
    pub fn access(&self) -> &Arc<TlsAccess> {
        &self.files.access
    }

    /// What to secure a connection with; the files are read again if they have changed. An error is
    /// told once for each change.
    pub fn current(
        &mut self,
        mut told: impl FnMut(Result<(), TlsFilesError>),
    ) -> &Arc<ServerConfig> {
        let found = marks(&self.files);
        if found != self.marks {
            self.marks = found;
            match read(&self.files) {
                Ok(config) => {
                    self.config = config;
                    told(Ok(()));
                }
                Err(error) => told(Err(error)),
            }
        }
        &self.config
    }
}

fn marks(files: &TlsFiles) -> [Mark; 3] {
    [&files.certificate, &files.key, &files.client_authority].map(|path| {
        let found = std::fs::metadata(path).ok()?;
        Some((
            found.dev(),
            found.ino(),
            found.len(),
            found.mtime(),
            found.mtime_nsec(),
            found.mode(),
        ))
    })
}

fn read(files: &TlsFiles) -> Result<Arc<ServerConfig>, TlsFilesError> {
    // 1. What is in the files.
    let certificates = read_certificates("certificate", &files.certificate)?;
    let key = read_key(&files.key)?;

    // 2. Who may connect: nobody without a certificate of one of these authorities.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let authority = |source: AuthorityError| TlsFilesError::Authority {
        path: files.client_authority.clone(),
        source,
    };
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(AUTHORITY, &files.client_authority)? {
        roots.add(certificate).map_err(|error| authority(error.into()))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .map_err(|error| authority(error.into()))?;

    // 3. Who we are.
    let unusable = |source| match source {
        TlsError::InconsistentKeys(InconsistentKeys::KeyMismatch) => TlsFilesError::KeyMismatch {
            key: files.key.clone(),
            certificate: files.certificate.clone(),
        },
        source => TlsFilesError::Unusable {
            certificate: files.certificate.clone(),
            key: files.key.clone(),
            source,
        },
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(unusable)?
        .with_client_cert_verifier(Arc::new(ListVerifier {
            verifier,
            access: files.access.clone(),
        }))
        .with_single_cert(certificates, key)
        .map_err(unusable)?;
    // No session is taken up again: a certificate that has expired since, or an authority that was
    // removed, counts for each connection. NBD connections last, so it would save nothing.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.max_early_data_size = 0;
    Ok(Arc::new(config))
}
