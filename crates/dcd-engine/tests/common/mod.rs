//! A driver for conversations with the engine: two disks in memory, a clock that only the test
//! moves, and I/Os that end only when the test says so, in the order it says.
//!
//! ```text
//! let mut d = Driver::new();
//! d.write(7, 1);                                   a whole cache line of ones
//! d.hold(|io| is_flush(io, Device::CacheDisk));    these I/Os do not end by themselves
//! let flush = d.flush();
//! d.finish_all();                                  all others do
//! assert!(!d.is_answered(flush));
//! d.power_cut();                                   what was not flushed is gone
//! d.reopen();
//! ```
//! Every input is followed by `check_invariants`; a second reply to a request panics.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::BTreeMap;
use std::ops::Range;

use dcd_engine::config::ConfigError;
use dcd_engine::create::{CreateOptions, create};
use dcd_engine::format::checkpoint::Checkpoint;
use dcd_engine::format::nvram::NvramIdentity;
use dcd_engine::stats::Status;
use dcd_engine::{
    AckMode, Buffer, DataDiskInfo, DestagePolicyKind, Device, Duration, Engine, EngineConfig,
    Geometry, Input, Io, IoData, IoError, IoId, IoOperation, Lba, LbaRange, OpenError, Operation,
    Output, Phase, Reply, Request, RequestError, RequestId, Superblock, Time, Uuid,
};
use dcd_testkit::{Bytes, bytes_of, ended, perform, range_of, read_into_used};

/// Bytes in a cache line and in a slot.
pub const LINE: usize = 4096;
/// Data slots in a segment of 64 KiB that is filled by one record.
pub const LINES_PER_SEGMENT: u64 = 15;
/// What a start waits between two parts of what it does.
const PAUSE_OF_A_START: Duration = Duration::from_micros(1);

/// What a disk can be asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Read,
    Write,
    WriteZeroes,
    Flush,
}

/// An I/O as the engine started it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub id: IoId,
    pub device: Device,
    pub kind: Kind,
    pub offset: u64,
    pub length: u64,
    pub fua: bool,
    pub may_unmap: bool,
    pub at: Time,
}

impl Seen {
    fn of(io: &Io, at: Time) -> Seen {
        let (kind, fua, may_unmap) = match io.operation {
            IoOperation::Read { .. } => (Kind::Read, false, false),
            IoOperation::Write { fua, .. } => (Kind::Write, fua, false),
            IoOperation::WriteZeroes { may_unmap, .. } => (Kind::WriteZeroes, false, may_unmap),
            IoOperation::Flush => (Kind::Flush, false, false),
        };
        let Range { start: offset, end } = range_of(&io.operation);
        let length = end - offset;
        Seen { id: io.id, device: io.device, kind, offset, length, fua, may_unmap, at }
    }

    pub fn is(&self, device: Device, kind: Kind) -> bool {
        self.device == device && self.kind == kind
    }

    /// Whether it touches this cache line of the data-disk.
    pub fn touches_line(&self, line: u64) -> bool {
        let at = line * LINE as u64;
        self.device == Device::DataDisk
            && self.offset < at + LINE as u64
            && at < self.offset + self.length
    }
}

/// A disk that keeps what it was told only after a flush.
pub struct Disk {
    /// What a read returns.
    pub current: Vec<u8>,
    /// What survives a power cut.
    pub durable: Vec<u8>,
    /// Writes since the last flush, in order of completion.
    volatile: Vec<(usize, Vec<u8>)>,
}

