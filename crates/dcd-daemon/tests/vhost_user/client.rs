//! The other side: a front-end with a guest, who share memory with the server and drive one
//! virtio-blk queue or several.
//!
//! The guest's memory is one region. Each queue has 64 descriptors, of which a request takes three:
//! head, data, status.

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use dcd_daemon::frontend::vhost_user::config::feature;
use dcd_daemon::frontend::vhost_user::memory::SharedMemory;
use dcd_daemon::frontend::vhost_user::message::{protocol_feature, request};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

pub const GUEST_START: u64 = 1 << 20;
pub const USER_START: u64 = 0x7f00_0000_0000;
pub const MEMORY_BYTES: u64 = 16 << 20;
pub const QUEUE_SIZE: u16 = 64;
/// Data of one request.
pub const SLOT_BYTES: usize = 64 << 10;
pub const RING_BYTES: usize = 64 << 10;
const AVAILABLE: usize = 16 << 10;
const USED: usize = 32 << 10;
/// Heads and statuses.
pub const CONTROL: usize = 48 << 10;
const DATA: usize = 1 << 20;
const QUEUES_WITH_DATA: usize = 2;
const SLOTS: usize = 21;
const PATIENCE: Duration = Duration::from_secs(60);

/// Memory of the guest and what its driver knows, which outlive connections.
pub struct Guest {
    pub memory: SharedMemory,
    pub file: OwnedFd,
    pub queues: Vec<GuestQueue>,
}

pub struct GuestQueue {
    base: usize,
    index: usize,
    next_available: u16,
    next_used: u16,
    /// By slot: how many bytes are awaited.
    outstanding: Vec<Option<usize>>,
    kick: OwnedFd,
    call: OwnedFd,
}

/// A request that is done.
#[derive(Debug, PartialEq)]
pub struct Done {
    pub slot: usize,
    pub status: u8,
    pub len: u32,
    pub data: Vec<u8>,
}

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

impl GuestQueue {
    pub fn kick(&self) -> BorrowedFd<'_> {
        self.kick.as_fd()
    }
}

