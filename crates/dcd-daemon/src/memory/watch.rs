//! The segment memory of a running loop: that its name leads to it, looked at twice a second, and
//! what happens if not. Who cleans up there, systemd-logind's `RemoveIPC=` or a person may remove
//! it, and the next start would not find what was acknowledged.
//!
//! ```text
//! 1. The name is gone, or leads elsewhere.
//!      Death up to here loses what was acknowledged and not flushed.
//! 2. A copy takes the name (`SegmentFile::put_back`), and is used from then on.
//!                                            Death from here on loses nothing.
//! 3. If that cannot be (no room, no right, another dcd with a copy of this cache): a flush makes
//!    durable what was acknowledged, and each change is acknowledged when it is durable, until 2
//!    succeeds.
//!                                            Death behind the flush loses nothing.
//! ```
//! So the window is [`INTERVAL`] and, in case 3, one flush.

use std::os::fd::AsFd;
use std::path::Path;

use dcd_engine::{Duration, MemoryUse, Time, Uuid};
use serde::{Deserialize, Serialize};

use crate::memory::segment_memory::{SegmentFile, SegmentMemoryError};
use crate::process::service_manager::Notifier;

/// How often it is looked at.
pub const INTERVAL: Duration = Duration::from_millis(500);

/// How the memory is, for `dcd status`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryReport {
    /// Its name.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// Nothing leads to it any more, and it cannot be put back: changes are acknowledged when they
    /// are durable.
    pub is_missing: bool,
    /// How often it was put back.
    pub times_put_back: u64,
}

/// What was found.
pub(crate) enum Seen {
    /// It is where it should be.
    InPlace,
    /// It was not, and is again.
    PutBack,
    /// It is not.
    Missing,
}

/// The memory, and who looks after it.
pub(crate) struct MemoryWatch {
    file: SegmentFile,
    uuid: Uuid,
    /// While it is served.
    guard: Option<Guard>,
    report: MemoryReport,
}

struct Guard {
    notifier: Notifier,
    next: Time,
}

impl MemoryWatch {
    pub(crate) fn new(file: SegmentFile, uuid: Uuid) -> MemoryWatch {
        let report = MemoryReport {
            path: file.path().display().to_string(),
            bytes: file.mapping().len() as u64,
            ..MemoryReport::default()
        };
        MemoryWatch { file, uuid, guard: None, report }
    }

    /// A session has begun with it.
    pub(crate) fn keep(&mut self) {
        self.file.keep();
    }

    /// From now on it may hold what is acknowledged and nowhere else: it is looked at, and a
    /// service manager keeps it.
    pub(crate) fn guard(&mut self, now: Time) {
        let guard = Guard { notifier: Notifier::from_environment(), next: now };
        self.guard = Some(guard);
        self.store();
    }

    fn store(&self) {
        let Some(guard) = &self.guard else { return };
        match self.file.descriptor_to_keep() {
            Ok(descriptor) => {
                guard.notifier.store(&SegmentFile::stored_name(self.uuid), descriptor.as_fd());
            }
            Err(error) => eprintln!(
                "dcd: the service manager cannot keep the segment memory: {error}\n\
                 hint: /proc must be there; until then nothing but {} holds what is acknowledged from memory",
                self.file.path().display()
            ),
        }
    }

    /// The mapping, for I/O from it.
    pub(crate) fn mapping(&self) -> std::sync::Arc<crate::memory::segment_memory::Mapping> {
        self.file.mapping()
    }

    /// The directory that it is in.
    pub(crate) fn directory(&self) -> &Path {
        self.file.directory()
    }

    pub(crate) fn report(&self) -> &MemoryReport {
        &self.report
    }

    /// Whether nothing may be acknowledged from it.
    pub(crate) fn is_missing(&self) -> bool {
        self.report.is_missing
    }

    /// When it is to be looked at.
    pub(crate) fn due(&self) -> Option<Time> {
        self.guard.as_ref().map(|guard| guard.next)
    }

    /// Looks, if it is time to, and puts it back. No engine may run meanwhile.
    pub(crate) fn turn(&mut self, now: Time) -> Seen {
        let Some(guard) = self.guard.as_mut().filter(|guard| guard.next <= now) else {
            return Seen::InPlace;
        };
        guard.next = now.after(INTERVAL);
        if self.file.is_in_place() {
            if std::mem::take(&mut self.report.is_missing) {
                eprintln!("dcd: the segment memory {} is back", self.report.path);
                return Seen::PutBack;
            }
            return Seen::InPlace;
        }
        match self.file.put_back() {
            Ok(displaced) => {
                self.report.is_missing = false;
                self.report.times_put_back += 1;
                let of_whom = displaced.map_or_else(String::new, |path| {
                    format!("; what was there in its place is now {}", path.display())
                });
                eprintln!(
                    "dcd: the segment memory {} was gone and is put back{of_whom}. Who removed it? If systemd-logind: \
                     RemoveIPC=no, or a system user",
                    self.report.path
                );
                self.store();
                Seen::PutBack
            }
            Err(error) => {
                let is_new = !std::mem::replace(&mut self.report.is_missing, true);
                if is_new {
                    self.tell_missing(&error);
                }
                Seen::Missing
            }
        }
    }

    fn tell_missing(&self, error: &SegmentMemoryError) {
        eprintln!(
            "dcd: the segment memory {} is gone and cannot be put back: {error}. Until it is, changes are \
             acknowledged when they are durable, which is slower",
            self.report.path
        );
    }

    /// The engine is gone.
    pub(crate) fn end(self, last_use: MemoryUse) {
        let is_over = last_use == MemoryUse::Over;
        self.file.end(last_use);
        if let Some(guard) = self.guard.filter(|_| is_over) {
            guard.notifier.remove_stored(&SegmentFile::stored_name(self.uuid));
        }
    }
}