impl Disk {
    fn new(size: u64) -> Disk {
        let size = size as usize;
        Disk { current: vec![0; size], durable: vec![0; size], volatile: Vec::new() }
    }

    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let at = offset as usize;
        self.current[at..at + bytes.len()].copy_from_slice(bytes);
        self.volatile.push((at, bytes.to_vec()));
    }

    /// Changes what is on the medium, behind everyone's back.
    pub fn rot(&mut self, offset: u64, bytes: &[u8]) {
        let at = offset as usize;
        self.current[at..at + bytes.len()].copy_from_slice(bytes);
        self.durable[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Flips a bit of the medium.
    pub fn flip(&mut self, offset: u64) {
        let byte = self.current[offset as usize] ^ 1;
        self.rot(offset, &[byte]);
    }

    /// It has so many bytes from now on.
    pub fn set_length(&mut self, bytes: u64) {
        self.current.resize(bytes as usize, 0);
        self.durable.resize(bytes as usize, 0);
    }

    pub fn flush(&mut self) {
        for (at, bytes) in self.volatile.drain(..) {
            self.durable[at..at + bytes.len()].copy_from_slice(&bytes);
        }
    }

    /// Of the writes since the last flush, those survive that `keeps` says, by their number.
    pub fn power_cut(&mut self, keeps: impl Fn(usize) -> bool) {
        for (index, (at, bytes)) in std::mem::take(&mut self.volatile).into_iter().enumerate() {
            if keeps(index) {
                self.durable[at..at + bytes.len()].copy_from_slice(&bytes);
            }
        }
        self.current.copy_from_slice(&self.durable);
    }

    /// What was written since the last flush will never be durable, whatever is flushed: as if the
    /// kernel could not write its dirty pages and now calls them clean.
    pub fn drop_unflushed(&mut self) {
        self.volatile.clear();
    }

    /// Where the writes since the last flush went.
    pub fn unflushed(&self) -> Vec<u64> {
        self.volatile.iter().map(|(offset, _)| *offset as u64).collect()
    }

    /// Writes since the last flush.
    pub fn volatile_count(&self) -> usize {
        self.volatile.len()
    }

    /// The byte that a whole cache line is filled with.
    pub fn line(&self, line: u64) -> u8 {
        one_byte(&self.current[line as usize * LINE..][..LINE])
    }
}

impl Bytes for Disk {
    fn read(&mut self, offset: u64, to: &mut [u8]) {
        to.copy_from_slice(&self.current[offset as usize..][..to.len()]);
    }

    fn write(&mut self, offset: u64, from: &[u8], is_durable: bool) {
        match is_durable {
            true => self.rot(offset, from),
            false => self.write(offset, from),
        }
    }

    fn flush(&mut self) {
        self.flush();
    }
}

/// The byte that all of `bytes` are.
#[track_caller]
pub fn one_byte(bytes: &[u8]) -> u8 {
    let other = bytes.iter().position(|byte| *byte != bytes[0]);
    assert_eq!(other, None, "mixed: {} at 0, another byte there", bytes[0]);
    bytes[0]
}

/// What a test may choose.
#[derive(Clone)]
pub struct Options {
    pub segments: u32,
    pub segment_size: u64,
    /// Copy pages of the read area; there is none by default.
    pub copy_pages: u32,
    pub data_disk: DataDiskInfo,
    pub uuid: Uuid,
    pub engine: EngineConfig,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            segments: 16,
            segment_size: 64 << 10,
            copy_pages: 0,
            data_disk: DataDiskInfo {
                blocks: 8192,
                logical_block_size: 512,
                physical_sector_size: 512,
            },
            uuid: Uuid([0x5a; 16]),
            engine: EngineConfig { segment_buffers: 8, ..EngineConfig::default() },
        }
    }
}

impl Options {
    pub fn geometry(&self) -> Geometry {
        let fit = |bytes| Geometry::fit_with_copies(bytes, self.segment_size, self.copy_pages);
        (1..)
            .filter_map(|part| fit(part * (64 << 10)).ok())
            .find(|geometry| geometry.segments == self.segments)
            .expect("a size with so many segments")
    }
}

struct Failure {
    device: Device,
    kind: Kind,
    range: Range<u64>,
    error: IoError,
    is_once: bool,
}

type Predicate = Box<dyn Fn(&Seen) -> bool>;

