//! `dcd simulate`: a trace on a disk model.

use dcd_sim::disk::model::DiskModel;
use dcd_sim::disk::profile::Profile;
use dcd_sim::replay::{Pace, Replay, ReplayFacts, TimesFacts};
use dcd_sim::trace::TraceError;
use serde_json::json;

use super::trace::{for_each_request, percentile_cells};
use crate::cli::SimulateArguments;
use crate::error::CommandError;
use crate::output::{Align, Paint, Table, print, print_json};

pub fn run(arguments: &SimulateArguments) -> Result<(), CommandError> {
    let profile = Profile::load(&arguments.disk)?;
    let disk = DiskModel::new(&profile, arguments.seed).expect("the profile was checked");
    let pace = if arguments.closed_loop {
        Pace::Closed
    } else {
        Pace::Open { stretch: arguments.stretch }
    };
    let mut replay = Replay::new(disk, pace);
    for_each_request(&arguments.trace, &arguments.input, "simulating", |reader, request| {
        replay.add(request).map_err(|problem| CommandError::Replay {
            place: reader.refused(request, problem.field(), problem.to_string()),
            hint: problem.hint(),
        })
    })?;
    let facts = replay.finish();
    if facts.requests == 0 {
        return Err(TraceError::Empty { path: arguments.trace.clone() }.into());
    }
    if arguments.json {
        let mut json = json!(facts);
        json["disk"] = json!(arguments.disk);
        json["trace"] = json!(arguments.trace);
        return print_json(&json);
    }
    print(&in_words(&facts))
}

fn in_words(facts: &ReplayFacts) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| text += &format!("{name:<24}{value}\n");
    line("requests", facts.requests.to_string());
    line("reads", facts.reads.to_string());
    line("writes", facts.writes.to_string());
    line("flushes", facts.flushes.to_string());
    line("discards, not simulated", facts.discards.to_string());
    line("most at the disk", facts.outstanding_max.to_string());
    line("simulated time", format!("{:.3} s", facts.duration_s));

    let mut table = Table::new(&[
        ("time, ms", Align::Left),
        ("mean", Align::Right),
        ("p50", Align::Right),
        ("p90", Align::Right),
        ("p99", Align::Right),
        ("p99.9", Align::Right),
        ("max", Align::Right),
    ]);
    for (what, times) in [("reads", &facts.read), ("writes", &facts.write)] {
        let TimesFacts { service_ms, queue_ms, response_ms } = times;
        for (name, percentiles) in
            [("service", service_ms), ("queue", queue_ms), ("response", response_ms)]
        {
            if let Some(percentiles) = percentiles {
                table.row(percentile_cells(&format!("{what}, {name}"), percentiles));
            }
        }
    }
    format!("{text}\n{}", table.render(Paint::for_stdout()))
}
