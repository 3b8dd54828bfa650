//! The settings of a simulation: flags of `dcd simulate`, keywords of `dcd.simulate()`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use dcd_engine::copies::detector::DetectorSettings;
use dcd_engine::nvram::groups::GROUP_BLOCKS_MAX;
use dcd_engine::nvram::policy::NvramPolicyKind;
use dcd_engine::nvram::{HotZoneSize, NvramConfig};
use dcd_engine::units::BLOCK_SIZE;
use dcd_engine::{AckMode, DestagePolicyKind, EngineConfig};
use dcd_protocol::units_text::{parse_duration, parse_percent, parse_size};
use dcd_sim::disk::profile::Profile;
use dcd_sim::sequence_runs::SequenceMode;
use dcd_sim::target::setup::{Groups, Head, LogSetup, NvramSetup, Setup};
use dcd_sim::workload::WorkloadSpec;

use super::volume::VolumeArguments;
use crate::StudyError;
use crate::load::{TraceInputArguments, parse_workload};

/// Most blocks of the memory: 1 TiB.
const NVRAM_BYTES_MAX: u64 = 1 << 40;
/// 16 GiB of the largest segments: what no memory has is refused here, not by the allocator.
const SEGMENT_BUFFERS_MAX: i64 = 4096;
/// `--passes`: three times to be found, once to be served.
pub const PASSES_DEFAULT: u32 = 4;
const AGE_MAX_DEFAULT: dcd_engine::Duration = dcd_engine::Duration::from_secs(30);

/// Replay a trace on a disk model, in simulated time.
///
/// Tells how long each request would have waited and taken: on the bare disk, with non-volatile
/// memory in front of it (--nvram), or with a log on a second disk (--cache-disk), which is the
/// code that `dcd serve` runs. Traces of fast disks overload slow ones: replay them with
/// --closed-loop or --stretch.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd simulate --trace load.csv.zst --disk hp-2200a
  dcd simulate --trace load.csv.zst --disk hp-2200a --nvram 256k --policy stack
  dcd simulate --trace load.csv.zst --disk hp-2200a --nvram 256k --policy lst --low 100 --high 100
  dcd simulate --trace load.csv.zst --disk hp-2200a --nvram 256k --bound
  dcd simulate --trace load.csv.zst --disk hp-97560 --cache-disk 64M --segment 128k --destage lifo
  dcd simulate --trace boot.csv.zst --disk wd400bb --closed-loop --cache-disk 1G --read-area 512M --one-disk --sequences record-then-replay
  dcd simulate --workload users,users=4 --closed-loop --disk barracuda-4lp-4gb
  dcd simulate --trace Financial1.spc.gz --device 0 --disk ultrastar-hc310 --stretch 2 --json")]
