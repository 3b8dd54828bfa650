//! A clone: another store with the same disk in it, which nothing connects with the first one. The
//! objects are copied by the server, where both are in one bucket.
//!
//! ```text
//! 1. `volume`, as one that is not finished.   Crash: only the same clone goes on with it.
//! 2. The objects, by the names that they have: written again, they are the same.
//! 3. The rows of the map: the same.
//! 4. `volume`.   The store is there, and belongs to nobody.
//! ```

use std::collections::BTreeSet;

use dcd_protocol::store::StoreFailure;
use futures::{StreamExt, TryStreamExt, stream};
use slatedb::WriteBatch;

use crate::disk::{ROW_BYTES, StoreDisk, Window};
use crate::format::{LINE_BYTES, OWNER_KEY, ObjectId, Owner, line_key};
use crate::map::Map;
use crate::objects::Bucket;

/// Objects that are copied at once.
const COPIES_AT_ONCE: usize = 8;
/// Rows of one batch.
const ROWS_AT_ONCE: usize = 1 << 16;

/// Makes `to` a clone of the window that `from` is open at. `of` names that, for whoever goes on
/// with it. Tells how many bytes are in use; `told` hears how many have been copied, and of how
/// many.
///
/// # Errors
/// If something else is there, or a store does not do what is asked: then the same again goes on.
pub(crate) async fn clone_store(
    from: &StoreDisk,
    of: &str,
    to: &Bucket,
    nonce: &str,
    mut told: impl FnMut(u64, u64),
) -> Result<u64, StoreFailure> {
    let Window { places, counts } = from.window().await?;
    // 1.
    to.begin_clone(from.size_bytes(), of, nonce).await?;
    // 2.
    let there: BTreeSet<ObjectId> = to.data_objects().await?.into_iter().collect();
    let bytes_of = |object: &ObjectId| u64::from(counts[object].lines) * LINE_BYTES as u64;
    let total = counts.keys().map(bytes_of).sum();
    let mut done: u64 = counts.keys().filter(|object| there.contains(object)).map(bytes_of).sum();
    told(done, total);
    let missing = counts.keys().filter(|object| !there.contains(object)).copied();
    let copies = missing.map(|object| async move {
        to.copy_of(&from.bucket, object).await?;
        Ok::<_, StoreFailure>(object)
    });
    let copies: Vec<_> = copies.collect();
    let mut copied = stream::iter(copies).buffer_unordered(COPIES_AT_ONCE);
    while let Some(object) = copied.try_next().await? {
        done += bytes_of(&object);
        told(done, total);
    }
    end_clone(from, &Window { places, counts }, to, nonce).await
}

/// Steps 3 and 4. Tells how many bytes are in use.
pub(crate) async fn end_clone(
    from: &StoreDisk,
    window: &Window,
    to: &Bucket,
    nonce: &str,
) -> Result<u64, StoreFailure> {
    // 3. Another one may have made the same clone meanwhile, and somebody may use it. Looked at
    //    before, so that they are not disturbed; and again when nobody else can write to the map:
    //    whoever opens it behind that shuts us out.
    to.is_clone_of_ours(nonce).await?;
    let owner = Owner { cache: None, window: None, ..from.map.owner.clone() };
    let map = Map::of_clone(to).await?;
    let written = async {
        to.is_clone_of_ours(nonce).await?;
        for rows in window.places.chunks(ROWS_AT_ONCE) {
            let mut batch = WriteBatch::new();
            rows.iter().for_each(|(line, place)| batch.put_bytes(line_key(*line), place.encode()));
            map.write_large(batch, rows.len() * ROW_BYTES).await?;
        }
        let mut batch = WriteBatch::new();
        for (object, count) in &window.counts {
            batch.put_bytes(object.counts_key(), count.encode());
        }
        batch.put(OWNER_KEY, owner.encode());
        map.write_large(batch, window.counts.len() * ROW_BYTES).await
    };
    let written = written.await;
    map.close().await;
    written?;
    // 4. Two that come here have written the same.
    to.is_clone_of_ours(nonce).await?;
    to.end_clone(from.size_bytes(), nonce).await?;
    Ok(window.places.len() as u64 * LINE_BYTES as u64)
}
