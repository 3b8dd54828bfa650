//! Options of a run, drawn from its seed: a swarm, so that each run does some things much and
//! others not at all.
//!
//! Everything is a plain number or name, so that what `{:?}` prints is what a test can say.

use dcd_engine::copies::detector::DetectorSettings;
use dcd_engine::format::geometry::COPY_PAGE_SPACE_BYTES;
use dcd_engine::{
    AckMode, DataDiskInfo, DestagePolicyKind, Duration, EngineConfig, Geometry, Limits, Mode,
};

use crate::faults::FaultKind;
use crate::legs::LegOptions;
use crate::random::Random;

/// Limits that every run reaches: those of a quarter of the runs.
pub const TINY: Limits = Limits {
    zero_ranges: Limits::ZERO_RANGES_MIN,
    poisoned_lines: 4,
    recent_witnesses: 1,
    checkpoint_write_bytes: 4096,
    announced_ahead: usize::MAX,
    listed_free: 5,
    checkpoint_part: 2,
    ..Limits::MOST
};

/// Decides which runs use the log again early: with this number not those that a search for a
/// mistake begins with.
const REUSE_DRAW: u64 = 0x7265_7573_85f3;

/// The same, and space of the log is used again as ever.
pub fn reused_late(limits: Limits) -> Limits {
    let Limits { announced_ahead, listed_free, checkpoint_part, .. } = Limits::MOST;
    Limits { announced_ahead, listed_free, checkpoint_part, ..limits }
}

/// Options of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Segments of 64 KiB, the smallest there can be; at least 16.
    pub segments: u32,
    /// Segment buffers; at least 3.
    pub segment_buffers: u32,
    /// Size of the volume in blocks of 512 bytes.
    pub data_blocks: u64,
    /// 512 or 4096: what a torn write of the data-disk damages.
    pub physical_sector: u32,
    /// 512 or 4096: the smallest request.
    pub logical_block: u32,
    /// When a write is acknowledged.
    pub ack: AckMode,
    /// Where changes go, also after a start.
    pub mode: Mode,
    /// What is destaged first.
    pub policy: DestagePolicyKind,
    /// With ordered shipping: how far the data-disk may be behind, in ms.
    pub ship_within_ms: u64,
    /// Longest time until a commit, in ms.
    pub max_delay_ms: u64,
    /// Writes of so many bytes go past the log.
    pub bypass_bytes: u64,
    /// Quiet time before destaging, in ms.
    pub idle_ms: u64,
    /// Share of segments in use that makes destaging urgent.
    pub dirty_high: u8,
    /// Most bytes, and most writes, per second that destaging starts; 0: no cap.
    pub destage_bytes_max: u64,
    /// See `destage_bytes_max`.
    pub destage_writes_max: u64,
    /// How long a write waits for room, in s.
    pub full_timeout_s: u64,
    /// Destaging gives way to everything.
    pub one_disk: bool,
    /// Checksums are compared when a request reads.
    pub verify_reads: bool,
    /// The data-disk cannot zero a range: zeroes must be written to it.
    pub cannot_zero: bool,
    /// Torn physical sectors may be garbage.
    pub shears: bool,
    /// Changes of the same blocks may be under way together.
    pub overlaps: bool,
    /// Reads of the data-disk may bring what was there when they were started.
    pub early_reads: bool,
    /// Copy pages of the read area, of 248 lines each; 0: there is none.
    pub copy_pages: u32,
    /// What is read is copied to the read area.
    pub hot_blocks: bool,
    /// Memory for reading sequences ahead; 0: they are not.
    pub read_ahead_bytes: u64,
    /// Share of the read area that sequences may take.
    pub sequence_percent: u8,
    /// What a checkpoint may list, and in which pieces it is written.
    pub limits: Limits,
    /// Memory for the index, in bytes; 0: all of it is in memory.
    pub index_bytes: u64,
    /// The cache-disk is on two disks.
    pub legs: Option<LegOptions>,
    /// Kinds of faults in the script.
    pub faults: Vec<FaultKind>,
}

