//! What is told of network disks.

use dcd_engine::{Device, Time};
use serde::{Deserialize, Serialize};

use crate::disk::network::NetworkStanding;

/// A network disk, and how its connections stand.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkReport {
    /// What it is to the cache: `data-disk`, `cache-disk`, `leg 1`, `member 0`.
    pub role: String,
    /// Its URI.
    pub disk: String,
    /// `connected`; `connecting`, while there is no connection; `refused`, while the server serves
    /// another disk under its name.
    pub state: String,
    /// Since when, in seconds.
    pub seconds: f64,
    /// Connections.
    pub connections: usize,
    /// How often the connection was lost and made again.
    pub reconnects: u64,
    /// Flushes that failed because the connection was lost behind writes that no flush had covered:
    /// what they should have covered is written again.
    pub flushes_failed: u64,
    /// Reads, writes and flushes that wait for a connection.
    pub waiting: usize,
    /// Why the connection was lost, or cannot be made.
    pub problem: Option<String>,
}

impl NetworkReport {
    /// The report of one at this time.
    pub(crate) fn of(
        device: Device,
        disk: String,
        standing: NetworkStanding,
        now: Time,
    ) -> NetworkReport {
        let role = match device {
            Device::DataDisk => "data-disk".into(),
            Device::CacheDisk => "cache-disk".into(),
            Device::Nvram => "nvram".into(),
            Device::Leg(leg) => format!("leg {}", leg.0),
            Device::Witness => "witness".into(),
            Device::Member(member) => format!("member {}", member.0),
        };
        NetworkReport {
            role,
            disk,
            state: standing.state.into(),
            seconds: now.since(standing.since).0 as f64 / 1e9,
            connections: standing.connections,
            reconnects: standing.reconnects,
            flushes_failed: standing.flushes_failed,
            waiting: standing.waiting,
            problem: standing.problem,
        }
    }

    /// Whether it can be used.
    pub fn is_connected(&self) -> bool {
        self.state == "connected"
    }
}
