//! Advice on made-up outcomes: each verdict, each reason, and that nothing absurd is told as a
//! prediction.

use dcd_engine::{AckMode, DestagePolicyKind};

use super::grid::{CacheDevice, Grid};
use super::load::LoadMeter;
use super::overload::Overload;
use super::page::page;
use super::recommendation::{Reason, Verdict};
use super::row::Row;
use super::{Advice, PaceFacts, noise};
use crate::disk::price::{Bill, PriceProfile, Traffic, Usage};
use crate::disk::profile::Profile;
use crate::distribution::Percentiles;
use crate::replay::{ReadAccess, ReplayFacts, TimesFacts};
use crate::sweep::Outcome;
use crate::target::{DrainFacts, LogFacts, TargetFacts};
use crate::trace::{Flags, Operation, Request};

const MIB: u64 = 1 << 20;
const OPEN: PaceFacts =
    PaceFacts { closed_loop: false, stretch: Some(1.0), is_chosen: false, overload: None };

/// What a simulation found: response times in ms, writes to the disk, writes that waited.
#[derive(Clone, Copy)]
struct Found {
    read_ms: f64,
    write_ms: f64,
    disk_writes: u64,
    stalled: u64,
}

/// A load and what is found of it.
struct Case {
    reads: u64,
    writes: u64,
    sequential: bool,
    seconds: u64,
    bypasses: u64,
    failed: u64,
    bare: Found,
    /// With 16 and with 32 MiB, on each of the two devices.
    logs: [Found; 4],
    pace: PaceFacts,
}

impl Case {
    /// Half of the waiting is for writes, and goes.
    fn helpful() -> Case {
        let found =
            |read_ms, write_ms, disk_writes| Found { read_ms, write_ms, disk_writes, stalled: 0 };
        Case {
            reads: 20_000,
            writes: 20_000,
            sequential: false,
            seconds: 200_000,
            bypasses: 0,
            failed: 0,
            bare: found(10.0, 10.0, 20_000),
            logs: [
                found(9.0, 0.1, 12_000),
                found(9.0, 0.0, 8_000),
                found(9.0, 0.2, 12_000),
                found(9.0, 0.1, 8_000),
            ],
            pace: OPEN,
        }
    }

    fn all_logs(mut self, log: Found) -> Case {
        self.logs = [log; 4];
        self
    }

    fn facts(&self, found: &Found, is_log: bool) -> ReplayFacts {
        let times = |count: u64, ms: f64| TimesFacts {
            response_ms: (count > 0).then_some(Percentiles {
                mean: ms,
                p50: ms / 2.0,
                p90: ms * 2.0,
                p99: ms * 3.0,
                p999: ms * 3.0,
                max: ms * 4.0,
            }),
            ..TimesFacts::default()
        };
        let log = LogFacts {
            cache_disk_writes: 100,
            cache_disk_write_bytes: 900 * MIB,
            cache_disk_reads: 0,
            cache_disk_busy_percent: 1.0,
            read_hit_lines: 1,
            read_miss_lines: 3,
            overwritten_lines: 0,
            bypasses: self.bypasses,
            destaged_lines: 0,
            destage_writes: 0,
            dirty_lines: 7,
            failed_requests: self.failed,
            read_area: None,
        };
        let drain = DrainFacts {
            seconds: 1.5,
            disk_writes: 1000,
            disk_write_bytes: 8 * MIB,
            cache_disk_write_bytes: 100 * MIB,
        };
        ReplayFacts {
            requests: self.reads + self.writes,
            reads: self.reads,
            writes: self.writes,
            flushes: 0,
            discards: 0,
            target: TargetFacts {
                // Those of the drain come on top.
                disk_writes: found.disk_writes - if is_log { 1000 } else { 0 },
                disk_write_bytes: found.disk_writes * 4096,
                stalled_writes: found.stalled,
                log: is_log.then_some(log),
                ..TargetFacts::default()
            },
            outstanding_max: 3,
            memory_bytes_max: 0,
            duration_s: self.seconds as f64,
            arrivals_s: 0.0,
            read: times(self.reads, found.read_ms),
            write: times(self.writes, found.write_ms),
            flush: TimesFacts::default(),
            drain: is_log.then_some(drain),
            access: ReadAccess::default(),
            sequences: None,
            bound: None,
            store: None,
            cost: None,
            bill: Bill::default(),
        }
    }

