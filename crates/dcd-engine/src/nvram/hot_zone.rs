//! How large the hot zone should be, found while running: the thesis' own future work (Haining,
//! section 8.4).
//!
//! The larger the zone, the fewer writes reach the disk, because what is written again stays; and
//! the more writes wait for room, because what may be cleaned is small. The knee of the hit ratio
//! (see [`super::stack_distance`]) says nothing of the second, so sizes are tried
//! ([`super::trial`]): that with the fewest writes to the disk and writes that wait together is
//! taken.

use std::sync::Arc;

use super::NvramConfig;
use super::groups::GroupMap;
use super::stack_distance::HitRatio;
use super::trial::{Trial, TrialWrite};
use crate::units::{Duration, Lba, LbaRange, Time};

/// Sizes that are tried, in percent of what may be dirty.
const PERCENTS: [u64; 8] = [0, 12, 25, 40, 55, 70, 85, 100];
/// Blocks of a trial at most.
const TRIAL_BLOCKS_MAX: u64 = 16 << 10;
/// Writes that are kept until the trials are told: larger writes past group borders are several.
const WRITES_MAX: usize = 256;
/// Another size must be better by one part in so many, or what differs is chance.
const BETTER_BY: u64 = 128;

/// Tries sizes of the hot zone beside the real memory.
#[derive(Debug)]
pub struct HotZone {
    map: Arc<dyn GroupMap>,
    hit_ratio: HitRatio,
    /// A group in so many is tried.
    one_in: u64,
    trials: Vec<Trial>,
    /// What the trials have not been told yet: each takes many writes in a row, which is faster.
    writes: Vec<TrialWrite>,
    best: usize,
}

impl HotZone {
    /// For a memory that is set up so.
    pub fn new(config: &NvramConfig, map: Arc<dyn GroupMap>) -> HotZone {
        let one_in = config.capacity_blocks.div_ceil(TRIAL_BLOCKS_MAX);
        let capacity_blocks = config.capacity_blocks / one_in;
        let high_blocks = capacity_blocks * u64::from(config.high_percent) / 100;
        let trial = |percent: u64| {
            let hot_blocks = high_blocks * percent / 100;
            let (high, low) = (config.high_percent, config.low_percent);
            Trial::new(map.clone(), capacity_blocks, high, low, hot_blocks)
        };
        HotZone {
            hit_ratio: HitRatio::new(config.capacity_blocks),
            one_in,
            trials: PERCENTS.into_iter().map(trial).collect(),
            writes: Vec::new(),
            best: PERCENTS.len() / 2,
            map,
        }
    }

    /// Blocks were written into the memory; `write_time` is what the disk takes for a write.
    pub fn written(&mut self, now: Time, range: LbaRange, write_time: Duration) {
        self.hit_ratio.written(range);
        let write_time = Duration(write_time.0 * self.one_in);
        let mut at = range.start.0;
        while at < range.end() {
            let group = self.map.group_of(Lba(at));
            let (part, is_sampled) = match self.one_in {
                1 => (range, true),
                one_in => {
                    let end = group.end().min(range.end());
                    let hash = group.start.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                    (LbaRange::new(at, end - at), hash.is_multiple_of(one_in))
                }
            };
            if is_sampled {
                self.writes.push(TrialWrite { now, range: part, group, write_time });
            }
            at = part.end();
        }
        if self.writes.len() >= WRITES_MAX {
            self.try_writes();
        }
    }

    fn try_writes(&mut self) {
        for trial in &mut self.trials {
            self.writes.iter().for_each(|write| trial.written(write));
        }
        self.writes.clear();
    }

    /// The size that has done best of late.
    pub fn best_blocks(&mut self) -> u64 {
        self.try_writes();
        if self.trials.iter().any(Trial::is_old) {
            self.trials.iter_mut().for_each(Trial::age);
        }
        let costs = self.trials.iter().map(Trial::cost);
        let (least, cost) =
            costs.enumerate().min_by_key(|(_, cost)| *cost).expect("some are tried");
        let now = self.trials[self.best].cost();
        if now - cost > now / BETTER_BY {
            self.best = least;
        }
        self.trials[self.best].hot_zone_blocks() * self.one_in
    }

    /// The hit ratio by size.
    pub fn hit_ratio(&self) -> &HitRatio {
        &self.hit_ratio
    }
}
