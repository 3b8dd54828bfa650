//! What is said while it serves: to stderr, or to the journal of systemd where stderr is that, as
//! fields by which messages can be found again.
//!
//! ```text
//! journalctl -t dcd DCD_CACHE=0b5c9e8a-...      of one cache
//! journalctl -t dcd DCD_EVENT=cache-disk-failed of one kind, of all caches
//! journalctl -t dcd -p err                      what needs somebody
//! ```
//!
//! The journal's own protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL) is a datagram of `NAME=value`
//! lines, spoken here because it is no more than that. A message that cannot be sent there goes to
//! stderr.

use std::fmt;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock};

use dcd_client::plain::plain_lines;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::net::{connect, send, socket_with};

/// How much a message matters, in the numbers of syslog(3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Somebody has to do something.
    Error = 3,
    /// Something is not as it should be, and goes on all the same.
    Warning = 4,
    /// What somebody has asked for, and has come about.
    Notice = 5,
    /// What is good to know: not with `--quiet`.
    Info = 6,
    /// What explains the rest: only with `--verbose`.
    Debug = 7,
}

const JOURNAL: &str = "/run/systemd/journal/socket";

static MOST: AtomicU8 = AtomicU8::new(Level::Info as u8);
static STREAM: OnceLock<Option<OwnedFd>> = OnceLock::new();
static ABOUT: RwLock<Option<About>> = RwLock::new(None);

/// Which cache this process serves.
#[derive(Clone, Debug)]
pub struct About {
    /// Its UUID.
    pub cache: String,
    /// Its data-disk, or data-disks.
    pub device: String,
}

/// Connects to the journal, if stderr is that. Before rights are given up: whoever has, makes no
/// socket.
pub fn begin() {
    STREAM.get_or_init(|| is_journal().then(connected).flatten());
}

/// What matters less than this is not told.
pub fn tell_up_to(level: Level) {
    MOST.store(level as u8, Ordering::Relaxed);
}

/// From now on messages are about this cache.
pub fn about(about: About) {
    *ABOUT.write().unwrap_or_else(PoisonError::into_inner) = Some(about);
}

/// Says something. `event` is a word for this kind of message, which does not change.
pub fn say(level: Level, event: &str, words: fmt::Arguments<'_>) {
    if level as u8 > MOST.load(Ordering::Relaxed) {
        return;
    }
    let words = plain_lines(&words.to_string(), false).into_owned();
    if to_journal(level, event, &words) {
        return;
    }
    // Nothing fails because nobody can read it.
    let _ = std::io::stderr().write_all((words + "\n").as_bytes());
}

/// Says it to the journal; false if stderr is none, or it does not take it.
pub fn to_journal(level: Level, event: &str, words: &str) -> bool {
    let Some(Some(journal)) = STREAM.get() else { return false };
    let about = ABOUT.read().unwrap_or_else(PoisonError::into_inner).clone();
    let datagram = datagram(level, event, about.as_ref(), words);
    send(journal, &datagram, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).is_ok()
}

/// Set for a process whose stderr is read by one that speaks to the journal: what is relayed would
/// have neither level nor fields.
pub const OF_JOURNAL: &str = "DCD_JOURNAL";

/// Whether messages go to the journal.
pub fn is_to_journal() -> bool {
    matches!(STREAM.get(), Some(Some(_)))
}

/// `JOURNAL_STREAM` has device and inode of the stream that systemd has made; stderr may have been
/// led elsewhere since.
fn is_journal() -> bool {
    if std::env::var_os(OF_JOURNAL).is_some() {
        return true;
    }
    let Some(stream) = std::env::var_os("JOURNAL_STREAM") else { return false };
    let Ok(stat) = rustix::fs::fstat(std::io::stderr().as_fd()) else { return false };
    stream.to_str() == Some(&format!("{}:{}", stat.st_dev, stat.st_ino))
}

fn connected() -> Option<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None).ok()?;
    connect(&socket, &SocketAddrUnix::new(JOURNAL).ok()?).ok()?;
    Some(socket)
}

fn datagram(level: Level, event: &str, about: Option<&About>, words: &str) -> Vec<u8> {
    let mut datagram = Vec::new();
    let mut field = |name: &str, value: &str| {
        datagram.extend_from_slice(name.as_bytes());
        // Of several lines: a length before them.
        match value.contains('\n') {
            true => {
                datagram.push(b'\n');
                datagram.extend_from_slice(&(value.len() as u64).to_le_bytes());
            }
            false => datagram.push(b'='),
        }
        datagram.extend_from_slice(value.as_bytes());
        datagram.push(b'\n');
    };
    // Who says it stands beside it there.
    field("MESSAGE", words.strip_prefix("dcd: ").unwrap_or(words));
    field("PRIORITY", &(level as u8).to_string());
    field("SYSLOG_IDENTIFIER", "dcd");
    field("DCD_EVENT", event);
    if let Some(about) = about {
        field("DCD_CACHE", &about.cache);
        field("DCD_DEVICE", &about.device);
    }
    datagram
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_lines_and_several_lines_have_their_length() {
        let about = About { cache: "0b5c".into(), device: "/dev/sdb".into() };
        let text = datagram(Level::Error, "cache-disk-failed", Some(&about), "dcd: it has failed");
        let expected = "MESSAGE=it has failed\nPRIORITY=3\nSYSLOG_IDENTIFIER=dcd\n\
                        DCD_EVENT=cache-disk-failed\nDCD_CACHE=0b5c\nDCD_DEVICE=/dev/sdb\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
        let text = datagram(Level::Info, "x", None, "dcd: a\nhint: b");
        assert!(
            text.starts_with(b"MESSAGE\n\x09\0\0\0\0\0\0\0a\nhint: b\nPRIORITY=6\n"),
            "{text:?}"
        );
    }
}
