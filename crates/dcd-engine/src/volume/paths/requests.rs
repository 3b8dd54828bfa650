//! Requests about what blocks are, and about members (DHIS sections 3.1 and 3.2).
//!
//! Pointers and allocations change the tables at once and are durable with the next flush, like
//! data. Attributes and members' states are durable when the request is answered.
//!
//! A block is freed in this order:
//!
//! ```text
//! 1. It is dying: nobody's, and not to be allocated. The engine is told to discard it.
//! 2. The discard is durable in the log.
//!      Crash here: the block is allocated, and nothing points to it. The next collection frees it.
//! 3. The journal has it as dying, and the flush is answered that has waited for this.
//!      Before step 2 a crash could leave a dying block with no discard behind it, and nobody could
//!      tell what the log has for it: what it held before, which is to go, or what somebody has
//!      written there since, as to a plain block.
//! 4. The zeroes come down: it has no place any more, and is not dying. Or somebody's data comes
//!    down, and it is a plain block (write.rs).
//! ```

use super::super::attributes::{AttributeChange, Attributes};
use super::super::extents::{Entry, ExtentIndex, Place};
use super::super::format::journal::JournalItem;
use super::super::pointers::PointerError;
use super::super::{Volume, VolumeOutput, VolumePhase};
use super::journal::Then;
use crate::io::{RequestId, VolumeAnswer, VolumeError, VolumeRequest};
use crate::units::{BLOCK_SIZE, Lba, LbaRange, MemberIndex, Time};

/// What is on its way down to a volume, which only those above it know.
pub(crate) struct Above<'a> {
    /// Whether somebody has written to some of these blocks.
    pub(crate) has_data: &'a dyn Fn(LbaRange) -> bool,
    /// The same, or they are to become zeroes.
    pub(crate) has_changes: &'a dyn Fn(LbaRange) -> bool,
}

impl Volume {
    /// Takes a request. What is answered comes as an output.
    ///
    /// # Panics
    ///
    /// While the volume is being opened.
    pub(crate) fn request(
        &mut self,
        now: Time,
        id: RequestId,
        request: VolumeRequest,
        above: &Above<'_>,
    ) {
        assert!(self.phase == VolumePhase::Running, "requests come when the volume is open");
        self.now = now;
        let result = match request {
            VolumeRequest::SetAttributes { ranges, change } => {
                return self.set_attributes(id, &ranges, change);
            }
            VolumeRequest::Allocate { near, attributes } => self
                .allocate_block(near, attributes, above)
                .map(|block| Some(VolumeAnswer::Allocated(block))),
            VolumeRequest::CreatePointer { from, to } => {
                self.create_pointer(from, to).map(|()| None)
            }
            VolumeRequest::DeletePointer { from, to } => {
                self.delete_pointer(from, to).map(|()| None)
            }
            VolumeRequest::SetPointers { pointers } => return self.set_pointers(id, pointers),
            VolumeRequest::Collect => Ok(Some(VolumeAnswer::Collected(self.collect(above)))),
            VolumeRequest::FailMember { member } => return self.fail_member(id, member),
            VolumeRequest::Rebuild { member } => self.start_rebuild(member).map(|()| None),
            VolumeRequest::Scrub => self.start_scrub(false).map(|()| None),
            VolumeRequest::ResumeScrub => self.start_scrub(true).map(|()| None),
            VolumeRequest::CancelWork => {
                self.cancel_work();
                Ok(None)
            }
        };
        self.answer(id, result);
    }

    /// Whether allocations or pointers have changed that no flush has made durable.
    pub(crate) fn has_changes_of_requests(&self) -> bool {
        self.has_changes_of_requests || self.commits_under_way > 0
    }

    /// Makes them durable; an output tells when they are.
    pub(crate) fn commit_requests(&mut self, now: Time, id: RequestId) {
        self.now = now;
        self.has_changes_of_requests = false;
        self.commits_under_way += 1;
        let mut items: Vec<JournalItem> = self
            .uncommitted_pointers
            .keys()
            .map(|slot| JournalItem::Pointer {
                slot: (*slot).into(),
                packed: self.pointers.packed(*slot),
            })
            .collect();
        let changed = self.uncommitted_extents.keys().copied();
        let extents = self.entries_without_new_places(changed);
        items.extend(
            extents
                .into_iter()
                .map(|(extent, packed)| JournalItem::Extent { extent: extent.0.into(), packed }),
        );
        if items.is_empty() {
            // Behind what an earlier flush is making durable.
            items.push(self.epoch_item());
        }
        self.journal_items(items, Then::Committed(id));
    }

