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
//! start is: the medium, then the superblock, then requests; that of an end is the reverse.
//!
//! Data of a [`Device::Nvram`] write is named as [`IoData::SegmentMemory`]: bytes of
//! [`TieredEngine::nvram_medium`], which do not change until that I/O is done.

use std::collections::VecDeque;
use std::ops::{Deref, Range};

use crate::config::{ConfigError, EngineConfig};
use crate::engine::{Engine, Phase};
use crate::error::OpenError;
use crate::format::leg_label::LegLabel;
use crate::io::{
    Device, Input, Io, IoData, IoDone, IoError, IoId, IoOperation, IoOwner, LegError, Operation,
    Output, Request,
};
use crate::legs::witness::WitnessParts;
use crate::nvram::durable::{DurableNvram, DurableOutput, NvramStatus};
use crate::stats::Status;
use crate::units::{Duration, LbaRange, LegIndex, MemberIndex, Time, Uuid};
use crate::volume::{NewDisk, ReplaceError};

static OPENING: Phase = Phase::Opening;
static RUNNING: Phase = Phase::Running;

/// An engine, with a tier or without.
pub struct TieredEngine {
    engine: Engine,
    tier: Option<Box<Tier>>,
}

struct Tier {
    nvram: DurableNvram,
    persist: Option<Persist>,
    next_io: u64,
    io_timeout: Duration,
    /// The engine has been told that it may begin.
    has_begun: bool,
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
    ios_left: usize,
    is_flushing: bool,
    /// The first error.
    error: Option<IoError>,
    /// It has failed by then.
    deadline: Time,
}

impl TieredEngine {
    /// An engine as it is.
    pub fn without(engine: Engine) -> TieredEngine {
        TieredEngine { engine, tier: None }
    }

    /// An engine behind a tier that has been opened, and whose identity it was configured with.
    ///
    /// # Panics
    /// If it was not.
    pub fn with(engine: Engine, nvram: DurableNvram) -> TieredEngine {
        assert_eq!(engine.config().nvram, Some(nvram.identity()), "the superblock names it");
        let io_timeout = engine.config().io_timeout;
        let tier = Tier {
            nvram,
            persist: None,
            next_io: 0,
            io_timeout,
            has_begun: false,
            failed: None,
            below: VecDeque::new(),
            outputs: VecDeque::new(),
        };
        TieredEngine { engine, tier: Some(Box::new(tier)) }
    }

    /// What happened at `now`, which never goes back.
    pub fn handle_input(&mut self, now: Time, input: Input) {
        let Some(tier) = &mut self.tier else { return self.engine.handle_input(now, input) };
        match input {
            Input::Request(request) => tier.nvram.request(now, request),
            Input::IoDone(done) if done.id.owner() == IoOwner::Nvram => tier.io_done(now, done),
            Input::IoDone(done) => self.engine.handle_input(now, Input::IoDone(done)),
            Input::Timeout => {
                tier.give_up_late_persist(now);
                tier.nvram.timeout(now);
                if tier.has_begun {
                    self.engine.handle_input(now, Input::Timeout);
                }
            }
        }
        self.advance(now);
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
                    DurableOutput::Persist(ranges) => tier.start_persist(now, ranges),
                    DurableOutput::Below(request) => tier.below.push_back(request),
                }
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
                self.engine.handle_input(now, Input::Request(request));
            }
            while tier.has_begun
                && let Some(output) = self.engine.next_output()
            {
                has_moved = true;
                match output {
                    Output::Reply(reply) => {
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
                return;
            }
        }
    }

    /// What it wants next; to be called until there is nothing.
    pub fn next_output(&mut self) -> Option<Output> {
        match &mut self.tier {
            Some(tier) => tier.outputs.pop_front(),
            None => self.engine.next_output(),
        }
    }

    /// Until when it waits then.
    pub fn next_wake_up(&self) -> Option<Time> {
        let Some(tier) = &self.tier else { return self.engine.next_wake_up() };
        let persist = tier.persist.as_ref().map(|persist| persist.deadline);
        let engine = self.engine.next_wake_up().filter(|_| tier.has_begun);
        persist.into_iter().chain(tier.nvram.wake_up()).chain(engine).min()
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
        self.tier.as_ref().map(|tier| tier.nvram.status())
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
        self.engine.configure(config)?;
        if let Some(tier) = &mut self.tier {
            tier.io_timeout = self.engine.config().io_timeout;
        }
        Ok(())
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
}

/// All that only looks is the engine's.
impl Deref for TieredEngine {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl Tier {
    /// The writes of a persist, all at once; behind them a flush.
    fn start_persist(&mut self, now: Time, ranges: Vec<Range<usize>>) {
        assert!(self.persist.is_none(), "one at a time");
        self.persist = Some(Persist {
            first_io: self.next_io,
            ios_left: ranges.len(),
            is_flushing: false,
            error: None,
            deadline: now.after(self.io_timeout),
        });
        if ranges.is_empty() {
            return self.flush_persist();
        }
        for range in ranges {
            let offset = range.start as u64;
            let data = IoData::SegmentMemory(range);
            self.start_io(IoOperation::Write { offset, data, fua: false });
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
        }
        persist.ios_left -= 1;
        if persist.ios_left > 0 {
            return;
        }
        match persist.error {
            None if !persist.is_flushing => self.flush_persist(),
            error => self.end_persist(now, error),
        }
    }

    /// All is written.
    fn flush_persist(&mut self) {
        let persist = self.persist.as_mut().expect("under way");
        (persist.is_flushing, persist.ios_left) = (true, 1);
        self.start_io(IoOperation::Flush);
    }

    fn end_persist(&mut self, now: Time, error: Option<IoError>) {
        self.persist = None;
        if let (Some(error), false) = (error, self.nvram.is_open()) {
            let error = OpenError::Io { device: Device::Nvram, offset: 0, error };
            self.failed = Some(Phase::Failed(error));
        }
        self.nvram.persist_done(now, error.is_none());
    }

    fn give_up_late_persist(&mut self, now: Time) {
        if self.persist.as_ref().is_some_and(|persist| persist.deadline <= now) {
            self.end_persist(now, Some(IoError::TimedOut));
        }
    }
}

fn is_end(request: &Request) -> bool {
    matches!(
        request.operation,
        Operation::Shutdown | Operation::Detach | Operation::DetachAccepting { .. }
    )
}
