//! Proves on the real program what a service manager relies on: it is told when the disk is served,
//! gets signs of life, keeps the segment memory, hands over sockets; a dcd whose disks are missing
//! waits, says so and can be stopped; units are as hardened as is promised, and udev is told which
//! disks belong to caches.

mod common;

use std::cell::RefCell;
use std::io::{BufRead, BufReader, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::Folder;
use common::nbd::Nbd;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::Signal;

const SERVE: &str = "serve --cache-disk c --data-disk d --nbd unix:sock --control ctl --memory-directory . \
                     --quiet --idle-max 1h --idle-min 1h";

/// The service manager's end: where it hears, the path of that, and the descriptors that it keeps.
struct Manager(UnixDatagram, PathBuf, RefCell<Vec<OwnedFd>>);

impl Manager {
    fn new(folder: &Folder) -> Manager {
        let path = folder.path("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Manager(socket, path, RefCell::default())
    }

    /// Hears messages until one has this line.
    fn hear(&self, line: &str) -> String {
        loop {
            let mut bytes = [0; 4096];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut into = [IoSliceMut::new(&mut bytes)];
            let length = recvmsg(&self.0, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC)
                .unwrap_or_else(|error| panic!("{line}: {error}"))
                .bytes;
            for sent in control.drain() {
                if let RecvAncillaryMessage::ScmRights(descriptors) = sent {
                    self.2.borrow_mut().extend(descriptors);
                }
            }
            let message = String::from_utf8_lossy(&bytes[..length]).into_owned();
            if message.lines().any(|said| said.starts_with(line)) {
                return message;
            }
        }
    }
}

/// A service, killed at the end if it has not ended.
struct Service(Child);

impl Service {
    fn start(folder: &Folder, line: &str, manager: &Manager) -> Service {
        let child = Command::new(env!("CARGO_BIN_EXE_dcd"))
            .args(line.split_whitespace())
            .current_dir(folder.path("."))
            .env("NOTIFY_SOCKET", &manager.1)
            .env("WATCHDOG_USEC", "400000")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Service(child)
    }

    fn stop(&mut self) -> Option<i32> {
        self.end_by(Signal::TERM)
    }

    fn end_by(&mut self, signal: Signal) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, signal).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while self.0.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        self.0.wait().unwrap().code()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn pair() -> Folder {
    let folder = Folder::new();
    folder.disk("d", 64 << 20);
    folder.dcd("create --cache-disk c --cache-size 16M --data-disk d").ok();
    folder
}

#[test]
fn the_manager_is_told_and_gets_signs_of_life() {
    let folder = pair();
    let manager = Manager::new(&folder);
    let mut service = Service::start(&folder, SERVE, &manager);
    manager.hear("STATUS=opening");
    let stored = manager.hear("FDSTORE=1");
    assert!(stored.contains("FDNAME=segments-"), "{stored}");
    let ready = manager.hear("READY=1");
    assert!(ready.contains("STATUS=serves unix:sock"), "{ready}");
    // Nobody asks anything of it, and it lives: once in half of the time.
    for _ in 0..3 {
        manager.hear("WATCHDOG=1");
    }
    assert_eq!(service.stop(), Some(0));
    manager.hear("STOPPING=1");
    manager.hear("FDSTOREREMOVE=1");
    // For a restart, the signal that the unit says.
    let unit = std::fs::read_to_string(packaging("systemd/dcd@.service")).unwrap();
    assert!(unit.lines().any(|line| line == "RestartKillSignal=SIGUSR1"));
    let mut service = Service::start(&folder, SERVE, &manager);
    manager.hear("READY=1");
    assert_eq!(service.end_by(Signal::USR1), Some(0));
    manager.hear("FDSTOREREMOVE=1");
}

/// Of several caches that one service serves it is told when all are served.
#[test]
fn the_manager_is_told_of_several_caches() {
    let folder = pair();
    let manager = Manager::new(&folder);
    folder.disk("d2", 64 << 20);
    folder.dcd("create --cache-disk c2 --cache-size 16M --data-disk d2").ok();
    for number in ["", "2"] {
        let text =
            "cache-disk = 'cN'\ndata-disk = 'dN'\nnbd = 'unix:sockN'\nmemory-directory = '.'\n";
        let file = folder.path(&format!("cache{number}.toml"));
        std::fs::write(file, text.replace('N', number)).unwrap();
    }
    let line = "serve --config cache.toml --config cache2.toml --quiet";
    let mut service = Service::start(&folder, line, &manager);
    let ready = manager.hear("READY=1");
    assert!(ready.contains("STATUS=serves cache, cache2"), "{ready}");
    for _ in 0..3 {
        manager.hear("WATCHDOG=1");
    }
    assert_eq!(service.stop(), Some(0));
    manager.hear("STOPPING=1");
}

#[test]
fn a_service_waits_for_its_disks() {
    let folder = pair();
    std::fs::rename(folder.path("c"), folder.path("away")).unwrap();
    let without = folder.dcd(SERVE);
    assert_eq!(without.code, Some(1), "without --wait it fails: {}", without.stderr);
    let manager = Manager::new(&folder);
    let line = format!("{SERVE} --wait");
    let mut service = Service::start(&folder, &line, &manager);
    manager.hear("STATUS=waiting for the cache-disk c");
    folder.dcd("status --control ctl").fails(1, "waiting for the cache-disk c", "as soon as");
    // A client that says nothing does not hold it up.
    let _silent = std::os::unix::net::UnixStream::connect(folder.path("ctl")).unwrap();
    std::fs::rename(folder.path("d"), folder.path("away-too")).unwrap();
    manager.hear("STATUS=waiting for the cache-disk c and the data-disk d");
    std::fs::rename(folder.path("away"), folder.path("c")).unwrap();
    manager.hear("STATUS=waiting for the data-disk d");
    std::fs::rename(folder.path("away-too"), folder.path("d")).unwrap();
    manager.hear("READY=1");
    folder.dcd("status --control ctl").ok();
    assert_eq!(service.stop(), Some(0));
    // One that waits ends when it is told to, and has changed nothing.
    std::fs::rename(folder.path("d"), folder.path("away")).unwrap();
    let mut service = Service::start(&folder, &line, &manager);
    manager.hear("STATUS=waiting for the data-disk d");
    assert_eq!(service.stop(), Some(0));
    assert!(!folder.path("ctl").exists());
}

/// A start that takes long says how far it is, and who asks is answered.
#[test]
fn a_start_says_how_far_it_is() {
    let folder = pair();
    let manager = Manager::new(&folder);
    let line = SERVE.replace("--cache-disk c", "--cache-disk slow:c,read=150ms,write=0ms");
    let mut service = Service::start(&folder, &line, &manager);
    manager.hear("STATUS=opening the cache for ");
    folder.dcd("status --control ctl").fails(1, "opening the cache for ", "it serves when");
    // A client that says nothing does not hold it up.
    let _silent = std::os::unix::net::UnixStream::connect(folder.path("ctl")).unwrap();
    manager.hear("READY=1");
    folder.dcd("status --control ctl").ok();
    assert_eq!(service.stop(), Some(0));
    // It can be told to end meanwhile.
    let mut service = Service::start(&folder, &line, &manager);
    manager.hear("STATUS=opening the cache for ");
    assert_eq!(service.stop(), Some(0));
}

#[test]
fn sockets_are_taken_over() {
    let Ok(activate) = which("systemd-socket-activate") else {
        return println!("skipped: no systemd-socket-activate");
    };
    let folder = pair();
    let socket = folder.path("sock");
    let nbd = format!("--nbd unix:{}", socket.display());
    let vhost_user = format!("--vhost-user {}", socket.display());
    for served in [nbd, vhost_user] {
        let mut child = Command::new(&activate)
            .arg("--listen")
            .arg(&socket)
            .arg(env!("CARGO_BIN_EXE_dcd"))
            .args(SERVE.replace("--nbd unix:sock", &served).split_whitespace())
            .current_dir(folder.path("."))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        until_it_listens(&socket);
        // The first client starts it, and waits in the socket until it serves.
        if served.starts_with("--nbd") {
            assert_eq!(Nbd::connect(&socket).write(0, &[1; 4096]), 0);
        } else {
            ask_for_features(&socket);
        }
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        assert!(ready.starts_with("ready "), "{ready}");
        folder.dcd("status --control ctl").ok();
        let mut service = Service(child);
        assert_eq!(service.stop(), Some(0));
        assert!(socket.exists(), "the socket is the manager's");
        std::fs::remove_file(&socket).unwrap();
    }
}

/// Waits for a socket with a listener, without a client for it: what Linux tells of both.
fn until_it_listens(socket: &Path) {
    let until = Instant::now() + Duration::from_secs(60);
    let is_listening = || {
        // The fourth has the flag of who listens (__SO_ACCEPTCON), the eighth is the path.
        std::fs::read_to_string("/proc/net/unix").unwrap().lines().any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields.get(7).is_some_and(|path| Path::new(path) == socket) && fields[3] == "00010000"
        })
    };
    while !is_listening() {
        assert!(Instant::now() < until, "nobody listens");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The first request of a vhost-user front-end, GET_FEATURES, and its answer.
fn ask_for_features(socket: &Path) {
    let mut stream = UnixStream::connect(socket).unwrap();
    let header = [1u32, 1, 0].map(u32::to_ne_bytes).concat();
    stream.write_all(&header).unwrap();
    let mut answer = [0; 20];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..12], [1u32, 5, 8].map(u32::to_ne_bytes).concat());
}

