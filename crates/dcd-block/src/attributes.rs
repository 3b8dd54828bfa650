//! What blocks are, as somebody above the device says it (DHIS section 3.2). Advice: a wrong
//! attribute may cost time, or protection that was not asked for, never correctness.

use std::fmt;
use std::str::FromStr;

/// A set of attributes of an extent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Attributes(u16);

impl Attributes {
    /// Nothing is known.
    pub const NONE: Attributes = Attributes(0);
    /// To be kept with the highest reliability (IMPORTANCE).
    pub const IMPORTANT: Attributes = Attributes(1);
    /// Accessed in random order (ACCESS_PATTERN).
    pub const RANDOM: Attributes = Attributes(1 << 1);
    /// Accessed in order (ACCESS_PATTERN).
    pub const SEQUENTIAL: Attributes = Attributes(1 << 2);
    /// Accessed often.
    pub const HOT: Attributes = Attributes(1 << 3);
    /// Accessed rarely.
    pub const COLD: Attributes = Attributes(1 << 4);
    /// Read far more often than written.
    pub const READ_MOST: Attributes = Attributes(1 << 5);
    /// Written far more often than read.
    pub const WRITE_MOST: Attributes = Attributes(1 << 6);
    /// Short-lived; need not survive a failed disk.
    pub const TEMPORARY: Attributes = Attributes(1 << 7);
    /// What a file system needs to find everything else. A block gets it with its first outgoing
    /// pointer.
    pub const METADATA: Attributes = Attributes(1 << 8);
    /// Where the collection of unreachable blocks begins.
    pub const ROOT: Attributes = Attributes(1 << 9);

    /// Each with its name, in the order in which they are shown.
    pub const NAMES: [(&'static str, Attributes); 10] = [
        ("important", Attributes::IMPORTANT),
        ("random", Attributes::RANDOM),
        ("sequential", Attributes::SEQUENTIAL),
        ("hot", Attributes::HOT),
        ("cold", Attributes::COLD),
        ("read-most", Attributes::READ_MOST),
        ("write-most", Attributes::WRITE_MOST),
        ("temporary", Attributes::TEMPORARY),
        ("metadata", Attributes::METADATA),
        ("root", Attributes::ROOT),
    ];
    /// Those of which at most one can be true.
    const CONTRADICTIONS: [Attributes; 4] = [
        Attributes::RANDOM.or(Attributes::SEQUENTIAL),
        Attributes::HOT.or(Attributes::COLD),
        Attributes::READ_MOST.or(Attributes::WRITE_MOST),
        Attributes::IMPORTANT.or(Attributes::TEMPORARY),
    ];
    /// What blocks have from the blocks that point to them: all but what says something of one
    /// block.
    pub const INHERITED: Attributes = Attributes(0xff);

    /// Those of either.
    pub const fn or(self, other: Attributes) -> Attributes {
        Attributes(self.0 | other.0)
    }

    /// Those of both.
    pub const fn and(self, other: Attributes) -> Attributes {
        Attributes(self.0 & other.0)
    }

    /// Those of `self` that `other` has not.
    pub const fn without(self, other: Attributes) -> Attributes {
        Attributes(self.0 & !other.0)
    }

    /// Whether all of `other` are there.
    pub const fn contains(self, other: Attributes) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Two that cannot be true of the same block, if there are such.
    pub fn contradiction(self) -> Option<Attributes> {
        Self::CONTRADICTIONS.into_iter().find(|pair| self.contains(*pair))
    }

    /// `self`, changed; what contradicts `set` goes.
    pub fn changed(self, change: AttributeChange) -> Attributes {
        let mut kept = self.without(change.clear);
        for pair in Self::CONTRADICTIONS {
            if !change.set.and(pair).is_empty() {
                kept = kept.without(pair);
            }
        }
        kept.or(change.set)
    }

    /// As a number, for the disk.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// From a number of the disk: `None` if a bit is set that means nothing, or two contradict each
    /// other.
    pub fn from_bits(bits: u16) -> Option<Attributes> {
        let attributes = Attributes(bits);
        (bits < 1 << Self::NAMES.len() && attributes.contradiction().is_none())
            .then_some(attributes)
    }

    /// The same for a rule, which may speak of both sides of a contradiction.
    pub fn of_rule(bits: u16) -> Option<Attributes> {
        (bits < 1 << Self::NAMES.len()).then_some(Attributes(bits))
    }

    /// The names of those that are there.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(_, one)| self.contains(*one)).map(|(name, _)| name)
    }
}

impl fmt::Display for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, name) in self.names().enumerate() {
            write!(f, "{}{name}", if i > 0 { "," } else { "" })?;
        }
        if self.is_empty() { f.write_str("none") } else { Ok(()) }
    }
}

impl fmt::Debug for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Words that are no attributes.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AttributeError {
    /// No attribute has this name.
    #[error("there is no attribute `{}`", found.escape_debug())]
    Unknown {
        /// The word.
        found: String,
    },
    /// They cannot both be true.
    #[error("{0} contradict each other")]
    Contradiction(Attributes),
}

impl FromStr for Attributes {
    type Err = AttributeError;

    /// Names with commas or spaces between them, in small letters or capitals; `none` for none.
    fn from_str(text: &str) -> Result<Attributes, AttributeError> {
        let mut attributes = Attributes::NONE;
        let is_one = |word: &&str| !word.is_empty() && !word.eq_ignore_ascii_case("none");
        for word in text.split([',', ' ']).filter(is_one) {
            let known = Self::NAMES.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
            let (_, one) = known.ok_or_else(|| AttributeError::Unknown { found: word.into() })?;
            attributes = attributes.or(one);
        }
        match attributes.contradiction() {
            Some(pair) => Err(AttributeError::Contradiction(pair)),
            None => Ok(attributes),
        }
    }
}

/// What is to become of attributes: those of `clear` go, those of `set` come, and with them goes
/// what contradicts them. All others stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AttributeChange {
    /// They come.
    pub set: Attributes,
    /// They go.
    pub clear: Attributes,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_back() {
        let attributes: Attributes = "important, random write-most".parse().unwrap();
        assert_eq!(attributes.to_string(), "important,random,write-most");
        assert_eq!(attributes.to_string().parse(), Ok(attributes));
        assert_eq!("none".parse(), Ok(Attributes::NONE));
        assert_eq!("Important,RANDOM None Write-Most".parse(), Ok(attributes));
        assert_eq!(Attributes::from_bits(attributes.bits()), Some(attributes));
    }

    #[test]
    fn refuses_what_cannot_be() {
        let unknown = AttributeError::Unknown { found: "warm".into() };
        assert_eq!("hot,warm".parse::<Attributes>(), Err(unknown));
        let pair = Attributes::HOT.or(Attributes::COLD);
        assert_eq!("hot,cold".parse::<Attributes>(), Err(AttributeError::Contradiction(pair)));
        assert_eq!(Attributes::from_bits(pair.bits()), None);
        assert_eq!(Attributes::from_bits(1 << 15), None);
    }

    #[test]
    fn the_newer_word_wins() {
        let hot = Attributes::HOT.or(Attributes::RANDOM);
        let change = AttributeChange { set: Attributes::COLD, clear: Attributes::NONE };
        assert_eq!(hot.changed(change), Attributes::COLD.or(Attributes::RANDOM));
    }
}
