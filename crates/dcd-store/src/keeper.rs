//! The process of a store: it takes messages of the daemon that started it, and ends with that.
//!
//! ```text
//! dcd serve -- control socket --> dcd store-keeper --+-- worker: SlateDB, uploads, NBD
//!                                 (starts the worker again if that dies)
//! ```
//! A worker whose memory may not be what the store has ends itself: the next one begins with what
//! the store has, and to the daemon that is a connection that was lost.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dcd_protocol::store::{
    Answer, Ask, Claim, Message, STORE_MESSAGE_BYTES_MAX, StoreFacts, StoreFailure, StoreName,
    TakeOver,
};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::RwLock;

use crate::disk::StoreDisk;
use crate::map::{Access, Map};
use crate::nbd;
use crate::objects::{Bucket, failure};
use crate::standing::Standing;

/// How often room is looked for.
const COLLECT_EVERY: Duration = Duration::from_secs(10);
/// Futures of SlateDB are deep.
pub(crate) const STACK_BYTES: usize = 8 << 20;
/// How the worker ends when it is to be started again.
pub const AGAIN: i32 = 3;
/// The same trouble is told once in so many.
const TROUBLES_REMEMBERED: usize = 16;

/// What connections share.
pub struct Shared {
    disk: RwLock<Arc<StoreDisk>>,
    told: Mutex<VecDeque<String>>,
}

impl Shared {
    pub(crate) async fn disk(&self) -> Arc<StoreDisk> {
        self.disk.read().await.clone()
    }

