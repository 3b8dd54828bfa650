//! The policy against a plain model: queues in which everything is found by looking at all of it.
//! After each step both have the same lines in the same slots, in the same order, with the same
//! reads.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;

/// A line in a queue of the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Held {
    slot: u32,
    line: u64,
    reads: u8,
}

/// What the paper says, with what we add to it.
#[derive(Default)]
struct Plain {
    free: VecDeque<u32>,
    small: VecDeque<Held>,
    main: VecDeque<Held>,
    ghost: VecDeque<u64>,
    pinned: BTreeSet<u32>,
    has_evicted: bool,
}

impl Plain {
    fn capacity(&self) -> usize {
        self.free.len() + self.small.len() + self.main.len()
    }

    fn remember(&mut self, line: u64) {
        self.ghost.push_back(line);
        self.trim_ghost(self.capacity());
    }

    fn trim_ghost(&mut self, capacity: usize) {
        while self.ghost.len() > capacity * 9 / 10 {
            self.ghost.pop_front();
        }
    }

    fn held(&mut self) -> impl Iterator<Item = &mut Held> {
        self.small.iter_mut().chain(&mut self.main)
    }

    /// Whether it was a hit, the slot, the line that departed.
    fn read(&mut self, line: u64) -> (bool, Option<u32>, Option<u64>) {
        if let Some(held) = self.held().find(|held| held.line == line) {
            held.reads = (held.reads + 1).min(3);
            return (true, Some(held.slot), None);
        }
        let was_remembered = self.ghost.contains(&line);
        self.ghost.retain(|&remembered| remembered != line);
        let mut departed = None;
        if self.free.iter().all(|slot| self.pinned.contains(slot)) {
            departed = self.evict();
            if departed.is_none() {
                if was_remembered {
                    self.remember(line);
                }
                return (false, None, None);
            }
        }
        let place = self.free.iter().position(|slot| !self.pinned.contains(slot)).unwrap();
        let capacity = self.capacity();
        let slot = self.free.remove(place).unwrap();
        let is_small_full = self.small.len() >= capacity / 10;
        let held = Held { slot, line, reads: 0 };
        if was_remembered || is_small_full && !self.has_evicted {
            self.main.push_back(held);
        } else {
            self.small.push_back(held);
        }
        (false, Some(slot), departed)
    }

    fn evict(&mut self) -> Option<u64> {
        self.has_evicted = true;
        let main_slots = self.capacity() - self.capacity() / 10;
        let held = if self.main.len() > main_slots || self.small.is_empty() {
            self.evict_main().or_else(|| self.evict_small())
        } else {
            self.evict_small().or_else(|| self.evict_main())
        }?;
        self.free.push_back(held.slot);
        Some(held.line)
    }

    fn evict_small(&mut self) -> Option<Held> {
        let mut skipped = 0;
        while skipped < self.small.len() {
            let held = self.small[skipped];
            if held.reads >= 2 {
                self.small.remove(skipped);
                self.main.push_back(Held { reads: 0, ..held });
            } else if self.pinned.contains(&held.slot) {
                skipped += 1;
            } else {
                // The slot becomes free afterwards, but it counts.
                let limit = self.capacity() * 9 / 10;
                self.small.remove(skipped);
                self.ghost.push_back(held.line);
                while self.ghost.len() > limit {
                    self.ghost.pop_front();
                }
                return Some(held);
            }
        }
        None
    }

    fn evict_main(&mut self) -> Option<Held> {
        let mut skipped = 0;
        while skipped < self.main.len() {
            let held = self.main[skipped];
            if held.reads > 0 {
                self.main.remove(skipped);
                self.main.push_back(Held { reads: held.reads - 1, ..held });
            } else if self.pinned.contains(&held.slot) {
                skipped += 1;
            } else {
                return self.main.remove(skipped);
            }
        }
        None
    }

    fn remove(&mut self, slot: u32) {
        self.small.retain(|held| held.slot != slot);
        self.main.retain(|held| held.slot != slot);
        self.free.push_back(slot);
    }

    fn add(&mut self, slots: Range<u32>) {
        self.free.extend(slots);
        self.has_evicted = false;
    }

    fn take(&mut self, slots: Range<u32>) {
        let mut taken: Vec<Held> =
            self.held().filter(|held| slots.contains(&held.slot)).map(|held| *held).collect();
        taken.sort_by_key(|held| held.slot);
        self.free.retain(|slot| !slots.contains(slot));
        self.small.retain(|held| !slots.contains(&held.slot));
        self.main.retain(|held| !slots.contains(&held.slot));
        self.trim_ghost(self.capacity());
        for held in taken {
            self.remember(held.line);
        }
    }
}

/// The policy with the tables of an owner.
struct Owner {
    policy: S3Fifo,
    line_of: Vec<Line>,
    slot_of: BTreeMap<u64, CopySlot>,
    pinned: BTreeSet<u32>,
}

