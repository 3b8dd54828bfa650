//! The TTABLE (DHIS section 3.1): which set, and which place in it, each logical extent has, what
//! it is, and what room is left.
//!
//! Eight bytes for each logical extent on the cache-disk, and in memory for each near one that is
//! used. A place is *taken* from the
//! moment when [`Extents::take`] gives it out until [`Extents::free`]: longer than an extent is
//! mapped to it, since a place may be given to another extent only when the cache-disk knows that
//! the first one has left it.
//!
//! **The region for temporary data** lies at the end of the RAID 0 sets: `temporary_bytes` are
//! taken from the last of those sets, all of it if need be, the rest from the one before it, and so
//! on. Only TEMPORARY extents are placed there; they use the rest of a RAID 0 set when the region
//! is full.
//!
//! Tests: `extents_tests.rs`.

use std::ops::Range;

use super::attributes::Attributes;
use super::config::VolumeConfig;
use super::free_map::FreeMap;
use super::placement::{DeviceClass, Placement, RaidLevel, TIERS, Tier};
use super::raid::SetLine;
use super::sparse_table::SparseTable;
use crate::units::LINE_SIZE;

/// Number of a logical extent: byte address of the volume / size of an extent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ExtentIndex(pub u32);

/// Most logical extents of a volume: pointers keep an index plus one in 32 bits.
pub const EXTENTS_MAX: u64 = u32::MAX as u64;
/// Most extents of a set: [`Entry`] has 36 bits for it.
pub const SET_EXTENTS_MAX: u64 = 1 << PLACE_BITS;

/// Room for an extent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place {
    /// Which set.
    pub set: u8,
    /// Which extent of it.
    pub extent: u64,
}

impl Place {
    /// The first line of it.
    pub fn first_line(self, extent_bytes: u64) -> SetLine {
        SetLine(self.extent * (extent_bytes / LINE_SIZE))
    }
}

/// What is known of a logical extent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Entry {
    /// Where it is; `None`: nowhere, it reads as zeroes.
    pub place: Option<Place>,
    /// What it is.
    pub attributes: Attributes,
    /// It came from `alloc_block`: freed when nothing points to it any more.
    pub is_managed: bool,
    /// It was freed, and its zeroes are on their way down through the log: then it is nobody's.
    pub is_dying: bool,
}

// An entry in 64 bits: from the lowest, the extent in the set, the set, the attributes, then three
// flags. An extent of which nothing is known is 0.
const PLACE_BITS: u32 = 36;
const SET_SHIFT: u32 = PLACE_BITS;
const ATTRIBUTES_SHIFT: u32 = SET_SHIFT + 8;
const IS_MAPPED: u64 = 1 << (ATTRIBUTES_SHIFT + 16);
const IS_MANAGED: u64 = IS_MAPPED << 1;
const IS_DYING: u64 = IS_MANAGED << 1;

impl Entry {
    /// As a number, for the disk.
    pub fn pack(self) -> u64 {
        let place = self.place.map_or(0, |place| {
            assert!(place.extent < SET_EXTENTS_MAX, "{place:?}");
            IS_MAPPED | u64::from(place.set) << SET_SHIFT | place.extent
        });
        let managed = if self.is_managed { IS_MANAGED } else { 0 };
        let dying = if self.is_dying { IS_DYING } else { 0 };
        place | managed | dying | u64::from(self.attributes.bits()) << ATTRIBUTES_SHIFT
    }

    /// From a number of the disk; `None` if it is none.
    pub(super) fn unpack(packed: u64) -> Option<Entry> {
        let attributes = Attributes::from_bits((packed >> ATTRIBUTES_SHIFT) as u16)?;
        let place_bits = packed & ((1 << ATTRIBUTES_SHIFT) - 1);
        let place = match packed & IS_MAPPED {
            0 if place_bits != 0 => return None,
            0 => None,
            _ => Some(Place {
                set: (place_bits >> SET_SHIFT) as u8,
                extent: place_bits & (SET_EXTENTS_MAX - 1),
            }),
        };
        let (is_managed, is_dying) = (packed & IS_MANAGED != 0, packed & IS_DYING != 0);
        let is_known = packed < IS_DYING << 1 && (is_managed || !is_dying);
        is_known.then_some(Entry { place, attributes, is_managed, is_dying })
    }

