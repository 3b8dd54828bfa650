//! How long the arm takes over a distance: a root and a line, or a table, or both.
//!
//! Short seeks are spent accelerating and braking (`a + b * sqrt(d)`), long ones mostly at full
//! speed (`c + e * d`). A profile may give measured times instead, between which is interpolated;
//! times given for some distances go before the curve, up to the largest of them.

use super::profile::{FieldProblem, SeekProfile};

/// Longest seek that a profile may have.
pub const SEEK_MS_MAX: f64 = 1_000.0;

/// Time of a seek for each distance.
#[derive(Clone, Debug)]
pub struct SeekCurve {
    times_ns: Vec<u32>,
}

impl SeekCurve {
    /// The curve for distances of less than `cylinders`.
    ///
    /// # Errors
    /// When a time is impossible; the problem names the field.
    pub fn new(profile: &SeekProfile, cylinders: u32) -> Result<SeekCurve, FieldProblem> {
        check_table(profile, cylinders)?;
        let mut times_ns = vec![0; cylinders.max(1) as usize];
        for distance in 1..cylinders {
            let from_table = interpolate(&profile.table_ms, distance);
            let ms = match (from_table, profile.curve) {
                (Some(ms), _) => ms,
                (None, Some(curve)) => {
                    let d = f64::from(distance);
                    let ms = if distance < curve.long_from {
                        curve.short_ms[0] + curve.short_ms[1] * d.sqrt()
                    } else {
                        curve.long_ms[0] + curve.long_ms[1] * d
                    };
                    if !(0.0..=SEEK_MS_MAX).contains(&ms) {
                        let message =
                            format!("a seek over {distance} cylinders would take {ms} ms");
                        return Err(FieldProblem::new("seek.curve", message));
                    }
                    ms
                }
                (None, None) => {
                    let message =
                        format!("says nothing of {distance} cylinders, nor is there a curve");
                    return Err(FieldProblem::new("seek.table_ms", message));
                }
            };
            times_ns[distance as usize] = (ms * 1e6).round() as u32;
        }
        Ok(SeekCurve { times_ns })
    }

    /// Time of a seek over `distance` cylinders.
    pub fn time_ns(&self, distance: u32) -> u64 {
        u64::from(self.times_ns[distance as usize])
    }

    /// Time of the longest seek.
    pub fn full_ns(&self) -> u64 {
        u64::from(self.times_ns[self.times_ns.len() - 1])
    }

    /// Mean over seeks from one cylinder to another, each as likely as any.
    pub fn mean_ns(&self) -> f64 {
        let cylinders = self.times_ns.len() as f64;
        let sum: f64 = (1..self.times_ns.len())
            .map(|distance| {
                2.0 * (cylinders - distance as f64) * f64::from(self.times_ns[distance])
            })
            .sum();
        sum / (cylinders * cylinders)
    }
}

fn check_table(profile: &SeekProfile, cylinders: u32) -> Result<(), FieldProblem> {
    for (index, (distance, ms)) in profile.table_ms.iter().enumerate() {
        let field = format!("seek.table_ms[{index}]");
        let ascending = index == 0 || profile.table_ms[index - 1].0 < *distance;
        if *distance == 0 || !ascending {
            return Err(FieldProblem::new(&field, format!("distance {distance} does not ascend")));
        }
        if *distance > cylinders {
            let message = format!("distance {distance}: there are only {cylinders} cylinders");
            return Err(FieldProblem::new(&field, message));
        }
        if !(0.0..=SEEK_MS_MAX).contains(ms) {
            return Err(FieldProblem::new(&field, format!("{ms} ms is not 0 to {SEEK_MS_MAX}")));
        }
    }
    Ok(())
}

/// What the table says of `distance`; nothing beyond its end.
fn interpolate(table: &[(u32, f64)], distance: u32) -> Option<f64> {
    let next = table.partition_point(|(d, _)| *d < distance);
    let (d1, ms1) = *table.get(next)?;
    if next == 0 || d1 == distance {
        return Some(ms1);
    }
    let (d0, ms0) = table[next - 1];
    Some(ms0 + (ms1 - ms0) * f64::from(distance - d0) / f64::from(d1 - d0))
}

#[cfg(test)]
mod tests {
    use super::super::profile::SeekCurveProfile;
    use super::*;

    fn profile(table_ms: Vec<(u32, f64)>, curve: Option<SeekCurveProfile>) -> SeekProfile {
        SeekProfile {
            curve,
            table_ms,
            head_switch_ms: 1.0,
            settle_ms: 0.0,
            write_settle_ms: 0.0,
            zero_latency_writes: false,
            zero_latency_reads: false,
        }
    }

    const HP_97560: SeekCurveProfile =
        SeekCurveProfile { short_ms: [3.24, 0.4], long_ms: [8.0, 0.008], long_from: 384 };

    #[test]
    fn the_ends_of_the_curve_are_those_of_its_formulas() {
        let seek = SeekCurve::new(&profile(vec![], Some(HP_97560)), 1962).unwrap();
        assert_eq!(seek.time_ns(0), 0);
        assert_eq!(seek.time_ns(1), 3_640_000);
        assert_eq!(seek.time_ns(4), 4_040_000);
        assert_eq!(seek.time_ns(384), 11_072_000);
        assert_eq!(seek.full_ns(), 8_000_000 + 8_000 * 1961);
    }

    #[test]
    fn a_table_goes_before_the_curve_and_is_interpolated() {
        let table = vec![(1, 1.0), (3, 2.0), (10, 9.0)];
        let seek = SeekCurve::new(&profile(table, Some(HP_97560)), 100).unwrap();
        let times = [1, 2, 3, 5, 10].map(|distance| seek.time_ns(distance));
        assert_eq!(times, [1_000_000, 1_500_000, 2_000_000, 4_000_000, 9_000_000]);
        assert_eq!(seek.time_ns(16), 4_840_000);
    }

    #[test]
    fn the_mean_is_over_all_pairs_of_cylinders() {
        let seek = SeekCurve::new(&profile(vec![(1, 1.0), (2, 4.0)], None), 3).unwrap();
        // Of nine pairs, four are one cylinder apart, two are two.
        assert!((seek.mean_ns() - (4.0 * 1e6 + 2.0 * 4e6) / 9.0).abs() < 1.0);
    }

    #[test]
    fn impossible_times_are_refused_by_field() {
        let refused = |table| SeekCurve::new(&profile(table, None), 10).unwrap_err().field;
        assert_eq!(refused(vec![(1, 1.0), (1, 2.0)]), "seek.table_ms[1]");
        assert_eq!(refused(vec![(1, -1.0)]), "seek.table_ms[0]");
        assert_eq!(refused(vec![(11, 1.0)]), "seek.table_ms[0]");
        assert_eq!(refused(vec![(5, 1.0)]), "seek.table_ms");
        let curve = SeekCurveProfile { short_ms: [1.0, f64::NAN], ..HP_97560 };
        assert_eq!(
            SeekCurve::new(&profile(vec![], Some(curve)), 10).unwrap_err().field,
            "seek.curve"
        );
    }
}