#[test]
fn memory_that_lost_its_name_is_taken_over() {
    let folder = pair();
    let served = folder.serve(&format!("{SERVE} --max-delay 1h"));
    let mut nbd = Nbd::connect(&folder.path("sock"));
    assert_eq!(nbd.write(8192, &[7; 4096]), 0);
    let name = std::fs::read_dir(folder.path(".")).unwrap().flatten().map(|entry| entry.path());
    let memory =
        name.into_iter().find(|path| path.extension().is_some_and(|it| it == "segments")).unwrap();
    // What systemd keeps: a descriptor. The shell passes it on as the first, and says so.
    let kept = std::fs::File::options().read(true).write(true).open(&memory).unwrap();
    served.kill();
    std::fs::remove_file(&memory).unwrap();
    rustix::io::fcntl_setfd(&kept, rustix::io::FdFlags::empty()).unwrap();
    let stored = memory.file_stem().unwrap().to_str().unwrap().replacen("dcd-", "segments-", 1);
    // In front of it, and under its name in the directory, is one of another session.
    let foreign = folder.path("foreign");
    std::fs::write(&foreign, std::fs::read(format!("/proc/self/fd/{}", kept.as_raw_fd())).unwrap())
        .unwrap();
    std::fs::set_permissions(&foreign, std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .unwrap();
    let other = std::fs::File::options().read(true).write(true).open(&foreign).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&other, &[9; 16], 4076).unwrap();
    std::fs::copy(&foreign, &memory).unwrap();
    rustix::io::fcntl_setfd(&other, rustix::io::FdFlags::empty()).unwrap();
    let script = format!(
        "exec 3<>/proc/self/fd/{} 4<>/proc/self/fd/{}; export LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES={stored}:{stored}; exec {} {SERVE}",
        other.as_raw_fd(),
        kept.as_raw_fd(),
        env!("CARGO_BIN_EXE_dcd"),
    );
    let mut child = Command::new("bash")
        .arg("-c")
        .arg(script)
        .current_dir(folder.path("."))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let mut service = Service(child);
    assert!(ready.starts_with("ready ") && !ready.contains("from-memory=0 "), "{ready}");
    let mut nbd = Nbd::connect(&folder.path("sock"));
    assert_eq!(nbd.read(8192, 4096).unwrap(), [7; 4096]);
    // A client that stays is waited for.
    drop(nbd);
    assert_eq!(service.stop(), Some(0));
}

