//! The log after a checkpoint, followed from record to record as recovery does it: each must carry
//! the next number, the checksum of the one before and the serial of its segment.
//!
//! Where the chain ends, records that lie further on decide what that means. If one of them says
//! that the missing one was durable, it is damage; otherwise the log simply ends there (contract
//! C19).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use dcd_engine::format::checkpoint::{Checkpoint, LiveSlot};
use dcd_engine::format::record::Entry;
use dcd_engine::units::{
    FRAGMENTS_PER_LINE, FragmentMask, Line, RecordNumber, SegmentIndex, SegmentSerial, SlotIndex,
};
use dcd_engine::{Geometry, Superblock};

use super::CacheImage;
use super::dirty::DirtyKind;
use super::segments::{FoundRecord, read_segment};

/// The log after a checkpoint.
pub struct Log {
    /// The records that count, in order.
    pub records: Vec<FoundRecord>,
    /// Every record up to this one was durable, for certain.
    pub durable: RecordNumber,
    /// Records that were durable and cannot be found: from, and how many.
    pub lost: Option<(RecordNumber, u64)>,
    /// A record that was durable knows of a checkpoint newer than the one followed.
    pub newer_checkpoint: Option<u64>,
    /// Segments that could not be read.
    pub unreadable: Vec<(SegmentIndex, String)>,
}

/// Follows the log. `progress` hears of bytes read and to be read.
///
/// Segments in which the log cannot go on are looked at too: a record there may know of a newer
/// checkpoint, which then was durable and is lost.
pub fn follow(
    image: &CacheImage,
    superblock: &Superblock,
    checkpoint: &Checkpoint,
    progress: &mut dyn FnMut(u64, u64),
) -> Log {
    let geometry = &superblock.geometry;
    let position = checkpoint.position;
    let mut chain = Chain {
        checkpoint,
        next: position.next_record,
        previous_checksum: position.previous_checksum,
        is_broken: false,
        log: Log {
            records: Vec::new(),
            durable: RecordNumber(0),
            lost: None,
            newer_checkpoint: None,
            unreadable: Vec::new(),
        },
    };
    let mut ahead = VecDeque::from([position.segment]);
    ahead.extend(&checkpoint.free);
    let mut in_chain: BTreeSet<SegmentIndex> = ahead.iter().copied().collect();
    let total = u64::from(geometry.segments) * geometry.segment_size_bytes;
    let mut step = 0;
    while let Some(segment) = ahead.pop_front() {
        progress(step * geometry.segment_size_bytes, total);
        let known = chain.log.records.len();
        match read_segment(image, superblock, segment) {
            Ok(found) => {
                let serial = SegmentSerial(position.serial.0.saturating_add(step));
                let first_slot = if step == 0 { position.slot_in_segment } else { 0 };
                chain.segment(found, serial, first_slot);
            }
            Err(error) => chain.log.unreadable.push((segment, error.to_string())),
        }
        step += 1;
        for found in &chain.log.records[known..] {
            // A forged one may name a segment twice.
            ahead.extend(announced_by(found, geometry).filter(|segment| in_chain.insert(*segment)));
        }
    }
    for segment in (0..geometry.segments).map(SegmentIndex) {
        if in_chain.contains(&segment) {
            continue;
        }
        progress(step * geometry.segment_size_bytes, total);
        match read_segment(image, superblock, segment) {
            Ok(found) => found.iter().for_each(|found| chain.look_at(found)),
            Err(error) => chain.log.unreadable.push((segment, error.to_string())),
        }
        step += 1;
    }
    progress(total, total);
    let Chain { mut log, next, .. } = chain;
    if log.durable >= next {
        log.lost = Some((next, log.durable.0 - next.0 + 1));
    }
    log.cut_torn_tail();
    log
}

/// Segments that a record announces: what was in them is dead, and they are filled next.
fn announced_by(found: &FoundRecord, geometry: &Geometry) -> impl Iterator<Item = SegmentIndex> {
    // A forged one may speak of more than there are.
    let segments = geometry.segments;
    let ranges = found.record.entries.iter().map(move |entry| match *entry {
        Entry::Announce { first, count } => first.0..first.0.saturating_add(count).min(segments),
        _ => 0..0,
    });
    ranges.flatten().map(SegmentIndex)
}

/// The chain of records, as far as it has been followed.
struct Chain<'c> {
    checkpoint: &'c Checkpoint,
    next: RecordNumber,
    previous_checksum: u32,
    is_broken: bool,
    log: Log,
}

