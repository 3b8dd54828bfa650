//! What `dcd status --json` shows: the engine's picture, facts of the daemon, and figures made of
//! both. Names are whole words with their unit; times are microseconds or seconds as named.

use serde::{Deserialize, Serialize};

use dcd_engine::format::geometry::COPIES_PER_PAGE;
use dcd_engine::nvram::durable::{DurableConfig, NvramPresence, NvramStatus};
use dcd_engine::stats::{
    Counters, ModeReport, ModeState, RecoveryReport, ResizeReport, ResizeState, Status, Uncached,
    WindowReport, WindowState,
};
use dcd_engine::units::{BLOCK_SIZE, LINE_SIZE};
use dcd_engine::{AckMode, Engine, Mode, Time};

use dcd_protocol::{LegReport, WitnessReport};

use crate::device::loop_device::StaleLoop;
use crate::device::network::store_report::StoreReport;
use crate::event_loop::response_times::ResponseTimesReport;
use crate::event_loop::submitter::Snapshot;
use crate::frontend::vhost_user::Trouble;
use crate::memory::watch::MemoryReport;
use crate::pair::new_member::MemberNames;
use crate::pair::nvram::usual_config;
use crate::process::isolation::IsolationReport;
use crate::report::legs;
use crate::report::network::NetworkReport;
use crate::report::nvram::NvramReport;
use crate::report::trouble_words::{trouble_name, trouble_words};
use crate::report::volumes::VolumeReport;
use crate::users::UserFinder;
use crate::window_hook::HookNews;

/// What the daemon knows and the engine does not.
#[derive(Clone, Debug)]
pub struct DaemonFacts {
    /// Identity of the cache.
    pub uuid: dcd_engine::Uuid,
    /// The cache-disk as it was named.
    pub cache_disk: String,
    /// The data-disk as it was named.
    pub data_disk: String,
    /// Of a volume, its disks as they were named.
    pub members: MemberNames,
    /// Where the payload of the data-disk begins; 0 without a label.
    pub data_offset_bytes: u64,
    /// Whether a change of NBD clients over TCP is acknowledged when it is durable, whatever holds
    /// for others; `None` if there can be no such clients.
    pub tcp_durable: Option<bool>,
    /// Whether both disks share one arm.
    pub one_disk: bool,
    /// What holds for a memory in front of the log that comes.
    pub nvram: NvramTerms,
    /// When the daemon began to serve.
    pub started: std::time::Instant,
    /// What the process is kept from, and what is kept from it.
    pub isolation: IsolationReport,
    /// Where the disk can be used, as soon as all of it is there.
    pub frontends: std::sync::OnceLock<Vec<String>>,
    /// Loop devices that a daemon has left that died, and that somebody uses.
    pub dead_loops: std::sync::OnceLock<Vec<StaleLoop>>,
    /// Finds who uses it.
    pub users: UserFinder,
    /// What is wrong with the virtual machine that uses it, if it is served to one.
    pub vhost_user: std::sync::OnceLock<Trouble>,
}

/// What holds for a memory in front of the log that comes while requests are served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NvramTerms {
    /// Policy and thresholds: those of the start, if it was told any.
    pub config: DurableConfig,
    /// There is a bound on the memory of the process, which does not count it.
    pub is_memory_bounded: bool,
}

impl NvramTerms {
    /// Those of a start.
    pub fn new(at_start: Option<DurableConfig>, is_memory_bounded: bool) -> NvramTerms {
        NvramTerms { config: at_start.unwrap_or_else(usual_config), is_memory_bounded }
    }
}

