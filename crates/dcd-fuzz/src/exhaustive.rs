//! All sequences of few operations, with every I/O a crash point (the method of ACE and
//! CrashMonkey).
//!
//! An alphabet of eighteen operations on three places; half of the sequences with limits of
//! checkpoints that two of them reach. Of each sequence only the last operation is probed: what
//! crashes in an earlier one is the last of a shorter sequence. After every input of it the machine
//! crashes: with all subsets of the writes that are not certain, if they are few, else with none,
//! all and some; with all of them torn; and by death of the process.
//!
//! Each sequence is run twice: once every operation ends before the next begins, once all are under
//! way together.

use std::time::Instant;

use dcd_engine::Limits;

use crate::crash::Crash;
use crate::disk::Fate;
use crate::model::Violation;
use crate::options::{Options, TINY};
use crate::random::Random;
use crate::report::Report;
use crate::run::{Failure, Run, guard};
use crate::script::{Op, Script, Step};

/// Writes that are not certain of which all subsets are tried.
const ALL_SUBSETS_MAX: usize = 4;
/// Subsets that are tried of more.
const SAMPLES: usize = 8;

/// First blocks of the three places: they are no witnesses.
const A: u64 = 22 * 8;
const B: u64 = 45 * 8;
const C: u64 = 62 * 8;

/// Number of operations.
pub const LETTERS: u64 = 18;

/// The alphabet.
fn letter(index: u64) -> &'static [Op] {
    const FILL: Op = Op::Write { start: C + 1, blocks: 103, fua: false };
    const DISCARDS: [Op; 6] =
        [discard(24), discard(26), discard(28), discard(30), discard(32), discard(34)];
    const fn discard(line: u64) -> Op {
        Op::Discard { start: line * 8, blocks: 8 }
    }
    match index {
        0 => &[Op::Write { start: A, blocks: 8, fua: false }],
        1 => &[Op::Write { start: B, blocks: 8, fua: false }],
        2 => &[Op::Write { start: A + 3, blocks: 2, fua: false }],
        3 => &[Op::Write { start: A + 5, blocks: 12, fua: false }],
        4 => &[Op::Write { start: C, blocks: 8, fua: true }],
        5 => &[Op::Write { start: B + 1, blocks: 1, fua: true }],
        6 => &[Op::Flush],
        7 => &[Op::Discard { start: A, blocks: 16 }],
        8 => &[Op::Zero { start: B + 2, blocks: 3, may_unmap: false, fua: false }],
        // Goes past the log.
        9 => &[Op::Write { start: A, blocks: 32, fua: false }],
        10 => &[Op::Idle],
        11 => &[Op::Crash { power: true }],
        // More than is left of a segment: a request in two records.
        12 => &[FILL],
        // A checkpoint, and segments that are used again.
        13 => &[FILL, Op::Settle, FILL, Op::Settle, FILL, Op::Flush, Op::Settle],
        14 => &[Op::Shutdown],
        15 => &[Op::Crash { power: false }],
        // Zero ranges: more than may gather, and with the next more than a start may find.
        16 => &[
            DISCARDS[0],
            DISCARDS[1],
            DISCARDS[2],
            DISCARDS[3],
            DISCARDS[4],
            DISCARDS[5],
            Op::Flush,
            Op::Settle,
        ],
        // One that is cut in pieces past the log.
        17 => &[
            Op::Discard { start: 48 * 8, blocks: 14 * 8 },
            Op::Write { start: 50 * 8, blocks: 32, fua: false },
            Op::Write { start: 56 * 8, blocks: 32, fua: false },
            Op::Flush,
            Op::Settle,
        ],
        _ => unreachable!("eighteen letters"),
    }
}

/// How many sequences there are up to this depth, each in both manners.
pub fn sequences(depth: u32) -> u64 {
    (1..=depth).map(|depth| 2 * LETTERS.pow(depth)).sum()
}

/// The sequence with this number: its letters, and whether all are under way together.
fn sequence(mut index: u64) -> (Vec<u64>, bool) {
    let mut depth = 1;
    while index >= 2 * LETTERS.pow(depth) {
        index -= 2 * LETTERS.pow(depth);
        depth += 1;
    }
    let together = index % 2 == 1;
    index /= 2;
    let letters = (0..depth).map(|place| index / LETTERS.pow(place) % LETTERS).collect();
    (letters, together)
}

