//! C. R. Slade, On-Disk Sequence Cache (ODSC), Brigham Young University 2005: Table 4.2 and Figures
//! 4.1 to 4.3, of a recorded start of a program or of a system. As there, the copies are on a part
//! of the same disk, the Western Digital WD400BB.
//!
//! Its programs and their traces are not to be had: what is printed is of Gvim (figures) and of a
//! boot (table), ours of the trace that is given. Table 4.1 has times of whole programs, computing
//! included, which no trace has.

use super::{Compared, ExperimentError, Figure, Finding, ODSC, Picture, Printed};
use crate::disk::profile::Profile;
use crate::sequence_pictures::{AccessTotals, SequencePictures};
use crate::sequence_runs::setup_for;
use crate::sweep::TraceSource;
use crate::trace::{Operation, Request};

/// The paper's disk.
const DISK: &str = "wd400bb";
/// Reads of a trace, at most: they are all in memory.
const READS_MAX: usize = 1 << 20;
/// Table 4.2: seconds without the cache and with it.
const BOOT_S: [f64; 2] = [12.65, 2.555];
/// Figure 4.1: sectors.
const GVIM_SEEKS: [f64; 2] = [814_833_144.0, 10_210_904.0];
/// Figure 4.2: milliseconds.
const GVIM_MS: [f64; 2] = [1215.14, 202.67];

/// What came of the trace.
#[derive(Debug)]
pub struct OdscRun {
    pictures: SequencePictures,
}

impl OdscRun {
    /// Simulates the reads of the trace, each when the one before is done.
    ///
    /// # Errors
    /// If it cannot be read, or the disk cannot have it.
    pub fn of(trace: &TraceSource) -> Result<OdscRun, ExperimentError> {
        let failed = |problem: String| ExperimentError::Failed { what: "ODSC".into(), problem };
        let mut reads: Vec<Request> = Vec::new();
        let mut lines = 0;
        let read = trace.for_each(&mut |request| {
            if request.operation == Operation::Read && reads.len() < READS_MAX {
                lines += request.size_bytes / 4096 + 2;
                reads.push(Request { time_ns: 0, latency_ns: None, ..*request });
            }
            Ok(())
        });
        read.map_err(failed)?;
        if reads.is_empty() {
            return Err(failed("the trace has no reads".into()));
        }
        let disk = Profile::load(DISK).expect("a profile of ours");
        let pictures = SequencePictures::of(&setup_for(&disk, None, lines, 0), &reads);
        Ok(OdscRun { pictures: pictures.map_err(|error| failed(error.to_string()))? })
    }

    fn totals(&self) -> [AccessTotals; 2] {
        [self.pictures.without.totals(), self.pictures.with.totals()]
    }

    /// Figures 4.1 to 4.3, with and without in one picture each.
    pub fn figures(&self) -> Vec<Figure> {
        let note = "Of the trace that was given, not of Gvim; a disk read of ours may have up to 1 MiB of what is read \
                    ahead, the paper's one block.";
        let figure = |(number, plot)| Figure {
            name: format!("odsc-figure-{number}"),
            picture: match number {
                "4.3" => Picture::Points(plot),
                _ => Picture::Curves(plot),
            },
            notes: vec![note.to_owned()],
        };
        let plots = self.pictures.plots("a recorded start");
        ["4.1", "4.2", "4.3"].into_iter().zip(plots).map(figure).collect()
    }

    /// What is printed of other loads beside it.
    pub fn tables(&self) -> Vec<Compared> {
        let [without, with] = self.totals();
        let ways = ["without the cache", "with it"];
        let mut rows = Vec::new();
        for (index, (way, totals)) in ways.into_iter().zip([without, with]).enumerate() {
            let AccessTotals { access_ms, seek_distance, .. } = totals;
            for (place, what, printed, ours, unit) in [
                ("Table 4.2", "access times of a boot", BOOT_S[index], access_ms / 1e3, "s"),
                (
                    "Figure 4.1",
                    "seek distance of Gvim",
                    GVIM_SEEKS[index],
                    seek_distance as f64,
                    "sectors",
                ),
                ("Figure 4.2", "access times of Gvim", GVIM_MS[index], access_ms, "ms"),
            ] {
                rows.push(Compared {
                    paper: ODSC,
                    place,
                    disk: DISK.into(),
                    what: format!("{what}, ours of the trace; {way}"),
                    printed: Printed::Number(printed),
                    ours,
                    unit,
                    percent_of_writes: None,
                });
            }
        }
        rows
    }

    /// The paper's boot took the disk a fifth of the time.
    pub fn findings(&self) -> Vec<Finding> {
        let [without, with] = self.totals();
        let finding = |statement, before: f64, after: f64, printed: [f64; 2], unit: &str| Finding {
            paper: ODSC,
            disk: DISK.into(),
            statement,
            holds: after * printed[0] <= before * printed[1],
            numbers: format!(
                "{before:.1} to {after:.1} {unit}: {:.2} times",
                before / after.max(1e-9)
            ),
        };
        vec![
            finding(
                "the disk takes 4.95 times less for the reads of a boot",
                without.access_ms,
                with.access_ms,
                BOOT_S,
                "ms",
            ),
            finding(
                "the arm goes 80 times less far for the start of a program",
                without.seek_distance as f64,
                with.seek_distance as f64,
                GVIM_SEEKS,
                "sectors",
            ),
        ]
    }
}
