//! Alibaba's block traces of 2020: `device_id,opcode,offset,length,timestamp`, opcode `R` or `W`,
//! offset and length in bytes, time in microseconds.

use super::Operation;
use super::error::TraceError;
use super::reader::{LineParser, Parsed};
use super::row::{Line, Range, Row};

/// Whether it is a row, or the header, of such a trace.
pub(super) fn is_row(row: &Row<'_>) -> bool {
    let number = |index: &usize| row.text(*index).parse::<u64>().is_ok();
    let typed = matches!(row.text(1), "R" | "W") && [0, 2, 3, 4].iter().all(number);
    row.count == 5 && (typed || is_header(row))
}

fn is_header(row: &Row<'_>) -> bool {
    row.begins_with(["device_id", "opcode"])
}

/// Reads such traces.
pub(super) struct Alibaba;

impl LineParser for Alibaba {
    fn parse(&mut self, line: &Line<'_>) -> Result<Option<Parsed>, TraceError> {
        let row = line.split_commas();
        if is_header(&row) {
            return Ok(None);
        }
        let device = row.small(0, "device_id")?;
        let operation = match row.get(1, "opcode")? {
            "R" => Operation::Read,
            "W" => Operation::Write,
            _ => return Err(row.expected(1, "opcode", "R or W")),
        };
        let range = Range {
            field: 2,
            offset_bytes: row.number(2, "offset")?,
            size_bytes: row.number(3, "length")?,
        };
        let time_ns = row.time(4, "timestamp", 1000)?;
        let mut request = row.request(time_ns, operation, &range)?;
        request.device = device;
        Ok(Some(Parsed { request, time_byte: row.byte(4) }))
    }
}

#[cfg(test)]
mod tests {
    use crate::trace::reader_tests::{detected, read, refused};
    use crate::trace::{Operation, TraceFormat};

    #[test]
    fn rows_are_read() {
        let text =
            "419,W,8792731648,16384,1577808144360767\n725,R,59110326272,360448,1577808144360813\n";
        assert_eq!(detected(text), TraceFormat::Alibaba);
        let requests = read(text, None);
        assert_eq!((requests[0].device, requests[1].device), (419, 725));
        assert_eq!((requests[1].offset_bytes, requests[1].size_bytes), (59_110_326_272, 360_448));
        assert_eq!((requests[1].operation, requests[1].time_ns), (Operation::Read, 46_000));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let alibaba = Some(TraceFormat::Alibaba);
        assert!(refused("1,w,0,512,1\n", alibaba).starts_with("t:1:3: opcode: expected R or W"));
        assert!(refused("1,W,0,512,\n", alibaba).starts_with("t:1:11: timestamp: missing"));
    }
}
