//! `dcd trace`: what a recorded trace is like, in numbers and pictures, the same trace in another
//! format, on a real disk, and made-up ones.

pub mod arguments;
pub mod file;
pub mod record;
mod record_daemon;
mod replay;
mod split;

use std::path::Path;

use dcd_daemon::units_text::format_size;
use dcd_sim::distribution::Percentiles;
use dcd_sim::pace::Pace;
use dcd_sim::plot::page;
use dcd_sim::sweep::Load;
use dcd_sim::trace::picture::Pictures;
use dcd_sim::trace::summary::{DeviceFacts, Rates, TraceSummary};
use dcd_sim::trace::{Request, TraceError, TraceFormat, TraceReader, is_standard};
use dcd_study::load::{TraceInputArguments, for_each_of_trace, name};
use file::TraceFile;
use replay::ReplayOptions;
use serde_json::json;

use super::workload::generate;
use crate::command::trace::arguments::{TraceArguments, TraceWhat};
use crate::error::CommandError;
use crate::output::{Align, Paint, Table, count, wants_json};
use crate::page_file::{PageFile, PlotFile};
use crate::progress::ProgressWatcher;
use crate::stdout::{print, print_json};

/// How all pictures of `dcd trace plot` begin, HTML and SVG.
const PLOT_BEGINNING: &str = "<!-- dcd trace plot -->\n";

/// Disks that are shown one by one.
const DISKS_SHOWN_MAX: usize = 20;
/// A clock that is worth a word: gaps and bursts are its own.
const COARSE_CLOCK_NS: u64 = 1_000_000;

pub fn run(arguments: &TraceArguments) -> Result<(), CommandError> {
    match &arguments.what {
        TraceWhat::Summary { file, input, burst_gap, json } => {
            summary(file, input, burst_gap.as_nanos() as u64, *json)
        }
        TraceWhat::Plot { file, input, burst_gap, out } => {
            plot(file, input, burst_gap.as_nanos() as u64, out)
        }
        TraceWhat::Record { device, out, control, time, json } => {
            let recorded = match (device, control) {
                (Some(device), _) => record::record(device, out, *time)?,
                (None, Some(control)) => record_daemon::record(control, out, *time)?,
                (None, None) => unreachable!("one of them is required"),
            };
            recorded.tell(out, *json)
        }
        TraceWhat::Replay {
            file,
            input,
            nbd,
            requests,
            closed_loop,
            stretch,
            json,
            overwrite: _,
        } => {
            let pace = match closed_loop {
                true => Pace::Closed,
                false => Pace::Open { stretch: *stretch },
            };
            let requests_max = requests.unwrap_or(u64::MAX);
            replay::run(file, input, nbd, &ReplayOptions { pace, requests_max, as_json: *json })
        }
        TraceWhat::Convert { file, input, out } => convert(file, input, out),
        TraceWhat::Split { file, input, directory, json } => {
            split::run(file, input, directory, *json)
        }
        TraceWhat::Generate { workload, out } => generate(workload, out),
    }
}

/// Gives each request of a trace to `take`, with progress on stderr; then the reader, which knows
/// format and disks.
pub fn for_each_request(
    path: &Path,
    input: &TraceInputArguments,
    what: &'static str,
    take: impl FnMut(&TraceReader, &Request) -> Result<(), CommandError>,
) -> Result<TraceReader, CommandError> {
    for_each_of_trace(&input.source(path), what, &mut ProgressWatcher::default(), take)
}

fn summary(
    path: &Path,
    input: &TraceInputArguments,
    burst_gap_ns: u64,
    as_json: bool,
) -> Result<(), CommandError> {
    let load = Load::Trace(input.source(path));
    let watcher = &mut ProgressWatcher::default();
    let (summary, format) = dcd_study::summary::summary(&load, burst_gap_ns, watcher)?;
    if as_json {
        return print_json(&dcd_study::summary::facts(&summary, format, &name(&load)));
    }
    print(&in_words(&summary, format.expect("a file has one")))
}

