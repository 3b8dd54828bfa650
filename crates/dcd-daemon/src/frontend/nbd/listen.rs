//! Where NBD clients are awaited: `unix:PATH` or `tcp:HOST:PORT`.
//!
//! A unix socket is made with mode 0600 and removed at the end. One left behind by a daemon that
//! died is replaced, but only if nobody answers on it. TCP is taken with TLS; without it only on
//! loopback addresses, unless somebody insists: then the protocol is in the clear and anybody who
//! can connect owns the disk.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::str::FromStr;
use std::time::{Duration, Instant};

use rustix::fs::Mode;

use crate::caretaker;
use crate::device::device_file::is_alive;
use crate::frontend::nbd::server::CONNECTIONS_MAX;
use crate::frontend::nbd::tls::files::TlsFiles;
use crate::frontend::nbd::tls::handshake_thread::HandshakeThread;
use crate::process::service_manager::take_unix_listener;

/// Port of NBD, when a TCP address has none.
pub const NBD_PORT: u16 = 10809;

/// The kernel ends the io_uring of a killed process in the background, and its sockets listen until
/// then; so long they are waited for.
const DEAD_LISTENER_PATIENCE: Duration = Duration::from_secs(2);
const DEAD_LISTENER_INTERVAL: Duration = Duration::from_millis(20);

/// An address of an NBD server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NbdAddress {
    /// A unix socket.
    Unix(PathBuf),
    /// Host (a name or address on loopback) and port.
    Tcp {
        /// Host, without brackets.
        host: String,
        /// Port; 0: any free one.
        port: u16,
    },
}

/// An address that cannot be read or used.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Neither form.
    #[error("expected unix:PATH or tcp:HOST:PORT, found {found:?}")]
    Form {
        /// What was given.
        found: String,
    },
    /// The port is no number.
    #[error("expected a port from 0 to 65535 in {address:?}, found {found:?}")]
    Port {
        /// The whole address.
        address: String,
        /// What stands in the place of the port.
        found: String,
    },
    /// Not on this machine only.
    #[error(
        "{address} is not a loopback address, and there is no TLS to protect what is sent there"
    )]
    NotLoopback {
        /// The address.
        address: String,
    },
    /// Somebody answers on the socket.
    #[error("another program answers on {}", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// There is something else than a socket.
    #[error("{} exists and is not a socket", path.display())]
    NotASocket {
        /// What is in the way.
        path: PathBuf,
    },
    /// The system refused.
    #[error("cannot {operation} {address}: {source}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// Where.
        address: String,
        /// Why not.
        source: io::Error,
    },
}

impl ListenError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            ListenError::Form { .. } | ListenError::Port { .. } => {
                format!("for example unix:/run/dcd.sock or tcp:127.0.0.1:{NBD_PORT}")
            }
            ListenError::NotLoopback { .. } => {
                "add --tls-cert, --tls-key and --tls-ca (docs/nbd.md tells how to make them); or listen on a unix \
                 socket and forward it: ssh -L PORT:/path/to/socket HOST; with --insecure-tcp whoever reaches the port \
                 may read and change everything"
                    .into()
            }
            ListenError::InUse { path } => format!(
                "choose another path, or stop the program that listens on {} (see ss -lxp)",
                path.display()
            ),
            ListenError::NotASocket { .. } => "choose another path or move the file away".into(),
            ListenError::Io { source, .. } => match source.kind() {
                io::ErrorKind::AddrInUse => "choose another port, or 0 for any free one".into(),
                io::ErrorKind::NotFound => "the directory of the socket must exist".into(),
                io::ErrorKind::InvalidInput => {
                    "the path of a socket has at most 107 bytes; choose a shorter one".into()
                }
                io::ErrorKind::PermissionDenied => {
                    "run as root, or choose a place where your user may write, or a port from 1024 on"
                        .into()
                }
                _ => "give an address or a name of this machine: tcp:127.0.0.1:10809, or a unix socket".into(),
            },
        })
    }
}