#[test]
fn a_killed_service_is_followed_by_another_one() {
    let folder = pair();
    let manager = Manager::new(&folder);
    for started in 1..=3 {
        // What the manager keeps is no lock that the next one could not get.
        let mut service = Service::start(&folder, SERVE, &manager);
        manager.hear("READY=1");
        assert_eq!(manager.2.borrow().len(), started);
        service.0.kill().unwrap();
        service.0.wait().unwrap();
    }
}

#[test]
fn udev_is_told_which_disks_belong_to_caches() {
    let folder = pair();
    std::fs::create_dir(folder.path("etc")).unwrap();
    let here = folder.path(".").canonicalize().unwrap();
    let disks = format!("cache-disk = \"{0}/c\"\ndata-disk = \"{0}/d\"\n", here.display());
    std::fs::write(folder.path("etc/sdb.toml"), disks).unwrap();
    std::fs::write(folder.path("etc/wrong.toml"), "cache-disk = 5\n").unwrap();
    let probe = |what: &str| folder.dcd(&format!("probe --configurations etc {what}")).ok();
    // Until it is served for the first time, nothing is newer than the data-disk.
    assert!(probe("--udev d").ends_with("DCD_ATTACHED=0\n"));
    let names_it = format!("DCD_DATA_DISKS={}/d\n", here.display());
    assert!(probe("--udev c").contains(&names_it), "{}", probe("--udev c"));
    assert_eq!(folder.serve(SERVE).stop().code, Some(0));
    let cache = probe("--udev c");
    assert!(cache.starts_with("DCD_ROLE=cache-disk\nDCD_NAME=sdb\nDCD_UUID="), "{cache}");
    assert!(cache.ends_with("DCD_ATTACHED=1\n"), "{cache}");
    assert!(probe("--udev d").starts_with("DCD_ROLE=data-disk\nDCD_NAME=sdb\n"));
    assert!(probe("d").contains("may be old"), "{}", probe("d"));
    folder.disk("other", 1 << 20);
    assert_eq!(probe("--udev other"), "");
    assert_eq!(probe("--udev gone"), "");
    // A data-disk whose cache-disk is missing is not to be used either.
    std::fs::rename(folder.path("c"), folder.path("away")).unwrap();
    assert_eq!(probe("--udev d"), "DCD_ROLE=data-disk\nDCD_NAME=sdb\nDCD_ATTACHED=1\n");
    // But if none was ever made there, or something else is there now, it is a disk as any other.
    folder.disk("c", 1 << 20);
    assert_eq!(probe("--udev d"), "DCD_ROLE=data-disk\nDCD_NAME=sdb\nDCD_ATTACHED=0\n");
    std::fs::rename(folder.path("away"), folder.path("c")).unwrap();
    folder.dcd("detach --cache-disk c --data-disk d --memory-directory .").ok();
    assert!(probe("--udev d").ends_with("DCD_ATTACHED=0\n"));
}

