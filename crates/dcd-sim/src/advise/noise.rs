//! Whether what a log brings is more than chance: the bare disk and the recommended log again, with
//! other seeds. A seed turns the platters at the beginning, and draws the latencies of disks
//! without an arm; both disks of a comparison have the same.

use serde::Serialize;

use super::grid::Grid;
use super::recommendation::{self, Verdict};
use super::row::{RowFacts, log_works};
use super::{Advice, PaceFacts};
use crate::sweep::{Outcome, Point};

/// What the recommended log brought with each seed.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Noise {
    /// How many, that of the table included.
    pub seeds: u32,
    /// Of them, those with which the log does not work, or nothing could be simulated: they are in
    /// none of the other numbers.
    pub failed_seeds: u32,
    /// How much less requests waited.
    pub faster_percent: Spread,
    /// How much less that was for each, in milliseconds.
    pub saved_ms: Spread,
    /// How many fewer writes the disk got.
    pub fewer_disk_writes_percent: Spread,
}

/// From the least to the most.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Spread {
    /// The least.
    pub min: f64,
    /// On average.
    pub mean: f64,
    /// The most.
    pub max: f64,
}

impl Spread {
    fn of(values: &[f64]) -> Spread {
        Spread {
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            mean: values.iter().sum::<f64>() / values.len() as f64,
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

/// Simulations for it: of each further seed the bare disk and the recommended log. None if none is.
pub fn points(advice: &Advice, grid: &Grid, pace: &PaceFacts, seeds: u32) -> Vec<Point> {
    let recommendation = &advice.recommendation;
    let is_recommended = matches!(recommendation.verdict, Verdict::Helps | Verdict::FewerWrites);
    let Some(row) = recommendation.row.filter(|_| is_recommended) else { return Vec::new() };
    let variant = grid.variants()[row];
    let of = |seed: u32| {
        let mut pair = [grid.bare(pace), grid.point(&variant, pace)];
        for point in &mut pair {
            point.setup.seed = grid.seed.wrapping_add(seed.into());
        }
        pair
    };
    (1..seeds).flat_map(of).collect()
}

/// Takes their outcomes into account: what is not beyond chance is not recommended, nor what fails
/// with one of them.
pub fn weigh(advice: &mut Advice, outcomes: &[Outcome]) {
    let row = advice.recommendation.row.and_then(|row| advice.rows.get(row));
    let (Some(bare), Some(own)) = (advice.bare.facts, row.and_then(|row| row.facts)) else {
        return;
    };
    if outcomes.is_empty() {
        return;
    }
    let mut pairs = vec![(bare, own)];
    let mut failed_seeds = 0;
    for pair in outcomes.chunks_exact(2) {
        match (&pair[0], &pair[1]) {
            (Ok(bare), Ok(own)) if log_works(own) => {
                pairs.push((RowFacts::of_bare(bare), RowFacts::of_bare(own)));
            }
            _ => failed_seeds += 1,
        }
    }
    let less = |own: f64, bare: f64| if bare > 0.0 { 100.0 * (1.0 - own / bare) } else { 0.0 };
    let spread = |of: &dyn Fn(&RowFacts, &RowFacts) -> f64| {
        Spread::of(&pairs.iter().map(|(bare, own)| of(bare, own)).collect::<Vec<_>>())
    };
    let noise = Noise {
        seeds: pairs.len() as u32 + failed_seeds,
        failed_seeds,
        faster_percent: spread(&|bare, own| less(own.waited_s, bare.waited_s)),
        saved_ms: spread(&|bare, own| bare.mean_ms - own.mean_ms),
        fewer_disk_writes_percent: spread(&|bare, own| {
            less(own.disk_writes as f64, bare.disk_writes as f64)
        }),
    };
    advice.noise = Some(noise);
    recommendation::weigh(advice, &noise);
}
