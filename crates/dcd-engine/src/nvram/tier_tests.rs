//! The tier against a plain model: a list of blocks, in which everything is found by looking at all
//! of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::units::Lba;

const BLOCKS: u64 = 4000;

/// A block in memory.
#[derive(Clone, Copy)]
struct Dirty {
    version: u64,
    /// The version that is on its way to the disk.
    cleaning: Option<u64>,
}

/// What the memory must hold, and the only group that may be cleaned next.
struct Plain {
    config: NvramConfig,
    group_blocks: u64,
    disk: Vec<u64>,
    memory: BTreeMap<u64, Dirty>,
    /// First blocks of groups, by the time of their last write or of their return to the list,
    /// newest last.
    order: Vec<u64>,
    /// Those that came to the front and were not pushed out of the hot zone since.
    hot: BTreeSet<u64>,
    hot_zone_blocks: u64,
    written_at: BTreeMap<u64, Time>,
    touch: BTreeMap<u64, u64>,
    touches: u64,
    bypasses: Vec<LbaRange>,
}

impl Plain {
    fn group_of(&self, block: u64) -> u64 {
        block / self.group_blocks * self.group_blocks
    }

    fn groups_of(&self, range: LbaRange) -> Vec<u64> {
        let mut groups: Vec<u64> = blocks(range).map(|block| self.group_of(block)).collect();
        groups.dedup();
        groups
    }

    fn blocks_of(&self, group: u64) -> impl Iterator<Item = (&u64, &Dirty)> {
        self.memory.range(group..group + self.group_blocks)
    }

    fn is_listed(&self, group: u64) -> bool {
        let range = LbaRange::new(group, self.group_blocks);
        self.blocks_of(group).count() > 0
            && self.blocks_of(group).all(|(_, dirty)| dirty.cleaning.is_none())
            && !self.bypasses.iter().any(|bypass| bypass.overlaps(range))
    }

    /// The list, newest first, each with its size.
    fn list(&self) -> Vec<(u64, usize)> {
        let listed = self.order.iter().rev().filter(|group| self.is_listed(**group));
        listed.map(|group| (*group, self.blocks_of(*group).count())).collect()
    }

    /// The newest that fit together are hot.
    fn cool(&mut self) {
        let (mut sum, mut is_full) = (0, false);
        for (group, size) in self.list() {
            sum += size as u64;
            is_full |= !self.hot.contains(&group) || sum > self.hot_zone_blocks;
            if is_full {
                self.hot.remove(&group);
            }
        }
    }

    /// By definition (Haining, sections 3.1 and 4.2).
    fn choose(&self, now: Time, head: Lba) -> Option<u64> {
        let list = self.list();
        let nearest = |cost: &dyn Fn(u64) -> u64| {
            list.iter().map(|(group, _)| *group).min_by_key(|group| (cost(*group), *group))
        };
        let oldest = list.last().map(|(group, _)| *group);
        match self.config.policy {
            NvramPolicyKind::Lru | NvramPolicyKind::Fifo => oldest,
            NvramPolicyKind::Stf => nearest(&|group| group.abs_diff(head.0)),
            NvramPolicyKind::WeightedStf { age_max } => {
                let age = |group: u64| now.since(self.written_at[&group]);
                if let Some(oldest) = oldest.filter(|oldest| age(*oldest) >= age_max) {
                    return Some(oldest);
                }
                let left = |group| age_max.0.saturating_sub(age(group).0);
                nearest(&|group| group.abs_diff(head.0) * left(group) / age_max.0)
            }
            NvramPolicyKind::Lst | NvramPolicyKind::Stack => {
                let cold = list.iter().filter(|(group, _)| !self.hot.contains(group));
                let older = |group: &u64| std::cmp::Reverse(self.touch[group]);
                cold.max_by_key(|(group, size)| (*size, older(group))).map(|(group, _)| *group)
            }
            policy => unreachable!("{policy:?} is compared with a scan where its order is kept"),
        }
    }

    fn comes_to_front(&mut self, group: u64) {
        self.order.retain(|other| *other != group);
        self.order.push(group);
        self.hot.insert(group);
    }

    fn store(&mut self, now: Time, range: LbaRange, version: u64) {
        for group in self.groups_of(range) {
            self.touches += 1;
            self.touch.insert(group, self.touches);
            self.written_at.insert(group, now);
            let is_new = self.blocks_of(group).count() == 0;
            let comes_again = self.config.policy != NvramPolicyKind::Fifo && self.is_listed(group);
            if is_new || comes_again {
                self.comes_to_front(group);
            }
        }
        for block in blocks(range) {
            let cleaning = self.memory.get(&block).and_then(|dirty| dirty.cleaning);
            self.memory.insert(block, Dirty { version, cleaning });
        }
        self.cool();
    }

