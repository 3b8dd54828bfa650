//! A map from cache lines to something small, whose memory follows what is in it.
//!
//! The hash gives each line a *bucket*, and a place in it. A bucket is a small table with open
//! addressing that grows and shrinks by itself, so that no step is longer than to move the few
//! hundred entries of one bucket, however large the map is. How many buckets there are follows from
//! how many lines there may be; one that nothing was put into takes no memory but 16 bytes that
//! nothing has touched. The tables of all buckets lie side by side ([`tables`]).
//!
//! ```text
//! bucket of 8 to 800 entries:   at most 8/9 in use, hardly less than 2/3: about 1.2 entries a line
//! lines of one bucket:          512 on average when the map is full
//! ```

mod tables;

use zerocopy::FromZeros;

use self::tables::{Place, Tables};
use crate::growing_table::untouched_zeroes;
use crate::line_hash::LineHash;
use crate::units::Line;
use crate::used_places::UsedPlaces;

/// Lines in each bucket, on average, when there are as many as there may be.
const BUCKET_LINES: usize = 512;
/// Buckets of a small map: a walk goes from bucket to bucket, and should have some to stop at.
const BUCKETS_MIN: usize = 64;

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

/// Lines of one bucket, and where they are: no table if there is none.
#[derive(Clone, Copy, FromZeros)]
struct Bucket {
    table: Place,
    lines: u32,
}

/// The map.
pub(crate) struct LineMap<V> {
    hash: LineHash,
    /// Memory that nothing has touched but for buckets that held a line.
    buckets: Vec<Bucket>,
    tables: Tables<Entry<V>>,
    /// Buckets that hold a line, for walks that must not depend on the size of the map.
    used: UsedPlaces,
    lines: usize,
    /// For the lines of a bucket while its table is another one.
    moving: Vec<Entry<V>>,
}

