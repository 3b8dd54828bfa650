//! NBD clients on the event loop: listening sockets, connections, and what moves between sockets
//! and the [`Connection`](crate::frontend::nbd::Connection)s that know the protocol.
//!
//! A receive is always under way in the ring while a connection wants input; replies of one turn
//! are sent together, directly, at the end of the turn, and only what the socket does not take at
//! once waits for it to become writable. A broken connection ends alone: its slot is freed at once,
//! what it had in flight is answered to nobody, and the ring keeps its memory until the last
//! receive has ended.
//!
//! A client that keeps us waiting is ended: with its handshake, with the rest of a request, or with
//! reading what it has asked for. One that merely does nothing may stay. Dead ones are found by the
//! keep-alive of TCP.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use dcd_engine::patience::Patience;
use dcd_engine::{Duration, Reply, Time};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketFlags};

use crate::frontend::nbd::listen::Listener;
use crate::frontend::nbd::places::{Origin, Places, Standing};
use crate::frontend::nbd::tls::certificate_name;
use crate::frontend::nbd::tls::handshake_thread::HandshakeThread;
use crate::frontend::nbd::{Budget, Event, Export, Session};
use crate::process::users::command_of;
use crate::ring::{Receiver, Ring};

/// Most clients that transmit at a time, unless it is said otherwise; more are turned away.
pub const CONNECTIONS_MAX: usize = 128;
/// Most that may be asked for.
pub const CONNECTIONS_LIMIT: usize = 16384;
/// A client has so long to negotiate.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// A client that keeps us waiting must move something in this time ...
const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);
/// ... a whole request, or so many bytes.
const CLIENT_BYTES_MIN: u64 = 256 << 10;
/// The first of those who wait for room holds up the others for so long.
const HOLD_UP_MAX: Duration = Duration::from_secs(1);
/// Lines about clients in a second; who makes more of them must not make the log useless, or us
/// wait for it.
const LINES_PER_SECOND_MAX: u32 = 10;
/// A connection over TCP on which nothing moves is asked for a sign of life after this, then as
/// often.
const KEEPALIVE_IDLE: std::time::Duration = std::time::Duration::from_secs(60);
const KEEPALIVE_INTERVAL: std::time::Duration = std::time::Duration::from_secs(10);
const KEEPALIVE_COUNT: u32 = 6;
/// Received for one client in a turn, without giving others their turn.
const RECEIVED_AT_ONCE_MAX: u64 = 1 << 20;
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
    /// Steps of TLS handshakes were computed.
    Handshakes,
}

/// A socket and its protocol state: what must stay while the kernel may write to it.
struct Peer {
    socket: OwnedFd,
    session: RefCell<Session>,
    /// How much space the receive that is under way has, or the last one had.
    space_bytes: Cell<usize>,
}

// SAFETY: `Session` promises that the memory of `receive_space` stays in place, and is not touched,
// until `received` is called. That happens only after the completion of the receive, of which there
// is at most one (`Client::is_receiving`).
unsafe impl Receiver for Peer {
    fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn space(&self) -> (*mut u8, usize) {
        let mut session = self.session.borrow_mut();
        let space = session.receive_space();
        self.space_bytes.set(space.len());
        (space.as_mut_ptr(), space.len())
    }

    fn waits_for_all(&self) -> bool {
        self.session.borrow().is_amid_data()
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
    /// By the clock of [`Patience`], as all times of a client.
    opened: Time,
    /// Where it comes from, and whose certificate it has.
    name: String,
    origin: Origin,
    standing: Standing,
    /// Its changes are acknowledged when they are durable.
    durable: bool,
    handshakes: Option<Rc<HandshakeThread>>,
    progress: Progress,
    is_receiving: bool,
    waits_for_writable: bool,
    /// In the list of those that may have events.
    is_eventful: bool,
    /// In the list of those that may have something to send or to receive.
    is_touched: bool,
    /// In the queue of those that wait for room.
    is_queued: bool,
    /// What it waits for in there: room for so many bytes.
    wants_room: Option<usize>,
}

/// What a client has done for the requests it has under way.
struct Progress {
    bytes_moved: u64,
    requests_begun: u64,
    /// The same at `at`, when enough had been done.
    bytes_then: u64,
    at: Time,
    /// It keeps us waiting since `at`.
    is_awaited: bool,
}

impl Progress {
    fn new(now: Time) -> Progress {
        Progress { bytes_moved: 0, requests_begun: 0, bytes_then: 0, at: now, is_awaited: false }
    }

