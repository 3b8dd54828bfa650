//! The disk in a store, under a load of its own, against a model:
//!
//! - what is read is what was written, as long as nobody has crashed;
//! - behind a crash each line is as of the last flush that was answered, or a later write of it;
//! - the store alone is what it was at the end of the last window, or of one that was in doubt;
//! - a writer that somebody came after changes nothing any more;
//! - a snapshot is what the store alone was when it was taken, until it is removed, and so is a clone;
//! - of two daemons that are the same cache one has the store: another start waits for its lease, and
//!   whoever lost it does not get it back by going on;
//! - objects of others stay as they are.
//!
//! Processes end at any of their requests: also one that opens a store, or takes it over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dcd_protocol::store::{
    CLOCKS_DIFFER_SECONDS, Claim, LEASE_SECONDS, SnapshotName, StoreFailure, TakeOver,
};
use object_store::ObjectStoreExt;
use object_store::path::Path;

use super::random::Random;
use super::server::{Connection, Server};
use super::take_over::{Expected, Image, check, image_of};
use super::{PREFIX, Report, Simulation, claim_of, judged, on_this_thread};
use crate::cloning::clone_store;
use crate::disk::StoreDisk;
use crate::format::LINE_BYTES;
use crate::map::{Access, Map};
use crate::objects::Bucket;

const LINES: u64 = 96;
/// Processes that have the store one after the other.
const LIVES: u64 = 6;
/// Attempts at something while there are troubles; the next one has none.
const ATTEMPTS: u64 = 6;
/// One request in so many goes wrong while a clone is begun.
const CLONE_TROUBLE: u64 = 6;
/// By so much the clock of a machine may be wrong.
const WRONG_MILLIS: u64 = 4_000;
/// Objects that are nobody's business.
const STRANGERS: [&str; 5] =
    ["a/b/notes.txt", "a/b/data/README", "a/b/data/1-1.part", "a/b/mapping/1", "a/bc/data/1-1"];

/// The run of this seed. To be called on a thread with [`super::STACK_BYTES`].
///
/// # Errors
/// What was seen that must not be.
pub fn run(seed: u64) -> Result<Report, String> {
    judged(|| {
        let mut ended = None;
        on_this_thread(async { ended = Some(live(seed).await) });
        let (mut report, server) = ended.expect("it ran");
        let points = server.take_points();
        report.crash_points = points.len() as u64;
        report.cut_off = check(points);
        report
    })
}

/// A line by the number of its write; 0 is zeroes.
pub(crate) fn content(write: u64) -> Vec<u8> {
    match write {
        0 => vec![0; LINE_BYTES],
        write => write.to_be_bytes().repeat(LINE_BYTES / 8),
    }
}

pub(crate) fn write_of(bytes: &[u8]) -> u64 {
    let write = u64::from_be_bytes(bytes[..8].try_into().expect("eight bytes"));
    assert_eq!(bytes, content(write), "a whole line");
    write
}

fn state_of(bytes: &[u8]) -> Image {
    image_of(bytes, write_of)
}

/// A process, and what it has of the store.
#[derive(Clone)]
struct Process {
    connection: Connection,
    bucket: Bucket,
}

struct World {
    server: Arc<Server>,
    simulated: Simulation,
    /// Somebody who only looks.
    bucket: Bucket,
    /// By how much the clock of the machine is wrong.
    ahead_millis: i64,
    has_server_copies: bool,
    cache: String,
    /// What the daemon that has the store knows of it.
    claim: Claim,
    random: Random,
    writes: u64,
    /// As it is read.
    now: Image,
    /// What a line may be behind a crash: as of the last flush, and what came later.
    possible: BTreeMap<u64, BTreeSet<u64>>,
    /// The store alone is one of these.
    committed: Vec<Arc<Image>>,
    windows: u64,
    /// By their names, what they may be.
    snapshots: BTreeMap<String, Vec<Arc<Image>>>,
    /// One that was in doubt when it was taken or removed.
    doubtful: Option<String>,
    report: Report,
}

