//! Proves on the real program that a disk may be an export of an NBD server (C66 to C68): what was
//! acknowledged and flushed is there, whoever dies, the server, dcd or both, also a server that
//! forgets all that it was not told to flush; the same disk is used again, and no other; and a
//! server that cannot be used is refused with words, within a time, and with nothing written.

mod harness;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use harness::model::{Mix, difference};
use harness::nbd::Client;
use harness::random::Random;
use harness::server::Real;
use harness::volatile::{FUA, MULTI_CONN, VolatileServer};
use harness::{Daemon, Site, cycles, seed, until};

const MIB: u64 = 1 << 20;
const MIX: Mix =
    Mix { volume: 8 * MIB, sectors_max: 96, flush_every: 40, fua_every: 20, zero_every: 15 };
/// A small cache, so that it destages all the time.
const FLAGS: &str =
    "--quiet --idle-max 5ms --idle-min 1ms --segment-buffers 4 --dirty-high 6 --dirty-low 1";
const URI: &str = "nbd+unix:///?socket=v.sock";

fn serve(site: &Site, flags: &str) -> Daemon {
    site.serve_disks("c", URI, &format!("{FLAGS} {flags}"))
}

fn create(site: &Site, flags: &str) {
    site.dcd(&format!(
        "create --cache-disk c --cache-size 12M --data-disk {URI} --segment-size 64k {flags}"
    ))
    .ok();
}

fn network(site: &Site) -> serde_json::Value {
    site.status()["network_disks"][0].clone()
}

/// Waits until the connection stands again.
fn connected(site: &Site, reconnects: u64) {
    until("it is connected again", || {
        let disk = network(site);
        let is_back = disk["reconnects"].as_u64() >= Some(reconnects);
        (is_back && disk["state"] == "connected").then_some(())
    });
}

/// Random changes, some flushed; the server, dcd or both die amid them. The server forgets what
/// was not flushed. At the end the data-disk alone holds all.
fn deaths_lose_nothing(name: &str, flags: u16, deaths: u64) {
    let mut random = Random::new(seed() ^ u64::from(flags));
    let site = Site::empty();
    let server = VolatileServer::start(site.path("v.sock"), MIX.volume, flags);
    create(&site, "");
    let mut volume = vec![0; MIX.volume as usize];
    let (mut acked, mut failed_flushes) = (0, 0);
    let mut daemon = Some(serve(&site, ""));
    let log = |daemon: &Option<Daemon>| daemon.as_ref().map(Daemon::log).unwrap_or_default();
    let mut client = Client::connect(&site.socket());
    // Whether one meets writes that were not flushed is a matter of pace, so there are as many as
    // show it, and a fixed number at least.
    for death in 0.. {
        let so_far = failed_flushes + network(&site)["flushes_failed"].as_u64().unwrap();
        if death >= deaths && (deaths < 20 || so_far > 0 || death >= 6 * deaths) {
            break;
        }
        for _ in 0..random.below(120) {
            let op = MIX.op(&mut random);
            client
                .do_op(&op)
                .unwrap_or_else(|e| panic!("death {death}, {op:?}: {e:?}\n{}", log(&daemon)));
            op.apply(&mut volume);
            acked += 1;
        }
        let who = [0, 0, 1, 2][random.below(4) as usize];
        if who > 0 {
            // All that is acknowledged is in memory that outlives it.
            failed_flushes += network(&site)["flushes_failed"].as_u64().unwrap();
            daemon.take().expect("it runs").kill();
        }
        if who == 1 {
            server.die(&mut random);
            server.come_back();
        }
        if who == 0 {
            // It dies amid requests, and comes back amid others.
            let (life, death) = (random.below(150), random.below(300));
            let mut dice = Random::new(random.below(1 << 40));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(life)); // a random instant
                    server.die(&mut dice);
                    std::thread::sleep(Duration::from_millis(death)); // a random instant
                    server.come_back();
                });
                for _ in 0..random.below(150) {
                    let op = MIX.op(&mut random);
                    client.do_op(&op).unwrap_or_else(|e| {
                        panic!("amid death {death}, {op:?}: {e:?}\n{}", log(&daemon))
                    });
                    op.apply(&mut volume);
                    acked += 1;
                }
            });
        }
        if who > 0 {
            daemon = Some(serve(&site, ""));
            client = Client::connect(&site.socket());
        }
        let found = client.read_all().unwrap();
        if let Some(difference) = difference(&found, &volume) {
            panic!("{name}, seed {}, behind death {death}: {difference}\n{}", seed(), log(&daemon));
        }
    }
    daemon.as_ref().expect("it runs").assert_no_panic();
    failed_flushes += network(&site)["flushes_failed"].as_u64().unwrap();
    drop(client);
    site.dcd("detach --control ctl --wait").ok();
    server.die(&mut random);
    if let Some(difference) = difference(&server.lasting(), &volume) {
        panic!("{name}, seed {}, behind the detach: {difference}", seed());
    }
    assert!(acked > deaths * 10, "the load was too small to prove anything");
    assert!(deaths < 20 || failed_flushes > 0, "no server died with writes that were not flushed");
    println!("{name}: {acked} changes, {deaths} deaths, {failed_flushes} flushes failed");
}

