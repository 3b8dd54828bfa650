//! One client: joins negotiation, requests and replies, and keeps the limits.
//!
//! Received bytes go to the staging memory, except the data of a long write, which goes straight
//! into its own buffer. All that can be understood is understood in [`Connection::received`];
//! only back-pressure leaves understood bytes waiting, and then [`Connection::wants_input`] is
//! false until [`Connection::complete`] or [`Connection::transmitted`] makes room. So while a
//! receive is under way there is never anything to parse, and nothing that could move its memory.
//!
//! Back-pressure, each because a client could otherwise make us hold any amount of memory: requests
//! in flight; bytes of reads and writes in flight, a read counting until its data is sent; both
//! also of all connections together (`budget.rs`); replies that the client does not read.

use std::collections::VecDeque;

use dcd_engine::buffer::Buffer;
use dcd_engine::buffer_pool::BufferPool;
use dcd_engine::io::{Operation, RequestError};
use dcd_engine::units::LbaRange;
use zerocopy::FromBytes;

use super::budget::{Budget, Share};
use super::handshake::{Agreement, Handshake, OPTION_LENGTH_MAX, Protection, Step};
use super::protocol::{OptionHeader, REQUEST_MAGIC, RequestHeader, command, command_flag};
use super::send_queue::SendQueue;
use super::staging::Staging;
use super::transmission::{self, Command, Failure, Reply};
use super::{Export, ProtocolError};

/// Most requests in flight on a connection; more are not read from the socket.
pub const REQUESTS_IN_FLIGHT_MAX: usize = 256;
/// Most bytes of reads and writes in flight on a connection.
pub const BYTES_IN_FLIGHT_MAX: usize = 64 << 20;

/// Longest payload of a request that is taken, whatever the export says.
const PAYLOAD_MAX: u32 = 32 << 20;
/// Longest write whose data is read to be dropped, so that its failure can be reported. The
/// connection is cut above it.
const WRITE_DROPPED_MAX: u32 = 64 << 20;
/// Bytes of replies, without the data of reads, that may wait for the client to read them.
const REPLIES_WAITING_MAX: usize = 256 << 10;

/// Staging memory while negotiating: one option of the greatest length.
const STAGING_HANDSHAKE: usize = size_of::<OptionHeader>() + OPTION_LENGTH_MAX;
/// Staging memory for requests of a client that once filled what it had: about 60 writes of 4 KiB
/// in one receive. One that does little keeps what it had.
const STAGING_BUSY: usize = 256 << 10;
/// Most data of a long write in one receive, which waits for all of it: how far a slow client has
/// come is seen after each, as its time-out wants it.
const RECEIVED_MAX: usize = 256 << 10;
/// A write is received into the staging memory, and then copied, when less than this is missing...
const STAGED_REST_MAX: usize = 32 << 10;
/// ... and it is no longer than this. Must leave plenty of room in the staging memory.
const STAGED_WRITE_MAX: usize = 64 << 10;
const _: () = assert!(STAGED_WRITE_MAX <= STAGING_BUSY / 2);

/// Something for the driver to do.
#[derive(Debug)]
pub enum Event {
    /// A request for the engine. Answer with [`Connection::complete`].
    Request {
        /// Unique on this connection while in flight.
        handle: u64,
        /// What is wanted.
        operation: Operation,
        /// Reply only when durable.
        fua: bool,
    },
    /// What is known of a range? Answer with [`Connection::complete_block_status`], or with
    /// [`Connection::complete`] for an error.
    BlockStatus {
        /// Unique on this connection while in flight.
        handle: u64,
        /// Not empty.
        range: LbaRange,
        /// More pieces than this are not sent.
        pieces_max: usize,
    },
    /// The client said goodbye or broke the protocol; `Some` says how (for the log). Requests in
    /// flight are still to be answered, and replies to be sent, until
    /// [`Connection::is_finished`].
    Closed(Option<ProtocolError>),
}

