//! Does the fuzzer find what it is for? Each mistake made on purpose ([`crate::mistakes`]) is
//! turned on in turn, and the same random runs as ever must find it. Nothing here knows which
//! mistake it is looking for, but which of the kinds of runs look for it.
//!
//! Two more trials keep this honest: without any mistake the same runs must find nothing, and the
//! *canary*, a cache that throws writes away, must be found at once.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::corpus;
use crate::faults::{Demand, FaultKind};
use crate::mistakes::{Mistake, Runs, all, turn_on};
use crate::nvram;
use crate::random::Random;
use crate::run::replay;
use crate::script::{
    MODES_FROM, PAGED_FROM, READ_AREA_RESIZED, RESIZED_FROM, Script, WITNESS_FROM,
};
use crate::session::pairs;
use crate::volume;
use crate::volume::VolumeKind;
use crate::volume::options::{
    FEW_SUMS_EACH, FEW_SUMS_FROM, FOCUS_FROM, GROWS_VOLUME_FROM, MORE_FAULTS_FROM, REPLACES_FROM,
    RETURNS_FROM, ROTS_EACH, ROTS_FROM, SPARES_FROM, STUMBLES_EACH, STUMBLES_FIRST, TWIN_FROM,
    WITHOUT_LOG_EACH, WITHOUT_LOG_FROM,
};

/// A cache that throws writes away: whoever does not find this finds nothing.
pub const CANARY: &str = "canary";
/// Runs in which the canary must be found.
pub const CANARY_RUNS_MAX: u64 = 10;

/// Runs on volumes that fail without any mistake: what they have found is not mended yet
/// (`docs/mistakes.md`, known to fail). They prove nothing, and are left out.
const KNOWN_TO_FAIL: &[(VolumeKind, u64)] = &[];

/// What came of one mistake, or of none.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The mistake; `None`: there was none.
    pub bug: Option<&'static Mistake>,
    /// Runs, the one that found it included.
    pub runs: u64,
    /// How long they took.
    pub elapsed: Duration,
    /// What found it.
    pub caught: Option<Caught>,
    /// A run that fails without the mistake, too, proves nothing about it. There should be none.
    pub fails_anyway: Option<Caught>,
}

/// How a mistake was found.
#[derive(Clone, Debug)]
pub struct Caught {
    /// The seed of the run.
    pub seed: u64,
    /// The kind of the volume that it was on.
    pub volume: Option<VolumeKind>,
    /// The kinds of faults that it had.
    pub faults: Vec<FaultKind>,
    /// What was seen.
    pub violation: String,
}

impl std::fmt::Display for Caught {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(kind) = self.volume {
            return write!(f, "seed {} of {}: {}", self.seed, kind.name(), self.violation);
        }
        let faults: Vec<&str> = self.faults.iter().map(|kind| kind.name()).collect();
        write!(f, "seed {}, faults [{}]: {}", self.seed, faults.join(", "), self.violation)
    }
}

impl Trial {
    /// Whether it is as it must be: a mistake is found, and where there is none nothing is.
    pub fn is_right(&self) -> bool {
        self.caught.is_some() == self.bug.is_some() && self.fails_anyway.is_none()
    }
}

/// The run with this number. By turns: plain random runs; a pair of any kinds of faults; a few of
/// those kinds that leave all of the contract in force, for which checks are the sharpest; a
/// variation of the corpus.
pub fn script(seed: u64, index: u64) -> Script {
    let seed = seed.wrapping_add(index);
    let mut random = Random::new(!seed);
    match index % 4 {
        0 => Script::of_seed(seed),
        1 => {
            let pairs = pairs();
            let pair = random.below(pairs.len() as u64) as usize;
            Script::with_faults(seed, &pairs[pair])
        }
        2 => corpus::vary(&mut random),
        _ => {
            // Without the segment memory, death of the process is as a power cut, which is there
            // anyway, unless a disk shows what it has dropped.
            let is_exact = |kind: &FaultKind| {
                matches!(kind.demand(), Demand::Survive | Demand::LoudOrSurvive)
                    && *kind != FaultKind::MemoryLost
            };
            let kinds: Vec<FaultKind> = FaultKind::ALL.iter().copied().filter(is_exact).collect();
            let mut chosen: Vec<FaultKind> = (0..4).map(|_| random.pick(&kinds)).collect();
            if chosen.contains(&FaultKind::FlushErrorDropped) && random.one_in(2) {
                chosen.push(FaultKind::MemoryLost);
            }
            chosen.sort_unstable();
            chosen.dedup();
            Script::with_faults(seed, &chosen)
        }
    }
}

/// One run.
enum Case {
    Pair(u64, Box<Script>),
    Volume(u64, VolumeKind),
    Nvram(u64),
    Store(u64),
}