impl Owner {
    fn new(slots_max: u32) -> Owner {
        Owner {
            policy: S3Fifo::new(slots_max, LineHash::new(0)),
            line_of: vec![Line(u64::MAX); slots_max as usize],
            slot_of: BTreeMap::new(),
            pinned: BTreeSet::new(),
        }
    }

    /// An owner that has given all its slots to the policy.
    fn with_slots(slots: u32) -> Owner {
        let mut owner = Owner::new(slots);
        owner.policy.add_slots(0..slots);
        owner
    }

    fn read(&mut self, line: u64) -> (bool, Option<u32>, Option<u64>) {
        if let Some(&slot) = self.slot_of.get(&line) {
            self.policy.hit(slot);
            return (true, Some(slot.0), None);
        }
        let line_of = |slot: CopySlot| self.line_of[slot.0 as usize];
        let is_pinned = |slot: CopySlot| self.pinned.contains(&slot.0);
        let Some(insertion) = self.policy.insert(Line(line), line_of, is_pinned) else {
            return (false, None, None);
        };
        if let Some(departed) = insertion.departed {
            assert_eq!(self.slot_of.remove(&departed.0), Some(insertion.slot));
        }
        self.slot_of.insert(line, insertion.slot);
        self.line_of[insertion.slot.0 as usize] = Line(line);
        (false, Some(insertion.slot.0), insertion.departed.map(|line| line.0))
    }

    fn misses(&mut self, lines: impl IntoIterator<Item = u64>) -> u64 {
        lines.into_iter().map(|line| u64::from(!self.read(line).0)).sum()
    }

    fn remove(&mut self, line: u64) {
        self.policy.remove(self.slot_of.remove(&line).unwrap());
    }

    fn take(&mut self, slots: Range<u32>) {
        self.slot_of.retain(|_, slot| !slots.contains(&slot.0));
        self.policy.take_slots(slots, |slot| self.line_of[slot.0 as usize]);
    }

    fn queue(&self, list: List) -> VecDeque<Held> {
        let held = |slot| Held {
            slot,
            line: self.line_of[slot as usize].0,
            reads: self.policy.slots[slot as usize].reads,
        };
        list.iter(&self.policy.links).map(held).collect()
    }