/// See the module.
pub struct Connection {
    export: Export,
    phase: Phase,
    receiving: Receiving,
    staging: Staging,
    /// The driver has memory of `staging` or `receiving`, nothing there may move or change.
    space_given: bool,
    /// Something that waits in `staging` cannot be begun for now.
    stalled: bool,
    /// It could be, if others gave back what they have: it wants so many bytes.
    waits_for_others: Option<usize>,
    /// STARTTLS was agreed to; nothing is received until [`Self::secured`].
    starts_tls: bool,
    /// The last receive filled the staging memory.
    filled_staging: bool,
    /// The last request was a long write. If another follows, its header is received alone, so that
    /// all its data goes straight into its buffer.
    was_long_write: bool,
    /// No more is received.
    closing: bool,
    events: VecDeque<Event>,
    requests: RequestTable,
    share: Share,
    send: SendQueue,
    pool: BufferPool,
}

enum Phase {
    Handshake(Handshake),
    Transmission(Agreement),
}

/// What the next bytes from the client are.
enum Receiving {
    /// An option or a request.
    Header,
    /// The data of a write, straight into its buffer.
    Payload { header: RequestHeader, range: LbaRange, buffer: Buffer, filled: usize },
    /// The data of a write that fails.
    Dropped { cookie: u64, rest: usize, failure: Failure },
}

/// What came of an attempt to understand what waits.
enum Progress {
    Done,
    NeedsMore,
    Stalled,
}

impl Connection {
    /// A connection that begins with the greeting, without TLS and without others.
    pub fn new(export: Export) -> Connection {
        Connection::with(export, Protection::None, &Budget::new())
    }

    /// A connection that begins with the greeting, and shares `budget` with others.
    pub(super) fn with(mut export: Export, protection: Protection, budget: &Budget) -> Connection {
        assert!(matches!(export.minimum_block, 512 | 4096), "a block is 512 or 4096 bytes");
        export.size_bytes -= export.size_bytes % u64::from(export.minimum_block);
        export.maximum_payload = export.maximum_payload.clamp(export.minimum_block, PAYLOAD_MAX);
        export.maximum_payload -= export.maximum_payload % export.minimum_block;
        // A client may refuse anything but: minimum <= preferred <= maximum, a power of two.
        let preferred = export.preferred_block.min(export.maximum_payload).max(1);
        export.preferred_block = (1 << preferred.ilog2()).max(export.minimum_block);

        let mut send = SendQueue::default();
        let handshake = Handshake::new(protection, &mut send);
        Connection {
            export,
            phase: Phase::Handshake(handshake),
            receiving: Receiving::Header,
            staging: Staging::new(STAGING_HANDSHAKE),
            space_given: false,
            stalled: false,
            waits_for_others: None,
            starts_tls: false,
            filled_staging: false,
            was_long_write: false,
            closing: false,
            events: VecDeque::new(),
            requests: RequestTable::default(),
            share: budget.share(),
            send,
            pool: BufferPool::default(),
        }
    }

    /// Where the next bytes from the socket go; never empty unless [`Self::wants_input`] is
    /// false. Stays where it is until [`Self::received`], which must come before this is called
    /// again if anything was received.
    pub fn receive_space(&mut self) -> &mut [u8] {
        if !self.wants_input() {
            return &mut [];
        }
        self.space_given = true;
        // What is dropped has no buffer of its own.
        let is_header = matches!(self.receiving, Receiving::Header);
        match &mut self.receiving {
            Receiving::Payload { header, buffer, filled, .. } => {
                if *filled == buffer.len() {
                    let length = header.length.get() as usize;
                    buffer.resize(length.min(buffer.len() * 2));
                }
                let rest = &mut buffer.bytes_mut()[*filled..];
                let length = rest.len().min(RECEIVED_MAX);
                &mut rest[..length]
            }
            Receiving::Header | Receiving::Dropped { .. } => {
                let in_use = matches!(self.phase, Phase::Transmission(_));
                if std::mem::take(&mut self.filled_staging)
                    && in_use
                    && self.staging.capacity() < STAGING_BUSY
                {
                    self.staging = self.staging.enlarged(STAGING_BUSY);
                }
                let rest = size_of::<RequestHeader>().saturating_sub(self.staging.waiting().len());
                let space = self.staging.space();
                match self.was_long_write && is_header && rest > 0 {
                    true => &mut space[..rest],
                    false => space,
                }
            }
        }
    }

