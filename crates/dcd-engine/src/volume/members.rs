//! The members: which are there, and which of what they hold is true.

use std::collections::VecDeque;

use super::config::MEMBERS_MAX;
use super::format::label::{DiskTag, LABEL_OFFSETS, MemberLabel, Standing};
use super::format::root::MemberState;
use super::placement::RaidLevel;
use super::raid::Layout;
use crate::io::RequestId;
use crate::units::MemberIndex;

/// What a driver knows of a member's disk when it opens a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemberInfo {
    /// Its label; `None` on a blank disk that takes the place of a lost one.
    pub label: Option<MemberLabel>,
    /// Size in bytes.
    pub bytes: u64,
}

/// A member.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// How it is, as the metadata will have it.
    pub(crate) state: MemberState,
    /// Its disk is there.
    pub(crate) is_present: bool,
    /// Being rebuilt: sets before this one, and of this one stripes before this one, are there.
    pub(crate) rebuilt: (u8, u64),
    /// Writes that have ended and were not durable then ...
    pub(crate) writes: u64,
    /// ... and how many of them a flush has covered.
    pub(crate) flushed: u64,
    /// The newest of these writes that was of a RAID 0 set: an error of the flush may have lost it.
    pub(crate) newest_raid0: u64,
    /// I/Os that have failed since the start ...
    pub(crate) errors: u64,
    /// ... of them, reads.
    pub(crate) read_errors: u64,
    /// Lines that were read, and had not their checksum, since the start.
    pub(crate) lines_rotten: u64,
    /// Lines that were written anew from what the others have, since the start.
    pub(crate) lines_mended: u64,
    /// It keeps others waiting for longer than it should (`lateness.rs`).
    pub(crate) is_late: bool,
    /// How often it has begun to.
    pub(crate) times_late: u64,
    /// I/Os that it has not answered, those included that nobody waits for any more.
    pub(crate) in_flight: u32,
    /// Byte address where the last request to it began: about where its arm is, if it has one.
    pub(crate) arm_at: u64,
    /// Its label could not be written when the volume was opened: it has an older one.
    pub(crate) has_old_label: bool,
    /// Epoch of the newest label that it is known to have; 0: not known. A disk with an older one
    /// is a copy of an earlier time.
    pub(crate) label_epoch: u64,
    /// Which of the two copies on the disk is its newest label that is valid. The next goes to the
    /// other, so that one of them is whole. An epoch does not tell: whoever was away for one has
    /// missed a label.
    pub(crate) label_copy: u8,
    /// I/Os that nobody waits for any more: a write among them may still land.
    pub(crate) given_up: u32,
    /// Which disk it is.
    pub(crate) disk: DiskTag,
    /// What the driver calls that disk: [`Device::Member`](crate::Device) of this number. Its own
    /// number at a start, and greater for one that has come since.
    pub(crate) slot: u8,
    /// What its label says that it is.
    pub(crate) standing: Standing,
    /// Writes that have failed one after the other, where nobody else stands in for it.
    pub(crate) refusals: u32,
}

/// Some of the members.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemberMask(pub u32);

const _: () = assert!(MEMBERS_MAX <= u32::BITS as usize);

impl MemberMask {
    /// Whether this one is among them.
    pub(crate) fn has(self, member: MemberIndex) -> bool {
        self.0.checked_shr(member.0.into()).unwrap_or(0) & 1 != 0
    }

    /// This one alone.
    pub(crate) fn of(member: MemberIndex) -> MemberMask {
        MemberMask(1 << member.0)
    }

    /// Those of both.
    pub(crate) fn with(self, others: MemberMask) -> MemberMask {
        MemberMask(self.0 | others.0)
    }

    /// Those that are not among the others.
    pub(crate) fn without(self, others: MemberMask) -> MemberMask {
        MemberMask(self.0 & !others.0)
    }

    /// Whether there are none.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// How many there are.
    pub(crate) fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// All, in order.
    pub fn members(self) -> impl Iterator<Item = MemberIndex> {
        (0..MEMBERS_MAX as u8).map(MemberIndex).filter(move |member| self.has(*member))
    }
}

