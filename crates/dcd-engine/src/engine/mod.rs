//! The engine: its fields, its two entrances, and the only dispatch.
//!
//! Each path is one file: `write`, `read`, `flush` (what is durable when), `zero` (discard and
//! write-zeroes), `bypass`, `destage`, `checkpoint`, `recover`, `close`, `uncached` (without a
//! cache-disk), `volume` (with a volume below).

mod announce;
mod arrange;
mod asked_places;
mod below;
mod bypass;
mod checkpoint;
mod close;
mod destage;
mod detect;
mod dirty_map;
mod discards;
mod fixed_cost;
mod flush;
mod gather;
mod grow_volume;
mod health;
mod index;
mod invariants;
mod legs;
mod log_again;
mod log_use;
mod lost;
mod mode;
mod name_nvram;
mod pace;
mod prefetch;
mod promote;
mod purge;
mod read;
mod recover;
mod resize;
mod sequences;
mod stuck;
mod uncached;
mod volume;
mod window;
mod witness;
mod write;
mod zero;
mod zero_pace;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub use self::dirty_map::{DIRTY_CELLS_MAX, DirtyMap};
pub use self::grow_volume::GrowRefusal;

use self::below::Below;
use self::discards::Owner;
use crate::buffer::{Buffer, SegmentMemory};
use crate::buffer_pool::BufferPool;
use crate::config::{AckMode, ConfigError, DataDiskInfo, EngineConfig, Mode, SEGMENT_BUFFERS_MIN};
use crate::copies::clean_lines::CleanLines;
use crate::copies::{Copies, Sequence, SlotState};
use crate::error::{FormatError, OpenError, VolumeOpenError};
use crate::format::superblock::DATA_DISK_BLOCKS_MAX;
use crate::format::{Geometry, Superblock};
use crate::io::{
    Device, Input, Io, IoData, IoDone, IoError, IoId, IoOperation, IoOwner, Operation, Output,
    Reply, Request, RequestError, RequestId, SequenceError, SequenceRequest, VolumeRequest,
};
use crate::legs::Legs;
use crate::line_hash::LineHash;
use crate::log::Log;
use crate::log::control::CONTROL_SIZE;
use crate::log::lookup_table::LookupTable;
use crate::log::rebuilt_zeroes::RebuiltZeroes;
use crate::patience::Patience;
use crate::stats::{CacheDiskFailure, Counters, RecoveryReport, Status, Translation};
use crate::units::{
    CopySlot, Duration, FRAGMENTS_PER_LINE, FragmentMask, LbaRange, Line, SlotIndex, Time,
};
use crate::volume::format::area::VolumeArea;
use crate::volume::{Volume, VolumeParts};
use crate::zero_ranges::ZeroRanges;

/// What the segment memory is to the session that has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MemoryUse {
    /// No session has begun: what an earlier one left in it, if it is not new, is all that it
    /// holds.
    #[default]
    NotBegun,
    /// The superblock of the session may be on the cache-disk. What is acknowledged may be nowhere
    /// else.
    InUse,
    /// The session has ended in order: the cache-disk has everything.
    Over,
}

/// Where an engine stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Reads the checkpoint and the log.
    Opening,
    /// Takes requests.
    Running,
    /// Could not start.
    Failed(OpenError),
    /// Shut down or detached; the driver may close the disks.
    Closed,
}

/// A disk, as the cache has it. Whether the data-disk is one or a volume of several is no matter of
/// its paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Disk {
    CacheDisk,
    DataDisk,
}

impl From<Disk> for Device {
    fn from(disk: Disk) -> Device {
        match disk {
            Disk::CacheDisk => Device::CacheDisk,
            Disk::DataDisk => Device::DataDisk,
        }
    }
}

/// What an I/O is for: where its completion goes.
enum Purpose {
    Recover(recover::Step),
    LogWrite { number: crate::units::RecordNumber, fua: bool },
    LogFlush { covers: crate::units::RecordNumber },
    Probe,
    Read(read::Part),
    ReadAhead(prefetch::ChunkId),
    Arrange(arrange::Step),
    Promote(promote::Write),
    MovePage,
    BypassWrite { id: RequestId },
    BypassFlush(bypass::FlushNumber),
    Destage(destage::Step),
    Checkpoint(checkpoint::Step),
    IndexPage(index::PageRead),
    IndexScan(index::ScanPiece),
    Uncached(uncached::Step),
    NameNvram,
    Close,
}

/// An I/O that has been started and has not ended.
struct IoInFlight {
    /// `None`: given up after `io_timeout`; its completion is only taken note of.
    purpose: Option<Purpose>,
    device: Disk,
    is_read: bool,
    /// A flush of the data-disk: what it covers ([`health::Health`]).
    covers: Option<u64>,
    /// By the clock of [`Patience`].
    started: Time,
    /// How much longer than `io_timeout` it may take: it does more than others, or is behind one
    /// that does.
    allowance: Duration,
    /// Given up, but it was to zero these lines; perhaps it will have.
    late_zeroes: Option<(Line, u64)>,
}

/// The cache. See [`crate::io`] for the rules of driving it.
pub struct Engine {
    config: EngineConfig,
    superblock: Superblock,
    data_disk: DataDiskInfo,
    phase: Phase,
    opened_at: Time,
    now: Time,
    patience: Patience,
    outputs: VecDeque<Output>,
    ios: BTreeMap<IoId, IoInFlight>,
    /// How many of them each disk has, by [`Disk`].
    ios_of: [u32; 2],
    next_io: u64,
    /// Those that may take longer than others.
    ios_with_allowance: BTreeSet<IoId>,