pub struct SimulateArguments {
    /// The trace; `dcd trace --help` lists the formats.
    #[arg(long, value_name = "FILE", required_unless_present = "workload")]
    pub trace: Option<PathBuf>,
    /// Made-up requests instead: NAME[,KEY=VALUE...]; docs/workloads.md tells which there are.
    #[arg(long, value_name = "WORKLOAD", value_parser = parse_workload)]
    #[arg(conflicts_with_all = ["trace", "format", "device"])]
    pub workload: Option<WorkloadSpec>,
    /// How it is read.
    #[command(flatten)]
    pub input: TraceInputArguments,
    /// Name of a profile (`dcd disk list`), or path of a TOML file.
    #[arg(long, value_name = "PROFILE")]
    pub disk: String,
    /// Each request comes when the one before is done: after as long as it did in the trace, where
    /// latencies were recorded, else no sooner than it did after the one before.
    #[arg(long)]
    pub closed_loop: bool,
    /// Multiply the times of the trace.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = parse_stretch)]
    #[arg(conflicts_with = "closed_loop")]
    pub stretch: f64,
    /// Chooses the angle of the platters at the beginning, and the times of disks without an arm.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub seed: u64,
    /// Caches in front of the disk.
    #[command(flatten)]
    pub caches: CacheArguments,
    /// Tell also how few writes to the disk there could be: a number that no policy can do with
    /// less than, and what one that knows all writes to come does with.
    #[arg(long, requires = "nvram", conflicts_with_all = ["cache_disk", "sequences"])]
    #[arg(help_heading = "Non-volatile memory")]
    pub bound: bool,
    /// Let the load come again when it is known, and tell both: how long the disks take for its
    /// reads, and how far their arms go. Needs --read-area; hot blocks are off then, unless
    /// --hot-blocks says otherwise.
    #[arg(long, value_name = "MODE", conflicts_with_all = ["nvram", "volume"])]
    #[arg(help_heading = "Read area")]
    pub sequences: Option<SequencesArgument>,
    /// Another trace for the last time with --sequences, the one that counts: another start of the
    /// same program, whose reads come in another order.
    #[arg(long, value_name = "FILE", requires_all = ["sequences", "trace"], help_heading = "Read area")]
    pub then: Option<PathBuf>,
    /// How often the load comes with --sequences detect; the last time counts.
    #[arg(long, value_name = "COUNT", default_value_t = PASSES_DEFAULT)]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=1000))]
    #[arg(requires = "sequences", help_heading = "Read area")]
    pub passes: u32,
    /// Only so many requests.
    #[arg(long, value_name = "COUNT")]
    pub requests: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Caches in front of a disk.
#[derive(Args, Clone, Debug)]
pub struct CacheArguments {
    /// Size of a non-volatile memory in front of the disk.
    #[arg(long, value_name = "SIZE", value_parser = parse_nvram_size, help_heading = "Non-volatile memory")]
    pub nvram: Option<u64>,
    /// What is written to the disk first [default: auto; lru with --high, --low, --idle or
    /// --groups-at-once].
    #[arg(long, value_name = "POLICY", requires = "nvram", help_heading = "Non-volatile memory")]
    pub policy: Option<NvramPolicyArgument>,
    /// Cleaning begins when more than this share is dirty; 100: when a write needs the room. Not
    /// with --policy auto [default: 90%].
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    #[arg(requires = "nvram", help_heading = "Non-volatile memory")]
    pub high: Option<u8>,
    /// Cleaning ends at this share, at most that of --high; the same is a single threshold. Not
    /// with --policy auto [default: 20%, at most --high].
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    #[arg(requires = "nvram", help_heading = "Non-volatile memory")]
    pub low: Option<u8>,
    /// Cleaning that no write waits for waits until the disk has had no other request for so long.
    /// Not with --policy auto [default: 0s].
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    #[arg(requires = "nvram", help_heading = "Non-volatile memory")]
    pub idle: Option<Duration>,
    /// How many groups are cleaned at once: `all`, or a number. Not with --policy auto [default:
    /// all].
    #[arg(long, value_name = "COUNT", value_parser = parse_groups_at_once)]
    #[arg(requires = "nvram", help_heading = "Non-volatile memory")]
    pub groups_at_once: Option<u32>,
    /// Cleaning that no write waits for leaves this share dirty, which spares writes to the disk:
    /// for flash.
    #[arg(long, value_name = "PERCENT", default_value = "0", value_parser = parse_percent)]
    #[arg(requires = "nvram", help_heading = "Non-volatile memory")]
    pub wear_floor: u8,
    /// What is cleaned together: `track`, or regions of a size, at most 2M. Disks without an arm
    /// have no tracks, nor has a log: there `track` is 64k.
    #[arg(long, value_name = "track|SIZE", default_value = "track", value_parser = parse_group)]
    #[arg(requires = "nvram", help_heading = "Non-volatile memory")]
    pub group: Groups,
    /// The part for what is written again and again, only with --policy stack: `auto`, or a share
    /// [default: auto].
    #[arg(long, value_name = "auto|PERCENT", value_parser = parse_hot_zone)]
    #[arg(requires = "nvram", help_heading = "Non-volatile memory")]
    pub hot_zone: Option<HotZoneSize>,
    /// At this age a group is written whatever the way there costs, only with --policy wstf
    /// [default: 30s].
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    #[arg(requires = "nvram", help_heading = "Non-volatile memory")]
    pub age_max: Option<Duration>,
    /// Where policies that ask take the head of the disk to be, only with --policy stf or wstf
    /// [default: model].
    #[arg(long, value_name = "HOW", requires = "nvram", help_heading = "Non-volatile memory")]
    pub head: Option<HeadArgument>,
    /// Writes of more than this go past the memory.
    #[arg(long, value_name = "SIZE", default_value = "16k", value_parser = parse_size)]
    #[arg(requires = "nvram", help_heading = "Non-volatile memory")]
    pub nvram_bypass: u64,

