//! `dcd bench scale`: what grows with the size of a cache, and what must not.

use std::process::{Command, Stdio};
use std::time::Duration;

use dcd_daemon::units_text::{format_duration, format_size};
use dcd_sim::scale::{self, STEP_MAX, Scale, ScaleFacts, Steps};
use serde_json::{Value, json};

use super::engine::processor_time;
use crate::error::CommandError;
use crate::error::lab::LabError;
use crate::output::{Align, Paint, Table};
use crate::progress::{Progress, Unit};
use crate::stdout::{print, print_json};

pub fn run(
    sizes: &[u64],
    lines: Option<u64>,
    index_bytes_max: u64,
    as_json: bool,
) -> Result<(), CommandError> {
    for size in sizes {
        scale::check(*size)?;
    }
    let measured = match sizes {
        [cache_bytes] => {
            vec![measure(Scale { cache_bytes: *cache_bytes, lines, index_bytes_max })?]
        }
        _ => sizes
            .iter()
            .map(|size| measure_apart(*size, lines, index_bytes_max))
            .collect::<Result<_, _>>()?,
    };
    if as_json {
        return print_json(&Value::Array(measured));
    }
    show(&measured)
}

fn measure(scale: Scale) -> Result<Value, CommandError> {
    let mut progress = Progress::new("writing", Unit::Bytes);
    let facts = scale::run(scale, &processor_time, &resident_bytes, &mut |done, total| {
        progress.update(done * 4096, total * 4096);
    })?;
    progress.finish();
    Ok(as_value(scale.cache_bytes, &facts))
}

/// In a process of its own: in one that has measured another size, memory that this one had given
/// back is used again, and cleared first, which a daemon never has to.
fn measure_apart(
    cache_bytes: u64,
    lines: Option<u64>,
    index_bytes_max: u64,
) -> Result<Value, CommandError> {
    let failed = |source| CommandError::Lab(LabError::BenchApart { source });
    let program = std::env::current_exe().map_err(failed)?;
    let output = Command::new(program)
        .args(["bench", "scale", "--json", "--cache-disk", &cache_bytes.to_string()])
        .args(["--index-max", &index_bytes_max.to_string()])
        .args(lines.iter().flat_map(|lines| ["--lines".to_owned(), lines.to_string()]))
        .stderr(Stdio::inherit())
        .output()
        .map_err(failed)?;
    if !output.status.success() {
        let status = output.status;
        return Err(CommandError::Lab(LabError::BenchApartEnded { cache_bytes, status }));
    }
    let measured: Value = serde_json::from_slice(&output.stdout).map_err(|it| failed(it.into()))?;
    Ok(measured[0].clone())
}

/// What this process has in memory.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kibibytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.strip_suffix("kB"));
    kibibytes.and_then(|number| number.trim().parse::<u64>().ok()).unwrap_or(0) * 1024
}

fn as_value(cache_bytes: u64, facts: &ScaleFacts) -> Value {
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
        "all": steps(&facts.all_steps),
        "counting": steps(&facts.counting),
    })
}

fn steps(steps: &Steps) -> Value {
    json!({
        "longest_step_ms": milliseconds(steps.longest),
        "steps_too_long": steps.too_long,
        "steps_too_long_per_minute": steps.too_long_per_minute(),
        "time_ms": milliseconds(steps.total),
    })
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// A row for each figure, a column for each size.
fn show(measured: &[Value]) -> Result<(), CommandError> {
    let mut columns = vec![("cache-disk".to_owned(), Align::Left)];
    let size = |one: &Value| format_size(one["cache_bytes"].as_u64().unwrap_or(0));
    columns.extend(measured.iter().map(|one| (size(one), Align::Right)));
    let columns: Vec<(&str, Align)> =
        columns.iter().map(|(name, align)| (name.as_str(), *align)).collect();
    let mut table = Table::new(&columns);
    let mut row = |name: &str, part: &str, cell: &dyn Fn(&Value) -> String| {
        let cells = measured.iter().map(|one| match &one[part] {
            Value::Null => "-".to_owned(),
            of_part => cell(of_part),
        });
        table.row([name.to_owned()].into_iter().chain(cells).collect());
    };
    let number = |of: &Value, key: &str| of[key].as_f64().unwrap_or(0.0);
    let count = |of: &Value, key: &str| of[key].as_u64().unwrap_or(0);
    let time = |of: &Value, key: &str| format!("{:.2} ms", number(of, key));
    let duration =
        |of: &Value| format_duration(Duration::from_secs_f64(number(of, "time_ms") / 1e3));
    // What is the engine's comes again with each checkpoint, batch or growth of a table; what the
    // machine did once, to a thread whose clock went on, does not.
    let longest = |of: &Value| match count(of, "steps_too_long") {
        0 => time(of, "longest_step_ms"),
        steps => {
            let most = format_duration(STEP_MAX);
            format!("{} ({steps} over {most})", time(of, "longest_step_ms"))
        }
    };
    let thousands = |of: &Value| number(of, "writes_per_second") / 1e3;
    let lines = |of: &Value| count(of, "lines").to_string();
    row("empty: memory", "empty", &|of| format_size(count(of, "memory_bytes")));
    row("empty: opening", "empty", &|of| time(of, "open_ms"));
    row("filled: lines", "fill", &lines);
    row("filled: memory for each", "fill", &|of| {
        format!("{:.1} B", number(of, "memory_bytes_per_line"))
    });
    row("filled: writes a second", "fill", &|of| format!("{:.0} k", thousands(of)));
    row("filled: longest step", "fill", &longest);
    if measured.iter().any(|one| !one["full"].is_null()) {
        row("full: written for each byte logged", "full", &|of| {
            format!("{:.2} B", number(of, "bytes_per_byte_logged"))
        });
        row("full: checkpoints", "full", &|of| count(of, "checkpoints").to_string());
        row("full: writes a second, virtual", "full", &|of| format!("{:.1} k", thousands(of)));
        row("full: p99.9 of writes, virtual", "full", &|of| time(of, "write_p999_ms"));
        row("full: longest step", "full", &longest);
    }
    row("start after a death: lines", "restart", &lines);
    row("start after a death: read", "restart", &|of| format_size(count(of, "read_bytes")));
    row("start after a death: virtual", "restart", &duration);
    row("start after a death: longest step", "restart", &longest);
    row("trim of everything: longest step", "trim", &longest);
    row("trim of everything, half by 1 GiB", "trim", &duration);
    // Of the processor's time that the engine took.
    let a_minute = |of: &Value| format!("{:.1}", number(of, "steps_too_long_per_minute"));
    row(&format!("steps over {} a minute", format_duration(STEP_MAX)), "all", &a_minute);
    row("the same of a loop that only counts", "counting", &a_minute);
    row("its longest step", "counting", &longest);
    print(&table.render(Paint::for_stdout()))
}
