//! What came of one simulation, beside the bare disk.
//!
//! *Faster* is the share of the time that all requests together wait (reads, writes, and flushes of
//! their own) that is gone: one number in which nothing can hide. *Disk writes* include those that
//! it takes to empty the log at the end: what is only put off is not saved.

use serde::Serialize;

use super::grid::{CacheDevice, Variant, ack_name, destage_name};
use super::knee::SizePoint;
use crate::disk::price::CostFacts;
use crate::disk::store::StoreFacts;
use crate::replay::{ReplayFacts, TimesFacts};
use crate::sweep::Outcome;

/// Of the writes: where more wait for room, one in a hundred is slow.
const CALM_PERCENT: f64 = 1.0;
const DAY_S: f64 = 86_400.0;

/// One simulation.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Where the log is; none for the bare disk.
    pub cache_device: Option<String>,
    /// Its size.
    pub cache_bytes: Option<u64>,
    /// Size of its segments.
    pub segment_bytes: Option<u64>,
    /// Its order of destaging.
    pub destage: Option<&'static str>,
    /// When it acknowledges writes.
    pub ack: Option<&'static str>,
    /// What came of it.
    #[serde(flatten)]
    pub facts: Option<RowFacts>,
    /// Why nothing did.
    pub error: Option<String>,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RowFacts {
    /// Response times of reads.
    pub read: Option<Response>,
    /// Of writes.
    pub write: Option<Response>,
    /// Of flushes that are requests of their own.
    pub flush: Option<Response>,
    /// Mean response time of all of these.
    pub mean_ms: f64,
    /// All response times together.
    pub waited_s: f64,
    /// How much less that is than with the bare disk; negative: more.
    pub faster_percent: f64,
    /// Until the last request was done.
    pub duration_s: f64,
    /// Writes to the disk, those included that empty the log at the end; to a bucket: PUTs.
    pub disk_writes: u64,
    /// Their bytes.
    pub disk_write_bytes: u64,
    /// How many fewer writes than the bare disk gets.
    pub fewer_disk_writes_percent: f64,
    /// How many fewer bytes.
    pub fewer_disk_bytes_percent: f64,
    /// Share of the time that the disk is busy.
    pub disk_busy_percent: f64,
    /// What came of a bucket behind a log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreFacts>,
    /// What the disks cost in a month in which the load comes as fast as it did, of all rows the
    /// same ([`super::Advice::month_of_s`]); none if they have no prices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<CostFacts>,
    /// Memory that simulating it took, about.
    pub memory_bytes: u64,
    /// What the log did.
    pub log: Option<LogRow>,
}

/// Response times.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Response {
    /// How many.
    pub count: u64,
    /// Mean.
    pub mean_ms: f64,
    /// Half take at most so long.
    pub p50_ms: f64,
    /// 99 of 100 do.
    pub p99_ms: f64,
}

/// What the log did.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LogRow {
    /// Share of writes that waited for room.
    pub stalled_percent: f64,
    /// Requests that failed: for a minute there was no room.
    pub failed_requests: u64,
    /// Share of read lines that the log had.
    pub read_hit_percent: f64,
    /// Writes that went past the log.
    pub bypassed_writes: u64,
    /// Bytes written to the cache device.
    pub cache_write_bytes: u64,
    /// For each byte that was written by the load.
    pub cache_bytes_per_written_byte: Option<f64>,
    /// What that does to the device, if the load goes on like this.
    pub wear: Option<Wear>,
    /// 4 KiB lines that are only in the log at the end.
    pub left_lines: u64,
    /// How long it takes to move them; none if the disk never takes them.
    pub drain_s: Option<f64>,
}

/// What writing does to a device.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Wear {
    /// In a day of this load.
    pub bytes_per_day: f64,
    /// How often that is all of the device; none for disks with an arm.
    pub drive_writes_per_day: Option<f64>,
    /// Until what it endures is written, where that is known.
    pub years: Option<f64>,
}

impl Response {
    fn of(count: u64, times: &TimesFacts) -> Option<Response> {
        let response = times.response_ms?;
        let (mean_ms, p50_ms, p99_ms) = (response.mean, response.p50, response.p99);
        Some(Response { count, mean_ms, p50_ms, p99_ms })
    }
}

impl RowFacts {
    /// Of the bare disk.
    pub fn of_bare(facts: &ReplayFacts) -> RowFacts {
        let read = Response::of(facts.reads, &facts.read);
        let write = Response::of(facts.writes, &facts.write);
        let flush = Response::of(facts.flushes, &facts.flush);
        let all = || [read, write, flush].into_iter().flatten();
        let waited_ms: f64 = all().map(|one| one.mean_ms * one.count as f64).sum();
        let requests: u64 = all().map(|one| one.count).sum();
        let drain = facts.drain;
        let disk_writes = facts.target.disk_writes + drain.map_or(0, |drain| drain.disk_writes);
        let disk_write_bytes =
            facts.target.disk_write_bytes + drain.map_or(0, |drain| drain.disk_write_bytes);
        RowFacts {
            read,
            write,
            flush,
            mean_ms: waited_ms / requests.max(1) as f64,
            waited_s: waited_ms / 1e3,
            faster_percent: 0.0,
            duration_s: facts.duration_s,
            disk_writes: facts.store.map_or(disk_writes, |store| store.puts),
            disk_write_bytes: facts.store.map_or(disk_write_bytes, |store| store.put_bytes),
            store: facts.store,
            cost: None,
            memory_bytes: facts.memory_bytes_max,
            fewer_disk_writes_percent: 0.0,
            fewer_disk_bytes_percent: 0.0,
            disk_busy_percent: facts.target.disk_busy_percent,
            log: None,
        }
    }

