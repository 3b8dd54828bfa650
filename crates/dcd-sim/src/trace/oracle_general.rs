//! libCacheSim's oracleGeneral: records of 24 bytes, little-endian, of requests for objects.
//!
//! ```text
//! byte 0 time, seconds   4 object, 64 bits   12 bytes   16 next request for it, 64 bits
//! ```
//!
//! Layout: `oracleGeneralBin.h` of libCacheSim. It does not tell reads from writes: all are reads. Of
//! traces of disks an object is an address: bytes, or sectors of 512, as whoever converted it had
//! them. If all those of the first 64 KiB are multiples of 512 they are bytes. Requests of no bytes
//! are passed over, as libCacheSim does when it is told to.

use super::reader::RecordParser;
use super::{Operation, Request, SIZE_BYTES_MAX, TraceError, TraceInput};

const RECORD_BYTES: usize = 24;

struct Record<'a>(&'a [u8]);

impl Record<'_> {
    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(std::array::from_fn(|byte| self.0[at + byte]))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|byte| self.0[at + byte]))
    }
}

/// Whether a trace begins so: times go on, and the next request is a later one or there is none. No
/// text has a byte 0.
pub(super) fn is_beginning(beginning: &[u8]) -> bool {
    let mut last_s = 0;
    let mut records = (1..).zip(beginning.chunks_exact(RECORD_BYTES).map(Record));
    beginning.len() >= RECORD_BYTES
        && beginning.contains(&0)
        && records.all(|(number, record)| {
            let goes_on = record.u32(0) >= last_s;
            last_s = record.u32(0);
            let next = record.u64(16);
            let is_none = next == u64::MAX || next == i64::MAX as u64;
            goes_on && (is_none || (number..1 << 40).contains(&next))
        })
}

/// Reads such records.
pub(super) struct OracleGeneral {
    unit_bytes: u64,
    record_number: u64,
}

impl OracleGeneral {
    /// For a trace that begins so.
    pub fn new(beginning: &[u8]) -> OracleGeneral {
        let mut records = beginning.chunks_exact(RECORD_BYTES).map(Record);
        let are_bytes = records.all(|record| record.u64(4).is_multiple_of(512));
        OracleGeneral { unit_bytes: if are_bytes { 1 } else { 512 }, record_number: 0 }
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

impl RecordParser for OracleGeneral {
    fn next(&mut self, input: &mut TraceInput) -> Result<Option<Request>, TraceError> {
        loop {
            self.record_number += 1;
            let mut bytes = [0; RECORD_BYTES];
            let filled = input.next_record(&mut bytes)?;
            if filled == 0 {
                return Ok(None);
            }
            if filled < RECORD_BYTES {
                let problem = format!("expected {RECORD_BYTES} bytes, found {filled}");
                return Err(self.problem(input, filled, "record", problem));
            }
            let record = Record(&bytes);
            let (object, size_bytes) = (record.u64(4), u64::from(record.u32(12)));
            if size_bytes == 0 {
                continue;
            }
            if size_bytes > SIZE_BYTES_MAX {
                let problem =
                    format!("expected at most 1 GiB in a request, found {size_bytes} bytes");
                return Err(self.problem(input, 12, "size", problem));
            }
            let offset_bytes = object.checked_mul(self.unit_bytes);
            let offset_bytes = offset_bytes.filter(|at| at.checked_add(size_bytes).is_some());
            let Some(offset_bytes) = offset_bytes else {
                let problem = format!(
                    "expected an address in units of {} bytes, found {object}, which is too large: \
                     a trace of objects is none of a disk",
                    self.unit_bytes
                );
                return Err(self.problem(input, 4, "object", problem));
            };
            return Ok(Some(Request {
                time_ns: u64::from(record.u32(0)) * 1_000_000_000,
                operation: Operation::Read,
                device: 0,
                offset_bytes,
                size_bytes,
                flags: Default::default(),
                latency_ns: None,
                line: self.record_number,
                column: 5,
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::trace::reader_tests::read_bytes;
    use crate::trace::{Operation, TraceFormat};

    fn trace(records: &[(u32, u64, u32, i64)]) -> Vec<u8> {
        let bytes = |(time, object, size, next): &(u32, u64, u32, i64)| {
            let [time, size] = [time.to_le_bytes(), size.to_le_bytes()];
            [&time[..], &object.to_le_bytes(), &size, &next.to_le_bytes()].concat()
        };
        records.iter().flat_map(bytes).collect()
    }

    #[test]
    fn objects_are_addresses_in_bytes_or_sectors() {
        let facts = |records: &[(u32, u64, u32, i64)]| -> Vec<_> {
            let (format, requests) = read_bytes(trace(records), None).unwrap();
            assert_eq!(format, TraceFormat::OracleGeneral);
            assert!(requests.iter().all(|request| request.operation == Operation::Read));
            requests.iter().map(|r| (r.time_ns, r.offset_bytes, r.size_bytes, r.line)).collect()
        };
        let second = 1_000_000_000;
        let sectors =
            [(5, 1024, 4096, 3), (5, 7, 512, -1), (6, 8, 0, i64::MAX), (8, 1024, 4096, -1)];
        let wanted =
            [(0, 1024 * 512, 4096, 1), (0, 7 * 512, 512, 2), (3 * second, 1024 * 512, 4096, 4)];
        assert_eq!(facts(&sectors), wanted);
        let bytes = [(0, 1024, 4096, 1), (0, 1024, 4096, -1)];
        assert_eq!(facts(&bytes), [(0, 1024, 4096, 1), (0, 1024, 4096, 2)]);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let shown = |bytes: Vec<u8>| {
            read_bytes(bytes, Some(TraceFormat::OracleGeneral)).unwrap_err().to_string()
        };
        let good = (1, 1, 512, -1);
        let hashed = shown(trace(&[good, (1, u64::MAX / 3, 512, -1)]));
        assert!(hashed.starts_with("t:2:5: object: expected an address in units of 512 bytes"));
        assert!(
            shown(trace(&[(1, 1, u32::MAX, -1)])).starts_with("t:1:13: size: expected at most")
        );
        assert_eq!(
            shown(trace(&[good])[..20].to_vec()),
            "t:1:21: record: expected 24 bytes, found 20"
        );
        // Times that go back, and a next request that is no later one, are of something else.
        for other in [[(2, 1, 512, -1), (1, 1, 512, -1)], [(1, 1, 512, -1), (1, 1, 512, 1)]] {
            let shown = read_bytes(trace(&other), None).unwrap_err().to_string();
            assert!(shown.contains("the format of the trace is not known"), "{shown}");
        }
    }
}
