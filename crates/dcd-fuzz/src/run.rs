//! One run: a script on an engine with faulty disks, checked against the model.
//!
//! The load, its answers and the faults are here; what happens at a crash is in [`crate::crash`].

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use dcd_engine::create::{CreateOptions, create};
use dcd_engine::format::end_mark::END_MARK_BYTES;
use dcd_engine::format::geometry::COPY_PAGE_SPACE_BYTES;
use dcd_engine::stats::ModeState;
use dcd_engine::{
    AckMode, Buffer, DestagePolicyKind, Device, Duration, EngineConfig, Lba, LbaRange, Mode,
    NewSequence, Operation, Phase, Reply, RequestError, RequestId, SequenceRequest, Time, Uuid,
};
use dcd_testkit::read_into_used;

use crate::copy_load::places;
use crate::crash::{Crash, Twist};
use crate::disk::{FaultyDisk, Pages};
use crate::faults::{FaultKind, IoKind, Level, SweepRule, Trap};
use crate::host::{Host, LastSession, Start, Wreck};
use crate::legs::Legs;
use crate::model::{ChangeNumber, Model, Shown, Violation, fill_block};
use crate::options::Options;
use crate::order::Order;
use crate::random::Random;
use crate::report::Report;
use crate::running::NotOpen;
use crate::script::{Op, Script, Step};
use crate::space::Space;

/// I/Os after which there must be a pause.
const SETTLE_IOS_MAX: u32 = 100_000;

/// I/Os and pauses after which a detach will not end.
const DETACH_IOS_MAX: u32 = 5_000;

/// A run that went wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed, if the script came from one.
    pub seed: u64,
    /// What was seen.
    pub violation: Violation,
    /// At which step.
    pub step: usize,
    /// Repeats it.
    pub script: Script,
}

/// A request under way.
#[derive(Clone, Copy)]
enum Asked {
    Read {
        start: u64,
        submitted: u64,
    },
    Change {
        number: ChangeNumber,
        fua: bool,
        is_atomic: bool,
        /// The mode of acknowledgement has changed so often before.
        ack_changes: u64,
    },
    Flush {
        submitted: u64,
    },
    Drain {
        is_cancelled: bool,
    },
    /// To detach a cache in which something may be lost.
    Detach,
    /// To shut down, or to detach.
    Close,
    /// To cancel something: never fails.
    Cancel,
    /// Something that comes too late, behind a request to close.
    TooLate,
    /// To give the log or the read area another size.
    Resize {
        cuts: bool,
        is_cancelled: bool,
        segments_before: u32,
        copy_pages_before: u32,
    },
    /// About sequences: may be refused, and that harms nobody.
    Sequence,
}

/// A run.
pub struct Run {
    pub(crate) options: Options,
    pub(crate) host: Host,
    pub(crate) model: Model,
    /// With ordered shipping.
    pub(crate) order: Option<Order>,
    pub(crate) report: Report,
    /// Images of both disks at earlier starts.
    pub(crate) older: Vec<[Pages; 2]>,
    /// A start was refused, rightly and for good.
    pub(crate) is_over: bool,
    asked: BTreeMap<u64, Asked>,
    is_closing: bool,
    /// So often the mode of acknowledgement has changed.
    ack_changes: u64,
}

/// Runs one seed.
pub fn run(seed: u64) -> Result<Report, Box<Failure>> {
    replay(&Script::of_seed(seed), false).map_err(|failure| Box::new(Failure { seed, ..*failure }))
}

/// Runs one seed and prints every input and output on standard error: to see what led to a failure.
pub fn run_traced(seed: u64) -> Result<Report, Box<Failure>> {
    replay(&Script::of_seed(seed), true).map_err(|failure| Box::new(Failure { seed, ..*failure }))
}

/// Runs a script.
pub fn replay(script: &Script, is_traced: bool) -> Result<Report, Box<Failure>> {
    let mut step = 0;
    let outcome = guard(|| {
        let mut run = Run::new(script.options.clone(), is_traced);
        let started = Instant::now();
        run.start()?;
        run.go(&script.steps, &mut step)?;
        Ok(run.into_report(started))
    });
    outcome
        .map_err(|violation| Box::new(Failure { seed: 0, violation, step, script: script.clone() }))
}

/// A panic is a violation too.
pub(crate) fn guard<T>(what: impl FnOnce() -> Result<T, Violation>) -> Result<T, Violation> {
    match catch_unwind(AssertUnwindSafe(what)) {
        Ok(result) => result,
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                .unwrap_or_default();
            Err(Violation(format!("panic: {text}")))
        }
    }
}

