//! Proves on the real program that a volume can be made, served with its disks in any order,
//! killed, degraded, given a new disk and rebuilt, scrubbed, and told of on the control socket;
//! that hints reach it through an ordinary file system; and that whatever does not fit is refused
//! with a hint and nothing written.

mod harness;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;

use dcd_engine::Superblock;
use dcd_engine::volume::format::area::VolumeArea;
use dcd_engine::volume::format::header::{VOLUME_HEADER_BYTES, VolumeHeader};
use dcd_engine::volume::format::page::{PAGE_BYTES, PageIndex};
use harness::nbd::Client;
use harness::random::{Random, sum_of_file};
use harness::{Daemon, Site, Value, until};

const MIB: u64 = 1 << 20;
const TIERED: &str = "extent = \"64k\"\ntemporary = \"25%\"\njournal = \"2M\"\n\
    [[set]]\nlevel = 1\nshare = \"20%\"\ncopies = 2\n\
    [[set]]\nlevel = 5\nshare = \"40%\"\n\
    [[set]]\nlevel = 0\n";
const CREATE: &str = "create --cache-disk c --cache-size 16M --data-disk m0 --data-disk m1 --data-disk m2 --data-disk m3";

/// Disks of 33 and 41 MiB, and the configuration.
fn disks(config: &str) -> Site {
    let site = Site::empty();
    for (index, size) in [33, 33, 41, 33].into_iter().enumerate() {
        site.folder.disk(&format!("m{index}"), size * MIB);
    }
    fs::write(site.path("v.toml"), config).unwrap();
    site
}

fn made(config: &str) -> Site {
    let site = disks(config);
    site.dcd(&format!("{CREATE} --volume v.toml")).ok();
    site
}

fn serve_line(members: &str, flags: &str) -> String {
    let members = members.split(' ').map(|member| format!("--data-disk {member}"));
    let members = members.collect::<Vec<_>>().join(" ");
    format!(
        "serve --cache-disk c {members} --nbd unix:sock --control ctl --memory-directory . --quiet \
         --idle-max 20ms {flags}"
    )
}

fn serve(site: &Site, members: &str, flags: &str) -> Daemon {
    site.start_line(&serve_line(members, flags)).ready()
}

fn volume(site: &Site) -> Value {
    serde_json::from_str(&site.dcd("volume status --control ctl --json").ok()).unwrap()
}

fn states(site: &Site) -> Vec<String> {
    let members = volume(site)["members"].clone();
    let state = |member: &Value| member["state"].as_str().unwrap().to_owned();
    members.as_array().unwrap().iter().map(state).collect()
}

/// Asks one line of the control socket.
fn ask(site: &Site, line: &str) -> Value {
    let mut stream = UnixStream::connect(site.path("ctl")).unwrap();
    writeln!(stream, "{line}").unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    serde_json::from_str(&answer).unwrap()
}

/// Says that all of the volume is important: none of it goes to RAID 0.
fn all_important(site: &Site) {
    let blocks = volume(site)["volume_bytes"].as_u64().unwrap() / 512;
    let said = ask(
        site,
        &format!(
            "{{\"volume\":{{\"set-attributes\":{{\"ranges\":[[0,{blocks}]],\"set\":\"important\"}}}}}}"
        ),
    );
    assert_eq!(said["ok"], true, "{said}");
}

/// Pieces of 4 KiB to 256 KiB with content that tells the place and the round.
fn pieces(round: u64) -> Vec<(u64, Vec<u8>)> {
    let mut random = Random::new(round);
    let piece = |index: u64| {
        let offset = index * MIB / 2 + random.below(32) * 4096;
        let length = (1 + random.below(64)) * 4096;
        let content = (0..length / 8).flat_map(|at| (offset ^ at ^ round << 40).to_le_bytes());
        (offset, content.collect())
    };
    (0..60).map(piece).collect()
}

fn write(site: &Site, round: u64) {
    let mut client = Client::connect(&site.socket());
    for (offset, content) in pieces(round) {
        client.write(offset, &content).unwrap();
    }
    client.flush().unwrap();
}

fn verify(site: &Site, round: u64, what: &str) {
    let mut client = Client::connect(&site.socket());
    for (offset, content) in pieces(round) {
        let found = client.read(offset, content.len());
        assert!(found.is_ok_and(|found| found == content), "{what}, round {round}, at {offset}");
    }
}