    /// Whether it came from `alloc_block` and was not freed.
    pub fn is_allocated(self) -> bool {
        self.is_managed && !self.is_dying
    }
}

/// Bytes that are no TTABLE.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ExtentsError {
    /// Not what an extent can be.
    #[error("{packed:#018x} is no entry for extent {}", extent.0)]
    Entry {
        /// Which extent.
        extent: ExtentIndex,
        /// What is there.
        packed: u64,
    },
    /// A place that is not there.
    #[error("extent {} is on extent {} of set {}, which is not there", extent.0, place.extent, place.set)]
    Place {
        /// Which extent.
        extent: ExtentIndex,
        /// Where it should be.
        place: Place,
    },
    /// Two extents on one place.
    #[error("extent {} of set {} holds extent {} and another", place.extent, place.set, extent.0)]
    Shared {
        /// The second of them.
        extent: ExtentIndex,
        /// Where both are.
        place: Place,
    },
    /// The volume has fewer extents.
    #[error("there is no extent {}", .0.0)]
    Extent(ExtentIndex),
}

/// How full a set is, in extents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetRoom {
    /// All, the region for temporary data included.
    pub extents: u64,
    /// Of these taken.
    pub used: u64,
    /// Those of the region for temporary data.
    pub temporary: u64,
    /// Of these taken.
    pub temporary_used: u64,
}

/// A free place, and how it was found.
#[derive(Clone, Copy, Debug)]
pub struct FoundPlace {
    place: Place,
    region: Region,
    start: Option<u64>,
}

/// Parts that an extent can be in: RAID 0 of each class has two.
const PARTS_MAX: usize = TIERS + 2;
/// Free places looked at for one that can be used.
const CANDIDATES_MAX: usize = 4096;

#[derive(Clone, Debug)]
struct SetMap {
    tier: Tier,
    extents: u64,
    /// The region for temporary data begins here; `extents` if the set has none.
    temporary_start: u64,
    free: FreeMap,
    temporary_free: u64,
    /// Where the next search begins that is not for a neighbour: in the ordinary part and in the
    /// region.
    next: u64,
    next_temporary: u64,
}

impl SetMap {
    fn new(tier: Tier, extents: u64, temporary: u64) -> SetMap {
        let temporary_start = extents - temporary;
        SetMap {
            tier,
            extents,
            temporary_start,
            free: FreeMap::all_free(extents),
            temporary_free: temporary,
            next: 0,
            next_temporary: temporary_start,
        }
    }

    fn grow(&mut self, extents: u64, temporary: u64) {
        self.free.grow(extents);
        self.extents = extents;
        self.temporary_start = extents - temporary;
        let region = self.temporary_start..extents;
        self.temporary_free = region.filter(|extent| self.free.is_free(*extent)).count() as u64;
        self.next_temporary = self.temporary_start;
    }

    fn range(&self, region: Region) -> Range<u64> {
        match region {
            Region::Ordinary => 0..self.temporary_start,
            Region::Temporary => self.temporary_start..self.extents,
        }
    }

    fn room(&self, region: Region) -> u64 {
        match region {
            Region::Ordinary => self.free.free() - self.temporary_free,
            Region::Temporary => self.temporary_free,
        }
    }

    fn is_temporary(&self, extent: u64) -> bool {
        extent >= self.temporary_start
    }

    fn take(&mut self, extent: u64) -> bool {
        let was_free = self.free.take(extent);
        self.temporary_free -= u64::from(was_free && self.is_temporary(extent));
        was_free
    }

    fn give_back(&mut self, extent: u64) -> bool {
        let was_taken = self.free.give_back(extent);
        self.temporary_free += u64::from(was_taken && self.is_temporary(extent));
        was_taken
    }

    fn is_for_replicas(&self) -> bool {
        self.tier == Tier { level: RaidLevel::Raid0, class: DeviceClass::Fast }
    }

    /// Free places that replicas leave.
    fn kept_from_replicas(&self) -> u64 {
        (self.temporary_start / 8).max(1)
    }

