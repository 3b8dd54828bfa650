//! The map in SlateDB: whose it is, rows, and batches that are durable at once or not at all.
//!
//! One writer: a claim opens SlateDB for writing, which fences whoever had it open, and then takes
//! the next epoch durably. Who is refused has fenced nobody: the owner is looked up first by a
//! reader.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use dcd_protocol::store::StoreFailure;
use futures::StreamExt;
use object_store::ObjectStore as _;
use slatedb::config::{
    CloseOptions, CompactorOptions, FlushOptions, FlushType, GarbageCollectorOptions, Settings,
};
use slatedb::{CloseReason, Db, DbReader, DbReaderMode, ErrorKind, WriteBatch};

use crate::format::{FormatError, OWNER_KEY, Owner, STAGED_FROM, STAGED_TO, number_of_staged_key};
use crate::objects::{Bucket, error_words, failure};

/// How somebody opens a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Access {
    /// To look.
    Read,
    /// To write, as the cache of this UUID.
    Write(String),
}

enum Handle {
    Reader(Box<DbReader>),
    Writer(Db),
}

/// See the module.
pub struct Map {
    handle: Handle,
    bucket: Bucket,
    pub owner: Owner,
    /// Batches since the last table of the map was begun.
    since_table: AtomicU32,
}

fn db_failure(bucket: &Bucket, action: &str, error: &slatedb::Error) -> StoreFailure {
    let words =
        format!("{}: cannot {action} the map (map/): {}", bucket.name(), error_words(error));
    match error.kind() {
        ErrorKind::Closed(CloseReason::Fenced) => failure(
            format!("{}: somebody else has opened it for writing", bucket.name()),
            "see with `dcd store info` whose it is; what is in this log and in no window stays there",
        ),
        ErrorKind::Unavailable => StoreFailure {
            problem: words,
            hint: Some("check that the server answers".into()),
            is_silence: true,
        },
        _ if words.contains("clock tick") => {
            failure(words, "the clock of this machine is behind that of the last writer: set it")
        }
        _ => failure(words, "`dcd store check` looks at all of it"),
    }
}

async fn is_there(bucket: &Bucket) -> Result<bool, StoreFailure> {
    let directory = bucket.path("map/manifest");
    match bucket.store.list(Some(&directory)).next().await {
        None => Ok(false),
        Some(Ok(_)) => Ok(true),
        Some(Err(error)) => Err(bucket.trouble("list", "map/manifest/", &error)),
    }
}

/// Batches that whoever opens the map next reads one by one, each by a request of its own.
const REPLAYED_MAX: u32 = 32;
/// Room of SlateDB's own objects is given back after this time, by the clock of this machine: one
/// that goes wrong by less makes nobody delete what was just written.
const COLLECT_AFTER: Duration = Duration::from_secs(3600);

fn collector() -> GarbageCollectorOptions {
    let mut options = GarbageCollectorOptions::default();
    let directories = [
        &mut options.manifest_options,
        &mut options.wal_options,
        &mut options.wal_fence_options,
        &mut options.compacted_options,
        &mut options.compactions_options,
    ];
    directories.into_iter().flatten().for_each(|directory| directory.min_age = COLLECT_AFTER);
    options
}

async fn open_writer(bucket: &Bucket) -> Result<Db, StoreFailure> {
    let settings = Settings {
        // Each batch is flushed by whoever waits for it.
        flush_interval: Some(Duration::from_millis(100)),
        manifest_poll_interval: Duration::from_secs(5),
        compactor_options: Some(CompactorOptions::default()),
        garbage_collector_options: Some(collector()),
        ..Settings::default()
    };
    let db = Db::builder(bucket.path("map"), bucket.store.clone()).with_settings(settings);
    #[cfg(test)]
    let db = match &bucket.clock {
        Some(clock) => db.with_system_clock(clock.clone()),
        None => db,
    };
    db.build().await.map_err(|error| db_failure(bucket, "open", &error))
}

async fn close_writer(bucket: &Bucket, db: &Db) -> Result<(), StoreFailure> {
    let options = CloseOptions::default().with_flush_type(Some(FlushType::Wal));
    let closed = db.close_with_options(options).await;
    closed.map_err(|error| db_failure(bucket, "close", &error))
}

