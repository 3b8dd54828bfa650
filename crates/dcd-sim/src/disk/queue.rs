//! Which of the waiting requests the drive serves next.
//!
//! First come first served; shortest seek; C-SCAN, which sweeps from the outermost cylinder to the
//! innermost and flies back; shortest access time, which knows the angle too; and that weighted by
//! age (Seltzer, Chen and Ousterhout 1990; Jacobson and Wilkes 1991), so that none waits for ever.

use serde::Deserialize;

/// Who is next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueuePolicy {
    /// First come, first served.
    #[default]
    Fcfs,
    /// Shortest seek.
    Sstf,
    /// One way over the disk, then back to the start.
    CScan,
    /// Shortest seek and rotation.
    Satf,
    /// The same, the older the sooner.
    WeightedSatf,
}

/// What a policy knows of a waiting request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// When it came.
    pub submitted_ns: u64,
    /// Cylinder of its first sector.
    pub cylinder: u32,
    /// Time to its first sector, from now.
    pub access_ns: u64,
}

impl QueuePolicy {
    /// Whether it needs the access times: they cost the most to find out.
    pub fn wants_access_times(self) -> bool {
        matches!(self, QueuePolicy::Satf | QueuePolicy::WeightedSatf)
    }

    /// Index of the next of `waiting`, which are in the order in which they came.
    ///
    /// # Panics
    /// If nobody waits.
    pub fn next(
        self,
        waiting: &[Candidate],
        arm_cylinder: u32,
        now_ns: u64,
        age_max_ns: u64,
    ) -> usize {
        let least = |key: &dyn Fn(&Candidate) -> u64| {
            (0..waiting.len()).min_by_key(|index| key(&waiting[*index])).expect("somebody waits")
        };
        match self {
            QueuePolicy::Fcfs => 0,
            QueuePolicy::Sstf => {
                least(&|candidate| u64::from(candidate.cylinder.abs_diff(arm_cylinder)))
            }
            // What lies behind the arm comes after everything before it.
            QueuePolicy::CScan => least(&|candidate| {
                let behind = u64::from(candidate.cylinder < arm_cylinder) << 32;
                behind | u64::from(candidate.cylinder)
            }),
            QueuePolicy::Satf => least(&|candidate| candidate.access_ns),
            QueuePolicy::WeightedSatf => least(&|candidate| {
                let left = age_max_ns.saturating_sub(now_ns.saturating_sub(candidate.submitted_ns));
                let weighted = u128::from(candidate.access_ns) * u128::from(left)
                    / u128::from(age_max_ns.max(1));
                // Those beyond the age all weigh nothing: the first that came is the first.
                weighted as u64
            }),
        }
    }
}
