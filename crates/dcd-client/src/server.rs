//! The server at the other end of a Unix socket: whose it is, and for how long it is waited for.
//!
//! A daemon that was stopped (SIGSTOP, a debugger, a machine without memory) keeps its sockets: the
//! kernel still takes connections and bytes for it. Whoever waits for such a one without an end
//! waits for ever, so nothing here does.

use std::fs::Metadata;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// A server that says nothing for so long is given up. One that works at something long gives a
/// sign of life every few seconds; what it needs for all of it is not limited.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// Connects. A server that takes no connections and has no room left for those that wait is a
/// [`TimedOut`](io::ErrorKind::TimedOut) after `patience`.
pub fn connect_patiently(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    // Too long, as the standard library says it.
    let address =
        SocketAddrUnix::new(path).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // The kernel counts waiting for room in the queue of the server as sending.
    set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    match connect(&socket, &address) {
        Ok(()) => Ok(UnixStream::from(socket)),
        Err(rustix::io::Errno::AGAIN) => Err(io::ErrorKind::TimedOut.into()),
        Err(error) => Err(error.into()),
    }
}

/// The user of a server whose word counts for nothing: `Some(uid)` if it is neither root, nor
/// ourselves, nor somebody whom root has given the place of the socket.
///
/// A socket in a folder where others may write, `/tmp` for example, is anybody's: whoever makes it
/// first is asked, and may say of a flush that it is done.
pub fn stranger(stream: &UnixStream, path: &Path) -> io::Result<Option<u32>> {
    let server = socket_peercred(stream)?.uid;
    let is_ours = server.is_root() || server == rustix::process::geteuid();
    let uid = server.as_raw();
    Ok((!is_ours && !has_the_place(path, uid)).then_some(uid))
}

/// Whether the socket is that user's, and nobody but root, that user, and ourselves could have put
/// it there.
fn has_the_place(path: &Path, uid: u32) -> bool {
    let Ok(path) = std::path::absolute(path).and_then(|path| path.canonicalize()) else {
        return false;
    };
    let ourselves = rustix::process::geteuid().as_raw();
    let is_trusted = |folder: Metadata| {
        let owner = folder.uid();
        let mode = folder.permissions().mode();
        let for_others = mode & 0o002 != 0 || (mode & 0o020 != 0 && folder.gid() != 0);
        !for_others && (owner == 0 || owner == uid || owner == ourselves)
    };
    std::fs::metadata(&path).is_ok_and(|socket| socket.uid() == uid)
        && path.ancestors().skip(1).all(|folder| std::fs::metadata(folder).is_ok_and(is_trusted))
}

/// A reader that gives up at a time: [`TimedOut`](io::ErrorKind::TimedOut). However slowly bytes
/// drip, it is not later.
pub struct Until<'a, S> {
    reader: &'a mut BufReader<S>,
    deadline: Instant,
}

impl<'a, S: Read + AsFd> Until<'a, S> {
    /// Reads from `reader` until `deadline`.
    pub fn new(reader: &'a mut BufReader<S>, deadline: Instant) -> Until<'a, S> {
        Until { reader, deadline }
    }
}

impl<S: Read + AsFd> BufRead for Until<'_, S> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.reader.buffer().is_empty()
            && !is_ready(self.reader.get_ref(), PollFlags::IN, self.deadline)?
        {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.reader.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.reader.consume(amount);
    }
}

impl<S: Read + AsFd> Read for Until<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let count = available.len().min(buffer.len());
        buffer[..count].copy_from_slice(&available[..count]);
        self.consume(count);
        Ok(count)
    }
}

/// Waits until it can be read from, or written to, or the time is there; whether it can.
fn is_ready(socket: &impl AsFd, wanted: PollFlags, deadline: Instant) -> io::Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let wait = Timespec {
            tv_sec: left.as_secs().min(1 << 30) as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(socket, wanted)], Some(&wait)) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Writes all of it; a server that takes nothing for [`PATIENCE`] is a
/// [`TimedOut`](io::ErrorKind::TimedOut).
pub fn write_patiently(mut stream: &UnixStream, bytes: &[u8]) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let written = stream.write_all(bytes);
    written.map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    })
}

/// Whether there is something to read, the end included, at this moment.
pub fn has_something(stream: &UnixStream) -> bool {
    is_ready(stream, PollFlags::IN, Instant::now()).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_line_that_drips_ends_at_its_time() {
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        let drips = std::thread::spawn(move || {
            while theirs.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let mut reader = BufReader::new(ours);
        let began = Instant::now();
        let mut until = Until::new(&mut reader, began + Duration::from_millis(100));
        let ended = until.read_until(b'\n', &mut Vec::new()).unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() < Duration::from_secs(5));
        drop(reader);
        drips.join().unwrap();
    }

    #[test]
    fn a_server_that_takes_nobody_is_given_up() {
        let path = std::env::temp_dir().join(format!("dcd-client-full-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let patience = Duration::from_millis(100);
        let mut waiting = Vec::new();
        let refused = loop {
            match connect_patiently(&path, patience) {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error,
            }
            assert!(waiting.len() < 16);
        };
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_place_where_others_write_is_nobodys() {
        let folder = std::env::temp_dir().join(format!("dcd-client-place-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("ctl");
        let _listener = UnixListener::bind(&path).unwrap();
        let ourselves = rustix::process::geteuid().as_raw();
        // Below /tmp, where others write.
        let is_open = std::env::temp_dir().metadata().unwrap().permissions().mode() & 0o002 != 0;
        assert_eq!(has_the_place(&path, ourselves), !is_open);
        assert!(!has_the_place(&path, ourselves + 1));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
