//! A disk in a store that answers late, with errors although it has done what was asked, or not at
//! all, under crashes, with writers that are gone and do not know it, against a model:
//!
//! - what is read is what was written, as long as nobody has crashed;
//! - behind a crash each line is as of the last flush that was answered, or a later write of it;
//! - the store alone is what it was at the end of the last window, or of one that was in doubt;
//! - a writer that somebody came after changes nothing any more;
//! - a snapshot is what the store alone was when it was taken, until it is removed, and so is a clone;
//! - of two daemons that are the same cache one has the store: another start waits for its lease, and
//!   whoever lost it does not get it back by going on.
//!
//! All that is random comes from the seed, and time is simulated; only the order of tasks of
//! SlateDB is its own. `DCD_STORE_RUNS` runs more.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use slatedb_common::clock::DefaultSystemClock;

use dcd_protocol::store::{
    CLOCKS_DIFFER_SECONDS, Claim, LEASE_SECONDS, SNAPSHOTS_MAX, STORE_MESSAGE_BYTES_MAX,
    SnapshotName, StoreFailure, TakeOver,
};

use crate::cloning::{clone_store, end_clone};
use crate::disk::StoreDisk;
use crate::format::LINE_BYTES;
use crate::keeper::STACK_BYTES;
use crate::map::{Access, Map};
use crate::objects::Bucket;

const LINES: u64 = 96;

/// SplitMix64.
#[derive(Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn once_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// See the module. Errors are of the kind that says nothing about what was done.
#[derive(Debug)]
struct Unreliable {
    inner: InMemory,
    random: Mutex<u64>,
    /// One in so many goes wrong; 0: none.
    trouble: AtomicU64,
    /// Nothing is answered well at all.
    is_away: AtomicBool,
    puts: AtomicU64,
}

impl std::fmt::Display for Unreliable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a store in memory with troubles")
    }
}

#[derive(PartialEq)]
enum Fate {
    Well,
    /// Nothing is done.
    Nothing,
    /// It is done, and the answer is lost.
    Unanswered,
}

impl Unreliable {
    fn new(seed: u64) -> Unreliable {
        Unreliable {
            inner: InMemory::new(),
            random: Mutex::new(seed),
            trouble: AtomicU64::new(0),
            is_away: AtomicBool::new(false),
            puts: AtomicU64::new(0),
        }
    }

    async fn fate(&self) -> Fate {
        let (fate, late) = {
            let mut state = self.random.lock().unwrap();
            let mut random = Random(*state);
            let trouble = self.trouble.load(Ordering::Relaxed);
            let fate = match trouble {
                _ if self.is_away.load(Ordering::Relaxed) => Fate::Nothing,
                0 => Fate::Well,
                trouble if random.once_in(trouble) => match random.once_in(2) {
                    true => Fate::Nothing,
                    false => Fate::Unanswered,
                },
                _ => Fate::Well,
            };
            let late = if random.once_in(8) { random.below(300) } else { random.below(3) };
            *state = random.0;
            (fate, late)
        };
        tokio::time::sleep(Duration::from_millis(late)).await;
        fate
    }

    fn broken<T>() -> Result<T> {
        Err(Error::Generic { store: "test", source: "no answer".into() })
    }
}

#[async_trait]
impl ObjectStore for Unreliable {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let fate = self.fate().await;
        if fate == Fate::Nothing {
            return Unreliable::broken();
        }
        self.puts.fetch_add(1, Ordering::Relaxed);
        let done = self.inner.put_opts(location, payload, options).await;
        if fate == Fate::Unanswered { Unreliable::broken() } else { done }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        match self.fate().await {
            Fate::Well => self.inner.get_opts(location, options).await,
            _ => Unreliable::broken(),
        }
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        match self.fate().await {
            Fate::Well => self.inner.get_ranges(location, ranges).await,
            _ => Unreliable::broken(),
        }
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let fate = self.fate().await;
        if fate == Fate::Nothing {
            return Unreliable::broken();
        }
        let done = self.inner.copy_opts(from, to, options).await;
        if fate == Fate::Unanswered { Unreliable::broken() } else { done }
    }
}

/// A line by the number of its write; 0 is zeroes.
pub(crate) fn content(write: u64) -> Vec<u8> {
    match write {
        0 => vec![0; LINE_BYTES],
        write => write.to_be_bytes().repeat(LINE_BYTES / 8),
    }
}

pub(crate) fn write_of(bytes: &[u8]) -> u64 {
    let write = u64::from_be_bytes(bytes[..8].try_into().unwrap());
    assert_eq!(bytes, content(write), "a whole line");
    write
}

type State = BTreeMap<u64, u64>;

struct World {
    store: Arc<Unreliable>,
    bucket: Bucket,
    cache: String,
    /// What the daemon that has the store knows of it.
    claim: Claim,
    random: Random,
    writes: u64,
    /// As it is read.
    now: State,
    /// What a line may be behind a crash: as of the last flush, and what came later.
    possible: BTreeMap<u64, BTreeSet<u64>>,
    /// The store alone is one of these.
    committed: Vec<State>,
    windows: u64,
    /// By their names, what they may be.
    snapshots: BTreeMap<String, Vec<State>>,
    /// One that was in doubt when it was taken or removed.
    doubtful: Option<String>,
}