/// Overwrites both places of a page of the tables. Returns what the cache-disk was.
fn damage_first_page(site: &Site) -> Vec<u8> {
    let undamaged = fs::read(site.path("c")).unwrap();
    let superblock = Superblock::decode(&undamaged).unwrap();
    let area = superblock.volume_offset();
    let header = VolumeHeader::decode(&undamaged[area as usize..][..VOLUME_HEADER_BYTES]).unwrap();
    let area = VolumeArea::of(&header, area).unwrap();
    let file = File::options().write(true).open(site.path("c")).unwrap();
    for second in [false, true] {
        file.write_all_at(&[0xdb; PAGE_BYTES], area.page_offset(PageIndex(0), second)).unwrap();
    }
    undamaged
}

#[test]
fn disks_in_any_order_are_one_volume_also_after_a_crash() {
    let site = disks(TIERED);
    let told = site.dcd(&format!("{CREATE} --volume v.toml --json")).ok();
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["volume"]["sets"].as_array().unwrap().len(), 3);
    assert_eq!(told["data_disks"][2], "m2");
    let daemon = serve(&site, "m2 m0 m3 m1", "");
    assert_eq!(volume(&site)["volume_bytes"], told["volume"]["bytes"]);
    assert_eq!(states(&site), ["up-to-date"; 4]);
    write(&site, 1);
    verify(&site, 1, "from the log");
    site.dcd("drain --control ctl").ok();
    verify(&site, 1, "from the members");
    let used = |level: u64| {
        let sets = volume(&site)["sets"].clone();
        let set = sets.as_array().unwrap().iter().find(|set| set["level"] == level).cloned();
        set.unwrap()["extents_used"].as_u64().unwrap()
    };
    assert!(used(0) > 0 && used(1) == 0, "what nothing is said of goes to RAID 0");
    // What is said of blocks moves them.
    all_important(&site);
    until("all is on RAID 5", || (used(0) == 0 && used(5) > 0).then_some(()));
    verify(&site, 1, "moved");
    let place = ask(&site, "{\"volume\":{\"get-attributes\":{\"block\":0}}}");
    assert_eq!(place["attributes"], "important");
    write(&site, 2);
    daemon.kill();
    let daemon = serve(&site, "m3 m2 m1 m0", "");
    verify(&site, 2, "after kill -9");
    let panel = site.dcd("volume status --control ctl").ok();
    assert!(panel.contains("whole") && panel.contains("RAID 5") && panel.contains("m3"), "{panel}");
    assert!(site.status()["volume"]["members"].is_array());
    daemon.stop();
    let daemon = serve(&site, "m0 m1 m2 m3", "");
    verify(&site, 2, "after an end in order");
    daemon.stop();
    let check = site.dcd("check --cache-disk c").ok();
    assert!(check.contains("extents, 0 pointers; members up-to-date, up-to-date"), "{check}");
    let undamaged = damage_first_page(&site);
    let check = "check --cache-disk c --json";
    let told = site.dcd(check);
    let damage = "pages of the volume's tables are damaged or lost";
    assert!(told.stdout.contains(damage), "{}", told.stdout);
    site.dcd("check --cache-disk c").fails(4, "found 1 problem", "");
    fs::write(site.path("c"), undamaged).unwrap();
    let told: Value = serde_json::from_str(&site.dcd(check).ok()).unwrap();
    assert!(told["volume"]["extents_mapped"].as_u64().unwrap() > 0);
    let told = site.dcd("inspect volume --cache-disk c").ok();
    assert!(
        told.contains("4 members") && told.contains("RAID 5") && told.contains("important,random"),
        "{told}"
    );
    let told: Value =
        serde_json::from_str(&site.dcd("inspect volume --cache-disk c --json").ok()).unwrap();
    assert_eq!(told["members"], 4);
}

