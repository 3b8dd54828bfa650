//! Proves that nothing which is lost is called done: dirty lines that rot in the log keep `dcd
//! drain` and `dcd detach`, on line and off line, from succeeding; what is lost is named, all else
//! is brought home, and only `--accept-damage`, after the list is on the disk, gives it up.

mod common;

use common::nbd::Nbd;
use common::{Folder, Outcome};
use serde_json::Value;

const LINES: u64 = 200;
/// So far apart that none is next to another.
const STEP: u64 = 64 << 10;
/// Every tenth line rots.
const LOST: u64 = 20;

fn content(number: u64) -> [u8; 4096] {
    [number as u8 | 1; 4096]
}

/// A pair with dirty lines on the cache-disk, some of which are rotten since it was closed.
fn rotten_pair() -> Folder {
    let folder = Folder::new();
    folder.disk("d", 64 << 20);
    folder.dcd("create --cache-disk c --cache-size 16M --data-disk d").ok();
    let served = folder.serve(&serve_line());
    let mut nbd = Nbd::connect(&folder.path("sock"));
    for number in 0..LINES {
        // A mark of its own, to be found again on the cache-disk.
        let mut bytes = content(number);
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes[8..16].copy_from_slice(b"rotten??");
        assert_eq!(nbd.write(number * STEP, &bytes), 0);
    }
    assert_eq!(nbd.flush(), 0);
    drop(nbd);
    assert_eq!(served.stop().code, Some(0));
    let mut cache = std::fs::read(folder.path("c")).unwrap();
    let mut flipped = 0;
    for page in cache.chunks_mut(4096) {
        let number = u64::from_le_bytes(page[..8].try_into().unwrap());
        if &page[8..16] == b"rotten??" && number % 10 == 3 {
            page[1000] ^= 0x40;
            flipped += 1;
        }
    }
    assert_eq!(flipped, LOST);
    std::fs::write(folder.path("c"), cache).unwrap();
    folder
}

fn serve_line() -> String {
    "serve --cache-disk c --data-disk d --nbd unix:sock --control ctl --memory-directory . --quiet \
     --idle-max 1h --idle-min 1h"
        .into()
}

/// It was told, with an exit code of its own, and where.
fn is_told(outcome: Outcome, what: &str) {
    let Outcome { code, stderr, .. } = outcome;
    assert_eq!(code, Some(4), "{stderr}");
    assert!(stderr.contains(what), "{stderr}");
    assert!(stderr.contains("20 lines (80 KiB)"), "{stderr}");
    assert!(stderr.contains(&format!("4 KiB at byte {}", 3 * STEP)), "{stderr}");
    assert!(stderr.contains("and 4 more ranges"), "{stderr}");
    assert!(stderr.contains("hint: "), "{stderr}");
}

/// All lines that are whole are on the data-disk, and there only zeroes in the place of the others.
fn expect_the_rest_home(folder: &Folder) {
    let data = std::fs::read(folder.path("d")).unwrap();
    for number in 0..LINES {
        let at = (number * STEP) as usize;
        let expected = if number % 10 == 3 { 0 } else { content(number)[16] };
        assert!(data[at + 16..at + 4096].iter().all(|byte| *byte == expected), "line {number}");
    }
}

/// The one object that `--json` leaves on stderr, and nothing on stdout.
fn error_in_json(outcome: Outcome) -> Value {
    let Outcome { code, stdout, stderr, .. } = outcome;
    assert_eq!((code, stdout.as_str()), (Some(4), ""), "{stderr}");
    let mut report: Value = serde_json::from_str(&stderr).expect(&stderr);
    let error = report["error"].take();
    assert_eq!((&error["code"], &error["exit_code"]), (&"damage".into(), &4.into()), "{error}");
    error
}

/// Every range is in the JSON.
fn expect_all_lost(found: &Value) {
    let ranges: Vec<_> = (0..LOST).map(|index| ((index * 10 + 3) * STEP, 4096)).collect();
    assert_eq!(*found, serde_json::json!({ "lines": LOST, "ranges": ranges }));
}

fn state(folder: &Folder) -> String {
    let outcome = folder.dcd("check --cache-disk c --json");
    let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
    report["state"].as_str().unwrap().to_owned()
}

