//! Which hot blocks stay on the cache-disk: S3-FIFO (Yang et al., *FIFO queues are all you need for
//! cache eviction*, SOSP 2023), as libcachesim has it.
//!
//! ```text
//!   a read missed:   not in the ghost --> [ small queue, 10 % ] --read twice--> [ main queue ] --read--.
//!                        in the ghost ------------------------------------->  ^               ^-------'
//!                                               | else                            | else
//!                                               v                                 v
//!                                          [ ghost, 90 % ]                      gone
//! ```
//!
//! A line comes into the small queue. At its end it moves to the main queue if it was read at least
//! twice since, else it leaves and the ghost remembers it; one that is read while it is remembered
//! comes into the main queue at once. At the end of the main queue a line that was read goes back
//! to the beginning, with one read less (of three at most), else it leaves. So lines that are read
//! once pass through a tenth of the room only.
//!
//! The queues are an order of *slots*: whichever queue a line is in, its data stays where it is.
//! Which line is in which slot is in a table of the owner, who tells it when asked
//! ([`S3Fifo::insert`], [`S3Fifo::take_slots`]).
//!
//! What the paper does not have:
//!
//! - *Pinned* slots (I/O on them is under way) may move between queues, but no line is put into
//!   them: those behind them are taken, and they keep their place. A line may be removed from one;
//!   then it is free, and still pinned.
//! - An insertion looks at no more than [`STEPS_MAX`] slots. If it found none, the line is not
//!   taken in. The next insertion goes on from there, as what was looked at has moved.
//! - Slots come and go in pages. The shares of the queues follow.
//!
//! Tested against a plain model (`s3_fifo_tests.rs`) and, by hand, against libcachesim
//! (`scripts/compare-s3fifo.py`).

use std::ops::Range;

use zerocopy::FromZeros;

use super::ghost::Ghost;
use super::list::{Links, List};
use crate::growing_table::GrowingTable;
use crate::line_hash::LineHash;
use crate::units::{CopySlot, Line};

/// Reads that are counted of a line.
const READS_MAX: u8 = 3;
/// Reads in the small queue that bring a line into the main queue.
const READS_TO_MAIN: u8 = 2;
/// Slots that an insertion looks at, at most. Each but the pinned ones is paid for by an insertion
/// or a read, so two are usual; but after long reading without a miss all of a large main queue may
/// wait to be moved.
pub const STEPS_MAX: u32 = 4096;

/// Where a slot is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromZeros)]
#[repr(u8)]
pub enum Place {
    /// Not in hand: somebody else uses it.
    Absent = 0,
    /// Holds no line.
    Free,
    /// In the small queue: holds a line that has to prove itself.
    Small,
    /// In the main queue: holds a line that has.
    Main,
}

/// A slot and how often its line was read since it came into its queue.
#[derive(Clone, Copy, FromZeros)]
struct SlotState {
    place: Place,
    reads: u8,
}

/// Where a line was taken in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Insertion {
    /// The slot that is the line's from now on.
    pub slot: CopySlot,
    /// The line whose slot it was until now.
    pub departed: Option<Line>,
}

/// The policy.
pub struct S3Fifo {
    slots: GrowingTable<SlotState>,
    links: Links,
    free: List,
    small: List,
    main: List,
    ghost: Ghost,
    /// Slots in hand.
    capacity: u32,
    /// Nothing was evicted since slots were added. While there is room, a full small queue does not
    /// grow; then lines go to the main queue unproven, where they are kept longer than those that
    /// are read once after them.
    is_filling: bool,
}

impl S3Fifo {
    /// A policy for slots `0..slots_max`, none of which it has yet.
    pub fn new(slots_max: u32, hash: LineHash) -> S3Fifo {
        S3Fifo {
            slots: GrowingTable::new(slots_max as usize),
            links: Links::new(slots_max),
            free: List::EMPTY,
            small: List::EMPTY,
            main: List::EMPTY,
            ghost: Ghost::new(ghost_lines(slots_max), hash),
            capacity: 0,
            is_filling: true,
        }
    }

    /// It may be given slots up to `slots_max` from now on, and up to `slots_at_last` later.
    pub fn grow(&mut self, slots_max: u32, slots_at_last: u32) {
        if slots_max as usize > self.slots.len() {
            self.slots.set_len(slots_max as usize);
            self.links.grow(slots_max);
            self.ghost.grow(ghost_lines(slots_at_last));
        }
    }

    /// Slots in hand.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Slots that hold lines.
    pub fn held(&self) -> u32 {
        self.small.len() + self.main.len()
    }

