//! Proves what the doors of the control socket hold: nobody waits for ever for a daemon that was
//! stopped, nobody believes a server of somebody else, and nobody who holds connections keeps
//! others out.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Folder, Outcome, Served};
use rustix::process::Signal;

/// A daemon that says nothing is given up after 15 s. Tests run beside others.
const GIVEN_UP: Duration = Duration::from_secs(40);

fn served() -> (Folder, Served) {
    let folder = Folder::new();
    folder.disk("d", 64 << 20);
    folder.dcd("create --cache-disk c --cache-size 16M --data-disk d --read-area 4M").ok();
    let served = folder.serve(
        "serve --cache-disk c --data-disk d --nbd unix:sock --control ctl --memory-directory . --quiet",
    );
    (folder, served)
}

/// Runs them at the same time.
fn all_at_once(folder: &Folder, lines: &[&str]) -> Vec<Outcome> {
    let start = |line: &&str| {
        let child = Command::new(env!("CARGO_BIN_EXE_dcd"))
            .args(line.split_whitespace())
            .current_dir(folder.path(""))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        (line.to_string(), child.unwrap())
    };
    let started: Vec<_> = lines.iter().map(start).collect();
    let deadline = Instant::now() + GIVEN_UP;
    let ended = started.into_iter().map(|(line, mut child)| {
        while child.try_wait().unwrap().is_none() {
            if Instant::now() > deadline {
                let _ = child.kill();
                panic!("dcd {line} waits for ever");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Outcome::of(&line, child.wait_with_output().unwrap())
    });
    ended.collect()
}

#[test]
fn nobody_waits_for_ever_for_a_stopped_daemon() {
    let (folder, served) = served();
    served.signal(Signal::STOP);
    std::fs::write(folder.path("trace"), "0 0 W 0 8\n").unwrap();
    let lines = [
        "status --control ctl",
        "flush --control ctl",
        "drain --control ctl",
        "detach --control ctl",
        "metrics ctl",
        "sequence list --control ctl",
        "top --once ctl",
        "volume status --control ctl",
        "dhisfs fsck --control ctl --nbd sock",
    ];
    let outcomes = all_at_once(&folder, &lines);
    for (line, outcome) in lines.iter().zip(&outcomes) {
        let said = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(said.contains("says nothing for"), "{line}: {said}");
        if !line.starts_with("top") {
            // fsck has numbers of its own.
            let code = if line.contains("fsck") { 8 } else { 6 };
            assert_eq!(outcome.code, Some(code), "{line}: {said}");
            assert!(outcome.stderr.contains("kill -CONT"), "{line}: {said}");
        }
    }
    served.signal(Signal::CONT);
    assert_eq!(served.stop().code, Some(0));
}

/// The queue of a daemon that does not accept is full at some time.
#[test]
fn who_cannot_even_connect_is_told_so() {
    let folder = Folder::new();
    let listener = UnixListener::bind(folder.path("ctl")).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let _first = UnixStream::connect(folder.path("ctl")).unwrap();
    let outcomes = all_at_once(&folder, &["flush --control ctl", "flush --control ctl"]);
    for outcome in outcomes {
        assert_eq!(outcome.code, Some(6), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("says nothing"), "{}", outcome.stderr);
    }
}

/// A server of the user `nobody`, in a folder where everybody may write, and in one that root has
/// given.
#[test]
fn a_server_of_somebody_else_is_not_believed() {
    const NOBODY: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: it takes root to be somebody else");
        return;
    }
    let folder = std::env::temp_dir().join(format!("dcd-doors-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).unwrap();
    let path = folder.join("ctl");
    let (tell, told) = std::sync::mpsc::channel();
    let at = path.clone();
    let server = std::thread::spawn(move || {
        // Of this thread only: the kernel remembers who has called listen.
        let nobody = rustix::process::Uid::from_raw(NOBODY);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
        let listener = UnixListener::bind(&at).unwrap();
        tell.send(()).unwrap();
        let mut asked = 0;
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            let mut line = String::new();
            let _ = BufReader::new(&stream).read_line(&mut line);
            if line.contains("end") {
                return asked;
            }
            asked += usize::from(!line.is_empty());
            let _ = (&stream).write_all(b"{\"ok\":true}\n");
        }
        asked
    });
    told.recv().unwrap();
    let ours = Folder::new();
    let flush = format!("flush --control {}", path.display());
    let refused = ours.dcd(&flush);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(6), ""), "{}", refused.stderr);
    assert!(refused.stderr.contains("belongs to user 65534"), "{}", refused.stderr);
    (&UnixStream::connect(&path).unwrap()).write_all(b"end\n").unwrap();
    assert_eq!(server.join().unwrap(), 0, "nothing is asked of it");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn who_holds_connections_keeps_nobody_out() {
    let (folder, served) = served();
    let connect = || UnixStream::connect(folder.path("ctl")).unwrap();
    // One that has asked something stays, however many come and ask nothing.
    let mut asked = connect();
    let mut answers = BufReader::new(asked.try_clone().unwrap());
    let mut ping = || {
        asked.write_all(b"{\"command\":\"ping\"}\n").unwrap();
        let mut answer = String::new();
        answers.read_line(&mut answer).unwrap();
        answer
    };
    assert_eq!(ping(), "{\"ok\":true}\n");
    let mut half = connect();
    half.write_all(b"{\"command\":").unwrap();
    let idle: Vec<_> = (0..40).map(|_| connect()).collect();
    let began = Instant::now();
    folder.dcd("status --control ctl").ok();
    folder.dcd("flush --control ctl").ok();
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_eq!(ping(), "{\"ok\":true}\n");
    drop(idle);
    // All places at work: recordings, which last. The status is seen still, and what is not short
    // is refused.
    let busy: Vec<_> = (0..16)
        .map(|_| {
            let mut stream = connect();
            stream.write_all(b"{\"command\":\"record\"}\n").unwrap();
            stream.read_exact(&mut [0; 8]).unwrap();
            stream
        })
        .collect();
    folder.dcd("status --control ctl").ok();
    let refused = folder.dcd("flush --control ctl");
    assert!(refused.stderr.contains("too many clients"), "{}", refused.stderr);
    drop(busy);
    assert_eq!(served.stop().code, Some(0));
}

/// Names of files, words of a server, certificates: nothing of them is obeyed by a terminal.
#[test]
fn what_comes_from_outside_is_obeyed_by_no_terminal() {
    const EVIL: &str = "\x1b[2J\x1b]0;owned\x07\u{9b}31m\u{202e}";
    let folder = Folder::new();
    let is_harmless = |line: &str| {
        let outcome = folder.dcd(line);
        for text in [&outcome.stdout, &outcome.stderr] {
            let found = text.chars().find(|it| *it != '\n' && dcd_client::plain::is_obeyed(*it));
            assert_eq!(found, None, "{line}: {text:?}");
        }
        outcome
    };
    let (cache, data) = (format!("c{EVIL}"), format!("d{EVIL}"));
    folder.disk(&data, 64 << 20);
    is_harmless(&format!("create --cache-disk {cache} --cache-size 16M --data-disk {data}")).ok();
    is_harmless(&format!("check --cache-disk {cache}"));
    is_harmless(&format!("inspect superblock {cache}"));
    is_harmless(&format!("probe {cache}"));
    is_harmless(&format!("create --cache-disk {data} --data-disk {cache}"));
    is_harmless(&format!("create --cache-disk {EVIL} --data-disk {EVIL}"));
    is_harmless(&format!("status --control {EVIL}"));
    is_harmless(&format!("trace summary {EVIL}"));
    is_harmless(&format!("no-such-verb{EVIL}"));
    // A server, which says what it likes.
    let listener = UnixListener::bind(folder.path("ctl")).unwrap();
    let answer = format!("{{\"ok\":false,\"error\":{:?},\"hint\":{:?}}}\n", "no", "none")
        .replace("no\"", "no\\u001b[2J\\u009b31m\\n\\u202e\"")
        .replace("none", "\\u001b]0;owned\\u0007");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            let _ = BufReader::new(&stream).read_line(&mut String::new());
            let _ = (&stream).write_all(answer.as_bytes());
        }
    });
    for line in ["status", "flush", "drain", "sequence list", "volume status"] {
        let outcome = is_harmless(&format!("{line} --control ctl"));
        assert!(outcome.stderr.contains("no\u{fffd}[2J"), "{line}: {}", outcome.stderr);
    }
}

