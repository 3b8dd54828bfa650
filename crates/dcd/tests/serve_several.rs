//! Several caches that one `dcd serve` serves: beside each other, each for itself, stopped and told
//! together; and what cannot be served together is refused before anything begins.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::Folder;
use common::nbd::Nbd;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(120);

/// Two caches, `a` and `b`, each with a file that says how it is served.
fn two() -> Folder {
    let folder = Folder::new();
    for name in ["a", "b"] {
        folder.disk(&format!("{name}-d"), 64 << 20);
        let line = "create --cache-disk N-c --cache-size 16M --data-disk N-d";
        folder.dcd(&line.replace('N', name)).ok();
        write(&folder, name, "");
    }
    folder
}

/// The file of one, with another line.
fn write(folder: &Folder, name: &str, more: &str) {
    let text = "cache-disk = 'N-c'\ndata-disk = 'N-d'\nnbd = ['unix:N-sock']\ncontrol = 'N-ctl'\n\
                memory-directory = '.'\nstop-timeout = '0s'\nidle-max = '1h'\nidle-min = '1h'\n";
    let text = text.replace('N', name) + more;
    std::fs::write(folder.path(&format!("{name}.toml")), text).unwrap();
}

/// Has it wait for its users.
fn patient(folder: &Folder, name: &str) {
    let file = folder.path(&format!("{name}.toml"));
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(file, text.replace("'0s'", "'1h'")).unwrap();
}

/// Whether this is its max-delay.
fn has(folder: &Folder, name: &str, value: &str) -> bool {
    let settings = folder.dcd(&format!("set --control {name}-ctl")).ok();
    settings.lines().any(|line| line.contains(" max-delay ") && line.contains(value))
}

const SERVE: &str = "serve --config a.toml --config b.toml";

/// A `dcd serve` of several, killed at the end if it has not ended.
struct Several {
    child: Child,
    /// Its lines up to the one that begins with "ready".
    said: Vec<String>,
}

impl Several {
    fn start(folder: &Folder, line: &str) -> Several {
        let mut child = spawn(folder, line);
        let mut said: Vec<String> = Vec::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        while !said.last().is_some_and(|line| line.starts_with("ready")) {
            let mut line = String::new();
            assert_ne!(stdout.read_line(&mut line).unwrap(), 0, "not ready: {said:?}");
            said.push(line.trim_end().to_owned());
        }
        Several { child, said }
    }

    fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// How it ends, and what it has said on stderr.
    fn wait(mut self) -> (Option<i32>, String) {
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut said = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut said).unwrap();
        }
        (self.child.wait().unwrap().code(), said)
    }

    fn stop(self) -> (Option<i32>, String) {
        self.send(Signal::TERM);
        self.wait()
    }

    fn daemons(&self) -> Vec<Pid> {
        let path = format!("/proc/{0}/task/{0}/children", self.child.id());
        let children = std::fs::read_to_string(path).unwrap();
        children.split_whitespace().map(|id| Pid::from_raw(id.parse().unwrap()).unwrap()).collect()
    }

    /// The daemon of this cache.
    fn daemon(&self, name: &str) -> Pid {
        let file = format!("{name}.toml");
        let is_of = |pid: &Pid| {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
            words.split(|byte| *byte == 0).any(|word| word == file.as_bytes())
        };
        self.daemons().into_iter().find(is_of).unwrap()
    }
}