    log: Log,
    table: LookupTable,
    /// Who waits for what of it is not in memory.
    index: index::Index,
    /// Lines that read as zeroes unless the table has something newer.
    zeroes: ZeroRanges,
    /// The same, while they are being brought to the data-disk.
    zeroes_destaging: ZeroRanges,
    /// Both together, and what a start would make of the log.
    zeroes_rebuilt: RebuiltZeroes,
    /// Lines that cannot be destaged while a member of the volume is away.
    stuck: stuck::Stuck,
    /// Fragments whose newest copy is damaged: they fail until overwritten (C19, C21).
    poisoned: BTreeMap<Line, FragmentMask>,
    /// More was damaged than a checkpoint lists: the rest is found anew wherever it is read.
    has_unlisted_poison: bool,
    /// What is damaged and has no room in that list.
    unlisted: lost::Unlisted,
    witnesses: witness::Witnesses,
    /// Clean copies in the read area.
    copies: Copies,
    /// Counts the writes to the data-disk that have ended: what was read before may be old.
    data_disk_changes: u64,
    prefetch: prefetch::Prefetch,
    arranging: arrange::Arranging,
    promotion: promote::Promotion,
    /// Lines that were destaged and can still be read from the log; `None`: they are not looked
    /// for.
    clean: Option<CleanLines>,
    /// `None`: sequences are not looked for.
    detection: Option<detect::Detection>,
    /// The copy that was read last: about where the head of the cache-disk is.
    last_copy_read: CopySlot,
    access_times: read::AccessTimes,

    stalled: VecDeque<write::Stalled>,
    /// Since when the one of them waits whose time is over first.
    stalled_since: Option<Time>,
    reads: read::Reads,
    commit: flush::Commit,
    bypasses: Vec<bypass::Bypass>,
    /// The newest flush for them.
    bypass_flushes: bypass::FlushNumber,
    destage: destage::Destage,
    pace: pace::Pace,
    zero_pace: zero_pace::ZeroPace,
    checkpoint: checkpoint::Checkpointing,
    recovery: Option<Box<recover::Recovery>>,
    close: Option<close::Closing>,

    log_again: log_again::LogAgain,
    log_use: log_use::LogUse,
    health: health::Health,
    /// It has failed while clean: on without it (C23).
    passing_by: Option<uncached::PassingBy>,
    /// Whether changes go to the log, and the switch under way.
    mode: mode::ModeSwitch,
    purge: purge::Purge,
    windows: window::Windows,
    resize: resize::Resizing,
    below: Below,
    /// If the cache-disk is on several.
    legs: Option<Box<Legs>>,
    /// Who waits until no start believes a leg any more that was taken out.
    behind_legs: Vec<RequestId>,
    discards: discards::Discards,
    /// Flushes and the like that wait for the volume to make its tables durable.
    behind_commits: BTreeMap<RequestId, volume::BehindCommit>,
    /// For reads of the engine's own, which are copied out of.
    buffers: BufferPool,
    counters: Counters,
    recovery_report: RecoveryReport,
    memory_use: MemoryUse,
    /// The superblock is being told of another memory in front of the log, or of none.
    naming: Option<name_nvram::Naming>,
    nvram_name_is_unsure: bool,
    /// A close leaves the memory in front of the log named.
    nvram_holds_data: bool,
}

impl Engine {
    /// Bytes of segment memory that an engine with these settings needs.
    pub fn segment_memory_size(geometry: &Geometry, config: &EngineConfig) -> usize {
        CONTROL_SIZE + config.segment_buffers as usize * geometry.segment_size_bytes as usize
    }

    /// The number of segment buffers for which segment memory of this size was made; `None` if it
    /// was never made by an engine with this geometry.
    pub fn segment_buffers_of(geometry: &Geometry, memory_size: u64) -> Option<u32> {
        let buffers = memory_size.checked_sub(CONTROL_SIZE as u64)?;
        let count = u32::try_from(buffers / geometry.segment_size_bytes).ok()?;
        let is_whole = buffers.is_multiple_of(geometry.segment_size_bytes);
        (is_whole && count >= SEGMENT_BUFFERS_MIN).then_some(count)
    }

    /// Starts opening a cache. Errors that can be seen without reading are returned; others make
    /// the phase [`Phase::Failed`]. Give [`Input::Timeout`] once, then drive as always.
    ///
    /// # Panics
    /// If `memory` is not [`Engine::segment_memory_size`] long.
    pub fn open(
        now: Time,
        superblock: Superblock,
        cache_disk_bytes: u64,
        data_disk: DataDiskInfo,
        config: EngineConfig,
        memory: Box<dyn SegmentMemory>,
    ) -> Result<Engine, OpenError> {
        if superblock.volume_bytes > 0 {
            return Err(OpenError::NeedsMembers);
        }
        let below = Below::OneDisk;
        Engine::open_on(now, superblock, cache_disk_bytes, data_disk, below, config, memory)
    }

    /// The same for a cache with a volume of several members.
    ///
    /// # Panics
    /// If `memory` is not [`Engine::segment_memory_size`] long.
    pub fn open_volume(
        now: Time,
        superblock: Superblock,
        cache_disk_bytes: u64,
        parts: VolumeParts,
        config: EngineConfig,
        memory: Box<dyn SegmentMemory>,
    ) -> Result<Engine, OpenError> {
        if superblock.volume_bytes == 0 {
            return Err(OpenError::HasNoMembers);
        }
        if parts.header.uuid != superblock.uuid {
            let (expected, found) = (superblock.uuid, parts.header.uuid);
            let what = "the header of the volume";
            return Err(OpenError::Format(FormatError::Uuid { what, expected, found }));
        }
        // Tables are made from here on: as large as what is there for them on the disk, not as any
        // header says.
        let (expected, found) = (superblock.end(), cache_disk_bytes);
        if found < expected {
            return Err(OpenError::CacheDiskShort { expected, found });
        }
        let area = VolumeArea::of(&parts.header, superblock.volume_offset());
        if area.is_none_or(|area| area.bytes() != superblock.volume_bytes) {
            return Err(VolumeOpenError::Header.into());
        }
        let data_disk = Volume::data_disk_info(&parts.header.config);
        let mut volume = Volume::open(now, parts, superblock.volume_offset())?;
        volume.configure(&config);
        let below = Below::Volume(Box::new(volume));
        Engine::open_on(now, superblock, cache_disk_bytes, data_disk, below, config, memory)
    }

