//! Puts the mistakes into files.

use std::collections::BTreeMap;
use std::path::Path;

use crate::table::{Change, Entry, Line, Table, with_condition};
use crate::{Problem, generate};

/// Files with the mistakes in them, by their paths from the root of the workspace.
pub type Edited = BTreeMap<String, String>;

/// The files that the table changes, as they are with it.
///
/// # Errors
/// Every change that does not fit: its lines are not in the file named, or more than once, or two
/// entries take the same line away.
pub fn apply(root: &Path, table: &Table) -> Result<Edited, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut files: BTreeMap<&str, Option<File>> = BTreeMap::new();
    for (number, entry) in table.entries.iter().enumerate() {
        for change in &entry.changes {
            let file = files.entry(&change.file).or_insert_with(|| File::read(root, &change.file));
            let result = match file {
                Some(file) => {
                    file.change(entry, change, &generate::condition(number, entry, change))
                }
                None => Err(missing(root, &change.file)),
            };
            if let Err(what) = result {
                problems.push(entry.problem(change.line, what));
            }
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let text = |(path, file): (&str, Option<File>)| Some((path.to_owned(), file?.text()));
    Ok(files.into_iter().filter_map(text).collect())
}

/// A file that is being changed.
struct File {
    lines: Vec<String>,
    /// The places of the lines that are not empty.
    solid: Vec<usize>,
    /// The entry that takes the line away.
    gone: BTreeMap<usize, String>,
    /// What comes before the line.
    before: BTreeMap<usize, Vec<String>>,
}

impl File {
    fn read(root: &Path, path: &str) -> Option<File> {
        let text = std::fs::read_to_string(root.join(path)).ok()?;
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let is_solid = |index: &usize| !lines[*index].trim().is_empty();
        let solid = (0..lines.len()).filter(is_solid).collect();
        Some(File { lines, solid, gone: BTreeMap::new(), before: BTreeMap::new() })
    }

    /// Line `index` of those that are not empty.
    fn solid(&self, index: usize) -> &str {
        self.lines[self.solid[index]].trim()
    }

    fn change(&mut self, entry: &Entry, change: &Change, condition: &str) -> Result<(), String> {
        let needed: Vec<&str> = change.needed().collect();
        let starts = (self.solid.len() + 1).saturating_sub(needed.len());
        let fits = |start: &usize| {
            needed.iter().enumerate().all(|(i, line)| self.solid(start + i) == *line)
        };
        let found: Vec<usize> = (0..starts).filter(fits).collect();
        let start = match found[..] {
            [start] => start,
            [] => return Err(self.not_found(&change.file, &needed, starts)),
            _ => {
                let places: Vec<String> =
                    found.iter().map(|start| (self.solid[*start] + 1).to_string()).collect();
                return Err(format!(
                    "its lines are {} times in {} (lines {}): add a line before or behind that is \
                     only at one of them",
                    found.len(),
                    change.file,
                    places.join(", ")
                ));
            }
        };
        let mut next = start;
        for line in &change.lines {
            match line {
                Line::Stays(_) => next += 1,
                Line::Goes(_) => {
                    let at = self.solid[next];
                    if let Some(other) = self.gone.insert(at, entry.name.clone()) {
                        return Err(format!(
                            "{other} takes line {} of {} away, too: one of them must do with lines \
                             that come",
                            at + 1,
                            change.file
                        ));
                    }
                    next += 1;
                }
                Line::Comes(line) => {
                    // Behind the line that was there last; before the first one, if none was.
                    let at = match next == start {
                        true => self.solid[start],
                        false => self.solid[next - 1] + 1,
                    };
                    self.before.entry(at).or_default().push(with_condition(line, condition));
                }
            }
        }
        Ok(())
    }

    /// Where most of the lines are, and the first that is not.
    fn not_found(&self, file: &str, needed: &[&str], starts: usize) -> String {
        let is_there = |start: usize, i: usize| self.solid(start + i) == needed[i];
        let count = |start: &usize| (0..needed.len()).filter(|i| is_there(*start, *i)).count();
        let nearest = (0..starts).rev().max_by_key(count).filter(|start| count(start) > 0);
        let detail = match nearest {
            None => format!("\n    wanted: {}", needed[0]),
            Some(start) => {
                let i = (0..needed.len()).find(|i| !is_there(start, *i)).expect("not found");
                let line = self.solid[start + i] + 1;
                let found = self.solid(start + i);
                format!("\n    wanted: {}\n    line {line}: {found}", needed[i])
            }
        };
        format!("its lines are not in {file}{detail}")
    }

    fn text(mut self) -> String {
        let mut text = String::new();
        for index in 0..=self.lines.len() {
            for line in self.before.remove(&index).unwrap_or_default() {
                text += &line;
                text.push('\n');
            }
            if index < self.lines.len() && !self.gone.contains_key(&index) {
                text += &self.lines[index];
                text.push('\n');
            }
        }
        text
    }
}

/// What to say of a file that is not there: it was moved, perhaps.
fn missing(root: &Path, file: &str) -> String {
    let name = Path::new(file).file_name().unwrap_or_default();
    let mut found = Vec::new();
    let mut folders = vec![root.join("crates")];
    while let Some(folder) = folders.pop() {
        for item in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = item.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name() == Some(name) {
                let path = path.strip_prefix(root).unwrap_or(&path);
                found.push(path.display().to_string());
            }
        }
    }
    found.sort();
    match found.is_empty() {
        true => format!("there is no {file}"),
        false => format!("there is no {file}; was it moved? There is {}", found.join(", ")),
    }
}
