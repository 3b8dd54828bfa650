//! Room of data objects of which little is in use.
//!
//! ```text
//! 1. Lines in use of the poorest objects are written to new ones. Crash: objects nobody knows of.
//! 2. One batch names their new places: contents do not change. Crash before: nothing happened.
//! 3. Objects without a line in use, and that no snapshot keeps, are deleted a while later, for those
//!    who have just looked up where a line is. Crash: they are on the list (g) yet.
//! ```
//! What nobody knows of, which crashes have left, is found by listing the names of older epochs:
//! no writer that could still use one gets anything into the map.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use dcd_block::checksum::crc32c;
use dcd_protocol::store::StoreFailure;
use futures::{StreamExt, TryStreamExt, stream};
use slatedb::WriteBatch;

use crate::disk::{ROW_BYTES, StoreDisk, Window};
use crate::format::{
    Counts, LINE_BYTES, OBJECT_LINES, ObjectId, Place, decode_object, encode_object, line_key,
};
use crate::objects::failure;

/// From so much garbage on room is made.
const GARBAGE_PERCENT: u64 = 25;
/// Objects that are emptied at once.
const OBJECTS_AT_ONCE: usize = 4;
/// Objects without a line in use that are deleted before their rows are, ...
const DELETES_AT_ONCE: usize = 64;
/// ... so many at the same time.
const DELETES_UNDER_WAY: usize = 8;
/// How long an object without a line in use stays, in seconds.
const GRACE_SECONDS: u64 = 60;

impl StoreDisk {
    /// Makes room, a piece at a time. Tells whether there is more to do.
    ///
    /// # Errors
    /// If the store does not do what is asked. Nothing is lost then.
    pub async fn collect(&self) -> Result<bool, StoreFailure> {
        self.collect_with(GRACE_SECONDS).await
    }

    pub(crate) async fn collect_with(&self, grace_seconds: u64) -> Result<bool, StoreFailure> {
        if let Some(why) = self.broken() {
            return Err(why);
        }
        let now = self.bucket.unix_seconds();
        let due: Vec<ObjectId> = {
            let committed = self.order.lock().await;
            let gone = committed.gone.iter();
            gone.filter(|(object, gone)| {
                now.saturating_sub(committed.unneeded_since(**gone)) >= grace_seconds
                    && !committed.keeps(**object, **gone)
            })
            .map(|(object, _)| *object)
            .take(DELETES_AT_ONCE)
            .collect()
        };
        // Nobody takes them into use again, so flushes need not wait for that.
        self.delete_all(&due).await?;
        let mut committed = self.order.lock().await;
        let mut batch = WriteBatch::new();
        due.iter().for_each(|object| batch.delete(object.gone_key()));
        let counts = &committed.counts;
        let lines: u64 = counts.values().map(|it| u64::from(it.lines)).sum();
        let live: u64 = counts.values().map(|it| u64::from(it.live)).sum();
        let mut poorest = Vec::new();
        if (lines - live) * 100 > lines * GARBAGE_PERCENT {
            poorest.extend(counts.iter().map(|(object, it)| (*object, *it)));
            poorest.sort_by_key(|(_, it)| (u64::from(it.live) << 16) / u64::from(it.lines.max(1)));
            poorest.truncate(OBJECTS_AT_ONCE);
        }
        if due.is_empty() && poorest.is_empty() {
            return Ok(false);
        }
        // 1.
        let mut moved: Vec<(u64, Bytes)> = Vec::new();
        let mut new: BTreeMap<ObjectId, Counts> = BTreeMap::new();
        for (object, count) in &poorest {
            moved.extend(self.lines_in_use(*object, *count).await?);
            new.insert(*object, Counts { live: 0, ..*count });
        }
        let bytes = moved.len() * ROW_BYTES;
        for lines in moved.chunks(OBJECT_LINES) {
            let object = self.new_object();
            let (bytes, places) = encode_object(object, lines);
            self.bucket.put_data(object, bytes).await?;
            for (line, place) in places {
                batch.put_bytes(line_key(line), place.encode());
            }
            let lines = lines.len() as u32;
            new.insert(object, Counts { lines, live: lines });
        }
        // 2.
        let gone = committed.put_counts(&mut batch, &new, now);
        self.map.write_large(batch, bytes).await.map_err(|why| self.break_down(why))?;
        committed.gone.retain(|object, _| !due.contains(object));
        committed.apply(new, gone);
        Ok(!poorest.is_empty() || due.len() == DELETES_AT_ONCE)
    }

