//! Bounds against small loads whose answer is known, all ways to clean of small ones, and every
//! policy.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use dcd_engine::nvram::{NvramConfig, NvramPolicyKind, Regions};
use dcd_engine::units::BLOCK_SIZE;
use proptest::prelude::*;

use dcd_sim::bound::{Bound, BoundFacts};
use dcd_sim::disk::model::DiskModel;
use dcd_sim::disk::profile::Profile;
use dcd_sim::replay::{Pace, Replay};
use dcd_sim::target::disk::DiskTarget;
use dcd_sim::target::nvram::NvramTarget;
use dcd_sim::trace::{Flags, Operation, Request};

fn write(number: u64, block: u64, blocks: u64) -> Request {
    Request {
        time_ns: number * 1_000_000,
        operation: Operation::Write,
        device: 0,
        offset_bytes: block * BLOCK_SIZE,
        size_bytes: blocks * BLOCK_SIZE,
        flags: Flags::default(),
        latency_ns: None,
        line: number,
        column: 1,
    }
}

fn config(capacity_blocks: u64) -> NvramConfig {
    NvramConfig { capacity_blocks, bypass_blocks: 8, ..NvramConfig::default() }
}

fn bound(capacity_blocks: u64, group_blocks: u64, writes: &[(u64, u64)]) -> BoundFacts {
    let mut bound = Bound::new(&config(capacity_blocks), Arc::new(Regions::new(group_blocks)));
    for (number, (block, blocks)) in (1..).zip(writes) {
        bound.add(&write(number, *block, *blocks)).unwrap();
    }
    bound.finish()
}

#[test]
fn known_loads_have_known_bounds() {
    // What fits never leaves.
    let fits = [(0, 4), (100, 4), (0, 4), (100, 4)];
    assert_eq!(
        bound(8, 16, &fits),
        BoundFacts { lower_disk_writes: 0, clairvoyant_disk_writes: 0, bypasses: 0 }
    );
    // Once through 64 groups of a block each, with room for 4: 60 must go, each by itself.
    let once: Vec<(u64, u64)> = (0..64).map(|group| (group * 16, 1)).collect();
    let facts = bound(4, 16, &once);
    assert_eq!(facts.clairvoyant_disk_writes, 60);
    assert!((45..=60).contains(&facts.lower_disk_writes), "{facts:?}");
    // A large one goes past, and takes what it covers with it.
    let past = bound(8, 16, &[(0, 8), (0, 16), (100, 8)]);
    assert_eq!((past.lower_disk_writes, past.clairvoyant_disk_writes, past.bypasses), (1, 1, 1));
    // One hot block beside others that come once: who knows keeps it.
    let hot: Vec<(u64, u64)> =
        (0..100).flat_map(|number| [(0, 1), (16 * (number + 1), 1)]).collect();
    assert_eq!(bound(2, 16, &hot).clairvoyant_disk_writes, 99);
}

/// The fewest writes of all ways to clean: states are sets of dirty blocks, each with the fewest
/// writes that lead there. Any group may be cleaned before any write.
fn fewest(capacity: usize, group_blocks: u64, writes: &[(u64, u64)]) -> u64 {
    let runs_of = |dirty: &BTreeSet<u64>, group: u64| {
        let of_group: Vec<u64> =
            dirty.iter().copied().filter(|block| block / group_blocks == group).collect();
        let begins = |block: &&u64| !of_group.contains(&block.wrapping_sub(1));
        of_group.iter().filter(begins).count() as u64
    };
    let mut states: HashMap<BTreeSet<u64>, u64> = HashMap::from([(BTreeSet::new(), 0)]);
    for (block, blocks) in writes {
        // All ways to clean some groups first.
        let mut open: Vec<(BTreeSet<u64>, u64)> = states.drain().collect();
        while let Some((dirty, cost)) = open.pop() {
            if states.get(&dirty).is_some_and(|known| *known <= cost) {
                continue;
            }
            for group in dirty.iter().map(|block| block / group_blocks).collect::<BTreeSet<_>>() {
                let left = dirty.iter().copied().filter(|it| it / group_blocks != group).collect();
                open.push((left, cost + runs_of(&dirty, group)));
            }
            states.insert(dirty, cost);
        }
        let mut after: HashMap<BTreeSet<u64>, u64> = HashMap::new();
        for (mut dirty, cost) in states.drain() {
            dirty.extend(*block..block + blocks);
            if dirty.len() <= capacity {
                let known = after.entry(dirty).or_insert(cost);
                *known = cost.min(*known);
            }
        }
        states = after;
    }
    states.into_values().min().unwrap()
}

proptest! {
    /// Nobody does with fewer than the one, and somebody with as many as the other.
    #[test]
    fn the_best_lies_between(
        writes in prop::collection::vec((0u64..20, 1u64..4), 1..14),
        capacity in 3u64..7,
        group_blocks in 1u64..7,
    ) {
        let facts = bound(capacity, group_blocks, &writes);
        let best = fewest(capacity as usize, group_blocks, &writes);
        prop_assert!(facts.lower_disk_writes <= best, "{facts:?}, {best}");
        prop_assert!(facts.clairvoyant_disk_writes >= best, "{facts:?}, {best}");
    }

    /// No policy, on a disk, in time, has fewer writes than there must be.
    #[test]
    fn no_policy_has_fewer(
        writes in prop::collection::vec((0u64..4000, 1u64..12, 0u64..40), 50..400),
        capacity in 16u64..200,
        group_blocks in 1u64..100,
        high in 20u8..=100,
        policy in 0usize..8,
    ) {
        let policy = [
            NvramPolicyKind::Auto,
            NvramPolicyKind::Lru,
            NvramPolicyKind::Fifo,
            NvramPolicyKind::Stf,
            NvramPolicyKind::Lst,
            NvramPolicyKind::Stack,
            NvramPolicyKind::AgeSize,
            NvramPolicyKind::Gds,
        ][policy];
        let config = NvramConfig {
            policy, high_percent: high, low_percent: high / 3, ..config(capacity)
        };
        let map = Arc::new(Regions::new(group_blocks));
        let disk = DiskModel::new(&Profile::load("hp-97560").unwrap(), 0).unwrap();
        let target = NvramTarget::new(config, map.clone(), DiskTarget::new(disk));
        let mut replay = Replay::new(Box::new(target), Pace::Open { stretch: 1.0 });
        let mut bound = Bound::new(&config, map);
        let mut time_ms = 0;
        for (block, blocks, pause_ms) in writes {
            time_ms += pause_ms;
            let request = write(time_ms, block, blocks);
            bound.add(&request).unwrap();
            replay.add(&request).unwrap();
        }
        let (found, facts) = (replay.finish().target.disk_writes, bound.finish());
        prop_assert!(facts.lower_disk_writes <= found, "{facts:?}, {found}");
        prop_assert!(facts.lower_disk_writes <= facts.clairvoyant_disk_writes, "{facts:?}");
    }
}