/// The driver.
pub struct Driver {
    pub options: Options,
    pub cache_disk: Disk,
    pub data_disk: Disk,
    pub now: Time,
    /// Under way, in the order in which they were started.
    pub ios: Vec<Io>,
    /// Every I/O ever started.
    pub started: Vec<Seen>,
    /// Replies, in order.
    pub replies: Vec<Reply>,
    engine: Option<Engine>,
    memory: Option<Vec<u8>>,
    results: BTreeMap<u64, Result<(), RequestError>>,
    wake_up: Option<Time>,
    next_request: u64,
    /// Windows that it was asked to keep.
    pub windows: Vec<u64>,
    holds: Vec<Predicate>,
    failures: Vec<Failure>,
    broken: Vec<(IoId, IoError)>,
}

impl Driver {
    /// A new cache, open.
    pub fn new() -> Driver {
        Driver::with(|_| {})
    }

    /// A new cache with other options, open.
    pub fn with(choose: impl FnOnce(&mut Options)) -> Driver {
        let mut driver = Driver::created(choose);
        driver.reopen();
        driver
    }

    /// A new cache in which nothing is destaged before its time, open.
    pub fn never_idle(choose: impl FnOnce(&mut Options)) -> Driver {
        Driver::with(|options| {
            never_idle(options);
            choose(options);
        })
    }

    /// A new cache that has never been opened.
    pub fn created(choose: impl FnOnce(&mut Options)) -> Driver {
        let mut options = Options::default();
        choose(&mut options);
        let geometry = options.geometry();
        let mut cache_disk = Disk::new(geometry.end());
        let first = create(CreateOptions {
            uuid: options.uuid,
            geometry,
            data_disk: options.data_disk,
            data_disk_serial: String::new(),
            volume: None,
            created_unix_seconds: 0,
            data_offset_bytes: 0,
            has_end_mark: false,
            has_legs: false,
        });
        for (offset, bytes) in first {
            cache_disk.write(offset, bytes.bytes());
        }
        cache_disk.flush();
        Driver {
            data_disk: Disk::new(options.data_disk.bytes()),
            cache_disk,
            now: Time::ZERO,
            ios: Vec::new(),
            started: Vec::new(),
            replies: Vec::new(),
            engine: None,
            memory: None,
            results: BTreeMap::new(),
            wake_up: None,
            next_request: 0,
            windows: Vec::new(),
            holds: Vec::new(),
            failures: Vec::new(),
            broken: Vec::new(),
            options,
        }
    }

    // ---- opening and dying --------------------------------------------------------------------

    /// The newest superblock on the cache-disk.
    pub fn superblock(&self) -> Superblock {
        let copy = |offset: usize| &self.cache_disk.current[offset..offset + LINE];
        Superblock::newest(copy(0), copy(64 << 10)).expect("a superblock")
    }

    /// The newest durable checkpoint that can be read, with its area.
    #[track_caller]
    pub fn newest_checkpoint(&self) -> (Checkpoint, u64) {
        let superblock = self.superblock();
        let geometry = superblock.geometry;
        let decoded = geometry.checkpoint_offsets.map(|offset| {
            let bytes = &self.cache_disk.durable[offset as usize..];
            let bytes = &bytes[..geometry.checkpoint_area_bytes as usize];
            Checkpoint::decode(bytes, superblock.uuid, &geometry).ok().map(|found| (found, offset))
        });
        let whole = decoded.into_iter().flatten();
        whole.max_by_key(|(found, _)| found.generation).expect("one is whole")
    }

    /// Makes the newer checkpoint unreadable, or the older.
    pub fn lose_checkpoint(&mut self, is_newer: bool) {
        let superblock = self.superblock();
        let geometry = superblock.geometry;
        let generation = |offset: u64| {
            let bytes = &self.cache_disk.current[offset as usize..][..LINE];
            let header = Checkpoint::decode_header(bytes, superblock.uuid, &geometry);
            header.map_or(0, |header| header.generation)
        };
        let [first, second] = geometry.checkpoint_offsets;
        let first_is_newer = generation(first) > generation(second);
        self.cache_disk.flip(if first_is_newer == is_newer { first } else { second } + 40);
    }