impl FromStr for NbdAddress {
    type Err = ListenError;

    fn from_str(text: &str) -> Result<NbdAddress, ListenError> {
        let form = || ListenError::Form { found: text.to_owned() };
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return Err(form());
            }
            return Ok(NbdAddress::Unix(path.into()));
        }
        let rest = text.strip_prefix("tcp:").ok_or_else(form)?;
        // [::1]:10809, ::1 and 127.0.0.1:10809 are all understood.
        let (host, port) = if let Some(bracketed) = rest.strip_prefix('[') {
            let (host, port) = bracketed.split_once(']').ok_or_else(form)?;
            match port {
                "" => (host, None),
                _ => (host, Some(port.strip_prefix(':').ok_or_else(form)?)),
            }
        } else if rest.matches(':').count() > 1 {
            (rest, None)
        } else {
            rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port)))
        };
        if host.is_empty() {
            return Err(form());
        }
        let port = match port {
            None => NBD_PORT,
            Some(port) => port.parse().map_err(|_| ListenError::Port {
                address: text.to_owned(),
                found: port.to_owned(),
            })?,
        };
        Ok(NbdAddress::Tcp { host: host.to_owned(), port })
    }
}

impl fmt::Display for NbdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NbdAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            NbdAddress::Tcp { host, port } if host.contains(':') => {
                write!(f, "tcp:[{host}]:{port}")
            }
            NbdAddress::Tcp { host, port } => write!(f, "tcp:{host}:{port}"),
        }
    }
}

impl NbdAddress {
    /// The address as an NBD URI, for `nbdinfo` and the like.
    pub fn uri(&self) -> String {
        match self {
            NbdAddress::Unix(path) => format!("nbd+unix:///?socket={}", path.display()),
            NbdAddress::Tcp { host, port } if host.contains(':') => {
                format!("nbd://[{host}]:{port}")
            }
            NbdAddress::Tcp { host, port } => format!("nbd://{host}:{port}"),
        }
    }

    /// Whether a client may be on another machine's side of a tunnel and so outlive this one (C6).
    pub fn is_tcp(&self) -> bool {
        matches!(self, NbdAddress::Tcp { .. })
    }
}

/// How NBD is served, besides where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NbdOptions {
    /// TLS, for all TCP addresses.
    pub tls: Option<TlsFiles>,
    /// Listen on any TCP address without TLS.
    pub insecure_tcp: bool,
    /// A change over TCP is acknowledged when it is durable, whatever holds for others (C6).
    pub tcp_durable: bool,
    /// Most clients at a time.
    pub connections_max: usize,
}

impl NbdOptions {
    /// Whether changes over TCP are acknowledged when they are durable; `None` if no address is
    /// TCP.
    pub fn tcp_durable(&self, addresses: &[NbdAddress]) -> Option<bool> {
        addresses.iter().any(NbdAddress::is_tcp).then_some(self.tcp_durable)
    }
}

impl Default for NbdOptions {
    fn default() -> NbdOptions {
        NbdOptions {
            tls: None,
            insecure_tcp: false,
            tcp_durable: true,
            connections_max: CONNECTIONS_MAX,
        }
    }
}

/// A socket that is listened on; non-blocking.
pub struct Listener {
    /// The listening socket.
    pub socket: OwnedFd,
    /// Where it really listens (the port, if any was asked for).
    pub address: NbdAddress,
    /// TLS is required of its clients; this computes their handshakes.
    pub handshakes: Option<Rc<HandshakeThread>>,
    /// Each change of its clients is acknowledged when it is durable.
    pub durable: bool,
    /// Removes the unix socket at the end.
    _file: Option<SocketFile>,
}

/// A listening unix socket, and its file if we have made it.
pub type UnixSocket = (UnixListener, Option<SocketFile>);