    fn check_invariants(&self) {
        self.policy.check_invariants(|slot| self.line_of[slot.0 as usize]);
        assert_eq!(self.policy.held() as usize, self.slot_of.len());
        for (&line, &slot) in &self.slot_of {
            assert_eq!(self.line_of[slot.0 as usize], Line(line));
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Read(u64),
    /// Of the lines that are held, one is overwritten.
    Remove(prop::sample::Index),
    /// Any slot, held or free.
    Pin(u32),
    UnpinAll,
    Add(u32),
    Take(u32),
}

const PAGES: u32 = 6;
const PAGE: u32 = 8;

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        // Few lines are read often, so that all ways through the queues are gone.
        40 => (0..20u64).prop_map(Step::Read),
        40 => (0..100u64).prop_map(Step::Read),
        4 => any::<prop::sample::Index>().prop_map(Step::Remove),
        8 => (0..PAGES * PAGE).prop_map(Step::Pin),
        2 => Just(Step::UnpinAll),
        3 => (0..PAGES).prop_map(Step::Add),
        1 => (0..PAGES).prop_map(Step::Take),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn does_what_the_model_does(
        filled in 0..=PAGES,
        steps in prop::collection::vec(step(), 1..600),
    ) {
        let mut owner = Owner::new(PAGES * PAGE);
        let mut plain = Plain::default();
        let mut pages: BTreeSet<u32> = (0..filled).collect();
        owner.policy.add_slots(0..filled * PAGE);
        plain.add(0..filled * PAGE);
        for step in steps {
            match step {
                Step::Read(line) => prop_assert_eq!(owner.read(line), plain.read(line)),
                Step::Remove(index) if !owner.slot_of.is_empty() => {
                    let (&line, &slot) =
                        owner.slot_of.iter().nth(index.index(owner.slot_of.len())).unwrap();
                    owner.remove(line);
                    plain.remove(slot.0);
                }
                Step::Remove(_) => {}
                Step::Pin(slot) => {
                    owner.pinned.insert(slot);
                    plain.pinned.insert(slot);
                }
                Step::UnpinAll => {
                    owner.pinned.clear();
                    plain.pinned.clear();
                }
                Step::Add(page) if pages.insert(page) => {
                    owner.policy.add_slots(page * PAGE..(page + 1) * PAGE);
                    plain.add(page * PAGE..(page + 1) * PAGE);
                }
                Step::Take(page) if pages.remove(&page) => {
                    owner.take(page * PAGE..(page + 1) * PAGE);
                    plain.take(page * PAGE..(page + 1) * PAGE);
                }
                Step::Add(_) | Step::Take(_) => {}
            }
            owner.check_invariants();
            prop_assert_eq!(owner.policy.capacity() as usize, plain.capacity());
            prop_assert_eq!(owner.queue(owner.policy.small), plain.small.clone());
            prop_assert_eq!(owner.queue(owner.policy.main), plain.main.clone());
            let free: VecDeque<u32> = owner.policy.free.iter(&owner.policy.links).collect();
            prop_assert_eq!(free, plain.free.clone());
            let ghost: Vec<u64> = owner.policy.ghost.lines().iter().map(|line| line.0).collect();
            prop_assert_eq!(ghost, plain.ghost.iter().copied().collect::<Vec<_>>());
        }
    }
}

#[test]
fn what_is_read_once_does_not_displace_what_is_read_often() {
    let mut owner = Owner::with_slots(100);
    // small: 0..10, main: 10..100
    assert_eq!(owner.misses(0..100), 100);
    assert_eq!(owner.misses((0..3).flat_map(|_| 10..100)), 0);
    assert_eq!(owner.misses(1000..100_000), 99_000);
    assert_eq!(owner.misses(10..100), 0);
    assert_eq!(owner.policy.held_in_main(), 90);
}

#[test]
fn a_line_that_comes_back_from_the_ghost_comes_into_the_main_queue() {
    let mut owner = Owner::with_slots(20);
    owner.misses(0..20);
    // small: 0 1, main: 2..20. A new line pushes 0 out.
    assert_eq!(owner.read(100), (false, Some(0), Some(0)));
    assert_eq!(owner.policy.place(CopySlot(0)), Place::Small);
    // 0 comes back for 1, and is in the main queue.
    assert_eq!(owner.read(0), (false, Some(1), Some(1)));
    assert_eq!(owner.policy.place(CopySlot(1)), Place::Main);
    assert_eq!(owner.policy.remembered(), 1);
}

#[test]
fn two_reads_in_the_small_queue_prove_a_line_and_one_does_not() {
    let mut owner = Owner::with_slots(20);
    owner.misses(0..20);
    // small: 0 1
    owner.misses([0, 0, 1]);
    assert_eq!(owner.read(100).2, Some(1));
    assert_eq!(owner.policy.place(owner.slot_of[&0]), Place::Main);
}

#[test]
fn a_removed_line_is_not_remembered_and_its_slot_is_next() {
    let mut owner = Owner::with_slots(20);
    owner.misses(0..20);
    owner.remove(7);
    assert_eq!(owner.policy.remembered(), 0);
    assert_eq!(owner.read(100), (false, Some(7), None));
}

#[test]
fn a_free_slot_that_is_pinned_is_not_given_away() {
    let mut owner = Owner::with_slots(20);
    owner.misses(0..20);
    // The read of line 7 is under way when the line is overwritten.
    owner.pinned.insert(7);
    owner.remove(7);
    assert_eq!(owner.read(100), (false, Some(0), Some(0)));
    owner.pinned.clear();
    assert_eq!(owner.read(101), (false, Some(7), None));
}

#[test]
fn nothing_is_evicted_when_all_is_pinned_and_the_ghost_keeps_the_line() {
    let mut owner = Owner::with_slots(20);
    owner.misses(0..20);
    owner.misses([100]);
    owner.pinned = (0..20).collect();
    assert_eq!(owner.read(0), (false, None, None));
    assert_eq!(owner.policy.remembered(), 1);
    owner.pinned.clear();
    owner.read(0);
    assert_eq!(owner.policy.place(owner.slot_of[&0]), Place::Main);
}

#[test]
fn without_slots_nothing_is_held() {
    let mut owner = Owner::new(8);
    assert_eq!(owner.misses([1, 1, 1]), 3);
    owner.policy.add_slots(3..4);
    assert_eq!(owner.misses([1, 1, 2, 2, 1]), 3);
    owner.take(3..4);
    assert_eq!(owner.misses([1]), 1);
    assert_eq!((owner.policy.held(), owner.policy.remembered()), (0, 0));
}

#[test]
fn lines_of_slots_that_are_taken_are_remembered() {
    let mut owner = Owner::with_slots(40);
    owner.misses(0..40);
    owner.take(10..20);
    assert_eq!((owner.policy.capacity(), owner.policy.remembered()), (30, 10));
    assert_eq!(owner.misses(20..40), 0);
    owner.read(15);
    assert_eq!(owner.policy.place(owner.slot_of[&15]), Place::Main);
    owner.check_invariants();
}

#[test]
fn an_insertion_looks_at_few_slots_and_the_next_ones_go_on_from_there() {
    let slots = 3 * STEPS_MAX;
    let mut owner = Owner::with_slots(slots);
    // All lines are read, so all have to be moved before any may leave.
    for _ in 0..4 {
        owner.misses(0..u64::from(slots));
    }
    let mut refused = 0;
    while owner.read(1_000_000).1.is_none() {
        refused += 1;
    }
    // The small queue moves behind the main queue, which goes round once. Then what came from the
    // small queue is at its end, unread since.
    assert_eq!(refused, slots / STEPS_MAX);
    // Another one waits for nothing: two steps are usual.
    assert!(owner.read(1_000_001).1.is_some());
    owner.check_invariants();
}