impl Guest {
    pub fn new(queues: usize) -> Guest {
        assert!(queues <= QUEUES_WITH_DATA);
        let (memory, file) = SharedMemory::new("guest", MEMORY_BYTES).unwrap();
        let queue = |index| GuestQueue {
            base: index * RING_BYTES,
            index,
            next_available: 0,
            next_used: 0,
            outstanding: vec![None; SLOTS],
            kick: event(),
            call: event(),
        };
        Guest { memory, file, queues: (0..queues).map(queue).collect() }
    }

    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(self.memory.write(offset, bytes));
    }

    pub fn read<const N: usize>(&self, offset: usize) -> [u8; N] {
        let mut bytes = [0; N];
        assert!(self.memory.read(offset, &mut bytes));
        bytes
    }

    fn u16(&self, offset: usize) -> u16 {
        fence(Ordering::SeqCst);
        let value = u16::from_le_bytes(self.read(offset));
        fence(Ordering::SeqCst);
        value
    }

    /// Writes a descriptor of a queue.
    pub fn descriptor(
        &self,
        queue: usize,
        index: u16,
        address: u64,
        len: u32,
        flags: u16,
        next: u16,
    ) {
        let mut bytes = address.to_le_bytes().to_vec();
        bytes.extend(len.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend(next.to_le_bytes());
        self.write(self.queues[queue].base + 16 * usize::from(index), &bytes);
    }

    /// Makes a head available, whatever it is.
    pub fn make_available(&mut self, queue: usize, head: u16) {
        let queue = &mut self.queues[queue];
        let place = queue.base + AVAILABLE + 4 + 2 * usize::from(queue.next_available % QUEUE_SIZE);
        queue.next_available = queue.next_available.wrapping_add(1);
        let (base, next, kick) = (queue.base, queue.next_available, queue.kick.as_fd());
        assert!(self.memory.write(place, &head.to_le_bytes()));
        fence(Ordering::SeqCst);
        assert!(self.memory.write(base + AVAILABLE + 2, &next.to_le_bytes()));
        let _ = rustix::io::write(kick, &1u64.to_ne_bytes());
    }

    /// Has a queue begin at another index than 0.
    pub fn begin_at(&mut self, queue: usize, index: u16) {
        let base = self.queues[queue].base;
        self.write(base + AVAILABLE + 2, &index.to_le_bytes());
        self.write(base + USED + 2, &index.to_le_bytes());
        (self.queues[queue].next_available, self.queues[queue].next_used) = (index, index);
    }

    /// Says that so many chains are available, whatever they are.
    pub fn pretend_available(&mut self, queue: usize, count: u16) {
        let next = self.queues[queue].next_available.wrapping_add(count);
        self.write(self.queues[queue].base + AVAILABLE + 2, &next.to_le_bytes());
        let _ = rustix::io::write(&self.queues[queue].kick, &1u64.to_ne_bytes());
    }

    /// A slot will be done that was not asked for by [`Guest::ask`].
    pub fn expect(&mut self, queue: usize, slot: usize) {
        self.queues[queue].outstanding[slot] = Some(0);
    }

    pub fn data_at(queue: usize, slot: usize) -> usize {
        DATA + (queue * SLOTS + slot) * SLOT_BYTES
    }

    pub fn guest_address(offset: usize) -> u64 {
        GUEST_START + offset as u64
    }

    /// Asks for something; its slot.
    pub fn ask(
        &mut self,
        queue: usize,
        kind: u32,
        sector: u64,
        out: &[u8],
        awaited: usize,
    ) -> usize {
        let free = self.queues[queue].outstanding.iter().position(Option::is_none);
        let slot = free.expect("a free slot");
        self.queues[queue].outstanding[slot] = Some(awaited);
        let control = self.queues[queue].base + CONTROL + 32 * slot;
        let data = Guest::data_at(queue, slot);
        let mut head = kind.to_le_bytes().to_vec();
        head.extend([0; 4]);
        head.extend(sector.to_le_bytes());
        self.write(control, &head);
        self.write(control + 16, &[0xff]);
        self.write(data, &vec![0; awaited]);
        self.write(data, out);
        let first = 3 * slot as u16;
        let at = Guest::guest_address;
        let len = out.len().max(awaited) as u32;
        if len > 0 {
            self.descriptor(queue, first, at(control), 16, 1, first + 1);
            let flags = if awaited > 0 { 3 } else { 1 };
            self.descriptor(queue, first + 1, at(data), len, flags, first + 2);
        } else {
            self.descriptor(queue, first, at(control), 16, 1, first + 2);
        }
        self.descriptor(queue, first + 2, at(control + 16), 1, 2, 0);
        self.make_available(queue, first);
        slot
    }

    /// How many are done, by the ring itself.
    pub fn used(&self, queue: usize) -> u16 {
        self.u16(self.queues[queue].base + USED + 2)
    }

    /// What is done, if anything. Each request is done once.
    pub fn poll(&mut self, queue: usize) -> Option<Done> {
        let base = self.queues[queue].base;
        if self.used(queue) == self.queues[queue].next_used {
            return None;
        }
        let place = base + USED + 4 + 8 * usize::from(self.queues[queue].next_used % QUEUE_SIZE);
        let head = u32::from_le_bytes(self.read(place));
        let len = u32::from_le_bytes(self.read(place + 4));
        self.queues[queue].next_used = self.queues[queue].next_used.wrapping_add(1);
        assert!(head.is_multiple_of(3), "head {head}");
        let slot = head as usize / 3;
        let awaited = self.queues[queue].outstanding[slot].take();
        let awaited = awaited.unwrap_or_else(|| panic!("slot {slot} is done twice"));
        let mut data = vec![0; awaited];
        assert!(self.memory.read(Guest::data_at(queue, slot), &mut data));
        let [status] = self.read(base + CONTROL + 32 * slot + 16);
        Some(Done { slot, status, len, data })
    }

    /// Waits for the next that is done, as a guest does: for the signal.
    pub fn next(&mut self, queue: usize) -> Done {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(done) = self.poll(queue) {
                return done;
            }
            // Wake me for the next; it may have come meanwhile.
            let GuestQueue { base, next_used, .. } = self.queues[queue];
            self.write(
                base + AVAILABLE + 4 + 2 * usize::from(QUEUE_SIZE),
                &next_used.to_le_bytes(),
            );
            if let Some(done) = self.poll(queue) {
                return done;
            }
            let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
            let call = self.queues[queue].call.as_fd();
            poll(&mut [PollFd::from_borrowed_fd(call, PollFlags::IN)], Some(&patience)).unwrap();
            let _ = rustix::io::read(call, &mut [0; 8]);
            assert!(Instant::now() < until, "nothing is done");
        }
    }

    pub fn outstanding(&self, queue: usize) -> usize {
        self.queues[queue].outstanding.iter().flatten().count()
    }

    /// Runs one request.
    pub fn run(&mut self, kind: u32, sector: u64, out: &[u8], awaited: usize) -> Done {
        let slot = self.ask(0, kind, sector, out, awaited);
        let done = self.next(0);
        assert_eq!(done.slot, slot);
        done
    }
}

/// The file of a record of requests, and what the server said of it.
pub type Record = (Arc<OwnedFd>, Vec<u8>);

/// A connection of the front-end.
pub struct FrontEnd {
    pub stream: UnixStream,
    pub features: u64,
    /// The record that the server made.
    pub inflight: Option<Record>,
    pub channel: Option<UnixStream>,
}

