//! How the detector behaves.

use crate::units::Duration;

/// What is a sequence, and how much memory finding them may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DetectorSettings {
    /// Lines of the history in which the first occurrence is looked for: this much may be read
    /// (long sequential reads aside) between the first two starts of a program. At most 2^24.
    pub history_lines: u32,
    /// Sequences and candidates at most. At most 4096.
    pub candidates_max: u32,
    /// Lines of all of them together at most. At most 2^24.
    pub candidate_lines_max: u32,
    /// Lines of a sequence at least. At least 16.
    pub lines_min: u32,
    /// Lines of a sequence at most; a longer one becomes several. At most 65,535.
    pub lines_max: u32,
    /// How often the arm has to go elsewhere within a sequence at least. A file that is read from
    /// its beginning to its end is not worth a copy.
    pub jumps_min: u32,
    /// Lines of a sequence for each time that the arm goes elsewhere, at most.
    pub lines_per_jump_max: u32,
    /// Occurrences until a sequence is told: the first is remembered, the others are recognised.
    /// From 2.
    pub confirmations: u32,
    /// Quiet time that ends an occurrence.
    pub gap: Duration,
    /// Lines of others that end an occurrence: a start under load may not be followed by quiet.
    /// From 64 to 2^20.
    pub gap_lines: u32,
    /// Lines of a sequential read that are looked at; to read the rest the arm does not move.
    pub run_lines_max: u32,
    /// A candidate that is not seen for so long is given up. Sequences are not.
    pub forget_after: Duration,
    /// A candidate that is not seen while so many lines are read is given up. Sequences are not.
    pub forget_after_lines: u64,
}

impl Default for DetectorSettings {
    /// For a computer that is used by people: 256 MiB of reads are remembered; 64 sequences of up
    /// to 128 MiB, 512 MiB together. Takes 9 MB.
    fn default() -> DetectorSettings {
        DetectorSettings {
            history_lines: 1 << 16,
            candidates_max: 64,
            candidate_lines_max: 1 << 17,
            lines_min: 32,
            lines_max: 1 << 15,
            jumps_min: 16,
            lines_per_jump_max: 128,
            confirmations: 3,
            gap: Duration::from_secs(2),
            gap_lines: 1024,
            run_lines_max: 256,
            forget_after: Duration::from_secs(30 * 24 * 3600),
            forget_after_lines: 1 << 24,
        }
    }
}

impl DetectorSettings {
    /// With each value within the limits of its description.
    pub(super) fn limited(self) -> DetectorSettings {
        let candidate_lines_max = self.candidate_lines_max.clamp(16, 1 << 24);
        let lines_max = self.lines_max.min(candidate_lines_max).clamp(16, u16::MAX.into());
        DetectorSettings {
            history_lines: self.history_lines.clamp(64, 1 << 24),
            candidates_max: self.candidates_max.clamp(1, 4096),
            candidate_lines_max,
            lines_min: self.lines_min.clamp(16, lines_max),
            lines_max,
            confirmations: self.confirmations.max(2),
            gap_lines: self.gap_lines.clamp(64, 1 << 20),
            ..self
        }
    }
}
