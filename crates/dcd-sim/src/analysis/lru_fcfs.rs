//! Small LRU and FCFS caches under independent references: probability of each state, rate of
//! faults (Haining 2000, section 3.1.1, equations 3.1 to 3.4, after Coffman and Denning).
//!
//! Assumptions: each write is of one block; block i is written with probability beta_i, whatever
//! was written before. A cache of m blocks is a list of m different blocks: the one written last
//! first (LRU), or the one that came in last first (FCFS). A *fault* is a write to a block that is
//! not there, which writes another one out.
//!
//! All n! / (n-m)! states are walked through, so n is small; `hot_cold` computes two classes of
//! blocks of any size. Tests compare with simulated caches, and with the closed form of the FCFS
//! rate.

use super::{AnalysisError, check, check_size};

/// States times blocks at most, where states are enumerated.
pub const WORK_MAX: u64 = 1 << 30;
/// How far from 1 the sum of the probabilities may be, for it was rounded.
const SUM_ERROR_MAX: f64 = 1e-9;
/// Smallest probability of a block, and largest cache: products of so many such numbers are still
/// above 0.
const PROBABILITY_MIN: f64 = 1e-12;
const CACHE_BLOCKS_MAX: u64 = 20;

/// Blocks of a disk with the probability of each to be the next that is written.
#[derive(Clone, PartialEq, Debug)]
pub struct References {
    probabilities: Vec<f64>,
}

/// Writes to blocks that the cache does not hold, per write.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FaultRates {
    /// Equation 3.1.
    pub lru: f64,
    /// Equation 3.2.
    pub fcfs: f64,
}

impl References {
    /// Of probabilities that make 1. None may be 0 (such a block never comes in), or too small to
    /// compute with.
    pub fn new(probabilities: Vec<f64>) -> Result<References, AnalysisError> {
        for &probability in &probabilities {
            check("probability of a block", "1e-12 to 1", probability, |p| {
                (PROBABILITY_MIN..=1.0).contains(&p)
            })?;
        }
        check("sum of the probabilities", "1", probabilities.iter().sum(), |sum| {
            (sum - 1.0).abs() <= SUM_ERROR_MAX
        })?;
        Ok(References { probabilities })
    }

    /// Equation 3.3: how often an LRU cache holds just these blocks (indexes from 0), the one
    /// written last first.
    pub fn lru_state_probability(&self, state: &[usize]) -> Result<f64, AnalysisError> {
        self.check_state(state)?;
        // beta_1 * beta_2 / (1 - beta_1) * beta_3 / (1 - beta_1 - beta_2) ...: the denominators are
        // D_m to D_2.
        let mut held = vec![false; self.probabilities.len()];
        let mut probability = 1.0;
        for &block in state {
            probability *= self.probabilities[block] / self.missing(&held);
            held[block] = true;
        }
        Ok(probability)
    }

    /// Equation 3.4: how often an FCFS cache holds just these blocks (indexes from 0), the one that
    /// came last first. It depends on which blocks these are, not on their order.
    pub fn fcfs_state_probability(&self, state: &[usize]) -> Result<f64, AnalysisError> {
        self.check_state(state)?;
        let product: f64 = state.iter().map(|&block| self.probabilities[block]).product();
        let ln_factorial: f64 = (1..=state.len()).map(|i| (i as f64).ln()).sum();
        // G is the sum over ordered states: each set of blocks counts m! times.
        let sets = self.sum_of_products(state.len())[state.len()];
        Ok((product / sets) * (-ln_factorial).exp())
    }

    /// Equations 3.1 and 3.2, by enumeration of all states of a cache of `cache_blocks`.
    pub fn fault_rates(&self, cache_blocks: usize) -> Result<FaultRates, AnalysisError> {
        self.check_cache(cache_blocks)?;
        let mut states = 1u64;
        for taken in 0..cache_blocks {
            states = states.saturating_mul((self.probabilities.len() - taken) as u64);
        }
        let work = states.saturating_mul(self.probabilities.len() as u64);
        check_size("states of the cache times blocks", WORK_MAX, work)?;
        let mut sums = Sums::default();
        let mut held = vec![false; self.probabilities.len()];
        self.enumerate(cache_blocks, Prefix { lru: 1.0, fcfs: 1.0 }, &mut held, &mut sums);
        Ok(FaultRates { lru: sums.lru, fcfs: sums.fcfs / sums.fcfs_weight })
    }

