//! What was counted in each second of ten minutes and in each minute of a day: what the page paints
//! over time. Some 400 bytes for each, so less than a megabyte.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};

use crate::event_loop::response_times::TIME_CLASSES;
use crate::report::status_report::StatusReport;

/// Ten minutes.
const SECONDS_MAX: usize = 600;
/// A day.
const MINUTES_MAX: usize = 1440;
/// In a minute.
const SECONDS_EACH: usize = 60;

/// Reads, writes and flushes by class of their response time.
pub type Classes = [[u64; TIME_CLASSES]; 3];

/// Counts that only grow, of one moment.
const COUNTS: usize = 9;

/// What one moment is known by.
#[derive(Clone)]
pub struct Moment {
    classes: Classes,
    counts: [u64; COUNTS],
    dirty_bytes: u64,
}

impl Moment {
    /// Of a report.
    pub fn of(report: &StatusReport, classes: Classes) -> Moment {
        let counters = &report.counters;
        let counts = [
            counters.reads,
            counters.writes + counters.zeroes,
            counters.flushes,
            counters.read_bytes,
            counters.write_bytes,
            counters.read_hit_lines + counters.read_copy_lines + counters.read_clean_lines,
            counters.read_miss_lines,
            counters.destage_write_bytes,
            counters.stalled_writes,
        ];
        Moment { classes, counts, dirty_bytes: report.dirty_bytes + report.zero_bytes }
    }
}

/// What was counted from one moment to another.
#[derive(Clone)]
pub struct Sample {
    at_unix_seconds: u64,
    span: Duration,
    classes: [[u32; TIME_CLASSES]; 3],
    counts: [u64; COUNTS],
    dirty_bytes: u64,
}

impl Sample {
    fn between(before: &Moment, now: &Moment, at_unix_seconds: u64, span: Duration) -> Sample {
        let less = |now: u64, before: u64| now.saturating_sub(before);
        let class = |kind: usize, class: usize| {
            let count = less(now.classes[kind][class], before.classes[kind][class]);
            u32::try_from(count).unwrap_or(u32::MAX)
        };
        Sample {
            at_unix_seconds,
            span,
            classes: std::array::from_fn(|kind| std::array::from_fn(|it| class(kind, it))),
            counts: std::array::from_fn(|it| less(now.counts[it], before.counts[it])),
            dirty_bytes: now.dirty_bytes,
        }
    }

    /// Of all of them together; as dirty as the last.
    fn of_all(samples: &[Sample]) -> Option<Sample> {
        let (first, rest) = samples.split_first()?;
        let mut all = first.clone();
        for sample in rest {
            all.at_unix_seconds = sample.at_unix_seconds;
            all.span += sample.span;
            all.dirty_bytes = sample.dirty_bytes;
            for (sums, classes) in all.classes.iter_mut().zip(&sample.classes) {
                for (sum, count) in sums.iter_mut().zip(classes) {
                    *sum = sum.saturating_add(*count);
                }
            }
            for (sum, count) in all.counts.iter_mut().zip(sample.counts) {
                *sum = sum.saturating_add(count);
            }
        }
        Some(all)
    }

    /// `{"t":when it ended,"s":seconds,"n":[counts, dirty bytes],"times":[[first class, counts ...],...]}`
    pub fn json(&self) -> Value {
        let mut numbers = self.counts.to_vec();
        numbers.push(self.dirty_bytes);
        let times = self.classes.iter().map(|classes| {
            let Some(first) = classes.iter().position(|count| *count > 0) else { return vec![] };
            let last = classes.iter().rposition(|count| *count > 0).unwrap_or(first);
            let mut row = vec![first as u32];
            row.extend_from_slice(&classes[first..=last]);
            row
        });
        let seconds = (self.span.as_secs_f64() * 1e3).round() / 1e3;
        let times: Vec<Vec<u32>> = times.collect();
        json!({ "t": self.at_unix_seconds, "s": seconds, "n": numbers, "times": times })
    }
}

/// See the module.
#[derive(Default)]
pub struct History {
    last: Option<Moment>,
    seconds: VecDeque<Sample>,
    minutes: VecDeque<Sample>,
    /// Seconds that are in no minute yet.
    minute: Vec<Sample>,
}

impl History {
    /// What was counted since the moment before; nothing at the first.
    pub fn add(&mut self, now: Moment, at_unix_seconds: u64, span: Duration) -> Option<Sample> {
        let before = self.last.replace(now.clone())?;
        let sample = Sample::between(&before, &now, at_unix_seconds, span);
        keep(&mut self.seconds, sample.clone(), SECONDS_MAX);
        self.minute.push(sample.clone());
        if self.minute.len() == SECONDS_EACH {
            if let Some(minute) = Sample::of_all(&self.minute) {
                keep(&mut self.minutes, minute, MINUTES_MAX);
            }
            self.minute.clear();
        }
        Some(sample)
    }

    /// All seconds, or all minutes with the one that is not over.
    pub fn json(&self, by_minute: bool) -> Value {
        let running = Sample::of_all(&self.minute).filter(|_| by_minute);
        let samples = if by_minute { &self.minutes } else { &self.seconds };
        let samples: Vec<Value> = samples.iter().chain(&running).map(Sample::json).collect();
        json!({ "ok": true, "step_seconds": if by_minute { 60 } else { 1 }, "samples": samples })
    }
}

fn keep(samples: &mut VecDeque<Sample>, sample: Sample, most: usize) {
    if samples.len() == most {
        samples.pop_front();
    }
    samples.push_back(sample);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(writes: u64) -> Moment {
        let mut classes = Classes::default();
        classes[1][7] = writes;
        classes[1][9] = writes / 2;
        Moment { classes, counts: [writes; COUNTS], dirty_bytes: writes * 10 }
    }

    #[test]
    fn seconds_add_up_to_minutes() {
        let mut history = History::default();
        assert!(history.add(moment(5), 0, Duration::from_secs(1)).is_none());
        for second in 1..=90 {
            let sample = history.add(moment(5 + second * 2), second, Duration::from_secs(1));
            assert_eq!(sample.unwrap().counts[1], 2);
        }
        let seconds = history.json(false);
        assert_eq!(seconds["samples"].as_array().unwrap().len(), 90);
        assert_eq!(seconds["samples"][0]["times"], json!([[], [7, 2, 0, 1], []]));
        let minutes = history.json(true);
        assert_eq!(minutes["samples"].as_array().unwrap().len(), 2);
        assert_eq!(minutes["samples"][0]["times"][1], json!([7, 120, 0, 60]));
        assert_eq!(minutes["samples"][1]["s"], 30.0);
        assert_eq!(minutes["samples"][1]["n"][9], 1850, "as dirty as at its end");
    }

    #[test]
    fn it_does_not_grow_without_end() {
        let mut history = History::default();
        for second in 0..100_000 {
            history.add(moment(second), second, Duration::from_secs(1));
        }
        assert_eq!((history.seconds.len(), history.minutes.len()), (SECONDS_MAX, MINUTES_MAX));
        assert!(size_of::<Sample>() * (SECONDS_MAX + MINUTES_MAX) < 1 << 20);
    }
}
