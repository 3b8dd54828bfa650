//! Network disks: exports of NBD servers, named by a URI where a path could stand.
//!
//! | file | owns |
//! |---|---|
//! | `problem.rs` | why one cannot be used, and what to do about it |
//! | `channel.rs` | the bytes of a connection, in the clear or with TLS |
//! | `certificates.rs` | who a server has to be, and who we are to it |
//! | `link.rs` | connecting and agreeing within a time, and requests one by one |
//! | `name_lock.rs` | that no two processes of this machine use one |
//! | `mark.rs` | whether the disk behind a name is still the same one |
//! | `connector.rs` | the thread that connects while the event loop runs |
//! | `store.rs` | the process that serves an object store like an export |
//! | `lease.rs` | for how long a store is ours |
//!
//! Until the event loop drives it, and where none does, requests are made one by one over the first
//! connection. Then the loop takes that over (`disk/network`), and everything that is asked for in
//! another way fails.

mod certificates;
mod channel;
pub(crate) mod connector;
pub(crate) mod lease;
mod link;
mod mark;
mod name_lock;
mod problem;
pub mod store;
pub mod store_report;

use std::cell::{Cell, RefCell};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use dcd_protocol::nbd::negotiation::ExportFacts;
pub use dcd_protocol::nbd::uri::{NbdUri, UriError};
use dcd_protocol::nbd::wire::transmission_flag;
pub use dcd_protocol::store::{StoreFacts, StoreFailure, StoreName, TakeOver};

use crate::device::device_file::DeviceError;

pub(crate) use channel::Channel;
pub(crate) use link::{Link, request_header};
pub use mark::Mark;
pub(crate) use name_lock::lock_name;
pub use problem::NetworkProblem;

/// How long a server may take to answer when a disk is opened, and for a request until the event
/// loop runs, unless somebody says otherwise.
pub(crate) const OPEN_PATIENCE: Duration = Duration::from_secs(15);

/// The same for who only looks.
const READER_PATIENCE: Duration = Duration::from_secs(5);

/// Whether this is meant to be the name of a network disk, be it a good one.
pub fn is_network(path: &Path) -> bool {
    dcd_protocol::nbd::uri::looks_like_uri(path.as_os_str().as_bytes())
}

/// The object store, if a path names one.
pub fn store_of(path: &Path) -> Option<StoreName> {
    uri_of(path)?.ok()?.store().cloned()
}

/// The URI, if a path is one.
///
/// # Errors
/// If it is meant to be one and is none.
pub fn uri_of(path: &Path) -> Option<Result<NbdUri, UriError>> {
    let text = |name: &OsStr| name.to_string_lossy().parse();
    is_network(path).then(|| text(path.as_os_str()))
}

/// Refuses a network disk where the daemon is given one that somebody else has opened.
///
/// # Errors
/// If it is one.
pub fn check_handed_over(path: &Path) -> Result<(), DeviceError> {
    match is_network(path) {
        false => Ok(()),
        true => Err(DeviceError::Network {
            path: path.to_owned(),
            source: Box::new(NetworkProblem::NotHere {
                what: "a disk that is added while dcd serves",
                reason: "who serves has given up the right to connect to others",
            }),
        }),
    }
}

/// Refuses a network disk where caches are to share one.
///
/// # Errors
/// If it is one.
pub fn check_shareable(path: &Path) -> Result<(), DeviceError> {
    match is_network(path) {
        false => Ok(()),
        true => Err(DeviceError::Network {
            path: path.to_owned(),
            source: Box::new(NetworkProblem::NotHere {
                what: "a cache-disk with shares",
                reason: "its room is moved between caches while these are served",
            }),
        }),
    }
}

/// An export that is open.
#[derive(Debug)]
pub struct NetworkDisk {
    uri: NbdUri,
    facts: ExportFacts,
    /// Until the event loop has it.
    link: RefCell<Option<Link>>,
    /// By what the disk is known again.
    mark: Cell<Option<Mark>>,
}

impl NetworkDisk {
    /// Connects to the server and agrees on the export.
    pub(crate) fn open(uri: NbdUri, writes: bool) -> Result<NetworkDisk, NetworkProblem> {
        let link = Link::open(&uri, OPEN_PATIENCE)?;
        let facts = link.facts().clone();
        let server = uri.server.to_string();
        if writes && facts.is_read_only() {
            return Err(NetworkProblem::ReadOnly { server, export: uri.export_words() });
        }
        if writes && !facts.has(transmission_flag::SEND_FLUSH) {
            return Err(NetworkProblem::NoFlush { server });
        }
        Ok(NetworkDisk { uri, facts, link: RefCell::new(Some(link)), mark: Cell::new(None) })
    }

    /// How it is named.
    pub fn uri(&self) -> &NbdUri {
        &self.uri
    }

    /// What the server said of it.
    pub fn facts(&self) -> &ExportFacts {
        &self.facts
    }

    /// From now on it is the same only with this on it.
    pub(crate) fn set_mark(&self, mark: Mark) {
        self.mark.set(Some(mark));
    }

    pub(crate) fn mark(&self) -> Option<Mark> {
        self.mark.get()
    }

    /// If it is an object store: that.
    pub fn store(&self) -> Option<&StoreName> {
        self.uri.store()
    }

    /// The first connection, for the event loop.
    pub(crate) fn take_link(&self) -> Option<Link> {
        self.link.take()
    }

    /// In the place of the number of a physical disk, which two exports of a server may share.
    pub(crate) fn server_number(&self) -> u64 {
        1 << 63 | name_lock::fnv(self.uri.server.to_string().as_bytes())
    }

    /// Whether zeroes may be given back as free space.
    pub(crate) fn can_zero(&self) -> bool {
        self.facts.has(transmission_flag::SEND_WRITE_ZEROES)
    }

    /// Fills `bytes` from `offset` on; they are all on the disk.
    pub(crate) fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.with_link(|link| link.read(offset, bytes))
    }

    /// Writes at `offset`.
    pub(crate) fn write_all_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.with_link(|link| link.write(offset, bytes))
    }

    /// Makes durable what was written.
    pub(crate) fn flush(&self) -> io::Result<()> {
        self.with_link(Link::flush)
    }

    /// Whatever was written over a connection that broke may be lost, so there is no other one.
    fn with_link<T>(&self, ask: impl FnOnce(&mut Link) -> io::Result<T>) -> io::Result<T> {
        match &mut *self.link.borrow_mut() {
            Some(link) => ask(link),
            None => Err(io::Error::other("the event loop has the connection")),
        }
    }
}

/// An export that is only read, and locked by nobody: for who looks at what somebody else may be
/// using.
pub(crate) struct NetworkReader(RefCell<Link>);

impl NetworkReader {
    /// Connects to the server and agrees on the export.
    ///
    /// # Errors
    /// If there is no agreement.
    pub(crate) fn open(uri: &NbdUri) -> io::Result<NetworkReader> {
        let link = Link::open(uri, READER_PATIENCE).map_err(|problem| {
            let hint = problem.hint().map_or(String::new(), |hint| format!(" ({hint})"));
            io::Error::other(format!("{problem}{hint}"))
        })?;
        Ok(NetworkReader(RefCell::new(link)))
    }

    /// Bytes from `offset` on; fewer where the disk ends.
    pub(crate) fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut link = self.0.borrow_mut();
        let left = link.facts().size_bytes.saturating_sub(offset);
        let count = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        link.read(offset, &mut bytes[..count])?;
        Ok(count)
    }

    /// Bytes of the disk.
    pub(crate) fn length(&self) -> u64 {
        self.0.borrow().facts().size_bytes
    }
}
