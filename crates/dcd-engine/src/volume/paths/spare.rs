//! Spares: labelled, found by a start, used, and let go. Who is one, and when one is used, is in
//! [`super::super::spares`].
//!
//! ```text
//! 1. A disk that comes gets two labels that say that it is a spare, flushed. Then it is one.
//!      Crash before: it is blank, or one of the labels says so already. Nothing relies on it.
//! 2. A member has failed for long enough, and nothing else is under way: the spare takes its place
//!    as any disk does (replace.rs), with labels that say that it was a spare.
//!      Crash before replace.rs has recorded its tag: the tables know another disk, or none that is
//!      there. Whatever its label says then, the start finds a spare.
//!      Crash behind: the tables know its tag, and the start finds the member. The disk that they do
//!      not know any more is left out, should it be back.
//! 3. If it has not taken the place it is a spare as before, also with the labels of step 2. One
//!    that does not take what is written to it is not used again before the next start.
//!    While it waits its label is read once an hour, from one place and the other by turns.
//! 4. From a disk that is to go the labels are taken away, flushed.
//!      Crash before: it is a spare, or blank.
//! ```
//! Nothing of RAID 0 is given up for a spare: then somebody has to say so (`accept_damage`).

use super::super::format::label::{LABEL_OFFSETS, MEMBER_LABEL_BYTES, MemberLabel, Standing};
use super::super::format::root::MemberState;
use super::super::placement::RaidLevel;
use super::super::spares::{Look, Next, Spare, SpareState};
use super::super::{Purpose, Volume};
use super::replace::{NewDisk, ReplaceError, SLOTS_MAX};
use crate::buffer::Buffer;
use crate::error::VolumeOpenError;
use crate::io::{IoData, IoError, IoOperation, VolumeError};
use crate::units::MemberIndex;

impl Volume {
    // ---- a start ------------------------------------------------------------------------------

    /// Which of the disks that are no members by their labels are: those whose tags the tables
    /// know. Of the others those that were spares are. What comes back are members whose disk was
    /// let go and is given.
    pub(super) fn look_at_others(&mut self) -> Result<Vec<MemberIndex>, VolumeOpenError> {
        let others = std::mem::take(&mut self.spares.others);
        let largest = self.bytes_needed_of_spare().1;
        let mut released = Vec::new();
        for (slot, info) in others {
            let Some(label) = info.label else { continue };
            let member = label.member;
            let is_known = usize::from(member.0) < self.members.len();
            if is_known && label.standing.is_spare() && self.is_disk_of(member, &label) {
                let needed = self.member_bytes_needed(member);
                if info.bytes < needed {
                    let found = info.bytes;
                    return Err(VolumeOpenError::MemberShort { member, needed, found });
                }
                // Another that says that it is this member was let go.
                self.put_member_info(member, info);
                let found = self.members.get_mut(member);
                (found.slot, found.standing) = (slot, label.standing);
            } else if label.standing.is_spare() && info.bytes >= largest && !self.spares.is_full() {
                self.spares.add(Spare::found(slot, label.disk, info.bytes, self.now));
            } else if is_known && label.standing == Standing::Released {
                released.push(member);
            }
        }
        Ok(released)
    }

    // ---- one comes, one goes ------------------------------------------------------------------

    /// What the member needs that needs most.
    fn bytes_needed_of_spare(&self) -> (MemberIndex, u64) {
        let needed = self.members.iter().map(|(member, _)| member);
        let needed = needed.map(|member| (member, self.member_bytes_needed(member)));
        needed.max_by_key(|(_, bytes)| *bytes).expect("a volume has members")
    }

    /// Step 1: [`Device::Member`](crate::Device) of the number that comes back is asked from the
    /// next input on.
    ///
    /// # Errors
    /// If the disk is too small for a member, or there are too many.
    pub(crate) fn add_spare(&mut self, new: NewDisk) -> Result<MemberIndex, ReplaceError> {
        let (member, needed) = self.bytes_needed_of_spare();
        if new.bytes < needed {
            return Err(ReplaceError::TooSmall { member, needed, found: new.bytes });
        }
        if self.is_closing() || self.spares.is_full() || self.next_slot >= SLOTS_MAX {
            return Err(VolumeError::Busy.into());
        }
        let slot = self.next_slot as u8;
        self.next_slot += 1;
        let labels = LABEL_OFFSETS.len();
        self.spares.add(Spare::labelled(slot, new.tag, new.bytes, labels, self.now));
        let first = MemberLabel::first(self.header.uuid, MemberIndex(0));
        let standing = Standing::Spare;
        let label = MemberLabel { epoch: self.epoch, disk: new.tag, standing, ..first };
        self.write_spare(slot, &label.encode());
        Ok(MemberIndex(slot))
    }

