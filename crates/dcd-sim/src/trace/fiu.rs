//! Florida International University's traces (I/O deduplication, SRCMap), by lines of
//! `NANOSECONDS PID PROCESS SECTOR SECTORS W|R MAJOR MINOR MD5...`.
//!
//! Specification: the README of SNIA IOTTA, block I/O, 391. Sectors have 512 bytes.

use super::error::TraceError;
use super::reader::{LineParser, Parsed};
use super::row::{Line, Range, Row};
use super::{Operation, blkparse};

/// Whether it is a row of such a trace.
pub(super) fn is_row(row: &Row<'_>) -> bool {
    let number = |index| row.text(index).parse::<u64>().is_ok();
    number(0) && number(1) && letter(row).is_some_and(|at| number(at + 1) && number(at + 2))
}

/// Field of the letter: behind two numbers. Names of processes may have blanks.
fn letter(row: &Row<'_>) -> Option<usize> {
    let digits = |index: usize| {
        !row.text(index).is_empty() && row.text(index).bytes().all(|byte| byte.is_ascii_digit())
    };
    let is_letter = |at: &usize| matches!(row.text(*at), "R" | "W") && digits(at - 1);
    (5..row.count).find(|at| is_letter(at) && digits(at - 2))
}

/// Reads such traces.
pub(super) struct Fiu;

impl LineParser for Fiu {
    fn parse(&mut self, line: &Line<'_>) -> Result<Option<Parsed>, TraceError> {
        let row = line.split_blanks();
        let time_ns = row.time(0, "time", 1)?;
        let Some(letter) = letter(&row) else {
            return Err(row.expected(5, "operation", "R or W behind sector and sectors"));
        };
        let operation = if row.text(letter) == "R" { Operation::Read } else { Operation::Write };
        let range = Range {
            field: letter - 2,
            offset_bytes: row.bytes(letter - 2, "sector", 512)?,
            size_bytes: row.bytes(letter - 1, "sectors", 512)?,
        };
        let mut request = row.request(time_ns, operation, &range)?;
        let (major, minor) = (row.get(letter + 1, "major")?, row.get(letter + 2, "minor")?);
        request.device = blkparse::device_number(major, minor)
            .ok_or_else(|| row.expected(letter + 1, "major", "the numbers of a device like 8 0"))?;
        Ok(Some(Parsed { request, time_byte: row.byte(0) }))
    }
}

#[cfg(test)]
mod tests {
    use crate::trace::reader_tests::{detected, read, refused};
    use crate::trace::{Operation, TraceFormat};

    #[test]
    fn rows_are_read() {
        let text = "0 4892 syslogd 904265560 8 W 6 0 531e779d5b5f0b3bb7e8d5f2d1b2a9aa\n\
                    39064 2559 kjournald 926858672 8 W 6 0 4fd0c43703806ab4b93e5a1c5c0b3f9d\n\
                    467651 20782 Web Content 8 283193184 16 R 8 17 a1 b2\n";
        assert_eq!(detected(text), TraceFormat::Fiu);
        let requests = read(text, None);
        let facts: Vec<_> = requests
            .iter()
            .map(|r| (r.time_ns, r.operation, r.offset_bytes / 512, r.size_bytes, r.device))
            .collect();
        let wanted = [
            (0, Operation::Write, 904_265_560, 4096, 6 << 20),
            (39_064, Operation::Write, 926_858_672, 4096, 6 << 20),
            (467_651, Operation::Read, 283_193_184, 8192, 8 << 20 | 17),
        ];
        assert_eq!(facts, wanted);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let fiu = Some(TraceFormat::Fiu);
        assert!(
            refused("x 1 a 8 8 W 6 0 m\n", fiu).starts_with("t:1:1: time: expected a time in nano")
        );
        assert!(
            refused("1 1 a 8 8 X 6 0 m\n", fiu).starts_with("t:1:11: operation: expected R or W")
        );
        assert!(refused("1 1 a 8 8 W 6\n", fiu).starts_with("t:1:14: minor: missing"));
        assert!(refused("1 1 a 8 8 W 5000 0\n", fiu).starts_with("t:1:13: major: expected"));
        assert!(
            refused("1 1 a 99999999999999999999 8 W 6 0\n", fiu)
                .starts_with("t:1:7: sector: expected")
        );
    }
}
