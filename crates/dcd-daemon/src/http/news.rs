//! What has happened to a cache, and why: told by comparing what it was with what it is.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use crate::report::status_report::{ResizeSummary, StatusReport};
use crate::units_text::format_size;

/// So many are kept.
const NEWS_MAX: usize = 200;
/// The same within so many seconds is counted, not told again.
const SAME_SECONDS: u64 = 60;

/// How much it matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weight {
    /// Good to know.
    Note,
    /// Somebody should look.
    Warning,
    /// Something is lost, or fails.
    Error,
}

/// A piece of news.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct News {
    /// Grows by one with each.
    pub number: u64,
    /// When, last.
    pub at_unix_seconds: u64,
    /// How much it matters.
    pub weight: Weight,
    /// What has happened.
    pub what: String,
    /// Why, as far as is known.
    pub why: String,
    /// How often within a short time.
    pub times: u64,
}

/// The last ones.
#[derive(Default)]
pub struct NewsLog {
    all: VecDeque<News>,
    next: u64,
}

/// What has happened, before it has a number.
pub type Told = (Weight, String, String);

impl NewsLog {
    /// Keeps one. The same as a short time ago is counted there.
    pub fn add(&mut self, (weight, what, why): Told, at_unix_seconds: u64) {
        let known = self.all.iter().position(|news| {
            let is_recent = news.at_unix_seconds + SAME_SECONDS > at_unix_seconds;
            is_recent && news.weight == weight && news.what == what
        });
        let times = known.and_then(|index| self.all.remove(index)).map_or(1, |news| news.times + 1);
        if self.all.len() == NEWS_MAX {
            self.all.pop_front();
        }
        self.next += 1;
        self.all.push_back(News { number: self.next, at_unix_seconds, weight, what, why, times });
    }

    /// The number of the last one.
    pub fn last(&self) -> u64 {
        self.next
    }

    /// Those behind this number.
    pub fn since(&self, number: u64) -> Vec<&News> {
        self.all.iter().filter(|news| news.number > number).collect()
    }
}

/// What the start has found.
pub fn opened(report: &StatusReport) -> Told {
    let recovery = &report.recovery;
    let how = match recovery.was_closed {
        true => "the session before was ended in order",
        false => {
            "the session before was not ended in order: what it had acknowledged was found again"
        }
    };
    let why = format!(
        "{how}; {} records replayed, {} of them from memory, {} dirty",
        recovery.records,
        recovery.records_from_memory,
        format_size(recovery.dirty_lines * 4096)
    );
    let weight = if recovery.poisoned_lines > 0 { Weight::Error } else { Weight::Note };
    (weight, "dcd has begun to serve".into(), why)
}

