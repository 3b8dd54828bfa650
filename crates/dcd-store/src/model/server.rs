//! A server of objects that answers late, twice, with an error although it has done what was asked,
//! or not at all; that lists what there was a while ago, and brings somebody else's object.
//!
//! Each process has a [`Connection`] of its own, which ends at any request: what was under way then
//! may land, at once or a while later, and nothing is heard of it any more. What becomes of a request
//! follows from the seed, its kind, its object and how often that was asked for, and not from what
//! other tasks do meanwhile.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use slatedb_common::clock::{SystemClock, SystemClockTicker};
use tokio::time::Instant;

use super::random::{Random, mixed};
use super::take_over::{Expected, Point};

/// An old listing is of so long ago at most.
const OLD_LISTING_MAX: Duration = Duration::from_secs(3);
/// What lands late does so within this time.
const LATE_MAX_MILLIS: u64 = 20_000;
/// How long a client tries to get an answer.
const REQUEST_GIVEN_UP: Duration = Duration::from_secs(22);
/// Kinds of requests.
const PUT: u64 = 0;
const GET: u64 = 1;
const DELETE: u64 = 2;
const LIST: u64 = 3;
const LIST_FOLDER: u64 = 4;
const COPY: u64 = 5;
/// When runs begin, in seconds since 1970.
const BEGINS: i64 = 1_800_000_000;

/// Simulated time, as one machine has it.
#[derive(Clone, Debug)]
pub struct Clock {
    begins: DateTime<Utc>,
    since: Instant,
}

impl Clock {
    /// The time with which runs begin.
    pub fn new() -> Clock {
        let begins = DateTime::from_timestamp(BEGINS, 0).expect("a time");
        Clock { begins, since: Instant::now() }
    }

    /// One that goes on from there.
    pub fn from(now: DateTime<Utc>) -> Clock {
        Clock { begins: now, since: Instant::now() }
    }

    /// The clock of a machine that is ahead by so much.
    pub fn ahead(&self, millis: i64) -> Clock {
        Clock { begins: self.begins + TimeDelta::milliseconds(millis), since: self.since }
    }
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::new()
    }
}

impl SystemClock for Clock {
    fn now(&self) -> DateTime<Utc> {
        self.begins + self.since.elapsed()
    }

    fn sleep<'a>(
        &'a self,
        duration: Duration,
    ) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn ticker<'a>(&'a self, duration: Duration) -> SystemClockTicker<'a> {
        SystemClockTicker::new(self, duration)
    }
}

/// What becomes of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Well,
    /// Nothing is done, and there is an error.
    Nothing,
    /// It is done, and the answer is lost.
    Unanswered,
    /// There is an error, and it is done a while later.
    Later,
    /// It is done, and once more a while later.
    Twice,
    /// Nothing is done but that the name is taken: it is told as there when it is to be written,
    /// and as missing when it is to be read, until somebody has mended the server.
    HalfWritten,
    /// It brings what there was a while ago, or somebody else's object.
    Strange,
}

/// How much went wrong, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Troubles {
    /// Requests.
    pub requests: u64,
    /// Nothing was done.
    pub nothing: u64,
    /// It was done, and the answer was lost.
    pub unanswered: u64,
    /// It was done later than the error, or the process, was there.
    pub late: u64,
    /// It was done twice.
    pub twice: u64,
    /// Objects that were there and not there.
    pub half_written: u64,
    /// Listings of a while ago.
    pub old_listings: u64,
    /// Reads that brought another object.
    pub other_objects: u64,
}

#[derive(Default)]
struct State {
    modified: BTreeMap<Path, DateTime<Utc>>,
    half_written: BTreeSet<Path>,
    /// What became different, newest last: when, what, and what was there before.
    changes: VecDeque<(Instant, Path, Option<ObjectMeta>)>,
    /// How often something was asked for.
    asked: BTreeMap<u64, u64>,
    troubles: Troubles,
    points: Vec<Point>,
    expected: Option<Arc<Expected>>,
    changed: u64,
}

