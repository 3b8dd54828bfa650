//! Microsoft Research Cambridge: `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`.
//! Times are in 100 ns, the first since 1601; offset and size in bytes; types `Read` and `Write`, in
//! copies also `read` and `write`.

use super::Operation;
use super::error::TraceError;
use super::reader::{LineParser, Parsed};
use super::row::{Line, Range, Row};

/// Whether it is a row, or the header, of such a trace.
pub(super) fn is_row(row: &Row<'_>) -> bool {
    let time = row.text(0);
    let typed = operation(row.text(3)).is_some() && time.parse::<u64>().is_ok();
    row.count >= 6 && (typed || is_header(row))
}

/// SYSTOR's has another second column.
fn is_header(row: &Row<'_>) -> bool {
    row.begins_with(["Timestamp", "Hostname"])
}

fn operation(text: &str) -> Option<Operation> {
    let is = |name: &str| text.eq_ignore_ascii_case(name);
    if is("Read") {
        return Some(Operation::Read);
    }
    is("Write").then_some(Operation::Write)
}

/// Reads such traces.
pub(super) struct Msr;

impl LineParser for Msr {
    fn parse(&mut self, line: &Line<'_>) -> Result<Option<Parsed>, TraceError> {
        let row = line.split_commas();
        if is_header(&row) {
            return Ok(None);
        }
        let time_ns = row.time(0, "timestamp", 100)?;
        let device = row.small(2, "disk number")?;
        let Some(operation) = operation(row.get(3, "type")?) else {
            return Err(row.expected(3, "type", "Read or Write"));
        };
        let range = Range {
            field: 4,
            offset_bytes: row.number(4, "offset")?,
            size_bytes: row.number(5, "size")?,
        };
        let mut request = row.request(time_ns, operation, &range)?;
        request.device = device;
        if row.count > 6 {
            request.latency_ns = Some(row.time(6, "response time", 100)?);
        }
        Ok(Some(Parsed { request, time_byte: row.byte(0) }))
    }
}

#[cfg(test)]
mod tests {
    use crate::trace::reader_tests::{detected, read, refused};
    use crate::trace::{Operation, TraceFormat};

    #[test]
    fn rows_are_read() {
        let text = "128166386787582087,hm,1,Read,3211264,1024,1331\n\
                    128166386787582097,hm,1,Write,7014609920,24576,41286\n";
        assert_eq!(detected(text), TraceFormat::Msr);
        let requests = read(text, None);
        assert_eq!(
            (requests[0].operation, requests[1].operation),
            (Operation::Read, Operation::Write)
        );
        assert_eq!((requests[1].offset_bytes, requests[1].size_bytes), (7_014_609_920, 24_576));
        assert_eq!((requests[1].time_ns, requests[1].latency_ns), (1000, Some(4_128_600)));
        assert_eq!(requests[0].device, 1);
        let headed = format!("Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n{text}");
        assert_eq!(detected(&headed), TraceFormat::Msr);
        assert_eq!(read(&headed, None).len(), 2);
        // As some copies are: in lower case, with a mark of the byte order.
        let lower = format!("\u{feff}{}", headed.to_lowercase());
        assert_eq!(detected(&lower), TraceFormat::Msr);
        let placed = |text: &str| -> Vec<_> {
            read(text, None)
                .iter()
                .map(|r| (r.operation, r.offset_bytes, r.line, r.column))
                .collect()
        };
        assert_eq!(placed(&lower), placed(&headed));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let msr = Some(TraceFormat::Msr);
        assert!(
            refused("1,hm,1,reed,0,512,1\n", msr)
                .starts_with("t:1:8: type: expected Read or Write")
        );
        assert!(
            refused("x,hm,1,Read,0,512,1\n", msr).starts_with("t:1:1: timestamp: expected a time")
        );
        assert!(refused("1,hm,1,Read,0,512,x\n", msr).starts_with("t:1:19: response time: "));
    }
}
