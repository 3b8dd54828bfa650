//! What is written again while its record is being filled takes no new slot: nothing of that record
//! is durable, so nobody can tell. The slot cannot be written over in place, for what it holds has
//! been acknowledged, and must be whole if this process dies in the middle (C4):
//!
//! ```text
//! 1. The new lines are put behind the entries and slots that count.   A death: they do not count.
//! 2. The mark says that they replace what the record has of them.     A death: the start does 3.
//! 3. Their slots and entries are copied over the old ones.            A death: the start does it again.
//! 4. The mark counts the entries as they are now.
//! ```
//! A request is replaced whole or not at all (C14). Behind an entry without data nothing before it
//! is replaced: zeroes would cover what is newer than they are.

use super::{Log, OpenRecord};
use crate::format::checksum::crc32c;
use crate::format::record::{self, ENTRIES_MAX, ENTRIES_OFFSET, ENTRY_SIZE, Entry};
use crate::log::control::{CONTROL_SIZE, OpenMark};
use crate::units::{FragmentMask, LINE_SIZE, Line, SlotIndex};

const SLOT: usize = LINE_SIZE as usize;

impl OpenRecord {
    /// The entry of a data slot, counted from the header, if that may be replaced.
    fn entry_of(&self, data_slot: u32) -> Option<usize> {
        let behind = data_slot.checked_sub(self.data_slots_fixed)?;
        (data_slot < self.data_slots).then_some(self.entries_fixed + behind as usize)
    }
}

impl Log {
    /// Whether as many lines may be replaced at once: beside the record there must be room for them
    /// once more.
    pub(crate) fn may_replace(&self, lines: u32) -> bool {
        self.open.as_ref().is_some_and(|open| {
            let used = self.buffers[open.buffer.0 as usize].used_slots;
            open.entries == open.entries_whole
                && lines <= open.data_slots - open.data_slots_fixed
                && open.entries + lines as usize <= ENTRIES_MAX
                && used + lines <= self.geometry.slots_per_segment()
        })
    }

    /// What was logged into a slot, if it may be replaced: it is the last of its line.
    pub(crate) fn replaceable(&self, slot: SlotIndex) -> Option<FragmentMask> {
        let open = self.open.as_ref()?;
        let (segment, slot_in_segment) = self.geometry.locate(slot);
        if self.buffers[open.buffer.0 as usize].segment != Some(segment) {
            return None;
        }
        let index = open.entry_of(slot_in_segment.checked_sub(open.header_slot + 1)?)?;
        let header = &self.memory.bytes()[self.memory_offset(open.buffer, open.header_slot)..];
        let Some(Entry::Data { line, mask, .. }) = record::entry(header, index) else {
            unreachable!("a data slot has an entry of data");
        };
        let is_last =
            !(index + 1..open.entries).any(|later| record::is_data_of(header, later, line));
        is_last.then_some(mask)
    }

    /// Step 1 for one line: fragments of it, and what else its slot holds. `bytes` are those
    /// fragments, one after the other. Returns the checksum that the slot will have.
    ///
    /// # Panics
    /// If it is not [`Log::replaceable`], or there is no room: see [`Log::may_replace`].
    pub(crate) fn stage(
        &mut self,
        line: Line,
        slot: SlotIndex,
        mask: FragmentMask,
        bytes: &[u8],
    ) -> u32 {
        let has = self.replaceable(slot).expect("the caller has asked");
        let (_, slot_in_segment) = self.geometry.locate(slot);
        let open = self.open.as_mut().expect("it has the slot");
        let (buffer, header_slot) = (open.buffer, open.header_slot);
        let (index, spare) = (open.entries + open.staged, open.staged as u32);
        open.staged += 1;
        let spare = self.buffers[buffer.0 as usize].used_slots + spare;
        let header = self.memory_offset(buffer, header_slot);
        let from = self.memory_offset(buffer, slot_in_segment);
        let to = self.memory_offset(buffer, spare);
        let memory = self.memory.bytes_mut();
        if !mask.is_full() {
            memory.copy_within(from..from + SLOT, to);
        }
        let (new, mut rest) = (&mut memory[to..to + SLOT], bytes);
        for run in mask.byte_runs() {
            let (head, tail) = rest.split_at(run.len());
            new[run].copy_from_slice(head);
            rest = tail;
        }
        assert!(rest.is_empty(), "as many bytes as the mask says");
        let checksum = crc32c(new);
        let entry = Entry::Data { line, mask: has.or(mask), checksum };
        record::put_entry(&mut memory[header..], index, &entry.encode());
        checksum
    }

