//! Response times of requests, from receipt to reply, as histograms.

use dcd_engine::{Duration, Operation};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Longest time that is told apart; what takes longer counts as this long.
const LONGEST_NANOS: u64 = 3_600_000_000_000;
/// Two digits: each time is right to one percent.
const DIGITS: u8 = 2;
/// First bound of the reported buckets; each next one is twice as long.
const FIRST_BUCKET_NANOS: u64 = 1_000;

/// Classes of times: below 1 us, then each twice as long as the one before, the last without an end.
pub const TIME_CLASSES: usize = 26;

/// The class of a time.
fn class_of(nanos: u64) -> usize {
    let micros = nanos / 1_000;
    (u64::BITS - micros.leading_zeros()).min(TIME_CLASSES as u32 - 1) as usize
}

/// Kinds of requests that are timed apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestKind {
    /// Reads.
    Read,
    /// Writes, writes of zeroes and discards.
    Write,
    /// Flushes.
    Flush,
    /// The rest, which is not timed.
    Other,
}

impl RequestKind {
    /// Kind of an operation.
    pub fn of(operation: &Operation) -> RequestKind {
        match operation {
            Operation::Read { .. } => RequestKind::Read,
            Operation::Write { .. } | Operation::WriteZeroes { .. } | Operation::Discard { .. } => {
                RequestKind::Write
            }
            Operation::Flush => RequestKind::Flush,
            Operation::Drain
            | Operation::CancelDrain { .. }
            | Operation::Sequence(_)
            | Operation::Volume(_)
            | Operation::FillLeg { .. }
            | Operation::TakeOutLeg { .. }
            | Operation::Resize { .. }
            | Operation::ResizeReadArea { .. }
            | Operation::CancelResize { .. }
            | Operation::RemoveNvram
            | Operation::CancelNvramChange { .. }
            | Operation::Detach
            | Operation::DetachAccepting { .. }
            | Operation::CancelDetach
            | Operation::Shutdown => RequestKind::Other,
        }
    }
}

/// Histograms of all kinds.
#[derive(Clone, Default)]
pub struct ResponseTimes {
    reads: Times,
    writes: Times,
    flushes: Times,
}

#[derive(Clone)]
struct Times {
    histogram: Histogram<u64>,
    /// Exact, so that it never shrinks: rates are computed from it.
    sum_nanos: u64,
    /// By class: what is copied each second is short.
    classes: [u64; TIME_CLASSES],
}

impl Default for Times {
    fn default() -> Times {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NANOS, DIGITS);
        Times {
            histogram: histogram.expect("bounds that are in order"),
            sum_nanos: 0,
            classes: [0; TIME_CLASSES],
        }
    }
}

impl ResponseTimes {
    /// Counts one request.
    pub fn record(&mut self, kind: RequestKind, took: Duration) {
        let times = match kind {
            RequestKind::Read => &mut self.reads,
            RequestKind::Write => &mut self.writes,
            RequestKind::Flush => &mut self.flushes,
            RequestKind::Other => return,
        };
        let nanos = took.0.clamp(1, LONGEST_NANOS);
        times.histogram.saturating_record(nanos);
        times.sum_nanos = times.sum_nanos.saturating_add(nanos);
        times.classes[class_of(nanos)] += 1;
    }

    /// Reads, writes and flushes so far, by class of their time.
    pub fn classes(&self) -> [[u64; TIME_CLASSES]; 3] {
        [self.reads.classes, self.writes.classes, self.flushes.classes]
    }

    /// The same for people and programs.
    pub fn report(&self) -> ResponseTimesReport {
        ResponseTimesReport {
            reads: report(&self.reads),
            writes: report(&self.writes),
            flushes: report(&self.flushes),
        }
    }
}

/// Response times by kind.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ResponseTimesReport {
    /// Reads.
    pub reads: HistogramReport,
    /// Writes, writes of zeroes and discards.
    pub writes: HistogramReport,
    /// Flushes.
    pub flushes: HistogramReport,
}

