//! The map in SlateDB: whose it is, rows, and batches that are durable at once or not at all.
//!
//! One writer: a claim opens SlateDB for writing, which fences whoever had it open, and then takes
//! the next epoch durably, and a name for this opening (`claim.rs`). Who is refused has fenced
//! nobody: the owner is looked up first by a reader.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use dcd_protocol::store::{
    CLOCKS_DIFFER_SECONDS, Claim, LEASE_SECONDS_MAX, LEASE_SECONDS_MIN, SnapshotName, StoreFailure,
    TakeOver, is_lease,
};
use futures::StreamExt;
use object_store::ObjectStore as _;
use slatedb::admin::Admin;
use slatedb::config::{
    CheckpointOptions, CheckpointScope, CloseOptions, CompactorOptions, FlushOptions, FlushType,
    GarbageCollectorOptions, Settings,
};
use slatedb::{CloseReason, Db, DbReader, DbReaderMode, ErrorKind, WriteBatch};

use crate::claim::Refusal;
use crate::contradiction;
use crate::format::{
    CLAIM_KEY, Claimed, FormatError, OWNER_KEY, Owner, STAGED_FROM, STAGED_TO, Snapshot,
    number_of_snapshot_key, number_of_staged_key,
};
use crate::objects::{Bucket, error_words, failure};
use crate::patience::map_patience;
use crate::snapshots::no_such_snapshot;

/// How somebody opens a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Access {
    /// To look.
    Read,
    /// To look at a snapshot.
    Snapshot(SnapshotName),
    /// To take and remove snapshots where no cache has it open.
    Maintain,
    /// To write, as this opening of a cache.
    Write(Claim),
}

impl Access {
    /// Whether what is open like that does for whoever wants `wanted`: what the two know of the
    /// store was compared when it was opened.
    pub(crate) fn does_for(&self, wanted: &Access) -> bool {
        match (self, wanted) {
            (Access::Write(_) | Access::Read, Access::Read) => true,
            (Access::Write(one), Access::Write(other)) => one.cache == other.cache,
            _ => false,
        }
    }
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
    /// The one that is read.
    pub snapshot: Option<Snapshot>,
    /// Which opening has it, as the store says or is to say with the next batch.
    claimed: Mutex<Option<Claimed>>,
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
        _ if contradiction::is_told_in(&words) => failure(words, contradiction::HINT),
        ErrorKind::Unavailable => StoreFailure {
            problem: words,
            hint: Some("check that the server answers".into()),
            is_silence: true,
            is_lost: false,
        },
        _ if words.contains(CLOCK_IS_BEHIND) => {
            failure(words, "the clock of this machine is behind that of the last writer: set it")
        }
        _ => failure(words, "`dcd store check` looks at all of it"),
    }
}

/// Who asks the map for something, which it may try for ever, waits as long as something of so many
/// bytes may take.
async fn bounded<T>(
    bucket: &Bucket,
    action: &str,
    bytes: u64,
    what: impl Future<Output = Result<T, slatedb::Error>>,
) -> Result<T, StoreFailure> {
    let patience = map_patience(bytes);
    // Those of SlateDB are large, and within others that are.
    match tokio::time::timeout(patience, Box::pin(what)).await {
        Ok(done) => done.map_err(|error| db_failure(bucket, action, &error)),
        Err(_) => {
            // It has answered, if not this: what it said is why.
            if let Some(trouble) = bucket.standing.trouble() {
                let problem = format!("cannot {action} the map (map/): {}", trouble.problem);
                let hint = Some(trouble.kind.hint().to_owned());
                return Err(StoreFailure { problem, hint, is_silence: true, is_lost: false });
            }
            let last =
                bucket.last_trouble.words().map_or(String::new(), |last| format!("; {last}"));
            let (name, seconds) = (bucket.name(), patience.as_secs());
            let problem = format!(
                "{name}: cannot {action} the map (map/): no answer within {seconds} s{last}"
            );
            let hint = Some("check that the server answers".into());
            Err(StoreFailure { problem, hint, is_silence: true, is_lost: false })
        }
    }
}

