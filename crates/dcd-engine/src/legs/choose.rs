//! Whom a start believes: the labels of the legs that are given, and nothing else, decide.
//!
//! *The newest membership* is the one that knows the tags of all legs given. Two legs of which
//! neither knows the other have each gone on alone: nobody can say which is right, and a person
//! must. A leg of the newest membership that is not given may hold what the others do not: without
//! it nothing starts unless a person says so.

use crate::error::FormatError;
use crate::format::leg_label::{LegLabel, LegState, Tag};
use crate::units::Uuid;

/// What a start does with a leg that was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It holds all that is durable.
    InSync,
    /// It was left out, is an older copy, or was being filled: it is filled anew.
    Stale,
    /// A person said to do without it.
    LeftOut,
}

/// What a start does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    /// Of each leg, in the order in which they were given.
    pub roles: Vec<Role>,
    /// The leg whose bytes count where the others differ.
    pub primary: usize,
    /// Its label, with the marks of all legs in sync.
    pub label: LegLabel,
    /// Legs of the newest membership that are not there, or are left out.
    pub missing: Vec<Uuid>,
}

/// Why the legs that are given make no cache-disk. Nothing was written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LegsError {
    /// A disk is no leg of this cache.
    #[error("leg {place} has no label that can be read: {error}")]
    Label {
        /// Which, in the order in which they were given.
        place: usize,
        /// What is wrong with it.
        error: FormatError,
    },
    /// A disk is a leg of another cache.
    #[error("leg {place} belongs to cache {found}, the first to {expected}")]
    OtherCache {
        /// Which, in the order in which they were given.
        place: usize,
        /// The cache of the first.
        expected: Uuid,
        /// Its own.
        found: Uuid,
    },
    /// Two disks are the same leg: one is a copy of the other.
    #[error("two disks are leg {leg}: one of them is a copy")]
    Twice {
        /// The leg.
        leg: Uuid,
    },
    /// Two legs have each gone on without the other.
    #[error("legs {first} and {second} have each been used without the other")]
    SplitBrain {
        /// One of them.
        first: Uuid,
        /// The other.
        second: Uuid,
    },
    /// Legs that may hold what the others do not are not there.
    #[error("{} not given; without {} what was flushed may be missing", named(missing), if missing.len() == 1 { "it" } else { "them" })]
    Missing {
        /// Which.
        missing: Vec<Uuid>,
    },
    /// None of them is in sync.
    #[error("none of the legs holds all that is durable{}", if missing.is_empty() { String::new() } else { format!("; {}", named(missing)) })]
    NoneInSync {
        /// Legs that may.
        missing: Vec<Uuid>,
    },
    /// What is to be left out is no leg of this cache.
    #[error("leg {leg} is not one of this cache")]
    NoSuchLeg {
        /// What was named.
        leg: Uuid,
    },
}

fn named(legs: &[Uuid]) -> String {
    let names: Vec<String> = legs.iter().map(Uuid::to_string).collect();
    match names.as_slice() {
        [one] => format!("leg {one} is"),
        several => format!("legs {} are", several.join(" and ")),
    }
}

/// Decides. `found`: the newest valid label of each leg that is given; `without`: legs that a
/// person wants to do without.
///
/// # Errors
/// If they make no cache-disk.
pub fn choose(found: &[LegLabel], without: &[Uuid]) -> Result<Choice, LegsError> {
    let first = found.first().ok_or(LegsError::NoneInSync { missing: Vec::new() })?;
    for (place, label) in found.iter().enumerate() {
        if label.cache != first.cache {
            let (expected, found) = (first.cache, label.cache);
            return Err(LegsError::OtherCache { place, expected, found });
        }
        if found[..place].iter().any(|other| other.leg == label.leg) {
            return Err(LegsError::Twice { leg: label.leg });
        }
    }
    let is_named = |leg: &Uuid| {
        found.iter().any(|label| label.leg == *leg || label.membership.members.contains(leg))
    };
    if let Some(leg) = without.iter().find(|leg| !is_named(leg)) {
        return Err(LegsError::NoSuchLeg { leg: *leg });
    }
    let is_used = |label: &LegLabel| !without.contains(&label.leg);
    let newest = newest(found.iter().filter(|label| is_used(label)))?;
    let membership = &newest.membership;

    let role = |label: &LegLabel| match () {
        () if !is_used(label) => Role::LeftOut,
        () if is_in_sync(label, newest) => Role::InSync,
        () => Role::Stale,
    };
    let roles: Vec<Role> = found.iter().map(role).collect();
    let has_all = |leg: &Uuid| found.iter().any(|label| label.leg == *leg && is_used(label));
    let missing: Vec<Uuid> =
        membership.members.iter().copied().filter(|leg| !has_all(leg)).collect();
    let in_sync = || found.iter().enumerate().filter(|(place, _)| roles[*place] == Role::InSync);
    // Of two that differ by a label, the one with the newer.
    let Some((primary, best)) = in_sync().max_by_key(|(_, label)| label.number) else {
        return Err(LegsError::NoneInSync { missing });
    };
    let not_accepted: Vec<Uuid> =
        missing.iter().copied().filter(|leg| !without.contains(leg)).collect();
    if !not_accepted.is_empty() {
        return Err(LegsError::Missing { missing: not_accepted });
    }
    let mut marks: Vec<u32> =
        in_sync().flat_map(|(_, label)| label.marks.iter().copied()).collect();
    marks.sort_unstable();
    marks.dedup();
    let label = LegLabel {
        membership: newest.membership.clone(),
        number: newest.number,
        marks,
        ..best.clone()
    };
    let missing =
        missing.into_iter().filter(|leg| !found.iter().any(|label| label.leg == *leg)).collect();
    Ok(Choice { roles, primary, label, missing })
}

