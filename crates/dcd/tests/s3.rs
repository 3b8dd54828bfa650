//! Proves on the real program, with the feature `s3`, that a data-disk in an object store is at
//! every moment the state after some number of the requests, each whole, in their order (C78); that
//! pair and store find together again after any crash; and that what does not belong together, or
//! keeps no promises, is refused before anything is written.
//!
//! The same is done with a directory in the place of a bucket, for which nothing is needed, and
//! with versitygw, a server of S3, where that is there: `go install
//! github.com/versity/versitygw/cmd/versitygw@v1.8.0`.

#[path = "s3/gateway.rs"]
mod gateway;
mod harness;
#[path = "s3/told.rs"]
mod told;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use harness::model::{Mix, Op, difference, find_prefix};
use harness::nbd::Client;
use harness::random::Random;
use harness::{Helper, Site, cycles, seed, until};
use rustix::fs::XattrFlags;
use rustix::process::{Pid, Signal};

const MIX: Mix =
    Mix { volume: 4 << 20, sectors_max: 64, flush_every: 40, fua_every: 20, zero_every: 12 };
const FLAGS: &str = "--quiet --idle-max 20ms --idle-min 1ms --segment-buffers 4 --one-disk no \
                     --ship-within 200ms";

/// A site whose data-disk is in a store.
struct InStore {
    site: Site,
    store: String,
    server: Option<Server>,
}

/// versitygw on a port of its own.
struct Server {
    helper: Option<Helper>,
    program: PathBuf,
    port: u16,
    root: PathBuf,
    flags: Vec<String>,
}

impl Server {
    fn find() -> Option<PathBuf> {
        let named = std::env::var_os("DCD_VERSITYGW").map(PathBuf::from);
        let path = harness::search_path();
        let home = std::env::var("HOME").unwrap_or_default();
        let places = path.split(':').map(PathBuf::from).chain([PathBuf::from(home).join("go/bin")]);
        let mut found = places.map(|place| place.join("versitygw")).filter(|it| it.exists());
        named.filter(|it| it.exists()).or_else(|| found.next())
    }

    fn start(&mut self) {
        let mut command = Command::new(&self.program);
        command
            .args(["--access", "cache", "--secret", "disk-secret"])
            .args(["--port", &format!("127.0.0.1:{}", self.port), "posix"])
            .args(&self.flags)
            .arg(&self.root)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.helper = Some(Helper::start(&mut command));
        until("the server answers", || TcpStream::connect(("127.0.0.1", self.port)).ok());
    }

    fn stop(&mut self) {
        self.helper = None;
    }
}

impl InStore {
    fn in_directory() -> InStore {
        let site = Site::empty();
        fs::create_dir(site.path("bucket")).unwrap();
        let store = format!("s3+file://{}", site.path("bucket").display());
        InStore { site, store, server: None }
    }

    /// `None`: there is no server.
    fn in_bucket(test: &str) -> Option<InStore> {
        let Some(program) = Server::find() else {
            harness::skipped(test, "there is no versitygw, a server of S3");
            return None;
        };
        let mut site = Site::empty();
        fs::create_dir_all(site.path("s3/bucket")).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let root = site.path("s3");
        // Attributes of objects are with their files, and come with them at once. Elsewhere
        // (--sidecar) they come first, and a server that is killed in between says from then on
        // that the object is there and that it is not: `a_server_that_says_two_things_...`.
        let flags = Vec::new();
        if rustix::fs::setxattr(&root, "user.dcd", b"1", XattrFlags::empty()).is_err() {
            harness::skipped(test, "the file system of the tests has no user attributes");
            return None;
        }
        let mut server = Server { helper: None, program, port, root, flags };
        server.start();
        site.variables = [
            ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}")),
            ("AWS_REGION", "us-east-1".into()),
            ("AWS_ACCESS_KEY_ID", "cache".into()),
            ("AWS_SECRET_ACCESS_KEY", "disk-secret".into()),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .into();
        // A name is locked on a machine, whichever server it is of.
        Some(InStore { site, store: format!("s3://bucket/{test}/prefix"), server: Some(server) })
    }

