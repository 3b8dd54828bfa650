//! `dcd bench engine`: the engine alone, on disks made of memory, on one core. Time is that of the
//! processor, so that other programs on the machine count less.

use std::time::Duration;

use dcd_sim::engine_bench::{self, EngineBench};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

use super::median;
use crate::error::CommandError;
use crate::output::{Align, Paint, Table};
use crate::progress::{Progress, Unit};
use crate::stdout::{print, print_json};

pub fn run(rounds: u32, as_json: bool) -> Result<(), CommandError> {
    let mut progress = Progress::new("measuring", Unit::Rounds);
    let measured = engine_bench::run(rounds.max(1), &processor_time, &mut |done| {
        progress.update(u64::from(done), u64::from(rounds));
    });
    progress.finish();
    show(measured, as_json)
}

/// Processor time of this thread.
pub(super) fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

fn show(measured: EngineBench, as_json: bool) -> Result<(), CommandError> {
    let index_bytes = measured.index_bytes_per_gib;
    let rows = [
        ("writes_per_second", "random 4 KiB writes, copied and checksummed", measured.writes),
        ("writes_destaged_per_second", "the same without a pause, destaged", measured.sustained),
        ("read_hits_per_second", "random 4 KiB read hits, copied and verified", measured.read_hits),
        ("lookups_per_second", "lookups in a full table", measured.lookups),
    ];
    if as_json {
        let mut value = json!({ "index_bytes_per_gib": index_bytes });
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
    let millions = |value: f64| format!("{:.2} M", value / 1e6);
    for (_, name, rounds) in rows {
        let lowest = rounds.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = rounds.iter().copied().fold(0.0, f64::max);
        table.row(vec![name.into(), millions(median(rounds)), millions(lowest), millions(highest)]);
    }
    let index = index_bytes as f64 / (1u64 << 20) as f64;
    print(&format!("{}index: {index:.2} MiB per GiB of cache\n", table.render(Paint::for_stdout())))
}