/// All of it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct StatusReport {
    /// Version of dcd.
    pub version: String,
    /// Process of the daemon.
    pub pid: u32,
    /// Seconds since it began to serve.
    pub uptime_seconds: f64,
    /// Identity of the cache.
    pub uuid: String,
    /// The cache-disk as it was named.
    pub cache_disk: String,
    /// The data-disk as it was named.
    pub data_disk: String,
    /// Where on the data-disk the volume begins, if it has a label; else 0.
    #[serde(default)]
    pub data_offset_bytes: u64,
    /// Whether changes go to the log, and the switch under way.
    #[serde(default)]
    pub mode: ModeSummary,
    /// A change of the log's size that is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resize: Option<ResizeSummary>,
    /// With ordered shipping, where that stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordered: Option<OrderedReport>,
    /// If the data-disk is in an object store, how that stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreReport>,
    /// When writes are acknowledged: `memory`, `log` or `durable`.
    pub ack: String,
    /// Whether changes are refused.
    #[serde(default)]
    pub read_only: bool,
    /// The same for NBD clients over TCP, if there can be such clients.
    #[serde(default)]
    pub tcp_ack: Option<String>,
    /// Whether both disks share one arm.
    pub one_disk: bool,
    /// Where the disk can be used: devices, files, addresses.
    #[serde(default)]
    pub frontends: Vec<String>,
    /// Dead loop devices of a daemon before this one that somebody still uses, with what to do.
    #[serde(default)]
    pub dead_loops: Vec<String>,
    /// Disks that are files, and that their names do not lead to any more.
    #[serde(default)]
    pub names_lost: Vec<String>,
    /// Why a virtual machine gets nothing from it, as far as is known: until one does.
    #[serde(default)]
    pub vhost_user_problem: Option<String>,
    /// What the process is kept from, and what is kept from it.
    #[serde(default)]
    pub isolation: IsolationReport,
    /// NBD clients connected.
    pub nbd_connections: usize,
    /// Clients of the control socket that record requests.
    #[serde(default)]
    pub recorders: usize,
    /// Size of the volume.
    pub volume_bytes: u64,
    /// Bytes newer than on the data-disk, in whole lines of 4 KiB.
    pub dirty_bytes: u64,
    /// Share of the segments in use, 0 to 1.
    pub utilisation: f64,
    /// Segments by state.
    pub segments: SegmentsReport,
    /// Ranges that are zero in the log and not yet on the data-disk.
    pub zero_ranges: u64,
    /// Bytes of them.
    #[serde(default)]
    pub zero_bytes: u64,
    /// Lines of 4 KiB that are damaged and fail until overwritten.
    pub poisoned_lines: u64,
    /// Memory of the index.
    pub index_bytes: u64,
    /// The most that it may take (`index-max`); 0: as much as it wants.
    #[serde(default)]
    pub index_bytes_max: u64,
    /// The memory that outlives the process.
    #[serde(default)]
    pub memory: MemoryReport,
    /// Clean copies of what is read.
    #[serde(default)]
    pub copies: CopiesReport,
    /// The volume, if the cache has one.
    #[serde(default)]
    pub volume: Option<VolumeReport>,
    /// Its legs, if the cache-disk is on several disks.
    #[serde(default)]
    pub legs: Vec<LegReport>,
    /// Disks that are exports of NBD servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub network_disks: Vec<NetworkReport>,
    /// Their witness, if they have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leg_witness: Option<WitnessReport>,
    /// The memory in front of the log, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvram: Option<NvramReport>,
    /// The memory that was in front of the log and has failed, until another one comes: the next
    /// start has to do without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_nvram: Option<String>,
    /// The cache-disk has failed, until a restart. Writes fail, unless `uncached` says otherwise.
    pub cache_disk_failed: bool,
    /// Its last error.
    pub cache_disk_error: Option<String>,
    /// Nothing on the cache-disk is newer than the data-disk: should it fail now, dcd goes on.
    pub cache_disk_clean: bool,
    /// It failed while clean, or is left unused (`--no-log`): `writing-through` while what was in
    /// memory goes to the data-disk, `passing-through` from then on, `failed` if the data-disk has
    /// failed, too.
    pub uncached: Option<String>,
    /// Nothing is destaged: the data-disk takes nothing, or the cache-disk has errors.
    pub destage_held_back: bool,
    /// Why some, or all, of what is dirty does not get to the data-disk: `no-space`, `read-only`,
    /// `gone`, `no-answer`, `error`.
    #[serde(default)]
    pub destage_error: Option<String>,
    /// Lines whose last write to the data-disk failed.
    #[serde(default)]
    pub destage_blocked_lines: u64,
    /// A drain is under way.
    pub draining: bool,
    /// Quiet time that starts a destage at the present utilisation.
    pub idle_threshold_microseconds: f64,
    /// Figures made of the counters.
    pub figures: FiguresReport,
    /// Counts since the start.
    pub counters: CountersReport,
    /// Response times since the start, in microseconds.
    pub response_times: ResponseTimesReport,
    /// How the start went.
    pub recovery: RecoverySummary,
}

