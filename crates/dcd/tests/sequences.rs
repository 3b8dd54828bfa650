//! Proves on the real program that a sequence can be recorded, added from a trace, listed, looked
//! at, pinned and removed; that reads that follow it come from its copies, also after `kill -9`;
//! and that whoever asks for something odd is told so.

mod harness;

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use harness::nbd::Client;
use harness::{Site, until};

/// Places of 4 KiB, far apart.
fn places() -> impl Iterator<Item = u64> {
    (0..100).map(|i| (i * 2903 + 17) % 16_000 * 4096)
}

/// What a place holds.
fn content(place: u64) -> Vec<u8> {
    (0..4096u64).map(|i| (place / 4096 * 31 + i) as u8).collect()
}

/// A served pair with a read area, two disks with an arm each, and something in each place.
fn site() -> Site {
    let site = Site::with("32M", 64 << 20, "--read-area 8M");
    let data: Vec<u8> = (0..16_384u64).flat_map(|line| content(line * 4096)).collect();
    fs::write(site.path("d"), data).unwrap();
    site
}

const FLAGS: &str = "--quiet --one-disk no --no-hot-blocks --no-detect";

/// Lines read from the data-disk, and from copies, while all places are read.
fn read_all(site: &Site, expected: impl Fn(u64) -> Vec<u8>) -> (u64, u64) {
    let counts = |site: &Site| {
        let counters = &site.status()["counters"];
        let of = |name: &str| counters[name].as_u64().unwrap();
        (of("read_miss_lines"), of("read_copy_lines"))
    };
    let before = counts(site);
    let mut client = Client::connect(&site.socket());
    for place in places() {
        assert!(client.read(place, 4096).unwrap() == expected(place), "at {place}");
    }
    let after = counts(site);
    (after.0 - before.0, after.1 - before.1)
}

fn wait_copied(site: &Site) {
    until("the sequence is copied", || {
        let copies = site.status()["copies"].clone();
        let is_copied = copies["stale_bytes"] == 0 && copies["valid_bytes"].as_u64() > Some(0);
        is_copied.then_some(())
    });
}

#[test]
fn what_was_recorded_is_served_from_its_copies_and_never_old() {
    let site = site();
    let daemon = site.serve(FLAGS);
    let mut record = Command::new(env!("CARGO_BIN_EXE_dcd"));
    record.args("sequence record --control ctl --name start --json -- cat go".split(' '));
    let go = site.path("go");
    assert!(Command::new("mkfifo").arg(&go).status().unwrap().success());
    let recording =
        record.current_dir(site.path("")).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let recording = recording.unwrap();
    // The command runs as soon as the recording is on, and waits for us.
    let pipe = fs::File::options().write(true).open(&go).unwrap();
    assert_eq!(read_all(&site, content), (100, 0));
    drop(pipe);
    let output = recording.wait_with_output().unwrap();
    assert!(output.status.success());
    let told: harness::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&told["reads"], &told["read_bytes"]), (&100.into(), &(100 * 4096).into()));
    wait_copied(&site);
    assert_eq!(read_all(&site, content), (0, 100));
    let list = site.dcd("sequence list --control ctl").ok();
    assert!(list.contains("start") && list.contains("400 KiB") && list.contains("100 %"), "{list}");
    // What was served is counted at once, and each time that it is read.
    for run in 1..=3 {
        let list = site.dcd("sequence list --control ctl --json").ok();
        let list: harness::Value = serde_json::from_str(&list).unwrap();
        let found = &list["sequences"][0];
        println!("{found}");
        assert_eq!(found["runs"], run, "{found}");
        assert!(found["lines_served"].as_u64() >= Some(run * 90), "{found}");
        assert_eq!(read_all(&site, content), (0, 100));
    }
    site.dcd("sequence save --control ctl").ok();

    // One is changed, and dcd dies.
    let changed = places().nth(7).unwrap();
    let after = move |place| if place == changed { vec![9; 4096] } else { content(place) };
    let mut client = Client::connect(&site.socket());
    client.write(changed, &[9; 4096]).unwrap();
    client.flush().unwrap();
    daemon.kill_group();
    let daemon = site.serve(FLAGS);
    assert_eq!(read_all(&site, after), (0, 99), "the one is in the log");
    site.dcd("drain --control ctl").ok();
    wait_copied(&site);
    assert_eq!(read_all(&site, after), (0, 100));
    daemon.stop();
    let check: harness::Value =
        serde_json::from_str(&site.dcd("check --cache-disk c --json").ok()).unwrap();
    assert_eq!(
        (&check["copies_verified"], &check["copies_not_as_listed"]),
        (&100.into(), &0.into())
    );
    // On its own the data-disk may be changed by anyone: nothing is believed that is not compared.
    site.detach();
    let mut data = fs::read(site.path("d")).unwrap();
    data[changed as usize..][..4096].fill(8);
    fs::write(site.path("d"), data).unwrap();
    let daemon = site.serve(FLAGS);
    let after = move |place| if place == changed { vec![8; 4096] } else { content(place) };
    read_all(&site, after);
    wait_copied(&site);
    assert_eq!(read_all(&site, after), (0, 100));
    daemon.stop();
}