    fn open_on(
        now: Time,
        superblock: Superblock,
        cache_disk_bytes: u64,
        data_disk: DataDiskInfo,
        below: Below,
        config: EngineConfig,
        memory: Box<dyn SegmentMemory>,
    ) -> Result<Engine, OpenError> {
        config.validate()?;
        let mut config = config;
        let legs = match (superblock.has_legs, config.legs.take()) {
            (false, Some(_)) => return Err(OpenError::HasNoLegs),
            (true, None) => return Err(OpenError::NeedsLegs),
            (_, parts) => parts,
        };
        let geometry = superblock.geometry;
        check_mode(&config, &below, geometry.copy_pages > 0)?;
        if config.no_log && geometry.copy_pages > 0 {
            return Err(OpenError::ReadAreaWithoutLog);
        }
        // What was read ahead or kept would not learn of changes that go past the log.
        let config = match config.no_log {
            true => {
                EngineConfig { read_ahead_bytes: 0, hot_blocks: false, detector: None, ..config }
            }
            false => config,
        };
        assert_eq!(memory.bytes().len(), Engine::segment_memory_size(&geometry, &config));
        check_nvram(&superblock, &config)?;
        check_sizes(&superblock, cache_disk_bytes, data_disk, config.grow)?;
        let legs = legs.map(|it| Legs::open(now, *it, superblock.end(), config.io_timeout));
        let legs = legs.transpose().map_err(OpenError::Format)?.map(Box::new);
        let hash = LineHash::new(config.hash_seed);
        let budget = index::budget_of(&config, &geometry, below.is_volume())?;
        let disk_lines = data_disk.blocks.div_ceil(FRAGMENTS_PER_LINE);
        let mut engine = Engine {
            phase: Phase::Opening,
            opened_at: now,
            now,
            patience: Patience::new(now, config.shortest_wait(below.is_volume())),
            outputs: VecDeque::new(),
            ios: BTreeMap::new(),
            ios_of: [0; 2],
            next_io: 0,
            ios_with_allowance: BTreeSet::new(),
            log: Log::new(superblock.uuid, geometry, memory),
            table: LookupTable::with_budget(
                geometry.slots(),
                geometry.data_slots_max(),
                disk_lines,
                hash,
                budget,
            ),
            index: index::Index::default(),
            zeroes: ZeroRanges::default(),
            zeroes_destaging: ZeroRanges::default(),
            zeroes_rebuilt: RebuiltZeroes::default(),
            stuck: stuck::Stuck::default(),
            poisoned: BTreeMap::new(),
            has_unlisted_poison: false,
            unlisted: lost::Unlisted::default(),
            witnesses: witness::Witnesses::new(
                superblock.uuid,
                data_disk,
                config.limits.recent_witnesses,
            ),
            copies: Copies::new(superblock.uuid, geometry.copy_pages, hash),
            data_disk_changes: 0,
            prefetch: prefetch::Prefetch::default(),
            arranging: arrange::Arranging::default(),
            promotion: promote::Promotion::new(geometry.copy_slots(), hash),
            clean: (config.hot_blocks && !config.one_disk && budget.is_none()).then(|| {
                let at_once = config.limits.discarded_lines;
                CleanLines::new(geometry.segments, geometry.slots_per_segment(), at_once, hash)
            }),
            detection: config
                .detector
                .filter(|_| geometry.copy_pages > 0)
                .map(detect::Detection::new),
            last_copy_read: CopySlot(0),
            access_times: read::AccessTimes::default(),
            stalled: VecDeque::new(),
            stalled_since: None,
            reads: read::Reads::default(),
            commit: flush::Commit::default(),
            bypasses: Vec::new(),
            bypass_flushes: Default::default(),
            destage: destage::Destage::default(),
            pace: pace::Pace::new(now),
            zero_pace: zero_pace::ZeroPace::new(),
            checkpoint: checkpoint::Checkpointing::default(),
            recovery: None,
            close: None,
            log_again: log_again::LogAgain::default(),
            log_use: log_use::LogUse::default(),
            health: health::Health::default(),
            passing_by: None,
            mode: mode::ModeSwitch::default(),
            purge: purge::Purge::default(),
            windows: window::Windows::new(),
            resize: resize::Resizing::default(),
            below,
            legs,
            behind_legs: Vec::new(),
            discards: discards::Discards::default(),
            behind_commits: BTreeMap::new(),
            counters: Counters::default(),
            buffers: BufferPool::default(),
            recovery_report: RecoveryReport::default(),
            memory_use: MemoryUse::NotBegun,
            naming: None,
            nvram_name_is_unsure: false,
            nvram_holds_data: false,
            config,
            superblock,
            data_disk,
        };
        if engine.config.one_disk && !engine.table.has_budget() {
            engine.table.remember_since_checkpoint();
        }
        engine.configure_legs();
        engine.start_recovery();
        engine.advance_legs();
        Ok(engine)
    }

    /// Tells the engine what has happened at `now`.
    ///
    /// # Panics
    /// On a driver's mistake: time going back, an I/O that was never started, a request before the
    /// phase is [`Phase::Running`] or beyond the volume; and on a broken invariant of the engine.
    pub fn handle_input(&mut self, now: Time, input: Input) {
        assert!(now >= self.now, "time does not go back");
        self.now = now;
        self.checkpoint.input_came();
        self.purge.go_on();
        self.resize.input_came();
        self.go_on_searching();
        self.index.go_on();
        self.below.input_came();
        if let Some(recovery) = &mut self.recovery {
            recovery.input_came();
        }
        self.patience.pass(now, matches!(input, Input::Timeout));
        self.below.set_patience(self.patience);
        if let Some(legs) = &mut self.legs {
            legs.set_patience(self.patience);
        }
        match input {
            Input::Request(request) => self.request(request),
            Input::IoDone(done) => match (done.id.owner(), &mut self.legs) {
                (IoOwner::Legs, Some(legs)) => legs.io_done(done),
                _ => self.io_of_one_done(done),
            },
            Input::WindowKept { window, is_kept } => self.window_was_kept(window, is_kept),
            Input::Timeout => {}
        }
        self.give_up_hung_ios();
        self.advance();
        self.advance_volume();
        self.advance_legs();
    }

    /// An I/O of the cache or of the volume has ended.
    fn io_of_one_done(&mut self, done: IoDone) {
        match (done.id.owner(), &mut self.below) {
            (IoOwner::Volume, Below::Volume(volume)) => volume.io_done(self.now, done),
            _ => self.io_done(done),
        }
    }

