//! Which group is cleaned next (Haining, sections 3.1 and 4.2, and two of later times). The same code in simulator and
//! daemon.

use super::directory::{Directory, GroupIndex};
use super::groups::HeadPosition;
use crate::units::{Duration, Time};

/// Groups that are looked at on each side of the head: seeks grow with the distance, so one far
/// away is hardly ever the cheapest.
const BESIDE_HEAD_MAX: usize = 64;

/// Which group is cleaned next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NvramPolicyKind {
    /// The one written longest ago: least recently used.
    Lru,
    /// The one that has been in memory longest: first in, first out.
    Fifo,
    /// The one that the head reaches first: shortest access time first.
    Stf,
    /// The same, sooner the older it is: at this age it costs nothing any more.
    WeightedStf {
        /// That age.
        age_max: Duration,
    },
    /// The one with most dirty blocks: largest segment per track.
    Lst,
    /// The largest of those that are not hot: the stack model.
    Stack,
    /// The one whose age times blocks for each write that they take is largest.
    AgeSize,
    /// The one whose cleaning costs least for the blocks that it frees: greedy dual size.
    Gds,
    /// The one that does best of late, with the thresholds that do: see `control`. It takes the
    /// place of all thresholds.
    Auto,
}

/// Chooses a group to clean.
pub(crate) trait NvramPolicy: Send {
    /// One that is not being cleaned, or none if it would have all the others stay.
    fn choose(
        &self,
        groups: &mut Directory,
        head: &dyn HeadPosition,
        now: Time,
    ) -> Option<GroupIndex>;
}

struct Oldest;
struct Largest;
struct LargestByAge;
struct LeastValuable;
struct Nearest {
    age_max: Option<Duration>,
}

impl NvramPolicy for Oldest {
    fn choose(&self, groups: &mut Directory, _: &dyn HeadPosition, _: Time) -> Option<GroupIndex> {
        groups.oldest()
    }
}

impl NvramPolicy for Largest {
    fn choose(&self, groups: &mut Directory, _: &dyn HeadPosition, _: Time) -> Option<GroupIndex> {
        groups.largest_cold()
    }
}

impl NvramPolicy for LargestByAge {
    fn choose(&self, groups: &mut Directory, _: &dyn HeadPosition, _: Time) -> Option<GroupIndex> {
        groups.largest_by_age()
    }
}

impl NvramPolicy for LeastValuable {
    fn choose(&self, groups: &mut Directory, _: &dyn HeadPosition, _: Time) -> Option<GroupIndex> {
        groups.take_least_valuable()
    }
}

impl NvramPolicy for Nearest {
    fn choose(
        &self,
        groups: &mut Directory,
        head: &dyn HeadPosition,
        now: Time,
    ) -> Option<GroupIndex> {
        let weighted = |(block, index)| {
            let cost = head.cost(now, block);
            match self.age_max {
                None => cost,
                Some(age_max) => {
                    let age = now.since(groups.written_at(index));
                    let left = age_max.0.saturating_sub(age.0);
                    (u128::from(cost) * u128::from(left) / u128::from(age_max.0.max(1))) as u64
                }
            }
        };
        // Whatever is beyond its age is the first, wherever it lies.
        let oldest = groups.oldest().filter(|oldest| {
            let is_due = |age_max: Duration| now.since(groups.written_at(*oldest)) >= age_max;
            self.age_max.is_some_and(is_due)
        });
        let beside = groups.beside(head.block(), BESIDE_HEAD_MAX);
        let nearest = || beside.min_by_key(|group| (weighted(*group), group.0));
        oldest.or_else(|| nearest().map(|(_, index)| index))
    }
}

impl NvramPolicyKind {
    /// The policy of this name.
    pub(crate) fn policy(self) -> Box<dyn NvramPolicy> {
        match self {
            // They differ in what makes a group the newest.
            NvramPolicyKind::Lru | NvramPolicyKind::Fifo => Box::new(Oldest),
            NvramPolicyKind::Stf => Box::new(Nearest { age_max: None }),
            NvramPolicyKind::WeightedStf { age_max } => {
                Box::new(Nearest { age_max: Some(age_max) })
            }
            NvramPolicyKind::Lst | NvramPolicyKind::Stack => Box::new(Largest),
            // What it begins with.
            NvramPolicyKind::AgeSize | NvramPolicyKind::Auto => Box::new(LargestByAge),
            NvramPolicyKind::Gds => Box::new(LeastValuable),
        }
    }

    /// Whether it asks for neighbours ([`Directory::beside`]).
    pub(crate) fn wants_addresses(self) -> bool {
        matches!(self, NvramPolicyKind::Stf | NvramPolicyKind::WeightedStf { .. })
    }

    /// Whether it asks for age and size ([`Directory::largest_by_age`]).
    pub(crate) fn wants_ages_and_sizes(self) -> bool {
        matches!(self, NvramPolicyKind::AgeSize | NvramPolicyKind::Auto)
    }

    /// Whether it asks for values ([`Directory::take_least_valuable`]).
    pub(crate) fn wants_values(self) -> bool {
        matches!(self, NvramPolicyKind::Gds | NvramPolicyKind::Auto)
    }

    /// Size of the hot zone: `found` for the one policy that has one. Who asks for no order by size
    /// has all groups hot.
    pub(crate) fn hot_zone_blocks(self, found: u64) -> u64 {
        match self {
            NvramPolicyKind::Stack => found,
            NvramPolicyKind::Lst | NvramPolicyKind::Auto => 0,
            _ => u64::MAX,
        }
    }
}