/// Clean copies.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CopiesReport {
    /// Room for them in the read area; 0: there is none.
    pub read_area_bytes: u64,
    /// Bytes of it that hold true copies.
    pub valid_bytes: u64,
    /// Bytes of it whose lines wait to be copied anew.
    pub stale_bytes: u64,
    /// Sequences that are kept.
    pub sequences: u64,
    /// Memory that holds what was read ahead of them.
    pub read_ahead_bytes: u64,
    /// Memory of what is known of copies.
    pub memory_bytes: u64,
}

/// Segments by state.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SegmentsReport {
    /// All.
    pub total: u32,
    /// Bytes in one.
    pub size_bytes: u64,
    /// May be filled.
    pub free: u32,
    /// Empty, waiting for a checkpoint.
    pub empty: u32,
    /// In a segment buffer.
    pub buffered: u32,
    /// On the cache-disk, with live slots.
    pub dirty: u32,
    /// One letter for each, in place order: `f`, `e`, `b`, `d`; of a large log for some neighbours.
    pub map: String,
}

/// Figures made of the counters; 0 where there is nothing to divide by.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct FiguresReport {
    /// Bytes written to the log for each byte of writes.
    pub write_amplification: f64,
    /// Share of read lines that came from the cache.
    pub read_hit_rate: f64,
    /// Share of logged lines that replaced one still in the log: destaging that was spared.
    pub overwrite_rate: f64,
    /// Writes to the data-disk for each line moved there; the smaller, the better merged.
    pub merge_ratio: f64,
}

/// Declares the report of a struct of `u64`s, so that none is forgotten: the compiler complains
/// when the engine's struct gets another field.
macro_rules! report_of {
    ($(#[$doc:meta])* $report:ident of $source:ident { $($field:ident),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
        #[serde(default)]
        #[allow(missing_docs, reason = "each is documented in the engine")]
        pub struct $report { $(pub $field: u64),* }

        impl From<&$source> for $report {
            fn from(source: &$source) -> $report {
                let $source { $($field),* } = source;
                $report { $($field: *$field),* }
            }
        }
    };
}

pub(crate) use report_of;

report_of! {
    /// [`Counters`] for programs.
    CountersReport of Counters {
        reads, read_bytes, read_hit_lines, read_miss_lines, writes, write_bytes,
        overwritten_lines, logged_lines, bypasses, bypass_bytes, zeroes, flushes, fuas, log_writes,
        log_write_bytes, cache_disk_flushes, cache_disk_fua_writes, records, checkpoints,
        checkpoint_bytes, index_pages_read, destage_batches, destaged_lines, destage_writes,
        destage_write_bytes,
        destaged_zero_ranges, destage_read_bytes, completed_lines, data_disk_flushes,
        stalled_writes, cache_disk_errors, data_disk_errors, checksum_errors, read_copy_lines,
        read_clean_lines, read_ahead_lines, read_ahead_used_lines, copy_lines_written,
        copies_damaged,
    }
}

/// How the start went.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RecoverySummary {
    /// Bytes read from the cache-disk.
    pub bytes_read: u64,
    /// Records replayed after the checkpoint.
    pub records: u64,
    /// Records found only in the memory that outlived the last process.
    pub records_from_memory: u64,
    /// Lines dirty afterwards.
    pub dirty_lines: u64,
    /// Lines found damaged.
    pub poisoned_lines: u64,
    /// Time it took.
    pub seconds: f64,
    /// Whether the cache had been closed in order.
    pub was_closed: bool,
    /// The data-disk was not as the cache, which was empty, had last seen it.
    pub data_disk_changed: bool,
    /// The cache-disk was shortened once, and damage was accepted: what it lost is not known.
    pub end_mark_lost: bool,
    /// Copy pages that could not be read: their copies are gone.
    pub copy_pages_lost: u64,
    /// Copies that records behind the checkpoint made stale.
    pub copies_changed: u64,
    /// Copies that were not believed: the data-disk may have been changed without the log.
    pub copies_doubted: u64,
}