/// The label whose membership knows the tags of all others.
fn newest<'a>(
    labels: impl Iterator<Item = &'a LegLabel> + Clone,
) -> Result<&'a LegLabel, LegsError> {
    let knows_all = |label: &&LegLabel| labels.clone().all(|other| knows(label, other));
    let age = |label: &&LegLabel| (label.state == LegState::Member, label.number);
    if let Some(newest) = labels.clone().filter(knows_all).max_by_key(age) {
        return Ok(newest);
    }
    let mut pairs = labels.clone().flat_map(|a| labels.clone().map(move |b| (a, b)));
    let is_split = |(a, b): &(&LegLabel, &LegLabel)| !knows(a, b) && !knows(b, a);
    match pairs.find(is_split) {
        Some((first, second)) => {
            Err(LegsError::SplitBrain { first: first.leg, second: second.leg })
        }
        None => Err(LegsError::NoneInSync { missing: Vec::new() }),
    }
}

/// Whether what a leg goes by follows what another goes by.
fn knows(label: &LegLabel, other: &LegLabel) -> bool {
    // The other was to have a membership with this leg, which never got it: so nobody was answered
    // under that, and the one before counts.
    let never_got_it = !other.is_in_force && other.membership.members.contains(&label.leg);
    let before = other.membership.past.first().filter(|_| never_got_it);
    label.membership.knows(other.membership.tag)
        || before.is_some_and(|tag| label.membership.knows(*tag))
}

/// Whether a leg holds all that was durable under the newest membership.
fn is_in_sync(label: &LegLabel, newest: &LegLabel) -> bool {
    let membership = &newest.membership;
    if label.state != LegState::Member || !membership.members.contains(&label.leg) {
        return false;
    }
    let before: Option<&Tag> = membership.past.first();
    // A membership that not all of its legs have was never in force: nobody was answered under it,
    // and a leg with the one before is as good.
    let was_interrupted = !newest.is_in_force && Some(&label.membership.tag) == before;
    let has_it = label.membership.tag == membership.tag || was_interrupted;
    // Legs take labels one by one, each before the next, so they are one apart at most; a copy that
    // was torn takes another one. A leg that is further behind is an older copy of itself.
    let is_as_new = newest.number <= label.number + 2;
    has_it && is_as_new
}

#[cfg(test)]
mod tests {
    use super::*;

    const CACHE: Uuid = Uuid([9; 16]);

    fn leg(number: u8) -> Uuid {
        Uuid([number; 16])
    }

    fn pair() -> [LegLabel; 2] {
        let legs = [leg(1), leg(2)];
        [0, 1].map(|index| LegLabel::of_new(CACHE, &legs, index, Tag(100)))
    }

    /// The same leg after a change of the membership.
    fn after(label: &LegLabel, tag: u64, members: &[Uuid], is_in_force: bool) -> LegLabel {
        LegLabel {
            membership: label.membership.next(Tag(tag), members.to_vec()),
            number: label.number + 2,
            is_in_force,
            ..label.clone()
        }
    }

    fn roles(found: &[LegLabel], without: &[Uuid]) -> Result<Vec<Role>, LegsError> {
        choose(found, without).map(|choice| choice.roles)
    }

