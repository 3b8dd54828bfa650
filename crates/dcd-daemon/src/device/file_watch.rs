//! Being told which files of a file system were written and closed, made, or moved (fanotify). All
//! `unsafe` code around it is in this file.
//!
//! Needs CAP_SYS_ADMIN and CAP_DAC_READ_SEARCH, and Linux 5.9, which names the directory and the
//! file in each event.

use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Bytes read at once.
const BUFFER_BYTES: usize = 64 << 10;
/// Largest handle of a file (MAX_HANDLE_SZ).
const HANDLE_BYTES_MAX: usize = 128;
/// `struct fanotify_event_metadata`.
const METADATA_BYTES: usize = 24;
/// Header of a piece of information, and the identity of its file system.
const INFO_HEADER_BYTES: usize = 4 + 8;

/// Why files cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// No right to.
    #[error("watching files needs root (CAP_SYS_ADMIN): {source}")]
    Permission {
        /// The system's words.
        source: io::Error,
    },
    /// The kernel or the file system cannot.
    #[error("{what} cannot tell of changed files: {source}")]
    Unsupported {
        /// Which of them.
        what: &'static str,
        /// The system's words.
        source: io::Error,
    },
    /// Something else.
    #[error("cannot watch {}: {source}", path.display())]
    Io {
        /// What.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
}

impl WatchError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            WatchError::Permission { .. } => {
                "use sudo; without it, run `dcd hint set` after files have changed".into()
            }
            WatchError::Unsupported { what: "this kernel", .. } => {
                "Linux 5.9 or newer with CONFIG_FANOTIFY can; else run `dcd hint set` now and then"
                    .into()
            }
            WatchError::Unsupported { .. } => "run `dcd hint set` after files have changed".into(),
            WatchError::Io { .. } => return None,
        })
    }
}

/// What has happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WatchEvent {
    /// A file of this name was closed after writing, made or moved here.
    File {
        /// The directory, as it is called now.
        directory: PathBuf,
        /// The name in it.
        name: OsString,
    },
    /// More happened than the kernel kept: any file may have changed.
    Lost,
}

/// A file system that is watched.
pub struct FileWatch {
    group: OwnedFd,
    /// Something on it, to find directories by.
    mount: OwnedFd,
}

impl AsFd for FileWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.group.as_fd()
    }
}

impl FileWatch {
    /// Begins to watch the whole file system that `directory` is on.
    pub fn open(directory: &Path) -> Result<FileWatch, WatchError> {
        let failed = |source: io::Error| WatchError::Io { path: directory.to_owned(), source };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mount = rustix::fs::open(directory, flags, Mode::empty())
            .map_err(|errno| failed(errno.into()))?;
        let flags = libc::FAN_CLASS_NOTIF
            | libc::FAN_CLOEXEC
            | libc::FAN_NONBLOCK
            | libc::FAN_REPORT_DFID_NAME;
        // SAFETY: the call touches no memory of ours. What it gives is new and nobody else's.
        let group = unsafe {
            match libc::fanotify_init(flags, libc::O_RDONLY as libc::c_uint) {
                -1 => Err(io::Error::last_os_error()),
                group => Ok(OwnedFd::from_raw_fd(group)),
            }
        }
        .map_err(|source| match Errno::from_io_error(&source) {
            Some(Errno::PERM) => WatchError::Permission { source },
            Some(Errno::INVAL | Errno::NOSYS) => {
                WatchError::Unsupported { what: "this kernel", source }
            }
            _ => failed(source),
        })?;
        let mask = libc::FAN_CLOSE_WRITE | libc::FAN_MOVED_TO | libc::FAN_CREATE;
        let path = CString::new(directory.as_os_str().as_bytes())
            .map_err(|_| failed(io::ErrorKind::InvalidInput.into()))?;
        let add = libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM;
        // SAFETY: the descriptor is open, the path ends with a zero byte and outlives the call.
        let marked = unsafe {
            libc::fanotify_mark(group.as_raw_fd(), add, mask, libc::AT_FDCWD, path.as_ptr())
        };
        if marked < 0 {
            let source = io::Error::last_os_error();
            return Err(match Errno::from_io_error(&source) {
                Some(Errno::PERM) => WatchError::Permission { source },
                Some(Errno::OPNOTSUPP | Errno::NODEV | Errno::XDEV | Errno::INVAL) => {
                    WatchError::Unsupported { what: "this file system", source }
                }
                _ => failed(source),
            });
        }
        Ok(FileWatch { group, mount })
    }

    /// What has happened since the last call; does not wait.
    pub fn events(&self) -> io::Result<Vec<WatchEvent>> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let read = match rustix::io::read(&self.group, &mut buffer) {
            Ok(read) => read,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        let mut events = Vec::new();
        for event in parse(&buffer[..read]) {
            match event {
                RawEvent::Lost => events.push(WatchEvent::Lost),
                // One whose directory has gone meanwhile is no matter.
                RawEvent::File { handle, name } => {
                    if let Some(directory) = self.directory(&handle) {
                        events.push(WatchEvent::File { directory, name });
                    }
                }
            }
        }
        Ok(events)
    }

