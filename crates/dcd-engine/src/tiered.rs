//! An engine with a tier of non-volatile memory in front of it ([`crate::nvram::durable`]), or
//! without: behind the boundary of an engine, so that whoever drives one drives both.
//!
//! ```text
//! requests --> tier ---- cleaning, large writes, zeroes: with FUA ---> engine --> disks
//!               |  ^---------------- what the memory has not --------- reads
//!               v
//!            medium: memory at once; of a device, writes and a flush  (Device::Nvram)
//! ```
//!
//! The engine does not know of it, but that its superblock names the medium from before the first
//! acknowledged write until the tier is empty ([`crate::EngineConfig::nvram`]). So the order of a
//! start is: the medium, then the superblock, then requests; that of an end is the reverse. One
//! that comes or goes while requests are served does so in the order of
//! [`presence`](crate::nvram::durable::NvramPresence).
//!
//! Data of a [`Device::Nvram`] write is named as [`IoData::SegmentMemory`]: bytes of
//! [`TieredEngine::nvram_medium`], which do not change until that I/O is done.

use std::collections::{BTreeSet, VecDeque};
use std::ops::{Deref, Range};

use crate::GrowRefusal;
use crate::config::{ConfigError, EngineConfig};
use crate::engine::{Engine, Phase};
use crate::error::OpenError;
use crate::format::leg_label::LegLabel;
use crate::format::nvram::NvramIdentity;
use crate::io::{
    Device, Input, Io, IoData, IoDone, IoError, IoId, IoOperation, IoOwner, LegError,
    NvramChangeError, Operation, Output, Request, RequestError, RequestId, VolumeError,
    all_is_accepted,
};
use crate::legs::witness::WitnessParts;
use crate::nvram::durable::{DurableNvram, DurableOutput, NvramPresence, NvramStatus};
use crate::patience::Patience;
use crate::stats::Status;
use crate::units::{BLOCK_SIZE, Duration, LbaRange, LegIndex, MemberIndex, Time, Uuid};
use crate::volume::growth::Growth;
use crate::volume::{NewDisk, ReplaceError};

/// Writes of the medium under way at once: few enough that one of them ends soon, however many are
/// to be done.
const PERSIST_IOS_MAX: usize = 32;

static OPENING: Phase = Phase::Opening;
static RUNNING: Phase = Phase::Running;

/// An engine, with a tier or without.
pub struct TieredEngine {
    engine: Engine,
    tier: Option<Box<Tier>>,
    /// Requests that the engine has not answered.
    asked_of_engine: u64,
    /// The number of the first I/O of the next tier: what is late of another one is none of its
    /// own.
    next_tier_io: u64,
}

struct Tier {
    nvram: DurableNvram,
    persist: Option<Persist>,
    next_io: u64,
    io_timeout: Duration,
    patience: Patience,
    /// The engine has been told that it may begin.
    has_begun: bool,
    /// It came while requests were served: the engine does without it.
    is_on_line: bool,
    /// Requests that the engine has had since before it came.
    earlier: u64,
    /// That passed by it meanwhile.
    passing: BTreeSet<RequestId>,
    /// Since when changes wait until a memory that has failed is named no more.
    held_since: Option<Time>,
    /// The medium failed before the tier was open.
    failed: Option<Phase>,
    /// What is to be asked of the engine.
    below: VecDeque<Request>,
    outputs: VecDeque<Output>,
}

/// What is being made durable.
struct Persist {
    /// Its I/Os have this number or a later one.
    first_io: u64,
    /// What is not being written yet, the last first.
    left: Vec<Range<usize>>,
    ios_under_way: usize,
    is_flushing: bool,
    /// The first error.
    error: Option<IoError>,
    /// Since when none of its I/Os has ended.
    waits_since: Time,
}

impl TieredEngine {
    /// An engine as it is.
    pub fn without(engine: Engine) -> TieredEngine {
        TieredEngine { engine, tier: None, asked_of_engine: 0, next_tier_io: 0 }
    }

    /// An engine behind a tier that has been opened, and whose identity it was configured with.
    ///
    /// # Panics
    /// If it was not.
    pub fn with(engine: Engine, mut nvram: DurableNvram) -> TieredEngine {
        assert_eq!(engine.config().nvram, Some(nvram.identity()), "the superblock names it");
        nvram.begin();
        let tier = Tier::new(nvram, engine.config().io_timeout);
        TieredEngine { engine, tier: Some(Box::new(tier)), asked_of_engine: 0, next_tier_io: 0 }
    }

