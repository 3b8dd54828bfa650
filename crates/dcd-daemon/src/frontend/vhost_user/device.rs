//! The device of one connection, and the path of its requests, from top to bottom:
//!
//! ```text
//! take      a head from the ring (or from what an earlier daemon left), on record from now on
//! follow    the chain: copied, checked                    wrong: the queue is stopped, with a message
//! parse     what it wants: copied, checked                wrong: answered with an error at once
//! submit    to the event loop, with FUA if the guest does not flush
//! completed the engine has replied
//! answer    data and status into the guest's memory
//! done      used ring, record, guest woken
//! ```
//!
//! How much is under way is bounded in bytes and requests; beyond that, chains wait in their rings.

use std::io;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use dcd_engine::buffer_pool::BufferPool;
use dcd_engine::{Operation, Reply, RequestError};

use crate::frontend::Submit;
use crate::process::bell::Bell;

use super::block::{self, Status, Wanted};
use super::chain::Chain;
use super::config::{IO_BYTES_MAX, Volume, feature};
use super::inflight::Inflight;
use super::memory::{GuestMemory, is_lost};
use super::queue::{Queue, QueueError};
use super::ring::RingError;
use super::session::SHARE_HINT;

/// Bytes under way: a request more is begun below that.
pub const BYTES_UNDER_WAY_MAX: u64 = (64 << 20) - IO_BYTES_MAX as u64;
/// Requests under way.
pub const REQUESTS_UNDER_WAY_MAX: usize = 1024;
/// Chains that one queue may have served before it is the next queue's turn.
const TURN_MAX: usize = 64;

/// How long a guest that has kicked may show nothing.
const KICK_PATIENCE: Duration = Duration::from_secs(3);

/// What a reply is to.
#[derive(Clone, Copy, Debug)]
pub enum Token {
    /// A request of the guest.
    Request(usize),
    /// The flush of a change to writing through.
    WriteThrough,
}

/// Where replies of the engine go: from the event loop's thread to this one.
#[derive(Clone)]
pub struct Replies {
    sender: mpsc::Sender<(Token, Reply)>,
    bell: Arc<Bell>,
}

impl Replies {
    /// A queue of replies, whose owner is woken by `bell`.
    pub(crate) fn new(bell: Arc<Bell>) -> (Replies, mpsc::Receiver<(Token, Reply)>) {
        let (sender, receiver) = mpsc::channel();
        (Replies { sender, bell }, receiver)
    }

    /// The same, whose owner looks by itself.
    ///
    /// # Errors
    /// When there is no descriptor left.
    pub fn unwatched() -> io::Result<(Replies, mpsc::Receiver<(Token, Reply)>)> {
        Ok(Replies::new(Arc::new(Bell::new()?)))
    }

    fn send(&self, token: Token, reply: Reply) {
        if self.sender.send((token, reply)).is_ok() {
            self.bell.ring();
        }
    }
}

/// What the guest believes of the write cache; see `session.rs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteCache {
    /// That there is one: it flushes.
    On,
    /// That there is none: a write that is answered is durable.
    Off,
    /// Nobody knows, so writes are durable.
    Unknown,
}

/// A request that the engine has.
struct UnderWay {
    queue: usize,
    head: u16,
    chain: Chain,
    /// As it was when the chain was read.
    memory: Rc<GuestMemory>,
    bytes: u64,
    is_read: bool,
}

/// The device.
pub struct Device {
    /// What is served.
    pub volume: Volume,
    /// What the guest and the front-end have agreed to.
    pub features: u64,
    /// The guest's memory.
    pub memory: Rc<GuestMemory>,
    /// All queues that there can be.
    pub queues: Vec<Queue>,
    /// What outlives this process, if the front-end keeps it.
    pub record: Option<Inflight>,
    /// What the guest believes.
    pub write_cache: WriteCache,
    /// Nothing is taken for now.
    pub is_held: bool,
    /// How the flush of a change to writing through has ended.
    pub flushed_for_write_through: Option<bool>,
    /// Something was asked for on this connection.
    has_begun: bool,
    /// The first kick on it.
    first_kick: Option<Instant>,
    has_told_of_kicks: bool,
    /// The front-end has gone.
    is_abandoned: bool,
    under_way: Vec<Option<UnderWay>>,
    pool: BufferPool,
    free: Vec<usize>,
    requests: usize,
    bytes: u64,
    /// Which queue has the first turn.
    first: usize,
    submit: Arc<dyn Submit>,
    replies: Replies,
    quiet: bool,
}