#[test]
fn units_are_as_hardened_as_is_promised() {
    let Ok(analyze) = which("systemd-analyze") else {
        return println!("skipped: no systemd-analyze");
    };
    let security = |unit: &str, threshold: u32| {
        let mut command = Command::new(&analyze);
        command.args(["security", "--offline=true", "--no-pager"]);
        command.arg(format!("--threshold={threshold}")).arg(packaging(unit));
        command.output().unwrap()
    };
    for (unit, threshold) in units() {
        let output = security(&unit, threshold);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !text.contains("Overall exposure level") {
            return println!("skipped: systemd-analyze cannot look at units here: {text}");
        }
        assert!(output.status.success(), "{unit}: {text}");
        // That less is refused shows that the threshold means something.
        assert!(!security(&unit, 5).status.success(), "{unit}");
    }
}

/// Every unit that runs a program, and ten times the exposure that it may have.
fn units() -> Vec<(String, u32)> {
    let mut units = Vec::new();
    for directory in ["", "systemd"] {
        for entry in std::fs::read_dir(packaging(directory)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".service") {
                // It is root, and has no mounts of its own.
                let threshold = if name == "dcd-late@.service" { 30 } else { 20 };
                units.push((Path::new(directory).join(name).display().to_string(), threshold));
            }
        }
    }
    assert!(units.len() >= 2, "{units:?}");
    units
}