/// Two new disks with a new cache.
pub fn new_pair(options: &Options) -> Wreck {
    let geometry = options.geometry();
    let mut cache_disk = FaultyDisk::new(geometry.end() as usize + END_MARK_BYTES, 4096);
    let first = create(CreateOptions {
        uuid: Uuid([0x5a; 16]),
        geometry,
        data_disk: options.data_disk(),
        data_disk_serial: String::new(),
        created_unix_seconds: 0,
        volume: None,
        data_offset_bytes: 0,
        has_end_mark: true,
        has_legs: options.legs.is_some(),
    });
    for (offset, bytes) in first {
        cache_disk.write(offset, bytes.bytes(), true).expect("a new disk");
    }
    let size = options.data_disk().bytes() as usize;
    let mut data_disk = FaultyDisk::new(size, options.physical_sector as usize);
    (cache_disk.shears, data_disk.shears) = (options.shears, options.shears);
    cache_disk.keeps_same_bytes = true;
    data_disk.cannot_zero = options.cannot_zero;
    let session = LastSession::default();
    let legs = options.legs.map(|legs| Legs::new(legs, Uuid([0x5a; 16]), &mut cache_disk));
    Wreck { cache_disk, data_disk, legs, memory: None, session, now: Time::ZERO }
}

impl Run {
    /// A run that has not begun.
    pub fn new(options: Options, is_traced: bool) -> Run {
        let mut host = Host::new(new_pair(&options), is_traced);
        host.space = Some(Space::default());
        Run {
            model: Model::new(options.data_blocks),
            order: options.is_ordered().then(|| Order::new(options.data_blocks)),
            host,
            report: Report { runs: 1, ..Report::default() },
            older: Vec::new(),
            is_over: false,
            asked: BTreeMap::new(),
            is_closing: false,
            ack_changes: 0,
            options,
        }
    }

    /// What it did; what is not accounted for was spent on the load.
    pub fn into_report(mut self, started: Instant) -> Report {
        for (kind, count) in &self.host.struck_by_kind {
            *self.report.faults.entry(*kind).or_default() += count;
        }
        if let Some(legs) = &self.host.legs {
            self.report.legs.add(&legs.done);
        }
        if self.options.copy_pages > 0 {
            self.report.copies.runs += 1;
            self.report.copies.crash_points += self.report.crash_points;
        }
        if let Some(engine) = self.host.running.engine.as_ref() {
            self.report.copies.ended(engine);
        }
        let times = &mut self.report.times;
        let others = times.crash + times.recover + times.check;
        times.run = started.elapsed().saturating_sub(others);
        self.report
    }

    /// Does all steps, and the end.
    pub fn go(&mut self, steps: &[Step], at: &mut usize) -> Result<(), Violation> {
        for (index, step) in steps.iter().enumerate() {
            *at = index;
            self.step(*step)?;
            if self.is_over {
                return Ok(());
            }
        }
        *at = steps.len();
        self.finish()
    }

    /// The first start.
    pub fn start(&mut self) -> Result<(), Violation> {
        self.older.push(self.host.images());
        let mut random = Random::new(0);
        match self.host.open(&self.options, Start::default(), None, &mut random) {
            Ok(()) => Ok(()),
            Err(NotOpen::Violation(violation)) => Err(violation),
            Err(NotOpen::Refused(error)) => {
                Err(Violation(format!("a new cache does not open: {error}")))
            }
            Err(NotOpen::Interrupted) => unreachable!("nobody asked for that"),
        }
    }

    /// Does a step.
    pub fn step(&mut self, step: Step) -> Result<(), Violation> {
        let Step(op, seed) = step;
        if self.host.running.is_traced {
            eprintln!("{step:?}");
        }
        let mut random = Random::new(u64::from(seed));
        match op {
            Op::Write { start, blocks, fua } => {
                self.change(start, blocks, Change::Write, fua, &mut random)?;
            }
            Op::Zero { start, blocks, may_unmap, fua } => {
                self.change(start, blocks, Change::Zero { may_unmap }, fua, &mut random)?;
            }
            Op::Discard { start, blocks } => {
                self.change(start, blocks, Change::Discard, false, &mut random)?;
            }
            Op::Read { start, blocks } => self.read(start, blocks)?,
            Op::Flush => {
                let submitted = self.model.tick();
                self.ask(Asked::Flush { submitted }, Operation::Flush, false)?;
            }
            Op::Drain => {
                self.ask(Asked::Drain { is_cancelled: false }, Operation::Drain, false)?;
            }
            Op::CancelDrain => self.cancel_drain()?,
            Op::EndIo => self.end_one_io(&mut random)?,
            Op::Settle => {
                let mut left = SETTLE_IOS_MAX;
                while self.host.running.has_ready_io() {
                    left -= 1;
                    if left == 0 {
                        return Err(Violation("I/Os without end".into()));
                    }
                    self.end_one_io(&mut random)?;
                }
            }
            Op::Pass(micros) => {
                self.host.pass(Duration::from_micros(micros));
                self.take_replies()?;
            }
            Op::Wake => {
                self.host.wake();
                self.take_replies()?;
            }
            Op::Idle => self.idle(&mut random)?,
            Op::Fault(kind) => self.fault(kind, &mut random)?,
            Op::Sweep(rule, passes) => self.arm(crate::sweep::rule_of_step(rule, passes)),
            Op::Probe { power } => self.crash(Crash::probe(power), &mut random)?,
            Op::Crash { power } => self.crash(Crash::real(power), &mut random)?,
            Op::Shutdown => self.shut_down(&mut random)?,
            Op::CancelDetach => self.cancel_detach(&mut random)?,
            Op::ChangeDetached { start, blocks } => {
                self.change_detached(start, blocks, &mut random)?;
            }
            Op::Store { name, line, lines, step, is_detected } => {
                let order = places(line, lines, step, self.options.data_blocks);
                let new = NewSequence {
                    name: name_of(name),
                    ranges: order.map(|(start, blocks)| LbaRange::new(start, blocks)).collect(),
                    occurrences: u64::from(is_detected),
                    is_detected,
                };
                self.sequence_request(SequenceRequest::Store(Box::new(new)))?;
            }
            Op::Remove { name } => {
                self.sequence_request(SequenceRequest::Remove { name: name_of(name) })?;
            }
            Op::Clear => self.sequence_request(SequenceRequest::Clear)?,
            Op::Pin { name, is_pinned } => {
                let name = name_of(name);
                self.sequence_request(SequenceRequest::Pin { name, is_pinned })?;
            }
            Op::Grow { blocks } => self.grow(blocks, &mut random)?,
            Op::Configure => self.configure(&mut random)?,
            Op::Mode(mode) => self.want_mode(mode)?,
            Op::Resize { eighths, cuts } => self.resize(eighths, cuts)?,
            Op::ResizeReadArea { pages } => self.resize_read_area(pages)?,
            Op::CancelResize => self.cancel_resize()?,
        }
        if self.is_over {
            return Ok(());
        }
        self.note_uncached();
        // A cache-disk that has failed stays failed until a restart.
        let crash_one_in = if self.host.has_failed() { 3 } else { 30 };
        if self.host.engine().cache_disk_failure().is_some() && random.one_in(crash_one_in) {
            self.crash(Crash::real(random.one_in(2)), &mut random)?;
        }
        Ok(())
    }

