//! What is done with a store without a cache: telling what it is, copying the last window or a
//! snapshot, looking at all of it, taking and removing snapshots, making a clone.

use std::fs::File;
use std::future::Future;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use dcd_protocol::store::{SnapshotName, StoreCommand, StoreFacts, StoreFailure, StoreName};

use crate::cloning::clone_store;
use crate::disk::StoreDisk;
use crate::format::LINE_BYTES;
use crate::keeper::{STACK_BYTES, nonce};
use crate::map::Access;
use crate::objects::{Bucket, failure};

/// Lines that are read at once.
const LINES_AT_ONCE: usize = 1024;

/// Threads for what is asked of a bucket.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, StoreFailure> {
    // Fails if there is one already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_stack_size(STACK_BYTES)
        .enable_all()
        .build()
        .map_err(|error| failure(format!("no threads: {error}"), ""))
}

fn run<T>(
    name: &StoreName,
    access: &Access,
    what: impl AsyncFnOnce(Arc<StoreDisk>) -> Result<T, StoreFailure>,
) -> Result<T, StoreFailure> {
    let runtime = runtime()?;
    let done: Box<dyn Future<Output = Result<T, StoreFailure>>> = Box::new(async {
        let disk = StoreDisk::open(Bucket::open(name)?, access).await?;
        what(disk).await
    });
    runtime.block_on(Box::into_pin(done))
}

/// What it is.
///
/// # Errors
/// If there is none, or nobody answers.
pub fn info(name: &StoreName) -> Result<StoreFacts, StoreFailure> {
    run(name, &Access::Read, async |disk| Ok(disk.facts().await))
}

fn reading(snapshot: Option<&SnapshotName>) -> Access {
    snapshot.map_or(Access::Read, |name| Access::Snapshot(name.clone()))
}

/// Takes or removes a snapshot of a store that no cache has open. Tells how it stands then.
///
/// # Errors
/// If one has, or the store does not do what is asked.
pub fn snapshots(name: &StoreName, command: &StoreCommand) -> Result<StoreFacts, StoreFailure> {
    run(name, &Access::Maintain, async |disk| {
        let done = disk.snapshots_do(command, &nonce()?).await;
        disk.close().await;
        done?;
        Ok(disk.facts().await)
    })
}

/// Makes a new store with the same disk in it, as of a snapshot or the last window. Tells how many
/// bytes of it were ever written; `told` hears how many are copied, of how many.
///
/// # Errors
/// If something is there already, or a store does not do what is asked: then the same again goes on.
pub fn clone_to(
    name: &StoreName,
    snapshot: Option<&SnapshotName>,
    to: &StoreName,
    told: impl FnMut(u64, u64),
) -> Result<u64, StoreFailure> {
    run(name, &reading(snapshot), async |disk| {
        let of = match &disk.map.snapshot {
            // The same name may be another snapshot by then.
            Some(snapshot) => {
                format!("{name}, snapshot {} ({})", snapshot.name, snapshot.checkpoint)
            }
            // Lines may be elsewhere when somebody goes on with it: each is another one.
            None => format!("{name}, as it was at {}", disk.bucket.unix_seconds()),
        };
        clone_store(&disk, &of, &Bucket::open(to)?, &nonce()?, told).await
    })
}

/// Writes the disk as it was at the end of the last window, or at a snapshot, to a new file. Tells
/// how many bytes of it were ever written; `told` hears how many are copied, of how many.
///
/// # Errors
/// If something of it cannot be read, or the file cannot be made. There is no file then.
pub fn copy(
    name: &StoreName,
    snapshot: Option<&SnapshotName>,
    to: &Path,
    mut told: impl FnMut(u64, u64),
) -> Result<u64, StoreFailure> {
    let file_failed = |error: std::io::Error| {
        let hint = match error.kind() {
            std::io::ErrorKind::AlreadyExists => "give the name of a file that is not there yet",
            _ => "give another place for the file",
        };
        failure(format!("{}: {error}", to.display()), hint)
    };
    let is_there = || {
        // In the words of the system, as elsewhere.
        file_failed(rustix::io::Errno::EXIST.into())
    };
    if to.try_exists().map_err(file_failed)? {
        return Err(is_there());
    }
    // A part of it is no disk, and is not called like one, also if this is killed.
    let part = to.with_added_extension("part");
    let file = File::create(&part).map_err(file_failed)?;
    let copied = run(name, &reading(snapshot), async |disk| {
        file.set_len(disk.size_bytes()).map_err(file_failed)?;
        let places = disk.window().await?.places;
        let mut copied = 0;
        let total = places.len() as u64 * LINE_BYTES as u64;
        for run in places.chunk_by(|(one, _), (next, _)| one + 1 == *next) {
            for piece in run.chunks(LINES_AT_ONCE) {
                let first = piece[0].0;
                let mut bytes = vec![0; piece.len() * LINE_BYTES];
                let fetched = disk.fetch(first, piece.to_vec(), &mut bytes).await;
                fetched?;
                let offset = first * LINE_BYTES as u64;
                file.write_all_at(&bytes, offset).map_err(file_failed)?;
                copied += bytes.len() as u64;
                told(copied, total);
            }
        }
        file.sync_all().map_err(file_failed)?;
        Ok(copied)
    });
    let done = copied.and_then(|copied| match to.try_exists() {
        Ok(false) => std::fs::rename(&part, to).map(|()| copied).map_err(file_failed),
        _ => Err(is_there()),
    });
    if done.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    done
}

/// What is wrong with it; reads all that is in use.
///
/// # Errors
/// If the store does not answer.
pub fn check(
    name: &StoreName,
    snapshot: Option<&SnapshotName>,
) -> Result<Vec<String>, StoreFailure> {
    run(name, &reading(snapshot), async |disk| disk.check().await)
}
