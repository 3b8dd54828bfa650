//! fio's I/O logs (`write_iolog`), version 2 and 3, after a line that says so:
//!
//! ```text
//! version 2: FILE ACTION [OFFSET LENGTH]            time goes on with `FILE wait MICROSECONDS`
//! version 3: MICROSECONDS FILE ACTION [OFFSET LENGTH]
//! ```
//!
//! Files are numbered in the order of their appearance: each is a disk. Requests of a log of
//! version 2 without waits come all at once: replay it closed-loop.

use std::collections::HashMap;

use super::Operation;
use super::error::TraceError;
use super::reader::{LineParser, Parsed};
use super::row::{Line, Range};

/// Most files of a log.
const FILES_MAX: usize = 65_536;

/// Version of a log that begins with `line`, if it is one.
pub(super) fn version(line: &str) -> Option<u32> {
    line.trim().strip_prefix("fio version ")?.strip_suffix(" iolog")?.parse().ok()
}

/// Reads such logs.
#[derive(Default)]
pub(super) struct Fio {
    version: Option<u32>,
    files: HashMap<String, u32>,
    now_ns: u64,
}

impl LineParser for Fio {
    fn parse(&mut self, line: &Line<'_>) -> Result<Option<Parsed>, TraceError> {
        let Some(version) = self.version else {
            let found = version(line.text).filter(|version| matches!(version, 2 | 3));
            let problem = "expected `fio version 2 iolog` or `fio version 3 iolog`".to_owned();
            self.version = Some(found.ok_or_else(|| line.problem(0, "header", problem))?);
            return Ok(None);
        };
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
                self.device(name).ok_or_else(|| row.problem(file, "file", too_many()))?;
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
        request.device = self.device(name).ok_or_else(|| row.problem(file, "file", too_many()))?;
        Ok(Some(Parsed { request, time_byte: row.byte(0) }))
    }
}

fn too_many() -> String {
    format!("more than {FILES_MAX} files")
}

impl Fio {
    /// Number of a file; none if there are too many.
    fn device(&mut self, name: &str) -> Option<u32> {
        if let Some(device) = self.files.get(name) {
            return Some(*device);
        }
        let device = self.files.len();
        (device < FILES_MAX).then(|| {
            self.files.insert(name.to_owned(), device as u32);
            device as u32
        })
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