    /// Without its cache-disk dcd promises what the data-disk does (C9, C23), and so it does past
    /// the log (C36).
    pub(crate) fn note_uncached(&mut self) {
        let is_past = self.host.is_past_the_log();
        if is_past && !self.model.is_plain {
            self.report.times_past_the_log += 1;
        }
        if self.host.is_uncached() && !self.model.is_plain {
            self.report.times_uncached += 1;
        }
        if self.model.is_plain && self.host.engine().mode().state == ModeState::Failed {
            // The flush before the return has failed: the next that a client asks for does.
            self.taint_unflushed();
        }
        let is_plain = self.host.is_uncached() || is_past;
        if is_plain {
            self.model.is_plain = true;
        } else if self.model.is_plain && !self.host.has_failed() {
            // Back in the log: the data-disk was flushed (C38).
            self.model.all_acknowledged_survive();
            self.model.is_plain = false;
        }
    }

    fn taint_unflushed(&mut self) {
        for (start, blocks) in self.model.unflushed_on_data_disk() {
            self.host.allowed.taint(start, blocks);
        }
    }

    fn want_mode(&mut self, mode: Mode) -> Result<(), Violation> {
        self.options.mode = mode;
        let mode = self.options.engine_with(self.copy_pages()).mode;
        let config = EngineConfig { mode, ..self.host.engine().config().clone() };
        self.host.configure(&config);
        self.take_replies()
    }

    // ---- the load -----------------------------------------------------------------------------

    fn ask(&mut self, asked: Asked, operation: Operation, fua: bool) -> Result<(), Violation> {
        // The reply may come at once, so it is noted before.
        let id = self.host.running.next_request;
        self.asked.insert(id, asked);
        self.host.submit(operation, fua);
        self.take_replies()
    }

    /// The range, cut to the volume (a script may have been shrunk).
    fn fit(&self, start: u64, blocks: u64) -> (u64, u64) {
        let all = self.options.data_blocks;
        let unit = u64::from(self.options.logical_block) / 512;
        let start = start.min(all - unit) / unit * unit;
        (start, blocks.max(1).next_multiple_of(unit).min(all - start))
    }

    fn read(&mut self, start: u64, blocks: u64) -> Result<(), Violation> {
        let (start, blocks) = self.fit(start, blocks);
        let submitted = self.model.tick();
        let operation = read_into_used(LbaRange::new(start, blocks));
        self.ask(Asked::Read { start, submitted }, operation, false)
    }

    fn change(
        &mut self,
        start: u64,
        blocks: u64,
        change: Change,
        fua: bool,
        random: &mut Random,
    ) -> Result<(), Violation> {
        let (start, blocks) = self.fit(start, blocks);
        if !self.options.overlaps && self.model.overlaps_open(start, blocks) {
            return self.end_one_io(random);
        }
        let is_zero = !matches!(change, Change::Write);
        let is_atomic = is_zero
            || blocks * 512 < self.options.bypass_bytes
                && blocks + 8 <= self.options.atomic_blocks_max();
        let number = self.model.submit(start, blocks, is_zero, is_atomic);
        if let Some(order) = &mut self.order {
            let is_atomic = is_zero || blocks + 8 <= self.options.atomic_blocks_max();
            order.submit(number, start, blocks, is_zero, is_atomic);
        }
        if let (Some(space), Some(may_unmap)) = (&mut self.host.space, change.may_unmap()) {
            space.asked(start, blocks, may_unmap);
        }
        let range = LbaRange::new(start, blocks);
        let operation = match change {
            Change::Discard => Operation::Discard { range },
            Change::Zero { may_unmap } => Operation::WriteZeroes { range, may_unmap },
            Change::Write => {
                let mut data = Buffer::zeroed(range.bytes() as usize);
                for (i, block) in data.bytes_mut().chunks_exact_mut(512).enumerate() {
                    fill_block(block, number, start + i as u64);
                }
                Operation::Write { start: Lba(start), data }
            }
        };
        let ack_changes = self.ack_changes;
        self.ask(Asked::Change { number, fua, is_atomic, ack_changes }, operation, fua)
    }