/// What one of them needs, the other needs, too: they run the same program.
#[test]
fn both_services_may_make_the_same_calls() {
    let filters = |unit: &str| {
        let unit = std::fs::read_to_string(packaging(unit)).unwrap();
        let lines = unit.lines().map(str::to_owned);
        let named = ["SystemCallFilter=", "CapabilityBoundingSet=", "DeviceAllow="];
        lines.filter(|line| named.iter().any(|it| line.starts_with(it))).collect::<Vec<_>>()
    };
    let (mut one, mut other) = (filters("systemd/dcd@.service"), filters("dcd-late@.service"));
    one.sort();
    other.sort();
    assert!(one.len() > 5);
    assert_eq!(one, other);
}

/// The last program of systemd unmounts its own mounts only: what gives a unit others, leaves the
/// file system mounted there.
#[test]
fn the_late_unit_has_no_mounts_of_its_own() {
    let unit = std::fs::read_to_string(packaging("dcd-late@.service")).unwrap();
    for line in unit.lines() {
        let key = line.split('=').next().unwrap_or_default();
        for makes_mounts in [
            "PrivateMounts",
            "PrivateTmp",
            "PrivateDevices",
            "PrivateIPC",
            "PrivateUsers",
            "ProtectSystem",
            "ProtectHome",
            "ProtectKernel",
            "ProtectControlGroups",
            "ProtectHostname",
            "ProtectProc",
            "ProcSubset",
            "ReadWritePaths",
            "ReadOnlyPaths",
            "InaccessiblePaths",
            "Bind",
            "TemporaryFileSystem",
            "RootDirectory",
            "RootImage",
            "MountFlags",
            "DynamicUser",
            "LogNamespace",
        ] {
            assert!(!key.starts_with(makes_mounts), "{line}");
        }
    }
}

/// Keys of the example are settings, and the unit's flags are flags.
#[test]
fn what_is_packaged_fits_the_program() {
    let folder = Folder::new();
    let example = std::fs::read_to_string(packaging("example.toml")).unwrap();
    // Without the device, which not every machine can make: then the disks are what is missing.
    for example in [example.clone(), example.replace("# metrics", "metrics")] {
        let settings = example.replace("\nublk = 0\n", "\nnbd = [\"unix:sock\"]\n");
        assert_ne!(settings, example);
        std::fs::write(folder.path("x.toml"), settings).unwrap();
        folder.dcd("serve --config x.toml").fails(1, "nvme-EXAMPLE-part4", "");
    }
    let unit = std::fs::read_to_string(packaging("systemd/dcd@.service")).unwrap();
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/dcd ")).unwrap();
    let help = folder.dcd("serve --help").ok();
    for flag in start.split(' ').filter(|word| word.starts_with("--")) {
        assert!(help.contains(&format!("{flag} ")) || help.contains(&format!("{flag}[")), "{flag}");
    }
    for rules in ["udev/60-dcd.rules", "udev/62-dcd.rules", "udev/99-dcd.rules"] {
        let rules = std::fs::read_to_string(packaging(rules)).unwrap();
        for line in rules.lines().filter(|line| line.contains("GOTO=")) {
            let label = line.split("GOTO=\"").nth(1).unwrap().trim_end_matches('"');
            assert!(rules.contains(&format!("LABEL=\"{label}\"")), "{label}");
        }
    }
}

fn packaging(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(path)
}

fn which(program: &str) -> Result<PathBuf, ()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|it| it.exists()).ok_or(())
}