async fn open_reader(bucket: &Bucket) -> Result<DbReader, StoreFailure> {
    // It writes nothing, and protects nothing from being collected.
    let reader = DbReader::builder(bucket.path("map"), bucket.store.clone())
        .with_reader_mode(DbReaderMode::FollowLatest);
    reader.build().await.map_err(|error| db_failure(bucket, "open", &error))
}

fn belongs_to_other(bucket: &Bucket, owner: &Owner) -> StoreFailure {
    match &owner.cache {
        Some(cache) => failure(
            format!("{}: it belongs to cache {cache} (epoch {})", bucket.name(), owner.epoch),
            "serve that cache; if it is lost, `dcd create --take-over` makes a new one for the store, which begins at the \
             end of the last window",
        ),
        None => failure(
            format!("{}: it belongs to no cache", bucket.name()),
            "`dcd create --data-disk s3://...` makes a cache for it",
        ),
    }
}

fn is_free(owner: &Owner, cache: Option<&str>, take_over: bool) -> bool {
    take_over || owner.cache.is_none() || owner.cache.as_deref() == cache
}

impl Map {
    fn of(handle: Handle, bucket: &Bucket) -> Map {
        let (bucket, owner) = (bucket.clone(), Owner::default());
        Map { handle, bucket, owner, since_table: AtomicU32::new(0) }
    }

    /// # Errors
    /// If there is none, or it belongs to somebody else.
    pub async fn open(bucket: &Bucket, access: &Access) -> Result<Map, StoreFailure> {
        if !is_there(bucket).await? {
            return Err(failure(
                format!("{}: its map is missing: it was never made to the end", bucket.name()),
                "`dcd create --size` makes it",
            ));
        }
        let reader = Handle::Reader(Box::new(open_reader(bucket).await?));
        let mut map = Map::of(reader, bucket);
        let looked_at = map.look_at_owner(access).await;
        if looked_at.is_err() || *access == Access::Read {
            return map.closed_unless(looked_at).await;
        }
        map.close().await;
        // 1. Whoever has it open writes no more.
        map.handle = Handle::Writer(open_writer(bucket).await?);
        let claimed = map.claim(access).await;
        map.closed_unless(claimed).await
    }

    /// A handle that nobody has goes on asking for its manifest.
    async fn closed_unless(self, done: Result<(), StoreFailure>) -> Result<Map, StoreFailure> {
        match done {
            Ok(()) => Ok(self),
            Err(why) => {
                self.close().await;
                Err(why)
            }
        }
    }

    async fn look_at_owner(&mut self, access: &Access) -> Result<(), StoreFailure> {
        self.owner = self.read_owner().await?;
        match access {
            Access::Write(cache) if self.owner.cache.as_ref() != Some(cache) => {
                Err(belongs_to_other(&self.bucket, &self.owner))
            }
            _ => Ok(()),
        }
    }

    async fn claim(&mut self, access: &Access) -> Result<(), StoreFailure> {
        self.look_at_owner(access).await?;
        // 2. An epoch of our own, for names of objects. Crash before: nobody has used one.
        self.owner.epoch += 1;
        self.put_owner(WriteBatch::new()).await
    }

    /// Makes the map of a new store, or gives it another owner.
    pub async fn bind(
        bucket: &Bucket,
        cache: Option<&str>,
        take_over: bool,
    ) -> Result<Owner, StoreFailure> {
        let is_free = |owner: &Owner| is_free(owner, cache, take_over);
        if is_there(bucket).await? {
            let map = Map::open(bucket, &Access::Read).await?;
            map.close().await;
            if cache.is_some() && !is_free(&map.owner) {
                return Err(belongs_to_other(bucket, &map.owner));
            }
            if cache.is_none() {
                return Ok(map.owner);
            }
        }
        let handle = Handle::Writer(open_writer(bucket).await?);
        let mut map = Map::of(handle, bucket);
        let given = map.give_to(cache, take_over).await;
        map.close().await;
        given.map(|()| map.owner)
    }

