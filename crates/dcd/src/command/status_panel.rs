//! The picture of a running dcd for people: facts, segments, figures, and histograms of response
//! times like Figures 11 and 12 of the USENIX'99 paper.

use std::time::Duration;

use dcd_daemon::device::network::store_report::StoreReport;
use dcd_daemon::event_loop::response_times::HistogramReport;
use dcd_daemon::process::isolation::IsolationReport;
use dcd_daemon::report::network::NetworkReport;
use dcd_daemon::report::nvram::{NvramControlReport, NvramReport};
use dcd_daemon::report::status_report::{ModeSummary, StatusReport};
use dcd_daemon::report::volumes::VolumeReport;
use dcd_daemon::units_text::{format_duration, format_size};
use dcd_engine::units::LINE_SIZE;

use dcd_client::plain::plain;

use crate::command::cache_disk;
use crate::output::{Colour, Paint, bar, count};

/// Width of the bars.
const BAR_WIDTH: usize = 50;

/// The whole picture.
pub fn panel(report: &StatusReport, paint: Paint) -> String {
    let mut text = String::new();
    text += &facts(report, paint);
    text += &segments(report, paint);
    text += &figures(report, paint);
    let times = &report.response_times;
    for (name, histogram) in
        [("reads", &times.reads), ("writes", &times.writes), ("flushes", &times.flushes)]
    {
        text += &response_times(name, histogram, paint);
    }
    text
}

/// `name value`, the names under each other.
fn line(name: &str, value: &str) -> String {
    format!("  {}\n", format!("{name:<14} {value}").trim_end())
}

fn facts(report: &StatusReport, paint: Paint) -> String {
    let (words, colour) = state(report);
    let uptime = Duration::from_secs(report.uptime_seconds as u64);
    let mut text = format!(
        "{} {}; process {}, up for {}\n",
        paint.paint(Colour::Title, "dcd"),
        paint.paint(colour, &words),
        report.pid,
        format_duration(uptime)
    );
    let one = if report.one_disk { " (one disk with the data)" } else { "" };
    text += &line("cache", &format!("{} on {}{one}", report.uuid, report.cache_disk));
    text +=
        &line("data-disk", &format!("{}, {}", report.data_disk, format_size(report.volume_bytes)));
    text += &match report.read_only {
        true => line("acknowledges", "no changes: read-only"),
        false => line("acknowledges", ack_words(&report.ack)),
    };
    text += &memory_words(report, paint);
    if let Some(ack) = &report.tcp_ack {
        text += &line("over TCP", ack_words(ack));
    }
    text += &line("isolation", &isolation_words(&report.isolation));
    for dead in &report.dead_loops {
        text += &line("dead device", dead);
    }
    for name in &report.names_lost {
        let words = format!("{name} leads elsewhere: give the file that is served this name again");
        text += &line("lost name", &paint.paint(Colour::Warning, &words));
    }
    if let Some(problem) = &report.vhost_user_problem {
        text += &line("vhost-user", problem);
    }
    text += &line("NBD clients", &report.nbd_connections.to_string());
    let recovery = &report.recovery;
    let how = if recovery.was_closed { "after an end in order" } else { "after a crash" };
    let took = Duration::from_secs_f64(recovery.seconds.max(0.0));
    text += &line(
        "opened",
        &format!(
            "{how}: {} read, {} replayed ({} from memory) in {}",
            format_size(recovery.bytes_read),
            count(recovery.records, "record"),
            recovery.records_from_memory,
            short(took)
        ),
    );
    if let Some(error) = report.cache_disk_error.as_ref().filter(|_| report.cache_disk_failed) {
        let what = match report.uncached.as_deref() {
            Some("passing-through") => "nothing on it was newer; all goes to the data-disk",
            Some("writing-through") => "nothing on it was newer; memory goes to the data-disk",
            _ => "until a restart",
        };
        text += &line("cache-disk", &paint.paint(Colour::Bad, &format!("failed: {error}; {what}")));
    }
    for leg in &report.legs {
        let name = leg.disk.as_deref().unwrap_or(&leg.leg);
        let words = format!("{}: {}", plain(name), cache_disk::words(leg));
        let colour = if leg.is_in_sync() { Colour::Good } else { Colour::Bad };
        text += &line("leg", &paint.paint(colour, &words));
    }
    for disk in &report.network_disks {
        let colour = if disk.is_connected() { Colour::Good } else { Colour::Bad };
        text += &line("network", &paint.paint(colour, &network_words(disk)));
    }
    if let Some(store) = &report.store {
        let colour = if store.problem.is_some() { Colour::Bad } else { Colour::Good };
        text += &line("store", &paint.paint(colour, &store_words(store)));
        if let Some(hint) = &store.hint {
            text += &line("", &format!("hint: {}", plain(hint)));
        }
    }
    if let Some(witness) = &report.leg_witness {
        let colour = if witness.state == "votes" { Colour::Good } else { Colour::Bad };
        text += &line("witness", &paint.paint(colour, &cache_disk::witness_words(witness)));
    }
    if let Some(nvram) = &report.nvram {
        text += &line("in front", &nvram_words(nvram, paint));
        if let Some(control) = &nvram.control {
            text += &line("why now", &control_words(control));
        }
    }
    if let Some(failed) = &report.failed_nvram
        && report.nvram.is_none()
    {
        let what = format!(
            "nothing: the memory {} has FAILED, and has gone; the next start has to do without it",
            plain(failed)
        );
        text += &line("in front", &paint.paint(Colour::Bad, &what));
    }
    if let Some(volume) = &report.volume {
        text += &line("volume", &volume_words(volume, paint));
    }
    if recovery.data_disk_changed {
        let what = "the data-disk had changed; the cache was empty";
        text += &line("at start", &paint.paint(Colour::Warning, what));
    }
    if report.poisoned_lines > 0 {
        let lost = format!("{} of 4 KiB fail until written", count(report.poisoned_lines, "line"));
        text += &line("damaged", &paint.paint(Colour::Bad, &lost));
    }
    text
}