#[test]
fn a_server_that_forgets_loses_nothing() {
    deaths_lose_nothing("one connection", 0, cycles(20, 20));
}

#[test]
fn nor_over_several_connections() {
    deaths_lose_nothing("several connections", MULTI_CONN, cycles(20, 20));
}

#[test]
fn nor_without_fua() {
    deaths_lose_nothing("no FUA", FUA, cycles(10, 10));
}

/// Large writes that go past the log: a flush of the client that is answered covers them, and one
/// whose connection broke is not answered as if nothing had happened.
#[test]
fn writes_past_the_log_are_not_believed_behind_a_death() {
    let site = Site::empty();
    let server = VolatileServer::start(site.path("v.sock"), 8 * MIB, 0);
    create(&site, "");
    let daemon = serve(&site, "--bypass-threshold 64k");
    let mut client = Client::connect(&site.socket());
    let mut random = Random::new(seed());
    let (mut kept, mut failed) = (vec![0; 8 << 20], 0);
    for round in 0..8u8 {
        let (offset, data) = (u64::from(round) * MIB, vec![round + 1; 1 << 20]);
        let cookie = client.send_write(offset, &data, false).unwrap();
        server.die(&mut random);
        server.come_back();
        let (answered, result) = client.reply().unwrap();
        assert_eq!(answered, cookie);
        if result.is_ok() && client.flush().is_ok() {
            kept[offset as usize..][..data.len()].copy_from_slice(&data);
        } else {
            // It is as undefined as behind any error of a disk, until it is written again.
            failed += 1;
            until("the disk takes it", || client.write(offset, &data).ok());
            client.flush().unwrap();
            kept[offset as usize..][..data.len()].copy_from_slice(&data);
        }
    }
    println!("{failed} of 8 writes failed");
    assert!(client.read_all().unwrap() == kept, "{}", daemon.log());
    drop(client);
    site.dcd("detach --control ctl --wait").ok();
    server.die(&mut random);
    assert!(difference(&server.lasting(), &kept).is_none());
}

