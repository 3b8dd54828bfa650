//! What can be set, checked once and then trusted.

use crate::copies::detector::DetectorSettings;
pub use crate::error::ConfigError;
use crate::format::geometry::{POISONED_LINES_MAX, ZERO_RANGES_MAX};
use crate::format::nvram::NvramIdentity;
pub use crate::format::superblock::DataDiskInfo;
use crate::format::superblock::MemoryIdentity;
use crate::legs::LegsParts;
use crate::units::{Duration, LINE_SIZE};

/// Lines destaged last that are witnesses, at most.
pub(crate) const RECENT_WITNESSES_MAX: usize = 16;

/// Free segments that a checkpoint lists: of a large log the others are announced when it comes to
/// them, so that nothing grows with what is empty.
pub(crate) const LISTED_FREE_MAX: u32 = 1024;

/// Fewest segment buffers: one fills while others are written.
pub(crate) const SEGMENT_BUFFERS_MIN: u32 = 3;

/// Shortest wait for the answer of a disk. A good one may take some hundred milliseconds, and what is
/// meant by less is another unit: it would end the cache at its next request.
const ANSWER_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// Shortest time within which what is in the log is shipped.
const SHIP_WITHIN_MIN: Duration = Duration::from_millis(100);

/// When a write is acknowledged (contract C5). No mode weakens FLUSH or FUA.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AckMode {
    /// As soon as the write is in the segment buffer, which outlives the process. Durable within
    /// `max_delay`. The papers' *immediate report*.
    #[default]
    Memory,
    /// When it has been written to the cache-disk.
    Log,
    /// When it is durable on the cache-disk.
    Durable,
}

/// Where changes go (contract C35).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// To the log, and from there to the data-disk when it has time.
    #[default]
    WriteBack,
    /// Straight to the data-disk, and then to the read area, as if it had been read at once: a
    /// cache for reads with nothing dirty in it, for those who read what they wrote.
    WriteThrough,
    /// Straight to the data-disk. Copies of what is read are kept and served, so it is a cache for
    /// reads with nothing dirty in it.
    WriteAround,
    /// Straight to the data-disk. The cache-disk is not touched, and may be pulled.
    PassThrough,
}

impl Mode {
    /// Whether the read area is used, and true, although changes go past the log.
    pub(crate) fn keeps_copies(self) -> bool {
        matches!(self, Mode::WriteThrough | Mode::WriteAround)
    }
}

/// Which segment is destaged next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DestagePolicyKind {
    /// The oldest segment: "first-write-first-destage" (NT paper, section 3.4.2).
    #[default]
    FirstWriteFirst,
    /// The newest segment: "last-write-first-destage" (USENIX'99, section 3.5.3).
    LastWriteFirst,
    /// The segment with the least live slots: "least cost" (USENIX'99, section 3.5.3).
    LeastValidFirst,
    /// All that is in the log at a moment, as it is then, before anything that comes later: the
    /// data-disk goes from one point of the order of changes to the next.
    Ordered,
}

