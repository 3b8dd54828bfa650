//! Figures 7 to 12 of Nightingale, Hu and Yang, *The Design and Implementation of a DCD Device
//! Driver for UNIX* (USENIX 1999), with the bound of its section 4.2.2.
//!
//! What is simulated lies below the file system. The users are those of `docs/workloads.md`, each
//! waits for his own requests, and "CPU time" is the time that they think on one processor, 1 ms
//! for a request on average. The paper has the curves as pictures only; beside ours stands what its
//! text says.

pub use super::unix_runs::{PROFILE, Task, UnixRuns};
use super::unix_runs::{Runs, SIZES_KB, USERS};
use super::{Compared, Figure, Finding, Picture, Printed, UNIX};
use crate::plot::stacked_bars::StackedBars;
use crate::plot::{Plot, Series};

/// Section 4.2.2: so many times faster is a unit of 128 KB than one of 1, 2, 4 and 8 KB.
const RATIOS: [(u64, f64); 4] = [(1, 55.0), (2, 28.0), (4, 14.3), (8, 7.4)];
/// Section 4.2.2: sizes of the requests of the 4-user remove, and their shares.
const REMOVE_MIX: [(u64, f64); 3] = [(8, 0.5), (2, 0.15), (1, 0.35)];
/// Section 4.2.2: reads and CPU time in it.
const REMOVE_REST: f64 = 0.07;
const SHOWN: [(Task, &str); 3] =
    [(Task::Untar, "untar"), (Task::Copy, "copy"), (Task::Remove, "remove")];

/// How much faster a run can get whose requests cost as much less as the ratios say.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bound {
    /// The paper's arithmetic: the ratios are weighted by numbers of requests.
    pub by_requests: f64,
    /// Each kind of request by the time that it takes, as Amdahl would.
    pub by_time: f64,
}

/// The bound of section 4.2.2, of requests of those sizes with those shares, where `rest` of the
/// time remains.
///
/// `ratios` are bandwidths at 128 KB over those at a size in KB; all sizes of the mix must be
/// there.
pub fn bound(ratios: &[(u64, f64)], mix: &[(u64, f64)], rest: f64) -> Bound {
    let ratio =
        |kb: u64| ratios.iter().find(|(size, _)| *size == kb).map_or(1.0, |(_, ratio)| *ratio);
    // The time of a request: its size over the bandwidth, in units of the bandwidth at 128 KB.
    let time = |kb: u64| kb as f64 * ratio(kb);
    let by_requests: f64 = mix.iter().map(|(kb, share)| share * ratio(*kb)).sum();
    let before: f64 = mix.iter().map(|(kb, share)| share * time(*kb)).sum();
    let after: f64 = mix.iter().map(|(kb, share)| share * *kb as f64).sum();
    let with_rest = |speedup: f64| 1.0 / (rest + (1.0 - rest) / speedup);
    Bound { by_requests: with_rest(by_requests), by_time: with_rest(before / after) }
}

impl UnixRuns {
    fn speedup(&self, task: Task, users: u64) -> f64 {
        self.get(task, users, false).elapsed_s / self.get(task, users, true).elapsed_s.max(1e-9)
    }

    fn speedups(&self, task: Task) -> [f64; 3] {
        USERS.map(|users| self.speedup(task, users))
    }

    /// Bandwidth at 128 KB over that of each size.
    fn ratios(&self) -> Vec<(u64, f64)> {
        let largest = self.bandwidth.last().map_or(1.0, |(_, bandwidth)| *bandwidth);
        self.bandwidth.iter().map(|(kb, bandwidth)| (*kb, largest / bandwidth)).collect()
    }

    /// Of our 4-user remove: all its requests are writes of 4 KB, and the rest is thinking.
    fn own_bound(&self) -> Bound {
        let rest = self.get(Task::Remove, 4, false).thinking_percent() / 100.0;
        bound(&self.ratios(), &[(4, 1.0)], rest)
    }
}

