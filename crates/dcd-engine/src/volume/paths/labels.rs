//! Labels of the end: with the next epoch, so that a disk as it was while the volume was served is
//! told from what it is now. Those of the start tell disks as they were before ([`super::open`]).
//!
//! ```text
//! 1. The engine asks for nothing more, and the states of members are durable: a member that has
//!    missed something must not get a label before that is known. If nothing was written to members
//!    since the start there is nothing to tell apart, and the end is here.
//! 2. Labels with the next epoch, flushed: of each member the copy that is not its newest.
//!      Crash here: labels are one epoch ahead of the journal, as in step 8 of an opening.
//! 3. The epoch is recorded, with the members that have its label.
//!      Before step 2 members would look like older copies of themselves after a crash.
//! ```
//! A member that does not take its label is done without, where that can be, as at a start; else
//! its own label stays the newest that is known of it.

use std::collections::BTreeSet;

use super::super::format::journal::JournalItem;
use super::super::format::label::{MemberLabel, TwinLabel};
use super::super::members::Member;
use super::super::{Purpose, Volume, VolumeOutput};
use super::journal::Then;
use crate::io::{Device, IoError, IoOperation};
use crate::units::MemberIndex;

/// What an I/O is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::volume) enum Step {
    Write,
    Flush,
}

/// Where the labels of the end stand.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum State {
    #[default]
    Idle,
    Wanted,
    Writing(Step),
    Recording,
}

/// The labels of the end.
#[derive(Default)]
pub(in crate::volume) struct Labels {
    state: State,
    ios_left: u32,
    /// Members that have taken theirs up to here.
    taken: BTreeSet<MemberIndex>,
}

impl Volume {
    /// The engine asks for nothing more; an output tells when the members have their labels.
    pub(crate) fn close(&mut self) {
        if self.labels.state == State::Idle {
            self.labels.state = State::Wanted;
        }
    }

    pub(in crate::volume) fn advance_labels(&mut self) -> bool {
        if self.labels.state != State::Wanted
            || !self.state_changes.is_empty()
            || !self.is_twin_quiet()
            || self.growing.is_some()
            || self.is_replacing()
            || self.spares.is_any_under_way()
        {
            return false;
        }
        let present = self.members.iter().filter(|(_, member)| member.is_present);
        self.labels.taken = present.map(|(index, _)| index).collect();
        let has_written = self.counters.member_writes > 0;
        if !has_written || self.journal.error.is_some() || self.labels.taken.is_empty() {
            self.closed();
            return true;
        }
        self.start_label_ios(Step::Write);
        true
    }

    fn start_label_ios(&mut self, step: Step) {
        self.labels.state = State::Writing(step);
        let twin = if step == Step::Write { self.twin_label_to_write() } else { None };
        self.labels.ios_left = self.labels.taken.len() as u32;
        let epoch = self.epoch + 1;
        for member in self.labels.taken.clone() {
            let (device, purpose) = (Device::Member(member), Purpose::Label(step, member));
            match step {
                Step::Write => {
                    let label = self.label_of(member, epoch, twin);
                    let offset = self.members.label_offset(member);
                    self.start_write(device, offset, label.encode(), false, purpose);
                }
                Step::Flush => self.start_io(device, IoOperation::Flush, purpose),
            }
        }
    }

    pub(in crate::volume) fn label_io_done(
        &mut self,
        step: Step,
        member: MemberIndex,
        result: Result<(), IoError>,
    ) {
        if result.is_err() {
            self.labels.taken.remove(&member);
            self.members.get_mut(member).has_old_label = true;
            self.do_without(member);
        }
        self.labels.ios_left -= 1;
        match (self.labels.ios_left, step) {
            (1.., _) => {}
            (0, _) if self.labels.taken.is_empty() => self.closed(),
            (0, Step::Write) => self.start_label_ios(Step::Flush),
            (0, Step::Flush) => self.record_labels(),
        }
    }

    /// Step 3.
    fn record_labels(&mut self) {
        self.labels.state = State::Recording;
        self.epoch += 1;
        for member in self.labels.taken.clone() {
            let member = self.members.get_mut(member);
            member.label_epoch = self.epoch;
            member.label_copy = 1 - member.label_copy;
        }
        let epoch = self.epoch_item();
        self.journal_items(vec![epoch], Then::Labelled);
    }

    /// The journal has the epoch, or takes nothing any more: then labels are one ahead, as after a
    /// crash.
    pub(super) fn labels_recorded(&mut self) {
        self.closed();
    }

    fn closed(&mut self) {
        self.labels.state = State::Idle;
        self.outputs.push_back(VolumeOutput::Closed);
    }

    /// Whether labels of the end are to be written, or are being written.
    pub(super) fn is_closing(&self) -> bool {
        self.labels.state != State::Idle
    }

    /// Whether they are being written.
    pub(super) fn are_end_labels_under_way(&self) -> bool {
        matches!(self.labels.state, State::Writing(_))
    }

    /// A label for a member, on the disk that it is on.
    pub(super) fn label_of(
        &self,
        member: MemberIndex,
        epoch: u64,
        twin: Option<TwinLabel>,
    ) -> MemberLabel {
        let Member { disk, standing, .. } = *self.members.get(member);
        MemberLabel { epoch, twin, disk, standing, ..MemberLabel::first(self.header.uuid, member) }
    }

    /// The newest epoch, and who has its label.
    pub(super) fn epoch_item(&self) -> JournalItem {
        JournalItem::Epoch { epoch: self.epoch, labelled: Some(self.members.labelled(self.epoch)) }
    }
}