    async fn delete_all(&self, objects: &[ObjectId]) -> Result<(), StoreFailure> {
        let deletes: Vec<_> = objects.iter().map(|object| self.bucket.delete(*object)).collect();
        stream::iter(deletes).buffer_unordered(DELETES_UNDER_WAY).try_collect().await
    }

    async fn lines_in_use(
        &self,
        object: ObjectId,
        count: Counts,
    ) -> Result<Vec<(u64, Bytes)>, StoreFailure> {
        let name = object.name();
        let bytes = self.bucket.get(&name).await?;
        let places = decode_object(object, &bytes);
        let places = places.map_err(|error| self.bucket.nonsense(&name, &error))?;
        let wanted: BTreeSet<u64> = places.iter().map(|(line, _)| *line).collect();
        let known = self.places_of(&wanted).await?;
        let mut lines = Vec::new();
        for (line, place) in places {
            if known.get(&line) != Some(&place) {
                continue;
            }
            let start = place.index as usize * LINE_BYTES;
            let content = bytes.slice(start..start + LINE_BYTES);
            if crc32c(&content) != place.crc {
                let problem = format!("{}: line {line} in {name} is damaged", self.bucket.name());
                return Err(failure(problem, "restore the object from a version of the bucket"));
            }
            lines.push((line, content));
        }
        match lines.len() == count.live as usize {
            true => Ok(lines),
            false => Err(failure(
                format!(
                    "{}: {} lines of {name} are in use, and {} are counted",
                    self.bucket.name(),
                    lines.len(),
                    count.live
                ),
                "`dcd store check` looks at all of it; nothing was changed",
            )),
        }
    }

    /// Deletes what crashes have left of older epochs. Tells how many objects that were.
    ///
    /// # Errors
    /// If the store does not do what is asked.
    pub async fn sweep(&self) -> Result<usize, StoreFailure> {
        self.drop_stray_checkpoints().await?;
        let there = self.bucket.data_objects().await?;
        let epoch = self.map.owner.epoch;
        let unknown: Vec<ObjectId> = {
            let committed = self.order.lock().await;
            let layers = self.layers();
            let is_known = |object: &ObjectId| {
                committed.counts.contains_key(object)
                    || committed.gone.contains_key(object)
                    || layers.new_objects.contains_key(object)
            };
            there.into_iter().filter(|object| object.epoch < epoch && !is_known(object)).collect()
        };
        // Of these epochs nothing becomes known any more.
        self.delete_all(&unknown).await?;
        Ok(unknown.len())
    }

    /// Looks at everything: each line of the map against its object, and the counts. Tells what
    /// is wrong; most of what is read is the data.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn check(&self) -> Result<Vec<String>, StoreFailure> {
        let Window { places, counts } = self.window().await?;
        let mut live: BTreeMap<ObjectId, BTreeMap<u64, Place>> = BTreeMap::new();
        for (line, place) in places {
            live.entry(place.object).or_default().insert(line, place);
        }
        let mut problems = Vec::new();
        for (object, count) in &counts {
            let lines = live.get(object).map_or(0, BTreeMap::len);
            if lines != count.live as usize {
                problems.push(format!(
                    "{}: the map names {lines} lines, and {} are counted",
                    object.name(),
                    count.live
                ));
            }
        }
        for (object, lines) in &live {
            let name = object.name();
            let bytes = match self.bucket.get(&name).await {
                Ok(bytes) => bytes,
                Err(why) if !why.is_silence => {
                    // A later window may have given it up.
                    if self.map.get(&object.counts_key()).await?.is_some() {
                        problems.push(why.problem);
                    }
                    continue;
                }
                Err(why) => return Err(why),
            };
            match decode_object(*object, &bytes) {
                Err(error) => problems.push(format!("{name}: {error}")),
                Ok(places) => {
                    let has: BTreeSet<(u64, u32)> =
                        places.iter().map(|(line, place)| (*line, place.index)).collect();
                    for (line, place) in lines {
                        let start = place.index as usize * LINE_BYTES;
                        let content = bytes.get(start..start + LINE_BYTES);
                        let is_whole = content.is_some_and(|it| crc32c(it) == place.crc);
                        if !is_whole || !has.contains(&(*line, place.index)) {
                            problems.push(format!("{name}: line {line} is damaged or not in it"));
                        }
                    }
                }
            }
        }
        Ok(problems)
    }
}
