//! A connection to a server, on which each step waits for its answer: how it is made, and all that
//! is asked for where no event loop runs.
//!
//! All of the negotiation has one deadline, and so has each request. A server that answers a byte
//! at a time is given up as one that is silent.

use std::io::{self, ErrorKind, IoSlice};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use dcd_protocol::nbd::negotiation::{ExportFacts, Negotiation, Step};
use dcd_protocol::nbd::replies::{Asked, Asks, ReplyReader};
use dcd_protocol::nbd::uri::{NbdUri, Server};
use dcd_protocol::nbd::wire::{REQUEST_MAGIC, RequestHeader, command};
use dcd_protocol::store::StoreFailure;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use zerocopy::IntoBytes;

use super::channel::Channel;
use super::{NetworkProblem, certificates, store};

/// A peer of which nothing is heard is asked whether it lives after so long, then so often.
const KEEP_ALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEP_ALIVE_PROBES: u32 = 4;
/// A connection is over when what was sent is not taken for so long. A server that only stands
/// still takes it: it is waited for.
const UNTAKEN_MAX: Duration = Duration::from_secs(60);
/// How often a unix socket whose queue is full is tried.
const QUEUE_INTERVAL: Duration = Duration::from_millis(20);

/// See the module.
#[derive(Debug)]
pub(crate) struct Link {
    channel: Channel,
    facts: ExportFacts,
    patience: Duration,
    next_cookie: u64,
    /// It broke, or said what makes no sense: it is not used again.
    is_broken: bool,
}

impl Link {
    /// Connects, and agrees on the export; all of it within this time. Only finding the address of
    /// a name may take longer, as long as the system's resolver wants.
    pub(crate) fn open(uri: &NbdUri, patience: Duration) -> Result<Link, NetworkProblem> {
        let deadline = Instant::now() + patience;
        let server = uri.server.to_string();
        let late = |what| NetworkProblem::NoAnswer {
            server: server.clone(),
            seconds: patience.as_secs(),
            what,
        };
        // Before anybody is bothered.
        let tls = uri.tls.as_ref().map(|tls| certificates::connection(&uri.server, tls));
        let mut tls = tls.transpose()?;
        let mut channel = connected(&uri.server, deadline).map_err(|error| match error {
            Unconnected::Host { host, source } => NetworkProblem::Host { host, source },
            Unconnected::Store(failure) => NetworkProblem::Store(failure),
            Unconnected::System(source) if source.kind() == ErrorKind::TimedOut => {
                late("a connection")
            }
            Unconnected::System(source) => {
                NetworkProblem::Connect { server: server.clone(), source }
            }
        })?;
        let broken = |source: io::Error| match source.kind() {
            ErrorKind::TimedOut => late("the agreement on an export"),
            ErrorKind::InvalidData => NetworkProblem::Tls { server: server.clone(), source },
            _ => NetworkProblem::Closed {
                server: server.clone(),
                export: uri.export_words(),
                with_tls: uri.tls.is_some(),
                source,
            },
        };
        // Finding a store open has its own time.
        let deadline = match uri.store() {
            Some(_) => deadline.max(Instant::now() + patience / 2),
            None => deadline,
        };
        let mut negotiation = Negotiation::new(&uri.export, tls.is_some());
        loop {
            match negotiation.step() {
                Step::Send(bytes) => send_all(&mut channel, &bytes, deadline).map_err(broken)?,
                Step::Secure => {
                    channel.begin_tls(tls.take().expect("asked for once, with TLS"));
                    shake_hands(&mut channel, deadline).map_err(broken)?;
                    negotiation.secured();
                }
                Step::Receive(count) => {
                    let mut bytes = vec![0; count];
                    receive_all(&mut channel, &mut bytes, deadline).map_err(broken)?;
                    negotiation.received(&bytes).map_err(|source| NetworkProblem::Negotiation {
                        server: server.clone(),
                        export: uri.export_words(),
                        source,
                    })?;
                }
                Step::Agreed(facts) => {
                    return Ok(Link { channel, facts, patience, next_cookie: 0, is_broken: false });
                }
            }
        }
    }

    /// What the server said of the export.
    pub(crate) fn facts(&self) -> &ExportFacts {
        &self.facts
    }

