//! Certificates and keys in PEM files, as they are given for TLS.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::process::shell::quoted;
use dcd_files::small_file;

/// Largest file that is read.
const FILE_BYTES_MAX: u64 = 64 << 10;

const CERTIFICATE: &str = "certificate";
const KEY: &str = "private key";

/// Why a file is of no use.
#[derive(Debug, thiserror::Error)]
pub enum PemFileError {
    /// It cannot be read.
    #[error("cannot read the {what} {}: {source}", path.display())]
    Read {
        /// What it should hold.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It has not what it should have.
    #[error("{} holds no {what} in PEM form", path.display())]
    Missing {
        /// What is missing.
        what: &'static str,
        /// Which file.
        path: PathBuf,
    },
    /// It is damaged.
    #[error("the {what} {} is damaged: {source}", path.display())]
    Damaged {
        /// What it should hold.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// Where.
        source: PemError,
    },
    /// Others may read the key.
    #[error("the private key {} may be read by others: its mode is {mode:04o}", path.display())]
    Open {
        /// Which file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
}

impl PemFileError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            PemFileError::Read { source, path, .. } => match source.kind() {
                io::ErrorKind::NotFound => {
                    "check the name; docs/nbd.md tells how certificates are made".into()
                }
                io::ErrorKind::PermissionDenied => {
                    format!("run as a user who may read it: ls -l {}", path.display())
                }
                io::ErrorKind::FileTooLarge => "give a PEM file with certificates or a key only".into(),
                _ => return None,
            },
            PemFileError::Missing { what: KEY, .. } => {
                "a key begins with -----BEGIN PRIVATE KEY-----; one with a password must be decrypted first: \
                 openssl pkey -in FILE -out KEY"
                    .into()
            }
            PemFileError::Missing { .. } => {
                "a certificate begins with -----BEGIN CERTIFICATE-----; from DER form: \
                 openssl x509 -inform DER -in FILE -out PEM"
                    .into()
            }
            PemFileError::Open { path, .. } => format!(
                "chmod 600 {}; whoever has read it meanwhile can pretend to be this machine: if that matters, make a new one",
                quoted(path)
            ),
            PemFileError::Damaged { path, .. } => {
                format!("copy it again; openssl x509 -text -in {} shows a good one", path.display())
            }
        })
    }
}

/// The certificates in a file; at least one. `what` they are stands in errors.
///
/// # Errors
/// If it cannot be read, or holds none.
pub(crate) fn read_certificates(
    what: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, PemFileError> {
    let bytes = read_file(what, path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let certificates = certificates.map_err(|source| PemFileError::Damaged {
        what,
        path: path.to_owned(),
        source,
    })?;
    if certificates.is_empty() {
        return Err(PemFileError::Missing { what: CERTIFICATE, path: path.to_owned() });
    }
    Ok(certificates)
}

/// The private key in a file that nobody else may read.
///
/// # Errors
/// If it cannot be read, holds none, or may be read by others.
pub(crate) fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, PemFileError> {
    let bytes = read_file(KEY, path)?;
    let key = PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| match error {
        PemError::NoItemsFound => PemFileError::Missing { what: KEY, path: path.to_owned() },
        source => PemFileError::Damaged { what: KEY, path: path.to_owned(), source },
    })?;
    refuse_open_key(path)?;
    Ok(key)
}

/// As ssh does: a key of ours is for nobody else. A key of another user (root, where dcd is not) is
/// in his care: a group may have it, so that dcd can read it.
fn refuse_open_key(path: &Path) -> Result<(), PemFileError> {
    let fail = |source| PemFileError::Read { what: KEY, path: path.to_owned(), source };
    let found = std::fs::metadata(path).map_err(fail)?;
    let is_ours = found.uid() == rustix::process::geteuid().as_raw();
    let mode = found.mode() & 0o7777;
    let for_others = if is_ours { 0o077 } else { 0o007 };
    match mode & for_others {
        0 => Ok(()),
        _ => Err(PemFileError::Open { path: path.to_owned(), mode }),
    }
}

fn read_file(what: &'static str, path: &Path) -> Result<Vec<u8>, PemFileError> {
    let fail = |source| PemFileError::Read { what, path: path.to_owned(), source };
    small_file::read(path, FILE_BYTES_MAX).map_err(fail)
}
