//! The smallest NBD client that can measure: fixed newstyle, simple replies; requests one at a time, or sent and
//! received by two threads.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
/// Fixed newstyle, no zeroes after the handshake.
const CLIENT_FLAGS: u32 = 3;
const OPTION_GO: u32 = 7;
const OPTION_REPLY_ACK: u32 = 1;
const OPTION_REPLY_ERROR: u32 = 1 << 31;
/// The command is done when it is durable.
const FLAG_FUA: u16 = 1;
const COMMAND_READ: u16 = 0;
const COMMAND_WRITE: u16 = 1;
const COMMAND_DISCONNECT: u16 = 2;
const COMMAND_FLUSH: u16 = 3;

/// A connection.
pub struct NbdClient {
    stream: UnixStream,
    next_cookie: u64,
}

impl NbdClient {
    /// Connects to the export with the empty name.
    pub fn connect(socket: &Path) -> io::Result<NbdClient> {
        let mut stream = UnixStream::connect(socket)?;
        // NBDMAGIC, IHAVEOPT, flags.
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        let mut hello = Vec::new();
        hello.extend(CLIENT_FLAGS.to_be_bytes());
        hello.extend(OPTION_MAGIC.to_be_bytes());
        hello.extend(OPTION_GO.to_be_bytes());
        // Six bytes: an empty name, no information asked for.
        hello.extend(6u32.to_be_bytes());
        hello.extend([0; 6]);
        stream.write_all(&hello)?;
        loop {
            let mut header = [0; 20];
            stream.read_exact(&mut header)?;
            let (reply, length) = (word(&header, 12), word(&header, 16));
            let is_reply = header[..8] == OPTION_REPLY_MAGIC.to_be_bytes();
            if !is_reply || reply & OPTION_REPLY_ERROR != 0 {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            io::copy(&mut (&mut stream).take(length.into()), &mut io::sink())?;
            if reply == OPTION_REPLY_ACK {
                return Ok(NbdClient { stream, next_cookie: 0 });
            }
        }
    }

    /// Writes and waits for the reply.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.ask(NbdRequest::Write { offset, data, fua: false })
    }

    /// Flushes and waits for the reply.
    pub fn flush(&mut self) -> io::Result<()> {
        self.ask(NbdRequest::Flush)
    }

    /// Says goodbye.
    pub fn disconnect(mut self) {
        let _ = self.send_command(COMMAND_DISCONNECT, 0, 0, 0, &[]);
    }

    /// The half that receives, for another thread.
    pub fn receiver(&self) -> io::Result<NbdReceiver> {
        Ok(NbdReceiver { stream: self.stream.try_clone()? })
    }

    /// Sends a request and does not wait; returns its cookie, which is one more with each.
    pub fn send(&mut self, request: NbdRequest<'_>) -> io::Result<u64> {
        match request {
            NbdRequest::Read { offset, length } => {
                self.send_command(COMMAND_READ, 0, offset, length, &[])
            }
            NbdRequest::Write { offset, data, fua } => {
                let flags = if fua { FLAG_FUA } else { 0 };
                self.send_command(COMMAND_WRITE, flags, offset, data.len() as u32, data)
            }
            NbdRequest::Flush => self.send_command(COMMAND_FLUSH, 0, 0, 0, &[]),
        }
    }

    fn ask(&mut self, request: NbdRequest<'_>) -> io::Result<()> {
        self.send(request)?;
        self.receiver()?.receive(|_| 0).map(|_| ())
    }

    fn send_command(
        &mut self,
        command: u16,
        flags: u16,
        offset: u64,
        length: u32,
        data: &[u8],
    ) -> io::Result<u64> {
        let cookie = self.next_cookie;
        let mut request = Vec::with_capacity(28 + data.len());
        request.extend(REQUEST_MAGIC.to_be_bytes());
        request.extend(flags.to_be_bytes());
        request.extend(command.to_be_bytes());
        request.extend(cookie.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(length.to_be_bytes());
        request.extend(data);
        self.next_cookie += 1;
        self.stream.write_all(&request)?;
        Ok(cookie)
    }
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub enum NbdRequest<'a> {
    /// Data from the disk.
    Read {
        /// In bytes.
        offset: u64,
        /// In bytes.
        length: u32,
    },
    /// Data to the disk.
    Write {
        /// In bytes.
        offset: u64,
        /// The data.
        data: &'a [u8],
        /// Done when it is durable.
        fua: bool,
    },
    /// All that is done becomes durable.
    Flush,
}

/// The half of a connection that receives.
pub struct NbdReceiver {
    stream: UnixStream,
}

impl NbdReceiver {
    /// Waits for the next reply and returns its cookie. `length` tells how much data comes with it.
    pub fn receive(&mut self, length: impl FnOnce(u64) -> u32) -> io::Result<u64> {
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply)?;
        if word(&reply, 0) != REPLY_MAGIC || word(&reply, 4) != 0 {
            return Err(io::Error::other("the server reports an error"));
        }
        let cookie = u64::from(word(&reply, 8)) << 32 | u64::from(word(&reply, 12));
        let length = u64::from(length(cookie));
        let copied = io::copy(&mut (&mut self.stream).take(length), &mut io::sink())?;
        if copied < length { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(cookie) }
    }
}

/// The big-endian word at a place that is there.
fn word(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_be_bytes(word)
}
