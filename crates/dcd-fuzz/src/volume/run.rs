//! One run: a load on a volume whose members fail, checked against the model.
//!
//! Everything follows from the seed; the steps are drawn as it goes. What happens at a crash is in
//! [`super::crash`], requests about hints and members in [`super::requests`].

use std::collections::BTreeMap;

use dcd_engine::units::{BLOCK_SIZE, LINE_SIZE};
use dcd_engine::volume::away::LogShare;
use dcd_engine::{AckMode, Buffer, Duration, Lba, LbaRange, Operation, Reply, RequestError};
use dcd_testkit::read_into_used;

use super::VolumeKind;
use super::hints::Hints;
use super::machine::{Machine, new_volume};
use super::options::VolumeOptions;
use super::script::{Event, VolumeScript};
use super::trips::Trip;
use crate::disk::Pages;
use crate::faults::Allowed;
use crate::model::{ChangeNumber, Model, Violation, fill_block};
use crate::random::Random;
use crate::report::Report;
use crate::running::NotOpen;

/// I/Os and pauses after which a request must be answered.
pub(super) const WAIT_MAX: u32 = 200_000;
const LINE_BLOCKS: u64 = LINE_SIZE / BLOCK_SIZE;

/// A request under way.
#[derive(Clone, Copy)]
enum Asked {
    Read { start: u64, blocks: u64, submitted: u64 },
    Change { number: ChangeNumber, fua: bool, is_atomic: bool },
    Flush { submitted: u64 },
}

/// A run.
pub struct VolumeRun {
    pub(super) options: VolumeOptions,
    pub(super) machine: Machine,
    pub(super) model: Model,
    pub(super) hints: Hints,
    pub(super) allowed: Allowed,
    pub(super) report: Report,
    /// Members were done without although the others do not hold everything, at some moment.
    pub(super) had_losses: bool,
    /// Decides of [`super::options::MoreFaults`]: set anew with each event, so that they change
    /// nothing else.
    pub(super) more: Random,
    /// Nothing happens to members between a crash and the start after it, and no start is
    /// interrupted.
    pub(super) is_calm: bool,
    /// The disks of the members as they were at each start.
    pub(super) older: Vec<Vec<Pages>>,
    /// What each event does, if somebody wants to know.
    told: Option<Vec<Vec<String>>>,
    /// Where the next requests go; `None`: anywhere.
    pub(super) aim: Option<(u64, u64)>,
    /// The member that is replaced by a blank disk at the next crash.
    pub(super) to_replace: Option<usize>,
    /// What happens to a member at the next crash, and nothing else.
    pub(super) trip: Option<Trip>,
    /// Checkpoints of the volume since the start, at the last look.
    pub(super) checkpoints: u64,
    /// The cache-disk fails until the next crash: what is asked may fail.
    pub(super) has_no_cache_disk: bool,
    /// At the last look, with the members that were away.
    pub(super) log_share: (u32, LogShare),
    asked: BTreeMap<u64, Asked>,
}

/// A run that went wrong. All of it is repeated by its kind and seed, what is in the script by
/// [`replay`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeFailure {
    /// What kind of volume.
    pub kind: VolumeKind,
    /// The seed.
    pub seed: u64,
    /// What was seen.
    pub violation: Violation,
    /// What happened, up to then.
    pub script: VolumeScript,
}

/// Runs one seed. With `is_traced` every input and output is printed on standard error.
pub fn run(kind: VolumeKind, seed: u64, is_traced: bool) -> Result<Report, Box<VolumeFailure>> {
    let mut random = Random::new(seed);
    let options = VolumeOptions::of_seed(&mut random, kind, seed);
    let mut script =
        VolumeScript { kind, seed, plain: Vec::new(), start: random.state(), events: Vec::new() };
    let mut run = VolumeRun::new(options, is_traced);
    let outcome = crate::run::guard(|| {
        run.start(&mut random)?;
        let steps = (20 + random.below(100)) * (1 + u64::from(run.options.more.length));
        let mut go = |event: Event, random: &mut Random, run: &mut VolumeRun| {
            script.events.push(event);
            run.go(event, random)
        };
        for _ in 0..steps {
            let is_crash = go(Event::Op(random.state()), &mut random, &mut run)?;
            if !is_crash && random.one_in(3) {
                go(Event::Probe(random.state()), &mut random, &mut run)?;
            }
        }
        go(Event::Finish(random.state()), &mut random, &mut run)
    });
    match outcome {
        Ok(_) => Ok(run.into_report()),
        Err(violation) => Err(Box::new(VolumeFailure { kind, seed, violation, script })),
    }
}

