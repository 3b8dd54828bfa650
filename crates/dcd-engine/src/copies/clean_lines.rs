//! Lines that were destaged and whose slot in the log has not been filled again: the cache-disk
//! still has them, so they are read from there. Known only in memory, and lost at the end; a start
//! begins without.
//!
//! A line that is logged anew is not taken out: nobody looks for it here while it is in the lookup
//! table, and it is replaced, or taken out, when it leaves that. A write is spared a look-up.
//!
//! Nothing is taken out when a segment is filled again: its serial tells that what was known of its
//! slots is over. A change of very many lines is noted as a range, whose lines are not found any
//! more; they are taken out a bucket at a time, with each line that comes. One that comes
//! meanwhile may be taken out with the others: it is read from the data-disk then.

use std::collections::VecDeque;
use std::ops::Range;

use zerocopy::FromZeros;

use crate::growing_table::GrowingTable;
use crate::line_hash::LineHash;
use crate::line_map::{LineMap, LineValue};
use crate::units::{Line, SegmentSerial, SlotIndex};

/// A line and one, or no line: that is memory that nothing has touched.
#[derive(Clone, Copy, FromZeros)]
struct LineAndOne([u8; 5]);

impl LineAndOne {
    const EMPTY: LineAndOne = LineAndOne([0; 5]);

    /// `None` of the last line that there can be: of that there is no one more.
    fn new(line: Line) -> Option<LineAndOne> {
        let [bytes @ .., 0, 0, 0] = (line.0 + 1).to_le_bytes() else { return None };
        Some(LineAndOne(bytes))
    }

    fn line(self) -> Option<Line> {
        let [a, b, c, d, e] = self.0;
        u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]).checked_sub(1).map(Line)
    }
}

/// A slot and one.
#[derive(Clone, Copy)]
struct SlotAndOne([u8; 4]);

impl LineValue for SlotAndOne {
    const NONE: SlotAndOne = SlotAndOne([0; 4]);

    fn is_none(&self) -> bool {
        self.0 == SlotAndOne::NONE.0
    }
}

impl SlotAndOne {
    fn new(slot: SlotIndex) -> SlotAndOne {
        SlotAndOne((slot.0 + 1).to_le_bytes())
    }

    fn slot(self) -> SlotIndex {
        SlotIndex(u32::from_le_bytes(self.0) - 1)
    }
}

/// Ranges that are noted at a time; with one more, the last two become one that covers both.
const FORGOTTEN_MAX: usize = 16;

/// Lines of this range are taken out.
struct Forgotten {
    lines: Range<u64>,
    /// Buckets before this one were looked at.
    bucket: usize,
}

/// The lines, by slot and by line.
pub struct CleanLines {
    slots_per_segment: u32,
    /// Of each segment, the filling that is known of.
    serials: GrowingTable<u64>,
    /// Of each slot.
    lines: GrowingTable<LineAndOne>,
    /// The slot of each line.
    slots: LineMap<SlotAndOne>,
    /// So many lines are taken out at once.
    at_once: u64,
    forgotten: VecDeque<Forgotten>,
}

impl CleanLines {
    /// None of the slots of so many segments holds a clean line. A change takes out `at_once` at
    /// most; of more the others follow.
    pub fn new(
        segments: u32,
        slots_per_segment: u32,
        at_once: usize,
        hash: LineHash,
    ) -> CleanLines {
        let slots = (segments * slots_per_segment) as usize;
        CleanLines {
            slots_per_segment,
            serials: GrowingTable::new(segments as usize),
            lines: GrowingTable::new(slots),
            slots: LineMap::new(slots, hash),
            at_once: at_once as u64,
            forgotten: VecDeque::new(),
        }
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.serials.memory_bytes() + self.lines.memory_bytes() + self.slots.memory_bytes()
    }

    /// There are so many segments from now on. What is known of those that are gone is not found: no
    /// segment has such a serial.
    pub(crate) fn set_segments(&mut self, segments: u32) {
        self.serials.set_len(segments as usize);
        self.lines.set_len((segments * self.slots_per_segment) as usize);
    }

