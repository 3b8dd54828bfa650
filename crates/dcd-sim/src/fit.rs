//! Fitting what a specification does not tell: times that a controller and an arm add, or those of
//! a device without an arm, from service times that were measured.
//!
//! One number is changed at a time, up and down, by less and less, as long as the error becomes
//! smaller; the other half of the measurement, which nobody has looked at, tells whether that was
//! more than chance. What is fitted holds whatever the parts of the drive are in truth: one number
//! may bear what another should.

use crate::disk::model::{DiskModel, DiskOperation};
use crate::disk::profile::Profile;
use crate::trace::measured::MeasuredRequest;
use crate::validate::{Demerit, Validation};

/// A number that may be changed.
struct Number {
    field: &'static str,
    of: fn(&mut Profile) -> Option<&mut f64>,
}

macro_rules! numbers {
    ($($kind:ident . $($field:ident).+),+ $(,)?) => {
        &[$(Number {
            field: concat!(stringify!($kind), $(".", stringify!($field)),+),
            of: |profile| profile.$kind.as_mut().map(|it| &mut it.$($field).+),
        }),+]
    };
}

/// In the order in which they are tried. Not those that can be measured apart, or that a
/// specification has: geometry, speeds, seek curves.
const NUMBERS: &[Number] = numbers![
    mechanical.controller.read_ms,
    mechanical.controller.write_ms,
    mechanical.controller.read_ready_ms,
    mechanical.controller.write_ready_ms,
    mechanical.controller.read_completion_ms,
    mechanical.controller.write_completion_ms,
    mechanical.seek.settle_ms,
    mechanical.seek.write_settle_ms,
    mechanical.seek.head_switch_ms,
    mechanical.bus.acquisition_ms,
    simple.read_us.median,
    simple.read_us.p99,
    simple.write_us.median,
    simple.write_us.p99,
];

/// The first step: this part of the number, or of one of its units, whichever is more.
const FIRST_STEP: f64 = 0.25;
/// The steps become smaller so often, by half.
const HALVINGS: u32 = 7;
/// Times are compared one by one up to this: more is another turn of the platters.
const ABSOLUTE_ERROR_MS_MAX: f64 = 1.0;

/// A number that has changed.
#[derive(Clone, PartialEq, Debug)]
pub struct Fitted {
    /// Which: `mechanical.controller.read_ms`.
    pub field: &'static str,
    /// What it was.
    pub before: f64,
    /// What it is.
    pub now: f64,
}

/// How near a profile is, on the half that was fitted to and on the other.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Halves {
    /// The one that is fitted to.
    pub fitted: Demerit,
    /// The one that nobody looked at.
    pub held_out: Demerit,
}

/// What has come of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Fit {
    /// What has changed, in the order of the profile's fields.
    pub numbers: Vec<Fitted>,
    /// How near the profile was ...
    pub before: Halves,
    /// ... and is.
    pub after: Halves,
}

/// Changes `profile` so that it is nearer to the first half of `requests`, which are places of that
/// disk. `go_on` is told how many rounds are over, of how many, and may end it: `None`.
///
/// # Panics
/// If there are fewer than two requests, the disk has not all of their places, or the profile
/// describes no drive.
pub fn fit(
    profile: &mut Profile,
    requests: &[MeasuredRequest],
    seed: u64,
    go_on: &mut dyn FnMut(u32, u32) -> bool,
) -> Option<Fit> {
    let (first, _) = requests.split_at(requests.len() / 2);
    let before = halves(profile, requests, seed);
    let original = profile.clone();
    let mut error = error_of(profile, first, seed).expect("the profile describes a drive");
    let rounds = HALVINGS * NUMBERS.len() as u32;
    for (round, halving) in (0..HALVINGS).flat_map(|it| [it; NUMBERS.len()]).enumerate() {
        if !go_on(round as u32, rounds) {
            return None;
        }
        let number = &NUMBERS[round % NUMBERS.len()];
        let step = FIRST_STEP / f64::from(1 << halving);
        for direction in [step, -step] {
            let before = error;
            // As far as it goes.
            while let Some(better) = try_step(profile, number, direction, error, first, seed) {
                error = better;
            }
            if error < before {
                break;
            }
        }
    }
    let mut original = original;
    let numbers = NUMBERS.iter().filter_map(|number| {
        let before = *(number.of)(&mut original)?;
        let now = *(number.of)(profile)?;
        (before != now).then_some(Fitted { field: number.field, before, now })
    });
    let numbers = numbers.collect();
    Some(Fit { numbers, before, after: halves(profile, requests, seed) })
}

/// Changes a number by this part of it, or of a unit, if that is better: the error then.
fn try_step(
    profile: &mut Profile,
    number: &Number,
    step: f64,
    error: f64,
    requests: &[MeasuredRequest],
    seed: u64,
) -> Option<f64> {
    let value = (number.of)(profile)?;
    let before = *value;
    // A thousandth of a unit is less than anybody measures.
    *value = ((before + before.max(1.0) * step).max(0.0) * 1e3).round() / 1e3;
    let is_changed = *value != before;
    let better = if is_changed { error_of(profile, requests, seed) } else { None };
    let better = better.filter(|found| *found < error);
    if better.is_none() {
        *(number.of)(profile)? = before;
    }
    better
}

