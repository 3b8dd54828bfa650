//! Pointers between extents (DHIS section 3.3): what somebody above the device says about which
//! block names which other, so that blocks nobody can reach are known.
//!
//! A pointer has a *slot*, where it is kept on the cache-disk: eight bytes, both ends plus one, 0
//! if it is free. Lookups go through an index by both ends. Nothing depends on an order of hashing.
//! Tests: against plain sets, cycles, a chain long enough that recursion would not end well.

use std::collections::{BTreeMap, BTreeSet};

use super::extents::ExtentIndex;
use super::free_map::FreeMap;

/// The table of pointers.
#[derive(Clone, Debug)]
pub struct Pointers {
    slots: Vec<u64>,
    free: FreeMap,
    extents: u32,
    slot_of: BTreeMap<(ExtentIndex, ExtentIndex), u32>,
    incoming: BTreeMap<ExtentIndex, u32>,
}

/// Why a pointer cannot be made or deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PointerError {
    /// It is there already.
    #[error("the pointer exists")]
    PointerExists,
    /// There is no such pointer.
    #[error("no such pointer")]
    NoPointer,
    /// All slots are taken.
    #[error("the table of pointers is full")]
    Full,
}

/// Bytes that are no pointers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PointerBytesError {
    /// There are fewer slots.
    #[error("there is no slot {slot} for a pointer, there are {slots}")]
    Slot {
        /// The slot.
        slot: u32,
        /// How many there are.
        slots: u32,
    },
    /// One end is missing, or behind the end of the volume.
    #[error("slot {slot}: {packed:#018x} is no pointer between {extents} extents")]
    Ends {
        /// The slot.
        slot: u32,
        /// What is in it.
        packed: u64,
        /// Extents of the volume.
        extents: u32,
    },
    /// The same pointer is in two slots.
    #[error("slots {first} and {second} hold the same pointer")]
    Twice {
        /// One slot.
        first: u32,
        /// The other.
        second: u32,
    },
}

impl Pointers {
    /// No pointers, with room for `slots` of them between the `extents` of a volume.
    pub fn new(slots: u32, extents: u32) -> Pointers {
        Pointers {
            slots: vec![0; slots as usize],
            free: FreeMap::all_free(u64::from(slots)),
            extents,
            slot_of: BTreeMap::new(),
            incoming: BTreeMap::new(),
        }
    }

    /// Number of pointers.
    pub fn len(&self) -> usize {
        self.slot_of.len()
    }

    /// There is room for so many from now on, which are more.
    pub fn grow(&mut self, slots: u32) {
        assert!(slots >= self.slots());
        self.slots.resize(slots as usize, 0);
        self.free = FreeMap::all_free(u64::from(slots));
        for slot in self.slot_of.values() {
            self.free.take(u64::from(*slot));
        }
    }

    /// The volume has so many extents from now on, which are not fewer.
    pub fn set_extents(&mut self, extents: u32) {
        assert!(extents >= self.extents);
        self.extents = extents;
    }

    /// Number of pointers that there is room for.
    pub fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Makes a pointer, in the first free slot.
    pub fn create(&mut self, from: ExtentIndex, to: ExtentIndex) -> Result<u32, PointerError> {
        assert!(from.0 < self.extents && to.0 < self.extents, "pointer {from:?} {to:?}");
        if self.slot_of.contains_key(&(from, to)) {
            return Err(PointerError::PointerExists);
        }
        let slots = 0..self.slots.len() as u64;
        let slot = self.free.next_in(slots, 0).ok_or(PointerError::Full)? as u32;
        self.slots[slot as usize] = pack(from, to);
        self.insert(slot, from, to);
        Ok(slot)
    }

    /// Deletes a pointer; the slot that it had.
    pub fn delete(&mut self, from: ExtentIndex, to: ExtentIndex) -> Result<u32, PointerError> {
        let slot = self.slot_of.remove(&(from, to)).ok_or(PointerError::NoPointer)?;
        self.slots[slot as usize] = 0;
        self.free.give_back(u64::from(slot));
        let count = self.incoming.get_mut(&to).expect("every pointer is counted at its target");
        *count -= 1;
        if *count == 0 {
            self.incoming.remove(&to);
        }
        Ok(slot)
    }

    /// The slot of a pointer.
    pub fn find(&self, from: ExtentIndex, to: ExtentIndex) -> Option<u32> {
        self.slot_of.get(&(from, to)).copied()
    }

    /// What an extent points to, in order.
    pub fn outgoing(&self, from: ExtentIndex) -> impl Iterator<Item = ExtentIndex> {
        let pairs = (from, ExtentIndex(0))..=(from, ExtentIndex(u32::MAX));
        self.slot_of.range(pairs).map(|((_, to), _)| *to)
    }

    /// How many point to an extent, itself included.
    pub fn incoming_count(&self, to: ExtentIndex) -> u32 {
        self.incoming.get(&to).copied().unwrap_or(0)
    }

