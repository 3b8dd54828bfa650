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
//!
//! Parts come one after a while where requests follow one another closely ([`BUSY_PART_EVERY`]),
//! unless somebody waits for the end.
//!
//! Within a budget ([`super::index`]) what is not in memory is merged in from the run of the
//! checkpoint before, bucket by bucket, and the result is the next run. That is all of the index,
//! where what has changed is little of it: parts always come so ([`PART_EVERY`]).

use super::Engine;
use super::checkpoint::PAUSE;
use super::index::Next;
use crate::buffer::Buffer;
use crate::buffer_pool::BufferPool;
use crate::format::checkpoint::{
    Checkpoint, CheckpointWriter, Ending, HEADER_SIZE, LiveSlot, LogPosition,
};
use crate::format::geometry::Geometry;
use crate::log::index_run::{IndexRun, RunBuilder};
use crate::log::lookup_table::Walker;
use crate::units::{Duration, SegmentIndex, SegmentSerial, Time};

/// While requests follow one another closely a part is one bucket of the index, some 500 lines, which
/// no walk stops within. It takes 40 to 60 us of a large index: memory that no processor cache has.
const BUSY_LINES_MAX: usize = 64;
/// And a part is gathered so long after the one before. With one behind each input p99.9 of writes was
/// 28 ms at 106 million lines, 13 ms at 0.9 million: a batch that is destaged is hundreds of inputs.
const BUSY_PART_EVERY: Duration = Duration::from_micros(250);
/// But the gathering is over before so large a share of what is logged between two checkpoints has been
/// logged, because a start reads that, too: while the log fills, and when it is full.
const SHARE_WHEN_FILLING: u64 = 16;
const SHARE_WHEN_FULL: u64 = 4;
/// An index of so many parts is gathered behind any inputs: all of it takes a millisecond or two.
const FEW_PARTS: usize = 32;
/// Within a budget a part is gathered so long after the one before: a million lines in a second,
/// and time is left for requests.
pub(super) const PART_EVERY: Duration = Duration::from_micros(500);
/// Segments are looked at so many times as fast as lines.
const SEGMENTS_FOR_LINE: u32 = 8;

/// How far it is.
pub(super) struct Gathering {
    writer: CheckpointWriter,
    /// Segments below this one were looked at.
    segment: u32,
    /// A part was gathered since the last input.
    has_paused: bool,
    /// The next part comes then, if nobody waits for it.
    next_at: Time,
    merging: Option<Merging>,
    progress: Progress,
}

/// How far it has to be, by what was logged since it began.
pub(super) struct Progress {
    /// Lines of the index, and how many of them were looked at.
    lines: u64,
    lines_seen: u64,
    /// Lines that had been logged when it began, and that may be logged until it ends.
    logged_before: u64,
    may_be_logged: u64,
}

impl Progress {
    /// `due_segments`: those that are filled between two checkpoints, of so many slots.
    pub(super) fn new(
        lines: u64,
        logged: u64,
        due_segments: u64,
        slots: u64,
        is_full: bool,
    ) -> Self {
        let share = if is_full { SHARE_WHEN_FULL } else { SHARE_WHEN_FILLING };
        let may_be_logged = (due_segments * slots / share).max(1);
        Progress { lines, lines_seen: 0, logged_before: logged, may_be_logged }
    }

    fn is_behind(&self, logged: u64) -> bool {
        let logged = u128::from(logged - self.logged_before);
        u128::from(self.lines_seen) * u128::from(self.may_be_logged)
            < u128::from(self.lines) * logged
    }
}

/// A run that is made of the one before and of memory.
struct Merging {
    builder: RunBuilder,
    /// Buckets below this one were merged.
    next: usize,
    /// The one that is being merged, and what the run before has of it.
    bucket: Option<usize>,
    listed: Vec<LiveSlot>,
    /// The rest of the run before is on its way.
    waits: bool,
}

impl Gathering {
    pub(super) fn new(
        writer: CheckpointWriter,
        builder: Option<RunBuilder>,
        progress: Progress,
    ) -> Gathering {
        let merging = builder.map(|builder| Merging {
            builder,
            next: 0,
            bucket: None,
            listed: Vec::new(),
            waits: false,
        });
        let next_at = Time::ZERO;
        Gathering { writer, segment: 0, has_paused: false, next_at, merging, progress }
    }

    /// Whether another part may be gathered behind the same input. `logged`: lines that ever were.
    pub(super) fn may_go_on(&self, now: Time, logged: u64, is_wanted: bool) -> bool {
        let is_late = self.merging.is_none() && self.progress.is_behind(logged);
        !self.has_paused && (self.next_at <= now || is_late || is_wanted)
    }

    /// When it goes on if nothing else happens; none if it waits for a disk.
    pub(super) fn wake_up(&self, now: Time, is_wanted: bool) -> Option<Time> {
        let waits = self.merging.as_ref().is_some_and(|merging| merging.waits);
        let soon = now.after(PAUSE);
        (!waits).then_some(if is_wanted { soon } else { self.next_at.max(soon) })
    }

