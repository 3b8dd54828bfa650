//! What `biosnoop` of bcc prints, of either kind (Python or libbpf), with `-Q` or without:
//!
//! ```text
//! TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  QUE(ms) LAT(ms)
//! 0.000000    jbd2/sda1-8    330     sda       W 2187768    65536     0.02    0.53
//! ```
//!
//! Specification: `tools/biosnoop.py` and `libbpf-tools/biosnoop.c` of bcc; the columns that are
//! there, and their order, are those of the first line. A line is printed when a request is done:
//! it came so much earlier as it took. `T` is R or W, or the kernel's letters. Disks are numbered in
//! the order of their appearance. bpftrace's biosnoop tells neither address nor size, and is refused.

use super::Operation;
use super::error::TraceError;
use super::names::Names;
use super::reader::{LineParser, Parsed};
use super::row::{Line, Range, Row};
use super::rwbs::{self, Rwbs};

/// Whether it is the first line.
pub(super) fn is_header(row: &Row<'_>) -> bool {
    matches!(row.text(0), "TIME(s)" | "TIME(ms)") && row.count > 1
}

/// Columns that are read, counted from the end of the line: names of programs may have blanks.
#[derive(Clone, Copy)]
struct Columns {
    pid: usize,
    disk: usize,
    letters: usize,
    sector: usize,
    bytes: usize,
    latency: usize,
    /// Of all of them.
    farthest: usize,
}

impl Columns {
    fn of(header: &Row<'_>) -> Result<Columns, TraceError> {
        let column = |name: &'static str| {
            let found = (0..header.count).find(|index| header.text(*index) == name);
            let problem = || {
                let wanted = "the columns DISK, T, SECTOR, BYTES and LAT(ms) of bcc's biosnoop";
                header.problem(0, "header", format!("expected {wanted}, found no {name}"))
            };
            Ok(header.count - found.ok_or_else(problem)?)
        };
        if header.text(0) != "TIME(s)" {
            column("DISK")?;
            let what = "TIME(s), the first column of bcc's biosnoop";
            return Err(header.expected(0, "header", what));
        }
        let [pid, disk, letters] = [column("PID")?, column("DISK")?, column("T")?];
        let [sector, bytes, latency] = [column("SECTOR")?, column("BYTES")?, column("LAT(ms)")?];
        let farthest = [pid, disk, letters, sector, bytes, latency].into_iter().fold(0, usize::max);
        Ok(Columns { pid, disk, letters, sector, bytes, latency, farthest })
    }
}

/// Reads such output.
#[derive(Default)]
pub(super) struct Biosnoop {
    columns: Option<Columns>,
    disks: Names,
}

impl LineParser for Biosnoop {
    fn parse(&mut self, line: &Line<'_>) -> Result<Option<Parsed>, TraceError> {
        let row = line.split_blanks();
        // Several outputs in one file have several.
        if self.columns.is_none() || is_header(&row) {
            self.columns = Some(Columns::of(&row)?);
            return Ok(None);
        }
        let columns = self.columns.expect("it has just been looked at");
        if row.count <= columns.farthest {
            let problem = "missing: the line has fewer columns than the first".to_owned();
            return Err(row.problem(row.count, "BYTES", problem));
        }
        let field = |from_end: usize| row.count - from_end;
        let done_ns = row.time(0, "TIME(s)", 1_000_000_000)?;
        let latency = field(columns.latency);
        let latency_ns = row.time(latency, "LAT(ms)", 1_000_000)?;
        let range = Range {
            field: field(columns.sector),
            offset_bytes: row.bytes(field(columns.sector), "SECTOR", 512)?,
            size_bytes: row.number(field(columns.bytes), "BYTES")?,
        };
        let letters = field(columns.letters);
        let meaning = rwbs::parse(row.text(letters), range.size_bytes > 0)
            .ok_or_else(|| row.expected(letters, "T", "R, W or letters like WFS"))?;
        let Rwbs::Request(operation, flags) = meaning else { return Ok(None) };
        let range = match operation {
            Operation::Flush => Range { offset_bytes: 0, ..range },
            _ => range,
        };
        let time_ns = row.begun(done_ns, latency, latency_ns)?;
        let mut request = row.request(time_ns, operation, &range)?;
        // Of a request that was under way when it began, biosnoop knows no disk: a column less.
        let is_known = row.text(field(columns.pid)).parse::<u32>().is_ok();
        let disk = if is_known { row.text(field(columns.disk)) } else { "?" };
        request.device = self.disks.number(disk, &row, field(columns.disk))?;
        (request.flags, request.latency_ns) = (flags, Some(latency_ns));
        Ok(Some(Parsed { request, time_byte: row.byte(0) }))
    }