/// All members, and the layouts of the sets on them.
#[derive(Clone, Debug)]
pub(crate) struct Members {
    members: Vec<Member>,
}

impl Members {
    /// As the root has them; none is there.
    pub(crate) fn new(states: &[MemberState]) -> Members {
        let member = |(slot, state): (u8, &MemberState)| Member {
            state: *state,
            is_present: false,
            rebuilt: (0, 0),
            writes: 0,
            flushed: 0,
            newest_raid0: 0,
            errors: 0,
            read_errors: 0,
            lines_rotten: 0,
            lines_mended: 0,
            is_late: false,
            times_late: 0,
            in_flight: 0,
            arm_at: 0,
            has_old_label: false,
            label_epoch: 0,
            label_copy: 1,
            given_up: 0,
            disk: DiskTag::default(),
            slot,
            standing: Standing::Member,
            refusals: 0,
        };
        Members { members: (0..).zip(states).map(member).collect() }
    }

    /// Number of members.
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// One of them.
    pub(crate) fn get(&self, member: MemberIndex) -> &Member {
        &self.members[usize::from(member.0)]
    }

    /// The same, to be changed.
    pub(crate) fn get_mut(&mut self, member: MemberIndex) -> &mut Member {
        &mut self.members[usize::from(member.0)]
    }

    /// All with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (MemberIndex, &Member)> {
        self.members.iter().enumerate().map(|(i, member)| (MemberIndex(i as u8), member))
    }

    /// Their states, for a root.
    pub(crate) fn states(&self) -> Vec<MemberState> {
        self.members.iter().map(|member| member.state).collect()
    }

    /// Where the next label of this member goes: bytes on its disk.
    pub(crate) fn label_offset(&self, member: MemberIndex) -> u64 {
        LABEL_OFFSETS[usize::from(1 - self.get(member).label_copy)]
    }

    /// Those that have a label of this epoch.
    pub(crate) fn labelled(&self, epoch: u64) -> MemberMask {
        let have = self.iter().filter(|(_, member)| member.label_epoch == epoch);
        MemberMask(have.fold(0, |mask, (index, _)| mask | 1 << index.0))
    }

    /// These have a label of this epoch; `None`: an older program has written labels, and to which
    /// is not known.
    pub(crate) fn note_labels(&mut self, epoch: u64, labelled: Option<MemberMask>) {
        for (index, member) in (0..).map(MemberIndex).zip(&mut self.members) {
            match labelled {
                Some(labelled) if labelled.has(index) => member.label_epoch = epoch,
                Some(_) => {}
                None => member.label_epoch = 0,
            }
        }
    }

    /// Epochs of their labels, for a root.
    pub(crate) fn label_epochs(&self) -> Vec<u64> {
        self.members.iter().map(|member| member.label_epoch).collect()
    }

    /// Their disks, for a root.
    pub(crate) fn disks(&self) -> Vec<DiskTag> {
        self.members.iter().map(|member| member.disk).collect()
    }

    /// The same, from a root.
    pub(crate) fn load_disks(&mut self, disks: &[DiskTag]) {
        for (member, disk) in self.members.iter_mut().zip(disks) {
            member.disk = *disk;
        }
    }

    /// The same, from a root.
    pub(crate) fn load_label_epochs(&mut self, epochs: &[u64]) {
        for (member, epoch) in self.members.iter_mut().zip(epochs) {
            member.label_epoch = *epoch;
        }
    }

    /// Whether what a member holds of a stripe is true. A RAID 0 set has no other copy: what is
    /// there counts.
    pub(crate) fn is_current(&self, layout: &Layout, set: u8, place: usize, stripe: u64) -> bool {
        self.get(layout.member(place)).is_present && self.counts(layout, set, place, stripe)
    }

    /// The same if its disk was there: what it holds will be believed when it comes back.
    pub(crate) fn counts(&self, layout: &Layout, set: u8, place: usize, stripe: u64) -> bool {
        let member = self.get(layout.member(place));
        layout.level() == RaidLevel::Raid0
            || match member.state {
                MemberState::UpToDate => true,
                MemberState::Stale => false,
                MemberState::Rebuilding { .. } => (set, stripe) < member.rebuilt,
            }
    }

    /// Whether a member is done without, or could be.
    pub(crate) fn is_done_without(&self, member: MemberIndex, layouts: &[Layout]) -> bool {
        self.get(member).state == MemberState::Stale || self.can_do_without(member, layouts)
    }

    /// Whether all redundant sets can do without a member: their other members hold everything. One
    /// that is in RAID 0 sets alone cannot be done without.
    pub(crate) fn can_do_without(&self, member: MemberIndex, layouts: &[Layout]) -> bool {
        let is_redundant = |layout: &Layout| {
            layout.level() != RaidLevel::Raid0 && layout.place_of(member).is_some()
        };
        layouts.iter().any(is_redundant)
            && layouts.iter().all(|layout| {
                let Some(place) = layout.place_of(member) else { return true };
                let holds_all = |place: usize| {
                    let other = self.get(layout.member(place));
                    other.is_present && other.state == MemberState::UpToDate
                };
                match layout.level() {
                    RaidLevel::Raid0 => true,
                    RaidLevel::Raid1 => layout.mirrors(place).any(|p| p != place && holds_all(p)),
                    RaidLevel::Raid5 => (0..layout.places()).all(|p| p == place || holds_all(p)),
                }
            })
    }
}