    /// What the engine wants next.
    pub fn poll_output(&mut self) -> Output {
        match self.next_output() {
            Some(output) => output,
            None => Output::Wait { until: self.next_wake_up() },
        }
    }

    /// The same for a driver that has more inputs at hand: `None` instead of a wait, whose end
    /// takes a look at everything.
    pub fn next_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn request(&mut self, request: Request) {
        assert!(
            matches!(self.phase, Phase::Running | Phase::Closed),
            "requests come when the phase is Running"
        );
        if matches!(request.operation, Operation::CancelDetach) {
            self.cancel_detach();
            return self.reply(request.id, Ok(()), None);
        }
        if self.close.is_some() || matches!(self.phase, Phase::Closed) {
            return self.reply(request.id, Err(RequestError::ShuttingDown), None);
        }
        if self.config.read_only && changes_data(&request.operation) {
            return self.reply(request.id, Err(RequestError::ReadOnly), None);
        }
        if request.fua {
            self.counters.fuas += 1;
        }
        // What clients have allocated and pointed to becomes durable with a flush, and before the
        // end.
        let makes_durable =
            matches!(request.operation, Operation::Flush | Operation::Drain | Operation::Shutdown);
        if makes_durable
            && let Below::Volume(volume) = &mut self.below
            && volume.has_changes_of_requests()
        {
            volume.commit_requests(self.now, request.id);
            let behind = volume::BehindCommit::CarryOut(request.operation);
            self.behind_commits.insert(request.id, behind);
            return;
        }
        if makes_durable {
            return self.carry_out_behind_discards(request);
        }
        self.admit(request);
    }

    fn carry_out(&mut self, request: Request) {
        match request.operation {
            Operation::Read { range, buffer } => self.read(request.id, range, buffer),
            Operation::Write { start, data } => self.write(request.id, start, data, request.fua),
            Operation::WriteZeroes { range, may_unmap } => {
                self.write_zeroes(request.id.into(), range, may_unmap, request.fua);
            }
            Operation::Discard { range } => {
                self.write_zeroes(request.id.into(), range, true, request.fua);
            }
            Operation::Flush => self.flush(request.id),
            Operation::Drain => self.drain(request.id),
            Operation::CancelDrain { drain } => {
                self.end_drains(RequestError::Cancelled, |id| id == drain);
                self.cancel_passing_drain(drain);
                self.cancel_waiting_drain(drain);
                self.reply(request.id, Ok(()), None);
            }
            Operation::Sequence(SequenceRequest::Save) => self.save_copies(request.id),
            Operation::Sequence(wanted) => {
                // What was answered is not forgotten by a crash; what is stored is, until its lines
                // are copied.
                let is_lasting = matches!(
                    wanted,
                    SequenceRequest::Remove { .. }
                        | SequenceRequest::Clear
                        | SequenceRequest::Pin { .. }
                );
                // It would come back with the next start.
                if is_lasting && self.may_use_read_area() == Err(SequenceError::ReadAreaUnused) {
                    let error = SequenceError::ReadAreaUnused.into();
                    return self.reply(request.id, Err(error), None);
                }
                match self.sequence_request(wanted) {
                    Ok(())
                        if is_lasting
                            && self.copies.pages() > 0
                            && !self.has_no_use_for_copies() =>
                    {
                        self.save_copies(request.id);
                    }
                    result => {
                        self.reply(request.id, result.map_err(RequestError::Sequence), None);
                    }
                }
            }
            Operation::Volume(wanted) => self.volume_request(request.id, wanted),
            Operation::FillLeg { leg } => self.fill_leg(request.id, leg),
            Operation::TakeOutLeg { leg } => self.take_out_leg(request.id, leg),
            Operation::Resize { cache_disk_bytes } => self.resize(request.id, cache_disk_bytes),
            Operation::ResizeReadArea { bytes } => self.resize_read_area(request.id, bytes),
            Operation::CancelResize { resize } => {
                self.cancel_resize(resize);
                self.reply(request.id, Ok(()), None);
            }
            // Whoever has one in front does both itself.
            Operation::RemoveNvram => {
                self.reply(request.id, Err(crate::io::NvramChangeError::NoMemory.into()), None);
            }
            Operation::CancelNvramChange { .. } => self.reply(request.id, Ok(()), None),
            Operation::Detach => self.close(request.id, close::Kind::Detach, Vec::new()),
            Operation::DetachAccepting { lost } => {
                self.close(request.id, close::Kind::Detach, lost);
            }
            Operation::CancelDetach => unreachable!("answered above"),
            Operation::Shutdown => self.close(request.id, close::Kind::Shutdown, Vec::new()),
        }
    }

    fn io_done(&mut self, done: IoDone) {
        let io = self.ios.remove(&done.id).expect("an I/O that was started");
        self.ios_of[io.device as usize] -= 1;
        self.ios_with_allowance.remove(&done.id);
        if io.device == Disk::DataDisk && !io.is_read {
            self.data_disk_changes += 1;
            match io.covers {
                Some(covers) if done.result.is_ok() => self.health.data_disk_flushed(covers),
                Some(_) => {}
                None => self.health.data_disk_written(),
            }
        }
        let Some(purpose) = io.purpose else {
            // Came after it had been given up. Its buffer was its own, so it has touched nothing.
            if io.device == Disk::DataDisk && !io.is_read {
                self.health.late_write_ended();
            }
            if let Some((line, lines)) = io.late_zeroes.filter(|_| done.result.is_ok()) {
                self.zeroes_came_late(line, lines);
            }
            return;
        };
        let service = self.patience.waited(io.started);
        if done.result.is_err() {
            match io.device {
                Disk::CacheDisk => self.counters.cache_disk_errors += 1,
                Disk::DataDisk => self.counters.data_disk_errors += 1,
            }
        }
        let result = done.result;
        if let (Purpose::Read(_), Some(buffer)) = (&purpose, &done.buffer) {
            self.access_times.note(io.device, buffer.bytes().len(), service);
        }
        self.dispatch_done(purpose, result, done.buffer, service);
        // Whoever finds the cache-disk gone tells it for all: with a full cache nothing is written
        // to it any more, and only reads, of destaging, could notice.
        let is_gone = io.device == Disk::CacheDisk && result == Err(IoError::Gone);
        if is_gone && io.is_read && self.phase == Phase::Running {
            self.cache_disk_error(IoError::Gone);
        }
    }

