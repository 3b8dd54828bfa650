//! A network disk on the event loop: I/Os of the engine to requests of NBD, over as many
//! connections as the server lets count as one, and connecting again when they break.
//!
//! ```text
//! start -> split -> the line with the least under way -> send; poll -> receive -> replies -> done
//! ```
//!
//! **When a connection breaks**, all of them are given up, since nobody knows whether it was the
//! server or the way to it:
//!
//! 1. *A flush proves nothing any more about writes that were answered before it*: the server may
//!    have died with them in its memory. So the flushes that are asked for fail, or, if there are
//!    none, the next one does, exactly as on a file of which the kernel has lost a write. Whoever
//!    asked has what it wrote yet, and writes it again (C24, C22 of a log).
//! 2. What was under way is sent again in full as soon as there is a connection: reads, and writes,
//!    which are not answered before. The engine has nothing else under way in their place.
//! 3. Whoever waits longer than most of `io-timeout` gets an error before the engine counts the
//!    disk as hung.
//! 4. If nothing was answered over it, or the last answer was that the server shuts down, the next
//!    one is believed only when something is answered: qemu-nbd whose storage has shut it out
//!    listens, and says so of each request. It is asked ever less often, and told of once.
//!
//! An I/O that the server has, and does not answer, is not given up here: as with a local disk, it
//! may be done at any time, so nothing else may be written in its place (C26).

mod job;
mod line;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dcd_engine::{Io, IoData, IoDone, IoError, IoId, IoOperation, Time};
use dcd_protocol::nbd::negotiation::ExportFacts;
use dcd_protocol::nbd::replies::{Asked, Asks};
use dcd_protocol::nbd::wire::{command, transmission_flag};
use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::device::device_file::DeviceFile;
use crate::device::network::connector::{Connector, Order};
use crate::device::network::{
    Channel, Link, NetworkDisk, NetworkProblem, OPEN_PATIENCE, request_header,
};
use crate::disk::network::job::{Job, Part, Work};
use crate::disk::network::line::Line;
use crate::disk::{DiskKey, DiskPart, io_error};
use crate::memory::segment_memory::Mapping;
use crate::ring::{DiskError, Ring};

/// The first wait before connecting again. It gives a server that lives, and has only lost the
/// connection, the time to do what it had received: what is written behind that must not be
/// overtaken.
const RETRY_MIN: Duration = Duration::from_millis(250);
/// The longest: the waits double.
const RETRY_MAX: Duration = Duration::from_secs(5);
/// What is received at once.
const RECEIVE_BYTES: usize = 256 << 10;
/// So often in one turn.
const RECEIVES_MAX: usize = 16;

/// Numbers that the protocol has for errors.
mod errno {
    pub(super) const SHUTDOWN: u32 = 108;
    pub(super) const INVALID: u32 = 22;
    pub(super) const UNSUPPORTED: u32 = 95;
}

/// Names what the session waits for in the ring. Serial numbers are never given twice: what ends
/// late belongs to nobody.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetworkEvent {
    /// The thread that connects has an answer.
    Answer(u64),
    /// A connection has something to say.
    Readable(u64),
    /// A connection has room.
    Writable(u64),
}

/// How it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NetworkStanding {
    /// `connected`, `connecting` or `refused`.
    pub state: &'static str,
    /// Since when.
    pub since: Time,
    /// Connections.
    pub connections: usize,
    /// How often it was lost and found again.
    pub reconnects: u64,
    /// Flushes that were failed, because a connection was lost behind writes that no flush had
    /// covered.
    pub flushes_failed: u64,
    /// I/Os that wait for a connection.
    pub waiting: usize,
    /// Why there is none, or why the last one was lost.
    pub problem: Option<String>,
}

/// A request that is under way.
struct Request {
    id: IoId,
    line: u64,
    offset: u64,
    /// Where in the I/O.
    at: usize,
    length: u32,
    command: u16,
}