    /// Whether a memory may come now.
    ///
    /// # Errors
    /// Where one is there already, or the settings do not go with one.
    pub fn may_add_nvram(&self) -> Result<(), NvramRefusal> {
        if let Some(tier) = self.tier.as_ref().filter(|tier| !tier.nvram.is_gone()) {
            return Err(match tier.nvram.standing().0 {
                NvramPresence::Out => NvramRefusal::NotYet,
                NvramPresence::InUse => NvramRefusal::Request(NvramChangeError::InUse.into()),
                NvramPresence::Joining | NvramPresence::Leaving => {
                    NvramRefusal::Request(NvramChangeError::UnderWay.into())
                }
            });
        }
        if self.engine.is_being_closed() || *self.engine.phase() != Phase::Running {
            return Err(NvramRefusal::Request(RequestError::ShuttingDown));
        }
        if self.engine.cache_disk_failure().is_some() || self.engine.is_nvram_name_unsure() {
            // Nothing can name it, and a memory that went may be named still.
            return Err(NvramRefusal::Request(RequestError::Io));
        }
        let any = NvramIdentity { id: self.engine.superblock().uuid, generation: 0 };
        let config = self.engine.config();
        let with = EngineConfig { nvram: Some(any), legs: None, ..config.clone() };
        with.validate().map_err(NvramRefusal::Settings)
    }

    /// A memory that was blank, opened for this cache, comes to be in front of the log while
    /// requests are served. The request `id` is answered when it is, or is not going to be.
    ///
    /// # Errors
    /// As [`TieredEngine::may_add_nvram`]. `id` is not answered then.
    ///
    /// # Panics
    /// If the engine does not run.
    pub fn add_nvram(
        &mut self,
        now: Time,
        id: RequestId,
        mut nvram: DurableNvram,
    ) -> Result<(), NvramRefusal> {
        assert!(*self.engine.phase() == Phase::Running, "it comes while requests are served");
        self.may_add_nvram()?;
        nvram.begin_on_line(id);
        self.forget_tier();
        let mut tier = Tier::new(nvram, self.engine.config().io_timeout);
        (tier.has_begun, tier.is_on_line) = (true, true);
        tier.next_io = self.next_tier_io;
        tier.earlier = self.asked_of_engine;
        tier.patience.pass(now, false);
        if tier.earlier == 0 {
            tier.nvram.earlier_have_ended(now);
        }
        self.tier = Some(Box::new(tier));
        self.advance(now);
        Ok(())
    }

    /// What happened at `now`, which never goes back.
    pub fn handle_input(&mut self, now: Time, input: Input) {
        // What it has said is taken by now.
        if self.tier.as_ref().is_some_and(|it| it.outputs.is_empty() && it.nvram.is_gone()) {
            self.forget_tier();
        }
        let Some(tier) = &mut self.tier else {
            if matches!(&input, Input::IoDone(done) if done.id.owner() == IoOwner::Nvram) {
                return; // Of one that has gone, whose device did not answer in time.
            }
            self.asked_of_engine += u64::from(matches!(input, Input::Request(_)));
            return self.engine.handle_input(now, input);
        };
        tier.patience.pass(now, matches!(input, Input::Timeout));
        match input {
            Input::Request(request) => match goes_past(&self.engine, &tier.nvram, &request) {
                true => tier.nvram.write_past(now, request),
                false => tier.nvram.request(now, request),
            },
            Input::IoDone(done) if done.id.owner() == IoOwner::Nvram => tier.io_done(now, done),
            Input::IoDone(done) => self.engine.handle_input(now, Input::IoDone(done)),
            input @ Input::WindowKept { .. } => self.engine.handle_input(now, input),
            Input::Timeout => {
                tier.give_up_late_persist(now);
                tier.give_up_held(now, self.engine.config().full_timeout);
                tier.nvram.timeout(now);
                if tier.has_begun {
                    self.engine.handle_input(now, Input::Timeout);
                }
            }
        }
        self.advance(now);
    }

    fn forget_tier(&mut self) {
        if let Some(tier) = self.tier.take() {
            assert!(tier.outputs.is_empty(), "what it has answered is told");
            self.next_tier_io = tier.next_io;
        }
    }

