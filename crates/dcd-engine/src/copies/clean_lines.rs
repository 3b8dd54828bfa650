//! Lines that were destaged and whose slot in the log has not been filled again: the cache-disk
//! still has them, so they are read from there. Known only in memory, and lost at the end; a start
//! begins without.
//!
//! Nothing is taken out when a segment is filled again: its serial tells that what was known of its
//! slots is over.

use crate::line_hash::LineHash;
use crate::units::{Line, SegmentSerial, SlotIndex};
use crate::used_places::UsedPlaces;

/// No slot: the end of a chain. Slots and lines are kept with one added: zero is memory that
/// nothing has touched.
const NONE: u32 = 0;
/// No line.
const EMPTY: u64 = 0;

/// The lines, by slot and by line.
pub struct CleanLines {
    hash: LineHash,
    slots_per_segment: u32,
    /// Of each segment, the filling that is known of.
    serials: Vec<u64>,
    /// Of each slot: its line, and one.
    lines: Vec<u64>,
    /// Slots that hold one, and how many those are: a trim of much does not walk all slots.
    used: UsedPlaces,
    count: u64,
    /// Chains of slots by line: first of each bucket, next of each slot; each and one.
    heads: Vec<u32>,
    next: Vec<u32>,
}

impl CleanLines {
    /// None of the slots of so many segments holds a clean line.
    pub fn new(segments: u32, slots_per_segment: u32, hash: LineHash) -> CleanLines {
        let slots = (segments * slots_per_segment) as usize;
        CleanLines {
            hash,
            slots_per_segment,
            serials: vec![0; segments as usize],
            lines: vec![EMPTY; slots],
            used: UsedPlaces::new(slots),
            count: 0,
            heads: vec![NONE; slots.next_power_of_two()],
            next: vec![NONE; slots],
        }
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.serials.len() * size_of::<u64>()
            + self.lines.len() * (size_of::<u64>() + size_of::<u32>())
            + self.heads.len() * size_of::<u32>()
            + self.used.memory_bytes()
    }

    fn bucket(&self, line: u64) -> usize {
        self.hash.place(line, self.heads.len())
    }

    /// The line is in this slot, of a segment with this serial, and on the data-disk.
    pub fn insert(&mut self, line: Line, slot: SlotIndex, serial: SegmentSerial) {
        self.remove(line);
        let segment = slot.0 / self.slots_per_segment;
        if std::mem::replace(&mut self.serials[segment as usize], serial.0) != serial.0 {
            let first = segment * self.slots_per_segment;
            (first..first + self.slots_per_segment).for_each(|slot| self.clear(slot));
        }
        self.clear(slot.0);
        let bucket = self.bucket(line.0);
        self.lines[slot.0 as usize] = line.0 + 1;
        self.used.insert(slot.0 as usize);
        self.count += 1;
        self.next[slot.0 as usize] = self.heads[bucket];
        self.heads[bucket] = slot.0 + 1;
    }

    /// The slot of a line, and the serial that its segment must still have.
    pub fn find(&self, line: Line) -> Option<(SlotIndex, SegmentSerial)> {
        let mut at = self.heads[self.bucket(line.0)];
        while at != NONE {
            let slot = at - 1;
            if self.lines[slot as usize] == line.0 + 1 {
                let segment = slot / self.slots_per_segment;
                let serial = SegmentSerial(self.serials[segment as usize]);
                return Some((SlotIndex(slot), serial));
            }
            at = self.next[slot as usize];
        }
        None
    }

    /// The line has changed.
    pub fn remove(&mut self, line: Line) {
        if let Some((slot, _)) = self.find(line) {
            self.clear(slot.0);
        }
    }

    /// The same of a run of lines, which may be longer than the disk.
    pub fn remove_all(&mut self, line: Line, lines: u64) {
        if lines < self.count {
            return (line.0..line.0.saturating_add(lines)).for_each(|line| self.remove(Line(line)));
        }
        let is_within = |slot: &usize| {
            let of = self.lines[*slot] - 1;
            of >= line.0 && of - line.0 < lines
        };
        let within: Vec<usize> = self.used.iter().filter(is_within).collect();
        within.into_iter().for_each(|slot| self.clear(slot as u32));
    }

    fn clear(&mut self, slot: u32) {
        let line = std::mem::replace(&mut self.lines[slot as usize], EMPTY);
        if line == EMPTY {
            return;
        }
        self.used.remove(slot as usize);
        self.count -= 1;
        let bucket = self.bucket(line - 1);
        let behind = self.next[slot as usize];
        let mut link = self.heads[bucket];
        if link == slot + 1 {
            self.heads[bucket] = behind;
            return;
        }
        while self.next[link as usize - 1] != slot + 1 {
            link = self.next[link as usize - 1];
        }
        self.next[link as usize - 1] = behind;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_segment_that_is_filled_again_is_known_by_its_serial() {
        let mut clean = CleanLines::new(2, 4, LineHash::new(0));
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

    /// A discard of much walks what is there, not every slot and not every line.
    #[test]
    fn a_large_discard_walks_what_is_there() {
        let mut clean = CleanLines::new(100_000, 256, LineHash::new(0));
        for line in 0..100 {
            clean.insert(Line(line * 1000), SlotIndex(line as u32 * 256), SegmentSerial(1));
        }
        clean.used.take_steps();
        clean.remove_all(Line(0), 50_000);
        let steps = clean.used.take_steps();
        assert!(steps < 2000, "{steps} steps");
        assert_eq!((clean.count, clean.find(Line(49_000)).is_some()), (50, false));
        assert!(clean.find(Line(50_000)).is_some());
    }

    proptest! {
        #[test]
        fn does_as_a_map(steps in proptest::collection::vec((0u8..3, 0u64..40, 0u32..32), 0..200)) {
            let mut clean = CleanLines::new(4, 8, LineHash::new(7));
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
                prop_assert_eq!(clean.count, model.len() as u64);
                prop_assert_eq!(clean.used.iter().count(), model.len());
                for line in 0..40 {
                    let found = clean.find(Line(line)).map(|(slot, _)| slot.0);
                    prop_assert_eq!(found, model.get(&line).copied());
                }
            }
        }
    }
}
