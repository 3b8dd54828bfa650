//! Shrinks a failing run to the shortest script that fails in the same way.
//!
//! 1. Cut off what comes after the failure.
//! 2. Leave out halves, quarters, ... single steps, as long as the rest fails alike.
//! 3. Make what is left plain: options as by default, small ranges, no FUA.
//!
//! Two failures are alike if their texts are, numbers aside.

use crate::options::Options;
use crate::run::{Failure, replay};
use crate::script::{Op, Script, Step};

/// Replays that a search may take.
const REPLAYS_MAX: u32 = 3_000;

/// A search.
struct Search {
    best: Failure,
    signature: String,
    replays_left: u32,
}

/// The shortest failing script that was found; at least as short as that of `failure`.
pub fn minimise(failure: &Failure) -> Failure {
    let mut search = Search {
        best: failure.clone(),
        signature: signature(&failure.violation.0),
        replays_left: REPLAYS_MAX,
    };
    let mut short = failure.script.clone();
    short.steps.truncate(failure.step + 1);
    search.accepts(short);
    loop {
        let before = search.best.script.clone();
        search.drop_steps();
        search.simplify_options();
        search.simplify_steps();
        if search.best.script == before || search.replays_left == 0 {
            return search.best;
        }
    }
}

/// The text of a violation without its numbers.
pub(crate) fn signature(text: &str) -> String {
    let text = text.split([':', ',']).next().unwrap_or(text);
    text.chars().filter(|c| !c.is_ascii_digit()).collect()
}

impl Search {
    fn accepts(&mut self, script: Script) -> bool {
        if self.replays_left == 0 || script == self.best.script {
            return false;
        }
        self.replays_left -= 1;
        match replay(&script, false) {
            Err(found) if signature(&found.violation.0) == self.signature => {
                self.best = Failure { seed: self.best.seed, ..*found };
                true
            }
            _ => false,
        }
    }

    fn drop_steps(&mut self) {
        let mut size = self.best.script.steps.len().div_ceil(2);
        while size > 0 {
            let mut at = 0;
            while at < self.best.script.steps.len() {
                let mut shorter = self.best.script.clone();
                let end = (at + size).min(shorter.steps.len());
                shorter.steps.drain(at..end);
                if !self.accepts(shorter) {
                    at += size;
                }
            }
            size /= 2;
        }
    }

    fn simplify_options(&mut self) {
        let plain = Options::default();
        macro_rules! try_plain {
            ($($field:ident),+) => {
                $(
                    let mut script = self.best.script.clone();
                    script.options.$field = plain.$field.clone();
                    self.accepts(script);
                )+
            };
        }
        try_plain!(segments, segment_buffers, data_blocks, physical_sector, logical_block, ack);
        try_plain!(policy, max_delay_ms, bypass_bytes, idle_ms, dirty_high, one_disk, verify_reads);
        try_plain!(destage_bytes_max, destage_writes_max, full_timeout_s, cannot_zero);
        try_plain!(shears, overlaps, early_reads, faults);
        try_plain!(copy_pages, hot_blocks, read_ahead_bytes, sequence_percent);
    }

    fn simplify_steps(&mut self) {
        for index in 0..self.best.script.steps.len() {
            for plainer in plainer(self.best.script.steps[index]) {
                let mut script = self.best.script.clone();
                script.steps[index] = plainer;
                self.accepts(script);
            }
        }
    }
}

/// Plainer forms of a step, the plainest first.
fn plainer(step: Step) -> Vec<Step> {
    let Step(op, seed) = step;
    let mut forms = Vec::new();
    let ranges = |start: u64, blocks: u64| {
        [(start / 8 * 8, 8), (start / 8 * 8, blocks.next_multiple_of(8)), (start, blocks / 2)]
            .into_iter()
            .filter(move |range| range.1 > 0 && *range != (start, blocks))
    };
    match op {
        Op::Write { start, blocks, fua } => {
            if fua {
                forms.push(Op::Write { start, blocks, fua: false });
            }
            for (start, blocks) in ranges(start, blocks) {
                forms.push(Op::Write { start, blocks, fua });
            }
        }
        Op::Zero { start, blocks, may_unmap, fua } => {
            forms.push(Op::Discard { start, blocks });
            for (start, blocks) in ranges(start, blocks) {
                forms.push(Op::Zero { start, blocks, may_unmap, fua });
            }
        }
        Op::Discard { start, blocks } => {
            forms
                .extend(ranges(start, blocks).map(|(start, blocks)| Op::Discard { start, blocks }));
        }
        Op::Read { start, blocks } => {
            forms.extend(ranges(start, blocks).map(|(start, blocks)| Op::Read { start, blocks }));
        }
        Op::Store { name, line, lines, step, is_detected } => {
            if is_detected {
                forms.push(Op::Store { name, line, lines, step, is_detected: false });
            }
            if step != 1 {
                forms.push(Op::Store { name, line, lines, step: 1, is_detected });
            }
            if lines > 1 {
                forms.push(Op::Store { name, line, lines: lines / 2, step, is_detected });
            }
        }
        Op::ChangeDetached { start, blocks } => {
            let ranges = ranges(start, blocks);
            forms.extend(ranges.map(|(start, blocks)| Op::ChangeDetached { start, blocks }));
            forms.push(Op::CancelDetach);
        }
        Op::CancelDetach => forms.push(Op::Shutdown),
        Op::EndIo => forms.push(Op::Settle),
        Op::Settle => forms.push(Op::Idle),
        Op::Pass(_) => forms.push(Op::Wake),
        _ => {}
    }
    let mut steps: Vec<Step> = forms.into_iter().map(|op| Step(op, seed)).collect();
    if seed != 0 {
        steps.push(Step(op, 0));
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_alike_without_their_numbers() {
        assert_eq!(
            signature("block 12 shows change 3, x"),
            signature("block 7 shows change 99, y")
        );
        assert_ne!(signature("block 12 shows change 3"), signature("change 3 is torn: Change"));
    }

    #[test]
    fn every_plainer_form_is_another() {
        for op in [
            Op::Write { start: 9, blocks: 3, fua: true },
            Op::Zero { start: 8, blocks: 8, may_unmap: true, fua: false },
            Op::Discard { start: 8, blocks: 8 },
            Op::EndIo,
            Op::Pass(4),
        ] {
            let step = Step(op, 5);
            assert!(!plainer(step).is_empty());
            assert!(plainer(step).iter().all(|plain| *plain != step));
        }
    }
}
