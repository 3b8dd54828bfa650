//! Proves on the real program, with the feature `s3`, that a data-disk in an object store is at
//! every moment the state after some number of the requests, each whole, in their order (C78); that
//! pair and store find together again after any crash; and that what does not belong together, or
//! keeps no promises, is refused before anything is written.
//!
//! The same is done with a directory in the place of a bucket, for which nothing is needed, and
//! with versitygw, a server of S3, where that is there: `go install
//! github.com/versity/versitygw/cmd/versitygw@v1.8.0`.

mod harness;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use harness::model::{Mix, Op, difference, find_prefix};
use harness::nbd::Client;
use harness::random::Random;
use harness::{Helper, Site, cycles, seed, until};
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
        fs::create_dir(site.path("sidecar")).unwrap();
        let flags = vec!["--sidecar".to_owned(), site.path("sidecar").display().to_string()];
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
        Some(InStore { site, store: "s3://bucket/some/prefix".into(), server: Some(server) })
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

/// Requests one after the other and kill -9 of dcd, of what has the store open, or of the server,
/// with one of them under way, again and again; each time the cache-disk might be thrown away.
fn the_store_alone_is_a_prefix(it: &mut InStore, kills: u64) {
    let seed = seed() ^ 0x7333;
    let mut random = Random::new(seed);
    it.create("--size 4M");
    let mut ops: Vec<Op> = Vec::new();
    let mut pending: Option<Op> = None;
    let mut volume = vec![0; MIX.volume as usize];
    let mut base = volume.clone();
    let (mut shown, mut points) = (0, 0);
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
        let trouble_at = random.below(2 * count);
        for number in 0..count {
            let op = MIX.op(&mut random);
            client.do_op(&op).unwrap_or_else(|e| panic!("seed {seed}, {kill}, {op:?}: {e:?}"));
            op.apply(&mut volume);
            ops.push(op);
            if number == trouble_at {
                match (&mut it.server, random.once_in(2)) {
                    (Some(server), true) => {
                        server.stop();
                        server.start();
                    }
                    _ => {
                        for pid in InStore::workers_of(&daemon) {
                            let _ = rustix::process::kill_process(pid, Signal::KILL);
                        }
                    }
                }
            }
        }
        if random.once_in(3) {
            it.site.dcd("drain --control ctl").ok();
            let image = it.image();
            assert_eq!(difference(&image, &volume), None, "seed {seed}, drained, kill {kill}");
        }
        let op = MIX.op(&mut random);
        client.send_op(&op).unwrap();
        pending = Some(op);
        daemon.kill();
        let image = it.image();
        let with_pending: Vec<Op> = ops.iter().chain(&pending).cloned().collect();
        let point = find_prefix(&image, &base, &with_pending[shown..])
            .unwrap_or_else(|e| panic!("seed {seed}, kill {kill}: {e}"));
        points += usize::from(point > 0);
        shown += point;
        base = image;
        if shown > ops.len() {
            let op = pending.take().expect("it is shown");
            op.apply(&mut volume);
            ops.push(op);
        }
    }
    assert_eq!(it.site.dcd(&format!("store check {}", it.store)).ok(), "ok\n");
    println!("{points} points, {} requests, seed {seed}", ops.len());
    assert!(points as u64 * 4 >= kills, "{points} points of the order were seen in {kills} lives");

    // Another cache takes it, as if the machine was lost: all of it, and the old one is refused.
    let shown_to_all = it.image();
    fs::rename(it.site.path("c"), it.site.path("old")).unwrap();
    let create = format!("create --cache-disk c --cache-size 5M --data-disk {}", it.store);
    it.refused(&create, &["it belongs to cache", "--take-over"]);
    let _ = fs::remove_file(it.site.path("c"));
    it.create("--take-over");
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
    std::os::unix::fs::symlink("bucket", it.site.path("same")).unwrap();
    let same = format!("s3+file://{}", it.site.path("same").display());
    let create = format!("create --cache-disk c --cache-size 5M --data-disk {same} --take-over");
    it.site.dcd(&create).ok();
    client.write(4096, &[2; 4096]).unwrap();
    client.flush().unwrap();
    let problem = until("it is told", || {
        let log = old.log();
        (log.contains("somebody else has opened it") || log.contains("it belongs to cache"))
            .then_some(log)
    });
    assert!(!problem.contains("panicked"), "{problem}");
    assert_eq!(it.image()[4096..8192], [1; 4096], "what is in the log only stays there");
    old.kill();
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
    it.refused(&format!("store check {}", it.store), &["data/"]);
    it.refused(&format!("store copy {} --to image", it.store), &["data/", "damaged"]);
    fs::remove_file(&data).unwrap();
    it.refused(&format!("store check {}", it.store), &["data/"]);
    fs::write(it.site.path("bucket/volume"), "{}").unwrap();
    it.refused(&format!("store info {}", it.store), &["volume"]);
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
    assert!(!it.site.path("s3/bucket/some/prefix/volume").exists());
    it.server.as_mut().unwrap().stop();
    it.refused(&line(&it.store), &[&it.store]);
}
