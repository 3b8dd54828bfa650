//! Reading values of TOML files: the same parsers as for flags, and errors with their place.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::ValueEnum;
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

/// So much of a string that should be something else is shown.
const FOUND_CHARS_MAX: usize = 40;

/// The table of a whole file.
///
/// # Errors
/// Where and why it is none.
pub fn parse_table<'t>(
    path: &Path,
    text: &'t str,
) -> Result<Spanned<DeTable<'t>>, (Place, String)> {
    DeTable::parse(text).map_err(|error| syntax_error(path, text, &error))
}

/// Where and why a text is no TOML, in one line.
pub fn syntax_error(path: &Path, text: &str, error: &toml::de::Error) -> (Place, String) {
    let place = Place::new(path, text, error.span().unwrap_or(0..0));
    (place, error.message().lines().collect::<Vec<_>>().join("; "))
}

/// A string that is read by `T`.
///
/// # Errors
/// If it is no string, or as `T` says.
pub fn text<T: FromStr<Err: fmt::Display>>(value: &DeValue<'_>) -> Result<T, ValueProblem> {
    let text = value.as_str().ok_or_else(|| ValueProblem::expected("a string", value))?;
    text.parse().map_err(ValueProblem::unreadable)
}

/// A string or number that is read by a parser of the command line. Only strings have units, and
/// a bare number is whatever the parser makes of it.
///
/// # Errors
/// If it is neither, or as the parser says.
pub fn with<T, E: fmt::Display>(
    value: &DeValue<'_>,
    parser: impl Fn(&str) -> Result<T, E>,
) -> Result<T, ValueProblem> {
    let parsed = match value {
        DeValue::String(text) => parser(text),
        DeValue::Integer(number) => parser(decimal(number)?),
        _ => return Err(ValueProblem::expected("a string with a unit", value)),
    };
    parsed.map_err(ValueProblem::unreadable)
}

/// A decimal number that is read by `T`.
///
/// # Errors
/// If it is none, or as `T` says.
pub fn number<T: FromStr<Err: fmt::Display>>(value: &DeValue<'_>) -> Result<T, ValueProblem> {
    let number = value.as_integer().ok_or_else(|| ValueProblem::expected("a number", value))?;
    decimal(number)?.parse().map_err(ValueProblem::unreadable)
}

/// The digits of a number; TOML also knows 0x10 and the like, whose digits mean something else.
fn decimal<'a>(number: &'a DeInteger<'_>) -> Result<&'a str, ValueProblem> {
    let decimal = (number.radix() == 10).then(|| number.as_str());
    decimal.ok_or_else(|| {
        let found = "number of another base".into();
        ValueProblem::Type { expected: "a decimal number", found }
    })
}

/// True or false.
///
/// # Errors
/// If it is neither.
pub fn boolean(value: &DeValue<'_>) -> Result<bool, ValueProblem> {
    value.as_bool().ok_or_else(|| ValueProblem::expected("true or false", value))
}

/// A string that is one of the words of `T`.
///
/// # Errors
/// If it is none of them.
pub fn choice<T: ValueEnum>(value: &DeValue<'_>) -> Result<T, ValueProblem> {
    let text = value.as_str().ok_or_else(|| ValueProblem::expected("a string", value))?;
    T::from_str(text, false).map_err(|_| ValueProblem::Choice {
        found: text.to_owned(),
        choices: T::value_variants()
            .iter()
            .filter_map(|variant| Some(variant.to_possible_value()?.get_name().to_owned()))
            .collect::<Vec<_>>()
            .join(", "),
    })
}

/// One string, or a list of them, each read by `T`.
///
/// # Errors
/// If it is neither, or as `T` says.
pub fn list<T: FromStr<Err: fmt::Display>>(value: &DeValue<'_>) -> Result<Vec<T>, ValueProblem> {
    match value.as_array() {
        Some(values) => values.iter().map(|value| text(value.get_ref())).collect(),
        None if value.is_str() => Ok(vec![text(value)?]),
        None => Err(ValueProblem::expected("a list of strings", value)),
    }
}

