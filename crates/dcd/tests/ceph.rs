//! Proves on the real program, over a real Ceph, that an image of RBD behind qemu-nbd is a
//! data-disk: nothing that was acknowledged is lost, whoever dies, dcd, qemu-nbd, the storage
//! daemon or all (C66); snapshots of a window hook are a prefix (C75); and a writer that is shut
//! out keeps what it has, says so, and overwrites nothing.
//!
//! Needs a Ceph of Debian, which is started here: `make test-ceph`.

mod harness;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use harness::ceph;
use harness::model::{Mix, Op, difference, find_prefix, settle};
use harness::nbd::Client;
use harness::pages::try_commands;
use harness::random::Random;
use harness::server::Real;
use harness::{Daemon, Site, cycles, seed, until};

const MIB: u64 = 1 << 20;
const MIX: Mix =
    Mix { volume: 8 * MIB, sectors_max: 96, flush_every: 40, fua_every: 20, zero_every: 15 };
/// A small cache, so that it destages all the time; and Ceph may stand still for longer than half a
/// minute behind a death of a storage daemon.
const FLAGS: &str = "--quiet --idle-max 5ms --idle-min 1ms --segment-buffers 4 --dirty-high 6 \
                     --dirty-low 1 --io-timeout 100s";
const URI: &str = "nbd+unix:///?socket=v.sock";
/// What `rbd create` gives an image by default, and one that anybody may open.
const LOCKED: &str = "layering,exclusive-lock,object-map,fast-diff,deep-flatten";
const PLAIN: &str = "layering";

fn is_skipped(test: &str) -> bool {
    let missing = ceph::missing();
    if let Some(reason) = &missing {
        harness::skipped(test, reason);
    }
    missing.is_some()
}

fn create(site: &Site, flags: &str) {
    let line = format!("create --cache-disk c --cache-size 12M --data-disk {URI}");
    site.dcd(&format!("{line} --segment-size 64k {flags}")).ok();
}

fn serve(site: &Site) -> Daemon {
    site.serve_disks("c", URI, FLAGS)
}

fn connect(site: &Site) -> Client {
    let client = Client::connect(&site.socket());
    client.patience(Duration::from_secs(120));
    client
}

fn failed_flushes(site: &Site) -> u64 {
    site.status()["network_disks"][0]["flushes_failed"].as_u64().unwrap()
}

/// Who dies at one moment.
#[derive(Clone, Copy, Debug)]
struct Death {
    dcd: bool,
    server: bool,
    osd: bool,
}

impl Death {
    fn any(random: &mut Random) -> Death {
        let [dcd, server, osd] = [
            [false, true, false],
            [false, false, true],
            [false, true, true],
            [true, false, false],
            [true, true, false],
            [true, true, true],
        ][random.below(6) as usize];
        Death { dcd, server, osd }
    }

    fn kill(self, site: &Site, server: &mut Real) {
        if self.osd {
            ceph::kill_osd(site);
        }
        if self.server {
            server.kill();
        }
    }

    /// All but dcd. Of an image with a lock the dead client is shut out first, or its lock would be
    /// respected for half a minute.
    fn come_back(self, site: &Site, server: &mut Real, image: &str) {
        if self.osd {
            ceph::start_osd(site);
        }
        if self.server {
            if image == "locked" {
                ceph::fence(site, image);
            }
            server.come_back(site);
        }
    }
}

