//! `dcd bench engine`: the engine alone, on disks made of memory, on one core.
//!
//! Writes are 4 KiB at random places of a range that fits the cache, each copied into a segment
//! buffer and checksummed; the data-disk is far away, so what is measured is logging. Reads are of
//! the same range, copied out and verified. Lookups ask the lookup table alone.

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Instant;

use dcd_engine::format::create::{CreateOptions, create};
use dcd_engine::format::geometry::SUPERBLOCK_OFFSETS;
use dcd_engine::log::lookup_table::LookupTable;
use dcd_engine::units::{FragmentMask, LINE_SIZE, Line, SlotIndex};
use dcd_engine::{
    Buffer, DataDiskInfo, Device, Engine, EngineConfig, Geometry, Input, IoData, IoDone,
    IoOperation, Lba, LbaRange, Operation, Output, Phase, Request, RequestId, Superblock, Time,
    Uuid,
};
use serde_json::json;

use super::{Random, median};
use crate::error::CommandError;
use crate::output::{Align, Paint, Table, print, print_json};
use crate::progress::Progress;

const CACHE_BYTES: u64 = 1 << 30;
const DATA_BYTES: u64 = 1 << 30;
const SEGMENT_BYTES: u64 = 1 << 20;
/// Lines that are written to: three quarters of the cache.
const LINES: u64 = CACHE_BYTES / LINE_SIZE * 3 / 4;
/// Virtual time between two requests; the engine has no other clock.
const STEP_NANOS: u64 = 1_000;

pub fn run(writes: u64, rounds: u32, as_json: bool) -> Result<(), CommandError> {
    let mut progress = Progress::new("measuring");
    let mut results = Results::default();
    for round in 0..rounds.max(1) {
        progress.update(u64::from(round), u64::from(rounds));
        results.lookups.push(lookups(writes));
        let mut machine = Machine::new()?;
        results.writes.push(machine.writes(writes, u64::from(round)));
        results.reads.push(machine.reads(writes, u64::from(round)));
        results.index_bytes = machine.engine.status().index_bytes;
    }
    progress.finish();
    results.show(as_json)
}

#[derive(Default)]
struct Results {
    writes: Vec<f64>,
    reads: Vec<f64>,
    lookups: Vec<f64>,
    index_bytes: u64,
}

impl Results {
    fn show(self, as_json: bool) -> Result<(), CommandError> {
        let index_per_gib = self.index_bytes as f64 / (CACHE_BYTES as f64 / (1u64 << 30) as f64);
        let rows = [
            ("writes_per_second", "random 4 KiB writes, copied and checksummed", self.writes),
            ("read_hits_per_second", "random 4 KiB read hits, copied and verified", self.reads),
            ("lookups_per_second", "lookups of random lines", self.lookups),
        ];
        if as_json {
            let mut value = json!({ "index_bytes_per_gib": index_per_gib });
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
            table.row(vec![
                name.into(),
                millions(median(rounds)),
                millions(lowest),
                millions(highest),
            ]);
        }
        let index = index_per_gib / (1u64 << 20) as f64;
        print(&format!(
            "{}index: {index:.2} MiB per GiB of cache\n",
            table.render(Paint::for_stdout())
        ))
    }
}

/// Lookups per second in a table as full as it gets.
fn lookups(count: u64) -> f64 {
    let slots = (CACHE_BYTES / LINE_SIZE) as u32;
    let mut table = LookupTable::new(slots, slots);
    let mut random = Random(7);
    for slot in 0..LINES as u32 {
        table.insert(Line(random.below(LINES)), FragmentMask::FULL, SlotIndex(slot), slot);
    }
    let mut random = Random(8);
    let started = Instant::now();
    for _ in 0..count {
        black_box(table.find(Line(random.below(LINES))));
    }
    count as f64 / started.elapsed().as_secs_f64()
}

/// An engine with its disks and its time.
struct Machine {
    engine: Engine,
    cache_disk: Vec<u8>,
    data_disk: Vec<u8>,
    now: Time,
    next_request: u64,
    /// Buffers that came back with replies.
    spare: Vec<Buffer>,
    replies: u64,
}

