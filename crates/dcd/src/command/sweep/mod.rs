//! `dcd sweep`: one load, or several, simulated with every combination of settings. The
//! grid is `dcd_study`'s.
//!
//! ```text
//! arguments.rs   the flags
//! rows.rs        results as rows of a file that is gone on with
//! merge.rs       all shards together
//! ```

mod arguments;
mod merge;
mod rows;

use std::path::{Path, PathBuf};

use arguments::ResultFormat;
pub use arguments::SweepArguments;
use dcd_study::sweep::{Sweep, jobs_default};
use merge::merge;
use rows::RowFile;
use serde_json::json;

use super::object_traces::ObjectTraces;
use crate::error::CommandError;
use crate::error::lab::LabError;
use crate::new_file::{is_there, not_there};
use crate::output::count;
use crate::progress::ProgressWatcher;
use crate::stdout::{print, print_json};

pub fn run(arguments: &SweepArguments) -> Result<(), CommandError> {
    let grid = &arguments.grid;
    let objects = ObjectTraces::new();
    let fetching = objects.fetching();
    let sweep = Sweep::new(grid, grid.loads(fetching.as_ref())?, arguments.shard)?;
    if arguments.merge.is_empty() {
        if let Some(fetching) = &fetching {
            fetching.bring(sweep.loads())?;
        }
        sweep.check()?;
    }
    let labels = &sweep.labels;
    let out = &arguments.out;
    let row_path = match out.format {
        ResultFormat::Parquet => rows_beside(&out.path)?,
        _ => out.path.clone(),
    };
    let mut rows = RowFile::open(&row_path, out.format, labels)?;
    match arguments.merge.as_slice() {
        [] => simulate(arguments, &sweep, &mut rows)?,
        _ if rows.rows > 0 => {
            return Err(is_there(&row_path));
        }
        parts => merge(parts, &mut rows, labels).inspect_err(|_| {
            // There is no row in it.
            let _ = std::fs::remove_file(&row_path);
        })?,
    }
    let found = rows.read()?;
    if out.format == ResultFormat::Parquet {
        finish_parquet(&out.path, &found)?;
        drop(rows);
        std::fs::remove_file(&row_path).map_err(CommandError::file("remove", &row_path))?;
    }
    let errors = found.iter().filter_map(|row| row.get("error").filter(|it| !it.is_null()));
    let errors: Vec<String> =
        errors.map(|it| it.as_str().map_or_else(|| it.to_string(), str::to_owned)).collect();
    let nothing = match errors.first() {
        Some(first) if errors.len() == found.len() => {
            Err(CommandError::Lab(LabError::SweepFailed {
                rows: errors.len(),
                path: out.path.clone(),
                first: first.clone(),
            }))
        }
        _ => Ok(()),
    };
    if arguments.json {
        print_json(&json!({ "rows": found }))?;
        return nothing;
    }
    nothing?;
    let failed = match errors.len() {
        0 => String::new(),
        failed => format!("; {failed} not simulated: column `error` tells why"),
    };
    print(&format!("{} in {}{failed}\n", count(labels.len() as u64, "row"), out.path.display()))
}

/// Simulates what the file does not have yet.
fn simulate(
    arguments: &SweepArguments,
    sweep: &Sweep,
    rows: &mut RowFile,
) -> Result<(), CommandError> {
    let jobs = arguments.jobs.map_or_else(jobs_default, |jobs| jobs as usize);
    let mut written = Ok(());
    let ended = sweep.run(rows.rows, jobs, &mut ProgressWatcher::default(), |row, outcome| {
        written = rows.write(&sweep.labels[row], &outcome);
        written.is_ok()
    });
    written?;
    Ok(ended?)
}

/// Where rows wait until all are there: Parquet cannot be gone on with.
fn rows_beside(path: &Path) -> Result<PathBuf, CommandError> {
    if !cfg!(feature = "parquet") {
        return Err(CommandError::Lab(LabError::NoParquet { path: path.to_owned() }));
    }
    not_there(path)?;
    let mut name = path.as_os_str().to_owned();
    name.push(".part.csv");
    Ok(name.into())
}

#[cfg(not(feature = "parquet"))]
fn finish_parquet(
    path: &Path,
    _: &[serde_json::Map<String, serde_json::Value>],
) -> Result<(), CommandError> {
    Err(CommandError::Lab(LabError::NoParquet { path: path.to_owned() }))
}

#[cfg(feature = "parquet")]
fn finish_parquet(
    path: &Path,
    rows: &[serde_json::Map<String, serde_json::Value>],
) -> Result<(), CommandError> {
    use dcd_parquet::{Cell, Column, ColumnKind};
    use serde_json::Value;

    let names = || rows.iter().take(1).flat_map(|row| row.keys());
    let kind = |name: &str| match dcd_study::sweep::is_text(name) {
        true => ColumnKind::Text,
        false => ColumnKind::Number,
    };
    let columns: Vec<Column> =
        names().map(|name| Column { name: name.clone(), kind: kind(name) }).collect();
    let cell = |value: &Value| match value {
        Value::String(text) => Cell::Text(text.clone()),
        other => other.as_f64().map_or(Cell::Null, Cell::Number),
    };
    let cells: Vec<Vec<Cell>> = rows.iter().map(|row| row.values().map(cell).collect()).collect();
    let file = std::fs::File::create_new(path).map_err(CommandError::file("create", path))?;
    let written = dcd_parquet::write_table(std::io::BufWriter::new(file), &columns, &cells);
    let written = written
        .map_err(|error| error.to_string())
        .and_then(|out| out.into_inner().map(|_| ()).map_err(|error| error.to_string()));
    written.map_err(|problem| {
        // Half a table would look like a whole one.
        let _ = std::fs::remove_file(path);
        CommandError::Lab(LabError::WriteParquet { path: path.to_owned(), problem })
    })
}
