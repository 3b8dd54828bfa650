//! A memory that comes or goes while requests are served, in some of the runs. Drawn from numbers
//! of its own: a run without is as before.
//!
//! Where there is no memory, changes are asked for with FUA, so that what was acknowledged is
//! there; but for some of one block, which count only once a memory that has come is in use: it may
//! hold what is newer, and C9 wants the older then.

use std::collections::BTreeSet;

use dcd_engine::format::nvram::{NvramIdentity, NvramLayout};
use dcd_engine::nvram::durable::NvramPresence;
use dcd_engine::units::LbaRange;
use dcd_engine::{Operation, RequestError, RequestId};

use super::below::data_of;
use super::medium::Survivor;
use super::{Asked, BLOCKS, CACHE, Run};
use crate::random::Random;

pub(super) struct Changing {
    random: Option<Random>,
    /// What the superblock is to say.
    to_name: Option<Option<NvramIdentity>>,
    /// The superblock cannot be written any more.
    has_failed: bool,
    /// What was asked of what is below before a memory came.
    earlier: BTreeSet<u64>,
    /// Changes that were acknowledged, and are not durable for all that is known.
    weak: Vec<u64>,
    /// The change under way.
    under_way: Option<u64>,
    /// The memory went because it had failed: what is in it is nothing any more.
    old_is_left: bool,
}

impl Changing {
    pub(super) fn of(seed: u64) -> Changing {
        let mut random = Random::new(seed ^ 0x6f6e_6c69_6e65);
        let changes = random.one_in(2);
        Changing {
            random: changes.then_some(random),
            to_name: None,
            has_failed: false,
            earlier: BTreeSet::new(),
            weak: Vec::new(),
            under_way: None,
            old_is_left: false,
        }
    }

    pub(super) fn cannot_be_told(&self) -> bool {
        self.has_failed
    }

    pub(super) fn take_old_is_left(&mut self) -> bool {
        std::mem::take(&mut self.old_is_left)
    }

    fn one_in(&mut self, chance: u64) -> bool {
        self.random.as_mut().is_some_and(|random| random.one_in(chance))
    }
}

impl Run {
    pub(super) fn is_without_memory(&self) -> bool {
        let presence = self.tier.as_ref().map(|tier| tier.status().presence);
        !matches!(presence, Some(NvramPresence::InUse | NvramPresence::Joining))
    }

    /// Nothing is under way: time has to pass.
    pub(super) fn is_at_rest(&self) -> bool {
        self.below.under_way() == 0 && self.persisting.is_none() && self.changing.to_name.is_none()
    }

    /// Perhaps a memory is to go, or one comes.
    pub(super) fn change(&mut self) -> Result<(), String> {
        if self.changing.random.is_none() {
            return Ok(());
        }
        let status = self.tier().status();
        if status.held_changes > 0 && self.changing.one_in(60) {
            let now = self.now;
            self.tier().fail_held(now);
            return self.take_outputs();
        }
        match status.presence {
            NvramPresence::InUse if self.changing.one_in(25) => {
                let id = self.ask(Operation::RemoveNvram, Asked::Goes)?;
                self.changing.under_way = Some(id);
            }
            NvramPresence::Leaving | NvramPresence::Joining if self.changing.one_in(40) => {
                if let Some(change) = self.changing.under_way.map(RequestId) {
                    self.ask(Operation::CancelNvramChange { change }, Asked::Other)?;
                }
            }
            NvramPresence::Out if self.unit_blocks == 1 && self.changing.one_in(3) => {
                self.write_weakly()?;
            }
            // A superblock that cannot be written may name the old one, which a start will need.
            NvramPresence::Out
                if !self.changing.has_failed
                    && self.tier().is_gone()
                    && self.changing.one_in(8) =>
            {
                self.join()?;
            }
            _ => {}
        }
        Ok(())
    }

    fn write_weakly(&mut self) -> Result<(), String> {
        let random = self.changing.random.as_mut().expect("it changes");
        let range = LbaRange::new(random.below(BLOCKS), 1);
        let version = self.requests + 1;
        self.model.begin(version, range, true);
        let data = data_of(range, version);
        self.ask(Operation::Write { start: range.start, data }, Asked::WeakChange).map(|_| ())
    }

    pub(super) fn weak_ended(&mut self, id: u64, result: Result<(), RequestError>) {
        if result.is_ok() {
            self.changing.weak.push(id);
        }
    }

    /// Another memory, of some size, or the one that has gone.
    pub(super) fn give_a_blank_one(&mut self) {
        let slots = match &mut self.changing.random {
            Some(random) => random.pick(&[128, 192, 256]),
            None => 128,
        };
        self.survivor = Survivor::of_bytes(NvramLayout { slots }.bytes() as usize);
    }