impl Drop for Several {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(folder: &Folder, line: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_dcd"))
        .args(line.split_whitespace())
        .current_dir(folder.path(""))
        .env("DCD_STATE_DIRECTORY", folder.state_directory())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn state(folder: &Folder, cache_disk: &str) -> String {
    let told = folder.dcd(&format!("check --cache-disk {cache_disk} --json")).ok();
    ["\"closed\"", "\"open\""].into_iter().find(|state| told.contains(state)).unwrap().into()
}

#[test]
fn two_caches_are_served_and_end_together() {
    let folder = two();
    let several = Several::start(&folder, SERVE);
    let told = |start: &str| several.said.iter().any(|line| line.starts_with(start));
    assert!(told("a: ready uuid=") && told("b: ready uuid="), "{:?}", several.said);
    assert_eq!(several.said.last().unwrap(), "ready caches=2");
    for (name, byte) in [("a", 1), ("b", 2)] {
        let mut nbd = Nbd::connect(&folder.path(&format!("{name}-sock")));
        assert_eq!(nbd.write(8192, &[byte; 4096]), 0);
        folder.dcd(&format!("status --control {name}-ctl")).ok();
    }
    // Who has started them is no daemon.
    let list: Value = serde_json::from_str(&folder.dcd("list --json").ok()).unwrap();
    let here = |daemon: &&Value| {
        let control = daemon["control"].as_str().map(Path::new);
        control.and_then(Path::parent).is_some_and(|directory| {
            directory.canonicalize().ok() == folder.path(".").canonicalize().ok()
        })
    };
    let of = |daemon: &Value| daemon["process"].as_i64().unwrap() as i32;
    let daemons = list["daemons"].as_array().unwrap();
    assert!(daemons.iter().all(|daemon| of(daemon) != several.child.id() as i32));
    let mut found: Vec<i32> = daemons.iter().filter(here).map(of).collect();
    let mut expected: Vec<i32> =
        several.daemons().iter().map(|it| it.as_raw_nonzero().get()).collect();
    found.sort();
    expected.sort();
    assert_eq!((found.len(), &found), (2, &expected));
    let (code, said) = several.stop();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!([state(&folder, "a-c"), state(&folder, "b-c")], ["\"closed\"", "\"closed\""]);
    for (name, byte) in [("a", 1), ("b", 2)] {
        let line = format!("serve --config {name}.toml");
        let alone = folder.serve(&line);
        let read = Nbd::connect(&folder.path(&format!("{name}-sock"))).read(8192, 4096).unwrap();
        assert_eq!(read, [byte; 4096]);
        assert_eq!(alone.stop().code, Some(0));
    }
}

#[test]
fn what_ends_one_is_nothing_to_the_other() {
    let folder = two();
    let several = Several::start(&folder, SERVE);
    kill_process(several.daemon("a"), Signal::KILL).unwrap();
    until("it is waited for", || several.daemons().len() == 1);
    let mut nbd = Nbd::connect(&folder.path("b-sock"));
    assert_eq!(nbd.write(0, &[3; 4096]), 0);
    drop(nbd);
    folder.dcd("status --control a-ctl").fails(6, "", "");
    // The words with which it is served again are right, beside the other.
    let alone = folder.serve("serve --config a.toml");
    assert_eq!(alone.stop().code, Some(0));
    let (code, said) = several.stop();
    assert_eq!(code, Some(1), "{said}");
    let line = "dcd: a was killed by signal 9; the others go on. To serve it again: dcd serve --config a.toml";
    assert!(said.lines().any(|said| said == line), "{said}");
    assert!(
        said.contains("dcd: error: 1 of 2 caches did not end in order: a was killed by signal 9"),
        "{said}"
    );
    assert_eq!(state(&folder, "b-c"), "\"closed\"");
}

#[test]
fn one_that_cannot_start_is_told_and_the_other_is_served() {
    let folder = two();
    std::fs::write(folder.path("a-c"), vec![0; 16 << 20]).unwrap();
    let several = Several::start(&folder, SERVE);
    assert_eq!(several.said.last().unwrap(), "ready caches=1 ended=a");
    folder.dcd("status --control b-ctl").ok();
    // That one has ended in order does not stop it from being told of the other.
    folder.dcd("detach --control b-ctl").ok();
    let (code, said) = several.wait();
    assert_eq!(code, Some(1));
    assert!(said.contains("a: dcd: error: "), "{said}");
    assert!(said.contains("dcd: b has ended in order; no other is left"), "{said}");
}

/// With `--json` each line is an object that says whose it is, also of an error.
#[test]
fn with_json_each_line_is_an_object() {
    let folder = two();
    std::fs::write(folder.path("a-c"), vec![0; 16 << 20]).unwrap();
    let mut child = spawn(&folder, &format!("{SERVE} --json --quiet"));
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let several = Several { child, said: Vec::new() };
    let mut said = || {
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        serde_json::from_str::<Value>(&line).expect(&line)
    };
    let first = said();
    assert_eq!((&first["cache"], &first["state"]), (&"b".into(), &"ready".into()), "{first}");
    let all = said();
    let expected = serde_json::json!({ "state": "ready", "caches": ["b"], "ended": ["a"] });
    assert_eq!(all, expected);
    let (code, said) = several.stop();
    assert_eq!(code, Some(1));
    let errors = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut errors = errors.filter(|it| it["error"].is_object());
    assert_eq!(errors.next().expect(&said)["cache"], "a", "{said}");
}

#[test]
fn all_of_them_read_their_files_again() {
    let folder = two();
    let several = Several::start(&folder, SERVE);
    write(&folder, "a", "max-delay = '30ms'\n");
    write(&folder, "b", "max-delay = '40ms'\n");
    several.send(Signal::HUP);
    until("both have read their files", || has(&folder, "a", "30ms") && has(&folder, "b", "40ms"));
    assert_eq!(several.stop().0, Some(0));
}

/// A service manager sends to all of a unit what the first process passes on. Twice would be
/// without waiting for anybody.
#[test]
fn a_signal_that_comes_on_two_ways_counts_once() {
    let folder = two();
    for name in ["a", "b"] {
        patient(&folder, name);
    }
    let several = Several::start(&folder, SERVE);
    let is_taken = |pid: Pid| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        status.lines().any(|line| line == "ShdPnd:\t0000000000000000")
    };
    let clients = ["a-sock", "b-sock"].map(|socket| Nbd::connect(&folder.path(socket)));
    for pid in ["a", "b"].map(|name| several.daemon(name)) {
        kill_process(pid, Signal::TERM).unwrap();
        until("it has taken its signal", || is_taken(pid));
    }
    several.send(Signal::TERM);
    until("it is passed on", || is_taken(Pid::from_child(&several.child)));
    // What comes behind it is done, so that one has been taken.
    for (name, value) in [("a", "30ms"), ("b", "40ms")] {
        let file = folder.path(&format!("{name}.toml"));
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(file, text + &format!("max-delay = '{value}'\n")).unwrap();
    }
    several.send(Signal::HUP);
    until("both have read their files", || has(&folder, "a", "30ms") && has(&folder, "b", "40ms"));
    for mut client in clients {
        assert_eq!(client.write(0, &[5; 4096]), 0);
    }
    let (code, said) = several.wait();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("NBD client"), "{said}");
    assert_eq!([state(&folder, "a-c"), state(&folder, "b-c")], ["\"closed\"", "\"closed\""]);
    // A second one by the same way does not wait.
    let mut several = Several::start(&folder, SERVE);
    let _clients = ["a-sock", "b-sock"].map(|socket| Nbd::connect(&folder.path(socket)));
    several.send(Signal::TERM);
    let mut stderr = BufReader::new(several.child.stderr.take().unwrap());
    let mut said = String::new();
    while said.matches("NBD client").count() < 2 {
        assert_ne!(stderr.read_line(&mut said).unwrap(), 0, "{said}");
    }
    // Not at once: that would be the same one.
    std::thread::sleep(Duration::from_millis(50));
    several.send(Signal::TERM);
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(several.wait().0, Some(1), "{said}");
    assert_eq!(said.matches("stopped in order while the disk was in use").count(), 2, "{said}");
}

