//! A small NBD client for tests: one request at a time over a unix socket.

#![allow(dead_code)]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

pub struct Nbd {
    stream: UnixStream,
    /// The transmission flags of the export.
    flags: u16,
}

impl Nbd {
    /// Connects to the export with the empty name (NBD_OPT_EXPORT_NAME, flags: no zeroes).
    pub fn connect(socket: &Path) -> Nbd {
        let mut stream = UnixStream::connect(socket).unwrap();
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).unwrap();
        assert_eq!(greeting[..16], *b"NBDMAGICIHAVEOPT");
        let mut hello = vec![0, 0, 0, 3];
        hello.extend(b"IHAVEOPT");
        hello.extend([0, 0, 0, 1, 0, 0, 0, 0]);
        stream.write_all(&hello).unwrap();
        let mut export = [0; 10];
        stream.read_exact(&mut export).unwrap();
        Nbd { stream, flags: u16::from_be_bytes([export[8], export[9]]) }
    }

    /// Whether the export was called read-only (NBD_FLAG_READ_ONLY).
    pub fn is_read_only(&self) -> bool {
        self.flags & 2 != 0
    }

    fn ask(&mut self, command: u8, offset: u64, length: usize, data: &[u8]) -> u32 {
        let mut request = vec![0x25, 0x60, 0x95, 0x13, 0, 0, 0, command];
        request.extend([7; 8]);
        request.extend(offset.to_be_bytes());
        request.extend((length as u32).to_be_bytes());
        request.extend(data);
        self.stream.write_all(&request).unwrap();
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply[..4], [0x67, 0x44, 0x66, 0x98]);
        u32::from_be_bytes(reply[4..8].try_into().unwrap())
    }

    /// Error number of the reply, 0 if all is well.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> u32 {
        self.ask(1, offset, data.len(), data)
    }

    pub fn write_zeroes(&mut self, offset: u64, length: usize) -> u32 {
        self.ask(6, offset, length, &[])
    }

    pub fn flush(&mut self) -> u32 {
        self.ask(3, 0, 0, &[])
    }

    pub fn read(&mut self, offset: u64, length: usize) -> Result<Vec<u8>, u32> {
        match self.ask(0, offset, length, &[]) {
            0 => {
                let mut data = vec![0; length];
                self.stream.read_exact(&mut data).unwrap();
                Ok(data)
            }
            error => Err(error),
        }
    }
}
