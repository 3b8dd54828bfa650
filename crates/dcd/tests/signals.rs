//! Proves that no signal that can be caught kills a dcd that serves, and that nobody need read what
//! it says: standard error on a full disk, or a pipe without a reader.

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::Folder;
use common::nbd::Nbd;

const SERVE: &str =
    "serve --cache-disk c --data-disk d --nbd unix:sock --control ctl --memory-directory .";

fn pair() -> Folder {
    let folder = Folder::new();
    folder.disk("d", 64 << 20);
    folder.dcd("create --cache-disk c --cache-size 16M --data-disk d").ok();
    folder
}

fn send(child: &Child, signal: i32) {
    let arguments = [format!("-{signal}"), child.id().to_string()];
    assert!(Command::new("kill").args(arguments).status().unwrap().success());
}

/// Starts it with this as standard error, and waits until it is ready.
fn serve(folder: &Folder, stderr: Stdio) -> Child {
    let mut child = Command::new(env!("CARGO_BIN_EXE_dcd"))
        .args(SERVE.split_whitespace())
        .current_dir(folder.path(""))
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .unwrap();
    let mut ready = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    assert!(ready.starts_with("ready "), "{ready}");
    child
}

#[test]
fn no_other_signal_kills_a_daemon() {
    let folder = pair();
    let mut child = serve(&folder, Stdio::piped());
    // HUP, USR2, PIPE, ALRM, STKFLT, XCPU, XFSZ, VTALRM, PROF, IO, PWR, real-time ones.
    for signal in [1, 12, 13, 14, 16, 24, 25, 26, 27, 29, 30, 34, 40, 50, 64] {
        send(&child, signal);
        std::thread::sleep(Duration::from_millis(30));
        assert!(child.try_wait().unwrap().is_none(), "killed by signal {signal}");
    }
    folder.dcd("flush --control ctl").ok();
    // QUIT: in order.
    send(&child, 3);
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    // Those of mistakes, of somebody who has seen none: ILL, TRAP, FPE, SYS.
    for signal in [4, 5, 8, 31] {
        let child = serve(&folder, Stdio::piped());
        send(&child, signal);
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "signal {signal}: {stderr}");
    }
    assert!(stderr.contains("SIGHUP: ") && stderr.contains("signal 14: "), "{stderr}");
    assert!(folder.dcd("check --cache-disk c --json").ok().contains("\"closed\""));
}

/// One that comes while it ends makes no failure of an end in order.
#[test]
fn a_signal_at_the_very_end_changes_nothing() {
    for _ in 0..4 {
        let folder = pair();
        let mut child = serve(&folder, Stdio::null());
        assert!(folder.dcd("detach --control ctl").ok().starts_with("detached: "));
        let ended = loop {
            // What has ended and is not waited for takes signals, too.
            send(&child, 15);
            if let Some(ended) = child.try_wait().unwrap() {
                break ended;
            }
        };
        assert_eq!(ended.code(), Some(0));
    }
}

#[test]
fn messages_that_nobody_can_read_end_nothing() {
    for is_pipe in [false, true] {
        let folder = pair();
        let stderr = match is_pipe {
            true => Stdio::piped(),
            false => File::options().write(true).open("/dev/full").unwrap().into(),
        };
        let mut child = serve(&folder, stderr);
        drop(child.stderr.take());
        for _ in 0..20 {
            // A client that breaks the protocol is told of.
            let mut stream = UnixStream::connect(folder.path("sock")).unwrap();
            let _ = stream.write_all(&[0xff; 64]);
        }
        let mut nbd = Nbd::connect(&folder.path("sock"));
        assert_eq!(nbd.write(8192, &[7; 4096]), 0);
        drop(nbd);
        std::thread::sleep(Duration::from_millis(300));
        assert!(child.try_wait().unwrap().is_none(), "it has died");
        send(&child, 15);
        assert_eq!(child.wait().unwrap().code(), Some(0));
        let served = folder.serve(SERVE);
        assert_eq!(Nbd::connect(&folder.path("sock")).read(8192, 4096).unwrap(), [7; 4096]);
        assert_eq!(served.stop().code, Some(0));
    }
}
