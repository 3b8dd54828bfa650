//! Object stores: the process that has one open, which serves it like any NBD server.
//!
//! It is another process because all that speaks with a bucket may do more than the daemon, and is
//! large: when it dies, that is a server that was lost, and the daemon goes on (C24). It is started
//! when the disk is opened, while programs may be started; what it is asked for later goes over a
//! socket that is there already.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use dcd_engine::units::Uuid;
use dcd_protocol::store::{
    Answer, Ask, Message, STORE_MESSAGE_BYTES_MAX, StoreFacts, StoreFailure, StoreName,
};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair,
};

use super::link::receive_all;

/// How long a store may take to answer: a claim reads its map, and everything is tried again.
const PATIENCE: Duration = Duration::from_secs(60);
/// A commit may take as long as the store is away.
const COMMIT_PATIENCE: Duration = Duration::from_secs(3600);

/// What is started for each store.
#[derive(Clone, Debug)]
pub struct StoreProgram {
    /// A program that serves the socket at its standard input, ...
    pub program: PathBuf,
    /// ... and its arguments.
    pub arguments: Vec<OsString>,
}

static PROGRAM: OnceLock<StoreProgram> = OnceLock::new();
static KEEPERS: Mutex<BTreeMap<StoreName, Keeper>> = Mutex::new(BTreeMap::new());

struct Keeper {
    control: OwnedFd,
    /// As whom it is written to.
    cache: Option<Uuid>,
}

/// Tells what to start. Without that there are no object stores.
pub fn plug_in_stores(program: StoreProgram) {
    // Once is enough.
    let _ = PROGRAM.set(program);
}

fn keepers() -> MutexGuard<'static, BTreeMap<StoreName, Keeper>> {
    KEEPERS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(name: &StoreName, action: &str, error: &io::Error) -> StoreFailure {
    StoreFailure {
        problem: format!("{name}: cannot {action} the process that has it open: {error}"),
        hint: Some("start dcd again".into()),
        is_silence: true,
    }
}

/// Starts the process, unless it runs.
fn start(name: &StoreName) -> Result<(), StoreFailure> {
    let mut keepers = keepers();
    if keepers.contains_key(name) {
        return Ok(());
    }
    let Some(StoreProgram { program, arguments }) = PROGRAM.get() else {
        return Err(StoreFailure {
            problem: format!("{name}: this dcd was built without object stores"),
            hint: Some(
                "build it with them: cargo build --release --package dcd-cache --features s3"
                    .into(),
            ),
            is_silence: false,
        });
    };
    let starting = |error: &io::Error| failed(name, "start", error);
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(|errno| starting(&errno.into()))?;
    let spawned = Command::new(program)
        .args(arguments)
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .spawn();
    // It ends with us, and nobody waits for it.
    drop(spawned.map_err(|error| starting(&error))?);
    keepers.insert(name.clone(), Keeper { control: ours, cache: None });
    Ok(())
}

/// Asks it for something. The answer is the first line on the socket.
fn ask_at(
    name: &StoreName,
    ask: Ask,
    cache: Option<Uuid>,
    patience: Duration,
) -> Result<(StoreFacts, OwnedFd), StoreFailure> {
    let sending = |error: &io::Error| failed(name, "ask", error);
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(|errno| sending(&errno.into()))?;
    let message = {
        let keepers = keepers();
        let Some(keeper) = keepers.get(name) else {
            return Err(sending(&io::ErrorKind::NotConnected.into()));
        };
        let cache = cache.or(keeper.cache).map(|uuid| uuid.to_string());
        let message = Message { store: name.to_string(), cache, ask };
        let bytes = serde_json::to_vec(&message).expect("text and numbers");
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors = [theirs.as_fd()];
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        let sent =
            sendmsg(&keeper.control, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL);
        sent.map_err(|errno| sending(&errno.into()))?;
        message
    };
    drop(theirs);
    rustix::io::ioctl_fionbio(&ours, true).map_err(|errno| sending(&errno.into()))?;
    let deadline = Instant::now() + patience;
    let mut line = Vec::new();
    // Byte by byte: what follows belongs to whoever gets the socket.
    while line.last() != Some(&b'\n') && line.len() < STORE_MESSAGE_BYTES_MAX {
        let mut byte = [0];
        receive_all(&ours, &mut byte, deadline).map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => StoreFailure {
                problem: format!("{name}: no answer within {} s", patience.as_secs()),
                hint: Some("check that the server answers".into()),
                is_silence: true,
            },
            _ => sending(&error),
        })?;
        line.push(byte[0]);
    }
    match serde_json::from_slice(&line) {
        Ok(Answer::Done(facts)) => Ok((facts, ours)),
        Ok(Answer::Failed(failure)) => Err(failure),
        Err(error) => Err(StoreFailure {
            problem: format!("{name}: no answer to {message:?}: {error}"),
            hint: None,
            is_silence: false,
        }),
    }
}

