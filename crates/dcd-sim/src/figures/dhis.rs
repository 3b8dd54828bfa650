//! Figures 6 to 11 of Yalamanchili, Vijayasankar, Zadok and Sivathanu, *DHIS: Discriminating
//! Hierarchical Storage*, SYSTOR 2009.
//!
//! What is simulated lies below the file system, so what a processor takes for pointers and layers
//! is not: Figures 4 and 5 are of nothing else, and of Figure 10 the disks' part is here.

use super::dhis_runs::{DhisRuns, Job, MICRO, On, PROFILE, READERS};
use super::{Compared, DHIS, Figure, Finding, Picture, Printed};
use crate::plot::stacked_bars::StackedBars;
use crate::plot::{Plot, Series};

const NOTE: &str = "Below the file system, on six WD400BB in place of six Maxtor SCSI disks of the same speed of rotation, each \
                    set on the first gigabyte of its place; loads made up after section 5.2, smaller. Volumes without a log; \
                    tables of the volume on an NVMe drive.";
/// "Within a twentieth" is how near DHIS is to come to the best level where the paper says "close".
const CLOSE: f64 = 0.05;

fn name(job: Job) -> String {
    match job {
        Job::Postmark => "PostMark".into(),
        Job::SequentialRead => "sequential read".into(),
        Job::SequentialWrite => "sequential write".into(),
        Job::RandomRead => "random read".into(),
        Job::RandomWrite => "random write".into(),
        Job::Oltp(readers) => format!("{readers} readers"),
        Job::Build => "build".into(),
        Job::SynchronousPostmark => "synchronous PostMark".into(),
    }
}

fn bars(
    number: &str,
    title: &str,
    unit: &str,
    jobs: &[Job],
    on: &[On],
    value: impl Fn(Job, On) -> f64,
) -> Figure {
    let groups = jobs
        .iter()
        .map(|job| (name(*job), on.iter().map(|on| vec![value(*job, *on)]).collect::<Vec<_>>()));
    Figure {
        name: format!("dhis-figure-{number}"),
        picture: Picture::Bars(StackedBars {
            title: format!("DHIS, Figure {number}: {title}"),
            y_axis: unit.into(),
            bars: on.iter().map(|on| on.name().into()).collect(),
            parts: vec![title.into()],
            groups: groups.collect(),
        }),
        notes: vec![NOTE.into()],
    }
}

/// Figures 6 to 11.
pub fn figures(runs: &DhisRuns) -> Vec<Figure> {
    let seconds = |job, on| runs.get(job, on).elapsed_s;
    let three = [On::Raid1, On::Raid5, On::Hinted];
    let curves = |letter: &str, what: &str, value: &dyn Fn(Job, On) -> f64| Figure {
        name: format!("dhis-figure-8{letter}"),
        picture: Picture::Curves(Plot {
            title: format!("DHIS, Figure 8{letter}: data base"),
            x_axis: "readers, beside ten writers and one of a log".into(),
            y_axis: what.into(),
            log_y: false,
            series: On::LEVELS
                .iter()
                .map(|on| Series {
                    name: on.name().into(),
                    points: READERS
                        .iter()
                        .map(|readers| (*readers as f64, value(Job::Oltp(*readers), *on)))
                        .collect(),
                })
                .collect(),
        }),
        notes: vec![NOTE.into()],
    };
    let cached = [On::Hinted, On::HintedCached];
    vec![
        bars("6", "elapsed time", "s", &[Job::Postmark], &three, seconds),
        bars("7", "elapsed time", "s", &MICRO, &three, seconds),
        curves("a", "requests a second", &|job, on| runs.get(job, on).per_second),
        curves("b", "mean latency, ms", &|job, on| runs.get(job, on).response_ms),
        bars("9", "sectors written", "thousand", &[Job::Build], &On::LEVELS, |job, on| {
            runs.get(job, on).member_sectors as f64 / 1e3
        }),
        bars("10", "time of the disks", "s", &[Job::Build], &On::LEVELS, seconds),
        bars("11", "elapsed time", "s", &[Job::SynchronousPostmark], &cached, seconds),
    ]
}

/// Percent more than.
fn more(value: f64, than: f64) -> f64 {
    100.0 * (value / than - 1.0)
}

/// What its text says in numbers.
pub fn tables(runs: &DhisRuns) -> Vec<Compared> {
    let row = |place, what: &str, printed, ours| Compared {
        paper: DHIS,
        place,
        disk: PROFILE.into(),
        what: what.into(),
        printed: Printed::Number(printed),
        ours,
        unit: "%",
        percent_of_writes: None,
    };
    let seconds = |job, on| runs.get(job, on).elapsed_s;
    let sectors = |on| runs.get(Job::Build, on).member_sectors as f64;
    let write = |on| seconds(Job::SequentialWrite, on);
    vec![
        row(
            "Figure 6",
            "PostMark: so much longer than RAID 1, the processor's part included in the paper",
            25.0,
            more(seconds(Job::Postmark, On::Hinted), seconds(Job::Postmark, On::Raid1)),
        ),
        row(
            "Figure 7",
            "sequential write: so much faster than RAID 5",
            16.0,
            more(write(On::Raid5), write(On::Hinted)),
        ),
        row(
            "Figure 9",
            "sectors written: RAID 1 more than DHIS",
            82.0,
            more(sectors(On::Raid1), sectors(On::Hinted)),
        ),
        row(
            "Figure 9",
            "sectors written: RAID 5 more than DHIS",
            48.0,
            more(sectors(On::Raid5), sectors(On::Hinted)),
        ),
        row(
            "Figure 9",
            "sectors written: DHIS more than RAID 0",
            7.0,
            more(sectors(On::Hinted), sectors(On::Raid0)),
        ),
        row(
            "Figure 11",
            "synchronous PostMark: shorter with metadata in non-volatile memory",
            37.0,
            -more(
                seconds(Job::SynchronousPostmark, On::HintedCached),
                seconds(Job::SynchronousPostmark, On::Hinted),
            ),
        ),
    ]
}

