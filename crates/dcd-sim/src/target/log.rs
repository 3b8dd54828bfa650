//! The engine on disk models: the log on one, the data on another, or on the members of a volume;
//! or both on one disk, the log before the data (the papers' *logical DCD*). The same code as in
//! the daemon.
//!
//! Data is zero, and the data-disk keeps none; what the engine itself writes to the cache-disk is
//! kept as long as it may be read again. Nothing starts on that disk a second time, so that is what
//! describes live slots.

mod prehistory;

use std::collections::HashMap;
use std::ops::Range;

use dcd_engine::nvram::HeadPosition;
use dcd_engine::stats::Counters;
use dcd_engine::units::BLOCK_SIZE;
use dcd_engine::volume::format::header::VolumeHeader;
use dcd_engine::volume::status::VolumeCounters;
use dcd_engine::volume::{Volume, VolumeParts};
use dcd_engine::{
    Buffer, DataDiskInfo, Device, Duration, Engine, EngineConfig, Geometry, Input, Io, IoDone,
    IoOperation, Lba, LbaRange, NewSequence, OpenError, Operation, Output, Reply, Request,
    RequestError, RequestId, SequenceRequest, Time,
};
use dcd_testkit::{carry_out, range_of};

use super::data_disks::DataDisks;
use super::disk::DiskTarget;
use super::pages::Pages;
use super::{
    Access, DrainFacts, LogFacts, ReadAreaFacts, SequenceFacts, SetFacts, Target, TargetDone,
    TargetFacts, VolumeFacts,
};
use crate::disk::model::{DiskModel, DiskOperation, DiskRequest, DiskRequestError};
use crate::disk::price::Bill;
use crate::disk::store::StoreFacts;
use crate::new_cache::write_new_cache;

/// No request of a trace: their numbers begin at 0.
const DRAIN: u64 = u64::MAX;
/// Nor this.
const KEEP_SEQUENCE: u64 = u64::MAX - 1;
/// The end of a window, at the data-disk: not a number of an I/O, twice of which is one, too.
const KEEP_WINDOW: u64 = 1 << 62;
/// Buffers that are kept for later writes.
const SPARE_MAX: usize = 256;
/// A drain that moves nothing for so long never ends: the disk takes longer for a write than the
/// engine waits.
const DRAIN_STUCK: Duration = Duration::from_secs(600);

/// A log in front of a disk.
pub struct LogTarget {
    engine: Engine,
    /// With one disk it serves nothing, and only counts.
    cache_disk: DiskTarget,
    data: DataDisks,
    is_one_disk: bool,
    /// Where the data begin on their disk: behind the log, if that is there too.
    data_start_bytes: u64,
    /// What clients see, and in which pieces they may ask for it: smaller requests are rounded
    /// outwards.
    volume_bytes: u64,
    unit_bytes: u64,
    /// What the cache takes of its disk.
    cache_bytes: u64,
    /// Segment buffers.
    segment_bytes: u64,
    /// The window that a bucket makes visible.
    committing: Option<u64>,
    content: Pages,
    /// I/Os at the disks, by the numbers that those know them by.
    ios: HashMap<u64, Io>,
    next_io: u64,
    /// When the engine wants to be woken.
    until: Option<Time>,
    now: Time,
    /// So much later it is by the engine's clock: what was before the first request.
    epoch: Duration,
    /// When requests came that are not answered, and the bytes that they hold.
    submitted: HashMap<u64, (Time, u64)>,
    /// All of these.
    waiting_bytes: u64,
    done: Vec<TargetDone>,
    disk_done: Vec<TargetDone>,
    /// Requests that the engine answered with an error.
    failed: u64,
    /// The counters when counting began.
    counted: Counters,
    /// Those of the volume.
    volume_counted: VolumeCounters,
    /// How it answered the last request to keep a sequence.
    kept: Result<(), RequestError>,
    /// How it answered the last request before those of the trace.
    answer: Option<Result<(), RequestError>>,
    /// The engine has given a drain up: nothing more got to the disk.
    drain_failed: bool,
    /// Buffers of requests that are done, some.
    spare: Vec<Buffer>,
}