    /// Steps 2 to 4, of all that was staged.
    pub(crate) fn end_replace(&mut self) {
        let open = self.open.as_mut().expect("something was staged in it");
        let staged = std::mem::take(&mut open.staged);
        let (buffer, header_slot, entries) = (open.buffer, open.header_slot, open.entries);
        let header = self.memory_offset(buffer, header_slot);
        let replaced = Replaced::of(&self.memory.bytes()[header..], entries, staged);
        let replaced = replaced.expect("each was found before it was staged");
        self.open.as_mut().expect("looked at").entries_checksum = replaced.checksum(entries);
        self.mark(staged);
        replaced.put(&mut self.memory.bytes_mut()[header..], entries);
        self.mark(0);
    }
}

/// The table of an open record with staged entries in the places of those that they replace.
struct Replaced {
    table: [u8; ENTRIES_MAX * ENTRY_SIZE],
    /// Data slots to be copied, from and to, counted from the header.
    slots: [(u32, u32); ENTRIES_MAX],
    staged: usize,
    /// Slots of the record with its header, and of what is staged behind it.
    slots_used: usize,
}

impl Replaced {
    /// Of the image of a record, `entries` of which count. `None` if it is none.
    fn of(image: &[u8], entries: usize, staged: usize) -> Option<Replaced> {
        let all = entries.checked_add(staged)?;
        let table = image.get(ENTRIES_OFFSET..)?.get(..ENTRIES_MAX * ENTRY_SIZE)?;
        if all > ENTRIES_MAX {
            return None;
        }
        let data_slots = |up_to| (0..up_to).filter(|index| record::has_slot(image, *index)).count();
        let before = data_slots(entries);
        let mut replaced = Replaced {
            table: table.try_into().ok()?,
            slots: [(0, 0); ENTRIES_MAX],
            staged,
            slots_used: 1 + before + staged,
        };
        for index in entries..all {
            let Some(Entry::Data { line, .. }) = record::entry(image, index) else { return None };
            // It may be there twice, before and behind an entry without data: the last counts.
            let old = (0..entries).rfind(|old| record::is_data_of(image, *old, line))?;
            let staged = index * ENTRY_SIZE..(index + 1) * ENTRY_SIZE;
            replaced.table.copy_within(staged, old * ENTRY_SIZE);
            let (from, to) = (before + (index - entries) + 1, data_slots(old + 1));
            replaced.slots[index - entries] = (from as u32, to as u32);
        }
        Some(replaced)
    }

    fn checksum(&self, entries: usize) -> u32 {
        crc32c(&self.table[..entries * ENTRY_SIZE])
    }

    fn put(&self, image: &mut [u8], entries: usize) {
        for (from, to) in &self.slots[..self.staged] {
            let from = *from as usize * SLOT;
            image.copy_within(from..from + SLOT, *to as usize * SLOT);
        }
        let counted = entries * ENTRY_SIZE;
        image[ENTRIES_OFFSET..ENTRIES_OFFSET + counted].copy_from_slice(&self.table[..counted]);
    }
}

/// Step 3 once more, if the last process died before step 4: of the newest mark of its memory.
/// Memory that does not fit the mark stays as it is.
pub(crate) fn complete(memory: &mut [u8], segment_size_bytes: u64, mark: &OpenMark) {
    let (entries, staged) = (mark.entries as usize, mark.staged as usize);
    let segment_size = segment_size_bytes as usize;
    let at = CONTROL_SIZE.checked_add((mark.buffer as usize).saturating_mul(segment_size));
    let buffer = at.and_then(|at| memory.get_mut(at..at.checked_add(segment_size)?));
    let image = buffer.and_then(|buffer| buffer.get_mut(mark.header_slot as usize * SLOT..));
    let Some(image) = image.filter(|_| staged > 0) else { return };
    let Some(replaced) = Replaced::of(image, entries, staged) else { return };
    if replaced.slots_used * SLOT <= image.len()
        && replaced.checksum(entries) == mark.entries_checksum
    {
        replaced.put(image, entries);
    }
}
