//! DiskSim's traces of its format `ascii`: `MILLISECONDS DEVICE BLOCK BLOCKS FLAGS`, blocks of 512
//! bytes, flags hexadecimal.
//!
//! Specification: `iotrace_ascii_get_ioreq_event` in DiskSim's `disksim_iotrace.c`; flags in
//! `disksim_global.h`: 1 read, 2 time-critical, 0x80 synchronous. Others do not matter here.

use super::error::TraceError;
use super::reader::{LineParser, Parsed};
use super::row::{Line, Range, Row, decimal};
use super::{Flags, Operation};

const READ: u32 = 1;
const TIME_CRITICAL: u32 = 2;
const SYNCHRONOUS: u32 = 0x80;

/// Whether it is a row of such a trace.
pub(super) fn is_row(row: &Row<'_>) -> bool {
    let number = |index| row.text(index).parse::<u64>().is_ok();
    let timed = decimal(row.text(0), 1).is_some();
    row.count == 5 && timed && (1..4).all(number) && flags(row.text(4)).is_some()
}

fn flags(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let is_digit = |byte: &u8| byte.is_ascii_hexdigit();
    digits.as_bytes().iter().all(is_digit).then(|| u32::from_str_radix(digits, 16).ok())?
}

/// Reads such traces.
pub(super) struct Disksim;

impl LineParser for Disksim {
    fn parse(&mut self, line: &Line<'_>) -> Result<Option<Parsed>, TraceError> {
        let row = line.split_blanks();
        let time_ns = row.time(0, "time", 1_000_000)?;
        let device = row.small(1, "device")?;
        let range = Range {
            field: 2,
            offset_bytes: row.bytes(2, "block", 512)?,
            size_bytes: row.bytes(3, "blocks", 512)?,
        };
        let flags = flags(row.get(4, "flags")?)
            .ok_or_else(|| row.expected(4, "flags", "hexadecimal flags below 2^32"))?;
        let operation = if flags & READ != 0 { Operation::Read } else { Operation::Write };
        let mut request = row.request(time_ns, operation, &range)?;
        request.device = device;
        if flags & (TIME_CRITICAL | SYNCHRONOUS) != 0 {
            request.flags = Flags::SYNC;
        }
        Ok(Some(Parsed { request, time_byte: row.byte(0) }))
    }
}

#[cfg(test)]
mod tests {
    use crate::trace::reader_tests::{detected, read, refused};
    use crate::trace::{Flags, Operation, TraceFormat};

    #[test]
    fn rows_are_read() {
        let text = "0.000000 0 2 8 1\n2.5004 1 1024 16 0\n   7.1  2  0   1   80\n9 0 5 1 0x103\n";
        assert_eq!(detected(text), TraceFormat::Disksim);
        let requests = read(text, None);
        let facts: Vec<_> = requests
            .iter()
            .map(|r| (r.time_ns, r.device, r.operation, r.offset_bytes, r.size_bytes, r.flags))
            .collect();
        let none = Flags::default();
        let wanted = [
            (0, 0, Operation::Read, 1024, 4096, none),
            (2_500_400, 1, Operation::Write, 1024 * 512, 8192, none),
            (7_100_000, 2, Operation::Write, 0, 512, Flags::SYNC),
            (9_000_000, 0, Operation::Read, 5 * 512, 512, Flags::SYNC),
        ];
        assert_eq!(facts, wanted);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let disksim = Some(TraceFormat::Disksim);
        let shown = refused("x 0 2 8 1\n", disksim);
        assert!(shown.starts_with("t:1:1: time: expected a time in milli"), "{shown}");
        assert!(refused("1 0 2 8 g\n", disksim).starts_with("t:1:9: flags: expected hexadecimal"));
        assert!(refused("1 0 2 8\n", disksim).starts_with("t:1:8: flags: missing"));
        assert!(refused("1 -1 2 8 0\n", disksim).starts_with("t:1:3: device: expected a whole"));
    }
}