impl From<&RecoveryReport> for RecoverySummary {
    fn from(report: &RecoveryReport) -> RecoverySummary {
        RecoverySummary {
            bytes_read: report.bytes_read,
            records: report.records,
            records_from_memory: report.records_from_memory,
            dirty_lines: report.dirty_lines,
            poisoned_lines: report.poisoned_lines,
            seconds: report.duration.0 as f64 / 1e9,
            was_closed: report.was_closed,
            data_disk_changed: report.data_disk_changed,
            end_mark_lost: report.end_mark_lost,
            copy_pages_lost: report.copy_pages_lost,
            copies_changed: report.copies_changed,
            copies_doubted: report.copies_doubted,
        }
    }
}

/// Name of an ack mode, as settings have it.
pub fn ack_name(ack: AckMode) -> &'static str {
    match ack {
        AckMode::Memory => "memory",
        AckMode::Log => "log",
        AckMode::Durable => "durable",
    }
}

/// Whether changes go to the log.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ModeSummary {
    /// What is promised now: `write-back`, `write-through`, `write-around` or `pass-through`.
    pub mode: String,
    /// Of a switch to another: `none`; `draining`, while changes go on as before; `holding`, while
    /// they wait; `given-up`, when the mode stays what it was; `failed`, when the data-disk has
    /// failed and changes fail.
    pub switch: String,
    /// Why it was given up, or has failed.
    #[serde(default)]
    pub error: Option<String>,
    /// Dirty lines that a switch waits for.
    #[serde(default)]
    pub lines_left: u64,
    /// Since when it has been under way, in seconds.
    #[serde(default)]
    pub seconds: Option<f64>,
}

impl ModeSummary {
    fn of(status: &Status) -> ModeSummary {
        let ModeReport { mode, state, since } = status.mode;
        let switch = match state {
            ModeState::Reached => "none",
            ModeState::Draining => "draining",
            ModeState::Holding => "holding",
            ModeState::GivenUp(_) => "given-up",
            ModeState::Failed => "failed",
        };
        let error = match state {
            ModeState::GivenUp(error) => Some(error.to_string()),
            ModeState::Failed => {
                Some("the data-disk has failed: changes fail until a restart".to_owned())
            }
            _ => None,
        };
        let is_under_way = matches!(state, ModeState::Draining | ModeState::Holding);
        let mode = match mode {
            Mode::WriteBack => "write-back",
            Mode::WriteThrough => "write-through",
            Mode::WriteAround => "write-around",
            Mode::PassThrough => "pass-through",
        };
        ModeSummary {
            mode: mode.to_owned(),
            switch: switch.to_owned(),
            error,
            lines_left: if is_under_way { status.dirty_lines } else { 0 },
            seconds: since.map(|since| status.now.since(since).0 as f64 / 1e9),
        }
    }
}