    /// Takes note of where a client stands.
    fn note(&mut self, now: Time, session: &Session) {
        let was_awaited = std::mem::replace(&mut self.is_awaited, session.awaits_client());
        let requests = session.requests_begun();
        let enough = self.bytes_moved - self.bytes_then >= CLIENT_BYTES_MIN;
        if !was_awaited || enough || requests != self.requests_begun {
            self.bytes_then = self.bytes_moved;
            self.requests_begun = requests;
            self.at = now;
        }
    }

    /// Since when it keeps us waiting, if it does.
    fn awaited_since(&self) -> Option<Time> {
        self.is_awaited.then_some(self.at)
    }
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
    places: Places,
    doors: Vec<Door>,
    clients: Vec<Option<Client>>,
    connected: usize,
    next_generation: u32,
    /// What all clients together may hold.
    budget: Budget,
    handshakes: Option<Rc<HandshakeThread>>,
    now: Time,
    /// How long clients are waited for: with a pause of ours counts what they could not be heard
    /// in.
    patience: Patience,
    /// Clients that may have events.
    eventful: Vec<ClientKey>,
    /// Clients on which something may have happened since they were last flushed.
    touched: Vec<ClientKey>,
    /// Clients that wait until others have less in flight, the first in front.
    waiting_for_room: VecDeque<ClientKey>,
    /// The first of them, and since when it holds up the others.
    holds_up: Option<(ClientKey, Time)>,
    /// When the next client may have kept us waiting too long, if any does.
    client_deadline: Option<Time>,
    /// Lines written in the second that began then, and lines left out.
    lines: (Time, u32, u32),
    quiet: bool,
}

impl NbdServer {
    /// What clients are told that connect from now on.
    pub(crate) fn show_read_only(&mut self, is_read_only: bool) {
        self.export.read_only = is_read_only;
    }

    /// Clients that come from here on see another size.
    pub(crate) fn show_size(&mut self, bytes: u64) {
        self.export.size_bytes = bytes;
    }

    /// A server without sockets, for so many clients at a time.
    pub fn new(export: Export, clients_max: usize, quiet: bool) -> NbdServer {
        NbdServer {
            export,
            places: Places::new(clients_max),
            doors: Vec::new(),
            clients: Vec::new(),
            connected: 0,
            next_generation: 0,
            budget: Budget::new(),
            handshakes: None,
            now: Time(0),
            patience: Patience::new(Time(0), HANDSHAKE_TIMEOUT),
            eventful: Vec::new(),
            touched: Vec::new(),
            waiting_for_room: VecDeque::new(),
            holds_up: None,
            client_deadline: None,
            lines: (Time(0), 0, 0),
            quiet,
        }
    }

