//! What sequences bring on a load that comes again and again, as a boot or the start of a program
//! does.
//!
//! ```text
//! before              once, nothing is known of the load                    what the others are compared with
//! record-then-replay  its reads are stored as one sequence; a rest in which the engine copies; once more
//! detect              on a new cache: so many times, each followed by a rest; the last one counts
//! ```
//!
//! Whoever reads has forgotten everything between two times: a trace holds what a client with cold
//! caches asks for. All times run on one clock and on the same engine; the facts are those of one
//! time alone.

use dcd_engine::format::geometry::{COPIES_PER_PAGE, COPY_PAGE_SPACE_BYTES};
use dcd_engine::units::BLOCK_SIZE;
use dcd_engine::{Duration, EngineConfig, Geometry, LbaRange, RequestError, Time};

use crate::disk::profile::Profile;
use crate::replay::{Pace, Replay, ReplayError, ReplayFacts, SequenceRunFacts};
use crate::target::Target;
use crate::target::log::LogTarget;
use crate::target::setup::{LogSetup, Setup, SetupError};
use crate::trace::{Operation, Request};

/// Rest after each time; longer than any silence that the detector or a stream waits for.
const REST: Duration = Duration::from_secs(60);
/// A rest ends then even if there still is something to be copied.
const REST_MAX: Duration = Duration::from_secs(3600);
/// Size of the log beside a read area whose size follows from a load.
const LOG_BYTES: u64 = 64 << 20;
/// The name under which a recorded load is kept.
const NAME: &str = "recorded";

/// How the engine comes to know the load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SequenceMode {
    /// It was recorded.
    RecordThenReplay,
    /// It comes so many times, and is found.
    Detect {
        /// From 2.
        passes: u32,
    },
}

/// What is fed to a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// What is recorded, or found.
    Known,
    /// What comes the last time, and counts.
    Last,
}

/// Why there is no such run.
#[derive(Debug, thiserror::Error)]
pub enum SequenceRunError<E> {
    /// There is no such setup.
    #[error(transparent)]
    Setup(SetupError),
    /// A request cannot be replayed, or whatever the load says.
    #[error("{0}")]
    Load(E),
    /// There is no log that could have a read area, or memory above it.
    #[error("sequences need a log with a read area, and no memory above it")]
    NoReadArea,
    /// The engine does not keep the sequence.
    #[error("the load cannot be kept as a sequence: {0}")]
    Refused(RequestError),
}

impl SequenceMode {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            SequenceMode::RecordThenReplay => "record-then-replay",
            SequenceMode::Detect { .. } => "detect",
        }
    }
}

/// The reads of a load, in order, in blocks; one that goes on where the last ended lengthens it.
#[derive(Default)]
pub(crate) struct Recorded(Vec<LbaRange>);

impl Recorded {
    pub(crate) fn add(&mut self, request: &Request) {
        if request.operation != Operation::Read || request.size_bytes == 0 {
            return;
        }
        let start = request.offset_bytes / BLOCK_SIZE;
        let end = (request.offset_bytes + request.size_bytes).div_ceil(BLOCK_SIZE);
        match self.0.last_mut() {
            Some(last) if last.end() == start => last.blocks += end - start,
            _ => self.0.push(LbaRange::new(start, end - start)),
        }
    }
}

/// A disk with a read area that has room for a sequence of so many lines: on that cache-disk, or on
/// the first part of the disk itself. Hot blocks are not copied, and all of the area is for
/// sequences.
pub fn setup_for(disk: &Profile, cache_disk: Option<&Profile>, lines: u64, seed: u64) -> Setup {
    let read_area_bytes = lines.div_ceil(COPIES_PER_PAGE.into()) * COPY_PAGE_SPACE_BYTES;
    let log = LogSetup {
        cache_disk: cache_disk.unwrap_or(disk).clone(),
        cache_bytes: read_area_bytes + LOG_BYTES,
        read_area_bytes,
        segment_bytes: Geometry::default_segment_size(LOG_BYTES),
        config: EngineConfig {
            one_disk: cache_disk.is_none(),
            hot_blocks: false,
            sequence_percent: 100,
            ..EngineConfig::default()
        },
    };
    Setup { log: Some(log), ..Setup::of(disk.clone(), seed) }
}

