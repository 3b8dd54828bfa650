//! Proves that a drain and a detach can be cancelled: by Ctrl-C of the command, by the loss of its
//! connection, by an explicit `--cancel`, by a signal to the daemon or to the offline detach; and
//! that nothing is lost, the pair stays one, and a repetition ends it.

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::nbd::Nbd;
use common::{Folder, Outcome, Served};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// So many lines, so far apart that each needs the arm for itself: some seconds of draining.
const LINES: u64 = 400;
const STEP: u64 = 128 << 10;

const SLOW: &str = "slow:d,read=10ms,write=10ms";

fn serve_line() -> String {
    format!(
        "serve --cache-disk c --data-disk {SLOW} --nbd unix:sock --control ctl \
         --memory-directory . --quiet --idle-max 1h --idle-min 1h"
    )
}

/// A pair that is served, and has much to drain.
fn dirty_pair() -> (Folder, Served) {
    let folder = Folder::new();
    folder.disk("d", 64 << 20);
    folder.dcd("create --cache-disk c --cache-size 16M --data-disk d").ok();
    let served = folder.serve(&serve_line());
    let mut nbd = Nbd::connect(&folder.path("sock"));
    for number in 0..LINES {
        assert_eq!(nbd.write(number * STEP, &[number as u8 | 1; 4096]), 0);
    }
    assert_eq!(nbd.flush(), 0);
    (folder, served)
}

fn status(folder: &Folder) -> Value {
    serde_json::from_str(&folder.dcd("status --control ctl --json").ok()).unwrap()
}

fn dirty_bytes(folder: &Folder) -> u64 {
    status(folder)["dirty_bytes"].as_u64().unwrap()
}