/// The same of a script.
pub fn replay(script: &VolumeScript, is_traced: bool) -> Result<Report, Box<VolumeFailure>> {
    let mut run = VolumeRun::new(script.options(), is_traced);
    let mut done = 0;
    match crate::run::guard(|| run.replay(script, &mut done)) {
        Ok(()) => Ok(run.into_report()),
        Err(violation) => {
            let events = script.events[..done].to_vec();
            let VolumeScript { kind, seed, .. } = *script;
            let script = VolumeScript { events, ..script.clone() };
            Err(Box::new(VolumeFailure { kind, seed, violation, script }))
        }
    }
}

/// What each event of a script does, in words.
pub(super) fn tell(script: &VolumeScript) -> Vec<Vec<String>> {
    let mut run = VolumeRun::new(script.options(), false);
    run.told = Some(Vec::new());
    // That it fails is known.
    let _ = crate::run::guard(|| run.replay(script, &mut 0));
    run.told.unwrap_or_default()
}

impl VolumeRun {
    fn new(options: VolumeOptions, is_traced: bool) -> VolumeRun {
        if is_traced {
            eprintln!("{options:?}");
        }
        let mut model = Model::new(options.config.blocks());
        model.is_plain = options.more.without_log;
        VolumeRun {
            machine: Machine::new(new_volume(&options), &options, is_traced),
            model,
            hints: Hints::default(),
            allowed: Allowed::default(),
            report: Report { runs: 1, ..Report::default() },
            had_losses: false,
            more: Random::new(0),
            is_calm: false,
            older: Vec::new(),
            told: None,
            aim: None,
            to_replace: None,
            trip: None,
            checkpoints: 0,
            has_no_cache_disk: false,
            log_share: Default::default(),
            asked: BTreeMap::new(),
            options,
        }
    }

    /// `done`: events that were begun.
    fn replay(&mut self, script: &VolumeScript, done: &mut usize) -> Result<(), Violation> {
        self.start(&mut Random::new(script.start))?;
        for event in &script.events {
            *done += 1;
            self.go(*event, &mut Random::new(event.state()))?;
        }
        Ok(())
    }

    /// For people: what an event does.
    pub(super) fn say(&mut self, what: impl FnOnce() -> String) {
        if let Some(event) = self.told.as_mut().and_then(|told| told.last_mut()) {
            event.push(what());
        }
    }

    fn into_report(mut self) -> Report {
        self.count_machine();
        if let Some(legs) = &self.machine.state.legs {
            self.report.legs.add(&legs.done);
        }
        self.report
    }

    /// The machine is about to be another.
    pub(super) fn count_machine(&mut self) {
        let volume = &mut self.report.volume;
        volume.io_faults += self.machine.struck;
        volume.writes_lost += self.machine.writes_lost;
        volume.replacements_done += self.machine.replaced;
        volume.ended(&self.machine.volume().status().counters);
    }

    fn start(&mut self, random: &mut Random) -> Result<(), Violation> {
        match self.machine.open(&self.options, None, random) {
            Ok(()) => {
                self.started();
                Ok(())
            }
            Err(NotOpen::Violation(violation)) => Err(violation),
            Err(_) => Err(Violation("a new volume does not open".into())),
        }
    }

    /// An event; whether it was a crash, behind which nothing is asked.
    fn go(&mut self, event: Event, random: &mut Random) -> Result<bool, Violation> {
        self.is_calm = event.is_calm();
        // Of the same event always the same, whatever the event itself draws.
        self.more = Random::new(!event.state());
        if let Some(told) = &mut self.told {
            told.push(Vec::new());
        }
        match event {
            Event::Op(_) | Event::CalmOp(_) => {
                if self.grow_now_and_then()? {
                    return Ok(true);
                }
                self.more_faults()?;
                self.cache_disk_stumbles();
                if self.crash_if_given_up()? || self.cache_disk_trouble()? || self.focus_step()? {
                    return Ok(true);
                }
                if self.leave_and_return()? {
                    return Ok(true);
                }
                let is_crash = self.step(random)?;
                self.look_at_places()?;
                self.look_at_log_share()?;
                self.check_rebuilt()?;
                Ok(is_crash)
            }
            Event::Probe(_) | Event::CalmProbe(_) => {
                let power = !random.one_in(4);
                self.crash(super::crash::Crash::probe(power), random)?;
                Ok(false)
            }
            Event::Finish(_) => {
                self.say(|| "the end".into());
                self.finish(random)?;
                self.close_and_probe(random)?;
                Ok(false)
            }
        }
    }

