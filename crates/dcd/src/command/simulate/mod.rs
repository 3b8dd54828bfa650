//! `dcd simulate`: a trace on a disk model, with and without caches.

use dcd_daemon::units_text::format_size;
use dcd_sim::advise::words::dollars;
use dcd_sim::bound::BoundFacts;
use dcd_sim::disk::price::DeviceCost;
use dcd_sim::disk::store::StoreFacts;
use dcd_sim::replay::{ReplayFacts, TimesFacts};
use dcd_sim::target::{
    AccessFacts, LogFacts, MemberFacts, NvramFacts, SequenceFacts, SetFacts, TargetFacts,
    VolumeFacts,
};
use dcd_study::simulate::SimulateArguments;

use super::trace::{percentile_cells, percentile_table};
use crate::error::CommandError;
use crate::output::Paint;
use crate::progress::ProgressWatcher;
use crate::stdout::{print, print_json};

pub fn run(arguments: &SimulateArguments) -> Result<(), CommandError> {
    let (load, then) = arguments.loads();
    let facts = arguments.run(&load, then.as_ref(), &mut ProgressWatcher::default())?;
    if arguments.json {
        return print_json(&arguments.facts(&facts, &load));
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
    line("most at once", facts.outstanding_max.to_string());
    line("simulated time", format!("{:.3} s", facts.duration_s));
    if let Some(drain) = facts.drain.filter(|drain| drain.disk_writes > 0) {
        let writes = drain.disk_writes;
        line("to empty the log", format!("{:.3} s, {writes} disk writes", drain.seconds));
    }
    if let Some(bound) = &facts.bound {
        let more = |fewest: u64| {
            let percent = 100.0 * (facts.target.disk_writes as f64 / fewest as f64 - 1.0);
            if fewest == 0 { String::new() } else { format!("; there are {percent:.0} % more") }
        };
        let BoundFacts { lower_disk_writes: lower, clairvoyant_disk_writes: known, .. } = *bound;
        line("disk writes, at least", format!("{lower}{}", more(lower)));
        line("  knowing what comes", format!("{known}{}", more(known)));
    }
    if let Some(store) = &facts.store {
        let StoreFacts { puts, put_bytes, gets, get_bytes, data_objects, .. } = *store;
        line("PUTs", format!("{puts}, {}; {data_objects} data objects", format_size(put_bytes)));
        line("GETs", format!("{gets}, {}", format_size(get_bytes)));
        line("garbage in objects", format!("{:.1} %", store.garbage_percent));
    }
    if let Some(cost) = &facts.cost {
        line("a month like this", format!("{} USD", dollars(cost.month_usd)));
        for (name, device) in [("  disk", cost.disk), ("  cache-disk", cost.cache_disk)] {
            let Some(DeviceCost { requests_usd, transfer_usd, stored_usd, bought_usd }) = device
            else {
                continue;
            };
            let [requests, transfer, room, bought] =
                [requests_usd, transfer_usd, stored_usd, bought_usd].map(dollars);
            line(name, {
                format!("requests {requests}, transfer {transfer}, room {room}, device {bought}")
            });
        }
    }
    target_in_words(&facts.target, &mut line);
    reads_in_words(facts, line);

    let mut table = percentile_table("time, ms");
    for (what, times) in
        [("reads", &facts.read), ("writes", &facts.write), ("flushes", &facts.flush)]
    {
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

/// What the disks spent on reads; with sequences also before they were known.
fn reads_in_words(facts: &ReplayFacts, mut line: impl FnMut(&str, String)) {
    if facts.reads == 0 {
        return;
    }
    let before = facts.sequences.as_ref().map(|run| &*run.before);
    let mut row = |name: &str, value: &dyn Fn(&ReplayFacts) -> Option<String>| {
        let Some(now) = value(facts) else { return };
        let before = before.and_then(value);
        line(name, before.map_or(now.clone(), |before| format!("{now}, before {before}")));
    };
    row("disk time of reads", &|facts| Some(format!("{:.1} ms", facts.access.read_disk_time_ms)));
    let part = |access: &AccessFacts| {
        let AccessFacts { reads, time_ms, .. } = access;
        Some(format!("{reads}, {time_ms:.1} ms"))
    };
    if facts.target.cache_disk_access.is_some() {
        row("  data-disk reads", &|facts| part(&facts.target.data_disk_access));
        row("  cache-disk reads", &|facts| part(facts.target.cache_disk_access.as_ref()?));
    }
    row("seek distance, blocks", &|facts| Some(facts.access.seek_distance.to_string()));
    row("disk time of a read", &|facts| {
        facts.access.average_access_ms.map(|ms| format!("{ms:.3} ms"))
    });
    if let Some(before) = before {
        let (now, before) = (facts.access.read_disk_time_ms, before.access.read_disk_time_ms);
        if now > 0.0 {
            line("disk time before / now", format!("{:.2}", before / now));
        }
    }
    let area = facts.target.log.as_ref().and_then(|log| log.read_area.as_ref());
    if let Some(area) = area {
        line("lines from copies", area.read_copy_lines.to_string());
        line("lines read ahead", {
            format!("{}, {} of them used", area.read_ahead_lines, area.read_ahead_used_lines)
        });
        line("lines copied", area.copied_lines.to_string());
        for SequenceFacts { name, lines, stale, off, .. } in &area.sequences {
            let off = if *off { ", off: it did not pay" } else { "" };
            line("sequence", format!("{name}: {lines} lines, {stale} not copied{off}"));
        }
    }
}

fn target_in_words(facts: &TargetFacts, line: &mut impl FnMut(&str, String)) {
    let percent = |part: u64, all: u64| match all {
        0 => String::new(),
        _ => format!(", {:.1} %", 100.0 * part as f64 / all as f64),
    };
    line("disk reads", facts.disk_reads.to_string());
    let size = facts.disk_write_kib.map(|kib| format!(", {:.1} KiB on average", kib.mean));
    line("disk writes", format!("{}{}", facts.disk_writes, size.unwrap_or_default()));
    line("disk busy", format!("{:.1} %", facts.disk_busy_percent));
    if let Some(nvram) = &facts.nvram {
        let NvramFacts { writes, write_bytes, overwritten_bytes, .. } = *nvram;
        let stalled = facts.stalled_writes;
        line("writes into memory", format!("{writes}, {} past it", nvram.bypasses));
        line("overwritten there", {
            let share = percent(overwritten_bytes, write_bytes);
            format!(
                "{} writes whole; of the bytes{}",
                facts.overwrites,
                &share[1.min(share.len())..]
            )
        });
        line("waited for room", format!("{stalled}{}", percent(stalled, writes)));
        line("cleanings", {
            let NvramFacts { cleanings, cleaned_groups, cleaning_writes, .. } = nvram;
            format!("{cleanings}; {cleaned_groups} groups, {cleaning_writes} writes")
        });
        let reads = nvram.read_hits + nvram.read_misses;
        line(
            "reads from memory",
            format!("{}{}", nvram.read_hits, percent(nvram.read_hits, reads)),
        );
        if let Some(control) = &nvram.control {
            line("policy at the end", format!("{}: {}", control.arm, control.does));
            line("switches of policy", control.switches.to_string());
        }
        line("left in memory", format_size(nvram.dirty_bytes));
        if let Some(bytes) = nvram.hot_zone_bytes {
            let knee = nvram.knee_bytes.map(|knee| format!("; knee at {}", format_size(knee)));
            line("hot zone", format!("{}{}", format_size(bytes), knee.unwrap_or_default()));
        }
    }
    if let Some(log) = &facts.log {
        let LogFacts { read_hit_lines: hits, read_miss_lines: misses, .. } = *log;
        let written = format_size(log.cache_disk_write_bytes);
        line("cache-disk writes", format!("{}, {written}", log.cache_disk_writes));
        line("cache-disk busy", format!("{:.1} %", log.cache_disk_busy_percent));
        line("writes past the log", log.bypasses.to_string());
        line("lines overwritten", log.overwritten_lines.to_string());
        line("lines destaged", format!("{} in {} writes", log.destaged_lines, log.destage_writes));
        line("lines left in the log", log.dirty_lines.to_string());
        if log.failed_requests > 0 {
            line("failed, no room for 60 s", log.failed_requests.to_string());
        }
        line("lines read from the log", format!("{hits}{}", percent(hits, hits + misses)));
        line("waited for room", facts.stalled_writes.to_string());
    }
    if let Some(volume) = &facts.volume {
        volume_in_words(volume, line);
    }
}

fn volume_in_words(volume: &VolumeFacts, line: &mut impl FnMut(&str, String)) {
    for (number, member) in volume.members.iter().enumerate() {
        let MemberFacts { reads, writes, write_bytes, busy_percent } = *member;
        line(&format!("member {number}"), {
            let written = format_size(write_bytes);
            format!("{reads} reads, {writes} writes of {written}, busy {busy_percent:.1} %")
        });
    }
    for SetFacts { level, class, used_extents, extents } in &volume.sets {
        let name = format!("RAID {level}, {class}");
        line(&name, format!("{used_extents} of {extents} extents in use"));
    }
    line("extents moved", volume.moved_extents.to_string());
    line("journal of the volume", format_size(volume.journal_bytes));
}
