//! Flushes.
//!
//! ```text
//! 1. All members that were written since their last flush are flushed. What was acknowledged of
//!    redundant sets is durable in the journal already; what counts here are RAID 0 sets.
//! 2. Entries of the TTABLE that have changed are written to the journal.
//!      Before step 1 they could outlive the lines they speak of, and show what another extent had
//!      left there. So are lost lines that were written, before the entries: in a new place they
//!      would be lost still.
//! ```
//! Flushes that come meanwhile share the next round.

use std::collections::BTreeSet;

use super::super::extents::{Entry, ExtentIndex, Place};
use super::super::format::journal::JournalItem;
use super::super::lost::LineRun;
use super::super::placement::RaidLevel;
use super::super::{Purpose, UpperId, Volume};
use super::journal::Then;
use super::write::OpId;
use crate::io::{Device, IoError, IoOperation};
use crate::units::MemberIndex;

/// Who flushes a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::volume) enum For {
    Flush,
    Checkpoint,
    Rebuild,
    Twin,
}

/// Flushes wanted and under way.
#[derive(Default)]
pub(in crate::volume) struct Flushes {
    waiting: Vec<UpperId>,
    under_way: Vec<UpperId>,
    /// Writes with FUA that wait for one too.
    ops_waiting: Vec<OpId>,
    ops_under_way: Vec<OpId>,
    members_left: u32,
    /// Extents to be committed in step 2, with the places that they had in step 1.
    extents: Vec<(ExtentIndex, Option<Place>)>,
    pointers: Vec<u32>,
    /// Lost lines that were written before step 1.
    found: Vec<LineRun>,
    /// Extents of which a newer place has gone to the journal since step 1.
    pub(super) overtaken: BTreeSet<ExtentIndex>,
    result: Option<IoError>,
    /// A flush that nobody of the engine waited for has lost what a RAID 0 set was told.
    lost_raid0: bool,
}

impl Flushes {
    /// The place of an extent that the flush under way is going to commit.
    pub(super) fn place_of(&self, extent: ExtentIndex) -> Option<Place> {
        self.extents.iter().find(|(known, _)| *known == extent)?.1
    }
}

impl Volume {
    pub(in crate::volume) fn flush(&mut self, upper: UpperId) {
        self.flushes.waiting.push(upper);
    }

    /// The same for a write with FUA.
    pub(super) fn flush_for_write(&mut self, op: OpId) {
        self.flushes.ops_waiting.push(op);
    }

    pub(in crate::volume) fn advance_flushes(&mut self) -> bool {
        let flushes = &mut self.flushes;
        let is_wanted = !flushes.waiting.is_empty() || !flushes.ops_waiting.is_empty();
        let is_under_way = !flushes.under_way.is_empty() || !flushes.ops_under_way.is_empty();
        if !is_wanted || is_under_way {
            return false;
        }
        flushes.under_way = std::mem::take(&mut flushes.waiting);
        flushes.ops_under_way = std::mem::take(&mut flushes.ops_waiting);
        self.flushes.result = None;
        // What the journal has already is not written again: of a block that was freed it has the
        // place until its zeroes are durable, and thousands may be on their way.
        // One that has left a place is: that place is free when the journal says so.
        let is_known = |extent: &ExtentIndex, known: u64, place: Option<Place>| {
            !self.queued_extents.contains_key(extent)
                && !self.left_places.contains_key(extent)
                && self.packed_for_journal(*extent, place) == known
        };
        let wanted = self.uncommitted_extents.iter();
        // An extent that is being written for the first time has no place yet, as far as anybody
        // was told.
        self.flushes.extents = wanted
            .map(|(extent, known)| {
                let place = self.extents.get(*extent).place;
                let packed = self.packed_for_journal(*extent, place);
                let is_queued = self.queued_extents.get(extent) == Some(&packed);
                let is_written = !self.writes.is_new(*extent) && self.fresh.doubts(*extent) == 0;
                (*extent, *known, place.filter(|_| is_queued || is_written))
            })
            .filter(|(extent, known, place)| !is_known(extent, *known, *place))
            .map(|(extent, _, place)| (extent, place))
            .collect();
        self.flushes.found = self.lost.found();
        self.flushes.pointers = self.uncommitted_pointers.keys().copied().collect();
        self.flushes.overtaken.clear();
        self.flushes.members_left = self.flush_members(For::Flush);
        if self.flushes.members_left == 0 {
            self.commit_flush();
        }
        true
    }

    /// Flushes the members that need it; how many.
    pub(super) fn flush_members(&mut self, what: For) -> u32 {
        let dirty: Vec<(MemberIndex, u64)> = self
            .members
            .iter()
            .filter(|(_, member)| member.writes > member.flushed && member.is_present)
            .map(|(index, member)| (index, member.writes))
            .collect();
        for (index, covers) in &dirty {
            let purpose = Purpose::MemberFlush(what, *covers, *index);
            self.start_io(Device::Member(*index), IoOperation::Flush, purpose);
        }
        dirty.len() as u32
    }

