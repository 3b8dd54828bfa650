//! A disk takes the place of a member while the volume serves.
//!
//! ```text
//! 1. The new disk gets labels that say that it is no member yet, flushed: what it was before it
//!    says no more.
//! 2. From here on it is told all that the member is told, but for labels and the twin: an I/O of
//!    the member has ended when that of the new disk has, too.
//! 3. What lies on the member is copied, a stripe after the other, by jobs as those of a rebuild: a
//!    job has its chunk to itself, so what it copies is not changed meanwhile. What the member
//!    cannot tell comes from the others.
//!      Crash up to here: the member is as it ever was, and the new disk is nothing.
//! 4. The new disk is flushed. If the member has the twin of the tables, it has it no more: labels
//!    say so.
//! 5. The new disk gets labels of a member, with a tag of its own; flushed.
//!      Crash here: two disks say that they are this member. The tables know the tag of the old one,
//!      and the new one is refused. Without tags either would be believed by turns, and lack what
//!      was written in the turn of the other.
//! 6. The tag is recorded. Until that is known, an I/O has failed that one of the two has not done.
//!      Crash behind: the old disk is refused.
//! 7. The member is on the new disk. The old one gets labels that say that it was let go.
//! ```
//! Up to step 6 an error of the new disk ends it, and all is as it was; so does a member that is
//! done without. Of a member that is not up to date only RAID 0 sets are copied, and of one that is
//! not there nothing; a rebuild follows. What cannot be had ends it too, unless whoever asked knows
//! that it will be lost: then, before step 5, the tables have it as lost, durable.

use std::collections::{BTreeMap, BTreeSet};

use super::super::format::journal::JournalItem;
use super::super::format::label::{
    DiskTag, LABEL_OFFSETS, MEMBER_LABEL_BYTES, MemberLabel, Standing,
};
use super::super::format::root::MemberState;
use super::super::lost::LineRun;
use super::super::members::{Member, MemberMask};
use super::super::placement::RaidLevel;
use super::super::raid::SetLine;
use super::super::{ELSEWHERE, Purpose, Volume};
use super::job::JobId;
use super::journal::Then;
use super::repair::{WorkKind, WorkStatus};
use crate::buffer::Buffer;
use crate::io::{Device, IoData, IoDone, IoError, IoId, IoOperation, VolumeError};
use crate::units::MemberIndex;
use crate::volume::config::LABEL_BYTES;

/// A disk that is to take the place of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewDisk {
    /// Its size in bytes.
    pub bytes: u64,
    /// Random: no other disk of this volume has it.
    pub tag: DiskTag,
    /// Lines that cannot be had from anywhere count as lost; else nothing is replaced.
    pub accept_damage: bool,
}

/// Why a disk cannot take the place of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReplaceError {
    /// There is no such volume or member, or something else is under way.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The disk is too small.
    #[error("the disk has {found} bytes, and member {} needs {needed}", member.0)]
    TooSmall {
        /// Whose place it is.
        member: MemberIndex,
        /// Bytes needed.
        needed: u64,
        /// Bytes found.
        found: u64,
    },
    /// What the member has of RAID 0 nobody else has, and it is not there.
    #[error("{lines} lines of 4 KiB on RAID 0 would be lost with member {}, which is not there", member.0)]
    WouldBeLost {
        /// Which.
        member: MemberIndex,
        /// How many.
        lines: u64,
    },
}

/// What is copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Copied {
    /// All.
    All,
    /// The member is not up to date, and what it has of RAID 0 sets counts all the same.
    Raid0,
    /// It is not there.
    Nothing,
}

/// Why a replacement has come to nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CutShort {
    /// The new disk has not done what it was told.
    NewDisk,
    /// The member has failed, or is there again, or was brought up to date.
    Member,
    /// Lines that nobody can read would be lost.
    Unreadable,
    /// Somebody has stopped it.
    Cancelled,
    /// dcd ends.
    End,
    /// The journal cannot be written.
    Tables,
}

/// Numbers of disks that have come since the start are below this.
pub(super) const SLOTS_MAX: usize = 250;

/// A member on a new disk that is to be rebuilt: also by the next start.
const NOTHING_YET: MemberState = MemberState::Rebuilding { set: 0, stripe: 0 };

