//! The studies. Each takes settings as words of the command line, requests in memory if they are
//! what a named trace stands for, and whom to tell progress; results go to Python as JSON.

use dcd_sim::advise::page::page;
use dcd_sim::sweep::Load;
use dcd_study::StudyError;
use dcd_study::load::{self, feed, short_name};
use dcd_study::stack_distances::{Operations, StackDistances};
use dcd_study::sweep::{
    GridArguments, Labels, RESULTS, Sweep as Grid, jobs_default, results, value,
};
use pyo3::prelude::*;
use serde_json::{Map, Value};

use crate::columns::{Columns, GivenColumns, Requests};
use crate::errors::of_study;
use crate::load::of_memory;
use crate::settings::{Advise, Read, Simulate, Sweep, Threads, parse};
use crate::watch;

type Memory<'a, 'py> = Option<&'a Bound<'py, Requests>>;

impl Threads {
    fn count(&self) -> usize {
        self.jobs.map_or_else(jobs_default, |jobs| jobs as usize)
    }
}

/// Requests as columns; at most so many.
#[pyfunction]
#[pyo3(signature = (words, memory, limit, progress))]
pub fn read(
    py: Python<'_>,
    words: Vec<String>,
    memory: Option<Bound<'_, Requests>>,
    limit: Option<u64>,
    progress: Option<Py<PyAny>>,
) -> PyResult<GivenColumns> {
    let load = of_load(py, words, memory.as_ref())?;
    let limit = limit.unwrap_or(u64::MAX);
    watch::run(py, progress.as_ref(), |watcher| {
        let mut columns = Columns::default();
        feed(&load, limit, "reading", watcher, &mut |request| {
            columns.push(request);
            Ok(())
        })?;
        Ok(columns.given())
    })
}

/// One simulation, as `dcd simulate --json` tells it.
#[pyfunction]
#[pyo3(signature = (words, memory, then, progress))]
pub fn simulate(
    py: Python<'_>,
    words: Vec<String>,
    memory: Option<Bound<'_, Requests>>,
    then: Option<Bound<'_, Requests>>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let settings = parse::<Simulate>(py, words)?.settings;
    let device = settings.input.device;
    let (load, then_load) = settings.loads();
    let load = of_memory(memory.as_ref(), device).unwrap_or(load);
    let then_load = of_memory(then.as_ref(), device).or(then_load);
    watch::run(py, progress.as_ref(), |watcher| {
        let facts = settings.run(&load, then_load.as_ref(), watcher)?;
        Ok(settings.facts(&facts, &load).to_string())
    })
}

/// A grid of simulations: rows as `dcd sweep --json` tells them.
#[pyfunction]
#[pyo3(signature = (words, memory, progress))]
pub fn sweep(
    py: Python<'_>,
    words: Vec<String>,
    memory: Option<Bound<'_, Requests>>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let Sweep { grid, shard, threads } = parse(py, words)?;
    let loads = sweep_loads(py, &grid, memory.as_ref())?;
    watch::run(py, progress.as_ref(), |watcher| {
        let simulated = Grid::new(&grid, loads, shard)?;
        simulated.check()?;
        let mut rows: Vec<Value> = Vec::with_capacity(simulated.labels.len());
        simulated.run(0, threads.count(), watcher, |row, outcome| {
            let labels = simulated.labels[row].iter().map(|(name, text)| (*name, text.clone()));
            let named = labels.chain(RESULTS.into_iter().zip(results(&outcome)));
            let row: Map<String, Value> =
                named.map(|(name, text)| (name.to_owned(), value(name, &text))).collect();
            rows.push(row.into());
            true
        })?;
        Ok(Value::from(rows).to_string())
    })
}

/// What rows a grid has, without simulating them: the names of all columns, and of each row what
/// it begins with, its settings.
#[pyfunction]
#[pyo3(signature = (words, memory))]
pub fn grid(
    py: Python<'_>,
    words: Vec<String>,
    memory: Option<Bound<'_, Requests>>,
) -> PyResult<(Vec<String>, String)> {
    let Sweep { grid, shard, .. } = parse(py, words)?;
    let loads = sweep_loads(py, &grid, memory.as_ref())?;
    watch::run(py, None, |_| {
        let labels = Grid::new(&grid, loads, shard)?.labels;
        let settings = labels[0].iter().map(|(name, _)| *name);
        let names = settings.chain(RESULTS).map(str::to_owned).collect();
        let row = |labels: &Labels| -> Map<String, Value> {
            labels.iter().map(|(name, text)| ((*name).to_owned(), value(name, text))).collect()
        };
        let rows: Vec<Value> = labels.iter().map(|labels| row(labels).into()).collect();
        Ok((names, Value::from(rows).to_string()))
    })
}