impl Chain<'_> {
    /// What any record tells, wherever it is.
    fn look_at(&mut self, found: &FoundRecord) {
        let generation = found.record.header.checkpoint_generation;
        if generation > self.checkpoint.generation {
            self.log.newer_checkpoint = self.log.newer_checkpoint.max(Some(generation));
        }
    }

    /// The next segment in which the log may go on, from slot `first_slot`.
    fn segment(&mut self, found: Vec<FoundRecord>, serial: SegmentSerial, first_slot: u32) {
        let mut expected_slot = first_slot;
        for found in found {
            self.look_at(&found);
            let header = &found.record.header;
            let of_this_lap = header.epoch == self.checkpoint.epoch && header.serial == serial;
            if !of_this_lap || header.slot_in_segment < first_slot {
                continue;
            }
            // Once the chain is broken nothing counts, but everything still tells what was durable.
            self.log.durable = self.log.durable.max(header.durable);
            self.is_broken |= header.slot_in_segment != expected_slot
                || header.number != self.next
                || header.previous_checksum != self.previous_checksum;
            if !self.is_broken {
                expected_slot += found.record.slots();
                self.next = self.next.next();
                self.previous_checksum = found.record.checksum;
                self.log.records.push(found);
            }
        }
    }
}

impl Log {
    /// A record that was not durable and whose data is not all there never happened, nor did what
    /// follows it; a request in several records counts only when all are there (C14).
    fn cut_torn_tail(&mut self) {
        let torn = self.records.iter().position(|found| {
            found.record.header.number > self.durable && !found.bad_entries.is_empty()
        });
        self.records.truncate(torn.unwrap_or(self.records.len()));
        for found in self.records.iter_mut().rev() {
            let entries = found.record.entries.len();
            let unfinished = usize::from(found.record.header.unfinished);
            found.record.entries.truncate(entries.saturating_sub(unfinished));
            // The request began in this record, or there is none that is unfinished.
            if unfinished < entries {
                break;
            }
        }
    }
}

/// What is newer in the log than on the data-disk.
#[derive(Default)]
pub struct Live {
    /// Slots of each line, with the fragments that count and the checksum of the slot.
    slots: BTreeMap<(u64, SlotIndex), (FragmentMask, u32)>,
    /// Disjoint ranges of lines that are zero: first line to the one after the last.
    zeroes: BTreeMap<u64, u64>,
    /// Fragments that are lost.
    poisoned: BTreeMap<u64, FragmentMask>,
}

impl Live {
    /// What a checkpoint and the log behind it say.
    pub fn of_log(checkpoint: &Checkpoint, log: &Log, geometry: &Geometry) -> Live {
        let mut live = Live::of_checkpoint(checkpoint);
        live.drop_announced(&log.records, geometry);
        log.records.iter().for_each(|found| live.apply(found, geometry));
        live
    }

    /// What was in announced segments was overwritten by records, or is on the data-disk.
    fn drop_announced(&mut self, records: &[FoundRecord], geometry: &Geometry) {
        let announced: BTreeSet<SegmentIndex> =
            records.iter().flat_map(|found| announced_by(found, geometry)).collect();
        if !announced.is_empty() {
            self.slots.retain(|(_, slot), _| !announced.contains(&geometry.locate(*slot).0));
        }
    }

    /// What a checkpoint says.
    pub fn of_checkpoint(checkpoint: &Checkpoint) -> Live {
        let mut live = Live::default();
        for slot in &checkpoint.live {
            live.slots.insert((slot.line.0, slot.slot), (slot.mask, slot.checksum));
        }
        for range in &checkpoint.zeroes {
            live.zeroes.insert(range.line.0, range.line.0 + range.lines);
        }
        for (line, mask) in &checkpoint.poisoned {
            live.poisoned.insert(line.0, *mask);
        }
        live
    }

    /// Applies a record of the log.
    pub fn apply(&mut self, found: &FoundRecord, geometry: &Geometry) {
        for (entry, slot) in found.entries_with_slots(geometry) {
            match *entry {
                Entry::Data { line, mask, checksum } => {
                    self.forget(line, mask);
                    let Some(slot) = slot else { continue };
                    self.slots.insert((line.0, slot), (mask, checksum));
                }
                Entry::Zero { line, lines, .. } => {
                    self.forget_lines(line.0, line.0 + lines);
                    self.zeroes.insert(line.0, line.0 + lines);
                }
                Entry::Bypass { range } => {
                    // Bypasses take whole lines.
                    let end = range.end().div_ceil(FRAGMENTS_PER_LINE);
                    self.forget_lines(range.start.line().0, end);
                }
                Entry::Announce { .. } => {}
            }
        }
    }

