//! One sentence of advice, the numbers that justify it, and what limits it.
//!
//! ```text
//! the bare disk cannot follow the times of the trace   nothing is promised
//! requests wait at least 10 % and 0.2 ms less          the log at the knee of the best device
//! not that, but the disk gets 30 % fewer writes        the same of those, said as what it is
//! neither                                              no log, and why
//! ```

use dcd_engine::AckMode;
use serde::{Deserialize, Serialize};

use super::grid::ack_name;
use super::knee::is_near;
use super::noise::{Noise, Spread};
use super::row::{LogRow, Response, Row, RowFacts};
use super::words::{alternatives, count, dollars, duration, ms, number, percent, size, years};
use super::{Advice, Curve};

/// Less gain than this is not worth a second device.
const FASTER_PERCENT_MIN: f64 = 10.0;
/// Nor are fewer writes than this, if nothing becomes faster.
const FEWER_WRITES_PERCENT_MIN: f64 = 30.0;
/// What may become slower for fewer writes.
const SLOWER_PERCENT_MAX: f64 = 5.0;
/// Less difference is noise: the device named first is taken.
const SAME_PERCENT: f64 = 0.5;
/// Fewer writes that are worth a larger log: percentage points.
const MORE_PERCENT_MIN: f64 = 5.0;
/// A load with fewer writes does hardly write.
const WRITES_PERCENT_MIN: f64 = 5.0;
/// Of the time that is waited: more is for reads.
const READS_WAIT_PERCENT: f64 = 85.0;
/// Nor is less saved time for a request: dcd itself takes 0.04 to 0.08 ms for a write, which the
/// simulation leaves out.
const SAVED_MS_MIN: f64 = 0.2;
const SEQUENTIAL_PERCENT: f64 = 50.0;
const STALLED_PERCENT: f64 = 10.0;
const FAST_MS: f64 = 1.0;
/// Of all the time: where requests wait less, little is to be had.
const WAITED_PERCENT_MIN: f64 = 0.1;
/// Shorter traces show a moment only.
const TRACE_S_MIN: f64 = 3600.0;
const TRACE_REQUESTS_MIN: u64 = 10_000;
const DAY_S: f64 = 86_400.0;

/// What to do.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Recommendation {
    /// In a word.
    pub verdict: Verdict,
    /// Why it would not help, if it would not.
    pub reason: Option<Reason>,
    /// The recommended row, or the best one if none is.
    pub row: Option<usize>,
    /// Other devices that do nearly as well in the same size.
    pub alike: Vec<String>,
    /// For people.
    pub sentence: String,
    /// More about it: other devices, fewer writes, wear.
    pub details: Vec<String>,
    /// What it is worth: the trace, the pace, the models.
    pub limits: Vec<String>,
}

/// In a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Requests would be served faster.
    Helps,
    /// They would not, but the disk would get fewer writes.
    FewerWrites,
    /// It is not worth it.
    NoHelp,
    /// The disk cannot follow the times of the trace: the numbers predict nothing.
    Overloaded,
    /// Nothing could be simulated.
    #[default]
    Unknown,
}

/// Why a log would not help.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// There are no writes.
    NoWrites,
    /// There are hardly any.
    HardlyAnyWrites,
    /// Most of the waiting is for reads.
    ReadsWait,
    /// The disk needs no help with what comes in sequence, and large writes go past the log.
    Sequential,
    /// The log is full: the disk has no time to empty it.
    NoQuiet,
    /// The disk is fast already.
    FastAlready,
    /// With other seeds it helps too little.
    Noise,
    /// None of these.
    Other,
}

/// A row with what came of it.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    index: usize,
    row: &'a Row,
    facts: &'a RowFacts,
    log: &'a LogRow,
}

/// What follows from what was simulated.
pub fn recommend(advice: &Advice) -> Recommendation {
    let mut recommendation = verdict(advice);
    recommendation.limits = limits(advice, &recommendation);
    recommendation
}