const LOAD: &str = "Below the file system: users untar, copy and remove a tree of 508 files with synchronous writes of \
                    4 KB blocks, as on ext2 (docs/workloads.md), on a Barracuda 4LP, log of 64 MB on the same disk.";

/// Figures 7 to 12.
pub fn figures(runs: &UnixRuns) -> Vec<Figure> {
    let mut all: Vec<Figure> = ["7", "8", "9"]
        .iter()
        .zip(USERS)
        .map(|(number, users)| times(runs, number, users))
        .collect();
    all.push(bandwidth(runs));
    let (log, disk) = (runs.get(Task::Copy, 4, true), runs.get(Task::Copy, 4, false));
    let parts = [
        ("11a", "write response times with DCD", &log.writes_ms, 25.0, 0.5),
        ("11b", "write response times, bare disk", &disk.writes_ms, 500.0, 10.0),
        ("12a", "read response times with DCD", &log.reads_ms, 25.0, 0.5),
        ("12b", "read response times, bare disk", &disk.reads_ms, 500.0, 10.0),
    ];
    let printed = [9.59, 135.30, 6.69, 42.28];
    for ((number, what, times, most, step), printed) in parts.into_iter().zip(printed) {
        all.push(histogram(number, what, times, most, step, printed));
    }
    all
}

fn times(runs: &UnixRuns, number: &str, users: u64) -> Figure {
    let parts = |runs: &Runs| {
        let waiting_s = (runs.elapsed_s - runs.thinking_s).max(0.0);
        vec![runs.thinking_s, waiting_s]
    };
    let groups = SHOWN.map(|(task, name)| {
        let bars = [false, true].map(|has_log| parts(runs.get(task, users, has_log)));
        (format!("{users}-user {name}"), bars.to_vec())
    });
    let users_in_words = if users == 1 { "1 user".to_owned() } else { format!("{users} users") };
    Figure {
        name: format!("unix-figure-{number}"),
        picture: Picture::Bars(StackedBars {
            title: format!("USENIX 1999, Figure {number}: execution times, {users_in_words}"),
            y_axis: "s".into(),
            bars: vec!["bare disk".into(), "DCD".into()],
            parts: vec![
                "CPU: thinking, 1 ms a request, assumed".into(),
                "waiting for the disk".into(),
            ],
            groups: groups.to_vec(),
        }),
        notes: vec![
            LOAD.into(),
            "The CPU time of the programs and of Solaris is not simulated. Means of three runs."
                .into(),
        ],
    }
}

fn bandwidth(runs: &UnixRuns) -> Figure {
    let kb_per_second = |bytes_per_second: f64| bytes_per_second / 1024.0;
    let largest = runs.bandwidth.last().map_or(1.0, |(_, bps)| kb_per_second(*bps));
    let groups = runs.bandwidth.iter().map(|(kb, bps)| {
        let printed = RATIOS.iter().find(|(size, _)| size == kb).map(|(_, ratio)| largest / ratio);
        let ours = vec![kb_per_second(*bps)];
        (
            format!("{kb} KB"),
            [Some(ours), printed.map(|kb| vec![kb])].into_iter().flatten().collect(),
        )
    });
    Figure {
        name: "unix-figure-10".into(),
        picture: Picture::Bars(StackedBars {
            title: "USENIX 1999, Figure 10: random writes of 20 MB to the bare disk".into(),
            y_axis: "KB/s".into(),
            bars: vec!["our model".into(), "printed ratios to 128 KB, at our 128 KB".into()],
            parts: vec!["bandwidth".into()],
            groups: groups.collect(),
        }),
        notes: vec!["Of the printed figure the text gives four ratios, and no bandwidth.".into()],
    }
}