    /// The line is in this slot, of a segment with this serial, and on the data-disk.
    pub fn insert(&mut self, line: Line, slot: SlotIndex, serial: SegmentSerial) {
        self.forget_more();
        let Some(line_and_one) = LineAndOne::new(line) else { return };
        let segment = slot.0 / self.slots_per_segment;
        if std::mem::replace(&mut self.serials[segment as usize], serial.0) != serial.0 {
            let first = segment * self.slots_per_segment;
            (first..first + self.slots_per_segment).for_each(|slot| self.clear(SlotIndex(slot)));
        }
        self.clear(slot);
        self.lines[slot.0 as usize] = line_and_one;
        if let Some(known) = self.slots.get_or_insert(line, SlotAndOne::new(slot)) {
            let before = std::mem::replace(known, SlotAndOne::new(slot)).slot();
            self.lines[before.0 as usize] = LineAndOne::EMPTY;
        }
    }

    /// The slot of a line, and the serial that its segment must still have.
    pub fn find(&self, line: Line) -> Option<(SlotIndex, SegmentSerial)> {
        if self.forgotten.iter().any(|forgotten| forgotten.lines.contains(&line.0)) {
            return None;
        }
        let slot = self.slots.get(line)?.slot();
        Some((slot, SegmentSerial(self.serials[(slot.0 / self.slots_per_segment) as usize])))
    }

    /// The line has changed.
    pub fn remove(&mut self, line: Line) {
        if let Some(slot) = self.slots.remove(line) {
            self.lines[slot.slot().0 as usize] = LineAndOne::EMPTY;
        }
    }

    /// The same of a run of lines, which may be longer than the disk.
    pub fn remove_all(&mut self, line: Line, lines: u64) {
        self.forget_more();
        let range = line.0..line.0.saturating_add(lines);
        if lines <= self.at_once {
            range.for_each(|line| self.remove(Line(line)));
        } else if self.slots.lines() as u64 <= self.at_once {
            let known = self.slots.iter().map(|(line, _)| line);
            let within: Vec<Line> = known.filter(|line| range.contains(&line.0)).collect();
            within.into_iter().for_each(|line| self.remove(line));
        } else {
            self.note(range);
        }
    }

    /// The lines are found no more, and will be taken out.
    fn note(&mut self, lines: Range<u64>) {
        let covering = match self.forgotten.len() {
            FORGOTTEN_MAX => self.forgotten.pop_back().map(|last| last.lines),
            _ => None,
        };
        let covering = covering.unwrap_or_else(|| lines.clone());
        let lines = lines.start.min(covering.start)..lines.end.max(covering.end);
        self.forgotten.push_back(Forgotten { lines, bucket: 0 });
    }

    /// Takes out what of one bucket is to be.
    fn forget_more(&mut self) {
        let Some(forgotten) = self.forgotten.front_mut() else { return };
        let Some(bucket) = self.slots.bucket_from(forgotten.bucket) else {
            self.forgotten.pop_front();
            return;
        };
        forgotten.bucket = bucket + 1;
        let known = self.slots.bucket(bucket).map(|(line, _)| line);
        let within: Vec<Line> = known.filter(|line| forgotten.lines.contains(&line.0)).collect();
        within.into_iter().for_each(|line| self.remove(line));
    }

