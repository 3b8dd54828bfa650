//! Text in the form of OpenMetrics 1.0: families of samples, as `dcd metrics` prints them and
//! Prometheus reads them.
//!
//! ```text
//! # TYPE dcd_request_bytes counter
//! # UNIT dcd_request_bytes bytes
//! # HELP dcd_request_bytes Bytes asked for.
//! dcd_request_bytes_total{request="read"} 4096
//! ...
//! # EOF
//! ```
//!
//! Only what dcd needs: no timestamps, no exemplars. Written here rather than by a crate: a
//! registry of live counters would be a second place that counts what the engine counts.

use std::fmt::Write as _;

/// `Content-Type` of the text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What a family is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricKind {
    /// Only grows, until a restart.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts of times by their length.
    Histogram,
    /// Facts in labels.
    Info,
    /// One of several states is 1, the others are 0.
    StateSet,
}

impl MetricKind {
    /// As the `TYPE` line has it.
    pub fn name(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
            MetricKind::Info => "info",
            MetricKind::StateSet => "stateset",
        }
    }

    /// What the name of a plain sample has behind that of its family.
    fn suffix(self) -> &'static str {
        match self {
            MetricKind::Counter => "_total",
            MetricKind::Info => "_info",
            MetricKind::Gauge | MetricKind::Histogram | MetricKind::StateSet => "",
        }
    }
}

/// Labels of a sample.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// The samples of one family, being written.
pub struct Samples<'a> {
    text: &'a mut String,
    family: &'static str,
    kind: MetricKind,
}

impl Samples<'_> {
    /// A number.
    pub fn number(&mut self, labels: Labels<'_>, value: f64) {
        self.line(self.kind.suffix(), labels, value);
    }

    /// A whole number.
    pub fn whole(&mut self, labels: Labels<'_>, value: u64) {
        self.number(labels, value as f64);
    }

    /// One sample for each of `states`; `now` is 1. The label has the name of the family.
    pub fn state(&mut self, labels: Labels<'_>, states: &[&str], now: &str) {
        for state in states {
            let mut all = labels.to_vec();
            all.push((self.family, state));
            self.number(&all, if *state == now { 1.0 } else { 0.0 });
        }
    }

    /// A histogram: upper bounds with the count of all that is not above, what all add up to, and
    /// how many there are.
    pub fn histogram(&mut self, labels: Labels<'_>, buckets: &[(f64, u64)], sum: f64, count: u64) {
        for (bound, at_most) in buckets {
            let bound = number_text(*bound);
            let mut all = labels.to_vec();
            all.push(("le", &bound));
            self.line("_bucket", &all, *at_most as f64);
        }
        let mut all = labels.to_vec();
        all.push(("le", "+Inf"));
        self.line("_bucket", &all, count as f64);
        self.line("_count", labels, count as f64);
        self.line("_sum", labels, sum);
    }

    fn line(&mut self, suffix: &str, labels: Labels<'_>, value: f64) {
        self.text.push_str(self.family);
        self.text.push_str(suffix);
        for (index, (name, value)) in labels.iter().enumerate() {
            self.text.push(if index == 0 { '{' } else { ',' });
            let _ = write!(self.text, "{name}=\"{}\"", escaped(value));
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {}", number_text(value));
    }
}

/// A document, being written.
#[derive(Default)]
pub struct Document {
    text: String,
}

impl Document {
    /// A family with its samples. `unit` is the last word of its name.
    pub fn family(
        &mut self,
        name: &'static str,
        kind: MetricKind,
        unit: Option<&str>,
        help: &str,
    ) -> Samples<'_> {
        let text = &mut self.text;
        let _ = writeln!(text, "# TYPE {name} {}", kind.name());
        if let Some(unit) = unit {
            let _ = writeln!(text, "# UNIT {name} {unit}");
        }
        let _ = writeln!(text, "# HELP {name} {}", escaped(help));
        Samples { text, family: name, kind }
    }

    /// The whole text.
    pub fn end(mut self) -> String {
        self.text.push_str("# EOF\n");
        self.text
    }
}

/// Whole numbers without a point, as readers of counters like them; others with what is needed to
/// read them back.
fn number_text(value: f64) -> String {
    const EXACT_MAX: f64 = (1u64 << 53) as f64;
    if value.fract() == 0.0 && value.abs() <= EXACT_MAX {
        format!("{value:.0}")
    } else {
        format!("{value}")
    }
}

/// A backslash before what would end the text early. Names of disks are chosen by people.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_as_the_standard_has_it() {
        let mut document = Document::default();
        let mut samples =
            document.family("x_bytes", MetricKind::Counter, Some("bytes"), "Bytes of \"x\".");
        samples.whole(&[("disk", "a\\b\"c\nd")], 5);
        document.family("y", MetricKind::Info, None, "Y.").whole(&[("version", "1")], 1);
        document.family("z", MetricKind::StateSet, None, "Z.").state(&[], &["on", "off"], "off");
        let mut times = document.family("t_seconds", MetricKind::Histogram, Some("seconds"), "T.");
        times.histogram(&[("k", "v")], &[(0.001, 2), (2.0, 3)], 2.5, 4);
        assert_eq!(
            document.end(),
            "# TYPE x_bytes counter\n# UNIT x_bytes bytes\n# HELP x_bytes Bytes of \\\"x\\\".\n\
             x_bytes_total{disk=\"a\\\\b\\\"c\\nd\"} 5\n\
             # TYPE y info\n# HELP y Y.\ny_info{version=\"1\"} 1\n\
             # TYPE z stateset\n# HELP z Z.\nz{z=\"on\"} 0\nz{z=\"off\"} 1\n\
             # TYPE t_seconds histogram\n# UNIT t_seconds seconds\n# HELP t_seconds T.\n\
             t_seconds_bucket{k=\"v\",le=\"0.001\"} 2\nt_seconds_bucket{k=\"v\",le=\"2\"} 3\n\
             t_seconds_bucket{k=\"v\",le=\"+Inf\"} 4\nt_seconds_count{k=\"v\"} 4\nt_seconds_sum{k=\"v\"} 2.5\n\
             # EOF\n"
        );
    }
}