impl World {
    fn process(&mut self, ends_at: Option<u64>) -> Process {
        let connection = self.server.connect(ends_at);
        let mut bucket = self.simulated.bucket(PREFIX, &connection, self.ahead_millis);
        bucket.on_server = self.has_server_copies.then(|| "bucket".into());
        Process { connection, bucket }
    }

    /// One that ends at one of its first requests or changes, now and then.
    fn process_that_may_end(&mut self, once_in: u64, requests: u64) -> Process {
        let ends = self.random.once_in(once_in).then(|| 1 + self.random.below(requests));
        let process = self.process(ends);
        if ends.is_none() && self.random.once_in(once_in) {
            process.connection.ends_at_change(1 + self.random.below(6));
        }
        process
    }

    fn set_trouble(&mut self, is_last: bool) {
        let trouble = if is_last { 0 } else { self.random.pick(&[0, 40, 12]) };
        self.server.trouble.store(trouble, Ordering::Relaxed);
    }

    /// Without troubles, which are for who writes.
    async fn quietly<T>(&self, what: impl Future<Output = T>) -> T {
        let trouble = self.server.quiet();
        let done = what.await;
        self.server.trouble_again(trouble);
        done
    }

    /// Whoever takes the store over from now on finds what may be committed.
    fn expect(&self) {
        self.server.expect(Expected { images: self.committed.clone(), digest: write_of });
    }

    fn commits(&mut self) {
        self.committed.push(Arc::new(self.now.clone()));
        self.expect();
    }

    fn committed(&mut self, image: Image) {
        self.committed = vec![Arc::new(image)];
        self.expect();
    }

    /// A start somewhere, with the newest cache-disk.
    fn start(&mut self, place: &str) -> Claim {
        self.claim.generation += 1;
        let next = self.random.next().to_string();
        let (cache, place) = (self.cache.clone(), place.to_owned());
        let generation = self.claim.generation;
        Claim {
            cache,
            had: None,
            next,
            place,
            generation,
            trusts_disks: false,
            is_now: false,
            host: None,
        }
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
        if self.random.once_in(4) {
            // Nobody would have a lease any more.
            tokio::time::sleep(Duration::from_secs(2 * LEASE_SECONDS)).await;
        }
        self.quietly(disk.renew()).await.expect("a renewal");
        let start = Claim { had: None, ..there };
        self.refused(start.clone(), "another dcd has it open").await;
        let older = Claim { generation: self.claim.generation - 1, is_now: true, ..start };
        self.refused(older, "is an older copy").await;
    }

    async fn opened(&mut self) -> (Process, Arc<StoreDisk>) {
        let before = self.claim.clone();
        self.claim = match self.random.below(8) {
            _ if before.cache != self.cache => self.start("here"),
            0 | 3 => self.start(&before.place),
            1 | 4 => {
                self.new_machine();
                Claim { is_now: true, ..self.start("elsewhere") }
            }
            2 => {
                self.new_machine();
                let patience = LEASE_SECONDS + CLOCKS_DIFFER_SECONDS + WRONG_MILLIS / 500;
                tokio::time::sleep(Duration::from_secs(patience)).await;
                self.snapshot_without_a_cache().await;
                self.start("far away")
            }
            _ => self.go_on(),
        };
        let (process, disk) = self.opened_as_it_is().await;
        let had = Some(before.next.clone()).filter(|had| Some(had) != self.claim.had.as_ref());
        if before.cache == self.cache && had.is_some() {
            // Whoever had it does not get it back, whatever the time.
            let going_on = Claim { had, next: "again".into(), ..before };
            self.refused(going_on, "another dcd has opened it since").await;
        }
        (process, disk)
    }

    fn new_machine(&mut self) {
        self.ahead_millis = self.random.below(2 * WRONG_MILLIS) as i64 - WRONG_MILLIS as i64;
    }

