//! Policy and thresholds that follow the load.
//!
//! Some sets of them, the [`arms`], are tried beside the real memory ([`trial`]), each with the same
//! requests, as they would have come, and a disk that takes as long as the real one does
//! ([`disk_times`]). Whichever makes people wait least is what the real memory follows
//! ([`chooser`]). A switch moves nothing: it only says what is cleaned next, and when.
//!
//! Before anything is known the disk is thought to be slow, and the first arm is followed, which
//! keeps the memory as empty as the disk can.

pub mod arms;
mod chooser;
mod disk_times;
mod trial;
#[cfg(test)]
mod trial_tests;

use std::sync::Arc;

use super::groups::{GROUP_BLOCKS_MAX, GroupMap};
use super::{BelowIo, NvramConfig, NvramInput, NvramRequest};
use crate::units::{Duration, Time};
use arms::{ARMS, Arm};
use chooser::Chooser;
pub use chooser::Switch;
use disk_times::DiskTimes;
use trial::{Arrival, Trial};

/// Requests after which it is decided anew.
const REQUESTS: u64 = 16;
/// While so many wait, ends of I/Os count, too: in a backlog no request need come for long.
const BACKLOG: u64 = 8;
/// So many of them.
const ENDS: u64 = 64;
/// Blocks of a trial at most.
const TRIAL_BLOCKS_MAX: u64 = 4096;
/// When nobody has asked for anything for so long, the real memory is cleaned to the floor. Trials
/// are not: what keeping costs would be hidden from them.
const DEEP_IDLE: Duration = Duration::from_millis(1000);
/// So much is done in a trial for a request: the rest of a long idle time is for the next.
const STEPS_MAX: u32 = 1024;

/// What is followed, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ControlStatus {
    /// What is followed: of [`ARMS`].
    pub arm: usize,
    /// How long people waited with each of late; older waiting counts less.
    pub waited: [Duration; ARMS.len()],
    /// What an I/O below takes.
    pub access: Duration,
    /// The last switch, and after how many requests.
    pub last_switch: Option<(u64, Switch)>,
    /// How many there were.
    pub switches: u64,
}

impl ControlStatus {
    /// What is followed.
    pub fn arm(&self) -> &'static Arm {
        &ARMS[self.arm]
    }
}

/// Tries, and chooses.
pub(super) struct Control {
    config: NvramConfig,
    map: Arc<dyn GroupMap>,
    one_in: u64,
    trials: Vec<Trial>,
    times: DiskTimes,
    chooser: Chooser,
    // The real memory:
    /// Requests that are not done.
    requests: u64,
    came_at: Time,
    done_at: Time,
    /// Where the last I/O below ended, and when.
    head: u64,
    below_done_at: Time,
    came: u64,
    ends: u64,
    last_switch: Option<(u64, Switch)>,
    switches: u64,
}

impl Control {
    /// For a memory that is set up so.
    pub(super) fn new(config: &NvramConfig, map: Arc<dyn GroupMap>) -> Control {
        let one_in = config.capacity_blocks.div_ceil(TRIAL_BLOCKS_MAX);
        let tried = NvramConfig { capacity_blocks: config.capacity_blocks / one_in, ..*config };
        let trial = |arm: &Arm| Trial::new(&arm.config(&tried), map.clone(), one_in);
        let risks = ARMS.iter().map(|arm| arm.risk_accesses(tried.capacity_blocks));
        Control {
            config: *config,
            one_in,
            trials: ARMS.iter().map(trial).collect(),
            map,
            times: DiskTimes::new(),
            chooser: Chooser::new(risks.collect()),
            requests: 0,
            came_at: Time::ZERO,
            done_at: Time::ZERO,
            head: 0,
            below_done_at: Time::ZERO,
            came: 0,
            ends: 0,
            last_switch: None,
            switches: 0,
        }
    }

    /// What the real memory has to follow.
    pub(super) fn config(&self) -> NvramConfig {
        let config = ARMS[self.chooser.current()].config(&self.config);
        NvramConfig { deep_idle: Some(DEEP_IDLE), ..config }
    }

    /// What is followed, and why.
    pub(super) fn status(&self) -> ControlStatus {
        let mut waited = [Duration(0); ARMS.len()];
        for (waited, score) in waited.iter_mut().zip(self.chooser.scores()) {
            *waited = Duration(*score);
        }
        ControlStatus {
            arm: self.chooser.current(),
            waited,
            access: self.times.mean(),
            last_switch: self.last_switch,
            switches: self.switches,
        }
    }

    /// Something happens to the real memory, which does not know of it yet: what it is about, if it
    /// is an I/O below, and since when that was under way. True: it has to follow another arm.
    pub(super) fn before(
        &mut self,
        now: Time,
        input: &NvramInput,
        below: Option<(BelowIo, Time)>,
    ) -> bool {
        match input {
            NvramInput::Request(request) => self.request(now, *request, false),
            NvramInput::Past(request) => self.request(now, *request, true),
            NvramInput::BelowDone(_, is_ok) => {
                let Some((io, since)) = below else { return false };
                self.below_done(now, &io, since, *is_ok)
            }
            NvramInput::GiveUp(_) => {
                self.requests -= 1;
                false
            }
            NvramInput::Timeout => false,
        }
    }

    /// A request of the real memory is done.
    pub(super) fn replied(&mut self, now: Time) {
        self.requests -= 1;
        self.done_at = now;
    }

    fn request(&mut self, now: Time, request: NvramRequest, is_past: bool) -> bool {
        let arrival = match self.requests {
            0 => Arrival::AfterLast { nanoseconds: now.since(self.done_at).0 },
            _ => Arrival::Later { nanoseconds: now.since(self.came_at).0 },
        };
        (self.came_at, self.requests) = (now, self.requests + 1);
        // What is larger does not go through the memory, and costs the disk next to nothing.
        let is_tried = !is_past || request.range.blocks <= GROUP_BLOCKS_MAX;
        let tried = is_tried.then(|| trial::sample(request, &*self.map, self.one_in)).flatten();
        for trial in &mut self.trials {
            let mut steps = STEPS_MAX;
            trial.request(tried, is_past, arrival, &self.times, &mut steps);
        }
        self.came += 1;
        self.came.is_multiple_of(REQUESTS) && self.decide()
    }

    fn below_done(&mut self, now: Time, io: &BelowIo, since: Time, is_ok: bool) -> bool {
        // It was its turn when it had come and the one before was done.
        let began = since.max(self.below_done_at);
        if is_ok {
            self.times.measured(io, self.head, now.since(began));
        }
        (self.head, self.below_done_at) = (io.range.end(), now);
        if self.requests < BACKLOG {
            return false;
        }
        self.ends += 1;
        if !self.ends.is_multiple_of(ENDS) {
            return false;
        }
        let passed = now.since(self.came_at).0;
        for trial in &mut self.trials {
            let mut steps = STEPS_MAX;
            trial.time_passed(passed, &self.times, &mut steps);
        }
        self.decide()
    }

    fn decide(&mut self) -> bool {
        for (arm, trial) in self.trials.iter_mut().enumerate() {
            self.chooser.waited(arm, trial.take_waited());
        }
        let Some(switch) = self.chooser.decide(self.times.mean()) else { return false };
        self.last_switch = Some((self.came, switch));
        self.switches += 1;
        true
    }
}