/// See the module.
pub(crate) struct Session {
    file: Rc<DeviceFile>,
    connector: Connector,
    serial: u64,
    facts: ExportFacts,
    lines: Vec<Line>,
    jobs: BTreeMap<IoId, Job>,
    /// Wait for a connection, in order.
    waiting: VecDeque<IoId>,
    requests: HashMap<u64, Request>,
    next_cookie: u64,
    /// Changes that were answered and are not durable by themselves, and how many of them a flush
    /// has covered.
    written: u64,
    flushed: u64,
    /// Of such, some may be lost, and nobody has been told.
    has_lost: bool,
    /// The server cannot zero.
    zeroes_in_writing: bool,
    retry: Duration,
    /// Over the connections that there are, or were last, something was answered, and nothing said
    /// that the server shuts down.
    has_answered: bool,
    io_timeout: Duration,
    standing: NetworkStanding,
    done: VecDeque<IoDone>,
    received: Box<[u8]>,
    /// The ring waits for answers of the connector.
    has_begun: bool,
    segment_memory: Option<Arc<Mapping>>,
}

fn next_serial() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// What the replies of one receive bring.
struct Replies<'s> {
    requests: &'s HashMap<u64, Request>,
    jobs: &'s mut BTreeMap<IoId, Job>,
    line: u64,
    ended: Vec<(u64, Result<(), u32>)>,
}

impl Asks for Replies<'_> {
    fn asked(&self, cookie: u64) -> Option<Asked> {
        let request = self.requests.get(&cookie)?;
        if request.line != self.line || self.ended.iter().any(|(ended, _)| *ended == cookie) {
            return None;
        }
        Some(match request.command {
            command::READ => Asked::Data { offset: request.offset, length: request.length },
            _ => Asked::Done,
        })
    }

    fn data(&mut self, cookie: u64, at: usize, bytes: &[u8]) {
        if let Some(place) = self.place(cookie, at, bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    fn zeroes(&mut self, cookie: u64, at: usize, length: usize) {
        if let Some(place) = self.place(cookie, at, length) {
            place.fill(0);
        }
    }

    fn ended(&mut self, cookie: u64, result: Result<(), u32>) {
        self.ended.push((cookie, result));
    }
}

impl Replies<'_> {
    fn place(&mut self, cookie: u64, at: usize, length: usize) -> Option<&mut [u8]> {
        let request = self.requests.get(&cookie)?;
        let Work::Read(buffer) = &mut self.jobs.get_mut(&request.id)?.work else { return None };
        let start = request.at + at;
        buffer.bytes_mut().get_mut(start..start + length)
    }
}

impl Session {
    /// A session of a network disk that is open, with the connection of that.
    ///
    /// # Errors
    /// If the system has no thread for it.
    pub(crate) fn new(file: Rc<DeviceFile>) -> std::io::Result<Option<Session>> {
        let Some(network) = file.network() else { return Ok(None) };
        let facts = network.facts().clone();
        let connector = Connector::start(network.uri().clone(), facts.clone())?;
        let zeroes_in_writing = !network.can_zero();
        let standing = NetworkStanding {
            state: "connected",
            since: Time::ZERO,
            connections: 0,
            reconnects: 0,
            flushes_failed: 0,
            waiting: 0,
            problem: None,
        };
        Ok(Some(Session {
            connector,
            serial: next_serial(),
            facts,
            lines: Vec::new(),
            jobs: BTreeMap::new(),
            waiting: VecDeque::new(),
            requests: HashMap::new(),
            next_cookie: 0,
            written: 0,
            flushed: 0,
            has_lost: false,
            zeroes_in_writing,
            retry: RETRY_MIN,
            has_answered: true,
            io_timeout: Duration::from_secs(30),
            standing,
            done: VecDeque::new(),
            received: vec![0; RECEIVE_BYTES].into(),
            has_begun: false,
            segment_memory: None,
            file,
        }))
    }

    fn network(&self) -> &NetworkDisk {
        self.file.network().expect("it is one")
    }

    pub(crate) fn set_segment_memory(&mut self, mapping: Arc<Mapping>) {
        self.segment_memory = Some(mapping);
    }

