//! Proves that nobody loses the disk under him without a word: a detach under a mounted file
//! system, an open file, a device made of it, or a connected client is refused with their names,
//! waits for them, or takes the disk away when that is forced; a signal serves them on, syncs their
//! file systems, and ends when they have gone, at a time limit, or at a second signal.
//!
//! Mounts need root, FUSE and loop devices: without them those cases are left out.

mod common;

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::nbd::Nbd;
use common::{Folder, Outcome, Served};
use rustix::process::{Pid, Signal, kill_process};

/// A disk with a file system, mounted from a loop device over a FUSE file.
struct Mounted {
    folder: Folder,
    device: String,
    mount: PathBuf,
}

fn run(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    let status = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

fn can_mount() -> bool {
    let can = rustix::process::geteuid().is_root()
        && std::path::Path::new("/dev/fuse").exists()
        && std::path::Path::new("/dev/loop-control").exists()
        && run("mkfs.ext4", &["-V"]);
    if !can {
        eprintln!("left out: needs root, /dev/fuse, loop devices and mkfs.ext4");
    }
    can
}

fn pair() -> Folder {
    let folder = Folder::new();
    folder.disk("d", 64 << 20);
    folder.dcd("create --cache-disk c --cache-size 16M --data-disk d").ok();
    folder
}

const SERVE: &str = "serve --cache-disk c --data-disk d --control ctl --memory-directory .";

fn served_fuse(folder: &Folder, more: &str) -> (Served, String) {
    // A dead mount cannot be looked at.
    let _ = std::fs::create_dir_all(folder.path("vol"));
    let served = folder.serve(&format!("{SERVE} --fuse vol --loop {more}"));
    let device = served.ready.split(' ').find_map(|word| word.strip_prefix("loop="));
    let device = device.unwrap().to_owned();
    (served, device)
}

impl Mounted {
    fn new(stop_timeout: &str) -> (Mounted, Served) {
        let folder = pair();
        let (served, device) = served_fuse(&folder, &format!("--stop-timeout {stop_timeout}"));
        assert!(run("mkfs.ext4", &["-q", &device]));
        let mount = folder.path("mnt");
        std::fs::create_dir_all(&mount).unwrap();
        assert!(run("mount", &[&device, mount.to_str().unwrap()]));
        let mounted = Mounted { folder, device, mount };
        mounted.write("one");
        (mounted, served)
    }

    /// A file that is not synced.
    fn write(&self, name: &str) {
        std::fs::write(self.mount.join(name), vec![b'x'; 1 << 20]).unwrap();
    }

    fn unmount(&self) -> bool {
        run("umount", &[self.mount.to_str().unwrap()])
    }

    /// The data-disk alone is whole, and has these files.
    fn expect_on_data_disk(&self, names: &[&str]) {
        let data = self.folder.path("d");
        assert!(run("e2fsck", &["-fn", data.to_str().unwrap()]), "e2fsck");
        let mount = self.mount.to_str().unwrap();
        assert!(run("mount", &["-o", "ro,loop", data.to_str().unwrap(), mount]));
        let found = names.iter().map(|name| std::fs::read(self.mount.join(name)));
        let found: Vec<_> =
            found.map(|bytes| bytes.map(|bytes| bytes == vec![b'x'; 1 << 20])).collect();
        assert!(self.unmount());
        assert!(found.iter().all(|found| matches!(found, Ok(true))), "{names:?}: {found:?}");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = run("umount", &["-l", self.mount.to_str().unwrap()]);
    }
}

fn start(folder: &Folder, line: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_dcd"))
        .args(line.split_whitespace())
        .current_dir(folder.path(""))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn end(line: &str, child: Child) -> Outcome {
    Outcome::of(line, child.wait_with_output().unwrap())
}

/// `kill -9` and a new start: what is still mounted from the old loop device is dead, and that is
/// told, with what to do; where nobody used it the name is the same.
#[test]
fn a_mount_that_died_with_its_daemon_is_told_of() {
    if !can_mount() {
        return;
    }
    let (mut mounted, served) = Mounted::new("0s");
    assert!(run("sync", &["-f", mounted.mount.to_str().unwrap()]));
    served.kill();
    let (served, device) = served_fuse(&mounted.folder, "");
    assert_ne!(device, mounted.device);
    let place = mounted.mount.display().to_string();
    let told = format!(" dead={} dead-mount={place} ", mounted.device);
    assert!(served.ready.contains(&told), "{}", served.ready);
    let dead_loops = |folder: &Folder| {
        let status = folder.dcd("status --control ctl --json").ok();
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        status["dead_loops"].as_array().unwrap().len()
    };
    assert_eq!(dead_loops(&mounted.folder), 1);
    let panel = mounted.folder.dcd("status --control ctl").ok();
    assert!(panel.contains(&format!("umount {place}")), "{panel}");
    // What is advised is right.
    assert!(mounted.unmount());
    assert_eq!(dead_loops(&mounted.folder), 0);
    assert!(run("mount", &[&device, &place]));
    mounted.device = device;
    assert_eq!(std::fs::read(mounted.mount.join("one")).unwrap(), vec![b'x'; 1 << 20]);
    assert!(mounted.unmount());
    let said = served.kill().stderr;
    let advice = format!("umount {place}, then use {}", mounted.device);
    assert!(said.contains(&advice), "{said}");

    let (served, device) = served_fuse(&mounted.folder, "");
    assert_eq!(device, mounted.device);
    assert!(!served.ready.contains("dead"), "{}", served.ready);
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn a_detach_under_a_mount_is_refused_waits_or_is_forced() {
    if !can_mount() {
        return;
    }
    let (mounted, served) = Mounted::new("30s");
    let folder = &mounted.folder;
    let words = format!("{} is mounted at {} (ext4)", mounted.device, mounted.mount.display());
    for _ in 0..2 {
        folder.dcd("detach --control ctl").fails(1, &words, "--wait");
        mounted.write("two");
    }
    // It waits; what is written meanwhile is not lost.
    let waiting = start(folder, "detach --control ctl --wait");
    std::thread::sleep(Duration::from_millis(700));
    mounted.write("three");
    assert!(mounted.unmount());
    assert!(end("detach --wait", waiting).ok().starts_with("detached: "));
    assert_eq!(served.wait().code, Some(0));
    mounted.expect_on_data_disk(&["one", "two", "three"]);
}

#[test]
fn a_detach_that_waits_for_users_can_be_cancelled() {
    if !can_mount() {
        return;
    }
    let (mounted, served) = Mounted::new("0s");
    let waiting = start(&mounted.folder, "detach --control ctl --wait");
    std::thread::sleep(Duration::from_millis(700));
    kill_process(Pid::from_child(&waiting), Signal::INT).unwrap();
    end("detach --wait", waiting).fails(7, "the detach was cancelled", "served as before");
    let waiting = start(&mounted.folder, "detach --control ctl --wait");
    std::thread::sleep(Duration::from_millis(700));
    mounted.folder.dcd("detach --control ctl --cancel").ok();
    end("detach --wait", waiting).fails(7, "the detach was cancelled", "served as before");
    mounted.folder.dcd("detach --control ctl --cancel").fails(1, "no detach is under way", "");
    mounted.write("two");
    // What the kernel has, and nobody has asked to sync, goes with --force: dcd says so before.
    assert!(run("sync", &["-f", mounted.mount.to_str().unwrap()]));
    assert!(mounted.folder.dcd("detach --control ctl --force").ok().starts_with("detached: "));
    assert_eq!(served.wait().code, Some(0));
    assert!(run("umount", &["-l", mounted.mount.to_str().unwrap()]));
}

#[test]
fn a_signal_serves_those_who_have_it_mounted_until_they_have_gone() {
    if !can_mount() {
        return;
    }
    for signal in [Signal::TERM, Signal::INT, Signal::USR1] {
        let (mounted, served) = Mounted::new("60s");
        served.signal(signal);
        std::thread::sleep(Duration::from_millis(800));
        mounted.write("two");
        assert!(mounted.unmount(), "unmounting writes all of it");
        let outcome = served.wait();
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        let words = format!("in use: {} is mounted at ", mounted.device);
        assert!(outcome.stderr.contains(&words), "{}", outcome.stderr);
        let line = "detach --cache-disk c --data-disk d --memory-directory .";
        mounted.folder.dcd(line).ok();
        mounted.expect_on_data_disk(&["one", "two"]);
    }
}

/// At the time limit, or at a second signal, it ends: with another exit code than 0, and with what
/// had been written until then, synced or not.
#[test]
fn a_stop_under_a_mount_loses_nothing_that_was_written_before() {
    if !can_mount() {
        return;
    }
    for is_asked_twice in [false, true] {
        let (mounted, served) = Mounted::new(if is_asked_twice { "60s" } else { "1s" });
        mounted.write("two");
        let begun = Instant::now();
        served.signal(Signal::TERM);
        if is_asked_twice {
            // Its file systems are synced at the first one.
            std::thread::sleep(Duration::from_secs(2));
            served.signal(Signal::TERM);
        }
        let outcome = served.wait();
        assert!(begun.elapsed() < Duration::from_secs(30));
        assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
        for words in
            ["in use: ", "stopping under its users: ", "while the disk was in use", "hint: "]
        {
            assert!(outcome.stderr.contains(words), "{words}: {}", outcome.stderr);
        }
        run("umount", &["-l", mounted.mount.to_str().unwrap()]);
        // The kernel replays the journal of the copy that is served again.
        let (served, device) = served_fuse(&mounted.folder, "");
        assert!(run("mount", &[&device, mounted.mount.to_str().unwrap()]));
        for name in ["one", "two"] {
            let found = std::fs::read(mounted.mount.join(name)).unwrap();
            assert!(found == vec![b'x'; 1 << 20], "{name}");
        }
        assert!(mounted.unmount());
        mounted.folder.dcd("detach --control ctl").ok();
        assert_eq!(served.wait().code, Some(0));
    }
}

#[test]
fn who_has_the_file_or_the_device_open_is_named() {
    if !can_mount() {
        return;
    }
    let folder = pair();
    let (served, device) = served_fuse(&folder, "--stop-timeout 60s");
    for path in [device.clone(), folder.path("vol/disk").to_str().unwrap().to_owned()] {
        let open = File::open(&path).unwrap();
        let mut sleep = Command::new("sleep").arg("60").stdin(Stdio::from(open)).spawn().unwrap();
        // The test itself has closed it: the child is the only one.
        let words = format!("process {} (sleep) has {path} open", sleep.id());
        folder.dcd("detach --control ctl").fails(1, &words, "--force");
        sleep.kill().unwrap();
        sleep.wait().unwrap();
    }
    folder.dcd("detach --control ctl").ok();
    assert_eq!(served.wait().code, Some(0));
}

#[test]
fn nbd_clients_are_users_too() {
    let folder = pair();
    let line = format!("{SERVE} --nbd unix:sock --stop-timeout 60s");
    let served = folder.serve(&line);
    let mut nbd = Nbd::connect(&folder.path("sock"));
    let words = format!("NBD client: process {}", std::process::id());
    folder.dcd("detach --control ctl").fails(1, &words, "--force");
    assert_eq!(nbd.write(0, &[1; 4096]), 0, "served as before");
    let waiting = start(&folder, "detach --control ctl --wait");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(nbd.write(4096, &[2; 4096]), 0);
    drop(nbd);
    assert!(end("detach --wait", waiting).ok().starts_with("detached: "));
    assert_eq!(served.wait().code, Some(0));
    let data = std::fs::read(folder.path("d")).unwrap();
    assert_eq!((data[0], data[4096]), (1, 2));
    // A signal waits for it as well, and it is served meanwhile.
    let served = folder.serve(&line);
    let mut nbd = Nbd::connect(&folder.path("sock"));
    served.signal(Signal::TERM);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(nbd.write(0, &[3; 4096]), 0);
    drop(nbd);
    let outcome = served.wait();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stderr.contains(&format!("in use: {words}")), "{}", outcome.stderr);
    // With one that stays, a second signal ends it. With none, the first does.
    let served = folder.serve(&line);
    let nbd = Nbd::connect(&folder.path("sock"));
    served.signal(Signal::INT);
    std::thread::sleep(Duration::from_millis(500));
    served.signal(Signal::INT);
    let outcome = served.wait();
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("stopping under its users: NBD client"), "{}", outcome.stderr);
    drop(nbd);
    let served = folder.serve(&line);
    let begun = Instant::now();
    assert_eq!(served.stop().code, Some(0));
    assert!(begun.elapsed() < Duration::from_secs(10));
    std::io::stderr().flush().unwrap();
}
