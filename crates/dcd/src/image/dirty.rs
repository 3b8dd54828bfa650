//! What a cache holds that its data-disk does not: as ranges, for people who must decide whether it
//! may be lost.
//!
//! It is what the cache-disk alone tells. Memory that outlived a dcd that was killed may hold more.

use std::fmt::Write as _;

use dcd_daemon::units_text::format_size;
use dcd_engine::Superblock;
use dcd_engine::format::superblock::CacheState;
use dcd_engine::units::{BLOCK_SIZE, FRAGMENTS_PER_LINE};
use serde_json::{Value, json};

use super::log::{Live, follow};
use super::{CacheImage, ImageError, newest};
use crate::output::count;

/// What is newer in the log than on the data-disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DirtyKind {
    /// Data.
    Data,
    /// Zeroes.
    Zeroes,
    /// Data whose only copy is damaged.
    Damaged,
}

impl DirtyKind {
    fn name(self) -> &'static str {
        match self {
            DirtyKind::Data => "data",
            DirtyKind::Zeroes => "zeroes",
            DirtyKind::Damaged => "damaged",
        }
    }
}

/// Adjacent blocks of 512 bytes of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirtyRange {
    /// What they hold.
    pub kind: DirtyKind,
    /// The first.
    pub start: u64,
    /// The one after the last.
    pub end: u64,
}

/// All of it.
#[derive(Debug)]
pub struct Dirty {
    /// In the order of addresses.
    pub ranges: Vec<DirtyRange>,
    /// The cache was not closed in order, or is being used.
    pub is_open: bool,
}

impl Dirty {
    /// Reads the log. The error is that of the newer checkpoint, without which nothing is known.
    pub fn of(
        image: &CacheImage,
        superblock: &Superblock,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Dirty, ImageError> {
        let is_open = superblock.state == CacheState::Open;
        if superblock.state == CacheState::Detached {
            return Ok(Dirty { ranges: Vec::new(), is_open });
        }
        let checkpoints = image.checkpoints(superblock);
        let Some(checkpoint) = newest(&checkpoints) else {
            let [first, _] = checkpoints;
            return Err(first.expect_err("none can be read"));
        };
        let log = follow(image, superblock, checkpoint, progress);
        let live = Live::of_log(checkpoint, &log, &superblock.geometry);
        Ok(Dirty { ranges: ranges_of(&live, superblock.data_disk.blocks), is_open })
    }

    /// Whether nothing would be lost with the cache.
    pub fn is_clean(&self) -> bool {
        self.ranges.is_empty() && !self.is_open
    }

    /// Bytes in all ranges.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| (range.end - range.start) * BLOCK_SIZE).sum()
    }

    /// `3 ranges, 1.5 MiB`, and what makes that uncertain.
    pub fn summary(&self) -> String {
        let in_use = if self.is_open { ", and it was not closed in order" } else { "" };
        let ranges = count(self.ranges.len() as u64, "range");
        format!("{ranges}, {}{in_use}", format_size(self.bytes()))
    }

    /// A line for each of the first `most` ranges, and one for the others.
    pub fn lines(&self, most: usize) -> String {
        let mut text = String::new();
        for range in self.ranges.iter().take(most) {
            let size = format_size((range.end - range.start) * BLOCK_SIZE);
            let kind = match range.kind {
                DirtyKind::Damaged => "damaged data",
                kind => kind.name(),
            };
            let offset = range.start * BLOCK_SIZE;
            let _ = writeln!(text, "  {size:>10} of {kind} at byte {offset}");
        }
        if let Some(rest) = self.ranges.get(most..).filter(|rest| !rest.is_empty()) {
            let _ = writeln!(text, "  and {}", count(rest.len() as u64, "more range"));
        }
        text
    }

    /// Everything.
    pub fn json(&self) -> Value {
        let range = |range: &DirtyRange| {
            json!({
                "kind": range.kind.name(),
                "offset": range.start * BLOCK_SIZE,
                "bytes": (range.end - range.start) * BLOCK_SIZE,
            })
        };
        json!({
            "dirty_bytes": self.bytes(),
            "range_count": self.ranges.len(),
            "closed_in_order": !self.is_open,
            "ranges": self.ranges.iter().map(range).collect::<Vec<_>>(),
        })
    }
}