    /// What it waits for has been read.
    pub(super) fn run_came(&mut self) {
        self.has_paused = false;
        if let Some(merging) = &mut self.merging {
            merging.waits = false;
        }
    }

    pub(super) fn go_on(&mut self) {
        self.has_paused = false;
    }

    /// What was gathered, to be written.
    pub(super) fn take(&mut self, bytes: usize, buffers: &mut BufferPool) -> Option<(u64, Buffer)> {
        let (offset, piece) = self.writer.take(bytes, buffers)?;
        if let Some(merging) = &mut self.merging {
            merging.builder.written(piece.bytes());
        }
        Some((offset, piece))
    }

    /// The rest, and the run that it ends.
    pub(super) fn finish(
        self,
        listed: &Checkpoint,
        geometry: &Geometry,
    ) -> (Ending, Option<IndexRun>) {
        let ending = self.writer.finish(listed, Some(geometry));
        let run = self.merging.map(|mut merging| {
            merging.builder.written(&ending.bytes[HEADER_SIZE..]);
            merging.builder.finish()
        });
        (ending, run)
    }
}

impl Engine {
    /// Gathers a part, and tells whether there is more. `is_urgent`: requests wait for the checkpoint.
    pub(super) fn gather_index_part(
        &mut self,
        from: &LogPosition,
        gathering: &mut Gathering,
        is_urgent: bool,
    ) -> bool {
        let lines_max = self.config.limits.checkpoint_lines;
        // Within a budget parts come by the clock in any case, and a small index is few parts.
        let is_busy = gathering.merging.is_none()
            && self.table.lines() > lines_max.saturating_mul(FEW_PARTS)
            && !is_urgent
            && self.requests_come();
        // Zeroes on their way may end between two parts, and lines be destaged above them. The
        // index is small then (`may_gather`): it is gathered at once.
        let mut lines = match self.destage.zeroes_under_way() {
            true => usize::MAX,
            false if is_busy => lines_max.min(BUSY_LINES_MAX),
            false => lines_max,
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
        let has_more = end < total || self.gather_lines(from, gathering, lines.max(1));
        gathering.has_paused = has_more;
        gathering.next_at = match &gathering.merging {
            Some(merging) if !merging.waits => self.now.after(PART_EVERY),
            None if is_busy => self.now.after(BUSY_PART_EVERY),
            _ => gathering.next_at,
        };
        has_more
    }

    /// The same of so many lines.
    fn gather_lines(
        &mut self,
        from: &LogPosition,
        gathering: &mut Gathering,
        lines: usize,
    ) -> bool {
        let Gathering { writer, merging, progress, .. } = gathering;
        if let Some(merging) = merging {
            return self.merge_lines(from, writer, merging, lines);
        }
        let (segments, geometry) = (&self.log.segments, &self.superblock.geometry);
        self.table.walk(Walker::Checkpoint, lines, |table, line, pieces| {
            progress.lines_seen += 1;
            for (slot, mask) in pieces.as_slice() {
                let (segment, slot_in_segment) = geometry.locate(*slot);
                let serial = segments.get(segment).serial();
                if !is_behind(from, serial, slot_in_segment) {
                    let checksum = table.checksum(*slot);
                    writer.put_live(&LiveSlot { line, mask: *mask, slot: *slot, checksum });
                }
            }
        })
    }

    /// The same, where memory has only a part of the index.
    fn merge_lines(
        &mut self,
        from: &LogPosition,
        writer: &mut CheckpointWriter,
        merging: &mut Merging,
        lines: usize,
    ) -> bool {
        let mut left = lines;
        merging.waits = false;
        while left > 0 {
            let next = self.next_listed(Walker::Checkpoint);
            let listed = match next {
                Next::Waits => {
                    merging.waits = true;
                    return true;
                }
                Next::Over => None,
                Next::Item(item) => Some((self.table.bucket_of(item.line), item)),
            };
            let in_memory = self.table.bucket_from(merging.next);
            let first = listed.map(|(bucket, _)| bucket).into_iter().chain(in_memory).min();
            let Some(bucket) = merging.bucket.or(first) else { return false };
            merging.bucket = Some(bucket);
            if let Some((_, item)) = listed.filter(|(of, _)| *of == bucket) {
                merging.listed.push(item);
                self.pop_listed(Walker::Checkpoint);
                continue;
            }
            let (segments, geometry) = (&self.log.segments, &self.superblock.geometry);
            let merged = self.table.merge_bucket(bucket, &merging.listed, |slot| {
                let (segment, slot_in_segment) = geometry.locate(slot);
                is_behind(from, segments.get(segment).serial(), slot_in_segment)
            });
            for live in &merged {
                merging.builder.item(writer.items(), self.table.order(live.line));
                writer.put_live(live);
            }
            left = left.saturating_sub(merged.len() + 1);
            merging.listed.clear();
            (merging.bucket, merging.next) = (None, bucket + 1);
        }
        true
    }
}

/// Whether a slot of a segment with this serial was filled behind the position.
fn is_behind(from: &LogPosition, serial: SegmentSerial, slot_in_segment: u32) -> bool {
    serial > from.serial || serial == from.serial && slot_in_segment >= from.slot_in_segment
}
