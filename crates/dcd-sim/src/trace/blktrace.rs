//! What `blktrace` writes: records of 48 bytes (version 7) or 64 (version 8) and a payload, in the
//! byte order of the machine. The files of the processors (`sda.blktrace.0`, ...) are merged by
//! `blkparse -i sda -d sda.bin`.
//!
//! ```text
//! version 7: byte  0 magic 0x65617407   4 sequence   8 time, ns   16 sector   24 bytes
//!                 28 action   32 pid   36 device   40 cpu   44 error   46 size of the payload
//! version 8: byte  0 magic 0x65617408   4 sequence   8 time, ns   16 sector   24 bytes
//!                 28 pid   32 action, 64 bits   40 device   44 cpu   48 error
//!                 50 size of the payload   52 to 63 empty
//! ```
//!
//! Layout: `struct blk_io_trace` and, of newer kernels, `struct blk_io_trace2` in
//! `include/uapi/linux/blktrace_api.h`. Actions have their category from bit 16 on. Operations on
//! zones are passed over; a zone append is a write.
//!
//! Which of a request's records counts is as with `blkparse`.

use super::reader::RecordParser;
use super::{Flags, Operation, Request, SIZE_BYTES_MAX, TraceError, TraceInput};

/// Length of a record of the longest kind.
const RECORD_BYTES_MAX: usize = 64;
const MAGIC: u32 = 0x6561_7400;

/// Where what is in a record of a version that is not at one place in all.
struct Layout {
    version: u32,
    record_bytes: usize,
    action: usize,
    device: usize,
    payload: usize,
}

const VERSION_7: Layout =
    Layout { version: 7, record_bytes: 48, action: 28, device: 36, payload: 46 };
const VERSION_8: Layout =
    Layout { version: 8, record_bytes: RECORD_BYTES_MAX, action: 32, device: 40, payload: 50 };

/// Kinds of record, best first: queued, issued, completed.
const ACTIONS: [u64; 3] = [1, 7, 8];

/// Categories: what is above the lower 16 bits of the action.
mod category {
    pub const WRITE: u64 = 1 << 1;
    pub const FLUSH: u64 = 1 << 2;
    pub const SYNC: u64 = 1 << 3;
    pub const PASSTHROUGH: u64 = 1 << 9;
    pub const NOTIFY: u64 = 1 << 10;
    pub const READ_AHEAD: u64 = 1 << 11;
    pub const METADATA: u64 = 1 << 12;
    pub const DISCARD: u64 = 1 << 13;
    pub const FUA: u64 = 1 << 15;
    pub const ZONE_APPEND: u64 = 1 << 16;
    /// Reset, reset all, finish, open, close.
    pub const ZONES: u64 = 0x1f << 17;
    pub const WRITE_ZEROES: u64 = 1 << 22;
}

/// Whether a trace begins so, in either byte order.
pub(super) fn is_magic(beginning: &[u8]) -> bool {
    let Some(magic) = beginning.first_chunk::<4>() else { return false };
    let is = |magic: u32| magic & !0xff == MAGIC;
    is(u32::from_le_bytes(*magic)) || is(u32::from_be_bytes(*magic))
}

/// Reads such records.
pub(super) struct Blktrace {
    big_endian: bool,
    layout: &'static Layout,
    action: u64,
    record_number: u64,
    payload: Vec<u8>,
}

/// A record.
struct Record<'a> {
    bytes: &'a [u8; RECORD_BYTES_MAX],
    layout: &'static Layout,
    big_endian: bool,
}

impl Record<'_> {
    fn part<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut part = [0; N];
        part.copy_from_slice(&self.bytes[at..at + N]);
        if self.big_endian {
            part.reverse();
        }
        part
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.part(at))
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.part(at))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.part(at))
    }

    fn whole_action(&self) -> u64 {
        let at = self.layout.action;
        if self.layout.version == 7 { self.u32(at).into() } else { self.u64(at) }
    }

    /// What happened: queued, issued, ...
    fn action(&self) -> u64 {
        self.whole_action() & 0xff
    }

    fn category(&self) -> u64 {
        self.whole_action() >> 16
    }

    fn payload_bytes(&self) -> usize {
        self.u16(self.layout.payload).into()
    }

    /// Whether it is about data or a flush.
    fn is_request(&self) -> bool {
        let others = category::NOTIFY | category::PASSTHROUGH | category::ZONES;
        self.category() & others == 0
    }
}