    /// The connection, which does not wait.
    pub(crate) fn into_channel(self) -> Channel {
        self.channel
    }

    /// Fills `bytes` from `offset` on.
    pub(crate) fn read(&mut self, mut offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        // A server whose blocks are larger reads whole ones.
        let unit = u64::from(self.facts.minimum_block);
        for piece in bytes.chunks_mut(self.facts.maximum_payload as usize) {
            let end = offset + piece.len() as u64;
            let from = offset / unit * unit;
            let length = end.next_multiple_of(unit).min(self.facts.size_bytes.max(end)) - from;
            if from == offset && length == piece.len() as u64 {
                self.ask(command::READ, offset, piece.len() as u32, &[], piece)?;
            } else {
                let mut whole = vec![0; length as usize];
                self.ask(command::READ, from, length as u32, &[], &mut whole)?;
                let at = (offset - from) as usize;
                piece.copy_from_slice(&whole[at..at + piece.len()]);
            }
            offset = end;
        }
        Ok(())
    }

    /// Writes at `offset`.
    pub(crate) fn write(&mut self, mut offset: u64, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(self.facts.maximum_payload as usize) {
            self.ask(command::WRITE, offset, piece.len() as u32, piece, &mut [])?;
            offset += piece.len() as u64;
        }
        Ok(())
    }

    /// Makes durable what was written.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.ask(command::FLUSH, 0, 0, &[], &mut [])
    }

    fn ask(
        &mut self,
        command: u16,
        offset: u64,
        length: u32,
        data: &[u8],
        into: &mut [u8],
    ) -> io::Result<()> {
        if self.is_broken {
            return Err(io::Error::other("the connection broke before"));
        }
        let deadline = Instant::now() + self.patience;
        let header = request_header(command, 0, self.next_cookie, offset, length);
        let mut one = One { cookie: self.next_cookie, offset, into, result: None };
        self.next_cookie += 1;
        let answered = self.exchange(&header, data, &mut one, deadline);
        self.is_broken = answered.is_err();
        answered?;
        match one.result {
            Some(Err(error)) => Err(io::Error::from_raw_os_error(error as i32)),
            _ => Ok(()),
        }
    }

    fn exchange(
        &mut self,
        header: &RequestHeader,
        data: &[u8],
        one: &mut One<'_>,
        deadline: Instant,
    ) -> io::Result<()> {
        send_all(&mut self.channel, header.as_bytes(), deadline)?;
        send_all(&mut self.channel, data, deadline)?;
        let mut reader = ReplyReader::new(self.facts.structured);
        let mut bytes = [0; 16 << 10];
        while one.result.is_none() {
            let count = receive(&mut self.channel, &mut bytes, deadline)?;
            reader.received(&bytes[..count], one).map_err(io::Error::other)?;
        }
        Ok(())
    }
}

/// A request as it is sent.
pub(crate) fn request_header(
    command: u16,
    flags: u16,
    cookie: u64,
    offset: u64,
    length: u32,
) -> RequestHeader {
    RequestHeader {
        magic: REQUEST_MAGIC.into(),
        flags: flags.into(),
        command: command.into(),
        cookie: cookie.into(),
        offset: offset.into(),
        length: length.into(),
    }
}

/// The one request that is under way.
struct One<'a> {
    cookie: u64,
    offset: u64,
    into: &'a mut [u8],
    result: Option<Result<(), u32>>,
}

