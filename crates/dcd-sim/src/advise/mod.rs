//! What a log in front of a disk would do for a load, and whether it is worth it: `dcd advise`.
//!
//! ```text
//! load.rs            what the load is like, and over time          one pass over the trace
//! overload.rs        does the bare disk keep up with its times?    ... the bare disk beside it
//! grid.rs            which caches are simulated                    -> sweep::run
//! row.rs             what came of each, beside the bare disk
//! knee.rs            the size beyond which more brings little
//! recommendation.rs  one sentence, and what limits it
//! noise.rs           whether that is more than chance: other seeds
//! sequences.rs       what a sequence would bring to a load of reads
//! trials.rs          a read area, modes past the log, a memory in its place
//! words.rs           numbers as people read them
//! page.rs, plots.rs  all of it as one HTML page
//! ```
//!
//! Nothing here estimates: every number is counted in a simulation with the engine of the daemon.

pub mod grid;
pub mod knee;
pub mod load;
pub mod noise;
pub mod overload;
pub mod page;
mod plots;
pub mod recommendation;
pub mod row;
pub mod sequences;
#[cfg(test)]
mod tests;
pub mod trials;
pub mod words;

use serde::Serialize;

use crate::pace::Pace;
use crate::sweep::Outcome;
use grid::{Grid, Variant};
use knee::knee;
use load::LoadFacts;
use noise::Noise;
use overload::Overload;
use recommendation::Recommendation;
use row::{Row, RowFacts};
use sequences::SequenceAdvice;
use trials::Trials;

/// Everything that is told.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// The requests.
    pub load: LoadFacts,
    /// Name of the disk's profile.
    pub disk: String,
    /// It is a bucket.
    pub is_object_store: bool,
    /// When requests came.
    pub pace: PaceFacts,
    /// The seconds that month prices of all rows follow from: until the last request came, or, if
    /// all came at once, until the bare disk was done. In a closed loop a row has a duration of its
    /// own, and whoever is faster would pay for more requests a month.
    pub month_of_s: Option<f64>,
    /// The disk alone.
    pub bare: Row,
    /// The disk with a log, in the order of the grid.
    pub rows: Vec<Row>,
    /// Rows that differ in size only.
    pub curves: Vec<Curve>,
    /// What to do.
    pub recommendation: Recommendation,
    /// What the recommended log brings with other seeds; none if none is recommended.
    pub noise: Option<Noise>,
    /// What a sequence would bring; none for a load that hardly reads.
    pub sequences: Option<SequenceAdvice>,
    /// What else could be made of the log, or bought in its place; none where nothing was tried.
    pub trials: Option<Trials>,
    /// What was left out of the grid, and why.
    pub left_out: Vec<String>,
}

/// When requests came.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct PaceFacts {
    /// Each when the one before was done.
    pub closed_loop: bool,
    /// Otherwise at the times of the trace, multiplied by this.
    pub stretch: Option<f64>,
    /// Whoever asked chose that; otherwise it follows from the overload.
    pub is_chosen: bool,
    /// How the bare disk fails to keep up with the times of the trace, if it does.
    pub overload: Option<Overload>,
}

/// Rows of the same log in different sizes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Curve {
    /// For people: what tells it from the others.
    pub name: String,
    /// Places in the rows, by size.
    pub rows: Vec<usize>,
    /// The size beyond which requests hardly become faster.
    pub knee_bytes: Option<u64>,
    /// The size beyond which the disk hardly gets fewer writes.
    pub disk_writes_knee_bytes: Option<u64>,
}

impl PaceFacts {
    /// Numbers of an open loop that the disk cannot follow are the length of the trace, not of
    /// waits.
    pub fn is_absurd(&self) -> bool {
        self.overload.is_some() && !self.closed_loop
    }

    /// Until the last request of a trace that takes so long came, if none waited for another.
    pub fn arrivals_s(&self, trace_s: f64) -> f64 {
        trace_s * self.stretch.filter(|_| !self.closed_loop).unwrap_or(1.0)
    }

