//! NBD clients on the event loop: listening sockets, connections, and what moves between sockets and
//! the [`Connection`]s that know the protocol.
//!
//! A receive is always under way in the ring while a connection wants input; replies of one turn are
//! sent together, directly, at the end of the turn, and only what the socket does not take at once
//! waits for it to become writable. A broken connection ends alone: its slot is freed at once, what
//! it had in flight is answered to nobody, and the ring keeps its memory until the last receive has
//! ended.

use std::cell::RefCell;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use dcd_engine::{Duration, Reply, Time};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, Shutdown, SocketFlags};

use crate::frontend::nbd::{Connection, Event, Export};
use crate::listen::{Listener, NbdAddress};
use crate::uring::{Receiver, Ring};

/// Most clients at a time; more are turned away.
pub const CONNECTIONS_MAX: usize = 128;
/// A client has so long to negotiate.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Slices in one send.
const SLICES_MAX: usize = 64;
/// Wait after a failed accept (out of descriptors or memory).
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// Connections taken in one turn, so that a flood of them does not hold up the others.
const ACCEPTS_PER_TURN_MAX: usize = 16;

/// Names a connection; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientKey {
    index: u32,
    generation: u32,
}

/// Names what the server waits for in the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NbdKey {
    /// A listening socket has clients.
    Listener(usize),
    /// A connection has received.
    Received(ClientKey),
    /// A connection can be sent to again.
    Writable(ClientKey),
}

/// A socket and its protocol state: what must stay while the kernel may write to it.
struct Peer {
    socket: OwnedFd,
    connection: RefCell<Connection>,
}

// SAFETY: `Connection` promises that the memory of `receive_space` stays in place, and is not read,
// until `received` is called. That happens only after the completion of the receive, of which there
// is at most one (`Client::is_receiving`).
unsafe impl Receiver for Peer {
    fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn space(&self) -> (*mut u8, usize) {
        let mut connection = self.connection.borrow_mut();
        let space = connection.receive_space();
        (space.as_mut_ptr(), space.len())
    }
}

impl AsFd for Peer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

struct Client {
    generation: u32,
    peer: Rc<Peer>,
    opened: Time,
    is_receiving: bool,
    waits_for_writable: bool,
    /// In the list of those that may have events.
    is_eventful: bool,
    /// In the list of those that may have something to send or to receive.
    is_touched: bool,
}

struct Door {
    listener: Rc<Listener>,
    /// Accepting failed; it is tried again then.
    retry_at: Option<Time>,
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// All listening sockets and clients.
pub struct NbdServer {
    export: Export,
    clients_max: usize,
    doors: Vec<Door>,
    clients: Vec<Option<Client>>,
    connected: usize,
    next_generation: u32,
    /// Clients that may have events.
    eventful: Vec<ClientKey>,
    /// Clients on which something may have happened since they were last flushed.
    touched: Vec<ClientKey>,
    /// When the next handshake takes too long, if any is under way.
    handshake_deadline: Option<Time>,
    quiet: bool,
}

impl NbdServer {
    /// A server without sockets, for so many clients at a time.
    pub fn new(export: Export, clients_max: usize, quiet: bool) -> NbdServer {
        NbdServer {
            export,
            clients_max,
            doors: Vec::new(),
            clients: Vec::new(),
            connected: 0,
            next_generation: 0,
            eventful: Vec::new(),
            touched: Vec::new(),
            handshake_deadline: None,
            quiet,
        }
    }

    /// Begins to take clients.
    pub fn add_listener<K: Copy + From<NbdKey>>(&mut self, listener: Listener, ring: &mut Ring<K>) {
        let listener = Rc::new(listener);
        let key = K::from(NbdKey::Listener(self.doors.len()));
        ring.poll(key, listener.clone(), PollFlags::IN);
        self.doors.push(Door { listener, retry_at: None });
    }

    /// Takes no more clients, and frees the addresses.
    pub fn stop_listening(&mut self) {
        // The ring keeps each socket until its poll has ended; shutting it down wakes that.
        for door in self.doors.drain(..) {
            let _ = rustix::net::shutdown(&door.listener.socket, Shutdown::Both);
        }
    }

    /// Clients connected.
    pub fn connected(&self) -> usize {
        self.connected
    }

    /// When [`NbdServer::timeout`] is needed.
    pub fn next_due(&self) -> Option<Time> {
        let retries = self.doors.iter().filter_map(|door| door.retry_at);
        retries.chain(self.handshake_deadline).min()
    }

