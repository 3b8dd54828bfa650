//! `dcd sweep`: one load, or several, simulated with every combination of settings.
//!
//! ```text
//! arguments.rs   the flags
//! grid.rs        their combinations
//! rows.rs        results as rows of a file that is gone on with
//! merge.rs       all shards together
//! ```

mod arguments;
mod grid;
mod merge;
mod rows;

use std::path::{Path, PathBuf};

use arguments::ResultFormat;
pub use arguments::SweepArguments;
use dcd_sim::sweep::{self, Load, Point, TraceSource};
use merge::merge;
use rows::{Labels, RowFile};
use serde_json::json;

use crate::error::CommandError;
use crate::error::lab::LabError;
use crate::output::count;
use crate::progress::{Progress, Unit};
use crate::stdout::{print, print_json};

pub fn run(arguments: &SweepArguments) -> Result<(), CommandError> {
    let points = grid::points(arguments)?;
    let loads = loads(arguments)?;
    let out = &arguments.out;
    let row_path = match out.format {
        ResultFormat::Parquet => rows_beside(&out.path)?,
        _ => out.path.clone(),
    };
    let mine = arguments.shard.map(|shard| shard.rows(loads.len() * points.len()));
    let mut row = 0..;
    let mut is_mine = || {
        let row = row.next().expect("without end");
        mine.as_ref().is_none_or(|mine| mine.contains(&row))
    };
    let loads: Vec<Simulated> = loads
        .into_iter()
        .map(|(name, load)| {
            let points = points.iter().filter(|_| is_mine()).cloned().collect();
            Simulated { name, load, points }
        })
        .collect();
    let labels: Vec<Labels> =
        loads.iter().flat_map(|it| it.points.iter().map(|point| labels(&it.name, point))).collect();
    if labels.is_empty() {
        return Err(CommandError::Lab(LabError::EmptyShard));
    }
    let mut rows = RowFile::open(&row_path, out.format, &labels)?;
    match arguments.merge.as_slice() {
        [] => simulate(arguments, &loads, &labels, &mut rows)?,
        _ if rows.rows > 0 => {
            let source = std::io::ErrorKind::AlreadyExists.into();
            return Err(CommandError::file("create", &row_path)(source));
        }
        parts => merge(parts, &mut rows, &labels).inspect_err(|_| {
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

/// A load, and the points that are simulated with it.
struct Simulated {
    name: String,
    load: Load,
    points: Vec<Point>,
}

/// Simulates what the file does not have yet.
fn simulate(
    arguments: &SweepArguments,
    loads: &[Simulated],
    labels: &[Labels],
    rows: &mut RowFile,
) -> Result<(), CommandError> {
    let jobs = arguments.jobs.map_or_else(
        || std::thread::available_parallelism().map_or(1, |count| count.get()),
        |jobs| jobs as usize,
    );
    let mut progress = Progress::new("sweeping", Unit::Rounds);
    let mut written = Ok(());
    let mut next = 0;
    for Simulated { load, points, .. } in loads {
        let before = next;
        next += points.len();
        let first = rows.rows.saturating_sub(before);
        if first >= points.len() {
            continue;
        }
        sweep::run(load, points, first, jobs, |index, outcome| {
            written = rows.write(&labels[before + index], &outcome);
            progress.update(rows.rows as u64, labels.len() as u64);
            written.is_ok()
        });
        written?;
        written = Ok(());
    }
    progress.finish();
    Ok(())
}

/// What is simulated, by name.
fn loads(arguments: &SweepArguments) -> Result<Vec<(String, Load)>, CommandError> {
    let Some(path) = &arguments.trace else {
        let load = |workload: &dcd_sim::workload::WorkloadSpec| {
            (workload.to_string(), Load::Workload(workload.clone()))
        };
        return Ok(arguments.workload.iter().map(load).collect());
    };
    let trace = TraceSource {
        path: path.clone(),
        format: arguments.input.format,
        device: arguments.input.device,
    };
    trace.check()?;
    Ok(vec![(path.display().to_string(), Load::Trace(trace))])
}

/// Parameters of a row.
fn labels(load: &str, point: &Point) -> Labels {
    [("load", load.to_owned())].into_iter().chain(point.labels.iter().cloned()).collect()
}

/// Where rows wait until all are there: Parquet cannot be gone on with.
fn rows_beside(path: &Path) -> Result<PathBuf, CommandError> {
    if !cfg!(feature = "parquet") {
        return Err(CommandError::Lab(LabError::NoParquet { path: path.to_owned() }));
    }
    if path.exists() {
        let source = std::io::ErrorKind::AlreadyExists.into();
        return Err(CommandError::file("create", path)(source));
    }
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
    let kind = |name: &str| match rows::is_text(name) {
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