    pub(super) fn committed(&mut self, id: RequestId, result: Result<(), VolumeError>) {
        self.commits_under_way -= 1;
        self.outputs.push_back(VolumeOutput::Committed { id, result });
    }

    /// Entries that may be durable at once: with the place that the journal has, or will have
    /// before them, because a new one waits for the flush that makes its lines durable.
    fn entries_without_new_places(
        &self,
        extents: impl Iterator<Item = ExtentIndex>,
    ) -> Vec<(ExtentIndex, u64)> {
        extents
            .filter_map(|extent| {
                let committed = self.uncommitted_extents.get(&extent)?;
                let queued = self.queued_extents.get(&extent);
                let place = Entry::unpack(*queued.unwrap_or(committed))?.place;
                let packed = self.packed_for_journal(extent, place);
                // The same as what is on its way is waited for.
                (queued.is_some() || packed != *committed).then_some((extent, packed))
            })
            .collect()
    }

    /// An entry as the journal may have it, but for the place: what is freed is dying only behind
    /// its discard.
    pub(super) fn packed_for_journal(&self, extent: ExtentIndex, place: Option<Place>) -> u64 {
        let entry = self.extents.get(extent);
        let is_logged = !self.unlogged_frees.contains(extent);
        Entry { place, is_dying: entry.is_dying && is_logged, ..entry }.pack()
    }

    fn set_attributes(&mut self, id: RequestId, ranges: &[LbaRange], change: AttributeChange) {
        if let Some(pair) = change.set.contradiction() {
            return self.answer(id, Err(VolumeError::Contradiction(pair)));
        }
        let blocks = self.header.config.blocks();
        let is_within = |range: &LbaRange| {
            range.start.0.checked_add(range.blocks).is_some_and(|end| end <= blocks)
        };
        if let Some(range) = ranges.iter().find(|range| !is_within(range)) {
            return self.answer(id, Err(VolumeError::BadBlock(range.start)));
        }
        let mut changed = Vec::new();
        for range in ranges.iter().filter(|range| range.blocks > 0) {
            for extent in self.extents_of(range.start.byte(), range.blocks * BLOCK_SIZE) {
                let entry = self.extents.get(extent);
                let attributes = entry.attributes.changed(change);
                if attributes != entry.attributes {
                    self.change_attributes(extent, attributes);
                    changed.push(extent);
                }
            }
        }
        let entries = self.entries_without_new_places(changed.into_iter());
        match entries.is_empty() {
            true => self.answer(id, Ok(None)),
            false => self.commit_extents(entries, Then::Answer(id, None)),
        }
    }

    /// Also what the blocks inherit that it points to.
    fn change_attributes(&mut self, extent: ExtentIndex, attributes: Attributes) {
        let entry = self.extents.get(extent);
        self.change_entry(extent, Entry { attributes, ..entry });
        self.queue_if_misplaced(extent);
        let mut to_follow: Vec<ExtentIndex> = self.pointers.outgoing(extent).collect();
        let inherited = attributes.and(Attributes::INHERITED);
        while let Some(extent) = to_follow.pop() {
            let entry = self.extents.get(extent);
            let attributes = inherited.or(entry.attributes.without(Attributes::INHERITED));
            // One that has them already ends the way, so that cycles do.
            if attributes != entry.attributes {
                self.change_entry(extent, Entry { attributes, ..entry });
                self.queue_if_misplaced(extent);
                to_follow.extend(self.pointers.outgoing(extent));
            }
        }
    }

    fn allocate_block(
        &mut self,
        near: Option<Lba>,
        attributes: Attributes,
        above: &Above<'_>,
    ) -> Result<Lba, VolumeError> {
        if let Some(pair) = attributes.contradiction() {
            return Err(VolumeError::Contradiction(pair));
        }
        let near = near.map(|block| self.extent_at(block)).transpose()?;
        // The sets hold every extent that has a number: its place is chosen with the first write,
        // when more is known of it.
        let extent = self.find_unused(near, above).ok_or(VolumeError::NoRoom)?;
        self.change_entry(extent, Entry { attributes, is_managed: true, ..Entry::default() });
        self.counters.blocks_allocated += 1;
        self.has_changes_of_requests = true;
        Ok(self.block_of(extent))
    }