    fn advice(&self) -> Advice {
        let outcomes = self.logs.iter().map(|log| Ok(self.facts(log, true))).collect();
        self.advice_of(Ok(self.facts(&self.bare, false)), outcomes)
    }

    fn grid(&self) -> Grid {
        let device =
            |name: &str, tbw| CacheDevice::new(name.into(), Profile::load(name).unwrap(), tbw);
        Grid {
            disk_name: "wd-4tb".into(),
            disk: Profile::load("wd-4tb").unwrap(),
            devices: vec![device("nvme-ssd", Some(1.0)), device("hp-97560", None)],
            sizes: vec![16 * MIB, 32 * MIB],
            destage: vec![DestagePolicyKind::FirstWriteFirst],
            ack: vec![AckMode::Memory],
            seed: 0,
        }
    }

    fn advice_of(&self, bare: Outcome, outcomes: Vec<Outcome>) -> Advice {
        let grid = self.grid();
        let mut meter = LoadMeter::default();
        let all = self.reads + self.writes;
        for number in 0..all {
            let is_write = number * self.writes / all != (number + 1) * self.writes / all;
            meter.add(&Request {
                time_ns: number * (self.seconds * 1_000_000_000 / all),
                operation: if is_write { Operation::Write } else { Operation::Read },
                device: 0,
                offset_bytes: if self.sequential { number } else { number * 7 % 1000 * 10 } * 4096,
                size_bytes: 4096,
                flags: Flags::default(),
                latency_ns: None,
                line: 1,
                column: 1,
            });
        }
        let load = meter.finish("<load> & \"more\"".into()).unwrap();
        Advice::new(load, &grid, self.pace, &bare, &outcomes)
    }
}

fn says(advice: &Advice, wanted: &str) {
    let recommendation = &advice.recommendation;
    let all = [&recommendation.details[..], &recommendation.limits].concat().join(" ");
    let all = format!("{} {all}", recommendation.sentence);
    assert!(all.contains(wanted), "{wanted}: {all}");
}

#[test]
fn the_smallest_log_that_helps_nearly_as_much_is_recommended() {
    let advice = Case::helpful().advice();
    let recommendation = &advice.recommendation;
    assert_eq!((recommendation.verdict, recommendation.row), (Verdict::Helps, Some(0)));
    assert_eq!(recommendation.alike, ["hp-97560"]);
    for wanted in [
        "with a log of 16 MiB on nvme-ssd, requests would take 4.55 ms instead of 10.0 ms on average (54 % less",
        "writes 0.10 ms instead of 10.0 ms, reads 9.00 ms instead of 10.0 ms",
        "wd-4tb would get 40 % fewer writes",
        "With 32 MiB, wd-4tb would get 60 % fewer writes",
        "Nearly as good in this size: hp-97560",
        "This follows from 40,000 requests in 2.3 days.",
        "the smallest size tried",
        "acknowledged from memory",
    ] {
        says(&advice, wanted);
    }
    let curve = &advice.curves[0];
    assert_eq!((curve.knee_bytes, curve.disk_writes_knee_bytes), (Some(16 * MIB), Some(32 * MIB)));
}

/// 1000 MiB, 100 of them to empty the log, in 200,000 s; 10^12 bytes may be written.
#[test]
fn wear_is_what_was_counted() {
    let advice = Case::helpful().advice();
    let log = advice.rows[0].log().unwrap();
    assert_eq!((log.cache_write_bytes, log.left_lines, log.drain_s), (1000 * MIB, 7, Some(1.5)));
    assert_eq!(log.read_hit_percent, 25.0);
    let wear = log.wear.unwrap();
    let per_day = 1000.0 * MIB as f64 * 86_400.0 / 200_000.0;
    assert!((wear.bytes_per_day - per_day).abs() < 1.0);
    assert!((wear.years.unwrap() - 1e12 / per_day / 365.25).abs() < 1e-9);
    assert!((wear.drive_writes_per_day.unwrap() - per_day / 1_000_204_886_016.0).abs() < 1e-9);
    let arm = advice.rows[2].log().unwrap().wear.unwrap();
    assert_eq!((arm.years, arm.drive_writes_per_day), (None, None));
    says(&advice, "what it endures lasts 6.0 years");
}