    /// What the slot held is over.
    fn clear(&mut self, slot: SlotIndex) {
        let line = std::mem::replace(&mut self.lines[slot.0 as usize], LineAndOne::EMPTY);
        if let Some(line) = line.line() {
            self.slots.remove(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_segment_that_is_filled_again_is_known_by_its_serial() {
        let mut clean = CleanLines::new(2, 4, 100, LineHash::new(0));
        clean.insert(Line(7), SlotIndex(1), SegmentSerial(10));
        clean.insert(Line(8), SlotIndex(2), SegmentSerial(10));
        assert_eq!(clean.find(Line(7)), Some((SlotIndex(1), SegmentSerial(10))));
        // Filled again, and line 9 destaged from it: 7 and 8 are not there any more.
        clean.insert(Line(9), SlotIndex(3), SegmentSerial(20));
        assert_eq!(clean.find(Line(7)), None);
        assert_eq!(clean.find(Line(8)), None);
        clean.insert(Line(9), SlotIndex(5), SegmentSerial(21));
        assert_eq!(clean.find(Line(9)), Some((SlotIndex(5), SegmentSerial(21))));
        clean.remove_all(Line(0), u64::MAX);
        assert_eq!(clean.find(Line(9)), None);
    }

    #[test]
    fn the_last_line_of_all_is_not_noted() {
        let mut clean = CleanLines::new(2, 4, 100, LineHash::new(0));
        let last = Line((1 << 40) - 1);
        clean.insert(Line(last.0 - 1), SlotIndex(1), SegmentSerial(10));
        clean.insert(last, SlotIndex(2), SegmentSerial(10));
        assert_eq!(clean.find(Line(last.0 - 1)), Some((SlotIndex(1), SegmentSerial(10))));
        assert_eq!(clean.find(last), None);
        clean.insert(Line(5), SlotIndex(1), SegmentSerial(10));
        assert_eq!(clean.find(Line(last.0 - 1)), None);
    }

    /// A discard of much walks what is there, not every slot and not every line.
    #[test]
    fn a_large_discard_walks_what_is_there() {
        let mut clean = CleanLines::new(100_000, 256, 1000, LineHash::new(0));
        for line in 0..100 {
            clean.insert(Line(line * 1000), SlotIndex(line as u32 * 256), SegmentSerial(1));
        }
        clean.slots.take_steps();
        clean.remove_all(Line(0), 50_000);
        let steps = clean.slots.take_steps();
        assert!(steps < 2000, "{steps} steps");
        assert_eq!((clean.slots.lines(), clean.find(Line(49_000)).is_some()), (50, false));
        assert!(clean.find(Line(50_000)).is_some());
    }

    /// A change of very many is carried out in parts, and none of it is found meanwhile.
    #[test]
    fn many_lines_are_forgotten_in_parts() {
        const LINES: u32 = 20_000;
        let mut clean = CleanLines::new(100, 256, 50, LineHash::new(3));
        (0..LINES).for_each(|line| {
            clean.insert(Line(line.into()), SlotIndex(line), SegmentSerial(1));
        });
        for first in 0..40 {
            clean.remove_all(Line(first * 400), 200);
        }
        assert!(clean.slots.lines() > LINES as usize / 2, "at once: {}", clean.slots.lines());
        assert!(clean.forgotten.len() <= FORGOTTEN_MAX);
        let is_found = |clean: &CleanLines, line| clean.find(Line(line)).is_some();
        assert!((0..40).all(|first| (0..200).all(|line| !is_found(&clean, first * 400 + line))));
        assert!(is_found(&clean, 300) && is_found(&clean, 19_000));
        // A bucket is walked with each line that comes.
        for line in 0..5_000 {
            clean.insert(Line(1 << 30 | line), SlotIndex(LINES + line as u32), SegmentSerial(1));
        }
        assert!(clean.forgotten.is_empty() && is_found(&clean, 300));
        assert!((0..40).all(|first| (0..200).all(|line| !is_found(&clean, first * 400 + line))));
        assert!(clean.slots.lines() < 25_000 - 40 * 200 + 1, "{}", clean.slots.lines());
    }

    proptest! {
        #[test]
        fn does_as_a_map(
            at_once in prop::sample::select(vec![0usize, 2, 100]),
            steps in proptest::collection::vec((0u8..3, 0u64..40, 0u32..32), 0..200),
        ) {
            let mut clean = CleanLines::new(4, 8, at_once, LineHash::new(7));
            let mut model: BTreeMap<u64, u32> = BTreeMap::new();
            for (what, line, slot) in steps {
                match what {
                    0 => {
                        clean.insert(Line(line), SlotIndex(slot), SegmentSerial(1));
                        model.retain(|known, at| *known != line && *at != slot);
                        model.insert(line, slot);
                    }
                    1 => {
                        clean.remove(Line(line));
                        model.remove(&line);
                    }
                    _ => {
                        clean.remove_all(Line(line), u64::from(slot));
                        model.retain(|known, _| *known < line || *known >= line + u64::from(slot));
                    }
                }
                let in_slots = clean.lines.iter().filter(|line| line.line().is_some()).count();
                prop_assert_eq!(in_slots, clean.slots.lines());
                for line in 0..40 {
                    let found = clean.find(Line(line)).map(|(slot, _)| slot.0);
                    // What came while others were being forgotten may be so, too.
                    let is_forgotten = at_once < 100 && found.is_none();
                    prop_assert!(is_forgotten || found == model.get(&line).copied());
                }
            }
        }
    }
}
