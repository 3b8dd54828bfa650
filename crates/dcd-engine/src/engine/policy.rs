//! Which segment is destaged next. A policy sees the candidates and names one; it is the same code
//! in the daemon and in the simulator.

use crate::config::DestagePolicyKind;
use crate::units::{SegmentIndex, SegmentSerial};

/// A segment that could be destaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Candidate {
    /// Which.
    pub(crate) index: SegmentIndex,
    /// When it was filled: higher is newer.
    pub(crate) serial: SegmentSerial,
    /// How much of it is still wanted.
    pub(crate) live_slots: u32,
}

/// Chooses the segment to destage.
pub(crate) trait DestagePolicy {
    /// One of the candidates, or none if there is none.
    fn choose(&self, candidates: &mut dyn Iterator<Item = Candidate>) -> Option<Candidate>;
}

/// The oldest first (NT paper, section 3.4.2).
pub(crate) struct FirstWriteFirst;
/// The newest first (USENIX'99, section 3.5.3).
pub(crate) struct LastWriteFirst;
/// The one with least to move first, the older of equals (USENIX'99, section 3.5.3).
pub(crate) struct LeastValidFirst;

impl DestagePolicy for FirstWriteFirst {
    fn choose(&self, candidates: &mut dyn Iterator<Item = Candidate>) -> Option<Candidate> {
        candidates.min_by_key(|candidate| candidate.serial)
    }
}

impl DestagePolicy for LastWriteFirst {
    fn choose(&self, candidates: &mut dyn Iterator<Item = Candidate>) -> Option<Candidate> {
        candidates.max_by_key(|candidate| candidate.serial)
    }
}

impl DestagePolicy for LeastValidFirst {
    fn choose(&self, candidates: &mut dyn Iterator<Item = Candidate>) -> Option<Candidate> {
        candidates.min_by_key(|candidate| (candidate.live_slots, candidate.serial))
    }
}

impl DestagePolicyKind {
    /// The policy of this name.
    pub(crate) fn policy(self) -> &'static dyn DestagePolicy {
        match self {
            DestagePolicyKind::FirstWriteFirst => &FirstWriteFirst,
            DestagePolicyKind::LastWriteFirst => &LastWriteFirst,
            DestagePolicyKind::LeastValidFirst => &LeastValidFirst,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_has_its_own_choice() {
        let candidate = |index, serial, live_slots| Candidate {
            index: SegmentIndex(index),
            serial: SegmentSerial(serial),
            live_slots,
        };
        let all = [candidate(0, 7, 3), candidate(1, 5, 9), candidate(2, 9, 4)];
        let chosen = |kind: DestagePolicyKind| {
            kind.policy().choose(&mut all.iter().copied()).map(|c| c.index.0)
        };
        assert_eq!(chosen(DestagePolicyKind::FirstWriteFirst), Some(1));
        assert_eq!(chosen(DestagePolicyKind::LastWriteFirst), Some(2));
        assert_eq!(chosen(DestagePolicyKind::LeastValidFirst), Some(0));
    }
}