    async fn give_to(&mut self, cache: Option<&str>, take_over: bool) -> Result<(), StoreFailure> {
        self.owner = self.read_owner().await?;
        if !is_free(&self.owner, cache, take_over) {
            return Err(belongs_to_other(&self.bucket, &self.owner));
        }
        // What another cache has staged goes with its log; in the same batch, so that no owner
        // ever has the changes of another.
        let mut batch = WriteBatch::new();
        for (key, _) in self.scan(&STAGED_FROM, &STAGED_TO).await? {
            number_of_staged_key(&key).map_err(|error| self.bucket.nonsense("map/ (s)", &error))?;
            batch.delete(&key);
        }
        self.owner.cache = cache.map(str::to_owned);
        self.owner.epoch += 1;
        self.put_owner(batch).await
    }

    async fn read_owner(&self) -> Result<Owner, StoreFailure> {
        match self.get(OWNER_KEY).await? {
            None => Ok(Owner::default()),
            Some(bytes) => {
                Owner::decode(&bytes).map_err(|error| self.bucket.nonsense("map/ (b)", &error))
            }
        }
    }

    /// The batch, and the owner as it is now, durable at once.
    pub async fn put_owner(&self, mut batch: WriteBatch) -> Result<(), StoreFailure> {
        batch.put(OWNER_KEY, self.owner.encode());
        self.write(batch).await
    }

    pub fn is_writer(&self) -> bool {
        matches!(self.handle, Handle::Writer(_))
    }

    pub async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreFailure> {
        let found = match &self.handle {
            Handle::Reader(reader) => reader.get(key).await,
            Handle::Writer(db) => db.get(key).await,
        };
        found.map_err(|error| db_failure(&self.bucket, "read", &error))
    }

    pub async fn scan(&self, from: &[u8], to: &[u8]) -> Result<Vec<(Bytes, Bytes)>, StoreFailure> {
        let failed = |error| db_failure(&self.bucket, "read", &error);
        let range: Range<Bytes> = Bytes::copy_from_slice(from)..Bytes::copy_from_slice(to);
        let mut found = Vec::new();
        let rows = match &self.handle {
            Handle::Reader(reader) => reader.scan(range).await,
            Handle::Writer(db) => db.scan(range).await,
        };
        let mut rows = rows.map_err(failed)?;
        while let Some(row) = rows.next().await.map_err(failed)? {
            found.push((row.key, row.value));
        }
        Ok(found)
    }

    /// Durable when it has ended well. If not, nobody knows: the map is to be opened anew.
    pub async fn write(&self, batch: WriteBatch) -> Result<(), StoreFailure> {
        let failed = |error| db_failure(&self.bucket, "write", &error);
        let Handle::Writer(db) = &self.handle else {
            return Err(failure(format!("{}: opened to be read", self.bucket.name()), ""));
        };
        let written = db.write(batch).await.map_err(failed)?;
        db.flush_with_options(FlushOptions { flush_type: FlushType::Wal }).await.map_err(failed)?;
        written.await_durable().await.map_err(failed)?;
        if self.since_table.fetch_add(1, Ordering::Relaxed) + 1 >= REPLAYED_MAX {
            self.since_table.store(0, Ordering::Relaxed);
            let db = db.clone();
            // Nobody waits for it: what is in it is durable. If it fails, so does the next batch.
            tokio::spawn(async move {
                let options = FlushOptions { flush_type: FlushType::MemTable };
                let _ = db.flush_with_options(options).await;
            });
        }
        Ok(())
    }

    pub async fn close(&self) {
        // Nothing is asked of it any more.
        match &self.handle {
            Handle::Reader(reader) => drop(reader.close().await),
            Handle::Writer(db) => drop(close_writer(&self.bucket, db).await),
        }
    }

    /// Rows of one kind, by their keys.
    pub async fn rows<K: Ord, V>(
        &self,
        kind: u8,
        key: impl Fn(&[u8]) -> Result<K, FormatError>,
        value: impl Fn(&[u8]) -> Result<V, FormatError>,
    ) -> Result<BTreeMap<K, V>, StoreFailure> {
        let name = format!("map/ ({})", char::from(kind));
        let rows = self.scan(&[kind], &[kind + 1]).await?;
        let decoded = rows.iter().map(|(k, v)| Ok((key(k)?, value(v)?)));
        let decoded: Result<_, FormatError> = decoded.collect();
        decoded.map_err(|error| self.bucket.nonsense(&name, &error))
    }
}