/// Another disk under the same name is not touched, and the right one is used again.
#[test]
fn another_disk_under_its_name_is_refused() {
    let site = Site::empty();
    let server = VolatileServer::start(site.path("v.sock"), 9 * MIB, 0);
    create(&site, "--labelled");
    let daemon = serve(&site, "");
    let mut client = Client::connect(&site.socket());
    client.write(0, &[7; 8192]).unwrap();
    site.dcd("drain --control ctl").ok();
    for (other, words) in [
        (vec![3; 9 << 20], "serves another disk now: the label"),
        (vec![0; 9 << 20], "serves another disk now: the label"),
        (vec![0; 10 << 20], "its size was 9437184 bytes and is 10485760 bytes"),
    ] {
        server.die_alone();
        let ours = server.exchange(other.clone());
        server.come_back();
        client.write(4096, &[9; 4096]).unwrap();
        let problem = until("it is refused", || {
            let disk = network(&site);
            (disk["state"] == "refused").then(|| disk["problem"].as_str().unwrap().to_owned())
        });
        assert!(problem.contains(words), "{problem}");
        let list = site.dcd("status --control ctl").ok();
        assert!(list.contains("refused"), "{list}");
        let metrics = site.dcd("metrics ctl").ok();
        assert!(metrics.contains(r#"dcd_network_disk_state="refused"} 1"#), "{metrics}");
        let reconnects = network(&site)["reconnects"].as_u64().unwrap();
        server.die_alone();
        assert!(server.exchange(ours) == other, "nothing was written");
        server.come_back();
        connected(&site, reconnects + 1);
    }
    assert_eq!(client.read(0, 8192).unwrap(), [[7; 4096], [9; 4096]].concat());
    drop(client);
    site.dcd("detach --control ctl --wait").ok();
    assert!(daemon.log().contains("is not used"), "{}", daemon.log());
}

/// Reads and flushes wait for a server that comes back, and for no longer than `io-timeout`.
#[test]
fn waits_have_an_end() {
    let site = Site::empty();
    let server = VolatileServer::start(site.path("v.sock"), 8 * MIB, 0);
    create(&site, "");
    let daemon = serve(&site, "--io-timeout 2s --no-verify-reads");
    let mut client = Client::connect(&site.socket());
    server.die_alone();
    let began = Instant::now();
    assert!(client.read(6 * MIB, 4096).is_err());
    let took = began.elapsed();
    assert!(took > Duration::from_millis(500) && took < Duration::from_secs(10), "{took:?}");
    client.write(0, &[5; 4096]).unwrap();
    client.flush().unwrap();
    let began = Instant::now();
    let cookie = client.send_read(6 * MIB, 4096).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    server.come_back();
    let reply = client.reply().unwrap();
    assert!(reply == (cookie, Ok(())), "{reply:?}, {}", daemon.log());
    client.data(4096).unwrap();
    assert!(began.elapsed() < Duration::from_secs(3));
    drop(client);
    site.dcd("detach --control ctl --wait").ok();
    assert!(server.lasting()[..4096] == [5; 4096]);
}

/// A server that listens, and says of every request that it shuts down, as qemu-nbd does whose
/// storage has shut it out: it is no connection, it is told of once and asked ever less often, and
/// what waited for it is there when it serves again.
#[test]
fn a_server_that_only_says_that_it_ends_is_told_of_once() {
    let site = Site::empty();
    let server = VolatileServer::start(site.path("v.sock"), 8 * MIB, 0);
    create(&site, "");
    let daemon = serve(&site, "--io-timeout 8s --drain-timeout 1s");
    let mut client = Client::connect(&site.socket());
    client.write(0, &[1; 4096]).unwrap();
    site.dcd("drain --control ctl").ok();
    server.shut_out(true);
    let before = server.connections();
    client.write(0, &[2; 4096]).unwrap();
    client.flush().unwrap();
    let began = Instant::now();
    assert!(client.read(6 * MIB, 4096).is_err(), "it ends");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let tries = server.connections() - before;
    assert!((2..12).contains(&tries), "{tries} in {:?}", began.elapsed());
    let disk = network(&site);
    assert_eq!(disk["state"], "connecting", "{disk}");
    assert!(disk["problem"].as_str().unwrap().contains("shut it out"), "{disk}");
    let log = daemon.log();
    assert_eq!(log.matches("the connection is lost").count(), 1, "{log}");
    assert_eq!(log.matches("connected again").count(), 0, "{log}");
    let drain = site.dcd("drain --control ctl");
    assert!(drain.code != Some(0) && server.lasting()[0] == 1, "{}", drain.stdout);
    server.shut_out(false);
    connected(&site, 1);
    site.dcd("drain --control ctl").ok();
    assert_eq!(server.lasting()[..4096], [2; 4096]);
    daemon.assert_no_panic();
}

/// A server that says what a script wants.
fn strange(site: &Site, say: &'static [u8]) {
    let listener = UnixListener::bind(site.path("v.sock")).unwrap();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let _ = client.write_all(say);
                let _ = client.read(&mut [0; 1]);
                std::thread::sleep(Duration::from_secs(120)); // it says no more
            });
        }
    });
}

