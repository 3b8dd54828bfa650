//! Storage Performance Council, as in the UMass repository: `ASU,LBA,Size,Opcode,Timestamp`, more
//! fields may follow. LBA in 512 bytes, size in bytes, time in seconds. Some copies name the columns
//! in a first line.
//!
//! Specification: "SPC Trace File Format Specification", revision 1.0.1.

use super::Operation;
use super::error::TraceError;
use super::reader::{LineParser, Parsed};
use super::row::{Line, Range, Row, decimal};

/// Whether it is a row, or the header, of such a trace.
pub(super) fn is_row(row: &Row<'_>) -> bool {
    let number = |index| row.text(index).parse::<u64>().is_ok();
    let time = || decimal(row.text(4), 1).is_some();
    let typed = (0..3).all(number) && operation(row.text(3)).is_some() && time();
    row.count >= 5 && (typed || is_header(row))
}

fn is_header(row: &Row<'_>) -> bool {
    row.begins_with(["ASU", "LBA"])
}

fn operation(text: &str) -> Option<Operation> {
    match text {
        "R" | "r" => Some(Operation::Read),
        "W" | "w" => Some(Operation::Write),
        _ => None,
    }
}

/// Reads such traces.
pub(super) struct Spc;

impl LineParser for Spc {
    fn parse(&mut self, line: &Line<'_>) -> Result<Option<Parsed>, TraceError> {
        let row = line.split_commas();
        if is_header(&row) {
            return Ok(None);
        }
        let device = row.small(0, "ASU")?;
        let range = Range {
            field: 1,
            offset_bytes: row.bytes(1, "LBA", 512)?,
            size_bytes: row.number(2, "size")?,
        };
        let Some(operation) = operation(row.get(3, "opcode")?) else {
            return Err(row.expected(3, "opcode", "R or W"));
        };
        let time_ns = row.time(4, "timestamp", 1_000_000_000)?;
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
        let text = "0,20941264,8192,W,0.551706\n1,20939840,512,r,0.554041,x\n";
        assert_eq!(detected(text), TraceFormat::Spc);
        let requests = read(text, None);
        let facts =
            |n: usize| (requests[n].device, requests[n].offset_bytes, requests[n].size_bytes);
        assert_eq!(facts(0), (0, 20_941_264 * 512, 8192));
        assert_eq!(facts(1), (1, 20_939_840 * 512, 512));
        assert_eq!(
            (requests[0].operation, requests[1].operation),
            (Operation::Write, Operation::Read)
        );
        assert_eq!(requests[1].time_ns, 2_335_000);
        let headed = format!("\nASU,LBA,Size,Opcode,Timestamp\n{text}");
        assert_eq!(detected(&headed), TraceFormat::Spc);
        assert_eq!(read(&headed, None).len(), 2);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let spc = Some(TraceFormat::Spc);
        assert_eq!(
            refused("0,1,512,W,0.5\n0,1,512,X,0.5\n", spc),
            "t:2:9: opcode: expected R or W, found `X`"
        );
        assert!(refused("0,99999999999999999999,512,W,0.5\n", spc).starts_with("t:1:3: LBA: "));
        assert!(refused("0,1,512,W\n", spc).starts_with("t:1:10: timestamp: missing"));
    }
}