    /// Starts to open; I/Os wait for the test.
    pub fn start_open(&mut self) -> Result<(), OpenError> {
        let superblock = self.superblock();
        let size = Engine::segment_memory_size(&superblock.geometry, &self.options.engine);
        let memory = match self.memory.take() {
            Some(bytes) => Buffer::copy_of(&bytes),
            None => Buffer::zeroed(size),
        };
        let engine = Engine::open(
            self.now,
            superblock,
            self.cache_disk.current.len() as u64,
            self.options.data_disk,
            self.options.engine.clone(),
            Box::new(memory),
        )?;
        self.engine = Some(engine);
        self.input(Input::Timeout);
        Ok(())
    }

    /// Opens, and says why not.
    pub fn try_open(&mut self) -> Result<(), OpenError> {
        self.start_open()?;
        while *self.engine().phase() == Phase::Opening {
            self.step();
        }
        match self.engine().phase().clone() {
            Phase::Failed(error) => {
                self.engine = None;
                self.ios.clear();
                Err(error)
            }
            _ => {
                self.engine().check_checkpoint();
                Ok(())
            }
        }
    }

    /// Opens.
    #[track_caller]
    pub fn reopen(&mut self) {
        if let Err(error) = self.try_open() {
            panic!("does not open: {error}");
        }
    }

    /// The power fails: I/Os under way never happened, and what was not flushed is lost.
    pub fn power_cut(&mut self) {
        self.power_cut_keeping(|_, _| false);
    }

    /// The power fails, and the next start opens.
    #[track_caller]
    pub fn power_cycle(&mut self) {
        self.power_cut();
        self.reopen();
    }

    /// The power fails, and of the writes that were done but not flushed those survive that `keeps`
    /// says, by their number since the last flush.
    pub fn power_cut_keeping(&mut self, keeps: impl Fn(Device, usize) -> bool) {
        self.forget_engine();
        self.memory = None;
        self.cache_disk.power_cut(|index| keeps(Device::CacheDisk, index));
        self.data_disk.power_cut(|index| keeps(Device::DataDisk, index));
    }

    /// The process dies; segment memory and disks survive. I/Os under way never happened.
    pub fn kill(&mut self) {
        self.memory = Some(self.engine().segment_memory().to_vec());
        self.forget_engine();
    }

    /// The process dies, and the next one opens.
    #[track_caller]
    pub fn kill_and_reopen(&mut self) {
        self.kill();
        self.reopen();
    }

    /// The segment memory that survived [`Driver::kill`].
    pub fn surviving_memory(&mut self) -> &mut Vec<u8> {
        self.memory.as_mut().expect("killed before")
    }

    /// Opens with this segment memory.
    #[track_caller]
    pub fn restart_with(&mut self, memory: Vec<u8>) {
        self.forget_engine();
        self.memory = Some(memory);
        self.reopen();
    }

    pub fn forget_engine(&mut self) {
        self.engine = None;
        self.ios.clear();
        self.holds.clear();
        self.failures.clear();
        self.broken.clear();
        self.wake_up = None;
    }

    // ---- driving ------------------------------------------------------------------------------

    pub fn engine(&self) -> &Engine {
        self.engine.as_ref().expect("an engine runs")
    }

    pub fn status(&self) -> Status {
        self.engine().status()
    }

    /// Other settings, from now on.
    pub fn configure(&mut self, choose: impl FnOnce(&mut EngineConfig)) -> Result<(), ConfigError> {
        choose(&mut self.options.engine);
        let engine = self.engine.as_mut().expect("an engine runs");
        engine.configure(&self.options.engine)?;
        self.input(Input::Timeout);
        Ok(())
    }

    /// The superblock is to name this memory in front of the log, or none.
    pub fn name_nvram(&mut self, nvram: Option<NvramIdentity>) {
        let engine = self.engine.as_mut().expect("an engine runs");
        assert!(engine.may_name_nvram(nvram));
        engine.name_nvram(nvram);
        self.input(Input::Timeout);
    }