    /// Slots in the main queue.
    #[cfg(test)]
    pub fn held_in_main(&self) -> u32 {
        self.main.len()
    }

    /// Lines that the ghost remembers.
    #[cfg(test)]
    pub fn remembered(&self) -> u32 {
        self.ghost.len()
    }

    /// Where `slot` is.
    pub fn place(&self, slot: CopySlot) -> Place {
        self.slots[slot.0 as usize].place
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.slots.memory_bytes() + self.links.memory_bytes() + self.ghost.memory_bytes()
    }

    /// Gives free slots to the policy.
    pub fn add_slots(&mut self, slots: Range<u32>) {
        for slot in slots.clone() {
            assert_eq!(
                self.slots[slot as usize].place,
                Place::Absent,
                "slot {slot} is here already"
            );
            self.push(slot, Place::Free);
        }
        self.set_capacity(self.capacity + slots.len() as u32);
        self.is_filling = true;
    }

    /// Takes slots from the policy; the owner waits until none of them is pinned. Their lines
    /// depart, and he sees in his table which they are. They depart for lack of room, not for want
    /// of reads, so the ghost remembers all of them.
    pub fn take_slots(&mut self, slots: Range<u32>, line_of: impl Fn(CopySlot) -> Line) {
        self.set_capacity(self.capacity - slots.len() as u32);
        for slot in slots {
            let place = self.slots[slot as usize].place;
            assert_ne!(place, Place::Absent, "slot {slot} is not here");
            self.unlink(slot);
            if place != Place::Free {
                self.ghost.insert(line_of(CopySlot(slot)));
            }
        }
    }

    /// The line in `slot` was read.
    pub fn hit(&mut self, slot: CopySlot) {
        let state = &mut self.slots[slot.0 as usize];
        assert!(matches!(state.place, Place::Small | Place::Main), "{slot:?} holds no line");
        state.reads = READS_MAX.min(state.reads + 1);
    }

    /// A slot for `line`, which has none. Nothing if there is no slot, if none can be evicted, or
    /// if finding one would take too long.
    ///
    /// `line_of` is asked for the line of a slot that holds one, `is_pinned` of slots that do and
    /// of free ones.
    pub fn insert(
        &mut self,
        line: Line,
        line_of: impl Fn(CopySlot) -> Line,
        is_pinned: impl Fn(CopySlot) -> bool,
    ) -> Option<Insertion> {
        let mut steps = STEPS_MAX;
        // Before the eviction, because what is evicted may need its place in the ghost.
        let was_remembered = self.ghost.remove(line);
        let (slot, departed) = match self.find_free(&is_pinned, &mut steps) {
            Some(slot) => (slot, None),
            None => match self.evict(&line_of, &is_pinned, &mut steps) {
                Some((slot, departed)) => (slot, Some(departed)),
                None => {
                    if was_remembered {
                        self.ghost.insert(line);
                    }
                    return None;
                }
            },
        };
        self.unlink(slot);
        let is_small_full = self.is_filling && self.small.len() >= small_slots(self.capacity);
        let place = if was_remembered || is_small_full { Place::Main } else { Place::Small };
        self.push(slot, place);
        Some(Insertion { slot: CopySlot(slot), departed })
    }

    /// A free slot holds a line already, from before a start. It has proved itself then, or would
    /// soon.
    pub fn adopt(&mut self, slot: CopySlot) {
        assert_eq!(self.place(slot), Place::Free, "{slot:?} is not free");
        self.unlink(slot.0);
        self.push(slot.0, Place::Main);
    }

    /// The line in `slot` is no longer the newest: the slot is free again. It was not for want of
    /// reads, but the ghost does not remember it either: what is written is in the log, and comes
    /// back as any other.
    pub fn remove(&mut self, slot: CopySlot) {
        assert!(matches!(self.place(slot), Place::Small | Place::Main), "{slot:?} holds no line");
        self.unlink(slot.0);
        self.push(slot.0, Place::Free);
    }

    fn find_free(&self, is_pinned: impl Fn(CopySlot) -> bool, steps: &mut u32) -> Option<u32> {
        let mut slots = self.free.iter(&self.links).take(*steps as usize);
        slots.find(|&slot| {
            *steps -= 1;
            !is_pinned(CopySlot(slot))
        })
    }

