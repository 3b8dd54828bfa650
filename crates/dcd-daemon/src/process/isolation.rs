//! What the daemon takes of a machine, kept apart from what others take: a processor of its own, a
//! bound of memory that is checked before anything is opened for writing, memory that is not
//! swapped out; and what the process may do at all.

use std::io;

use dcd_engine::buffer_pool::BufferPool;
use dcd_engine::units::LINE_SIZE;
use dcd_engine::{Engine, EngineConfig, Geometry};
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::thread::{CapabilitySet, CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

use crate::frontend::nbd::BYTES_IN_FLIGHT_MAX;
use crate::frontend::ublk::{IO_BYTES_MAX, QUEUE_DEPTH};
use crate::frontend::vhost_user::BYTES_UNDER_WAY_MAX;
use crate::process::confine::Reach;
use crate::process::privileges;
use crate::units_text::format_size;

/// Why a processor cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ProcessorError {
    /// It is not there, or not for this process.
    #[error("processor {wanted} is not among those this process may run on: {allowed}")]
    NotAllowed {
        /// The one asked for.
        wanted: usize,
        /// Those that there are, in words.
        allowed: String,
    },
    /// The system refused.
    #[error("cannot run on processor {wanted} alone: {source}")]
    System {
        /// The one asked for.
        wanted: usize,
        /// Its words.
        source: io::Error,
    },
}

/// Whether a processor can be had; to be asked before anything is done.
pub fn check_processor(wanted: usize) -> Result<(), ProcessorError> {
    let system = |errno: rustix::io::Errno| ProcessorError::System { wanted, source: errno.into() };
    let allowed = sched_getaffinity(None).map_err(system)?;
    if wanted < CpuSet::MAX_CPU && allowed.is_set(wanted) {
        return Ok(());
    }
    let numbers = (0..CpuSet::MAX_CPU).filter(|number| allowed.is_set(*number));
    let allowed = numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(", ");
    Err(ProcessorError::NotAllowed { wanted, allowed })
}

/// Keeps the calling thread, and threads that it starts later, on one processor.
pub fn run_on_processor(wanted: usize) -> Result<(), ProcessorError> {
    check_processor(wanted)?;
    let mut only = CpuSet::new();
    only.set(wanted);
    let system = |errno: rustix::io::Errno| ProcessorError::System { wanted, source: errno.into() };
    sched_setaffinity(None, &only).map_err(system)
}

/// Memory cannot be kept from being swapped out.
#[derive(Debug, thiserror::Error)]
#[error("cannot lock the memory of the process: {source}")]
pub struct LockMemoryError {
    source: io::Error,
}

impl LockMemoryError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        "raise the limit (`ulimit -l`, LimitMEMLOCK=infinity in a unit), or leave out --lock-memory"
            .into()
    }
}

/// What the process is kept from, whoever has done it: it asks the kernel.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct IsolationReport {
    /// Number of the user that it runs as.
    pub user: u32,
    /// Its capabilities, a bit for each, in hexadecimal digits.
    pub capabilities: String,
    /// It can get no more rights than it has.
    pub no_new_privileges: bool,
    /// System calls are filtered.
    pub system_calls_filtered: bool,
    /// It has mounts of its own; `None`: that cannot be seen.
    pub own_mounts: Option<bool>,
    /// When it needs memory, it does not wait for writes, which may be to its own device
    /// (`PR_SET_IO_FLUSHER`).
    pub io_flusher: bool,
    /// None of its memory is swapped out.
    pub memory_locked: bool,
    /// It has given up all files that it does not need (Landlock).
    pub files_confined: bool,
}

/// Keeps memory in place if that is wanted, and tells how the process stands. Threads that are
/// started later are the same.
pub fn isolate(lock_memory: bool) -> Result<IsolationReport, LockMemoryError> {
    // The right for it may be missing (CAP_SYS_RESOURCE); then there is only the risk.
    let io_flusher = rustix::process::configure_io_flusher_behavior(true).is_ok();
    if lock_memory {
        // Pages are locked as they are touched: stacks and buffers at their largest would be
        // hundreds of megabytes.
        let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
        mlockall(flags).map_err(|errno| LockMemoryError { source: errno.into() })?;
    }
    let mounts = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    let mut report = IsolationReport {
        user: rustix::process::geteuid().as_raw(),
        // Whoever has given up rights cannot see that any more.
        own_mounts: mounts("1").zip(mounts("self")).map(|(first, ours)| first != ours),
        io_flusher,
        memory_locked: lock_memory,
        ..IsolationReport::default()
    };
    report.look();
    Ok(report)
}