impl Blktrace {
    /// For a trace that begins so.
    pub fn new(beginning: &[u8]) -> Blktrace {
        let magic = beginning.first_chunk::<4>().copied().unwrap_or_default();
        let big_endian = u32::from_be_bytes(magic) & !0xff == MAGIC;
        let version = if big_endian { magic[3] } else { magic[0] };
        let layout = if version == 8 { &VERSION_8 } else { &VERSION_7 };
        let mut seen = [false; ACTIONS.len()];
        let mut rest = beginning;
        while let Some(record) = rest.get(..layout.record_bytes) {
            let mut bytes = [0; RECORD_BYTES_MAX];
            bytes[..record.len()].copy_from_slice(record);
            let record = Record { bytes: &bytes, layout, big_endian };
            for (seen, action) in seen.iter_mut().zip(ACTIONS) {
                *seen |= record.is_request() && record.action() == action;
            }
            rest = rest.get(layout.record_bytes + record.payload_bytes()..).unwrap_or_default();
        }
        let best = seen.iter().position(|seen| *seen).unwrap_or(0);
        let action = ACTIONS[best];
        Blktrace { big_endian, layout, action, record_number: 0, payload: Vec::new() }
    }
}

impl RecordParser for Blktrace {
    fn next(&mut self, input: &mut TraceInput) -> Result<Option<Request>, TraceError> {
        loop {
            self.record_number += 1;
            let mut bytes = [0; RECORD_BYTES_MAX];
            let record_bytes = self.layout.record_bytes;
            let filled = input.next_record(&mut bytes[..record_bytes])?;
            if filled == 0 {
                return Ok(None);
            }
            if filled < record_bytes {
                let problem = format!("expected {record_bytes} bytes, found {filled}");
                return Err(self.problem(input, filled, "record", problem));
            }
            let layout = self.layout;
            let record = Record { bytes: &bytes, layout, big_endian: self.big_endian };
            let (wanted, found) = (MAGIC | layout.version, record.u32(0));
            if found != wanted {
                let problem = format!("expected {wanted:#x}, found {found:#x}");
                return Err(self.problem(input, 0, "magic", problem));
            }
            self.payload.resize(record.payload_bytes(), 0);
            let filled = input.next_record(&mut self.payload)?;
            if filled < self.payload.len() {
                let problem = format!("expected {} bytes, found {filled}", self.payload.len());
                return Err(self.problem(input, record_bytes + filled, "payload", problem));
            }
            if record.is_request()
                && record.action() == self.action
                && let Some(request) = self.request(input, &record)?
            {
                return Ok(Some(request));
            }
        }
    }
}

impl Blktrace {
    /// The request of a record; none if it moves no data.
    fn request(
        &self,
        input: &TraceInput,
        record: &Record<'_>,
    ) -> Result<Option<Request>, TraceError> {
        let category = record.category();
        let has = |wanted: u64| category & wanted != 0;
        let size_bytes = u64::from(record.u32(24));
        let operation = match size_bytes {
            0 if has(category::FLUSH) => Operation::Flush,
            0 => return Ok(None),
            _ if has(category::DISCARD) => Operation::Discard,
            _ if has(category::WRITE | category::ZONE_APPEND | category::WRITE_ZEROES) => {
                Operation::Write
            }
            _ => Operation::Read,
        };
        let mut flags = Flags::default();
        for (wanted, flag) in [
            (category::SYNC, Flags::SYNC),
            (category::FUA, Flags::FUA),
            (category::FLUSH, Flags::PREFLUSH),
            (category::METADATA, Flags::METADATA),
            (category::READ_AHEAD, Flags::READ_AHEAD),
        ] {
            if has(wanted) && size_bytes > 0 {
                flags = flags.with(flag);
            }
        }
        let sector = if size_bytes == 0 { 0 } else { record.u64(16) };
        let offset_bytes = sector.checked_mul(512);
        let offset_bytes = offset_bytes.filter(|at| at.checked_add(size_bytes).is_some());
        let Some(offset_bytes) = offset_bytes else {
            let problem = format!("{size_bytes} bytes at sector {sector} end at or beyond 2^64");
            return Err(self.problem(input, 16, "sector", problem));
        };
        if size_bytes > SIZE_BYTES_MAX && operation != Operation::Discard {
            let problem = format!("expected at most 1 GiB in a request, found {size_bytes} bytes");
            return Err(self.problem(input, 24, "size", problem));
        }
        Ok(Some(Request {
            time_ns: record.u64(8),
            operation,
            device: record.u32(self.layout.device),
            offset_bytes,
            size_bytes,
            flags,
            latency_ns: None,
            line: self.record_number,
            column: 17,
        }))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::TraceFormat;
    use crate::trace::reader_tests::read_bytes;

    /// A record about 4 KiB at a sector, with a payload.
    fn record(big: bool, time: u64, sector: u64, action: u32, size: u32, payload: u16) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut put = |little: &[u8]| {
            let mut part = little.to_vec();
            if big {
                part.reverse();
            }
            bytes.extend(part);
        };
        put(&(MAGIC | 7).to_le_bytes());
        put(&1u32.to_le_bytes());
        put(&time.to_le_bytes());
        put(&sector.to_le_bytes());
        put(&size.to_le_bytes());
        put(&action.to_le_bytes());
        put(&77u32.to_le_bytes());
        put(&(8u32 << 20 | 16).to_le_bytes());
        put(&0u32.to_le_bytes());
        put(&0u16.to_le_bytes());
        put(&payload.to_le_bytes());
        bytes.extend(std::iter::repeat_n(0xee, usize::from(payload)));
        bytes
    }