    /// `None`: none is named. It is nobody's to be killed.
    fn on_another_server(test: &str) -> Option<InStore> {
        let Ok(endpoint) = std::env::var("DCD_S3_ENDPOINT") else {
            harness::skipped(test, "DCD_S3_ENDPOINT names no server");
            return None;
        };
        let mut site = Site::empty();
        let or = |key: &str, other: &str| std::env::var(key).unwrap_or_else(|_| other.into());
        site.variables = vec![("AWS_ENDPOINT_URL".into(), endpoint)];
        for (key, other) in [
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "cache"),
            ("AWS_SECRET_ACCESS_KEY", "disk-secret"),
        ] {
            site.variables.push((key.into(), or(key, other)));
        }
        let (bucket, prefix) = (or("DCD_S3_BUCKET", "bucket"), std::process::id());
        Some(InStore { site, store: format!("s3://{bucket}/{test}-{prefix}"), server: None })
    }

    fn create(&self, more: &str) {
        let line = format!(
            "create --cache-disk c --cache-size 5M --segment-size 64k --data-disk {} {more}",
            self.store
        );
        self.site.dcd(&line).ok();
    }

    fn serve(&self) -> harness::Daemon {
        self.site.serve_disks("c", &self.store, FLAGS)
    }

    fn info(&self) -> serde_json::Value {
        let told = self.site.dcd(&format!("store info {} --json", self.store)).ok();
        serde_json::from_str(&told).unwrap()
    }

    /// The store without its cache: the end of the last window.
    fn image(&self) -> Vec<u8> {
        let _ = fs::remove_file(self.site.path("image"));
        self.site.dcd(&format!("store copy {} --to image", self.store)).ok();
        fs::read(self.site.path("image")).unwrap()
    }

    /// As another machine would have it: nobody on this one sees that both are the same store.
    fn another_name(&self) -> String {
        let same = self.site.path("same");
        if !same.exists() {
            fs::create_dir(self.site.path("elsewhere")).unwrap();
            std::os::unix::fs::symlink("bucket", &same).unwrap();
        }
        format!("s3+file://{}", same.display())
    }

    fn refused(&self, line: &str, words: &[&str]) {
        let outcome = self.site.dcd(line);
        assert_ne!(outcome.code, Some(0), "{line}: {}", outcome.stdout);
        for word in words {
            assert!(outcome.stderr.contains(word), "{line}: {word:?} in {}", outcome.stderr);
        }
        assert!(outcome.stderr.contains("hint"), "{line}: a hint in {}", outcome.stderr);
    }

    /// Processes that have a store open for this daemon.
    fn workers_of(daemon: &harness::Daemon) -> Vec<Pid> {
        let parent_of = |pid: &str| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let line = status.lines().find_map(|line| line.strip_prefix("PPid:\t"))?;
            line.parse::<i32>().ok()
        };
        let pids = fs::read_dir("/proc").unwrap();
        let pids = pids.filter_map(|it| it.unwrap().file_name().into_string().ok());
        let workers = pids.filter(|pid| {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let grandparent = parent_of(pid).and_then(|parent| parent_of(&parent.to_string()));
            line.contains("--worker") && grandparent == Some(daemon.pid().as_raw_nonzero().get())
        });
        workers.filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
    }
}

/// What was killed, so many times; at the end of each life dcd alone, or with the server.
#[derive(Default, Debug)]
struct Killed {
    dcd: u64,
    server: u64,
    both: u64,
    worker: u64,
}

/// Requests one after the other and kill -9 of dcd, of what has the store open, of the server, or of
/// both, with one of them under way, again and again; each time the cache-disk might be thrown away.
fn the_store_alone_is_a_prefix(it: &mut InStore, kills: u64) {
    let seed = seed() ^ 0x7333;
    let mut random = Random::new(seed);
    it.create("--size 4M");
    // Those that the store has not shown yet, behind `base`, which it shows.
    let mut ops: Vec<Op> = Vec::new();
    let mut pending: Option<Op> = None;
    let mut volume = vec![0; MIX.volume as usize];
    let mut base = volume.clone();
    let (mut requests, mut points) = (0, 0);
    let mut killed = Killed::default();
    for kill in 0..kills {
        let daemon = it.serve();
        let mut client = Client::connect(&it.site.socket());
        let found = client.read_all().unwrap();
        if let Some(op) = pending.take()
            && difference(&found, &volume).is_some()
        {
            op.apply(&mut volume);
            ops.push(op);
        }
        assert_eq!(difference(&found, &volume), None, "seed {seed}, before kill {kill}");
        let count = 20 + random.below(300);
        let trouble_at = random.below(count);
        for number in 0..count {
            let op = MIX.op(&mut random);
            client.do_op(&op).unwrap_or_else(|e| panic!("seed {seed}, {kill}, {op:?}: {e:?}"));
            op.apply(&mut volume);
            ops.push(op);
            requests += 1;
            if number == trouble_at {
                match (&mut it.server, random.below(4)) {
                    (_, 0) => {}
                    (Some(server), 1..=2) => {
                        server.stop();
                        server.start();
                        killed.server += 1;
                    }
                    _ => {
                        for pid in InStore::workers_of(&daemon) {
                            let _ = rustix::process::kill_process(pid, Signal::KILL);
                        }
                        killed.worker += 1;
                    }
                }
            }
        }
        if random.once_in(3) {
            it.site.dcd("drain --control ctl").ok();
            let image = it.image();
            assert_eq!(difference(&image, &volume), None, "seed {seed}, drained, kill {kill}");
        } else if kill.is_multiple_of(2) {
            // However soon the others end: this one has brought something.
            until("a window was kept", || {
                it.site.status()["ordered"]["kept"].as_u64().filter(|kept| *kept > 0)
            });
        }
        let op = MIX.op(&mut random);
        client.send_op(&op).unwrap();
        pending = Some(op);
        match &mut it.server {
            Some(server) if random.once_in(2) => {
                server.stop();
                daemon.kill();
                server.start();
                killed.both += 1;
            }
            _ => {
                daemon.kill();
                killed.dcd += 1;
            }
        }
        let image = it.image();
        let with_pending: Vec<Op> = ops.iter().chain(&pending).cloned().collect();
        let point = find_prefix(&image, &base, &with_pending)
            .unwrap_or_else(|e| panic!("seed {seed}, kill {kill}: {e}"));
        points += usize::from(point > 0);
        base = image;
        if point > ops.len() {
            pending.take().expect("it is shown").apply(&mut volume);
        }
        ops.drain(..point.min(ops.len()));
    }
    assert_eq!(it.site.dcd(&format!("store check {}", it.store)).ok(), "ok\n");
    println!("{points} points, {requests} requests, {killed:?}, seed {seed}");
    assert!(points as u64 * 4 >= kills, "{points} points of the order were seen in {kills} lives");

    // Another cache takes it, as if the machine was lost: all of it, and the old one is refused.
    let shown_to_all = it.image();
    fs::rename(it.site.path("c"), it.site.path("old")).unwrap();
    let create = format!("create --cache-disk c --cache-size 5M --data-disk {}", it.store);
    it.refused(&create, &["it belongs to cache", "--take-over"]);
    let _ = fs::remove_file(it.site.path("c"));
    // It was killed: nobody knows that it is gone.
    it.refused(&format!("{create} --take-over"), &["its lease ends in", "--take-over=now"]);
    let _ = fs::remove_file(it.site.path("c"));
    it.create("--take-over=now");
    it.refused(
        &format!("serve --cache-disk old --data-disk {} --nbd unix:sock --memory-lost", it.store),
        &["it belongs to cache"],
    );
    let old = format!("serve --cache-disk old --data-disk {} --nbd unix:sock", it.store);
    it.refused(&format!("{old} --memory-lost --read-only"), &["it belongs to cache"]);
    // What begins read-only has the store, too: it may become writable.
    let mut daemon = it.site.serve_disks("c", &it.store, &format!("{FLAGS} --read-only"));
    it.site.dcd("set --control ctl read-only=false").ok();
    let mut client = Client::connect(&it.site.socket());
    assert_eq!(difference(&client.read_all().unwrap(), &shown_to_all), None, "seed {seed}");
    client.write(0, &[7; 4096]).unwrap();
    it.site.dcd("drain --control ctl").ok();
    assert_eq!(it.image()[..4096], [7; 4096]);
    drop(client);
    it.site.dcd("detach --control ctl").ok();
    assert_eq!(daemon.wait_code(), Some(0));
    assert_eq!(it.info()["cache"], serde_json::Value::Null);
}