    /// What dies while it opens the store, or is not answered, is asked for once more.
    async fn attempted(&mut self) -> (Process, Arc<StoreDisk>) {
        for attempt in 1.. {
            let is_last = attempt > ATTEMPTS;
            self.set_trouble(is_last);
            let process = match is_last {
                false => self.process_that_may_end(3, 60),
                true => self.process(None),
            };
            self.report.openings += 1;
            let access = Access::Write(self.claim.clone());
            let opened = tokio::select! {
                biased;
                opened = StoreDisk::open(process.bucket.clone(), &access) => Some(opened),
                () = process.connection.ended() => None,
            };
            match opened {
                Some(Ok(disk)) => return (process, disk),
                Some(Err(why)) => assert!(!is_last, "it is not opened: {why}"),
                None => self.report.deaths += 1,
            }
        }
        unreachable!("the last attempt ends it")
    }

    async fn opened_as_it_is(&mut self) -> (Process, Arc<StoreDisk>) {
        let (process, disk) = self.attempted().await;
        // It may die a while later.
        process.connection.ends_in(u64::MAX);
        let whole = self.quietly(disk.read(0, LINES as usize)).await;
        let found = state_of(&whole.unwrap_or_else(|why| panic!("{why}")));
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
        (process, disk)
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
        let wanted: SnapshotName = name.parse().expect("a name");
        let is_there = self.snapshots.contains_key(&name);
        if is_there {
            let again = disk.take_snapshot(&wanted, "never").await;
            let words = again.expect_err("there is one").problem;
            assert!(words.contains("already") || disk.broken().is_some(), "{words}");
        }
        // If it ends now, nobody knows.
        self.doubtful = Some(name.clone());
        let done = match is_there {
            false => {
                self.snapshots.insert(name.clone(), self.committed.clone());
                let nonce = self.random.next().to_string();
                disk.take_snapshot(&wanted, &nonce).await
            }
            true => disk.remove_snapshot(&wanted).await,
        };
        if done.is_err() && disk.broken().is_some() {
            return false;
        }
        self.doubtful = None;
        if done.is_ok() == is_there {
            self.snapshots.remove(&name);
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
            let wanted: SnapshotName = name.parse().expect("a name");
            let done = if self.snapshots.remove(name).is_some() {
                self.quietly(disk.remove_snapshot(&wanted)).await
            } else {
                let nonce = self.random.next().to_string();
                self.snapshots.insert(name.into(), self.committed.clone());
                self.quietly(disk.take_snapshot(&wanted, &nonce)).await
            };
            done.unwrap_or_else(|why| panic!("{why}"));
        }
        self.quietly(disk.close()).await;
    }

    async fn check_snapshot(&mut self) {
        let name = format!("s{}", self.random.below(4));
        if self.doubtful.as_ref() == Some(&name) {
            return;
        }
        let access = Access::Snapshot(name.parse().expect("a name"));
        let opened = self.quietly(StoreDisk::open(self.bucket.clone(), &access)).await;
        let Some(states) = self.snapshots.get(&name).cloned() else {
            let Err(why) = opened else { panic!("{name} is not there") };
            assert!(why.problem.contains("there is no snapshot"), "{why}");
            return;
        };
        let reader = opened.unwrap_or_else(|why| panic!("{name}: {why}"));
        let found = self.alone(&reader).await;
        let is_one = states.iter().any(|state| **state == found);
        assert!(is_one, "{name}: {found:?} is not among {states:?}");
        self.snapshots.insert(name.clone(), vec![Arc::new(found.clone())]);
        if self.random.once_in(4) {
            self.check_clone(&reader, &name, &found).await;
        }
        self.quietly(reader.close()).await;
    }

