//! The knee of a curve of benefit against size.
//!
//! The engine's own rule (`nvram::stack_distance`) takes the point highest above the straight line
//! between the ends of the curve. That is right for 64 points of a hit ratio that begins at 0; here
//! are few points, and where the curve ends is the choice of the grid: one more size at the end
//! would move the knee. So it is what a buyer means by it.

/// What may be lost by taking the smaller size: a share of the most, and percentage points.
const LOST_SHARE: f64 = 0.05;
/// See [`LOST_SHARE`]; less is noise.
const LOST_PERCENT: f64 = 0.5;

/// A size of a log.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SizePoint {
    /// The size.
    pub bytes: u64,
    /// What it brings, in percent.
    pub benefit: f64,
    /// Hardly any write waits for room. A mean hides those that do, and a larger log is cheap.
    pub is_calm: bool,
}

/// The smallest size with nearly the most benefit of all, at least 95 % of it or half a point less,
/// where hardly any write waits for room; the smallest with nearly the most benefit if there is no
/// such. None where nothing is gained.
///
/// ```
/// use dcd_sim::advise::knee::{SizePoint, knee};
/// let point = |(bytes, benefit, is_calm)| SizePoint { bytes, benefit, is_calm };
/// assert_eq!(knee(&[(4, 20.0, true), (8, 60.0, true), (16, 78.0, true), (32, 80.0, true)].map(point)), Some(16));
/// assert_eq!(knee(&[(4, 79.0, false), (8, 80.0, true)].map(point)), Some(8));
/// assert_eq!(knee(&[(4, -3.0, true), (8, 0.0, true)].map(point)), None);
/// ```
pub fn knee(points: &[SizePoint]) -> Option<u64> {
    let most = points.iter().map(|point| point.benefit).max_by(f64::total_cmp)?;
    if most <= LOST_PERCENT {
        return None;
    }
    let near = || points.iter().filter(|point| is_near(point.benefit, most));
    let calm = near().filter(|point| point.is_calm).map(|point| point.bytes).min();
    calm.or_else(|| near().map(|point| point.bytes).min())
}

/// Whether a benefit is nearly the most.
pub fn is_near(benefit: f64, most: f64) -> bool {
    benefit >= most - (most * LOST_SHARE).max(LOST_PERCENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knee_of(points: &[(u64, f64)]) -> Option<u64> {
        let point = |&(bytes, benefit)| SizePoint { bytes, benefit, is_calm: true };
        knee(&points.iter().map(point).collect::<Vec<_>>())
    }

    #[test]
    fn the_knee_is_where_more_brings_little() {
        assert_eq!(knee_of(&[]), None);
        assert_eq!(knee_of(&[(4, 0.4)]), None, "noise");
        assert_eq!(knee_of(&[(4, 99.0), (8, 99.0), (16, 99.9)]), Some(4), "flat");
        assert_eq!(knee_of(&[(4, 10.0), (8, 20.0), (16, 40.0)]), Some(16), "no end in sight");
        // One more size at the end changes nothing.
        assert_eq!(knee_of(&[(4, 50.0), (8, 79.0), (16, 80.0)]), Some(8));
        assert_eq!(knee_of(&[(4, 50.0), (8, 79.0), (16, 80.0), (32, 80.1)]), Some(8));
        // Larger may be worse.
        assert_eq!(knee_of(&[(4, 50.0), (8, 80.0), (16, 30.0)]), Some(8));
    }

    #[test]
    fn where_writes_wait_for_room_is_before_the_knee() {
        let point = |(bytes, benefit, is_calm)| SizePoint { bytes, benefit, is_calm };
        let knee = |points: [(u64, f64, bool); 3]| knee(&points.map(point));
        assert_eq!(knee([(4, 97.0, false), (8, 98.0, false), (16, 99.0, true)]), Some(16));
        assert_eq!(knee([(4, 97.0, false), (8, 98.0, false), (16, 99.0, false)]), Some(4));
        // Calm, but with far less.
        assert_eq!(knee([(4, 50.0, true), (8, 98.0, false), (16, 99.0, false)]), Some(8));
    }
}
