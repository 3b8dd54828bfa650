//! LRU and FCFS caches of any size, when blocks are of two classes, hot and cold (Haining 2000,
//! section 3.1.1, equations 3.5 and 3.6; section 4.1, equation 4.1).
//!
//! Each of a hot blocks is written with probability kappa, each of b cold ones with lambda,
//! independently of what was written before; alpha is kappa / lambda. States are so improbable that
//! their natural logarithms are told.
//!
//! Beyond the thesis: which blocks an LRU cache holds is a draw without replacement in which each
//! ball comes with its weight (Wallenius' hypergeometric distribution); an FCFS cache holds
//! Fisher's. Both are computed exactly, so that fault rates need neither enumeration nor bounds.
//! Tests compare with `lru_fcfs`.

use super::{AnalysisError, check, check_size};

/// Blocks that a cache has at most: the work grows with the square.
pub const CACHE_BLOCKS_MAX: u64 = 10_000;
/// Blocks of a class at most: whole numbers up to here are exact.
pub const CLASS_BLOCKS_MAX: u64 = 1 << 40;

/// What is written, and the cache that it comes to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HotColdParameters {
    /// a: blocks of the hot class (A).
    pub hot_blocks: u64,
    /// b: blocks of the cold class (B).
    pub cold_blocks: u64,
    /// alpha: how much more often a hot block is written than a cold one, at least 1.
    pub hot_to_cold_ratio: f64,
    /// m: blocks that the cache holds.
    pub cache_blocks: u64,
}

/// A cache under writes to two classes of blocks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HotColdCache {
    hot: f64,
    cold: f64,
    cache: u64,
    kappa: f64,
    lambda: f64,
}

/// Natural logarithms of a lower and an upper bound.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LnBounds {
    /// Not more than the true value.
    pub lower: f64,
    /// Not less.
    pub upper: f64,
}

impl HotColdCache {
    /// Checks the parameters. At least one block of each class; the cache no larger than both
    /// together.
    pub fn new(parameters: HotColdParameters) -> Result<HotColdCache, AnalysisError> {
        let HotColdParameters { hot_blocks, cold_blocks, hot_to_cold_ratio, cache_blocks } =
            parameters;
        for (what, blocks) in [("hot blocks", hot_blocks), ("cold blocks", cold_blocks)] {
            check(what, "at least 1", blocks as f64, |blocks| blocks >= 1.0)?;
            check_size(what, CLASS_BLOCKS_MAX, blocks)?;
        }
        check_size("blocks of the cache", CACHE_BLOCKS_MAX, cache_blocks)?;
        let blocks = (hot_blocks + cold_blocks) as f64;
        check("blocks of the cache", "1 to all blocks", cache_blocks as f64, |cache| {
            (1.0..=blocks).contains(&cache)
        })?;
        check("hot to cold ratio", "1 to 1e12", hot_to_cold_ratio, |r| (1.0..=1e12).contains(&r))?;
        let (hot, cold) = (hot_blocks as f64, cold_blocks as f64);
        let lambda = 1.0 / (hot * hot_to_cold_ratio + cold);
        let kappa = hot_to_cold_ratio * lambda;
        Ok(HotColdCache { hot, cold, cache: cache_blocks, kappa, lambda })
    }

    /// kappa: probability of one hot block to be the next that is written.
    pub fn hot_block_probability(&self) -> f64 {
        self.kappa
    }

    /// lambda: the same of a cold one.
    pub fn cold_block_probability(&self) -> f64 {
        self.lambda
    }

    /// p_f(s): probability that a write is to none of the blocks that the cache holds, when
    /// `hot_held` are hot.
    pub fn fault_probability(&self, hot_held: f64) -> Result<f64, AnalysisError> {
        let hot_held = self.check_hot_held(hot_held)?;
        let cold_held = self.cache as f64 - hot_held;
        Ok(self.missing(hot_held, cold_held))
    }

