//! What `blkparse` prints without `-f`:
//!
//! ```text
//!   8,0    3    1    0.000000000   697  Q  WS 223490 + 8 [kjournald]
//!   device cpu  seq  seconds       pid  action, letters, sector + sectors
//! ```
//!
//! A request appears once for each thing that happens to it. Only one kind counts: if the first 64
//! KiB have any, those queued (`Q`: what programs and file systems asked for), else those issued
//! (`D`: what the disk was told), else those completed (`C`). The summary at the end is passed
//! over.

use super::error::TraceError;
use super::reader::{LineParser, Parsed};
use super::row::{Line, Range, Row, decimal};
use super::rwbs::{self, Rwbs};

/// Whether some of the lines look so.
pub(super) fn is_beginning(text: &str) -> bool {
    text.lines().take(200).any(|line| {
        let line = Line { path: "".as_ref(), number: 0, text: line };
        let row = line.split_blanks();
        let number = |index| row.text(index).parse::<u64>().is_ok();
        let numbers = number(1) && number(2) && number(4) && decimal(row.text(3), 1).is_some();
        row.count >= 7 && device(row.text(0)).is_some() && numbers
    })
}

/// A device, `MAJOR,MINOR`, as Linux numbers it.
pub(super) fn device(text: &str) -> Option<u32> {
    let (major, minor) = text.split_once(',')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    (major < 1 << 12 && minor < 1 << 20).then_some(major << 20 | minor)
}

/// `sector + sectors` at a field.
pub(super) fn range(row: &Row<'_>, field: usize) -> Result<Range, TraceError> {
    if row.get(field + 1, "+")? != "+" {
        return Err(row.expected(field + 1, "+", "a plus between sector and size"));
    }
    let size_bytes = row.bytes(field + 2, "sectors", 512)?;
    // A flush has no place; some kernels show the last of all.
    let offset_bytes = if size_bytes == 0 { 0 } else { row.bytes(field, "sector", 512)? };
    Ok(Range { field, offset_bytes, size_bytes })
}

/// Reads such output.
pub(super) struct Blkparse {
    action: &'static str,
    in_summary: bool,
}

impl Blkparse {
    /// For output that begins so.
    pub fn new(beginning: &str) -> Blkparse {
        let has = |action: &&str| {
            let of = |text| Line { path: "".as_ref(), number: 0, text }.split_blanks().text(5);
            beginning.lines().any(|line| of(line) == *action)
        };
        Blkparse { action: ["Q", "D", "C"].into_iter().find(has).unwrap_or("Q"), in_summary: false }
    }
}

impl LineParser for Blkparse {
    fn parse(&mut self, line: &Line<'_>) -> Result<Option<Parsed>, TraceError> {
        let row = line.split_blanks();
        let first = row.text(0);
        if first.starts_with("CPU") || first == "Total" {
            self.in_summary = true;
        }
        if self.in_summary || first == "Input" {
            return Ok(None);
        }
        let device = device(first)
            .ok_or_else(|| row.expected(0, "device", "a device like 8,0 or the summary"))?;
        let time_ns = row.time(3, "time", 1_000_000_000)?;
        if row.get(5, "action")? != self.action {
            return Ok(None);
        }
        let letters = row.get(6, "RWBS")?;
        let bad = || row.expected(6, "RWBS", "letters like R, WS or FWFSM");
        // A command of another kind has its bytes there, a flush alone nothing but the program.
        let has_range = !row.text(7).starts_with('[') && !row.text(8).starts_with('(');
        let range = if has_range {
            row.get(7, "sector")?;
            range(&row, 7)?
        } else {
            Range { field: 7, offset_bytes: 0, size_bytes: 0 }
        };
        let Rwbs::Request(operation, flags) =
            rwbs::parse(letters, range.size_bytes > 0).ok_or_else(bad)?
        else {
            return Ok(None);
        };
        let mut request = row.request(time_ns, operation, &range)?;
        (request.device, request.flags) = (device, flags);
        Ok(Some(Parsed { request, time_byte: row.byte(3) }))
    }
}

#[cfg(test)]
mod tests {
    use crate::trace::reader_tests::{detected, read, refused};
    use crate::trace::{Flags, Operation, TraceFormat};

    const SAMPLE: &str = "  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]
  8,0    3        2     0.000001829   697  G   W 223490 + 8 [kjournald]
  8,0    3        3     0.000002500   697  D   W 223490 + 8 [kjournald]
  8,0    1        4     0.000010000   697  Q FWFS 223498 + 1 [kj ournald]
  8,0    1        5     0.000020000     0  C   W 223490 + 8 [0]
  8,16   1        6     0.000030000    12  Q FWS [fsync]
  8,0    1        7     0.000040000    12  Q  DS 2048 + 4096 [fstrim]
  8,0    1        8     0.000050000    12  Q   R 36 (12 00 00 00 24 00 ..) [udevd]
CPU0 (8,0):
 Reads Queued:           0,        0KiB\t Writes Queued:           2,        5KiB
";

    #[test]
    fn queued_requests_are_read() {
        assert_eq!(detected(SAMPLE), TraceFormat::Blkparse);
        let requests = read(SAMPLE, None);
        let facts: Vec<_> = requests
            .iter()
            .map(|r| (r.operation, r.offset_bytes, r.size_bytes, r.flags.0))
            .collect();
        let fua = Flags::SYNC.0 | Flags::FUA.0 | Flags::PREFLUSH.0;
        let wanted = [
            (Operation::Write, 223_490 * 512, 4096, 0),
            (Operation::Write, 223_498 * 512, 512, fua),
            (Operation::Flush, 0, 0, 0),
            (Operation::Discard, 2048 * 512, 4096 * 512, 1),
        ];
        assert_eq!(facts, wanted);
        assert_eq!((requests[0].device, requests[2].device), (8 << 20, 8 << 20 | 16));
        assert_eq!((requests[1].time_ns, requests[1].line), (10_000, 4));
    }

    #[test]
    fn without_queued_ones_those_issued_count() {
        let issued: String =
            SAMPLE.lines().filter(|l| !l.contains("Q")).map(|l| format!("{l}\n")).collect();
        let requests = read(&issued, None);
        assert_eq!((requests.len(), requests[0].line), (1, 2));
        let completed: String =
            SAMPLE.lines().filter(|l| l.contains(" C ")).map(|l| format!("{l}\n")).collect();
        assert_eq!(read(&completed, None).len(), 1);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let blkparse = Some(TraceFormat::Blkparse);
        let row = |rest: &str| refused(&format!("8,0 3 1 0.5 697 {rest}"), blkparse);
        assert!(row("Q W 22").starts_with("t:1:23: +: missing"));
        assert!(row("Q W 22 + x [a]").starts_with("t:1:26: sectors: expected a whole number"));
        assert!(row("Q U 22 + 8 [a]").starts_with("t:1:19: RWBS: expected letters like"));
        assert!(row("Q").starts_with("t:1:18: RWBS: missing"));
        assert!(row("Q W 99999999999999999999 + 8").starts_with("t:1:21: sector: expected"));
        assert!(refused("hello world\n", blkparse).starts_with("t:1:1: device: expected a device"));
    }
}
