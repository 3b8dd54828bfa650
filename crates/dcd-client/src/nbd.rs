//! The smallest NBD client that can measure and keep data: fixed newstyle, simple replies; requests
//! one at a time, or sent and received by two threads, or many before the first reply is received.

use std::io::{self, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::control::ControlConnection;
use crate::server::{PATIENCE, Until, connect_patiently};

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
/// Replies to an option that are listened to: a server tells a few facts about its export.
const OPTION_REPLIES_MAX: usize = 64;
/// A server takes so long for a request at most, if nobody can be asked whether it lives: longer
/// than requests to disks are waited for anywhere.
const REQUEST_PATIENCE: Duration = Duration::from_secs(120);

/// A connection.
pub struct NbdClient {
    stream: UnixStream,
    next_cookie: u64,
    size_bytes: u64,
    is_read_only: bool,
    life: SignsOfLife,
}

/// Where a server that has not answered for long is asked whether it lives.
#[derive(Clone, Default)]
struct SignsOfLife {
    control: Option<PathBuf>,
}

impl SignsOfLife {
    /// Whether to go on waiting for a server from which nothing has come since then.
    fn are_there(&self, since: Instant) -> bool {
        match &self.control {
            // A disk may need long; a daemon that answers here gives it up by itself.
            Some(control) => {
                ControlConnection::connect(control).is_ok_and(|mut control| control.ping().is_ok())
            }
            None => since.elapsed() < REQUEST_PATIENCE,
        }
    }
}

impl NbdClient {
    /// Connects to the export with the empty name.
    pub fn connect(socket: &Path) -> io::Result<NbdClient> {
        NbdClient::on(connect_patiently(socket, PATIENCE)?)
    }

    /// From now on the control socket of the same daemon is asked whether it lives, when it has not
    /// answered for long.
    pub(crate) fn with_control(self, control: &Path) -> NbdClient {
        NbdClient { life: SignsOfLife { control: Some(control.to_owned()) }, ..self }
    }

    /// Agrees on the export with the empty name, on this connection.
    pub fn on(mut stream: UnixStream) -> io::Result<NbdClient> {
        // All of it together: a server may answer an option for ever.
        let deadline = Instant::now() + PATIENCE;
        // What comes behind the last reply is an answer to nothing.
        let mut buffered = BufReader::with_capacity(512, stream.try_clone()?);
        let mut reader = Until::new(&mut buffered, deadline);
        // NBDMAGIC, IHAVEOPT, flags.
        let mut greeting = [0; 18];
        reader.read_exact(&mut greeting)?;
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
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(&hello).map_err(timed_out)?;
        let (mut size_bytes, mut is_read_only) = (0, false);
        for _ in 0..OPTION_REPLIES_MAX {
            let mut header = [0; 20];
            reader.read_exact(&mut header)?;
            let (reply, length) = (word(&header, 12), word(&header, 16));
            let is_reply = header[..8] == OPTION_REPLY_MAGIC.to_be_bytes();
            if !is_reply || reply & OPTION_REPLY_ERROR != 0 || length > OPTION_REPLY_BYTES_MAX {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let mut text = vec![0; length as usize];
            reader.read_exact(&mut text)?;
            if reply == OPTION_REPLY_INFO
                && text.len() >= 12
                && text[..2] == INFO_EXPORT.to_be_bytes()
            {
                size_bytes = u64::from(word(&text, 2)) << 32 | u64::from(word(&text, 6));
                is_read_only = u16::from_be_bytes([text[10], text[11]]) & EXPORT_READ_ONLY != 0;
            }
            if reply == OPTION_REPLY_ACK {
                if !buffered.buffer().is_empty() {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "the server answers more than it was asked",
                    ));
                }
                stream.set_read_timeout(Some(PATIENCE))?;
                let life = SignsOfLife::default();
                return Ok(NbdClient { stream, next_cookie: 0, size_bytes, is_read_only, life });
            }
        }
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("the server answers a question more than {OPTION_REPLIES_MAX} times"),
        ))
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
        Ok(NbdReceiver { stream: self.stream.try_clone()?, life: self.life.clone() })
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
        let (mut left, mut since) = (&request[..], Instant::now());
        while !left.is_empty() {
            match self.stream.write(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => (left, since) = (&left[count..], Instant::now()),
                Err(error) => go_on(&self.life, since, error)?,
            }
        }
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
    life: SignsOfLife,
}