#[test]
fn servers_that_cannot_be_used_are_refused() {
    let line = |uri: &str| format!("create --cache-disk c --cache-size 5M --data-disk {uri}");
    let refused = |site: &Site, uri: &str, words: &str, hint: &str| {
        let outcome = site.dcd(&line(uri));
        let text = outcome.stderr.clone();
        assert_ne!(outcome.code, Some(0), "{uri}");
        assert!(text.contains(words) && text.contains(hint), "{uri}: {text}");
        assert!(!site.path("c").exists(), "{uri}: nothing is made");
    };
    let site = Site::empty();
    refused(&site, URI, "cannot connect to v.sock", "nbdinfo --list");
    refused(&site, "nbd://127.0.0.1:1/x", "Connection refused", "host, port");
    refused(&site, "nbd://no.such.host.invalid/x", "is not known", "give an address");
    refused(&site, "nbd://h:99999/x", "a port from 1 to 65535", "nbd://HOST");
    refused(&site, "nbd+unix:///x", "?socket=PATH", "nbd+unix:///EXPORT");
    for (say, words) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "it is no NBD server"),
        (&b"NBDMAGIC\0\0\x42\x02\x81\x86\x12\x53................"[..], "old form of NBD"),
        (&b"NBDMAGICIHAVEOPT\0\x03garbagegarbagegarbagegarbage"[..], "not asked"),
    ] {
        let site = Site::empty();
        strange(&site, say);
        refused(&site, URI, words, "");
    }
    let site = Site::empty();
    strange(&site, b"");
    let began = Instant::now();
    refused(&site, URI, "has not answered within", "one client at a time");
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
}

#[test]
fn what_cannot_be_a_network_disk_says_so() {
    let site = Site::empty();
    let _server = VolatileServer::start(site.path("v.sock"), 16 * MIB, MULTI_CONN);
    site.folder.disk("d", 8 * MIB);
    let outcome = site.dcd(&format!("create --cache-disk {URI} --share 5M --data-disk d"));
    assert!(
        outcome.stderr.contains("a cache-disk with shares cannot be a network disk"),
        "{}",
        outcome.stderr
    );
    let outcome = site.dcd(&format!("create --cache-disk {URI} --data-disk {URI}"));
    assert!(outcome.stderr.contains("same disk"), "{}", outcome.stderr);
    site.dcd("create --cache-disk c --cache-size 5M --data-disk d").ok();
    let _daemon = site.serve("");
    let outcome = site.dcd(&format!("cache-disk add --control ctl {URI}"));
    assert!(outcome.stderr.contains("cannot be a network disk"), "{}", outcome.stderr);
}

