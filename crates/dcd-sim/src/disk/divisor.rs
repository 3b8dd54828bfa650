//! Division by a number that stays the same: a multiplication and at most one step more.
//!
//! To find a sector takes three divisions, and a drive's queue and STF look for many sectors for
//! each one that is served.

/// A number that others are divided by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Divisor {
    divisor: u64,
    /// The largest number of which `divisor` are less than 2^64.
    reciprocal: u64,
}

impl Divisor {
    /// # Panics
    /// If it is 0.
    pub fn new(divisor: u64) -> Divisor {
        Divisor { divisor, reciprocal: u64::MAX / divisor }
    }

    /// The number itself.
    pub fn get(self) -> u64 {
        self.divisor
    }

    /// Quotient and remainder of `number`, exact.
    pub fn divide(self, number: u64) -> (u64, u64) {
        // The reciprocal is too small by 1 / 2^64 of the true one at most, so the product is by
        // less than 1.
        let quotient = ((u128::from(number) * u128::from(self.reciprocal)) >> 64) as u64;
        let rest = number - quotient * self.divisor;
        if rest >= self.divisor { (quotient + 1, rest - self.divisor) } else { (quotient, rest) }
    }

    /// The remainder of `number`.
    pub fn remainder(self, number: u64) -> u64 {
        self.divide(number).1
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn agrees(number: u64, divisor: u64) -> bool {
        Divisor::new(divisor).divide(number) == (number / divisor, number % divisor)
    }

    proptest! {
        #[test]
        fn it_is_division(number in any::<u64>(), divisor in 1u64.., shift in 0u32..64) {
            prop_assert!(agrees(number, divisor));
            prop_assert!(agrees(number, (divisor >> shift).max(1)));
            prop_assert!(agrees(number >> shift, divisor));
        }
    }

    #[test]
    fn it_is_division_at_the_edges() {
        let edges = |at: u64| [at.wrapping_sub(1), at, at.wrapping_add(1)];
        for divisor in (0..64).flat_map(|bit| edges(1 << bit)).chain([3, u64::MAX]) {
            let Some(multiple) = u64::MAX.checked_div(divisor).map(|most| most * divisor) else {
                continue;
            };
            for number in edges(multiple).into_iter().chain(edges(divisor)).chain([0, u64::MAX]) {
                assert!(agrees(number, divisor), "{number} / {divisor}");
            }
        }
    }
}
