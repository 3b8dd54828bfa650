//! Rules of `dcd hint watch`: what files are, by their names. TOML:
//!
//! ```toml
//! [[rule]]
//! match = ["*.c", "*.cpp", "*.h"]
//! set = "important"
//! [[rule]]
//! match = ["*.o", "build/**"]
//! set = "temporary"
//! ```
//!
//! A pattern without `/` is for the name of a file, one with `/` for its path below the watched
//! directory. The first rule that fits decides. Reached by the byte fuzzer.

use std::path::Path;

use dcd_engine::volume::attributes::Attributes;
use glob::{MatchOptions, Pattern};
use toml::de::DeTable;

use dcd_files::toml_values::{Place, TableFileError, TableReader, list, text, unfit};

/// Keys of the file.
pub const KEYS: [&str; 1] = ["rule"];
/// Keys of a `[[rule]]`.
pub const RULE_KEYS: [&str; 2] = ["match", "set"];
/// More patterns would be tried at each file that is closed.
const PATTERNS_MAX: usize = 1024;
const PATTERN_BYTES_MAX: usize = 256;

const OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// One `[[rule]]`.
#[derive(Debug)]
struct HintRule {
    patterns: Vec<Pattern>,
    attributes: Attributes,
}

/// All rules, in order.
#[derive(Debug, Default)]
pub struct HintRules {
    rules: Vec<HintRule>,
}

/// Reads a file.
pub fn read(path: &Path) -> Result<HintRules, TableFileError> {
    let text = dcd_files::small_file::read_text(path)
        .map_err(|source| TableFileError::Read { path: path.to_owned(), source })?;
    parse(path, &text)
}

/// The rules in `text`, which came from `path`.
pub fn parse(path: &Path, text: &str) -> Result<HintRules, TableFileError> {
    let (reader, table) = TableReader::parse(path, text)?;
    let mut rules = Vec::new();
    reader.each(table.get_ref(), "the file", &KEYS, |_, value| {
        rules = reader.tables(value, |place, table| rule(reader, place, table))?;
        Ok(())
    })?;
    Ok(HintRules { rules })
}

/// What may be said of the blocks of a file: pointers and their roots are for programs without a
/// file system.
pub fn parse_attributes(text: &str) -> Result<Attributes, String> {
    let attributes: Attributes =
        text.parse().map_err(|error: dcd_engine::volume::attributes::AttributeError| {
            let of_files = Attributes::NAMES.iter().filter(|(_, it)| *it != Attributes::ROOT);
            let names: Vec<&str> = of_files.map(|(name, _)| *name).collect();
            format!("{}; there are: none, {}", error, names.join(", "))
        })?;
    match attributes.contains(Attributes::ROOT) {
        true => Err("`root` is for programs that keep pointers, not for files".into()),
        false => Ok(attributes),
    }
}

fn rule(
    reader: TableReader<'_>,
    place: Place,
    table: &DeTable<'_>,
) -> Result<HintRule, TableFileError> {
    const NAME: &str = "this [[rule]]";
    let (mut patterns, mut attributes) = (None, None);
    reader.each(table, NAME, &RULE_KEYS, |key, value| {
        match key {
            "match" => {
                let words: Vec<String> = list(value)?;
                if words.is_empty() || words.len() > PATTERNS_MAX {
                    let found = words.len();
                    return Err(unfit(format!(
                        "expected 1 to {PATTERNS_MAX} patterns, found {found}"
                    ))
                    .into());
                }
                let parsed: Result<Vec<_>, _> = words.iter().map(|word| pattern(word)).collect();
                patterns = Some(parsed.map_err(unfit)?);
            }
            _ => {
                let words: String = text(value)?;
                attributes = Some(parse_attributes(&words).map_err(unfit)?);
            }
        }
        Ok(())
    })?;
    let missing = |key| TableFileError::Missing { place: place.clone(), key, table: NAME };
    Ok(HintRule {
        patterns: patterns.ok_or_else(|| missing("match"))?,
        attributes: attributes.ok_or_else(|| missing("set"))?,
    })
}

fn pattern(word: &str) -> Result<Pattern, String> {
    let shown = word.escape_debug();
    if word.is_empty() || word.len() > PATTERN_BYTES_MAX {
        return Err(format!("a pattern has 1 to {PATTERN_BYTES_MAX} bytes"));
    }
    if word.starts_with('/') {
        return Err(format!(
            "`{shown}`: a pattern is for paths below the watched directory, without / in front"
        ));
    }
    Pattern::new(word).map_err(|error| format!("`{shown}`: {} at {}", error.msg, error.pos))
}

impl HintRules {
    /// What the rules say of a file, by its path below the watched directory; `None`: nothing.
    pub fn attributes(&self, path: &Path) -> Option<Attributes> {
        let whole = path.to_string_lossy();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let fits = |pattern: &Pattern| {
            let subject = if pattern.as_str().contains('/') { &whole } else { &name };
            pattern.matches_with(subject, OPTIONS)
        };
        let rule = self.rules.iter().find(|rule| rule.patterns.iter().any(fits));
        rule.map(|rule| rule.attributes)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.rules.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> HintRules {
        parse(Path::new("r.toml"), text).unwrap()
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let rules = rules(
            "[[rule]]\nmatch = [\"*.c\", \"*.h\"]\nset = \"important\"\n\
             [[rule]]\nmatch = \"build/**\"\nset = \"temporary\"\n\
             [[rule]]\nmatch = \"*.o\"\nset = \"temporary,sequential\"\n",
        );
        let of = |path: &str| rules.attributes(Path::new(path)).map(|found| found.to_string());
        assert_eq!(of("src/main.c").as_deref(), Some("important"));
        assert_eq!(of("build/made.c").as_deref(), Some("important"), "an earlier rule");
        assert_eq!(of("build/a/b").as_deref(), Some("temporary"));
        assert_eq!(of("src/main.o").as_deref(), Some("sequential,temporary"));
        assert_eq!(of("src/main.cc"), None);
        assert_eq!(of("src/build/x"), None, "a path begins at the watched directory");
        assert_eq!(rules.count(), 3);
    }

    #[test]
    fn problems_name_place_and_key() {
        let check = |text: &str, wanted: &str| {
            let error = parse(Path::new("r.toml"), text).unwrap_err().to_string();
            assert!(error.contains(wanted) && !error.contains('\n'), "{error}");
        };
        check("[[rule]]\nmatch = \"*.c\"", "r.toml:1:1: `set` is missing in this [[rule]]");
        check("[[rule]]\nset = \"hot\"", "`match` is missing");
        check(
            "[[rule]]\nmatch = \"*.c\"\nset = \"warm\"",
            "r.toml:3:7: set: there is no attribute `warm`",
        );
        check("[[rule]]\nmatch = \"*.c\"\nset = \"root\"", "for programs that keep pointers");
        // What is named instead is taken.
        assert!(parse_attributes("warm").unwrap_err().ends_with(", temporary, metadata"));
        assert!(parse_attributes("Hot, TEMPORARY").is_ok());
        check("[[rule]]\nmatch = \"*.c\"\nset = \"hot,cold\"", "contradict");
        check("[[rule]]\nmatch = \"[a\"\nset = \"hot\"", "r.toml:2:9: match: `[a`: ");
        check("[[rule]]\nmatch = [\"/a\"]\nset = \"hot\"", "without / in front");
        check("[[rule]]\nmatch = []\nset = \"hot\"", "1 to 1024 patterns");
        check("[[rules]]\nmatch = []", "there is no key `rules`");
        check("rule = 3", "tables in double brackets");
    }
}
