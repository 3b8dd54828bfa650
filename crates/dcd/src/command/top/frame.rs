//! One picture of all daemons, as lines that fit a terminal.

use std::time::Duration;

use dcd_daemon::report::status_report::StatusReport;
use dcd_daemon::units_text::{format_duration, format_size};

use super::rates::{CLASSES, KindRates, Rates, class_bound_microseconds};
use crate::command::status_panel::{short, state};
use crate::output::{Align, Colour, Paint, Table, bar, count};

/// A daemon as it was seen last.
pub struct Seen {
    /// Its name.
    pub name: String,
    /// How it does; or why it does not answer.
    pub report: Result<Box<StatusReport>, String>,
    /// What it did in the last interval.
    pub rates: Rates,
}

/// How large the picture is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// Characters in a line, for what can be drawn in more or fewer.
    pub width: usize,
    /// Characters of a line that are shown: the same on a terminal; all where nothing wraps.
    pub cut: usize,
    /// Lines; there is always room for what matters most.
    pub height: usize,
}

/// Rows of the ring of segments, at most.
const RING_ROWS: usize = 3;

/// The picture: a line for each daemon if there are several, then the selected one in full.
pub fn frame(daemons: &[Seen], selected: usize, size: Size, paint: Paint) -> String {
    let mut lines = Vec::new();
    if daemons.len() > 1 {
        lines = table(daemons, selected, size, paint);
        lines.push(String::new());
    }
    if let Some(seen) = daemons.get(selected) {
        lines.extend(details(seen, size, paint));
    }
    lines.truncate(size.height);
    lines.join("\n") + "\n"
}

/// A line for each daemon. If they are too many, those around the selected one.
fn table(daemons: &[Seen], selected: usize, size: Size, paint: Paint) -> Vec<String> {
    let mut table = Table::new(&[
        ("", Align::Left),
        ("name", Align::Left),
        ("reads/s", Align::Right),
        ("writes/s", Align::Right),
        ("write", Align::Right),
        ("99%", Align::Right),
        ("dirty", Align::Right),
        ("used", Align::Right),
        ("destage", Align::Right),
    ]);
    let room = (size.height / 3).max(3);
    let first = selected.saturating_sub(room - 1).min(daemons.len().saturating_sub(room));
    for (index, seen) in daemons.iter().enumerate().skip(first).take(room) {
        let mark = if index == selected { ">" } else { "" }.to_owned();
        let name: String = seen.name.chars().take(10).collect();
        let mut row = vec![mark, name];
        match &seen.report {
            Ok(report) => row.extend([
                format!("{:.0}", seen.rates.reads.per_second),
                format!("{:.0}", seen.rates.writes.per_second),
                per_second(seen.rates.writes.bytes_per_second),
                seen.rates.writes.p99_microseconds.map_or("-".into(), micros),
                format_size(report.dirty_bytes),
                format!("{:.0}%", report.utilisation * 100.0),
                per_second(seen.rates.destage_bytes_per_second),
            ]),
            Err(_) => row.extend(["no answer", "", "", "", "", "", ""].map(str::to_owned)),
        }
        table.row(row);
    }
    // Painting comes last, so that what is cut is never an escape.
    let text = table.render(Paint::plain());
    let cut = text.lines().map(|line| cut(line, size.cut));
    cut.enumerate()
        .map(|(row, line)| if row == 0 { paint.paint(Colour::Title, &line) } else { line })
        .collect()
}

/// Everything about one daemon.
fn details(seen: &Seen, size: Size, paint: Paint) -> Vec<String> {
    let line = |text: String| cut(&text, size.cut);
    let report = match &seen.report {
        Ok(report) => report,
        Err(why) => {
            let words = format!("{} does not answer: {why}", seen.name);
            return vec![paint.paint(Colour::Bad, &line(words))];
        }
    };
    let rates = &seen.rates;
    let (word, colour) = state(report);
    let uptime = format_duration(Duration::from_secs(report.uptime_seconds as u64));
    let mut lines = vec![
        paint.paint(
            colour,
            &line(format!("{} {word}; process {}, up for {uptime}", seen.name, report.pid)),
        ),
        line(facts(report)),
        String::new(),
    ];
    for (kind, rates) in
        [("reads", &rates.reads), ("writes", &rates.writes), ("flushes", &rates.flushes)]
    {
        lines.push(line(requests(kind, rates)));
    }
    lines.push(String::new());
    lines.extend(segments(report, size).into_iter().map(line));
    lines.push(line(destaging(report, rates)));
    lines.push(line(figures(report, rates)));
    if let Some(members) = members(report) {
        lines.push(line(members));
    }
    if let Some(errors) = errors(report) {
        lines.push(paint.paint(Colour::Bad, &line(errors)));
    }
    lines.push(String::new());
    let room = size.height.saturating_sub(lines.len());
    lines.extend(histograms(rates, room, size.width).into_iter().map(line));
    lines
}

fn facts(report: &StatusReport) -> String {
    let served = match &report.frontends[..] {
        [] => String::new(),
        frontends => format!("{}, ", frontends.join(" ")),
    };
    let size = format_size(report.volume_bytes);
    format!("{served}{size}; {} behind {}", report.data_disk, report.cache_disk)
}

fn requests(kind: &str, rates: &KindRates) -> String {
    let bytes = match kind {
        "flushes" => String::new(),
        _ => per_second(rates.bytes_per_second),
    };
    let within =
        rates.p99_microseconds.map_or(String::new(), |p99| format!("99% within {}", micros(p99)));
    format!("  {kind:<8}{:>9.0}/s {bytes:>14}   {within}", rates.per_second)
}

