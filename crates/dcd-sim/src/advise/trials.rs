//! What else could be made of the best log, or bought in its place: a part of it for copies of what
//! is read, a cache for reads with nothing dirty in it, a non-volatile memory. Each is simulated
//! once, beside the row that is recommended, or the best one if none is.

use dcd_engine::Mode;
use dcd_engine::nvram::{NvramConfig, NvramPolicyKind};
use serde::Serialize;

use super::grid::{Grid, Variant};
use super::row::RowFacts;
use super::words::{ms, percent, size, size_flag};
use super::{Advice, PaceFacts};
use crate::replay::ReplayFacts;
use crate::sweep::{Outcome, Point};
use crate::target::setup::{Groups, Head, NvramSetup};

/// Parts of the log that are tried as a read area: one of so many.
const READ_AREA_PARTS: [u64; 3] = [8, 4, 2];
/// The same of a cache for reads alone.
const READ_CACHE_PART: u64 = 2;
/// Sizes of a non-volatile memory.
const NVRAM_BYTES: [u64; 2] = [1 << 20, 16 << 20];
/// A load with fewer reads has no use for copies.
const READS_PERCENT_MIN: u64 = 1;
/// Less than this is chance.
const CHANCE_PERCENT: f64 = 2.0;
/// Less gain over the bare disk than this is not worth a device.
const FASTER_PERCENT_MIN: f64 = 10.0;

/// What is tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrialKind {
    /// A part of the log for copies of what is read.
    ReadArea,
    /// The log unused: copies of what is read, and what is written too.
    WriteThrough,
    /// The log unused: copies of what is read alone.
    WriteAround,
    /// A non-volatile memory in the place of the log.
    Nvram,
}

/// One of them.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Trial {
    /// What.
    pub kind: TrialKind,
    /// Of the read area, or of the memory.
    pub bytes: u64,
    /// What came of it.
    #[serde(flatten)]
    pub facts: Option<TrialFacts>,
    /// Why nothing did.
    pub error: Option<String>,
}

/// What came of it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct TrialFacts {
    /// Of all requests.
    pub mean_ms: f64,
    /// Of reads.
    pub read_mean_ms: Option<f64>,
    /// Of writes.
    pub write_mean_ms: Option<f64>,
    /// How much less all wait than with the bare disk.
    pub faster_percent: f64,
    /// How much less than with the log alone; negative: more.
    pub faster_than_log_percent: f64,
    /// Writes to the disk, those included that empty the cache at the end.
    pub disk_writes: u64,
}

/// All of them.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Trials {
    /// In the order in which they were simulated.
    pub tried: Vec<Trial>,
    /// For people.
    pub sentences: Vec<String>,
}

/// What is to be simulated. None where there is no row to compare with.
pub fn points(advice: &Advice, grid: &Grid, pace: &PaceFacts) -> Vec<(TrialKind, u64, Point)> {
    let row = advice.recommendation.row.filter(|row| advice.rows[*row].facts.is_some());
    let Some(row) = row.filter(|_| !grid.disk.is_object_store() && !pace.is_absurd()) else {
        return Vec::new();
    };
    let variant = grid.variants()[row];
    let mut points = Vec::new();
    if reads(advice) {
        let areas = READ_AREA_PARTS.map(|part| (TrialKind::ReadArea, part));
        let modes = [TrialKind::WriteThrough, TrialKind::WriteAround];
        for (kind, part) in areas.into_iter().chain(modes.map(|kind| (kind, READ_CACHE_PART))) {
            let bytes = variant.cache_bytes / part;
            points.push((kind, bytes, with_read_area(grid, &variant, pace, kind, bytes)));
        }
    }
    for bytes in NVRAM_BYTES {
        let mut point = grid.bare(pace);
        let config = NvramConfig {
            capacity_blocks: bytes / 512,
            policy: NvramPolicyKind::Auto,
            ..NvramConfig::default()
        };
        point.setup.nvram = Some(NvramSetup { config, groups: Groups::Tracks, head: Head::Model });
        points.push((TrialKind::Nvram, bytes, point));
    }
    points
}

fn reads(advice: &Advice) -> bool {
    let summary = &advice.load.summary;
    let all = summary.reads.count + summary.writes.count;
    summary.reads.count * 100 >= all * READS_PERCENT_MIN && summary.reads.count > 0
}

fn with_read_area(
    grid: &Grid,
    variant: &Variant,
    pace: &PaceFacts,
    kind: TrialKind,
    bytes: u64,
) -> Point {
    let mut point = grid.point(variant, pace);
    let log = point.setup.log.as_mut().expect("the point of a variant has one");
    log.read_area_bytes = bytes;
    log.config.mode = match kind {
        TrialKind::WriteThrough => Mode::WriteThrough,
        TrialKind::WriteAround => Mode::WriteAround,
        TrialKind::ReadArea | TrialKind::Nvram => Mode::WriteBack,
    };
    point
}