/// What has happened between two looks.
pub fn changes(before: &StatusReport, now: &StatusReport) -> Vec<Told> {
    let mut told = Vec::new();
    let mut tell = |weight, what: String, why: String| told.push((weight, what, why));
    if let (Some(was), Some(is)) = (&before.store, &now.store)
        && was.state != is.state
    {
        let why = is.problem.clone().unwrap_or_default();
        match is.state.as_str() {
            "ready" => tell(Weight::Note, "the store takes what it is given again".into(), why),
            "taken-over" => tell(Weight::Error, "another dcd has taken the store over".into(), why),
            state => tell(Weight::Warning, format!("the store: {state}"), why),
        }
    }
    if now.cache_disk_failed && !before.cache_disk_failed {
        let error = now.cache_disk_error.as_deref().unwrap_or("it does not answer");
        let then = match now.uncached.as_deref() {
            Some("passing-through" | "writing-through") => {
                "nothing on it was newer than the data-disk: dcd goes on without it"
            }
            _ => "changes fail until a restart",
        };
        tell(Weight::Error, "the cache-disk has failed".into(), format!("{error}; {then}"));
    }
    match (&before.destage_error, &now.destage_error) {
        (was, Some(error)) if was.as_ref() != Some(error) => {
            let held = match now.destage_held_back {
                true => "nothing is destaged".to_owned(),
                false => format!("{} lines stay in the cache", now.destage_blocked_lines),
            };
            tell(
                Weight::Error,
                "the data-disk does not take what is dirty".into(),
                format!("{error}; {held}"),
            );
        }
        (Some(_), None) => tell(
            Weight::Note,
            "the data-disk takes writes again".into(),
            format!("{} to go", format_size(now.dirty_bytes)),
        ),
        _ => {}
    }
    let problem = |report: &StatusReport| report.ordered.as_ref()?.problem.clone();
    match (problem(before), problem(now)) {
        (was, Some(problem)) if was.as_ref() != Some(&problem) => {
            let then = format!("{problem}; nothing is written to the data-disk until it ends well");
            tell(Weight::Error, "the window hook has failed".into(), then);
        }
        (Some(_), None) => tell(
            Weight::Note,
            "the window hook has ended well again".into(),
            "the data-disk is written to again".into(),
        ),
        _ => {}
    }
    if before.mode.mode != now.mode.mode {
        let what = format!("the mode is {} now", now.mode.mode);
        tell(Weight::Note, what, format!("it was set, and was {} before", before.mode.mode));
    }
    if before.mode.switch != now.mode.switch && now.mode.switch == "given-up" {
        let error = now.mode.error.clone().unwrap_or_default();
        tell(Weight::Warning, "a switch of the mode was given up".into(), error);
    }
    if now.draining != before.draining {
        let left = format!("{} dirty", format_size(now.dirty_bytes + now.zero_bytes));
        match now.draining {
            true => tell(Weight::Note, "a drain has begun".into(), left),
            false => match &now.destage_error {
                None => tell(Weight::Note, "a drain has ended".into(), left),
                Some(error) => {
                    let what = "a drain has ended, and not all is on the data-disk".into();
                    tell(Weight::Warning, what, format!("{error}; {left}"));
                }
            },
        }
    }
    let stalled = now.counters.stalled_writes.saturating_sub(before.counters.stalled_writes);
    if stalled > 0 {
        let why = format!(
            "the log was {:.0} % in use and the data-disk took {} in that second",
            now.utilisation * 100.0,
            format_size(
                now.counters
                    .destage_write_bytes
                    .saturating_sub(before.counters.destage_write_bytes)
            )
        );
        tell(Weight::Warning, "writes had to wait for room in the log".into(), why);
    }
    let counts = [
        (
            "the cache-disk has errors",
            before.counters.cache_disk_errors,
            now.counters.cache_disk_errors,
            "I/Os failed",
        ),
        (
            "the data-disk has errors",
            before.counters.data_disk_errors,
            now.counters.data_disk_errors,
            "I/Os failed",
        ),
        (
            "slots of the log are damaged",
            before.counters.checksum_errors,
            now.counters.checksum_errors,
            "checksums did not match",
        ),
        (
            "blocks are lost",
            before.poisoned_lines,
            now.poisoned_lines,
            "lines of 4 KiB fail to read until they are written",
        ),
    ];
    for (what, was, is, why) in counts {
        if is > was {
            tell(Weight::Error, what.into(), format!("{} {why}", is - was));
        }
    }
    if now.memory.is_missing && !before.memory.is_missing {
        let why =
            "somebody has removed it, and it cannot be put back: acknowledged is what is durable";
        tell(Weight::Warning, "the segment memory is gone".into(), why.into());
    }
    if now.resize.is_some() != before.resize.is_some() {
        let (what, why) = match &now.resize {
            Some(ResizeSummary { read_area_bytes_before, read_area_bytes_wanted, .. })
                if read_area_bytes_before != read_area_bytes_wanted =>
            {
                let wanted = format_size(*read_area_bytes_wanted);
                ("the read area gets another size", format!("{wanted} are wanted"))
            }
            Some(resize) => (
                "the log gets another size",
                format!("{} segments are wanted", resize.segments_wanted),
            ),
            None => {
                let wanted = before.resize.as_ref().map_or(0, |it| it.segments_wanted);
                let total = now.segments.total;
                match total == wanted {
                    true => ("the log has another size", format!("{total} segments")),
                    false => {
                        let why = format!("{total} segments, and {wanted} were wanted");
                        ("the log keeps its size", why)
                    }
                }
            }
        };
        tell(Weight::Note, what.into(), why);
    }
    let states_of = |report: &StatusReport| -> BTreeMap<String, (String, String)> {
        let members = report.volume.iter().flat_map(|volume| &volume.members).map(|member| {
            let name = format!("member {}", member.member);
            (name, (member.state.clone(), member.disk.clone().unwrap_or_default()))
        });
        let legs = report.legs.iter().map(|leg| {
            let why = leg.error.clone().or_else(|| leg.disk.clone()).unwrap_or_default();
            (format!("leg {}", leg.leg), (leg.state.clone(), why))
        });
        members.chain(legs).collect()
    };
    let (were, are) = (states_of(before), states_of(now));
    for (name, (state, why)) in &are {
        if were.get(name).is_some_and(|(was, _)| was != state) {
            let weight = match state.as_str() {
                "up-to-date" | "in-sync" => Weight::Note,
                "missing" | "failed" | "stale" => Weight::Error,
                _ => Weight::Warning,
            };
            tell(weight, format!("{name} is {state}"), format!("{why}; it was {}", were[name].0));
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::status_report::ResizeSummary;

    #[test]
    fn what_changes_is_told_with_its_reason() {
        let before = StatusReport::default();
        assert_eq!(changes(&before, &before), []);
        let mut now = before.clone();
        now.cache_disk_failed = true;
        now.cache_disk_error = Some("the device is gone".into());
        now.destage_error = Some("no-space".into());
        now.counters.stalled_writes = 3;
        now.utilisation = 0.97;
        now.draining = true;
        let told = changes(&before, &now);
        let whys: Vec<&str> = told.iter().map(|(_, _, why)| why.as_str()).collect();
        assert_eq!(told.len(), 4, "{told:?}");
        assert!(whys[0].starts_with("the device is gone; changes fail"), "{whys:?}");
        assert!(whys[1].starts_with("no-space"), "{whys:?}");
        assert!(whys[3].contains("97 %"), "{whys:?}");
        let given_up = StatusReport { draining: false, ..now.clone() };
        let told = changes(&now, &given_up);
        assert_eq!(told[0].1, "a drain has ended, and not all is on the data-disk", "{told:?}");
        let resize = |wanted| StatusReport {
            resize: Some(ResizeSummary { segments_wanted: wanted, ..ResizeSummary::default() }),
            ..StatusReport::default()
        };
        assert_eq!(changes(&resize(0), &before)[0].1, "the log has another size");
        assert_eq!(changes(&resize(38), &before)[0].1, "the log keeps its size");
        let over = changes(&now, &before);
        assert!(over.iter().any(|(_, what, _)| what == "the data-disk takes writes again"));
    }

    #[test]
    fn the_same_is_counted_and_old_ones_go() {
        let mut log = NewsLog::default();
        for second in 0..10 {
            log.add((Weight::Warning, "slow".into(), format!("{second}")), second);
        }
        let all = log.since(0);
        assert_eq!((all.len(), all[0].times, all[0].why.as_str()), (1, 10, "9"));
        log.add((Weight::Warning, "slow".into(), "again".into()), 1000);
        assert_eq!(log.since(10).len(), 1, "later it is news again");
        for number in 0..1000 {
            log.add((Weight::Note, format!("{number}"), String::new()), 2000);
        }
        assert_eq!(log.since(0).len(), NEWS_MAX);
        assert_eq!(log.since(log.last()).len(), 0);
    }
}