    /// Bounds of pi_s(LRU), for any state s with `hot_held` hot blocks (equation 3.6). A fraction
    /// of a block makes sense where the expected number is meant, as in Figure 3.2.
    ///
    /// With l hot blocks of m: kappa^l lambda^(m-l) / (1 - lambda)^(m-1) is the lower bound.
    /// Corrected: the exponent is m-1, the number of factors in equation 3.3, where m-l is printed.
    /// The upper bound has one less what m-1 blocks have together, l kappa + (m-l) lambda less the
    /// rarest, where l (m-l) kappa lambda is printed: that is 0 for l = 0 and makes the upper bound
    /// smaller than the lower one.
    pub fn lru_state_bounds(&self, hot_held: f64) -> Result<LnBounds, AnalysisError> {
        let hot_held = self.check_hot_held(hot_held)?;
        let cold_held = self.cache as f64 - hot_held;
        let ln_product = self.ln_product(hot_held);
        let factors = self.cache as f64 - 1.0;
        if factors == 0.0 {
            return Ok(LnBounds { lower: ln_product, upper: ln_product });
        }
        // At least one block is there before the last factor, and it has at least lambda.
        let most = (-self.lambda).ln_1p();
        // All but the rarest are there; of less than one cold block, a cold one counts as rarest.
        let rarest = if cold_held > 0.0 { self.lambda } else { self.kappa };
        let least = (self.missing(hot_held, cold_held) + rarest).ln();
        Ok(LnBounds { lower: ln_product - factors * most, upper: ln_product - factors * least })
    }

    /// The least and the most probable of the LRU states with `hot_held` hot blocks: these first in
    /// the list, the others first. Exact, from equation 3.3.
    pub fn lru_state_extremes(&self, hot_held: u64) -> Result<LnBounds, AnalysisError> {
        let hot_held = self.check_hot_held(hot_held as f64)?;
        let (hot, cold) = (hot_held as u64, self.cache - hot_held as u64);
        let ln_product = self.ln_product(hot_held);
        let mut cold_first = 0.0;
        let mut hot_first = 0.0;
        for before in 1..self.cache {
            let (c, h) = (before.min(cold), before.min(hot));
            cold_first += self.missing((before - c) as f64, c as f64).ln();
            hot_first += self.missing(h as f64, (before - h) as f64).ln();
        }
        Ok(LnBounds { lower: ln_product - cold_first, upper: ln_product - hot_first })
    }

    /// ln pi_s(FCFS) of any state s with `hot_held` hot blocks (equation 3.4), exact.
    ///
    /// The thesis takes l in the sum over all states for that of s, so that kappa and lambda cancel
    /// and its Figures 3.1 and 3.2 show `uniform_state_bounds`, "the same regardless of the
    /// contents". But each state in the sum has its own number of hot blocks. Per state LRU is
    /// therefore not orders of magnitude more probable than FCFS.
    pub fn ln_fcfs_state(&self, hot_held: f64) -> Result<f64, AnalysisError> {
        let hot_held = self.check_hot_held(hot_held)?;
        Ok(self.ln_product(hot_held) - ln_sum(&self.ln_fcfs_weights()))
    }

    /// Bounds of the probability of one state, (n-m)! / n!, if all were equally probable (equation
    /// 3.5): true of FCFS if alpha is 1, and what the thesis shows for any alpha (see
    /// `ln_fcfs_state`).
    ///
    /// Corrected: the exponents "1.3n/12" are n + 1/(12n), Stirling's upper bound in the form of
    /// Cormen, Leiserson and Rivest, which does not hold below n = 8; here it is sqrt(2 pi n)
    /// (n/e)^n e^(1/(12n)), Robbins' (1955). S_lower and S_upper have changed places in 3.5: the
    /// larger divisor gives the lower bound.
    pub fn uniform_state_bounds(&self) -> LnBounds {
        let all = ln_factorial_bounds(self.hot + self.cold);
        let rest = ln_factorial_bounds(self.hot + self.cold - self.cache as f64);
        LnBounds { lower: rest.lower - all.upper, upper: rest.upper - all.lower }
    }

    /// E\[X\] = m a alpha / (a alpha + b) (equation 4.1): hot blocks in the cache, if its m blocks
    /// were drawn one by one with replacement.
    ///
    /// Wrong for large caches: it exceeds the a hot blocks that there are as soon as m > a + b /
    /// alpha. A block is in the cache once, so it is never less than `expected_hot_blocks_lru`, the
    /// true number.
    pub fn expected_hot_blocks_with_replacement(&self) -> f64 {
        self.cache as f64 * self.hot * self.kappa
    }

    /// How many hot blocks an LRU cache holds on average.
    pub fn expected_hot_blocks_lru(&self) -> f64 {
        mean(&self.hot_blocks_lru())
    }

    /// How many hot blocks an FCFS cache holds on average.
    pub fn expected_hot_blocks_fcfs(&self) -> f64 {
        mean(&self.hot_blocks_fcfs())
    }

    /// Faults per write of the LRU cache: equation 3.1, exact for any size.
    pub fn lru_fault_rate(&self) -> f64 {
        self.fault_rate(&self.hot_blocks_lru())
    }

    /// Faults per write of the FCFS cache: equation 3.2, exact for any size.
    pub fn fcfs_fault_rate(&self) -> f64 {
        self.fault_rate(&self.hot_blocks_fcfs())
    }

