//! Writes requests as Parquet; what is read again is the same.

use std::io::Write;

use dcd_parquet::{Error, Row, TraceWriter};

use super::{Operation, Request};

/// Writes requests as Parquet.
pub struct ParquetWriter<W: Write + Send>(TraceWriter<W>);

impl<W: Write + Send> ParquetWriter<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// When `out` has one.
    pub fn new(out: W) -> Result<ParquetWriter<W>, Error> {
        TraceWriter::new(out).map(ParquetWriter)
    }

    /// Writes a request.
    ///
    /// # Errors
    /// When the output has one.
    pub fn write(&mut self, request: &Request) -> Result<(), Error> {
        self.0.write(Row {
            time_ns: request.time_ns,
            operation: match request.operation {
                Operation::Read => b'R',
                Operation::Write => b'W',
                Operation::Discard => b'D',
                Operation::Flush => b'F',
            },
            device: request.device,
            offset_bytes: request.offset_bytes,
            size_bytes: request.size_bytes,
            flags: request.flags.0,
            latency_ns: request.latency_ns,
        })
    }

    /// The output, complete.
    ///
    /// # Errors
    /// When the output has one.
    pub fn finish(self) -> Result<W, Error> {
        self.0.finish()
    }
}
