//! `dcd-mistakes [FOLDER]`: the copy of the sources with the mistakes in them, by default
//! `target/seeded-src`.

use std::path::PathBuf;
use std::process::ExitCode;

use dcd_mistakes::{Problem, Table, apply, copy, workspace};

fn main() -> ExitCode {
    let root = workspace();
    let target = std::env::args_os().nth(1).map(PathBuf::from);
    let target = target.unwrap_or_else(|| root.join("target/seeded-src"));
    let table = Table::read(&root.join("crates/dcd-mistakes/mistakes"));
    let applied = table.and_then(|table| Ok((apply(&root, &table)?, table)));
    let (edited, table) = match applied {
        Ok(applied) => applied,
        Err(problems) => return say(&problems),
    };
    match copy(&root, &edited, &table, &target) {
        Ok(copied) => {
            let (mistakes, written) = (table.entries.len(), copied.written);
            eprintln!("{mistakes} mistakes; {written} of {} files written", copied.files);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("dcd-mistakes: {}: {error}", target.display());
            ExitCode::FAILURE
        }
    }
}

fn say(problems: &[Problem]) -> ExitCode {
    for problem in problems {
        eprintln!("{problem}");
    }
    eprintln!("{} of the table do not fit: crates/dcd-mistakes/src/lib.rs", problems.len());
    ExitCode::FAILURE
}
