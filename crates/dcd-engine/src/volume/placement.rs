//! Which tier an extent goes to, a RAID level on devices of a class: a table of rules, by default
//! that of the DHIS paper for the levels, and what the extent is for the class.

use super::attributes::Attributes;

/// A RAID level that sets can have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RaidLevel {
    /// Striped, without redundancy.
    Raid0,
    /// Mirrored.
    Raid1,
    /// Striped, one unit of each stripe is the parity of the others.
    Raid5,
}

impl RaidLevel {
    /// Its number, as in RAID 5.
    pub const fn number(self) -> u8 {
        match self {
            RaidLevel::Raid0 => 0,
            RaidLevel::Raid1 => 1,
            RaidLevel::Raid5 => 5,
        }
    }

    /// The level of that number.
    pub fn from_number(number: u8) -> Option<RaidLevel> {
        [RaidLevel::Raid0, RaidLevel::Raid1, RaidLevel::Raid5]
            .into_iter()
            .find(|level| level.number() == number)
    }

    /// Whether it survives the loss of a member.
    pub const fn is_redundant(self) -> bool {
        !matches!(self, RaidLevel::Raid0)
    }
}

/// How fast the devices of a set are, beside those of others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum DeviceClass {
    /// As a disk with an arm is; that of all sets, unless somebody says otherwise.
    #[default]
    Slow,
    /// As flash is.
    Fast,
}

impl DeviceClass {
    const ALL: [DeviceClass; 2] = [DeviceClass::Slow, DeviceClass::Fast];

    /// As in `class = "fast"`.
    pub const fn name(self) -> &'static str {
        match self {
            DeviceClass::Slow => "slow",
            DeviceClass::Fast => "fast",
        }
    }

    /// The class of that name.
    pub fn from_name(name: &str) -> Option<DeviceClass> {
        DeviceClass::ALL.into_iter().find(|class| class.name() == name)
    }

    pub(crate) const fn number(self) -> u8 {
        match self {
            DeviceClass::Slow => 0,
            DeviceClass::Fast => 1,
        }
    }

    pub(crate) fn from_number(number: u8) -> Option<DeviceClass> {
        DeviceClass::ALL.into_iter().find(|class| class.number() == number)
    }

    /// What an arm would be slowest at, or what is asked for most, is wanted on fast devices.
    fn wanted_by(attributes: Attributes) -> DeviceClass {
        let is_asked_for = attributes.contains(Attributes::METADATA)
            || attributes.contains(Attributes::HOT)
            || attributes.contains(Attributes::RANDOM);
        match is_asked_for && !attributes.contains(Attributes::COLD) {
            true => DeviceClass::Fast,
            false => DeviceClass::Slow,
        }
    }

    fn other(self) -> DeviceClass {
        match self {
            DeviceClass::Slow => DeviceClass::Fast,
            DeviceClass::Fast => DeviceClass::Slow,
        }
    }
}

/// What sets are alike in, as a place for extents.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Tier {
    /// Their level.
    pub level: RaidLevel,
    /// Their devices.
    pub class: DeviceClass,
}

/// A line of the table: extents that have all of `required` and none of `excluded` go to the first
/// of its tiers that has room ([`Placement::tiers`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlacementRule {
    /// All of these.
    pub required: Attributes,
    /// None of these.
    pub excluded: Attributes,
    /// The wanted level, then those to fall back to.
    pub levels: [RaidLevel; 3],
    /// The wanted class; none: by what an extent is ([`Placement::tiers`]).
    pub class: Option<DeviceClass>,
}

/// Tiers that there can be.
pub(crate) const TIERS: usize = 6;

/// Most rules in a table.
pub(crate) const PLACEMENT_RULES_MAX: usize = 32;

/// The table; the first rule that fits decides. The last rule fits everything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    rules: Vec<PlacementRule>,
}

/// A table that cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlacementError {
    /// There is no rule for some extents.
    #[error("the last placement rule must fit everything: neither `all` nor `none-of`")]
    NotComplete,
    /// Too many.
    #[error("{found} placement rules are too many, at most {PLACEMENT_RULES_MAX}")]
    TooMany {
        /// How many there are.
        found: usize,
    },
    /// A rule that names a level twice.
    #[error("a placement rule must name each of the RAID levels 0, 1 and 5 once")]
    Levels,
}

impl Placement {
    /// Takes rules, the first that fits decides.
    pub fn new(rules: Vec<PlacementRule>) -> Result<Placement, PlacementError> {
        if rules.len() > PLACEMENT_RULES_MAX {
            return Err(PlacementError::TooMany { found: rules.len() });
        }
        for rule in &rules {
            let mut levels = rule.levels;
            levels.sort();
            if levels != [RaidLevel::Raid0, RaidLevel::Raid1, RaidLevel::Raid5] {
                return Err(PlacementError::Levels);
            }
        }
        match rules.last() {
            Some(last) if last.required.is_empty() && last.excluded.is_empty() => {
                Ok(Placement { rules })
            }
            _ => Err(PlacementError::NotComplete),
        }
    }

    /// The rules, in order.
    pub fn rules(&self) -> &[PlacementRule] {
        &self.rules
    }

