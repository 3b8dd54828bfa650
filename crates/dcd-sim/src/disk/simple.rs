//! Devices without an arm: SSDs and volumes of a cloud.
//!
//! A request takes one of some channels for a time drawn around a median (log-normal, its slowest
//! hundredth as given), and shares the bandwidth with the others; a volume also lets through only
//! so many requests per second. Enough to compare with; nothing of what goes on inside (garbage
//! collection, pages, network) is there.

use super::profile::{FieldProblem, LatencyProfile, SimpleProfile};
use crate::random::Random;

/// A device.
#[derive(Clone, Debug)]
pub struct SimpleDevice {
    capacity_bytes: u64,
    channels_free_ns: Vec<u64>,
    read: Side,
    write: Side,
    limit: Option<Limit>,
    random: Random,
}

/// Reads or writes.
#[derive(Clone, Debug)]
struct Side {
    median_ns: f64,
    /// Of the logarithm.
    sigma: f64,
    byte_ns: f64,
    bandwidth_free_ns: u64,
}

/// So many requests per second, some more after a pause.
#[derive(Clone, Debug)]
struct Limit {
    interval_ns: u64,
    burst_ns: u64,
    /// When the next would be let through, if there were no burst.
    next_ns: u64,
}

/// 99 of 100 values of a normal distribution are less than so many deviations above its mean.
const DEVIATIONS_OF_P99: f64 = 2.326_347_874;

impl SimpleDevice {
    /// The device that a profile describes; its times follow from `seed`.
    ///
    /// # Errors
    /// When no device can be like that; the problem names the field.
    pub fn new(profile: &SimpleProfile, seed: u64) -> Result<SimpleDevice, FieldProblem> {
        if profile.capacity_bytes < 512 {
            let message = format!("{} bytes are less than a block", profile.capacity_bytes);
            return Err(FieldProblem::new("capacity_bytes", message));
        }
        if !(1..=65_536).contains(&profile.channels) {
            let message = format!("{} is not 1 to 65536", profile.channels);
            return Err(FieldProblem::new("channels", message));
        }
        if let Some(tbw) = profile.endurance_tbw
            && !(1e-3..=1e9).contains(&tbw)
        {
            return Err(FieldProblem::new("endurance_tbw", format!("{tbw} is not 0.001 to 1e9")));
        }
        let limit = match profile.iops_max {
            None => None,
            Some(iops) if (0.01..=1e9).contains(&iops) => {
                if !(0.0..=1e9).contains(&profile.iops_burst) {
                    let message = format!("{} is not 0 to 1e9", profile.iops_burst);
                    return Err(FieldProblem::new("iops_burst", message));
                }
                let interval_ns = (1e9 / iops).round().max(1.0) as u64;
                let burst_ns = (profile.iops_burst * 1e9 / iops) as u64;
                Some(Limit { interval_ns, burst_ns, next_ns: 0 })
            }
            Some(iops) => {
                return Err(FieldProblem::new("iops_max", format!("{iops} is not 0.01 to 1e9")));
            }
        };
        Ok(SimpleDevice {
            capacity_bytes: profile.capacity_bytes,
            channels_free_ns: vec![0; profile.channels as usize],
            read: Side::new("read", &profile.read_us, profile.read_bytes_per_second)?,
            write: Side::new("write", &profile.write_us, profile.write_bytes_per_second)?,
            limit,
            random: Random::new(seed),
        })
    }

    /// Size.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// Begin and end of a request that comes at `at_ns`.
    pub fn serve(&mut self, at_ns: u64, size_bytes: u64, write: bool) -> (u64, u64) {
        let let_through = self.limit.as_mut().map_or(at_ns, |limit| limit.let_through(at_ns));
        let deviation = self.random.normal();
        let side = if write { &mut self.write } else { &mut self.read };
        let free = self.channels_free_ns.iter_mut().min().expect("there is a channel");
        let start = let_through.max(*free);
        let latency = side.median_ns * (side.sigma * deviation).exp();
        let transfer = (size_bytes as f64 * side.byte_ns) as u64;
        // The bandwidth is one pipe: what is in it goes before.
        side.bandwidth_free_ns = side.bandwidth_free_ns.max(start) + transfer;
        let end = (start + latency as u64 + transfer).max(side.bandwidth_free_ns);
        *free = end;
        (start, end)
    }

    /// The end of the last request, which a flush waits for.
    pub fn last_end_ns(&self) -> u64 {
        self.channels_free_ns.iter().copied().max().unwrap_or(0)
    }
}

impl Side {
    fn new(
        name: &str,
        latency: &LatencyProfile,
        bytes_per_second: f64,
    ) -> Result<Side, FieldProblem> {
        if !(0.01..=1e9).contains(&latency.median) {
            let message = format!("{} us is not 0.01 to 1e9", latency.median);
            return Err(FieldProblem::new(&format!("{name}_us.median"), message));
        }
        if !(latency.median..=1e10).contains(&latency.p99) {
            let message = format!("{} us is not between the median and 1e10", latency.p99);
            return Err(FieldProblem::new(&format!("{name}_us.p99"), message));
        }
        if !(1e3..=1e13).contains(&bytes_per_second) {
            let message = format!("{bytes_per_second} is not 1e3 to 1e13");
            return Err(FieldProblem::new(&format!("{name}_bytes_per_second"), message));
        }
        Ok(Side {
            median_ns: latency.median * 1e3,
            sigma: (latency.p99 / latency.median).ln() / DEVIATIONS_OF_P99,
            byte_ns: 1e9 / bytes_per_second,
            bandwidth_free_ns: 0,
        })
    }
}

impl Limit {
    fn let_through(&mut self, at_ns: u64) -> u64 {
        // Unused requests are saved up, at most a burst of them.
        let next = self.next_ns.max(at_ns.saturating_sub(self.burst_ns));
        self.next_ns = next + self.interval_ns;
        next.max(at_ns)
    }
}
