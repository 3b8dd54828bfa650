//! A map from cache lines to something small, whose memory follows what is in it.
//!
//! The hash gives each line a *bucket*, and a place in it. A bucket is a small table with open
//! addressing that grows and shrinks by itself, so that no step is longer than to move the few
//! hundred entries of one bucket, however large the map is. How many buckets there are follows from
//! how many lines there may be; one that nothing was put into takes no memory but 20 bytes that
//! nothing has touched.
//!
//! ```text
//! bucket of 8 to 800 entries:   at most 7/8 in use, hardly less than 2/3: about 1.2 entries a line
//! lines of one bucket:          512 on average when the map is full
//! ```

use crate::line_hash::LineHash;
use crate::units::Line;
use crate::used_places::UsedPlaces;

/// Lines in each bucket, on average, when there are as many as there may be.
const BUCKET_LINES: usize = 512;
/// Buckets of a small map: a walk goes from bucket to bucket, and should have some to stop at.
const BUCKETS_MIN: usize = 64;
/// Entries by which a small bucket grows; ...
const GROWTH_MIN: usize = 8;
/// ... a large one grows by such a part of it. A smaller part takes less memory, and more moves:
/// ten for each line, and the index of a full log stays within 4 MiB for each GiB.
const GROWTH_PART: usize = 10;

/// What a map holds for each line: bytes, so that entries are packed.
pub(crate) trait LineValue: Copy {
    /// What no line has: marks an entry that is not in use.
    const NONE: Self;

    /// Whether it is that.
    fn is_none(&self) -> bool;
}

/// A line of forty bits and what is held for it.
#[derive(Clone, Copy)]
struct Entry<V> {
    line: PackedLine,
    value: V,
}

/// Forty bits without padding.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PackedLine {
    low: [u8; 4],
    high: u8,
}

impl PackedLine {
    fn new(line: Line) -> PackedLine {
        PackedLine { low: (line.0 as u32).to_le_bytes(), high: (line.0 >> 32) as u8 }
    }

    fn line(self) -> Line {
        Line(u64::from(u32::from_le_bytes(self.low)) | u64::from(self.high) << 32)
    }
}

impl<V: LineValue> Entry<V> {
    const UNUSED: Entry<V> = Entry { line: PackedLine { low: [0; 4], high: 0 }, value: V::NONE };
}

/// The map.
pub(crate) struct LineMap<V> {
    hash: LineHash,
    /// The table of each bucket; `None` of one that nothing was put into: all of these are memory
    /// that nothing has touched.
    buckets: Vec<Option<Box<[Entry<V>]>>>,
    /// Lines in each bucket.
    counts: Vec<u32>,
    /// Buckets that hold a line, for walks that must not depend on the size of the map.
    used: UsedPlaces,
    lines: usize,
    /// Entries of all buckets, in use or not.
    entries: usize,
}

impl<V: LineValue> LineMap<V> {
    /// A map without lines that will hold `lines_max` at most; more make it slower.
    pub(crate) fn new(lines_max: usize, hash: LineHash) -> LineMap<V> {
        let buckets = (lines_max / BUCKET_LINES).max(BUCKETS_MIN.min(lines_max)).max(1);
        LineMap {
            hash,
            buckets: vec![None; buckets],
            counts: vec![0; buckets],
            used: UsedPlaces::new(buckets),
            lines: 0,
            entries: 0,
        }
    }

    /// Lines in it.
    pub(crate) fn lines(&self) -> usize {
        self.lines
    }