    /// A clone is made again until it is there.
    async fn check_clone(&mut self, reader: &StoreDisk, name: &str, state: &Image) {
        self.writes += 1;
        let prefix = format!("clones/{}", self.writes);
        // Nothing of it is taken over.
        self.server.expect_nothing();
        let of = |process: &Connection, world: &World| {
            let mut to = world.simulated.bucket(&prefix, process, world.ahead_millis);
            to.on_server.clone_from(&world.bucket.on_server);
            to
        };
        let looker = of(&self.server.connect(None), self);
        // What is copied becomes part of it: that is worth more troubles, at first.
        let trouble = self.server.quiet();
        let more = if trouble > 0 && self.random.once_in(2) { CLONE_TROUBLE } else { trouble };
        self.server.trouble_again(more);
        loop {
            let process = self.process_that_may_end(3, 30).connection;
            let to = of(&process, self);
            let made = tokio::select! {
                biased;
                made = clone_store(reader, name, &to, "nonce", |_, _| {}) => made.is_ok(),
                () = process.ended() => false,
            };
            self.server.trouble_again(trouble);
            if made {
                break;
            }
            // A part of a clone is no store; and the answer to the last write may be lost.
            let opened = StoreDisk::open(looker.clone(), &Access::Read);
            if let Ok(clone) = self.quietly(opened).await {
                assert_eq!(self.alone(&clone).await, *state);
                self.quietly(clone.close()).await;
                break;
            }
        }
        let other = clone_store(reader, "of something else", &looker, "nonce", |_, _| {});
        assert!(self.quietly(other).await.is_err(), "nothing is written over");
        // A store like any other: what is written there goes beside what it has.
        let bound = Map::bind(&looker, Some("of the clone"), TakeOver::No);
        self.quietly(bound).await.expect("it is free");
        // Twice, so that its epochs would come to those of its objects.
        let mut state = state.clone();
        for opening in 0..2 {
            self.writes += 1;
            let access = Access::Write(claim_of("of the clone"));
            let opened = self.quietly(StoreDisk::open(looker.clone(), &access)).await;
            let clone = opened.unwrap_or_else(|why| panic!("a clone: {why}"));
            assert_eq!(self.alone(&clone).await, state);
            self.quietly(clone.sweep()).await.expect("a sweep");
            for line in [LINES - 1 - opening, opening] {
                let written = self.quietly(clone.write(line, content(self.writes).into())).await;
                written.expect("a write");
                self.quietly(clone.commit(line)).await.expect("a commit");
                state.insert(line, self.writes);
            }
            assert_eq!(self.alone(&clone).await, state);
            self.quietly(clone.close()).await;
        }
        self.expect();
    }

    async fn check_alone(&mut self) {
        let opened = StoreDisk::open(self.bucket.clone(), &Access::Read);
        let reader = self.quietly(opened).await.unwrap_or_else(|why| panic!("{why}"));
        let found = self.alone(&reader).await;
        let is_one = self.committed.iter().any(|state| **state == found);
        assert!(is_one, "{found:?} is not among {:?}", self.committed);
        self.committed(found);
        self.quietly(reader.close()).await;
    }

    /// What a reader has, and that all of it is whole.
    async fn alone(&self, reader: &StoreDisk) -> Image {
        let mut whole = vec![0; LINES as usize * LINE_BYTES];
        let window = self.quietly(reader.window()).await.unwrap_or_else(|why| panic!("{why}"));
        let fetched = self.quietly(reader.fetch(0, window.places, &mut whole)).await;
        fetched.unwrap_or_else(|why| panic!("{why}"));
        let problems = self.quietly(reader.check()).await.unwrap_or_else(|why| panic!("{why}"));
        assert!(problems.is_empty(), "{problems:?}");
        state_of(&whole)
    }