impl Device {
    /// A device that nobody has set up yet.
    pub fn new(
        volume: Volume,
        queues: u16,
        submit: Arc<dyn Submit>,
        replies: Replies,
        quiet: bool,
    ) -> Device {
        Device {
            volume,
            features: 0,
            memory: Rc::default(),
            queues: (0..queues).map(|_| Queue::default()).collect(),
            record: None,
            write_cache: WriteCache::Unknown,
            is_held: false,
            flushed_for_write_through: None,
            has_begun: false,
            first_kick: None,
            has_told_of_kicks: false,
            is_abandoned: false,
            under_way: Vec::new(),
            pool: BufferPool::default(),
            free: Vec::new(),
            requests: 0,
            bytes: 0,
            first: 0,
            submit,
            replies,
            quiet,
        }
    }

    /// Requests that the engine has.
    pub fn requests_under_way(&self) -> usize {
        self.requests
    }

    fn has_room(&self) -> bool {
        !self.is_held
            && !self.is_abandoned
            && self.bytes < BYTES_UNDER_WAY_MAX
            && self.requests < REQUESTS_UNDER_WAY_MAX
    }

    /// Whether a turn would take something.
    pub fn has_work(&self) -> bool {
        self.has_room() && self.queues.iter().any(|queue| queue.has_work && queue.listens())
    }

    /// One turn: takes requests of all queues, some of each.
    pub fn take_requests(&mut self) {
        let count = self.queues.len();
        for place in 0..count {
            let index = (self.first + place) % count;
            if let Err(error) = self.take_from(index) {
                self.fail(index, &error);
            }
        }
        self.first = (self.first + 1) % count.max(1);
    }

    fn take_from(&mut self, index: usize) -> Result<(), QueueError> {
        for _ in 0..TURN_MAX {
            if !self.has_room() || !self.queues[index].has_work || !self.queues[index].listens() {
                return Ok(());
            }
            let Some(head) = self.queues[index].take()? else {
                self.queues[index].has_work = false;
                return Ok(());
            };
            self.begin(index, head)?;
        }
        Ok(())
    }