/// Random changes, some flushed; dcd, the server, the storage daemon die amid them. At the end the
/// image alone holds all. What is wrong is a panic; an error is what failed.
fn deaths_lose_nothing(site: &Site, image: &str, deaths: u64) -> Result<(), String> {
    let seed = seed() ^ image.len() as u64;
    let mut random = Random::new(seed);
    let mut server = ceph::serve(site, site, image);
    create(site, "");
    let mut volume = vec![0; MIX.volume as usize];
    let (mut acked, mut failed) = (0, 0);
    let mut kinds = [0; 3];
    let mut daemon = Some(serve(site));
    let mut client = connect(site);
    let mut change = |client: &mut Client,
                      random: &mut Random,
                      volume: &mut Vec<u8>,
                      when: &str|
     -> Result<(), String> {
        let op = MIX.op(random);
        client.do_op(&op).map_err(|e| format!("{when}, {op:?}: {e:?}"))?;
        op.apply(volume);
        acked += 1;
        Ok(())
    };
    for number in 0..deaths {
        let death = Death::any(&mut random);
        let when = format!("death {number}, {death:?}");
        for _ in 0..random.below(120) {
            change(&mut client, &mut random, &mut volume, &when)?;
        }
        let mut pending = Vec::new();
        let pause = Duration::from_millis(random.below(300));
        if death.dcd {
            failed += failed_flushes(site);
            // One is under way. All that is acknowledged is in memory that outlives dcd.
            let op = MIX.op(&mut random);
            client.send_op(&op).unwrap();
            pending.push(op);
            death.kill(site, &mut server);
            daemon.take().expect("it runs").kill();
            std::thread::sleep(pause); // a random instant
            death.come_back(site, &mut server, image);
            daemon = Some(serve(site));
            client = connect(site);
        } else {
            // It dies amid requests, and comes back amid others: sometimes so late that the log is
            // full, and they wait.
            let is_full = random.once_in(4);
            let life = Duration::from_millis(random.below(150));
            let is_back = AtomicBool::new(false);
            std::thread::scope(|scope| -> Result<(), String> {
                scope.spawn(|| {
                    std::thread::sleep(life); // a random instant
                    death.kill(site, &mut server);
                    std::thread::sleep(pause); // a random instant
                    death.come_back(site, &mut server, image);
                    is_back.store(true, Ordering::Relaxed);
                });
                let mut left = random.below(150);
                while left > 0 || is_full && !is_back.load(Ordering::Relaxed) {
                    left = left.saturating_sub(1);
                    change(&mut client, &mut random, &mut volume, &when)?;
                }
                Ok(())
            })?;
        }
        for (kind, is_dead) in kinds.iter_mut().zip([death.dcd, death.server, death.osd]) {
            *kind += u64::from(is_dead);
        }
        let began = Instant::now();
        let found = client
            .read_all()
            .map_err(|e| format!("{when}: {e:?} after {:?}: {}", began.elapsed(), site.status()))?;
        volume = settle(&found, volume, &pending).unwrap_or_else(|e| {
            panic!("{image}, seed {seed}, behind {when}: {e}\n{}", daemon.as_ref().unwrap().log())
        });
    }
    daemon.as_ref().expect("it runs").assert_no_panic();
    failed += failed_flushes(site);
    drop(client);
    let detached = site.dcd("detach --control ctl --wait");
    if detached.code != Some(0) {
        return Err(format!("detach: {}", detached.stderr));
    }
    // Whatever they had only promised is gone now.
    server.kill();
    ceph::kill_osd(site);
    ceph::start_osd(site);
    let found = ceph::try_export(site, image)?;
    if let Some(difference) = difference(&found, &volume) {
        panic!("{image}, seed {seed}, behind the detach: {difference}");
    }
    let [dcd, qemu, osd] = kinds;
    println!(
        "{image}: {acked} changes, {deaths} deaths (of dcd {dcd}, qemu-nbd {qemu}, the storage daemon {osd}), \
         {failed} flushes failed, seed {seed}"
    );
    Ok(())
}

fn image_is_a_data_disk(test: &str, image: &str, features: &str) {
    if is_skipped(test) {
        return;
    }
    let mut site = Site::empty();
    ceph::start(&mut site);
    ceph::create(&site, image, MIX.volume, features);
    let Err(failed) = deaths_lose_nothing(&site, image, cycles(16, 500)) else { return };
    match ceph::damage(&site) {
        // Nobody can read that object any more: not what this is about.
        Some(line) => harness::skipped(test, &format!("Ceph has damaged an object: {line}")),
        None => {
            let log = fs::read_to_string(site.path("dcd.log")).unwrap_or_default();
            panic!("{image}, seed {}, {failed}\n{log}", seed());
        }
    }
}

#[test]
#[ignore = "needs Ceph, and minutes: make test-ceph"]
fn an_image_is_a_data_disk() {
    image_is_a_data_disk("an_image_is_a_data_disk", "locked", LOCKED);
}