/// The log on a network disk, alone and as a leg beside a local one, which may go at any time.
#[test]
fn legs_and_members_may_be_network_disks() {
    let site = Site::empty();
    let mut random = Random::new(seed());
    let server = VolatileServer::start(site.path("v.sock"), 8 * MIB, MULTI_CONN);
    site.folder.disk("d", MIX.volume);
    site.dcd(&format!(
        "create --cache-disk c --cache-size 8M --cache-disk {URI} --data-disk d --segment-size 64k"
    ))
    .ok();
    let line = format!(
        "serve --cache-disk c --cache-disk {URI} --data-disk d --nbd unix:sock --control ctl --memory-directory . {FLAGS} --io-timeout 3s"
    );
    let daemon = site.start_line(&line).ready();
    let mut client = Client::connect(&site.socket());
    let mut volume = vec![0; MIX.volume as usize];
    for round in 0..60 {
        let op = MIX.op(&mut random);
        client.do_op(&op).unwrap_or_else(|e| panic!("{op:?}: {e:?}\n{}", daemon.log()));
        op.apply(&mut volume);
        if round == 30 {
            server.die(&mut random);
        }
    }
    assert!(difference(&client.read_all().unwrap(), &volume).is_none());
    client.flush().unwrap();
    drop(client);
    server.come_back();
    daemon.stop();
    let daemon = site.start_line(&line).ready();
    let mut client = Client::connect(&site.socket());
    assert!(difference(&client.read_all().unwrap(), &volume).is_none(), "{}", daemon.log());
    until("both legs are in sync", || {
        let status = site.status();
        let legs = status["legs"].as_array().unwrap().clone();
        legs.iter().all(|leg| leg["state"] == "in-sync").then_some(())
    });
    drop(client);
    site.dcd("detach --control ctl --wait").ok();
    assert!(difference(&fs::read(site.path("d")).unwrap(), &volume).is_none());

    // Members of a mirror.
    let site = Site::empty();
    let server = VolatileServer::start(site.path("v.sock"), 24 * MIB, 0);
    site.folder.disk("d", 24 * MIB);
    fs::write(site.path("volume.toml"), "[[set]]\nlevel = 1\nmembers = [0, 1]\n").unwrap();
    site.dcd(&format!(
        "create --cache-disk c --cache-size 24M --data-disk d --data-disk {URI} --volume volume.toml"
    ))
    .ok();
    let line = format!(
        "serve --cache-disk c --data-disk d --data-disk {URI} --nbd unix:sock --control ctl --memory-directory . {FLAGS} --io-timeout 3s"
    );
    let daemon = site.start_line(&line).ready();
    let mut client = Client::connect(&site.socket());
    let mut volume = vec![0; MIX.volume as usize];
    for round in 0..60u8 {
        let (offset, length) = (random.below(2000) * 4096, (1 + random.below(12)) as usize * 4096);
        let data = vec![round + 1; length];
        client.write(offset, &data).unwrap_or_else(|e| panic!("{e:?}\n{}", daemon.log()));
        volume[offset as usize..][..length].copy_from_slice(&data);
        if round == 30 {
            server.die(&mut random);
            server.come_back();
        }
    }
    let found = client.read(0, MIX.volume as usize).unwrap();
    assert!(difference(&found, &volume).is_none(), "{}", daemon.log());
    site.dcd("drain --control ctl").ok();
    daemon.stop();
}

/// Load on a server that is not ours, which is killed amid it and started again.
fn real_server(name: &str, line: &str, rounds: u64) {
    let site = Site::empty();
    site.folder.disk("remote", MIX.volume);
    let mut random = Random::new(seed());
    fs::write(site.path("errors"), "").unwrap();
    let mut server = Real::start(&site, line);
    create(&site, "");
    let daemon = serve(&site, "");
    let mut client = Client::connect(&site.socket());
    let mut volume = vec![0; MIX.volume as usize];
    for round in 0..rounds {
        for _ in 0..60 {
            let op = MIX.op(&mut random);
            client.do_op(&op).unwrap_or_else(|e| panic!("{name}: {op:?}: {e:?}\n{}", daemon.log()));
            op.apply(&mut volume);
        }
        server.kill();
        std::thread::sleep(Duration::from_millis(random.below(30))); // dcd has work meanwhile
        server.come_back(&site);
        let found = client.read_all().unwrap();
        assert!(difference(&found, &volume).is_none(), "{name}, round {round}: {}", daemon.log());
    }
    connected(&site, 1);
    let _ = fs::remove_file(site.path("errors"));
    drop(client);
    site.dcd("detach --control ctl --wait").ok();
    daemon.assert_no_panic();
    server.kill();
    let found = fs::read(site.path("remote")).unwrap();
    assert!(difference(&found, &volume).is_none(), "{name}: behind the detach");
}

