//! What a service manager (systemd) is told, and what it hands over: sd_notify(3) and `LISTEN_FDS`,
//! spoken here because it is a datagram and three variables.
//!
//! ```text
//! to it:    READY=1, STATUS=..., STOPPING=1, WATCHDOG=1, FDSTORE=1 with a descriptor
//! from it:  sockets that it listens on for us, and descriptors that an earlier process stored
//! ```
//!
//! Without `NOTIFY_SOCKET` nothing is said, so whoever starts dcd by hand notices nothing. A
//! message that cannot be sent is lost: service must not depend on its being watched.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use crate::process::descriptors::send_descriptors;

/// First descriptor that is handed over.
const LISTEN_FDS_START: RawFd = 3;
/// More than that is no list of ours.
const LISTEN_FDS_MAX: RawFd = 64;

/// Tells the service manager how we are.
pub struct Notifier {
    to: Option<Arc<OwnedFd>>,
    watchdog: Option<Watchdog>,
}

/// Made once: whoever has given up his rights makes no socket.
static FROM_ENVIRONMENT: OnceLock<Option<Arc<OwnedFd>>> = OnceLock::new();

struct Watchdog {
    interval: Duration,
    next: Instant,
}

/// Where the service manager hears us, if that has a name in the file system.
pub(crate) fn socket() -> Option<PathBuf> {
    let socket = PathBuf::from(std::env::var_os("NOTIFY_SOCKET")?);
    Some(socket).filter(|path| path.is_absolute())
}

impl Notifier {
    /// As the environment has it.
    pub fn from_environment() -> Notifier {
        let socket = std::env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty());
        let watchdog = variable("WATCHDOG_USEC").filter(|_| is_for_us("WATCHDOG_PID"));
        let to = FROM_ENVIRONMENT.get_or_init(|| connected(socket.as_deref()?.as_bytes()));
        Notifier::to(to.clone(), watchdog.filter(|micros| *micros > 0).map(Duration::from_micros))
    }

    /// To this socket (a path, or with `@` in front a name without one); the watchdog expects a
    /// sign within that time.
    pub fn new(socket: Option<&[u8]>, watchdog: Option<Duration>) -> Notifier {
        Notifier::to(socket.and_then(connected), watchdog)
    }

    fn to(to: Option<Arc<OwnedFd>>, watchdog: Option<Duration>) -> Notifier {
        // Half of the time, as sd_watchdog_enabled(3) advises.
        let watchdog = watchdog.filter(|_| to.is_some());
        let watchdog =
            watchdog.map(|within| Watchdog { interval: within / 2, next: Instant::now() });
        Notifier { to, watchdog }
    }

    /// It serves.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", one_line(status)), None);
    }

    /// What it does, for people.
    pub fn status(&self, status: &str) {
        self.send(&format!("STATUS={}", one_line(status)), None);
    }

    /// It ends.
    pub fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=stopping", None);
    }

    /// When the next sign of life is due.
    pub fn watchdog_due(&self) -> Option<Instant> {
        self.watchdog.as_ref().map(|watchdog| watchdog.next)
    }

    /// Gives a sign of life, if it is due.
    pub fn turn(&mut self) {
        // The clock is not read for nobody.
        let Some(watchdog) = &mut self.watchdog else { return };
        let now = Instant::now();
        if watchdog.next > now {
            return;
        }
        watchdog.next = now + watchdog.interval;
        self.send("WATCHDOG=1", None);
    }

    /// Has a descriptor kept until it is removed, also when we are killed.
    pub fn store(&self, name: &str, descriptor: BorrowedFd<'_>) {
        // One that a process which was killed has stored goes first: each start would add one until
        // there is no room.
        self.remove_stored(name);
        // FDPOLL=0: it is a file, which nobody hangs up.
        self.send(&format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0"), Some(descriptor));
    }

    /// Has it closed.
    pub fn remove_stored(&self, name: &str) {
        self.send(&format!("FDSTOREREMOVE=1\nFDNAME={name}"), None);
    }

    fn send(&self, message: &str, descriptor: Option<BorrowedFd<'_>>) {
        let Some(socket) = &self.to else { return };
        let _ = send_descriptors(socket, message.as_bytes(), descriptor.as_slice());
    }
}

/// A socket that speaks to the one of this name, and to no other: the confined may not choose.
fn connected(path: &[u8]) -> Option<Arc<OwnedFd>> {
    let address = match path {
        [b'@', name @ ..] => SocketAddrUnix::new_abstract_name(name),
        path => SocketAddrUnix::new(path),
    };
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None).ok()?;
    rustix::net::connect(&socket, &address.ok()?).ok()?;
    Some(Arc::new(socket))
}

