//! The bytes of a connection, in the clear or as records of TLS. Nothing here waits: what cannot be
//! done now is `WouldBlock`.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, sendmsg, shutdown};
use rustls::ClientConnection;

/// Bytes of records that wait to be sent: what more is given is taken later.
const UNSENT_BYTES_MAX: usize = 256 << 10;
/// More than the records of one receive hold. With less room none is received, so that nothing is
/// left in memory of which the socket says nothing.
const RECORDS_BYTES: usize = 64 << 10;
/// So often records are received for one call: some may hold nothing.
const RECEIVES_MAX: usize = 64;

/// See the module.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: Arc<OwnedFd>,
    tls: Option<Box<ClientConnection>>,
}

impl Channel {
    /// One in the clear.
    pub(crate) fn new(socket: OwnedFd) -> Channel {
        Channel { socket: Arc::new(socket), tls: None }
    }

    /// From now on everything is a record of this connection, the handshake first.
    pub(super) fn begin_tls(&mut self, mut tls: ClientConnection) {
        tls.set_buffer_limit(Some(UNSENT_BYTES_MAX));
        self.tls = Some(Box::new(tls));
    }

    /// What can be waited for.
    pub(crate) fn socket(&self) -> Arc<OwnedFd> {
        self.socket.clone()
    }

    /// Whether the handshake goes on.
    pub(super) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// Whether records wait to be sent: [`Channel::send_rest`], when the socket has room.
    pub(crate) fn has_rest(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Sends what the socket takes of these; how much. Of a secured connection some of it may wait
    /// here ([`Channel::has_rest`]).
    ///
    /// # Errors
    /// `WouldBlock`: nothing now. Others: the connection is broken.
    pub(crate) fn send(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return Bare(&self.socket).write_vectored(slices) };
        let taken = tls.writer().write_vectored(slices)?;
        match self.send_rest() {
            Err(error) if error.kind() == ErrorKind::WouldBlock && taken > 0 => Ok(taken),
            Ok(()) if taken > 0 => Ok(taken),
            // There is room now.
            Ok(()) => Err(ErrorKind::Interrupted.into()),
            Err(error) => Err(error),
        }
    }

    /// Sends the records that wait.
    ///
    /// # Errors
    /// `WouldBlock`: not all of them. Others: the connection is broken.
    pub(crate) fn send_rest(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while tls.wants_write() {
            tls.write_tls(&mut Bare(&self.socket))?;
        }
        Ok(())
    }

    /// Receives what there is; 0: the other side has closed.
    ///
    /// # Errors
    /// `WouldBlock`: nothing now. `InvalidData`: what came is no good TLS. Others: the connection is
    /// broken.
    pub(crate) fn receive(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return Bare(&self.socket).read(bytes) };
        let mut filled = 0;
        for _ in 0..RECEIVES_MAX {
            // 1. Plaintext that is here.
            while filled < bytes.len() {
                match tls.reader().read(&mut bytes[filled..]) {
                    Ok(0) => return Ok(filled),
                    Ok(count) => filled += count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    // Cut off: to the protocol, which has its own goodbye, the same.
                    Err(_) => return Ok(filled),
                }
            }
            if filled > 0 && bytes.len() - filled < RECORDS_BYTES {
                return Ok(filled);
            }
            // 2. More records.
            match tls.read_tls(&mut Bare(&self.socket)) {
                Ok(0) => return Ok(filled),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && filled > 0 => {
                    return Ok(filled);
                }
                Err(error) => return Err(error),
            }
            let processed = tls.process_new_packets();
            // An alert, or the answer to a change of keys. What the socket does not take now goes
            // with what is sent next.
            while tls.wants_write() && tls.write_tls(&mut Bare(&self.socket)).is_ok() {}
            processed.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        }
        // What the last ones held.
        let rest = bytes.get_mut(filled..).map_or(Ok(0), |room| tls.reader().read(room));
        match filled + rest.unwrap_or(0) {
            0 => Err(ErrorKind::WouldBlock.into()),
            filled => Ok(filled),
        }
    }

    /// Says goodbye, if there is room for it, and ends the connection.
    pub(crate) fn close(&mut self, goodbye: &[u8]) {
        if !goodbye.is_empty() && !self.has_rest() {
            let _ = self.send(&[IoSlice::new(goodbye)]);
        }
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            let _ = self.send_rest();
        }
        // The ring may have it yet, and lets it go when it sees that it has ended.
        let _ = shutdown(&*self.socket, Shutdown::Both);
    }
}

/// The socket without TLS.
struct Bare<'s>(&'s OwnedFd);

impl Read for Bare<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match recv(self.0, &mut *bytes, RecvFlags::DONTWAIT) {
                Ok((count, _)) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl Write for Bare<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        loop {
            match sendmsg(self.0, slices, &mut SendAncillaryBuffer::default(), flags) {
                Ok(count) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
