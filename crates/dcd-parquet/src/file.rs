//! A file that is read in several places at once: each column has its own. What a damaged file says
//! of sizes is checked before memory is taken for it.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};

#[derive(Clone)]
pub(crate) struct SharedFile {
    file: Arc<File>,
    size_bytes: u64,
}

impl SharedFile {
    pub fn new(file: File) -> io::Result<SharedFile> {
        let size_bytes = file.metadata()?.len();
        Ok(SharedFile { file: Arc::new(file), size_bytes })
    }
}

impl Length for SharedFile {
    fn len(&self) -> u64 {
        self.size_bytes
    }
}

impl ChunkReader for SharedFile {
    type T = io::BufReader<Place>;

    fn get_read(&self, start: u64) -> Result<io::BufReader<Place>> {
        Ok(io::BufReader::new(Place { file: self.file.clone(), at: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let end = start.checked_add(length as u64);
        if end.is_none_or(|end| end > self.size_bytes) {
            let problem = format!(
                "expected {length} bytes at {start}, but the file has {} bytes",
                self.size_bytes
            );
            return Err(ParquetError::EOF(problem));
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, start)?;
        Ok(bytes.into())
    }
}

/// A place in the file, with a position of its own.
pub(crate) struct Place {
    file: Arc<File>,
    at: u64,
}

impl Read for Place {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