/// What an I/O is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::volume) enum Step {
    /// A label on the new disk, or its flush.
    New,
    /// A label on the old one.
    Old,
}

/// Where it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Marking {
        left: u32,
    },
    MarkFlush,
    Copying,
    Flushing,
    /// Waits until labels name the member as a holder of the twin no more.
    TwinElsewhere,
    /// Waits for the journal to be idle, and then for its checkpoint `number`.
    Losing {
        number: Option<u64>,
    },
    Labelling {
        left: u32,
    },
    LabelFlush,
    Recording,
    /// Whether it was recorded is not known, and never will be.
    Unknown,
    Releasing {
        left: u32,
    },
    /// Waits for what both were told before step 7.
    Done,
}

impl Stage {
    /// Whether it cannot be given up any more.
    fn counts(self) -> bool {
        matches!(self, Stage::Recording | Stage::Unknown | Stage::Releasing { .. } | Stage::Done)
    }
}

/// An I/O of the member that has ended, while that of the new disk has not.
struct Held {
    purpose: Purpose,
    device: Device,
    done: IoDone,
}

/// A replacement under way.
pub(in crate::volume) struct Replacement {
    member: MemberIndex,
    slot: u8,
    old_slot: u8,
    tag: DiskTag,
    old_tag: DiskTag,
    copied: Copied,
    accept_damage: bool,
    /// Lines of RAID 0 sets that could not be read, and were not written since.
    unreadable: BTreeSet<(u8, SetLine)>,
    stage: Stage,
    /// The disk is a spare.
    is_spare: bool,
    /// Why it has been given up, if it has.
    given_up: Option<CutShort>,
    /// I/Os of the member that the new disk has not done yet ...
    echoes: BTreeSet<IoId>,
    /// ... and those that it has, before the member.
    echoed: BTreeMap<IoId, Result<(), IoError>>,
    held: BTreeMap<IoId, Held>,
}

impl Copied {
    fn of(member: &Member) -> Copied {
        match (member.is_present, member.state) {
            (true, MemberState::UpToDate) => Copied::All,
            (true, _) => Copied::Raid0,
            (false, _) => Copied::Nothing,
        }
    }
}

impl Replacement {
    fn status(&self) -> WorkStatus {
        WorkStatus {
            kind: WorkKind::Replace(self.member),
            is_of_missed: false,
            stripes_done: 0,
            stripes_total: 0,
            bytes_done: 0,
            bytes_total: 0,
            mismatches: 0,
            lines_unreadable: 0,
            lines_not_compared: 0,
            is_by_time: false,
            bytes_per_second: 0,
            is_cut_short: self.given_up.is_some(),
            cut_short: self.given_up,
        }
    }

    fn is_over(&self) -> bool {
        self.echoes.is_empty() && self.held.is_empty()
    }

    fn unreadable_runs(&self) -> Vec<LineRun> {
        self.unreadable
            .iter()
            .map(|(set, first)| LineRun { set: *set, first: *first, lines: 1 })
            .collect()
    }
}

impl Volume {
    /// Whether stripes of a set are copied to the disk that takes the place of a member.
    pub(super) fn is_set_copied(&self, set: usize) -> bool {
        let is_raid0 = self.layouts[set].level() == RaidLevel::Raid0;
        self.replacement.as_ref().is_some_and(|it| it.copied == Copied::All || is_raid0)
    }

    /// A disk takes the place of a member: [`Device::Member`] of the number that comes back is asked
    /// from the next input on.
    ///
    /// # Errors
    /// If there is no such member, the disk is too small, or something else is under way.
    pub(crate) fn replace_member(
        &mut self,
        member: MemberIndex,
        new: NewDisk,
    ) -> Result<MemberIndex, ReplaceError> {
        if usize::from(member.0) >= self.members.len() {
            return Err(VolumeError::NoMember(member).into());
        }
        if self.next_slot >= SLOTS_MAX {
            return Err(VolumeError::Busy.into());
        }
        let slot = self.next_slot as u8;
        self.begin_replacement(member, slot, new, false)?;
        self.next_slot += 1;
        Ok(MemberIndex(slot))
    }