    /// The probability of each number of hot blocks, from 0 to the size of the cache, in an LRU
    /// cache.
    pub fn hot_blocks_lru(&self) -> Vec<f64> {
        let cache = self.cache as usize;
        let mut probabilities = vec![0.0; cache + 1];
        probabilities[0] = 1.0;
        for drawn in 0..cache {
            // From the end, so that each number is read before it changes.
            for hot in (0..=drawn).rev() {
                let cold = (drawn - hot) as f64;
                let weight_hot = (self.hot - hot as f64).max(0.0) * self.kappa;
                let weight_cold = (self.cold - cold).max(0.0) * self.lambda;
                let all = weight_hot + weight_cold;
                // A number that cannot be (more cold ones than there are) has probability 0 anyway.
                let to_hot = if all > 0.0 { weight_hot / all } else { 0.0 };
                let probability = probabilities[hot];
                probabilities[hot + 1] += probability * to_hot;
                probabilities[hot] = probability * (1.0 - to_hot);
            }
        }
        probabilities
    }

    /// The probability of each number of hot blocks, from 0 to the size of the cache, in an FCFS
    /// cache.
    pub fn hot_blocks_fcfs(&self) -> Vec<f64> {
        let weights = self.ln_fcfs_weights();
        let sum = ln_sum(&weights);
        weights.iter().map(|weight| (weight - sum).exp()).collect()
    }

    fn fault_rate(&self, hot_blocks: &[f64]) -> f64 {
        let rate = |(hot, probability): (usize, &f64)| match probability {
            0.0 => 0.0,
            _ => probability * self.missing(hot as f64, (self.cache as usize - hot) as f64),
        };
        hot_blocks.iter().enumerate().map(rate).sum()
    }

    /// For each number l of hot blocks: ln of the sum over the states with so many of kappa^l
    /// lambda^(m-l). There are a! / (a-l)! * b! / (b-m+l)! ways to choose the blocks in their
    /// order, at m! / (l! (m-l)!) places.
    fn ln_fcfs_weights(&self) -> Vec<f64> {
        let falling = |n: f64| {
            let mut sums = vec![0.0];
            for taken in 0..self.cache {
                // Below 0 there is nothing to take: ln 0.
                sums.push(sums[taken as usize] + (n - taken as f64).max(0.0).ln());
            }
            sums
        };
        let (hot, cold, places) =
            (falling(self.hot), falling(self.cold), falling(self.cache as f64));
        let cache = self.cache as usize;
        let ln_factorial = |n: usize| places[cache] - places[cache - n];
        (0..=cache)
            .map(|l| {
                let orders = ln_factorial(cache) - ln_factorial(l) - ln_factorial(cache - l);
                hot[l] + cold[cache - l] + orders + self.ln_product(l as f64)
            })
            .collect()
    }

    /// ln of kappa^l lambda^(m-l).
    fn ln_product(&self, hot_held: f64) -> f64 {
        hot_held * self.kappa.ln() + (self.cache as f64 - hot_held) * self.lambda.ln()
    }

    /// Probability of all blocks but so many hot and cold ones.
    fn missing(&self, hot: f64, cold: f64) -> f64 {
        (self.hot - hot).max(0.0) * self.kappa + (self.cold - cold).max(0.0) * self.lambda
    }

    fn check_hot_held(&self, hot_held: f64) -> Result<f64, AnalysisError> {
        let cache = self.cache as f64;
        check("hot blocks held", "what cache and classes allow", hot_held, |hot_held| {
            hot_held >= (cache - self.cold).max(0.0) && hot_held <= self.hot.min(cache)
        })
    }
}

/// Of ln n!, for a whole n (Robbins).
fn ln_factorial_bounds(n: f64) -> LnBounds {
    if n < 1.0 {
        return LnBounds { lower: 0.0, upper: 0.0 };
    }
    let stirling = 0.5 * (2.0 * std::f64::consts::PI * n).ln() + n * (n.ln() - 1.0);
    LnBounds { lower: stirling + 1.0 / (12.0 * n + 1.0), upper: stirling + 1.0 / (12.0 * n) }
}

/// ln of the sum of numbers of which the ln are given.
fn ln_sum(lns: &[f64]) -> f64 {
    let largest = lns.iter().fold(f64::NEG_INFINITY, |largest, &ln| largest.max(ln));
    largest + lns.iter().map(|ln| (ln - largest).exp()).sum::<f64>().ln()
}

fn mean(probabilities: &[f64]) -> f64 {
    probabilities.iter().enumerate().map(|(value, probability)| value as f64 * probability).sum()
}

#[cfg(test)]
#[path = "hot_cold_tests.rs"]
mod tests;
