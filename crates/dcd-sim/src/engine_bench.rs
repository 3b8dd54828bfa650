//! How fast the engine alone is: one core, disks in memory, data copied and checksummed.

use std::time::{Duration, Instant};

use dcd_engine::{
    Buffer, DestagePolicyKind, EngineConfig, Geometry, Input, Lba, LbaRange, OpenError, Operation,
    Request, RequestId, Time,
};

use crate::memory_devices::MemoryDevices;

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub struct EngineBench {
    /// Random 4 KiB writes per second of a burst that the cache has room for: copied, checksummed,
    /// logged to the memory disk. The median of the bursts.
    pub writes_per_second: f64,
    /// The same when the cache must be destaged and reused all the time.
    pub sustained_writes_per_second: f64,
    /// Random 4 KiB reads per second that are found in the log, data copied (and, for slots that
    /// are no longer in a segment buffer, read and verified).
    pub read_hits_per_second: f64,
    /// Lookups per second in a full table.
    pub lookups_per_second: f64,
    /// Index memory for each GiB of cache, every slot holding another 4 KiB line.
    pub index_bytes_per_gib: u64,
    /// Writes made.
    pub writes: u64,
}

/// Random numbers for addresses.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 24
}

/// Lines in a burst: half of what the cache can hold.
const BURST_LINES: u64 = 128 << 10;

/// Runs `bursts` bursts of random 4 KiB writes into a cache of 1 GiB that is drained between them;
/// then as many writes without a pause, reads of what is in the log, and lookups.
pub fn run(bursts: u64) -> Result<EngineBench, OpenError> {
    let geometry = Geometry::fit(1 << 30, 1 << 20).expect("1 GiB is enough");
    let lines = BURST_LINES;
    let config = EngineConfig {
        destage_policy: DestagePolicyKind::LeastValidFirst,
        ..EngineConfig::default()
    };
    let mut load = Load {
        devices: MemoryDevices::new(geometry, lines * 8, config)?,
        lines,
        state: 1,
        requests: 0,
        buffer: Buffer::copy_of(&[0x5a; 4096]),
    };
    // The first bursts touch all memory; they are not counted.
    let mut rates = Vec::new();
    for burst in 0..bursts + 3 {
        let started = Instant::now();
        load.writes(BURST_LINES);
        if burst >= 3 {
            rates.push(per_second(BURST_LINES, started.elapsed()));
        }
        load.drain();
    }
    rates.sort_by(f64::total_cmp);
    let writes = bursts * BURST_LINES;
    let started = Instant::now();
    load.writes(writes.max(4 * BURST_LINES));
    let sustained = per_second(writes.max(4 * BURST_LINES), started.elapsed());
    load.drain();
    load.writes(BURST_LINES);
    let started = Instant::now();
    load.reads(BURST_LINES);
    let reads = per_second(BURST_LINES, started.elapsed());
    let (lookup_time, lookups, index_bytes) = lookups(&geometry);
    Ok(EngineBench {
        writes_per_second: rates[rates.len() / 2],
        sustained_writes_per_second: sustained,
        read_hits_per_second: reads,
        lookups_per_second: per_second(lookups, lookup_time),
        index_bytes_per_gib: index_bytes,
        writes,
    })
}

struct Load {
    devices: MemoryDevices,
    lines: u64,
    state: u64,
    requests: u64,
    buffer: Buffer,
}

impl Load {
    fn ask(&mut self, operation: Operation) {
        self.requests += 1;
        // A request each microsecond: never quiet.
        let now = Time(self.requests * 1_000);
        let request = Request { id: RequestId(self.requests), operation, fua: false };
        self.devices.input(now, Input::Request(request));
    }

    fn writes(&mut self, count: u64) {
        for _ in 0..count {
            let start = Lba(next(&mut self.state) % self.lines * 8);
            let data = std::mem::take(&mut self.buffer);
            self.ask(Operation::Write { start, data });
            let reply = self.devices.take_replies().next_back();
            let reply = reply.expect("memory disks answer at once");
            self.buffer = reply.buffer.expect("the buffer of a write comes back");
        }
    }

    fn reads(&mut self, count: u64) {
        for _ in 0..count {
            let range = LbaRange::new(next(&mut self.state) % self.lines * 8, 8);
            self.ask(Operation::Read { range });
            self.devices.take_replies().for_each(drop);
        }
    }

    fn drain(&mut self) {
        self.ask(Operation::Drain);
        self.devices.take_replies().for_each(drop);
    }
}

/// Fills a table to the last slot with random lines, and looks half of them and half others up.
fn lookups(geometry: &Geometry) -> (Duration, u64, u64) {
    use dcd_engine::log::lookup_table::LookupTable;
    use dcd_engine::log::segment::Segment;
    use dcd_engine::units::{FragmentMask, Line, SlotIndex};

    let slots = geometry.data_slots_max();
    let mut table = LookupTable::new(geometry.slots(), slots);
    let mut state = 7;
    let mut lines = Vec::with_capacity(slots as usize);
    while table.lines() < slots as usize {
        let line = Line(next(&mut state) % (1 << 32));
        table.insert(line, FragmentMask::FULL, SlotIndex(table.lines() as u32), 0);
        lines.push(line);
    }
    let count = 4_000_000u64;
    let started = Instant::now();
    let mut found = 0u64;
    for i in 0..count {
        let line = match i % 2 {
            0 => lines[(next(&mut state) % lines.len() as u64) as usize],
            _ => Line(next(&mut state) % (1 << 32)),
        };
        found += table.find(line).as_slice().len() as u64;
    }
    let elapsed = started.elapsed();
    assert!(found >= count / 2, "every line that was put in is found");
    let segments = u64::from(geometry.segments) * size_of::<Segment>() as u64;
    (elapsed, count, table.memory_bytes() as u64 + segments)
}

fn per_second(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64()
}