fn verdict(advice: &Advice) -> Recommendation {
    let unknown = |sentence: String| Recommendation { sentence, ..Recommendation::default() };
    let disk = &advice.disk;
    if advice.pace.is_absurd() {
        let overload = advice.pace.overload.map_or(String::new(), |overload| overload.in_words());
        let sentence = format!(
            "Nothing is predicted: at these times {disk} {overload}. What follows are lengths of queues that no program \
             would have made; leave the pace to dcd advise, or use --closed-loop."
        );
        return Recommendation { verdict: Verdict::Overloaded, ..unknown(sentence) };
    }
    let Some(bare) = &advice.bare.facts else {
        let problem = advice.bare.error.as_deref().unwrap_or("no reason is known");
        return unknown(format!("Nothing is known: {disk} could not be simulated: {problem}."));
    };
    let all = candidates(advice);
    // A log that refuses requests, or never gets empty, is no candidate, however fast it is with
    // the others.
    let working: Vec<Candidate> =
        all.iter().copied().filter(|candidate| candidate.log.works()).collect();
    let Some(fastest) = most(&working, |facts| facts.faster_percent) else {
        let problem = advice.rows.iter().find_map(|row| row.error.as_deref());
        return match (all.first(), problem) {
            (Some(first), _) => no_help(advice, bare, first, Reason::NoQuiet),
            (None, problem) => {
                let problem = problem.unwrap_or("none of the sizes fits on a cache device");
                unknown(format!("Nothing is known: no log could be simulated: {problem}."))
            }
        };
    };
    let saved_ms = bare.mean_ms - fastest.facts.mean_ms;
    if fastest.facts.faster_percent >= FASTER_PERCENT_MIN && saved_ms >= SAVED_MS_MIN {
        return helps(advice, bare, &working, &fastest);
    }
    let not_slower = |candidate: &&Candidate| candidate.facts.faster_percent >= -SLOWER_PERCENT_MAX;
    let harmless: Vec<Candidate> = working.iter().filter(not_slower).copied().collect();
    match most(&harmless, |facts| facts.fewer_disk_writes_percent) {
        Some(fewest)
            if fewest.facts.fewer_disk_writes_percent >= FEWER_WRITES_PERCENT_MIN
                && !hardly_writes(advice) =>
        {
            fewer_writes(advice, bare, &harmless, &fewest)
        }
        _ => no_help(advice, bare, &fastest, reason(advice, bare, &fastest)),
    }
}

/// Of a log that was recommended: what other seeds make of it. If with one of them it brings less
/// than what is worth a log, or the log fails, it is recommended no more.
pub(super) fn weigh(advice: &mut Advice, noise: &Noise) {
    let (faster, fewer) = (noise.faster_percent, noise.fewer_disk_writes_percent);
    let is_worth_it = match advice.recommendation.verdict {
        Verdict::Helps => faster.min >= FASTER_PERCENT_MIN && noise.saved_ms.min >= SAVED_MS_MIN,
        Verdict::FewerWrites => {
            fewer.min >= FEWER_WRITES_PERCENT_MIN && faster.min >= -SLOWER_PERCENT_MAX
        }
        Verdict::NoHelp | Verdict::Overloaded | Verdict::Unknown => return,
    };
    let spread = |of: Spread, what: &str| match percent(of.max) == percent(of.min) {
        true => format!("{} {what}", percent(of.mean)),
        false => format!("{} to {} {what}", percent(of.min), percent(of.max)),
    };
    let (waiting, writes) = (spread(faster, "less waiting"), spread(fewer, "fewer writes"));
    let seeds = noise.seeds;
    if is_worth_it && noise.failed_seeds == 0 {
        let words = format!("With {seeds} seeds (chance of the disks): {waiting}, {writes}.");
        return advice.recommendation.details.push(words);
    }
    let all = candidates(advice);
    let chosen = all.iter().find(|one| Some(one.index) == advice.recommendation.row);
    let (Some(bare), Some(chosen)) = (&advice.bare.facts, chosen) else { return };
    let mut recommendation = no_help(advice, bare, chosen, Reason::Noise);
    recommendation.details.push(match noise.failed_seeds {
        0 => format!(
            "That is not beyond chance: with {seeds} seeds of the disks it is {waiting}, {writes}."
        ),
        failed => format!(
            "That is not beyond chance: with {failed} of {seeds} seeds of the disks the log does not work, or could not \
             be simulated; with the others it is {waiting}, {writes}."
        ),
    });
    recommendation.limits = limits(advice, &recommendation);
    advice.recommendation = recommendation;
}

fn candidates(advice: &Advice) -> Vec<Candidate<'_>> {
    let of = |(index, row)| -> Option<Candidate<'_>> {
        let row: &Row = row;
        let facts = row.facts.as_ref()?;
        Some(Candidate { index, row, facts, log: facts.log.as_ref()? })
    };
    advice.rows.iter().enumerate().filter_map(of).collect()
}