/// What the paper found.
pub fn findings(runs: &DhisRuns) -> Vec<Finding> {
    let finding = |statement, holds, numbers| Finding {
        paper: DHIS,
        disk: PROFILE.into(),
        statement,
        holds,
        numbers,
    };
    let seconds = |job, on| runs.get(job, on).elapsed_s;
    let of_three = |job| {
        let [first, fifth, hinted] = [On::Raid1, On::Raid5, On::Hinted].map(|on| seconds(job, on));
        (first, fifth, hinted)
    };
    let text = |job| {
        let (first, fifth, hinted) = of_three(job);
        format!("{}: RAID 1 {first:.1}, RAID 5 {fifth:.1}, DHIS {hinted:.1} s", name(job))
    };
    let is_close = |job| {
        let (first, fifth, hinted) = of_three(job);
        hinted <= first.min(fifth) * (1.0 + CLOSE)
    };
    let (first, fifth, hinted) = of_three(Job::Postmark);
    let mut all = vec![
        finding(
            "PostMark with the attribute random runs as on RAID 1, whatever pointers cost (5.4.1, Figure 6; within 5 %)",
            (hinted / first - 1.0).abs() <= CLOSE && hinted < fifth,
            text(Job::Postmark),
        ),
        finding(
            "with its attributes each of four micro-benchmarks is close to the faster of RAID 1 and 5 (5.4.1, Figure 7; \
             within 5 %)",
            MICRO.into_iter().all(is_close),
            MICRO.map(text).join("; "),
        ),
        finding(
            "sequential writes gain over RAID 5, because metadata go to RAID 1 (5.4.1, Figure 7; at least 5 %)",
            more(
                seconds(Job::SequentialWrite, On::Raid5),
                seconds(Job::SequentialWrite, On::Hinted),
            ) >= 5.0,
            text(Job::SequentialWrite),
        ),
    ];
    let oltp = |on, readers| runs.get(Job::Oltp(readers), on);
    let rates = |on| READERS.map(|readers| oltp(on, readers).per_second);
    let as_raid_5 = |readers| {
        let (hinted, fifth) = (oltp(On::Hinted, readers), oltp(On::Raid5, readers));
        (hinted.per_second / fifth.per_second - 1.0).abs() <= CLOSE
            && (hinted.response_ms / fifth.response_ms - 1.0).abs() <= CLOSE
    };
    let in_words = |on: On, values: [f64; 4]| {
        let values = values.map(|value| format!("{value:.0}")).join(", ");
        format!("{} {values}", on.name())
    };
    all.push(finding(
        "a data base of important, read-most, random data runs as on RAID 5 (5.4.2, Figure 8; within 5 %)",
        READERS.into_iter().all(as_raid_5),
        On::LEVELS.map(|on| in_words(on, rates(on))).join("; ") + " requests/s",
    ));
    let is_fastest = |readers| {
        On::LEVELS
            .iter()
            .all(|on| oltp(On::Raid0, readers).per_second >= oltp(*on, readers).per_second)
    };
    all.push(finding(
        "RAID 0 has the highest throughput of a data base, which is of no use for important data (5.4.2, Figure 8)",
        READERS.into_iter().all(is_fastest),
        in_words(On::Raid0, rates(On::Raid0)),
    ));
    let slope = |on| oltp(on, 100).response_ms - oltp(on, 25).response_ms;
    all.push(finding(
        "with more readers the latency of RAID 1 grows faster than that of RAID 0, 5 and DHIS (5.4.2, Figure 8b)",
        [On::Raid0, On::Raid5, On::Hinted].into_iter().all(|on| slope(On::Raid1) > slope(on)),
        On::LEVELS.map(|on| format!("{} {:.0} ms", on.name(), slope(on))).join(", "),
    ));
    let sectors = |on| runs.get(Job::Build, on).member_sectors as f64;
    all.push(finding(
        "a build whose objects are temporary writes at most a tenth more than RAID 0, RAID 5 at least two fifths and RAID 1 \
         four fifths more than that (5.4.3, Figure 9)",
        more(sectors(On::Hinted), sectors(On::Raid0)) <= 10.0
            && more(sectors(On::Raid5), sectors(On::Hinted)) >= 40.0
            && more(sectors(On::Raid1), sectors(On::Hinted)) >= 80.0,
        On::LEVELS.map(|on| format!("{} {:.0}", on.name(), sectors(on))).join(", ") + " sectors",
    ));
    let (before, after) = (
        seconds(Job::SynchronousPostmark, On::Hinted),
        seconds(Job::SynchronousPostmark, On::HintedCached),
    );
    all.push(finding(
        "with metadata in non-volatile memory a synchronous PostMark takes at least 37 % less (5.4, Figure 11)",
        after <= before * 0.63,
        format!("{before:.1} s, {after:.1} s"),
    ));
    all
}
