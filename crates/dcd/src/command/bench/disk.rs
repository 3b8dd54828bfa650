//! `dcd bench disk`: how many requests a disk model serves, on one core, in time of the processor.

use dcd_sim::disk::bench::{self, Load};
use serde_json::json;

use super::engine::processor_time;
use super::print_rows;
use crate::error::CommandError;

/// The drive that is modelled.
const PROFILE: &str = "hp-97560";

pub fn run(rounds: u32, as_json: bool) -> Result<(), CommandError> {
    let mut rows = Vec::new();
    for (key, name, load) in [
        ("random_per_second", "random 4 KiB, half of them writes", Load::Random),
        ("sequential_per_second", "sequential 4 KiB reads", Load::Sequential),
        ("queued_per_second", "random, 32 waiting, shortest access time first", Load::Queued),
    ] {
        rows.push((key, name, bench::run(PROFILE, load, rounds, &processor_time)?));
    }
    let value = as_json.then(|| json!({ "disk": PROFILE }));
    print_rows(rows, value, |value| format!("{:.0} k", value / 1e3), "")
}
