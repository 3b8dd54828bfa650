//! Has someone else written to the data-disk? A few lines of it are *witnesses*: their checksums
//! are kept in the checkpoints and compared at start (C28, C29).
//!
//! Chosen are places that mounting or checking a file system changes (superblocks of ext4, XFS and
//! btrfs, partition tables at both ends), some places spread by the UUID, and the lines destaged
//! last. After a crash, lines with a newer copy in the log are not compared: dcd itself may have
//! been writing them. After an orderly end all are.

use std::collections::{BTreeMap, VecDeque};

use crate::config::{DataDiskInfo, RECENT_WITNESSES_MAX};
use crate::format::checkpoint::Witness;
use crate::format::geometry::WITNESSES_MAX;
use crate::units::{FRAGMENTS_PER_LINE, LbaRange, Line, Uuid};

/// Lines with file-system structures at the start of most volumes: ext4 and GPT (0), its table
/// (1-4), 32 KiB, btrfs (64 KiB).
const FIXED_LINES: [u64; 7] = [0, 1, 2, 3, 4, 8, 16];
/// Lines spread over the volume.
const SPREAD_LINES: u64 = 8;

const _: () = assert!(
    FIXED_LINES.len() as u64 + 2 + SPREAD_LINES + (RECENT_WITNESSES_MAX as u64) < WITNESSES_MAX
);

/// The witnesses.
pub(super) struct Witnesses {
    /// Whole lines of the data-disk.
    lines: u64,
    chosen: Vec<Line>,
    checksums: BTreeMap<Line, u32>,
    recent: VecDeque<Line>,
    /// Most of them.
    recent_max: usize,
    /// Lines in the newest durable checkpoint, and in those made since, which may have failed: a
    /// crash finds one of them.
    listed: [Vec<Line>; 2],
}

impl Witnesses {
    pub(super) fn new(uuid: Uuid, data_disk: DataDiskInfo, recent_max: usize) -> Witnesses {
        // The end of an odd-sized disk has no whole line.
        let lines = data_disk.blocks / FRAGMENTS_PER_LINE;
        let mut chosen: Vec<u64> = FIXED_LINES.to_vec();
        chosen.extend([lines.wrapping_sub(1), lines.wrapping_sub(2)]);
        let mut state = u64::from_le_bytes(uuid.0[..8].try_into().expect("eight bytes"));
        for part in 0..SPREAD_LINES {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            chosen
                .push(lines / SPREAD_LINES * part + (state >> 33) % (lines / SPREAD_LINES).max(1));
        }
        chosen.retain(|line| *line < lines);
        chosen.sort_unstable();
        chosen.dedup();
        Witnesses {
            lines,
            chosen: chosen.into_iter().map(Line).collect(),
            checksums: BTreeMap::new(),
            recent: VecDeque::new(),
            recent_max,
            listed: Default::default(),
        }
    }

    /// Those that recovery compares, or reads anew.
    pub(super) fn chosen(&self) -> &[Line] {
        &self.chosen
    }

    /// The checksums of a checkpoint. One that was made for a larger data-disk whose size was never
    /// recorded, or a forged one, may speak of lines that are not there, or of more than a
    /// checkpoint of ours has; those are left out, or the next one could not be read.
    pub(super) fn restore(&mut self, witnesses: &[Witness]) {
        for witness in witnesses.iter().filter(|witness| witness.line.0 < self.lines) {
            if self.chosen.binary_search(&witness.line).is_err() {
                if self.recent.len() >= self.recent_max || self.recent.contains(&witness.line) {
                    continue;
                }
                self.recent.push_back(witness.line);
            }
            self.checksums.insert(witness.line, witness.checksum);
        }
        self.listed[0] = self.checksums.keys().copied().collect();
    }

    /// Forgets what was known of the data-disk: it may rightly have been changed.
    pub(super) fn clear(&mut self) {
        self.checksums.clear();
        self.recent.clear();
    }

    pub(super) fn get(&self, line: Line) -> Option<u32> {
        self.checksums.get(&line).copied()
    }

    /// This is on the data-disk now.
    pub(super) fn set(&mut self, line: Line, checksum: u32) {
        self.checksums.insert(line, checksum);
    }

    /// Nothing is known of the line any more.
    pub(super) fn forget(&mut self, line: Line) {
        self.checksums.remove(&line);
    }

    /// A whole line has been destaged.
    pub(super) fn destaged(&mut self, line: Line, checksum: u32) {
        if self.chosen.binary_search(&line).is_err() {
            if self.checksums.contains_key(&line) {
                self.recent.retain(|known| *known != line);
            }
            self.recent.push_back(line);
            if self.recent.len() > self.recent_max {
                let oldest = self.recent.pop_front().expect("not empty");
                self.checksums.remove(&oldest);
            }
        }
        self.checksums.insert(line, checksum);
    }

    /// Whether a witness lies in the range, now or for a recovery after a crash.
    pub(super) fn overlaps(&self, range: LbaRange) -> bool {
        let lines = range.start.line()..Line(range.end().div_ceil(FRAGMENTS_PER_LINE));
        self.checksums.range(lines.clone()).next().is_some()
            || self.listed.iter().flatten().any(|line| lines.contains(line))
    }

    /// All that are in these lines.
    pub(super) fn within(&self, line: Line, lines: u64) -> Vec<Line> {
        self.checksums.range(line..Line(line.0 + lines)).map(|(line, _)| *line).collect()
    }