/// A network disk.
fn network_words(disk: &NetworkReport) -> String {
    let since = format_duration(Duration::from_secs(disk.seconds.max(0.0) as u64));
    let mut words = format!("{} {}: {} for {since}", disk.role, plain(&disk.disk), disk.state);
    if disk.is_connected() {
        words += &format!(", {}", count(disk.connections as u64, "connection"));
    } else if let Some(problem) = &disk.problem {
        words += &format!(": {}", plain(problem));
    }
    if disk.waiting > 0 {
        words += &format!(", {} waiting", disk.waiting);
    }
    if disk.reconnects > 0 {
        words += &format!(", lost and made again {} so far", count(disk.reconnects, "time"));
    }
    words
}

/// An object store; what is wrong with it stands in the first line.
fn store_words(store: &StoreReport) -> String {
    let lease = format_duration(Duration::from_secs(store.lease_seconds));
    format!("{}; its lease of {lease} is {}", store.state, store.lease)
}

/// The memory in front of the log.
pub fn nvram_words(nvram: &NvramReport, paint: Paint) -> String {
    let (dirty, capacity) = (format_size(nvram.dirty_bytes), format_size(nvram.capacity_bytes));
    let mut words = format!("{dirty} of {capacity} in {}", plain(&nvram.disk));
    if nvram.damaged_blocks > 0 {
        let damaged = format!(", {} damaged", count(nvram.damaged_blocks, "block"));
        words += &paint.paint(Colour::Bad, &damaged);
    }
    match (nvram.failed, nvram.state.as_str()) {
        (true, "leaving") => {
            words += &paint.paint(Colour::Bad, ", FAILED: changes wait until it is empty");
        }
        (true, _) => words += &paint.paint(Colour::Bad, ", FAILED: changes fail until a restart"),
        (false, "joining") => words += ", to be used soon",
        (false, "leaving") => words += ", being emptied",
        _ => {}
    }
    words
}

/// What is cleaned when in the memory in front of the log, and why.
fn control_words(control: &NvramControlReport) -> String {
    let time = |us: u64| format_duration(Duration::from_micros(us));
    let mut words = format!("{}: {}", control.arm, control.does);
    if let Some(waited) = control.waited_us.get(&control.arm) {
        words += &format!("; requests waited {} of late", time(*waited));
    }
    let others = control.waited_us.iter().filter(|(arm, _)| **arm != control.arm);
    if let Some((arm, waited)) = others.min_by_key(|(_, waited)| **waited) {
        words += &format!(", {} with {arm}", time(*waited));
    }
    if let Some(last) = &control.last_switch {
        words += &format!(
            "; taken after {} for {}: {} against {}",
            count(last.after_requests, "request"),
            last.from,
            time(last.to_waited_us),
            time(last.from_waited_us)
        );
    }
    words
}