    /// `count` bytes were put at the front of the [`Self::receive_space`].
    pub fn received(&mut self, count: usize) {
        self.space_given = false;
        match &mut self.receiving {
            Receiving::Payload { buffer, filled, .. } => {
                assert!(count <= buffer.len() - *filled, "no more is received than there is space");
                *filled += count;
            }
            Receiving::Header | Receiving::Dropped { .. } => {
                self.staging.received(count);
                self.filled_staging = self.staging.is_filled();
            }
        }
        self.advance();
    }

    /// False while the connection must not read more (too many requests or bytes in flight, or
    /// closing): back-pressure.
    pub fn wants_input(&self) -> bool {
        !self.closing && !self.stalled && !self.starts_tls
    }

    /// Whether STARTTLS was agreed to and its answer sent: what comes now are TLS records, until
    /// [`Self::secured`].
    pub(super) fn wants_tls(&self) -> bool {
        self.starts_tls && !self.closing && self.send.is_empty()
    }

    /// This client may only read. To be called before it negotiates.
    pub(super) fn make_read_only(&mut self) {
        self.export.read_only = true;
    }

    /// TLS protects what comes from here on.
    pub(super) fn secured(&mut self) {
        assert!(self.wants_tls() && self.staging.waiting().is_empty());
        if let Phase::Handshake(handshake) = &self.phase {
            self.phase = Phase::Handshake(handshake.secured());
        }
        self.starts_tls = false;
    }

    /// What waits could begin if other connections gave back what they have in flight: so many
    /// bytes. It is looked at again by [`Self::retry`] then, and by itself whenever one of its own
    /// requests ends.
    pub fn waits_for_others(&self) -> Option<usize> {
        self.waits_for_others.filter(|_| !self.closing)
    }

    /// Looks again whether there is room for what waits, after others have given some back.
    pub fn retry(&mut self) {
        if self.stalled {
            self.advance();
        }
    }

    /// Whether what has come so far makes no whole option or request.
    pub fn is_amid_input(&self) -> bool {
        !self.staging.waiting().is_empty() || !matches!(self.receiving, Receiving::Header)
    }

    /// Whether what comes next is data of a write, which goes into its buffer.
    pub(super) fn is_amid_data(&self) -> bool {
        matches!(self.receiving, Receiving::Payload { .. })
    }

    /// No more will be received, because the socket is at its end or the server shuts down.
    /// Requests in flight are still to be answered. Harmless while a receive is under way, but
    /// its bytes will not be looked at.
    pub fn stop_receiving(&mut self) {
        self.closing = true;
    }

    /// The next thing to do for the driver.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Answers request `handle` (the engine's reply). For reads `buffer` holds the data; of a
    /// write it is its own, for reuse.
    ///
    /// # Panics
    ///
    /// If no such request is in flight.
    pub fn complete(
        &mut self,
        handle: u64,
        result: Result<(), RequestError>,
        buffer: Option<Buffer>,
    ) {
        let InFlight { cookie, answer } = self.requests.remove(handle);
        self.share.end_request();
        match (result, answer) {
            (Ok(()), Answer::Data { offset, length }) => match buffer {
                // The bytes stay in flight until they are sent.
                Some(data) if data.len() == length => self.reply(cookie).data(offset, data),
                _ => {
                    self.share.give_back(length);
                    self.reply(cookie).fail(Failure::NO_DATA);
                }
            },
            (Ok(()), Answer::BlockStatus { blocks, pieces_max }) => {
                self.reply(cookie).block_status(blocks, &[], pieces_max);
            }
            (Ok(()), Answer::Done { length }) => {
                self.share.give_back(length);
                self.pool.put(buffer);
                self.reply(cookie).done();
            }
            (Err(error), answer) => {
                self.share.give_back(answer.length());
                self.pool.put(buffer);
                self.reply(cookie).fail(error.into());
            }
        }
        self.advance();
    }

