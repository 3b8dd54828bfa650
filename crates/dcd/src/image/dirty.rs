//! What a cache holds that its data-disk does not: as ranges, for people who must decide whether it
//! may be lost.
//!
//! It is what the cache-disk alone tells. Memory that outlived a dcd that was killed may hold more.

use dcd_daemon::units_text::format_size;
use dcd_engine::Superblock;
use dcd_engine::format::superblock::CacheState;
use dcd_engine::units::{BLOCK_SIZE, FRAGMENTS_PER_LINE};
use serde::ser::{Serialize, SerializeStruct, Serializer};

use super::log::{Live, follow};
use super::{CacheImage, ImageError, take_newest};
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

impl DirtyRange {
    fn is_joined_by(&self, next: &DirtyRange) -> bool {
        (self.end, self.kind) == (next.start, next.kind)
    }
}

/// All of it.
#[derive(Debug)]
pub struct Dirty {
    /// In the order of addresses.
    pub ranges: Vec<DirtyRange>,
    /// The cache was not closed in order, or is being used.
    pub is_open: bool,
    /// A memory in front of the log may hold what is newer than all of this.
    pub names_nvram: bool,
}

impl Dirty {
    /// Reads the log. The error is that of the newer checkpoint, without which nothing is known.
    pub fn of(
        image: &CacheImage,
        superblock: &Superblock,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Dirty, ImageError> {
        let is_open = superblock.state == CacheState::Open;
        let names_nvram = superblock.nvram.is_some();
        if superblock.state == CacheState::Detached {
            return Ok(Dirty { ranges: Vec::new(), is_open, names_nvram });
        }
        let checkpoint = match image.checkpoints(superblock) {
            [Err(first), Err(_)] => return Err(first),
            checkpoints => take_newest(checkpoints).expect("one can be read"),
        };
        let log = follow(image, superblock, &checkpoint, progress);
        let live = Live::of_log(&checkpoint, &log, &superblock.geometry);
        Ok(Dirty { ranges: ranges_of(&live, superblock.data_disk.blocks), is_open, names_nvram })
    }

    /// Whether nothing would be lost with the cache.
    pub fn is_clean(&self) -> bool {
        self.ranges.is_empty() && !self.is_open && !self.names_nvram
    }

    /// Bytes in all ranges.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| (range.end - range.start) * BLOCK_SIZE).sum()
    }

    /// `3 ranges, 1.5 MiB`, and what makes that uncertain.
    pub fn summary(&self) -> String {
        let in_use = if self.is_open { ", and it was not closed in order" } else { "" };
        let ranges = count(self.ranges.len() as u64, "range");
        let memory = match self.names_nvram {
            true => ", and what is in a memory in front of the log (`dcd inspect nvram`)",
            false => "",
        };
        format!("{ranges}, {}{in_use}{memory}", format_size(self.bytes()))
    }

    /// A line for each of the first `most` ranges, and one for the others.
    pub fn lines(&self, most: usize) -> impl Iterator<Item = String> {
        let line = |range: &DirtyRange| {
            let size = format_size((range.end - range.start) * BLOCK_SIZE);
            let kind = match range.kind {
                DirtyKind::Damaged => "damaged data",
                kind => kind.name(),
            };
            let offset = range.start * BLOCK_SIZE;
            format!("  {size:>10} of {kind} at byte {offset}")
        };
        let rest = self.ranges.len().saturating_sub(most) as u64;
        let rest = (rest > 0).then(|| format!("  and {}", count(rest, "more range")));
        self.ranges.iter().take(most).map(line).chain(rest)
    }
}

/// Ranges become JSON one by one: there may be as many as lines.
impl Serialize for Dirty {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut all = serializer.serialize_struct("Dirty", 4)?;
        all.serialize_field("dirty_bytes", &self.bytes())?;
        all.serialize_field("range_count", &self.ranges.len())?;
        all.serialize_field("closed_in_order", &!self.is_open)?;
        all.serialize_field("ranges", &self.ranges)?;
        all.end()
    }
}

impl Serialize for DirtyRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut range = serializer.serialize_struct("DirtyRange", 3)?;
        range.serialize_field("kind", self.kind.name())?;
        range.serialize_field("offset", &(self.start * BLOCK_SIZE))?;
        range.serialize_field("bytes", &((self.end - self.start) * BLOCK_SIZE))?;
        range.end()
    }
}

/// Merged, clipped to the volume: the last line of an odd-sized disk is not whole.
fn ranges_of(live: &Live, volume_blocks: u64) -> Vec<DirtyRange> {
    let mut ranges: Vec<DirtyRange> = Vec::new();
    for (line, mask, kind) in live.fragments() {
        for index in mask.indices() {
            let start = line.lba().0 + index as u64;
            let next = DirtyRange { kind, start, end: start + 1 };
            match ranges.last_mut() {
                Some(last) if last.is_joined_by(&next) => last.end = next.end,
                _ => ranges.push(next),
            }
        }
    }
    // A line may have both kinds in turn.
    ranges.sort_unstable_by_key(|range| range.start);
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
    ranges.retain_mut(|range| {
        range.end = range.end.min(volume_blocks);
        range.start < range.end
    });
    ranges.dedup_by(|next, last| {
        let is_one = last.is_joined_by(next);
        if is_one {
            last.end = next.end;
        }
        is_one
    });
    ranges
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
            order: 0,
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
        let dirty = Dirty { ranges: expected.to_vec(), is_open: true, names_nvram: false };
        assert_eq!(dirty.summary(), "5 ranges, 12.5 KiB, and it was not closed in order");
        let named = Dirty { ranges: Vec::new(), is_open: false, names_nvram: true };
        assert!(!named.is_clean() && named.summary().contains("in front of the log"));
        let lines: Vec<String> = dirty.lines(1).collect();
        assert_eq!(lines, ["       6 KiB of data at byte 2048", "  and 4 more ranges"]);
    }
}