    /// The pointer of a slot.
    pub fn slot(&self, slot: u32) -> Option<(ExtentIndex, ExtentIndex)> {
        unpack(self.slots[slot as usize])
    }

    /// A slot as it is kept on the cache-disk.
    pub fn packed(&self, slot: u32) -> u64 {
        self.slots[slot as usize]
    }

    /// Puts into a slot what the cache-disk has for it; a later call for the same slot replaces it.
    /// Lookups work after
    /// [`Pointers::index_loaded`]: pages and redo records are of different moments, and a pointer
    /// that was deleted and made again may be in two slots before the last of them is read.
    pub fn load(&mut self, slot: u32, packed: u64) -> Result<(), PointerBytesError> {
        let slots = self.slots.len() as u32;
        let place = self.slots.get_mut(slot as usize);
        let place = place.ok_or(PointerBytesError::Slot { slot, slots })?;
        let extents = self.extents;
        let fits = match unpack(packed) {
            Some((from, to)) => from.0 < extents && to.0 < extents,
            None => packed == 0,
        };
        if !fits {
            return Err(PointerBytesError::Ends { slot, packed, extents });
        }
        *place = packed;
        Ok(())
    }

    /// Builds the index of everything that was loaded.
    pub fn index_loaded(&mut self) -> Result<(), PointerBytesError> {
        self.slot_of.clear();
        self.incoming.clear();
        self.free = FreeMap::all_free(self.slots.len() as u64);
        for second in 0..self.slots.len() as u32 {
            let Some((from, to)) = self.slot(second) else { continue };
            if let Some(&first) = self.slot_of.get(&(from, to)) {
                return Err(PointerBytesError::Twice { first, second });
            }
            self.insert(second, from, to);
        }
        Ok(())
    }

    fn insert(&mut self, slot: u32, from: ExtentIndex, to: ExtentIndex) {
        assert!(self.free.take(u64::from(slot)), "slot {slot} holds a pointer");
        self.slot_of.insert((from, to), slot);
        *self.incoming.entry(to).or_default() += 1;
    }

    /// Those of `managed` that no chain of pointers from `roots` leads to, in the order of
    /// `managed`. Cycles that nothing points into are among them. A list of what is still to be
    /// followed, no recursion: chains may be long.
    pub fn unreachable(
        &self,
        roots: impl Iterator<Item = ExtentIndex>,
        managed: impl Iterator<Item = ExtentIndex>,
    ) -> Vec<ExtentIndex> {
        let mut reached: BTreeSet<ExtentIndex> = roots.collect();
        let mut to_follow: Vec<ExtentIndex> = reached.iter().copied().collect();
        while let Some(from) = to_follow.pop() {
            to_follow.extend(self.outgoing(from).filter(|to| reached.insert(*to)));
        }
        managed.filter(|extent| !reached.contains(extent)).collect()
    }

    /// Memory taken, roughly: of the maps, what their nodes take on average.
    pub fn memory_bytes(&self) -> u64 {
        const BYTES_PER_POINTER: u64 = 18;
        const BYTES_PER_TARGET: u64 = 12;
        self.slots.len() as u64 * 8
            + self.free.memory_bytes()
            + self.slot_of.len() as u64 * BYTES_PER_POINTER
            + self.incoming.len() as u64 * BYTES_PER_TARGET
    }
}

fn pack(from: ExtentIndex, to: ExtentIndex) -> u64 {
    (u64::from(from.0) + 1) << 32 | (u64::from(to.0) + 1)
}

