//! Members fail and rot, at any moment of a run.

use dcd_engine::units::{LINE_SIZE, MemberIndex};
use dcd_engine::volume::ReplaceError;
use dcd_engine::volume::format::label::MemberLabel;
use dcd_engine::volume::format::root::MemberState;
use dcd_engine::{Device, IoError, Operation, RequestError, VolumeError, VolumeRequest};

use super::machine::{Trap, Trick, label_of};
use super::run::VolumeRun;
use super::truth::LinePlace;
use crate::disk::Pages;
use crate::faults::IoKind;
use crate::model::Violation;
use crate::random::Random;

/// Starts of which the disks are remembered.
const OLDER_MAX: usize = 4;

impl VolumeRun {
    pub(super) fn note_losses(&mut self) {
        self.machine.note_losses();
        let state = &self.machine.state;
        // With two bad lines in a column no parity can be made, also where one of them is nobody's:
        // a write may fail until that is given up.
        self.had_losses |= !state.lost.is_empty() || !state.given_up.is_empty();
        self.had_losses |= self.machine.may_refuse();
    }

    /// Whether a member may fail now, as far as this run goes.
    pub(super) fn may_fail(&self, random: &mut Random) -> bool {
        let is_bad = |member: &&super::machine::Member| {
            member.is_suspect || member.disk.failing.is_some() || !member.is_there
        };
        self.options.members_fail
            && (self.options.too_many_fail && random.one_in(3)
                || !self.machine.state.members.iter().any(|member| is_bad(&member))
                    && !self.machine.state.others.iter().any(|other| other.is_suspect))
    }

    fn draw_member(&self, random: &mut Random) -> MemberIndex {
        MemberIndex(random.below(self.options.config.members as u64) as u8)
    }

    pub(super) fn fault(&mut self, random: &mut Random) {
        let member = self.draw_member(random);
        let may_fail = self.may_fail(random);
        match random.below(3) {
            0 if may_fail => {
                let error = random.pick(&[IoError::Failed, IoError::Gone]);
                self.say(|| format!("{member:?} fails: {error:?}"));
                let disk = &mut self.machine.state.members[usize::from(member.0)];
                disk.disk.failing = Some(error);
                disk.is_suspect = true;
                self.report.volume.members_failed += 1;
            }
            1 if self.options.rots => self.rot(random),
            2 if self.options.io_errors && may_fail && self.machine.traps.is_empty() => {
                let io = random.pick(&[IoKind::Read, IoKind::Write, IoKind::Flush]);
                self.say(|| format!("one {io:?} of {member:?} fails, or takes long"));
                self.machine.traps.push(Trap {
                    device: self.machine.device_of(member),
                    io,
                    trick: if random.one_in(4) { Trick::Slow } else { Trick::Fail },
                });
            }
            _ => {}
        }
        self.note_losses();
    }

    /// A line of a redundant set is not what it was, or cannot be read.
    fn rot(&mut self, random: &mut Random) {
        let Ok(places) = self.machine.places() else { return };
        let sets = &self.machine.sets;
        let is_redundant = |place: &LinePlace| sets.layout(place.set).level().is_redundant();
        let places: Vec<_> = places.into_iter().map(|(_, p)| p).filter(is_redundant).collect();
        if places.is_empty() {
            return;
        }
        let place = places[random.below(places.len() as u64) as usize];
        let copies: Vec<_> = sets.copies(place).chain(sets.parity(place)).collect();
        let (member, offset) = random.pick(&copies);
        self.say(|| format!("{member:?} rots at {offset}: {place:?}"));
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
        member.older_lines.remove(&offset);
        self.report.volume.lines_rotted += 1;
    }

    // ---- what is drawn from a generator of its own ----------------------------------------------

    /// Whether all sets are redundant, so that a disk with other contents can be made good.
    pub(super) fn all_sets_are_redundant(&self) -> bool {
        self.options.config.sets.iter().all(|set| set.level.is_redundant())
    }