    /// Lets what one of the two wants come to the other, until nothing does.
    fn advance(&mut self, now: Time) {
        let Some(tier) = &mut self.tier else { return };
        loop {
            let mut has_moved = false;
            while let Some(output) = tier.nvram.poll_output() {
                has_moved = true;
                match output {
                    DurableOutput::Reply(reply) => tier.outputs.push_back(Output::Reply(reply)),
                    DurableOutput::Persist(ranges) => tier.start_persist(ranges),
                    DurableOutput::Below(request) => tier.below.push_back(request),
                }
            }
            if let Some(which) = tier.nvram.to_name()
                && self.engine.may_name_nvram(which)
            {
                has_moved = true;
                tier.nvram.begin_naming();
                self.engine.name_nvram(which);
            }
            if let Some(result) = self.engine.take_nvram_named() {
                has_moved = true;
                tier.nvram.named(now, result);
            }
            if tier.nvram.is_open() && !tier.has_begun && tier.failed.is_none() {
                // The medium says who it is, durably; now the superblock may.
                tier.has_begun = true;
                self.engine.handle_input(now, Input::Timeout);
            }
            // While it opens, what is to be cleaned waits.
            while !matches!(self.engine.phase(), Phase::Opening | Phase::Failed(_))
                && let Some(request) = tier.below.pop_front()
            {
                has_moved = true;
                if is_end(&request) {
                    self.engine.set_nvram_holds_data(tier.nvram.holds_data());
                }
                self.asked_of_engine += 1;
                if tier.earlier > 0 {
                    tier.passing.insert(request.id);
                }
                self.engine.handle_input(now, Input::Request(request));
            }
            while tier.has_begun
                && let Some(output) = self.engine.next_output()
            {
                has_moved = true;
                match output {
                    Output::Reply(reply) => {
                        self.asked_of_engine -= 1;
                        tier.one_has_ended(now, reply.id);
                        if self.engine.cache_disk_failure().is_some() {
                            // Its superblock cannot be written any more, and names the medium.
                            tier.nvram.keep_heads();
                        }
                        tier.nvram.below_done(now, reply);
                    }
                    output => tier.outputs.push_back(output),
                }
            }
            if !has_moved {
                return tier.note_held();
            }
        }
    }

    /// What it wants next; to be called until there is nothing.
    pub fn next_output(&mut self) -> Option<Output> {
        match &mut self.tier {
            Some(tier) => tier.outputs.pop_front(),
            None => {
                let output = self.engine.next_output();
                self.asked_of_engine -= u64::from(matches!(output, Some(Output::Reply(_))));
                output
            }
        }
    }

    /// Until when it waits then.
    pub fn next_wake_up(&self) -> Option<Time> {
        let Some(tier) = &self.tier else { return self.engine.next_wake_up() };
        let wake_up =
            |persist: &Persist| tier.patience.wake_up(persist.waits_since, tier.io_timeout);
        let persist = tier.persist.as_ref().map(wake_up);
        let full_timeout = self.engine.config().full_timeout;
        let held = tier.held_since.map(|since| tier.patience.wake_up(since, full_timeout));
        let engine = self.engine.next_wake_up().filter(|_| tier.has_begun);
        persist.into_iter().chain(held).chain(tier.nvram.wake_up()).chain(engine).min()
    }

    /// Where it stands.
    pub fn phase(&self) -> &Phase {
        match &self.tier {
            Some(tier) => match (&tier.failed, self.engine.phase()) {
                (Some(failed), _) => failed,
                _ if !tier.has_begun => &OPENING,
                // The heads of the medium are still being wiped.
                (_, Phase::Closed) if tier.persist.is_some() => &RUNNING,
                (_, phase) => phase,
            },
            None => self.engine.phase(),
        }
    }

    /// A picture of the engine: see [`Engine::status`].
    pub fn status(&self) -> Status {
        self.engine.status()
    }

    /// What is known of the tier, if there is one.
    pub fn nvram_status(&self) -> Option<NvramStatus> {
        let tier = self.tier.as_ref().filter(|tier| !tier.nvram.is_gone());
        tier.map(|tier| tier.nvram.status())
    }

