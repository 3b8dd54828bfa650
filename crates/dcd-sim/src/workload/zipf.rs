//! Zipf's law without a table: rejection-inversion (Hoermann and Derflinger 1996), a few steps per
//! number however many there are.

use crate::random::Random;

/// Ranks from 0 to `count - 1`; the chance of rank r is in proportion to 1 / (r + 1)^theta.
#[derive(Clone, Debug)]
pub(super) struct Zipf {
    count: f64,
    theta: f64,
    /// Integral of the density from 1/2 less the chance of the first, and to the end.
    integral_first: f64,
    integral_last: f64,
    /// Closer to a whole number than this, one is taken without a second look.
    certain: f64,
}

impl Zipf {
    /// # Panics
    /// If there is nothing to choose from, or `theta` is not above 0.
    pub(super) fn new(count: u64, theta: f64) -> Zipf {
        assert!(count > 0 && theta > 0.0, "count {count}, theta {theta}");
        let count = count as f64;
        let certain = 2.0 - integral_inverse(integral(2.5, theta) - 2f64.powf(-theta), theta);
        Zipf {
            count,
            theta,
            integral_first: integral(1.5, theta) - 1.0,
            integral_last: integral(count + 0.5, theta),
            certain,
        }
    }

    pub(super) fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let range = self.integral_first - self.integral_last;
            let area = self.integral_last + random.uniform() * range;
            let x = integral_inverse(area, self.theta);
            let k = x.round().clamp(1.0, self.count);
            let threshold = integral(k + 0.5, self.theta) - k.powf(-self.theta);
            if k - x <= self.certain || area >= threshold {
                return k as u64 - 1;
            }
        }
    }
}

/// Integral of x^-theta, up to a constant that depends on theta only.
fn integral(x: f64, theta: f64) -> f64 {
    let log = x.ln();
    ratio((1.0 - theta) * log, f64::exp_m1) * log
}

fn integral_inverse(area: f64, theta: f64) -> f64 {
    // Rounding must not take the logarithm of less than nothing.
    let t = (area * (1.0 - theta)).max(-1.0);
    (ratio(t, f64::ln_1p) * area).exp()
}

/// f(t) / t, which is 1 at 0.
fn ratio(t: f64, f: fn(f64) -> f64) -> f64 {
    if t.abs() < 1e-12 { 1.0 } else { f(t) / t }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_come_as_often_as_zipf_says() {
        for (count, theta) in [(1u64, 1.0), (2, 0.5), (50, 0.99), (50, 1.0), (50, 2.5), (1000, 0.2)]
        {
            let zipf = Zipf::new(count, theta);
            let mut random = Random::new(3);
            let mut found = vec![0.0; count as usize];
            let draws = 200_000;
            (0..draws).for_each(|_| found[zipf.draw(&mut random) as usize] += 1.0);
            let weight = |rank: usize| ((rank + 1) as f64).powf(-theta);
            let all: f64 = (0..count as usize).map(weight).sum();
            for (rank, found) in found.iter().enumerate() {
                let wanted = f64::from(draws) * weight(rank) / all;
                // Five standard deviations.
                assert!(
                    (found - wanted).abs() < 5.0 * wanted.sqrt() + 1.0,
                    "{theta} {rank} {found}"
                );
            }
        }
    }

    #[test]
    fn the_largest_population_is_not_too_large() {
        let zipf = Zipf::new(1 << 41, 0.01);
        let mut random = Random::new(1);
        assert!((0..1000).any(|_| zipf.draw(&mut random) > 1 << 40));
        assert!((0..1000).all(|_| zipf.draw(&mut random) < 1 << 41));
        let steep = Zipf::new(1 << 41, 10.0);
        assert!((0..1000).filter(|_| steep.draw(&mut random) == 0).count() > 990);
    }
}