    /// The free place at `start` or the first behind it that can be used; without `start` the
    /// search goes on where it was last.
    fn find(
        &self,
        region: Region,
        start: Option<u64>,
        is_usable: impl Fn(u64) -> bool,
    ) -> Option<u64> {
        let next = match region {
            Region::Ordinary => self.next,
            Region::Temporary => self.next_temporary,
        };
        let mut at = start.unwrap_or(next);
        let first = self.free.next_in(self.range(region), at)?;
        let mut found = first;
        for _ in 0..CANDIDATES_MAX {
            if is_usable(found) {
                return Some(found);
            }
            at = found + 1;
            found = self.free.next_in(self.range(region), at).filter(|found| *found != first)?;
        }
        None
    }

    /// Takes what was found.
    fn take_found(&mut self, region: Region, start: Option<u64>, found: u64) {
        if start.is_none() {
            let next = match region {
                Region::Ordinary => &mut self.next,
                Region::Temporary => &mut self.next_temporary,
            };
            *next = found + 1;
        }
        assert!(self.take(found), "the search found a place that is taken");
    }
}

/// A region of a set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Region {
    Ordinary,
    Temporary,
}

/// A region of all sets of a tier: where an extent is wanted more or less than elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Part {
    tier: Tier,
    region: Region,
}

/// Of each set its tier, its extents, and how many of them are for temporary data.
fn parts_of(config: &VolumeConfig) -> impl Iterator<Item = (Tier, u64, u64)> {
    let mut temporary_left = config.temporary_bytes / config.extent_bytes;
    let parts = config.sets.iter().rev().map(|set| {
        let extents = config.whole_extents(set);
        assert!(extents <= SET_EXTENTS_MAX, "a set of {extents} extents");
        let temporary = match set.level {
            RaidLevel::Raid0 => temporary_left.min(extents),
            RaidLevel::Raid1 | RaidLevel::Raid5 => 0,
        };
        temporary_left -= temporary;
        (set.tier(), extents, temporary)
    });
    let parts: Vec<_> = parts.collect();
    parts.into_iter().rev()
}

/// The TTABLE, and the room of the sets.
#[derive(Clone, Debug)]
pub struct Extents {
    entries: SparseTable<u64>,
    mapped: u64,
    /// Logical extents that have no place and did not come from `alloc_block`.
    unused: FreeMap,
    sets: Vec<SetMap>,
}

impl Extents {
    /// That of a volume of which nothing is mapped, which [`VolumeConfig::validate`] has accepted.
    pub fn new(config: &VolumeConfig) -> Extents {
        let sets = parts_of(config);
        let sets = sets.map(|(tier, extents, temporary)| SetMap::new(tier, extents, temporary));
        let sets = sets.collect();
        let extents = config.extents();
        assert!(extents <= EXTENTS_MAX, "a volume of {extents} extents");
        Extents {
            entries: SparseTable::new(extents),
            mapped: 0,
            unused: FreeMap::all_free(extents),
            sets,
        }
    }

    /// The volume has grown to this: more room in sets, more sets, more logical extents. The region
    /// for temporary data may lie elsewhere, and what is in it is misplaced then.
    ///
    /// # Panics
    /// If there is less of anything.
    pub fn grow(&mut self, config: &VolumeConfig) {
        for (set, (tier, extents, temporary)) in parts_of(config).enumerate() {
            match self.sets.get_mut(set) {
                Some(map) => map.grow(extents, temporary),
                None => self.sets.push(SetMap::new(tier, extents, temporary)),
            }
        }
        self.set_len(config.extents());
        self.unused.grow(config.extents());
    }

    /// There are so many logical extents, which are not fewer. Those that are more are not handed
    /// out before [`Extents::grow`].
    pub fn set_len(&mut self, extents: u64) {
        assert!(extents <= EXTENTS_MAX, "a volume of {extents} extents");
        self.entries.set_len(extents);
    }

    /// Number of logical extents.
    pub fn extents(&self) -> u32 {
        self.entries.len() as u32
    }

    /// The first from this number on of which anything is known.
    pub fn next_known(&self, from: u64) -> Option<ExtentIndex> {
        self.entries.next_used(from).map(|extent| ExtentIndex(extent as u32))
    }