    /// Each setting as at the start, or another one. Not those that the model reckons with: what
    /// goes past the log, and whether rot in what is read is noticed.
    fn configure(&mut self, random: &mut Random) -> Result<(), Violation> {
        let mut config = self.options.engine_with(self.copy_pages());
        if random.one_in(2) {
            config.ack = random.pick(&[AckMode::Memory, AckMode::Log, AckMode::Durable]);
        }
        if random.one_in(2) {
            config.max_delay = Duration((config.max_delay.0 / (1 + random.below(100))).max(1));
        }
        if random.one_in(2) {
            config.destage_policy = random.pick(&[
                DestagePolicyKind::FirstWriteFirst,
                DestagePolicyKind::LastWriteFirst,
                DestagePolicyKind::LeastValidFirst,
            ]);
            // Mostly it stays.
            if self.options.is_ordered()
                && config.destage_policy != DestagePolicyKind::LastWriteFirst
            {
                config.destage_policy = DestagePolicyKind::Ordered;
            }
        }
        if random.one_in(2) {
            config.idle_threshold_max = Duration::from_millis(1 + random.below(2000));
        }
        if random.one_in(2) {
            // Now and then too low for the other, and refused.
            config.dirty_high_percent = 10 + random.below(85) as u8;
        }
        if random.one_in(2) {
            config.destage_writes_per_second_max = random.pick(&[0, 20, 1000]);
            config.destage_bytes_per_second_max = random.pick(&[0, 1 << 16, 1 << 24]);
        }
        let ack_before = self.host.engine().ack_mode();
        self.host.configure(&config);
        self.ack_changes += u64::from(self.host.engine().ack_mode() != ack_before);
        self.take_replies()
    }

    fn sequence_request(&mut self, request: SequenceRequest) -> Result<(), Violation> {
        self.ask(Asked::Sequence, Operation::Sequence(request), false)
    }

    fn end_one_io(&mut self, random: &mut Random) -> Result<(), Violation> {
        if self.options.faults.contains(&FaultKind::Reorder)
            && let Some(newest) = self.host.running.ios.len().checked_sub(1)
        {
            self.host.end_io(newest, random);
        } else {
            self.host.end_one_io(random);
        }
        self.take_replies()
    }

    /// Ends an I/O, or lets time pass if none can end. False if neither is left to do.
    fn go_on(&mut self, random: &mut Random) -> Result<bool, Violation> {
        if self.host.running.has_ready_io() {
            self.end_one_io(random)?;
            return Ok(true);
        }
        let before = self.host.running.now;
        let goes_on = self.host.wake();
        self.take_replies()?;
        Ok(goes_on && self.host.running.now > before)
    }

    fn idle(&mut self, random: &mut Random) -> Result<(), Violation> {
        self.host.data_disk.failing = None;
        for _ in 0..400 {
            if !self.go_on(random)? {
                break;
            }
        }
        // Nothing is planned any more: what was acknowledged is durable by now (C5).
        let is_at_rest = self.host.running.ios.is_empty() && self.host.running.wake_up.is_none();
        if is_at_rest && self.asked.is_empty() && !self.model.is_plain && !self.host.has_failed() {
            self.model.all_acknowledged_survive();
        }
        Ok(())
    }

    // ---- answers ------------------------------------------------------------------------------

    fn take_replies(&mut self) -> Result<(), Violation> {
        if self.host.is_touched_in_passing {
            return Err(Violation("the cache-disk is used while changes go past the log".into()));
        }
        // What is answered from here on was done in the mode that is reached now.
        self.note_uncached();
        self.compare_windows()?;
        for reply in std::mem::take(&mut self.host.running.replies) {
            self.replied(reply)?;
        }
        Ok(())
    }