    /// Of the disk with a log. Without facts of the bare disk nothing is gained.
    fn of_log(
        facts: &ReplayFacts,
        device: &CacheDevice,
        bare: Option<&RowFacts>,
        written_bytes: u64,
    ) -> RowFacts {
        let own = RowFacts::of_bare(facts);
        let less = |own: f64, bare: f64| if bare > 0.0 { 100.0 * (1.0 - own / bare) } else { 0.0 };
        let less_than =
            |value: fn(&RowFacts) -> f64| bare.map_or(0.0, |bare| less(value(&own), value(bare)));
        RowFacts {
            faster_percent: less_than(|row| row.waited_s),
            fewer_disk_writes_percent: less_than(|row| row.disk_writes as f64),
            fewer_disk_bytes_percent: less_than(|row| row.disk_write_bytes as f64),
            log: LogRow::of(facts, device, written_bytes),
            ..own
        }
    }
}

impl LogRow {
    fn of(facts: &ReplayFacts, device: &CacheDevice, written_bytes: u64) -> Option<LogRow> {
        let log = facts.target.log.as_ref()?;
        let percent = |part: u64, all: u64| 100.0 * part as f64 / all.max(1) as f64;
        let drain = facts.drain;
        let cache_write_bytes =
            log.cache_disk_write_bytes + drain.map_or(0, |drain| drain.cache_disk_write_bytes);
        let per_byte = cache_write_bytes as f64 / written_bytes as f64;
        Some(LogRow {
            stalled_percent: percent(facts.target.stalled_writes, facts.writes),
            failed_requests: log.failed_requests,
            read_hit_percent: percent(log.read_hit_lines, log.read_hit_lines + log.read_miss_lines),
            bypassed_writes: log.bypasses,
            cache_write_bytes,
            cache_bytes_per_written_byte: (written_bytes > 0).then_some(per_byte),
            wear: Wear::of(cache_write_bytes, facts.duration_s, device),
            left_lines: log.dirty_lines,
            drain_s: drain.map(|drain| drain.seconds),
        })
    }
}

impl LogRow {
    /// No request was refused, and what is in the log comes to the disk in the end.
    pub fn works(&self) -> bool {
        self.failed_requests == 0 && self.drain_s.is_some()
    }
}

/// The same of what was simulated.
pub(super) fn log_works(facts: &ReplayFacts) -> bool {
    let refused = facts.target.log.as_ref().map(|log| log.failed_requests);
    refused == Some(0) && facts.drain.is_some()
}

impl Wear {
    /// None of a load that takes no time.
    fn of(bytes: u64, seconds: f64, device: &CacheDevice) -> Option<Wear> {
        if seconds <= 0.0 {
            return None;
        }
        let bytes_per_day = bytes as f64 / seconds * DAY_S;
        let wears = device.profile.simple.is_some();
        let years = device.endurance_tbw.map(|tbw| tbw * 1e12 / bytes_per_day / 365.25);
        Some(Wear {
            bytes_per_day,
            drive_writes_per_day: wears.then_some(bytes_per_day / device.capacity_bytes as f64),
            // Nothing written: for ever, which JSON has no number for.
            years: years.map(|years| years.min(1e6)),
        })
    }
}

impl Row {
    /// Of the bare disk.
    pub fn bare(outcome: &Outcome) -> Row {
        Row {
            cache_device: None,
            cache_bytes: None,
            segment_bytes: None,
            destage: None,
            ack: None,
            facts: outcome.as_ref().ok().map(RowFacts::of_bare),
            error: outcome.as_ref().err().cloned(),
        }
    }

    /// Of the disk with that log, for a load that writes so many bytes.
    pub fn of(
        variant: &Variant,
        device: &CacheDevice,
        outcome: &Outcome,
        bare: Option<&RowFacts>,
        written_bytes: u64,
    ) -> Row {
        let facts = outcome.as_ref().ok();
        Row {
            cache_device: Some(device.name.clone()),
            cache_bytes: Some(variant.cache_bytes),
            segment_bytes: Some(variant.segment_bytes()),
            destage: Some(destage_name(variant.destage)),
            ack: Some(ack_name(variant.ack)),
            facts: facts.map(|facts| RowFacts::of_log(facts, device, bare, written_bytes)),
            error: outcome.as_ref().err().cloned(),
        }
    }

    /// The same with what a month costs, if the load came in so many seconds.
    pub fn priced(mut self, outcome: &Outcome, month_of_s: Option<f64>) -> Row {
        if let (Some(facts), Ok(found), Some(seconds)) = (&mut self.facts, outcome, month_of_s) {
            facts.cost = found.bill.month(seconds);
        }
        self
    }

    /// What a benefit is worth in that size, for the knee. None of a log that does not work.
    pub fn size_point(&self, benefit: fn(&RowFacts) -> f64) -> Option<SizePoint> {
        let (facts, log) = (self.facts.as_ref()?, self.log()?);
        let (benefit, is_calm) = (benefit(facts), log.stalled_percent <= CALM_PERCENT);
        let bytes = self.cache_bytes.filter(|_| log.works())?;
        Some(SizePoint { bytes, benefit, is_calm })
    }

    /// What the log did, if it came to that.
    pub fn log(&self) -> Option<&LogRow> {
        self.facts.as_ref()?.log.as_ref()
    }
}
