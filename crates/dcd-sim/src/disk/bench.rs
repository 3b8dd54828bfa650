//! How many requests per second of processor time the models serve.

use std::time::Duration;

use dcd_engine::Time;

use super::model::{DiskModel, DiskOperation, DiskRequest};
use super::profile::{Profile, ProfileError};

/// What is served in a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// 4 KiB at random places, half of them writes, one after the other.
    Random,
    /// 4 KiB reads, each behind the one before.
    Sequential,
    /// As `Random`, 32 of them waiting, the drive takes the nearest in time.
    Queued,
}

/// Requests of a round.
const REQUESTS: u64 = 200_000;
/// Requests that wait in [`Load::Queued`].
const QUEUED: u64 = 32;

/// Requests per second, one figure a round; `clock` tells the time, best that of the processor.
///
/// # Errors
/// When there is no such profile.
///
/// # Panics
/// If the profile has no arm, or is smaller than 4 KiB: the caller names one that has.
pub fn run(
    profile: &str,
    load: Load,
    rounds: u32,
    clock: &dyn Fn() -> Duration,
) -> Result<Vec<f64>, ProfileError> {
    let mut profile = Profile::load(profile)?;
    let mechanical = profile.mechanical.as_mut().expect("a drive with an arm");
    if load == Load::Queued {
        mechanical.queue.policy = super::queue::QueuePolicy::Satf;
        mechanical.queue.depth = QUEUED as u32;
    }
    let mut rates = Vec::new();
    for round in 0..rounds {
        let mut disk = DiskModel::new(&profile, u64::from(round)).expect("the profile was checked");
        let begin = clock();
        serve(&mut disk, load);
        rates.push(REQUESTS as f64 / (clock() - begin).as_secs_f64());
    }
    Ok(rates)
}

fn serve(disk: &mut DiskModel, load: Load) {
    let pages = disk.capacity_bytes() / 4096;
    let mut random = 1u64;
    let mut request = |id: u64| {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (page, write) = match load {
            Load::Sequential => (id % pages, false),
            Load::Random | Load::Queued => ((random >> 24) % pages, random >> 63 == 1),
        };
        let operation = if write { DiskOperation::Write } else { DiskOperation::Read };
        DiskRequest { id, operation, offset_bytes: page * 4096, size_bytes: 4096 }
    };
    let waiting = if load == Load::Queued { QUEUED } else { 1 };
    let (mut submitted, mut finished) = (0, 0);
    let mut done = Vec::new();
    let mut now = Time::ZERO;
    while finished < REQUESTS {
        while submitted < REQUESTS && submitted - finished < waiting {
            disk.submit(now, request(submitted)).expect("it is on the disk");
            submitted += 1;
        }
        now = disk.next_event().expect("something is being served");
        disk.advance(now, &mut done);
        finished += done.len() as u64;
        done.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_load_is_served() {
        for load in [Load::Random, Load::Sequential, Load::Queued] {
            let ticks = std::cell::Cell::new(0);
            let clock = || {
                ticks.set(ticks.get() + 1);
                Duration::from_secs(ticks.get())
            };
            let rates = run("hp-97560", load, 1, &clock).unwrap();
            assert_eq!(rates, [REQUESTS as f64], "{load:?}");
        }
        assert!(run("nothing", Load::Random, 1, &|| Duration::ZERO).is_err());
    }
}