    fn cleaned(&mut self, range: LbaRange) {
        for block in blocks(range) {
            let dirty = self.memory.get_mut(&block).expect("it stays until it has arrived");
            let arrived = dirty.cleaning.take().expect("it was on its way");
            self.disk[block as usize] = arrived;
            if dirty.version == arrived {
                self.memory.remove(&block);
            }
        }
        let group = self.group_of(range.start.0);
        if self.is_listed(group) {
            self.comes_to_front(group);
            self.cool();
        }
    }

    fn bypassed(&mut self, range: LbaRange, version: u64) {
        let index = self.bypasses.iter().position(|bypass| *bypass == range).expect("begun");
        self.bypasses.remove(index);
        for block in blocks(range) {
            self.memory.remove(&block);
            self.disk[block as usize] = version;
        }
        for group in self.groups_of(range) {
            if self.is_listed(group) {
                self.comes_to_front(group);
                self.cool();
            }
        }
    }

    fn read(&self, block: u64) -> u64 {
        self.memory.get(&block).map_or(self.disk[block as usize], |dirty| dirty.version)
    }
}

fn blocks(range: LbaRange) -> impl Iterator<Item = u64> {
    range.start.0..range.end()
}

/// The tier, the model, and a disk that ends I/Os when it is told to.
struct Pair {
    nvram: Nvram,
    plain: Plain,
    now: Time,
    head: LastAddress,
    below: Vec<BelowIo>,
    requests: BTreeMap<RequestId, NvramRequest>,
    replied: Vec<NvramReply>,
    cleaning_writes: Vec<LbaRange>,
}

impl Pair {
    fn new(config: NvramConfig, group_blocks: u64) -> Pair {
        let nvram = Nvram::new(config, Arc::new(Regions::new(group_blocks)));
        Pair {
            plain: Plain {
                config,
                group_blocks,
                disk: vec![0; BLOCKS as usize],
                memory: BTreeMap::new(),
                order: Vec::new(),
                hot: BTreeSet::new(),
                hot_zone_blocks: nvram.hot_zone_blocks(),
                written_at: BTreeMap::new(),
                touch: BTreeMap::new(),
                touches: 0,
                bypasses: Vec::new(),
            },
            nvram,
            now: Time::ZERO,
            head: LastAddress::default(),
            below: Vec::new(),
            requests: BTreeMap::new(),
            replied: Vec::new(),
            cleaning_writes: Vec::new(),
        }
    }

    fn input(&mut self, input: NvramInput) {
        self.nvram.handle_input(self.now, input, &self.head);
        // A group is chosen once, and written in several runs.
        let mut runs_left: Vec<LbaRange> = Vec::new();
        while let Some(output) = self.nvram.poll_output() {
            match output {
                NvramOutput::Reply(reply) => self.replied(reply),
                NvramOutput::Below(io) => {
                    match io.purpose {
                        BelowPurpose::Cleaning => self.cleaning_started(io.range, &mut runs_left),
                        BelowPurpose::Request(_) if io.operation == NvramOperation::Write => {
                            self.plain.bypasses.push(io.range);
                        }
                        BelowPurpose::Request(_) => {}
                    }
                    self.below.push(io);
                }
            }
        }
        assert!(runs_left.is_empty(), "all runs of a group are written");
        self.nvram.check_invariants();
        assert_eq!(self.nvram.dirty_blocks(), self.plain.memory.len() as u64);
    }

    fn replied(&mut self, reply: NvramReply) {
        let request = self.requests[&reply.id];
        self.replied.push(reply);
        match request.operation {
            NvramOperation::Write if reply.from_memory => {
                self.plain.store(self.now, request.range, reply.id.0);
            }
            NvramOperation::Write => {}
            NvramOperation::Read => {
                let is_hit = blocks(request.range).all(|b| self.plain.memory.contains_key(&b));
                assert!(!reply.from_memory || is_hit);
            }
        }
    }

    fn cleaning_started(&mut self, run: LbaRange, runs_left: &mut Vec<LbaRange>) {
        if runs_left.is_empty() {
            let chosen = self.plain.choose(self.now, self.head.0);
            // For a write that waits, rather a hot group than none.
            let oldest = self.plain.list().last().map(|(group, _)| *group);
            let group = chosen.or(oldest).expect("there is a group");
            assert_eq!(group, self.plain.group_of(run.start.0), "chosen otherwise");
            let dirty: Vec<u64> = self.plain.blocks_of(group).map(|(block, _)| *block).collect();
            for block in dirty {
                match runs_left.last_mut() {
                    Some(last) if last.end() == block => last.blocks += 1,
                    _ => runs_left.push(LbaRange::new(block, 1)),
                }
                let dirty = self.plain.memory.get_mut(&block).expect("listed");
                dirty.cleaning = Some(dirty.version);
            }
        }
        assert_eq!(runs_left.remove(0), run);
        self.cleaning_writes.push(run);
    }

