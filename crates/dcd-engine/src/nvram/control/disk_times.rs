//! How long what is below takes for an I/O, as measured, by kind, size and the distance from where
//! the last one ended.

use crate::nvram::{BelowIo, NvramOperation};
use crate::units::Duration;

/// Sizes by powers of two; the last is of all that are larger.
const SIZES: usize = 8;
/// No distance; near ones by powers of two, forwards and backwards, for there the angle counts; far
/// ones, up to all that are farther.
const DISTANCES: usize = 1 + 2 * NEAR + FAR;
/// Up to 2^7 blocks.
const NEAR: usize = 7;
/// Up to 2^23.
const FAR: usize = 16;
/// Later times count more: as the mean of so many.
const REMEMBERED: u64 = 64;
/// The same for the mean of all.
const REMEMBERED_OF_ALL: u64 = 256;
/// So many times make a mean.
const KNOWN_AFTER: u32 = 4;
/// Before anything is known the disk is thought to be slow.
const SLOW: u64 = 15_000_000;
/// Times that the mean of all is that of a slow disk, at the beginning.
const SLOW_COUNT: u64 = 4;
/// A mean is kept in parts of a nanosecond.
const FRACTION: u32 = 8;

/// Mean of times in nanoseconds.
#[derive(Clone, Copy, Default, Debug)]
struct Mean {
    parts: u64,
    count: u32,
}

impl Mean {
    fn add(&mut self, time: Duration, remembered: u64) {
        self.count = self.count.saturating_add(1);
        let weight = u64::from(self.count).min(remembered) as i128;
        let step = (i128::from(time.0) * (1 << FRACTION) - i128::from(self.parts)) / weight;
        self.parts = (i128::from(self.parts) + step) as u64;
    }

    fn known(&self) -> Option<Duration> {
        (self.count >= KNOWN_AFTER).then_some(Duration(self.parts >> FRACTION))
    }
}

/// The table.
#[derive(Debug)]
pub(super) struct DiskTimes {
    /// By operation, size and distance.
    by_all: [[[Mean; DISTANCES]; SIZES]; 2],
    /// By operation and distance.
    by_distance: [[Mean; DISTANCES]; 2],
    by_operation: [Mean; 2],
    all: Mean,
}

fn size_class(blocks: u64) -> usize {
    (blocks.max(1).ilog2() as usize).min(SIZES - 1)
}

fn distance_class(from: u64, to: u64) -> usize {
    let distance = from.abs_diff(to);
    if distance == 0 {
        return 0;
    }
    match distance.ilog2() as usize {
        near @ 0..NEAR if to > from => 1 + near,
        near @ 0..NEAR => 1 + NEAR + near,
        far => 1 + 2 * NEAR + (far - NEAR).min(FAR - 1),
    }
}

fn operation_class(operation: NvramOperation) -> usize {
    match operation {
        NvramOperation::Read => 0,
        NvramOperation::Write => 1,
    }
}

impl DiskTimes {
    pub(super) fn new() -> DiskTimes {
        DiskTimes {
            by_all: [[[Mean::default(); DISTANCES]; SIZES]; 2],
            by_distance: [[Mean::default(); DISTANCES]; 2],
            by_operation: [Mean::default(); 2],
            all: Mean { parts: SLOW << FRACTION, count: SLOW_COUNT as u32 },
        }
    }

    /// It took so long, from a head at `from`.
    pub(super) fn measured(&mut self, io: &BelowIo, from: u64, time: Duration) {
        let (operation, size) = (operation_class(io.operation), size_class(io.range.blocks));
        let distance = distance_class(from, io.range.start.0);
        self.by_all[operation][size][distance].add(time, REMEMBERED);
        self.by_distance[operation][distance].add(time, REMEMBERED);
        self.by_operation[operation].add(time, REMEMBERED);
        self.all.add(time, REMEMBERED_OF_ALL);
    }

    /// How long it will take, from a head at `from`.
    pub(super) fn expected(&self, io: &BelowIo, from: u64) -> Duration {
        let (operation, size) = (operation_class(io.operation), size_class(io.range.blocks));
        let distance = distance_class(from, io.range.start.0);
        let known = self.by_all[operation][size][distance].known();
        known
            .or_else(|| self.by_distance[operation][distance].known())
            .or_else(|| self.by_operation[operation].known())
            .unwrap_or_else(|| self.mean())
    }

    /// Mean of all.
    pub(super) fn mean(&self) -> Duration {
        Duration(self.all.parts >> FRACTION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvram::{BelowId, BelowPurpose};
    use crate::units::LbaRange;

    fn io(operation: NvramOperation, start: u64, blocks: u64) -> BelowIo {
        let (id, purpose) = (BelowId(1), BelowPurpose::Cleaning);
        BelowIo { id, operation, range: LbaRange::new(start, blocks), purpose }
    }

    #[test]
    fn an_unknown_disk_is_slow() {
        let mut times = DiskTimes::new();
        let write = io(NvramOperation::Write, 100, 8);
        assert_eq!(times.expected(&write, 0), Duration(SLOW));
        (0..4).for_each(|_| times.measured(&write, 0, Duration(1000)));
        assert_eq!(times.expected(&write, 0), Duration(1000));
        let (far, other) = (io(NvramOperation::Write, 1 << 30, 1), io(NvramOperation::Read, 0, 8));
        assert_eq!(times.expected(&far, 0), Duration(1000), "writes are known");
        assert_eq!(times.expected(&other, 0), times.mean(), "reads are not");
        assert!(times.mean() < Duration(SLOW));
    }

    #[test]
    fn near_distances_have_a_sign() {
        let classes = [(5, 5), (5, 6), (5, 4), (0, 2), (0, 3), (0, 1 << 40), (1 << 40, 0)];
        let classes = classes.map(|(from, to)| distance_class(from, to));
        assert_eq!(classes, [0, 1, 8, 2, 2, 30, 30]);
        assert_eq!([0, 1, 2, 255, 1 << 20].map(size_class), [0, 0, 1, 7, 7]);
    }

    /// What the disk does changes, and the mean with it.
    #[test]
    fn the_mean_follows() {
        let mut mean = Mean::default();
        (0..1000).for_each(|_| mean.add(Duration(10_000), REMEMBERED));
        (0..1000).for_each(|_| mean.add(Duration(20_000), REMEMBERED));
        let now = mean.known().unwrap().0;
        assert!((19_990..=20_000).contains(&now), "{now}");
    }
}
