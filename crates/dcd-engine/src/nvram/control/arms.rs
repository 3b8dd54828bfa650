//! The settings that are tried: *arms*.

use crate::nvram::{NvramConfig, NvramPolicyKind, Urgent};
use crate::units::Duration;

/// Idle time before the background cleans: long enough for the next request of who sends one after
/// the other.
const IDLE: Duration = Duration(10_000);

/// Blocks that a write of a cleaning frees, about, where a memory is full of what is kept.
const BLOCKS_OF_A_WRITE: u64 = 32;

/// Policy and thresholds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arm {
    /// For people.
    pub name: &'static str,
    /// What it does, for people.
    pub why: &'static str,
    policy: NvramPolicyKind,
    high_percent: u8,
    low_percent: u8,
    urgent: Option<Urgent>,
    /// Cleaning waits for gaps, and is done group by group between requests. Else each group that
    /// is needed is cleaned when it is, first come, first served.
    waits_for_gaps: bool,
    /// How much of the memory a burst may find full, or without help.
    risk_percent: u8,
}

const fn urgent(high_percent: u8, low_percent: u8, groups_at_once: u32) -> Option<Urgent> {
    Some(Urgent { high_percent, low_percent, groups_at_once })
}

/// All of them. The first is what a memory begins with, before anything is known.
pub const ARMS: [Arm; 7] = [
    Arm {
        name: "age",
        why: "clean at every gap, at once from 90 %",
        policy: NvramPolicyKind::AgeSize,
        high_percent: 0,
        low_percent: 0,
        urgent: urgent(90, 80, u32::MAX),
        waits_for_gaps: true,
        risk_percent: 0,
    },
    Arm {
        name: "lst-keep",
        why: "keep up to 30 % for what is written again, much room for bursts",
        policy: NvramPolicyKind::Lst,
        high_percent: 30,
        low_percent: 0,
        urgent: urgent(60, 30, u32::MAX),
        waits_for_gaps: true,
        risk_percent: 30,
    },
    Arm {
        name: "gds-keep",
        why: "keep 80 % for what is written again, the cheapest to clean goes",
        policy: NvramPolicyKind::Gds,
        high_percent: 90,
        low_percent: 80,
        urgent: None,
        waits_for_gaps: true,
        risk_percent: 80,
    },
    Arm {
        name: "lst",
        why: "clean at every gap, much room for bursts",
        policy: NvramPolicyKind::Lst,
        high_percent: 0,
        low_percent: 0,
        urgent: urgent(60, 30, u32::MAX),
        waits_for_gaps: true,
        risk_percent: 0,
    },
    Arm {
        name: "lst-full",
        why: "keep 80 % for what is written again, few groups at a time",
        policy: NvramPolicyKind::Lst,
        high_percent: 90,
        low_percent: 80,
        urgent: urgent(80, 60, 2),
        waits_for_gaps: true,
        risk_percent: 80,
    },
    Arm {
        name: "age-patient",
        why: "clean at gaps only",
        policy: NvramPolicyKind::AgeSize,
        high_percent: 0,
        low_percent: 0,
        urgent: None,
        waits_for_gaps: true,
        risk_percent: 10,
    },
    Arm {
        name: "age-full",
        why: "keep all, clean what a write needs the room of",
        policy: NvramPolicyKind::AgeSize,
        high_percent: 100,
        low_percent: 100,
        urgent: None,
        waits_for_gaps: false,
        risk_percent: 100,
    },
];

impl Arm {
    /// Accesses of the disk that it takes to clean what a burst finds in its way. What such a burst
    /// costs is not seen before it comes.
    pub(super) fn risk_accesses(&self, capacity_blocks: u64) -> u64 {
        capacity_blocks * u64::from(self.risk_percent) / 100 / BLOCKS_OF_A_WRITE
    }

    /// A memory that follows it, and is otherwise set up so.
    pub fn config(&self, config: &NvramConfig) -> NvramConfig {
        let Arm { policy, high_percent, low_percent, urgent, waits_for_gaps, .. } = *self;
        NvramConfig {
            policy,
            high_percent,
            low_percent,
            idle: if waits_for_gaps { IDLE } else { Duration(0) },
            groups_at_once: if waits_for_gaps { 1 } else { u32::MAX },
            is_behind_requests: waits_for_gaps,
            urgent,
            ..*config
        }
    }
}