/// A line of a message ends at its end.
fn one_line(text: &str) -> String {
    text.replace('\n', "; ")
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Whether a variable that names a process names this one. Without one it is for all.
fn is_for_us(name: &str) -> bool {
    variable(name).is_none_or(|pid| pid == u64::from(std::process::id()))
}

/// Descriptors that were handed over and that nobody has taken yet, with their names.
static INHERITED: OnceLock<Mutex<Vec<(String, OwnedFd)>>> = OnceLock::new();

/// Takes over what the service manager hands us. To be called once, first of all: descriptors are
/// told by their numbers, which nobody else may have got.
pub fn inherit_descriptors() {
    INHERITED.get_or_init(|| Mutex::new(inherited()));
}

fn inherited() -> Vec<(String, OwnedFd)> {
    // Without LISTEN_PID it was meant for whoever started us.
    if variable("LISTEN_PID") != Some(std::process::id().into()) {
        return Vec::new();
    }
    let count = variable("LISTEN_FDS").and_then(|count| RawFd::try_from(count).ok()).unwrap_or(0);
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let descriptors = LISTEN_FDS_START..LISTEN_FDS_START + count.min(LISTEN_FDS_MAX);
    let taken = descriptors.filter_map(|number| {
        let name = names.next().unwrap_or_default().to_owned();
        // SAFETY: the service manager passed these descriptors to this process, to be owned by it;
        // nothing has used them, because this comes first and `INHERITED` makes it happen once.
        let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
        // It must not go on to programs that we start (fusermount3). One that is not open is not
        // ours.
        match rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC) {
            Ok(()) => Some((name, descriptor)),
            Err(_) => {
                std::mem::forget(descriptor);
                None
            }
        }
    });
    taken.collect()
}

/// Whether a listening socket was handed over that nobody has taken yet.
pub fn has_listener() -> bool {
    let Some(inherited) = INHERITED.get() else { return false };
    let inherited = inherited.lock().unwrap_or_else(PoisonError::into_inner);
    let is_listener = |(_, it): &(String, OwnedFd)| rustix::net::sockopt::socket_acceptconn(it);
    inherited.iter().any(|it| is_listener(it).unwrap_or(false))
}

fn take(is_it: impl Fn(&str, BorrowedFd<'_>) -> bool) -> Option<OwnedFd> {
    let mut inherited = INHERITED.get()?.lock().unwrap_or_else(PoisonError::into_inner);
    let index = inherited.iter().position(|(name, descriptor)| is_it(name, descriptor.as_fd()))?;
    Some(inherited.remove(index).1)
}

/// The descriptor that an earlier process stored under this name.
pub fn take_stored(name: &str) -> Option<OwnedFd> {
    take(|known, _| known == name)
}

/// The listening unix socket at this path.
pub fn take_unix_listener(path: &Path) -> Option<OwnedFd> {
    take(|_, descriptor| {
        rustix::net::sockopt::socket_acceptconn(descriptor).unwrap_or(false)
            && is_at(descriptor, path).unwrap_or(false)
    })
}

fn is_at(descriptor: BorrowedFd<'_>, path: &Path) -> io::Result<bool> {
    let address = rustix::net::getsockname(descriptor)?;
    let address = SocketAddrUnix::try_from(address)?;
    Ok(address.path_bytes() == Some(path.as_os_str().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn messages_arrive() {
        let path = std::env::temp_dir().join(format!("dcd-notify-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let manager = UnixDatagram::bind(&path).unwrap();
        manager.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let hear = || {
            let mut bytes = [0; 256];
            let length = manager.recv(&mut bytes).unwrap();
            String::from_utf8(bytes[..length].to_vec()).unwrap()
        };
        let within = Duration::from_secs(3600);
        let mut notifier = Notifier::new(Some(path.as_os_str().as_bytes()), Some(within));
        notifier.ready("serves\nwell");
        assert_eq!(hear(), "READY=1\nSTATUS=serves; well");
        // The first sign is due at once, the next one in half of the time.
        notifier.turn();
        assert_eq!(hear(), "WATCHDOG=1");
        notifier.turn();
        notifier.stopping();
        assert_eq!(hear(), "STOPPING=1\nSTATUS=stopping");
        let due = notifier.watchdog_due().unwrap();
        assert!(due > Instant::now() + within / 4 && due <= Instant::now() + within / 2);
        notifier.store("segments", manager.as_fd());
        assert_eq!(hear(), "FDSTOREREMOVE=1\nFDNAME=segments");
        assert_eq!(hear(), "FDSTORE=1\nFDNAME=segments\nFDPOLL=0");
        std::fs::remove_file(&path).unwrap();
        // A manager that is gone, or that there never was, disturbs nobody.
        drop(manager);
        notifier.status("alone");
        let mut nobody = Notifier::new(None, Some(within));
        nobody.turn();
        assert!(nobody.watchdog_due().is_none());
    }
}