    fn request(&mut self, number: u64, operation: NvramOperation, range: LbaRange) {
        let request = NvramRequest { id: RequestId(number), operation, range };
        self.requests.insert(request.id, request);
        self.input(NvramInput::Request(request));
    }

    fn end_one(&mut self, index: usize) {
        let io = self.below.remove(index);
        self.head = LastAddress(Lba(io.range.end()));
        match (io.purpose, io.operation) {
            (BelowPurpose::Cleaning, _) => self.plain.cleaned(io.range),
            (BelowPurpose::Request(id), NvramOperation::Write) => {
                self.plain.bypassed(io.range, id.0);
            }
            (BelowPurpose::Request(_), NvramOperation::Read) => {}
        }
        self.input(NvramInput::BelowDone(io.id, true));
    }

    fn end_all(&mut self) {
        while !self.below.is_empty() {
            self.end_one(0);
        }
    }

    fn write(&mut self, number: u64, start: u64, blocks: u64) {
        self.request(number, NvramOperation::Write, LbaRange::new(start, blocks));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Request { is_read: bool, start: u64, blocks: u64 },
    EndOne(usize),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let address = prop_oneof![0..40u64, 0..352u64];
    let size = prop_oneof![4 => 1..12u64, 1 => 30..48u64];
    let request = (prop::bool::weighted(0.2), address, size)
        .prop_map(|(is_read, start, blocks)| Step::Request { is_read, start, blocks });
    let step = prop_oneof![
        4 => request,
        4 => (0..64usize).prop_map(Step::EndOne),
        1 => (0..30u64).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 0..250)
}

fn configs() -> impl Strategy<Value = NvramConfig> {
    let policy = prop_oneof![
        Just(NvramPolicyKind::Lru),
        Just(NvramPolicyKind::Fifo),
        Just(NvramPolicyKind::Stf),
        Just(NvramPolicyKind::WeightedStf { age_max: Duration::from_millis(60) }),
        Just(NvramPolicyKind::Lst),
        Just(NvramPolicyKind::Stack),
    ];
    let hot_zone = (0..110u8).prop_map(HotZoneSize::Percent);
    let thresholds = prop_oneof![Just((100, 100)), (30..=100u8, 0..=30u8)];
    (policy, hot_zone, thresholds, 0..3u32, 0..2u64).prop_map(
        |(policy, hot_zone, (high_percent, low_percent), groups_at_once, idle)| NvramConfig {
            capacity_blocks: 64,
            policy,
            high_percent,
            low_percent,
            bypass_blocks: 24,
            idle: Duration::from_millis(idle * 10),
            groups_at_once: if groups_at_once == 0 { u32::MAX } else { groups_at_once },
            hot_zone,
            ..NvramConfig::default()
        },
    )
}

proptest! {
    /// Whatever comes, in whatever order I/Os end: every choice is the one by definition, every
    /// write is answered, and no version is lost.
    #[test]
    fn it_does_what_the_plain_model_does(
        config in configs(), group_blocks in prop_oneof![Just(8u64), Just(11), Just(130)], steps in steps(),
    ) {
        let mut pair = Pair::new(config, group_blocks);
        let mut number = 0;
        for step in steps {
            match step {
                Step::Request { is_read, start, blocks } => {
                    number += 1;
                    let operation = if is_read { NvramOperation::Read } else { NvramOperation::Write };
                    pair.request(number, operation, LbaRange::new(start, blocks));
                }
                Step::EndOne(_) if pair.below.is_empty() => {}
                Step::EndOne(index) => pair.end_one(index % pair.below.len()),
                Step::Wait(ms) => {
                    pair.now = pair.now.after(Duration::from_millis(ms));
                    pair.input(NvramInput::Timeout);
                }
            }
        }
        pair.end_all();
        prop_assert_eq!(pair.replied.len(), pair.requests.len(), "every request is answered");
        // In the order of the writes, for that is the order in which they were admitted.
        let mut expected = vec![0; BLOCKS as usize];
        for (id, request) in &pair.requests {
            if request.operation == NvramOperation::Write {
                for block in blocks(request.range) {
                    expected[block as usize] = id.0;
                }
            }
        }
        for block in 0..BLOCKS {
            prop_assert_eq!(pair.plain.read(block), expected[block as usize], "block {}", block);
        }
        prop_assert!(pair.nvram.wake_up().is_none_or(|at| at > pair.now));
    }
}

fn config(policy: NvramPolicyKind) -> NvramConfig {
    NvramConfig { capacity_blocks: 64, policy, ..NvramConfig::default() }
}

/// With thresholds, no write waits as long as the disk keeps up, and hysteresis makes cleanings
/// few.
#[test]
fn cleaning_begins_above_the_high_threshold_and_ends_at_the_low_one() {
    let mut pair = Pair::new(config(NvramPolicyKind::Lru), 8);
    for number in 0..7 {
        pair.write(number, number * 8, 8);
    }
    assert!(pair.below.is_empty(), "56 of 64 blocks are dirty: 87.5 %");
    pair.write(7, 56, 8);
    // Down to 20 %, that is 12 blocks: all but one group.
    let starts: Vec<u64> = pair.below.iter().map(|io| io.range.start.0).collect();
    assert_eq!(starts, [0, 8, 16, 24, 32, 40, 48]);
    pair.end_all();
    let counters = pair.nvram.counters();
    assert_eq!((counters.cleanings, counters.cleaned_groups, counters.stalled_writes), (1, 7, 0));
}

/// A write for which there is no room waits until a group has arrived, and no longer.
#[test]
fn without_thresholds_a_write_waits_for_room() {
    let config =
        NvramConfig { high_percent: 100, low_percent: 100, ..config(NvramPolicyKind::Lru) };
    let mut pair = Pair::new(config, 8);
    for number in 0..8 {
        pair.write(number, number * 8, 8);
    }
    pair.now = Time(5);
    pair.write(8, 100, 4);
    pair.write(9, 8, 8);
    assert_eq!(pair.replied.len(), 8, "the second waits behind the first");
    assert_eq!(pair.below.len(), 1);
    pair.now = Time(9);
    pair.end_one(0);
    let stalls: Vec<_> = pair.replied[8..].iter().map(|reply| reply.stalled_since).collect();
    assert_eq!(stalls, [Some(Time(5)), None]);
    assert_eq!(pair.nvram.counters().overwrites, 1);
}

/// Cleaning that can wait does so while the disk is in use, and a read in between makes it wait
/// again.
#[test]
fn cleaning_waits_for_an_idle_disk() {
    let idle = Duration::from_millis(10);
    let mut pair =
        Pair::new(NvramConfig { idle, groups_at_once: 1, ..config(NvramPolicyKind::Lst) }, 8);
    pair.request(100, NvramOperation::Read, LbaRange::new(300, 8));
    for number in 0..8 {
        pair.write(number, number * 8, 8);
    }
    let cleaning =
        |pair: &Pair| pair.below.iter().filter(|io| io.purpose == BelowPurpose::Cleaning).count();
    assert_eq!((cleaning(&pair), pair.nvram.wake_up()), (0, None), "the disk reads");
    pair.now = Time(1_000_000);
    pair.end_one(0);
    let wake_up = Time(1_000_000).after(idle);
    assert_eq!((cleaning(&pair), pair.nvram.wake_up()), (0, Some(wake_up)));
    pair.now = wake_up;
    pair.input(NvramInput::Timeout);
    assert_eq!(cleaning(&pair), 1, "one group at once");
    pair.request(101, NvramOperation::Read, LbaRange::new(300, 8));
    pair.end_one(0);
    assert_eq!(cleaning(&pair), 0, "a read is under way");
    pair.end_one(0);
    assert!(pair.nvram.wake_up() > Some(wake_up));
}

/// The stack model cleans what is large and cold, and lets the newest stay.
#[test]
fn hot_groups_stay() {
    let config = NvramConfig {
        hot_zone: HotZoneSize::Percent(25),
        low_percent: 0,
        ..config(NvramPolicyKind::Stack)
    };
    let mut pair = Pair::new(config, 8);
    for (number, blocks) in (0..9).zip([8, 2, 8, 8, 8, 8, 4, 8, 8]) {
        pair.write(number, number * 8, blocks);
    }
    let starts: Vec<u64> = pair.below.iter().map(|io| io.range.start.0).collect();
    assert_eq!(starts, [0, 16, 24, 32, 40, 48, 8], "largest first, of equals the oldest");
    pair.end_all();
    assert_eq!(pair.nvram.dirty_blocks(), 16);
}

/// The memory is small for all that is written, and large enough for what is written again and
/// again.
#[test]
fn the_hot_zone_is_found() {
    let config = NvramConfig { capacity_blocks: 512, ..config(NvramPolicyKind::Stack) };
    let mut pair = Pair::new(config, 8);
    for number in 0..3000 {
        let start = if number % 2 == 0 { number / 2 % 8 } else { 10 + number / 2 % 400 } * 8;
        pair.write(number, start, 8);
        pair.end_all();
    }
    let found = pair.nvram.hot_zone_blocks();
    assert!(found >= 128, "8 hot groups, as many others between: {found}");
    let ratio = pair.nvram.hot_zone().expect("it is looked for").hit_ratio();
    assert!((128..=192).contains(&ratio.knee_blocks()), "{}", ratio.knee_blocks());
    assert!(ratio.curve().iter().is_sorted_by(|a, b| a.1 <= b.1));
}
