//! Which lines a segment holds is told by its records, and by the lookup table where a record
//! cannot be read, or several segments are emptied at once: all of the table is looked through for
//! them, a part at a time while requests go on.

use std::collections::BTreeSet;

use super::Work;
use crate::engine::Engine;
use crate::engine::index::{Image, Victim};
use crate::log::lookup_table::Walker;
use crate::units::{Duration, Line, SegmentIndex, SlotIndex, Time};

/// As short as an engine can say: others have their turn between.
const PAUSE: Duration = Duration::from_micros(1);

/// How far it is. Nobody fills the segment meanwhile: it has a reader. The others may be filled:
/// what is not where it was found is no victim's any more.
pub(super) struct Search {
    segment: SegmentIndex,
    others: BTreeSet<SegmentIndex>,
    /// What was read of it, if it was.
    images: Vec<Image>,
    found: Vec<(Line, SlotIndex)>,
    /// Memory was looked through: what is not there is listed on the cache-disk.
    is_in_run: bool,
    /// What comes next is on its way.
    waits: bool,
    /// A part went since the last input.
    has_paused: bool,
}

impl Engine {
    /// Lines of the segment are gathered when all are found.
    pub(super) fn search(&mut self, segment: SegmentIndex, images: Vec<Image>) {
        self.search_with(segment, BTreeSet::new(), images);
    }

    /// The same, and those of others.
    pub(super) fn search_with(
        &mut self,
        segment: SegmentIndex,
        others: BTreeSet<SegmentIndex>,
        images: Vec<Image>,
    ) {
        self.log.segments.add_reader(segment);
        self.table.begin_walk(Walker::Destage);
        self.destage.work = Work::Searching(Search {
            segment,
            others,
            images,
            found: Vec::new(),
            is_in_run: false,
            waits: false,
            has_paused: false,
        });
    }

    /// The next part. Tells whether anything moved.
    pub(super) fn advance_search(&mut self) -> bool {
        let Work::Searching(search) = &mut self.destage.work else { return false };
        if self.health.cache_disk_failed() {
            self.end_search();
            return true;
        }
        if search.has_paused {
            return false;
        }
        search.has_paused = true;
        let (segment, geometry) = (search.segment, self.superblock.geometry);
        let count = self.config.limits.discarded_lines;
        if search.is_in_run {
            return self.search_run(segment, count);
        }
        let (others, found) = (&search.others, &mut search.found);
        let is_own = |of| of == segment || others.contains(&of);
        let has_more = self.table.walk(Walker::Destage, count, |_, line, pieces| {
            let slots = pieces.as_slice().iter().map(|(slot, _)| *slot);
            let own = slots.filter(|slot| is_own(geometry.locate(*slot).0));
            found.extend(own.map(|slot| (line, slot)));
        });
        if !has_more {
            search.is_in_run = true;
            self.begin_scan(Walker::Destage);
        }
        true
    }

    /// The same where memory has only a part of the index.
    fn search_run(&mut self, segment: SegmentIndex, count: usize) -> bool {
        let geometry = self.superblock.geometry;
        let mut found = Vec::new();
        let (has_more, waits) = self.walk_listed(Walker::Destage, count, |table, live| {
            if geometry.locate(live.slot).0 == segment && table.is_as_listed(live.line) {
                found.push((live.line, live.slot));
            }
        });
        let Work::Searching(search) = &mut self.destage.work else { unreachable!("under way") };
        search.found.append(&mut found);
        search.waits = waits;
        if !has_more {
            self.end_search();
        }
        !waits
    }

    fn end_search(&mut self) {
        let Work::Searching(search) = std::mem::take(&mut self.destage.work) else {
            unreachable!("under way");
        };
        self.end_scan(Walker::Destage);
        self.log.segments.drop_reader(search.segment);
        let Search { segment, others, images, found: mut lines, .. } = search;
        let geometry = self.superblock.geometry;
        lines.extend(self.windows.kept_slots_of(|slot| {
            let of = geometry.locate(slot).0;
            of == segment || others.contains(&of)
        }));
        if self.health.cache_disk_failed() {
            return self.put_images(images);
        }
        let (others, lines_of_first) = (others.into_iter().collect(), lines.len());
        let is_complete = false;
        self.empty(Victim { segment, others, images, lines, lines_of_first, is_complete });
    }

    pub(super) fn search_wake_up(&self) -> Option<Time> {
        match &self.destage.work {
            Work::Searching(search) if !search.waits => Some(self.now.after(PAUSE)),
            _ => None,
        }
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
            Work::Admitting(segment) => Some(*segment),
            _ => None,
        }
    }
}