/// See the module.
pub struct Server {
    inner: InMemory,
    seed: u64,
    /// Its own.
    pub clock: Clock,
    /// One in so many goes wrong; 0: none.
    pub trouble: AtomicU64,
    /// Nothing is answered well at all.
    pub is_away: AtomicBool,
    /// The same until then, as long as there are troubles.
    away_until: Mutex<Option<Instant>>,
    /// Answers take no time.
    is_quick: bool,
    /// Every so manieth change is a point at which the store is taken over; 0: none.
    pub points_each: u64,
    state: Mutex<State>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a server with troubles")
    }
}

impl Server {
    /// An empty one.
    pub fn new(seed: u64, points_each: u64) -> Arc<Server> {
        Arc::new(Server {
            inner: InMemory::new(),
            seed,
            clock: Clock::new(),
            trouble: AtomicU64::new(0),
            is_away: AtomicBool::new(false),
            away_until: Mutex::default(),
            is_quick: false,
            points_each,
            state: Mutex::default(),
        })
    }

    /// One with what was there at a point, and without troubles.
    pub fn of_point(point: &Point) -> Arc<Server> {
        let state = State { modified: point.modified.clone(), ..State::default() };
        Arc::new(Server {
            inner: point.objects.fork(),
            seed: point.number,
            clock: Clock::from(point.now),
            trouble: AtomicU64::new(0),
            is_away: AtomicBool::new(false),
            away_until: Mutex::default(),
            is_quick: true,
            points_each: 0,
            state: Mutex::new(state),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What went wrong until now.
    pub fn troubles(&self) -> Troubles {
        self.state().troubles
    }

    /// It answers nothing for so long, unless there are no troubles.
    pub fn goes_away(&self, time: Duration) {
        *self.away_until.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Instant::now() + time);
    }

    fn is_away(&self) -> bool {
        let until = *self.away_until.lock().unwrap_or_else(PoisonError::into_inner);
        let has_trouble = self.trouble.load(Ordering::Relaxed) > 0;
        self.is_away.load(Ordering::Relaxed)
            || has_trouble && until.is_some_and(|until| Instant::now() < until)
    }

    /// No troubles from now on. Tells how many there were.
    pub fn quiet(&self) -> u64 {
        self.trouble.swap(0, Ordering::Relaxed)
    }

    /// As many as before.
    pub fn trouble_again(&self, trouble: u64) {
        self.trouble.store(trouble, Ordering::Relaxed);
    }

    /// Of this object, which is not there, it takes the name for one that is, as long as there are
    /// troubles.
    pub fn has_half_of(&self, object: Path) {
        self.state().half_written.insert(object);
    }

    /// What whoever takes the store over from now on must find.
    pub fn expect(&self, expected: Expected) {
        self.state().expected = Some(Arc::new(expected));
    }

    /// Nobody takes it over for a while.
    pub fn expect_nothing(&self) {
        self.state().expected = None;
    }

    /// Where it was to be taken over, and was not yet.
    pub fn take_points(&self) -> Vec<Point> {
        std::mem::take(&mut self.state().points)
    }

    /// That of a process, which ends at the request of this number, if any.
    pub fn connect(self: &Arc<Server>, ends_at: Option<u64>) -> Connection {
        let life = Life {
            left: AtomicU64::new(ends_at.unwrap_or(u64::MAX)),
            changes_left: AtomicU64::new(u64::MAX),
            is_gone: AtomicBool::new(false),
            gone: tokio::sync::Notify::new(),
        };
        Connection { server: self.clone(), life: Arc::new(life) }
    }

    /// A number for this request that no other task has a say in.
    fn drawn(&self, kind: u64, location: &str) -> Random {
        // Names of tables are drawn by SlateDB.
        let name = location.split_once("compacted/").map_or(location, |(before, _)| before);
        let key =
            name.bytes().fold(mixed(self.seed ^ kind), |key, byte| mixed(key ^ u64::from(byte)));
        let mut state = self.state();
        let asked = state.asked.entry(key).or_default();
        *asked += 1;
        Random(key ^ mixed(*asked))
    }

    /// Notes what there was, before something is changed.
    async fn changes(&self, location: &Path) {
        let before = self.inner.head(location).await.ok();
        let mut state = self.state();
        let before = before.map(|meta| state.of(meta));
        let now = Instant::now();
        state.changes.push_back((now, location.clone(), before));
        while state.changes.front().is_some_and(|(at, ..)| at.elapsed() > OLD_LISTING_MAX) {
            state.changes.pop_front();
        }
        state.modified.insert(location.clone(), self.clock.now());
    }

    /// Something was changed: perhaps a point.
    fn changed(&self) {
        let mut state = self.state();
        state.changed += 1;
        let number = state.changed;
        let Some(expected) = state.expected.clone() else { return };
        if self.points_each == 0 || !mixed(self.seed ^ number).is_multiple_of(self.points_each) {
            return;
        }
        let point = Point {
            number: mixed(self.seed ^ number),
            objects: self.inner.fork(),
            modified: state.modified.clone(),
            now: self.clock.now(),
            expected,
        };
        state.points.push(point);
    }

    async fn put(
        &self,
        location: &Path,
        payload: PutPayload,
        how: PutOptions,
    ) -> Result<PutResult> {
        let is_mended = self.trouble.load(Ordering::Relaxed) == 0 || !is_new(&how);
        if !is_mended && self.state().half_written.contains(location) {
            let source = "half of it is there".into();
            return Err(Error::AlreadyExists { path: location.to_string(), source });
        }
        self.state().half_written.remove(location);
        self.changes(location).await;
        let done = self.inner.put_opts(location, payload, how).await;
        if done.is_ok() {
            self.changed();
        }
        done
    }

    async fn copy(&self, from: &Path, to: &Path, how: CopyOptions) -> Result<()> {
        self.changes(to).await;
        let done = self.inner.copy_opts(from, to, how).await;
        if done.is_ok() {
            self.changed();
        }
        done
    }

    async fn delete(&self, location: &Path) -> Result<()> {
        self.changes(location).await;
        let done = self.inner.delete(location).await;
        self.changed();
        done
    }

    async fn listed(
        &self,
        prefix: Option<&Path>,
        ago: Option<Duration>,
    ) -> Result<Vec<ObjectMeta>> {
        let there: Vec<ObjectMeta> = self.inner.list(prefix).try_collect().await?;
        let state = self.state();
        let mut there: BTreeMap<Path, ObjectMeta> =
            there.into_iter().map(|meta| (meta.location.clone(), state.of(meta))).collect();
        if let Some(ago) = ago {
            let is_later = |at: &Instant| at.elapsed() < ago;
            let later = state.changes.iter().rev().take_while(|(at, ..)| is_later(at));
            for (_, location, before) in later {
                match before {
                    _ if prefix.is_some_and(|prefix| !location.prefix_matches(prefix)) => {}
                    Some(meta) => drop(there.insert(location.clone(), meta.clone())),
                    None => drop(there.remove(location)),
                }
            }
        }
        Ok(there.into_values().collect())
    }

    /// The name of another object of the same folder.
    async fn other_than(&self, location: &Path, random: &mut Random) -> Option<Path> {
        let mut parts: Vec<_> = location.parts().collect();
        parts.pop();
        let folder = Path::from_iter(parts);
        let there: Vec<ObjectMeta> = self.inner.list(Some(&folder)).try_collect().await.ok()?;
        let mut others: Vec<Path> = there.into_iter().map(|meta| meta.location).collect();
        others.retain(|other| other != location);
        (!others.is_empty()).then(|| others.swap_remove(random.below(others.len() as u64) as usize))
    }
}

impl State {
    /// By the clock of the server.
    fn of(&self, mut meta: ObjectMeta) -> ObjectMeta {
        if let Some(modified) = self.modified.get(&meta.location) {
            meta.last_modified = *modified;
        }
        meta
    }
}

/// What a process has of a server. It ends at a request, and then nothing is heard of any.
#[derive(Clone)]
pub struct Connection {
    server: Arc<Server>,
    life: Arc<Life>,
}

struct Life {
    /// Requests until it ends, ...
    left: AtomicU64,
    /// ... and changes.
    changes_left: AtomicU64,
    is_gone: AtomicBool,
    gone: tokio::sync::Notify,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a connection of a process")
    }
}

impl std::fmt::Display for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a connection of a process")
    }
}

