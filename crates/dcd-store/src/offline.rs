//! What is done with a store without a cache: telling what it is, copying the last window, and
//! looking at all of it. Nothing is written to the store.

use std::fs::File;
use std::future::Future;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use dcd_protocol::store::{StoreFacts, StoreFailure, StoreName};

use crate::disk::StoreDisk;
use crate::format::LINE_BYTES;
use crate::keeper::STACK_BYTES;
use crate::map::Access;
use crate::objects::{Bucket, failure};

/// Lines that are read at once.
const LINES_AT_ONCE: usize = 1024;
const COPY_HINT: &str = "if the store is served, copy it again: what a later window gave up meanwhile is deleted after a \
                         minute; else restore the object from a version of the bucket";

fn run<T>(
    name: &StoreName,
    what: impl AsyncFnOnce(Arc<StoreDisk>) -> Result<T, StoreFailure>,
) -> Result<T, StoreFailure> {
    // Fails if there is one already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_stack_size(STACK_BYTES)
        .enable_all()
        .build()
        .map_err(|error| failure(format!("no threads: {error}"), ""))?;
    let done: Box<dyn Future<Output = Result<T, StoreFailure>>> = Box::new(async {
        let disk = StoreDisk::open(Bucket::open(name)?, &Access::Read).await?;
        what(disk).await
    });
    runtime.block_on(Box::into_pin(done))
}

/// What it is.
///
/// # Errors
/// If there is none, or nobody answers.
pub fn info(name: &StoreName) -> Result<StoreFacts, StoreFailure> {
    run(name, async |disk| Ok(disk.facts().await))
}

/// Writes the disk as it was at the end of the last window to a new file. Tells how many bytes of
/// it were ever written.
///
/// # Errors
/// If something of it cannot be read, or the file cannot be made. There is no file then.
pub fn copy(name: &StoreName, to: &Path) -> Result<u64, StoreFailure> {
    let file_failed = |error: std::io::Error| {
        failure(
            format!("{}: {error}", to.display()),
            "give the name of a file that is not there yet",
        )
    };
    let file = File::create_new(to).map_err(file_failed)?;
    let copied = run(name, async |disk| {
        file.set_len(disk.size_bytes()).map_err(file_failed)?;
        let places = disk.window().await?.places;
        let mut copied = 0;
        for run in places.chunk_by(|(one, _), (next, _)| one + 1 == *next) {
            for piece in run.chunks(LINES_AT_ONCE) {
                let first = piece[0].0;
                let mut bytes = vec![0; piece.len() * LINE_BYTES];
                let fetched = disk.fetch(first, piece.to_vec(), &mut bytes).await;
                fetched.map_err(|why| match why.is_silence {
                    true => why,
                    // Whoever serves it may have deleted what later windows do not need.
                    false => StoreFailure { hint: Some(COPY_HINT.into()), ..why },
                })?;
                let offset = first * LINE_BYTES as u64;
                file.write_all_at(&bytes, offset).map_err(file_failed)?;
                copied += bytes.len() as u64;
            }
        }
        file.sync_all().map_err(file_failed)?;
        Ok(copied)
    });
    if copied.is_err() {
        // A part of it is no disk.
        let _ = std::fs::remove_file(to);
    }
    copied
}

/// What is wrong with it; reads all that is in use.
///
/// # Errors
/// If the store does not answer.
pub fn check(name: &StoreName) -> Result<Vec<String>, StoreFailure> {
    run(name, async |disk| disk.check().await)
}
