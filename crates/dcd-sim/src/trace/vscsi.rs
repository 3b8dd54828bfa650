//! CloudPhysics' traces of VMware's vscsiStats: records of 32 bytes (version 1) or 40 (version 2),
//! little-endian.
//!
//! ```text
//! version 1: byte 0 serial   4 bytes   8 segments  12 command  14 version  16 sector  24 time, us
//! version 2: byte 0 command  2 version 4 serial     8 bytes    12 segments 16 sector  24 time, us
//!                 32 rt
//! ```
//!
//! Layout: that of CloudPhysics' own reader, as libCacheSim has it (`trace_v1_record_t`,
//! `trace_v2_record_t` in `vscsi.h`), which also says that times are microseconds. The version is in
//! the upper byte of its field. Commands are those of SCSI (SBC-3): reads, writes and SYNCHRONIZE
//! CACHE are requests. All others are passed over, UNMAP and WRITE SAME too: the record does not say
//! which blocks they mean. In what unit `rt` is was found nowhere, so no latency is taken from it.

use super::reader::RecordParser;
use super::{Operation, Request, SIZE_BYTES_MAX, TraceError, TraceInput};

const RECORD_BYTES_MAX: usize = 40;

/// Where what is in a record of a version that is not at one place in both.
#[derive(Clone, Copy)]
struct Layout {
    version: u8,
    record_bytes: usize,
    command: usize,
    version_field: usize,
    size: usize,
}

const LAYOUTS: [Layout; 2] = [
    Layout { version: 2, record_bytes: 40, command: 0, version_field: 2, size: 8 },
    Layout { version: 1, record_bytes: 32, command: 12, version_field: 14, size: 4 },
];

/// The layout of a trace that begins so: all records are of that version, and commands are bytes.
fn layout(beginning: &[u8]) -> Option<Layout> {
    let is = |layout: &&Layout| {
        let mut records = beginning.chunks_exact(layout.record_bytes);
        let fits = |record: &[u8]| {
            record[layout.version_field + 1] == layout.version && record[layout.command + 1] == 0
        };
        records.len() > 0 && records.all(fits)
    };
    LAYOUTS.iter().find(is).copied()
}

/// Whether a trace begins so. Texts have no such bytes.
pub(super) fn is_beginning(beginning: &[u8]) -> bool {
    layout(beginning).is_some()
}

/// Reads such records.
pub(super) struct Vscsi {
    layout: Layout,
    record_number: u64,
}

impl Vscsi {
    /// For a trace that begins so.
    pub fn new(beginning: &[u8]) -> Vscsi {
        Vscsi { layout: layout(beginning).unwrap_or(LAYOUTS[0]), record_number: 0 }
    }

    fn problem(
        &self,
        input: &TraceInput,
        byte: usize,
        name: &'static str,
        problem: String,
    ) -> TraceError {
        let (path, line) = (input.path().to_owned(), self.record_number);
        TraceError::Field { path, line, column: byte + 1, name, problem }
    }
}

/// What a command wants; none if that is not known, or no request.
fn operation(command: u16) -> Option<Operation> {
    match command {
        // READ of 6, 10, 12 and 16 bytes; WRITE, and WRITE AND VERIFY; SYNCHRONIZE CACHE.
        0x08 | 0x28 | 0xa8 | 0x88 => Some(Operation::Read),
        0x0a | 0x2a | 0xaa | 0x8a | 0x2e | 0xae | 0x8e => Some(Operation::Write),
        0x35 | 0x91 => Some(Operation::Flush),
        _ => None,
    }
}