impl World {
    fn state_of(bytes: &[u8]) -> State {
        let lines = bytes.chunks(LINE_BYTES).zip(0..);
        lines.map(|(line, at)| (at, write_of(line))).filter(|(_, write)| *write > 0).collect()
    }

    /// Without troubles, which are for who writes.
    async fn quietly<T>(&self, what: impl Future<Output = T>) -> T {
        let trouble = self.store.trouble.swap(0, Ordering::Relaxed);
        let done = what.await;
        self.store.trouble.store(trouble, Ordering::Relaxed);
        done
    }

    /// A start somewhere, with the newest cache-disk.
    fn start(&mut self, place: &str) -> Claim {
        self.claim.generation += 1;
        let next = self.random.next().to_string();
        let (cache, place) = (self.cache.clone(), place.to_owned());
        let generation = self.claim.generation;
        Claim { cache, had: None, next, place, generation, trusts_disks: false, is_now: false }
    }

    /// What had the store open has died, and the daemon has it opened again.
    fn go_on(&mut self) -> Claim {
        let next = self.random.next().to_string();
        Claim { had: Some(self.claim.next.clone()), next, ..self.claim.clone() }
    }

    async fn refused(&self, claim: Claim, words: &str) {
        let access = Access::Write(claim.clone());
        let opening = StoreDisk::open(self.bucket.clone(), &access);
        let Err(why) = self.quietly(opening).await else { panic!("{claim:?} was let in") };
        assert!(why.problem.contains(words), "{words:?} in {why}");
        assert_eq!(why.is_lost, claim.had.is_some(), "{why}");
    }

    /// Others want what somebody has, and do not get it.
    async fn others_are_refused(&mut self, disk: &StoreDisk) {
        // What had it open does not tell that it has lost it.
        if disk.broken().is_some() {
            return;
        }
        let there = Claim { place: "there".into(), is_now: false, ..self.go_on() };
        let lost = Claim { had: Some("of another time".into()), is_now: true, ..there.clone() };
        self.refused(lost, "another dcd has opened it since").await;
        self.quietly(disk.renew()).await.unwrap();
        let start = Claim { had: None, ..there };
        self.refused(start.clone(), "another dcd has it open").await;
        let older = Claim { generation: self.claim.generation - 1, is_now: true, ..start };
        self.refused(older, "is an older copy").await;
    }

    async fn opened(&mut self) -> Arc<StoreDisk> {
        let before = self.claim.clone();
        self.claim = match self.random.below(8) {
            _ if before.cache != self.cache => self.start("here"),
            0 | 3 => self.start(&before.place),
            1 | 4 => Claim { is_now: true, ..self.start("elsewhere") },
            2 => {
                let patience = LEASE_SECONDS + CLOCKS_DIFFER_SECONDS;
                tokio::time::sleep(Duration::from_secs(patience)).await;
                self.snapshot_without_a_cache().await;
                self.start("far away")
            }
            _ => self.go_on(),
        };
        let disk = self.opened_as_it_is().await;
        let had = Some(before.next.clone()).filter(|had| Some(had) != self.claim.had.as_ref());
        if before.cache == self.cache && had.is_some() {
            // Whoever had it does not get it back, whatever the time.
            let going_on = Claim { had, next: "again".into(), ..before };
            self.refused(going_on, "another dcd has opened it since").await;
        }
        disk
    }

    async fn opened_as_it_is(&mut self) -> Arc<StoreDisk> {
        let access = Access::Write(self.claim.clone());
        let opened = StoreDisk::open(self.bucket.clone(), &access);
        let disk = self.quietly(opened).await.unwrap_or_else(|why| panic!("{why}"));
        let whole = self.quietly(disk.read(0, LINES as usize)).await.unwrap();
        let found = World::state_of(&whole);
        for line in 0..LINES {
            let write = found.get(&line).copied().unwrap_or(0);
            let may_be = self.possible.get(&line);
            let is_fine = may_be.map_or(write == 0, |may_be| may_be.contains(&write));
            assert!(is_fine, "line {line} is write {write}, expected one of {may_be:?}");
            self.possible.insert(line, BTreeSet::from([write]));
        }
        self.now = found;
        self.check_alone().await;
        self.settle_snapshots(&disk).await;
        disk
    }

    /// What was in doubt is seen.
    async fn settle_snapshots(&mut self, disk: &StoreDisk) {
        let there: BTreeSet<String> =
            disk.facts().await.snapshots.into_iter().map(|it| it.name).collect();
        if let Some(name) = self.doubtful.take()
            && !there.contains(&name)
        {
            self.snapshots.remove(&name);
        }
        assert!(there.iter().eq(self.snapshots.keys()), "{there:?}: {:?}", self.snapshots.keys());
    }

