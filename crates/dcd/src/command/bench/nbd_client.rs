//! The smallest NBD client that can measure: fixed newstyle, one request at a time.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::error::CommandError;

const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
/// Fixed newstyle, no zeroes after the handshake.
const CLIENT_FLAGS: u32 = 3;
const OPTION_GO: u32 = 7;
const OPTION_REPLY_ACK: u32 = 1;
const OPTION_REPLY_ERROR: u32 = 1 << 31;
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
    pub fn connect(socket: &Path) -> Result<NbdClient, CommandError> {
        NbdClient::handshake(socket).map_err(|source| CommandError::BenchDaemon { source })
    }

    fn handshake(socket: &Path) -> io::Result<NbdClient> {
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
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), CommandError> {
        self.ask(COMMAND_WRITE, offset, data)
    }

    /// Flushes and waits for the reply.
    pub fn flush(&mut self) -> Result<(), CommandError> {
        self.ask(COMMAND_FLUSH, 0, &[])
    }

    /// Says goodbye.
    pub fn disconnect(mut self) {
        let _ = self.send(COMMAND_DISCONNECT, 0, &[]);
    }

    fn ask(&mut self, command: u16, offset: u64, data: &[u8]) -> Result<(), CommandError> {
        let asked = self.send(command, offset, data).and_then(|()| {
            let mut reply = [0; 16];
            self.stream.read_exact(&mut reply)?;
            if word(&reply, 0) != REPLY_MAGIC || word(&reply, 4) != 0 {
                return Err(io::Error::other("the server reports an error"));
            }
            Ok(())
        });
        asked.map_err(|source| CommandError::BenchDaemon { source })
    }

    fn send(&mut self, command: u16, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut request = Vec::with_capacity(28 + data.len());
        request.extend(REQUEST_MAGIC.to_be_bytes());
        request.extend(0u16.to_be_bytes());
        request.extend(command.to_be_bytes());
        request.extend(self.next_cookie.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend((data.len() as u32).to_be_bytes());
        request.extend(data);
        self.next_cookie += 1;
        self.stream.write_all(&request)
    }
}

/// The big-endian word at a place that is there.
fn word(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_be_bytes(word)
}
