//! A policy that knows all writes to come: whenever a write needs room, the group goes that will
//! not be written for longest, or that frees more room for a write to the disk; which of these
//! counts how much is tried, and the fewest writes count. Not the best there could be, but nobody
//! need do worse.
//!
//! What counts is when *any* block of the group is written again: who cleans it before that writes
//! it twice.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use dcd_engine::Lba;
use dcd_engine::nvram::GroupMap;

use super::{NumberState, Written};

/// What is tried: how far is looked ahead, in capacities written, and the power of the number of
/// blocks that are freed.
const TRIED: [(u64, f64); 6] =
    [(4, 0.0), (4, 0.5), (4, 1.0), (1024, 0.0), (1024, 0.5), (1024, 1.0)];
/// Groups are looked at all at once, and one in so many of them may go until they are again.
const CHOSEN_AT_ONCE: usize = 256;
/// Never.
const NEVER: u32 = u32::MAX;

/// A load and its future.
pub struct Clairvoyant<'a> {
    writes: &'a [Written],
    map: Arc<dyn GroupMap>,
    /// Of each block written, in order: how many are, until its group is written by another write.
    again: Vec<u32>,
}

/// Dirty blocks of a group.
#[derive(Default)]
struct Group {
    blocks: BTreeSet<u64>,
    /// Runs of them.
    runs: u64,
    /// The number of its last change, of those of all groups.
    touch: u64,
    /// When it is written again.
    again: u32,
}

impl Group {
    /// Whether the block was not there.
    fn set(&mut self, block: u64) -> bool {
        let is_new = self.blocks.insert(block);
        if is_new {
            self.runs = self.runs + 1 - self.neighbours(block);
        }
        is_new
    }

    /// Whether the block was there.
    fn unset(&mut self, block: u64) -> bool {
        let was_there = self.blocks.remove(&block);
        if was_there {
            self.runs = self.runs + self.neighbours(block) - 1;
        }
        was_there
    }

    fn neighbours(&self, block: u64) -> u64 {
        let neighbours = [block.wrapping_sub(1), block + 1];
        neighbours.iter().filter(|neighbour| self.blocks.contains(neighbour)).count() as u64
    }
}

impl<'a> Clairvoyant<'a> {
    /// Of writes of so many blocks, those past the memory not counted.
    pub fn new(writes: &'a [Written], blocks: u64, map: Arc<dyn GroupMap>) -> Clairvoyant<'a> {
        let mut again = vec![NEVER; blocks as usize];
        let mut next: HashMap<u64, u32, NumberState> = HashMap::default();
        let mut number = blocks as u32;
        for Written { range, is_bypass } in writes.iter().rev() {
            let first = if *is_bypass { number } else { number - range.blocks as u32 };
            let starts = (range.start.0..range.end()).map(|block| map.group_of(Lba(block)).start.0);
            let starts: Vec<u64> = starts.collect();
            if !is_bypass {
                for (at, start) in (first..).zip(&starts) {
                    again[at as usize] = next.get(start).copied().unwrap_or(NEVER);
                }
            }
            next.extend(starts.into_iter().map(|start| (start, first)));
            number = first;
        }
        Clairvoyant { writes, map, again }
    }

    /// The fewest writes to the disk, of all that is tried.
    pub fn fewest(&self, capacity_blocks: u64) -> u64 {
        let of = |(capacities, power): &(u64, f64)| {
            let horizon = u32::try_from(capacity_blocks.saturating_mul(*capacities));
            self.cleanings(capacity_blocks, horizon.unwrap_or(NEVER), *power)
        };
        TRIED.iter().map(of).min().unwrap_or(0)
    }

    fn cleanings(&self, capacity_blocks: u64, horizon: u32, power: f64) -> u64 {
        let mut groups: BTreeMap<u64, Group> = BTreeMap::new();
        // Those that go next, the best last. Whoever has changed since does not.
        let mut chosen: Vec<(u64, u64)> = Vec::new();
        let (mut dirty, mut now, mut cleanings, mut touches) = (0u64, 0u32, 0u64, 0u64);
        let group_of = |block: u64| self.map.group_of(Lba(block)).start.0;
        for Written { range, is_bypass } in self.writes {
            let all = range.start.0..range.end();
            if *is_bypass {
                for block in all {
                    let start = group_of(block);
                    if let Some(group) = groups.get_mut(&start) {
                        touches += 1;
                        group.touch = touches;
                        dirty -= u64::from(group.unset(block));
                        if group.blocks.is_empty() {
                            groups.remove(&start);
                        }
                    }
                }
                continue;
            }
            loop {
                let is_new = |block: &u64| {
                    let group = groups.get(&group_of(*block));
                    group.is_none_or(|group| !group.blocks.contains(block))
                };
                let new = all.clone().filter(is_new).count() as u64;
                if dirty + new <= capacity_blocks {
                    break;
                }
                let Some((start, touch)) = chosen.pop() else {
                    let worth = |(start, group): (&u64, &Group)| {
                        let time = group.again.saturating_sub(now).min(horizon);
                        let blocks = (group.blocks.len() as f64).powf(power);
                        (f64::from(time) * blocks / group.runs as f64, *start, group.touch)
                    };
                    let mut all: Vec<(f64, u64, u64)> = groups.iter().map(worth).collect();
                    let order = |a: &(f64, u64, u64), b: &(f64, u64, u64)| {
                        // Of equals the one that was written longest ago.
                        a.0.total_cmp(&b.0).then(b.2.cmp(&a.2))
                    };
                    let others = all.len() - all.len().div_ceil(CHOSEN_AT_ONCE);
                    all.select_nth_unstable_by(others, order);
                    let best = &mut all[others..];
                    best.sort_unstable_by(order);
                    chosen.extend(best.iter().map(|(_, start, touch)| (*start, *touch)));
                    continue;
                };
                if groups.get(&start).is_some_and(|group| group.touch == touch) {
                    let group = groups.remove(&start).expect("it is there");
                    dirty -= group.blocks.len() as u64;
                    cleanings += group.runs;
                }
            }
            for block in all {
                let group = groups.entry(group_of(block)).or_default();
                touches += 1;
                group.touch = touches;
                group.again = self.again[now as usize];
                now += 1;
                dirty += u64::from(group.set(block));
            }
        }
        cleanings
    }
}