/// Why there is no such log.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum LogError {
    /// The model of the cache-disk is smaller than the cache.
    #[error("a cache of {wanted_bytes} bytes does not fit on a disk of {capacity_bytes}")]
    CacheDiskTooSmall {
        /// What the geometry needs.
        wanted_bytes: u64,
        /// What the disk has.
        capacity_bytes: u64,
    },
    /// The engine does not start.
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl LogTarget {
    /// A new, empty log of that geometry on `cache_disk`, open; with [`EngineConfig::one_disk`] on
    /// the first part of the data-disk.
    ///
    /// # Errors
    /// If it does not fit, or its settings do not go together.
    pub fn new(
        geometry: Geometry,
        mut config: EngineConfig,
        cache_disk: DiskModel,
        data_disk: DiskModel,
    ) -> Result<LogTarget, LogError> {
        let is_one_disk = config.one_disk;
        config.data_disk_is_store = data_disk.store().is_some();
        let log_disk = if is_one_disk { &data_disk } else { &cache_disk };
        let (wanted_bytes, capacity_bytes) = (geometry.end(), log_disk.capacity_bytes());
        if wanted_bytes > capacity_bytes {
            return Err(LogError::CacheDiskTooSmall { wanted_bytes, capacity_bytes });
        }
        let data_start_bytes = if is_one_disk { wanted_bytes.next_multiple_of(4096) } else { 0 };
        let sector = data_disk.sector_bytes().max(512);
        let info = DataDiskInfo {
            // Whole lines: the rest of a drive of odd size is not part of the volume.
            blocks: data_disk.capacity_bytes().saturating_sub(data_start_bytes) / 4096 * 8,
            logical_block_size: 512,
            physical_sector_size: if sector > 512 { 4096 } else { 512 },
        };
        let mut content = Pages::default();
        let write = |offset, bytes: &[u8]| content.write(offset, bytes);
        let superblock = write_new_cache(geometry, info, None, write);
        let end = superblock.end();
        let memory = memory_of(&geometry, &config);
        let segment_bytes = memory.len() as u64;
        let engine = Engine::open(Time::ZERO, superblock, end, info, config, Box::new(memory))?;
        let data = DataDisks::one(data_disk);
        LogTarget {
            is_one_disk,
            data_start_bytes,
            segment_bytes,
            content,
            ..LogTarget::of(engine, cache_disk, data)
        }
        .opened()
    }

    /// A new, empty log in front of the members of a new volume.
    ///
    /// # Errors
    /// If it does not fit, or its settings do not go together.
    ///
    /// # Panics
    /// If there are not as many disks as the volume has members.
    pub fn of_volume(
        geometry: Geometry,
        config: EngineConfig,
        cache_disk: DiskModel,
        header: &VolumeHeader,
        members: Vec<DiskModel>,
    ) -> Result<LogTarget, LogError> {
        assert_eq!(members.len(), header.config.members, "each member is a disk");
        let mut content = Pages::default();
        let info = Volume::data_disk_info(&header.config);
        let write = |offset, bytes: &[u8]| content.write(offset, bytes);
        let superblock = write_new_cache(geometry, info, Some(header.clone()), write);
        let (wanted_bytes, capacity_bytes) = (superblock.end(), cache_disk.capacity_bytes());
        if wanted_bytes > capacity_bytes {
            return Err(LogError::CacheDiskTooSmall { wanted_bytes, capacity_bytes });
        }
        let mut data = DataDisks::members(members, &header.config);
        let infos = data.write_labels(superblock.uuid);
        let parts = VolumeParts {
            header: header.clone(),
            members: infos.into_iter().map(Some).collect(),
            others: Vec::new(),
            degraded: false,
        };
        let memory = memory_of(&geometry, &config);
        let segment_bytes = memory.len() as u64;
        let memory = Box::new(memory);
        let engine =
            Engine::open_volume(Time::ZERO, superblock, wanted_bytes, parts, config, memory)?;
        LogTarget { segment_bytes, content, ..LogTarget::of(engine, cache_disk, data) }.opened()
    }

    /// On these disks, nothing done yet.
    fn of(engine: Engine, cache_disk: DiskModel, data: DataDisks) -> LogTarget {
        LogTarget {
            cache_disk: DiskTarget::new(cache_disk),
            data,
            is_one_disk: false,
            data_start_bytes: 0,
            volume_bytes: engine.data_disk().blocks * BLOCK_SIZE,
            unit_bytes: engine.data_disk().logical_block_size.into(),
            cache_bytes: engine.superblock().end(),
            engine,
            segment_bytes: 0,
            committing: None,
            content: Pages::default(),
            ios: HashMap::new(),
            next_io: 0,
            until: None,
            now: Time::ZERO,
            epoch: Duration(0),
            submitted: HashMap::new(),
            waiting_bytes: 0,
            done: Vec::new(),
            disk_done: Vec::new(),
            failed: 0,
            counted: Counters::default(),
            volume_counted: VolumeCounters::default(),
            kept: Ok(()),
            answer: None,
            drain_failed: false,
            spare: Vec::new(),
        }
    }

    /// Tells the engine what has happened.
    fn give(&mut self, input: Input) {
        self.engine.handle_input(self.now.after(self.epoch), input);
    }

    /// When the engine wants to be woken, by its own clock.
    fn wait(&mut self, until: Option<Time>) {
        self.until = until.map(|until| Time(until.0.saturating_sub(self.epoch.0)));
    }

    fn poll(&mut self) {
        loop {
            match self.engine.poll_output() {
                Output::Io(io) => self.start(io),
                Output::Reply(reply) => self.reply(reply),
                Output::KeepWindow { window } if self.data.first().disk().store().is_some() => {
                    self.committing = Some(window);
                    self.data.first_mut().commit(self.now, KEEP_WINDOW);
                    self.data.advance(self.now, &mut self.disk_done);
                }
                // A snapshot takes no time.
                Output::KeepWindow { window } => {
                    let kept = Input::WindowKept { window, is_kept: true };
                    self.give(kept);
                }
                Output::Wait { until } => {
                    self.wait(until);
                    return;
                }
            }
        }
    }

    fn start(&mut self, io: Io) {
        let (operation, is_fua) = match io.operation {
            IoOperation::Read { .. } => (DiskOperation::Read, false),
            IoOperation::Write { fua, .. } => (DiskOperation::Write, fua),
            IoOperation::WriteZeroes { .. } => (DiskOperation::Write, false),
            IoOperation::Flush => (DiskOperation::Flush, false),
        };
        let Range { start: offset_bytes, end } = range_of(&io.operation);
        let size_bytes = end - offset_bytes;
        // Those of a volume are named by 64 bits, of which a model has fewer.
        let id = self.next_io;
        self.next_io += 1;
        let account = match io.device {
            Device::CacheDisk => Device::CacheDisk,
            _ => Device::DataDisk,
        };
        let serves = Some(account).filter(|_| self.engine.serves_reads(io.id));
        let (disk, offset_bytes) = match io.device {
            Device::CacheDisk if self.is_one_disk => {
                self.cache_disk.counts_mut().count(operation, size_bytes);
                (self.data.first_mut(), offset_bytes)
            }
            Device::CacheDisk => (&mut self.cache_disk, offset_bytes),
            device => (self.data.get_mut(device), offset_bytes + self.data_start_bytes),
        };
        self.ios.insert(id, io);
        let request = DiskRequest { id, operation, offset_bytes, size_bytes };
        let submitted = disk.submit_for(self.now, request, is_fua, serves);
        submitted.expect("the engine knows how large its disks are");
        disk.advance(self.now, &mut self.disk_done);
    }

    /// What an I/O does to the bytes.
    fn finish(&mut self, io: Io) -> IoDone {
        let memory = self.engine.segment_memory();
        match io.device {
            Device::CacheDisk => {
                let done = carry_out(io, memory, &mut self.content);
                self.content.forget(|offset| self.engine.may_read_again(offset));
                done
            }
            device => carry_out(io, memory, &mut self.data.content(device)),
        }
    }

    fn reply(&mut self, reply: Reply) {
        let Reply { id: RequestId(id), result, buffer, .. } = reply;
        if id == KEEP_SEQUENCE {
            self.kept = result;
            return;
        }
        match id {
            DRAIN => self.drain_failed = result.is_err(),
            _ => self.failed += u64::from(result.is_err()),
        }
        // Reads bring buffers that nobody takes again: with all of them, memory would grow with the
        // trace.
        if self.spare.len() < SPARE_MAX {
            self.spare.extend(buffer);
        }
        let (submitted, held_bytes) = self.submitted.remove(&id).expect("it was submitted");
        self.waiting_bytes -= held_bytes;
        let service = self.now.since(submitted);
        self.done.push(TargetDone { id, completed: self.now, service });
    }

    fn take_disk_done(&mut self) {
        while !self.disk_done.is_empty() {
            for done in std::mem::take(&mut self.disk_done) {
                self.now = done.completed;
                if done.id == KEEP_WINDOW {
                    let window = self.committing.take().expect("one is on its way");
                    let kept = Input::WindowKept { window, is_kept: true };
                    self.give(kept);
                    self.poll();
                    continue;
                }
                let io = self.ios.remove(&done.id).expect("it was started");
                if self.is_one_disk && io.device == Device::CacheDisk {
                    self.cache_disk.counts_mut().busy.0 += done.service.0;
                }
                let done = self.finish(io);
                self.give(Input::IoDone(done));
                self.poll();
            }
        }
    }

    /// Keeps these ranges as a sequence from now on, which replaces one of the same name.
    ///
    /// # Errors
    /// As the engine says.
    pub fn keep_sequence(
        &mut self,
        now: Time,
        name: &str,
        ranges: Vec<LbaRange>,
    ) -> Result<(), RequestError> {
        let new = NewSequence { name: name.to_owned(), ranges, occurrences: 0, is_detected: false };
        let operation = Operation::Sequence(SequenceRequest::Store(Box::new(new)));
        let request = Request { id: RequestId(KEEP_SEQUENCE), operation, fua: false };
        self.now = now;
        self.give(Input::Request(request));
        self.poll();
        self.take_disk_done();
        self.kept
    }

    /// Nobody asks for anything: at least for the one time and, as long as sequences are still to
    /// be copied, up to the other. Tells when that is over, and how long copying took.
    pub fn rest(&mut self, now: Time, least: Duration, most: Duration) -> (Time, Duration) {
        let (quiet_until, until) = (now.after(least), now.after(most));
        let is_copying = |target: &LogTarget| target.engine.sequences().any(|it| it.stale() > 0);
        let (mut at, mut copied) = (now, now);
        let mut done = Vec::new();
        while at < until && (at < quiet_until || is_copying(self)) {
            let was_copying = is_copying(self);
            let end = if at < quiet_until { quiet_until } else { until };
            at = self.next_event().map_or(end, |next| next.clamp(at, end));
            self.advance(at, &mut done);
            if was_copying {
                copied = at;
            }
        }
        (at, copied.since(now))
    }

    /// Counts from now on: what happened before is not in the facts.
    pub fn count_from(&mut self, now: Time) {
        self.counted = self.engine.status().counters;
        self.failed = 0;
        self.volume_counted = self.volume_counters();
        self.cache_disk.count_from(now);
        self.data.count_from(now);
    }

    /// Lists what the disks read for clients from now on.
    pub fn list_accesses(&mut self) {
        self.data.list_accesses();
        self.cache_disk.list_accesses();
    }

    /// What they have read since: of each disk in the order in which it was, the data-disk first.
    pub fn take_accesses(&mut self) -> Vec<Access> {
        let mut accesses = self.data.take_listed();
        accesses.extend(self.cache_disk.take_listed());
        accesses
    }

    fn read_area_facts(&self) -> Option<ReadAreaFacts> {
        let status = self.engine.status();
        if status.copies.slots == 0 {
            return None;
        }
        let (now, before) = (status.counters, &self.counted);
        let sequences = self.engine.sequences().map(|sequence| SequenceFacts {
            name: sequence.label().name.clone(),
            lines: self.engine.lines_of(sequence).len() as u64,
            stale: sequence.stale().into(),
            runs: sequence.label().runs,
            off: sequence.is_off(),
        });
        Some(ReadAreaFacts {
            read_copy_lines: now.read_copy_lines - before.read_copy_lines,
            read_ahead_lines: now.read_ahead_lines - before.read_ahead_lines,
            read_ahead_used_lines: now.read_ahead_used_lines - before.read_ahead_used_lines,
            copy_lines_written: now.copy_lines_written - before.copy_lines_written,
            copied_lines: status.copies.valid,
            sequences: sequences.collect(),
        })
    }

    fn volume_counters(&self) -> VolumeCounters {
        self.engine.volume().map(Volume::counters).copied().unwrap_or_default()
    }

    fn volume_facts(&self) -> Option<VolumeFacts> {
        let volume = self.engine.volume()?;
        let (now, before) = (volume.counters(), &self.volume_counted);
        let sets = volume.status().sets.into_iter().map(|set| SetFacts {
            level: set.tier.level.number(),
            class: set.tier.class.name(),
            used_extents: set.room.used,
            extents: set.room.extents,
        });
        Some(VolumeFacts {
            members: self.data.member_facts(self.now),
            sets: sets.collect(),
            moved_extents: now.extents_moved - before.extents_moved,
            journal_bytes: now.journal_bytes - before.journal_bytes,
        })
    }

    /// A buffer of zeroes.
    fn buffer(&mut self, bytes: u64) -> Buffer {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.resize(bytes as usize);
        buffer
    }

    fn next(&self) -> Option<Time> {
        let disks = [self.cache_disk.next_event(), self.data.next_event(), self.until];
        disks.into_iter().flatten().min()
    }
}

