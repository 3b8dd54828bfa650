//! A connection, with TLS below it if that is wanted: what a driver talks to.
//!
//! ```text
//! socket ---- received ---> [records -> plaintext] ---> Connection ---> requests
//!        <--- transmit ---- [records <- plaintext] <---            <--- replies
//! ```
//!
//! TLS begins when the client asks for it (STARTTLS) and the answer has left. While a step of its
//! handshake is computed elsewhere nothing is received. What was received is decrypted only as far
//! as the connection wants input, and replies become records only when those before were sent, so
//! that TLS adds a bounded amount of memory to what is in flight.

use std::sync::Arc;

use dcd_engine::buffer::Buffer;
use dcd_engine::io::RequestError;

use super::handshake::Protection;
use super::tls::{HandshakeStep, Secured, SecuredStream, TlsAccess, TlsFailure};
use super::{Budget, Connection, Event, Export, ProtocolError};

/// Memory for records that is kept while there is nothing to send.
const OUTGOING_KEPT: usize = 16 << 10;

/// See the module.
pub struct Session {
    connection: Connection,
    stage: Stage,
    access: Arc<TlsAccess>,
    /// Of a client that was secured, also when its session has failed since: what it has asked for
    /// may still be polled.
    client_certificate: Option<Vec<u8>>,
    /// Records to be sent, from `outgoing_start` on.
    outgoing: Vec<u8>,
    outgoing_start: usize,
    /// The driver has memory to receive into.
    space_given: bool,
    /// TLS has failed or ended, and that was not told yet.
    closed: Option<Option<ProtocolError>>,
}

enum Stage {
    /// Bytes go as they are.
    Plain,
    /// TLS has begun; `None` while a step is elsewhere.
    Securing(Option<HandshakeStep>),
    /// A step that the driver has not taken yet.
    StepReady(HandshakeStep),
    Secured(Box<SecuredStream>),
    /// TLS has failed; an alert may be left to be sent.
    Failed,
}

impl Session {
    /// A session that begins with the greeting.
    pub fn new(export: Export, tls_required: bool, budget: &Budget) -> Session {
        let protection = if tls_required { Protection::TlsRequired } else { Protection::None };
        Session {
            connection: Connection::with(export, protection, budget),
            stage: Stage::Plain,
            access: Arc::default(),
            client_certificate: None,
            outgoing: Vec::new(),
            outgoing_start: 0,
            space_given: false,
            closed: None,
        }
    }

    /// Some certificates may only read. To be called before anything is received.
    pub fn limit(&mut self, access: Arc<TlsAccess>) {
        self.access = access;
    }

    /// Where the next bytes from the socket go; never empty unless [`Self::wants_input`] is false.
    /// Stays where it is until [`Self::received`], which must come before this is called again if
    /// anything was received.
    pub fn receive_space(&mut self) -> &mut [u8] {
        if !self.wants_input() {
            return &mut [];
        }
        self.space_given = true;
        match &mut self.stage {
            Stage::Plain => self.connection.receive_space(),
            Stage::Securing(Some(step)) => step.space(),
            Stage::Secured(stream) => stream.space(),
            Stage::Securing(None) | Stage::StepReady(_) | Stage::Failed => &mut [],
        }
    }

    /// `count` bytes were put at the front of the [`Self::receive_space`].
    pub fn received(&mut self, count: usize) {
        self.space_given = false;
        match &mut self.stage {
            Stage::Plain => self.connection.received(count),
            Stage::Securing(step) => {
                if let Some(mut step) = step.take() {
                    step.received(count);
                    self.stage = Stage::StepReady(step);
                }
            }
            Stage::Secured(stream) => stream.received(count),
            Stage::StepReady(_) | Stage::Failed => {}
        }
        self.pump();
    }

    /// False while nothing more must be read: back-pressure, a step of the handshake under way, or
    /// closing.
    pub fn wants_input(&self) -> bool {
        match &self.stage {
            Stage::Plain => self.connection.wants_input(),
            Stage::Securing(step) => step.is_some(),
            Stage::Secured(stream) => {
                self.connection.wants_input() && stream.is_drained() && !stream.is_ended()
            }
            Stage::StepReady(_) | Stage::Failed => false,
        }
    }

