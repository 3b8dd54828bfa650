//! What a trace is like, in numbers.

use dcd_sim::sweep::Load;
use dcd_sim::trace::TraceFormat;
use dcd_sim::trace::summary::{Summarizer, TraceSummary};
use serde_json::{Value, json};

use crate::StudyError;
use crate::load::{empty, feed, for_each_of_trace};
use crate::watch::Watcher;

/// All that is to be told of a load; of a file also its format.
///
/// # Errors
/// Of the load, if it has no requests, or because it is over.
pub fn summary(
    load: &Load,
    burst_gap_ns: u64,
    watcher: &mut dyn Watcher,
) -> Result<(TraceSummary, Option<TraceFormat>), StudyError> {
    let mut summarizer = Summarizer::new(burst_gap_ns);
    let reader = match load {
        Load::Trace(trace) => Some(for_each_of_trace(trace, "reading", watcher, |_, request| {
            summarizer.add(request);
            Ok::<(), StudyError>(())
        })?),
        other => {
            feed(other, u64::MAX, "reading", watcher, &mut |request| {
                summarizer.add(request);
                Ok(())
            })?;
            None
        }
    };
    let mut summary = summarizer.finish().ok_or_else(|| empty(load))?;
    if let Some(reader) = &reader {
        for device in &mut summary.by_device {
            device.name = reader.device_name(device.device);
        }
    }
    Ok((summary, reader.map(|reader| reader.format())))
}

/// The same for programs.
pub fn facts(summary: &TraceSummary, format: Option<TraceFormat>, name: &str) -> Value {
    let mut facts = json!(summary);
    facts["trace"] = json!(name);
    if let Some(format) = format {
        facts["format"] = json!(format.name());
    }
    facts
}