fn plot(
    path: &Path,
    input: &TraceInputArguments,
    burst_gap_ns: u64,
    out: &PlotFile,
) -> Result<(), CommandError> {
    let page_file = PageFile::check(&out.path, "dcd trace plot", PLOT_BEGINNING)?;
    let mut pictures = Pictures::new(burst_gap_ns);
    let reader = for_each_request(path, input, "reading", |_, request| {
        pictures.add(request);
        Ok(())
    })?;
    let Some((summary, drawings)) = pictures.finish()? else {
        return Err(TraceError::Empty { path: path.to_owned() }.into());
    };
    let title = path.display().to_string();
    let text = match out.is_html {
        true => page::html(&title, &facts(&summary, reader.format()), &drawings),
        false => page::svg(&title, &drawings),
    };
    page_file.write(&format!("{PLOT_BEGINNING}{text}"))?;
    if is_standard(&out.path) {
        return Ok(());
    }
    if wants_json() {
        let file = out.path.display().to_string();
        return print_json(&json!({ "requests": summary.requests, "file": file }));
    }
    let requests = count(summary.requests, "request");
    print(&format!("{requests} in {}\n", out.path.display()))
}

fn in_words(summary: &TraceSummary, format: TraceFormat) -> String {
    let facts = facts(summary, format);
    let text: String = facts.iter().map(|(name, value)| format!("{name:<24}{value}\n")).collect();
    let bursts = &summary.bursts;
    let mut table = percentile_table("distribution");
    for (name, percentiles) in [
        ("between requests, ms", summary.inter_arrival_ms),
        ("latency of reads, ms", summary.read_latency_ms),
        ("latency of writes, ms", summary.write_latency_ms),
        ("requests in a burst", bursts.requests),
        ("bytes written in a burst", bursts.written_bytes),
        ("between bursts, ms", bursts.silence_ms),
    ] {
        if let Some(percentiles) = percentiles {
            table.row(percentile_cells(name, &percentiles));
        }
    }
    let mut sizes = Table::new(&[
        ("size up to", Align::Right),
        ("reads", Align::Right),
        ("writes", Align::Right),
    ]);
    for class in &summary.sizes {
        let (reads, writes) = (class.reads.to_string(), class.writes.to_string());
        sizes.row(vec![format_size(class.up_to_bytes), reads, writes]);
    }
    let paint = Paint::for_stdout();
    let tables = [table.render(paint), sizes.render(paint)].join("\n");
    let named = summary.by_device.iter().any(|device| device.name.is_some());
    let disks = if summary.devices > 1 || named { disks(summary, paint) } else { String::new() };
    format!("{text}\n{tables}{disks}")
}

/// Disks by the number that `--device` takes, those with most requests; behind an empty line.
fn disks(summary: &TraceSummary, paint: Paint) -> String {
    let requests = |device: &DeviceFacts| device.reads.count + device.writes.count + device.others;
    let mut shown: Vec<&DeviceFacts> = summary.by_device.iter().collect();
    shown.sort_by_key(|device| std::cmp::Reverse(requests(device)));
    let left_out = shown.len().saturating_sub(DISKS_SHOWN_MAX);
    shown.truncate(DISKS_SHOWN_MAX);
    let mut table = Table::new(&[
        ("device", Align::Right),
        ("name", Align::Left),
        ("requests", Align::Right),
        ("reads", Align::Right),
        ("read", Align::Right),
        ("writes", Align::Right),
        ("written", Align::Right),
    ]);
    for device in shown {
        table.row(vec![
            device.device.to_string(),
            device.name.clone().unwrap_or_default(),
            requests(device).to_string(),
            device.reads.count.to_string(),
            format_size(device.reads.bytes),
            device.writes.count.to_string(),
            format_size(device.writes.bytes),
        ]);
    }
    let more = match left_out {
        0 => String::new(),
        more => format!("and {more} more; --json tells all\n"),
    };
    format!("\n{}{more}", table.render(paint))
}