    /// A listening socket is ready.
    pub fn accept<K: Copy + From<NbdKey>>(&mut self, now: Time, index: usize, ring: &mut Ring<K>) {
        let Some(door) = self.doors.get(index) else { return };
        let listener = door.listener.clone();
        for _ in 0..ACCEPTS_PER_TURN_MAX {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match rustix::net::accept_with(&listener.socket, flags) {
                Ok(socket) => self.connect(now, socket, &listener.address),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => break,
                Err(errno) => {
                    // Others may go and make room. The socket stays readable, so waiting for that
                    // would be a tight circle.
                    self.log(format_args!("cannot accept on {}: {errno}", listener.address));
                    self.doors[index].retry_at = Some(now.after(ACCEPT_RETRY));
                    return;
                }
            }
        }
        ring.poll(K::from(NbdKey::Listener(index)), listener, PollFlags::IN);
    }

    fn connect(&mut self, now: Time, socket: OwnedFd, address: &NbdAddress) {
        if self.connected == self.clients_max {
            self.log(format_args!("turned a client away: {} are connected", self.clients_max));
            return;
        }
        if address.is_tcp() {
            // Replies are sent whole; waiting for more would only delay them.
            let _ = rustix::net::sockopt::set_tcp_nodelay(&socket, true);
            let _ = rustix::net::sockopt::set_socket_keepalive(&socket, true);
        }
        let connection = RefCell::new(Connection::new(self.export.clone()));
        self.next_generation = self.next_generation.wrapping_add(1);
        let client = Client {
            generation: self.next_generation,
            peer: Rc::new(Peer { socket, connection }),
            opened: now,
            is_receiving: false,
            waits_for_writable: false,
            is_eventful: false,
            is_touched: false,
        };
        let index = match self.clients.iter().position(Option::is_none) {
            Some(index) => index,
            None => {
                self.clients.push(None);
                self.clients.len() - 1
            }
        };
        let key = ClientKey { index: index as u32, generation: client.generation };
        self.clients[index] = Some(client);
        self.connected += 1;
        let deadline = now.after(HANDSHAKE_TIMEOUT);
        self.handshake_deadline = Some(self.handshake_deadline.unwrap_or(deadline).min(deadline));
        self.touch(key);
    }

    /// A receive has ended.
    pub fn received(&mut self, key: ClientKey, result: Result<usize, Errno>) {
        let Some(client) = self.client(key) else { return };
        client.is_receiving = false;
        let mut connection = client.peer.connection.borrow_mut();
        match result {
            Ok(0) => connection.stop_receiving(),
            Ok(count) => connection.received(count),
            Err(errno) => {
                drop(connection);
                return self.disconnect(key, Some(format_args!("{errno}")));
            }
        }
        drop(connection);
        self.touch(key);
    }

    /// The socket takes bytes again.
    pub fn writable(&mut self, key: ClientKey) {
        if let Some(client) = self.client(key) {
            client.waits_for_writable = false;
            self.touch(key);
        }
    }

    /// The next thing that a client wants; when there is nothing more, what has been answered is to
    /// be sent with [`NbdServer::flush`].
    pub fn poll_event(&mut self) -> Option<(ClientKey, Event)> {
        while let Some(&key) = self.eventful.last() {
            let event = match self.client(key) {
                None => None,
                Some(client) => {
                    let event = client.peer.connection.borrow_mut().poll_event();
                    client.is_eventful = event.is_some();
                    event
                }
            };
            match event {
                None => {
                    self.eventful.pop();
                }
                Some(Event::Closed(Some(error))) => {
                    self.log(format_args!("NBD client broke the protocol: {error}"));
                }
                Some(Event::Closed(None)) => {}
                Some(event) => return Some((key, event)),
            }
        }
        None
    }

    /// Answers a request.
    pub fn complete(&mut self, key: ClientKey, handle: u64, reply: Reply) {
        if let Some(client) = self.client(key) {
            client.peer.connection.borrow_mut().complete(handle, reply.result, reply.buffer);
            self.touch(key);
        }
    }

    /// Answers a block status query.
    pub fn complete_block_status(&mut self, key: ClientKey, handle: u64, pieces: &[(u64, bool)]) {
        if let Some(client) = self.client(key) {
            client.peer.connection.borrow_mut().complete_block_status(handle, pieces);
            self.touch(key);
        }
    }

    /// Whether there is something to [`NbdServer::flush`].
    pub fn has_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    /// Sends what is to be sent, receives again where that has ended, closes what is finished.
    /// There may be new events afterwards.
    pub fn flush<K: Copy + From<NbdKey>>(&mut self, ring: &mut Ring<K>) {
        for key in std::mem::take(&mut self.touched) {
            let Some(client) = self.client(key) else { continue };
            client.is_touched = false;
            let sent = send(client);
            let connection = client.peer.connection.borrow();
            let finished = connection.is_finished();
            let wants_input = connection.wants_input();
            drop(connection);
            match sent {
                Err(errno) => {
                    self.disconnect(key, Some(format_args!("{errno}")));
                    continue;
                }
                Ok(_) if finished => {
                    self.disconnect(key, None);
                    continue;
                }
                Ok(Sent::All) => {}
                Ok(Sent::Blocked) => {
                    if !client.waits_for_writable {
                        client.waits_for_writable = true;
                        let key = K::from(NbdKey::Writable(key));
                        ring.poll(key, client.peer.clone(), PollFlags::OUT);
                    }
                }
                Ok(Sent::AllAndMore) => self.touch(key),
            }
            let Some(client) = self.client(key) else { continue };
            if wants_input && !client.is_receiving {
                client.is_receiving = true;
                ring.receive(K::from(NbdKey::Received(key)), client.peer.clone());
            }
        }
    }