    /// How that has ended, once.
    pub fn take_nvram_named(&mut self) -> Option<Result<(), RequestError>> {
        self.engine.as_mut().expect("an engine runs").take_nvram_named()
    }

    /// One input, and all that comes of it.
    pub fn input(&mut self, input: Input) {
        let engine = self.engine.as_mut().expect("an engine runs");
        let looks = matches!(input, Input::Timeout);
        engine.handle_input(self.now, input);
        engine.check_invariants();
        loop {
            match engine.poll_output() {
                Output::Io(io) => {
                    self.started.push(Seen::of(&io, self.now));
                    self.ios.push(io);
                }
                Output::Reply(reply) => {
                    let before = self.results.insert(reply.id.0, reply.result);
                    assert!(before.is_none(), "two replies to {:?}", reply.id);
                    self.replies.push(reply);
                }
                Output::KeepWindow { window } => self.windows.push(window),
                Output::Wait { until } => {
                    // A driver would turn and turn, and the time of a simulated one would stand
                    // still.
                    let is_asked_at_once = until.is_some_and(|until| until <= self.now);
                    assert!(
                        !(looks && is_asked_at_once),
                        "woken at {:?}, it wants to be at once",
                        self.now
                    );
                    self.wake_up = until;
                    return;
                }
            }
        }
    }

    /// When the engine wants to be woken.
    pub fn wake_up(&self) -> Option<Time> {
        self.wake_up
    }

    /// I/Os like this do not end until [`Driver::release`] (or are named to [`Driver::finish`]).
    pub fn hold(&mut self, predicate: impl Fn(&Seen) -> bool + 'static) {
        self.holds.push(Box::new(predicate));
    }

    /// Holds nothing any more.
    pub fn release(&mut self) {
        self.holds.clear();
    }

    fn is_held(&self, io: &Io) -> bool {
        let seen = Seen::of(io, self.now);
        if self.broken.contains(&(io.id, IoError::TimedOut)) {
            return true;
        }
        self.holds.iter().any(|hold| hold(&seen))
    }

    /// The first I/O under way of this kind.
    pub fn find_io(&self, device: Device, kind: Kind) -> Option<IoId> {
        self.ios.iter().find(|io| Seen::of(io, self.now).is(device, kind)).map(|io| io.id)
    }

    /// I/Os under way of this kind.
    pub fn ios_of(&self, device: Device, kind: Kind) -> Vec<IoId> {
        let of_kind = |io: &&Io| Seen::of(io, self.now).is(device, kind);
        self.ios.iter().filter(of_kind).map(|io| io.id).collect()
    }

    fn take_io(&mut self, id: IoId) -> Io {
        let index = self.ios.iter().position(|io| io.id == id).expect("an I/O under way");
        self.ios.remove(index)
    }

    /// Does this I/O and tells the engine.
    pub fn finish(&mut self, id: IoId) {
        let io = self.take_io(id);
        if let Some((_, error)) = self.broken.iter().find(|(broken, _)| *broken == id) {
            let error = *error;
            return self.answer(io, Err(error));
        }
        let seen = Seen::of(&io, self.now);
        let failure = self.failures.iter().position(|failure| {
            seen.is(failure.device, failure.kind)
                && (seen.kind == Kind::Flush
                    || seen.offset < failure.range.end
                        && failure.range.start < seen.offset + seen.length)
        });
        if let Some(index) = failure {
            let error = self.failures[index].error;
            if self.failures[index].is_once {
                self.failures.remove(index);
            }
            return self.answer(io, Err(error));
        }
        let mut io = io;
        self.perform(&mut io);
        self.answer(io, Ok(()));
    }

    /// Tells the engine that this I/O failed; nothing of it reached the disk.
    pub fn fail(&mut self, id: IoId, error: IoError) {
        let io = self.take_io(id);
        self.answer(io, Err(error));
    }