    /// An extent that has no place, is not allocated, and is not about to be written.
    fn find_unused(&self, near: Option<ExtentIndex>, above: &Above<'_>) -> Option<ExtentIndex> {
        let first = self.extents.find_unmapped(near)?;
        let mut found = first;
        loop {
            let has_data = (above.has_data)(self.blocks_of(found));
            if !has_data && !self.writes.is_wanted(found) {
                return Some(found);
            }
            found = self.extents.find_unmapped(Some(found)).filter(|found| *found != first)?;
        }
    }

    fn managed(&self, block: Lba) -> Result<ExtentIndex, VolumeError> {
        let extent = self.extent_at(block)?;
        match self.extents.get(extent).is_allocated() {
            true => Ok(extent),
            false => Err(VolumeError::NotAllocated(block)),
        }
    }

    fn create_pointer(&mut self, from: Lba, to: Lba) -> Result<(), VolumeError> {
        let (source, target) = (self.managed(from)?, self.managed(to)?);
        let slot = self.pointers.create(source, target).map_err(|error| match error {
            PointerError::PointerExists => VolumeError::PointerExists { from, to },
            PointerError::NoPointer => VolumeError::NoPointer { from, to },
            PointerError::Full => VolumeError::NoPointerRoom,
        })?;
        self.pointer_changed(slot, 0);
        let entry = self.extents.get(source);
        // Dynamic relocation: what points is metadata (section 3.1.3).
        if !entry.attributes.contains(Attributes::METADATA) {
            let attributes = entry.attributes.or(Attributes::METADATA);
            self.change_entry(source, Entry { attributes, ..entry });
            self.queue_if_misplaced(source);
        }
        let inherited = self.extents.get(source).attributes.and(Attributes::INHERITED);
        if !inherited.is_empty() {
            let own = self.extents.get(target).attributes;
            let change = AttributeChange { set: inherited, clear: Attributes::NONE };
            self.change_attributes(target, own.changed(change));
        }
        Ok(())
    }

    fn delete_pointer(&mut self, from: Lba, to: Lba) -> Result<(), VolumeError> {
        let (source, target) = (self.extent_at(from)?, self.extent_at(to)?);
        self.remove_pointer(source, target).map_err(|()| VolumeError::NoPointer { from, to })?;
        let mut unreached = vec![target];
        let mut freed = Vec::new();
        while let Some(extent) = unreached.pop() {
            let entry = self.extents.get(extent);
            let is_pointed_to = self.pointers.incoming_count(extent) > 0;
            let is_kept = is_pointed_to
                || !entry.is_allocated()
                || entry.attributes.contains(Attributes::ROOT);
            if is_kept {
                continue;
            }
            for next in self.pointers.outgoing(extent).collect::<Vec<_>>() {
                // It was listed.
                let _ = self.remove_pointer(extent, next);
                unreached.push(next);
            }
            freed.push(extent);
        }
        self.free_blocks(freed);
        Ok(())
    }

    pub(super) fn remove_pointer(&mut self, from: ExtentIndex, to: ExtentIndex) -> Result<(), ()> {
        let slot = self.pointers.find(from, to).ok_or(())?;
        let before = self.pointers.packed(slot);
        self.pointers.delete(from, to).map_err(|_| ())?;
        self.pointer_changed(slot, before);
        Ok(())
    }

    fn pointer_changed(&mut self, slot: u32, before: u64) {
        self.has_changes_of_requests = true;
        self.uncommitted_pointers.entry(slot).or_insert(before);
        self.checkpoint.dirty(self.area.page_of_pointer(slot.into()));
    }

    /// The journal has this slot now.
    pub(in crate::volume) fn pointer_committed(&mut self, slot: u32, packed: u64) {
        self.checkpoint.dirty(self.area.page_of_pointer(slot.into()));
        if self.pointers.packed(slot) == packed {
            self.uncommitted_pointers.remove(&slot);
        } else {
            self.uncommitted_pointers.insert(slot, packed);
        }
    }

