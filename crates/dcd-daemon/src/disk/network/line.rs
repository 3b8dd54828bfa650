//! One connection on the event loop: requests on their way out, replies on their way in. It waits
//! for nothing: what the kernel does not take now is sent when it says that there is room.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::ops::Range;

use dcd_engine::IoId;
use dcd_protocol::nbd::replies::ReplyReader;
use dcd_protocol::nbd::wire::{RequestHeader, command};
use zerocopy::IntoBytes;

use crate::device::network::{Channel, request_header};

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
    pub(super) channel: Channel,
    pub(super) reader: ReplyReader,
    pieces: VecDeque<Piece>,
    /// The kernel is asked to say when there is room.
    pub(super) waits_for_room: bool,
    /// Bytes that are asked for or given, and not answered.
    pub(super) under_way_bytes: u64,
}

impl Line {
    pub(super) fn new(serial: u64, channel: Channel, structured: bool) -> Line {
        Line {
            serial,
            channel,
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
    pub(super) fn send<'d>(&mut self, data: impl Fn(IoId) -> &'d [u8]) -> io::Result<bool> {
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
            match self.channel.send(&slices) {
                Ok(count) => self.sent(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        match self.channel.send_rest() {
            Ok(()) => Ok(false),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(true),
            Err(error) => Err(error),
        }
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
    pub(super) fn receive(&mut self, bytes: &mut [u8]) -> io::Result<Option<usize>> {
        match self.channel.receive(bytes) {
            Ok(0) => Err(io::Error::new(ErrorKind::UnexpectedEof, "the server has closed it")),
            Ok(count) => Ok(Some(count)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                Err(io::Error::other(format!("TLS: {error}")))
            }
            Err(error) => Err(error),
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let goodbye = request_header(command::DISC, 0, 0, 0, 0);
        self.channel.close(if self.pieces.is_empty() { goodbye.as_bytes() } else { &[] });
    }
}
