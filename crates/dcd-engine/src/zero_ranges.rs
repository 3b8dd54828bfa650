//! A set of cache lines as disjoint ranges: which lines read as zeroes although the data-disk does
//! not know it yet, and whether their space there may be freed.

use std::collections::BTreeMap;

use crate::units::Line;

/// Lines that read as zeroes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZeroRange {
    /// First line.
    pub line: Line,
    /// How many; at least one.
    pub lines: u64,
    /// The space on the data-disk may be freed.
    pub may_unmap: bool,
}

impl ZeroRange {
    /// Whether all of another range lies in it.
    pub(crate) fn contains(&self, other: &ZeroRange) -> bool {
        self.line <= other.line && other.end() <= self.end()
    }

    /// Whether any of `count` lines from `line` on is in it.
    pub(crate) fn overlaps(&self, line: Line, count: u64) -> bool {
        self.line.0 < line.0 + count && line.0 < self.end()
    }

    fn end(&self) -> u64 {
        self.line.0 + self.lines
    }
}

/// Disjoint ranges of lines. Neighbours of the same kind are one range.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ZeroRanges {
    /// First line -> (line after the last, may be unmapped).
    ranges: BTreeMap<u64, (u64, bool)>,
}

impl ZeroRanges {
    /// Most by which the number of ranges grows with [`ZeroRanges::insert`]: a range of the other
    /// kind is cut in two around the new one.
    pub(crate) const GROWTH_BY_INSERT: usize = 2;
    /// The same of [`ZeroRanges::remove`]: a range is cut in two.
    pub(crate) const GROWTH_BY_REMOVE: usize = 1;

    /// Number of ranges.
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether there is no line.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether the line is in.
    pub(crate) fn contains(&self, line: Line) -> bool {
        self.ranges.range(..=line.0).next_back().is_some_and(|(_, (end, _))| line.0 < *end)
    }

    /// Whether any of `count` lines from `line` on is in.
    pub(crate) fn overlaps(&self, line: Line, count: u64) -> bool {
        self.ranges.range(..line.0 + count).next_back().is_some_and(|(_, (end, _))| line.0 < *end)
    }

    /// What of `count` lines from `line` on is in, ascending.
    pub(crate) fn parts_within(&self, line: Line, count: u64) -> Vec<ZeroRange> {
        let (start, end) = (line.0, line.0 + count);
        let before = self.ranges.range(..=start).next_back().map_or(start, |(first, _)| *first);
        let parts = self.ranges.range(before..end).map(|(first, (behind, may_unmap))| {
            let (first, behind) = ((*first).max(start), (*behind).min(end));
            let lines = behind.saturating_sub(first);
            ZeroRange { line: Line(first), lines, may_unmap: *may_unmap }
        });
        parts.filter(|part| part.lines > 0).collect()
    }

    /// The part of the range with this line that lies within these lines.
    pub(crate) fn part_around(
        &self,
        line: Line,
        within: std::ops::Range<u64>,
    ) -> Option<ZeroRange> {
        let lines = within.end - within.start;
        let parts = self.parts_within(Line(within.start), lines);
        parts.into_iter().find(|part| part.overlaps(line, 1))
    }

    /// What is in another set, too.
    pub(crate) fn parts_in(&self, other: &ZeroRanges) -> ZeroRanges {
        let mut parts = ZeroRanges::default();
        let common = self.iter().flat_map(|range| other.parts_within(range.line, range.lines));
        common.for_each(|part| parts.insert(part));
        parts
    }

    /// Lines in all ranges.
    pub(crate) fn lines(&self) -> u64 {
        self.iter().map(|range| range.lines).sum()
    }

    /// Adds a range. What was known of its lines before does not count any more.
    pub(crate) fn insert(&mut self, range: ZeroRange) {
        if range.lines == 0 {
            return;
        }
        self.remove(range.line, range.lines);
        let (mut start, mut end) = (range.line.0, range.end());
        // Neighbours of the same kind become one with it.
        if let Some((&before, &(before_end, kind))) = self.ranges.range(..start).next_back()
            && before_end == start
            && kind == range.may_unmap
        {
            start = before;
        }
        if let Some(&(behind_end, kind)) = self.ranges.get(&end)
            && kind == range.may_unmap
        {
            self.ranges.remove(&end);
            end = behind_end;
        }
        self.ranges.insert(start, (end, range.may_unmap));
    }

    /// Takes `count` lines out.
    pub(crate) fn remove(&mut self, line: Line, count: u64) {
        let (start, end) = (line.0, line.0 + count);
        if count == 0 {
            return;
        }
        while let Some((&other, &(other_end, kind))) = self.ranges.range(..end).next_back() {
            if other_end <= start {
                break;
            }
            self.ranges.remove(&other);
            if other < start {
                self.ranges.insert(other, (start, kind));
            }
            if other_end > end {
                self.ranges.insert(end, (other_end, kind));
            }
        }
    }

    /// The ranges, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = ZeroRange> {
        self.ranges.iter().map(|(start, (end, may_unmap))| ZeroRange {
            line: Line(*start),
            lines: end - start,
            may_unmap: *may_unmap,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_map(
            operations in prop::collection::vec((0u8..3, 0u64..60, 0u64..20), 1..60)
        ) {
            let mut ranges = ZeroRanges::default();
            let mut model = BTreeMap::new();
            for (operation, line, lines) in operations {
                let before = ranges.len();
                let may_unmap = operation == 1;
                if operation < 2 {
                    ranges.insert(ZeroRange { line: Line(line), lines, may_unmap });
                    model.extend((line..line + lines).map(|line| (line, may_unmap)));
                    prop_assert!(ranges.len() <= before + ZeroRanges::GROWTH_BY_INSERT);
                } else {
                    ranges.remove(Line(line), lines);
                    (line..line + lines).for_each(|line| { model.remove(&line); });
                    prop_assert!(ranges.len() <= before + ZeroRanges::GROWTH_BY_REMOVE);
                }
                for line in 0..80 {
                    prop_assert_eq!(ranges.contains(Line(line)), model.contains_key(&line));
                    let any = (line..line + 3).any(|line| model.contains_key(&line));
                    prop_assert_eq!(ranges.overlaps(Line(line), 3), any);
                    let parts = ranges.parts_within(Line(line), 5);
                    let lines = parts.iter().flat_map(|part| {
                        (part.line.0..part.end()).map(|line| (line, part.may_unmap))
                    });
                    let expected = model.range(line..line + 5).map(|(line, kind)| (*line, *kind));
                    prop_assert!(lines.eq(expected));
                    let around = ranges.part_around(Line(line + 2), line..line + 5);
                    let part = parts.iter().find(|part| part.overlaps(Line(line + 2), 1));
                    prop_assert_eq!(around.as_ref(), part);
                }
                // As few ranges as there are changes in the map, and nothing twice.
                let listed: Vec<_> = ranges.iter().collect();
                let lines = listed.iter().flat_map(|range| {
                    (range.line.0..range.end()).map(|line| (line, range.may_unmap))
                });
                prop_assert!(lines.eq(model.iter().map(|(line, kind)| (*line, *kind))));
                let starts = model.iter().filter(|(line, kind)| {
                    **line == 0 || model.get(&(*line - 1)) != Some(kind)
                });
                prop_assert_eq!(ranges.len(), starts.count());
                prop_assert_eq!(ranges.len(), listed.len());
                prop_assert_eq!(ranges.is_empty(), model.is_empty());
            }
        }
    }
}
