//! Whom a start believes: the labels of the legs that are given, and of the witness, and nothing
//! else, decide.
//!
//! *The newest membership* is the one that knows the tags of all that are given. Two legs of which
//! neither knows the other have each gone on alone: nobody can say which is right, and a person
//! must. A leg of the newest membership that is not given may hold what the others do not: without
//! it nothing starts unless a person says so, or the witness.
//!
//! A *witness* of the newest membership has every membership behind it, or all legs of that have it
//! that the witness could be believed with (`witness`). So with the witness one leg in sync is
//! enough; and without it all legs are.

use crate::error::FormatError;
use crate::format::leg_label::{LegLabel, LegState, Membership, PAST_TAGS, Tag};
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

/// What a start does with the witness that was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WitnessRole {
    /// Its word counts.
    Votes,
    /// It has missed what was decided, or is new: its word counts when it has a label again.
    Behind,
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
    /// Its label, with the marks of all legs in sync, and the membership that the next one follows.
    pub label: LegLabel,
    /// Legs of the newest membership that are not there, or are left out.
    pub missing: Vec<Uuid>,
    /// The witness, if one was given.
    pub witness: Option<WitnessRole>,
    /// That of the newest membership, if it was not given.
    pub witness_missing: Option<Uuid>,
    /// Legs that a start may believe on the word of the witness, as long as neither it nor all of
    /// them are told otherwise.
    pub witness_knows: Vec<Uuid>,
    /// The tags of legs, and of the witness, that were given and do not count.
    pub stale_tags: Vec<(Uuid, Tag)>,
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
    /// The witness is that of another cache.
    #[error("the witness is that of cache {found}, the legs belong to {expected}")]
    OtherWitness {
        /// The cache of the legs.
        expected: Uuid,
        /// Its own.
        found: Uuid,
    },
    /// A witness was given as a leg.
    #[error("leg {place} is none: it is the witness {witness}")]
    IsWitness {
        /// Which, in the order in which they were given.
        place: usize,
        /// Its name.
        witness: Uuid,
    },
    /// A leg was given as the witness.
    #[error("the witness is none: it is leg {leg}")]
    IsLeg {
        /// Its name.
        leg: Uuid,
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
    /// Neither has a tag of the other: one of them has changed so often since that nobody can say
    /// which is older, or whether they went apart.
    #[error(
        "legs {first} and {second} know nothing of each other: one of them is from before the last {PAST_TAGS} changes of the other, or they went apart that long ago"
    )]
    LegsUnknown {
        /// One of them.
        first: Uuid,
        /// The other.
        second: Uuid,
    },
    /// The same of the legs and the witness.
    #[error(
        "the witness {witness} and leg {leg} know nothing of each other: one of them is from before the last {PAST_TAGS} changes of the other, or they went apart that long ago"
    )]
    WitnessUnknown {
        /// The witness.
        witness: Uuid,
        /// The leg.
        leg: Uuid,
    },
    /// Legs that may hold what the others do not are not there.
    #[error("{} not given; without {} what was flushed may be missing{}", named(missing), if missing.len() == 1 { "it" } else { "them" }, without_witness(*witness))]
    Missing {
        /// Which.
        missing: Vec<Uuid>,
        /// The witness on whose word it could be done without them, and which is not there either,
        /// or is an older copy.
        witness: Option<Uuid>,
    },
    /// None of them is in sync.
    #[error("none of the legs holds all that is durable{}", who_may(missing, older))]
    NoneInSync {
        /// Legs that may, and are not given.
        missing: Vec<Uuid>,
        /// Legs that may, and of which older copies are given.
        older: Vec<Uuid>,
        /// The witness of the newest membership: these may have gone on with it.
        witness: Option<Uuid>,
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

fn who_may(missing: &[Uuid], older: &[Uuid]) -> String {
    let mut text = String::new();
    if !missing.is_empty() {
        text += &format!("; {} not given", named(missing));
    }
    if !older.is_empty() {
        let copy = if older.len() == 1 { "an older copy" } else { "older copies" };
        text += &format!("; {} given as {copy}", named(older));
    }
    text
}

fn without_witness(witness: Option<Uuid>) -> String {
    witness.map_or_else(String::new, |it| format!("; nor is the witness {it}, as it was left"))
}

/// Decides. `found`: the newest valid label of each leg that is given; `witness`: that of the
/// witness; `without`: legs, or a witness, that a person wants to do without.
///
/// # Errors
/// If they make no cache-disk.
pub fn choose(
    found: &[LegLabel],
    witness: Option<&LegLabel>,
    without: &[Uuid],
) -> Result<Choice, LegsError> {
    let first = found.first().ok_or_else(none_in_sync)?;
    check_kinds(found, witness, first.cache)?;
    let is_named = |leg: &Uuid| {
        let mut labels = found.iter().chain(witness);
        labels.any(|label| label.leg == *leg || label.membership.names(*leg))
    };
    if let Some(leg) = without.iter().find(|leg| !is_named(leg)) {
        return Err(LegsError::NoSuchLeg { leg: *leg });
    }
    let is_used = |label: &LegLabel| !without.contains(&label.leg);
    let newest = newest(found.iter().chain(witness).filter(|label| is_used(label)))?;
    let membership = &newest.membership;

    // 1. Who they are.
    let has_it = |label: &&LegLabel| is_used(label) && has_membership(label, newest);
    let last_number = found.iter().filter(has_it).map(|label| label.number).max().unwrap_or(0);
    let role = |label: &LegLabel| match () {
        () if !is_used(label) => Role::LeftOut,
        () if is_in_sync(label, newest, last_number) => Role::InSync,
        () => Role::Stale,
    };
    let roles: Vec<Role> = found.iter().map(role).collect();
    let witness_role = witness.map(|label| match () {
        () if !is_used(label) => WitnessRole::LeftOut,
        () if has_membership(label, newest) && membership.witness == Some(label.leg) => {
            WitnessRole::Votes
        }
        () => WitnessRole::Behind,
    });
    let has_all = |leg: &Uuid| found.iter().any(|label| label.leg == *leg && is_used(label));
    let missing: Vec<Uuid> =
        membership.members.iter().copied().filter(|leg| !has_all(leg)).collect();
    let in_sync = || found.iter().zip(&roles).filter(|(_, role)| **role == Role::InSync);

    // 2. Whether they may start. Of two that differ by a label, the one with the newer is best.
    let best = (0..found.len()).filter(|place| roles[*place] == Role::InSync);
    let Some(primary) = best.max_by_key(|place| found[*place].number) else {
        let older = membership.members.iter().copied().filter(has_all).collect();
        return Err(LegsError::NoneInSync { missing, older, witness: membership.witness });
    };
    let has_word = witness_role == Some(WitnessRole::Votes);
    let silent = membership.witness.filter(|_| !has_word);
    if !missing.is_empty() && !has_word {
        // Whoever does without a leg does without the witness, too: it may have gone on with that.
        let voters = missing.iter().copied().chain(silent);
        let not_accepted: Vec<Uuid> = voters.filter(|leg| !without.contains(leg)).collect();
        if !not_accepted.is_empty() {
            return Err(LegsError::Missing { missing: not_accepted, witness: silent });
        }
    }

    // 3. What is known of them.
    let mut marks: Vec<u32> =
        in_sync().flat_map(|(label, _)| label.marks.iter().copied()).collect();
    marks.sort_unstable();
    marks.dedup();
    let numbers = in_sync().map(|(label, _)| label.number);
    let number = number_before(numbers.clone().min(), numbers.max());
    let label = LegLabel {
        membership: in_force_before(newest),
        number,
        is_in_force: true,
        marks,
        ..found[primary].clone()
    };
    let witness_knows = match (missing.is_empty(), has_word) {
        // A person has said to do without whom it knows.
        (false, false) => Vec::new(),
        _ => known_to_witness(newest, found, &roles),
    };
    let missing =
        missing.into_iter().filter(|leg| !found.iter().any(|label| label.leg == *leg)).collect();
    let is_given = |leg: &Uuid| witness.is_some_and(|label| label.leg == *leg);
    let witness_missing = membership.witness.filter(|leg| !is_given(leg));
    let counted = [newest.membership.tag, label.membership.tag];
    let all = found.iter().chain(witness).map(|label| (label.leg, label.membership.tag));
    let stale_tags = all.filter(|(_, tag)| !counted.contains(tag)).collect();
    let witness = witness_role;
    Ok(Choice {
        roles,
        primary,
        label,
        missing,
        witness,
        witness_missing,
        witness_knows,
        stale_tags,
    })
}

/// There is none.
fn none_in_sync() -> LegsError {
    LegsError::NoneInSync { missing: Vec::new(), older: Vec::new(), witness: None }
}

/// Whether legs and witness are what they were given as, each once.
fn check_kinds(
    found: &[LegLabel],
    witness: Option<&LegLabel>,
    expected: Uuid,
) -> Result<(), LegsError> {
    for (place, label) in found.iter().enumerate() {
        if label.cache != expected {
            return Err(LegsError::OtherCache { place, expected, found: label.cache });
        }
        if label.state == LegState::Witness {
            return Err(LegsError::IsWitness { place, witness: label.leg });
        }
        if found[..place].iter().any(|other| other.leg == label.leg) {
            return Err(LegsError::Twice { leg: label.leg });
        }
    }
    match witness {
        Some(label) if label.cache != expected => {
            Err(LegsError::OtherWitness { expected, found: label.cache })
        }
        Some(label) if label.state != LegState::Witness => Err(LegsError::IsLeg { leg: label.leg }),
        _ => Ok(()),
    }
}

/// The label whose membership knows the tags of all others.
fn newest<'a>(
    labels: impl Iterator<Item = &'a LegLabel> + Clone,
) -> Result<&'a LegLabel, LegsError> {
    let age = |label: &&LegLabel| (label.state == LegState::Member, label.number);
    // One that follows all others is newer than one that only knows that a later one was never in
    // force.
    let follows_all = |label: &&LegLabel| {
        labels.clone().all(|other| label.membership.knows(other.membership.tag))
    };
    let knows_all = |label: &&LegLabel| labels.clone().all(|other| knows(label, other));
    let following = labels.clone().filter(follows_all).max_by_key(age);
    if let Some(newest) = following.or_else(|| labels.clone().filter(knows_all).max_by_key(age)) {
        return Ok(newest);
    }
    let mut pairs = labels.clone().flat_map(|a| labels.clone().map(move |b| (a, b)));
    let is_split = |(a, b): &(&LegLabel, &LegLabel)| !knows(a, b) && !knows(b, a);
    match pairs.find(is_split) {
        Some((first, second)) if !first.membership.is_related_to(&second.membership) => {
            Err(match second.state {
                LegState::Witness => {
                    LegsError::WitnessUnknown { witness: second.leg, leg: first.leg }
                }
                _ => LegsError::LegsUnknown { first: first.leg, second: second.leg },
            })
        }
        Some((first, second)) => {
            Err(LegsError::SplitBrain { first: first.leg, second: second.leg })
        }
        None => Err(none_in_sync()),
    }
}