    /// Takes or removes one. `false`: the disk is of no more use.
    async fn change_snapshots(&mut self, disk: &StoreDisk) -> bool {
        let name = format!("s{}", self.random.below(4));
        let wanted: SnapshotName = name.parse().unwrap();
        let done = match self.snapshots.contains_key(&name) {
            false => {
                let done = disk.take_snapshot(&wanted, &self.random.next().to_string()).await;
                if done.is_ok() || disk.broken().is_some() {
                    self.snapshots.insert(name.clone(), self.committed.clone());
                }
                done
            }
            true => {
                let again = disk.take_snapshot(&wanted, "never").await;
                assert!(again.unwrap_err().problem.contains("already"));
                let done = disk.remove_snapshot(&wanted).await;
                if done.is_ok() {
                    self.snapshots.remove(&name);
                }
                done
            }
        };
        if done.is_err() && disk.broken().is_some() {
            self.doubtful = Some(name);
            return false;
        }
        true
    }

    /// Of a store that nobody has open, which is written to later.
    async fn snapshot_without_a_cache(&mut self) {
        let opened = StoreDisk::open(self.bucket.clone(), &Access::Maintain);
        let disk = self.quietly(opened).await.unwrap_or_else(|why| panic!("{why}"));
        self.settle_snapshots(&disk).await;
        self.check_alone().await;
        for name in ["s0", "s1"] {
            let wanted: SnapshotName = name.parse().unwrap();
            if self.snapshots.remove(name).is_some() {
                self.quietly(disk.remove_snapshot(&wanted)).await.unwrap();
            } else {
                let nonce = self.random.next().to_string();
                self.quietly(disk.take_snapshot(&wanted, &nonce)).await.unwrap();
                self.snapshots.insert(name.into(), self.committed.clone());
            }
        }
        self.quietly(disk.close()).await;
    }

    async fn check_snapshot(&mut self) {
        let name = format!("s{}", self.random.below(4));
        if self.doubtful.as_ref() == Some(&name) {
            return;
        }
        let access = Access::Snapshot(name.parse().unwrap());
        let opened = self.quietly(StoreDisk::open(self.bucket.clone(), &access)).await;
        let Some(states) = self.snapshots.get(&name).cloned() else {
            let Err(why) = opened else { panic!("{name} is not there") };
            assert!(why.problem.contains("there is no snapshot"), "{why}");
            return;
        };
        let reader = opened.unwrap_or_else(|why| panic!("{name}: {why}"));
        let found = self.alone(&reader).await;
        assert!(states.contains(&found), "{name}: {found:?} is not among {states:?}");
        self.snapshots.insert(name.clone(), vec![found.clone()]);
        if self.random.once_in(4) {
            self.check_clone(&reader, &name, &found).await;
        }
        self.quietly(reader.close()).await;
    }

    /// A clone is made again until it is there.
    async fn check_clone(&mut self, reader: &StoreDisk, name: &str, state: &State) {
        self.writes += 1;
        let path = Path::from(format!("clones/{}", self.writes));
        let mut to = Bucket::of("clone".into(), path, self.store.clone());
        to.clock.clone_from(&self.bucket.clock);
        to.on_server.clone_from(&self.bucket.on_server);
        while clone_store(reader, name, &to, "nonce", |_, _| {}).await.is_err() {
            // A part of a clone is no store; and the answer to the last write may be lost.
            if let Ok(clone) = self.quietly(StoreDisk::open(to.clone(), &Access::Read)).await {
                assert_eq!(self.alone(&clone).await, *state);
                self.quietly(clone.close()).await;
                break;
            }
        }
        let other = clone_store(reader, "of something else", &to, "nonce", |_, _| {});
        assert!(self.quietly(other).await.is_err(), "nothing is written over");
        // A store like any other: what is written there goes beside what it has.
        self.quietly(Map::bind(&to, Some("of the clone"), TakeOver::No)).await.unwrap();
        let access = Access::Write(claim_of("of the clone"));
        let clone = self.quietly(StoreDisk::open(to, &access)).await.unwrap();
        assert_eq!(self.alone(&clone).await, *state);
        self.quietly(clone.sweep()).await.unwrap();
        let mut state = state.clone();
        for line in [LINES - 1, 0] {
            self.quietly(clone.write(line, content(self.writes).into())).await.unwrap();
            self.quietly(clone.commit(line)).await.unwrap();
            state.insert(line, self.writes);
        }
        assert_eq!(self.alone(&clone).await, state);
        self.quietly(clone.close()).await;
    }

    async fn check_alone(&mut self) {
        let opened = StoreDisk::open(self.bucket.clone(), &Access::Read);
        let reader = self.quietly(opened).await.unwrap_or_else(|why| panic!("{why}"));
        let found = self.alone(&reader).await;
        assert!(self.committed.contains(&found), "{found:?} is not among {:?}", self.committed);
        self.committed = vec![found];
        self.quietly(reader.close()).await;
    }

    /// What a reader has, and that all of it is whole.
    async fn alone(&self, reader: &StoreDisk) -> State {
        let mut whole = vec![0; LINES as usize * LINE_BYTES];
        let window = self.quietly(reader.window()).await.unwrap();
        self.quietly(reader.fetch(0, window.places, &mut whole)).await.unwrap();
        let problems = self.quietly(reader.check()).await.unwrap();
        assert!(problems.is_empty(), "{problems:?}");
        World::state_of(&whole)
    }