    /// Before a step.
    pub(super) fn more_faults(&mut self) -> Result<(), Violation> {
        let more = self.options.more;
        let mut random = Random::new(self.more.bits());
        if more.loses_writes && random.one_in(8) && self.machine.traps.is_empty() {
            let member = self.draw_member(&mut random);
            let trick = random.pick(&[Trick::Lose, Trick::Misdirect]);
            self.say(|| format!("the next write of {member:?}: {trick:?}"));
            self.machine.traps.push(Trap {
                device: self.machine.device_of(member),
                io: IoKind::Write,
                trick,
            });
        }
        if more.replaces_members && random.one_in(10) {
            self.begin_replacement(&mut random)?;
        }
        if more.spare_after_ms.is_some() {
            self.change_spares(&mut random)?;
        }
        if more.busy_members && random.one_in(6) {
            self.begin_work(&mut random)?;
        }
        Ok(())
    }

    /// A rebuild if there is somebody to rebuild; else a member is called failed, or a scrub is
    /// begun. Not waited for.
    fn begin_work(&mut self, random: &mut Random) -> Result<(), Violation> {
        let members = (0..self.options.config.members as u8).map(MemberIndex);
        let mut members = members.collect::<Vec<_>>().into_iter();
        let request = match members.find(|m| self.machine.member_state(*m) != MemberState::UpToDate)
        {
            Some(member) => {
                let disk = &mut self.machine.state.members[usize::from(member.0)];
                disk.disk.failing = None;
                VolumeRequest::Rebuild { member }
            }
            None if self.may_fail(random) && random.one_in(2) => {
                VolumeRequest::FailMember { member: self.draw_member(random) }
            }
            None => VolumeRequest::Scrub,
        };
        let is_refused = |error: &VolumeError| {
            matches!(
                error,
                VolumeError::Busy
                    | VolumeError::UpToDate(_)
                    | VolumeError::LastCopy(_)
                    | VolumeError::NoMember(_)
            )
        };
        let reply = self.do_now(Operation::Volume(request.clone()), random)?;
        match (reply.result, request) {
            (Ok(()), VolumeRequest::Rebuild { member }) => {
                self.machine.state.members[usize::from(member.0)].is_rebuilt = true;
                self.report.volume.rebuilds += 1;
            }
            (Ok(()), VolumeRequest::FailMember { member }) => {
                self.machine.state.members[usize::from(member.0)].is_suspect = true;
                self.report.volume.members_failed += 1;
                self.note_losses();
            }
            (Ok(()), _) => self.report.volume.scrubs += 1,
            (Err(RequestError::Volume(error)), _) if is_refused(&error) => {}
            (Err(error), request) => return Err(Violation(format!("{request:?}: {error}"))),
        }
        Ok(())
    }

    /// A disk is put in the place of a member.
    fn begin_replacement(&mut self, random: &mut Random) -> Result<(), Violation> {
        let member = self.draw_member(random);
        let index = usize::from(member.0);
        let is_present = self.machine.volume().status().members[index].is_present;
        // What is lost with a disk that is not there is known.
        let accept_damage = !is_present && random.one_in(2);
        self.say(|| format!("a disk is put in the place of {member:?}"));
        let tag = random.bits();
        match self.machine.replace_member(member, tag, accept_damage) {
            Ok(slot) => {
                self.report.volume.replacements += 1;
                if accept_damage {
                    let lines: Vec<u64> = self.machine.sets.raid0_lines(member).collect();
                    self.machine.state.members[index].damaged.extend(lines);
                    self.note_losses();
                }
                if self.options.io_errors
                    && self.may_fail(random)
                    && self.machine.traps.is_empty()
                    && random.one_in(3)
                {
                    self.machine.traps.push(Trap {
                        device: Device::Member(slot),
                        io: random.pick(&[IoKind::Write, IoKind::Flush]),
                        trick: random.pick(&[Trick::Slow, Trick::Fail]),
                    });
                }
                self.take_replies()
            }
            Err(
                ReplaceError::Volume(VolumeError::Busy | VolumeError::LastCopy(_))
                | ReplaceError::WouldBeLost { .. },
            ) => Ok(()),
            Err(error) => Err(Violation(format!("{member:?} cannot be replaced: {error}"))),
        }
    }

