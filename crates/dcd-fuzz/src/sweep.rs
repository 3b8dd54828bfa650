//! Fails the n-th I/O, for every n until none is left: the method of SQLite and of Open CAS.
//!
//! For each script, each disk, each of read, write, flush and discard, once and from then on. The
//! script crashes in the middle, so recovery is swept as well. At the end the disks are healthy,
//! and everything must be as the contract says.

use std::time::Instant;

use dcd_engine::Device;

use crate::faults::{IoKind, SweepRule};
use crate::report::Report;
use crate::run::{Failure, Run, guard};
use crate::script::{Op, Script, Step};

/// Rules for each script.
pub const RULES: u64 = 16;
/// I/Os of a kind in a script, at most: it ends long before.
const PASSES_MAX: u64 = 5_000;

/// The rule with this number.
fn rule(index: u64, passes: u64) -> SweepRule {
    SweepRule {
        device: if index & 1 == 0 { Device::CacheDisk } else { Device::DataDisk },
        io: [IoKind::Read, IoKind::Write, IoKind::Flush, IoKind::Discard]
            [(index >> 1 & 3) as usize],
        passes,
        is_sticky: index & 8 != 0,
    }
}

/// A short script of all that there is, with one crash.
fn script(seed: u64) -> Script {
    let mut script = Script::with_faults(seed, &[]);
    let is_kept = |step: &Step| {
        let has_crash = matches!(step.0, Op::Shutdown | Op::CancelDetach | Op::Grow { .. });
        !has_crash && !matches!(step.0, Op::Probe { .. } | Op::Crash { .. })
    };
    script.steps.retain(is_kept);
    script.steps.truncate(60);
    script.steps.insert(script.steps.len() / 2, Step(Op::Idle, 1));
    script
        .steps
        .insert(script.steps.len() * 3 / 4, Step(Op::Crash { power: seed.is_multiple_of(2) }, 2));
    script.steps.push(Step(Op::Idle, 3));
    script
}

/// Sweeps the script of `seed` with one of the [`RULES`].
pub fn run_sweep(seed: u64, index: u64) -> Result<Report, Box<Failure>> {
    let script = script(seed);
    let mut report = Report::default();
    for passes in 0..PASSES_MAX {
        let mut step = 0;
        let outcome = guard(|| {
            let started = Instant::now();
            let mut run = Run::new(script.options.clone(), false);
            run.start()?;
            run.arm(rule(index, passes));
            run.go(&script.steps, &mut step)?;
            let has_swept = run.host.pending.has_swept;
            Ok((run.into_report(started), has_swept))
        });
        match outcome {
            Ok((done, has_swept)) => {
                report.add(&done);
                if !has_swept {
                    break;
                }
            }
            Err(violation) => {
                let mut script = script.clone();
                script.steps.insert(0, Step(Op::Sweep(index as u32, passes as u32), 0));
                return Err(Box::new(Failure { seed, violation, step: step + 1, script }));
            }
        }
    }
    Ok(report)
}

/// The rule that a step of a script names.
pub fn rule_of_step(index: u32, passes: u32) -> SweepRule {
    rule(u64::from(index), u64::from(passes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_another() {
        for index in 0..RULES {
            assert!((0..index).all(|other| rule(other, 0) != rule(index, 0)));
        }
    }

    #[test]
    fn one_script_is_swept() {
        for index in 0..RULES {
            if let Err(failure) = run_sweep(3, index) {
                panic!("{index}: {}\n{}", failure.violation, failure.script.to_test("x", ""));
            }
        }
    }
}