impl Asks for One<'_> {
    fn asked(&self, cookie: u64) -> Option<Asked> {
        let is_ours = cookie == self.cookie && self.result.is_none();
        let asked = match self.into.len() {
            0 => Asked::Done,
            length => Asked::Data { offset: self.offset, length: length as u32 },
        };
        is_ours.then_some(asked)
    }

    fn data(&mut self, _: u64, at: usize, bytes: &[u8]) {
        self.into[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn zeroes(&mut self, _: u64, at: usize, length: usize) {
        self.into[at..at + length].fill(0);
    }

    fn ended(&mut self, _: u64, result: Result<(), u32>) {
        self.result = Some(result);
    }
}

enum Unconnected {
    Host { host: String, source: io::Error },
    System(io::Error),
    Store(StoreFailure),
}

impl From<Errno> for Unconnected {
    fn from(errno: Errno) -> Unconnected {
        Unconnected::System(errno.into())
    }
}

fn connected(server: &Server, deadline: Instant) -> Result<Channel, Unconnected> {
    match server {
        Server::Unix(path) => Ok(Channel::new(connected_unix(path, deadline)?)),
        Server::Store(name) => store::connected(name).map_err(Unconnected::Store),
        Server::Tcp { host, port } => {
            let failed = |source| Unconnected::Host { host: host.clone(), source };
            let addresses = (host.as_str(), *port).to_socket_addrs().map_err(failed)?;
            let mut last = Errno::ADDRNOTAVAIL;
            for address in addresses {
                match connected_tcp(&address, deadline) {
                    Ok(socket) => return Ok(Channel::new(socket)),
                    Err(errno) => last = errno,
                }
            }
            Err(last.into())
        }
    }
}

fn connected_unix(path: &Path, deadline: Instant) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let address = SocketAddrUnix::new(path)?;
    loop {
        match connect(&socket, &address) {
            Ok(()) => return Ok(socket),
            // Its queue is full.
            Err(Errno::AGAIN) if Instant::now() < deadline => std::thread::sleep(QUEUE_INTERVAL),
            Err(Errno::AGAIN) => return Err(Errno::TIMEDOUT),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

fn connected_tcp(address: &SocketAddr, deadline: Instant) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match connect(&socket, address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS | Errno::INTR) => {
            wait(&socket, PollFlags::OUT, deadline)?;
            sockopt::socket_error(&socket)??;
        }
        Err(errno) => return Err(errno),
    }
    sockopt::set_tcp_nodelay(&socket, true)?;
    // A machine that is gone says nothing: without these a connection to it would last for hours.
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, KEEP_ALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(&socket, KEEP_ALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(&socket, KEEP_ALIVE_PROBES)?;
    sockopt::set_tcp_user_timeout(&socket, UNTAKEN_MAX.as_millis() as u32)?;
    Ok(socket)
}

/// Waits until the socket is ready.
fn wait(socket: &OwnedFd, flags: PollFlags, deadline: Instant) -> Result<(), Errno> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Errno::TIMEDOUT);
        }
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&socket.as_fd(), flags)], Some(&left)) {
            Ok(1..) => return Ok(()),
            Ok(0) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// All of the handshake of TLS.
fn shake_hands(channel: &mut Channel, deadline: Instant) -> io::Result<()> {
    while channel.is_handshaking() {
        send_rest(channel, deadline)?;
        match channel.receive(&mut []) {
            Ok(_) => return Err(ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
            Err(_) if channel.is_handshaking() => {
                wait(&channel.socket(), PollFlags::IN, deadline)?;
            }
            Err(_) => {}
        }
    }
    send_rest(channel, deadline)
}

fn send_rest(channel: &mut Channel, deadline: Instant) -> io::Result<()> {
    loop {
        match channel.send_rest() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                wait(&channel.socket(), PollFlags::OUT, deadline)?;
            }
            sent => return sent,
        }
    }
}

fn send_all(channel: &mut Channel, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        match channel.send(&[IoSlice::new(bytes)]) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                wait(&channel.socket(), PollFlags::OUT, deadline)?;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    send_rest(channel, deadline)
}

/// What has come, and at least one byte.
fn receive(channel: &mut Channel, bytes: &mut [u8], deadline: Instant) -> io::Result<usize> {
    loop {
        // Also one that always has something to say has an end.
        if Instant::now() >= deadline {
            return Err(ErrorKind::TimedOut.into());
        }
        match channel.receive(bytes) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => return Ok(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                wait(&channel.socket(), PollFlags::IN, deadline)?;
            }
            Err(error) => return Err(error),
        }
    }
}

pub(super) fn receive_all(
    channel: &mut Channel,
    mut bytes: &mut [u8],
    deadline: Instant,
) -> io::Result<()> {
    while !bytes.is_empty() {
        let count = receive(channel, bytes, deadline)?;
        bytes = &mut bytes[count..];
    }
    Ok(())
}
