//! A small NBD client: fixed newstyle with NBD_OPT_GO, several requests in flight, errors as
//! values.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub const FUA: u16 = 1;
const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const ZEROES: u16 = 6;

/// Why a request was not done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The server said no.
    Errno(u32),
    /// The server is not there any more, or did not answer in time.
    Gone(String),
}

pub const EIO: Failure = Failure::Errno(5);
pub const ENOSPC: Failure = Failure::Errno(28);

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Gone(error.to_string())
    }
}

pub struct Client {
    stream: UnixStream,
    cookie: u64,
    pub size: u64,
    pub flags: u16,
}

impl Client {
    pub fn connect(socket: &Path) -> Client {
        Client::try_connect(socket).unwrap_or_else(|e| panic!("{}: {e:?}", socket.display()))
    }

    pub fn try_connect(socket: &Path) -> Result<Client, Failure> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        assert_eq!(greeting[..16], *b"NBDMAGICIHAVEOPT");
        let mut hello = vec![0, 0, 0, 3];
        hello.extend(b"IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0"); // NBD_OPT_GO, empty name
        stream.write_all(&hello)?;
        let (mut size, mut flags) = (None, 0);
        loop {
            let mut head = [0; 20];
            stream.read_exact(&mut head)?;
            let kind = u32::from_be_bytes(head[12..16].try_into().unwrap());
            let length = u32::from_be_bytes(head[16..].try_into().unwrap());
            let mut data = vec![0; length as usize];
            stream.read_exact(&mut data)?;
            match kind {
                1 => break,
                3 if data[..2] == [0, 0] => {
                    size = Some(u64::from_be_bytes(data[2..10].try_into().unwrap()));
                    flags = u16::from_be_bytes(data[10..12].try_into().unwrap());
                }
                3 => {}
                _ => return Err(Failure::Gone(format!("NBD_OPT_GO: {kind:#x}"))),
            }
        }
        Ok(Client { stream, cookie: 0, size: size.expect("NBD_INFO_EXPORT"), flags })
    }

    /// How long to wait for a reply.
    pub fn patience(&self, patience: Duration) {
        self.stream.set_read_timeout(Some(patience)).unwrap();
    }

    /// Sends a request and does not wait. Its cookie.
    pub fn send(
        &mut self,
        command: u16,
        flags: u16,
        offset: u64,
        length: usize,
        data: &[u8],
    ) -> Result<u64, Failure> {
        self.cookie += 1;
        let mut request = vec![0x25, 0x60, 0x95, 0x13];
        request.extend(flags.to_be_bytes());
        request.extend(command.to_be_bytes());
        request.extend(self.cookie.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(u32::try_from(length).unwrap().to_be_bytes());
        request.extend(data);
        self.stream.write_all(&request)?;
        Ok(self.cookie)
    }

    /// Sends data of a write that was begun without.
    pub fn send_rest(&mut self, data: &[u8]) {
        self.stream.write_all(data).unwrap();
    }

    /// The next reply without data: its cookie and result.
    pub fn reply(&mut self) -> Result<(u64, Result<(), u32>), Failure> {
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply)?;
        assert_eq!(reply[..4], [0x67, 0x44, 0x66, 0x98], "magic of a simple reply");
        let errno = u32::from_be_bytes(reply[4..8].try_into().unwrap());
        let cookie = u64::from_be_bytes(reply[8..].try_into().unwrap());
        Ok((cookie, if errno == 0 { Ok(()) } else { Err(errno) }))
    }

    fn ask(
        &mut self,
        command: u16,
        flags: u16,
        offset: u64,
        length: usize,
        data: &[u8],
    ) -> Result<(), Failure> {
        let cookie = self.send(command, flags, offset, length, data)?;
        let (replied, result) = self.reply()?;
        assert_eq!(replied, cookie);
        result.map_err(Failure::Errno)
    }

    pub fn read(&mut self, offset: u64, length: usize) -> Result<Vec<u8>, Failure> {
        self.ask(READ, 0, offset, length, &[])?;
        self.data(length)
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), Failure> {
        self.ask(WRITE, 0, offset, data.len(), data)
    }

    pub fn write_fua(&mut self, offset: u64, data: &[u8]) -> Result<(), Failure> {
        self.ask(WRITE, FUA, offset, data.len(), data)
    }

    pub fn flush(&mut self) -> Result<(), Failure> {
        self.ask(FLUSH, 0, 0, 0, &[])
    }

    pub fn trim(&mut self, offset: u64, length: usize) -> Result<(), Failure> {
        self.ask(TRIM, 0, offset, length, &[])
    }

    pub fn zeroes(&mut self, offset: u64, length: usize) -> Result<(), Failure> {
        self.ask(ZEROES, 0, offset, length, &[])
    }

    /// Sends a read and does not wait. Its reply is followed by [`Client::data`].
    pub fn send_read(&mut self, offset: u64, length: usize) -> Result<u64, Failure> {
        self.send(READ, 0, offset, length, &[])
    }

    /// What follows the reply to a read.
    pub fn data(&mut self, length: usize) -> Result<Vec<u8>, Failure> {
        let mut data = vec![0; length];
        self.stream.read_exact(&mut data)?;
        Ok(data)
    }

    pub fn send_write(&mut self, offset: u64, data: &[u8], fua: bool) -> Result<u64, Failure> {
        self.send(WRITE, u16::from(fua) * FUA, offset, data.len(), data)
    }

    pub fn send_zeroes(&mut self, offset: u64, length: usize, fua: bool) -> Result<u64, Failure> {
        self.send(ZEROES, u16::from(fua) * FUA, offset, length, &[])
    }

    pub fn send_trim(&mut self, offset: u64, length: usize, fua: bool) -> Result<u64, Failure> {
        self.send(TRIM, u16::from(fua) * FUA, offset, length, &[])
    }

    pub fn send_flush(&mut self) -> Result<u64, Failure> {
        self.send(FLUSH, 0, 0, 0, &[])
    }

    /// The whole volume.
    pub fn read_all(&mut self) -> Result<Vec<u8>, Failure> {
        let mut all = Vec::with_capacity(self.size as usize);
        while (all.len() as u64) < self.size {
            let rest = self.size - all.len() as u64;
            all.extend(self.read(all.len() as u64, rest.min(1 << 20) as usize)?);
        }
        Ok(all)
    }

    /// Sends one request of a load and does not wait.
    pub fn send_op(&mut self, op: &super::model::Op) -> Result<u64, Failure> {
        use super::model::Op;
        match op {
            Op::Write { offset, data, fua } => {
                self.send(WRITE, if *fua { FUA } else { 0 }, *offset, data.len(), data)
            }
            Op::Trim { offset, length } => self.send(TRIM, 0, *offset, *length, &[]),
            Op::Zeroes { offset, length } => self.send(ZEROES, 0, *offset, *length, &[]),
            Op::Flush => self.send(FLUSH, 0, 0, 0, &[]),
        }
    }

    /// Waits until one of these ends well, which is on the disk then.
    pub fn one_of(&mut self, waiting: &mut Vec<(u64, super::model::Op)>, disk: &mut [u8]) {
        let (cookie, result) = self.reply().unwrap();
        result.unwrap();
        let at = waiting.iter().position(|(it, _)| *it == cookie).unwrap();
        waiting.remove(at).1.apply(disk);
    }

    /// Does one request of a load.
    pub fn do_op(&mut self, op: &super::model::Op) -> Result<(), Failure> {
        let cookie = self.send_op(op)?;
        let (replied, result) = self.reply()?;
        assert_eq!(replied, cookie);
        result.map_err(Failure::Errno)
    }
}
