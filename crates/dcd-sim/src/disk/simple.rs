//! Devices without an arm: SSDs and volumes of a cloud.
//!
//! A request takes one of some channels for a time drawn around a median (log-normal, its slowest
//! hundredth as given), and shares the bandwidth with the others; a volume also lets through only
//! so many requests and bytes per second, and more while it has credits; flash writes slower when
//! its fast part is full. Enough to compare with; nothing else of what goes on inside (garbage
//! collection, pages, network) is there.

use std::ops::RangeInclusive;

use super::profile::{FieldProblem, LatencyProfile, SimpleProfile};
use crate::random::Random;

/// A device.
#[derive(Clone, Debug)]
pub struct SimpleDevice {
    capacity_bytes: u64,
    channels_free_ns: Vec<u64>,
    /// Of one request.
    request_byte_ns: f64,
    read: Side,
    write: Side,
    requests: Option<Limit>,
    bytes: Option<Limit>,
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
    fast_part: Option<FastPart>,
}

/// The part of flash that takes writes faster than the rest.
#[derive(Clone, Debug)]
struct FastPart {
    bytes: f64,
    used_bytes: f64,
    /// Of what does not fit, and of emptying it.
    beyond_byte_ns: f64,
}

/// So many requests, or bytes, per second, and more while there are credits.
#[derive(Clone, Debug)]
struct Limit {
    unit_ns: f64,
    /// The same while credits are spent.
    burst_unit_ns: f64,
    credits_max: f64,
    credits: f64,
    /// When credits were counted.
    counted_ns: u64,
    /// Before then nothing is let through.
    next_ns: u64,
}

/// 99 of 100 values of a normal distribution are less than so many deviations above its mean.
const DEVIATIONS_OF_P99: f64 = 2.326_347_874;
/// The largest slowest hundredth that a profile may have: nothing takes longer.
const LATENCY_NS_MAX: f64 = 1e13;

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
        if let Some(speed) = profile.request_bytes_per_second
            && !(1e3..=1e13).contains(&speed)
        {
            let message = format!("{speed} is not 1e3 to 1e13");
            return Err(FieldProblem::new("request_bytes_per_second", message));
        }
        let requests = Limit::new(
            ("iops_max", profile.iops_max, 0.01..=1e9),
            ("iops_burst", profile.iops_burst),
            ("iops_burst_max", profile.iops_burst_max),
        )?;
        let bytes = Limit::new(
            ("bytes_per_second_max", profile.bytes_per_second_max, 1e3..=1e13),
            ("bytes_burst", profile.bytes_burst),
            ("", None),
        )?;
        let mut write = Side::new("write", &profile.write_us, profile.write_bytes_per_second)?;
        write.fast_part = FastPart::of(profile)?;
        Ok(SimpleDevice {
            capacity_bytes: profile.capacity_bytes,
            channels_free_ns: vec![0; profile.channels as usize],
            request_byte_ns: profile.request_bytes_per_second.map_or(0.0, |speed| 1e9 / speed),
            read: Side::new("read", &profile.read_us, profile.read_bytes_per_second)?,
            write,
            requests,
            bytes,
            random: Random::new(seed),
        })
    }

    /// Size.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// Begin and end of a request that comes at `at_ns`.
    pub fn serve(&mut self, at_ns: u64, size_bytes: u64, write: bool) -> (u64, u64) {
        let mut let_through = at_ns;
        for (limit, units) in [(&mut self.requests, 1.0), (&mut self.bytes, size_bytes as f64)] {
            if let Some(limit) = limit {
                let_through = limit.let_through(let_through, units);
            }
        }
        let deviation = self.random.normal();
        let side = if write { &mut self.write } else { &mut self.read };
        let free = self.channels_free_ns.iter_mut().min().expect("there is a channel");
        let start = let_through.max(*free);
        let latency = side.latency_ns(deviation);
        let transfer = side.transfer_ns(start, size_bytes as f64) as u64;
        // The bandwidth is one pipe: what is in it goes before.
        side.bandwidth_free_ns = side.bandwidth_free_ns.max(start) + transfer;
        let alone = (size_bytes as f64 * self.request_byte_ns) as u64;
        let end = (start + latency as u64 + transfer.max(alone)).max(side.bandwidth_free_ns);
        *free = end;
        (start, end)
    }

    /// How long a small request takes that nothing holds up, and that holds up nothing.
    pub fn alone_ns(&mut self, size_bytes: u64, write: bool) -> u64 {
        let deviation = self.random.normal();
        let side = if write { &self.write } else { &self.read };
        let latency = side.latency_ns(deviation);
        (latency + size_bytes as f64 * side.byte_ns.max(self.request_byte_ns)) as u64
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
            fast_part: None,
        })
    }

    fn latency_ns(&self, deviation: f64) -> f64 {
        (self.median_ns * (self.sigma * deviation).exp()).min(LATENCY_NS_MAX)
    }

    /// How long so much takes that begins at `start_ns`.
    fn transfer_ns(&mut self, start_ns: u64, bytes: f64) -> f64 {
        let Some(part) = &mut self.fast_part else { return bytes * self.byte_ns };
        let idle_ns = start_ns.saturating_sub(self.bandwidth_free_ns) as f64;
        part.used_bytes = (part.used_bytes - idle_ns / part.beyond_byte_ns).max(0.0);
        let fast = bytes.min(part.bytes - part.used_bytes);
        part.used_bytes += fast;
        fast * self.byte_ns + (bytes - fast) * part.beyond_byte_ns
    }
}

