//! fio's logs of latencies (`write_lat_log`) with offsets (`log_offset=1`):
//! `MILLISECONDS, LATENCY, DIRECTION, SIZE, OFFSET[, PRIORITY[, ISSUED]]`, direction 0 read, 1 write,
//! 2 trim; sizes and offsets in bytes.
//!
//! Specification: "Log File Formats" in fio's HOWTO; `flush_samples` in its `iolog.c`. A line is
//! logged when a request is done: it came so much earlier as it took. Latencies are nanoseconds where
//! there is a priority; without one the log may be of a fio that has microseconds there, so they are
//! not known, and times are those of the ends.

use super::Operation;
use super::error::TraceError;
use super::reader::{LineParser, Parsed};
use super::row::{Line, Range, Row};

/// Whether it is a row of such a log, or of one without offsets, which is refused. fio has a blank
/// behind each comma; without it five numbers could be a row of Tencent's.
pub(super) fn is_row(row: &Row<'_>) -> bool {
    let number = |index| row.text(index).parse::<u64>().is_ok();
    let size = row.text(3).parse::<u64>().is_ok_and(|size| size == 0 || size >= 512);
    (4..=7).contains(&row.count)
        && row.line.text.contains(", ")
        && number(0)
        && number(1)
        && operation(row.text(2)).is_some()
        && size
}

fn operation(text: &str) -> Option<Operation> {
    match text {
        "0" => Some(Operation::Read),
        "1" => Some(Operation::Write),
        "2" => Some(Operation::Discard),
        _ => None,
    }
}

/// Reads such logs.
pub(super) struct FioLatency {
    has_offsets: bool,
}

impl FioLatency {
    /// For a log that begins so: where a priority stands last, there is no offset before it.
    pub fn new(beginning: &str) -> FioLatency {
        let has_offset = |text: &str| {
            let row = Line { path: "".as_ref(), number: 0, text }.split_commas();
            let is_priority = matches!(row.text(4), "0" | "1") || row.text(4).starts_with("0x");
            row.count > 5 || (row.count == 5 && !is_priority)
        };
        FioLatency { has_offsets: beginning.lines().any(has_offset) }
    }
}

impl LineParser for FioLatency {
    fn parse(&mut self, line: &Line<'_>) -> Result<Option<Parsed>, TraceError> {
        let row = line.split_commas();
        let done_ns = row.time(0, "time", 1_000_000)?;
        let latency_ns = row.time(1, "latency", 1)?;
        let operation = operation(row.get(2, "direction")?)
            .ok_or_else(|| row.expected(2, "direction", "0 (read), 1 (write) or 2 (trim)"))?;
        let size_bytes = row.number(3, "size")?;
        if size_bytes == 0 {
            let problem = "expected a size, found 0: the log is of means (log_avg_msec)".to_owned();
            return Err(row.problem(3, "size", problem));
        }
        if !self.has_offsets {
            let problem = "expected an offset, found none: log with log_offset=1".to_owned();
            return Err(row.problem(4, "offset", problem));
        }
        let range = Range { field: 4, offset_bytes: row.number(4, "offset")?, size_bytes };
        let has_latency = row.count > 5;
        let time_ns = if has_latency { row.begun(done_ns, 1, latency_ns)? } else { done_ns };
        let mut request = row.request(time_ns, operation, &range)?;
        request.latency_ns = has_latency.then_some(latency_ns);
        Ok(Some(Parsed { request, time_byte: row.byte(0) }))
    }
}

#[cfg(test)]
mod tests {
    use crate::trace::reader_tests::{detected, read, refused};
    use crate::trace::{Operation, TraceFormat};

    #[test]
    fn requests_begin_as_long_before_their_line_as_they_took() {
        for more in ["", ", 1741187534043000"] {
            let text =
                format!("10, 4000000, 1, 4096, 8192, 0{more}\n11, 2500000, 0, 512, 0, 0{more}\n");
            assert_eq!(detected(&text), TraceFormat::FioLatency);
            let requests = read(&text, None);
            let facts: Vec<_> = requests
                .iter()
                .map(|r| (r.time_ns, r.operation, r.offset_bytes, r.size_bytes, r.latency_ns))
                .collect();
            let wanted = [
                (0, Operation::Write, 8192, 4096, Some(4_000_000)),
                (2_500_000, Operation::Read, 0, 512, Some(2_500_000)),
            ];
            assert_eq!(facts, wanted);
        }
        // Of an earlier fio, with an offset that looks like a priority.
        let requests = read("10, 40, 2, 4096, 0\n12, 25, 0, 512, 65536\n", None);
        let facts: Vec<_> = requests
            .iter()
            .map(|r| (r.time_ns, r.operation, r.offset_bytes, r.latency_ns))
            .collect();
        let wanted = [(0, Operation::Discard, 0, None), (2_000_000, Operation::Read, 65_536, None)];
        assert_eq!(facts, wanted);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for text in ["1, 5, 0, 4096\n", "1, 5, 0, 4096, 0\n", "1, 5, 0, 4096, 0x2001\n"] {
            let shown = refused(text, None);
            assert!(
                shown.contains(": offset: expected an offset, found none: log with log_offset=1")
            );
        }
        // Which would be a row of Tencent's without its blanks.
        assert!(refused("500, 70, 1, 0, 0\n", None).starts_with("t:1:13: size: expected a size"));
        let shown = refused("500, 70, 1, 0, 0, 0\n", None);
        assert_eq!(
            shown,
            "t:1:13: size: expected a size, found 0: the log is of means (log_avg_msec)"
        );
        let latency = Some(TraceFormat::FioLatency);
        assert!(
            refused("1, 5, 3, 512, 0, 0\n", latency).starts_with("t:1:7: direction: expected 0")
        );
        assert!(refused("1, -5, 0, 512, 0, 0\n", latency).starts_with("t:1:4: latency: expected"));
    }
}
