//! Which arm has made people wait least of late.
//!
//! There is no absolute time in it: an arm is better if it is so by some accesses of the disk, and
//! what was counts less after some hundreds of accesses that somebody has waited for. So memory is
//! long in quiet days and short when the disk cannot keep up, and hours without a request change
//! nothing. To an arm that leaves less room for a burst it goes only if that has saved what cleaning
//! the rest would take.

use crate::units::Duration;

/// Another arm must be better by one part in so many,
const BETTER_BY: u64 = 100;
/// and by so many accesses.
const BETTER_BY_ACCESSES: u64 = 2;
/// With so many accesses waited for in the best arm, scores count half.
const HALF_LIFE_ACCESSES: u64 = 500;

/// A change from an arm to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Switch {
    /// From which.
    pub from: usize,
    /// To which.
    pub to: usize,
    /// Waiting with the first, as it was counted then.
    pub from_waited: Duration,
    /// Waiting with the second.
    pub to_waited: Duration,
}

/// Scores of the arms.
#[derive(Debug)]
pub(super) struct Chooser {
    /// Waiting with each.
    scores: Vec<u64>,
    /// Accesses by which an arm must be better than one without a risk: what a burst costs is not
    /// seen before it comes.
    risks: Vec<u64>,
    current: usize,
}

impl Chooser {
    /// With the first of as many as have a risk: accesses of the disk that a burst would wait for.
    pub(super) fn new(risks: Vec<u64>) -> Chooser {
        Chooser { scores: vec![0; risks.len()], risks, current: 0 }
    }

    pub(super) fn current(&self) -> usize {
        self.current
    }

    pub(super) fn scores(&self) -> &[u64] {
        &self.scores
    }

    /// With this arm people waited so much more.
    pub(super) fn waited(&mut self, arm: usize, nanoseconds: u64) {
        self.scores[arm] = self.scores[arm].saturating_add(nanoseconds);
    }

    /// Takes another arm, if that is worth it. An access of the disk takes so long.
    pub(super) fn decide(&mut self, access: Duration) -> Option<Switch> {
        let now = self.scores[self.current];
        let is_better = |arm: &usize| {
            let risk = self.risks[*arm].saturating_sub(self.risks[self.current]);
            let margin = now / BETTER_BY + (BETTER_BY_ACCESSES + risk) * access.0;
            self.scores[*arm] < now.saturating_sub(margin)
        };
        let arms = (0..self.scores.len()).filter(is_better);
        let best = arms.min_by_key(|arm| self.scores[*arm]);
        let switch = best.map(|to| Switch {
            from: self.current,
            to,
            from_waited: Duration(now),
            to_waited: Duration(self.scores[to]),
        });
        if let Some(switch) = &switch {
            self.current = switch.to;
        }
        let least = self.scores.iter().copied().min().unwrap_or(0);
        if least > HALF_LIFE_ACCESSES * access.0 {
            self.scores.iter_mut().for_each(|score| *score /= 2);
        }
        switch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCESS: Duration = Duration(1000);

    #[test]
    fn arms_that_are_alike_do_not_take_turns() {
        let mut chooser = Chooser::new(vec![0; 3]);
        for round in 0u64..100_000 {
            for arm in 0..3 {
                // Each is behind in turn, by less than two accesses.
                let late = if round % 3 == arm as u64 { 500 } else { 0 };
                chooser.waited(arm, 2000 + late);
            }
            assert_eq!(chooser.decide(ACCESS), None, "round {round}");
        }
    }

    #[test]
    fn who_waits_for_nothing_changes_nothing() {
        let mut chooser = Chooser::new(vec![0; 2]);
        chooser.waited(0, 100_000);
        chooser.waited(1, 200_000);
        (0..1000).for_each(|_| assert_eq!(chooser.decide(ACCESS), None));
        assert_eq!(chooser.scores(), [100_000, 200_000]);
    }

    /// What keeps more must have saved more; the way back costs no more than any other.
    #[test]
    fn a_risk_is_paid_for_before() {
        let mut chooser = Chooser::new(vec![0, 50]);
        let mut saved = 0;
        let switch = loop {
            chooser.waited(0, 2000);
            chooser.waited(1, 1000);
            saved += 1000;
            if let Some(switch) = chooser.decide(ACCESS) {
                break switch;
            }
        };
        assert_eq!((switch.from, switch.to), (0, 1));
        assert!((52..=56).contains(&(saved / ACCESS.0)), "{saved}");
        chooser.waited(1, 60 * ACCESS.0);
        assert_eq!(chooser.decide(ACCESS).map(|switch| switch.to), Some(0));
    }

    /// However long another was better before.
    #[test]
    fn a_change_of_the_load_is_found_within_some_hundreds_of_accesses() {
        let mut chooser = Chooser::new(vec![0; 2]);
        for _ in 0..10_000 {
            chooser.waited(0, 1000);
            chooser.waited(1, 3000);
            assert_eq!(chooser.decide(ACCESS), None);
        }
        let mut waited = 0;
        loop {
            chooser.waited(0, 3000);
            chooser.waited(1, 1000);
            waited += 1000;
            if let Some(switch) = chooser.decide(ACCESS) {
                assert_eq!((switch.from, switch.to, chooser.current()), (0, 1, 1));
                break;
            }
            assert!(waited < 2 * HALF_LIFE_ACCESSES * ACCESS.0);
        }
    }
}