impl FastPart {
    fn of(profile: &SimpleProfile) -> Result<Option<FastPart>, FieldProblem> {
        let (bytes, beyond) = (profile.write_cache_bytes, profile.write_bytes_per_second_beyond);
        match (bytes, beyond) {
            (None, None) => Ok(None),
            (Some(bytes), Some(_)) if !(1.0..=1e15).contains(&bytes) => {
                Err(FieldProblem::new("write_cache_bytes", format!("{bytes} is not 1 to 1e15")))
            }
            (Some(bytes), Some(beyond))
                if (1e3..=profile.write_bytes_per_second).contains(&beyond) =>
            {
                Ok(Some(FastPart { bytes, used_bytes: 0.0, beyond_byte_ns: 1e9 / beyond }))
            }
            (Some(_), Some(beyond)) => {
                let message = format!("{beyond} is not between 1e3 and write_bytes_per_second");
                Err(FieldProblem::new("write_bytes_per_second_beyond", message))
            }
            (Some(_), None) => {
                let message = "needs write_bytes_per_second_beyond".into();
                Err(FieldProblem::new("write_cache_bytes", message))
            }
            (None, Some(_)) => {
                let message = "needs write_cache_bytes".into();
                Err(FieldProblem::new("write_bytes_per_second_beyond", message))
            }
        }
    }
}

impl Limit {
    /// The names of the fields are told, should one be wrong.
    fn new(
        (name, rate, range): (&str, Option<f64>, RangeInclusive<f64>),
        (credits_name, credits): (&str, f64),
        (burst_name, burst_rate): (&str, Option<f64>),
    ) -> Result<Option<Limit>, FieldProblem> {
        let Some(rate) = rate else {
            let without = match (credits > 0.0, burst_rate) {
                (true, _) => credits_name,
                (false, Some(_)) => burst_name,
                (false, None) => return Ok(None),
            };
            return Err(FieldProblem::new(without, format!("needs {name}")));
        };
        if !range.contains(&rate) {
            let message = format!("{rate} is not {} to {:e}", range.start(), range.end());
            return Err(FieldProblem::new(name, message));
        }
        if !(0.0..=1e15).contains(&credits) {
            return Err(FieldProblem::new(credits_name, format!("{credits} is not 0 to 1e15")));
        }
        if let Some(burst_rate) = burst_rate
            && !(rate..=*range.end()).contains(&burst_rate)
        {
            let message = format!("{burst_rate} is not between {name} and {:e}", range.end());
            return Err(FieldProblem::new(burst_name, message));
        }
        Ok(Some(Limit {
            unit_ns: 1e9 / rate,
            burst_unit_ns: burst_rate.map_or(0.0, |rate| 1e9 / rate),
            credits_max: credits,
            // All, and the first request.
            credits: f64::INFINITY,
            counted_ns: 0,
            next_ns: 0,
        }))
    }

    fn let_through(&mut self, at_ns: u64, units: f64) -> u64 {
        let mut start_ns = at_ns.max(self.next_ns);
        let earned = (start_ns - self.counted_ns) as f64 / self.unit_ns;
        // A request that comes behind a pause passes at once, also without a burst.
        self.credits = (self.credits + earned).min(self.credits_max + units);
        if self.credits < units {
            start_ns += ((units - self.credits) * self.unit_ns) as u64;
            self.credits = units;
        }
        self.credits -= units;
        self.counted_ns = start_ns;
        self.next_ns = start_ns + (units * self.burst_unit_ns) as u64;
        start_ns
    }
}