fn most<'a>(candidates: &[Candidate<'a>], benefit: fn(&RowFacts) -> f64) -> Option<Candidate<'a>> {
    // The first of equals: the order is that of the grid.
    let better = |best: Candidate<'a>, next: &Candidate<'a>| match benefit(next.facts)
        > benefit(best.facts) + 1e-9
    {
        true => *next,
        false => best,
    };
    let (first, rest) = candidates.split_first()?;
    Some(rest.iter().fold(*first, better))
}

/// The first curve that is as good as the best, at its knee; and the other devices that do nearly
/// as well in that size.
fn at_knee<'a>(
    advice: &Advice,
    candidates: &[Candidate<'a>],
    best: &Candidate<'a>,
    benefit: fn(&RowFacts) -> f64,
    knee_bytes: fn(&Curve) -> Option<u64>,
) -> (Candidate<'a>, Vec<String>) {
    let most = benefit(best.facts);
    let as_good = |curve: &&Curve| {
        let mut own = candidates.iter().filter(|one| curve.rows.contains(&one.index));
        own.any(|one| benefit(one.facts) >= most - SAME_PERCENT)
    };
    let curve = advice.curves.iter().find(as_good);
    let is_at_knee = |one: &&Candidate| {
        curve.is_some_and(|curve| {
            curve.rows.contains(&one.index) && one.row.cache_bytes == knee_bytes(curve)
        })
    };
    let chosen = candidates.iter().find(is_at_knee).copied().unwrap_or(*best);
    let calm = |one: &Candidate| one.row.size_point(benefit).is_some_and(|point| point.is_calm);
    let mut alike = Vec::new();
    for other in candidates {
        let is_alike = other.row.cache_bytes == chosen.row.cache_bytes
            && other.row.cache_device != chosen.row.cache_device
            && is_near(benefit(other.facts), benefit(chosen.facts))
            && calm(other) >= calm(&chosen);
        let device = other.row.cache_device.clone().unwrap_or_default();
        if is_alike && !alike.contains(&device) {
            alike.push(device);
        }
    }
    (chosen, alike)
}

fn helps(
    advice: &Advice,
    bare: &RowFacts,
    candidates: &[Candidate],
    fastest: &Candidate,
) -> Recommendation {
    let (chosen, alike) = at_knee(
        advice,
        candidates,
        fastest,
        |facts| facts.faster_percent,
        |curve| curve.knee_bytes,
    );
    let Candidate { index, facts, log, .. } = chosen;
    let sentence = format!(
        "dcd would help: with {}, requests would take {} instead of {} on average ({} less: {}){}{}.",
        name(advice, &chosen),
        ms(facts.mean_ms),
        ms(bare.mean_ms),
        percent(facts.faster_percent),
        each_kind(facts, bare),
        disk_writes(&advice.disk, facts),
        stalls(log),
    );
    let mut details = alike_words(&alike);
    details.extend(more_for_writes(advice, &chosen));
    details.extend(cost_words(advice, &chosen));
    details.extend(wear_words(advice, &chosen));
    let row = Some(index);
    let verdict = Verdict::Helps;
    Recommendation { verdict, row, alike, sentence, details, ..Recommendation::default() }
}

fn fewer_writes(
    advice: &Advice,
    bare: &RowFacts,
    candidates: &[Candidate],
    fewest: &Candidate,
) -> Recommendation {
    let (chosen, alike) = at_knee(
        advice,
        candidates,
        fewest,
        |facts| facts.fewer_disk_writes_percent,
        |curve| curve.disk_writes_knee_bytes,
    );
    let Candidate { index, facts, log, .. } = chosen;
    let times = match facts.faster_percent >= FASTER_PERCENT_MIN {
        // In the simulation only, where dcd takes no time itself.
        true => format!("they take {} without", ms(bare.mean_ms)),
        false => format!("{} instead of {} on average", ms(facts.mean_ms), ms(bare.mean_ms)),
    };
    let sentence = format!(
        "dcd would hardly make requests faster ({times}), but spare the disk: with {}, {} would get {} fewer writes{}.",
        name(advice, &chosen),
        advice.disk,
        percent(facts.fewer_disk_writes_percent),
        stalls(log),
    );
    let mut details = alike_words(&alike);
    details.extend(cost_words(advice, &chosen));
    details.extend(wear_words(advice, &chosen));
    let row = Some(index);
    let verdict = Verdict::FewerWrites;
    Recommendation { verdict, row, alike, sentence, details, ..Recommendation::default() }
}

