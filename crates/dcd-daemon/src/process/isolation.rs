//! What the daemon takes of a machine, kept apart from what others take: a processor of its own, a
//! bound of memory that is checked before anything is opened for writing, memory that is not
//! swapped out; and what the process may do at all.

use std::io;

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::thread::{CapabilitySet, CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

use crate::process::confine::Reach;
use crate::process::privileges;

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
}