    /// Those of which anything is known, in order.
    pub fn known(&self) -> impl Iterator<Item = ExtentIndex> + Clone + '_ {
        self.entries.used().map(|extent| ExtentIndex(extent as u32))
    }

    /// Number of logical extents that have a place.
    pub fn extents_mapped(&self) -> u64 {
        self.mapped
    }

    /// What is known of an extent.
    pub fn get(&self, extent: ExtentIndex) -> Entry {
        Entry::unpack(self.packed(extent)).expect("entries are checked when they are set")
    }

    /// The same as a number, for the disk.
    pub fn packed(&self, extent: ExtentIndex) -> u64 {
        self.entries.get(extent.0.into())
    }

    /// Changes what is known of an extent. A place must be taken ([`Extents::take`]); one that it
    /// leaves stays taken until [`Extents::free`].
    pub fn set(&mut self, extent: ExtentIndex, entry: Entry) {
        if let Some(place) = entry.place {
            assert!(self.is_taken(place), "{extent:?} on {place:?}, which is free");
        }
        self.mapped -= u64::from(self.get(extent).place.is_some());
        self.mapped += u64::from(entry.place.is_some());
        self.entries.set(extent.0.into(), entry.pack());
        if is_unused(entry) {
            self.unused.give_back(u64::from(extent.0));
        } else {
            self.unused.take(u64::from(extent.0));
        }
    }

    /// Sets an extent to what the cache-disk has for it; a later call replaces it. What is free is
    /// known after
    /// [`Extents::index_loaded`]: pages and redo records are of different moments, and two extents
    /// may seem to share a place before the last of them is read.
    pub fn set_packed(&mut self, extent: ExtentIndex, packed: u64) -> Result<(), ExtentsError> {
        if extent.0 >= self.extents() {
            return Err(ExtentsError::Extent(extent));
        }
        let entry = Entry::unpack(packed).ok_or(ExtentsError::Entry { extent, packed })?;
        if let Some(place) = entry.place
            && self.sets.get(usize::from(place.set)).is_none_or(|set| place.extent >= set.extents)
        {
            return Err(ExtentsError::Place { extent, place });
        }
        self.entries.set(extent.0.into(), packed);
        Ok(())
    }

    /// Finds out what is free after everything was loaded: what no extent is on.
    pub fn index_loaded(&mut self) -> Result<(), ExtentsError> {
        self.unused = FreeMap::all_free(u64::from(self.extents()));
        for set in &mut self.sets {
            *set = SetMap::new(set.tier, set.extents, set.extents - set.temporary_start);
        }
        self.mapped = 0;
        for extent in self.known().collect::<Vec<_>>() {
            let entry = self.get(extent);
            if let Some(place) = entry.place {
                if !self.sets[usize::from(place.set)].take(place.extent) {
                    return Err(ExtentsError::Shared { extent, place });
                }
                self.mapped += 1;
            }
            if !is_unused(entry) {
                self.unused.take(u64::from(extent.0));
            }
        }
        Ok(())
    }

    /// Finds room and takes it.
    #[cfg(test)]
    pub fn allocate(
        &mut self,
        attributes: Attributes,
        near: Option<Place>,
        placement: &Placement,
        is_usable: impl Fn(Place) -> bool,
    ) -> Option<Place> {
        let found = self.find(attributes, near, placement, is_usable)?;
        Some(self.take(found))
    }

    /// Finds room for an extent with these attributes: on the first of its tiers that has any,
    /// there on the set of `near` or else the one with most room, directly behind `near` or else at
    /// the first free place after it that can be used.
    pub fn find(
        &self,
        attributes: Attributes,
        near: Option<Place>,
        placement: &Placement,
        is_usable: impl Fn(Place) -> bool,
    ) -> Option<FoundPlace> {
        let parts = self.parts_for(attributes, placement);
        parts.into_iter().flatten().find_map(|part| self.find_in(part, near, &is_usable))
    }

    /// Takes a place that was found, before anything else is taken or given back.
    pub fn take(&mut self, found: FoundPlace) -> Place {
        let FoundPlace { place, region, start } = found;
        self.sets[usize::from(place.set)].take_found(region, start, place.extent);
        place
    }

    /// The same for an extent that has a place: only if the new one is more wanted than that.
    pub fn allocate_better(&mut self, entry: Entry, placement: &Placement) -> Option<Place> {
        let found =
            self.better_parts(entry, placement).find_map(|part| self.find_in(part, None, |_| true));
        found.map(|found| self.take(found))
    }

    /// Where an extent that has a place is more wanted than there, most of all first.
    pub(super) fn better_parts(
        &self,
        entry: Entry,
        placement: &Placement,
    ) -> impl Iterator<Item = Part> + use<> {
        let now = entry.place.map(|place| self.part_of(place));
        let parts = self.parts_for(entry.attributes, placement);
        parts.into_iter().flatten().take_while(move |part| now.is_some_and(|now| now != *part))
    }

    /// Room for a replica: on a RAID 0 set of fast devices, outside of the region for temporary
    /// data, and only as long as an eighth of that is left to what has its place there.
    pub(super) fn find_for_replica(&self) -> Option<FoundPlace> {
        let sets = self.sets.iter().enumerate();
        let mut roomy = sets.filter(|(_, set)| {
            set.is_for_replicas() && set.room(Region::Ordinary) > set.kept_from_replicas()
        });
        roomy.find_map(|(index, set)| {
            let extent = set.find(Region::Ordinary, None, |_| true)?;
            let place = Place { set: index as u8, extent };
            Some(FoundPlace { place, region: Region::Ordinary, start: None })
        })
    }

    /// Whether there is a set that replicas could be on.
    pub(super) fn has_set_for_replicas(&self) -> bool {
        self.sets.iter().any(SetMap::is_for_replicas)
    }

    /// A set that has less room than is to be left to what has its place there.
    pub(super) fn crowded_by_replicas(&self) -> impl Iterator<Item = u8> + '_ {
        let sets = self.sets.iter().enumerate();
        let crowded = sets.filter(|(_, set)| {
            set.is_for_replicas() && set.room(Region::Ordinary) < set.kept_from_replicas()
        });
        crowded.map(|(index, _)| index as u8)
    }

    /// Whether an extent that is where it is would be read faster from a replica.
    pub(super) fn is_slow(&self, place: Place) -> bool {
        self.sets[usize::from(place.set)].tier.class == DeviceClass::Slow
    }

    /// Whether another extent could be there.
    pub(super) fn has_room(&self, part: Part) -> bool {
        self.sets.iter().any(|set| set.tier == part.tier && set.room(part.region) > 0)
    }

    /// Gives a place back that nothing is on any more.
    pub fn free(&mut self, place: Place) {
        let was_taken = self.sets[usize::from(place.set)].give_back(place.extent);
        assert!(was_taken, "{place:?} was free already");
    }

    /// Whether there is such a place.
    pub fn has_place(&self, place: Place) -> bool {
        place.extent < self.sets[usize::from(place.set)].extents
    }

    /// Whether a place is taken.
    pub fn is_taken(&self, place: Place) -> bool {
        !self.sets[usize::from(place.set)].free.is_free(place.extent)
    }

    /// Whether a place lies in the region for temporary data.
    pub fn is_temporary(&self, place: Place) -> bool {
        self.sets[usize::from(place.set)].is_temporary(place.extent)
    }

    /// The level that such extents should be on: the first of theirs that a set has.
    #[cfg(test)]
    pub fn wanted_level(&self, attributes: Attributes, placement: &Placement) -> RaidLevel {
        let [first, ..] = self.parts_for(attributes, placement);
        let first =
            first.expect("a volume has a set with room outside of the region for temporary data");
        first.tier.level
    }

    /// Whether an extent is not where it should be if there was room: on another tier, or
    /// TEMPORARY and outside of the region for that, or in it and not TEMPORARY.
    pub fn is_misplaced(&self, entry: Entry, placement: &Placement) -> bool {
        self.better_parts(entry, placement).next().is_some()
    }

    /// A logical extent for a new block: the first one behind `near`, or else the first, that has
    /// no place and did not come from `alloc_block`.
    pub fn find_unmapped(&self, near: Option<ExtentIndex>) -> Option<ExtentIndex> {
        let start = near.map_or(0, |near| u64::from(near.0) + 1);
        let found = self.unused.next_in(0..self.unused.size(), start);
        found.map(|extent| ExtentIndex(extent as u32))
    }

    /// How full a set is.
    pub fn set_status(&self, set: u8) -> SetRoom {
        let Some(map) = self.sets.get(usize::from(set)) else {
            // It has come, and nothing may be placed there yet.
            return SetRoom { extents: 0, used: 0, temporary: 0, temporary_used: 0 };
        };
        let temporary = map.extents - map.temporary_start;
        SetRoom {
            extents: map.extents,
            used: map.extents - map.free.free(),
            temporary,
            temporary_used: temporary - map.temporary_free,
        }
    }

    /// Memory taken: a little more than eight bytes for each extent near one that is used, and the
    /// maps of what is free.
    pub fn memory_bytes(&self) -> u64 {
        let maps = self.sets.iter().map(|set| &set.free).chain([&self.unused]);
        self.entries.memory_bytes() + maps.map(FreeMap::memory_bytes).sum::<u64>()
    }

    /// Walks everything: each place that is mapped is taken, and holds one extent. Slow.
    #[cfg(test)]
    pub fn check_invariants(&self) {
        let mut again = self.clone();
        assert_eq!(again.index_loaded(), Ok(()));
        assert_eq!(again.mapped, self.mapped, "extents with a place");
        assert_eq!(again.unused.free(), self.unused.free(), "extents of which nothing is known");
        for extent in self.known() {
            let place = self.get(extent).place;
            assert!(place.is_none_or(|place| self.is_taken(place)), "{extent:?} on {place:?}");
        }
    }

    /// The parts where extents with these attributes may be, most wanted first; those that the
    /// volume has.
    fn parts_for(
        &self,
        attributes: Attributes,
        placement: &Placement,
    ) -> [Option<Part>; PARTS_MAX] {
        let tiers = placement.tiers(attributes);
        let is_raid0 = |tier: &Tier| tier.level == RaidLevel::Raid0;
        let (before, from_raid0) =
            tiers.split_at(tiers.iter().position(is_raid0).expect("it is among them"));
        // The region is for nobody else: its class does not matter.
        let is_temporary = attributes.contains(Attributes::TEMPORARY);
        let regions = tiers.iter().filter(|tier| is_temporary && is_raid0(tier));
        let ordinary = |tier: &Tier| Part { tier: *tier, region: Region::Ordinary };
        let parts = (before.iter().map(ordinary))
            .chain(regions.map(|tier| Part { tier: *tier, region: Region::Temporary }))
            .chain(from_raid0.iter().map(ordinary));
        let mut there = parts.filter(|part| {
            self.sets.iter().any(|set| set.tier == part.tier && !set.range(part.region).is_empty())
        });
        std::array::from_fn(|_| there.next())
    }

    fn part_of(&self, place: Place) -> Part {
        let region = if self.is_temporary(place) { Region::Temporary } else { Region::Ordinary };
        Part { tier: self.sets[usize::from(place.set)].tier, region }
    }

    /// On the set of `near`, or else on the one with most room that has a place which can be used.
    fn find_in(
        &self,
        part: Part,
        near: Option<Place>,
        is_usable: impl Fn(Place) -> bool,
    ) -> Option<FoundPlace> {
        let Part { tier, region } = part;
        let find = |set: usize, start: Option<u64>| {
            let place = |extent| Place { set: set as u8, extent };
            let found = self.sets[set].find(region, start, |extent| is_usable(place(extent)))?;
            Some(FoundPlace { place: place(found), region, start })
        };
        let has_room = |set: &SetMap| set.tier == tier && set.room(region) > 0;
        let near = near.filter(|near| has_room(&self.sets[usize::from(near.set)]));
        if let Some(found) = near.and_then(|near| find(near.set.into(), Some(near.extent + 1))) {
            return Some(found);
        }
        let sets = self.sets.iter().enumerate().filter(|(_, set)| has_room(set));
        let mut sets: Vec<usize> = sets.map(|(set, _)| set).collect();
        // The first of those with the same room.
        sets.sort_by_key(|set| std::cmp::Reverse(self.sets[*set].room(region)));
        sets.into_iter().find_map(|set| find(set, None))
    }
}

fn is_unused(entry: Entry) -> bool {
    entry.place.is_none() && !entry.is_managed
}

#[cfg(test)]
#[path = "extents_tests.rs"]
mod tests;