/// What there is to tell in one line each.
fn facts(summary: &TraceSummary, format: TraceFormat) -> Vec<(&'static str, String)> {
    let TraceSummary { reads, writes, bursts, mean, peak, working_set, .. } = summary;
    let mut facts = Vec::new();
    let mut line = |name: &'static str, value: String| facts.push((name, value));
    line("format", format.name().to_owned());
    line("requests", summary.requests.to_string());
    line("duration", format!("{:.3} s", summary.duration_s));
    if let Some(clock_ns) = summary.clock_ns.filter(|clock_ns| *clock_ns >= COARSE_CLOCK_NS) {
        let clock_s = clock_ns as f64 / 1e9;
        line("clock", format!("{clock_s} s: all times are multiples of it"));
    }
    line("disks", summary.devices.to_string());
    line("addresses end at", format_size(summary.end_bytes));
    line("reads", format!("{}, {}", reads.count, format_size(reads.bytes)));
    line("writes", format!("{}, {}", writes.count, format_size(writes.bytes)));
    line("writes, synchronous", summary.sync_writes.to_string());
    line("writes, FUA or preflush", summary.fua_writes.to_string());
    let discards = summary.discards;
    line("discards", format!("{}, {}", discards.count, format_size(discards.bytes)));
    line("flushes", summary.flushes.to_string());
    line("sequential", format!("{:.1} %", summary.sequential_percent));
    let rates = |rates: &Rates| {
        format!(
            "{:.1} requests/s, reads {}/s, writes {}/s",
            rates.requests_per_second,
            format_size(rates.read_bytes_per_second as u64),
            format_size(rates.written_bytes_per_second as u64)
        )
    };
    line("mean rate", rates(mean));
    line("highest in a second", rates(peak));
    line("bursts", format!("{}, apart by more than {} ms", bursts.count, bursts.gap_ms));
    line("working set", format_size(working_set.bytes));
    line("  read", format_size(working_set.read_bytes));
    line("  written", format_size(working_set.written_bytes));
    line(
        "overwritten sectors",
        format!(
            "{:.1} % within 30 s, {:.1} % within 1000 s, {:.1} % ever",
            working_set.overwritten_30_s_percent,
            working_set.overwritten_1000_s_percent,
            working_set.overwritten_percent
        ),
    );
    if working_set.sampled < 1.0 {
        let share = 100.0 * working_set.sampled;
        line("  estimated from", format!("{share:.3} % of the lines"));
    }
    facts
}

/// An empty table of distributions of that.
pub fn percentile_table(what: &'static str) -> Table<'static> {
    let numbers = ["mean", "p50", "p90", "p99", "p99.9", "max"].map(|name| (name, Align::Right));
    Table::new(&[&[(what, Align::Left)][..], &numbers].concat())
}

/// A row of a table of distributions.
pub fn percentile_cells(name: &str, percentiles: &Percentiles) -> Vec<String> {
    let Percentiles { mean, p50, p90, p99, p999, max } = *percentiles;
    let number =
        |value: f64| if value < 1e4 { format!("{value:.3}") } else { format!("{value:.0}") };
    let numbers = [mean, p50, p90, p99, p999, max].map(number);
    [name.to_owned()].into_iter().chain(numbers).collect()
}

fn convert(path: &Path, input: &TraceInputArguments, out: &Path) -> Result<(), CommandError> {
    let (mut trace, _guard) = TraceFile::create_guarded(out)?;
    let mut requests = 0;
    for_each_request(path, input, "converting", |_, request| {
        requests += 1;
        trace.write(request)
    })?;
    if requests == 0 {
        // Nothing reads a trace without any.
        return Err(TraceError::Empty { path: path.to_owned() }.into());
    }
    trace.finish()?;
    tell_written(out, requests)
}

/// Tells programs what was written; people see the file.
pub fn tell_written(out: &Path, requests: u64) -> Result<(), CommandError> {
    match wants_json() && !is_standard(out) {
        true => print_json(&json!({ "requests": requests, "trace": out.display().to_string() })),
        false => Ok(()),
    }
}