pub const FEATURES: u64 = feature::VERSION_1
    | feature::FLUSH
    | feature::CONFIG_WCE
    | feature::INDIRECT_DESC
    | feature::EVENT_IDX
    | feature::PROTOCOL_FEATURES;

impl FrontEnd {
    pub fn connect(path: &Path) -> FrontEnd {
        let until = Instant::now() + PATIENCE;
        let stream = loop {
            match UnixStream::connect(path) {
                Ok(stream) => break stream,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        FrontEnd { stream, features: FEATURES, inflight: None, channel: None }
    }

    /// After the one before has hung up: refused until the server has seen that, so tries until it
    /// is answered.
    pub fn connect_next(path: &Path) -> FrontEnd {
        let until = Instant::now() + PATIENCE;
        loop {
            let mut next = FrontEnd::connect(path);
            next.send(request::GET_FEATURES, 0, &[], &[]);
            if next.reply(request::GET_FEATURES).is_some() {
                return next;
            }
            assert!(Instant::now() < until, "nobody is served");
        }
    }

    /// Sends anything.
    pub fn send_raw(&self, bytes: &[u8], files: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(32))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(files)));
        }
        let sent = sendmsg(&self.stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
        // A server that has hung up says so at the next answer.
        if let Ok(sent) = sent {
            assert_eq!(sent, bytes.len());
        }
    }

    pub fn send(&self, number: u32, flags: u32, payload: &[u8], files: &[BorrowedFd<'_>]) {
        let mut bytes = Vec::new();
        for field in [number, 1 | flags, payload.len() as u32] {
            bytes.extend(field.to_ne_bytes());
        }
        bytes.extend(payload);
        self.send_raw(&bytes, files);
    }

    /// The answer to a request; `None`: the server has hung up.
    pub fn reply(&mut self, number: u32) -> Option<Vec<u8>> {
        let mut header = [0; 12];
        self.stream.read_exact(&mut header).ok()?;
        let field = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().unwrap());
        assert_eq!((field(0), field(4)), (number, 5));
        let mut payload = vec![0; field(8) as usize];
        self.stream.read_exact(&mut payload).ok()?;
        Some(payload)
    }

    /// Sends, and waits until it is done; whether it was.
    pub fn set(&mut self, number: u32, payload: &[u8], files: &[BorrowedFd<'_>]) -> bool {
        self.send(number, 8, payload, files);
        self.reply(number).is_some_and(|payload| payload == [0; 8])
    }

    pub fn get(&mut self, number: u32, payload: &[u8]) -> Vec<u8> {
        self.send(number, 0, payload, &[]);
        self.reply(number).expect("an answer")
    }

    pub fn get_number(&mut self, number: u32) -> u64 {
        u64::from_ne_bytes(self.get(number, &[]).try_into().unwrap())
    }

    pub fn set_ring(&mut self, number: u32, queue: usize, value: u32) -> bool {
        self.set(number, &pair(queue as u32, value), &[])
    }

    /// What every front-end says first.
    pub fn negotiate(&mut self) {
        let offered = self.get_number(request::GET_FEATURES);
        assert_eq!(self.features & !offered, 0, "{offered:#x}");
        let protocol = self.get_number(request::GET_PROTOCOL_FEATURES);
        assert_ne!(protocol & protocol_feature::REPLY_ACK, 0);
        self.send(request::SET_PROTOCOL_FEATURES, 0, &protocol.to_ne_bytes(), &[]);
        assert!(self.set(request::SET_OWNER, &[], &[]));
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(PATIENCE)).unwrap();
        assert!(self.set(request::SET_BACKEND_REQ_FD, &[], &[theirs.as_fd()]));
        self.channel = Some(ours);
        assert!(self.set(request::SET_FEATURES, &self.features.to_ne_bytes(), &[]));
    }

    pub fn config(&mut self) -> Vec<u8> {
        let mut payload = pair(0, 60);
        payload.extend([0; 4 + 60]);
        self.get(request::GET_CONFIG, &payload)[12..].to_vec()
    }

    pub fn set_write_cache(&mut self, is_on: bool) -> bool {
        let mut payload = pair(32, 1);
        payload.extend([0; 4]);
        payload.push(u8::from(is_on));
        self.set(request::SET_CONFIG, &payload, &[])
    }

    pub fn share_memory(&mut self, guest: &Guest) -> bool {
        let payload = table(&[[GUEST_START, MEMORY_BYTES, USER_START, 0]]);
        self.set(request::SET_MEM_TABLE, &payload, &[guest.file.as_fd()])
    }

    /// Has the server make a record of requests, or gives it the one that is kept.
    pub fn share_record(&mut self, queues: u16) -> bool {
        if self.inflight.is_none() {
            let mut wanted = vec![0; 16];
            wanted.extend(queues.to_ne_bytes());
            wanted.extend(QUEUE_SIZE.to_ne_bytes());
            wanted.extend([0; 4]);
            self.send(request::GET_INFLIGHT_FD, 0, &wanted, &[]);
            let (bytes, file) = receive_file(&self.stream);
            self.inflight = Some((Arc::new(file), bytes[12..].to_vec()));
        }
        let (file, said) = self.inflight.clone().unwrap();
        self.set(request::SET_INFLIGHT_FD, &said, &[file.as_fd()])
    }

    /// Starts all queues.
    pub fn start(&mut self, guest: &Guest) {
        for index in 0..guest.queues.len() {
            self.start_queue(guest, index);
        }
    }

    pub fn start_queue(&mut self, guest: &Guest, index: usize) {
        let queue = &guest.queues[index];
        assert!(self.set_ring(request::SET_VRING_NUM, index, QUEUE_SIZE.into()));
        assert!(self.set_ring(request::SET_VRING_BASE, index, queue.next_used.into()));
        assert!(self.set(request::SET_VRING_ADDR, &addresses(index, queue.base), &[]));
        let number = (queue.index as u64).to_ne_bytes();
        assert!(self.set(request::SET_VRING_KICK, &number, &[queue.kick.as_fd()]));
        assert!(self.set(request::SET_VRING_CALL, &number, &[queue.call.as_fd()]));
        assert!(self.set_ring(request::SET_VRING_ENABLE, index, 1));
    }

    /// Stops a queue; where it stands.
    pub fn stop_queue(&mut self, index: usize) -> u32 {
        let payload = self.get(request::GET_VRING_BASE, &pair(index as u32, 0));
        u32::from_ne_bytes(payload[4..8].try_into().unwrap())
    }

    /// Everything up to queues that run.
    pub fn set_up(path: &Path, guest: &Guest) -> FrontEnd {
        let mut front_end = FrontEnd::connect(path);
        front_end.negotiate();
        front_end.config();
        assert!(front_end.share_record(guest.queues.len() as u16));
        assert!(front_end.share_memory(guest));
        front_end.start(guest);
        front_end
    }

    /// The server ends the connection.
    pub fn hang_up_by_server(mut self) {
        let mut rest = Vec::new();
        let _ = self.stream.read_to_end(&mut rest);
        assert!(rest.is_empty(), "an end");
    }

    /// Ends the connection, and waits until the server has let go of what it had of this side. What
    /// is kept.
    pub fn hang_up(self) -> (u64, Option<Record>) {
        let FrontEnd { stream, features, inflight, channel } = self;
        drop(stream);
        if let Some(mut channel) = channel {
            let mut news = Vec::new();
            channel.read_to_end(&mut news).expect("its end");
        }
        (features, inflight)
    }

    /// As QEMU does it after the server has gone: with the record, and without reading the
    /// configuration.
    pub fn go_on(path: &Path, guest: &Guest, before: FrontEnd) -> FrontEnd {
        let (features, inflight) = before.hang_up();
        let mut front_end = FrontEnd::connect(path);
        front_end.inflight = inflight;
        front_end.features = features;
        front_end.negotiate();
        if front_end.inflight.is_some() {
            assert!(front_end.share_record(guest.queues.len() as u16));
        }
        assert!(front_end.share_memory(guest));
        front_end.start(guest);
        front_end
    }
}

