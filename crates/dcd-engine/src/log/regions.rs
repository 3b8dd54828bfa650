//! How many lines of the table lie in each region of the data-disk: whether a large range holds
//! any is told without a walk of the table. Discards of what is empty come by the thousand.

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
        Regions { shift, counts: vec![0; (disk_lines >> shift) as usize + 1] }
    }

    /// The same without any lines.
    pub(crate) fn emptied(&self) -> Regions {
        Regions { shift: self.shift, counts: vec![0; self.counts.len()] }
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

    /// Whether any of so many lines may be: one of their regions has lines.
    pub(crate) fn may_hold(&self, first: Line, lines: u64) -> bool {
        let Some(last) = lines.checked_sub(1) else { return false };
        let last = Line(first.0.saturating_add(last));
        self.counts[self.region_of(first)..=self.region_of(last)].iter().any(|count| *count > 0)
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
            let holds = set.iter().any(|line| {
                lines > 0 && (whole(first)..=whole(first + lines - 1)).contains(&whole(*line))
            });
            assert_eq!(regions.may_hold(Line(first), lines), holds);
        }
        assert!(!regions.emptied().may_hold(Line(0), u64::MAX));
    }

    #[test]
    fn there_are_never_too_many() {
        for lines in [0, 1, 1 << 13, 1 << 28, (100 << 40) / 4096, 1 << 40] {
            let regions = Regions::new(lines);
            assert!(regions.counts.len() as u64 <= REGIONS_MAX, "{lines}");
            assert!(!regions.may_hold(Line(0), lines));
        }
    }
}