    fn step(&mut self, random: &mut Random) -> Result<bool, Violation> {
        self.machine.clear_suspects(false);
        match random.below(100) {
            0..32 => self.change(random)?,
            32..42 => self.read(random)?,
            42..48 => self.ask_flush()?,
            48..70 => {
                let ios = 1 + random.below(12);
                self.say(|| format!("{ios} I/Os end"));
                for _ in 0..ios {
                    self.end_one_io(random)?;
                }
            }
            70..74 => self.settle(random)?,
            74..78 => {
                let micros = random.below(300_000);
                self.say(|| format!("{micros} us pass"));
                self.machine.pass(Duration::from_micros(micros));
                self.take_replies()?;
            }
            78..81 => self.rest(random)?,
            81..88 if self.options.hints => self.hint(random)?,
            88..92 => self.member_request(random)?,
            92..97 => self.fault(random),
            97 => {
                self.crash(super::crash::Crash::real(random.one_in(2)), random)?;
                return Ok(true);
            }
            _ => self.end_one_io(random)?,
        }
        Ok(false)
    }

    // ---- the load -----------------------------------------------------------------------------

    fn ask(&mut self, asked: Asked, operation: Operation, fua: bool) -> Result<(), Violation> {
        // The reply may come at once, so it is noted before.
        self.asked.insert(self.machine.running.next_request, asked);
        self.say(|| describe(&operation, fua));
        self.machine.submit(operation, fua);
        self.take_replies()
    }

    pub(super) fn ask_flush(&mut self) -> Result<(), Violation> {
        let submitted = self.model.tick();
        self.ask(Asked::Flush { submitted }, Operation::Flush, false)
    }

    /// Some lines; more often near the start, where they meet others.
    fn draw_range(&mut self, random: &mut Random) -> (u64, u64) {
        if let Some(aim) = self.aim {
            return aim;
        }
        let lines = self.model.blocks() / LINE_BLOCKS;
        let area = if random.one_in(3) { lines } else { lines.min(48) };
        let start = random.below(area);
        let most = random.pick(&[1, 2, 4, 16]);
        let mut length = 1 + random.below(most);
        if self.options.more.large && self.more.one_in(2) {
            length = 1 + self.more.below(64);
        }
        (start * LINE_BLOCKS, length.min(lines - start) * LINE_BLOCKS)
    }

    pub(super) fn read(&mut self, random: &mut Random) -> Result<(), Violation> {
        let (start, blocks) = self.draw_range(random);
        let submitted = self.model.tick();
        let operation = read_into_used(LbaRange::new(start, blocks));
        self.ask(Asked::Read { start, blocks, submitted }, operation, false)
    }

    fn change(&mut self, random: &mut Random) -> Result<(), Violation> {
        self.change_once(random)?;
        if self.options.more.large && self.more.one_in(4) {
            for _ in 0..1 + self.more.below(6) {
                let mut random = Random::new(self.more.bits());
                self.change_once(&mut random)?;
            }
        }
        Ok(())
    }

    pub(super) fn change_once(&mut self, random: &mut Random) -> Result<(), Violation> {
        let (start, blocks) = self.draw_range(random);
        if self.model.overlaps_open(start, blocks) {
            return self.end_one_io(random);
        }
        let kind = random.below(12);
        let is_zero = kind >= 10;
        let cache = &self.options.cache;
        let is_logged = is_zero
            || !self.options.config.selective_caching
                && blocks * BLOCK_SIZE < cache.bypass_bytes
                && blocks + 8 <= cache.atomic_blocks_max();
        let is_atomic = is_logged && !self.options.more.without_log;
        let number = self.model.submit(start, blocks, is_zero, is_atomic);
        let range = LbaRange::new(start, blocks);
        if is_zero {
            let extent_blocks = self.options.config.extent_bytes / BLOCK_SIZE;
            let whole = start.div_ceil(extent_blocks)..(start + blocks) / extent_blocks;
            whole.for_each(|extent| self.hints.discarded(extent));
        }
        let operation = match kind {
            10 => Operation::Discard { range },
            11 => Operation::WriteZeroes { range, may_unmap: random.one_in(2) },
            _ => {
                let mut data = Buffer::zeroed(range.bytes() as usize);
                let bytes = data.bytes_mut().chunks_exact_mut(BLOCK_SIZE as usize);
                for (block, bytes) in (start..).zip(bytes) {
                    fill_block(bytes, number, block);
                }
                Operation::Write { start: Lba(start), data }
            }
        };
        let fua = random.one_in(10);
        self.ask(Asked::Change { number, fua, is_atomic }, operation, fua)
    }

