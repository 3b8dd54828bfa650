//! What is said of a drain or detach that gets nothing more to the data-disk: what is left, and
//! why.

use dcd_engine::Engine;
use dcd_engine::stats::Obstacle;
use dcd_engine::units::LINE_SIZE;
use serde::{Deserialize, Serialize};

use crate::device::network::store_report::StoreReport;
use crate::report::trouble_words::{LOOK_AT_SERVER, SEE_DMESG, way_out};
use crate::report::volumes::members_in_words;
use crate::units_text::format_size;

/// It got on no more.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StuckReport {
    /// Bytes that are newer than on the data-disk, in whole lines of 4 KiB.
    pub dirty_bytes: u64,
    /// Bytes that are to become zeroes there.
    pub zero_bytes: u64,
    /// What it waited for.
    pub why: String,
    /// How that may come to an end.
    pub way_out: String,
}

impl StuckReport {
    /// What the engine says; `None`: it has ended.
    pub(crate) fn of(
        lines: u64,
        zero_lines: u64,
        engine: Option<&Engine>,
        store: Option<&StoreReport>,
    ) -> StuckReport {
        let (mut why, mut way_out) = reason(engine.and_then(Engine::obstacle));
        if let Some(store) = store {
            // What the store says is why, whatever that has led to here.
            if let Some(problem) = &store.problem {
                (why, way_out) = (problem.clone(), store.hint.clone().unwrap_or_default());
            } else if way_out == SEE_DMESG {
                way_out = LOOK_AT_SERVER.to_owned();
            }
        }
        let (dirty_bytes, zero_bytes) = (lines * LINE_SIZE, zero_lines * LINE_SIZE);
        StuckReport { dirty_bytes, zero_bytes, why, way_out }
    }

    /// `nothing more gets to the data-disk: no space; 304 KiB stay in the cache`.
    pub fn words(&self) -> String {
        let (dirty, zero) = (format_size(self.dirty_bytes), format_size(self.zero_bytes));
        let left = match (self.dirty_bytes, self.zero_bytes) {
            (_, 0) => format!("{dirty} stay in the cache"),
            (0, _) => format!("{zero} stay to be zeroed"),
            _ => format!("{dirty} stay in the cache, and {zero} to be zeroed"),
        };
        format!("nothing more gets to the data-disk, because {}: {left}", self.why)
    }
}

fn reason(obstacle: Option<Obstacle>) -> (String, String) {
    let (why, way_out) = match obstacle {
        Some(Obstacle::DataDisk(trouble)) => {
            let what = match (trouble.is_whole, trouble.blocked_lines) {
                (true, _) => "it takes nothing".to_owned(),
                (false, 0) => "it does not take some of it".to_owned(),
                (false, 1) => "it does not take 1 line of 4 KiB".to_owned(),
                (false, lines) => format!("it does not take {lines} lines of 4 KiB"),
            };
            (format!("{what} ({})", trouble.error), way_out(trouble.error))
        }
        Some(Obstacle::Members(members)) => (
            format!("{} of the volume is away, and nobody has the same", members_in_words(members)),
            "Bring the disk back, or replace it (--replace-member)",
        ),
        Some(Obstacle::WriteNotEnded) => (
            "a write to it that was given up has not ended, and must not overtake another".into(),
            "See dmesg, and start dcd again if the disk never answers: what is in the cache stays there",
        ),
        Some(Obstacle::CacheDisk) => {
            ("the cache-disk cannot be read".into(), "See dmesg for its errors")
        }
        Some(Obstacle::Window) => (
            "the window hook has not ended well".into(),
            "`dcd status` shows what it says: mend it, or set another destage-policy",
        ),
        None => ("it is busy otherwise".into(), "`dcd status` shows what it does"),
    };
    (why, way_out.to_owned())
}

#[cfg(test)]
mod tests {
    use dcd_engine::IoError;
    use dcd_engine::stats::DestageTrouble;
    use dcd_engine::units::Time;

    use super::*;

    #[test]
    fn what_is_stuck_is_told_with_its_reason_and_a_way_out() {
        let trouble = |is_whole, blocked_lines| {
            let error = IoError::NoSpace;
            DestageTrouble { error, since: Time::ZERO, is_whole, blocked_lines, retry_at: None }
        };
        let told = |obstacle, lines, zero_lines| {
            let (why, way_out) = reason(obstacle);
            let (dirty_bytes, zero_bytes) = (lines * LINE_SIZE, zero_lines * LINE_SIZE);
            let report = StuckReport { dirty_bytes, zero_bytes, why, way_out };
            (report.words(), report.way_out)
        };
        let (words, way_out) = told(Some(Obstacle::DataDisk(trouble(true, 0))), 2, 0);
        assert!(
            words.contains("it takes nothing (no space")
                && words.ends_with("8 KiB stay in the cache"),
            "{words}"
        );
        assert!(way_out.contains("Free some space"));
        let (words, _) = told(Some(Obstacle::DataDisk(trouble(false, 3))), 3, 256);
        assert!(
            words.contains("3 lines of 4 KiB") && words.contains("1 MiB to be zeroed"),
            "{words}"
        );
        let (words, way_out) = told(Some(Obstacle::Members(0b101)), 0, 1);
        assert!(
            words.contains("members 0, 2") && words.ends_with("4 KiB stay to be zeroed"),
            "{words}"
        );
        assert!(way_out.contains("--replace-member"));
        for obstacle in [Some(Obstacle::WriteNotEnded), Some(Obstacle::CacheDisk), None] {
            let (words, way_out) = told(obstacle, 1, 0);
            assert!(!words.is_empty() && !way_out.is_empty());
        }
    }
}
