//! Requests from other threads: FUSE, the control socket.
//!
//! A [`Submitter`] is a handle that can be cloned and sent. What it submits goes through a queue to
//! the event loop, which is woken by an eventfd; the answer comes as a call of the completion, on
//! the thread of the event loop, so completions must be short and must not wait for anything.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use dcd_engine::config::ConfigError;
use dcd_engine::format::share_directory::Windows;
use dcd_engine::stats::Status;
use dcd_engine::units::{LbaRange, MemberIndex};
use dcd_engine::{
    Device, EngineConfig, GrowRefusal, Operation, Reply, RequestError, RequestId, Time, VolumeError,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use crate::clock::Clock;
use crate::device::network::store_report::StoreReport;
use crate::disk::network::NetworkStanding;
use crate::event_loop::core::Core;
use crate::event_loop::request_ring::RequestRing;
use crate::event_loop::response_times::ResponseTimes;
pub use crate::frontend::StopKind;
use crate::frontend::nbd::server::NbdServer;
use crate::frontend::ublk::ServerEnd;
use crate::frontend::{EventLoopHandle, Submit};
use crate::memory::watch::MemoryReport;
use crate::pair::legs::{CacheSide, NewLeg, NewLegError};
use crate::pair::new_member::{NewMember, NewMemberError};
use crate::pair::nvram::NewNvram;
use crate::process::bell::Bell;
use crate::window_hook::HookNews;

/// Called once with the answer. If it is dropped uncalled (the loop has ended), the answer is
/// [`RequestError::ShuttingDown`], so nobody waits for ever.
pub struct Completion(Option<Box<dyn FnOnce(Reply) + Send>>);

impl Completion {
    /// Wraps a function.
    pub fn new(function: impl FnOnce(Reply) + Send + 'static) -> Completion {
        Completion(Some(Box::new(function)))
    }

    /// Answers.
    pub fn complete(mut self, reply: Reply) {
        if let Some(function) = self.0.take() {
            function(reply);
        }
    }

    /// Answers without data.
    pub fn complete_with(self, result: Result<(), RequestError>) {
        self.complete(Reply { id: RequestId(0), result, buffer: None, answer: None });
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if let Some(function) = self.0.take() {
            let result = Err(RequestError::ShuttingDown);
            function(Reply { id: RequestId(0), result, buffer: None, answer: None });
        }
    }
}

/// What a query may look at.
pub struct Snapshot<'a> {
    /// The cache, or the disk without one.
    pub core: &'a dyn Core,
    /// The time of the event loop.
    pub now: Time,
    /// Response times so far.
    pub response_times: &'a ResponseTimes,
    /// NBD clients connected.
    pub nbd_connections: usize,
    /// Those clients.
    pub nbd: &'a NbdServer,
    /// Who records requests.
    pub recorders: usize,
    /// Recorded requests that came before this are in the rings.
    pub recorded_until: Time,
    /// The segment memory, if there is a cache.
    pub memory: Option<&'a MemoryReport>,
    /// Files that are not found by their names any more.
    pub names_lost: &'a [String],
    /// The memory that was in front of the log and has failed, until another one comes.
    pub failed_nvram: Option<&'a str>,
    /// What the memory in front of the log is on, if there is one.
    pub nvram_disk: Option<&'a str>,
    /// The cache-disk, if there is a cache.
    pub cache_side: Option<&'a CacheSide>,
    /// How the connections of network disks stand: what each is, its name, and that.
    pub network_disks: Vec<(Device, String, NetworkStanding)>,
    /// How the hook of ordered shipping does, if there is one.
    pub window_hook: Option<HookNews>,
    /// How the object store stands, if the data-disk is in one.
    pub store: Option<StoreReport>,
    /// Whether the log can have the size that it would get on so many bytes.
    pub(crate) check_size: &'a dyn Fn(u64) -> Result<(), RequestError>,
}