/// Settings of an engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// When a write is acknowledged.
    pub ack: AckMode,
    /// Longest time that an acknowledged write stays only in a segment buffer.
    pub max_delay: Duration,
    /// Writes of at least this many bytes go straight to the data-disk (paper: 64 KiB).
    pub bypass_threshold_bytes: u64,
    /// What is destaged next.
    pub destage_policy: DestagePolicyKind,
    /// With [`DestagePolicyKind::Ordered`]: how far what was last kept of the data-disk may be
    /// behind.
    pub ship_within: Duration,
    /// Somebody carries out [`Output::KeepWindow`](crate::Output::KeepWindow): without, nothing is
    /// shipped in order.
    pub keeps_windows: bool,
    /// Quiet time before destaging starts while the cache is nearly empty.
    pub idle_threshold_max: Duration,
    /// The same while it is nearly full.
    pub idle_threshold_min: Duration,
    /// Destage without waiting for quiet when this share of the segments holds something dirty, or
    /// more ...
    pub dirty_high_percent: u8,
    /// ... until less than this share does.
    pub dirty_low_percent: u8,
    /// Most bytes per second that destaging writes; 0: no cap.
    pub destage_bytes_per_second_max: u64,
    /// Most bytes per second that a leg of the cache-disk is filled with; 0: no limit.
    pub fill_bytes_per_second_max: u64,
    /// Most writes per second that destaging starts; 0: no cap.
    pub destage_writes_per_second_max: u64,
    /// Cache-disk and data-disk share one arm (*logical DCD*): destaging gives way to everything.
    pub one_disk: bool,
    /// The data-disk is an object store: reads there do not wait for writes, and a write that is to
    /// be durable at once costs requests of its own, where a flush packs thousands into one.
    pub data_disk_is_store: bool,
    /// Check the checksum of every slot that is read for a request.
    pub verify_reads: bool,
    /// How long a write waits for room before it fails with "no space" (C25).
    pub full_timeout: Duration,
    /// A drain or detach that gets nothing more to the data-disk for so long ends; after an eighth
    /// of it when what is in the way is known.
    pub drain_timeout: Duration,
    /// After how long without an answer a disk counts as failed (C26).
    pub io_timeout: Duration,
    /// After how long without an answer a member of a volume is done without, where others hold the
    /// same.
    pub member_timeout: Duration,
    /// Whether changes go to the log. A start is in write-back and switches then.
    pub mode: Mode,
    /// How often somebody has asked for it since the start: once more, and a switch to it that was
    /// given up is tried again.
    pub mode_asked: u64,
    /// Leave the log unused: every change goes straight to the data-disk, as if the cache-disk had
    /// failed while clean. The log must be empty.
    pub no_log: bool,
    /// Number of segment buffers (at least 3).
    pub segment_buffers: u32,
    /// Memory for reading sequences ahead; 0: they are not.
    pub read_ahead_bytes: u64,
    /// Copy what is read to the read area, and read what was destaged from the log as long as it is
    /// there.
    pub hot_blocks: bool,
    /// Look for sequences in what is read, and keep those that are found; only with a read area.
    pub detector: Option<DetectorSettings>,
    /// Share of the read area that sequences may take; hot blocks get the rest, and what is not
    /// taken.
    pub sequence_percent: u8,
    /// Refuse everything that changes data.
    pub read_only: bool,
    /// The data-disk takes no writes: what is dirty stays in the log. Only with `read_only`.
    pub data_disk_read_only: bool,
    /// Start although blocks that were durable are lost, or the data-disk was changed behind a
    /// dirty cache; only after a person has read what is lost.
    pub accept_damage: bool,
    /// A member of a volume with so many failed I/Os and rotten lines since the start is suspect;
    /// 0: none is.
    pub suspect_after: u64,
    /// A volume is scrubbed by itself so long after the last scrub; 0: never. Needs to be told the
    /// time: [`Engine::set_calendar`](crate::Engine::set_calendar).
    pub scrub_every: Duration,
    /// A part of a volume whose checksums its members do not have yet gets them when nothing has
    /// been changed there for so long (`volume/twin.rs`).
    pub twin_quiet: Duration,
    /// A spare takes the place of a member of a volume that has failed for so long; 0: never by
    /// itself.
    pub spare_after: Duration,
    /// Memory for checksums of a volume's lines, in bytes; others are read from the cache-disk when
    /// they are wanted. More is taken for what has changed since the last checkpoint.
    pub volume_memory_bytes: u64,
    /// Memory for the index, in bytes: what of it is in memory no more is read from the cache-disk
    /// when it is wanted; 0: all of it is in memory.
    pub index_bytes_max: u64,
    /// The data-disk has grown: its new size is recorded when the cache is opened (C32). What the
    /// new part holds is as it is on the disk.
    pub grow: bool,
    /// What checkpoints may list.
    pub limits: Limits,
    /// The segment memory, for the superblock of the session to name; `None`: it is not to be
    /// missed (C4).
    pub memory: Option<MemoryIdentity>,
    /// The memory in front of the log, for the superblock of the session to name. It is none while
    /// the superblock names one: [`OpenError::Nvram`](crate::OpenError::Nvram).
    pub nvram: Option<NvramIdentity>,
    /// The memory that the superblock names may be gone, with what only it held.
    pub nvram_may_be_lost: bool,
    /// If the cache-disk is on several disks: which of them count.
    pub legs: Option<Box<LegsParts>>,
    /// Seed of the [hash of lines](crate::line_hash), new for each start and told to nobody:
    /// whoever writes could otherwise choose lines that make every look-up slow.
    pub hash_seed: u64,
}

