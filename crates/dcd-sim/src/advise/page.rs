//! The advice as one HTML page that needs nothing else: no script, pictures inside, light and dark.
//!
//! Names of files and profiles come from outside: whatever is not written here goes through
//! [`escaped`].

use std::fmt::Write as _;

use super::Advice;
use super::grid::{ack_name, destage_name};
use super::plots::{Picture, over_time, pictures};
use super::recommendation::Verdict;
use super::row::{Response, Row, RowFacts};
use super::trials::TrialKind;
use super::words::{dollars, duration, ms, ms_number, number, percent, size, size_flag, years};
use crate::plot::svg::{escaped, render_view};
use dcd_engine::{AckMode, DestagePolicyKind};

const STYLE: &str = "\
:root{color-scheme:light dark;--paper:#fff;--text:#222;--soft:#666;--line:#ddd;--card:#f5f6f8;\
--good:#0a7a50;--good-paper:#e8f6ef;--bad:#b04a00;--bad-paper:#fdf0e4;--warn:#b04a00}\
@media(prefers-color-scheme:dark){:root{--paper:#16181c;--text:#ddd;--soft:#9aa0a8;--line:#34373d;--card:#1f2228;\
--good:#4cc38a;--good-paper:#15291f;--bad:#f0a45c;--bad-paper:#2e2215;--warn:#f0a45c}}\
*{box-sizing:border-box}\
body{font:16px/1.5 system-ui,sans-serif;background:var(--paper);color:var(--text);max-width:76rem;margin:0 auto;padding:2rem 1.25rem 4rem}\
h1{font-size:1.7rem;line-height:1.25;margin:0 0 .25rem;overflow-wrap:anywhere}h2{font-size:1.2rem;margin:2.5rem 0 .75rem}\
p{margin:.5rem 0}.soft,figcaption{color:var(--soft);font-size:.9rem}\
.verdict{border-left:6px solid var(--bad);background:var(--bad-paper);border-radius:6px;padding:1rem 1.25rem;margin:1.5rem 0 1rem}\
.verdict.good{border-color:var(--good);background:var(--good-paper)}\
.verdict p:first-child{font-size:1.15rem;margin-top:0}.verdict p:last-child{margin-bottom:0}\
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(11rem,1fr));gap:.75rem;margin:1rem 0}\
.tile{background:var(--card);border-radius:6px;padding:.7rem .9rem}\
.tile b{display:block;font-size:1.35rem;font-weight:600;font-variant-numeric:tabular-nums}\
.tile span{color:var(--soft);font-size:.85rem;display:block}\
ul{margin:.5rem 0;padding-left:1.25rem}li{margin:.3rem 0}\
.warning{color:var(--warn);font-weight:600}\
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.82rem;font-variant-numeric:tabular-nums}\
td,th{padding:.3rem .45rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}th{white-space:normal}\
th{font-weight:600;color:var(--soft);vertical-align:bottom}td:first-child,th:first-child{text-align:left}\
th.group{text-align:center;border-bottom:0;padding-bottom:0}tr.bare td{font-weight:600}tr.first td{border-top:2px solid var(--line)}tr.chosen td{background:var(--good-paper);font-weight:600}\
td.error{text-align:left;color:var(--warn);white-space:normal}\
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(30rem,100%),1fr));gap:1.5rem 1rem}\
figure{margin:0}.plots .dcd-plot{font-size:15px}.plots .dcd-plot .title{font-size:17px}.plots dl{align-content:start}svg{display:block;width:100%;height:auto}figcaption{padding-left:10%}\
pre{background:var(--card);border-radius:6px;padding:.8rem 1rem;overflow-x:auto;font-size:.88rem}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1.5rem;margin:.5rem 0}dt{color:var(--soft)}dd{margin:0}";

/// How every page begins.
pub const BEGINNING: &str = "<!doctype html>\n<!-- dcd advise -->\n";

/// The whole page.
pub fn page(advice: &Advice) -> String {
    let mut page = String::new();
    // Writing to a string does not fail.
    let _ = write_page(&mut page, advice);
    page
}

