//! SRT, the traces of HP Laboratories (snake, cello, hplajw), versions 1.1 to 1.4: a text that has
//! a line `tracedate` and ends with a form feed, then records of big-endian words of 32 bits.
//!
//! ```text
//! byte  0 bytes of the record   4 version << 16 | kind   8 seconds   12 microseconds
//!      16 begin   20 end of its service, in microseconds after that time
//!      24 bytes   28 sector   32 device   36 driver   40 cylinder   44 flags   48 origin
//!      52 requests waiting: version 4 only; behind that, of suspect records, what is suspect
//! ```
//!
//! The layout is that of DiskSim's reader (`disksim_iotrace.c`, `disksim_hptrace.h`), who has it
//! from HP's SRTlite. Suspect records are passed over, as there. A device is major << 24 |
//! controller << 12 | disk << 8 | section; addresses are those of the disk, so the section is left
//! out. The records do not say how large a sector is.

use super::reader::RecordParser;
use super::{Flags, Operation, Request, SIZE_BYTES_MAX, TraceError, TraceInput};

/// Ends the text.
const FORM_FEED: u8 = 0x0c;
/// Longest text.
const TEXT_BYTES_MAX: u64 = 64 << 10;
/// What all records have.
const WORDS_MIN: usize = 13;
const WORDS_MAX: usize = WORDS_MIN + 2;
/// Kinds of record.
const SHORT_IO: u32 = 1;
const SUSPECT_IO: u32 = 4;
/// Flags.
const READ: u32 = 1;
const ASYNCHRONOUS: u32 = 0x100;

/// Whether a trace begins so.
pub(super) fn is_beginning(beginning: &[u8]) -> bool {
    let Some(end) = beginning.iter().position(|byte| *byte == FORM_FEED) else { return false };
    let mut lines = beginning[..end].split(|byte| *byte == b'\n');
    lines.any(|line| line.trim_ascii_start().starts_with(b"tracedate"))
}

/// Reads such records.
pub(super) struct Srt {
    sector_bytes: u64,
    /// None until the text is over.
    record_number: Option<u64>,
}

impl RecordParser for Srt {
    fn next(&mut self, input: &mut TraceInput) -> Result<Option<Request>, TraceError> {
        if self.record_number.is_none() {
            self.pass_text(input)?;
        }
        loop {
            let number = self.record_number.map_or(1, |number| number + 1);
            self.record_number = Some(number);
            let mut record = Record { number, words: [0; WORDS_MAX] };
            if !record.read(input, 0..2)? {
                return Ok(None);
            }
            let (version, kind) = (record.words[1] >> 16, record.words[1] & 0xffff);
            if !(1..=4).contains(&version) {
                let problem = format!("expected 1 to 4, found {version}");
                return Err(record.problem(input, 1, "version", problem));
            }
            if kind != SHORT_IO && kind != SUSPECT_IO {
                let problem = format!("expected {SHORT_IO} or {SUSPECT_IO}, found {kind}");
                return Err(record.problem(input, 1, "kind", problem));
            }
            let words = WORDS_MIN + usize::from(version == 4) + usize::from(kind == SUSPECT_IO);
            if record.words[0] as usize != 4 * words {
                let (wanted, found) = (4 * words, record.words[0]);
                let problem = format!("expected {wanted} bytes, found {found}");
                return Err(record.problem(input, 0, "record", problem));
            }
            if !record.read(input, 2..words)? {
                let problem = "expected more of it, found the end of the trace".to_owned();
                return Err(record.problem(input, 2, "record", problem));
            }
            if kind == SHORT_IO {
                return self.request(input, &record).map(Some);
            }
        }
    }
}

impl Srt {
    /// With sectors of so many bytes.
    pub fn new(sector_bytes: u64) -> Srt {
        Srt { sector_bytes, record_number: None }
    }

