//! Writes and zeroes, down to the chunks of stripes that they change.
//!
//! ```text
//! 1. What comes in one go is gathered by extent, so that neighbours share the work on a stripe.
//! 2. An extent without a place gets one, and is written whole: with zeroes where nothing was
//!    written, because another may have been there before.
//! 3. Its lines go to the chunks of stripes that they lie in (stripe.rs). A RAID 0 set has no old
//!    lines to read and no journal.
//! 4. When all chunks are written, the write has ended. The TTABLE is not durable yet: the next
//!    flush makes it so.
//!      Crash here: the extent has no place, and reads as before. Nobody was told that it was
//!      durable.
//! 4b. With FUA, the entry of the TTABLE is made durable first. Without a log above the same for
//!     each entry: nothing would repeat the change if the process died.
//! ```
//! Zeroes that cover an extent take its place away; it stays taken until the journal knows, because
//! until then a crash brings the extent back. While step 2 is under way, and while an extent is
//! moved, other changes of it wait.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::super::attributes::Attributes;
use super::super::extents::{Entry, ExtentIndex, FoundPlace, Place};
use super::super::placement::RaidLevel;
use super::super::raid::SetLine;
use super::super::{UpperId, Volume};
use super::job::{CellChange, ChunkKey, Source};
use super::journal::Then;
use crate::io::IoError;
use crate::units::LINE_SIZE;

/// A part of a write that lies in one extent.
#[derive(Clone, Copy, Debug)]
struct Part {
    upper: UpperId,
    /// First line in the extent, and how many.
    first: u32,
    lines: u32,
    change: Change,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    /// From this byte of the upper buffer on.
    Data(usize),
    Zeroes,
    /// The whole extent.
    Unmap,
}

/// Names an [`ExtentWrite`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::volume) struct OpId(u64);

/// Changes of an extent that are carried out together.
struct ExtentWrite {
    extent: ExtentIndex,
    uppers: Vec<UpperId>,
    chunks_left: u32,
    is_new: bool,
    /// It fills up a doubted extent once more (fresh.rs), after so many doubts.
    doubts: u32,
    fua: bool,
    result: Result<(), IoError>,
}

/// Writes under way.
#[derive(Default)]
pub(in crate::volume) struct Writes {
    waiting: BTreeMap<ExtentIndex, VecDeque<Part>>,
    ops: BTreeMap<OpId, ExtentWrite>,
    next_op: u64,
    /// Extents that are written for the first time.
    new: BTreeSet<ExtentIndex>,
    /// Ops by extent.
    under_way: BTreeMap<ExtentIndex, u32>,
    /// The extent that is being moved: changes wait.
    pub(in crate::volume) moving: Option<ExtentIndex>,
}

impl Writes {
    pub(in crate::volume) fn is_new(&self, extent: ExtentIndex) -> bool {
        self.new.contains(&extent)
    }

    /// Whether an extent is being changed.
    pub(in crate::volume) fn is_changing(&self, extent: ExtentIndex) -> bool {
        self.under_way.contains_key(&extent)
    }

    /// Whether a change of an extent is under way, or waits.
    pub(in crate::volume) fn is_wanted(&self, extent: ExtentIndex) -> bool {
        self.waiting.contains_key(&extent) || self.is_changing(extent)
    }

    /// Whether anything of the volume is being changed, or waits to be.
    pub(in crate::volume) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.ops.is_empty()
    }
}

impl Volume {
    pub(in crate::volume) fn write(&mut self, upper: UpperId, offset: u64, length: u64) {
        self.cut(upper, offset, length, |at, _| Change::Data((at - offset) as usize));
    }

    /// Whole extents lose their places, also where the space was to be kept: the sets have room for
    /// all extents. After a crash the log does not know which zeroes were to free something, and
    /// the blocks that were freed before it would keep their places for ever.
    pub(in crate::volume) fn write_zeroes(&mut self, upper: UpperId, offset: u64, length: u64) {
        let extent_bytes = self.header.config.extent_bytes;
        self.cut(upper, offset, length, |_, bytes| match bytes == extent_bytes {
            true => Change::Unmap,
            false => Change::Zeroes,
        });
    }