    /// One request. `false`: the disk is of no more use.
    async fn step(&mut self, disk: &Arc<StoreDisk>) -> bool {
        let line = self.random.below(LINES);
        let count = (1 + self.random.below(12)).min(LINES - line);
        match self.random.below(27) {
            24..=25 => return self.change_snapshots(disk).await,
            26 => self.check_snapshot().await,
            0..=9 => {
                let mut bytes = Vec::new();
                for at in line..line + count {
                    self.writes += 1;
                    bytes.extend(content(self.writes));
                    self.possible.entry(at).or_default().insert(self.writes);
                }
                let first = self.writes + 1 - count;
                match disk.write(line, bytes.into()).await {
                    Ok(()) => {
                        self.now.extend((line..line + count).zip(first..));
                    }
                    // It may wait for room in vain: nothing of it was taken.
                    Err(_) => return disk.broken().is_none(),
                }
            }
            10..=11 => {
                if disk.zero(line, count).is_err() {
                    return false;
                }
                for at in line..line + count {
                    self.now.remove(&at);
                    self.possible.entry(at).or_default().insert(0);
                }
            }
            12..=15 => {
                if let Ok(bytes) = disk.read(line, count as usize).await {
                    for (at, found) in (line..).zip(bytes.chunks(LINE_BYTES)) {
                        let expected = self.now.get(&at).copied().unwrap_or(0);
                        assert_eq!(write_of(found), expected, "line {at}");
                    }
                }
            }
            16..=19 => match disk.flush().await {
                Ok(()) => self.settle(),
                Err(_) => return disk.broken().is_none(),
            },
            20..=21 => {
                self.windows += 1;
                let done = disk.commit(self.windows).await;
                if done.is_ok() {
                    self.settle();
                    self.committed = vec![self.now.clone()];
                    self.check_alone().await;
                } else {
                    // Flushed and committed, or not.
                    self.committed.push(self.now.clone());
                    if disk.broken().is_some() {
                        return false;
                    }
                    // Nothing was asked of the map yet, or this is settled by the next one.
                }
            }
            _ => match disk.collect_with(0).await {
                Ok(_) => {}
                Err(_) => return disk.broken().is_none(),
            },
        }
        true
    }

    /// All that is read now is durable.
    fn settle(&mut self) {
        for line in 0..LINES {
            let write = self.now.get(&line).copied().unwrap_or(0);
            self.possible.insert(line, BTreeSet::from([write]));
        }
    }
}

/// A new store that belongs to this cache.
async fn new_store(store: Arc<dyn ObjectStore>, cache: &str) -> Bucket {
    let mut bucket = Bucket::of("test".into(), Path::from("a/b"), store);
    bucket.clock = Some(Arc::new(DefaultSystemClock::new()));
    assert!(bucket.create(LINES * LINE_BYTES as u64, "nonce").await.unwrap());
    Map::bind(&bucket, Some(cache), TakeOver::No).await.unwrap();
    bucket
}

pub(crate) fn claim_of(cache: &str) -> Claim {
    Claim {
        cache: cache.into(),
        had: None,
        next: format!("of {cache}"),
        place: "here".into(),
        generation: 1,
        trusts_disks: false,
        is_now: false,
    }
}