/// How far a change of the log's size is.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ResizeSummary {
    /// Segments that it had.
    pub segments_before: u32,
    /// Segments that it is to have.
    pub segments_wanted: u32,
    /// Bytes that the read area had room for.
    #[serde(default)]
    pub read_area_bytes_before: u64,
    /// Bytes that it is to have room for.
    #[serde(default)]
    pub read_area_bytes_wanted: u64,
    /// `emptying`, while what is in its last segments goes to the data-disk; `writing`, while a
    /// checkpoint is made that tells of it.
    pub state: String,
    /// Of those that are given up, so many are still in use.
    pub segments_left: u32,
    /// Lines in them.
    pub lines_left: u64,
    /// Since when it has been under way, in seconds.
    pub seconds: f64,
}

impl ResizeSummary {
    fn of(status: &Status) -> Option<ResizeSummary> {
        let ResizeReport {
            segments_before,
            segments_wanted,
            copy_pages_before,
            copy_pages_wanted,
            state,
            segments_left,
            lines_left,
            since,
        } = status.resize?;
        let bytes = |pages: u32| u64::from(pages) * u64::from(COPIES_PER_PAGE) * LINE_SIZE;
        let state = match state {
            ResizeState::Emptying => "emptying",
            ResizeState::Writing => "writing",
        };
        Some(ResizeSummary {
            segments_before,
            segments_wanted,
            read_area_bytes_before: bytes(copy_pages_before),
            read_area_bytes_wanted: bytes(copy_pages_wanted),
            state: state.to_owned(),
            segments_left,
            lines_left,
            seconds: status.now.since(since).0 as f64 / 1e9,
        })
    }
}

/// Where ordered shipping stands.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct OrderedReport {
    /// `gathering` until the next window is due, `shipping` while one is on its way to the
    /// data-disk, `keeping` while the hook runs, `failing` while it waits to be run again.
    pub state: String,
    /// The window on its way, or being kept.
    pub window: Option<u64>,
    /// Bytes of it that are not on the data-disk.
    pub bytes_left: u64,
    /// Lines that have changed since its beginning and stay in the log as they were.
    pub kept_lines: u64,
    /// The newest window that was kept.
    pub last_window: Option<u64>,
    /// How long ago that was.
    pub last_window_seconds: Option<f64>,
    /// How old the oldest change is that is in no window that was kept; 0: there is none.
    pub behind_seconds: f64,
    /// Windows that were kept since the start.
    pub kept: u64,
    /// Windows that were not, because something in them is lost.
    pub not_kept: u64,
    /// How often the hook has failed since it last ended well.
    pub failures: u64,
    /// What it said then.
    pub problem: Option<String>,
}

impl OrderedReport {
    fn of(window: &WindowReport, now: Time, hook: HookNews) -> OrderedReport {
        let seconds = |since: Time| now.since(since).0 as f64 / 1e9;
        let state = match window.state {
            WindowState::Gathering => "gathering",
            WindowState::Shipping => "shipping",
            WindowState::Keeping { retry_at: Some(_), .. } => "failing",
            WindowState::Keeping { .. } => "keeping",
        };
        OrderedReport {
            state: state.to_owned(),
            window: window.window,
            bytes_left: window.slots_left * LINE_SIZE,
            kept_lines: window.kept_lines,
            last_window: window.last_kept.map(|(number, _)| number),
            last_window_seconds: window.last_kept.map(|(_, at)| seconds(at)),
            behind_seconds: window.uncovered_since.map_or(0.0, seconds),
            kept: window.kept,
            not_kept: window.not_kept,
            failures: window.failures,
            problem: hook.problem,
        }
    }
}

fn dead_loops(facts: &DaemonFacts) -> Vec<String> {
    let dead = facts.dead_loops.get().into_iter().flatten();
    dead.filter(|it| it.is_there()).map(|it| it.words(None)).collect()
}

fn uncached_name(uncached: Uncached) -> &'static str {
    match uncached {
        Uncached::WritingThrough => "writing-through",
        Uncached::PassingThrough => "passing-through",
        Uncached::Failed => "failed",
    }
}

