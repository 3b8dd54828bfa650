//! What `blkparse` prints without `-f`:
//!
//! ```text
//!   8,0    3    1    0.000000000   697  Q  WS 223490 + 8 [kjournald]
//!   device cpu  seq  seconds       pid  action, letters, sector + sectors
//! ```
//!
//! A request appears once for each thing that happens to it. Only one kind counts: if the first 64
//! KiB have any, those queued (`Q`: what programs and file systems asked for), else those issued
//! (`D`: what the disk was told), else those completed (`C`). Summaries are passed over; what comes
//! behind one is what another run printed, whose times begin anew, and it follows the run before.
//!
//! What is printed: `process_default` in blkparse's `blkparse_fmt.c`.

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
    device_number(major, minor)
}

/// The same of its two numbers.
pub(super) fn device_number(major: &str, minor: &str) -> Option<u32> {
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
    /// When this run began, and the latest time so far.
    begin_ns: u64,
    latest_ns: u64,
}

impl Blkparse {
    /// For output that begins so.
    pub fn new(beginning: &str) -> Blkparse {
        let has = |action: &&str| {
            let of = |text| Line { path: "".as_ref(), number: 0, text }.split_blanks().text(5);
            beginning.lines().any(|line| of(line) == *action)
        };
        let action = ["Q", "D", "C"].into_iter().find(has).unwrap_or("Q");
        Blkparse { action, in_summary: false, begin_ns: 0, latest_ns: 0 }
    }
}

impl LineParser for Blkparse {
    fn parse(&mut self, line: &Line<'_>) -> Result<Option<Parsed>, TraceError> {
        let row = line.split_blanks();
        let first = row.text(0);
        if first.starts_with("CPU") || first == "Total" {
            self.in_summary = true;
        }
        let device = device(first);
        if first == "Input" || (self.in_summary && device.is_none()) {
            return Ok(None);
        }
        let device =
            device.ok_or_else(|| row.expected(0, "device", "a device like 8,0 or the summary"))?;
        if std::mem::take(&mut self.in_summary) {
            self.begin_ns = self.latest_ns;
        }
        let time_ns = row.time(3, "time", 1_000_000_000)?.checked_add(self.begin_ns);
        let time_ns = time_ns
            .ok_or_else(|| row.expected(3, "time", "a time below 2^64 ns, with those before"))?;
        self.latest_ns = self.latest_ns.max(time_ns);
        if row.get(5, "action")? != self.action {
            return Ok(None);
        }
        let letters = row.get(6, "RWBS")?;
        let bad = || row.expected(6, "RWBS", "letters like R, WS or FWFSM");
        // A command of another kind has its bytes there; a flush alone nothing but the program,
        // when it is completed a sector. How long it took is in parentheses.
        let is_end = |field: usize| row.text(field).starts_with(['[', '(']);
        let has_range = !is_end(7) && !is_end(8);
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

    /// What the second run printed was cut silently once.
    #[test]
    fn a_run_behind_a_summary_goes_on_where_the_one_before_ended() {
        let again = "  8,0    0        1     0.000000500   697  Q   R 16 + 8 [x]
  8,0    0        2     0.000000700   697  Q   R 32 + 8 [x]
Total (sda):
 Reads Queued:           2,        8KiB\t Writes Queued:           0,        0KiB

Throughput (R/W): 0KiB/s / 0KiB/s
Events (sda): 7 entries
Skips: 0 forward (0 -   0.0%)
";
        let requests = read(&[SAMPLE, again, again].concat(), None);
        assert_eq!(requests.len(), 4 + 2 + 2);
        let times: Vec<_> = requests[3..].iter().map(|request| request.time_ns).collect();
        // The first run ends with what is no request.
        assert_eq!(times, [40_000, 50_500, 50_700, 51_200, 51_400]);
        let late = format!("{SAMPLE} 8,0 0 1 18446744073.709551615 7 Q R 16 + 8 [x]\n");
        assert!(refused(&late, None).contains("time: expected a time below 2^64 ns"));
    }

    /// As old kernels had them, and as completions without data are printed.
    #[test]
    fn old_letters_and_completions_without_data_are_read() {
        let text = "8,0 1 1 0.1 7 Q WBS 16 + 8 [x]\n8,0 1 2 0.2 7 Q FN [x]\n\
                    8,0 1 3 0.3 7 Q FN (     900) [x]\n8,0 1 4 0.4 7 Q N 36 [y]\n";
        let facts = |text: &str| -> Vec<_> {
            read(text, None).iter().map(|r| (r.operation, r.size_bytes, r.flags.0)).collect()
        };
        let (flush, barrier) = ((Operation::Flush, 0, 0), (Operation::Write, 4096, 1 | 2 | 4));
        assert_eq!(facts(text), [barrier, flush, flush]);
        let text = "8,0 1 1 0.1 0 C WBS 16 + 8 (  91) [0]\n8,0 1 2 0.2 0 C FN 16 [0]\n\
                    8,0 1 3 0.3 0 C FWS 0 (     900) [0]\n8,0 1 4 0.4 0 C N (12 00) [0]\n\
                    8,0 1 5 0.5 0 C WS 0 [0]\n";
        assert_eq!(facts(text), [barrier, flush, flush]);
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
