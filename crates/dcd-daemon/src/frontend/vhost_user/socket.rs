//! The socket of a front-end: whole messages with their file descriptors, without ever waiting.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::message::{DESCRIPTORS_MAX, HEADER_BYTES, Header, Message, MessageError};

/// Why nothing more is received or sent.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Not the protocol.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// More descriptors than any message brings. The kernel has closed those that had no room.
    #[error("more than {DESCRIPTORS_MAX} file descriptors with one message")]
    TooManyDescriptors,
    /// It ended within a message.
    #[error("the connection ended within a message")]
    Cut,
    /// Nobody takes the answers.
    #[error("the front-end does not take its replies")]
    Full,
    /// The system refused.
    #[error("cannot {operation}: {errno}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// Why not.
        errno: Errno,
    },
}

/// What has come.
#[derive(Debug)]
pub enum Received {
    /// A whole message.
    Message {
        /// Its first bytes.
        header: Header,
        /// What it says.
        message: Message,
        /// What it brings: as many as the message needs.
        descriptors: Vec<OwnedFd>,
    },
    /// Not all of one yet.
    Nothing,
    /// The other side has gone.
    Closed,
}

/// A connection.
#[derive(Debug)]
pub struct Socket {
    stream: UnixStream,
    head: [u8; HEADER_BYTES],
    header: Option<Header>,
    payload: Vec<u8>,
    /// Bytes of the head, or of the payload, that are there.
    filled: usize,
    descriptors: Vec<OwnedFd>,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Socket {
    /// A connection that has just been made.
    pub fn new(stream: UnixStream) -> Socket {
        let (head, payload) = ([0; HEADER_BYTES], Vec::new());
        Socket { stream, head, header: None, payload, filled: 0, descriptors: Vec::new() }
    }

    /// Receives what is there, up to the end of one message.
    pub fn receive(&mut self) -> Result<Received, SocketError> {
        loop {
            // 1. The head; descriptors come with its first byte.
            let Some(header) = self.header else {
                match self.receive_part()? {
                    Part::Whole => {
                        let header = Header::parse(&self.head)?;
                        self.payload = vec![0; header.size];
                        (self.header, self.filled) = (Some(header), 0);
                        continue;
                    }
                    Part::Nothing => return Ok(Received::Nothing),
                    Part::Closed if self.filled == 0 => return Ok(Received::Closed),
                    Part::Closed => return Err(SocketError::Cut),
                }
            };
            // 2. What follows.
            match self.receive_part()? {
                Part::Nothing => return Ok(Received::Nothing),
                Part::Closed => return Err(SocketError::Cut),
                Part::Whole => {}
            }
            let descriptors = std::mem::take(&mut self.descriptors);
            let message = Message::parse(header.request, &self.payload, descriptors.len())?;
            (self.header, self.filled) = (None, 0);
            return Ok(Received::Message { header, message, descriptors });
        }
    }

    /// Fills the head, or the payload, as far as there is something.
    fn receive_part(&mut self) -> Result<Part, SocketError> {
        loop {
            let bytes = match self.header {
                None => &mut self.head[..],
                Some(_) => &mut self.payload[..],
            };
            let Some(rest) = bytes.get_mut(self.filled..).filter(|rest| !rest.is_empty()) else {
                return Ok(Part::Whole);
            };
            let mut space =
                [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            let received = recvmsg(&self.stream, &mut [IoSliceMut::new(rest)], &mut control, flags);
            let received = match received {
                Err(Errno::AGAIN) => return Ok(Part::Nothing),
                Err(Errno::INTR) => continue,
                Err(Errno::CONNRESET) => return Ok(Part::Closed),
                Err(errno) => return Err(SocketError::System { operation: "receive", errno }),
                Ok(received) => received,
            };
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(rights) = message {
                    self.descriptors.extend(rights);
                }
            }
            let is_cut = received.flags.contains(ReturnFlags::CTRUNC);
            if is_cut || self.descriptors.len() > DESCRIPTORS_MAX {
                return Err(SocketError::TooManyDescriptors);
            }
            if received.bytes == 0 {
                return Ok(Part::Closed);
            }
            self.filled += received.bytes;
        }
    }

    /// Sends an answer, and a file with it.
    pub fn send(&self, bytes: &[u8], file: Option<BorrowedFd<'_>>) -> Result<(), SocketError> {
        send(&self.stream, bytes, file)
    }
}

enum Part {
    Whole,
    Nothing,
    Closed,
}

/// Sends on any socket. There is room for an answer, since each request is answered once and the
/// next is read after that.
pub fn send(
    socket: impl AsFd,
    bytes: &[u8],
    file: Option<BorrowedFd<'_>>,
) -> Result<(), SocketError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = file.as_slice();
    if !files.is_empty() {
        let has_room = control.push(SendAncillaryMessage::ScmRights(files));
        assert!(has_room, "there is room for one descriptor");
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    match sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags) {
        Ok(sent) if sent == bytes.len() => Ok(()),
        Ok(_) | Err(Errno::AGAIN) => Err(SocketError::Full),
        Err(errno) => Err(SocketError::System { operation: "send", errno }),
    }
}