#[test]
fn a_log_that_refuses_requests_or_is_full_is_not_recommended() {
    let failing = Case { failed: 3, ..Case::helpful() }.advice();
    assert_eq!(failing.recommendation.reason, Some(Reason::NoQuiet));
    says(&failing, "3 for more than a minute, in vain");
    let case = Case::helpful();
    let stuck = |log| -> Outcome { Ok(ReplayFacts { drain: None, ..case.facts(log, true) }) };
    let stuck = case.logs.iter().map(stuck).collect();
    let stuck = case.advice_of(Ok(case.facts(&case.bare, false)), stuck);
    assert_eq!(stuck.recommendation.verdict, Verdict::NoHelp);
    assert!(page(&stuck).contains("and never emptied"));
    let full = Found { read_ms: 10.0, write_ms: 9.9, disk_writes: 20_000, stalled: 15_000 };
    let full = Case::helpful().all_logs(full).advice();
    assert_eq!(full.recommendation.verdict, Verdict::NoHelp);
    assert_eq!(full.recommendation.reason, Some(Reason::NoQuiet));
    says(&full, "75 % of the writes wait for room");
}

#[test]
fn who_hardly_writes_is_told_not_to_buy_anything() {
    let nothing = Found { read_ms: 10.0, write_ms: 0.0, disk_writes: 1000, stalled: 0 };
    let read_only = Case { writes: 0, ..Case::helpful() };
    let bare = Found { disk_writes: 0, ..read_only.bare };
    let read_only = Case { bare, ..read_only }.all_logs(nothing).advice();
    let hardly = Case { writes: 100, ..Case::helpful() }.all_logs(nothing).advice();
    let mostly = Found { read_ms: 99.0, write_ms: 0.0, disk_writes: 20_000, stalled: 0 };
    let mostly = Case { bare: Found { read_ms: 100.0, ..Case::helpful().bare }, ..Case::helpful() }
        .all_logs(mostly)
        .advice();
    for (advice, reason, words) in [
        (read_only, Reason::NoWrites, "has no writes"),
        (hardly, Reason::HardlyAnyWrites, "only 0.5 % of its 20,100 requests are writes"),
        (mostly, Reason::ReadsWait, "91 % of the time that requests wait is for reads"),
    ] {
        let recommendation = &advice.recommendation;
        assert_eq!(
            (recommendation.verdict, recommendation.reason),
            (Verdict::NoHelp, Some(reason))
        );
        assert!(recommendation.sentence.starts_with("dcd would not help this load: "));
        says(&advice, words);
        assert!(!page(&advice).contains("dcd create --cache-disk"), "no way to have it");
    }
}

#[test]
fn who_writes_in_sequence_or_has_a_fast_disk_needs_none() {
    let same = Found { read_ms: 10.0, write_ms: 9.5, disk_writes: 20_000, stalled: 0 };
    let case = || Case::helpful().all_logs(same);
    let sequential = Case { sequential: true, ..case() }.advice();
    assert_eq!(sequential.recommendation.reason, Some(Reason::Sequential));
    let large = Case { bypasses: 12_000, ..case() }.advice();
    assert_eq!(large.recommendation.reason, Some(Reason::Sequential));
    says(&large, "12,000 writes are so large that they go past the log");
    let fast = Found { read_ms: 0.2, write_ms: 0.2, ..same };
    let fast = Case { bare: fast, ..Case::helpful() }.all_logs(fast).advice();
    assert_eq!(fast.recommendation.reason, Some(Reason::FastAlready));
    says(&fast, "makes no difference");
    // Twice as fast, but dcd itself is not in these times.
    let little = Found { read_ms: 0.1, write_ms: 0.0, ..same };
    let bare = Found { read_ms: 0.1, write_ms: 0.2, ..same };
    let little = Case { bare, ..Case::helpful() }.all_logs(little).advice();
    assert_eq!(little.recommendation.reason, Some(Reason::FastAlready));
    let slower = Found { read_ms: 12.0, write_ms: 12.0, ..same };
    let slower = Case::helpful().all_logs(slower).advice();
    assert_eq!(slower.recommendation.reason, Some(Reason::Other));
    says(&slower, "makes requests 20 % slower");
}

