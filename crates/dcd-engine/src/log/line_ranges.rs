//! A set of cache lines as disjoint ranges: which lines read as zeroes although the data-disk does
//! not know it yet.

use std::collections::BTreeMap;

use crate::units::Line;

/// Disjoint, non-adjacent ranges of lines.
#[derive(Clone, Debug, Default)]
pub struct LineRanges {
    /// First line -> line after the last.
    ranges: BTreeMap<u64, u64>,
}

impl LineRanges {
    /// Number of ranges.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether there is no line.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether the line is in.
    pub fn contains(&self, line: Line) -> bool {
        self.ranges.range(..=line.0).next_back().is_some_and(|(_, end)| line.0 < *end)
    }

    /// Whether any of `count` lines from `line` on is in.
    pub fn overlaps(&self, line: Line, count: u64) -> bool {
        self.ranges.range(..line.0 + count).next_back().is_some_and(|(_, end)| line.0 < *end)
    }

    /// Adds `count` lines.
    pub fn insert(&mut self, line: Line, count: u64) {
        let (mut start, mut end) = (line.0, line.0 + count);
        if count == 0 {
            return;
        }
        // Ranges that overlap or touch become one with the new one.
        while let Some((&other, &other_end)) = self.ranges.range(..=end).next_back() {
            if other_end < start {
                break;
            }
            start = start.min(other);
            end = end.max(other_end);
            self.ranges.remove(&other);
        }
        self.ranges.insert(start, end);
    }

    /// Takes `count` lines out.
    pub fn remove(&mut self, line: Line, count: u64) {
        let (start, end) = (line.0, line.0 + count);
        if count == 0 {
            return;
        }
        while let Some((&other, &other_end)) = self.ranges.range(..end).next_back() {
            if other_end <= start {
                break;
            }
            self.ranges.remove(&other);
            if other < start {
                self.ranges.insert(other, start);
            }
            if other_end > end {
                self.ranges.insert(end, other_end);
            }
        }
    }

    /// The ranges, ascending: first line and count.
    pub fn iter(&self) -> impl Iterator<Item = (Line, u64)> {
        self.ranges.iter().map(|(start, end)| (Line(*start), end - start))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_set(operations in prop::collection::vec((any::<bool>(), 0u64..60, 0u64..20), 1..60)) {
            let mut ranges = LineRanges::default();
            let mut model = BTreeSet::new();
            for (insert, line, count) in operations {
                if insert {
                    ranges.insert(Line(line), count);
                    model.extend(line..line + count);
                } else {
                    ranges.remove(Line(line), count);
                    (line..line + count).for_each(|line| { model.remove(&line); });
                }
                for line in 0..80 {
                    prop_assert_eq!(ranges.contains(Line(line)), model.contains(&line));
                    let any = (line..line + 3).any(|line| model.contains(&line));
                    prop_assert_eq!(ranges.overlaps(Line(line), 3), any);
                }
                // As few ranges as there are gaps in the set, and nothing twice.
                let listed: Vec<_> = ranges.iter().collect();
                let lines = listed.iter().flat_map(|(line, count)| line.0..line.0 + count);
                prop_assert!(lines.eq(model.iter().copied()));
                let starts = model.iter().filter(|line| **line == 0 || !model.contains(&(*line - 1)));
                prop_assert_eq!(ranges.len(), starts.count());
                prop_assert_eq!(ranges.len(), listed.len());
                prop_assert_eq!(ranges.is_empty(), model.is_empty());
            }
        }
    }
}