/// The known key with the fewest letters to change, if that is not a far cry.
pub fn nearest(key: &str, keys: &[&'static str]) -> Option<&'static str> {
    // People write `cache_disk`, `CacheDisk` and `cache-disc`.
    let key = key.replace('_', "-").to_lowercase();
    let (distance, nearest) = keys
        .iter()
        .map(|known| (edit_distance(&key, known), *known))
        .min_by_key(|(distance, _)| *distance)?;
    // Of a short word hardly anything would be left.
    (distance <= nearest.len().min(key.len()) / 2).then_some(nearest)
}

/// Letters to insert, delete or replace to make one of the other (Levenshtein).
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, other) in b.iter().enumerate() {
            let replace = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// Where in which file.
#[derive(Clone, Debug)]
pub struct Place {
    path: PathBuf,
    line: usize,
    column: usize,
}

impl Place {
    /// Where `span` of a file's text begins.
    pub fn new(path: &Path, text: &str, span: Range<usize>) -> Place {
        let before = text.get(..span.start).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        Place { path: path.to_owned(), line, column }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.path.display(), self.line, self.column)
    }
}

/// What is wrong with a value.
#[derive(Debug, thiserror::Error)]
pub enum ValueProblem {
    /// Another type.
    #[error("expected {expected}, found {found}")]
    Type {
        /// What it should be.
        expected: &'static str,
        /// TOML's word for what it is, and a string itself.
        found: String,
    },
    /// None of the choices.
    #[error("`{}` is none of: {choices}", found.escape_debug())]
    Choice {
        /// What stands there.
        found: String,
        /// What could.
        choices: String,
    },
    /// The parser of the flag does not take it.
    #[error("{message}")]
    Unreadable {
        /// In its words.
        message: String,
    },
    /// A setting that a file may not have.
    #[error("this is only for the command line: a person must say it anew each time")]
    OnlyOnTheCommandLine,
}

impl ValueProblem {
    /// It is of another type.
    pub fn expected(expected: &'static str, value: &DeValue<'_>) -> ValueProblem {
        let found = match value.as_str() {
            Some(text) => {
                let beginning: String = text.chars().take(FOUND_CHARS_MAX).collect();
                format!("the string `{}`", beginning.escape_debug())
            }
            None => value.type_str().to_owned(),
        };
        ValueProblem::Type { expected, found }
    }

    /// A parser does not take it, and says why.
    pub fn unreadable(error: impl fmt::Display) -> ValueProblem {
        ValueProblem::Unreadable { message: error.to_string() }
    }
}

/// What is wrong with a file of tables: the configuration of a volume, rules for hints.
#[derive(Debug, thiserror::Error)]
pub enum TableFileError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not TOML.
    #[error("{place}: {message}")]
    Syntax {
        /// Where.
        place: Place,
        /// What the TOML parser says.
        message: String,
    },
    /// A key that does not exist.
    #[error("{place}: there is no key `{}` in {table}", key.escape_debug())]
    UnknownKey {
        /// Where.
        place: Place,
        /// The key.
        key: String,
        /// In which table.
        table: &'static str,
        /// What may have been meant.
        nearest: Option<&'static str>,
        /// What there is.
        keys: String,
    },
    /// A key without which nothing goes.
    #[error("{place}: `{key}` is missing in {table}")]
    Missing {
        /// Where the table begins.
        place: Place,
        /// The key.
        key: &'static str,
        /// In which table.
        table: &'static str,
    },
    /// A value that cannot be.
    #[error("{place}: {key}: {problem}")]
    Value {
        /// Where.
        place: Place,
        /// The key.
        key: &'static str,
        /// What is wrong.
        problem: ValueProblem,
    },
}