    /// Adds all states that begin with those `held`.
    fn enumerate(&self, to_come: usize, prefix: Prefix, held: &mut [bool], sums: &mut Sums) {
        let missing = self.missing(held);
        if to_come == 0 {
            sums.lru += missing * prefix.lru;
            sums.fcfs += missing * prefix.fcfs;
            sums.fcfs_weight += prefix.fcfs;
            return;
        }
        for block in 0..held.len() {
            if held[block] {
                continue;
            }
            let probability = self.probabilities[block];
            let longer =
                Prefix { lru: prefix.lru * probability / missing, fcfs: prefix.fcfs * probability };
            held[block] = true;
            self.enumerate(to_come - 1, longer, held, sums);
            held[block] = false;
        }
    }

    /// D: the probability that the next write is of none of those `held`. A sum of what is missing,
    /// not 1 less what is held, which would be rounded to 0 or below.
    fn missing(&self, held: &[bool]) -> f64 {
        self.probabilities.iter().zip(held).filter(|(_, held)| !**held).map(|(p, _)| p).sum()
    }

    /// For each size up to `size_max`: the sum over all sets of so many blocks of the product of
    /// their probabilities.
    fn sum_of_products(&self, size_max: usize) -> Vec<f64> {
        let mut sums = vec![0.0; size_max + 1];
        sums[0] = 1.0;
        for &probability in &self.probabilities {
            for size in (1..=size_max).rev() {
                sums[size] += sums[size - 1] * probability;
            }
        }
        sums
    }

    fn check_cache(&self, cache_blocks: usize) -> Result<(), AnalysisError> {
        check("blocks of the cache", "1 to all blocks", cache_blocks as f64, |m| {
            m >= 1.0 && m <= self.probabilities.len() as f64
        })?;
        check_size("blocks of the cache", CACHE_BLOCKS_MAX, cache_blocks as u64)?;
        Ok(())
    }

    fn check_state(&self, state: &[usize]) -> Result<(), AnalysisError> {
        self.check_cache(state.len())?;
        let mut held = vec![false; self.probabilities.len()];
        for &block in state {
            check("index of a block", "one of the blocks, each once", block as f64, |_| {
                block < held.len() && !held[block]
            })?;
            held[block] = true;
        }
        Ok(())
    }
}

/// What the first blocks of a state say of all states that begin so.
#[derive(Clone, Copy)]
struct Prefix {
    /// Product of their part of equation 3.3.
    lru: f64,
    /// Product of their probabilities.
    fcfs: f64,
}

#[derive(Default)]
struct Sums {
    lru: f64,
    fcfs: f64,
    fcfs_weight: f64,
}

#[cfg(test)]
mod tests {
    use super::super::random::Random;
    use super::*;

    /// Faults per write of a list of blocks, and how often it was `state`.
    fn simulated(references: &References, m: usize, lru: bool, state: &[usize]) -> (f64, f64) {
        let writes = 400_000;
        let mut random = Random(7);
        let (mut list, mut faults, mut seen) = (Vec::<usize>::new(), 0, 0);
        for write in 0..writes {
            let mut at = random.unit();
            let block = references.probabilities.iter().position(|&p| {
                at -= p;
                at <= 0.0
            });
            let block = block.unwrap_or(0);
            match list.iter().position(|&held| held == block) {
                Some(place) if lru => list[..=place].rotate_right(1),
                Some(_) => {}
                None => {
                    list.insert(0, block);
                    list.truncate(m);
                    faults += u32::from(write >= 1000);
                }
            }
            seen += u32::from(list == state);
        }
        (f64::from(faults) / f64::from(writes - 1000), f64::from(seen) / f64::from(writes))
    }