/// Segment memory.
fn memory_of(geometry: &Geometry, config: &EngineConfig) -> Buffer {
    Buffer::zeroed(Engine::segment_memory_size(geometry, config))
}

impl HeadPosition for LogTarget {
    fn block(&self) -> Lba {
        Lba(self.data.block().0.saturating_sub(self.data_start_bytes / 512))
    }

    /// To the log everything is equally near.
    fn cost(&self, _now: Time, _block: Lba) -> u64 {
        0
    }
}

impl Target for LogTarget {
    fn submit(
        &mut self,
        now: Time,
        request: DiskRequest,
        is_fua: bool,
    ) -> Result<(), DiskRequestError> {
        self.check(&request)?;
        let DiskRequest { id, operation, offset_bytes, size_bytes } = request;
        let start = offset_bytes / self.unit_bytes * self.unit_bytes / BLOCK_SIZE;
        let end = (offset_bytes + size_bytes).next_multiple_of(self.unit_bytes) / BLOCK_SIZE;
        let range = LbaRange::new(start, end - start);
        let held_bytes = if operation == DiskOperation::Write { range.bytes() } else { 0 };
        let operation = match operation {
            DiskOperation::Read => Operation::read(range),
            DiskOperation::Write => {
                Operation::Write { start: range.start, data: self.buffer(range.bytes()) }
            }
            DiskOperation::Flush => Operation::Flush,
        };
        self.now = now;
        self.submitted.insert(id, (now, held_bytes));
        self.waiting_bytes += held_bytes;
        let fua = is_fua && matches!(operation, Operation::Write { .. });
        let request = Request { id: RequestId(id), operation, fua };
        self.give(Input::Request(request));
        self.poll();
        self.take_disk_done();
        Ok(())
    }

