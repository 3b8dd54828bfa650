//! What can be had of a cache-disk that no start takes: its checkpoint is damaged, or parts of it
//! are gone. Every record and every slot tells by itself whose it is, where in the one order it
//! belongs, and whether it is whole; so the newest copy of each block can be found without a
//! checkpoint. What a checkpoint tells besides is which copies had been destaged, and that nothing
//! newer is missing.
//!
//! ```text
//! 1. Find the records of every segment. Of an earlier lap, or of a session that did not count
//!    them: dead.
//! 2. Order them by number. Those never known to be durable count as far as their chain is whole,
//!    as in a recovery. A number that is missing is a *gap*: a record that was overwritten since,
//!    or lost.
//! 3. Begin with what the newest checkpoint says that can be read, or can be read in part.
//! 4. Apply the records in their order: the newest copy of a block counts, and where that is
//!    damaged, none.
//! 5. A copy is *certain* if the newest checkpoint is there and no gap lies behind the copy.
//!    Otherwise a newer one may have been there, and may have reached the data-disk: it is told,
//!    and nothing chooses it without being asked to.
//! ```
//!
//! Without any checkpoint nothing is certain. What a checkpoint does not list any more may be
//! changed past the log without a record of it, as all is in the mode `pass-through`, or after a
//! detach; and a checkpoint may always have been made behind the last record that is there, however
//! whole the chain of them is. Nothing else on a cache-disk tells of that. Nor is it known then
//! which records there were: of those that are missing before the first or behind the last that was
//! found, nothing tells.

use std::collections::{BTreeMap, BTreeSet};

use dcd_engine::format::checkpoint::{
    self, Checkpoint, CheckpointHeader, DamagedCheckpoint, LiveSlot,
};
use dcd_engine::format::checksum::crc32c;
use dcd_engine::format::record::Entry;
use dcd_engine::format::superblock::CacheState;
use dcd_engine::units::{
    FRAGMENTS_PER_LINE, FragmentMask, LINE_SIZE, Line, RecordNumber, SegmentIndex, SlotIndex,
};
use dcd_engine::{Geometry, Superblock};

use super::CacheImage;
use super::segments::{FoundRecord, read_segment};

/// Bits in which an item of a damaged checkpoint may differ from what a record says of the same
/// slot and still be taken for it: two different items differ in their slots' checksums alone by
/// 16, mostly.
const FLIPPED_BITS_MAX: u32 = 4;
/// The number of the first record that a cache ever has.
const FIRST_RECORD: RecordNumber = RecordNumber(1);

/// Whether a newer copy may be missing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Certainty {
    /// It is the newest.
    Certain,
    /// Records behind it are missing: one of them may have been newer.
    NewerMayBeLost,
    /// The damaged checkpoint does not list it, in what can still be read of it, or there is none
    /// that could: it may be dead, and what the data-disk has may be newer.
    MayBeDead,
}

/// Fragments of a line in a slot that is whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Whose, which, where, and the checksum of the slot.
    pub copy: LiveSlot,
    /// The record that it came with, or the last one before the checkpoint that lists it.
    pub number: RecordNumber,
    /// Whether it counts.
    pub certainty: Certainty,
}

/// Lines that are zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZeroRange {
    /// The first.
    pub start: u64,
    /// The one after the last.
    pub end: u64,
    /// As of a [`Piece`].
    pub number: RecordNumber,
    /// Whether it counts.
    pub certainty: Certainty,
}

/// What was found.
#[derive(Default)]
pub struct Salvage {
    /// Records that count.
    pub records: u64,
    /// Record numbers that are missing among them, and without a checkpoint before them: first and
    /// last.
    pub gaps: Vec<(u64, u64)>,
    /// Segments that cannot be read, with why.
    pub unreadable: Vec<(SegmentIndex, String)>,
    /// The checkpoint it begins with, and how much of it counts.
    pub base: Base,
    /// The newest checkpoint that was durable is gone: what was changed past the log, or detached,
    /// behind the one that it begins with is not known.
    pub checkpoint_lost: bool,
    /// The mark at the end of the cache-disk is gone: it was shorter once.
    pub end_mark_lost: bool,
    /// A memory in front of the log, which is not looked at, may hold what is newer.
    pub names_nvram: bool,
    /// The newest copies, by line.
    pub pieces: Vec<Piece>,
    /// What is zero where no piece lies.
    pub zeroes: Vec<ZeroRange>,
    /// Fragments whose newest copy is damaged: nothing older is put in their place.
    pub lost: Vec<(Line, FragmentMask)>,
    /// More may be lost than can be listed: there is no checkpoint, or no end, that tells of it.
    pub has_unlisted_loss: bool,
}