    /// How long the engine waits for an I/O.
    pub(crate) fn set_io_timeout(&mut self, io_timeout: Duration) {
        self.io_timeout = io_timeout;
    }

    /// How it stands.
    pub(crate) fn standing(&self) -> NetworkStanding {
        let (connections, waiting) = (self.lines.len(), self.waiting.len());
        NetworkStanding { connections, waiting, ..self.standing.clone() }
    }

    /// Starts an I/O.
    pub(crate) fn start<K: Copy + From<DiskKey>>(&mut self, now: Time, io: Io, ring: &mut Ring<K>) {
        if !self.has_begun {
            self.begin(now, io.device, ring);
        }
        let (work, offset) = match io.operation {
            IoOperation::Read { offset, buffer } => (Work::Read(buffer), offset),
            IoOperation::Write { offset, data, fua } => {
                let (data, is_ours) = match data {
                    IoData::Owned(buffer) => (buffer, false),
                    IoData::SegmentMemory(range) => {
                        let mapping = self.segment_memory.as_ref();
                        (mapping.expect("a log has segment memory").copy_of(&range), true)
                    }
                };
                (Work::Write { data, is_ours, fua }, offset)
            }
            IoOperation::WriteZeroes { offset, length, may_unmap } => {
                let in_writing = self.zeroes_in_writing;
                (Work::Zeroes { length, may_unmap, in_writing }, offset)
            }
            IoOperation::Flush => (Work::Flush, 0),
        };
        let mut job = Job::new(work, offset, now);
        if matches!(job.work, Work::Flush) {
            if std::mem::take(&mut self.has_lost) {
                self.standing.flushes_failed += 1;
                return self.finish(io.id, job, Err(IoError::Failed));
            }
            job.covers = self.written;
        }
        self.jobs.insert(io.id, job);
        self.waiting.push_back(io.id);
        self.send_waiting(now, io.device, ring);
    }

    /// Takes over the connection that was made when the disk was opened.
    fn begin<K: Copy + From<DiskKey>>(
        &mut self,
        now: Time,
        device: dcd_engine::Device,
        ring: &mut Ring<K>,
    ) {
        self.has_begun = true;
        self.standing.since = now;
        self.await_answer(device, ring);
        match self.network().take_link() {
            Some(link) if !self.facts.can_multi_conn() => {
                self.add_line(device, link.into_channel(), ring);
            }
            first => {
                self.standing.state = "connecting";
                self.order(Duration::ZERO, first);
            }
        }
    }

    fn await_answer<K: Copy + From<DiskKey>>(
        &self,
        device: dcd_engine::Device,
        ring: &mut Ring<K>,
    ) {
        let event = DiskPart::Network(NetworkEvent::Answer(self.serial));
        let key = K::from(DiskKey { device, part: event });
        ring.poll(key, Rc::new(self.connector.bell()), PollFlags::IN);
    }

    fn order(&self, after: Duration, first: Option<Link>) {
        let patience = self.io_timeout.min(OPEN_PATIENCE);
        let mark = self.network().mark();
        self.connector.order(Order { after, patience, mark, first });
    }

    fn add_line<K: Copy + From<DiskKey>>(
        &mut self,
        device: dcd_engine::Device,
        channel: Channel,
        ring: &mut Ring<K>,
    ) {
        let line = Line::new(next_serial(), channel, self.facts.structured);
        await_readable(device, &line, ring);
        self.lines.push(line);
    }

    /// Sends what waits, if there is a connection.
    fn send_waiting<K: Copy + From<DiskKey>>(
        &mut self,
        now: Time,
        device: dcd_engine::Device,
        ring: &mut Ring<K>,
    ) {
        if self.lines.is_empty() {
            return;
        }
        while let Some(id) = self.waiting.pop_front() {
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            let has_fua = self.facts.has(transmission_flag::SEND_FUA);
            job.is_flushing = false;
            let parts = job.parts(self.facts.maximum_payload.into(), has_fua);
            job.requests_left = parts.len() as u32;
            let offset = job.offset;
            if parts.is_empty() {
                self.job_ended(id);
            }
            for part in parts {
                self.push(id, offset, part);
            }
        }
        self.send(now, device, ring);
    }

