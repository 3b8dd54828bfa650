//! One run: a load from a seed on an engine with faulty disks, with crashes, recoveries and checks.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use dcd_engine::format::create::{CreateOptions, create};
use dcd_engine::{
    AckMode, Buffer, Device, Engine, Input, Io, IoData, IoDone, IoError, IoOperation, Lba,
    LbaRange, Operation, Output, Phase, Reply, Request, RequestId, Superblock, Time, Uuid,
};

use crate::faulty_disk::FaultyDisk;
use crate::model::{ChangeNumber, Model, Violation};
use crate::options::Options;
use crate::random::Random;

/// What a run did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Requests answered.
    pub requests: u64,
    /// Crashes, each recovered from and checked; those during recovery included.
    pub crash_points: u64,
    /// Times that the cache-disk went away while clean, and requests went on without it.
    pub times_uncached: u64,
}

/// A run that went wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Repeats it.
    pub seed: u64,
    /// What was seen.
    pub violation: Violation,
    /// Its options.
    pub options: Box<Options>,
}

/// A request under way.
enum Asked {
    Read { start: u64, submitted: u64 },
    Change { number: ChangeNumber, fua: bool },
    Flush { submitted: u64 },
    Drain,
}

struct Run {
    options: Options,
    random: Random,
    cache_disk: FaultyDisk,
    data_disk: FaultyDisk,
    engine: Option<Engine>,
    now: Time,
    ios: Vec<Io>,
    asked: BTreeMap<u64, Asked>,
    next_request: u64,
    wake_up: Option<Time>,
    model: Model,
    /// Since the last check of the content.
    power_was_cut: bool,
    /// The cache-disk has failed, and no flush has succeeded since.
    has_just_failed: bool,
    /// The cache-disk is away until the next crash.
    is_gone: bool,
    /// Requests may be refused now.
    is_closing: bool,
    report: Report,
    is_traced: bool,
}

/// Runs one seed.
pub fn run(seed: u64) -> Result<Report, Failure> {
    run_seed(seed, false)
}

/// Runs one seed and prints every input and output on standard error: to see what led to a failure.
pub fn run_traced(seed: u64) -> Result<Report, Failure> {
    run_seed(seed, true)
}

fn run_seed(seed: u64, is_traced: bool) -> Result<Report, Failure> {
    let mut random = Random::new(seed);
    let options = Options::draw(&mut random);
    let for_failure = options.clone();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut run = Run::new(options, random);
        run.is_traced = is_traced;
        run.go()?;
        Ok(run.report)
    }));
    let violation = match outcome {
        Ok(Ok(report)) => return Ok(report),
        Ok(Err(violation)) => violation,
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                .unwrap_or_default();
            Violation(format!("panic: {text}"))
        }
    };
    Err(Failure { seed, violation, options: Box::new(for_failure) })
}

impl Run {
    fn new(options: Options, random: Random) -> Run {
        let mut cache_disk = FaultyDisk::new(options.geometry.end() as usize);
        let first = create(CreateOptions {
            uuid: Uuid([0x5a; 16]),
            geometry: options.geometry,
            data_disk: options.data_disk,
            data_disk_serial: String::new(),
            created_unix_seconds: 0,
        });
        for (offset, bytes) in first {
            cache_disk.write(offset, bytes.bytes(), true).expect("a new disk");
        }
        Run {
            data_disk: FaultyDisk::new(options.data_disk.bytes() as usize),
            cache_disk,
            engine: None,
            now: Time::ZERO,
            ios: Vec::new(),
            asked: BTreeMap::new(),
            next_request: 0,
            wake_up: None,
            model: Model::new(options.data_disk.blocks),
            power_was_cut: false,
            has_just_failed: false,
            is_gone: false,
            is_closing: false,
            report: Report::default(),
            is_traced: false,
            options,
            random,
        }
    }

