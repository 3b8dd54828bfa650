//! Sequences that nobody has recorded: the detector is told of every read, and what it has seen
//! often enough is kept like any other sequence, under a name of its own (`found-1`, ...).
//!
//! A sequence that is found again with other lines is kept anew under its name. One that another
//! sequence has most lines of already is not kept, nor one for which there is no room: then it may
//! be found again.

use std::collections::{BTreeMap, BTreeSet};

use super::Engine;
use crate::copies::Sequence;
use crate::copies::detector::{
    DetectedId, DetectedSequence, Detector, DetectorEvent, DetectorSettings,
};
use crate::io::NewSequence;
use crate::units::{FRAGMENTS_PER_LINE, LbaRange, Line, Time};

/// What sequences are called that were found.
const NAME: &str = "found-";
/// A sequence of which another one has so many percent of the lines is not kept as well.
const KNOWN_PERCENT: usize = 80;

/// The detector and the names of what it has found.
pub(super) struct Detection {
    detector: Detector,
    names: BTreeMap<DetectedId, String>,
}

impl Detection {
    pub(super) fn new(settings: DetectorSettings) -> Detection {
        Detection { detector: Detector::new(settings), names: BTreeMap::new() }
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.detector.memory_bytes()
    }
}

impl Engine {
    /// A read has come.
    pub(super) fn detect(&mut self, range: LbaRange) {
        let is_on =
            self.prefetch.is_serving() && !self.has_no_use_for_copies() && self.close.is_none();
        let Some(detection) = self.detection.as_mut().filter(|_| is_on) else { return };
        detection.detector.read(self.now, range);
        self.keep_what_was_found();
    }

    /// What was read is complete when it has been quiet for a while.
    pub(super) fn advance_detection(&mut self) -> bool {
        let now = self.now;
        let Some(detection) = &mut self.detection else { return false };
        if self.close.is_some() || detection.detector.wake_up().is_none_or(|at| now < at) {
            return false;
        }
        detection.detector.quiet(now);
        self.keep_what_was_found();
        true
    }

    pub(super) fn detection_wake_up(&self) -> Option<Time> {
        let detection = self.detection.as_ref().filter(|_| self.close.is_none())?;
        detection.detector.wake_up().filter(|at| *at > self.now)
    }

    fn keep_what_was_found(&mut self) {
        while let Some(event) = self.detection.as_mut().and_then(|it| it.detector.poll_event()) {
            match event {
                DetectorEvent::Confirmed(found) | DetectorEvent::Changed(found) => {
                    self.keep_found(&found);
                }
                // Runs are counted where they are served.
                DetectorEvent::Seen(_) => {}
                DetectorEvent::Forgotten(id) => {
                    self.detection.as_mut().expect("it told").names.remove(&id);
                }
            }
        }
    }

    fn keep_found(&mut self, found: &DetectedSequence) {
        let Some(detection) = &self.detection else { return };
        let name = detection.names.get(&found.id).cloned();
        let name = name.unwrap_or_else(|| self.unused_name());
        let result = match self.is_known(&name, &found.lines) {
            true => Ok(()),
            false => self.store_sequence(&NewSequence {
                name: name.clone(),
                ranges: ranges_of(&found.lines),
                occurrences: found.occurrences.into(),
                is_detected: true,
            }),
        };
        let Some(detection) = &mut self.detection else { return };
        match result {
            Ok(()) => {
                detection.names.insert(found.id, name);
            }
            Err(_) => {
                detection.names.remove(&found.id);
                detection.detector.forget(found.id);
            }
        }
    }

    fn unused_name(&self) -> String {
        let taken: BTreeSet<&str> = self
            .detection
            .iter()
            .flat_map(|it| it.names.values())
            .map(String::as_str)
            .chain(self.copies.sequences().map(|sequence| sequence.label().name.as_str()))
            .collect();
        let mut names = (1..).map(|number| format!("{NAME}{number}"));
        names.find(|name| !taken.contains(name.as_str())).expect("numbers without end")
    }

    /// Whether another sequence has most of these lines.
    fn is_known(&self, name: &str, lines: &[Line]) -> bool {
        let mut shared: BTreeMap<_, usize> = BTreeMap::new();
        for line in lines {
            let places = self.copies.places(*line).filter_map(|slot| self.copies.place_of(slot));
            for (id, _) in places {
                *shared.entry(id).or_default() += 1;
            }
        }
        shared.iter().any(|(id, shared)| {
            let is_other = self.copies.sequence(*id).is_some_and(|it| it.label().name != name);
            is_other && shared * 100 >= lines.len() * KNOWN_PERCENT
        })
    }

    /// After a start: what was found before need not be found again.
    pub(super) fn restore_detected(&mut self) {
        let Some(mut detection) = self.detection.take() else { return };
        for sequence in self.copies.sequences().filter(|it| it.label().is_detected) {
            let lines: Vec<Line> =
                self.lines_of(sequence).into_iter().map(|(line, _)| line).collect();
            let occurrences = sequence.label().runs.saturating_add(1);
            if let Some(id) = detection.detector.restore(&lines, occurrences) {
                detection.names.insert(id, name_of(sequence));
            }
        }
        self.detection = Some(detection);
    }
}

fn name_of(sequence: &Sequence) -> String {
    sequence.label().name.clone()
}

/// Lines in order, neighbours together.
fn ranges_of(lines: &[Line]) -> Vec<LbaRange> {
    let runs = lines.chunk_by(|line, next| line.0 + 1 == next.0);
    let range = |run: &[Line]| LbaRange::new(run[0].lba().0, run.len() as u64 * FRAGMENTS_PER_LINE);
    runs.map(range).collect()
}