impl Default for Options {
    /// Small and plain: for tests that say only what matters to them.
    fn default() -> Options {
        Options {
            segments: 16,
            segment_buffers: 4,
            data_blocks: 1024,
            physical_sector: 512,
            logical_block: 512,
            ack: AckMode::Memory,
            mode: Mode::WriteBack,
            policy: DestagePolicyKind::FirstWriteFirst,
            ship_within_ms: 10_000,
            max_delay_ms: 100,
            bypass_bytes: 16 << 10,
            idle_ms: 20,
            dirty_high: 80,
            destage_bytes_max: 0,
            destage_writes_max: 0,
            full_timeout_s: 6000,
            one_disk: false,
            verify_reads: true,
            cannot_zero: false,
            shears: true,
            overlaps: false,
            early_reads: false,
            copy_pages: 0,
            hot_blocks: false,
            read_ahead_bytes: 1 << 20,
            sequence_percent: 100,
            limits: Limits::MOST,
            index_bytes: 0,
            legs: None,
            faults: Vec::new(),
        }
    }
}

impl Options {
    /// Options of a run with these faults; without faults everything else varies.
    pub fn draw(random: &mut Random, faults: &[FaultKind]) -> Options {
        let damaged = faults.iter().any(|kind| kind.damages_bytes());
        // Drawn aside: the runs of all seeds are what they were before there were limits.
        let mut aside = Random::new(random.state() ^ 0x6c69_6d69_7473);
        let mut reuse = Random::new(random.state() ^ REUSE_DRAW);
        Options {
            mode: Mode::WriteBack,
            segments: random.pick(&[16, 16, 17, 24]) as u32,
            segment_buffers: random.pick(&[3, 3, 4, 6]) as u32,
            // Now and then more than the cache can hold (240 lines), and of odd size.
            data_blocks: random.pick(&[640, 1024, 1027, 1600, 4096]),
            physical_sector: random.pick(&[512, 4096]) as u32,
            logical_block: random.pick(&[512, 512, 512, 4096]) as u32,
            ack: random.pick(&[AckMode::Memory, AckMode::Log, AckMode::Durable]),
            policy: random.pick(&[
                DestagePolicyKind::FirstWriteFirst,
                DestagePolicyKind::LastWriteFirst,
                DestagePolicyKind::LeastValidFirst,
            ]),
            ship_within_ms: 10_000,
            max_delay_ms: random.pick(&[2, 100]),
            bypass_bytes: random.pick(&[8 << 10, 16 << 10, 64 << 10, 1 << 30]),
            idle_ms: random.pick(&[1, 20, 1000]),
            dirty_high: random.pick(&[30, 80]) as u8,
            destage_bytes_max: random.pick(&[0, 0, 0, 1 << 20]),
            destage_writes_max: random.pick(&[0, 0, 0, 50]),
            // The shorter one is over when a clock jumps.
            full_timeout_s: random.pick(&[1500, 6000]),
            one_disk: random.one_in(4),
            verify_reads: damaged || !random.one_in(4),
            cannot_zero: random.one_in(5),
            shears: random.one_in(2),
            overlaps: random.one_in(3),
            early_reads: random.one_in(3),
            // A third of the runs. A page has room for the lines of most volumes.
            copy_pages: random.pick(&[0, 0, 0, 0, 1, 2, 3, 0, 0]) as u32,
            hot_blocks: random.one_in(2),
            read_ahead_bytes: random.pick(&[0, 64 << 10, 1 << 20, 1 << 20]),
            sequence_percent: random.pick(&[0, 50, 100, 100]) as u8,
            limits: {
                let tables = match aside.one_in(4) {
                    true => Limits { poisoned_lines: aside.pick(&[4, 1]), ..TINY },
                    false => Limits::MOST,
                };
                Options::draw_reuse(&mut reuse, tables)
            },
            index_bytes: 0,
            legs: None,
            faults: faults.to_vec(),
        }
        .consistent()
    }

    /// When space of the log is used again: in half of the runs as soon as it can be, and announced
    /// in all ways, although they log little.
    pub fn draw_reuse(random: &mut Random, limits: Limits) -> Limits {
        let mut limits = reused_late(limits);
        if random.one_in(2) {
            limits.announced_ahead = random.pick(&[2, usize::MAX as u64]) as usize;
            limits.listed_free = TINY.listed_free;
            limits.checkpoint_part = random.pick(&[1, 2, 8]) as u32;
        }
        // What was drawn before this came is drawn as it was.
        let mut aside = Random::new(random.state() ^ 0x6761_7468_6572);
        limits.checkpoint_lines = aside.pick(&[1, 3, 512, 512]) as usize;
        let mut aside = Random::new(random.state() ^ 0x7377_6570);
        limits.discarded_lines = aside.pick(&[1, 1, 2, 2048]) as usize;
        limits
    }

    /// Whether the data-disk goes from one point of the order of changes to the next.
    pub fn is_ordered(&self) -> bool {
        self.policy == DestagePolicyKind::Ordered
    }