impl IsolationReport {
    /// Gives up files, capabilities and system calls that serving does not need, for the calling
    /// thread and those that it starts later.
    pub(crate) fn give_up(&mut self, reach: Reach, serves_ublk: bool) {
        self.files_confined = reach.confine();
        privileges::give_up(serves_ublk);
        self.look();
    }

    fn look(&mut self) {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        let field = |name: &str| {
            let named = |line: &str| line.strip_prefix(name)?.strip_prefix(':').map(str::to_owned);
            status.lines().find_map(named).unwrap_or_default().trim().to_owned()
        };
        self.capabilities = field("CapEff");
        self.no_new_privileges = field("NoNewPrivs") == "1";
        self.system_calls_filtered = field("Seccomp") == "2";
    }

    /// Its capabilities by name, in lower case: `sys_admin`. `None`: it has all that this program
    /// knows.
    pub fn capability_names(&self) -> Option<Vec<String>> {
        let bits = u64::from_str_radix(&self.capabilities, 16).unwrap_or(0);
        let held = CapabilitySet::from_bits_retain(bits);
        let names = held.iter_names().map(|(name, _)| name.to_lowercase());
        let known = CapabilitySet::all().iter_names().fold(0, |known, (_, one)| known | one.bits());
        (bits & known != known).then(|| names.collect())
    }
}

/// What a cache may come to need, at worst, part by part; docs/architecture.md has the same as a
/// table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryNeed {
    parts: Vec<(&'static str, u64)>,
}

/// A client of NBD may have so much under way.
const CLIENT_BYTES: u64 = BYTES_IN_FLIGHT_MAX as u64;
/// The kernel sends a FUSE file system so much at once: 512 requests of 1 MiB.
const FUSE_BYTES: u64 = 512 << 20;
/// The kernel has so many requests under way on a ublk device, each with a buffer.
const UBLK_BYTES: u64 = QUEUE_DEPTH as u64 * IO_BYTES_MAX as u64;
/// Its code, stacks of its threads, rings and histograms.
const PROGRAM_BYTES: u64 = 24 << 20;

/// A bound of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryLimit {
    /// Bytes.
    pub bytes: u64,
    /// Who is to be served within it.
    pub clients: Clients,
    /// Most NBD clients, even if it is enough for more.
    pub connections_max: usize,
}

/// Frontends that hold requests in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clients {
    /// NBD sockets are listened on.
    pub nbd: bool,
    /// There is a FUSE mount.
    pub fuse: bool,
    /// There is a ublk device.
    pub ublk: bool,
    /// There is a vhost-user socket.
    pub vhost_user: bool,
}

impl MemoryNeed {
    /// Of a cache with this geometry and these settings. NBD clients come on top: see
    /// [`MemoryNeed::clients_within`].
    pub fn of(geometry: &Geometry, config: &EngineConfig, clients: Clients) -> MemoryNeed {
        let slots = u64::from(geometry.slots());
        let copy_slots = u64::from(geometry.copy_slots());
        let has_copies = copy_slots > 0;
        let only = |is: bool, bytes: u64| if is { bytes } else { 0 };
        let parts = vec![
            ("program", PROGRAM_BYTES),
            // 10 bytes an entry at 90 % load, a checksum for each slot, for scattered lines at
            // worst 16, and an eighth more while they grow, and 2 to note which are free; the
            // segments.
            ("index", slots * (12 + 4 + 18 + 2) + u64::from(geometry.segments) * 64),
            // A line and a link for each slot, and the heads of the chains.
            ("destaged lines", only(config.hot_blocks, slots * 12 + slots.next_power_of_two() * 4)),
            ("copies", copy_slots * (24 + 29)),
            ("detector", only(has_copies && config.detector.is_some(), 9 << 20)),
            ("read-ahead", only(has_copies, config.read_ahead_bytes)),
            ("segment buffers", Engine::segment_memory_size(geometry, config) as u64),
            ("buffers of reads", BufferPool::BYTES_MAX as u64),
            // The picture of each live slot and its bytes on the disk; a start has as much of the
            // one that it reads, and then what the log holds behind it.
            ("checkpoint", slots * (24 + 16 + 4) + copy_slots * LINE_SIZE / 248),
            ("destage batch", (8 << 20) + geometry.segment_size_bytes),
            ("FUSE", only(clients.fuse, FUSE_BYTES)),
            ("ublk", only(clients.ublk, UBLK_BYTES)),
            ("vhost-user", only(clients.vhost_user, BYTES_UNDER_WAY_MAX)),
        ];
        MemoryNeed { parts }
    }