    /// Does this I/O on the disk; the engine is not told, and it stays under way.
    pub fn land(&mut self, id: IoId) {
        let mut io = self.take_io(id);
        self.perform(&mut io);
        self.ios.push(io);
    }

    /// Some sectors (of 512 bytes) of this write reach the medium; it stays under way.
    pub fn tear(&mut self, id: IoId, reaches: impl Fn(usize) -> bool) {
        let io = self.take_io(id);
        let IoOperation::Write { offset, data, .. } = &io.operation else {
            panic!("only writes can be torn");
        };
        let bytes = self.bytes_of(data);
        let offset = *offset;
        let disk = self.disk(io.device);
        for (index, sector) in bytes.chunks(512).enumerate() {
            if reaches(index) {
                disk.rot(offset + index as u64 * 512, sector);
            }
        }
        self.ios.push(io);
    }

    /// The bytes of a write under way.
    pub fn bytes_of(&self, data: &IoData) -> Vec<u8> {
        bytes_of(data, self.engine().segment_memory()).to_vec()
    }

    fn disk(&mut self, device: Device) -> &mut Disk {
        match device {
            Device::CacheDisk => &mut self.cache_disk,
            Device::DataDisk => &mut self.data_disk,
            Device::Member(_) | Device::Leg(_) | Device::Witness | Device::Nvram => {
                unreachable!("one of each")
            }
        }
    }

    fn perform(&mut self, io: &mut Io) {
        let engine = self.engine.take().expect("an engine runs");
        perform(io, engine.segment_memory(), self.disk(io.device));
        self.engine = Some(engine);
    }

    fn answer(&mut self, io: Io, result: Result<(), IoError>) {
        self.input(Input::IoDone(ended(io, result)));
    }

    /// Ends the oldest I/O that is not held, or a pause between two parts of a start; false if
    /// there is neither.
    pub fn finish_one(&mut self) -> bool {
        let next = self.ios.iter().find(|io| !self.is_held(io)).map(|io| io.id);
        if let Some(id) = next {
            self.finish(id);
            return true;
        }
        let engine = self.engine.as_ref();
        let is_opening = engine.is_some_and(|engine| *engine.phase() == Phase::Opening);
        let pause = self.now.after(PAUSE_OF_A_START);
        let pause = self.wake_up.filter(|at| is_opening && *at <= pause);
        if let Some(at) = pause {
            self.now = at;
            self.input(Input::Timeout);
        }
        pause.is_some()
    }

    /// Ends I/Os until only held ones are left. Time stands still, but for pauses of a start.
    #[track_caller]
    pub fn finish_all(&mut self) {
        for _ in 0..1_000_000 {
            if !self.finish_one() {
                return;
            }
        }
        panic!("I/Os without end");
    }

    /// Ends an I/O; if all are held, lets time pass to the moment the engine waits for.
    #[track_caller]
    pub fn step(&mut self) {
        if self.finish_one() {
            return;
        }
        let at = self.wake_up.expect("the engine waits for nothing");
        assert!(at > self.now, "the engine wants to be woken in the past: it would spin");
        self.now = at;
        self.input(Input::Timeout);
    }

    /// The engine is told the time.
    pub fn tick(&mut self) {
        self.input(Input::Timeout);
    }

    /// Whether nothing will happen any more by itself.
    pub fn is_stuck(&self) -> bool {
        self.wake_up.is_none() && self.ios.iter().all(|io| self.is_held(io))
    }

    /// Steps until this holds.
    #[track_caller]
    pub fn run_until(&mut self, holds: impl Fn(&Driver) -> bool) {
        for _ in 0..1_000_000 {
            if holds(self) {
                return;
            }
            self.step();
        }
        panic!("does not come to be");
    }

    /// Lets so much time pass, and ends I/Os that are not held at once.
    #[track_caller]
    pub fn advance_time(&mut self, duration: Duration) {
        let end = self.now.after(duration);
        self.finish_all();
        while let Some(at) = self.wake_up.filter(|at| *at <= end) {
            assert!(at > self.now, "the engine wants to be woken in the past: it would spin");
            self.now = at;
            self.input(Input::Timeout);
            self.finish_all();
        }
        self.now = end;
        self.input(Input::Timeout);
        self.finish_all();
    }