impl Listener {
    /// Whether what is sent can be read and changed on its way by others than root.
    pub fn is_unprotected(&self) -> bool {
        self.address.is_tcp() && self.handshakes.is_none()
    }
}

/// Opens a listening socket. `handshakes` is there if there is TLS.
pub fn listen(
    address: &NbdAddress,
    options: &NbdOptions,
    handshakes: Option<&Rc<HandshakeThread>>,
) -> Result<Listener, ListenError> {
    match address {
        NbdAddress::Unix(path) => {
            let (listener, file) = listen_unix(path)?;
            listener.set_nonblocking(true).map_err(|source| ListenError::Io {
                operation: "listen on",
                address: address.to_string(),
                source,
            })?;
            Ok(Listener {
                socket: listener.into(),
                address: address.clone(),
                handshakes: None,
                durable: false,
                _file: file,
            })
        }
        NbdAddress::Tcp { host, port } => {
            let anywhere = handshakes.is_some() || options.insecure_tcp;
            let (socket, port) = listen_tcp(address, host, *port, anywhere)?;
            Ok(Listener {
                socket,
                address: NbdAddress::Tcp { host: host.to_owned(), port },
                handshakes: handshakes.cloned(),
                durable: options.tcp_durable,
                _file: None,
            })
        }
    }
}

/// Binds, as soon as a daemon that was killed has let go.
pub(crate) fn bind_patiently(candidates: &[SocketAddr]) -> io::Result<TcpListener> {
    let until = Instant::now() + DEAD_LISTENER_PATIENCE;
    loop {
        match TcpListener::bind(candidates) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                std::thread::sleep(DEAD_LISTENER_INTERVAL);
            }
            result => return result,
        }
    }
}

/// Listens on a TCP address; gives the socket and its real port.
fn listen_tcp(
    address: &NbdAddress,
    host: &str,
    port: u16,
    anywhere: bool,
) -> Result<(OwnedFd, u16), ListenError> {
    let fail = |operation| {
        move |source| ListenError::Io { operation, address: address.to_string(), source }
    };
    let candidates: Vec<SocketAddr> =
        (host, port).to_socket_addrs().map_err(fail("look up"))?.collect();
    // A name must mean loopback only; otherwise which one is used would be chance.
    let is_loopback = !candidates.is_empty() && candidates.iter().all(|a| a.ip().is_loopback());
    if !is_loopback && !anywhere {
        return Err(ListenError::NotLoopback { address: address.to_string() });
    }
    let listener = bind_patiently(&candidates).map_err(fail("listen on"))?;
    listener.set_nonblocking(true).map_err(fail("listen on"))?;
    let port = listener.local_addr().map_err(fail("listen on"))?.port();
    Ok((listener.into(), port))
}

/// A unix socket in the file system, removed when dropped if it is still the same.
pub struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Somebody may have replaced it meanwhile; theirs stays.
        if let Ok(found) = std::fs::symlink_metadata(&self.path)
            && (found.dev(), found.ino()) == (self.device, self.inode)
        {
            // Who has given up his rights may remove nothing.
            if !caretaker::remove(&self.path) {
                let _ = std::fs::remove_file(&self.path);
            }
        }
    }
}

/// Whether the process that began to listen on the other side has ended.
fn is_listener_dead(stream: &UnixStream) -> bool {
    rustix::net::sockopt::socket_peercred(stream)
        .is_ok_and(|peer| !is_alive(peer.pid.as_raw_nonzero().get() as u32))
}