    /// The same of a spare, which has its number.
    pub(super) fn spare_takes_place(
        &mut self,
        member: MemberIndex,
        slot: u8,
        new: NewDisk,
    ) -> Result<(), ReplaceError> {
        self.begin_replacement(member, slot, new, true)
    }

    fn begin_replacement(
        &mut self,
        member: MemberIndex,
        slot: u8,
        new: NewDisk,
        is_spare: bool,
    ) -> Result<(), ReplaceError> {
        let needed = self.member_bytes_needed(member);
        if new.bytes < needed {
            return Err(ReplaceError::TooSmall { member, needed, found: new.bytes });
        }
        self.set_scrub_aside();
        let found = self.members.get(member);
        let copied = Copied::of(found);
        if self.replacement.is_some()
            || self.repair.is_under_way()
            || self.is_closing()
            || self.more_pointers.is_some()
            || self.growing.is_some()
            || found.disk == new.tag
        {
            return Err(VolumeError::Busy.into());
        }
        // It is not known to lack anything, and others cannot do without it.
        let is_needed = found.state != MemberState::Stale
            && self.is_in_redundant_set(member)
            && !self.members.can_do_without(member, &self.layouts);
        if copied == Copied::Nothing && !new.accept_damage && is_needed {
            return Err(VolumeError::LastCopy(member).into());
        }
        if copied == Copied::Nothing && !new.accept_damage {
            let lines: u64 = self.raid0_runs_on(member).iter().map(|run| run.lines).sum();
            if lines > 0 {
                return Err(ReplaceError::WouldBeLost { member, lines });
            }
        }
        let (old_slot, old_tag) = (found.slot, found.disk);
        self.replacement = Some(Box::new(Replacement {
            member,
            slot,
            old_slot,
            tag: new.tag,
            old_tag,
            copied,
            accept_damage: new.accept_damage,
            unreadable: BTreeSet::new(),
            stage: Stage::Marking { left: 2 },
            is_spare,
            given_up: None,
            echoes: BTreeSet::new(),
            echoed: BTreeMap::new(),
            held: BTreeMap::new(),
        }));
        self.write_new_labels(Standing::Incoming);
        Ok(())
    }

    /// Disks that may be asked for something, by their numbers: of the members, and of what comes or
    /// goes.
    pub fn uses_disk(&self, slot: MemberIndex) -> bool {
        let of_replacement =
            self.replacement.as_ref().is_some_and(|it| slot.0 == it.slot || slot.0 == it.old_slot);
        of_replacement
            || self.spares.has(slot.0)
            || self.members.iter().any(|(_, member)| member.slot == slot.0)
    }

    fn replacement(&mut self) -> &mut Replacement {
        self.replacement.as_mut().expect("it is under way")
    }

    /// Whether labels must not be written by others: the new disk gets its own.
    pub(super) fn is_new_disk_labelled(&self) -> bool {
        self.replacement
            .as_ref()
            .is_some_and(|it| matches!(it.stage, Stage::Labelling { .. } | Stage::LabelFlush))
    }

    /// Whether it becomes the member, and may be it already.
    pub(super) fn is_new_disk_being_recorded(&self) -> bool {
        self.replacement.as_ref().is_some_and(|it| it.stage == Stage::Recording)
    }

    /// Whether an end has to wait for it.
    pub(super) fn is_replacing(&self) -> bool {
        self.replacement.as_ref().is_some_and(|it| it.stage != Stage::Unknown)
    }

    // ---- I/O ----------------------------------------------------------------------------------

    fn ask_new_disk(&mut self, operation: IoOperation, purpose: Purpose) {
        let slot = self.replacement().slot;
        self.start_io_elsewhere(slot, operation, purpose);
    }

    /// Steps 1 and 5: both copies, so that neither speaks of anything else.
    fn write_new_labels(&mut self, standing: Standing) {
        let (member, tag) = (self.replacement().member, self.replacement().tag);
        let twin = self.twin_label().filter(|_| standing == Standing::Member);
        // What was a spare is one again if this comes to nothing.
        let standing = match (self.replacement().is_spare, standing) {
            (true, Standing::Incoming) => Standing::SpareIncoming,
            (true, Standing::Member) => Standing::SpareMember,
            _ => standing,
        };
        let label = MemberLabel { disk: tag, standing, ..self.label_of(member, self.epoch, twin) };
        for offset in LABEL_OFFSETS {
            let data = IoData::Owned(label.encode());
            let write = IoOperation::Write { offset, data, fua: false };
            self.ask_new_disk(write, Purpose::Replace(Step::New));
        }
    }