    fn pass_text(&self, input: &mut TraceInput) -> Result<(), TraceError> {
        let mut byte = [0];
        for count in 0..TEXT_BYTES_MAX {
            match input.next_record(&mut byte)? {
                // A trace of nothing.
                0 if count == 0 => return Ok(()),
                0 => break,
                _ if byte[0] == FORM_FEED => return Ok(()),
                _ => {}
            }
        }
        let problem =
            format!("expected a form feed in the first {TEXT_BYTES_MAX} bytes, found none");
        let path = input.path().to_owned();
        Err(TraceError::Field { path, line: 1, column: 1, name: "header", problem })
    }

    fn request(&self, input: &TraceInput, record: &Record) -> Result<Request, TraceError> {
        let [_, _, seconds, micros, _, end_us, size_bytes, sector, device, _, _, flags, ..] =
            record.words;
        let (size_bytes, offset_bytes) =
            (u64::from(size_bytes), u64::from(sector) * self.sector_bytes);
        if size_bytes > SIZE_BYTES_MAX {
            let problem = format!("expected at most 1 GiB in a request, found {size_bytes} bytes");
            return Err(record.problem(input, 6, "size", problem));
        }
        let is_read = flags & READ != 0;
        let is_awaited = flags & ASYNCHRONOUS == 0;
        Ok(Request {
            time_ns: u64::from(seconds) * 1_000_000_000 + u64::from(micros) * 1_000,
            operation: if is_read { Operation::Read } else { Operation::Write },
            device: device >> 8,
            offset_bytes,
            size_bytes,
            flags: if is_awaited { Flags::SYNC } else { Flags::default() },
            latency_ns: Some(u64::from(end_us) * 1_000),
            line: record.number,
            column: 29,
        })
    }
}

struct Record {
    number: u64,
    words: [u32; WORDS_MAX],
}

impl Record {
    /// Reads some words of it; false if there is nothing at all.
    fn read(
        &mut self,
        input: &mut TraceInput,
        words: std::ops::Range<usize>,
    ) -> Result<bool, TraceError> {
        let mut bytes = [0; 4 * WORDS_MAX];
        let bytes = &mut bytes[..4 * words.len()];
        let filled = input.next_record(bytes)?;
        if filled == 0 {
            return Ok(false);
        }
        if filled < bytes.len() {
            let (wanted, found) = (4 * words.end, 4 * words.start + filled);
            let problem = format!("expected {wanted} bytes, found {found}");
            return Err(self.problem(input, found / 4, "record", problem));
        }
        for (word, bytes) in self.words[words].iter_mut().zip(bytes.chunks_exact(4)) {
            let mut big_endian = [0; 4];
            big_endian.copy_from_slice(bytes);
            *word = u32::from_be_bytes(big_endian);
        }
        Ok(true)
    }

    fn problem(
        &self,
        input: &TraceInput,
        word: usize,
        name: &'static str,
        problem: String,
    ) -> TraceError {
        let (path, line) = (input.path().to_owned(), self.number);
        TraceError::Field { path, line, column: 4 * word + 1, name, problem }
    }
}

#[cfg(test)]
mod tests {
    use crate::trace::reader_tests::read_bytes;
    use crate::trace::{Flags, Operation, TraceFormat};

    const TEXT: &[u8] = b"system\t= \"made up\";\ntracedate\t= \"Fri Apr 17 00:00:00 1992\";\n\x0c";

    /// One record; `rest` from the seconds on.
    fn record(version: u32, kind: u32, rest: &[u32]) -> Vec<u8> {
        let size = 8 + 4 * rest.len() as u32;
        let words = [size, version << 16 | kind].into_iter().chain(rest.iter().copied());
        words.flat_map(u32::to_be_bytes).collect()
    }

    fn io(seconds: u32, micros: u32, device: u32, flags: u32) -> [u32; 11] {
        //                    begin  end  bytes sector         driver cylinder     origin
        [seconds, micros, 70, 20_070, 8192, 1000, device, 7, 3, flags, 0x22]
    }

