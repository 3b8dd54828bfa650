//! Something over time, of a stream whose end is not known: equal bins, and whenever there are too
//! many, two neighbours become one. So there are always between half of [`BINS_MAX`] and all of
//! them once it was full.

/// Most bins.
pub const BINS_MAX: usize = 256;
/// The first width.
const BIN_NS_MIN: u64 = 1_000;

/// What can be kept in a bin.
pub trait Bin: Default {
    /// Takes in the bin behind it.
    fn join(&mut self, later: Self);
}

/// Bins from time 0 on.
#[derive(Debug)]
pub struct TimeBins<B> {
    bin_ns: u64,
    bins: Vec<B>,
}

impl<B> Default for TimeBins<B> {
    fn default() -> TimeBins<B> {
        TimeBins { bin_ns: BIN_NS_MIN, bins: Vec::new() }
    }
}

impl<B: Bin> TimeBins<B> {
    /// The bin of a time.
    pub fn at(&mut self, time_ns: u64) -> &mut B {
        while time_ns / self.bin_ns >= BINS_MAX as u64 {
            self.join_pairs();
        }
        let index = (time_ns / self.bin_ns) as usize;
        if index >= self.bins.len() {
            self.bins.resize_with(index + 1, B::default);
        }
        &mut self.bins[index]
    }

    fn join_pairs(&mut self) {
        let mut bins = std::mem::take(&mut self.bins).into_iter();
        while let Some(mut bin) = bins.next() {
            if let Some(later) = bins.next() {
                bin.join(later);
            }
            self.bins.push(bin);
        }
        self.bin_ns *= 2;
    }

    /// Width of each.
    pub fn bin_ns(&self) -> u64 {
        self.bin_ns
    }

    /// All up to the last one that was asked for.
    pub fn bins(&self) -> &[B] {
        &self.bins
    }

    /// All of them.
    pub fn bins_mut(&mut self) -> &mut [B] {
        &mut self.bins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Count(u64);

    impl Bin for Count {
        fn join(&mut self, later: Count) {
            self.0 += later.0;
        }
    }

    /// ```text
    /// bins of 1 us    0        1..255            256 does not fit
    /// bins of 2 us    0 and 1        127            128
    /// ```
    #[test]
    fn neighbours_are_joined_when_it_is_full() {
        let mut bins = TimeBins::<Count>::default();
        for us in [0, 1, 255] {
            bins.at(us * 1000).0 += 1;
        }
        assert_eq!((bins.bin_ns(), bins.bins().len()), (1000, 256));
        bins.at(256_000).0 += 1;
        assert_eq!((bins.bin_ns(), bins.bins().len()), (2000, 129));
        let counted: Vec<_> = bins.bins().iter().map(|bin| bin.0).collect();
        assert_eq!((counted[0], counted[1], counted[127], counted[128]), (2, 0, 1, 1));
        bins.at(u64::MAX).0 += 1;
        assert_eq!(bins.bins().iter().map(|bin| bin.0).sum::<u64>(), 5);
        assert!(bins.bins().len() <= BINS_MAX);
    }
}