/// The same of an opening, which reads all that is in no table yet: as long as the server answers
/// something it goes on.
async fn opened<T>(
    bucket: &Bucket,
    what: impl Future<Output = Result<T, slatedb::Error>>,
) -> Result<T, StoreFailure> {
    let mut what = Box::pin(what);
    loop {
        let seen = bucket.last_trouble.answers();
        let done = bounded(bucket, "open", 0, &mut what).await;
        match done {
            Err(why) if why.is_silence && bucket.last_trouble.answers() != seen => {}
            done => return done,
        }
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

/// How SlateDB says that our clock is behind that of the last writer.
const CLOCK_IS_BEHIND: &str = "clock tick";
/// How often it is looked whether it is no more.
const CLOCK_TRIED_EVERY: Duration = Duration::from_secs(1);
/// How long.
const CLOCK_PATIENCE: Duration = Duration::from_secs(CLOCKS_DIFFER_SECONDS);
/// Rows in memory that are in no table yet, at most.
const TABLES_BYTES: u64 = 64 << 20;
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
    #[cfg(any(test, feature = "model"))]
    let db = match &bucket.simulated {
        Some(it) => db.with_system_clock(it.clock.clone()).with_seed((it.seed)()),
        None => db,
    };
    opened(bucket, db.build()).await
}

/// A map that was written by a clock ahead of ours takes nothing of ours for so long: its tables are
/// in the order of their times. That is found out when it is opened, or behind that.
#[derive(Default)]
struct Clocks {
    waited: Duration,
}

impl Clocks {
    /// Whether it is worth another attempt, a while later.
    async fn may_agree(&mut self, why: &StoreFailure) -> bool {
        let is_worth_it = why.problem.contains(CLOCK_IS_BEHIND) && self.waited < CLOCK_PATIENCE;
        if is_worth_it {
            tokio::time::sleep(CLOCK_TRIED_EVERY).await;
            self.waited += CLOCK_TRIED_EVERY;
        }
        is_worth_it
    }
}

async fn close_writer(bucket: &Bucket, db: &Db) -> Result<(), StoreFailure> {
    let options = CloseOptions::default().with_flush_type(Some(FlushType::Wal));
    bounded(bucket, "close", 0, db.close_with_options(options)).await
}

/// One that follows the latest writes nothing, and protects nothing from being collected.
async fn open_reader(bucket: &Bucket, mode: DbReaderMode) -> Result<DbReader, StoreFailure> {
    let reader = DbReader::builder(bucket.path("map"), bucket.store.clone());
    #[cfg(any(test, feature = "model"))]
    let reader = match &bucket.simulated {
        Some(it) => reader.with_system_clock(it.clock.clone()).with_seed((it.seed)()),
        None => reader,
    };
    opened(bucket, reader.with_reader_mode(mode).build()).await
}

fn admin(bucket: &Bucket) -> Admin {
    let admin = Admin::builder(bucket.path("map"), bucket.store.clone());
    #[cfg(any(test, feature = "model"))]
    let admin = match &bucket.simulated {
        Some(it) => admin.with_system_clock(it.clock.clone()).with_seed((it.seed)()),
        None => admin,
    };
    admin.build()
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

fn refusal(bucket: &Bucket, on_host: &str, refusal: Refusal) -> StoreFailure {
    let name = bucket.name();
    match refusal {
        Refusal::Leased { seconds } => leased(bucket, on_host, seconds),
        Refusal::Lost => StoreFailure {
            is_lost: true,
            ..failure(
                format!(
                    "{name}: another dcd has opened it since{on_host}, with a copy of this cache-disk or after a take-over: \
                     this one writes nothing there any more"
                ),
                LOST_HINT,
            )
        },
        Refusal::OlderCopy { expected, found } => failure(
            format!(
                "{name}: this cache-disk is an older copy: another one has had the store since (superblock {expected}, here \
                 {found})"
            ),
            "give the cache-disk that was in use last; --trust-disks goes on with this one: what was written since is lost \
             or mixed with what is old",
        ),
    }
}

/// What is left to whoever was shut out.
const LOST_HINT: &str = "trying again is of no use: this cache does not get it back. What is in its log and in no window is \
                         in no store: stop this dcd, then `dcd salvage --cache-disk CACHE-DISK --to FILE` brings it to a \
                         new file. Have only one copy of a cache-disk served";

/// Another cache has it, and this one had it before.
fn taken_over(bucket: &Bucket, owner: &Owner, on_host: &str) -> StoreFailure {
    let whose = match &owner.cache {
        Some(cache) => format!("it belongs to cache {cache} now{on_host}"),
        None => "it belongs to no cache any more".into(),
    };
    let (name, epoch) = (bucket.name(), owner.epoch);
    StoreFailure {
        is_lost: true,
        ..failure(
            format!(
                "{name}: another dcd has taken it over: {whose} (epoch {epoch}), and this one writes nothing there any more"
            ),
            LOST_HINT,
        )
    }
}

/// Somebody has a lease.
fn leased(bucket: &Bucket, on_host: &str, seconds: u64) -> StoreFailure {
    failure(
        format!(
            "{}: another dcd has it open{on_host}: its lease ends in {seconds} s, unless it is renewed",
            bucket.name()
        ),
        "stop that dcd, or wait for the end of its lease; if its machine is lost for certain, or a person has decided so, \
         --take-over=now shuts it out at once. What it has in its log and in no window is then not in the store",
    )
}

fn is_free(owner: &Owner, cache: Option<&str>, take_over: TakeOver) -> bool {
    take_over != TakeOver::No || owner.cache.is_none() || owner.cache.as_deref() == cache
}

impl Map {
    fn of(handle: Handle, bucket: &Bucket) -> Map {
        let (bucket, owner) = (bucket.clone(), Owner::default());
        let (claimed, since_table) = (Mutex::default(), AtomicU32::new(0));
        Map { handle, bucket, owner, snapshot: None, claimed, since_table }
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
        let reader = open_reader(bucket, DbReaderMode::FollowLatest).await?;
        let mut map = Map::of(Handle::Reader(Box::new(reader)), bucket);
        let looked_at = map.look_at_owner(access).await;
        if looked_at.is_err() || *access == Access::Read {
            return map.closed_unless(looked_at).await;
        }
        if let Access::Snapshot(name) = access {
            let found = map.mode_of(name).await;
            map.close().await;
            let (snapshot, mode) = found?;
            map.snapshot = Some(snapshot);
            map.handle = Handle::Reader(Box::new(open_reader(bucket, mode).await?));
            let looked_at = map.look_at_owner(access).await;
            return map.closed_unless(looked_at).await;
        }
        map.close().await;
        let mut clocks = Clocks::default();
        loop {
            match Map::of_claim(bucket, access).await {
                Err(why) if clocks.may_agree(&why).await => {}
                done => return done,
            }
        }
    }

    /// For whoever was let in.
    async fn of_claim(bucket: &Bucket, access: &Access) -> Result<Map, StoreFailure> {
        // 1. Whoever has it open writes no more.
        let mut map = Map::of(Handle::Writer(open_writer(bucket).await?), bucket);
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
        let claimed = self.read_claimed().await?;
        *self.claimed() = claimed.clone();
        let on_host = claimed.as_ref().map_or_else(String::new, Claimed::on_host);
        let claim = match access {
            Access::Read | Access::Snapshot(_) => return Ok(()),
            Access::Maintain => {
                return self.lease_left_seconds().map_or(Ok(()), |left| {
                    Err(failure(
                        format!(
                            "{}: a dcd has it open: its lease ends in {left} s, unless it is renewed",
                            self.bucket.name()
                        ),
                        "ask where that runs, with the same command, and --control if its control socket is not in /run/dcd: `dcd list`",
                    ))
                });
            }
            Access::Write(claim) => claim,
        };
        if self.owner.cache.as_ref() != Some(&claim.cache) {
            return Err(match claim.had {
                Some(_) => taken_over(&self.bucket, &self.owner, &on_host),
                None => belongs_to_other(&self.bucket, &self.owner),
            });
        }
        let now = self.bucket.unix_seconds();
        match claimed {
            Some(claimed) => {
                claimed.judge(claim, now).map_err(|why| refusal(&self.bucket, &on_host, why))
            }
            // Made or taken over since, and never opened.
            None if claim.had.is_some() => Err(refusal(&self.bucket, &on_host, Refusal::Lost)),
            None => Ok(()),
        }
    }

    async fn claim(&mut self, access: &Access) -> Result<(), StoreFailure> {
        self.look_at_owner(access).await?;
        let Access::Write(claim) = access else { return Ok(()) };
        // 2. An epoch of our own, for names of objects, and a name of this opening. Crash before:
        //    nobody has used one. Crash behind it: the daemon knows the name, and it fits.
        self.owner.epoch += 1;
        *self.claimed() = Some(Claimed {
            claim: claim.next.clone(),
            place: claim.place.clone(),
            generation: claim.generation,
            lease_seconds: self.owner.lease(),
            renewed_unix_seconds: 0,
            is_over: false,
            host: claim.host.clone(),
        });
        let mut batch = WriteBatch::new();
        self.put_claim(&mut batch);
        self.put_owner(batch).await
    }

    fn claimed(&self) -> MutexGuard<'_, Option<Claimed>> {
        self.claimed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which opening has it, or had it last.
    pub fn claim_name(&self) -> Option<String> {
        self.claimed().as_ref().map(|claimed| claimed.claim.clone())
    }

    /// Where that is, as the machine calls itself.
    pub fn host(&self) -> Option<String> {
        let on_host = self.claimed().as_ref().map(Claimed::on_host)?;
        on_host.strip_prefix(" on ").map(str::to_owned)
    }

    /// In so many seconds nobody has a lease any more, if somebody has.
    pub fn lease_left_seconds(&self) -> Option<u64> {
        let now = self.bucket.unix_seconds();
        let left = self.claimed().as_ref().map(|claimed| claimed.seconds_left(now));
        left.filter(|seconds| *seconds > 0)
    }

    /// With this batch the lease begins anew.
    pub fn put_claim(&self, batch: &mut WriteBatch) -> bool {
        let claimed = &mut *self.claimed();
        if let Some(claimed) = claimed {
            claimed.renewed_unix_seconds = self.bucket.unix_seconds();
            batch.put(CLAIM_KEY, claimed.encode());
        }
        claimed.is_some()
    }

    /// The cache-disk has this superblock.
    pub fn note_generation(&self, generation: u64) {
        if let Some(claimed) = &mut *self.claimed() {
            claimed.generation = claimed.generation.max(generation);
        }
    }

    /// Nobody waits for us any more.
    pub fn note_rest(&self) {
        if let Some(claimed) = &mut *self.claimed() {
            claimed.is_over = true;
        }
    }

    /// It belongs to another cache, or to none, with this batch: nothing is known of its openings.
    pub fn drop_claim(&self, batch: &mut WriteBatch) {
        *self.claimed() = None;
        batch.delete(CLAIM_KEY);
    }

    async fn read_claimed(&self) -> Result<Option<Claimed>, StoreFailure> {
        let bytes = self.get(CLAIM_KEY).await?;
        let decoded = bytes.map(|bytes| Claimed::decode(&bytes)).transpose();
        decoded.map_err(|error| self.bucket.nonsense("map/ (c)", &error))
    }

    /// Makes the map of a new store, or gives it another owner.
    pub async fn bind(
        bucket: &Bucket,
        cache: Option<&str>,
        take_over: TakeOver,
    ) -> Result<Owner, StoreFailure> {
        Map::bind_for(bucket, cache, take_over, None).await
    }

    /// The same, and its leases are so long from then on, if somebody has chosen.
    pub async fn bind_for(
        bucket: &Bucket,
        cache: Option<&str>,
        take_over: TakeOver,
        lease_seconds: Option<u64>,
    ) -> Result<Owner, StoreFailure> {
        if let Some(seconds) = lease_seconds.filter(|seconds| !is_lease(*seconds)) {
            return Err(failure(
                format!(
                    "{}: expected a lease of {LEASE_SECONDS_MIN} to {LEASE_SECONDS_MAX} s, found {seconds} s",
                    bucket.name()
                ),
                "",
            ));
        }
        // Whoever is refused disturbs nobody. By force nobody is: half a second less at a distance.
        if is_there(bucket).await? && (cache.is_none() || take_over != TakeOver::Now) {
            let map = Map::open(bucket, &Access::Read).await?;
            map.close().await;
            if cache.is_none() {
                return Ok(map.owner);
            }
            map.check_free(cache, take_over)?;
        }
        let mut clocks = Clocks::default();
        loop {
            match Map::of_owner(bucket, cache, take_over, lease_seconds).await {
                Err(why) if clocks.may_agree(&why).await => {}
                done => return done,
            }
        }
    }

    async fn of_owner(
        bucket: &Bucket,
        cache: Option<&str>,
        take_over: TakeOver,
        lease_seconds: Option<u64>,
    ) -> Result<Owner, StoreFailure> {
        let mut map = Map::of(Handle::Writer(open_writer(bucket).await?), bucket);
        let given = map.give_to(cache, take_over, lease_seconds).await;
        map.close().await;
        given.map(|()| map.owner)
    }

    /// The map of a clone that is being made: nobody else has it.
    pub async fn of_clone(bucket: &Bucket) -> Result<Map, StoreFailure> {
        Ok(Map::of(Handle::Writer(open_writer(bucket).await?), bucket))
    }

    fn check_free(&self, cache: Option<&str>, take_over: TakeOver) -> Result<(), StoreFailure> {
        if !is_free(&self.owner, cache, take_over) {
            return Err(belongs_to_other(&self.bucket, &self.owner));
        }
        match self.lease_left_seconds() {
            Some(seconds) if take_over != TakeOver::Now => Err(self.leased(seconds)),
            _ => Ok(()),
        }
    }

    fn leased(&self, seconds: u64) -> StoreFailure {
        let on_host = self.claimed().as_ref().map_or_else(String::new, Claimed::on_host);
        leased(&self.bucket, &on_host, seconds)
    }

    async fn give_to(
        &mut self,
        cache: Option<&str>,
        take_over: TakeOver,
        lease_seconds: Option<u64>,
    ) -> Result<(), StoreFailure> {
        // Whoever had it open may have renewed its lease until now.
        self.look_at_owner(&Access::Read).await?;
        self.check_free(cache, take_over)?;
        // What another cache has staged goes with its log; in the same batch, so that no owner
        // ever has the changes of another.
        let mut batch = WriteBatch::new();
        for (key, _) in self.scan(&STAGED_FROM, &STAGED_TO).await? {
            number_of_staged_key(&key).map_err(|error| self.bucket.nonsense("map/ (s)", &error))?;
            batch.delete(&key);
        }
        self.drop_claim(&mut batch);
        self.owner.cache = cache.map(str::to_owned);
        self.owner.lease_seconds = lease_seconds.or(self.owner.lease_seconds);
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
        let found = async {
            match &self.handle {
                Handle::Reader(reader) => reader.get(key).await,
                Handle::Writer(db) => db.get(key).await,
            }
        };
        bounded(&self.bucket, "read", 0, found).await
    }

    pub async fn scan(&self, from: &[u8], to: &[u8]) -> Result<Vec<(Bytes, Bytes)>, StoreFailure> {
        let range: Range<Bytes> = Bytes::copy_from_slice(from)..Bytes::copy_from_slice(to);
        let mut found = Vec::new();
        let rows = async {
            match &self.handle {
                Handle::Reader(reader) => reader.scan(range).await,
                Handle::Writer(db) => db.scan(range).await,
            }
        };
        let mut rows = bounded(&self.bucket, "read", 0, rows).await?;
        while let Some(row) = bounded(&self.bucket, "read", 0, rows.next()).await? {
            found.push((row.key, row.value));
        }
        Ok(found)
    }

    /// A batch of some rows.
    pub async fn write(&self, batch: WriteBatch) -> Result<(), StoreFailure> {
        self.write_large(batch, 0).await
    }

    /// Durable when it has ended well. If not, nobody knows: the map is to be opened anew.
    pub async fn write_large(&self, batch: WriteBatch, bytes: usize) -> Result<(), StoreFailure> {
        let Handle::Writer(db) = &self.handle else {
            return Err(failure(format!("{}: opened to be read", self.bucket.name()), ""));
        };
        let written = async {
            let written = db.write(batch).await?;
            db.flush_with_options(FlushOptions { flush_type: FlushType::Wal }).await?;
            written.await_durable().await
        };
        bounded(&self.bucket, "write", bytes as u64, written).await?;
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

    /// Keeps the rows that are durable as they are, under this name.
    pub async fn keep_rows(&self, name: &str) -> Result<(), StoreFailure> {
        let Handle::Writer(db) = &self.handle else {
            return Err(failure(format!("{}: opened to be read", self.bucket.name()), ""));
        };
        let name = Some(name.to_owned());
        let options = CheckpointOptions { name, ..CheckpointOptions::default() };
        let kept = db.create_checkpoint(CheckpointScope::Durable, &options);
        // Before that it writes tables of what is in none yet.
        bounded(&self.bucket, "keep", TABLES_BYTES, kept).await.map(|_| ())
    }

    /// Names of what is kept.
    pub async fn kept_rows(&self) -> Result<Vec<String>, StoreFailure> {
        let admin = admin(&self.bucket);
        let kept = bounded(&self.bucket, "read", 0, admin.list_checkpoints(None)).await?;
        Ok(kept.into_iter().filter_map(|it| it.name).collect())
    }

    /// Keeps them no more.
    pub async fn drop_rows(&self, name: &str) -> Result<(), StoreFailure> {
        let admin = admin(&self.bucket);
        let kept = bounded(&self.bucket, "read", 0, admin.list_checkpoints(Some(name))).await?;
        for checkpoint in kept {
            let dropped = admin.delete_checkpoint(checkpoint.id);
            bounded(&self.bucket, "change", 0, dropped).await?;
        }
        Ok(())
    }

    /// How a snapshot is read.
    async fn mode_of(&self, name: &SnapshotName) -> Result<(Snapshot, DbReaderMode), StoreFailure> {
        let snapshots = self.rows(b'n', number_of_snapshot_key, Snapshot::decode).await?;
        let Some(found) = snapshots.values().find(|it| it.name == name.as_str()) else {
            let there: Vec<&str> = snapshots.values().map(|it| it.name.as_str()).collect();
            return Err(no_such_snapshot(self.bucket.name(), name, &there));
        };
        let admin = admin(&self.bucket);
        let kept = admin.list_checkpoints(Some(&found.checkpoint));
        let kept = bounded(&self.bucket, "read", 0, kept).await?;
        let kept = kept.first().ok_or_else(|| {
            failure(
                format!("{}: the rows of snapshot {name} are gone", self.bucket.name()),
                "remove it: dcd store snapshot remove",
            )
        })?;
        Ok((found.clone(), DbReaderMode::Checkpoint(kept.id)))
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
