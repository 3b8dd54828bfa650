//! One connection on the event loop: requests on their way out, replies on their way in. It waits
//! for nothing: what the kernel does not take now is sent when it says that there is room.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use dcd_engine::IoId;
use dcd_protocol::nbd::replies::ReplyReader;
use dcd_protocol::nbd::wire::{RequestHeader, command};
use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, send, sendmsg, shutdown,
};
use zerocopy::IntoBytes;

use crate::device::network::request_header;

/// Most pieces of one system call.
const SLICES_MAX: usize = 64;

/// Something to send.
enum Piece {
    Header {
        bytes: [u8; size_of::<RequestHeader>()],
        sent: usize,
    },
    /// These bytes of the data of an I/O.
    Data {
        id: IoId,
        bytes: Range<usize>,
    },
}

/// See the module.
pub(super) struct Line {
    /// Names it in the ring.
    pub(super) serial: u64,
    pub(super) socket: Rc<OwnedFd>,
    pub(super) reader: ReplyReader,
    pieces: VecDeque<Piece>,
    /// The kernel is asked to say when there is room.
    pub(super) waits_for_room: bool,
    /// Bytes that are asked for or given, and not answered.
    pub(super) under_way_bytes: u64,
}

impl Line {
    pub(super) fn new(serial: u64, socket: OwnedFd, structured: bool) -> Line {
        Line {
            serial,
            socket: Rc::new(socket),
            reader: ReplyReader::new(structured),
            pieces: VecDeque::new(),
            waits_for_room: false,
            under_way_bytes: 0,
        }
    }

    /// Queues a request, with the bytes of the I/O that follow it.
    pub(super) fn push(&mut self, header: &RequestHeader, data: Option<(IoId, Range<usize>)>) {
        let mut bytes = [0; size_of::<RequestHeader>()];
        bytes.copy_from_slice(header.as_bytes());
        self.pieces.push_back(Piece::Header { bytes, sent: 0 });
        if let Some((id, bytes)) = data {
            self.pieces.push_back(Piece::Data { id, bytes });
        }
    }

    /// Sends what the kernel takes. Whether there is more, which waits for room.
    pub(super) fn send<'d>(&mut self, data: impl Fn(IoId) -> &'d [u8]) -> Result<bool, Errno> {
        while !self.pieces.is_empty() {
            let slices: Vec<IoSlice<'_>> = self
                .pieces
                .iter()
                .take(SLICES_MAX)
                .map(|piece| match piece {
                    Piece::Header { bytes, sent } => IoSlice::new(&bytes[*sent..]),
                    Piece::Data { id, bytes } => IoSlice::new(&data(*id)[bytes.clone()]),
                })
                .collect();
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match sendmsg(&*self.socket, &slices, &mut SendAncillaryBuffer::default(), flags) {
                Ok(count) => self.sent(count),
                Err(Errno::AGAIN) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(false)
    }

    fn sent(&mut self, mut count: usize) {
        while count > 0 {
            let piece = self.pieces.front_mut().expect("no more is sent than was queued");
            let left = match piece {
                Piece::Header { bytes, sent } => {
                    let now = count.min(bytes.len() - *sent);
                    *sent += now;
                    count -= now;
                    bytes.len() - *sent
                }
                Piece::Data { bytes, .. } => {
                    let now = count.min(bytes.len());
                    bytes.start += now;
                    count -= now;
                    bytes.len()
                }
            };
            if left == 0 {
                self.pieces.pop_front();
            }
        }
    }

    /// What has come; `None`: nothing more for now.
    pub(super) fn receive(&self, bytes: &mut [u8]) -> Result<Option<usize>, Errno> {
        loop {
            match recv(&*self.socket, &mut *bytes, RecvFlags::DONTWAIT) {
                // It has closed.
                Ok((0, _)) => return Err(Errno::CONNRESET),
                Ok((count, _)) => return Ok(Some(count)),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.pieces.is_empty() {
            let goodbye = request_header(command::DISC, 0, 0, 0, 0);
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let _ = send(&*self.socket, goodbye.as_bytes(), flags);
        }
        // The ring may have it yet, and lets it go when it sees that it has ended.
        let _ = shutdown(&*self.socket, Shutdown::Both);
    }
}