#[test]
fn a_lost_disk_is_done_without_and_replaced() {
    let site = made(TIERED);
    let daemon = serve(&site, "m0 m1 m2 m3", "");
    all_important(&site);
    write(&site, 1);
    site.dcd("drain --control ctl").ok();
    daemon.stop();

    // Not without being told.
    site.dcd(&serve_line("m0 m2 m3", "")).fails(
        1,
        "member 1 that held data is not there",
        "--degraded",
    );
    let daemon = serve(&site, "m0 m2 m3", "--degraded");
    assert_eq!(states(&site), ["up-to-date", "missing", "up-to-date", "up-to-date"]);
    verify(&site, 1, "degraded");
    write(&site, 2);
    site.dcd("drain --control ctl").ok();
    verify(&site, 2, "written degraded");
    daemon.stop();

    // The lost one comes back, is known to be old, and gets by itself what it has missed.
    let daemon = serve(&site, "m0 m1 m2 m3", "");
    verify(&site, 2, "with a member that has missed something");
    until("it has what it missed", || (states(&site)[1] == "up-to-date").then_some(()));
    verify(&site, 2, "with a member that has come back");
    daemon.stop();

    // Another takes its place.
    site.folder.disk("new", 33 * MIB);
    let daemon = serve(&site, "m0 m2 m3", "--degraded --replace-member 1=new");
    until("it is rebuilt", || (states(&site)[1] == "up-to-date").then_some(()));
    verify(&site, 2, "rebuilt");
    let told = site.dcd("volume scrub --control ctl --json").ok();
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(
        (&told["last_work"]["kind"], &told["last_work"]["mismatches"]),
        (&"scrub".into(), &0.into())
    );
    daemon.stop();
    // It is as good as the old one: another may be lost now.
    let daemon = serve(&site, "new m2 m3", "--degraded");
    verify(&site, 2, "with the new disk and without member 0");
    daemon.stop();
}

#[test]
fn a_member_may_be_failed_and_rebuilt_by_hand() {
    let site = made(TIERED);
    let daemon = serve(&site, "m0 m1 m2 m3", "");
    all_important(&site);
    write(&site, 1);
    site.dcd("drain --control ctl").ok();
    let control = |line: &str| site.dcd(&format!("volume {line} --control ctl"));
    control("rebuild 2").fails(1, "member 2 is up to date", "nothing to rebuild");
    control("fail 9").fails(1, "there is no member 9", "");
    control("fail 2").ok();
    assert_eq!(states(&site)[2], "stale");
    control("fail 3").fails(1, "member 3 is the last that holds some of the data", "rebuild");
    write(&site, 2);
    site.dcd("drain --control ctl").ok();
    let told = control("rebuild 2").ok();
    assert!(told.contains("rebuilding has ended") && told.contains("whole"), "{told}");
    verify(&site, 2, "rebuilt");
    control("scrub --no-wait").ok();
    until("the scrub has ended", || volume(&site)["work"].is_null().then_some(()));
    daemon.stop();
    // Rot on a member is found and repaired.
    let member = File::options().write(true).open(site.path("m2")).unwrap();
    for offset in (8 * MIB..16 * MIB).step_by(64 << 10) {
        member.write_all_at(&[0x5a; 100], offset).unwrap();
    }
    let daemon = serve(&site, "m0 m1 m2 m3", "");
    verify(&site, 2, "with rot");
    let told: Value = serde_json::from_str(&control("scrub --json").ok()).unwrap();
    assert!(told["last_work"]["mismatches"].as_u64() > Some(0), "{told}");
    let told: Value = serde_json::from_str(&control("scrub --json").ok()).unwrap();
    assert_eq!(told["last_work"]["mismatches"], 0, "repaired");
    daemon.stop();
}

// Every two seconds, so that it comes to pass while one looks on; and then not for five days.
#[test]
fn a_volume_is_scrubbed_by_itself_and_says_when() {
    let site = made(TIERED);
    let daemon = serve(&site, "m0 m1 m2 m3", "--scrub-every 30d");
    all_important(&site);
    write(&site, 1);
    site.dcd("drain --control ctl").ok();
    let words = site.dcd("volume status --control ctl").ok();
    // The first second of them is not over, or it is.
    let says = |days| words.contains(&format!("scrub: no whole one yet; due in {days} days"));
    assert!(says(29) || says(30), "{words}");
    daemon.stop();
    let member = File::options().write(true).open(site.path("m2")).unwrap();
    for offset in (8 * MIB..16 * MIB).step_by(64 << 10) {
        member.write_all_at(&[0x5a; 100], offset).unwrap();
    }
    let daemon = serve(&site, "m0 m1 m2 m3", "");
    site.dcd("set --control ctl scrub-every=2s").ok();
    until("it is scrubbed", || {
        (volume(&site)["counters"]["scrubs_ended"].as_u64() > Some(0)).then_some(())
    });
    site.dcd("set --control ctl scrub-every=5d").ok();
    until("that is over", || volume(&site)["work"].is_null().then_some(()));
    let report = volume(&site);
    assert!(report["counters"]["scrubs_found"].as_u64() > Some(0), "{report}");
    let (ended, due) = (report["scrub"]["ended"].as_u64(), report["scrub"]["due"].as_u64());
    let between = due.unwrap() - ended.unwrap();
    assert!((5 * 86_400..5 * 86_400 + 60).contains(&between), "{report}");
    verify(&site, 1, "scrubbed");
    daemon.stop();
    // The next start knows of it.
    let daemon = serve(&site, "m0 m1 m2 m3", "--scrub-every 0");
    assert_eq!(volume(&site)["scrub"]["ended"].as_u64(), ended);
    let words = site.dcd("volume status --control ctl").ok();
    assert!(words.contains("not by itself (scrub-every = 0)"), "{words}");
    // By hand, from the beginning or on from where one was: nothing is wrong any more.
    for how in ["", "--resume "] {
        let told: Value = serde_json::from_str(
            &site.dcd(&format!("volume scrub {how}--control ctl --json")).ok(),
        )
        .unwrap();
        assert_eq!(told["last_work"]["mismatches"], 0, "{told}");
    }
    daemon.stop();
}