fn unpack(packed: u64) -> Option<(ExtentIndex, ExtentIndex)> {
    let end = |half: u64| (half as u32).checked_sub(1).map(ExtentIndex);
    Some((end(packed >> 32)?, end(packed)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn extent(index: u32) -> ExtentIndex {
        ExtentIndex(index)
    }

    fn unreachable(pointers: &Pointers, roots: &[u32], managed: &[u32]) -> Vec<u32> {
        let extents = |list: &[u32]| list.iter().copied().map(ExtentIndex).collect::<Vec<_>>();
        let (roots, managed) = (extents(roots), extents(managed));
        pointers.unreachable(roots.into_iter(), managed.into_iter()).iter().map(|e| e.0).collect()
    }

    #[test]
    fn says_why_not() {
        let mut pointers = Pointers::new(2, 10);
        assert_eq!(pointers.create(extent(1), extent(2)), Ok(0));
        assert_eq!(pointers.create(extent(1), extent(2)), Err(PointerError::PointerExists));
        assert_eq!(pointers.create(extent(2), extent(1)), Ok(1));
        assert_eq!(pointers.create(extent(3), extent(1)), Err(PointerError::Full));
        assert_eq!(pointers.delete(extent(3), extent(1)), Err(PointerError::NoPointer));
        assert_eq!(pointers.delete(extent(1), extent(2)), Ok(0));
        assert_eq!(pointers.create(extent(3), extent(1)), Ok(0));
        assert_eq!(pointers.incoming_count(extent(1)), 2);
        assert_eq!(pointers.incoming_count(extent(2)), 0);
    }

    #[test]
    fn refuses_bytes_that_are_no_pointers() {
        let mut pointers = Pointers::new(4, 10);
        let ends = |packed| PointerBytesError::Ends { slot: 1, packed, extents: 10 };
        assert_eq!(pointers.load(4, 0), Err(PointerBytesError::Slot { slot: 4, slots: 4 }));
        for packed in [1, 1 << 32, 11 << 32 | 1, 1 << 32 | 11] {
            assert_eq!(pointers.load(1, packed), Err(ends(packed)));
        }
        // The last one, 9 to 9, can be, and so can a slot that is free again.
        assert_eq!(pointers.load(1, 10 << 32 | 10), Ok(()));
        assert_eq!(pointers.load(3, 10 << 32 | 10), Ok(()));
        let twice = PointerBytesError::Twice { first: 1, second: 3 };
        assert_eq!(pointers.index_loaded(), Err(twice));
        assert_eq!(pointers.load(1, 0), Ok(()));
        assert_eq!(pointers.index_loaded(), Ok(()));
        assert_eq!(pointers.slot(3), Some((extent(9), extent(9))));
        assert_eq!(pointers.create(extent(0), extent(0)), Ok(0));
    }

    #[test]
    fn cycles_and_pointers_to_itself_do_not_keep_a_block() {
        let mut pointers = Pointers::new(10, 100);
        for (from, to) in [(1, 2), (2, 3), (3, 1), (10, 11), (11, 10), (12, 12), (20, 21), (21, 20)]
        {
            pointers.create(extent(from), extent(to)).unwrap();
        }
        let managed = [1, 2, 3, 10, 11, 12, 13, 20, 21];
        assert_eq!(unreachable(&pointers, &[1, 50], &managed), [10, 11, 12, 13, 20, 21]);
        assert_eq!(unreachable(&pointers, &[3, 12, 20], &managed), [10, 11, 13]);
        assert_eq!(unreachable(&pointers, &[], &managed), managed);
    }

    #[test]
    fn a_long_chain() {
        let length = 100_000;
        let mut pointers = Pointers::new(length, length + 1);
        for from in 0..length {
            pointers.create(extent(from), extent(from + 1)).unwrap();
        }
        let managed: Vec<u32> = (0..=length).collect();
        assert_eq!(unreachable(&pointers, &[0], &managed), [] as [u32; 0]);
        pointers.delete(extent(49_999), extent(50_000)).unwrap();
        assert_eq!(unreachable(&pointers, &[0], &managed), managed[50_000..]);
    }

    proptest! {
        /// Against a plain set of pairs, with a reload in the middle.
        #[test]
        fn agrees_with_a_set(operations in prop::collection::vec((0u8..8, 0u32..6, 0u32..6), 1..120)) {
            let mut pointers = Pointers::new(20, 6);
            let mut model = BTreeSet::new();
            for (kind, from, to) in operations {
                if kind == 0 {
                    let mut again = Pointers::new(20, 6);
                    for slot in 0..20 {
                        prop_assert_eq!(again.load(slot, pointers.packed(slot)), Ok(()));
                    }
                    prop_assert_eq!(again.index_loaded(), Ok(()));
                    pointers = again;
                } else if kind < 5 {
                    let is_full = model.len() == 20;
                    let expected = match model.contains(&(from, to)) {
                        true => Some(PointerError::PointerExists),
                        false => is_full.then_some(PointerError::Full),
                    };
                    let created = pointers.create(extent(from), extent(to));
                    prop_assert_eq!(created.err(), expected);
                    if let Ok(slot) = created {
                        model.insert((from, to));
                        prop_assert_eq!(pointers.slot(slot), Some((extent(from), extent(to))));
                    }
                } else {
                    let deleted = pointers.delete(extent(from), extent(to));
                    prop_assert_eq!(deleted.is_ok(), model.remove(&(from, to)));
                    if let Ok(slot) = deleted {
                        prop_assert_eq!(pointers.packed(slot), 0);
                    }
                }
                prop_assert_eq!(pointers.len(), model.len());
                for one in 0..6 {
                    let targets = model.iter().filter(|pair| pair.0 == one).map(|pair| extent(pair.1));
                    prop_assert!(pointers.outgoing(extent(one)).eq(targets));
                    let sources = model.iter().filter(|pair| pair.1 == one).count();
                    prop_assert_eq!(pointers.incoming_count(extent(one)) as usize, sources);
                }
                // What can be reached, by squaring until nothing changes.
                let mut reached = BTreeSet::from([0]);
                for _ in 0..6 {
                    let next: Vec<u32> =
                        model.iter().filter(|p| reached.contains(&p.0)).map(|p| p.1).collect();
                    reached.extend(next);
                }
                let lost: Vec<u32> = (0..6).filter(|one| !reached.contains(one)).collect();
                prop_assert_eq!(unreachable(&pointers, &[0], &[0, 1, 2, 3, 4, 5]), lost);
            }
        }
    }
}
