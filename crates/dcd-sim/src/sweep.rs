//! Many simulations of the same load: the points of a grid, on several threads, told in the order
//! of the grid.
//!
//! Each point reads its load anew, so memory does not grow with it, and depends on nothing but
//! itself: the same grid gives the same rows, however many threads there are and wherever it was
//! interrupted.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::replay::{Pace, Replay, ReplayError, ReplayFacts};
use crate::sequence_runs::{self, SequenceMode};
use crate::target::setup::Setup;
use crate::trace::{Request, TraceError, TraceFormat, TraceReader, is_standard};
use crate::workload::WorkloadSpec;

/// Where the requests come from.
#[derive(Clone, Debug)]
pub struct TraceSource {
    /// The file.
    pub path: PathBuf,
    /// Its format, where its content does not tell it.
    pub format: Option<TraceFormat>,
    /// Only the requests for this disk.
    pub device: Option<u32>,
    /// What people call it, if that is not its path.
    pub name: Option<String>,
}

/// A trace, or one that is made up.
#[derive(Clone, Debug)]
pub enum Load {
    /// A recorded one.
    Trace(TraceSource),
    /// A made-up one.
    Workload(WorkloadSpec),
    /// One that is in memory already, in order of time; requests are numbered from 1.
    Memory(Arc<[Request]>),
}

/// One simulation.
#[derive(Clone, Debug)]
pub struct Point {
    /// Name and value of each parameter, for people.
    pub labels: Vec<(&'static str, String)>,
    /// What is simulated.
    pub setup: Setup,
    /// When requests come.
    pub pace: Pace,
    /// Whether, and how, the load is known before.
    pub sequences: Option<SequenceMode>,
    /// It is given up when it takes more memory than that; of points with sequences that is not
    /// looked at.
    pub memory_max: Option<u64>,
}

/// Requests after which memory is looked at.
const MEMORY_EVERY: u32 = 4096;

/// What came of a point: facts, or why there are none.
pub type Outcome = Result<ReplayFacts, String>;

impl TraceSource {
    /// Whether it can be read again and again, and is a trace: its first requests.
    ///
    /// # Errors
    /// If not.
    pub fn check(&self) -> Result<(), TraceError> {
        self.check_is_no_pipe()?;
        let empty = || TraceError::Empty { path: self.path.clone() };
        self.open()?.next().ok_or_else(empty)?.map(|_| ())
    }

    /// Threads that share a pipe would have a part of it each, or wait for who writes to it.
    fn check_is_no_pipe(&self) -> Result<(), TraceError> {
        let is_file =
            || std::fs::metadata(&self.path).map_or(true, |it| it.is_file() || it.is_dir());
        match is_standard(&self.path) || !is_file() {
            true => Err(TraceError::Pipe { path: self.path.clone() }),
            false => Ok(()),
        }
    }

    fn open(&self) -> Result<TraceReader, TraceError> {
        TraceReader::open(&self.path, self.format)
    }
}

impl Point {
    /// Simulates it.
    pub fn run(&self, load: &Load) -> Outcome {
        self.run_until(load, &AtomicBool::new(false))
    }

    /// The same, unless it is over before: there is nothing to tell then.
    fn run_until(&self, load: &Load, is_over: &AtomicBool) -> Outcome {
        let any = Cell::new(false);
        let feed = |take: &mut dyn FnMut(&Request) -> Result<(), ReplayError>| {
            load.for_each(is_over, &mut |request| {
                any.set(true);
                take(request)
            })
        };
        let facts = match self.sequences {
            Some(mode) => {
                sequence_runs::run(&self.setup, self.pace, mode, false, |_, take| feed(take))
                    .map_err(|error| error.to_string())?
            }
            None => {
                let target = self.setup.build().map_err(|error| error.to_string())?;
                let mut replay = Replay::new(target, self.pace);
                let mut left = MEMORY_EVERY;
                feed(&mut |request| {
                    left -= 1;
                    if left == 0 {
                        left = MEMORY_EVERY;
                        replay.check_memory(self.memory_max)?;
                    }
                    replay.add(request)
                })?;
                replay.check_memory(self.memory_max).map_err(|error| error.to_string())?;
                replay.finish()
            }
        };
        match any.get() {
            true => Ok(facts),
            false => Err("the trace has no requests for this disk".into()),
        }
    }
}

impl Load {
    fn for_each(
        &self,
        is_over: &AtomicBool,
        take: &mut dyn FnMut(&Request) -> Result<(), ReplayError>,
    ) -> Result<(), String> {
        let numbered = |problem: ReplayError, request: &Request| {
            format!("request {}: {}: {problem}", request.line, problem.field())
        };
        match self {
            Load::Trace(trace) => {
                // One among several that nobody has looked at would be waited for without an end.
                trace.check_is_no_pipe().map_err(|error| error.to_string())?;
                trace.for_each_until(is_over, take)
            }
            Load::Workload(workload) => {
                for request in workload.workload().map_err(|error| error.to_string())? {
                    go_on(is_over)?;
                    take(&request).map_err(|problem| numbered(problem, &request))?;
                }
                Ok(())
            }
            Load::Memory(requests) => requests.iter().try_for_each(|request| {
                go_on(is_over)?;
                take(request).map_err(|problem| numbered(problem, request))
            }),
        }
    }
}

/// Whether a simulation goes on.
fn go_on(is_over: &AtomicBool) -> Result<(), String> {
    match is_over.load(Ordering::Relaxed) {
        true => Err("the sweep is over".into()),
        false => Ok(()),
    }
}

impl TraceSource {
    /// Gives all requests for the disk to `take`.
    ///
    /// # Errors
    /// In words: of the trace, or of `take`, with the place.
    pub fn for_each(
        &self,
        take: &mut dyn FnMut(&Request) -> Result<(), ReplayError>,
    ) -> Result<(), String> {
        self.for_each_until(&AtomicBool::new(false), take)
    }

    fn for_each_until(
        &self,
        is_over: &AtomicBool,
        take: &mut dyn FnMut(&Request) -> Result<(), ReplayError>,
    ) -> Result<(), String> {
        let mut reader = self.open().map_err(|error| error.to_string())?;
        while let Some(request) = reader.next() {
            go_on(is_over)?;
            let request = request.map_err(|error| error.to_string())?;
            if self.device.is_some_and(|device| device != request.device) {
                continue;
            }
            take(&request).map_err(|problem| {
                reader.refused(&request, problem.field(), problem.to_string()).to_string()
            })?;
        }
        Ok(())
    }
}

/// Runs the points, each on its load, from the `first` on, on `jobs` threads; tells `done` of each,
/// in their order, with its index. Ends early, within the points that are being simulated, when
/// `done` says so, or somebody sets `is_over`.
pub fn run(
    points: &[(&Load, &Point)],
    first: usize,
    jobs: usize,
    is_over: &AtomicBool,
    done: impl FnMut(usize, Outcome) -> bool + Send,
) {
    let next = AtomicUsize::new(first);
    // Outcomes that wait for those before them.
    let shared = Mutex::new((first, BTreeMap::new(), done));
    let worker = || {
        while !is_over.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some((load, point)) = points.get(index) else { return };
            let outcome = point.run_until(load, is_over);
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            let mut shared = shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let (expected, waiting, done) = &mut *shared;
            waiting.insert(index, outcome);
            while let Some(outcome) = waiting.remove(expected) {
                if !done(*expected, outcome) {
                    is_over.store(true, Ordering::Relaxed);
                    return;
                }
                *expected += 1;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, points.len().max(1)) {
            scope.spawn(worker);
        }
    });
}
