//! How an export is named: the URI format of the NBD project (`uri.md`).
//!
//! ```text
//! nbd://HOST[:PORT][/EXPORT]                  TCP; port 10809 if none is given
//! nbd+unix://[/EXPORT]?socket=PATH            a unix socket
//! nbds://..., nbds+unix://...                 the same with TLS: tls-certificates=DIRECTORY, tls-hostname=NAME
//! s3://BUCKET/PREFIX                          an object store, which a process of dcd serves ([`crate::store`])
//! ```
//!
//! The name of the export is what follows the first slash, percent-decoded; none is the empty name,
//! which is the default export of most servers. A literal IPv6 address stands in brackets. What is
//! not understood is refused, so that no part of a name is passed over.

use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::wire::STRING_MAX;
use crate::store::{StoreName, StoreNameError, looks_like_store};

/// The port of NBD.
pub const DEFAULT_PORT: u16 = 10809;
/// Longest path of a unix socket (`sun_path`, with its end).
const SOCKET_PATH_MAX: usize = 107;

/// Where a server is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Server {
    /// By TCP.
    Tcp {
        /// Name or address, without brackets.
        host: String,
        /// Port.
        port: u16,
    },
    /// At a unix socket.
    Unix(PathBuf),
    /// A process of our own, which has an object store open.
    Store(StoreName),
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Server::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Server::Tcp { host, port } => write!(f, "{host}:{port}"),
            Server::Unix(path) => write!(f, "{}", path.display()),
            Server::Store(name) => write!(f, "{name}"),
        }
    }
}

/// With what a connection is secured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UriTls {
    /// The directory with `ca-cert.pem`, the authority of the server, and, for a server that asks
    /// for them, `client-cert.pem` and `client-key.pem`: the names that libnbd and QEMU have.
    pub certificates: PathBuf,
    /// The name that the server's certificate has to have, if it is not that of the host.
    pub hostname: Option<String>,
}

/// An export of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NbdUri {
    /// Where.
    pub server: Server,
    /// Its name; may be empty.
    pub export: String,
    /// TLS, or none.
    pub tls: Option<UriTls>,
}

/// What is wrong with a URI.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UriError {
    /// No object store.
    #[error("{0}")]
    Store(#[from] StoreNameError),
    /// TLS without an authority.
    #[error("{scheme}:// needs ?tls-certificates=DIRECTORY with the authority of the server")]
    Certificates {
        /// Its scheme.
        scheme: String,
    },
    /// Another way to a server.
    #[error(
        "{scheme:?} is no way to a server that dcd knows: expected nbd://, nbds://, nbd+unix:// or nbds+unix://"
    )]
    Scheme {
        /// What stands there.
        scheme: String,
    },
    /// No host.
    #[error("expected the name or address of a host behind nbd://, found {found:?}")]
    Host {
        /// What stands there.
        found: String,
    },
    /// A user or password.
    #[error("NBD has no users: found {found:?} before the host")]
    User {
        /// What stands there.
        found: String,
    },
    /// No port.
    #[error("expected a port from 1 to 65535, found {found:?}")]
    Port {
        /// What stands there.
        found: String,
    },
    /// A unix socket that is not named.
    #[error("nbd+unix:// needs ?socket=PATH with a path of at most {SOCKET_PATH_MAX} bytes")]
    Socket,
    /// A host and a socket.
    #[error(
        "a unix socket has no host: expected nbd+unix:///EXPORT?socket=PATH, found the host {found:?}"
    )]
    HostOfSocket {
        /// What stands there.
        found: String,
    },
    /// Something behind the name.
    #[error("{found:?} is no part of the name of an export that is known, or stands there twice")]
    Parameter {
        /// What stands there.
        found: String,
    },
    /// A percent sign that means nothing, or bytes that are no text.
    #[error("{found:?} is not percent-encoded UTF-8")]
    Encoding {
        /// What stands there.
        found: String,
    },
    /// Longer than NBD allows.
    #[error("the name of an export has at most {STRING_MAX} bytes, found {found}")]
    ExportLength {
        /// Its length.
        found: usize,
    },
}

impl UriError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            UriError::Certificates { scheme } => format!(
                "{scheme}://...?tls-certificates=DIRECTORY, with ca-cert.pem in it, and client-cert.pem and client-key.pem \
                 if the server asks for them"
            ),
            UriError::Store(error) => error.hint(),
            UriError::Encoding { .. } | UriError::Parameter { .. } => {
                "write ? as %3F, # as %23, % as %25 and a space as %20 in a name".into()
            }
            _ => "an export is written nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH; a file of that name is \
                 written ./nbd:..."
                .into(),
        }
    }
}