#[test]
fn fewer_writes_alone_are_told_as_that() {
    let spared = Found { read_ms: 10.0, write_ms: 10.1, disk_writes: 5000, stalled: 0 };
    let advice = Case::helpful().all_logs(spared).advice();
    assert_eq!(advice.recommendation.verdict, Verdict::FewerWrites);
    says(
        &advice,
        "hardly make requests faster (10.1 ms instead of 10.0 ms on average), but spare the disk",
    );
    says(&advice, "75 % fewer writes");
}

#[test]
fn queues_are_not_told_as_a_prediction() {
    let overload = Some(Overload::Late { seconds: 500.0, trace_s: 60.0 });
    let absurd = Case { pace: PaceFacts { is_chosen: true, overload, ..OPEN }, ..Case::helpful() };
    let advice = absurd.advice();
    assert_eq!(
        (advice.recommendation.verdict, advice.recommendation.row),
        (Verdict::Overloaded, None)
    );
    says(
        &advice,
        "Nothing is predicted: at these times wd-4tb would be done 8.3 min after the end of a trace of 60 s",
    );
    let closed = PaceFacts { closed_loop: true, stretch: None, overload, ..OPEN };
    let advice = Case { pace: closed, ..Case::helpful() }.advice();
    assert_eq!(advice.recommendation.verdict, Verdict::Helps);
    says(&advice, "The trace is from a faster disk");
    assert!(page(&advice).contains("<li class=\"warning\">The trace is from a faster disk"));
}

#[test]
fn a_disk_is_overloaded_when_it_is_late_or_its_queue_too_long() {
    let case = Case::helpful();
    let mut facts = case.facts(&case.bare, false);
    assert_eq!(Overload::of(&facts, 199_000.0), None, "a little late");
    assert!(matches!(Overload::of(&facts, 100_000.0), Some(Overload::Late { .. })));
    facts.outstanding_max = 5000;
    assert_eq!(Overload::of(&facts, 200_000.0), Some(Overload::Queue { requests: 5000 }));
}

#[test]
fn what_could_not_be_simulated_is_told() {
    let case = Case::helpful();
    let bad = || -> Outcome { Err("<no> such thing".into()) };
    let bare = || -> Outcome { Ok(case.facts(&case.bare, false)) };
    let nothing = case.advice_of(bad(), vec![bad(), bad(), bad(), bad()]);
    assert_eq!(nothing.recommendation.verdict, Verdict::Unknown);
    says(&nothing, "wd-4tb could not be simulated: <no> such thing");
    let none = case.advice_of(bare(), vec![bad(), bad(), bad(), bad()]);
    assert_eq!(none.recommendation.verdict, Verdict::Unknown);
    let one = vec![bad(), bad(), Ok(case.facts(&case.logs[0], true)), bad()];
    let one = case.advice_of(bare(), one);
    assert_eq!((one.recommendation.verdict, one.recommendation.row), (Verdict::Helps, Some(2)));
    says(&one, "3 logs could not be simulated");
    assert!(page(&one).contains("&lt;no&gt; such thing"));
}

#[test]
fn the_limits_of_a_short_trace_are_told() {
    let short = Case { seconds: 60, ..Case::helpful() }.advice();
    says(&short, "40,000 requests in 60 s: a short look");
    says(&short, "a day if 60 s like these went on day and night");
    let few = Case { reads: 1000, writes: 1000, ..Case::helpful() }.advice();
    says(&few, "2,000 requests in 2.3 days: few");
    let day = Case { seconds: 20_000, ..Case::helpful() }.advice();
    says(&day, "once a day may be missing");
    let idle = Case { seconds: 10_000_000, ..Case::helpful() }.advice();
    says(&idle, "There is little to be had");
}