    fn join(&mut self) -> Result<(), String> {
        if self.changing.take_old_is_left() || self.changing.one_in(2) {
            self.give_a_blank_one();
        }
        let opened = self.open_as(CACHE, None, false);
        self.tier = Some(opened.map_err(|error| format!("to join, it is refused: {error}"))?);
        self.requests += 1;
        let id = self.requests;
        self.trace(|| format!("{id}: a memory comes"));
        self.asked.insert(id, Asked::Comes);
        self.changing.under_way = Some(id);
        self.changing.earlier = self.below.ids().collect();
        self.tier().begin_on_line(RequestId(id));
        if self.changing.earlier.is_empty() {
            let now = self.now;
            self.tier().earlier_have_ended(now);
        }
        self.take_outputs()
    }

    pub(super) fn one_has_ended(&mut self, id: u64) {
        if self.changing.earlier.remove(&id) && self.changing.earlier.is_empty() {
            let now = self.now;
            self.tier().earlier_have_ended(now);
        }
    }

    pub(super) fn has_come(&mut self, result: Result<(), RequestError>) {
        self.changing.under_way = None;
        if result.is_ok() {
            self.report.came += 1;
            // A flush came before.
            for id in std::mem::take(&mut self.changing.weak) {
                self.model.ended(id, true);
            }
        }
    }

    pub(super) fn has_gone(&mut self, result: Result<(), RequestError>) -> Result<(), String> {
        self.changing.under_way = None;
        let status = self.tier().status();
        if result.is_err() {
            return Ok(());
        }
        self.report.went += 1;
        if status.presence != NvramPresence::Out {
            return Err("it is said to be gone, and is not".into());
        }
        if !status.has_failed {
            self.check_that_nothing_comes_back()?;
        }
        self.check_all_is_below()
    }

    fn check_all_is_below(&self) -> Result<(), String> {
        for block in 0..BLOCKS {
            let oldest = self.model.acknowledged(block);
            self.model
                .check_block(block, oldest, self.below.durable(block))
                .map_err(|error| format!("gone, and on the disk {error}"))?;
        }
        Ok(())
    }

    // ---- the superblock -----------------------------------------------------------------------

    /// The superblock is told at once, or later.
    pub(super) fn perhaps_begin_naming(&mut self) -> Result<(), String> {
        let Some(which) = self.tier().to_name() else { return Ok(()) };
        let is_at_rest = self.below.under_way() == 0 && self.persisting.is_none();
        let is_now = self.changing.random.as_mut().is_none_or(|random| random.one_in(3));
        if !is_now && !is_at_rest {
            return Ok(());
        }
        self.trace(|| format!("  to name {which:?}"));
        self.tier().begin_naming();
        self.below.may_overlap();
        if self.changing.to_name.is_some() {
            return Err("the superblock is to be written twice".into());
        }
        if which.is_none() {
            self.check_all_is_below()?;
        }
        self.changing.to_name = Some(which);
        Ok(())
    }

    /// Perhaps the superblock is written. Tells whether.
    pub(super) fn tell_name(&mut self) -> bool {
        let is_only_this = self.below.under_way() == 0 && self.persisting.is_none();
        let Some(which) = self.changing.to_name else { return false };
        let is_now = match &mut self.changing.random {
            Some(random) => is_only_this || random.one_in(4),
            None => true,
        };
        if !is_now {
            return false;
        }
        self.changing.to_name = None;
        let fails = self.changing.has_failed || self.may_fail && self.changing.one_in(12);
        let result = if fails { Err(RequestError::Io) } else { Ok(()) };
        let is_written = !self.changing.has_failed && (!fails || self.changing.one_in(2));
        self.changing.has_failed |= fails;
        self.trace(|| format!("{which:?} is named: {result:?}, written {is_written}"));
        if is_written {
            self.partner = which;
        }
        let now = self.now;
        if which.is_none() && is_written && self.tier().status().has_failed {
            self.changing.old_is_left = true;
            self.report.went_failed += u64::from(result.is_ok());
        }
        self.tier().named(now, result);
        true
    }

    pub(super) fn name_at_crash(&mut self) {
        if let Some(which) = self.changing.to_name.take()
            && !self.changing.has_failed
            && self.changing.one_in(2)
        {
            self.partner = which;
            // What is in one that has failed is nothing any more.
            let has_failed = self.tier.as_ref().is_some_and(|tier| tier.status().has_failed);
            self.changing.old_is_left |= which.is_none() && has_failed;
        }
        self.changing.has_failed = false;
        self.changing.earlier.clear();
        self.changing.weak.clear();
        self.changing.under_way = None;
    }
}
