//! What was read lately: a ring of lines, each at a position that grows by one, and where each line
//! stands in it.
//!
//! Long sequential reads are cut short before they come here ([`Streams`]): the disk does them well
//! already, and one backup would push out all that is worth finding.

use super::line_index::LineIndex;
use crate::units::Line;

/// Positions that are kept of a line: a library that several programs load stands in each of their
/// starts.
pub(super) const PLACES: usize = 3;

/// The ring.
pub(super) struct History {
    /// The numbers of lines, each with all bits inverted: 0 is no line, so that the memory of a new
    /// ring need not be touched.
    lines: Vec<u64>,
    /// Position of the next line. Begins one ring after 0, so that positions never go below it.
    end: u64,
    index: LineIndex,
}

impl History {
    /// Of at least so many lines.
    pub(super) fn new(lines: usize) -> History {
        let lines = lines.next_power_of_two();
        History { lines: vec![0; lines], end: lines as u64, index: LineIndex::new(lines) }
    }

    /// Bytes that it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.lines.len() * size_of::<u64>() + self.index.memory_bytes()
    }

    /// Position that the next line will have.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// The oldest position that is still there.
    pub(super) fn start(&self) -> u64 {
        self.end - self.lines.len() as u64
    }

    /// The line at a position.
    pub(super) fn line(&self, position: u64) -> Line {
        Line(!self.lines[self.slot(position)])
    }

    /// Where a line stands, in no order.
    pub(super) fn places(&self, line: Line) -> Places {
        let mut places = Places { positions: [0; PLACES], count: 0 };
        for value in self.index.values(line).iter() {
            let age = u64::from((self.end as u32).wrapping_sub(*value));
            if age == 0 || age > self.lines.len() as u64 || places.count == PLACES {
                continue;
            }
            let position = self.end - age;
            if self.line(position) == line {
                places.positions[places.count] = position;
                places.count += 1;
            }
        }
        places
    }

    /// Appends a line; its position.
    pub(super) fn push(&mut self, line: Line) -> u64 {
        let position = self.end;
        let slot = self.slot(position);
        self.lines[slot] = !line.0;
        let now = position as u32;
        self.index.replace_oldest(line, now, PLACES, |value| now.wrapping_sub(value));
        self.end += 1;
        position
    }

    fn slot(&self, position: u64) -> usize {
        position as usize & (self.lines.len() - 1)
    }
}

/// Positions of a line.
pub(super) struct Places {
    positions: [u64; PLACES],
    count: usize,
}

impl std::ops::Deref for Places {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        &self.positions[..self.count]
    }
}

/// Sequential streams that are followed at once.
const STREAMS: usize = 16;

/// The sequential reads that are going on, so that of each only the beginning is looked at.
pub(super) struct Streams {
    /// The line that would continue each.
    next: [u64; STREAMS],
    /// How many lines each has had.
    lines: [u64; STREAMS],
    /// When each was continued last.
    used: [u64; STREAMS],
    clock: u64,
}

impl Streams {
    pub(super) fn new() -> Streams {
        Streams { next: [u64::MAX; STREAMS], lines: [0; STREAMS], used: [0; STREAMS], clock: 0 }
    }

    /// Lines `first..end` are read. How many of them, from the first, belong to the first
    /// `lines_max` of a stream.
    pub(super) fn take(&mut self, first: u64, end: u64, lines_max: u64) -> u64 {
        self.clock += 1;
        // A read that ends within a line is continued by one that begins in the same.
        let continues = |next: &u64| *next == first || next.wrapping_sub(1) == first;
        let stream = match self.next.iter().position(continues) {
            Some(stream) => stream,
            None => {
                let oldest = (0..STREAMS).min_by_key(|stream| self.used[*stream]);
                let oldest = oldest.expect("there are streams");
                self.lines[oldest] = 0;
                oldest
            }
        };
        let taken = (end - first).min(lines_max.saturating_sub(self.lines[stream]));
        self.next[stream] = end;
        self.lines[stream] = self.lines[stream].saturating_add(end - first);
        self.used[stream] = self.clock;
        taken
    }
}
