//! Figures 6.2 and 6.3 of the thesis: how service times of a disk model are spread, beside those
//! that were measured.

use std::path::Path;

use dcd_engine::Time;

use super::{Compared, ExperimentError, Figure, Picture, Printed, THESIS};
use crate::disk::model::{DiskModel, DiskOperation, DiskRequest};
use crate::disk::profile::Profile;
use crate::plot::{Plot, Series};
use crate::trace::TraceError;
use crate::trace::measured::MeasuredReader;
use crate::validate::{Demerit, Validation};
use crate::workload::WorkloadSpec;

/// A part of one of the figures, and what is printed below it.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// As it is called: `6.2 (a)`.
    pub number: &'static str,
    /// The place in a table.
    pub place: &'static str,
    /// As the thesis calls the disk.
    pub disk: &'static str,
    /// The model of the drive.
    pub profile: &'static str,
    /// Mean of the thesis' simulation.
    pub mean_ms: f64,
    /// Its distance to the drive.
    pub demerit_ms: f64,
    /// As printed.
    pub demerit_percent: f64,
}

/// Figure 6.2 (a).
pub const HPLAJW_0: Part = Part {
    number: "6.2a",
    place: "Figure 6.2",
    disk: "hplajw disk 0",
    profile: "hp-2200a",
    mean_ms: 26.39,
    demerit_ms: 1.06,
    demerit_percent: 4.0,
};
/// Figure 6.2 (b).
pub const HPLAJW_1: Part = Part {
    number: "6.2b",
    place: "Figure 6.2",
    disk: "hplajw disk 1",
    profile: "hp-2200a",
    mean_ms: 17.75,
    demerit_ms: 5.48,
    demerit_percent: 30.1,
};
/// Figure 6.3, left.
pub const SNAKE_5: Part = Part {
    number: "6.3a",
    place: "Figure 6.3",
    disk: "snake disk 5",
    profile: "hp-97560",
    mean_ms: 11.73,
    demerit_ms: 0.88,
    demerit_percent: 7.5,
};
/// Figure 6.3, right.
pub const SNAKE_6: Part = Part {
    number: "6.3b",
    place: "Figure 6.3",
    disk: "snake disk 6",
    profile: "hp-97560",
    mean_ms: 13.01,
    demerit_ms: 0.55,
    demerit_percent: 4.3,
};

/// Points of a curve: each so many thousandths of the requests.
const STEP_PER_MILLE: usize = 5;
/// What is longer is not drawn: it would leave no room for the rest.
const LAST_PER_MILLE: usize = 995;

/// A trace with measured service times, and the model that serves the same requests.
///
/// # Errors
/// If the trace has no measured times or cannot be read, or the disk cannot have a request.
pub fn measured(part: Part, trace: &Path) -> Result<(Figure, Vec<Compared>), ExperimentError> {
    let profile = Profile::load(part.profile)?;
    let mut model = DiskModel::new(&profile, 0).expect("the profile was checked");
    let mut reader = MeasuredReader::open(trace)?;
    let mut validation = Validation::default();
    while let Some(request) = reader.next_request()? {
        validation
            .replay(&mut model, &request)
            .map_err(|problem| reader.refused(&request, &problem))?;
    }
    let [modelled, measured] = validation.sorted_ms();
    let series = vec![curve("the drive", &measured), curve("our model of it", &modelled)];
    let demerit =
        validation.demerit().ok_or_else(|| TraceError::Empty { path: trace.to_owned() })?;
    let notes = vec![
        format!(
            "Demerit {:.2} ms, {:.1} % of the mean; the thesis' model: {:.2} ms, {:.1} %, after leaving out what is larger \
             than 32 KB. The trace is the one given; the thesis has 18 April to 11 May 1992.",
            demerit.demerit_ms,
            demerit.percent(),
            part.demerit_ms,
            part.demerit_percent,
        ),
        LONGEST.to_owned(),
    ];
    Ok((figure(part, series, notes), compared(part, &demerit)))
}

const LONGEST: &str = "The longest 0.5 % are not drawn.";

/// A made-up load, one request at a time, where there is no trace.
///
/// # Errors
/// If the disk cannot have a request.
pub fn made_up(
    part: Part,
    load: &WorkloadSpec,
) -> Result<(Figure, Vec<Compared>), ExperimentError> {
    let profile = Profile::load(part.profile)?;
    let mut model = DiskModel::new(&profile, 0).expect("the profile was checked");
    let refused = |problem: String| ExperimentError::Failed { what: part.disk.into(), problem };
    let requests = load.workload().map_err(|error| refused(error.to_string()))?;
    let mut now = Time::ZERO;
    let mut times = Vec::new();
    for request in requests {
        let operation = match request.operation {
            crate::trace::Operation::Read => DiskOperation::Read,
            crate::trace::Operation::Write => DiskOperation::Write,
            _ => continue,
        };
        let start = now.max(Time(request.time_ns));
        let crate::trace::Request { line, offset_bytes, size_bytes, .. } = request;
        let request = DiskRequest { id: line, operation, offset_bytes, size_bytes };
        let done = model.serve(start, request).map_err(|error| refused(error.to_string()))?;
        now = done.completed;
        times.push(now.since(start).0 as f64 / 1e6);
    }
    let mean_ms = times.iter().sum::<f64>() / times.len().max(1) as f64;
    times.sort_unstable_by(f64::total_cmp);
    let notes = vec![
        format!(
            "The trace of snake and its measured times are not to be had: this is our model under a made-up load \
             (docs/workloads.md), mean {mean_ms:.2} ms. The thesis' model had a mean of {:.2} ms and a demerit of {:.2} ms.",
            part.mean_ms, part.demerit_ms
        ),
        LONGEST.to_owned(),
    ];
    let row = row(part, "mean service time of the model", "ms", part.mean_ms, mean_ms);
    Ok((figure(part, vec![curve("our model, made-up load", &times)], notes), vec![row]))
}

/// How many percent take at most so long.
fn curve(name: &str, sorted_ms: &[f64]) -> Series {
    let last = sorted_ms.len().saturating_sub(1);
    let points = (0..=LAST_PER_MILLE)
        .step_by(STEP_PER_MILLE)
        .filter_map(|mille| Some((*sorted_ms.get(last * mille / 1000)?, mille as f64 / 10.0)));
    Series { name: name.into(), points: points.collect() }
}

fn figure(part: Part, series: Vec<Series>, notes: Vec<String>) -> Figure {
    Figure {
        name: format!("figure-{}-{}", part.number, part.disk.replace(' ', "-")),
        picture: Picture::Curves(Plot {
            title: format!(
                "Figure {}: service times, {} on {}",
                part.number, part.disk, part.profile
            ),
            x_axis: "service time, ms".into(),
            y_axis: "requests that take at most so long, %".into(),
            log_y: false,
            series,
        }),
        notes,
    }
}

fn compared(part: Part, demerit: &Demerit) -> Vec<Compared> {
    vec![
        row(part, "mean service time of the model", "ms", part.mean_ms, demerit.mean_ms),
        row(part, "demerit figure", "ms", part.demerit_ms, demerit.demerit_ms),
        row(part, "demerit figure, of the mean", "%", part.demerit_percent, demerit.percent()),
    ]
}

fn row(part: Part, what: &str, unit: &'static str, printed: f64, ours: f64) -> Compared {
    Compared {
        paper: THESIS,
        place: part.place,
        disk: part.disk.into(),
        what: what.into(),
        printed: Printed::Number(printed),
        ours,
        unit,
        percent_of_writes: None,
    }
}
