//! Finds the lines of a range that are in the lookup table, a part at a time while the table
//! changes.

use std::ops::Range;

use super::lookup_table::{LookupTable, Walker};
use crate::units::Line;

/// How far it is.
pub(crate) struct Sweep {
    walker: Walker,
    lines: Range<Line>,
    /// Lines before this one were looked at; `None`: the whole table is walked, which is less.
    /// Where none can be in the table none is looked at.
    next: Option<Line>,
}

impl Sweep {
    /// Of these lines.
    pub(crate) fn new(table: &mut LookupTable, walker: Walker, lines: Range<Line>) -> Sweep {
        let count = lines.end.0.saturating_sub(lines.start.0);
        let next = match table.looked_at_for(lines.start, count) {
            0 => Some(lines.end),
            most => (count == most).then_some(lines.start),
        };
        if next.is_none() {
            table.begin_walk(walker);
        }
        Sweep { walker, lines, next }
    }

    /// Whether the line is one of the range.
    pub(crate) fn covers(&self, line: Line) -> bool {
        self.lines.contains(&line)
    }

    /// The range.
    pub(crate) fn lines(&self) -> &Range<Line> {
        &self.lines
    }

    /// Lines that are still to be looked at, at most.
    pub(crate) fn left(&self, table: &LookupTable) -> usize {
        self.next.map_or(table.lines(), |next| (self.lines.end.0 - next.0) as usize)
    }

    /// Looks at so many lines more. Those that are in the table, and whether there are more to look
    /// at.
    pub(crate) fn part(&mut self, table: &mut LookupTable, count: usize) -> (Vec<Line>, bool) {
        match &mut self.next {
            Some(next) => {
                let end = Line(next.0.saturating_add(count as u64)).min(self.lines.end);
                let lines = (next.0..end.0).map(Line);
                let found = lines.filter(|line| table.contains(*line)).collect();
                *next = end;
                (found, end < self.lines.end)
            }
            None => {
                let mut found = Vec::new();
                let has_more = table.walk(self.walker, count, |_, line, _| {
                    if self.lines.contains(&line) {
                        found.push(line);
                    }
                });
                (found, has_more)
            }
        }
    }
}