async fn run(seed: u64) {
    let mut random = Random(seed);
    let store = Arc::new(Unreliable::new(random.next()));
    let mut bucket = Bucket::of("test".into(), Path::from("a/b"), store.clone());
    bucket.clock = Some(Arc::new(DefaultSystemClock::new()));
    // Of every second one the server copies objects.
    bucket.on_server = seed.is_multiple_of(2).then(|| "bucket".into());
    assert!(bucket.create(LINES * LINE_BYTES as u64, "nonce").await.unwrap());
    Map::bind(&bucket, None, TakeOver::No).await.unwrap();
    Map::bind(&bucket, Some("first"), TakeOver::No).await.unwrap();
    let mut world = World {
        store,
        bucket,
        cache: "first".into(),
        claim: claim_of("of nobody"),
        random,
        writes: 0,
        now: State::new(),
        possible: BTreeMap::new(),
        committed: vec![State::new()],
        windows: 0,
        snapshots: BTreeMap::new(),
        doubtful: None,
    };
    let mut zombies: Vec<Arc<StoreDisk>> = Vec::new();
    for life in 0..6 {
        let disk = world.opened().await;
        let swept = world.quietly(disk.sweep()).await;
        swept.unwrap();
        let trouble = [0, 40, 12][world.random.below(3) as usize];
        world.store.trouble.store(trouble, Ordering::Relaxed);
        for _ in 0..10 + world.random.below(60) {
            // Those who are gone and do not know it.
            if world.random.once_in(8)
                && let Some(zombie) = zombies.last()
            {
                if world.random.once_in(2) {
                    let _ = zombie.write(0, content(u64::MAX - life).into()).await;
                    assert!(zombie.flush().await.is_err(), "seed {seed}: it may write no more");
                }
                assert!(zombie.commit(u64::MAX).await.is_err(), "seed {seed}");
            }
            // A cache that was taken over comes back, is refused, and disturbs nobody.
            if world.cache != "first" && world.random.once_in(8) {
                let access = Access::Write(claim_of("first"));
                let old = StoreDisk::open(world.bucket.clone(), &access);
                assert!(world.quietly(old).await.is_err(), "seed {seed}: another owner");
                world
                    .quietly(disk.flush())
                    .await
                    .unwrap_or_else(|why| panic!("seed {seed}: {why}"));
                world.settle();
            }
            if world.random.once_in(16) {
                world.others_are_refused(&disk).await;
            }
            if !world.step(&disk).await {
                break;
            }
        }
        world.store.trouble.store(0, Ordering::Relaxed);
        zombies.push(disk);
        if world.random.once_in(3) {
            // The cache is lost: what is in no window is gone.
            world.cache = format!("cache {life}");
            let refused = Map::bind(&world.bucket, Some(&world.cache), TakeOver::No).await;
            assert!(refused.unwrap_err().problem.contains("belongs to"));
            let how = match !world.random.once_in(4) {
                true => TakeOver::Now,
                false => {
                    let gone = zombies.last().filter(|disk| disk.broken().is_none());
                    if let Some(gone) = gone {
                        gone.renew().await.unwrap();
                    }
                    let early = Map::bind(&world.bucket, Some(&world.cache), TakeOver::Lapsed);
                    if gone.is_some() {
                        assert!(early.await.unwrap_err().problem.contains("its lease ends in"));
                    }
                    let patience = LEASE_SECONDS + CLOCKS_DIFFER_SECONDS;
                    tokio::time::sleep(Duration::from_secs(patience)).await;
                    TakeOver::Lapsed
                }
            };
            Map::bind(&world.bucket, Some(&world.cache), how).await.unwrap();
            let is = |state: &State, line| state.get(&line).copied().unwrap_or(0);
            for line in 0..LINES {
                let may_be = world.committed.iter().map(|state| is(state, line));
                world.possible.insert(line, may_be.collect());
            }
            let going_on = world.go_on();
            world.refused(going_on, "belongs to").await;
        }
    }
    let disk = world.opened().await;
    if seed.is_multiple_of(2) {
        // What is in no window yet goes with it.
        disk.release().await.unwrap();
        assert_eq!(disk.facts().await.cache, None);
    } else {
        disk.commit(u64::MAX).await.unwrap();
    }
    while disk.collect_with(0).await.unwrap() {}
    world.committed = vec![world.now.clone()];
    world.check_alone().await;
    for name in world.snapshots.keys() {
        disk.remove_snapshot(&name.parse().unwrap()).await.unwrap();
    }
    while disk.collect_with(0).await.unwrap() {}
    assert!(disk.map.kept_rows().await.unwrap().iter().all(|name| !name.starts_with("dcd-")));
    world.check_alone().await;
    let facts = disk.facts().await;
    let (all, live) = (facts.lines, facts.live_lines);
    assert_eq!(live, world.now.len() as u64, "seed {seed}");
    assert!((all - live) * 100 <= all * 25, "seed {seed}: {live} of {all} lines in use");
    disk.sweep().await.unwrap();
    let objects = disk.bucket.data_objects().await.unwrap();
    let of_us = objects.iter().filter(|it| it.epoch == disk.map.owner.epoch).count();
    assert!(objects.len() - of_us <= facts.objects as usize, "seed {seed}: nothing is left over");
}

pub(crate) fn on_simulated_time<F: Future<Output = ()>>(what: impl FnOnce() -> F + Send) {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        let run = thread.spawn_scoped(scope, || on_this_thread(what()));
        run.unwrap().join().unwrap_or_else(|why| std::panic::resume_unwind(why));
    });
}

fn on_this_thread(what: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(what);
    runtime.shutdown_background();
}

/// Who reads a window reads that, whatever is committed meanwhile; or nothing.
async fn read_while_it_is_served() {
    let bucket = new_store(Arc::new(InMemory::new()), "cache").await;
    let access = Access::Write(claim_of("cache"));
    let disk = StoreDisk::open(bucket.clone(), &access).await.unwrap();
    let write = async |line: u64, number: u64| {
        disk.write(line, content(number).into()).await.unwrap();
        disk.commit(number).await.unwrap();
    };
    disk.write(0, content(1).into()).await.unwrap();
    write(1, 1).await;
    let reader = StoreDisk::open(bucket.clone(), &Access::Read).await.unwrap();
    let window = reader.window().await.unwrap();
    write(1, 2).await;
    // The reader has found the new window by then.
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    let newer = reader.window().await.unwrap();
    assert_ne!(newer.places, window.places);
    let mut bytes = vec![0; 2 * LINE_BYTES];
    let mut read = async |window: &crate::disk::Window| {
        let fetched = reader.fetch(0, window.places.clone(), &mut bytes).await;
        fetched.map(|()| (write_of(&bytes[..LINE_BYTES]), write_of(&bytes[LINE_BYTES..])))
    };
    assert_eq!(read(&window).await, Ok((1, 1)));
    assert_eq!(read(&newer).await, Ok((1, 2)));
    write(0, 3).await;
    while disk.collect_with(0).await.unwrap() {}
    disk.collect_with(0).await.unwrap();
    assert!(!read(&window).await.unwrap_err().is_silence, "its object was deleted");
}