pub fn pair(first: u32, second: u32) -> Vec<u8> {
    [first.to_ne_bytes(), second.to_ne_bytes()].concat()
}

/// Guest address, size, front-end's address, offset of each region.
pub fn table(regions: &[[u64; 4]]) -> Vec<u8> {
    let mut payload = pair(regions.len() as u32, 0);
    payload.extend(regions.iter().flatten().flat_map(|number| number.to_ne_bytes()));
    payload
}

fn addresses(index: usize, base: usize) -> Vec<u8> {
    let user = |offset: usize| USER_START + (base + offset) as u64;
    ring_addresses(index, user(0), user(AVAILABLE), user(USED))
}

pub fn ring_addresses(index: usize, descriptors: u64, available: u64, used: u64) -> Vec<u8> {
    let mut payload = pair(index as u32, 0);
    for number in [descriptors, used, available, 0] {
        payload.extend(number.to_ne_bytes());
    }
    payload
}

fn receive_file(stream: &UnixStream) -> (Vec<u8>, OwnedFd) {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
    let mut bytes = vec![0; 36];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [std::io::IoSliceMut::new(&mut bytes)];
    let received = recvmsg(stream, &mut parts, &mut control, RecvFlags::WAITALL).unwrap();
    assert_eq!(received.bytes, 36);
    let mut files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    let file = files.next().expect("a file with the answer");
    drop(files);
    (bytes, file)
}
