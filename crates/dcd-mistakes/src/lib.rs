//! Mistakes made on purpose, to see whether the fuzzer finds them: a table of changes, and the tool
//! that applies it to a copy of the sources.
//!
//! The sources themselves know nothing of this. `cargo run --locked -p dcd-mistakes` writes the
//! copy to `target/seeded-src`; every mistake is in it, behind a condition that one thread turns on
//! at a time, so that one binary tries them all. `make fuzz-seeded` builds and runs that.
//!
//! # The table
//!
//! One text file for each area in `mistakes/`. An entry is one that somebody could make:
//!
//! ```text
//! == ack-before-mark
//! what A change is acknowledged before the open record is marked: `kill -9` loses it.
//! breaks C4
//! in log/mod.rs
//! - control::write_mark(&mut memory[..CONTROL_SIZE], self.open_marks, &mark);
//! + if !MISTAKE {
//! +     control::write_mark(&mut memory[..CONTROL_SIZE], self.open_marks, &mark);
//! + }
//! ```
//!
//! | line | meaning |
//! |---|---|
//! | `# ...` | a remark |
//! | `== name` | an entry begins |
//! | `what ...` | what is wrong, in a sentence |
//! | `breaks ...` | the rule of `docs/durability.md`, or the property; may be left out |
//! | `runs ...` | who looks for it: `pairs`, `volumes`, `tiered`, `focused`, `classes`, `stumbling`, `unlogged`, `rotting`, `few-sums`, `modes`, `ordered`, `store`, `driver` |
//! | `first N` | the run with which a search with seed 0 begins, where few runs find it |
//! | `untried ...` | why no run looks for it |
//! | `under DIR` | where the files of the entries below are, from the root of the workspace |
//! | `in FILE` | a change of this file follows; an entry may have several, also of one file |
//! | ` line` | a line that must be there, and stays |
//! | `- line` | a line that must be there, and goes |
//! | `+ line` | a line that comes |
//!
//! `runs` and `under` before the first entry hold for all of the file that do not say otherwise.
//!
//! The lines that must be there stand together in the file exactly once. Spaces around them and
//! empty lines between them do not count, so formatting anew breaks nothing but where lines are
//! broken. In the lines that come, `MISTAKE` is an expression of type `bool`: whether this mistake
//! is on. When it is false, everything must be as without the entry. Several entries may need the
//! same line, and put lines before and behind it; only one may take it away.
//!
//! # When an entry does not fit any more
//!
//! Somebody has changed the lines it needs. `cargo test --locked -p dcd-mistakes` names it; the
//! entry is to be written anew for the lines as they are, as the mistake one could make there now,
//! in the same commit. If nothing of the kind can be done wrong any more, it goes, with its row in
//! `docs/mistakes.md`. If a file was moved, `in` or `under` says where it is.

mod apply;
mod copy;
mod generate;
mod table;

use std::path::PathBuf;

pub use apply::{Edited, apply};
pub use copy::{Copied, copy};
pub use table::{Change, Entry, Line, RUNS, Table};

/// The root of the workspace that this was built in.
pub fn workspace() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Something is wrong with the table, or does not fit the sources.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// The file of the table.
    pub table: String,
    /// Its line, counted from 1.
    pub line: usize,
    /// The entry; empty outside of any.
    pub entry: String,
    /// What is wrong, and what to do.
    pub what: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Problem { table, line, entry, what } = self;
        match entry.as_str() {
            "" => write!(f, "{table}:{line}: {what}"),
            entry => write!(f, "{table}:{line}: {entry}: {what}"),
        }
    }
}
