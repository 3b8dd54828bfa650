//! The table: reading it, and what can be seen to be wrong in it without the sources.

use std::path::Path;

use crate::Problem;

/// The kinds of runs that may look for a mistake.
pub const RUNS: &[&str] = &[
    "pairs",
    "volumes",
    "tiered",
    "focused",
    "classes",
    "replicas",
    "stumbling",
    "unlogged",
    "rotting",
    "few-sums",
    "modes",
    "legs",
    "witness",
    "twin",
    "replacing",
    "returning",
    "sparing",
    "growing",
    "resizing",
    "resizing-read-area",
    "paged",
    "ordered",
    "nvram",
    "store",
    "driver",
];

/// What stands for the condition in lines that come.
pub const MISTAKE: &str = "MISTAKE";

/// All entries, in the order of the file names and of the entries in them.
#[derive(Clone, Default, Debug)]
pub struct Table {
    /// The entries.
    pub entries: Vec<Entry>,
}

/// A mistake.
#[derive(Clone, Default, Debug)]
pub struct Entry {
    /// The file of the table.
    pub table: String,
    /// Its line, counted from 1.
    pub line: usize,
    /// As the command line and the documents name it.
    pub name: String,
    /// What is wrong.
    pub what: String,
    /// The rule or the property that it breaks.
    pub breaks: String,
    /// The runs that look for it, of [`RUNS`].
    pub runs: Vec<String>,
    /// The run with which the search begins.
    pub first: Option<u64>,
    /// Why nobody looks for it.
    pub untried: Option<String>,
    /// What it changes.
    pub changes: Vec<Change>,
}

/// Lines of one file that become others.
#[derive(Clone, Default, Debug)]
pub struct Change {
    /// From the root of the workspace.
    pub file: String,
    /// The line of the table, counted from 1.
    pub line: usize,
    /// In the order of the file.
    pub lines: Vec<Line>,
}

/// A line of a [`Change`]; those that must be there without the spaces around them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Line {
    /// Must be there, and stays.
    Stays(String),
    /// Must be there, and goes.
    Goes(String),
    /// Comes.
    Comes(String),
}

impl Change {
    /// The lines that must be there.
    pub fn needed(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter_map(|line| match line {
            Line::Stays(line) | Line::Goes(line) => Some(line.as_str()),
            Line::Comes(_) => None,
        })
    }

    /// The lines that come.
    pub fn coming(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter_map(|line| match line {
            Line::Comes(line) => Some(line.as_str()),
            _ => None,
        })
    }
}

impl Table {
    /// Reads every `*.txt` of the folder.
    ///
    /// # Errors
    /// All problems that were found, or that a file cannot be read.
    pub fn read(folder: &Path) -> Result<Table, Vec<Problem>> {
        let unreadable = |path: &Path, error: std::io::Error| {
            let (table, entry) = (path.display().to_string(), String::new());
            vec![Problem { table, line: 0, entry, what: error.to_string() }]
        };
        let files = std::fs::read_dir(folder).map_err(|error| unreadable(folder, error))?;
        let mut paths = Vec::new();
        for file in files {
            paths.push(file.map_err(|error| unreadable(folder, error))?.path());
        }
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
        paths.sort();
        let (mut table, mut problems) = (Table::default(), Vec::new());
        for path in paths {
            let text = std::fs::read_to_string(&path).map_err(|error| unreadable(&path, error))?;
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            table.add(&name, &text, &mut problems);
        }
        match problems.is_empty() {
            true => Ok(table),
            false => Err(problems),
        }
    }