    fn device_name(&self, device: u32) -> Option<String> {
        self.disks.name(device)
    }
}

#[cfg(test)]
mod tests {
    use crate::trace::reader_tests::{detected, read, refused};
    use crate::trace::{Flags, Operation, TraceFormat};

    const PYTHON: &str = "TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  LAT(ms)
0.000000    jbd2/sda1-8    330     sda       W 2187768    65536     0.53
0.000544    Web Content    246     nvme0n1   R 2187896    4096     12.38
0.013000    ?              0                 R 0          4096      0.10
";

    #[test]
    fn requests_begin_as_long_before_their_line_as_they_took() {
        assert_eq!(detected(PYTHON), TraceFormat::Biosnoop);
        let requests = read(PYTHON, None);
        let facts: Vec<_> = requests
            .iter()
            .map(|r| (r.time_ns, r.operation, r.offset_bytes / 512, r.device, r.latency_ns))
            .collect();
        let wanted = [
            // 0.544 - 12.38 ms, and 0 - 0.53 ms, from the first.
            (0, Operation::Read, 2_187_896, 0, Some(12_380_000)),
            (11_306_000, Operation::Write, 2_187_768, 1, Some(530_000)),
            (24_736_000, Operation::Read, 0, 2, Some(100_000)),
        ];
        // Disks are numbered as in the file.
        let numbered = wanted.map(|(time, operation, sector, device, latency)| {
            (time, operation, sector, [1, 0, 2][device], latency)
        });
        assert_eq!(facts, numbered);
        assert_eq!(requests[0].size_bytes, 4096);
    }

    #[test]
    fn that_of_libbpf_has_letters_and_may_tell_the_queue() {
        let text =
            "TIME(s)     COMM           PID     DISK    T    SECTOR     BYTES   QUE(ms) LAT(ms)
0.000000    kworker/0:1H   71      vda     FWFS 8          4096    -1.000   0.250
0.001000    kworker/0:1H   71      vda     FF   0          0        0.001   0.100
0.002000    kworker/0:1H   71      vda     N    0          0        0.001   0.100
0.003000    fstrim         99      vda     DS   2048       1048576  0.001   0.100
";
        let requests = read(text, None);
        let facts: Vec<_> =
            requests.iter().map(|r| (r.operation, r.flags.0, r.size_bytes)).collect();
        let all = Flags::SYNC.0 | Flags::FUA.0 | Flags::PREFLUSH.0;
        let wanted = [
            (Operation::Write, all, 4096),
            (Operation::Flush, 0, 0),
            (Operation::Discard, 1, 1 << 20),
        ];
        assert_eq!(facts, wanted);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let shown = refused("TIME(ms)     COMM             PID    LAT(ms)\n", None);
        let wanted = "t:1:1: header: expected the columns DISK, T, SECTOR, BYTES and LAT(ms) of bcc's \
                      biosnoop, found no DISK";
        assert_eq!(shown, wanted);
        // Columns in another order, and then a line that has fewer.
        let other = "TIME(s) SECTOR COMM DISK PID T BYTES LAT(ms)\n0.1 8 a sda 1 W 512 0.1\n";
        assert_eq!(read(other, None)[0].offset_bytes, 4096);
        let short = refused(&format!("{other}0.1 sda 1 W 512 0.1\n"), None);
        assert!(short.starts_with("t:3:20: BYTES: missing"), "{short}");
        let row = |row: &str| refused(&format!("{}{row}\n", &PYTHON[..73]), None);
        assert!(row("0.1 a 1 sda W 1 x 0.1").starts_with("t:2:17: BYTES: expected a whole number"));
        assert!(row("0.1 a 1 sda X 1 512 0.1").starts_with("t:2:13: T: expected R, W or"));
        assert!(row("0.1 a 1 sda W 1 512 7200000").starts_with("t:2:21: latency: expected less"));
        assert!(row("0.1 W 512 0.1").starts_with("t:2:14: BYTES: missing"));
        assert!(row("x a 1 sda W 1 512 0.1").starts_with("t:2:1: TIME(s): expected a time in sec"));
    }
}