    /// Size of a cache-disk for a log in front of the disk.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Log")]
    pub cache_disk: Option<u64>,
    /// The model of the cache-disk [default: that of the disk].
    #[arg(long, value_name = "PROFILE", requires = "cache_disk", help_heading = "Log")]
    pub cache_disk_profile: Option<String>,
    /// Size of a segment: a power of two from 64k to 4M.
    #[arg(long, value_name = "SIZE", default_value = "128k", value_parser = parse_size)]
    #[arg(requires = "cache_disk", help_heading = "Log")]
    pub segment: u64,
    /// Number of segment buffers in memory.
    #[arg(long, value_name = "COUNT", default_value_t = 16)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=SEGMENT_BUFFERS_MAX))]
    #[arg(requires = "cache_disk", help_heading = "Log")]
    pub segment_buffers: u32,
    /// Which segment is destaged first [default: fifo; ordered in front of an object store].
    #[arg(long, value_name = "POLICY", requires = "cache_disk", help_heading = "Log")]
    pub destage: Option<DestageArgument>,
    /// With --destage ordered: how far the data-disk may be behind.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    #[arg(requires = "cache_disk", help_heading = "Log")]
    pub ship_within: std::time::Duration,
    /// When a write is acknowledged.
    #[arg(long, value_name = "MODE", default_value = "memory")]
    #[arg(requires = "cache_disk", help_heading = "Log")]
    pub ack: AckArgument,
    /// Writes of at least this size go past the log.
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = parse_size)]
    #[arg(requires = "cache_disk", help_heading = "Log")]
    pub log_bypass: u64,
    /// The cache is on the first part of the disk itself, and both share its arm.
    #[arg(long, requires = "cache_disk", conflicts_with = "cache_disk_profile")]
    #[arg(help_heading = "Log")]
    pub one_disk: bool,

    /// How much of the cache-disk is for copies of what is read: sequences and hot blocks.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "cache_disk")]
    #[arg(help_heading = "Read area")]
    pub read_area: Option<u64>,
    /// Whether what is read is copied there [default: on; with --sequences off].
    #[arg(long, value_name = "on|off", requires = "read_area", help_heading = "Read area")]
    pub hot_blocks: Option<OnOff>,
    /// Memory for reading sequences ahead; 0: they are not.
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = parse_size)]
    #[arg(requires = "read_area", help_heading = "Read area")]
    pub read_ahead: u64,
    /// So often must a sequence be seen before it is kept.
    #[arg(long, value_name = "COUNT", default_value_t = DetectorSettings::default().confirmations)]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=1000))]
    #[arg(requires = "read_area", help_heading = "Read area")]
    pub confirmations: u32,
    /// In so many lines read before, the first occurrence of a sequence is looked for.
    #[arg(long, value_name = "LINES", default_value_t = DetectorSettings::default().history_lines)]
    #[arg(value_parser = clap::value_parser!(u32).range(64..=1 << 24))]
    #[arg(requires = "read_area", help_heading = "Read area")]
    pub history: u32,
    /// Quiet time after which what is read next is no part of the same sequence.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    #[arg(requires = "read_area", help_heading = "Read area")]
    pub sequence_gap: Duration,
    /// Of a sequential read only so many lines are looked at.
    #[arg(long, value_name = "LINES", default_value_t = DetectorSettings::default().run_lines_max)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    #[arg(requires = "read_area", help_heading = "Read area")]
    pub run_lines: u32,

    /// A volume in place of the disk.
    #[command(flatten)]
    pub volume: VolumeArguments,
}

