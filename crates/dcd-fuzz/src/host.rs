//! The machine that an engine runs on: two disks, a clock, segment memory, and the faults that wait
//! for their I/O. It does what the daemon does, without threads: gives inputs, takes outputs, ends
//! I/Os in the order that its user says.

use std::collections::BTreeMap;

use dcd_engine::format::end_mark::END_MARK_BYTES;
use dcd_engine::format::geometry::SUPERBLOCK_OFFSETS;
use dcd_engine::format::superblock::CacheState;
use dcd_engine::stats::{ModeState, Uncached};
use dcd_engine::{
    AckMode, Buffer, Device, Duration, Engine, EngineConfig, Input, Io, IoData, IoDone, IoError,
    IoOperation, Limits, MemoryIdentity, MemoryUse, Mode, OpenError, Operation, Phase, RequestId,
    SegmentMemory, Superblock, Time,
};
use dcd_testkit::{bytes_of, ended};

use crate::disk::{Fate, FaultyDisk, Pages};
use crate::faults::{Allowed, FaultKind, IoKind, Level, Pending, Trap};
use crate::legs::{Legs, LegsOf};
use crate::memory::PooledMemory;
use crate::model::Violation;
use crate::options::Options;
use crate::order::{Keeper, KeptImage};
use crate::random::Random;
use crate::running::{Flight, NotOpen, Running};
use crate::space::Space;

/// Where the superblock copies are.
const SUPERBLOCKS: [usize; 2] = [0, 64 << 10];

/// How long an engine may let its user wait while I/Os could end. Not as long as it is until it
/// looks again whether they have: that would go on until they were given up.
const WAIT_MAX: Duration = Duration::from_secs(40);

/// What a disk takes that is slow at zeroing: 8 s a line. What the engine asks for first takes a
/// sixth of the time that an answer may take, the whole of the smallest disk all of it, and more.
const ZEROING_NANOS_PER_BYTE: u64 = 8_000_000_000 / 4096;

/// Both disks, and what survived in memory: what a crash leaves.
#[derive(Clone)]
pub struct Wreck {
    /// The cache-disk.
    pub cache_disk: FaultyDisk,
    /// The data-disk.
    pub data_disk: FaultyDisk,
    /// The second leg, if the cache-disk is on two; the first is the cache-disk.
    pub legs: Option<Legs>,
    /// The segment memory, if only the process died.
    pub memory: Option<Vec<u8>>,
    /// What a start must know that memory by.
    pub session: LastSession,
    /// The clock goes on.
    pub now: Time,
}

/// What is true of the last session and its segment memory, whatever a superblock says (C4).
#[derive(Clone, Copy, Default)]
pub struct LastSession {
    /// Boots of the machine so far.
    boot: u8,
    /// Memories made so far; the number is the identity.
    memories: u64,
    /// In this boot it acknowledged from memory, and has not ended in order.
    acknowledged: bool,
}

impl LastSession {
    fn boot_id(self) -> [u8; 16] {
        [self.boot; 16]
    }
}

/// Where the driver's part of the segment memory begins; here its identity is all there is.
const MEMORY_ID: usize = 4032;

/// How to start.
#[derive(Clone, Copy, Default)]
pub struct Start {
    /// What is lost is known.
    pub accept_damage: bool,
    /// Changes are refused.
    pub read_only: bool,
    /// A data-disk that has grown is taken over.
    pub grow: bool,
    /// Interrupted after so many I/Os.
    pub ios_max: Option<u64>,
    /// Not the limits of the run.
    pub limits: Option<Limits>,
}

/// The machine.
pub struct Host {
    /// The engine, and what it waits for.
    pub running: Running,
    /// The cache-disk.
    pub cache_disk: FaultyDisk,
    /// The data-disk.
    pub data_disk: FaultyDisk,
    /// The second leg, if the cache-disk is on two.
    pub legs: Option<Legs>,
    /// Faults that wait.
    pub pending: Pending,
    /// What may be seen because of faults.
    pub allowed: Allowed,
    /// The data-disk shows what it has lost, until the next power cut.
    pub shows_what_is_lost: bool,
    /// Faults that struck, by kind.
    pub struck_by_kind: BTreeMap<FaultKind, u64>,
    /// Bytes on the data-disk outside whole physical sectors are written (exception of C15).
    pub partial_sectors: u64,
    /// What may be freed; none: not looked at.
    pub space: Option<Space>,
    /// Who keeps windows of ordered shipping.
    pub keeper: Keeper,
    /// The data-disk at the ends of windows that nobody has compared yet.
    pub kept_images: Vec<KeptImage>,
    session: LastSession,
    rests_in_memory: bool,
    /// Something was lost before the last input: what is answered to that may speak of it although
    /// it was written over at once.
    pub had_lost: bool,
    /// An I/O to the cache-disk was started while changes went past the log.
    pub is_touched_in_passing: bool,
    early_reads: bool,
    /// To zero a range of the data-disk takes as long as it is.
    slow_zeroes: bool,
}