    /// Answers a block status query: pieces (length in blocks, reads as zeroes) from the start of
    /// the range on. They may end before the range does.
    ///
    /// # Panics
    ///
    /// If no such query is in flight.
    pub fn complete_block_status(&mut self, handle: u64, pieces: &[(u64, bool)]) {
        let InFlight { cookie, answer } = self.requests.remove(handle);
        self.share.end_request();
        let Answer::BlockStatus { blocks, pieces_max } = answer else {
            panic!("request {handle} is not a block status query");
        };
        self.reply(cookie).block_status(blocks, pieces, pieces_max);
        self.advance();
    }

    /// Bytes to send now: slices for one vectored send. They stay where they are until
    /// [`Self::transmitted`].
    pub fn transmit(&self) -> impl Iterator<Item = &[u8]> {
        self.send.slices()
    }

    /// The first `count` bytes of [`Self::transmit`] were sent.
    ///
    /// # Panics
    ///
    /// If there were not so many.
    pub fn transmitted(&mut self, count: usize) {
        let Connection { send, pool, share, .. } = self;
        send.transmitted(count, |buffer| {
            share.give_back(buffer.len());
            pool.put(Some(buffer));
        });
        self.advance();
    }

    /// Nothing more will be received and everything was sent: the driver closes the socket.
    pub fn is_finished(&self) -> bool {
        self.closing
            && self.events.is_empty()
            && self.requests.in_flight() == 0
            && self.send.is_empty()
    }

    /// Whether the client has not started yet, for the driver's time-out.
    pub fn in_handshake(&self) -> bool {
        matches!(self.phase, Phase::Handshake(_))
    }

    /// Requests (and queries) that came so far, for the driver's time-out.
    pub fn requests_begun(&self) -> u64 {
        self.requests.inserted
    }

    /// Requests (and queries) that wait for an answer, polled or not.
    pub fn requests_in_flight(&self) -> usize {
        self.requests.in_flight()
    }

    /// Bytes of reads and writes in flight; see [`BYTES_IN_FLIGHT_MAX`].
    pub fn bytes_in_flight(&self) -> usize {
        self.share.bytes()
    }

    /// Understands what can be understood of what was received.
    fn advance(&mut self) {
        if self.space_given {
            return;
        }
        self.stalled = false;
        self.waits_for_others = None;
        while !self.closing && !self.starts_tls {
            let progress = match self.phase {
                Phase::Handshake(_) => self.advance_handshake(),
                Phase::Transmission(agreement) => self.advance_transmission(agreement),
            };
            match progress {
                Ok(Progress::Done) => {}
                Ok(Progress::NeedsMore) => return,
                Ok(Progress::Stalled) => {
                    self.stalled = true;
                    return;
                }
                Err(error) => self.close(Some(error)),
            }
        }
    }

    fn advance_handshake(&mut self) -> Result<Progress, ProtocolError> {
        let Phase::Handshake(handshake) = &mut self.phase else {
            return Ok(Progress::Done);
        };
        if self.send.header_bytes() > REPLIES_WAITING_MAX {
            return Ok(Progress::Stalled);
        }
        match handshake.advance(self.staging.waiting(), &self.export, &mut self.send)? {
            Step::NeedsMore => return Ok(Progress::NeedsMore),
            Step::Consumed(count) => self.staging.consume(count),
            Step::Starts(count, agreement) => {
                self.staging.consume(count);
                self.phase = Phase::Transmission(agreement);
            }
            Step::StartsTls(count) => {
                self.staging.consume(count);
                self.starts_tls = true;
            }
            Step::Aborted => self.close(None),
        }
        Ok(Progress::Done)
    }

    fn advance_transmission(&mut self, agreement: Agreement) -> Result<Progress, ProtocolError> {
        match &mut self.receiving {
            Receiving::Header => self.advance_request(agreement),
            Receiving::Payload { header, filled, .. } => {
                if *filled < header.length.get() as usize {
                    return Ok(Progress::NeedsMore);
                }
                let done = std::mem::replace(&mut self.receiving, Receiving::Header);
                if let Receiving::Payload { header, range, buffer, .. } = done {
                    self.start_write(&header, range, buffer);
                }
                Ok(Progress::Done)
            }
            Receiving::Dropped { cookie, rest, failure } => {
                let count = (*rest).min(self.staging.waiting().len());
                self.staging.consume(count);
                *rest -= count;
                if *rest > 0 {
                    return Ok(Progress::NeedsMore);
                }
                let (cookie, failure) = (*cookie, *failure);
                self.receiving = Receiving::Header;
                self.reply(cookie).fail(failure);
                Ok(Progress::Done)
            }
        }
    }