/// Whether a text is meant to be the URI of an export, be it a good one.
pub fn looks_like_uri(text: &[u8]) -> bool {
    let Some(end) = text.windows(3).position(|bytes| bytes == b"://") else { return false };
    looks_like_store(text)
        || matches!(
            &text[..end].to_ascii_lowercase()[..],
            b"nbd" | b"nbds" | b"nbd+unix" | b"nbds+unix" | b"nbd+vsock" | b"nbds+vsock"
        )
}

impl NbdUri {
    /// The same for a process with another working directory.
    pub fn absolute(&self) -> NbdUri {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.into());
        let server = match &self.server {
            Server::Unix(path) => Server::Unix(absolute(path)),
            other => other.clone(),
        };
        let tls = self.tls.clone();
        let tls = tls.map(|tls| UriTls { certificates: absolute(&tls.certificates), ..tls });
        NbdUri { server, export: self.export.clone(), tls }
    }

    /// The same export, whether the way to it is secured or not.
    pub fn without_tls(&self) -> NbdUri {
        NbdUri { tls: None, ..self.clone() }
    }

    /// If it is an object store: that.
    pub fn store(&self) -> Option<&StoreName> {
        match &self.server {
            Server::Store(name) => Some(name),
            _ => None,
        }
    }

    /// The export in words.
    pub fn export_words(&self) -> String {
        match self.export.as_str() {
            "" if self.store().is_some() => "the disk in it".into(),
            "" => "the default export".into(),
            name => format!("the export {name:?}"),
        }
    }
}

impl FromStr for NbdUri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<NbdUri, UriError> {
        if looks_like_store(text.as_bytes()) {
            let server = Server::Store(text.parse()?);
            return Ok(NbdUri { server, export: String::new(), tls: None });
        }
        let (scheme, rest) = text.split_once("://").unwrap_or((text, ""));
        let scheme = scheme.to_ascii_lowercase();
        let (is_unix, is_tls) = match scheme.as_str() {
            "nbd" => (false, false),
            "nbd+unix" => (true, false),
            "nbds" => (false, true),
            "nbds+unix" => (true, true),
            _ => return Err(UriError::Scheme { scheme }),
        };
        if let Some((_, fragment)) = rest.split_once('#') {
            return Err(UriError::Parameter { found: format!("#{fragment}") });
        }
        let (rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, Some(query)),
            None => (rest, None),
        };
        let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
        let export = decoded(export)?;
        let export =
            String::from_utf8(export).map_err(|_| UriError::Encoding { found: rest.to_owned() })?;
        if export.len() > STRING_MAX {
            return Err(UriError::ExportLength { found: export.len() });
        }
        let query = Query::of(query)?;
        let tls = query.tls(scheme, is_tls)?;
        let server = match (is_unix, query.socket()?) {
            (true, Some(path)) if authority.is_empty() => Server::Unix(path),
            (true, Some(_)) => return Err(UriError::HostOfSocket { found: authority.to_owned() }),
            (true, None) => return Err(UriError::Socket),
            (false, Some(path)) => {
                return Err(UriError::Parameter { found: format!("socket={}", path.display()) });
            }
            (false, None) => tcp_of(authority)?,
        };
        Ok(NbdUri { server, export, tls })
    }
}

fn tcp_of(authority: &str) -> Result<Server, UriError> {
    if let Some((user, _)) = authority.rsplit_once('@') {
        return Err(UriError::User { found: user.to_owned() });
    }
    let no_host = || UriError::Host { found: authority.to_owned() };
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (address, rest) = rest.split_once(']').ok_or_else(no_host)?;
            // A zone (%eth0) is written %25eth0.
            let address = String::from_utf8(decoded(address)?).map_err(|_| no_host())?;
            let bare = address.split('%').next().unwrap_or_default();
            bare.parse::<std::net::Ipv6Addr>().map_err(|_| no_host())?;
            let port = match rest.strip_prefix(':') {
                None if rest.is_empty() => "",
                None => return Err(no_host()),
                Some(port) => port,
            };
            (address, port)
        }
        None => {
            let (host, port) = authority.split_once(':').unwrap_or((authority, ""));
            if port.contains(':') {
                // An address without its brackets.
                return Err(no_host());
            }
            (String::from_utf8(decoded(host)?).map_err(|_| no_host())?, port)
        }
    };
    if host.is_empty() || host.bytes().any(|byte| byte.is_ascii_whitespace() || byte == 0) {
        return Err(no_host());
    }
    let port = match port {
        "" => DEFAULT_PORT,
        // "+1" is a number for Rust.
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits
            .parse()
            .ok()
            .filter(|port| *port > 0)
            .ok_or_else(|| UriError::Port { found: digits.to_owned() })?,
        other => return Err(UriError::Port { found: other.to_owned() }),
    };
    Ok(Server::Tcp { host, port })
}