    /// What the new disk is to do because the member is told to.
    pub(in crate::volume) fn echo_of(
        &self,
        device: Device,
        operation: &IoOperation,
    ) -> Option<(u8, IoOperation)> {
        let it = self.replacement.as_ref()?;
        let is_told = it.given_up.is_none()
            && it.copied != Copied::Nothing
            && device == Device::Member(it.member)
            && !matches!(
                it.stage,
                Stage::Marking { .. } | Stage::MarkFlush | Stage::Releasing { .. } | Stage::Done
            );
        if !is_told {
            return None;
        }
        let end = self.header.config.twin_offset_bytes().unwrap_or(u64::MAX);
        let operation = match operation {
            IoOperation::Write { offset, data: IoData::Owned(data), fua }
                if (LABEL_BYTES..end).contains(offset) =>
            {
                let data = IoData::Owned(data.clone());
                IoOperation::Write { offset: *offset, data, fua: *fua }
            }
            IoOperation::Flush => IoOperation::Flush,
            _ => return None,
        };
        Some((it.slot, operation))
    }

    /// An I/O of the member is told to the new disk as well.
    pub(in crate::volume) fn note_echo(&mut self, of: IoId) {
        self.replacement().echoes.insert(of);
    }

    /// Whether an I/O of the member that has ended waits for the new disk; what it was for comes
    /// back if not.
    pub(in crate::volume) fn hold_for_echo(
        &mut self,
        device: Device,
        purpose: Purpose,
        mut done: IoDone,
    ) -> Option<(Purpose, IoDone)> {
        let Some(it) = &mut self.replacement else { return Some((purpose, done)) };
        if it.echoes.contains(&done.id) {
            it.held.insert(done.id, Held { purpose, device, done });
            return None;
        }
        if let Some(Err(error)) = it.echoed.remove(&done.id)
            && it.stage.counts()
        {
            done.result = done.result.and(Err(error));
        }
        Some((purpose, done))
    }

    /// The new disk has done what the member was told, or has not.
    pub(in crate::volume) fn echo_done(&mut self, of: IoId, result: Result<(), IoError>) {
        let Some(it) = &mut self.replacement else { return };
        if !it.echoes.remove(&of) {
            return;
        }
        let counts = it.stage.counts();
        match it.held.remove(&of) {
            Some(Held { purpose, device, done }) => {
                // Either may be the one that a start finds.
                let error = if counts { result } else { Ok(()) };
                self.dispatch_done(purpose, device, done.result.and(error), done.buffer);
            }
            None => drop(it.echoed.insert(of, result)),
        }
        if result.is_err() && !counts {
            self.give_up_replacement(CutShort::NewDisk);
        }
    }

    /// The new disk has got a part of what a job copies.
    pub(in crate::volume) fn cells_copied(&mut self, id: JobId, result: Result<(), IoError>) {
        if result.is_err() {
            self.give_up_replacement(CutShort::NewDisk);
        }
        self.job_write_ended(id);
    }

    pub(super) fn copy_to_new_disk(&mut self, id: JobId, offset: u64, data: Buffer) {
        self.counters.member_writes += 1;
        self.counters.member_write_bytes += data.len() as u64;
        let write = IoOperation::Write { offset, data: IoData::Owned(data), fua: false };
        self.ask_new_disk(write, Purpose::Copied(id));
    }

    /// Whether jobs have somebody to copy to.
    pub(super) fn is_copied_to(&self) -> bool {
        self.replacement.as_ref().is_some_and(|it| it.given_up.is_none())
    }

