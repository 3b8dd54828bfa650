//! Runs the requests of [`dcd_protocol::sequences`].

use std::io::{self, BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use dcd_client::server::Until;
use dcd_engine::copies::Sequence;
use dcd_engine::stats::Translation;
use dcd_engine::units::{LINE_SIZE, LbaRange, Line};
use dcd_engine::{Engine, NewSequence, Operation, SequenceRequest};
use dcd_protocol::sequences::{SequenceList, SequenceReport, TranslationReport};
use dcd_protocol::{Code, LINE_BYTES_MAX, SequenceCommand, read_line};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::control::answers::{answer, failure, run_with_signs_of_life, success};
use crate::event_loop::submitter::Submitter;

/// Ranges that a sequence may be sent in, and that all clients together may be sending (128 MiB):
/// more are more than fits into any memory for them.
const RANGES_MAX: usize = 8 << 20;
/// The ranges of a sequence must be there after this time: others wait for their memory.
const RANGES_PATIENCE: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
struct RangesLine {
    #[serde(default)]
    ranges: Vec<(u64, u64)>,
    #[serde(default)]
    end: bool,
}

/// The memory for ranges of sequences that are being sent, of all clients together.
pub struct RangesBudget {
    taken: AtomicUsize,
    most: usize,
}

impl Default for RangesBudget {
    fn default() -> RangesBudget {
        RangesBudget { taken: AtomicUsize::new(0), most: RANGES_MAX }
    }
}

/// What one client has of it.
struct Share<'a> {
    budget: &'a RangesBudget,
    ranges: usize,
}

impl Share<'_> {
    /// Takes more; false: there is no room for so many.
    fn grow(&mut self, ranges: usize) -> bool {
        let RangesBudget { taken, most } = self.budget;
        if taken.fetch_add(ranges, Ordering::AcqRel) + ranges > *most {
            taken.fetch_sub(ranges, Ordering::AcqRel);
            return false;
        }
        self.ranges += ranges;
        true
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.budget.taken.fetch_sub(self.ranges, Ordering::AcqRel);
    }
}

/// Runs a request; the last line of the answer is returned.
pub(crate) fn run(
    reader: &mut BufReader<&UnixStream>,
    submitter: &Submitter,
    budget: &RangesBudget,
    command: SequenceCommand,
) -> io::Result<Value> {
    let stream = *reader.get_ref();
    let mut share = Share { budget, ranges: 0 };
    let deadline = Instant::now() + RANGES_PATIENCE;
    let request = match command {
        SequenceCommand::List => return Ok(list(submitter)),
        SequenceCommand::Lines { name } => return Ok(lines(submitter, name)),
        SequenceCommand::Translate { line } => return Ok(translate(submitter, line)),
        SequenceCommand::Store { name } => {
            match read_ranges_of(&mut Until::new(reader, deadline), deadline, &mut |more| {
                share.grow(more)
            })? {
                Ok(ranges) => {
                    let (occurrences, is_detected) = (0, false);
                    let new = NewSequence { name, ranges, occurrences, is_detected };
                    SequenceRequest::Store(Box::new(new))
                }
                Err(refusal) => return Ok(refusal),
            }
        }
        SequenceCommand::Remove { name } => SequenceRequest::Remove { name },
        SequenceCommand::Clear => SequenceRequest::Clear,
        SequenceCommand::Pin { name, pinned } => SequenceRequest::Pin { name, is_pinned: pinned },
        SequenceCommand::Save => SequenceRequest::Save,
        SequenceCommand::Serve { on } => SequenceRequest::Serve { on },
    };
    let run = |request| {
        let operation = Operation::Sequence(request);
        Ok::<_, io::Error>(run_with_signs_of_life(stream, submitter, operation)?.result)
    };
    // The engine makes removals and pins durable before it answers; a sequence that is stored asks
    // for it.
    let is_stored = matches!(request, SequenceRequest::Store(_));
    let result = match run(request)? {
        Ok(()) if is_stored => run(SequenceRequest::Save)?,
        result => result,
    };
    Ok(answer(result))
}

/// The ranges that follow a request; a refusal if they are none.
pub fn read_ranges(reader: &mut impl BufRead) -> io::Result<Result<Vec<LbaRange>, Value>> {
    let (budget, never) = (RangesBudget::default(), Instant::now() + RANGES_PATIENCE);
    let mut share = Share { budget: &budget, ranges: 0 };
    read_ranges_of(reader, never, &mut |more| share.grow(more))
}

fn read_ranges_of(
    reader: &mut impl BufRead,
    deadline: Instant,
    grow: &mut dyn FnMut(usize) -> bool,
) -> io::Result<Result<Vec<LbaRange>, Value>> {
    let mut ranges = Vec::new();
    loop {
        let line = match read_line(reader, LINE_BYTES_MAX) {
            Ok(Some(line)) if Instant::now() < deadline => line,
            Ok(None) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() != io::ErrorKind::TimedOut => return Err(error),
            Ok(Some(_)) | Err(_) => {
                let seconds = RANGES_PATIENCE.as_secs();
                let error = format!("the ranges of a sequence did not come within {seconds} s");
                return Ok(Err(failure(Code::TooLate, &error, "send all of them at once")));
            }
        };
        let parsed: Result<RangesLine, _> = serde_json::from_slice(&line);
        let RangesLine { ranges: more, end } = match parsed {
            Ok(parsed) => parsed,
            Err(error) => {
                let what = format!("expected ranges of a sequence, found something else: {error}");
                return Ok(Err(failure(
                    Code::BadRequest,
                    &what,
                    "send {\"ranges\":[[0,8]]} lines and {\"end\":true}",
                )));
            }
        };
        if end {
            return Ok(Ok(ranges));
        }
        let fits = |(start, blocks): &(u64, u64)| {
            start.checked_add(*blocks).is_some_and(|end| end < 1 << 52)
        };
        if ranges.len() + more.len() > RANGES_MAX || !more.iter().all(fits) {
            return Ok(Err(failure(
                Code::OutOfRange,
                "the sequence is too long, or no disk has these blocks",
                "send ranges as [first block, number of blocks], of 512 bytes",
            )));
        }
        if !grow(more.len()) {
            return Ok(Err(failure(
                Code::TooMuch,
                "other clients are sending sequences, and there is no memory for more",
                "try again when they have finished",
            )));
        }
        ranges.extend(more.iter().map(|(start, blocks)| LbaRange::new(*start, *blocks)));
    }
}