    /// The socket is at its end.
    pub fn ended(&mut self) {
        let is_cut_off = match &self.stage {
            Stage::Plain | Stage::Failed => false,
            Stage::Securing(_) | Stage::StepReady(_) => true,
            // Who has said goodbye in NBD's way need not do it in TLS's.
            Stage::Secured(stream) => !stream.is_ended() && self.connection.wants_input(),
        };
        if is_cut_off {
            self.closed = Some(Some(TlsFailure::Truncated.into()));
        }
        self.stop_receiving();
    }

    /// No more will be received. Requests in flight are still to be answered. Harmless while a
    /// receive is under way, but its bytes will not be looked at.
    pub fn stop_receiving(&mut self) {
        self.connection.stop_receiving();
        if matches!(self.stage, Stage::Securing(_) | Stage::StepReady(_)) {
            self.stage = Stage::Failed;
        }
        self.pump();
    }

    /// A step of the handshake, to be computed and brought to [`Self::handshake_done`].
    pub fn take_handshake(&mut self) -> Option<HandshakeStep> {
        match std::mem::replace(&mut self.stage, Stage::Securing(None)) {
            Stage::StepReady(step) => Some(step),
            other => {
                self.stage = other;
                None
            }
        }
    }

    /// A step was computed. Whether the connection is secured by it; what came behind it may have
    /// ended it already.
    pub fn handshake_done(&mut self, mut step: HandshakeStep) -> bool {
        if !matches!(self.stage, Stage::Securing(None)) {
            return false; // It was closed meanwhile.
        }
        self.outgoing.append(&mut step.take_outgoing());
        let mut is_secured = false;
        match step.finish() {
            Secured::NotYet(step) => self.stage = Stage::Securing(Some(step)),
            Secured::Yes { tls, records } => {
                let stream = SecuredStream::new(tls, records);
                self.client_certificate = stream.client_certificate().map(<[u8]>::to_vec);
                // Before anything of what it wants is read, which may have come with the handshake.
                let certificate = self.client_certificate.as_deref().unwrap_or_default();
                if self.access.is_read_only(certificate) {
                    self.connection.make_read_only();
                }
                self.connection.secured();
                self.stage = Stage::Secured(Box::new(stream));
                is_secured = true;
            }
            Secured::Failed(failure) => self.fail(failure),
        }
        self.pump();
        is_secured
    }

    /// The certificate of a client that is secured.
    pub fn client_certificate(&self) -> Option<&[u8]> {
        self.client_certificate.as_deref()
    }