fn no_help(advice: &Advice, bare: &RowFacts, best: &Candidate, reason: Reason) -> Recommendation {
    let summary = &advice.load.summary;
    let requests = summary.reads.count + summary.writes.count;
    let why = match reason {
        Reason::NoWrites => "it has no writes, and a write cache leaves reads as they are".into(),
        Reason::HardlyAnyWrites => format!(
            "only {} of its {} are writes",
            percent(share(summary.writes.count, requests)),
            count(requests, "request")
        ),
        Reason::ReadsWait => format!(
            "{} of the time that requests wait is for reads, which go to the disk as before",
            percent(reads_wait_percent(bare))
        ),
        Reason::Sequential => format!(
            "{} of its reads and writes go on where the one before ended, which the disk does well alone{}",
            percent(summary.sequential_percent),
            match best.log.bypassed_writes {
                0 => String::new(),
                writes => format!(
                    ", and {} are so large that they go past the log",
                    count(writes, "write")
                ),
            }
        ),
        Reason::NoQuiet => format!(
            "it leaves the disk no quiet to empty the log: {} of the writes wait for room{}",
            percent(best.log.stalled_percent),
            match best.log.failed_requests {
                0 => String::new(),
                failed => format!(", and {} for more than a minute, in vain", number(failed)),
            }
        ),
        Reason::FastAlready => {
            format!(
                "the disk answers it in {} on average, and dcd itself takes 0.04 to 0.08 ms",
                ms(bare.mean_ms)
            )
        }
        Reason::Noise => "what it brings is not beyond chance".into(),
        Reason::Other => "what its requests wait for stays".into(),
    };
    let change = match best.facts.faster_percent {
        gain if gain.abs() < 0.05 => "makes no difference to requests".into(),
        gain if gain < 0.0 => format!("makes requests {} slower", percent(-gain)),
        gain => format!("saves {} of their waiting", percent(gain)),
    };
    let sentence = format!(
        "dcd would not help this load: {why}; the best log tried ({}) {change}: {} instead of {} on average.",
        name(advice, best).trim_start_matches("a log of "),
        ms(best.facts.mean_ms),
        ms(bare.mean_ms),
    );
    let (row, reason) = (Some(best.index), Some(reason));
    Recommendation { verdict: Verdict::NoHelp, reason, row, sentence, ..Recommendation::default() }
}

fn reason(advice: &Advice, bare: &RowFacts, best: &Candidate) -> Reason {
    let summary = &advice.load.summary;
    let bypassed = share(best.log.bypassed_writes, summary.writes.count);
    match () {
        () if summary.writes.count == 0 => Reason::NoWrites,
        () if hardly_writes(advice) => Reason::HardlyAnyWrites,
        () if reads_wait_percent(bare) >= READS_WAIT_PERCENT => Reason::ReadsWait,
        () if summary.sequential_percent.max(bypassed) >= SEQUENTIAL_PERCENT => Reason::Sequential,
        () if best.log.stalled_percent >= STALLED_PERCENT => Reason::NoQuiet,
        () if bare.mean_ms < FAST_MS => Reason::FastAlready,
        () => Reason::Other,
    }
}

fn hardly_writes(advice: &Advice) -> bool {
    let summary = &advice.load.summary;
    share(summary.writes.count, summary.reads.count + summary.writes.count) < WRITES_PERCENT_MIN
}

fn reads_wait_percent(bare: &RowFacts) -> f64 {
    let reads_s = bare.read.map_or(0.0, |read| read.mean_ms * read.count as f64 / 1e3);
    if bare.waited_s > 0.0 { 100.0 * reads_s / bare.waited_s } else { 0.0 }
}

fn share(part: u64, all: u64) -> f64 {
    100.0 * part as f64 / all.max(1) as f64
}

/// `a log of 64 MiB on nvme-ssd`, with whatever else was varied.
fn name(advice: &Advice, candidate: &Candidate) -> String {
    let curve = advice.curves.iter().find(|curve| curve.rows.contains(&candidate.index));
    let device = curve.map(|curve| curve.name.as_str());
    let size = size(candidate.row.cache_bytes.unwrap_or(0));
    format!(
        "a log of {size} on {}",
        device.or(candidate.row.cache_device.as_deref()).unwrap_or("it")
    )
}