/// What came of them.
pub fn trials(
    advice: &Advice,
    points: Vec<(TrialKind, u64, Point)>,
    outcomes: &[Outcome],
) -> Option<Trials> {
    let row = advice.recommendation.row.and_then(|row| advice.rows.get(row));
    let (bare, log) = (advice.bare.facts?, row?.facts?);
    let trial = |((kind, bytes, _), outcome): ((TrialKind, u64, Point), &Outcome)| Trial {
        kind,
        bytes,
        facts: outcome.as_ref().ok().map(|facts| TrialFacts::of(facts, &bare, &log)),
        error: outcome.as_ref().err().cloned(),
    };
    let tried: Vec<Trial> = points.into_iter().zip(outcomes).map(trial).collect();
    let sentences = [read_area(&tried, &log), read_cache(&tried, &bare), nvram(&tried, &bare)];
    Some(Trials { sentences: sentences.into_iter().flatten().collect(), tried })
}

impl TrialFacts {
    fn of(facts: &ReplayFacts, bare: &RowFacts, log: &RowFacts) -> TrialFacts {
        let own = RowFacts::of_bare(facts);
        let less_than = |other: &RowFacts| match other.waited_s {
            all if all > 0.0 => 100.0 * (1.0 - own.waited_s / all),
            _ => 0.0,
        };
        TrialFacts {
            mean_ms: own.mean_ms,
            read_mean_ms: own.read.map(|read| read.mean_ms),
            write_mean_ms: own.write.map(|write| write.mean_ms),
            faster_percent: less_than(bare),
            faster_than_log_percent: less_than(log),
            disk_writes: own.disk_writes,
        }
    }
}

/// The one in which requests wait least; the first of equals.
fn best(tried: &[Trial], kinds: &[TrialKind]) -> Option<(Trial, TrialFacts)> {
    let of_kind = tried.iter().filter(|trial| kinds.contains(&trial.kind));
    let with_facts = of_kind.filter_map(|trial| Some((trial.clone(), trial.facts?)));
    with_facts.reduce(|best, next| if next.1.mean_ms < best.1.mean_ms { next } else { best })
}

fn read_area(tried: &[Trial], log: &RowFacts) -> Option<String> {
    let (trial, facts) = best(tried, &[TrialKind::ReadArea])?;
    let reads = match (facts.read_mean_ms, log.read) {
        (Some(with), Some(without)) => {
            format!(", reads {} instead of {}", ms(with), ms(without.mean_ms))
        }
        _ => String::new(),
    };
    let (area, flag) = (size(trial.bytes), size_flag(trial.bytes));
    Some(match facts.faster_than_log_percent {
        gain if gain >= CHANCE_PERCENT => format!(
            "With {area} of it for copies of what is read (--read-area {flag}, of create or of `dcd cache-disk resize`) \
             requests would take {} on average{reads}.",
            ms(facts.mean_ms)
        ),
        gain if gain > -CHANCE_PERCENT => format!(
            "A part of it for copies of what is read (--read-area) would change nothing: {} on average with {area}.",
            ms(facts.mean_ms)
        ),
        _ => format!(
            "No part of it should be for copies of what is read (--read-area): requests would take {} on average with \
             {area}.",
            ms(facts.mean_ms)
        ),
    })
}

fn read_cache(tried: &[Trial], bare: &RowFacts) -> Option<String> {
    let (trial, facts) = best(tried, &[TrialKind::WriteThrough, TrialKind::WriteAround])?;
    let mode = match trial.kind {
        TrialKind::WriteThrough => "write-through",
        _ => "write-around",
    };
    Some(match facts.faster_percent >= FASTER_PERCENT_MIN {
        true => format!(
            "As a cache for reads with nothing dirty in it (mode {mode}, a read area of {}) it would give {} on average, {} \
             less than the bare disk.",
            size(trial.bytes),
            ms(facts.mean_ms),
            percent(facts.faster_percent)
        ),
        false => format!(
            "As a cache for reads with nothing dirty in it (mode {mode}) it would bring little: {} on average instead of {}.",
            ms(facts.mean_ms),
            ms(bare.mean_ms)
        ),
    })
}

fn nvram(tried: &[Trial], bare: &RowFacts) -> Option<String> {
    let (trial, facts) = best(tried, &[TrialKind::Nvram])?;
    if facts.faster_percent < FASTER_PERCENT_MIN {
        return None;
    }
    Some(format!(
        "In the place of a log, {} of non-volatile memory (--nvram) would give {} on average instead of {}.",
        size(trial.bytes),
        ms(facts.mean_ms),
        ms(bare.mean_ms)
    ))
}
