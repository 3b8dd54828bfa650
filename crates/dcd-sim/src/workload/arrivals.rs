//! When requests come, whether or not those before are done: an open loop.

use crate::random::Random;

/// When requests come.
#[derive(Clone, Debug)]
pub(super) enum Arrivals {
    /// Each independently of the others.
    Poisson {
        /// Mean time between two.
        gap_ns: f64,
    },
    /// Bursts, and silence between them.
    Bursts(Bursts),
}

/// Bursts of random length, after random silences.
#[derive(Clone, Debug)]
pub(super) struct Bursts {
    shape: Shape,
    /// Mean number of requests.
    requests: u64,
    /// Mean time from one to the next of the same burst.
    within_ns: f64,
    /// Mean time from the last to the first of the next burst.
    silence_ns: f64,
    /// Requests of this burst that are still to come.
    left: u64,
}

/// How lengths and times are spread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    /// Evenly, up to twice the mean: the `rand()` of the NT paper.
    Uniform,
    /// Lengths geometrically, times exponentially: some are far above the mean.
    Exponential,
}

impl Arrivals {
    /// Independent of each other, so many per second on average.
    pub(super) fn poisson(rate: f64) -> Arrivals {
        Arrivals::Poisson { gap_ns: 1e9 / rate }
    }

    /// Bursts of `requests`, so that `rate` come per second on average; none if bursts that slow
    /// have no silence between them.
    pub(super) fn bursts(
        shape: Shape,
        rate: f64,
        requests: u64,
        within_ns: u64,
    ) -> Option<Arrivals> {
        let within_ns = within_ns as f64;
        let silence_ns = requests as f64 * 1e9 / rate - (requests - 1) as f64 * within_ns;
        let bursts = Bursts { shape, requests, within_ns, silence_ns, left: 0 };
        (silence_ns >= 0.0).then_some(Arrivals::Bursts(bursts))
    }

    /// The time from the request that has just come to the next.
    pub(super) fn gap_ns(&mut self, random: &mut Random) -> u64 {
        let gap_ns = match self {
            Arrivals::Poisson { gap_ns } => random.exponential(*gap_ns),
            Arrivals::Bursts(bursts) => bursts.gap_ns(random),
        };
        gap_ns as u64
    }
}

impl Bursts {
    fn gap_ns(&mut self, random: &mut Random) -> f64 {
        if self.left == 0 {
            self.left = self.length(random);
        }
        self.left -= 1;
        let mean_ns = if self.left == 0 { self.silence_ns } else { self.within_ns };
        match self.shape {
            Shape::Uniform => 2.0 * mean_ns * random.uniform(),
            Shape::Exponential => random.exponential(mean_ns),
        }
    }

    fn length(&self, random: &mut Random) -> u64 {
        match self.shape {
            Shape::Uniform => 1 + random.below(2 * self.requests - 1),
            Shape::Exponential => random.geometric(self.requests as f64),
        }
    }
}