    /// A spare comes, or one goes.
    fn change_spares(&mut self, random: &mut Random) -> Result<(), Violation> {
        let spares: Vec<MemberIndex> =
            self.machine.volume().spare_statuses().map(|spare| spare.disk).collect();
        if spares.len() < 3 && random.one_in(6 + 10 * spares.len() as u64) {
            self.say(|| "a spare comes".into());
            match self.machine.add_spare(random.bits()) {
                Ok(slot) => {
                    self.report.volume.spares += 1;
                    if self.options.io_errors && self.machine.traps.is_empty() && random.one_in(4) {
                        self.machine.traps.push(Trap {
                            device: Device::Member(slot),
                            io: random.pick(&[IoKind::Write, IoKind::Flush]),
                            trick: random.pick(&[Trick::Slow, Trick::Fail]),
                        });
                    }
                }
                Err(ReplaceError::Volume(VolumeError::Busy)) => {}
                Err(error) => return Err(Violation(format!("no spare: {error}"))),
            }
            self.take_replies()?;
        } else if let Some(spare) = spares.first()
            && random.one_in(40)
        {
            self.say(|| format!("spare {spare:?} goes"));
            match self.machine.remove_spare(*spare) {
                Ok(()) | Err(VolumeError::Busy) => {}
                Err(error) => return Err(Violation(format!("{spare:?} stays a spare: {error}"))),
            }
            self.take_replies()?;
        }
        Ok(())
    }

    /// The disks are remembered as they are.
    pub(super) fn started(&mut self) {
        if self.options.more.older_disks {
            let members = self.machine.state.members.iter();
            let images = members.map(|member| member.disk.snapshot()).collect();
            self.older.push(images);
            if self.older.len() > OLDER_MAX {
                self.older.remove(0);
            }
        }
    }

    /// While nothing runs: a disk is as it was at an earlier start, or, with another draw, it will
    /// fail in the middle of the next start. False if neither.
    pub(super) fn more_meanwhile(&mut self, wreck: &mut super::machine::Wreck) -> bool {
        let more = self.options.more;
        let mut random = Random::new(self.more.bits());
        let mut is_done = true;
        let index = random.below(wreck.members.len() as u64) as usize;
        // A start that cannot read a RAID 0 set is refused.
        if !self.all_sets_are_redundant() {
            return false;
        }
        // Of a disk that was let go since, nobody takes a copy.
        let is_same_disk = |older: &[Pages]| {
            let older = label_of(|at, bytes| older[index].read(at, bytes));
            let now = label_of(|at, bytes| wreck.members[index].disk.peek(at, bytes));
            older.map(|label| label.disk) == now.map(|label| label.disk)
        };
        let are_same = self.older.iter().all(|older| is_same_disk(older));
        if more.older_disks && !self.older.is_empty() && are_same && random.one_in(3) {
            let which = random.below(self.older.len() as u64) as usize;
            self.put_older(wreck, index, which);
        } else if more.fails_at_start && random.one_in(3) {
            let error = random.pick(&[IoError::Failed, IoError::Gone]);
            let ios = random.below(40);
            self.say(|| format!("member {index} fails after {ios} I/Os of the start: {error:?}"));
            wreck.fails_at = Some((ios, MemberIndex(index as u8), error));
        } else {
            is_done = false;
        }
        is_done
    }