// What is said of blocks moves them to fast devices and back, while they are served.
#[test]
fn what_is_hot_goes_to_fast_devices_and_back_when_it_has_cooled_down() {
    let site = made(
        "extent = \"64k\"\ntemporary = \"0\"\njournal = \"2M\"\nmigrate-max = 0\n\
         [[set]]\nlevel = 0\nmembers = [0, 1]\nper-member = \"24M\"\n\
         [[set]]\nlevel = 0\nclass = \"fast\"\nmembers = [2, 3]\nper-member = \"24M\"\n",
    );
    let daemon = serve(&site, "m0 m1 m2 m3", "");
    let used = |set: usize| volume(&site)["sets"][set]["extents_used"].as_u64().unwrap();
    write(&site, 1);
    site.dcd("drain --control ctl").ok();
    let all = used(0);
    assert!(all > 100 && used(1) == 0, "{} {}", used(0), used(1));
    let say = |line: &str| {
        let said = ask(
            &site,
            &format!("{{\"volume\":{{\"set-attributes\":{{\"ranges\":[[0,40000]],{line}}}}}}}"),
        );
        assert_eq!(said["ok"], true, "{said}");
    };
    say("\"set\":\"hot\"");
    let hot = until("what is hot is on fast devices", || {
        // A place is free when it is durable that nothing is there any more.
        let (slow, fast) = (used(0), used(1));
        (fast > 50 && slow + fast == all).then_some((slow, fast))
    });
    verify(&site, 1, "on fast devices");
    daemon.kill();
    let daemon = serve(&site, "m0 m1 m2 m3", "");
    assert_eq!((used(0), used(1)), hot);
    let words = site.dcd("volume status --control ctl").ok();
    assert!(words.contains("RAID 0  fast   2,3"), "{words}");
    let made = site.dcd("inspect volume --cache-disk c").ok();
    assert!(made.contains("RAID 0  fast") && made.contains("by what it is"), "{made}");
    say("\"set\":\"cold\",\"clear\":\"hot\"");
    until("what has cooled down is on slow devices", || (used(1) == 0).then_some(()));
    assert_eq!(used(0), all);
    verify(&site, 1, "on slow devices");
    daemon.stop();
}

