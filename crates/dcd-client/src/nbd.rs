//! The smallest NBD client that can measure and keep data: fixed newstyle, simple replies; requests one at a time, or
//! sent and received by two threads, or many before the first reply is received.

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
const OPTION_REPLY_INFO: u32 = 3;
const OPTION_REPLY_ERROR: u32 = 1 << 31;
/// In a reply with information: size and flags of the export.
const INFO_EXPORT: u16 = 0;
/// The command is done when it is durable.
const FLAG_FUA: u16 = 1;
/// Zeroes are to be written, not space to be freed.
const FLAG_NO_HOLE: u16 = 2;
const COMMAND_READ: u16 = 0;
const COMMAND_WRITE: u16 = 1;
const COMMAND_DISCONNECT: u16 = 2;
const COMMAND_FLUSH: u16 = 3;
const COMMAND_TRIM: u16 = 4;
const COMMAND_WRITE_ZEROES: u16 = 6;
/// A flag of an export: it takes no writes.
const EXPORT_READ_ONLY: u16 = 1 << 1;
/// Longest reply to an option that is listened to.
const OPTION_REPLY_BYTES_MAX: u32 = 4096;

/// A connection.
pub struct NbdClient {
    stream: UnixStream,
    next_cookie: u64,
    size_bytes: u64,
    is_read_only: bool,
}

impl NbdClient {
    /// Connects to the export with the empty name.
    pub fn connect(socket: &Path) -> io::Result<NbdClient> {
        let mut stream = UnixStream::connect(socket)?;
        // NBDMAGIC, IHAVEOPT, flags.
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        if greeting[..8] != *b"NBDMAGIC" {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no NBD server"));
        }
        let mut hello = Vec::new();
        hello.extend(CLIENT_FLAGS.to_be_bytes());
        hello.extend(OPTION_MAGIC.to_be_bytes());
        hello.extend(OPTION_GO.to_be_bytes());
        // Six bytes: an empty name, no information asked for.
        hello.extend(6u32.to_be_bytes());
        hello.extend([0; 6]);
        stream.write_all(&hello)?;
        let (mut size_bytes, mut is_read_only) = (0, false);
        loop {
            let mut header = [0; 20];
            stream.read_exact(&mut header)?;
            let (reply, length) = (word(&header, 12), word(&header, 16));
            let is_reply = header[..8] == OPTION_REPLY_MAGIC.to_be_bytes();
            if !is_reply || reply & OPTION_REPLY_ERROR != 0 || length > OPTION_REPLY_BYTES_MAX {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let mut text = vec![0; length as usize];
            stream.read_exact(&mut text)?;
            if reply == OPTION_REPLY_INFO
                && text.len() >= 12
                && text[..2] == INFO_EXPORT.to_be_bytes()
            {
                size_bytes = u64::from(word(&text, 2)) << 32 | u64::from(word(&text, 6));
                is_read_only = u16::from_be_bytes([text[10], text[11]]) & EXPORT_READ_ONLY != 0;
            }
            if reply == OPTION_REPLY_ACK {
                return Ok(NbdClient { stream, next_cookie: 0, size_bytes, is_read_only });
            }
        }
    }

    /// Size of the export.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Whether it takes no writes.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
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
        let with_fua = |fua: bool| if fua { FLAG_FUA } else { 0 };
        match request {
            NbdRequest::Read { offset, length } => {
                self.send_command(COMMAND_READ, 0, offset, length, &[])
            }
            NbdRequest::Write { offset, data, fua } => {
                let length = u32::try_from(data.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
                self.send_command(COMMAND_WRITE, with_fua(fua), offset, length, data)
            }
            NbdRequest::Flush => self.send_command(COMMAND_FLUSH, 0, 0, 0, &[]),
            NbdRequest::Trim { offset, length, fua } => {
                self.send_command(COMMAND_TRIM, with_fua(fua), offset, length, &[])
            }
            NbdRequest::WriteZeroes { offset, length, may_unmap, fua } => {
                let flags = with_fua(fua) | if may_unmap { 0 } else { FLAG_NO_HOLE };
                self.send_command(COMMAND_WRITE_ZEROES, flags, offset, length, &[])
            }
        }
    }

    /// Sends a request and waits for its reply; for requests that bring no data.
    pub fn ask(&mut self, request: NbdRequest<'_>) -> io::Result<()> {
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
    /// What is there is not wanted any more.
    Trim {
        /// In bytes.
        offset: u64,
        /// In bytes.
        length: u32,
        /// Done when it is durable.
        fua: bool,
    },
    /// It reads as zeroes from now on.
    WriteZeroes {
        /// In bytes.
        offset: u64,
        /// In bytes.
        length: u32,
        /// Whether the disk may free the space.
        may_unmap: bool,
        /// Done when it is durable.
        fua: bool,
    },
}

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NbdReply {
    /// Which request.
    pub cookie: u64,
    /// 0, or the number of an error of the protocol, which is that of Linux.
    pub error: u32,
}

/// The half of a connection that receives.
pub struct NbdReceiver {
    stream: UnixStream,
}

impl NbdReceiver {
    /// Waits for the next reply and returns its cookie. `length` tells how much data comes with it.
    pub fn receive(&mut self, length: impl FnOnce(u64) -> u32) -> io::Result<u64> {
        let NbdReply { cookie, error } = self.receive_reply()?;
        if error != 0 {
            return Err(io::Error::other("the server reports an error"));
        }
        let length = u64::from(length(cookie));
        let copied = io::copy(&mut (&mut self.stream).take(length), &mut io::sink())?;
        if copied < length { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(cookie) }
    }

    /// Waits for the next reply. The data of a read that succeeded comes behind it: [`NbdReceiver::receive_data`].
    pub fn receive_reply(&mut self) -> io::Result<NbdReply> {
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply)?;
        if word(&reply, 0) != REPLY_MAGIC {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "no NBD reply"));
        }
        let cookie = u64::from(word(&reply, 8)) << 32 | u64::from(word(&reply, 12));
        Ok(NbdReply { cookie, error: word(&reply, 4) })
    }

    /// Fills `data` with what was read.
    pub fn receive_data(&mut self, data: &mut [u8]) -> io::Result<()> {
        self.stream.read_exact(data)
    }
}

/// The big-endian word at a place that is there.
fn word(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_be_bytes(word)
}