    // ---- faults -------------------------------------------------------------------------------

    /// The next I/O of this kind fails.
    pub fn fail_next(&mut self, device: Device, kind: Kind, error: IoError) {
        let range = 0..u64::MAX;
        self.failures.push(Failure { device, kind, range, error, is_once: true });
    }

    /// Every I/O of this kind that touches these bytes fails, until [`Driver::heal`].
    pub fn fail_always(&mut self, device: Device, kind: Kind, range: Range<u64>, error: IoError) {
        self.failures.push(Failure { device, kind, range, error, is_once: false });
    }

    /// The I/O with this number fails; with [`IoError::TimedOut`] it is never answered.
    pub fn break_io(&mut self, id: IoId, error: IoError) {
        self.broken.push((id, error));
    }

    /// The number that the next I/O will have.
    pub fn next_io(&self) -> u64 {
        self.started.last().map_or(0, |seen| seen.id.0 + 1)
    }

    /// Nothing fails any more.
    pub fn heal(&mut self) {
        self.failures.clear();
    }

    // ---- requests -----------------------------------------------------------------------------

    pub fn submit(&mut self, operation: Operation, fua: bool) -> RequestId {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        self.input(Input::Request(Request { id, operation, fua }));
        id
    }

    /// Writes a whole cache line of `byte`.
    pub fn write(&mut self, line: u64, byte: u8) -> RequestId {
        self.write_blocks(line * 8, 8, byte)
    }

    pub fn write_blocks(&mut self, start: u64, blocks: u64, byte: u8) -> RequestId {
        let data = Buffer::copy_of(&vec![byte; blocks as usize * 512]);
        self.submit(Operation::Write { start: Lba(start), data }, false)
    }

    pub fn write_fua(&mut self, line: u64, byte: u8) -> RequestId {
        let data = Buffer::copy_of(&[byte; LINE]);
        self.submit(Operation::Write { start: Lba(line * 8), data }, true)
    }

    pub fn flush(&mut self) -> RequestId {
        self.submit(Operation::Flush, false)
    }

    pub fn discard(&mut self, start: u64, blocks: u64) -> RequestId {
        self.submit(Operation::Discard { range: LbaRange::new(start, blocks) }, false)
    }

    /// Writes lines and flushes: they share a record.
    #[track_caller]
    pub fn write_durably(&mut self, lines: impl IntoIterator<Item = u64>, byte: u8) {
        for line in lines {
            self.write(line, byte);
        }
        self.done(Driver::flush);
    }

    /// Laps the log by overwriting the same 15 lines from `first` on, a segment at a time. Only
    /// these lines die by it, so nothing has to be destaged.
    #[track_caller]
    pub fn overwrite_segments(&mut self, first: u64, segments: u64) {
        for round in 0..segments {
            self.write_durably(first..first + LINES_PER_SEGMENT, 200 + (round % 50) as u8);
        }
    }

    pub fn is_answered(&self, id: RequestId) -> bool {
        self.results.contains_key(&id.0)
    }

    /// How the request ended.
    #[track_caller]
    pub fn result(&self, id: RequestId) -> Result<(), RequestError> {
        *self.results.get(&id.0).expect("answered by now")
    }

    /// Ends I/Os, and lets time pass, until the request is answered.
    #[track_caller]
    pub fn wait(&mut self, id: RequestId) -> Result<(), RequestError> {
        self.run_until(|driver| driver.is_answered(id));
        self.result(id)
    }

    #[track_caller]
    pub fn expect_ok(&mut self, id: RequestId) {
        assert_eq!(self.wait(id), Ok(()));
    }

    /// Asks for this, and ends I/Os, and lets time pass, until it is done.
    #[track_caller]
    pub fn done(&mut self, ask: impl FnOnce(&mut Driver) -> RequestId) {
        let id = ask(self);
        self.expect_ok(id);
    }