    /// For a checkpoint.
    pub(super) fn list_for_checkpoint(&mut self) -> Vec<Witness> {
        self.listed[1].extend(self.checksums.keys());
        self.listed[1].sort_unstable();
        self.listed[1].dedup();
        self.list()
    }

    /// The newest checkpoint is durable: no crash finds an older one.
    pub(super) fn checkpoint_durable(&mut self) {
        self.listed[0] = std::mem::take(&mut self.listed[1]);
    }

    /// All.
    pub(super) fn list(&self) -> Vec<Witness> {
        self.checksums
            .iter()
            .map(|(line, checksum)| Witness { line: *line, checksum: *checksum })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forged_list_is_cut_to_what_a_checkpoint_has_room_for() {
        let data_disk =
            DataDiskInfo { blocks: 8000, logical_block_size: 512, physical_sector_size: 512 };
        let mut witnesses = Witnesses::new(Uuid([1; 16]), data_disk, 16);
        let forged: Vec<Witness> = (0..WITNESSES_MAX)
            .map(|n| Witness { line: Line(700 + n * 2), checksum: 1 })
            .chain([Witness { line: Line(1 << 47), checksum: 1 }])
            .collect();
        witnesses.restore(&forged);
        for line in witnesses.chosen().to_vec() {
            witnesses.set(line, 2);
        }
        assert!(witnesses.list().iter().all(|witness| witness.line.0 < 1000));
        assert!(witnesses.list_for_checkpoint().len() < WITNESSES_MAX as usize);
    }

    const DATA_DISK: DataDiskInfo =
        DataDiskInfo { blocks: 80_003, logical_block_size: 512, physical_sector_size: 512 };

    fn listed(witnesses: &Witnesses) -> Vec<u64> {
        witnesses.list().iter().map(|witness| witness.line.0).collect()
    }

    /// Whoever mounts, checks or partitions the disk changes one of these; and one in each eighth.
    #[test]
    fn witnesses_are_at_both_ends_and_between() {
        let witnesses = Witnesses::new(Uuid([7; 16]), DATA_DISK, 16);
        let chosen: Vec<u64> = witnesses.chosen().iter().map(|line| line.0).collect();
        assert!([0, 1, 2, 3, 4, 8, 16, 9998, 9999].iter().all(|line| chosen.contains(line)));
        for eighth in 0..8 {
            let range = eighth * 1250..(eighth + 1) * 1250;
            assert!(chosen.iter().any(|line| range.contains(line)), "{chosen:?}");
        }
        assert!(chosen.is_sorted() && chosen.len() > 9 && chosen.len() <= 17);
        let other = Witnesses::new(Uuid([8; 16]), DATA_DISK, 16);
        assert_ne!(witnesses.chosen(), other.chosen(), "elsewhere for each cache");
        let tiny = Witnesses::new(Uuid([7; 16]), DataDiskInfo { blocks: 7, ..DATA_DISK }, 16);
        assert!(tiny.chosen().is_empty(), "no whole line");
    }

    #[test]
    fn the_lines_destaged_last_are_witnesses() {
        let mut witnesses = Witnesses::new(Uuid([7; 16]), DATA_DISK, 16);
        // Not one of those that are chosen anyway.
        let lines: Vec<u64> =
            (5000..).filter(|line| !witnesses.chosen().contains(&Line(*line))).take(17).collect();
        for line in &lines {
            witnesses.destaged(Line(*line), 1);
        }
        assert_eq!(listed(&witnesses), lines[1..], "the first one is no longer among the last");
        // Once more: it is the newest now, and is there once.
        witnesses.destaged(Line(lines[1]), 2);
        witnesses.destaged(Line(lines[0]), 3);
        let mut expected = vec![lines[0], lines[1]];
        expected.extend(&lines[3..]);
        assert_eq!(listed(&witnesses), expected);
        assert_eq!((witnesses.get(Line(lines[1])), witnesses.get(Line(lines[2]))), (Some(2), None));
        // A chosen one takes no place of these.
        witnesses.destaged(Line(0), 4);
        assert_eq!(listed(&witnesses).len(), 17);
        let (first, count) = (Line(lines[3]), lines[5] - lines[3]);
        assert_eq!(witnesses.within(first, count), [Line(lines[3]), Line(lines[4])]);
    }

    /// A crash finds the newest durable checkpoint, or one that was written since and perhaps
    /// landed.
    #[test]
    fn a_witness_is_one_until_no_checkpoint_speaks_of_it() {
        let mut witnesses = Witnesses::new(Uuid([7; 16]), DATA_DISK, 16);
        let (of_line, before, behind) = (
            LbaRange::new(8 * 5000 + 7, 1),
            LbaRange::new(8 * 5000 - 1, 1),
            LbaRange::new(8 * 5001, 1),
        );
        witnesses.set(Line(5000), 1);
        let overlaps = |w: &Witnesses| [of_line, before, behind].map(|range| w.overlaps(range));
        assert_eq!(overlaps(&witnesses), [true, false, false]);
        witnesses.list_for_checkpoint();
        witnesses.forget(Line(5000));
        assert_eq!(overlaps(&witnesses), [true, false, false], "listed");
        witnesses.checkpoint_durable();
        witnesses.list_for_checkpoint();
        assert_eq!(overlaps(&witnesses), [true, false, false], "listed in the durable one");
        witnesses.checkpoint_durable();
        assert_eq!(overlaps(&witnesses), [false; 3]);
    }
}