    /// The name of a directory by its handle.
    fn directory(&self, handle: &Handle) -> Option<PathBuf> {
        let mut handle = *handle;
        let flags = libc::O_PATH | libc::O_CLOEXEC;
        // SAFETY: the descriptor is open; a `Handle` begins as `struct file_handle` does and has
        // room for as many bytes as it says, which the kernel only reads. What it gives is new and
        // nobody else's.
        let directory = unsafe {
            let pointer = std::ptr::from_mut(&mut handle).cast::<libc::file_handle>();
            match libc::open_by_handle_at(self.mount.as_raw_fd(), pointer, flags) {
                -1 => return None,
                directory => OwnedFd::from_raw_fd(directory),
            }
        };
        let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
        std::fs::read_link(link).ok()
    }
}

/// `struct file_handle` with its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
struct Handle {
    length: u32,
    kind: i32,
    bytes: [u8; HANDLE_BYTES_MAX],
}

#[derive(PartialEq, Eq, Debug)]
enum RawEvent {
    File { handle: Box<Handle>, name: OsString },
    Lost,
}

/// The events in what the kernel gave (fanotify(7)).
fn parse(mut bytes: &[u8]) -> Vec<RawEvent> {
    let mut events = Vec::new();
    while let Some(header) = bytes.get(..METADATA_BYTES) {
        let length = u32_at(header, 0) as usize;
        let mask = u64::from(u32_at(header, 8)) | u64::from(u32_at(header, 12)) << 32;
        let info = usize::from(u16_at(header, 6));
        if length < METADATA_BYTES || info < METADATA_BYTES {
            break;
        }
        let Some(event) = bytes.get(..length) else { break };
        bytes = &bytes[length..];
        if mask & libc::FAN_Q_OVERFLOW != 0 {
            events.push(RawEvent::Lost);
        } else if let Some(file) = event.get(info..).and_then(parse_file) {
            events.push(file);
        }
    }
    events
}

/// The directory and the name among the pieces of information of an event.
fn parse_file(mut pieces: &[u8]) -> Option<RawEvent> {
    loop {
        let length = usize::from(u16_at(pieces.get(..4)?, 2));
        let piece = pieces.get(..length).filter(|piece| piece.len() >= INFO_HEADER_BYTES)?;
        if piece[0] == libc::FAN_EVENT_INFO_TYPE_DFID_NAME {
            let rest = &piece[INFO_HEADER_BYTES..];
            let handle_bytes = u32_at(rest.get(..8)?, 0) as usize;
            let mut handle = Handle {
                length: u32_at(rest, 0),
                kind: u32_at(rest, 4) as i32,
                bytes: [0; HANDLE_BYTES_MAX],
            };
            let from = rest.get(8..)?.get(..handle_bytes)?;
            handle.bytes.get_mut(..handle_bytes)?.copy_from_slice(from);
            let name = &rest[8 + handle_bytes..];
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            let is_name = !name.is_empty() && name != b"." && name != b"..";
            let name = OsString::from_vec(name.to_vec());
            return is_name.then(|| RawEvent::File { handle: Box::new(handle), name });
        }
        pieces = &pieces[length..];
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(mask: u64, info: &[u8]) -> Vec<u8> {
        let mut bytes = (METADATA_BYTES as u32 + info.len() as u32).to_ne_bytes().to_vec();
        bytes.extend([3, 0]);
        bytes.extend((METADATA_BYTES as u16).to_ne_bytes());
        bytes.extend(mask.to_ne_bytes());
        bytes.extend([0xff; 8]);
        bytes.extend(info);
        bytes
    }

    fn info(kind: u8, handle: &[u8], name: &[u8]) -> Vec<u8> {
        let length = INFO_HEADER_BYTES + 8 + handle.len() + name.len();
        let mut bytes = vec![kind, 0];
        bytes.extend((length as u16).to_ne_bytes());
        bytes.extend([7; 8]);
        bytes.extend((handle.len() as u32).to_ne_bytes());
        bytes.extend(1i32.to_ne_bytes());
        bytes.extend(handle);
        bytes.extend(name);
        bytes
    }

    #[test]
    fn names_are_found_and_cut_events_are_not_believed() {
        let named = info(libc::FAN_EVENT_INFO_TYPE_DFID_NAME, b"abcdefgh", b"main.o\0\0");
        let both = [info(libc::FAN_EVENT_INFO_TYPE_FID, b"x", b""), named.clone()].concat();
        let all = [
            event(libc::FAN_CLOSE_WRITE, &both),
            event(libc::FAN_Q_OVERFLOW, &[]),
            event(libc::FAN_MOVED_TO, &info(libc::FAN_EVENT_INFO_TYPE_DFID_NAME, b"x", b".\0")),
        ]
        .concat();
        let found = parse(&all);
        assert_eq!(found.len(), 2);
        let RawEvent::File { handle, name } = &found[0] else { panic!("{found:?}") };
        assert_eq!(
            (handle.length, &handle.bytes[..9], name.as_bytes()),
            (8, &b"abcdefgh\0"[..], &b"main.o"[..])
        );
        assert_eq!(found[1], RawEvent::Lost);
        for length in 0..all.len() {
            assert!(parse(&all[..length]).len() <= 2);
        }
        // Lengths that lead beyond the end.
        for at in 0..both.len() {
            let mut odd = both.clone();
            odd[at] = 0xff;
            parse(&event(libc::FAN_CLOSE_WRITE, &odd));
        }
    }
}
