//! Which lines a segment holds is told by its records, and by the lookup table where a record
//! cannot be read: all of the table is looked through for them, a part at a time while requests go
//! on.

use super::Work;
use crate::buffer::Buffer;
use crate::engine::Engine;
use crate::log::lookup_table::Walker;
use crate::units::{Duration, Line, SegmentIndex, SlotIndex, Time};

/// As short as an engine can say: others have their turn between.
const PAUSE: Duration = Duration::from_micros(1);

/// How far it is. Nobody fills the segment meanwhile: it has a reader.
pub(super) struct Search {
    segment: SegmentIndex,
    /// What was read of it, if it was.
    image: Option<Buffer>,
    found: Vec<(Line, SlotIndex)>,
    /// A part went since the last input.
    has_paused: bool,
}

impl Engine {
    /// Lines of the segment are gathered when all are found.
    pub(super) fn search(&mut self, segment: SegmentIndex, image: Option<Buffer>) {
        self.log.segments.add_reader(segment);
        self.table.begin_walk(Walker::Destage);
        let search = Search { segment, image, found: Vec::new(), has_paused: false };
        self.destage.work = Work::Searching(search);
    }

    /// The next part. Tells whether anything moved.
    pub(super) fn advance_search(&mut self) -> bool {
        let Work::Searching(search) = &mut self.destage.work else { return false };
        let mut has_more = false;
        if !self.health.cache_disk_failed() {
            if search.has_paused {
                return false;
            }
            search.has_paused = true;
            let (segment, geometry) = (search.segment, self.superblock.geometry);
            let found = &mut search.found;
            has_more = self.table.walk(
                Walker::Destage,
                self.config.limits.discarded_lines,
                |_, line, pieces| {
                    let slots = pieces.as_slice().iter().map(|(slot, _)| *slot);
                    let own = slots.filter(|slot| geometry.locate(*slot).0 == segment);
                    found.extend(own.map(|slot| (line, slot)));
                },
            );
        }
        if !has_more {
            self.end_search();
        }
        true
    }

    fn end_search(&mut self) {
        let Work::Searching(search) = std::mem::take(&mut self.destage.work) else {
            unreachable!("under way");
        };
        self.log.segments.drop_reader(search.segment);
        if !self.health.cache_disk_failed() {
            self.gather(search.segment, &search.found, search.image.as_ref());
        }
        self.buffers.put(search.image);
    }

    pub(super) fn search_wake_up(&self) -> Option<Time> {
        matches!(self.destage.work, Work::Searching(_)).then(|| self.now.after(PAUSE))
    }

    /// Something came.
    pub(in crate::engine) fn go_on_searching(&mut self) {
        if let Work::Searching(search) = &mut self.destage.work {
            search.has_paused = false;
        }
    }

    /// The segment that has a reader for it.
    pub(in crate::engine) fn searched_segment(&self) -> Option<SegmentIndex> {
        match &self.destage.work {
            Work::Searching(search) => Some(search.segment),
            _ => None,
        }
    }
}