/// Where the search began.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Base {
    /// No checkpoint can be read.
    #[default]
    Nothing,
    /// One that is whole.
    Whole {
        /// Which.
        generation: u64,
    },
    /// One with a wrong checksum.
    Damaged {
        /// Which.
        generation: u64,
        /// Its items that agree with the slots that they name.
        verified: u64,
        /// Others that were recognised, with a few bits flipped.
        mended: u64,
        /// The rest.
        unknown: u64,
    },
}

impl Salvage {
    /// Looks at all of a cache-disk. `progress` hears of bytes read and to be read.
    pub fn of(
        image: &CacheImage,
        superblock: &Superblock,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Salvage {
        let mut salvage =
            Salvage { end_mark_lost: end_mark_is_lost(image, superblock), ..Salvage::default() };
        let found = salvage.find(image, superblock, progress);
        let (whole, damaged) = checkpoints(image, superblock);
        let mut content = Content::default();
        let base = match (&whole, &damaged) {
            (Some(whole), damaged)
                if damaged.as_ref().is_none_or(|it| it.generation < whole.generation) =>
            {
                Some((whole.generation, whole.epoch))
            }
            (_, damaged) => damaged.as_ref().map(|it| (it.generation, it.epoch)),
        };
        let after = match (whole, damaged) {
            (Some(whole), damaged)
                if damaged.as_ref().is_none_or(|damaged| damaged.generation < whole.generation) =>
            {
                salvage.base = Base::Whole { generation: whole.generation };
                content.begin_with(&whole);
                whole.position.next_record
            }
            (_, Some(damaged)) => {
                salvage.begin_with_damaged(&damaged, &found, image, superblock, &mut content)
            }
            (_, None) => FIRST_RECORD,
        };
        let Ordered { records, durable, tail } = in_order(found, after, superblock);
        salvage.records = records.len() as u64;
        salvage.gaps = gaps(&records, after, durable);
        for found in &records {
            if found.record.header.number >= after {
                content.apply(found, &superblock.geometry);
            }
        }
        // What a detach left in the log was given up, or is older than the data-disk by now.
        let is_detached = superblock.state == CacheState::Detached;
        let is_end_certain = !is_detached
            && !salvage.end_mark_lost
            && salvage.unreadable.is_empty()
            || superblock.state == CacheState::Closed && matches!(salvage.base, Base::Whole { .. });
        salvage.checkpoint_lost = !is_newest(base, &records, superblock);
        salvage.names_nvram = superblock.nvram.is_some();
        let least = match () {
            () if salvage.checkpoint_lost => Certainty::MayBeDead,
            () if is_end_certain && !salvage.names_nvram => Certainty::Certain,
            () => Certainty::NewerMayBeLost,
        };
        content.doubt_behind(&tail);
        salvage.take(content, least);
        salvage.verify_listed(image, superblock);
        salvage.leave_out_what_is_lost();
        salvage.has_unlisted_loss = !(is_detached || least == Certainty::Certain);
        salvage
    }

    /// What a line above zeroes held is lost, and is not those zeroes; nor can it be told what the
    /// rest of the line is.
    fn leave_out_what_is_lost(&mut self) {
        let mut lost: BTreeMap<Line, FragmentMask> = BTreeMap::new();
        for (line, mask) in std::mem::take(&mut self.lost) {
            let all = lost.entry(line).or_default();
            *all = all.or(mask);
        }
        let mut zeroes = Vec::new();
        for range in std::mem::take(&mut self.zeroes) {
            let mut start = range.start;
            for (line, mask) in lost.range_mut(Line(range.start)..Line(range.end.max(range.start)))
            {
                // Pieces are in the order of their lines.
                let first = self.pieces.partition_point(|piece| piece.copy.line < *line);
                let pieces = self.pieces[first..].iter().take_while(|it| it.copy.line == *line);
                *mask = pieces.fold(FragmentMask::FULL, |rest, it| rest.without(it.copy.mask));
                if start < line.0 {
                    zeroes.push(ZeroRange { start, end: line.0, ..range });
                }
                start = line.0 + 1;
            }
            if start < range.end {
                zeroes.push(ZeroRange { start, ..range });
            }
        }
        self.lost = lost.into_iter().collect();
        self.zeroes = zeroes;
    }

    /// Step 1.
    fn find(
        &mut self,
        image: &CacheImage,
        superblock: &Superblock,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Vec<FoundRecord> {
        let geometry = &superblock.geometry;
        let total = u64::from(geometry.segments) * geometry.segment_size_bytes;
        let mut found = Vec::new();
        for index in (0..geometry.segments).map(SegmentIndex) {
            progress(u64::from(index.0) * geometry.segment_size_bytes, total);
            match read_segment(image, superblock, index) {
                Ok(mut records) => {
                    // What is left of an earlier lap is dead: else the segment had not been free.
                    let newest = records.iter().map(|found| found.record.header.serial).max();
                    records.retain(|found| Some(found.record.header.serial) == newest);
                    found.append(&mut records);
                }
                Err(error) => self.unreadable.push((index, error.to_string())),
            }
        }
        progress(total, total);
        found
    }

    /// Step 3, with a checkpoint whose checksum is wrong. An item counts if the slot that it names
    /// holds what the item says; of the others each is looked for among the copies that are older
    /// than the checkpoint.
    fn begin_with_damaged(
        &mut self,
        damaged: &DamagedCheckpoint,
        found: &[FoundRecord],
        image: &CacheImage,
        superblock: &Superblock,
        content: &mut Content,
    ) -> RecordNumber {
        let geometry = &superblock.geometry;
        let after = damaged.position.next_record;
        let before = RecordNumber(after.0.saturating_sub(1));
        let mut older: BTreeMap<u32, LiveSlot> = BTreeMap::new();
        for found in found.iter().filter(|found| found.record.header.number < after) {
            for (entry, slot) in found.entries_with_slots(geometry) {
                if let (Entry::Data { line, mask, checksum }, Some(slot)) = (*entry, slot) {
                    older.insert(slot.0, LiveSlot { line, mask, slot, checksum });
                }
            }
        }
        let mut doubtful = Vec::new();
        // Fragments of copies that an item does not list: they died before, or its mask is what is
        // damaged.
        let mut unlisted = Vec::new();
        let mut verified = 0;
        for item in &damaged.live {
            let agrees = match older.get(&item.slot.0) {
                Some(copy) => {
                    copy.line == item.line
                        && copy.checksum == item.checksum
                        && copy.mask.contains(item.mask)
                        && !item.mask.is_empty()
                }
                // The header of its record is gone; the slot itself still tells.
                None => slot_has_checksum(image, geometry, item),
            };
            if !agrees {
                doubtful.push(*item);
                continue;
            }
            verified += 1;
            if let Some(copy) = older.remove(&item.slot.0) {
                unlisted.push(LiveSlot { mask: copy.mask.without(item.mask), ..copy });
            }
            content.list(*item, before);
        }
        let mut unknown = 0;
        let mut mended = 0;
        for item in doubtful {
            let mut alike =
                older.values().filter(|copy| flipped_bits(&item, copy) <= FLIPPED_BITS_MAX);
            match (alike.next().copied(), alike.next()) {
                (Some(copy), None) => {
                    mended += 1;
                    older.remove(&copy.slot.0);
                    content.list(LiveSlot { mask: copy.mask.and(item.mask), ..copy }, before);
                    let mask = copy.mask.without(item.mask);
                    content.list_doubtful(LiveSlot { mask, ..copy }, before);
                }
                _ => unknown += 1,
            }
        }
        let generation = damaged.generation;
        self.base = Base::Damaged { generation, verified, mended, unknown };
        let is_all_known = unknown == 0 && mended > 0;
        // If no live item is wrong, something else is: a zero range perhaps, or the mask of an
        // item.
        if !is_all_known {
            for copy in unlisted {
                content.list_doubtful(copy, before);
            }
        }
        let certainty = if is_all_known { Certainty::Certain } else { Certainty::MayBeDead };
        for (line, lines) in &damaged.zeroes {
            let (start, end) = (line.0, line.0.saturating_add(*lines));
            content.zero(ZeroRange { start, end, number: before, certainty });
        }
        content.lost.extend(damaged.poisoned.iter().map(|(line, mask)| (line.0, *mask)));
        if unknown > 0 {
            let mut left: Vec<LiveSlot> = older.into_values().collect();
            left.sort_unstable_by_key(|copy| copy.slot);
            for copy in left {
                content.list_doubtful(copy, before);
            }
        }
        after
    }

    /// Step 5.
    fn take(&mut self, content: Content, least: Certainty) {
        let last_gap = self.gaps.last().map_or(0, |(_, last)| *last);
        let judge = |number: RecordNumber, certainty: Certainty| match number.0 >= last_gap {
            true => certainty.max(least),
            false => certainty.max(least).max(Certainty::NewerMayBeLost),
        };
        for pieces in content.lines.into_values() {
            self.pieces.extend(pieces);
        }
        for piece in &mut self.pieces {
            piece.certainty = judge(piece.number, piece.certainty);
        }
        self.pieces.sort_unstable_by_key(|piece| (piece.copy.line, piece.copy.mask.0));
        self.zeroes = content.zeroes.into_values().collect();
        for range in &mut self.zeroes {
            range.certainty = judge(range.number, range.certainty);
        }
        self.lost = content.lost.into_iter().map(|(line, mask)| (Line(line), mask)).collect();
    }

    /// Slots that a checkpoint lists and no record that was found describes have not been compared
    /// yet.
    fn verify_listed(&mut self, image: &CacheImage, superblock: &Superblock) {
        let geometry = &superblock.geometry;
        let mut damaged = Vec::new();
        self.pieces.retain(|piece| {
            let is_whole = slot_has_checksum(image, geometry, &piece.copy);
            if !is_whole {
                damaged.push((piece.copy.line, piece.copy.mask));
            }
            is_whole
        });
        self.lost.extend(damaged);
        self.lost.sort_unstable_by_key(|(line, mask)| (*line, mask.0));
    }
}

/// Whether no newer checkpoint than this one is known to have been durable, as a start finds it,
/// too: a session begins with one of its own, and records tell of the newest that was there.
fn is_newest(base: Option<(u64, u64)>, records: &[FoundRecord], superblock: &Superblock) -> bool {
    let session = superblock.session_epoch_min();
    let told_of = records.iter().map(|found| found.record.header.checkpoint_generation);
    let told_of = told_of.max().unwrap_or(0);
    base.is_some_and(|(generation, epoch)| generation >= told_of && epoch >= session)
}

fn end_mark_is_lost(image: &CacheImage, superblock: &Superblock) -> bool {
    superblock.end_mark_offset().is_some_and(|offset| image.end_mark(superblock, offset).is_err())
}

/// The newest checkpoint that is whole, and the newest of which only the header is.
fn checkpoints(
    image: &CacheImage,
    superblock: &Superblock,
) -> (Option<Checkpoint>, Option<DamagedCheckpoint>) {
    let (uuid, geometry) = (superblock.uuid, &superblock.geometry);
    let mut whole: Option<Checkpoint> = None;
    let mut damaged: Option<DamagedCheckpoint> = None;
    for offset in geometry.checkpoint_offsets {
        let Ok(header) = image.read(offset, checkpoint::HEADER_SIZE) else { continue };
        let Ok(CheckpointHeader { payload_bytes, generation, .. }) =
            Checkpoint::decode_header(header.bytes(), uuid, geometry)
        else {
            continue;
        };
        if generation < superblock.checkpoint_generation_min() {
            continue;
        }
        let length = checkpoint::HEADER_SIZE as u64 + payload_bytes;
        let length = length.min(geometry.checkpoint_area_bytes) as usize;
        let Ok(bytes) = image.read(offset, length) else { continue };
        match Checkpoint::decode(bytes.bytes(), uuid, geometry) {
            Ok(found) if whole.as_ref().is_none_or(|known| known.generation < found.generation) => {
                whole = Some(found);
            }
            Ok(_) => {}
            Err(_) => {
                let found = DamagedCheckpoint::decode(bytes.bytes(), uuid, geometry).ok();
                let newest = damaged.as_ref().map(|known| known.generation);
                damaged = found.filter(|found| newest < Some(found.generation)).or(damaged);
            }
        }
    }
    (whole, damaged)
}

fn slot_has_checksum(image: &CacheImage, geometry: &Geometry, item: &LiveSlot) -> bool {
    let bytes = image.read(geometry.slot_offset(item.slot), LINE_SIZE as usize);
    bytes.is_ok_and(|bytes| {
        bytes.len() == LINE_SIZE as usize && crc32c(bytes.bytes()) == item.checksum
    })
}

fn flipped_bits(first: &LiveSlot, second: &LiveSlot) -> u32 {
    // Fragments that died since are no flipped bits.
    let grown = first.mask.without(second.mask);
    (first.line.0 ^ second.line.0).count_ones()
        + grown.0.count_ones()
        + (first.slot.0 ^ second.slot.0).count_ones()
        + (first.checksum ^ second.checksum).count_ones()
}

/// Records in the order of their numbers.
struct Ordered {
    /// Those that count.
    records: Vec<FoundRecord>,
    /// Every record up to this one was durable.
    durable: u64,
    /// Behind them, what a power cut may have torn, or damage: nobody can tell.
    tail: Vec<FoundRecord>,
}

/// Step 2.
fn in_order(found: Vec<FoundRecord>, after: RecordNumber, superblock: &Superblock) -> Ordered {
    // A session takes over the numbers of records that the one before it did not count.
    let mut first_of_epoch: BTreeMap<u64, u64> = BTreeMap::new();
    for found in &found {
        let header = &found.record.header;
        let first = first_of_epoch.entry(header.epoch).or_insert(header.number.0);
        *first = header.number.0.min(*first);
    }
    let counts = |found: &FoundRecord| {
        let header = &found.record.header;
        let mut later = first_of_epoch.range(header.epoch + 1..);
        later.all(|(_, first)| header.number.0 < *first)
    };
    let mut records: Vec<FoundRecord> = found.into_iter().filter(counts).collect();
    records.sort_unstable_by_key(|found| found.record.header.number);
    records.dedup_by_key(|found| found.record.header.number);
    let told = records.iter().map(|found| match superblock.state {
        CacheState::Open => found.record.header.durable.0,
        // It ended in order: all of it was.
        CacheState::Closed | CacheState::Detached => found.record.header.number.0,
    });
    let durable = told.max().unwrap_or(0).max(after.0.saturating_sub(1));
    let mut before: Option<(u64, u32)> = None;
    let end = records.iter().position(|found| {
        let header = &found.record.header;
        let follows = before.is_none_or(|(number, checksum)| {
            number + 1 == header.number.0 && checksum == header.previous_checksum
        });
        before = Some((header.number.0, found.record.checksum));
        header.number.0 > durable
            && (!found.bad_entries.is_empty() || !follows && header.number.0 != durable + 1)
    });
    let tail = records.split_off(end.unwrap_or(records.len()));
    // A request in several records counts when all are there (C14).
    for found in records.iter_mut().rev() {
        let entries = found.record.entries.len();
        let unfinished = usize::from(found.record.header.unfinished);
        found.record.entries.truncate(entries.saturating_sub(unfinished));
        if unfinished < entries {
            break;
        }
    }
    Ordered { records, durable, tail }
}

/// Numbers from `after` on that are missing.
fn gaps(records: &[FoundRecord], after: RecordNumber, durable: u64) -> Vec<(u64, u64)> {
    let numbers = records.iter().map(|found| found.record.header.number.0);
    let mut next = after.0;
    let mut gaps = Vec::new();
    for number in numbers.filter(|number| *number >= after.0) {
        if number > next {
            gaps.push((next, number - 1));
        }
        next = number + 1;
    }
    if durable >= next {
        gaps.push((next, durable));
    }
    gaps
}

/// The newest of everything, while records are applied.
#[derive(Default)]
struct Content {
    lines: BTreeMap<u64, Vec<Piece>>,
    /// Disjoint, by first line.
    zeroes: BTreeMap<u64, ZeroRange>,
    lost: BTreeMap<u64, FragmentMask>,
}

impl Content {
    fn begin_with(&mut self, checkpoint: &Checkpoint) {
        let number = RecordNumber(checkpoint.position.next_record.0.saturating_sub(1));
        for copy in &checkpoint.live {
            self.list(*copy, number);
        }
        for range in &checkpoint.zeroes {
            let (start, end) = (range.line.0, range.line.0.saturating_add(range.lines));
            self.zero(ZeroRange { start, end, number, certainty: Certainty::Certain });
        }
        self.lost.extend(checkpoint.poisoned.iter().map(|(line, mask)| (line.0, *mask)));
    }

    fn list(&mut self, copy: LiveSlot, number: RecordNumber) {
        let piece = Piece { copy, number, certainty: Certainty::Certain };
        self.lines.entry(copy.line.0).or_default().push(piece);
    }

    /// A copy that the damaged checkpoint may have listed, where nothing that it does list lies.
    fn list_doubtful(&mut self, copy: LiveSlot, number: RecordNumber) {
        let pieces = self.lines.entry(copy.line.0).or_default();
        let taken = pieces.iter().filter(|piece| piece.certainty == Certainty::Certain);
        let taken = taken.fold(FragmentMask::NONE, |mask, piece| mask.or(piece.copy.mask));
        let mask = copy.mask.without(taken);
        // Of two of them the later in the segments need not be the newer: both are told.
        if !mask.is_empty() {
            let copy = LiveSlot { mask, ..copy };
            pieces.push(Piece { copy, number, certainty: Certainty::MayBeDead });
        }
        self.lines.retain(|_, pieces| !pieces.is_empty());
    }

    fn apply(&mut self, found: &FoundRecord, geometry: &Geometry) {
        let number = found.record.header.number;
        let bad: BTreeSet<usize> = found.bad_entries.iter().copied().collect();
        for (index, (entry, slot)) in found.entries_with_slots(geometry).enumerate() {
            match *entry {
                Entry::Data { line, mask, checksum } => {
                    self.forget(line.0, mask);
                    let slot = slot.unwrap_or(SlotIndex(0));
                    if bad.contains(&index) {
                        let lost = self.lost.entry(line.0).or_default();
                        *lost = lost.or(mask);
                    } else {
                        self.list(LiveSlot { line, mask, slot, checksum }, number);
                    }
                }
                Entry::Zero { line, lines, .. } => {
                    let (start, end) = (line.0, line.0 + lines);
                    self.forget_lines(start, end);
                    self.zero(ZeroRange { start, end, number, certainty: Certainty::Certain });
                }
                Entry::Bypass { range } => {
                    let end = range.end().div_ceil(FRAGMENTS_PER_LINE);
                    self.forget_lines(range.start.line().0, end);
                }
                // What was in them is found as long as it is there, and said to be perhaps older
                // than the data-disk.
                Entry::Announce { .. } => {}
            }
        }
    }

    /// What the records of the tail were to change may be older than they were.
    fn doubt_behind(&mut self, tail: &[FoundRecord]) {
        for entry in tail.iter().flat_map(|found| &found.record.entries) {
            let Some((first, lines)) = entry.lines() else { continue };
            for pieces in self.lines.range_mut(first.0..first.0 + lines).map(|(_, pieces)| pieces) {
                for piece in pieces {
                    piece.certainty = piece.certainty.max(Certainty::NewerMayBeLost);
                }
            }
            for range in self.zeroes.values_mut() {
                if range.start < first.0 + lines && first.0 < range.end {
                    range.certainty = range.certainty.max(Certainty::NewerMayBeLost);
                }
            }
        }
    }

    fn zero(&mut self, range: ZeroRange) {
        self.zeroes.insert(range.start, range);
    }

    fn forget(&mut self, line: u64, mask: FragmentMask) {
        if let Some(pieces) = self.lines.get_mut(&line) {
            for piece in pieces.iter_mut() {
                piece.copy.mask = piece.copy.mask.without(mask);
            }
            pieces.retain(|piece| !piece.copy.mask.is_empty());
            if pieces.is_empty() {
                self.lines.remove(&line);
            }
        }
        if let Some(lost) = self.lost.get_mut(&line) {
            *lost = lost.without(mask);
            if lost.is_empty() {
                self.lost.remove(&line);
            }
        }
    }

    fn forget_lines(&mut self, start: u64, end: u64) {
        self.lines.extract_if(start..end, |_, _| true).for_each(drop);
        self.lost.extract_if(start..end, |_, _| true).for_each(drop);
        while let Some((_, &range)) = self.zeroes.range(..end).next_back() {
            if range.end <= start {
                break;
            }
            self.zeroes.remove(&range.start);
            if range.start < start {
                self.zero(ZeroRange { end: start, ..range });
            }
            if range.end > end {
                self.zero(ZeroRange { start: end, ..range });
            }
        }
    }
}
