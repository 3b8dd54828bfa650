//! The tier, with its control if policy and thresholds follow the load.

use std::sync::Arc;

use super::control::{Control, ControlStatus};
use super::groups::{GroupMap, HeadPosition};
use super::hot_zone::HotZone;
use super::tier::Tier;
use super::{NvramConfig, NvramCounters, NvramInput, NvramOutput, NvramPolicyKind};
use crate::io::RequestId;
use crate::units::{Lba, LbaRange, Time};

/// The tier.
pub struct Nvram {
    tier: Tier,
    control: Option<Box<Control>>,
    now: Time,
}

impl Nvram {
    /// An empty memory.
    ///
    /// # Panics
    /// If it has no blocks, or the thresholds are not `low <= high <= 100`.
    pub fn new(config: NvramConfig, map: Arc<dyn GroupMap>) -> Nvram {
        let is_auto = config.policy == NvramPolicyKind::Auto;
        let control = is_auto.then(|| Box::new(Control::new(&config, map.clone())));
        let mut tier = Tier::new(config, map);
        if let Some(control) = &control {
            tier.follow(&control.config());
        }
        Nvram { tier, control, now: Time::ZERO }
    }

    /// The memory has held these blocks since before the start.
    pub fn restore(&mut self, now: Time, range: LbaRange) {
        self.now = now;
        self.tier.restore(now, range);
    }

    /// Sends what is dirty on its way to the disk, hot or not, as far as that goes in one step: to
    /// be called until nothing is.
    pub fn clean_all(&mut self) {
        self.tier.clean_all();
    }

    /// The first in line, if it waits until something has been cleaned.
    pub fn waits_for_cleaning(&self) -> Option<RequestId> {
        self.tier.waits_for_cleaning()
    }

    /// Whether a block is dirty.
    pub fn is_dirty(&self, block: Lba) -> bool {
        self.tier.is_dirty(block)
    }

    /// What happened at `now`, which never goes back.
    ///
    /// # Panics
    /// If an I/O is told to be done that is not under way, or somebody leaves the line who is not
    /// its first.
    pub fn handle_input(&mut self, now: Time, input: NvramInput, head: &dyn HeadPosition) {
        self.now = now;
        if let Some(control) = &mut self.control {
            let below = match input {
                NvramInput::BelowDone(id, _) => self.tier.below(id),
                _ => None,
            };
            if control.before(now, &input, below) {
                self.tier.follow(&control.config());
            }
        }
        self.tier.handle_input(now, input, head);
    }

    /// What is to be done because of the inputs so far.
    pub fn poll_output(&mut self) -> Option<NvramOutput> {
        let output = self.tier.poll_output();
        if let (Some(NvramOutput::Reply(_)), Some(control)) = (&output, &mut self.control) {
            control.replied(self.now);
        }
        output
    }

    /// When [`NvramInput::Timeout`] is wanted, if nothing else happens.
    pub fn wake_up(&self) -> Option<Time> {
        self.tier.wake_up()
    }

    /// What has happened.
    pub fn counters(&self) -> NvramCounters {
        self.tier.counters()
    }

    /// What is followed, and why, if policy and thresholds follow the load.
    pub fn control(&self) -> Option<ControlStatus> {
        self.control.as_ref().map(|control| control.status())
    }

    /// Blocks that the disk does not have yet.
    pub fn dirty_blocks(&self) -> u64 {
        self.tier.dirty_blocks()
    }

    /// Size of the hot zone, for the policy that has one.
    pub fn hot_zone_blocks(&self) -> u64 {
        self.tier.hot_zone_blocks()
    }

    /// The hit ratio by size, where the hot zone is looked for.
    pub fn hot_zone(&self) -> Option<&HotZone> {
        self.tier.hot_zone()
    }

    /// Walks through everything.
    ///
    /// # Panics
    /// If something is wrong.
    #[cfg(test)]
    pub(crate) fn check_invariants(&self) {
        self.tier.check_invariants();
    }
}