impl Host {
    /// A machine with these disks.
    pub fn new(wreck: Wreck, is_traced: bool) -> Host {
        Host {
            running: Running::new(wreck.now, is_traced),
            cache_disk: wreck.cache_disk,
            data_disk: wreck.data_disk,
            legs: wreck.legs,
            pending: Pending::default(),
            allowed: Allowed::default(),
            struck_by_kind: BTreeMap::new(),
            shows_what_is_lost: false,
            had_lost: false,
            partial_sectors: 0,
            space: None,
            keeper: Keeper::default(),
            kept_images: Vec::new(),
            session: wreck.session,
            rests_in_memory: false,
            is_touched_in_passing: false,
            early_reads: false,
            slow_zeroes: false,
        }
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        self.running.engine()
    }

    /// Whether the cache-disk has been given up and changes fail, until a restart (C22).
    pub fn has_failed(&self) -> bool {
        let failure = self.engine().cache_disk_failure();
        failure.is_some_and(|failure| {
            failure.uncached.is_none_or(|uncached| uncached == Uncached::Failed)
        }) || self.engine().mode().state == ModeState::Failed
    }

    /// Whether changes go past the log because the mode says so.
    pub fn is_past_the_log(&self) -> bool {
        self.running.engine.as_ref().is_some_and(|engine| engine.mode().mode != Mode::WriteBack)
    }

    /// Whether the cache-disk is left alone.
    fn is_passing_through(&self) -> bool {
        self.running.engine.as_ref().is_some_and(|engine| engine.mode().mode == Mode::PassThrough)
    }

    /// Whether the engine does without its cache-disk, or has until that failed, too (C23).
    pub fn is_uncached(&self) -> bool {
        let failure = self.running.engine.as_ref().and_then(dcd_engine::Engine::cache_disk_failure);
        failure.is_some_and(|failure| failure.uncached.is_some())
    }

    /// Gives up the machine, for a crash.
    pub fn into_wreck(self, memory: Option<Vec<u8>>) -> Wreck {
        let Host { cache_disk, data_disk, legs, session, running, .. } = self;
        Wreck { cache_disk, data_disk, legs, memory, session, now: running.now }
    }

    // ---- starting -----------------------------------------------------------------------------

    /// Opens the cache.
    pub fn open(
        &mut self,
        options: &Options,
        start: Start,
        memory: Option<&[u8]>,
        random: &mut Random,
    ) -> Result<(), NotOpen> {
        let copies = SUPERBLOCKS.map(|offset| {
            let mut bytes = vec![0; 4096];
            // What cannot be read is no superblock.
            let _ = self.cache_disk.read(offset as u64, &mut bytes);
            bytes
        });
        let refuse = |error| Err(NotOpen::Refused(error));
        let chosen = match &mut self.legs {
            None => (Superblock::newest(&copies[0], &copies[1]), None),
            Some(legs) => match legs.choose(&mut self.cache_disk) {
                Ok((superblock, parts)) => (superblock, Some(Box::new(parts))),
                Err(violation) => return Err(NotOpen::Violation(violation)),
            },
        };
        let (superblock, legs) = chosen;
        let superblock = match superblock {
            Ok(superblock) => superblock,
            Err(error) => return refuse(OpenError::Format(error)),
        };
        let Start { accept_damage, read_only, grow, ios_max, limits } = start;
        let mut config = dcd_engine::EngineConfig {
            accept_damage,
            read_only,
            grow,
            limits: limits.unwrap_or(options.limits),
            fill_bytes_per_second_max: options.legs.map_or(0, |legs| legs.fill_rate),
            legs,
            ..options.engine_with(superblock.geometry.copy_pages)
        };
        let geometry = superblock.geometry;
        self.early_reads = options.early_reads;
        self.slow_zeroes = options.faults.contains(&FaultKind::SlowZeroes);
        let size = Engine::segment_memory_size(&geometry, &config);
        // What the superblock says may be forged.
        let survived = memory.filter(|memory| {
            Engine::segment_buffers_of(&geometry, memory.len() as u64)
                == Some(options.segment_buffers)
        });
        let survived = match self.choose_memory(&superblock, survived) {
            Ok(survived) => survived,
            Err(violation) => return Err(NotOpen::Violation(violation)),
        };
        let mut memory = PooledMemory::new(size, survived);
        config.memory = Some(self.name_memory(&config, survived.is_some(), &mut memory));
        let data_disk = dcd_engine::DataDiskInfo {
            blocks: self.data_disk.len() as u64 / 512,
            ..options.data_disk()
        };
        let opened = Engine::open(
            self.running.now,
            superblock,
            self.cache_disk.len() as u64,
            data_disk,
            config,
            Box::new(memory),
        );
        match opened {
            Ok(engine) => self.running.engine = Some(engine),
            Err(error) => return refuse(error),
        }
        self.poll();
        let mut ios = 0u64;
        let mut are_compared = false;
        loop {
            if self.engine().legs_are_alike() && !std::mem::replace(&mut are_compared, true) {
                let end = self.engine().superblock().end() as usize;
                let legs = self.legs_of().expect("it has some");
                legs.compare(end).map_err(NotOpen::Violation)?;
            }
            match self.engine().phase().clone() {
                Phase::Opening if Some(ios) == ios_max => return Err(NotOpen::Interrupted),
                Phase::Opening if ios > 100_000 => {
                    return Err(NotOpen::Violation(Violation("recovery does not end".into())));
                }
                Phase::Opening => self.end_one_io(random),
                Phase::Running => {
                    self.engine().check_checkpoint();
                    return Ok(());
                }
                Phase::Failed(error) => {
                    return refuse(error);
                }
                Phase::Closed => {
                    let what = "closed by itself".into();
                    return Err(NotOpen::Violation(Violation(what)));
                }
            }
            ios += 1;
        }
    }

