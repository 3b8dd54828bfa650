//! A crash of a machine with a volume, the recovery with further crashes in it, what has happened
//! to the members meanwhile, and the check of what is there; and the end of a run.

use std::collections::BTreeMap;

use dcd_engine::error::VolumeOpenError;
use dcd_engine::units::{BLOCK_SIZE, LINE_SIZE, MemberIndex};
use dcd_engine::volume::format::root::MemberState;
use dcd_engine::{Buffer, Duration, Lba, OpenError, Operation};

use super::growing::check_size;
use super::machine::{Machine, Member, OtherDisk, Wreck, is_let_go, label_of};
use super::options::{MoreFaults, VolumeOptions};
use super::run::VolumeRun;
use super::truth::Column;
use crate::disk::FaultyDisk;
use crate::model::{Shown, Violation, fill_block, read_block};
use crate::random::Random;
use crate::running::NotOpen;

/// Writes of a lost line, until it is there.
const WRITE_TRIES_MAX: u32 = 4;
/// Crashes within a recovery, at most.
const DEPTH_MAX: u32 = 4;
const LINE_BLOCKS: u64 = LINE_SIZE / BLOCK_SIZE;

/// How to crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crash {
    /// Power cut, or death of the process.
    pub power: bool,
    /// The run goes on from what was recovered.
    pub is_real: bool,
    /// Every block is read, and nothing happens to the members but that all come back.
    pub is_last: bool,
}

impl Crash {
    /// Of a copy.
    pub fn probe(power: bool) -> Crash {
        Crash { power, is_real: false, is_last: false }
    }

    /// Of the run itself.
    pub fn real(power: bool) -> Crash {
        Crash { power, is_real: true, is_last: false }
    }
}

impl std::fmt::Display for Crash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = if self.power { "power cut" } else { "the process dies" };
        let of = if self.is_real { "" } else { ", of a copy" };
        write!(f, "{what}{of}")
    }
}

impl VolumeRun {
    /// Crashes, recovers, checks.
    pub(super) fn crash(&mut self, crash: Crash, random: &mut Random) -> Result<(), Violation> {
        self.say(|| format!("{crash}"));
        let mut wreck = self.machine.wreck(crash.power, random);
        wreck.cache_disk.failing = None;
        self.meanwhile(&mut wreck, crash.is_last, random);
        self.probe_older(&wreck)?;
        self.probe_rotten(&wreck)?;
        self.probe_unreadable(&wreck)?;
        if self.may_lose_cache_disk(&wreck) && self.more.one_in(3) {
            self.lose_cache_disk(&mut wreck, random)?;
        }
        let (mut machine, memory_survived) = self.recover(wreck, crash.is_last, random)?;
        check_older(&machine)?;
        check_size(machine.engine().data_disk().blocks, self.model.blocks())?;
        machine.volume().check_lost_lines();
        machine.note_losses();
        self.check_nothing_is_lost(&machine)?;
        self.report.volume.crash_points_degraded += u64::from(!all_are_well(&machine));
        let is_full = crash.is_last || random.one_in(if crash.is_real { 4 } else { 30 });
        // What a missing member held is read with the help of the others: parity that does not fit
        // is seen there.
        let is_full = is_full || self.reads_all_when_degraded(&machine);
        // What is lost is looked at each time: it must not come back as something else.
        let is_full = is_full || self.options.more.focus.is_some();
        check_members(&machine)?;
        check_columns(&machine, is_full, random)?;
        let blocks = self.blocks_to_check(is_full, random);
        let shown = machine.read_blocks(&blocks, random)?;
        machine.note_losses();
        let (failed, readable): (Vec<_>, Vec<_>) =
            shown.iter().copied().partition(|(_, shown)| *shown == Shown::Error);
        if let Some((block, _)) = failed.iter().find(|(block, _)| !machine.may_be_lost(*block)) {
            let what = machine.describe(*block);
            return Err(Violation(format!("block {block} cannot be read after a crash: {what}")));
        }
        self.report.errors += failed.len() as u64;
        let notes = self.model.check_after_crash(&readable, memory_survived, &self.allowed)?;
        self.report.note(notes);
        let mut hints = self.hints.clone();
        hints.crashed();
        let known = std::mem::replace(&mut self.hints, hints);
        self.check_hints(&machine)?;
        self.check_blocks(&machine)?;
        if !crash.is_real {
            self.hints = known;
            return Ok(());
        }
        for (block, shown) in &shown {
            if !matches!(shown, Shown::Change(_)) {
                self.allowed.taint(*block, 1);
            }
        }
        self.model.adopt(&shown);
        self.model.is_plain = self.options.more.without_log;
        self.forget_requests();
        self.count_machine();
        self.machine = machine;
        // Counted anew: what was destaged and not flushed is in the log again.
        self.log_share = Default::default();
        self.note_losses();
        self.machine.clear_suspects(true);
        self.started();
        self.note_growth()
    }

