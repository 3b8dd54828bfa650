//! Mean and percentiles of many numbers in little memory: percentiles are exact to three digits.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Numbers that are counted as they come.
#[derive(Clone, Debug)]
pub struct Distribution {
    histogram: Histogram<u64>,
    sum: u128,
    max: u64,
}

/// What is told of a distribution, in some unit.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Percentiles {
    /// Exact.
    pub mean: f64,
    /// Half are at most so large.
    pub p50: f64,
    /// 90 %.
    pub p90: f64,
    /// 99 %.
    pub p99: f64,
    /// 99.9 %.
    pub p999: f64,
    /// The largest, exact.
    pub max: f64,
}

impl Default for Distribution {
    fn default() -> Distribution {
        let histogram = Histogram::new(3).expect("three digits are allowed");
        Distribution { histogram, sum: 0, max: 0 }
    }
}

impl Distribution {
    /// Counts a number.
    pub fn add(&mut self, value: u64) {
        self.histogram.record(value).expect("the histogram grows");
        self.sum += u128::from(value);
        self.max = self.max.max(value);
    }

    /// Counts all that the other has counted.
    pub fn merge(&mut self, other: &Distribution) {
        self.histogram.add(&other.histogram).expect("the histogram grows");
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// How many are at most each bound and above the one before it, and last, above all bounds; to
    /// three digits.
    pub fn counts_up_to(&self, bounds: &[u64]) -> Vec<u64> {
        let mut counts = vec![0; bounds.len() + 1];
        for step in self.histogram.iter_recorded() {
            let value = self.histogram.lowest_equivalent(step.value_iterated_to());
            let class = bounds.partition_point(|bound| *bound < value);
            counts[class] += step.count_at_value();
        }
        counts
    }

    /// In units of so many ones; none of no numbers.
    pub fn percentiles(&self, unit: f64) -> Option<Percentiles> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        // A bucket is told by its upper end, which may be beyond the largest.
        let at = |quantile| self.histogram.value_at_quantile(quantile).min(self.max) as f64 / unit;
        Some(Percentiles {
            mean: self.sum as f64 / count as f64 / unit,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: self.max as f64 / unit,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_numbers() {
        let mut distribution = Distribution::default();
        assert!(distribution.percentiles(1.0).is_none());
        (1..=1000u64).for_each(|value| distribution.add(value * 10));
        let found = distribution.percentiles(10.0).unwrap();
        assert_eq!((found.mean, found.max), (500.5, 1000.0));
        let near = |found: f64, wanted: f64| (found / wanted - 1.0).abs() < 0.001;
        assert_eq!(distribution.counts_up_to(&[5, 10, 1000]), [0, 1, 99, 900]);
        assert!(near(found.p50, 500.0) && near(found.p90, 900.0), "{found:?}");
        distribution.add(u64::MAX);
        assert_eq!(distribution.percentiles(1.0).unwrap().max, u64::MAX as f64);
    }
}
