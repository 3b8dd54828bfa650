//! The index of a checkpoint, gathered a part at a time while requests go on.
//!
//! A start with the checkpoint replays all records behind its position. So what is gathered need
//! not be the index as it was there: a line may be listed as it was at any moment since.
//!
//! - What was logged behind the position is left out: it is replayed, and the checkpoint may not
//!   speak of slots that were free.
//! - A line that was overwritten meanwhile is missing, or lacks what the record holds; so that
//!   record must be durable before the checkpoint is (step 2 of [`super::checkpoint`]).
//! - A line that was destaged meanwhile is missing: it is on the data-disk, and that was flushed.
//!   Zeroes below it would hide it, so none are brought to the data-disk meanwhile, and without
//!   that no line above them is.
//! - A line that is found damaged leaves the table, and only a list of damage says so, which is
//!   older: the checkpoint is made anew. The same when records are logged again: what was gathered
//!   speaks of their old places.
//! - A segment that was emptied meanwhile may be announced and filled again: the record that says
//!   so is replayed, and a start drops what the checkpoint has of it ([`super::announce`]).

use super::Engine;
use crate::format::checkpoint::{Checkpoint, CheckpointWriter, Ending, LiveSlot, LogPosition};
use crate::format::geometry::Geometry;
use crate::log::lookup_table::Walker;
use crate::units::SegmentIndex;

/// Segments are looked at so many times as fast as lines.
const SEGMENTS_FOR_LINE: u32 = 8;

/// How far it is.
pub(super) struct Gathering {
    writer: CheckpointWriter,
    /// Segments below this one were looked at.
    segment: u32,
    /// A part was gathered since the last input.
    has_paused: bool,
}

impl Gathering {
    pub(super) fn new(writer: CheckpointWriter) -> Gathering {
        Gathering { writer, segment: 0, has_paused: false }
    }

    pub(super) fn has_paused(&self) -> bool {
        self.has_paused
    }

    pub(super) fn go_on(&mut self) {
        self.has_paused = false;
    }

    /// What was gathered, to be written.
    pub(super) fn take(&mut self, bytes: usize) -> Option<(u64, crate::buffer::Buffer)> {
        self.writer.take(bytes)
    }

    pub(super) fn finish(self, listed: &Checkpoint, geometry: &Geometry) -> Ending {
        self.writer.finish(listed, Some(geometry))
    }
}

impl Engine {
    /// Gathers a part, and tells whether there is more.
    pub(super) fn gather_index_part(
        &mut self,
        from: &LogPosition,
        gathering: &mut Gathering,
    ) -> bool {
        // Zeroes on their way may end between two parts, and lines be destaged above them. The
        // index is small then (`may_gather`): it is gathered at once.
        let mut lines = match self.destage.zeroes_under_way() {
            true => usize::MAX,
            false => self.config.limits.checkpoint_lines,
        };
        let total = self.log.segments.total();
        let segments = u32::try_from(lines).unwrap_or(u32::MAX).saturating_mul(SEGMENTS_FOR_LINE);
        let end = gathering.segment.saturating_add(segments).min(total);
        let live = self.log.segments.live_from(SegmentIndex(gathering.segment));
        for (index, segment) in live.take_while(|(index, _)| index.0 < end) {
            let serial = segment.serial();
            let is_behind =
                serial > from.serial || serial == from.serial && from.slot_in_segment == 0;
            if !is_behind {
                gathering.writer.put_filled(index, serial);
            }
        }
        let looked_at = end - gathering.segment;
        gathering.segment = end;
        lines = lines.saturating_sub((looked_at / SEGMENTS_FOR_LINE) as usize);
        let has_more = end < total || {
            let (segments, geometry) = (&self.log.segments, &self.superblock.geometry);
            let writer = &mut gathering.writer;
            self.table.walk(Walker::Checkpoint, lines.max(1), |table, line, pieces| {
                for (slot, mask) in pieces.as_slice() {
                    let (segment, slot_in_segment) = geometry.locate(*slot);
                    let serial = segments.get(segment).serial();
                    let is_behind = serial > from.serial
                        || serial == from.serial && slot_in_segment >= from.slot_in_segment;
                    if !is_behind {
                        let checksum = table.checksum(*slot);
                        writer.put_live(&LiveSlot { line, mask: *mask, slot: *slot, checksum });
                    }
                }
            })
        };
        gathering.has_paused = has_more;
        has_more
    }
}