/// Whatever is asked of a store that does not answer ends with an error within a time, and goes on
/// when that is back.
async fn nobody_waits_for_ever() {
    let store = Arc::new(Unreliable::new(1));
    let away = |is_away| store.is_away.store(is_away, Ordering::Relaxed);
    let bucket = new_store(store.clone(), "cache").await;
    let access = Access::Write(claim_of("cache"));
    let open = async || StoreDisk::open(bucket.clone(), &access).await;
    let disk = open().await.unwrap();
    disk.write(0, content(1).into()).await.unwrap();
    disk.commit(1).await.unwrap();
    let ends = async |what: &str, object: &str, asked: &mut dyn FnMut() -> Asking| {
        away(true);
        let began = tokio::time::Instant::now();
        let why = tokio::time::timeout(Duration::from_secs(120), asked()).await;
        let why = why.unwrap_or_else(|_| panic!("{what} goes on")).unwrap_err();
        let took = began.elapsed();
        assert!(took < Duration::from_secs(62), "{what}: {took:?}");
        assert!(why.is_silence && why.problem.contains(object), "{what}: {why}");
        away(false);
    };
    // What is lost by that is nothing: it is all there for the next attempt.
    disk.write(1, content(2).into()).await.unwrap();
    let (one, two) = (disk.clone(), disk.clone());
    ends("a flush of data", "data/", &mut || {
        let disk = one.clone();
        Box::pin(async move { disk.flush().await })
    })
    .await;
    assert!(disk.broken().is_none());
    disk.flush().await.unwrap();
    ends("a commit", "map/", &mut || {
        let disk = two.clone();
        Box::pin(async move { disk.commit(2).await })
    })
    .await;
    assert!(disk.broken().is_some(), "whether it is there is not known");
    ends("an opening", "volume", &mut || {
        let bucket = bucket.clone();
        let access = Access::Write(claim_of("cache"));
        Box::pin(async move { StoreDisk::open(bucket, &access).await.map(drop) })
    })
    .await;
    let disk = open().await.unwrap();
    disk.commit(3).await.unwrap();
    let disk = open().await.unwrap();
    // Nothing of the map is in the memory of this one yet but what it has looked at.
    assert_eq!(write_of(&disk.read(1, 1).await.unwrap()), 2);
    let reader = disk.clone();
    ends("a read", "data/", &mut || {
        let disk = reader.clone();
        Box::pin(async move { disk.read(1, 1).await.map(drop) })
    })
    .await;
    assert_eq!(write_of(&disk.read(0, 1).await.unwrap()), 1);
    disk.write(3, content(4).into()).await.unwrap();
    disk.commit(4).await.unwrap();
}

/// A crash between the checkpoint and the row of a snapshot, or between their ends.
async fn strays_are_dropped() {
    let bucket = new_store(Arc::new(InMemory::new()), "cache").await;
    let access = Access::Write(claim_of("cache"));
    let disk = StoreDisk::open(bucket.clone(), &access).await.unwrap();
    disk.take_snapshot(&"a".parse().unwrap(), "1").await.unwrap();
    disk.map.keep_rows("dcd-2").await.unwrap();
    disk.map.keep_rows("of somebody else").await.unwrap();
    disk.close().await;
    let disk = StoreDisk::open(bucket.clone(), &access).await.unwrap();
    disk.sweep().await.unwrap();
    let mut kept = disk.map.kept_rows().await.unwrap();
    kept.sort();
    assert_eq!(kept, ["dcd-1", "of somebody else"]);
    // Beside a cache that has it open nobody else changes them.
    let maintain = StoreDisk::open(bucket.clone(), &Access::Maintain).await;
    assert!(maintain.err().unwrap().problem.contains("a dcd has it open"));
    disk.rest().await.unwrap();
    disk.close().await;
    let maintain = StoreDisk::open(bucket.clone(), &Access::Maintain).await.unwrap();
    for number in 2..=SNAPSHOTS_MAX {
        let name = format!("n{number}").parse().unwrap();
        maintain.take_snapshot(&name, &number.to_string()).await.unwrap();
    }
    let one_more = maintain.take_snapshot(&"more".parse().unwrap(), "more").await;
    assert!(one_more.unwrap_err().problem.contains("which is the most"));
    let missing = maintain.remove_snapshot(&"b".parse().unwrap()).await.unwrap_err();
    assert!(missing.hint.unwrap().contains("there are a, n2"));
    let told = serde_json::to_vec(&maintain.facts().await).unwrap();
    assert!(told.len() < STORE_MESSAGE_BYTES_MAX / 2, "all of them are told: {}", told.len());
}

