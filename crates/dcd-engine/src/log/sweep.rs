//! Finds the lines of ranges that are in the lookup table, a part at a time while the table
//! changes.
//!
//! Ranges that come while others are looked for are gathered, and looked for together in the next
//! *round*: of a thousand discards that follow each other each would otherwise walk a large table
//! on its own.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use super::lookup_table::{LookupTable, Walker};
use crate::units::Line;

/// Lines, as ranges that neither overlap nor touch: first line, and the one behind the last.
#[derive(Clone, Default)]
pub(crate) struct LineRanges(BTreeMap<Line, Line>);

impl LineRanges {
    pub(crate) fn insert(&mut self, lines: Range<Line>) {
        let Range { mut start, mut end } = lines;
        if start >= end {
            return;
        }
        while let Some((first, behind)) = self.0.range(..=end).next_back() {
            if *behind < start {
                break;
            }
            (start, end) = (start.min(*first), end.max(*behind));
            let first = *first;
            self.0.remove(&first);
        }
        self.0.insert(start, end);
    }

    pub(crate) fn overlap(&self, lines: &Range<Line>) -> bool {
        let last = self.0.range(..lines.end).next_back();
        last.is_some_and(|(_, behind)| *behind > lines.start) && lines.start < lines.end
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many ranges they are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<Line>> {
        self.0.iter().map(|(first, behind)| *first..*behind)
    }
}

/// A line that is found costs as much as so many that are looked at: it leaves the table.
const FOUND_COST: usize = 8;
/// Lines that are looked at before somebody asks what they have cost.
const AT_ONCE: usize = 256;

/// How the lines of a round are found: whichever looks at fewer.
enum How {
    /// By looking for each: in these ranges, all others are done.
    Each(VecDeque<Range<Line>>),
    /// By a walk of the whole table.
    Walk,
}

/// How far it is.
pub(crate) struct Sweep {
    walker: Walker,
    /// Those of this round.
    sought: LineRanges,
    how: How,
    /// Those of the next round.
    gathered: LineRanges,
    /// Those of all rounds, where they have to be looked for elsewhere, too.
    swept: LineRanges,
    rounds: u32,
}

/// What a part of a sweep has found.
pub(crate) struct Found {
    /// Lines that are in the table.
    pub(crate) lines: Vec<Line>,
    /// So many were looked at.
    pub(crate) looked_at: usize,
    /// There are more to look at.
    pub(crate) has_more: bool,
}

impl Found {
    /// In lines that are looked at.
    pub(crate) fn cost(&self) -> usize {
        self.looked_at + (FOUND_COST - 1) * self.lines.len()
    }
}

impl Sweep {
    /// Of no lines yet.
    pub(crate) fn new(walker: Walker) -> Sweep {
        let how = How::Each(VecDeque::new());
        let (sought, gathered) = (LineRanges::default(), LineRanges::default());
        Sweep { walker, sought, how, gathered, swept: LineRanges::default(), rounds: 0 }
    }

    /// Of these lines, too.
    pub(crate) fn add(&mut self, lines: Range<Line>) {
        self.gathered.insert(lines);
    }

    /// Whether one of the lines may not have been looked for yet, here or elsewhere.
    pub(crate) fn covers(&self, lines: Range<Line>) -> bool {
        [&self.sought, &self.gathered, &self.swept].into_iter().any(|them| them.overlap(&lines))
    }

    /// All lines that were looked for: within a budget, where more of them are listed elsewhere.
    pub(crate) fn into_swept(self) -> LineRanges {
        self.swept
    }

    /// Rounds that were begun.
    pub(crate) fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Looks at so many lines more, fewer if many are found, and perhaps at the rest of a bucket of
    /// the table.
    pub(crate) fn part(&mut self, table: &mut LookupTable, count: usize) -> Found {
        if self.sought.is_empty() {
            self.begin_round(table);
        }
        let mut found = Found { lines: Vec::new(), looked_at: 0, has_more: false };
        let mut is_over = false;
        while let Some(left) = count.checked_sub(found.cost()).filter(|left| *left > 0)
            && !is_over
        {
            is_over = self.look_at(table, left.min(AT_ONCE), &mut found);
        }
        if is_over {
            self.sought = LineRanges::default();
        }
        found.has_more = !is_over || !self.gathered.is_empty();
        found
    }

    /// Looks at so many. Tells whether the round is over.
    fn look_at(&mut self, table: &mut LookupTable, count: usize, found: &mut Found) -> bool {
        match &mut self.how {
            How::Each(left) => {
                let Some(range) = left.front_mut() else { return true };
                let end = Line(range.start.0.saturating_add(count as u64)).min(range.end);
                let part = (range.start.0..end.0).map(Line);
                found.lines.extend(part.filter(|line| table.contains(*line)));
                found.looked_at += (end.0 - range.start.0) as usize;
                range.start = end;
                if range.is_empty() {
                    left.pop_front();
                }
                left.is_empty()
            }
            How::Walk => {
                let sought = &self.sought;
                let has_more = table.walk(self.walker, count, |_, line, _| {
                    found.looked_at += 1;
                    if sought.overlap(&(line..Line(line.0 + 1))) {
                        found.lines.push(line);
                    }
                });
                !has_more
            }
        }
    }