/// `writes 0 ms instead of 17 ms, reads ...`, of those kinds that there are.
fn each_kind(facts: &RowFacts, bare: &RowFacts) -> String {
    let kind = |(name, own, bare): (&str, Option<Response>, Option<Response>)| {
        let (own, bare) = (own?, bare?);
        Some(format!("{name} {} instead of {}", ms(own.mean_ms), ms(bare.mean_ms)))
    };
    let kinds = [
        ("writes", facts.write, bare.write),
        ("reads", facts.read, bare.read),
        ("flushes", facts.flush, bare.flush),
    ];
    kinds.into_iter().filter_map(kind).collect::<Vec<_>>().join(", ")
}

fn disk_writes(disk: &str, facts: &RowFacts) -> String {
    match facts.fewer_disk_writes_percent {
        fewer if fewer >= 1.0 => format!(", and {disk} would get {} fewer writes", percent(fewer)),
        fewer if fewer <= -1.0 => format!(", but {disk} would get {} more writes", percent(-fewer)),
        _ => String::new(),
    }
}

fn stalls(log: &LogRow) -> String {
    match log.stalled_percent {
        stalled if stalled >= 0.005 => {
            format!("; {} of the writes wait for room", percent(stalled))
        }
        _ => String::new(),
    }
}

fn alike_words(alike: &[String]) -> Vec<String> {
    match alike {
        [] => Vec::new(),
        _ => vec![format!("Nearly as good in this size: {}.", alternatives(alike))],
    }
}

/// A larger log may spare the disk more, though it makes nothing faster.
fn more_for_writes(advice: &Advice, chosen: &Candidate) -> Option<String> {
    let curve = advice.curves.iter().find(|curve| curve.rows.contains(&chosen.index))?;
    let bytes = curve.disk_writes_knee_bytes?;
    let mut rows = curve.rows.iter().filter_map(|&index| advice.rows.get(index));
    let fewer = rows.find(|row| row.cache_bytes == Some(bytes))?.facts?.fewer_disk_writes_percent;
    let is_worth_it = Some(bytes) > chosen.row.cache_bytes
        && fewer - chosen.facts.fewer_disk_writes_percent >= MORE_PERCENT_MIN;
    let (disk, bytes, fewer) = (&advice.disk, size(bytes), percent(fewer));
    is_worth_it.then(|| {
        format!("With {bytes}, {disk} would get {fewer} fewer writes, though requests would hardly be faster.")
    })
}

/// What a month costs with it and without, of disks that have prices.
fn cost_words(advice: &Advice, chosen: &Candidate) -> Option<String> {
    let cost = chosen.facts.cost?;
    let of_disk = cost.disk.map_or(String::new(), |disk| {
        let parts = [
            ("requests", disk.requests_usd),
            ("transfer", disk.transfer_usd),
            ("room", disk.stored_usd),
            ("the device", disk.bought_usd),
        ];
        let parts = parts.into_iter().filter(|(_, usd)| *usd > 0.0);
        let parts: Vec<_> =
            parts.map(|(what, usd)| format!("{} for {what}", dollars(usd))).collect();
        if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
    });
    let without = advice
        .bare
        .facts
        .and_then(|bare| bare.cost)
        .map_or(String::new(), |bare| format!(" instead of {}", dollars(bare.month_usd)));
    let month = dollars(cost.month_usd);
    let like = match advice.pace.closed_loop {
        false => "like this",
        true if advice.load.summary.duration_s > 0.0 => "of this load, at the times of the trace,",
        true => "of this load, as fast as the bare disk serves it,",
    };
    // What has no prices is not free.
    let unpriced = match (cost.disk, cost.cache_disk) {
        (Some(_), None) => " without the cache device",
        (None, Some(_)) => " for the cache device alone",
        _ => "",
    };
    Some(format!("A month {like} would cost {month} USD{unpriced}{of_disk}{without}."))
}

