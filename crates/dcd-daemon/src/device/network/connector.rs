//! The thread that connects to a server while the event loop runs, since a name has to be looked
//! up, and both have to agree, which may take its time.
//!
//! It is started when the disk is opened: before the process gives up the right to connect to
//! anywhere, which binds only threads that are started later.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dcd_protocol::nbd::negotiation::ExportFacts;
use dcd_protocol::nbd::wire::transmission_flag::SEND_FLUSH;

use super::{Channel, Link, Mark, NbdUri, NetworkProblem};
use crate::process::bell::Bell;

/// Connections to a server that lets them count as one. More bring nothing to one loop.
const CONNECTIONS: usize = 4;

/// What is to be done.
pub(crate) struct Order {
    /// So much later.
    pub(crate) after: Duration,
    /// Within this time.
    pub(crate) patience: Duration,
    /// What the disk is known by.
    pub(crate) mark: Option<Mark>,
    /// The connection that there is already.
    pub(crate) first: Option<Link>,
}

/// Connections to the same disk as before, in transmission.
pub(crate) struct Connections {
    /// What the server says of it now.
    pub(crate) facts: ExportFacts,
    pub(crate) channels: Vec<Channel>,
}

/// The connections, or why there are none.
pub(crate) type Connected = Result<Connections, NetworkProblem>;

struct Shared {
    answers: Mutex<Vec<Connected>>,
    bell: Bell,
}

/// See the module. The thread ends when this is dropped and what it does has ended.
pub(crate) struct Connector {
    orders: Sender<Order>,
    shared: Arc<Shared>,
}

/// The descriptor that is readable when there is an answer.
pub(crate) struct AnswerBell(Arc<Shared>);

impl AsFd for AnswerBell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.bell.as_fd()
    }
}

impl Connector {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system has none.
    pub(crate) fn start(uri: NbdUri, facts: ExportFacts) -> std::io::Result<Connector> {
        let shared = Arc::new(Shared { answers: Mutex::default(), bell: Bell::new()? });
        let (orders, received) = channel();
        let theirs = shared.clone();
        let thread = std::thread::Builder::new().name("dcd-nbd".into());
        thread.spawn(move || run(&uri, &facts, &received, &theirs))?;
        Ok(Connector { orders, shared })
    }

    /// What is waited for with `poll`.
    pub(crate) fn bell(&self) -> AnswerBell {
        AnswerBell(self.shared.clone())
    }

    /// Asks for connections. There is one answer.
    pub(crate) fn order(&self, order: Order) {
        // The thread waits as long as this is there.
        let _ = self.orders.send(order);
    }

    /// The answers that there are.
    pub(crate) fn answers(&self) -> Vec<Connected> {
        self.shared.bell.heard();
        std::mem::take(&mut *self.shared.answers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn run(uri: &NbdUri, facts: &ExportFacts, orders: &Receiver<Order>, shared: &Shared) {
    while let Ok(order) = orders.recv() {
        std::thread::sleep(order.after);
        let connected = connect(uri, facts, order);
        shared.answers.lock().unwrap_or_else(PoisonError::into_inner).push(connected);
        shared.bell.ring();
    }
}

fn connect(uri: &NbdUri, expected: &ExportFacts, order: Order) -> Connected {
    let mut first = match order.first {
        Some(first) => first,
        None => {
            let mut first = Link::open(uri, order.patience)?;
            check(uri, expected, order.mark, &mut first)?;
            first
        }
    };
    let facts = first.facts().clone();
    let mut others = Vec::new();
    if facts.can_multi_conn() {
        // A server that has no more to give is used as far as it goes.
        let opened = (1..CONNECTIONS).map_while(|_| Link::open(uri, order.patience).ok());
        others.extend(opened.filter(|link| *link.facts() == facts).map(Link::into_channel));
        // One that died in between, and began anew, knows nothing of what is written over the
        // first: a flush over another would prove nothing. If the first answers now, it has not.
        let answered = first.read(0, &mut [0; 512]);
        answered
            .map_err(|source| NetworkProblem::Connect { server: uri.server.to_string(), source })?;
    }
    let channels = std::iter::once(first.into_channel()).chain(others).collect();
    Ok(Connections { facts, channels })
}

/// Whether it is the disk that it was, and can still be used as it was.
fn check(
    uri: &NbdUri,
    expected: &ExportFacts,
    mark: Option<Mark>,
    link: &mut Link,
) -> Result<(), NetworkProblem> {
    let server = || uri.server.to_string();
    let found = link.facts().clone();
    let changed = |what, expected: String, found: String| {
        Err(NetworkProblem::Changed { server: server(), what, expected, found })
    };
    if found.size_bytes != expected.size_bytes {
        let (expected, found) = (expected.size_bytes, found.size_bytes);
        return changed("its size", format!("{expected} bytes"), format!("{found} bytes"));
    }
    if found.is_read_only() && !expected.is_read_only() {
        return changed("it", "writable".into(), "read-only".into());
    }
    let (block, most) = (found.minimum_block, expected.minimum_block.max(512));
    if block > most {
        return changed(
            "its block size",
            format!("{most} bytes at most"),
            format!("{block} bytes"),
        );
    }
    if expected.has(SEND_FLUSH) && !found.has(SEND_FLUSH) {
        return changed("that it takes flushes", "so".into(), "so no more".into());
    }
    let Some(mark) = mark else { return Ok(()) };
    match mark.is_on(link) {
        Ok(true) => Ok(()),
        Ok(false) => Err(NetworkProblem::OtherDisk { server: server(), mark: mark.to_string() }),
        Err(source) => Err(NetworkProblem::Connect { server: server(), source }),
    }
}
