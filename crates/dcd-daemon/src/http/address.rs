//! Where HTTP is served: `127.0.0.1:PORT` or `unix:PATH`.
//!
//! Who reads the page learns names of disks and settings, so it is for this machine only: a loopback
//! address, or a unix socket of mode 0600. What is further away comes through `ssh -L` or a proxy
//! that asks who it is. Metrics may be read from anywhere (`--metrics`), and there is nothing else.

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::str::FromStr;

use crate::frontend::nbd::listen::{ListenError, UnixSocket, bind_patiently, listen_unix};

/// An address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HttpAddress {
    /// On loopback; port 0: any free one.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}

impl FromStr for HttpAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<HttpAddress, String> {
        let form = "expected a loopback address and a port, or a socket, like 127.0.0.1:9465, [::1]:9465 or unix:/run/dcd/sdb.http";
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.is_empty() {
                true => Err(format!("{form}, found {text:?}")),
                false => Ok(HttpAddress::Unix(path.into())),
            };
        }
        let address: SocketAddr = text.parse().map_err(|_| format!("{form}, found {text:?}"))?;
        match address.ip().is_loopback() {
            true => Ok(HttpAddress::Tcp(address)),
            false => Err(format!(
                "{form}, found {text:?}, which others can reach: there is neither TLS nor a password; use ssh -L"
            )),
        }
    }
}

impl fmt::Display for HttpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HttpAddress::Tcp(address) => write!(f, "{address}"),
            HttpAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// What is answered to those who come in here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shows {
    /// The page, and all that it is made of.
    Page,
    /// Metrics, and nothing else.
    Metrics,
}

/// A socket that is listened on.
pub struct Door {
    pub(super) socket: Socket,
    pub(super) shows: Shows,
}

/// Of which kind.
pub(super) enum Socket {
    Tcp(TcpListener),
    Unix(UnixSocket),
}

impl Door {
    /// Listens for those who look at the page.
    ///
    /// # Errors
    /// If somebody else listens there, or it cannot be.
    pub fn page(address: &HttpAddress) -> Result<Door, ListenError> {
        let socket = match address {
            HttpAddress::Tcp(address) => Socket::Tcp(listen_tcp(*address)?),
            HttpAddress::Unix(path) => Socket::Unix(listen_unix(path)?),
        };
        Ok(Door { socket, shows: Shows::Page })
    }

    /// Listens for those who read metrics; on any address, since they can only read.
    ///
    /// # Errors
    /// The same.
    pub fn metrics(address: SocketAddr) -> Result<Door, ListenError> {
        Ok(Door { socket: Socket::Tcp(listen_tcp(address)?), shows: Shows::Metrics })
    }

    /// Where it listens, with the real port; of a unix socket nothing.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(listener) => listener.local_addr().ok(),
            Socket::Unix(_) => None,
        }
    }

    /// What comes in here is shown.
    pub fn shows(&self) -> Shows {
        self.shows
    }
}

fn listen_tcp(address: SocketAddr) -> Result<TcpListener, ListenError> {
    bind_patiently(&[address]).map_err(|source| ListenError::Io {
        operation: "listen on",
        address: address.to_string(),
        source,
    })
}

/// Whether a `Host` names this machine as whoever sits at it does, with any port. A page of another
/// site that has its name lead here ("DNS rebinding") still sends that name.
pub(super) fn is_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, port)) if port.is_empty() || is_port(port) => name,
            _ => return false,
        },
        None => match host.split_once(':') {
            Some((name, port)) if is_port(&format!(":{port}")) => name,
            Some(_) => return false,
            None => host,
        },
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn is_port(text: &str) -> bool {
    text.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_listened_to() {
        for text in ["127.0.0.1:9465", "127.9.9.9:0", "[::1]:1", "unix:/run/x"] {
            assert_eq!(text.parse::<HttpAddress>().unwrap().to_string(), text);
        }
        for text in ["0.0.0.0:80", "192.0.2.1:80", "[::]:80", "localhost:80", "unix:", "9465", ""] {
            assert!(text.parse::<HttpAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_host_is_this_machine_or_not() {
        for host in ["localhost", "LOCALHOST:9465", "127.0.0.1:80", "127.1.2.3", "[::1]", "[::1]:9"]
        {
            assert!(is_this_machine(host), "{host}");
        }
        for host in [
            "example.org",
            "localhost.example.org",
            "127.0.0.1.example.org:80",
            "0.0.0.0",
            "[::1]x",
            "[::1",
            "localhost:port",
            "localhost:1:2",
            "",
            "10.0.0.1:80",
            "localhost:99999",
            "::1",
        ] {
            assert!(!is_this_machine(host), "{host}");
        }
    }
}