/// The memory that outlives the process.
fn memory_words(report: &StatusReport, paint: Paint) -> String {
    let memory = &report.memory;
    if memory.path.is_empty() {
        return String::new();
    }
    if memory.is_missing {
        let words = format!("MISSING: {} is gone; acknowledged is what is durable", memory.path);
        return line("memory", &paint.paint(Colour::Bad, &words));
    }
    let times = match memory.times_put_back {
        0 => String::new(),
        count => format!(", was gone and put back {}", times_of(count)),
    };
    line("memory", &format!("{} in {}{times}", format_size(memory.bytes), memory.path))
}

fn times_of(count: u64) -> String {
    match count {
        1 => "once".into(),
        count => format!("{count} times"),
    }
}

/// What the process is kept from.
fn isolation_words(isolation: &IsolationReport) -> String {
    let mut words = vec![match isolation.user {
        0 => "root".to_owned(),
        user => format!("user {user}"),
    }];
    words.push(match isolation.capability_names().as_deref() {
        None => "all capabilities".to_owned(),
        Some([]) => "no capabilities".to_owned(),
        Some(names) => format!("capabilities {}", names.join("+")),
    });
    for (is_so, word) in [
        (isolation.no_new_privileges, "no new privileges"),
        (isolation.system_calls_filtered, "system calls filtered"),
        (isolation.own_mounts == Some(true), "mounts of its own"),
        (isolation.io_flusher, "I/O flusher"),
        (isolation.memory_locked, "memory locked"),
        (isolation.files_confined, "files confined"),
    ] {
        if is_so {
            words.push(word.to_owned());
        }
    }
    words.join(", ")
}

/// How its members are, in a line; `dcd volume status` tells more.
fn volume_words(volume: &VolumeReport, paint: Paint) -> String {
    let other = volume.members.iter().filter(|member| member.state != "up-to-date");
    let other: Vec<String> =
        other.map(|member| format!("member {} is {}", member.member, member.state)).collect();
    let work = volume.work.as_ref().map_or(String::new(), |work| {
        format!("; {} {:.0} %", work.kind, work.done as f64 * 100.0 / work.total.max(1) as f64)
    });
    let members = count(volume.members.len() as u64, "member");
    let mut bad: Vec<String> = other;
    let suspect = volume.members.iter().filter(|member| member.suspect);
    bad.extend(suspect.map(|member| format!("member {} is suspect", member.member)));
    if volume.lines_lost() > 0 {
        let size = format_size(volume.lines_lost().saturating_mul(LINE_SIZE));
        bad.push(format!("{size} lost: reads fail until it is written again"));
    }
    if volume.changes_refused > 0 {
        bad.push(format!("{} refused", count(volume.changes_refused, "change")));
    }
    match bad.is_empty() {
        true => format!("{members}, {}{work}", paint.paint(Colour::Good, "whole")),
        false => format!("{members}, {}{work}", paint.paint(Colour::Bad, &bad.join(", "))),
    }
}

/// What it is doing, and whether that is well.
pub fn state(report: &StatusReport) -> (String, Colour) {
    // Where the log is not used for another reason than the mode, that is what counts.
    let is_for_the_mode = match report.uncached.as_deref() {
        None => !report.cache_disk_failed,
        Some(uncached) => uncached == "failed" && !report.cache_disk_failed,
    };
    if let Some(words) = mode_words(&report.mode).filter(|_| is_for_the_mode) {
        return words;
    }
    let (words, colour) = state_with_its_log(report);
    // What is over comes behind what still lasts, which may be why.
    match given_up_words(&report.mode).filter(|_| is_for_the_mode) {
        Some(given_up) => (format!("{words}; {given_up}"), Colour::Bad),
        None => (words, colour),
    }
}

