//! Writes requests as the project's CSV: `t_us,op,dev,off,len,fl,lat_us`. What is read again is the
//! same, to the nanosecond.

use std::io::{self, Write};

use super::{Operation, Request};

/// Writes requests as CSV.
pub struct CsvWriter<W> {
    out: W,
}

impl<W: Write> CsvWriter<W> {
    /// Writes the first line.
    ///
    /// # Errors
    /// When `out` has one.
    pub fn new(mut out: W) -> io::Result<CsvWriter<W>> {
        out.write_all(b"t_us,op,dev,off,len,fl,lat_us\n")?;
        Ok(CsvWriter { out })
    }

    /// Goes on behind what was written before.
    pub fn after(out: W) -> CsvWriter<W> {
        CsvWriter { out }
    }

    /// Writes a request.
    ///
    /// # Errors
    /// When the output has one.
    pub fn write(&mut self, request: &Request) -> io::Result<()> {
        let operation = match request.operation {
            Operation::Read => 'R',
            Operation::Write => 'W',
            Operation::Discard => 'D',
            Operation::Flush => 'F',
        };
        self.time(request.time_ns)?;
        let Request { device, offset_bytes, size_bytes, flags, .. } = request;
        write!(self.out, ",{operation},{device},{offset_bytes},{size_bytes},{},", flags.0)?;
        if let Some(latency_ns) = request.latency_ns {
            self.time(latency_ns)?;
        }
        self.out.write_all(b"\n")
    }

    /// The output, complete.
    ///
    /// # Errors
    /// When the output has one.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    /// Microseconds, with a fraction where there is one.
    fn time(&mut self, time_ns: u64) -> io::Result<()> {
        let (whole, fraction) = (time_ns / 1000, time_ns % 1000);
        if fraction == 0 {
            return write!(self.out, "{whole}");
        }
        let text = format!("{whole}.{fraction:03}");
        self.out.write_all(text.trim_end_matches('0').as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::trace::reader_tests::read_bytes;
    use crate::trace::{Flags, SIZE_BYTES_MAX};

    fn request() -> impl Strategy<Value = Request> {
        let operation = prop_oneof![
            Just(Operation::Read),
            Just(Operation::Write),
            Just(Operation::Discard),
            Just(Operation::Flush)
        ];
        let range = (0..u64::MAX - SIZE_BYTES_MAX, 0..=SIZE_BYTES_MAX);
        let rest = (0..=Flags::ALL.0, proptest::option::of(any::<u64>()));
        (0..1u64 << 60, operation, any::<u32>(), range, rest).prop_map(
            |(time_ns, operation, device, (offset_bytes, size_bytes), (flags, latency_ns))| {
                Request {
                    time_ns,
                    operation,
                    device,
                    offset_bytes,
                    size_bytes,
                    flags: Flags(flags),
                    latency_ns,
                    line: 0,
                    column: 0,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(mut requests in proptest::collection::vec(request(), 0..50)) {
            requests.sort_by_key(|request| request.time_ns);
            let first_ns = requests.first().map_or(0, |request| request.time_ns);
            requests.iter_mut().for_each(|request| request.time_ns -= first_ns);
            let mut writer = CsvWriter::new(Vec::new()).unwrap();
            requests.iter().for_each(|request| writer.write(request).unwrap());
            let (_, read) = read_bytes(writer.finish().unwrap(), None).unwrap();
            let placeless = |request: &Request| Request { line: 0, column: 0, ..*request };
            prop_assert_eq!(read.iter().map(placeless).collect::<Vec<_>>(), requests);
        }
    }
}