/// Taken where nobody has the store open, a snapshot keeps what the last session has made.
async fn kept_without_a_cache() {
    let bucket = new_store(Arc::new(InMemory::new()), "cache").await;
    let access = Access::Write(claim_of("cache"));
    let disk = StoreDisk::open(bucket.clone(), &access).await.unwrap();
    let fill = async |disk: &StoreDisk, write: u64| {
        disk.write(0, content(write).repeat(4).into()).await.unwrap();
        disk.commit(write).await.unwrap();
        while disk.collect_with(0).await.unwrap() {}
    };
    fill(&disk, 1).await;
    disk.rest().await.unwrap();
    disk.close().await;
    let maintain = StoreDisk::open(bucket.clone(), &Access::Maintain).await.unwrap();
    let name: SnapshotName = "off".parse().unwrap();
    maintain.take_snapshot(&name, "1").await.unwrap();
    maintain.close().await;
    let disk = StoreDisk::open(bucket.clone(), &access).await.unwrap();
    fill(&disk, 2).await;
    fill(&disk, 3).await;
    let objects = async || bucket.data_objects().await.unwrap().len();
    assert_eq!(objects().await, 2, "that of the snapshot, and the last");
    let access = Access::Snapshot(name.clone());
    let reader = StoreDisk::open(bucket.clone(), &access).await.unwrap();
    let window = reader.window().await.unwrap();
    let mut bytes = vec![0; 4 * LINE_BYTES];
    reader.fetch(0, window.places, &mut bytes).await.unwrap();
    assert!(bytes.chunks(LINE_BYTES).all(|line| write_of(line) == 1));
    // Of two that make the same clone, one is held up until the other is done, and used.
    let mut to = Bucket::of("clone".into(), Path::from("c"), bucket.store.clone());
    to.clock.clone_from(&bucket.clock);
    to.begin_clone(reader.size_bytes(), "off", "first").await.unwrap();
    clone_store(&reader, "off", &to, "second", |_, _| {}).await.unwrap();
    Map::bind(&to, Some("user"), TakeOver::No).await.unwrap();
    let user = StoreDisk::open(to.clone(), &Access::Write(claim_of("user"))).await.unwrap();
    fill(&user, 7).await;
    let window = reader.window().await.unwrap();
    let first = end_clone(&reader, &window, &to, "first").await;
    assert!(first.unwrap_err().problem.contains("somebody else makes the same clone"));
    fill(&user, 8).await;
    // Whoever reads it has a while yet when it is removed.
    tokio::time::sleep(Duration::from_secs(120)).await;
    disk.remove_snapshot(&name).await.unwrap();
    disk.collect().await.unwrap();
    assert_eq!(objects().await, 2);
    tokio::time::sleep(Duration::from_secs(61)).await;
    disk.collect().await.unwrap();
    assert_eq!(objects().await, 1);
}

#[test]
fn a_snapshot_without_a_cache_is_kept() {
    on_simulated_time(kept_without_a_cache);
}

#[test]
fn what_a_crash_leaves_of_a_snapshot_is_dropped() {
    on_simulated_time(strays_are_dropped);
}

/// Two make the same clone at the same time, and one of them uses it as soon as it is there: nothing
/// of that is undone by the other. Tells whether it was there before the other had ended.
async fn race_of_clones(seed: u64) -> bool {
    let mut random = Random(seed);
    let store = Arc::new(Unreliable::new(random.next()));
    let bucket = new_store(store.clone(), "cache").await;
    let access = Access::Write(claim_of("cache"));
    let disk = StoreDisk::open(bucket.clone(), &access).await.unwrap();
    for line in 0..4 {
        disk.write(line, content(line + 1).into()).await.unwrap();
        disk.commit(line).await.unwrap();
    }
    disk.take_snapshot(&"s".parse().unwrap(), "s").await.unwrap();
    let access = Access::Snapshot("s".parse().unwrap());
    let reader = StoreDisk::open(bucket.clone(), &access).await.unwrap();
    let mut to = Bucket::of("clone".into(), Path::from("c"), store.clone());
    to.clock.clone_from(&bucket.clock);
    let late = random.below(3000);
    let other = async {
        tokio::time::sleep(Duration::from_millis(late)).await;
        clone_store(&reader, "s", &to, "other", |_, _| {}).await.is_ok()
    };
    let user = async {
        clone_store(&reader, "s", &to, "user", |_, _| {}).await.ok()?;
        Map::bind(&to, Some("user"), TakeOver::No).await.ok()?;
        let access = Access::Write(claim_of("user"));
        let disk = StoreDisk::open(to.clone(), &access).await.ok()?;
        disk.write(1, content(77).into()).await.ok()?;
        disk.commit(1).await.ok().map(|()| disk)
    };
    let (other_made_it, used) = tokio::join!(other, user);
    let clone = StoreDisk::open(to, &Access::Read).await;
    let Ok(clone) = clone else {
        // Each was shut out by the other: the next goes on.
        assert!(!other_made_it && used.is_none(), "seed {seed}");
        return false;
    };
    let window = clone.window().await.unwrap();
    let mut bytes = vec![0; 4 * LINE_BYTES];
    clone.fetch(0, window.places, &mut bytes).await.unwrap();
    let expected = if used.is_some() { 77 } else { 2 };
    let found = write_of(&bytes[LINE_BYTES..2 * LINE_BYTES]);
    assert!(found == expected || used.is_none() && found == 77, "seed {seed}: {found}");
    assert_eq!(clone.check().await.unwrap(), Vec::<String>::new(), "seed {seed}");
    used.is_some()
}