    /// Queues a request on the line with the least under way.
    fn push(&mut self, id: IoId, offset: u64, part: Part) {
        let line = self.lines.iter_mut().min_by_key(|line| line.under_way_bytes);
        let line = line.expect("there is one");
        let (cookie, offset) = (self.next_cookie, offset + part.bytes.start);
        self.next_cookie += 1;
        let length = (part.bytes.end - part.bytes.start) as u32;
        let header = request_header(part.command, part.flags, cookie, offset, length);
        line.push(&header, part.data.map(|bytes| (id, bytes)));
        line.under_way_bytes += u64::from(length) + 1;
        let (at, line, command) = (part.bytes.start as usize, line.serial, part.command);
        self.requests.insert(cookie, Request { id, line, offset, at, length, command });
    }

    fn send<K: Copy + From<DiskKey>>(
        &mut self,
        now: Time,
        device: dcd_engine::Device,
        ring: &mut Ring<K>,
    ) {
        let mut broken = None;
        for line in self.lines.iter_mut().filter(|line| !line.waits_for_room) {
            let jobs = &self.jobs;
            match line.send(|id| jobs.get(&id).map_or(&[], Job::data)) {
                Ok(false) => {}
                Ok(true) => {
                    line.waits_for_room = true;
                    let event = DiskPart::Network(NetworkEvent::Writable(line.serial));
                    let key = K::from(DiskKey { device, part: event });
                    ring.poll(key, Rc::new(line.channel.socket()), PollFlags::OUT);
                }
                Err(error) => broken = Some(error),
            }
        }
        if let Some(error) = broken {
            self.lose(now, &error.to_string());
        }
    }

    /// Something has happened that was waited for.
    pub(crate) fn happened<K: Copy + From<DiskKey>>(
        &mut self,
        now: Time,
        device: dcd_engine::Device,
        event: NetworkEvent,
        ring: &mut Ring<K>,
    ) {
        match event {
            NetworkEvent::Answer(serial) if serial == self.serial => {
                for answer in self.connector.answers() {
                    match answer {
                        Ok(found) => {
                            self.connected(now, device, found.facts, found.channels, ring);
                        }
                        Err(problem) => self.not_connected(now, &problem),
                    }
                }
                self.await_answer(device, ring);
            }
            NetworkEvent::Readable(serial) => self.receive(now, device, serial, ring),
            NetworkEvent::Writable(serial) => {
                let line = self.lines.iter_mut().find(|line| line.serial == serial);
                if let Some(line) = line {
                    line.waits_for_room = false;
                    self.send(now, device, ring);
                }
            }
            // Of a disk that was here before.
            NetworkEvent::Answer(_) => {}
        }
    }

    fn connected<K: Copy + From<DiskKey>>(
        &mut self,
        now: Time,
        device: dcd_engine::Device,
        facts: ExportFacts,
        channels: Vec<Channel>,
        ring: &mut Ring<K>,
    ) {
        self.facts = facts;
        self.zeroes_in_writing = !self.facts.has(transmission_flag::SEND_WRITE_ZEROES);
        for channel in channels {
            self.add_line(device, channel, ring);
        }
        // Without anything to ask there is nothing to wait for.
        if std::mem::take(&mut self.has_answered) || self.jobs.is_empty() {
            self.believe(now);
        }
        self.send_waiting(now, device, ring);
    }

    /// The disk can be used again.
    fn believe(&mut self, now: Time) {
        if self.standing.problem.take().is_some() {
            self.standing.reconnects += 1;
            let name = self.file.path().display();
            let seconds = now.since(self.standing.since).0 as f64 / 1e9;
            eprintln!("dcd: {name}: connected again after {seconds:.1} s");
        }
        (self.standing.state, self.standing.since) = ("connected", now);
    }