    /// Where one member at a time fails, and nothing else is wrong, redundant sets lose nothing.
    fn check_nothing_is_lost(&self, machine: &Machine) -> Result<(), Violation> {
        let VolumeOptions { too_many_fail, rots, io_errors, more, .. } = self.options;
        if more == MoreFaults::default()
            || too_many_fail
            || rots
            || io_errors
            || more.loses_writes
            || more.older_disks
        {
            return Ok(());
        }
        let is_redundant = |column: &&Column| machine.sets.layout(column.0).level().is_redundant();
        match machine.state.lost_columns.iter().find(is_redundant) {
            Some(column) => Err(Violation(format!(
                "{column:?} is lost, and never more than one member has failed"
            ))),
            None => Ok(()),
        }
    }

    fn reads_all_when_degraded(&mut self, machine: &Machine) -> bool {
        self.options.more != MoreFaults::default() && !all_are_well(machine) && self.more.one_in(3)
    }

    pub(super) fn blocks_to_check(&self, is_full: bool, random: &mut Random) -> Vec<u64> {
        if is_full {
            return (0..self.model.blocks()).collect();
        }
        let mut blocks = self.model.touched().to_vec();
        for _ in 0..2 {
            let start = random.below(self.model.blocks() / LINE_BLOCKS) * LINE_BLOCKS;
            blocks.extend(start..start + LINE_BLOCKS);
        }
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }

    /// What somebody does to the members while nothing runs.
    fn meanwhile(&mut self, wreck: &mut Wreck, is_last: bool, random: &mut Random) {
        if self.is_calm && !is_last {
            return;
        }
        if !is_last && let Some(trip) = self.trip.take() {
            return self.go_on_trip(wreck, trip, random);
        }
        let is_bad = |member: &Member| {
            member.is_suspect || member.disk.failing.is_some() || !member.is_there
        };
        // The members may have changed since the crash, when a start was interrupted.
        let is_one_bad =
            self.options.more != MoreFaults::default() && wreck.members.iter().any(is_bad);
        let may_fail = self.may_fail(random) && (!is_one_bad || self.options.too_many_fail);
        for member in &mut wreck.members {
            let was_away = member.disk.failing.is_some() || !member.is_there;
            if is_last || was_away && random.one_in(2) {
                member.disk.failing = None;
                member.is_there = true;
            }
        }
        wreck.fails_at = None;
        if is_last || !may_fail || self.more_meanwhile(wreck) {
            return;
        }
        let mut index = random.below(wreck.members.len() as u64) as usize;
        let mut what = random.below(12);
        if let Some(chosen) = self.to_replace.take() {
            (index, what) = (chosen, 2);
        }
        match what {
            0..2 => self.say(|| format!("member {index} is not there any more")),
            2 => self.say(|| format!("member {index} is replaced by a blank one")),
            _ => {}
        }
        let member = &mut wreck.members[index];
        match what {
            // It is not there.
            0..2 => {
                member.is_there = false;
                member.is_suspect = true;
            }
            2 => self.put_blank(wreck, index),
            _ => return,
        }
        self.note_losses_without(wreck, index, true);
    }

    /// A blank disk is there in a member's stead: not one with zeroes where only the old one had
    /// something.
    pub(super) fn put_blank(&mut self, wreck: &mut Wreck, index: usize) {
        let member = &mut wreck.members[index];
        let blank = FaultyDisk::new(member.disk.len(), 4096);
        let old = std::mem::replace(&mut member.disk, blank);
        member.replaced.get_or_insert_with(|| old.snapshot());
        member.is_older = false;
        member.older_lines.clear();
        member.disk.shears = old.shears;
        member.disk.cannot_zero = old.cannot_zero;
        member.unread.clear();
        member.healed.clear();
        for offset in self.machine.sets.raid0_lines(MemberIndex(index as u8)) {
            member.disk.rot(offset as usize, &[0xdb; LINE_SIZE as usize]);
            member.damaged.insert(offset);
        }
        member.is_there = true;
        member.is_suspect = true;
        self.report.volume.members_replaced += 1;
    }

    // ---- recovery -----------------------------------------------------------------------------

