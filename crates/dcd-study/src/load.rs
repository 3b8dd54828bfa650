//! Where the requests of a study come from.

use std::path::PathBuf;

use clap::Args;
use dcd_protocol::units_text::{parse_duration, parse_size};
use dcd_sim::replay::ReplayError;
use dcd_sim::sweep::{Load, TraceSource};
use dcd_sim::trace::{Request, TraceError, TraceFormat, TraceReader};
use dcd_sim::workload::{UnitParsers, WorkloadError, WorkloadSpec};

use crate::StudyError;
use crate::watch::{Counted, Watcher, go_on};

/// So many requests are between two looks at how far it is.
const UPDATE_REQUESTS: u64 = 1 << 14;

/// How a trace is read.
#[derive(Args, Debug)]
pub struct TraceInputArguments {
    /// The format of the trace, where its content does not tell it: csv, blkparse, blktrace,
    /// tracefs, fio, spc, msr, alibaba, tencent, srt, srt-256, parquet, systor, fiu, disksim,
    /// biosnoop, fio-lat, vscsi, oracle-general.
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<TraceFormat>,
    /// Only requests for this disk: its number, as `dcd trace summary` lists it, or MAJOR,MINOR.
    #[arg(long, value_name = "NUMBER", value_parser = parse_trace_device)]
    pub device: Option<u32>,
}

impl TraceInputArguments {
    /// A trace that is read so.
    pub fn source(&self, path: impl Into<PathBuf>) -> TraceSource {
        TraceSource { path: path.into(), format: self.format, device: self.device, name: None }
    }
}

/// A disk of a trace; Linux's are major << 20 | minor.
fn parse_trace_device(text: &str) -> Result<u32, &'static str> {
    let expected = "expected a number below 2^32, or MAJOR,MINOR like 8,16";
    match text.split_once(',') {
        None => text.parse().map_err(|_| expected),
        Some((major, minor)) => match (major.parse::<u32>(), minor.parse::<u32>()) {
            (Ok(major), Ok(minor)) if major < 1 << 12 && minor < 1 << 20 => Ok(major << 20 | minor),
            _ => Err(expected),
        },
    }
}

/// `NAME[,KEY=VALUE...]`, as on the command line.
///
/// # Errors
/// If there is no such workload.
pub fn parse_workload(text: &str) -> Result<WorkloadSpec, WorkloadError> {
    let units = UnitParsers {
        size: |text| parse_size(text).ok(),
        time: |text| u64::try_from(parse_duration(text).ok()?.as_nanos()).ok(),
    };
    WorkloadSpec::parse(text, units)
}

/// What people call a load: a path, or a workload.
pub fn name(load: &Load) -> String {
    match load {
        Load::Trace(TraceSource { name: Some(name), .. }) => name.clone(),
        Load::Trace(trace) => trace.path.display().to_string(),
        Load::Workload(workload) => workload.to_string(),
        Load::Memory(_) => "in memory".into(),
    }
}

/// The same without the folder of a file.
pub fn short_name(load: &Load) -> String {
    match load {
        Load::Trace(TraceSource { name: Some(name), .. }) => {
            name.rsplit('/').next().unwrap_or_default().to_owned()
        }
        Load::Trace(trace) => {
            let name = trace.path.file_name().unwrap_or(trace.path.as_os_str());
            name.to_string_lossy().into_owned()
        }
        other => name(other),
    }
}

/// Whether a load can be read again and again, and has requests.
///
/// # Errors
/// If not.
pub fn check(load: &Load) -> Result<(), StudyError> {
    match load {
        Load::Trace(trace) => Ok(trace.check()?),
        Load::Workload(workload) => workload.workload().map(drop).map_err(StudyError::from),
        Load::Memory(requests) if requests.is_empty() => Err(StudyError::NoRequests),
        Load::Memory(_) => Ok(()),
    }
}

/// That a load had no requests.
pub fn empty(load: &Load) -> StudyError {
    match load {
        Load::Trace(trace) => TraceError::Empty { path: trace.path.clone() }.into(),
        Load::Workload(_) | Load::Memory(_) => StudyError::NoRequests,
    }
}

