//! How fast the engine alone is: one core, disks in memory, data copied and checksummed.

use std::time::Duration;

use dcd_engine::line_hash::LineHash;
use dcd_engine::log::lookup_table::LookupTable;
use dcd_engine::log::segment::Segment;
use dcd_engine::units::{FragmentMask, Line, SlotIndex};
use dcd_engine::{
    Buffer, DestagePolicyKind, EngineConfig, Geometry, Input, Lba, LbaRange, Operation, Request,
    RequestId, Time,
};

use crate::memory_devices::MemoryDevices;

/// What was measured, one figure a round.
#[derive(Clone, Debug, Default)]
pub struct EngineBench {
    /// Random 4 KiB writes per second of a burst that the cache has room for: copied, checksummed,
    /// logged to the memory disk.
    pub writes: Vec<f64>,
    /// The same when the cache must be destaged and reused all the time.
    pub sustained: Vec<f64>,
    /// Random 4 KiB reads per second that are found in the log, data copied (and, for slots that
    /// are no longer in a segment buffer, read and verified).
    pub read_hits: Vec<f64>,
    /// Lookups per second in a full table.
    pub lookups: Vec<f64>,
    /// Index memory for each GiB of cache, every slot holding another 4 KiB line.
    pub index_bytes_per_gib: u64,
}

/// Random numbers for addresses.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 24
}

/// Bytes of the cache that is measured.
pub const CACHE_BYTES: u64 = 1 << 30;
/// Bursts that touch all memory first and are not counted.
const WARM_UP_ROUNDS: u32 = 3;

/// Runs `rounds` rounds on a cache of `cache_bytes`, and tells `progress` of each. In each round: a
/// burst of random 4 KiB writes, drained; four bursts without a pause, drained; a burst that is
/// read back. A burst has half of the lines that the cache has room for. `clock` tells the time,
/// best that of the processor.
///
/// # Panics
/// If the engine cannot be opened on disks in memory: the cache is too small, or a bug.
pub fn run(
    cache_bytes: u64,
    rounds: u32,
    clock: &dyn Fn() -> Duration,
    progress: &mut dyn FnMut(u32),
) -> EngineBench {
    let geometry = Geometry::fit(cache_bytes, 1 << 20).expect("the cache is large enough");
    let burst_lines = cache_bytes / 2 / 4096;
    let config = EngineConfig {
        destage_policy: DestagePolicyKind::LeastValidFirst,
        ..EngineConfig::default()
    };
    let devices = MemoryDevices::new(geometry, burst_lines * 8, config);
    let mut load = Load {
        devices: devices.expect("disks in memory work"),
        lines: burst_lines,
        state: 1,
        requests: 0,
        buffer: Buffer::copy_of(&[0x5a; 4096]),
    };
    let mut measured = EngineBench::default();
    let table = FullTable::new(&geometry);
    for round in 0..rounds + WARM_UP_ROUNDS {
        let timed = |load: &mut Load, count: u64, work: &dyn Fn(&mut Load)| {
            let started = clock();
            work(load);
            let rate = count as f64 / (clock() - started).as_secs_f64();
            (round >= WARM_UP_ROUNDS).then_some(rate)
        };
        let sustained = 4 * burst_lines;
        measured.writes.extend(timed(&mut load, burst_lines, &|load| load.writes(burst_lines)));
        load.drain();
        measured.sustained.extend(timed(&mut load, sustained, &|load| load.writes(sustained)));
        load.drain();
        load.writes(burst_lines);
        measured.read_hits.extend(timed(&mut load, burst_lines, &|load| load.reads(burst_lines)));
        load.drain();
        measured.lookups.extend(timed(&mut load, LOOKUPS, &|_| table.look_up()));
        progress(round.saturating_sub(WARM_UP_ROUNDS));
    }
    measured.index_bytes_per_gib = table.index_bytes;
    measured
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
            self.ask(Operation::read(range));
            self.devices.take_replies().for_each(drop);
        }
    }

    fn drain(&mut self) {
        self.ask(Operation::Drain);
        self.devices.take_replies().for_each(drop);
    }
}

/// Lookups in a round.
const LOOKUPS: u64 = 2_000_000;

/// A table filled to the last slot with random lines.
struct FullTable {
    table: LookupTable,
    lines: Vec<Line>,
    index_bytes: u64,
}

impl FullTable {
    fn new(geometry: &Geometry) -> FullTable {
        let slots = geometry.data_slots_max();
        let mut table = LookupTable::new(geometry.slots(), slots, 1 << 32, LineHash::new(0));
        let mut state = 7;
        let mut lines = Vec::with_capacity(slots as usize);
        while !table.is_full() {
            let line = Line(next(&mut state) % (1 << 32));
            // The last one is in the last slot of all: memory counts as far as it was touched.
            let slot = if lines.len() + 1 == slots as usize {
                geometry.slots() - 1
            } else {
                lines.len() as u32
            };
            table.insert(line, FragmentMask::FULL, SlotIndex(slot), 0);
            lines.push(line);
        }
        let segments = u64::from(geometry.segments) * size_of::<Segment>() as u64;
        let index_bytes = table.memory_bytes() as u64 + segments;
        FullTable { table, lines, index_bytes }
    }

    /// Looks half of the lines up, and half others.
    fn look_up(&self) {
        let mut state = 9;
        let mut found = 0;
        for i in 0..LOOKUPS {
            let line = match i % 2 {
                0 => self.lines[(next(&mut state) % self.lines.len() as u64) as usize],
                _ => Line(next(&mut state) % (1 << 32)),
            };
            found += self.table.find(line).as_slice().len() as u64;
        }
        assert!(found >= LOOKUPS / 2, "every line that was put in is found");
    }
}