#[test]
fn the_page_is_whole_needs_nothing_and_escapes_what_is_not_ours() {
    let page = page(&Case::helpful().advice());
    assert!(page.starts_with(super::page::BEGINNING) && page.ends_with("</body></html>\n"));
    assert!(page.contains("&lt;load&gt; &amp; &quot;more&quot;") && !page.contains("<load>"));
    for foreign in ["<script", "src=", "href=", "url(", "@import"] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    for tag in
        ["svg", "figure", "table", "tr", "td", "th", "div", "p", "ul", "li", "dl", "h2", "pre"]
    {
        let opened =
            page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
    }
    assert!(page.matches("<svg ").count() >= 5 && page.contains("knee: 16 MiB"));
    assert!(page.contains("prefers-color-scheme:dark") && page.contains("--cache-size 16M"));
}

/// The mean hides the writes that wait for room, and another device with the same mean has none.
#[test]
fn a_size_in_which_writes_wait_is_before_the_knee() {
    let mut case = Case::helpful();
    case.logs[0].stalled = 600;
    let advice = case.advice();
    let recommendation = &advice.recommendation;
    assert_eq!((recommendation.verdict, recommendation.row), (Verdict::Helps, Some(1)));
    assert_eq!(advice.curves[0].knee_bytes, Some(32 * MIB));
    assert_eq!(advice.curves[1].knee_bytes, Some(16 * MIB));
    says(&advice, "It is the largest size tried");
    // Of the other device it is the other way round: not as good in this size.
    case.logs[0].stalled = 0;
    case.logs[2].stalled = 600;
    assert!(case.advice().recommendation.alike.is_empty());
}

#[test]
fn what_other_seeds_do_not_show_is_not_recommended() {
    let case = Case::helpful();
    let pairs = |bare: [Found; 2], own: [Found; 2]| -> Vec<Outcome> {
        let pair = |(bare, own): (&Found, &Found)| [case.facts(bare, false), case.facts(own, true)];
        bare.iter().zip(&own).flat_map(pair).map(Ok).collect()
    };
    let mut advice = case.advice();
    let grid = case.grid();
    let points = noise::points(&advice, &grid, &OPEN, 3);
    let seeds: Vec<u64> = points.iter().map(|point| point.setup.seed).collect();
    assert_eq!(seeds, [1, 1, 2, 2]);
    assert!(points[0].setup.log.is_none() && points[1].setup.log.is_some());
    let better = Found { read_ms: 8.0, ..case.logs[0] };
    noise::weigh(&mut advice, &pairs([case.bare; 2], [case.logs[0], better]));
    assert_eq!(advice.recommendation.verdict, Verdict::Helps);
    says(
        &advice,
        "With 3 seeds (chance of the disks): 54 % to 60 % less waiting, 40 % fewer writes",
    );

    // With one of them it is next to nothing.
    let worse = Found { read_ms: 9.9, write_ms: 8.5, ..case.logs[0] };
    let mut advice = case.advice();
    noise::weigh(&mut advice, &pairs([case.bare; 2], [case.logs[0], worse]));
    let recommendation = &advice.recommendation;
    assert_eq!(
        (recommendation.verdict, recommendation.reason),
        (Verdict::NoHelp, Some(Reason::Noise))
    );
    says(&advice, "with 3 seeds of the disks it is 8.0 % to 54 % less waiting");
    assert!(noise::points(&advice, &grid, &OPEN, 3).is_empty());
}

#[test]
fn a_log_that_fails_with_another_seed_is_not_recommended() {
    let case = Case::helpful();
    let fine = || [Ok(case.facts(&case.bare, false)), Ok(case.facts(&case.logs[0], true))];
    let bad = || -> Outcome { Err("no such thing".into()) };
    let log = || case.facts(&case.logs[0], true);
    let refusing = Case { failed: 1, ..Case::helpful() }.facts(&case.logs[0], true);
    let never_empty = ReplayFacts { drain: None, ..log() };
    for pair in [
        [Ok(case.facts(&case.bare, false)), bad()],
        [bad(), Ok(log())],
        [bad(), bad()],
        [Ok(case.facts(&case.bare, false)), Ok(refusing)],
        [Ok(case.facts(&case.bare, false)), Ok(never_empty)],
    ] {
        for outcomes in [pair.to_vec(), [fine(), pair.clone()].concat()] {
            let mut advice = case.advice();
            noise::weigh(&mut advice, &outcomes);
            let recommendation = &advice.recommendation;
            let found = (recommendation.verdict, recommendation.reason);
            assert_eq!(found, (Verdict::NoHelp, Some(Reason::Noise)));
            assert_eq!(advice.noise.unwrap().failed_seeds, 1);
            let seeds = 1 + outcomes.len() / 2;
            says(&advice, &format!("with 1 of {seeds} seeds of the disks the log does not work"));
        }
    }
}