    /// Buckets, used or not.
    pub(crate) fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.buckets.len() * size_of::<Option<Box<[Entry<V>]>>>()
            + self.counts.len() * size_of::<u32>()
            + self.used.memory_bytes()
            + self.entries * size_of::<Entry<V>>()
    }

    /// What is held for `line`.
    #[inline]
    pub(crate) fn get(&self, line: Line) -> Option<V> {
        let (bucket, spread) = self.hash.bucket(line.0, self.buckets.len());
        let entries = self.buckets[bucket].as_deref()?;
        let (index, is_known) = position(entries, line, spread);
        is_known.then(|| entries[index].value)
    }

    /// What is held for each of these lines. Nobody knows where the next line lies before it is
    /// asked for, so one look-up after the other waits for memory each time; these wait together.
    #[inline]
    pub(crate) fn get_each<const N: usize>(&self, lines: &[Line; N]) -> [Option<V>; N] {
        let places = lines.map(|line| self.hash.bucket(line.0, self.buckets.len()));
        let buckets = places.map(|(bucket, _)| self.buckets[bucket].as_deref().unwrap_or(&[]));
        let at_home: [Entry<V>; N] = std::array::from_fn(|i| {
            let entries = buckets[i];
            match entries.is_empty() {
                true => Entry::UNUSED,
                false => entries[home(places[i].1, entries.len())],
            }
        });
        std::array::from_fn(|i| {
            if at_home[i].value.is_none() {
                return None;
            }
            if at_home[i].line == PackedLine::new(lines[i]) {
                return Some(at_home[i].value);
            }
            let (index, is_known) = position(buckets[i], lines[i], places[i].1);
            is_known.then(|| buckets[i][index].value)
        })
    }

    /// The same, to be changed: to anything but [`LineValue::NONE`].
    #[inline]
    pub(crate) fn get_mut(&mut self, line: Line) -> Option<&mut V> {
        let (bucket, spread) = self.hash.bucket(line.0, self.buckets.len());
        let entries = self.buckets[bucket].as_deref_mut()?;
        let (index, is_known) = position(entries, line, spread);
        is_known.then(|| &mut entries[index].value)
    }

    /// What is held for `line`, to be changed; `None` if that was nothing: it is `value` now.
    ///
    /// # Panics
    /// If the line number has more than forty bits, or the value is none.
    #[inline]
    pub(crate) fn get_or_insert(&mut self, line: Line, value: V) -> Option<&mut V> {
        assert!(line.0 < 1 << 40 && !value.is_none());
        let (bucket, spread) = self.hash.bucket(line.0, self.buckets.len());
        let capacity = self.buckets[bucket].as_ref().map_or(0, |entries| entries.len());
        let mut index = 0;
        if let Some(entries) = &self.buckets[bucket] {
            let is_known;
            (index, is_known) = position(entries, line, spread);
            if is_known {
                let entries = self.buckets[bucket].as_mut().expect("it was there");
                return Some(&mut entries[index].value);
            }
        }
        let count = self.counts[bucket] as usize + 1;
        if count * 8 > capacity * 7 {
            self.resize(bucket, capacity + (capacity / GROWTH_PART).max(GROWTH_MIN));
            let entries = self.buckets[bucket].as_ref().expect("it has just been made");
            (index, _) = position(entries, line, spread);
        }
        let entries = self.buckets[bucket].as_mut().expect("it has room");
        entries[index] = Entry { line: PackedLine::new(line), value };
        self.counts[bucket] = count as u32;
        self.lines += 1;
        if count == 1 {
            self.used.insert(bucket);
        }
        None
    }

    /// Nothing is held for `line` any more. Returns what was.
    pub(crate) fn remove(&mut self, line: Line) -> Option<V> {
        let (bucket, spread) = self.hash.bucket(line.0, self.buckets.len());
        let buckets = self.buckets.len();
        let entries = self.buckets[bucket].as_mut()?;
        let (index, is_known) = position(entries, line, spread);
        if !is_known {
            return None;
        }
        let value = entries[index].value;
        close_gap(entries, index, |line| self.hash.bucket(line.0, buckets).1);
        let (count, capacity) = (self.counts[bucket] as usize - 1, entries.len());
        self.counts[bucket] = count as u32;
        self.lines -= 1;
        if count == 0 {
            self.used.remove(bucket);
        }
        // Behind that at most three of four are in use: what comes and goes does not move it to and
        // fro.
        let smaller = capacity - (capacity / (GROWTH_PART + 1)).max(GROWTH_MIN);
        if count * 4 < smaller * 3 {
            self.resize(bucket, smaller);
        }
        Some(value)
    }

    /// Gives a bucket so many entries, and what it holds new places.
    #[cold]
    fn resize(&mut self, bucket: usize, capacity: usize) {
        let buckets = self.buckets.len();
        let mut entries = vec![Entry::UNUSED; capacity].into_boxed_slice();
        let old = self.buckets[bucket].take().unwrap_or_default();
        for entry in old.iter().filter(|entry| !entry.value.is_none()) {
            let line = entry.line.line();
            let (_, spread) = self.hash.bucket(line.0, buckets);
            let (index, _) = position(&entries, line, spread);
            entries[index] = *entry;
        }
        self.entries = self.entries + capacity - old.len();
        self.buckets[bucket] = Some(entries);
    }

    /// The first bucket from this one on that holds a line. A line stays in its bucket for ever.
    pub(crate) fn bucket_from(&self, bucket: usize) -> Option<usize> {
        self.used.iter_from(bucket).next()
    }

    /// All lines of a bucket, in an order that depends only on the history.
    pub(crate) fn bucket(&self, bucket: usize) -> impl Iterator<Item = (Line, V)> {
        let entries = self.buckets[bucket].as_deref().unwrap_or_default();
        let used = entries.iter().filter(|entry| !entry.value.is_none());
        used.map(|entry| (entry.line.line(), entry.value))
    }

    /// The same, to be changed: to anything but [`LineValue::NONE`].
    pub(crate) fn bucket_mut(&mut self, bucket: usize) -> impl Iterator<Item = (Line, &mut V)> {
        let entries = self.buckets[bucket].as_deref_mut().unwrap_or_default();
        let used = entries.iter_mut().filter(|entry| !entry.value.is_none());
        used.map(|entry| (entry.line.line(), &mut entry.value))
    }

    /// The bucket of a line, whether or not it is in it.
    pub(crate) fn bucket_of(&self, line: Line) -> usize {
        self.hash.bucket(line.0, self.buckets.len()).0
    }

    /// All lines, in an order that depends only on the history.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Line, V)> {
        self.used.iter().flat_map(|bucket| self.bucket(bucket))
    }
}