    /// Whether requests go through the tier, and whether its medium has failed, if there is one.
    /// Cheap.
    pub fn nvram_standing(&self) -> Option<(NvramPresence, bool)> {
        let tier = self.tier.as_ref().filter(|tier| !tier.nvram.is_gone());
        tier.map(|tier| tier.nvram.standing())
    }

    /// The medium of the tier.
    pub fn nvram_medium(&self) -> &[u8] {
        self.tier.as_ref().map_or(&[], |tier| tier.nvram.medium())
    }

    /// Pieces of a range with their length in blocks, and whether they are known to be zero.
    pub fn block_status(&self, range: LbaRange, pieces_max: usize) -> Vec<(u64, bool)> {
        match &self.tier {
            Some(tier) if tier.nvram.may_hold(range) => vec![(range.blocks, false)],
            _ => self.engine.block_status(range, pieces_max),
        }
    }

    /// Takes over what may change while it runs: see [`Engine::configure`].
    ///
    /// # Errors
    /// As there.
    pub fn configure(&mut self, config: &EngineConfig) -> Result<(), ConfigError> {
        let is_out = |tier: &Tier| tier.nvram.standing().0 == NvramPresence::Out;
        if let Some(tier) = self.tier.as_ref().filter(|tier| !is_out(tier)) {
            // Also of one that is not in use yet, and will be.
            let nvram = Some(tier.nvram.identity());
            EngineConfig { nvram, legs: None, ..config.clone() }.validate()?;
        }
        self.engine.configure(config)?;
        if let Some(tier) = &mut self.tier {
            tier.io_timeout = self.engine.config().io_timeout;
            tier.patience.shortest_limit_is(tier.io_timeout);
        }
        Ok(())
    }

    /// What is lost, in the tier and below it, ascending; pieces that touch are one.
    pub fn lost(&self) -> Vec<LbaRange> {
        let mut lost = self.engine.lost();
        let Some(tier) = &self.tier else { return lost };
        lost.extend(tier.nvram.lost());
        lost.sort_unstable_by_key(|range| range.start);
        lost.dedup_by(|next, last| {
            let touches = next.start.0 <= last.end();
            if touches {
                last.blocks = last.end().max(next.end()) - last.start.0;
            }
            touches
        });
        lost
    }

    /// Whether all that is lost lies within `accepted`, which is what [`TieredEngine::lost`] said
    /// before.
    pub fn all_lost_is_within(&self, accepted: &[LbaRange]) -> bool {
        all_is_accepted(&self.lost(), accepted)
    }

    /// A disk becomes a leg: see [`Engine::add_leg`].
    ///
    /// # Errors
    /// As there.
    pub fn add_leg(&mut self, leg: Uuid, before: Option<&LegLabel>) -> Result<LegIndex, LegError> {
        self.engine.add_leg(leg, before)
    }

    /// A file becomes the witness of the legs: see [`Engine::add_witness`].
    ///
    /// # Errors
    /// As there.
    pub fn add_witness(
        &mut self,
        parts: WitnessParts,
        before: Option<&LegLabel>,
    ) -> Result<(), LegError> {
        self.engine.add_witness(parts, before)
    }

    /// See [`Engine::replace_member`].
    ///
    /// # Errors
    /// As there.
    pub fn replace_member(
        &mut self,
        member: MemberIndex,
        new: NewDisk,
    ) -> Result<MemberIndex, ReplaceError> {
        self.engine.replace_member(member, new)
    }

    /// See [`Engine::add_spare`].
    pub fn add_spare(&mut self, new: NewDisk) -> Result<MemberIndex, ReplaceError> {
        self.engine.add_spare(new)
    }

    /// See [`Engine::grow_volume`].
    ///
    /// # Errors
    /// As there.
    pub fn grow_volume(&mut self, growth: &Growth) -> Result<(), GrowRefusal> {
        self.engine.grow_volume(growth)
    }

    /// See [`Engine::remove_spare`].
    pub fn remove_spare(&mut self, disk: MemberIndex) -> Result<(), VolumeError> {
        self.engine.remove_spare(disk)
    }

    /// See [`Engine::set_calendar`].
    pub fn set_calendar(&mut self, now: Time, seconds: u64) {
        self.engine.set_calendar(now, seconds);
    }
}