/// What stands behind the question mark, decoded.
#[derive(Default)]
struct Query {
    socket: Option<Vec<u8>>,
    certificates: Option<Vec<u8>>,
    hostname: Option<Vec<u8>>,
}

impl Query {
    fn of(text: Option<&str>) -> Result<Query, UriError> {
        let mut query = Query::default();
        for part in text.iter().flat_map(|text| text.split('&')).filter(|part| !part.is_empty()) {
            let unknown = || UriError::Parameter { found: part.to_owned() };
            let (key, value) = part.split_once('=').ok_or_else(unknown)?;
            let place = match key {
                "socket" => &mut query.socket,
                "tls-certificates" => &mut query.certificates,
                "tls-hostname" => &mut query.hostname,
                _ => return Err(unknown()),
            };
            if place.replace(decoded(value)?).is_some() {
                return Err(unknown());
            }
        }
        Ok(query)
    }

    fn socket(self) -> Result<Option<PathBuf>, UriError> {
        let Some(path) = self.socket else { return Ok(None) };
        if path.is_empty() || path.len() > SOCKET_PATH_MAX || path.contains(&0) {
            return Err(UriError::Socket);
        }
        Ok(Some(std::ffi::OsString::from_vec(path).into()))
    }

    fn tls(&self, scheme: String, is_tls: bool) -> Result<Option<UriTls>, UriError> {
        let hostname = self.hostname.as_ref().map(|name| {
            let text = String::from_utf8_lossy(name).into_owned();
            let is_name = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
            match is_name {
                true => Ok(text),
                false => Err(UriError::Parameter { found: format!("tls-hostname={text:?}") }),
            }
        });
        let hostname = hostname.transpose()?;
        match (is_tls, &self.certificates) {
            (true, Some(path)) if !path.is_empty() && !path.contains(&0) => {
                let certificates = std::ffi::OsString::from_vec(path.clone()).into();
                Ok(Some(UriTls { certificates, hostname }))
            }
            (true, _) => Err(UriError::Certificates { scheme }),
            (false, None) if hostname.is_none() => Ok(None),
            (false, _) => Err(UriError::Parameter { found: format!("tls-... of {scheme}://") }),
        }
    }
}

/// Bytes that were percent-encoded.
fn decoded(text: &str) -> Result<Vec<u8>, UriError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                match (digit(rest.next()), digit(rest.next())) {
                    (Some(high), Some(low)) => (high << 4 | low) as u8,
                    _ => return Err(UriError::Encoding { found: text.to_owned() }),
                }
            }
            byte => byte,
        });
    }
    Ok(bytes)
}

/// Percent-encodes all but letters, digits and these.
struct Encoded<'a>(&'a [u8], &'static [u8]);

