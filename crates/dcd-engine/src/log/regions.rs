//! How many lines of the table lie in each region of the data-disk: whether a large range holds
//! any is told without a walk of the table. Discards of what is empty come by the thousand.

use std::ops::Range;

use crate::growing_table::untouched_zeroes;
use crate::units::Line;

/// Regions, at most: four bytes each, which nothing touches where nothing is.
const REGIONS_MAX: u64 = 1 << 16;
/// Lines of a region, at least, as a power of two.
const SHIFT_MIN: u32 = 13;

/// See the module.
pub(crate) struct Regions {
    /// Lines of a region, as a power of two.
    shift: u32,
    counts: Vec<u32>,
}

impl Regions {
    /// Of a data-disk of so many lines, nothing of which is in the table. What lies behind them
    /// counts as in the last region.
    pub(crate) fn new(disk_lines: u64) -> Regions {
        Regions::with_shift_min(disk_lines, SHIFT_MIN)
    }

    fn with_shift_min(disk_lines: u64, shift_min: u32) -> Regions {
        let mut shift = shift_min;
        while disk_lines >> shift >= REGIONS_MAX {
            shift += 1;
        }
        Regions { shift, counts: untouched_zeroes((disk_lines >> shift) as usize + 1) }
    }

    /// The data-disk has so many lines now, which are not fewer.
    pub(crate) fn grow(&mut self, disk_lines: u64) {
        let regions = (disk_lines >> self.shift) as usize + 1;
        // What was behind the last counted there, and there was nothing.
        self.counts.resize(regions.max(self.counts.len()), 0);
    }

    /// The same without any lines.
    pub(crate) fn emptied(&self) -> Regions {
        Regions { shift: self.shift, counts: untouched_zeroes(self.counts.len()) }
    }

    /// Lines of a region, and how many lines of each are in the table.
    pub(crate) fn counts(&self) -> (u64, &[u32]) {
        (1 << self.shift, &self.counts)
    }

    fn region_of(&self, line: Line) -> usize {
        ((line.0 >> self.shift) as usize).min(self.counts.len() - 1)
    }

    /// A line is in the table now.
    pub(crate) fn add(&mut self, line: Line) {
        let region = self.region_of(line);
        self.counts[region] += 1;
    }

    /// A line is not any more.
    pub(crate) fn remove(&mut self, line: Line) {
        let region = self.region_of(line);
        self.counts[region] -= 1;
    }

    /// Those of `lines` that may be: what lies in regions that have lines.
    pub(crate) fn may_hold(&self, lines: Range<Line>) -> impl Iterator<Item = Range<Line>> {
        let regions = match lines.end.0.checked_sub(1) {
            Some(last) => self.region_of(lines.start)..self.region_of(Line(last)) + 1,
            None => 0..0,
        };
        let used = regions.filter(|region| self.counts[*region] > 0);
        let part = move |region: usize| {
            let first = Line((region as u64) << self.shift);
            let is_last = region + 1 == self.counts.len();
            let end = if is_last { lines.end } else { Line(first.0 + (1 << self.shift)) };
            first.max(lines.start)..end.min(lines.end)
        };
        used.map(part).filter(|part| !part.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn agrees_with_a_set() {
        let mut regions = Regions::with_shift_min(1000, 3);
        let mut set = BTreeSet::new();
        let mut state = 1u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..5_000 {
            // Behind the end, too: a disk may have grown.
            let line = next(1_100);
            match set.insert(line) {
                true => regions.add(Line(line)),
                false => {
                    set.remove(&line);
                    regions.remove(Line(line));
                }
            }
            for other in set.iter().copied().filter(|other| other % 3 == 0).collect::<Vec<_>>() {
                set.remove(&other);
                regions.remove(Line(other));
            }
            let (first, lines) = (next(1_100), next(40));
            let whole = |line: u64| (line / 8).min(125);
            let used: BTreeSet<u64> = set.iter().map(|line| whole(*line)).collect();
            let held = regions.may_hold(Line(first)..Line(first + lines));
            let held: Vec<u64> = held.flat_map(|part| part.start.0..part.end.0).collect();
            let expected = (first..first + lines).filter(|line| used.contains(&whole(*line)));
            assert_eq!(held, expected.collect::<Vec<_>>());
        }
        assert_eq!(regions.emptied().may_hold(Line(0)..Line(u64::MAX)).next(), None);
    }

    #[test]
    fn there_are_never_too_many() {
        for lines in [0, 1, 1 << 13, 1 << 28, (100 << 40) / 4096, 1 << 40] {
            let regions = Regions::new(lines);
            assert!(regions.counts.len() as u64 <= REGIONS_MAX, "{lines}");
            assert_eq!(regions.may_hold(Line(0)..Line(lines)).next(), None);
        }
    }
}
