//! The one loop: disks, NBD clients, the ublk device, requests of other threads, timers and signals
//! around a core, on one thread with one ring.
//!
//! ```text
//! turn:  wait for completions        one io_uring_enter; it also submits what the last turn queued
//!        now = clock                 read once, and again when answers have been sent
//!        completions -> core         each input is followed by all its outputs
//!        requests of clients and other threads -> core
//!        timers -> core              only behind all completions: what has ended is not late
//!        send replies, receive again
//! ```
//!
//! What a turn brings to the end of its life (whoever runs the loop, see [`crate::serve`]) decides:
//! the loop itself only turns.

pub mod core;
mod names;
mod nvram;
pub mod pass_through;
pub mod request_counts;
pub mod request_ring;
pub mod response_times;
pub mod submitter;

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use dcd_engine::config::ConfigError;
use dcd_engine::format::share_directory::Windows;
use dcd_engine::io::{LegError, ResizeError};
use dcd_engine::legs::witness::WitnessParts;
use dcd_engine::units::{LbaRange, MemberIndex};
use dcd_engine::volume::attributes::{AttributeChange, Attributes};
use dcd_engine::volume::growth::Growth;
use dcd_engine::volume::{GrowthEnd, ReplaceError};
use dcd_engine::{
    Buffer, DestagePolicyKind, Device, Engine, EngineConfig, Geometry, GrowRefusal, Input, Io,
    IoDone, IoId, MemoryUse, Operation, Output, Phase, Reply, Request, RequestError, RequestId,
    Superblock, Time, VolumeError, VolumeRequest,
};
use rustix::event::PollFlags;

use crate::clock::Clock;
use crate::device::network::lease::Lease;
use crate::device::network::store_report::StoreReport;
use crate::device::share_room::ShareRoom;
use crate::disk::network::NetworkStanding;
use crate::disk::{Disk, DiskKey, DiskPart};
use crate::event_loop::core::Core;
use crate::event_loop::names::NameWatch;
use crate::event_loop::nvram::NvramChanges;
use crate::event_loop::request_ring::{AskedRequest, RecordedRequest, RequestRing};
use crate::event_loop::response_times::{RequestKind, ResponseTimes};
use crate::event_loop::submitter::{
    Completion, DetachTerms, DrainTicket, Mailbox, Message, SizeWanted, Snapshot, StopKind,
    Submitter,
};
use crate::frontend::nbd::listen::Listener;
use crate::frontend::nbd::server::{ClientKey, NbdKey, NbdServer};
use crate::frontend::nbd::{Event, Export};
use crate::frontend::ublk::queue::{Fetched, Hint};
use crate::frontend::ublk::server::{UblkKey, UblkServer};
use crate::memory::watch::{MemoryWatch, Seen};
use crate::pair::label_keeper::{After, LabelKeeper, superblock_in};
use crate::pair::legs::{CacheSide, NewLeg, NewLegError};
use crate::pair::new_member::{NewMember, NewMemberError};
use crate::process::signals::{Signal, Signals};
use crate::ring::busy_poll::BusyPoll;
use crate::ring::kernel::Kernel;
use crate::ring::{Completed, Ring};
use crate::window_hook::WindowHook;

/// How long the end waits for replies to be sent, and for the ring to be empty.
const CLOSE_PATIENCE: std::time::Duration = std::time::Duration::from_secs(2);
/// How often a core is told the time.
const CALENDAR_INTERVAL: dcd_engine::Duration = dcd_engine::Duration::from_secs(60);

/// Names what the loop waits for in the ring.
#[derive(Clone, Copy)]
enum Key {
    Disk(DiskKey),
    Nbd(NbdKey),
    Ublk(UblkKey),
    Mailbox,
    Signals,
}

impl From<DiskKey> for Key {
    fn from(key: DiskKey) -> Key {
        Key::Disk(key)
    }
}

impl From<NbdKey> for Key {
    fn from(key: NbdKey) -> Key {
        Key::Nbd(key)
    }
}

impl From<UblkKey> for Key {
    fn from(key: UblkKey) -> Key {
        Key::Ublk(key)
    }
}

/// Who gets the reply of a request.
enum Origin {
    Nbd { client: ClientKey, handle: u64 },
    Ublk { tag: u16 },
    Thread(Completion),
}

struct Pending {
    origin: Origin,
    kind: RequestKind,
    received: Time,
    /// What a drain can be cancelled by.
    ticket: Option<DrainTicket>,
    /// What it wants, while somebody records.
    asked: Option<AskedRequest>,
    /// It waits for a window, too.
    window: WaitsForWindow,
}

impl Pending {
    /// One that can be cancelled.
    fn of_ticket(ticket: DrainTicket, received: Time, completion: Completion) -> Pending {
        Pending {
            origin: Origin::Thread(completion),
            kind: RequestKind::Other,
            received,
            ticket: Some(ticket),
            asked: None,
            window: WaitsForWindow::No,
        }
    }
}

/// What a request has to do with windows of ordered shipping.
enum WaitsForWindow {
    No,
    /// When it is durable on the cache-disk.
    Then,
    /// It does. The buffer goes back with the answer.
    Now(Option<Buffer>),
}

/// A request whose answer leaves in this turn.
struct Answered {
    kind: RequestKind,
    received: Time,
    asked: Option<AskedRequest>,
}

/// Somebody wants the daemon to end, or not to.
pub enum StopRequest {
    /// To end.
    Stop {
        /// How.
        kind: StopKind,
        /// Of a detach.
        terms: DetachTerms,
        /// Who waits for it: another thread, or nobody (a signal).
        completion: Option<Completion>,
    },
    /// To leave the pair one after all.
    CancelDetach,
}

/// A core and all that is connected to it.
pub struct EventLoop<C> {
    // The ring is dropped first: what it refers to is owned by its own entries.
    ring: Ring<Key>,
    core: C,
    /// Keeps windows of ordered shipping. Before the disks: it ends before their locks.
    window_hook: Option<WindowHook>,
    /// Flushes and FUA of clients are answered when a window with all of it was kept.
    flushes_wait_for_windows: bool,
    disks: Disks,
    /// Of a data-disk that has a label.
    label: Option<LabelKeeper>,
    clock: Clock,
    now: Time,
    /// When the last turn ended, if anybody looked.
    ended: Option<Time>,
    /// When the core wants [`Input::Timeout`], if that is known.
    deadline: Option<Option<Time>>,
    nbd: NbdServer,
    ublk: Option<UblkServer>,
    pending: Vec<Option<Pending>>,
    pending_free: Vec<u32>,
    /// Durable on the cache-disk, and now to wait for a window.
    window_awaited: Vec<Pending>,
    /// Flushes that are in a window, and wait for the lease on its store.
    lease_awaited: Vec<(Pending, Reply, Time)>,
    /// A superblock that is being written: its I/O and its generation.
    superblock_under_way: Option<(IoId, u64)>,
    /// Requests answered in this turn, to be timed at its end.
    answered: Vec<Answered>,
    response_times: ResponseTimes,
    /// Who records requests; mostly nobody.
    recorders: Vec<Arc<RequestRing>>,
    /// So many were to be recorded: their order.
    requests_recorded: u64,
    mailbox: Mailbox,
    submitter: Submitter,
    signals: Option<Rc<Signals>>,
    stop_requests: VecDeque<StopRequest>,
    /// SIGHUP has come.
    settings_are_wanted: bool,
    /// The segment memory of a cache.
    memory: Option<MemoryWatch>,
    names: NameWatch,
    /// Whether there is memory for a log like this.
    may_grow: Option<MayGrow>,
    /// The core has ended; it is told nothing more.
    is_closing: bool,
    /// When it was told the time.
    calendar_told: Option<Time>,
    /// The number of the last growth of the volume whose end was noticed.
    growth_noted: u64,
    /// What becomes of the memory in front of the log.
    nvram_changes: NvramChanges,
}