#[test]
fn nbdkit_is_a_data_disk() {
    skip_without!("nbdkit_is_a_data_disk", "nbdkit");
    real_server("nbdkit", "nbdkit -f -U DIR/v.sock file DIR/remote", 4);
    let delayed = "nbdkit -f -U DIR/v.sock --filter=delay --filter=error file DIR/remote rdelay=2ms wdelay=2ms \
                   error-pwrite-rate=5% error-pwrite=EIO error-pwrite-file=DIR/errors";
    real_server("nbdkit with delays and errors", delayed, 2);
    let small = "nbdkit -f -U DIR/v.sock --no-sr --filter=blocksize-policy file DIR/remote blocksize-minimum=512 \
                 blocksize-preferred=4096 blocksize-maximum=16384 blocksize-error-policy=error";
    real_server("nbdkit with requests of 16 KiB at most and simple replies", small, 2);
}

#[test]
fn qemu_nbd_is_a_data_disk() {
    skip_without!("qemu_nbd_is_a_data_disk", "qemu-nbd");
    real_server("qemu-nbd", "qemu-nbd -t -f raw -k DIR/v.sock DIR/remote", 4);
}

#[test]
fn what_nbdkit_cannot_serve_is_refused() {
    skip_without!("what_nbdkit_cannot_serve_is_refused", "nbdkit");
    for (line, words) in [
        ("nbdkit -f -r -U DIR/v.sock memory 8M", "read-only"),
        ("nbdkit -f -U DIR/v.sock memory 0", "0 bytes"),
        ("nbdkit -f -U DIR/v.sock memory 1000", "1000 bytes"),
    ] {
        let site = Site::empty();
        let _server = Real::start(&site, line);
        let made = site.dcd(&format!("create --cache-disk c --cache-size 5M --data-disk {URI}"));
        assert!(made.code != Some(0) && made.stderr.contains(words), "{line}: {}", made.stderr);
    }
    let site = Site::empty();
    let _server = Real::start(&site, "nbdkit -f -U DIR/v.sock memory 16M");
    create(&site, "");
    for line in [format!("inspect data-disk --data-disk {URI}"), "list".into()] {
        site.dcd(&line);
    }
    drop(_server);
    let _small = Real::start(&site, "nbdkit -f -U DIR/v.sock memory 4M");
    let served = site.dcd(&format!("serve --cache-disk c --data-disk {URI} --nbd unix:sock"));
    assert!(served.code != Some(0), "too small: {}", served.stderr);
}

/// One dcd on another; over TCP, for once.
#[test]
fn another_dcd_is_a_data_disk() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let below = Site::new("5M", MIX.volume);
    let flags = format!("--nbd tcp:127.0.0.1:{port} --insecure-tcp --quiet");
    let mut server = below.serve(&flags);
    let site = Site::empty();
    let uri = format!("nbd://127.0.0.1:{port}/");
    site.dcd(&format!("create --cache-disk c --cache-size 5M --data-disk {uri}")).ok();
    let daemon = site.serve_disks("c", &uri, FLAGS);
    let mut client = Client::connect(&site.socket());
    let mut random = Random::new(seed());
    let mut volume = vec![0; MIX.volume as usize];
    for _ in 0..4 {
        for _ in 0..60 {
            let op = MIX.op(&mut random);
            client.do_op(&op).unwrap_or_else(|e| panic!("{op:?}: {e:?}\n{}", daemon.log()));
            op.apply(&mut volume);
        }
        server.kill();
        server = below.serve(&flags);
        let found = client.read_all().unwrap();
        assert!(difference(&found, &volume).is_none(), "{}", daemon.log());
    }
    assert!(network(&site)["reconnects"].as_u64() >= Some(1), "{}", network(&site));
    drop(client);
    site.dcd("detach --control ctl --wait").ok();
    server.kill();
    assert!(difference(&below.detach(), &volume).is_none());
}