/// One histogram; all times in microseconds.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct HistogramReport {
    /// Requests counted.
    pub count: u64,
    /// What all of them took together.
    #[serde(default)]
    pub sum: f64,
    /// Mean.
    pub mean: f64,
    /// Half of the requests took no longer.
    pub p50: f64,
    /// 90 percent took no longer.
    pub p90: f64,
    /// 99 percent took no longer.
    pub p99: f64,
    /// 99.9 percent took no longer.
    #[serde(rename = "p99.9")]
    pub p99_9: f64,
    /// The longest.
    pub max: f64,
    /// Counts between powers of two; empty ones at both ends are left out.
    pub buckets: Vec<HistogramBucket>,
}

/// Requests that took at least `from` and less than `to` microseconds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HistogramBucket {
    /// Lower bound, included.
    pub from: f64,
    /// Upper bound, not included.
    pub to: f64,
    /// How many.
    pub count: u64,
}

fn report(Times { histogram, sum_nanos, .. }: &Times) -> HistogramReport {
    if histogram.is_empty() {
        return HistogramReport::default();
    }
    let micros = |nanos: u64| nanos as f64 / 1e3;
    let mut buckets = Vec::new();
    let mut from = 0;
    for step in histogram.iter_log(FIRST_BUCKET_NANOS, 2.0) {
        let to = step.value_iterated_to() + 1;
        let count = step.count_since_last_iteration();
        if count > 0 || !buckets.is_empty() {
            buckets.push(HistogramBucket { from: micros(from), to: micros(to), count });
        }
        from = to;
    }
    while buckets.last().is_some_and(|bucket| bucket.count == 0) {
        buckets.pop();
    }
    HistogramReport {
        count: histogram.len(),
        sum: *sum_nanos as f64 / 1e3,
        mean: histogram.mean() / 1e3,
        p50: micros(histogram.value_at_quantile(0.5)),
        p90: micros(histogram.value_at_quantile(0.9)),
        p99: micros(histogram.value_at_quantile(0.99)),
        p99_9: micros(histogram.value_at_quantile(0.999)),
        max: micros(histogram.max()),
        buckets,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_the_buckets() {
        let mut times = ResponseTimes::default();
        let nanos = [1, 999, 1_000, 1_999, 2_000, 4_095_999, 4_096_000, 16_777_216_000, u64::MAX];
        for nanos in nanos {
            times.record(RequestKind::Flush, Duration(nanos));
        }
        let counted: Vec<_> = times.classes()[2].into_iter().enumerate().collect();
        let counted: Vec<_> = counted.into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [(0, 2), (1, 2), (2, 1), (12, 1), (13, 1), (25, 2)]);
        // As the report has them, but for what is longer than all.
        for bucket in times.report().flushes.buckets.iter().filter(|it| it.to <= 8192.0) {
            let class = class_of((bucket.from * 1e3) as u64);
            assert_eq!(times.classes()[2][class], bucket.count, "{bucket:?}");
        }
    }

    #[test]
    fn counts_by_kind() {
        let mut times = ResponseTimes::default();
        for micros in 1..=1000 {
            times.record(RequestKind::Write, Duration::from_micros(micros));
        }
        times.record(RequestKind::Read, Duration(0));
        times.record(RequestKind::Flush, Duration(u64::MAX));
        times.record(RequestKind::Other, Duration(1));
        let report = times.report();
        assert_eq!((report.reads.count, report.flushes.count), (1, 1));
        assert_eq!(report.writes.count, 1000);
        assert!((report.writes.p50 - 500.0).abs() < 10.0, "{}", report.writes.p50);
        assert!((report.writes.mean - 500.5).abs() < 10.0, "{}", report.writes.mean);
        let counted: u64 = report.writes.buckets.iter().map(|b| b.count).sum();
        assert_eq!(counted, 1000);
        for pair in report.writes.buckets.windows(2) {
            assert_eq!(pair[0].to, pair[1].from);
        }
        assert_eq!(ResponseTimes::default().report(), ResponseTimesReport::default());
    }
}
