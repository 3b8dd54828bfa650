//! Shrinks a failing run on a volume to the fewest events that fail in the same way.
//!
//! 1. Events behind the failure were never recorded.
//! 2. Leave out halves, quarters, ... single events, as long as the rest fails alike.
//! 3. Nothing happens to members between a crash and the start after it, no start is interrupted;
//!    options are made plain.
//!
//! Two failures are alike if their texts are, numbers aside.

use super::run::{VolumeFailure, replay, tell};
use super::script::{Plain, VolumeScript};
use crate::minimise::signature;

/// Replays that a search may take.
const REPLAYS_MAX: u32 = 1_500;

struct Search {
    best: VolumeFailure,
    signature: String,
    replays_left: u32,
}

/// The shortest failing run that was found; at least as short as that of `failure`.
pub fn minimise(failure: &VolumeFailure) -> VolumeFailure {
    let mut search = Search {
        best: failure.clone(),
        signature: signature(&failure.violation.0),
        replays_left: REPLAYS_MAX,
    };
    loop {
        let before = search.best.script.clone();
        search.drop_events();
        search.simplify();
        if search.best.script == before || search.replays_left == 0 {
            return search.best;
        }
    }
}

/// The test that replays a failure, with what each event does.
pub fn test_of(failure: &VolumeFailure, why: &str) -> String {
    failure.script.to_test(why, &tell(&failure.script))
}

impl Search {
    fn accepts(&mut self, script: VolumeScript) -> bool {
        if self.replays_left == 0 || script == self.best.script {
            return false;
        }
        self.replays_left -= 1;
        match replay(&script, false) {
            Err(found) if signature(&found.violation.0) == self.signature => {
                // What was left out behind the failure is not in the script of this one.
                self.best = *found;
                true
            }
            _ => false,
        }
    }

    fn drop_events(&mut self) {
        let mut size = self.best.script.events.len().div_ceil(2);
        while size > 0 {
            // From behind: what comes before a failure is needed more often near its end.
            let mut end = self.best.script.events.len();
            while end > 0 {
                let start = end.saturating_sub(size);
                let mut shorter = self.best.script.clone();
                shorter.events.drain(start..end.min(shorter.events.len()));
                self.accepts(shorter);
                end = start.min(self.best.script.events.len());
            }
            size /= 2;
        }
    }

    fn simplify(&mut self) {
        for index in (0..self.best.script.events.len()).rev() {
            let event = self.best.script.events.get(index).copied();
            if let Some(calm) = event.and_then(super::script::Event::calmed) {
                let mut script = self.best.script.clone();
                script.events[index] = calm;
                self.accepts(script);
            }
        }
        for plain in Plain::ALL {
            let mut changed = self.best.script.clone();
            changed.plain.push(plain);
            if changed.options() != self.best.script.options() {
                let mut script = self.best.script.clone();
                script.plain.push(plain);
                self.accepts(script);
            }
        }
    }
}