    /// The memory that a start takes, as every driver does: the one that the superblock names, and
    /// no other.
    fn choose_memory<'a>(
        &mut self,
        superblock: &Superblock,
        survived: Option<&'a [u8]>,
    ) -> Result<Option<&'a [u8]>, Violation> {
        let session = self.session;
        let wanted = superblock.memory_wanted(session.boot_id());
        // What a fault has done to the disks may have brought back an older superblock.
        let is_sure = self.allowed.level == Level::Exact && !self.allowed.refusal;
        let is_open = superblock.state == CacheState::Open;
        let stands = is_sure && is_open && session.acknowledged;
        let id: Option<[u8; 16]> =
            survived.map(|bytes| bytes[MEMORY_ID..][..16].try_into().expect("sixteen bytes"));
        let taken = survived.filter(|_| id.is_some_and(|id| wanted.is(id)));
        let other = [0xee; 16];
        let named = superblock.memory.as_ref();
        let is_of_another_boot = named.is_some_and(|named| named.boot_id != session.boot_id());
        let problem = if is_open && named.is_some() && wanted.is(other) {
            "takes a memory that is not of the last session"
        } else if stands && survived.is_some() && taken.is_none() {
            "does not take the memory of the last session"
        } else if stands && survived.is_none() && wanted.loses().is_none() {
            "says nothing of the memory that is lost"
        } else if is_of_another_boot && wanted.loses().is_some() {
            "misses a memory that no start can find"
        } else {
            // One that is lost: a person has read that it is, and what that means.
            self.session.acknowledged &= taken.is_some();
            return Ok(taken);
        };
        Err(Violation(problem.into()))
    }

    fn name_memory(
        &mut self,
        config: &dcd_engine::EngineConfig,
        is_known: bool,
        memory: &mut PooledMemory,
    ) -> MemoryIdentity {
        if !is_known {
            self.session.memories += 1;
            let id = u128::from(self.session.memories).to_be_bytes();
            memory.bytes_mut()[MEMORY_ID..][..16].copy_from_slice(&id);
        }
        let memory_id = memory.bytes()[MEMORY_ID..][..16].try_into().expect("sixteen bytes");
        let rests = config.ack != AckMode::Durable;
        self.rests_in_memory = rests;
        let milliseconds = (config.max_delay.0 / 1_000_000).max(1) as u32;
        MemoryIdentity {
            boot_id: self.session.boot_id(),
            memory_id,
            place: String::new(),
            max_delay_milliseconds: if rests { milliseconds } else { 0 },
        }
    }

    // ---- the loop -----------------------------------------------------------------------------

    /// Other settings, and all that comes of them; they may be refused, and then nothing may
    /// change.
    pub fn configure(&mut self, config: &EngineConfig) {
        self.running.trace(|| format!("{:?} {config:?}", self.running.now));
        let now = self.running.now;
        let engine = self.running.engine.as_mut().expect("an engine runs");
        let before = engine.config().clone();
        if engine.configure(config).is_err() {
            assert!(format!("{before:?}") == format!("{:?}", engine.config()), "nothing is set");
        }
        engine.handle_input(now, Input::Timeout);
        engine.check_invariants();
        self.poll();
    }

    /// One input, and all that comes of it.
    pub fn input(&mut self, input: Input) {
        let engine = self.running.engine.as_ref();
        self.had_lost = engine.is_some_and(|engine| !engine.lost().is_empty());
        if let Some(kept) = self.keeper.next_answer() {
            self.running.give(kept);
            self.poll();
        }
        self.running.give(input);
        self.poll();
    }

    fn poll(&mut self) {
        while let Some(io) = self.running.next_io() {
            self.start(io);
        }
        if let Some(window) = self.running.asked_window.take() {
            self.keeper.asked(window);
            let image = KeptImage {
                window,
                image: self.data_disk.snapshot(),
                is_durable: self.data_disk.volatile_count() == 0,
            };
            self.kept_images.push(image);
        }
    }

    fn start(&mut self, io: Io) {
        // Before changes are logged again the superblock is read.
        let is_look = match &io.operation {
            IoOperation::Read { offset, .. } => SUPERBLOCK_OFFSETS.contains(offset),
            _ => false,
        };
        if io.device == Device::CacheDisk
            && self.is_passing_through()
            && !self.is_uncached()
            && !is_look
        {
            self.is_touched_in_passing = true;
        }
        if io.device == Device::DataDisk {
            let is_read = io_kind(&io.operation) == IoKind::Read;
            assert!(
                is_read || !self.keeper.is_keeping(),
                "the data-disk is kept as it is, and {io:?}"
            );
            match &io.operation {
                IoOperation::Write { offset, data: IoData::Owned(buffer), .. } => {
                    self.note_partial_sectors(*offset, buffer.len() as u64);
                }
                IoOperation::WriteZeroes { offset, length, may_unmap } => {
                    self.note_partial_sectors(*offset, *length);
                    // Of a log that is not as it was written nothing is known.
                    if let Some(space) = &self.space
                        && self.allowed.level == Level::Exact
                    {
                        space.check(*offset, *length, *may_unmap);
                    }
                }
                _ => {}
            }
        }
        let flush_mark = match io.device {
            Device::CacheDisk => self.cache_disk.flush_mark(),
            Device::DataDisk => self.data_disk.flush_mark(),
            Device::Leg(_) | Device::Witness => self.disk(io.device).flush_mark(),
            Device::Member(_) | Device::Nvram => unreachable!("there is no such thing here"),
        };
        let delay = self.take_trap(&io, |kind| matches!(kind, FaultKind::Slow | FaultKind::Hang));
        let delay = delay.or_else(|| {
            let hangs = match io.device {
                Device::Leg(leg) => self.legs_of()?.hangs(leg),
                Device::Witness => self.legs_of()?.witness_hangs(),
                _ => false,
            };
            hangs.then_some(FaultKind::Hang)
        });
        let not_before = match delay {
            Some(FaultKind::Slow) => self.running.now.after(Duration::from_secs(20)),
            Some(_) => self.running.now.after(Duration::from_secs(4000)),
            None => self.zeroed_at(&io).unwrap_or(Time::ZERO),
        };
        let early = self.read_early(&io);
        self.running.ios.push(Flight { io, flush_mark, not_before, early });
    }

    /// When the data-disk has written so many zeroes, and all before, if it is slow at that.
    fn zeroed_at(&mut self, io: &Io) -> Option<Time> {
        let IoOperation::WriteZeroes { length, .. } = io.operation else { return None };
        if !self.slow_zeroes || io.device != Device::DataDisk || self.data_disk.cannot_zero {
            return None;
        }
        let is_zeroing = |flight: &&Flight| io_kind(&flight.io.operation) == IoKind::Discard;
        let before =
            self.running.ios.iter().filter(is_zeroing).map(|flight| flight.not_before).max();
        *self.struck_by_kind.entry(FaultKind::SlowZeroes).or_default() += 1;
        Some(
            self.running
                .now
                .max(before.unwrap_or(self.running.now))
                .after(Duration(length * ZEROING_NANOS_PER_BYTE)),
        )
    }

    /// Every other read of the data-disk is done when it is started, if the run has that.
    fn read_early(&self, io: &Io) -> Option<Vec<u8>> {
        let IoOperation::Read { offset, buffer } = &io.operation else { return None };
        let is_early =
            self.early_reads && io.device == Device::DataDisk && io.id.0.is_multiple_of(2);
        if !is_early || *self.engine().phase() != Phase::Running {
            return None;
        }
        let mut bytes = vec![0; buffer.len()];
        self.data_disk.read(*offset, &mut bytes).ok().map(|()| bytes)
    }

    /// Asks for something; the reply comes among [`Running::replies`].
    pub fn submit(&mut self, operation: Operation, fua: bool) -> RequestId {
        let id = RequestId(self.running.next_request);
        let request = self.running.request(operation, fua);
        self.input(request);
        id
    }

    /// Lets time pass.
    pub fn pass(&mut self, duration: Duration) {
        self.running.now = self.running.now.after(duration);
        self.input(Input::Timeout);
    }

    /// Time passes, and nobody hears of it before something else happens.
    pub fn jump(&mut self, duration: Duration) {
        self.running.now = self.running.now.after(duration);
    }

    /// Lets time pass to the moment that the engine waits for, and to the end of a slow I/O if that
    /// is earlier; not so long that an I/O would be given up that could end. False if nothing will
    /// ever happen.
    pub fn wake(&mut self) -> bool {
        if !self.running.has_ready_io() && self.keeper.is_keeping() {
            self.keeper.hurry();
            self.running.now = self.running.now.after(Duration::from_micros(1));
            self.input(Input::Timeout);
            return true;
        }
        let Some(at) = self.running.next_moment() else { return !self.running.ios.is_empty() };
        if at > self.running.now.after(WAIT_MAX) && self.running.has_ready_io() {
            return true;
        }
        self.running.now = at;
        self.input(Input::Timeout);
        true
    }

    /// Ends an I/O that may end now; without one, lets time pass.
    pub fn end_one_io(&mut self, random: &mut Random) {
        match self.running.take_ready(random) {
            Some(flight) => self.end(flight, random),
            None => {
                self.wake();
            }
        }
    }

    /// Ends an I/O, or lets time pass until one can end or the engine wants to be asked. False if
    /// nothing will ever happen.
    pub fn go_on(&mut self, random: &mut Random) -> bool {
        match self.running.ios.is_empty() {
            true => self.wake(),
            false => {
                self.end_one_io(random);
                true
            }
        }
    }

    /// Ends the I/O with this index.
    pub fn end_io(&mut self, index: usize, random: &mut Random) {
        let flight = self.running.ios.remove(index);
        self.end(flight, random);
    }

    fn end(&mut self, flight: Flight, random: &mut Random) {
        let done = self.perform(flight, random);
        self.input(Input::IoDone(done));
    }

    // ---- doing an I/O -------------------------------------------------------------------------

    pub(crate) fn disk(&mut self, device: Device) -> &mut FaultyDisk {
        match device {
            Device::CacheDisk => &mut self.cache_disk,
            Device::DataDisk => &mut self.data_disk,
            Device::Leg(leg) => {
                let legs = self.legs.as_mut().expect("the cache-disk is on legs");
                legs.disk_of(leg, &mut self.cache_disk)
            }
            Device::Witness => {
                let legs = self.legs.as_mut().expect("the cache-disk is on legs");
                &mut legs.witness.as_mut().expect("they have one").disk
            }
            Device::Member(_) | Device::Nvram => unreachable!("there is no such thing here"),
        }
    }

    fn legs_of(&mut self) -> Option<LegsOf<'_>> {
        let Host { running, cache_disk: first, legs, .. } = self;
        legs.as_mut().map(|legs| LegsOf { running, first, legs })
    }

    fn take_trap(&mut self, io: &Io, wanted: impl Fn(FaultKind) -> bool) -> Option<FaultKind> {
        let kind = io_kind(&io.operation);
        let fits = |trap: &Trap| wanted(trap.kind) && trap.fits(io.device, kind);
        let index = self.pending.traps.iter().position(fits)?;
        let trap = self.pending.traps.swap_remove(index);
        self.pending.struck += 1;
        *self.struck_by_kind.entry(trap.kind).or_default() += 1;
        self.running.trace(|| format!("   {} strikes {io:?}", trap.kind.name()));
        Some(trap.kind)
    }

    fn sweep_fires(&mut self, io: &Io) -> bool {
        let Some(rule) = &mut self.pending.sweep else { return false };
        if rule.device != io.device || rule.io != io_kind(&io.operation) {
            return false;
        }
        if rule.passes > 0 {
            rule.passes -= 1;
            return false;
        }
        if self.pending.has_swept && !rule.is_sticky {
            return false;
        }
        self.pending.has_swept = true;
        self.pending.struck += 1;
        self.running.trace(|| format!("   the sweep fails {io:?}"));
        true
    }

    fn perform(&mut self, flight: Flight, random: &mut Random) -> IoDone {
        let Flight { mut io, flush_mark, early, .. } = flight;
        let trap = if self.sweep_fires(&io) {
            Some(match io_kind(&io.operation) {
                IoKind::Read => FaultKind::ReadErrorOnce,
                IoKind::Flush => FaultKind::FlushErrorDropped,
                _ => FaultKind::WriteError,
            })
        } else if self.pending.traps.is_empty() {
            None
        } else {
            self.take_trap(&io, |kind| !matches!(kind, FaultKind::Slow | FaultKind::Hang))
        };
        let device = io.device;
        if let (Device::Leg(leg), Some(mut legs)) = (device, self.legs_of())
            && let Some(error) = legs.strike(leg, &io, random)
        {
            return ended(io, Err(error));
        }
        if let (Device::Witness, Some(mut legs)) = (device, self.legs_of())
            && let Some(error) = legs.strike_witness(&io, random)
        {
            return ended(io, Err(error));
        }
        let result = match &mut io.operation {
            IoOperation::Read { offset, buffer } => match trap {
                Some(FaultKind::MisdirectedRead) => self.misread(device, *offset, buffer, random),
                Some(_) => Err(IoError::Failed),
                None => self.disk(device).read(*offset, buffer.bytes_mut()).map(|()| {
                    if let Some(early) = early {
                        buffer.bytes_mut().copy_from_slice(&early);
                    }
                }),
            },
            IoOperation::Write { offset, data, fua } => {
                // The engine does not change these bytes meanwhile; the borrow checker cannot know.
                let engine = self.running.engine.take().expect("an engine runs");
                let bytes = bytes_of(data, engine.segment_memory());
                let result = self.write(device, *offset, bytes, *fua, trap, random);
                self.running.engine = Some(engine);
                result
            }
            IoOperation::WriteZeroes { .. } if self.disk(device).cannot_zero => {
                Err(IoError::Unsupported)
            }
            IoOperation::WriteZeroes { offset, length, .. } => {
                let zeroes = vec![0; *length as usize];
                self.write(device, *offset, &zeroes, false, trap, random)
            }
            IoOperation::Flush => {
                let disk = self.disk(device);
                match trap {
                    Some(FaultKind::FlushErrorDropped) => {
                        disk.drop_unflushed(random);
                        if device == Device::DataDisk {
                            // A start may take what the kernel still shows for what is there, and
                            // find it changed after the next power cut.
                            self.allowed.refusal = true;
                            self.shows_what_is_lost |= *self.engine().phase() == Phase::Opening;
                        }
                        Err(IoError::Failed)
                    }
                    Some(_) => Err(IoError::Failed),
                    None => disk.flush(flush_mark),
                }
            }
        };
        ended(io, result)
    }

    fn write(
        &mut self,
        device: Device,
        offset: u64,
        bytes: &[u8],
        fua: bool,
        trap: Option<FaultKind>,
        random: &mut Random,
    ) -> Result<(), IoError> {
        let length = bytes.len() as u64;
        let disk = self.disk(device);
        match trap {
            None => disk.write(offset, bytes, fua),
            Some(FaultKind::LostWrite) => {
                self.promise_broken(device, offset, length);
                Ok(())
            }
            Some(FaultKind::MisdirectedWrite) => {
                let unit = if device == Device::CacheDisk { 4096 } else { 512 };
                let places = (disk.len() as u64 - length) / unit;
                let elsewhere = random.below(places + 1) * unit;
                disk.write(elsewhere, bytes, fua)?;
                self.promise_broken(device, offset, length);
                self.promise_broken(device, elsewhere, length);
                Ok(())
            }
            Some(FaultKind::ShortWrite) => {
                let landed = random.below(length / 512 + 1) * 512;
                disk.write(offset, &bytes[..landed as usize], false)?;
                Err(IoError::Failed)
            }
            Some(FaultKind::NoSpace) => Err(IoError::NoSpace),
            Some(_) => {
                disk.land(offset, bytes, Fate::draw(random), random);
                Err(IoError::Failed)
            }
        }
    }

    /// A disk did not do what it said, here.
    pub fn promise_broken(&mut self, device: Device, offset: u64, length: u64) {
        // Copies are rebuilt from the data-disk; behind them is the end mark, without which nothing
        // opens.
        let end_mark = (self.cache_disk.len() - END_MARK_BYTES) as u64;
        let geometry = self.running.engine.as_ref().map(|it| it.superblock().geometry);
        let read_area = geometry.map_or(u64::MAX, |it| it.read_area_offset());
        let is_in_copies = offset >= read_area && offset + length <= end_mark;
        if device == Device::CacheDisk && is_in_copies {
            return;
        }
        self.allowed.refusal = true;
        self.allowed.reads_fail = true;
        match device {
            Device::CacheDisk => self.allowed.level = self.allowed.level.max(Level::Ever),
            // If it is torn, with its neighbours.
            Device::DataDisk => {
                let first = offset / 4096 * 4096;
                let end = (offset + length).next_multiple_of(4096);
                self.allowed.taint_bytes(first, end - first);
            }
            Device::Member(_) | Device::Leg(_) | Device::Witness | Device::Nvram => {
                unreachable!("it has troubles of its own")
            }
        }
    }

    fn misread(
        &mut self,
        device: Device,
        offset: u64,
        buffer: &mut Buffer,
        random: &mut Random,
    ) -> Result<(), IoError> {
        let length = buffer.len() as u64;
        self.promise_broken(device, offset, length);
        let disk = self.disk(device);
        let places = (disk.len() as u64 - length) / 512;
        disk.read(random.below(places + 1) * 512, buffer.bytes_mut())
    }

    fn note_partial_sectors(&mut self, offset: u64, length: u64) {
        let sector = self.data_disk_sector();
        let end = offset + length;
        let ends_whole = end.is_multiple_of(sector) || end == self.data_disk.len() as u64;
        if !offset.is_multiple_of(sector) || !ends_whole {
            self.partial_sectors += 1;
            // Torn, such a sector may take its neighbours with it (C15: "differs in one case").
            let first = offset / sector * sector;
            let last = end.next_multiple_of(sector).min(self.data_disk.len() as u64);
            self.allowed.taint_bytes(first, last - first);
        }
    }

    fn data_disk_sector(&self) -> u64 {
        u64::from(self.running.engine.as_ref().map_or(512, |e| e.data_disk().physical_sector_size))
    }

    // ---- a cache-disk of another size ---------------------------------------------------------

    /// Somebody makes the cache-disk larger, all its legs. What is there then may be anything, but
    /// the same on all.
    pub fn make_cache_disk_larger(&mut self, bytes: u64) {
        let before = self.cache_disk.len();
        let length = before.max(bytes as usize);
        self.cache_disk.resize(length);
        let end = self.engine().superblock().end() as usize;
        let is_unused = self.engine().resize_report().is_none() && !self.uses_behind(end);
        let Some(legs) = &mut self.legs else { return };
        legs.disk.resize(length);
        if is_unused {
            for offset in (end..length).step_by(4096) {
                self.cache_disk.rot(offset, &[0; 4096]);
                legs.disk.rot(offset, &[0; 4096]);
            }
        }
    }

    /// Somebody cuts the cache-disk, all its legs, behind what is in use. A kernel that still has
    /// I/Os there keeps it.
    pub fn cut_cache_disk(&mut self) {
        let end = self.engine().superblock().end() as usize;
        if self.uses_behind(end) {
            return;
        }
        self.cache_disk.resize(end);
        if let Some(legs) = &mut self.legs {
            legs.disk.resize(end);
        }
    }

    fn uses_behind(&self, end: usize) -> bool {
        self.running.ios.iter().any(|flight| {
            let is_cache = matches!(flight.io.device, Device::CacheDisk | Device::Leg(_));
            let io_end = match &flight.io.operation {
                IoOperation::Read { offset, buffer } => *offset + buffer.bytes().len() as u64,
                IoOperation::Write { offset, data, .. } => {
                    let length = match data {
                        IoData::Owned(buffer) => buffer.bytes().len(),
                        IoData::SegmentMemory(range) => range.len(),
                    };
                    *offset + length as u64
                }
                IoOperation::WriteZeroes { offset, length, .. } => offset + length,
                IoOperation::Flush => 0,
            };
            is_cache && io_end > end as u64
        })
    }

    // ---- crashing -----------------------------------------------------------------------------

    /// What a crash at this instant leaves. I/Os under way have happened, or not, or in part.
    pub fn wreck(&self, power: bool, random: &mut Random, options: &Options) -> Wreck {
        self.wreck_with(power, random, |random, is_flying| {
            draw_fate(random, is_flying && !power, options)
        })
    }

    /// The same, with a say in what becomes of each write: `draw` is told whether it was under way.
    pub fn wreck_with(
        &self,
        power: bool,
        random: &mut Random,
        mut draw: impl FnMut(&mut Random, bool) -> Fate,
    ) -> Wreck {
        let mut wreck = Wreck {
            cache_disk: self.cache_disk.clone(),
            data_disk: self.data_disk.clone(),
            legs: self.legs.clone(),
            memory: None,
            session: self.session,
            now: self.running.now,
        };
        let has_run = |engine: &&Engine| matches!(engine.phase(), Phase::Running | Phase::Closed);
        if let Some(engine) = self.running.engine.as_ref().filter(has_run) {
            let rests = self.rests_in_memory && engine.memory_use() == MemoryUse::InUse;
            wreck.session.acknowledged = rests;
        }
        if power {
            wreck.session.boot = wreck.session.boot.wrapping_add(1);
            wreck.session.acknowledged = false;
        }
        let memory = self.running.engine.as_ref().map(Engine::segment_memory);
        if let (Some(legs), Some(engine)) = (&mut wreck.legs, &self.running.engine) {
            legs.note(&engine.legs().collect::<Vec<_>>(), engine.leg_witness());
        }
        for flight in &self.running.ios {
            let disk = match flight.io.device {
                Device::CacheDisk => &mut wreck.cache_disk,
                Device::DataDisk => &mut wreck.data_disk,
                Device::Leg(leg) => {
                    let legs = wreck.legs.as_mut().expect("the cache-disk is on legs");
                    legs.disk_of(leg, &mut wreck.cache_disk)
                }
                Device::Witness => {
                    let legs = wreck.legs.as_mut().expect("the cache-disk is on legs");
                    &mut legs.witness.as_mut().expect("they have one").disk
                }
                Device::Member(_) | Device::Nvram => unreachable!("there is no such thing here"),
            };
            let memory = memory.unwrap_or_default();
            if let Some((offset, bytes)) = flight.written(memory, !disk.cannot_zero) {
                let fate = draw(random, true);
                disk.land(offset, &bytes, fate, random);
            }
        }
        // What vanished is there again.
        wreck.cache_disk.failing = None;
        wreck.data_disk.failing = None;
        if let Some(legs) = &mut wreck.legs {
            legs.disk.failing = None;
            if let Some(witness) = &mut legs.witness {
                witness.disk.failing = None;
                if power {
                    witness.disk.power_cut(random, |random| draw(random, false));
                }
            }
            if power {
                legs.disk.power_cut(random, |random| draw(random, false));
            }
        }
        if power {
            wreck.cache_disk.power_cut(random, |random| draw(random, false));
            wreck.data_disk.power_cut(random, |random| draw(random, false));
        } else {
            wreck.memory = memory.map(<[u8]>::to_vec);
        }
        wreck
    }

    /// Writes that a power cut now may take, or tear, or leave.
    pub fn uncertain_writes(&self) -> usize {
        let flying = self.running.ios.iter().filter(|flight| {
            matches!(io_kind(&flight.io.operation), IoKind::Write | IoKind::Discard)
        });
        let of_second = self.legs.as_ref().map_or(0, |legs| legs.disk.volatile_count());
        flying.count()
            + self.cache_disk.volatile_count()
            + self.data_disk.volatile_count()
            + of_second
    }

    /// The image of a disk, for [`FaultyDisk::restore`].
    pub fn images(&self) -> [Pages; 2] {
        [self.cache_disk.snapshot(), self.data_disk.snapshot()]
    }
}

/// What becomes of a write; one whose process died while the disks lived on is not torn.
fn draw_fate(random: &mut Random, never_torn: bool, options: &Options) -> Fate {
    if never_torn || options.faults.contains(&FaultKind::DropWrites) {
        return random.pick(&[Fate::Dropped, Fate::Kept]);
    }
    if options.faults.contains(&FaultKind::TearWrites) {
        return Fate::Torn;
    }
    Fate::draw(random)
}

/// What an I/O does.
pub fn io_kind(operation: &IoOperation) -> IoKind {
    match operation {
        IoOperation::Read { .. } => IoKind::Read,
        IoOperation::Write { .. } => IoKind::Write,
        IoOperation::WriteZeroes { .. } => IoKind::Discard,
        IoOperation::Flush => IoKind::Flush,
    }
}