    /// Begins the request at the front of what waits.
    fn advance_request(&mut self, agreement: Agreement) -> Result<Progress, ProtocolError> {
        let Ok((header, data)) = RequestHeader::read_from_prefix(self.staging.waiting()) else {
            return Ok(Progress::NeedsMore);
        };
        if header.magic.get() != REQUEST_MAGIC {
            return Err(ProtocolError::RequestMagic { found: header.magic.get() });
        }
        let is_write = header.command.get() == command::WRITE;
        let length = header.length.get() as usize;
        if is_write && header.length.get() > WRITE_DROPPED_MAX {
            return Err(ProtocolError::WriteTooLong { length: header.length.get() });
        }

        // 1. What it wants. A failure is answered when its data, if it has any, has gone by.
        let wanted = match transmission::check(&header, &self.export, agreement) {
            Ok(Command::Disconnect) => {
                self.close(None);
                return Ok(Progress::Done);
            }
            other => other,
        };

        // 2. Whether there is room for it. If not it stays where it is, and is judged again.
        let counted = match wanted {
            Ok(Command::Read(_) | Command::Write(_)) => length,
            Ok(Command::Cache(_)) if length <= self.export.maximum_payload as usize => length,
            _ => 0,
        };
        let has_its_most = self.requests.in_flight() >= REQUESTS_IN_FLIGHT_MAX
            || self.send.header_bytes() > REPLIES_WAITING_MAX
            || self.share.bytes() + counted > BYTES_IN_FLIGHT_MAX;
        if has_its_most || !self.share.has_room(counted) {
            self.waits_for_others = (!has_its_most).then_some(counted);
            return Ok(Progress::Stalled);
        }

        // 3. A write needs its data.
        self.was_long_write = is_write && length > STAGED_WRITE_MAX;
        if let Ok(Command::Write(range)) = wanted
            && length > 0
        {
            if let Some(data) = data.get(..length) {
                let mut buffer = self.pool.take(length);
                buffer.bytes_mut().copy_from_slice(data);
                self.staging.consume(size_of::<RequestHeader>() + length);
                self.share.take(length);
                self.start_write(&header, range, buffer);
                return Ok(Progress::Done);
            }
            let missing = length - data.len();
            let fits = size_of::<RequestHeader>() + length <= self.staging.capacity();
            if fits && length <= STAGED_WRITE_MAX && missing <= STAGED_REST_MAX {
                return Ok(Progress::NeedsMore);
            }
            let filled = data.len();
            let mut buffer = self.pool.take_for_receiving(length, filled);
            buffer.bytes_mut()[..filled].copy_from_slice(data);
            self.staging.consume(size_of::<RequestHeader>() + filled);
            self.share.take(length);
            self.receiving = Receiving::Payload { header, range, buffer, filled };
            return Ok(Progress::Done);
        }
        self.staging.consume(size_of::<RequestHeader>());

        // 4. All others.
        self.begin(wanted, &header, counted);
        Ok(Progress::Done)
    }