/// The unix socket that the service manager listens on for us; else makes one with mode 0600, in
/// place of a dead one if there is one.
pub fn listen_unix(path: &Path) -> Result<UnixSocket, ListenError> {
    let fail = |operation| {
        move |source| ListenError::Io { operation, address: path.display().to_string(), source }
    };
    // Of a service, its manager may listen already, and does so while nobody serves.
    if let Some(socket) = take_unix_listener(path) {
        return Ok((socket.into(), None));
    }
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(ListenError::NotASocket { path: path.to_owned() });
        }
        Ok(_) => {
            let until = Instant::now() + DEAD_LISTENER_PATIENCE;
            loop {
                match UnixStream::connect(path) {
                    Ok(stream) if is_listener_dead(&stream) && Instant::now() < until => {
                        std::thread::sleep(DEAD_LISTENER_INTERVAL);
                    }
                    Ok(_) => return Err(ListenError::InUse { path: path.to_owned() }),
                    // Refused means that nobody has it open any more.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => break,
                    // Other errors (no right to connect) tell nothing, so it stays.
                    Err(error) => return Err(fail("connect to the existing")(error)),
                }
            }
            std::fs::remove_file(path).map_err(fail("replace the stale socket"))?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(fail("look at")(error)),
    }
    // The mask makes the socket private from its first moment; a chmod afterwards would leave a
    // gap. It is a property of the process, so it is put back at once.
    let mask = rustix::process::umask(Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(path);
    rustix::process::umask(mask);
    let listener = bound.map_err(fail("listen on"))?;
    let found = std::fs::symlink_metadata(path).map_err(fail("look at"))?;
    let file = SocketFile { path: path.to_owned(), device: found.dev(), inode: found.ino() };
    Ok((listener, Some(file)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn addresses_are_read_and_written_back() {
        let tcp = |host: &str, port| NbdAddress::Tcp { host: host.into(), port };
        for (text, address, back) in [
            ("unix:/run/x.sock", NbdAddress::Unix("/run/x.sock".into()), "unix:/run/x.sock"),
            ("tcp:127.0.0.1:1000", tcp("127.0.0.1", 1000), "tcp:127.0.0.1:1000"),
            ("tcp:localhost", tcp("localhost", NBD_PORT), "tcp:localhost:10809"),
            ("tcp:[::1]:5", tcp("::1", 5), "tcp:[::1]:5"),
            ("tcp:::1", tcp("::1", NBD_PORT), "tcp:[::1]:10809"),
        ] {
            assert_eq!(text.parse::<NbdAddress>().unwrap(), address, "{text}");
            assert_eq!(address.to_string(), back);
        }
        for text in ["", "/run/x", "unix:", "tcp:", "tcp::10", "tcp:[::1", "udp:localhost:1"] {
            assert!(matches!(text.parse::<NbdAddress>(), Err(ListenError::Form { .. })), "{text}");
        }
        assert!(matches!("tcp:h:99999".parse::<NbdAddress>(), Err(ListenError::Port { .. })));
    }

    #[test]
    fn only_loopback_is_listened_on_without_tls() {
        let listen =
            |address: &str| super::listen(&address.parse().unwrap(), &NbdOptions::default(), None);
        let error = listen("tcp:0.0.0.0:0").err().unwrap();
        assert!(matches!(error, ListenError::NotLoopback { .. }));
        assert!(error.to_string().contains("TLS"));
        assert!(error.hint().unwrap().contains("ssh"));
        let listener = listen("tcp:127.0.0.1:0").unwrap();
        assert!(!matches!(listener.address, NbdAddress::Tcp { port: 0, .. }));
        assert!(listener.is_unprotected() && listener.durable);
        let insecure = NbdOptions { insecure_tcp: true, ..NbdOptions::default() };
        super::listen(&"tcp:0.0.0.0:0".parse().unwrap(), &insecure, None).unwrap();
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let path = std::env::temp_dir().join(format!("dcd-listen-test-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        drop(UnixListener::bind(&path).unwrap()); // leaves the file behind
        let (listener, file) = listen_unix(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(matches!(listen_unix(&path), Err(ListenError::InUse { .. })));
        drop((listener, file));
        assert!(!path.exists());
        std::fs::write(&path, "not a socket").unwrap();
        assert!(matches!(listen_unix(&path), Err(ListenError::NotASocket { .. })));
        std::fs::remove_file(&path).unwrap();
    }
}