/// Files that are read whole must have an end, soon.
#[test]
fn what_has_no_end_is_not_read_to_it() {
    let folder = Folder::new();
    folder.disk("d", 64 << 20);
    let pipe = folder.path("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    folder.disk("large", 1 << 40);
    std::fs::write(folder.path("key"), "").unwrap();
    let mut lines = Vec::new();
    for endless in ["/dev/zero", "pipe", "large"] {
        lines.extend([
            format!("serve --config {endless}"),
            format!("create --volume {endless} --cache-disk c --cache-size 16M"),
            format!("hint apply --rules {endless} --control ctl ."),
            format!(
                "serve --cache-disk c --data-disk d --nbd tcp:127.0.0.1:0 --tls-cert {endless} --tls-key {endless} --tls-ca {endless}"
            ),
            format!("disk show {endless}"),
        ]);
    }
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    for outcome in all_at_once(&folder, &lines) {
        assert!(![Some(0), None].contains(&outcome.code), "{}: {}", outcome.line, outcome.stderr);
    }
}

/// All that is for people goes through one function: nobody writes to standard output or standard
/// error past it.
#[test]
fn nothing_is_written_past_the_function_for_people() {
    let crates = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let mut folders: Vec<std::path::PathBuf> =
        ["dcd", "dcd-daemon", "dcd-client", "dhisfs", "dcd-sim", "dcd-study", "dcd-parquet"]
            .map(|name| std::path::Path::new(crates).join(name).join("src"))
            .into();
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            // Tests may say what they like.
            let program = text.split("#[cfg(test)]").next().unwrap_or_default();
            let name = path.to_string_lossy().into_owned();
            seen += 1;
            let writes = |what: &str| program.contains(what) && !name.contains("tests");
            let has_macro = ["main.rs", "lib.rs"].iter().any(|end| name.ends_with(end));
            assert!(!writes(" println!(") && !writes(" print!("), "{name}");
            let stdout = name.ends_with("dcd/src/stdout.rs") || name.ends_with("top/terminal.rs");
            assert!(stdout || !writes("stdout().lock()"), "{name}");
            // The other is a list of numbers in a file, which may be the one that is stderr.
            let stderr = has_macro
                || ["dcd/src/error/report.rs", "dcd/src/lost_list.rs", "process/log.rs"]
                    .iter()
                    .any(|end| name.ends_with(end));
            assert!(stderr || !writes("io::stderr()") || writes("stderr().is_terminal"), "{name}");
            if ["dcd-client", "dcd-sim", "dcd-study", "dcd-parquet"]
                .iter()
                .any(|it| name.contains(&format!("{it}/")))
            {
                assert!(!writes("eprintln!("), "{name}");
            }
        }
    }
    assert!(seen > 200, "{seen}");
}
