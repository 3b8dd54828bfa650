//! What a small log on an SSD would do for bursts of small writes: the same requests on a model of
//! a 4 TB drive alone, and with the log in front of it. What `dcd simulate` does, in thirty lines.

use std::error::Error;

use dcd_engine::EngineConfig;
use dcd_sim::disk::profile::Profile;
use dcd_sim::replay::{Pace, Replay};
use dcd_sim::target::setup::{LogSetup, Setup};
use dcd_sim::workload::{Value, WorkloadKind, WorkloadSpec};

fn main() -> Result<(), Box<dyn Error>> {
    let disk = Profile::load("wd-4tb")?;
    let log = LogSetup {
        cache_disk: Profile::load("nvme-ssd")?,
        cache_bytes: 64 << 20,
        read_area_bytes: 0,
        segment_bytes: 1 << 20,
        config: EngineConfig::default(),
    };
    let load = WorkloadSpec::new(WorkloadKind::Bursts).with("requests", Value::Whole(10_000))?;
    for (name, log) in [("alone", None), ("with the log", Some(log))] {
        let setup = Setup { log, ..Setup::of(disk.clone(), 0) };
        let mut replay = Replay::new(setup.build()?, Pace::Open { stretch: 1.0 });
        for request in load.workload()? {
            replay.add(&request)?;
        }
        let facts = replay.finish();
        let times = facts.write.response_ms.expect("bursts are writes");
        println!(
            "{name}: {} writes, mean {:.2} ms, 99% within {:.2} ms",
            facts.writes, times.mean, times.p99
        );
    }
    Ok(())
}