    /// Where an extent is wanted, most of all first: on devices of the class that its rule names,
    /// there on the levels in the order of the rule, then on those of the other class. Without a
    /// class in the rule metadata and what is hot or random, and not cold, is wanted on fast ones,
    /// all else on slow ones.
    ///
    /// Speed is no reason to give protection up: if the level that is wanted most bears the loss of
    /// a member, all tiers that do come before those that do not.
    pub fn tiers(&self, attributes: Attributes) -> [Tier; TIERS] {
        let fits = |rule: &&PlacementRule| {
            attributes.contains(rule.required) && attributes.and(rule.excluded).is_empty()
        };
        let rule = self.rules.iter().find(fits).expect("the last rule fits everything");
        let first = rule.class.unwrap_or(DeviceClass::wanted_by(attributes));
        let mut tiers = [first, first.other()]
            .map(|class| rule.levels.map(|level| Tier { level, class }))
            .concat();
        if rule.levels[0].is_redundant() {
            // Stable.
            tiers.sort_by_key(|tier| !tier.level.is_redundant());
        }
        tiers.try_into().expect("each level with each class")
    }
}

impl Default for Placement {
    /// Table 1 of the DHIS paper, with section 3.1.3 (metadata) before it.
    fn default() -> Placement {
        use RaidLevel::{Raid0, Raid1, Raid5};
        let rule =
            |required, excluded, levels| PlacementRule { required, excluded, levels, class: None };
        let none = Attributes::NONE;
        let important = Attributes::IMPORTANT;
        Placement {
            rules: vec![
                rule(Attributes::METADATA, none, [Raid1, Raid5, Raid0]),
                rule(important.or(Attributes::COLD), none, [Raid5, Raid1, Raid0]),
                rule(
                    important.or(Attributes::RANDOM),
                    Attributes::READ_MOST,
                    [Raid1, Raid5, Raid0],
                ),
                rule(important, none, [Raid5, Raid1, Raid0]),
                rule(none, none, [Raid0, Raid5, Raid1]),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::RaidLevel::{Raid0, Raid1, Raid5};
    use super::*;

    #[test]
    fn table_1_of_the_paper() {
        let placement = Placement::default();
        for (words, levels) in [
            ("none", [Raid0, Raid5, Raid1]),
            ("random,hot,write-most", [Raid0, Raid5, Raid1]),
            ("temporary", [Raid0, Raid5, Raid1]),
            ("important,cold,random", [Raid5, Raid1, Raid0]),
            ("important", [Raid5, Raid1, Raid0]),
            ("important,hot", [Raid5, Raid1, Raid0]),
            ("important,random", [Raid1, Raid5, Raid0]),
            ("important,random,write-most,hot", [Raid1, Raid5, Raid0]),
            ("important,random,read-most,hot", [Raid5, Raid1, Raid0]),
            ("important,sequential,write-most", [Raid5, Raid1, Raid0]),
            ("metadata", [Raid1, Raid5, Raid0]),
        ] {
            for class in DeviceClass::ALL {
                let tiers = placement.tiers(words.parse().unwrap());
                let found: Vec<RaidLevel> =
                    tiers.iter().filter(|it| it.class == class).map(|it| it.level).collect();
                assert_eq!(found, levels, "{words}");
            }
        }
    }

    #[test]
    fn what_is_asked_for_most_is_wanted_on_fast_devices_and_protected() {
        let order = |placement: &Placement, words: &str| -> String {
            let tiers = placement.tiers(words.parse().unwrap());
            let word = |tier: &Tier| format!("{} {}", tier.class.name(), tier.level.number());
            tiers.iter().map(word).collect::<Vec<_>>().join(", ")
        };
        let placement = Placement::default();
        for (words, expected) in [
            ("none", "slow 0, slow 5, slow 1, fast 0, fast 5, fast 1"),
            ("hot", "fast 0, fast 5, fast 1, slow 0, slow 5, slow 1"),
            ("cold,random", "slow 0, slow 5, slow 1, fast 0, fast 5, fast 1"),
            ("important", "slow 5, slow 1, fast 5, fast 1, slow 0, fast 0"),
            ("important,random", "fast 1, fast 5, slow 1, slow 5, fast 0, slow 0"),
            ("metadata", "fast 1, fast 5, slow 1, slow 5, fast 0, slow 0"),
        ] {
            assert_eq!(order(&placement, words), expected, "{words}");
        }
        // A rule may say something else.
        let rules = [Some(DeviceClass::Fast), Some(DeviceClass::Slow)].map(|class| PlacementRule {
            required: if class == Some(DeviceClass::Fast) {
                Attributes::COLD
            } else {
                Attributes::NONE
            },
            excluded: Attributes::NONE,
            levels: [Raid0, Raid1, Raid5],
            class,
        });
        let placement = Placement::new(rules.to_vec()).unwrap();
        assert!(order(&placement, "cold").starts_with("fast 0, fast 1, fast 5, slow 0"));
        assert!(order(&placement, "hot").starts_with("slow 0, slow 1, slow 5, fast 0"));
    }

    #[test]
    fn a_table_must_fit_everything() {
        let all = [Raid0, Raid1, Raid5];
        let rule = |required, levels| PlacementRule {
            required,
            excluded: Attributes::NONE,
            levels,
            class: None,
        };
        assert_eq!(Placement::new(vec![]), Err(PlacementError::NotComplete));
        assert_eq!(
            Placement::new(vec![rule(Attributes::HOT, all)]),
            Err(PlacementError::NotComplete)
        );
        assert_eq!(
            Placement::new(vec![rule(Attributes::NONE, [Raid0, Raid0, Raid5])]),
            Err(PlacementError::Levels)
        );
        assert!(
            Placement::new(vec![rule(Attributes::HOT, all), rule(Attributes::NONE, all)]).is_ok()
        );
    }
}