/// A stop waits for users as long as each file says, and a second one does not.
#[test]
fn each_waits_for_its_users() {
    let folder = two();
    patient(&folder, "b");
    let several = Several::start(&folder, SERVE);
    let client = Nbd::connect(&folder.path("b-sock"));
    several.send(Signal::TERM);
    until("a has ended", || several.daemons().len() == 1);
    folder.dcd("status --control b-ctl").ok();
    drop(client);
    let (code, said) = several.wait();
    assert_eq!(code, Some(0), "{said}");
    // As soon as they are started they can be stopped.
    let mut child = spawn(&folder, SERVE);
    let begun = |child: &Child| {
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        std::fs::read_to_string(children).unwrap_or_default().split_whitespace().count() == 2
    };
    until("both are started", || begun(&child));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// Nobody is left whom nobody stops.
#[test]
fn they_end_with_whom_has_started_them() {
    let folder = two();
    let mut several = Several::start(&folder, SERVE);
    let daemons = several.daemons();
    several.child.kill().unwrap();
    let is_gone = |pid: &Pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    };
    until("they have ended", || daemons.iter().all(is_gone));
    assert_eq!([state(&folder, "a-c"), state(&folder, "b-c")], ["\"closed\"", "\"closed\""]);
}

#[test]
fn what_cannot_be_together_is_refused_before_anything_begins() {
    let folder = two();
    let before = ["a-c", "b-c"].map(|disk| std::fs::read(folder.path(disk)).unwrap());
    let refused = |line: &str, error: &str, hint: &str| folder.dcd(line).fails(1, error, hint);
    for flag in [
        "--nbd unix:x",
        "--control x",
        "--cache-disk x",
        "--data-disk x",
        "--fuse x",
        "--ublk 3",
        "--metrics 127.0.0.1:0",
        "--memory-lost",
        "--accept-damage",
        "--cpu 0",
        "--null",
    ] {
        let name = flag.split(' ').next().unwrap();
        refused(&format!("{SERVE} {flag}"), &format!("{name} is for one cache"), "leave");
    }
    refused("serve --config a.toml --config ./a.toml", "./a.toml is given twice", "leave one");
    refused("serve --config a.toml --config none.toml", "none.toml: cannot read", "");
    std::fs::write(folder.path("bad.toml"), "cache-dsk = 'x'\n").unwrap();
    refused("serve --config a.toml --config bad.toml", "bad.toml:1:1", "cache-disk");
    std::fs::write(folder.path("bad.toml"), "cache-disk = 'x'\ndata-disk = 'y'\n").unwrap();
    refused("serve --config a.toml --config bad.toml", "bad.toml: nothing to serve on", "--nbd");
    let with = |from: &str, to: &str| {
        let text = std::fs::read_to_string(folder.path("b.toml")).unwrap();
        assert!(text.contains(from));
        std::fs::write(folder.path("c.toml"), text.replace(from, to)).unwrap();
    };
    let both = "serve --config a.toml --config c.toml";
    std::os::unix::fs::symlink("a-d", folder.path("link")).unwrap();
    for (from, to, what) in [
        ("'b-ctl'", "'a-ctl'", "the socket "),
        ("b-sock", "./a-ctl", "the socket "),
        ("'b-c'", "'a-c'", "the disk a-c is in two files of --config: a.toml and c.toml"),
        ("b-d", "link", "the disk a-d, also link, is in two files"),
        ("b-d", "a-c", "the disk a-c is in two files"),
    ] {
        with(from, to);
        refused(both, what, "change one of the files");
    }
    // Nothing was begun.
    assert!(!folder.path("a-ctl").exists() && !folder.path("a-sock").exists());
    let after = ["a-c", "b-c"].map(|disk| std::fs::read(folder.path(disk)).unwrap());
    assert!(before == after);
}

/// Shares of one cache-disk are different cache-disks, also where only their data-disks say which.
#[test]
fn shares_of_one_disk_are_served_together() {
    let folder = two();
    for name in ["a", "b"] {
        let size = if name == "a" { "--cache-size 64M " } else { "" };
        let line = format!(
            "create --cache-disk s {size}--share 16M --name {name} --data-disk {name}-d --force"
        );
        folder.dcd(&line).ok();
        let file = folder.path(&format!("{name}.toml"));
        let text = std::fs::read_to_string(&file).unwrap();
        let share = format!("'s'\nshare = '{name}'");
        std::fs::write(file, text.replace(&format!("'{name}-c'"), &share)).unwrap();
    }
    let several = Several::start(&folder, SERVE);
    assert_eq!(several.said.last().unwrap(), "ready caches=2");
    assert_eq!(several.stop().0, Some(0));
    let text = std::fs::read_to_string(folder.path("b.toml")).unwrap();
    std::fs::write(folder.path("b.toml"), text.replace("share = 'b'", "share = 'a'")).unwrap();
    folder.dcd(SERVE).fails(1, "is in two files of --config", "");
}