/// The ring in place order, with what its signs mean.
fn segments(report: &StatusReport, size: Size) -> Vec<String> {
    let segments = &report.segments;
    let mut lines = vec![format!(
        "{} of {}, {:.0}% in use, {} dirty",
        count(segments.total.into(), "segment"),
        format_size(segments.size_bytes),
        report.utilisation * 100.0,
        format_size(report.dirty_bytes)
    )];
    let width = size.width.saturating_sub(4).max(1);
    let ring = ring(&segments.map, width * RING_ROWS);
    let rows = ring.chunks(width).map(|row| row.iter().collect::<String>());
    lines.extend(rows.map(|row| format!("  {row}")));
    lines.push(format!(
        "  # dirty {}   + in a buffer {}   - empty {}   . free {}",
        segments.dirty, segments.buffered, segments.empty, segments.free
    ));
    lines
}

/// At most `room` signs for all segments; one that stands for several shows the one with the most
/// to lose.
fn ring(map: &str, room: usize) -> Vec<char> {
    let segments = map.as_bytes();
    let for_each = segments.len().div_ceil(room.max(1)).max(1);
    let signs = segments.chunks(for_each).map(|some| {
        let has = |letter: u8| some.contains(&letter);
        match () {
            () if has(b'd') => '#',
            () if has(b'b') => '+',
            () if has(b'e') => '-',
            () => '.',
        }
    });
    signs.collect()
}

fn destaging(report: &StatusReport, rates: &Rates) -> String {
    let rate = per_second(rates.destage_bytes_per_second);
    let end = match rates.empty_in_seconds {
        _ if report.dirty_bytes == 0 => ", nothing is dirty".to_owned(),
        Some(seconds) => format!(", empty in {}", eta(seconds)),
        None => String::new(),
    };
    let quiet = short(Duration::from_nanos((report.idle_threshold_microseconds * 1e3) as u64));
    let why = match () {
        () if report.destage_held_back => {
            let why = report.destage_words();
            format!("; held back: {why}")
        }
        () if report.draining => "; draining".to_owned(),
        () => format!("; begins after {quiet} of quiet"),
    };
    format!("  destages {rate}{end}{why}")
}

fn figures(report: &StatusReport, rates: &Rates) -> String {
    let figures = &report.figures;
    let waited = match rates.stalled_per_second {
        none if none <= 0.0 => String::new(),
        stalled => format!("; {stalled:.0}/s wait for room"),
    };
    format!(
        "  since the start: {:.0}% hits, {:.0}% overwritten, {:.2} B logged for each written{waited}",
        figures.read_hit_rate * 100.0,
        figures.overwrite_rate * 100.0,
        figures.write_amplification,
    )
}

fn members(report: &StatusReport) -> Option<String> {
    let volume = report.volume.as_ref()?;
    let members = volume.members.iter().map(|member| format!("{} {}", member.member, member.state));
    let work = volume.work.as_ref().map_or(String::new(), |work| {
        format!("; {} {:.0}%", work.kind, work.done as f64 * 100.0 / work.total.max(1) as f64)
    });
    Some(format!("  members: {}{work}", members.collect::<Vec<_>>().join(", ")))
}

fn errors(report: &StatusReport) -> Option<String> {
    let counters = &report.counters;
    let errors = [
        ("cache-disk", counters.cache_disk_errors),
        ("data-disk", counters.data_disk_errors),
        ("checksum", counters.checksum_errors),
        ("lost lines", report.poisoned_lines),
    ];
    let errors = errors.iter().filter(|(_, errors)| *errors > 0);
    let words: Vec<String> = errors.map(|(what, errors)| format!("{what} {errors}")).collect();
    (!words.is_empty()).then(|| format!("  errors: {}", words.join(", ")))
}

/// Response times of the interval, the three kinds side by side; a row for each class that has any.
fn histograms(rates: &Rates, room: usize, width: usize) -> Vec<String> {
    let kinds = [&rates.reads, &rates.writes, &rates.flushes];
    let has_any = |class: &usize| kinds.iter().any(|kind| kind.classes[*class] > 0);
    let (Some(first), Some(last)) = ((0..CLASSES).find(has_any), (0..CLASSES).rfind(has_any))
    else {
        return Vec::new();
    };
    let column = (width.saturating_sub(12) / 3).max(8) - 1;
    let title = |name: &str| format!("{name:<column$} ");
    let mut lines = vec![format!(
        "  {:>9} {}{}{}",
        "less than",
        title("reads"),
        title("writes"),
        title("flushes")
    )];
    let mut rows: Vec<usize> = (first..=last).collect();
    // Slow ones are what people look for.
    let too_many = (rows.len() + 1).saturating_sub(room.max(2));
    rows.drain(..too_many);
    for class in rows {
        let bound = match class {
            class if class == CLASSES - 1 => "longer".to_owned(),
            class => micros(class_bound_microseconds(class)),
        };
        let mut text = format!("  {bound:>9} ");
        for kind in kinds {
            let most = kind.classes.iter().copied().max().unwrap_or(0);
            text += &bar(&[(kind.classes[class], '#')], most, column);
            text.push(' ');
        }
        lines.push(text.trim_end().to_owned());
    }
    lines
}

fn per_second(bytes: f64) -> String {
    format!("{}/s", format_size(bytes as u64))
}

fn micros(micros: f64) -> String {
    short(Duration::from_nanos((micros * 1e3) as u64))
}

/// Whole seconds; a time of weeks says only that nothing much happens.
fn eta(seconds: f64) -> String {
    match Duration::try_from_secs_f64(seconds.ceil()) {
        Ok(time) if time < Duration::from_secs(100 * 3600) => format_duration(time),
        _ => "days".into(),
    }
}

/// What fits into a line.
fn cut(line: &str, width: usize) -> String {
    line.chars().take(width).collect::<String>().trim_end().to_owned()
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