#[test]
fn a_disk_takes_the_place_of_a_member_that_works_while_it_is_written() {
    let site = made(TIERED);
    site.folder.disk("new", 33 * MIB);
    site.folder.disk("tiny", MIB);
    let daemon = serve(&site, "m0 m1 m2 m3", "");
    write(&site, 1);
    site.dcd("drain --control ctl").ok();
    let replace = |words: &str| site.dcd(&format!("volume replace {words} --control ctl"));
    replace("1 tiny").fails(1, "the disk has 1048576 bytes, and member 1 needs", "of that size");
    replace("9 new").fails(1, "there is no member 9", "`dcd status` lists");
    replace("1 m0").fails(1, "m0", "");
    replace("1 none").fails(1, "none", "");
    // Somebody writes meanwhile.
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(&site, 2));
        let said = replace("1 new").ok();
        assert!(said.contains("replacing has ended") && said.contains("--data-disk"), "{said}");
        writer.join().unwrap();
    });
    site.dcd("drain --control ctl").ok();
    let report = volume(&site);
    assert_eq!(report["counters"]["members_replaced"], 1, "{report}");
    assert!(report["members"][1]["disk"].as_str().unwrap().ends_with("new"), "{report}");
    assert_eq!(report["last_work"]["kind"], "replace", "{report}");
    assert!(states(&site).iter().all(|state| state == "up-to-date"));
    verify(&site, 2, "while it is served");
    site.dcd("volume scrub --control ctl").ok();
    assert_eq!(volume(&site)["last_work"]["mismatches"], 0);
    daemon.kill();
    // Behind a kill the old disk is refused, and the new one is the member.
    site.dcd(&serve_line("m0 m1 m2 m3", "")).fails(
        1,
        "m1: the disk given for member 1 is not the one that counts",
        "give the disk that is member 1 now",
    );
    let daemon = serve(&site, "m0 m2 m3 new", "");
    verify(&site, 2, "behind a kill");
    // The one that was let go may come back for another.
    replace("0 m1").ok();
    assert!(volume(&site)["members"][0]["disk"].as_str().unwrap().ends_with("m1"));
    daemon.stop();
    let _daemon = serve(&site, "m1 m2 m3 new", "");
    verify(&site, 2, "with the disk that was let go");
}

/// A replacement that was cut off leaves two disks that say that they are one member: which of them
/// counts is said, and nothing is written before one is left out.
#[test]
fn of_two_disks_of_a_replacement_that_was_cut_off_it_is_said_which_counts() {
    let site = made(TIERED);
    site.folder.disk("new", 33 * MIB);
    let daemon = serve(&site, "m0 m1 m2 m3", "");
    write(&site, 1);
    site.dcd("drain --control ctl").ok();
    site.dcd("volume replace 1 slow:new,read=1ms,write=200ms --control ctl --no-wait").ok();
    until("it has begun", || (volume(&site)["work"]["kind"] == "replace").then_some(()));
    // Its labels are the first that is written there.
    until("the new disk has a label", || {
        let mut start = [0; 8];
        File::open(site.path("new")).unwrap().read_exact_at(&mut start, 65536).unwrap();
        (&start == b"dcdMEMBR").then_some(())
    });
    daemon.kill();
    for members in ["m0 m1 m2 m3 new", "new m3 m2 m1 m0"] {
        site.dcd(&serve_line(members, "")).fails(
            1,
            "m1 counts, new was to take its place and has not got all",
            "leave new out",
        );
    }
    let _daemon = serve(&site, "m0 m1 m2 m3", "");
    verify(&site, 1, "with the disk that counts");
}

const MIRRORS: &str = "extent = \"64k\"\njournal = \"2M\"\n[[set]]\nlevel = 1\ncopies = 2\n";