fn wear_words(advice: &Advice, chosen: &Candidate) -> Option<String> {
    let device = chosen.row.cache_device.as_deref().unwrap_or_default();
    let wear = chosen.log.wear?;
    let each = chosen.log.cache_bytes_per_written_byte.map_or(String::new(), |bytes| {
        format!(", {bytes:.2} bytes for each byte that the load writes")
    });
    let rate = wear.drive_writes_per_day.map_or(String::new(), |writes| {
        let writes = if writes < 0.001 { "under 0.001".into() } else { format!("{writes:.3}") };
        format!(", {writes} drive writes a day")
    });
    let lasts = match (wear.years, wear.drive_writes_per_day) {
        (Some(lasts), _) => format!(": what it endures lasts {}", years(lasts)),
        (None, Some(_)) => ": how long it lasts, --endurance-tbw tells".into(),
        (None, None) => String::new(),
    };
    let bytes = size(wear.bytes_per_day as u64);
    let seconds = advice.load.summary.duration_s;
    let going_on = match seconds < DAY_S {
        // It is divided by the time that the simulation took, not by that of the trace.
        _ if advice.pace.closed_loop => {
            " if requests came like that, each when the one before is done, day and night".into()
        }
        true => format!(" if {} like these went on day and night", duration(seconds)),
        false => String::new(),
    };
    Some(format!("{device} would be written {bytes} a day{going_on}{each}{rate}{lasts}."))
}

/// What the advice is worth.
fn limits(advice: &Advice, recommendation: &Recommendation) -> Vec<String> {
    let mut limits = Vec::new();
    let summary = &advice.load.summary;
    let (requests, seconds) = (count(summary.requests, "request"), summary.duration_s);
    let span = duration(seconds);
    limits.push(match () {
        () if seconds < TRACE_S_MIN => format!(
            "This follows from {requests} in {span}: a short look, that may miss what matters. Record at least an hour of \
             the busiest time, better a day."
        ),
        () if summary.requests < TRACE_REQUESTS_MIN => {
            format!("This follows from {requests} in {span}: few, so another time may be different.")
        }
        () if seconds < DAY_S => format!(
            "This follows from {requests} in {span}: backups and whatever else comes once a day may be missing."
        ),
        () => format!("This follows from {requests} in {span}."),
    });
    limits.extend(pace_limit(advice));
    let bare = advice.bare.facts.as_ref();
    let waited = bare.map_or(100.0, |bare| 100.0 * bare.waited_s / bare.duration_s.max(1e-9));
    if recommendation.verdict == Verdict::Helps && waited < WAITED_PERCENT_MIN {
        let bare_s = bare.map_or(0.0, |bare| bare.waited_s);
        limits.push(format!(
            "There is little to be had: all its requests together wait {} on the bare disk, {} of the time.",
            duration(bare_s),
            percent(waited)
        ));
    }
    let row = recommendation.row.and_then(|index| advice.rows.get(index));
    let largest = advice.rows.iter().filter_map(|row| row.cache_bytes).max();
    let smallest = advice.rows.iter().filter_map(|row| row.cache_bytes).min();
    let recommends = matches!(recommendation.verdict, Verdict::Helps | Verdict::FewerWrites);
    if recommends && let Some(bytes) = row.and_then(|row| row.cache_bytes) {
        if Some(bytes) == largest && largest != smallest {
            limits.push("It is the largest size tried: more may do more (--cache-disk).".into());
        } else if Some(bytes) == smallest {
            limits.push("It is the smallest size tried; more leaves room to grow.".into());
        }
    }
    let is_memory = row.is_some_and(|row| row.ack == Some(ack_name(AckMode::Memory)));
    if is_memory && recommends {
        limits.push(
            "Writes are acknowledged from memory, as dcd serve does unless told otherwise: what no flush followed is lost \
             with the power, up to 0.1 s; and the 0 ms of a write are 0.04 to 0.08 ms in reality. --ack durable shows the \
             other way."
                .into(),
        );
    }
    let failed = advice.rows.iter().filter(|row| row.error.is_some()).count();
    if failed > 0 && failed < advice.rows.len() {
        limits.push(format!("{} could not be simulated.", count(failed as u64, "log")));
    }
    limits.extend(advice.left_out.iter().map(|what| format!("Not tried: {what}.")));
    limits
}

fn pace_limit(advice: &Advice) -> Option<String> {
    let disk = &advice.disk;
    let pace = &advice.pace;
    match pace.overload {
        Some(overload) if pace.closed_loop => Some(format!(
            "The trace is from a faster disk: at its times {disk} {}. So each request comes when the one before is done, \
             for the bare disk too: compare the rows with one another; how long requests wait when several come at once \
             is not in these numbers.",
            overload.in_words()
        )),
        None if pace.closed_loop => Some(
            "Each request comes when the one before is done (--closed-loop): how long requests wait when several come at \
             once is not in these numbers."
                .into(),
        ),
        None => pace.stretch.filter(|stretch| *stretch != 1.0).map(|stretch| {
            format!("The times of the trace are multiplied by {stretch}: rates and wear are those of that load.")
        }),
        Some(_) => None,
    }
}