/// Reads and writes apart: the demerit, and how far the times are from each other one by one.
/// `None`: no drive can be like that.
fn error_of(profile: &Profile, requests: &[MeasuredRequest], seed: u64) -> Option<f64> {
    let mut model = DiskModel::new(profile, seed).ok()?;
    let mut whole = Validation::default();
    let mut apart: [Validation; 2] = Default::default();
    let mut absolute = [(0.0, 0u64); 2];
    for request in requests {
        let modelled = whole.replay(&mut model, request).ok()?;
        let side = usize::from(request.operation == DiskOperation::Write);
        apart[side].note(modelled, request);
        let error_ms = (modelled.0 as f64 - request.service_ns as f64).abs() / 1e6;
        absolute[side].0 += error_ms.min(ABSOLUTE_ERROR_MS_MAX);
        absolute[side].1 += 1;
    }
    let errors = apart
        .into_iter()
        .zip(absolute)
        .filter_map(|(side, (sum, count))| Some(side.demerit()?.demerit_ms + sum / count as f64));
    Some(errors.sum())
}

/// The second half goes on where the first has left the model.
fn halves(profile: &Profile, requests: &[MeasuredRequest], seed: u64) -> Halves {
    let mut model = DiskModel::new(profile, seed).expect("it describes a drive");
    let (first, second) = requests.split_at(requests.len() / 2);
    let mut now = Validation::default();
    let [fitted, held_out] = [first, second].map(|half| {
        let mut validation = now.go_on();
        for request in half {
            validation.replay(&mut model, request).expect("they are places of the disk");
        }
        now = validation.go_on();
        validation.demerit().expect("there are requests in both halves")
    });
    Halves { fitted, held_out }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use dcd_engine::Time;

    use super::*;
    use crate::disk::model::DiskRequest;
    use crate::random::Random;

    /// What a drive of this profile would have been measured with.
    fn measured(profile: &Profile, count: u64) -> Vec<MeasuredRequest> {
        let mut model = DiskModel::new(profile, 0).unwrap();
        let mut random = Random::new(5);
        let mut now = Time::ZERO;
        (0..count)
            .map(|line| {
                let operation =
                    if line % 3 == 0 { DiskOperation::Write } else { DiskOperation::Read };
                let offset_bytes = random.below(300_000) * 1024;
                let start = Time(now.0 + 3_000_000);
                let request = DiskRequest { id: line, operation, offset_bytes, size_bytes: 4096 };
                let done = model.serve(start, request).unwrap().completed;
                now = done;
                let (think_ns, service_ns) = (3_000_000, done.since(start).0);
                MeasuredRequest {
                    line,
                    column: 1,
                    operation,
                    offset_bytes,
                    size_bytes: 4096,
                    think_ns,
                    service_ns,
                }
            })
            .collect()
    }

    #[test]
    fn what_was_made_wrong_is_found_again() {
        let text = include_str!("../profiles/hp-2200a.toml");
        let truth = Profile::parse(Path::new("x.toml"), text).unwrap();
        let requests = measured(&truth, 3000);
        let mut wrong = truth.clone();
        let controller = &mut wrong.mechanical.as_mut().unwrap().controller;
        controller.read_ms += 2.0;
        controller.write_completion_ms += 1.0;
        let fit = fit(&mut wrong, &requests, 0, &mut |_, _| true).unwrap();
        assert!(fit.before.held_out.percent() > 3.0, "{fit:?}");
        assert!(fit.after.held_out.percent() < fit.before.held_out.percent() / 5.0, "{fit:?}");
        assert!(
            fit.numbers.iter().any(|it| it.field == "mechanical.controller.read_ms"),
            "{fit:?}"
        );
        assert_eq!(fit.after.fitted.requests + fit.after.held_out.requests, 3000);
    }

    #[test]
    fn times_of_a_device_without_an_arm_are_found() {
        let text = include_str!("../profiles/sata-ssd.toml");
        let truth = Profile::parse(Path::new("x.toml"), text).unwrap();
        let requests = measured(&truth, 2000);
        let mut other = truth.clone();
        let simple = other.simple.as_mut().unwrap();
        (simple.read_us.median, simple.read_us.p99) = (1000.0, 3000.0);
        let median = truth.simple.as_ref().unwrap().read_us.median;
        fit(&mut other, &requests, 1, &mut |_, _| true).unwrap();
        let found = other.simple.unwrap().read_us.median;
        assert!((found / median - 1.0).abs() < 0.05, "{found} for {median}");
    }

    #[test]
    fn it_may_be_ended() {
        let text = include_str!("../profiles/sata-ssd.toml");
        let mut profile = Profile::parse(Path::new("x.toml"), text).unwrap();
        let requests = measured(&profile, 10);
        assert_eq!(fit(&mut profile, &requests, 1, &mut |round, _| round < 2), None);
    }
}
