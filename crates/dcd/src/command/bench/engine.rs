//! `dcd bench engine`: the engine alone, on disks made of memory, on one core. Time is that of the
//! processor, so that other programs on the machine count less.

use std::time::Duration;

use dcd_sim::engine_bench::{self, EngineBench};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

use super::print_rows;
use crate::error::CommandError;
use crate::progress::{Progress, Unit};

pub fn run(rounds: u32, as_json: bool) -> Result<(), CommandError> {
    let mut progress = Progress::new("measuring", Unit::Rounds);
    let measured =
        engine_bench::run(engine_bench::CACHE_BYTES, rounds, &processor_time, &mut |done| {
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
    let rows = vec![
        ("writes_per_second", "random 4 KiB writes, copied and checksummed", measured.writes),
        ("writes_destaged_per_second", "the same without a pause, destaged", measured.sustained),
        ("read_hits_per_second", "random 4 KiB read hits, copied and verified", measured.read_hits),
        ("lookups_per_second", "lookups in a full table", measured.lookups),
    ];
    let value = as_json.then(|| json!({ "index_bytes_per_gib": index_bytes }));
    let index = index_bytes as f64 / (1u64 << 20) as f64;
    let below = format!("index: {index:.2} MiB per GiB of cache\n");
    print_rows(rows, value, |value| format!("{:.2} M", value / 1e6), &below)
}
