//! What is wrong with legs, for people: the engine knows them by their places and names, a person by
//! the disks that were given. `tests/legs.rs` reads it.

use dcd_engine::Uuid;
use dcd_engine::legs::choose::LegsError;

/// A disk that was given as a leg, or as the witness.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GivenLeg {
    /// Its path.
    pub name: String,
    /// Which leg it is, if its label can be read.
    pub leg: Option<Uuid>,
}

/// What is wrong. Each leg that was given is named by its disk, too.
pub(crate) fn legs_in_words(disks: &[GivenLeg], error: &LegsError) -> String {
    let disk = |place: usize| disks.get(place).map_or("a disk", |disk| disk.name.as_str());
    match error {
        LegsError::Label { place, error } => {
            format!("{} has no label of a leg that can be read: {error}", disk(*place))
        }
        LegsError::OtherCache { place, expected, found } => {
            format!("{} belongs to cache {found}, {} to {expected}", disk(*place), disk(0))
        }
        LegsError::IsWitness { place, witness } => {
            format!("{} is no leg: it is the witness {witness}", disk(*place))
        }
        LegsError::Twice { leg } => {
            let both = disks.iter().filter(|disk| disk.leg == Some(*leg));
            let both: Vec<&str> = both.map(|disk| disk.name.as_str()).collect();
            format!("{} are both leg {leg}: one of them is a copy", both.join(" and "))
        }
        LegsError::IsLeg { leg } => match disks.iter().find(|disk| disk.leg == Some(*leg)) {
            Some(disk) => format!("{} is no witness: it is leg {leg}", disk.name),
            None => error.to_string(),
        },
        LegsError::OtherWitness { .. } => match disks.last() {
            Some(witness) => format!("{}: {error}", witness.name),
            None => error.to_string(),
        },
        _ => with_disks(error.to_string(), disks),
    }
}

/// Each leg with its disk.
fn with_disks(mut text: String, disks: &[GivenLeg]) -> String {
    for disk in disks {
        let Some(leg) = disk.leg else { continue };
        text = text.replace(&leg.to_string(), &format!("{leg} ({})", disk.name));
    }
    text
}

/// What to do about it.
pub(crate) fn legs_hint(disks: &[GivenLeg], error: &LegsError) -> String {
    let disk = |place: usize| disks.get(place).map_or("the disk", |disk| disk.name.as_str());
    match error {
        LegsError::Label { place, .. } => format!(
            "{} is no leg of this cache: leave it out, or make it one with --new-leg {}",
            disk(*place),
            disk(*place)
        ),
        LegsError::OtherCache { place, .. } => format!("leave {} out", disk(*place)),
        LegsError::OtherWitness { .. } | LegsError::IsLeg { .. } => {
            "give the --witness of this cache, or none: then all legs are needed".into()
        }
        LegsError::IsWitness { place, .. } => format!("give {} as the --witness", disk(*place)),
        LegsError::Twice { .. } => {
            "give the original only: a copy made with dd is no second leg".into()
        }
        LegsError::SplitBrain { first, second } | LegsError::LegsUnknown { first, second } => {
            format!(
                "only one of them can go on: find out which holds what is wanted (`dcd inspect leg` of each), then \
             --without-leg {second} goes on with {first}, and what only the other holds is lost"
            )
        }
        LegsError::WitnessUnknown { witness, .. } => format!(
            "if the legs are right, and the witness is an old copy of its file, or was away that long: --without-leg \
             {witness} starts with all legs, and `dcd cache-disk fill {witness}` makes it the witness again; if a leg \
             that is not here was used last, give that"
        ),
        LegsError::Missing { missing, .. } => format!(
            "give it as another --cache-disk, or the witness that is up to date as --witness; if it is gone: {}. If the cache was used since with it and without these, what \
             was flushed then is lost",
            missing.iter().map(|leg| format!("--without-leg {leg}")).collect::<Vec<_>>().join(" ")
        ),
        LegsError::NoneInSync { missing, older, witness } => {
            none_in_sync_hint(missing, older, *witness)
        }
        LegsError::NoSuchLeg { .. } => {
            "`dcd inspect leg --cache-disk DISK` names those that its label names".into()
        }
    }
}

/// None of the legs that are given holds all that is durable; these may.
fn none_in_sync_hint(missing: &[Uuid], older: &[Uuid], witness: Option<Uuid>) -> String {
    let wanted: Vec<Uuid> = missing.iter().chain(older).copied().collect();
    if wanted.is_empty() {
        return "find the leg that was used last".into();
    }
    let each = |before: &str, legs: &[Uuid], between: &str| {
        legs.iter().map(|leg| format!("{before} {leg}")).collect::<Vec<_>>().join(between)
    };
    let mut hint = match older {
        [] => format!("give {} as another --cache-disk", each("leg", missing, " and ")),
        _ => format!("give {} as it was used last, not a copy", each("leg", &wanted, " and ")),
    };
    // The witness was told first that the others go on alone; whether they did only they know.
    if let Some(witness) = witness {
        let without: Vec<Uuid> = wanted.into_iter().chain([witness]).collect();
        hint += &format!(
            "; if that is gone: {} goes on with the others, if they held all once, and what was flushed without them \
             is lost",
            each("--without-leg", &without, " ")
        );
    }
    hint
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_leg_is_named_by_its_disk() {
        let [first, second, witness] = [1, 2, 3].map(|byte| Uuid([byte; 16]));
        let given = |name: &str, leg| GivenLeg { name: name.into(), leg: Some(leg) };
        let disks = [given("/dev/a", first), given("/dev/b", second), given("w", witness)];
        let words = |error| legs_in_words(&disks, &error);
        let unknown = words(LegsError::WitnessUnknown { witness, leg: second });
        assert!(
            unknown.starts_with(&format!("the witness {witness} (w) and leg {second} (/dev/b)"))
        );
        let gone = Uuid([9; 16]);
        let stale = |missing: &[Uuid], older: &[Uuid], witness| {
            let [missing, older] = [missing, older].map(<[Uuid]>::to_vec);
            LegsError::NoneInSync { missing, older, witness }
        };
        let said = words(stale(&[gone], &[], None));
        assert!(said.ends_with(&format!("; leg {gone} is not given")), "{said}");
        let said = words(stale(&[], &[second], None));
        let older = format!("; leg {second} (/dev/b) is given as an older copy");
        assert!(said.ends_with(&older), "{said}");
        let hint = |error| legs_hint(&disks, &error);
        assert_eq!(hint(stale(&[], &[], None)), "find the leg that was used last");
        assert_eq!(
            hint(stale(&[gone], &[], None)),
            format!("give leg {gone} as another --cache-disk")
        );
        let last = hint(stale(&[], &[second], Some(witness)));
        assert!(last.starts_with(&format!("give leg {second} as it was used last")), "{last}");
        let without = format!("--without-leg {second} --without-leg {witness} goes on");
        assert!(last.contains(&without), "{last}");
        let split = words(LegsError::SplitBrain { first, second });
        assert!(split.contains("(/dev/a)") && split.contains("(/dev/b)"), "{split}");
        let other = words(LegsError::OtherCache { place: 1, expected: first, found: second });
        assert_eq!(other, format!("/dev/b belongs to cache {second}, /dev/a to {first}"));
        let other = words(LegsError::OtherWitness { expected: first, found: second });
        assert!(other.starts_with("w: the witness is that of cache"), "{other}");
    }
}