    /// Destages everything.
    #[track_caller]
    pub fn drain(&mut self) {
        self.done(|driver| driver.submit(Operation::Drain, false));
    }

    /// Destages everything that can be, and is told that so many lines cannot.
    #[track_caller]
    pub fn drain_with_loss(&mut self, lines: u64) {
        let id = self.submit(Operation::Drain, false);
        assert_eq!(self.wait(id), Err(RequestError::Lost { lines }));
    }

    /// Flushes and shuts down in order; the disks can be opened again.
    #[track_caller]
    pub fn shut_down(&mut self) {
        self.done(Driver::flush);
        self.done(|driver| driver.submit(Operation::Shutdown, false));
        self.forget_engine();
    }

    /// Shuts down in order, and opens again.
    #[track_caller]
    pub fn restart(&mut self) {
        self.shut_down();
        self.reopen();
    }

    /// Detaches; the disks can be opened again.
    #[track_caller]
    pub fn detach(&mut self) {
        self.done(|driver| driver.submit(Operation::Detach, false));
        self.forget_engine();
    }

    /// Reads blocks. Only I/Os that this read needs are ended, held or not; time stands still.
    #[track_caller]
    pub fn try_read(&mut self, start: u64, blocks: u64) -> Result<Vec<u8>, RequestError> {
        let mut next = self.started.len();
        let id = self.submit(read_into_used(LbaRange::new(start, blocks)), false);
        // One that fails may be tried elsewhere.
        while let Some(seen) = self.started.get(next) {
            next += 1;
            if seen.kind == Kind::Read && !self.is_answered(id) {
                self.finish(seen.id);
            }
        }
        let result = self.result(id);
        result.map(|()| self.reply_bytes(id))
    }

    /// The bytes that came with the reply to a read.
    #[track_caller]
    pub fn reply_bytes(&self, id: RequestId) -> Vec<u8> {
        let reply = self.replies.iter().find(|reply| reply.id == id).expect("answered by now");
        reply.buffer.as_ref().expect("a read that succeeded").bytes().to_vec()
    }

    /// The byte that a whole cache line reads as.
    #[track_caller]
    pub fn read(&mut self, line: u64) -> u8 {
        one_byte(&self.try_read(line * 8, 8).expect("a readable line"))
    }

    // ---- looking back -------------------------------------------------------------------------

    /// I/Os started since `mark`, which was `started.len()`.
    pub fn count_since(&self, mark: usize, device: Device, kind: Kind) -> usize {
        self.started[mark..].iter().filter(|seen| seen.is(device, kind)).count()
    }

    /// Where on the cache-disk a page filled with `byte` lies: the slot of such a line.
    pub fn slots_of(&self, byte: u8) -> Vec<u64> {
        let pages = self.cache_disk.current.chunks(LINE).enumerate();
        pages
            .filter(|(_, page)| page.iter().all(|b| *b == byte))
            .map(|(index, _)| (index * LINE) as u64)
            .collect()
    }

    /// Where the one page filled with `byte` lies.
    #[track_caller]
    pub fn slot_of(&self, byte: u8) -> u64 {
        let slots = self.slots_of(byte);
        assert_eq!(slots.len(), 1, "one slot holds {byte}");
        slots[0]
    }
}

/// Settings for tests in which nothing may be destaged before its time.
pub fn never_idle(options: &mut Options) {
    options.engine.idle_threshold_max = Duration::from_secs(100_000);
    options.engine.idle_threshold_min = Duration::from_secs(100_000);
    options.engine.dirty_high_percent = 95;
}

/// All policies.
pub const POLICIES: [DestagePolicyKind; 3] = [
    DestagePolicyKind::FirstWriteFirst,
    DestagePolicyKind::LastWriteFirst,
    DestagePolicyKind::LeastValidFirst,
];

/// All modes.
pub const ACK_MODES: [AckMode; 3] = [AckMode::Memory, AckMode::Log, AckMode::Durable];