    /// Adds the entries of one file.
    pub fn add(&mut self, table: &str, text: &str, problems: &mut Vec<Problem>) {
        let first = self.entries.len();
        let mut defaults = Entry::default();
        let mut under = String::new();
        for (index, text) in text.lines().enumerate() {
            let line = index + 1;
            let is_default = self.entries.len() == first;
            let entry = match is_default {
                true => &mut defaults,
                false => self.entries.last_mut().expect("one has begun"),
            };
            let name = entry.name.clone();
            let mut wrong = |what: &str| {
                let (table, entry) = (table.to_owned(), name.clone());
                problems.push(Problem { table, line, entry, what: what.to_owned() });
            };
            let (mark, rest) = match text.split_once(' ') {
                Some((mark, rest)) => (mark, rest),
                None => (text, ""),
            };
            let rest_trimmed = rest.trim();
            match mark {
                "" | "-" | "+" if text.trim().is_empty() || is_default => {
                    if !text.trim().is_empty() {
                        wrong("a line of a change before any `in`");
                    }
                }
                "" | "-" | "+" => {
                    let Some(change) = entry.changes.last_mut() else {
                        wrong("a line of a change before any `in`");
                        continue;
                    };
                    match mark {
                        "+" => change.lines.push(Line::Comes(rest.trim_end().to_owned())),
                        _ if rest_trimmed.is_empty() => {}
                        "-" => change.lines.push(Line::Goes(rest_trimmed.to_owned())),
                        _ => change.lines.push(Line::Stays(rest_trimmed.to_owned())),
                    }
                }
                _ if mark.starts_with('#') => {}
                "==" => {
                    let name = rest_trimmed.to_owned();
                    let runs = defaults.runs.clone();
                    let table = table.to_owned();
                    self.entries.push(Entry { table, line, name, runs, ..Entry::default() });
                }
                "runs" => {
                    entry.runs = rest_trimmed.split_whitespace().map(str::to_owned).collect();
                }
                "under" => under = rest_trimmed.trim_end_matches('/').to_owned(),
                _ if is_default => wrong("only `runs` and `under` may stand before all entries"),
                "what" => entry.what = rest_trimmed.to_owned(),
                "breaks" => entry.breaks = rest_trimmed.to_owned(),
                "untried" => entry.untried = Some(rest_trimmed.to_owned()),
                "first" => match rest_trimmed.parse() {
                    Ok(run) => entry.first = Some(run),
                    Err(_) => wrong("`first` wants the number of a run"),
                },
                "in" => {
                    let file = format!("{under}/{rest_trimmed}");
                    entry.changes.push(Change { file, line, lines: Vec::new() });
                }
                _ => wrong(&format!("`{mark}` is no word of the table; src/lib.rs has them")),
            }
        }
        for index in first..self.entries.len() {
            self.check(index, problems);
        }
    }

    fn check(&self, index: usize, problems: &mut Vec<Problem>) {
        let entry = &self.entries[index];
        let mut wrong = |line, what: &str| problems.push(entry.problem(line, what.to_owned()));
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if entry.name.is_empty() || !entry.name.chars().all(is_plain) {
            wrong(entry.line, "a name has small letters, digits and hyphens");
        }
        if self.entries[..index].iter().any(|other| other.name == entry.name) {
            wrong(entry.line, "another entry has this name");
        }
        if entry.what.is_empty() {
            wrong(entry.line, "`what` is missing: what is wrong, in a sentence");
        }
        if entry.runs.is_empty() || !entry.runs.iter().all(|runs| RUNS.contains(&runs.as_str())) {
            wrong(entry.line, &format!("`runs` wants some of {}", RUNS.join(", ")));
        }
        let coming = entry.changes.iter().flat_map(Change::coming);
        if !coming.into_iter().any(|line| words(line).any(|word| word == MISTAKE)) {
            wrong(entry.line, "no line has MISTAKE: nothing would turn it on");
        }
        for change in &entry.changes {
            if change.needed().next().is_none() {
                wrong(change.line, "nothing says where in the file: no line that must be there");
            }
            if change.lines.iter().all(|line| matches!(line, Line::Stays(_))) {
                wrong(change.line, "it changes nothing");
            }
        }
    }
}

impl Entry {
    pub(crate) fn problem(&self, line: usize, what: String) -> Problem {
        let (table, entry) = (self.table.clone(), self.name.clone());
        Problem { table, line, entry, what }
    }
}

/// The words of a line of code.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// The line with the condition in the place of each [`MISTAKE`].
pub(crate) fn with_condition(line: &str, condition: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some(at) = rest.find(MISTAKE) {
        let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        let behind = &rest[at + MISTAKE.len()..];
        text += &rest[..at];
        text += match is_part(text.chars().next_back()) || is_part(behind.chars().next()) {
            true => MISTAKE,
            false => condition,
        };
        rest = behind;
    }
    text + rest
}
