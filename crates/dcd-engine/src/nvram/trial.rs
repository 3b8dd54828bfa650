//! What a memory would have done with another hot zone: the same directory and policy, without
//! data, fed with the same writes. Of a large memory a small part is tried, for some of the groups
//! (*miniature simulation*, Waldspurger and others 2017).

use std::collections::VecDeque;
use std::sync::Arc;

use super::directory::{Directory, GroupIndex};
use super::groups::GroupMap;
use crate::units::{Duration, LbaRange, Time};

/// Accesses after which older ones count half.
const HALF_LIFE: u64 = 4096;
/// A write that waits costs as much as so many writes to the disk.
const STALL_COST: u64 = 8;

/// A write, for all trials.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrialWrite {
    pub(super) now: Time,
    pub(super) range: LbaRange,
    /// The group that it begins in.
    pub(super) group: LbaRange,
    /// What the disk takes for a write.
    pub(super) write_time: Duration,
}

/// A memory without data.
#[derive(Debug)]
pub(super) struct Trial {
    groups: Directory,
    capacity_blocks: u64,
    high_blocks: u64,
    low_blocks: u64,
    is_cleaning: bool,
    /// Writes to the disk under way, with the time of their end.
    under_way: VecDeque<(Time, GroupIndex, LbaRange)>,
    /// The disk is busy until then.
    disk_free_at: Time,
    disk_writes: u64,
    stalled_writes: u64,
    runs: Vec<LbaRange>,
}

impl Trial {
    /// Sizes are those of the trial, not of the memory that it stands for.
    pub(super) fn new(
        map: Arc<dyn GroupMap>,
        capacity_blocks: u64,
        high_percent: u8,
        low_percent: u8,
        hot_zone_blocks: u64,
    ) -> Trial {
        let mut groups = Directory::new(map);
        groups.set_hot_zone(hot_zone_blocks);
        Trial {
            groups,
            capacity_blocks,
            high_blocks: capacity_blocks * u64::from(high_percent) / 100,
            low_blocks: capacity_blocks * u64::from(low_percent) / 100,
            is_cleaning: false,
            under_way: VecDeque::new(),
            disk_free_at: Time::ZERO,
            disk_writes: 0,
            stalled_writes: 0,
            runs: Vec::new(),
        }
    }

    pub(super) fn hot_zone_blocks(&self) -> u64 {
        self.groups.hot_zone_blocks()
    }

    /// Accesses of the disk that cost somebody time: writes to it, and writes that waited for one.
    pub(super) fn cost(&self) -> u64 {
        self.disk_writes + STALL_COST * self.stalled_writes
    }

    /// Later accesses count more.
    pub(super) fn age(&mut self) {
        self.disk_writes /= 2;
        self.stalled_writes /= 2;
    }

    pub(super) fn is_old(&self) -> bool {
        self.cost() >= HALF_LIFE
    }

    /// Blocks are written.
    pub(super) fn written(&mut self, write: &TrialWrite) {
        let TrialWrite { now, range, group, write_time } = *write;
        self.end_writes(|at, _| at <= now);
        self.groups.expect_group(group);
        let new = range.blocks - self.groups.dirty_in(range);
        let most_dirty = self.capacity_blocks.saturating_sub(new);
        if self.groups.dirty_blocks() > most_dirty {
            self.stalled_writes += 1;
            while self.groups.staying_blocks() > most_dirty {
                let chosen = self.groups.largest_cold().or_else(|| self.groups.oldest());
                let Some(group) = chosen else { break };
                self.start_cleaning(now, group, write_time);
            }
            self.end_writes(|_, dirty_blocks| dirty_blocks > most_dirty);
        }
        self.groups.store(now, range);
        self.is_cleaning |= self.groups.staying_blocks() > self.high_blocks;
        while self.is_cleaning {
            match self.groups.largest_cold() {
                Some(group) if self.groups.staying_blocks() > self.low_blocks => {
                    self.start_cleaning(now, group, write_time);
                }
                _ => self.is_cleaning = false,
            }
        }
    }

    fn start_cleaning(&mut self, now: Time, group: GroupIndex, write_time: Duration) {
        self.groups.start_cleaning(group, &mut self.runs);
        for run in self.runs.drain(..) {
            self.disk_writes += 1;
            self.disk_free_at = self.disk_free_at.max(now).after(write_time);
            self.under_way.push_back((self.disk_free_at, group, run));
        }
    }

    /// Ends writes, the first first, while `is_due` says so of the time of their end and the dirty
    /// blocks.
    fn end_writes(&mut self, is_due: impl Fn(Time, u64) -> bool) {
        while let Some((at, group, run)) = self.under_way.front().copied() {
            if !is_due(at, self.groups.dirty_blocks()) {
                return;
            }
            self.under_way.pop_front();
            self.groups.cleaned_of(group, run, true);
        }
    }
}