    fn not_connected(&mut self, now: Time, problem: &NetworkProblem) {
        let is_other =
            matches!(problem, NetworkProblem::Changed { .. } | NetworkProblem::OtherDisk { .. });
        let state = if is_other { "refused" } else { "connecting" };
        let words = problem.to_string();
        if self.standing.problem.as_ref() != Some(&words) && is_other {
            let hint = problem.hint().unwrap_or_default();
            eprintln!("dcd: {} is not used: {words}; {hint}", self.file.path().display());
        }
        if self.standing.state != state {
            (self.standing.state, self.standing.since) = (state, now);
        }
        self.standing.problem = Some(words);
        self.retry = (self.retry * 2).min(RETRY_MAX);
        self.order(self.retry, None);
    }

    /// A connection broke: see the module.
    fn lose(&mut self, now: Time, why: &str) {
        self.lines.clear();
        self.requests.clear();
        if self.standing.state == "connected" {
            let name = self.file.path().display();
            eprintln!("dcd: {name}: the connection is lost ({why}); it is made again");
            if now.since(self.standing.since).0 > 10_000_000_000 {
                self.retry = RETRY_MIN;
            }
            (self.standing.state, self.standing.since) = ("connecting", now);
        } else {
            self.retry = (self.retry * 2).min(RETRY_MAX);
        }
        self.standing.problem = Some(why.to_owned());

        // 1. Flushes say what became of the writes before them.
        self.has_lost |= self.written > self.flushed;
        self.flushed = self.written;
        if self.has_lost {
            let flushes = self.jobs.iter().filter(|(_, job)| matches!(job.work, Work::Flush));
            let flushes: Vec<IoId> = flushes.map(|(id, _)| *id).collect();
            self.has_lost = flushes.is_empty();
            for id in flushes {
                self.standing.flushes_failed += 1;
                let job = self.jobs.remove(&id).expect("it was found");
                self.finish(id, job, Err(IoError::Failed));
            }
        }
        // 2. The others begin anew, in the order in which they came.
        self.waiting = self.jobs.keys().copied().collect();
        for job in self.jobs.values_mut() {
            (job.requests_left, job.error) = (0, None);
        }
        self.order(self.retry, None);
    }

    fn receive<K: Copy + From<DiskKey>>(
        &mut self,
        now: Time,
        device: dcd_engine::Device,
        serial: u64,
        ring: &mut Ring<K>,
    ) {
        let Some(place) = self.lines.iter().position(|line| line.serial == serial) else { return };
        for _ in 0..RECEIVES_MAX {
            let line = &mut self.lines[place];
            let count = match line.receive(&mut self.received) {
                Ok(Some(count)) => count,
                Ok(None) => break,
                Err(error) => return self.lose(now, &error.to_string()),
            };
            let mut replies = Replies {
                requests: &self.requests,
                jobs: &mut self.jobs,
                line: serial,
                ended: Vec::new(),
            };
            let read = line.reader.received(&self.received[..count], &mut replies);
            let ended = replies.ended;
            // What was answered before it went wrong was answered.
            for (cookie, result) in ended {
                if !self.request_ended(now, cookie, result) {
                    return self.lose(now, "the server shuts down, or its storage has shut it out");
                }
            }
            if let Err(error) = read {
                return self.lose(now, &error.to_string());
            }
            if count < self.received.len() {
                break;
            }
        }
        await_readable(device, &self.lines[place], ring);
        // Flushes behind writes, and zeroes that are to be written, go at once.
        self.send_waiting(now, device, ring);
    }

    /// A request was answered. False: by a server that ends.
    fn request_ended(&mut self, now: Time, cookie: u64, result: Result<(), u32>) -> bool {
        let request = self.requests.remove(&cookie).expect("only those are answered");
        if result == Err(errno::SHUTDOWN) {
            self.has_answered = false;
            return false;
        }
        self.has_answered = true;
        if self.standing.state != "connected" {
            self.believe(now);
        }
        let line = self.lines.iter_mut().find(|line| line.serial == request.line);
        line.expect("it answers").under_way_bytes -= u64::from(request.length) + 1;
        let job = self.jobs.get_mut(&request.id).expect("its requests are under way");
        job.requests_left -= 1;
        if let Err(number) = result {
            let refuses = matches!(number, errno::INVALID | errno::UNSUPPORTED);
            match &mut job.work {
                Work::Zeroes { in_writing, .. } if refuses && !*in_writing => {
                    *in_writing = true;
                    self.zeroes_in_writing = true;
                    job.error = Some(IoError::Unsupported);
                }
                _ => {
                    let errno = Errno::from_raw_os_error(number.min(4095) as i32);
                    job.error = Some(io_error(DiskError::Errno(errno)));
                }
            }
        }
        if job.requests_left == 0 {
            self.job_ended(request.id);
        }
        true
    }