    /// Begins what needs no data any more. `counted`: bytes of the answer that there is room for.
    fn begin(&mut self, wanted: Result<Command, Failure>, header: &RequestHeader, counted: usize) {
        let is_write = header.command.get() == command::WRITE;
        let cookie = header.cookie.get();
        let length = header.length.get() as usize;
        let done = Answer::Done { length: counted };
        match wanted {
            Err(failure) if is_write && length > 0 => {
                self.receiving = Receiving::Dropped { cookie, rest: length, failure };
            }
            Err(failure) => self.reply(cookie).fail(failure),
            Ok(Command::Flush) => self.start(header, done, Operation::Flush),
            Ok(Command::Read(_)) if length == 0 => self.reply(cookie).done_read_of_nothing(),
            Ok(_) if length == 0 => self.reply(cookie).done(),
            Ok(Command::Read(range)) => {
                let answer = Answer::Data { offset: header.offset.get(), length };
                let buffer = self.pool.spare(length);
                self.start(header, answer, Operation::Read { range, buffer });
            }
            // It is a hint, and one that is too long for one read is not followed.
            Ok(Command::Cache(_)) if counted == 0 => self.reply(cookie).done(),
            Ok(Command::Cache(range)) => {
                let buffer = self.pool.spare(counted);
                self.start(header, done, Operation::Read { range, buffer });
            }
            Ok(Command::Trim(range)) => self.start(header, done, Operation::Discard { range }),
            Ok(Command::WriteZeroes { range, may_unmap }) => {
                self.start(header, done, Operation::WriteZeroes { range, may_unmap });
            }
            Ok(Command::BlockStatus { range, pieces_max }) => {
                let answer = Answer::BlockStatus { blocks: range.blocks, pieces_max };
                let handle = self.requests.insert(InFlight { cookie, answer });
                self.share.begin_request();
                self.events.push_back(Event::BlockStatus { handle, range, pieces_max });
            }
            // Handled above.
            Ok(Command::Write(_) | Command::Disconnect) => {}
        }
    }

    fn start_write(&mut self, header: &RequestHeader, range: LbaRange, data: Buffer) {
        let answer = Answer::Done { length: data.len() };
        // The bytes are counted already, since before they came.
        self.share.give_back(data.len());
        self.start(header, answer, Operation::Write { start: range.start, data });
    }

    fn start(&mut self, header: &RequestHeader, answer: Answer, operation: Operation) {
        self.share.take(answer.length());
        let handle = self.requests.insert(InFlight { cookie: header.cookie.get(), answer });
        self.share.begin_request();
        let fua = header.flags.get() & command_flag::FUA != 0;
        self.events.push_back(Event::Request { handle, operation, fua });
    }

    fn reply(&mut self, cookie: u64) -> Reply<'_> {
        let structured = match self.phase {
            Phase::Transmission(agreement) => agreement.structured_replies,
            Phase::Handshake(_) => false,
        };
        Reply { cookie, structured, out: &mut self.send }
    }

    fn close(&mut self, error: Option<ProtocolError>) {
        self.closing = true;
        self.events.push_back(Event::Closed(error));
    }
}

/// A request that waits for its answer.
struct InFlight {
    cookie: u64,
    answer: Answer,
}

/// What success looks like.
#[derive(Clone, Copy)]
enum Answer {
    /// Nothing but the fact. `length` is what counts as bytes in flight.
    Done { length: usize },
    /// The data of a read.
    Data { offset: u64, length: usize },
    /// Descriptors.
    BlockStatus { blocks: u64, pieces_max: usize },
}

impl Answer {
    /// What counts as bytes in flight.
    fn length(self) -> usize {
        match self {
            Answer::Done { length } | Answer::Data { length, .. } => length,
            Answer::BlockStatus { .. } => 0,
        }
    }
}

/// Requests in flight by handle. A handle is a slot and how often a request was inserted, so that
/// a late answer cannot hit a younger request in the same slot.
#[derive(Default)]
struct RequestTable {
    slots: Vec<Option<(u64, InFlight)>>,
    free: Vec<usize>,
    inserted: u64,
}

impl RequestTable {
    fn insert(&mut self, request: InFlight) -> u64 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        assert!(slot < REQUESTS_IN_FLIGHT_MAX);
        let handle = self.inserted * REQUESTS_IN_FLIGHT_MAX as u64 + slot as u64;
        self.inserted += 1;
        self.slots[slot] = Some((handle, request));
        handle
    }

    fn remove(&mut self, handle: u64) -> InFlight {
        let slot = (handle % REQUESTS_IN_FLIGHT_MAX as u64) as usize;
        let entry =
            self.slots.get_mut(slot).and_then(|entry| entry.take_if(|(found, _)| *found == handle));
        let (_, request) = entry.expect("an answer belongs to a request in flight");
        self.free.push(slot);
        request
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

// What waits in the staging memory when a long write begins must fit in a pooled buffer.
const _: () = assert!(STAGING_BUSY <= BufferPool::LARGE_LENGTH_MAX);