    fn recover(
        &mut self,
        mut wreck: Wreck,
        is_last: bool,
        random: &mut Random,
    ) -> Result<(Machine, bool), Violation> {
        let mut memory_survived = wreck.memory.is_some();
        let mut refused = 0;
        for depth in 0.. {
            self.report.crash_points += 1;
            self.report.nested += u64::from(depth > 0);
            let memory = wreck.memory.clone();
            let other = match refused {
                0 => self.give_another(&mut wreck, random),
                _ => None,
            };
            let mut tried = self.options.more.replaces_members.then(|| wreck.clone());
            let is_wrong = |member: &Member| {
                member.is_there
                    && member.disk.failing.is_none()
                    && is_let_go(&member.disk, &wreck.let_go)
            };
            let is_let_go = wreck.members.iter().any(is_wrong);
            let mut machine = Machine::new(wreck, &self.options, self.machine.running.is_traced);
            let is_nested = depth < DEPTH_MAX && random.one_in(5) && !self.is_calm;
            let ios_max = is_nested.then(|| random.below(60));
            match machine.open(&self.options, ios_max, random) {
                Ok(()) if is_let_go => {
                    return Err(Violation("a disk that was let go is believed".into()));
                }
                Ok(()) => return Ok((machine, memory_survived)),
                Err(NotOpen::Violation(violation)) => return Err(violation),
                // Of two disks that have been a member one counts. One that was replaced by a blank
                // one, which has its tag since, is as an older copy.
                Err(NotOpen::Refused(OpenError::Volume(
                    error @ (VolumeOpenError::MemberReplaced { member }
                    | VolumeOpenError::MemberOlder { member, .. }),
                ))) if tried.as_ref().is_some_and(|tried| refused <= tried.others.len())
                    && (other.is_some()
                        || matches!(error, VolumeOpenError::MemberReplaced { .. })) =>
                {
                    // Or of more, one after the other.
                    let mut other_disks = tried.take().expect("looked at");
                    // A blank one would be taken for one that replaces a lost one.
                    let of_member = |it: &OtherDisk| {
                        it.member == member
                            && label_of(|at, bytes| it.disk.peek(at, bytes)).is_some()
                    };
                    let count = other_disks.others.iter().filter(|it| of_member(it)).count();
                    let which = other.or_else(|| {
                        let mut which = (0..other_disks.others.len())
                            .filter(|which| of_member(&other_disks.others[*which]));
                        which.nth(refused % count.max(1))
                    });
                    let Some(which) = which else {
                        return Err(Violation(format!("the only disk of {member:?} is refused")));
                    };
                    refused += 1;
                    self.report.volume.others_refused += 1;
                    self.say(|| format!("another disk of {member:?} is given"));
                    swap_disks(&mut other_disks, which);
                    wreck = other_disks;
                }
                // A member fails in the middle of the start, and another was not well: then it may
                // be refused.
                Err(NotOpen::Refused(_))
                    if self.options.more.fails_at_start && machine.has_failed() =>
                {
                    wreck = machine.wreck(memory.is_none(), random);
                    memory_survived &= wreck.memory.is_some();
                    wreck.fails_at = None;
                    for member in &mut wreck.members {
                        member.disk.failing = None;
                    }
                }
                Err(NotOpen::Refused(error)) => {
                    return Err(Violation(format!("does not open: {error}")));
                }
                Err(NotOpen::Interrupted) => {
                    self.say(|| {
                        format!("a start is interrupted after {} I/Os", ios_max.unwrap_or(0))
                    });
                    refused = 0;
                    let power = memory.is_none() || random.one_in(2);
                    memory_survived &= !power;
                    wreck = machine.wreck(power, random);
                    // It had not been refused yet.
                    if let Some(other) = other {
                        swap_disks(&mut wreck, other);
                    }
                    if !is_last && random.one_in(4) {
                        self.meanwhile(&mut wreck, false, random);
                    }
                }
            }
        }
        unreachable!("the last start is not interrupted")
    }

    /// Somebody gives the other of two disks that have been a member. Which, if so.
    fn give_another(&mut self, wreck: &mut Wreck, random: &mut Random) -> Option<usize> {
        if !self.options.more.replaces_members || wreck.others.is_empty() || !random.one_in(3) {
            return None;
        }
        let which = random.below(wreck.others.len() as u64) as usize;
        let other = &wreck.others[which];
        let is_labelled = label_of(|at, bytes| other.disk.peek(at, bytes)).is_some();
        let is_there = wreck.members[usize::from(other.member.0)].is_there;
        // One that cannot be read is as one that is not there.
        if !is_labelled || !is_there || other.disk.failing.is_some() {
            return None;
        }
        self.say(|| format!("another disk is given for {:?}", wreck.others[which].member));
        swap_disks(wreck, which);
        Some(which)
    }

