//! Cases of the model that say what they are about, and its runs. `DCD_STORE_RUNS` and
//! `DCD_STORE_RACES` run more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::TryStreamExt;
use object_store::ObjectStore;
use object_store::path::Path;

use dcd_protocol::store::{
    Claim, SNAPSHOTS_MAX, STORE_MESSAGE_BYTES_MAX, SnapshotName, StoreFailure, TakeOver,
};

use super::random::Random;
use super::server::Server;
use super::world::{content, write_of};
use super::{PREFIX, Report, STACK_BYTES, Simulation, claim_of, on_this_thread, run};
use crate::cloning::{clone_store, end_clone};
use crate::disk::StoreDisk;
use crate::format::LINE_BYTES;
use crate::map::{Access, Map};
use crate::objects::Bucket;

const LINES: u64 = 96;

/// A new store that belongs to this cache, on a server without troubles.
pub async fn new_store(seed: u64, lines: u64, cache: &str) -> (Arc<Server>, Bucket) {
    let server = Server::new(seed, 0);
    let simulated = Simulation::new(&server, seed);
    let bucket = simulated.bucket(PREFIX, &server.connect(None), 0);
    assert!(bucket.create(lines * LINE_BYTES as u64, "nonce").await.unwrap());
    Map::bind(&bucket, Some(cache), TakeOver::No).await.unwrap();
    (server, bucket)
}

/// Time and random numbers of others than made the store of the server.
fn of_others(server: &Arc<Server>) -> Simulation {
    Simulation::new(server, 1 << 32)
}

/// A bucket beside that of the server's store.
fn beside(server: &Arc<Server>) -> Bucket {
    of_others(server).bucket("c", &server.connect(None), 0)
}

fn on_a_thread<T: Send>(what: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        let run = thread.spawn_scoped(scope, what);
        run.unwrap().join().unwrap_or_else(|why| std::panic::resume_unwind(why))
    })
}

pub fn on_simulated_time<F: Future<Output = ()>>(what: impl FnOnce() -> F + Send) {
    on_a_thread(|| on_this_thread(what()));
}