fn write_page(page: &mut String, advice: &Advice) -> std::fmt::Result {
    let (load, disk) = (escaped(&advice.load.name), escaped(&advice.disk));
    writeln!(
        page,
        "{BEGINNING}<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>dcd for {load} on {disk}</title><style>{STYLE}</style></head><body>"
    )?;
    writeln!(page, "<h1>What dcd would do for {load} on {disk}</h1>")?;
    writeln!(
        page,
        "<p class=\"soft\">A log on a second device in front of the disk, simulated with the engine of dcd on models of \
         both.</p>"
    )?;
    write_verdict(page, advice)?;
    write_tiles(page, advice)?;
    write_limits(page, advice)?;
    write_commands(page, advice)?;
    writeln!(page, "<h2>By size of the log</h2><div class=\"plots\">")?;
    for picture in pictures(advice) {
        write_picture(page, &picture)?;
    }
    writeln!(page, "</div>")?;
    write_table(page, advice)?;
    write_trials(page, advice)?;
    write_load(page, advice)?;
    write_words(page)?;
    writeln!(page, "</body></html>")
}

/// A picture that cannot be drawn is left out; the table has its numbers.
fn write_picture(page: &mut String, picture: &Picture) -> std::fmt::Result {
    let Ok(svg) = render_view(&picture.plot, &picture.view) else { return Ok(()) };
    let caption = escaped(&picture.caption);
    writeln!(page, "<figure>{svg}<figcaption>{caption}</figcaption></figure>")
}

fn write_verdict(page: &mut String, advice: &Advice) -> std::fmt::Result {
    let recommendation = &advice.recommendation;
    let class = match recommendation.verdict {
        Verdict::Helps | Verdict::FewerWrites => "verdict good",
        Verdict::NoHelp | Verdict::Overloaded | Verdict::Unknown => "verdict",
    };
    writeln!(page, "<div class=\"{class}\"><p>{}</p>", escaped(&recommendation.sentence))?;
    if !recommendation.details.is_empty() {
        writeln!(page, "<p>{}</p>", escaped(&recommendation.details.join(" ")))?;
    }
    if let Some(sequences) = &advice.sequences {
        writeln!(page, "<p>{}</p>", escaped(&sequences.sentence))?;
    }
    if let Some(trials) = advice.trials.as_ref().filter(|trials| !trials.sentences.is_empty()) {
        writeln!(page, "<p>{}</p>", escaped(&trials.sentences.join(" ")))?;
    }
    writeln!(page, "</div>")
}

/// What was tried beside the log that is recommended, or the best.
fn write_trials(page: &mut String, advice: &Advice) -> std::fmt::Result {
    let Some(trials) = &advice.trials else { return Ok(()) };
    writeln!(
        page,
        "<h2>Tried beside it</h2><div class=\"scroll\"><table><tr><th>what</th><th>size</th><th>mean, ms</th>\
         <th>reads, ms</th><th>writes, ms</th><th>less waiting than the bare disk</th><th>than the log alone</th></tr>"
    )?;
    for trial in &trials.tried {
        let what = match trial.kind {
            TrialKind::ReadArea => "log with a read area",
            TrialKind::WriteThrough => "write-through, with a read area",
            TrialKind::WriteAround => "write-around, with a read area",
            TrialKind::Nvram => "non-volatile memory, no log",
        };
        write!(page, "<tr><td>{what}</td><td>{}</td>", size(trial.bytes))?;
        match (&trial.facts, &trial.error) {
            (Some(facts), _) => {
                let mean = |ms: Option<f64>| ms.map_or("-".into(), ms_number);
                writeln!(
                    page,
                    "<td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                    ms_number(facts.mean_ms),
                    mean(facts.read_mean_ms),
                    mean(facts.write_mean_ms),
                    percent(facts.faster_percent),
                    percent(facts.faster_than_log_percent),
                )?;
            }
            (None, error) => writeln!(
                page,
                "<td class=\"error\" colspan=\"5\">{}</td></tr>",
                escaped(error.as_deref().unwrap_or("no reason is known"))
            )?,
        }
    }
    writeln!(page, "</table></div>")
}