/// `part / whole`, 0 if there is no whole.
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl FiguresReport {
    fn of(counters: &Counters) -> FiguresReport {
        let read_hits =
            counters.read_hit_lines + counters.read_copy_lines + counters.read_clean_lines;
        let read_lines = read_hits + counters.read_miss_lines;
        FiguresReport {
            write_amplification: ratio(counters.log_write_bytes, counters.write_bytes),
            read_hit_rate: ratio(read_hits, read_lines),
            overwrite_rate: ratio(counters.overwritten_lines, counters.logged_lines),
            merge_ratio: ratio(counters.destage_writes, counters.destaged_lines),
        }
    }
}

impl StatusReport {
    /// The report of this moment; `None` while there is no cache.
    pub fn of(facts: &DaemonFacts, snapshot: &Snapshot<'_>) -> Option<StatusReport> {
        Some(StatusReport::of_status(facts, snapshot, &snapshot.status()?))
    }

    /// The same without the map of segments: [`Engine::brief_status`].
    pub fn brief(facts: &DaemonFacts, snapshot: &Snapshot<'_>) -> Option<StatusReport> {
        let status = snapshot.core.engine()?.brief_status();
        Some(StatusReport::of_status(facts, snapshot, &status))
    }

    fn of_status(facts: &DaemonFacts, snapshot: &Snapshot<'_>, status: &Status) -> StatusReport {
        let ack = snapshot.core.engine().map_or(AckMode::Durable, Engine::ack_mode);
        let response_times = snapshot.response_times.report();
        let mut report = StatusReport::of_parts(facts, status, ack, response_times);
        if let Some(engine) = snapshot.core.engine() {
            report.legs = legs::reports(engine.legs(), snapshot.cache_side);
            let witness = engine.leg_witness();
            report.leg_witness = witness.map(|it| legs::witness_report(it, snapshot.cache_side));
            // They may be others than those that were named at the start.
            report.cache_disk = legs::names(&report.legs).unwrap_or(report.cache_disk);
        }
        let volume = snapshot.core.engine().and_then(Engine::volume);
        report.volume = volume.map(|volume| VolumeReport::of(volume, &facts.members));
        // One that has gone is none, even while what was under way of it ends.
        let is_there = |it: &NvramStatus| it.presence != NvramPresence::Out;
        let nvram = snapshot.core.nvram_status().filter(is_there).zip(snapshot.nvram_disk);
        report.failed_nvram = snapshot.failed_nvram.map(str::to_owned);
        report.nvram = nvram.map(|(status, disk)| NvramReport::of(&status, disk));
        let networks = snapshot.network_disks.iter().cloned();
        report.network_disks = networks
            .map(|(device, disk, standing)| NetworkReport::of(device, disk, standing, snapshot.now))
            .collect();
        report.nbd_connections = snapshot.nbd_connections;
        report.recorders = snapshot.recorders;
        let hook = snapshot.window_hook.clone().unwrap_or_default();
        report.store = snapshot.store.clone();
        report.ordered = status.window.map(|it| OrderedReport::of(&it, status.now, hook));
        report.memory = snapshot.memory.cloned().unwrap_or_default();
        report.names_lost = snapshot.names_lost.to_vec();
        report
    }

    /// Why the data-disk does not take what is dirty, in a few words.
    pub fn destage_words(&self) -> &str {
        let problem = self.store.as_ref().and_then(|store| store.problem.as_deref());
        problem.unwrap_or_else(|| trouble_words(self.destage_error.as_deref().unwrap_or_default()))
    }