#[test]
#[ignore = "needs Ceph, and minutes: make test-ceph"]
fn an_image_without_a_lock_is_one() {
    image_is_a_data_disk("an_image_without_a_lock_is_one", "plain", PLAIN);
}

/// Numbers of the window and of the moment, which order them, and the name.
fn windows(site: &Site) -> Vec<(u64, u64, String)> {
    let names = ceph::snapshots(site, "ordered").into_iter();
    let mut found: Vec<_> = names
        .map(|name| {
            let mut numbers = name.strip_prefix("dcd-").unwrap().split('-');
            let mut number = || numbers.next().unwrap().parse().unwrap();
            (number(), number(), name.clone())
        })
        .collect();
    found.sort_unstable();
    found
}

/// Requests one after the other and `kill -9` of dcd, and at times of qemu-nbd, with one under way;
/// each time the cache-disk might be thrown away, and the snapshots count. At the end it is.
#[test]
#[ignore = "needs Ceph, and minutes: make test-ceph"]
fn windows_are_snapshots_of_an_image() {
    if is_skipped("windows_are_snapshots_of_an_image") {
        return;
    }
    let seed = seed() ^ 0x7769;
    let mut random = Random::new(seed);
    let mut site = Site::empty();
    ceph::start(&mut site);
    let mix = Mix { volume: 4 * MIB, ..MIX };
    ceph::create(&site, "ordered", mix.volume, LOCKED);
    let mut server = ceph::serve(&site, &site, "ordered");
    create(&site, "");
    fs::write(
        site.path("hook"),
        "#!/bin/sh -e\nrbd snap create --no-progress ordered@dcd-$DCD_WINDOW-$(date +%s%N)\n",
    )
    .unwrap();
    fs::set_permissions(site.path("hook"), fs::Permissions::from_mode(0o755)).unwrap();
    let flags = format!(
        "{FLAGS} --one-disk no --destage-policy ordered --window-hook ./hook --ship-within 200ms"
    );
    let start = || site.serve_disks("c", URI, &flags);
    let mut ops: Vec<Op> = Vec::new();
    let mut pending: Option<Op> = None;
    let mut volume = vec![0; mix.volume as usize];
    // What is not needed any more: the state after the first `shown` requests.
    let (mut base, mut shown, mut count) = (volume.clone(), 0, 0);
    for kill in 0..cycles(8, 200) {
        let daemon = start();
        let mut client = connect(&site);
        let found = client.read_all().unwrap();
        if let Some(op) = pending.take()
            && difference(&found, &volume).is_some()
        {
            op.apply(&mut volume);
            ops.push(op);
        }
        assert_eq!(difference(&found, &volume), None, "seed {seed}, before kill {kill}");
        let until = Instant::now() + Duration::from_millis(random.below(4000));
        while Instant::now() < until {
            for _ in 0..1 + random.below(30) {
                let op = mix.op(&mut random);
                client.do_op(&op).unwrap_or_else(|e| panic!("seed {seed}, {kill}, {op:?}: {e:?}"));
                op.apply(&mut volume);
                ops.push(op);
            }
            std::thread::sleep(Duration::from_millis(random.below(200))); // the pace of the load
        }
        if random.once_in(3) {
            site.dcd("drain --control ctl").ok();
            let (_, _, last) = windows(&site).pop().expect("a drain ends with a window");
            let image = ceph::export(&site, &format!("ordered@{last}"));
            assert_eq!(difference(&image, &volume), None, "seed {seed}, window {last}");
        }
        let op = mix.op(&mut random);
        client.send_op(&op).unwrap();
        pending = Some(op);
        let is_server_dead = random.once_in(3);
        if is_server_dead {
            server.kill();
        }
        daemon.kill();
        if is_server_dead {
            ceph::fence(&site, "ordered");
            server.come_back(&site);
        }
        // The one under way may be in the last window.
        let with_pending: Vec<Op> = ops.iter().chain(&pending).cloned().collect();
        for (_, _, name) in windows(&site) {
            let image = ceph::export(&site, &format!("ordered@{name}"));
            let point = find_prefix(&image, &base, &with_pending[shown..])
                .unwrap_or_else(|e| panic!("seed {seed}, kill {kill}, window {name}: {e}"));
            // Later windows show no less.
            shown += point;
            (base, count) = (image, count + 1);
            site.run(&format!("rbd snap rm --no-progress ordered@{name}"));
        }
        if shown > ops.len() {
            // It was in a window, so it is durable.
            let op = pending.take().expect("it is shown");
            op.apply(&mut volume);
            ops.push(op);
        }
    }
    // The cache-disk is lost: the image goes back to the last window, and another dcd serves it.
    let daemon = start();
    site.dcd("drain --control ctl").ok();
    let mut client = connect(&site);
    let kept = client.read_all().unwrap();
    for _ in 0..200 {
        client.do_op(&mix.op(&mut random)).unwrap();
    }
    daemon.kill();
    server.kill();
    ceph::fence(&site, "ordered");
    fs::remove_file(site.path("c")).unwrap();
    let mut names = windows(&site);
    // Those that came behind the drain show more.
    let with = |name: &str| ceph::export(&site, &format!("ordered@{name}"));
    names.retain(|(_, _, name)| with(name) == kept);
    let (_, _, last) = names.pop().expect("there is that of the drain");
    site.run(&format!("rbd snap rollback --no-progress ordered@{last}"));
    server.come_back(&site);
    create(&site, "");
    let daemon = start();
    let found = connect(&site).read_all().unwrap();
    assert_eq!(difference(&found, &kept), None, "seed {seed}, from {last}");
    daemon.kill();
    println!("{count} windows, {} requests, seed {seed}", ops.len());
}