/// The numbers of the recommended log, or of the best, beside the bare disk.
fn write_tiles(page: &mut String, advice: &Advice) -> std::fmt::Result {
    let row = advice.recommendation.row.and_then(|index| advice.rows.get(index));
    let (Some(bare), Some(row)) = (&advice.bare.facts, row) else { return Ok(()) };
    let (Some(facts), Some(log)) = (&row.facts, row.log()) else { return Ok(()) };
    let left = size(log.left_lines * 4096);
    let p99 = |response: Option<Response>| response.map(|response| response.p99_ms);
    let mut tiles =
        vec![("mean response", ms(facts.mean_ms), format!("bare disk {}", ms(bare.mean_ms)))];
    for (what, own, bare) in [
        ("99 of 100 writes within", p99(facts.write), p99(bare.write)),
        ("99 of 100 reads within", p99(facts.read), p99(bare.read)),
        ("99 of 100 flushes within", p99(facts.flush), p99(bare.flush)),
    ] {
        if let (Some(own), Some(bare)) = (own, bare) {
            tiles.push((what, ms(own), format!("bare disk {}", ms(bare))));
        }
    }
    let writes = format!("{} instead of {}", number(facts.disk_writes), number(bare.disk_writes));
    tiles.push(match facts.fewer_disk_writes_percent {
        fewer if fewer < 0.0 => ("more writes to the disk", percent(-fewer), writes),
        fewer => ("fewer writes to the disk", percent(fewer), writes),
    });
    tiles.push((
        "writes that wait for room",
        percent(log.stalled_percent),
        match log.drain_s {
            Some(seconds) => {
                format!("{left} left in the log at the end, emptied in {}", duration(seconds))
            }
            None => format!("{left} left in the log at the end, and never emptied"),
        },
    ));
    if let Some(wear) = log.wear {
        let lasts = wear.years.map(|lasts| format!("endures {}", years(lasts)));
        let rate = wear.drive_writes_per_day.map(|rate| format!("{rate:.3} drive writes a day"));
        let below = lasts.or(rate).unwrap_or("no wear by writing".into());
        tiles.push(("to the cache device in a day", size(wear.bytes_per_day as u64), below));
    }
    let name = match (&row.cache_device, row.cache_bytes) {
        (Some(device), Some(bytes)) => format!("{} on {}", size(bytes), escaped(device)),
        _ => String::new(),
    };
    writeln!(page, "<p class=\"soft\">A log of {name}:</p><div class=\"tiles\">")?;
    for (what, value, below) in tiles {
        let [what, value, below] = [what, &value, &below].map(escaped);
        writeln!(
            page,
            "<div class=\"tile\"><span>{what}</span><b>{value}</b><span>{below}</span></div>"
        )?;
    }
    writeln!(page, "</div>")
}

fn write_limits(page: &mut String, advice: &Advice) -> std::fmt::Result {
    writeln!(page, "<h2>What this is worth</h2><ul>")?;
    for limit in &advice.recommendation.limits {
        let class = if advice.pace.overload.is_some() && limit.starts_with("The trace is from") {
            " class=\"warning\""
        } else {
            ""
        };
        writeln!(page, "<li{class}>{}</li>", escaped(limit))?;
    }
    writeln!(
        page,
        "<li>The disks are models, not yours: <code>dcd disk show</code> tells what they are, and a TOML file describes \
         another.</li></ul>"
    )
}

fn write_commands(page: &mut String, advice: &Advice) -> std::fmt::Result {
    let recommendation = &advice.recommendation;
    let row = recommendation.row.and_then(|index| advice.rows.get(index));
    let is_recommended = matches!(recommendation.verdict, Verdict::Helps | Verdict::FewerWrites);
    let Some(row) = row.filter(|_| is_recommended) else { return Ok(()) };
    let bytes = row.cache_bytes.unwrap_or(0);
    let differs = |flag: &str, value: Option<&'static str>, usual: &str| match value {
        Some(value) if value != usual => format!(" {flag} {value}"),
        _ => String::new(),
    };
    let ack = differs("--ack", row.ack, ack_name(AckMode::default()));
    let usual = destage_name(DestagePolicyKind::default());
    let (data, size_of_disk, destage) = match advice.is_object_store {
        // There it is the only order.
        true => ("s3://BUCKET/PREFIX", " --size SIZE", String::new()),
        false => ("/dev/DISK", "", differs("--destage-policy", row.destage, usual)),
    };
    writeln!(
        page,
        "<h2>To have it</h2><pre>dcd create --cache-disk FAST-DEVICE --cache-size {} --data-disk {data}{size_of_disk}\n\
         dcd serve  --cache-disk FAST-DEVICE --data-disk {data} --nbd unix:/run/dcd.sock{ack}{destage}</pre>",
        size_flag(bytes)
    )
}