    /// Does what is due: accepts again, ends handshakes that take too long.
    pub fn timeout<K: Copy + From<NbdKey>>(&mut self, now: Time, ring: &mut Ring<K>) {
        for index in 0..self.doors.len() {
            let door = &mut self.doors[index];
            if door.retry_at.is_some_and(|at| at <= now) {
                door.retry_at = None;
                let key = K::from(NbdKey::Listener(index));
                ring.poll(key, door.listener.clone(), PollFlags::IN);
            }
        }
        if self.handshake_deadline.is_none_or(|deadline| deadline > now) {
            return;
        }
        self.handshake_deadline = None;
        for index in 0..self.clients.len() {
            let Some(client) = &self.clients[index] else { continue };
            if !client.peer.connection.borrow().in_handshake() {
                continue;
            }
            let deadline = client.opened.after(HANDSHAKE_TIMEOUT);
            if deadline <= now {
                let key = ClientKey { index: index as u32, generation: client.generation };
                self.disconnect(key, Some(format_args!("no handshake within 10 s")));
            } else {
                let earlier = self.handshake_deadline.unwrap_or(deadline).min(deadline);
                self.handshake_deadline = Some(earlier);
            }
        }
    }

    /// Whether every answer that was given has been sent.
    pub fn is_quiet(&self) -> bool {
        let quiet = |client: &Client| {
            let connection = client.peer.connection.borrow();
            connection.requests_in_flight() == 0 && connection.transmit().next().is_none()
        };
        self.clients.iter().flatten().all(quiet)
    }

    /// Ends all connections.
    pub fn disconnect_all(&mut self) {
        for index in 0..self.clients.len() {
            if let Some(client) = &self.clients[index] {
                let key = ClientKey { index: index as u32, generation: client.generation };
                self.disconnect(key, None);
            }
        }
    }

    fn disconnect(&mut self, key: ClientKey, reason: Option<std::fmt::Arguments<'_>>) {
        if self.client(key).is_none() {
            return;
        }
        let Some(client) = self.clients[key.index as usize].take() else { return };
        self.connected -= 1;
        client.peer.connection.borrow_mut().stop_receiving();
        // Wakes what the ring still waits for; its share of the peer is the last.
        let _ = rustix::net::shutdown(&client.peer.socket, Shutdown::Both);
        if let Some(reason) = reason {
            self.log(format_args!("NBD client disconnected: {reason}"));
        }
    }

    fn client(&mut self, key: ClientKey) -> Option<&mut Client> {
        let client = self.clients.get_mut(key.index as usize)?.as_mut()?;
        (client.generation == key.generation).then_some(client)
    }

    fn touch(&mut self, key: ClientKey) {
        let Some(client) = self.client(key) else { return };
        let was_eventful = std::mem::replace(&mut client.is_eventful, true);
        let was_touched = std::mem::replace(&mut client.is_touched, true);
        if !was_eventful {
            self.eventful.push(key);
        }
        if !was_touched {
            self.touched.push(key);
        }
    }

    fn log(&self, text: std::fmt::Arguments<'_>) {
        if !self.quiet {
            eprintln!("dcd: {text}");
        }
    }
}

enum Sent {
    /// Everything.
    All,
    /// Everything, and sending has made room for requests that had waited.
    AllAndMore,
    /// Until the socket took no more.
    Blocked,
}

/// Sends what the connection has to send, as far as the socket takes it.
fn send(client: &mut Client) -> Result<Sent, Errno> {
    if client.waits_for_writable {
        return Ok(Sent::Blocked);
    }
    let mut connection = client.peer.connection.borrow_mut();
    let wanted_input = connection.wants_input();
    loop {
        let mut slices: [IoSlice<'_>; SLICES_MAX] = std::array::from_fn(|_| IoSlice::new(&[]));
        let mut count = 0;
        for (place, bytes) in slices.iter_mut().zip(connection.transmit()) {
            *place = IoSlice::new(bytes);
            count += 1;
        }
        if count == 0 {
            let unstalled = !wanted_input && connection.wants_input();
            return Ok(if unstalled { Sent::AllAndMore } else { Sent::All });
        }
        let sent = rustix::net::sendmsg(
            &client.peer.socket,
            &slices[..count],
            &mut SendAncillaryBuffer::default(),
            SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
        );
        match sent {
            Ok(sent) => connection.transmitted(sent),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(Sent::Blocked),
            Err(errno) => return Err(errno),
        }
    }
}
