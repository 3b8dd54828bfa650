//! Results of a point as the columns of a row.

use dcd_sim::distribution::Percentiles;
use dcd_sim::replay::ReplayFacts;
use dcd_sim::sweep::Outcome;
use serde_json::{Value, json};

/// Names of the results, behind the parameters.
pub const RESULTS: [&str; 21] = [
    "requests",
    "reads",
    "writes",
    "disk_reads",
    "disk_writes",
    "disk_write_bytes",
    "disk_busy_percent",
    "stalled_writes",
    "overwrites",
    "read_service_ms",
    "read_response_ms",
    "read_response_p99_ms",
    "write_service_ms",
    "write_response_ms",
    "write_response_p99_ms",
    "cache_disk_write_bytes",
    "read_disk_time_ms",
    "seek_distance",
    "before_read_disk_time_ms",
    "before_seek_distance",
    "error",
];
/// Columns that are text, whatever it looks like.
const TEXTS: [&str; 9] = [
    "load",
    "disk",
    "policy",
    "groups_at_once",
    "hot_zone",
    "destage",
    "sequences",
    "settings",
    "error",
];

/// Values by name; empty: none.
pub type Labels = Vec<(&'static str, String)>;

/// Values of [`RESULTS`].
pub fn results(outcome: &Outcome) -> Vec<String> {
    let facts = match outcome {
        Ok(facts) => facts,
        Err(problem) => {
            let mut values = vec![String::new(); RESULTS.len() - 1];
            values.push(problem.replace('\n', " "));
            return values;
        }
    };
    let ReplayFacts { target, access, .. } = facts;
    let before = facts.sequences.as_ref().map(|run| run.before.access);
    let ms = |times: Option<Percentiles>, value: fn(Percentiles) -> f64| {
        times.map_or(String::new(), |times| format!("{:.4}", value(times)))
    };
    let (mean, p99) = (|times: Percentiles| times.mean, |times: Percentiles| times.p99);
    let log = target.log.as_ref();
    let values: [String; RESULTS.len()] = [
        facts.requests.to_string(),
        facts.reads.to_string(),
        facts.writes.to_string(),
        target.disk_reads.to_string(),
        target.disk_writes.to_string(),
        target.disk_write_bytes.to_string(),
        format!("{:.3}", target.disk_busy_percent),
        target.stalled_writes.to_string(),
        target.overwrites.to_string(),
        ms(facts.read.service_ms, mean),
        ms(facts.read.response_ms, mean),
        ms(facts.read.response_ms, p99),
        ms(facts.write.service_ms, mean),
        ms(facts.write.response_ms, mean),
        ms(facts.write.response_ms, p99),
        log.map_or(String::new(), |log| log.cache_disk_write_bytes.to_string()),
        format!("{:.3}", access.read_disk_time_ms),
        access.seek_distance.to_string(),
        before.map_or(String::new(), |before| format!("{:.3}", before.read_disk_time_ms)),
        before.map_or(String::new(), |before| before.seek_distance.to_string()),
        String::new(),
    ];
    values.to_vec()
}

/// Whether values of a column are text.
pub fn is_text(name: &str) -> bool {
    TEXTS.contains(&name)
}

/// A value as JSON: a number where the column has numbers.
pub fn value(name: &str, text: &str) -> Value {
    match text.parse::<f64>() {
        _ if text.is_empty() => Value::Null,
        Ok(number) if !is_text(name) => match text.parse::<u64>() {
            Ok(whole) => json!(whole),
            Err(_) => json!(number),
        },
        _ => json!(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_numbers_only_where_there_are_some() {
        assert_eq!(value("reads", "7"), json!(7));
        assert_eq!(value("stretch", "0.5"), json!(0.5));
        assert_eq!(value("hot_zone", "25"), json!("25"));
        assert_eq!(value("reads", ""), Value::Null);
        assert_eq!(value("settings", "12345678901234e5"), json!("12345678901234e5"));
    }
}
