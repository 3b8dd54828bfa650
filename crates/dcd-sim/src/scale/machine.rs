//! An engine on two disks that need no room: the cache-disk keeps what is not data, the data-disk
//! nothing, and both answer on virtual time, on which the processor's own time goes by as well.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use dcd_engine::format::geometry::SUPERBLOCK_OFFSETS;
use dcd_engine::format::superblock::SUPERBLOCK_SIZE;
use dcd_engine::{
    Buffer, DataDiskInfo, Device, Duration, Engine, EngineConfig, Geometry, Input, Io, IoDone,
    IoOperation, OpenError, Operation, Output, Phase, Request, RequestId, Superblock, Time,
};
use dcd_testkit::{carry_out, range_of};

use crate::distribution::Distribution;
use crate::new_cache::write_new_cache;
use crate::target::pages::{Pages, Zeroes};

/// How long an I/O to the cache-disk takes, besides its bytes: a fast flash drive.
const CACHE_DISK_LATENCY: Duration = Duration::from_micros(80);
/// Bytes that the cache-disk moves in a microsecond (2 GB/s).
const CACHE_DISK_BYTES_PER_MICROSECOND: u64 = 2_000;
/// How long the data-disk is busy with an I/O, besides its bytes: 20,000 a second.
const DATA_DISK_BUSY: Duration = Duration::from_micros(50);
/// Bytes that the data-disk moves in a microsecond (500 MB/s).
const DATA_DISK_BYTES_PER_MICROSECOND: u64 = 500;
/// Buffers that are kept for later writes.
const SPARE_MAX: usize = 256;

/// No call of the engine is to take longer.
pub const STEP_MAX: std::time::Duration = std::time::Duration::from_millis(2);

/// What the steps of the engine took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Steps {
    /// The longest call of the engine.
    pub longest: std::time::Duration,
    /// Calls that took longer than [`STEP_MAX`].
    pub too_long: u64,
    /// All of them.
    pub total: std::time::Duration,
}

impl Steps {
    /// Both together.
    pub fn and(&self, other: &Steps) -> Steps {
        Steps {
            longest: self.longest.max(other.longest),
            too_long: self.too_long + other.too_long,
            total: self.total + other.total,
        }
    }

    /// How many were longer than [`STEP_MAX`] in a minute of the processor.
    pub fn too_long_per_minute(&self) -> f64 {
        let minutes = self.total.as_secs_f64() / 60.0;
        if minutes > 0.0 { self.too_long as f64 / minutes } else { 0.0 }
    }

    fn add(&mut self, took: std::time::Duration) {
        self.longest = self.longest.max(took);
        self.too_long += u64::from(took > STEP_MAX);
        self.total += took;
    }
}

/// So much of the time of the engine a loop takes that only counts.
const COUNTING_PART: u32 = 4;
/// What it counts in one go, some 20 microseconds.
const COUNTS: u64 = 20_000;

/// Some steps that could not be shorter: a loop that counts, in pieces of some 20 microseconds. A
/// thread's clock goes on while the host of a virtual machine has taken the processor away, and what
/// that does to steps of the engine it does to these, too, as often for the time that they take.
fn count() {
    for number in 0..COUNTS {
        std::hint::black_box(number);
    }
}

/// Bytes at the cache-disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traffic {
    /// Read from it.
    pub read_bytes: u64,
    /// Written to it.
    pub written_bytes: u64,
}

/// The disks, and the engine that is open on them.
pub struct Machine<'a> {
    engine: Engine,
    cache_disk: Pages,
    now: Time,
    /// I/Os that end, by time.
    ends: BinaryHeap<Reverse<(Time, u64)>>,
    ios: HashMap<u64, Io>,
    /// Until when the cache-disk and the data-disk move bytes of I/Os that they have.
    busy_until: [Time; 2],
    /// When the engine wants to be woken.
    until: Option<Time>,
    requests: u64,
    submitted: HashMap<u64, Time>,
    answered: u64,
    failed: u64,
    responses: Distribution,
    spare: Vec<Buffer>,
    clock: &'a dyn Fn() -> std::time::Duration,
    steps: Steps,
    /// Those of a loop that only counts.
    counting: Steps,
    traffic: Traffic,
}