fn write_table(page: &mut String, advice: &Advice) -> std::fmt::Result {
    let has_flushes = advice.load.summary.flushes > 0;
    let shown = Shown { has_flushes, has_cost: advice.has_cost() };
    let columns = columns(shown);
    let count: usize = columns.iter().map(|(_, names)| names.len()).sum();
    writeln!(page, "<h2>All that was simulated</h2><div class=\"scroll\"><table><tr>")?;
    for (group, names) in &columns {
        writeln!(page, "<th class=\"group\" colspan=\"{}\">{group}</th>", names.len())?;
    }
    writeln!(page, "</tr><tr>")?;
    for name in columns.iter().flat_map(|(_, names)| *names) {
        writeln!(page, "<th>{name}</th>")?;
    }
    writeln!(page, "</tr>")?;
    let bare = format!("none: {} alone", advice.disk);
    write_row(page, &advice.bare, &bare, "bare", shown, count)?;
    for curve in &advice.curves {
        for (place, &index) in curve.rows.iter().enumerate() {
            let class = match (advice.recommendation.row == Some(index), place) {
                (true, _) if advice.recommendation.verdict != Verdict::NoHelp => "chosen",
                (_, 0) => "first",
                _ => "",
            };
            write_row(page, &advice.rows[index], &curve.name, class, shown, count)?;
        }
    }
    writeln!(page, "</table></div>")
}

/// Columns that are not always there.
#[derive(Clone, Copy)]
struct Shown {
    has_flushes: bool,
    has_cost: bool,
}