/// Judges a log of another size.
pub(crate) type MayGrow = Box<dyn Fn(&Geometry, &EngineConfig) -> Result<(), ResizeError>>;

/// The disks below the core.
struct Disks {
    cache: Option<CacheSide>,
    /// With the memory in front of the log.
    nvram: Option<Box<Disk>>,
    data: DataSide,
}

/// The disks with the data.
pub enum DataSide {
    /// One, as it is.
    Disk(Box<Disk>),
    /// The members of a volume, in order; `None`: it is not there.
    Members(Vec<Option<Disk>>),
}

impl Disks {
    fn get_mut(&mut self, device: Device) -> &mut Disk {
        match device {
            Device::DataDisk => match &mut self.data {
                DataSide::Disk(disk) => disk,
                DataSide::Members(_) => unreachable!("a volume has members"),
            },
            Device::Member(member) => {
                let DataSide::Members(members) = &mut self.data else {
                    unreachable!("only a volume has members")
                };
                let disk = members.get_mut(usize::from(member.0)).and_then(Option::as_mut);
                disk.expect("a volume asks only for members that are there")
            }
            Device::Nvram => self.nvram.as_mut().expect("only a tier asks for its medium"),
            Device::CacheDisk => match &mut self.cache {
                Some(CacheSide::Disk(disk)) => disk,
                _ => unreachable!("only a cache on one disk asks for the cache-disk"),
            },
            Device::Leg(leg) => match &mut self.cache {
                Some(CacheSide::Legs { legs, .. }) => {
                    let disk = legs[usize::from(leg.0)].disk.as_mut();
                    disk.expect("only who is in place is asked")
                }
                _ => unreachable!("only a cache on legs asks for one"),
            },
            Device::Witness => {
                let witness = self.cache.as_mut().and_then(CacheSide::witness_mut);
                witness.expect("only a witness that is there is asked")
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Disk> {
        let (disk, members) = match &self.data {
            DataSide::Disk(disk) => (Some(&**disk), &[][..]),
            DataSide::Members(members) => (None, &members[..]),
        };
        let cache = self.cache.iter().flat_map(CacheSide::iter);
        let cache = cache.chain(self.cache.iter().filter_map(CacheSide::witness));
        cache.chain(disk).chain(members.iter().flatten()).chain(self.nvram.as_deref())
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut Disk> {
        let (disk, members) = match &mut self.data {
            DataSide::Disk(disk) => (Some(&mut **disk), &mut [][..]),
            DataSide::Members(members) => (None, &mut members[..]),
        };
        let cache = self.cache.iter_mut().flat_map(CacheSide::all_mut);
        cache.chain(disk).chain(members.iter_mut().flatten()).chain(self.nvram.as_deref_mut())
    }
}

/// What a loop is made of.
pub struct Parts<C> {
    /// The state machine.
    pub core: C,
    /// The disk with the log, or its legs, if there is a cache.
    pub cache_side: Option<CacheSide>,
    /// What the memory in front of the log is on, if there is one.
    pub nvram: Option<Disk>,
    /// The segment memory, if there is a cache.
    pub(crate) memory: Option<MemoryWatch>,
    /// The disks with the data.
    pub data: DataSide,
    /// Writes the label of the one data-disk, if it has one.
    pub(crate) label: Option<LabelKeeper>,
    /// Where the ring is.
    pub kernel: Box<dyn Kernel>,
    /// The time; the same that the core was opened with.
    pub clock: Clock,
    /// What NBD clients see.
    pub export: Export,
    /// NBD clients at a time.
    pub clients_max: usize,
    /// Signals to listen to.
    pub signals: Option<Rc<Signals>>,
    /// No messages about clients.
    pub quiet: bool,
}

impl<C: Core> EventLoop<C> {
    /// A loop, to be turned by this thread only. Nothing has happened yet.
    pub fn new(parts: Parts<C>) -> io::Result<EventLoop<C>> {
        let Parts {
            core,
            cache_side,
            nvram,
            memory,
            data,
            label,
            kernel,
            clock,
            export,
            clients_max,
            signals,
            quiet,
        } = parts;
        let mut ring = Ring::new(kernel, clock);
        let (mailbox, submitter) = Mailbox::new(clock)?;
        ring.poll(Key::Mailbox, Rc::new(mailbox.event()), PollFlags::IN);
        if let Some(signals) = &signals {
            ring.poll(Key::Signals, signals.clone(), PollFlags::IN);
        }
        // Waits end when they should, not up to 50 us later (the slow arm and `max_delay` count).
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let mut event_loop = EventLoop {
            ring,
            core,
            disks: Disks { cache: cache_side, nvram: nvram.map(Box::new), data },
            label,
            clock,
            now: clock.now(),
            ended: None,
            deadline: None,
            nbd: NbdServer::new(export, clients_max, quiet),
            ublk: None,
            pending: Vec::new(),
            pending_free: Vec::new(),
            window_awaited: Vec::new(),
            lease_awaited: Vec::new(),
            superblock_under_way: None,
            answered: Vec::new(),
            response_times: ResponseTimes::default(),
            recorders: Vec::new(),
            requests_recorded: 0,
            mailbox,
            submitter,
            signals,
            stop_requests: VecDeque::new(),
            settings_are_wanted: false,
            memory,
            names: NameWatch::default(),
            may_grow: None,
            window_hook: None,
            flushes_wait_for_windows: false,
            is_closing: false,
            calendar_told: None,
            growth_noted: 0,
            nvram_changes: NvramChanges::default(),
        };
        if let Some(engine) = event_loop.core.engine() {
            let io_timeout = std::time::Duration::from_nanos(engine.config().io_timeout.0);
            event_loop.disks.iter_mut().for_each(|disk| disk.set_io_timeout(io_timeout));
        }
        // A core that has just been opened begins when it is told that time has passed.
        event_loop.give(Input::Timeout);
        Ok(event_loop)
    }

    /// A handle for other threads.
    pub fn submitter(&self) -> Submitter {
        self.submitter.clone()
    }

    /// The core.
    pub fn core(&self) -> &C {
        &self.core
    }

    /// The time of this turn.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Where the core stands.
    pub fn phase(&self) -> &Phase {
        self.core.phase()
    }

    /// Begins to take NBD clients.
    pub fn add_listener(&mut self, listener: Listener) {
        self.nbd.add_listener(listener, &mut self.ring);
    }

    /// Takes at most so many NBD clients at a time.
    pub fn set_clients_max(&mut self, clients_max: usize) {
        self.nbd.set_clients_max(clients_max);
    }

    /// Memory is bounded: a larger log has to fit, too.
    pub(crate) fn set_may_grow(&mut self, may_grow: MayGrow) {
        self.may_grow = Some(may_grow);
    }

    /// Whether flushes and FUA of clients wait for windows.
    pub(crate) fn set_flushes_wait_for_windows(&mut self, wait: bool) {
        self.flushes_wait_for_windows = wait;
    }

    /// Windows of ordered shipping are kept by this.
    pub(crate) fn set_window_hook(&mut self, hook: WindowHook) {
        self.window_hook = Some(hook);
    }

    /// The data-disk, if it is one and not the members of a volume.
    pub(crate) fn one_data_disk(&self) -> Option<&Disk> {
        match &self.disks.data {
            DataSide::Disk(disk) => Some(disk),
            DataSide::Members(_) => None,
        }
    }

    /// Memory is bounded: see [`NbdServer::spare_memory`].
    pub fn spare_memory(&mut self) {
        self.nbd.spare_memory();
    }

    /// Looks for the next event for `max` at most before it sleeps; before, it never does.
    pub fn set_busy_poll(&mut self, max: std::time::Duration) {
        self.ring.set_busy_poll(BusyPoll::new(max));
    }

    /// The segment memory, if the core is a cache.
    pub(crate) fn memory(&mut self) -> Option<&mut MemoryWatch> {
        self.memory.as_mut()
    }

    /// NBD clients that use the disk. Who only stands at the doors is waited for by nobody.
    pub fn nbd_connections(&self) -> usize {
        self.nbd.transmitting()
    }

    /// Takes no more NBD clients.
    pub fn stop_listening(&mut self) {
        self.nbd.stop_listening();
    }

    /// The next wish to end, if there is one.
    pub fn take_stop_request(&mut self) -> Option<StopRequest> {
        self.stop_requests.pop_front()
    }

    /// Whether a signal has asked since the last call for the settings to be read again.
    pub fn take_settings_wanted(&mut self) -> bool {
        std::mem::take(&mut self.settings_are_wanted)
    }

    /// Gives the core a request of the loop's owner.
    pub fn request(&mut self, operation: Operation, completion: Completion) {
        let received = self.now;
        self.start_asked(operation, false, received, Origin::Thread(completion), false);
    }

    /// The same for a change that is to be durable when it is answered.
    pub fn request_fua(&mut self, operation: Operation, completion: Completion) {
        let received = self.now;
        self.start_asked(operation, true, received, Origin::Thread(completion), false);
    }

    /// Begins a drain of the loop's owner.
    pub fn drain(&mut self, ticket: DrainTicket, completion: Completion) {
        self.start_drain(ticket, self.now, completion);
    }

    fn start_drain(&mut self, ticket: DrainTicket, received: Time, completion: Completion) {
        let pending = Pending::of_ticket(ticket, received, completion);
        self.start(pending, Operation::Drain, false);
    }

    /// Ends a drain, if it has not ended yet.
    pub fn cancel_drain(&mut self, ticket: DrainTicket) {
        if let Some(drain) = self.request_of(ticket) {
            self.request(Operation::CancelDrain { drain }, Completion::new(|_| ()));
        }
    }

    fn request_of(&self, ticket: DrainTicket) -> Option<RequestId> {
        let mut pending = self.pending.iter();
        let index = pending.position(|p| p.as_ref().is_some_and(|p| p.ticket == Some(ticket)));
        index.map(|index| RequestId(index as u64))
    }

    /// How large the log may be is a question to the disks, and asked now: they may have been given
    /// another size.
    fn resize_operation(&self, wanted: SizeWanted) -> Result<Operation, RequestError> {
        let bytes = match wanted {
            SizeWanted::ReadArea(bytes) => {
                self.check_memory(|it| it.geometry_with_read_area(bytes))?;
                return Ok(Operation::ResizeReadArea { bytes });
            }
            SizeWanted::Log(bytes) => bytes,
        };
        let disks = self.disks.cache.iter().flat_map(CacheSide::iter);
        let sizes: std::io::Result<Vec<u64>> = disks.map(Disk::size_now).collect();
        let found = sizes.map_err(|_| RequestError::Io)?.into_iter().min().unwrap_or(0);
        match bytes.unwrap_or(found) {
            wanted if wanted > found => Err(ResizeError::BeyondDisk { found, wanted }.into()),
            cache_disk_bytes => {
                self.check_memory(|it| it.geometry_on(cache_disk_bytes))?;
                Ok(Operation::Resize { cache_disk_bytes })
            }
        }
    }

    /// Whether the tables of a larger log, or a larger read area, have the memory that they may
    /// need.
    fn check_memory(
        &self,
        wanted: impl FnOnce(&Superblock) -> Result<Geometry, ResizeError>,
    ) -> Result<(), RequestError> {
        if let (Some(may_grow), Some(engine)) = (&self.may_grow, self.core.engine()) {
            let superblock = engine.superblock();
            let (wanted, before) = (wanted(superblock)?, superblock.geometry);
            if wanted.segments > before.segments || wanted.copy_pages > before.copy_pages {
                // The tables of what becomes smaller stay until the next start.
                let geometry = Geometry {
                    segments: wanted.segments.max(before.segments),
                    copy_pages: wanted.copy_pages.max(engine.copy_pages_known()),
                    ..wanted
                };
                may_grow(&geometry, engine.config())?;
            }
        }
        Ok(())
    }

    /// Whether the log can have the size that it would get on so many bytes.
    fn check_size(&self, cache_disk_bytes: u64) -> Result<(), RequestError> {
        let engine = self.core.engine().ok_or(ResizeError::NotLogging)?;
        self.check_memory(|it| it.geometry_on(cache_disk_bytes))?;
        engine.check_resize(cache_disk_bytes)
    }

    /// A share of the cache-disk, by its place, is this part of its disk from now on. False, and
    /// nothing has changed: it is there no more, or something is under way in what it would lose.
    /// Places are used again: by now a share of another disk may have this one.
    pub(crate) fn set_windows(&self, place: usize, disk: &Path, windows: Windows) -> bool {
        let there = self.disks.cache.as_ref().and_then(|cache| cache.at(place));
        let there = there.filter(|there| there.file().is_share_of(disk));
        there.is_some_and(|disk| disk.set_windows(windows, &self.ring))
    }

    /// How much a part of the cache-disk has, as far as its open file knows.
    pub(crate) fn room_bytes(&self, place: usize) -> Option<u64> {
        self.disks.cache.as_ref()?.at(place)?.size_now().ok()
    }

    /// The parts of the cache-disk that are shares, by their places.
    pub(crate) fn rooms(&self) -> io::Result<Vec<(usize, ShareRoom)>> {
        self.disks.cache.as_ref().map_or(Ok(Vec::new()), CacheSide::rooms)
    }

    /// The log may have got another size: what lies behind it may be cut off, and nothing else.
    fn note_size(&self) {
        let Some(engine) = self.core.engine() else { return };
        let end = engine.superblock().end();
        for disk in self.disks.cache.iter().flat_map(CacheSide::iter) {
            disk.file().set_needed_bytes(end);
        }
    }

    /// One turn: waits until something happens, but no longer than `wait_max`, and deals with it.
    pub fn turn(&mut self, wait_max: Option<std::time::Duration>) -> io::Result<()> {
        let ended = self.ended.take();
        // What this thread does itself is a part of the turn that has asked for it.
        if !self.ring.work() {
            let began = ended.unwrap_or_else(|| self.clock.now());
            let wait = self.wait_time(wait_max, began);
            self.now = self.ring.wait(wait, began)?;
        }
        self.look_at_memory();
        self.look_at_names();
        self.take_completed();
        self.nbd.timeout(self.now, &mut self.ring);
        self.serve_clients();
        // What else the ring has to give comes with the next turn, at once: the replies to what has
        // come are on their way by then. But who may be late is heard first: also what has ended
        // between the wait and the look at the clock, since the process may have stood there.
        if self.someone_may_be_late() {
            self.ring.see_all();
            self.take_completed();
            self.serve_clients();
        }
        // Whoever has not been heard by now has not answered.
        if self.ring.has_seen_all() {
            self.nbd.give_up_late();
            let deadline = self.deadline();
            if self.is_over(deadline) {
                self.give(Input::Timeout);
            }
            self.serve_clients();
        }
        if self.is_over(self.lease_due()) {
            self.look_at_lease();
        }
        self.let_go_of_legs();
        self.let_go_of_members();
        self.look_at_nvram();
        self.note_growth();
        if !self.answered.is_empty() {
            // Replies have left by now; the time of the whole turn is part of the answer.
            let sent = self.clock.now();
            self.ended = Some(sent);
            for Answered { kind, received, asked } in self.answered.drain(..) {
                self.response_times.record(kind, sent.since(received));
                if let Some(asked) = asked {
                    let recorded = RecordedRequest::new(asked, received, sent);
                    self.recorders.iter().for_each(|ring| ring.push(&recorded));
                }
            }
        }
        Ok(())
    }

    fn take_completed(&mut self) {
        while let Some(completed) = self.ring.next_completed() {
            self.completed(completed);
        }
        self.poll_disks();
    }

    fn someone_may_be_late(&mut self) -> bool {
        let deadline = self.deadline();
        self.is_over(deadline) || self.is_over(self.nbd.next_due())
    }

    fn is_over(&self, time: Option<Time>) -> bool {
        time.is_some_and(|time| time <= self.now)
    }

    /// How long the next wait may be, which begins now.
    fn wait_time(
        &mut self,
        wait_max: Option<std::time::Duration>,
        began: Time,
    ) -> Option<std::time::Duration> {
        let deadline = self.deadline();
        let due = self
            .disks
            .iter()
            .filter_map(|disk| disk.next_due(self.now))
            .chain(deadline)
            .chain(self.lease_due())
            .chain(self.nbd.next_due())
            .chain(self.nvram_changes.due())
            .chain(self.memory.as_ref().filter(|_| !self.is_closing).and_then(MemoryWatch::due))
            .min();
        let due = due.map(|due| std::time::Duration::from_nanos(due.since(began).0));
        due.into_iter().chain(wait_max).min()
    }

    /// Sees to it that what is acknowledged from memory will be found.
    fn look_at_memory(&mut self) {
        let Some(memory) = self.memory.as_mut().filter(|_| !self.is_closing) else { return };
        if let Seen::Missing = memory.turn(self.now)
            && *self.core.phase() == Phase::Running
        {
            // What was acknowledged from it before, and what is acknowledged behind this without
            // having been asked for durably (it waited for room): the next look is soon.
            self.request(Operation::Flush, Completion::new(|_| ()));
        }
    }

    /// Says which files are not found by their names any more.
    fn look_at_names(&mut self) {
        for news in self.names.look(self.now, self.disks.iter().map(Disk::file)) {
            told!(Warning, "disk", "dcd: {news}");
        }
    }

    fn completed(&mut self, completed: Completed<Key>) {
        let key = match &completed {
            Completed::Disk { key, .. }
            | Completed::Zero { key, .. }
            | Completed::Received { key, .. }
            | Completed::Command { key, .. }
            | Completed::Ready { key } => *key,
        };
        match (key, completed) {
            (Key::Disk(DiskKey { device, part: part @ DiskPart::Network(_) }), completed) => {
                // It may have been let go meanwhile.
                let mut disks = self.disks.iter_mut();
                if let Some(disk) = disks.find(|disk| disk.device() == device) {
                    disk.completed(self.now, part, completed, &mut self.ring);
                }
            }
            (Key::Disk(DiskKey { device, part }), completed) => {
                let disk = self.disks.get_mut(device);
                if let Some(done) = disk.completed(self.now, part, completed, &mut self.ring) {
                    self.io_done(done);
                }
            }
            (Key::Nbd(NbdKey::Received(client)), Completed::Received { result, .. }) => {
                self.nbd.received(client, result);
            }
            (Key::Nbd(NbdKey::Writable(client)), _) => self.nbd.writable(client),
            (Key::Nbd(NbdKey::Listener(index)), _) => {
                self.nbd.accept(self.now, index, &mut self.ring);
            }
            (Key::Nbd(NbdKey::Received(_)), _) => {}
            (Key::Nbd(NbdKey::Handshakes), _) => self.nbd.handshakes_done(&mut self.ring),
            (Key::Ublk(UblkKey(tag)), Completed::Command { result, buffer, .. }) => {
                self.fetched(tag, result, buffer);
            }
            (Key::Ublk(_), _) => {}
            (Key::Mailbox, _) => self.take_messages(),
            (Key::Signals, _) => self.take_signals(),
        }
    }

    /// The driver has a request for a tag, or the device stops.
    fn fetched(&mut self, tag: u16, result: i32, buffer: Buffer) {
        let Some(ublk) = &mut self.ublk else { return };
        match ublk.fetched(tag, result, buffer) {
            Fetched::Request { operation, fua, hint } => {
                if let Some((range, hint)) = hint {
                    self.hint(range, hint);
                }
                self.start_request(operation, fua, self.now, Origin::Ublk { tag });
            }
            Fetched::Answer(answer) => ublk.answer(tag, answer, &mut self.ring),
            Fetched::Gone => self.drop_ublk_if_over(),
        }
    }

    /// Tells a volume what blocks are, before they are written for the first time. What it knows
    /// already costs nothing.
    fn hint(&mut self, range: LbaRange, hint: Hint) {
        if self.is_closing || self.core.engine().is_none_or(|engine| engine.volume().is_none()) {
            return;
        }
        let set = match hint {
            Hint::Metadata => Attributes::METADATA,
            Hint::Swap => Attributes::TEMPORARY,
        };
        let change = AttributeChange { set, clear: Attributes::NONE };
        let request = VolumeRequest::SetAttributes { ranges: vec![range], change };
        self.request(Operation::Volume(request), Completion::new(|_| ()));
    }

    /// Closes our end of a device that has stopped; whoever removes it waits for that.
    fn drop_ublk_if_over(&mut self) {
        self.ublk.take_if(|ublk| ublk.is_over());
    }

    /// Disks that do things in their own time: slow arms, faults.
    fn poll_disks(&mut self) {
        let mut done = Vec::new();
        for disk in self.disks.iter_mut() {
            while let Some(one) = disk.poll(self.now, &mut self.ring) {
                done.push(one);
            }
        }
        for one in done {
            self.io_done(one);
        }
    }

    fn io_done(&mut self, done: IoDone) {
        if self.is_closing {
            return;
        }
        if let Some((_, generation)) = self.superblock_under_way.take_if(|it| it.0 == done.id)
            && let (Some(lease), Ok(())) = (self.lease(), done.result)
        {
            lease.note_generation(generation);
        }
        let after = match &mut self.label {
            None => After::Give(done),
            Some(label) => label.ended(done),
        };
        self.go_on(after);
    }

    fn go_on(&mut self, after: After) {
        match after {
            After::Give(done) => self.give(Input::IoDone(done)),
            After::Start(io) => {
                self.disks.get_mut(io.device).start(self.now, io, &mut self.ring);
            }
            After::StartInHead(io) => {
                self.disks.get_mut(io.device).start_in_head(self.now, io, &mut self.ring);
            }
        }
    }

    /// Tells the core what has happened and does what it wants.
    /// Other settings, and what comes of them at once.
    pub(crate) fn configure(&mut self, config: &EngineConfig) -> Result<(), ConfigError> {
        let is_in_store = self.window_hook.as_ref().is_some_and(WindowHook::is_of_store);
        if is_in_store && config.destage_policy != DestagePolicyKind::Ordered {
            let why = "must be ordered for a data-disk in an object store";
            return Err(ConfigError::new("destage-policy", why));
        }
        self.core.configure(config)?;
        let io_timeout = std::time::Duration::from_nanos(config.io_timeout.0);
        self.disks.iter_mut().for_each(|disk| disk.set_io_timeout(io_timeout));
        self.nbd.show_read_only(config.read_only);
        self.give(Input::Timeout);
        Ok(())
    }

    /// A disk becomes a leg, which is filled while the others serve.
    fn add_leg(&mut self, new: NewLeg) -> Result<(), NewLegError> {
        let (Some(cache), Some(memory)) = (&mut self.disks.cache, &self.memory) else {
            return Err(LegError::NoLegs.into());
        };
        let mut disk = Disk::of(Device::CacheDisk, &new.spec, new.file)?;
        if new.is_witness {
            let mut parts = WitnessParts::blank(new.leg);
            parts.number = new.before.as_ref().map_or(0, |label| label.number);
            self.core.add_witness(parts, new.before.as_ref())?;
            disk.set_device(Device::Witness);
            cache.put_witness(disk);
            self.give(Input::Timeout);
            return Ok(());
        }
        disk.set_segment_memory(memory.mapping());
        let leg = self.core.add_leg(new.leg, new.before.as_ref())?;
        disk.set_device(Device::Leg(leg));
        cache.put_leg(leg, disk);
        self.give(Input::Timeout);
        Ok(())
    }

    /// A disk takes the place of a member while that serves, or becomes a spare.
    fn replace_member(&mut self, new: NewMember) -> Result<MemberIndex, NewMemberError> {
        let DataSide::Members(members) = &mut self.disks.data else {
            return Err(ReplaceError::from(VolumeError::NoVolume).into());
        };
        let mut disk = Disk::of(Device::DataDisk, &new.spec, new.file)?;
        let slot = match new.member {
            Some(member) => self.core.replace_member(member, new.new)?,
            None => self.core.add_spare(new.new)?,
        };
        disk.set_device(Device::Member(slot));
        let index = usize::from(slot.0);
        if members.len() <= index {
            members.resize_with(index + 1, || None);
        }
        members[index] = Some(disk);
        self.give(Input::Timeout);
        Ok(slot)
    }

    /// The volume grows on what its disks have now.
    fn grow_volume(
        &mut self,
        set: Option<u8>,
        logical_bytes: Option<u64>,
    ) -> Result<(), GrowRefusal> {
        let no_volume = || RequestError::Volume(VolumeError::NoVolume);
        let volume = self.core.engine().and_then(Engine::volume).ok_or_else(no_volume)?;
        let DataSide::Members(members) = &self.disks.data else { return Err(no_volume().into()) };
        let size = |slot: MemberIndex| {
            members.get(usize::from(slot.0))?.as_ref().and_then(|disk| disk.size_now().ok())
        };
        let member_bytes = volume.status().members.iter().map(|it| size(it.disk)).collect();
        let cache = self.disks.cache.iter().flat_map(CacheSide::iter).map(Disk::size_now);
        let cache: std::io::Result<Vec<u64>> = cache.collect();
        let cache_disk_bytes = cache.ok().and_then(|sizes| sizes.into_iter().min());
        let cache_disk_bytes = cache_disk_bytes.ok_or(RequestError::Io)?;
        let growth = Growth { set, logical_bytes, member_bytes, cache_disk_bytes };
        self.core.grow_volume(&growth)?;
        self.give(Input::Timeout);
        Ok(())
    }

    /// The volume may have grown: clients that come see its size, and more of the cache-disk is
    /// needed.
    fn note_growth(&mut self) {
        let Some(volume) = self.core.engine().and_then(Engine::volume) else { return };
        let Some(growth) = volume.growth_status().filter(|it| it.state == Err(GrowthEnd::Grown))
        else {
            return;
        };
        if growth.number != self.growth_noted {
            self.growth_noted = growth.number;
            self.nbd.show_size(growth.bytes_wanted);
            self.note_size();
        }
    }

    /// Tells the core the time, now and then: clocks are put right.
    pub(crate) fn tell_calendar(&mut self) {
        let is_told = |told: Time| self.now.since(told) < CALENDAR_INTERVAL;
        if self.is_closing || self.calendar_told.is_some_and(is_told) {
            return;
        }
        self.calendar_told = Some(self.now);
        let today = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        self.core.set_calendar(self.now, today.map_or(0, |since| since.as_secs()));
        self.give(Input::Timeout);
    }

    /// Lets go of the disks that are no members any more, so that others can use them.
    fn let_go_of_members(&mut self) {
        let (DataSide::Members(members), Some(engine)) = (&mut self.disks.data, self.core.engine())
        else {
            return;
        };
        let Some(volume) = engine.volume().filter(|volume| members.len() > volume.config().members)
        else {
            return;
        };
        for (slot, disk) in (0..).map(MemberIndex).zip(members) {
            // What the kernel has not ended yet is heard before: it may have hung until now.
            disk.take_if(|disk| !volume.uses_disk(slot) && !disk.is_used(&self.ring));
        }
    }

    /// Lets go of the disks of legs that were taken out, so that others can use them.
    fn let_go_of_legs(&mut self) {
        let (Some(cache), Some(engine)) = (&mut self.disks.cache, self.core.engine()) else {
            return;
        };
        let legs = engine.legs().enumerate();
        cache.let_go(legs.filter(|(_, leg)| leg.is_free).map(|(place, _)| place));
        if engine.leg_witness().is_some_and(|witness| witness.is_free) {
            cache.let_go_of_witness();
        }
    }

    /// What the witness of the legs is called.
    pub(crate) fn witness_name(&self) -> Option<String> {
        self.disks.cache.as_ref().and_then(CacheSide::witness_name)
    }

    /// What a leg of the cache-disk is called.
    pub(crate) fn leg_name(&self, leg: usize) -> Option<String> {
        self.disks.cache.as_ref().and_then(|cache| cache.leg_name(leg))
    }

    /// Has those kept away who would take a block device that caches share, as soon as whoever did
    /// that has gone. To be called now and then; when again, if at all.
    pub(crate) fn keep_others_away(&self) -> Option<Instant> {
        let disks = self.disks.cache.iter().flat_map(CacheSide::iter);
        disks.filter_map(|disk| disk.file().keep_others_away()).min()
    }

    fn give(&mut self, input: Input) {
        self.core.handle_input(self.now, input);
        self.take_outputs();
    }

    fn take_outputs(&mut self) {
        self.deadline = None;
        while let Some(output) = self.core.next_output() {
            match output {
                Output::Io(io) => self.start_io(io),
                Output::Reply(reply) => self.reply(reply),
                Output::KeepWindow { window } => self.keep_window(window),
                Output::Wait { .. } => unreachable!("there is something"),
            }
        }
        // Not out of a reply, which may be one of thousands: each would be within the one before.
        for pending in std::mem::take(&mut self.window_awaited) {
            self.start(pending, Operation::Drain, false);
        }
    }

    /// The answer comes later, also where there is nobody to ask.
    fn keep_window(&mut self, window: u64) {
        let is_asked = self.window_hook.as_mut().map(|hook| hook.keep(window).is_ok());
        if is_asked != Some(true) {
            self.submitter.window_kept(window, is_asked.is_none());
        }
    }

    /// When the core wants to be woken; while it is closed down, never. Not asked for after each
    /// input of many.
    fn deadline(&mut self) -> Option<Time> {
        if self.is_closing {
            return None;
        }
        let core = &self.core;
        *self.deadline.get_or_insert_with(|| core.next_wake_up())
    }

    /// When the flush that has waited longest for a lease waits no more.
    fn lease_due(&self) -> Option<Time> {
        let (_, _, since) = self.lease_awaited.first()?;
        Some(since.after(self.core.engine()?.config().drain_timeout))
    }

    fn start_io(&mut self, io: Io) {
        if self.window_hook.as_ref().is_some_and(WindowHook::is_of_store)
            && let Some(superblock) = superblock_in(&io)
        {
            self.superblock_under_way = Some((io.id, superblock.generation));
        }
        let core = &self.core;
        let after = match &mut self.label {
            Some(label) if io.device == Device::CacheDisk => {
                label.starts(io, || core.holds_newer_data())
            }
            _ => After::Start(io),
        };
        self.go_on(after);
    }

    /// A detach has ended. If the cache-disk could not be marked, the label of the data-disk says
    /// at least that it stands on its own.
    pub(crate) fn label_without_cache(&mut self) {
        if self.core.cache_disk_failure().is_none() {
            return;
        }
        let (Some(label), DataSide::Disk(disk)) = (&mut self.label, &self.disks.data) else {
            return;
        };
        let (offset, bytes) = label.detached();
        if let Err(error) = disk.file().write_at(offset, &bytes) {
            eprintln!(
                "dcd: the label of the data-disk cannot be written: {error}; `dcd create --labelled --force` takes it as it is"
            );
        }
    }

    /// Takes events of clients and sends replies until there is nothing more to do at once.
    fn serve_clients(&mut self) {
        loop {
            while let Some((client, event)) = self.nbd.poll_event() {
                self.client_event(client, event);
            }
            if !self.nbd.has_touched() {
                return;
            }
            self.nbd.flush(&mut self.ring);
        }
    }

    fn client_event(&mut self, client: ClientKey, event: Event) {
        match event {
            Event::Request { handle, operation, fua } => {
                // Who may outlive this machine waits until it is durable here, and no longer.
                let waits = self.waits_for_window(&operation, fua);
                let fua = fua || changes_data(&operation) && self.nbd.is_durable(client);
                self.start_asked(operation, fua, self.now, Origin::Nbd { client, handle }, waits);
            }
            Event::BlockStatus { handle, range, pieces_max } => {
                let pieces = if self.is_closing || !self.core.check_range(range) {
                    vec![(range.blocks, false)]
                } else {
                    self.core.block_status(range, pieces_max)
                };
                self.nbd.complete_block_status(client, handle, &pieces);
            }
            Event::Closed(_) => {}
        }
    }

    /// Gives a request to the core, if it is one that may be given.
    /// A request of a client.
    fn start_request(&mut self, operation: Operation, fua: bool, received: Time, origin: Origin) {
        let waits = self.waits_for_window(&operation, fua);
        self.start_asked(operation, fua, received, origin, waits);
    }

    fn waits_for_window(&self, operation: &Operation, fua: bool) -> bool {
        self.flushes_wait_for_windows && (fua || matches!(operation, Operation::Flush))
    }

    fn start_asked(
        &mut self,
        operation: Operation,
        fua: bool,
        received: Time,
        origin: Origin,
        waits_for_window: bool,
    ) {
        let kind = RequestKind::of(&operation);
        let asked = match self.recorders.is_empty() {
            true => None,
            false => {
                self.requests_recorded += 1;
                AskedRequest::of(&operation, fua, self.requests_recorded)
            }
        };
        let (operation, window) = match operation {
            // All that was acknowledged is in a window that was kept, or there is an error.
            Operation::Flush if waits_for_window => (Operation::Drain, WaitsForWindow::Now(None)),
            other if waits_for_window => (other, WaitsForWindow::Then),
            other => (other, WaitsForWindow::No),
        };
        self.start(Pending { origin, kind, received, ticket: None, asked, window }, operation, fua);
    }

    fn start(&mut self, mut pending: Pending, operation: Operation, fua: bool) {
        let checked = if self.is_closing {
            Err(Err(RequestError::ShuttingDown))
        } else {
            self.check(&operation)
        };
        if let Err(result) = checked {
            let buffer = match operation {
                Operation::Write { data, .. } => Some(data),
                // Nothing was read: what is in there is an earlier request's.
                Operation::Read { mut buffer, .. } => {
                    buffer.set_len(0);
                    Some(buffer)
                }
                _ => match &mut pending.window {
                    WaitsForWindow::Now(buffer) => buffer.take(),
                    WaitsForWindow::Then | WaitsForWindow::No => None,
                },
            };
            return self.answer(pending, Reply { id: RequestId(0), result, buffer, answer: None });
        }
        let index = self.keep_pending(pending);
        let is_missing = self.memory.as_ref().is_some_and(MemoryWatch::is_missing);
        let fua = fua || is_missing && changes_data(&operation);
        let request = Request { id: RequestId(index.into()), operation, fua };
        self.give(Input::Request(request));
    }

    /// Frontends check ranges too; this is the last line before the core, which asserts them. An
    /// error is the answer: a request for nothing has succeeded.
    fn check(&self, operation: &Operation) -> Result<(), Result<(), RequestError>> {
        let range = match operation {
            Operation::Read { range, .. }
            | Operation::WriteZeroes { range, .. }
            | Operation::Discard { range } => *range,
            Operation::Write { start, data } => {
                if !data.len().is_multiple_of(dcd_engine::units::BLOCK_SIZE as usize) {
                    return Err(Err(RequestError::Io));
                }
                let blocks = data.len() as u64 / dcd_engine::units::BLOCK_SIZE;
                LbaRange { start: *start, blocks }
            }
            _ => return Ok(()),
        };
        // The end must be a number before anyone computes with it.
        if range.start.0.checked_add(range.blocks).is_none() || !self.core.check_range(range) {
            return Err(Err(RequestError::Io));
        }
        if range.blocks == 0 { Err(Ok(())) } else { Ok(()) }
    }

    fn reply(&mut self, mut reply: Reply) {
        let index = reply.id.0 as usize;
        let pending = self.pending.get_mut(index).and_then(Option::take);
        let mut pending = pending.expect("the core answers each request once");
        self.pending_free.push(index as u32);
        match std::mem::replace(&mut pending.window, WaitsForWindow::No) {
            WaitsForWindow::Then if reply.result.is_ok() => {
                pending.window = WaitsForWindow::Now(reply.buffer);
                return self.window_awaited.push(pending);
            }
            WaitsForWindow::Now(buffer) => {
                let is_refused = |error: &RequestError| {
                    !matches!(error, RequestError::Io | RequestError::ShuttingDown)
                };
                if reply.result.as_ref().is_err_and(is_refused) {
                    // Whoever flushes knows no other reasons.
                    reply.result = Err(RequestError::Io);
                }
                reply.buffer = buffer;
                if reply.result.is_ok() && !self.has_lease() {
                    self.lease_awaited.push((pending, reply, self.now));
                    // It may be lost, and then nothing is waited for.
                    return self.look_at_lease();
                }
            }
            WaitsForWindow::Then | WaitsForWindow::No => {}
        }
        self.finish(pending, reply);
    }

    /// That on the object store, if there is one.
    fn lease(&self) -> Option<&Lease> {
        self.window_hook.as_ref().and_then(WindowHook::lease)
    }

    /// How the object store stands, if there is one.
    pub(crate) fn store_report(&self) -> Option<StoreReport> {
        self.window_hook.as_ref().and_then(WindowHook::store_report)
    }

    /// Whether no other machine can have taken the object store over, if there is one.
    fn has_lease(&self) -> bool {
        self.lease().is_none_or(Lease::is_alive)
    }

    /// Answers flushes that wait for the lease: when it was renewed, or never will be, or not
    /// within the time of a drain.
    fn look_at_lease(&mut self) {
        let (has_lease, is_lost) = (self.has_lease(), self.lease().is_some_and(Lease::is_lost));
        let patience =
            self.core.engine().map_or(dcd_engine::Duration(0), |it| it.config().drain_timeout);
        for (pending, mut reply, since) in std::mem::take(&mut self.lease_awaited) {
            if !has_lease {
                if !is_lost && self.now.since(since) < patience {
                    self.lease_awaited.push((pending, reply, since));
                    continue;
                }
                reply.result = Err(RequestError::Io);
            }
            self.finish(pending, reply);
        }
    }

    fn finish(&mut self, pending: Pending, reply: Reply) {
        if pending.ticket.is_some() {
            self.note_size();
        }
        let Pending { kind, received, asked, .. } = pending;
        self.answered.push(Answered { kind, received, asked });
        self.answer(pending, reply);
    }

    /// A place for a request, which is its id.
    fn keep_pending(&mut self, pending: Pending) -> u32 {
        let index = match self.pending_free.pop() {
            Some(index) => index,
            None => {
                self.pending.push(None);
                u32::try_from(self.pending.len() - 1).expect("fewer than 2^32 requests")
            }
        };
        self.pending[index as usize] = Some(pending);
        index
    }

    fn answer(&mut self, pending: Pending, reply: Reply) {
        match pending.origin {
            Origin::Nbd { client, handle } => self.nbd.complete(client, handle, reply),
            Origin::Ublk { tag } => {
                if let Some(ublk) = &mut self.ublk {
                    ublk.complete(tag, reply, &mut self.ring);
                    self.drop_ublk_if_over();
                }
            }
            Origin::Thread(completion) => completion.complete(reply),
        }
    }

    /// All recorded requests that came before this are answered and in the rings.
    fn recorded_until(&self) -> Time {
        if self.recorders.is_empty() {
            return self.now;
        }
        let under_way = self.pending.iter().flatten().filter(|pending| pending.asked.is_some());
        let under_way = under_way.map(|pending| pending.received);
        let answered = self.answered.iter().map(|answered| answered.received);
        under_way.chain(answered).min().unwrap_or(self.now).min(self.now)
    }

    fn network_disks(&self) -> Vec<(Device, String, NetworkStanding)> {
        let standing = |disk: &Disk| {
            let name = disk.file().path().display().to_string();
            Some((disk.device(), name, disk.network_standing()?))
        };
        self.disks.iter().filter_map(standing).collect()
    }

    fn take_messages(&mut self) {
        self.mailbox.heard();
        while let Some(message) = self.mailbox.next() {
            match message {
                Message::Request { operation, fua, received, completion } => {
                    self.start_request(operation, fua, received, Origin::Thread(completion));
                }
                Message::SetWindows { place, disk, windows, answer } => {
                    let _ = answer.send(self.set_windows(place, &disk, windows));
                }
                Message::Query(function) => function(&Snapshot {
                    core: &self.core,
                    now: self.now,
                    response_times: &self.response_times,
                    nbd_connections: self.nbd.connected(),
                    nbd: &self.nbd,
                    recorders: self.recorders.len(),
                    recorded_until: self.recorded_until(),
                    memory: self.memory.as_ref().map(MemoryWatch::report),
                    names_lost: self.names.lost(),
                    cache_side: self.disks.cache.as_ref(),
                    network_disks: self.network_disks(),
                    check_size: &|bytes| self.check_size(bytes),
                    window_hook: self.window_hook.as_ref().map(WindowHook::news),
                    store: self.store_report(),
                    failed_nvram: self.nvram_changes.failed(),
                    nvram_disk: self
                        .disks
                        .nvram
                        .as_ref()
                        .and_then(|disk| disk.file().path().to_str()),
                }),
                Message::Configure { config, answer } => {
                    let _ = answer.send(self.configure(&config));
                }
                Message::AddLeg { leg, answer } => {
                    let _ = answer.send(self.add_leg(*leg));
                }
                Message::ReplaceMember { new, answer } => {
                    let _ = answer.send(self.replace_member(*new));
                }
                Message::RemoveSpare { disk, answer } => {
                    let removed = self.core.remove_spare(disk);
                    self.give(Input::Timeout);
                    let _ = answer.send(removed);
                }
                Message::GrowVolume { set, logical_bytes, answer } => {
                    let _ = answer.send(self.grow_volume(set, logical_bytes));
                }
                Message::Record(ring) => self.recorders.push(ring),
                Message::StopRecording(ring) => {
                    self.recorders.retain(|known| !Arc::ptr_eq(known, &ring));
                }
                Message::Drain { ticket, received, completion } => {
                    self.start_drain(ticket, received, completion);
                }
                Message::CancelDrain(ticket) => self.cancel_drain(ticket),
                Message::Resize { ticket, wanted, received, completion } => {
                    let pending = Pending::of_ticket(ticket, received, completion);
                    match self.resize_operation(wanted) {
                        Ok(operation) => self.start(pending, operation, false),
                        Err(error) => {
                            let result = Err(error);
                            let id = RequestId(0);
                            self.answer(pending, Reply { id, result, buffer: None, answer: None });
                        }
                    }
                }
                Message::CancelResize(ticket) => {
                    if let Some(resize) = self.request_of(ticket) {
                        let nobody = Completion::new(|_| ());
                        self.request(Operation::CancelResize { resize }, nobody);
                    }
                }
                Message::AddNvram { ticket, new, received, completion } => {
                    let pending = Pending::of_ticket(ticket, received, completion);
                    self.start_nvram(new, pending);
                }
                Message::RunAs { ticket, operation, received, completion } => {
                    let pending = Pending::of_ticket(ticket, received, completion);
                    self.start(pending, operation, false);
                }
                Message::CancelNvramChange(ticket) => self.cancel_nvram_change(ticket),
                Message::Stop { kind, terms, completion } => {
                    let completion = Some(completion);
                    self.stop_requests.push_back(StopRequest::Stop { kind, terms, completion });
                }
                Message::ServeUblk { end, io_bytes_max } => {
                    self.ublk = Some(UblkServer::start(*end, io_bytes_max, &mut self.ring));
                }
                Message::CancelDetach => self.stop_requests.push_back(StopRequest::CancelDetach),
                Message::WindowKept { window, is_kept } if !self.is_closing => {
                    self.give(Input::WindowKept { window, is_kept });
                }
                Message::LeaseNews if !self.is_closing => self.look_at_lease(),
                Message::WindowKept { .. } | Message::LeaseNews | Message::Wake => {}
            }
        }
        self.ring.poll(Key::Mailbox, Rc::new(self.mailbox.event()), PollFlags::IN);
    }

    fn take_signals(&mut self) {
        let Some(signals) = &self.signals else { return };
        while let Some(signal) = signals.take() {
            let kind = match signal {
                Signal::Stop => StopKind::Shutdown,
                Signal::Restart => StopKind::Restart,
                Signal::ReadSettings => {
                    self.settings_are_wanted = true;
                    continue;
                }
            };
            let terms = DetachTerms::default();
            self.stop_requests.push_back(StopRequest::Stop { kind, terms, completion: None });
        }
        self.ring.poll(Key::Signals, signals.clone(), PollFlags::IN);
    }

    /// Ends everything: sends the last replies, disconnects clients, empties the ring. Whoever
    /// still waits is told that the device shuts down. Gives the core back; whether nothing is
    /// under way any more on its disks.
    pub fn close(mut self) -> (C, bool) {
        self.is_closing = true;
        // Nobody will know any more whether the store is ours.
        for (pending, mut reply, _) in std::mem::take(&mut self.lease_awaited) {
            reply.result = Err(RequestError::Io);
            self.finish(pending, reply);
        }
        match (&self.window_hook, self.core.is_detached()) {
            (Some(hook), true) => hook.release(),
            (Some(hook), false) => hook.rest(),
            (None, _) => {}
        }
        // First: the hook reads the data-disk, whose locks go with the disks.
        self.window_hook = None;
        let until = std::time::Instant::now() + CLOSE_PATIENCE;
        while !self.nbd.is_quiet() && std::time::Instant::now() < until {
            if self.turn(Some(std::time::Duration::from_millis(10))).is_err() {
                break;
            }
        }
        self.nbd.stop_listening();
        self.nbd.disconnect_all();
        self.pending.clear();
        let is_empty = self.ring.close(CLOSE_PATIENCE);
        if let Some(memory) = self.memory {
            // An I/O that hangs may still read from it.
            let last_use = match self.core.memory_use() {
                MemoryUse::Over if !is_empty => MemoryUse::InUse,
                last_use => last_use,
            };
            memory.end(last_use);
        }
        (self.core, is_empty)
    }
}

fn changes_data(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::Write { .. } | Operation::WriteZeroes { .. } | Operation::Discard { .. }
    )
}