/// Whether an attempt to send or receive is to be repeated; the error if not.
fn go_on(life: &SignsOfLife, since: Instant, error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::Interrupted => Ok(()),
        io::ErrorKind::WouldBlock if life.are_there(since) => Ok(()),
        _ => Err(timed_out(error)),
    }
}

/// What the kernel says of a socket whose time is over, in our words.
fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

impl NbdReceiver {
    /// Waits for the next reply and returns its cookie. `length` tells how much data comes with it.
    pub fn receive(&mut self, length: impl FnOnce(u64) -> u32) -> io::Result<u64> {
        let NbdReply { cookie, error } = self.receive_reply()?;
        if error != 0 {
            return Err(io::Error::other("the server reports an error"));
        }
        let mut length = length(cookie) as usize;
        let mut scratch = [0; 16 << 10];
        while length > 0 {
            let part = length.min(scratch.len());
            self.fill(&mut scratch[..part])?;
            length -= part;
        }
        Ok(cookie)
    }

    /// Reads so many bytes, for as long as the server lives.
    fn fill(&mut self, mut place: &mut [u8]) -> io::Result<()> {
        let mut since = Instant::now();
        while !place.is_empty() {
            match self.stream.read(place) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => (place, since) = (&mut place[count..], Instant::now()),
                Err(error) => go_on(&self.life, since, error)?,
            }
        }
        Ok(())
    }

    /// Waits for the next reply. The data of a read that succeeded comes behind it:
    /// [`NbdReceiver::receive_data`].
    pub fn receive_reply(&mut self) -> io::Result<NbdReply> {
        let mut reply = [0; 16];
        self.fill(&mut reply)?;
        if word(&reply, 0) != REPLY_MAGIC {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "no NBD reply"));
        }
        let cookie = u64::from(word(&reply, 8)) << 32 | u64::from(word(&reply, 12));
        Ok(NbdReply { cookie, error: word(&reply, 4) })
    }

    /// Fills `data` with what was read.
    pub fn receive_data(&mut self, data: &mut [u8]) -> io::Result<()> {
        self.fill(data)
    }
}

/// The big-endian word at a place that is there.
fn word(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_be_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that greets and then says this again and again.
    fn hostile(say: Vec<u8>, pause: Duration) -> UnixStream {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        std::thread::spawn(move || {
            let mut greeting = b"NBDMAGICIHAVEOPT".to_vec();
            greeting.extend([0, 3]);
            let mut alive = theirs.write_all(&greeting).is_ok();
            while alive {
                alive = theirs.write_all(&say).is_ok();
                std::thread::sleep(pause);
            }
        });
        ours
    }

    fn option_reply(reply: u32, text: &[u8]) -> Vec<u8> {
        let mut bytes = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
        bytes.extend(OPTION_GO.to_be_bytes());
        bytes.extend(reply.to_be_bytes());
        bytes.extend((text.len() as u32).to_be_bytes());
        bytes.extend(text);
        bytes
    }

    #[test]
    fn a_server_that_answers_an_option_for_ever_is_given_up() {
        for text in [&[][..], &[0; 4096]] {
            let server = hostile(option_reply(OPTION_REPLY_INFO, text), Duration::ZERO);
            let error = NbdClient::on(server).err().expect("no end of it");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        }
    }

    #[test]
    fn a_server_that_drips_is_given_up() {
        let began = Instant::now();
        let server = hostile(option_reply(OPTION_REPLY_INFO, &[]), Duration::from_secs(1));
        let error = NbdClient::on(server).err().expect("no end of it");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        assert!(began.elapsed() < 2 * PATIENCE);
    }
}
