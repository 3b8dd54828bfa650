//! How often a write starts the cleaning of the cache: p_clean (Haining 2000, section 5.1), with
//! the grouping factor of section 7.3.
//!
//! Dirty blocks are counted. A write to one of them changes nothing; any other write adds one. With
//! n_high of them the next that is added starts a cleaning, after which n_low are left. So the
//! number of dirty blocks is a Markov chain in a circle: in each state it stays with the
//! probability of a hit, h, or goes on with 1 - h, and the step from the last state to the first is
//! a cleaning.
//!
//! Assumptions: h depends on the number of dirty blocks only, not on which these are. The cleaning
//! takes no time.
//!
//! Tests compare with simulated chains, with each other, and with what the thesis says of Figure
//! 5.5.

use super::{AnalysisError, check, check_size};

/// States of a chain at most.
pub const STATES_MAX: u64 = 1 << 20;
/// States times steps at most, where a chain is followed step by step.
pub const WORK_MAX: u64 = 1 << 33;

/// Points of a curve at most.
pub const POINTS_MAX: u64 = 1 << 22;

/// The chain of the numbers of dirty blocks from n_low to n_high.
#[derive(Clone, PartialEq, Debug)]
pub struct CleaningChain {
    /// h_w of each state: a write is to a block that is dirty in the cache.
    hits: Vec<f64>,
}

/// How many states a cache has when blocks are written in groups (section 7.3).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Grouping {
    /// Size of the cache in KB.
    pub cache_kilobytes: f64,
    /// Blocks in a KB.
    pub blocks_per_kilobyte: f64,
    /// Part of the cache between the thresholds: 0.8 in the thesis.
    pub usable_fraction: f64,
    /// Blocks that a write has, about.
    pub grouping_factor: f64,
    /// Blocks of the trace that are written few times.
    pub cold_blocks: f64,
}

impl CleaningChain {
    /// Of the hit probabilities with n_low, n_low + 1 ... n_high dirty blocks: each 0 or more and
    /// below 1.
    pub fn new(hits: Vec<f64>) -> Result<CleaningChain, AnalysisError> {
        check("states", "at least 1", hits.len() as f64, |states| states >= 1.0)?;
        check_size("states", STATES_MAX, hits.len() as u64)?;
        for &hit in &hits {
            check("hit probability", "0 or more, below 1", hit, |hit| (0.0..1.0).contains(&hit))?;
        }
        Ok(CleaningChain { hits })
    }

    /// Of so many states, the hit probability `hit_first` in the first, and `hit_increment`
    /// (epsilon) more in each further one: h(n + 1) = h(n) + epsilon.
    pub fn with_increment(
        states: u64,
        hit_first: f64,
        hit_increment: f64,
    ) -> Result<CleaningChain, AnalysisError> {
        check_size("states", STATES_MAX, states)?;
        CleaningChain::new((0..states).map(|i| hit_first + i as f64 * hit_increment).collect())
    }

    /// Of a cache whose blocks are written in groups: as many states as groups fit between the
    /// thresholds, rounded up, and epsilon = grouping factor / cold blocks.
    pub fn with_grouping(grouping: Grouping) -> Result<CleaningChain, AnalysisError> {
        let Grouping { cache_kilobytes, blocks_per_kilobyte, usable_fraction, .. } = grouping;
        let positive = |value: f64| value > 0.0;
        check("cache size in KB", "above 0", cache_kilobytes, positive)?;
        check("blocks per KB", "above 0", blocks_per_kilobyte, positive)?;
        check("usable fraction", "above 0, at most 1", usable_fraction, |f| f > 0.0 && f <= 1.0)?;
        check("grouping factor", "above 0", grouping.grouping_factor, positive)?;
        check("cold blocks", "above 0", grouping.cold_blocks, positive)?;
        let states =
            usable_fraction * cache_kilobytes * blocks_per_kilobyte / grouping.grouping_factor;
        check("groups in the cache", "at most 1048576", states, |states| {
            states <= STATES_MAX as f64
        })?;
        let increment = grouping.grouping_factor / grouping.cold_blocks;
        CleaningChain::with_increment(states.ceil() as u64, 0.0, increment)
    }