    fn dispatch_done(
        &mut self,
        purpose: Purpose,
        result: Result<(), IoError>,
        buffer: Option<Buffer>,
        service: Duration,
    ) {
        match purpose {
            Purpose::Recover(step) => self.recover_io_done(step, result, buffer),
            Purpose::LogWrite { number, fua } => self.log_write_done(number, fua, result),
            Purpose::LogFlush { covers } => self.log_flush_done(covers, result),
            Purpose::Probe => self.probe_done(result),
            Purpose::Read(part) => self.read_part_done(part, result, buffer),
            Purpose::ReadAhead(chunk) => self.read_ahead_done(chunk, result, buffer),
            Purpose::Promote(write) => self.promoted(&write, result),
            Purpose::MovePage => self.page_moved(result),
            Purpose::Arrange(step) => self.arrange_io_done(step, result, buffer),
            Purpose::BypassWrite { id } => self.bypass_write_done(id, result, buffer),
            Purpose::BypassFlush(flush) => self.bypass_flush_done(flush, result),
            Purpose::Destage(step) => self.destage_io_done(step, result, buffer, service),
            Purpose::Checkpoint(step) => self.checkpoint_io_done(step, result, buffer),
            Purpose::IndexPage(read) => self.index_page_read(read, result, buffer),
            Purpose::IndexScan(piece) => self.scan_piece_read(piece, result, buffer),
            Purpose::Uncached(step) => self.uncached_io_done(step, result, buffer, service),
            Purpose::NameNvram => self.nvram_name_written(result),
            Purpose::Close => self.superblock_closed(result),
        }
    }

    /// Lets everything go on that can. Each step may enable another, so they are repeated until
    /// none of them does anything.
    fn advance(&mut self) {
        match self.phase {
            Phase::Opening => return self.advance_recovery(),
            Phase::Running => {}
            Phase::Failed(_) | Phase::Closed => return,
        }
        loop {
            let mut moved = self.advance_index();
            moved |= self.advance_purge();
            moved |= self.admit_stalled();
            moved |= self.advance_bypasses();
            moved |= self.advance_windows();
            moved |= self.advance_destage();
            self.purge.turn_of_destaging_is_over();
            moved |= self.advance_log_again();
            moved |= self.advance_resize();
            moved |= self.advance_naming();
            moved |= self.advance_announcing();
            moved |= self.advance_checkpoint();
            moved |= self.advance_uncached();
            moved |= self.end_paused_streams();
            moved |= self.advance_detection();
            moved |= self.advance_arrange();
            moved |= self.advance_promotion();
            moved |= self.advance_mode();
            moved |= self.advance_close();
            // Last, because the others say what they want to be durable.
            moved |= self.advance_commit();
            if !moved || !self.is_running() {
                return;
            }
        }
    }