/// How much a checkpoint of this cache may list, and in which pieces it is written. The format sets
/// the most; less is for tests, which then reach every limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Zero ranges, those included that only a replay of the log would make.
    pub zero_ranges: usize,
    /// Lines with damaged fragments.
    pub poisoned_lines: u64,
    /// Lines destaged last that are witnesses.
    pub recent_witnesses: usize,
    /// One write of a checkpoint: large ones are cut, so that log writes get in between.
    pub checkpoint_write_bytes: usize,
    /// Lines of the index that are gathered for a checkpoint at a time: requests get in between.
    pub checkpoint_lines: usize,
    /// Lines of a discard that leave the lookup table at once, and at a time when it covers more;
    /// the same of lines that are on the data-disk and in the log, and of lines that are looked at
    /// for a segment whose records cannot be read.
    pub discarded_lines: usize,
    /// Free segments with which no more are announced; the number of all: whatever is empty is
    /// announced at once.
    pub announced_ahead: usize,
    /// Free segments with which a checkpoint lists no more as free, unless somebody waits for them:
    /// what is empty has to be announced.
    pub listed_free: usize,
    /// A checkpoint is due when one in so many of the segments has been filled since the last.
    pub checkpoint_part: u32,
    /// One is due, too, when so many bytes have been logged since the last, or, with a large index,
    /// some times as many as it would write: a start reads no more of the log.
    pub checkpoint_log_bytes: u64,
}

impl Limits {
    /// With fewer zero ranges nothing could be logged.
    pub const ZERO_RANGES_MIN: usize = 8;
    /// Most, and what is used.
    pub const MOST: Limits = Limits {
        zero_ranges: ZERO_RANGES_MAX as usize,
        poisoned_lines: POISONED_LINES_MAX,
        recent_witnesses: RECENT_WITNESSES_MAX,
        checkpoint_write_bytes: 1 << 20,
        // Of a large index each line is a page that no cache of the processor knows, and in a table
        // that has just grown one that the kernel has to give: up to 2 us for each.
        checkpoint_lines: 512,
        // The same, and tables that shrink when it leaves them: up to 3 us.
        discarded_lines: 512,
        announced_ahead: 64,
        listed_free: LISTED_FREE_MAX as usize,
        checkpoint_part: 8,
        checkpoint_log_bytes: 256 << 20,
    };

    /// Lines that a start puts into the lookup table at a time. In a large table that is nearly
    /// empty each touches up to four pages that the kernel has to give first: 5 us.
    pub(crate) fn started_lines(&self) -> usize {
        self.checkpoint_lines.div_ceil(2)
    }

    fn are_possible(&self) -> bool {
        (Limits::ZERO_RANGES_MIN..=Limits::MOST.zero_ranges).contains(&self.zero_ranges)
            && self.poisoned_lines <= POISONED_LINES_MAX
            && (1..=RECENT_WITNESSES_MAX).contains(&self.recent_witnesses)
            && self.checkpoint_write_bytes > 0
            && self.checkpoint_lines > 0
            && self.discarded_lines > 0
            && (1..=Limits::MOST.checkpoint_part).contains(&self.checkpoint_part)
            && self.checkpoint_write_bytes.is_multiple_of(LINE_SIZE as usize)
    }
}

