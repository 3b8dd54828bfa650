//! Fujitsu's traces of SYSTOR '17: `Timestamp,Response,IOType,LUN,Offset,Size`. Times in seconds
//! since 1970, offset and size in bytes, type `R` or `W`. Requests that were never answered have no
//! type, and are passed over: nobody knows what they were.
//!
//! Specification: the README of the traces (SNIA IOTTA, block I/O, 4928).

use super::Operation;
use super::error::TraceError;
use super::reader::{LineParser, Parsed};
use super::row::{Line, Range, Row, decimal};

/// Whether it is a row, or the header, of such a trace.
pub(super) fn is_row(row: &Row<'_>) -> bool {
    let number = |index| row.text(index).parse::<u64>().is_ok();
    let typed = matches!(row.text(2), "R" | "W" | "") && (3..6).all(number);
    let timed = decimal(row.text(0), 1).is_some() && row.text(0).contains('.');
    row.count == 6 && (typed && timed || is_header(row))
}

fn is_header(row: &Row<'_>) -> bool {
    row.begins_with(["Timestamp", "Response"])
}

/// Reads such traces.
pub(super) struct Systor;

impl LineParser for Systor {
    fn parse(&mut self, line: &Line<'_>) -> Result<Option<Parsed>, TraceError> {
        let row = line.split_commas();
        if is_header(&row) {
            return Ok(None);
        }
        let time_ns = row.time(0, "timestamp", 1_000_000_000)?;
        let operation = match row.text(2) {
            "R" => Operation::Read,
            "W" => Operation::Write,
            "" if row.count > 2 => return Ok(None),
            _ => return Err(row.expected(2, "IOType", "R, W or nothing")),
        };
        let range = Range {
            field: 4,
            offset_bytes: row.number(4, "offset")?,
            size_bytes: row.number(5, "size")?,
        };
        let mut request = row.request(time_ns, operation, &range)?;
        request.device = row.small(3, "LUN")?;
        // "Irregular" ones, says the README, are below zero.
        if !row.text(1).is_empty() && !row.text(1).starts_with('-') {
            request.latency_ns = Some(row.time(1, "response", 1_000_000_000)?);
        }
        Ok(Some(Parsed { request, time_byte: row.byte(0) }))
    }
}

#[cfg(test)]
mod tests {
    use crate::trace::reader_tests::{detected, read, refused};
    use crate::trace::{Operation, TraceFormat};

    const ROWS: &str = "1456135200.013118000,0.000806000,R,4,899056122368,131072\n\
                        1456135200.013218000,,,4,4096,512\n\
                        1456135200.023118000,-1.5,W,0,4096,8192\n";

    #[test]
    fn rows_are_read_and_told_from_those_of_msr() {
        for text in [ROWS.to_owned(), format!("Timestamp,Response,IOType,LUN,Offset,Size\n{ROWS}")]
        {
            assert_eq!(detected(&text), TraceFormat::Systor);
            let requests = read(&text, None);
            let facts: Vec<_> =
                requests.iter().map(|r| (r.operation, r.device, r.latency_ns)).collect();
            let wanted = [(Operation::Read, 4, Some(806_000)), (Operation::Write, 0, None)];
            assert_eq!(facts, wanted);
            let first = (requests[0].offset_bytes, requests[0].size_bytes);
            assert_eq!(first, (899_056_122_368, 131_072));
            assert_eq!(requests[1].time_ns, 10_000_000);
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let systor = Some(TraceFormat::Systor);
        assert!(refused("1.5,0.1,X,0,0,512\n", systor).starts_with("t:1:9: IOType: expected R, W"));
        assert!(refused("1.5,0.1\n", systor).starts_with("t:1:8: IOType: expected R, W"));
        assert!(
            refused("1.5,x,R,0,0,512\n", systor).starts_with("t:1:5: response: expected a time")
        );
        assert!(refused("1.5,0.1,R,0,0\n", systor).starts_with("t:1:14: size: missing"));
    }
}