#[test]
fn a_store_in_a_directory_is_a_prefix() {
    the_store_alone_is_a_prefix(&mut InStore::in_directory(), cycles(10, 40));
}

#[test]
fn a_store_in_a_bucket_is_a_prefix() {
    let Some(mut it) = InStore::in_bucket("a_store_in_a_bucket_is_a_prefix") else { return };
    the_store_alone_is_a_prefix(&mut it, cycles(8, 40));
}

/// Of a server that this machine has already, with a bucket: `DCD_S3_ENDPOINT=http://127.0.0.1:5000`.
#[test]
fn a_store_on_another_server_is_a_prefix() {
    let test = "a_store_on_another_server_is_a_prefix";
    let Some(mut it) = InStore::on_another_server(test) else { return };
    the_store_alone_is_a_prefix(&mut it, cycles(8, 40));
}

/// Snapshots of a store that is served and of one that is not, what is left of them when they are
/// removed, and clones.
fn snapshots_and_clones(it: &InStore) {
    it.create("--size 4M");
    let daemon = it.serve();
    let mut client = Client::connect(&it.site.socket());
    let snapshot = |verb: &str, name: &str, flags: &str| {
        it.site.dcd(&format!("store snapshot {verb} {} {name} {flags}", it.store))
    };
    let image_of = |store: &str, flags: &str| {
        let _ = fs::remove_file(it.site.path("image"));
        it.site.dcd(&format!("store copy {store} --to image {flags}")).ok();
        fs::read(it.site.path("image")).unwrap()
    };
    let mut states: Vec<(&str, Vec<u8>)> = Vec::new();
    let mut volume = vec![0; 4 << 20];
    for (name, byte) in [("one", 1), ("two", 2)] {
        for at in (usize::from(byte) * 4096..2 << 20).step_by(3 * 4096) {
            client.write(at as u64, &[byte; 4096]).unwrap();
            volume[at..at + 4096].fill(byte);
        }
        // What was acknowledged goes there first.
        snapshot("add", name, "--control ctl").ok();
        states.push((name, volume.clone()));
    }
    let outcome = snapshot("add", "one", "--control ctl");
    assert!(outcome.code != Some(0) && outcome.stderr.contains("already"), "{}", outcome.stderr);
    // Beside the dcd that serves it nobody else changes anything.
    let outcome = snapshot("add", "three", "");
    assert!(outcome.stderr.contains("a dcd has it open"), "{}", outcome.stderr);
    let outcome = snapshot("remove", "four", "--control ctl --json");
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("\"there are one, two\""), "{}", outcome.stderr);
    it.refused(&format!("store snapshot add {} a/b", it.store), &["a/b"]);
    // All of it is written over, and nothing of that is left in the last window.
    client.write(0, &vec![9; 4 << 20]).unwrap();
    it.site.dcd("drain --control ctl").ok();
    for (name, state) in &states {
        let image = image_of(&it.store, &format!("--snapshot {name}"));
        assert_eq!(difference(&image, state), None, "{name}");
        let check = format!("store check {} --snapshot {name}", it.store);
        assert_eq!(it.site.dcd(&check).ok(), "ok\n");
    }
    it.refused(&format!("store copy {} --to no --snapshot four", it.store), &["no snapshot four"]);
    drop(client);
    daemon.stop();

    let listed = it.site.dcd(&format!("store snapshot list {}", it.store)).ok();
    assert!(listed.starts_with("one, ") && listed.contains("\ntwo, "), "{listed}");
    assert!(it.info()["kept_objects"].as_u64().unwrap() > 0, "{}", it.info());
    snapshot("add", "three", "").ok();
    snapshot("remove", "two", "").ok();
    let names = |info: &serde_json::Value| {
        let all = info["snapshots"].as_array().unwrap().iter();
        all.map(|it| it["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&it.info()), ["one", "three"]);

    // A clone is a store of its own, for another cache.
    let to = match it.store.strip_prefix("s3+file://") {
        Some(_) => {
            fs::create_dir(it.site.path("clone")).unwrap();
            format!("s3+file://{}", it.site.path("clone").display())
        }
        None => format!("{}-clone", it.store),
    };
    let clone = format!("store clone {} {to} --snapshot one", it.store);
    it.site.dcd(&clone).ok();
    it.refused(&clone, &["a store is there"]);
    it.site.dcd(&format!("create --cache-disk c2 --cache-size 5M --data-disk {to}")).ok();
    let mut beside = it.site.serve_disks("c2", &to, FLAGS);
    let mut client = Client::connect(&it.site.socket());
    assert_eq!(difference(&client.read_all().unwrap(), &states[0].1), None);
    client.write(0, &[5; 4096]).unwrap();
    drop(client);
    it.site.dcd("detach --control ctl").ok();
    assert_eq!(beside.wait_code(), Some(0));
    assert_eq!(image_of(&to, "")[..4096], [5; 4096]);
    assert_eq!(difference(&image_of(&it.store, "--snapshot one"), &states[0].1), None);

    // A take-over keeps them.
    fs::remove_file(it.site.path("c")).unwrap();
    it.create("--take-over");
    let daemon = it.serve();
    assert_eq!(difference(&image_of(&it.store, "--snapshot three"), &vec![9; 4 << 20]), None);
    snapshot("remove", "one", "--control ctl").ok();
    daemon.stop();
    assert_eq!(names(&it.info()), ["three"]);
    assert_eq!(it.info()["kept_objects"], 0);
}

#[test]
fn a_directory_has_snapshots_and_clones() {
    snapshots_and_clones(&InStore::in_directory());
}

#[test]
fn a_bucket_has_snapshots_and_clones() {
    if let Some(it) = InStore::in_bucket("a_bucket_has_snapshots_and_clones") {
        snapshots_and_clones(&it);
    }
}

/// Beside reads that the store has to answer lines are packed as without them: each object is a
/// request that costs.
#[test]
fn reads_do_not_make_objects_small() {
    let it = InStore::in_directory();
    it.create("--size 4M");
    let daemon = it.serve();
    let mut client = Client::connect(&it.site.socket());
    client.write(0, &vec![1; 4 << 20]).unwrap();
    it.site.dcd("drain --control ctl").ok();
    let before = fs::read_dir(it.site.path("bucket/data")).unwrap().count();
    let mut random = Random::new(seed());
    for _ in 0..400 {
        client.write(random.below(1024) * 4096, &[2; 4096]).unwrap();
        client.read(random.below(1024) * 4096, 4096).unwrap();
    }
    it.site.dcd("drain --control ctl").ok();
    let made = fs::read_dir(it.site.path("bucket/data")).unwrap().count() - before;
    // A window each 200 ms or more, and some flushes for room.
    assert!(made < 100, "{made} objects for 400 lines");
    drop(client);
    daemon.stop();
}

/// With `ack remote` a flush, or a write with FUA, that was answered is in the store alone (C80).
#[test]
fn what_is_flushed_survives_the_machine() {
    let it = InStore::in_directory();
    it.create("--size 4M");
    let seed = seed() ^ 0x7265;
    let mut random = Random::new(seed);
    let mut volume = vec![0; MIX.volume as usize];
    let mix = Mix { flush_every: 12, fua_every: 30, ..MIX };
    // Nothing but flushes brings windows about.
    let flags = FLAGS.replace("--ship-within 200ms", "--ship-within 1h --ack remote");
    let mut answered = 0;
    for _ in 0..cycles(3, 10) {
        let daemon = it.site.serve_disks("c", &it.store, &flags);
        let mut client = Client::connect(&it.site.socket());
        let mut later: Vec<Op> = Vec::new();
        let mut base = volume.clone();
        for _ in 0..60 + random.below(60) {
            let op = mix.op(&mut random);
            client.do_op(&op).unwrap_or_else(|e| panic!("seed {seed}, {op:?}: {e:?}"));
            op.apply(&mut volume);
            let is_durable = matches!(&op, Op::Flush | Op::Write { fua: true, .. });
            later.push(op);
            if is_durable {
                (base, answered) = (volume.clone(), answered + 1);
                later.clear();
            }
        }
        daemon.kill_group();
        find_prefix(&it.image(), &base, &later).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
    println!("{answered} flushes, seed {seed}");
    let daemon = it.site.serve_disks("c", &it.store, &flags);
    let refused = it.site.dcd("set --control ctl ack=memory");
    assert!(refused.code != Some(0) && refused.stderr.contains("restart"), "{}", refused.stderr);
    daemon.stop();
    it.site.folder.disk("d", 4 << 20);
    it.refused("serve --cache-disk c --data-disk d --nbd unix:sock --ack remote", &["ordered"]);
}

/// Whoever writes with a cache that was taken over: the store tells, and keeps what the new owner
/// has. What the old one has acknowledged stays in its log.
#[test]
fn an_owner_that_was_taken_over_writes_no_more() {
    let it = InStore::in_directory();
    it.create("--size 4M");
    let old = it.serve();
    let mut client = Client::connect(&it.site.socket());
    client.write(0, &[1; 8192]).unwrap();
    it.site.dcd("drain --control ctl").ok();
    // On another host, as it were: another name for the same store.
    fs::rename(it.site.path("c"), it.site.path("old")).unwrap();
    let same = it.another_name();
    let create = format!("create --cache-disk c --cache-size 5M --data-disk {same} --take-over");
    it.refused(&create, &["its lease ends in"]);
    let _ = fs::remove_file(it.site.path("c"));
    it.site.dcd(&format!("{create}=now")).ok();
    client.write(4096, &[2; 4096]).unwrap();
    client.flush().unwrap();
    let problem = until("it is told", || {
        let log = old.log();
        log.contains("it belongs to cache").then_some(log)
    });
    assert!(!problem.contains("panicked"), "{problem}");
    assert_eq!(it.image()[4096..8192], [1; 4096], "what is in the log only stays there");
    old.kill();
}

/// A daemon beside the one on `sock`.
fn serve_beside(it: &InStore, cache: &str, store: &str, more: &str) -> harness::Daemon {
    let line = beside(cache, store, more);
    it.site.start_line(&format!("{line} {FLAGS}")).ready()
}

fn beside(cache: &str, store: &str, more: &str) -> String {
    format!(
        "serve --cache-disk {cache} --data-disk {store} --nbd unix:{cache}.sock --control {cache}.ctl \
         --memory-directory elsewhere --memory-lost {more}"
    )
}

fn count_of(text: &str, words: &str) -> usize {
    text.matches(words).count()
}

/// Two daemons with copies of one cache-disk are the same cache: one of them has the store, and the
/// other does not get it back by itself, nor ever again with what is older (C82).
#[test]
fn copies_of_a_cache_do_not_fight_for_the_store() {
    let it = InStore::in_directory();
    it.create("--size 4M");
    let first = it.serve();
    let mut client = Client::connect(&it.site.socket());
    client.write(0, &[1; 4096]).unwrap();
    it.site.dcd("drain --control ctl").ok();
    // As it is while it is served.
    fs::copy(it.site.path("c"), it.site.path("c2")).unwrap();
    let same = it.another_name();
    it.refused(&beside("c2", &same, ""), &["another dcd has it open", "its lease ends in"]);
    it.refused(&beside("c2", &same, "--take-over"), &["its lease ends in", "--take-over=now"]);
    // Whoever was refused has disturbed nobody.
    client.write(4096, &[1; 4096]).unwrap();
    it.site.dcd("drain --control ctl").ok();
    fs::copy(it.site.path("c"), it.site.path("c2")).unwrap();
    // The memory of the first is on another machine. It would be put back.
    first.signal(Signal::STOP);
    for entry in fs::read_dir(it.site.path("")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "segments") {
            fs::remove_file(path).unwrap();
        }
    }
    let second = serve_beside(&it, "c2", &same, "--take-over=now");
    first.signal(Signal::CONT);
    let mut other = Client::connect(&it.site.path("c2.sock"));
    other.write(8192, &[2; 4096]).unwrap();
    it.site.dcd("drain --control c2.ctl").ok();

    // The first finds that out, says so once, and keeps what it has in its log, whatever becomes of
    // what had the store open for it.
    client.write(0, &[3; 4096]).unwrap();
    client.flush().unwrap();
    let lost = "another dcd has opened it since";
    until("it is told", || first.log().contains(lost).then_some(()));
    until("its status has it", || {
        let problem = it.site.status()["ordered"]["problem"].as_str()?.to_owned();
        problem.contains(lost).then_some(())
    });
    for number in 0..8 {
        for pid in InStore::workers_of(&first) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        other.write(12288, &[number; 4096]).unwrap();
        it.site.dcd("drain --control c2.ctl").ok();
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
    client.write(16384, &[3; 4096]).unwrap();
    client.flush().unwrap();
    assert_eq!(count_of(&first.log(), lost), 1, "{}", first.log());
    assert_eq!(client.read(0, 4096).unwrap(), [3; 4096]);
    assert_eq!(it.image()[..4096], [1; 4096]);
    first.kill();
    drop((client, other));

    // Neither while the other has the store, nor when that has ended in order.
    let again =
        format!("serve --cache-disk c --data-disk {} --nbd unix:sock --memory-lost", it.store);
    it.refused(&again, &["older copy", "--trust-disks"]);
    second.stop();
    it.refused(&again, &["older copy", "--trust-disks"]);
    it.refused(&format!("{again} --take-over=now"), &["older copy"]);
    // Whoever has it in order is waited for by nobody, wherever it is served next.
    fs::copy(it.site.path("c2"), it.site.path("c3")).unwrap();
    serve_beside(&it, "c3", &same, "").stop();
}

/// A lease is waited for, and no longer: then another one has the store within seconds.
#[test]
fn a_lease_ends() {
    let it = InStore::in_directory();
    it.create("--size 4M");
    let first = it.serve();
    Client::connect(&it.site.socket()).write(0, &[1; 4096]).unwrap();
    it.site.dcd("drain --control ctl").ok();
    fs::copy(it.site.path("c"), it.site.path("c2")).unwrap();
    // As if its machine had gone; a start there would know that nobody else can have it.
    first.kill_group();
    let same = it.another_name();
    let began = std::time::Instant::now();
    it.refused(&beside("c2", &same, ""), &["its lease ends in"]);
    let left = |it: &InStore| it.info()["lease_left_seconds"].as_u64();
    let seconds = left(&it).expect("there is a lease");
    assert!((20..=40).contains(&seconds), "{seconds}");
    let again = it.serve();
    it.site.dcd("drain --control ctl").ok();
    again.kill_group();
    std::thread::sleep(std::time::Duration::from_secs(left(&it).unwrap_or(0)));
    let ended = until("the lease has ended", || left(&it).is_none().then(std::time::Instant::now));
    assert!(ended - began < std::time::Duration::from_secs(60));
    // Its superblock is older now than that of the start in between.
    it.refused(&beside("c2", &same, ""), &["older copy"]);
    fs::copy(it.site.path("c"), it.site.path("c3")).unwrap();
    let began = std::time::Instant::now();
    let third = serve_beside(&it, "c3", &same, "");
    let took = began.elapsed();
    println!("taken over in {took:?}");
    assert!(took < std::time::Duration::from_secs(5), "{took:?}");
    third.stop();
}

/// With `ack remote` nothing is acknowledged while the lease may have ended, though all is in the
/// store (C83).
#[test]
fn without_a_lease_no_flush_is_answered() {
    let it = InStore::in_directory();
    it.create("--size 4M");
    let flags = format!("{FLAGS} --ack remote");
    let daemon = it.site.serve_disks("c", &it.store, &flags);
    let mut client = Client::connect(&it.site.socket());
    client.write(0, &[1; 4096]).unwrap();
    client.flush().unwrap();
    it.site.dcd("drain --control ctl").ok();
    // Nobody renews it.
    let stopped: Vec<Pid> = InStore::workers_of(&daemon);
    assert!(!stopped.is_empty());
    let signal_all = |signal| {
        for pid in &stopped {
            rustix::process::kill_process(*pid, signal).unwrap();
        }
    };
    signal_all(Signal::STOP);
    std::thread::sleep(std::time::Duration::from_secs(29));
    client.patience(std::time::Duration::from_secs(3));
    client.send_flush().unwrap();
    let early = client.reply();
    assert!(matches!(early, Err(harness::nbd::Failure::Gone(_))), "{early:?}");
    signal_all(Signal::CONT);
    client.patience(std::time::Duration::from_secs(60));
    let (_, answered) = client.reply().unwrap();
    assert_eq!(answered, Ok(()));
    client.flush().unwrap();
    daemon.stop();
}

/// A machine is lost, and one command goes on elsewhere (C84).
#[test]
fn a_start_takes_a_store_over() {
    let it = InStore::in_directory();
    it.create("--size 4M");
    let flags = FLAGS.replace("--ship-within 200ms", "--ship-within 1h");
    let first = it.site.serve_disks("c", &it.store, &flags);
    let mut client = Client::connect(&it.site.socket());
    client.write(0, &[1; 4096]).unwrap();
    it.site.dcd("drain --control ctl").ok();
    client.write(4096, &[2; 4096]).unwrap();
    client.flush().unwrap();
    let before = it.info()["cache"].clone();
    first.kill_group();
    let same = it.another_name();
    let take_over = |cache: &str, how: &str| beside(cache, &same, how);
    it.refused(&take_over("missing", "--take-over=now"), &["missing", "--cache-size"]);
    fs::write(it.site.path("c2"), vec![0; 5 << 20]).unwrap();
    it.refused(&take_over("c2", ""), &["c2"]);
    it.refused(&take_over("c2", "--take-over"), &["its lease ends in", "--take-over=now"]);
    assert_eq!(it.info()["cache"], before, "whoever was refused has changed nothing");
    let began = std::time::Instant::now();
    let second = serve_beside(&it, "c2", &same, "--take-over=now");
    let took = began.elapsed();
    println!("taken over in {took:?}");
    assert!(took < std::time::Duration::from_secs(5), "{took:?}");
    let mut client = Client::connect(&it.site.path("c2.sock"));
    assert_eq!(client.read(0, 8192).unwrap(), [[1; 4096], [0; 4096]].concat());
    client.write(8192, &[3; 4096]).unwrap();
    it.site.dcd("drain --control c2.ctl").ok();
    drop(client);

    // The old one has what is nowhere else.
    let old =
        format!("serve --cache-disk c --data-disk {} --nbd unix:sock --take-over=now", it.store);
    it.refused(&old, &["not on its data-disk yet", "dcd salvage", "--force --uuid"]);
    second.stop();
    it.refused(&old, &["not on its data-disk yet", "dcd salvage", "--force --uuid"]);
    let taken = it.info()["cache"].clone();
    assert_ne!(taken, before);
    // With the store's own cache it is a start like any other.
    serve_beside(&it, "c2", &same, "--take-over").stop();
    assert_eq!(it.info()["cache"], taken);
    assert_eq!(it.image()[8192..12288], [3; 4096]);
    it.site.folder.disk("d", 4 << 20);
    it.refused(
        "serve --cache-disk c3 --data-disk d --nbd unix:sock --take-over",
        &["object store"],
    );
}

/// A server that is away costs nothing but time, is told of by its objects, and is found again.
#[test]
fn a_server_that_is_away_is_told_of() {
    let Some(mut it) = InStore::in_bucket("a_server_that_is_away_is_told_of") else { return };
    it.create("--size 4M");
    let flags = format!("{FLAGS} --drain-timeout 40s");
    let daemon = it.site.serve_disks("c", &it.store, &flags);
    let mut client = Client::connect(&it.site.socket());
    client.write(0, &[1; 8192]).unwrap();
    it.site.dcd("drain --control ctl").ok();
    for (number, is_silent) in [(2, false), (3, true)] {
        let server = it.server.as_mut().unwrap();
        match (is_silent, &server.helper) {
            (true, Some(Helper(child))) => {
                rustix::process::kill_process(Pid::from_child(child), Signal::STOP).unwrap();
            }
            _ => server.stop(),
        }
        let (began, before) = (std::time::Instant::now(), daemon.log().len());
        client.write(4096, &[number; 4096]).unwrap();
        client.flush().unwrap();
        let words = loop {
            let log = daemon.log()[before..].to_owned();
            if log.contains("cannot write") || log.contains("cannot read") {
                break log;
            }
            let waited = began.elapsed();
            assert!(waited < std::time::Duration::from_secs(120), "{log}");
            std::thread::sleep(std::time::Duration::from_millis(200));
        };
        println!("told after {:?}: {words}", began.elapsed());
        assert!(words.contains("data/") || words.contains("map/"), "{words}");
        // What is under way ends, too: whoever waits for all of it is told.
        let drained = it.site.dcd("drain --control ctl");
        assert_ne!(drained.code, Some(0), "{}", drained.stdout);
        it.refused(&format!("store info {}", it.store), &["cannot read the object volume"]);
        let server = it.server.as_mut().unwrap();
        match (is_silent, &server.helper) {
            (true, Some(Helper(child))) => {
                rustix::process::kill_process(Pid::from_child(child), Signal::CONT).unwrap();
            }
            _ => server.start(),
        }
        it.site.dcd("drain --control ctl").ok();
        assert_eq!(it.image()[..8192], [[1; 4096], [number; 4096]].concat());
    }
    daemon.stop();
}

#[test]
fn what_is_no_store_is_refused() {
    let it = InStore::in_directory();
    let line = |more: &str| format!("create --cache-disk c --cache-size 5M --data-disk {more}");
    it.refused(&line(&it.store), &["cannot read the object volume"]);
    fs::write(it.site.path("bucket/mine"), "mine").unwrap();
    it.refused(&line(&format!("{} --size 4M", it.store)), &["no store of dcd", "mine"]);
    assert_eq!(fs::read(it.site.path("bucket/mine")).unwrap(), b"mine");
    fs::remove_file(it.site.path("bucket/mine")).unwrap();
    it.refused(&line(&format!("{} --size 4097", it.store)), &["4 KiB"]);
    it.refused(&line("s3://bucket --size 4M"), &["prefix"]);
    it.refused(&line(&format!("{}-not-there --size 4M", it.store)), &["directory"]);
    it.site.folder.disk("d", 4 << 20);
    it.refused(&line("d --size 4M"), &["--size"]);
    it.create("--size 4M");
    let other = "create --cache-disk c2 --cache-size 5M --data-disk";
    it.refused(&format!("{other} {} --size 8M", it.store), &["a store of"]);
    it.refused(&format!("{other} {} --size 4M", it.store), &["it belongs to cache"]);
    let serve = format!("serve --cache-disk c --data-disk {} --nbd unix:sock", it.store);
    it.refused(&format!("{serve} --destage-policy first-write-first"), &["ordered"]);
    it.refused(&format!("{serve} --window-hook true"), &["window-hook"]);
    let daemon = it.serve();
    let refused = it.site.dcd("set --control ctl destage-policy=first-write-first");
    assert!(refused.code != Some(0) && refused.stderr.contains("ordered"), "{}", refused.stderr);
    Client::connect(&it.site.socket()).write(0, &[1; 4096]).unwrap();
    it.site.dcd("drain --control ctl").ok();
    daemon.stop();

    // Damage is found, by its object.
    let data = fs::read_dir(it.site.path("bucket/data")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&data).unwrap();
    bytes[100] ^= 1;
    fs::write(&data, bytes).unwrap();
    let finds_damage = || {
        let check = it.site.dcd(&format!("store check {}", it.store));
        assert_eq!(check.code, Some(4), "{}", check.stderr);
        assert!(check.stderr.contains(": 1 problem: "), "{}", check.stderr);
        assert!(check.stderr.contains("data/"), "{}", check.stderr);
        assert!(check.stderr.contains("hint: restore these objects"), "{}", check.stderr);
    };
    finds_damage();
    it.refused(&format!("store copy {} --to image", it.store), &["data/", "damaged"]);
    it.refused(&format!("store copy {} --to c", it.store), &["c: File exists", "not there yet"]);
    fs::remove_file(&data).unwrap();
    finds_damage();
    fs::write(it.site.path("bucket/volume"), "{}").unwrap();
    it.refused(&format!("store info {}", it.store), &["volume"]);
}

/// What is below the prefix of a store belongs to that.
fn no_store_lies_within_another(it: &InStore) {
    it.create("--size 4M");
    let make = |store: &str| {
        format!("create --cache-disk c2 --cache-size 5M --size 4M --data-disk {store}")
    };
    let inner = format!("{}/inner", it.store);
    it.refused(&make(&inner), &[&format!("within the store {}", it.store), "prefix"]);
    it.refused(&format!("store clone {} {inner}", it.store), &["within the store"]);
    it.refused(&format!("store info {inner}"), &["object volume"]);
    assert!(!it.site.path("c2").exists());
    it.refused(&make(it.store.rsplit_once('/').unwrap().0), &["another store is below it"]);
    it.site.dcd(&make(&format!("{}-beside", it.store))).ok();
}

#[test]
fn no_store_lies_within_another_in_a_directory() {
    let mut it = InStore::in_directory();
    fs::create_dir_all(it.site.path("bucket/vol/inner")).unwrap();
    fs::create_dir(it.site.path("bucket/vol-beside")).unwrap();
    it.store += "/vol";
    no_store_lies_within_another(&it);
}

#[test]
fn no_store_lies_within_another_in_a_bucket() {
    if let Some(it) = InStore::in_bucket("no_store_lies_within_another_in_a_bucket") {
        no_store_lies_within_another(&it);
    }
}

#[test]
fn a_server_that_refuses_is_told_of() {
    let Some(mut it) = InStore::in_bucket("a_server_that_refuses_is_told_of") else { return };
    let line = |store: &str| {
        format!("create --cache-disk c --cache-size 5M --size 4M --data-disk {store}")
    };
    it.refused(&line("s3://other/prefix"), &["s3://other/prefix", "NoSuchBucket"]);
    let right = it.site.variables.clone();
    it.site.variables[3].1 = "another".into();
    it.refused(&line(&it.store), &[&it.store, "AWS_SECRET_ACCESS_KEY"]);
    it.site.variables = right;
    // Without a place for what it knows of objects it ignores conditions.
    let server = it.server.as_mut().unwrap();
    server.stop();
    server.flags = vec!["--nometa".into()];
    server.start();
    it.refused(&line(&it.store), &["no conditional writes"]);
    let volume = format!("s3/{}/volume", &it.store["s3://".len()..]);
    assert!(!it.site.path(&volume).exists());
    it.server.as_mut().unwrap().stop();
    it.refused(&line(&it.store), &[&it.store]);
}

/// Traces that are objects: the same rows as of the files, and nothing is left of them here.
fn traces_are_objects(it: &InStore, put: impl Fn(&str, &str)) {
    let mut names = Vec::new();
    for (name, gap_us) in [("one", 40_000u64), ("two", 90_000)] {
        let mut trace = "t_us,op,off,len\n".to_owned();
        for number in 0..300u64 {
            trace += &format!("{},W,{},4096\n", number * gap_us, number * 7919 % 10_000 * 8192);
        }
        put(&format!("{name}.csv"), &trace);
        fs::write(it.site.path(&format!("{name}.csv")), trace).unwrap();
        names.push(format!("{name}.csv"));
    }
    fs::write(it.site.path("list"), names.join("\n")).unwrap();
    fs::create_dir_all(it.site.path("tmp")).unwrap();
    let sweep = |traces: &str, out: &str| {
        let grid = "--disk hp-97560 --cache-disk none,8M";
        it.site.dcd(&format!("sweep --traces {traces} {grid} --out {out}")).ok();
        fs::read_to_string(it.site.path(out)).unwrap()
    };
    let (local, remote) = (sweep("list", "local.csv"), sweep(&it.store, "remote.csv"));
    assert_eq!(remote.replace(&format!("{}/", it.store), ""), local);
    let advice =
        it.site.dcd(&format!("advise --traces {} --disk hp-97560 --cache-disk 8M", it.store));
    assert!(advice.ok().contains("of 2 volumes are worth a log"));
    let left = fs::read_dir(it.site.path("tmp")).unwrap().count();
    assert_eq!(left, 0, "what was fetched goes");
}

#[test]
fn traces_may_be_in_a_directory_like_a_bucket() {
    let mut it = InStore::in_directory();
    it.site.variables.push(("TMPDIR".into(), it.site.path("tmp").display().to_string()));
    let folder = it.site.path("bucket");
    traces_are_objects(&it, |name, text| fs::write(folder.join(name), text).unwrap());
}

#[test]
fn traces_may_be_in_a_bucket() {
    let Some(mut it) = InStore::in_bucket("traces_may_be_in_a_bucket") else { return };
    it.site.variables.push(("TMPDIR".into(), it.site.path("tmp").display().to_string()));
    // The server keeps objects as files.
    let folder = it.site.path("s3/bucket/traces_may_be_in_a_bucket/prefix");
    fs::create_dir_all(&folder).unwrap();
    traces_are_objects(&it, |name, text| fs::write(folder.join(name), text).unwrap());
    let wrong = "sweep --disk hp-97560 --out wrong.csv --traces s3://bucket/none";
    it.site.dcd(wrong).fails(1, "there are no traces in s3://bucket/none", "");
}
