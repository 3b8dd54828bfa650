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
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use dcd_engine::units::Uuid;
use dcd_protocol::store::{
    Answer, Ask, Claim, LEASE_SECONDS, Message, STORE_MESSAGE_BYTES_MAX, StoreCommand, StoreFacts,
    StoreFailure, StoreName, StoreNews, TakeOver,
};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair,
};

use super::channel::Channel;
use super::lease::{Lease, RENEWALS, now};
use super::link::receive_all;
use super::name_lock::fnv;
use crate::device::identity::DiskIdentity;
use crate::process::random::random_bytes;

/// How long a store may take to answer: a claim reads its map, and everything is tried again.
const PATIENCE: Duration = Duration::from_secs(60);
/// A commit may take as long as the store is away.
const COMMIT_PATIENCE: Duration = Duration::from_secs(3600);

/// What needs nothing of the store. Longer than a process takes to begin.
const WATCH_PATIENCE: Duration = Duration::from_secs(10);
/// How often whoever listens for news looks whether somebody wants them.
const WATCH_LOOK_EVERY: Duration = Duration::from_secs(60);
/// When what had the store open has died.
const WATCH_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// Who stops waits no longer for others to be told.
const REST_PATIENCE: Duration = Duration::from_secs(5);

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
    claim: Option<Claim>,
    lease: Option<Arc<Lease>>,
    /// Somebody else has it now. It is not asked for again.
    lost: Option<StoreFailure>,
}

/// How a daemon begins to write to a store.
pub(crate) struct Start<'a> {
    pub(crate) cache: Uuid,
    /// The newest superblock of the cache-disk.
    pub(crate) generation: u64,
    /// The boot of this machine.
    pub(crate) boot_id: [u8; 16],
    /// Names of the cache-disk, or of its legs, which are locked.
    pub(crate) cache_disks: Vec<&'a Path>,
    /// Even with an older copy of the cache-disk.
    pub(crate) trusts_disks: bool,
    pub(crate) take_over: TakeOver,
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
        is_lost: false,
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
            is_lost: false,
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
    keepers.insert(name.clone(), Keeper { control: ours, claim: None, lease: None, lost: None });
    Ok(())
}

/// Asks it for something. The answer is the first line on the socket.
fn ask_at(
    name: &StoreName,
    ask: Ask,
    start: Option<&Claim>,
    patience: Duration,
) -> Result<(StoreFacts, Channel), StoreFailure> {
    let sending = |error: &io::Error| failed(name, "ask", error);
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(|errno| sending(&errno.into()))?;
    let message = {
        let keepers = keepers();
        let Some(keeper) = keepers.get(name) else {
            return Err(sending(&io::ErrorKind::NotConnected.into()));
        };
        if let Some(lost) = &keeper.lost {
            return Err(lost.clone());
        }
        let mut claim = start.or(keeper.claim.as_ref()).cloned();
        if let (Some(claim), Some(lease)) = (&mut claim, &keeper.lease) {
            claim.generation = claim.generation.max(lease.generation());
        }
        let message = Message { store: name.to_string(), claim, ask };
        let bytes = serde_json::to_vec(&message).expect("text and numbers");
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors = [theirs.as_fd()];
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        // A process that hears nothing must not keep others from asking about it.
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent = sendmsg(&keeper.control, &[IoSlice::new(&bytes)], &mut ancillary, flags);
        sent.map_err(|errno| sending(&errno.into()))?;
        message
    };
    drop(theirs);
    rustix::io::ioctl_fionbio(&ours, true).map_err(|errno| sending(&errno.into()))?;
    let mut ours = Channel::new(ours);
    let line = receive_line(&mut ours, patience).map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => StoreFailure {
            problem: format!("{name}: no answer within {} s", patience.as_secs()),
            hint: Some("check that the server answers".into()),
            is_silence: true,
            is_lost: false,
        },
        _ => sending(&error),
    })?;
    match serde_json::from_slice(&line) {
        Ok(Answer::Done(facts)) => {
            note_claim(name, &facts);
            Ok((facts, ours))
        }
        Ok(Answer::Failed(failure)) => {
            if failure.is_lost {
                note_lost(name, &failure);
            }
            Err(failure)
        }
        Err(error) => Err(StoreFailure {
            problem: format!("{name}: no answer to {message:?}: {error}"),
            hint: None,
            is_silence: false,
            is_lost: false,
        }),
    }
}