    fn replied(&mut self, reply: Reply) -> Result<(), Violation> {
        self.report.requests += 1;
        let asked = self.asked.remove(&reply.id.0);
        let asked = asked.ok_or_else(|| Violation("a reply to nothing".into()))?;
        if let Err(error) = reply.result {
            self.note_uncached();
            if !self.may_fail(asked, error) {
                return Err(Violation(format!("a request failed: {error}")));
            }
            // Refused, loudly: what was acknowledged before must still be there after a restart.
            // But a kernel may still show what it could not write, and show it no more after a
            // power cut.
            if let Asked::Change { number, is_atomic, .. } = asked {
                self.model.acknowledge(number, false);
                self.order.iter_mut().for_each(|order| order.acknowledge(number, false));
                if let Some((start, blocks)) = self.model.range(number).filter(|_| !is_atomic) {
                    self.host.allowed.taint(start, blocks);
                }
            }
            if self.model.is_plain && !matches!(asked, Asked::Read { .. }) {
                self.taint_unflushed();
            }
            return Ok(());
        }
        match asked {
            Asked::Read { start, submitted } => {
                let buffer = reply.buffer.ok_or_else(|| Violation("a read without data".into()))?;
                let allowed = &self.host.allowed;
                let notes = self.model.check_read(start, buffer.bytes(), submitted, allowed)?;
                self.report.note(notes);
            }
            Asked::Change { number, fua, ack_changes, .. } => {
                self.model.acknowledge(number, true);
                self.order.iter_mut().for_each(|order| order.acknowledge(number, true));
                let is_as_begun = ack_changes == self.ack_changes;
                if fua || is_as_begun && self.host.engine().ack_mode() == AckMode::Durable {
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
            Asked::TooLate => return Err(Violation("taken although it is being closed".into())),
            // Uncached, the data-disk was in use all the time.
            Asked::Drain { .. } | Asked::Detach if !self.host.engine().lost().is_empty() => {
                let lost = self.host.engine().lost();
                return Err(Violation(format!("drained or detached, and {lost:?} are lost")));
            }
            Asked::Detach => {}
            Asked::Resize { cuts, segments_before, copy_pages_before, .. } => {
                let segments = self.host.engine().superblock().geometry.segments;
                let is_read_area = self.copy_pages() != copy_pages_before;
                self.report.times_read_area_resized += u64::from(is_read_area);
                let (grown, shrunk) = (segments > segments_before, segments < segments_before);
                self.report.times_grown += u64::from(grown);
                self.report.times_shrunk += u64::from(shrunk);
                if cuts && shrunk {
                    self.host.cut_cache_disk();
                }
            }
            Asked::Drain { .. } | Asked::Close | Asked::Cancel | Asked::Sequence => {}
        }
        Ok(())
    }

    /// What is left of the data-disk when the cache-disk is gone, at the end of each window.
    fn compare_windows(&mut self) -> Result<(), Violation> {
        let images = std::mem::take(&mut self.host.kept_images);
        let Some(order) = &mut self.order else { return Ok(()) };
        // Somebody has broken a promise, or changes went past the log.
        let is_over = self.host.allowed.level != Level::Exact;
        for kept in images.iter().filter(|_| !is_over) {
            self.report.windows += 1;
            order.compare(kept, self.options.data_blocks, &self.host.allowed)?;
        }
        Ok(())
    }

    fn may_fail(&self, asked: Asked, error: RequestError) -> bool {
        let allowed = &self.host.allowed;
        match asked {
            _ if matches!(error, RequestError::Lost { .. }) => {
                let may_find_it =
                    matches!(asked, Asked::Drain { .. } | Asked::Detach | Asked::Close);
                let has_lost = self.host.had_lost || !self.host.engine().lost().is_empty();
                return may_find_it && has_lost;
            }
            // Only where something fails, and not because it is slow.
            Asked::Drain { .. } | Asked::Detach | Asked::Close
                if matches!(error, RequestError::Stuck { .. }) =>
            {
                return allowed.bypasses_fail || allowed.no_space;
            }
            Asked::Resize { is_cancelled, .. } => match error {
                // There is not always a size that fits.
                RequestError::Resize(_) => return true,
                RequestError::Cancelled => return is_cancelled,
                RequestError::Io if self.host.engine().cache_disk_failure().is_some() => {
                    return true;
                }
                RequestError::Stuck { .. } => {
                    let has_lost = self.host.had_lost || !self.host.engine().lost().is_empty();
                    return allowed.bypasses_fail || allowed.no_space || has_lost;
                }
                _ => {}
            },
            Asked::TooLate => return error == RequestError::ShuttingDown,
            Asked::Cancel => return false,
            // Answered when a checkpoint knows of it: not where there will be none.
            Asked::Sequence => {
                let has_failed = self.host.engine().cache_disk_failure().is_some();
                let both_failed = allowed.bypasses_fail && self.model.is_plain;
                return matches!(error, RequestError::Sequence(_)) || has_failed || both_failed;
            }
            Asked::Drain { is_cancelled: true } if error == RequestError::Cancelled => return true,
            _ => {}
        }
        if self.is_closing || self.host.has_failed() {
            return true;
        }
        match asked {
            // A full data-disk says so itself to a change that goes past the log.
            Asked::Change { .. } if error == RequestError::NoSpace && allowed.no_space => true,
            _ if error == RequestError::NoSpace && !matches!(asked, Asked::Change { .. }) => {
                allowed.no_space
            }
            Asked::Read { .. } => allowed.reads_fail,
            // Uncached, all changes go past the log.
            Asked::Change { is_atomic, .. } => {
                allowed.bypasses_fail && (!is_atomic || self.model.is_plain)
            }
            _ => allowed.bypasses_fail && self.model.is_plain,
        }
    }

    /// Nobody is answered any more: the machine crashed.
    pub(crate) fn forget_requests(&mut self) {
        self.asked.clear();
    }

    fn finish_requests(&mut self, random: &mut Random) -> Result<(), Violation> {
        let mut left = 200_000;
        while !self.asked.is_empty() {
            left -= 1;
            let goes_on = self.go_on(random)?;
            if left == 0 || !goes_on && !self.asked.is_empty() {
                let status = self.host.engine().status();
                return Err(Violation(format!(
                    "requests are never answered; {} lines dirty, {:?}",
                    status.dirty_lines, status.segments
                )));
            }
        }
        Ok(())
    }

    // ---- faults -------------------------------------------------------------------------------

    fn fault(&mut self, kind: FaultKind, random: &mut Random) -> Result<(), Violation> {
        use FaultKind::*;
        let device = random.pick(&[Device::CacheDisk, Device::DataDisk]);
        let allowed = &mut self.host.allowed;
        // Read errors also meet what destaging and recovery read, and poison it.
        allowed.reads_fail |= matches!(kind, ReadErrorOnce | BadSector | CacheVanishes);
        allowed.reads_fail |= matches!(kind, DataVanishes | Hang);
        allowed.bypasses_fail |= matches!(
            kind,
            WriteError
                | ShortWrite
                | NoSpace
                | FlushErrorKept
                | FlushErrorDropped
                | DataVanishes
                | ReadOnly
                | Hang
        );
        allowed.no_space |= matches!(kind, DataVanishes | ReadOnly | Hang | BadSector);
        match kind {
            // Properties of the whole run: see `Options::faults`.
            DropWrites | TearWrites | Shear | Reorder | SlowZeroes => {}
            BitRot | SectorRot | ZeroedSector | OldVersion | BadSector => {
                self.report.fault(kind);
                self.damage(kind, device, random);
            }
            // Clean it may be missed (C23); that is rare, so it is waited for.
            CacheVanishes if !self.host.engine().status().cache_disk_clean && !random.one_in(4) => {
            }
            CacheVanishes => {
                self.report.fault(kind);
                self.host.cache_disk.failing = Some(dcd_engine::IoError::Gone);
            }
            DataVanishes | ReadOnly => {
                self.report.fault(kind);
                let disk = &mut self.host.data_disk;
                disk.failing = match disk.failing {
                    None if kind == ReadOnly => Some(dcd_engine::IoError::ReadOnly),
                    None => Some(dcd_engine::IoError::Gone),
                    Some(_) => None,
                };
            }
            ClockJump => {
                self.report.fault(kind);
                let pause = Duration::from_secs(3600);
                match random.one_in(2) {
                    true => self.host.jump(pause),
                    false => self.host.pass(pause),
                }
                self.take_replies()?;
            }
            OlderCache | ChangedOutside | Resized | Swapped | MemoryLost | ForgedMetadata => {
                self.report.fault(kind);
                let twist = Twist { kind, device };
                let power = kind == OlderCache;
                let crash = Crash { twist: Some(twist), ..Crash::real(power) };
                return self.crash(crash, random);
            }
            _ => self.host.pending.traps.push(Trap { kind, device }),
        }
        Ok(())
    }

    /// An I/O fails, and perhaps all after it, as the rule says.
    pub fn arm(&mut self, rule: SweepRule) {
        let allowed = &mut self.host.allowed;
        allowed.reads_fail |= rule.io == IoKind::Read;
        allowed.bypasses_fail |= rule.device == Device::DataDisk || rule.io == IoKind::Read;
        // Nothing can be destaged for as long as it fails.
        allowed.no_space |= rule.is_sticky;
        self.host.pending.sweep = Some(rule);
        self.host.pending.has_swept = false;
    }

    /// Damage of the medium, rather where something was written just now.
    fn damage(&mut self, kind: FaultKind, device: Device, random: &mut Random) {
        let disk = match device {
            Device::CacheDisk => &mut self.host.cache_disk,
            Device::DataDisk => &mut self.host.data_disk,
            Device::Member(_) | Device::Leg(_) | Device::Witness | Device::Nvram => {
                unreachable!("one of each")
            }
        };
        let (from, length) = match disk.newest_write() {
            // Of a short write, perhaps nothing has landed.
            Some(place) if place.1 > 0 && random.one_in(2) => place,
            _ => (0, disk.len()),
        };
        let sector = from + random.below((length / 512) as u64) as usize * 512;
        let mut bytes = [0; 512];
        match kind {
            FaultKind::BadSector => {
                disk.make_bad(sector);
                self.host.allowed.refusal = true;
                return;
            }
            FaultKind::BitRot => {
                disk.peek(sector, &mut bytes);
                bytes[random.below(512) as usize] ^= 1 << random.below(8);
            }
            FaultKind::SectorRot => bytes.fill(random.bits() as u8 | 1),
            FaultKind::OldVersion => {
                let images = &self.older[random.below(self.older.len() as u64) as usize];
                images[usize::from(device == Device::DataDisk)].read(sector, &mut bytes);
            }
            _ => {}
        }
        disk.rot(sector, &bytes);
        self.host.promise_broken(device, sector as u64, 512);
    }

    // ---- ends ---------------------------------------------------------------------------------

    /// Shuts down; then not even a power cut may take anything that was acknowledged.
    fn shut_down(&mut self, random: &mut Random) -> Result<(), Violation> {
        self.host.data_disk.failing = None;
        self.close(Operation::Shutdown, random)?;
        self.crash_after_close(random)
    }

    fn crash_after_close(&mut self, random: &mut Random) -> Result<(), Violation> {
        if !self.host.has_failed() && !self.close_failed() {
            self.model.all_acknowledged_survive();
        }
        self.crash(Crash::real(true), random)
    }

    /// A detach that is cancelled: what was moved stays moved, the rest stays in the log (C31).
    fn cancel_detach(&mut self, random: &mut Random) -> Result<(), Violation> {
        self.host.data_disk.failing = None;
        self.is_closing = true;
        self.ask(Asked::Close, Operation::Detach, false)?;
        for _ in 0..random.below(30) {
            self.go_on(random)?;
        }
        self.ask(Asked::TooLate, Operation::Flush, false)?;
        self.ask(Asked::Cancel, Operation::CancelDetach, false)?;
        self.end_close(random)?;
        self.crash_after_close(random)
    }

    /// The data-disk stands on its own, and somebody uses it. The cache that is opened again must
    /// not show anything older (C29).
    fn change_detached(
        &mut self,
        start: u64,
        blocks: u64,
        random: &mut Random,
    ) -> Result<(), Violation> {
        self.host.data_disk.failing = None;
        self.is_closing = true;
        self.ask(Asked::Close, Operation::Detach, false)?;
        let mut left = DETACH_IOS_MAX;
        while *self.host.engine().phase() != Phase::Closed {
            let goes_on = self.go_on(random)?;
            left -= 1;
            if left == 0 || !goes_on {
                // A write was given up: nothing is destaged before a restart.
                self.ask(Asked::Cancel, Operation::CancelDetach, false)?;
                self.end_close(random)?;
                return self.crash_after_close(random);
            }
        }
        self.end_close(random)?;
        if self.close_failed() || self.host.engine().cache_disk_failure().is_some() {
            return self.crash_after_close(random);
        }
        let (start, blocks) = self.fit(start, blocks);
        let number = self.model.submit(start, blocks, false, true);
        if let Some(order) = &mut self.order {
            order.submit(number, start, blocks, false, true);
            order.acknowledge(number, true);
        }
        let mut bytes = vec![0; blocks as usize * 512];
        for (i, block) in bytes.chunks_exact_mut(512).enumerate() {
            fill_block(block, number, start + i as u64);
        }
        self.host.data_disk.rot(start as usize * 512, &bytes);
        self.model.acknowledge(number, true);
        self.crash_after_close(random)
    }

    /// Nobody waits for the oldest drain any more; it is told so at once.
    fn cancel_drain(&mut self) -> Result<(), Violation> {
        let is_drain = |asked: &Asked| matches!(asked, Asked::Drain { .. });
        let oldest = self.asked.iter_mut().find(|(_, asked)| is_drain(asked));
        // One that nobody has asked for is harmless.
        let drain = oldest.map_or(u64::MAX, |(id, asked)| {
            *asked = Asked::Drain { is_cancelled: true };
            *id
        });
        let operation = Operation::CancelDrain { drain: RequestId(drain) };
        self.ask(Asked::Cancel, operation, false)?;
        if self.asked.contains_key(&drain) {
            return Err(Violation("a drain that was cancelled goes on".into()));
        }
        Ok(())
    }

    fn resize(&mut self, eighths: u8, cuts: bool) -> Result<(), Violation> {
        let made = self.options.geometry().end() + END_MARK_BYTES as u64;
        let cache_disk_bytes = made * u64::from(eighths) / 8;
        self.host.make_cache_disk_larger(cache_disk_bytes);
        self.ask(self.resized(cuts), Operation::Resize { cache_disk_bytes }, false)
    }

    fn resize_read_area(&mut self, pages: u8) -> Result<(), Violation> {
        let bytes = u64::from(pages) * COPY_PAGE_SPACE_BYTES;
        self.ask(self.resized(false), Operation::ResizeReadArea { bytes }, false)
    }

    fn resized(&self, cuts: bool) -> Asked {
        let segments_before = self.host.engine().superblock().geometry.segments;
        let copy_pages_before = self.copy_pages();
        Asked::Resize { cuts, is_cancelled: false, segments_before, copy_pages_before }
    }

    /// Of the read area, as it is now.
    fn copy_pages(&self) -> u32 {
        self.host.engine().superblock().geometry.copy_pages
    }

    fn cancel_resize(&mut self) -> Result<(), Violation> {
        let mut resize = u64::MAX;
        for (id, asked) in &mut self.asked {
            if let Asked::Resize { is_cancelled, .. } = asked {
                *is_cancelled = true;
                resize = *id;
            }
        }
        let operation = Operation::CancelResize { resize: RequestId(resize) };
        self.ask(Asked::Cancel, operation, false)
    }

    /// The machine crashes, and then its data-disk has become larger (C32).
    fn grow(&mut self, blocks: u64, random: &mut Random) -> Result<(), Violation> {
        let unit = u64::from(self.options.logical_block) / 512;
        let blocks = blocks.next_multiple_of(unit);
        self.crash(Crash { grows_by: blocks, ..Crash::real(random.one_in(2)) }, random)
    }

    /// The request to close was answered with an error: nothing is promised.
    fn close_failed(&self) -> bool {
        self.host.allowed.bypasses_fail || self.host.allowed.reads_fail
    }

    fn close(&mut self, operation: Operation, random: &mut Random) -> Result<(), Violation> {
        self.is_closing = true;
        self.ask(Asked::Close, operation, false)?;
        self.end_close(random)
    }

    fn end_close(&mut self, random: &mut Random) -> Result<(), Violation> {
        self.finish_requests(random)?;
        self.is_closing = false;
        if *self.host.engine().phase() != Phase::Closed {
            return Err(Violation("closed, but not ended".into()));
        }
        Ok(())
    }

    /// The end of every run: healthy disks, a crash, all answered, detached. Then the data-disk
    /// alone holds everything.
    pub fn finish(&mut self) -> Result<(), Violation> {
        let mut random = Random::new(1);
        self.host.pending.traps.clear();
        self.host.pending.sweep = None;
        self.host.cache_disk.heal();
        self.host.data_disk.heal();
        self.crash(Crash { is_full: true, ..Crash::real(random.one_in(2)) }, &mut random)?;
        // What was forged may make an end impossible: it is not promised.
        if self.is_over || self.host.allowed.level == Level::Anything {
            return Ok(());
        }
        self.part_from_damaged(&mut random)?;
        if self.is_over {
            return Ok(());
        }
        self.overwrite_damaged(&mut random)?;
        self.finish_requests(&mut random)?;
        let blocks: Vec<u64> = (0..self.options.data_blocks).collect();
        let shown = self.host.read_blocks(&blocks, &self.options, &mut random)?;
        self.close(Operation::Detach, &mut random)?;
        if self.host.has_failed() {
            return Err(Violation("the cache-disk failed on healthy disks".into()));
        }
        self.host.data_disk.power_cut(&mut random, |_| crate::disk::Fate::Dropped);
        self.compare_detached(&shown)
    }

    /// Neither a drain nor a detach succeeds while something is lost, whether somebody has noticed
    /// it before or they find it; nor does one that gives up less than all of it (C21).
    fn part_from_damaged(&mut self, random: &mut Random) -> Result<(), Violation> {
        if !self.host.allowed.reads_fail || self.host.has_failed() {
            return Ok(());
        }
        let is_known = random.one_in(2);
        let blocks: Vec<u64> = (0..self.options.data_blocks).collect();
        if is_known {
            self.host.read_blocks(&blocks, &self.options, random)?;
        }
        if random.one_in(2) {
            self.ask(Asked::Drain { is_cancelled: false }, Operation::Drain, false)?;
            self.finish_requests(random)?;
        }
        let mut given_up = self.host.engine().lost();
        given_up.pop();
        let operation = match given_up.is_empty() {
            true => Operation::Detach,
            false => Operation::DetachAccepting { lost: given_up },
        };
        self.is_closing = true;
        self.ask(Asked::Detach, operation, false)?;
        self.end_close(random)?;
        self.crash(Crash { is_full: true, ..Crash::real(false) }, random)
    }

    /// What could not be read can, after it was overwritten (C21).
    fn overwrite_damaged(&mut self, random: &mut Random) -> Result<(), Violation> {
        if !self.host.allowed.reads_fail {
            return Ok(());
        }
        let blocks: Vec<u64> = (0..self.options.data_blocks).collect();
        let shown = self.host.read_blocks(&blocks, &self.options, random)?;
        for (block, shown) in shown {
            if shown == Shown::Error {
                let start = block / 8 * 8;
                self.change(start, 8, Change::Write, false, random)?;
                self.finish_requests(random)?;
            }
        }
        self.host.allowed.reads_fail = false;
        self.host.allowed.bypasses_fail = false;
        for start in (0..self.options.data_blocks).step_by(64) {
            self.read(start, 64)?;
            self.finish_requests(random)?;
        }
        Ok(())
    }

    fn compare_detached(&self, shown: &[(u64, Shown)]) -> Result<(), Violation> {
        let mut bytes = [0; 512];
        for (block, shown) in shown {
            self.host.data_disk.peek(*block as usize * 512, &mut bytes);
            let found = crate::model::read_block(&bytes, *block);
            if found != *shown && !self.host.allowed.is_tainted(*block) {
                return Err(Violation(format!(
                    "block {block} of the detached data-disk shows {found:?}, not {shown:?}"
                )));
            }
        }
        Ok(())
    }
}

fn name_of(sequence: u8) -> String {
    format!("sequence {sequence}")
}

/// A change, as the load has them.
#[derive(Clone, Copy)]
enum Change {
    Write,
    Zero { may_unmap: bool },
    Discard,
}

impl Change {
    /// Of zeroes: whether their space may be freed.
    fn may_unmap(self) -> Option<bool> {
        match self {
            Change::Write => None,
            Change::Zero { may_unmap } => Some(may_unmap),
            Change::Discard => Some(true),
        }
    }
}