    /// One request. `false`: the disk is of no more use.
    async fn step(&mut self, disk: &Arc<StoreDisk>) -> bool {
        self.report.steps += 1;
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
            16..=19 => {
                let before = self.now.clone();
                let meanwhile = self.meanwhile(line, count);
                let flush = disk.flush();
                let (done, written) = tokio::join!(flush, meanwhile.write(disk));
                self.was_written(&meanwhile, written);
                match done {
                    Ok(()) => self.settle(&before, &meanwhile),
                    Err(_) => return disk.broken().is_none(),
                }
            }
            20..=21 => {
                self.windows += 1;
                let before = self.now.clone();
                let meanwhile = self.meanwhile(line, count);
                // Flushed and committed, or not; what comes meanwhile is in it, or in the next one.
                let mut after = before.clone();
                meanwhile.change(&mut after);
                let images = [Arc::new(before.clone()), Arc::new(after)];
                self.committed.extend(images.iter().cloned());
                self.expect();
                let commit = disk.commit(self.windows);
                let (done, written) = tokio::join!(commit, meanwhile.write(disk));
                self.was_written(&meanwhile, written);
                if done.is_ok() {
                    self.report.windows += 1;
                    self.settle(&before, &meanwhile);
                    self.committed = images.into();
                    self.expect();
                    self.check_alone().await;
                    let facts = disk.facts().await;
                    assert_eq!(facts.window, Some(self.windows), "it is known by its number");
                } else if disk.broken().is_some() {
                    return false;
                }
                // Nothing was asked of the map yet, or this is settled by the next one.
            }
            _ => match disk.collect_with(0).await {
                Ok(_) => {}
                Err(_) => return disk.broken().is_none(),
            },
        }
        true
    }

    /// Something to write while something else is under way, now and then.
    fn meanwhile(&mut self, line: u64, count: u64) -> Meanwhile {
        let count = if self.random.once_in(2) { count } else { 0 };
        let first = (!self.random.once_in(4)).then_some(self.writes + 1);
        self.writes += count;
        for at in line..line + count {
            let write = first.map_or(0, |first| first + at - line);
            self.possible.entry(at).or_default().insert(write);
        }
        let late = Duration::from_millis(self.random.below(40));
        let away = self.random.once_in(8).then(|| Duration::from_secs(self.random.below(90)));
        Meanwhile { line, count, first, late, away, server: self.server.clone() }
    }

    fn was_written(&mut self, meanwhile: &Meanwhile, is_written: bool) {
        if is_written {
            meanwhile.change(&mut self.now);
        }
    }

    /// All that was read like this is durable, and perhaps what was written meanwhile.
    fn settle(&mut self, before: &Image, meanwhile: &Meanwhile) {
        for line in 0..LINES {
            let write = before.get(&line).copied().unwrap_or(0);
            self.possible.insert(line, BTreeSet::from([write]));
        }
        for (line, write) in meanwhile.lines() {
            self.possible.entry(line).or_default().insert(write);
        }
    }

    /// What is done between two requests, by others too. `false`: the disk is of no more use.
    async fn turn(&mut self, life: u64, disk: &Arc<StoreDisk>, zombie: Option<&Zombie>) -> bool {
        // Those who are gone and do not know it.
        if self.random.once_in(8)
            && let Some((process, zombie)) = zombie
        {
            let disturbs = async {
                if self.random.once_in(2) {
                    let _ = zombie.write(0, content(u64::MAX - life).into()).await;
                    assert!(zombie.flush().await.is_err(), "it may write no more");
                }
                assert!(zombie.commit(u64::MAX).await.is_err(), "it may commit no more");
            };
            tokio::select! {
                biased;
                () = disturbs => {}
                () = process.connection.ended() => {}
            }
        }
        // A cache that was taken over comes back, is refused, and disturbs nobody.
        if self.cache != "first" && self.random.once_in(8) {
            let access = Access::Write(claim_of("first"));
            let old = StoreDisk::open(self.bucket.clone(), &access);
            assert!(self.quietly(old).await.is_err(), "another owner");
            self.quietly(disk.flush()).await.unwrap_or_else(|why| panic!("disturbed: {why}"));
            let nothing = Meanwhile { count: 0, ..self.meanwhile(0, 0) };
            self.settle(&self.now.clone(), &nothing);
        }
        if self.random.once_in(16) {
            self.others_are_refused(disk).await;
        }
        if self.random.once_in(40) {
            self.server.goes_away(Duration::from_secs(1 + self.random.below(90)));
        }
        self.step(disk).await
    }

    /// The cache is lost: what is in no window is gone.
    async fn lose_cache(&mut self, life: u64, last: &Zombie) {
        self.report.take_overs += 1;
        self.cache = format!("cache {life}");
        self.new_machine();
        let refused = Map::bind(&self.bucket, Some(&self.cache), TakeOver::No).await;
        let words = refused.expect_err("it belongs to another").problem;
        assert!(words.contains("belongs to"), "{words}");
        let how = match !self.random.once_in(4) {
            true => TakeOver::Now,
            false => {
                let (process, disk) = last;
                if disk.broken().is_none() && !process.connection.is_gone() {
                    disk.renew().await.expect("a renewal");
                    let early = Map::bind(&self.bucket, Some(&self.cache), TakeOver::Lapsed).await;
                    let words = early.expect_err("it has a lease").problem;
                    assert!(words.contains("its lease ends in"), "{words}");
                }
                let patience = LEASE_SECONDS + CLOCKS_DIFFER_SECONDS + WRONG_MILLIS / 500;
                tokio::time::sleep(Duration::from_secs(patience)).await;
                TakeOver::Lapsed
            }
        };
        for attempt in 1.. {
            let is_last = attempt > ATTEMPTS;
            self.set_trouble(is_last);
            let process = match is_last {
                false => self.process_that_may_end(3, 30),
                true => self.process(None),
            };
            let bound = tokio::select! {
                biased;
                bound = Map::bind(&process.bucket, Some(&self.cache), how) => bound,
                () = process.connection.ended() => Err(died()),
            };
            match bound {
                Ok(_) => break,
                Err(why) => assert!(!is_last, "it is not taken over: {why}"),
            }
        }
        self.server.trouble.store(0, Ordering::Relaxed);
        let is = |state: &Image, line| state.get(&line).copied().unwrap_or(0);
        for line in 0..LINES {
            let may_be = self.committed.iter().map(|state| is(state, line));
            self.possible.insert(line, may_be.collect());
        }
        let going_on = self.go_on();
        self.refused(going_on, "belongs to").await;
    }

    /// All of it is brought into a window, and nothing is left over.
    async fn end(&mut self, releases: bool) {
        // What lands late has landed.
        self.server.trouble.store(0, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(30)).await;
        self.claim = self.go_on();
        let process = self.process(None);
        let access = Access::Write(self.claim.clone());
        let opened = StoreDisk::open(process.bucket.clone(), &access).await;
        let disk = opened.unwrap_or_else(|why| panic!("at the end: {why}"));
        disk.sweep().await.unwrap_or_else(|why| panic!("at the end: {why}"));
        self.commits();
        if releases {
            // What is in no window yet goes with it.
            disk.release().await.unwrap_or_else(|why| panic!("a release: {why}"));
            assert_eq!(disk.facts().await.cache, None);
        } else {
            disk.commit(u64::MAX).await.unwrap_or_else(|why| panic!("the last commit: {why}"));
        }
        let collect = async || {
            while disk.collect_with(0).await.unwrap_or_else(|why| panic!("at the end: {why}")) {}
        };
        collect().await;
        self.committed(self.now.clone());
        self.check_alone().await;
        for name in self.snapshots.keys() {
            let removed = disk.remove_snapshot(&name.parse().expect("a name")).await;
            removed.unwrap_or_else(|why| panic!("at the end: {why}"));
        }
        collect().await;
        let kept = disk.map.kept_rows().await.unwrap_or_else(|why| panic!("at the end: {why}"));
        assert!(kept.iter().all(|name| !name.starts_with("dcd-")), "{kept:?} are left over");
        self.check_alone().await;
        let facts = disk.facts().await;
        let (all, live) = (facts.lines, facts.live_lines);
        assert_eq!(live, self.now.len() as u64, "lines that are counted");
        assert!((all - live) * 100 <= all * 25, "{live} of {all} lines in use");
        disk.sweep().await.unwrap_or_else(|why| panic!("at the end: {why}"));
        let objects = disk.bucket.data_objects().await;
        let objects = objects.unwrap_or_else(|why| panic!("at the end: {why}"));
        let of_us = objects.iter().filter(|it| it.epoch == disk.map.owner.epoch).count();
        let left = objects.len() - of_us;
        assert!(left <= facts.objects as usize, "{left} objects, {} in use", facts.objects);
        self.check_strangers().await;
    }

    async fn check_strangers(&self) {
        for name in STRANGERS {
            let found = self.bucket.store.get(&Path::from(name)).await;
            let found = found.unwrap_or_else(|error| panic!("{name} is of others: {error}"));
            assert_eq!(found.bytes().await.expect("bytes"), name.as_bytes());
        }
    }
}