/// `--hot-blocks`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum OnOff {
    /// They are copied
    On,
    /// They are not
    Off,
}

/// `--sequences`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum SequencesArgument {
    /// Its reads are kept as a sequence when it has come once, and it comes once more
    RecordThenReplay,
    /// It comes several times, and sequences in it are found
    Detect,
}

/// `--policy`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum NvramPolicyArgument {
    /// Whatever has made requests wait least of late, with thresholds that follow the load
    Auto,
    /// What was written longest ago
    Lru,
    /// What came longest ago
    Fifo,
    /// What the head reaches first
    Stf,
    /// The same, sooner the older it is
    Wstf,
    /// The group with most dirty blocks
    Lst,
    /// The largest of those that are not written again and again
    Stack,
    /// The group whose age times blocks for each write is largest
    AgeSize,
    /// What costs least for the blocks that it frees: greedy dual size
    Gds,
}

/// `--ack`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum AckArgument {
    /// As soon as it is in memory that outlives dcd
    Memory,
    /// When it has been written to the cache-disk
    Log,
    /// When it survives a power cut
    Durable,
}

/// `--destage`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum DestageArgument {
    /// The oldest segment
    Fifo,
    /// The newest segment
    Lifo,
    /// The segment with the least that is still needed
    LeastValid,
    /// All that is in the log at a moment before anything that comes later
    Ordered,
}

impl Default for CacheArguments {
    /// No cache, and the defaults of the command line for each setting.
    fn default() -> CacheArguments {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            caches: CacheArguments,
        }
        <Line as clap::Parser>::parse_from(["dcd"]).caches
    }
}

impl SequencesArgument {
    /// As on the command line.
    pub fn name(self) -> String {
        name(self)
    }

    /// With so many passes, if they are to be found.
    pub fn mode(self, passes: u32) -> SequenceMode {
        match self {
            SequencesArgument::RecordThenReplay => SequenceMode::RecordThenReplay,
            SequencesArgument::Detect => SequenceMode::Detect { passes },
        }
    }
}

/// Where the head of the disk is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum HeadArgument {
    /// Where the model of the disk says
    Model,
    /// Where the last request ended: what dcd knows of a real disk, so what it does in front of one
    LastAddress,
}

impl NvramPolicyArgument {
    /// The engine's.
    fn kind(self, age_max: Option<Duration>) -> NvramPolicyKind {
        match self {
            NvramPolicyArgument::Auto => NvramPolicyKind::Auto,
            NvramPolicyArgument::Lru => NvramPolicyKind::Lru,
            NvramPolicyArgument::Fifo => NvramPolicyKind::Fifo,
            NvramPolicyArgument::Stf => NvramPolicyKind::Stf,
            NvramPolicyArgument::Wstf => {
                let age_max = age_max.map_or(AGE_MAX_DEFAULT, engine_time);
                NvramPolicyKind::WeightedStf { age_max }
            }
            NvramPolicyArgument::Lst => NvramPolicyKind::Lst,
            NvramPolicyArgument::Stack => NvramPolicyKind::Stack,
            NvramPolicyArgument::AgeSize => NvramPolicyKind::AgeSize,
            NvramPolicyArgument::Gds => NvramPolicyKind::Gds,
        }
    }

    /// As on the command line.
    pub fn name(self) -> String {
        name(self)
    }
}

impl AckArgument {
    /// The engine's.
    pub fn mode(self) -> AckMode {
        match self {
            AckArgument::Memory => AckMode::Memory,
            AckArgument::Log => AckMode::Log,
            AckArgument::Durable => AckMode::Durable,
        }
    }
}

impl DestageArgument {
    /// That of dcd: a bucket takes no other than one.
    pub fn default_for(disk: &Profile) -> DestageArgument {
        match disk.is_object_store() {
            true => DestageArgument::Ordered,
            false => DestageArgument::Fifo,
        }
    }