impl Snapshot<'_> {
    /// A picture of the cache, if there is one and it runs.
    pub fn status(&self) -> Option<Status> {
        self.core.status()
    }
}

/// Names a drain, or a change of the log's size, for whoever wants to cancel it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DrainTicket(u64);

/// On what terms the data-disk may be parted from its cache.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DetachTerms {
    /// What may be given up: blocks that are lost, as somebody was told of them.
    pub accepted: Vec<LbaRange>,
}

/// A message to the event loop.
pub(crate) enum Message {
    Request {
        operation: Operation,
        fua: bool,
        received: Time,
        completion: Completion,
    },
    Drain {
        ticket: DrainTicket,
        received: Time,
        completion: Completion,
    },
    CancelDrain(DrainTicket),
    /// Give the log or the read area another size.
    Resize {
        ticket: DrainTicket,
        wanted: SizeWanted,
        received: Time,
        completion: Completion,
    },
    CancelResize(DrainTicket),
    /// A memory comes to be in front of the log.
    AddNvram {
        ticket: DrainTicket,
        new: Box<NewNvram>,
        received: Time,
        completion: Completion,
    },
    /// A request that somebody may want to cancel.
    RunAs {
        ticket: DrainTicket,
        operation: Operation,
        received: Time,
        completion: Completion,
    },
    CancelNvramChange(DrainTicket),
    /// A share of the cache-disk, by its place among the legs, is this part of its disk now.
    SetWindows {
        place: usize,
        disk: PathBuf,
        windows: Windows,
        answer: mpsc::SyncSender<bool>,
    },
    Query(Box<dyn FnOnce(&Snapshot<'_>) + Send>),
    Configure {
        config: Box<EngineConfig>,
        answer: mpsc::SyncSender<Result<(), ConfigError>>,
    },
    AddLeg {
        leg: Box<NewLeg>,
        answer: mpsc::SyncSender<Result<(), NewLegError>>,
    },
    ReplaceMember {
        new: Box<NewMember>,
        answer: mpsc::SyncSender<Result<MemberIndex, NewMemberError>>,
    },
    RemoveSpare {
        disk: MemberIndex,
        answer: mpsc::SyncSender<Result<(), VolumeError>>,
    },
    GrowVolume {
        set: Option<u8>,
        logical_bytes: Option<u64>,
        answer: mpsc::SyncSender<Result<(), GrowRefusal>>,
    },
    Stop {
        kind: StopKind,
        terms: DetachTerms,
        completion: Completion,
    },
    CancelDetach,
    /// Answer the requests of this device.
    ServeUblk {
        end: Box<ServerEnd>,
        io_bytes_max: u32,
    },
    /// Requests go into this ring from now on.
    Record(Arc<RequestRing>),
    /// And no more.
    StopRecording(Arc<RequestRing>),
    /// A window of ordered shipping is kept, or not.
    WindowKept {
        window: u64,
        is_kept: bool,
    },
    /// The lease on an object store was renewed, or was not.
    LeaseNews,
    /// Only to wake the loop.
    Wake,
}

/// Sends requests to the event loop from any thread.
#[derive(Clone)]
pub struct Submitter {
    queue: mpsc::Sender<Message>,
    bell: Arc<Bell>,
    clock: Clock,
    next_ticket: Arc<AtomicU64>,
}

/// What is to have which size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SizeWanted {
    /// The log: as large as it can be on so many bytes of the cache-disk, or on all that it has.
    Log(Option<u64>),
    /// The read area: so many bytes.
    ReadArea(u64),
}

impl Submitter {
    /// Tells whether a window of ordered shipping was kept.
    pub(crate) fn window_kept(&self, window: u64, is_kept: bool) {
        self.send(Message::WindowKept { window, is_kept });
    }

    /// The lease on an object store was renewed, or was not.
    pub(crate) fn lease_news(&self) {
        self.send(Message::LeaseNews);
    }

