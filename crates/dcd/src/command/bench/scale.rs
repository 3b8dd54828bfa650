//! `dcd bench scale`: what grows with the size of a cache, and what must not.

use std::time::Duration;

use dcd_daemon::units_text::{format_duration, format_size};
use dcd_sim::scale::{self, STEP_MAX, Scale, ScaleFacts, Steps};
use serde_json::{Value, json};

use super::engine::processor_time;
use crate::error::CommandError;
use crate::output::{Align, Paint, Table};
use crate::progress::{Progress, Unit};
use crate::stdout::{print, print_json};

pub fn run(
    sizes: &[u64],
    lines: Option<u64>,
    index_bytes_max: u64,
    as_json: bool,
) -> Result<(), CommandError> {
    let mut measured = Vec::new();
    for cache_bytes in sizes {
        let mut progress = Progress::new("writing", Unit::Bytes);
        let scale = Scale { cache_bytes: *cache_bytes, lines, index_bytes_max };
        let facts = scale::run(scale, &processor_time, &resident_bytes, &mut |done, total| {
            progress.update(done * 4096, total * 4096);
        })?;
        progress.finish();
        measured.push((*cache_bytes, facts));
    }
    if as_json {
        return print_json(&Value::Array(measured.iter().map(as_value).collect()));
    }
    show(&measured)
}

/// What this process has in memory.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kibibytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.strip_suffix("kB"));
    kibibytes.and_then(|number| number.trim().parse::<u64>().ok()).unwrap_or(0) * 1024
}

fn as_value((cache_bytes, facts): &(u64, ScaleFacts)) -> Value {
    let full = facts.full.as_ref().map(|full| {
        json!({
            "bytes_per_byte_logged": full.bytes_per_byte_logged,
            "checkpoints": full.checkpoints,
            "writes_per_second": full.writes_per_second,
            "write_p999_ms": milliseconds(full.write_p999),
            "longest_step_ms": milliseconds(full.steps.longest),
            "steps_too_long": full.steps.too_long,
        })
    });
    json!({
        "cache_bytes": cache_bytes,
        "empty": {
            "memory_bytes": facts.empty_memory_bytes,
            "open_ms": milliseconds(facts.empty_open),
        },
        "fill": {
            "lines": facts.lines,
            "memory_bytes_per_line": facts.memory_bytes_per_line,
            "writes_per_second": facts.fill_per_second,
            "longest_step_ms": milliseconds(facts.fill_steps.longest),
            "steps_too_long": facts.fill_steps.too_long,
        },
        "full": full,
        "restart": {
            "lines": facts.restart.lines,
            "read_bytes": facts.restart.read_bytes,
            "time_ms": milliseconds(facts.restart.time),
            "longest_step_ms": milliseconds(facts.restart.steps.longest),
            "steps_too_long": facts.restart.steps.too_long,
        },
        "trim": {
            "longest_step_ms": milliseconds(facts.trim_steps.longest),
            "steps_too_long": facts.trim_steps.too_long,
            "time_ms": milliseconds(facts.trim_steps.total),
        },
    })
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// A row for each figure, a column for each size.
fn show(measured: &[(u64, ScaleFacts)]) -> Result<(), CommandError> {
    let mut columns = vec![("cache-disk".to_owned(), Align::Left)];
    columns.extend(measured.iter().map(|(size, _)| (format_size(*size), Align::Right)));
    let columns: Vec<(&str, Align)> =
        columns.iter().map(|(name, align)| (name.as_str(), *align)).collect();
    let mut table = Table::new(&columns);
    let mut row = |name: &str, cell: &dyn Fn(&ScaleFacts) -> String| {
        let cells = measured.iter().map(|(_, facts)| cell(facts));
        table.row([name.to_owned()].into_iter().chain(cells).collect());
    };
    let time = |time: Duration| format!("{:.2} ms", milliseconds(time));
    // What is the engine's comes again with each checkpoint, batch or growth of a table; what the
    // machine did once, to a thread whose clock went on, does not.
    let longest = |steps: Steps| match steps.too_long {
        0 => time(steps.longest),
        count => format!("{} ({count} over {})", time(steps.longest), format_duration(STEP_MAX)),
    };
    row("empty: memory", &|facts| format_size(facts.empty_memory_bytes));
    row("empty: opening", &|facts| time(facts.empty_open));
    row("filled: lines", &|facts| facts.lines.to_string());
    row("filled: memory for each", &|facts| format!("{:.1} B", facts.memory_bytes_per_line));
    row("filled: writes a second", &|facts| format!("{:.0} k", facts.fill_per_second / 1e3));
    row("filled: longest step", &|facts| longest(facts.fill_steps));
    if measured.iter().any(|(_, facts)| facts.full.is_some()) {
        let of_full = |cell: &dyn Fn(&scale::FullFacts) -> String, facts: &ScaleFacts| {
            facts.full.as_ref().map_or("-".to_owned(), cell)
        };
        row("full: written for each byte logged", &|facts| {
            of_full(&|full| format!("{:.2} B", full.bytes_per_byte_logged), facts)
        });
        row("full: checkpoints", &|facts| of_full(&|full| full.checkpoints.to_string(), facts));
        row("full: writes a second, virtual", &|facts| {
            of_full(&|full| format!("{:.1} k", full.writes_per_second / 1e3), facts)
        });
        row("full: p99.9 of writes, virtual", &|facts| {
            of_full(&|full| time(full.write_p999), facts)
        });
        row("full: longest step", &|facts| of_full(&|full| longest(full.steps), facts));
    }
    row("start after a death: lines", &|facts| facts.restart.lines.to_string());
    row("start after a death: read", &|facts| format_size(facts.restart.read_bytes));
    row("start after a death: virtual", &|facts| format_duration(facts.restart.time));
    row("start after a death: longest step", &|facts| longest(facts.restart.steps));
    row("trim of everything: longest step", &|facts| longest(facts.trim_steps));
    row("trim of everything, half by 1 GiB", &|facts| format_duration(facts.trim_steps.total));
    print(&table.render(Paint::for_stdout()))
}
