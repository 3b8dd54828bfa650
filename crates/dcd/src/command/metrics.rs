//! `dcd metrics`: the export of a running dcd.

use std::path::PathBuf;

use clap::Args;
use dcd_daemon::control::client::ControlClient;
use serde_json::{Value, json};

use crate::daemons::{RunningCache, find};
use crate::error::CommandError;
use crate::output::wants_json;
use crate::stdout::{print, print_json};

/// Print the metrics of a running dcd, in the form of OpenMetrics.
///
/// What Prometheus reads from `dcd serve --metrics`, once. docs/metrics.md says what each of them
/// means.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd metrics sdb
  dcd metrics /dev/ublkb0
  dcd metrics /run/sdb.ctl | grep dirty")]
pub struct MetricsArguments {
    /// Which.
    #[command(flatten)]
    pub cache: RunningCache,
    /// Where services have their control sockets, as NAME.ctl; others are not looked at.
    #[arg(long, value_name = "DIRECTORY", default_value = crate::daemons::DIRECTORY)]
    pub sockets: PathBuf,
}

pub fn run(arguments: &MetricsArguments) -> Result<(), CommandError> {
    let socket = find(arguments.cache.name(), &arguments.sockets)?;
    let text = ControlClient::connect(&socket)?.metrics()?;
    match wants_json() {
        true => print_json(&samples(&text)),
        false => print(&text),
    }
}

/// Each sample as an object. The text is our own: a label's value has no quotes in it but escaped
/// ones.
fn samples(text: &str) -> Vec<Value> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(sample).collect()
}

fn sample(line: &str) -> Option<Value> {
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    let mut left = labels.strip_suffix('}')?;
    let mut pairs = serde_json::Map::new();
    while let Some((label, rest)) = left.split_once("=\"") {
        let mut is_escaped = false;
        let end = rest.find(|letter| {
            let is_end = letter == '"' && !is_escaped;
            is_escaped = letter == '\\' && !is_escaped;
            is_end
        })?;
        let value = rest[..end].replace("\\n", "\n").replace("\\\"", "\"").replace("\\\\", "\\");
        pairs.insert(label.into(), value.into());
        left = rest[end + 1..].strip_prefix(',').unwrap_or("");
    }
    let value = value.parse::<f64>().ok()?;
    Some(json!({ "name": name, "labels": pairs, "value": value }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read() {
        let text = "# TYPE a gauge\na{b=\"x,\\\"y\",c=\"2\"} 3\nd 0.5\n# EOF\n";
        let all = samples(text);
        assert_eq!(all[0]["labels"]["b"], "x,\"y");
        assert_eq!(all[0]["labels"]["c"], "2");
        assert_eq!((all[1]["name"].as_str(), all[1]["value"].as_f64()), (Some("d"), Some(0.5)));
    }
}