impl Default for EngineConfig {
    fn default() -> EngineConfig {
        EngineConfig {
            ack: AckMode::Memory,
            max_delay: Duration::from_millis(100),
            bypass_threshold_bytes: 1 << 20,
            destage_policy: DestagePolicyKind::FirstWriteFirst,
            ship_within: Duration::from_secs(10),
            keeps_windows: false,
            idle_threshold_max: Duration::from_secs(1),
            idle_threshold_min: Duration::from_millis(1),
            dirty_high_percent: 80,
            dirty_low_percent: 60,
            destage_bytes_per_second_max: 0,
            fill_bytes_per_second_max: 0,
            destage_writes_per_second_max: 0,
            one_disk: false,
            data_disk_is_store: false,
            verify_reads: true,
            full_timeout: Duration::from_secs(60),
            drain_timeout: Duration::from_secs(60),
            io_timeout: Duration::from_secs(30),
            member_timeout: Duration::from_secs(30),
            mode: Mode::WriteBack,
            mode_asked: 0,
            no_log: false,
            segment_buffers: 16,
            read_ahead_bytes: 16 << 20,
            hot_blocks: true,
            detector: Some(DetectorSettings::default()),
            sequence_percent: 50,
            read_only: false,
            data_disk_read_only: false,
            accept_damage: false,
            suspect_after: 16,
            scrub_every: Duration::from_secs(30 * 86_400),
            // Longer than file systems wait to commit, five seconds: what is changed each time would
            // be marked, and its checksums written, for nothing.
            twin_quiet: Duration::from_secs(10),
            spare_after: Duration::from_secs(300),
            volume_memory_bytes: 64 << 20,
            index_bytes_max: 0,
            grow: false,
            limits: Limits::MOST,
            memory: None,
            nvram: None,
            nvram_may_be_lost: false,
            legs: None,
            hash_seed: 0,
        }
    }
}

impl EngineConfig {
    /// The shortest time after which somebody is given up who does not answer.
    pub(crate) fn shortest_wait(&self, has_members: bool) -> Duration {
        let shortest = self.io_timeout.min(self.full_timeout).min(self.drain_timeout);
        if has_members { shortest.min(self.member_timeout) } else { shortest }
    }

    /// After how long without an answer a data-disk counts as failed. What goes to a volume may
    /// wait for a late member twice, when it reads what was there and when it writes, before the
    /// others are asked.
    pub(crate) fn data_disk_timeout(&self, has_members: bool) -> Duration {
        match has_members {
            true => Duration(self.io_timeout.0.saturating_add(2 * self.member_timeout.0)),
            false => self.io_timeout,
        }
    }

    /// Takes over from `wanted` what may change while the engine runs. All else stays: it decides
    /// how large memory and tables are, or how the cache was opened.
    ///
    /// # Errors
    /// If the settings would not go together, or the superblock of the session would say what is
    /// not so; then nothing is changed.
    pub(crate) fn take_over(&mut self, wanted: &EngineConfig) -> Result<(), ConfigError> {
        // Without `..`: whoever adds a field decides whether it may change.
        let changed = EngineConfig {
            ack: wanted.ack,
            max_delay: wanted.max_delay,
            bypass_threshold_bytes: wanted.bypass_threshold_bytes,
            destage_policy: wanted.destage_policy,
            ship_within: wanted.ship_within,
            keeps_windows: self.keeps_windows,
            idle_threshold_max: wanted.idle_threshold_max,
            idle_threshold_min: wanted.idle_threshold_min,
            dirty_high_percent: wanted.dirty_high_percent,
            dirty_low_percent: wanted.dirty_low_percent,
            destage_bytes_per_second_max: wanted.destage_bytes_per_second_max,
            fill_bytes_per_second_max: wanted.fill_bytes_per_second_max,
            destage_writes_per_second_max: wanted.destage_writes_per_second_max,
            verify_reads: wanted.verify_reads,
            full_timeout: wanted.full_timeout,
            drain_timeout: wanted.drain_timeout,
            io_timeout: wanted.io_timeout,
            member_timeout: wanted.member_timeout,
            suspect_after: wanted.suspect_after,
            scrub_every: wanted.scrub_every,
            twin_quiet: wanted.twin_quiet,
            spare_after: wanted.spare_after,
            volume_memory_bytes: wanted.volume_memory_bytes,
            index_bytes_max: self.index_bytes_max,
            one_disk: self.one_disk,
            data_disk_is_store: self.data_disk_is_store,
            mode: wanted.mode,
            mode_asked: wanted.mode_asked,
            no_log: self.no_log,
            segment_buffers: self.segment_buffers,
            read_ahead_bytes: self.read_ahead_bytes,
            hot_blocks: self.hot_blocks,
            detector: self.detector,
            sequence_percent: self.sequence_percent,
            read_only: wanted.read_only,
            data_disk_read_only: self.data_disk_read_only,
            accept_damage: self.accept_damage,
            grow: self.grow,
            limits: self.limits,
            memory: self.memory.clone(),
            nvram: self.nvram,
            nvram_may_be_lost: self.nvram_may_be_lost,
            legs: None,
            hash_seed: self.hash_seed,
        };
        changed.validate()?;
        changed.fits_its_superblock()?;
        *self = changed;
        Ok(())
    }

