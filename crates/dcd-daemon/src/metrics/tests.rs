//! Proves that the export has every counter, follows the rules of OpenMetrics, and that documents
//! and the dashboard speak of metrics that there are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};

use super::*;
use crate::event_loop::response_times::{RequestKind, ResponseTimes};
use crate::report::volumes::{MemberReport, SetReport, WorkReport};

/// A report in which no two numbers are the same.
fn full_report() -> StatusReport {
    let mut times = ResponseTimes::default();
    for micros in [1, 3, 100, 100, 20_000_000] {
        times.record(RequestKind::Write, dcd_engine::Duration::from_micros(micros));
    }
    let mut report = StatusReport {
        version: "1.2.3".into(),
        uuid: "0123".into(),
        cache_disk: "/dev/\"odd\"".into(),
        ack: "log".into(),
        uptime_seconds: 12.5,
        response_times: times.report(),
        ..StatusReport::default()
    };
    report.counters = numbered(1_000_000);
    let work = WorkReport {
        kind: "scrub".into(),
        member: None,
        is_of_missed: false,
        done: 1,
        total: 4,
        bytes_done: 1 << 20,
        bytes_total: 4 << 20,
        mismatches: 0,
        lines_unreadable: 0,
        lines_not_compared: 0,
        is_by_time: false,
        bytes_per_second: 0,
        is_cut_short: false,
        because: None,
    };
    let member = |member: u8, state: &str| MemberReport {
        member,
        disk: None,
        state: state.into(),
        bytes_to_rebuild: 7_000_040 + u64::from(member),
        is_missed_known: false,
        errors: 7_000_000 + u64::from(member),
        read_errors: 7_000_010 + u64::from(member),
        lines_rotten: 7_000_020 + u64::from(member),
        lines_mended: 7_000_030 + u64::from(member),
        suspect: member == 1,
        times_late: 8_000_000 + u64::from(member),
    };
    report.legs = ["in-sync", "failed"]
        .map(|state| dcd_protocol::LegReport {
            leg: format!("leg {state}"),
            state: state.into(),
            filled_bytes: 6_000_001,
            errors: 6_000_002,
            mended: 6_000_003,
            ..Default::default()
        })
        .into();
    report.volume = Some(VolumeReport {
        members: vec![member(0, "up-to-date"), member(1, "missing")],
        sets: vec![SetReport {
            set: 0,
            level: 5,
            class: "slow".into(),
            members: vec![0, 1],
            stripe_unit_bytes: 65536,
            extents: 9_000_001,
            extents_used: 9_000_002,
            temporary_extents: 0,
            temporary_used: 0,
        }],
        work: Some(work),
        counters: numbered(2_000_000),
        ..VolumeReport::default()
    });
    report
}

/// A report of counters whose values go up from `first`.
fn numbered<T: Default + serde::Serialize + serde::de::DeserializeOwned>(first: u64) -> T {
    let empty = serde_json::to_value(T::default()).unwrap();
    let names = empty.as_object().unwrap().keys().cloned();
    let numbers: serde_json::Map<String, Value> =
        names.zip(first..).map(|(name, number)| (name, json!(number))).collect();
    serde_json::from_value(Value::Object(numbers)).unwrap()
}

/// Value of each sample.
fn samples_of(text: &str) -> BTreeMap<&str, &str> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.rsplit_once(' ').unwrap()).collect()
}

#[test]
fn every_counter_of_the_engine_is_exported() {
    let report = full_report();
    let text = export(&report);
    let values: BTreeSet<&str> = samples_of(&text).into_values().collect();
    let counters = serde_json::to_value(&report.counters).unwrap();
    for (name, value) in counters.as_object().unwrap() {
        assert!(values.contains(value.to_string().as_str()), "{name} is not exported");
    }
}

#[test]
fn the_export_follows_the_rules() {
    let text = export(&full_report());
    assert!(text.ends_with("\n# EOF\n"));
    let mut families = BTreeSet::new();
    for metric in METRICS {
        assert!(families.insert(metric.name), "{} is there twice", metric.name);
        assert!(!metric.name.ends_with("_total"), "{}: samples have that", metric.name);
        assert!(metric.name.starts_with("dcd"), "{}", metric.name);
        if let Some(unit) = metric.unit {
            assert!(metric.name.ends_with(&format!("_{unit}")), "{} in {unit}", metric.name);
        }
        assert!(metric.help.ends_with('.'), "{}", metric.name);
    }
    // Each sample belongs to the family that was named last, and has the labels that are said.
    let mut family: Option<&Metric> = None;
    for line in text.lines().filter(|line| *line != "# EOF") {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            family = METRICS.iter().find(|metric| metric.name == name);
            assert_eq!(family.unwrap().kind.name(), kind);
            continue;
        }
        if line.starts_with('#') {
            continue;
        }
        let metric = family.unwrap();
        let (name, _) = line.split_once([' ', '{']).unwrap();
        let suffix = name.strip_prefix(metric.name).unwrap_or_else(|| panic!("{line}"));
        let allowed: &[&str] = match metric.kind {
            Counter => &["_total"],
            Gauge | StateSet => &[""],
            Histogram => &["_bucket", "_count", "_sum"],
            Info => &["_info"],
        };
        assert!(allowed.contains(&suffix), "{line}");
        for label in metric.labels {
            assert!(line.contains(&format!("{label}=\"")), "{line} has no {label}");
        }
    }
}