    /// All requests of a job were answered.
    fn job_ended(&mut self, id: IoId) {
        let has_fua = self.facts.has(transmission_flag::SEND_FUA);
        let job = self.jobs.get_mut(&id).expect("it was under way");
        let error = job.error.take();
        match &job.work {
            // It begins again, in another way.
            Work::Zeroes { in_writing: true, .. } if error == Some(IoError::Unsupported) => {
                self.waiting.push_back(id);
                return;
            }
            Work::Write { fua: true, .. } if !has_fua && !job.is_flushing && error.is_none() => {
                job.is_flushing = true;
                job.covers = self.written;
                job.requests_left = 1;
                let flush = Part { command: command::FLUSH, flags: 0, bytes: 0..0, data: None };
                return self.push(id, 0, flush);
            }
            Work::Write { fua: true, .. } if error.is_none() => {
                if job.is_flushing {
                    self.flushed = self.flushed.max(job.covers);
                }
            }
            // One that failed may have been done in part, and is as much in doubt.
            Work::Write { .. } | Work::Zeroes { .. } => self.written += 1,
            Work::Flush if error.is_none() => self.flushed = self.flushed.max(job.covers),
            Work::Flush | Work::Read(_) => {}
        }
        let job = self.jobs.remove(&id).expect("looked at");
        self.finish(id, job, error.map_or(Ok(()), Err));
    }

    fn finish(&mut self, id: IoId, job: Job, result: Result<(), IoError>) {
        let buffer = match job.work {
            Work::Read(buffer) | Work::Write { data: buffer, is_ours: false, .. } => Some(buffer),
            Work::Write { .. } | Work::Zeroes { .. } | Work::Flush => None,
        };
        self.done.push_back(IoDone { id, result, buffer });
    }

    /// The next I/O that has ended. Those that have waited too long end.
    pub(crate) fn next_done(&mut self, now: Time) -> Option<IoDone> {
        if self.lines.is_empty() {
            let is_late = |id: &IoId| self.jobs.get(id).is_none_or(|job| now >= self.late_at(job));
            let late: Vec<IoId> = self.waiting.iter().copied().filter(is_late).collect();
            for id in late {
                self.waiting.retain(|waiting| *waiting != id);
                let Some(job) = self.jobs.remove(&id) else { continue };
                // Whoever asked takes it as any flush that fails.
                self.has_lost &= !matches!(job.work, Work::Flush);
                self.finish(id, job, Err(IoError::TimedOut));
            }
        }
        self.done.pop_front()
    }

    fn late_at(&self, job: &Job) -> Time {
        let most = self.io_timeout / 4 * 3;
        job.started.after(dcd_engine::Duration(most.as_nanos() as u64))
    }

    /// When [`Session::next_done`] is needed.
    pub(crate) fn next_due(&self, now: Time) -> Option<Time> {
        if !self.done.is_empty() {
            return Some(now);
        }
        let waiting = self.waiting.iter().filter(|_| self.lines.is_empty());
        waiting.filter_map(|id| self.jobs.get(id)).map(|job| self.late_at(job)).min()
    }
}

fn await_readable<K: Copy + From<DiskKey>>(
    device: dcd_engine::Device,
    line: &Line,
    ring: &mut Ring<K>,
) {
    let event = DiskPart::Network(NetworkEvent::Readable(line.serial));
    ring.poll(
        K::from(DiskKey { device, part: event }),
        Rc::new(line.channel.socket()),
        PollFlags::IN,
    );
}