    /// Whole extents become zeroes.
    pub(super) fn discard(&mut self, start: u64, blocks: u64) -> Result<(), Violation> {
        if self.model.overlaps_open(start, blocks) {
            return Ok(());
        }
        let number = self.model.submit(start, blocks, true, true);
        let extent_blocks = self.options.config.extent_bytes / BLOCK_SIZE;
        self.hints.discarded(start / extent_blocks);
        let operation = Operation::Discard { range: LbaRange::new(start, blocks) };
        self.ask(Asked::Change { number, fua: false, is_atomic: true }, operation, false)
    }

    pub(super) fn end_one_io(&mut self, random: &mut Random) -> Result<(), Violation> {
        self.machine.end_one_io(random);
        self.take_replies()?;
        self.probe_now_and_then()
    }

    /// Lets everything come to an end that will by itself. False if it does not.
    pub(super) fn come_to_rest(&mut self, random: &mut Random) -> Result<bool, Violation> {
        const IOS_MAX: u64 = 2_000;
        let mut is_at_rest = false;
        if self.options.more.probes {
            for _ in 0..IOS_MAX {
                is_at_rest = self.machine.come_to_rest(1, random);
                if is_at_rest {
                    break;
                }
                self.take_replies()?;
                self.probe_now_and_then()?;
            }
        } else {
            is_at_rest = self.machine.come_to_rest(IOS_MAX, random);
        }
        self.take_replies()?;
        Ok(is_at_rest)
    }

    /// A crash of a copy while I/Os end.
    fn probe_now_and_then(&mut self) -> Result<(), Violation> {
        if !self.options.more.probes || !self.more.one_in(40) {
            return Ok(());
        }
        let mut random = Random::new(self.more.bits());
        let power = !random.one_in(4);
        self.crash(super::crash::Crash::probe(power), &mut random)
    }

    fn settle(&mut self, random: &mut Random) -> Result<(), Violation> {
        self.say(|| "all I/Os end".into());
        for _ in 0..WAIT_MAX {
            if !self.machine.running.has_ready_io() {
                return Ok(());
            }
            self.end_one_io(random)?;
        }
        Err(Violation("I/Os without end".into()))
    }

    /// Some time without requests: destaging, migration, rebuild go on. Then what is redundant
    /// agrees.
    fn rest(&mut self, random: &mut Random) -> Result<(), Violation> {
        self.say(|| "rest".into());
        // With scrubs by time there is none.
        let scrubs = self.options.more.scrub_every_s.map(Duration::from_secs);
        if scrubs.is_some() {
            self.machine.set_scrub_every(Duration::from_secs(0));
        }
        let spare_after = self.options.more.spare_after_ms.map(Duration::from_millis);
        if spare_after.is_some() {
            self.machine.set_spare_after(Duration(0));
        }
        let is_at_rest = self.come_to_rest(random)?;
        if is_at_rest && self.asked.is_empty() {
            self.check_redundancy(true, random)?;
        }
        if let Some(every) = scrubs {
            self.machine.set_scrub_every(every);
        }
        if let Some(after) = spare_after {
            self.machine.set_spare_after(after);
        }
        Ok(())
    }

    /// Until everything is answered.
    pub(super) fn finish_requests(&mut self, random: &mut Random) -> Result<(), Violation> {
        let (mut left, mut asked) = (WAIT_MAX, self.asked.len());
        while left > 0 {
            if self.asked.is_empty() {
                return Ok(());
            }
            // When the log is full, one after the other is refused after its own time-out.
            left = if self.asked.len() < asked { WAIT_MAX } else { left - 1 };
            asked = self.asked.len();
            let before = self.machine.running.now;
            let can_go_on = self.machine.running.has_ready_io() || self.machine.wake();
            if self.machine.running.has_ready_io() {
                self.machine.end_one_io(random);
            } else if !can_go_on || self.machine.running.now == before {
                break;
            }
            self.take_replies()?;
        }
        match self.asked.is_empty() {
            true => Ok(()),
            false => Err(Violation("requests are never answered".into())),
        }
    }

    /// Asks and waits for the answer.
    pub(super) fn do_now(
        &mut self,
        operation: Operation,
        random: &mut Random,
    ) -> Result<Reply, Violation> {
        let what = describe(&operation, false);
        self.say(|| what.clone());
        let id = self.machine.running.next_request;
        self.machine.submit(operation, false);
        for _ in 0..WAIT_MAX {
            if let Some(index) =
                self.machine.running.replies.iter().position(|reply| reply.id.0 == id)
            {
                let reply = self.machine.running.replies.remove(index);
                self.report.requests += 1;
                self.take_replies()?;
                return Ok(reply);
            }
            self.machine.end_one_io(random);
        }
        Err(Violation(format!("{what} is never answered")))
    }