impl Case {
    /// The run with this number. On volumes by turns: RAID 5, RAID 1, all levels, RAID 0.
    fn new(place: Runs, seed: u64, index: u64) -> Case {
        let kinds: &[VolumeKind] = match place {
            Runs::Pairs | Runs::Driver => {
                return Case::Pair(seed.wrapping_add(index), Box::new(script(seed, index)));
            }
            Runs::SwitchedModes => {
                let seed = MODES_FROM.wrapping_add(seed).wrapping_add(index);
                return Case::Pair(seed, Box::new(Script::of_seed(seed)));
            }
            Runs::Nvram => return Case::Nvram(seed.wrapping_add(index)),
            Runs::Store => return Case::Store(seed.wrapping_add(index)),
            Runs::Ordered => {
                let seed = seed.wrapping_add(index);
                return Case::Pair(seed, Box::new(Script::ordered(seed)));
            }
            Runs::Legs => {
                let seed = seed.wrapping_add(index);
                return Case::Pair(seed, Box::new(Script::on_legs(seed)));
            }
            Runs::Witness => {
                let seed = WITNESS_FROM.wrapping_add(seed).wrapping_add(index);
                return Case::Pair(seed, Box::new(Script::on_legs(seed)));
            }
            Runs::Resizing | Runs::ResizingReadArea => {
                let from = match place {
                    Runs::ResizingReadArea => READ_AREA_RESIZED[0],
                    _ => RESIZED_FROM,
                };
                let seed = from.wrapping_add(seed).wrapping_add(index);
                let script = match index % 2 {
                    0 => Script::of_seed(seed),
                    _ => Script::on_legs(seed),
                };
                return Case::Pair(seed, Box::new(script));
            }
            Runs::Paged => {
                let seed = PAGED_FROM.wrapping_add(seed).wrapping_add(index);
                return Case::Pair(seed, Box::new(Script::of_paged_seed(seed)));
            }
            Runs::Volumes
            | Runs::Twin
            | Runs::Replacing
            | Runs::StumblingVolumes
            | Runs::UnloggedVolumes
            | Runs::RottingVolumes
            | Runs::VolumesOfFewSums => {
                &[VolumeKind::Raid5, VolumeKind::Raid1, VolumeKind::Tiered, VolumeKind::Raid0]
            }
            Runs::Sparing => &[VolumeKind::Tiered, VolumeKind::Raid5, VolumeKind::Raid1],
            Runs::Growing => {
                &[VolumeKind::Raid5, VolumeKind::Tiered, VolumeKind::Raid1, VolumeKind::Raid0]
            }
            Runs::Returning => &[VolumeKind::Raid5, VolumeKind::Raid1],
            Runs::TieredVolumes => &[VolumeKind::Tiered],
            Runs::VolumesOfClasses => &[VolumeKind::Classes],
            Runs::VolumesWithReplicas => &[VolumeKind::Replicas],
            Runs::FocusedVolumes => &[VolumeKind::Tiered, VolumeKind::Raid0],
        };
        let turns = kinds.len() as u64;
        let first = match place {
            Runs::FocusedVolumes => FOCUS_FROM,
            Runs::StumblingVolumes => STUMBLES_FIRST,
            Runs::UnloggedVolumes => WITHOUT_LOG_FROM,
            Runs::Twin => TWIN_FROM,
            Runs::Replacing => REPLACES_FROM,
            Runs::Sparing => SPARES_FROM,
            Runs::Growing => GROWS_VOLUME_FROM,
            Runs::Returning => RETURNS_FROM,
            Runs::RottingVolumes => ROTS_FROM,
            Runs::VolumesOfFewSums => FEW_SUMS_FROM,
            _ => MORE_FAULTS_FROM,
        };
        let apart = match place {
            Runs::StumblingVolumes => STUMBLES_EACH,
            Runs::UnloggedVolumes | Runs::Twin => WITHOUT_LOG_EACH,
            Runs::RottingVolumes => ROTS_EACH,
            Runs::VolumesOfFewSums => FEW_SUMS_EACH,
            _ => 1,
        };
        let later = seed.wrapping_add(index / turns).wrapping_mul(apart);
        let seed = first.wrapping_add(later);
        Case::Volume(seed, kinds[(index % turns) as usize])
    }

    fn is_known_to_fail(&self) -> bool {
        match self {
            Case::Pair(..) | Case::Nvram(_) | Case::Store(_) => false,
            Case::Volume(seed, kind) => KNOWN_TO_FAIL.contains(&(*kind, *seed)),
        }
    }