#[test]
fn a_spare_takes_the_place_of_a_member_that_failed_and_is_found_by_the_next_start() {
    let site = made(MIRRORS);
    site.folder.disk("spare", 41 * MIB);
    site.folder.disk("tiny", MIB);
    let daemon = serve(&site, "m0 m1 m2 m3", "--spare-after 0");
    write(&site, 1);
    let spare = |words: &str| site.dcd(&format!("volume spare {words} --control ctl"));
    spare("add tiny").fails(1, "the disk has 1048576 bytes, and member", "of that size");
    spare("add m1").fails(1, "m1", "");
    spare("remove m1").fails(1, "is no spare of this volume", "lists the spares");
    let said = spare("add spare").ok();
    assert!(said.contains("is a spare") && said.contains("--data-disk /"), "{said}");
    spare("remove spare").ok();
    assert_eq!(volume(&site)["spares"].as_array().unwrap().len(), 0);
    // It is blank again.
    spare("add spare").ok();
    daemon.kill();
    // It is found by its label, in any place; and used.
    let daemon = serve(&site, "spare m3 m1 m0 m2", "--spare-after 0");
    let report = volume(&site);
    assert_eq!(report["spares"][0]["state"], "ready", "{report}");
    let words = site.dcd("volume status --control ctl").ok();
    assert!(words.contains("spare: ") && words.contains("(spare-after = 0)"), "{words}");
    site.dcd("volume fail 2 --control ctl").ok();
    site.dcd("set --control ctl spare-after=1s").ok();
    until("it takes the place", || {
        let report = volume(&site);
        let is_whole = states(&site).iter().all(|state| state == "up-to-date");
        (is_whole && report["counters"]["spares_used"] == 1).then_some(())
    });
    let report = volume(&site);
    assert!(report["members"][2]["disk"].as_str().unwrap().ends_with("spare"), "{report}");
    assert_eq!(report["spares"].as_array().unwrap().len(), 0, "{report}");
    write(&site, 2);
    daemon.kill();
    // The disk that was let go is still named: it is left out.
    let daemon = serve(&site, "spare m3 m1 m0 m2", "");
    let report = volume(&site);
    assert!(report["members"][2]["disk"].as_str().unwrap().ends_with("spare"), "{report}");
    assert!(states(&site).iter().all(|state| state == "up-to-date"));
    verify(&site, 2, "with a spare in its place");
    let log = daemon.log();
    assert!(log.contains("m2) has failed for ") && log.contains("takes its place"), "{log}");
    assert!(log.contains("is member 2 now, and no spare any more"), "{log}");
    assert!(log.contains("m2 is no member any more, and no spare"), "{log}");
    daemon.stop();
    // It is gone for good, and still named: waited for as long as disks take, and no longer.
    fs::rename(site.path("m2"), site.path("gone")).unwrap();
    site.dcd(&serve_line("m3 m1 m0 m2", "")).fails(
        1,
        "member 2 that held data is not there",
        "attach them",
    );
    let daemon = serve(&site, "spare m3 m1 m0 m2", "--wait");
    assert!(daemon.log().contains("m2 does not exist: on without it"), "{}", daemon.log());
    assert!(states(&site).iter().all(|state| state == "up-to-date"));
    daemon.stop();
    fs::rename(site.path("gone"), site.path("m2")).unwrap();
    // It may come back as the next spare.
    let daemon = serve(&site, "m0 m1 m3 spare", "");
    spare("add m2").ok();
    assert_eq!(volume(&site)["spares"][0]["state"], "ready");
    verify(&site, 2, "without the disk that was let go");
    daemon.stop();
}