    fn cut(
        &mut self,
        upper: UpperId,
        offset: u64,
        length: u64,
        change: impl Fn(u64, u64) -> Change,
    ) {
        let extent_bytes = self.header.config.extent_bytes;
        let mut at = offset;
        while at < offset + length {
            let end = ((at / extent_bytes + 1) * extent_bytes).min(offset + length);
            let part = Part {
                upper,
                first: (at % extent_bytes / LINE_SIZE) as u32,
                lines: ((end - at) / LINE_SIZE) as u32,
                change: change(at, end - at),
            };
            let extent = self.extent_of(at);
            self.ahead.changed(extent);
            self.change_comes(extent);
            self.uppers.get_mut(&upper).expect("under way").pieces += 1;
            self.writes.waiting.entry(extent).or_default().push_back(part);
            at = end;
        }
    }

    pub(in crate::volume) fn advance_writes(&mut self) -> bool {
        let ready: Vec<ExtentIndex> = self
            .writes
            .waiting
            .keys()
            .copied()
            .filter(|extent| {
                !self.writes.new.contains(extent) && self.writes.moving != Some(*extent)
            })
            .collect();
        let mut moved = false;
        for extent in ready {
            moved |= self.write_extent(extent);
        }
        moved
    }

    fn write_extent(&mut self, extent: ExtentIndex) -> bool {
        let mut parts = self.writes.waiting.remove(&extent).expect("it waits");
        // What takes the place away goes alone, and after what uses it.
        if parts[0].change == Change::Unmap {
            if self.writes.is_changing(extent) {
                self.writes.waiting.insert(extent, parts);
                return false;
            }
            let part = parts.pop_front().expect("looked at");
            self.unmap(extent);
            self.unmapped(extent, part.upper);
        } else {
            let end = parts.iter().position(|part| part.change == Change::Unmap);
            let end = end.unwrap_or(parts.len());
            if self.waits_for_a_place(extent, parts.iter().take(end)) {
                self.writes.waiting.insert(extent, parts);
                return false;
            }
            let together: Vec<Part> = parts.drain(..end).collect();
            self.write_parts(extent, &together);
        }
        if !parts.is_empty() {
            self.writes.waiting.insert(extent, parts);
        }
        true
    }

    fn unmap(&mut self, extent: ExtentIndex) {
        let entry = self.extents.get(extent);
        if entry.place.is_some() || entry.is_dying {
            let is_managed = entry.is_allocated();
            self.change_entry(extent, Entry { place: None, is_managed, is_dying: false, ..entry });
            self.counters.extents_unmapped += 1;
        }
    }

    /// Without a log above nothing repeats it when the process dies before a flush: then it ends
    /// when the journal says that nothing is there.
    fn unmapped(&mut self, extent: ExtentIndex, upper: UpperId) {
        if !self.is_unlogged || !self.uncommitted_extents.contains_key(&extent) {
            return self.piece_done(upper, Ok(()));
        }
        let op = self.begin_op(extent);
        let write = ExtentWrite {
            extent,
            uppers: vec![upper],
            chunks_left: 0,
            is_new: false,
            doubts: 0,
            fua: true,
            result: Ok(()),
        };
        self.writes.ops.insert(op, write);
        self.commit_place(extent, Then::Written(op));
    }