    fn check(&self, request: &DiskRequest) -> Result<(), DiskRequestError> {
        request.check_within(self.volume_bytes)
    }

    fn next_event(&self) -> Option<Time> {
        match self.done.first() {
            Some(done) => Some(done.completed),
            None => self.next(),
        }
    }

    fn advance(&mut self, now: Time, done: &mut Vec<TargetDone>) {
        done.append(&mut self.done);
        while let Some(next) = self.next().filter(|next| *next <= now) {
            // The engine may want to be woken for something that was due before.
            self.now = self.now.max(next);
            self.cache_disk.advance(self.now, &mut self.disk_done);
            self.data.advance(self.now, &mut self.disk_done);
            if self.disk_done.is_empty() {
                self.give(Input::Timeout);
                self.poll();
            }
            self.take_disk_done();
        }
        self.now = now;
        // The models must know what time it is before they get more.
        self.cache_disk.advance(now, &mut self.disk_done);
        self.data.advance(now, &mut self.disk_done);
        done.append(&mut self.done);
    }

    fn facts(&self) -> TargetFacts {
        let status = self.engine.status();
        let (counters, before) = (status.counters, &self.counted);
        let counts = self.cache_disk.counts();
        let access = |device| self.cache_disk.served(device).and(self.data.served(device));
        TargetFacts {
            data_disk_access: access(Device::DataDisk),
            cache_disk_access: Some(access(Device::CacheDisk)),
            stalled_writes: counters.stalled_writes - before.stalled_writes,
            log: Some(LogFacts {
                cache_disk_writes: counts.write_sizes.count(),
                cache_disk_write_bytes: counts.write_bytes,
                cache_disk_reads: counts.reads,
                cache_disk_busy_percent: counts.busy_percent(self.now),
                read_hit_lines: counters.read_hit_lines - before.read_hit_lines,
                read_miss_lines: counters.read_miss_lines - before.read_miss_lines,
                overwritten_lines: counters.overwritten_lines - before.overwritten_lines,
                bypasses: counters.bypasses - before.bypasses,
                destaged_lines: counters.destaged_lines - before.destaged_lines,
                destage_writes: counters.destage_writes - before.destage_writes,
                dirty_lines: status.dirty_lines,
                failed_requests: self.failed,
                read_area: self.read_area_facts(),
            }),
            volume: self.volume_facts(),
            ..self.data.facts(self.now)
        }
    }