#[test]
fn wrong_disks_and_wrong_words_are_refused_and_nothing_is_written() {
    let site = disks(TIERED);
    let before: Vec<u64> = (0..4).map(|it| sum_of_file(&site.path(&format!("m{it}")))).collect();
    let untouched = || {
        assert!(!site.path("c").exists());
        for (index, sum) in before.iter().enumerate() {
            assert_eq!(sum_of_file(&site.path(&format!("m{index}"))), *sum);
        }
    };
    let create = |flags: &str| site.dcd(&format!("{CREATE} {flags}"));
    create("").fails(1, "4 data-disks, and no --volume", "docs/volume.md");
    create("--volume none.toml").fails(1, "cannot read none.toml", "check the name");
    fs::write(site.path("typo.toml"), "[[set]]\nlevel = 5\nshares = \"20%\"\n").unwrap();
    create("--volume typo.toml").fails(1, "typo.toml:3:1: there is no key `shares`", "`share`");
    create("--data-disk m1 --volume v.toml").fails(1, "the same disk", "");
    create("--data-disk c --volume v.toml").fails(1, "the data-disk c does not exist", "");
    site.folder.disk("tiny", 64 << 10);
    create("--data-disk tiny --volume v.toml").fails(1, "member 4 has", "smaller shares");
    fs::write(site.path("large.toml"), "extent = \"4k\"\njournal = \"512M\"\n[[set]]\nlevel = 5\n")
        .unwrap();
    create("--volume large.toml").fails(1, "the tables of the volume need", "--cache-size");
    untouched();
    // A disk with something on it.
    File::options()
        .write(true)
        .open(site.path("m2"))
        .unwrap()
        .write_all_at(&[0x53, 0xef], 1080)
        .unwrap();
    create("--volume v.toml").fails(
        1,
        "m2 looks like an ext2, ext3 or ext4 file system",
        "--force",
    );
    assert!(!site.path("c").exists());
    create("--volume v.toml --force").ok();
    fs::remove_file(site.path("c")).unwrap();
    create("--volume v.toml").fails(1, "m0 looks like a member of a dcd volume", "--force");
    create("--volume v.toml --force").ok();

    let serve = |members: &str, flags: &str| site.dcd(&serve_line(members, flags));
    serve("m0", "").fails(1, "are not there", "--degraded");
    serve("m0 m1 m1 m3", "").fails(1, "the same disk is given twice", "");
    serve("m0 m1 m2 tiny", "").fails(1, "tiny is no member of this volume", "--replace-member");
    serve("m0 m1 m2 m3", "--replace-member 1=tiny").fails(1, "are both member 1", "");
    serve("m0 m1 m2", "--replace-member 3=m3").fails(
        1,
        "looks like a member of a dcd volume",
        "dd if=/dev/zero",
    );
    serve("m0 m1 m2", "--replace-member 3=tiny").fails(1, "tiny: member 3 has 65536 bytes", "");
    serve("m0 m1 m2", "--replace-member 3").fails(2, "2=/dev/sdc", "");
    fs::copy(site.path("m1"), site.path("copy")).unwrap();
    serve("m0 m1 m2 copy", "").fails(1, "are both member 1", "copy");
    serve("m0 m1 m2 m3", "--memory-max 1M").fails(1, "volume", "allow at least");
    // A cache without a volume takes one disk.
    let plain = Site::new("8M", 16 * MIB);
    plain.folder.disk("e", 16 * MIB);
    let line =
        "serve --cache-disk c --data-disk d --data-disk e --nbd unix:sock --memory-directory .";
    plain.dcd(line).fails(1, "one data-disk, no volume", "");
    plain.dcd("inspect volume --cache-disk c").fails(1, "c has no volume", "inspect superblock");
    // What a volume cannot.
    let disks = "--cache-disk c --data-disk m0 --memory-directory .";
    site.dcd(&format!("detach {disks}")).fails(
        1,
        "a volume cannot be detached",
        "copy what is on it",
    );
    site.dcd(&format!("grow {disks}")).fails(1, "a volume cannot be grown", "dcd volume grow");
    let daemon = self::serve(&site, "m0 m1 m2 m3", "");
    site.dcd("detach --control ctl").fails(1, "a volume cannot be detached", "copy what is on it");
    for (line, error) in [
        (
            "\"set-attributes\":{\"ranges\":[[0,99999999]],\"set\":\"hot\"}",
            "do not lie on the volume",
        ),
        (
            "\"set-attributes\":{\"ranges\":[[0,8]],\"set\":\"warm\"}",
            "there is no attribute `warm`",
        ),
        ("\"set-attributes\":{\"ranges\":[[0,8]],\"set\":\"hot,cold\"}", "contradict"),
        ("\"places\":{\"ranges\":[[18446744073709551615,8]]}", "do not lie on the volume"),
        ("\"get-attributes\":{\"block\":99999999}", "do not lie on the volume"),
        ("\"create-pointer\":{\"from\":0,\"to\":128}", "not allocated"),
        ("\"delete-pointer\":{\"from\":3,\"to\":128}", "not the first of an extent"),
    ] {
        let answer = ask(&site, &format!("{{\"volume\":{{{line}}}}}"));
        let told = answer["error"].as_str().unwrap_or_default();
        assert!(answer["ok"] == false && told.contains(error), "{line}: {answer}");
    }
    daemon.stop();
}

#[test]
fn blocks_are_allocated_pointed_to_and_collected_on_the_socket() {
    let site = made(TIERED);
    let daemon = serve(&site, "m0 m1 m2 m3", "");
    let block = |near: &str, attributes: &str| {
        let line = format!(
            "{{\"volume\":{{\"allocate\":{{\"near\":{near},\"attributes\":\"{attributes}\"}}}}}}"
        );
        ask(&site, &line)["block"].as_u64().unwrap()
    };
    let root = block("null", "root,important");
    let child = block(&root.to_string(), "none");
    let lost = block("null", "none");
    let pointer =
        format!("{{\"volume\":{{\"create-pointer\":{{\"from\":{root},\"to\":{child}}}}}}}");
    assert_eq!(ask(&site, &pointer)["ok"], true);
    assert_eq!(ask(&site, "{\"volume\":\"collect\"}")["freed"], 1, "{lost} cannot be reached");
    let of = |block: u64| {
        let line = format!("{{\"volume\":{{\"get-attributes\":{{\"block\":{block}}}}}}}");
        ask(&site, &line)["attributes"].as_str().unwrap().to_owned()
    };
    assert!(of(root).contains("metadata") && of(child).contains("important"));
    daemon.stop();
}