#[test]
fn histograms_count_up_to_all() {
    let text = export(&full_report());
    let samples = samples_of(&text);
    let bucket = |bound: &str| {
        samples[format!("dcd_response_time_seconds_bucket{{request=\"write\",le=\"{bound}\"}}")
            .as_str()]
    };
    // 1 us is not below the bound of 1 us, which is what the histogram's buckets say.
    assert_eq!(bucket("0.000001"), "0");
    assert_eq!(bucket("0.000004"), "2");
    assert_eq!(bucket("0.000128"), "4");
    assert_eq!(bucket("16.777216"), "4");
    assert_eq!(bucket("+Inf"), "5");
    assert_eq!(samples["dcd_response_time_seconds_count{request=\"write\"}"], "5");
    assert_eq!(samples["dcd_response_time_seconds_sum{request=\"write\"}"], "20.000204");
    assert_eq!(samples["dcd_response_time_seconds_count{request=\"read\"}"], "0");
}

#[test]
fn one_state_at_a_time() {
    let mut report = full_report();
    for (uncached, failed, mode, state) in [
        (None, false, "", "logging"),
        (None, false, "write-back", "logging"),
        (None, true, "write-back", "failed"),
        (Some("passing-through"), true, "pass-through", "passing-through"),
        (None, false, "pass-through", "passing-through"),
        (None, false, "write-around", "passing-through"),
    ] {
        report.mode.mode = mode.to_owned();
        report.uncached = uncached.map(str::to_owned);
        report.cache_disk_failed = failed;
        let text = export(&report);
        let samples = samples_of(&text);
        for one in STATES {
            let expected = if one == state { "1" } else { "0" };
            let name = format!("dcd_state{{dcd_state=\"{one}\"}}");
            assert_eq!(samples[name.as_str()], expected, "{state}");
        }
    }
}

fn repository(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The table of the document, made from [`METRICS`].
fn table() -> String {
    let mut table = String::from("| metric | type | labels | meaning |\n|---|---|---|---|\n");
    for metric in METRICS {
        let labels = metric.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>();
        table += &format!(
            "| `{}` | {} | {} | {} |\n",
            metric.name,
            metric.kind.name(),
            labels.join(", "),
            metric.help
        );
    }
    table
}

#[test]
fn the_document_has_this_table() {
    assert!(
        repository("docs/metrics.md").contains(&table()),
        "docs/metrics.md needs this table:\n{}",
        table()
    );
}

/// Words of an expression that are names of ours.
fn names_in(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("dcd_"))
}

/// The rules, and each alarm of the document, by names of metrics.
#[test]
fn alert_rules_ask_for_metrics_that_there_are() {
    let rules = repository("packaging/prometheus/dcd.rules.yml");
    // By the table, because no cache has all: network disks, windows, legs, volumes.
    let exported: BTreeSet<String> = METRICS
        .iter()
        .map(|metric| match metric.kind {
            Counter => format!("{}_total", metric.name),
            _ => metric.name.to_owned(),
        })
        .collect();
    let labels: BTreeSet<&str> = METRICS.iter().flat_map(|metric| metric.labels).copied().collect();
    let expressions = rules.lines().filter_map(|line| line.trim().strip_prefix("expr: "));
    let mut known = 0;
    for expression in expressions.clone() {
        for name in names_in(expression) {
            assert!(exported.contains(name) || labels.contains(name), "{name} in {expression}");
            known += 1;
        }
    }
    assert!(known >= 20, "{known} metrics");
    // Each alarm of the document has its rule.
    let document = repository("docs/metrics.md");
    let alarms =
        document.split("## Alarms").nth(1).unwrap().split("## All metrics").next().unwrap();
    let all: String = expressions.collect();
    for row in alarms.lines().filter(|line| line.starts_with("| `")) {
        for name in names_in(row.split(" | ").next().unwrap()) {
            assert!(all.contains(name), "no alert rule for {name}");
        }
    }
}

#[test]
fn the_dashboard_shows_metrics_that_there_are() {
    let dashboard: Value = serde_json::from_str(&repository("packaging/grafana/dcd.json")).unwrap();
    let text = export(&full_report());
    let exported: BTreeSet<&str> =
        samples_of(&text).into_keys().map(|name| name.split('{').next().unwrap()).collect();
    let labels: BTreeSet<&str> = METRICS.iter().flat_map(|metric| metric.labels).copied().collect();
    let mut queries = 0;
    let panels = dashboard["panels"].as_array().unwrap();
    for target in panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten() {
        let expression = target["expr"].as_str().unwrap();
        queries += 1;
        for name in names_in(expression) {
            assert!(exported.contains(name) || labels.contains(name), "{name} in {expression}");
        }
        assert!(names_in(expression).next().is_some(), "{expression}");
    }
    assert!(queries >= 15, "{queries} queries");
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        for name in names_in(variable["query"].as_str().unwrap_or_default()) {
            assert!(exported.contains(name), "{name}");
        }
    }
    let titles: BTreeSet<&str> =
        panels.iter().filter_map(|panel| panel["title"].as_str()).collect();
    assert_eq!(titles.len(), panels.len(), "each panel has a title of its own");
}
