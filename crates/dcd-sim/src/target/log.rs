//! The engine on two disk models: the log on one, the data on the other; or on one, the log before
//! the data (the papers' *logical DCD*). The same code as in the daemon.
//!
//! Data is zero, and the data-disk keeps none; what the engine itself writes to the cache-disk is
//! kept as long as it may be read again. Nothing starts on that disk a second time, so that is what
//! describes live slots.

use std::collections::HashMap;
use std::ops::Range;

use dcd_engine::nvram::HeadPosition;
use dcd_engine::stats::Counters;
use dcd_engine::{
    Buffer, DataDiskInfo, Device, Duration, Engine, EngineConfig, Geometry, Input, Io, IoDone,
    IoId, IoOperation, Lba, LbaRange, NewSequence, OpenError, Operation, Output, Phase, Reply,
    Request, RequestError, RequestId, SequenceRequest, Time,
};
use dcd_testkit::{carry_out, range_of};

use super::disk::DiskTarget;
use super::pages::{Pages, Zeroes};
use super::{
    Access, AccessFacts, DrainFacts, LogFacts, ReadAreaFacts, SequenceFacts, Target, TargetDone,
    TargetFacts,
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
    data_disk: DiskTarget,
    is_one_disk: bool,
    /// Where the data begin on their disk: behind the log, if that is there too.
    data_start_bytes: u64,
    /// What the cache takes of its disk.
    cache_bytes: u64,
    /// Segment buffers.
    segment_bytes: u64,
    /// The window that a bucket makes visible.
    committing: Option<u64>,
    content: Pages,
    /// I/Os at the disks.
    ios: HashMap<u64, Io>,
    /// When the engine wants to be woken.
    until: Option<Time>,
    now: Time,
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
    /// How it answered the last request to keep a sequence.
    kept: Result<(), RequestError>,
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
        let superblock =
            write_new_cache(geometry, info, |offset, bytes| content.write(offset, bytes));
        let segment_bytes = Engine::segment_memory_size(&geometry, &config);
        let memory = Buffer::zeroed(segment_bytes);
        let segment_bytes = segment_bytes as u64;
        let end = geometry.end();
        let engine = Engine::open(Time::ZERO, superblock, end, info, config, Box::new(memory))?;
        let mut target = LogTarget {
            engine,
            cache_disk: DiskTarget::new(cache_disk),
            data_disk: DiskTarget::new(data_disk),
            is_one_disk,
            data_start_bytes,
            cache_bytes: wanted_bytes,
            segment_bytes,
            committing: None,
            content,
            ios: HashMap::new(),
            until: None,
            now: Time::ZERO,
            submitted: HashMap::new(),
            waiting_bytes: 0,
            done: Vec::new(),
            disk_done: Vec::new(),
            failed: 0,
            counted: Counters::default(),
            kept: Ok(()),
            drain_failed: false,
            spare: Vec::new(),
        };
        target.open();
        match target.engine.phase() {
            Phase::Failed(error) => Err(error.clone().into()),
            _ => Ok(target),
        }
    }

    /// Starting takes no time: it is over before the first request.
    fn open(&mut self) {
        loop {
            match self.engine.poll_output() {
                Output::Io(io) => {
                    let done = self.finish(io);
                    self.engine.handle_input(Time::ZERO, Input::IoDone(done));
                }
                Output::Reply(_) => {}
                Output::KeepWindow { window } => {
                    let kept = Input::WindowKept { window, is_kept: true };
                    self.engine.handle_input(Time::ZERO, kept);
                }
                // With very many segments it goes through them in parts.
                Output::Wait { until: Some(_) } if *self.engine.phase() == Phase::Opening => {
                    self.engine.handle_input(Time::ZERO, Input::Timeout);
                }
                Output::Wait { until } => {
                    self.until = until;
                    return;
                }
            }
        }
    }

    fn poll(&mut self) {
        loop {
            match self.engine.poll_output() {
                Output::Io(io) => self.start(io),
                Output::Reply(reply) => self.reply(reply),
                Output::KeepWindow { window } if self.data_disk.disk().store().is_some() => {
                    self.committing = Some(window);
                    self.data_disk.commit(self.now, KEEP_WINDOW);
                    self.data_disk.advance(self.now, &mut self.disk_done);
                }
                // A snapshot takes no time.
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

    fn start(&mut self, io: Io) {
        let (operation, is_fua) = match io.operation {
            IoOperation::Read { .. } => (DiskOperation::Read, false),
            IoOperation::Write { fua, .. } => (DiskOperation::Write, fua),
            IoOperation::WriteZeroes { .. } => (DiskOperation::Write, false),
            IoOperation::Flush => (DiskOperation::Flush, false),
        };
        let Range { start: offset_bytes, end } = range_of(&io.operation);
        let size_bytes = end - offset_bytes;
        let id = io.id.0;
        let serves = Some(io.device).filter(|_| self.engine.serves_reads(io.id));
        let (disk, offset_bytes) = match io.device {
            Device::CacheDisk if self.is_one_disk => {
                self.cache_disk.counts_mut().count(operation, size_bytes);
                (&mut self.data_disk, offset_bytes)
            }
            Device::CacheDisk => (&mut self.cache_disk, offset_bytes),
            Device::DataDisk => (&mut self.data_disk, offset_bytes + self.data_start_bytes),
            Device::Member(_) | Device::Leg(_) | Device::Witness | Device::Nvram => {
                unreachable!("one of each")
            }
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
            Device::DataDisk
            | Device::Member(_)
            | Device::Leg(_)
            | Device::Witness
            | Device::Nvram => carry_out(io, memory, &mut Zeroes),
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
                    self.engine.handle_input(self.now, kept);
                    self.poll();
                    continue;
                }
                let io = self.ios.remove(&IoId(done.id).0).expect("it was started");
                if self.is_one_disk && io.device == Device::CacheDisk {
                    self.cache_disk.counts_mut().busy.0 += done.service.0;
                }
                let done = self.finish(io);
                self.engine.handle_input(self.now, Input::IoDone(done));
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
        self.engine.handle_input(now, Input::Request(request));
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
        self.cache_disk.count_from(now);
        self.data_disk.count_from(now);
    }

    /// Lists what the disks read for clients from now on.
    pub fn list_accesses(&mut self) {
        self.data_disk.list_accesses();
        self.cache_disk.list_accesses();
    }

    /// What they have read since: of each disk in the order in which it was, the data-disk first.
    pub fn take_accesses(&mut self) -> Vec<Access> {
        let mut accesses = self.data_disk.take_listed();
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

    /// A buffer of zeroes.
    fn buffer(&mut self, bytes: u64) -> Buffer {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.resize(bytes as usize);
        buffer
    }

    fn next(&self) -> Option<Time> {
        let disks = [self.cache_disk.next_event(), self.data_disk.next_event(), self.until];
        disks.into_iter().flatten().min()
    }
}

impl HeadPosition for LogTarget {
    fn block(&self) -> Lba {
        Lba(self.data_disk.block().0.saturating_sub(self.data_start_bytes / 512))
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
        let start = offset_bytes / 512;
        let end = (offset_bytes + size_bytes).div_ceil(512);
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
        self.engine.handle_input(now, Input::Request(request));
        self.poll();
        self.take_disk_done();
        Ok(())
    }

    fn check(&self, request: &DiskRequest) -> Result<(), DiskRequestError> {
        self.data_disk.check(request)?;
        let DiskRequest { operation, offset_bytes, size_bytes, .. } = *request;
        let disk_bytes = self.data_disk.disk().capacity_bytes();
        let capacity_bytes = (disk_bytes - self.data_start_bytes) / 4096 * 4096;
        if operation != DiskOperation::Flush && offset_bytes + size_bytes > capacity_bytes {
            return Err(DiskRequestError::BeyondEnd { offset_bytes, size_bytes, capacity_bytes });
        }
        Ok(())
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
            self.data_disk.advance(self.now, &mut self.disk_done);
            if self.disk_done.is_empty() {
                self.engine.handle_input(self.now, Input::Timeout);
                self.poll();
            }
            self.take_disk_done();
        }
        self.now = now;
        // The models must know what time it is before they get more.
        self.cache_disk.advance(now, &mut self.disk_done);
        self.data_disk.advance(now, &mut self.disk_done);
        done.append(&mut self.done);
    }

    fn facts(&self) -> TargetFacts {
        let status = self.engine.status();
        let (counters, before) = (status.counters, &self.counted);
        let counts = self.cache_disk.counts();
        let access = |device| {
            let (cache, data) = (self.cache_disk.served(device), self.data_disk.served(device));
            AccessFacts {
                reads: cache.reads + data.reads,
                read_bytes: cache.read_bytes + data.read_bytes,
                time_ms: cache.time_ms + data.time_ms,
                seek_distance: cache.seek_distance + data.seek_distance,
            }
        };
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
            ..self.data_disk.facts()
        }
    }

    fn memory_bytes(&self) -> u64 {
        let store = self.data_disk.disk().store().map_or(0, |store| store.memory_bytes);
        let index_bytes = self.engine.status().index_bytes;
        let waiting = self.waiting_bytes;
        self.segment_bytes + index_bytes + self.content.memory_bytes() + store + waiting
    }

    fn store(&self) -> Option<StoreFacts> {
        self.data_disk.store()
    }

    fn bill(&self) -> Bill {
        let disk = self.data_disk.device_bill(self.data_disk.disk().capacity_bytes());
        let cache_disk = self.cache_disk.device_bill(self.cache_bytes);
        Bill { disk, cache_disk: cache_disk.filter(|_| !self.is_one_disk) }
    }

    fn as_log(&mut self) -> Option<&mut LogTarget> {
        Some(self)
    }

    fn drain(&mut self, now: Time) -> Option<DrainFacts> {
        let counts = |target: &LogTarget| {
            let (cache, data) = (target.cache_disk.counts(), target.data_disk.counts());
            [data.write_sizes.count(), data.write_bytes, cache.write_bytes]
        };
        let before = counts(self);
        self.now = now;
        self.submitted.insert(DRAIN, (now, 0));
        let request = Request { id: RequestId(DRAIN), operation: Operation::Drain, fua: false };
        self.engine.handle_input(now, Input::Request(request));
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
