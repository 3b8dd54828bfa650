//! What must hold after each input, whatever came before. Assertions that are cheap stand where
//! they matter; here are those that walk everything, for tests and the fuzzer.

use super::{Engine, Phase, Purpose, destage};
use crate::format::checkpoint::{Checkpoint, LogPosition};
use crate::log::segment::SegmentState;
use crate::units::SegmentIndex;

impl Purpose {
    /// The segment of the cache-disk that is being read.
    fn segment_read(&self) -> Option<SegmentIndex> {
        match self {
            Purpose::Read(part) => part.segment(),
            Purpose::Destage(
                destage::Step::ReadSegment(segment) | destage::Step::ReadSlots { segment, .. },
            ) => Some(*segment),
            _ => None,
        }
    }
}

impl Engine {
    /// Walks everything and checks what must always hold; for tests and the fuzzer.
    ///
    /// # Panics
    /// If something does not hold.
    pub fn check_invariants(&self) {
        self.log.check_invariants();
        if self.phase != Phase::Running {
            return;
        }
        self.log.segments.check_invariants();
        self.check_live_slots();
        self.copies.check_invariants();
        self.check_readers();
        self.check_tables();
        self.check_size();
        self.check_window();
        for (line, mask) in &self.poisoned {
            assert!(self.table.find_if_known(*line).mask().and(*mask).is_empty());
            assert!(self.line_mask(*line).contains(*mask));
        }
    }

    /// What a checkpoint lists has limits, and so has what a start would make of the log.
    fn check_tables(&self) {
        let limits = &self.config.limits;
        assert!(
            self.poisoned.len() as u64 <= limits.poisoned_lines,
            "{} damaged lines are listed",
            self.poisoned.len()
        );
        let rebuilt = self.zeroes_rebuilt.rebuilt_max();
        assert!(rebuilt <= limits.zero_ranges, "a start would find {rebuilt} zero ranges");
        // Many of them are walked by tests that make many, and only those would take long.
        if self.is_passing_by() || self.zeroes_rebuilt.listed().len() > 1000 {
            return;
        }
        let mut both = self.zeroes_destaging.clone();
        self.zeroes.iter().for_each(|range| both.insert(range));
        assert_eq!(both, *self.zeroes_rebuilt.listed(), "a checkpoint lists all zero ranges");
        assert!(both.len() <= limits.zero_ranges, "{} zero ranges are listed", both.len());
    }

    /// Encodes what a checkpoint would list now, and decodes it again; for tests and the fuzzer,
    /// after every start.
    ///
    /// # Panics
    /// If it does not come back.
    pub fn check_checkpoint(&self) {
        let geometry = &self.superblock.geometry;
        let position = LogPosition {
            segment: SegmentIndex(0),
            serial: self.log.newest_serial(),
            slot_in_segment: geometry.slots_per_segment(),
            next_record: self.log.newest_record().next(),
            previous_checksum: 0,
        };
        let picture = self.index_picture(position);
        let bytes = picture.encode_for(geometry);
        let back = Checkpoint::decode(bytes.bytes(), self.superblock.uuid, geometry);
        assert_eq!(back.as_ref(), Ok(&picture), "what is encoded is decoded");
    }

    /// A slot is live if a line's fragment is in it, and belongs to one line only.
    fn check_live_slots(&self) {
        let geometry = &self.superblock.geometry;
        let mut live = vec![0; self.log.segments.total() as usize];
        let mut taken = vec![false; (geometry.segments * geometry.slots_per_segment()) as usize];
        for (line, pieces) in self.table.iter() {
            assert!(self.line_mask(line).contains(pieces.mask()));
            for (slot, mask) in pieces.as_slice() {
                assert!(!mask.is_empty(), "{line:?} has a slot without a fragment");
                let is_taken = &mut taken[slot.0 as usize];
                assert!(!std::mem::replace(is_taken, true), "{slot:?} is of two lines");
                let (segment, slot_in_segment) = geometry.locate(*slot);
                live[segment.0 as usize] += 1;
                if let SegmentState::Buffered(buffer) = self.log.segments.get(segment).state {
                    assert!(slot_in_segment < self.log.used_slots(buffer), "{slot:?} is not used");
                }
            }
        }
        // Dead, but the window under way needs them.
        for slot in self.windows.dead_slots() {
            assert!(!taken[slot.0 as usize], "{slot:?} is not dead");
            live[geometry.locate(slot).0.0 as usize] += 1;
        }
        // What is not in memory is listed on the cache-disk.
        let is_all = !self.table.has_budget() || self.table.lines() == 0;
        for (index, segment) in self.log.segments.iter() {
            let in_memory = live[index.0 as usize];
            assert!(segment.live_slots >= in_memory, "live slots of {index:?}");
            assert!(segment.live_slots == in_memory || !is_all, "live slots of {index:?}");
        }
    }

    /// A segment that is being read must not be filled (trap 10 of the design).
    fn check_readers(&self) {
        let mut readers = vec![0; self.log.segments.total() as usize];
        let purposes = self.ios.values().filter_map(|io| io.purpose.as_ref());
        for segment in purposes.filter_map(Purpose::segment_read) {
            readers[segment.0 as usize] += 1;
        }
        if let Some(segment) = self.searched_segment() {
            readers[segment.0 as usize] += 1;
        }
        for slot in self.slots_that_wait_for_the_arm() {
            readers[self.superblock.geometry.locate(slot).0.0 as usize] += 1;
        }
        for (index, segment) in self.log.segments.iter() {
            assert_eq!(segment.readers, readers[index.0 as usize], "readers of {index:?}");
        }
    }
}