/// Whether what a leg goes by follows what another goes by.
fn knows(label: &LegLabel, other: &LegLabel) -> bool {
    // The other was to have a membership with this leg, which never got it: so nobody was answered
    // under that, and the one before counts. What a witness has is in force behind its second label
    // only.
    let never_in_force = !other.is_in_force
        && (other.membership.members.contains(&label.leg) || other.state == LegState::Witness);
    label.membership.knows(other.membership.tag)
        || never_in_force && label.membership.knows(other.base())
}

/// Whether a label is of the newest membership, or of one that is as good.
fn has_membership(label: &LegLabel, newest: &LegLabel) -> bool {
    let membership = &newest.membership;
    let before: Option<&Tag> = membership.past.first();
    // A membership that not all of its legs have was never in force: nobody was answered under it,
    // and a leg with the one before is as good, or with another that followed that and was cut off.
    let tag = label.membership.tag;
    let was_interrupted =
        !newest.is_in_force && (Some(&tag) == before || label.base() == newest.base());
    tag == membership.tag || was_interrupted
}

/// Whether a leg holds all that was durable under the newest membership. `last_number`: of the
/// labels that have it.
fn is_in_sync(label: &LegLabel, newest: &LegLabel, last_number: u64) -> bool {
    // Legs take labels one by one, each before the next, so they are one apart at most; a copy that
    // was torn takes another one. A leg that is further behind is an older copy of itself.
    let is_as_new = last_number <= label.number + 2;
    label.state == LegState::Member
        && newest.membership.members.contains(&label.leg)
        && has_membership(label, newest)
        && is_as_new
}

