//! Which extents are to be read from a faster place than their own: *replicas*, copies on RAID 0
//! sets of fast devices of what is hot and mostly read, and has its place on slow ones because it
//! is to be protected, or because a set was full.
//!
//! Only memory knows of them: nothing of them is in the tables, a start finds their places free,
//! and a crash has nothing to repair. What is read there has the checksum that it had when it was
//! copied, or is read from its own place (`paths/replicate.rs`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::checksums::LineSum;
use super::extents::{ExtentIndex, Place};
use crate::units::{Duration, Time};

/// Most replicas: with 64 KiB extents 32 GiB of them, for 64 MiB of memory.
const REPLICAS_MAX: usize = 1 << 19;
/// One that was changed is copied again after that: what is changed once often is so again.
const REST: Duration = Duration::from_secs(10);
/// So many are given up behind each input, to make room or because they are of no use.
const GIVEN_UP_AT_ONCE_MAX: usize = 512;
/// Extents that are remembered for that.
const RESTING_MAX: usize = 4096;

/// A copy of an extent.
struct Replica {
    place: Place,
    /// Of each line.
    sums: Box<[LineSum]>,
}

/// All of them, and what should have one.
#[derive(Default)]
pub(super) struct Replicas {
    of: BTreeMap<ExtentIndex, Replica>,
    on_sets: BTreeMap<u8, BTreeSet<ExtentIndex>>,
    waiting: BTreeSet<ExtentIndex>,
    /// Given up since the last input, to make room.
    given_up: usize,
    resting: VecDeque<(Time, ExtentIndex)>,
}

impl Replicas {
    /// How many there are.
    pub(super) fn len(&self) -> u64 {
        self.of.len() as u64
    }

    /// How many are on a set.
    pub(super) fn on_set(&self, set: u8) -> u64 {
        self.on_sets.get(&set).map_or(0, |extents| extents.len() as u64)
    }

    /// Whether there are none, and none is wanted.
    pub(super) fn is_unused(&self) -> bool {
        self.of.is_empty() && self.waiting.is_empty() && self.resting.is_empty()
    }

    /// Whether an extent waits for one.
    pub(super) fn is_any_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// When one that rests waits again.
    pub(super) fn wake_up(&self) -> Option<Time> {
        self.resting.front().map(|(until, _)| *until)
    }

    /// Where the copy of an extent is.
    pub(super) fn place(&self, extent: ExtentIndex) -> Option<Place> {
        self.of.get(&extent).map(|replica| replica.place)
    }

    /// Whether these are lines of the copy at `place`, from its line `first` on, as they were
    /// copied. Not if the copy is gone.
    pub(super) fn is_right(
        &self,
        extent: ExtentIndex,
        place: Place,
        first: usize,
        lines: impl Iterator<Item = LineSum>,
    ) -> bool {
        let replica = self.of.get(&extent).filter(|replica| replica.place == place);
        replica.is_some_and(|replica| {
            lines.zip(&replica.sums[first..]).all(|(line, expected)| line == *expected)
        })
    }

    /// An extent should have one, as long as there are not too many.
    pub(super) fn want(&mut self, extent: ExtentIndex) {
        if self.of.len() + self.waiting.len() < REPLICAS_MAX && !self.of.contains_key(&extent) {
            self.waiting.insert(extent);
        }
    }

    /// It should have none, or none any more. Its place is free now.
    pub(super) fn forget(&mut self, extent: ExtentIndex) -> Option<Place> {
        self.waiting.remove(&extent);
        let replica = self.of.remove(&extent)?;
        self.on_sets.entry(replica.place.set).or_default().remove(&extent);
        Some(replica.place)
    }

    /// It is changed: the same, and it is copied again later.
    pub(super) fn changed(&mut self, now: Time, extent: ExtentIndex) -> Option<Place> {
        let was_waiting = self.waiting.contains(&extent);
        let place = self.forget(extent);
        if place.is_some() || was_waiting {
            self.rest(now, extent);
        }
        place
    }

    /// It is looked at again in a while.
    pub(super) fn rest(&mut self, now: Time, extent: ExtentIndex) {
        if self.resting.len() < RESTING_MAX {
            self.resting.push_back((now.after(REST), extent));
        }
    }

    /// Those that have rested.
    pub(super) fn take_rested(&mut self, now: Time) -> Option<ExtentIndex> {
        let (until, extent) = *self.resting.front()?;
        (until <= now).then(|| {
            self.resting.pop_front();
            extent
        })
    }

    /// The next that waits for one.
    pub(super) fn take_waiting(
        &mut self,
        is_ready: impl Fn(ExtentIndex) -> bool,
    ) -> Option<ExtentIndex> {
        let extent = self.waiting.iter().copied().find(|extent| is_ready(*extent))?;
        self.waiting.remove(&extent);
        Some(extent)
    }

    /// It has been copied.
    pub(super) fn insert(&mut self, extent: ExtentIndex, place: Place, sums: Box<[LineSum]>) {
        self.on_sets.entry(place.set).or_default().insert(extent);
        self.of.insert(extent, Replica { place, sums });
    }

    /// More of them may be given up.
    pub(super) fn input_came(&mut self) {
        self.given_up = 0;
    }

    /// One that goes to make room, of a set or of any; none, if enough have gone behind this input.
    pub(super) fn next_to_go(&mut self, set: Option<u8>) -> Option<ExtentIndex> {
        if self.given_up == GIVEN_UP_AT_ONCE_MAX {
            return None;
        }
        let extent = self.last(set)?;
        self.given_up += 1;
        Some(extent)
    }

    /// The last of a set, or of any.
    pub(super) fn last(&self, set: Option<u8>) -> Option<ExtentIndex> {
        let mut sets = self.on_sets.iter().filter(|(of, _)| set.is_none_or(|set| set == **of));
        sets.find_map(|(_, extents)| extents.last().copied())
    }

    /// Memory taken.
    pub(super) fn memory_bytes(&self) -> u64 {
        let sums: usize = self.of.values().next().map_or(0, |replica| size_of_val(&*replica.sums));
        let each = sums + size_of::<Replica>() + 4 * size_of::<ExtentIndex>() + 16;
        (self.of.len() * each + (self.waiting.len() + self.resting.len()) * 16) as u64
    }
}
