//! fio's I/O logs (`write_iolog`), version 2 and 3, after a line that says so, and version 1, of fio
//! before 1.20:
//!
//! ```text
//! version 1: 0|1, OFFSET, LENGTH                    0 is read, 1 is write
//! version 2: FILE ACTION [OFFSET LENGTH]            time goes on with `FILE wait MICROSECONDS`
//! version 3: MICROSECONDS FILE ACTION [OFFSET LENGTH]
//! ```
//!
//! Files are numbered in the order of their appearance: each is a disk. Requests of a log of
//! version 1, or 2 without waits, come all at once: replay it closed-loop.
//!
//! Specification: "Trace file format v1", v2 and v3 in fio's HOWTO.

use super::Operation;
use super::error::TraceError;
use super::names::Names;
use super::reader::{LineParser, Parsed};
use super::row::{Line, Range, Row};

/// Version of a log that begins with `line`, if it is one.
pub(super) fn version(line: &str) -> Option<u32> {
    line.trim().strip_prefix("fio version ")?.strip_suffix(" iolog")?.parse().ok()
}

/// Whether it is a row of a log of version 1.
pub(super) fn is_row(row: &Row<'_>) -> bool {
    let number = |index| row.text(index).parse::<u64>().is_ok();
    row.count == 3 && matches!(row.text(0), "0" | "1") && number(1) && number(2)
}

fn version_1(line: &Line<'_>) -> Result<Option<Parsed>, TraceError> {
    let row = line.split_commas();
    let operation = match row.get(0, "rw")? {
        "0" => Operation::Read,
        "1" => Operation::Write,
        _ => return Err(row.expected(0, "rw", "0 (read) or 1 (write)")),
    };
    let range = Range {
        field: 1,
        offset_bytes: row.number(1, "offset")?,
        size_bytes: row.number(2, "length")?,
    };
    Ok(Some(Parsed { request: row.request(0, operation, &range)?, time_byte: 0 }))
}

/// Reads such logs.
#[derive(Default)]
pub(super) struct Fio {
    version: Option<u32>,
    files: Names,
    now_ns: u64,
}

impl LineParser for Fio {
    fn parse(&mut self, line: &Line<'_>) -> Result<Option<Parsed>, TraceError> {
        if self.version.is_none() && is_row(&line.split_commas()) {
            self.version = Some(1);
        }
        let Some(version) = self.version else {
            let found = version(line.text).filter(|version| matches!(version, 2 | 3));
            let problem =
                "expected `fio version 2 iolog`, `fio version 3 iolog`, or a row of version 1";
            self.version =
                Some(found.ok_or_else(|| line.problem(0, "header", problem.to_owned()))?);
            return Ok(None);
        };
        if version == 1 {
            return version_1(line);
        }
        let row = line.split_blanks();
        let file = usize::from(version == 3);
        let action = file + 1;
        if version == 3 {
            self.now_ns = row.time(0, "time", 1000)?;
        }
        let name = row.get(file, "file")?;
        let operation = match row.get(action, "action")? {
            "read" => Operation::Read,
            "write" => Operation::Write,
            "trim" => Operation::Discard,
            "sync" | "datasync" | "sync_file_range" => Operation::Flush,
            "add" | "open" | "close" => {
                self.files.number(name, &row, file)?;
                return Ok(None);
            }
            "wait" if version == 2 => {
                let wait_ns = row.time(action + 1, "wait", 1000)?;
                let now_ns = self.now_ns.checked_add(wait_ns);
                let problem = || row.expected(action + 1, "wait", "a time below 2^64 ns");
                self.now_ns = now_ns.ok_or_else(problem)?;
                return Ok(None);
            }
            _ => {
                let what = "read, write, trim, sync, datasync, wait, add, open or close";
                return Err(row.expected(action, "action", what));
            }
        };
        let mut range = Range { field: action + 1, offset_bytes: 0, size_bytes: 0 };
        if operation != Operation::Flush {
            range.offset_bytes = row.number(action + 1, "offset")?;
            range.size_bytes = row.number(action + 2, "length")?;
        }
        let mut request = row.request(self.now_ns, operation, &range)?;
        request.device = self.files.number(name, &row, file)?;
        Ok(Some(Parsed { request, time_byte: row.byte(0) }))
    }

    fn device_name(&self, device: u32) -> Option<String> {
        self.files.name(device)
    }
}

#[cfg(test)]
mod tests {
    use crate::trace::reader_tests::{detected, read, refused};
    use crate::trace::{Operation, TraceFormat};

    #[test]
    fn version_3_has_times() {
        let text = "fio version 3 iolog\n15 a add\n16 b add\n109 a open\n114 a read 0 4096\n\
                    2181 b write 45056 512\n2200 b datasync 0 0\n2300 a trim 4096 8192\n2400 a close\n";
        assert_eq!(detected(text), TraceFormat::Fio);
        let requests = read(text, None);
        let facts: Vec<_> = requests.iter().map(|r| (r.device, r.operation, r.time_ns)).collect();
        let wanted = [
            (0, Operation::Read, 0),
            (1, Operation::Write, 2_067_000),
            (1, Operation::Flush, 2_086_000),
            (0, Operation::Discard, 2_186_000),
        ];
        assert_eq!(facts, wanted);
        assert_eq!((requests[1].offset_bytes, requests[1].size_bytes), (45_056, 512));
    }

    #[test]
    fn version_2_waits() {
        let text = "fio version 2 iolog\n/dev/sdb add\n/dev/sdb open\n/dev/sdb write 0 4096\n\
                    /dev/sdb wait 250 0\n/dev/sdb read 8192 4096\n/dev/sdb close\n";
        let requests = read(text, None);
        assert_eq!((requests[0].time_ns, requests[1].time_ns), (0, 250_000));
        assert_eq!(requests[1].offset_bytes, 8192);
    }

    #[test]
    fn version_1_has_neither_times_nor_files() {
        let text = "0, 0, 4096\n1,8192,512\n";
        assert_eq!(detected(text), TraceFormat::Fio);
        let requests = read(text, None);
        let facts: Vec<_> = requests
            .iter()
            .map(|r| (r.operation, r.offset_bytes, r.size_bytes, r.time_ns))
            .collect();
        assert_eq!(facts, [(Operation::Read, 0, 4096, 0), (Operation::Write, 8192, 512, 0)]);
        let shown = refused("0, 0, 4096\n2, 0, 512\n", None);
        assert!(shown.starts_with("t:2:1: rw: expected 0 (read) or 1 (write)"), "{shown}");
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let fio = Some(TraceFormat::Fio);
        let three = |row: &str| refused(&format!("fio version 3 iolog\n{row}\n"), fio);
        assert!(refused("fio version 4 iolog\n", fio).starts_with("t:1:1: header: expected `fio"));
        assert!(three("1 a wait 5").starts_with("t:2:5: action: expected read, write"));
        assert!(three("1 a read 5").starts_with("t:2:11: length: missing"));
        assert!(three("x a read 5 5").starts_with("t:2:1: time: expected a time in micro"));
        let far = format!("fio version 2 iolog\na wait {0}\na wait {0}\n", u64::MAX / 1000);
        assert!(refused(&far, fio).starts_with("t:3:8: wait: expected a time below"));
    }
}