/// Shares of the requests in steps of time.
fn histogram(
    number: &str,
    what: &str,
    times_ms: &[f64],
    most_ms: f64,
    step_ms: f64,
    printed_mean_ms: f64,
) -> Figure {
    let steps = (most_ms / step_ms).round() as usize;
    let mut counts = vec![0u64; steps];
    let mut beyond = 0u64;
    for time_ms in times_ms {
        match counts.get_mut((time_ms / step_ms) as usize) {
            Some(count) => *count += 1,
            None => beyond += 1,
        }
    }
    let percent = |count: u64| 100.0 * count as f64 / times_ms.len().max(1) as f64;
    let mut points = Vec::new();
    for (index, count) in counts.iter().enumerate() {
        let left_ms = index as f64 * step_ms;
        points.extend([(left_ms, percent(*count)), (left_ms + step_ms, percent(*count))]);
    }
    Figure {
        name: format!("unix-figure-{number}"),
        picture: Picture::Curves(Plot {
            title: format!("USENIX 1999, Figure {number}: {what}, 4-user copy"),
            x_axis: "response time, ms".into(),
            y_axis: format!("% of requests, in steps of {step_ms} ms"),
            log_y: false,
            series: vec![Series { name: format!("{} requests", times_ms.len()), points }],
        }),
        notes: vec![
            format!(
                "Mean {:.2} ms, printed {printed_mean_ms:.2} ms; {:.2} % take {most_ms} ms or longer.",
                mean(times_ms),
                percent(beyond)
            ),
            LOAD.into(),
        ],
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn percent_within(sorted_ms: &[f64], most_ms: f64) -> f64 {
    let within = sorted_ms.partition_point(|time| *time <= most_ms);
    100.0 * within as f64 / sorted_ms.len().max(1) as f64
}

/// What the text says of the figures.
pub fn tables(runs: &UnixRuns) -> Vec<Compared> {
    let mut rows = Vec::new();
    let mut add = |place, what: String, unit, printed, ours| {
        let (paper, disk) = (UNIX, PROFILE.to_owned());
        rows.push(Compared {
            paper,
            place,
            disk,
            what,
            printed,
            ours,
            unit,
            percent_of_writes: None,
        });
    };
    for (place, users) in [("Figure 7", 1), ("Figure 8", 4), ("Figure 9", 8)] {
        for (task, name, printed) in [
            (Task::Untar, "untar", Printed::Range(3.0, 6.0)),
            (Task::Copy, "copy", Printed::Range(2.0, 3.0)),
            (Task::WarmCopy, "copy, warm cache", Printed::Range(4.0, 5.0)),
            (Task::Remove, "remove", Printed::Range(3.0, 6.0)),
        ] {
            let printed = match (task, users) {
                (Task::Remove, 4) => Printed::Number(6.2),
                _ => printed,
            };
            let what = format!("{users}-user {name}: DCD so many times faster");
            add(place, what, "x", printed, runs.speedup(task, users));
        }
        for (has_log, name, printed) in [
            (false, "bare disk", Printed::Range(3.0, 15.0)),
            (true, "DCD", Printed::Range(16.0, 50.0)),
        ] {
            for (task, task_name) in SHOWN {
                let what = format!("{users}-user {task_name}, {name}: CPU busy");
                let ours = runs.get(task, users, has_log).thinking_percent();
                add(place, what, "%", printed, ours);
            }
        }
    }
    let ratios = runs.ratios();
    for ((kb, printed), ours) in RATIOS.iter().zip(&ratios) {
        let what = format!("random writes of 128 KB: so many times the bandwidth of {kb} KB");
        add("Figure 10", what, "x", Printed::Number(*printed), ours.1);
    }
    let place = "Section 4.2.2";
    let of_paper = bound(&ratios, &REMOVE_MIX, REMOVE_REST);
    let what = "bound of the 4-user remove, the paper's requests and arithmetic, our bandwidths";
    add(place, what.into(), "x", Printed::Number(9.4), of_paper.by_requests);
    let printed = bound(&RATIOS, &REMOVE_MIX, REMOVE_REST).by_time;
    let what = "the same, weighted by time instead of requests (printed: the paper's ratios)";
    add(
        place,
        what.into(),
        "x",
        Printed::Number((printed * 10.0).round() / 10.0),
        of_paper.by_time,
    );
    let (log, disk) = (runs.get(Task::Copy, 4, true), runs.get(Task::Copy, 4, false));
    for (place, name, log_ms, disk_ms, printed) in [
        ("Figure 11", "write", &log.writes_ms, &disk.writes_ms, [9.59, 135.30, 95.0]),
        ("Figure 12", "read", &log.reads_ms, &disk.reads_ms, [6.69, 42.28, 40.0]),
    ] {
        let what = |of: &str| format!("mean {name} response time, 4-user copy, {of}");
        add(place, what("DCD"), "ms", Printed::Number(printed[0]), mean(log_ms));
        add(place, what("bare disk"), "ms", Printed::Number(printed[1]), mean(disk_ms));
        let what = format!("{name}s that take at most 1 ms with DCD");
        add(place, what, "%", Printed::Number(printed[2]), percent_within(log_ms, 1.0));
    }
    rows
}

/// What the paper found.
pub fn findings(runs: &UnixRuns) -> Vec<Finding> {
    let mut all = Vec::new();
    let mut add = |statement, holds, numbers| {
        let (paper, disk) = (UNIX, PROFILE.to_owned());
        all.push(Finding { paper, disk, statement, holds, numbers });
    };
    let shown = |[one, four, eight]: [f64; 3]| {
        format!("{one:.1}, {four:.1} and {eight:.1} times with 1, 4 and 8 users")
    };
    let least = |speedups: &[f64]| speedups.iter().copied().fold(f64::MAX, f64::min);
    let [untar, copy, warm, remove] =
        [Task::Untar, Task::Copy, Task::WarmCopy, Task::Remove].map(|task| runs.speedups(task));
    add(
        "untar and remove run 3 to 6 times faster with DCD, or more (4.2.1, Figures 7 to 9)",
        least(&untar).min(least(&remove)) >= 3.0,
        format!("untar {}; remove {}", shown(untar), shown(remove)),
    );
    add(
        "copy with a cold page cache runs 2 to 3 times faster, or more (4.2.1)",
        least(&copy) >= 2.0,
        shown(copy),
    );
    add(
        "with a warm page cache copy gains more: 4 to 5 times, or more (4.2.1)",
        least(&warm) >= 4.0 && copy.iter().zip(&warm).all(|(cold, warm)| cold < warm),
        shown(warm),
    );
    let busy = |has_log| {
        SHOWN.map(|(task, _)| USERS.map(|users| runs.get(task, users, has_log).thinking_percent()))
    };
    let (before, after) = (busy(false), busy(true));
    let range = |values: &[[f64; 3]; 3]| {
        let all = || values.iter().flatten().copied();
        (all().fold(f64::MAX, f64::min), all().fold(0.0, f64::max))
    };
    let (before, after) = (range(&before), range(&after));
    add(
        "the bare disk leaves the CPU idle: 3 to 15 % busy, with DCD 16 to 50 %, or more (4.2.1)",
        before.1 <= 15.0 && after.0 >= 16.0,
        format!("{:.0} to {:.0} %, {:.0} to {:.0} %", before.0, before.1, after.0, after.1),
    );
    let ratios = runs.ratios();
    let near = RATIOS
        .iter()
        .zip(&ratios)
        .all(|((_, printed), (_, ours))| (0.75..=1.0 / 0.75).contains(&(ours / printed)));
    let text = ratios.iter().take(RATIOS.len()).map(|(kb, ratio)| format!("{kb} KB {ratio:.1}"));
    add(
        "random writes of 128 KB have 55, 28, 14.3 and 7.4 times the bandwidth of 1, 2, 4 and 8 KB (4.2.2, Figure 10; \
         within a quarter)",
        near && ratios.len() == SIZES_KB.len(),
        text.collect::<Vec<_>>().join(", "),
    );
    let (bound, reached) = (runs.own_bound().by_time, runs.speedup(Task::Remove, 4));
    add(
        "the 4-user remove stays below what Figure 10 allows, and reaches two thirds of it (4.2.2)",
        reached <= bound && reached >= bound * 0.6,
        format!("{reached:.1} times, bound {bound:.1}, {:.0} %", 100.0 * reached / bound),
    );
    let (log, disk) = (runs.get(Task::Copy, 4, true), runs.get(Task::Copy, 4, false));
    let (with, without) = (mean(&log.writes_ms), mean(&disk.writes_ms));
    let within = percent_within(&log.writes_ms, 1.0);
    add(
        "with DCD 95 % of the writes of the 4-user copy take at most 1 ms, and the mean is less than 1/14 (4.2.3, \
         Figure 11)",
        within >= 95.0 && with * 14.0 < without,
        format!("{within:.1} %; mean {with:.3} ms, bare disk {without:.2} ms"),
    );
    let (with, without) = (mean(&log.reads_ms), mean(&disk.reads_ms));
    let [within, before] = [&log.reads_ms, &disk.reads_ms].map(|ms| percent_within(ms, 1.0));
    add(
        "reads gain, too: 1/6 of the time, 40 % within 1 ms by read-ahead where nearly none was (4.2.3, Figure 12)",
        with * 6.0 <= without && within >= 40.0,
        format!(
            "mean {with:.2} ms, bare disk {without:.2} ms; within 1 ms {within:.0} %, bare disk {before:.0} %"
        ),
    );
    let requests = SHOWN.map(|(task, name)| {
        let of = |has_log| runs.get(task, 4, has_log).disk_requests;
        (name, of(true), of(false))
    });
    add(
        "destaging included, DCD makes fewer disk requests than the bare disk gets (4.2.4; 4 users)",
        requests.iter().all(|(_, with, without)| with < without),
        requests
            .map(|(name, with, without)| format!("{name} {with:.0} of {without:.0}"))
            .join("; "),
    );
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Section 4.2.2 prints 25.4 for a sum whose terms make 27.15, and 9.4 for what follows from
    /// 25.4.
    #[test]
    fn the_bound_is_that_of_section_4_2_2() {
        let found = bound(&RATIOS, &REMOVE_MIX, REMOVE_REST);
        assert!((found.by_requests - 9.59).abs() < 0.01, "{found:?}");
        let printed: f64 = 1.0 / (0.07 + 0.93 / 25.4);
        assert!((printed - 9.4).abs() < 0.05, "{printed}");
        // A request of each kind takes about the same time, so the slowest kind rules.
        assert!((found.by_time - 6.86).abs() < 0.05, "{found:?}");
        // Of one kind both are the same, and without rest the ratio itself.
        let one = bound(&RATIOS, &[(4, 1.0)], 0.0);
        assert!((one.by_requests - 14.3).abs() < 1e-9 && (one.by_time - 14.3).abs() < 1e-9);
        assert!(bound(&RATIOS, &[(1, 1.0)], 0.5).by_time < 2.0);
    }

    #[test]
    fn a_histogram_counts_each_request_once() {
        let figure = histogram("11a", "", &[0.1, 0.2, 0.7, 24.9, 30.0], 25.0, 0.5, 1.0);
        let Picture::Curves(plot) = &figure.picture else { panic!("{figure:?}") };
        let points = &plot.series[0].points;
        assert_eq!(points.len(), 100);
        assert_eq!((points[0], points[1]), ((0.0, 40.0), (0.5, 40.0)));
        assert_eq!((points[2].1, points[98].1), (20.0, 20.0));
        assert!(figure.notes[0].contains("20.00 % take 25 ms"), "{:?}", figure.notes);
        assert_eq!(percent_within(&[0.5, 1.0, 2.0], 1.0), 200.0 / 3.0);
    }
}