    /// A start without the segment memory takes the superblock's word for what it may lack.
    fn fits_its_superblock(&self) -> Result<(), ConfigError> {
        let Some(memory) = &self.memory else { return Ok(()) };
        let said = Duration::from_millis(memory.max_delay_milliseconds.into());
        let rests_in_memory = self.ack != AckMode::Durable;
        let why = match rests_in_memory && !self.no_log {
            true if said == Duration(0) => {
                Some(("ack", "was durable at the start, and stays so until the next"))
            }
            true if self.max_delay > said => {
                Some(("max-delay", "cannot be longer than at the start until the next"))
            }
            _ => None,
        };
        why.map_or(Ok(()), |(key, why)| Err(ConfigError { key, why }))
    }

    /// Checks the settings against each other.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.nvram.is_some() {
            // What it acknowledged is not on the data-disk yet, and has to get there.
            let why = "is not possible with a memory in front of the log: `dcd nvram remove` first, or \
                       serve without --nvram";
            if self.mode != Mode::WriteBack {
                return Err(ConfigError { key: "mode", why });
            }
            if self.read_only || self.data_disk_read_only {
                return Err(ConfigError { key: "read-only", why });
            }
        }
        let bad = |key, why| Err(ConfigError { key, why });
        if self.destage_policy == DestagePolicyKind::Ordered {
            if !self.keeps_windows {
                let why = "cannot be ordered without window-hook: between two points of the order \
                           the data-disk is none, so somebody has to keep each";
                return bad("destage-policy", why);
            }
            if self.mode != Mode::WriteBack || self.no_log {
                let why = "has to be write-back with destage-policy ordered: what goes past the log \
                           reaches the data-disk in no order";
                return bad("mode", why);
            }
            if self.nvram.is_some() {
                let why = "cannot be ordered with --nvram: what leaves that memory has no order";
                return bad("destage-policy", why);
            }
            if self.index_bytes_max > 0 {
                let why = "cannot be ordered with index-max: all of the index has to be in memory";
                return bad("destage-policy", why);
            }
        }
        if self.ship_within < SHIP_WITHIN_MIN {
            return bad("ship-within", "must be at least 100 ms");
        }
        if self.segment_buffers < SEGMENT_BUFFERS_MIN {
            return bad(
                "segment-buffers",
                "must be at least 3: one fills while others are written",
            );
        }
        if self.dirty_high_percent > 95 {
            return bad("dirty-high", "must be at most 95 percent");
        }
        if self.dirty_low_percent > self.dirty_high_percent {
            return bad("dirty-low", "must not be above dirty-high");
        }
        if self.data_disk_read_only && !self.read_only {
            return bad("read-only", "must be set for a data-disk that takes no writes");
        }
        if self.sequence_percent > 100 {
            return bad("sequence-share", "must be at most 100 percent");
        }
        if self.idle_threshold_min > self.idle_threshold_max {
            return bad("idle-min", "must not be longer than idle-max");
        }
        if self.idle_threshold_min == Duration(0) {
            return bad("idle-min", "must be longer than nothing");
        }
        if self.max_delay == Duration(0) {
            return bad("max-delay", "must be longer than nothing; for no delay use --ack durable");
        }
        if self.bypass_threshold_bytes < LINE_SIZE {
            return bad(
                "bypass-threshold",
                "must be at least 4 KiB, or everything goes past the cache",
            );
        }
        if !self.limits.are_possible() {
            return bad("limits", "must not be above what the format has room for");
        }
        if self.full_timeout == Duration(0) {
            return bad("full-timeout", "must be longer than nothing");
        }
        if self.io_timeout < ANSWER_TIMEOUT_MIN {
            return bad(
                "io-timeout",
                "must be at least 1s: a disk that is later has failed for good",
            );
        }
        if self.drain_timeout == Duration(0) {
            return bad("drain-timeout", "must be longer than nothing");
        }
        if self.member_timeout < ANSWER_TIMEOUT_MIN {
            return bad(
                "member-timeout",
                "must be at least 1s: a member that is later is done without",
            );
        }
        Ok(())
    }
}