/// The same, whatever its mode.
fn state_with_its_log(report: &StatusReport) -> (String, Colour) {
    let (words, colour) = if let Some(uncached) = &report.uncached {
        match uncached.as_str() {
            "writing-through" => {
                ("holds writes back: UNCACHED soon, the cache-disk has failed", Colour::Bad)
            }
            _ if !report.cache_disk_failed => ("serves without its log, as told", Colour::Warning),
            "passing-through" => ("serves UNCACHED: the cache-disk has failed", Colour::Bad),
            _ => ("refuses writes: both disks have failed", Colour::Bad),
        }
    } else if report.cache_disk_failed {
        ("refuses writes: the cache-disk has failed", Colour::Bad)
    } else if let Some(store) = report.store.as_ref().filter(|store| store.is_lost()) {
        let why = plain(store.problem.as_deref().unwrap_or_default());
        let dirty = format_size(report.dirty_bytes);
        let words = format!("serves, SHUT OUT of its store: {why}; {dirty} only here");
        return (words, Colour::Bad);
    } else if report.destage_held_back
        || report.store.as_ref().is_some_and(|it| it.problem.is_some())
    {
        let why = plain(report.destage_words());
        let dirty = format_size(report.dirty_bytes);
        let words = format!("serves, and waits to destage: {why}; {dirty} to go");
        return (words, Colour::Bad);
    } else if report.destage_blocked_lines > 0 {
        let lines = count(report.destage_blocked_lines, "line");
        let words = format!("serves; the data-disk does not take {lines} of 4 KiB");
        return (words, Colour::Warning);
    } else if let Some(problem) = report.ordered.as_ref().and_then(|it| it.problem.as_ref()) {
        let words = format!("serves; the data-disk waits for the window hook: {problem}");
        return (words, Colour::Bad);
    } else if let Some(resize) = &report.resize {
        let left = format_size(resize.lines_left.saturating_mul(LINE_SIZE));
        let (before, wanted) = (resize.read_area_bytes_before, resize.read_area_bytes_wanted);
        let what = match resize.segments_wanted > resize.segments_before {
            _ if wanted > before => format!("serves, and its read area grows: {left} to go"),
            _ if wanted < before => "serves, and its read area shrinks".to_owned(),
            true => "serves, and its log grows".to_owned(),
            false => format!("serves, and its log shrinks: {left} to go"),
        };
        return (what, Colour::Good);
    } else if report.draining {
        ("serves, and is draining", Colour::Good)
    } else {
        ("serves", Colour::Good)
    };
    (words.to_owned(), colour)
}

/// Where changes go, if not as ever.
fn mode_words(mode: &ModeSummary) -> Option<(String, Colour)> {
    let ModeSummary { mode, switch, lines_left, seconds, .. } = mode;
    let left = format_size(lines_left.saturating_mul(LINE_SIZE));
    let since = Duration::try_from_secs_f64(seconds.unwrap_or_default()).unwrap_or_default();
    let since = short(since);
    Some(match switch.as_str() {
        "draining" => {
            (format!("serves, and leaves its log since {since}: {left} to go"), Colour::Warning)
        }
        "holding" => ("holds writes back, to switch its mode".to_owned(), Colour::Warning),
        "failed" => (
            "refuses writes: the data-disk has failed, and the log is not used".into(),
            Colour::Bad,
        ),
        "given-up" => return None,
        _ if mode == "pass-through" => ("serves past its log, as told".into(), Colour::Warning),
        _ if mode == "write-through" || mode == "write-around" => {
            ("serves, and writes past its log, as told".into(), Colour::Good)
        }
        _ => return None,
    })
}

/// That a switch of the mode was given up, and what was in its way then.
fn given_up_words(mode: &ModeSummary) -> Option<String> {
    let why = mode.error.as_deref().unwrap_or("no reason is known");
    let ModeSummary { mode, switch, .. } = mode;
    let words = format!("it stays in {mode}, the switch was given up: {why}");
    (switch == "given-up").then_some(words)
}

fn ack_words(ack: &str) -> &str {
    match ack {
        "memory" => "memory: when in memory that outlives dcd",
        "log" => "log: when written to the cache-disk",
        "durable" => "durable: when it survives a power cut",
        other => other,
    }
}