/// What that many writes to a bucket are billed, with 100 GiB in it.
fn billed(facts: ReplayFacts, writes: u64) -> ReplayFacts {
    let price = PriceProfile {
        usd_per_1000_writes: 1.0,
        usd_per_gib_month: 0.023,
        stored_bytes: Some(100 << 30),
        ..PriceProfile::default()
    };
    let usage = Usage {
        traffic: Traffic { writes, ..Traffic::default() },
        reads_per_second: 0.0,
        room_bytes: 1 << 40,
        capacity_bytes: 1 << 40,
        endurance_tbw: None,
    };
    ReplayFacts { bill: Bill { disk: Some((price, usage)), cache_disk: None }, ..facts }
}

/// Of a load that takes a month of 730 hours.
fn month_long(pace: PaceFacts) -> Case {
    Case { seconds: 730 * 3600, pace, ..Case::helpful() }
}

#[test]
fn what_a_month_costs_is_told_where_a_disk_has_prices() {
    let case = month_long(OPEN);
    assert!(!case.advice().has_cost());
    let logs = case.logs.iter().map(|log| Ok(billed(case.facts(log, true), 400))).collect();
    let advice = case.advice_of(Ok(billed(case.facts(&case.bare, false), 71_000)), logs);
    says(
        &advice,
        "A month like this would cost 2.70 USD without the cache device (0.40 for requests, 2.30 for room) instead of 73.30.",
    );
    let both = |log| -> Outcome {
        let facts = billed(case.facts(log, true), 400);
        let disk = facts.bill.disk;
        Ok(ReplayFacts { bill: Bill { disk, cache_disk: disk }, ..facts })
    };
    let priced = case.logs.iter().map(both).collect();
    let priced = case.advice_of(Ok(billed(case.facts(&case.bare, false), 71_000)), priced);
    says(&priced, "A month like this would cost 5.40 USD (0.40 for requests");
    let page = page(&advice);
    assert!(page.contains("<th>USD</th>") && page.contains("<td>73.30</td>"));
}

/// A log that is done in a tenth of the time serves the same load, and pays for that.
#[test]
fn month_prices_of_a_closed_loop_are_of_the_same_load() {
    let closed = PaceFacts { closed_loop: true, stretch: None, ..OPEN };
    let case = month_long(closed);
    let faster = |log| -> Outcome {
        let facts = case.facts(log, true);
        Ok(billed(ReplayFacts { duration_s: facts.duration_s / 10.0, ..facts }, 400))
    };
    let logs = case.logs.iter().map(faster).collect();
    let advice = case.advice_of(Ok(billed(case.facts(&case.bare, false), 71_000)), logs);
    says(
        &advice,
        "A month of this load, at the times of the trace, would cost 2.70 USD without the cache device (0.40 for requests, 2.30 for room) \
         instead of 73.30.",
    );
    let usd = |row: &Row| row.facts.unwrap().cost.unwrap().month_usd;
    assert!((usd(&advice.bare) - 73.3).abs() < 0.01 && (usd(&advice.rows[0]) - 2.7).abs() < 0.01);
    assert!(advice.month_of_s.unwrap() > 0.99 * 730.0 * 3600.0, "{:?}", advice.month_of_s);

    // All of it came at once: as long as the bare disk took.
    let case = Case { seconds: 0, pace: closed, ..Case::helpful() };
    let took = |facts: ReplayFacts, hours: f64, writes| {
        billed(ReplayFacts { duration_s: hours * 3600.0, ..facts }, writes)
    };
    let logs = case.logs.iter().map(|log| Ok(took(case.facts(log, true), 73.0, 400))).collect();
    let advice = case.advice_of(Ok(took(case.facts(&case.bare, false), 730.0, 71_000)), logs);
    says(&advice, "A month of this load, as fast as the bare disk serves it, would cost 2.70 USD");
}