    /// What is redundant agrees, if every member is up to date.
    pub(super) fn check_redundancy(
        &mut self,
        is_full: bool,
        random: &mut Random,
    ) -> Result<(), Violation> {
        check_members(&self.machine)?;
        check_columns(&self.machine, is_full, random)
    }

    // ---- the end ------------------------------------------------------------------------------

    /// The end of every run: all members are there again, are rebuilt and scrubbed. Then the
    /// members alone hold everything.
    pub(super) fn finish(&mut self, random: &mut Random) -> Result<(), Violation> {
        self.machine.traps.clear();
        let last = Crash { power: random.one_in(2), is_real: true, is_last: true };
        self.crash(last, random)?;
        if self.options.more.scrub_every_s.is_some() {
            self.machine.set_scrub_every(Duration::from_secs(0));
        }
        if self.options.more.spare_after_ms.is_some() {
            self.machine.set_spare_after(Duration(0));
        }
        self.finish_work(random)?;
        for member in (0..self.options.config.members as u8).map(MemberIndex) {
            if self.machine.member_state(member) != MemberState::UpToDate {
                self.rebuild(member, random)?;
                self.finish_work(random)?;
            }
            if self.machine.member_state(member) != MemberState::UpToDate {
                return Err(Violation(format!("{member:?} is not up to date after a rebuild")));
            }
        }
        self.overwrite_lost(random)?;
        if !self.scrub(random)? {
            return Err(Violation("a scrub is refused while nothing else is done".into()));
        }
        self.finish_work(random)?;
        let reply = self.do_now(Operation::Drain, random)?;
        if let Err(error) = reply.result {
            return Err(Violation(format!("a drain failed on healthy members: {error}")));
        }
        self.machine.come_to_rest(2_000, random);
        self.take_replies()?;
        self.machine.volume().check_lost_lines();
        let lost = self.machine.volume().status().redundant_lines_lost;
        if lost > 0 {
            return Err(Violation(format!(
                "{lost} lines count as lost, and all of them were written"
            )));
        }
        self.check_redundancy(true, random)?;
        self.check_blocks(&self.machine)?;
        let blocks: Vec<u64> = (0..self.model.blocks()).collect();
        let shown = self.machine.read_blocks(&blocks, random)?;
        if let Some((block, _)) = shown.iter().find(|(_, shown)| *shown == Shown::Error) {
            return Err(Violation(format!("block {block} cannot be read on healthy members")));
        }
        self.compare_members(&shown)
    }

    /// What is lost can be written again, and read.
    fn overwrite_lost(&mut self, random: &mut Random) -> Result<(), Violation> {
        for line in 0..self.model.blocks() / LINE_BLOCKS {
            if !self.machine.may_be_lost(line * LINE_BLOCKS) {
                continue;
            }
            let start = line * LINE_BLOCKS;
            let blocks: Vec<u64> = (start..start + LINE_BLOCKS).collect();
            let shown = self.machine.read_blocks(&blocks, random)?;
            if shown.iter().any(|(_, shown)| *shown == Shown::Error) {
                let number = self.model.submit(start, LINE_BLOCKS, false, true);
                let mut data = Buffer::zeroed(LINE_SIZE as usize);
                let bytes = data.bytes_mut().chunks_exact_mut(BLOCK_SIZE as usize);
                for (block, bytes) in (start..).zip(bytes) {
                    fill_block(bytes, number, block);
                }
                // Past the log it fails as long as another line of the stripe may be there another
                // time.
                let mut result = Ok(());
                for _ in 0..WRITE_TRIES_MAX {
                    let data = data.clone();
                    let write = Operation::Write { start: Lba(start), data };
                    result = self.do_now(write, random)?.result;
                    if result.is_ok() {
                        break;
                    }
                }
                if let Err(error) = result {
                    return Err(Violation(format!("lost line {line} cannot be written: {error}")));
                }
                self.model.acknowledge(number, true);
            }
        }
        Ok(())
    }

