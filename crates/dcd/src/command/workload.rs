//! Workloads by name: as a trace in a file (`dcd trace generate`), or instead of one (`dcd
//! simulate`).

use std::path::Path;

use dcd_daemon::units_text::{parse_duration, parse_size};
use dcd_sim::trace::Request;
use dcd_sim::workload::{UnitParsers, WorkloadError, WorkloadSpec};

use super::trace::file::TraceFile;
use crate::error::CommandError;
use crate::progress::{Progress, Unit};

/// `NAME[,KEY=VALUE...]`, as on the command line.
pub fn parse_workload(text: &str) -> Result<WorkloadSpec, WorkloadError> {
    let units = UnitParsers {
        size: |text| parse_size(text).ok(),
        time: |text| u64::try_from(parse_duration(text).ok()?.as_nanos()).ok(),
    };
    WorkloadSpec::parse(text, units)
}

/// Gives each request to `take`, with progress on stderr where the end is known.
pub fn for_each_request_of(
    workload: &WorkloadSpec,
    what: &'static str,
    mut take: impl FnMut(&Request) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let requests = workload.workload()?;
    let mut progress = Progress::new(what, Unit::Rounds);
    for request in requests {
        if let Some(total) = workload.requests_max()
            && request.line.is_multiple_of(100_000)
        {
            progress.update(request.line, total);
        }
        take(&request)?;
    }
    progress.finish();
    Ok(())
}

/// Writes the requests as a trace.
pub fn generate(workload: &WorkloadSpec, out: &Path) -> Result<(), CommandError> {
    let (mut trace, _guard) = TraceFile::create_guarded(out)?;
    for_each_request_of(workload, "generating", |request| trace.write(request))?;
    trace.finish()
}
