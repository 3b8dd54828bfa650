//! Where a line is looked for in a table: a hash that nobody outside can foretell.
//!
//! A guest chooses the lines that it writes. If it knew where each lies in a table, it could write
//! thousands that all lie at one place, and each look-up, of others too, would walk past them all.
//! So a driver gives each start a secret seed. What the engine does is the same with every seed;
//! only how long a look-up takes is not.

/// The hash of one start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LineHash {
    multiplier: u64,
}

/// The golden ratio in 64 bits, an odd number (Knuth, The Art of Computer Programming 3, section
/// 6.4).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl LineHash {
    /// The hash with this seed; 0 for runs that are to take as long as ever.
    pub fn new(seed: u64) -> LineHash {
        LineHash { multiplier: (seed ^ GOLDEN) | 1 }
    }

    /// What says which hash it is: an odd number.
    pub(crate) fn multiplier(self) -> u64 {
        self.multiplier
    }

    /// The hash of which that is the multiplier.
    pub(crate) fn with_multiplier(multiplier: u64) -> LineHash {
        LineHash { multiplier: multiplier | 1 }
    }

    /// A place in a table of `places` places.
    pub(crate) fn place(self, line: u64, places: usize) -> usize {
        self.bucket(line, places).0
    }

    /// One of so many buckets, and how far behind its begin the line would be in a table of
    /// 2^64 places there.
    #[inline]
    pub(crate) fn bucket(self, line: u64, buckets: usize) -> (usize, u64) {
        // The high half of the product scales to any size.
        let scaled = u128::from(self.order(line)) * buckets as u128;
        ((scaled >> 64) as usize, scaled as u64)
    }

    /// Where the line is in the order of all tables: with any number of buckets, those of the first
    /// come before those of the second.
    #[inline]
    pub(crate) fn order(self, line: u64) -> u64 {
        // The secret product spreads lines that were chosen without knowing it; the second one
        // mixes its halves, so that no seed is bad for neighbours.
        let secret = line.wrapping_add(1).wrapping_mul(self.multiplier);
        (secret ^ secret >> 32).wrapping_mul(GOLDEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines that one seed brings into a small part of a table are all over it with another, and so
    /// are neighbours, multiples of any power of two and, by now, those that were chosen for the
    /// hash before there was a seed.
    #[test]
    fn lines_chosen_for_one_seed_are_spread_by_another() {
        const PLACES: usize = 1 << 20;
        let (known, secret) = (LineHash::new(0), LineHash::new(0x5eed_0000_cafe_f00d));
        let near = |hash: LineHash| move |line: &u64| hash.place(*line, PLACES) < PLACES / 1000;
        let unseeded = |line: &u64| (line + 1).wrapping_mul(GOLDEN) < u64::MAX / 1000;
        let chosen: Vec<u64> = (0..1 << 22).filter(near(known)).collect();
        let chosen_before: Vec<u64> = (0..1 << 22).filter(unseeded).collect();
        assert!(chosen.len() > 3000 && chosen_before.len() > 3000);
        let strides = [0, 3, 10, 20, 30].map(|bits| (0..4000).map(|i| i << bits).collect());
        for lines in strides.into_iter().chain([chosen, chosen_before]) {
            let lines: Vec<u64> = lines;
            for hash in [secret, LineHash::new(0x1234_5678_9abc_def0), LineHash::new(1 << 50)] {
                let mut in_part = [0; 64];
                for line in &lines {
                    in_part[hash.place(*line, 64)] += 1;
                }
                let most = in_part.iter().max().unwrap();
                assert!(*most < 3 * lines.len() / 64, "{hash:?}: {in_part:?}");
            }
        }
    }
}