fn segments(report: &StatusReport, paint: Paint) -> String {
    let segments = &report.segments;
    let parts = [
        (segments.dirty.into(), '#'),
        (segments.buffered.into(), '+'),
        (segments.empty.into(), '-'),
        (segments.free.into(), '.'),
    ];
    let mut text = format!(
        "\n{} {} of {}\n",
        paint.paint(Colour::Title, "segments"),
        segments.total,
        format_size(segments.size_bytes)
    );
    text += &format!("  [{}]\n", bar(&parts, segments.total.into(), BAR_WIDTH));
    text += &format!(
        "  # dirty {}   + in a buffer {}   - empty {}   . free {}\n",
        segments.dirty, segments.buffered, segments.empty, segments.free
    );
    let zeroes = match report.zero_ranges {
        0 => String::new(),
        ranges => format!(", and {} to be zeroed", count(ranges, "range")),
    };
    text += &line("dirty", &format!("{}{zeroes}", format_size(report.dirty_bytes)));
    text += &line("in use", &format!("{:.1}%", report.utilisation * 100.0));
    let threshold = Duration::from_nanos((report.idle_threshold_microseconds * 1e3) as u64);
    text += &line("destages after", &format!("{} of quiet", short(threshold)));
    let of_most = match report.index_bytes_max {
        0 => String::new(),
        most => format!(", {} at most", format_size(most)),
    };
    text += &line("index", &format!("{} of memory{of_most}", format_size(report.index_bytes)));
    let copies = &report.copies;
    if copies.read_area_bytes > 0 {
        let stale = match copies.stale_bytes {
            0 => String::new(),
            stale => format!(", {} to be copied", format_size(stale)),
        };
        text += &line(
            "copies",
            &format!(
                "{} of {}{stale}; {}",
                format_size(copies.valid_bytes),
                format_size(copies.read_area_bytes),
                count(copies.sequences, "sequence")
            ),
        );
    }
    text
}

fn figures(report: &StatusReport, paint: Paint) -> String {
    let (counters, figures) = (&report.counters, &report.figures);
    let mut text = format!("\n{}\n", paint.paint(Colour::Title, "figures"));
    let percent = |part: f64| format!("{:.1}%", part * 100.0);
    let requests = |requests: u64, bytes: u64| format!("{requests} ({})", format_size(bytes));
    text += &line("reads", &requests(counters.reads, counters.read_bytes));
    text += &line("writes", &requests(counters.writes, counters.write_bytes));
    text += &line("past the log", &requests(counters.bypasses, counters.bypass_bytes));
    text += &line("flushes", &format!("{}, FUA {}", counters.flushes, counters.fuas));
    text += &line("hit rate", &format!("{} of lines read", percent(figures.read_hit_rate)));
    text += &line("overwrites", &format!("{} of lines logged", percent(figures.overwrite_rate)));
    text += &line(
        "amplification",
        &format!("{:.2} bytes logged for each byte written", figures.write_amplification),
    );
    text += &line(
        "destaged",
        &format!(
            "{} in {}: {:.2} disk writes for each 4 KiB",
            format_size(counters.destage_write_bytes),
            count(counters.destage_writes, "write"),
            figures.merge_ratio
        ),
    );
    text += &line("stalls", &format!("{} for want of room", counters.stalled_writes));
    let errors = [
        ("cache-disk", counters.cache_disk_errors),
        ("data-disk", counters.data_disk_errors),
        ("checksum", counters.checksum_errors),
    ];
    if errors.iter().any(|(_, errors)| *errors > 0) {
        let words: Vec<String> =
            errors.iter().map(|(name, errors)| format!("{name} {errors}")).collect();
        text += &line("errors", &paint.paint(Colour::Bad, &words.join(", ")));
    }
    text
}

/// One histogram: a row for each power of two.
fn response_times(name: &str, histogram: &HistogramReport, paint: Paint) -> String {
    if histogram.count == 0 {
        return String::new();
    }
    let time = |micros: f64| short(Duration::from_nanos((micros * 1e3) as u64));
    let title = format!("response times of {name}");
    let mut text = format!(
        "\n{}: {} of them, mean {}, half within {}, 99% within {}, longest {}\n",
        paint.paint(Colour::Title, &title),
        histogram.count,
        time(histogram.mean),
        time(histogram.p50),
        time(histogram.p99),
        time(histogram.max)
    );
    let most = histogram.buckets.iter().map(|bucket| bucket.count).max().unwrap_or(1);
    for bucket in &histogram.buckets {
        let share = bucket.count as f64 * 100.0 / histogram.count as f64;
        let bar = bar(&[(bucket.count, '#')], most, BAR_WIDTH);
        let row = format!("  < {:>7} {share:>5.1}% {bar}", time(bucket.to));
        text += row.trim_end();
        text.push('\n');
    }
    text
}