/// What a command answered 0 for is there after a kill at once, with the memory lost.
#[test]
fn what_was_answered_survives_a_kill_at_once() {
    let site = site();
    let mut daemon = site.serve(FLAGS);
    let trace = |name: &str, step: u64| {
        let rows = (0..50).map(|i| format!("0,R,0,{},4096,0\n", i * step * 4096));
        let rows = rows.collect::<String>();
        fs::write(site.path(name), format!("t_us,op,dev,off,len,fl\n{rows}")).unwrap();
    };
    trace("one.csv", 3);
    trace("two.csv", 7);
    // What is done, and what is there then: `+` for one that is pinned.
    for (line, expected) in [
        ("sequence add --name one one.csv", "one"),
        ("sequence pin one", "one+"),
        ("sequence add --name two two.csv", "one+ two"),
        ("sequence pin --off one", "one two"),
        ("sequence remove one", "two"),
        ("sequence add --name one one.csv", "two one"),
        ("sequence pin two", "two+ one"),
        ("sequence clear", "two+"),
    ] {
        site.dcd(&format!("{line} --control ctl")).ok();
        daemon.kill_group();
        for entry in fs::read_dir(site.path("")).unwrap().flatten() {
            if entry.file_name().to_string_lossy().ends_with(".segments") {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        daemon = site.serve(&format!("{FLAGS} --memory-lost"));
        let list = site.dcd("sequence list --control ctl --json").ok();
        let list: harness::Value = serde_json::from_str(&list).unwrap();
        let name = |it: &harness::Value| {
            let pinned = if it["pinned"] == true { "+" } else { "" };
            format!("{}{pinned}", it["name"].as_str().unwrap())
        };
        let found: Vec<String> = list["sequences"].as_array().unwrap().iter().map(name).collect();
        assert_eq!(found.join(" "), expected, "after {line}");
    }
    daemon.stop();
}

#[test]
fn what_is_read_three_times_is_found() {
    let site = site();
    let daemon = site.serve("--quiet --one-disk no --no-hot-blocks");
    for _ in 0..3 {
        assert_eq!(read_all(&site, content).0, 100);
        // Quiet for two seconds ends an occurrence.
        std::thread::sleep(Duration::from_millis(2500));
    }
    wait_copied(&site);
    let list = site.dcd("sequence list --control ctl --json").ok();
    let list: harness::Value = serde_json::from_str(&list).unwrap();
    let found = &list["sequences"][0];
    assert_eq!((&found["name"], &found["detected"]), (&"found-1".into(), &true.into()));
    let (missed, copied) = read_all(&site, content);
    assert!(missed <= 10 && copied >= 90, "{missed} {copied}");
    daemon.stop();
}

#[test]
fn odd_requests_are_told_so() {
    let site = site();
    site.dcd("sequence list --control ctl").fails(6, "no daemon answers", "is the daemon running");
    let daemon = site.serve(FLAGS);
    site.dcd("sequence remove x --control ctl").fails(
        1,
        "no sequence of this name",
        "sequence list",
    );
    site.dcd("sequence pin x --control ctl").fails(1, "no sequence of this name", "sequence list");
    site.dcd("sequence show x --control ctl").fails(1, "no sequence of this name", "sequence list");
    site.dcd("sequence record --control ctl --name x -- true").fails(1, "nothing was read", "");
    site.dcd("sequence record --control ctl --name x -- false").fails(1, "exit status: 1", "");
    site.dcd("sequence record --control ctl --name x -- /no/such").fails(1, "cannot run", "--");
    let long = "x".repeat(41);
    let line = format!("sequence record --control ctl --name {long} -- true");
    site.dcd(&line).fails(2, "at most 40 bytes", "");
    // A trace makes a sequence as well; one that reads nothing does not.
    let rows = places().map(|place| format!("0,R,0,{place},4096,0\n")).collect::<String>();
    fs::write(site.path("trace.csv"), format!("t_us,op,dev,off,len,fl\n{rows}")).unwrap();
    site.dcd("sequence add --control ctl --name traced trace.csv").ok();
    fs::write(site.path("w.csv"), "t_us,op,dev,off,len,fl\n0,W,0,0,4096,0\n").unwrap();
    site.dcd("sequence add --control ctl --name w w.csv").fails(1, "w.csv", "");
    // More than half of the read area is not for sequences.
    let rows = (0..2000).map(|i| format!("0,R,0,{},4096,0\n", i * 28_672)).collect::<String>();
    fs::write(site.path("large.csv"), format!("t_us,op,dev,off,len,fl\n{rows}")).unwrap();
    site.dcd("sequence add --control ctl --name large large.csv").fails(
        1,
        "no room for the sequence",
        "--sequence-share",
    );
    wait_copied(&site);
    assert_eq!(read_all(&site, content), (0, 100));
    daemon.stop();

    let site = Site::new("8M", 16 << 20);
    let daemon = site.serve("--quiet");
    fs::write(site.path("trace.csv"), "t_us,op,dev,off,len,fl\n0,R,0,0,4096,0\n").unwrap();
    site.dcd("sequence add --control ctl --name x trace.csv").fails(
        1,
        "no read area",
        "cache-disk resize --read-area",
    );
    daemon.stop();
}