impl<'a> Machine<'a> {
    /// A new cache, open.
    ///
    /// # Errors
    /// As the engine says.
    pub fn new(
        geometry: Geometry,
        data_disk: DataDiskInfo,
        index_bytes_max: u64,
        clock: &'a dyn Fn() -> std::time::Duration,
    ) -> Result<Machine<'a>, OpenError> {
        let mut cache_disk = Pages::default();
        let superblock = write_new_cache(geometry, data_disk, None, |offset, bytes| {
            cache_disk.write(offset, bytes)
        });
        Machine::open(cache_disk, superblock, data_disk, index_bytes_max, clock)
    }

    /// The machine dies, with all that no disk has, and starts again.
    ///
    /// # Errors
    /// As the engine says.
    ///
    /// # Panics
    /// If there is no superblock any more.
    pub fn after_a_death(self, data_disk: DataDiskInfo) -> Result<Machine<'a>, OpenError> {
        let Machine { cache_disk, engine, clock, .. } = self;
        let index_bytes_max = engine.config().index_bytes_max;
        drop(engine);
        // The allocator sorts what was freed, millions of pieces, when it is next asked for much:
        // a process that has just begun has nothing to sort.
        drop(std::hint::black_box(vec![0u8; 1 << 20]));
        let [first, second] = SUPERBLOCK_OFFSETS.map(|offset| {
            let mut bytes = vec![0; SUPERBLOCK_SIZE];
            cache_disk.read(offset, &mut bytes);
            bytes
        });
        let superblock = Superblock::newest(&first, &second).expect("the engine wrote them");
        Machine::open(cache_disk, superblock, data_disk, index_bytes_max, clock)
    }

    fn open(
        cache_disk: Pages,
        superblock: Superblock,
        data_disk: DataDiskInfo,
        index_bytes_max: u64,
        clock: &'a dyn Fn() -> std::time::Duration,
    ) -> Result<Machine<'a>, OpenError> {
        // Each start has a seed of its own, as in the daemon: the one before has listed the index.
        let hash_seed = superblock.generation;
        let config = EngineConfig { hash_seed, index_bytes_max, ..EngineConfig::default() };
        let (geometry, end) = (superblock.geometry, superblock.geometry.end());
        let mut memory = Buffer::zeroed(Engine::segment_memory_size(&geometry, &config));
        // The same at any size: it is not to count as memory for lines when it is used first.
        memory.bytes_mut().fill(0);
        let started = clock();
        let engine =
            Engine::open(Time::ZERO, superblock, end, data_disk, config, Box::new(memory))?;
        let opening = clock() - started;
        let mut machine = Machine {
            engine,
            cache_disk,
            now: Time(opening.as_nanos() as u64),
            ends: BinaryHeap::new(),
            ios: HashMap::new(),
            busy_until: [Time::ZERO; 2],
            until: None,
            requests: 0,
            submitted: HashMap::new(),
            answered: 0,
            failed: 0,
            responses: Distribution::default(),
            spare: Vec::new(),
            clock,
            steps: Steps::default(),
            counting: Steps::default(),
            traffic: Traffic::default(),
        };
        machine.steps.add(opening);
        machine.poll();
        while *machine.engine.phase() == Phase::Opening {
            machine.next_event();
        }
        match machine.engine.phase() {
            Phase::Failed(error) => Err(error.clone()),
            _ => Ok(machine),
        }
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Virtual time since it was opened.
    pub fn elapsed(&self) -> Duration {
        self.now.since(Time::ZERO)
    }

    /// Memory of what the disks keep.
    pub fn content_bytes(&self) -> u64 {
        self.cache_disk.memory_bytes()
    }

    /// What the engine took, and the cache-disk moved, since the last call.
    pub fn take_counts(&mut self) -> (Steps, Traffic) {
        (std::mem::take(&mut self.steps), std::mem::take(&mut self.traffic))
    }

    /// The steps of the loop that only counts, since the last call.
    pub fn take_counting(&mut self) -> Steps {
        std::mem::take(&mut self.counting)
    }

    /// Has `depth` requests waiting at a time, until `next` has none and all are answered. Tells
    /// how long each waited, in nanoseconds.
    ///
    /// # Panics
    /// If one fails: these disks do not.
    pub fn ask(
        &mut self,
        depth: u64,
        mut next: impl FnMut(&mut Machine<'a>) -> Option<Operation>,
    ) -> Distribution {
        self.responses = Distribution::default();
        let mut is_over = false;
        loop {
            while !is_over && self.requests - self.answered < depth {
                match next(self) {
                    Some(operation) => self.request(operation),
                    None => is_over = true,
                }
            }
            if is_over && self.requests == self.answered {
                assert!(self.failed == 0, "{} requests failed", self.failed);
                return std::mem::take(&mut self.responses);
            }
            if self.requests - self.answered == depth || is_over {
                self.next_event();
            }
        }
    }

    /// A buffer of zeroes.
    pub fn buffer(&mut self, bytes: usize) -> Buffer {
        let spare = self.spare.pop().filter(|spare| spare.len() == bytes);
        spare.unwrap_or_else(|| Buffer::zeroed(bytes))
    }

    fn request(&mut self, operation: Operation) {
        self.requests += 1;
        self.submitted.insert(self.requests, self.now);
        let request = Request { id: RequestId(self.requests), operation, fua: false };
        self.input(Input::Request(request));
    }

    fn input(&mut self, input: Input) {
        let now = self.now;
        self.step(|engine| engine.handle_input(now, input));
        self.poll();
    }

    /// A call of the engine takes the time that it takes.
    fn step<R>(&mut self, call: impl FnOnce(&mut Engine) -> R) -> R {
        let started = (self.clock)();
        let result = call(&mut self.engine);
        let took = (self.clock)() - started;
        self.steps.add(took);
        self.now = self.now.after(Duration(took.as_nanos() as u64));
        if self.counting.total * COUNTING_PART < self.steps.total {
            let started = (self.clock)();
            count();
            self.counting.add((self.clock)() - started);
        }
        result
    }

    fn poll(&mut self) {
        loop {
            match self.step(Engine::poll_output) {
                Output::Io(io) => self.start(io),
                Output::Reply(reply) => {
                    self.answered += 1;
                    self.failed += u64::from(reply.result.is_err());
                    let submitted = self.submitted.remove(&reply.id.0).expect("it was asked");
                    self.responses.add(self.now.since(submitted).0);
                    if self.spare.len() < SPARE_MAX {
                        self.spare.extend(reply.buffer);
                    }
                }
                Output::KeepWindow { window } => {
                    let kept = Input::WindowKept { window, is_kept: true };
                    self.engine.handle_input(self.now, kept);
                }
                Output::Wait { until } => {
                    self.until = until;
                    return;
                }
            }
        }
    }

    /// The next I/O ends, or the engine is woken.
    ///
    /// # Panics
    /// If nothing will ever happen.
    fn next_event(&mut self) {
        let end = self.ends.peek().map(|Reverse((time, _))| *time);
        let is_end = end.is_some_and(|end| self.until.is_none_or(|until| end <= until));
        let at = if is_end { end } else { self.until };
        self.now = self.now.max(at.expect("something is under way"));
        if !is_end {
            return self.input(Input::Timeout);
        }
        let Reverse((_, id)) = self.ends.pop().expect("it was looked at");
        let io = self.ios.remove(&id).expect("it was started");
        let done = self.finish(io);
        self.input(Input::IoDone(done));
    }

    fn start(&mut self, io: Io) {
        let range = range_of(&io.operation);
        let is_read = matches!(io.operation, IoOperation::Read { .. });
        let bytes = match io.operation {
            // Their bytes do not move.
            IoOperation::WriteZeroes { .. } => 0,
            _ => range.end - range.start,
        };
        let is_cache_disk = io.device == Device::CacheDisk;
        let (busy, latency) = match is_cache_disk {
            true => (bytes * 1_000 / CACHE_DISK_BYTES_PER_MICROSECOND, CACHE_DISK_LATENCY),
            false => {
                let moving = bytes * 1_000 / DATA_DISK_BYTES_PER_MICROSECOND;
                (DATA_DISK_BUSY.0 + moving, Duration(0))
            }
        };
        if is_cache_disk {
            match is_read {
                true => self.traffic.read_bytes += bytes,
                false => self.traffic.written_bytes += bytes,
            }
        }
        // An I/O begins when those before it have been moved, so a flush ends behind all of them.
        let busy_until = &mut self.busy_until[usize::from(!is_cache_disk)];
        *busy_until = self.now.max(*busy_until).after(Duration(busy));
        self.ends.push(Reverse((busy_until.after(latency), io.id.0)));
        self.ios.insert(io.id.0, io);
    }

    /// What an I/O does to the bytes.
    fn finish(&mut self, io: Io) -> IoDone {
        let memory = self.engine.segment_memory();
        match io.device {
            Device::CacheDisk => carry_out(io, memory, &mut self.cache_disk),
            Device::DataDisk
            | Device::Member(_)
            | Device::Leg(_)
            | Device::Witness
            | Device::Nvram => carry_out(io, memory, &mut Zeroes),
        }
    }
}