fn expect_list(folder: &Folder) {
    let list = std::fs::read_to_string(folder.path("list")).unwrap();
    let lost: Vec<String> =
        (0..LOST).map(|index| format!("{} 4096", (index * 10 + 3) * STEP)).collect();
    let found: Vec<&str> = list.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(found, lost);
}

#[test]
fn a_served_pair_with_rot_is_neither_drained_nor_detached_without_a_word() {
    let folder = rotten_pair();
    let served = folder.serve(&serve_line());
    for _ in 0..2 {
        is_told(folder.dcd("drain --control ctl --lost-list list"), "drained, but not all");
        expect_list(&folder);
        std::fs::remove_file(folder.path("list")).unwrap();
        is_told(folder.dcd("detach --control ctl"), "not detached");
        // It is served as before, and what is lost fails.
        let mut nbd = Nbd::connect(&folder.path("sock"));
        assert!(nbd.read(3 * STEP, 4096).is_err());
        assert_eq!(nbd.read(4 * STEP, 4096).unwrap()[16..], content(4)[16..]);
    }
    expect_the_rest_home(&folder);
    // A list that cannot be written gives nothing up.
    let line = "detach --control ctl --accept-damage --lost-list no/list";
    assert_eq!(folder.dcd(line).code, Some(1));
    let line = "detach --control ctl --accept-damage --lost-list list";
    assert!(folder.dcd(line).ok().starts_with("detached: "));
    assert_eq!(served.wait().code, Some(0));
    expect_list(&folder);
    expect_the_rest_home(&folder);
    assert_eq!(state(&folder), "detached");
    // From then on it is nobody's loss.
    let checked = folder.dcd("check --cache-disk c").ok();
    assert!(checked.contains("given up with the detach: 20 lines"), "{checked}");
    let served = folder.serve(&serve_line());
    let status: Value =
        serde_json::from_str(&folder.dcd("status --control ctl --json").ok()).unwrap();
    assert_eq!(status["recovery"]["poisoned_lines"], 0, "{}", status["recovery"]);
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn a_pair_with_rot_is_not_detached_off_line_without_a_word() {
    let folder = rotten_pair();
    let line = "detach --cache-disk c --data-disk d --memory-directory .";
    for _ in 0..2 {
        is_told(folder.dcd(line), "not detached");
        assert_eq!(state(&folder), "closed");
    }
    expect_the_rest_home(&folder);
    let unwritable = format!("{line} --accept-damage --lost-list no/list");
    assert_eq!(folder.dcd(&unwritable).code, Some(1));
    assert_eq!(state(&folder), "closed");
    folder.dcd(&format!("{line} --accept-damage --lost-list list")).ok();
    expect_list(&folder);
    expect_the_rest_home(&folder);
    assert_eq!(state(&folder), "detached");
}

/// `--json` says in JSON alone what is lost: all of it in the error, or beside what was done.
#[test]
fn what_is_lost_is_in_the_json() {
    let folder = rotten_pair();
    let off_line = "detach --cache-disk c --data-disk d --memory-directory . --json";
    let error = error_in_json(folder.dcd(off_line));
    assert!(error["message"].as_str().unwrap().starts_with("not detached"), "{error}");
    expect_all_lost(&error["lost"]);
    let served = folder.serve(&serve_line());
    for verb in ["drain", "detach"] {
        let error = error_in_json(folder.dcd(&format!("{verb} --control ctl --json")));
        assert!(error["hint"].is_string(), "{error}");
        expect_all_lost(&error["lost"]);
        // There it would stand between the JSON.
        let refused = folder.dcd(&format!("{verb} --control ctl --json --lost-list -"));
        assert!(refused.code == Some(1) && refused.stdout.is_empty(), "{}", refused.stderr);
    }
    let done = folder.dcd("detach --control ctl --json --accept-damage");
    assert_eq!(done.stderr, "");
    let done: Value = serde_json::from_str(&done.ok()).unwrap();
    expect_all_lost(&done["lost"]);
    assert_eq!(served.wait().code, Some(0));
}

#[test]
fn what_is_given_up_off_line_is_in_the_json() {
    let folder = rotten_pair();
    let line = "detach --cache-disk c --data-disk d --memory-directory . --json --accept-damage";
    let done = folder.dcd(line);
    assert_eq!(done.stderr, "");
    let done: Value = serde_json::from_str(&done.ok()).unwrap();
    expect_all_lost(&done["lost"]);
}

/// Nothing that is there is the place of a list, least of all a disk of the pair; that is told
/// before anything is done, also where nothing is lost.
#[test]
fn a_list_overwrites_nothing() {
    let folder = rotten_pair();
    std::os::unix::fs::symlink(folder.path("d"), folder.path("link")).unwrap();
    std::os::unix::fs::symlink(folder.path("away"), folder.path("dangling")).unwrap();
    std::fs::write(folder.path("text"), "mine").unwrap();
    let read = |name: &str| std::fs::read(folder.path(name)).unwrap();
    let before = ["c", "d", "text"].map(read);
    let off_line = "detach --cache-disk c --data-disk d --memory-directory . --accept-damage";
    for name in ["c", "d", "link", "dangling", "text", ".", "no/list"] {
        let refused = folder.dcd(&format!("{off_line} --lost-list {name}"));
        refused.fails(1, &format!("cannot make the list {name}"), "name");
        assert!(["c", "d", "text"].map(read) == before, "{name}");
    }
    assert!(!folder.path("away").exists());
    let served = folder.serve(&serve_line());
    for name in ["c", "d", "text"] {
        for verb in ["drain", "detach --accept-damage"] {
            let refused = folder.dcd(&format!("{verb} --control ctl --lost-list {name}"));
            refused.fails(1, "cannot make the list", "nothing is overwritten");
        }
    }
    assert_eq!(read("text"), b"mine");
    // What only takes what is written will do, and what is behind it is not written over.
    let shell = |command: &str| {
        let output = std::process::Command::new("sh")
            .args(["-c", command])
            .env("DCD", env!("CARGO_BIN_EXE_dcd"))
            .current_dir(folder.path("."))
            .output()
            .unwrap();
        Outcome::of(command, output)
    };
    let drain = "$DCD drain --control ctl --lost-list";
    let listed = format!("{} 4096\n", 3 * STEP);
    for (command, name) in [
        (format!("{drain} /dev/stdout | cat > piped"), "piped"),
        (format!("echo first > out; {drain} /dev/stdout >> out"), "out"),
        (format!("mkfifo pipe; cat pipe > taken & {drain} pipe; wait"), "taken"),
    ] {
        shell(&command);
        let list = String::from_utf8(read(name)).unwrap();
        assert!(list.contains(&listed), "{command}: {list}");
        assert!(name != "out" || list.starts_with("first\n#"), "{list}");
    }
    assert_eq!(shell(&format!("{drain} /dev/null")).code, Some(4));
    assert_eq!(shell(&format!("{drain} /dev/full")).code, Some(1));
    // Nothing lost, no list, and nothing in the way of the next one.
    let mut nbd = Nbd::connect(&folder.path("sock"));
    for number in (0..LINES).filter(|number| number % 10 == 3) {
        assert_eq!(nbd.write(number * STEP, &content(number)), 0);
    }
    drop(nbd);
    for verb in ["drain", "detach"] {
        folder.dcd(&format!("{verb} --control ctl --lost-list list")).ok();
        assert!(!folder.path("list").exists());
    }
    assert_eq!(served.wait().code, Some(0));
}

/// What was lost and is written anew is lost no more.
#[test]
fn what_is_written_anew_is_whole() {
    let folder = rotten_pair();
    let served = folder.serve(&serve_line());
    is_told(folder.dcd("drain --control ctl"), "drained, but not all");
    let mut nbd = Nbd::connect(&folder.path("sock"));
    for number in (0..LINES).filter(|number| number % 10 == 3) {
        assert_eq!(nbd.write(number * STEP, &content(number)), 0);
    }
    drop(nbd);
    assert!(folder.dcd("drain --control ctl").ok().starts_with("drained: "));
    assert!(folder.dcd("detach --control ctl").ok().starts_with("detached: "));
    assert_eq!(served.wait().code, Some(0));
    let data = std::fs::read(folder.path("d")).unwrap();
    for number in 0..LINES {
        let at = (number * STEP) as usize + 16;
        assert_eq!(data[at..at + 4080], content(number)[16..], "line {number}");
    }
}