    /// Something newer covers these fragments.
    fn forget(&mut self, line: Line, mask: FragmentMask) {
        let dead = self.slots.extract_if(all_of(line.0, line.0 + 1), |_, (known, _)| {
            *known = known.without(mask);
            known.is_empty()
        });
        dead.for_each(drop);
        if let Some(poisoned) = self.poisoned.get_mut(&line.0) {
            *poisoned = poisoned.without(mask);
            if poisoned.is_empty() {
                self.poisoned.remove(&line.0);
            }
        }
    }

    /// Something newer covers these whole lines.
    fn forget_lines(&mut self, start: u64, end: u64) {
        self.slots.extract_if(all_of(start, end), |_, _| true).for_each(drop);
        self.poisoned.extract_if(start..end, |_, _| true).for_each(drop);
        self.forget_zeroes(start, end);
    }

    fn forget_zeroes(&mut self, start: u64, end: u64) {
        while let Some((&first, &last)) = self.zeroes.range(..end).next_back() {
            if last <= start {
                break;
            }
            self.zeroes.remove(&first);
            if first < start {
                self.zeroes.insert(first, start);
            }
            if last > end {
                self.zeroes.insert(end, last);
            }
        }
    }

    /// Whether the data-disk lacks nothing.
    pub fn is_clean(&self) -> bool {
        self.slots.is_empty() && self.zeroes.is_empty() && self.poisoned.is_empty()
    }

    /// Lines with a copy in the log, and which of their fragments that has.
    fn lines(&self) -> impl Iterator<Item = (u64, FragmentMask)> {
        let mut slots = self.slots.iter().map(|((line, _), (mask, _))| (*line, *mask)).peekable();
        std::iter::from_fn(move || {
            let (line, mut mask) = slots.next()?;
            while let Some((_, more)) = slots.next_if(|(next, _)| *next == line) {
                mask = mask.or(more);
            }
            Some((line, mask))
        })
    }

    /// Fragments in the log, or lost, in the order of lines. None is both.
    pub fn fragments(&self) -> impl Iterator<Item = (Line, FragmentMask, DirtyKind)> {
        let mut data = self.lines().peekable();
        let mut lost = self.poisoned.iter().map(|(line, mask)| (*line, *mask)).peekable();
        std::iter::from_fn(move || {
            let is_lost = match (data.peek(), lost.peek()) {
                (Some((data, _)), Some((lost, _))) => lost < data,
                (data, _) => data.is_none(),
            };
            let (next, kind) = match is_lost {
                true => (lost.next(), DirtyKind::Damaged),
                false => (data.next(), DirtyKind::Data),
            };
            next.map(|(line, mask)| (Line(line), mask, kind))
        })
    }

    /// Lines that are zero where no fragment lies: first to the one after the last.
    pub fn zeroes(&self) -> impl Iterator<Item = (u64, u64)> {
        self.zeroes.iter().map(|(start, end)| (*start, *end))
    }

    /// Lines with a copy in the log.
    pub fn dirty_lines(&self) -> u64 {
        self.lines().count() as u64
    }

    /// Lines that are zero in the log and not yet on the data-disk.
    pub fn zero_lines(&self) -> u64 {
        self.zeroes.iter().map(|(start, end)| end - start).sum()
    }

    /// Lines with lost fragments.
    pub fn poisoned_lines(&self) -> u64 {
        self.poisoned.len() as u64
    }

    /// Every slot that counts.
    pub fn slots(&self) -> impl Iterator<Item = LiveSlot> {
        self.slots.iter().map(|((line, slot), (mask, checksum))| LiveSlot {
            line: Line(*line),
            mask: *mask,
            slot: *slot,
            checksum: *checksum,
        })
    }

    /// Number of slots that count, for each segment.
    pub fn slots_by_segment(&self, geometry: &Geometry) -> BTreeMap<SegmentIndex, u32> {
        let mut counts = BTreeMap::new();
        for slot in self.slots() {
            *counts.entry(geometry.locate(slot.slot).0).or_default() += 1;
        }
        counts
    }
}

/// The places of these lines' slots.
fn all_of(start: u64, end: u64) -> Range<(u64, SlotIndex)> {
    (start, SlotIndex(0))..(end, SlotIndex(0))
}