/// Who reads a window reads that, whatever is committed meanwhile; or nothing.
async fn read_while_it_is_served() {
    let (_, bucket) = new_store(1, LINES, "cache").await;
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
    let (server, bucket) = new_store(1, LINES, "cache").await;
    let away = |is_away| server.is_away.store(is_away, Ordering::Relaxed);
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
    let (_, bucket) = new_store(1, LINES, "cache").await;
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
    let (server, bucket) = new_store(1, LINES, "cache").await;
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
    let to = beside(&server);
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

/// A clone has what its store has, or is none: an object that is another one is not taken over.
/// Found by `dcd fuzz --store`.
async fn wrong_objects_are_not_cloned() {
    let (server, bucket) = new_store(1, LINES, "cache").await;
    let access = Access::Write(claim_of("cache"));
    let disk = StoreDisk::open(bucket.clone(), &access).await.unwrap();
    for number in 1..=2 {
        disk.write(number, content(number).into()).await.unwrap();
        disk.commit(number).await.unwrap();
    }
    let [one, two] = bucket.data_objects().await.unwrap()[..] else { panic!("one each") };
    let right = bucket.get(&one.name()).await.unwrap();
    bucket.put_data(one, bucket.get(&two.name()).await.unwrap()).await.unwrap();
    let to = beside(&server);
    let reader = StoreDisk::open(bucket.clone(), &Access::Read).await.unwrap();
    let wrong = clone_store(&reader, "it", &to, "nonce", |_, _| {}).await.unwrap_err();
    assert!(wrong.problem.contains(&one.name()), "{wrong}");
    assert!(StoreDisk::open(to.clone(), &Access::Read).await.is_err(), "it is none");
    bucket.put_data(one, right).await.unwrap();
    clone_store(&reader, "it", &to, "nonce", |_, _| {}).await.unwrap();
    let clone = StoreDisk::open(to, &Access::Read).await.unwrap();
    assert_eq!(clone.check().await.unwrap(), Vec::<String>::new());
}

/// A machine whose clock is behind that of the one before, as far as clocks may differ, gets the
/// store at once all the same. Found by `dcd fuzz --store`.
async fn a_clock_that_is_behind() {
    let (server, _) = new_store(1, LINES, "ahead").await;
    let simulated = of_others(&server);
    let of = |ahead_millis| simulated.bucket(PREFIX, &server.connect(None), ahead_millis);
    let access = Access::Write(claim_of("ahead"));
    let disk = StoreDisk::open(of(4_000), &access).await.unwrap();
    // Some tables of its map are of its time.
    for number in 1..=70 {
        disk.write(number, content(number).into()).await.unwrap();
        disk.commit(number).await.unwrap();
    }
    let behind = of(-4_000);
    Map::bind(&behind, Some("behind"), TakeOver::Now).await.unwrap();
    let access = Access::Write(claim_of("behind"));
    let disk = StoreDisk::open(behind, &access).await.unwrap();
    assert_eq!(write_of(&disk.read(70, 1).await.unwrap()), 70);
    disk.write(1, content(99).into()).await.unwrap();
    disk.commit(1).await.unwrap();
}

/// A server that says of the next object of the map's log that it is there, and that it is not
/// (seen of versitygw with `--sidecar`, killed in a PUT): nothing is written behind it, or nobody
/// opened the map any more. As soon as the server is mended the store goes on.
async fn half_an_object() {
    let (server, bucket) = new_store(1, LINES, "cache").await;
    let log = async || {
        let folder = Path::from(format!("{PREFIX}/map/wal"));
        let there: Vec<_> = server.connect(None).list(Some(&folder)).try_collect().await.unwrap();
        there.into_iter().map(|meta| meta.location).max().expect("a log")
    };
    let open = async || {
        let access = Access::Write(Claim { is_now: true, ..claim_of("cache") });
        StoreDisk::open(bucket.clone(), &access).await
    };
    let disk = open().await.unwrap();
    disk.write(1, content(1).into()).await.unwrap();
    disk.commit(1).await.unwrap();
    let last = log().await;
    let number: u64 = last.filename().unwrap().strip_suffix(".sst").unwrap().parse().unwrap();
    let next = Path::from(format!("{PREFIX}/map/wal/{:020}.sst", number + 1));
    server.has_half_of(next.clone());
    // It stays, and nothing else goes wrong.
    server.trouble_again(u64::MAX);
    disk.write(2, content(2).into()).await.unwrap();
    let of_writer = disk.commit(2).await.unwrap_err();
    for why in
        [of_writer, open().await.map(|_| ()).unwrap_err(), open().await.map(|_| ()).unwrap_err()]
    {
        assert!(why.problem.contains(next.as_ref()), "{why}");
        assert!(why.problem.contains("both that it is there and that it is not"), "{why}");
        assert!(!why.is_silence && why.hint.as_ref().unwrap().contains("sidecar"), "{why:?}");
    }
    assert_eq!(log().await, last, "nothing was written behind it");
    server.quiet();
    let disk = open().await.unwrap();
    assert_eq!(write_of(&disk.read(1, 1).await.unwrap()), 1);
    disk.write(2, content(3).into()).await.unwrap();
    disk.commit(2).await.unwrap();
}

#[test]
fn half_an_object_makes_no_gap_in_the_log_of_the_map() {
    on_simulated_time(half_an_object);
}

#[test]
fn a_machine_whose_clock_is_behind_gets_it_at_once() {
    on_simulated_time(a_clock_that_is_behind);
}

#[test]
fn an_object_that_is_another_one_is_not_cloned() {
    on_simulated_time(wrong_objects_are_not_cloned);
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
    let (server, bucket) = new_store(random.next(), LINES, "cache").await;
    let access = Access::Write(claim_of("cache"));
    let disk = StoreDisk::open(bucket.clone(), &access).await.unwrap();
    for line in 0..4 {
        disk.write(line, content(line + 1).into()).await.unwrap();
        disk.commit(line).await.unwrap();
    }
    disk.take_snapshot(&"s".parse().unwrap(), "s").await.unwrap();
    let access = Access::Snapshot("s".parse().unwrap());
    let reader = StoreDisk::open(bucket.clone(), &access).await.unwrap();
    let to = beside(&server);
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
    let (server, bucket) = new_store(random.next(), LINES, "gone").await;
    server.trouble.store([0, 0, 40][random.below(3) as usize], Ordering::Relaxed);
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
    server.trouble.store(0, Ordering::Relaxed);
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
    let (_, bucket) = new_store(1, LINES, "first").await;
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
    let mut all = Report::default();
    for seed in first..first + runs {
        let done = on_a_thread(|| run(seed));
        all.add(&done.unwrap_or_else(|why| panic!("seed {seed}: {why}")));
    }
    println!("{all:?}");
    assert!(all.crash_points > 50 * runs && all.deaths > runs, "{all:?}");
    let troubles = all.troubles;
    let each = [
        troubles.nothing,
        troubles.unanswered,
        troubles.late,
        troubles.twice,
        troubles.half_written,
        troubles.old_listings,
        troubles.other_objects,
    ];
    // Few runs need not have all of them.
    assert!(runs < 20 || each.iter().all(|count| *count > 0), "{troubles:?}");
}
