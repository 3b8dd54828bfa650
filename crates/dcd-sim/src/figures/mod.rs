//! The papers' experiments on the engine of this project: their figures and tables with our numbers
//! beside the printed ones, and their findings as statements that hold or do not.
//!
//! ```text
//! thesis.rs, thesis_tables.rs   Haining 2000, chapters 4 and 7, of one disk       experiments.rs simulates them
//! service_times.rs              its Figures 6.2 and 6.3: models beside drives
//! findings.rs                   its findings
//! dcd_unix.rs                   Nightingale, Hu, Yang, USENIX 1999, section 4     unix_runs.rs simulates it
//! dcd_nt.rs                     He, Yang, a filter driver for Windows NT 4
//! dhis.rs                       Yalamanchili et al., SYSTOR 2009            dhis_runs.rs simulates it
//! odsc.rs                       the on-disk sequence cache, of a trace that is given
//! ```
//!
//! The traces of `snake` are not to be had, and the DCD papers used file systems and programs of
//! their time: [`crate::workload`] makes up loads like theirs. Whoever has the trace `hplajw` can
//! have the figures of its disks, too.

pub mod dcd_nt;
pub mod dcd_unix;
pub mod dhis;
pub mod dhis_runs;
mod experiments;
mod findings;
pub mod odsc;
mod parallel;
pub mod service_times;
mod thesis;
mod thesis_tables;
mod unix_runs;

pub use experiments::{ExperimentError, Experiments, Run};
pub use findings::findings;
use serde::Serialize;
pub use thesis::{Disk, Scope, figures, hplajw_0, snake_5, snake_6};
pub use thesis_tables::tables;

use crate::plot::notes::with_notes;
use crate::plot::stacked_bars::{self, StackedBars};
use crate::plot::{Plot, PlotError, View, svg};

/// T. R. Haining's dissertation.
pub const THESIS: &str = "thesis";
/// Nightingale, Hu and Yang.
pub const UNIX: &str = "USENIX 1999";
/// He and Yang.
pub const NT: &str = "NT";
/// Yalamanchili, Vijayasankar, Zadok and Sivathanu.
pub const DHIS: &str = "DHIS";
/// C. R. Slade.
pub const ODSC: &str = "ODSC";

/// A figure: a picture, and what is to be said of it.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Of the file.
    pub name: String,
    /// What is drawn.
    pub picture: Picture,
    /// Where it differs from the printed one: what was not to be had, and what takes its place.
    pub notes: Vec<String>,
}

/// What is drawn.
#[derive(Clone, Debug)]
pub enum Picture {
    /// Curves.
    Curves(Plot),
    /// Points that no lines join.
    Points(Plot),
    /// Bars.
    Bars(StackedBars),
}

impl Figure {
    /// As a whole SVG document.
    ///
    /// # Errors
    /// If there is nothing to draw, or no place for it.
    pub fn svg(&self) -> Result<String, PlotError> {
        let drawn = match &self.picture {
            Picture::Curves(plot) => svg::render(plot)?,
            Picture::Points(plot) => {
                svg::render_view(plot, &View { as_points: true, ..View::default() })?
            }
            Picture::Bars(bars) => stacked_bars::render(bars)?,
        };
        Ok(with_notes(&drawn, &self.notes))
    }
}

/// A value beside the printed one.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Compared {
    /// Which paper.
    pub paper: &'static str,
    /// Table, figure or section.
    pub place: &'static str,
    /// Which disk.
    pub disk: String,
    /// What is measured, of what.
    pub what: String,
    /// The paper's.
    pub printed: Printed,
    /// Ours.
    pub ours: f64,
    /// Of both.
    pub unit: &'static str,
    /// Both as shares of the writes of the load, where its length differs.
    pub percent_of_writes: Option<[f64; 2]>,
}

/// What a paper says of a number.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(untagged)]
pub enum Printed {
    /// That it is this.
    Number(f64),
    /// From what to what.
    Range(f64, f64),
}

/// A number that people read: whole, or of three digits and more.
pub fn shown(value: f64) -> String {
    match value.abs() {
        whole if whole >= 1000.0 || value.fract() == 0.0 => format!("{value:.0}"),
        tens if tens >= 100.0 => format!("{value:.1}"),
        ones if ones >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

impl std::fmt::Display for Printed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Printed::Number(value) => formatter.write_str(&shown(value)),
            Printed::Range(low, high) => write!(formatter, "{} to {}", shown(low), shown(high)),
        }
    }
}

/// A statement of a paper, and whether it holds here.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Finding {
    /// Which paper.
    pub paper: &'static str,
    /// Of which disk.
    pub disk: String,
    /// What was found, or conjectured.
    pub statement: &'static str,
    /// Whether it is so here.
    pub holds: bool,
    /// The numbers that say so.
    pub numbers: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_with_the_digits_that_matter() {
        for (value, wanted) in
            [(33_538.0, "33538"), (5.354, "5.35"), (135.3, "135.3"), (0.0386, "0.039"), (4.0, "4")]
        {
            assert_eq!(Printed::Number(value).to_string(), wanted);
        }
        assert_eq!(Printed::Range(3.0, 6.0).to_string(), "3 to 6");
    }
}