    fn memory_bytes(&self) -> u64 {
        let store = self.data.first().disk().store().map_or(0, |store| store.memory_bytes);
        let status = self.engine.status();
        let index_bytes = status.index_bytes + status.copies_bytes;
        let waiting = self.waiting_bytes;
        let content = self.content.memory_bytes() + self.data.memory_bytes();
        self.segment_bytes + index_bytes + content + store + waiting
    }

    fn store(&self) -> Option<StoreFacts> {
        self.data.first().store()
    }

    fn bill(&self) -> Bill {
        // Members have prices of their own, and without them it would look cheap.
        if self.engine.volume().is_some() {
            return Bill::default();
        }
        let disk = self.data.first();
        let disk = disk.device_bill(disk.disk().capacity_bytes());
        let cache_disk = self.cache_disk.device_bill(self.cache_bytes);
        Bill { disk, cache_disk: cache_disk.filter(|_| !self.is_one_disk) }
    }

    fn as_log(&mut self) -> Option<&mut LogTarget> {
        Some(self)
    }

    fn drain(&mut self, now: Time) -> Option<DrainFacts> {
        let counts = |target: &LogTarget| {
            let [writes, bytes] = target.data.writes();
            [writes, bytes, target.cache_disk.counts().write_bytes]
        };
        let before = counts(self);
        self.now = now;
        self.submitted.insert(DRAIN, (now, 0));
        let request = Request { id: RequestId(DRAIN), operation: Operation::Drain, fua: false };
        self.give(Input::Request(request));
        self.poll();
        self.take_disk_done();
        let (mut moved_at, mut left_lines) = (now, self.engine.status().dirty_lines);
        let mut done = Vec::new();
        let end = loop {
            if let Some(done) = done.iter().find(|done: &&TargetDone| done.id == DRAIN) {
                if self.drain_failed {
                    return None;
                }
                break done.completed;
            }
            let next = self.next_event()?;
            if next.since(moved_at) > DRAIN_STUCK {
                let dirty_lines = self.engine.status().dirty_lines;
                if dirty_lines == left_lines {
                    return None;
                }
                (moved_at, left_lines) = (next, dirty_lines);
            }
            self.advance(next, &mut done);
        };
        let after = counts(self);
        let [disk_writes, disk_write_bytes, cache_disk_write_bytes] =
            [0, 1, 2].map(|index| after[index] - before[index]);
        let seconds = end.since(now).0 as f64 / 1e9;
        Some(DrainFacts { seconds, disk_writes, disk_write_bytes, cache_disk_write_bytes })
    }
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