    /// Takes requests. Asked behind each input: no comparison of errors.
    fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running)
    }

    /// Until when it would wait now, if nothing else comes: what [`Output::Wait`] says.
    pub fn next_wake_up(&self) -> Option<Time> {
        let hung = self.hung_wake_up();
        let gathering = self.gathering_wake_up();
        if !self.is_running() {
            let hung = hung.filter(|_| !self.is_opening_below());
            return first_of([hung, gathering, self.recovery_wake_up(), self.legs_wake_up()]);
        }
        let stalled = self.stalled_since;
        let stalled = stalled.map(|since| self.patience.wake_up(since, self.config.full_timeout));
        first_of([
            hung,
            gathering,
            stalled,
            self.purge_wake_up(),
            self.index_wake_up(),
            self.commit_wake_up(),
            self.drain_wake_up(),
            self.detach_wake_up(),
            self.mode_wake_up(),
            self.resize_wake_up(),
            self.destage_wake_up(),
            self.window_wake_up(),
            self.clean_checkpoint_wake_up(),
            self.prefetch_wake_up(),
            self.arrange_wake_up(),
            self.detection_wake_up(),
            self.below.wake_up(),
            self.legs_wake_up(),
        ])
    }

    // ---- what every path needs ----------------------------------------------------------------

    fn reply(
        &mut self,
        owner: impl Into<Owner>,
        result: Result<(), RequestError>,
        buffer: Option<Buffer>,
    ) {
        let id = match owner.into() {
            Owner::Client(id) => id,
            Owner::Volume(discard) => return self.discard_ended(discard, result),
        };
        self.unpin_lines_of(id);
        if let Some(before) = self.discards.flush_ended(id)
            && result.is_ok()
            && self.commit_discards(id, before, volume::BehindCommit::Reply)
        {
            return;
        }
        self.outputs.push_back(Output::Reply(Reply { id, result, buffer, answer: None }));
    }

    fn start_io(&mut self, device: Disk, operation: IoOperation, purpose: Purpose) {
        let id = IoId::of(IoOwner::Cache, self.next_io);
        self.next_io += 1;
        let is_read = matches!(operation, IoOperation::Read { .. });
        let is_flush = device == Disk::DataDisk && matches!(operation, IoOperation::Flush);
        let io = IoInFlight {
            purpose: Some(purpose),
            device,
            is_read,
            covers: is_flush.then(|| self.health.covered_by_flush()),
            started: self.patience.now(),
            allowance: Duration(0),
            late_zeroes: None,
        };
        self.ios.insert(id, io);
        self.ios_of[device as usize] += 1;
        let io = Io { id, device: device.into(), operation };
        match &mut self.below {
            Below::Volume(volume) if device == Disk::DataDisk => volume.submit(self.now, io),
            _ => self.send(io),
        }
    }

    fn start_read(&mut self, device: Disk, offset: u64, length: u64, purpose: Purpose) {
        let buffer = self.buffers.take(length as usize);
        self.start_io(device, IoOperation::Read { offset, buffer }, purpose);
    }

    fn start_write(&mut self, device: Disk, offset: u64, data: Buffer, purpose: Purpose) {
        let data = IoData::Owned(data);
        self.start_io(device, IoOperation::Write { offset, data, fua: false }, purpose);
    }

    fn start_flush(&mut self, device: Disk, purpose: Purpose) {
        match device {
            Disk::CacheDisk => self.counters.cache_disk_flushes += 1,
            Disk::DataDisk => self.counters.data_disk_flushes += 1,
        }
        self.start_io(device, IoOperation::Flush, purpose);
    }

    /// The I/O that was started last may take so much longer than others.
    fn allow_last_io(&mut self, allowance: Duration) {
        let mut last = self.ios.last_entry().expect("one was started");
        last.get_mut().allowance = allowance;
        self.ios_with_allowance.insert(*last.key());
    }

    /// The I/Os of which one is given up first: of each disk the oldest (they are numbered in the
    /// order in which they were started), and those that may take longer.
    fn first_to_hang(&self) -> impl Iterator<Item = (IoId, &IoInFlight)> {
        let is_waited_for = |io: &IoInFlight| io.purpose.is_some();
        let oldest = |device: Disk| {
            // Asked after each input: a disk that has none is not looked for among all the other's.
            if self.ios_of[device as usize] == 0 {
                return None;
            }
            let is_one = move |io: &IoInFlight| {
                is_waited_for(io) && io.device == device && io.allowance == Duration(0)
            };
            self.ios.iter().find(|(_, io)| is_one(io)).map(|(id, io)| (*id, io))
        };
        let oldest = [oldest(Disk::CacheDisk), oldest(Disk::DataDisk)];
        let longer = self.ios_with_allowance.iter().filter_map(|id| Some((*id, self.ios.get(id)?)));
        oldest.into_iter().flatten().chain(longer.filter(move |(_, io)| is_waited_for(io)))
    }

    fn hung_wake_up(&self) -> Option<Time> {
        let wake_up = |io: &IoInFlight| self.patience.wake_up(io.started, self.io_limit(io));
        self.first_to_hang().map(|(_, io)| wake_up(io)).min()
    }

    /// A disk that does not answer counts as failed (C26). The I/O is forgotten here; when it ends
    /// after all, its completion changes nothing, but for zeroes ([`Engine::zeroes_came_late`]).
    fn give_up_hung_ios(&mut self) {
        if self.is_opening_below() || !self.patience.looks() {
            return;
        }
        loop {
            let is_over = |io: &IoInFlight| self.patience.is_over(io.started, self.io_limit(io));
            let Some((id, io)) = self.first_to_hang().find(|(_, io)| is_over(io)) else { return };
            let limit = self.io_limit(io);
            let io = self.ios.get_mut(&id).expect("looked at");
            let purpose = io.purpose.take().expect("looked at");
            if let Purpose::Destage(destage::Step::WriteZeroes(piece)) = &purpose {
                io.late_zeroes = Some((piece.line, piece.lines));
            }
            match io.device {
                Disk::CacheDisk => self.counters.cache_disk_errors += 1,
                Disk::DataDisk => self.counters.data_disk_errors += 1,
            }
            if io.device == Disk::DataDisk && !io.is_read {
                self.health.write_lost();
            }
            self.dispatch_done(purpose, Err(IoError::TimedOut), None, limit);
        }
    }

    /// How long an I/O may take.
    fn io_limit(&self, io: &IoInFlight) -> Duration {
        let limit = match io.device {
            Disk::DataDisk => self.config.data_disk_timeout(self.below.is_volume()),
            Disk::CacheDisk => self.cache_disk_timeout(),
        };
        Duration(limit.0.saturating_add(io.allowance.0))
    }

    fn drop_dead_slots(&mut self, dead: &[SlotIndex]) {
        for slot in dead {
            let (segment, _) = self.superblock.geometry.locate(*slot);
            self.stuck.remove(*slot, segment);
            let serial = self.log.segments.get(segment).serial();
            if !self.windows.keeps_slot(*slot, serial) {
                self.log.segments.drop_live(segment);
            }
        }
    }

    /// Takes fragments out of the log: their newest copy is elsewhere or nowhere.
    fn forget(&mut self, line: Line, mask: FragmentMask) {
        self.keep_for_window(line);
        self.forget_clean(line, 1);
        self.leaves_table(line, mask);
    }

    /// The same; who calls this tells what becomes of the slot from which it was destaged before.
    fn leaves_table(&mut self, line: Line, mask: FragmentMask) {
        let dead = self.table.remove(line, mask);
        self.drop_dead_slots(dead.as_slice());
    }

    fn clear_poison(&mut self, line: Line, mask: FragmentMask) {
        if self.poisoned.is_empty() {
            return;
        }
        if let Some(poison) = self.poisoned.get_mut(&line) {
            *poison = poison.without(mask);
            if poison.is_empty() {
                self.poisoned.remove(&line);
            }
        }
    }

    /// The newest copy of these fragments is damaged: they fail until overwritten, and the stale
    /// copy on the data-disk is never shown in their place.
    fn poison(&mut self, line: Line, mask: FragmentMask) {
        self.counters.checksum_errors += 1;
        self.windows.found_damage();
        if self.poison_has_no_room(line) {
            self.has_unlisted_poison = true;
            // No checkpoint could list more. It stays in the table, where every read and every
            // destage finds the damage anew.
            return self.block_destage(line);
        }
        self.forget(line, mask);
        self.checkpoint.found_damage();
        let poison = self.poisoned.entry(line).or_default();
        *poison = poison.or(mask);
        if self.windows.keeps(line) {
            self.cut_anew();
        }
        // What is gathered may lack the line, and its list of damage was made before.
        if self.checkpoint.is_gathering() {
            self.drop_checkpoint();
        }
    }

    /// A checkpoint could not list another damaged line.
    fn poison_has_no_room(&self, line: Line) -> bool {
        self.poisoned.len() as u64 >= self.config.limits.poisoned_lines
            && !self.poisoned.contains_key(&line)
    }

    /// The fragments of a line that exist: fewer than eight at the end of an odd-sized disk.
    fn line_mask(&self, line: Line) -> FragmentMask {
        line.mask_within(LbaRange::new(0, self.data_disk.blocks))
    }

    /// Whether any of these lines is zero in the log, below the table.
    fn is_zero(&self, line: Line) -> bool {
        self.zeroes.contains(line) || self.zeroes_destaging.contains(line)
    }

    // ---- looking from outside -----------------------------------------------------------------

    /// Where it stands.
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// The volume, if there are several data-disks.
    pub fn volume(&self) -> Option<&Volume> {
        self.below.volume()
    }

    /// What becomes of the segment memory if all ends here.
    pub fn memory_use(&self) -> MemoryUse {
        self.memory_use
    }

    /// Whether the superblock goes on naming the memory in front of the log when the cache is
    /// closed: it holds what is nowhere else. To be told before the request to close.
    pub fn set_nvram_holds_data(&mut self, holds_data: bool) {
        self.nvram_holds_data = holds_data;
    }

    /// The memory that [`IoData::SegmentMemory`] speaks of.
    pub fn segment_memory(&self) -> &[u8] {
        self.log.memory()
    }

    /// The data-disk as it is now.
    pub fn data_disk(&self) -> DataDiskInfo {
        self.data_disk
    }

    /// The superblock as it was last written, or is being written: while the engine runs or is
    /// closed, what is on the cache-disk.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Whether the cache-disk has been given up, and what follows from it. Cheap.
    pub fn cache_disk_failure(&self) -> Option<CacheDiskFailure> {
        let error = self.health.cache_disk_error().filter(|_| self.health.cache_disk_failed())?;
        Some(CacheDiskFailure { error, uncached: self.uncached() })
    }

    /// Its settings, as they are now.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// When writes are acknowledged.
    pub fn ack_mode(&self) -> AckMode {
        self.config.ack
    }

    /// Takes over from `wanted` what may change while it runs: when writes are acknowledged, what
    /// goes past the log, when and how fast is destaged, what is verified, and all time-outs. All
    /// else stays as it is. What is under way goes on as it began. The driver gives
    /// [`Input::Timeout`] behind it.
    ///
    /// # Errors
    /// If the settings would not go together, or the superblock of this session would say what is
    /// not so: it tells whether something rests in the segment memory, and for how long. Then
    /// nothing is changed.
    pub fn configure(&mut self, wanted: &EngineConfig) -> Result<(), ConfigError> {
        // Beside what a start alone decides, which `wanted` need not know.
        let with_mode = EngineConfig { mode: wanted.mode, ..self.config.clone() };
        check_mode(&with_mode, &self.below, self.copies.pages() > 0)?;
        let asked_before = self.config.mode_asked;
        self.config.take_over(wanted)?;
        if self.config.mode_asked != asked_before {
            self.mode.try_again();
        }
        self.patience.shortest_limit_is(self.config.shortest_wait(self.below.is_volume()));
        if let Below::Volume(volume) = &mut self.below {
            volume.configure(&self.config);
        }
        self.configure_legs();
        Ok(())
    }

    /// Whether a range lies within the volume and is made of whole logical blocks.
    pub fn check_range(&self, range: LbaRange) -> bool {
        let unit = u64::from(self.data_disk.logical_block_size) / crate::units::BLOCK_SIZE;
        range.start.0.checked_add(range.blocks).is_some_and(|end| end <= self.data_disk.blocks)
            && range.start.0.is_multiple_of(unit)
            && range.blocks.is_multiple_of(unit)
    }

    /// Pieces of `range` in order, each with its length in blocks and whether it is known to read
    /// as zeroes (for NBD block status). At most `pieces_max`; together they may cover less.
    pub fn block_status(&self, range: LbaRange, pieces_max: usize) -> Vec<(u64, bool)> {
        let mut pieces: Vec<(u64, bool)> = Vec::new();
        for (line, mask) in range.lines() {
            // What is not known may be anything.
            let is_zero = self.is_zero(line)
                && (self.is_purged(line)
                    || self.table.is_known(line) && self.pieces(line).as_slice().is_empty());
            let blocks = u64::from(mask.0.count_ones());
            let count = pieces.len();
            match pieces.last_mut() {
                Some((length, zero)) if *zero == is_zero => *length += blocks,
                _ if count == pieces_max => break,
                _ => pieces.push((blocks, is_zero)),
            }
        }
        pieces
    }

    /// The sequences that are kept, in the order of their numbers.
    pub fn sequences(&self) -> impl Iterator<Item = &Sequence> {
        self.copies.sequences()
    }

    /// Whether sequences are followed and read ahead.
    pub fn serves_sequences(&self) -> bool {
        self.prefetch.is_serving()
    }

    /// The copies of a line: where each is on the cache-disk (byte address), the sequence and place
    /// it belongs to (`None`: a hot block), and whether it is true.
    pub fn translate(&self, line: Line) -> Vec<Translation> {
        let slots = self.copies.places(line);
        let translation = |slot| Translation {
            offset: self.superblock.geometry.copy_slot_offset(slot),
            place: self.copies.place_of(slot),
            is_valid: self.copies.slot(slot).state == SlotState::Valid,
        };
        slots.map(translation).collect()
    }

    /// The lines of a sequence in order, each with whether its copy is true.
    pub fn lines_of(&self, sequence: &Sequence) -> Vec<(Line, bool)> {
        let slots = (0..sequence.places()).filter_map(|place| sequence.slot(place));
        let slots = slots.map(|slot| self.copies.slot(slot));
        let lines = slots.filter(|slot| slot.state != SlotState::Empty);
        lines.map(|slot| (slot.line(), slot.state == SlotState::Valid)).collect()
    }

    /// Counts since it was opened.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How the start went.
    pub fn recovery_report(&self) -> &RecoveryReport {
        &self.recovery_report
    }

    /// Pages of the read area for which there are tables: as many as there were since the start.
    pub fn copy_pages_known(&self) -> u32 {
        self.copies.pages_known()
    }

    /// Copies in the read area.
    pub fn copy_counts(&self) -> crate::copies::CopyCounts {
        self.copies.counts()
    }

    /// Whether an I/O that is under way reads for clients: what they asked for, or what is read
    /// ahead for them.
    pub fn serves_reads(&self, id: IoId) -> bool {
        if id.owner() == IoOwner::Volume {
            let above = self.below.volume().and_then(|volume| volume.reads_for(id));
            return above.is_some_and(|above| self.serves_reads(above));
        }
        let purpose = self.ios.get(&id).and_then(|io| io.purpose.as_ref());
        matches!(purpose, Some(Purpose::Read(_) | Purpose::ReadAhead(_)))
    }

    /// Whether it may read what it wrote to this byte of the cache-disk, data of clients apart,
    /// before it is opened anew: for drivers whose disks keep no more than they must.
    pub fn may_read_again(&self, offset: u64) -> bool {
        let geometry = &self.superblock.geometry;
        if self.phase == Phase::Opening {
            return true;
        }
        let areas = geometry.checkpoint_offsets[1] + geometry.checkpoint_area_bytes;
        if (geometry.checkpoint_offsets[0]..areas).contains(&offset) {
            return self.table.has_budget();
        }
        let segment = geometry.segment_at(offset);
        segment.is_none_or(|segment| self.log.segments.get(segment).may_be_read())
    }

    /// A picture of the engine.
    pub fn status(&self) -> Status {
        Status { segment_map: self.log.segments.map(), ..self.brief_status() }
    }

    /// The same without the map of segments, which of a large log takes longest: for who looks each
    /// second whether or not anybody wants to see it.
    pub fn brief_status(&self) -> Status {
        Status {
            uuid: self.superblock.uuid,
            now: self.now,
            volume_blocks: self.data_disk.blocks,
            read_only: self.config.read_only,
            counters: self.counters,
            segments: self.log.segments.counts(),
            segments_total: self.log.segments.total(),
            segment_size_bytes: self.superblock.geometry.segment_size_bytes,
            segment_map: String::new(),
            copies: self.copies.counts(),
            copies_bytes: (self.copies.memory_bytes()
                + self.promotion.memory_bytes()
                + self.clean.as_ref().map_or(0, CleanLines::memory_bytes)
                + self.detection.as_ref().map_or(0, detect::Detection::memory_bytes))
                as u64,
            read_ahead_bytes_held: self.prefetch.bytes_held(),
            dirty_lines: self.table.lines() as u64,
            zero_ranges: (self.zeroes.len() + self.zeroes_destaging.len()) as u64,
            zero_lines: self.zero_lines_left(),
            poisoned_lines: self.lost_lines(),
            index_bytes_max: self.config.index_bytes_max,
            index_bytes: (self.table.memory_bytes() + self.log.segments.memory_bytes()) as u64,
            cache_disk_failed: self.health.cache_disk_failed(),
            cache_disk_error: self.health.cache_disk_error(),
            cache_disk_clean: self.log_use.is_clean(),
            uncached: self.uncached_for_status(),
            mode: self.mode(),
            resize: self.resize_report(),
            destage_retry_at: self.destage.retry_at(self.now),
            destage_trouble: self.destage_trouble(),
            obstacle: self.obstacle(),
            draining: self.destage.is_draining(),
            window: self.window_report(),
            idle_threshold: self.idle_threshold(),
            recovery: self.recovery_report,
        }
    }
}