impl Machine {
    fn new() -> Result<Machine, CommandError> {
        let geometry = Geometry::fit(CACHE_BYTES, SEGMENT_BYTES)?;
        let data_disk = DataDiskInfo {
            blocks: DATA_BYTES / 512,
            logical_block_size: 512,
            physical_sector_size: 4096,
        };
        let options = CreateOptions {
            uuid: Uuid(*b"dcd bench engine"),
            geometry,
            data_disk,
            data_disk_serial: String::new(),
            created_unix_seconds: 0,
        };
        let mut cache_disk = vec![0u8; CACHE_BYTES as usize];
        for (offset, bytes) in create(options) {
            let offset = offset as usize;
            cache_disk[offset..offset + bytes.len()].copy_from_slice(bytes.bytes());
        }
        let copies = SUPERBLOCK_OFFSETS.map(|offset| &cache_disk[offset as usize..][..4096]);
        let superblock = Superblock::newest(copies[0], copies[1])
            .map_err(|problem| CommandError::NotACache { path: "memory".into(), problem })?;
        let config = EngineConfig::default();
        let memory = Buffer::zeroed(Engine::segment_memory_size(&geometry, &config));
        let memory = Box::new(memory);
        let now = Time(1);
        let engine = Engine::open(now, superblock, CACHE_BYTES, data_disk, config, memory)
            .map_err(|problem| CommandError::BenchEngine { problem })?;
        let mut machine = Machine {
            engine,
            cache_disk,
            data_disk: vec![0u8; DATA_BYTES as usize],
            now,
            next_request: 0,
            spare: Vec::new(),
            replies: 0,
        };
        while *machine.engine.phase() == Phase::Opening {
            machine.run();
        }
        match machine.engine.phase() {
            Phase::Failed(problem) => Err(CommandError::BenchEngine { problem: problem.clone() }),
            _ => Ok(machine),
        }
    }

    /// Random writes per second.
    fn writes(&mut self, count: u64, seed: u64) -> f64 {
        let mut random = Random(seed);
        let started = Instant::now();
        for _ in 0..count {
            let mut data = self.spare.pop().unwrap_or_else(|| Buffer::zeroed(LINE_SIZE as usize));
            let line = Line(random.below(LINES));
            data.bytes_mut()[..8].copy_from_slice(&line.0.to_le_bytes());
            self.request(Operation::Write { start: line.lba(), data });
        }
        while self.replies < self.next_request {
            self.wait();
        }
        count as f64 / started.elapsed().as_secs_f64()
    }

    /// Random reads per second of what was written.
    fn reads(&mut self, count: u64, seed: u64) -> f64 {
        let mut random = Random(seed);
        let started = Instant::now();
        for _ in 0..count {
            let start: Lba = Line(random.below(LINES)).lba();
            self.request(Operation::Read { range: LbaRange { start, blocks: LINE_SIZE / 512 } });
        }
        while self.replies < self.next_request {
            self.wait();
        }
        count as f64 / started.elapsed().as_secs_f64()
    }

    fn request(&mut self, operation: Operation) {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        self.now.0 += STEP_NANOS;
        let request = Request { id, operation, fua: false };
        self.engine.handle_input(self.now, Input::Request(request));
        self.run();
    }

    /// Nothing to do until some time has passed.
    fn wait(&mut self) {
        self.now.0 += 1_000_000;
        self.engine.handle_input(self.now, Input::Timeout);
        self.run();
    }

    /// Does what the engine wants until it waits.
    fn run(&mut self) {
        let mut done = VecDeque::new();
        loop {
            match self.engine.poll_output() {
                Output::Io(io) => {
                    let buffer = self.perform(io.device, io.operation);
                    done.push_back(IoDone { id: io.id, result: Ok(()), buffer });
                }
                Output::Reply(reply) => {
                    self.replies += 1;
                    assert!(reply.result.is_ok(), "disks made of memory do not fail");
                    self.spare.extend(reply.buffer.filter(|buffer| buffer.len() == 4096));
                }
                Output::Wait { .. } => match done.pop_front() {
                    Some(io_done) => {
                        self.engine.handle_input(self.now, Input::IoDone(io_done));
                    }
                    None => break,
                },
            }
        }
    }

    /// An I/O on a disk made of memory.
    fn perform(&mut self, device: Device, operation: IoOperation) -> Option<Buffer> {
        let disk = match device {
            Device::CacheDisk => &mut self.cache_disk,
            Device::DataDisk => &mut self.data_disk,
        };
        match operation {
            IoOperation::Read { offset, mut buffer } => {
                let range = offset as usize..offset as usize + buffer.len();
                buffer.bytes_mut().copy_from_slice(&disk[range]);
                Some(buffer)
            }
            IoOperation::Write { offset, data: IoData::Owned(buffer), .. } => {
                let range = offset as usize..offset as usize + buffer.len();
                disk[range].copy_from_slice(buffer.bytes());
                Some(buffer)
            }
            IoOperation::Write { offset, data: IoData::SegmentMemory(memory), .. } => {
                let range = offset as usize..offset as usize + memory.len();
                disk[range].copy_from_slice(&self.engine.segment_memory()[memory]);
                None
            }
            IoOperation::WriteZeroes { offset, length, .. } => {
                disk[offset as usize..(offset + length) as usize].fill(0);
                None
            }
            IoOperation::Flush => None,
        }
    }
}