#[test]
fn of_two_who_make_a_clone_none_undoes_the_other() {
    let races = std::env::var("DCD_STORE_RACES").map_or(50, |races| races.parse().unwrap());
    let used = AtomicU64::new(0);
    for seed in 0..races {
        on_simulated_time(async || {
            used.fetch_add(u64::from(race_of_clones(seed).await), Ordering::Relaxed);
        });
    }
    let used = used.into_inner();
    println!("{used} of {races} clones were used while they were raced for");
    assert!(used * 4 > races, "{used} of {races}");
}

/// Two caches take a store from each other at the same time, each writes a line of its own and has
/// it committed: what was committed stays, and one of them at most goes on. Tells whether one does.
async fn race(seed: u64) -> bool {
    let mut random = Random(seed);
    let store = Arc::new(Unreliable::new(random.next()));
    let bucket = new_store(store.clone(), "gone").await;
    store.trouble.store([0, 0, 40][random.below(3) as usize], Ordering::Relaxed);
    let racer = async |line: u64, late: u64| {
        let cache = format!("cache {line}");
        tokio::time::sleep(Duration::from_millis(late)).await;
        Map::bind(&bucket, Some(&cache), TakeOver::Now).await.ok()?;
        let access = Access::Write(claim_of(&cache));
        let disk = StoreDisk::open(bucket.clone(), &access).await.ok()?;
        disk.write(line, content(line + 1).into()).await.unwrap();
        let is_committed = disk.commit(line).await.is_ok();
        Some((disk, is_committed))
    };
    let (one, two) = (random.below(400), random.below(400));
    let (one, two) = tokio::join!(racer(0, one), racer(1, two));
    store.trouble.store(0, Ordering::Relaxed);
    let mut going_on = 0;
    for (line, racer) in [(0, &one), (1, &two)] {
        let Some((disk, is_committed)) = racer else { continue };
        let reader = StoreDisk::open(bucket.clone(), &Access::Read).await.unwrap();
        let window = reader.window().await.unwrap();
        let is_there = window.places.iter().any(|(at, _)| *at == line);
        assert!(is_there || !is_committed, "seed {seed}: what was committed is there");
        reader.close().await;
        if disk.write(line + 2, content(9).into()).await.is_ok() && disk.commit(9).await.is_ok() {
            going_on += 1;
        }
    }
    assert!(going_on < 2, "seed {seed}: there are two writers");
    going_on == 1
}

/// `DCD_STORE_RACES` runs more.
#[test]
fn of_two_who_race_for_a_store_one_writes() {
    let races = std::env::var("DCD_STORE_RACES").map_or(50, |races| races.parse().unwrap());
    let won = AtomicU64::new(0);
    for seed in 0..races {
        on_simulated_time(async || {
            won.fetch_add(u64::from(race(seed).await), Ordering::Relaxed);
        });
    }
    let won = won.into_inner();
    println!("{won} of {races} races were won");
    assert!(won * 2 > races, "{won} of {races}");
}

type Asking = std::pin::Pin<Box<dyn Future<Output = std::result::Result<(), StoreFailure>>>>;

#[test]
fn a_store_that_does_not_answer_is_not_waited_for() {
    on_simulated_time(nobody_waits_for_ever);
}

/// A take-over waits for a lease, or does not, and leaves nothing of the one before.
async fn take_over_in_one_place() {
    let bucket = new_store(Arc::new(InMemory::new()), "first").await;
    let access = Access::Write(Claim { generation: 7, ..claim_of("first") });
    let first = StoreDisk::open(bucket.clone(), &access).await.unwrap();
    let early = Map::bind(&bucket, Some("second"), TakeOver::Lapsed).await.unwrap_err();
    assert!(early.problem.contains("its lease ends in"), "{early}");
    first.renew().await.unwrap();
    Map::bind(&bucket, Some("second"), TakeOver::Now).await.unwrap();
    let access = Access::Write(Claim { place: "there".into(), ..claim_of("second") });
    StoreDisk::open(bucket.clone(), &access).await.unwrap();
    assert!(first.renew().await.is_err());
}

#[test]
fn a_take_over_waits_for_a_lease_or_does_not() {
    on_simulated_time(take_over_in_one_place);
}

#[test]
fn a_window_is_read_as_a_whole() {
    on_simulated_time(read_while_it_is_served);
}

#[test]
fn a_store_with_troubles_loses_nothing() {
    let runs = std::env::var("DCD_STORE_RUNS").map_or(20, |runs| runs.parse().unwrap());
    let first = std::env::var("DCD_STORE_SEED").map_or(1, |seed| seed.parse().unwrap());
    for seed in first..first + runs {
        println!("seed {seed}");
        on_simulated_time(|| run(seed));
    }
}