/// All that only looks is the engine's.
impl Deref for TieredEngine {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl Tier {
    fn new(nvram: DurableNvram, io_timeout: Duration) -> Tier {
        Tier {
            nvram,
            persist: None,
            next_io: 0,
            io_timeout,
            patience: Patience::new(Time::ZERO, io_timeout),
            has_begun: false,
            is_on_line: false,
            earlier: 0,
            passing: BTreeSet::new(),
            held_since: None,
            failed: None,
            below: VecDeque::new(),
            outputs: VecDeque::new(),
        }
    }

    /// The writes of a persist, by address; behind them a flush.
    fn start_persist(&mut self, mut ranges: Vec<Range<usize>>) {
        assert!(self.persist.is_none(), "one at a time");
        ranges.reverse();
        self.persist = Some(Persist {
            first_io: self.next_io,
            left: ranges,
            ios_under_way: 0,
            is_flushing: false,
            error: None,
            waits_since: self.patience.now(),
        });
        self.go_on_persisting();
    }

    /// Starts as many writes as may be under way; when all are done, the flush.
    fn go_on_persisting(&mut self) {
        loop {
            let persist = self.persist.as_mut().expect("under way");
            if persist.ios_under_way == PERSIST_IOS_MAX {
                return;
            }
            let Some(range) = persist.left.pop() else { break };
            persist.ios_under_way += 1;
            let offset = range.start as u64;
            let data = IoData::SegmentMemory(range);
            self.start_io(IoOperation::Write { offset, data, fua: false });
        }
        let persist = self.persist.as_mut().expect("under way");
        if persist.ios_under_way == 0 {
            (persist.is_flushing, persist.ios_under_way) = (true, 1);
            self.start_io(IoOperation::Flush);
        }
    }

    fn start_io(&mut self, operation: IoOperation) {
        let id = IoId::of(IoOwner::Nvram, self.next_io);
        self.next_io += 1;
        self.outputs.push_back(Output::Io(Io { id, device: Device::Nvram, operation }));
    }

    fn io_done(&mut self, now: Time, done: IoDone) {
        let Some(persist) = &mut self.persist else { return };
        if done.id < IoId::of(IoOwner::Nvram, persist.first_io) {
            return; // Of one that was given up.
        }
        if let Err(error) = done.result {
            persist.error.get_or_insert(error);
            persist.left.clear();
        }
        persist.ios_under_way -= 1;
        persist.waits_since = self.patience.now();
        match persist.error {
            None if !persist.is_flushing => self.go_on_persisting(),
            error if persist.ios_under_way == 0 => self.end_persist(now, error),
            _ => {}
        }
    }

    fn end_persist(&mut self, now: Time, error: Option<IoError>) {
        self.persist = None;
        if let (Some(error), false) = (error, self.nvram.is_open() || self.is_on_line) {
            let error = OpenError::Io { device: Device::Nvram, offset: 0, error };
            self.failed = Some(Phase::Failed(error));
        }
        self.nvram.persist_done(now, error.is_none());
    }

    /// Changes have waited for long enough until a memory that has failed is named no more (C25).
    fn give_up_held(&mut self, now: Time, limit: Duration) {
        let is_over = |since| self.patience.is_over(since, limit);
        if self.held_since.take_if(|since| is_over(*since)).is_some() {
            self.nvram.fail_held(now);
        }
    }

    fn note_held(&mut self) {
        self.held_since = match self.nvram.holds_changes() {
            true => self.held_since.or(Some(self.patience.now())),
            false => None,
        };
    }

    /// The engine has answered a request.
    fn one_has_ended(&mut self, now: Time, id: RequestId) {
        if self.earlier == 0 || self.passing.remove(&id) {
            return;
        }
        self.earlier -= 1;
        if self.earlier == 0 {
            self.passing.clear();
            self.nvram.earlier_have_ended(now);
        }
    }

    fn give_up_late_persist(&mut self, now: Time) {
        let (patience, limit) = (self.patience, self.io_timeout);
        let is_late = |persist: &Persist| patience.is_over(persist.waits_since, limit);
        if self.persist.as_ref().is_some_and(is_late) {
            self.end_persist(now, Some(IoError::TimedOut));
        }
    }
}

/// Why no memory can come.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NvramRefusal {
    /// One is there, or the cache is being closed.
    #[error(transparent)]
    Request(RequestError),
    /// One has gone, but for what is under way of it: soon.
    #[error("what was asked of the memory before is under way yet")]
    NotYet,
    /// Settings do not go with one.
    #[error(transparent)]
    Settings(ConfigError),
}

