//! `dcd fuzz --seeded-bugs`: does the fuzzer find mistakes that were made on purpose?

use std::time::Instant;

use dcd_daemon::serve::driver_runs;
use dcd_fuzz::mistakes::{Mistake, all, turn_on};
use dcd_fuzz::seeded::{Caught, Trial, tried, tried_on_stores, try_these};
use dcd_fuzz::volume::VolumeKind;
use serde::Serialize;

use crate::command::fuzz::FuzzArguments;
use crate::error::CommandError;
use crate::error::lab::LabError;
use crate::output::{Align, Paint, Table};
use crate::progress::{Progress, Unit};
use crate::stdout;

/// Runs after which a mistake counts as not found, if nothing says so.
const RUNS_DEFAULT: u64 = 1000;
/// Runs without a mistake, in which nothing may be found.
const RUNS_WITHOUT: u64 = 400;

/// Stands where there was no mistake.
const NONE: &str = "(none)";

/// Tries all; an ordinary build has none, and says how to get one that has.
pub fn run(arguments: &FuzzArguments) -> Result<(), CommandError> {
    if all().is_empty() {
        return Err(CommandError::Lab(LabError::NoSeededBugs));
    }
    // A panic of the engine is one way to find a mistake; it does not end this process.
    std::panic::set_hook(Box::new(|_| {}));
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = arguments.jobs.map_or(processors, |jobs| jobs as usize);
    let seed = arguments.seed.unwrap_or(0);
    let runs_max = arguments.runs.unwrap_or(RUNS_DEFAULT);
    let wanted = |bug: &&Mistake| !arguments.store || tried_on_stores().any(|it| it == *bug);
    let of_driver = || all().iter().filter(wanted).filter(|bug| bug.is_for_driver_runs());
    let here: Vec<&Mistake> = tried().filter(wanted).collect();
    let total = (1 + here.len() + of_driver().count()) as u64;
    let mut progress = Progress::new("trying mistakes", Unit::Rounds);
    let mut done = 0;
    let mut one_is_done = |_: &Trial| {
        done += 1;
        progress.update(done, total);
    };
    let runs_without = runs_max.min(RUNS_WITHOUT);
    let mut trials = try_these(&here, seed, runs_max, runs_without, jobs, &mut one_is_done);
    for bug in of_driver() {
        let trial = try_on_driver(bug, seed, runs_max);
        one_is_done(&trial);
        trials.push(trial);
    }
    progress.finish();
    let rows: Vec<Row> = trials.iter().map(Row::of).collect();
    let wrong = trials.iter().filter(|trial| !trial.is_right()).count() as u64;
    if arguments.json {
        for row in &rows {
            stdout::print_json_line(row)?;
        }
        stdout::print_json_line(&Summary { seed, bugs: rows.len() as u64 - 1, wrong })?;
    } else {
        stdout::print(&render(&rows))?;
    }
    match wrong {
        0 => Ok(()),
        wrong => Err(CommandError::Lab(LabError::SeededBugs { wrong })),
    }
}

/// Runs the driver until a mistake is found, but not more than `runs_max` times.
fn try_on_driver(bug: &'static Mistake, seed: u64, runs_max: u64) -> Trial {
    let began = Instant::now();
    let violation_with = |bug: Option<&Mistake>, seed: u64| {
        turn_on(bug);
        let ended = std::panic::catch_unwind(|| driver_runs::run(seed));
        turn_on(None);
        match ended {
            Ok(Ok(_)) => None,
            Ok(Err(violation)) => Some(violation),
            Err(_) => Some("it panicked".into()),
        }
    };
    // Those that find it may be of a kind that comes later.
    let first = seed.saturating_add(bug.first_run.unwrap_or(0));
    let mut seeds = first..first.saturating_add(runs_max);
    let found = seeds.find_map(|seed| Some((seed, violation_with(Some(bug), seed)?)));
    let runs = found.as_ref().map_or(runs_max, |(found, _)| found - first + 1);
    let caught = |(seed, violation): (u64, String)| Caught {
        seed,
        volume: None,
        faults: Vec::new(),
        violation,
    };
    let anyway = found.as_ref().and_then(|(seed, _)| Some((*seed, violation_with(None, *seed)?)));
    Trial {
        bug: Some(bug),
        runs,
        elapsed: began.elapsed(),
        caught: found.filter(|_| anyway.is_none()).map(caught),
        fails_anyway: anyway.map(caught),
    }
}

/// What is printed of one.
#[derive(Serialize)]
struct Row {
    bug: &'static str,
    rule: &'static str,
    what: &'static str,
    caught: bool,
    right: bool,
    seed: Option<u64>,
    volume: Option<&'static str>,
    faults: Vec<&'static str>,
    runs: u64,
    seconds: f64,
    violation: Option<String>,
    /// Of a run that fails without the mistake, too.
    fails_anyway: Option<String>,
}

#[derive(Serialize)]
struct Summary {
    seed: u64,
    bugs: u64,
    wrong: u64,
}

impl Row {
    fn of(trial: &Trial) -> Row {
        let caught = trial.caught.as_ref();
        let faults = caught.map_or(&[][..], |caught| &caught.faults);
        Row {
            bug: trial.bug.map_or(NONE, |bug| bug.name),
            rule: trial.bug.map_or("", |bug| bug.rule),
            what: trial.bug.map_or("", |bug| bug.what),
            caught: caught.is_some(),
            right: trial.is_right(),
            seed: caught.map(|caught| caught.seed),
            volume: caught.and_then(|caught| caught.volume).map(VolumeKind::name),
            faults: faults.iter().map(|kind| kind.name()).collect(),
            runs: trial.runs,
            seconds: trial.elapsed.as_secs_f64(),
            violation: caught.map(|caught| caught.violation.clone()),
            fails_anyway: trial.fails_anyway.as_ref().map(|f| f.to_string()),
        }
    }
}

fn render(rows: &[Row]) -> String {
    let mut table = Table::new(&[
        ("mistake", Align::Left),
        ("rule", Align::Left),
        ("caught", Align::Left),
        ("runs", Align::Right),
        ("seconds", Align::Right),
        ("by", Align::Left),
    ]);
    for row in rows {
        let caught = match (row.bug, row.caught) {
            (NONE, false) => "nothing, rightly",
            (NONE, true) => "FOUND WITHOUT",
            (_, false) => "ESCAPED",
            (_, true) if row.fails_anyway.is_some() => "yes, but see below",
            (_, true) => "yes",
        };
        table.row(vec![
            row.bug.into(),
            row.rule.into(),
            caught.into(),
            row.runs.to_string(),
            format!("{:.2}", row.seconds),
            row.violation.as_deref().unwrap_or("").chars().take(60).collect(),
        ]);
    }
    let mut text = table.render(Paint::for_stdout());
    for row in rows {
        if let Some(failure) = &row.fails_anyway {
            text += &format!("\nfails without any mistake, too: {failure}\n");
        }
    }
    text
}