/// Groups of columns, and the columns of each: what [`cells`] fills.
fn columns(shown: Shown) -> Vec<(&'static str, &'static [&'static str])> {
    let mut columns: Vec<(&str, &[&str])> = vec![
        ("", &["log", "size", "segments", "faster"]),
        ("all, ms", &["mean"]),
        ("writes, ms", &["mean", "p50", "p99"]),
        ("reads, ms", &["mean", "p50", "p99"]),
    ];
    if shown.has_flushes {
        columns.push(("flushes, ms", &["mean", "p99"]));
    }
    columns.extend([
        ("disk", &["writes", "fewer", "fewer bytes", "busy"] as &[_]),
        ("log", &["wait", "read hits"]),
        ("cache device", &["a day", "endures"]),
        ("at the end", &["left", "to empty"]),
    ]);
    if shown.has_cost {
        columns.push(("a month", &["USD"]));
    }
    columns
}

fn write_row(
    page: &mut String,
    row: &Row,
    name: &str,
    class: &str,
    shown: Shown,
    columns: usize,
) -> std::fmt::Result {
    let [bytes, segments] =
        [row.cache_bytes, row.segment_bytes].map(|bytes| bytes.map_or(String::new(), size));
    let name = escaped(name);
    write!(page, "<tr class=\"{class}\"><td>{name}</td><td>{bytes}</td><td>{segments}</td>")?;
    let Some(facts) = &row.facts else {
        let error = escaped(row.error.as_deref().unwrap_or_default());
        return writeln!(page, "<td class=\"error\" colspan=\"{}\">{error}</td></tr>", columns - 3);
    };
    for cell in cells(facts, shown) {
        write!(page, "<td>{cell}</td>")?;
    }
    writeln!(page, "</tr>")
}

/// Of a row, behind its name and size.
fn cells(facts: &RowFacts, shown: Shown) -> Vec<String> {
    let log = facts.log.as_ref();
    let of_log = |value: &dyn Fn(&super::row::LogRow) -> String| log.map_or(String::new(), value);
    let times = |response: Option<Response>| match response {
        Some(response) => [response.mean_ms, response.p50_ms, response.p99_ms].map(ms_number),
        None => Default::default(),
    };
    let gain = |value: f64| if log.is_some() { percent(value) } else { String::new() };
    let mut cells = vec![gain(facts.faster_percent), ms_number(facts.mean_ms)];
    cells.extend(times(facts.write));
    cells.extend(times(facts.read));
    if shown.has_flushes {
        let [mean, _, p99] = times(facts.flush);
        cells.extend([mean, p99]);
    }
    cells.extend([
        number(facts.disk_writes),
        gain(facts.fewer_disk_writes_percent),
        gain(facts.fewer_disk_bytes_percent),
        percent(facts.disk_busy_percent),
        of_log(&|log| match log.failed_requests {
            0 => percent(log.stalled_percent),
            failed => format!("{}, {} failed", percent(log.stalled_percent), number(failed)),
        }),
        of_log(&|log| percent(log.read_hit_percent)),
        of_log(&|log| log.wear.map_or(String::new(), |wear| size(wear.bytes_per_day as u64))),
        of_log(&|log| log.wear.and_then(|wear| wear.years).map_or("-".into(), years)),
        of_log(&|log| size(log.left_lines * 4096)),
        of_log(&|log| log.drain_s.map_or("never".into(), duration)),
    ]);
    if shown.has_cost {
        cells.push(facts.cost.map_or("-".into(), |cost| dollars(cost.month_usd)));
    }
    cells
}

fn write_load(page: &mut String, advice: &Advice) -> std::fmt::Result {
    let summary = &advice.load.summary;
    let (set, mean, peak) = (&summary.working_set, &summary.mean, &summary.peak);
    let amount = |count: u64, bytes: u64| format!("{}, {}", number(count), size(bytes));
    let rows = [
        ("requests", format!("{} in {}", number(summary.requests), duration(summary.duration_s))),
        ("reads", amount(summary.reads.count, summary.reads.bytes)),
        ("writes", amount(summary.writes.count, summary.writes.bytes)),
        (
            "flushes, and writes with one",
            format!("{}, {}", number(summary.flushes), number(summary.fua_writes)),
        ),
        ("discards, not simulated", number(summary.discards.count)),
        (
            "rate",
            format!(
                "{:.1} requests/s on average, {:.0} in the busiest second",
                mean.requests_per_second, peak.requests_per_second
            ),
        ),
        ("in sequence", percent(summary.sequential_percent)),
        (
            "different places",
            format!("{} in all, {} of them written", size(set.bytes), size(set.written_bytes)),
        ),
        (
            "written again",
            format!(
                "{} of the written sectors within 30 s, {} ever",
                percent(set.overwritten_30_s_percent),
                percent(set.overwritten_percent)
            ),
        ),
    ];
    writeln!(page, "<h2>The load</h2><div class=\"plots\"><dl>")?;
    for (name, value) in rows {
        writeln!(page, "<dt>{name}</dt><dd>{value}</dd>")?;
    }
    writeln!(page, "</dl>")?;
    if let Some(picture) = over_time(&advice.load.over_time) {
        write_picture(page, &picture)?;
    }
    writeln!(page, "</div>")
}

fn write_words(page: &mut String) -> std::fmt::Result {
    writeln!(
        page,
        "<h2>Words</h2><dl>\
         <dt>faster</dt><dd>share of the time that all requests together wait (reads, writes, flushes) that is gone</dd>\
         <dt>p50, p99</dt><dd>half of the requests, and 99 of 100, take at most so long</dd>\
         <dt>knee</dt><dd>the smallest log with at least 95 % of the most gain in which hardly any write (1 %) waits for room</dd>\
         <dt>disk: writes</dt><dd>those that empty the log at the end count too: what is put off is not saved</dd>\
         <dt>wait</dt><dd>the log was full: the write waited until the disk had taken something</dd>\
         <dt>cache device, a day</dt><dd>bytes written to it, counted in the simulation (records, checkpoints, superblocks), as if the load went on like this</dd>\
         <dt>endures</dt><dd>until what the data sheet allows to be written (TBW) is written</dd>\
         <dt>left, to empty</dt><dd>what only the log has at the end, and how long moving it to the disk takes</dd>\
         <dt>a month</dt><dd>requests, transfer, room and wear at the prices of the profiles, as if the load went on for 730 hours as fast as it came: the same load for all rows, also where each request waits for the one before</dd></dl>"
    )
}
