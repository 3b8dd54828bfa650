//! `dcd bench disk`: how many requests a disk model serves, on one core, in time of the processor.

use dcd_sim::disk::bench::{self, Load};
use serde_json::json;

use super::engine::processor_time;
use super::median;
use crate::error::CommandError;
use crate::output::{Align, Paint, Table};
use crate::stdout::{print, print_json};

/// The drive that is modelled.
const PROFILE: &str = "hp-97560";

pub fn run(rounds: u32, as_json: bool) -> Result<(), CommandError> {
    let mut rows = Vec::new();
    for (key, name, load) in [
        ("random_per_second", "random 4 KiB, half of them writes", Load::Random),
        ("sequential_per_second", "sequential 4 KiB reads", Load::Sequential),
        ("queued_per_second", "random, 32 waiting, shortest access time first", Load::Queued),
    ] {
        rows.push((key, name, bench::run(PROFILE, load, rounds.max(1), &processor_time)?));
    }
    if as_json {
        let mut value = json!({ "disk": PROFILE });
        for (key, _, rounds) in rows {
            value[key] = json!({ "median": median(rounds.clone()), "rounds": rounds });
        }
        return print_json(&value);
    }
    let mut table = Table::new(&[
        ("measured", Align::Left),
        ("median per second", Align::Right),
        ("lowest", Align::Right),
        ("highest", Align::Right),
    ]);
    let thousands = |value: f64| format!("{:.0} k", value / 1e3);
    for (_, name, rounds) in rows {
        let lowest = rounds.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = rounds.iter().copied().fold(0.0, f64::max);
        let cells = [thousands(median(rounds)), thousands(lowest), thousands(highest)];
        table.row([name.to_owned()].into_iter().chain(cells).collect());
    }
    print(&table.render(Paint::for_stdout()))
}