fn ask<T: Send + 'static>(
    submitter: &Submitter,
    function: impl FnOnce(&Engine) -> T + Send + 'static,
) -> Result<T, Value> {
    let asked = submitter.ask(|snapshot| snapshot.core.engine().map(function));
    asked.flatten().ok_or_else(|| {
        failure(
            Code::NotRunning,
            "there is no cache that runs",
            "sequences are kept by `dcd serve`, in its read area",
        )
    })
}

fn report_of(engine: &Engine, sequence: &Sequence) -> SequenceReport {
    let label = sequence.label();
    let (runs, lines_served) = engine.runs_of(sequence);
    SequenceReport {
        name: label.name.clone(),
        detected: label.is_detected,
        pinned: label.is_pinned,
        lines: engine.lines_of(sequence).len() as u64,
        stale: sequence.stale().into(),
        runs,
        lines_served,
        off: sequence.is_off(),
    }
}

pub(crate) fn list(submitter: &Submitter) -> Value {
    let asked = ask(submitter, |engine| {
        let status = engine.status();
        SequenceList {
            sequences: engine.sequences().map(|it| report_of(engine, it)).collect(),
            serving: engine.serves_sequences(),
            read_area_bytes: status.copies.slots * LINE_SIZE,
            copied_bytes: status.copies.valid * LINE_SIZE,
        }
    });
    match asked {
        Ok(list) => {
            let mut value = json!(list);
            value["ok"] = json!(true);
            value
        }
        Err(refusal) => refusal,
    }
}

fn lines(submitter: &Submitter, name: String) -> Value {
    let asked = ask(submitter, move |engine| {
        let found = engine.sequences().find(|sequence| sequence.label().name == name);
        found.map(|sequence| {
            let lines = engine.lines_of(sequence).into_iter();
            lines.map(|(line, is_copied)| (line.0, u8::from(is_copied))).collect::<Vec<_>>()
        })
    });
    match asked {
        Ok(Some(lines)) => json!({ "ok": true, "lines": lines }),
        Ok(None) => {
            let error = dcd_engine::SequenceError::NoSuchSequence;
            answer(Err(error.into()))
        }
        Err(refusal) => refusal,
    }
}

fn translate(submitter: &Submitter, line: u64) -> Value {
    let asked = ask(submitter, move |engine| {
        let name = |id| {
            let mut sequences = engine.sequences();
            let found = sequences.find(|sequence| sequence.label().id == id);
            found.map(|sequence| sequence.label().name.clone())
        };
        let report = |translation: Translation| TranslationReport {
            offset: translation.offset,
            sequence: translation.place.and_then(|(id, _)| name(id)),
            place: translation.place.map(|(_, place)| place),
            valid: translation.is_valid,
        };
        engine.translate(Line(line)).into_iter().map(report).collect::<Vec<_>>()
    });
    match asked {
        Ok(translations) => {
            let mut value = success();
            value["translations"] = json!(translations);
            value
        }
        Err(refusal) => refusal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends lines without an end, as a client that never finishes; whether it was refused.
    fn send(share: &mut Share<'_>, lines: usize) -> bool {
        let text = "{\"ranges\":[[0,8],[8,8],[16,8],[24,8]]}\n".repeat(lines);
        let deadline = Instant::now() + RANGES_PATIENCE;
        let read = read_ranges_of(&mut text.as_bytes(), deadline, &mut |more| share.grow(more));
        // One that is not refused goes on until the client has gone.
        read.is_ok_and(|read| read.unwrap_err().to_string().contains("no memory for more"))
    }

    #[test]
    fn clients_that_never_finish_have_one_budget_together() {
        let budget = RangesBudget { taken: AtomicUsize::new(0), most: 20 };
        let mut shares: Vec<_> = (0..16).map(|_| Share { budget: &budget, ranges: 0 }).collect();
        let refused: Vec<bool> = shares.iter_mut().map(|share| send(share, 3)).collect();
        assert_eq!(refused[..3], [false, true, true]);
        assert_eq!(budget.taken.load(Ordering::Relaxed), 20);
        // Who goes gives back what it has.
        drop(shares);
        assert_eq!(budget.taken.load(Ordering::Relaxed), 0);
        assert!(!send(&mut Share { budget: &budget, ranges: 0 }, 5));
    }

    #[test]
    fn a_sequence_that_does_not_come_in_time_is_refused() {
        let text = "{\"ranges\":[[0,8]]}\n{\"end\":true}\n";
        let read = read_ranges_of(&mut text.as_bytes(), Instant::now(), &mut |_| true).unwrap();
        assert!(read.unwrap_err().to_string().contains("did not come within"));
    }
}
