//! Made-up requests as a trace in a file: `dcd trace generate`.

use std::path::Path;

use dcd_sim::workload::WorkloadSpec;
use dcd_study::load::for_each_of_workload;

use super::trace::file::TraceFile;
use super::trace::tell_written;
use crate::error::CommandError;
use crate::progress::ProgressWatcher;

/// Writes the requests as a trace.
pub fn generate(workload: &WorkloadSpec, out: &Path) -> Result<(), CommandError> {
    let (mut trace, _guard) = TraceFile::create_guarded(out)?;
    let watcher = &mut ProgressWatcher::default();
    let mut requests = 0;
    for_each_of_workload(workload, "generating", watcher, |request| {
        requests += 1;
        trace.write(request)
    })?;
    trace.finish()?;
    tell_written(out, requests)
}