    /// A flush now, which must succeed unless something is lost.
    pub(super) fn flush_now(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let submitted = self.model.tick();
        let reply = self.do_now(Operation::Flush, random)?;
        self.note_losses();
        match reply.result {
            Ok(()) => {
                self.flushed(submitted);
                Ok(true)
            }
            Err(_) if self.had_losses || self.lacks_cache_disk() => Ok(false),
            Err(error) => Err(Violation(format!("a flush failed: {error}"))),
        }
    }

    // ---- answers ------------------------------------------------------------------------------

    pub(super) fn take_replies(&mut self) -> Result<(), Violation> {
        for reply in std::mem::take(&mut self.machine.running.replies) {
            self.replied(reply)?;
        }
        Ok(())
    }

    fn flushed(&mut self, submitted: u64) {
        self.model.flushed(submitted);
        self.hints.flushed(submitted);
        // A read under way may rightly show what was before.
        if !self.asked.values().any(|asked| matches!(asked, Asked::Read { .. })) {
            self.model.settle();
        }
    }

    fn replied(&mut self, reply: Reply) -> Result<(), Violation> {
        self.report.requests += 1;
        let asked = self.asked.remove(&reply.id.0);
        let asked = asked.ok_or_else(|| Violation("a reply to nothing".into()))?;
        if let Err(error) = reply.result {
            return self.failed(asked, error);
        }
        match asked {
            Asked::Read { start, submitted, .. } => {
                let buffer = reply.buffer.ok_or_else(|| Violation("a read without data".into()))?;
                let notes =
                    self.model.check_read(start, buffer.bytes(), submitted, &self.allowed)?;
                self.report.note(notes);
            }
            Asked::Change { number, fua, .. } => {
                self.model.acknowledge(number, true);
                if fua || self.machine.engine().ack_mode() == AckMode::Durable {
                    self.model.durable_change(number);
                }
            }
            Asked::Flush { submitted } => self.flushed(submitted),
        }
        Ok(())
    }

    fn failed(&mut self, asked: Asked, error: RequestError) -> Result<(), Violation> {
        self.note_losses();
        let wrong = |what: &str| Err(Violation(format!("{what} failed: {error}")));
        match asked {
            Asked::Read { start, blocks, .. } => {
                let is_lost = |block: u64| self.machine.may_be_lost(block);
                match (start..start + blocks).any(is_lost)
                    || self.may_fail_without_cache_disk(error)
                {
                    true => self.report.errors += 1,
                    false => return wrong(&format!("a read of blocks {start}+{blocks}")),
                }
            }
            Asked::Change { number, is_atomic, .. } => {
                // What cannot be moved to the members fills the log.
                let is_refused = self.machine.volume().status().log_share.changes_refused > 0;
                let may_fail = self.may_fail_without_cache_disk(error)
                    || self.had_losses
                        && (error == RequestError::NoSpace
                            || error == RequestError::Io && is_refused
                            || !is_atomic);
                if !may_fail {
                    return wrong(&format!("change {number}"));
                }
                self.model.acknowledge(number, false);
                if let Some((start, blocks)) = self.model.range(number).filter(|_| !is_atomic) {
                    self.allowed.taint(start, blocks);
                }
            }
            Asked::Flush { .. } if self.had_losses || self.lacks_cache_disk() => {}
            Asked::Flush { .. } => return wrong("a flush"),
        }
        Ok(())
    }

    /// Nobody is answered any more: the machine crashed.
    pub(super) fn forget_requests(&mut self) {
        self.asked.clear();
    }
}

/// An operation in words.
pub(super) fn describe(operation: &Operation, fua: bool) -> String {
    let range = |what: &str, range: &LbaRange| format!("{what} {}+{}", range.start.0, range.blocks);
    let what = match operation {
        Operation::Write { start, data } => {
            range("write", &LbaRange::new(start.0, data.len() as u64 / BLOCK_SIZE))
        }
        Operation::Read { range: blocks, .. } => range("read", blocks),
        Operation::Discard { range: blocks } => range("discard", blocks),
        Operation::WriteZeroes { range: blocks, may_unmap: true } => range("zero, unmap", blocks),
        Operation::WriteZeroes { range: blocks, may_unmap: false } => range("zero", blocks),
        other => format!("{other:?}").to_lowercase(),
    };
    if fua { what + ", FUA" } else { what }
}