    #[test]
    fn both_legs_are_needed() {
        let [a, b] = pair();
        assert_eq!(roles(&[a.clone(), b.clone()], &[]), Ok(vec![Role::InSync; 2]));
        let missing = vec![leg(2)];
        let alone = std::slice::from_ref(&a);
        assert_eq!(roles(alone, &[]), Err(LegsError::Missing { missing }));
        let choice = choose(alone, &[leg(2)]).unwrap();
        assert_eq!((choice.roles, choice.missing), (vec![Role::InSync], vec![leg(2)]));
        let choice = choose(&[a.clone(), b.clone()], &[leg(2)]).unwrap();
        assert_eq!((choice.roles, choice.missing), (vec![Role::InSync, Role::LeftOut], vec![]));
        assert_eq!(roles(&[a, b], &[leg(5)]), Err(LegsError::NoSuchLeg { leg: leg(5) }));
    }

    #[test]
    fn a_leg_that_was_left_out_is_stale() {
        let [a, b] = pair();
        let alone = after(&a, 101, &[leg(1)], true);
        assert_eq!(roles(&[alone.clone(), b.clone()], &[]), Ok(vec![Role::InSync, Role::Stale]));
        assert_eq!(roles(&[alone], &[]), Ok(vec![Role::InSync]));
        // Alone, it asks for the one that may have gone on.
        let missing = vec![leg(1)];
        assert_eq!(roles(&[b], &[]), Err(LegsError::Missing { missing }));
    }

    #[test]
    fn legs_that_each_went_on_alone_are_for_a_person() {
        let [a, b] = pair();
        let a = after(&a, 101, &[leg(1)], true);
        let b = after(&b, 102, &[leg(2)], true);
        let error = LegsError::SplitBrain { first: leg(1), second: leg(2) };
        assert_eq!(roles(&[a.clone(), b.clone()], &[]), Err(error));
        assert_eq!(roles(&[a, b], &[leg(2)]), Ok(vec![Role::InSync, Role::LeftOut]));
    }

    #[test]
    fn an_interrupted_change_leaves_both_and_an_older_copy_does_not() {
        let [a, b] = pair();
        let both = [leg(1), leg(2)];
        let begun = LegLabel { number: 2, ..after(&a, 101, &both, false) };
        assert_eq!(roles(&[begun, b.clone()], &[]), Ok(vec![Role::InSync; 2]));
        let in_force = after(&a, 101, &both, true);
        assert_eq!(roles(&[in_force, b.clone()], &[]), Ok(vec![Role::InSync, Role::Stale]));
        let later = LegLabel { number: 10, ..a };
        let behind = LegLabel { number: 7, ..b };
        assert_eq!(roles(&[later, behind], &[]), Ok(vec![Role::InSync, Role::Stale]));
    }

    /// Found by the fuzzer: a start with both was cut off when one had its label, and the next was
    /// without that one.
    #[test]
    fn a_change_that_one_leg_never_got_splits_nothing() {
        let [a, b] = pair();
        let begun = LegLabel { number: 2, ..after(&a, 101, &[leg(1), leg(2)], false) };
        let alone = after(&b, 102, &[leg(2)], true);
        assert_eq!(roles(&[begun, alone], &[]), Ok(vec![Role::Stale, Role::InSync]));
    }

    #[test]
    fn a_leg_that_was_being_filled_is_neither_believed_nor_missed() {
        let [a, b] = pair();
        let alone = after(&a, 101, &[leg(1)], true);
        let filling = LegLabel {
            state: LegState::Filling,
            membership: alone.membership.clone(),
            ..b.clone()
        };
        let stale = Ok(vec![Role::InSync, Role::Stale]);
        assert_eq!(roles(&[alone.clone(), filling.clone()], &[]), stale);
        assert_eq!(roles(std::slice::from_ref(&alone), &[]), Ok(vec![Role::InSync]));
        // It proves that an older copy of the other is stale.
        let error = LegsError::NoneInSync { missing: Vec::new() };
        assert_eq!(roles(&[a, filling.clone()], &[]), Err(error));
        // The change that takes it in has begun.
        let begun = after(&alone, 102, &[leg(1), leg(2)], false);
        assert_eq!(roles(&[begun, filling], &[]), stale);
    }

    #[test]
    fn disks_that_do_not_belong_together_are_named() {
        let [a, b] = pair();
        let other = LegLabel { cache: leg(8), ..b.clone() };
        let error = LegsError::OtherCache { place: 1, expected: CACHE, found: leg(8) };
        assert_eq!(roles(&[a.clone(), other], &[]), Err(error));
        assert_eq!(roles(&[a.clone(), a], &[]), Err(LegsError::Twice { leg: leg(1) }));
    }
}