#[test]
fn files_go_where_their_names_say() {
    skip_without!("hints of a volume", "root", "fuse", "loop", "mkfs.ext4", "kernel-ext4");
    let site = made(&TIERED.replace("64k", "4k"));
    for name in ["fuse", "mnt"] {
        fs::create_dir_all(site.path(name)).unwrap();
    }
    let daemon = serve(&site, "m0 m1 m2 m3", "--fuse fuse --loop");
    let device = daemon.told("loop").unwrap().to_owned();
    site.run(&format!("mkfs.ext4 -q -b 4096 {device}"));
    site.run(&format!("mount {device} mnt"));
    let rules = "[[rule]]\nmatch = \"*.c\"\nset = \"important\"\n[[rule]]\nmatch = \"*.o\"\nset = \"temporary\"\n";
    fs::write(site.path("rules"), rules).unwrap();
    let watch = site.start_line("hint watch mnt --control ctl --rules rules --sync").ready();
    for number in 0..10 {
        fs::write(site.path(&format!("mnt/{number}.c")), vec![1; 40_000]).unwrap();
        fs::write(site.path(&format!("mnt/{number}.o")), vec![2; 60_000]).unwrap();
    }
    site.run("sync -f mnt");
    let all_are = |ending: &str, level: u64, temporary: bool| {
        (0..10).all(|number| {
            let line = format!("inspect --file mnt/{number}.{ending} --control ctl --json");
            let told: Value = serde_json::from_str(&site.dcd(&line).ok()).unwrap();
            let is = |piece: &Value| piece["level"] == level && piece["temporary"] == temporary;
            let pieces = told["pieces"].as_array().unwrap();
            !pieces.is_empty() && pieces.iter().all(is)
        })
    };
    let settled = || {
        site.dcd("drain --control ctl").ok();
        (all_are("c", 5, false) && all_are("o", 0, true)).then_some(())
    };
    until("sources are on RAID 5, objects in the region for temporary data", settled);
    let get = site.dcd("hint get mnt/0.c mnt/0.o --control ctl").ok();
    assert!(get.contains("RAID 0, temporary") && get.contains("important"), "{get}");
    // The file system's own structures went to RAID 1.
    let sets = volume(&site)["sets"].clone();
    assert!(sets[0]["level"] == 1 && sets[0]["extents_used"].as_u64() > Some(10), "{sets}");
    watch.stop();
    site.run("umount mnt");
    site.run(&format!("e2fsck -fn {device}"));
    daemon.stop();
}

/// What a command answered 0 for is there after a kill whose memory is lost, too: nobody flushes
/// between.
#[test]
fn what_was_answered_survives_a_kill_at_once() {
    let site = made(TIERED);
    let mut daemon = serve(&site, "m0 m1 m2 m3", "");
    type Step = (&'static str, fn(&Site), fn(&Site) -> bool);
    fn said(site: &Site, words: &str) {
        let said = ask(site, &format!("{{\"volume\":{{{words}}}}}"));
        assert_eq!(said["ok"], true, "{said}");
    }
    fn hint(site: &Site) -> String {
        ask(site, "{\"volume\":{\"get-attributes\":{\"block\":10240}}}").to_string()
    }
    let steps: [Step; 4] = [
        (
            "a hint",
            |site| said(site, "\"set-attributes\":{\"ranges\":[[10240,8]],\"set\":\"read-most\"}"),
            |site| hint(site).contains("read-most"),
        ),
        (
            "another hint",
            |site| {
                said(
                    site,
                    "\"set-attributes\":{\"ranges\":[[10240,8]],\"set\":\"hot\",\"clear\":\"read-most\"}",
                );
            },
            |site| hint(site).contains("hot") && !hint(site).contains("read-most"),
        ),
        (
            "room for pointers",
            |site| drop(site.dcd("volume set --pointers 70000 --control ctl").ok()),
            |site| volume(site)["pointers_max"].as_u64() >= Some(70000),
        ),
        (
            "a member that was failed",
            |site| drop(site.dcd("volume fail 3 --control ctl").ok()),
            |site| states(site)[3] != "up-to-date",
        ),
    ];
    for (index, (what, change, is_there)) in steps.iter().enumerate() {
        change(&site);
        daemon.kill_group();
        for entry in fs::read_dir(site.path("")).unwrap().flatten() {
            if entry.file_name().to_string_lossy().ends_with(".segments") {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        daemon = serve(&site, "m0 m1 m2 m3", "--memory-lost");
        for (before, _, is_there) in &steps[index.saturating_sub(1)..index] {
            assert!(is_there(&site) || *before == "a hint", "{before} is gone");
        }
        assert!(is_there(&site), "{what} is gone");
    }
    daemon.stop();
}