    #[test]
    fn rates_and_states_are_those_of_simulated_caches() {
        let references = References::new(vec![0.3, 0.25, 0.2, 0.1, 0.1, 0.05]).unwrap();
        for m in 1..=5 {
            let rates = references.fault_rates(m).unwrap();
            let state: Vec<usize> = (0..m).rev().collect();
            let (lru, lru_seen) = simulated(&references, m, true, &state);
            let (fcfs, fcfs_seen) = simulated(&references, m, false, &state);
            assert!((rates.lru - lru).abs() < 0.005, "{m}: {rates:?}, {lru}");
            assert!((rates.fcfs - fcfs).abs() < 0.005, "{m}: {rates:?}, {fcfs}");
            assert!(m == 1 || rates.lru < rates.fcfs, "{m}: {rates:?}");
            assert!((references.lru_state_probability(&state).unwrap() - lru_seen).abs() < 0.005);
            assert!((references.fcfs_state_probability(&state).unwrap() - fcfs_seen).abs() < 0.005);
        }
    }

    #[test]
    fn the_states_are_all_there_is() {
        let references = References::new(vec![0.4, 0.3, 0.2, 0.1]).unwrap();
        let (mut lru, mut fcfs) = (0.0, 0.0);
        for (i, j) in (0..4).flat_map(|i| (0..4).map(move |j| (i, j))).filter(|(i, j)| i != j) {
            lru += references.lru_state_probability(&[i, j]).unwrap();
            fcfs += references.fcfs_state_probability(&[i, j]).unwrap();
        }
        assert!((lru - 1.0).abs() < 1e-12 && (fcfs - 1.0).abs() < 1e-12, "{lru} {fcfs}");
    }

    #[test]
    fn the_fcfs_rate_has_a_closed_form() {
        // Each fault is one way to order m + 1 blocks: F = (m + 1) e_(m+1) / e_m of the
        // probabilities.
        let references = References::new(vec![0.3, 0.25, 0.2, 0.1, 0.1, 0.05]).unwrap();
        for m in 1..=6 {
            let sums = references.sum_of_products(m + 1);
            let closed = (m + 1) as f64 * sums[m + 1] / sums[m];
            assert!((references.fault_rates(m).unwrap().fcfs - closed).abs() < 1e-12);
        }
    }

    #[test]
    fn limits() {
        let all = References::new(vec![0.5, 0.25, 0.25]).unwrap().fault_rates(3).unwrap();
        assert!(all.lru < 1e-12 && all.fcfs < 1e-12, "nothing is ever missing: {all:?}");
        let one = References::new(vec![1.0]).unwrap();
        assert_eq!(one.fault_rates(1).unwrap(), FaultRates { lru: 0.0, fcfs: 0.0 });
        // Uniform: both miss with (n - m) / n.
        let uniform = References::new(vec![0.125; 8]).unwrap().fault_rates(3).unwrap();
        assert!((uniform.lru - 0.625).abs() < 1e-12 && (uniform.fcfs - 0.625).abs() < 1e-12);
    }

    #[test]
    fn what_makes_no_sense_is_an_error() {
        for wrong in [vec![], vec![0.5], vec![0.0, 1.0], vec![f64::NAN], vec![1.5, -0.5]] {
            assert!(References::new(wrong.clone()).is_err(), "{wrong:?}");
        }
        let references = References::new(vec![0.01; 100]).unwrap();
        for wrong in [0, 101] {
            assert!(matches!(references.fault_rates(wrong), Err(AnalysisError::OutOfRange { .. })));
        }
        assert!(matches!(references.fault_rates(100), Err(AnalysisError::TooLarge { .. })));
        for wrong in [&[][..], &[100], &[1, 1]] {
            assert!(references.lru_state_probability(wrong).is_err(), "{wrong:?}");
            assert!(references.fcfs_state_probability(wrong).is_err(), "{wrong:?}");
        }
    }
}
