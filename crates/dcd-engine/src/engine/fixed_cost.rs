//! What each round of zeroes takes, however small it is: a flush, above all.
//!
//! One round does not tell why it was long. Two of different sizes do: what grows with the lines is
//! the speed of the disk, and the rest is there for each round, so smaller rounds make it no
//! shorter, only more frequent. Disks are not so regular that one comparison would prove it, so
//! two must agree before anything else is believed, and none shares a round with another: a single
//! slow one spoils only one of them. Where all rounds are alike one is asked to be of another size,
//! seldom. Rounds are made longer or shorter in [`super::zero_pace`].

use crate::units::Duration;

/// After so many slow rounds without a comparison, one is asked for.
const ROUNDS_UNTIL_COMPARISON: u32 = 64;

/// A round that has ended.
#[derive(Clone, Copy)]
pub(super) struct Round {
    pub(super) lines: u64,
    pub(super) took: Duration,
}

/// What rounds cost by themselves.
pub(super) struct FixedCost {
    /// Nothing: their lines are what takes time.
    believed: Duration,
    /// The last comparison said the opposite.
    is_doubted: bool,
    /// The last round, if it was not compared.
    last: Option<Round>,
    /// Slow rounds since a comparison.
    slow_rounds: u32,
}

impl FixedCost {
    /// The first slow round asks for a comparison: until then nobody knows anything.
    pub(super) fn new() -> FixedCost {
        let slow_rounds = ROUNDS_UNTIL_COMPARISON - 1;
        FixedCost { believed: Duration(0), is_doubted: false, last: None, slow_rounds }
    }

    pub(super) fn believed(&self) -> Duration {
        self.believed
    }

    /// Whether a round of so many lines would tell nothing, and it is time for one that does.
    pub(super) fn wants_another_size_than(&self, lines: u64) -> bool {
        let would_compare = |last: Round| compare(last, Round { lines, ..last }).is_some();
        self.slow_rounds >= ROUNDS_UNTIL_COMPARISON && !self.last.is_some_and(would_compare)
    }

    /// A round has ended. Of those that are not slow nobody needs to know what takes the time.
    pub(super) fn round_ended(&mut self, round: Round, is_slow: bool) {
        self.slow_rounds = self.slow_rounds.saturating_add(u32::from(is_slow));
        // None is shorter than what each costs.
        self.believed = self.believed.min(round.took);
        let compared = self.last.and_then(|last| compare(last, round));
        self.last = if compared.is_some() { None } else { Some(round) };
        if let Some(compared) = compared {
            self.has_compared(compared);
        }
    }

    fn has_compared(&mut self, compared: Compared) {
        let was_fixed = self.believed > Duration(0);
        let (is_fixed, cost) = match compared {
            Compared::Fixed(cost) => (true, cost),
            Compared::ByLine => (false, Duration(0)),
            Compared::Both => (was_fixed, self.believed),
        };
        if is_fixed == was_fixed || self.is_doubted {
            self.believed = cost;
            self.is_doubted = false;
            self.slow_rounds = 0;
        } else {
            // It is looked at again with the next slow round.
            self.is_doubted = true;
            self.slow_rounds = ROUNDS_UNTIL_COMPARISON - 1;
        }
    }
}

/// What two rounds tell.
enum Compared {
    /// At least half of the longer was this.
    Fixed(Duration),
    /// At least three quarters of it were for its lines.
    ByLine,
    /// Something between, which is no reason to believe anything else.
    Both,
}

