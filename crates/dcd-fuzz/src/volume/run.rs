//! One run: a load on a volume whose members fail, checked against the model.
//!
//! Everything follows from the seed; the steps are drawn as it goes. What happens at a crash is in [`super::crash`],
//! requests about hints and members in [`super::requests`].

use std::collections::BTreeMap;

use dcd_engine::units::{BLOCK_SIZE, LINE_SIZE, MemberIndex};
use dcd_engine::{
    AckMode, Buffer, Duration, IoError, Lba, LbaRange, Operation, Reply, RequestError,
};

use super::VolumeKind;
use super::hints::Hints;
use super::machine::{Machine, NotOpen, Trap, new_volume};
use super::options::VolumeOptions;
use crate::faults::{Allowed, IoKind};
use crate::model::{ChangeNumber, Model, Violation, fill_block};
use crate::random::Random;
use crate::report::Report;

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
    asked: BTreeMap<u64, Asked>,
}

/// A run that went wrong. It is repeated by its kind and seed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeFailure {
    /// What kind of volume.
    pub kind: VolumeKind,
    /// The seed.
    pub seed: u64,
    /// What was seen.
    pub violation: Violation,
}

/// Runs one seed. With `is_traced` every input and output is printed on standard error.
pub fn run(kind: VolumeKind, seed: u64, is_traced: bool) -> Result<Report, VolumeFailure> {
    let outcome = crate::run::guard(|| {
        let mut random = Random::new(seed);
        let options = VolumeOptions::draw(&mut random, kind);
        let mut run = VolumeRun::new(options, is_traced);
        run.start(&mut random)?;
        let steps = 20 + random.below(100);
        for _ in 0..steps {
            run.step(&mut random)?;
        }
        run.finish(&mut random)?;
        Ok(run.into_report())
    });
    outcome.map_err(|violation| VolumeFailure { kind, seed, violation })
}

impl VolumeRun {
    fn new(options: VolumeOptions, is_traced: bool) -> VolumeRun {
        if is_traced {
            eprintln!("{options:?}");
        }
        VolumeRun {
            machine: Machine::new(new_volume(&options), &options, is_traced),
            model: Model::new(options.config.blocks()),
            hints: Hints::default(),
            allowed: Allowed::default(),
            report: Report { runs: 1, ..Report::default() },
            had_losses: false,
            asked: BTreeMap::new(),
            options,
        }
    }

    fn into_report(mut self) -> Report {
        self.report.volume.io_faults += self.machine.struck;
        self.report
    }

    fn start(&mut self, random: &mut Random) -> Result<(), Violation> {
        match self.machine.open(&self.options, None, random) {
            Ok(()) => Ok(()),
            Err(NotOpen::Violation(violation)) => Err(violation),
            Err(_) => Err(Violation("a new volume does not open".into())),
        }
    }

    fn step(&mut self, random: &mut Random) -> Result<(), Violation> {
        self.machine.clear_suspects(false);
        match random.below(100) {
            0..32 => self.change(random)?,
            32..42 => self.read(random)?,
            42..48 => {
                let submitted = self.model.tick();
                self.ask(Asked::Flush { submitted }, Operation::Flush, false)?;
            }
            48..70 => {
                for _ in 0..1 + random.below(12) {
                    self.end_one_io(random)?;
                }
            }
            70..74 => self.settle(random)?,
            74..78 => {
                self.machine.pass(Duration::from_micros(random.below(300_000)));
                self.take_replies()?;
            }
            78..81 => self.rest(random)?,
            81..88 if self.options.hints => self.hint(random)?,
            88..92 => self.member_request(random)?,
            92..97 => self.fault(random),
            97 => return self.crash(super::crash::Crash::real(random.one_in(2)), random),
            _ => self.end_one_io(random)?,
        }
        if random.one_in(3) {
            self.crash(super::crash::Crash::probe(!random.one_in(4)), random)?;
        }
        Ok(())
    }

    // ---- the load -----------------------------------------------------------------------------

    fn ask(&mut self, asked: Asked, operation: Operation, fua: bool) -> Result<(), Violation> {
        // The reply may come at once, so it is noted before.
        self.asked.insert(self.machine.next_request(), asked);
        self.machine.submit(operation, fua);
        self.take_replies()
    }

    /// Some lines; more often near the start, where they meet others.
    fn draw_range(&self, random: &mut Random) -> (u64, u64) {
        let lines = self.model.blocks() / LINE_BLOCKS;
        let area = if random.one_in(3) { lines } else { lines.min(48) };
        let start = random.below(area);
        let most = random.pick(&[1, 2, 4, 16]);
        let length = 1 + random.below(most);
        (start * LINE_BLOCKS, length.min(lines - start) * LINE_BLOCKS)
    }

    fn read(&mut self, random: &mut Random) -> Result<(), Violation> {
        let (start, blocks) = self.draw_range(random);
        let submitted = self.model.tick();
        let operation = Operation::Read { range: LbaRange::new(start, blocks) };
        self.ask(Asked::Read { start, blocks, submitted }, operation, false)
    }

