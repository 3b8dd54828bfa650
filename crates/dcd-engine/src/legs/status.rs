//! A picture of the legs.

use super::{LegStanding, Legs};
use crate::units::Uuid;

/// Counts of a leg.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LegCounters {
    /// I/Os that failed.
    pub errors: u64,
    /// Reads that another leg answered and that were written there again.
    pub mended: u64,
}

/// A leg.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LegStatus {
    /// Its name.
    pub uuid: Uuid,
    /// What it is; `None`: it is not there.
    pub standing: Option<LegStanding>,
    /// Whether its disk is needed no more: it was taken out, and nothing is under way.
    pub is_free: bool,
    /// Of one that is being filled: bytes that it has.
    pub filled_bytes: u64,
    /// Bytes in use.
    pub total_bytes: u64,
    /// Counts.
    pub counters: LegCounters,
}

impl Legs {
    /// The legs that were given, then those that are not there.
    pub fn status(&self) -> impl Iterator<Item = LegStatus> {
        let (filled, total_bytes) = self.filled();
        let given = self.legs.iter().map(move |leg| LegStatus {
            uuid: leg.uuid,
            standing: Some(leg.standing),
            is_free: leg.is_free(),
            filled_bytes: match leg.standing {
                LegStanding::Filling => filled,
                LegStanding::InSync | LegStanding::Joining => total_bytes,
                _ => 0,
            },
            total_bytes,
            counters: leg.counters,
        });
        let missing = self.missing.iter().map(move |uuid| LegStatus {
            uuid: *uuid,
            standing: None,
            is_free: false,
            filled_bytes: 0,
            total_bytes,
            counters: LegCounters::default(),
        });
        given.chain(missing)
    }
}