/// The setup, if it has a read area, with the detector or without.
pub(crate) fn build<E>(
    setup: &Setup,
    detects: bool,
) -> Result<Box<dyn Target>, SequenceRunError<E>> {
    let mut setup = setup.clone();
    let log = setup.log.as_mut().filter(|log| log.read_area_bytes > 0 && setup.nvram.is_none());
    let config = &mut log.ok_or(SequenceRunError::NoReadArea)?.config;
    config.detector = config.detector.filter(|_| detects);
    setup.build().map_err(SequenceRunError::Setup)
}

/// Has what was recorded kept and copied. When that is over, and how long copying took; facts count
/// from then on.
pub(crate) fn keep<E>(
    log: &mut LogTarget,
    now: Time,
    recorded: Recorded,
) -> Result<(Time, Duration), SequenceRunError<E>> {
    // What was written is on the data-disk by then, if there is time: lines in the log get no
    // copies.
    let (start, _) = log.rest(now, REST, REST);
    if !recorded.0.is_empty() {
        log.keep_sequence(start, NAME, recorded.0).map_err(SequenceRunError::Refused)?;
    }
    let (start, copying) = log.rest(start, REST, REST_MAX);
    log.count_from(start);
    Ok((start, copying))
}

/// Runs a load with sequences. `feed` gives all requests of a load to what it is called with, each
/// time it is. `has_other_last`: the two loads are not the same.
///
/// # Errors
/// If it cannot be set up, the load cannot be replayed, or is too large to be kept.
pub fn run<E>(
    setup: &Setup,
    pace: Pace,
    mode: SequenceMode,
    has_other_last: bool,
    mut feed: impl FnMut(Load, &mut dyn FnMut(&Request) -> Result<(), ReplayError>) -> Result<(), E>,
) -> Result<ReplayFacts, SequenceRunError<E>> {
    let mut recorded = Recorded::default();
    let mut pass = |load, target: Box<dyn Target>, start, mut recorded: Option<&mut Recorded>| {
        let mut replay = Replay::begin_at(target, pace, start);
        let fed = feed(load, &mut |request| {
            if let Some(recorded) = &mut recorded {
                recorded.add(request);
            }
            replay.add(request)
        });
        fed.map(|()| replay.finish_pass()).map_err(SequenceRunError::Load)
    };
    let first = build(setup, false)?;
    let (mut before, mut target, end) = pass(Load::Known, first, Time::ZERO, Some(&mut recorded))?;
    if has_other_last {
        (before, ..) = pass(Load::Last, build(setup, false)?, Time::ZERO, None)?;
    }
    let (passes_before, start, copying) = match mode {
        SequenceMode::RecordThenReplay => {
            let log = target.as_log().ok_or(SequenceRunError::NoReadArea)?;
            let (start, copying) = keep(log, end, recorded)?;
            (1, start, copying)
        }
        SequenceMode::Detect { passes } => {
            target = build(setup, true)?;
            let (mut start, mut copying) = (Time::ZERO, Duration(0));
            for _ in 1..passes {
                let (_, back, end) = pass(Load::Known, target, start, None)?;
                target = back;
                let log = target.as_log().ok_or(SequenceRunError::NoReadArea)?;
                (start, copying) = log.rest(end, REST, REST_MAX);
                log.count_from(start);
            }
            (passes.saturating_sub(1), start, copying)
        }
    };
    let (mut facts, mut target, end) = pass(Load::Last, target, start, None)?;
    facts.drain = target.drain(end);
    facts.store = target.store();
    facts.bill = target.bill();
    facts.cost = facts.bill.month(facts.month_of_s());
    facts.sequences = Some(SequenceRunFacts {
        mode: mode.name(),
        passes_before,
        copying_s: copying.0 as f64 / 1e9,
        before: Box::new(before),
    });
    Ok(facts)
}
