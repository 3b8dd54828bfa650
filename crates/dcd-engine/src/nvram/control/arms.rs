//! The settings that are tried: *arms*.

use crate::nvram::{NvramConfig, NvramPolicyKind, Urgent};
use crate::units::Duration;

/// Idle time before the background cleans: long enough for the next request of who sends one after
/// the other.
const IDLE: Duration = Duration(10_000);

/// Policy and thresholds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arm {
    /// For people.
    pub name: &'static str,
    /// What it is for, for people.
    pub why: &'static str,
    policy: NvramPolicyKind,
    high_percent: u8,
    low_percent: u8,
    urgent: Option<Urgent>,
}

const fn urgent(high_percent: u8, low_percent: u8, groups_at_once: u32) -> Option<Urgent> {
    Some(Urgent { high_percent, low_percent, groups_at_once })
}

/// All of them. The first is what a memory begins with, before anything is known.
pub const ARMS: [Arm; 6] = [
    Arm {
        name: "age",
        why: "clean at every gap, in bursts from 90 %",
        policy: NvramPolicyKind::AgeSize,
        high_percent: 0,
        low_percent: 0,
        urgent: urgent(90, 80, u32::MAX),
    },
    Arm {
        name: "lst-keep",
        why: "keep 30 % for what is written again, much room for bursts",
        policy: NvramPolicyKind::Lst,
        high_percent: 30,
        low_percent: 0,
        urgent: urgent(60, 30, u32::MAX),
    },
    Arm {
        name: "gds-keep",
        why: "keep 80 % for what is written again, the cheapest to clean goes",
        policy: NvramPolicyKind::Gds,
        high_percent: 90,
        low_percent: 80,
        urgent: None,
    },
    Arm {
        name: "lst",
        why: "clean at every gap, much room for bursts",
        policy: NvramPolicyKind::Lst,
        high_percent: 0,
        low_percent: 0,
        urgent: urgent(60, 30, u32::MAX),
    },
    Arm {
        name: "lst-full",
        why: "keep 80 % for what is written again, few groups at a time",
        policy: NvramPolicyKind::Lst,
        high_percent: 90,
        low_percent: 80,
        urgent: urgent(80, 60, 2),
    },
    Arm {
        name: "age-patient",
        why: "clean at gaps only",
        policy: NvramPolicyKind::AgeSize,
        high_percent: 0,
        low_percent: 0,
        urgent: None,
    },
];

impl Arm {
    /// A memory that follows it, and is otherwise set up so.
    pub(super) fn config(&self, config: &NvramConfig) -> NvramConfig {
        let Arm { policy, high_percent, low_percent, urgent, .. } = *self;
        NvramConfig {
            policy,
            high_percent,
            low_percent,
            idle: IDLE,
            groups_at_once: 1,
            is_behind_requests: true,
            urgent,
            ..*config
        }
    }
}