type Zombie = (Process, Arc<StoreDisk>);

/// A change that comes while something else is under way.
struct Meanwhile {
    line: u64,
    count: u64,
    /// The number of the first write; it may be zeroes, too.
    first: Option<u64>,
    late: Duration,
    /// The server does not answer for so long from then on.
    away: Option<Duration>,
    server: Arc<Server>,
}

impl Meanwhile {
    fn lines(&self) -> impl Iterator<Item = (u64, u64)> {
        let write = |at| self.first.map_or(0, |first| first + at);
        (0..self.count).map(move |at| (self.line + at, write(at)))
    }

    fn change(&self, image: &mut Image) {
        for (line, write) in self.lines() {
            match write {
                0 => drop(image.remove(&line)),
                _ => drop(image.insert(line, write)),
            }
        }
    }

    /// Tells whether it was taken.
    async fn write(&self, disk: &StoreDisk) -> bool {
        if self.count == 0 && self.away.is_none() {
            return false;
        }
        tokio::time::sleep(self.late).await;
        if let Some(away) = self.away {
            self.server.goes_away(away);
        }
        if self.count == 0 {
            return false;
        }
        if self.first.is_none() {
            return disk.zero(self.line, self.count).is_ok();
        }
        let bytes: Vec<u8> = self.lines().flat_map(|(_, write)| content(write)).collect();
        disk.write(self.line, bytes.into()).await.is_ok()
    }
}