impl<V: LineValue> LineMap<V> {
    /// A map without lines that will hold `lines_max` at most; more make it slower.
    pub(crate) fn new(lines_max: usize, hash: LineHash) -> LineMap<V> {
        let buckets = (lines_max / BUCKET_LINES).max(BUCKETS_MIN.min(lines_max)).max(1);
        LineMap {
            hash,
            buckets: untouched_zeroes(buckets),
            tables: Tables::new(lines_max, Entry::UNUSED),
            used: UsedPlaces::new(buckets),
            lines: 0,
            moving: Vec::new(),
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
        self.buckets.len() * size_of::<Bucket>()
            + self.used.memory_bytes()
            + self.tables.memory_bytes()
    }

    /// What is held for `line`.
    #[inline]
    pub(crate) fn get(&self, line: Line) -> Option<V> {
        let (bucket, spread) = self.hash.bucket(line.0, self.buckets.len());
        let entries = self.entries(bucket);
        let (index, is_known) = position(entries, line, spread)?;
        is_known.then(|| entries[index].value)
    }

    /// The table of a bucket.
    #[inline]
    fn entries(&self, bucket: usize) -> &[Entry<V>] {
        self.tables.get(self.buckets[bucket].table)
    }

    /// The same, to be changed.
    #[inline]
    fn entries_mut(&mut self, bucket: usize) -> &mut [Entry<V>] {
        self.tables.get_mut(self.buckets[bucket].table)
    }

    /// What is held for each of these lines. Nobody knows where the next line lies before it is
    /// asked for, so one look-up after the other waits for memory each time; these wait together.
    #[inline]
    pub(crate) fn get_each<const N: usize>(&self, lines: &[Line; N]) -> [Option<V>; N] {
        let places = lines.map(|line| self.hash.bucket(line.0, self.buckets.len()));
        let tables = places.map(|(bucket, _)| self.buckets[bucket].table);
        let buckets = tables.map(|table| self.tables.get(table));
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
            let (index, is_known) = position(buckets[i], lines[i], places[i].1)?;
            is_known.then(|| buckets[i][index].value)
        })
    }

    /// The same, to be changed: to anything but [`LineValue::NONE`].
    #[inline]
    pub(crate) fn get_mut(&mut self, line: Line) -> Option<&mut V> {
        let (bucket, spread) = self.hash.bucket(line.0, self.buckets.len());
        let entries = self.entries_mut(bucket);
        let (index, is_known) = position(entries, line, spread)?;
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
        let length = self.entries(bucket).len();
        let mut found = position(self.entries(bucket), line, spread);
        if let Some((index, true)) = found {
            return Some(&mut self.entries_mut(bucket)[index].value);
        }
        let count = self.buckets[bucket].lines as usize + 1;
        if count * 9 > length * 8 {
            let longer = self.tables.longer(length);
            self.resize(bucket, longer);
            found = position(self.entries(bucket), line, spread);
        }
        let (index, _) = found.expect("it has room");
        self.entries_mut(bucket)[index] = Entry { line: PackedLine::new(line), value };
        self.buckets[bucket].lines = count as u32;
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
        let table = self.buckets[bucket].table;
        let entries = self.tables.get_mut(table);
        let (index, is_known) = position(entries, line, spread)?;
        if !is_known {
            return None;
        }
        let value = entries[index].value;
        let (hash, length) = (self.hash, entries.len());
        close_gap(entries, index, |line| hash.bucket(line.0, buckets).1);
        let count = self.buckets[bucket].lines as usize - 1;
        self.buckets[bucket].lines = count as u32;
        self.lines -= 1;
        if count == 0 {
            self.used.remove(bucket);
            self.buckets[bucket].table = Place::default();
            self.give_back(table);
        } else if let Some(shorter) = self.tables.shorter(length)
            && count * 4 < shorter * 3
        {
            // Behind that at most three of four are in use: what comes and goes does not move it to
            // and fro.
            self.resize(bucket, shorter);
        }
        Some(value)
    }

    /// Gives a bucket a table of this length, and what it holds new places.
    #[cold]
    fn resize(&mut self, bucket: usize, length: usize) {
        let old = std::mem::take(&mut self.buckets[bucket].table);
        let mut moving = std::mem::take(&mut self.moving);
        moving.clear();
        moving.extend(self.tables.get(old).iter().filter(|entry| !entry.value.is_none()));
        if old != Place::default() {
            self.give_back(old);
        }
        let table = self.tables.take(length);
        self.buckets[bucket].table = table;
        let entries = self.tables.get_mut(table);
        for entry in &moving {
            let line = entry.line.line();
            let (_, spread) = self.hash.bucket(line.0, self.buckets.len());
            let (index, _) = position(entries, line, spread).expect("it is long enough");
            entries[index] = *entry;
        }
        self.moving = moving;
    }

    /// The table is of no bucket any more; the one that has moved there keeps its own.
    fn give_back(&mut self, freed: Place) {
        let Some(before) = self.tables.give_back(freed) else { return };
        let entries = self.tables.get(freed);
        let entry = entries.iter().find(|entry| !entry.value.is_none());
        let line = entry.expect("a bucket that has a table holds a line").line.line();
        let bucket = self.bucket_of(line);
        assert!(self.buckets[bucket].table == before, "two buckets with one table");
        self.buckets[bucket].table = freed;
    }

    /// The first bucket from this one on that holds a line. A line stays in its bucket for ever.
    pub(crate) fn bucket_from(&self, bucket: usize) -> Option<usize> {
        self.used.iter_from(bucket).next()
    }

    /// All lines of a bucket, in an order that depends only on the history.
    pub(crate) fn bucket(&self, bucket: usize) -> impl Iterator<Item = (Line, V)> {
        let used = self.entries(bucket).iter().filter(|entry| !entry.value.is_none());
        used.map(|entry| (entry.line.line(), entry.value))
    }

    /// The same, to be changed: to anything but [`LineValue::NONE`].
    pub(crate) fn bucket_mut(&mut self, bucket: usize) -> impl Iterator<Item = (Line, &mut V)> {
        let used = self.entries_mut(bucket).iter_mut().filter(|entry| !entry.value.is_none());
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

/// Index of the entry of `line`, or of the unused one where it would go; `None` without entries.
#[inline]
fn position<V: LineValue>(entries: &[Entry<V>], line: Line, spread: u64) -> Option<(usize, bool)> {
    let wanted = PackedLine::new(line);
    let mut index = home(spread, entries.len());
    loop {
        let entry = entries.get(index)?;
        if entry.value.is_none() {
            return Some((index, false));
        }
        if entry.line == wanted {
            return Some((index, true));
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
        fn agrees_with_a_map(
            lines_max in prop::sample::select(vec![4, 100, 1000]),
            steps in prop::collection::vec((0u8..8, 0u64..300, any::<u16>()), 1..1000),
        ) {
            let mut map = LineMap::new(lines_max, LineHash::new(0));
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

    /// Twelve bytes a line for entries of nine, and two chunks; and what was full and is empty again
    /// takes hardly more than what was never filled.
    #[test]
    fn memory_follows_what_is_there() {
        const LINES: usize = 1 << 18;
        let mut map: LineMap<Value> = LineMap::new(LINES, LineHash::new(0));
        let empty = map.memory_bytes();
        assert!(empty < LINES / 20, "{empty} bytes");
        for (count, line) in random_lines(LINES as u64).enumerate() {
            if count.is_power_of_two() {
                let bytes = map.memory_bytes() - empty;
                assert!(bytes < 12 * count + (128 << 10), "{bytes} bytes for {count} lines");
            }
            map.get_or_insert(Line(line), Value::new(1));
        }
        let full = map.memory_bytes() - empty;
        assert!(full < 12 * LINES + (128 << 10), "{full} bytes");
        random_lines(LINES as u64).for_each(|line| assert!(map.remove(Line(line)).is_some()));
        assert_eq!(map.lines(), 0);
        let left = map.memory_bytes() - empty;
        assert!(left < 4 << 10, "{left} bytes");
    }

    /// A log that has grown has more lines than there were to be: buckets are longer, and no less
    /// full. Three of four lengths are used here, each by some buckets.
    #[test]
    fn more_lines_than_there_were_to_be_take_as_much_memory_each() {
        const LINES_MAX: usize = 1 << 14;
        let mut map: LineMap<Value> = LineMap::new(LINES_MAX, LineHash::new(0));
        let empty = map.memory_bytes();
        for (count, line) in (1..).zip(random_lines(16 * LINES_MAX as u64)) {
            map.get_or_insert(Line(line), Value::new(1));
            if count > LINES_MAX && count % (LINES_MAX / 4) == 0 {
                let bytes = map.memory_bytes() - empty;
                assert!(bytes < 12 * count + (32 << 10), "{bytes} bytes for {count} lines");
            }
        }
    }

    /// A look-up is a few entries, also for neighbours in a full map.
    #[test]
    fn neighbours_are_spread() {
        let count = 10_000;
        let map = filled(count as usize, 0..count);
        let steps = |line| {
            let (bucket, spread) = map.hash.bucket(line, map.buckets.len());
            let entries = map.entries(bucket);
            let (index, is_known) = position(entries, Line(line), spread).unwrap();
            assert!(is_known);
            (index + entries.len() - home(spread, entries.len())) % entries.len()
        };
        let all: usize = (0..count).map(steps).sum();
        assert!(all < 6 * count as usize, "{all} steps for {count} lines");
    }
}