    /// Follows a chain, and asks the engine for what it wants.
    fn begin(&mut self, index: usize, head: u16) -> Result<(), QueueError> {
        self.has_begun = true;
        let memory = self.memory.clone();
        let Some(running) = &self.queues[index].running else { return Ok(()) };
        let has_indirect = self.features & feature::INDIRECT_DESC != 0;
        let ring = &running.ring;
        let descriptor = |index| ring.descriptor(index);
        let chain = Chain::follow(&*memory, head, ring.size(), has_indirect, descriptor)
            .map_err(|source| QueueError::Chain { head, source })?;
        let wanted = block::parse(&chain, &*memory, &self.volume, &mut self.pool)
            .map_err(|source| QueueError::Block { head, source })?;
        let operation = match wanted {
            Wanted::Operation(operation) => operation,
            Wanted::Id => {
                let id = self.volume.id();
                return self.answer(index, head, &chain, &memory, Status::Ok, Some(&id));
            }
            Wanted::Refused(status) => {
                return self.answer(index, head, &chain, &memory, status, None);
            }
        };
        let is_change = matches!(
            operation,
            Operation::Write { .. } | Operation::WriteZeroes { .. } | Operation::Discard { .. }
        );
        // A guest that cannot flush, or believes that it need not, has its word from the write
        // itself (C7).
        let flushes = self.features & feature::FLUSH != 0 && self.write_cache == WriteCache::On;
        if is_lost() {
            // What was read may be zeroes that nobody wrote. The connection ends.
            self.is_held = true;
            return Ok(());
        }
        let bytes = match operation {
            Operation::Read { .. } | Operation::Write { .. } => block::bytes_of(&chain),
            _ => 0,
        };
        let is_read = matches!(operation, Operation::Read { .. });
        let under_way = UnderWay { queue: index, head, chain, memory, bytes, is_read };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.under_way[slot] = Some(under_way);
                slot
            }
            None => {
                self.under_way.push(Some(under_way));
                self.under_way.len() - 1
            }
        };
        self.requests += 1;
        self.bytes += bytes;
        self.queues[index].under_way += 1;
        self.submit_as(Token::Request(slot), operation, is_change && !flushes);
        Ok(())
    }

    /// Makes durable all that was answered so far.
    pub fn flush_for_write_through(&mut self) {
        self.requests += 1;
        self.flushed_for_write_through = None;
        self.submit_as(Token::WriteThrough, Operation::Flush, false);
    }

    /// It is done.
    pub fn flushed(&mut self, is_durable: bool) {
        self.requests -= 1;
        self.flushed_for_write_through = Some(is_durable);
    }

    fn submit_as(&self, token: Token, operation: Operation, fua: bool) {
        let replies = self.replies.clone();
        let completion = Box::new(move |reply| replies.send(token, reply));
        self.submit.submit(operation, fua, completion);
    }

    /// The engine has replied to a request.
    pub fn completed(&mut self, slot: usize, reply: Reply) {
        let Some(done) = self.under_way.get_mut(slot).and_then(Option::take) else { return };
        let UnderWay { queue, head, chain, memory, bytes, is_read } = done;
        self.free.push(slot);
        self.requests -= 1;
        self.bytes -= bytes;
        if self.is_abandoned {
            return;
        }
        self.queues[queue].under_way -= 1;
        if reply.result == Err(RequestError::ShuttingDown) && self.record.is_some() {
            // Not lost: it stays on record, and the next daemon gets it.
            return;
        }
        let status = Status::from(reply.result);
        let data = reply.buffer.as_ref().map(|buffer| buffer.bytes());
        // A write has its buffer back, which the guest does not await.
        let data = data.filter(|_| status == Status::Ok && is_read);
        if let Err(error) = self.answer(queue, head, &chain, &memory, status, data) {
            self.fail(queue, &error);
        }
        self.pool.put(reply.buffer);
    }

    fn answer(
        &mut self,
        index: usize,
        head: u16,
        chain: &Chain,
        memory: &GuestMemory,
        status: Status,
        data: Option<&[u8]>,
    ) -> Result<(), QueueError> {
        let len = block::answer(chain, memory, status, data).map_err(QueueError::Answer)?;
        self.queues[index].done(head, len);
        Ok(())
    }

    /// Wakes the guest for all that was done in this turn.
    pub fn signal(&mut self) {
        self.queues.iter_mut().for_each(Queue::signal_if_wanted);
    }

    /// A queue that is to be served, and nothing was shared in which it could be: whoever asks for
    /// it would wait for ever.
    pub fn queue_without_memory(&self) -> Option<usize> {
        let is_wanted = |queue: &Queue| {
            queue.enabled && queue.kick.is_some() && queue.addresses.is_some() && queue.size > 0
        };
        let is_unserved = |queue: &Queue| is_wanted(queue) && queue.running.is_none();
        let index = self.queues.iter().position(is_unserved);
        index.filter(|_| self.memory.is_empty())
    }

    /// Whether anything was asked for.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// The guest has kicked, and may have asked for something.
    pub fn kicked(&mut self, index: usize, now: Instant) {
        if let Some(queue) = self.queues.get_mut(index) {
            queue.heard();
            self.first_kick.get_or_insert(now);
        }
    }

    /// When to look whether kicks have brought anything.
    pub fn looks_at_kicks_at(&self) -> Option<Instant> {
        let is_open = !self.has_begun && !self.has_told_of_kicks;
        self.first_kick.filter(|_| is_open).map(|first| first + KICK_PATIENCE)
    }

    /// Whether a guest has kicked and nothing of it can be seen here, for a while: its rings are as
    /// empty as memory that it does not share. Told once.
    pub fn kicks_in_vain(&mut self, now: Instant) -> bool {
        if self.looks_at_kicks_at().is_none_or(|at| now < at) {
            return false;
        }
        self.has_told_of_kicks = true;
        let running = self.queues.iter().filter_map(|queue| queue.running.as_ref());
        running.into_iter().all(|running| running.ring.is_blank())
    }

    /// Begins to serve queues that are ready. Whether any began.
    pub fn start_queues(&mut self) -> bool {
        let mut has_started = false;
        for index in 0..self.queues.len() {
            let queue = &mut self.queues[index];
            let record = self.record.as_ref();
            match queue.start(index as u16, &self.memory, self.features, record) {
                Ok(started) => has_started |= started,
                Err(error) => self.fail(index, &error),
            }
        }
        has_started
    }

    /// The guest's memory has changed: rings are looked for in the new.
    pub fn set_memory(&mut self, memory: GuestMemory) {
        self.memory = Rc::new(memory);
        for index in 0..self.queues.len() {
            if let Err(error) = self.queues[index].move_to(&self.memory) {
                self.fail(index, &error);
            }
        }
    }

    /// Stops a queue that cannot be served. What the guest did wrong harms itself only.
    fn fail(&mut self, index: usize, error: &QueueError) {
        if !self.queues[index].is_broken && !self.quiet {
            let hint = match error {
                // Some of its memory is shared, and that is not.
                QueueError::Ring(RingError::Outside { .. }) => SHARE_HINT,
                _ => {
                    "the guest's driver has gone wrong; reset the virtual machine, which starts the queue again"
                }
            };
            eprintln!("dcd: vhost-user: queue {index} is stopped: {error}\nhint: {hint}");
        }
        self.queues[index].fail();
    }

    /// The front-end has gone: its memory is not touched any more, since the guest may use it for
    /// something else as soon as nobody serves its device. Requests that the engine has are not
    /// answered; who keeps a record sends them again.
    pub fn abandon(&mut self) {
        self.queues.iter_mut().for_each(|queue| *queue = Queue::default());
        for under_way in self.under_way.iter_mut().flatten() {
            under_way.memory = Rc::default();
        }
        self.memory = Rc::default();
        self.record = None;
        self.is_abandoned = true;
    }
}
