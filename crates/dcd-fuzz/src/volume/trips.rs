//! A member leaves, little is changed, and it comes back: it is brought up to date by what it has
//! missed. Copies of the machine crash behind any I/O of that, and the member may leave once more
//! before it is over, or the disk that comes back may be a blank one, or an older copy of the one
//! that left.

use dcd_engine::units::{BLOCK_SIZE, LINE_SIZE, MemberIndex};
use dcd_engine::volume::format::root::MemberState;
use dcd_engine::{Operation, VolumeRequest};

use super::crash::Crash;
use super::machine::{Wreck, label_of};
use super::run::VolumeRun;
use crate::model::Violation;
use crate::random::Random;

/// Moments of bringing a member up to date at which a copy crashes.
const PROBES_MAX: u32 = 12;
/// Trips of a run.
const TRIPS_MAX: u64 = 4;

/// What happens to a member at a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Trip {
    /// It is not there at the next start.
    Leaves(usize),
    /// Nothing: whoever is away stays away.
    Stays,
    /// It is there again.
    Returns(usize),
    /// As it was at an earlier start.
    ReturnsOlder(usize),
    /// A blank disk is there in its place.
    ReturnsBlank(usize),
}

impl VolumeRun {
    /// What happens to the members while nothing runs.
    pub(super) fn go_on_trip(&mut self, wreck: &mut Wreck, trip: Trip, random: &mut Random) {
        match trip {
            Trip::Stays => {}
            Trip::Leaves(index) => {
                self.say(|| format!("member {index} leaves"));
                let member = &mut wreck.members[index];
                (member.is_there, member.is_suspect) = (false, true);
                self.report.volume.members_left += 1;
                self.note_losses_without(wreck, index, true);
            }
            Trip::Returns(index) => {
                self.say(|| format!("member {index} comes back"));
                let member = &mut wreck.members[index];
                (member.is_there, member.disk.failing) = (true, None);
            }
            Trip::ReturnsBlank(index) => {
                self.say(|| format!("member {index} is replaced by a blank one"));
                self.put_blank(wreck, index);
                self.note_losses_without(wreck, index, true);
            }
            Trip::ReturnsOlder(index) => {
                let member = &mut wreck.members[index];
                (member.is_there, member.disk.failing) = (true, None);
                let epoch_now = label_of(|at, bytes| wreck.members[index].disk.peek(at, bytes));
                let is_older = |which: &usize| {
                    let then = label_of(|at, bytes| self.older[*which][index].read(at, bytes));
                    let same_disk = then.map(|l| l.disk) == epoch_now.map(|l| l.disk);
                    same_disk && then.map(|l| l.epoch) < epoch_now.map(|l| l.epoch)
                };
                let all: Vec<usize> = (0..self.older.len()).filter(is_older).collect();
                if !all.is_empty() && self.all_sets_are_redundant() {
                    self.put_older(wreck, index, random.pick(&all));
                }
            }
        }
    }

    /// Before a step. Whether there was a crash.
    pub(super) fn leave_and_return(&mut self) -> Result<bool, Violation> {
        let mut random = Random::new(self.more.state() ^ 0x7219);
        let random = &mut random;
        if !self.options.more.members_return
            || self.is_calm
            || self.report.volume.members_left >= TRIPS_MAX
            || !random.one_in(8)
            || !self.may_fail(random)
        {
            return Ok(false);
        }
        let index = random.below(self.options.config.members as u64) as usize;
        let member = MemberIndex(index as u8);
        self.before_it_leaves(member, random)?;
        self.crash_with(Trip::Leaves(index), random)?;
        let mut times_left = random.below(2);
        loop {
            self.change_little(random)?;
            // Of two disks that have been a member, the one that counts comes back.
            let is_same = self.options.more.replaces_members;
            let trip = match random.below(8) {
                _ if is_same => Trip::Returns(index),
                0 => Trip::ReturnsBlank(index),
                1 | 2 if self.options.more.older_disks => Trip::ReturnsOlder(index),
                _ => Trip::Returns(index),
            };
            self.crash_with(trip, random)?;
            let leaves_again = times_left > 0;
            times_left = times_left.saturating_sub(1);
            self.bring_up_to_date(member, leaves_again, random)?;
            if !leaves_again {
                break;
            }
            self.crash_with(Trip::Leaves(index), random)?;
        }
        if self.come_to_rest(random)? && self.machine.volume().is_idle() {
            self.machine.clear_suspects(false);
            self.check_redundancy(true, random)?;
        }
        Ok(true)
    }

    fn crash_with(&mut self, trip: Trip, random: &mut Random) -> Result<(), Violation> {
        self.trip = Some(trip);
        let outcome = self.crash(Crash::real(random.one_in(2)), random);
        self.trip = None;
        outcome
    }

    /// Some of what it was told may not be on it, or not durable; or it has failed before, in its
    /// place.
    fn before_it_leaves(
        &mut self,
        member: MemberIndex,
        random: &mut Random,
    ) -> Result<(), Violation> {
        for _ in 0..random.below(4) {
            self.change_once(random)?;
        }
        match random.below(6) {
            0 | 1 => drop(self.come_to_rest(random)?),
            2 => {
                let request = VolumeRequest::FailMember { member };
                if self.do_now(Operation::Volume(request), random)?.result.is_ok() {
                    self.machine.state.members[usize::from(member.0)].is_suspect = true;
                    self.note_losses();
                }
                self.change_little(random)?;
            }
            _ => {
                for _ in 0..random.below(30) {
                    self.end_one_io(random)?;
                }
            }
        }
        Ok(())
    }

    /// A few lines, and perhaps a crash.
    fn change_little(&mut self, random: &mut Random) -> Result<(), Violation> {
        let blocks = LINE_SIZE / BLOCK_SIZE;
        let lines = self.model.blocks() / blocks;
        for _ in 0..random.below(4) {
            self.aim = Some((random.below(lines) * blocks, blocks));
            let outcome = self.change_once(random);
            self.aim = None;
            outcome?;
            for _ in 0..random.below(12) {
                self.end_one_io(random)?;
            }
        }
        if random.one_in(3) {
            self.come_to_rest(random)?;
        }
        match random.below(6) {
            0 | 1 => self.crash_with(Trip::Stays, random),
            2 => {
                self.trip = Some(Trip::Stays);
                let outcome = self.crash(Crash::probe(random.one_in(2)), random);
                self.trip = None;
                outcome
            }
            _ => Ok(()),
        }
    }

    /// With changes meanwhile, and crashes of copies.
    fn bring_up_to_date(
        &mut self,
        member: MemberIndex,
        is_cut_short: bool,
        random: &mut Random,
    ) -> Result<(), Violation> {
        if self.machine.member_state(member) != MemberState::UpToDate
            && self.machine.volume().status().work.is_none()
        {
            self.rebuild(member, random)?;
        }
        let probes = if is_cut_short { random.below(8) as u32 } else { PROBES_MAX };
        for _ in 0..probes {
            if self.machine.volume().status().work.is_none() {
                break;
            }
            if random.one_in(4) {
                self.change_once(random)?;
            }
            for _ in 0..1 + random.below(3) {
                self.machine.end_one_io(random);
            }
            self.take_replies()?;
            // At any of its I/Os, nobody else leaves or comes.
            self.trip = Some(Trip::Stays);
            let outcome = self.crash(Crash::probe(random.one_in(2)), random);
            self.trip = None;
            outcome?;
        }
        Ok(())
    }
}