/// Where an entry with this spread would best be.
#[inline]
fn home(spread: u64, capacity: usize) -> usize {
    ((u128::from(spread) * capacity as u128) >> 64) as usize
}

fn next(index: usize, capacity: usize) -> usize {
    if index + 1 == capacity { 0 } else { index + 1 }
}

/// Index of the entry of `line`, or of the unused one where it would go.
#[inline]
fn position<V: LineValue>(entries: &[Entry<V>], line: Line, spread: u64) -> (usize, bool) {
    let wanted = PackedLine::new(line);
    let mut index = home(spread, entries.len());
    loop {
        let entry = &entries[index];
        if entry.value.is_none() {
            return (index, false);
        }
        if entry.line == wanted {
            return (index, true);
        }
        index = next(index, entries.len());
    }
}

/// Moves later entries of the same run into the place at `index`, so that no search stops at a gap
/// before what it looks for.
fn close_gap<V: LineValue>(
    entries: &mut [Entry<V>],
    index: usize,
    spread_of: impl Fn(Line) -> u64,
) {
    let capacity = entries.len();
    let mut gap = index;
    let mut candidate = next(gap, capacity);
    while !entries[candidate].value.is_none() {
        let home = home(spread_of(entries[candidate].line.line()), capacity);
        // How far each place is behind the home of the candidate, going round the end.
        let distance = |place: usize| (place + capacity - home) % capacity;
        if distance(gap) < distance(candidate) {
            entries[gap] = entries[candidate];
            gap = candidate;
        }
        candidate = next(candidate, capacity);
    }
    entries[gap] = Entry::UNUSED;
}