/// A time in at most three digits.
pub fn short(time: Duration) -> String {
    let nanos = time.as_nanos() as f64;
    let (value, unit) = match nanos {
        n if n < 1e3 => (n, "ns"),
        n if n < 1e6 => (n / 1e3, "us"),
        n if n < 1e9 => (n / 1e6, "ms"),
        n => (n / 1e9, "s"),
    };
    if value < 9.995 { format!("{value:.2}{unit}") } else { format!("{value:.0}{unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dcd_daemon::control::client::for_people;
    use dcd_daemon::event_loop::response_times::HistogramBucket;
    use serde::Deserialize;
    use serde_json::{Value, json};

    /// All numbers and texts in there, in order; `change` may change each.
    fn each(value: &mut Value, change: &mut dyn FnMut(&mut Value)) {
        match value {
            Value::Array(all) => all.iter_mut().for_each(|value| each(value, change)),
            Value::Object(fields) => fields.values_mut().for_each(|value| each(value, change)),
            Value::Null => {}
            _ => change(value),
        }
    }

    /// What a server says may be anything that has the form of a report.
    #[test]
    fn no_lie_breaks_the_picture_and_no_text_in_it_is_obeyed() {
        let mut report = StatusReport::default();
        let bucket = HistogramBucket { from: 8.0, to: 16.0, count: 3 };
        report.response_times.reads =
            HistogramReport { count: 3, buckets: vec![bucket; 300], ..HistogramReport::default() };
        report.volume = Some(VolumeReport::default());
        report.memory.path = "/dev/shm".into();
        report.cache_disk_error = Some("error".into());
        report.dead_loops = vec!["/dev/loop7".into()];
        report.names_lost = vec!["fast.img".into()];
        let honest = json!(report);
        let mut leaves = 0;
        each(&mut honest.clone(), &mut |_| leaves += 1);
        let lies =
            [json!(u64::MAX), json!(u32::MAX), json!(1e300), json!(-1e300), json!(255), json!(-1)];
        let mut shown = 0;
        // One at a time, and all of them at once.
        for at in 0..=leaves {
            for lie in &lies {
                let (mut value, mut index) = (honest.clone(), 0);
                each(&mut value, &mut |leaf| {
                    let is_lie = at == index || at == leaves;
                    index += 1;
                    match leaf {
                        Value::String(text) => *text += "\x1b[2J\n\u{9b}31m",
                        Value::Bool(is_so) if is_lie => *is_so = !*is_so,
                        Value::Number(number) if is_lie => {
                            let fits = number.is_f64() || !lie.is_f64();
                            if fits {
                                *leaf = lie.clone();
                            }
                        }
                        _ => {}
                    }
                });
                // Numbers that do not fit are no report.
                let Ok(report) = StatusReport::deserialize(value) else { continue };
                let text = panel(&for_people(&report), Paint::plain());
                assert!(!text.contains(['\x1b', '\u{9b}']), "{text}");
                shown += 1;
            }
        }
        assert!(shown > leaves, "{shown} of {leaves}");
    }

    #[test]
    fn what_is_over_hides_nothing_that_lasts() {
        let mut report = StatusReport::default();
        report.mode.mode = "write-back".into();
        assert_eq!(state(&report), ("serves".into(), Colour::Good));
        report.mode.switch = "given-up".into();
        report.mode.error = Some("3 lines are left".into());
        let over = "it stays in write-back, the switch was given up: 3 lines are left";
        assert_eq!(state(&report), (format!("serves; {over}"), Colour::Bad));
        report.destage_held_back = true;
        report.destage_error = Some("no-space".into());
        let (words, _) = state(&report);
        assert!(words.starts_with("serves, and waits to destage: no space"), "{words}");
        assert!(words.ends_with(&format!("; {over}")), "{words}");
    }

    #[test]
    fn histograms_have_a_row_for_each_bucket() {
        let bucket = |from, to, count| HistogramBucket { from, to, count };
        let histogram = HistogramReport {
            count: 4,
            mean: 12.0,
            p50: 8.0,
            p99: 30.0,
            max: 30.0,
            buckets: vec![bucket(8.0, 16.0, 3), bucket(16.0, 32.0, 1)],
            ..HistogramReport::default()
        };
        let text = response_times("writes", &histogram, Paint::plain());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[2], format!("  <    16us  75.0% {}", "#".repeat(50)));
        assert_eq!(lines[3], format!("  <    32us  25.0% {}", "#".repeat(16)));
        assert_eq!(response_times("reads", &HistogramReport::default(), Paint::plain()), "");
    }

    #[test]
    fn times_have_three_digits() {
        let short = |nanos| super::short(Duration::from_nanos(nanos));
        assert_eq!((short(999), short(1_500)), ("999ns".into(), "1.50us".into()));
        assert_eq!((short(42_000_000), short(2_000_000_000)), ("42ms".into(), "2.00s".into()));
    }
}