    /// How many states.
    pub fn states(&self) -> usize {
        self.hits.len()
    }

    /// The long-run probability of each number of dirty blocks: proportional to how long the chain
    /// stays, 1/(1-h).
    pub fn stationary(&self) -> Vec<f64> {
        let writes = self.writes_per_cleaning();
        self.hits.iter().map(|hit| 1.0 / (1.0 - hit) / writes).collect()
    }

    /// Writes from one cleaning to the next, on average.
    pub fn writes_per_cleaning(&self) -> f64 {
        self.hits.iter().map(|hit| 1.0 / (1.0 - hit)).sum()
    }

    /// p_clean = (1 - h(n_high)) p(N = n_high) in the long run: the probability that a write starts
    /// a cleaning.
    ///
    /// In closed form the reciprocal of `writes_per_cleaning`. So it is at most 1 / states: the
    /// 0.03 of Table 5.1 is not that of its 52 blocks, but of at most 33.
    pub fn p_clean(&self) -> f64 {
        1.0 / self.writes_per_cleaning()
    }

    /// p_clean of each write whose number (from 0: the first after a cleaning) is a multiple of
    /// `every`, up to `writes`: what Figure 5.5 shows.
    ///
    /// It converges slowly where h is small, for the chain then runs round almost like a clock.
    pub fn p_clean_after(&self, writes: u64, every: u64) -> Result<Vec<(u64, f64)>, AnalysisError> {
        check("writes between points", "at least 1", every as f64, |every| every >= 1.0)?;
        let work = writes.saturating_mul(self.hits.len() as u64);
        check_size("states times writes", WORK_MAX, work)?;
        check_size("points", POINTS_MAX, writes / every)?;
        let last = self.hits.len() - 1;
        let mut distribution = vec![0.0; self.hits.len()];
        distribution[0] = 1.0;
        let mut points = Vec::new();
        for write in 0..=writes {
            let cleaned = distribution[last] * (1.0 - self.hits[last]);
            if write.is_multiple_of(every) {
                points.push((write, cleaned));
            }
            for state in (1..=last).rev() {
                let entered = distribution[state - 1] * (1.0 - self.hits[state - 1]);
                distribution[state] = distribution[state] * self.hits[state] + entered;
            }
            distribution[0] = distribution[0] * self.hits[0] + cleaned;
        }
        Ok(points)
    }
}

#[cfg(test)]
mod tests {
    use super::super::random::Random;
    use super::*;

    /// Section 5.1, Figure 5.5.
    fn figure() -> CleaningChain {
        CleaningChain::with_increment(52, 0.0, 0.000_067).unwrap()
    }

    #[test]
    fn p_clean_is_that_of_simulated_writes() {
        let chain = CleaningChain::with_increment(7, 0.2, 0.1).unwrap();
        let (writes, mut state, mut cleanings) = (300_000, 0, 0);
        let mut seen = [0; 7];
        let mut random = Random(3);
        for _ in 0..writes {
            seen[state] += 1;
            if random.unit() > chain.hits[state] {
                state += 1;
            }
            if state == chain.states() {
                state = 0;
                cleanings += 1;
            }
        }
        let simulated = f64::from(cleanings) / f64::from(writes);
        assert!((chain.p_clean() / simulated - 1.0).abs() < 0.01, "{simulated}");
        for (probability, seen) in chain.stationary().iter().zip(seen) {
            assert!((probability - f64::from(seen) / f64::from(writes)).abs() < 0.005);
        }
    }