    /// Begins to take clients.
    pub fn add_listener<K: Copy + From<NbdKey>>(&mut self, listener: Listener, ring: &mut Ring<K>) {
        if let (None, Some(handshakes)) = (&self.handshakes, &listener.handshakes) {
            let event = Rc::new(handshakes.event());
            ring.poll(K::from(NbdKey::Handshakes), event, PollFlags::IN);
            self.handshakes = Some(handshakes.clone());
        }
        self.places.fit_descriptors();
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

    /// Takes at most so many clients at a time.
    pub fn set_clients_max(&mut self, clients_max: usize) {
        self.places.admitted_max = clients_max;
    }

    /// Memory is bounded: fewer clients may negotiate at a time.
    pub fn spare_memory(&mut self) {
        self.places.spare_memory();
    }

    /// The clients, each in words.
    pub fn client_names(&self) -> Vec<String> {
        let words = |client: &Client| {
            let name = &client.name;
            match rustix::net::sockopt::socket_peercred(&client.peer.socket) {
                Ok(peer) if name.starts_with("unix:") => {
                    let process = peer.pid.as_raw_nonzero().to_string();
                    format!("NBD client: process {process}{}", command_of(&process))
                }
                _ => format!("NBD client: {name}"),
            }
        };
        // Who only stands at the door does not use the disk.
        let clients = self.clients.iter().flatten();
        clients.filter(|client| client.standing == Standing::Admitted).map(words).collect()
    }

    /// Clients that transmit.
    pub fn transmitting(&self) -> usize {
        self.places.admitted()
    }

    /// Whether changes of a client are acknowledged only when they are durable; all that came
    /// before is then, too (C3).
    pub(crate) fn is_durable(&mut self, client: ClientKey) -> bool {
        self.client(client).is_some_and(|client| client.durable)
    }

    /// Clients connected.
    pub fn connected(&self) -> usize {
        self.connected
    }

    /// When [`NbdServer::timeout`] is needed.
    pub fn next_due(&self) -> Option<Time> {
        let retries = self.doors.iter().filter_map(|door| door.retry_at);
        retries.chain(self.client_deadline).min()
    }

    /// A listening socket is ready.
    pub fn accept<K: Copy + From<NbdKey>>(&mut self, now: Time, index: usize, ring: &mut Ring<K>) {
        let Some(door) = self.doors.get(index) else { return };
        let listener = door.listener.clone();
        for _ in 0..ACCEPTS_PER_TURN_MAX {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match rustix::net::acceptfrom_with(&listener.socket, flags) {
                Ok((socket, from)) => {
                    let from = from.and_then(|from| SocketAddr::try_from(from).ok());
                    self.connect(socket, from, &listener);
                }
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

    fn connect(&mut self, socket: OwnedFd, from: Option<SocketAddr>, door: &Listener) {
        let now = self.patience.now();
        if self.places.is_full() {
            self.make_room();
        }
        if door.address.is_tcp() {
            use rustix::net::sockopt;
            // Replies are sent whole; waiting for more would only delay them.
            let _ = sockopt::set_tcp_nodelay(&socket, true);
            let _ = sockopt::set_socket_keepalive(&socket, true);
            let _ = sockopt::set_tcp_keepidle(&socket, KEEPALIVE_IDLE);
            let _ = sockopt::set_tcp_keepintvl(&socket, KEEPALIVE_INTERVAL);
            let _ = sockopt::set_tcp_keepcnt(&socket, KEEPALIVE_COUNT);
        }
        let tls_required = door.handshakes.is_some();
        let origin = match from.filter(|_| door.address.is_tcp()) {
            Some(from) => Origin::of(from),
            None => Origin::User(
                rustix::net::sockopt::socket_peercred(&socket)
                    .map_or(u32::MAX, |peer| peer.uid.as_raw()),
            ),
        };
        self.places.enter(origin);
        let mut session = Session::new(self.export.clone(), tls_required, &self.budget);
        if let Some(handshakes) = &door.handshakes {
            session.limit(handshakes.access().clone());
        }
        self.next_generation = self.next_generation.wrapping_add(1);
        let client = Client {
            generation: self.next_generation,
            peer: Rc::new(Peer {
                socket,
                session: RefCell::new(session),
                space_bytes: Cell::new(0),
            }),
            opened: now,
            name: from.map_or_else(|| door.address.to_string(), |from| from.to_string()),
            origin,
            standing: Standing::Silent,
            durable: door.durable,
            handshakes: door.handshakes.clone(),
            progress: Progress::new(now),
            is_receiving: false,
            waits_for_writable: false,
            is_eventful: false,
            is_touched: false,
            is_queued: false,
            wants_room: None,
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
        self.wake_at(self.patience.wake_up(now, HANDSHAKE_TIMEOUT));
        self.touch(key);
    }

    /// Ends the client at the doors that is worth least: whoever only connects must not keep those
    /// away who want something.
    fn make_room(&mut self) {
        let now = self.patience.now();
        let clients = self.clients.iter().enumerate();
        let negotiating = clients.filter_map(|(index, client)| {
            let client = client.as_ref().filter(|it| it.standing != Standing::Admitted)?;
            let key = ClientKey { index: index as u32, generation: client.generation };
            Some((self.places.worth(client.origin, client.standing, client.opened, now), key))
        });
        let least = negotiating.min_by(|(one, _), (other, _)| one.cmp(other)).map(|(_, key)| key);
        if let Some(key) = least {
            self.disconnect(key, Some(format_args!("others want to connect")));
        }
    }

    /// Gives a client that begins to transmit its place. If there is none it has to go.
    fn admit(&mut self, key: ClientKey) {
        let Some(client) = self.client(key) else { return };
        if client.standing == Standing::Admitted || client.peer.session.borrow().in_handshake() {
            return;
        }
        let (origin, standing) = (client.origin, client.standing);
        if !self.places.admit(origin, standing) {
            let most = self.places.admitted_max;
            self.log(format_args!("turned a client away: {most} are connected"));
            return self.disconnect(key, None);
        }
        if let Some(client) = self.client(key) {
            client.standing = Standing::Admitted;
            told!(Debug, "client", "dcd: NBD client connected: {}", client.name);
        }
    }

    /// [`NbdServer::timeout`] has something to look at then.
    fn wake_at(&mut self, deadline: Time) {
        self.client_deadline = Some(self.client_deadline.unwrap_or(deadline).min(deadline));
    }

    /// A receive has ended.
    pub fn received(&mut self, key: ClientKey, result: Result<usize, Errno>) {
        let Some(client) = self.client(key) else { return };
        client.is_receiving = false;
        let has_spoken = result.is_ok_and(|count| count > 0);
        let mut session = client.peer.session.borrow_mut();
        match result {
            Ok(0) => session.ended(),
            Ok(count) => {
                client.progress.bytes_moved += count as u64;
                session.received(count);
                let was_filled = count == client.peer.space_bytes.get();
                let moved = receive_more(&client.peer.socket, &mut session, was_filled);
                client.progress.bytes_moved += moved;
            }
            Err(errno) => {
                drop(session);
                return self.disconnect(key, Some(format_args!("{errno}")));
            }
        }
        drop(session);
        if has_spoken {
            self.rise(key, Standing::Spoken);
        }
        self.touch(key);
    }

    /// A client has come as far as that.
    fn rise(&mut self, key: ClientKey, standing: Standing) {
        let Some(client) = self.client(key).filter(|client| client.standing < standing) else {
            return;
        };
        let before = std::mem::replace(&mut client.standing, standing);
        let origin = client.origin;
        self.places.rise(origin, before, standing);
    }

    /// The socket takes bytes again.
    pub fn writable(&mut self, key: ClientKey) {
        if let Some(client) = self.client(key) {
            client.waits_for_writable = false;
            self.touch(key);
        }
    }

    /// Steps of handshakes were computed.
    pub fn handshakes_done<K: Copy + From<NbdKey>>(&mut self, ring: &mut Ring<K>) {
        let Some(handshakes) = self.handshakes.clone() else { return };
        for (key, step) in handshakes.take_done() {
            let Some(client) = self.client(key) else { continue };
            let mut session = client.peer.session.borrow_mut();
            if session.handshake_done(step) {
                let certificate = session.client_certificate().and_then(certificate_name);
                let name = certificate.unwrap_or_else(|| "a certificate without a name".into());
                drop(session);
                client.name = format!("{name} at {}", client.name);
                let name = client.name.clone();
                self.rise(key, Standing::Certified);
                self.log(format_args!("NBD client connected with TLS: {name}"));
            } else {
                drop(session);
            }
            self.touch(key);
        }
        ring.poll(K::from(NbdKey::Handshakes), Rc::new(handshakes.event()), PollFlags::IN);
    }

    /// The next thing that a client wants; when there is nothing more, what has been answered is to
    /// be sent with [`NbdServer::flush`].
    pub fn poll_event(&mut self) -> Option<(ClientKey, Event)> {
        while let Some(&key) = self.eventful.last() {
            self.admit(key);
            let event = match self.client(key) {
                None => None,
                Some(client) => {
                    let mut session = client.peer.session.borrow_mut();
                    if let (Some(step), Some(handshakes)) =
                        (session.take_handshake(), &client.handshakes)
                    {
                        handshakes.compute(key, client.origin, step);
                    }
                    let event = session.poll_event();
                    client.is_eventful = event.is_some();
                    event
                }
            };
            match event {
                None => {
                    self.eventful.pop();
                }
                Some(Event::Closed(Some(error))) => {
                    let name = self.client(key).map(|client| client.name.clone());
                    let name = name.unwrap_or_default();
                    self.log(format_args!("NBD client broke the protocol: {name}: {error}"));
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
            client.peer.session.borrow_mut().complete(handle, reply.result, reply.buffer);
            self.touch(key);
        }
    }

    /// Answers a block status query.
    pub fn complete_block_status(&mut self, key: ClientKey, handle: u64, pieces: &[(u64, bool)]) {
        if let Some(client) = self.client(key) {
            client.peer.session.borrow_mut().complete_block_status(handle, pieces);
            self.touch(key);
        }
    }

    /// Whether there is something to [`NbdServer::flush`]: room may have come from a client that is
    /// gone, whom nobody touches.
    pub fn has_touched(&self) -> bool {
        !self.touched.is_empty() || self.budget.is_released()
    }

    /// Sends what is to be sent, receives again where that has ended, closes what is finished.
    /// There may be new events afterwards.
    pub fn flush<K: Copy + From<NbdKey>>(&mut self, ring: &mut Ring<K>) {
        let mut has_queued = false;
        let mut touched = std::mem::take(&mut self.touched);
        for key in touched.drain(..) {
            let now = self.patience.now();
            let Some(client) = self.client(key) else { continue };
            client.is_touched = false;
            let sent = send(client);
            let session = client.peer.session.borrow();
            let finished = session.is_finished();
            let wants_input = session.wants_input();
            let wants_room = session.waits_for_others();
            client.progress.note(now, &session);
            drop(session);
            let awaited_since = client.progress.awaited_since();
            client.wants_room = wants_room;
            let queues = wants_room.is_some() && !client.is_queued;
            client.is_queued |= queues;
            match sent {
                Err(errno) => {
                    self.disconnect(key, Some(format_args!("{errno}")));
                    continue;
                }
                Ok(_) if finished => {
                    self.disconnect(key, None);
                    continue;
                }
                Ok(sent) => {
                    if sent.is_blocked && !client.waits_for_writable {
                        client.waits_for_writable = true;
                        let key = K::from(NbdKey::Writable(key));
                        ring.poll(key, client.peer.clone(), PollFlags::OUT);
                    }
                    if sent.has_more {
                        self.touch(key);
                    }
                }
            }
            if queues {
                has_queued = true;
                self.waiting_for_room.push_back(key);
            }
            if let Some(since) = awaited_since {
                self.wake_at(self.patience.wake_up(since, CLIENT_TIMEOUT));
            }
            let Some(client) = self.client(key) else { continue };
            if wants_input && !client.is_receiving {
                client.is_receiving = true;
                ring.receive(K::from(NbdKey::Received(key)), client.peer.clone());
            }
        }
        // Those that were touched meanwhile; the memory stays for the next turn.
        touched.append(&mut self.touched);
        self.touched = touched;
        if self.budget.take_released() || has_queued {
            self.give_room();
        }
    }

    /// Lets those begin that wait for room, in turn. If there is not enough for the first it holds
    /// up the others for a while, so that what they give back adds up, and not longer: who has the
    /// room may never give it back. What each may have in any case it takes without waiting.
    fn give_room(&mut self) {
        let mut go_on = VecDeque::new();
        while let Some(key) = self.waiting_for_room.pop_front() {
            let (now, fits) = (self.now, |bytes| self.budget.fits(bytes));
            let Some(client) = self.clients.get_mut(key.index as usize).and_then(Option::as_mut)
            else {
                continue;
            };
            if client.generation != key.generation {
                continue;
            }
            if client.wants_room.is_none_or(fits) {
                self.budget.set_wanted(false);
                let mut session = client.peer.session.borrow_mut();
                session.retry();
                client.wants_room = session.waits_for_others();
                client.is_queued = client.wants_room.is_some();
                drop(session);
                self.touch(key);
            }
            if self.client(key).is_none_or(|client| !client.is_queued) {
                continue;
            }
            go_on.push_back(key);
            if go_on.len() == 1 {
                let held = self.holds_up.filter(|(first, _)| *first == key);
                let (_, since) = *self.holds_up.insert(held.unwrap_or((key, now)));
                if now < since.after(HOLD_UP_MAX) {
                    self.wake_at(since.after(HOLD_UP_MAX));
                    break;
                }
            }
        }
        go_on.append(&mut self.waiting_for_room);
        self.budget.set_wanted(!go_on.is_empty());
        self.waiting_for_room = go_on;
    }

    /// Does what is due: accepts again, lets those begin who waited for room. To be called first in
    /// each turn.
    pub fn timeout<K: Copy + From<NbdKey>>(&mut self, now: Time, ring: &mut Ring<K>) {
        self.now = now;
        self.patience.pass(now, false);
        for index in 0..self.doors.len() {
            let door = &mut self.doors[index];
            if door.retry_at.is_some_and(|at| at <= now) {
                door.retry_at = None;
                let key = K::from(NbdKey::Listener(index));
                ring.poll(key, door.listener.clone(), PollFlags::IN);
            }
        }
        if self.client_deadline.is_some_and(|deadline| deadline <= now) {
            // The first in line may have held up the others long enough.
            self.give_room();
        }
    }

    /// Ends clients that kept us waiting too long. To be called last in each turn, when everything
    /// that they have sent until then has been taken.
    pub fn give_up_late(&mut self) {
        self.patience.pass(self.now, true);
        if self.client_deadline.is_none_or(|deadline| deadline > self.now) {
            return;
        }
        self.client_deadline = None;
        if let Some((_, since)) = self.holds_up.filter(|_| !self.waiting_for_room.is_empty()) {
            self.wake_at(since.after(HOLD_UP_MAX));
        }
        for index in 0..self.clients.len() {
            let Some(client) = &self.clients[index] else { continue };
            let in_handshake = client.peer.session.borrow().in_handshake();
            let (since, limit, reason) = match client.progress.awaited_since() {
                _ if in_handshake => (client.opened, HANDSHAKE_TIMEOUT, "no handshake within 10 s"),
                Some(since) => {
                    (since, CLIENT_TIMEOUT, "it kept us waiting for 30 s amid a request or reply")
                }
                None => continue,
            };
            if self.patience.is_over(since, limit) {
                let key = ClientKey { index: index as u32, generation: client.generation };
                self.disconnect(key, Some(format_args!("{reason}")));
            } else {
                self.wake_at(self.patience.wake_up(since, limit));
            }
        }
    }

    /// Whether every answer that was given has been sent.
    pub fn is_quiet(&self) -> bool {
        let quiet = |client: &Client| {
            let session = client.peer.session.borrow();
            session.requests_in_flight() == 0 && session.transmit().next().is_none()
        };
        self.clients.iter().flatten().all(quiet)
    }

    /// Ends all connections, in order as far as that needs no waiting.
    pub fn disconnect_all(&mut self) {
        for index in 0..self.clients.len() {
            if let Some(client) = &mut self.clients[index] {
                client.peer.session.borrow_mut().stop_receiving();
                let _ = send(client);
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
        self.places.leave(client.origin, client.standing);
        if let Some(handshakes) = client.handshakes.filter(|_| client.standing == Standing::Spoken)
        {
            handshakes.forget(key, client.origin);
        }
        client.peer.session.borrow_mut().stop_receiving();
        // Wakes what the ring still waits for; its share of the peer is the last.
        let _ = rustix::net::shutdown(&client.peer.socket, Shutdown::Both);
        if let Some(reason) = reason {
            self.log(format_args!("NBD client disconnected: {}: {reason}", client.name));
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

    fn log(&mut self, text: std::fmt::Arguments<'_>) {
        if self.quiet {
            return;
        }
        let (began, lines, left_out) = &mut self.lines;
        if began.after(Duration::from_secs(1)) <= self.now {
            if *left_out > 0 {
                told!(Info, "client", "dcd: {left_out} more lines about clients were left out");
            }
            (*began, *lines, *left_out) = (self.now, 0, 0);
        }
        if *lines < LINES_PER_SECOND_MAX {
            *lines += 1;
            told!(Info, "client", "dcd: {text}");
        } else {
            *left_out += 1;
        }
    }
}

/// Receives what has come by now behind what was received: the data of a write behind its header,
/// the next request behind one that filled the space. By way of the ring each would take a turn of
/// the loop. Returns how many bytes. That the socket is at its end, or broken, the ring finds.
fn receive_more(socket: &OwnedFd, session: &mut Session, mut was_filled: bool) -> u64 {
    let mut moved = 0;
    while moved < RECEIVED_AT_ONCE_MAX && session.may_receive_more(was_filled) {
        let space = session.receive_space();
        let length = space.len();
        let received = rustix::net::recv(socket, space, RecvFlags::DONTWAIT);
        let count = received.map_or(0, |(_, count)| count);
        session.received(count);
        if count == 0 {
            break;
        }
        was_filled = count == length;
        moved += count as u64;
    }
    moved
}

struct Sent {
    /// The socket takes no more for now.
    is_blocked: bool,
    /// Sending has made room for requests that had waited.
    has_more: bool,
}

/// Sends what the connection has to send, as far as the socket takes it.
fn send(client: &mut Client) -> Result<Sent, Errno> {
    if client.waits_for_writable {
        return Ok(Sent { is_blocked: true, has_more: false });
    }
    let mut session = client.peer.session.borrow_mut();
    let (wanted_input, begun) = (session.wants_input(), session.requests_begun());
    let has_more = |session: &Session| {
        !wanted_input && session.wants_input() || session.requests_begun() > begun
    };
    loop {
        // Each request that comes is looked at, too, and has nothing to send yet.
        if session.transmit().next().is_none() {
            return Ok(Sent { is_blocked: false, has_more: has_more(&session) });
        }
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let mut count = 0;
        for (place, bytes) in slices.iter_mut().zip(session.transmit()) {
            *place = IoSlice::new(bytes);
            count += 1;
        }
        let sent = rustix::net::sendmsg(
            &client.peer.socket,
            &slices[..count],
            &mut SendAncillaryBuffer::default(),
            SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
        );
        match sent {
            Ok(sent) => {
                client.progress.bytes_moved += sent as u64;
                session.transmitted(sent);
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                return Ok(Sent { is_blocked: true, has_more: has_more(&session) });
            }
            Err(errno) => return Err(errno),
        }
    }
}