/// Tables of a volume are in the log: it is served with it, or without it from the start on.
/// A memory in front of the log that is named has to be there.
fn check_nvram(superblock: &Superblock, config: &EngineConfig) -> Result<(), OpenError> {
    let Some(expected) = superblock.nvram else { return Ok(()) };
    let is_it = config.nvram.is_some_and(|nvram| nvram.id == expected.id);
    match is_it || config.nvram_may_be_lost {
        true => Ok(()),
        false => Err(OpenError::Nvram { id: expected.id }),
    }
}

fn check_mode(
    config: &EngineConfig,
    below: &Below,
    has_read_area: bool,
) -> Result<(), ConfigError> {
    if let Some(why) = window::why_not_in_order(config, below.is_volume()) {
        return Err(ConfigError { key: "destage-policy", why });
    }
    let keeps_hot_blocks = has_read_area && config.hot_blocks && !config.one_disk;
    let why = match config.mode {
        Mode::WriteBack => return Ok(()),
        _ if below.is_volume() => "of a volume is write-back, or no-log at a start",
        _ if config.no_log => "is no choice with no-log: nothing is logged",
        Mode::WriteThrough if !keeps_hot_blocks => {
            "needs a read area with hot blocks, on a disk of its own, for what is written; without \
             one write-around is the same"
        }
        Mode::WriteThrough | Mode::WriteAround | Mode::PassThrough => return Ok(()),
    };
    Err(ConfigError { key: "mode", why })
}

