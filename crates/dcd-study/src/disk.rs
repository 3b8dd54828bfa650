//! The disk models: what follows from a profile, and how near it is to a drive that was measured.

use std::path::Path;

use dcd_sim::disk::model::DiskModel;
use dcd_sim::disk::profile::Profile;
use dcd_sim::disk::summary::Summary;
use dcd_sim::fit::{self, Fit, Halves};
use dcd_sim::trace::TraceError;
use dcd_sim::trace::measured::MeasuredReader;
use dcd_sim::validate::{Demerit, Validation};
use serde_json::{Value, json};

use crate::StudyError;
use crate::watch::{Counted, Watcher, go_on};

/// What follows from a profile.
pub fn facts(name: &str, profile: &Profile) -> Value {
    let summary = Summary::of(profile);
    let mut facts = json!({
        "name": name,
        "title": profile.title,
        "kind": if summary.mechanical.is_some() { "mechanical" } else { "simple" },
        "is_object_store": profile.is_object_store(),
        "is_host_managed": profile.is_host_managed(),
        "capacity_bytes": summary.capacity_bytes,
    });
    if let Some(arm) = &summary.mechanical {
        facts["rpm"] = json!(arm.rpm);
        facts["cylinders"] = json!(arm.cylinders);
        facts["surfaces"] = json!(arm.surfaces);
        facts["zones"] = json!(arm.zones);
        facts["sector_bytes"] = json!(arm.sector_bytes);
        facts["sectors_per_track"] = json!([arm.sectors_per_track.0, arm.sectors_per_track.1]);
        facts["mean_seek_ms"] = json!(arm.mean_seek_ms);
        facts["full_seek_ms"] = json!(arm.full_seek_ms);
        facts["media_bytes_per_second"] = json!(arm.media_bytes_per_second);
    }
    facts
}

/// How far the service times of a model are from those measured on a real drive.
///
/// # Errors
/// Of the trace, or because it is over.
pub fn validate(
    profile: &Profile,
    trace: &Path,
    seed: u64,
    watcher: &mut dyn Watcher,
) -> Result<Demerit, StudyError> {
    let mut model = DiskModel::new(profile, seed).expect("the profile was checked");
    let mut reader = MeasuredReader::open(trace)?;
    let mut validation = Validation::default();
    watcher.begin("replaying", Counted::Bytes);
    let is_over = watcher.is_over();
    let mut count = 0u64;
    while let Some(request) = reader.next_request()? {
        go_on(&is_over)?;
        validation
            .replay(&mut model, &request)
            .map_err(|problem| reader.refused(&request, &problem))?;
        count += 1;
        if count.is_multiple_of(100_000) {
            let (done, total) = reader.progress_bytes();
            watcher.update(done, total);
        }
    }
    watcher.end();
    validation.demerit().ok_or_else(|| TraceError::Empty { path: trace.to_owned() }.into())
}

/// Fits what a specification does not tell to the first half of the first `requests_max` requests
/// of a trace. `profile` is changed.
///
/// # Errors
/// Of the trace, or because it is over.
pub fn fit(
    profile: &mut Profile,
    trace: &Path,
    requests_max: u64,
    seed: u64,
    watcher: &mut dyn Watcher,
) -> Result<Fit, StudyError> {
    let mut model = DiskModel::new(profile, seed).expect("the profile was checked");
    let mut reader = MeasuredReader::open(trace)?;
    let (mut validation, mut requests) = (Validation::default(), Vec::new());
    while let Some(request) = reader.next_request()?
        && (requests.len() as u64) < requests_max
    {
        validation
            .replay(&mut model, &request)
            .map_err(|problem| reader.refused(&request, &problem))?;
        requests.push(request);
    }
    match requests.len() {
        0 => return Err(TraceError::Empty { path: trace.to_owned() }.into()),
        1 => return Err(StudyError::OneRequest { path: trace.to_owned() }),
        _ => {}
    }
    watcher.begin("fitting", Counted::Rounds);
    let is_over = watcher.is_over();
    let fit = fit::fit(profile, &requests, seed, &mut |done, total| {
        watcher.update(done.into(), total.into());
        go_on(&is_over).is_ok()
    });
    watcher.end();
    fit.ok_or(StudyError::Cancelled)
}

/// The same for programs.
pub fn fit_facts(fit: &Fit, disk: &str, trace: &Path) -> Value {
    let halves = |halves: &Halves| {
        let half = |half: &Demerit| {
            json!({
                "requests": half.requests,
                "mean_ms": half.mean_ms,
                "measured_mean_ms": half.measured_mean_ms,
                "demerit_ms": half.demerit_ms,
                "demerit_percent": half.percent(),
            })
        };
        json!({ "fitted": half(&halves.fitted), "held_out": half(&halves.held_out) })
    };
    let numbers = fit
        .numbers
        .iter()
        .map(|number| json!({ "field": number.field, "before": number.before, "now": number.now }));
    json!({
        "disk": disk,
        "trace": trace.display().to_string(),
        "numbers": numbers.collect::<Vec<_>>(),
        "before": halves(&fit.before),
        "after": halves(&fit.after),
    })
}

/// The same for programs.
pub fn validation_facts(demerit: &Demerit, disk: &str, trace: &Path) -> Value {
    json!({
        "disk": disk,
        "trace": trace.display().to_string(),
        "requests": demerit.requests,
        "mean_ms": demerit.mean_ms,
        "measured_mean_ms": demerit.measured_mean_ms,
        "demerit_ms": demerit.demerit_ms,
        "demerit_percent": demerit.percent(),
    })
}