    fn go(&mut self) -> Result<(), Violation> {
        self.open(None)?;
        for _ in 0..self.options.steps {
            self.step()?;
            let has_failed = self.engine().status().cache_disk_failed && !self.is_uncached();
            self.take_away_by_chance();
            if has_failed || self.random.one_in(self.options.crash_one_in) {
                self.crash()?;
            }
        }
        self.crash()?;
        // Without dcd: after a detach the data-disk alone holds everything.
        self.finish_all()?;
        self.detach()
    }

    /// Most likely to be survived while the cache-disk is clean.
    fn take_away_by_chance(&mut self) {
        let one_in = self.options.cache_gone_one_in;
        if one_in == 0 || self.is_gone || !self.random.one_in(one_in) {
            return;
        }
        self.is_gone = self.engine().status().cache_disk_clean || self.random.one_in(4);
        let is_gone = self.is_gone;
        self.trace(|| format!("the cache-disk is gone: {is_gone}"));
    }

    /// The cache-disk went away while clean: requests go on.
    fn is_uncached(&mut self) -> bool {
        let is_uncached = self.engine().status().uncached.is_some();
        if is_uncached && !self.model.is_plain {
            self.report.times_uncached += 1;
            self.model.is_plain = true;
        }
        is_uncached
    }

    // ---- driving ------------------------------------------------------------------------------

    /// Opens the cache. `memory`: the segment memory of the process before, if it survived.
    fn open(&mut self, memory: Option<Vec<u8>>) -> Result<(), Violation> {
        let mut memory = memory;
        self.is_gone = false; // It comes back.
        loop {
            let copies = [0, 64 << 10].map(|offset| {
                let mut buffer = Buffer::zeroed(4096);
                self.cache_disk.read(offset, &mut buffer).expect("a disk that works");
                buffer
            });
            let superblock = Superblock::newest(copies[0].bytes(), copies[1].bytes())
                .map_err(|error| Violation(format!("no superblock: {error}")))?;
            let size = Engine::segment_memory_size(&superblock.geometry, &self.options.engine);
            let bytes = match memory.take() {
                Some(bytes) => Buffer::copy_of(&bytes),
                None => Buffer::zeroed(size),
            };
            let engine = Engine::open(
                self.now,
                superblock,
                self.cache_disk.len() as u64,
                self.options.data_disk,
                self.options.engine.clone(),
                Box::new(bytes),
            )
            .map_err(|error| Violation(format!("open: {error}")))?;
            self.engine = Some(engine);
            self.poll()?;
            let mut steps = 0;
            while *self.engine().phase() == Phase::Opening {
                // A crash during recovery, now and then, and only so often that it ends.
                steps += 1;
                if steps < 60 && self.random.one_in(40) {
                    break;
                }
                self.end_one_io()?;
            }
            match self.engine().phase() {
                Phase::Running => return Ok(()),
                Phase::Failed(error) => return Err(Violation(format!("recovery: {error}"))),
                Phase::Opening => memory = self.cut(),
                Phase::Closed => return Err(Violation("closed by itself".into())),
            }
        }
    }

    fn trace(&self, line: impl FnOnce() -> String) {
        if self.is_traced {
            eprintln!("{}", line());
        }
    }

    fn engine(&mut self) -> &mut Engine {
        self.engine.as_mut().expect("an engine runs")
    }

    fn input(&mut self, input: Input) -> Result<(), Violation> {
        let now = self.now;
        self.trace(|| format!("{now:?} {input:?}"));
        self.engine().handle_input(now, input);
        self.engine().check_invariants();
        self.poll()
    }

    fn poll(&mut self) -> Result<(), Violation> {
        loop {
            match self.engine().poll_output() {
                Output::Io(io) => {
                    self.trace(|| format!("   {io:?}"));
                    self.ios.push(io)
                }
                Output::Reply(reply) => {
                    self.trace(|| format!("   {reply:?}"));
                    self.replied(reply)?
                }
                Output::Wait { until } => {
                    self.wake_up = until;
                    return Ok(());
                }
            }
        }
    }