    /// What a volume needs besides.
    pub fn add(&mut self, what: &'static str, bytes: u64) {
        self.parts.push((what, bytes));
    }

    /// The sum, in bytes.
    pub fn total(&self) -> u64 {
        self.parts.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    /// `index 4 MiB, ...`, without what is nothing.
    pub fn words(&self) -> String {
        let parts = self.parts.iter().filter(|(_, bytes)| *bytes > 0);
        let words = parts.map(|(what, bytes)| format!("{what} {}", format_size(*bytes)));
        words.collect::<Vec<_>>().join(", ")
    }

    /// How many NBD clients may be served at a time within `limit`; `None` if not even one, where
    /// one is wanted, or what else is needed is more than that.
    pub fn clients_within(&self, limit: &MemoryLimit) -> Option<usize> {
        let left = limit.bytes.checked_sub(self.total())?;
        match (left / CLIENT_BYTES) as usize {
            0 if limit.clients.nbd => None,
            count => Some(count.min(limit.connections_max)),
        }
    }

    /// What is needed at least, with one NBD client if there are any.
    pub fn least(&self, clients: Clients) -> u64 {
        self.total().saturating_add(if clients.nbd { CLIENT_BYTES } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_that_is_not_there_is_refused() {
        let error = check_processor(100_000).unwrap_err().to_string();
        assert!(error.contains("processor 100000 is not among"), "{error}");
        let thread = std::thread::spawn(|| {
            let first = (0..CpuSet::MAX_CPU).find(|it| check_processor(*it).is_ok()).unwrap();
            run_on_processor(first).unwrap();
            sched_getaffinity(None).unwrap().count()
        });
        assert_eq!(thread.join().unwrap(), 1);
    }

    #[test]
    fn memory_is_added_up_and_bounds_clients() {
        let geometry = Geometry::fit(1 << 30, 1 << 20).unwrap();
        let config = EngineConfig::default();
        let clients = Clients { nbd: true, fuse: false, ublk: false, vhost_user: false };
        let mut need = MemoryNeed::of(&geometry, &config, clients);
        let total = need.total();
        // docs/architecture.md: 24 MiB for each GiB at worst, 16 MiB of segment buffers, 9 MiB of a
        // batch.
        assert!((60 << 20..100 << 20).contains(&total), "{}", need.words());
        let within = |bytes, clients| {
            need.clients_within(&MemoryLimit { bytes, clients, connections_max: 100 })
        };
        assert_eq!(within(total, clients), None);
        assert_eq!(within(need.least(clients), clients), Some(1));
        assert_eq!(within(total, Clients { nbd: false, ..clients }), Some(0));
        assert_eq!(within(u64::MAX, clients), Some(100));
        // The picture of a checkpoint, and its bytes on the disk.
        let live = size_of::<dcd_engine::format::checkpoint::LiveSlot>() as u64 + 16;
        let counted = need.parts.iter().find(|(what, _)| *what == "checkpoint").unwrap().1;
        assert!(counted >= u64::from(geometry.slots()) * live, "{counted}");
        need.add("volume", 1 << 20);
        assert_eq!(need.total(), total + (1 << 20));
        assert!(need.words().contains("segment buffers 16.0 MiB"), "{}", need.words());
        assert!(!need.words().contains("FUSE"));
    }
}