/// None where they are too much alike.
fn compare(one: Round, other: Round) -> Option<Compared> {
    let (small, large) = if one.lines < other.lines { (one, other) } else { (other, one) };
    if large.lines / 2 < small.lines {
        return None;
    }
    // On a line through both, what a round without lines would take.
    let at_small = u128::from(small.took.0) * u128::from(large.lines);
    let at_large = u128::from(large.took.0) * u128::from(small.lines);
    let cost = at_small.saturating_sub(at_large) / u128::from(large.lines - small.lines);
    // Where the larger was quicker, that line tells nothing.
    let cost = cost.min(u128::from(small.took.0.min(large.took.0))) as u64;
    Some(match cost {
        _ if cost >= large.took.0 / 2 => Compared::Fixed(Duration(cost)),
        _ if cost < large.took.0 / 4 => Compared::ByLine,
        _ => Compared::Both,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(lines: u64, took: u64) -> Round {
        Round { lines, took: Duration::from_millis(took) }
    }

    fn after(rounds: &[(u64, u64)]) -> FixedCost {
        let mut cost = FixedCost::new();
        rounds.iter().for_each(|(lines, took)| cost.round_ended(millis(*lines, *took), true));
        cost
    }

    #[test]
    fn two_comparisons_must_agree() {
        let cost = after(&[(64, 300), (32, 290)]);
        assert_eq!(cost.believed(), Duration(0));
        // The third is compared with neither.
        let cost = after(&[(64, 300), (32, 290), (16, 280)]);
        assert_eq!(cost.believed(), Duration(0));
        let mut cost = after(&[(64, 300), (32, 290), (16, 280), (8, 280)]);
        assert_eq!(cost.believed(), Duration::from_millis(280));
        // And to say that there is none.
        [millis(64, 3000), millis(8, 400)]
            .into_iter()
            .for_each(|round| cost.round_ended(round, true));
        assert_eq!(cost.believed(), Duration::from_millis(280));
        [millis(64, 3000), millis(8, 400)]
            .into_iter()
            .for_each(|round| cost.round_ended(round, true));
        assert_eq!(cost.believed(), Duration(0));
    }

    #[test]
    fn one_slow_round_proves_nothing() {
        // Half as many lines, and by chance as long.
        let by_line = [(64, 320), (32, 320), (64, 320), (32, 160), (64, 320), (32, 160)];
        for end in 2..by_line.len() {
            assert_eq!(after(&by_line[..end]).believed(), Duration(0), "{end}");
        }
        let fixed = [(64, 300), (32, 300), (64, 300), (32, 300)];
        for slow in [(64, 3000), (16, 3000)] {
            let mut cost = after(&fixed);
            for (lines, took) in [slow, (32, 300), (64, 300), (32, 300)] {
                cost.round_ended(millis(lines, took), true);
                assert_eq!(cost.believed(), Duration::from_millis(300));
            }
        }
    }

    #[test]
    fn what_is_between_leaves_it_at_what_it_was() {
        let between = [(64, 300), (32, 200)];
        assert_eq!(after(&between.repeat(3)).believed(), Duration(0));
        let fixed = [(64, 220), (32, 200), (64, 220), (32, 200)];
        let both = [&fixed[..], &between.repeat(3)].concat();
        assert_eq!(after(&both).believed(), Duration::from_millis(180));
    }

    #[test]
    fn no_round_is_shorter_than_what_each_costs() {
        let fixed = [(64, 300), (32, 300), (64, 300), (32, 300)];
        let cost = after(&[&fixed[..], &[(32, 20)]].concat());
        assert_eq!(cost.believed(), Duration::from_millis(20));
    }

    #[test]
    fn another_size_is_asked_for_at_first_and_then_seldom() {
        assert!(!FixedCost::new().wants_another_size_than(64));
        let mut cost = after(&[(64, 600)]);
        assert!(cost.wants_another_size_than(64));
        assert!(!cost.wants_another_size_than(32), "it is another");
        cost.round_ended(millis(16, 150), true);
        for _ in 0..ROUNDS_UNTIL_COMPARISON {
            assert!(!cost.wants_another_size_than(64));
            cost.round_ended(millis(64, 1), false);
            cost.round_ended(millis(64, 600), true);
        }
        assert!(cost.wants_another_size_than(64));
        // What is not as it was believed is looked at again soon.
        cost.round_ended(millis(16, 600), true);
        assert!(!cost.wants_another_size_than(64));
        cost.round_ended(millis(64, 600), true);
        assert!(cost.wants_another_size_than(64));
    }
}