fn sweep_loads(
    py: Python<'_>,
    grid: &GridArguments,
    memory: Memory<'_, '_>,
) -> PyResult<Vec<Load>> {
    match of_memory(memory, grid.input.device) {
        Some(load) => Ok(vec![load]),
        None => grid.loads(None).map_err(|problem| of_study(py, &problem)),
    }
}

/// What a log would do, as `dcd advise --json` tells it; and the page.
#[pyfunction]
#[pyo3(signature = (words, memory, progress))]
pub fn advise(
    py: Python<'_>,
    words: Vec<String>,
    memory: Option<Bound<'_, Requests>>,
    progress: Option<Py<PyAny>>,
) -> PyResult<(String, String)> {
    let Advise { load, settings, threads } = parse(py, words)?;
    let device = load.input.device;
    let load = of_memory(memory.as_ref(), device).unwrap_or_else(|| load.load());
    watch::run(py, progress.as_ref(), |watcher| {
        let grid = settings.grid()?;
        load::check(&load)?;
        let name = short_name(&load);
        let advice = settings.advise(grid, &load, name, threads.count(), watcher)?;
        Ok((serde_json::json!(advice).to_string(), page(&advice)))
    })
}

/// What a trace is like, as `dcd trace summary --json` tells it.
#[pyfunction]
#[pyo3(signature = (words, memory, burst_gap_ns, progress))]
pub fn summary(
    py: Python<'_>,
    words: Vec<String>,
    memory: Option<Bound<'_, Requests>>,
    burst_gap_ns: u64,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let load = of_load(py, words, memory.as_ref())?;
    watch::run(py, progress.as_ref(), |watcher| {
        let (summary, format) = dcd_study::summary::summary(&load, burst_gap_ns, watcher)?;
        Ok(dcd_study::summary::facts(&summary, format, &load::name(&load)).to_string())
    })
}

/// The share of lines that a least-recently-used memory finds, by its size: sizes, counts of lines
/// found up to each, and of all lines asked for; and the share of them that was followed.
#[pyfunction]
#[pyo3(signature = (words, memory, operations, line_bytes, progress))]
pub fn stack_distances(
    py: Python<'_>,
    words: Vec<String>,
    memory: Option<Bound<'_, Requests>>,
    operations: &str,
    line_bytes: u64,
    progress: Option<Py<PyAny>>,
) -> PyResult<(Vec<u64>, Vec<f64>, f64)> {
    let setting = |text: &str, hint| crate::errors::error(py, crate::errors::SETTING, text, hint);
    let operations: Operations = operations
        .parse()
        .map_err(|problem: String| setting(&format!("operations: {problem}"), None))?;
    let mut distances = StackDistances::new(operations, line_bytes)
        .map_err(|problem| setting(&format!("line: {problem}"), None))?;
    let load = of_load(py, words, memory.as_ref())?;
    watch::run(py, progress.as_ref(), |watcher| {
        feed(&load, u64::MAX, "reading", watcher, &mut |request| {
            distances.add(request);
            Ok(())
        })?;
        let curve = distances.curve();
        if curve.sizes_bytes.is_empty() && curve.lines == 0 {
            return Err::<_, StudyError>(load::empty(&load));
        }
        Ok((curve.sizes_bytes, curve.hit_ratios, curve.sampled))
    })
}

fn of_load(py: Python<'_>, words: Vec<String>, memory: Memory<'_, '_>) -> PyResult<Load> {
    let arguments: Read = parse(py, words)?;
    let memory = of_memory(memory, arguments.load.input.device);
    Ok(memory.unwrap_or_else(|| arguments.load.load()))
}

/// Panics, as nothing else here should: for the test that this is an exception.
#[pyfunction]
pub fn _panic(py: Python<'_>, text: String) -> PyResult<()> {
    watch::run(py, None, |_| -> Result<(), StudyError> { panic!("{text}") })
}