    /// Submits a request. The range is checked by the event loop; one that does not lie within the
    /// volume is answered with [`RequestError::Io`].
    pub fn submit(
        &self,
        operation: Operation,
        fua: bool,
        completion: impl FnOnce(Reply) + Send + 'static,
    ) {
        self.send(Message::Request {
            operation,
            fua,
            received: self.clock.now(),
            completion: Completion::new(completion),
        });
    }

    /// Submits a request and waits for its answer.
    pub fn run(&self, operation: Operation, fua: bool) -> Reply {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.submit(operation, fua, move |reply| {
            let _ = sender.send(reply);
        });
        // The completion is always called, and sends into free room.
        receiver.recv().unwrap_or(Reply {
            id: RequestId(0),
            result: Err(RequestError::ShuttingDown),
            buffer: None,
            answer: None,
        })
    }

    /// A name for a drain that is about to begin.
    pub fn new_ticket(&self) -> DrainTicket {
        DrainTicket(self.next_ticket.fetch_add(1, Ordering::Relaxed))
    }

    /// Begins a drain. The ticket is one of [`Submitter::new_ticket`].
    pub fn drain(&self, ticket: DrainTicket, completion: impl FnOnce(Reply) + Send + 'static) {
        let completion = Completion::new(completion);
        self.send(Message::Drain { ticket, received: self.clock.now(), completion });
    }

    /// Ends a drain, whose completion is told; nothing happens if it has ended.
    pub fn cancel_drain(&self, ticket: DrainTicket) {
        self.send(Message::CancelDrain(ticket));
    }

    /// Begins to give the log or the read area another size. The ticket is one of
    /// [`Submitter::new_ticket`].
    pub fn resize(
        &self,
        ticket: DrainTicket,
        wanted: SizeWanted,
        completion: impl FnOnce(Reply) + Send + 'static,
    ) {
        let completion = Completion::new(completion);
        self.send(Message::Resize { ticket, wanted, received: self.clock.now(), completion });
    }

    /// Ends that, whose completion is told; nothing happens if it has ended.
    pub fn cancel_resize(&self, ticket: DrainTicket) {
        self.send(Message::CancelResize(ticket));
    }

    /// Has a memory come to be in front of the log. The ticket is one of [`Submitter::new_ticket`].
    pub(crate) fn add_nvram(
        &self,
        ticket: DrainTicket,
        new: NewNvram,
        completion: impl FnOnce(Reply) + Send + 'static,
    ) {
        let (completion, received) = (Completion::new(completion), self.clock.now());
        self.send(Message::AddNvram { ticket, new: Box::new(new), received, completion });
    }

    /// Submits a request with a ticket, one of [`Submitter::new_ticket`].
    pub(crate) fn run_as(
        &self,
        ticket: DrainTicket,
        operation: Operation,
        completion: impl FnOnce(Reply) + Send + 'static,
    ) {
        let (completion, received) = (Completion::new(completion), self.clock.now());
        self.send(Message::RunAs { ticket, operation, received, completion });
    }

    /// Ends a change of the memory in front of the log, whose completion is told; nothing happens
    /// if it has ended.
    pub(crate) fn cancel_nvram_change(&self, ticket: DrainTicket) {
        self.send(Message::CancelNvramChange(ticket));
    }

    /// A share of the cache-disk, by its place among the legs, is this part of its disk from now on.
    /// False: something is under way in what it would lose, another disk has that place by now, or
    /// the loop has ended.
    pub(crate) fn set_windows(&self, place: usize, disk: &Path, windows: Windows) -> bool {
        let (answer, receiver) = mpsc::sync_channel(1);
        let disk = disk.to_owned();
        self.send(Message::SetWindows { place, disk, windows, answer });
        receiver.recv().unwrap_or(false)
    }

