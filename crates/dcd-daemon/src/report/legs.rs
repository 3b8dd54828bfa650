//! What is told of the legs of a cache-disk.

use dcd_engine::legs::LegStanding;
use dcd_engine::legs::status::LegStatus;
use dcd_engine::legs::witness::{WitnessStanding, WitnessStatus};
use dcd_protocol::{LegReport, WitnessReport};

use crate::pair::legs::CacheSide;

/// The legs as they are told, with the names of their disks.
pub(crate) fn reports(
    legs: impl Iterator<Item = LegStatus>,
    disks: Option<&CacheSide>,
) -> Vec<LegReport> {
    let report = |(place, leg): (usize, LegStatus)| {
        let (state, error) = match leg.standing {
            Some(LegStanding::InSync | LegStanding::Joining) => ("in-sync", None),
            Some(LegStanding::Filling) => ("filling", None),
            Some(LegStanding::Stale) => ("stale", None),
            Some(LegStanding::Failed(error)) => ("failed", Some(error.to_string())),
            Some(LegStanding::LeftOut) => ("out", None),
            Some(LegStanding::TakenOut) => ("taken-out", None),
            None => ("missing", None),
        };
        LegReport {
            leg: leg.uuid.to_string(),
            disk: disks.filter(|_| leg.standing.is_some()).and_then(|it| it.leg_name(place)),
            state: state.to_owned(),
            error,
            filled_bytes: leg.filled_bytes,
            total_bytes: leg.total_bytes,
            errors: leg.counters.errors,
            mended: leg.counters.mended,
        }
    };
    legs.enumerate().map(report).collect()
}

/// The witness as it is told.
pub(crate) fn witness_report(witness: WitnessStatus, disks: Option<&CacheSide>) -> WitnessReport {
    let (state, error) = match witness.standing {
        Some(WitnessStanding::Votes) => ("votes", None),
        Some(WitnessStanding::Joining) => ("joining", None),
        Some(WitnessStanding::Failed(error)) => ("failed", Some(error.to_string())),
        Some(WitnessStanding::LeftOut) => ("out", None),
        Some(WitnessStanding::TakenOut) => ("taken-out", None),
        None => ("missing", None),
    };
    let is_there = witness.standing.is_some();
    WitnessReport {
        witness: witness.uuid.to_string(),
        file: disks.filter(|_| is_there).and_then(CacheSide::witness_name),
        state: state.to_owned(),
        error,
        errors: witness.errors,
    }
}

/// The disks of the legs that are there, if there are legs.
pub(crate) fn names(legs: &[LegReport]) -> Option<String> {
    let is_there = |leg: &&LegReport| !matches!(leg.state.as_str(), "taken-out" | "out");
    let names = legs.iter().filter(is_there).filter_map(|leg| leg.disk.as_deref());
    let names: Vec<&str> = names.collect();
    (!names.is_empty()).then(|| names.join(", "))
}