/// Selective caching (DHIS section 3.3.2): where little room is left, what the volume does not say
/// is worth it goes to the disk.
fn goes_past(engine: &Engine, nvram: &DurableNvram, request: &Request) -> bool {
    let Operation::Write { start, data } = &request.operation else { return false };
    let range = LbaRange { start: *start, blocks: data.len() as u64 / BLOCK_SIZE };
    engine.is_left_out_by_choice(range) && nvram.leaves_to_the_disk(range)
}

fn is_end(request: &Request) -> bool {
    matches!(
        request.operation,
        Operation::Shutdown | Operation::Detach | Operation::DetachAccepting { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::nvram::NvramLayout;
    use crate::nvram::durable::{DurableConfig, MediumPersist, MemoryMedium, NvramStart};

    const IO_TIMEOUT: Duration = Duration::from_secs(2);

    /// A tier that is not to have begun.
    fn tier() -> Tier {
        let start = NvramStart {
            cache: Uuid([1; 16]),
            expected: None,
            new_id: Uuid([2; 16]),
            volume_blocks: 1 << 20,
            unit_blocks: 1,
            may_be_lost: false,
        };
        let medium = Box::new(MemoryMedium::new(
            vec![0; NvramLayout { slots: 256 }.bytes() as usize],
            MediumPersist::Io { sector_bytes: 512 },
        ));
        let opened = DurableNvram::open(Time::ZERO, DurableConfig::default(), medium, &start);
        Tier::new(opened.expect("it is blank"), IO_TIMEOUT)
    }

    /// The I/Os that it wants now.
    fn take(tier: &mut Tier) -> VecDeque<IoId> {
        let ios = tier.outputs.drain(..).map(|output| match output {
            Output::Io(io) => io.id,
            other => panic!("{other:?}"),
        });
        ios.collect()
    }

    fn end(tier: &mut Tier, now: Time, id: IoId) {
        tier.patience.pass(now, false);
        tier.io_done(now, IoDone { id, result: Ok(()), buffer: None });
    }

    fn look(tier: &mut Tier, now: Time) {
        tier.patience.pass(now, true);
        tier.give_up_late_persist(now);
    }

    fn ranges(count: usize) -> Vec<Range<usize>> {
        (0..count).map(|index| index * 4096..index * 4096 + 512).collect()
    }

    /// 1,000 writes of 100 ms each, which is far more than the limit for one.
    #[test]
    fn a_persist_may_take_long_while_its_writes_end() {
        let mut tier = tier();
        tier.nvram.begin();
        while tier.nvram.poll_output().is_some() {}
        tier.start_persist(ranges(1000));
        let (mut under_way, mut now, mut done) = (take(&mut tier), Time::ZERO, 0);
        assert_eq!(under_way.len(), PERSIST_IOS_MAX, "not all at once");
        while let Some(id) = under_way.pop_front() {
            now = now.after(Duration::from_millis(100));
            look(&mut tier, now);
            end(&mut tier, now, id);
            done += 1;
            under_way.extend(take(&mut tier));
            assert!(under_way.len() <= PERSIST_IOS_MAX);
        }
        assert_eq!(done, 1001, "with the flush");
        assert!(tier.persist.is_none() && tier.failed.is_none());
    }

    /// C26: a pause of an hour is not the device's, wherever it comes; two seconds without an answer
    /// while dcd runs are.
    #[test]
    fn a_pause_fails_no_persist() {
        let mut tier = tier();
        tier.nvram.begin();
        while tier.nvram.poll_output().is_some() {}
        tier.start_persist(ranges(2));
        let mut now = Time::ZERO;
        let writes = take(&mut tier);
        now = now.after(Duration::from_secs(3600));
        look(&mut tier, now);
        writes.into_iter().for_each(|id| end(&mut tier, now, id));
        assert_eq!(take(&mut tier).len(), 1, "the flush");
        now = now.after(Duration::from_secs(3600));
        look(&mut tier, now);
        assert!(tier.persist.is_some());
        for _ in 0..100 {
            now = now.after(Duration::from_millis(50));
            look(&mut tier, now);
        }
        assert!(tier.persist.is_none() && tier.failed.is_some(), "it does not answer");
    }
}