    /// Byte for byte: a golden trace.
    #[test]
    fn the_words_are_where_they_must_be() {
        let bytes = b"tracedate\t= \"x\";\n\x0c\
            \0\0\0\x34\0\x03\0\x01\0\0\0\x02\0\0\0\x05\0\0\0\x01\0\0\0\x09\0\0\x02\0\0\0\0\x03\
            \x07\0\x15\x08\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0";
        let (format, requests) = read_bytes(bytes.to_vec(), None).unwrap();
        assert_eq!((format, requests.len()), (TraceFormat::Srt, 1));
        let request = requests[0];
        assert_eq!((request.operation, request.flags), (Operation::Read, Flags::SYNC));
        assert_eq!((request.offset_bytes, request.size_bytes), (3 * 512, 512));
        // The section (8) is not part of the disk.
        assert_eq!((request.device, request.latency_ns), (0x70015, Some(9_000)));
        assert_eq!((request.line, request.column), (1, 29));
    }

    #[test]
    fn versions_differ_in_their_ends() {
        let queue = |io: [u32; 11]| [&io[..], &[4]].concat();
        let suspect = |io: [u32; 11]| [&io[..], &[0x80]].concat();
        let trace = [
            TEXT.to_vec(),
            record(1, 1, &io(10, 0, 0x0700_0108, 1)),
            record(3, 4, &suspect(io(10, 1, 0x0700_0108, 1))),
            record(4, 1, &queue(io(11, 500, 0x0700_0208, 0x8_810a))),
        ]
        .concat();
        let (_, requests) = read_bytes(trace.clone(), None).unwrap();
        let facts: Vec<_> =
            requests.iter().map(|r| (r.time_ns, r.operation, r.device, r.flags, r.line)).collect();
        let wanted = [
            (0, Operation::Read, 0x7_0001, Flags::SYNC, 1),
            (1_000_500_000, Operation::Write, 0x7_0002, Flags::default(), 3),
        ];
        assert_eq!(facts, wanted);
        let (_, requests) = read_bytes(trace, Some(TraceFormat::Srt256)).unwrap();
        assert_eq!((requests[0].offset_bytes, requests[0].size_bytes), (256_000, 8192));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let shown = |records: &[Vec<u8>]| {
            let trace = [TEXT.to_vec(), records.concat()].concat();
            read_bytes(trace, None).unwrap_err().to_string()
        };
        let one = record(3, 1, &io(1, 0, 0, 1));
        let newer = record(5, 1, &io(1, 0, 0, 1));
        assert_eq!(shown(&[one.clone(), newer]), "t:2:5: version: expected 1 to 4, found 5");
        assert_eq!(
            shown(&[record(3, 2, &io(1, 0, 0, 1))]),
            "t:1:5: kind: expected 1 or 4, found 2"
        );
        let short = record(4, 1, &io(1, 0, 0, 1));
        assert_eq!(shown(&[short]), "t:1:1: record: expected 56 bytes, found 52");
        assert_eq!(shown(&[one[..7].to_vec()]), "t:1:5: record: expected 8 bytes, found 7");
        assert_eq!(shown(&[one[..50].to_vec()]), "t:1:49: record: expected 52 bytes, found 50");
        assert!(shown(&[one[..8].to_vec()]).starts_with("t:1:9: record: expected more"));
        let mut huge = io(1, 0, 0, 1);
        huge[4] = u32::MAX;
        assert!(shown(&[record(3, 1, &huge)]).starts_with("t:1:25: size: expected at most 1 GiB"));
        let endless = read_bytes(b"tracedate\n".repeat(10), Some(TraceFormat::Srt)).unwrap_err();
        assert!(
            endless.to_string().starts_with("t:1:1: header: expected a form feed"),
            "{endless}"
        );
    }
}