    /// Tells it, once. Ends the process if the disk is of no more use.
    pub(crate) fn trouble(&self, disk: &StoreDisk, why: &StoreFailure) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if !told.contains(&why.problem) {
            tell(why);
            told.push_back(why.problem.clone());
            if told.len() > TROUBLES_REMEMBERED {
                told.pop_front();
            }
        }
        if disk.broken().is_some() {
            std::process::exit(AGAIN);
        }
    }

    /// It works: what troubles it next is told again.
    fn is_well(&self) {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

fn tell(why: &StoreFailure) {
    let hint = why.hint.as_ref().map_or(String::new(), |hint| format!("\n  hint: {hint}"));
    // Nobody may listen any more.
    let _ = writeln!(io::stderr(), "dcd: {}{hint}", why.problem);
}

/// A UUID as text, without the dashes.
pub(crate) fn nonce() -> Result<String, StoreFailure> {
    let mut bytes = [0_u8; 16];
    let drawn = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    drawn.map_err(|errno| failure(format!("no random numbers: {errno}"), ""))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Runs until the daemon has gone.
///
/// # Errors
/// If the system has no threads, or the socket is none.
pub fn run(control: OwnedFd) -> io::Result<()> {
    // Fails if there is one already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(4)
        .thread_stack_size(STACK_BYTES)
        .enable_all()
        .build()?;
    let keeper = Arc::new(Keeper::default());
    while let Some((message, descriptor)) = receive(&control)? {
        let keeper = keeper.clone();
        let socket = StdUnixStream::from(descriptor);
        socket.set_nonblocking(true)?;
        runtime.spawn(async move {
            let Ok(socket) = UnixStream::from_std(socket) else { return };
            // Whoever has gone needs no answer.
            let _ = keeper.take(message, socket).await;
        });
    }
    // What is under way is known to nobody: a flush that was not answered.
    runtime.shutdown_timeout(Duration::ZERO);
    Ok(())
}

/// The next message. `None`: the daemon has gone.
fn receive(control: &OwnedFd) -> io::Result<Option<(Message, OwnedFd)>> {
    loop {
        let mut bytes = vec![0; STORE_MESSAGE_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(
            control.as_fd(),
            &mut [IoSliceMut::new(&mut bytes)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        );
        let received = match received {
            Ok(received) => received,
            Err(rustix::io::Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        if received.bytes == 0 {
            return Ok(None);
        }
        let mut descriptors = ancillary.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
            _ => Vec::new(),
        });
        let descriptor = descriptors.next();
        let is_whole = !received.flags.contains(ReturnFlags::TRUNC);
        let message = serde_json::from_slice(&bytes[..received.bytes]);
        if let (true, Ok(message), Some(descriptor)) = (is_whole, message, descriptor) {
            return Ok(Some((message, descriptor)));
        }
    }
}

#[derive(Default)]
struct Keeper {
    /// The one store that is open, and as whom.
    open: tokio::sync::Mutex<Option<(String, Access, Arc<Shared>)>>,
    /// What its server says.
    standing: Standing,
}

impl Keeper {
    async fn take(&self, message: Message, mut socket: UnixStream) -> io::Result<()> {
        if message.ask == Ask::Watch {
            return self.tell_news(socket).await;
        }
        let wants_disk = message.ask == Ask::Connect;
        let done = match self.serve(&message).await {
            Ok(done) => done,
            Err(why) => {
                return answer(&mut socket, &Answer::Failed(why)).await;
            }
        };
        let (facts, shared) = done;
        let size_bytes = facts.size_bytes;
        answer(&mut socket, &Answer::Done(facts)).await?;
        match shared {
            Some(shared) if wants_disk => nbd::serve(socket, shared, size_bytes).await,
            _ => Ok(()),
        }
    }

    /// Waits for nothing of the store.
    async fn tell_news(&self, mut socket: UnixStream) -> io::Result<()> {
        let mut news = self.standing.watch();
        answer(&mut socket, &Answer::Done(StoreFacts::default())).await?;
        loop {
            let mut line = serde_json::to_vec(&*news.borrow_and_update())?;
            line.push(b'\n');
            socket.write_all(&line).await?;
            // Whoever listens says nothing: what comes of it is its end.
            let mut said = [0];
            tokio::select! {
                changed = news.changed() => if changed.is_err() { return Ok(()) },
                _ = socket.read(&mut said) => return Ok(()),
            }
        }
    }

    async fn serve(
        &self,
        message: &Message,
    ) -> Result<(StoreFacts, Option<Arc<Shared>>), StoreFailure> {
        let name: StoreName =
            message.store.parse().map_err(|error: dcd_protocol::store::StoreNameError| {
                failure(error.to_string(), &error.hint())
            })?;
        match &message.ask {
            Ask::Create { size_bytes } => {
                let bucket = Bucket::open_seen(&name, &self.standing)?;
                bucket.create(*size_bytes, &nonce()?).await?;
                let owner = Map::bind(&bucket, None, TakeOver::No).await?;
                let facts = StoreFacts {
                    size_bytes: *size_bytes,
                    cache: owner.cache,
                    epoch: owner.epoch.into(),
                    ..StoreFacts::default()
                };
                Ok((facts, None))
            }
            Ask::Bind { cache, take_over, lease_seconds } => {
                let bucket = Bucket::open_seen(&name, &self.standing)?;
                let size_bytes = bucket.volume().await?.size_bytes;
                bucket.probe(&nonce()?).await?;
                let owner = Map::bind_for(&bucket, Some(cache), *take_over, *lease_seconds).await?;
                let (cache, epoch) = (owner.cache, owner.epoch.into());
                Ok((StoreFacts { size_bytes, cache, epoch, ..StoreFacts::default() }, None))
            }
            Ask::Connect | Ask::Facts => {
                let (shared, disk) = self.opened(&name, message.claim.as_ref()).await?;
                Ok((disk.facts().await, Some(shared)))
            }
            Ask::Commit { window } => {
                let (shared, disk) = self.opened(&name, message.claim.as_ref()).await?;
                let committed = disk.commit(*window).await;
                committed.inspect_err(|why| shared.trouble(&disk, why))?;
                shared.is_well();
                Ok((disk.facts().await, None))
            }
            Ask::Snapshots(command) => {
                let (shared, disk) = self.opened(&name, message.claim.as_ref()).await?;
                let done = disk.snapshots_do(command, &nonce()?).await;
                // What is wrong with a name is for whoever has asked.
                if disk.broken().is_some() {
                    done.as_ref().inspect_err(|why| shared.trouble(&disk, why)).ok();
                }
                done?;
                Ok((disk.facts().await, None))
            }
            Ask::Renew => {
                let (shared, disk) = self.opened(&name, message.claim.as_ref()).await?;
                disk.renew().await.inspect_err(|why| shared.trouble(&disk, why))?;
                Ok((disk.lease_facts(), None))
            }
            Ask::Rest => {
                let (shared, disk) = self.opened(&name, message.claim.as_ref()).await?;
                disk.rest().await.inspect_err(|why| shared.trouble(&disk, why))?;
                Ok((disk.lease_facts(), None))
            }
            // Told without the store.
            Ask::Watch => Ok((StoreFacts::default(), None)),
            Ask::Release => {
                let (shared, disk) = self.opened(&name, message.claim.as_ref()).await?;
                disk.release().await.inspect_err(|why| shared.trouble(&disk, why))?;
                Ok((disk.facts().await, None))
            }
        }
    }

    /// The store, open for whoever asks; a writer's is for lookers, too.
    async fn opened(
        &self,
        name: &StoreName,
        claim: Option<&Claim>,
    ) -> Result<(Arc<Shared>, Arc<StoreDisk>), StoreFailure> {
        let shared = self.shared(name, claim).await?;
        let disk = shared.disk().await;
        if let Some(claim) = claim {
            disk.map.note_generation(claim.generation);
        }
        Ok((shared, disk))
    }

    async fn shared(
        &self,
        name: &StoreName,
        claim: Option<&Claim>,
    ) -> Result<Arc<Shared>, StoreFailure> {
        let mut open = self.open.lock().await;
        let words = name.to_string();
        let wanted = claim.map_or(Access::Read, |claim| Access::Write(claim.clone()));
        if let Some((store, access, shared)) = &mut *open {
            if *store != words {
                return Err(failure(format!("{words}: this process has {store} open"), ""));
            }
            if access.does_for(&wanted) {
                return Ok(shared.clone());
            }
            let disk = StoreDisk::open(Bucket::open_seen(name, &self.standing)?, &wanted).await?;
            let before = std::mem::replace(&mut *shared.disk.write().await, disk.clone());
            before.close().await;
            *access = wanted;
            tokio::spawn(keep_house(shared.clone(), disk));
            return Ok(shared.clone());
        }
        let disk = StoreDisk::open(Bucket::open_seen(name, &self.standing)?, &wanted).await?;
        let shared = Arc::new(Shared { disk: RwLock::new(disk.clone()), told: Mutex::default() });
        if wanted != Access::Read {
            tokio::spawn(keep_house(shared.clone(), disk));
        }
        *open = Some((words, wanted, shared.clone()));
        Ok(shared)
    }
}

/// Gives room back, as long as the disk is this one.
async fn keep_house(shared: Arc<Shared>, disk: Arc<StoreDisk>) {
    if let Err(why) = disk.sweep().await {
        shared.trouble(&disk, &why);
    }
    loop {
        tokio::time::sleep(COLLECT_EVERY).await;
        if !Arc::ptr_eq(&shared.disk().await, &disk) {
            return;
        }
        loop {
            match disk.collect().await {
                Ok(true) => {}
                Ok(false) => break,
                Err(why) => {
                    shared.trouble(&disk, &why);
                    break;
                }
            }
        }
    }
}

async fn answer(socket: &mut UnixStream, what: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    socket.write_all(&line).await
}
