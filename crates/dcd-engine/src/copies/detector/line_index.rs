//! From a line to a few numbers, in sets of eight: a look-up is one line of the processor's cache,
//! and what does not fit into its set is not kept. So no input, however chosen, makes a look-up
//! slow or the table large.

use zerocopy::FromZeros;

use crate::units::Line;

/// Entries of a set.
pub(super) const WAYS: usize = 8;
/// No entry: zero, so that the memory of a new index need not be touched. Of tags the highest bit
/// is set, so no entry looks like this.
const EMPTY: u64 = 0;
/// See [`EMPTY`].
const TAG_BIT: u32 = 1 << 31;

/// Eight entries; each a tag (upper half) and a value.
#[derive(Clone, Copy, FromZeros)]
#[repr(C, align(64))]
struct Set([u64; WAYS]);

/// Values by line. The tag is not the whole line: who looks up compares the line with what the
/// value stands for.
pub(super) struct LineIndex {
    sets: Vec<Set>,
    shift: u32,
}

impl LineIndex {
    /// For about so many entries: twice the room, so that few sets overflow.
    pub(super) fn new(entries: usize) -> LineIndex {
        let sets = (entries * 2 / WAYS).next_power_of_two().max(2);
        let shift = 64 - sets.trailing_zeros();
        LineIndex { sets: Set::new_vec_zeroed(sets).expect("memory for an index"), shift }
    }

    /// Bytes that it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.sets.len() * size_of::<Set>()
    }

    /// The values of a line, and perhaps of others with its tag.
    pub(super) fn values(&self, line: Line) -> Values {
        let (set, tag) = self.place(line);
        // No branches: where in the set the tag is found cannot be predicted.
        let mut values = Values { values: [0; WAYS], count: 0 };
        for entry in self.sets[set].0 {
            values.values[values.count % WAYS] = entry as u32;
            values.count += usize::from((entry >> 32) as u32 == tag);
        }
        values
    }

    /// Adds a value. With `same_max` values of the line, or with a full set, it takes the place of
    /// the one that `age` says is oldest.
    pub(super) fn replace_oldest(
        &mut self,
        line: Line,
        value: u32,
        same_max: usize,
        age: impl Fn(u32) -> u32,
    ) {
        let (set, tag) = self.place(line);
        let set = &mut self.sets[set].0;
        let same = |entry: u64| (entry >> 32) as u32 == tag;
        let only_same =
            set.iter().map(|entry| usize::from(same(*entry))).sum::<usize>() >= same_max;
        // No branches here either. An empty entry is older than any other.
        let (mut way, mut oldest) = (0, 0);
        for (other, entry) in set.iter().enumerate() {
            let age = u64::from(age(*entry as u32)) + 1 + (u64::from(*entry == EMPTY) << 33);
            let rank = age * u64::from(!only_same | same(*entry));
            (way, oldest) = if rank > oldest { (other, rank) } else { (way, oldest) };
        }
        set[way] = u64::from(tag) << 32 | u64::from(value);
    }

    /// Adds a value if there is room.
    pub(super) fn insert(&mut self, line: Line, value: u32) {
        let (set, tag) = self.place(line);
        if let Some(entry) = self.sets[set].0.iter_mut().find(|entry| **entry == EMPTY) {
            *entry = u64::from(tag) << 32 | u64::from(value);
        }
    }

    /// Takes a value out, if it is there.
    pub(super) fn remove(&mut self, line: Line, value: u32) {
        let (set, tag) = self.place(line);
        let wanted = u64::from(tag) << 32 | u64::from(value);
        if let Some(entry) = self.sets[set].0.iter_mut().find(|entry| **entry == wanted) {
            *entry = EMPTY;
        }
    }

    fn place(&self, line: Line) -> (usize, u32) {
        let tag = line.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let set = (tag ^ tag >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((set >> self.shift) as usize, (tag >> 33) as u32 | TAG_BIT)
    }
}

/// The values of a line.
pub(super) struct Values {
    values: [u32; WAYS],
    count: usize,
}

impl std::ops::Deref for Values {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        &self.values[..self.count]
    }
}