    fn change(&mut self, random: &mut Random) -> Result<(), Violation> {
        let (start, blocks) = self.draw_range(random);
        if self.model.overlaps_open(start, blocks) {
            return self.end_one_io(random);
        }
        let kind = random.below(12);
        let is_zero = kind >= 10;
        let cache = &self.options.cache;
        let is_atomic = is_zero
            || !self.options.config.selective_caching
                && blocks * BLOCK_SIZE < cache.bypass_bytes
                && blocks + 8 <= cache.atomic_blocks_max();
        let number = self.model.submit(start, blocks, is_zero, is_atomic);
        let range = LbaRange::new(start, blocks);
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

    pub(super) fn end_one_io(&mut self, random: &mut Random) -> Result<(), Violation> {
        self.machine.end_one_io(random);
        self.take_replies()
    }

    fn settle(&mut self, random: &mut Random) -> Result<(), Violation> {
        for _ in 0..WAIT_MAX {
            if !self.machine.has_ready_io() {
                return Ok(());
            }
            self.end_one_io(random)?;
        }
        Err(Violation("I/Os without end".into()))
    }

    /// Some time without requests: destaging, migration, rebuild go on. Then what is redundant agrees.
    fn rest(&mut self, random: &mut Random) -> Result<(), Violation> {
        let is_at_rest = self.machine.come_to_rest(2_000, random);
        self.take_replies()?;
        if is_at_rest && self.asked.is_empty() {
            self.check_redundancy(true, random)?;
        }
        Ok(())
    }

    /// Until everything is answered.
    pub(super) fn finish_requests(&mut self, random: &mut Random) -> Result<(), Violation> {
        for _ in 0..WAIT_MAX {
            if self.asked.is_empty() {
                return Ok(());
            }
            let before = self.machine.state.now;
            let can_go_on = self.machine.has_ready_io() || self.machine.wake();
            if self.machine.has_ready_io() {
                self.machine.end_one_io(random);
            } else if !can_go_on || self.machine.state.now == before {
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
        let what = format!("{operation:?}");
        let id = self.machine.next_request();
        self.machine.submit(operation, false);
        for _ in 0..WAIT_MAX {
            if let Some(index) = self.machine.replies.iter().position(|reply| reply.id.0 == id) {
                let reply = self.machine.replies.remove(index);
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
        match reply.result {
            Ok(()) => {
                self.flushed(submitted);
                Ok(true)
            }
            Err(_) if self.had_losses => Ok(false),
            Err(error) => Err(Violation(format!("a flush failed: {error}"))),
        }
    }

    // ---- answers ------------------------------------------------------------------------------

    pub(super) fn take_replies(&mut self) -> Result<(), Violation> {
        for reply in std::mem::take(&mut self.machine.replies) {
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
                match (start..start + blocks).any(is_lost) {
                    true => self.report.errors += 1,
                    false => return wrong(&format!("a read of blocks {start}+{blocks}")),
                }
            }
            Asked::Change { number, is_atomic, .. } => {
                // What cannot be moved to the members fills the log.
                let may_fail = self.had_losses && (error == RequestError::NoSpace || !is_atomic);
                if !may_fail {
                    return wrong(&format!("change {number}"));
                }
                self.model.acknowledge(number, false);
                if let Some((start, blocks)) = self.model.range(number).filter(|_| !is_atomic) {
                    self.allowed.taint(start, blocks);
                }
            }
            Asked::Flush { .. } if self.had_losses => {}
            Asked::Flush { .. } => return wrong("a flush"),
        }
        Ok(())
    }

    /// Nobody is answered any more: the machine crashed.
    pub(super) fn forget_requests(&mut self) {
        self.asked.clear();
    }

    // ---- faults -------------------------------------------------------------------------------

    pub(super) fn note_losses(&mut self) {
        self.machine.note_losses();
        self.had_losses |= !self.machine.state.lost.is_empty() || self.machine.may_refuse();
    }

    /// Whether a member may fail now, as far as this run goes.
    pub(super) fn may_fail(&self, random: &mut Random) -> bool {
        let is_bad = |member: &&super::machine::Member| {
            member.is_suspect || member.disk.failing.is_some() || !member.is_there
        };
        self.options.members_fail
            && (self.options.too_many_fail && random.one_in(3)
                || !self.machine.state.members.iter().any(|member| is_bad(&member)))
    }

    fn draw_member(&self, random: &mut Random) -> MemberIndex {
        MemberIndex(random.below(self.options.config.members as u64) as u8)
    }

    fn fault(&mut self, random: &mut Random) {
        let member = self.draw_member(random);
        let may_fail = self.may_fail(random);
        match random.below(3) {
            0 if may_fail => {
                let error = random.pick(&[IoError::Failed, IoError::Gone]);
                let disk = &mut self.machine.state.members[usize::from(member.0)];
                disk.disk.failing = Some(error);
                disk.is_suspect = true;
                self.report.volume.members_failed += 1;
            }
            1 if self.options.rots => self.rot(random),
            2 if self.options.io_errors && may_fail && self.machine.traps.is_empty() => {
                let io = random.pick(&[IoKind::Read, IoKind::Write, IoKind::Flush]);
                self.machine.traps.push(Trap { member, io, is_slow: random.one_in(4) });
            }
            _ => {}
        }
        self.note_losses();
    }

    /// A line of a redundant set is not what it was, or cannot be read.
    fn rot(&mut self, random: &mut Random) {
        let Ok(places) = self.machine.places() else { return };
        let sets = &self.machine.sets;
        let is_redundant =
            |place: &super::truth::LinePlace| sets.layout(place.set).level().is_redundant();
        let places: Vec<_> = places.into_iter().map(|(_, p)| p).filter(is_redundant).collect();
        if places.is_empty() {
            return;
        }
        let place = places[random.below(places.len() as u64) as usize];
        let copies: Vec<_> = sets.copies(place).chain(sets.parity(place)).collect();
        let (member, offset) = random.pick(&copies);
        let member = &mut self.machine.state.members[usize::from(member.0)];
        if random.one_in(3) {
            member.disk.make_bad(offset as usize);
        } else {
            let mut byte = [0];
            let at = offset as usize + random.below(LINE_SIZE) as usize;
            member.disk.peek(at, &mut byte);
            member.disk.rot(at, &[byte[0] ^ 1 << random.below(8)]);
        }
        member.damaged.insert(offset);
        self.report.volume.lines_rotted += 1;
    }
}