/// A change that somebody asks for.
#[derive(Clone)]
enum Change {
    Put(Path, PutPayload, PutOptions),
    Copy(Path, Path, CopyOptions),
    Delete(Path),
}

impl Change {
    async fn make(self, server: &Server) -> Result<Option<PutResult>> {
        match self {
            Change::Put(at, payload, how) => server.put(&at, payload, how).await.map(Some),
            Change::Copy(from, to, how) => server.copy(&from, &to, how).await.map(|()| None),
            Change::Delete(at) => server.delete(&at).await.map(|()| None),
        }
    }

    fn name(&self) -> &Path {
        match self {
            Change::Put(at, ..) | Change::Copy(_, at, _) | Change::Delete(at) => at,
        }
    }
}

impl Connection {
    /// Whether the process has ended.
    pub fn is_gone(&self) -> bool {
        self.life.is_gone.load(Ordering::Relaxed)
    }

    /// When it has.
    pub async fn ended(&self) {
        let mut gone = std::pin::pin!(self.life.gone.notified());
        gone.as_mut().enable();
        if !self.is_gone() {
            gone.await;
        }
    }

    /// It ends after so many more requests.
    pub fn ends_in(&self, requests: u64) {
        self.life.left.store(requests, Ordering::Relaxed);
        self.life.changes_left.store(u64::MAX, Ordering::Relaxed);
    }

