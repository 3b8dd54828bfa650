//! What requests are and where they go, each independent of when it comes.

use super::zipf::Zipf;
use crate::random::Random;
use crate::trace::{Flags, Operation};

/// A request without its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Access {
    pub(super) operation: Operation,
    pub(super) offset_bytes: u64,
    pub(super) size_bytes: u64,
    pub(super) flags: Flags,
}

/// What requests are and where they go.
pub(super) trait Pattern {
    fn next(&mut self, random: &mut Random) -> Access;
}

/// Sizes: multiples of the first up to the second, equally likely.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) unit_bytes: u64,
    /// How many there are.
    pub(super) count: u64,
}

impl Sizes {
    fn draw(&self, random: &mut Random) -> u64 {
        self.unit_bytes * (1 + random.below(self.count))
    }

    pub(super) fn max_bytes(&self) -> u64 {
        self.unit_bytes * self.count
    }
}

/// Reads and writes at places that a rule gives.
pub(super) struct Placed {
    /// From 0 to 1.
    pub(super) read_share: f64,
    pub(super) sizes: Sizes,
    pub(super) place: Place,
}

/// The rule.
pub(super) enum Place {
    /// Every unit is as likely as any other.
    Uniform { units: u64 },
    /// By Zipf's law over slots of the largest size.
    Zipf { law: Zipf, scatter: Scatter },
    /// Slots of two populations.
    HotCold { hot: u64, cold: u64, hot_share: f64, scatter: Scatter },
    /// Behind the last request of a stream, now and then anywhere.
    Sequential { next_bytes: Vec<u64>, span_bytes: u64, random_share: f64 },
}

impl Pattern for Placed {
    fn next(&mut self, random: &mut Random) -> Access {
        let is_read = random.chance(self.read_share) && self.read_share > 0.0;
        let size_bytes = self.sizes.draw(random);
        let unit_bytes = self.sizes.unit_bytes;
        let slot_bytes = self.sizes.max_bytes();
        let uniform = |random: &mut Random, units: u64| {
            unit_bytes * random.below(units - size_bytes / unit_bytes + 1)
        };
        let offset_bytes = match &mut self.place {
            Place::Uniform { units } => uniform(random, *units),
            Place::Zipf { law, scatter } => scatter.slot(law.draw(random)) * slot_bytes,
            Place::HotCold { hot, cold, hot_share, scatter } => {
                let is_hot = random.chance(*hot_share);
                let number = if is_hot { random.below(*hot) } else { *hot + random.below(*cold) };
                scatter.slot(number) * slot_bytes
            }
            Place::Sequential { next_bytes, span_bytes, random_share } => {
                let stream = random.below(next_bytes.len() as u64) as usize;
                let next = &mut next_bytes[stream];
                let is_random = *random_share > 0.0 && random.chance(*random_share);
                if is_random {
                    *next = uniform(random, *span_bytes / unit_bytes);
                } else if *next + size_bytes > *span_bytes {
                    *next = 0;
                }
                let offset_bytes = *next;
                *next += size_bytes;
                offset_bytes
            }
        };
        let operation = if is_read { Operation::Read } else { Operation::Write };
        Access { operation, offset_bytes, size_bytes, flags: Flags::default() }
    }
}

/// Puts numbers that belong together far apart: each of `count` numbers to a slot of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scatter {
    count: u64,
    step: u64,
}

impl Scatter {
    /// # Panics
    /// If `count` is 0.
    pub(super) fn new(count: u64) -> Scatter {
        assert!(count > 0, "there is no slot");
        // By the golden ratio neighbours, and neighbours of neighbours, are far apart; a step
        // without a common factor reaches every slot.
        let mut step = ((count as f64 * 0.618_033_988_749_894_9) as u64).max(1);
        while greatest_common_divisor(step, count) != 1 {
            step += 1;
        }
        Scatter { count, step }
    }

    pub(super) fn slot(self, number: u64) -> u64 {
        let product = u128::from(number) * u128::from(self.step);
        (product % u128::from(self.count)) as u64
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_slot_of_its_own() {
        for count in [1, 2, 3, 10, 64, 1000, 1023] {
            let scatter = Scatter::new(count);
            let mut slots: Vec<u64> = (0..count).map(|number| scatter.slot(number)).collect();
            slots.sort_unstable();
            assert_eq!(slots, (0..count).collect::<Vec<_>>());
        }
        let scatter = Scatter::new(1000);
        assert!(scatter.slot(1).abs_diff(scatter.slot(0)) > 300);
    }
}
