//! What a disk costs a month: requests, transfer, room, and what was paid for it.

use serde::{Deserialize, Serialize};

use super::profile::FieldProblem;

/// Prices of a disk, in US dollars; what is not given costs nothing.
#[derive(Clone, Copy, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PriceProfile {
    /// Of a thousand writes; of an object store: PUTs.
    pub usd_per_1000_writes: f64,
    /// Of a thousand reads: GETs.
    pub usd_per_1000_reads: f64,
    /// Of what is transferred to it.
    pub usd_per_gib_written: f64,
    /// Of what is transferred from it.
    pub usd_per_gib_read: f64,
    /// Of what is stored for a month.
    pub usd_per_gib_month: f64,
    /// How much that is; without it, all of the disk, or as much of it as a log takes.
    pub stored_bytes: Option<u64>,
    /// Of the whole device, bought.
    pub usd_bought: f64,
}

/// What goes to a disk and comes from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Reads; of an object store: GETs.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Writes: PUTs.
    pub writes: u64,
    /// Their bytes.
    pub write_bytes: u64,
}

/// How a disk was used by a load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Usage {
    /// All of it.
    pub traffic: Traffic,
    /// Reads that come besides, however much or little is asked for.
    pub reads_per_second: f64,
    /// Room that is taken on it.
    pub room_bytes: u64,
    /// All of it.
    pub capacity_bytes: u64,
    /// How much may be written to it in its life, in units of 10^12 bytes, if it wears.
    pub endurance_tbw: Option<f64>,
}

/// What disks are to be paid for: prices and use. In how long that was used is for the caller to
/// say: whoever compares disks divides by the same time for all of them.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Bill {
    /// The (data-)disk, if it has prices.
    pub disk: Option<(PriceProfile, Usage)>,
    /// The cache-disk, if there is one that has prices.
    pub cache_disk: Option<(PriceProfile, Usage)>,
}

/// What disks cost in a month that goes on like this, in US dollars.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct CostFacts {
    /// All of it.
    pub month_usd: f64,
    /// The (data-)disk, if it has prices.
    pub disk: Option<DeviceCost>,
    /// The cache-disk, if there is one that has prices.
    pub cache_disk: Option<DeviceCost>,
}

/// What a disk costs in a month, in US dollars.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct DeviceCost {
    /// Requests.
    pub requests_usd: f64,
    /// Bytes to it and from it.
    pub transfer_usd: f64,
    /// Room.
    pub stored_usd: f64,
    /// The share of what was paid for it that is used up.
    pub bought_usd: f64,
}

/// Hours that clouds bill as a month.
const MONTH_S: f64 = 730.0 * 3600.0;
/// A device is written off in five years, or when what it endures is written.
const WRITTEN_OFF_MONTHS: f64 = 60.0;
const GIB: f64 = (1u64 << 30) as f64;
const USD_MAX: f64 = 1e9;

impl PriceProfile {
    /// Whether all of them can be.
    ///
    /// # Errors
    /// Names the field that cannot.
    pub fn check(&self) -> Result<(), FieldProblem> {
        for (name, usd) in [
            ("usd_per_1000_writes", self.usd_per_1000_writes),
            ("usd_per_1000_reads", self.usd_per_1000_reads),
            ("usd_per_gib_written", self.usd_per_gib_written),
            ("usd_per_gib_read", self.usd_per_gib_read),
            ("usd_per_gib_month", self.usd_per_gib_month),
            ("usd_bought", self.usd_bought),
        ] {
            if !(0.0..=USD_MAX).contains(&usd) {
                return Err(FieldProblem::new(name, format!("{usd} is not 0 to {USD_MAX:e}")));
            }
        }
        Ok(())
    }

    /// What a month of that costs, if it was in so many seconds. None of a use that takes no time.
    pub fn month(&self, usage: &Usage, seconds: f64) -> Option<DeviceCost> {
        let Usage { traffic, reads_per_second, room_bytes, capacity_bytes, endurance_tbw } = *usage;
        if seconds <= 0.0 {
            return None;
        }
        let times = MONTH_S / seconds;
        let gib = |bytes: u64| bytes as f64 / GIB;
        let requests = traffic.writes as f64 * self.usd_per_1000_writes
            + (traffic.reads as f64 + reads_per_second * seconds) * self.usd_per_1000_reads;
        let transfer = gib(traffic.write_bytes) * self.usd_per_gib_written
            + gib(traffic.read_bytes) * self.usd_per_gib_read;
        let written = traffic.write_bytes as f64 * times;
        let worn = endurance_tbw.map_or(0.0, |tbw| written / (tbw * 1e12));
        let room = room_bytes as f64 / capacity_bytes.max(1) as f64 / WRITTEN_OFF_MONTHS;
        Some(DeviceCost {
            requests_usd: requests / 1e3 * times,
            transfer_usd: transfer * times,
            stored_usd: gib(self.stored_bytes.unwrap_or(room_bytes)) * self.usd_per_gib_month,
            bought_usd: self.usd_bought * worn.max(room),
        })
    }
}