    /// The next thing to do for the driver.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.connection.poll_event();
        if event.is_none() {
            self.pump(); // The last event is a condition of the goodbye.
        }
        event.or_else(|| self.closed.take().map(Event::Closed))
    }

    /// See [`Connection::complete`].
    pub fn complete(
        &mut self,
        handle: u64,
        result: Result<(), RequestError>,
        buffer: Option<Buffer>,
    ) {
        self.connection.complete(handle, result, buffer);
        self.pump();
    }

    /// See [`Connection::complete_block_status`].
    pub fn complete_block_status(&mut self, handle: u64, pieces: &[(u64, bool)]) {
        self.connection.complete_block_status(handle, pieces);
        self.pump();
    }

    /// See [`Connection::waits_for_others`].
    pub fn waits_for_others(&self) -> Option<usize> {
        self.connection.waits_for_others()
    }

    /// Looks again whether there is room for what waits, after other connections have given some
    /// back.
    pub fn retry(&mut self) {
        self.connection.retry();
        self.pump();
    }

    /// Bytes to send now: slices for one vectored send. They stay where they are until the next
    /// call.
    pub fn transmit(&self) -> impl Iterator<Item = &[u8]> {
        let plain = matches!(self.stage, Stage::Plain).then(|| self.connection.transmit());
        let records = &self.outgoing[self.outgoing_start..];
        plain.into_iter().flatten().chain((!records.is_empty()).then_some(records))
    }

    /// The first `count` bytes of [`Self::transmit`] were sent.
    pub fn transmitted(&mut self, count: usize) {
        if matches!(self.stage, Stage::Plain) {
            self.connection.transmitted(count);
        } else {
            self.outgoing_start += count;
            assert!(self.outgoing_start <= self.outgoing.len(), "no more is sent than there was");
        }
        self.pump();
    }

    /// Nothing more will be received and everything was sent: the driver closes the socket.
    pub fn is_finished(&self) -> bool {
        let all_sent = self.outgoing_start == self.outgoing.len();
        let all_told = self.closed.is_none();
        all_sent
            && all_told
            && match &self.stage {
                Stage::Plain => self.connection.is_finished(),
                Stage::Securing(_) | Stage::StepReady(_) => false,
                Stage::Secured(stream) => {
                    self.connection.is_finished() && stream.has_said_goodbye()
                }
                // Replies could not be sent any more, and the driver has had its events.
                Stage::Failed => true,
            }
    }

    /// Whether the client has not started yet, for the driver's time-out.
    pub fn in_handshake(&self) -> bool {
        self.connection.in_handshake()
    }

    /// Whether the client owes something: the rest of a request, or to read what it has asked for.
    pub fn awaits_client(&self) -> bool {
        let has_part = self.connection.wants_input() && self.connection.is_amid_input();
        has_part || self.transmit().next().is_some()
    }

    /// Whether nothing can be done before all of the [`Self::receive_space`] is filled: it is the
    /// rest of the data of a write, or a part of it.
    pub(super) fn is_amid_data(&self) -> bool {
        matches!(self.stage, Stage::Plain) && self.connection.is_amid_data()
    }

    /// Whether it is worth while to look for more at once, behind a receive that filled its space
    /// or did not. Records of TLS are left for the next turn: they take long.
    pub(super) fn may_receive_more(&self, was_filled: bool) -> bool {
        matches!(self.stage, Stage::Plain)
            && !self.connection.in_handshake()
            && self.connection.wants_input()
            && (was_filled || self.connection.is_amid_input())
    }

    /// Requests (and queries) that came so far.
    pub fn requests_begun(&self) -> u64 {
        self.connection.requests_begun()
    }

    /// Requests (and queries) that wait for an answer, polled or not.
    pub fn requests_in_flight(&self) -> usize {
        self.connection.requests_in_flight()
    }

    /// Moves bytes between TLS and the connection, as far as both want.
    fn pump(&mut self) {
        if matches!(self.stage, Stage::Plain) && self.connection.wants_tls() {
            self.stage = Stage::Securing(Some(HandshakeStep::default()));
        }
        if self.outgoing_start == self.outgoing.len() && self.outgoing_start > 0 {
            self.outgoing_start = 0;
            self.outgoing.clear();
            self.outgoing.shrink_to(OUTGOING_KEPT);
        }
        if !matches!(self.stage, Stage::Secured(_)) {
            return;
        }
        // What was encrypted makes room in the connection, which may want input again.
        loop {
            if let Err(failure) = self.decrypt() {
                return self.fail(failure);
            }
            if !self.outgoing.is_empty() {
                return;
            }
            match self.encrypt() {
                Ok(0) => return,
                Ok(_) => {}
                Err(failure) => return self.fail(failure),
            }
        }
    }

    /// Gives the connection what it wants of what has come.
    fn decrypt(&mut self) -> Result<(), TlsFailure> {
        let Stage::Secured(stream) = &mut self.stage else { return Ok(()) };
        // While a receive is under way nothing is left from before, but perhaps the front of a
        // record.
        while !self.space_given && self.connection.wants_input() {
            let plain = stream.plaintext(&mut self.outgoing)?;
            if plain.is_empty() {
                break;
            }
            let space = self.connection.receive_space();
            let count = space.len().min(plain.len());
            space[..count].copy_from_slice(&plain[..count]);
            self.connection.received(count);
            stream.consume(count);
        }
        if stream.is_ended() && stream.is_drained() {
            self.connection.stop_receiving();
        }
        Ok(())
    }

    /// Makes records of replies, and of the goodbye behind the last. Returns how many bytes of
    /// replies they hold.
    fn encrypt(&mut self) -> Result<usize, TlsFailure> {
        let Stage::Secured(stream) = &mut self.stage else { return Ok(0) };
        let count = stream.encrypt(self.connection.transmit(), &mut self.outgoing)?;
        self.connection.transmitted(count);
        if self.connection.is_finished() {
            stream.say_goodbye(&mut self.outgoing);
        }
        Ok(count)
    }

    fn fail(&mut self, failure: TlsFailure) {
        self.connection.stop_receiving();
        self.stage = Stage::Failed;
        self.closed = Some(Some(failure.into()));
    }
}