/// Starts `dcd` and does not wait for it.
fn start(folder: &Folder, line: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_dcd"))
        .args(line.split_whitespace())
        .current_dir(folder.path(""))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn end(line: &str, child: Child) -> Outcome {
    Outcome::of(line, child.wait_with_output().unwrap())
}

/// Waits until the drain or detach under way has moved something.
fn wait_until_it_moves(folder: &Folder) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while dirty_bytes(folder) == LINES * 4096 {
        assert!(Instant::now() < deadline, "nothing moves");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What is left does not get less any more.
fn expect_that_nothing_moves(folder: &Folder) {
    // The batch under way is finished first.
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut last = dirty_bytes(folder);
    loop {
        std::thread::sleep(Duration::from_millis(300));
        let now = dirty_bytes(folder);
        if now == last {
            break;
        }
        assert!(Instant::now() < deadline, "it moves on");
        last = now;
    }
    assert!(last > 0, "something is left");
}

/// The same where nobody can be asked: a line is on the data-disk.
fn wait_until_one_is_home(folder: &Folder) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let data = File::open(folder.path("d")).unwrap();
    let is_home = |number: u64| {
        let mut byte = [0];
        data.read_exact_at(&mut byte, number * STEP).unwrap();
        byte != [0]
    };
    while !(0..LINES).any(is_home) {
        assert!(Instant::now() < deadline, "nothing moves");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Everything that was written is on the data-disk.
fn expect_all_home(folder: &Folder) {
    let data = std::fs::read(folder.path("d")).unwrap();
    for number in 0..LINES {
        let at = (number * STEP) as usize;
        assert_eq!(data[at..at + 4096], [number as u8 | 1; 4096], "line {number}");
    }
}

#[test]
fn ctrl_c_cancels_a_drain_and_serving_goes_on() {
    let (folder, served) = dirty_pair();
    let line = "drain --control ctl";
    let drain = start(&folder, line);
    wait_until_it_moves(&folder);
    signal(&drain, Signal::INT);
    end(line, drain).fails(7, "the drain was cancelled: ", "serving goes on");
    expect_that_nothing_moves(&folder);
    assert_eq!(Nbd::connect(&folder.path("sock")).read(STEP, 4096).unwrap(), [1; 4096]);
    folder.dcd(line).ok();
    assert_eq!(dirty_bytes(&folder), 0);
    expect_all_home(&folder);
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn a_drain_whose_client_is_gone_is_cancelled() {
    let (folder, served) = dirty_pair();
    // kill -9: the command has no say in it.
    let mut drain = start(&folder, "drain --control ctl");
    wait_until_it_moves(&folder);
    drain.kill().unwrap();
    drain.wait().unwrap();
    expect_that_nothing_moves(&folder);
    // One of two: the other's drain goes on.
    let mut first = start(&folder, "drain --control ctl");
    let second = start(&folder, "drain --control ctl");
    std::thread::sleep(Duration::from_millis(100));
    first.kill().unwrap();
    first.wait().unwrap();
    end("drain", second).ok();
    expect_all_home(&folder);
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn cancel_ends_the_drains_of_others() {
    let (folder, served) = dirty_pair();
    folder.dcd("drain --control ctl --cancel").fails(1, "no drain is under way", "dcd status");
    folder.dcd("detach --control ctl --cancel").fails(1, "no detach is under way", "dcd status");
    let drain = start(&folder, "drain --control ctl");
    wait_until_it_moves(&folder);
    assert_eq!(folder.dcd("drain --control ctl --cancel").ok(), "cancelled\n");
    end("drain", drain).fails(7, "cancelled", "dcd drain");
    expect_that_nothing_moves(&folder);
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn a_detach_that_is_cancelled_goes_on_serving() {
    let (folder, served) = dirty_pair();
    // A client that stays connected all the time.
    let mut nbd = Nbd::connect(&folder.path("sock"));
    for cancelled_by in ["ctrl-c", "command"] {
        let detach = start(&folder, "detach --control ctl --force");
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(nbd.read(2 * STEP, 4096).unwrap(), [3; 4096], "served meanwhile");
        match cancelled_by {
            "ctrl-c" => signal(&detach, Signal::TERM),
            _ => drop(folder.dcd("detach --control ctl --cancel").ok()),
        }
        end("detach", detach).fails(7, "the detach was cancelled: ", "serving goes on");
        assert_eq!(nbd.write(0, &[1; 4096]), 0);
    }
    expect_that_nothing_moves(&folder);
    drop(nbd);
    folder.dcd("detach --control ctl").ok();
    assert_eq!(served.wait().code, Some(0));
    expect_all_home(&folder);
    let report = folder.dcd("check --cache-disk c --json").ok();
    assert!(report.contains("\"detached\""), "{report}");
}

#[test]
fn a_signal_to_the_daemon_stops_in_order_instead_of_detaching() {
    let (folder, served) = dirty_pair();
    let detach = start(&folder, "detach --control ctl");
    wait_until_it_moves(&folder);
    assert_eq!(served.stop().code, Some(0));
    end("detach", detach).fails(7, "the detach was cancelled: ", "");
    let report: Value =
        serde_json::from_str(&folder.dcd("check --cache-disk c --json").ok()).unwrap();
    assert_eq!(report["state"], "closed");
    assert!(report["dirty_lines"].as_u64().unwrap() > 0);
    let served = folder.serve(&serve_line());
    folder.dcd("detach --control ctl").ok();
    assert_eq!(served.wait().code, Some(0));
    expect_all_home(&folder);
}

#[test]
fn an_offline_detach_ends_in_order_at_a_signal() {
    let (folder, served) = dirty_pair();
    assert_eq!(served.stop().code, Some(0));
    let line = format!("detach --cache-disk c --data-disk {SLOW} --memory-directory .");
    let detach = start(&folder, &line);
    wait_until_one_is_home(&folder);
    signal(&detach, Signal::INT);
    end(&line, detach).fails(7, "stay in the cache", "serve it, or detach again");
    let report: Value =
        serde_json::from_str(&folder.dcd("check --cache-disk c --json").ok()).unwrap();
    assert_eq!(report["state"], "closed");
    assert!(report["dirty_lines"].as_u64().unwrap() > 0);
    assert!(no_memory_is_left(&folder));
    folder.dcd("detach --cache-disk c --data-disk d --memory-directory .").ok();
    expect_all_home(&folder);
}

fn no_memory_is_left(folder: &Folder) -> bool {
    let mut names = std::fs::read_dir(folder.path("")).unwrap().map(|e| e.unwrap().path());
    !names.any(|path| path.extension().is_some_and(|extension| extension == "segments"))
}

/// A client that speaks the protocol itself: it may close its direction and still gets its answer,
/// and what it asks behind a drain is answered behind it.
#[test]
fn a_client_that_only_listens_is_answered() {
    let (folder, served) = dirty_pair();
    let mut stream = UnixStream::connect(folder.path("ctl")).unwrap();
    stream.write_all(b"{\"command\":\"drain\"}\n{\"command\":\"ping\"}\n").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let lines: Vec<Value> = BufReader::new(stream)
        .lines()
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .collect();
    assert!(lines.iter().any(|line| line["progress"]["total"] == LINES), "{lines:?}");
    let answers: Vec<&Value> = lines.iter().filter(|line| !line["ok"].is_null()).collect();
    assert_eq!(answers.len(), 2);
    assert!(answers.iter().all(|answer| answer["ok"] == true));
    expect_all_home(&folder);
    assert_eq!(served.stop().code, Some(0));
}