/// The sizes of both disks against what the superblock says; the data-disk may only grow, and only
/// if that is wanted (C32).
fn check_sizes(
    superblock: &Superblock,
    cache_disk_bytes: u64,
    data_disk: DataDiskInfo,
    may_grow: bool,
) -> Result<(), OpenError> {
    if cache_disk_bytes < superblock.end() {
        return Err(OpenError::CacheDiskShort {
            expected: superblock.end(),
            found: cache_disk_bytes,
        });
    }
    let expected = superblock.data_disk.blocks;
    let has_grown = may_grow && data_disk.blocks > expected;
    if data_disk.blocks != expected && !has_grown {
        return Err(OpenError::DataDiskSize { expected, found: data_disk.blocks });
    }
    if data_disk.blocks > DATA_DISK_BLOCKS_MAX {
        let (most, found) = (DATA_DISK_BLOCKS_MAX, data_disk.blocks);
        return Err(OpenError::DataDiskTooLarge { most, found });
    }
    Ok(())
}

/// The first of these times. In a loop, which the compiler unrolls: with iterators of optional
/// times it took several times as much.
fn first_of<const N: usize>(times: [Option<Time>; N]) -> Option<Time> {
    let mut first: Option<Time> = None;
    for at in times {
        first = match (first, at) {
            (Some(first), Some(at)) => Some(first.min(at)),
            (first, at) => first.or(at),
        };
    }
    first
}

fn changes_data(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::Write { .. }
            | Operation::WriteZeroes { .. }
            | Operation::Discard { .. }
            | Operation::Volume(
                VolumeRequest::SetAttributes { .. }
                    | VolumeRequest::Allocate { .. }
                    | VolumeRequest::CreatePointer { .. }
                    | VolumeRequest::DeletePointer { .. }
                    | VolumeRequest::Collect
                    | VolumeRequest::SetPointers { .. }
            )
    )
}