/// Gives each request of a trace to `take`; then the reader, which knows format and disks.
///
/// # Errors
/// Of the trace, of `take`, or because it is over.
pub fn for_each_of_trace<E: From<StudyError>>(
    trace: &TraceSource,
    what: &'static str,
    watcher: &mut dyn Watcher,
    mut take: impl FnMut(&TraceReader, &Request) -> Result<(), E>,
) -> Result<TraceReader, E> {
    let mut reader = TraceReader::open(&trace.path, trace.format).map_err(StudyError::from)?;
    watcher.begin(what, Counted::Bytes);
    let is_over = watcher.is_over();
    let mut count = 0u64;
    while let Some(request) = reader.next() {
        let request = request.map_err(StudyError::from)?;
        count += 1;
        if count.is_multiple_of(UPDATE_REQUESTS) {
            let (done, total) = reader.progress_bytes();
            watcher.update(done, total);
        }
        go_on(&is_over)?;
        if trace.device.is_none_or(|device| device == request.device) {
            take(&reader, &request)?;
        }
    }
    watcher.end();
    Ok(reader)
}

/// Gives each request of a workload to `take`. Progress is told where the end is known.
///
/// # Errors
/// Of the workload, of `take`, or because it is over.
pub fn for_each_of_workload<E: From<StudyError>>(
    workload: &WorkloadSpec,
    what: &'static str,
    watcher: &mut dyn Watcher,
    mut take: impl FnMut(&Request) -> Result<(), E>,
) -> Result<(), E> {
    let requests = workload.workload().map_err(StudyError::from)?;
    watcher.begin(what, Counted::Rounds);
    let is_over = watcher.is_over();
    for request in requests {
        if let Some(total) = workload.requests_max()
            && request.line.is_multiple_of(UPDATE_REQUESTS)
        {
            watcher.update(request.line, total);
        }
        go_on(&is_over)?;
        take(&request)?;
    }
    watcher.end();
    Ok(())
}

/// Why no more requests are given to `take` of [`feed`].
enum Stop {
    Enough,
    Problem(StudyError),
}

impl From<StudyError> for Stop {
    fn from(problem: StudyError) -> Stop {
        Stop::Problem(problem)
    }
}

/// Gives each request of a load to a simulation, at most so many; what is behind them is not read.
///
/// # Errors
/// Of the load, with the place where the simulation refuses a request, or because it is over.
pub fn feed(
    load: &Load,
    requests_max: u64,
    what: &'static str,
    watcher: &mut dyn Watcher,
    take: &mut dyn FnMut(&Request) -> Result<(), ReplayError>,
) -> Result<(), StudyError> {
    if requests_max == 0 {
        return Ok(());
    }
    let mut left = requests_max;
    let mut counted = |request: &Request| -> Result<bool, ReplayError> {
        take(request)?;
        left -= 1;
        Ok(left == 0)
    };
    let ends = |is_last: bool| if is_last { Err(Stop::Enough) } else { Ok(()) };
    let fed = match load {
        Load::Trace(trace) => for_each_of_trace(trace, what, watcher, |reader, request| {
            let is_last = counted(request).map_err(|problem| StudyError::Replay {
                place: reader.refused(request, problem.field(), problem.to_string()),
                hint: problem.hint(),
            })?;
            ends(is_last)
        })
        .map(drop),
        Load::Workload(workload) => for_each_of_workload(workload, what, watcher, |request| {
            let is_last = counted(request)
                .map_err(|problem| StudyError::of_workload(request.line, &problem))?;
            ends(is_last)
        }),
        Load::Memory(requests) => {
            watcher.begin(what, Counted::Rounds);
            let is_over = watcher.is_over();
            requests.iter().try_for_each(|request| {
                if request.line.is_multiple_of(UPDATE_REQUESTS) {
                    watcher.update(request.line, requests.len() as u64);
                }
                go_on(&is_over)?;
                let is_last = counted(request)
                    .map_err(|problem| StudyError::of_memory(request.line, &problem))?;
                ends(is_last)
            })
        }
    };
    match fed {
        Err(Stop::Problem(problem)) => Err(problem),
        Ok(()) | Err(Stop::Enough) => {
            watcher.end();
            Ok(())
        }
    }
}