    /// Has `function` look at the state on the thread of the event loop. It is dropped uncalled
    /// if the loop has ended.
    pub fn query(&self, function: impl FnOnce(&Snapshot<'_>) + Send + 'static) {
        self.send(Message::Query(Box::new(function)));
    }

    /// Looks at the state and waits for what `function` makes of it; `None` if the loop has ended.
    pub fn ask<T: Send + 'static>(
        &self,
        function: impl FnOnce(&Snapshot<'_>) -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.query(move |snapshot| {
            let _ = sender.send(function(snapshot));
        });
        receiver.recv().ok()
    }

    /// Has the cache take over what may change while it runs, and waits for that; `None` if the
    /// loop has ended.
    pub fn configure(&self, config: EngineConfig) -> Option<Result<(), ConfigError>> {
        let (answer, receiver) = mpsc::sync_channel(1);
        self.send(Message::Configure { config: Box::new(config), answer });
        receiver.recv().ok()
    }

    /// Has a disk become a leg of the cache-disk, and waits until it is one, to be filled; `None`
    /// if the loop has ended.
    pub(crate) fn add_leg(&self, leg: NewLeg) -> Option<Result<(), NewLegError>> {
        let (answer, receiver) = mpsc::sync_channel(1);
        self.send(Message::AddLeg { leg: Box::new(leg), answer });
        receiver.recv().ok()
    }

    /// Has a spare become none, and waits until that is begun; `None` if the loop has ended.
    pub(crate) fn remove_spare(&self, disk: MemberIndex) -> Option<Result<(), VolumeError>> {
        let (answer, receiver) = mpsc::sync_channel(1);
        self.send(Message::RemoveSpare { disk, answer });
        receiver.recv().ok()
    }

    /// Has the volume grow on what its disks have now, and waits until that is begun; `None` if the
    /// loop has ended.
    pub(crate) fn grow_volume(
        &self,
        set: Option<u8>,
        logical_bytes: Option<u64>,
    ) -> Option<Result<(), GrowRefusal>> {
        let (answer, receiver) = mpsc::sync_channel(1);
        self.send(Message::GrowVolume { set, logical_bytes, answer });
        receiver.recv().ok()
    }

    /// Has a disk take the place of a member, or become a spare, and waits until that is begun: what
    /// the engine calls the disk; `None` if the loop has ended.
    pub(crate) fn replace_member(
        &self,
        new: NewMember,
    ) -> Option<Result<MemberIndex, NewMemberError>> {
        let (answer, receiver) = mpsc::sync_channel(1);
        self.send(Message::ReplaceMember { new: Box::new(new), answer });
        receiver.recv().ok()
    }

    /// A picture of the cache; `None` if there is none or the loop has ended.
    pub fn status(&self) -> Option<Status> {
        self.ask(|snapshot| snapshot.status()).flatten()
    }

    /// NBD clients that are connected, each in words.
    pub(crate) fn nbd_clients(&self) -> Vec<String> {
        self.ask(|snapshot| snapshot.nbd.client_names()).unwrap_or_default()
    }

    /// Asks the daemon to end: frontends stop, then the cache. The completion is called when the
    /// cache has answered.
    pub fn stop(&self, kind: StopKind, completion: impl FnOnce(Reply) + Send + 'static) {
        let terms = DetachTerms::default();
        self.send(Message::Stop { kind, terms, completion: Completion::new(completion) });
    }

    /// Asks the daemon to part the data-disk from its cache, and to end.
    pub fn detach(&self, terms: DetachTerms, completion: impl FnOnce(Reply) + Send + 'static) {
        let completion = Completion::new(completion);
        self.send(Message::Stop { kind: StopKind::Detach, terms, completion });
    }

    /// Ends the detach under way, if there is one. See [`crate::serve::supervise`].
    pub fn cancel_detach(&self) {
        self.send(Message::CancelDetach);
    }

    /// Requests go into this ring from now on, until [`Submitter::stop_recording`].
    pub fn record(&self, ring: Arc<RequestRing>) {
        self.send(Message::Record(ring));
    }