    /// `covers`: writes that had ended when it began.
    pub(in crate::volume) fn member_flushed(
        &mut self,
        what: For,
        covers: u64,
        index: MemberIndex,
        result: Result<(), IoError>,
    ) {
        let member = self.members.get(index);
        let had_raid0 = member.newest_raid0 > member.flushed;
        // What the others hold too is not lost with it.
        let is_lost = result.is_err() && !self.do_without(index);
        let error = result.err().filter(|_| is_lost || had_raid0);
        // Also after an error that was heard of: a later flush would tell nothing new. But lines of
        // redundant sets may still come to be durable with the next, and until then the journal
        // keeps them. A member that has none is not waited for: all else would fail with it for
        // ever.
        let is_for_redundant = self
            .layouts
            .iter()
            .any(|layout| layout.level() != RaidLevel::Raid0 && layout.place_of(index).is_some());
        let member = self.members.get_mut(index);
        if !is_lost || !is_for_redundant {
            member.flushed = member.flushed.max(covers);
        }
        if error.is_some() && had_raid0 {
            self.doubt_fresh(index);
            self.doubt_found(index);
        }
        // A flush of the engine must hear of it, because it has the log destage again what it has
        // not flushed: a write with FUA that waits for a flush of its own does not.
        let is_heard = what == For::Flush && !self.flushes.under_way.is_empty();
        let is_untold = error.is_some() && !is_heard;
        match what {
            For::Flush => {
                self.flushes.result = self.flushes.result.or(error);
                self.flushes.members_left -= 1;
                if self.flushes.members_left == 0 {
                    self.commit_flush();
                }
            }
            For::Checkpoint => self.checkpoint_member_flushed(is_lost),
            For::Rebuild => self.rebuilt_flushed(result),
            For::Twin => self.twin_member_flushed(is_lost),
        }
        self.flushes.lost_raid0 |= is_untold;
    }

    /// A member may have lost the zeroes that extents were filled up with. Those on their way to
    /// the journal were flushed before.
    fn doubt_fresh(&mut self, member: MemberIndex) {
        let lines = self.extent_lines();
        let Volume { fresh, extents, queued_extents, layouts, header, .. } = self;
        let extent_bytes = &header.config.extent_bytes;
        fresh.doubt(|extent| {
            let Some(place) = extents.get(extent).place else { return false };
            let queued = queued_extents.get(&extent).and_then(|packed| Entry::unpack(*packed));
            let is_queued = queued.is_some_and(|entry| entry.place == Some(place));
            let layout = &layouts[usize::from(place.set)];
            !is_queued && layout.has_lines_on(place.first_line(*extent_bytes), lines, member)
        });
    }

    /// The same of lines that were lost and have been written: they are lost again, until somebody
    /// writes them once more.
    fn doubt_found(&mut self, member: MemberIndex) {
        let Volume { lost, layouts, .. } = self;
        lost.doubt(|set, line| layouts[usize::from(set)].has_lines_on(line, 1, member));
    }

    /// Step 2.
    fn commit_flush(&mut self) {
        if self.flushes.lost_raid0 {
            self.flushes.result = self.flushes.result.or(Some(IoError::Failed));
            // A round that is for writes with FUA alone tells the engine nothing.
            self.flushes.lost_raid0 = self.flushes.under_way.is_empty();
        }
        let mut items: Vec<JournalItem> = Vec::new();
        let found = std::mem::take(&mut self.flushes.found);
        if self.flushes.result.is_none() {
            for run in found {
                items.extend(self.items_of_found(run));
            }
            // Looked up now, but for the place: one that it got since may have lines that are not
            // durable.
            for (extent, mut place) in std::mem::take(&mut self.flushes.extents) {
                if self.flushes.overtaken.contains(&extent) {
                    // The newer place is durable, or on its way: then the flush waits behind it.
                    let queued = self.queued_extents.get(&extent);
                    let Some(entry) = queued.and_then(|packed| Entry::unpack(*packed)) else {
                        continue;
                    };
                    place = entry.place;
                }
                let packed = self.packed_for_journal(extent, place);
                items.push(JournalItem::Extent { extent: extent.0.into(), packed });
            }
            for slot in std::mem::take(&mut self.flushes.pointers) {
                let packed = self.pointers.packed(slot);
                items.push(JournalItem::Pointer { slot: slot.into(), packed });
            }
        }
        match items.is_empty() {
            true => self.flush_committed(Ok(())),
            false => self.journal_items(items, Then::Flushed),
        }
    }

    pub(super) fn flush_committed(&mut self, result: Result<(), IoError>) {
        let result = match self.flushes.result.take() {
            Some(error) => Err(error),
            None => result,
        };
        for upper in std::mem::take(&mut self.flushes.under_way) {
            self.piece_done(upper, result);
        }
        for op in std::mem::take(&mut self.flushes.ops_under_way) {
            self.end_write(op, result);
        }
    }
}
