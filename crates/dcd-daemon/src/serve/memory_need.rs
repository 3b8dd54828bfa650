//! How much memory a cache and its clients may come to need, so that a bound can be checked before
//! anything is opened for writing.

use dcd_engine::buffer_pool::BufferPool;
use dcd_engine::units::LINE_SIZE;
use dcd_engine::{Engine, EngineConfig, Geometry};

use crate::frontend::nbd::BYTES_IN_FLIGHT_MAX;
use crate::frontend::ublk::{IO_BYTES_MAX, QUEUE_DEPTH};
use crate::frontend::vhost_user::BYTES_UNDER_WAY_MAX;
use crate::process::isolation::{Clients, MemoryLimit};
use crate::units_text::format_size;

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
/// Most bytes of a destage batch.
const BATCH_BYTES: u64 = 8 << 20;
/// Its code, stacks of its threads, rings and histograms.
const PROGRAM_BYTES: u64 = 24 << 20;

impl MemoryNeed {
    /// Of a cache with this geometry and these settings. NBD clients come on top: see
    /// [`MemoryNeed::clients_within`].
    pub fn of(geometry: &Geometry, config: &EngineConfig, clients: Clients) -> MemoryNeed {
        let slots = u64::from(geometry.slots());
        let copy_slots = u64::from(geometry.copy_slots());
        let has_copies = copy_slots > 0;
        let only = |is: bool, bytes: u64| if is { bytes } else { 0 };
        // 10 bytes an entry of which two of three are in use, and what lies between buckets; a
        // checksum for each slot; for scattered lines at worst 16, and an eighth more while they
        // grow, and 2 to note which are free.
        let index = match config.index_bytes_max {
            0 => slots * (18 + 4 + 18 + 2),
            most => most,
        };
        let has_clean_lines = config.hot_blocks && config.index_bytes_max == 0;
        // Where windows are kept several segments may be read at a time, as many as a batch takes;
        // with an index within a budget never.
        let victims = match config.keeps_windows && config.index_bytes_max == 0 {
            true => geometry.segment_size_bytes.max(BATCH_BYTES),
            false => geometry.segment_size_bytes,
        };
        let parts = vec![
            ("program", PROGRAM_BYTES),
            // And the segments.
            ("index", index + u64::from(geometry.segments) * 64),
            // A line for each slot, and 9 bytes an entry as above.
            ("destaged lines", only(has_clean_lines, slots * (5 + 17))),
            ("copies", copy_slots * (24 + 29)),
            ("detector", only(has_copies && config.detector.is_some(), 9 << 20)),
            ("read-ahead", only(has_copies, config.read_ahead_bytes)),
            ("segment buffers", Engine::segment_memory_size(geometry, config) as u64),
            ("buffers of reads", BufferPool::BYTES_MAX as u64),
            // Pieces of the one that is read or written, and a bit for each slot; what the log
            // holds behind it, at worst records of one line each in an eighth of the segments.
            ("checkpoint", (16 << 20) + slots / 8 + slots * 16 + copy_slots * LINE_SIZE / 248),
            ("destage batch", BATCH_BYTES + victims),
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

    /// What is needed with so many NBD clients, if there are any.
    pub fn total_with(&self, clients: Clients, count: usize) -> u64 {
        let count = if clients.nbd { count as u64 } else { 0 };
        self.total().saturating_add(CLIENT_BYTES.saturating_mul(count))
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
    fn memory_is_added_up_and_bounds_clients() {
        let geometry = Geometry::fit(1 << 30, 1 << 20).unwrap();
        let config = EngineConfig::default();
        let clients = Clients { nbd: true, fuse: false, ublk: false, vhost_user: false };
        let mut need = MemoryNeed::of(&geometry, &config, clients);
        let total = need.total();
        // Segments of 1 MiB: seven more of them are read at a time where windows are kept.
        let of_windows = EngineConfig { keeps_windows: true, ..config.clone() };
        let of_windows = MemoryNeed::of(&geometry, &of_windows, clients);
        assert_eq!(of_windows.total(), total + (7 << 20));
        // docs/architecture.md: 20 MiB for each GiB at worst, 24 MiB of program, 16 MiB of segment
        // buffers and as much for checkpoints, 9 MiB of a batch.
        assert!((60 << 20..100 << 20).contains(&total), "{}", need.words());
        let within = |bytes, clients| {
            need.clients_within(&MemoryLimit { bytes, clients, connections_max: 100 })
        };
        assert_eq!(within(total, clients), None);
        assert_eq!(within(need.least(clients), clients), Some(1));
        assert_eq!(within(total, Clients { nbd: false, ..clients }), Some(0));
        assert_eq!(within(u64::MAX, clients), Some(100));
        need.add("volume", 1 << 20);
        assert_eq!(need.total(), total + (1 << 20));
        assert!(need.words().contains("segment buffers 16.0 MiB"), "{}", need.words());
        assert!(!need.words().contains("FUSE"));
    }
}