    /// No more requests go into this ring.
    pub fn stop_recording(&self, ring: Arc<RequestRing>) {
        self.send(Message::StopRecording(ring));
    }

    /// Has the event loop answer the requests of a ublk device. If the loop has ended, the device
    /// is closed.
    pub fn serve_ublk(&self, end: ServerEnd, io_bytes_max: u32) {
        self.send(Message::ServeUblk { end: Box::new(end), io_bytes_max });
    }

    /// Makes the event loop turn once.
    pub fn wake(&self) {
        self.send(Message::Wake);
    }

    fn send(&self, message: Message) {
        // If the loop has ended the message comes back and is dropped, which answers it.
        if self.queue.send(message).is_ok() {
            self.bell.ring();
        }
    }
}

impl Submit for Submitter {
    fn submit(&self, operation: Operation, fua: bool, completion: Box<dyn FnOnce(Reply) + Send>) {
        Submitter::submit(self, operation, fua, completion);
    }
}

impl EventLoopHandle for Submitter {
    fn wake(&self) {
        Submitter::wake(self);
    }

    fn serve_ublk(&self, end: ServerEnd, io_bytes_max: u32) {
        Submitter::serve_ublk(self, end, io_bytes_max);
    }
}

/// The other end, owned by the event loop.
pub(crate) struct Mailbox {
    queue: mpsc::Receiver<Message>,
    bell: Arc<Bell>,
}

/// Waits for the mailbox: readable when there may be messages.
pub(crate) struct MailboxEvent(Arc<Bell>);

impl AsFd for MailboxEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Mailbox {
    /// A mailbox and a way to send to it.
    pub(crate) fn new(clock: Clock) -> io::Result<(Mailbox, Submitter)> {
        let bell = Arc::new(Bell::new()?);
        let (sender, queue) = mpsc::channel();
        let next_ticket = Arc::new(AtomicU64::new(0));
        let submitter = Submitter { queue: sender, bell: bell.clone(), clock, next_ticket };
        Ok((Mailbox { queue, bell }, submitter))
    }

    /// What to wait for.
    pub(crate) fn event(&self) -> MailboxEvent {
        MailboxEvent(self.bell.clone())
    }

    /// The bell has been heard; messages sent from now on ring it again.
    pub(crate) fn heard(&self) {
        self.bell.heard();
    }

    /// The next message.
    pub(crate) fn next(&self) -> Option<Message> {
        self.queue.try_recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_waits_is_answered_when_the_loop_has_ended() {
        let (mailbox, submitter) = Mailbox::new(Clock::start()).unwrap();
        let waiting = {
            let submitter = submitter.clone();
            std::thread::spawn(move || submitter.run(Operation::Flush, false).result)
        };
        while mailbox.next().is_none() {
            std::thread::yield_now(); // dropped unanswered
        }
        assert_eq!(waiting.join().unwrap(), Err(RequestError::ShuttingDown));
        drop(mailbox);
        let result = submitter.run(Operation::Flush, false).result;
        assert_eq!(result, Err(RequestError::ShuttingDown));
        assert!(submitter.status().is_none());
    }

    #[test]
    fn the_bell_rings_once_until_it_is_heard() {
        let (mailbox, submitter) = Mailbox::new(Clock::start()).unwrap();
        let count = |mailbox: &Mailbox| {
            let mut count = [0; 8];
            match rustix::io::read(mailbox.event(), &mut count) {
                Ok(_) => u64::from_ne_bytes(count),
                Err(_) => 0,
            }
        };
        submitter.wake();
        submitter.wake();
        assert_eq!(count(&mailbox), 1);
        mailbox.heard();
        submitter.wake();
        assert_eq!(count(&mailbox), 1);
        assert_eq!(std::iter::from_fn(|| mailbox.next()).count(), 3);
    }
}
