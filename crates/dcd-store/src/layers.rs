//! What was written, newest first, until it is in the map of lines.
//!
//! ```text
//! open      lines in memory, not yet in an object
//! recent    in objects that are uploaded, or about to be; no flush has covered them
//! flushing  a flush is about to cover them
//! staged    durable; in no window yet
//! the map   the state at the end of the last window
//! ```

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use dcd_protocol::store::StoreFailure;

use crate::format::{ObjectId, Place, Staged};

/// Ranges of lines, each from its first to the one behind its last.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    pub fn insert(&mut self, line: u64, count: u64) {
        let (mut start, mut end) = (line, line + count);
        let touches = |ranges: &Ranges, start: u64, end: u64| {
            let before = ranges.0.range(..=end).next_back();
            before.filter(|(_, until)| **until >= start).map(|(from, until)| (*from, *until))
        };
        while let Some((from, until)) = touches(self, start, end) {
            self.0.remove(&from);
            (start, end) = (start.min(from), end.max(until));
        }
        self.0.insert(start, end);
    }

    pub fn contains(&self, line: u64) -> bool {
        self.0.range(..=line).next_back().is_some_and(|(_, end)| *end > line)
    }

    /// First lines and counts.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().map(|(start, end)| (*start, end - start))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Changes of some time.
#[derive(Clone, Default, Debug)]
pub struct Layer {
    /// Win over zeroes.
    pub lines: BTreeMap<u64, Place>,
    pub zeroes: Ranges,
}

/// What a layer says of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    At(Place),
    Zero,
}

impl Layer {
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.zeroes.is_empty()
    }

    pub fn find(&self, line: u64) -> Option<Found> {
        let place = self.lines.get(&line).map(|place| Found::At(*place));
        place.or_else(|| self.zeroes.contains(line).then_some(Found::Zero))
    }

    pub fn zero(&mut self, line: u64, count: u64) {
        let gone: Vec<u64> = self.lines.range(line..line + count).map(|(line, _)| *line).collect();
        for line in gone {
            self.lines.remove(&line);
        }
        self.zeroes.insert(line, count);
    }

    /// A newer one on top of it.
    pub fn overlay(&mut self, newer: &Layer) {
        newer.zeroes.iter().for_each(|(line, count)| self.zero(line, count));
        self.lines.extend(&newer.lines);
    }

    pub fn row(&self) -> Staged {
        Staged {
            zeroes: self.zeroes.iter().collect(),
            lines: self.lines.iter().map(|(line, place)| (*line, *place)).collect(),
        }
    }

    pub fn of_row(row: &Staged) -> Layer {
        let mut layer = Layer::default();
        row.zeroes.iter().for_each(|(line, count)| layer.zero(*line, *count));
        layer.lines.extend(row.lines.iter().copied());
        layer
    }
}

/// An object that is on its way.
pub struct Upload {
    pub bytes: Bytes,
    /// Why it is not, at the moment.
    pub problem: Option<StoreFailure>,
}

/// See the module.
#[derive(Default)]
pub struct Layers {
    pub open: BTreeMap<u64, Bytes>,
    pub recent: Layer,
    pub flushing: Layer,
    pub staged: Layer,
    pub uploads: BTreeMap<ObjectId, Upload>,
    /// Lines of objects that no commit knows yet.
    pub new_objects: BTreeMap<ObjectId, u32>,
    /// Rows in the map, by number.
    pub rows: BTreeSet<u64>,
}

/// Where a line is to be read.
pub enum Source {
    Memory(Bytes),
    At(Place),
    Zero,
    /// As of the last window.
    Map,
}

impl Layers {
    pub fn find(&self, line: u64) -> Source {
        if let Some(bytes) = self.open.get(&line) {
            return Source::Memory(bytes.clone());
        }
        let layers = [&self.recent, &self.flushing, &self.staged];
        match layers.iter().find_map(|layer| layer.find(line)) {
            Some(Found::At(place)) => Source::At(place),
            Some(Found::Zero) => Source::Zero,
            None => Source::Map,
        }
    }

    pub fn zero(&mut self, line: u64, count: u64) {
        let gone: Vec<u64> = self.open.range(line..line + count).map(|(line, _)| *line).collect();
        gone.iter().for_each(|line| drop(self.open.remove(line)));
        self.recent.zero(line, count);
    }

    /// A flush has failed: what it was about to cover is for the next one.
    pub fn flush_failed(&mut self) {
        let newer = std::mem::take(&mut self.recent);
        self.recent = std::mem::take(&mut self.flushing);
        self.recent.overlay(&newer);
    }

    /// The row of a flush is durable.
    pub fn flushed(&mut self, row: u64) {
        let layer = std::mem::take(&mut self.flushing);
        self.staged.overlay(&layer);
        self.rows.insert(row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_merge() {
        let mut ranges = Ranges::default();
        for (line, count) in [(10, 5), (20, 5), (0, 3), (15, 5), (2, 1)] {
            ranges.insert(line, count);
        }
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(0, 3), (10, 15)]);
        ranges.insert(3, 7);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(0, 25)]);
        assert!(ranges.contains(24) && !ranges.contains(25));
        ranges.insert(5, 1);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(0, 25)], "within");
    }

    #[test]
    fn the_newest_counts() {
        let place = |index| Place { object: ObjectId { epoch: 1, number: 1 }, index, crc: 0 };
        let mut old = Layer::default();
        old.lines.insert(1, place(1));
        old.lines.insert(2, place(2));
        let mut newer = Layer::default();
        newer.zero(0, 2);
        newer.lines.insert(0, place(3));
        old.overlay(&newer);
        assert_eq!(old.find(0), Some(Found::At(place(3))));
        assert_eq!(old.find(1), Some(Found::Zero));
        assert_eq!(old.find(2), Some(Found::At(place(2))));
        assert_eq!(old.find(3), None);
        let row = Layer::of_row(&old.row());
        assert_eq!((row.lines, row.zeroes), (old.lines, old.zeroes));
    }
}
