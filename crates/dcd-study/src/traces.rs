//! Many traces by one name: the files of a directory, of a list, or of a bucket.

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use dcd_sim::sweep::Load;

use crate::StudyError;
use crate::load::TraceInputArguments;

/// A list is no trace: it is not longer than that.
const LIST_BYTES_MAX: u64 = 64 << 20;

/// Where they are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TraceSet {
    /// A directory, or a file that lists them.
    Files(PathBuf),
    /// A name below which objects are traces.
    Store(String),
}

impl FromStr for TraceSet {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<TraceSet, Infallible> {
        Ok(match text.contains("://") {
            true => TraceSet::Store(text.to_owned()),
            false => TraceSet::Files(text.into()),
        })
    }
}

/// Buckets, as far as traces are looked for in them.
pub trait TraceStore {
    /// The names of all objects below this one, whole ones, sorted.
    ///
    /// # Errors
    /// In words, with a hint.
    fn list(&self, name: &str) -> Result<Vec<String>, (String, Option<String>)>;

    /// Brings an object that was listed into a new file.
    ///
    /// # Errors
    /// In words, with a hint.
    fn fetch(&self, object: &str, to: &Path) -> Result<(), (String, Option<String>)>;
}

/// Where objects are brought to, and by whom.
pub struct Fetching<'s> {
    /// Who knows buckets.
    pub store: &'s dyn TraceStore,
    /// The store makes it for the first.
    pub folder: PathBuf,
}

fn of_store((problem, hint): (String, Option<String>)) -> StudyError {
    StudyError::TraceStore { problem, hint }
}

impl Fetching<'_> {
    /// Brings those of the loads that are objects, and are not here yet.
    ///
    /// # Errors
    /// Of the first that cannot be brought.
    pub fn bring<'l>(&self, loads: impl Iterator<Item = &'l Load>) -> Result<(), StudyError> {
        for load in loads {
            let Load::Trace(trace) = load else { continue };
            if let Some(object) = trace.name.as_ref().filter(|_| !trace.path.exists()) {
                self.store.fetch(object, &trace.path).map_err(of_store)?;
            }
        }
        Ok(())
    }
}

/// All traces of all sets, in the order in which they are named and, in a directory or bucket, of
/// their names.
///
/// # Errors
/// If a set cannot be read, or names nothing.
pub fn loads(
    sets: &[TraceSet],
    input: &TraceInputArguments,
    fetching: Option<&Fetching<'_>>,
) -> Result<Vec<Load>, StudyError> {
    let mut loads = Vec::new();
    for set in sets {
        let before = loads.len();
        match set {
            TraceSet::Files(path) => {
                let paths = if path.is_dir() { in_directory(path)? } else { in_list(path)? };
                loads.extend(paths.iter().map(|path| Load::Trace(input.source(path))));
            }
            TraceSet::Store(name) => {
                let fetching =
                    fetching.ok_or_else(|| StudyError::NoTraceStore { name: name.clone() })?;
                for object in fetching.store.list(name).map_err(of_store)? {
                    let file = object.rsplit('/').next().unwrap_or_default();
                    let path = fetching.folder.join(format!("{}-{file}", loads.len()));
                    let mut source = input.source(path);
                    source.name = Some(object);
                    loads.push(Load::Trace(source));
                }
            }
        }
        if loads.len() == before {
            return Err(StudyError::NoTraces { set: set.to_string() });
        }
    }
    Ok(loads)
}

impl std::fmt::Display for TraceSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TraceSet::Files(path) => write!(f, "{}", path.display()),
            TraceSet::Store(name) => write!(f, "{name}"),
        }
    }
}

/// The files in a directory that are not hidden; not those of directories in it.
fn in_directory(path: &Path) -> Result<Vec<PathBuf>, StudyError> {
    let failed = |source| StudyError::TraceSet { path: path.to_owned(), source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if !is_hidden && entry.path().is_file() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// The lines of a file: paths, from its directory on. Empty ones and those with `#` are passed over.
fn in_list(path: &Path) -> Result<Vec<PathBuf>, StudyError> {
    let failed = |source| StudyError::TraceSet { path: path.to_owned(), source };
    let length = std::fs::metadata(path).map_err(failed)?.len();
    let no_list = |line, problem: &str| StudyError::NoTraceList {
        path: path.to_owned(),
        line,
        problem: problem.to_owned(),
    };
    if length > LIST_BYTES_MAX {
        return Err(no_list(1, "it is too long for one"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => no_list(1, "it is no text"),
        _ => failed(error),
    })?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let trace = folder.join(line);
        if !trace.exists() {
            return Err(no_list(number + 1, &format!("{} does not exist", trace.display())));
        }
        found.push(trace);
    }
    Ok(found)
}