    /// Makes a slot free, and tells it with the line that departs.
    fn evict(
        &mut self,
        line_of: impl Fn(CopySlot) -> Line,
        is_pinned: impl Fn(CopySlot) -> bool,
        steps: &mut u32,
    ) -> Option<(u32, Line)> {
        self.is_filling = false;
        let main_slots = self.capacity - small_slots(self.capacity);
        let from_small = !self.small.is_empty() && self.main.len() <= main_slots;
        // The other queue has its turn if all of the first was moved, or is pinned.
        let (slot, is_remembered) = if from_small {
            let slot = self.pass_small(&is_pinned, steps).map(|slot| (slot, true));
            slot.or_else(|| self.pass_main(&is_pinned, steps).map(|slot| (slot, false)))
        } else {
            let slot = self.pass_main(&is_pinned, steps).map(|slot| (slot, false));
            slot.or_else(|| self.pass_small(&is_pinned, steps).map(|slot| (slot, true)))
        }?;
        let line = line_of(CopySlot(slot));
        self.unlink(slot);
        self.push(slot, Place::Free);
        if is_remembered {
            self.ghost.insert(line);
        }
        Some((slot, line))
    }

    /// From the end of the small queue: moves lines that were read to the main queue, until one was
    /// not.
    fn pass_small(&mut self, is_pinned: impl Fn(CopySlot) -> bool, steps: &mut u32) -> Option<u32> {
        let mut next = self.small.first();
        while let Some(slot) = next {
            *steps = steps.checked_sub(1)?;
            next = self.links.behind(slot);
            if self.slots[slot as usize].reads >= READS_TO_MAIN {
                // It starts anew there: these reads have had their reward.
                self.unlink(slot);
                self.push(slot, Place::Main);
            } else if !is_pinned(CopySlot(slot)) {
                return Some(slot);
            }
        }
        None
    }

    /// From the end of the main queue: moves lines that were read to its beginning, until one was
    /// not.
    fn pass_main(&mut self, is_pinned: impl Fn(CopySlot) -> bool, steps: &mut u32) -> Option<u32> {
        let mut next = self.main.first();
        while let Some(slot) = next {
            *steps = steps.checked_sub(1)?;
            let reads = self.slots[slot as usize].reads;
            if reads > 0 {
                // Moved first: if it is the only one, it is also the next.
                let behind = self.links.behind(slot);
                self.unlink(slot);
                self.push(slot, Place::Main);
                self.slots[slot as usize].reads = reads - 1;
                next = behind.or(Some(slot));
                continue;
            }
            if !is_pinned(CopySlot(slot)) {
                return Some(slot);
            }
            next = self.links.behind(slot);
        }
        None
    }

    fn set_capacity(&mut self, capacity: u32) {
        self.capacity = capacity;
        self.ghost.set_limit(ghost_lines(capacity));
    }

    /// Appends a slot that is in no list to that of `place`, with no reads.
    fn push(&mut self, slot: u32, place: Place) {
        let (list, links) = self.list(place);
        list.push(links, slot);
        self.slots[slot as usize] = SlotState { place, reads: 0 };
    }

    fn unlink(&mut self, slot: u32) {
        let (list, links) = self.list(self.slots[slot as usize].place);
        list.remove(links, slot);
        self.slots[slot as usize] = SlotState { place: Place::Absent, reads: 0 };
    }

    fn list(&mut self, place: Place) -> (&mut List, &mut Links) {
        let list = match place {
            Place::Free => &mut self.free,
            Place::Small => &mut self.small,
            Place::Main => &mut self.main,
            Place::Absent => panic!("slots that are not in hand are in no list"),
        };
        (list, &mut self.links)
    }

    /// Walks everything.
    #[cfg(test)]
    pub fn check_invariants(&self, line_of: impl Fn(CopySlot) -> Line) {
        for (list, place) in
            [(&self.free, Place::Free), (&self.small, Place::Small), (&self.main, Place::Main)]
        {
            list.check_invariants(&self.links);
            for slot in list.iter(&self.links) {
                let state = self.slots[slot as usize];
                assert_eq!(state.place, place);
                if place == Place::Free {
                    assert_eq!(state.reads, 0);
                } else {
                    assert!(state.reads <= READS_MAX);
                    assert!(!self.ghost.contains(line_of(CopySlot(slot))), "held and remembered");
                }
            }
        }
        let present = self.slots.iter().filter(|slot| slot.place != Place::Absent).count();
        assert_eq!(present, self.capacity as usize);
        assert_eq!(self.free.len() + self.held(), self.capacity);
        self.ghost.check_invariants();
    }
}

/// Share of the small queue.
fn small_slots(capacity: u32) -> u32 {
    capacity / 10
}

/// Lines that the ghost remembers, at most.
fn ghost_lines(capacity: u32) -> u32 {
    (u64::from(capacity) * 9 / 10) as u32
}

#[cfg(test)]
#[path = "s3_fifo_tests.rs"]
mod tests;