/// Byte by byte: what follows belongs to whoever gets the socket.
fn receive_line(from: &mut Channel, patience: Duration) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + patience;
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') && line.len() < STORE_MESSAGE_BYTES_MAX {
        let mut byte = [0];
        receive_all(from, &mut byte, deadline)?;
        line.push(byte[0]);
    }
    Ok(line)
}

/// Listens to what the process has to say of its server, until nobody has the lease any more.
fn watch(name: &StoreName, lease: &Weak<Lease>) {
    let words = name.to_string();
    let is_wanted = || lease.upgrade().is_some_and(|lease| !lease.is_lost());
    while is_wanted() {
        let Ok((_, mut from)) = ask_at(name, Ask::Watch, None, WATCH_PATIENCE) else {
            std::thread::sleep(WATCH_AGAIN_AFTER);
            continue;
        };
        while is_wanted() {
            let line = match receive_line(&mut from, WATCH_LOOK_EVERY) {
                Ok(line) => line,
                // A line comes whole.
                Err(error) if error.kind() == io::ErrorKind::TimedOut => continue,
                Err(_) => break,
            };
            let Ok(news) = serde_json::from_slice::<StoreNews>(&line) else { break };
            if let Some(lease) = lease.upgrade() {
                lease.news(&words, news);
            }
        }
        std::thread::sleep(WATCH_AGAIN_AFTER);
    }
}

/// The machine as it calls itself, for people.
fn host() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// A name for an opening.
fn drawn(name: &StoreName) -> Result<String, StoreFailure> {
    let bytes = random_bytes::<16>().map_err(|error| failed(name, "draw a number for", &error))?;
    Ok(format!("{:032x}", u128::from_le_bytes(bytes)))
}

/// If it was opened by the name that was drawn for that, the next opening needs another one.
fn note_claim(name: &StoreName, facts: &StoreFacts) {
    let mut keepers = keepers();
    let Some(claim) = keepers.get_mut(name).and_then(|keeper| keeper.claim.as_mut()) else {
        return;
    };
    if facts.claim.as_ref() == Some(&claim.next)
        && let Ok(next) = drawn(name)
    {
        claim.had = Some(std::mem::replace(&mut claim.next, next));
    }
}

fn note_lost(name: &StoreName, why: &StoreFailure) {
    let lease = {
        let mut keepers = keepers();
        let Some(keeper) = keepers.get_mut(name) else { return };
        keeper.lost = Some(why.clone());
        keeper.lease.clone()
    };
    if let Some(lease) = lease {
        lease.lost(why);
    }
}

/// This boot of this machine, and the cache-disk with all that it lies on.
fn place_of(boot_id: &[u8; 16], cache_disks: &[&Path]) -> Option<String> {
    let mut words = String::new();
    for path in cache_disks {
        match DiskIdentity::of(path) {
            Ok(identity) if !identity.pieces.is_empty() => {
                for piece in identity.pieces {
                    words += &format!("{:?} {:?}, ", piece.object, piece.bytes.start);
                }
            }
            // A network disk, which is locked by its name.
            _ if super::is_network(path) => words += &format!("{}, ", path.display()),
            _ => return None,
        }
    }
    let boot = boot_id.map(|byte| format!("{byte:02x}")).concat();
    Some(format!("{boot}-{:016x}", fnv(words.as_bytes())))
}