/// Merged, clipped to the volume: the last line of an odd-sized disk is not whole.
fn ranges_of(live: &Live, volume_blocks: u64) -> Vec<DirtyRange> {
    let mut ranges: Vec<DirtyRange> = Vec::new();
    for (line, mask, kind) in live.fragments() {
        for index in mask.indices() {
            let start = line.lba().0 + index as u64;
            ranges.push(DirtyRange { kind, start, end: start + 1 });
        }
    }
    // Fragments lie over zeroes, never the other way round.
    let mut next = 0;
    let mut zeroes = Vec::new();
    for (start, end) in live.zeroes() {
        let mut start = start.saturating_mul(FRAGMENTS_PER_LINE);
        let end = end.saturating_mul(FRAGMENTS_PER_LINE);
        while ranges.get(next).is_some_and(|range| range.end <= start) {
            next += 1;
        }
        while let Some(range) = ranges.get(next).filter(|range| range.start < end) {
            zeroes.push(DirtyRange { kind: DirtyKind::Zeroes, start, end: range.start });
            start = range.end;
            next += 1;
        }
        zeroes.push(DirtyRange { kind: DirtyKind::Zeroes, start, end });
    }
    ranges.append(&mut zeroes);
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    let mut merged: Vec<DirtyRange> = Vec::new();
    for mut range in ranges {
        range.end = range.end.min(volume_blocks);
        if range.start >= range.end {
            continue;
        }
        match merged.last_mut() {
            Some(last) if last.end == range.start && last.kind == range.kind => {
                last.end = range.end;
            }
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use dcd_engine::Uuid;
    use dcd_engine::format::checkpoint::{Checkpoint, LiveSlot, LogPosition};
    use dcd_engine::units::{
        FragmentMask, Line, RecordNumber, SegmentIndex, SegmentSerial, SlotIndex,
    };
    use dcd_engine::zero_ranges::ZeroRange;

    /// ```text
    /// line        0        1        2        3        4 (four blocks only)
    /// data        ....1111 11111111 ........ .1......
    /// zeroes                                 00000000 0000
    /// damaged              ........ 1.......
    /// ```
    #[test]
    fn ranges_are_merged_cut_and_clipped() {
        let slot = |line, mask, slot| LiveSlot {
            line: Line(line),
            mask: FragmentMask(mask),
            slot: SlotIndex(slot),
            checksum: 0,
        };
        let checkpoint = Checkpoint {
            uuid: Uuid([0; 16]),
            generation: 1,
            epoch: 1,
            position: LogPosition {
                segment: SegmentIndex(0),
                serial: SegmentSerial(1),
                slot_in_segment: 0,
                next_record: RecordNumber(1),
                previous_checksum: 0,
            },
            free: Vec::new(),
            filled: Vec::new(),
            live: vec![slot(0, 0xf0, 1), slot(1, 0x0f, 2), slot(1, 0xf0, 3), slot(3, 0x02, 4)],
            zeroes: vec![ZeroRange { line: Line(3), lines: 2, may_unmap: true }],
            poisoned: vec![(Line(2), FragmentMask(0x01))],
            witnesses: Vec::new(),
            copy_pages: Vec::new(),
        };
        let range = |kind, start, end| DirtyRange { kind, start, end };
        let expected = [
            range(DirtyKind::Data, 4, 16),
            range(DirtyKind::Damaged, 16, 17),
            range(DirtyKind::Zeroes, 24, 25),
            range(DirtyKind::Data, 25, 26),
            range(DirtyKind::Zeroes, 26, 36),
        ];
        assert_eq!(ranges_of(&Live::of_checkpoint(&checkpoint), 36), expected);
        let dirty = Dirty { ranges: expected.to_vec(), is_open: true };
        assert_eq!(dirty.summary(), "5 ranges, 12.5 KiB, and it was not closed in order");
        let text = dirty.lines(1);
        assert_eq!(text, "       6 KiB of data at byte 2048\n  and 4 more ranges\n".to_owned());
    }
}