    pub(in crate::volume) fn replace_io_done(&mut self, step: Step, result: Result<(), IoError>) {
        if self.replacement.is_none() {
            return;
        }
        // Who was let go need not take it.
        if let (Step::New, Err(_)) = (step, result) {
            self.give_up_replacement(CutShort::NewDisk);
        }
        let it = self.replacement();
        match &mut it.stage {
            Stage::Marking { left } | Stage::Labelling { left } | Stage::Releasing { left } => {
                *left -= 1;
                if *left > 0 {
                    return;
                }
            }
            Stage::MarkFlush | Stage::Flushing | Stage::LabelFlush => {}
            stage => unreachable!("{stage:?} waits for no I/O of its own"),
        }
        if it.given_up.is_some() {
            return;
        }
        let flush = Purpose::Replace(Step::New);
        match it.stage {
            Stage::Marking { .. } => {
                it.stage = Stage::MarkFlush;
                self.ask_new_disk(IoOperation::Flush, flush);
            }
            Stage::MarkFlush if it.copied != Copied::Nothing => {
                it.stage = Stage::Copying;
                let member = it.member;
                self.start_work(WorkKind::Replace(member), (0, 0));
            }
            Stage::MarkFlush | Stage::Flushing => it.stage = Stage::TwinElsewhere,
            Stage::Labelling { .. } => {
                it.stage = Stage::LabelFlush;
                self.ask_new_disk(IoOperation::Flush, flush);
            }
            Stage::LabelFlush => self.record_new_disk(),
            Stage::Releasing { .. } => it.stage = Stage::Done,
            _ => unreachable!("looked at"),
        }
    }

    // ---- steps --------------------------------------------------------------------------------

    pub(in crate::volume) fn advance_replacement(&mut self) -> bool {
        let Some(it) = &self.replacement else { return false };
        let (member, stage) = (it.member, it.stage);
        if !stage.counts() && it.given_up.is_none() {
            let is_as_it_was = it.copied == Copied::of(self.members.get(member));
            let why = match (self.journal.error, self.is_closing()) {
                (Some(_), _) => Some(CutShort::Tables),
                (None, true) => Some(CutShort::End),
                (None, false) => (!is_as_it_was).then_some(CutShort::Member),
            };
            if let Some(why) = why {
                self.give_up_replacement(why);
                return true;
            }
        }
        if self.replacement().given_up.is_some() {
            return self.end_given_up();
        }
        match stage {
            Stage::Done if self.replacement().is_over() => {
                let is_up_to_date = self.replacement().copied == Copied::All;
                self.end_replacement();
                if !is_up_to_date {
                    self.repair.rebuild_next(member);
                }
                true
            }
            Stage::Copying if self.repair.is_copied() => {
                self.replacement().stage = Stage::Flushing;
                self.ask_new_disk(IoOperation::Flush, Purpose::Replace(Step::New));
                true
            }
            Stage::TwinElsewhere => self.leave_twin(member),
            Stage::Losing { number } => self.lose_what_was_there(member, number),
            _ => false,
        }
    }

    /// Step 4.
    fn leave_twin(&mut self, member: MemberIndex) -> bool {
        if let Some(twin) = &mut self.twin {
            let is_holder = twin.holders.has(member) || twin.whole.has(member);
            if is_holder {
                twin.drop_holder(member);
                return true;
            }
            // No new one either.
            twin.dropped = twin.dropped.with(MemberMask::of(member));
            if twin.told.has(member) || self.is_twin_telling() || !self.state_changes.is_empty() {
                return false;
            }
        }
        self.replacement().stage = Stage::Losing { number: None };
        true
    }

    fn begin_labelling(&mut self) {
        self.replacement().stage = Stage::Labelling { left: LABEL_OFFSETS.len() as u32 };
        self.write_new_labels(Standing::Member);
    }

    /// What cannot be had of RAID 0 sets.
    fn lose_what_was_there(&mut self, member: MemberIndex, number: Option<u64>) -> bool {
        let number = match number {
            Some(number) => number,
            None => {
                let runs = match self.replacement().copied {
                    Copied::Nothing => self.raid0_runs_on(member),
                    _ => self.replacement().unreadable_runs(),
                };
                // What is on its way may say of these lines that they were found.
                let has_lost = !runs.is_empty();
                let is_quiet = self.journal.is_idle() && self.is_checkpoint_idle();
                // Nobody has said that it may be.
                if has_lost && !self.replacement().accept_damage {
                    self.give_up_replacement(CutShort::Unreadable);
                    return true;
                }
                if has_lost && !is_quiet {
                    return false;
                }
                self.lose_lines(&runs);
                // Two roots: a start from the older would believe what is on the new disk, since no
                // record says that it is lost.
                let number = self.checkpoint.number() + if has_lost { 2 } else { 0 };
                self.replacement().stage = Stage::Losing { number: Some(number) };
                if has_lost {
                    // The twin has no way to say so but to be written anew.
                    self.begin_twin_anew();
                }
                number
            }
        };
        if self.checkpoint.number() < number {
            if self.is_checkpoint_idle() && !self.has_checkpoint_failed() {
                self.checkpoint_tables();
            }
            return false;
        }
        self.begin_labelling();
        true
    }