/// A dead qemu-nbd whose lock nobody breaks: the next one waits for it, and nothing is lost.
#[test]
#[ignore = "needs Ceph, and minutes: make test-ceph"]
fn a_lock_of_the_dead_is_waited_for() {
    if is_skipped("a_lock_of_the_dead_is_waited_for") {
        return;
    }
    let mut site = Site::empty();
    ceph::start(&mut site);
    ceph::create(&site, "locked", MIX.volume, LOCKED);
    let mut server = ceph::serve(&site, &site, "locked");
    create(&site, "");
    let daemon = serve(&site);
    let mut client = connect(&site);
    let mut random = Random::new(seed());
    let mut volume = vec![0; MIX.volume as usize];
    for round in 0..200 {
        if round == 100 {
            site.dcd("drain --control ctl").ok();
            server.kill();
            server.come_back(&site);
        }
        let op = MIX.op(&mut random);
        client.do_op(&op).unwrap_or_else(|e| panic!("{op:?}: {e:?}\n{}", daemon.log()));
        op.apply(&mut volume);
    }
    let began = Instant::now();
    site.dcd("drain --control ctl").ok();
    println!("the lock of a dead one was waited for {:.1} s", began.elapsed().as_secs_f64());
    assert!(difference(&client.read_all().unwrap(), &volume).is_none());
    drop(client);
    site.dcd("detach --control ctl --wait").ok();
    server.kill();
    assert!(difference(&ceph::export(&site, "locked"), &volume).is_none());
}

