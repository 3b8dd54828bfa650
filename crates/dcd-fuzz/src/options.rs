//! Options of a run, drawn from its seed: a swarm, so that each run does some things much and
//! others not at all.

use dcd_engine::{AckMode, DataDiskInfo, DestagePolicyKind, Duration, EngineConfig, Geometry};

use crate::random::Random;

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Sizes on the cache-disk.
    pub geometry: Geometry,
    /// The data-disk.
    pub data_disk: DataDiskInfo,
    /// Settings of the engine.
    pub engine: EngineConfig,
    /// Steps of the run.
    pub steps: u64,
    /// Requests under way together.
    pub depth: usize,
    /// Blocks of the volume that are used: few make overwrites likely.
    pub blocks_used: u64,
    /// Largest request.
    pub request_blocks_max: u64,
    /// One request in so many is of this kind; 0: never.
    pub flush_one_in: u64,
    /// See `flush_one_in`.
    pub zero_one_in: u64,
    /// See `flush_one_in`.
    pub large_one_in: u64,
    /// See `flush_one_in`.
    pub read_one_in: u64,
    /// See `flush_one_in`.
    pub fua_one_in: u64,
    /// See `flush_one_in`.
    pub drain_one_in: u64,
    /// A crash in so many steps.
    pub crash_one_in: u64,
    /// One write or flush of the cache-disk in so many fails, never several in a row.
    pub cache_error_one_in: u64,
    /// In one step of so many the cache-disk goes away for good, until the next crash; 0: never.
    pub cache_gone_one_in: u64,
    /// Time jumps so long, at most, when nothing else happens.
    pub pause_max: Duration,
}

impl Options {
    /// The options of a seed.
    pub fn draw(random: &mut Random) -> Options {
        // Now and then more than the cache can hold.
        let data_blocks = match random.below(8) {
            0 => 16 << 10,
            _ => 2048 + random.below(3) * 3 + random.below(2) * 2048,
        };
        let large = random.pick(&[8 << 10, 16 << 10, 64 << 10, 1 << 30]);
        let idle = random.pick(&[1, 20, 1000]);
        Options {
            geometry: Geometry::fit(random.pick(&[3 << 20, 4 << 20]), 64 << 10)
                .expect("16 segments of 64 KiB and more fit"),
            data_disk: DataDiskInfo {
                blocks: data_blocks,
                logical_block_size: 512,
                physical_sector_size: random.pick(&[512, 4096]),
            },
            engine: EngineConfig {
                ack: random.pick(&[AckMode::Memory, AckMode::Log, AckMode::Durable]),
                max_delay: Duration::from_millis(random.pick(&[2, 100])),
                bypass_threshold_bytes: large,
                destage_policy: random.pick(&[
                    DestagePolicyKind::FirstWriteFirst,
                    DestagePolicyKind::LastWriteFirst,
                    DestagePolicyKind::LeastValidFirst,
                ]),
                idle_threshold_max: Duration::from_millis(idle),
                idle_threshold_min: Duration::from_millis(1),
                dirty_high_percent: random.pick(&[30, 80]),
                dirty_low_percent: 20,
                one_disk: random.one_in(4),
                segment_buffers: random.pick(&[3, 4, 8]) as u32,
                full_timeout: Duration::from_secs(100_000),
                io_timeout: Duration::from_secs(100_000),
                ..EngineConfig::default()
            },
            steps: random.pick(&[60, 200, 600, 600, 3000]),
            depth: random.pick(&[1, 4, 16]) as usize,
            blocks_used: random.pick(&[64, 400, 2048, 16 << 10]),
            request_blocks_max: random.pick(&[1, 8, 24, 100]),
            flush_one_in: random.pick(&[0, 4, 20]),
            zero_one_in: random.pick(&[0, 6, 30]),
            large_one_in: random.pick(&[0, 8, 30]),
            read_one_in: random.pick(&[2, 6]),
            fua_one_in: random.pick(&[0, 5]),
            drain_one_in: random.pick(&[0, 60]),
            crash_one_in: random.pick(&[15, 60, 200]),
            cache_error_one_in: random.pick(&[0, 0, 0, 30]),
            cache_gone_one_in: random.pick(&[0, 0, 10, 100]),
            pause_max: Duration::from_millis(random.pick(&[1, 50, 2000])),
        }
    }
}