/// Runs the sequence with this number. The seed decides options, and what is sampled.
pub fn run_sequence(seed: u64, index: u64) -> Result<Report, Box<Failure>> {
    let mut random = Random::new(seed ^ index.wrapping_mul(0x9e37_79b9));
    let options = draw_options(&mut random);
    let (letters, together) = sequence(index);
    let mut steps = Vec::new();
    let (last, first) = letters.split_last().expect("not empty");
    for index in first {
        steps.extend(letter(*index).iter().map(|op| Step(*op, random.bits() as u32)));
        if !together {
            steps.push(Step(Op::Settle, 0));
        }
    }
    let mut script = Script { options, steps };
    let outcome = guard(|| {
        let mut run = Run::new(script.options.clone(), false);
        let started = Instant::now();
        run.start()?;
        for step in &script.steps {
            run.step(*step)?;
        }
        for op in letter(*last) {
            let step = Step(*op, random.bits() as u32);
            script.steps.push(step);
            run.step_probed(step, &mut script.steps, &mut random)?;
        }
        Ok(run.into_report(started))
    });
    let step = script.steps.len();
    outcome.map_err(|violation| Box::new(Failure { seed, violation, step, script }))
}

/// As of a run, but small.
fn draw_options(random: &mut Random) -> Options {
    let options = Options::draw(random, &[]);
    let limits = if options.shears { TINY } else { Limits::MOST };
    Options { data_blocks: 640, bypass_bytes: 16 << 10, limits, ..options }.small()
}

impl Run {
    /// Does a step, and crashes after each of its inputs.
    fn step_probed(
        &mut self,
        step: Step,
        steps: &mut Vec<Step>,
        random: &mut Random,
    ) -> Result<(), Violation> {
        let is_long = matches!(step.0, Op::Idle | Op::Settle);
        if !is_long {
            self.step(step)?;
            self.probe_all(random)?;
        }
        // The I/Os of the operation, and, if it takes time, what time brings.
        let mut rounds = 0;
        loop {
            let op = match (self.host.running.has_ready_io(), step.0) {
                (true, _) => Op::EndIo,
                (false, Op::Idle) if rounds < 60 => Op::Wake,
                _ => return Ok(()),
            };
            let before = (self.host.running.ios.len(), self.host.running.now);
            let next = Step(op, random.bits() as u32);
            steps.push(next);
            self.step(next)?;
            rounds += 1;
            let is_still = before == (self.host.running.ios.len(), self.host.running.now);
            if op == Op::Wake && is_still || rounds > 500 {
                return Ok(());
            }
            self.probe_all(random)?;
        }
    }

    /// Crashes in every way that there is at this instant, or in some of very many.
    fn probe_all(&mut self, random: &mut Random) -> Result<(), Violation> {
        let uncertain = self.host.uncertain_writes();
        let subsets = match uncertain <= ALL_SUBSETS_MAX {
            true => (0..1u64 << uncertain).collect(),
            false => {
                let mut some = vec![0, u64::MAX];
                some.resize_with(SAMPLES, || random.bits());
                some
            }
        };
        for kept in subsets {
            let mut bits = kept;
            self.probe(random, |_| {
                let fate = if bits & 1 == 1 { Fate::Kept } else { Fate::Dropped };
                bits >>= 1;
                fate
            })?;
        }
        if uncertain > 0 {
            self.probe(random, |_| Fate::Torn)?;
        }
        self.crash(Crash::probe(false), random)
    }

    fn probe(
        &mut self,
        random: &mut Random,
        mut draw: impl FnMut(&mut Random) -> Fate,
    ) -> Result<(), Violation> {
        let started = Instant::now();
        let wreck = self.host.wreck_with(true, random, |random, _| draw(random));
        self.crash_to(wreck, Crash::probe(true), random, started)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sequence_has_one_number() {
        assert_eq!(sequences(1), 36);
        assert_eq!(sequences(3), 2 * (18 + 324 + 5832));
        let all: std::collections::BTreeSet<_> = (0..sequences(2)).map(sequence).collect();
        assert_eq!(all.len() as u64, sequences(2));
        assert!(all.iter().all(|(letters, _)| letters.len() <= 2));
    }

    #[test]
    fn all_sequences_of_two() {
        for index in 0..sequences(2) {
            if let Err(failure) = run_sequence(0, index) {
                panic!("{index}: {}\n{}", failure.violation, failure.script.to_test("x", ""));
            }
        }
    }
}
