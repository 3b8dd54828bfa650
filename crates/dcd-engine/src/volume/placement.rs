//! Which RAID level an extent goes to: a table of rules, by default that of the DHIS paper.

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

/// A line of the table: extents that have all of `required` and none of `excluded` go to the first
/// of `levels` that has room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlacementRule {
    /// All of these.
    pub required: Attributes,
    /// None of these.
    pub excluded: Attributes,
    /// The wanted level, then those to fall back to.
    pub levels: [RaidLevel; 3],
}

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

    /// Where an extent is wanted, most of all first.
    pub fn levels(&self, attributes: Attributes) -> [RaidLevel; 3] {
        self.rules
            .iter()
            .find(|rule| {
                attributes.contains(rule.required) && attributes.and(rule.excluded).is_empty()
            })
            .expect("the last rule fits everything")
            .levels
    }
}

impl Default for Placement {
    /// Table 1 of the DHIS paper, with section 3.1.3 (metadata) before it.
    fn default() -> Placement {
        use RaidLevel::{Raid0, Raid1, Raid5};
        let rule = |required, excluded, levels| PlacementRule { required, excluded, levels };
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
            assert_eq!(placement.levels(words.parse().unwrap()), levels, "{words}");
        }
    }

    #[test]
    fn a_table_must_fit_everything() {
        let all = [Raid0, Raid1, Raid5];
        let rule =
            |required, levels| PlacementRule { required, excluded: Attributes::NONE, levels };
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