impl RecordParser for Vscsi {
    fn next(&mut self, input: &mut TraceInput) -> Result<Option<Request>, TraceError> {
        loop {
            self.record_number += 1;
            let Layout { version, record_bytes, command, version_field, size } = self.layout;
            let mut bytes = [0; RECORD_BYTES_MAX];
            let filled = input.next_record(&mut bytes[..record_bytes])?;
            if filled == 0 {
                return Ok(None);
            }
            if filled < record_bytes {
                let problem = format!("expected {record_bytes} bytes, found {filled}");
                return Err(self.problem(input, filled, "record", problem));
            }
            if bytes[version_field + 1] != version {
                let found = bytes[version_field + 1];
                let problem = format!("expected {version}, found {found}");
                return Err(self.problem(input, version_field + 1, "version", problem));
            }
            let part = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
            let command = u16::from_le_bytes([bytes[command], bytes[command + 1]]);
            let Some(operation) = operation(command) else { continue };
            let is_flush = operation == Operation::Flush;
            let size_bytes = if is_flush { 0 } else { part(size) & 0xffff_ffff };
            let sector = if is_flush { 0 } else { part(16) };
            if size_bytes > SIZE_BYTES_MAX {
                let problem =
                    format!("expected at most 1 GiB in a request, found {size_bytes} bytes");
                return Err(self.problem(input, size, "size", problem));
            }
            let offset_bytes = sector.checked_mul(512);
            let offset_bytes = offset_bytes.filter(|at| at.checked_add(size_bytes).is_some());
            let Some(offset_bytes) = offset_bytes else {
                let problem =
                    format!("{size_bytes} bytes at sector {sector} end at or beyond 2^64");
                return Err(self.problem(input, 16, "sector", problem));
            };
            let time_us = part(24);
            let Some(time_ns) = time_us.checked_mul(1000) else {
                let problem = format!("expected microseconds below 2^64 ns, found {time_us}");
                return Err(self.problem(input, 24, "time", problem));
            };
            return Ok(Some(Request {
                time_ns,
                operation,
                device: 0,
                offset_bytes,
                size_bytes,
                flags: Default::default(),
                latency_ns: None,
                line: self.record_number,
                column: 17,
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::trace::reader_tests::read_bytes;
    use crate::trace::{Operation, TraceFormat};

    fn record_1(command: u16, size: u32, sector: u64, time_us: u64) -> Vec<u8> {
        let parts = [&7u32.to_le_bytes()[..], &size.to_le_bytes(), &1u32.to_le_bytes()];
        let rest =
            [&command.to_le_bytes()[..], &[5, 1], &sector.to_le_bytes(), &time_us.to_le_bytes()];
        [parts.concat(), rest.concat()].concat()
    }

    fn record_2(command: u16, size: u32, sector: u64, time_us: u64) -> Vec<u8> {
        let parts = [&command.to_le_bytes()[..], &[5, 2], &7u32.to_le_bytes(), &size.to_le_bytes()];
        let times = [time_us.to_le_bytes(), 99u64.to_le_bytes()].concat();
        [parts.concat(), 1u32.to_le_bytes().to_vec(), sector.to_le_bytes().to_vec(), times].concat()
    }

    type Maker = fn(u16, u32, u64, u64) -> Vec<u8>;
    const BOTH: [(Maker, usize); 2] = [(record_1, 32), (record_2, 40)];

    #[test]
    fn records_of_both_versions_are_read() {
        for (record, bytes) in BOTH {
            let trace = [
                record(0x2a, 512, 42_932_745, 33_898_000),
                record(0x88, 6656, 40_409_911, 33_898_500),
                record(0x42, 24, 0, 33_898_600),
                record(0x91, 0, 5, 33_899_000),
            ];
            assert_eq!(trace[0].len(), bytes);
            let (format, requests) = read_bytes(trace.concat(), None).unwrap();
            assert_eq!(format, TraceFormat::Vscsi);
            let facts: Vec<_> = requests
                .iter()
                .map(|r| (r.time_ns, r.operation, r.offset_bytes, r.size_bytes, r.line))
                .collect();
            let wanted = [
                (0, Operation::Write, 42_932_745 * 512, 512, 1),
                (500_000, Operation::Read, 40_409_911 * 512, 6656, 2),
                (1_000_000, Operation::Flush, 0, 0, 4),
            ];
            assert_eq!(facts, wanted);
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (record, bytes) in BOTH {
            let shown = |second: Vec<u8>| {
                let trace = [record(0x28, 512, 1, 1), second].concat();
                read_bytes(trace, Some(TraceFormat::Vscsi)).unwrap_err().to_string()
            };
            let size = if bytes == 32 { 5 } else { 9 };
            assert_eq!(
                shown(record(0x28, u32::MAX, 1, 1)),
                format!(
                    "t:2:{size}: size: expected at most 1 GiB in a request, found 4294967295 bytes"
                )
            );
            assert!(shown(record(0x28, 1, u64::MAX, 1)).starts_with("t:2:17: sector: 1 bytes at"));
            assert!(
                shown(record(0x28, 1, 1, u64::MAX)).starts_with("t:2:25: time: expected micro")
            );
            let torn = record(0x28, 1, 1, 1)[..9].to_vec();
            assert_eq!(shown(torn), format!("t:2:10: record: expected {bytes} bytes, found 9"));
        }
        let second = [record_2(0x28, 1, 1, 1), vec![0; 40]].concat();
        let shown = read_bytes(second, Some(TraceFormat::Vscsi)).unwrap_err().to_string();
        assert_eq!(shown, "t:2:4: version: expected 2, found 0");
    }
}