    /// A record of version 8 about 512 bytes.
    fn record_8(big: bool, time: u64, sector: u64, action: u64, payload: u16) -> Vec<u8> {
        let old = record(big, time, sector, 0, 512, payload);
        let mut action = action.to_le_bytes();
        if big {
            action.reverse();
        }
        let mut bytes = [&old[..28], &old[32..36], &action, &old[36..48], &[0; 12], &old[48..]];
        let mut magic = bytes[0].to_vec();
        magic[if big { 3 } else { 0 }] = 8;
        bytes[0] = &magic;
        bytes.concat()
    }

    #[test]
    fn records_of_version_8_are_read_in_both_byte_orders() {
        for big in [false, true] {
            let act = |category: u64, action: u64| category << 16 | action;
            let append = category::ZONE_APPEND | category::SYNC;
            let trace = [
                record_8(big, 0, 0, act(category::NOTIFY, 0), 9),
                record_8(big, 5, 8, act(category::WRITE, 1), 0),
                record_8(big, 6, 16, act(append, 1), 7),
                record_8(big, 7, 24, act(1 << 19, 1), 0),
                record_8(big, 8, 32, act(category::WRITE_ZEROES, 1), 0),
                record_8(big, 9, 40, act(1, 1 << 8 | 1), 8),
                record_8(big, 9, 40, act(1, 7), 0),
            ]
            .concat();
            let (format, requests) = read_bytes(trace, None).unwrap();
            assert_eq!(format, TraceFormat::Blktrace);
            let facts: Vec<_> = requests
                .iter()
                .map(|r| (r.operation, r.offset_bytes / 512, r.flags, r.device, r.line))
                .collect();
            let (none, device) = (Flags::default(), 8 << 20 | 16);
            let wanted = [
                (Operation::Write, 8, none, device, 2),
                (Operation::Write, 16, Flags::SYNC, device, 3),
                (Operation::Write, 32, none, device, 5),
                (Operation::Read, 40, none, device, 6),
            ];
            assert_eq!(facts, wanted);
            assert_eq!(requests[3].size_bytes, 512);
        }
    }

    #[test]
    fn records_are_read_in_both_byte_orders() {
        for big in [false, true] {
            let act = |category: u64, action: u64| (category << 16 | action) as u32;
            let write = category::WRITE | category::FUA;
            let trace = [
                record(big, 0, 0, act(category::NOTIFY, 0), 0, 9),
                record(big, 500, 8, act(write, 1), 4096, 0),
                record(big, 600, 8, act(write, 7), 4096, 0),
                record(big, 700, 0, act(category::FLUSH | category::WRITE, 1), 0, 0),
                record(big, 650, 16, 1, 512, 3),
                record(big, 800, 16, act(category::PASSTHROUGH, 1), 512, 3),
            ]
            .concat();
            let (format, requests) = read_bytes(trace, None).unwrap();
            assert_eq!(format, TraceFormat::Blktrace);
            let facts: Vec<_> =
                requests.iter().map(|r| (r.operation, r.offset_bytes, r.time_ns, r.line)).collect();
            let wanted = [
                (Operation::Write, 4096, 0, 2),
                (Operation::Read, 8192, 150, 5),
                (Operation::Flush, 0, 200, 4),
            ];
            assert_eq!(facts, wanted);
            assert_eq!((requests[0].flags, requests[0].device), (Flags::FUA, 8 << 20 | 16));
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let shown = |bytes: Vec<u8>| read_bytes(bytes, None).unwrap_err().to_string();
        let one = record(false, 1, 8, 1, 512, 0);
        let torn = [&one[..], &one[..20]].concat();
        assert_eq!(shown(torn), "t:2:21: record: expected 48 bytes, found 20");
        let torn = [&one[..], &record(false, 1, 8, 1, 512, 9)[..50]].concat();
        assert_eq!(shown(torn), "t:2:51: payload: expected 9 bytes, found 2");
        let foreign = [&one[..], &[1; 48]].concat();
        assert_eq!(shown(foreign), "t:2:1: magic: expected 0x65617407, found 0x1010101");
        let newer = [&one[..], &record_8(false, 1, 8, 1, 0)].concat();
        assert_eq!(shown(newer), "t:2:1: magic: expected 0x65617407, found 0x65617408");
        let mut newest = one.clone();
        newest[0] = 9;
        assert!(shown(newest).contains("magic: expected 0x65617407, found 0x65617409"));
        let torn = record_8(false, 1, 8, 1, 0)[..60].to_vec();
        assert_eq!(shown(torn), "t:1:61: record: expected 64 bytes, found 60");
        assert!(shown(record(false, 1, u64::MAX, 1, 512, 0)).starts_with("t:1:17: sector: "));
        assert!(shown(record(false, 1, 0, 1, u32::MAX, 0)).starts_with("t:1:25: size: "));
    }
}