    /// Step 6.
    fn record_new_disk(&mut self) {
        let it = self.replacement();
        it.stage = Stage::Recording;
        let (member, disk, is_up_to_date) = (it.member, it.tag, it.copied == Copied::All);
        let labelled = self.members.labelled(self.epoch).with(MemberMask::of(member));
        let epoch = self.epoch;
        let mut items = vec![JournalItem::Disk { member, disk }];
        if !is_up_to_date {
            let state = NOTHING_YET;
            items.push(JournalItem::Member { member, state, is_noted: false });
        }
        items.push(JournalItem::Epoch { epoch, labelled: Some(labelled) });
        self.journal_items(items, Then::Replaced);
    }

    /// Step 7.
    pub(super) fn new_disk_recorded(&mut self, result: Result<(), IoError>) {
        if result.is_err() {
            self.replacement().stage = Stage::Unknown;
            // Nobody need wait for the end of it: there is none before the next start.
            let status = self.replacement().status();
            let cut_short = Some(CutShort::Tables);
            self.repair.last = Some(WorkStatus { is_cut_short: true, cut_short, ..status });
            return;
        }
        let it = self.replacement();
        let (member, slot, old_slot) = (it.member, it.slot, it.old_slot);
        let (disk, old_tag, is_up_to_date) = (it.tag, it.old_tag, it.copied == Copied::All);
        let is_spare = it.is_spare;
        let epoch = self.epoch;
        let old_label = MemberLabel {
            standing: Standing::Released,
            disk: old_tag,
            ..self.label_of(member, epoch, None)
        };
        let found = self.members.get_mut(member);
        let was_present = found.is_present;
        (found.slot, found.disk) = (slot, disk);
        found.standing = if is_spare { Standing::SpareMember } else { Standing::Member };
        (found.label_epoch, found.label_copy, found.has_old_label) = (epoch, 0, false);
        (found.errors, found.read_errors, found.refusals) = (0, 0, 0);
        (found.lines_rotten, found.lines_mended) = (0, 0);
        (found.is_late, found.times_late) = (false, 0);
        found.is_present = true;
        if !is_up_to_date {
            (found.state, found.rebuilt) = (NOTHING_YET, (0, 0));
            self.missed.forget(member);
            // What is waiting to be recorded of the member may say that it is noted: of the old disk.
            self.state_changes.waiting.push_back((member, NOTHING_YET));
        }
        self.counters.members_replaced += 1;
        self.counters.spares_used += u64::from(is_spare);
        self.spares.remove(slot);
        self.spares.is_replaced(member);
        self.forget_dropped(member);
        self.replacement().stage = Stage::Done;
        self.part_from_old_disk(member);
        if was_present {
            self.replacement().stage = Stage::Releasing { left: LABEL_OFFSETS.len() as u32 };
            for offset in LABEL_OFFSETS {
                let data = IoData::Owned(old_label.encode());
                let write = IoOperation::Write { offset, data, fua: true };
                self.start_io_elsewhere(old_slot, write, Purpose::Replace(Step::Old));
            }
        }
    }