/// States of members that have changed and are not durable yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct StateChanges {
    /// To be written, in order.
    pub(crate) waiting: VecDeque<(MemberIndex, MemberState)>,
    /// Changes of the journal with some of them that are on their way. The next is made before the
    /// one before is durable.
    under_way: u32,
    /// Who is answered when all are durable.
    asked: Vec<RequestId>,
}

impl StateChanges {
    /// Whether nothing is left to be written. Until then nothing that relied on a change may be
    /// acknowledged.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.under_way == 0
    }

    /// Those that wait go to the journal.
    pub(crate) fn take(&mut self) -> VecDeque<(MemberIndex, MemberState)> {
        self.under_way += 1;
        std::mem::take(&mut self.waiting)
    }

    /// Somebody has asked for a change, and is answered behind all of them.
    pub(crate) fn answer_behind(&mut self, id: RequestId) {
        self.asked.push(id);
    }

    /// Those who are answered now: all are durable, or will not be.
    pub(crate) fn take_asked(&mut self, has_failed: bool) -> Vec<RequestId> {
        match has_failed || self.is_empty() {
            true => std::mem::take(&mut self.asked),
            false => Vec::new(),
        }
    }

    /// The journal has what was taken once, or has failed.
    pub(crate) fn written(&mut self) {
        self.under_way = self.under_way.checked_sub(1).expect("they were taken");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Uuid;
    use crate::volume::format::journal::{self, JournalItem};

    // The first record is on its way when another member fails:  taken, waiting, taken, written, written
    #[test]
    fn a_later_change_of_states_is_waited_for_too() {
        let mut changes = StateChanges::default();
        for member in 0..2 {
            changes.waiting.push_back((MemberIndex(member), MemberState::Stale));
            assert_eq!(changes.take().len(), 1);
        }
        changes.written();
        assert!(!changes.is_empty(), "the second record is not durable");
        changes.written();
        assert!(changes.is_empty());
    }

    // An older program says of an epoch nothing of who has its label: then nothing is known, and
    // nobody is refused for that.
    #[test]
    fn labels_of_an_older_program_are_not_missed() {
        let mut members = Members::new(&[MemberState::UpToDate; 2]);
        members.note_labels(7, Some(MemberMask(0b10)));
        assert_eq!(members.label_epochs(), [0, 7]);
        assert_eq!(members.labelled(7), MemberMask(0b10));
        members.note_labels(8, None);
        assert_eq!(members.label_epochs(), [0, 0]);
        let items = [JournalItem::Epoch { epoch: 8, labelled: None }];
        let old = journal::encode(Uuid([0x5a; 16]), 1, &items, &[]);
        assert!(
            old.bytes()[96 + 16..96 + 24].iter().all(|byte| *byte == 0),
            "as it was written ever"
        );
    }
}
