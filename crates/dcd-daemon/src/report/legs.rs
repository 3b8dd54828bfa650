//! What is told of the legs of a cache-disk.

use dcd_engine::legs::LegStanding;
use dcd_engine::legs::status::LegStatus;
use dcd_protocol::LegReport;

/// The legs as they are told, with the disks as they were named.
pub(crate) fn reports(legs: impl Iterator<Item = LegStatus>, disks: &[String]) -> Vec<LegReport> {
    let report = |(place, leg): (usize, LegStatus)| {
        let (state, error) = match leg.standing {
            Some(LegStanding::InSync | LegStanding::Joining) => ("in-sync", None),
            Some(LegStanding::Filling) => ("filling", None),
            Some(LegStanding::Stale) => ("stale", None),
            Some(LegStanding::Failed(error)) => ("failed", Some(error.to_string())),
            Some(LegStanding::Removed) => ("out", None),
            None => ("missing", None),
        };
        LegReport {
            leg: leg.uuid.to_string(),
            disk: disks.get(place).filter(|_| leg.standing.is_some()).cloned(),
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