#[cfg(test)]
impl<V: LineValue> LineMap<V> {
    /// Words of the map of buckets that were looked at since the last call.
    pub(crate) fn take_steps(&self) -> usize {
        self.used.take_steps()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    struct Value([u8; 4]);

    impl Value {
        fn new(value: u32) -> Value {
            Value((value + 1).to_le_bytes())
        }
    }

    impl LineValue for Value {
        const NONE: Value = Value([0; 4]);

        fn is_none(&self) -> bool {
            *self == Value::NONE
        }
    }

    fn filled(lines_max: usize, lines: impl Iterator<Item = u64>) -> LineMap<Value> {
        let mut map = LineMap::new(lines_max, LineHash::new(0));
        for line in lines {
            assert_eq!(map.get_or_insert(Line(line), Value::new((line >> 9) as u32)), None);
        }
        map
    }

    fn random_lines(count: u64) -> impl Iterator<Item = u64> {
        (0..count).map(|index| index.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 24)
    }

    proptest! {
        /// So many lines in so few buckets that runs wrap, buckets grow and shrink.
        #[test]
        fn agrees_with_a_map(steps in prop::collection::vec((0u8..8, 0u64..300, any::<u16>()), 1..1000)) {
            let mut map = LineMap::new(4, LineHash::new(0));
            let mut model: BTreeMap<u64, Value> = BTreeMap::new();
            let mut is_filling = true;
            for (what, line, value) in steps {
                let value = Value::new(value.into());
                if line == 0 {
                    is_filling = !is_filling;
                }
                // Mostly filled, then mostly emptied.
                if (what < 6) == is_filling {
                    let known = map.get_or_insert(Line(line), value).map(|known| std::mem::replace(known, value));
                    prop_assert_eq!(known, model.insert(line, value));
                } else {
                    prop_assert_eq!(map.remove(Line(line)), model.remove(&line));
                }
                prop_assert_eq!(map.lines(), model.len());
            }
            for line in 0..300 {
                prop_assert_eq!(map.get(Line(line)), model.get(&line).copied());
                prop_assert_eq!(map.get_mut(Line(line)).copied(), model.get(&line).copied());
                let several = [line, 299 - line, 300, line].map(Line);
                prop_assert_eq!(map.get_each(&several), several.map(|line| map.get(line)));
            }
            let listed: BTreeMap<u64, Value> = map.iter().map(|(line, value)| (line.0, value)).collect();
            prop_assert_eq!(map.iter().count(), model.len());
            prop_assert_eq!(listed, model);
        }
    }

    #[test]
    fn lines_have_forty_bits() {
        let lines = [7, 7 + (1 << 32), (1 << 40) - 1];
        let map = filled(4, lines.into_iter());
        for line in lines {
            assert_eq!(map.get(Line(line)), Some(Value::new((line >> 9) as u32)));
        }
        let mut listed: Vec<u64> = map.iter().map(|(line, _)| line.0).collect();
        listed.sort_unstable();
        assert_eq!(listed, lines);
    }

    #[test]
    #[should_panic(expected = "line.0 < 1 << 40")]
    fn a_line_that_does_not_fit_an_entry_is_a_mistake() {
        filled(4, [1 << 40].into_iter());
    }

    /// Twelve bytes a line for entries of nine, from a twentieth full on; and what was full and is
    /// empty again takes hardly more than what was never filled.
    #[test]
    fn memory_follows_what_is_there() {
        const LINES: usize = 1 << 18;
        let mut map: LineMap<Value> = LineMap::new(LINES, LineHash::new(0));
        let empty = map.memory_bytes();
        assert!(empty < LINES / 20, "{empty} bytes");
        for (count, line) in random_lines(LINES as u64).enumerate() {
            if count.is_power_of_two() && count > LINES / 20 {
                let bytes = (map.memory_bytes() - empty) as f64 / count as f64;
                assert!(bytes < 9.0 * 9.0 / 7.0 + 2.0, "{bytes} bytes a line of {count}");
            }
            map.get_or_insert(Line(line), Value::new(1));
        }
        random_lines(LINES as u64).for_each(|line| assert!(map.remove(Line(line)).is_some()));
        assert_eq!(map.lines(), 0);
        let left = map.memory_bytes() - empty;
        assert!(left < LINES / 3, "{left} bytes");
    }

    /// A look-up is a few entries, also for neighbours in a full map.
    #[test]
    fn neighbours_are_spread() {
        let count = 10_000;
        let map = filled(count as usize, 0..count);
        let steps = |line| {
            let (bucket, spread) = map.hash.bucket(line, map.buckets.len());
            let entries = map.buckets[bucket].as_deref().unwrap();
            let (index, is_known) = position(entries, Line(line), spread);
            assert!(is_known);
            (index + entries.len() - home(spread, entries.len())) % entries.len()
        };
        let all: usize = (0..count).map(steps).sum();
        assert!(all < 6 * count as usize, "{all} steps for {count} lines");
    }
}