    fn replied(&mut self, reply: Reply) -> Result<(), Violation> {
        self.report.requests += 1;
        let asked = self.asked.remove(&reply.id.0);
        let asked = asked.ok_or_else(|| Violation("a reply to nothing".into()))?;
        let ok = reply.result.is_ok();
        // With its cache-disk gone while dirty, reads fail before the engine gives it up.
        let may_refuse = self.is_gone || self.engine().status().cache_disk_failed;
        if !ok && (self.is_closing || may_refuse && !self.is_uncached()) {
            // Refused, loudly: what was acknowledged before must still be there after a restart.
            if let Asked::Change { number, .. } = asked {
                self.model.acknowledge(number, false);
            }
            return Ok(());
        }
        if !ok {
            return Err(Violation(format!("a request failed: {:?}", reply.result)));
        }
        match asked {
            Asked::Read { start, submitted } => {
                let buffer = reply.buffer.ok_or_else(|| Violation("a read without data".into()))?;
                self.model.check_read(start, buffer.bytes(), submitted)?;
            }
            Asked::Change { number, fua } => {
                self.model.acknowledge(number, ok);
                if fua || self.options.engine.ack == AckMode::Durable {
                    self.model.durable_change(number);
                }
            }
            Asked::Flush { submitted } => {
                self.model.flushed(submitted);
                // A read under way may rightly show what was before.
                if !self.asked.values().any(|asked| matches!(asked, Asked::Read { .. })) {
                    self.model.settle();
                }
            }
            Asked::Drain => {}
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), Violation> {
        let may_ask = self.asked.len() < self.options.depth;
        match self.random.below(3) {
            0 if may_ask => self.ask(),
            1 if !self.ios.is_empty() => self.end_one_io(),
            2 if self.ios.is_empty() => self.let_time_pass(),
            _ if may_ask => self.ask(),
            _ if !self.ios.is_empty() => self.end_one_io(),
            _ => self.let_time_pass(),
        }
    }

    fn let_time_pass(&mut self) -> Result<(), Violation> {
        let pause = dcd_engine::Duration(self.random.below(self.options.pause_max.0) + 1);
        let by_chance = self.now.after(pause);
        // Now and then exactly to the moment that the engine asked for.
        self.now = match self.wake_up {
            Some(at) if at > self.now && self.random.one_in(2) => at,
            _ => by_chance,
        };
        self.input(Input::Timeout)
    }

    fn end_one_io(&mut self) -> Result<(), Violation> {
        if self.ios.is_empty() {
            return self.let_time_pass();
        }
        let index = self.random.below(self.ios.len() as u64) as usize;
        let io = self.ios.remove(index);
        self.now = self.now.after(dcd_engine::Duration(self.random.below(200_000)));
        let done = self.perform(io);
        self.input(Input::IoDone(done))
    }

    fn perform(&mut self, io: Io) -> IoDone {
        if let Some(done) = self.fail_by_chance(&io) {
            return done;
        }
        let engine = self.engine.as_ref().expect("an engine runs");
        let disk = match io.device {
            Device::CacheDisk => &mut self.cache_disk,
            Device::DataDisk => &mut self.data_disk,
        };
        let (result, buffer) = match io.operation {
            IoOperation::Read { offset, mut buffer } => {
                (disk.read(offset, &mut buffer), Some(buffer))
            }
            IoOperation::Write { offset, data: IoData::Owned(buffer), fua } => {
                (disk.write(offset, buffer.bytes(), fua), Some(buffer))
            }
            IoOperation::Write { offset, data: IoData::SegmentMemory(range), fua } => {
                (disk.write(offset, &engine.segment_memory()[range], fua), None)
            }
            IoOperation::WriteZeroes { offset, length, .. } => {
                (disk.write(offset, &vec![0; length as usize], false), None)
            }
            IoOperation::Flush => (disk.flush(), None),
        };
        IoDone { id: io.id, result, buffer }
    }

    /// A write or a flush of the cache-disk fails now and then: it must be survived (C22).
    fn fail_by_chance(&mut self, io: &Io) -> Option<IoDone> {
        if self.is_gone && io.device == Device::CacheDisk {
            return Some(self.fail_gone(io));
        }
        let one_in = self.options.cache_error_one_in;
        let is_running = *self.engine().phase() == Phase::Running && !self.is_closing;
        if one_in == 0 || !is_running || io.device != Device::CacheDisk {
            return None;
        }
        let is_flush = match &io.operation {
            IoOperation::Write { fua, .. } => *fua,
            IoOperation::Flush => true,
            _ => return None,
        };
        if self.has_just_failed || !self.random.one_in(one_in) {
            self.has_just_failed &= !is_flush;
            return None;
        }
        self.has_just_failed = true;
        self.trace(|| format!("fails: {io:?}"));
        let error = match &io.operation {
            IoOperation::Write { offset, data, .. } => {
                let bytes = match data {
                    IoData::Owned(buffer) => buffer.bytes().to_vec(),
                    IoData::SegmentMemory(range) => {
                        self.engine().segment_memory()[range.clone()].to_vec()
                    }
                };
                self.cache_disk.tear_in(*offset, &bytes, &mut self.random);
                IoError::Failed
            }
            _ => self.cache_disk.fail_flush(&mut self.random),
        };
        Some(IoDone { id: io.id, result: Err(error), buffer: None })
    }

    /// The cache-disk is gone. What was being written may be on it all the same.
    fn fail_gone(&mut self, io: &Io) -> IoDone {
        if let IoOperation::Write { offset, data, .. } = &io.operation {
            let bytes = match data {
                IoData::Owned(buffer) => buffer.bytes().to_vec(),
                IoData::SegmentMemory(range) => {
                    self.engine().segment_memory()[range.clone()].to_vec()
                }
            };
            match self.random.one_in(2) {
                true => drop(self.cache_disk.write(*offset, &bytes, true)),
                false => self.cache_disk.tear_in(*offset, &bytes, &mut self.random),
            }
        }
        IoDone { id: io.id, result: Err(IoError::Gone), buffer: None }
    }

    // ---- the load -----------------------------------------------------------------------------

    fn ask(&mut self) -> Result<(), Violation> {
        let options = self.options.clone();
        let chance = |random: &mut Random, n: u64| n > 0 && random.one_in(n);
        let id = RequestId(self.next_request);
        self.next_request += 1;
        if chance(&mut self.random, options.flush_one_in) {
            let submitted = self.model.tick();
            self.asked.insert(id.0, Asked::Flush { submitted });
            let operation = Operation::Flush;
            return self.input(Input::Request(Request { id, operation, fua: false }));
        }
        if chance(&mut self.random, options.drain_one_in) {
            self.asked.insert(id.0, Asked::Drain);
            let operation = Operation::Drain;
            return self.input(Input::Request(Request { id, operation, fua: false }));
        }
        let (start, blocks) = self.draw_range();
        if chance(&mut self.random, options.read_one_in) {
            let submitted = self.model.tick();
            self.asked.insert(id.0, Asked::Read { start, submitted });
            let operation = Operation::Read { range: LbaRange::new(start, blocks) };
            return self.input(Input::Request(Request { id, operation, fua: false }));
        }
        if self.model.overlaps_unacknowledged(start, blocks) {
            return self.end_one_io();
        }
        // A read under way may see a change half-way; the model cannot tell. Leave those blocks.
        let is_zero = chance(&mut self.random, options.zero_one_in);
        let fua = chance(&mut self.random, options.fua_one_in);
        let bytes_len = blocks * 512;
        let is_atomic = bytes_len < options.engine.bypass_threshold_bytes && bytes_len <= 40 << 10;
        let (number, bytes) = self.model.submit(start, blocks, is_zero, is_zero || is_atomic);
        self.asked.insert(id.0, Asked::Change { number, fua });
        let range = LbaRange::new(start, blocks);
        let operation = match (is_zero, self.random.one_in(2)) {
            (true, true) => Operation::Discard { range },
            (true, false) => Operation::WriteZeroes { range, may_unmap: self.random.one_in(2) },
            (false, _) => Operation::Write { start: Lba(start), data: Buffer::copy_of(&bytes) },
        };
        self.input(Input::Request(Request { id, operation, fua }))
    }

    fn draw_range(&mut self) -> (u64, u64) {
        let options = &self.options;
        let used = options.blocks_used.min(options.data_disk.blocks);
        // Near the end of the volume as often as near its beginning.
        let base = if self.random.one_in(4) { options.data_disk.blocks - used } else { 0 };
        if options.large_one_in > 0 && self.random.one_in(options.large_one_in) {
            let blocks = (8 * (1 + self.random.below(20))).min(used);
            let start = base.next_multiple_of(8) + self.random.below(used) / 8 * 8;
            let start = start.min(options.data_disk.blocks - 8);
            return (start, blocks.min(options.data_disk.blocks - start));
        }
        let blocks = 1 + self.random.below(options.request_blocks_max.min(used));
        let start = base + self.random.below(used);
        let start = start.min(options.data_disk.blocks - 1);
        let (start, blocks) = match self.random.one_in(2) {
            true => (start / 8 * 8, blocks.next_multiple_of(8)),
            false => (start, blocks),
        };
        (start, blocks.min(options.data_disk.blocks - start))
    }

    // ---- crashes ------------------------------------------------------------------------------

    /// Ends the engine at this instant: the process dies or the power fails. Returns the segment
    /// memory if it survived.
    fn cut(&mut self) -> Option<Vec<u8>> {
        let engine = self.engine.take().expect("an engine runs");
        let is_power_cut = self.random.one_in(2);
        let dead = if is_power_cut { "power cut" } else { "death of the process" };
        self.trace(|| format!("{dead}; {:?}", engine.status().segments));
        // Each I/O under way may have happened, wholly or in part, or not.
        let ios = std::mem::take(&mut self.ios);
        for io in ios {
            let disk = match io.device {
                Device::CacheDisk => &mut self.cache_disk,
                Device::DataDisk => &mut self.data_disk,
            };
            match io.operation {
                IoOperation::Write { offset, data, .. } => {
                    let bytes = match &data {
                        IoData::Owned(buffer) => buffer.bytes(),
                        IoData::SegmentMemory(range) => &engine.segment_memory()[range.clone()],
                    };
                    match (self.random.below(3), is_power_cut) {
                        (0, _) => {}
                        (1, _) | (2, false) => {
                            let _ = disk.write(offset, bytes, false);
                        }
                        _ => disk.tear_in(offset, bytes, &mut self.random),
                    }
                }
                IoOperation::WriteZeroes { offset, length, .. } => {
                    if self.random.one_in(2) {
                        disk.tear_in(offset, &vec![0; length as usize], &mut self.random);
                    }
                }
                IoOperation::Read { .. } | IoOperation::Flush => {}
            }
        }
        self.asked.clear();
        if is_power_cut {
            self.cache_disk.power_cut(&mut self.random);
            self.data_disk.power_cut(&mut self.random);
            self.power_was_cut = true;
            return None;
        }
        Some(engine.segment_memory().to_vec())
    }

    fn crash(&mut self) -> Result<(), Violation> {
        self.report.crash_points += 1;
        self.power_was_cut = false;
        let is_working = !self.engine().status().cache_disk_failed || self.is_uncached();
        if is_working && self.random.one_in(6) {
            return self.close_in_order();
        }
        let memory = self.cut();
        self.open_and_check(memory)
    }

    fn open_and_check(&mut self, memory: Option<Vec<u8>>) -> Result<(), Violation> {
        self.open(memory)?;
        if !self.power_was_cut {
            self.model.all_acknowledged_must_survive();
        }
        let content = self.read_everything()?;
        self.model.check_after_crash(&content)
    }

    /// Shuts down; then not even a power cut may take anything that was acknowledged.
    fn close_in_order(&mut self) -> Result<(), Violation> {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        self.asked.insert(id.0, Asked::Drain);
        self.is_closing = true;
        self.input(Input::Request(Request { id, operation: Operation::Shutdown, fua: false }))?;
        self.finish_all()?;
        self.is_closing = false;
        if *self.engine().phase() != Phase::Closed {
            return Err(Violation("shut down, but not closed".into()));
        }
        if self.engine().status().cache_disk_failed {
            let memory = self.cut();
            return self.open_and_check(memory);
        }
        // Even if the power fails now, and again while it is opened.
        self.model.all_acknowledged_must_survive();
        self.engine = None;
        self.cache_disk.power_cut(&mut self.random);
        self.data_disk.power_cut(&mut self.random);
        self.open_and_check(None)
    }

    fn finish_all(&mut self) -> Result<(), Violation> {
        let mut left = 2_000_000;
        while !self.asked.is_empty() {
            left -= 1;
            if left == 0 {
                return Err(self.stuck("requests are never answered"));
            }
            if self.ios.is_empty() {
                match self.wake_up {
                    Some(at) => self.now = at.max(self.now),
                    None => return Err(self.stuck("waits for nothing")),
                }
                self.input(Input::Timeout)?;
            } else {
                self.end_one_io()?;
            }
        }
        Ok(())
    }

    fn stuck(&mut self, what: &str) -> Violation {
        let status = self.engine().status();
        Violation(format!("{what}; {} lines dirty, {:?}", status.dirty_lines, status.segments))
    }

    /// Reads the volume through the engine.
    fn read_everything(&mut self) -> Result<Vec<u8>, Violation> {
        let blocks = self.options.data_disk.blocks;
        let id = RequestId(self.next_request);
        self.next_request += 1;
        let now = self.now;
        let operation = Operation::Read { range: LbaRange::new(0, blocks) };
        self.engine().handle_input(now, Input::Request(Request { id, operation, fua: false }));
        loop {
            match self.engine().poll_output() {
                Output::Io(io) => self.ios.push(io),
                Output::Reply(reply) if reply.id == id => {
                    let buffer = reply.buffer.filter(|_| reply.result.is_ok());
                    let buffer = buffer
                        .ok_or_else(|| Violation(format!("unreadable: {:?}", reply.result)))?;
                    self.poll()?;
                    return Ok(buffer.bytes().to_vec());
                }
                Output::Reply(reply) => self.replied(reply)?,
                Output::Wait { until } => {
                    self.wake_up = until;
                    if self.ios.is_empty() {
                        return Err(Violation("a read waits for nothing".into()));
                    }
                    let index = self.random.below(self.ios.len() as u64) as usize;
                    let io = self.ios.remove(index);
                    let done = self.perform(io);
                    self.engine().handle_input(now, Input::IoDone(done));
                }
            }
        }
    }

    fn detach(&mut self) -> Result<(), Violation> {
        let expected = self.read_everything()?;
        let id = RequestId(self.next_request);
        self.next_request += 1;
        self.asked.insert(id.0, Asked::Drain);
        self.is_closing = true;
        self.input(Input::Request(Request { id, operation: Operation::Detach, fua: false }))?;
        self.finish_all()?;
        if *self.engine().phase() != Phase::Closed {
            return Err(Violation("detached, but not closed".into()));
        }
        self.data_disk.power_cut(&mut self.random);
        if self.data_disk.bytes() != expected {
            return Err(Violation("the detached data-disk differs".into()));
        }
        Ok(())
    }
}
