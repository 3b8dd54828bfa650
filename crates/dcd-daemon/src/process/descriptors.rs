//! Descriptors that go from one process to another through a unix socket: whoever has the right to
//! open something opens it for one that has given such rights up.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// A client that has said that it hands over a disk has so much time for it.
pub(crate) const DESCRIPTORS_PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// Most that go at once.
pub(crate) const DESCRIPTORS_MAX: usize = 32;

/// Sends them with a message of at least one byte.
///
/// # Errors
/// Those of sendmsg(2); [`Errno::TOOBIG`] if there are more than [`DESCRIPTORS_MAX`].
pub(crate) fn send_descriptors(
    socket: impl AsFd,
    message: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        let has_room = control.push(SendAncillaryMessage::ScmRights(descriptors));
        if !has_room {
            return Err(Errno::TOOBIG);
        }
    }
    sendmsg(socket, &[IoSlice::new(message)], &mut control, SendFlags::NOSIGNAL).map(|_| ())
}

/// Those that came with the next byte; none when the other end has closed.
///
/// # Errors
/// Those of recvmsg(2); [`Errno::TOOBIG`] if there were more than [`DESCRIPTORS_MAX`].
pub(crate) fn receive_descriptors(socket: impl AsFd) -> Result<Vec<OwnedFd>, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let received = rustix::io::retry_on_intr(|| {
        let mut parts = [IoSliceMut::new(&mut byte)];
        recvmsg(socket.as_fd(), &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptors = rights.flatten().collect();
    match received.flags.contains(ReturnFlags::CTRUNC) {
        true => Err(Errno::TOOBIG),
        false => Ok(descriptors),
    }
}