    /// What both were told counts when the new disk has done it.
    fn part_from_old_disk(&mut self, member: MemberIndex) {
        let device = Device::Member(member);
        let it = self.replacement.as_mut().expect("it is under way");
        let mut ended = Vec::new();
        for (id, io) in self.ios.iter_mut().filter(|(_, io)| io.device == device) {
            let is_echoed = it.echoes.contains(id) || it.echoed.contains_key(id);
            let Some(purpose) = io.purpose.take_if(|_| is_echoed) else { continue };
            self.members.get_mut(member).given_up += 1;
            let result = it.echoed.remove(id);
            let done = IoDone { id: *id, result: result.unwrap_or(Ok(())), buffer: None };
            match result {
                Some(_) => ended.push((purpose, done)),
                None => drop(it.held.insert(*id, Held { purpose, device, done })),
            }
        }
        // What nobody waits for any more may land on the old disk as late as it likes: the new one
        // would else not be rebuilt before that, which is never if it hangs.
        let mut left = 0;
        for io in self.ios.values_mut().filter(|io| io.device == device && io.purpose.is_none()) {
            io.device = ELSEWHERE;
            left += 1;
        }
        let found = self.members.get_mut(member);
        (found.in_flight, found.given_up) = (found.in_flight - left, found.given_up - left);
        for (purpose, done) in ended {
            self.dispatch_done(purpose, device, done.result, None);
        }
    }

    /// Lines of RAID 0 sets that could not be read, and whether that ends the copying.
    pub(super) fn note_unreadable(&mut self, lines: &[(u8, SetLine)]) -> bool {
        let Some(it) = &mut self.replacement else { return true };
        if it.accept_damage {
            it.unreadable.extend(lines);
        }
        !it.accept_damage
    }

    /// Lines of a RAID 0 set were written.
    pub(super) fn note_readable(&mut self, run: LineRun) {
        let Some(it) = self.replacement.as_mut().filter(|it| !it.unreadable.is_empty()) else {
            return;
        };
        let lines = run.first.0..run.first.0 + run.lines;
        it.unreadable.retain(|(set, line)| *set != run.set || !lines.contains(&line.0));
    }

    /// It may have the twin again, on whatever disk it is.
    fn forget_dropped(&mut self, member: MemberIndex) {
        if let Some(twin) = &mut self.twin {
            twin.dropped = twin.dropped.without(MemberMask::of(member));
        }
    }

    /// The member stays on the disk that it is on.
    pub(super) fn give_up_replacement(&mut self, why: CutShort) {
        let Some(it) = &mut self.replacement else { return };
        if it.stage.counts() {
            return;
        }
        // The first reason is the one.
        it.given_up.get_or_insert(why);
        self.cancel_copy();
    }

    /// Nothing waits for the new disk any more; what it is still told may land.
    fn end_given_up(&mut self) -> bool {
        let it = self.replacement();
        it.echoes.clear();
        it.echoed.clear();
        let held = std::mem::take(&mut it.held);
        let has_held = !held.is_empty();
        for (_, Held { purpose, device, done }) in held {
            self.dispatch_done(purpose, device, done.result, done.buffer);
        }
        let is_asked = self.ios.values().any(|io| {
            io.device == ELSEWHERE
                && matches!(io.purpose, Some(Purpose::Replace(_) | Purpose::Copied(_)))
        });
        if is_asked || self.repair.is_copying() {
            return has_held;
        }
        let member = self.replacement().member;
        self.end_replacement();
        self.forget_dropped(member);
        true
    }

    fn end_replacement(&mut self) {
        let it = self.replacement.take().expect("it is under way");
        if !self.repair.is_copying() {
            self.repair.last = match self.repair.last.filter(|last| last.kind == it.status().kind) {
                // What was copied ended first, and knows how far it came.
                Some(last) if it.given_up.is_some() && last.is_cut_short => {
                    Some(WorkStatus { cut_short: it.given_up, ..last })
                }
                _ => Some(it.status()),
            };
        }
        if let (true, Some(why)) = (it.is_spare, it.given_up) {
            self.spares.ended(it.slot, why == CutShort::NewDisk, self.now);
        }
    }

    /// Whether it has come to an end without one: the next start tells which disk is the member.
    pub(in crate::volume) fn is_replacement_stuck(&self) -> bool {
        self.replacement.as_ref().is_some_and(|it| it.stage == Stage::Unknown)
    }

    /// How far a replacement is that copies nothing, or not yet.
    pub(in crate::volume) fn replacement_status(&self) -> Option<WorkStatus> {
        self.replacement.as_ref().map(|it| it.status())
    }
}

const _: () = assert!(MEMBER_LABEL_BYTES as u64 <= LABEL_OFFSETS[1]);