    /// Everything that no chain of pointers from a ROOT leads to.
    fn collect(&mut self, above: &Above<'_>) -> u64 {
        let known = self.extents.known();
        let roots: Vec<ExtentIndex> = known
            .clone()
            .filter(|extent| self.extents.get(*extent).attributes.contains(Attributes::ROOT))
            .collect();
        let managed = known.filter(|extent| {
            let entry = self.extents.get(*extent);
            entry.is_allocated() || entry.is_dying && self.is_left_behind(*extent, above)
        });
        let unreachable = self.pointers.unreachable(roots.into_iter(), managed);
        let lost: Vec<ExtentIndex> = unreachable
            .into_iter()
            .filter(|extent| !self.extents.get(*extent).attributes.contains(Attributes::ROOT))
            .collect();
        for extent in &lost {
            for next in self.pointers.outgoing(*extent).collect::<Vec<_>>() {
                let _ = self.remove_pointer(*extent, next);
            }
        }
        let is_allocated = |extent: &&ExtentIndex| self.extents.get(**extent).is_allocated();
        let count = lost.iter().filter(is_allocated).count() as u64;
        self.free_blocks(lost);
        count
    }

    /// Whether nothing is on its way to a dying block: its zeroes have come down in pieces. What is
    /// on its way may be what somebody has written there since, as to a plain block, and is not to
    /// be discarded.
    fn is_left_behind(&self, extent: ExtentIndex, above: &Above<'_>) -> bool {
        !(above.has_changes)(self.blocks_of(extent)) && !self.writes.is_wanted(extent)
    }

    /// Step 1. The engine discards them, so that they leave the log and all copies in the order of
    /// everything else.
    fn free_blocks(&mut self, freed: Vec<ExtentIndex>) {
        for extent in freed {
            let entry = self.extents.get(extent);
            self.counters.blocks_freed += u64::from(entry.is_allocated());
            self.change_entry(extent, Entry { is_dying: true, ..entry });
            if !entry.is_dying {
                self.unlogged_frees.insert(extent, self.discards_made);
            }
            self.discards_made += 1;
            self.has_changes_of_requests = true;
            self.outputs.push_back(VolumeOutput::Discard(self.blocks_of(extent)));
        }
    }

    /// Step 2, of all discards with lower numbers.
    pub(crate) fn discards_durable(&mut self, before: u64) {
        while let Some((extent, free)) = self.unlogged_frees.pop_before(before) {
            self.has_changes_of_requests = true;
            if free.has_data {
                // What it held before goes with the discard, and what is newer stays.
                self.become_plain(extent);
            }
        }
    }

    /// There was no room for a discard: the block is as if it had not been freed, and the next
    /// collection tries again.
    pub(crate) fn discard_failed(&mut self, number: u64) {
        if let Some(extent) = self.unlogged_frees.find(number) {
            self.unlogged_frees.remove(extent);
            let entry = self.extents.get(extent);
            self.change_entry(extent, Entry { is_dying: false, ..entry });
        }
    }

    /// Data has come down to a dying block.
    pub(super) fn dying_written(&mut self, extent: ExtentIndex) {
        match self.unlogged_frees.get_mut(extent) {
            Some(free) => free.has_data = true,
            None => self.become_plain(extent),
        }
    }

    /// Somebody uses a dying block as a plain one: no collection is to take it for what was freed.
    fn become_plain(&mut self, extent: ExtentIndex) {
        let entry = self.extents.get(extent);
        self.change_entry(extent, Entry { is_managed: false, is_dying: false, ..entry });
    }

    /// Whether the journal waits for discards.
    pub(crate) fn has_unlogged_frees(&self) -> bool {
        !self.unlogged_frees.is_empty()
    }

    fn fail_member(&mut self, id: RequestId, member: MemberIndex) {
        if usize::from(member.0) >= self.members.len() {
            return self.answer(id, Err(VolumeError::NoMember(member)));
        }
        if !self.do_without(member) {
            return self.answer(id, Err(VolumeError::LastCopy(member)));
        }
        // After a crash the member would count as up to date again.
        match self.state_changes.is_empty() {
            true => self.answer(id, Ok(None)),
            false => self.state_changes.answer_behind(id),
        }
    }
}