    fn begin_round(&mut self, table: &mut LookupTable) {
        self.sought = std::mem::take(&mut self.gathered);
        if table.has_budget() {
            self.sought.iter().for_each(|lines| self.swept.insert(lines));
        }
        self.rounds += 1;
        self.how = match self.each(table) {
            Some(each) => How::Each(each),
            None => {
                table.begin_walk(self.walker);
                How::Walk
            }
        };
    }

    /// The lines to look for one by one, if they are no more than there are in the table.
    fn each(&self, table: &LookupTable) -> Option<VecDeque<Range<Line>>> {
        if table.run().is_some_and(|run| !run.is_empty()) {
            // What is not in memory cannot be looked for.
            return None;
        }
        let mut each = VecDeque::new();
        let mut left = table.lines() as u64;
        for range in self.sought.iter().flat_map(|range| table.may_hold(range)) {
            left = left.checked_sub(range.end.0 - range.start.0)?;
            each.push_back(range);
        }
        Some(each)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::line_hash::LineHash;
    use crate::units::{FragmentMask, SlotIndex};

    proptest! {
        #[test]
        fn ranges_agree_with_a_set(
            inserted in prop::collection::vec((0u64..60, 0u64..12), 0..30),
            asked in prop::collection::vec((0u64..70, 0u64..12), 20),
        ) {
            let (mut ranges, mut set) = (LineRanges::default(), BTreeSet::new());
            for (first, lines) in inserted {
                ranges.insert(Line(first)..Line(first + lines));
                set.extend(first..first + lines);
            }
            for (first, lines) in asked {
                let expected = (first..first + lines).any(|line| set.contains(&line));
                prop_assert_eq!(ranges.overlap(&(Line(first)..Line(first + lines))), expected);
            }
            let all: Vec<Range<Line>> = ranges.iter().collect();
            prop_assert!(all.windows(2).all(|pair| pair[0].end < pair[1].start));
            prop_assert_eq!(all.iter().map(|it| it.end.0 - it.start.0).sum::<u64>(), set.len() as u64);
        }

        /// All lines of all ranges that are in the table go, those of ranges that came while others
        /// were looked for too, and no others.
        #[test]
        fn all_of_it_and_nothing_else_is_found(
            held in prop::collection::btree_set(0u64..2000, 0..200),
            came in prop::collection::vec((0u64..2000, 0u64..300, 0usize..6), 1..12),
        ) {
            let mut table = LookupTable::new(1000, 300, 2000, LineHash::new(0));
            for line in &held {
                table.insert(Line(*line), FragmentMask::FULL, SlotIndex(0), 0);
            }
            let mut sweep = Sweep::new(Walker::Purge);
            let mut gone = BTreeSet::new();
            let mut go_on = |sweep: &mut Sweep| {
                let found = sweep.part(&mut table, 7);
                for line in found.lines {
                    table.remove(line, FragmentMask::FULL);
                    gone.insert(line.0);
                }
                found.has_more
            };
            for (first, lines, parts) in &came {
                sweep.add(Line(*first)..Line(first + lines));
                for _ in 0..*parts {
                go_on(&mut sweep);
            }
            }
            while go_on(&mut sweep) {}
            prop_assert!(!sweep.covers(Line(0)..Line(3000)));
            let is_sought = |line: &u64| came.iter().any(|(first, lines, _)| (*first..first + lines).contains(line));
            prop_assert_eq!(gone, held.into_iter().filter(is_sought).collect());
        }
    }

    /// A thousand ranges that come one behind the other, one for each part, cost a few walks.
    #[test]
    fn ranges_that_follow_each_other_share_their_walks() {
        const LINES: u64 = 100_000;
        const APART: u64 = 1 << 14;
        let mut table = LookupTable::new(LINES as u32, LINES as u32, 1 << 40, LineHash::new(0));
        for line in 0..LINES {
            table.insert(Line(line * APART), FragmentMask::FULL, SlotIndex(0), 0);
        }
        let mut sweep = Sweep::new(Walker::Purge);
        let (mut looked_at, mut found) = (0, 0);
        let mut part = |sweep: &mut Sweep| {
            let part = sweep.part(&mut table, 1000);
            looked_at += part.looked_at;
            found += part.lines.len();
            part.has_more
        };
        for range in 0..1000 {
            let first = range * LINES * APART / 1000;
            sweep.add(Line(first)..Line(first + 10 * APART));
            part(&mut sweep);
        }
        while part(&mut sweep) {}
        assert_eq!(found, 1000 * 10);
        assert!(looked_at < 20 * LINES as usize, "{looked_at} lines looked at");
    }
}