    /// The engine's.
    pub fn kind(self) -> DestagePolicyKind {
        match self {
            DestageArgument::Fifo => DestagePolicyKind::FirstWriteFirst,
            DestageArgument::Lifo => DestagePolicyKind::LastWriteFirst,
            DestageArgument::LeastValid => DestagePolicyKind::LeastValidFirst,
            DestageArgument::Ordered => DestagePolicyKind::Ordered,
        }
    }

    /// As on the command line.
    pub fn name(self) -> String {
        name(self)
    }
}

fn name(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
}

impl CacheArguments {
    /// As they are with sequences, which are shown alone: hot blocks are only copied if somebody
    /// says so.
    pub fn with_sequences(mut self) -> Result<CacheArguments, StudyError> {
        if self.read_area.is_none() {
            return Err(StudyError::FlagNeeds { flag: "--sequences", needs: "--read-area SIZE" });
        }
        self.hot_blocks.get_or_insert(OnOff::Off);
        Ok(self)
    }

    /// What is written to the disk first. Who sets a threshold has the policy of the thresholds.
    pub fn policy(&self) -> NvramPolicyArgument {
        let default = match self.fixed() {
            Some(_) => NvramPolicyArgument::Lru,
            None => NvramPolicyArgument::Auto,
        };
        self.policy.unwrap_or(default)
    }

    /// A flag that fixes what `auto` has follow the load, if one is set.
    fn fixed(&self) -> Option<&'static str> {
        let flags = [
            ("--high", self.high.is_some()),
            ("--low", self.low.is_some()),
            ("--idle", self.idle.is_some()),
            ("--groups-at-once", self.groups_at_once.is_some()),
        ];
        flags.into_iter().find(|(_, is_set)| *is_set).map(|(flag, _)| flag)
    }

    /// `--high`, or its default.
    pub fn high(&self) -> u8 {
        self.high.unwrap_or(NvramConfig::default().high_percent)
    }

    /// `--low`, or its default.
    pub fn low(&self) -> u8 {
        self.low.unwrap_or(NvramConfig::default().low_percent).min(self.high())
    }

    /// `--idle`, or its default.
    pub fn idle(&self) -> Duration {
        self.idle.unwrap_or_default()
    }

    /// `--groups-at-once`, or its default.
    pub fn groups_at_once(&self) -> u32 {
        self.groups_at_once.unwrap_or(NvramConfig::default().groups_at_once)
    }

    /// `--destage`, or its default in front of that disk.
    pub fn destage(&self, disk: &Profile) -> DestageArgument {
        let default = match self.volume.volume {
            Some(_) => DestageArgument::Fifo,
            None => DestageArgument::default_for(disk),
        };
        self.destage.unwrap_or(default)
    }

    /// What they describe, in front of that disk.
    pub fn setup(&self, disk: Profile, seed: u64) -> Result<Setup, StudyError> {
        let policy = self.policy();
        let is_stack = policy == NvramPolicyArgument::Stack;
        let is_wstf = policy == NvramPolicyArgument::Wstf;
        let is_stf = policy == NvramPolicyArgument::Stf;
        if let (NvramPolicyArgument::Auto, Some(flag)) = (policy, self.fixed()) {
            return Err(StudyError::FlagNeeds { flag, needs: "another --policy than auto" });
        }
        let misplaced = [
            ("--hot-zone", "--policy stack", self.hot_zone.is_some() && !is_stack),
            ("--age-max", "--policy wstf", self.age_max.is_some() && !is_wstf),
            ("--head", "--policy stf or wstf", self.head.is_some() && !is_stf && !is_wstf),
        ];
        if let Some((flag, needs, _)) = misplaced.into_iter().find(|(.., is_wrong)| *is_wrong) {
            return Err(StudyError::FlagNeeds { flag, needs });
        }
        if let Some(low) = self.low.filter(|low| *low > self.high()) {
            return Err(StudyError::LowAboveHigh { high: self.high(), low });
        }
        let nvram = self.nvram.map(|bytes| NvramSetup {
            config: NvramConfig {
                capacity_blocks: bytes / BLOCK_SIZE,
                policy: self.policy().kind(self.age_max),
                high_percent: self.high(),
                low_percent: self.low(),
                bypass_blocks: self.nvram_bypass / BLOCK_SIZE,
                idle: engine_time(self.idle()),
                groups_at_once: self.groups_at_once(),
                hot_zone: self.hot_zone.unwrap_or(HotZoneSize::Found),
                wear_floor_percent: self.wear_floor,
                ..NvramConfig::default()
            },
            groups: self.group,
            head: match self.head {
                None | Some(HeadArgument::Model) => Head::Model,
                Some(HeadArgument::LastAddress) => Head::LastAddress,
            },
        });
        let log = match self.cache_disk {
            None => None,
            Some(cache_bytes) => Some(LogSetup {
                cache_disk: match &self.cache_disk_profile {
                    Some(name) => Profile::load(name)?,
                    None => disk.clone(),
                },
                cache_bytes,
                read_area_bytes: self.read_area.unwrap_or(0),
                segment_bytes: self.segment,
                config: EngineConfig {
                    ack: self.ack.mode(),
                    bypass_threshold_bytes: self.log_bypass,
                    destage_policy: self.destage(&disk).kind(),
                    ship_within: engine_time(self.ship_within),
                    keeps_windows: true,
                    segment_buffers: self.segment_buffers,
                    one_disk: self.one_disk,
                    no_log: self.volume.no_log,
                    read_ahead_bytes: self.read_ahead,
                    hot_blocks: self.hot_blocks != Some(OnOff::Off),
                    detector: Some(DetectorSettings {
                        confirmations: self.confirmations,
                        history_lines: self.history,
                        gap: engine_time(self.sequence_gap),
                        run_lines_max: self.run_lines,
                        ..DetectorSettings::default()
                    }),
                    ..EngineConfig::default()
                },
            }),
        };
        let volume = self.volume.setup(&disk, self.cache_disk.unwrap_or(0))?;
        Ok(Setup { disk, seed, nvram, log, volume })
    }
}