/// A connection on which it is served as a disk.
pub(super) fn connected(name: &StoreName) -> Result<Channel, StoreFailure> {
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

/// It belongs to this cache from now on, and its leases are so long, if somebody has chosen.
///
/// # Errors
/// If it belongs to another one and is not to be taken over, or somebody has a lease on it.
pub fn bind_store(
    name: &StoreName,
    cache: Uuid,
    take_over: TakeOver,
    lease_seconds: Option<u64>,
) -> Result<(), StoreFailure> {
    start(name)?;
    let cache = cache.to_string();
    ask_at(name, Ask::Bind { cache, take_over, lease_seconds }, None, PATIENCE).map(|_| ())
}

/// Whoever wrote to it before writes no more; from now on this process does, as long as it has the
/// lease that begins with that.
///
/// # Errors
/// If it belongs to another cache, or to another daemon that may be alive.
pub(crate) fn claim_store(name: &StoreName, begins: &Start<'_>) -> Result<(), StoreFailure> {
    start(name)?;
    let unknown = || drawn(name);
    let claim = Claim {
        cache: begins.cache.to_string(),
        had: None,
        next: drawn(name)?,
        // One that is like no other.
        place: place_of(&begins.boot_id, &begins.cache_disks).map_or_else(unknown, Ok)?,
        generation: begins.generation,
        trusts_disks: begins.trusts_disks,
        is_now: begins.take_over == TakeOver::Now,
        host: host(),
    };
    let asked = now();
    let (facts, _) = ask_at(name, Ask::Facts, Some(&claim), PATIENCE)?;
    let length = Duration::from_secs(facts.lease_seconds.unwrap_or(LEASE_SECONDS));
    let (words, renewed) = (name.to_string(), name.clone());
    // One that is lost leaves time for another before the lease ends.
    let patience = (length / RENEWALS).min(PATIENCE);
    let renew = move || ask_at(&renewed, Ask::Renew, None, patience).map(|_| ());
    let lease = Lease::begin(length, asked, words, renew);
    let lease = lease.map_err(|error| failed(name, "keep a lease with", &error))?;
    let (watched, of) = (name.clone(), Arc::downgrade(&lease));
    let thread = std::thread::Builder::new().name("dcd-store-news".into());
    let thread = thread.spawn(move || watch(&watched, &of));
    drop(thread.map_err(|error| failed(name, "listen to", &error))?);
    if let Some(keeper) = keepers().get_mut(name) {
        let next = drawn(name)?;
        keeper.claim = Some(Claim { had: Some(claim.next.clone()), next, ..claim });
        keeper.lease = Some(lease);
    }
    Ok(())
}

/// Takes or removes a snapshot of a store that is claimed.
///
/// # Errors
/// If it cannot be done, or nobody answers.
pub(crate) fn change_snapshots(
    name: &StoreName,
    command: StoreCommand,
) -> Result<(), StoreFailure> {
    // A commit that is under way goes first.
    ask_at(name, Ask::Snapshots(command), None, COMMIT_PATIENCE).map(|_| ())
}

/// What is known of the lease on it, if it was claimed.
pub(crate) fn lease_of(name: &StoreName) -> Option<Arc<Lease>> {
    keepers().get(name)?.lease.clone()
}

/// It is claimed no more.
fn unclaim(name: &StoreName) {
    if let Some(keeper) = keepers().get_mut(name) {
        keeper.claim = None;
        keeper.lease.take().inspect(|lease| lease.end());
    }
}

/// What is to be done at the end of a window, or of all of them.
enum Wanted {
    Commit(u64),
    Release(Sender<Result<(), StoreFailure>>),
    Rest(Sender<()>),
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
                        let (ask, asked) = (Ask::Commit { window }, now());
                        let done = ask_at(&name, ask, None, COMMIT_PATIENCE);
                        if let (Ok(_), Some(lease)) = (&done, lease_of(&name)) {
                            lease.renewed(asked, &name.to_string());
                        }
                        ended(window, done.map(|_| ()));
                    }
                    Wanted::Release(done) => {
                        // A renewal beside it would find no claim, or write it anew.
                        lease_of(&name).inspect(|lease| lease.end());
                        let released = ask_at(&name, Ask::Release, None, PATIENCE).map(|_| ());
                        if released.is_ok() {
                            unclaim(&name);
                        }
                        // Who asked waits no longer than that.
                        let _ = done.send(released);
                    }
                    Wanted::Rest(done) => {
                        lease_of(&name).inspect(|lease| lease.end());
                        // In vain: others wait for the end of the lease.
                        let _ = ask_at(&name, Ask::Rest, None, REST_PATIENCE);
                        unclaim(&name);
                        let _ = done.send(());
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
            is_lost: false,
        };
        released.recv().unwrap_or(Err(gone))
    }

    /// Nothing is written there any more.
    pub(crate) fn rest(&self) {
        let (done, rested) = channel();
        let _ = self.0.send(Wanted::Rest(done));
        // A commit may be under way that takes its time.
        let _ = rested.recv_timeout(REST_PATIENCE * 2);
    }
}