/// Another host takes the image: the client of the first is shut out. Its dcd keeps what it has and
/// says so; nothing of it reaches the image, also when nobody is shut out any more, nor when its
/// qemu-nbd is started anew, with a label, or both are, without.
fn shut_out(test: &str, label: &str, label_bytes: u64) {
    if is_skipped(test) {
        return;
    }
    let mut site = Site::empty();
    ceph::start(&mut site);
    ceph::create(&site, "locked", label_bytes + MIX.volume, LOCKED);
    let holds = |volume: &[u8]| {
        let image = ceph::export(&site, "locked");
        assert_eq!(difference(&image[label_bytes as usize..], volume), None, "{test}");
    };
    let mut server = ceph::serve(&site, &site, "locked");
    create(&site, label);
    let daemon =
        site.serve_disks("c", URI, &format!("{} --drain-timeout 3s", FLAGS.replace("100s", "12s")));
    let mut client = connect(&site);
    let mut volume = vec![1; MIX.volume as usize];
    for place in 0..8 {
        client.write(place * MIB, &vec![1; MIB as usize]).unwrap();
    }
    site.dcd("drain --control ctl").ok();

    let shut_out = ceph::fence(&site, "locked");
    for place in 0..64 {
        client.write(place * 65536, &[2; 4096]).unwrap();
    }
    client.flush().unwrap();
    let errors = |site: &Site| site.status()["counters"]["data_disk_errors"].as_u64().unwrap();
    until("it hears of errors", || (errors(&site) > 0).then_some(()));

    let other = Site::empty();
    let mut new_server = ceph::serve(&other, &site, "locked");
    // The label says that another cache may have more.
    create(&other, if label.is_empty() { "" } else { "--labelled --force" });
    let new_daemon = serve(&other);
    let mut new_client = connect(&other);
    for place in 0..32u64 {
        let (offset, data) = (place * 65536, [3; 8192]);
        new_client.write(offset, &data).unwrap();
        volume[offset as usize..][..data.len()].copy_from_slice(&data);
    }
    other.dcd("drain --control ctl").ok();
    holds(&volume);

    let drain = site.dcd("drain --control ctl");
    assert_ne!(drain.code, Some(0), "{}", drain.stdout);
    let status = site.dcd("status --control ctl").ok();
    let says = |words: &str| assert!(status.contains(words), "{words}: {status}");
    says("waits to destage: the data-disk does not answer; 256 KiB to go");
    // To read a label it connects anew, and then qemu-nbd says nothing, and goes.
    let why = if label.is_empty() { "its storage has shut it out" } else { "unexpected end" };
    says(": connecting for");
    says(why);
    shut_out.iter().for_each(|address| ceph::end_fence(&site, address));
    let before = errors(&site);
    until("it has tried again", || (errors(&site) > before).then_some(()));
    assert!(daemon.log().matches("the connection is lost").count() < 4, "{}", daemon.log());
    for place in 0..64 {
        assert_eq!(client.read(place * 65536, 4096).unwrap(), [2; 4096], "it is in the log");
    }
    holds(&volume);
    if !label.is_empty() {
        server.kill();
        server.come_back(&site);
        until("the image is refused", || {
            let status = site.status();
            (status["network_disks"][0]["state"] == "refused").then_some(())
        });
        assert_ne!(site.dcd("drain --control ctl").code, Some(0));
        holds(&volume);
    }
    daemon.kill();

    // Started anew, both of them, as if nothing had happened.
    new_daemon.stop();
    new_server.kill();
    server.kill();
    server.come_back(&site);
    let refused = site.dcd(&format!(
        "serve --cache-disk c --data-disk {URI} --nbd unix:sock --control ctl --memory-directory ."
    ));
    let words = match label {
        "" => "the data-disk was changed without dcd, or is another disk",
        _ => "is the data-disk of cache",
    };
    let (code, said) = (refused.code, refused.stderr);
    println!("{test}: {code:?}, {said}");
    assert!(code != Some(0) && code != Some(137) && said.contains(words), "{code:?}: {said}");
    server.kill();
    holds(&volume);
}

#[test]
#[ignore = "needs Ceph, and minutes: make test-ceph"]
fn one_that_is_shut_out_overwrites_nothing() {
    shut_out("one_that_is_shut_out_overwrites_nothing", "", 0);
}

#[test]
#[ignore = "needs Ceph, and minutes: make test-ceph"]
fn nor_does_it_with_a_label() {
    shut_out("nor_does_it_with_a_label", "--labelled", MIB);
}

/// The commands of the page run as they stand.
#[test]
#[ignore = "needs Ceph, and minutes: make test-ceph"]
fn the_page_is_true() {
    skip_without!("docs/uses/network-disk.md, RBD", "fio", "jq", "bash");
    if is_skipped("docs/uses/network-disk.md, RBD") {
        return;
    }
    let mut site = Site::empty();
    ceph::start(&mut site);
    let said = try_commands(&site, "network-disk.md", "RBD");
    assert!(said.contains("detached"), "{said}");
}
