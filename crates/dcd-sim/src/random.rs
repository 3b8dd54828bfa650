//! Random numbers from a seed: the same on every machine, for ever.

/// A sequence of numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number above 0, at most 1.
    pub fn uniform(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// A number of a normal distribution with mean 0 and deviation 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let (u, v) = (self.uniform(), self.uniform());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    /// A number of an exponential distribution with that mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.uniform().ln()
    }

    /// A whole number below `end`.
    ///
    /// # Panics
    /// If `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0, "no number is below 0");
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// True in that share of the calls; `share` is from 0 to 1.
    pub fn chance(&mut self, share: f64) -> bool {
        self.uniform() <= share
    }

    /// A whole number from 1 on, of a geometric distribution with that mean, which is at least 1.
    pub fn geometric(&mut self, mean: f64) -> u64 {
        if mean <= 1.0 {
            return 1;
        }
        let more = (self.uniform().ln() / (1.0 - 1.0 / mean).ln()).floor();
        1 + more as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(mut draw: impl FnMut(&mut Random) -> f64) -> f64 {
        let mut random = Random::new(7);
        (0..100_000).map(|_| draw(&mut random)).sum::<f64>() / 100_000.0
    }

    #[test]
    fn means_are_as_asked() {
        assert!((mean(Random::uniform) - 0.5).abs() < 0.005);
        assert!(mean(Random::normal).abs() < 0.02);
        assert!((mean(|random| random.normal().powi(2)) - 1.0).abs() < 0.02);
        assert!((mean(|random| random.exponential(3.0)) - 3.0).abs() < 0.05);
        assert!((mean(|random| random.below(11) as f64) - 5.0).abs() < 0.05);
        assert!((mean(|random| f64::from(u8::from(random.chance(0.2)))) - 0.2).abs() < 0.01);
        assert!((mean(|random| random.geometric(4.0) as f64) - 4.0).abs() < 0.05);
        assert_eq!(mean(|random| random.geometric(1.0) as f64), 1.0);
    }

    /// Traces made from a seed stay what they are: what splitmix64 gives for 1234567.
    #[test]
    fn the_sequence_is_that_of_splitmix64() {
        let mut random = Random::new(1_234_567);
        assert_eq!(random.bits(), 6_457_827_717_110_365_317);
        assert_eq!(random.bits(), 3_203_168_211_198_807_973);
    }
}
