//! Waiting for clients of a socket until somebody says to stop.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

/// The next client; `None` once there is something to read from `stop`. `accept` must not block.
pub(crate) fn next_client<Listener: AsFd, Stream>(
    listener: &Listener,
    stop: &OwnedFd,
    accept: impl Fn(&Listener) -> io::Result<Stream>,
) -> Option<Stream> {
    loop {
        let mut waiting = [PollFd::new(listener, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        if poll(&mut waiting, None).is_err() {
            continue; // a signal
        }
        if !waiting[1].revents().is_empty() {
            return None;
        }
        match accept(listener) {
            Ok(stream) => return Some(stream),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // Out of descriptors, or the client has gone again.
            Err(_) => thread::sleep(Duration::from_millis(50)),
        }
    }
}