    #[test]
    fn the_stationary_distribution_does_not_change_in_a_step() {
        let chain = CleaningChain::new(vec![0.9, 0.0, 0.5, 0.25]).unwrap();
        let stationary = chain.stationary();
        assert!((stationary.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        for state in 0..4 {
            let before = (state + 3) % 4;
            let after = stationary[state] * chain.hits[state]
                + stationary[before] * (1.0 - chain.hits[before]);
            assert!((after - stationary[state]).abs() < 1e-12);
        }
    }

    /// "This can be verified using numerical analysis as the converging values of p_clean show", up
    /// to P^500000.
    #[test]
    fn figure_5_5_converges_within_its_500000_writes() {
        let points = figure().p_clean_after(500_000, 1000).unwrap();
        let stationary = figure().p_clean();
        assert!((stationary - 0.0192).abs() < 0.0001, "{stationary}");
        let spread = |points: &[(u64, f64)]| {
            points.iter().map(|(_, p)| (p / stationary - 1.0).abs()).fold(0.0, f64::max)
        };
        assert!(spread(&points[1..50]) > 2.0, "{}", spread(&points[1..50]));
        assert!(spread(&points[450..]) < 0.02, "{}", spread(&points[450..]));
        let half = spread(&points[250..300]);
        assert!(half < 0.25 && half > spread(&points[450..]), "{half}");
        assert_eq!(points.len(), 501);
    }

    #[test]
    fn the_first_round_is_known() {
        // Without hits it is a clock: each third write cleans.
        let clock = CleaningChain::with_increment(3, 0.0, 0.0).unwrap();
        let cleaned: Vec<f64> =
            clock.p_clean_after(5, 1).unwrap().iter().map(|(_, cleaned)| *cleaned).collect();
        assert_eq!(cleaned, [0.0, 0.0, 1.0, 0.0, 0.0, 1.0]);
        // One state: each write that is no hit cleans.
        let one = CleaningChain::new(vec![0.75]).unwrap();
        assert_eq!(one.p_clean(), 0.25);
        assert_eq!(one.p_clean_after(0, 1).unwrap(), [(0, 0.25)]);
    }

    /// Section 7.3: 119400 cold blocks and a grouping factor of 8; section 5.1: 52 blocks and
    /// 0.000067.
    #[test]
    fn grouping_makes_figure_5_5_of_a_cache_of_128_kilobytes() {
        let grouping = Grouping {
            cache_kilobytes: 128.0,
            blocks_per_kilobyte: 4.0,
            usable_fraction: 0.8,
            grouping_factor: 8.0,
            cold_blocks: 119_400.0,
        };
        let chain = CleaningChain::with_grouping(grouping).unwrap();
        assert_eq!(chain.states(), 52);
        assert!((chain.hits[1] - 0.000_067).abs() < 1e-8);
        // Table 5.1's 0.03 cannot be that of 52 blocks.
        assert!(chain.p_clean() < 0.02);
        assert!(CleaningChain::with_increment(33, 0.0, 0.000_067).unwrap().p_clean() > 0.03);
        assert!(CleaningChain::with_increment(34, 0.0, 0.0).unwrap().p_clean() < 0.03);
        for wrong in [
            Grouping { cache_kilobytes: 0.0, ..grouping },
            Grouping { cache_kilobytes: 1e300, ..grouping },
            Grouping { blocks_per_kilobyte: f64::NAN, ..grouping },
            Grouping { usable_fraction: 1.1, ..grouping },
            Grouping { grouping_factor: -1.0, ..grouping },
            Grouping { cold_blocks: 8.0, ..grouping },
        ] {
            assert!(CleaningChain::with_grouping(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_an_error() {
        for wrong in [vec![], vec![1.0], vec![-0.1], vec![f64::NAN]] {
            assert!(CleaningChain::new(wrong.clone()).is_err(), "{wrong:?}");
        }
        assert!(CleaningChain::with_increment(u64::MAX, 0.0, 0.0).is_err());
        assert!(CleaningChain::with_increment(100, 0.0, 0.02).is_err());
        assert!(figure().p_clean_after(10, 0).is_err());
        assert!(figure().p_clean_after(u64::MAX, 1).is_err());
        assert!(figure().p_clean_after(POINTS_MAX + 1, 1).is_err());
    }
}
