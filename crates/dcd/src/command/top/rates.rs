//! What has happened between two looks at a running dcd.

use dcd_daemon::event_loop::response_times::HistogramReport;
use dcd_daemon::report::status_report::StatusReport;
use serde::Serialize;

/// Powers of four of microseconds that response times are sorted into: up to 16 s and beyond.
pub const CLASSES: usize = 14;

/// One daemon in one interval.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Rates {
    /// Length of the interval; 0: nothing is known of it yet.
    pub seconds: f64,
    /// Reads.
    pub reads: KindRates,
    /// Writes, with discards and writes of zeroes.
    pub writes: KindRates,
    /// Flushes.
    pub flushes: KindRates,
    /// Bytes written to the data-disk by destaging, each second.
    pub destage_bytes_per_second: f64,
    /// Seconds until nothing is dirty, if dirty data goes on to shrink as it did.
    pub empty_in_seconds: Option<f64>,
    /// Requests that had to wait for room, each second.
    pub stalled_per_second: f64,
}

/// Requests of one kind.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct KindRates {
    /// Requests a second.
    pub per_second: f64,
    /// Bytes a second; flushes have none.
    pub bytes_per_second: f64,
    /// 99 percent took no longer, in microseconds; `None`: there were none.
    pub p99_microseconds: Option<f64>,
    /// How many took less than 1 us, 4 us, 16 us and so on, and not less than the bound before.
    pub classes: [u64; CLASSES],
}

impl Rates {
    /// Of the time between two reports. Nothing if they are of different runs of the daemon.
    pub fn between(before: &StatusReport, now: &StatusReport) -> Rates {
        let seconds = now.uptime_seconds - before.uptime_seconds;
        if before.pid != now.pid || seconds <= 0.0 {
            return Rates::default();
        }
        let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
        let (old, new) = (&before.counters, &now.counters);
        let (old_times, new_times) = (&before.response_times, &now.response_times);
        let shrunk = rate(now.dirty_bytes, before.dirty_bytes);
        Rates {
            seconds,
            reads: KindRates::of(
                rate(old.reads, new.reads),
                rate(old.read_bytes, new.read_bytes),
                (&old_times.reads, &new_times.reads),
            ),
            writes: KindRates::of(
                rate(old.writes.saturating_add(old.zeroes), new.writes.saturating_add(new.zeroes)),
                rate(old.write_bytes, new.write_bytes),
                (&old_times.writes, &new_times.writes),
            ),
            flushes: KindRates::of(
                rate(old.flushes, new.flushes),
                0.0,
                (&old_times.flushes, &new_times.flushes),
            ),
            destage_bytes_per_second: rate(old.destage_write_bytes, new.destage_write_bytes),
            empty_in_seconds: (shrunk > 0.0).then(|| now.dirty_bytes as f64 / shrunk),
            stalled_per_second: rate(old.stalled_writes, new.stalled_writes),
        }
    }
}

impl KindRates {
    fn of(
        per_second: f64,
        bytes_per_second: f64,
        (before, now): (&HistogramReport, &HistogramReport),
    ) -> KindRates {
        // Buckets of both have the same bounds; empty ones at the ends are left out.
        let counted_before = |to: f64| {
            before.buckets.iter().find(|bucket| bucket.to == to).map_or(0, |bucket| bucket.count)
        };
        let new = now
            .buckets
            .iter()
            .map(|bucket| (bucket.to, bucket.count.saturating_sub(counted_before(bucket.to))));
        let new: Vec<(f64, u64)> = new.filter(|(_, count)| *count > 0).collect();
        let mut classes = [0; CLASSES];
        for (to, count) in &new {
            let class: &mut u64 = &mut classes[class_of(*to)];
            *class = class.saturating_add(*count);
        }
        let all: u64 = new.iter().fold(0, |all: u64, (_, count)| all.saturating_add(*count));
        let mut slower = all / 100;
        let p99 = new.iter().rev().find(|(_, count)| {
            let is_there = slower < *count;
            slower = slower.saturating_sub(*count);
            is_there
        });
        let p99_microseconds = p99.map(|(to, _)| *to);
        KindRates { per_second, bytes_per_second, p99_microseconds, classes }
    }
}

/// Upper bound of a class in microseconds.
pub fn class_bound_microseconds(class: usize) -> f64 {
    4f64.powi(class as i32)
}

/// Class of what took less than `to` microseconds and at least half of it.
fn class_of(to: f64) -> usize {
    let class = (0..CLASSES).find(|class| to <= class_bound_microseconds(*class));
    class.unwrap_or(CLASSES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dcd_daemon::event_loop::response_times::HistogramBucket;

    fn report(uptime_seconds: f64, writes: u64, buckets: &[(f64, u64)]) -> StatusReport {
        let mut report = StatusReport { uptime_seconds, pid: 7, ..StatusReport::default() };
        report.counters.writes = writes;
        report.counters.write_bytes = writes * 4096;
        let buckets = buckets.iter().map(|(to, count)| HistogramBucket {
            from: to / 2.0,
            to: *to,
            count: *count,
        });
        report.response_times.writes.buckets = buckets.collect();
        report
    }

    #[test]
    fn rates_are_those_of_the_interval() {
        let before = report(10.0, 100, &[(8.0, 100)]);
        let mut now = report(12.0, 300, &[(4.0, 1), (8.0, 297), (1024.0, 2)]);
        now.dirty_bytes = 1000;
        now.counters.destage_write_bytes = 5000;
        let before = StatusReport { dirty_bytes: 3000, ..before };
        let rates = Rates::between(&before, &now);
        assert_eq!(rates.writes.per_second, 100.0);
        assert_eq!(rates.writes.bytes_per_second, 409_600.0);
        assert_eq!(rates.destage_bytes_per_second, 2500.0);
        assert_eq!(rates.empty_in_seconds, Some(1.0));
        //                                            4us 16us      1ms
        assert_eq!(rates.writes.classes[..6], [0, 1, 197, 0, 0, 2]);
        // Two of two hundred may take longer than the 99th percentile; the two longest are those.
        assert_eq!(rates.writes.p99_microseconds, Some(8.0));
        assert_eq!(rates.reads.p99_microseconds, None);
    }

    #[test]
    fn another_run_has_no_rates() {
        let before = report(10.0, 100, &[]);
        let now = StatusReport { pid: 8, ..report(12.0, 300, &[]) };
        assert_eq!(Rates::between(&before, &now), Rates::default());
        assert_eq!(Rates::between(&before, &before), Rates::default());
        assert_eq!(Rates::between(&report(12.0, 5, &[]), &report(1.0, 1, &[])), Rates::default());
    }

    #[test]
    fn slow_requests_are_in_the_last_class() {
        assert_eq!((class_of(0.5), class_of(1.0), class_of(2.0)), (0, 0, 1));
        assert_eq!(class_of(1e12), CLASSES - 1);
    }
}