    /// Whether checkpoints may list only a few things.
    pub fn has_tiny_limits(&self) -> bool {
        self.limits.zero_ranges == TINY.zero_ranges
    }

    /// Whether space of the log is used again as soon as it can be.
    pub fn reuses_early(&self) -> bool {
        self.limits.listed_free == TINY.listed_free
    }

    /// Whether some of its sessions have wider limits, and leave more than the next may list, as
    /// older versions did.
    pub fn has_wide_sessions(&self) -> bool {
        self.has_tiny_limits() && self.shears
    }

    /// A volume of odd size has no logical blocks of 4096 bytes.
    fn consistent(mut self) -> Options {
        if self.logical_block == 4096 {
            self.physical_sector = 4096;
            self.data_blocks = self.data_blocks / 8 * 8;
        }
        self.shears |= self.faults.contains(&FaultKind::Shear);
        self
    }

    /// With these sizes every place of the exhaustive search exists.
    pub fn small(mut self) -> Options {
        self.logical_block = 512;
        self
    }

    /// Sizes on the cache-disk: the smallest with so many segments.
    pub fn geometry(&self) -> Geometry {
        let segment_size = 64 << 10;
        let mut bytes = u64::from(self.segments) * segment_size
            + u64::from(self.copy_pages) * COPY_PAGE_SPACE_BYTES
            + (640 << 10);
        loop {
            match Geometry::fit_with_copies(bytes, segment_size, self.copy_pages) {
                Ok(geometry) if geometry.segments == self.segments => return geometry,
                _ => bytes += 4096,
            }
        }
    }

    /// The data-disk.
    pub fn data_disk(&self) -> DataDiskInfo {
        DataDiskInfo {
            blocks: self.data_blocks,
            logical_block_size: self.logical_block,
            physical_sector_size: self.physical_sector,
        }
    }

    /// Settings of the engine.
    pub fn engine(&self) -> EngineConfig {
        self.engine_with(self.copy_pages)
    }

    /// The same where the read area has so many pages by now.
    pub fn engine_with(&self, copy_pages: u32) -> EngineConfig {
        let keeps_hot_blocks = copy_pages > 0 && self.hot_blocks && !self.one_disk;
        EngineConfig {
            ack: self.ack,
            // Where nothing that is written would be kept, it is refused.
            mode: match self.mode {
                Mode::WriteThrough if !keeps_hot_blocks => Mode::WriteAround,
                mode => mode,
            },
            max_delay: Duration::from_millis(self.max_delay_ms),
            bypass_threshold_bytes: self.bypass_bytes,
            destage_policy: self.policy,
            ship_within: Duration::from_millis(self.ship_within_ms),
            keeps_windows: true,
            idle_threshold_max: Duration::from_millis(self.idle_ms),
            idle_threshold_min: Duration::from_millis(1),
            dirty_high_percent: self.dirty_high,
            dirty_low_percent: 20,
            destage_bytes_per_second_max: self.destage_bytes_max,
            destage_writes_per_second_max: self.destage_writes_max,
            one_disk: self.one_disk,
            // Half of them: nothing else that is drawn changes.
            data_disk_is_store: self.is_ordered() && self.max_delay_ms == 2,
            verify_reads: self.verify_reads,
            segment_buffers: self.segment_buffers,
            read_ahead_bytes: self.read_ahead_bytes,
            hot_blocks: self.hot_blocks,
            sequence_percent: self.sequence_percent,
            full_timeout: Duration::from_secs(self.full_timeout_s),
            drain_timeout: Duration::from_secs(self.full_timeout_s),
            io_timeout: Duration::from_secs(3000),
            // A slow I/O takes 20 s: of a member it is late, and then too late.
            member_timeout: Duration::from_secs(15),
            // What is done must be the same with any; this one has nothing to do with the load.
            hash_seed: self.data_blocks << 32 | self.max_delay_ms,
            limits: self.limits,
            index_bytes_max: self.index_bytes,
            // Runs read little, and each crash point opens an engine: two fifths of its time went
            // into zeroing these.
            detector: Some(DetectorSettings {
                history_lines: 1 << 12,
                lines_max: 1 << 9,
                candidate_lines_max: 1 << 10,
                ..DetectorSettings::default()
            }),
            ..EngineConfig::default()
        }
    }

    /// Most blocks of a logged write that are all or nothing across a crash (C14).
    pub fn atomic_blocks_max(&self) -> u64 {
        let buffers = u64::from((self.segment_buffers / 2).max(2) - 1);
        let segments = buffers.min(u64::from(self.segments / 2 - 2));
        14 * segments * 8
    }
}