    fn violation_with(&self, bug: Option<&'static Mistake>) -> Option<String> {
        turn_on(bug);
        let violation = match self {
            Case::Pair(_, script) => replay(script, false).err().map(|failure| failure.violation.0),
            Case::Volume(seed, kind) => {
                volume::run::run(*kind, *seed, false).err().map(|failure| failure.violation.0)
            }
            // A panic is a violation like others.
            Case::Nvram(seed) => std::panic::catch_unwind(|| nvram::run(*seed, false).err())
                .unwrap_or_else(|_| Some("it panicked".into())),
            Case::Store(seed) => store_violation(*seed),
        };
        turn_on(None);
        violation
    }

    fn caught(self, violation: String) -> Caught {
        match self {
            Case::Pair(seed, script) => {
                Caught { seed, volume: None, faults: script.options.faults, violation }
            }
            Case::Nvram(seed) | Case::Store(seed) => {
                Caught { seed, volume: None, faults: Vec::new(), violation }
            }
            Case::Volume(seed, kind) => {
                Caught { seed, volume: Some(kind), faults: Vec::new(), violation }
            }
        }
    }
}

#[cfg(feature = "store")]
fn store_violation(seed: u64) -> Option<String> {
    crate::store::run(seed).err()
}

#[cfg(not(feature = "store"))]
fn store_violation(_seed: u64) -> Option<String> {
    None
}

/// What a thread that tries mistakes needs: runs with an object store are deep.
const STACK_BYTES: usize = 8 << 20;

/// Runs until the mistake is found, but not more than `runs_max` times.
pub fn try_bug(bug: Option<&'static Mistake>, seed: u64, runs_max: u64) -> Trial {
    let started = Instant::now();
    let mut trial =
        Trial { bug, runs: 0, elapsed: Duration::ZERO, caught: None, fails_anyway: None };
    let known = bug.and_then(|bug| bug.first_run).filter(|_| seed == 0);
    let mut runs = known.into_iter().chain(0..);
    while trial.runs < runs_max && trial.caught.is_none() {
        let run = runs.next().expect("without end");
        // Without a mistake all kinds of runs, by turns.
        let (place, index) = match bug {
            Some(bug) => (bug.engine_runs().unwrap_or(Runs::Pairs), run),
            None if cfg!(feature = "store") && run.is_multiple_of(8) => (Runs::Store, run / 8),
            None if run.is_multiple_of(2) => (Runs::Pairs, run / 2),
            None => (Runs::Volumes, run / 2),
        };
        let case = Case::new(place, seed, index);
        trial.runs += 1;
        if case.is_known_to_fail() {
            continue;
        }
        let Some(violation) = case.violation_with(bug) else { continue };
        match bug.and_then(|_| case.violation_with(None)) {
            Some(violation) => trial.fails_anyway = Some(case.caught(violation)),
            None => trial.caught = Some(case.caught(violation)),
        }
    }
    trial.elapsed = started.elapsed();
    trial
}

/// Those that runs of this crate look for.
pub fn tried() -> impl Iterator<Item = &'static Mistake> {
    all().iter().filter(|bug| bug.engine_runs().is_some())
}

/// Those of them that are looked for with an object store.
pub fn tried_on_stores() -> impl Iterator<Item = &'static Mistake> {
    tried().filter(|bug| bug.engine_runs() == Some(Runs::Store))
}

/// Tries all on so many threads, each in at most `runs_max` runs;
/// `runs_without` runs without any. `done` is told of each as it comes to its end.
pub fn try_all(
    seed: u64,
    runs_max: u64,
    runs_without: u64,
    jobs: usize,
    done: impl FnMut(&Trial) + Send,
) -> Vec<Trial> {
    try_these(&tried().collect::<Vec<_>>(), seed, runs_max, runs_without, jobs, done)
}

/// The same of some.
///
/// # Panics
/// If the system has no threads.
pub fn try_these(
    these: &[&'static Mistake],
    seed: u64,
    runs_max: u64,
    runs_without: u64,
    jobs: usize,
    done: impl FnMut(&Trial) + Send,
) -> Vec<Trial> {
    // What takes longest begins first.
    let some = these.iter().copied().map(Some);
    let bugs: Vec<Option<&'static Mistake>> = [None].into_iter().chain(some).collect();
    let next = AtomicUsize::new(0);
    let trials = Mutex::new((Vec::new(), done));
    let worker = || {
        while let Some(bug) = bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let runs_max = match bug {
                None => runs_without,
                Some(bug) if bug.name == CANARY => runs_max.min(CANARY_RUNS_MAX),
                Some(_) => runs_max,
            };
            let trial = try_bug(*bug, seed, runs_max);
            let mut shared = trials.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            shared.1(&trial);
            shared.0.push(trial);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
            thread.spawn_scoped(scope, worker).expect("a thread");
        }
    });
    let (mut trials, _) = trials.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    trials.sort_by_key(|trial| trial.bug.map(|bug| bug.number));
    trials
}