    /// It ends at the request of so manieth a change.
    pub fn ends_at_change(&self, changes: u64) {
        self.life.changes_left.store(changes, Ordering::Relaxed);
    }

    /// Nothing more is heard of it.
    pub fn end(&self) {
        self.life.is_gone.store(true, Ordering::Relaxed);
        self.life.gone.notify_waiters();
    }

    fn broken<T>() -> Result<T> {
        Err(Error::Generic { store: "test", source: "no answer".into() })
    }

    /// A request is sent: how it goes, and when. Not answered where the process has ended.
    async fn send(&self, kind: u64, location: &str) -> (Fate, Random) {
        if self.is_gone() {
            return std::future::pending().await;
        }
        let is_change = !matches!(kind, GET | LIST | LIST_FOLDER);
        let is_last = self.life.left.fetch_sub(1, Ordering::Relaxed) == 1
            || is_change && self.life.changes_left.fetch_sub(1, Ordering::Relaxed) == 1;
        let mut random = self.server.drawn(kind, location);
        let trouble = self.server.trouble.load(Ordering::Relaxed);
        let is_away = self.server.is_away();
        let fate = match trouble {
            _ if is_away => Fate::Nothing,
            0 => Fate::Well,
            trouble if random.once_in(trouble) => match random.below(6) {
                0 => Fate::Nothing,
                1..=2 => Fate::Unanswered,
                3 => Fate::Later,
                4 => Fate::Twice,
                _ => Fate::Strange,
            },
            _ => Fate::Well,
        };
        self.server.state().troubles.requests += 1;
        if is_last {
            // It was not sent any more, or the process has ended before the answer.
            self.end();
            let fate = match random.below(3) {
                0 => std::future::pending().await,
                1 => Fate::Later,
                _ => Fate::Unanswered,
            };
            return (fate, random);
        }
        if is_away && !self.server.is_away.load(Ordering::Relaxed) {
            // It is asked for again and again.
            tokio::time::sleep(REQUEST_GIVEN_UP).await;
        } else if !self.server.is_quick {
            let late = if random.once_in(8) { random.below(300) } else { random.below(3) };
            tokio::time::sleep(Duration::from_millis(late)).await;
        }
        (fate, random)
    }

    /// Nobody is there to hear it.
    async fn answered<T>(&self, answer: Result<T>) -> Result<T> {
        match self.is_gone() {
            true => std::future::pending().await,
            false => answer,
        }
    }