impl fmt::Display for Encoded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            match byte {
                byte if byte.is_ascii_alphanumeric() || self.1.contains(byte) => {
                    write!(f, "{}", char::from(*byte))?;
                }
                byte => write!(f, "%{byte:02X}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for NbdUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let export = Encoded(self.export.as_bytes(), b"-._~/:@!$'()*+,;=");
        let path = |path: &'_ Path| Encoded(path.as_os_str().as_bytes(), b"-._~/:@,+").to_string();
        let scheme = if self.tls.is_some() { "nbds" } else { "nbd" };
        match &self.server {
            Server::Tcp { host, port } => {
                match host.contains(':') {
                    true => write!(f, "{scheme}://[{}]", Encoded(host.as_bytes(), b":.-_"))?,
                    false => write!(f, "{scheme}://{}", Encoded(host.as_bytes(), b".-_"))?,
                }
                if *port != DEFAULT_PORT {
                    write!(f, ":{port}")?;
                }
                write!(f, "/{export}")?;
            }
            Server::Unix(socket) => {
                write!(f, "{scheme}+unix:///{export}?socket={}", path(socket))?;
            }
            Server::Store(name) => write!(f, "{name}")?,
        }
        let Some(tls) = &self.tls else { return Ok(()) };
        let begin = if matches!(self.server, Server::Unix(_)) { '&' } else { '?' };
        write!(f, "{begin}tls-certificates={}", path(&tls.certificates))?;
        match &tls.hostname {
            Some(name) => write!(f, "&tls-hostname={}", Encoded(name.as_bytes(), b":.-_")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16, export: &str) -> NbdUri {
        let server = Server::Tcp { host: host.into(), port };
        NbdUri { server, export: export.into(), tls: None }
    }

    fn unix(path: &str, export: &str) -> NbdUri {
        NbdUri { server: Server::Unix(path.into()), export: export.into(), tls: None }
    }

    fn secured(uri: NbdUri, certificates: &str, hostname: Option<&str>) -> NbdUri {
        let hostname = hostname.map(str::to_owned);
        NbdUri { tls: Some(UriTls { certificates: certificates.into(), hostname }), ..uri }
    }

    #[test]
    fn names_of_exports_are_read_and_written() {
        for (text, uri, written) in [
            ("nbd://host", tcp("host", 10809, ""), "nbd://host/"),
            ("nbd://host/", tcp("host", 10809, ""), "nbd://host/"),
            ("NBD://host:10810/a/b", tcp("host", 10810, "a/b"), "nbd://host:10810/a/b"),
            ("nbd://host//a", tcp("host", 10809, "/a"), "nbd://host//a"),
            ("nbd://host/a%20b%3F%25", tcp("host", 10809, "a b?%"), "nbd://host/a%20b%3F%25"),
            ("nbd://[::1]:7/x", tcp("::1", 7, "x"), "nbd://[::1]:7/x"),
            ("nbd://[fe80::1%25eth0]/", tcp("fe80::1%eth0", 10809, ""), "nbd://[fe80::1%25eth0]/"),
            ("nbd+unix:///?socket=/run/s", unix("/run/s", ""), "nbd+unix:///?socket=/run/s"),
            ("nbd+unix://?socket=s", unix("s", ""), "nbd+unix:///?socket=s"),
            (
                "nbd+unix:///%C3%A4?socket=/a%26b",
                unix("/a&b", "ä"),
                "nbd+unix:///%C3%A4?socket=/a%26b",
            ),
            (
                "nbds://host/x?tls-certificates=/etc/p%20k",
                secured(tcp("host", 10809, "x"), "/etc/p k", None),
                "nbds://host/x?tls-certificates=/etc/p%20k",
            ),
            (
                "nbds://[::1]?tls-hostname=disk.example&tls-certificates=pki",
                secured(tcp("::1", 10809, ""), "pki", Some("disk.example")),
                "nbds://[::1]/?tls-certificates=pki&tls-hostname=disk.example",
            ),
            (
                "NBDS+unix:///e?socket=s&tls-certificates=pki",
                secured(unix("s", "e"), "pki", None),
                "nbds+unix:///e?socket=s&tls-certificates=pki",
            ),
        ] {
            assert!(looks_like_uri(text.as_bytes()), "{text}");
            assert_eq!(text.parse::<NbdUri>().as_ref(), Ok(&uri), "{text}");
            assert_eq!(uri.to_string(), written);
            assert_eq!(written.parse(), Ok(uri), "{written}");
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for text in [
            "nbd://",
            "nbd:///x",
            "nbd://::1/",
            "nbd://[::1",
            "nbd://[::1]x/",
            "nbd://[host]/",
            "nbd://h:0/",
            "nbd://h:65536/",
            "nbd://h:+1/",
            "nbd://h:x/",
            "nbd://u@h/",
            "nbd://h/%",
            "nbd://h/%2",
            "nbd://h/%zz",
            "nbd://h/%ff",
            "nbd://h/x#y",
            "nbd://h/x?tls=1",
            "nbd://h/x?socket=/s",
            "nbd+unix:///x",
            "nbd+unix:///x?socket=",
            "nbd+unix://h/x?socket=/s",
            "nbd+unix:///?socket=/a&socket=/b",
            "nbds://h/x",
            "nbds://h/x?tls-certificates=",
            "nbds://h/x?tls-certificates=a&tls-certificates=a",
            "nbds://h/x?tls-certificates=a&tls-hostname=",
            "nbds://h/x?tls-certificates=a&tls-hostname=a%20b",
            "nbds://h/x?tls-certificates=a&tls-psk-file=b",
            "nbds://h/x?tls-certificates",
            "nbds+unix:///?socket=/s",
            "nbd://h/x?tls-certificates=a",
            "nbd://h/x?tls-hostname=h",
            "nbds+vsock://2/x?tls-certificates=a",
            "nbd+vsock://2/x",
            "nbd://h h/",
            "nbd",
        ] {
            assert!(text.parse::<NbdUri>().is_err(), "{text}");
        }
        let long = format!("nbd+unix:///?socket=/{}", "x".repeat(SOCKET_PATH_MAX));
        assert_eq!(long.parse::<NbdUri>(), Err(UriError::Socket));
        let long = format!("nbd://h/{}", "x".repeat(STRING_MAX + 1));
        assert!(matches!(long.parse::<NbdUri>(), Err(UriError::ExportLength { .. })));
        assert!(!looks_like_uri(b"./nbd://h/x") && !looks_like_uri(b"nbd:x"));
    }
}