fn died() -> StoreFailure {
    crate::objects::failure("the process has ended", "")
}

async fn live(seed: u64) -> (Report, Arc<Server>) {
    let mut random = Random(seed);
    let points_each = random.pick(&[2, 4, 16]);
    let server = Server::new(random.next(), points_each);
    let simulated = Simulation::new(&server, random.next());
    let looker = server.connect(None);
    // Of every second one the server copies objects.
    let has_server_copies = seed.is_multiple_of(2);
    let mut bucket = simulated.bucket(PREFIX, &looker, 0);
    bucket.on_server = has_server_copies.then(|| "bucket".into());
    assert!(bucket.create(LINES * LINE_BYTES as u64, "nonce").await.expect("a store"), "it is new");
    Map::bind(&bucket, None, TakeOver::No).await.expect("a map");
    Map::bind(&bucket, Some("first"), TakeOver::No).await.expect("a map");
    for name in STRANGERS {
        looker.put(&Path::from(name), name.into()).await.expect("somebody else's");
    }
    let mut world = World {
        server: server.clone(),
        simulated,
        bucket,
        ahead_millis: 0,
        has_server_copies,
        cache: "first".into(),
        claim: claim_of("of nobody"),
        random,
        writes: 0,
        now: Image::new(),
        possible: BTreeMap::new(),
        committed: vec![Arc::new(Image::new())],
        windows: 0,
        snapshots: BTreeMap::new(),
        doubtful: None,
        report: Report { runs: 1, ..Report::default() },
    };
    let mut zombie: Option<Zombie> = None;
    for life in 0..LIVES {
        let (process, disk) = world.opened().await;
        world.quietly(disk.sweep()).await.unwrap_or_else(|why| panic!("a sweep: {why}"));
        world.set_trouble(false);
        if world.random.once_in(2) {
            process.connection.ends_in(1 + world.random.below(400));
        }
        for _ in 0..10 + world.random.below(60) {
            let goes_on = tokio::select! {
                biased;
                goes_on = world.turn(life, &disk, zombie.as_ref()) => goes_on,
                () = process.connection.ended() => false,
            };
            if !goes_on {
                break;
            }
        }
        world.report.deaths += u64::from(process.connection.is_gone());
        // Whoever goes on and does not know that it is over does so for a while.
        process.connection.ends_in(u64::MAX);
        server.trouble.store(0, Ordering::Relaxed);
        let last = (process, disk);
        if world.random.once_in(3) {
            world.lose_cache(life, &last).await;
        }
        zombie = Some(last).filter(|(process, _)| !process.connection.is_gone());
    }
    let (process, _disk) = world.opened().await;
    process.connection.end();
    world.end(seed.is_multiple_of(2)).await;
    world.report.troubles = server.troubles();
    (world.report, server)
}