    /// Whether a write finds no place before the journal, or a reader, has given one back that was
    /// left. With a log above destaging comes again; without one there would be no space for
    /// whoever asked.
    fn waits_for_a_place<'a>(
        &self,
        extent: ExtentIndex,
        mut parts: impl Iterator<Item = &'a Part>,
    ) -> bool {
        let entry = self.extents.get(extent);
        let is_on_its_way = |left: &ExtentIndex| {
            self.queued_extents.contains_key(left) || self.flushes.place_of(*left).is_some()
        };
        self.is_unlogged
            && entry.place.is_none()
            && parts.any(|part| part.change != Change::Zeroes)
            && (!self.free_after_readers.is_empty() || self.left_places.keys().any(is_on_its_way))
            && self.look_for_place(entry.attributes, self.place_before(extent)).is_none()
    }

    fn begin_op(&mut self, extent: ExtentIndex) -> OpId {
        let op = OpId(self.writes.next_op);
        self.writes.next_op += 1;
        *self.writes.under_way.entry(extent).or_default() += 1;
        op
    }

    /// Steps 2 and 3.
    fn write_parts(&mut self, extent: ExtentIndex, parts: &[Part]) {
        let is_zeroed = parts.iter().all(|part| part.change == Change::Zeroes);
        if self.extents.get(extent).is_dying && !is_zeroed {
            self.dying_written(extent);
        }
        let entry = self.extents.get(extent);
        if entry.place.is_none() && is_zeroed {
            return parts.iter().for_each(|part| self.piece_done(part.upper, Ok(())));
        }
        let extent_lines = self.extent_lines() as u32;
        let mut lines: BTreeMap<u32, Source> = BTreeMap::new();
        let (place, is_new) = match entry.place {
            Some(place) => (place, false),
            None => {
                let near = self.place_before(extent);
                let Some(place) = self.find_place(entry.attributes, near) else {
                    let full = Err(IoError::NoSpace);
                    return parts.iter().for_each(|part| self.piece_done(part.upper, full));
                };
                lines.extend((0..extent_lines).map(|line| (line, Source::Zeroes)));
                self.change_entry(extent, Entry { place: Some(place), ..entry });
                self.counters.extents_mapped += 1;
                self.queue_if_misplaced(extent);
                (place, true)
            }
        };
        if is_new && !self.is_journaled(place.set) {
            self.fresh.insert(extent, u64::from(extent_lines));
        }
        let zeroes = (0..extent_lines).filter(|line| self.fresh.counts_as_zeroes(extent, *line));
        lines.extend(zeroes.map(|line| (line, Source::Zeroes)));
        for part in parts {
            self.fresh.write(extent, part.first, part.lines);
            for i in 0..part.lines {
                let source = match part.change {
                    Change::Data(offset) => {
                        Source::Upper(part.upper, offset + i as usize * LINE_SIZE as usize)
                    }
                    Change::Zeroes | Change::Unmap => Source::Zeroes,
                };
                lines.insert(part.first + i, source);
            }
        }
        let op = self.begin_op(extent);
        if is_new {
            self.writes.new.insert(extent);
        }
        // Without a log above nothing repeats it when the process dies before a flush: then its
        // place must be known.
        let fua =
            parts.iter().any(|part| self.uppers[&part.upper].fua) || is_new && self.is_unlogged;
        let chunks_left = self.change_lines(op, place, &lines);
        let uppers = parts.iter().map(|part| part.upper).collect();
        let doubts = self.fresh.doubts(extent);
        let write =
            ExtentWrite { extent, uppers, chunks_left, is_new, doubts, fua, result: Ok(()) };
        self.writes.ops.insert(op, write);
    }

    /// A place for an extent, where all of it can be written; the level falls back if that is
    /// nowhere on the wanted one.
    fn find_place(&mut self, attributes: Attributes, near: Option<Place>) -> Option<Place> {
        let found = loop {
            match self.look_for_place(attributes, near) {
                Some(found) => break found,
                None if self.give_a_replica_up() => {}
                None => return None,
            }
        };
        let place = self.extents.take(found);
        self.place_changed(place, true);
        Some(place)
    }

    fn look_for_place(&self, attributes: Attributes, near: Option<Place>) -> Option<FoundPlace> {
        let placement = &self.header.config.placement;
        let are_all_there = self.away() == 0;
        let is_usable = |place| are_all_there || self.is_usable(place);
        self.extents.find(attributes, near, placement, is_usable)
    }

    /// Nothing is there any more.
    pub(super) fn give_place_back(&mut self, place: Place) {
        self.place_changed(place, false);
        // What nobody can read there is no loss any more.
        self.note_readable(self.lines_of_place(place));
        self.extents.free(place);
    }

    /// Step 3; how many chunks are concerned.
    fn change_lines(&mut self, op: OpId, place: Place, lines: &BTreeMap<u32, Source>) -> u32 {
        let columns = self.chunk_columns(place.set);
        let first = place.first_line(self.header.config.extent_bytes).0;
        let mut chunks: BTreeMap<ChunkKey, Vec<CellChange>> = BTreeMap::new();
        for (line, source) in lines {
            let at = self.layout(place.set).locate(SetLine(first + u64::from(*line)));
            let chunk = at.line_in_unit / columns;
            let key = ChunkKey { set: place.set, stripe: at.stripe, chunk };
            let change = CellChange { row: at.unit, column: at.line_in_unit, source: *source };
            chunks.entry(key).or_default().push(change);
        }
        let count = chunks.len() as u32;
        for (key, changes) in chunks {
            self.want_write(key, op, changes);
        }
        count
    }

    /// Whether a write is to be durable when it has ended.
    pub(in crate::volume) fn is_fua(&self, op: OpId) -> bool {
        self.writes.ops[&op].fua
    }

    /// Step 4: a chunk of an op is written, or could not be.
    pub(in crate::volume) fn chunk_written(&mut self, op: OpId, result: Result<(), IoError>) {
        let write = self.writes.ops.get_mut(&op).expect("it has chunks left");
        write.chunks_left -= 1;
        write.result = write.result.and(result);
        if write.chunks_left > 0 {
            return;
        }
        let extent = write.extent;
        if write.result.is_ok() {
            self.fresh.filled_up(extent, write.doubts);
        }
        let write = &self.writes.ops[&op];
        if write.result.is_err() && write.is_new {
            // Nothing there counts: it goes back to having no place.
            let entry = self.extents.get(extent);
            self.change_entry(extent, Entry { place: None, ..entry });
        }
        let write = &self.writes.ops[&op];
        let is_uncommitted = self.uncommitted_extents.contains_key(&extent);
        let place = self.extents.get(extent).place;
        let has_found = place.is_some_and(|place| self.lost.has_found(self.lines_of_place(place)));
        if write.fua && write.result.is_ok() && (is_uncommitted || has_found) {
            // Step 4b. Its own lines are durable: they were written with FUA, or are in the
            // journal. Those of an earlier write that gave the extent its place need not be.
            let is_on_members =
                place.is_some_and(|place| !self.is_journaled(place.set)) || self.has_twin();
            if !write.is_new && is_on_members {
                return self.flush_for_write(op);
            }
            return self.commit_place(extent, Then::Written(op));
        }
        self.end_write(op, Ok(()));
    }

    /// It is over, also with its entry of the TTABLE where it had to wait for that.
    pub(in crate::volume) fn end_write(&mut self, op: OpId, result: Result<(), IoError>) {
        let write = self.writes.ops.remove(&op).expect("it ends once");
        if write.is_new {
            self.writes.new.remove(&write.extent);
        }
        let left = self.writes.under_way.get_mut(&write.extent).expect("counted");
        *left -= 1;
        if *left == 0 {
            self.writes.under_way.remove(&write.extent);
        }
        for upper in write.uppers {
            self.piece_done(upper, write.result.and(result));
        }
    }

    /// The place of the nearest mapped extent of the few before this one: what belongs together
    /// lies together.
    fn place_before(&self, extent: ExtentIndex) -> Option<Place> {
        const LOOK_BACK: u32 = 16;
        (extent.0.saturating_sub(LOOK_BACK)..extent.0)
            .rev()
            .find_map(|before| self.extents.get(ExtentIndex(before)).place)
    }

    /// Changes an entry of the TTABLE, to be committed later; a place that it leaves stays taken
    /// until then.
    pub(in crate::volume) fn change_entry(&mut self, extent: ExtentIndex, entry: Entry) {
        let before = self.extents.get(extent);
        if before == entry {
            return;
        }
        let packed = self.extents.packed(extent);
        self.uncommitted_extents.entry(extent).or_insert(packed);
        self.checkpoint.dirty(self.area.page_of_extent(extent.0.into()));
        self.extents.set(extent, entry);
        if !entry.is_dying && self.unlogged_frees.remove(extent).is_some() {
            // Its zeroes may have come down before any flush: the journal has it as it was before
            // it was freed.
            self.has_changes_of_requests = true;
        }
        if let Some(place) = before.place.filter(|place| entry.place != Some(*place)) {
            self.fresh.remove(extent);
            self.left_places.entry(extent).or_default().push(place);
        }
    }

    /// The journal has this entry now.
    pub(in crate::volume) fn extent_committed(&mut self, extent: ExtentIndex, packed: u64) {
        // A page that was written meanwhile had what was committed then.
        self.checkpoint.dirty(self.area.page_of_extent(extent.0.into()));
        if self.queued_extents.get(&extent) == Some(&packed) {
            self.queued_extents.remove(&extent);
        }
        if self.extents.packed(extent) == packed {
            self.uncommitted_extents.remove(&extent);
        } else {
            self.uncommitted_extents.insert(extent, packed);
        }
        let now = Entry::unpack(packed).and_then(|entry| entry.place);
        let current = self.extents.get(extent).place;
        if now == current {
            self.fresh.remove(extent);
        }
        // One that is on its way to the journal once more.
        let queued = self.queued_extents.get(&extent);
        let queued = queued.and_then(|packed| Entry::unpack(*packed)).and_then(|entry| entry.place);
        let looked_up = self.flushes.place_of(extent);
        let kept = [now, current, queued, looked_up];
        if let Some(left) = self.left_places.get_mut(&extent) {
            let gone: Vec<Place> =
                left.extract_if(.., |place| !kept.contains(&Some(*place))).collect();
            if left.is_empty() {
                self.left_places.remove(&extent);
            }
            for place in gone {
                self.free_place(place);
            }
        }
    }

    /// Another extent may have the place, when nobody reads it any more for the one that has left.
    pub(super) fn free_place(&mut self, place: Place) {
        match self.readers.contains_key(&place) {
            true => {
                self.free_after_readers.insert(place);
            }
            false => self.give_place_back(place),
        }
    }

    /// A piece is read from a place.
    pub(in crate::volume) fn add_reader(&mut self, place: Place) {
        *self.readers.entry(place).or_default() += 1;
    }

    /// It has been read.
    pub(in crate::volume) fn drop_reader(&mut self, place: Place) {
        let left = self.readers.get_mut(&place).expect("it was counted");
        *left -= 1;
        if *left == 0 {
            self.readers.remove(&place);
            if self.free_after_readers.remove(&place) {
                self.give_place_back(place);
            }
        }
    }

    /// Whether a level keeps a journal of what is written to it.
    pub(in crate::volume) fn is_journaled(&self, set: u8) -> bool {
        self.layout(set).level() != RaidLevel::Raid0
    }
}

impl Volume {
    /// Writes all lines of an extent to a place that is not its own yet; durable, if it is to
    /// become that.
    pub(super) fn write_whole_extent(&mut self, upper: UpperId, extent: ExtentIndex, place: Place) {
        let fua = self.uppers[&upper].fua;
        let lines: BTreeMap<u32, Source> = (0..self.extent_lines() as u32)
            .map(|line| (line, Source::Upper(upper, line as usize * LINE_SIZE as usize)))
            .collect();
        let op = OpId(self.writes.next_op);
        self.writes.next_op += 1;
        self.uppers.get_mut(&upper).expect("under way").pieces += 1;
        *self.writes.under_way.entry(extent).or_default() += 1;
        let chunks_left = self.change_lines(op, place, &lines);
        let uppers = vec![upper];
        let write = ExtentWrite {
            extent,
            uppers,
            chunks_left,
            is_new: false,
            doubts: 0,
            fua,
            result: Ok(()),
        };
        self.writes.ops.insert(op, write);
    }
}