    /// A disk is as it was at a start.
    pub(super) fn put_older(
        &mut self,
        wreck: &mut super::machine::Wreck,
        index: usize,
        which: usize,
    ) {
        let image = self.older[which][index].clone();
        self.say(|| format!("member {index} is as it was at an earlier start"));
        let member = &mut wreck.members[index];
        // A start that has not come far may believe it: so what counts is what it should hold,
        // not what a blank one has.
        let right = member.replaced.clone().unwrap_or_else(|| member.disk.snapshot());
        let differing = differing_lines(&right, &image);
        let epoch = |label: Option<MemberLabel>| label.map(|label| label.epoch);
        let then = epoch(label_of(|at, bytes| image.read(at, bytes)));
        // It may have been away since, and no start that has ended knows of a newer label.
        let later = self.older[which + 1..].iter().map(|disks| &disks[index]);
        let has_older_label = later
            .map(|disk| epoch(label_of(|at, bytes| disk.read(at, bytes))))
            .any(|now| then < now);
        member.disk.restore(image);
        member.is_suspect = true;
        // One of two that have missed something has to be believed.
        let is_noticed = which + 1 < self.older.len() && !self.options.too_many_fail;
        member.is_older = is_noticed && has_older_label;
        member.older_lines.clear();
        if member.is_older {
            // What was wrong with it before is not told from what the rebuild is to write.
            let is_new = |line: &u64| !member.damaged.contains(line);
            member.older_lines = differing.iter().copied().filter(is_new).collect();
        }
        member.damaged.extend(differing);
        self.report.volume.members_older += 1;
        self.note_losses_without(wreck, index, false);
    }

    /// What a member has lost that is older, blank or not there, and another that was not well does
    /// not hold either: by the time that the next start is over, the other may be rebuilt without
    /// it, and look well. `is_whole`: it has nothing.
    pub(super) fn note_losses_without(
        &self,
        wreck: &mut super::machine::Wreck,
        without: usize,
        is_whole: bool,
    ) {
        let Ok(places) = self.machine.places() else { return };
        if !self.options.too_many_fail {
            return;
        }
        for (line, place) in places {
            let is_bad = |member: MemberIndex, offset: u64| {
                let index = usize::from(member.0);
                let other = &wreck.members[index];
                let was_bad = other.is_suspect
                    || other.was_suspect
                    || !other.is_there
                    || other.disk.failing.is_some();
                let is_out = if index == without { is_whole } else { was_bad };
                other.damaged.contains(&offset) || is_out
            };
            if self.machine.sets.is_lost(place, is_bad) {
                wreck.lost.insert(line);
                wreck.lost_columns.insert(place.column());
            }
        }
    }

    /// A rebuild has come to its end: then everything comes to rest, and what is redundant is
    /// compared byte by byte.
    pub(super) fn check_rebuilt(&mut self) -> Result<(), Violation> {
        if !self.options.more.busy_members {
            return Ok(());
        }
        let rebuilt = self.machine.volume().status().counters.members_rebuilt;
        if rebuilt == std::mem::replace(&mut self.machine.members_rebuilt, rebuilt) {
            return Ok(());
        }
        self.say(|| "a rebuild has ended: rest".into());
        let mut random = Random::new(self.more.bits());
        if self.come_to_rest(&mut random)? && self.machine.volume().is_idle() {
            self.report.volume.rebuilds_compared += 1;
            self.check_redundancy(true, &mut random)?;
        }
        Ok(())
    }
}

/// Byte addresses of the lines that differ.
fn differing_lines(one: &Pages, other: &Pages) -> Vec<u64> {
    let (mut a, mut b) = ([0; LINE_SIZE as usize], [0; LINE_SIZE as usize]);
    let lines = one.len().min(other.len()) / LINE_SIZE as usize;
    let offsets = (0..lines).map(|line| line * LINE_SIZE as usize);
    let mut differ = |offset: &usize| {
        one.read(*offset, &mut a);
        other.read(*offset, &mut b);
        a != b
    };
    offsets.filter(|offset| differ(offset)).map(|offset| offset as u64).collect()
}