    /// Step 4. It is let go when that is done.
    ///
    /// # Errors
    /// If there is no such spare, or it is in use.
    pub(crate) fn remove_spare(&mut self, disk: MemberIndex) -> Result<(), VolumeError> {
        let is_closing = self.is_closing();
        let Some(spare) = self.spares.get_mut(disk.0) else {
            return Err(VolumeError::NoMember(disk));
        };
        if is_closing || !matches!(spare.state, SpareState::Ready | SpareState::Failed) {
            return Err(VolumeError::Busy);
        }
        spare.leaves(LABEL_OFFSETS.len());
        self.write_spare(disk.0, &Buffer::zeroed(MEMBER_LABEL_BYTES));
        Ok(())
    }

    fn write_spare(&mut self, slot: u8, label: &Buffer) {
        for offset in LABEL_OFFSETS {
            let data = IoData::Owned(label.clone());
            let write = IoOperation::Write { offset, data, fua: false };
            self.start_io_elsewhere(slot, write, Purpose::Spare(slot));
        }
    }

    pub(in crate::volume) fn spare_io_done(&mut self, slot: u8, result: Result<(), IoError>) {
        let Some(spare) = self.spares.get_mut(slot) else { return };
        match spare.did(result.is_ok()) {
            Next::Nothing => {}
            Next::Flush => {
                self.start_io_elsewhere(slot, IoOperation::Flush, Purpose::Spare(slot));
            }
            Next::Gone => self.spares.remove(slot),
        }
    }

    // ---- one waits ----------------------------------------------------------------------------

    /// Reads the labels of those that have waited for long. Whether there were any.
    pub(in crate::volume) fn look_at_spares(&mut self) -> bool {
        if self.is_closing() {
            return false;
        }
        let mut has_any = false;
        while let Some((slot, look)) = self.spares.look_at_next(self.now) {
            let (offset, buffer) =
                (LABEL_OFFSETS[look % LABEL_OFFSETS.len()], Buffer::zeroed(MEMBER_LABEL_BYTES));
            let read = IoOperation::Read { offset, buffer };
            self.start_io_elsewhere(slot, read, Purpose::SpareLook(slot));
            has_any = true;
        }
        has_any
    }

    pub(in crate::volume) fn spare_looked_at(
        &mut self,
        slot: u8,
        result: Result<(), IoError>,
        buffer: Option<Buffer>,
    ) {
        let uuid = self.header.uuid;
        let label = buffer.map(|label| MemberLabel::decode(label.bytes()).ok());
        let Some(spare) = self.spares.get_mut(slot) else { return };
        let is_its_own = |label: &MemberLabel| {
            label.uuid == uuid && label.disk == spare.tag && label.standing.is_spare()
        };
        let found = match (result, label) {
            (Ok(()), Some(Some(label))) if is_its_own(&label) => Look::Its,
            (Ok(()), _) => Look::Other,
            (Err(_), _) => Look::Unreadable,
        };
        spare.looked_at(found, self.now);
    }

    // ---- one is used --------------------------------------------------------------------------

    /// Whether a member is one that a spare may stand in for, and has failed. One that is not there
    /// and holds what nobody else does is believed when it comes back: it is not given up.
    fn has_failed_member(&self, member: MemberIndex) -> bool {
        let found = self.members.get(member);
        let is_away = || !found.is_present && self.members.can_do_without(member, &self.layouts);
        self.is_in_redundant_set(member) && (found.state == MemberState::Stale || is_away())
    }

    /// Whether others hold what it does, if they have all of that.
    pub(super) fn is_in_redundant_set(&self, member: MemberIndex) -> bool {
        let mut layouts = self.layouts.iter();
        layouts.any(|it| it.level() != RaidLevel::Raid0 && it.place_of(member).is_some())
    }

    /// Step 2.
    pub(in crate::volume) fn advance_spares(&mut self) -> bool {
        for member in (0..self.members.len() as u8).map(MemberIndex) {
            let has_failed = self.has_failed_member(member);
            self.spares.note(member, has_failed, self.now);
        }
        let Some((member, failed_for)) = self.spares.wanting(self.now) else { return false };
        let Some(spare) = self.spares.ready(self.member_bytes_needed(member)) else { return false };
        let (slot, new) =
            (spare.slot, NewDisk { bytes: spare.bytes, tag: spare.tag, accept_damage: false });
        match self.spare_takes_place(member, slot, new) {
            Ok(()) => {
                self.spares.begins(slot, member, failed_for);
                true
            }
            Err(ReplaceError::Volume(VolumeError::Busy)) => false,
            Err(_) => {
                self.spares.put_off(member, self.now);
                false
            }
        }
    }
}
