//! `dcd fuzz --store`: runs of a data-disk in an object store.

use std::ops::ControlFlow;

use dcd_daemon::process::signals::Signals;
use dcd_daemon::serve::ServeError;
use dcd_fuzz::session::Limit;
use dcd_fuzz::store::{Outcome, search};
use serde_json::json;

use crate::command::fuzz::{FuzzArguments, TIME_DEFAULT};
use crate::error::CommandError;
use crate::error::lab::LabError;
use crate::output::count;
use crate::progress::{Progress, Unit};
use crate::stdout;

/// Does it.
pub fn run(arguments: &FuzzArguments) -> Result<(), CommandError> {
    let seed = arguments.seed.unwrap_or(0);
    let limit = match (arguments.runs, arguments.time, arguments.seed) {
        (Some(runs), ..) => Limit::Runs(runs),
        (_, Some(time), _) => Limit::Time(time),
        // A seed alone is that run alone.
        (.., Some(_)) => Limit::Runs(1),
        _ => Limit::Time(TIME_DEFAULT),
    };
    let (total, unit) = match limit {
        Limit::Time(time) => (time.as_secs(), Unit::Seconds),
        Limit::Runs(runs) => (runs, Unit::Rounds),
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = arguments.jobs.map_or(processors, |jobs| jobs as usize);
    // A panic is a violation, and does not end this process.
    std::panic::set_hook(Box::new(|_| {}));
    let signals = Signals::install().map_err(ServeError::system("receive signals"))?;
    let mut is_stopped = false;
    let mut progress = Progress::new("fuzzing", unit);
    let outcome = search(seed, limit, jobs, |done, elapsed| {
        let done = if unit == Unit::Seconds { elapsed.as_secs() } else { done };
        progress.update(done.min(total), total);
        is_stopped |= signals.take().is_some();
        if is_stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    drop(signals);
    progress.finish();
    match arguments.json {
        true => print_json(seed, &outcome)?,
        false => stdout::print(&render(seed, &outcome))?,
    }
    match outcome.violations.len() as u64 {
        0 if is_stopped => Err(CommandError::Lab(LabError::FuzzStopped)),
        0 => Ok(()),
        found => Err(CommandError::Lab(LabError::Violations { found, on_volumes: false })),
    }
}

fn print_json(seed: u64, outcome: &Outcome) -> Result<(), CommandError> {
    let Outcome { report, violations, elapsed } = outcome;
    let troubles = report.troubles;
    stdout::print_json_line(&json!({
        "seed": seed,
        "runs": report.runs + violations.len() as u64,
        "seconds": elapsed.as_secs_f64(),
        "requests": report.steps,
        "crash_points": report.crash_points,
        "crash_points_of_take_overs": report.cut_off,
        "openings": report.openings,
        "deaths": report.deaths,
        "take_overs": report.take_overs,
        "windows": report.windows,
        "remote_flushes": report.remote_flushes,
        "requests_of_the_store": troubles.requests,
        "failed": troubles.nothing,
        "answers_lost": troubles.unanswered,
        "done_later": troubles.late,
        "done_twice": troubles.twice,
        "half_written": troubles.half_written,
        "old_listings": troubles.old_listings,
        "other_objects": troubles.other_objects,
        "violations": violations,
    }))
}

fn render(seed: u64, outcome: &Outcome) -> String {
    let Outcome { report, violations, elapsed } = outcome;
    let troubles = report.troubles;
    let mut text = format!(
        "{} of a data-disk in an object store from seed {seed} in {:.1} s: {}, {}, {} remote flushes, {} of whoever had it open, {}\n\
         crash points: {} (cache-disk thrown away, store taken over; {} of these take-overs cut off and made again)\n\
         store: {}, {} failed, {} done without an answer, {} done later, {} done twice, {} half written, {} of a while ago, {} of another object\n{}\n",
        count(report.runs + violations.len() as u64, "run"),
        elapsed.as_secs_f64(),
        count(report.steps, "request"),
        count(report.windows, "window"),
        report.remote_flushes,
        count(report.deaths, "death"),
        count(report.take_overs, "take-over"),
        report.crash_points,
        report.cut_off,
        count(troubles.requests, "request"),
        troubles.nothing,
        troubles.unanswered,
        troubles.late,
        troubles.twice,
        troubles.half_written,
        count(troubles.old_listings, "listing"),
        count(troubles.other_objects, "read"),
        count(violations.len() as u64, "violation"),
    );
    for (seed, violation) in violations {
        text += &format!("\n--store --seed {seed}: {violation}\n");
    }
    text
}