    /// For a replay.
    pub fn pace(&self) -> Pace {
        match self.stretch {
            Some(stretch) if !self.closed_loop => Pace::Open { stretch },
            _ => Pace::Closed,
        }
    }
}

impl Advice {
    /// What the simulations took, and might have.
    pub fn tell_memory(&mut self, bytes_max: u64) {
        let of_row = |row: &Row| row.facts.map_or(0, |facts| facts.memory_bytes);
        let most = self.rows.iter().map(of_row).max().unwrap_or(0);
        self.recommendation.limits.push(format!(
            "Simulations had {} of memory (--memory-max); the largest log took {}.",
            words::size(bytes_max),
            words::size(most),
        ));
    }

    /// Whether any disk of it has prices.
    pub fn has_cost(&self) -> bool {
        let rows = [&self.bare].into_iter().chain(&self.rows);
        rows.filter_map(|row| row.facts.as_ref()).any(|facts| facts.cost.is_some())
    }

    /// From what was simulated: the bare disk, and each variant of the grid in its order.
    ///
    /// # Panics
    /// If there are not as many outcomes as variants.
    pub fn new(
        load: LoadFacts,
        grid: &Grid,
        pace: PaceFacts,
        bare: &Outcome,
        outcomes: &[Outcome],
    ) -> Advice {
        let variants = grid.variants();
        assert_eq!(variants.len(), outcomes.len(), "an outcome for each variant");
        let written_bytes = load.summary.writes.bytes;
        let bare_facts = bare.as_ref().ok().map(RowFacts::of_bare);
        let arrivals_s = pace.arrivals_s(load.summary.duration_s);
        let bare_s = bare_facts.map(|bare| bare.duration_s);
        let month_of_s = Some(arrivals_s).filter(|seconds| *seconds > 0.0).or(bare_s);
        let bare_row = Row::bare(bare).priced(bare, month_of_s);
        let row = |(variant, outcome): (&Variant, &Outcome)| {
            let device = &grid.devices[variant.device];
            Row::of(variant, device, outcome, bare_facts.as_ref(), written_bytes)
                .priced(outcome, month_of_s)
        };
        let rows: Vec<Row> = variants.iter().zip(outcomes).map(row).collect();
        let curves = curves(grid, &variants, &rows);
        let mut advice = Advice {
            load,
            disk: grid.disk_name.clone(),
            is_object_store: grid.disk.is_object_store(),
            pace,
            month_of_s,
            bare: bare_row,
            rows,
            curves,
            recommendation: Recommendation::default(),
            noise: None,
            sequences: None,
            trials: None,
            left_out: grid.left_out(),
        };
        advice.recommendation = recommendation::recommend(&advice);
        advice
    }
}

/// Rows of the same device, order of destaging and acknowledgement.
fn curves(grid: &Grid, variants: &[Variant], rows: &[Row]) -> Vec<Curve> {
    let mut curves: Vec<(String, Vec<usize>)> = Vec::new();
    for (index, variant) in variants.iter().enumerate() {
        let name = grid.name(variant);
        match curves.iter_mut().find(|(known, _)| *known == name) {
            Some((_, rows)) => rows.push(index),
            None => curves.push((name, vec![index])),
        }
    }
    let curve = |(name, indices): (String, Vec<usize>)| {
        let knee_of = |benefit: fn(&RowFacts) -> f64| {
            let point = |&index: &usize| rows[index].size_point(benefit);
            knee(&indices.iter().filter_map(point).collect::<Vec<_>>())
        };
        Curve {
            knee_bytes: knee_of(|facts| facts.faster_percent),
            disk_writes_knee_bytes: knee_of(|facts| facts.fewer_disk_writes_percent),
            name,
            rows: indices,
        }
    };
    curves.into_iter().map(curve).collect()
}