    async fn change(&self, kind: u64, change: Change) -> Result<Option<PutResult>> {
        let (mut fate, mut random) = self.send(kind, change.name().as_ref()).await;
        // What is written over later by what came before is the matter of whoever writes a name
        // twice; nobody may rely on a server that does that.
        let may_be_late = match &change {
            Change::Put(at, _, how) => is_new(how) || is_data(at),
            Change::Copy(..) | Change::Delete(_) => true,
        };
        if matches!(fate, Fate::Later | Fate::Twice) && !may_be_late {
            fate = Fate::Unanswered;
        }
        if let Change::Put(at, _, how) = &change
            && fate == Fate::Nothing
            && is_new(how)
            && !self.server.is_away()
            && random.once_in(4)
            && self.server.inner.head(at).await.is_err()
        {
            self.server.state().half_written.insert(at.clone());
            fate = Fate::HalfWritten;
        }
        {
            let troubles = &mut self.server.state().troubles;
            match fate {
                Fate::Nothing => troubles.nothing += 1,
                Fate::Unanswered => troubles.unanswered += 1,
                Fate::Later => troubles.late += 1,
                Fate::Twice => troubles.twice += 1,
                Fate::HalfWritten => troubles.half_written += 1,
                Fate::Well | Fate::Strange => {}
            }
        }
        if matches!(fate, Fate::Later | Fate::Twice) {
            let (server, change) = (self.server.clone(), change.clone());
            let late = Duration::from_millis(1 + random.below(LATE_MAX_MILLIS));
            tokio::spawn(async move {
                tokio::time::sleep(late).await;
                let _ = change.make(&server).await;
            });
        }
        let answer = match fate {
            Fate::Nothing | Fate::Later | Fate::HalfWritten => Connection::broken(),
            Fate::Unanswered => {
                let _ = change.make(&self.server).await;
                Connection::broken()
            }
            _ => change.make(&self.server).await,
        };
        self.answered(answer).await
    }

    /// A listing, perhaps an old one.
    async fn list_all(&self, prefix: Option<&Path>) -> Result<Vec<ObjectMeta>> {
        let (fate, mut random) = self.send(LIST, prefix.map_or("", |prefix| prefix.as_ref())).await;
        let answer = match fate {
            Fate::Well | Fate::Twice => self.server.listed(prefix, None).await,
            Fate::Strange | Fate::Later => {
                self.server.state().troubles.old_listings += 1;
                let ago = random.below(OLD_LISTING_MAX.as_millis() as u64);
                self.server.listed(prefix, Some(Duration::from_millis(ago))).await
            }
            Fate::Nothing | Fate::Unanswered | Fate::HalfWritten => Connection::broken(),
        };
        self.answered(answer).await
    }
}

/// Whether nothing may be there yet.
fn is_new(how: &PutOptions) -> bool {
    how.mode == object_store::PutMode::Create
}

/// A data object: its name says whose it is, and what is written under it is always the same.
fn is_data(location: &Path) -> bool {
    location.parts().rev().nth(1).is_some_and(|folder| folder.as_ref() == "data")
}

#[async_trait]
impl ObjectStore for Connection {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let put = self.change(PUT, Change::Put(location.clone(), payload, options)).await?;
        Ok(put.expect("of a put"))
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.server.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let (fate, mut random) = self.send(GET, location.as_ref()).await;
        let mut wanted = location.clone();
        if fate == Fate::Strange
            && is_data(location)
            && let Some(other) = self.server.other_than(location, &mut random).await
        {
            self.server.state().troubles.other_objects += 1;
            wanted = other;
        }
        let got = match fate {
            Fate::Well | Fate::Twice | Fate::Strange => {
                self.server.inner.get_opts(&wanted, options).await.map(|mut got| {
                    got.meta = self.server.state().of(got.meta);
                    got
                })
            }
            _ => Connection::broken(),
        };
        self.answered(got).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let (fate, _) = self.send(GET, location.as_ref()).await;
        let got = match fate {
            Fate::Well | Fate::Twice | Fate::Strange => {
                self.server.inner.get_ranges(location, ranges).await
            }
            _ => Connection::broken(),
        };
        self.answered(got).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let this = self.clone();
        locations
            .then(move |location| {
                let this = this.clone();
                async move {
                    let location = location?;
                    this.change(DELETE, Change::Delete(location.clone())).await?;
                    Ok(location)
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (this, prefix) = (self.clone(), prefix.cloned());
        stream::once(async move { this.list_all(prefix.as_ref()).await })
            .map_ok(|listed| stream::iter(listed.into_iter().map(Ok)))
            .try_flatten()
            .boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let _ = self.send(LIST_FOLDER, prefix.map_or("", |prefix| prefix.as_ref())).await;
        self.server.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let change = Change::Copy(from.clone(), to.clone(), options);
        self.change(COPY, change).await.map(|_| ())
    }
}