impl TableFileError {
    /// The next step, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            TableFileError::Read { .. } => Some("check the name".into()),
            TableFileError::UnknownKey { nearest: Some(nearest), .. } => {
                Some(format!("did you mean `{nearest}`?"))
            }
            TableFileError::UnknownKey { keys, .. } => Some(format!("the keys are: {keys}")),
            TableFileError::Value { problem: ValueProblem::Type { .. }, .. } => Some(
                "sizes and words stand in quotes: extent = \"64k\"; numbers and true or false do not"
                    .into(),
            ),
            TableFileError::Missing { key, .. } => Some(format!("add a line `{key} = ...`")),
            TableFileError::Syntax { .. } | TableFileError::Value { .. } => None,
        }
    }
}

/// Reads tables of one file.
#[derive(Clone, Copy)]
pub struct TableReader<'a> {
    /// Its name, for what is said of it.
    pub path: &'a Path,
    /// All of it.
    pub text: &'a str,
}

impl<'a> TableReader<'a> {
    /// The whole file.
    ///
    /// # Errors
    /// If it is no TOML.
    pub fn parse(
        path: &'a Path,
        text: &'a str,
    ) -> Result<(TableReader<'a>, Spanned<DeTable<'a>>), TableFileError> {
        let table = parse_table(path, text)
            .map_err(|(place, message)| TableFileError::Syntax { place, message })?;
        Ok((TableReader { path, text }, table))
    }

    /// Where `span` of it begins.
    pub fn place(&self, span: Range<usize>) -> Place {
        Place::new(self.path, self.text, span)
    }

    /// Gives each key with its value to `set`. Keys that are not in `keys` are refused.
    ///
    /// # Errors
    /// Of such a key, or as `set` says, with the place of the value.
    pub fn each(
        &self,
        table: &DeTable<'_>,
        name: &'static str,
        keys: &[&'static str],
        mut set: impl FnMut(&'static str, &DeValue<'_>) -> Result<(), TableProblem>,
    ) -> Result<(), TableFileError> {
        for (key, value) in table {
            let found: &str = key.get_ref();
            let Some(known) = keys.iter().find(|known| **known == found) else {
                return Err(TableFileError::UnknownKey {
                    place: self.place(key.span()),
                    key: found.to_owned(),
                    table: name,
                    nearest: nearest(found, keys),
                    keys: keys.join(", "),
                });
            };
            set(known, value.get_ref()).map_err(|problem| match problem {
                TableProblem::Value(problem) => {
                    TableFileError::Value { place: self.place(value.span()), key: known, problem }
                }
                TableProblem::Inner(error) => error,
            })?;
        }
        Ok(())
    }

    /// The tables of `[[name]]`, each with the place where it begins.
    ///
    /// # Errors
    /// If it is something else, or as `read` says.
    pub fn tables<T>(
        &self,
        value: &DeValue<'_>,
        read: impl Fn(Place, &DeTable<'_>) -> Result<T, TableFileError>,
    ) -> Result<Vec<T>, TableProblem> {
        let expected = || ValueProblem::expected("tables in double brackets, [[...]]", value);
        let tables = value.as_array().ok_or_else(expected)?;
        let mut all = Vec::new();
        for one in tables {
            let table = one.get_ref().as_table().ok_or_else(expected)?;
            all.push(read(self.place(one.span()), table).map_err(TableProblem::Inner)?);
        }
        Ok(all)
    }
}

/// A value that cannot be, or something within it, which has its own place.
pub enum TableProblem {
    /// The value.
    Value(ValueProblem),
    /// Something within it.
    Inner(TableFileError),
}

impl From<ValueProblem> for TableProblem {
    fn from(problem: ValueProblem) -> TableProblem {
        TableProblem::Value(problem)
    }
}

/// What is not true of a value, in words.
pub fn unfit(message: impl Into<String>) -> ValueProblem {
    ValueProblem::Unreadable { message: message.into() }
}
