//! Tencent's block storage traces: `timestamp,offset,size,ioType,volumeID`. Time in seconds, offset
//! and size in 512 bytes, type 0 for read and 1 for write. Its clock is one of seconds: what came
//! within one comes all at its beginning, in the order of the file.
//!
//! Specification: the description of SNIA IOTTA, block I/O, 27917.

use super::Operation;
use super::error::TraceError;
use super::reader::{LineParser, Parsed};
use super::row::{Line, Range, Row};

/// Whether it is a row, or the header, of such a trace.
pub(super) fn is_row(row: &Row<'_>) -> bool {
    let number = |index| row.text(index).parse::<u64>().is_ok();
    let typed = matches!(row.text(3), "0" | "1") && (0..5).all(number);
    row.count == 5 && (typed || is_header(row))
}

fn is_header(row: &Row<'_>) -> bool {
    row.begins_with(["timestamp", "offset"])
}

/// Reads such traces.
pub(super) struct Tencent;

impl LineParser for Tencent {
    fn parse(&mut self, line: &Line<'_>) -> Result<Option<Parsed>, TraceError> {
        let row = line.split_commas();
        if is_header(&row) {
            return Ok(None);
        }
        let time_ns = row.time(0, "timestamp", 1_000_000_000)?;
        let range = Range {
            field: 1,
            offset_bytes: row.bytes(1, "offset", 512)?,
            size_bytes: row.bytes(2, "size", 512)?,
        };
        let operation = match row.get(3, "ioType")? {
            "0" => Operation::Read,
            "1" => Operation::Write,
            _ => return Err(row.expected(3, "ioType", "0 (read) or 1 (write)")),
        };
        let mut request = row.request(time_ns, operation, &range)?;
        request.device = row.small(4, "volumeID")?;
        Ok(Some(Parsed { request, time_byte: row.byte(0) }))
    }
}

#[cfg(test)]
mod tests {
    use crate::trace::reader_tests::{detected, read, refused};
    use crate::trace::{Operation, TraceFormat};

    #[test]
    fn rows_are_read() {
        let text = "1538323200,12910952,128,0,1063\n1538323201,6338688,8,1,1627\n";
        assert_eq!(detected(text), TraceFormat::Tencent);
        let requests = read(text, None);
        assert_eq!((requests[0].offset_bytes, requests[0].size_bytes), (12_910_952 * 512, 65_536));
        assert_eq!((requests[1].operation, requests[1].device), (Operation::Write, 1627));
        assert_eq!(requests[1].time_ns, 1_000_000_000);
    }

    /// As they are published: rows that are late by 25,640.
    #[test]
    fn rows_may_be_late_by_tens_of_thousands() {
        use std::fmt::Write as _;
        let mut text = String::new();
        for row in 0..26_000 {
            writeln!(text, "{},{row},1,0,1", 100 + row / 1000).unwrap();
        }
        text += "99,7,1,1,1\n";
        let requests = read(&text, None);
        assert_eq!(requests.len(), 26_001);
        assert_eq!((requests[0].operation, requests[0].offset_bytes), (Operation::Write, 7 * 512));
        // Within a second, of its clock, they stay as they were.
        assert!(requests[1..].is_sorted_by_key(|request| request.line));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let tencent = Some(TraceFormat::Tencent);
        assert!(refused("1,0,8,2,1\n", tencent).starts_with("t:1:7: ioType: expected 0 (read)"));
        assert!(refused("1,0,8,0\n", tencent).starts_with("t:1:8: volumeID: missing"));
    }
}