/// A connection on which it is served as a disk.
pub(super) fn connected(name: &StoreName) -> Result<OwnedFd, StoreFailure> {
    start(name)?;
    Ok(ask_at(name, Ask::Connect, None, PATIENCE)?.1)
}

/// Makes a new store, or finds that one of this size is there which belongs to nobody.
///
/// # Errors
/// If it cannot be made, or something else is there. Nothing is overwritten.
pub fn create_store(name: &StoreName, size_bytes: u64) -> Result<StoreFacts, StoreFailure> {
    start(name)?;
    Ok(ask_at(name, Ask::Create { size_bytes }, None, PATIENCE)?.0)
}

/// What it is, and whose.
///
/// # Errors
/// If there is none, or nobody answers.
pub fn store_facts(name: &StoreName) -> Result<StoreFacts, StoreFailure> {
    start(name)?;
    Ok(ask_at(name, Ask::Facts, None, PATIENCE)?.0)
}

/// It belongs to this cache from now on.
///
/// # Errors
/// If it belongs to another one, and is not to be taken over.
pub fn bind_store(name: &StoreName, cache: Uuid, take_over: bool) -> Result<(), StoreFailure> {
    start(name)?;
    ask_at(name, Ask::Bind { take_over }, Some(cache), PATIENCE).map(|_| ())
}

/// Whoever wrote to it before writes no more; from now on this process does.
///
/// # Errors
/// If it belongs to another cache.
pub(crate) fn claim_store(name: &StoreName, cache: Uuid) -> Result<(), StoreFailure> {
    start(name)?;
    ask_at(name, Ask::Facts, Some(cache), PATIENCE)?;
    if let Some(keeper) = keepers().get_mut(name) {
        keeper.cache = Some(cache);
    }
    Ok(())
}

/// What is to be done at the end of a window, or of all of them.
enum Wanted {
    Commit(u64),
    Release(Sender<Result<(), StoreFailure>>),
}

/// The thread that ends windows of a store. It is started while sockets may be made.
pub(crate) struct Committer(Sender<Wanted>);

impl Committer {
    /// `ended` is told of each window how it went.
    ///
    /// # Errors
    /// If the system has no thread.
    pub(crate) fn start(
        name: StoreName,
        ended: impl Fn(u64, Result<(), StoreFailure>) + Send + 'static,
    ) -> io::Result<Committer> {
        let (wanted, received): (Sender<Wanted>, Receiver<Wanted>) = channel();
        let thread = std::thread::Builder::new().name("dcd-commit".into());
        thread.spawn(move || {
            for wanted in received {
                match wanted {
                    Wanted::Commit(window) => {
                        let ask = Ask::Commit { window };
                        let done = ask_at(&name, ask, None, COMMIT_PATIENCE);
                        ended(window, done.map(|_| ()));
                    }
                    Wanted::Release(done) => {
                        let released = ask_at(&name, Ask::Release, None, PATIENCE).map(|_| ());
                        if released.is_ok()
                            && let Some(keeper) = keepers().get_mut(&name)
                        {
                            keeper.cache = None;
                        }
                        // Who asked waits no longer than that.
                        let _ = done.send(released);
                    }
                }
            }
        })?;
        Ok(Committer(wanted))
    }

    pub(crate) fn commit(&self, window: u64) -> io::Result<()> {
        self.0.send(Wanted::Commit(window)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    /// It belongs to nobody from now on.
    pub(crate) fn release(&self) -> Result<(), StoreFailure> {
        let (done, released) = channel();
        let _ = self.0.send(Wanted::Release(done));
        let gone = StoreFailure {
            problem: "the thread that commits has ended".into(),
            hint: None,
            is_silence: false,
        };
        released.recv().unwrap_or(Err(gone))
    }
}