/// The number behind which the next labels are written. One that does not have the last label of
/// the others may have it torn: they write that one again, into the same copy, so that nowhere the
/// only copy that is whole is written over. Where all have the same, the next may be torn anywhere,
/// and is written again.
fn number_before(least: Option<u64>, most: Option<u64>) -> u64 {
    match (least, most) {
        (Some(least), Some(most)) if most - least == 1 => least,
        (_, most) => most.unwrap_or(0),
    }
}

/// What the next membership follows: the last that was in force, and then one that was not, which a
/// leg that is not here may have taken for that.
fn in_force_before(newest: &LegLabel) -> Membership {
    let membership = newest.membership.clone();
    match (newest.is_in_force, membership.past.split_first()) {
        (false, Some((base, past))) => {
            let past = [membership.tag].into_iter().chain(past.iter().copied());
            Membership { tag: *base, past: past.take(PAST_TAGS).collect(), ..membership }
        }
        _ => membership,
    }
}

/// Legs that may be believed on the word of the witness.
fn known_to_witness(newest: &LegLabel, found: &[LegLabel], roles: &[Role]) -> Vec<Uuid> {
    let in_sync = || found.iter().zip(roles).filter(|(_, role)| **role == Role::InSync);
    // The change that would do without it may have been cut off, and be on no leg any more when the
    // power fails before they are flushed.
    let names_one = |label: &LegLabel| label.membership.witness.or(label.witness_before).is_some();
    let may_have_word = newest.membership.witness.is_some()
        || !newest.is_in_force && in_sync().any(|(label, _)| names_one(label));
    let is_stale = |leg: &Uuid| {
        found.iter().zip(roles).any(|(label, role)| label.leg == *leg && *role == Role::Stale)
    };
    let members = newest.membership.members.iter().copied().filter(|leg| !is_stale(leg));
    members.filter(|_| may_have_word).collect()
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
        let witness = label.membership.witness;
        LegLabel {
            membership: label.membership.next(Tag(tag), members.to_vec(), witness),
            number: label.number + 2,
            is_in_force,
            ..label.clone()
        }
    }

    fn roles(found: &[LegLabel], without: &[Uuid]) -> Result<Vec<Role>, LegsError> {
        choose(found, None, without).map(|choice| choice.roles)
    }

    fn missing(legs: &[u8], witness: Option<u8>) -> LegsError {
        let missing = legs.iter().map(|number| leg(*number)).collect();
        LegsError::Missing { missing, witness: witness.map(leg) }
    }

    #[test]
    fn both_legs_are_needed() {
        let [a, b] = pair();
        assert_eq!(roles(&[a.clone(), b.clone()], &[]), Ok(vec![Role::InSync; 2]));
        let alone = std::slice::from_ref(&a);
        assert_eq!(roles(alone, &[]), Err(missing(&[2], None)));
        let choice = choose(alone, None, &[leg(2)]).unwrap();
        assert_eq!((choice.roles, choice.missing), (vec![Role::InSync], vec![leg(2)]));
        let choice = choose(&[a.clone(), b.clone()], None, &[leg(2)]).unwrap();
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
        assert_eq!(roles(&[b], &[]), Err(missing(&[1], None)));
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
        let error =
            LegsError::NoneInSync { missing: Vec::new(), older: vec![leg(1)], witness: None };
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

    /// Two legs and their witness, the third.
    fn three() -> [LegLabel; 3] {
        let [a, b] = pair().map(|label| label.with_witness(leg(3)));
        let witness = a.of_witness();
        [a, b, witness]
    }

    /// What is done with the legs, and with the witness.
    fn judged(
        found: &[&LegLabel],
        witness: Option<&LegLabel>,
        without: &[u8],
    ) -> Result<(Vec<Role>, Option<WitnessRole>), LegsError> {
        let found: Vec<LegLabel> = found.iter().map(|label| (*label).clone()).collect();
        let without: Vec<Uuid> = without.iter().map(|number| leg(*number)).collect();
        choose(&found, witness, &without).map(|choice| (choice.roles, choice.witness))
    }

    /// The same after a change of the membership, the witness in it or not.
    fn change(label: &LegLabel, tag: u64, members: &[u8], has_witness: bool) -> LegLabel {
        let members: Vec<Uuid> = members.iter().map(|number| leg(*number)).collect();
        let mut next = after(label, tag, &members, true);
        next.membership.witness = Some(leg(3)).filter(|_| has_witness);
        next
    }

    /// The same, with its first label only.
    fn begun(label: LegLabel) -> LegLabel {
        LegLabel { is_in_force: false, number: label.number - 1, ..label }
    }

    const IN: Role = Role::InSync;
    const STALE: Role = Role::Stale;
    const VOTES: Option<WitnessRole> = Some(WitnessRole::Votes);
    const BEHIND: Option<WitnessRole> = Some(WitnessRole::Behind);

    #[test]
    fn with_the_witness_one_leg_is_enough_and_without_it_all_are() {
        let [a, b, w] = three();
        assert_eq!(judged(&[&a, &b], Some(&w), &[]), Ok((vec![IN, IN], VOTES)));
        assert_eq!(judged(&[&a, &b], None, &[]), Ok((vec![IN, IN], None)));
        assert_eq!(judged(&[&a], Some(&w), &[]), Ok((vec![IN], VOTES)));
        assert_eq!(judged(&[&b], Some(&w), &[]), Ok((vec![IN], VOTES)));
        let choice = choose(std::slice::from_ref(&a), Some(&w), &[]).unwrap();
        assert_eq!((choice.missing, choice.witness_missing), (vec![leg(2)], None));
        assert_eq!(choice.witness_knows, [leg(1), leg(2)], "until it has the next membership");
        // Without both a person says so of both: the witness may have gone on with the other.
        assert_eq!(judged(&[&a], None, &[]), Err(missing(&[2, 3], Some(3))));
        assert_eq!(judged(&[&a], None, &[2]), Err(missing(&[3], Some(3))));
        assert_eq!(judged(&[&a], None, &[2, 3]), Ok((vec![IN], None)));
        let left_out = Some(WitnessRole::LeftOut);
        assert_eq!(judged(&[&a, &b], Some(&w), &[3]), Ok((vec![IN, IN], left_out)));
        assert_eq!(judged(&[&a], Some(&w), &[3]), Err(missing(&[2], Some(3))));
        // By its word, or a person's, as anybody likes.
        let both = Ok((vec![IN, Role::LeftOut], VOTES));
        assert_eq!(judged(&[&a, &b], Some(&w), &[2]), both);
        // All legs, and no witness: they have to be told, all of them.
        let choice = choose(&[a, b], None, &[]).unwrap();
        assert_eq!(choice.witness_missing, Some(leg(3)));
        assert_eq!(choice.witness_knows, [leg(1), leg(2)]);
    }

    #[test]
    fn a_stale_leg_and_the_witness_are_refused() {
        let [a, b, w] = three();
        let [a, w] = [&a, &w].map(|label| change(label, 101, &[1], true));
        let none = |missing: &[u8]| LegsError::NoneInSync {
            missing: missing.iter().map(|number| leg(*number)).collect(),
            older: Vec::new(),
            witness: Some(leg(3)),
        };
        assert_eq!(judged(&[&b], Some(&w), &[]), Err(none(&[1])));
        assert_eq!(judged(&[&a], Some(&w), &[]), Ok((vec![IN], VOTES)));
        assert_eq!(judged(&[&a], None, &[]), Ok((vec![IN], None)));
        assert_eq!(judged(&[&a, &b], None, &[]), Ok((vec![IN, STALE], None)));
        // The change was cut off when only the witness had it: it says all the same.
        let cut_off = begun(w);
        assert_eq!(judged(&[&b], Some(&cut_off), &[]), Err(none(&[1])));
        let [a, ..] = three();
        assert_eq!(judged(&[&a, &b], Some(&cut_off), &[]), Ok((vec![IN, STALE], VOTES)));
        assert_eq!(judged(&[&a], Some(&cut_off), &[]), Ok((vec![IN], VOTES)));
        // Not given, it has said nothing that anybody was told of; and it is behind later.
        let choice = choose(&[a.clone(), b.clone()], None, &[]).unwrap();
        assert_eq!(choice.witness_knows, [leg(1), leg(2)]);
        let [a, b] = [&a, &b].map(|label| change(label, 102, &[1, 2], false));
        assert_eq!(judged(&[&a, &b], Some(&cut_off), &[]), Ok((vec![IN, IN], BEHIND)));
        assert!(judged(&[&a], Some(&cut_off), &[]).is_err());
        assert!(judged(&[&b], Some(&cut_off), &[]).is_err());
        let b = change(&b, 103, &[2], false);
        assert_eq!(judged(&[&b], Some(&cut_off), &[]), Ok((vec![IN], BEHIND)));
    }

    /// Found by the fuzzer. The only leg that could say how far the change came is an older copy:
    /// nothing starts by itself, and a person can go on with the other.
    #[test]
    fn an_older_copy_of_the_leg_that_the_witness_names_is_no_proof() {
        let [a, b, w] = three();
        let [a, w] = [&a, &w].map(|label| change(label, 101, &[1, 2], true));
        let cut_off = begun(change(&w, 102, &[2], true));
        let none =
            |missing, older| Err(LegsError::NoneInSync { missing, older, witness: Some(leg(3)) });
        assert_eq!(judged(&[&a, &b], Some(&cut_off), &[]), none(vec![], vec![leg(2)]));
        assert_eq!(judged(&[&a, &b], Some(&cut_off), &[2]), none(vec![leg(2)], vec![]));
        let left_out = Some(WitnessRole::LeftOut);
        let goes_on = Ok((vec![IN, Role::LeftOut], left_out));
        assert_eq!(judged(&[&a, &b], Some(&cut_off), &[2, 3]), goes_on);
        assert_eq!(judged(&[&a], Some(&cut_off), &[2, 3]), Ok((vec![IN], left_out)));
    }

    #[test]
    fn a_witness_that_was_dropped_has_no_word() {
        let [a, b, w] = three();
        let [without_a, without_b] = [&a, &b].map(|label| change(label, 101, &[1, 2], false));
        let pair = [&without_a, &without_b];
        assert_eq!(judged(&pair, Some(&w), &[]), Ok((vec![IN, IN], BEHIND)));
        assert_eq!(judged(&pair[..1], Some(&w), &[]), Err(missing(&[2], None)));
        assert_eq!(judged(&pair[1..], Some(&w), &[]), Err(missing(&[1], None)));
        let choice = choose(&[without_a.clone(), without_b.clone()], None, &[]).unwrap();
        assert_eq!((choice.witness_knows, choice.witness_missing), (vec![], None));
        // Cut off between the legs: the other may be believed on its word.
        let cut_off = begun(without_a.clone());
        assert_eq!(judged(&[&b], Some(&w), &[]), Ok((vec![IN], VOTES)));
        assert_eq!(judged(&[&cut_off], Some(&w), &[]), Err(missing(&[2], None)));
        let choice = choose(&[cut_off.clone(), b.clone()], None, &[]).unwrap();
        assert_eq!(choice.roles, [IN, IN]);
        assert_eq!(choice.witness_knows, [leg(1), leg(2)]);
        // It went on with that one: nobody was answered by the first alone.
        let [b, w] = [&b, &w].map(|label| change(label, 102, &[2], true));
        assert_eq!(judged(&[&cut_off, &b], Some(&w), &[]), Ok((vec![STALE, IN], VOTES)));
        assert!(judged(&[&cut_off], Some(&w), &[]).is_err());
    }

    #[test]
    fn a_witness_that_joins_has_a_word_when_it_has_the_label() {
        let [a, b] = pair();
        let [next_a, next_b] = [&a, &b].map(|label| change(label, 101, &[1, 2], true));
        let new = begun(next_a.of_witness());
        // First of all it gets that: each leg alone is as good as it.
        assert_eq!(judged(&[&a], Some(&new), &[]), Ok((vec![IN], VOTES)));
        assert_eq!(judged(&[&b], Some(&new), &[]), Ok((vec![IN], VOTES)));
        assert_eq!(
            judged(&[&begun(next_a.clone()), &b], Some(&new), &[]),
            Ok((vec![IN, IN], VOTES))
        );
        assert_eq!(judged(&[&a], None, &[]), Err(missing(&[2], None)));
        assert_eq!(judged(&[&next_a, &next_b], None, &[]), Ok((vec![IN, IN], None)));
    }

    /// Found by the fuzzer: a start took up a change at its first label, and wrote over the only copy
    /// that was whole, since the second was torn.
    #[test]
    fn no_start_writes_over_the_only_label() {
        let [a, b, w] = three();
        let next_number = |legs: &[&LegLabel], witness: Option<&LegLabel>| {
            let legs: Vec<LegLabel> = legs.iter().map(|leg| (*leg).clone()).collect();
            choose(&legs, witness, &[]).unwrap().label.number + 1
        };
        let [a, b, w] = [&a, &b, &w].map(|label| begun(change(label, 101, &[1, 2], true)));
        // Both have the first: the second goes to the other copy.
        assert_eq!(next_number(&[&a, &b], Some(&w)), a.number + 1);
        assert_eq!(next_number(&[&a], Some(&w)), a.number + 1);
        // One lacks it, and may have it torn.
        let [before, ..] = three();
        let behind = LegLabel { leg: b.leg, number: a.number - 1, ..before };
        assert_eq!(next_number(&[&a, &behind], Some(&w)), a.number);
        assert_eq!(next_number(&[&behind, &a], None), a.number);
        // The same of marks, and of the second label.
        let later = LegLabel { number: a.number + 1, is_in_force: true, ..a.clone() };
        assert_eq!(next_number(&[&later, &b], Some(&w)), later.number);
        assert_eq!(next_number(&[&later], Some(&w)), later.number + 1);
    }

    /// Found by the fuzzer: a change was cut off when the other leg alone took it for being in force.
    #[test]
    fn what_one_leg_took_for_being_in_force_is_known() {
        let [a, b, w] = three();
        let [a, b, w] = [&a, &b, &w].map(|label| change(label, 101, &[1, 2], true));
        let choice = choose(&[begun(a.clone())], Some(&begun(w.clone())), &[]).unwrap();
        let membership = choice.label.membership.next(Tag(102), vec![leg(1)], Some(leg(3)));
        let [a, w] = [a, w].map(|label| LegLabel { membership: membership.clone(), ..label });
        assert_eq!(judged(&[&a, &b], Some(&w), &[]), Ok((vec![IN, STALE], VOTES)));
        assert!(judged(&[&b], Some(&w), &[]).is_err());
    }

    /// With the witness away, a start is cut off again and again: no leg is lost for that.
    #[test]
    fn starts_that_are_cut_off_leave_both_legs() {
        let [mut a, b, w] = three();
        for tag in 101..120 {
            let choice = choose(&[a.clone(), b.clone()], None, &[]).unwrap();
            assert_eq!(choice.roles, [IN, IN]);
            assert_eq!(choice.witness_knows, [leg(1), leg(2)]);
            let LegLabel { membership, number, .. } = choice.label;
            let membership = membership.next(Tag(tag), vec![leg(1), leg(2)], None);
            a = LegLabel { membership, number: number + 1, is_in_force: false, ..a };
        }
        assert_eq!(judged(&[&a, &b], Some(&w), &[]), Ok((vec![IN, IN], BEHIND)));
        // And the other way round.
        let choice = choose(&[a.clone(), b.clone()], None, &[]).unwrap();
        let membership = choice.label.membership.next(Tag(130), vec![leg(1), leg(2)], None);
        let b = LegLabel { membership, number: choice.label.number + 1, is_in_force: false, ..b };
        assert_eq!(judged(&[&a, &b], None, &[]), Ok((vec![IN, IN], None)));
        assert_eq!(judged(&[&b, &a], None, &[]), Ok((vec![IN, IN], None)));
    }

    #[test]
    fn an_older_witness_and_one_of_others_are_judged() {
        let [a, b, w] = three();
        let [a, b] = [&a, &b].map(|label| change(label, 101, &[1, 2], true));
        // An older copy has no word, and is one again later.
        assert_eq!(judged(&[&a, &b], Some(&w), &[]), Ok((vec![IN, IN], BEHIND)));
        assert_eq!(judged(&[&a], Some(&w), &[]), Err(missing(&[2, 3], Some(3))));
        assert_eq!(judged(&[&a], Some(&w), &[2, 3]), Ok((vec![IN], Some(WitnessRole::LeftOut))));
        // It went on with the other, and this leg was started by force: nobody can say.
        let forced = change(&a, 102, &[1], false);
        let gone_on = change(&b, 103, &[2], true).of_witness();
        let split = LegsError::SplitBrain { first: leg(1), second: leg(3) };
        assert_eq!(judged(&[&forced], Some(&gone_on), &[]), Err(split));
        // Of very long ago, or they went apart then: nobody can say that, either. The legs start
        // without it.
        let later: Vec<LegLabel> = [&forced, &b]
            .map(|label| (200..300).fold(label.clone(), |it, tag| change(&it, tag, &[1, 2], false)))
            .to_vec();
        let unknown = LegsError::WitnessUnknown { witness: leg(3), leg: leg(1) };
        assert_eq!(judged(&[&later[0], &later[1]], Some(&w), &[]), Err(unknown));
        let left_out = Some(WitnessRole::LeftOut);
        assert_eq!(judged(&[&later[0], &later[1]], Some(&w), &[3]), Ok((vec![IN, IN], left_out)));
        assert_eq!(judged(&[&later[0], &later[1]], None, &[]), Ok((vec![IN, IN], None)));
        // Of another cache, and what is none.
        let other = LegLabel { cache: leg(8), ..w.clone() };
        let error = LegsError::OtherWitness { expected: CACHE, found: leg(8) };
        assert_eq!(judged(&[&a, &b], Some(&other), &[]), Err(error));
        let error = LegsError::IsWitness { place: 1, witness: leg(3) };
        assert_eq!(judged(&[&a, &w], None, &[]), Err(error));
        assert_eq!(judged(&[&a], Some(&b), &[]), Err(LegsError::IsLeg { leg: leg(2) }));
        // A leg that is being filled needs it as little as others do.
        let filling = LegLabel { state: LegState::Filling, ..b };
        let w = a.of_witness();
        assert!(judged(&[&filling], Some(&w), &[]).is_err());
        assert_eq!(judged(&[&a, &filling], Some(&w), &[]), Ok((vec![IN, STALE], VOTES)));
    }

    /// Found by the fuzzer: the label that would do without the witness was read behind a kill; one
    /// leg failed before it was flushed, had the label before behind a power cut, and was believed.
    #[test]
    fn the_witness_has_its_word_until_what_drops_it_is_flushed() {
        let [a, b, _] = three();
        let dropped = [&a, &b].map(|label| begun(change(label, 101, &[1, 2], false)));
        let [a, b] = dropped.map(|label| LegLabel { witness_before: Some(leg(3)), ..label });
        let knows = |a: &LegLabel, b: &LegLabel| {
            choose(&[a.clone(), b.clone()], None, &[]).unwrap().witness_knows
        };
        assert_eq!(knows(&a, &b), [leg(1), leg(2)]);
        let none = LegLabel { witness_before: None, ..a.clone() };
        assert_eq!(knows(&none, &b), [leg(1), leg(2)]);
        // Once one has the second, all have the first, durable.
        let second = LegLabel { is_in_force: true, number: a.number + 1, ..a };
        assert!(knows(&second, &b).is_empty());
    }

    /// Found by the fuzzer: a leg that was away for more than the tags of a label was called used
    /// apart.
    #[test]
    fn a_leg_of_long_ago_is_told_as_that_and_known_while_it_is_there() {
        let [a, b, w] = three();
        let gone_on = |keep: &[Tag]| {
            (200..300).fold(change(&a, 101, &[1], true), |it, tag| {
                let membership =
                    it.membership.next_keeping(Tag(tag), vec![leg(1)], Some(leg(3)), keep);
                LegLabel { membership, number: it.number + 2, ..it }
            })
        };
        let later = gone_on(&[]);
        let w_later = later.of_witness();
        let unknown = LegsError::LegsUnknown { first: leg(1), second: leg(2) };
        assert_eq!(judged(&[&later, &b], Some(&w_later), &[]), Err(unknown));
        assert_eq!(judged(&[&later, &b], None, &[2]), Ok((vec![IN, Role::LeftOut], None)));
        // It was given to the start before: whoever goes on keeps its tag.
        let near = change(&a, 101, &[1], true);
        let choice = choose(&[near.clone(), b.clone()], Some(&w), &[]).unwrap();
        assert_eq!(choice.roles, [IN, STALE]);
        let behind = [(leg(2), b.membership.tag), (leg(3), w.membership.tag)];
        assert_eq!(choice.stale_tags, behind);
        let later = gone_on(&[b.membership.tag]);
        assert_eq!(later.membership.past.len(), PAST_TAGS);
        let w_later = later.of_witness();
        assert_eq!(judged(&[&later, &b], Some(&w_later), &[]), Ok((vec![IN, STALE], VOTES)));
    }

    /// A leg that is an older copy of itself has nothing that others lack, with the witness or not.
    #[test]
    fn an_older_copy_of_a_leg_is_filled() {
        let [a, b, w] = three();
        let later = LegLabel { number: 10, ..a };
        assert_eq!(judged(&[&later, &b], Some(&w), &[]), Ok((vec![IN, STALE], VOTES)));
        assert_eq!(judged(&[&later, &b], None, &[]), Ok((vec![IN, STALE], None)));
    }
}
