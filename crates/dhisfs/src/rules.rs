//! Hints by name: `*.c` is important, `*.o` is temporary.
//!
//! ```toml
//! [[rule]]
//! match = ["*.c", "*.cpp", "Makefile"]
//! set = "important"
//!
//! [[rule]]
//! match = ["*.o", "*.a"]
//! set = "temporary"
//! ```

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use dcd_client::{AttributeChange, AttributeError, Attributes};
use serde::Deserialize;

/// Longest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Rules; the first that fits a name decides.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rules {
    rules: Vec<Rule>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Rule {
    patterns: Vec<String>,
    set: Attributes,
}

/// Why a file with rules cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// It is not what it should be.
    #[error("{}: {source}", path.display())]
    Toml {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        source: Box<toml::de::Error>,
    },
    /// Words that are no attributes.
    #[error("{}: rule {number}: {source}", path.display())]
    Attributes {
        /// The file.
        path: PathBuf,
        /// Which rule, from 1 on.
        number: usize,
        /// What is wrong.
        source: AttributeError,
    },
    /// Attributes that are not for files.
    #[error("{}: rule {number}: {found} cannot be set by a name", path.display())]
    NotForFiles {
        /// The file.
        path: PathBuf,
        /// Which rule, from 1 on.
        number: usize,
        /// What was to be set.
        found: Attributes,
    },
}

impl RulesError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            RulesError::File { .. } => "give an existing file with --rules".into(),
            RulesError::Toml { .. } => {
                "a rule is: [[rule]] match = [\"*.c\"] set = \"important\"".into()
            }
            RulesError::Attributes { .. } | RulesError::NotForFiles { .. } => {
                "important, random, sequential, hot, cold, read-most, write-most, temporary".into()
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    #[serde(default)]
    rule: Vec<RuleText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    r#match: Vec<String>,
    set: String,
}

impl Rules {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Rules, RulesError> {
        let failed = |source| RulesError::File { path: path.to_owned(), source };
        // What has no end, a device for example, is not read to it; a pipe is not waited for.
        let is_file = std::fs::metadata(path).map_err(failed)?.is_file();
        let text = match is_file {
            true => std::fs::File::open(path).map_err(failed)?,
            false => return Err(failed(io::Error::other("expected a file, found something else"))),
        };
        let mut bytes = Vec::new();
        text.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(failed(io::ErrorKind::FileTooLarge.into()));
        }
        let no_text = |_| failed(io::Error::other("the file is no text in UTF-8"));
        let text = String::from_utf8(bytes).map_err(no_text)?;
        Rules::parse(&text, path)
    }

    /// From the text of the file `path`, which is for messages.
    pub fn parse(text: &str, path: &Path) -> Result<Rules, RulesError> {
        let path = || path.to_owned();
        let file: FileText = toml::from_str(text)
            .map_err(|source| RulesError::Toml { path: path(), source: Box::new(source) })?;
        let rules = (1..).zip(file.rule).map(|(number, rule)| {
            let set: Attributes = rule.set.parse().map_err(|source| RulesError::Attributes {
                path: path(),
                number,
                source,
            })?;
            if !set.without(Attributes::INHERITED).is_empty() {
                return Err(RulesError::NotForFiles { path: path(), number, found: set });
            }
            Ok(Rule { patterns: rule.r#match, set })
        });
        Ok(Rules { rules: rules.collect::<Result<_, _>>()? })
    }

    /// What a file of this name is, that would be `otherwise` without a rule.
    pub(crate) fn apply(&self, name: &[u8], otherwise: Attributes) -> Option<Attributes> {
        let fits = |rule: &&Rule| rule.patterns.iter().any(|it| fits(it.as_bytes(), name));
        let rule = self.rules.iter().find(fits)?;
        Some(otherwise.changed(AttributeChange { set: rule.set, clear: Attributes::NONE }))
    }
}

/// Whether a name fits a pattern, in which `*` stands for anything and `?` for one byte.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    // Where to go on when what comes behind the last star does not fit.
    let mut again = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                again = Some((p, n));
                p += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[n] => (p, n) = (p + 1, n + 1),
            _ => match &mut again {
                Some((star, start)) => {
                    *start += 1;
                    (p, n) = (*star + 1, *start);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, name, expected) in [
            ("*.c", "a.c", true),
            ("*.c", "a.cpp", false),
            ("*.c", ".c", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b-", false),
            ("?.o", "x.o", true),
            ("?.o", "xy.o", false),
            ("Makefile", "Makefile", true),
            ("", "", true),
            ("**", "anything", true),
        ] {
            assert_eq!(fits(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn the_first_rule_decides_and_wins_over_the_directory() {
        let text = "[[rule]]\nmatch = [\"*.c\"]\nset = \"important,random\"\n\
                    [[rule]]\nmatch = [\"*\"]\nset = \"temporary\"\n";
        let rules = Rules::parse(text, "r".as_ref()).unwrap();
        let hot = Attributes::HOT.or(Attributes::TEMPORARY);
        let important = Attributes::IMPORTANT.or(Attributes::RANDOM);
        assert_eq!(rules.apply(b"a.c", hot), Some(important.or(Attributes::HOT)));
        assert_eq!(rules.apply(b"a.o", Attributes::NONE), Some(Attributes::TEMPORARY));
        assert_eq!(Rules::default().apply(b"a.c", hot), None);
    }

    #[test]
    fn mistakes_are_told() {
        let error = |text| Rules::parse(text, "r.toml".as_ref()).unwrap_err().to_string();
        assert!(error("[[rule]]\nmatch = [\"*\"]\nset = \"warm\"\n").contains("`warm`"));
        assert!(
            error("[[rule]]\nmatch = [\"*\"]\nset = \"root\"\n").contains("root cannot be set")
        );
        assert!(error("[[rule]]\nset = \"hot\"\n").contains("match"));
        assert!(error("[[rules]]\n").contains("rules"));
    }
}