    fn of_parts(
        facts: &DaemonFacts,
        status: &Status,
        ack: AckMode,
        response_times: ResponseTimesReport,
    ) -> StatusReport {
        let segments = &status.segments;
        let trouble = status.destage_trouble;
        StatusReport {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_seconds: facts.started.elapsed().as_secs_f64(),
            uuid: facts.uuid.to_string(),
            cache_disk: facts.cache_disk.clone(),
            data_disk: facts.data_disk.clone(),
            data_offset_bytes: facts.data_offset_bytes,
            mode: ModeSummary::of(status),
            resize: ResizeSummary::of(status),
            ordered: None,
            store: None,
            ack: ack_name(ack).to_owned(),
            read_only: status.read_only,
            tcp_ack: facts.tcp_durable.map(|is_durable| match is_durable {
                true => ack_name(AckMode::Durable).to_owned(),
                false => ack_name(ack).to_owned(),
            }),
            one_disk: facts.one_disk,
            frontends: facts.frontends.get().cloned().unwrap_or_default(),
            dead_loops: dead_loops(facts),
            names_lost: Vec::new(),
            vhost_user_problem: facts.vhost_user.get().and_then(Trouble::words),
            isolation: facts.isolation.clone(),
            nbd_connections: 0,
            recorders: 0,
            volume_bytes: status.volume_blocks * BLOCK_SIZE,
            dirty_bytes: status.dirty_lines * LINE_SIZE,
            utilisation: ratio(
                (segments.buffered + segments.dirty).into(),
                status.segments_total.into(),
            ),
            segments: SegmentsReport {
                total: status.segments_total,
                size_bytes: status.segment_size_bytes,
                free: segments.free,
                empty: segments.empty,
                buffered: segments.buffered,
                dirty: segments.dirty,
                map: status.segment_map.clone(),
            },
            zero_ranges: status.zero_ranges,
            zero_bytes: status.zero_lines * LINE_SIZE,
            poisoned_lines: status.poisoned_lines,
            index_bytes: status.index_bytes,
            index_bytes_max: status.index_bytes_max,
            memory: MemoryReport::default(),
            copies: CopiesReport {
                read_area_bytes: status.copies.slots * LINE_SIZE,
                valid_bytes: status.copies.valid * LINE_SIZE,
                stale_bytes: status.copies.stale * LINE_SIZE,
                sequences: status.copies.sequences,
                read_ahead_bytes: status.read_ahead_bytes_held,
                memory_bytes: status.copies_bytes,
            },
            volume: None,
            legs: Vec::new(),
            network_disks: Vec::new(),
            leg_witness: None,
            nvram: None,
            failed_nvram: None,
            cache_disk_failed: status.cache_disk_failed,
            cache_disk_error: status.cache_disk_error.map(|error| error.to_string()),
            cache_disk_clean: status.cache_disk_clean,
            uncached: status.uncached.map(|uncached| uncached_name(uncached).to_owned()),
            destage_held_back: trouble.is_some_and(|trouble| trouble.is_whole)
                || status.destage_retry_at.is_some_and(|at| at > status.now),
            destage_error: trouble.map(|trouble| trouble_name(trouble.error).to_owned()),
            destage_blocked_lines: trouble.map_or(0, |trouble| trouble.blocked_lines),
            draining: status.draining,
            idle_threshold_microseconds: status.idle_threshold.0 as f64 / 1e3,
            figures: FiguresReport::of(&status.counters),
            counters: CountersReport::from(&status.counters),
            response_times,
            recovery: RecoverySummary::from(&status.recovery),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_do_not_divide_by_nothing() {
        let figures = FiguresReport::of(&Counters::default());
        assert_eq!((figures.write_amplification, figures.merge_ratio), (0.0, 0.0));
        let figures = FiguresReport::of(&Counters {
            write_bytes: 4096,
            log_write_bytes: 8192,
            read_hit_lines: 1,
            read_copy_lines: 1,
            read_clean_lines: 1,
            read_miss_lines: 1,
            logged_lines: 4,
            overwritten_lines: 1,
            destaged_lines: 10,
            destage_writes: 2,
            ..Counters::default()
        });
        assert_eq!(figures.write_amplification, 2.0);
        assert_eq!(figures.read_hit_rate, 0.75);
        assert_eq!(figures.overwrite_rate, 0.25);
        assert_eq!(figures.merge_ratio, 0.2);
    }
}