    /// Every copy on every member is what was read; what has no place is zero.
    fn compare_members(&self, shown: &[(u64, Shown)]) -> Result<(), Violation> {
        let places = self.machine.places()?;
        let mut unmapped = vec![true; shown.len() / LINE_BLOCKS as usize];
        let mut bytes = [0; LINE_SIZE as usize];
        for (line, place) in places {
            unmapped[line as usize] = false;
            for (member, offset) in self.machine.sets.copies(place) {
                let disk = &self.machine.state.members[usize::from(member.0)].disk;
                disk.peek(offset as usize, &mut bytes);
                let first = line * LINE_BLOCKS;
                for (block, bytes) in (first..).zip(bytes.chunks_exact(BLOCK_SIZE as usize)) {
                    let found = read_block(bytes, block);
                    let expected = shown[block as usize].1;
                    if found != expected && !self.allowed.is_tainted(block) {
                        return Err(Violation(format!(
                            "block {block} on {member:?} shows {found:?}, not {expected:?}"
                        )));
                    }
                }
            }
        }
        let is_wrong = |(block, shown): &&(u64, Shown)| {
            unmapped[(block / LINE_BLOCKS) as usize]
                && *shown != Shown::Change(0)
                && !self.allowed.is_tainted(*block)
        };
        match shown.iter().find(is_wrong) {
            Some((block, shown)) => {
                Err(Violation(format!("block {block} has no place, and shows {shown:?}")))
            }
            None => Ok(()),
        }
    }
}

/// A member is on another disk.
pub(super) fn swap_disks(wreck: &mut Wreck, which: usize) {
    let Wreck { members, others, .. } = wreck;
    let other = &mut others[which];
    other.swap(&mut members[usize::from(other.member.0)]);
}

/// Whether every member is there and up to date.
fn all_are_well(machine: &Machine) -> bool {
    (0..machine.state.members.len()).all(|index| is_well(machine, MemberIndex(index as u8)))
}

fn is_well(machine: &Machine, index: MemberIndex) -> bool {
    let member = &machine.state.members[usize::from(index.0)];
    member.is_there
        && member.disk.failing.is_none()
        && machine.member_state(index) == MemberState::UpToDate
}

/// Disks from an earlier start are not believed.
fn check_older(machine: &Machine) -> Result<(), Violation> {
    for (index, member) in (0..).map(MemberIndex).zip(&machine.state.members) {
        if member.is_older && machine.member_state(index) == MemberState::UpToDate {
            return Err(Violation(format!("{index:?} is as at an earlier start, and is believed")));
        }
    }
    Ok(())
}

/// No member is done without that nothing was wrong with.
fn check_members(machine: &Machine) -> Result<(), Violation> {
    for (index, member) in (0..).map(MemberIndex).zip(&machine.state.members) {
        let state = machine.member_state(index);
        let has_reason = member.is_suspect || member.was_suspect || !member.damaged.is_empty();
        if state != MemberState::UpToDate && !has_reason {
            return Err(Violation(format!("{index:?} is {state:?} without a reason")));
        }
    }
    Ok(())
}

/// No two lines are at one place; copies agree, and parity is that of the data: wherever something
/// is mapped, all members that hold it are up to date, and nothing was done to the disks that
/// nobody can have noticed yet.
fn check_columns(machine: &Machine, is_full: bool, random: &mut Random) -> Result<(), Violation> {
    let places = machine.places()?;
    let columns = machine.sets.columns(places.iter().copied())?;
    let mut mapped: BTreeMap<Column, u32> = BTreeMap::new();
    for (_, place) in &places {
        *mapped.entry(place.column()).or_default() += 1;
    }
    let are_all_well = all_are_well(machine);
    let well: Vec<bool> = (0..machine.state.members.len())
        .map(|index| is_well(machine, MemberIndex(index as u8)))
        .collect();
    for column in columns {
        let layout = machine.sets.layout(column.0);
        let offset = layout.offset(column.1, column.2);
        // A volume that has been opened may destage and move extents before anybody looks.
        let is_damaged = (0..layout.places()).any(|place| {
            let member = layout.member(place);
            machine.state.members[usize::from(member.0)].damaged.contains(&offset)
                || machine.is_being_written(member, offset)
        });
        let state = &machine.state;
        let is_lost = state.lost_columns.contains(&column) || state.given_up.contains(&column);
        let is_as_it_was = state.is_imported && mapped[&column] < layout.data_units();
        if is_as_it_was || is_damaged || is_lost || are_all_well && !is_full && !random.one_in(6) {
            continue;
        }
        let is_well = |member: MemberIndex| well[usize::from(member.0)];
        machine.sets.check_column(column, is_well, |member, offset, bytes| {
            machine.state.members[usize::from(member.0)].disk.peek(offset as usize, bytes);
        })?;
    }
    Ok(())
}