fn engine_time(duration: Duration) -> dcd_engine::Duration {
    dcd_engine::Duration(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

/// `--stretch`.
pub fn parse_stretch(text: &str) -> Result<f64, &'static str> {
    match text.parse() {
        Ok(stretch) if stretch > 0.0 && stretch <= 1e9 => Ok(stretch),
        _ => Err("expected a number above 0, at most 1e9"),
    }
}

fn parse_nvram_size(text: &str) -> Result<u64, String> {
    match parse_size(text).map_err(|error| error.to_string())? {
        bytes @ BLOCK_SIZE..=NVRAM_BYTES_MAX => Ok(bytes),
        _ => Err("expected 512 bytes to 1T".into()),
    }
}

/// `--groups-at-once`.
pub fn parse_groups_at_once(text: &str) -> Result<u32, &'static str> {
    match text.parse() {
        Ok(count) if count > 0 => Ok(count),
        _ if text == "all" => Ok(u32::MAX),
        _ => Err("expected `all`, or a number above 0"),
    }
}

fn parse_group(text: &str) -> Result<Groups, String> {
    if text == "track" {
        return Ok(Groups::Tracks);
    }
    let bytes = parse_size(text).map_err(|error| error.to_string())?;
    match bytes / BLOCK_SIZE {
        blocks @ 1..=GROUP_BLOCKS_MAX if bytes % BLOCK_SIZE == 0 => Ok(Groups::Regions(blocks)),
        _ => Err("expected `track`, or a multiple of 512 bytes up to 2M".into()),
    }
}

/// `--hot-zone`.
pub fn parse_hot_zone(text: &str) -> Result<HotZoneSize, String> {
    match text {
        "auto" => Ok(HotZoneSize::Found),
        _ => {
            let percent = parse_percent(text).map_err(|error| format!("{error}, nor `auto`"))?;
            Ok(HotZoneSize::Percent(percent))
        }
    }
}