impl Traffic {
    /// What there was of it since then.
    pub fn since(&self, before: &Traffic) -> Traffic {
        Traffic {
            reads: self.reads - before.reads,
            read_bytes: self.read_bytes - before.read_bytes,
            writes: self.writes - before.writes,
            write_bytes: self.write_bytes - before.write_bytes,
        }
    }

    /// A read more.
    pub(super) fn count_read(&mut self, size_bytes: u64) {
        self.reads += 1;
        self.read_bytes += size_bytes;
    }

    /// A write more.
    pub(super) fn count_write(&mut self, size_bytes: u64) {
        self.writes += 1;
        self.write_bytes += size_bytes;
    }
}

impl DeviceCost {
    /// All of it.
    pub fn usd(&self) -> f64 {
        self.requests_usd + self.transfer_usd + self.stored_usd + self.bought_usd
    }
}

impl Bill {
    /// What a month of that costs, if it was in so many seconds. None if no disk has prices.
    pub fn month(&self, seconds: f64) -> Option<CostFacts> {
        let of = |device: Option<(PriceProfile, Usage)>| {
            device.and_then(|(price, usage)| price.month(&usage, seconds))
        };
        CostFacts::of(of(self.disk), of(self.cache_disk))
    }
}

impl CostFacts {
    /// None if neither has prices.
    pub fn of(disk: Option<DeviceCost>, cache_disk: Option<DeviceCost>) -> Option<CostFacts> {
        let all = [disk, cache_disk];
        let month_usd = all.iter().flatten().map(DeviceCost::usd).sum();
        all.iter().any(Option::is_some).then_some(CostFacts { month_usd, disk, cache_disk })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_is_what_a_bill_says() {
        let price = PriceProfile {
            usd_per_1000_writes: 0.005,
            usd_per_1000_reads: 0.0004,
            usd_per_gib_read: 0.09,
            usd_per_gib_month: 0.023,
            stored_bytes: Some(100 << 30),
            ..PriceProfile::default()
        };
        // An hour, of 730: a million PUTs, ten million GETs of 4 KiB.
        let traffic = Traffic {
            writes: 1_000_000,
            write_bytes: 4096 * 1_000_000,
            reads: 10_000_000,
            read_bytes: 4096 * 10_000_000,
        };
        let usage = Usage {
            traffic,
            reads_per_second: 0.0,
            room_bytes: 1 << 40,
            capacity_bytes: 1 << 40,
            endurance_tbw: None,
        };
        let cost = price.month(&usage, 3600.0).unwrap();
        assert!((cost.requests_usd - 730.0 * 9.0).abs() < 1e-6, "{cost:?}");
        assert!((cost.transfer_usd - 730.0 * 38.147 * 0.09).abs() < 0.01, "{cost:?}");
        assert!((cost.stored_usd - 2.3).abs() < 1e-9 && cost.bought_usd == 0.0, "{cost:?}");
        assert_eq!(price.month(&usage, 0.0), None);
        // Who looks for news does so all the month, in however little time the load came.
        let polled = Usage { traffic: Traffic::default(), reads_per_second: 1.6, ..usage };
        for seconds in [1.0, 3600.0] {
            let cost = price.month(&polled, seconds).unwrap();
            assert!((cost.requests_usd - 1.6 * MONTH_S * 0.0004 / 1e3).abs() < 1e-9, "{cost:?}");
        }
    }

    #[test]
    fn a_device_is_used_up_by_room_or_by_writing() {
        let price = PriceProfile { usd_bought: 120.0, ..PriceProfile::default() };
        let usage = Usage {
            reads_per_second: 0.0,
            traffic: Traffic { write_bytes: 1_000_000_000_000, ..Traffic::default() },
            room_bytes: 1 << 39,
            capacity_bytes: 1 << 40,
            endurance_tbw: Some(1000.0),
        };
        // Half of it for five years, or a thousandth of what it endures.
        assert!((price.month(&usage, MONTH_S).unwrap().bought_usd - 1.0).abs() < 1e-9);
        let worn = Usage { endurance_tbw: Some(20.0), ..usage };
        assert!((price.month(&worn, MONTH_S).unwrap().bought_usd - 6.0).abs() < 1e-9);
    }
}
