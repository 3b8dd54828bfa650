//! Who a server has to be, and who we are to it: the files of `tls-certificates=`, by the names that
//! libnbd and QEMU have.
//!
//! They are read for each connection, so certificates that were renewed count from the next one on.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, InconsistentKeys, RootCertStore};

use dcd_protocol::nbd::uri::{Server, UriTls};

use super::NetworkProblem;
use crate::process::pem_files::{PemFileError, read_certificates, read_key};

const AUTHORITY: &str = "ca-cert.pem";
const CERTIFICATE: &str = "client-cert.pem";
const KEY: &str = "client-key.pem";
/// Who a server at a unix socket is, unless its name is given.
const LOCAL_NAME: &str = "localhost";

/// The beginning of a secured connection to this server.
pub(super) fn connection(
    server: &Server,
    tls: &UriTls,
) -> Result<ClientConnection, NetworkProblem> {
    let file = |name: &str| tls.certificates.join(name);
    let unusable = |name: &str, source: rustls::Error| NetworkProblem::Certificates {
        path: file(name),
        source: Box::new(source),
    };

    // 1. Who the server may be.
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates("authority of the server", &file(AUTHORITY))? {
        roots.add(certificate).map_err(|source| unusable(AUTHORITY, source))?;
    }
    let name = match (&tls.hostname, server) {
        (Some(name), _) => name.as_str(),
        // Without the interface of a local address.
        (None, Server::Tcp { host, .. }) => host.split('%').next().unwrap_or_default(),
        (None, Server::Unix(_) | Server::Store(_)) => LOCAL_NAME,
    };
    let name = ServerName::try_from(name.to_owned())
        .map_err(|_| NetworkProblem::ServerName { name: name.to_owned() })?;

    // 2. Who we are, to a server that asks.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|source| unusable(AUTHORITY, source))?
        .with_root_certificates(roots);
    let is_there = |name: &str| !is_missing(&file(name));
    let mut config = if is_there(CERTIFICATE) || is_there(KEY) {
        let certificates = read_certificates("certificate", &file(CERTIFICATE))?;
        let key = read_key(&file(KEY))?;
        builder.with_client_auth_cert(certificates, key).map_err(|source| match source {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                NetworkProblem::KeyMismatch { key: file(KEY), certificate: file(CERTIFICATE) }
            }
            source => unusable(CERTIFICATE, source),
        })?
    } else {
        builder.with_no_client_auth()
    };
    // Each connection proves what it has to.
    config.resumption = rustls::client::Resumption::disabled();
    ClientConnection::new(Arc::new(config), name).map_err(|source| unusable(AUTHORITY, source))
}

fn is_missing(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

impl From<PemFileError> for NetworkProblem {
    fn from(error: PemFileError) -> NetworkProblem {
        NetworkProblem::PemFile(error)
    }
}
